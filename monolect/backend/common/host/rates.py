"""Measure the rates of this machine that no file tells: the clock of a core and the bandwidth of memory.

What it is for: predicted times in `monolect explain --why`. What it is not: an input of any choice, so that plans are
equal in all processes.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from monolect.backend.common.host.elf import load_object
from monolect.backend.common.llvm.compile import Compiler
from monolect.base.numpy import np
from monolect.base.target import Target

_COPY_BYTES: Final = 64 << 20  # bytes that each thread copies; with the copy they exceed most caches
_ROUNDS: Final = 3  # timed runs; the fastest counts, since the first run also maps pages


_CHAIN = """
define i64 @chain(i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %x = phi i64 [%n, %entry], [%z, %loop]
  %y = mul i64 %x, %x
  %z = add i64 %y, 1
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret i64 %z
}
"""
_CHAIN_CYCLES: Final = 4  # cycles of a step of the chain: 3 of a multiplication and 1 of an addition, on x86 and Arm
_CHAIN_STEPS: Final = 1 << 20  # steps; about a millisecond


def _fastest(run: Callable[[], object]) -> float:
    """Return the seconds of the fastest of several calls of `run`."""
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


@cache
def clock_hz() -> float:
    """Return the clock of a core in Hz, from the time of a chain of multiplications that wait for each other."""
    image = load_object(Compiler().compile(_CHAIN))
    chain = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(image.address("chain"))
    return _CHAIN_STEPS * _CHAIN_CYCLES / _fastest(lambda: chain(_CHAIN_STEPS))


@cache
def dram_bytes_per_second(n_threads: int) -> float:
    """Return the bytes a second that `n_threads` threads read and write together while they copy arrays."""
    pairs = [(np.ones(_COPY_BYTES, np.uint8), np.empty(_COPY_BYTES, np.uint8)) for _ in range(n_threads)]
    jobs: list[Callable[[], None]] = [lambda a=a, b=b: np.copyto(b, a) for a, b in pairs]  # type: ignore[misc]
    with ThreadPoolExecutor(n_threads) as pool:
        seconds = _fastest(lambda: [done.result() for done in [pool.submit(job) for job in jobs]])
    return 2 * _COPY_BYTES * n_threads / seconds


def with_rates(target: Target) -> Target:
    """Return the target of a device of this machine's processor with the measured rates."""
    return target._replace(clock_hz=clock_hz(), dram_bytes_per_second=dram_bytes_per_second(target.n_threads))


__all__ = ["clock_hz", "dram_bytes_per_second", "with_rates"]
