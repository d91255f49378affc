"""Define layers that look up rows of a table.

Invariant: names, shapes and initial distributions of parameters are those of torch.nn.
"""

from __future__ import annotations

from typing import Self

from monolect.base.errors import ArgumentError, ShapeError
from monolect.nn.module import Module
from monolect.tensor.base import DeviceLike, DTypeLike, Number
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class _Table(Module):
    def _fill(
        self,
        sizes: tuple[int, int],
        padding_idx: int | None,
        weight: Tensor | None,
        sparse: bool,
        device: DeviceLike | None,
        dtype: DTypeLike | None,
    ) -> None:
        """Set the sizes, `padding_idx` and the table: `weight`, or normal numbers with zeros in the row `padding_idx`.

        Raises ArgumentError for a `padding_idx` that is no row and for `sparse`, ShapeError for another weight.
        """
        if sparse:
            raise ArgumentError("sparse", expected="False, as gradients are dense", found=True)
        n = sizes[0]
        self.num_embeddings, self.embedding_dim = sizes
        if padding_idx is not None and not -n <= padding_idx < n:
            raise ArgumentError("padding_idx", expected=f"a row of {n}", found=padding_idx)
        self.padding_idx = None if padding_idx is None else padding_idx % n
        if weight is None:
            weight = Tensor.randn(*sizes, device=device, dtype=dtype)
            if self.padding_idx is not None:
                rows = Tensor.arange(n, device=weight.device).reshape(-1, 1)
                weight = (rows == self.padding_idx).where(0.0, weight)
        elif weight.shape != sizes:
            raise ShapeError(f"{type(self).__name__}: weight", expected=sizes, found=weight.shape)
        self.weight = weight.detach().requires_grad_(True)

    def extra_repr(self) -> str:
        """Return the numbers of rows and columns as text."""
        return f"{self.num_embeddings}, {self.embedding_dim}"


@guard_methods
class Embedding(_Table):
    """Look up one row of a table for each index: integers (...) -> (..., embedding_dim).

    The row `padding_idx` starts as zeros and gets no gradient. `max_norm`, `norm_type` and `scale_grad_by_freq` are
    those of `Tensor.embedding`; `_weight` is the table, `_freeze` makes it no parameter. Raises ArgumentError for a
    `padding_idx` that is not a row, and for `sparse`.

    >>> Embedding(10, 3)(Tensor([1, 2])).shape
    (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: Number = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self._fill((num_embeddings, embedding_dim), padding_idx, _weight, sparse, device, dtype)
        self.weight.requires_grad_(not _freeze)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: Number = 2.0,
        scale_grad_by_freq: bool = False,
    ) -> Self:
        """Return a layer with the table `embeddings`, which is no parameter if `freeze`.

        >>> nn.Embedding.from_pretrained(Tensor([[1.0, 2.0]]))(Tensor([0])).tolist()
        [[1.0, 2.0]]
        """
        rows, columns = embeddings.shape
        return cls(rows, columns, padding_idx, max_norm, norm_type, scale_grad_by_freq, False, embeddings, freeze)

    def forward(self, index: Tensor) -> Tensor:
        """See the class."""
        return index.embedding(self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)


@guard_methods
class EmbeddingBag(_Table):
    """Return the sum, mean or maximum of the rows of each bag. See `Tensor.embedding_bag`.

    `_weight` is the table. Raises ArgumentError for a `padding_idx` that is not a row, and for `sparse`.

    >>> EmbeddingBag(10, 3, mode="sum")(Tensor([[1, 2], [3, 4]])).shape
    (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: Number = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.mode, self.include_last_offset = mode, include_last_offset
        self._fill((num_embeddings, embedding_dim), padding_idx, _weight, sparse, device, dtype)

    def forward(self, index: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """See the class."""
        return index.embedding_bag(
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )


__all__ = ["Embedding", "EmbeddingBag"]
