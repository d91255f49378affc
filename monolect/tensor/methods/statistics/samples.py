"""Statistics of samples: reductions that leave out nan, extremes in pairs, the most frequent element, covariances."""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple, Self

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.tensor.base import Axes, Data, DTypeLike, Number, TensorBase
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.elementwise import computes_in_float32
from monolect.tensor.methods.reduce import ValuesIndices


class MinMax(NamedTuple):
    """The result of `aminmax`."""

    min: Any
    max: Any


@guard_methods
class SamplesMixin(TensorBase):
    """Methods of Tensor for statistics of samples."""

    __slots__ = ()

    # ---- without nan -------------------------------------------------------------------------------------------------
    def nansum(self, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None) -> Self:
        """Return the sum of the elements that are not nan along axes `dim`, by default all; integers give int64.

        >>> Tensor([1.0, float("nan"), 2.0]).nansum().item()
        3.0
        """
        x: Any = self if dtype is None else self.cast(dtype)
        return x.sum(dim, keepdim) if not x.dtype.is_float else x.isnan().where(0.0, x).sum(dim, keepdim)

    def nanmean(self, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None) -> Self:
        """Return the mean of the elements that are not nan along axes `dim`, by default all.

        It is nan where all are. Raises DTypeError for integers.

        >>> Tensor([1.0, float("nan"), 3.0]).nanmean().item()
        2.0
        """
        x: Any = self if dtype is None else self.cast(dtype)
        x._check_float("nanmean")
        wide = x if x.dtype.bits >= 32 else x.float()
        total = wide.isnan().where(0.0, wide).sum(dim, keepdim)
        return (total / (~wide.isnan()).sum(dim, keepdim).cast(wide.dtype)).cast(x.dtype)

    def nanmedian(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """Return the middle element of those that are not nan, the lower of two: of all, or (values, indices) along
        axis `dim`. It is nan where all are. Raises ShapeError for no elements.

        >>> Tensor([3.0, float("nan"), 1.0, 2.0]).nanmedian().item()
        2.0
        """
        x: Any = self
        if not self.dtype.is_float:
            return x.median() if dim is None else x.median(dim, keepdim)
        rows = x.reshape(-1) if dim is None or not x.ndim else x.movedim(self._axis(dim), -1)
        if dim is not None and not x.ndim:
            self._axis(dim, 1)
        if not rows.shape[-1]:
            raise ShapeError("the nanmedian of no elements", expected="a non-empty axis", found=f"shape {self.shape}")
        counts = (~rows.isnan()).sum(-1, keepdim=True)
        found = rows.sort(-1)  # nan is last
        at = (counts - 1).clamp(min=0) // 2
        values, indices = found.values.gather(-1, at), found.indices.gather(-1, at)
        if dim is None:
            return values.reshape(())
        if not x.ndim:
            return ValuesIndices(values.reshape(()), indices.reshape(()))
        a = self._axis(dim)
        if keepdim:
            return ValuesIndices(values.movedim(-1, a), indices.movedim(-1, a))
        return ValuesIndices(values.squeeze(-1), indices.squeeze(-1))

    def nanquantile(
        self, q: Data, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
    ) -> Self:
        """Return the q-th quantiles of the elements that are not nan along axis `dim`, by default of all elements.

        Arguments and errors are those of `quantile`. The result is nan where all elements are.

        >>> Tensor([1.0, float("nan"), 3.0]).nanquantile(0.5).item()
        2.0
        """
        self._check_float("nanquantile")
        modes = ("linear", "lower", "higher", "nearest", "midpoint")
        if interpolation not in modes:
            raise ArgumentError("nanquantile: interpolation", expected=", ".join(modes), found=repr(interpolation))
        x: Any = self if self.dtype.bits >= 32 else self.float()
        t: Any = q if isinstance(q, TensorBase) else x._kind(q, dtype=x.dtype)
        if t.ndim > 1 or t.dtype is not x.dtype:
            raise ShapeError("nanquantile: q", expected=f"a number or a vector of {x.dtype.name}", found=repr(t))
        if not isinstance(q, TensorBase) and not all(0 <= v <= 1 for v in t.reshape(-1).tolist()):
            raise ArgumentError("nanquantile: q", expected="numbers from 0 to 1", found=q)
        is_flat = dim is None or not x.ndim
        rows = x.reshape(-1) if is_flat else x.movedim(self._axis(dim), -1)
        if not rows.shape[-1]:
            raise ShapeError("the nanquantile of no elements", expected="a non-empty axis", found=f"{self.shape}")
        ordered = rows.sort(-1).values
        position = t.reshape(-1) * ((~rows.isnan()).sum(-1, keepdim=True) - 1).clamp(min=0).cast(x.dtype)
        low, high = position.floor(), position.ceil()
        if interpolation in ("lower", "higher", "nearest"):
            rank = {"lower": low, "higher": high, "nearest": position.round()}[interpolation]
            out = ordered.gather(-1, rank.long())
        else:
            weight = position - low if interpolation == "linear" else 0.5
            out = ordered.gather(-1, low.long()).lerp(ordered.gather(-1, high.long()), weight)
        out = out.movedim(-1, 0)
        if keepdim:
            out = out.reshape(-1, *(1,) * x.ndim) if is_flat else out.unsqueeze(self._axis(dim) + 1)
        out = out if t.ndim else out.squeeze(0)
        return out.cast(self.dtype)

    # ---- extremes and frequencies ------------------------------------------------------------------------------------
    def aminmax(self, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
        """Return (min, max) along axis `dim`, by default of all elements. Raises ShapeError for no elements.

        >>> [t.item() for t in Tensor([3, 1, 2]).aminmax()]
        [1, 3]
        """
        x: Any = self
        a = None if dim is None else self._axis(dim, max(1, self.ndim)) if self.ndim else None
        if dim is not None and not self.ndim:
            self._axis(dim, 1)
        return MinMax(x.amin(a, keepdim), x.amax(a, keepdim))

    def mode(self, dim: int = -1, keepdim: bool = False) -> ValuesIndices[Self]:
        """Return (values, int64 indices) of the most frequent element along axis `dim`, the smallest of equally
        frequent ones; the index of its last occurrence.

        The cost is the square of the size of the axis. Raises ShapeError for no elements.

        >>> [t.item() for t in Tensor([3, 1, 3, 2]).mode()]
        [3, 2]
        """
        x: Any = self.reshape(1) if not self.ndim else self
        a = self._axis(dim, max(1, self.ndim))
        rows = x.movedim(a, -1)
        n = rows.shape[-1]
        if not n:
            raise ShapeError("the mode of no elements", expected="a non-empty axis", found=f"shape {self.shape}")
        counts = (rows.unsqueeze(-1) == rows.unsqueeze(-2)).sum(-1)
        is_most = counts == counts.amax(-1, keepdim=True)
        d: Any = self.dtype
        top = inf if d.is_float else True if d is dtypes.bool else d.max
        least = is_most.where(rows.detach(), x._scalar(top).cast(d)).amin(-1, keepdim=True)
        numbers = x._kind.arange(n, device=self.device)
        at = (is_most & (rows.detach() == least)).where(numbers, -1).amax(-1, keepdim=True).clamp(min=0)
        values = rows.gather(-1, at)
        if not self.ndim:
            return ValuesIndices(values.reshape(()), at.reshape(()))
        out = (values.movedim(-1, a), at.movedim(-1, a)) if keepdim else (values.squeeze(-1), at.squeeze(-1))
        return ValuesIndices(*out)

    # ---- covariances -------------------------------------------------------------------------------------------------
    def cov(
        self, *, correction: int = 1, fweights: TensorBase | None = None, aweights: TensorBase | None = None
    ) -> Self:
        """Return the covariances of variables, which are the rows of self, with observations as columns.

        The sum of products is divided by n - correction. `fweights` counts each observation, `aweights` weighs it.
        Raises ShapeError for more than two axes or weights that are no vector of the observations.

        >>> Tensor([[0.0, 2.0], [2.0, 0.0]]).cov().tolist()
        [[2.0, -2.0], [-2.0, 2.0]]
        """
        if self.ndim > 2:
            raise ShapeError("cov", expected="at most 2 axes", found=self.shape)
        x: Any = self if self.dtype.is_float else self.float()
        x = x.reshape(1, -1) if x.ndim < 2 else x
        n = x.shape[1]
        w: Any = None
        for name, given in (("fweights", fweights), ("aweights", aweights)):
            if given is not None:
                if given.shape != (n,) and given.numel() != n:
                    raise ShapeError(f"cov: {name}", expected=(n,), found=given.shape)
                g: Any = given
                w = g.reshape(n) if w is None else w * g.reshape(n)
        if w is None:
            d = x - x.mean(1, keepdim=True)
            out = d @ d.T / max(n - correction, 0)
        else:
            total = w.sum()
            d = x - ((x * w).sum(1, keepdim=True) / total)
            if aweights is None or not correction:
                free = total - correction
            else:
                a: Any = aweights
                free = total - correction * (w * a.reshape(n)).sum() / total
            out = (d * w) @ d.T / free.clamp(min=0)
        return out.squeeze() if self.ndim < 2 or self.shape[0] == 1 else out

    def corrcoef(self) -> Self:
        """Return the correlation coefficients of variables, which are the rows of self; 1 for one variable.

        Raises ShapeError for more than two axes.

        >>> Tensor([[0.0, 2.0], [2.0, 0.0]]).corrcoef().tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
        """
        if self.ndim > 2:
            raise ShapeError("corrcoef", expected="at most 2 axes", found=self.shape)
        c: Any = self.cov()
        if not c.ndim:
            return c / c
        deviation = c.diagonal().sqrt()
        return (c / deviation.unsqueeze(-1) / deviation).clamp(-1, 1)

    @computes_in_float32
    def renorm(self, p: Number, dim: int, maxnorm: Number) -> Self:
        """Return self with each slice along axis `dim` scaled down so that its p-norm is at most `maxnorm`.

        Raises DTypeError for integers.

        >>> Tensor([[3.0, 4.0], [0.6, 0.8]]).renorm(2, 0, 1.0).tolist()[1]
        [0.6000000238418579, 0.800000011920929]
        """
        self._check_float("renorm")
        x: Any = self
        a = self._axis(dim)
        if self.ndim < 2:
            raise ShapeError("renorm", expected="at least 2 axes", found=self.shape)
        norm = x.norm(p, [i for i in range(self.ndim) if i != a], True)
        return x * (norm > maxnorm).where(maxnorm / (norm + 1e-7), 1.0)


__all__ = ["MinMax", "SamplesMixin"]
