"""Functions of two operands, and of each element where PyTorch's differ: the array API.

Invariant: each operand is an array or a Python number, one of them an array. They are broadcast and promoted.
"""

from __future__ import annotations

from monolect.array_api.operands import array_of, by_dtype, paired
from monolect.tensor.base import Number
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor


@guarded
def add(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 + x2`. One operand may be a Python number.

    >>> array_api.add(Tensor([1, 2]), 3).tolist()
    [4, 5]
    """
    a, b = paired(x1, x2, "add")
    return a.add(b)


@guarded
def atan2(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return the angle of the point (x2, x1) in [-pi, pi]. One operand may be a Python number.

    >>> array_api.atan2(Tensor([1.0]), Tensor([0.0])).tolist()
    [1.5707963705062866]
    """
    a, b = paired(x1, x2, "atan2")
    return a.atan2(b)


@guarded
def bitwise_and(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 & x2` of integers or bools. One operand may be a Python number.

    >>> array_api.bitwise_and(Tensor([6, 3]), 2).tolist()
    [2, 2]
    """
    a, b = paired(x1, x2, "bitwise_and")
    return a.bitwise_and(b)


@guarded
def bitwise_left_shift(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 << x2`. One operand may be a Python number.

    >>> array_api.bitwise_left_shift(Tensor([1, 2]), 3).tolist()
    [8, 16]
    """
    a, b = paired(x1, x2, "bitwise_left_shift")
    return a.bitwise_left_shift(b)


@guarded
def bitwise_or(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 | x2` of integers or bools. One operand may be a Python number.

    >>> array_api.bitwise_or(4, Tensor([6, 3])).tolist()
    [6, 7]
    """
    a, b = paired(x1, x2, "bitwise_or")
    return a.bitwise_or(b)


@guarded
def bitwise_right_shift(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 >> x2`, which keeps the sign. One operand may be a Python number.

    >>> array_api.bitwise_right_shift(Tensor([8, -8]), 2).tolist()
    [2, -2]
    """
    a, b = paired(x1, x2, "bitwise_right_shift")
    return a.bitwise_right_shift(b)


@guarded
def bitwise_xor(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 ^ x2` of integers or bools. One operand may be a Python number.

    >>> array_api.bitwise_xor(Tensor([6, 3]), 2).tolist()
    [4, 1]
    """
    a, b = paired(x1, x2, "bitwise_xor")
    return a.bitwise_xor(b)


@guarded
def copysign(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return the magnitude of `x1` with the sign of `x2`. One operand may be a Python number.

    >>> array_api.copysign(3.0, Tensor([-1.0, 0.0])).tolist()
    [-3.0, 3.0]
    """
    a, b = paired(x1, x2, "copysign")
    return a.copysign(b)


@guarded
def divide(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 / x2`; the quotient of integers is float32. One operand may be a Python number.

    >>> array_api.divide(1, Tensor([2.0, 4.0])).tolist()
    [0.5, 0.25]
    """
    a, b = paired(x1, x2, "divide")
    return a.div(b)


@guarded
def equal(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 == x2` of each element. One operand may be a Python number.

    >>> array_api.equal(Tensor([1, 2]), 2).tolist()
    [False, True]
    """
    a, b = paired(x1, x2, "equal")
    return a.eq(b)


@guarded
def floor_divide(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 / x2` rounded down. One operand may be a Python number.

    >>> array_api.floor_divide(-7, Tensor([2, 4])).tolist()
    [-4, -2]
    """
    a, b = paired(x1, x2, "floor_divide")
    return a.floor_divide(b)


@guarded
def greater(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 > x2` of each element. One operand may be a Python number.

    >>> array_api.greater(Tensor([1, 2]), 1).tolist()
    [False, True]
    """
    a, b = paired(x1, x2, "greater")
    return a.gt(b)


@guarded
def greater_equal(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 >= x2` of each element. One operand may be a Python number.

    >>> array_api.greater_equal(2, Tensor([1, 3])).tolist()
    [True, False]
    """
    a, b = paired(x1, x2, "greater_equal")
    return a.ge(b)


@guarded
def hypot(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return the square root of `x1**2 + x2**2`, without overflow on the way. One operand may be a Python number.

    >>> array_api.hypot(3.0, Tensor([4.0])).tolist()
    [5.0]
    """
    a, b = paired(x1, x2, "hypot")
    return a.hypot(b)


@guarded
def less(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 < x2` of each element. One operand may be a Python number.

    >>> array_api.less(Tensor([1, 2]), 2).tolist()
    [True, False]
    """
    a, b = paired(x1, x2, "less")
    return a.lt(b)


@guarded
def less_equal(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 <= x2` of each element. One operand may be a Python number.

    >>> array_api.less_equal(Tensor([1, 3]), 2).tolist()
    [True, False]
    """
    a, b = paired(x1, x2, "less_equal")
    return a.le(b)


@guarded
def logaddexp(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `log(exp(x1) + exp(x2))`, without overflow on the way. One operand may be a Python number.

    >>> array_api.logaddexp(Tensor([0.0]), Tensor([-1000.0])).tolist()
    [0.0]
    """
    a, b = paired(x1, x2, "logaddexp")
    return a.logaddexp(b)


@guarded
def logical_and(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return whether both are true. One operand may be a Python number.

    >>> array_api.logical_and(Tensor([True, False]), True).tolist()
    [True, False]
    """
    a, b = paired(x1, x2, "logical_and")
    return a.logical_and(b)


@guarded
def logical_or(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return whether one of both is true. One operand may be a Python number.

    >>> array_api.logical_or(False, Tensor([True, False])).tolist()
    [True, False]
    """
    a, b = paired(x1, x2, "logical_or")
    return a.logical_or(b)


@guarded
def logical_xor(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return whether exactly one is true. One operand may be a Python number.

    >>> array_api.logical_xor(Tensor([True, False]), True).tolist()
    [False, True]
    """
    a, b = paired(x1, x2, "logical_xor")
    return a.logical_xor(b)


@guarded
def maximum(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return the larger of both; nan if one is nan. One operand may be a Python number.

    >>> array_api.maximum(0, Tensor([-1, 2])).tolist()
    [0, 2]
    """
    a, b = paired(x1, x2, "maximum")
    return a.maximum(b)


@guarded
def minimum(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return the smaller of both; nan if one is nan. One operand may be a Python number.

    >>> array_api.minimum(Tensor([-1, 2]), 0).tolist()
    [-1, 0]
    """
    a, b = paired(x1, x2, "minimum")
    return a.minimum(b)


@guarded
def multiply(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 * x2`. One operand may be a Python number.

    >>> array_api.multiply(2.5, Tensor([2.0, 4.0])).tolist()
    [5.0, 10.0]
    """
    a, b = paired(x1, x2, "multiply")
    return a.mul(b)


@guarded
def nextafter(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return the next float after `x1` on the way to `x2`. One operand may be a Python number.

    >>> array_api.nextafter(Tensor([1.0], dtype=dtypes.float64), 2.0).tolist()
    [1.0000000000000002]
    """
    a, b = paired(x1, x2, "nextafter")
    return a.nextafter(b)


@guarded
def not_equal(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 != x2` of each element. One operand may be a Python number.

    >>> array_api.not_equal(Tensor([1, 2]), 2).tolist()
    [True, False]
    """
    a, b = paired(x1, x2, "not_equal")
    return a.ne(b)


@guarded
def pow(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1` to the power of `x2`. One operand may be a Python number.

    >>> array_api.pow(2, Tensor([3, 4])).tolist()
    [8, 16]
    """
    a, b = paired(x1, x2, "pow")
    return a.pow(b)


@guarded
def remainder(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return the rest of the division of `x1` by `x2`, with the sign of `x2`. One operand may be a Python number.

    >>> array_api.remainder(Tensor([-7, 7]), 4).tolist()
    [1, 3]
    """
    a, b = paired(x1, x2, "remainder")
    r = a.remainder(b)
    return (r == 0).where(r.copysign(b), r) if r.dtype.is_float else r  # a zero has the sign of x2, too


@guarded
def subtract(x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1 - x2`. One operand may be a Python number.

    >>> array_api.subtract(10, Tensor([1, 2])).tolist()
    [9, 8]
    """
    a, b = paired(x1, x2, "subtract")
    return a.sub(b)


@guarded
def clip(x: Tensor, /, min: Tensor | Number | None = None, max: Tensor | Number | None = None) -> Tensor:
    """Return `x` limited to `min` and `max`, numbers or arrays that broadcast with it, in the dtype of `x`.

    >>> array_api.clip(Tensor([1, 5, 9]), 2, max=7).tolist()
    [2, 5, 7]
    """
    array_of(x, "clip")
    if min is None and max is None:
        return x.clone()
    limited, low, high = by_dtype(x, min, max)
    return limited.clamp(low, high).to(x.dtype)


@guarded
def sign(x: Tensor, /) -> Tensor:
    """Return 1, 0 or -1 for each element; nan for nan.

    >>> array_api.sign(Tensor([-2.0, 0.0, float("nan")])).tolist()
    [-1.0, 0.0, nan]
    """
    array_of(x, "sign")
    return x.isnan().where(x, x.sign()) if x.dtype.is_float else x.sign()


@guarded
def where(condition: Tensor, x1: Tensor | Number, x2: Tensor | Number, /) -> Tensor:
    """Return `x1` where `condition`, a bool array, is true, else `x2`; all are broadcast, `x1` and `x2` promoted.

    One of `x1` and `x2` may be a Python number. Raises DTypeError for a condition that is not bool.

    >>> array_api.where(Tensor([True, False]), Tensor([1, 2]), 0).tolist()
    [1, 0]
    """
    a, b = by_dtype(x1, x2)
    return array_of(condition, "where").where(a, b)


@guarded
def real(x: Tensor, /) -> Tensor:
    """Return `x`: no dtype is complex.

    >>> array_api.real(Tensor([1.0])).tolist()
    [1.0]
    """
    return array_of(x, "real")


@guarded
def imag(x: Tensor, /) -> Tensor:
    """Return zeros like `x`: no dtype is complex.

    >>> array_api.imag(Tensor([1.0])).tolist()
    [0.0]
    """
    return array_of(x, "imag").zeros_like()


__all__ = [
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "clip",
    "copysign",
    "divide",
    "equal",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "less",
    "less_equal",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "nextafter",
    "not_equal",
    "pow",
    "real",
    "remainder",
    "sign",
    "subtract",
    "where",
]
