"""Methods that compute each element by itself: arithmetic, comparisons, bits, functions, activations.

What it is for: PyTorch's names and promotion over the elementwise ops of the dialect.
Invariants: operands reach the graph with equal dtypes; a Python number becomes a CONST of shape () and nothing is
expanded; shapes, dtypes and devices that do not fit raise at the call.
"""

from __future__ import annotations

import operator
from functools import wraps
from math import inf
from typing import TYPE_CHECKING, Any

from monolect.autograd import special
from monolect.autograd.gradient import closed_form
from monolect.autograd.graph import broadcast_to, cast, e, number, where
from monolect.autograd.operands import same_device
from monolect.base.dtype import DType, dtypes, promote, scalar_dtype
from monolect.base.errors import ArgumentError, DTypeError, IRError
from monolect.base.numpy import is_array, is_scalar
from monolect.ir.rewrite.normal import TRUE
from monolect.ir.uop import UOp, build, const
from monolect.tensor.base import TensorBase, placed_like, refused
from monolect.tensor.guard import guard_methods

if TYPE_CHECKING:
    from monolect.tensor.tensor import Tensor

_NUMBERS = (bool, int, float)
_BY_PRODUCTS = range(-2, 5)  # exponents of floats: each product more adds an error


# ---- joining operands ------------------------------------------------------------------------------------------------
def operand(self: Any, u: UOp, other: Any) -> UOp:
    """`other` as a node beside `u`, that of the tensor `self`: a number takes the dtype PyTorch gives it.

    Who has `u` says it: a view makes its node each time it is asked.
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
            if is_array(other):
                return type(self)(other)._uop
            raise ArgumentError("not an operand", expected="a tensor or a number", found=repr(other)[:80])
        other = inner
    if other.dtype is dtypes.index:
        return cast(other, u.dtype if u.dtype.is_float else dtypes.int64)
    return other


def held(d: DType, number: Any) -> Any:
    """`number`; one beyond the numbers of `d` that would wrap, or become nan, as the nearest of them."""
    number = number.item() if is_scalar(number) else number
    if number.__class__ is int and d.kind in "iu" or number.__class__ in (int, float) and d.is_float and d.max < inf:
        # a number that fits is returned as the same object, and so is nan
        return number if number != number else sorted((d.min, number, d.max))[1]
    return number


def _shift_held(d: DType, by: Any) -> Any:
    """`by`; a number beyond those of the dtype, a shift that leaves no bits, as one that the dtype holds."""
    by = by.item() if is_scalar(by) else by
    whole = scalar_dtype(0, d)
    return by if by.__class__ is not int or whole.is_float or whole.min <= by <= whole.max else whole.max


def pair(self: Any, other: Any) -> tuple[UOp, UOp]:
    """The tensor's node and that of `other`, of one dtype."""
    a = self._uop
    return promoted(a, operand(self, a, other))


def promoted(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """Both in the dtype that holds the values of both."""
    if a.dtype is b.dtype:
        return a, b
    d = promote(a.dtype, b.dtype)
    return cast(a, d), cast(b, d)


def float_pair(self: Any, other: Any) -> tuple[UOp, UOp]:
    """`pair` of floats: integers become float32, a number at once, since the tensor's integers may not hold it."""
    if not self._uop.dtype.is_float and (isinstance(other, _NUMBERS) or is_scalar(other)):
        self = self._wrap(floating(self))
    a, b = pair(self, other)
    return (a, b) if a.dtype.is_float else (cast(a, dtypes.float32), cast(b, dtypes.float32))


def binary(self: Any, op: str, other: Any, reverse: bool = False) -> Tensor:
    """The elementwise `op` of two operands after promotion."""
    a = self._uop
    b = other._uop if isinstance(other, TensorBase) else operand(self, a, other)
    if a.dtype is not b.dtype:
        a, b = promoted(a, b)
    if reverse:
        a, b = b, a
    if a.op != "CONST" and b.op != "CONST":
        same_device(a, b)
    try:
        return self._wrap(build(op, a, b))
    except IRError as error:
        raise refused(op.lower(), error, a, b) from None


def floating(self: Any) -> UOp:
    """The tensor's node as a float: integers and bool become float32."""
    u = self._uop
    return u if u.dtype.is_float else cast(u, dtypes.float32)


def widened(formula: Any) -> Any:
    """`formula` of float nodes of one dtype; halves are computed in float32, and the result is rounded once."""

    def wide(*xs: UOp) -> UOp:
        d = xs[0].dtype
        return formula(*xs) if d.bits >= 32 else cast(formula(*(cast(x, dtypes.float32) for x in xs)), d)

    return wide


def in_single(method: Any) -> Any:
    """A method that computes halves, its own and those of its arguments, in float32, and rounds the result once."""

    @wraps(method)
    def wide(self: Any, *args: Any, **kwargs: Any) -> Any:
        d = promote(self.dtype, *(a.dtype for a in args if isinstance(a, TensorBase)))
        if not d.is_float or d.bits >= 32:
            return method(self, *args, **kwargs)
        return method(self.float(), *(_single(a) for a in args), **kwargs).cast(d)

    return wide


def _single(x: Any) -> Any:
    return x.float() if isinstance(x, TensorBase) else x


def negation(u: UOp) -> UOp:
    """Logical not of a bool node."""
    return build("CMPNE", u, TRUE)


def _are_mixed(a: DType, b: DType) -> bool:
    """Whether one is uint64 and the other signed: no integer type holds both, and a float rounds them."""
    return {a.kind, b.kind} == {"i", "u"} and dtypes.uint64 in (a, b)


def _compare_mixed(op: str, a: UOp, b: UOp) -> UOp:
    """CMPLT or CMPNE of a signed integer and a uint64: a negative one is less than, and differs from, the other."""
    negative = e("CMPLT", a if a.dtype.kind == "i" else b, 0)
    unsigned = build(op, cast(a, dtypes.uint64), cast(b, dtypes.uint64))
    if op == "CMPLT" and b.dtype.kind == "i":
        return build("AND", negation(negative), unsigned)
    return build("OR", negative, unsigned)


def _compare(name: str, sign: str, floats: tuple[str, bool], rest: tuple[str, bool, bool]) -> Any:
    """A comparison: the op for floats, and the canonical one for others, perhaps exchanged and negated."""

    def method(self: Any, other: Any) -> Tensor:
        op, exchanged, negated = rest
        a = self._uop
        if isinstance(other, TensorBase):
            b = other._uop
        else:
            other = other.item() if is_scalar(other) else other
            b = operand(self, a, other)
            if (most := held(scalar_dtype(0, a.dtype), other)) is not other:  # no element is as large, or as small
                if not a.dtype.is_float:
                    return ~self._nowhere() if getattr(operator, name)(most, other) else self._nowhere()
                a, b = cast(a, dtypes.float32), number(other, dtypes.float32)  # an element may be nan
        if a.dtype is not b.dtype and not _are_mixed(a.dtype, b.dtype):
            a, b = promoted(a, b)
        if a.op != "CONST" and b.op != "CONST":
            same_device(a, b)
        try:
            if a.dtype.is_float:
                return self._wrap(build(floats[0], a, b))
            compare = build if a.dtype is b.dtype else _compare_mixed
            u = compare(op, b, a) if exchanged else compare(op, a, b)
            return self._wrap(negation(u) if negated else u)
        except IRError as error:
            raise refused(name, error, a, b) from None

    method.__name__ = name
    method.__code__ = method.__code__.replace(co_name=name)  # the name that provenance reports
    example = f">>> Tensor([1, 2, 3]).{name}(2).tolist()\n{[getattr(operator, name)(x, 2) for x in (1, 2, 3)]}"
    method.__doc__ = f"`self {sign} other`, broadcast and promoted; the result is bool.\n\n{example}\n"
    return method


_lt = _compare("lt", "<", ("CMPLT", False), ("CMPLT", False, False))
_gt = _compare("gt", ">", ("CMPGT", False), ("CMPLT", True, False))
_le = _compare("le", "<=", ("CMPLE", False), ("CMPLT", True, True))
_ge = _compare("ge", ">=", ("CMPGE", False), ("CMPLT", False, True))
_eq = _compare("eq", "==", ("CMPEQ", False), ("CMPNE", False, True))
_ne = _compare("ne", "!=", ("CMPNE", False), ("CMPNE", False, False))


@guard_methods
class ElementwiseMixin(TensorBase):
    """Arithmetic, comparisons, bits, functions and activations."""

    __slots__ = ()

    # ---- arithmetic --------------------------------------------------------------------------------------------------
    def __add__(self, other: Any) -> Tensor:
        return binary(self, "ADD", other)

    def __radd__(self, other: Any) -> Tensor:
        return binary(self, "ADD", other, True)

    def __mul__(self, other: Any) -> Tensor:
        return binary(self, "MUL", other)

    def __rmul__(self, other: Any) -> Tensor:
        return binary(self, "MUL", other, True)

    def __sub__(self, other: Any) -> Tensor:
        return self.sub(other)

    def __rsub__(self, other: Any) -> Tensor:
        self._no_bool("-")
        return binary(self, "SUB", other, True)

    def __truediv__(self, other: Any) -> Tensor:
        return self.div(other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._quotient(other, True)

    def __floordiv__(self, other: Any) -> Tensor:
        return self.floor_divide(other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return self._scalar(other).floor_divide(self)

    def __mod__(self, other: Any) -> Tensor:
        return self.remainder(other)

    def __rmod__(self, other: Any) -> Tensor:
        return self._scalar(other).remainder(self)

    def __pow__(self, other: Any) -> Tensor:
        return self.pow(other)

    def __rpow__(self, other: Any) -> Tensor:
        return self._scalar(other).pow(self)

    def __neg__(self) -> Tensor:
        self._no_bool("-")
        return self._wrap(build("NEG", self._uop))

    def __pos__(self) -> Tensor:
        return self  # type: ignore[return-value]

    def __abs__(self) -> Tensor:
        return self.abs()

    def _no_bool(self, what: str) -> None:
        if self._uop.dtype is dtypes.bool:
            raise DTypeError(f"'{what}' is not defined on bool", expected="a number (or ~, ^ for bool)", found="bool")

    def _scalar(self, value: Any) -> Tensor:
        return self._wrap(operand(self, self._uop, value))

    def _in_common(self, *others: Any) -> list[Tensor]:
        """Other operands in the dtype that holds the values of all: what they are multiplied by is taken in that."""
        us = [operand(self, self._uop, x) for x in others]
        d = promote(self._uop.dtype, *(u.dtype for u in us))
        return [self._wrap(cast(u, d)) for u in us]

    def add(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """`self + alpha * other`, broadcast and promoted.

        >>> Tensor([1, 2]).add(Tensor([[10], [20]])).tolist()
        [[11, 12], [21, 22]]
        """
        return binary(self, "ADD", other if alpha == 1 else self._in_common(other)[0] * alpha)

    def sub(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """`self - alpha * other`, broadcast and promoted. Raises DTypeError where self is bool.

        >>> Tensor([5, 7]).sub(Tensor([1, 2]), alpha=2).tolist()
        [3, 3]
        """
        self._no_bool("-")
        return binary(self, "SUB", other if alpha == 1 else self._in_common(other)[0] * alpha)

    subtract = sub

    def rsub(self, other: Any) -> Tensor:
        """`other - self`. Raises DTypeError where self is bool.

        >>> Tensor([1, 2]).rsub(10).tolist()
        [9, 8]
        """
        self._no_bool("-")
        return binary(self, "SUB", other, True)

    def mul(self, other: Any) -> Tensor:
        """`self * other`, broadcast and promoted.

        >>> Tensor([1, 2]).mul(Tensor([[2.0], [0.5]])).tolist()
        [[2.0, 4.0], [0.5, 1.0]]
        """
        return binary(self, "MUL", other)

    multiply = mul

    def neg(self) -> Tensor:
        """`-self`. Raises DTypeError for a bool tensor.

        >>> Tensor([1, -2]).neg().tolist()
        [-1, 2]
        """
        return -self

    negative = neg

    def _quotient(self, other: Any, reverse: bool = False) -> Tensor:
        a, b = float_pair(self, other)
        if reverse:
            a, b = b, a
        same_device(a, b)
        try:
            return self._wrap(build("DIV", a, b))
        except IRError as error:
            raise refused("div", error, a, b) from None

    def div(self, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """`self / other` in floats; with `rounding_mode` "floor" or "trunc", rounded, and in integers for integers.

        Raises ArgumentError for another mode.

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
            return self._wrap(widened(_whole_quotient)(a, b))
        return self._wrap(_truncated(a, b))

    divide = true_divide = div

    def floor_divide(self, other: Any) -> Tensor:
        """The quotient rounded down; an integer divided by zero gives 0.

        >>> (Tensor([7, -7, 7]) // Tensor([2, 2, 0])).tolist()
        [3, -4, 0]
        """
        a, b = pair(self, other)
        same_device(a, b)
        if a.dtype.is_float:
            return self._wrap(widened(_floor_quotient)(a, b))
        a, b = (cast(a, dtypes.int64), cast(b, dtypes.int64)) if a.dtype is dtypes.bool else (a, b)
        return binary(self._wrap(a), "IDIV", self._wrap(b))

    def remainder(self, other: Any) -> Tensor:
        """What is left of self after floor division; it has the sign of `other`. 0 for an integer modulo zero.

        >>> Tensor([-7, 7]).remainder(Tensor([3, -3])).tolist()
        [2, -2]
        """
        a, b = pair(self, other)
        same_device(a, b)
        if a.dtype.is_float:
            return self._wrap(widened(_remainder)(a, b))
        return binary(self._wrap(a), "MOD", self._wrap(b))

    def fmod(self, other: Any) -> Tensor:
        """What is left of self after truncated division; it has the sign of self. 0 for an integer modulo zero.

        >>> Tensor([-7, 7]).fmod(Tensor([3, -3])).tolist()
        [-1, 1]
        """
        a, b = pair(self, other)
        same_device(a, b)
        if a.dtype.is_float:
            return self._wrap(widened(_fmod)(a, b))
        if a.dtype.kind != "i":
            return self % other
        rest = build("SUB", a, build("MUL", _truncated(a, b), b))
        return self._wrap(where(e("CMPNE", b, 0), rest, 0))

    def pow(self, exponent: Any) -> Tensor:
        """`self ** exponent`. Whole exponents of integers up to 64 multiply; 0.5 is a square root.

        Raises ArgumentError for integers to a negative number.

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
                if exponent in _BY_PRODUCTS if u.dtype.is_float else exponent <= 64:
                    n = int(exponent)
                    return self._wrap(widened(lambda x: _power(x, n))(u) if u.dtype.is_float else _power(u, n))
                if not u.dtype.is_float and exponent > u.dtype.max:
                    exponent = _equal_exponent(int(exponent), u.dtype)
            elif exponent in (0.5, -0.5):
                root = build("SQRT", u)
                return self._wrap(root if exponent > 0 else widened(lambda x: build("RECIP", build("SQRT", x)))(u))
        a, b = pair(self, exponent)
        same_device(a, b)
        try:
            return self._wrap(build("POW", a, b) if a.dtype.is_float else _integer_power(a, b))
        except IRError as error:
            raise refused("pow", error, a, b) from None

    def float_power(self, exponent: Any) -> Tensor:
        """`pow`, computed in float64 whatever the operands are.

        >>> Tensor([2, 4]).float_power(-1).tolist()
        [0.5, 0.25]
        """
        return self.cast(dtypes.float64).pow(
            exponent.cast(dtypes.float64) if isinstance(exponent, TensorBase) else exponent
        )

    def square(self) -> Tensor:
        """`self * self`; of bools in int64.

        >>> Tensor([-3, 4]).square().tolist()
        [9, 16]
        """
        x = self.cast(dtypes.int64) if self.dtype is dtypes.bool else self
        return x * x

    def reciprocal(self) -> Tensor:
        """`1 / self`; of integers in float32.

        >>> Tensor([2, 4]).reciprocal().tolist()
        [0.5, 0.25]
        """
        return self._wrap(build("RECIP", floating(self)))

    def maximum(self, other: Any) -> Tensor:
        """The larger of both; nan where either is nan. A number beyond those of the dtype means the nearest of them.

        >>> Tensor([1, 5]).maximum(Tensor([4, 2])).tolist()
        [4, 5]
        """
        return binary(self, "MAX", held(self.dtype, other))

    def minimum(self, other: Any) -> Tensor:
        """The smaller of both; nan where either is nan. A number beyond those of the dtype means the nearest of them.

        >>> Tensor([1.0, 5.0]).minimum(Tensor([float("nan"), 2.0])).tolist()
        [nan, 2.0]
        """
        a, b = pair(self, held(self.dtype, other))
        same_device(a, b)
        flip = "NEG" if a.dtype.is_float else "NOT"  # NOT reverses the order of integers without overflow
        try:
            return self._wrap(build(flip, build("MAX", build(flip, a), build(flip, b))))
        except IRError as error:
            raise refused("minimum", error, a, b) from None

    def fma(self, other: Any, addend: Any) -> Tensor:
        """`self * other + addend`; of floats rounded once where the target has that instruction.

        >>> Tensor([1, 2]).fma(10, 3).tolist()
        [13, 23]
        """
        twice = self * other + addend
        if not twice.dtype.is_float:
            return twice
        a = self.cast(twice.dtype)
        return self._wrap(build("MULACC", *pair(a, other), pair(a, addend)[1]))

    @in_single
    def addcmul(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """`self + value * tensor1 * tensor2`.

        >>> Tensor([1, 1]).addcmul(Tensor([2, 3]), Tensor([4, 5]), value=10).tolist()
        [81, 151]
        """
        a, b = self._in_common(tensor1, tensor2)
        return self + a * value * b

    @in_single
    def addcdiv(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """`self + value * tensor1 / tensor2`.

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
    eq = __eq__ = _eq
    ne = not_equal = __ne__ = _ne
    __hash__ = object.__hash__

    def isnan(self) -> Tensor:
        """Where the value is nan: bool, False everywhere for integers.

        >>> Tensor([1.0, float("nan")]).isnan().tolist()
        [False, True]
        """
        return self._wrap(build("CMPNE", self._uop, self._uop)) if self.dtype.is_float else self._nowhere()

    def isinf(self) -> Tensor:
        """Where the value is an infinity: bool, False everywhere for integers.

        >>> Tensor([1.0, float("-inf")]).isinf().tolist()
        [False, True]
        """
        if not self.dtype.is_float:
            return self._nowhere()
        return self._wrap(e("CMPEQ", special.absolute(self._uop), inf))

    def isfinite(self) -> Tensor:
        """Where the value is neither nan nor an infinity: bool, True everywhere for integers.

        >>> Tensor([1.0, float("inf"), float("nan")]).isfinite().tolist()
        [True, False, False]
        """
        if not self.dtype.is_float or self.dtype.max < inf:
            return ~self.isnan()
        return self._wrap(e("CMPLT", special.absolute(self._uop), inf))

    def _nowhere(self) -> Tensor:
        return self._wrap(build("CMPNE", self._uop, self._uop))

    def isclose(self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
        """Where |self - other| <= atol + rtol * |other|.

        >>> Tensor([1.0, 2.0]).isclose(Tensor([1.0, 2.1])).tolist()
        [True, False]
        """
        other = other.item() if is_scalar(other) else other
        if held(self.dtype, other) is not other:
            self = self._wrap(cast(self._uop, dtypes.float32))  # whose range has the number
        a, b = (self._wrap(u) for u in pair(self, other))
        away = (a - b).abs() if a.dtype.is_float else _distance(a, b)
        bound: Any = self._wrap(floating(b)).abs() * rtol + atol
        close: Any = (a == b) | ((away <= bound) & away.isfinite())
        return close | (a.isnan() & b.isnan()) if equal_nan else close

    def allclose(self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
        """Whether all elements are close, as a Python bool; computes. See `isclose`.

        >>> a, b = Tensor([1.0, 2.0]), Tensor([1.0, 2.1])
        >>> a.allclose(b), a.allclose(b, rtol=0.1)
        (False, True)
        """
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())

    # ---- logic and bits ----------------------------------------------------------------------------------------------
    def _bits(self, op: str, other: Any, reverse: bool = False) -> Tensor:
        if self._uop.dtype.is_float:
            raise DTypeError(
                f"{op.lower()} needs integers or bool", expected="an integer dtype or bool", found=self.dtype.name
            )
        return binary(self, op, other, reverse)

    def __and__(self, other: Any) -> Tensor:
        """`self & other` of integers or bool. Raises DTypeError for floats.

        >>> (Tensor([12, 10]) & 6).tolist()
        [4, 2]
        """
        return self._bits("AND", other)

    def __or__(self, other: Any) -> Tensor:
        """`self | other` of integers or bool. Raises DTypeError for floats.

        >>> (Tensor([12, 10]) | 6).tolist()
        [14, 14]
        """
        return self._bits("OR", other)

    def __xor__(self, other: Any) -> Tensor:
        """`self ^ other` of integers or bool. Raises DTypeError for floats.

        >>> (Tensor([12, 10]) ^ 6).tolist()
        [10, 12]
        """
        return self._bits("XOR", other)

    bitwise_and = __rand__ = __and__
    bitwise_or = __ror__ = __or__
    bitwise_xor = __rxor__ = __xor__

    def __invert__(self) -> Tensor:
        """`~self`: each bit the other way; of bool, not. Raises DTypeError for floats.

        >>> (~Tensor([0, 5])).tolist(), (~Tensor([True, False])).tolist()
        ([-1, -6], [False, True])
        """
        u = self._uop
        if u.dtype.is_float:
            raise DTypeError("~ needs integers or bool", expected="an integer dtype or bool", found=u.dtype.name)
        return self._wrap(negation(u) if u.dtype is dtypes.bool else build("NOT", u))

    bitwise_not = __invert__

    def __lshift__(self, other: Any) -> Tensor:
        """`self << other`: times 2 ** other. Raises DTypeError for floats.

        >>> (Tensor([1, 5]) << 2).tolist()
        [4, 20]
        """
        return self._bits("SHL", _shift_held(self.dtype, other))

    def __rshift__(self, other: Any) -> Tensor:
        """`self >> other`: over 2 ** other, rounded down. Raises DTypeError for floats.

        >>> (Tensor([20, -5]) >> 2).tolist()
        [5, -2]
        """
        return self._bits("SHR", _shift_held(self.dtype, other))

    def __rlshift__(self, other: Any) -> Tensor:
        return self._bits("SHL", other, True)

    def __rrshift__(self, other: Any) -> Tensor:
        return self._bits("SHR", other, True)

    bitwise_left_shift, bitwise_right_shift = __lshift__, __rshift__

    def logical_not(self) -> Tensor:
        """True where the element is zero.

        >>> Tensor([0, 2]).logical_not().tolist()
        [True, False]
        """
        return ~self.bool()

    def logical_and(self, other: Any) -> Tensor:
        """True where both are not zero.

        >>> Tensor([0, 1, 2]).logical_and(Tensor([1, 0, 3])).tolist()
        [False, False, True]
        """
        return self.bool() & self._truth(other)

    def logical_or(self, other: Any) -> Tensor:
        """True where one or both are not zero.

        >>> Tensor([0, 0, 2]).logical_or(Tensor([1, 0, 3])).tolist()
        [True, False, True]
        """
        return self.bool() | self._truth(other)

    def logical_xor(self, other: Any) -> Tensor:
        """True where exactly one is not zero.

        >>> Tensor([0, 0, 2]).logical_xor(Tensor([1, 0, 3])).tolist()
        [True, False, False]
        """
        return self.bool() ^ self._truth(other)

    def _truth(self, other: Any) -> Tensor:
        if isinstance(other, _NUMBERS) or is_scalar(other):  # which the dtype of self may not hold
            return self._wrap(const(bool(other), dtypes.bool))
        return self._scalar(other).bool()


# ---- formulas --------------------------------------------------------------------------------------------------------
def _distance(a: Any, b: Any) -> Any:
    """|a - b| of integers or bools as float32: their difference may take one bit more than they have."""
    if a.dtype is dtypes.bool:
        return (a ^ b).float()
    return (a.maximum(b) - a.minimum(b)).bitcast(f"uint{a.dtype.bits}").float()


def _truncated(a: UOp, b: UOp) -> UOp:
    """The integer quotient rounded toward zero; 0 where b is 0."""
    q = build("IDIV", a, b)
    if a.dtype.is_unsigned:
        return q
    exact = e("CMPNE", build("MOD", a, b), 0)
    negative = build("CMPNE", e("CMPLT", a, 0), e("CMPLT", b, 0))
    return where(build("AND", exact, negative), e("ADD", q, 1), q)


def floor(x: UOp) -> UOp:
    """The largest whole number not above x."""
    t = build("TRUNC", x)
    return where(build("CMPLT", x, t), e("SUB", t, 1.0), t)


def _fmod(a: UOp, b: UOp) -> UOp:
    """`a - trunc(a / b) * b`, put right where the quotient was rounded up to a whole number.

    Rounded once: of a quotient with no more bits than the type nothing is lost, as would be of the product.
    """
    r = build("MULACC", build("TRUNC", build("DIV", a, build("NEG", b))), b, a)
    crossed = build("AND", e("CMPNE", r, 0.0), build("CMPNE", e("CMPLT", r, 0.0), e("CMPLT", a, 0.0)))
    step = special.absolute(b)
    r = where(crossed, where(e("CMPLT", a, 0.0), build("SUB", r, step), build("ADD", r, step)), r)
    endless = build("AND", e("CMPEQ", step, inf), e("CMPLT", special.absolute(a), inf))
    return special.rest_of_division(where(endless, a, r), a, b)


def _remainder(a: UOp, b: UOp) -> UOp:
    r = _fmod(a, b)
    other_sign = build("AND", e("CMPNE", r, 0.0), build("CMPNE", e("CMPLT", r, 0.0), e("CMPLT", b, 0.0)))
    return where(other_sign, build("ADD", r, b), r)


def _whole_quotient(a: UOp, b: UOp) -> UOp:
    return build("TRUNC", build("DIV", a, b))


def _floor_quotient(a: UOp, b: UOp) -> UOp:
    """The whole number not above a / b: one less where the quotient was rounded up to it, or to 0."""
    q = floor(build("DIV", a, b))
    rest = build("MULACC", build("NEG", q), b, a)  # has the sign of b, or the quotient was rounded up
    endless = build("AND", e("CMPEQ", special.absolute(b), inf), e("CMPLT", special.absolute(a), inf))
    rest = where(endless, a, rest)
    crossed = build("AND", e("CMPNE", rest, 0.0), build("CMPNE", e("CMPLT", rest, 0.0), e("CMPLT", b, 0.0)))
    return where(crossed, e("SUB", q, 1.0), q)


def _power(x: UOp, n: int) -> UOp:
    """`x ** n` by squaring; its derivative is n * x ** (n-1)."""
    if n == 0:
        return placed_like(broadcast_to(const(1, x.dtype), x.shape), x)
    out, square, k = None, x if n > 0 else build("RECIP", x), abs(n)  # 1 / x**2 would be 0 where that is subnormal
    while k:
        if k & 1:
            out = square if out is None else build("MUL", out, square)
        k >>= 1
        square = build("MUL", square, square) if k else square
    assert out is not None
    if n in (1, 2) or not x.dtype.is_float:
        return out
    return closed_form(out, (x,), lambda g, y, x: (build("MUL", g, e("MUL", _power(x, n - 1), n)),))


def _equal_exponent(n: int, d: DType) -> int:
    """A number that `d` holds, whose powers of integers that wrap are those of `n`, which `d` does not hold: odd
    numbers have a period of a quarter of all numbers, and even ones to the width or more are 0.
    """
    period = 1 << d.bits - 2
    return n % period + (period if n % period < d.bits else 0)


def _integer_power(a: UOp, b: UOp) -> UOp:
    """`a ** b` of integers, wrapping; a negative power is 0 but for the bases 1 and -1."""
    if a.dtype is dtypes.bool:
        a, b = cast(a, dtypes.int64), cast(b, dtypes.int64)
    one = const(1, a.dtype)
    out, square = one, a
    for k in range(a.dtype.bits):
        out = where(e("CMPNE", e("AND", b, 1 << k), 0), build("MUL", out, square), out)
        square = build("MUL", square, square)
    if a.dtype.is_unsigned:
        return out
    parity = where(e("CMPNE", e("AND", b, 1), 0), a, 1)
    unit = negation(e("CMPNE", special.absolute(a), 1))
    return where(e("CMPLT", b, 0), where(unit, parity, 0), out)
