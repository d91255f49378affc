"""Provide shorthands for writing formulas over UOps, and the layout of float32 and float64.

What it is for: rules that spell out a function in elementwise ops. What it is not: it contains no rules.
Invariant: every function that builds a formula returns an elementwise UOp with the shape of its operands; numbers
become scalar CONSTs, which broadcast. `constant_of` and `magnitude_argument` only inspect a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from monolect.base.dtype import DType, dtypes
from monolect.ir.ops import INVALID
from monolect.ir.uop import UOp, build, const, lift, node

UNLIKELY = "seldom"  # tag of a WHERE whose condition is true for few elements


class Format(NamedTuple):
    """The layout of the float dtype `real`: its unsigned and signed integer types of the same size, number of stored
    mantissa bits, exponent bias.
    """

    real: DType
    uint: DType
    sint: DType
    mantissa: int
    bias: int

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa: adding it rounds |x| < 2**(mantissa-1) to an integer, held in the sum's low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def sign(self) -> int:
        """The integer with only the sign bit set."""
        return 1 << (self.real.bits - 1)


FORMATS: dict[DType, Format] = {
    dtypes.float32: Format(dtypes.float32, dtypes.uint32, dtypes.int32, 23, 127),
    dtypes.float64: Format(dtypes.float64, dtypes.uint64, dtypes.int64, 52, 1023),
}
_UNSIGNED = {d.bits: d for d in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)}


def cast(x: UOp, d: DType) -> UOp:
    """Return `x` converted to `d`."""
    return build("CAST", x, arg=d)


def bits(x: UOp, d: DType) -> UOp:
    """Return `x` bitcast to `d`, a dtype of the same size."""
    return x if x.dtype is d else build("BITCAST", x, arg=d)


def sub(a: UOp, b: Any) -> UOp:
    """Return a - b; for a number b, the ADD a + -b."""
    return build("SUB", a, b) if b.__class__ is UOp else a + -b


def mulacc(a: UOp, b: Any, c: Any) -> UOp:
    """Return a * b + c as a MULACC."""
    return build("MULACC", a, lift(b, a), lift(c, a))


def less(a: Any, b: Any) -> UOp:
    """Return a < b; one of them may be a number."""
    return build("CMPLT", a, lift(b, a)) if a.__class__ is UOp else build("CMPLT", lift(a, b), b)


def differ(a: UOp, b: Any) -> UOp:
    """Return a != b, which is true if either is nan."""
    return build("CMPNE", a, lift(b, a))


def negate(p: UOp) -> UOp:
    """Return the logical not of the bool `p`."""
    return build("CMPNE", p, const(True, dtypes.bool))


def either(p: UOp, q: UOp) -> UOp:
    """Return the logical or of the bools `p` and `q`."""
    return build("OR", p, q)


def both(p: UOp, q: UOp) -> UOp:
    """Return the logical and of the bools `p` and `q`."""
    return build("AND", p, q)


def where(p: UOp, a: Any, b: Any, like: UOp | None = None) -> UOp:
    """Return a where p, else b. Numbers take the dtype of the other branch, or of `like`."""
    like = like if like is not None else a if a.__class__ is UOp else b
    return build("WHERE", p, lift(a, like), lift(b, like))


def unlikely(p: UOp, a: UOp, b: UOp) -> UOp:
    """Return WHERE(p, a, b) marked UNLIKELY: p is true for few elements.

    Code for a processor then computes `a` only if p is true for any lane (`lower.cold_paths`).
    """
    return node("WHERE", (p, a, b), None, UNLIKELY)


def shift_left(x: UOp, n: Any) -> UOp:
    """Return x << n."""
    return build("SHL", x, lift(n, x))


def shift_right(x: UOp, n: Any) -> UOp:
    """Return x >> n, an arithmetic shift if x is signed."""
    return build("SHR", x, lift(n, x))


def exclusive(a: UOp, b: Any) -> UOp:
    """Return the bitwise exclusive or of two integers."""
    return build("XOR", a, lift(b, a))


def union(a: UOp, b: Any) -> UOp:
    """Return the bitwise or of two integers."""
    return build("OR", a, lift(b, a))


def magnitude(x: UOp) -> UOp:
    """Return |x| of a float by clearing the sign bit; also correct for -0.0 and nan."""
    return bits(bits(x, _UNSIGNED[x.dtype.bits]) & ((1 << (x.dtype.bits - 1)) - 1), x.dtype)


def magnitude_argument(u: UOp) -> UOp | None:
    """Return x if the MAX `u` is MAX(x, -x), the form of |x| in graphs; else None.

    |x| of either zero is 0.0, which a MAX need not return.
    """
    return next((x for x, y in (u.src, u.src[::-1]) if y.op == "NEG" and y.src[0] is x), None)


def polynomial(x: UOp, coefficients: Sequence[float]) -> UOp:
    """Return c[0] + c[1]*x + c[2]*x**2 + ... for the `coefficients` c, by Horner's scheme."""
    acc: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        acc = mulacc(x, acc, c) if acc.__class__ is not UOp else mulacc(acc, x, c)
    return acc


def constant_of(u: UOp) -> Any:
    """Return the value of a CONST, also one expanded to a shape; None for any other node and for INVALID."""
    while u.op == "EXPAND" or u.op == "RESHAPE":
        u = u.src[0]
    return u.arg[0] if u.op == "CONST" and u.arg[0] is not INVALID else None


__all__ = [
    "FORMATS",
    "Format",
    "UNLIKELY",
    "bits",
    "both",
    "cast",
    "constant_of",
    "differ",
    "either",
    "exclusive",
    "less",
    "magnitude",
    "magnitude_argument",
    "mulacc",
    "negate",
    "polynomial",
    "shift_left",
    "shift_right",
    "sub",
    "union",
    "unlikely",
    "where",
]
