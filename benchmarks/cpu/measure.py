"""Rows: each library in its own process, asked in turn, with a limit to everything it does."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cpu import arrays
from benchmarks.cpu.case import Case
from benchmarks.cpu.machine import Limits
from benchmarks.cpu.peers import installed, speaks
from benchmarks.cpu.quiet import Patience, settle
from benchmarks.cpu.worker import THREADS

ROOT = Path(__file__).resolve().parents[2]
THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "THREADS", "CPU_COUNT")
START_LIMIT_S = 60.0
VISIT_S, VISIT_CALLS = 0.1, 30
PATIENCE_S = 15.0  # a row's


class Failed(Exception):
    """A library did not do what it was asked to; the text says what was expected and what was found."""


class Worker:
    """A library's process, started when it is first asked and again after it died or was stopped.

    It runs the sources under `root`, which may be those of another commit.
    """

    def __init__(self, library: str, random: int, seed: int, cache: str, root: Path = ROOT) -> None:
        self.library, self.selection, self.root = library, (str(random), str(seed)), root
        self.environment = os.environ | dict.fromkeys(THREAD_SETTINGS, str(THREADS))
        self.environment |= {"MONOLECT_CACHE": cache, "PYTHONPATH": str(root)}
        self.process: subprocess.Popen[bytes] | None = None
        self.log = tempfile.TemporaryFile()

    def _start(self) -> None:
        self.pipe, theirs = Pipe()
        command = [sys.executable, "-m", "benchmarks.cpu.worker", self.library, str(theirs.fileno()), *self.selection]
        self.process = subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        theirs.close()

    def ask(self, limit_s: float, *message: Any) -> Any:
        """The answer. Raises Failed with a reason, after `limit_s` with that."""
        if self.process is None:
            self._start()
            limit_s += START_LIMIT_S
        try:
            self.pipe.send(message)
            if not self.pipe.poll(limit_s):
                self.stop()
                raise Failed(f"{message[0]}: expected an answer in {limit_s:.0f} s, found none (stopped)")
            good, value = self.pipe.recv()
        except (EOFError, ConnectionError):
            code = self.process.wait()
            self.stop()
            found = f"the process ended with {code}{self._last()}"
            raise Failed(f"{message[0]}: expected an answer, found that {found}") from None
        if not good:
            raise Failed(f"{message[0]}: {value}")
        return value

    def _last(self) -> str:
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:200]}" if lines else ""

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.pipe.close()
            self.process = None

    def close(self) -> None:
        self.stop()
        self.log.close()


@dataclass
class Row:
    """What was measured of a case, in seconds. A library in neither `median` nor `failed` has no words for the case."""

    name: str
    family: str
    targets: list[list[Any]]  # ratio, libraries
    median: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, list[float]] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)  # cores kept busy by other processes, median of the rounds
    bound_s: float = 0.0
    profile: str = ""

    def best(self, over: tuple[str, ...] | list[str]) -> str | None:
        """The fastest of these libraries."""
        return min((lib for lib in over if lib in self.median), key=self.median.__getitem__, default=None)

    def ratio(self, library: str) -> float:
        """How many times as fast as `library` we are; 0 where we have no time."""
        return self.median[library] / self.median["monolect"] if "monolect" in self.median else 0.0

    def short_of(self) -> list[str]:
        """The targets that are missed, in words."""
        missed = []
        for wanted, over in self.targets:
            peer = self.best(over)
            if peer is not None and self.ratio(peer) < wanted:
                missed.append(f"{self.ratio(peer):.2f} of {peer} ({wanted})")
        return missed

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Bench:
    """Measures cases, one after the other, with the same processes."""

    def __init__(
        self, libraries: list[str], rounds: int, limit_s: float, limits: Limits, random: int, seed: int
    ) -> None:
        self.cache = tempfile.TemporaryDirectory(prefix="monolect-bench-")  # first calls compile
        self.workers = {lib: Worker(lib, random, seed, self.cache.name) for lib in libraries if installed(lib)}
        self.rounds, self.limit_s, self.limits, self.seed = rounds, limit_s, limits, seed

    def measure(self, case: Case, profile: bool = False) -> Row:
        """The row of a case; whatever goes wrong stands in it."""
        row, ready = self.prepared(case)
        self.take_rounds(row, ready)
        if profile and "monolect" in ready and row.short_of():
            row.profile = self.workers["monolect"].ask(self.limit_s, "profile")
        return row

    def take_rounds(self, row: Row, ready: list[str]) -> None:
        """Time each ready process once a round, in turn."""
        others: dict[str, list[float]] = {library: [] for library in ready}
        patience = Patience(PATIENCE_S)
        for _ in range(self.rounds):
            for library in list(ready):
                try:
                    seconds, cores = self._visit(library, patience)
                    row.rounds.setdefault(library, []).append(seconds)
                    others[library].append(cores)
                except Failed as reason:
                    row.failed[library] = str(reason)
                    ready.remove(library)
        row.median = {library: statistics.median(row.rounds[library]) for library in ready}
        row.others = {library: statistics.median(others[library]) for library in ready}

    def prepared(self, case: Case) -> tuple[Row, list[str]]:
        """The row, not yet timed, and the libraries whose result is right."""
        row = Row(case.name, case.family, [[t.ratio, list(t.over)] for t in case.targets])
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            try:
                inputs = case.inputs(np.random.default_rng(self.seed))
                expected = case.reference(inputs)
            except Exception as error:  # a row that cannot be checked is not measured; the others are
                row.failed["reference"] = f"{type(error).__name__}: {error}"
                return row, []
            row.bound_s = self.limits.bound_s(case.flops, case.unit, *case.bytes_moved(inputs, expected))
            arrays.save(folder, "input", inputs)
            arrays.save(folder, "expected", expected)
            del inputs, expected
            ready = []
            for library, worker in self.workers.items():
                if speaks(worker.library, case):
                    try:
                        row.first[library], row.error[library] = worker.ask(self.limit_s, "prepare", case.name, folder)
                        ready.append(library)
                    except Failed as reason:
                        row.failed[library] = str(reason)
        return row, ready

    def _visit(self, library: str, patience: Patience) -> tuple[float, float]:
        """(median of some calls, cores that others kept busy meanwhile) of the least disturbed of some tries."""

        def visit() -> tuple[list[float], float]:
            settle(w.process.pid for w in self.workers.values() if w.process is not None)
            return self.workers[library].ask(self.limit_s, "time", VISIT_S, VISIT_CALLS)

        times, cores = patience.least_disturbed(visit)
        return statistics.median(times), cores

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()
        self.cache.cleanup()
