"""Powers as graphs: by repeated squaring for an int exponent, by the bits of an integer exponent node."""

from __future__ import annotations

from monolect.autograd.closed_forms import closed_form
from monolect.autograd.graph import cast, e, full, where
from monolect.autograd.special import absolute
from monolect.base.dtype import DType, dtypes
from monolect.ir.rewrite.normal import negate
from monolect.ir.uop import UOp, build, const


def power(x: UOp, n: int) -> UOp:
    """Return `x ** n` by repeated squaring, with the derivative n * x ** (n-1). For floats `n` may be negative."""
    if n == 0:
        return full(x.shape, 1, x.dtype)
    # Before squaring: 1 / x**2 would be 0 where it is subnormal.
    out, square, k = None, x if n > 0 else build("RECIP", x), abs(n)
    while k:
        if k & 1:
            out = square if out is None else build("MUL", out, square)
        k >>= 1
        square = build("MUL", square, square) if k else square
    assert out is not None
    if n in (1, 2) or not x.dtype.is_float:
        return out
    return closed_form(out, (x,), lambda g, y, x: (build("MUL", g, e("MUL", power(x, n - 1), n)),))


def equal_exponent(n: int, d: DType) -> int:
    """Return an exponent that `d` holds and that gives the same wrapped powers as `n`, which `d` does not hold.

    Powers of odd numbers have a period of 2 ** (bits - 2). Powers of even numbers are 0 from the exponent `bits` on.
    """
    period = 1 << d.bits - 2
    return n % period + (period if n % period < d.bits else 0)


def integer_power(a: UOp, b: UOp) -> UOp:
    """Return `a ** b` of integer nodes of one dtype, which wraps; bools are computed as int64.

    A negative exponent gives 0, except for the bases 1 and -1.
    """
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
    unit = negate(e("CMPNE", absolute(a), 1))
    return where(e("CMPLT", b, 0), where(unit, parity, 0), out)


__all__ = ["equal_exponent", "integer_power", "power"]
