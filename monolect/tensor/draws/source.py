"""Make random numbers of one shape from random bits: uniform, normal and exponential ones.

What it is for: `Source` is one call of a random function. Distributions are built from its numbers.
What it is not: it keeps no state; its bits come from a `Stream`.
Invariant: float16 and bfloat16 numbers are computed in float32 and rounded once, except those of `unit`, which have as
many bits as the dtype.
Source: Box and Muller, "A note on the generation of random normal deviates", 1958.
"""

from __future__ import annotations

from math import pi
from typing import Any

from monolect.autograd import graph as g
from monolect.base.dtype import DType, as_dtype, dtypes, promote
from monolect.base.errors import DTypeError, ShapeError
from monolect.ir.bounds import at_most
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp
from monolect.tensor.base import TensorBase, as_sizes
from monolect.tensor.random import Stream


def float_dtype(dtype: Any, name: str, *parameters: Any) -> DType:
    """Return `dtype` as a DType; for None the common dtype of the float Tensors among `parameters`, else the default.

    Raises DTypeError, which names the function `name`, for other dtypes than the four usual float dtypes.
    """
    if dtype is None:
        given = [p.dtype for p in parameters if isinstance(p, TensorBase) and p.dtype.is_float]
        d = promote(*given) if given else dtypes.default_float
    else:
        d = as_dtype(dtype)
    if d.name not in ("float64", "float32", "float16", "bfloat16"):
        raise DTypeError(f"{name}: dtype", expected="float64, float32, float16 or bfloat16", found=d.name)
    return d


def shape_of(size: tuple, name: str) -> tuple[Any, ...]:
    """Return the arguments `size` as a shape. Raises ShapeError, which names the function, for a negative size."""
    shape = as_sizes(size)
    if not all(at_most(0, n) for n in shape):
        raise ShapeError(f"{name}: size", expected="sizes of at least 0", found=shape)
    return shape


def half(bits: UOp, high: bool) -> UOp:
    """Return the low or high 32 bits of uint64 `bits`, as uint32."""
    return g.cast(g.e("SHR", bits, 32) if high else bits, dtypes.uint32)


def unit(bits: UOp, dtype: DType) -> UOp:
    """Convert random bits to multiples of 2**-p in [0, 1), where p is the precision of `dtype` (24 for float32)."""
    if dtype is dtypes.float64:
        return g.e("MUL", g.cast(g.cast(g.e("SHR", bits, 11), dtypes.int64), dtype), 2.0**-53)
    digits = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype.name]
    whole = g.e("SHR", half(bits, False), 32 - digits)
    return g.cast(g.e("MUL", g.cast(whole, dtypes.float32), 2.0**-digits), dtype)


class Source:
    """Give random Tensors of one shape in the dtype `wide`, each call with bits of its own.

    `wide` is float64 for `dtype` float64, else float32: distributions are computed in it and `out` rounds the result.
    """

    def __init__(self, stream: Stream, shape: tuple[Any, ...], dtype: DType) -> None:
        self.stream, self.shape, self.dtype = stream, shape, dtype
        self.wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
        self.n = count(shape)

    def tensor(self, flat: UOp) -> Any:
        """Return the Tensor of the shape with the elements `flat`."""
        return self.stream.make._wrap(g.reshape(flat, self.shape))

    def out(self, t: Any) -> Any:
        """Return the result `t` in the dtype of the call."""
        return t.cast(self.dtype)

    def unit(self, dtype: DType | None = None) -> Any:
        """Return multiples of 2**-p in [0, 1), p the precision of `dtype` (None: of `wide`)."""
        return self.tensor(unit(self.stream.bits(self.n), dtype or self.wide))

    def open_unit(self) -> Any:
        """Return uniform numbers in (0, 1): odd multiples of 2**-24, in float64 of 2**-53."""
        bits = self.stream.bits(self.n)
        if self.wide is dtypes.float64:
            whole, last = g.cast(g.e("SHR", bits, 12), dtypes.int64), 2.0**-52
        else:
            whole, last = g.cast(g.e("SHR", half(bits, False), 9), dtypes.int32), 2.0**-23
        return self.tensor(g.e("MUL", g.e("ADD", g.cast(whole, self.wide), 0.5), last))

    def near_zero(self) -> tuple[Any, Any]:
        """Return (uniform numbers in (0, 1], independent signs, 1 or -1). Small numbers have all their digits: the
        smallest is 2**-32, in float64 2**-53.
        """
        bits = self.stream.bits(self.n)
        if self.wide is dtypes.float64:
            numbers = g.e("SUB", 1.0, unit(bits, self.wide))
            sign = g.cast(g.e("AND", bits, 1), dtypes.int32)  # `unit` drops the low bits
        else:
            numbers = g.e("MUL", g.e("ADD", g.cast(half(bits, False), self.wide), 1.0), 2.0**-32)
            sign = g.cast(g.e("SHR", bits, 63), dtypes.int32)
        sign = g.e("SUB", 1.0, g.e("MUL", g.cast(sign, self.wide), 2.0))
        return self.tensor(numbers), self.tensor(sign)

    def exponential(self) -> Any:
        """Return numbers of the exponential distribution of rate 1, all above 0."""
        return -self.near_zero()[0].log().minimum(-(2.0**-55) if self.wide is dtypes.float64 else -(2.0**-25))

    def normal(self) -> Any:
        """Return normal numbers (mean 0, variance 1) by Box-Muller, from one Threefry call each; float64 takes two."""
        n = self.n
        if self.wide is dtypes.float64:
            bits = self.stream.bits(2 * n)
            radius = g.e("SUB", 1.0, unit(g.shrink(bits, (0,), (n,)), self.wide))
            turn = unit(g.shrink(bits, (n,), (n,)), self.wide)
        else:
            bits = self.stream.bits(n)
            # All 32 bits, so that the tail reaches 6.6 standard deviations; in (0, 1], so that the logarithm is finite.
            radius = g.e("MUL", g.e("ADD", g.cast(half(bits, False), self.wide), 1.0), 2.0**-32)
            turn = g.e("MUL", g.cast(g.cast(g.e("SHR", half(bits, True), 8), dtypes.int32), self.wide), 2.0**-24)
        make = self.stream.make
        length = (make._wrap(radius).log() * -2.0).sqrt()
        return self.tensor((length * (make._wrap(turn) * (2.0 * pi)).sin())._uop)


__all__ = ["Source", "float_dtype", "half", "shape_of", "unit"]
