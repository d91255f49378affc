"""Import NumPy lazily: `np` imports it at the first use of an attribute.

What it is for: NumPy took half of the time of `import monolect`, and a program that makes tensors from files or numbers
and reads numbers back does not need it.
What it is not: a rule for all modules. Modules that such a program does not import, such as the compiler's, import
NumPy normally.
Invariant: `np` has the attributes of the module numpy. `is_array` and `is_scalar` do not import NumPy: before it is
imported, no object is an array.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy(ModuleType):
        """A stand-in for the module numpy, which holds the attributes that were used so far."""

        def __getattr__(self, name: str) -> Any:
            found = getattr(import_module("numpy"), name)
            setattr(self, name, found)  # later uses do not call __getattr__
            return found

    np = _Numpy("numpy")


def is_array(x: Any) -> TypeGuard[np.ndarray]:
    """Whether `x` is a NumPy array."""
    return "numpy" in sys.modules and isinstance(x, np.ndarray)


def is_scalar(x: Any) -> TypeGuard[np.generic]:
    """Whether `x` is a NumPy scalar."""
    return "numpy" in sys.modules and isinstance(x, np.generic)


def is_foreign_array(x: Any) -> bool:
    """Whether `x` is an array of another library than NumPy: its class has `__dlpack__` or `__array__`."""
    return (hasattr(type(x), "__dlpack__") or hasattr(type(x), "__array__")) and not is_scalar(x)


__all__ = ["is_array", "is_foreign_array", "is_scalar", "np"]
