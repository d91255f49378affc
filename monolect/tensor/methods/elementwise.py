"""Methods that compute each element from elements at the same index: arithmetic, comparisons, logic and bits.

What it is for: PyTorch's names and type promotion over the elementwise ops of the IR.
Invariants: operands reach the graph with equal dtypes. A Python number becomes a CONST of shape (), and nothing is
expanded. Shapes, dtypes and devices that do not fit raise at the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import wraps
from math import inf
from typing import Any, Self, TypeVar

from monolect.autograd import special
from monolect.autograd.division import floor_quotient, floor_remainder, fmod, truncated_quotient, whole_quotient
from monolect.autograd.graph import cast, e, number, where
from monolect.autograd.operands import by_value, common_dtype, nearest, promoted, same_device
from monolect.autograd.powers import equal_exponent, integer_power, power
from monolect.base.dtype import DType, dtypes, promote, scalar_dtype
from monolect.base.errors import ArgumentError, DTypeError, IRError
from monolect.base.numpy import is_array, is_foreign_array, is_scalar
from monolect.ir.rewrite.normal import TRUE
from monolect.ir.uop import UOp, build, const
from monolect.tensor.base import AnyTensor, Number, TensorBase, TensorLike, on_device_of, refused, tensor_of
from monolect.tensor.guard import guard_methods

# Maps NumPy's function of each binary operator to the reflected method of its right operand.
REFLECTED: dict[str, str] = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__",
    "true_divide": "__rtruediv__", "floor_divide": "__rfloordiv__", "remainder": "__rmod__", "power": "__rpow__",
    "matmul": "__rmatmul__", "left_shift": "__rlshift__", "right_shift": "__rrshift__", "bitwise_and": "__rand__",
    "bitwise_or": "__ror__", "bitwise_xor": "__rxor__", "less": "__gt__", "less_equal": "__ge__", "greater": "__lt__",
    "greater_equal": "__le__", "equal": "__eq__", "not_equal": "__ne__",
}  # fmt: skip
Method = TypeVar("Method", bound=Callable[..., Any])
_NUMBERS = (bool, int, float)
# Exponents of floats computed by products; each further product adds a rounding error.
_MULTIPLIED_EXPONENTS = range(-2, 5)


# ---- operands --------------------------------------------------------------------------------------------------------
def operand(self: Any, u: UOp, other: Any) -> UOp:
    """Return the node of `other`, an operand of a method of `self`; a Python number gets the dtype PyTorch gives it.

    `u` is the node of `self`, passed because a view builds it at each read. Raises ArgumentError for another object.
    """
    if other.__class__ is float or other.__class__ is int:
        return number(other, scalar_dtype(other, u.dtype))
    if isinstance(other, TensorBase):
        return other._uop
    if is_scalar(other):
        other = other.item()
    if isinstance(other, _NUMBERS):
        return number(other, scalar_dtype(other, u.dtype))
    if other.__class__ is not UOp:
        inner = getattr(other, "uop", None)
        if inner.__class__ is not UOp:
            if is_array(other) or is_foreign_array(other):
                return tensor_of(self, other)._uop
            raise ArgumentError(
                "an operand has an unsupported type", expected="a tensor or a number", found=repr(other)[:80]
            )
        other = inner
    if other.dtype is dtypes.index:
        return cast(other, u.dtype if u.dtype.is_float else dtypes.int64)
    return other


def clamp_to_dtype(d: DType, number: Any) -> Any:
    """Return `number` clamped to the range of `d`, so that it cannot wrap; a number in range is the same object."""
    number = number.item() if is_scalar(number) else number
    if number.__class__ is int and d.kind in "iu" or number.__class__ in (int, float) and d.is_float and d.max < inf:
        # a number that fits is returned as the same object, and so is nan
        return number if number != number else sorted((d.min, number, d.max))[1]
    return number


def _shift_in_range(d: DType, by: Any) -> Any:
    """Return the shift `by`; an int outside of the range of `d` becomes the largest of `d`, which also shifts all bits
    out.
    """
    by = by.item() if is_scalar(by) else by
    whole = scalar_dtype(0, d)
    return by if by.__class__ is not int or whole.is_float or whole.min <= by <= whole.max else whole.max


def pair(self: Any, other: Any) -> tuple[UOp, UOp]:
    """Return the nodes of the Tensor `self` and the operand `other`, promoted to one dtype.

    Raises ArgumentError if `other` is no tensor or number.
    """
    a = self._uop
    return promoted(a, operand(self, a, other))


def common(self: Any, *others: Any, convert: Callable[[UOp, DType], UOp] = cast) -> list[UOp]:
    """Return the nodes of the Tensor `self` and of the operands `others`, promoted to one dtype by `convert`.

    A Python number among several operands counts only if its category is higher than that of all tensors.
    """
    found = [x if isinstance(x, _NUMBERS) or is_scalar(x) else operand(self, self._uop, x) for x in others]
    tensors = number(0, common_dtype(self._uop, *(u for u in found if u.__class__ is UOp)))
    us = [self._uop, *(u if u.__class__ is UOp else operand(self, tensors, u) for u in found)]
    d = common_dtype(*us)
    return [convert(u, d) for u in us]


def extremes(self: Any, *others: Any) -> list[UOp]:
    """Return what `common` returns, for a maximum or minimum: a number, or an integer without axes, that the dtype does
    not hold becomes the nearest one.
    """
    return common(self, *(clamp_to_dtype(self.dtype, x) for x in others), convert=nearest)


def float_pair(self: Any, other: Any) -> tuple[UOp, UOp]:
    """Return the nodes of `self` and `other`, promoted to one float dtype.

    If `other` is a number, integers of `self` become float32 first, as their dtype may not hold the number.
    """
    if not self._uop.dtype.is_float and (isinstance(other, _NUMBERS) or is_scalar(other)):
        self = self._wrap(floating(self))
    a, b = pair(self, other)
    return (a, b) if a.dtype.is_float else (cast(a, dtypes.float32), cast(b, dtypes.float32))


def binary(self: AnyTensor, op: str, other: Any, reverse: bool = False) -> AnyTensor:
    """Return the elementwise `op` of `self` and `other` after promotion, exchanged if `reverse`.

    Raises ShapeError for shapes that do not broadcast, DTypeError for a dtype that `op` does not take, DeviceError for
    operands on different devices, and ArgumentError for an `other` that is no tensor or number.
    """
    a = self._uop
    b = other._uop if isinstance(other, TensorBase) else operand(self, a, other)
    if a.dtype is not b.dtype or a.dtype.kind == "s":
        a, b = promoted(a, b)
    if reverse:
        a, b = b, a
    if a.op != "CONST" and b.op != "CONST" and (a._placement is not b._placement or a._placement is None):
        same_device(a, b)  # equal placements are one object
    try:
        return self._wrap(build(op, a, b))
    except IRError as error:
        raise refused(op.lower(), error, a, b) from None


def floating(self: Any) -> UOp:
    """Return the tensor's node as a float: integers and bools become float32."""
    u = self._uop
    return u if u.dtype.is_float else cast(u, dtypes.float32)


def in_float32(formula: Callable[..., UOp]) -> Callable[..., UOp]:
    """Wrap `formula`, a function of float nodes of one dtype: operands narrower than float32 are cast to float32 for
    it, and the result is cast back to their dtype, so it is rounded once.
    """

    def wrapper(*xs: UOp) -> UOp:
        d = xs[0].dtype
        return formula(*xs) if d.bits >= 32 else cast(formula(*(cast(x, dtypes.float32) for x in xs)), d)

    return wrapper


def computes_in_float32(method: Method) -> Method:
    """Decorate a method of Tensor: if the common dtype of its Tensor operands is a float narrower than float32, they
    are cast to float32 for the method, and its result is cast back.
    """

    @wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        d = common_dtype(self._uop, *(a._uop for a in args if isinstance(a, TensorBase)))
        if not d.is_float or d.bits >= 32:
            return method(self, *args, **kwargs)
        return method(self.float(), *(_as_float32(a) for a in args), **kwargs).cast(d)

    return wrapper  # type: ignore[return-value]


def _as_float32(x: Any) -> Any:
    """Return a tensor as float32, any other object unchanged."""
    return x.float() if isinstance(x, TensorBase) else x


def negation(u: UOp) -> UOp:
    """Return the logical not of a bool node."""
    return build("CMPNE", u, TRUE)


def _mixes_uint64_and_signed(a: DType, b: DType) -> bool:
    """Whether one dtype is uint64 and the other signed: no integer dtype holds both, and a float would round."""
    return {a.kind, b.kind} == {"i", "u"} and dtypes.uint64 in (a, b)


def _compare_mixed(op: str, a: UOp, b: UOp) -> UOp:
    """Return `op`, CMPLT or CMPNE, of a signed integer and a uint64: a negative number is less than any uint64."""
    negative = e("CMPLT", a if a.dtype.kind == "i" else b, 0)
    unsigned = build(op, cast(a, dtypes.uint64), cast(b, dtypes.uint64))
    if op == "CMPLT" and b.dtype.kind == "i":
        return build("AND", negation(negative), unsigned)
    return build("OR", negative, unsigned)


def _compare(
    name: str, sign: str, of_floats: str, canonical: tuple[str, bool, bool]
) -> Callable[[AnyTensor, TensorLike], AnyTensor]:
    """Return the comparison method `name`, whose docstring shows the operator `sign`.

    `of_floats` is the op for floats. `canonical` is (op for other dtypes, whether operands are exchanged, whether
    the result is negated).
    """

    def method(self: AnyTensor, other: TensorLike) -> AnyTensor:
        op, exchanged, negated = canonical
        a = self._uop
        if isinstance(other, TensorBase):
            b = other._uop
        else:
            other = other.item() if is_scalar(other) else other
            b = operand(self, a, other)
            nearest = clamp_to_dtype(scalar_dtype(0, a.dtype), other)
            if nearest is not other:  # the number is outside of the range of the dtype
                if not a.dtype.is_float:
                    return ~self._all_false() if getattr(operator, name)(nearest, other) else self._all_false()
                a, b = cast(a, dtypes.float32), number(other, dtypes.float32)  # float32, as an element may be nan
        if (a.dtype is not b.dtype or a.dtype.kind == "s") and not _mixes_uint64_and_signed(a.dtype, b.dtype):
            a, b = by_value(a, b)
        if a.op != "CONST" and b.op != "CONST":
            same_device(a, b)
        try:
            if a.dtype.is_float:
                return self._wrap(build(of_floats, a, b))
            compare = build if a.dtype is b.dtype else _compare_mixed
            u = compare(op, b, a) if exchanged else compare(op, a, b)
            return self._wrap(negation(u) if negated else u)
        except IRError as error:
            raise refused(name, error, a, b) from None

    method.__name__ = name
    method.__code__ = method.__code__.replace(co_name=name)  # the name that provenance reports
    example = f">>> Tensor([1, 2, 3]).{name}(2).tolist()\n{[getattr(operator, name)(x, 2) for x in (1, 2, 3)]}"
    method.__doc__ = f"Return `self {sign} other` as a bool tensor, broadcast and promoted.\n\n{example}\n"
    return method


_lt = _compare("lt", "<", "CMPLT", ("CMPLT", False, False))
_gt = _compare("gt", ">", "CMPGT", ("CMPLT", True, False))
_le = _compare("le", "<=", "CMPLE", ("CMPLT", True, True))
_ge = _compare("ge", ">=", "CMPGE", ("CMPLT", False, True))
_eq = _compare("eq", "==", "CMPEQ", ("CMPNE", False, True))
_ne = _compare("ne", "!=", "CMPNE", ("CMPNE", False, False))


@guard_methods
class ElementwiseMixin(TensorBase):
    """Methods of Tensor for arithmetic, comparisons, logic and bits. Operands broadcast and promote.

    Methods raise ShapeError for shapes that do not broadcast, DeviceError for operands on different devices.
    """

    __slots__ = ()

    # ---- arithmetic --------------------------------------------------------------------------------------------------
    def __add__(self, other: TensorLike) -> Self:
        return binary(self, "ADD", other)

    def __radd__(self, other: TensorLike) -> Self:
        return binary(self, "ADD", other, True)

    def __mul__(self, other: TensorLike) -> Self:
        return binary(self, "MUL", other)

    def __rmul__(self, other: TensorLike) -> Self:
        return binary(self, "MUL", other, True)

    def __sub__(self, other: TensorLike) -> Self:
        return self.sub(other)

    def __rsub__(self, other: TensorLike) -> Self:
        self._no_bool("-")
        return binary(self, "SUB", other, True)

    def __truediv__(self, other: TensorLike) -> Self:
        return self.div(other)

    def __rtruediv__(self, other: TensorLike) -> Self:
        return self._quotient(other, True)

    def __floordiv__(self, other: TensorLike) -> Self:
        return self.floor_divide(other)

    def __rfloordiv__(self, other: TensorLike) -> Self:
        return self._scalar(other).floor_divide(self)

    def __mod__(self, other: TensorLike) -> Self:
        return self.remainder(other)

    def __rmod__(self, other: TensorLike) -> Self:
        return self._scalar(other).remainder(self)

    def __pow__(self, other: TensorLike) -> Self:
        return self.pow(other)

    def __rpow__(self, other: TensorLike) -> Self:
        return self._scalar(other).pow(self)

    def __neg__(self) -> Self:
        self._no_bool("-")
        u = self._uop
        return self._wrap(build("NEG", cast(u, dtypes.float32) if u.dtype.kind == "s" else u))

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self.abs()

    def _no_bool(self, what: str) -> None:
        """Raise a DTypeError that names the operator `what` if the dtype is bool."""
        if self._uop.dtype is dtypes.bool:
            raise DTypeError(f"'{what}' is not defined on bool", expected="a number (or ~, ^ for bool)", found="bool")

    def _scalar(self, value: Any) -> Self:
        """Return the operand `value`, a tensor, number or array, as a tensor; a Python number gets the dtype that it
        has in an operation with self.
        """
        return self._wrap(operand(self, self._uop, value))

    def _in_common(self, *others: Any) -> list[Self]:
        """Return `others` as tensors of the common dtype of self and `others`.

        Methods multiply them by their argument `alpha` or `value` in that dtype.
        """
        return [self._wrap(u) for u in common(self, *others)[1:]]

    def add(self, other: TensorLike, *, alpha: Number = 1) -> Self:
        """Return `self + alpha * other`, broadcast and promoted.

        >>> Tensor([1, 2]).add(Tensor([[10], [20]])).tolist()
        [[11, 12], [21, 22]]
        """
        return binary(self, "ADD", other if alpha == 1 else self._in_common(other)[0] * alpha)

    def sub(self, other: TensorLike, *, alpha: Number = 1) -> Self:
        """Return `self - alpha * other`, broadcast and promoted. Raises DTypeError if self is bool.

        >>> Tensor([5, 7]).sub(Tensor([1, 2]), alpha=2).tolist()
        [3, 3]
        """
        self._no_bool("-")
        return binary(self, "SUB", other if alpha == 1 else self._in_common(other)[0] * alpha)

    subtract = sub

    def rsub(self, other: TensorLike, *, alpha: Number = 1) -> Self:
        """Return `other - alpha * self`, broadcast and promoted. Raises DTypeError if self is bool.

        >>> Tensor([1, 2]).rsub(10).tolist()
        [9, 8]
        """
        self._no_bool("-")
        return binary(self if alpha == 1 else self * alpha, "SUB", other, True)

    def mul(self, other: TensorLike) -> Self:
        """Return `self * other`, broadcast and promoted.

        >>> Tensor([1, 2]).mul(Tensor([[2.0], [0.5]])).tolist()
        [[2.0, 4.0], [0.5, 1.0]]
        """
        return binary(self, "MUL", other)

    multiply = mul

    def neg(self) -> Self:
        """Return `-self`, of the same shape and dtype. Raises DTypeError for a bool tensor.

        >>> Tensor([1, -2]).neg().tolist()
        [-1, 2]
        """
        return -self

    negative = neg

    def _quotient(self, other: Any, reverse: bool = False) -> Self:
        """Return the float quotient `self / other`, or `other / self` if `reverse`; integers become float32.

        Raises ShapeError for shapes that do not broadcast, DeviceError for operands on different devices.
        """
        a, b = float_pair(self, other)
        if reverse:
            a, b = b, a
        same_device(a, b)
        try:
            return self._wrap(build("DIV", a, b))
        except IRError as error:
            raise refused("div", error, a, b) from None

    def div(self, other: TensorLike, *, rounding_mode: str | None = None) -> Self:
        """Return `self / other`, broadcast, in floats: integers give float32.

        With `rounding_mode` "floor" or "trunc" the quotient is rounded, and integers give integers. Raises
        ArgumentError for another mode.

        >>> Tensor([7, -7]).div(2, rounding_mode="floor").tolist()
        [3, -4]
        """
        if rounding_mode is None:
            return self._quotient(other)
        if rounding_mode == "floor":
            return self.floor_divide(other)
        if rounding_mode != "trunc":
            raise ArgumentError("div: unknown rounding_mode", expected="None, 'floor' or 'trunc'", found=rounding_mode)
        a, b = pair(self, other)
        if a.dtype.is_float:
            return self._wrap(in_float32(whole_quotient)(a, b))
        return self._wrap(truncated_quotient(a, b))

    divide = true_divide = div

    def floor_divide(self, other: TensorLike) -> Self:
        """Return `self / other` rounded down, broadcast and promoted.

        An integer divided by zero gives 0; bools give int64.

        >>> (Tensor([7, -7, 7]) // Tensor([2, 2, 0])).tolist()
        [3, -4, 0]
        """
        a, b = pair(self, other)
        same_device(a, b)
        if a.dtype.is_float:
            return self._wrap(in_float32(floor_quotient)(a, b))
        a, b = (cast(a, dtypes.int64), cast(b, dtypes.int64)) if a.dtype is dtypes.bool else (a, b)
        return binary(self._wrap(a), "IDIV", self._wrap(b))

    def remainder(self, other: TensorLike) -> Self:
        """Return the remainder of floor division, with the sign of `other`, broadcast and promoted.

        An integer modulo zero gives 0.

        >>> Tensor([-7, 7]).remainder(Tensor([3, -3])).tolist()
        [2, -2]
        """
        a, b = pair(self, other)
        same_device(a, b)
        if a.dtype.is_float:
            return self._wrap(in_float32(floor_remainder)(a, b))
        return binary(self._wrap(a), "MOD", self._wrap(b))

    def fmod(self, other: TensorLike) -> Self:
        """Return the remainder of truncated division by `other`, with the sign of self, broadcast and promoted.

        An integer modulo zero gives 0.

        >>> Tensor([-7, 7]).fmod(Tensor([3, -3])).tolist()
        [-1, 1]
        """
        a, b = pair(self, other)
        same_device(a, b)
        if a.dtype.is_float:
            return self._wrap(in_float32(fmod)(a, b))
        if a.dtype.kind != "i":
            return self % other
        rest = build("SUB", a, build("MUL", truncated_quotient(a, b), b))
        return self._wrap(where(e("CMPNE", b, 0), rest, 0))

    def pow(self, exponent: TensorLike) -> Self:
        """Return `self ** exponent`, broadcast and promoted; bools give int64.

        Small whole exponents are computed by products, 0.5 and -0.5 by a square root. Raises ArgumentError for integers
        to a negative Python number.

        >>> (Tensor([2, 3]) ** 2).tolist()
        [4, 9]
        """
        if is_scalar(exponent):
            exponent = exponent.item()
        if isinstance(exponent, _NUMBERS):
            u = cast(self._uop, promote(self._uop.dtype, scalar_dtype(exponent, self._uop.dtype)))
            u = cast(u, dtypes.int64) if u.dtype is dtypes.bool else u
            if exponent == int(exponent) if exponent - exponent == 0 else False:
                if not u.dtype.is_float and exponent < 0:
                    raise ArgumentError("integers to a negative power", expected="at least 0", found=exponent)
                if exponent in _MULTIPLIED_EXPONENTS if u.dtype.is_float else exponent <= 64:
                    n = int(exponent)
                    found = in_float32(lambda x: power(x, n))(u) if u.dtype.is_float else power(u, n)
                    return self._wrap(on_device_of(found, u))
                if not u.dtype.is_float and exponent > u.dtype.max:
                    exponent = equal_exponent(int(exponent), u.dtype)
            elif exponent in (0.5, -0.5):
                root = build("SQRT", u)
                return self._wrap(root if exponent > 0 else in_float32(lambda x: build("RECIP", build("SQRT", x)))(u))
        a, b = pair(self, exponent)
        same_device(a, b)
        try:
            return self._wrap(build("POW", a, b) if a.dtype.is_float else integer_power(a, b))
        except IRError as error:
            raise refused("pow", error, a, b) from None

    def float_power(self, exponent: TensorLike) -> Self:
        """Return `self ** exponent` computed in float64, broadcast; the result is float64.

        >>> Tensor([2, 4]).float_power(-1).tolist()
        [0.5, 0.25]
        """
        return self.cast(dtypes.float64).pow(
            exponent.cast(dtypes.float64) if isinstance(exponent, TensorBase) else exponent
        )

    def square(self) -> Self:
        """Return `self * self`, of the same dtype; bools give int64.

        >>> Tensor([-3, 4]).square().tolist()
        [9, 16]
        """
        x = self.cast(dtypes.int64) if self.dtype is dtypes.bool else self
        return x * x

    def reciprocal(self) -> Self:
        """Return `1 / self`; integers give float32.

        >>> Tensor([2, 4]).reciprocal().tolist()
        [0.5, 0.25]
        """
        return self._wrap(build("RECIP", floating(self)))

    def maximum(self, other: TensorLike) -> Self:
        """Return the larger element of self and `other`, broadcast and promoted; nan if either is nan.

        An int outside of the range of an integer dtype is replaced by the nearest number of the dtype.

        >>> Tensor([1, 5]).maximum(Tensor([4, 2])).tolist()
        [4, 5]
        """
        a, b = extremes(self, other)
        return binary(self._wrap(a), "MAX", self._wrap(b))

    def minimum(self, other: TensorLike) -> Self:
        """Return the smaller element of self and `other`, broadcast and promoted; nan if either is nan.

        An int outside of the range of an integer dtype is replaced by the nearest number of the dtype.

        >>> Tensor([1.0, 5.0]).minimum(Tensor([float("nan"), 2.0])).tolist()
        [nan, 2.0]
        """
        a, b = extremes(self, other)
        same_device(a, b)
        flip = "NEG" if a.dtype.is_float else "NOT"  # NOT reverses the order of integers without overflow
        try:
            return self._wrap(build(flip, build("MAX", build(flip, a), build(flip, b))))
        except IRError as error:
            raise refused("minimum", error, a, b) from None

    def fma(self, other: TensorLike, addend: TensorLike) -> Self:
        """Return `self * other + addend`, broadcast and promoted.

        Floats are rounded once if the target has a fused multiply-add.

        >>> Tensor([1, 2]).fma(10, 3).tolist()
        [13, 23]
        """
        rounded_twice = self * other + addend
        if not rounded_twice.dtype.is_float:
            return rounded_twice
        return self._wrap(build("MULACC", *common(self, other, addend)))

    @computes_in_float32
    def addcmul(self, tensor1: TensorLike, tensor2: TensorLike, *, value: Number = 1) -> Self:
        """Return `self + value * tensor1 * tensor2`, broadcast and promoted.

        >>> Tensor([1, 1]).addcmul(Tensor([2, 3]), Tensor([4, 5]), value=10).tolist()
        [81, 151]
        """
        a, b = self._in_common(tensor1, tensor2)
        return self + a * value * b

    @computes_in_float32
    def addcdiv(self, tensor1: TensorLike, tensor2: TensorLike, *, value: Number = 1) -> Self:
        """Return `self + value * tensor1 / tensor2`, broadcast; the quotient of integers is float32.

        >>> Tensor([1.0, 1.0]).addcdiv(Tensor([1.0, 3.0]), Tensor([2.0, 4.0])).tolist()
        [1.5, 1.75]
        """
        a, b = self._in_common(tensor1, tensor2)
        return self + (a * value / b if a.dtype.is_float else a / b * value)

    # ---- comparisons -------------------------------------------------------------------------------------------------
    lt = less = __lt__ = _lt
    gt = greater = __gt__ = _gt
    le = less_equal = __le__ = _le
    ge = greater_equal = __ge__ = _ge
    eq = _eq
    ne = not_equal = _ne
    __hash__ = object.__hash__

    def __eq__(self, other: TensorLike | None) -> Self:  # type: ignore[override]
        return NotImplemented if other is None else _eq(self, other)  # `t == None` is False

    def __ne__(self, other: TensorLike | None) -> Self:  # type: ignore[override]
        return NotImplemented if other is None else _ne(self, other)

    def isnan(self) -> Self:
        """Return a bool tensor: True where the value is nan; False everywhere for integers.

        >>> Tensor([1.0, float("nan")]).isnan().tolist()
        [False, True]
        """
        return self._wrap(build("CMPNE", self._uop, self._uop)) if self.dtype.is_float else self._all_false()

    def isinf(self) -> Self:
        """Return a bool tensor: True where the value is an infinity; False everywhere for integers.

        >>> Tensor([1.0, float("-inf")]).isinf().tolist()
        [False, True]
        """
        if not self.dtype.is_float:
            return self._all_false()
        return self._wrap(e("CMPEQ", special.absolute(self._uop), inf))

    def isfinite(self) -> Self:
        """Return a bool tensor: True where the value is neither nan nor an infinity; True everywhere for integers.

        >>> Tensor([1.0, float("inf"), float("nan")]).isfinite().tolist()
        [True, False, False]
        """
        if not self.dtype.is_float or self.dtype.max < inf:
            return ~self.isnan()
        return self._wrap(e("CMPLT", special.absolute(self._uop), inf))

    def _all_false(self) -> Self:
        """Return a bool tensor of the same shape that is False everywhere; the dtype of self must be without nan."""
        return self._wrap(build("CMPNE", self._uop, self._uop))

    def isclose(self, other: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Self:
        """Return a bool tensor, broadcast: True where |self - other| <= atol + rtol * |other|, or both are nan and
        `equal_nan`. An infinity is close only to itself.

        >>> Tensor([1.0, 2.0]).isclose(Tensor([1.0, 2.1])).tolist()
        [True, False]
        """
        other = other.item() if is_scalar(other) else other
        if clamp_to_dtype(self.dtype, other) is not other:
            self = self._wrap(cast(self._uop, dtypes.float32))  # the range of float32 includes the number
        a, b = (self._wrap(u) for u in by_value(self._uop, operand(self, self._uop, other)))
        distance = (a - b).abs() if a.dtype.is_float else _distance(a, b)
        bound: Any = self._wrap(floating(b)).abs() * rtol + atol
        close: Any = (a == b) | ((distance <= bound) & distance.isfinite())
        return close | (a.isnan() & b.isnan()) if equal_nan else close

    def allclose(self, other: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
        """Whether |self - other| <= atol + rtol * |other| for all elements, as a Python bool. The tensors are computed.

        With `equal_nan` two nan are close; an infinity is close only to itself.

        >>> a, b = Tensor([1.0, 2.0]), Tensor([1.0, 2.1])
        >>> a.allclose(b), a.allclose(b, rtol=0.1)
        (False, True)
        """
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())

    # ---- logic and bits ----------------------------------------------------------------------------------------------
    def _bits(self, op: str, other: Any, reverse: bool = False) -> Self:
        """Return the bitwise `op` of self and `other`, exchanged if `reverse`. Raises DTypeError for floats."""
        for x in (self, other):
            if isinstance(x, TensorBase) and x.dtype.is_float:
                name, expected = f"{op.lower()} needs integers or bool", "an integer dtype or bool"
                raise DTypeError(name, expected=expected, found=x.dtype.name)
        return binary(self, op, other, reverse)

    def __and__(self, other: TensorLike) -> Self:
        """Return `self & other` of integers or bools, broadcast and promoted. Raises DTypeError for floats.

        >>> (Tensor([12, 10]) & 6).tolist()
        [4, 2]
        """
        return self._bits("AND", other)

    def __or__(self, other: TensorLike) -> Self:
        """Return `self | other` of integers or bools, broadcast and promoted. Raises DTypeError for floats.

        >>> (Tensor([12, 10]) | 6).tolist()
        [14, 14]
        """
        return self._bits("OR", other)

    def __xor__(self, other: TensorLike) -> Self:
        """Return `self ^ other` of integers or bools, broadcast and promoted. Raises DTypeError for floats.

        >>> (Tensor([12, 10]) ^ 6).tolist()
        [10, 12]
        """
        return self._bits("XOR", other)

    bitwise_and = __rand__ = __and__
    bitwise_or = __ror__ = __or__
    bitwise_xor = __rxor__ = __xor__

    def __invert__(self) -> Self:
        """Return `~self`: each bit inverted, or the logical not of bools. Raises DTypeError for floats.

        >>> (~Tensor([0, 5])).tolist(), (~Tensor([True, False])).tolist()
        ([-1, -6], [False, True])
        """
        u = self._uop
        if u.dtype.is_float:
            raise DTypeError("~ needs integers or bool", expected="an integer dtype or bool", found=u.dtype.name)
        return self._wrap(negation(u) if u.dtype is dtypes.bool else build("NOT", u))

    bitwise_not = __invert__

    def __lshift__(self, other: TensorLike) -> Self:
        """Return `self << other`, which is self * 2 ** other, broadcast and promoted. Raises DTypeError for floats.

        >>> (Tensor([1, 5]) << 2).tolist()
        [4, 20]
        """
        return self._bits("SHL", _shift_in_range(self.dtype, other))

    def __rshift__(self, other: TensorLike) -> Self:
        """Return `self >> other`, which is self / 2 ** other rounded down, broadcast and promoted.

        Raises DTypeError for floats.

        >>> (Tensor([20, -5]) >> 2).tolist()
        [5, -2]
        """
        return self._bits("SHR", _shift_in_range(self.dtype, other))

    def __rlshift__(self, other: TensorLike) -> Self:
        return self._bits("SHL", other, True)

    def __rrshift__(self, other: TensorLike) -> Self:
        return self._bits("SHR", other, True)

    bitwise_left_shift, bitwise_right_shift = __lshift__, __rshift__

    def logical_not(self) -> Self:
        """Return a bool tensor: True where the element is zero.

        >>> Tensor([0, 2]).logical_not().tolist()
        [True, False]
        """
        return ~self.bool()

    def logical_and(self, other: TensorLike) -> Self:
        """Return a bool tensor, broadcast: True where the elements of self and `other` are both not zero.

        >>> Tensor([0, 1, 2]).logical_and(Tensor([1, 0, 3])).tolist()
        [False, False, True]
        """
        return self.bool() & self._truth(other)

    def logical_or(self, other: TensorLike) -> Self:
        """Return a bool tensor, broadcast: True where the element of self or that of `other` is not zero.

        >>> Tensor([0, 0, 2]).logical_or(Tensor([1, 0, 3])).tolist()
        [True, False, True]
        """
        return self.bool() | self._truth(other)

    def logical_xor(self, other: TensorLike) -> Self:
        """Return a bool tensor, broadcast: True where exactly one of the elements of self and `other` is not zero.

        >>> Tensor([0, 0, 2]).logical_xor(Tensor([1, 0, 3])).tolist()
        [True, False, False]
        """
        return self.bool() ^ self._truth(other)

    def _truth(self, other: Any) -> Self:
        """Return `other`, a tensor or number, as a bool tensor: True where it is not zero."""
        if isinstance(other, _NUMBERS) or is_scalar(other):  # the dtype of self may not hold it
            return self._wrap(const(bool(other), dtypes.bool))
        return self._scalar(other).bool()


# ---- formulas --------------------------------------------------------------------------------------------------------
def _distance(a: Any, b: Any) -> Any:
    """Return |a - b| of integers or bools as float32; the difference may need one bit more than the dtype has."""
    if a.dtype is dtypes.bool:
        return (a ^ b).float()
    return (a.maximum(b) - a.minimum(b)).bitcast(f"uint{a.dtype.bits}").float()


__all__ = [
    "ElementwiseMixin",
    "REFLECTED",
    "binary",
    "clamp_to_dtype",
    "common",
    "computes_in_float32",
    "extremes",
    "float_pair",
    "floating",
    "in_float32",
    "negation",
    "operand",
    "pair",
]
