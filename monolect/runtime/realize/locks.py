"""Threads take turns: the lock around compiling, binding and launching, and that around capturing steps.

A capture runs the user's function with its lock held. Where that function waits for another thread, and that thread
calls a step, both would wait for ever: the second looks what the first does, and raises.

Invariant: who holds a lock has it alone, whatever thread was interrupted or forked.
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

LOOK_S = 0.01  # between two looks at what the other thread does
MOST_LOOKS = 1000  # in a row which all found that it waits: it will not stop
_WAITING = frozenset(("threading", "queue", "concurrent", "multiprocessing", "selectors", "asyncio"))


class Turns:
    """`lock` may be taken again by the thread that has it, and is new in a forked child; `wait` comes before taking it.

    `with turns.lock`, and never a method of this class: an interrupt between the two would leave it locked.
    """

    def __init__(self) -> None:
        self.renew()
        if hasattr(os, "register_at_fork"):
            # a fork waits until nobody compiles: the compiler's own locks would stay locked in the child
            os.register_at_fork(before=self.acquire, after_in_parent=self.release, after_in_child=self.renew)

    def renew(self) -> None:
        """A lock that nobody holds: in a forked child, the thread that held the old one does not exist."""
        self.lock = threading.RLock()
        # who runs a function of the user's with the lock held, and where
        self.user: tuple[int, FrameType] | None = None

    def acquire(self) -> None:
        """Before a fork, in the parent."""
        self.lock.acquire()

    def release(self) -> None:
        """After a fork, in the parent."""
        self.lock.release()

    def call(self, f: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        """`f(*args, **kwargs)`, a function of the user's, by a thread that holds the lock.

        Raises JitError where it recurses beyond Python's limit: at its line that does, once nothing else is under way.
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
        """Until no other thread runs the user's function. Raises JitError when that waits, maybe for this thread."""
        n_looks = 0
        while (user := self.user) is not None and user[0] != threading.get_ident():
            frames = [*_stack(user[0])]
            if user[1] not in frames:  # interrupted before it could say so
                return
            n_looks = n_looks + 1 if _waits_for_a_thread(frames) else 0
            if n_looks >= MOST_LOOKS:
                expected = "a step that waits for no thread which runs another, while it is captured or traced"
                found = f"a thread that waited {LOOK_S * MOST_LOOKS:g} s in it"
                raise JitError("a step is captured that waits for other threads", expected=expected, found=found)
            time.sleep(LOOK_S)


def _stack(ident: int) -> Iterator[FrameType]:
    frame = sys._current_frames().get(ident)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _line_in(f: Callable[..., Any], trace: TracebackType | None) -> tuple[str, int] | None:
    """The first line of `f` in a traceback."""
    while trace is not None and trace.tb_frame.f_code is not getattr(f, "__code__", None):
        trace = trace.tb_next
    return None if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def _waits_for_a_thread(frames: list[FrameType]) -> bool:
    """Whether these are in Python's own means to wait for threads, called by the user's code."""
    names = [frame.f_globals.get("__name__", "") for frame in frames]
    caller = next((name for name in names if name.partition(".")[0] not in _WAITING), "")
    return caller != names[0] and not caller.startswith("monolect.")


__all__ = ["Turns"]
