"""Search for a kernel's fastest actions by timing candidates (BEAM).

There are two walks: one from the heuristic's actions, and one from their shortest prefix that can be timed, if possible
the empty one. Each round tries every legal next move and every edit of the best unexpanded plans, and keeps the best
`width` plans of all. Plans that make the same kernel are timed once. The best plan found replaces the heuristic's only
if it wins a final comparison.

What it is not: it times nothing itself. A Bench does, which the runtime supplies for the device, so that no candidate
runs in the user's process. The Target describes the limits of the device, so the walk is the same for all devices.

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

MAX_ROUNDS = 12  # rounds of one walk
MIN_ROUND_GAIN = 0.99  # a walk ends when a round's best time is above 0.99 of the previous best
MAX_FINALISTS = 4  # plans in the final comparison with the heuristic's plan
NOISE_FACTOR = 1.02  # plans within 2 % of each other count as equally fast; the one with fewer actions is chosen
MAX_START_SLOWDOWN = 20.0  # times the heuristic's time; a slower plan is no starting point of a walk
MAX_WINNING_RATIO = 0.97  # of the heuristic's time, measured alternating; a smaller gain counts as noise


class Bench(Protocol):
    """Times kernels on one device. A search calls it with SINKs whose actions are applied. The first kernel that it
    times defines the correct result and the unit of relative times.
    """

    def times(self, kernels: Sequence[UOp]) -> list[float]:
        """Return the time of each of `kernels` divided by that of the first kernel that this Bench ever timed; inf
        where a kernel fails, hangs or computes a wrong result.

        `kernels`: SINKs with their actions applied.
        """

    def again(self, kernels: Sequence[UOp]) -> list[float]:
        """Return relative times like `times`, measured longer, of kernels that were timed before."""

    def against(self, old: UOp, new: Sequence[UOp]) -> list[float]:
        """Return the time of each kernel of `new` divided by that of `old`, measured longer and alternating with `old`;
        inf where one fails.
        """


class Found(NamedTuple):
    """The result of a search: the chosen `actions`, and `ratio`, their time divided by that of the heuristic's actions
    (1 if the heuristic's are chosen). `n_timed`: number of kernels timed. `n_rounds`: number of rounds of both walks.
    """

    actions: Move
    ratio: float
    n_timed: int
    n_rounds: int


class TimedPlan(NamedTuple):
    """A candidate: a sequence of actions, the kernel (SINK) that they make, and its time divided by that of the
    heuristic's kernel.
    """

    actions: Move
    kernel: UOp
    time: float


class Search:
    """The search for the fastest actions of the kernel `sink`. `seen`: {digest of a kernel: the candidate timed for
    it}.

    `width`: number of candidates that each round keeps. `bench`: times kernels. `progress`: is called with a line of
    text after each round.
    """

    def __init__(self, sink: UOp, target: Target, width: int, bench: Bench, progress: Callable[[str], None]):
        self.sink, self.target, self.width, self.bench, self.progress = sink, target, width, bench, progress
        self.seen: dict[str, TimedPlan] = {}
        self.n_rounds = 0

    def run(self, heuristic: Move) -> Found:
        """Run both walks and the final comparison; return the chosen actions. `heuristic`: the heuristic's actions,
        from which the first walk starts.
        """
        base = self.time([heuristic])[0]
        if base.time == inf:
            return Found(heuristic, 1.0, len(self.seen), 0)
        self.walk(base)
        self.walk(self.beginning(base))
        finalists = self.finalists(base)
        ratios = self.bench.against(base.kernel, [c.kernel for c in finalists]) if finalists else []
        best = min(ratios, default=inf)
        if best >= MAX_WINNING_RATIO:
            return Found(base.actions, 1.0, len(self.seen), self.n_rounds)
        near = [(len(c.actions), r, c) for r, c in zip(ratios, finalists, strict=True) if r <= best * NOISE_FACTOR]
        _, ratio, chosen = min(near, key=lambda t: t[:2])
        return Found(chosen.actions, ratio, len(self.seen), self.n_rounds)

    def finalists(self, base: TimedPlan) -> list[TimedPlan]:
        """Return the candidates for the final comparison: the fastest of those that are faster than `base`, the
        heuristic's candidate, and the one with the fewest actions among those about as fast as the fastest.
        """
        faster = sorted((c for c in self.seen.values() if c.time < base.time), key=lambda c: c.time)
        near = [c for c in faster if c.time <= faster[0].time * NOISE_FACTOR]
        simple = min(near, key=lambda c: (len(c.actions), c.time), default=base)
        best = faster[: MAX_FINALISTS - 1]
        return best if simple in (*best, base) else [*best, simple]

    def beginning(self, base: TimedPlan) -> TimedPlan:
        """Return the candidate from which the second walk starts: the shortest prefix of the actions of `base`, the
        heuristic's candidate, that is not too slow to time; if possible the empty one.
        """
        for n in reversed(range(len(base.actions))):
            self.time([base.actions[:n]])
            found = self.seen.get(name(apply_actions(self.sink, base.actions[:n], self.target)), base)
            if found.time > MAX_START_SLOWDOWN:
                break
            base = found
        return base

    def walk(self, start: TimedPlan) -> None:
        """Run one walk from the candidate `start`: rounds that time the neighbours of the best candidates, until a
        round improves too little or MAX_ROUNDS is reached. The results are in `seen`.
        """
        mine = [start]
        open_ = list(mine)
        for _ in range(MAX_ROUNDS):
            if not open_:
                return
            best = min(c.time for c in mine)
            self.n_rounds += 1
            new = self.time(list(dict.fromkeys(a for c in open_ for a in self.neighbours(c.actions))))
            new = self.sure([c for c in new if c.time < inf])
            self.progress(f"{len(self.seen)} timed, best {1 / min(c.time for c in self.seen.values()):.2f}x")
            mine = sorted([*mine, *new], key=lambda c: c.time)
            if mine[0].time > MIN_ROUND_GAIN * best:
                return
            open_ = [c for c in mine[: self.width] if c in new]

    def sure(self, candidates: list[TimedPlan]) -> list[TimedPlan]:
        """Return `candidates` with the times of the best measured again and longer, without those that then fail.

        The smallest of many short measurements is biased: it is too low.
        """
        certain: list[TimedPlan] = []
        rest = sorted(candidates, key=lambda c: c.time)
        for _ in range(2 * self.width):
            if not rest or sum(c.time <= rest[0].time for c in certain) >= self.width:
                break
            (time,) = self.bench.again([rest[0].kernel])
            certain.append(rest.pop(0)._replace(time=time))
        self.seen |= {name(c.kernel): c for c in certain}
        return [c for c in (*certain, *rest) if c.time < inf]

    def neighbours(self, actions: Move) -> Iterator[Move]:
        """Yield the sequences of actions that differ from `actions` by one move: one move more, one action replaced by
        another of its kind, or one action dropped.
        """
        yield from extensions(self.sink, self.target, actions)
        yield from edits(self.sink, self.target, actions)

    def time(self, wanted: Sequence[Move]) -> list[TimedPlan]:
        """Time the sequences of actions in `wanted` that make a kernel not timed before; return them as candidates.
        Illegal ones are left out.
        """
        made: dict[str, tuple[Move, UOp]] = {}
        for actions in wanted:
            try:
                kernel = apply_actions(self.sink, actions, self.target)
            except MonolectError:
                continue
            made.setdefault(name(kernel), (actions, kernel))
        fresh = {key: found for key, found in made.items() if key not in self.seen}
        times = self.bench.times([kernel for _, kernel in fresh.values()]) if fresh else []
        new = {key: TimedPlan(*found, t) for (key, found), t in zip(fresh.items(), times, strict=True)}
        self.seen |= new
        return list(new.values())


def name(kernel: UOp) -> str:
    """Return the digest of the SINK `kernel` without the actions in its info: equal for all sequences of actions that
    make the same code.
    """
    return digest(node("SINK", kernel.src, kernel.arg._replace(actions=())))


def search(
    sink: UOp,
    target: Target,
    heuristic: Move,
    width: int,
    bench: Bench,
    progress: Callable[[str], None] = lambda text: None,
) -> Found:
    """Return the fastest actions found for the kernel `sink`: those of `heuristic` or measured to be faster.

    `width`: number of candidates that each round keeps. `bench`: times kernels. `progress`: is called with a line of
    text after each round.
    """
    return Search(sink, target, width, bench, progress).run(heuristic)


__all__ = ["Bench", "Found", "Search", "TimedPlan", "name", "search"]
