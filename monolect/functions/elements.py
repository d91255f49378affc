"""Functions of each element, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from typing import Any, overload

from monolect.tensor.base import TensorLike
from monolect.tensor.guard import guarded
from monolect.tensor.methods.in_place import into
from monolect.tensor.tensor import Tensor


@guarded
def abs(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the absolute values, in the same dtype.

    >>> monolect.abs(Tensor([-2, 3])).tolist()
    [2, 3]
    """
    return into(out, "abs", input.abs())


@guarded
def acos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the arc cosine in radians, nan outside of [-1, 1]. Integers and bools give float32.

    >>> round(monolect.acos(Tensor(0.0)).item(), 4)
    1.5708
    """
    return into(out, "acos", input.acos())


@guarded
def acosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the inverse hyperbolic cosine, nan below 1. Integers and bools give float32.

    >>> round(monolect.acosh(Tensor(2.0)).item(), 4)
    1.317
    """
    return into(out, "acosh", input.acosh())


@guarded
def asin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the arc sine in radians, nan outside of [-1, 1]. Integers and bools give float32.

    >>> round(monolect.asin(Tensor(1.0)).item(), 4)
    1.5708
    """
    return into(out, "asin", input.asin())


@guarded
def asinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the inverse hyperbolic sine. Integers and bools give float32.

    >>> round(monolect.asinh(Tensor(1.0)).item(), 4)
    0.8814
    """
    return into(out, "asinh", input.asinh())


@guarded
def atan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the arc tangent in radians. Integers and bools give float32.

    >>> round(monolect.atan(Tensor(1.0)).item(), 4)
    0.7854
    """
    return into(out, "atan", input.atan())


@guarded
def atan2(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the angle of the point (other, `input`) in (-pi, pi], broadcast; integers give float32.

    >>> monolect.atan2(Tensor([1.0, -1.0]), Tensor([0.0, -1.0])).rad2deg().tolist()
    [90.0, -135.0]
    """
    return into(out, "atan2", input.atan2(other))


@guarded
def atanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the inverse hyperbolic tangent, nan outside of [-1, 1]. Integers and bools give float32.

    >>> round(monolect.atanh(Tensor(0.5)).item(), 4)
    0.5493
    """
    return into(out, "atanh", input.atanh())


@guarded
def ceil(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the elements rounded up, in the same dtype; integers are unchanged.

    >>> monolect.ceil(Tensor([1.2, -1.7])).tolist()
    [2.0, -1.0]
    """
    return into(out, "ceil", input.ceil())


@guarded
def clamp(
    input: Tensor, min: TensorLike | None = None, max: TensorLike | None = None, *, out: Tensor | None = None
) -> Tensor:
    """Return `input` limited to [min, max], broadcast and promoted. Each bound is None, a number or a tensor.

    nan stays nan, also that of a bound; the derivative is 0 at nan, as in PyTorch. An int bound outside of the
    range of an integer dtype is replaced by the nearest number of the dtype. Raises ArgumentError without a bound.

    >>> monolect.clamp(Tensor([-2.0, 0.5, 3.0]), 0, 1).tolist()
    [0.0, 0.5, 1.0]
    """
    return into(out, "clamp", input.clamp(min, max))


@guarded
def clamp_max(input: Tensor, max: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the smaller of `input` and `max`, as `clamp(max=max)`.

    >>> monolect.clamp_max(Tensor([-1, 2]), 0).tolist()
    [-1, 0]
    """
    return into(out, "clamp_max", input.clamp_max(max))


@guarded
def clamp_min(input: Tensor, min: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the larger of `input` and `min`, as `clamp(min=min)`.

    >>> monolect.clamp_min(Tensor([-1, 2]), 0).tolist()
    [0, 2]
    """
    return into(out, "clamp_min", input.clamp_min(min))


@guarded
def copysign(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the magnitude of `input` with the sign of `other`, broadcast; integers give float32.

    >>> monolect.copysign(Tensor([1.0, 2.0]), Tensor([-3.0, 0.0])).tolist()
    [-1.0, 2.0]
    """
    return into(out, "copysign", input.copysign(other))


@guarded
def cos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the cosine of angles in radians. Integers and bools give float32.

    >>> round(monolect.cos(Tensor(1.0)).item(), 4)
    0.5403
    """
    return into(out, "cos", input.cos())


@guarded
def cosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the hyperbolic cosine. Integers and bools give float32.

    >>> round(monolect.cosh(Tensor(1.0)).item(), 4)
    1.5431
    """
    return into(out, "cosh", input.cosh())


@guarded
def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return angles in degrees converted to radians. Integers and bools give float32.

    >>> round(monolect.deg2rad(Tensor(180.0)).item(), 4)
    3.1416
    """
    return into(out, "deg2rad", input.deg2rad())


@guarded
def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the error function. Integers and bools give float32.

    >>> round(monolect.erf(Tensor(1.0)).item(), 4)
    0.8427
    """
    return into(out, "erf", input.erf())


@guarded
def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return 1 - erf(`input`), accurate also for tiny results. Integers and bools give float32.

    >>> round(monolect.erfc(Tensor(1.0)).item(), 4)
    0.1573
    """
    return into(out, "erfc", input.erfc())


@guarded
def exp(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return e ** `input`. Integers and bools give float32.

    >>> round(monolect.exp(Tensor(1.0)).item(), 4)
    2.7183
    """
    return into(out, "exp", input.exp())


@guarded
def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return 2 ** `input`. Integers and bools give float32.

    >>> round(monolect.exp2(Tensor(3.0)).item(), 4)
    8.0
    """
    return into(out, "exp2", input.exp2())


@guarded
def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return e ** `input` - 1, accurate near 0. Integers and bools give float32.

    >>> round(monolect.expm1(Tensor(1.0)).item(), 4)
    1.7183
    """
    return into(out, "expm1", input.expm1())


@guarded
def floor(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the elements rounded down, in the same dtype; integers are unchanged.

    >>> monolect.floor(Tensor([1.7, -1.7])).tolist()
    [1.0, -2.0]
    """
    return into(out, "floor", input.floor())


@guarded
def frac(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return `input - trunc(input)`, the fractional part with the sign of `input`. Raises DTypeError for integers.

    >>> monolect.frac(Tensor([1.75, -1.75])).tolist()
    [0.75, -0.75]
    """
    return into(out, "frac", input.frac())


@guarded
def heaviside(input: Tensor, values: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return 0 where `input` is below 0, 1 where it is above 0, and `values` where it is 0; shapes broadcast.

    >>> monolect.heaviside(Tensor([-2.0, 0.0, 3.0]), 0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    return into(out, "heaviside", input.heaviside(values))


@guarded
def hypot(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return sqrt(`input`**2 + other**2) without overflow, broadcast; integers give float32.

    >>> monolect.hypot(Tensor([3, 30]), Tensor([4, 40])).tolist()
    [5.0, 50.0]
    """
    return into(out, "hypot", input.hypot(other))


@guarded
def lerp(input: Tensor, end: TensorLike, weight: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input + weight * (end - input)`, broadcast and promoted; the result is exactly `input` at weight 0 and
    `end` at weight 1.

    >>> monolect.lerp(Tensor([0.0, 10.0]), Tensor([10.0, 20.0]), 0.5).tolist()
    [5.0, 15.0]
    """
    return into(out, "lerp", input.lerp(end, weight))


@guarded
def log(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the natural logarithm, nan below 0. Integers and bools give float32.

    >>> round(monolect.log(Tensor(10.0)).item(), 4)
    2.3026
    """
    return into(out, "log", input.log())


@guarded
def log10(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the logarithm to base 10, nan below 0. Integers and bools give float32.

    >>> round(monolect.log10(Tensor(1000.0)).item(), 4)
    3.0
    """
    return into(out, "log10", input.log10())


@guarded
def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return log(1 + `input`), accurate near 0. Integers and bools give float32.

    >>> round(monolect.log1p(Tensor(1.0)).item(), 4)
    0.6931
    """
    return into(out, "log1p", input.log1p())


@guarded
def log2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the logarithm to base 2, nan below 0. Integers and bools give float32.

    >>> round(monolect.log2(Tensor(8.0)).item(), 4)
    3.0
    """
    return into(out, "log2", input.log2())


@guarded
def logaddexp(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return log(exp(`input`) + exp(other)) without overflow, broadcast; integers give float32.

    >>> round(monolect.logaddexp(Tensor(1000.0), 1000.0).item(), 3)
    1000.693
    """
    return into(out, "logaddexp", input.logaddexp(other))


@guarded
def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return log(`input` / (1 - `input`)), the inverse of `sigmoid`; with `eps`, `input` is first clamped to [eps, 1 -
    eps].

    Integers give float32.

    >>> monolect.logit(Tensor([0.5, 1.0])).tolist()
    [0.0, inf]
    """
    return into(out, "logit", input.logit(eps))


@guarded
def masked_fill(input: Tensor, mask: Tensor, value: TensorLike) -> Tensor:
    """Return `value` where `mask` holds, else `input`, in the dtype of `input`; both broadcast.

    Raises DTypeError for a mask that is not bool.

    >>> monolect.masked_fill(Tensor([1, 2, 3]), Tensor([True, False, True]), 0).tolist()
    [0, 2, 0]
    """
    return input.masked_fill(mask, value)


@guarded
def nan_to_num(
    input: Tensor,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return `input` with nan replaced by `nan`, and infinities by `posinf` and `neginf`, by default the largest
    finite values.

    Integers are unchanged.

    >>> monolect.nan_to_num(Tensor([float("nan"), float("inf"), 1.0]), posinf=9.0).tolist()
    [0.0, 9.0, 1.0]
    """
    return into(out, "nan_to_num", input.nan_to_num(nan, posinf, neginf))


@guarded
def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return angles in radians converted to degrees. Integers and bools give float32.

    >>> round(monolect.rad2deg(Tensor(1.0)).item(), 4)
    57.2958
    """
    return into(out, "rad2deg", input.rad2deg())


@guarded
def round(input: Tensor, decimals: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Return the elements rounded to `decimals` digits after the point; halves go to the even neighbour.

    Raises DTypeError for integers with negative `decimals`.

    >>> monolect.round(Tensor([0.5, 1.5, -2.5])).tolist()
    [0.0, 2.0, -2.0]
    """
    return into(out, "round", input.round(decimals))


@guarded
def rsqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return 1 / sqrt(`input`). Integers and bools give float32.

    >>> round(monolect.rsqrt(Tensor(4.0)).item(), 4)
    0.5
    """
    return into(out, "rsqrt", input.rsqrt())


@guarded
def sigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return 1 / (1 + exp(-`input`)). Integers and bools give float32.

    >>> round(monolect.sigmoid(Tensor(1.0)).item(), 4)
    0.7311
    """
    return into(out, "sigmoid", input.sigmoid())


@guarded
def sign(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return 1, 0 or -1 in the same dtype; the sign of nan is 0, as in PyTorch.

    >>> monolect.sign(Tensor([-2.5, 0.0, 3.0])).tolist()
    [-1.0, 0.0, 1.0]
    """
    return into(out, "sign", input.sign())


@guarded
def signbit(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return a bool tensor: True where the sign is negative, also for -0.0.

    >>> monolect.signbit(Tensor([-1.0, -0.0, 0.0])).tolist()
    [True, True, False]
    """
    return into(out, "signbit", input.signbit())


@guarded
def sin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the sine of angles in radians. Integers and bools give float32.

    >>> round(monolect.sin(Tensor(1.0)).item(), 4)
    0.8415
    """
    return into(out, "sin", input.sin())


@guarded
def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return sin(pi * `input`) / (pi * `input`), and 1 at 0; integers give float32.

    >>> [round(x, 4) for x in monolect.sinc(Tensor([0.0, 0.5])).tolist()]
    [1.0, 0.6366]
    """
    return into(out, "sinc", input.sinc())


@guarded
def sinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the hyperbolic sine. Integers and bools give float32.

    >>> round(monolect.sinh(Tensor(1.0)).item(), 4)
    1.1752
    """
    return into(out, "sinh", input.sinh())


@guarded
def sqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the square root, nan below 0. Integers and bools give float32.

    >>> round(monolect.sqrt(Tensor(2.0)).item(), 4)
    1.4142
    """
    return into(out, "sqrt", input.sqrt())


@guarded
def tan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the tangent of angles in radians. Integers and bools give float32.

    >>> round(monolect.tan(Tensor(1.0)).item(), 4)
    1.5574
    """
    return into(out, "tan", input.tan())


@guarded
def tanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the hyperbolic tangent. Integers and bools give float32.

    >>> round(monolect.tanh(Tensor(1.0)).item(), 4)
    0.7616
    """
    return into(out, "tanh", input.tanh())


@guarded
def trunc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the elements rounded toward zero, in the same dtype; integers are unchanged.

    >>> monolect.trunc(Tensor([1.7, -1.7])).tolist()
    [1.0, -1.0]
    """
    return into(out, "trunc", input.trunc())


@overload
def where(condition: Tensor, input: TensorLike, other: TensorLike, *, out: Tensor | None = None) -> Tensor: ...
@overload
def where(condition: Tensor, *, out: Tensor | tuple[Tensor, ...] | None = None) -> tuple[Tensor, ...]: ...
@guarded
def where(
    condition: Tensor,
    input: TensorLike | None = None,
    other: TensorLike | None = None,
    *,
    out: Tensor | tuple[Tensor, ...] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Return `input` where the condition `condition` holds, else `other`; called as `Tensor.where(condition, a, b)` or
    `condition.where(a, b)`. Without both it is `nonzero(as_tuple=True)`.

    All three broadcast, and the dtypes of `input` and `other` promote. Raises DTypeError for a condition that is
    not bool, ArgumentError for one of both.

    >>> monolect.where(Tensor([True, False]), Tensor([1, 2]), 0).tolist()
    [1, 0]
    """
    method: Any = condition.where
    return into(out, "where", method(input, other))


absolute = abs


arccos = acos


arccosh = acosh


arcsin = asin


arcsinh = asinh


arctan = atan


arctan2 = atan2


arctanh = atanh


clip = clamp


fix = trunc


sgn = sign


__all__ = [
    "abs", "absolute", "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh",
    "asin", "asinh", "atan", "atan2", "atanh", "ceil", "clamp", "clamp_max", "clamp_min", "clip", "copysign", "cos",
    "cosh", "deg2rad", "erf", "erfc", "exp", "exp2", "expm1", "fix", "floor", "frac", "heaviside", "hypot", "lerp",
    "log", "log10", "log1p", "log2", "logaddexp", "logit", "masked_fill", "nan_to_num", "rad2deg", "round", "rsqrt",
    "sgn", "sigmoid", "sign", "signbit", "sin", "sinc", "sinh", "sqrt", "tan", "tanh", "trunc", "where",
]  # fmt: skip
