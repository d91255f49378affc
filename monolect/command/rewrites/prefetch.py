"""Order the items of a step that gathers divided parameters from other processes: gather late, free early.

Before: gather W1, gather W2, gather W3, forward 1, 2, 3, backward 3, 2, 1, send gradients 3, 2, 1, update 3, 2, 1
After:  gather W1, gather W2, forward 1, gather W3, forward 2, gather W2, forward 3, backward 3, gather W1,
        send gradient 3, backward 2, update 3, send gradient 2, backward 1, update 2, send gradient 1, update 1

A gather is a message whose source is memory of the step's inputs, and that no item before it changes; in a simulation
it is the device's share in an allgather. Three rules:
- The order goes back from each result of the step to what it needs, results of short chains first. So what a
  result needs runs right before it, and a gradient is sent and used as soon as it is known.
- A gather runs one gather ahead of its use (prefetch), so that it overlaps with the items in between. The items
  behind a message that is no gather wait until the messages of the next result were sent.
- A gathered value whose next use is far is gathered again for that use. So at each time about two are in memory.

Other steps stay as they are. All processes order the whole step, before `own`, so they agree on the order of messages.
Invariant: two items keep their order if one of them writes memory that the other touches. A repeated gather reads
memory that no item before it writes.
Source: the schedule of ZeRO stage 3 (Rajbhandari et al., 2020) and FSDP (Zhao et al., 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from monolect.command.forms import (
    base_of,
    buffer_bytes,
    has_loops,
    home,
    items_of,
    new_slot,
    once_of,
    operands_of,
    program_of,
    with_operands,
    with_program,
    writes,
)
from monolect.command.rewrites.dependencies import needs, uses_of
from monolect.command.rewrites.group import reused
from monolect.ir.collective import exchange_of
from monolect.ir.uop import UOp, node, substitute

MIN_BYTES = 1 << 14  # bytes of the smallest value that counts as a gather; repeating a smaller one saves no memory
KEPT = 2  # gathers that may begin between two uses of a gathered value before it is gathered again for the second use


def prefetch(step: UOp, is_message: Callable[[UOp], bool]) -> UOp:
    """The pass: return `step` with its items in an order that gathers late and frees early; `step` itself if it has no
    gathers.

    `is_message(c)`: whether the item `c` is a copy or a sum between processes.
    """
    linear = program_of(step)
    items = items_of(linear)
    if has_loops(items) or not any(map(is_message, items)):
        return step
    same = reused(step)
    order = _Order(items, is_message, same)
    if not order.gathers:
        return step
    ordered = [items[i] for i in order.found()]
    repeated = _repeated(ordered, _Order(ordered, is_message, same))
    ordered = [repeated[i] for i in _Order(repeated, is_message, same).found()]
    return with_program(step, ordered, once_of(linear))


class _Order:
    """The items of a step and an order for them.

    `before`: for each item the numbers of the items that it must come after. `after`: of those that must come after it.
    `messages`: numbers of the items between processes. `gathers`: those of them that gather a large value.
    """

    def __init__(self, items: Sequence[UOp], is_message: Callable[[UOp], bool], same: dict[UOp, UOp]) -> None:
        self.items = items
        self.uses = [uses_of(c, same) for c in items]
        self.before = [sorted({j for row in rows for j in row}) for rows in needs(self.uses)]
        self.after: list[list[int]] = [[] for _ in items]
        for i, mine in enumerate(self.before):
            for j in mine:
                self.after[j].append(i)
        self.depth: list[int] = []  # number of items of the longest chain that ends with an item
        for mine in self.before:
            self.depth.append(1 + max([self.depth[j] for j in mine], default=0))
        self.messages = {i for i, c in enumerate(items) if is_message(c)}
        self.gathers = {i for i in self.messages if self._is_gather(i)}
        self.devices = [self._devices_of(i) for i in range(len(items))]

    def _is_gather(self, i: int) -> bool:
        c = self.items[i]
        share = exchange_of(c.src[0]) if c.op == "CALL" else None
        if not (c.op == "STORE" or (share is not None and share.name == "allgather")) or self.before[i]:
            return False
        to, source = map(base_of, operands_of(c))
        return to.op == "BUFFER" and source.op == "PARAM" and buffer_bytes(to) >= MIN_BYTES

    def _devices_of(self, i: int) -> tuple[str, ...]:
        """Return the devices in whose order item `i` has its turn: all that a CALL writes to, the destination of a
        gather, and the source of another copy.
        """
        operands = operands_of(self.items[i])
        turn = writes(self.items[i]) if self.items[i].op == "CALL" else (0,) if i in self.gathers else (1,)
        return tuple(dict.fromkeys(home(base_of(operands[k]), "") for k in turn))

    def found(self) -> list[int]:
        """Return the numbers of the items in their new order."""
        order = self._ahead(self._by_results())
        # Each device has the order found for it. A common clock puts items of several devices side by side.
        time = [0] * len(self.items)
        last: dict[str, int] = {}
        for i in order:
            at = max([last.get(d, 0) for d in self.devices[i]] + [time[j] for j in self.before[i]], default=0)
            time[i] = at + 1
            last.update(dict.fromkeys(self.devices[i], time[i]))
        rank = {i: k for k, i in enumerate(order)}
        return sorted(order, key=lambda i: (time[i], rank[i]))

    def _by_results(self) -> list[int]:
        """Return an order that goes back from each result to what it needs."""
        groups: dict[int, list[int]] = {}
        for i in sorted([i for i, mine in enumerate(self.after) if not mine], key=self.depth.__getitem__):
            groups.setdefault(self.depth[i], []).append(i)
        order: dict[int, None] = {}
        waiting: list[int] = []
        for group in groups.values():
            self._emit([m for i in group for m in self._messages_behind(i, order)], order)
            self._emit(waiting, order)
            waiting = group
        self._emit(waiting, order)
        return [*order]

    def _messages_behind(self, i: int, order: dict[int, None]) -> list[int]:
        """Return the messages that item `i` needs, and that no message between them and `i` needs."""
        found, seen, stack = [], {i}, [i]
        while stack:
            for j in self.before[stack.pop()]:
                if j in seen or j in order:
                    continue
                seen.add(j)
                if j in self.messages:
                    found.append(j)
                else:
                    stack.append(j)
        return sorted(found)

    def _emit(self, wanted: Iterable[int], order: dict[int, None]) -> None:
        """Append items to `order`, each after what it needs: long chains first, so that short ones are near."""
        stack = [*wanted][::-1]
        while stack:
            i = stack[-1]
            if i in order:
                stack.pop()
            elif missing := [j for j in self.before[i] if j not in order]:
                stack += sorted(missing, key=self.depth.__getitem__)
            else:
                order[i] = None
                stack.pop()

    def _ahead(self, order: Sequence[int]) -> list[int]:
        """Return `order` with the gathers for the next user on a device moved before each user of gathers."""
        rank = {i: k for k, i in enumerate(order)}
        users: dict[tuple[str, ...], dict[int, list[int]]] = {}  # device -> first user -> its gathers
        for g in order:
            if g in self.gathers and self.after[g]:
                first = min(self.after[g], key=rank.__getitem__)
                users.setdefault(self.devices[g], {}).setdefault(first, []).append(g)
        moved: dict[int, list[int]] = {}  # user -> gathers to put before it
        for mine in users.values():
            in_order = sorted(mine, key=rank.__getitem__)
            for k, user in enumerate(in_order):
                moved.setdefault(in_order[max(k - 1, 0)], []).extend(mine[user])
        gathers = {g for gs in moved.values() for g in gs}
        return [j for i in order if i not in gathers for j in (*moved.get(i, ()), i)]


def _repeated(items: Sequence[UOp], order: _Order) -> list[UOp]:
    """Return `items` with gathers, and items that only join gathered values, repeated before a far use."""
    written: dict[UOp, list[int]] = {}
    for i, uses in enumerate(order.uses):
        for u in uses:
            if u.is_write:
                written.setdefault(u.base, []).append(i)
    maker: dict[UOp, int] = {}  # memory that one item writes, a gather or what joins gathers -> that item
    for i, mine in enumerate(order.before):
        to = [u.base for u in order.uses[i] if u.is_write]
        is_of_gathers = i in order.gathers or (mine and order.gathers.issuperset(mine))
        if is_of_gathers and len(to) == 1 and to[0].op == "BUFFER" and written[to[0]] == [i]:
            maker[to[0]] = i
    memory = {i: b for b, i in maker.items()}
    begun: dict[str, list[int]] = {}  # device -> numbers of the first users of its gathers
    for g in sorted(order.gathers):
        if order.after[g]:
            begun.setdefault(order.devices[g][0], []).append(min(order.after[g]))
    slot = new_slot(items)
    out: list[UOp] = []
    now: dict[UOp, UOp] = {}  # the first memory of a gathered value -> the memory that it has now
    last: dict[int, int] = {}  # maker -> number of the last user of its memory so far

    def repeat(i: int, at: int) -> None:
        nonlocal slot
        for j in order.before[i]:
            repeat(j, at)
        b = memory[i]
        now[b] = node("BUFFER", b.src, b.arg._replace(slot=slot))
        slot += 1
        out.append(_on(items[i], now))
        last[i] = at

    def is_far(i: int, at: int) -> bool:
        between = [u for u in dict.fromkeys(begun.get(order.devices[i][0], ())) if last[i] < u < at]
        if len(between) <= KEPT or not memory.keys() >= {*order.before[i]}:
            return False
        read = {u.base for j in (i, *order.before[i]) for u in order.uses[j] if not u.is_write} - maker.keys()
        return all(w >= at for b in read for w in written.get(b, ()))

    for at, item in enumerate(items):
        for b in dict.fromkeys(map(base_of, operands_of(item))):
            made_by = maker.get(b)
            if made_by is not None and made_by < at:
                if made_by in last and is_far(made_by, at):
                    repeat(made_by, at)
                last[made_by] = at
        out.append(_on(item, now))
    return out


def _on(item: UOp, now: dict[UOp, UOp]) -> UOp:
    """Return `item` with the memory of its operands replaced by that in `now`."""
    operands = operands_of(item)
    if now.keys().isdisjoint(map(base_of, operands)):
        return item
    return with_operands(item, tuple([substitute(u, now) for u in operands]))


__all__ = ["KEPT", "MIN_BYTES", "prefetch"]
