"""Numbers that generators of Python or NumPy drew: a replay of a captured step would use them again.

What it is for: `tensor/reach.py` finds generators that a function names; a capture compares them before and after.
What it is not: it follows no code of other libraries. Random numbers of Tensors are state, and need none of this.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Collection
from typing import Any

MODULES = frozenset(("random", "numpy", "numpy.random"))
_HOMES = ("random", "numpy.random.mtrand", "numpy.random._generator")


def is_generator(x: Any) -> bool:
    """Whether `x` draws random numbers, one after the other."""
    return any(kind.__module__ in _HOMES for kind in type(x).__mro__)


def generator_of(module: str, named: Collection[str]) -> Any:
    """The generator behind the functions of one of MODULES, of which code names the attributes `named`."""
    if module == "random":
        return sys.modules["random"]._inst
    numpy_random = sys.modules.get("numpy.random")  # whose import takes long
    if numpy_random is None or not (module == "numpy.random" or "random" in named):
        return None
    return numpy_random.mtrand._rand


def state_of(generator: Any) -> Any:
    """What differs once it has drawn."""
    if hasattr(generator, "getstate"):
        return generator.getstate()
    bits = getattr(generator, "bit_generator", None)
    return pickle.dumps(generator.get_state() if bits is None else bits.state)


__all__ = ["MODULES", "generator_of", "is_generator", "state_of"]
