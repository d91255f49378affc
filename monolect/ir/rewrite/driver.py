"""The one driver of all rewrites: applies a rule set to a graph until nothing matches.

What it is for: every pass that is a table of rules. It is iterative, visits each node once, and rebuilds what changes
in normal form; what a rule makes is rewritten in turn.
What it is not: a strategy. Which rule comes first is the order of the table.

Invariant: on return no rule of the set matches any node of the result that was entered. Rules that undo each other, or
that grow the graph without end, raise InternalError with their names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from monolect.base.errors import InternalError
from monolect.ir.rewrite.pattern import RuleSet
from monolect.ir.uop import UOp, rebuild, toposort

Trace = Callable[[str, UOp, UOp], Any]
_FIRST_STEPS, _STEPS_PER_NODE = 10_000, 200  # rules fired before, and for each node of the graph, it must be a loop
_RECENT = 24


def rewrite(
    root: UOp,
    ruleset: RuleSet,
    *,
    bottom_up: bool = True,
    trace: Trace | None = None,
    context: Any = None,
    stop: Callable[[UOp], bool] | None = None,
) -> UOp:
    """`root` with the rules applied everywhere to a fixed point; `trace(rule name, before, after)` sees each firing.

    Bottom up, a rule sees sources that are finished; otherwise it sees each node first as it was. Nodes for which
    `stop` holds are left as they are. Cost: about 1 microsecond a node where nothing matches.
    """
    return _Driver(root, ruleset, trace, context, stop).run(bottom_up)


def replaced(root: UOp, replacement: Callable[[UOp], UOp]) -> UOp:
    """`root` with every node replaced by what `replacement` gives, to a fixed point; a node itself where it may stay.

    A node is asked before its sources change (an exponential is two nodes), and again after. For rules that are code.
    """
    done: dict[UOp, UOp] = {}
    instead: dict[UOp, UOp] = {}
    stack = [root]
    while stack:
        u = stack[-1]
        if u in done:
            stack.pop()
            continue
        if u not in instead:
            instead[u] = replacement(u)
        head = instead[u]
        pending = [s for s in (u.src if head is u else (head,)) if s not in done]
        if pending:
            stack.extend(reversed(pending))
        elif head is not u:
            done[u] = done[head]
        else:
            new = rebuild(u, tuple(done[s] for s in u.src))
            if new is u:
                done[u] = u
            else:
                instead[u] = new
    return done[root]


class _Driver:
    """One call of `rewrite`.

    `done` maps a node to what it became for good; `instead` a node to its replacement while that is not done. A node
    met again while it waits for its replacement would wait for itself: the rules cycle.
    """

    def __init__(
        self, root: UOp, ruleset: RuleSet, trace: Trace | None, context: Any, stop: Callable[[UOp], bool] | None
    ) -> None:
        self.root, self.ruleset, self.trace, self.context, self.stop = root, ruleset, trace, context, stop
        self.instead: dict[UOp, UOp] = {}
        self.recent: deque[str] = deque(maxlen=_RECENT)
        self.steps, self.limit = 0, _FIRST_STEPS

    def run(self, bottom_up: bool) -> UOp:
        done: dict[UOp, UOp] = {}
        entered: set[UOp] = set()
        instead, stop, context = self.instead, self.stop, self.context
        matchers = self.ruleset.matchers
        stack = [self.root]
        while stack:
            u = stack.pop()
            if u in done:
                continue
            if u in instead:
                done[u] = self.settled(u, done)
                continue
            if stop is not None and stop(u):
                done[u] = u
                continue
            op = u.op
            f = matchers[op] if op in matchers else self.ruleset.matcher(op)
            if not bottom_up and f is not None and u not in entered:
                entered.add(u)
                if (hit := f(u, context)) is not None:
                    self.fire(u, hit, stack)
                    continue
            src, same = u.src, True
            for s in src:
                if (v := done.get(s)) is not s:
                    same = False
                    if v is None:
                        break
            else:
                if not same:
                    v = rebuild(u, tuple([done[s] for s in src]))
                    if v is not u:  # in normal form it may be any node: it is looked at like a new one
                        instead[u] = v
                        stack += (u, v)
                        continue
                elif bottom_up and f is not None and (hit := f(u, context)) is not None:
                    self.fire(u, hit, stack)
                    continue
                done[u] = u
                continue
            stack.append(u)
            stack.extend([s for s in reversed(src) if s not in done])
        return done[self.root]

    def settled(self, u: UOp, done: dict[UOp, UOp]) -> UOp:
        """What the replacement of `u` became."""
        out = done.get(self.instead[u])
        if out is None:
            raise self.cycle("undo each other")
        return out

    def fire(self, u: UOp, hit: tuple[UOp, str], stack: list[UOp]) -> None:
        """Put the replacement of `u` on the stack above it."""
        v, name = hit
        self.steps += 1
        self.recent.append(name)
        if self.trace is not None:
            self.trace(name, u, v)
        if self.steps > self.limit:
            if self.limit > _FIRST_STEPS:
                raise self.cycle("do not come to an end")
            self.limit += _STEPS_PER_NODE * len(toposort(self.root))
        self.instead[u] = v
        stack += (u, v)

    def cycle(self, what: str) -> InternalError:
        names = ", ".join(dict.fromkeys(reversed(self.recent)))
        return InternalError(
            f"rules of {self.ruleset.name} {what}: {names}", expected="a fixed point", found=f"{self.steps} steps"
        )
