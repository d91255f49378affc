"""Format sizes and byte counts as text; symbolic ones become C or JavaScript formulas over the step's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monolect.base.errors import ExportError
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp
from monolect.runtime.binding import BY

IN_C = {
    "ADD": "({a} + {b})", "SUB": "({a} - {b})", "MUL": "({a} * {b})", "IDIV": "({a} / {b})", "MOD": "({a} % {b})",
    "MAX": "({a} > {b} ? {a} : {b})",
}  # fmt: skip
IN_JAVASCRIPT = IN_C | {"IDIV": "Math.floor({a} / {b})"}


def factor_of(p: UOp) -> int:
    """Return the `multiple_of` of the Variable of the PARAM `p`. The value of `p` is that of the Variable divided by
    it.
    """
    return int(p.arg.name.partition(BY)[2] or 1)


def size_text(n: Any, names: Mapping[tuple, str], formulas: Mapping[str, str] = IN_C) -> str:
    """Return a size as a formula in C or JavaScript.

    `names` maps the symbol of a Variable to the text of its PARAM's value. `formulas`: `IN_C` or `IN_JAVASCRIPT`.
    Raises ExportError for an op without a formula.
    """
    if n.__class__ is int:
        return str(n)
    if n.op == "CONST":
        return str(int(n.arg[0]))
    if n.op == "PARAM" and n.arg.symbol in names:
        return names[n.arg.symbol]
    if n.op in formulas:
        a, b = (size_text(s, names, formulas) for s in n.src)
        return formulas[n.op].format(a=a, b=b)
    expected = f"sums, differences, products, quotients of Variables ({', '.join(formulas)})"
    raise ExportError("a size without a formula in C", expected=expected, found=f"{n.op}: {n!r}"[:200])


def bytes_text(p: UOp, names: Mapping[tuple, str]) -> str:
    """Return the number of bytes of a PARAM as a C formula."""
    n = count(p.shape)
    if n.__class__ is int:
        return str(n * p.dtype.itemsize)
    return f"(size_t)({size_text(n, names)}) * {p.dtype.itemsize}"


def shape_text(shape: tuple, names: Mapping[tuple, str]) -> str:
    """Return a shape as in a C array declaration, such as [2][n]."""
    return "".join(f"[{size_text(n, names).strip('()')}]" for n in shape)


__all__ = ["IN_C", "IN_JAVASCRIPT", "bytes_text", "factor_of", "shape_text", "size_text"]
