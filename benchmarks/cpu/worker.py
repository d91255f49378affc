"""A library's process: it prepares, checks and times one case at a time, as its parent says over a pipe.

    python -m benchmarks.cpu.worker LIBRARY DESCRIPTOR RANDOM SEED

Messages are tuples: ("prepare", case name, folder) -> (seconds of the first call, largest error); ("time", seconds,
most calls) -> (seconds of each call, cores that other processes kept busy meanwhile); ("profile",) -> text. An answer
is (True, value) or (False, reason).
"""

from __future__ import annotations

import gc
import os
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.cpu import arrays
from benchmarks.cpu.case import Case, listed
from benchmarks.cpu.families import cases
from benchmarks.cpu.peers import PEERS, Call, Monolect, Peer
from benchmarks.cpu.quiet import watched

THREADS = 2


class Mismatch(Exception):
    """A result that is not the expected one."""


def check(got: list[np.ndarray], want: list[np.ndarray], tolerance: float) -> float:
    """The largest error as a share of the largest expected value. Raises Mismatch beyond `tolerance`."""
    if [g.shape for g in got] != [w.shape for w in want]:
        raise Mismatch(f"expected shapes {[w.shape for w in want]}, found {[g.shape for g in got]}")
    errors = [0.0]
    for g, w in zip(got, want, strict=True):
        error = np.abs(g.astype(w.dtype, copy=False) - w)
        worst = int(error.argmax())
        share = float(error.flat[worst] / (np.abs(w).max() or 1))
        if not share <= tolerance:
            raise Mismatch(f"expected {w.flat[worst]:.6g} at element {worst} of {w.size}, found {g.flat[worst]:.6g}")
        errors.append(share)
    return max(errors)


class Session:
    """One library with the case it holds."""

    def __init__(self, library: str, random: int, seed: int) -> None:
        self.peer: Peer = PEERS[library](library)
        self.cases: dict[str, Case] = cases(random, seed)
        self.call: Call | None = None

    def prepare(self, name: str, folder: str) -> tuple[float, float]:
        self.call = None
        gc.collect()
        case = self.cases[name]
        start = time.perf_counter()
        call = self.peer.prepare(case, arrays.load(folder, "input"))
        results = [call()]
        seconds = time.perf_counter() - start
        results += [call() for _ in range(case.steps - 1)]
        got = [self.peer.array(r) for result in results for r in listed(result)]
        error = check(got, arrays.load(folder, "expected"), case.tolerance)
        call()  # what a second call does once, and the pages it takes first, are no part of a visit
        self.call = call
        return seconds, error

    def time(self, seconds: float, most: int) -> tuple[list[float], float]:
        """Times of calls, after one that warms up, until `seconds` have passed or there are `most`.

        A call that takes longer than `seconds` is its own warm-up.
        """
        call, clock = self.call, time.perf_counter
        assert call is not None

        def calls() -> list[float]:
            start = clock()
            call()
            times = [clock() - start]
            if times[0] > seconds:
                return times
            times.clear()
            while not times or (clock() - start < seconds and len(times) < most):
                before = clock()
                call()
                times.append(clock() - before)
            return times

        gc.collect()
        return watched(calls)

    def profile(self) -> str:
        """What ran in one call; only our own library can say."""
        assert self.call is not None and isinstance(self.peer, Monolect)
        return self.peer.profile(self.call)


def serve(connection: Connection, session: Session) -> None:
    """Answer until the parent hangs up."""
    while True:
        try:
            message: tuple[Any, ...] = connection.recv()
        except EOFError:
            return
        try:
            answer = (True, getattr(session, message[0])(*message[1:]))
        except Exception as error:  # whatever a library does wrong is a row of the table
            answer = (False, f"{type(error).__name__}: {error}")
        connection.send(answer)


if __name__ == "__main__":
    library, descriptor, random, seed = sys.argv[1], *map(int, sys.argv[2:5])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    serve(Connection(descriptor), Session(library, random, seed))
