"""Forms that write to self, of the methods that reduce axes, and running reductions; written by `make surface`.

Invariant: a form writes what its method returns to self, as an augmented assignment does: shape, dtype stay.
"""

from __future__ import annotations

from typing import Self

from monolect.tensor.base import DTypeLike
from monolect.tensor.methods.in_place import InPlaceMixin


class ReductionsForms(InPlaceMixin):
    """Forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()

    def cumprod_(self, dim: int = 0, *, dtype: DTypeLike | None = None, axis: int | None = None) -> Self:
        """Write the result of `cumprod` to self and return self.

        >>> Tensor([1, 2, 3, 4]).cumprod_(0).tolist()
        [1, 2, 6, 24]
        """
        return self._written("cumprod", dim, dtype=dtype, axis=axis)

    def cumsum_(self, dim: int = 0, *, dtype: DTypeLike | None = None, axis: int | None = None) -> Self:
        """Write the result of `cumsum` to self and return self.

        >>> Tensor([1, 2, 3]).cumsum_(0).tolist()
        [1, 3, 6]
        """
        return self._written("cumsum", dim, dtype=dtype, axis=axis)


__all__ = ["ReductionsForms"]
