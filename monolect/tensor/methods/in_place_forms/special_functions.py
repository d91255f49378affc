"""Forms that write to self, of the methods that are special functions; written by `make surface`.

Invariant: a form writes what its method returns to self, as an augmented assignment does: shape, dtype stay.
"""

from __future__ import annotations

from typing import Self

from monolect.tensor.base import TensorLike
from monolect.tensor.methods.in_place import InPlaceMixin


class SpecialFunctionsForms(InPlaceMixin):
    """Forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()

    def digamma_(self) -> Self:
        """Write the result of `digamma` to self and return self.

        >>> round(Tensor(1.0).digamma_().item(), 4)
        -0.5772
        """
        return self._written("digamma")

    def erfinv_(self) -> Self:
        """Write the result of `erfinv` to self and return self.

        >>> Tensor([0.0, 1.0]).erfinv_().tolist(), round(Tensor(0.5).erfinv_().item(), 4)
        ([0.0, inf], 0.4769)
        """
        return self._written("erfinv")

    def i0_(self) -> Self:
        """Write the result of `i0` to self and return self.

        >>> round(Tensor(1.0).i0_().item(), 4)
        1.2661
        """
        return self._written("i0")

    def igamma_(self, other: TensorLike) -> Self:
        """Write the result of `igamma` to self and return self.

        >>> round(Tensor(2.0).igamma_(3.0).item(), 4)
        0.8009
        """
        return self._written("igamma", other)

    def igammac_(self, other: TensorLike) -> Self:
        """Write the result of `igammac` to self and return self.

        >>> round(Tensor(2.0).igammac_(3.0).item(), 4)
        0.1991
        """
        return self._written("igammac", other)

    def lgamma_(self) -> Self:
        """Write the result of `lgamma` to self and return self.

        >>> Tensor([1.0, 5.0]).lgamma_().exp().round().tolist()
        [1.0, 24.0]
        """
        return self._written("lgamma")

    def mvlgamma_(self, p: int) -> Self:
        """Write the result of `mvlgamma` to self and return self.

        >>> round(Tensor(2.0).mvlgamma_(2).item(), 4)
        0.4516
        """
        return self._written("mvlgamma", p)

    def polygamma_(self, n: int) -> Self:
        """Write the result of `polygamma` to self and return self.

        >>> round(Tensor(1.0).polygamma_(1).item(), 4)
        1.6449
        """
        return self._written("polygamma", n)

    def xlogy_(self, other: TensorLike) -> Self:
        """Write the result of `xlogy` to self and return self.

        >>> Tensor([0.0, 2.0]).xlogy_(Tensor([0.0, 1.0])).tolist()
        [0.0, 0.0]
        """
        return self._written("xlogy", other)


__all__ = ["SpecialFunctionsForms"]
