"""The bench of a search: candidates compiled on all workers, timed on one while the others rest.

What it is for: `optimize.search.beam` asks it for times. What it is not: it makes no choice. Whatever happens to a
candidate happens in a worker process: it counts as infinitely slow, and why is noted in `failures`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

from monolect.ir.text import show
from monolect.ir.uop import UOp
from monolect.runtime.search.worker_pool import Crew, Failure

BUILD_S = 10.0  # for one candidate
OPEN_S = 60.0  # to fill buffers of gigabytes
FIRST_S = 60.0  # for the first one to be timed
RUN_S = 2.0  # for any other, and
AHEAD = 0.7  # time of a new champion by that of the old one, at most
RUNS = 10.0  # times what the first one took


class Failed(NamedTuple):
    """A candidate that is out, by its actions."""

    actions: tuple
    kind: str  # "failed", "crashed", "hung" or "wrong"
    text: str


class ProcessBench:
    """Times kernels on a crew; see `optimize.search.beam.Bench`. Close it to free the buffers."""

    def __init__(self, crew: Crew, step: Callable[[int, int], None] = lambda done, total: None):
        self.crew = crew
        self.step = step
        self.built: dict[UOp, bytes] = {}
        self.failures: list[Failed] = []
        self.reference: UOp | None = None
        self.champion: UOp | None = None  # the fastest so far, `lead` its time by the reference's
        self.lead = 1.0
        self.opened_by: Any = None  # the worker that holds the buffers
        self.crowned_by: Any = None  # and the champion
        self.limit_s = FIRST_S
        self.n_timed = 0

    def times(self, kernels: Sequence[UOp]) -> list[float]:
        """See `Bench`."""
        built = self.build(kernels)
        out = []
        for i, (k, b) in enumerate(zip(kernels, built, strict=True)):
            out.append(self._time(k, b) if b is not None else inf)
            self.step(len(kernels) + i + 1, 2 * len(kernels))
        return out

    def build(self, kernels: Sequence[UOp]) -> list[bytes | None]:
        """Each compiled; None for one that cannot be."""
        n = 0

        def step() -> None:
            nonlocal n
            n += 1
            self.step(n, 2 * len(kernels))

        found = self.crew.map("build", [show(k) for k in kernels], BUILD_S, step)
        return [self._noted(k, f) for k, f in zip(kernels, found, strict=True)]

    def again(self, kernels: Sequence[UOp]) -> list[float]:
        """See `Bench`."""
        return [inf if (r := self._ask(k, "against", self.built[k])) is None else self.lead * r for k in kernels]

    def against(self, old: UOp, new: Sequence[UOp]) -> list[float]:
        """See `Bench`."""
        self.champion, self.crowned_by = old, None
        return [inf if (r := self._ask(k, "against", self.built[k])) is None else float(r) for k in new]

    def close(self) -> None:
        """Free the buffers."""
        if self.crowned_by is not None and self.crowned_by.is_alive:
            self.crew.ask("close", limit_s=OPEN_S)

    # ---- one candidate -----------------------------------------------------------------------------------------------
    def _time(self, kernel: UOp, built: bytes) -> float:
        """The time of a candidate by that of the reference.

        What is far ahead becomes the champion, so that a slow reference costs little. What is a little ahead does not:
        lucky measurements would be multiplied with each other.
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
            self.crew.end(0)  # what it wrote elsewhere must decide on no other
            return inf
        self.n_timed += 1
        self.built[kernel] = built
        if kernel is self.reference:
            return 1.0
        lead = self.lead
        if ratio < AHEAD and (sure := self._ask(kernel, "against", built)) is not None and sure < AHEAD:
            self.champion, self.lead, self.crowned_by, ratio = kernel, lead * sure, None, sure
        return float(lead * ratio)

    def _ask(self, kernel: UOp, method: str, built: bytes) -> Any:
        """The answer about a candidate of the worker that holds buffers and champion; None for a failure."""
        if not self._is_crowned():
            return None
        start = time.monotonic()
        found = self._noted(kernel, self.crew.ask(method, built, limit_s=self.limit_s))
        if kernel is self.reference:
            self.limit_s = RUN_S + RUNS * (time.monotonic() - start)
        return found

    def _is_crowned(self) -> bool:
        """Make what a fresh worker lacks: buffers, right results, the champion."""
        worker = self.crew.worker(0)
        if worker is self.crowned_by:
            return True
        assert self.reference is not None and self.champion is not None
        steps: list[tuple[str, *tuple[Any, ...]]] = [("crown", self.built[self.champion])]
        if worker is not self.opened_by:
            steps.insert(0, ("open", show(self.reference), self.built[self.reference]))
        for step in steps:
            found = self.crew.ask(*step, limit_s=OPEN_S)
            if isinstance(found, Failure):
                self._noted(self.reference, found)
                return False
        self.opened_by = self.crowned_by = worker
        return True

    def _noted(self, kernel: UOp, found: Any) -> Any:
        """`found`, or None for a Failure, which is noted."""
        if not isinstance(found, Failure):
            return found
        self.failures.append(Failed(kernel.arg.actions, found.kind, found.text))
        return None
