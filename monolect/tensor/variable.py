"""Symbolic sizes: a Variable is a whole number with bounds whose value is bound when a program runs.

>>> n = Variable("n", 1, 64)
>>> n.min, n.max
(1, 64)
"""

from __future__ import annotations

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError
from monolect.ir.ops import ParamArg
from monolect.ir.uop import UOp, node


class Variable:
    """`Variable(name, min, max)`: a symbolic integer, bounds inclusive. `uop` is the scalar PARAM behind it."""

    __slots__ = ("max", "min", "name", "uop")

    def __init__(self, name: str, min: int, max: int):
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError("name of a Variable", expected="an identifier", found=repr(name))
        if not isinstance(min, int) or not isinstance(max, int) or min > max:
            raise ArgumentError(f"bounds of Variable {name}", expected="integers with min <= max", found=(min, max))
        self.name, self.min, self.max = name, min, max
        self.uop: UOp = node("PARAM", (), ParamArg(0, dtypes.index, None, None, name, min, max))

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, {self.min}, {self.max})"

    def check(self, value: int) -> int:
        """`value` if it is an integer within the bounds. Raises ArgumentError otherwise."""
        if not isinstance(value, int) or not self.min <= value <= self.max:
            raise ArgumentError(f"value of {self.name}", expected=f"an int in {self.min}..{self.max}", found=value)
        return value
