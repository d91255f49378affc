"""Pack constants once: a kernel that packs blocks of a constant gets them from a program that runs once.

A packed block is a copy of a part of an operand in the order in which the kernel reads it. The kernel and its filling
kernel are the same node except for two fields of KernelInfo (`frozen`, `fills`). The optimizer makes one plan for both,
so they agree on the layout. The kernel's operands are followed by its blocks. The filling kernel's operands are a
block, its source, the next block, and so on.

Before: LINEAR(CALL(k, P1, P0, P3))                                                       P3 a constant
After:  LINEAR(LINEAR(CALL(k fills, B1, P3), "once"), CALL(k frozen, P1, P0, P3, B1))
If packing does not pay, the plan has no blocks: a product that reads each weight once per call reads it unpacked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

from monolect.base.settings import settings
from monolect.command.forms import (
    base_of,
    has_loops,
    is_frame,
    items_of,
    memory,
    new_slot,
    once_of,
    program_of,
    with_program,
    writes,
)
from monolect.command.rewrites.once import changing
from monolect.ir.ops import KernelInfo
from monolect.ir.uop import UOp, node, toposort


class Packed(NamedTuple):
    """A packed block (a rearranged copy of a constant): the slot of the PARAM that is packed, the bytes of the block,
    and the name of its layout.

    Copies of one constant with the same layout name hold the same bytes.
    """

    slot: int
    n_bytes: int
    layout: str


class Budget(Protocol):
    """A limit on the memory that packed copies of constants may take.
    The runtime implements it, as `StepBudget`.
    """

    def grants(self, copies: set[tuple[UOp, str, int]]) -> bool:
        """Return whether `copies`, a set of (source, layout, bytes), fit into the limit.
        If they fit, they count as taken.
        """


def pack_once(step: UOp, blocks_of: Callable[[UOp], tuple[Packed, ...]], budget: Budget) -> UOp:
    """The pass: return `step` with kernels that take packed blocks of constants, filled by new items of the LINEAR
    "once".

    `blocks_of(kernel)` returns the blocks that the optimizer's plan for the kernel packs of its constants. It is called
    for each kernel that reads a constant in a reduction; for () the kernel is unchanged. Kernels with the same
    constants share their blocks. A kernel whose blocks exceed `budget` packs at every run, as before.
    """
    linear = program_of(step)
    if not settings.HOIST or not step.arg.is_replayed or has_loops(items_of(linear)):
        return step
    once, items = [*once_of(linear)], [*items_of(linear)]
    given = changing(step)
    made = {
        base_of(c.src[1 + k]) for c in once if not is_frame(c) for k in writes(c)
    }  # not frames: other items write inside of them
    filled: dict[tuple[UOp, tuple[UOp, ...]], tuple[UOp, ...]] = {}
    slot = new_slot([*once, *items])
    found = False
    for i, c in enumerate(items):
        kernel = frozen_kernel(c, given, made) if c.op == "CALL" else None
        blocks = blocks_of(kernel) if kernel is not None else ()
        if not blocks or kernel is None:
            continue
        sources = tuple([c.src[1 + b.slot] for b in blocks])
        if not budget.grants({(s, b.layout, b.n_bytes) for s, b in zip(sources, blocks, strict=True)}):
            continue
        if (kernel, sources) not in filled:
            device = str(c.src[1].arg.device)
            copies = tuple([memory(slot + k, b.n_bytes, device) for k, b in enumerate(blocks)])
            slot += len(blocks)
            filled[kernel, sources] = copies
            pairs = [u for pair in zip(copies, sources, strict=True) for u in pair]
            once.append(node("CALL", (filling(kernel), *pairs)))
        items[i] = node("CALL", (kernel, *c.src[1:], *filled[kernel, sources]))
        found = True
    return with_program(step, items, once) if found else step


def frozen_kernel(call: UOp, given: set[int], made: set[UOp]) -> UOp | None:
    """Return the kernel of `call` with the slots of its constant arguments in `KernelInfo.frozen`; None if no reduction
    reads such an argument, or if the CALL runs no SINK; then nothing is packed.

    `given`: slots of the step's PARAMs that may change at each call. `made`: BUFFERs that items of the LINEAR "once"
    write.
    """
    sink = call.src[0]
    if sink.op != "SINK":
        return None
    bases = map(base_of, call.src[1:])
    slots = tuple([k for k, b in enumerate(bases) if (b.arg.slot not in given if b.op == "PARAM" else b in made)])
    if not slots or not slots_in_sums(sink).intersection(slots):
        return None
    return node("SINK", sink.src, (sink.arg or KernelInfo())._replace(frozen=slots))


@lru_cache(maxsize=4096)
def slots_in_sums(sink: UOp) -> frozenset[int]:
    """Return the slots of the PARAMs that the kernel `sink` reads inside of reductions."""
    sums = [u for u in toposort(sink) if u.op == "REDUCE" and len(u.src) > 1]
    loads = {u for u in toposort(*sums) if u.op == "LOAD"} if sums else set()
    return frozenset(p.arg.slot for u in loads for p in toposort(u.src[0]) if p.op == "PARAM")


def filling(kernel: UOp) -> UOp:
    """Return the kernel that fills the packed blocks of `kernel`, which is the same node except for
    `KernelInfo.fills`.
    """
    return node("SINK", kernel.src, kernel.arg._replace(fills=True))


__all__ = ["Budget", "Packed", "filling", "frozen_kernel", "pack_once", "slots_in_sums"]
