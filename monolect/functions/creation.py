"""Functions that make tensors, convert to them and ask about dtypes, and random numbers, made from the methods of
Tensor; written by `make surface`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from monolect.base.dtype import DType
from monolect.base.numpy import np
from monolect.tensor.base import Data, DeviceLike, DTypeLike, Number, Size, Sizes, TensorLike
from monolect.tensor.draws.generator import Generator
from monolect.tensor.guard import guarded
from monolect.tensor.methods.arrangement.conversions import FloatLimits, IntLimits
from monolect.tensor.methods.in_place import into
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
def as_tensor(data: Data, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of `data`, or `data` itself where it is a tensor of that dtype on that device.

    >>> monolect.as_tensor([1, 2]).tolist()
    [1, 2]
    """
    return Tensor.as_tensor(data, dtype, device)


@guarded
def asarray(
    obj: Data,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor of `obj`, or `obj` itself where it is a tensor of that dtype on that device.

    `copy` True makes new memory; False raises ArgumentError where a tensor cannot be returned as it is.

    >>> x = Tensor([1, 2])
    >>> monolect.asarray(x) is x, monolect.asarray([1, 2], dtype=dtypes.float32).tolist()
    (True, [1.0, 2.0])
    """
    return Tensor.asarray(obj, dtype=dtype, device=device, copy=copy, requires_grad=requires_grad)


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
def binomial(
    count: Tensor, prob: TensorLike, *, generator: Generator | None = None, key: Tensor | None = None
) -> Tensor:
    """Return a number of successes in each element's number of trials, of probability `prob`, in this dtype.

    `count` holds whole numbers as floats and broadcasts with `prob`. Means below 10 of the rarer outcome take the
    inverse of the distribution function, others a rejection sampler of 14 proposals. The gradient is 0. Values of
    tensors are not checked; wrong ones give numbers without meaning. Raises DTypeError for integers, ArgumentError
    for a number outside of [0, 1].

    >>> monolect.binomial(Tensor([3.0, 5.0]), Tensor([0.0, 1.0])).tolist()
    [0.0, 5.0]
    """
    return count.binomial(prob, generator=generator, key=key)


@guarded
def can_cast(from_: DTypeLike, to: DTypeLike) -> bool:
    """Return whether an in-place operation may write a result of dtype `from_` to one of `to`: no floats to integers,
    no numbers to bools.

    >>> monolect.can_cast(dtypes.int64, dtypes.int8), monolect.can_cast(dtypes.float32, dtypes.int64)
    (True, False)
    """
    return Tensor.can_cast(from_, to)


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
def detach(input: Tensor) -> Tensor:
    """Return a view of all elements through which no gradient flows.

    >>> x = Tensor([3.0], requires_grad=True)
    >>> _ = (x * monolect.detach(x)).sum().backward()
    >>> x.grad.tolist()  # not 6
    [3.0]
    """
    return input.detach()


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
def finfo(type: DTypeLike | None = None) -> FloatLimits:
    """Return the limits of a float dtype, by default float32. Raises DTypeError for another dtype.

    >>> monolect.finfo(dtypes.float16).max, monolect.finfo().eps == 2.0**-23
    (65504.0, True)
    """
    return Tensor.finfo(type)


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
def frombuffer(
    buffer: bytes | bytearray | memoryview,
    *,
    dtype: DTypeLike,
    count: int = -1,
    offset: int = 0,
    requires_grad: bool = False,
) -> Tensor:
    """Return a vector of the bytes of `buffer` from `offset` on, as `count` numbers of `dtype`, or all for -1.

    It shares the memory where that is possible. Raises ArgumentError where the bytes do not suffice.

    >>> monolect.frombuffer(bytearray([1, 0, 2, 0]), dtype=dtypes.int16).tolist()
    [1, 2]
    """
    return Tensor.frombuffer(buffer, dtype=dtype, count=count, offset=offset, requires_grad=requires_grad)


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
def iinfo(type: DTypeLike) -> IntLimits:
    """Return the limits of an integer dtype. Raises DTypeError for another dtype.

    >>> monolect.iinfo(dtypes.int8).min
    -128
    """
    return Tensor.iinfo(type)


@guarded
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a float dtype.

    >>> monolect.is_floating_point(Tensor([1.0])), monolect.is_floating_point(Tensor([1]))
    (True, False)
    """
    return input.is_floating_point()


@guarded
def is_tensor(obj: object) -> bool:
    """Return whether `obj` is a Tensor.

    >>> monolect.is_tensor(Tensor(1)), monolect.is_tensor(1)
    (True, False)
    """
    return Tensor.is_tensor(obj)


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
def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return `steps` powers of `base`, with evenly spaced exponents from `start` to `end`, both included.

    They are float32 unless `dtype` is given. Raises ArgumentError for negative `steps`.

    >>> monolect.logspace(0, 2, 3).tolist()
    [1.0, 10.0, 100.0]
    """
    return Tensor.logspace(start, end, steps, base, dtype=dtype, device=device, requires_grad=requires_grad)


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
    *args: Sizes | TensorLike,
    size: Sizes | None = None,
    mean: TensorLike = 0.0,
    std: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Return normal numbers of this mean and standard deviation: `normal(2, 3, mean=1.0)`, or as in PyTorch
    `normal(1.0, 0.5, (2, 3))`, `normal(1.0, 0.5, size=(2, 3))`, and `normal(mean, std)` of tensors.

    Positional ints are sizes, unless a tuple follows two numbers. Without a size the shape is that of `mean` and
    `std`, broadcast; the dtype is theirs, or float32. No gradient flows to them, as in PyTorch;
    `monolect.random.normal` passes one on. Raises ArgumentError for a negative number as `std` and for numbers
    without a size, ShapeError for tensors that do not broadcast to `size`.

    >>> monolect.normal(3, mean=2.0, std=0.1).shape, monolect.normal(2.0, 0.1, (2, 3)).shape
    ((3,), (2, 3))
    """
    return Tensor.normal(
        *args,
        size=size,
        mean=mean,
        std=std,
        dtype=dtype,
        device=device,
        requires_grad=requires_grad,
        generator=generator,
        key=key,
    )


@guarded
def numel(input: Tensor) -> Any:
    """Return the number of elements, an int, or an index node for symbolic sizes.

    >>> monolect.numel(Tensor.zeros(2, 3))
    6
    """
    return input.numel()


@guarded
def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Return int64 of shape (*shape, num_classes): 1 at the class that each element names, 0 elsewhere.

    With -1 the number of classes is the largest element plus 1: the call computes `input`, and raises JitError
    inside a captured step. Raises DTypeError for floats and bools, ArgumentError for another num_classes below 1
    and for -1 with no elements or one below 0, and under `CHECK_BOUNDS=1` IndexRangeError for a class outside [0,
    num_classes).

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
def promote_types(type1: DTypeLike, type2: DTypeLike) -> DType:
    """Return the dtype of a result of operands of two dtypes.

    >>> monolect.promote_types(dtypes.int32, dtypes.float16)
    dtypes.float16
    """
    return Tensor.promote_types(type1, type2)


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
def result_type(tensor: Tensor, other: TensorLike) -> DType:
    """Return the dtype of `tensor + other`, where `other` is a tensor or a number.

    >>> monolect.result_type(Tensor([1]), 1.5), monolect.result_type(Tensor([1], dtype=dtypes.int8), Tensor(2))
    (dtypes.float32, dtypes.int8)
    """
    return tensor.result_type(other)


@guarded
def scalar_tensor(
    s: Number, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
) -> Tensor:
    """Return a tensor without axes that holds the number `s`, float32 unless `dtype` is given.

    >>> monolect.scalar_tensor(3).item()
    3.0
    """
    return Tensor.scalar_tensor(s, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Return this tensor with zeros above the diagonal number `diagonal` of its last two axes.

    Diagonal 0 is the main one, 1 the one above it. Raises ShapeError for fewer than 2 axes.

    >>> monolect.tril(Tensor.ones(2, 3)).tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    """
    return into(out, "tril", input.tril(diagonal))


@guarded
def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Return this tensor with zeros below the diagonal number `diagonal` of its last two axes.

    Diagonal 0 is the main one, 1 the one above it. Raises ShapeError for fewer than 2 axes.

    >>> monolect.triu(Tensor.ones(2, 3), 1).tolist()
    [[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    """
    return into(out, "triu", input.triu(diagonal))


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


__all__ = [
    "arange", "as_tensor", "asarray", "bernoulli", "binomial", "can_cast", "clone", "detach", "empty", "empty_like",
    "eye", "finfo", "from_dlpack", "from_file", "from_numpy", "frombuffer", "full", "full_like", "iinfo",
    "is_floating_point", "is_tensor", "linspace", "logspace", "manual_seed", "multinomial", "normal", "numel",
    "one_hot", "ones", "ones_like", "poisson", "promote_types", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "randperm", "result_type", "scalar_tensor", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip
