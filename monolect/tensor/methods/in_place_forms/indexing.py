"""Forms that write to self, of the methods that read and write parts of tensors; written by `make surface`.

Invariant: a form writes what its method returns to self, as an augmented assignment does: shape, dtype stay.
"""

from __future__ import annotations

from typing import Self

from monolect.tensor.base import Number, TensorBase, TensorLike
from monolect.tensor.methods.in_place import InPlaceMixin


class IndexingForms(InPlaceMixin):
    """Forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()

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

    def put_(self, index: TensorBase, source: TensorBase, accumulate: bool = False) -> Self:
        """Write the result of `put` to self and return self.

        >>> Tensor.zeros(2, 2).put_(Tensor([0, 3]), Tensor([7.0, 8.0])).tolist()
        [[7.0, 0.0], [0.0, 8.0]]
        """
        return self._written("put", index, source, accumulate)

    def scatter_(self, dim: int, index: TensorBase, src: TensorLike, reduce: str | None = None) -> Self:
        """Write the result of `scatter` to self and return self.

        >>> Tensor.zeros(2, 3).scatter_(1, Tensor([[2], [0]]), Tensor([[5.0], [6.0]])).tolist()
        [[0.0, 0.0, 5.0], [6.0, 0.0, 0.0]]
        """
        return self._written("scatter", dim, index, src, reduce)

    def scatter_add_(self, dim: int, index: TensorBase, src: TensorLike) -> Self:
        """Write the result of `scatter_add` to self and return self.

        >>> Tensor([0, 0, 0]).scatter_add_(0, Tensor([1, 1]), Tensor([5, 6])).tolist()
        [0, 11, 0]
        """
        return self._written("scatter_add", dim, index, src)


__all__ = ["IndexingForms"]
