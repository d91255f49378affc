"""Threads take turns: the lock around compiling, binding and launching, and that around capturing steps.

A capture runs the user's function with its lock held. Where that function waits for another thread, and that thread
calls a step, both would wait for ever: the second looks what the first does, and raises.

Invariant: who holds a lock has it alone, whatever thread was interrupted or forked.
"""

from __future__ import annotations

import os
import sys
import threading

from monolect.base.errors import JitError

LOOK_S = 0.5  # between two looks at what the other thread does
MOST_LOOKS = 20  # which all found that it waits: it will not stop
_WAITING = frozenset(("threading", "queue", "concurrent", "multiprocessing", "selectors", "asyncio"))


class Turns:
    """A lock that a thread may take again, new in a forked child; `with` it, or its `lock` where microseconds count."""

    def __init__(self) -> None:
        self.renew()
        if hasattr(os, "register_at_fork"):
            # a fork waits until nobody compiles: the compiler's own locks would stay locked in the child
            os.register_at_fork(before=self.acquire, after_in_parent=self.release, after_in_child=self.renew)

    def renew(self) -> None:
        """A lock that nobody holds: in a forked child, the thread that held the old one does not exist."""
        self.lock = threading.RLock()
        self.depth = self.holder = 0

    def acquire(self) -> None:
        """Before a fork, in the parent."""
        self.lock.acquire()

    def release(self) -> None:
        """After a fork, in the parent."""
        self.lock.release()

    def __enter__(self) -> None:
        if not self.lock.acquire(blocking=False):
            self._wait()
        self.depth += 1
        self.holder = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if not self.depth:
            self.holder = 0
        self.lock.release()

    def _wait(self) -> None:
        """Take the lock when it is free. Raises JitError when its holder waits for a thread, maybe for this one."""
        n_looks = 0
        while not self.lock.acquire(timeout=LOOK_S):
            n_looks = n_looks + 1 if _waits_for_a_thread(self.holder) else 0
            if n_looks >= MOST_LOOKS:
                expected = "a step that waits for no thread which runs another, while it is captured or traced"
                found = f"a thread that waited {LOOK_S * MOST_LOOKS:g} s in it"
                raise JitError("a step is captured that waits for other threads", expected=expected, found=found)


def _waits_for_a_thread(ident: int) -> bool:
    """Whether that thread stands in Python's own means to wait for threads, called by the user's code."""
    frame = first = sys._current_frames().get(ident)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _WAITING:
        frame = frame.f_back
    return frame is not None and frame is not first and not frame.f_globals.get("__name__", "").startswith("monolect.")


__all__ = ["Turns"]
