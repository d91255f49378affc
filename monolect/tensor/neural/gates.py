"""Methods for products of two inputs or of halves of one, and for the normalisation over neighbouring channels.

Source: names and formulas of torch.nn.functional; the normalisation: Krizhevsky et al. (2012).
"""

from __future__ import annotations

from typing import Any, Self

from monolect.base.errors import ShapeError
from monolect.tensor.base import TensorBase, as_int
from monolect.tensor.guard import guard_methods


@guard_methods
class GatesMixin(TensorBase):
    """Methods of Tensor that multiply inputs, or an input by a function of its neighbours."""

    __slots__ = ()

    def glu(self, dim: int = -1) -> Self:
        """Return the first half of axis `dim` times the sigmoid of the second half.

        Raises ShapeError for an odd size.

        >>> Tensor([2.0, 0.0]).glu().tolist()
        [1.0]
        """
        a = self._axis(dim)
        if self.shape[a] % 2:
            raise ShapeError("glu: size of the axis", expected="an even size", found=self.shape)
        first, second = self.chunk(2, a)  # type: ignore[attr-defined]
        return first * second.sigmoid()

    def bilinear(self, input2: TensorBase, weight: TensorBase, bias: TensorBase | None = None) -> Self:
        """Return self[..., i] * weight[o, i, j] * input2[..., j], summed over i and j, plus `bias`[o]: (..., I) and
        (..., J) -> (..., O).

        `bias` None adds nothing. Raises ShapeError for shapes that do not fit.

        >>> Tensor([2.0]).bilinear(Tensor([3.0]), Tensor([[[1.0]]])).tolist()
        [6.0]
        """
        wanted = (self.shape[-1:], input2.shape[-1:], self.shape[:-1])
        if weight.ndim != 3 or ((weight.shape[1],), (weight.shape[2],), input2.shape[:-1]) != wanted:
            found = (self.shape, input2.shape, weight.shape)
            raise ShapeError("bilinear: shapes", expected="(..., I), (..., J) and (O, I, J)", found=found)
        out: Any = self._kind.einsum("...i,oij,...j->...o", self, weight, input2)
        return out if bias is None else out + bias

    def local_response_norm(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Self:
        """Return self, (N, C, ...), divided by (k + alpha * mean of squares of `size` neighbouring channels) ** beta.

        Channels beyond the ends count as 0. Raises ShapeError for fewer than three axes, DTypeError for integers.

        >>> Tensor.ones(1, 1, 1).local_response_norm(1, alpha=3.0, beta=0.5).tolist()
        [[[0.5]]]
        """
        self._check_float("local_response_norm")
        size = as_int(size, "local_response_norm: size")
        if self.ndim < 3:
            raise ShapeError("local_response_norm: rank", expected="(batch, channels, ...)", found=self.shape)
        squares: Any = (self * self).movedim(1, -1)
        mean = squares.pad((size // 2, (size - 1) // 2)).avg_pool1d(size, 1).movedim(-1, 1)
        return self / (mean * alpha + k) ** beta


__all__ = ["GatesMixin"]
