"""Methods for distances and angles of vectors, in PyTorch's functional forms.

Source: torch.nn.functional.
"""

from __future__ import annotations

from typing import Any, Self

from monolect.base.errors import ShapeError
from monolect.base.numpy import np
from monolect.tensor.base import TensorBase
from monolect.tensor.guard import guard_methods
from monolect.tensor.neural.loss import LossMixin


def _norm(x: Any, p: float, dim: Any, keepdim: bool) -> Any:
    return x.norm(p, dim, keepdim)


def _at_least(x: Any, least: float) -> Any:
    """Return max(x, least) with the gradient of `x`."""
    return (x.detach() < least).where(x - x.detach() + least, x)


@guard_methods
class DistanceMixin(LossMixin):
    """Methods of Tensor for distances and, inherited, losses of classes."""

    __slots__ = ()

    def cosine_similarity(self, x2: TensorBase, dim: int = 1, eps: float = 1e-8) -> Self:
        """Return the cosine of the angle between self and `x2` along axis `dim`, broadcast.

        Lengths are at least `eps`. Raises DTypeError for integers.

        >>> round(Tensor([[3.0, 4.0]]).cosine_similarity(Tensor([[4.0, 3.0]])).item(), 4)
        0.96
        """
        self._check_float("cosine_similarity")
        x: Any = self + x2 * 0  # broadcast, so that `dim` is an axis of both
        y: Any = x2 + self * 0
        a, b = (_at_least(_norm(v, 2, dim, True), eps) for v in (x, y))
        return ((x / a) * (y / b)).sum(dim)

    def pairwise_distance(self, x2: TensorBase, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Self:
        """Return the norm of order `p` of self - x2 + eps along the last axis; `keepdim` keeps it with size 1.

        Raises ShapeError for shapes that do not broadcast.

        >>> round(Tensor([3.0, 0.0]).pairwise_distance(Tensor([0.0, 4.0])).item(), 3)
        5.0
        """
        return _norm(self - x2 + eps, p, -1, keepdim)

    def pdist(self, p: float = 2.0) -> Self:
        """Return the distances of order `p` of all pairs of rows i < j of self, (N, D), in row-major order of (i, j).

        Raises ShapeError unless self has two axes.

        >>> Tensor([[0.0], [1.0], [3.0]]).pdist().tolist()
        [1.0, 3.0, 2.0]
        """
        if self.ndim != 2 or self.shape[0].__class__ is not int:
            raise ShapeError("pdist: the input", expected="(rows, columns), ints", found=self.shape)
        first, second = (self._kind(i.astype(np.int64), device=self.device) for i in np.triu_indices(self.shape[0], 1))
        return _norm(self[first] - self[second], p, -1, False)

    def normalize(self, p: float = 2.0, dim: int | tuple[int, ...] = 1, eps: float = 1e-12) -> Self:
        """Return self divided by its norm of order `p` along `dim`, or by `eps` where the norm is less.

        Raises DTypeError for integers.

        >>> Tensor([[0.0, 4.0]]).normalize().tolist()
        [[0.0, 1.0]]
        """
        self._check_float("normalize")
        return self / _norm(self, p, dim, True).clamp(eps)


__all__ = ["DistanceMixin"]
