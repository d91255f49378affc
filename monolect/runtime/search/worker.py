"""Build and time candidates of a search in a separate process, which may crash or hang without harm to the user's.

`main` answers requests until its input ends. A request is (seconds it may take, method, arguments), the answer ("ok",
result) or ("failed", text), both pickled. A request that takes much longer ends this process, even inside a kernel, as
the parent may no longer exist.

The worker compiles optimized kernels; plans and actions stay in the parent.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
from typing import Any

from monolect.backend.registry import Device
from monolect.base.errors import MonolectError
from monolect.ir.text import parse
from monolect.pipeline import lower_kernel
from monolect.runtime.search.bench_buffers import Scratch

GRACE_S = 10.0  # seconds after a request's limit; then this process exits by itself
HOPELESS_RATIO = 10.0  # candidate / champion time; above it one run decides
SLOW_RATIO = 3.0  # candidate / champion time; above it two runs decide
BEATEN_RATIO = 1.2  # candidate / champion time; above it a long comparison ends after the least number of rounds
CALM_RATIO = 1.03  # champion's time / its recent time; below it the machine is undisturbed and few rounds suffice
DRIFT = 1.02  # factor by which the champion's recent time may rise with each comparison
MIN_ROUNDS, MAX_ROUNDS = 7, 50  # rounds of a comparison, each with one run of both programs
MIN_NS = 60_000_000  # run time of a comparison, below which further rounds follow up to MAX_ROUNDS
MAX_NS = 1_000_000_000  # run time of a comparison, above which it ends after MIN_ROUNDS
LONG_FACTOR = 6  # factor for rounds and run times in `against`, the deciding comparison
NEVER_NS = 1 << 60  # a time that is longer than any run


class Worker:
    """The state of a worker process, and the methods that requests call."""

    def __init__(self, device: str, target_key: str):
        self.device = Device[device]
        if self.device.target.key != target_key:
            raise RuntimeError(f"another target: {self.device.target.key} instead of {target_key}")
        self.scratch: Scratch | None = None
        self.champion: Any = None
        self.known_ns: float = NEVER_NS  # the champion's recent best time

    def ready(self) -> bool:
        """Return True. It is the first request, which waits until the process has started."""
        return True

    def build(self, kernel: str) -> bytes:
        """Compile the text of an optimized kernel; return the program as bytes."""
        linear = lower_kernel(parse(kernel), self.device.target, first="device_axes")
        return bytes(self.device.dumps(linear))

    def open(self, kernel: str, built: bytes) -> None:
        """Allocate buffers for `kernel`. The results of `built` are the expected ones from now on."""
        self.close()
        scratch = Scratch(parse(kernel), self.device)
        scratch.run_checked(scratch.commands(self.device.loads(built)))
        self.scratch = scratch

    def close(self) -> None:
        """Free the buffers."""
        self.scratch = self.champion = None

    def set_champion(self, built: bytes) -> None:
        """Set the program that candidates are compared with."""
        self.champion, self.known_ns = self._scratch().commands(self.device.loads(built)), NEVER_NS

    def time(self, built: bytes) -> tuple[float, str]:
        """Return (time / champion's time, ""), or (0, text) for a wrong result. A far slower candidate runs once or
        twice.
        """
        scratch = self._scratch()
        commands = scratch.commands(self.device.loads(built))
        first, wrong = scratch.run_checked(commands)
        if wrong:
            return 0.0, wrong
        known = scratch.run(self.champion)
        if first > HOPELESS_RATIO * known or (
            first > SLOW_RATIO * known and scratch.run(commands) > SLOW_RATIO * known
        ):
            return first / known, ""
        return self._interleaved_ratio(commands, 1), ""

    def against(self, built: bytes) -> float:
        """Return the time of a program / the champion's time by a long comparison, without a check of the result."""
        return self._interleaved_ratio(self._scratch().commands(self.device.loads(built)), LONG_FACTOR)

    def _interleaved_ratio(self, commands: Any, factor: int) -> float:
        """Return the time of a program divided by the champion's: the shortest of interleaved runs of both, whose order
        alternates.

        Disturbances only add to a run's time, so the shortest run is the best estimate, once the champion is as fast as
        before. `factor` multiplies rounds and run time.
        """
        scratch = self._scratch()
        mine = champion = NEVER_NS
        n = spent_ns = 0
        while n < MAX_ROUNDS * factor and (n < MIN_ROUNDS * factor or spent_ns < MIN_NS * factor):
            if n >= MIN_ROUNDS and spent_ns > MAX_NS * factor:
                break
            for program in (commands, self.champion) if n % 2 else (self.champion, commands):
                ns = scratch.run(program)
                spent_ns += ns
                mine, champion = (min(mine, ns), champion) if program is commands else (mine, min(champion, ns))
            n += 1
            is_calm = champion <= CALM_RATIO * self.known_ns
            if n >= MIN_ROUNDS * factor and is_calm and (factor == 1 or mine > BEATEN_RATIO * champion):
                break
        self.known_ns = min(champion, self.known_ns * DRIFT)
        return mine / champion

    def _scratch(self) -> Scratch:
        """Return the buffers that `open` allocated. Raises RuntimeError before `open`."""
        if self.scratch is None:
            raise RuntimeError("a request that needs open before it")
        return self.scratch


def main(device: str, target_key: str) -> None:
    """Answer requests on standard input; see the module docstring."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole process group: the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints go to stderr, as stdout carries the answers
    _no_core_dumps()
    _killed_first_on_oom()
    nowhere = open(os.devnull, "w")  # noqa: SIM115
    worker: Worker | None = None
    while True:
        try:
            limit_s, method, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=nowhere)
        try:
            worker = worker or Worker(device, target_key)
            answer: tuple[str, Any] = ("ok", getattr(worker, method)(*arguments))
        except MonolectError as error:
            answer = ("failed", f"{type(error).__name__}: {error.describe()}")
        except Exception as error:
            answer = ("failed", f"{type(error).__name__}: {error}")
        faulthandler.cancel_dump_traceback_later()
        try:
            pickle.dump(answer, answers)
            answers.flush()
        except BrokenPipeError:
            return


def _no_core_dumps() -> None:
    """Disable core dumps of this process, if the system has resource limits."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _killed_first_on_oom() -> None:
    """Make Linux kill this process first when memory runs out, rather than the parent."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:  # not on Linux
        pass


__all__ = ["Worker", "main"]
