"""Time the calls of several libraries in turns, once their results agree."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROUNDS, ROUND_SECONDS, PAUSE_SECONDS = 11, 0.02, 0.02
Calls = dict[str, Callable[[], Any]]  # by library: one call, whose result NumPy can read


def agreed(calls: Calls) -> Calls:
    """`calls`, whose results are the same. Raises AssertionError where they are not."""
    want = np.asarray(next(iter(calls.values()))())
    for name, call in calls.items():
        np.testing.assert_allclose(np.asarray(call()), want, rtol=1e-4, atol=1e-5, err_msg=name)
    return calls


def measured(calls: Calls) -> dict[str, float]:
    """Median microseconds of one call of each library, in turns, once their results agree."""
    counts = {}
    for name, call in agreed(calls).items():
        for _ in range(5):
            call()
        start = time.perf_counter()
        call()
        counts[name] = max(3, int(ROUND_SECONDS / (time.perf_counter() - start)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            time.sleep(PAUSE_SECONDS)  # the threads of the others stop spinning
            call()
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            times[name].append((time.perf_counter() - start) / counts[name] * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


def peers(ours: Callable[[], Any], **others: Callable[[], Callable[[], Any]]) -> Calls:
    """Our call, and those of the libraries that are installed."""
    found: Calls = {"monolect": ours}
    for name, make in others.items():
        try:
            found[name] = make()
        except ImportError:
            pass
    return found
