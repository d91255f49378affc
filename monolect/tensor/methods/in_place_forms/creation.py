"""Forms that write to self, of the methods that make tensors, convert to them and ask about dtypes, and random
numbers; written by `make surface`.

Invariant: a form writes what its method returns to self, as an augmented assignment does: shape, dtype stay.
"""

from __future__ import annotations

from typing import Self

from monolect.tensor.methods.in_place import InPlaceMixin


class CreationForms(InPlaceMixin):
    """Forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()

    def tril_(self, diagonal: int = 0) -> Self:
        """Write the result of `tril` to self and return self.

        >>> Tensor.ones(2, 3).tril_().tolist()
        [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
        """
        return self._written("tril", diagonal)

    def triu_(self, diagonal: int = 0) -> Self:
        """Write the result of `triu` to self and return self.

        >>> Tensor.ones(2, 3).triu_(1).tolist()
        [[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
        """
        return self._written("triu", diagonal)


__all__ = ["CreationForms"]
