"""NumPy, imported when something of it is first used.

What it is for: half of the time of `import monolect` was NumPy's; a program that makes tensors from files or numbers
and reads numbers back needs none of it.
What it is not: modules that no such program imports, such as those of the compiler, import NumPy as anybody does.
Invariant: `np` has what the module numpy has. Whether something is NumPy's is asked without importing it: where it was
not imported, nothing is.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy(ModuleType):
        """The module, as far as it was used."""

        def __getattr__(self, name: str) -> Any:
            found = getattr(import_module("numpy"), name)
            setattr(self, name, found)  # from now on it is found without this call
            return found

    np = _Numpy("numpy")


def is_array(x: Any) -> bool:
    """Whether it is a NumPy array."""
    return "numpy" in sys.modules and isinstance(x, np.ndarray)


def is_scalar(x: Any) -> bool:
    """Whether it is a number of one of NumPy's types."""
    return "numpy" in sys.modules and isinstance(x, np.generic)


__all__ = ["is_array", "is_scalar", "np"]
