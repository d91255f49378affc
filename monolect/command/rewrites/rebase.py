"""Kernels that differ only in where in their buffers they begin are one kernel: the launch says where.

An unrolled recurrence reads and writes its own part of one tensor at each step. Its kernels are equal but for constants
in their indices; a kernel that counts from the first element it touches is the same node for all of them, and is
optimized, lowered and compiled once. A part begins at whole lines of memory: what a kernel knows of alignment holds.

What it is not: a change of what is launched on what. Launches name whole buffers and their CALLs keep whole kernels, so
whoever asks what a step reads, writes or may overwrite sees no parts.
Invariant: each access is to the address that the whole kernel gives it, and lies inside of its PARAM.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from monolect.base.settings import switched
from monolect.command.forms import calls_in, items_of, once_of, program_of, rebuilt, view, with_program
from monolect.command.rewrites.memory import ALIGN_BYTES
from monolect.ir.bounds import min_max
from monolect.ir.ops import KernelInfo, ParamArg
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, idx, node, rebuild, shape_source, toposort


class FromParts(NamedTuple):
    """A kernel over parts of its buffers; for each of its PARAMs the byte at which the part begins, () where all begin
    at their first.
    """

    kernel: UOp
    offsets: tuple[int, ...]


@lru_cache(maxsize=4096)
def from_parts(kernel: UOp, n_args: int) -> FromParts:
    """A kernel of `n_args` arguments that counts from the first line of memory that it touches in each of them."""
    if kernel.op != "SINK":
        return FromParts(kernel, ())
    order = toposort(kernel)
    parts = {p: part for p, (low, high) in _reach(order).items() if (part := _part(p, low, high)) is not None}
    if not parts:
        return FromParts(kernel, ())
    new: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([new[s] for s in u.src])
        if u.op == "INDEX" and u.src[0] in parts:
            first, p = parts[u.src[0]]
            new[u] = node("INDEX", (p, build("ADD", src[1], idx(-first))))
            new[u].origin = new[u].origin or u.origin
        else:
            new[u] = rebuild(u, src)
    offsets = [0] * n_args
    for p, (first, _) in parts.items():
        offsets[p.arg.slot] = first * p.dtype.itemsize
    return FromParts(new[kernel], tuple(offsets))


switched.append(from_parts.cache_clear)


def _reach(order: list[UOp]) -> dict[UOp, tuple[int, int]]:
    """The least and the greatest element named of each PARAM that is memory and is only indexed."""
    out: dict[UOp, tuple[int, int]] = {}
    whole: set[UOp] = set()
    for u in order:
        for k, p in enumerate(u.src):
            if p.op != "PARAM" or p.arg.name is not None:
                continue
            if u.op != "INDEX" or k or len(u.src) != 2 or u.src[1].shape:
                whole.add(p)
                continue
            low, high = min_max(u.src[1])
            if p in out:
                low, high = min(low, out[p][0]), max(high, out[p][1])
            out[p] = int(low), int(high)
    return {p: reach for p, reach in out.items() if p not in whole}


def _part(p: UOp, low: int, high: int) -> tuple[int, UOp] | None:
    """The element at which the part of PARAM `p` from `low` to `high` begins, and the PARAM it is; None for one that
    begins where its buffer does. What a gate keeps inside may name elements beyond.
    """
    size = count(p.shape)
    line = max(1, ALIGN_BYTES // p.dtype.itemsize)
    first = low // line * line
    if first <= 0 or not isinstance(size, int) or first >= size:
        return None
    assert isinstance(p.arg, ParamArg)
    return first, node("PARAM", (shape_source((min(size, high + 1) - first,)),), p.arg)


def rebase(step: UOp) -> UOp:
    """The pass: each CALL of such a kernel takes parts of its buffers. Kernels over packed blocks stay as they are."""
    linear = program_of(step)
    once, items = once_of(linear), items_of(linear)
    calls = [*once, *calls_in(items)]
    new = [_rebased(c) for c in calls]
    if all(a is b for a, b in zip(new, calls, strict=True)):
        return step
    return with_program(step, rebuilt(items, new[len(once) :]), new[: len(once)])


def _rebased(call: UOp) -> UOp:
    if call.op != "CALL" or call.src[0].op != "SINK" or (call.src[0].arg or KernelInfo()).frozen:
        return call
    if any(b.op not in ("PARAM", "BUFFER") for b in call.src[1:]):
        return call
    kernel, offsets = from_parts(call.src[0], len(call.src) - 1)
    if not offsets:
        return call
    sizes = {p.arg.slot: p.shape[0] for p in toposort(kernel) if p.op == "PARAM" and p.arg.name is None}
    operands = [
        view(b, offset, sizes[k], b.dtype) if offset else b
        for k, (b, offset) in enumerate(zip(call.src[1:], offsets, strict=True))
    ]
    return node("CALL", (kernel, *operands))


__all__ = ["FromParts", "from_parts", "rebase"]
