"""Is anybody else at work? What is measured beside other processes is measured again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DISTURBED_CORES = 0.3  # more than this kept busy by others is a disturbance
TRIES, PAUSE_S = 5, 0.5  # the pause before another try doubles


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


def least_disturbed(attempt: Callable[[], tuple[T, float]], tries: int = TRIES) -> tuple[T, float]:
    """`attempt` again, after longer and longer pauses, until nobody disturbs it; the quietest one."""
    found = [attempt()]
    while found[-1][1] > DISTURBED_CORES and len(found) < tries:
        time.sleep(PAUSE_S * 2 ** (len(found) - 1))
        found.append(attempt())
    return min(found, key=lambda pair: pair[1])
