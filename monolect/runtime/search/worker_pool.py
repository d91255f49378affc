"""Run worker processes: started once, one request at a time each, replaced after a crash or a hang.

What it is for: work that may end or block its process.
What it is not: a general pool. The requests are the methods of `worker.Worker`, and all workers serve one device.

A worker is a fresh interpreter: it does not run the user's main module, and has no locks or threads of this process. It
ends when its input ends, so it outlives this process by at most one request.
"""

from __future__ import annotations

import atexit
import os
import pickle
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from monolect.base.errors import DeviceError
from monolect.base.settings import TABLE, settings
from monolect.base.target import Target

START_S = 60.0  # seconds for an interpreter to start, also while the disk is busy

# Settings that are off in workers, whatever they are in this process.
_QUIET = {"DEBUG": "", "TRACE": "", "DUMP": "", "STOP_AFTER": "", "BEAM": "", "VERIFY": "", "CHECK_BOUNDS": ""}


class Failure(NamedTuple):
    """The reason why a request has no result: it "failed", or its worker "crashed" or "hung"."""

    kind: str
    text: str


class Worker:
    """One worker process. `ask` sends a request; `answer` reads its result when `is_ready`."""

    def __init__(self, device: str, target: Target):
        path = [os.path.abspath(p) for p in sys.path if p]  # without "", the current folder
        call = f"main({device!r}, {target.key!r})"
        code = f"import sys; sys.path[:] = {path!r}; from monolect.runtime.search.worker import main; {call}"
        shown = "actions" in settings.tracing
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if shown else subprocess.DEVNULL,
            env=_environment(target),
        )
        self.until = 0.0  # time.monotonic() after which the current request counts as hung
        self.ask("ready", (), START_S)

    def ask(self, method: str, arguments: tuple, limit_s: float) -> None:
        """Send a request with a limit in seconds. If the worker has died, `answer` returns a Failure."""
        self.until = time.monotonic() + limit_s
        try:
            assert self.process.stdin is not None
            pickle.dump((limit_s, method, arguments), self.process.stdin)
            self.process.stdin.flush()
        except OSError:
            pass

    def answer(self) -> Any:
        """Return the result of the current request, or a Failure. A worker that does not answer in time is killed."""
        if not self.is_ready(max(0.0, self.until - time.monotonic())):
            self.end()
            return Failure("hung", "no answer in time")
        try:
            assert self.process.stdout is not None
            kind, result = pickle.load(self.process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            return Failure("crashed", f"exit status {self.end()}")
        return result if kind == "ok" else Failure(kind, result)

    def is_ready(self, wait_s: float) -> bool:
        """Return whether an answer, or the end of the process, arrived within `wait_s` seconds."""
        return bool(ready([self], wait_s))

    @property
    def is_alive(self) -> bool:
        """Whether the process runs and its input is open."""
        return self.process.poll() is None and not self.process.stdin.closed  # type: ignore[union-attr]

    def end(self) -> int:
        """Kill the process; return its exit status, negative for a signal."""
        status = self.process.poll()
        self.process.kill()
        found = self.process.wait()
        self.abandon()
        return found if status is None else status

    def abandon(self) -> None:
        """Close this end of the pipes."""
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()  # type: ignore[union-attr]
            except OSError:
                pass  # buffered data of a dead worker cannot be flushed


def ready(workers: Sequence[Worker], wait_s: float) -> list[Worker]:
    """Return the workers that have data to read; wait up to `wait_s` seconds for the first one."""
    with selectors.DefaultSelector() as selector:
        for w in workers:
            selector.register(w.process.stdout, selectors.EVENT_READ, w)  # type: ignore[arg-type]
        return [key.data for key, _ in selector.select(wait_s)]


class WorkerPool:
    """A pool of `n` workers for one device. Use it from one thread at a time."""

    def __init__(self, device: str, target: Target, n: int):
        self.device, self.target = device, target
        self.workers: list[Worker | None] = [None] * n
        self.n_started = 0

    def worker(self, i: int) -> Worker:
        """Return worker number i, running. Raises DeviceError if it does not start."""
        if self.start(i):
            self._greet(i)
        w = self.workers[i]
        assert w is not None
        return w

    def start(self, i: int) -> bool:
        """Start worker number i and return True; return False if it runs already."""
        w = self.workers[i]
        if w is not None and w.is_alive:
            return False
        if w is not None:
            w.end()
        try:
            self.workers[i] = Worker(self.device, self.target)
        except (OSError, TypeError) as error:  # an embedded interpreter may have no executable
            raise DeviceError("no process to search in", expected="a Python interpreter", found=str(error)) from None
        self.n_started += 1
        return True

    def _greet(self, i: int) -> None:
        """Wait until a started worker answers. Raises DeviceError if it does not."""
        w = self.workers[i]
        found = w.answer() if w is not None else None
        if w is not None and isinstance(found, Failure):
            w.end()
            raise DeviceError("a worker process does not start", expected="an answer", found=found.text)

    def ask(self, method: str, *arguments: Any, limit_s: float) -> Any:
        """Send one request to the first worker; return its result or a Failure."""
        w = self.worker(0)
        w.ask(method, arguments, limit_s)
        return w.answer()

    def map(self, method: str, items: Sequence[Any], limit_s: float, step: Callable[[], None]) -> list[Any]:
        """Send a request for each item, to all workers in parallel; return results and Failures in the order of the
        items.
        """
        out: list[Any] = [None] * len(items)
        todo = list(reversed(range(len(items))))
        busy: dict[Worker, int] = {}
        for i in [i for i in range(min(len(self.workers), len(items))) if self.start(i)]:
            self._greet(i)
        while todo or busy:
            for i, w in enumerate(self.workers):
                if todo and w not in busy:
                    w = self.worker(i)
                    busy[w] = todo.pop()
                    w.ask(method, (items[busy[w]],), limit_s)
            wait_s = min(w.until for w in busy) - time.monotonic()
            done = ready(list(busy), max(0.0, wait_s)) or [w for w in busy if w.until <= time.monotonic()]
            for w in done:
                out[busy.pop(w)] = w.answer()
                step()
        return out

    def end(self, i: int) -> None:
        """Kill worker number i; `worker` starts another one."""
        w, self.workers[i] = self.workers[i], None
        if w is not None:
            w.end()

    def close(self) -> None:
        """Kill all workers."""
        for i in range(len(self.workers)):
            self.end(i)

    def forget(self) -> None:
        """Drop the workers in a forked child: they belong to the parent."""
        for w in self.workers:
            if w is not None:
                w.abandon()
                w.process.returncode = 0  # it is not a child of this process
        self.workers = [None] * len(self.workers)


def _environment(target: Target) -> dict[str, str]:
    """Return the environment of a worker: this process's settings, without those that print or search."""
    values = {row.name: str(getattr(settings, row.name)) for row in TABLE}
    values |= {row.name: "" for row in TABLE if row.kind == "flag" and not getattr(settings, row.name)}
    return {**os.environ, **values, **_QUIET, "THREADS": str(target.n_threads)}


_pools: list[WorkerPool] = []  # at most one


def shared_pool(device: str, target: Target, n: int) -> WorkerPool:
    """Return the process's pool for a device. A pool for another device is closed."""
    if not _pools or (_pools[0].device, _pools[0].target, len(_pools[0].workers)) != (device, target, n):
        close_shared_pool()
        _pools.append(WorkerPool(device, target, n))
    return _pools[0]


def close_shared_pool() -> None:
    """Kill the workers of the shared pool, if there is one."""
    while _pools:
        _pools.pop().close()


def _forget() -> None:
    """Drop the shared pool in a forked child."""
    while _pools:
        _pools.pop().forget()


atexit.register(close_shared_pool)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


__all__ = ["Failure", "Worker", "WorkerPool", "close_shared_pool", "ready", "shared_pool"]
