"""Detect sources of nondeterminism that a capture cannot replay: random numbers of Python and NumPy, clocks, OS
entropy.

What it is for: a replay would repeat the values of the capture. `capture/environment/dependencies.py` finds generators
that a function names, and a capture compares their states before and after the run. If code names a clock or a source
of entropy, a capture watches for calls of it.
What it is not: it does not follow code of other libraries. Random numbers of Tensors are state, and are replayed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

MODULES = frozenset(("random", "numpy", "numpy.random"))
_GENERATOR_MODULES = ("random", "numpy.random.mtrand", "numpy.random._generator")

_CLOCKS = "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns thread_time"
_CLOCK_FUNCTIONS = frozenset(f for name in _CLOCKS.split() if (f := getattr(time, name, None)) is not None)
_DATE_METHODS = frozenset(("now", "utcnow", "today"))
_ENTROPY_FUNCTIONS = frozenset(f for name in ("urandom", "getrandom") if (f := getattr(os, name, None)) is not None)
_ENTROPY_NAMES = (
    "urandom default_rng SystemRandom choice randbelow randbits token_bytes token_hex token_urlsafe uuid1 uuid4"
)
# names in code that may read a clock or entropy
NAMES = frozenset((*_CLOCKS.split(), *_DATE_METHODS, *_ENTROPY_NAMES.split()))


def is_generator(x: Any) -> bool:
    """Whether `x` is a random generator of Python or NumPy, such as `random.Random`."""
    return any(kind.__module__ in _GENERATOR_MODULES for kind in type(x).__mro__)


def generator_of(module: str, attributes: Collection[str]) -> Any:
    """Return the global random generator behind the functions of the module named `module`, or None if the code uses no
    such function.

    `attributes`: attribute names in the code, which tell whether the code uses such functions.
    """
    if module == "random":
        return sys.modules["random"]._inst
    if not (module == "numpy.random" or "random" in attributes):  # importing numpy.random takes long
        return None
    return import_module("numpy.random").mtrand._rand


def generator_state(generator: Any) -> Any:
    """Return the internal state of `generator`; the state differs once the generator has drawn a number."""
    if hasattr(generator, "getstate"):
        return generator.getstate()
    bits = getattr(generator, "bit_generator", None)
    state = generator.get_state() if bits is None else bits.state
    return import_module("pickle").dumps(state)  # bytes compare at once, arrays do not


def is_nondeterministic(f: Any) -> bool:
    """Whether `f`, a builtin function or method, reads a clock or the operating system's source of random bits."""
    date = getattr(sys.modules.get("datetime"), "date", ())  # () if nothing imported datetime
    of_dates = f.__name__ in _DATE_METHODS and isinstance(f.__self__, type) and issubclass(f.__self__, date)
    return of_dates or f in _CLOCK_FUNCTIONS or f in _ENTROPY_FUNCTIONS


@contextmanager
def watch_calls(is_enabled: bool, found: Callable[[str, tuple[str, int]], None]) -> Iterator[None]:
    """Context manager: within the block, call `found(name, (file, line))` for each call by user code of a clock or of
    OS entropy.

    `name` is the called function. Calls by libraries are not reported, because logging, for example, reads a clock for
    each line. If `is_enabled` is False, nothing is watched.
    """
    before: Any = sys.getprofile()

    def listen(frame: FrameType, event: str, f: Any) -> None:
        if before is not None:
            before(frame, event, f)
        if (
            event == "c_call"
            and is_nondeterministic(f)
            and (by := _user_frame(frame, f in _ENTROPY_FUNCTIONS)) is not None
        ):
            found(f.__name__, (by.f_code.co_filename, by.f_lineno))

    if not is_enabled:
        yield
        return
    sys.setprofile(listen)
    try:
        yield
    finally:
        sys.setprofile(before)


def _user_frame(frame: FrameType | None, through_python: bool) -> FrameType | None:
    """Return the stack frame `frame` if its code is the user's, else None.

    With `through_python`, frames of Python's standard library are skipped: their nearest caller outside of it is tested
    and returned.
    """
    while frame is not None:
        top = frame.f_globals.get("__name__", "").partition(".")[0]
        if top not in sys.stdlib_module_names or top == "__main__":
            ours = top == __name__.partition(".")[0] or "-packages" in frame.f_code.co_filename
            return None if ours else frame
        if not through_python:
            return None
        frame = frame.f_back
    return None


__all__ = [
    "NAMES",
    "MODULES",
    "is_nondeterministic",
    "generator_of",
    "watch_calls",
    "is_generator",
    "generator_state",
]
