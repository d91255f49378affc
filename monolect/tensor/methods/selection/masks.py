"""Methods whose result has a size that depends on values: masks, positions of true elements, unique elements.

Invariant: the call computes the mask (or the values), since a shape must be known when a graph is built; under `@jit`
it raises JitError. Gradients flow through the selected elements.
"""

from __future__ import annotations

from typing import Any, Self

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.base.numpy import is_array, np
from monolect.tensor.base import TensorBase, as_int
from monolect.tensor.guard import guard_methods


@guard_methods
class MasksMixin(TensorBase):
    """Methods of Tensor that compute a mask or values to know the shape of their result."""

    __slots__ = ()

    def nonzero(self, *, as_tuple: bool = False) -> Self | tuple[Self, ...]:
        """Return the int64 indices of the elements that are not zero: shape (n, ndim), or with `as_tuple` a vector for
        each axis. The call computes self; it raises JitError inside a captured step.

        >>> Tensor([[0, 5], [7, 0]]).nonzero().tolist()
        [[0, 1], [1, 0]]
        """
        found = true_positions(self)
        if as_tuple:
            return tuple(_on_device_of(self, v) for v in found) if self.ndim else (_on_device_of(self, found[0]),)
        return _on_device_of(self, np.stack(found, 1) if self.ndim else np.zeros((len(found[0]), 0), np.int64))

    def nonzero_static(self, *, size: int, fill_value: int = -1) -> Self:
        """Return the int64 indices of the first `size` elements that are not zero, shape (size, ndim); rows that are
        left hold `fill_value`. It is lazy, and can be part of a captured step.

        Raises ArgumentError for a negative size.

        >>> Tensor([[0, 5], [7, 0]]).nonzero_static(size=3).tolist()
        [[0, 1], [1, 0], [-1, -1]]
        """
        n = as_int(size, "size")
        if n < 0:
            raise ArgumentError("nonzero_static: size", expected="at least 0", found=n)
        x: Any = self
        count = x.numel()
        if not x.ndim or not n or not count:
            return x._kind.full((n, x.ndim), fill_value, dtype=dtypes.int64, device=self.device)
        is_found = x.ne(0).reshape(-1)
        row = is_found.cumsum(0) - 1
        row = (is_found & (row < n)).where(row, n)  # others are written behind the end
        firsts = x._kind.full((n + 1,), count, dtype=dtypes.int64, device=self.device)
        at = firsts.scatter(0, row, x._kind.arange(count, dtype=dtypes.int64, device=self.device))[:n]
        columns, left = [], at
        for k in reversed(self.shape):
            columns.append(left % k)
            left = left // k
        found = x._kind.stack(columns[::-1], dim=1)
        out: Self = at.eq(count).unsqueeze(1).where(fill_value, found)
        return out

    def argwhere(self) -> Self:
        """Return the int64 indices of the elements that are not zero, shape (n, ndim), as `nonzero`.

        The call computes self; it raises JitError inside a captured step.

        >>> Tensor([0, 5, 7]).argwhere().tolist()
        [[1], [2]]
        """
        found: Any = self.nonzero()
        return found

    def masked_select(self, mask: TensorBase) -> Self:
        """Return the elements where `mask` holds as a vector; both broadcast together.

        The call computes the mask. Raises DTypeError for a mask that is not bool, JitError inside a captured step.

        >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True])).tolist()
        [1, 3]
        """
        _check_mask("masked_select", mask)
        x: Any = self
        m: Any = mask
        shape = np.broadcast_shapes(x.shape, m.shape)
        found: Self = x.expand(*shape).reshape(-1)[true_positions(m.expand(*shape).reshape(-1))[0]]
        return found

    def masked_scatter(self, mask: TensorBase, source: TensorBase) -> Self:
        """Return self with the elements of `source`, in order, where `mask` holds; the mask broadcasts.

        `source` has the dtype of self and at least as many elements as the mask has true ones, which is not checked.
        Raises DTypeError for another dtype or a mask that is not bool.

        >>> Tensor([1, 2, 3]).masked_scatter(Tensor([True, False, True]), Tensor([7, 8])).tolist()
        [7, 2, 8]
        """
        _check_mask("masked_scatter", mask)
        if source.dtype is not self.dtype:
            raise DTypeError("masked_scatter: source", expected=self.dtype.name, found=source.dtype.name)
        x: Any = self
        m: Any = mask
        s: Any = source
        shape = np.broadcast_shapes(x.shape, m.shape)
        x, m = x.expand(*shape), m.expand(*shape)
        if 0 in shape or 0 in s.shape:
            out: Self = x.clone()
            return out
        at = m.reshape(-1).long().cumsum(0) - 1
        chosen = s.reshape(-1)[at.clamp(0, s.numel() - 1)].reshape(*shape)
        return m.where(chosen, x)

    def unique(
        self, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:
        """Return the distinct elements in ascending order, or with `dim` the distinct slices along an axis.

        With `return_inverse` and `return_counts` a tuple has also the index of each element in the result, and how
        often each element is there. The result is sorted, whatever `sorted` says, and has no gradient. Each nan is
        distinct. The call computes self; it raises JitError inside a captured step.

        >>> values, counts = Tensor([3, 1, 3]).unique(return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([1, 3], [1, 2])
        """
        x = _values(self)
        if dim is None:
            out, at, count = np.unique(x, return_inverse=True, return_counts=True, equal_nan=False)
            at = at.reshape(x.shape)
        else:
            a = self._axis(dim)
            if x.shape[a] == 0 or x.size == 0:
                raise ShapeError("unique of an empty axis", expected="elements", found=x.shape)
            out, at, count = np.unique(x, return_inverse=True, return_counts=True, axis=a)
            at = at.reshape(-1)
        return _chosen(self, out, (at, return_inverse), (count, return_counts))

    def unique_consecutive(
        self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:
        """Return the elements that differ from the one before, or with `dim` the slices along an axis that do.

        With `return_inverse` and `return_counts` a tuple has also the index of the run of each element, and the length
        of each run. There is no gradient. The call computes self; it raises JitError inside a captured step.

        >>> Tensor([1, 1, 2, 2, 1]).unique_consecutive().tolist()
        [1, 2, 1]
        """
        x = _values(self)
        a = 0 if dim is None else self._axis(dim)
        rows = x.reshape(-1) if dim is None else np.moveaxis(x, a, 0)
        differs = rows[1:] != rows[:-1]
        starts = np.ones(len(rows), bool)
        starts[1:] = differs.reshape(len(differs), -1).any(1) if len(differs) else False
        first = np.nonzero(starts)[0]
        at, counts = starts.cumsum() - 1, np.diff(np.append(first, len(rows)))
        out = rows[first] if dim is None else np.moveaxis(rows[first], 0, a)
        at = at.reshape(x.shape) if dim is None else at
        return _chosen(self, out, (at, return_inverse), (counts, return_counts))


# ---- values ----------------------------------------------------------------------------------------------------------
def true_positions(t: Any) -> tuple[np.ndarray, ...]:
    """Return the indices of the elements of the Tensor `t` that are not zero, a vector for each axis. Computes `t`."""
    values = (t if t.dtype is dtypes.bool else t.bool()).numpy()
    return tuple(np.nonzero(np.atleast_1d(values)))


def without_masks(t: Any, key: Any) -> Any:
    """Return `key` with each bool tensor, and each bool array of several axes, replaced by the positions of its true
    elements; other keys are returned as they are. Computes the tensors.

    Raises ShapeError for a mask that does not have the sizes of the axes of `t` that it selects from.
    """
    items = key if isinstance(key, tuple) else (key,)
    if not any(map(_is_mask, items)):
        return key
    axes = sum(_axes_of(item) for item in items)
    out: list[Any] = []
    axis = 0
    for item in items:
        if not _is_mask(item):
            out.append(item)
            axis += t.ndim - axes if item is Ellipsis else _axes_of(item)
            continue
        if tuple(item.shape) != tuple(t.shape[axis : axis + item.ndim]):
            raise ShapeError(
                "the mask does not fit", expected=t.shape[axis : axis + item.ndim] or "fewer axes", found=item.shape
            )
        found = true_positions(item) if isinstance(item, TensorBase) else np.nonzero(item)
        out += [_on_device_of(t, v) for v in found]
        axis += item.ndim
    return tuple(out)


def _is_mask(item: Any) -> bool:
    """Whether the item of a key is a bool tensor with axes or a bool array of several axes."""
    if isinstance(item, TensorBase):
        return item.dtype is dtypes.bool and item.ndim > 0
    return is_array(item) and item.dtype.kind == "b" and item.ndim > 1


def _axes_of(item: Any) -> int:
    """Return the number of axes of the tensor that an item of a key selects from."""
    return item.ndim if _is_mask(item) else 0 if item is None or item is Ellipsis else 1


def _check_mask(name: str, mask: Any) -> None:
    if not isinstance(mask, TensorBase):
        raise ArgumentError(f"{name}: mask", expected="a bool Tensor", found=type(mask).__name__)
    if mask.dtype is not dtypes.bool:
        raise DTypeError(f"{name} needs a bool mask", expected="bool", found=mask.dtype.name)


def _on_device_of(t: Any, array: np.ndarray) -> Any:
    """Return an array as a Tensor on the device of `t`."""
    return t._kind(array.copy(), device=t.device)


def _values(t: Any) -> np.ndarray:
    """Compute `t` and return its values; floats narrower than float32 as float32."""
    return (t.detach().float() if t.dtype.is_float and t.dtype.bits < 32 else t.detach()).numpy()


def _chosen(t: Any, values: np.ndarray, *optional: tuple[np.ndarray, bool]) -> Any:
    """Return `values` in the dtype of `t`, in a tuple with those of the int64 arrays that are asked for."""
    out = [_on_device_of(t, values).cast(t.dtype)]
    out += [_on_device_of(t, array.astype(np.int64)) for array, is_wanted in optional if is_wanted]
    return out[0] if len(out) == 1 else tuple(out)


__all__ = ["MasksMixin", "true_positions", "without_masks"]
