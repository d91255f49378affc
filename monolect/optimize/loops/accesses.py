"""Describe the memory accesses of a plan: bytes, contiguous parts, prefetch distances, and rows that a gather loads."""

from __future__ import annotations

from math import prod

from monolect.ir.bounds import ranges, size_max
from monolect.ir.rewrite.normal import count, linear, smaller
from monolect.ir.uop import UOp, toposort
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import LoopNest
from monolect.optimize.tuning import LINE_BYTES, MAX_PREFETCH_BYTES, PAGE_BYTES


def buffer_bytes(u: UOp) -> int:
    """Size in bytes of the whole PARAM that the LOAD or STORE `u` accesses; 0 if `u` accesses a BUFFER."""
    memory = u.src[0].src[0]
    return memory.dtype.itemsize * size_max(count(memory.shape)) if memory.op == "PARAM" else 0


def vector_of(plan: LoopNest, u: UOp) -> AxisPart | None:
    """Return the part of type UPCAST or GROUP_REDUCE (vector lanes) along which the LOAD or STORE `u` accesses
    consecutive elements, or None.
    """
    if u.src[0].op != "INDEX" or len(u.src[0].src) != 2:
        return None
    steps = dict(linear(u.src[0].src[1])[1])
    shaped = (p for p in plan.axes if p.type in ("UPCAST", "GROUP_REDUCE"))
    return next((p for p in shaped if steps.get(p.root, 0) * p.stride == 1), None)


def next_row_distance(plan: LoopNest, u: UOp) -> int:
    """Return the distance in bytes between the addresses of the LOAD or STORE `u` in consecutive rows of tiles, for a
    prefetch; 0 if no prefetch pays.

    A row of tiles is one iteration of the row loop: the outermost loop inside the block loops that moves `u` and whose
    inner loops access at most half of the L2 cache. The result is 0 if there is no such loop, if the distance is so
    short that the hardware prefetches it, or if it exceeds MAX_PREFETCH_BYTES.
    """
    steps, itemsize = dict(linear(u.src[0].src[1])[1]), u.src[0].dtype.itemsize
    inner = [p for p in plan.axes if steps.get(p.root) and not p.is_block and p.type != "THREAD"]
    for p in [p for p in inner if p.type == "LOOP" and p.size > 1]:
        inside = inner[inner.index(p) + 1 :]
        n_elements = prod(q.size for q in inside)
        reach = sum(abs(steps[q.root]) * q.stride * (q.size - 1) for q in inside)
        if min(n_elements, reach + 1) * itemsize <= plan.target.l2_bytes // 2:
            n = abs(steps[p.root]) * p.stride
            near = PAGE_BYTES if n > reach else LINE_BYTES  # one stream, or other loops revisit nearby memory
            return n * itemsize if near <= n * itemsize <= MAX_PREFETCH_BYTES else 0
    return 0


def index_loads(u: UOp) -> list[UOp]:
    """Return the LOADs from whose values the index of the LOAD or STORE `u` is computed, as in a gather."""
    terms = linear(u.src[0].src[1])[1] if len(u.src[0].src) == 2 else ()
    return [v for v in toposort(*(x for x, _ in terms if x.op != "RANGE")) if v.op == "LOAD"]


def row_loop(plan: LoopNest, u: UOp) -> AxisPart | None:
    """Return the innermost LOOP part along which the index of the gather `u` changes, or None; each of its iterations
    loads one row.

    `u` is a LOAD whose index is computed from other loads (`index_loads`).
    """
    moved = {r for v in index_loads(u) for r in ranges(v)}
    loops = [p for p in plan.axes if p.root in moved and p.type == "LOOP" and not p.is_block]
    return max(loops, key=plan.axes.index, default=None)


def clamped_to_last(r: UOp, e: UOp) -> UOp:
    """Return min(e, n - 1) as a node, where n is the number of iterations of the RANGE r."""
    return smaller(e, r.src[0] + -1)


__all__ = ["buffer_bytes", "clamped_to_last", "index_loads", "next_row_distance", "row_loop", "vector_of"]
