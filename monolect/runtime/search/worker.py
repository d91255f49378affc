"""A process that builds and times candidates of a search, so that one that crashes or hangs takes nothing else along.

`main` answers requests until its input ends: (seconds it may take, method, arguments) to ("ok", result) or ("failed",
text), pickled. A request that takes much longer ends the process, even inside a kernel: nobody may be left to kill it.

It compiles from optimized kernels on; plans and actions stay in the process that asks.
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

ORPHANED_S = 10.0  # after its limit a request is given up by whoever asked
HOPELESS, SLOW = 10.0, 3.0  # times the champion: not worth a second run, a third run
BEHIND = 1.2  # times the champion: cannot win any more
NEAR, RELAX = 1.03, 1.02  # the champion is as fast as it was; what it was is forgotten that fast
FEWEST, MOST = 7, 50  # rounds
ENOUGH_NS, MUCH_NS = 60_000_000, 1_000_000_000  # of running; where that is few rounds
LONG = 6  # times as many and as long for what decides
NEVER_NS = 1 << 60


class Worker:
    """What the requests call."""

    def __init__(self, device: str, target_key: str):
        self.device = Device[device]
        if self.device.target.key != target_key:
            raise RuntimeError(f"another target: {self.device.target.key} instead of {target_key}")
        self.scratch: Scratch | None = None
        self.champion: Any = None
        self.known_ns: float = NEVER_NS  # the champion's time of late

    def ready(self) -> bool:
        """The first request: it waits for the start."""
        return True

    def build(self, kernel: str) -> bytes:
        """Compile the text of an optimized kernel."""
        linear = lower_kernel(parse(kernel), self.device.target, first="device_axes")
        return bytes(self.device.dumps(linear))

    def open(self, kernel: str, built: bytes) -> None:
        """Make buffers for `kernel`; what `built` computes is right from now on."""
        self.close()
        scratch = Scratch(parse(kernel), self.device)
        scratch.run_checked(scratch.commands(self.device.loads(built)))
        self.scratch = scratch

    def close(self) -> None:
        """Free the buffers."""
        self.scratch = self.champion = None

    def crown(self, built: bytes) -> None:
        """Candidates are compared with this program from now on."""
        self.champion, self.known_ns = self._scratch().commands(self.device.loads(built)), NEVER_NS

    def time(self, built: bytes) -> tuple[float, str]:
        """(time by that of the champion, what is wrong with the result); one run of what is far slower."""
        scratch = self._scratch()
        commands = scratch.commands(self.device.loads(built))
        first, wrong = scratch.run_checked(commands)
        if wrong:
            return 0.0, wrong
        known = scratch.run(self.champion)
        if first > HOPELESS * known or (first > SLOW * known and scratch.run(commands) > SLOW * known):
            return first / known, ""
        return self._turns(commands, 1), ""

    def against(self, built: bytes) -> float:
        """As `time`, for what decides: many more rounds, and no look at the result."""
        return self._turns(self._scratch().commands(self.device.loads(built)), LONG)

    def _turns(self, commands: Any, factor: int) -> float:
        """The time of a program by the champion's: the shortest of runs in turns, in reverse order every other time.

        Whatever disturbs a run adds to its time, so the shortest says most, once the champion is as fast as it was.
        """
        scratch = self._scratch()
        mine = champion = NEVER_NS
        n = spent_ns = 0
        while n < MOST * factor and (n < FEWEST * factor or spent_ns < ENOUGH_NS * factor):
            if n >= FEWEST and spent_ns > MUCH_NS * factor:
                break
            for program in (commands, self.champion) if n % 2 else (self.champion, commands):
                ns = scratch.run(program)
                spent_ns += ns
                mine, champion = (min(mine, ns), champion) if program is commands else (mine, min(champion, ns))
            n += 1
            is_calm = champion <= NEAR * self.known_ns
            if n >= FEWEST * factor and is_calm and (factor == 1 or mine > BEHIND * champion):
                break
        self.known_ns = min(champion, self.known_ns * RELAX)
        return mine / champion

    def _scratch(self) -> Scratch:
        if self.scratch is None:
            raise RuntimeError("a request that needs open before it")
        return self.scratch


def main(device: str, target_key: str) -> None:
    """Answer requests on standard input; see the module docstring."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: whoever asked decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not print into the answers
    _no_core_dumps()
    _first_to_go()
    nowhere = open(os.devnull, "w")  # noqa: SIM115
    worker: Worker | None = None
    while True:
        try:
            limit_s, method, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        faulthandler.dump_traceback_later(limit_s + ORPHANED_S, exit=True, file=nowhere)
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
    try:
        import resource
    except ImportError:  # not on every system
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _first_to_go() -> None:
    """Where memory ends, Linux shall end this process, and not the one that asks."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:  # not on every system
        pass
