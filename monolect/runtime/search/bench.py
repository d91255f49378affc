"""Compile the candidates of a search on all workers in parallel, and time them on one worker while the others are idle.

What it is for: `optimize.search.beam` gets its times here.
What it is not: it makes no choice. A candidate that crashes, hangs or fails does so in a worker process; its time is
infinite, and the reason is noted in `failures`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

from monolect.ir.text import show
from monolect.ir.uop import UOp
from monolect.runtime.search.worker_pool import Failure, WorkerPool

BUILD_S = 10.0  # seconds to compile one candidate; after it the candidate counts as hung
OPEN_S = 60.0  # seconds to allocate and fill buffers, which may have gigabytes
FIRST_S = 60.0  # seconds to time the first candidate, the reference
RUN_S = 2.0  # seconds to time any other candidate, plus RUN_FACTOR times those of the reference
RUN_FACTOR = 10.0  # see RUN_S
MAX_CHAMPION_RATIO = 0.7  # new / old time; a candidate becomes champion below it


class Failed(NamedTuple):
    """A candidate that failed: its actions, the kind of failure, and a text about it."""

    actions: tuple
    kind: str  # "failed", "crashed", "hung" or "wrong"
    text: str


class ProcessBench:
    """Times kernels on a worker pool; see `optimize.search.beam.Bench`. Close it to free the buffers.

    `step`: called with (done, total) after each compilation and each timing.
    """

    def __init__(self, pool: WorkerPool, step: Callable[[int, int], None] = lambda done, total: None):
        self.pool = pool
        self.step = step
        self.built: dict[UOp, bytes] = {}
        self.failures: list[Failed] = []
        self.reference: UOp | None = None
        self.champion: UOp | None = None  # the program that candidates are timed against
        self.lead = 1.0  # time of the champion / time of the reference
        self.buffers_in: Any = None  # the worker that holds the buffers
        self.champion_in: Any = None  # the worker that holds the champion
        self.limit_s = FIRST_S  # seconds for the next request
        self.n_timed = 0

    def times(self, kernels: Sequence[UOp]) -> list[float]:
        """Return the time of each kernel divided by the reference's, inf for a failure; see `Bench`."""
        built = self.build(kernels)
        out = []
        for i, (k, b) in enumerate(zip(kernels, built, strict=True)):
            out.append(self._time(k, b) if b is not None else inf)
            self.step(len(kernels) + i + 1, 2 * len(kernels))
        return out

    def build(self, kernels: Sequence[UOp]) -> list[bytes | None]:
        """Compile the kernels in parallel; return the program of each, None for a failure."""
        n = 0

        def step() -> None:
            nonlocal n
            n += 1
            self.step(n, 2 * len(kernels))

        found = self.pool.map("build", [show(k) for k in kernels], BUILD_S, step)
        return [self._noted(k, f) for k, f in zip(kernels, found, strict=True)]

    def again(self, kernels: Sequence[UOp]) -> list[float]:
        """Return more precise times of kernels that were timed before; see `Bench`."""
        return [inf if (r := self._ask(k, "against", self.built[k])) is None else self.lead * r for k in kernels]

    def against(self, old: UOp, new: Sequence[UOp]) -> list[float]:
        """Return the times of `new` divided by that of `old`; see `Bench`."""
        self.champion, self.champion_in = old, None
        return [inf if (r := self._ask(k, "against", self.built[k])) is None else float(r) for k in new]

    def close(self) -> None:
        """Free the buffers."""
        if self.champion_in is not None and self.champion_in.is_alive:
            self.pool.ask("close", limit_s=OPEN_S)

    # ---- one candidate -----------------------------------------------------------------------------------------------
    def _time(self, kernel: UOp, built: bytes) -> float:
        """Return the time of a candidate divided by the reference's; inf for a failure.

        A candidate that is much faster than the champion becomes the champion, so that a slow reference costs little.
        One that is slightly faster does not: measurement errors would multiply.
        """
        if self.reference is None:
            self.reference = self.champion = kernel
            self.built[kernel] = built
        found = self._ask(kernel, "time", built)
        if found is None:
            return inf
        ratio, wrong = found
        if wrong:
            self._noted(kernel, Failure("wrong", wrong))
            self.pool.end(0)  # it may have overwritten other memory of the worker
            return inf
        self.n_timed += 1
        self.built[kernel] = built
        if kernel is self.reference:
            return 1.0
        lead = self.lead
        if (
            ratio < MAX_CHAMPION_RATIO
            and (sure := self._ask(kernel, "against", built)) is not None
            and sure < MAX_CHAMPION_RATIO
        ):
            self.champion, self.lead, self.champion_in, ratio = kernel, lead * sure, None, sure
        return float(lead * ratio)

    def _ask(self, kernel: UOp, method: str, built: bytes) -> Any:
        """Send a request about a candidate to the worker that holds the buffers and the champion; return None for a
        failure.
        """
        if not self._ensure_champion():
            return None
        start = time.monotonic()
        found = self._noted(kernel, self.pool.ask(method, built, limit_s=self.limit_s))
        if kernel is self.reference:
            self.limit_s = RUN_S + RUN_FACTOR * (time.monotonic() - start)
        return found

    def _ensure_champion(self) -> bool:
        """Send buffers, expected results and champion to a worker that lacks them. Return False if that fails."""
        worker = self.pool.worker(0)
        if worker is self.champion_in:
            return True
        assert self.reference is not None and self.champion is not None
        steps: list[tuple[str, *tuple[Any, ...]]] = [("set_champion", self.built[self.champion])]
        if worker is not self.buffers_in:
            steps.insert(0, ("open", show(self.reference), self.built[self.reference]))
        for step in steps:
            found = self.pool.ask(*step, limit_s=OPEN_S)
            if isinstance(found, Failure):
                self._noted(self.reference, found)
                return False
        self.buffers_in = self.champion_in = worker
        return True

    def _noted(self, kernel: UOp, found: Any) -> Any:
        """Return the answer `found` to a request about `kernel`; add a Failure to `failures` and return None."""
        if not isinstance(found, Failure):
            return found
        self.failures.append(Failed(kernel.arg.actions, found.kind, found.text))
        return None


__all__ = ["Failed", "ProcessBench"]
