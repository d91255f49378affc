"""Forms that write to self, of the methods that read and write parts of tensors, and count; written by `make surface`.

Invariant: a form writes what its method returns to self, as an augmented assignment does: shape, dtype stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from monolect.tensor.base import Number, TensorBase, TensorLike
from monolect.tensor.methods.in_place import InPlaceMixin


class IndexingForms(InPlaceMixin):
    """Forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()

    def fill_diagonal_(self, fill_value: float, wrap: bool = False) -> Self:
        """Write the result of `fill_diagonal` to self and return self.

        >>> Tensor.zeros(2, 2).fill_diagonal_(3.0).tolist()
        [[3.0, 0.0], [0.0, 3.0]]
        """
        return self._written("fill_diagonal", fill_value, wrap)

    def index_add_(self, dim: int, index: TensorBase, source: TensorBase, *, alpha: Number = 1) -> Self:
        """Write the result of `index_add` to self and return self.

        >>> Tensor.zeros(3, 2).index_add_(0, Tensor([2, 2]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [[0.0, 0.0], [0.0, 0.0], [4.0, 6.0]]
        """
        return self._written("index_add", dim, index, source, alpha=alpha)

    def index_copy_(self, dim: int, index: TensorBase, source: TensorBase) -> Self:
        """Write the result of `index_copy` to self and return self.

        >>> Tensor.zeros(3, 2).index_copy_(0, Tensor([2, 0]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]]
        """
        return self._written("index_copy", dim, index, source)

    def index_fill_(self, dim: int, index: TensorBase, value: TensorLike) -> Self:
        """Write the result of `index_fill` to self and return self.

        >>> Tensor.zeros(2, 3).index_fill_(1, Tensor([0, 2]), 7.0).tolist()
        [[7.0, 0.0, 7.0], [7.0, 0.0, 7.0]]
        """
        return self._written("index_fill", dim, index, value)

    def index_put_(self, indices: Sequence[TensorBase | None], values: TensorBase, accumulate: bool = False) -> Self:
        """Write the result of `index_put` to self and return self.

        >>> Tensor([1, 2, 3]).index_put_((Tensor([0, 2]),), Tensor([7, 8])).tolist()
        [7, 2, 8]
        """
        return self._written("index_put", indices, values, accumulate)

    def index_reduce_(
        self, dim: int, index: TensorBase, source: TensorBase, reduce: str, *, include_self: bool = True
    ) -> Self:
        """Write the result of `index_reduce` to self and return self.

        >>> Tensor([1, 2, 3]).index_reduce_(0, Tensor([0, 0]), Tensor([5, 4]), "amin").tolist()
        [1, 2, 3]
        """
        return self._written("index_reduce", dim, index, source, reduce, include_self=include_self)

    def masked_scatter_(self, mask: TensorBase, source: TensorBase) -> Self:
        """Write the result of `masked_scatter` to self and return self.

        >>> Tensor([1, 2, 3]).masked_scatter_(Tensor([True, False, True]), Tensor([7, 8])).tolist()
        [7, 2, 8]
        """
        return self._written("masked_scatter", mask, source)

    def put_(self, index: TensorBase, source: TensorBase, accumulate: bool = False) -> Self:
        """Write the result of `put` to self and return self.

        >>> Tensor.zeros(2, 2).put_(Tensor([0, 3]), Tensor([7.0, 8.0])).tolist()
        [[7.0, 0.0], [0.0, 8.0]]
        """
        return self._written("put", index, source, accumulate)

    def scatter_(
        self,
        dim: int,
        index: TensorBase,
        src: TensorLike | None = None,
        reduce: str | None = None,
        *,
        value: TensorLike | None = None,
    ) -> Self:
        """Write the result of `scatter` to self and return self.

        >>> Tensor.zeros(2, 3).scatter_(1, Tensor([[2], [0]]), Tensor([[5.0], [6.0]])).tolist()
        [[0.0, 0.0, 5.0], [6.0, 0.0, 0.0]]
        """
        return self._written("scatter", dim, index, src, reduce, value=value)

    def scatter_add_(self, dim: int, index: TensorBase, src: TensorLike) -> Self:
        """Write the result of `scatter_add` to self and return self.

        >>> Tensor([0, 0, 0]).scatter_add_(0, Tensor([1, 1]), Tensor([5, 6])).tolist()
        [0, 11, 0]
        """
        return self._written("scatter_add", dim, index, src)

    def scatter_reduce_(
        self, dim: int, index: TensorBase, src: TensorBase, reduce: str, *, include_self: bool = True
    ) -> Self:
        """Write the result of `scatter_reduce` to self and return self.

        >>> Tensor([1, 2, 3]).scatter_reduce_(0, Tensor([0, 0]), Tensor([5, 4]), "amax").tolist()
        [5, 2, 3]
        """
        return self._written("scatter_reduce", dim, index, src, reduce, include_self=include_self)


__all__ = ["IndexingForms"]
