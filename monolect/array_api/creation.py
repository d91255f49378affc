"""New arrays, by the signatures of the array API.

Invariant: without `dtype`, Python's bools give bool, ints int64, floats float32, and what holds no number float32.
"""

from __future__ import annotations

from typing import Any

from monolect.array_api.operands import array_of
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError
from monolect.base.numpy import np
from monolect.tensor.base import Data, DeviceLike, DTypeLike, Number
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

Shape = int | tuple[int, ...]


@guarded
def arange(
    start: Number,
    /,
    stop: Number | None = None,
    step: Number = 1,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Return the numbers from `start` (0 if `stop` is None) to below `stop` in distances of `step`.

    >>> array_api.arange(4).tolist(), array_api.arange(1, 6, 2).tolist()
    ([0, 1, 2, 3], [1, 3, 5])
    """
    first, end = (0, start) if stop is None else (start, stop)
    if (end - first) / step <= 0:
        kind = dtype or (dtypes.float32 if float in map(type, (first, end, step)) else dtypes.int64)
        return Tensor.zeros(0, dtype=kind, device=device)
    return Tensor.arange(first, end, step, dtype=dtype, device=device)


@guarded
def asarray(
    obj: Data, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor:
    """Return `obj` as an array: a Tensor, a number, nested sequences, or an array of NumPy or another library.

    With `copy` True the memory is new, with False it is shared or ArgumentError is raised, with None it is shared where
    it can be. A NumPy number keeps its dtype.

    >>> x = array_api.asarray([[1, 2], [3, 4]])
    >>> array_api.asarray(x) is x, array_api.asarray(x, dtype=dtypes.float64).dtype
    (True, dtypes.float64)
    """
    x: Any = np.asarray(obj) if isinstance(obj, np.generic) else obj
    if isinstance(x, Tensor):
        y = x.to(device=device, dtype=dtype)
        if copy is False and y is not x:
            raise ArgumentError("asarray: another dtype or device is a copy", expected="copy=None", found="copy=False")
        return y.clone() if copy and y is x else y
    is_shared = isinstance(x, np.ndarray) or hasattr(type(x), "__dlpack__")
    if copy is False and not is_shared:
        raise ArgumentError("asarray: this is copied", expected="an array, or copy=None", found=type(x).__name__)
    if isinstance(x, np.ndarray) and copy:
        x = x.copy()
    if is_shared and not isinstance(x, np.ndarray):
        y = Tensor.from_dlpack(x, copy=copy)
        return asarray(y, dtype=dtype, device=device, copy=False if copy is False else None)
    y = Tensor(x, device=device, dtype=dtype)
    if copy is False and y.dtype.numpy != x.dtype:
        raise ArgumentError("asarray: another dtype is a copy", expected="copy=None", found="copy=False")
    return y


@guarded
def empty(shape: Shape, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return an array of any values.

    >>> array_api.empty((2, 3)).shape
    (2, 3)
    """
    return Tensor.empty(shape, dtype=dtype, device=device)


@guarded
def empty_like(x: Tensor, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return an array of any values with the shape and, by default, the dtype and device of `x`.

    >>> array_api.empty_like(Tensor([1, 2])).dtype
    dtypes.int64
    """
    return array_of(x, "empty_like").empty_like(dtype=dtype, device=device)


@guarded
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Return a matrix with ones on the diagonal `k`, above the main one for k > 0, and zeros elsewhere.

    >>> array_api.eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    rows = Tensor.arange(n_rows, device=device)[:, None]
    cols = Tensor.arange(n_rows if n_cols is None else n_cols, device=device)
    return (rows + k == cols).to(dtype=dtypes.float32 if dtype is None else dtype)


@guarded
def full(
    shape: Shape, fill_value: Number | Tensor, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Return an array of the number `fill_value`.

    >>> array_api.full((2,), 7).tolist(), array_api.full(2, True).dtype
    ([7, 7], dtypes.bool)
    """
    return Tensor.full(shape, fill_value, dtype=dtype, device=device)


@guarded
def full_like(
    x: Tensor, /, fill_value: Number, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Return an array of the number `fill_value` with the shape and, by default, the dtype and device of `x`.

    >>> array_api.full_like(Tensor([1.0, 2.0]), 7).tolist()
    [7.0, 7.0]
    """
    return array_of(x, "full_like").full_like(fill_value, dtype=dtype, device=device)


@guarded
def linspace(
    start: Number,
    stop: Number,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Return `num` numbers in equal distances from `start` to `stop`, or to before `stop` without `endpoint`.

    >>> array_api.linspace(0, 1, 4, endpoint=False).tolist()
    [0.0, 0.25, 0.5, 0.75]
    """
    kind = dtypes.float32 if dtype is None else dtype
    if endpoint:
        return Tensor.linspace(start, stop, num, dtype=kind, device=device)
    return Tensor.linspace(start, stop, num + 1, dtype=kind, device=device)[:num]


@guarded
def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of a grid over vectors: with "xy" the first axis is that of the second vector, with "ij"
    that of the first. Each keeps its dtype.

    >>> [x.tolist() for x in array_api.meshgrid(Tensor([1, 2]), Tensor([5, 6, 7]))]
    [[[1, 2], [1, 2], [1, 2]], [[5, 5], [6, 6], [7, 7]]]
    """
    if not arrays:
        return []
    return [*arrays[0].meshgrid(*arrays[1:], indexing=indexing if len(arrays) > 1 else "ij")]


@guarded
def ones(shape: Shape, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return an array of ones.

    >>> array_api.ones((2,), dtype=dtypes.int8).tolist()
    [1, 1]
    """
    return Tensor.ones(shape, dtype=dtype, device=device)


@guarded
def ones_like(x: Tensor, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return ones with the shape and, by default, the dtype and device of `x`.

    >>> array_api.ones_like(Tensor([5.0, 6.0])).tolist()
    [1.0, 1.0]
    """
    return array_of(x, "ones_like").ones_like(dtype=dtype, device=device)


@guarded
def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return `x` with zeros above the diagonal `k` of its last two axes.

    >>> array_api.tril(Tensor([[1, 2], [3, 4]])).tolist()
    [[1, 0], [3, 4]]
    """
    return array_of(x, "tril").tril(k)


@guarded
def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return `x` with zeros below the diagonal `k` of its last two axes.

    >>> array_api.triu(Tensor([[1, 2], [3, 4]]), k=1).tolist()
    [[0, 2], [0, 0]]
    """
    return array_of(x, "triu").triu(k)


@guarded
def zeros(shape: Shape, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return an array of zeros.

    >>> array_api.zeros((2,)).tolist()
    [0.0, 0.0]
    """
    return Tensor.zeros(shape, dtype=dtype, device=device)


@guarded
def zeros_like(x: Tensor, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return zeros with the shape and, by default, the dtype and device of `x`.

    >>> array_api.zeros_like(Tensor([5.0, 6.0])).tolist()
    [0.0, 0.0]
    """
    return array_of(x, "zeros_like").zeros_like(dtype=dtype, device=device)


__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]
