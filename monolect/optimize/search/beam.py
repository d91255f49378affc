"""BEAM: choosing actions by timing what they make.

Two walks, one from the heuristic's actions and one from as few of them as can be timed, best none. Each round tries
every legal next move and every edit of the best unexpanded plans, and keeps the best `width` of all. Plans that make
the same kernel are timed once. What the walks find replaces the heuristic's choice only when it wins a last comparison.

What it is not: it times nothing itself. A Bench does, which the runtime supplies for the device, so that no candidate
runs in the user's process. What a device cannot do is in its Target, so the walk is the same for all.

Invariant: the result is the heuristic's plan, or one that was measured to be faster.
Source: beam search over legal rewrites, as in the tuning literature; greedy from a good solution, best first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import NamedTuple, Protocol

from monolect.base.errors import MonolectError
from monolect.base.target import Target
from monolect.ir.digest import digest
from monolect.ir.uop import UOp, node
from monolect.optimize.apply import apply_actions
from monolect.optimize.search.moves import Move
from monolect.optimize.search.neighbours import edits, extensions

MOST_ROUNDS = 12
GAIN = 0.99  # a round that leaves more of the best time than this ends the walk
FINALISTS = 4
NOISE = 1.02  # a plan within this of another is as fast: the simpler one is taken
FAR = 20.0  # times as long as the heuristic's plan: too slow a start for a walk
WINS = 0.97  # of the heuristic's time, in turns with it: what is not clearly faster is noise


class Bench(Protocol):
    """Times kernels of one device whose actions are done. The first one says what a right result is."""

    def times(self, kernels: Sequence[UOp]) -> list[float]:
        """Of each its time by that of the first one ever; inf where it fails, hangs or computes something else."""

    def again(self, kernels: Sequence[UOp]) -> list[float]:
        """The same for kernels that were timed before, measured longer."""

    def against(self, old: UOp, new: Sequence[UOp]) -> list[float]:
        """For each of `new` its time by that of `old`, measured longer, in turns with it; inf for one that fails."""


class Found(NamedTuple):
    """What a search chose; `ratio` is its time by the heuristic's, 1 when the heuristic stays."""

    actions: Move
    ratio: float
    n_timed: int
    n_rounds: int


class Candidate(NamedTuple):
    """A plan that makes a kernel of its own, and its time by that of the heuristic's."""

    actions: Move
    kernel: UOp
    time: float


class Search:
    """The candidates of one kernel."""

    def __init__(self, sink: UOp, target: Target, width: int, bench: Bench, progress: Callable[[str], None]):
        self.sink, self.target, self.width, self.bench, self.progress = sink, target, width, bench, progress
        self.seen: dict[str, Candidate] = {}
        self.n_rounds = 0

    def run(self, heuristic: Move) -> Found:
        """Both walks and the last comparison."""
        base = self.time([heuristic])[0]
        if base.time == inf:
            return Found(heuristic, 1.0, len(self.seen), 0)
        self.walk(base)
        self.walk(self.beginning(base))
        finalists = self.finalists(base)
        ratios = self.bench.against(base.kernel, [c.kernel for c in finalists]) if finalists else []
        best = min(ratios, default=inf)
        if best >= WINS:
            return Found(base.actions, 1.0, len(self.seen), self.n_rounds)
        near = [(len(c.actions), r, c) for r, c in zip(ratios, finalists, strict=True) if r <= best * NOISE]
        _, ratio, chosen = min(near, key=lambda t: t[:2])
        return Found(chosen.actions, ratio, len(self.seen), self.n_rounds)

    def finalists(self, base: Candidate) -> list[Candidate]:
        """The fastest, and the one with the fewest actions of those that are about as fast."""
        faster = sorted((c for c in self.seen.values() if c.time < base.time), key=lambda c: c.time)
        near = [c for c in faster if c.time <= faster[0].time * NOISE]
        simple = min(near, key=lambda c: (len(c.actions), c.time), default=base)
        best = faster[: FINALISTS - 1]
        return best if simple in (*best, base) else [*best, simple]

    def beginning(self, base: Candidate) -> Candidate:
        """The shortest beginning of the heuristic's actions, best none of them, that does not run too long."""
        for n in reversed(range(len(base.actions))):
            self.time([base.actions[:n]])
            found = self.seen.get(name(apply_actions(self.sink, base.actions[:n], self.target)), base)
            if found.time > FAR:
                break
            base = found
        return base

    def walk(self, start: Candidate) -> None:
        """Rounds from `start` until one brings nothing."""
        mine = [start]
        open_ = list(mine)
        for _ in range(MOST_ROUNDS):
            if not open_:
                return
            best = min(c.time for c in mine)
            self.n_rounds += 1
            new = self.time(list(dict.fromkeys(a for c in open_ for a in self.neighbours(c.actions))))
            new = self.sure([c for c in new if c.time < inf])
            self.progress(f"{len(self.seen)} timed, best {1 / min(c.time for c in self.seen.values()):.2f}x")
            mine = sorted([*mine, *new], key=lambda c: c.time)
            if mine[0].time > GAIN * best:
                return
            open_ = [c for c in mine[: self.width] if c in new]

    def sure(self, new: list[Candidate]) -> list[Candidate]:
        """The candidates of a round, its best measured again: the best of many short measurements is a lucky one."""
        certain: list[Candidate] = []
        rest = sorted(new, key=lambda c: c.time)
        for _ in range(2 * self.width):
            if not rest or sum(c.time <= rest[0].time for c in certain) >= self.width:
                break
            (time,) = self.bench.again([rest[0].kernel])
            certain.append(rest.pop(0)._replace(time=time))
        self.seen |= {name(c.kernel): c for c in certain}
        return [c for c in (*certain, *rest) if c.time < inf]

    def neighbours(self, actions: Move) -> Iterator[Move]:
        """One move more, or one action changed."""
        yield from extensions(self.sink, self.target, actions)
        yield from edits(self.sink, self.target, actions)

    def time(self, wanted: Sequence[Move]) -> list[Candidate]:
        """Candidates for those of `wanted` that make a kernel not seen before."""
        made: dict[str, tuple[Move, UOp]] = {}
        for actions in wanted:
            try:
                kernel = apply_actions(self.sink, actions, self.target)
            except MonolectError:
                continue
            made.setdefault(name(kernel), (actions, kernel))
        fresh = {key: found for key, found in made.items() if key not in self.seen}
        times = self.bench.times([kernel for _, kernel in fresh.values()]) if fresh else []
        new = {key: Candidate(*found, t) for (key, found), t in zip(fresh.items(), times, strict=True)}
        self.seen |= new
        return list(new.values())


def name(kernel: UOp) -> str:
    """The digest of what a kernel does, whatever actions made it."""
    return digest(node("SINK", kernel.src, kernel.arg._replace(actions=())))


def search(
    sink: UOp,
    target: Target,
    heuristic: Move,
    width: int,
    bench: Bench,
    progress: Callable[[str], None] = lambda text: None,
) -> Found:
    """The fastest actions found for `sink`, never slower than `heuristic`; `width` plans are kept in each round."""
    return Search(sink, target, width, bench, progress).run(heuristic)
