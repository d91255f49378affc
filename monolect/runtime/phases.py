"""Which launches of a capture may run at the same time: barriers stand where something is needed, and nowhere else.

A phase is what runs between two barriers. It has a lane for each thread; what stands in one lane runs in that order, so
launches that need each other can share a lane. A launch that is shared out between threads has a part in each.

What it is for: independent kernels run at once, and several that are shared out cost one barrier together. What is too
small for that stays on the caller's thread, one after the other, without any barrier.
Invariant: of two launches in different lanes of a phase, neither writes what the other touches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monolect.backend.base import Phase
from monolect.runtime.profile import estimate
from monolect.runtime.prologue import Step

BARRIER_NS = 3000  # what a phase must save, with the threads' waking and waiting
OPS_PER_NS, BYTES_PER_NS, LAUNCH_NS = 8, 16, 20  # of one thread, roughly


class _Open:
    """A phase that is being filled."""

    def __init__(self, n_lanes: int) -> None:
        self.lanes: list[list[tuple[int, int]]] = [[] for _ in range(n_lanes)]
        self.load_ns = [0] * n_lanes
        self.launches: list[int] = []
        self.wrote: dict[int, set[int]] = {}  # by buffer, the lanes that write it
        self.touched: dict[int, set[int]] = {}
        self.is_shared = False
        self.single_ns = 0

    def needed(self, touched: set[int], written: set[int]) -> set[int]:
        """The lanes that hold something which a launch must come after."""
        out = {lane for b in touched for lane in self.wrote.get(b, ())}
        return out.union(lane for b in written for lane in self.touched.get(b, ()))

    def add(self, i: int, n: int, ns: int, lane: int, touched: set[int], written: set[int]) -> None:
        """Launch `i`, of `n` threads, so that its first thread is in `lane`."""
        n_lanes = len(self.lanes)
        self.launches.append(i)
        for t in range(n):
            self.lanes[(lane + t) % n_lanes].append((i, t))
            self.load_ns[(lane + t) % n_lanes] += ns // n
        used = {(lane + t) % n_lanes for t in range(n)}
        for b in touched:
            self.touched.setdefault(b, set()).update(used)
        for b in written:
            self.wrote.setdefault(b, set()).update(used)
        self.is_shared |= n > 1
        self.single_ns += ns


def phases(steps: Sequence[Step], n_threads: int, same: Mapping[int, int]) -> tuple[Phase, ...]:
    """The `steps` as phases for so many threads. `same`: buffers that may be in the memory of another, by number."""
    done: list[Phase] = []
    now = _Open(n_threads)
    for i, s in enumerate(steps):
        touched, written = ({same.get(n, n) for n in numbers} for numbers in (s.launch.args, s.written))
        needed = now.needed(touched, written)
        n = s.launch.program.n_threads
        alone = s.call.src[0].op == "CUSTOMFUNCTION"  # nobody knows what else it touches
        if alone or len(needed) > 1 or (n > 1 and needed):
            done += _closed(now)
            now, needed = _Open(n_threads), set()
        free = 0 if n > 1 else min(range(n_threads), key=now.load_ns.__getitem__)
        now.add(i, n, _nanoseconds(s), needed.pop() if needed else free, touched, written)
        if alone:
            done += _closed(now)
            now = _Open(n_threads)
    return tuple(done + _closed(now))


def _nanoseconds(s: Step) -> int:
    n_ops, n_bytes = estimate(s.call)
    return LAUNCH_NS + max(n_ops // OPS_PER_NS, n_bytes // BYTES_PER_NS)


def _closed(p: _Open) -> list[Phase]:
    """The phase in lanes where that pays; where a barrier is needed anyway, it always does."""
    if not p.launches:
        return []
    if len(p.launches) > 1 and (p.is_shared or p.single_ns - max(p.load_ns) >= BARRIER_NS):
        return [Phase(tuple(p.launches), tuple(map(tuple, p.lanes)))]
    return [Phase(tuple(p.launches))]


def times(found: Sequence[Phase], n_steps: int) -> list[int]:
    """For each step a time, by which lives are compared: launches of a phase with lanes are at the same time."""
    out, now = [0] * n_steps, 0
    for phase in found:
        for i in phase.launches:
            out[i] = now
            now += not phase.lanes
        now += bool(phase.lanes)
    return out


__all__ = ["phases", "times"]
