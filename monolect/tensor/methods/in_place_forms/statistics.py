"""Forms that write to self, of the methods for statistics, orders, and relations of numbers; written by `make
surface`.

Invariant: a form writes what its method returns to self, as an augmented assignment does: shape, dtype stay.
"""

from __future__ import annotations

from typing import Self

from monolect.tensor.base import Number, TensorLike
from monolect.tensor.methods.in_place import InPlaceMixin


class StatisticsForms(InPlaceMixin):
    """Forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()

    def conj_physical_(self) -> Self:
        """Write the result of `conj_physical` to self and return self.

        >>> Tensor([1.0]).conj_physical_().tolist()
        [1.0]
        """
        return self._written("conj_physical")

    def gcd_(self, other: TensorLike) -> Self:
        """Write the result of `gcd` to self and return self.

        >>> Tensor([12, -8, 0]).gcd_(Tensor([18, 12, 5])).tolist()
        [6, 4, 5]
        """
        return self._written("gcd", other)

    def lcm_(self, other: TensorLike) -> Self:
        """Write the result of `lcm` to self and return self.

        >>> Tensor([4, 0]).lcm_(Tensor([6, 5])).tolist()
        [12, 0]
        """
        return self._written("lcm", other)

    def ldexp_(self, other: TensorLike) -> Self:
        """Write the result of `ldexp` to self and return self.

        >>> Tensor([1.0, 3.0]).ldexp_(Tensor([2, -1])).tolist()
        [4.0, 1.5]
        """
        return self._written("ldexp", other)

    def nextafter_(self, other: TensorLike) -> Self:
        """Write the result of `nextafter` to self and return self.

        >>> (Tensor([1.0]).nextafter_(Tensor([2.0])) - 1).tolist() == [2.0**-23]
        True
        """
        return self._written("nextafter", other)

    def renorm_(self, p: Number, dim: int, maxnorm: Number) -> Self:
        """Write the result of `renorm` to self and return self.

        >>> Tensor([[3.0, 4.0], [0.6, 0.8]]).renorm_(2, 0, 1.0).tolist()[1]
        [0.6000000238418579, 0.800000011920929]
        """
        return self._written("renorm", p, dim, maxnorm)


__all__ = ["StatisticsForms"]
