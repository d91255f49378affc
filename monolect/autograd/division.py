"""Division as graphs: quotients of integers and floats rounded to whole numbers, and the remainders that fit them."""

from __future__ import annotations

from math import inf

from monolect.autograd.graph import e, where
from monolect.autograd.special import absolute, rest_of_division
from monolect.ir.uop import UOp, build


def truncated_quotient(a: UOp, b: UOp) -> UOp:
    """Return the quotient of the integer nodes a and b, rounded toward zero; 0 where b is 0."""
    q = build("IDIV", a, b)
    if a.dtype.is_unsigned:
        return q
    exact = e("CMPNE", build("MOD", a, b), 0)
    negative = build("CMPNE", e("CMPLT", a, 0), e("CMPLT", b, 0))
    return where(build("AND", exact, negative), e("ADD", q, 1), q)


def floor(x: UOp) -> UOp:
    """Return the largest whole number not above the float node x, in its dtype."""
    t = build("TRUNC", x)
    return where(build("CMPLT", x, t), e("SUB", t, 1.0), t)


def fmod(a: UOp, b: UOp) -> UOp:
    """Return `a - trunc(a / b) * b`, corrected by |b| where a / b was rounded up to a whole number.

    A fused MULACC rounds only once, so the remainder is exact if the quotient has no more bits than the dtype.
    """
    r = build("MULACC", build("TRUNC", build("DIV", a, build("NEG", b))), b, a)
    is_off = build("AND", e("CMPNE", r, 0.0), build("CMPNE", e("CMPLT", r, 0.0), e("CMPLT", a, 0.0)))
    step = absolute(b)
    r = where(is_off, where(e("CMPLT", a, 0.0), build("SUB", r, step), build("ADD", r, step)), r)
    is_infinite_divisor = build("AND", e("CMPEQ", step, inf), e("CMPLT", absolute(a), inf))
    return rest_of_division(where(is_infinite_divisor, a, r), a, b)


def floor_remainder(a: UOp, b: UOp) -> UOp:
    """Return the remainder of the floor division a / b of float nodes, with the sign of b."""
    r = fmod(a, b)
    other_sign = build("AND", e("CMPNE", r, 0.0), build("CMPNE", e("CMPLT", r, 0.0), e("CMPLT", b, 0.0)))
    return where(other_sign, build("ADD", r, b), r)


def whole_quotient(a: UOp, b: UOp) -> UOp:
    """Return a / b of float nodes, rounded toward zero, in their dtype."""
    return build("TRUNC", build("DIV", a, b))


def floor_quotient(a: UOp, b: UOp) -> UOp:
    """Return the largest whole number not above a / b, corrected by one where the float quotient was rounded up."""
    q = floor(build("DIV", a, b))
    rest = build("MULACC", build("NEG", q), b, a)  # its sign differs from that of b if the quotient was rounded up
    is_infinite_divisor = build("AND", e("CMPEQ", absolute(b), inf), e("CMPLT", absolute(a), inf))
    rest = where(is_infinite_divisor, a, rest)
    is_off = build("AND", e("CMPNE", rest, 0.0), build("CMPNE", e("CMPLT", rest, 0.0), e("CMPLT", b, 0.0)))
    return where(is_off, e("SUB", q, 1.0), q)


__all__ = ["floor", "floor_quotient", "floor_remainder", "fmod", "truncated_quotient", "whole_quotient"]
