"""Run jobs in threads while the caller adds more jobs.

What it is for: modules are compiled, outside of the interpreter lock, while the next kernels are lowered.
What it is not: a lasting thread pool. The threads end with the `with` block, so none exists at a fork or at exit.

Invariant: after the block is left, also by an exception, none of its jobs runs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

SWITCH_S = 1e-4  # s; switch interval of the interpreter during jobs, so that a finished compilation waits at most this


class Jobs:
    """Call `function` for each added item in `n_threads` threads; the caller's thread is one, and works in `results`.

    The first item already starts a thread, since it may take long until a second item is added.
    """

    def __init__(self, function: Callable[[Any], Any], n_threads: int):
        self.function, self.n_workers = function, n_threads - 1
        self.todo: SimpleQueue[tuple[int, Any] | None] = SimpleQueue()  # (number, item); None ends one thread
        self.done: dict[int, Any] = {}
        self.errors: dict[int, BaseException] = {}
        self.threads: list[threading.Thread] = []
        self.saved_interval_s = 0.0  # s; the interpreter's switch interval to restore, 0 if it was not changed
        self.n = 0  # items added

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._next() is not None:  # jobs that no thread began are dropped
            pass
        for _ in self.threads:
            self.todo.put(None)
        for thread in self.threads:
            thread.join()
        if self.saved_interval_s:
            sys.setswitchinterval(self.saved_interval_s)
            self.saved_interval_s = 0.0

    def add(self, item: Any) -> None:
        """Add the job `function(item)`; start one more thread if fewer than n_threads - 1 run."""
        self.todo.put((self.n, item))
        self.n += 1
        if len(self.threads) < self.n_workers:
            thread = threading.Thread(target=self._work, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system refuses threads, or the interpreter is exiting: start no more
                self.n_workers = 0
            else:
                self.threads.append(thread)
                if not self.saved_interval_s:
                    self.saved_interval_s = sys.getswitchinterval()
                    sys.setswitchinterval(min(SWITCH_S, self.saved_interval_s))

    def results(self) -> list[Any]:
        """Run the jobs left, wait for all, and return the results in the order of the items.

        Raises the error of the first item that failed.
        """
        while not self.errors and (job := self._next()) is not None:
            self._do(*job)
        self.__exit__(None, None, None)
        for i in sorted(self.errors):
            raise self.errors[i]
        return [self.done[i] for i in range(self.n)]

    def _work(self) -> None:
        while (job := self.todo.get()) is not None:
            if not self.errors:
                self._do(*job)

    def _do(self, i: int, item: Any) -> None:
        try:
            self.done[i] = self.function(item)
        except BaseException as error:  # `results` raises it
            self.errors[i] = error

    def _next(self) -> tuple[int, Any] | None:
        try:
            return self.todo.get_nowait()
        except Empty:
            return None


__all__ = ["Jobs"]
