"""The pass that chooses the actions of a kernel, and the pass that makes its loops from them.

`choose_actions` names them in the kernel's info, where a search or a user has not done so. `apply` writes the plan as
IR. Each original RANGE becomes the sum of its parts' RANGEs times their strides. Padding adds a guard to every store
and reduction that depends on the padded axis; loads are guarded in reductions and where they may become vectors (then
masked), and otherwise read the last element again, what they read being stored nowhere. Where rows of a tile are
padded, the last tile begins earlier instead, if it may. Part order becomes the ids of the new RANGEs, so it is the loop
order.

Before: END(STORE(..r0..), r0:64)                        plan: SPLIT(0, 16, UPCAST)
After:  END(STORE(..r0*16 + r1..), r0:4 LOOP, r1:16 UPCAST)
"""

from __future__ import annotations

import sys
from functools import lru_cache
from itertools import count
from math import prod
from weakref import WeakKeyDictionary

from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.bounds import min_max, ranges, unused_slots
from monolect.ir.ops import KernelInfo, LoadArg
from monolect.ir.placement import is_memory, memory_of
from monolect.ir.rewrite.normal import TRUE, is_zero, less, linear, smaller
from monolect.ir.uop import UOp, build, const, idx, node, rebuild, substitute, toposort
from monolect.optimize.actions.causal_bound import Bounds
from monolect.optimize.actions.matrix_unit import operands, products
from monolect.optimize.actions.pack import Block
from monolect.optimize.actions.peel import Peeler
from monolect.optimize.actions.plan import Action, Part, Plan, allowed
from monolect.optimize.actions.stages import Rows
from monolect.optimize.actions.stream import buffer_bytes, kept_inside, next_rows, rows_later
from monolect.optimize.actions.sums import are_local, block_of_sum, blocks_of_sum, waiting
from monolect.optimize.cpu.heuristic import choose
from monolect.optimize.given import kept_axes
from monolect.optimize.gpu.blocks import shared_loads

MOST_NAMED = 8  # loops in the name of a kernel


def choose_actions(sink: UOp, target: Target) -> UOp:
    """The kernel with the actions of the heuristic in its info; as it is where they are named already."""
    info = sink.arg or KernelInfo()
    if info.actions is not None:
        kept = allowed(info.actions)
        return sink if kept == info.actions else node("SINK", sink.src, info._replace(actions=kept))
    plan = planned(sink, target)
    out = node("SINK", sink.src, info._replace(actions=tuple(plan.actions)))
    _plans[out] = target, plan
    return out


def apply(sink: UOp, target: Target) -> UOp:
    """The loops of a kernel after the actions that its info names. Raises ActionError for the first illegal one."""
    info = sink.arg or KernelInfo()
    if info.is_applied:
        return sink
    known, plan = _plans.pop(sink, (None, None))
    if plan is None or known != target:
        plan = _plan_of(sink, info.actions or (), target)
    return fill_kernel(plan) if info.fills else apply_plan(plan)


_plans: WeakKeyDictionary[UOp, tuple[Target, Plan]] = WeakKeyDictionary()  # of kernels whose actions were just chosen


def planned(sink: UOp, target: Target) -> Plan:
    """The plan of a kernel: the actions its info names, else those the heuristic chooses."""
    info = sink.arg or KernelInfo()
    if info.actions is not None or settings.NOOPT:
        return _plan_of(sink, info.actions or (), target)
    if info.frozen:  # asked for once by each of the two kernels, and for what they share
        return _chosen(node("SINK", sink.src, info._replace(fills=False)), target, settings.choices)
    return _choice(sink, target)


def _plan_of(sink: UOp, actions: tuple[Action, ...], target: Target) -> Plan:
    plan = Plan(sink, target)
    for a in allowed(actions):
        plan.act(a)
    return plan


def _choice(sink: UOp, target: Target) -> Plan:
    plan = Plan(sink, target)
    reasons = choose(plan)
    if "actions" in settings.tracing:
        for action, why in zip(plan.actions, reasons, strict=False):
            print(f"  {kernel_name(plan)}: {action}  # {why}", file=sys.stderr)
    return plan


@lru_cache(maxsize=64)
def _chosen(sink: UOp, target: Target, choices: tuple[int | str, ...]) -> Plan:
    return _choice(sink, target)


def kept_blocks(plan: Plan) -> dict[UOp, Block]:
    """The packed loads whose blocks are filled once, by a kernel of their own."""
    return {u: Block(plan, u) for u in plan.packs if plan.is_frozen(u)}


def fill_kernel(plan: Plan) -> UOp:
    """The kernel that fills what the plan keeps: block k is PARAM 2k, what it is packed from PARAM 2k + 1.

    Each fill has loops of its own: what is the outermost of one may be inside another's.
    """
    fills: list[UOp] = []
    for k, b in enumerate(kept_blocks(plan).values()):
        for f in b.fill(2 * k):
            fills.append(_apart(f, toposort(*fills)))
    info = KernelInfo(f"pack_{kernel_name(plan)}", tuple(plan.actions), fills=True, is_applied=True)
    return node("SINK", tuple(fills), info)


def _apart(fill: UOp, others: list[UOp]) -> UOp:
    """A fill whose loops, but for those that threads share out, have numbers behind all of `others`, in their order."""
    taken = [u.arg[0] for u in others if u.op == "RANGE"]
    numbers = count(max(taken, default=-1) + 1)
    loops = sorted((u for u in toposort(fill) if u.op == "RANGE" and u.arg[1] != "THREAD"), key=lambda r: r.arg[0])
    return substitute(fill, {r: node("RANGE", r.src, (next(numbers), r.arg[1])) for r in loops}) if taken else fill


def apply_actions(sink: UOp, actions: tuple[Action, ...], target: Target) -> UOp:
    """`sink` after `actions`. Raises ActionError for the first illegal one."""
    return apply_plan(_plan_of(sink, actions, target))


def kernel_name(plan: Plan) -> str:
    """What the kernel is and how large: map_128x64, sum_128x64_r10, ...; of many loops those of the largest store."""
    kinds = {u.arg[0]: None for u in plan.reduces}
    what = "_".join({"ADD": "sum", "MAX": "max", "MUL": "prod"}[k] for k in kinds) or "map"
    if any(u.op == "ATOMICADD" for u in plan.order):
        what = "scatter"
    elif plan.sequential:
        what = "scan"
    loops = plan.outputs
    if len(loops) > MOST_NAMED:
        around = max((ranges(u) for u in plan.stores), key=lambda rs: prod(plan.size(r) or 1 for r in rs))
        loops = [r for r in loops if r in around]
    out = "x".join(str(plan.size(r) or "n") for r in loops)
    red = "x".join(str(plan.size(r) or "n") for r in plan.reduced)
    return what + (f"_{out}" if out else "") + (f"_r{red}" if red else "")


def apply_plan(plan: Plan) -> UOp:
    """The kernel with the plan's loops."""
    if plan.is_given:
        src, threads = kept_axes(plan)
        return node("SINK", src, KernelInfo(kernel_name(plan), (), threads, is_applied=True))
    threads = max([p.size for p in plan.axes if p.type == "THREAD"], default=1)
    info = KernelInfo(kernel_name(plan), tuple(plan.actions), threads, is_applied=True)
    parts: dict[UOp, list[UOp]] = {}
    exprs: dict[UOp, UOp] = {}
    guards: dict[UOp, UOp] = {}
    made = _make_ranges(plan)
    packed = shared_loads(plan, dict(made)) if plan.workgroup else _packed(plan, dict(made))
    overlapping = _overlapping(plan)
    for root in (*plan.outputs, *plan.reduced):
        mine = [(p, r) for p, r in made if p.root is root]
        parts[root] = [r for _, r in mine]
        e: UOp = idx(0)
        for p, r in mine:
            if root in overlapping and p.stride == 1:
                e = smaller(e, plan.size(root) - p.size)
            e = e + r * p.stride
        exprs[root] = e
        if root in plan.padded and root not in overlapping:
            guards[root] = less(e, root.src[0])
    rows = Rows(plan, dict(made))
    new = exprs | packed | _clamped(plan, guards, exprs, packed) | rows.new
    known = {r: {guards[r]: TRUE, kept_inside(r, exprs[r]): exprs[r]} for r in guards}
    peeler = Peeler(plan, dict(made), exprs, known)
    out = _rebuild(plan, parts, new, guards, rows, peeler, info)
    if plan.peeled:
        out = node("SINK", peeler.run(out.src), out.arg)
    return _thread_special(out, plan, parts)


def _overlapping(plan: Plan) -> set[UOp]:
    """Padded rows of tiles of which the last begins earlier, to end with the axis: what it shares with the one before
    is computed twice, and stored the same, and nothing asks what is inside. Not where a store adds to what is there,
    nor where what is computed reads the element that it stores: both may be the same memory; nor rows of a running sum.
    """
    stored = {x for u in plan.stores for x in (u.src[0].src[1], memory_of(u.src[0]))}
    again = any(u.src[0].src[1] in stored or memory_of(u.src[0]) in stored for u in plan.loads)
    if again or any(u.op != "STORE" for u in plan.stores) or block_of_sum(plan) is not None:
        return set()
    if plan.workgroup or plan.unit or plan.peeled or plan.stages.fills:
        return set()
    out = set()
    for r in plan.padded:
        tile = [p for p in plan.axes if p.root is r and p.type == "UPCAST"]
        is_row = r in plan.outputs and r not in plan.sequential and r is not plan.lane(plan.stores[0])
        is_row = is_row and not any(r in ranges(u) for u in plan.packs)
        if is_row and len(tile) == 1 and tile[0].stride == 1 and tile[0].size <= plan.size(r):
            out.add(r)
    return out


def _clamped(plan: Plan, guards: dict[UOp, UOp], exprs: dict[UOp, UOp], packed: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """The loads, inside a padded output axis that is not the vector's, that stay inside by reading the last element.
    A tile of vectors is masked by rows instead: rows whose places are not even in memory would be read one by one.
    """
    last = {r for r in guards if r in plan.outputs}
    if not last:
        return {}
    shaped = {p.root for p in plan.axes if p.type == "UPCAST"}
    clamped = exprs | packed | {r: kept_inside(r, exprs[r]) for r in last}
    out: dict[UOp, UOp] = {}
    for u in plan.order:
        if u.op == "LOAD" and u not in packed and len(u.src[0].src) > 1 and not plan.stages.reads(u):
            mine = ranges(u) & guards.keys()
            steps = dict(linear(u.src[0].src[1])[1])
            lane = plan.lane(u)
            if lane is not None and (lane in mine or (steps.get(lane) == 1 and mine & shaped)):
                continue
            plain = mine and mine <= last and all(steps.get(r) != 1 for r in mine)
            # what this kernel wrote or reduced has loops of its own
            if plain and not any(v.op in ("AFTER", "REDUCE") for v in toposort(u)):
                out[u] = substitute(u, clamped)
    return out


def _packed(plan: Plan, made: dict[Part, UOp]) -> dict[UOp, UOp]:
    """The loads that read a packed block, in place of those that read memory."""
    ids = count(len(plan.axes))
    slots = unused_slots(plan.order)
    params = unused_slots(plan.order, "PARAM")
    blocks = [Block(plan, u) for u in plan.packs]
    return {b.widened: b.kept(made, next(params)) if b.is_kept else b.packed(made, ids, slots) for b in blocks}


def _make_ranges(plan: Plan) -> list[tuple[Part, UOp]]:
    """A RANGE for each part; ids count up in loop order, a THREAD first."""
    order = sorted(plan.axes, key=lambda p: _place(plan, p))
    out: list[tuple[Part, UOp]] = []
    made: dict[int, UOp] = {}
    bounds = Bounds(plan)
    for n, p in enumerate(order):
        if _is_single(plan, p):
            continue
        bound = bounds.bound(p, made) or plan_bound(plan, p)
        if (turn := p.turn) is not None:  # a thread's own iterations, those before its first not counted
            all_turns = _times(plan, p, turn.stride)
            bound = build("IDIV", all_turns + made[id(turn)] * -1 + (turn.size - 1), idx(turn.size))
        if p.clipped:
            outer = next(q for q in order if q.root is p.root and q.stride > p.stride and q.stride == p.size * p.stride)
            total = max(q.stride * q.size for q in order if q.root is p.root)
            whole = _clipped_total(plan, p)
            bound = smaller(p.size, made[id(outer)] * -p.size + whole)
            assert total >= whole
        r = node("RANGE", (bound,), (n, p.type))
        made[id(p)] = r
        out.append((p, r))
    return out


def _is_single(plan: Plan, p: Part) -> bool:
    """True for what a split left with one iteration: no loop is made of it."""
    rest = [q for q in plan.axes if q.root is p.root and q is not p]
    return p.size == 1 and p.type in ("LOOP", "REDUCE") and bool(rest) and not any(q.clipped for q in (p, *rest))


def _place(plan: Plan, p: Part) -> tuple:
    """Threads, blocks, the output loops, what becomes shape (the lane last), then reductions.

    What a launch counts is no loop: it comes first, workgroups, then lanes, those that were made first last.
    """
    if plan.workgroup and p.type in ("GLOBAL", "LOCAL", "GROUP_REDUCE"):
        return (False, False, p.type != "GLOBAL", False, -p.made)
    block = p.is_block
    shaped = p.type == "UPCAST"
    order = p.made if block else -p.made if shaped else 0
    step = p.is_step and plan.workgroup is not None  # what is copied in one is copied once
    return (p.root in plan.reduced and not block, p.type != "THREAD", not block and not step, shaped, order)


def plan_bound(plan: Plan, p: Part) -> UOp:
    """The iterations of a part; of what is left of a symbolic axis a quotient."""
    return idx(p.size) if p.size else _times(plan, p, p.stride)


def _times(plan: Plan, p: Part, stride: int) -> UOp:
    """How many pieces of `stride` iterations the symbolic axis of p has. They divide it where it is not padded."""
    n = p.root.src[0] + (stride - 1) if p.root in plan.padded else p.root.src[0]
    return n if stride == 1 else build("IDIV", n, idx(stride))


def _clipped_total(plan: Plan, p: Part) -> int:
    """Iterations of the axis before it was split on top, in units of the clipped part."""
    n = plan.size(p.root)
    if p.root in plan.padded:
        inner = [q.size for q in plan.axes if q.root is p.root and q.stride < p.stride]
        m = 1
        for k in inner:
            m *= k
        n = -(-n // m) * m
    return n // p.stride


def _rebuild(
    plan: Plan,
    parts: dict[UOp, list[UOp]],
    exprs: dict[UOp, UOp],
    guards: dict[UOp, UOp],
    rows: Rows,
    peeler: Peeler,
    info: KernelInfo,
) -> UOp:
    new: dict[UOp, UOp] = dict(exprs)
    blocks = [r for cut in blocks_of_sum(plan)[:1] for r in parts[cut.root] if r.arg[1] == "LOOP"]
    around = blocks  # those of them in which the store is
    later: dict[UOp, UOp] = {}  # with sums in local memory: the loops that finish them, by those that they repeat
    for u in plan.order:
        if u in new:
            continue
        src = tuple(new[s] for s in u.src) if u.op not in ("END", "REDUCE", "AFTER") else ()
        if u.op == "REDUCE" and len(u.src) == 1:  # along axes of a value
            new[u] = rebuild(u, (new[u.src[0]],))
        elif u.op in ("END", "REDUCE"):
            closed = sorted((p for r in u.src[1:] for p in parts[r]), key=lambda r: r.arg[0])
            body = new[u.src[0]]
            if u.op == "REDUCE" and plan.unit is not None:
                closed = [r for r in closed if r not in blocks]
                new[u] = _contracted(plan, u, new, parts, closed)
                continue
            if u.op == "REDUCE":
                body = _guarded(plan, body, u, guards)
                closed = [r for r in closed if r not in blocks]
            elif blocks:
                closed = sorted((*around, *(later.get(r, r) for r in closed)), key=lambda r: r.arg[0])
            closed = [r for r in closed if r.arg[1] != "THREAD"] if u.op == "END" else closed
            new[u] = node(u.op, (body, *closed), u.arg) if closed else body
        elif u.op == "INDEX" and is_memory(u) and (b := memory_of(u)) in rows.new:
            new[u] = node("INDEX", (new[u.src[0]], new[u.src[1]] + rows.offset(b)))
        elif u.op == "AFTER":
            deps = [p for s in u.src[1:] for p in (parts[s] if s in parts else [new[s]])]
            new[u] = node("AFTER", (new[u.src[0]], *deps))
        elif u.op in ("LOAD", "STORE", "ATOMICADD") and u.src[0].op == "INDEX":
            new[u] = _gated(plan, u, src, guards)
            if blocks and u.op == "STORE":
                total = new[plan.reduces[0]]
                if are_local(plan):
                    *around, block = blocks
                    sums, later = waiting(plan, new[u], total, _make_ranges(plan), block, peeler)
                    new[u], total = substitute(new[u], later | {total: sums}), sums
                for block in around:
                    new[u] = _accumulated(plan, new[u], total, block)
        elif u.op == "SINK":
            if around:  # a total has no END yet
                src = tuple(s if s.op == "END" else node("END", (s, *around)) for s in src)
            new[u] = node("SINK", (*src, *rows_later(plan, new)), info)
        else:
            new[u] = rebuild(u, src)
        flag = plan.flags.get(u)
        if isinstance(flag, LoadArg) or flag == "nontemporal":  # rows and blocks are prefetched by nodes of their own
            new[u] = node(u.op, new[u].src, flag)
    return new[plan.sink]


def _contracted(plan: Plan, u: UOp, new: dict[UOp, UOp], parts: dict[UOp, list[UOp]], closed: list[UOp]) -> UOp:
    """The sum `u` for the plan's matrix unit."""
    assert plan.unit is not None
    if plan.unit.threads:
        return node("REDUCE", (new[u.src[0]], *closed), u.arg)
    a, b = operands(u, plan.lane(u))
    outer = {r for p, r in _make_ranges(plan) if p.is_block or p.type == "THREAD"}
    mine = [r for x in plan.outputs if x in ranges(b) for r in parts[x] if r not in outer]
    columns = sorted(mine, key=lambda r: r.arg[0])
    return products(plan.unit, u, new[a], new[b], closed, columns, new.values())


def _accumulated(plan: Plan, store: UOp, total: UOp, block: UOp) -> UOp:
    """The store of a blocked reduction into its result: add to what earlier blocks left, finish in the last block.

    That is read when the sum is known, so that until then registers hold the sum alone; and asked for rows before.
    """
    target, value, *gate = store.src
    started = less(idx(0), block)
    gates = build("AND", gate[0], started) if gate else started
    place = node("INDEX", (node("AFTER", (target.src[0], total)), *target.src[1:]))
    u = plan.stores[0]
    ahead = next_rows(plan, u) if plan.target.streams and buffer_bytes(u) > plan.target.l2_bytes else 0
    old = node("LOAD", (place, const(0, total.dtype), gates), LoadArg(prefetch_bytes=ahead) if ahead else None)
    added = build("ADD", old, total)
    finished = substitute(value, {total: added})
    if finished is not added:
        finished = build("WHERE", less(block, block.src[0] + -1), added, finished)
    return node("STORE", (target, finished, *gate))


def _gate_for(plan: Plan, u: UOp, guards: dict[UOp, UOp]) -> UOp:
    gate = TRUE
    mine = ranges(u.src[0].src[1]) if plan.stages.reads(u) else ranges(u)
    for root, g in guards.items():
        if root in mine and not (u.op == "LOAD" and root in plan.outputs and _stays_inside(u.src[0], root)):
            gate = build("AND", gate, g)
    return gate


def _stays_inside(place: UOp, root: UOp) -> bool:
    """Whether a load has a place to read beyond the end of the padded axis `root`, too: only what it loads as its index
    goes along that, and whatever that is, what it names is in memory. Nobody sees what it reads there.
    """
    lo, hi = min_max(place.src[1])
    return lo >= 0 and hi < min_max(idx(place.src[0].shape[0]))[0] and not _goes_along(place.src[1], root)


def _goes_along(x: UOp, root: UOp) -> bool:
    """Whether `x` has `root` outside of what it loads."""
    return x is root or (x.op != "LOAD" and root in ranges(x) and any(_goes_along(s, root) for s in x.src))


def _gated(plan: Plan, u: UOp, src: tuple[UOp, ...], guards: dict[UOp, UOp]) -> UOp:
    gate = _gate_for(plan, u, guards)
    if gate is TRUE:
        return rebuild(u, src)
    if len(src) == 3:
        gate = build("AND", src[2], gate)
    if u.op != "LOAD":
        return node(u.op, (src[0], src[1], gate))
    alt = src[1] if len(src) == 3 else const(0, u.dtype)
    return node("LOAD", (src[0], alt, gate), u.arg)


def _guarded(plan: Plan, body: UOp, u: UOp, guards: dict[UOp, UOp]) -> UOp:
    """The terms of the reduction `u`, neutral beyond the end of a padded axis."""
    neutral = {"ADD": 0, "MUL": 1, "MAX": u.dtype.min}[u.arg[0]]
    for root, g in guards.items():
        if root in u.src[1:] and not (u.arg[0] == "ADD" and _vanishes(plan, u.src[0], root)):
            body = build("WHERE", g, body, const(neutral, u.dtype))
    return body


def _vanishes(plan: Plan, x: UOp, root: UOp) -> bool:
    """Whether x is zero beyond the end of the padded axis `root`: a load there, which its gate or its block makes so,
    or a product of nothing else. A guard would keep the product from becoming one instruction with the sum.
    """
    if x.op == "LOAD":
        at_index = x.src[0].op == "INDEX" and root in ranges(x.src[0]) and not plan.stages.reads(x)
        return at_index and (len(x.src) == 1 or is_zero(x.src[1]))
    return x.op in ("MUL", "CAST") and all(_vanishes(plan, s, root) for s in x.src)


def _thread_special(sink: UOp, plan: Plan, parts: dict[UOp, list[UOp]]) -> UOp:
    """The THREAD axis is not a loop: its RANGE becomes the index the launch hands to each thread."""
    mapping = {r: node("SPECIAL", (r.src[0],), "thread0") for rs in parts.values() for r in rs if r.arg[1] == "THREAD"}
    if not mapping:
        return sink
    from_, to = next(iter(mapping.items()))
    new: dict[UOp, UOp] = {from_: to}
    for u in toposort(sink):
        if u not in new:
            src = tuple(new[s] for s in u.src)
            if u.op == "AFTER":
                src = tuple(s for s in src if s is not to)
                new[u] = node("AFTER", src) if len(src) > 1 else src[0]
            else:
                new[u] = rebuild(u, src)
    return new[sink]


__all__ = [
    "apply",
    "apply_actions",
    "apply_plan",
    "choose_actions",
    "fill_kernel",
    "kept_blocks",
    "kernel_name",
    "planned",
]
