"""Worker processes: started once, asked one thing at a time each, replaced when they crash or hang.

What it is for: work that may end or block its process. What it is not: a general pool; the requests are the methods of
`worker.Worker`, and all workers serve one device.

A worker is a fresh interpreter: nothing of the user's main module runs in it, and no lock or thread of this process
exists there. It ends when its input does, so it outlives this process for as long as one request may take.
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

START_S = 60.0  # an interpreter that starts while the disk is busy

# what a worker does not do, whatever is set here
_QUIET = {"DEBUG": "", "TRACE": "", "DUMP": "", "STOP_AFTER": "", "BEAM": "", "VERIFY": "", "CHECK_BOUNDS": ""}


class Failure(NamedTuple):
    """Why a request has no result: it "failed", or its worker "crashed" or "hung"."""

    kind: str
    text: str


class Worker:
    """One process. `ask` sends a request, `answer` reads its result when `is_ready`."""

    def __init__(self, device: str, target: Target):
        path = [os.path.abspath(p) for p in sys.path if p]  # no entry for the folder it happens to be in
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
        self.until = 0.0  # when the request under way is given up
        self.ask("ready", (), START_S)

    def ask(self, method: str, arguments: tuple, limit_s: float) -> None:
        """Send a request. A worker that died shows when its answer is read."""
        self.until = time.monotonic() + limit_s
        try:
            assert self.process.stdin is not None
            pickle.dump((limit_s, method, arguments), self.process.stdin)
            self.process.stdin.flush()
        except OSError:
            pass

    def answer(self) -> Any:
        """The result of the request under way, or a Failure; without one in time the process is ended."""
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
        """Whether an answer, or the end of the process, came within that time."""
        return bool(ready([self], wait_s))

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None and not self.process.stdin.closed  # type: ignore[union-attr]

    def end(self) -> int:
        """End the process; its exit status, negative for a signal."""
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
                pass  # what was not sent to a dead worker


def ready(workers: Sequence[Worker], wait_s: float) -> list[Worker]:
    """Those that have something to read, after waiting for the first."""
    with selectors.DefaultSelector() as selector:
        for w in workers:
            selector.register(w.process.stdout, selectors.EVENT_READ, w)  # type: ignore[arg-type]
        return [key.data for key, _ in selector.select(wait_s)]


class Crew:
    """`n` workers for one device. Use it from one thread at a time."""

    def __init__(self, device: str, target: Target, n: int):
        self.device, self.target = device, target
        self.workers: list[Worker | None] = [None] * n
        self.n_started = 0

    def worker(self, i: int) -> Worker:
        """Worker number i, running. Raises DeviceError when it does not start."""
        if self.start(i):
            self._greet(i)
        w = self.workers[i]
        assert w is not None
        return w

    def start(self, i: int) -> bool:
        """Start worker number i unless it runs."""
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
        """Wait for a worker that was started."""
        w = self.workers[i]
        found = w.answer() if w is not None else None
        if w is not None and isinstance(found, Failure):
            w.end()
            raise DeviceError("a worker process does not start", expected="an answer", found=found.text)

    def ask(self, method: str, *arguments: Any, limit_s: float) -> Any:
        """One request to the first worker; its result, or a Failure."""
        w = self.worker(0)
        w.ask(method, arguments, limit_s)
        return w.answer()

    def map(self, method: str, items: Sequence[Any], limit_s: float, step: Callable[[], None]) -> list[Any]:
        """A request for each item, on all workers at once; results and Failures in the order of the items."""
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
        """End worker number i; another one starts when it is asked for."""
        w, self.workers[i] = self.workers[i], None
        if w is not None:
            w.end()

    def close(self) -> None:
        """End all workers."""
        for i in range(len(self.workers)):
            self.end(i)

    def forget(self) -> None:
        """In a forked child: the workers belong to the parent."""
        for w in self.workers:
            if w is not None:
                w.abandon()
                w.process.returncode = 0  # it is nobody's child here
        self.workers = [None] * len(self.workers)


def _environment(target: Target) -> dict[str, str]:
    values = {row.name: str(getattr(settings, row.name)) for row in TABLE}
    values |= {row.name: "" for row in TABLE if row.kind == "flag" and not getattr(settings, row.name)}
    return {**os.environ, **values, **_QUIET, "THREADS": str(target.n_threads)}


_crews: list[Crew] = []  # at most one


def crew(device: str, target: Target, n: int) -> Crew:
    """The process' crew for a device; one for another device is dismissed."""
    if not _crews or (_crews[0].device, _crews[0].target, len(_crews[0].workers)) != (device, target, n):
        dismiss()
        _crews.append(Crew(device, target, n))
    return _crews[0]


def dismiss() -> None:
    """End the workers, if there are any."""
    while _crews:
        _crews.pop().close()


def _forget() -> None:
    while _crews:
        _crews.pop().forget()


atexit.register(dismiss)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
