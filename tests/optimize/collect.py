"""Collect the kernels of the frozen corpus: every kernel of `programs`, as it is when actions are chosen for it.

    python -m tests.optimize.collect FILE

Kernels depend on the target twice only: whether it has workgroups, and whether a thread has local memory. So they are
collected for one processor and one GPU, which run nothing. Of the kernels of each that differ only in constants, the
first few are kept.
"""

from __future__ import annotations

import gzip
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from monolect import Context
from monolect.backend.null.runtime import NullDevice
from monolect.backend.registry import Device
from monolect.base.errors import MonolectError
from monolect.base.target import Target
from monolect.ir.ops import KernelInfo
from monolect.ir.text import show
from monolect.ir.uop import UOp, node, toposort
from monolect.pipeline import lower_kernel
from monolect.runtime.realize import lowering
from tests.optimize.programs import PROGRAMS
from tests.optimize.targets import H100, ZEN_5

ALIKE, ALIKE_SUMS, ALIKE_PRODUCTS = 1, 2, 4  # kernels of one structure that are kept, by how much their sizes matter
FLOWS = {"cpu": ZEN_5._replace(name="cpu", n_threads=2), "gpu": H100._replace(name="cuda")}


class Recorder:
    """Stands in for the lowering of kernels: keeps them as they are before actions are chosen, and makes nothing."""

    def __init__(self) -> None:
        self.found: dict[UOp, None] = {}

    def __call__(self, sink: UOp, target: Target, first: str = "", last: str = "") -> UOp:
        if last:
            return lower_kernel(sink, target, first=first, last=last)
        info = sink.arg or KernelInfo()
        if info.actions is None and not info.fills:
            ready = lower_kernel(sink, target, last=lowering.READY)
            self.found[node("SINK", ready.src, ready.arg._replace(name="kernel", frames=False))] = None
        return node("LINEAR", (), info)


def structure(sink: UOp) -> tuple[Any, ...]:
    """What is equal for kernels that differ only in constants."""
    at: dict[UOp, int] = {}
    rows = []
    for u in toposort(sink):
        at[u] = len(at)
        rows.append(
            (u.op, u.dtype.name, tuple(at[s] for s in u.src), None if u.op in ("CONST", "PARAM") else repr(u.arg))
        )
    return tuple(rows)


def most(sink: UOp) -> int:
    """Number of kernels of the structure of `sink` that are kept."""
    sums = [u for u in toposort(sink) if u.op == "REDUCE"]
    return ALIKE_PRODUCTS if any(u.src[0].op == "MUL" for u in sums) else ALIKE_SUMS if sums else ALIKE


def collected(flow: str) -> Iterator[tuple[str, UOp]]:
    """Yield (name of the program, kernel) for a processor or a GPU."""
    target = FLOWS[flow]
    device = NullDevice(target.name)
    device.target = target
    Device._open[target.name] = device
    seen: dict[tuple[Any, ...], int] = defaultdict(int)
    with Context(DEVICE=target.name, COMPILE_CACHE=0, PROGRESS=0):
        for name, program in PROGRAMS.items():
            recorder = Recorder()
            lowering.lower_kernel = recorder  # type: ignore[assignment]
            start = time.perf_counter()
            try:
                program()
            except (MonolectError, TypeError, ValueError, AttributeError) as error:
                print(f"{flow} {name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
            if (seconds := time.perf_counter() - start) > 5:
                print(f"{flow} {name}: {seconds:.0f} s", file=sys.stderr)
            for sink in recorder.found:
                key = structure(sink)
                seen[key] += 1
                if seen[key] <= most(sink):
                    yield name, sink
    lowering.lower_kernel = lower_kernel


def main() -> None:
    """Write the corpus."""
    np.seterr(all="ignore")
    of: dict[str, tuple[list[str], str]] = {}  # text of a kernel -> flows, name of the first program
    for flow, target in FLOWS.items():
        for name, sink in collected(flow):
            text = show(sink).replace(f'device="{target.name}"', 'device="cpu"')
            flows, _ = of.setdefault(text, ([], name))
            if flow not in flows:
                flows.append(flow)
    numbers: dict[str, int] = defaultdict(int)
    out = []
    for text, (flows, name) in of.items():
        numbers[name] += 1
        out.append(f"# {name} #{numbers[name]}: {' '.join(flows)}\n{text}")
    with open(sys.argv[1], "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write("\n".join(out).encode())
    print(f"{len(out)} kernels of {len(numbers)} programs", file=sys.stderr)


if __name__ == "__main__":
    main()
