"""Forms that write to self, of the methods for layers of networks, and activations; written by `make surface`.

Invariant: a form writes what its method returns to self, as an augmented assignment does: shape, dtype stay.
"""

from __future__ import annotations

from typing import Self

from monolect.tensor.methods.in_place import InPlaceMixin


class LayersForms(InPlaceMixin):
    """Forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()

    def relu_(self) -> Self:
        """Write the result of `relu` to self and return self.

        >>> Tensor([-1.0, 2.0]).relu_().tolist()
        [0.0, 2.0]
        """
        return self._written("relu")


__all__ = ["LayersForms"]
