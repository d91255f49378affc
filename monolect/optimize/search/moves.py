"""What a search may try next: the moves that are worth timing on a plan, one row a kind.

A move is one action, or a few that only make sense together: pad and split. Whether it is legal is for `Plan.act` to
say. A new action needs one row in MOVES, and its kind in `kind_of` if that is not its op.

What it is not: a choice. `heuristic` chooses by rule, `search` by timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from monolect.base.errors import ActionError
from monolect.base.target import Target
from monolect.ir.bounds import ranges
from monolect.ir.uop import UOp
from monolect.optimize.actions.peel import edge_of
from monolect.optimize.actions.plan import Action, Plan
from monolect.optimize.actions.stream import buffer_bytes, row_loop

Move = tuple[Action, ...]

ROWS_UPCAST = (2, 3, 4, 5, 6, 7, 8, 12, 14)  # besides vectors of the target
UNROLLS = (2, 3, 4, 5, 7, 8, 9)
BLOCKS = (1, 4, 16, 32, 64, 128, 256, 512)  # iterations in one
AHEAD = (1024, 4096, 16384)  # bytes
ROWS_AHEAD = (1, 2, 4)
WORKGROUP = (2, 4, 8, 16, 32, 64, 128, 256)
STEPS = (4, 8, 16, 32, 64)  # iterations of a reduction copied at once
MOST_PADDING = 1.125  # what an axis may grow by, as a factor


def replay(sink: UOp, target: Target, actions: Iterable[Action]) -> Plan:
    """The plan after `actions`. Raises ActionError for the first illegal one."""
    plan = Plan(sink, target)
    for action in actions:
        plan.act(action)
    return plan


# ---- next moves ------------------------------------------------------------------------------------------------------
def _axes(plan: Plan, *types: str) -> Iterator[tuple[int, int]]:
    """(axis, size) of the axes of these types."""
    return ((i, p.size) for i, p in enumerate(plan.axes) if p.type in types and p.size > 1)


def _vectors(plan: Plan) -> tuple[int, ...]:
    """Lengths of vectors: of the narrowest common element, and half and twice that."""
    lanes = plan.target.lanes(4)
    return tuple(k for k in (lanes // 2, lanes, lanes * 2) if k > 1)


def _shaped(plan: Plan, source: str, target: str, sizes: Iterable[int]) -> Iterator[Move]:
    """Split off a part that becomes shape; where the size is no multiple, after padding the whole axis."""
    for i, n in _axes(plan, source):
        whole = plan.axes[i].root not in plan.padded and sum(q.root is plan.axes[i].root for q in plan.axes) == 1
        for k in sorted({*sizes}):
            split = ("SPLIT", i, (k, target, False))
            if n % k == 0:
                yield (split,)
            elif whole and -(-n // k) * k <= MOST_PADDING * n:
                yield (("PADTO", i, k), split)


def upcasts(plan: Plan) -> Iterator[Move]:
    """Vectors, and rows that share what they read."""
    return _shaped(plan, "LOOP", "UPCAST", (*ROWS_UPCAST, *_vectors(plan)))


def unrolls(plan: Plan) -> Iterator[Move]:
    """Steps of a reduction without a loop around them."""
    return _shaped(plan, "REDUCE", "UNROLL", UNROLLS)


def partial_sums(plan: Plan) -> Iterator[Move]:
    """One partial result a lane, and several vectors of them."""
    lanes = WORKGROUP if plan.target.workgroups else ()
    return _shaped(plan, "REDUCE", "GROUP_REDUCE", (2, 4, 8, *_vectors(plan), *lanes))


def threads(plan: Plan) -> Iterator[Move]:
    """One share of a loop for each thread."""
    n = plan.target.n_threads
    return (((("SPLIT", i, (n, "THREAD", True)),)) for i, size in _axes(plan, "LOOP") if 1 < n <= size)


def blocks(plan: Plan) -> Iterator[Move]:
    """A loop in blocks around all other loops, so that what a block reads stays in a cache."""
    for i, n in _axes(plan, "LOOP", "REDUCE"):
        for k in BLOCKS:
            if k < n and not plan.axes[i].is_block:
                yield (("SPLIT", i, (-(-n // k), "LOOP", True)),)


def swaps(plan: Plan) -> Iterator[Move]:
    """Two loops of one kind in the other order."""
    for kind in ("LOOP", "REDUCE"):
        axes = [i for i, _ in _axes(plan, kind)]
        yield from ((("SWAP", a, b),) for a in axes for b in axes if a < b)


def peels(plan: Plan) -> Iterator[Move]:
    """The ends of a loop that a gate asks about, apart."""
    gates = [u.src[2] for u in (*plan.loads, *plan.stores) if len(u.src) == 3]
    asked = {*plan.padded, *(r for g in gates for r in ranges(g))}
    for i, _ in _axes(plan, "LOOP"):
        if plan.axes[i].root in asked:
            yield from ((("PEEL", i, ends),) for ends in ((0, 1), (1, 0), (1, 1)))
        if edge_of(plan, plan.axes[i]) is not None:
            yield (("PEEL", i, ("mask", int(plan.axes[i].root in plan.padded))),)


def packs(plan: Plan) -> Iterator[Move]:
    """What a load reads in a block, copied to one piece of memory first; or to two in turns, a step ahead."""
    turns = (None, 2, *((3, 4) if plan.target.bulk_copies else ())) if plan.target.workgroups else (None,)
    return ((("PACK", i, n),) for i in range(len(plan.loads)) for n in turns)


def nontemporal(plan: Plan) -> Iterator[Move]:
    """Outputs that a cache does not hold, stored past it."""
    large = plan.target.streams and sum(map(buffer_bytes, plan.stores)) >= plan.target.l3_bytes // 2
    return ((("NONTEMPORAL", i, None),) for i in range(len(plan.stores) * large))


def prefetches(plan: Plan) -> Iterator[Move]:
    """What comes from far away, asked for early."""
    for i, u in enumerate(plan.loads):
        if plan.target.streams and buffer_bytes(u) > plan.target.l2_bytes:
            yield from ((("PREFETCH", i, n),) for n in AHEAD)
            if row_loop(plan, u) is not None:
                yield from ((("PREFETCH", i, ("rows", n)),) for n in ROWS_AHEAD)


def matrix_units(plan: Plan) -> Iterator[Move]:
    """A unit of the target for a sum, with the lanes that it wants, or with the axes of which a warp takes tiles."""
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


def workgroups(plan: Plan) -> Iterator[Move]:
    """Loops shared out between workgroups, and between the threads of one."""
    if plan.target.workgroups:
        for i, n in _axes(plan, "LOOP"):
            yield (("SPLIT", i, (n, "GLOBAL", True)),)
        for i, n in _axes(plan, "LOOP", "GLOBAL"):
            yield from ((("SPLIT", i, (k, "LOCAL", False)),) for k in WORKGROUP if n % k == 0)


def steps(plan: Plan) -> Iterator[Move]:
    """A reduction in steps, of each of which all lanes copy what it reads."""
    if plan.target.workgroups:
        for i, n in _axes(plan, "REDUCE"):
            yield from ((("SPLIT", i, (n // k, "REDUCE", True)),) for k in STEPS if n % k == 0 and n > k)


# kind of an action -> the moves worth trying; an action's kind is its op, for SPLIT the new axis type
MOVES: dict[str, Callable[[Plan], Iterator[Move]]] = {
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
    """The row of MOVES that makes such actions."""
    op, _, arg = action
    if op != "SPLIT":
        return str(op)
    kinds = {"LOOP": "BLOCK", "GLOBAL": "WORKGROUP", "LOCAL": "WORKGROUP", "REDUCE": "STEP"}
    return kinds.get(arg[1], arg[1])


def legal_moves(sink: UOp, target: Target, actions: Move = (), kind: str = "") -> list[Move]:
    """The moves that are legal after `actions`, of one kind or of all."""
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
