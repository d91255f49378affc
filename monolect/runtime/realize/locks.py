"""Provide the lock around compiling, binding and launching, and around capturing steps, with a check for deadlocks.

A capture runs the user's function with its lock held. If that function waits for another thread, and that thread calls
a step, both would wait forever. The second thread detects this and raises.

Invariant: at most one thread holds a lock, also after an interrupt or a fork.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from monolect.base.errors import JitError

POLL_S = 0.01  # seconds between two inspections of the other thread's stack
MAX_POLLS = 1000  # consecutive inspections that find it waiting for a thread; after them it counts as a deadlock
_WAITING = frozenset(("threading", "queue", "concurrent", "multiprocessing", "selectors", "asyncio"))  # top packages


class CheckedLock:
    """A reentrant lock that is replaced in a forked child. Call `wait`, which detects deadlocks, before taking `lock`.

    Write `with running.lock`; this class is no context manager, because an interrupt between its `__enter__` and the
    block would leave the lock taken.
    """

    def __init__(self) -> None:
        self.renew()
        if hasattr(os, "register_at_fork"):
            # a fork waits until no thread compiles: the compiler's own locks would stay locked in the child
            os.register_at_fork(before=self.acquire, after_in_parent=self.release, after_in_child=self.renew)

    def renew(self) -> None:
        """Replace the lock by a free one: in a forked child the thread that held the old lock does not exist."""
        self.lock = threading.RLock()
        # (thread id, frame) of `call`, while a user's function runs with the lock held
        self.user: tuple[int, FrameType] | None = None

    def acquire(self) -> None:
        """Take the lock, in the parent before a fork."""
        self.lock.acquire()

    def release(self) -> None:
        """Release the lock, in the parent after a fork."""
        self.lock.release()

    def call(self, f: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call the user's function `f` in a thread that holds the lock, and return its result.

        Raises JitError if the outermost such call exceeds Python's recursion limit, with the line of `f` that recursed.
        """
        outer, self.user = self.user, (threading.get_ident(), sys._getframe())
        try:
            return f(*args, **kwargs)
        except RecursionError as e:
            if outer is not None:
                raise
            expected = f"a recursion that ends within {sys.getrecursionlimit()} calls of Python's"
            name, line = getattr(f, "__name__", repr(f)[:80]), _line_in(f, e.__traceback__)
            message = "a jitted function, or a @function, recurses without an end"
            raise JitError(message, expected=expected, found=name, line=line) from None
        finally:
            self.user = outer

    def wait(self) -> None:
        """Wait until no other thread runs a user's function with the lock held.

        Raises JitError if that function has waited MAX_POLLS * POLL_S seconds for a thread, perhaps for this one.
        """
        n_polls = 0
        while (user := self.user) is not None and user[0] != threading.get_ident():
            frames = [*_stack(user[0])]
            if user[1] not in frames:  # `call` was interrupted before it reset `user`
                return
            n_polls = n_polls + 1 if _waits_for_a_thread(frames) else 0
            if n_polls >= MAX_POLLS:
                expected = "a step that waits for no thread which runs another, while it is captured or traced"
                found = f"a thread that waited {POLL_S * MAX_POLLS:g} s in it"
                raise JitError("a step under capture waits for other threads", expected=expected, found=found)
            time.sleep(POLL_S)


def _stack(ident: int) -> Iterator[FrameType]:
    """Yield the frames of a thread, innermost first."""
    frame = sys._current_frames().get(ident)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _line_in(f: Callable[..., Any], trace: TracebackType | None) -> tuple[str, int] | None:
    """Return (file, line) of the first frame of `f` in a traceback; None if there is none."""
    while trace is not None and trace.tb_frame.f_code is not getattr(f, "__code__", None):
        trace = trace.tb_next
    return None if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def _waits_for_a_thread(frames: list[FrameType]) -> bool:
    """Return whether the innermost frames are in Python's modules for waiting (`_WAITING`), called by the user's
    code.
    """
    names = [frame.f_globals.get("__name__", "") for frame in frames]
    caller = next((name for name in names if name.partition(".")[0] not in _WAITING), "")
    return caller != names[0] and not caller.startswith("monolect.")


running = CheckedLock()  # held while compiling, binding and launching


__all__ = ["CheckedLock", "running"]
