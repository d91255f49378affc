"""Choose the actions of every kernel of the frozen corpus for every target, and write them as text.

    python -m tests.optimize.choose > FILE
    python -m tests.optimize.choose 2 1     (every second kernel, from number 1 on, for every second target)

It runs in a process of its own: the order of commutative operands is the order in which nodes were made, so it must not
depend on which tests ran before. The first line counts kernels
by class. A line has the targets that choose alike, and their actions.
"""

from __future__ import annotations

import gc
import gzip
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from monolect import Context
from monolect.base.target import Target
from monolect.ir.text import parse
from monolect.ir.uop import UOp
from monolect.optimize.actions.plan import Action, LoopPlan
from monolect.optimize.classes import KernelClass, classify
from monolect.optimize.cpu.heuristic import choose
from tests.optimize.targets import GPUS, PROCESSORS

KERNELS = Path(__file__).parent / "kernels.ir.gz"
OF_FLOW = {"cpu": PROCESSORS, "gpu": GPUS}


class Kernel(NamedTuple):
    """A kernel of the corpus; `flows` names the kinds of device that it is for."""

    name: str
    flows: tuple[str, ...]
    sink: UOp

    def targets(self, step: int) -> list[Target]:
        return [t for flow in self.flows for t in OF_FLOW[flow][::step]]


def kernels() -> Iterator[Kernel]:
    """Yield the kernels of the corpus."""
    for part in re.split(r"(?m)^# ", gzip.decompress(KERNELS.read_bytes()).decode())[1:]:
        head, _, text = part.partition("\n")
        name, _, flows = head.rpartition(": ")
        yield Kernel(name, tuple(flows.split()), parse(text))


def chosen(sink: UOp, target: Target) -> LoopPlan:
    """The plan of a kernel with the actions that the heuristic chooses."""
    plan = LoopPlan(sink, target)
    with Context(TF32=int("tf32" in target.name)):
        choose(plan)
    return plan


def action_text(action: Action) -> str:
    """An action as words: `SPLIT 1 16 UPCAST`, or `SPLIT 1 2 THREAD top` from the top."""
    op, axis, arg = action
    words: list[Any] = [op, axis]
    if op == "SPLIT" and isinstance(arg, tuple):
        words += [*arg[:2], *(["top"] if arg[2] else [])]
    elif arg is not None:
        words.append(str(arg).replace("'", "").replace(" ", ""))
    return " ".join(map(str, words))


def targets_text(names: list[str]) -> str:
    """Names of targets as words: `zen5 x1 x2, h100`."""
    of: dict[str, list[str]] = {}
    for name in names:
        family, *threads = name.split(" ")
        of.setdefault(family, []).extend(threads)
    return ", ".join(" ".join([family, *threads]) for family, threads in of.items())


def loops_text(plan: LoopPlan) -> str:
    """The sizes of the loops: outputs, then reductions."""
    outputs, reduced = (" x ".join(str(plan.size(r) or "n") for r in rs) for rs in (plan.outputs, plan.reduced))
    return f"{outputs or 1}" + (f", sum {reduced}" if reduced else "")


def lines(k: Kernel, step: int) -> Iterator[str]:
    """Yield the name of a kernel with its class and loops, then a line for the targets that choose alike."""
    alike: dict[str, list[str]] = {}
    for target in k.targets(step):
        plan = chosen(k.sink, target)
        alike.setdefault("; ".join(map(action_text, plan.actions)) or "none", []).append(target.name)
    yield f"{k.name}: {classify(k.sink)} ({loops_text(plan)})"
    for actions, names in alike.items():
        yield f"  {targets_text(names)}: {actions}"


def main(step: int = 1, first: int = 0) -> None:
    """Print the choices for kernels from number `first` on, and for the targets of each flow, both with this step."""
    gc.disable()
    found = list(kernels())
    of_class = Counter(classify(k.sink) for k in found)
    print(f"{len(found)} kernels: " + ", ".join(f"{of_class[c]} {c}" for c in KernelClass if of_class[c]))
    for k in found[first::step]:
        print("\n".join(lines(k, step)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
