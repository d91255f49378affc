"""Define the pass that chooses the actions of a kernel, and the pass that rewrites the kernel's loops by them.

`choose_actions` writes the actions to the kernel's KernelInfo, unless a search or a user has done so. `apply` performs
them on a plan and writes the plan as IR. Each original RANGE becomes the sum of its parts' RANGEs times their strides.
Padding adds a guard to every store and reduction that depends on the padded axis. Loads are guarded in reductions and
where they may become vectors (then masked). Other loads read the last element again, as the store of such an iteration
is guarded. Where rows of a tile are padded, the last tile starts earlier instead, if that is legal. The order of the
parts becomes the ids of the new RANGEs, which is the loop order.

Before: END(STORE(..r0..), r0:64)                        SPLIT(0, (16, "UPCAST", False))
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
from monolect.ir.uop import UOp, build, const, idx, node, nodes_of, rebuild, substitute, toposort
from monolect.optimize.accumulate import accumulate_locally
from monolect.optimize.actions.bound import Bounds
from monolect.optimize.actions.matrix_unit import operands, products
from monolect.optimize.actions.peel import Peeler
from monolect.optimize.actions.plan import Action, LoopPlan, allowed
from monolect.optimize.actions.prefetch import row_prefetches
from monolect.optimize.blocks.choice import shared_loads
from monolect.optimize.blocks.packed import PackedBlock
from monolect.optimize.cpu.heuristic import choose
from monolect.optimize.given import kept_axes
from monolect.optimize.loops.accesses import buffer_bytes, clamped_to_last, next_row_distance
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.partial_sums import are_sums_local, block_of_sum, blocks_of_sum
from monolect.optimize.scratch_rows import Rows

MAX_NAMED_LOOPS = 8  # loops; a kernel with more is named after those of its largest store


def choose_actions(sink: UOp, target: Target) -> UOp:
    """Return the kernel `sink` with chosen actions in its KernelInfo (`SINK.arg.actions`).

    If the info has actions already (a user's or a search's), they are kept up to the first that the setting DISABLE
    names. Otherwise the heuristic for `target` chooses them.
    """
    info = sink.arg or KernelInfo()
    if info.actions is not None:
        kept = allowed(info.actions)
        return sink if kept == info.actions else node("SINK", sink.src, info._replace(actions=kept))
    plan = planned(sink, target)
    out = node("SINK", sink.src, info._replace(actions=tuple(plan.actions)))
    _plans[out] = target, plan
    return out


def apply(sink: UOp, target: Target) -> UOp:
    """Return the kernel `sink` with its loops rewritten by the actions in its KernelInfo (`SINK.arg.actions`).

    If `info.fills`, return instead the separate kernel that fills the blocks that are packed once (see `fill_kernel`).
    A kernel whose info says `is_applied` is returned unchanged. Raises ActionError for the first illegal action.
    """
    info = sink.arg or KernelInfo()
    if info.is_applied:
        return sink
    known, plan = _plans.pop(sink, (None, None))
    if plan is None or known != target:
        plan = _plan_of(sink, info.actions or (), target)
    return fill_kernel(plan) if info.fills else apply_plan(plan)


# plans of kernels whose actions were just chosen
_plans: WeakKeyDictionary[UOp, tuple[Target, LoopPlan]] = WeakKeyDictionary()


def planned(sink: UOp, target: Target) -> LoopPlan:
    """Return the plan of the kernel `sink`: its axes after the actions in its KernelInfo, or, if the info has none,
    after the actions that the heuristic chooses. With the setting NOOPT the heuristic chooses no actions.
    """
    info = sink.arg or KernelInfo()
    if info.actions is not None or settings.NOOPT:
        return _plan_of(sink, info.actions or (), target)
    if info.frozen:  # memoized: the kernel and its fill kernel share the plan
        return _chosen(node("SINK", sink.src, info._replace(fills=False)), target, settings.choices)
    return _choice(sink, target)


def _plan_of(sink: UOp, actions: tuple[Action, ...], target: Target) -> LoopPlan:
    """Return the plan of the kernel `sink` after `actions`, up to the first that DISABLE names. Raises ActionError for
    the first illegal one.
    """
    plan = LoopPlan(sink, target)
    for a in allowed(actions):
        plan.act(a)
    return plan


def _choice(sink: UOp, target: Target) -> LoopPlan:
    """Return the plan of the kernel `sink` after the heuristic's actions, and print each with its reason where tracing
    is on.
    """
    plan = LoopPlan(sink, target)
    reasons = choose(plan)
    if "actions" in settings.tracing:
        for action, why in zip(plan.actions, reasons, strict=False):
            print(f"  {kernel_name(plan)}: {action}  # {why}", file=sys.stderr)
    return plan


@lru_cache(maxsize=64)
def _chosen(sink: UOp, target: Target, choices: tuple[int | str, ...]) -> LoopPlan:
    """Return `_choice(sink, target)`, memoized; `choices` are the values of the settings on which the choice
    depends.
    """
    return _choice(sink, target)


def kept_blocks(plan: LoopPlan) -> dict[UOp, PackedBlock]:
    """Return {packed load: its block} of those loads in `plan.packs` whose memory has the same contents at every run
    (such as weights). A separate kernel fills these blocks once; see `fill_kernel`.
    """
    return {u: PackedBlock(plan, u) for u in plan.packs if plan.is_frozen(u)}


def fill_kernel(plan: LoopPlan) -> UOp:
    """Return a SINK: the separate kernel that fills the blocks that are packed once (`kept_blocks`) before the first
    run.

    For the k-th block of the plan, PARAM 2k is the packed copy, and PARAM 2k + 1 is the memory that is copied. Each
    block has its own loop nests, since the outermost loop of one may be an inner loop of another.
    """
    fills: list[UOp] = []
    for k, b in enumerate(kept_blocks(plan).values()):
        for f in b.fill(2 * k):
            fills.append(_with_distinct_loops(f, toposort(*fills)))
    info = KernelInfo(f"pack_{kernel_name(plan)}", tuple(plan.actions), fills=True, is_applied=True)
    return node("SINK", tuple(fills), info)


def _with_distinct_loops(fill: UOp, others: list[UOp]) -> UOp:
    """Return `fill`, an END that fills a block, with its RANGEs renumbered after all RANGEs among the nodes `others`.

    RANGEs of type THREAD keep their number, as all fills share them. Without RANGEs in `others`, `fill` is returned
    unchanged.
    """
    taken = [u.arg[0] for u in others if u.op == "RANGE"]
    numbers = count(max(taken, default=-1) + 1)
    loops = sorted((u for u in toposort(fill) if u.op == "RANGE" and u.arg[1] != "THREAD"), key=lambda r: r.arg[0])
    return substitute(fill, {r: node("RANGE", r.src, (next(numbers), r.arg[1])) for r in loops}) if taken else fill


def apply_actions(sink: UOp, actions: tuple[Action, ...], target: Target) -> UOp:
    """Return the kernel `sink` with its loops rewritten by `actions`. Raises ActionError for the first illegal
    action.
    """
    return apply_plan(_plan_of(sink, actions, target))


def kernel_name(plan: LoopPlan) -> str:
    """Return a name made of the kernel's kind and its loop sizes, such as map_128x64 or sum_128x64_r10.

    The kind is map (no reduction), sum, max, prod, scan or scatter. The sizes are those of the output loops, then after
    r those of the reductions; n means a symbolic size. If there are more than MAX_NAMED_LOOPS output loops, only those
    around the store with the most iterations are named.
    """
    kinds = {u.arg[0]: None for u in plan.reduces}
    what = "_".join({"ADD": "sum", "MAX": "max", "MUL": "prod"}[k] for k in kinds) or "map"
    if any(u.op == "ATOMICADD" for u in plan.order):
        what = "scatter"
    elif plan.sequential:
        what = "scan"
    loops = plan.outputs
    if len(loops) > MAX_NAMED_LOOPS:
        around = max((ranges(u) for u in plan.stores), key=lambda rs: prod(plan.size(r) or 1 for r in rs))
        loops = [r for r in loops if r in around]
    out = "x".join(str(plan.size(r) or "n") for r in loops)
    red = "x".join(str(plan.size(r) or "n") for r in plan.reduced)
    return what + (f"_{out}" if out else "") + (f"_r{red}" if red else "")


def apply_plan(plan: LoopPlan) -> UOp:
    """Return the SINK of the plan's kernel, rewritten so that its loops are the parts of `plan.axes`.

    The KernelInfo of the result has a name, the actions and the number of threads, and says `is_applied`.
    """
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
    known = {r: {guards[r]: TRUE, clamped_to_last(r, exprs[r]): exprs[r]} for r in guards}
    peeler = Peeler(plan, dict(made), exprs, known)
    out = _rebuild(plan, parts, new, guards, rows, peeler, info)
    if plan.peeled:
        out = node("SINK", peeler.run(out.src), out.arg)
    return _thread_special(out, plan, parts)


def _overlapping(plan: LoopPlan) -> set[UOp]:
    """Return the padded output RANGEs whose last tile of rows is moved back to end exactly at the end of the axis, so
    that it needs no guard.

    The moved tile overlaps the tile before it: rows in both are computed and stored twice, with equal results. The
    result is empty where that is illegal: a store adds to memory, the kernel reads an element that it stores, or the
    rows belong to a scan.
    """
    stored = {x for u in plan.stores for x in (u.src[0].src[1], memory_of(u.src[0]))}
    again = any(u.src[0].src[1] in stored or memory_of(u.src[0]) in stored for u in plan.loads)
    if again or any(u.op != "STORE" for u in plan.stores) or block_of_sum(plan) is not None:
        return set()
    if plan.workgroup or plan.unit or plan.peeled or plan.scratch.fills:
        return set()
    out = set()
    for r in plan.padded:
        tile = [p for p in plan.axes if p.root is r and p.type == "UPCAST"]
        is_row = r in plan.outputs and r not in plan.sequential and r is not plan.lane(plan.stores[0])
        is_row = is_row and not any(r in ranges(u) for u in plan.packs)
        if is_row and len(tile) == 1 and tile[0].stride == 1 and tile[0].size <= plan.size(r):
            out.add(r)
    return out


def _clamped(plan: LoopPlan, guards: dict[UOp, UOp], exprs: dict[UOp, UOp], packed: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """Return {LOAD: the same LOAD with its index clamped to the last element} for ungated loads along padded output
    axes.

    Without clamping, such a load would read beyond the end of its buffer in the padding iterations. Loads along the
    vector axis, or of vectors in a tile with padded rows, are left out, because a mask guards them.

    `guards`: {padded RANGE: the condition that its iteration is before its end}. `exprs`: {RANGE of the original
    kernel: the expression that replaces it}. `packed`: {packed load: the load from its block}.
    """
    last = {r for r in guards if r in plan.outputs}
    if not last:
        return {}
    shaped = {p.root for p in plan.axes if p.type == "UPCAST"}
    clamped = exprs | packed | {r: clamped_to_last(r, exprs[r]) for r in last}
    out: dict[UOp, UOp] = {}
    for u in plan.order:
        if u.op == "LOAD" and u not in packed and len(u.src[0].src) > 1 and not plan.scratch.reads(u):
            mine = ranges(u) & guards.keys()
            steps = dict(linear(u.src[0].src[1])[1])
            lane = plan.lane(u)
            if lane is not None and (lane in mine or (steps.get(lane) == 1 and mine & shaped)):
                continue
            plain = mine and mine <= last and all(steps.get(r) != 1 for r in mine)
            # memory that this kernel writes, and reductions, have separate loops
            if plain and not any(v.op in ("AFTER", "REDUCE") for v in toposort(u)):
                out[u] = substitute(u, clamped)
    return out


def _packed(plan: LoopPlan, made: dict[AxisPart, UOp]) -> dict[UOp, UOp]:
    """Return {node of the kernel: the LOAD from the packed block that replaces it}, for each load in `plan.packs`. For
    targets without workgroups.

    The replaced node is the packed LOAD, or its CAST to a wider dtype if the copy casts. `made`: {part of an axis: its
    new RANGE}.
    """
    ids = count(len(plan.axes))
    slots = unused_slots(plan.order)
    params = unused_slots(plan.order, "PARAM")
    blocks = [PackedBlock(plan, u) for u in plan.packs]
    return {
        b.widened: b.load_packed_once(made, next(params)) if b.is_packed_once else b.packed(made, ids, slots)
        for b in blocks
    }


def _make_ranges(plan: LoopPlan) -> list[tuple[AxisPart, UOp]]:
    """Return a list of (part of an axis, its new RANGE), for each part in `plan.axes` that needs a loop.

    The list is in loop order, outermost first, and the numbers of the RANGEs count up in that order.
    """
    order = sorted(plan.axes, key=lambda p: _nesting_order(plan, p))
    out: list[tuple[AxisPart, UOp]] = []
    made: dict[int, UOp] = {}
    bounds = Bounds(plan)
    for n, p in enumerate(order):
        if _is_single(plan, p):
            continue
        bound = bounds.bound(p, made) or plan_bound(plan, p)
        if (threads := p.round_robin_with) is not None:  # the iterations of this thread
            iterations = _times(plan, p, threads.stride)
            bound = build("IDIV", iterations + made[id(threads)] * -1 + (threads.size - 1), idx(threads.size))
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


def _is_single(plan: LoopPlan, p: AxisPart) -> bool:
    """Whether the part `p` needs no loop: it is a remainder with one iteration of an axis that SPLIT divided."""
    rest = [q for q in plan.axes if q.root is p.root and q is not p]
    return p.size == 1 and p.type in ("LOOP", "REDUCE") and bool(rest) and not any(q.clipped for q in (p, *rest))


def _nesting_order(plan: LoopPlan, p: AxisPart) -> tuple:
    """Return the sort key of the part `p` for the loop order, outermost first.

    The order is threads, block loops, output loops, UPCAST parts (the vector lane last), reductions. On a target with
    workgroups, workgroups (GLOBAL) and then lanes (LOCAL, GROUP_REDUCE) come before all of these, the last created
    first.
    """
    if plan.workgroup and p.type in ("GLOBAL", "LOCAL", "GROUP_REDUCE"):
        return (False, False, p.type != "GLOBAL", False, -p.created)
    block = p.is_block
    shaped = p.type == "UPCAST"
    order = p.created if block else -p.created if shaped else 0
    step = p.is_step and plan.workgroup is not None  # a step copies its blocks once
    return (p.root in plan.reduced and not block, p.type != "THREAD", not block and not step, shaped, order)


def plan_bound(plan: LoopPlan, p: AxisPart) -> UOp:
    """Return the number of iterations of the part `p` as an index expression: a constant, or, for a part of a symbolic
    axis, the axis's size divided by the part's stride.
    """
    return idx(p.size) if p.size else _times(plan, p, p.stride)


def _times(plan: LoopPlan, p: AxisPart, stride: int) -> UOp:
    """Return the number of pieces of `stride` iterations that the whole symbolic axis of the part `p` consists of.

    The quotient is rounded up if the axis is padded; otherwise `stride` divides the size.
    """
    n = p.root.src[0] + (stride - 1) if p.root in plan.padded else p.root.src[0]
    return n if stride == 1 else build("IDIV", n, idx(stride))


def _clipped_total(plan: LoopPlan, p: AxisPart) -> int:
    """Return the total number of iterations of the part `p` over all iterations of the outer parts of its axis.

    The part is clipped: SPLIT did not divide the axis evenly, so the last outer iteration has fewer iterations of `p`.
    """
    n = plan.size(p.root)
    if p.root in plan.padded:
        inner = [q.size for q in plan.axes if q.root is p.root and q.stride < p.stride]
        m = 1
        for k in inner:
            m *= k
        n = -(-n // m) * m
    return n // p.stride


def _rebuild(
    plan: LoopPlan,
    parts: dict[UOp, list[UOp]],
    exprs: dict[UOp, UOp],
    guards: dict[UOp, UOp],
    rows: Rows,
    peeler: Peeler,
    info: KernelInfo,
) -> UOp:
    """Return the new SINK, with `info` as its arg: every node of the plan's kernel, rebuilt over the new RANGEs.

    `parts`: {RANGE of the original kernel: the RANGEs of its parts}. `exprs`: {node of the original kernel: its known
    replacement}. `guards`: {padded RANGE: the condition that its iteration is before its end}. `rows`: the row of each
    scratch buffer for each lane. `peeler`: cuts loops that accumulate partial sums where PEEL cut the original loops.
    """
    new: dict[UOp, UOp] = dict(exprs)
    blocks = [r for cut in blocks_of_sum(plan)[:1] for r in parts[cut.root] if r.arg[1] == "LOOP"]
    around = blocks  # the block loops that enclose the store
    later: dict[UOp, UOp] = {}  # for sums in local memory: the finishing loops, by the loops that they repeat
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
                if are_sums_local(plan):
                    *around, block = blocks
                    sums, later = accumulate_locally(plan, new[u], total, _make_ranges(plan), block, peeler)
                    new[u], total = substitute(new[u], later | {total: sums}), sums
                for block in around:
                    new[u] = _accumulated(plan, new[u], total, block)
        elif u.op == "SINK":
            if around:  # the store of the total has no END yet
                src = tuple(s if s.op == "END" else node("END", (s, *around)) for s in src)
            new[u] = node("SINK", (*src, *row_prefetches(plan, new)), info)
        else:
            new[u] = rebuild(u, src)
        flag = plan.flags.get(u)
        if isinstance(flag, LoadArg) or flag == "nontemporal":  # rows and blocks are prefetched by nodes of their own
            new[u] = node(u.op, new[u].src, flag)
    return new[plan.sink]


def _contracted(plan: LoopPlan, u: UOp, new: dict[UOp, UOp], parts: dict[UOp, list[UOp]], closed: list[UOp]) -> UOp:
    """Return the sum `u`, a REDUCE over the loops `closed`, rewritten for the plan's matrix unit (TC).

    `new`: {node of the original kernel: its new node}. `parts`: {RANGE of the original kernel: the RANGEs of its
    parts}.
    """
    assert plan.unit is not None
    if plan.unit.threads:
        return node("REDUCE", (new[u.src[0]], *closed), u.arg)
    a, b = operands(u, plan.lane(u))
    outer = {r for p, r in _make_ranges(plan) if p.is_block or p.type == "THREAD"}
    mine = [r for x in plan.outputs if x in ranges(b) for r in parts[x] if r not in outer]
    columns = sorted(mine, key=lambda r: r.arg[0])
    return products(plan.unit, u, new[a], new[b], closed, columns, new.values())


def _accumulated(plan: LoopPlan, store: UOp, total: UOp, block: UOp) -> UOp:
    """Return `store` rewritten to accumulate the sum of a blocked reduction in the output buffer.

    In each iteration of the block loop `block`, the new STORE adds `total`, the sum of this block, to the output's
    value (zero in the first block). In the last block it also applies the epilogue. The output is read only after
    `total` is known, so that registers hold no second sum meanwhile. If the output exceeds the L2 cache, its next row
    is prefetched.
    """
    target, value, *gate = store.src
    started = less(idx(0), block)
    gates = build("AND", gate[0], started) if gate else started
    address = node("INDEX", (node("AFTER", (target.src[0], total)), *target.src[1:]))
    u = plan.stores[0]
    ahead = next_row_distance(plan, u) if plan.target.streams and buffer_bytes(u) > plan.target.l2_bytes else 0
    old = node("LOAD", (address, const(0, total.dtype), gates), LoadArg(prefetch_bytes=ahead) if ahead else None)
    added = build("ADD", old, total)
    finished = substitute(value, {total: added})
    if finished is not added:
        finished = build("WHERE", less(block, block.src[0] + -1), added, finished)
    return node("STORE", (target, finished, *gate))


def _gate_for(plan: LoopPlan, u: UOp, guards: dict[UOp, UOp]) -> UOp:
    """Return the condition under which the LOAD or STORE `u` of the original kernel runs in padded loops; TRUE if
    always.

    `guards`: {padded RANGE: the condition that its iteration is before its end}.
    """
    gate = TRUE
    mine = ranges(u.src[0].src[1]) if plan.scratch.reads(u) else ranges(u)
    for root, g in guards.items():
        if root in mine and not (u.op == "LOAD" and root in plan.outputs and _may_read_beyond_end(u.src[0], root)):
            gate = build("AND", gate, g)
    return gate


def _may_read_beyond_end(address: UOp, root: UOp) -> bool:
    """Whether a LOAD at `address` needs no guard for iterations beyond the end of the padded RANGE `root`.

    `address` is an INDEX. The result is True if its index depends on `root` only through values of other loads, as in a
    gather, and is inside its buffer for all values that these loads may have.
    """
    lo, hi = min_max(address.src[1])
    return (
        lo >= 0 and hi < min_max(idx(address.src[0].shape[0]))[0] and not _depends_outside_loads(address.src[1], root)
    )


def _depends_outside_loads(x: UOp, root: UOp) -> bool:
    """Whether `x` depends on `root` other than through a LOAD."""
    return x is root or (x.op != "LOAD" and root in ranges(x) and any(_depends_outside_loads(s, root) for s in x.src))


def _gated(plan: LoopPlan, u: UOp, src: tuple[UOp, ...], guards: dict[UOp, UOp]) -> UOp:
    """Return the LOAD or STORE `u` with the new sources `src`, and with the guards of padded loops added to its gate.

    `guards`: {padded RANGE: the condition that its iteration is before its end}.
    """
    gate = _gate_for(plan, u, guards)
    if gate is TRUE:
        return rebuild(u, src)
    if len(src) == 3:
        gate = build("AND", src[2], gate)
    if u.op != "LOAD":
        return node(u.op, (src[0], src[1], gate))
    alt = src[1] if len(src) == 3 else const(0, u.dtype)
    return node("LOAD", (src[0], alt, gate), u.arg)


def _guarded(plan: LoopPlan, body: UOp, u: UOp, guards: dict[UOp, UOp]) -> UOp:
    """Return `body`, the terms of the reduction `u`, replaced by the neutral element in iterations beyond the end of a
    padded reduction axis.

    `guards`: {padded RANGE: the condition that its iteration is before its end}.
    """
    neutral = {"ADD": 0, "MUL": 1, "MAX": u.dtype.min}[u.arg[0]]
    for root, g in guards.items():
        if root in u.src[1:] and not (u.arg[0] == "ADD" and _is_zero_beyond_end(plan, u.src[0], root)):
            body = build("WHERE", g, body, const(neutral, u.dtype))
    return body


def _is_zero_beyond_end(plan: LoopPlan, x: UOp, root: UOp) -> bool:
    """Whether `x` is zero in iterations beyond the end of the padded RANGE `root`, so that a sum needs no guard.

    That holds for a LOAD that moves along `root` and has no gate yet or yields zero where its gate is false, and for
    products and casts of such loads. A guard would keep the product from being fused with the sum into one
    multiply-add.
    """
    if x.op == "LOAD":
        at_index = x.src[0].op == "INDEX" and root in ranges(x.src[0]) and not plan.scratch.reads(x)
        return at_index and (len(x.src) == 1 or is_zero(x.src[1]))
    return x.op in ("MUL", "CAST") and all(_is_zero_beyond_end(plan, s, root) for s in x.src)


def _thread_special(sink: UOp, plan: LoopPlan, parts: dict[UOp, list[UOp]]) -> UOp:
    """Return the kernel `sink` with the RANGE of type THREAD replaced by a SPECIAL: the index that the launch passes to
    each thread.

    `parts`: {RANGE of the original kernel: the RANGEs of its parts}.
    """
    mapping = {r: node("SPECIAL", (r.src[0],), "thread0") for rs in parts.values() for r in rs if r.arg[1] == "THREAD"}
    if not mapping:
        return sink
    from_, to = next(iter(mapping.items()))
    new: dict[UOp, UOp] = {from_: to}
    for u in nodes_of(sink):
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
