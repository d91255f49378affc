"""Is anybody else at work? What is measured beside other processes is measured again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

DISTURBED_CORES = 0.3  # more than this kept busy by others is a disturbance
PAUSE_S = 0.5  # before another try; it doubles
LOOK_S = 0.003  # between two looks at whether threads sleep
LONGEST_SPIN_S = 1.0  # threads that still run then do so for ever


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


def runs(pid: int) -> bool:
    """Whether a thread of the process runs, or waits for a processor; False where the system does not say."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] == "R":
                    return True
    except OSError:  # ended meanwhile, or no such files here
        pass
    return False


def settle(pids: Iterable[int]) -> None:
    """Wait until all threads of the processes sleep.

    After their work they first wait busily for more, each library for a time of its own (on the machine where this was
    looked at OpenBLAS 103 ms, ONNX Runtime 40, PyTorch 8, JAX none), which whoever comes next would pay for.
    """
    pids, end = list(pids), time.perf_counter() + LONGEST_SPIN_S
    time.sleep(LOOK_S)
    while any(map(runs, pids)) and time.perf_counter() < end:
        time.sleep(LOOK_S)


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
