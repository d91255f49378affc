"""Methods of `Tensor` that draw random Tensors: creation, choices, and common initial weights.

What it is for: uniform, normal and integer numbers, permutations, choices. Numbers come in the order of the calls from
the device's sequence, or from `generator`, or from `key` alone.
What it is not: `monolect.random` has more distributions, and `in_place` the forms that write to a Tensor.
"""

from __future__ import annotations

from math import inf, prod, sqrt
from typing import TYPE_CHECKING, Any, Self, Unpack

from monolect.autograd import graph as g
from monolect.base.dtype import as_dtype, as_python, dtypes
from monolect.base.errors import ArgumentError, DTypeError, IRError, ShapeError
from monolect.base.numpy import is_scalar
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build
from monolect.tensor.base import DeviceLike, DTypeLike, Sizes, TensorBase, TensorLike
from monolect.tensor.draws import distributions
from monolect.tensor.draws.source import Source, float_dtype, half, shape_of
from monolect.tensor.guard import guard_methods
from monolect.tensor.random import Stream, manual_seed

_PERMUTATION_LIMIT = 1 << 14  # elements of randperm that all pairs are compared for; more are sorted

if TYPE_CHECKING:
    from typing import TypedDict

    from monolect.tensor.draws.generator import Generator

    class DrawOptions(TypedDict, total=False):
        """Keyword options that methods for initial weights pass on to `uniform` or `normal`."""

        dtype: DTypeLike | None
        device: DeviceLike | None
        requires_grad: bool
        generator: Generator | None
        key: TensorBase | None


def fans(shape: tuple[Any, ...], name: str) -> tuple[int, int]:
    """Return (fan_in, fan_out) of a weight of shape (out, in, *kernel): in and out, each times the kernel's elements.

    Raises ShapeError, which names the method `name`, for fewer than 2 axes or a symbolic size.
    """
    if len(shape) < 2 or any(n.__class__ is not int for n in shape):
        raise ShapeError(f"{name}: size", expected="ints (out, in, ...)", found=shape)
    field = prod(shape[2:])
    return shape[1] * field, shape[0] * field


def _normal_parameters(args: tuple[Any, ...], size: Any, mean: Any, std: Any) -> tuple[Any, Any, Any]:
    """Return (mean, std, shape) of a call of `normal` with the positional arguments `args`: sizes, or as in PyTorch
    mean, std and size. The shape is None if it is that of Tensors.
    """
    has_tensors = isinstance(mean, TensorBase) or isinstance(std, TensorBase)
    is_number = [isinstance(x, float | TensorBase) or (is_scalar(x) and x.dtype.kind == "f") for x in args]
    is_usual = any(is_number) or (len(args) == 3 and isinstance(args[2], tuple | list)) or (size is not None and args)
    if not is_usual:
        sizes = args if size is None else (size,)
        return mean, std, None if has_tensors and size is None and not args else shape_of(sizes, "normal")
    defaults = (0.0, 1.0, None)
    given = (mean, std, size)
    is_twice = any(x is not d and (isinstance(x, TensorBase) or x != d)
                   for x, d in zip(given[: len(args)], defaults, strict=False))  # fmt: skip
    if len(args) > 3 or is_twice:
        expected = "sizes, or mean, std and size, each once"
        raise ArgumentError("normal: arguments", expected=expected, found=f"{len(args)} without names, and others")
    mean, std, size = *args, *given[len(args) :]
    if size is None and not (isinstance(mean, TensorBase) or isinstance(std, TensorBase)):
        expected = "a size, as in normal(0.0, 1.0, (2, 3))"
        raise ArgumentError("normal: size", expected=expected, found="none, and no tensor that has one")
    return mean, std, None if size is None else shape_of((size,), "normal")


def _common_shape(tensors: list[Any]) -> tuple[Any, ...]:
    total = tensors[0].detach()
    try:
        for t in tensors[1:]:
            total = total + t.detach()
    except (IRError, ShapeError) as error:
        found = str([t.shape for t in tensors])
        raise ShapeError("normal: mean, std and size", expected="shapes that broadcast", found=found) from error
    shape: tuple[Any, ...] = total.shape
    return shape


@guard_methods
class RandomMixin(TensorBase):
    """Define the methods that draw random Tensors lazily; a base class of Tensor.

    Each draw has its own numbers, whenever it is realized.
    """

    __slots__ = ()

    @classmethod
    def manual_seed(cls, seed: int) -> None:
        """Restart the random sequence of every device from `seed` alone. Raises ArgumentError unless it is an int.

        >>> Tensor.manual_seed(7)
        >>> a = Tensor.rand(3).tolist()
        >>> Tensor.manual_seed(7)
        >>> a == Tensor.rand(3).tolist()
        True
        """
        manual_seed(seed)

    @classmethod
    def _marked(cls, t: Any, requires_grad: bool) -> Self:
        if requires_grad:
            t.requires_grad = True
        return t

    # ---- numbers -----------------------------------------------------------------------------------------------------
    @classmethod
    def rand(
        cls,
        *size: Sizes,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Return uniform numbers in [0, 1) of shape `size`, float32 unless `dtype` is given.

        Raises DTypeError for other dtypes than float64, float32, float16 and bfloat16, ShapeError for a negative size.

        >>> x = Tensor.rand(2, 3)
        >>> x.shape, bool(((x >= 0) & (x < 1)).all().item())
        ((2, 3), True)
        """
        source = Source(Stream(cls, device, generator, key), shape_of(size, "rand"), float_dtype(dtype, "rand"))
        return cls._marked(source.unit(source.dtype), requires_grad)

    @classmethod
    def randn(
        cls,
        *size: Sizes,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Return normal numbers (mean 0, variance 1) of shape `size`, float32 unless `dtype` is given.

        Raises DTypeError for other dtypes than float64, float32, float16 and bfloat16, ShapeError for a negative size.

        >>> Tensor.randn(4).shape
        (4,)
        """
        source = Source(Stream(cls, device, generator, key), shape_of(size, "randn"), float_dtype(dtype, "randn"))
        return cls._marked(source.out(source.normal()), requires_grad)

    @classmethod
    def randint(
        cls,
        low: int,
        high: int | None = None,
        size: Sizes | None = None,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Return whole numbers in [low, high) of shape `size`, int64 unless `dtype` is given.

        `randint(high, size)` starts at 0. For n <= 2**32 possible numbers, the relative error of a probability is below
        n * 2**-32. Raises ArgumentError for an empty range, DTypeError for a float `dtype`.

        >>> x = Tensor.randint(3, 5, (4,))
        >>> bool(((x >= 3) & (x < 5)).all().item())
        True
        """
        if isinstance(high, tuple | list):
            low, high, size = 0, low, high
        elif high is None:
            low, high = 0, low
        d = dtypes.int64 if dtype is None else as_dtype(dtype)
        if not d.is_int:
            raise DTypeError("randint: dtype", expected="an integer dtype", found=d.name)
        if not (isinstance(low, int) and isinstance(high, int)) or not d.min <= low < high <= d.max + 1:
            raise ArgumentError("randint: range", expected=f"low < high, both in {d.name}", found=f"[{low}, {high})")
        shape = shape_of((() if size is None else size,), "randint")
        bits = Stream(cls, device, generator, key).bits(count(shape))
        return cls._wrap(g.reshape(whole(bits, low, high - low, d), shape))

    @classmethod
    def uniform(
        cls,
        *size: Sizes,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Return uniform numbers in [low, high) of shape `size`, float32 unless `dtype` is given.

        Raises ArgumentError where low > high, or where the dtype cannot hold the difference.

        >>> Tensor.uniform(2, 2, low=-1.0, high=1.0).shape
        (2, 2)
        """
        if not isinstance(low, TensorBase) and not isinstance(high, TensorBase):
            d = dtypes.float32 if dtype is None else as_dtype(dtype)
            if not 0 <= as_python(float(high - low), d) < inf:
                expected = f"low <= high, and a difference that {d.name} holds"
                raise ArgumentError("uniform: range", expected=expected, found=(low, high))
        t = cls.rand(*size, dtype=dtype, device=device, generator=generator, key=key) * (high - low) + low
        return cls._marked(t, requires_grad)

    @classmethod
    def normal(
        cls,
        *args: Sizes | TensorLike,
        size: Sizes | None = None,
        mean: TensorLike = 0.0,
        std: TensorLike = 1.0,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Return normal numbers of this mean and standard deviation: `normal(2, 3, mean=1.0)`, or as in PyTorch
        `normal(1.0, 0.5, (2, 3))`, `normal(1.0, 0.5, size=(2, 3))`, and `normal(mean, std)` of tensors.

        Positional ints are sizes, unless a tuple follows two numbers. Without a size the shape is that of `mean` and
        `std`, broadcast; the dtype is theirs, or float32. No gradient flows to them, as in PyTorch;
        `monolect.random.normal` passes one on. Raises ArgumentError for a negative number as `std` and for numbers
        without a size, ShapeError for tensors that do not broadcast to `size`.

        >>> Tensor.normal(3, mean=2.0, std=0.1).shape, Tensor.normal(2.0, 0.1, (2, 3)).shape
        ((3,), (2, 3))
        """
        mean, std, shape = _normal_parameters(args, size, mean, std)
        given = [p for p in (mean, std) if isinstance(p, TensorBase)]
        if not isinstance(std, TensorBase) and not std >= 0:  # type: ignore[operator]
            raise ArgumentError("normal: std", expected="at least 0", found=std)
        total = _common_shape([*given, *([] if shape is None else [cls._wrap(g.full(shape, 0, dtypes.float32))])])
        if shape is not None and total != shape:
            expected, found = f"shapes that broadcast to the size {shape}", str([p.shape for p in given])
            raise ShapeError("normal: mean and std", expected=expected, found=found)
        if device is None and given and generator is None and key is None:
            device = given[0].device
        d = float_dtype(dtype, "normal", mean, std)
        t = cls.randn(*total, dtype=d, device=device, generator=generator, key=key)
        scale, offset = (p.detach().cast(d) if isinstance(p, TensorBase) else p for p in (std, mean))
        return cls._marked(t * scale + offset, requires_grad)

    def rand_like(
        self,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Return uniform numbers in [0, 1) of this shape; dtype and device default to this tensor's.

        Raises DTypeError for integers.

        >>> Tensor.zeros(2, 3).rand_like().shape
        (2, 3)
        """
        d = self.dtype if dtype is None else dtype
        made = self.rand(*self.shape, dtype=d, device=device or self.device, generator=generator, key=key)
        return self._marked(made, requires_grad)

    def randn_like(
        self,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Return normal numbers (mean 0, variance 1) of this shape; dtype and device default to this tensor's.

        Raises DTypeError for integers.

        >>> Tensor.zeros(2, dtype=dtypes.float64).randn_like().dtype
        dtypes.float64
        """
        d = self.dtype if dtype is None else dtype
        made = self.randn(*self.shape, dtype=d, device=device or self.device, generator=generator, key=key)
        return self._marked(made, requires_grad)

    def randint_like(
        self,
        low: int,
        high: int | None = None,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Return whole numbers in [low, high), or in [0, low) if `high` is None, of this shape; dtype and device
        default to this tensor's.

        Raises ArgumentError for an empty range, DTypeError for a float dtype.

        >>> x = Tensor.zeros(4, dtype=dtypes.int64).randint_like(3, 5)
        >>> set(x.tolist()) <= {3, 4}
        True
        """
        d = self.dtype if dtype is None else dtype
        low, high = (0, low) if high is None else (low, high)
        where = device or self.device
        return self.randint(low, high, self.shape, dtype=d, device=where, generator=generator, key=key)

    # ---- choices -----------------------------------------------------------------------------------------------------
    @classmethod
    def randperm(
        cls,
        n: int,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Return the numbers 0..n-1 in random order, int64 of shape (n,) unless `dtype` is given.

        The result is the rank of n random keys, found by n * n comparisons up to n = 16384, else by sorting. Raises
        ArgumentError for a negative n, DTypeError for a `dtype` that does not hold all n numbers.

        >>> sorted(Tensor.randperm(5).tolist())
        [0, 1, 2, 3, 4]
        """
        if not isinstance(n, int) or n < 0:
            raise ArgumentError("randperm: n", expected="an int of at least 0", found=n)
        d = dtypes.int64 if dtype is None else as_dtype(dtype)
        if any(as_python(k, d) != k for k in range(max(0, n - 2), n)):  # one of the two is odd: a float rounds it first
            raise DTypeError("randperm: dtype", expected=f"one that holds 0..{n - 1}", found=d.name)
        keys = build("CONTIGUOUS", Stream(cls, device, generator, key).bits(n))
        if n > _PERMUTATION_LIMIT:
            ordered: Any = cls._wrap(keys)
            return ordered.argsort().cast(d)
        mine, other = g.reshape(keys, (n, 1)), g.reshape(keys, (1, n))
        tie = g.e("CMPLT", g.iota(n, dtypes.int32, 1, 2), g.iota(n, dtypes.int32, 0, 2))
        equal = g.e("CMPNE", g.e("CMPNE", other, mine), True)
        before = g.e("OR", g.e("CMPLT", other, mine), g.e("AND", equal, tie))
        rank = g.reduce(g.cast(before, dtypes.int32), "ADD", (1,), keep=False)
        return cls._wrap(g.cast(rank, d))

    def bernoulli(
        self, p: float | None = None, *, generator: Generator | None = None, key: TensorBase | None = None
    ) -> Self:
        """Return 1 with the probability that each element gives, or with `p` if it is given, else 0, in this dtype.

        Raises DTypeError for integers unless `p` is given, ArgumentError for a `p` outside of [0, 1].

        >>> Tensor([0.0, 1.0]).bernoulli().tolist()
        [0.0, 1.0]
        """
        if p is None:
            self._check_float("bernoulli")
            source = Source(Stream(self._kind, self.device, generator, key), self.shape, float_dtype(None, "", self))
            return distributions.bernoulli(source, distributions.inner(source, self)).cast(self.dtype)
        if not 0 <= p <= 1:
            raise ArgumentError("bernoulli: p", expected="from 0 to 1", found=p)
        source = Source(Stream(self._kind, self.device, generator, key), self.shape, dtypes.float32)
        return distributions.bernoulli(source, p).cast(self.dtype)

    def poisson(self, *, generator: Generator | None = None, key: TensorBase | None = None) -> Self:
        """Return a number of the Poisson distribution for each element, which is its rate, in this dtype.

        Rates below 10 take the inverse of the distribution function, others a rejection sampler of 10 proposals. The
        gradient is 0. Rates are not checked; a negative one gives a number without meaning. Raises DTypeError for
        integers.

        >>> Tensor([0.0, 0.0]).poisson().tolist()
        [0.0, 0.0]
        """
        self._check_float("poisson")
        source = Source(Stream(self._kind, self.device, generator, key), self.shape, float_dtype(None, "", self))
        return source.out(distributions.poisson(source, distributions.inner(source, self)))

    def binomial(self, prob: TensorLike, *, generator: Generator | None = None, key: TensorBase | None = None) -> Self:
        """Return a number of successes in each element's number of trials, of probability `prob`, in this dtype.

        self holds whole numbers as floats and broadcasts with `prob`. Means below 10 of the rarer outcome take the
        inverse of the distribution function, others a rejection sampler of 14 proposals. The gradient is 0. Values of
        tensors are not checked; wrong ones give numbers without meaning. Raises DTypeError for integers, ArgumentError
        for a number outside of [0, 1].

        >>> Tensor([3.0, 5.0]).binomial(Tensor([0.0, 1.0])).tolist()
        [0.0, 5.0]
        """
        self._check_float("binomial")
        p: Any = prob
        if not isinstance(prob, TensorBase) and not 0 <= p <= 1:
            raise ArgumentError("binomial: prob", expected="from 0 to 1", found=prob)
        x: Any = self
        shape = (x.detach() * p).shape
        source = Source(Stream(x._kind, x.device, generator, key), shape, float_dtype(None, "", self))
        trials, p = distributions.inner(source, self), distributions.inner(source, p)
        return source.out(distributions.binomial(source, trials, p))

    def multinomial(
        self,
        num_samples: int,
        replacement: bool = False,
        *,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Draw indices by the weights on the last axis: (classes,) or (n, classes) -> (..., num_samples), int64.

        Weights need not add up to 1. Without `replacement` no index comes twice, in the order of an exponential race:
        the next index is drawn by the weights that are left. Where fewer than `num_samples` weights are above 0, those
        of weight 0 follow. Raises ArgumentError where num_samples is below 1, or above the number of classes without
        replacement. Raises ShapeError for more than 2 axes, DTypeError for integers.

        >>> Tensor([0.0, 1.0, 0.0]).multinomial(1).tolist()
        [1]
        >>> sorted(Tensor([1.0, 0.0, 5.0]).multinomial(2).tolist())
        [0, 2]
        """
        self._check_float("multinomial")
        if self.ndim not in (1, 2):
            raise ShapeError("multinomial: rank of the weights", expected="1 or 2 axes", found=self.shape)
        if num_samples < 1 or (not replacement and num_samples > self.shape[-1]):
            expected = "at least 1, and at most the number of classes without replacement"
            raise ArgumentError("multinomial: num_samples", expected=expected, found=num_samples)
        stream = Stream(self._kind, self.device, generator, key)
        if num_samples > 1 and not replacement:
            race = Source(stream, self.shape, float_dtype(None, "", self))
            return (race.exponential() / self.detach().cast(race.wide)).topk(num_samples, largest=False).indices
        ends = self.detach().float().cumsum(-1)
        total = ends[..., -1:]
        spot = Source(stream, (*self.shape[:-1], num_samples), dtypes.float32).unit() * total
        passed = ends.unsqueeze(-2) <= spot.unsqueeze(-1)
        # Rounding must not choose a class after the last one with weight.
        last = (ends < total).cast(dtypes.int64).sum(-1, keepdim=True)
        return passed.cast(dtypes.int64).sum(-1).minimum(last)

    # ---- initial weights ---------------------------------------------------------------------------------------------
    @classmethod
    def kaiming_uniform(cls, *size: Sizes, a: float = 0.0, **options: Unpack[DrawOptions]) -> Self:
        """Return uniform weights (out, in, ...) that preserve the variance of activations of a leaky ReLU of slope `a`.

        The bound is sqrt(6 / ((1 + a * a) * fan_in)), where fan_in is the number of elements of one output's weight.
        `options` are those of `uniform`. Raises ShapeError for fewer than 2 axes.

        >>> Tensor.kaiming_uniform(4, 6).shape
        (4, 6)
        """
        fan_in, _ = fans(shape_of(size, "kaiming_uniform"), "kaiming_uniform")
        bound = sqrt(6.0 / ((1.0 + a * a) * max(fan_in, 1)))
        return cls.uniform(*size, low=-bound, high=bound, **options)

    @classmethod
    def kaiming_normal(cls, *size: Sizes, a: float = 0.0, **options: Unpack[DrawOptions]) -> Self:
        """Return normal weights (out, in, ...) that preserve the variance of activations of a leaky ReLU of slope `a`.

        The standard deviation is sqrt(2 / ((1 + a * a) * fan_in)), where fan_in is the number of elements of one
        output's weight. `options` are those of `normal`. Raises ShapeError for fewer than 2 axes.

        >>> Tensor.kaiming_normal(4, 6).shape
        (4, 6)
        """
        fan_in, _ = fans(shape_of(size, "kaiming_normal"), "kaiming_normal")
        return cls.normal(*size, std=sqrt(2.0 / ((1.0 + a * a) * max(fan_in, 1))), **options)

    @classmethod
    def xavier_uniform(cls, *size: Sizes, gain: float = 1.0, **options: Unpack[DrawOptions]) -> Self:
        """Return uniform weights (out, in, ...) of variance gain**2 * 2 / (fan_in + fan_out), also known as Glorot's.

        `fan_in` and `fan_out` are in and out, each times the elements of the kernel axes. `options` are those
        of `uniform`. Raises ShapeError for fewer than 2 axes.

        >>> w = Tensor.xavier_uniform(2, 4)  # within sqrt(6 / (2 + 4))
        >>> bool((w.abs() <= 1.0).all().item())
        True
        """
        bound = gain * sqrt(6.0 / max(sum(fans(shape_of(size, "xavier_uniform"), "xavier_uniform")), 1))
        return cls.uniform(*size, low=-bound, high=bound, **options)

    @classmethod
    def xavier_normal(cls, *size: Sizes, gain: float = 1.0, **options: Unpack[DrawOptions]) -> Self:
        """Return normal weights (out, in, ...) of variance gain**2 * 2 / (fan_in + fan_out).

        `fan_in` and `fan_out` are in and out, each times the elements of the kernel axes. `options` are those
        of `normal`. Raises ShapeError for fewer than 2 axes.

        >>> Tensor.xavier_normal(4, 6).shape
        (4, 6)
        """
        std = gain * sqrt(2.0 / max(sum(fans(shape_of(size, "xavier_normal"), "xavier_normal")), 1))
        return cls.normal(*size, std=std, **options)


def whole(bits: UOp, low: int, span: int, d: Any) -> UOp:
    """Return integers of the dtype `d` in [low, low + span) from uint64 `bits`."""
    if span <= 1 << 32:
        number = g.e("SHR", g.e("MUL", g.cast(half(bits, False), dtypes.uint64), span), 32)
    else:
        number = bits if span == 1 << 64 else g.e("MOD", bits, span)
    return g.e("ADD", g.cast(number, d), low) if low else g.cast(number, d)


__all__ = ["RandomMixin", "fans", "whole"]
