"""Methods of `Tensor` that fill a tensor with random numbers in place, with PyTorch's names and parameters.

Invariant: dtype, shape and devices stay, and so does the placement on several devices; a write to a view changes its
base. A leaf that requires a gradient takes the numbers as new values, as with `fill_`.
"""

from __future__ import annotations

from math import inf
from typing import Any, Self

from monolect.autograd.graph import cast
from monolect.base.dtype import as_python, dtypes
from monolect.base.errors import ArgumentError, DTypeError
from monolect.tensor.base import TensorBase, on_device_of, refused_shape
from monolect.tensor.devices.methods import compute_device
from monolect.tensor.draws import distributions
from monolect.tensor.draws.generator import Generator
from monolect.tensor.draws.methods import whole
from monolect.tensor.draws.source import Source
from monolect.tensor.guard import guard_methods
from monolect.tensor.random import Stream

WHOLE = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}  # bits of integers that a float dtype holds


@guard_methods
class RandomInPlaceMixin(TensorBase):
    """Methods that fill a Tensor with random numbers and return it. A base class of Tensor."""

    __slots__ = ()

    def _draws(self, generator: Generator | None, key: TensorBase | None, wide: bool = False) -> Source:
        """Return the source of a number for each element, on the devices of self; float64 if `wide`."""
        stream = Stream(self._kind, compute_device(self.device), generator, key)
        return Source(stream, self.shape, dtypes.float64 if wide or self.dtype is dtypes.float64 else dtypes.float32)

    def _filled(self, name: str, value: Any) -> Self:
        """Write `value`, cast to the dtype of self, to all elements and return self. Raises ShapeError for a parameter
        that does not broadcast to self; `name` is the method's name.
        """
        if value.shape != self.shape:
            raise refused_shape(name, self.shape, value.shape)
        u = cast(value._uop, self.dtype)
        self._store(None, on_device_of(u, self._uop) if isinstance(self.device, tuple) else u)
        return self

    def _check_filled(self, name: str) -> None:
        if not self.dtype.is_float:
            raise DTypeError(f"{name}: dtype", expected="a float dtype", found=self.dtype.name)

    def uniform_(
        self,
        from_: float = 0.0,
        to: float = 1.0,
        *,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Fill with uniform numbers in [from_, to) and return self.

        Raises DTypeError unless the dtype is a float, ArgumentError where from_ > to or the difference overflows.

        >>> x = Tensor.zeros(3).uniform_(2.0, 4.0)
        >>> bool(((x >= 2) & (x < 4)).all().item())
        True
        """
        self._check_filled("uniform_")
        if not 0 <= as_python(float(to - from_), self.dtype) < inf:
            raise ArgumentError("uniform_: range", expected="from_ <= to, a finite difference", found=(from_, to))
        source = self._draws(generator, key)
        wide = source.unit(self.dtype if self.dtype.name in WHOLE else None).cast(source.wide) * (to - from_) + from_
        return self._filled("uniform_", wide)

    def normal_(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        *,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Fill with normal numbers of this mean and standard deviation and return self.

        Raises DTypeError unless the dtype is a float, ArgumentError for a negative `std`.

        >>> Tensor.zeros(2, 2).normal_(5.0, 0.0).tolist()
        [[5.0, 5.0], [5.0, 5.0]]
        """
        self._check_filled("normal_")
        if not std >= 0:
            raise ArgumentError("normal_: std", expected="at least 0", found=std)
        return self._filled("normal_", self._draws(generator, key).normal() * std + mean)

    def _truncated_normal_(self, low: float, high: float, mean: float, std: float, generator: Generator | None) -> Self:
        """Fill with normal numbers that are in [low, high] and return self, as `nn.init.trunc_normal_` does."""
        self._check_filled("trunc_normal_")
        if not low <= high:
            raise ArgumentError("trunc_normal_: range", expected="a <= b", found=(low, high))
        if not std > 0:
            raise ArgumentError("trunc_normal_: std", expected="above 0", found=std)
        source = self._draws(generator, None)
        limits = (self._kind.full((), (x - mean) / std, dtype=source.wide) for x in (low, high))
        t = distributions.truncated_normal(source, *limits) * std + mean
        return self._filled("trunc_normal_", t.maximum(low).minimum(high))

    def log_normal_(
        self,
        mean: float = 1.0,
        std: float = 2.0,
        *,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Fill with numbers whose logarithms are normal, of this mean and standard deviation, and return self.

        Raises DTypeError unless the dtype is a float, ArgumentError unless `std` is above 0.

        >>> bool((Tensor.zeros(4).log_normal_() > 0).all().item())
        True
        """
        self._check_filled("log_normal_")
        if not std > 0:
            raise ArgumentError("log_normal_: std", expected="above 0", found=std)
        return self._filled("log_normal_", (self._draws(generator, key).normal() * std + mean).exp())

    def exponential_(
        self, lambd: float = 1.0, *, generator: Generator | None = None, key: TensorBase | None = None
    ) -> Self:
        """Fill with numbers of the exponential distribution of rate `lambd`, all above 0, and return self.

        Raises DTypeError unless the dtype is a float, ArgumentError unless `lambd` is above 0.

        >>> bool((Tensor.zeros(4).exponential_(2.0) > 0).all().item())
        True
        """
        self._check_filled("exponential_")
        if not lambd > 0:
            raise ArgumentError("exponential_: lambd", expected="above 0", found=lambd)
        return self._filled("exponential_", self._draws(generator, key).exponential() / lambd)

    def cauchy_(
        self,
        median: float = 0.0,
        sigma: float = 1.0,
        *,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Fill with numbers of the Cauchy distribution and return self.

        Raises DTypeError unless the dtype is a float, ArgumentError unless `sigma` is above 0.

        >>> Tensor.zeros(4).cauchy_().isfinite().all().item()
        True
        """
        self._check_filled("cauchy_")
        if not sigma > 0:
            raise ArgumentError("cauchy_: sigma", expected="above 0", found=sigma)
        return self._filled("cauchy_", distributions.cauchy(self._draws(generator, key)) * sigma + median)

    def geometric_(self, p: float, *, generator: Generator | None = None, key: TensorBase | None = None) -> Self:
        """Fill with the number of trials of probability `p` until the first success, 1 or more, and return self.

        Raises DTypeError for bools, ArgumentError unless 0 < p < 1.

        >>> bool((Tensor([0, 0, 0]).geometric_(0.5) >= 1).all().item())
        True
        """
        if self.dtype is dtypes.bool:
            raise DTypeError("geometric_: dtype", expected="a dtype of numbers", found="bool")
        if not 0 < p < 1:
            raise ArgumentError("geometric_: p", expected="between 0 and 1", found=p)
        source = self._draws(generator, key, wide=self.dtype.is_int and self.dtype.bits > 16)
        return self._filled("geometric_", distributions.geometric(source, p))

    def bernoulli_(
        self, p: float | TensorBase = 0.5, *, generator: Generator | None = None, key: TensorBase | None = None
    ) -> Self:
        """Fill with 1 at the probability `p`, a number or a float Tensor that broadcasts to self, else with 0; return
        self.

        Raises ArgumentError for a number outside of [0, 1], DTypeError for a Tensor of integers.

        >>> Tensor([5, 5]).bernoulli_(1.0).tolist()
        [1, 1]
        """
        if isinstance(p, TensorBase):
            p._check_float("bernoulli_: p")
        elif not 0 <= p <= 1:
            raise ArgumentError("bernoulli_: p", expected="from 0 to 1", found=p)
        source = self._draws(generator, key, wide=isinstance(p, TensorBase) and p.dtype is dtypes.float64)
        return self._filled("bernoulli_", distributions.bernoulli(source, distributions.inner(source, p)))

    def random_(
        self,
        from_: int | None = None,
        to: int | None = None,
        *,
        generator: Generator | None = None,
        key: TensorBase | None = None,
    ) -> Self:
        """Fill with whole numbers in [from_, to), or in [0, from_) if `to` is None, and return self.

        Without limits, numbers go from 0 to the largest of an integer dtype, of a float to 2**p, where p is its
        precision. Raises ArgumentError for an empty range or one that the dtype does not hold, DTypeError for 8-bit
        floats.

        >>> set(Tensor.zeros(20).random_(3, 5).tolist()) <= {3.0, 4.0}
        True
        """
        d = self.dtype
        if d.is_float and d.name not in WHOLE:
            raise DTypeError("random_: dtype", expected="another dtype", found=d.name)
        last = 1 << WHOLE[d.name] if d.is_float else int(d.max)
        low, high = (0, last + 1) if from_ is None else (0, from_) if to is None else (from_, to)
        least = -last if d.is_float else int(d.min)
        if not (isinstance(low, int) and isinstance(high, int)) or not least <= low < high <= last + 1:
            raise ArgumentError("random_: range", expected=f"from_ < to, both in {d.name}", found=(low, high))
        source = self._draws(generator, key)
        of_numbers = dtypes.int64 if d.is_float or d is dtypes.bool else d
        return self._filled("random_", source.tensor(whole(source.stream.bits(source.n), low, high - low, of_numbers)))


__all__ = ["RandomInPlaceMixin"]
