"""Shorthands for writing a formula over UOps, and the layout of the two IEEE formats that formulas take apart.

What it is for: rules that spell out a function in elementwise ops. What it is not: rules themselves.
Invariant: every function returns an elementwise UOp whose shape is that of its operands; numbers become scalar CONSTs,
which broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from monolect.base.dtype import DType, dtypes
from monolect.ir.ops import INVALID
from monolect.ir.uop import UOp, build, const, lift, node

SELDOM = "seldom"  # the tag of a WHERE whose condition holds for few elements


class Format(NamedTuple):
    """How a float is laid out: its unsigned and signed integer twins, stored mantissa bits, exponent bias."""

    real: DType
    uint: DType
    sint: DType
    mantissa: int
    bias: int

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa: adding it rounds |x| < 2**(mantissa-1) to an integer, kept in the sum's low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.real.bits - 1)


FORMATS: dict[DType, Format] = {
    dtypes.float32: Format(dtypes.float32, dtypes.uint32, dtypes.int32, 23, 127),
    dtypes.float64: Format(dtypes.float64, dtypes.uint64, dtypes.int64, 52, 1023),
}
_UNSIGNED = {d.bits: d for d in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)}


def cast(x: UOp, d: DType) -> UOp:
    """`x` converted to `d`."""
    return build("CAST", x, arg=d)


def bits(x: UOp, d: DType) -> UOp:
    """The same bits read as `d`."""
    return x if x.dtype is d else build("BITCAST", x, arg=d)


def sub(a: UOp, b: Any) -> UOp:
    """A - b; a constant b becomes an ADD."""
    return build("SUB", a, b) if b.__class__ is UOp else a + -b


def mulacc(a: UOp, b: Any, c: Any) -> UOp:
    """A * b + c."""
    return build("MULACC", a, lift(b, a), lift(c, a))


def less(a: Any, b: Any) -> UOp:
    """A < b, where one of them may be a number."""
    return build("CMPLT", a, lift(b, a)) if a.__class__ is UOp else build("CMPLT", lift(a, b), b)


def differ(a: UOp, b: Any) -> UOp:
    """A != b; true when either is nan."""
    return build("CMPNE", a, lift(b, a))


def negate(p: UOp) -> UOp:
    """Not p, of a bool."""
    return build("CMPNE", p, const(True, dtypes.bool))


def either(p: UOp, q: UOp) -> UOp:
    """The bool p or q."""
    return build("OR", p, q)


def both(p: UOp, q: UOp) -> UOp:
    """The bool p and q."""
    return build("AND", p, q)


def where(p: UOp, a: Any, b: Any, like: UOp | None = None) -> UOp:
    """A where p, else b; numbers take the dtype of the other branch, or of `like`."""
    like = like if like is not None else a if a.__class__ is UOp else b
    return build("WHERE", p, lift(a, like), lift(b, like))


def seldom(p: UOp, a: UOp, b: UOp) -> UOp:
    """A where p, which holds for few elements, else b: where that can be, a is computed only if p holds for any."""
    return node("WHERE", (p, a, b), None, SELDOM)


def shift_left(x: UOp, n: Any) -> UOp:
    """X << n."""
    return build("SHL", x, lift(n, x))


def shift_right(x: UOp, n: Any) -> UOp:
    """X >> n, arithmetic if signed."""
    return build("SHR", x, lift(n, x))


def exclusive(a: UOp, b: Any) -> UOp:
    """Bitwise exclusive or."""
    return build("XOR", a, lift(b, a))


def union(a: UOp, b: Any) -> UOp:
    """Bitwise or."""
    return build("OR", a, lift(b, a))


def magnitude(x: UOp) -> UOp:
    """|x| of a float, through its bits: also right for -0.0 and nan."""
    return bits(bits(x, _UNSIGNED[x.dtype.bits]) & ((1 << (x.dtype.bits - 1)) - 1), x.dtype)


def magnitude_argument(u: UOp) -> UOp | None:
    """`x` when `u` is |x| as graphs spell it, MAX(x, -x). Of the two zeros it is 0.0, which a MAX need not be."""
    return next((x for x, y in (u.src, u.src[::-1]) if y.op == "NEG" and y.src[0] is x), None)


def polynomial(x: UOp, coefficients: Sequence[float]) -> UOp:
    """c[0] + c[1]*x + c[2]*x**2 + ..., by Horner's scheme."""
    acc: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        acc = mulacc(x, acc, c) if acc.__class__ is not UOp else mulacc(acc, x, c)
    return acc


def constant_of(u: UOp) -> Any:
    """The value of a CONST, also of one that was given a shape; None for everything else and for invalid."""
    while u.op == "EXPAND" or u.op == "RESHAPE":
        u = u.src[0]
    return u.arg[0] if u.op == "CONST" and u.arg[0] is not INVALID else None
