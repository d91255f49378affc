"""Rebase kernels that differ only in the offsets at which they access their buffers: they become one kernel, and the
launch supplies the offsets.

An unrolled recurrence accesses another part of one tensor at each step. Its kernels are equal except for constants in
their indices. A kernel that counts from the first element that it touches is the same node for all of them, and is
optimized, lowered and compiled once. An offset is a multiple of ALIGN_BYTES, so that a kernel's assumptions about
alignment hold.

What it is not: a change of the schedule, which keeps whole buffers and whole kernels. Code that looks at a step's
reads, writes and overwrites before this pass sees no parts.
Invariant: each access has the same address as in the original kernel, and is inside of its PARAM.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from monolect.base.settings import switched
from monolect.command.forms import calls_in, items_of, once_of, program_of, rebuilt, view, with_program
from monolect.command.rewrites.memory import ALIGN_BYTES
from monolect.ir.bounds import min_max
from monolect.ir.ops import KernelInfo, ParamArg
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, idx, node, nodes_of, rebuild, shape_source, toposort


class RebasedKernel(NamedTuple):
    """A kernel over parts of its original buffers, and the byte offset in each argument at which its part begins; () if
    all offsets are 0.
    Kernels that differ only in offsets have the same `kernel`, which is compiled once.
    """

    kernel: UOp
    offsets: tuple[int, ...]


@lru_cache(maxsize=4096)
def rebased_kernel(kernel: UOp, n_args: int) -> RebasedKernel:
    """Return the RebasedKernel of `kernel`, which has `n_args` arguments.

    Its indices into each argument count from the first cache line of the argument that the kernel touches.
    """
    if kernel.op != "SINK":
        return RebasedKernel(kernel, ())
    order = nodes_of(kernel)
    parts = {
        p: part for p, (low, high) in _index_bounds(order).items() if (part := _rebased_param(p, low, high)) is not None
    }
    if not parts:
        return RebasedKernel(kernel, ())
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
    return RebasedKernel(new[kernel], tuple(offsets))


switched.append(rebased_kernel.cache_clear)


def _index_bounds(order: Sequence[UOp]) -> dict[UOp, tuple[int, int]]:
    """Return {PARAM: (least, greatest) element index} for the PARAMs of memory that the nodes `order` access only by
    INDEX with one index.
    """
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


def _rebased_param(p: UOp, low: int, high: int) -> tuple[int, UOp] | None:
    """Return (offset in elements, new PARAM for the part) for a kernel that accesses the elements `low` to `high` of
    the PARAM `p`.

    Returns None if the offset would be 0 or beyond the buffer, or if the size of `p` is symbolic. Indices that a gate
    masks may be beyond the buffer.
    """
    size = count(p.shape)
    line = max(1, ALIGN_BYTES // p.dtype.itemsize)
    first = low // line * line
    if first <= 0 or not isinstance(size, int) or first >= size:
        return None
    assert isinstance(p.arg, ParamArg)
    return first, node("PARAM", (shape_source((min(size, high + 1) - first,)),), p.arg)


def rebase(step: UOp) -> UOp:
    """The pass: return `step` with each kernel replaced by its rebased kernel, which takes views of the buffers.

    Kernels over packed blocks are unchanged.
    """
    linear = program_of(step)
    once, items = once_of(linear), items_of(linear)
    calls = [*once, *calls_in(items)]
    new = [_rebased(c) for c in calls]
    if all(a is b for a, b in zip(new, calls, strict=True)):
        return step
    return with_program(step, rebuilt(items, new[len(once) :]), new[: len(once)])


def _rebased(call: UOp) -> UOp:
    """Return `call`, a CALL, with the rebased kernel and views of its buffers; `call` itself if there is nothing to
    rebase.
    """
    if call.op != "CALL" or call.src[0].op != "SINK" or (call.src[0].arg or KernelInfo()).frozen:
        return call
    if any(b.op not in ("PARAM", "BUFFER") for b in call.src[1:]):
        return call
    kernel, offsets = rebased_kernel(call.src[0], len(call.src) - 1)
    if not offsets:
        return call
    sizes = {p.arg.slot: p.shape[0] for p in toposort(kernel) if p.op == "PARAM" and p.arg.name is None}
    operands = [
        view(b, offset, sizes[k], b.dtype) if offset else b
        for k, (b, offset) in enumerate(zip(call.src[1:], offsets, strict=True))
    ]
    return node("CALL", (kernel, *operands))


__all__ = ["RebasedKernel", "rebased_kernel", "rebase"]
