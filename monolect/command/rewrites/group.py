"""Group items (kernel launches) that may run at the same time, with a BARRIER only where threads must wait for each
other.

A group is the items between two barriers. It has a lane for each thread. The items of one lane run in order, so items
that depend on each other can share a lane. An item that several threads share has a part in each lane. So independent
kernels run in parallel, and several multi-threaded kernels cost one barrier together. Items that are too small to gain
run in sequence on the caller's thread, without a barrier.

Before: LINEAR(CALL(a, B1, P0), CALL(b, B2, P0), CALL(c, P1, B1, B2))
After:  LINEAR(GROUP(CALL(a, ..), CALL(b, ..)), BARRIER(GROUP), CALL(c, ..))
A device whose items wait for single items (`Target.concurrency` "graph") has one group of all items.
Invariant: of two items in different lanes of a group, neither writes what the other touches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from monolect.base.target import Target
from monolect.command.estimate import estimate
from monolect.command.forms import (
    base_of,
    calls_in,
    has_loops,
    is_collective,
    items_of,
    kernel_of,
    once_of,
    operands_of,
    program_of,
    with_program,
    writes,
)
from monolect.ir.uop import UOp, node

BARRIER_NS = 3000  # ns that a barrier costs, with waking the threads; a group of single-thread items must save more
OPS_PER_NS, BYTES_PER_NS = 8, 16  # rough throughput of one thread per ns
LAUNCH_NS = 20  # ns that a launch costs


class Work(NamedTuple):
    """The properties of an item that matter for grouping: the buffers that it touches and writes, its threads, and its
    estimated time in ns.
    `is_opaque`: native code, which is not grouped with other items.
    """

    touched: frozenset[UOp]
    written: frozenset[UOp]
    threads: int
    ns: int
    is_opaque: bool = False  # native code, which may touch any memory


class Group(NamedTuple):
    """A group of items, by their numbers, in order.

    `lanes`: for each thread a tuple of (item number, part of the item), which the thread runs in sequence. Without
    lanes the items run in sequence on one thread.
    """

    items: tuple[int, ...]
    lanes: tuple[tuple[tuple[int, int], ...], ...] = ()


class _OpenGroup:
    """A group under construction, with `n_lanes` lanes (one for each thread).
    `groups` adds items to it, until an item must wait for items of several lanes.
    """

    def __init__(self, n_lanes: int) -> None:
        self.lanes: list[list[tuple[int, int]]] = [[] for _ in range(n_lanes)]
        self.load_ns = [0] * n_lanes
        self.items: list[int] = []
        self.wrote: dict[UOp, set[int]] = {}  # by buffer, the lanes that write it
        self.touched: dict[UOp, set[int]] = {}
        self.is_shared = False
        self.single_ns = 0

    def needed(self, w: Work) -> set[int]:
        """Return the numbers of the lanes that hold items which an item with the properties `w` must come after."""
        out = {lane for b in w.touched for lane in self.wrote.get(b, ())}
        return out.union(lane for b in w.written for lane in self.touched.get(b, ()))

    def add(self, i: int, w: Work, lane: int) -> None:
        """Add item number `i`, with the properties `w`, to the group: its first thread in lane `lane`, and the others
        in the next lanes.
        """
        n_lanes = len(self.lanes)
        self.items.append(i)
        for t in range(w.threads):
            self.lanes[(lane + t) % n_lanes].append((i, t))
            self.load_ns[(lane + t) % n_lanes] += w.ns // w.threads
        used = {(lane + t) % n_lanes for t in range(w.threads)}
        for b in w.touched:
            self.touched.setdefault(b, set()).update(used)
        for b in w.written:
            self.wrote.setdefault(b, set()).update(used)
        self.is_shared |= w.threads > 1
        self.single_ns += w.ns


def groups(work: Sequence[Work], n_threads: int) -> list[Group]:
    """Split a sequence of items, given by their properties `work`, into groups for `n_threads` threads.
    The groups have the order of the items. A new group begins at an item that must wait for items in several lanes, or
    that has several threads and must wait for any item of the group; native code is a group of its own.
    """
    done: list[Group] = []
    now = _OpenGroup(n_threads)
    for i, w in enumerate(work):
        needed = now.needed(w)
        if w.is_opaque or len(needed) > 1 or (w.threads > 1 and needed):
            done += _closed(now)
            now, needed = _OpenGroup(n_threads), set()
        free = 0 if w.threads > 1 else min(range(n_threads), key=now.load_ns.__getitem__)
        now.add(i, w, needed.pop() if needed else free)
        if w.is_opaque:
            done += _closed(now)
            now = _OpenGroup(n_threads)
    return done + _closed(now)


def _closed(p: _OpenGroup) -> list[Group]:
    """Return the finished group `p` in a list, or [] if it has no items.

    The group has lanes only if parallel execution pays. It always pays if a multi-threaded item needs a barrier anyway.
    """
    if not p.items:
        return []
    if len(p.items) > 1 and (p.is_shared or p.single_ns - max(p.load_ns) >= BARRIER_NS):
        return [Group(tuple(p.items), tuple(map(tuple, p.lanes)))]
    return [Group(tuple(p.items))]


# ---- items -----------------------------------------------------------------------------------------------------------
def work_of(item: UOp, same: Mapping[UOp, UOp]) -> Work:
    """Return the Work (properties for grouping) of `item`. `same`: {result: argument} of the PARAMs that may share
    memory (from `reused`).
    """
    bases = [same.get(b, b) for b in map(base_of, operands_of(item))]
    program = item.src[0]
    threads = program.arg.threads if program.op == "PROGRAM" else 1
    n_ops, n_bytes = estimate(item)
    ns = LAUNCH_NS + max(n_ops // OPS_PER_NS, n_bytes // BYTES_PER_NS)
    is_opaque = item.op == "CALL" and kernel_of(item).op == "CUSTOMFUNCTION"
    return Work(frozenset(bases), frozenset([bases[k] for k in writes(item)]), threads, ns, is_opaque)


def reused(step: UOp) -> dict[UOp, UOp]:
    """Return {PARAM of a result: PARAM of a donated argument whose memory the result may take} for `step`.
    Pairs with a PARAM that no item touches are left out.
    """
    pairs = dict(step.arg.reuse)
    if not pairs:
        return {}
    items = (*once_of(program_of(step)), *calls_in(items_of(program_of(step))))
    params = {b.arg.slot: b for c in items for b in map(base_of, operands_of(c)) if b.op == "PARAM"}
    return {params[r]: params[a] for r, a in pairs.items() if r in params and a in params}


def group(step: UOp, target: Target) -> UOp:
    """The pass: put items of `step` that may run at the same time into GROUPs, each followed by a BARRIER.

    If the device orders single items (`target.concurrency` is "graph"), all items are put into one GROUP. Steps with
    loops or copies, and steps that are not replayed on several threads, are unchanged.
    """
    linear = program_of(step)
    items = items_of(linear)
    if has_loops(items) or any(c.op == "STORE" or is_collective(c) for c in items):
        return step
    if target.concurrency == "graph":
        return with_program(step, (node("GROUP", items),), once_of(linear)) if items else step
    if target.concurrency != "lanes" or target.n_threads < 2 or not step.arg.is_replayed:
        return step
    same = reused(step)
    out: list[UOp] = []
    for g in groups([work_of(c, same) for c in items], target.n_threads):
        mine = [items[i] for i in g.items]
        if g.lanes:
            member = {i: k for k, i in enumerate(g.items)}
            lanes = tuple([tuple([(member[i], part) for i, part in lane]) for lane in g.lanes])
            together = node("GROUP", tuple(mine), lanes)
            out += [together, node("BARRIER", (together,))]
        else:
            for c in mine:
                out.append(c)
                if c.src[0].op == "PROGRAM" and c.src[0].arg.threads > 1:
                    out.append(node("BARRIER", (c,)))
    return with_program(step, out, once_of(linear))


__all__ = ["Group", "Work", "group", "groups", "reused", "work_of"]
