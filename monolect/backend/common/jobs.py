"""Work that threads do while the caller makes more of it.

What it is for: modules are compiled, outside the interpreter lock, while the next kernels are lowered.
What it is not: a pool that lives on. The threads end with the block, so a fork or the end of the process meets none.

Invariant: when the block is left, however that is, nothing of it runs any more.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

SWITCH_S = 1e-4  # what a thread that is back from the compiler waits for the interpreter; by default 50 times as long


class Jobs:
    """`function` of each item added, by `n_threads` threads, one of them the caller's, which helps in `results`.

    The first item starts the first thread: whether there will be a second takes long to know.
    """

    def __init__(self, function: Callable[[Any], Any], n_threads: int):
        self.function, self.n_beside = function, n_threads - 1
        self.todo: SimpleQueue[tuple[int, Any] | None] = SimpleQueue()  # None: a thread may go
        self.done: dict[int, Any] = {}
        self.errors: dict[int, BaseException] = {}
        self.threads: list[threading.Thread] = []
        self.interval_s = 0.0  # of the interpreter, before
        self.n = 0

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._next() is not None:  # what nobody began is not wanted any more
            pass
        for _ in self.threads:
            self.todo.put(None)
        for thread in self.threads:
            thread.join()
        if self.interval_s:
            sys.setswitchinterval(self.interval_s)
            self.interval_s = 0.0

    def add(self, item: Any) -> None:
        """One more job."""
        self.todo.put((self.n, item))
        self.n += 1
        if len(self.threads) < self.n_beside:
            thread = threading.Thread(target=self._work, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter is about to end: the caller does it all
                self.n_beside = 0
            else:
                self.threads.append(thread)
                if not self.interval_s:
                    self.interval_s = sys.getswitchinterval()
                    sys.setswitchinterval(min(SWITCH_S, self.interval_s))

    def results(self) -> list[Any]:
        """Those of all items, in their order. Raises the error of the first that failed."""
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
        except BaseException as error:  # it is raised where the results are asked for
            self.errors[i] = error

    def _next(self) -> tuple[int, Any] | None:
        try:
            return self.todo.get_nowait()
        except Empty:
            return None
