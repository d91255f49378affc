"""List the moves that a search tries next: for each kind of action, those worth timing on a plan.

A move is one action, or several that only make sense together: pad and split. `LoopPlan.act` decides whether it is
legal. A new action needs one row in MOVES, and its kind in `kind_of` if that is not its op.

What it is not: a choice. `heuristic` chooses by rule, `search` by timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from monolect.base.errors import ActionError
from monolect.base.target import Target
from monolect.ir.bounds import ranges
from monolect.ir.uop import UOp
from monolect.optimize.actions.peel import edge_of
from monolect.optimize.actions.plan import Action, LoopPlan
from monolect.optimize.actions.stream import buffer_bytes, row_loop

Move = tuple[Action, ...]

# rows of a register tile to try, in addition to the target's vector lengths
UPCAST_ROW_COUNTS = (2, 3, 4, 5, 6, 7, 8, 12, 14)
UNROLL_FACTORS = (2, 3, 4, 5, 7, 8, 9)  # iterations of a reduction to unroll
BLOCK_LENGTHS = (1, 4, 16, 32, 64, 128, 256, 512)  # iterations in one block
PREFETCH_DISTANCES = (1024, 4096, 16384)  # bytes ahead of a load's address
PREFETCH_ROW_COUNTS = (1, 2, 4)  # iterations ahead, for rows that an index names
LANE_COUNTS = (2, 4, 8, 16, 32, 64, 128, 256)  # lanes of a workgroup along one axis
STEP_LENGTHS = (4, 8, 16, 32, 64)  # iterations of a reduction that are copied at once
MAX_PADDING_FACTOR = 1.125  # factor by which padding may lengthen an axis


def replay(sink: UOp, target: Target, actions: Iterable[Action]) -> LoopPlan:
    """Return the plan after `actions`. Raises ActionError for the first illegal one."""
    plan = LoopPlan(sink, target)
    for action in actions:
        plan.act(action)
    return plan


# ---- next moves ------------------------------------------------------------------------------------------------------
def _axes(plan: LoopPlan, *types: str) -> Iterator[tuple[int, int]]:
    """Yield (axis, size) of the axes of these types with more than one iteration."""
    return ((i, p.size) for i, p in enumerate(plan.axes) if p.type in types and p.size > 1)


def _vectors(plan: LoopPlan) -> tuple[int, ...]:
    """Lengths of vectors to try: that of a 4-byte element, and half and twice that."""
    lanes = plan.target.lanes(4)
    return tuple(k for k in (lanes // 2, lanes, lanes * 2) if k > 1)


def _shaped(plan: LoopPlan, source: str, target: str, sizes: Iterable[int]) -> Iterator[Move]:
    """Yield splits that make a part shape; where no size divides the axis, splits after padding the whole axis."""
    for i, n in _axes(plan, source):
        whole = plan.axes[i].root not in plan.padded and sum(q.root is plan.axes[i].root for q in plan.axes) == 1
        for k in sorted({*sizes}):
            split = ("SPLIT", i, (k, target, False))
            if n % k == 0:
                yield (split,)
            elif whole and -(-n // k) * k <= MAX_PADDING_FACTOR * n:
                yield (("PADTO", i, k), split)


def upcasts(plan: LoopPlan) -> Iterator[Move]:
    """Yield UPCAST splits: vectors, and rows that share operands."""
    return _shaped(plan, "LOOP", "UPCAST", (*UPCAST_ROW_COUNTS, *_vectors(plan)))


def unrolls(plan: LoopPlan) -> Iterator[Move]:
    """Yield UNROLL splits of reductions."""
    return _shaped(plan, "REDUCE", "UNROLL", UNROLL_FACTORS)


def partial_sums(plan: LoopPlan) -> Iterator[Move]:
    """Yield GROUP_REDUCE splits: one partial result per lane, in one or several vectors."""
    lanes = LANE_COUNTS if plan.target.workgroups else ()
    return _shaped(plan, "REDUCE", "GROUP_REDUCE", (2, 4, 8, *_vectors(plan), *lanes))


def threads(plan: LoopPlan) -> Iterator[Move]:
    """Yield splits that share a loop out among all threads."""
    n = plan.target.n_threads
    return (((("SPLIT", i, (n, "THREAD", True)),)) for i, size in _axes(plan, "LOOP") if 1 < n <= size)


def blocks(plan: LoopPlan) -> Iterator[Move]:
    """Yield block loops around all other loops, so that the operands of a block stay in a cache."""
    for i, n in _axes(plan, "LOOP", "REDUCE"):
        for k in BLOCK_LENGTHS:
            if k < n and not plan.axes[i].is_block:
                yield (("SPLIT", i, (-(-n // k), "LOOP", True)),)


def swaps(plan: LoopPlan) -> Iterator[Move]:
    """Yield interchanges of two loops of one kind."""
    for kind in ("LOOP", "REDUCE"):
        axes = [i for i, _ in _axes(plan, kind)]
        yield from ((("SWAP", a, b),) for a in axes for b in axes if a < b)


def peels(plan: LoopPlan) -> Iterator[Move]:
    """Yield peels of the ends of loops that a gate depends on."""
    gates = [u.src[2] for u in (*plan.loads, *plan.stores) if len(u.src) == 3]
    gated = {*plan.padded, *(r for g in gates for r in ranges(g))}
    for i, _ in _axes(plan, "LOOP"):
        if plan.axes[i].root in gated:
            yield from ((("PEEL", i, ends),) for ends in ((0, 1), (1, 0), (1, 1)))
        if edge_of(plan, plan.axes[i]) is not None:
            yield (("PEEL", i, ("mask", int(plan.axes[i].root in plan.padded))),)


def packs(plan: LoopPlan) -> Iterator[Move]:
    """Yield PACKs of each load; with workgroups also into two buffers or more, one step ahead."""
    buffer_counts = (None, 2, *((3, 4) if plan.target.bulk_copies else ())) if plan.target.workgroups else (None,)
    return ((("PACK", i, n),) for i in range(len(plan.loads)) for n in buffer_counts)


def nontemporal(plan: LoopPlan) -> Iterator[Move]:
    """Yield non-temporal stores where outputs together take at least half of the L3 cache."""
    large = plan.target.streams and sum(map(buffer_bytes, plan.stores)) >= plan.target.l3_bytes // 2
    return ((("NONTEMPORAL", i, None),) for i in range(len(plan.stores) * large))


def prefetches(plan: LoopPlan) -> Iterator[Move]:
    """Yield prefetches of loads from memory that exceeds the L2 cache."""
    for i, u in enumerate(plan.loads):
        if plan.target.streams and buffer_bytes(u) > plan.target.l2_bytes:
            yield from ((("PREFETCH", i, n),) for n in PREFETCH_DISTANCES)
            if row_loop(plan, u) is not None:
                yield from ((("PREFETCH", i, ("rows", n)),) for n in PREFETCH_ROW_COUNTS)


def matrix_units(plan: LoopPlan) -> Iterator[Move]:
    """Yield TC for each unit of the target, with the lanes that the unit needs, or the axes of which a warp takes
    tiles.
    """
    for unit in plan.units:
        for j, _ in _axes(plan, "REDUCE"):
            if unit.threads:
                sides = [[i for i, n in _axes(plan, "LOOP") if n % k == 0] for k in (unit.m, unit.n)]
                yield from ((("TC", j, (unit.name, a, b)),) for a in sides[0] for b in sides[1] if a != b)
                continue
            yield (("TC", j, unit.name),)
            for i, n in _axes(plan, "LOOP"):
                if n % unit.n == 0:
                    yield (("SPLIT", i, (unit.n, "UPCAST", False)), ("TC", j + 1, unit.name))


def workgroups(plan: LoopPlan) -> Iterator[Move]:
    """Yield splits of loops into workgroups, and into the lanes of one."""
    if plan.target.workgroups:
        for i, n in _axes(plan, "LOOP"):
            yield (("SPLIT", i, (n, "GLOBAL", True)),)
        for i, n in _axes(plan, "LOOP", "GLOBAL"):
            yield from ((("SPLIT", i, (k, "LOCAL", False)),) for k in LANE_COUNTS if n % k == 0)


def steps(plan: LoopPlan) -> Iterator[Move]:
    """Yield splits of a reduction into steps, in each of which all lanes copy the operands."""
    if plan.target.workgroups:
        for i, n in _axes(plan, "REDUCE"):
            yield from ((("SPLIT", i, (n // k, "REDUCE", True)),) for k in STEP_LENGTHS if n % k == 0 and n > k)


# kind of an action -> the moves worth trying; an action's kind is its op, for SPLIT the new axis type
MOVES: dict[str, Callable[[LoopPlan], Iterator[Move]]] = {
    "UPCAST": upcasts,
    "UNROLL": unrolls,
    "GROUP_REDUCE": partial_sums,
    "THREAD": threads,
    "BLOCK": blocks,
    "SWAP": swaps,
    "PEEL": peels,
    "PACK": packs,
    "NONTEMPORAL": nontemporal,
    "PREFETCH": prefetches,
    "TC": matrix_units,
    "WORKGROUP": workgroups,
    "STEP": steps,
}


def kind_of(action: Action) -> str:
    """Return the key of MOVES whose function yields actions like `action`; GROUP_REDUCE for example, or BLOCK."""
    op, _, arg = action
    if op != "SPLIT":
        return str(op)
    kinds = {"LOOP": "BLOCK", "GLOBAL": "WORKGROUP", "LOCAL": "WORKGROUP", "REDUCE": "STEP"}
    return kinds.get(arg[1], arg[1])


def legal_moves(sink: UOp, target: Target, actions: Move = (), kind: str = "") -> list[Move]:
    """Return the moves that are legal after `actions`, of one kind or of all."""
    plan = replay(sink, target, actions)
    rows = [MOVES[kind]] if kind else MOVES.values()
    found = dict.fromkeys(move for row in rows for move in row(plan))
    return [move for move in found if _is_legal(sink, target, (*actions, *move))]


def _is_legal(sink: UOp, target: Target, actions: Move) -> bool:
    try:
        replay(sink, target, actions)
    except ActionError:
        return False
    return True


__all__ = [
    "MOVES",
    "Move",
    "blocks",
    "kind_of",
    "legal_moves",
    "matrix_units",
    "nontemporal",
    "packs",
    "partial_sums",
    "peels",
    "prefetches",
    "replay",
    "steps",
    "swaps",
    "threads",
    "unrolls",
    "upcasts",
    "workgroups",
]
