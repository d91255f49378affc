"""Linearize the graph of a kernel into a LINEAR list of instructions with properly nested loops.

The loop nest is derived from the END nodes: a RANGE is nested in the ranges that its END still depends on, in the order
of their ids. A node is emitted in the innermost loop that it depends on, so everything is hoisted as far as possible.
Within a loop, instructions and inner loops follow their dependencies, and otherwise the order of the graph.

Before: SINK(END(STORE(...), r0, r1))
After:  LINEAR(..., RANGE r0, ..., RANGE r1, ..., STORE, END r1, END r0)
Invariant: every instruction comes after its sources; RANGE and END nest.
"""

from __future__ import annotations

from monolect.base.errors import InternalError
from monolect.ir.bounds import ranges
from monolect.ir.uop import UOp, node, nodes_of


class Loop:
    """One loop of the nest: its RANGE (None for the root, the kernel itself) and its items.

    `items` are instructions and inner Loops, in the order in which they are emitted.
    """

    __slots__ = ("depth", "items", "parent", "range")

    def __init__(self, rng: UOp | None, parent: Loop | None):
        self.range, self.parent = rng, parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.items: list[UOp | Loop] = []


class Linearizer:
    """Builds the loop nest of one kernel and emits its instructions."""

    def __init__(self, sink: UOp):
        self.order = [u for u in nodes_of(sink) if u.op not in ("SINK", "GROUP")]
        self.root = Loop(None, None)
        self.loops: dict[UOp, Loop] = {}
        self.loop_of: dict[UOp, Loop] = {}  # the innermost loop that a node depends on
        self.sink = sink

    def run(self) -> UOp:
        """Return the LINEAR of the kernel."""
        self._nest()
        for u in self.order:
            self.loop_of[u] = self._innermost_loop(u)
        out: list[UOp] = []
        self._fill()
        self._emit(self.root, out)
        return node("LINEAR", tuple(out), self.sink.arg)

    def _nest(self) -> None:
        """Create a Loop for each RANGE from the END nodes, outermost first."""
        chains: dict[UOp, list[UOp]] = {}
        for u in self.order:
            if u.op == "END":
                outer = sorted(ranges(u), key=lambda r: r.arg[0])
                for r in sorted(u.src[1:], key=lambda r: r.arg[0]):
                    if r not in chains or len(chains[r]) > len(outer):
                        chains[r] = list(outer)
                    outer = [*outer, r]
        for r in sorted(chains, key=lambda r: (len(chains[r]), r.arg[0])):
            self._loop(r, chains)

    def _loop(self, r: UOp, chains: dict[UOp, list[UOp]]) -> Loop:
        """Return the Loop of the RANGE `r`, created if needed inside of the innermost of the loops around it.

        `chains` has the RANGEs of the loops around each RANGE.
        """
        if r not in self.loops:
            outer = [self._loop(o, chains) for o in chains[r] if o in chains]
            self.loops[r] = Loop(r, max(outer, key=lambda loop: loop.depth, default=self.root))
        return self.loops[r]

    def _innermost_loop(self, u: UOp) -> Loop:
        """Return the innermost loop that `u` depends on; for an END the loop around the ended one."""
        if u.op == "END":
            first = min(u.src[1:], key=lambda r: self.loops[r].depth)
            parent = self.loops[first].parent
            assert parent is not None
            return parent
        best = self.root
        for r in ranges(u):
            loop = self.loops.get(r)
            if loop is None:
                raise InternalError("a RANGE is never closed", expected="an END", found=repr(r))
            if loop.depth > best.depth:
                best = loop
        return best

    def _item(self, u: UOp, scope: Loop) -> UOp | Loop | None:
        """Return the item of the loop `scope` that contains `u`: `u` itself or an inner loop. None if `u` is outside of
        `scope`.
        """
        if u.op == "END":
            loop = self.loops[min(u.src[1:], key=lambda r: self.loops[r].depth)]
        elif u.op == "RANGE":
            loop = self.loops[u]
        else:
            loop = self.loop_of[u]
            if loop is scope:
                return u
        while loop.depth > scope.depth + 1:
            assert loop.parent is not None
            loop = loop.parent
        return loop if loop.parent is scope else None

    def _fill(self) -> None:
        """Set `Loop.items` of each loop, in dependency order."""
        members: dict[Loop, dict[UOp | Loop, None]] = {self.root: {}}
        needs: dict[UOp | Loop, set[UOp | Loop]] = {}
        for u in self.order:
            if u.op in ("RANGE", "END"):
                me: UOp | Loop | None = self._item(u, h) if (h := self._scope_of(u)) is not None else None
                if me is not None and h is not None:
                    members.setdefault(h, {})[me] = None
            else:
                members.setdefault(self.loop_of[u], {})[u] = None
            for s in u.src:
                self._need(u, s, needs)
        for loop, items in members.items():
            loop.items = _sorted(list(items), needs)

    def _scope_of(self, u: UOp) -> Loop | None:
        """Return the Loop around the loop that the RANGE or END `u` begins or ends; the root for an outermost loop."""
        return self.loops[u].parent if u.op == "RANGE" else self.loop_of[u]

    def _need(self, u: UOp, s: UOp, needs: dict) -> None:
        """Record in `needs` that `u` depends on `s`, as a dependency between two items of the loop of `s`: those that
        contain `u` and `s`.
        """
        if s.op == "RANGE":
            return
        scope = self.loop_of[s]
        a: UOp | Loop | None
        if u.op == "END" and self.loop_of[u] is not scope and self.loop_of[u].depth < scope.depth:
            return
        a = self._item(u, scope)
        b = self._item(s, scope)
        if a is not None and b is not None and a is not b:
            needs.setdefault(a, set()).add(b)

    def _emit(self, loop: Loop, out: list[UOp]) -> None:
        """Append the RANGE of `loop`, its instructions and those of inner loops, and its END to `out`."""
        if loop.range is not None:
            out.append(loop.range)
        for item in loop.items:
            if isinstance(item, Loop):
                self._emit(item, out)
            else:
                out.append(item)
        if loop.range is not None:
            out.append(node("END", (out[-1], loop.range)))


def _sorted(items: list, needs: dict) -> list:
    """Sort `items` topologically by `needs`, keeping their order otherwise. Raises InternalError for a cycle."""
    inside = set(items)
    out: list = []
    state: dict = {}
    for start in items:
        stack = [start]
        while stack:
            it = stack[-1]
            if state.get(it) == 2:
                stack.pop()
                continue
            pending = [n for n in needs.get(it, ()) if n in inside and state.get(n) != 2]
            if not pending:
                state[it] = 2
                out.append(it)
                stack.pop()
            elif state.get(it) == 1:
                raise InternalError("loops depend on each other in a cycle", found=repr(it))
            else:
                state[it] = 1
                stack.extend(sorted(pending, key=_position, reverse=True))
    return out


def _position(item: UOp | Loop) -> int:
    """Return the serial number of an instruction, or of a loop's RANGE: items are sorted by it."""
    r = item.range if isinstance(item, Loop) else item
    return r.serial if r is not None else 0


def linearize(sink: UOp) -> UOp:
    """Pass: order the nodes of the kernel `sink` as the instructions of a LINEAR."""
    return Linearizer(sink).run()


__all__ = ["Linearizer", "Loop", "linearize"]
