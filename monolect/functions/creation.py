"""Functions that make and join tensors, and random numbers, made from the methods of Tensor; written by `make
surface`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from monolect.base.numpy import np
from monolect.tensor.base import DeviceLike, DTypeLike, Number, Size, Sizes, TensorLike
from monolect.tensor.draws.generator import Generator
from monolect.tensor.guard import guarded
from monolect.tensor.methods.in_place import into
from monolect.tensor.methods.movement import OneOrMore
from monolect.tensor.tensor import Tensor

if TYPE_CHECKING:
    from monolect.tensor.base import Shared


@guarded
def arange(
    start: Number | Size,
    end: Number | Size | None = None,
    step: Number | Size = 1,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the 1-d tensor start, start + step, ... below `end` (above it for a negative step).

    With one argument it counts from 0. The dtype is int64 if all arguments are ints, else float32. `end` may be a
    symbolic size if start is 0 and step is 1. Raises ArgumentError for a step of 0.

    >>> monolect.arange(2, 10, 3).tolist()
    [2, 5, 8]
    """
    return Tensor.arange(start, end, step, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def atleast_1d(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> Any:
    """Return `tensors` with an axis if it has none; of several tensors, a tuple.

    >>> monolect.atleast_1d(Tensor(1)).shape
    (1,)
    """
    return Tensor.atleast_1d(tensors, *others)


@guarded
def atleast_2d(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> Any:
    """Return `tensors` with two axes or more, a vector as a row; of several tensors, a tuple.

    >>> monolect.atleast_2d(Tensor([1, 2])).shape
    (1, 2)
    """
    return Tensor.atleast_2d(tensors, *others)


@guarded
def atleast_3d(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> Any:
    """Return `tensors` with three axes or more, a matrix with a last axis of size 1; of several tensors, a tuple.

    >>> monolect.atleast_3d(Tensor([1, 2])).shape
    (1, 2, 1)
    """
    return Tensor.atleast_3d(tensors, *others)


@guarded
def bernoulli(
    input: Tensor,
    p: float | None = None,
    *,
    generator: Generator | None = None,
    key: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return 1 with the probability that each element gives, or with `p` if it is given, else 0, in this dtype.

    Raises DTypeError for integers unless `p` is given, ArgumentError for a `p` outside of [0, 1].

    >>> monolect.bernoulli(Tensor([0.0, 1.0])).tolist()
    [0.0, 1.0]
    """
    return into(out, "bernoulli", input.bernoulli(p, generator=generator, key=key))


@guarded
def block_diag(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> Tensor:
    """Return a matrix with the given matrices on its diagonal and zeros elsewhere; vectors are rows.

    Raises ShapeError for more than two axes.

    >>> monolect.block_diag(Tensor([[1]]), Tensor([[2, 3]])).tolist()
    [[1, 0, 0], [0, 2, 3]]
    """
    return Tensor.block_diag(tensors, *others)


@guarded
def broadcast_shapes(*shapes: Sizes) -> tuple[int, ...]:
    """Return the common shape that tensors of `shapes` broadcast to. Raises ShapeError if there is none.

    >>> monolect.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return Tensor.broadcast_shapes(*shapes)


@guarded
def broadcast_tensors(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors expanded to their common shape. Raises ShapeError if there is none.

    >>> [t.shape for t in monolect.broadcast_tensors([Tensor([1, 2]), Tensor([[1], [2]])])]
    [(2, 2), (2, 2)]
    """
    return Tensor.broadcast_tensors(tensors, *others)


@guarded
def cartesian_prod(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> Tensor:
    """Return all combinations of one element of each vector, a row each; of one vector, the vector.

    Raises ShapeError for a tensor that is no vector.

    >>> monolect.cartesian_prod([Tensor([1, 2]), Tensor([5, 6])]).tolist()
    [[1, 5], [1, 6], [2, 5], [2, 6]]
    """
    return Tensor.cartesian_prod(tensors, *others)


@guarded
def clone(input: Tensor) -> Tensor:
    """Return a copy that later assignments to this tensor do not change.

    >>> a = Tensor([1.0, 2.0])
    >>> b = monolect.clone(a)
    >>> a[0] = 9.0
    >>> b.tolist()
    [1.0, 2.0]
    """
    return input.clone()


@guarded
def column_stack(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor], out: Tensor | None = None) -> Tensor:
    """Return tensors concatenated along axis 1; vectors and numbers are columns.

    >>> monolect.column_stack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    return into(out, "column_stack", Tensor.column_stack(tensors, *others))


@guarded
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all combinations of `r` elements of `input`, a vector, a row each, in the order of itertools.

    Raises ShapeError for another rank, ArgumentError for a negative `r`.

    >>> monolect.combinations(Tensor([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    return input.combinations(r, with_replacement)


@guarded
def detach(input: Tensor) -> Tensor:
    """Return a view of all elements through which no gradient flows.

    >>> x = Tensor([3.0], requires_grad=True)
    >>> _ = (x * monolect.detach(x)).sum().backward()
    >>> x.grad.tolist()  # not 6
    [3.0]
    """
    return input.detach()


@guarded
def dstack(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor], out: Tensor | None = None) -> Tensor:
    """Return tensors concatenated along axis 2, after they have got three axes.

    >>> monolect.dstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """
    return into(out, "dstack", Tensor.dstack(tensors, *others))


@guarded
def empty(
    *size: Sizes, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
) -> Tensor:
    """Return an uninitialized tensor of shape `size`, float32 unless `dtype` is given; assign to it before reading it.

    >>> t = monolect.empty(2)
    >>> t.assign(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """
    return Tensor.empty(*size, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def empty_like(
    input: Tensor, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
) -> Tensor:
    """Return an uninitialized tensor of this shape, to be assigned to before it is read; dtype and device default to
    this tensor's.

    >>> monolect.empty_like(Tensor.ones(2, 3)).shape
    (2, 3)
    """
    return input.empty_like(dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return an (n, m) matrix with ones on the diagonal, zeros elsewhere; m defaults to n, the dtype to float32.

    >>> monolect.eye(2, 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    return Tensor.eye(n, m, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def from_dlpack(ext_tensor: Shared, *, device: DeviceLike | None = None, copy: bool | None = None) -> Tensor:
    """Return a Tensor on the memory of another library's tensor, so later writes of that library are visible.

    It copies if `copy` is True, or if it is None and the strides are not those of a row-major array with permuted,
    flipped or repeated axes. With False, a necessary copy raises ArgumentError, as does an `ext_tensor` without
    DLPack. `device`: the device of the result; None is that of the memory. Raises DeviceError for memory of another
    device.

    >>> import numpy as np
    >>> a = np.zeros(3, np.int64)
    >>> t = monolect.from_dlpack(a)
    >>> a[1] = 5
    >>> t.tolist()
    [0, 5, 0]
    """
    return Tensor.from_dlpack(ext_tensor, device=device, copy=copy)


@guarded
def from_file(path: str | os.PathLike[str]) -> Tensor:
    """Map a file and return its bytes as a uint8 tensor of shape (n,) on the device `disk:path`.

    A slice that is moved to another device, and bitcast there, reads only its own pages. Raises FileFormatError
    where the file is missing or empty.

    >>> import tempfile, os
    >>> with tempfile.NamedTemporaryFile(delete=False) as f:
    ...     _ = f.write(bytes(range(16)))
    >>> monolect.from_file(f.name)[4:8].to("cpu").tolist()
    [4, 5, 6, 7]
    >>> os.unlink(f.name)
    """
    return Tensor.from_file(path)


@guarded
def from_numpy(array: np.ndarray) -> Tensor:
    """Return a tensor of a NumPy array; it shares the array's memory where layout and alignment allow, else the values
    are copied.

    >>> a = np.zeros(16, np.float32)
    >>> t = monolect.from_numpy(a)
    >>> a[0] = 7
    >>> t[0].item()
    7.0
    """
    return Tensor.from_numpy(array)


@guarded
def full(
    size: Sizes,
    fill_value: TensorLike,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor of shape `size` (an int or a tuple) filled with `fill_value`.

    `fill_value` is a number, or a tensor that broadcasts to `size`. The dtype defaults to that of the value: bool,
    int64 or float32 for a Python number. An int wraps to a given integer dtype. Raises ShapeError for a negative
    size, DTypeError for an int outside of int64, or outside of all integer dtypes if `dtype` is given.

    >>> monolect.full((2, 2), 7).tolist()
    [[7, 7], [7, 7]]
    """
    return Tensor.full(size, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def full_like(
    input: Tensor,
    fill_value: TensorLike,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor of this shape filled with `fill_value`; dtype and device default to this tensor's.

    >>> monolect.full_like(Tensor.ones(2, 3), 7).shape
    (2, 3)
    """
    return input.full_like(fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def hstack(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor], out: Tensor | None = None) -> Tensor:
    """Return tensors concatenated along axis 1, vectors along axis 0; numbers become vectors.

    >>> monolect.hstack([Tensor([1, 2]), Tensor([3])]).tolist()
    [1, 2, 3]
    """
    return into(out, "hstack", Tensor.hstack(tensors, *others))


@guarded
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a float dtype.

    >>> monolect.is_floating_point(Tensor([1.0])), monolect.is_floating_point(Tensor([1]))
    (True, False)
    """
    return input.is_floating_point()


@guarded
def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return `steps` evenly spaced numbers from `start` to `end`, both included; float32 unless `dtype` is given.

    For an integer dtype both ends are rounded toward zero first, as in PyTorch, and so is each exact value.
    PyTorch's values may differ by one where its float steps round. Raises ArgumentError for negative `steps`.

    >>> monolect.linspace(0, 1, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return Tensor.linspace(start, end, steps, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def manual_seed(seed: int) -> None:
    """Restart the random sequence of every device from `seed` alone. Raises ArgumentError unless it is an int.

    >>> monolect.manual_seed(7)
    >>> a = Tensor.rand(3).tolist()
    >>> monolect.manual_seed(7)
    >>> a == Tensor.rand(3).tolist()
    True
    """
    Tensor.manual_seed(seed)


@guarded
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    key: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Draw indices by the weights on the last axis: (classes,) or (n, classes) -> (..., num_samples), int64.

    Weights need not add up to 1. Without `replacement` no index comes twice, in the order of an exponential race:
    the next index is drawn by the weights that are left. Where fewer than `num_samples` weights are above 0, those
    of weight 0 follow. Raises ArgumentError where num_samples is below 1, or above the number of classes without
    replacement. Raises ShapeError for more than 2 axes, DTypeError for integers.

    >>> monolect.multinomial(Tensor([0.0, 1.0, 0.0]), 1).tolist()
    [1]
    >>> sorted(monolect.multinomial(Tensor([1.0, 0.0, 5.0]), 2).tolist())
    [0, 2]
    """
    return into(out, "multinomial", input.multinomial(num_samples, replacement, generator=generator, key=key))


@guarded
def normal(
    *size: Sizes,
    mean: float = 0.0,
    std: float = 1.0,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Return normal numbers of this mean and standard deviation, of shape `size`, float32 unless `dtype` is given.

    Raises ArgumentError for a negative `std`.

    >>> monolect.normal(3, mean=2.0, std=0.1).shape
    (3,)
    """
    return Tensor.normal(
        *size, mean=mean, std=std, dtype=dtype, device=device, requires_grad=requires_grad, generator=generator, key=key
    )


@guarded
def numel(input: Tensor) -> Any:
    """Return the number of elements, an int, or an index node for symbolic sizes.

    >>> monolect.numel(Tensor.zeros(2, 3))
    6
    """
    return input.numel()


@guarded
def one_hot(input: Tensor, num_classes: int) -> Tensor:
    """Return int64 of shape (*shape, num_classes): 1 at the class that each element names, 0 elsewhere.

    Raises DTypeError for floats and bools, ArgumentError for num_classes below 1, and under `CHECK_BOUNDS=1`
    IndexRangeError for a class outside [0, num_classes).

    >>> nn.functional.one_hot(Tensor([1, 0]), 3).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """
    return input.one_hot(num_classes)


@guarded
def ones(
    *size: Sizes, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
) -> Tensor:
    """Return ones of shape `size` (ints or one tuple), float32 unless `dtype` is given.

    Raises ShapeError for a negative size.

    >>> monolect.ones(2, dtype=dtypes.int64).tolist()
    [1, 1]
    """
    return Tensor.ones(*size, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def ones_like(
    input: Tensor, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
) -> Tensor:
    """Return ones of this shape; dtype and device default to this tensor's.

    >>> monolect.ones_like(Tensor([5, 6]), dtype=dtypes.float32).tolist()
    [1.0, 1.0]
    """
    return input.ones_like(dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def poisson(input: Tensor, *, generator: Generator | None = None, key: Tensor | None = None) -> Tensor:
    """Return a number of the Poisson distribution for each element, which is its rate, in this dtype.

    Rates below 10 take the inverse of the distribution function, others a rejection sampler of 10 proposals. The
    gradient is 0. Rates are not checked; a negative one gives a number without meaning. Raises DTypeError for
    integers.

    >>> monolect.poisson(Tensor([0.0, 0.0])).tolist()
    [0.0, 0.0]
    """
    return input.poisson(generator=generator, key=key)


@guarded
def rand(
    *size: Sizes,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Return uniform numbers in [0, 1) of shape `size`, float32 unless `dtype` is given.

    Raises DTypeError for other dtypes than float64, float32, float16 and bfloat16, ShapeError for a negative size.

    >>> x = monolect.rand(2, 3)
    >>> x.shape, bool(((x >= 0) & (x < 1)).all().item())
    ((2, 3), True)
    """
    return Tensor.rand(*size, dtype=dtype, device=device, requires_grad=requires_grad, generator=generator, key=key)


@guarded
def rand_like(
    input: Tensor,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Return uniform numbers in [0, 1) of this shape; dtype and device default to this tensor's.

    Raises DTypeError for integers.

    >>> monolect.rand_like(Tensor.zeros(2, 3)).shape
    (2, 3)
    """
    return input.rand_like(dtype=dtype, device=device, requires_grad=requires_grad, generator=generator, key=key)


@guarded
def randint(
    low: int,
    high: int | None = None,
    size: Sizes | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    generator: Generator | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Return whole numbers in [low, high) of shape `size`, int64 unless `dtype` is given.

    `randint(high, size)` starts at 0. For n <= 2**32 possible numbers, the relative error of a probability is below
    n * 2**-32. Raises ArgumentError for an empty range, DTypeError for a float `dtype`.

    >>> x = monolect.randint(3, 5, (4,))
    >>> bool(((x >= 3) & (x < 5)).all().item())
    True
    """
    return Tensor.randint(low, high, size, dtype=dtype, device=device, generator=generator, key=key)


@guarded
def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    generator: Generator | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Return whole numbers in [low, high), or in [0, low) if `high` is None, of this shape; dtype and device default
    to this tensor's.

    Raises ArgumentError for an empty range, DTypeError for a float dtype.

    >>> x = monolect.randint_like(Tensor.zeros(4, dtype=dtypes.int64), 3, 5)
    >>> set(x.tolist()) <= {3, 4}
    True
    """
    return input.randint_like(low, high, dtype=dtype, device=device, generator=generator, key=key)


@guarded
def randn(
    *size: Sizes,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Return normal numbers (mean 0, variance 1) of shape `size`, float32 unless `dtype` is given.

    Raises DTypeError for other dtypes than float64, float32, float16 and bfloat16, ShapeError for a negative size.

    >>> monolect.randn(4).shape
    (4,)
    """
    return Tensor.randn(*size, dtype=dtype, device=device, requires_grad=requires_grad, generator=generator, key=key)


@guarded
def randn_like(
    input: Tensor,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Return normal numbers (mean 0, variance 1) of this shape; dtype and device default to this tensor's.

    Raises DTypeError for integers.

    >>> monolect.randn_like(Tensor.zeros(2, dtype=dtypes.float64)).dtype
    dtypes.float64
    """
    return input.randn_like(dtype=dtype, device=device, requires_grad=requires_grad, generator=generator, key=key)


@guarded
def randperm(
    n: int,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    generator: Generator | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Return the numbers 0..n-1 in random order, int64 of shape (n,) unless `dtype` is given.

    The result is the rank of n random keys, found by n * n comparisons up to n = 16384, else by sorting. Raises
    ArgumentError for a negative n, DTypeError for a `dtype` that does not hold all n numbers.

    >>> sorted(monolect.randperm(5).tolist())
    [0, 1, 2, 3, 4]
    """
    return Tensor.randperm(n, dtype=dtype, device=device, generator=generator, key=key)


@guarded
def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Return this tensor with zeros above the diagonal number `diagonal` of its last two axes.

    Diagonal 0 is the main one, 1 the one above it. Raises ShapeError for fewer than 2 axes.

    >>> monolect.tril(Tensor.ones(2, 3)).tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    """
    return into(out, "tril", input.tril(diagonal))


@guarded
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Return the row and column numbers of the lower triangle of a matrix, shape (2, n), as int64 or `dtype`.

    The triangle ends at the diagonal `offset`.

    >>> monolect.tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return Tensor.tril_indices(row, col, offset, dtype=dtype, device=device)


@guarded
def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Return this tensor with zeros below the diagonal number `diagonal` of its last two axes.

    Diagonal 0 is the main one, 1 the one above it. Raises ShapeError for fewer than 2 axes.

    >>> monolect.triu(Tensor.ones(2, 3), 1).tolist()
    [[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    """
    return into(out, "triu", input.triu(diagonal))


@guarded
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Return the row and column numbers of the upper triangle of a matrix, shape (2, n), as int64 or `dtype`.

    The triangle begins at the diagonal `offset`.

    >>> monolect.triu_indices(2, 2).tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    return Tensor.triu_indices(row, col, offset, dtype=dtype, device=device)


@guarded
def unravel_index(indices: Tensor, shape: Sizes) -> tuple[Tensor, ...]:
    """Return the index along each axis of a tensor of `shape` for the row-major positions in `indices`.

    Raises ArgumentError unless `indices` holds integers.

    >>> [t.tolist() for t in monolect.unravel_index(Tensor([5, 2]), (2, 3))]
    [[1, 0], [2, 2]]
    """
    return indices.unravel_index(shape)


@guarded
def vstack(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor], out: Tensor | None = None) -> Tensor:
    """Return tensors concatenated along axis 0; vectors are rows.

    >>> monolect.vstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return into(out, "vstack", Tensor.vstack(tensors, *others))


@guarded
def zeros(
    *size: Sizes, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
) -> Tensor:
    """Return zeros of shape `size` (ints or one tuple), float32 unless `dtype` is given.

    Raises ShapeError for a negative size.

    >>> monolect.zeros(2, 2).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    return Tensor.zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def zeros_like(
    input: Tensor, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
) -> Tensor:
    """Return zeros of this shape; dtype and device default to this tensor's.

    >>> monolect.zeros_like(Tensor([1, 2])).tolist()
    [0, 0]
    """
    return input.zeros_like(dtype=dtype, device=device, requires_grad=requires_grad)


row_stack = vstack


__all__ = [
    "arange", "atleast_1d", "atleast_2d", "atleast_3d", "bernoulli", "block_diag", "broadcast_shapes",
    "broadcast_tensors", "cartesian_prod", "clone", "column_stack", "combinations", "detach", "dstack", "empty",
    "empty_like", "eye", "from_dlpack", "from_file", "from_numpy", "full", "full_like", "hstack", "is_floating_point",
    "linspace", "manual_seed", "multinomial", "normal", "numel", "one_hot", "ones", "ones_like", "poisson", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "row_stack", "tril", "tril_indices",
    "triu", "triu_indices", "unravel_index", "vstack", "zeros", "zeros_like",
]  # fmt: skip
