"""Sources of nondeterminism that a capture cannot replay: random numbers of Python and NumPy, and clocks.

What it is for: a replay of a captured step would use them again. `capture/environment/dependencies.py` finds generators
that a function names, and a capture compares them before and after; where code names what asks the system, a capture
listens whether it does.
What it is not: it follows no code of other libraries. Random numbers of Tensors are state, and need none of this.
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
_HOMES = ("random", "numpy.random.mtrand", "numpy.random._generator")

_CLOCKS = "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns thread_time"
_TOLD = frozenset(f for name in _CLOCKS.split() if (f := getattr(time, name, None)) is not None)
_OF_DATES = frozenset(("now", "utcnow", "today"))
_ENTROPY = frozenset(f for name in ("urandom", "getrandom") if (f := getattr(os, name, None)) is not None)
_OF_ENTROPY = (
    "urandom default_rng SystemRandom choice randbelow randbits token_bytes token_hex token_urlsafe uuid1 uuid4"
)
ASKED = frozenset((*_CLOCKS.split(), *_OF_DATES, *_OF_ENTROPY.split()))  # names under which code asks the system


def is_generator(x: Any) -> bool:
    """Whether `x` draws random numbers, one after the other."""
    return any(kind.__module__ in _HOMES for kind in type(x).__mro__)


def generator_of(module: str, named: Collection[str]) -> Any:
    """The generator behind the functions of one of MODULES, of which code names the attributes `named`."""
    if module == "random":
        return sys.modules["random"]._inst
    if not (module == "numpy.random" or "random" in named):  # whose import takes long
        return None
    return import_module("numpy.random").mtrand._rand


def state_of(generator: Any) -> Any:
    """What differs once it has drawn."""
    if hasattr(generator, "getstate"):
        return generator.getstate()
    bits = getattr(generator, "bit_generator", None)
    state = generator.get_state() if bits is None else bits.state
    return import_module("pickle").dumps(state)  # arrays, which do not compare as one


def differs_each_time(f: Any) -> bool:
    """Whether a function in C asks a clock, or for random bits of the system's."""
    date = getattr(sys.modules.get("datetime"), "date", ())  # nobody has a method of a module that nobody imported
    of_dates = f.__name__ in _OF_DATES and isinstance(f.__self__, type) and issubclass(f.__self__, date)
    return of_dates or f in _TOLD or f in _ENTROPY


@contextmanager
def heard(does: bool, found: Callable[[str, tuple[str, int]], None]) -> Iterator[None]:
    """Call `found` with each function that asks a clock for code of the user's, or for random bits: its name, the line.

    Not for that of libraries: a line in a log has its time. `does`: whether there is anything to listen to.
    """
    before: Any = sys.getprofile()

    def listen(frame: FrameType, event: str, f: Any) -> None:
        if before is not None:
            before(frame, event, f)
        if event == "c_call" and differs_each_time(f) and (by := _of_user(frame, f in _ENTROPY)) is not None:
            found(f.__name__, (by.f_code.co_filename, by.f_lineno))

    if not does:
        yield
        return
    sys.setprofile(listen)
    try:
        yield
    finally:
        sys.setprofile(before)


def _of_user(frame: FrameType | None, through_python: bool) -> FrameType | None:
    """The frame, if its code is the user's; or, `through_python`, that which called modules of Python's own."""
    while frame is not None:
        top = frame.f_globals.get("__name__", "").partition(".")[0]
        if top not in sys.stdlib_module_names or top == "__main__":
            ours = top == __name__.partition(".")[0] or "-packages" in frame.f_code.co_filename
            return None if ours else frame
        if not through_python:
            return None
        frame = frame.f_back
    return None


__all__ = ["ASKED", "MODULES", "differs_each_time", "generator_of", "heard", "is_generator", "state_of"]
