"""Forms that write to self, of the methods for products of matrices and vectors, norms and distances; written by `make
surface`.

Invariant: a form writes what its method returns to self, as an augmented assignment does: shape, dtype stay.
"""

from __future__ import annotations

from typing import Self

from monolect.tensor.base import DTypeLike, Number, TensorBase
from monolect.tensor.methods.in_place import InPlaceMixin


class ProductsForms(InPlaceMixin):
    """Forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()

    def addbmm_(self, batch1: TensorBase, batch2: TensorBase, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """Write the result of `addbmm` to self and return self.

        >>> Tensor([[1.0]]).addbmm_(Tensor([[[2.0]], [[4.0]]]), Tensor([[[3.0]], [[5.0]]])).tolist()
        [[27.0]]
        """
        return self._written("addbmm", batch1, batch2, beta=beta, alpha=alpha)

    def addmm_(
        self,
        mat1: TensorBase,
        mat2: TensorBase,
        out_dtype: DTypeLike | None = None,
        *,
        beta: Number = 1,
        alpha: Number = 1,
    ) -> Self:
        """Write the result of `addmm` to self and return self.

        >>> Tensor([[1.0, 2.0]]).addmm_(Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0], [5.0, 6.0]])).tolist()
        [[14.0, 18.0]]
        """
        return self._written("addmm", mat1, mat2, out_dtype, beta=beta, alpha=alpha)

    def addmv_(self, mat: TensorBase, vec: TensorBase, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """Write the result of `addmv` to self and return self.

        >>> Tensor([1.0]).addmv_(Tensor([[1.0, 2.0]]), Tensor([3.0, 4.0])).tolist()
        [12.0]
        """
        return self._written("addmv", mat, vec, beta=beta, alpha=alpha)

    def addr_(self, vec1: TensorBase, vec2: TensorBase, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """Write the result of `addr` to self and return self.

        >>> Tensor([[1, 1]]).addr_(Tensor([2]), Tensor([3, 4])).tolist()
        [[7, 9]]
        """
        return self._written("addr", vec1, vec2, beta=beta, alpha=alpha)

    def baddbmm_(
        self,
        batch1: TensorBase,
        batch2: TensorBase,
        out_dtype: DTypeLike | None = None,
        *,
        beta: Number = 1,
        alpha: Number = 1,
    ) -> Self:
        """Write the result of `baddbmm` to self and return self.

        >>> Tensor([[[1.0]]]).baddbmm_(Tensor([[[2.0]]]), Tensor([[[3.0]]]), beta=2).tolist()
        [[[8.0]]]
        """
        return self._written("baddbmm", batch1, batch2, out_dtype, beta=beta, alpha=alpha)


__all__ = ["ProductsForms"]
