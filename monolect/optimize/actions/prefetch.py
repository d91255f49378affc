"""PREFETCH: let a load prefetch memory ahead of its address, in one of three forms.

With n bytes, each load also prefetches the line n bytes after its address: more of a stream, or the next rows of tiles.
With "next", each pass over a block that is packed once prefetches its share of the next block (`optimize.blocks`).
With ("rows", n), a gather of rows prefetches the row that its index tensor names n iterations later; the kernel clamps
the iteration to the last one, so the index itself is always read inside its buffer. The prefetched addresses need not
be valid.

Before: STORE(.., LOAD(INDEX(PARAM1, r0*16 + u)))              PREFETCH(0, 4096)
After:  STORE(.., LOAD(INDEX(PARAM1, r0*16 + u), prefetch 4096))

Before: END(STORE(.., LOAD(INDEX(PARAM1, LOAD(INDEX(PARAM2, r0))*16 + u))), r0:64)    PREFETCH(0, ("rows", 2))
After:  SINK(END(STORE(..), r0), END(PREFETCH(INDEX(PARAM1, LOAD(INDEX(PARAM2, min(r0 + 2, 63)))*16 + u)), r0))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges
from monolect.ir.ops import LoadArg
from monolect.ir.rewrite.named_rules import Row
from monolect.ir.uop import UOp, node, substitute, toposort
from monolect.optimize.actions.kind import ActionKind, Move, Moves, numbered
from monolect.optimize.loops.accesses import buffer_bytes, clamped_to_last, index_loads, row_loop, vector_of
from monolect.optimize.loops.nest import LoopNest
from monolect.optimize.tuning import MAX_PREFETCH_BYTES

MAX_PREFETCH_ROWS = 64  # iterations; the largest prefetch distance in rows
PREFETCH_DISTANCES = (1024, 4096, 16384)  # bytes ahead of a load's address
PREFETCH_ROW_COUNTS = (1, 2, 4)  # iterations ahead, for rows that an index names


class Prefetch(ActionKind):
    """Action PREFETCH: note in the plan that a LOAD prefetches memory ahead of its address.

    The code is one of three: a prefetch distance in the LOAD's arg, PREFETCH nodes for a share of the next packed
    block, or PREFETCH nodes for rows that a gather loads later.
    """

    op = "PREFETCH"
    forms = (
        ('("PREFETCH", load, n)', "LOAD number `load` prefetches the line n bytes after its address"),
        ('("PREFETCH", load, "next")', "... its share of the next block, where blocks are packed once"),
        ('("PREFETCH", load, ("rows", n))', "... the row that the index tensor names n iterations later"),
    )
    rows = (Row("PREFETCH", "a load prefetches memory ahead of its address"),)
    subject = "load"
    is_final, is_loop_change = True, False

    def perform(self, plan: LoopNest, subject: int, arg: Any) -> None:
        load, flag = checked_prefetch(plan, subject, arg)
        plan.flags[load] = flag

    @property
    def moves(self) -> Moves:
        return {self.op: prefetches}


def checked_prefetch(plan: LoopNest, number: Any, ahead: Any) -> tuple[UOp, LoadArg | str | tuple[str, int]]:
    """Return (LOAD, flag to note for it in `plan.flags`) for the action PREFETCH of `plan.loads[number]`. Raises
    ActionError where the load cannot prefetch so.

    `ahead`: the action's argument: a distance in bytes, "next" or ("rows", n). The flag is a LoadArg for a distance in
    bytes, else `ahead` itself.
    """
    u = numbered(plan, "PREFETCH", "load", plan.loads, number)
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


def _check_rows(plan: LoopNest, u: UOp, ahead: tuple) -> tuple[str, int]:
    """Return `ahead`, ("rows", n), if `u` is a gather that loads vectors of rows, and its index can be read n
    iterations early. Raises ActionError otherwise.
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


def row_prefetches(plan: LoopNest, new: dict[UOp, UOp]) -> list[UOp]:
    """Return the ENDs with a PREFETCH of the row that each flagged gather loads n iterations later, one in a copy of
    every loop nest that uses the gather.

    `new`: {RANGE or effect of the original kernel: its new node}.
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


def prefetches(plan: LoopNest) -> Iterator[Move]:
    """Yield PREFETCHes of each load from a buffer that exceeds the L2 cache, for several distances."""
    for i, u in enumerate(plan.loads):
        if plan.target.streams and buffer_bytes(u) > plan.target.l2_bytes:
            yield from ((("PREFETCH", i, n),) for n in PREFETCH_DISTANCES)
            if row_loop(plan, u) is not None:
                yield from ((("PREFETCH", i, ("rows", n)),) for n in PREFETCH_ROW_COUNTS)


__all__ = ["MAX_PREFETCH_ROWS", "Prefetch", "prefetches", "row_prefetches"]
