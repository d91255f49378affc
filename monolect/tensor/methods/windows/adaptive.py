"""Methods for adaptive pooling: the last axes are cut into a given number of parts, which may overlap by one element.

What it is for: parts of equal size are the windows of `neural.pool`; uneven means are products with sparse matrices
(`taps`), uneven maxima are chosen from elements that a table names.
Invariant: part i of an axis has the elements from floor(i * size / parts) to before ceil((i + 1) * size / parts).
Source: names and defaults of torch.nn.functional.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, Self, overload

from monolect.base.dtype import accumulator, dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.base.numpy import np
from monolect.graphs.windows import Ints, refuse_symbolic
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.windows.taps import KEPT_TABLES, Taps, ranges, weighted_sums
from monolect.tensor.neural.pool import PoolMixin

MAX_PARTS = 1 << 16  # parts of an axis; tables list the elements of each
Parts = int | Sequence[int | None]  # output sizes: one for all axes, or one for each; None keeps an axis


def _parts(size: int, out: int, mean: bool) -> Taps:
    """Return the taps of the `out` parts of an axis of `size`: sums, or with `mean` means."""
    starts = tuple(i * size // out for i in range(out))
    return ranges(starts, tuple(-(-(i + 1) * size // out) for i in range(out)), size, mean)


@lru_cache(KEPT_TABLES)
def _members(sizes: Ints, outs: Ints) -> tuple[np.ndarray, np.ndarray]:
    """Return (numbers, inside) of shape (parts, most elements of a part): the row-major number in the axes of `sizes`
    of each element of each part, and whether it is one; `outs` has the number of parts of each axis.
    """
    n, flat, inside = len(sizes), np.zeros((1,) * 2 * len(sizes), np.int64), np.ones((1,) * 2 * len(sizes), np.bool_)
    for a, (size, out) in enumerate(zip(sizes, outs, strict=True)):
        index = _parts(size, out, False).column
        shape = [1] * 2 * n
        shape[a], shape[n + a] = index.shape
        flat = flat * size + np.maximum(index, 0).reshape(shape)
        inside = inside & (index >= 0).reshape(shape)
    elements = int(np.prod(flat.shape[:n]))
    return flat.reshape(elements, -1), inside.reshape(elements, -1)


@guard_methods
class AdaptiveMixin(PoolMixin):
    """Methods of Tensor for adaptive pooling."""

    __slots__ = ()

    def _output_sizes(self, n: int, output_size: Any, name: str) -> tuple[Ints, Ints]:
        """Return the sizes of the last n axes and the numbers of their parts.

        `output_size` is an int, or an int or None (which keeps the axis) for each axis. Raises ShapeError, which names
        the method `name`, for missing axes, another number of sizes or a symbolic size; ArgumentError for other sizes.
        """
        spatial = self.shape[self.ndim - n :] if self.ndim >= n else ()
        wanted = output_size if isinstance(output_size, tuple | list) else (output_size,) * n
        if len(spatial) < n or len(wanted) != n:
            raise ShapeError(f"{name}: axes", expected=f"{n} of the input and the output", found=(spatial, wanted))
        refuse_symbolic(spatial, name, "mean or amax over the axis, or int sizes")
        out = tuple(s if w is None else w for s, w in zip(spatial, wanted, strict=True))
        if any(not isinstance(o, int) or not 1 <= o <= MAX_PARTS for o in out) or 0 in spatial:
            expected = f"sizes of at least 1, at most {MAX_PARTS}"
            raise ArgumentError(f"{name}: output_size", expected=expected, found=(spatial, out))
        return spatial, out

    def _adaptive_means(self, n: int, output_size: Any, name: str) -> Self:
        """Return the means of the parts of the last n axes; the arguments are those of `_output_sizes`."""
        spatial, out = self._output_sizes(n, output_size, name)
        self._check_float(name)
        if all(s % o == 0 for s, o in zip(spatial, out, strict=True)):
            kernel = tuple(s // o for s, o in zip(spatial, out, strict=True))
            return self._avg_pool(n, kernel, kernel, 0, False, True, None)
        taps = [_parts(s, o, True) for s, o in zip(spatial, out, strict=True)]
        return weighted_sums(self.cast(accumulator(self.dtype)), self.ndim - n, taps).cast(self.dtype)

    def _adaptive_maxima(self, n: int, output_size: Any, return_indices: bool, name: str) -> Self | tuple[Self, Self]:
        """Return the maxima of the parts of the last n axes, or with `return_indices` also their numbers; the other
        arguments are those of `_output_sizes`.
        """
        spatial, out = self._output_sizes(n, output_size, name)
        if all(s % o == 0 for s, o in zip(spatial, out, strict=True)):
            kernel = tuple(s // o for s, o in zip(spatial, out, strict=True))
            return self._max_pool(n, kernel, kernel, 0, 1, False, return_indices)
        flat: Any = self.flatten(self.ndim - n)
        numbers, inside = (self._kind(t, device=self.device) for t in _members(spatial, out))
        low = False if self.dtype is dtypes.bool else self.dtype.min
        chosen: Any = inside.where(flat[..., numbers], low).detach()
        last = chosen.ndim - 1
        best = chosen.argmax(last, keepdim=True)
        index = numbers.expand(*chosen.shape).gather(last, best).squeeze(last)
        shape = (*self.shape[: self.ndim - n], *out)
        values = flat.gather(flat.ndim - 1, index).reshape(*shape)
        return (values, index.reshape(*shape)) if return_indices else values

    def adaptive_avg_pool1d(self, output_size: Parts) -> Self:
        """Return the means of `output_size` parts of the last axis; None keeps the axis.

        Raises ArgumentError for a size below 1, DTypeError for integers.

        >>> Tensor([[1.0, 5.0, 2.0]]).adaptive_avg_pool1d(2).tolist()
        [[3.0, 3.5]]
        """
        return self._adaptive_means(1, output_size, "adaptive_avg_pool1d")

    def adaptive_avg_pool2d(self, output_size: Parts) -> Self:
        """Return the means of parts of the last two axes, which get `output_size` parts; None keeps an axis.

        `output_size` is an int or one int for each axis; 1 averages all elements. Raises ArgumentError for a size below
        1, DTypeError for integers.

        >>> Tensor([[1.0, 5.0], [2.0, 4.0]]).adaptive_avg_pool2d(1).tolist()
        [[3.0]]
        """
        return self._adaptive_means(2, output_size, "adaptive_avg_pool2d")

    def adaptive_avg_pool3d(self, output_size: Parts) -> Self:
        """Return the means of parts of the last three axes, which get `output_size` parts; None keeps an axis.

        `output_size` is an int or one for each axis. Raises ArgumentError for a size below 1, DTypeError for integers.

        >>> Tensor([[[[1.0, 5.0], [2.0, 4.0]]]]).adaptive_avg_pool3d((None, 1, 1)).tolist()
        [[[[3.0]]]]
        """
        return self._adaptive_means(3, output_size, "adaptive_avg_pool3d")

    @overload
    def adaptive_max_pool1d(self, output_size: Parts, return_indices: Literal[False] = False) -> Self: ...
    @overload
    def adaptive_max_pool1d(self, output_size: Parts, return_indices: Literal[True]) -> tuple[Self, Self]: ...
    def adaptive_max_pool1d(self, output_size: Parts, return_indices: bool = False) -> Self | tuple[Self, Self]:
        """Return the largest elements of `output_size` parts of the last axis; None keeps the axis.

        With `return_indices` also return their indices, int64. Raises ArgumentError for a size below 1.

        >>> Tensor([[1, 5, 2]]).adaptive_max_pool1d(2, return_indices=True)[1].tolist()
        [[1, 1]]
        """
        return self._adaptive_maxima(1, output_size, return_indices, "adaptive_max_pool1d")

    @overload
    def adaptive_max_pool2d(self, output_size: Parts, return_indices: Literal[False] = False) -> Self: ...
    @overload
    def adaptive_max_pool2d(self, output_size: Parts, return_indices: Literal[True]) -> tuple[Self, Self]: ...
    def adaptive_max_pool2d(self, output_size: Parts, return_indices: bool = False) -> Self | tuple[Self, Self]:
        """Return the largest elements of parts of the last two axes, which get `output_size` parts.

        `output_size` is an int, or an int or None (keeps the axis) for each axis. With `return_indices` also return
        their row-major numbers in these axes, int64. Raises ArgumentError for a size below 1.

        >>> Tensor([[1, 5], [2, 4]]).adaptive_max_pool2d((None, 1)).tolist()
        [[5], [4]]
        """
        return self._adaptive_maxima(2, output_size, return_indices, "adaptive_max_pool2d")

    @overload
    def adaptive_max_pool3d(self, output_size: Parts, return_indices: Literal[False] = False) -> Self: ...
    @overload
    def adaptive_max_pool3d(self, output_size: Parts, return_indices: Literal[True]) -> tuple[Self, Self]: ...
    def adaptive_max_pool3d(self, output_size: Parts, return_indices: bool = False) -> Self | tuple[Self, Self]:
        """Return the largest elements of parts of the last three axes, which get `output_size` parts.

        `output_size` is an int, or an int or None (keeps the axis) for each axis. With `return_indices` also return
        their row-major numbers in these axes, int64. Raises ArgumentError for a size below 1.

        >>> Tensor([[[[1, 5], [2, 4]]]]).adaptive_max_pool3d(1).tolist()
        [[[[5]]]]
        """
        return self._adaptive_maxima(3, output_size, return_indices, "adaptive_max_pool3d")


__all__ = ["AdaptiveMixin"]
