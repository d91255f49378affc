"""Is anybody else at work? What is measured beside other processes is measured again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DISTURBED_CORES = 0.3  # more than this kept busy by others is a disturbance
PAUSE_S = 0.5  # before another try; it doubles


def others_s() -> float:
    """CPU seconds that were not this process's, since some time; 0 where the system does not say."""
    if not os.path.exists("/proc/stat"):
        return 0.0
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, steal = map(int, f.readline().split()[1:9])
    own = os.times()
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK") - own.user - own.system


def watched(measure: Callable[[], T]) -> tuple[T, float]:
    """What `measure` gives, and how many cores others kept busy meanwhile."""
    others, start = others_s(), time.perf_counter()
    found = measure()
    return found, max(0.0, (others_s() - others) / (time.perf_counter() - start))


class Patience:
    """Seconds that may be spent on waiting for quiet."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def least_disturbed(self, attempt: Callable[[], tuple[T, float]]) -> tuple[T, float]:
        """`attempt` again, after longer and longer pauses, until nobody disturbs it or patience ends; the quietest."""
        found, pause = [attempt()], PAUSE_S
        while found[-1][1] > DISTURBED_CORES and self.seconds > 0:
            start = time.perf_counter()
            time.sleep(pause)
            found.append(attempt())
            self.seconds -= time.perf_counter() - start
            pause *= 2
        return min(found, key=lambda pair: pair[1])
