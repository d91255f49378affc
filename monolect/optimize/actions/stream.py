"""NONTEMPORAL and PREFETCH: stores that bypass the caches, and software prefetch. Both set the arg of a STORE or LOAD.

A NONTEMPORAL store saves the read of each line before it is overwritten, for outputs larger than the last cache. It
writes whole, aligned vectors. It is refused where that is not proven: behind a gate, at an offset that is no multiple
of the vector, or into memory that the kernel reads.
PREFETCH has three forms. With n bytes, each load also prefetches the line n bytes after its address: more of a stream,
or the next rows of tiles. With "next", each pass over a block that is packed once prefetches its share of the next
block (`pack`). With ("rows", n), a kernel that reads rows named by an index tensor prefetches the row of n iterations
later; it clamps the iteration to the last one, so the index itself is always read inside its buffer. The prefetched
addresses need not be valid.

The module checks and applies these actions; `heuristic` chooses them, by sizes.

Before: STORE(INDEX(PARAM0, r0*16 + u), LOAD(INDEX(PARAM1, r0*16 + u)))              u: UPCAST of 16
After:  STORE(INDEX(PARAM0, r0*16 + u), LOAD(INDEX(PARAM1, r0*16 + u), prefetch 4096), nontemporal)

Before: END(STORE(.., LOAD(INDEX(PARAM1, LOAD(INDEX(PARAM2, r0))*16 + u))), r0:64)    PREFETCH(0, ("rows", 2))
After:  SINK(END(STORE(..), r0), END(PREFETCH(INDEX(PARAM1, LOAD(INDEX(PARAM2, min(r0 + 2, 63)))*16 + u)), r0))
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges, size_max
from monolect.ir.ops import LoadArg
from monolect.ir.rewrite.normal import count, linear, smaller
from monolect.ir.uop import UOp, node, substitute, toposort

if TYPE_CHECKING:
    from monolect.optimize.actions.plan import AxisPart, LoopPlan

MIN_NONTEMPORAL_BYTES = 16  # bytes; shorter vectors cannot be stored past the caches
MAX_PREFETCH_BYTES = 1 << 20  # bytes; the largest prefetch distance
PAGE_BYTES = 4096  # bytes; hardware prefetchers follow a stream within a page
MAX_PREFETCH_ROWS = 64  # iterations; the largest prefetch distance in rows
LINE_BYTES = 64  # bytes of a cache line


def buffer_bytes(u: UOp) -> int:
    """Bytes of the PARAM that an access is to; 0 for other memory."""
    memory = u.src[0].src[0]
    return memory.dtype.itemsize * size_max(count(memory.shape)) if memory.op == "PARAM" else 0


def vector_of(plan: LoopPlan, u: UOp) -> AxisPart | None:
    """Return the shaped part along which an access is contiguous, or None."""
    if u.src[0].op != "INDEX" or len(u.src[0].src) != 2:
        return None
    steps = dict(linear(u.src[0].src[1])[1])
    shaped = (p for p in plan.axes if p.type in ("UPCAST", "GROUP_REDUCE"))
    return next((p for p in shaped if steps.get(p.root, 0) * p.stride == 1), None)


def next_row_distance(plan: LoopPlan, u: UOp) -> int:
    """Return the distance in bytes from an access to the same access in the next row of tiles, or 0.

    The row loop is the outermost loop inside the blocks that moves the access and whose inner loops read at most half
    of the L2 cache. It is 0 if there is no such loop, if the hardware prefetches that near, or if the distance is too
    large.
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


def check_nontemporal(plan: LoopPlan, number: Any) -> tuple[UOp, str]:
    """Return (the STORE, its new arg). Raises ActionError where a store past the caches is not provably right."""
    u = _numbered(plan, "NONTEMPORAL", "store", plan.stores, number)
    if u.op != "STORE" or u.arg is not None or u.src[0].src[0].op != "PARAM":
        raise ActionError("NONTEMPORAL", expected="a plain STORE to memory", found=repr(u))
    # the peeled tail is masked, and not stored past the caches
    peeled = {p.root for p, ends in plan.peeled.items() if ends[-1]}
    if len(u.src) > 2 or any(r in plan.padded and r not in peeled for r in ranges(u)):
        raise ActionError("NONTEMPORAL", expected="a store that always happens", found="a gate")
    if plan.sequential - plan.running or any(p.is_block and p.root in plan.reduced for p in plan.axes):
        raise ActionError("NONTEMPORAL", expected="a store that happens once", found="a scan, or blocks of a sum")
    if any(v.op == "LOAD" and v.src[0].op == "INDEX" and v.src[0].src[0] is u.src[0].src[0] for v in plan.order):
        raise ActionError("NONTEMPORAL", expected="memory that the kernel does not read", found=repr(u.src[0].src[0]))
    p = vector_of(plan, u)
    n_bytes = p.size * u.src[1].dtype.itemsize if p is not None else 0
    if p is None or n_bytes < MIN_NONTEMPORAL_BYTES or n_bytes & (n_bytes - 1) or n_bytes > plan.target.vector_bytes:
        raise ActionError("NONTEMPORAL", expected="vectors of 16 bytes up to a register", found=n_bytes)
    k, terms = linear(u.src[0].src[1])
    steps = [k]
    for x, c in terms:
        parts = [q for q in plan.axes if q.root is x]
        if not parts:
            raise ActionError("NONTEMPORAL", expected="an index linear in the loops", found=repr(x))
        steps += [c * q.stride for q in parts if q is not p]
    if any(s % p.size for s in steps):
        raise ActionError("NONTEMPORAL", expected=f"steps that are multiples of {p.size}", found=steps)
    return u, "nontemporal"


def check_prefetch(plan: LoopPlan, number: Any, ahead: Any) -> tuple[UOp, LoadArg | str | tuple[str, int]]:
    """Return (the LOAD, its flag). Raises ActionError where prefetching is not possible."""
    u = _numbered(plan, "PREFETCH", "load", plan.loads, number)
    if isinstance(ahead, tuple):
        return u, _check_rows(plan, u, ahead)
    if ahead == "next":
        if u not in plan.packs or not plan.is_frozen(u):
            raise ActionError("PREFETCH of the next block", expected="a load that is packed once", found=repr(u))
        return u, ahead
    n_bytes = ahead
    if not isinstance(n_bytes, int) or not 0 < n_bytes <= MAX_PREFETCH_BYTES:
        raise ActionError("PREFETCH distance", expected=f"1..{MAX_PREFETCH_BYTES} bytes", found=n_bytes)
    if u.arg is not None or u.src[0].src[0].op != "PARAM" or u in plan.packs:
        raise ActionError("PREFETCH", expected="a plain LOAD from memory", found=repr(u))
    rows = any(p.type == "UPCAST" and p.root in ranges(u.src[0]) for p in plan.axes)
    if vector_of(plan, u) is None and not rows:
        raise ActionError("PREFETCH", expected="a load of vectors, or of rows of a tile", found="one element at a time")
    return u, LoadArg(prefetch_bytes=n_bytes)


# ---- rows that an index names ----------------------------------------------------------------------------------------
def index_loads(u: UOp) -> list[UOp]:
    """Return the LOADs whose values the index of the access `u` is computed from."""
    terms = linear(u.src[0].src[1])[1] if len(u.src[0].src) == 2 else ()
    return [v for v in toposort(*(x for x, _ in terms if x.op != "RANGE")) if v.op == "LOAD"]


def row_loop(plan: LoopPlan, u: UOp) -> AxisPart | None:
    """Return the innermost loop that moves the index loads of `u`; each of its iterations loads one row. None without
    one.
    """
    moved = {r for v in index_loads(u) for r in ranges(v)}
    loops = [p for p in plan.axes if p.root in moved and p.type == "LOOP" and not p.is_block]
    return max(loops, key=plan.axes.index, default=None)


def _check_rows(plan: LoopPlan, u: UOp, ahead: tuple) -> tuple[str, int]:
    """Return `ahead`, ("rows", n), if `u` loads vectors of rows whose index can be read n iterations early.

    Raises ActionError otherwise.
    """
    good = len(ahead) == 2 and ahead[0] == "rows" and isinstance(ahead[1], int) and 0 < ahead[1] <= MAX_PREFETCH_ROWS
    if not good:
        raise ActionError("PREFETCH distance", expected=f'bytes, or ("rows", 1..{MAX_PREFETCH_ROWS})', found=ahead)
    names, p, vector = index_loads(u), row_loop(plan, u), vector_of(plan, u)
    moved = {r for v in names for r in ranges(v)}
    shaped = {q.root for q in plan.axes if q.type in plan.shapes}
    plain = u.arg is None and u not in plan.packs and all(v.src[0].src[0].op == "PARAM" for v in (u, *names))
    if not plain or p is None or vector is None or not ranges(u.src[0]) <= {*plan.outputs}:
        raise ActionError("PREFETCH of rows", expected="vectors of rows that an index in memory names", found=repr(u))
    if moved & shaped or (moved & plan.padded.keys()) - {p.root} or not plan.size(p.root) or plan.sequential:
        raise ActionError("PREFETCH of rows", expected="an index that one loop moves, step by step", found=repr(p.root))
    return ahead


def row_prefetches(plan: LoopPlan, new: dict[UOp, UOp]) -> list[UOp]:
    """Return the PREFETCHes of rows, each in the loops of every store that uses its LOAD.

    `new`: the new nodes of the kernel's ranges and effects.
    """
    out = []
    for u, ahead in plan.flags.items():
        if isinstance(ahead, tuple) and not isinstance(ahead, LoadArg):
            p = row_loop(plan, u)
            assert p is not None
            later = clamped_to_last(p.root, new[p.root] + p.stride * ahead[1])
            address = substitute(u.src[0], {r: new[r] for r in ranges(u.src[0])} | {p.root: later})
            ends = [e for e in plan.order if e.op == "END" and u in toposort(e.src[0])]
            out += [node("END", (node("PREFETCH", (address,)), *new[e].src[1:])) for e in ends if new[e].op == "END"]
    return list(dict.fromkeys(out))


def clamped_to_last(r: UOp, e: UOp) -> UOp:
    """Return the smaller of `e` and the last iteration of the range r."""
    return smaller(e, r.src[0] + -1)


def _numbered(plan: LoopPlan, op: str, what: str, found: list[UOp], number: Any) -> UOp:
    if not plan.target.streams:
        raise ActionError(op, expected="a target with stores past its caches", found=plan.target.name)
    if not isinstance(number, int) or not 0 <= number < len(found):
        raise ActionError(f"{op}: no such {what}", expected=f"0..{len(found) - 1}", found=number)
    if found[number] in plan.flags:
        raise ActionError(op, expected=f"a {what} without a flag", found=plan.flags[found[number]])
    return found[number]


__all__ = [
    "LINE_BYTES",
    "MAX_PREFETCH_ROWS",
    "PAGE_BYTES",
    "buffer_bytes",
    "check_nontemporal",
    "check_prefetch",
    "clamped_to_last",
    "index_loads",
    "next_row_distance",
    "row_loop",
    "row_prefetches",
    "vector_of",
]
