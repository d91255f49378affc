"""Functions for arithmetic, comparisons, logic and bits, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from monolect.tensor.base import Number, TensorLike, operand_of
from monolect.tensor.guard import guarded
from monolect.tensor.methods.in_place import into
from monolect.tensor.tensor import Tensor


@guarded
def add(input: Tensor, other: TensorLike, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """Return `input + alpha * other`, broadcast and promoted.

    >>> monolect.add(Tensor([1, 2]), Tensor([[10], [20]])).tolist()
    [[11, 12], [21, 22]]
    """
    return into(out, "add", input.add(other, alpha=alpha))


@guarded
def addcdiv(
    input: Tensor, tensor1: TensorLike, tensor2: TensorLike, *, value: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Return `input + value * tensor1 / tensor2`, broadcast; the quotient of integers is float32.

    >>> monolect.addcdiv(Tensor([1.0, 1.0]), Tensor([1.0, 3.0]), Tensor([2.0, 4.0])).tolist()
    [1.5, 1.75]
    """
    return into(out, "addcdiv", input.addcdiv(tensor1, tensor2, value=value))


@guarded
def addcmul(
    input: Tensor, tensor1: TensorLike, tensor2: TensorLike, *, value: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Return `input + value * tensor1 * tensor2`, broadcast and promoted.

    >>> monolect.addcmul(Tensor([1, 1]), Tensor([2, 3]), Tensor([4, 5]), value=10).tolist()
    [81, 151]
    """
    return into(out, "addcmul", input.addcmul(tensor1, tensor2, value=value))


@guarded
def allclose(
    input: Tensor, other: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether |`input` - other| <= atol + rtol * |other| for all elements, as a Python bool. The tensors are computed.

    With `equal_nan` two nan are close; an infinity is close only to itself.

    >>> a, b = Tensor([1.0, 2.0]), Tensor([1.0, 2.1])
    >>> monolect.allclose(a, b), monolect.allclose(a, b, rtol=0.1)
    (False, True)
    """
    return input.allclose(other, rtol, atol, equal_nan)


@guarded
def div(input: Tensor, other: TensorLike, *, rounding_mode: str | None = None, out: Tensor | None = None) -> Tensor:
    """Return `input / other`, broadcast, in floats: integers give float32.

    With `rounding_mode` "floor" or "trunc" the quotient is rounded, and integers give integers. Raises
    ArgumentError for another mode.

    >>> monolect.div(Tensor([7, -7]), 2, rounding_mode="floor").tolist()
    [3, -4]
    """
    return into(out, "div", input.div(other, rounding_mode=rounding_mode))


@guarded
def eq(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input == other` as a bool tensor, broadcast and promoted.

    >>> monolect.eq(Tensor([1, 2, 3]), 2).tolist()
    [False, True, False]
    """
    return into(out, "eq", input.eq(other))


@guarded
def float_power(input: TensorLike, exponent: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input ** exponent` computed in float64, broadcast; the result is float64.

    >>> monolect.float_power(Tensor([2, 4]), -1).tolist()
    [0.5, 0.25]
    """
    return into(out, "float_power", operand_of(input, exponent).float_power(exponent))


@guarded
def floor_divide(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input / other` rounded down, broadcast and promoted.

    An integer divided by zero gives 0; bools give int64.

    >>> (Tensor([7, -7, 7]) // Tensor([2, 2, 0])).tolist()
    [3, -4, 0]
    """
    return into(out, "floor_divide", input.floor_divide(other))


@guarded
def fmod(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the remainder of truncated division by `other`, with the sign of `input`, broadcast and promoted.

    An integer modulo zero gives 0.

    >>> monolect.fmod(Tensor([-7, 7]), Tensor([3, -3])).tolist()
    [-1, 1]
    """
    return into(out, "fmod", input.fmod(other))


@guarded
def ge(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input >= other` as a bool tensor, broadcast and promoted.

    >>> monolect.ge(Tensor([1, 2, 3]), 2).tolist()
    [False, True, True]
    """
    return into(out, "ge", input.ge(other))


@guarded
def gt(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input > other` as a bool tensor, broadcast and promoted.

    >>> monolect.gt(Tensor([1, 2, 3]), 2).tolist()
    [False, False, True]
    """
    return into(out, "gt", input.gt(other))


@guarded
def isclose(
    input: Tensor, other: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Return a bool tensor, broadcast: True where |`input` - other| <= atol + rtol * |other|, or both are nan and
    `equal_nan`. An infinity is close only to itself.

    >>> monolect.isclose(Tensor([1.0, 2.0]), Tensor([1.0, 2.1])).tolist()
    [True, False]
    """
    return input.isclose(other, rtol, atol, equal_nan)


@guarded
def isfinite(input: Tensor) -> Tensor:
    """Return a bool tensor: True where the value is neither nan nor an infinity; True everywhere for integers.

    >>> monolect.isfinite(Tensor([1.0, float("inf"), float("nan")])).tolist()
    [True, False, False]
    """
    return input.isfinite()


@guarded
def isinf(input: Tensor) -> Tensor:
    """Return a bool tensor: True where the value is an infinity; False everywhere for integers.

    >>> monolect.isinf(Tensor([1.0, float("-inf")])).tolist()
    [False, True]
    """
    return input.isinf()


@guarded
def isnan(input: Tensor) -> Tensor:
    """Return a bool tensor: True where the value is nan; False everywhere for integers.

    >>> monolect.isnan(Tensor([1.0, float("nan")])).tolist()
    [False, True]
    """
    return input.isnan()


@guarded
def le(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input <= other` as a bool tensor, broadcast and promoted.

    >>> monolect.le(Tensor([1, 2, 3]), 2).tolist()
    [True, True, False]
    """
    return into(out, "le", input.le(other))


@guarded
def logical_and(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return a bool tensor, broadcast: True where the elements of `input` and `other` are both not zero.

    >>> monolect.logical_and(Tensor([0, 1, 2]), Tensor([1, 0, 3])).tolist()
    [False, False, True]
    """
    return into(out, "logical_and", input.logical_and(other))


@guarded
def logical_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return a bool tensor: True where the element is zero.

    >>> monolect.logical_not(Tensor([0, 2])).tolist()
    [True, False]
    """
    return into(out, "logical_not", input.logical_not())


@guarded
def logical_or(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return a bool tensor, broadcast: True where the element of `input` or that of `other` is not zero.

    >>> monolect.logical_or(Tensor([0, 0, 2]), Tensor([1, 0, 3])).tolist()
    [True, False, True]
    """
    return into(out, "logical_or", input.logical_or(other))


@guarded
def logical_xor(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return a bool tensor, broadcast: True where exactly one of the elements of `input` and `other` is not zero.

    >>> monolect.logical_xor(Tensor([0, 0, 2]), Tensor([1, 0, 3])).tolist()
    [True, False, False]
    """
    return into(out, "logical_xor", input.logical_xor(other))


@guarded
def lt(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input < other` as a bool tensor, broadcast and promoted.

    >>> monolect.lt(Tensor([1, 2, 3]), 2).tolist()
    [True, False, False]
    """
    return into(out, "lt", input.lt(other))


@guarded
def maximum(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the larger element of `input` and `other`, broadcast and promoted; nan if either is nan.

    An int outside of the range of an integer dtype is replaced by the nearest number of the dtype.

    >>> monolect.maximum(Tensor([1, 5]), Tensor([4, 2])).tolist()
    [4, 5]
    """
    return into(out, "maximum", input.maximum(other))


@guarded
def minimum(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the smaller element of `input` and `other`, broadcast and promoted; nan if either is nan.

    An int outside of the range of an integer dtype is replaced by the nearest number of the dtype.

    >>> monolect.minimum(Tensor([1.0, 5.0]), Tensor([float("nan"), 2.0])).tolist()
    [nan, 2.0]
    """
    return into(out, "minimum", input.minimum(other))


@guarded
def mul(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input * other`, broadcast and promoted.

    >>> monolect.mul(Tensor([1, 2]), Tensor([[2.0], [0.5]])).tolist()
    [[2.0, 4.0], [0.5, 1.0]]
    """
    return into(out, "mul", input.mul(other))


@guarded
def ne(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input != other` as a bool tensor, broadcast and promoted.

    >>> monolect.ne(Tensor([1, 2, 3]), 2).tolist()
    [True, False, True]
    """
    return into(out, "ne", input.ne(other))


@guarded
def neg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return `-input`, of the same shape and dtype. Raises DTypeError for a bool tensor.

    >>> monolect.neg(Tensor([1, -2])).tolist()
    [-1, 2]
    """
    return into(out, "neg", input.neg())


@guarded
def pow(input: TensorLike, exponent: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input ** exponent`, broadcast and promoted; bools give int64.

    Small whole exponents are computed by products, 0.5 and -0.5 by a square root. Raises ArgumentError for integers
    to a negative Python number.

    >>> (Tensor([2, 3]) ** 2).tolist()
    [4, 9]
    """
    return into(out, "pow", operand_of(input, exponent).pow(exponent))


@guarded
def reciprocal(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return `1 / input`; integers give float32.

    >>> monolect.reciprocal(Tensor([2, 4])).tolist()
    [0.5, 0.25]
    """
    return into(out, "reciprocal", input.reciprocal())


@guarded
def remainder(input: TensorLike, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the remainder of floor division, with the sign of `other`, broadcast and promoted.

    An integer modulo zero gives 0.

    >>> monolect.remainder(Tensor([-7, 7]), Tensor([3, -3])).tolist()
    [2, -2]
    """
    return into(out, "remainder", operand_of(input, other).remainder(other))


@guarded
def rsub(input: Tensor, other: TensorLike, *, alpha: Number = 1) -> Tensor:
    """Return `other - alpha * input`, broadcast and promoted. Raises DTypeError if `input` is bool.

    >>> monolect.rsub(Tensor([1, 2]), 10).tolist()
    [9, 8]
    """
    return input.rsub(other, alpha=alpha)


@guarded
def square(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return `input * input`, of the same dtype; bools give int64.

    >>> monolect.square(Tensor([-3, 4])).tolist()
    [9, 16]
    """
    return into(out, "square", input.square())


@guarded
def sub(input: Tensor, other: TensorLike, *, alpha: Number = 1, out: Tensor | None = None) -> Tensor:
    """Return `input - alpha * other`, broadcast and promoted. Raises DTypeError if `input` is bool.

    >>> monolect.sub(Tensor([5, 7]), Tensor([1, 2]), alpha=2).tolist()
    [3, 3]
    """
    return into(out, "sub", input.sub(other, alpha=alpha))


@guarded
def bitwise_and(input: TensorLike, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input & other` of integers or bools, broadcast and promoted. Raises DTypeError for floats.

    >>> monolect.bitwise_and(Tensor([12, 10]), 6).tolist()
    [4, 2]
    """
    return into(out, "bitwise_and", operand_of(input, other).bitwise_and(other))


@guarded
def bitwise_left_shift(input: TensorLike, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input << other`, which is `input` * 2 ** other, broadcast and promoted. Raises DTypeError for floats.

    >>> monolect.bitwise_left_shift(Tensor([1, 5]), 2).tolist()
    [4, 20]
    """
    return into(out, "bitwise_left_shift", operand_of(input, other).bitwise_left_shift(other))


@guarded
def bitwise_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return `~input`: each bit inverted, or the logical not of bools. Raises DTypeError for floats.

    >>> monolect.bitwise_not(Tensor([0, 5])).tolist()
    [-1, -6]
    """
    return into(out, "bitwise_not", input.bitwise_not())


@guarded
def bitwise_or(input: TensorLike, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input | other` of integers or bools, broadcast and promoted. Raises DTypeError for floats.

    >>> monolect.bitwise_or(Tensor([12, 10]), 6).tolist()
    [14, 14]
    """
    return into(out, "bitwise_or", operand_of(input, other).bitwise_or(other))


@guarded
def bitwise_right_shift(input: TensorLike, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input >> other`, which is `input` / 2 ** other rounded down, broadcast and promoted.

    Raises DTypeError for floats.

    >>> monolect.bitwise_right_shift(Tensor([20, -5]), 2).tolist()
    [5, -2]
    """
    return into(out, "bitwise_right_shift", operand_of(input, other).bitwise_right_shift(other))


@guarded
def bitwise_xor(input: TensorLike, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input ^ other` of integers or bools, broadcast and promoted. Raises DTypeError for floats.

    >>> monolect.bitwise_xor(Tensor([12, 10]), 6).tolist()
    [10, 12]
    """
    return into(out, "bitwise_xor", operand_of(input, other).bitwise_xor(other))


divide = div


greater = gt


greater_equal = ge


less = lt


less_equal = le


multiply = mul


negative = neg


not_equal = ne


subtract = sub


true_divide = div


__all__ = [
    "add", "addcdiv", "addcmul", "allclose", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "div", "divide", "eq", "float_power", "floor_divide", "fmod", "ge", "greater",
    "greater_equal", "gt", "isclose", "isfinite", "isinf", "isnan", "le", "less", "less_equal", "logical_and",
    "logical_not", "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "multiply", "ne", "neg", "negative",
    "not_equal", "pow", "reciprocal", "remainder", "rsub", "square", "sub", "subtract", "true_divide",
]  # fmt: skip
