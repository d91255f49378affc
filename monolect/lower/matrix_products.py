"""Replace sums of products over contracted axes, as `expand` leaves them, by WMMA where the target has a matrix unit.

Before: ADD(acc, RESHAPE(REDUCE(ADD, MUL(CAST(a), CAST(b))), acc.shape))   a: bf16[6, 1, 1, 2], b: bf16[4, 16, 2]
After:  WMMA(a, b, acc)                                                   acc: f32[6, 4, 16]
Invariant: the WMMA adds what the REDUCE did, in the dtype of the accumulator.
"""

from __future__ import annotations

from math import prod

from monolect.base.dtype import DType
from monolect.base.target import MatrixUnit, Target
from monolect.ir.rewrite.driver import replaced
from monolect.ir.rewrite.normal import is_zero, unbroadcast
from monolect.ir.uop import UOp, broadcast_to, const, node, nodes_of


def matrix_units(sink: UOp, target: Target) -> UOp:
    """Pass: replace sums of products by WMMAs where a matrix unit of `target` computes them."""
    units = target.units
    if not units or not any(u.op in ("REDUCE", "WMMA") for u in nodes_of(sink)):
        return sink

    def tiled(u: UOp) -> UOp:
        tiles = multiply(u, units) if u.op in ("ADD", "RESHAPE") else None
        return u if tiles is None else tiles

    return replaced(sink, tiled)


def multiply(u: UOp, units: tuple[MatrixUnit, ...]) -> UOp | None:
    """Return the WMMA of one of `units` that computes `u`, or None.

    `u` is a sum of products (RESHAPE), or an ADD of one to an accumulator.
    """
    for acc, x in ((u.src[0], u.src[1]), (u.src[1], u.src[0])) if u.op == "ADD" else ((None, u),):
        if acc is not None and x.op == "WMMA" and x.shape == acc.shape and is_zero(x.src[2]):
            return node("WMMA", (*x.src[:2], acc), x.arg)
        found = _factors(x, units)
        if found is not None:
            unit, a, b, n = found
            acc = const(0, u.dtype) if acc is None else acc
            if x.shape == u.shape:  # otherwise the sum repeats the product
                return node("WMMA", (a, b, broadcast_to(acc, u.shape)), (unit.name, n))
    return None


def _factors(x: UOp, units: tuple[MatrixUnit, ...]) -> tuple[MatrixUnit, UOp, UOp, int] | None:
    """Return (unit, operand a, operand b, number of contracted axes) if `x` is a RESHAPE of a sum of products over the
    last axes and one of `units` computes the sum; else None.
    """
    if x.op != "RESHAPE" or x.src[0].op != "REDUCE" or len(x.src[0].src) > 1 or x.src[0].src[0].op != "MUL":
        return None
    body, n = x.src[0].src[0], len(x.src[0].arg[1])
    if x.shape != body.shape[:-n] or not x.shape:
        return None
    for unit in units:
        if not unit.threads and unit.k == prod(body.shape[-n:]) and unit.n == x.shape[-1] and unit.acc is x.dtype:
            for p, q in (body.src, body.src[::-1]):
                a, b = _in_dtype(p, unit.a), _in_dtype(q, unit.b)
                if a is not None and b is not None and (unit.m == 1 or row_axis(unit, a, b, x.shape, n) is not None):
                    return (unit, a, b, n)
    return None


def row_axis(unit: MatrixUnit, a: UOp, b: UOp, shape: tuple, n: int) -> int | None:
    """Return the axis of a product of `shape` along which the rows of a tile of `unit` run, or None.

    Operand `a` varies along this axis and not along the lanes (the last axis); operand `b` varies along the lanes and
    not along this axis. `n` is the number of contracted axes, the last ones of both operands.
    """
    if len(a.shape) <= n or len(b.shape) <= n or a.shape[-1 - n] != 1 or b.shape[-1 - n] != unit.n:
        return None
    sizes = [(1,) * (len(shape) + n - len(x.shape)) + x.shape for x in (a, b)]
    fits = (i for i, m in enumerate(shape[:-1]) if sizes[0][i] == m and sizes[1][i] == 1 and m % unit.m == 0)
    return max(fits, default=None)


def _in_dtype(x: UOp, d: DType) -> UOp | None:
    """Return `x` in dtype `d` if `x` is a CAST from `d`, or a constant that `d` represents exactly; else None."""
    if x.op == "CAST" and x.src[0].dtype is d:
        return x.src[0]
    x = unbroadcast(x)
    if x.op == "CONST" and d.min <= x.arg[0] <= d.max:
        exact = const(x.arg[0], d)
        return exact if exact.arg[0] == x.arg[0] else None
    return None


__all__ = ["matrix_units", "multiply", "row_axis"]
