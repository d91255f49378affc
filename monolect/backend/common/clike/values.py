"""Shaped values as variables of a C-like language.

A value of shape (6, 4, 16) is a list of variables in row-major order, each a vector as wide as the language has them,
or scalars. Whatever only moves elements (RESHAPE, EXPAND, PERMUTE, SHRINK, STACK, broadcasts) is a table of which
element comes from where: where it is that of whole variables, no code is written for it.

What it does not do: arithmetic and memory (`c_ops`, `c_style`).
Invariant: an expression is a variable or a literal; everything else was given a name.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from monolect.backend.common.clike.language import Language
from monolect.backend.common.shaped import address_parts, const_value, picked
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.uop import UOp

VALUES = ELEMENTWISE | {"BITCAST", "CUSTOM"}
MOVES = frozenset(("RESHAPE", "EXPAND", "PERMUTE", "SHRINK"))


class Value:
    """The variables of one value: `regs` of `width` elements each, in row-major order."""

    __slots__ = ("regs", "width")

    def __init__(self, regs: list[str], width: int):
        self.regs, self.width = regs, width


class Values:
    """The lines of a function under construction, and the variables of its values."""

    def __init__(self, language: Language) -> None:
        self.lang = language
        self.lines: list[str] = []
        self.depth = 1
        self.n = 0
        self.vals: dict[UOp, Value] = {}
        self.consts: dict[UOp, Any] = {}
        self.shared: list[dict[tuple, str]] = [{}]  # expressions that have a name, by open block

    # ---- lines -------------------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        """Append a line at the depth of the open blocks."""
        self.lines.append("  " * self.depth + text)

    def name(self, t: str, text: str) -> str:
        """The expression as a variable of type `t`; the one that has it already in an open block, if there is one."""
        key = (t, text)
        for scope in self.shared:
            if key in scope:
                return scope[key]
        self.n += 1
        v = self.shared[-1][key] = f"v{self.n}"
        self.line(self.lang.declare.format(t=t, v=v, x=text))
        return v

    def emit(self, d: DType, n: int, text: str) -> str:
        """The expression as a variable of `n` lanes of dtype `d`."""
        return self.name(self.lang.type(d, n), text)

    # ---- reading -----------------------------------------------------------------------------------------------------
    def value(self, u: UOp) -> Value:
        """The variables of `u`."""
        v = self.vals.get(u)
        if v is None:
            v = self._at_use(u)
            if u.op == "CONST":
                self.vals[u] = v
        return v

    def scalar(self, u: UOp) -> str:
        """The variable of a value with one element."""
        return self.value(u).regs[0]

    def _at_use(self, u: UOp) -> Value:
        if u.op == "CONST":
            return Value([self.lang.literal(u.arg[0], u.dtype)], 1)
        if u.op == "AFTER":
            return self.value(u.src[0])
        c = const_value(u, self.consts)
        if c is not None:
            flat = [self.lang.literal(x.item(), u.dtype) for x in np.broadcast_to(c, u.shape).ravel()]
            return self.join(flat, u.shape, u.dtype)
        if u.op in MOVES:
            return self.move(u)
        if u.op == "INDEX":
            return self.pick(u)
        if u.op == "STACK" and u.shape[1:]:  # of whole variables
            return Value([r for s in u.src for r in self.value(s).regs], self.width(u.shape))
        if u.op == "STACK":
            lanes = [x for s in u.src for x in self.elements(s)]
            return self.join(lanes, u.shape, u.dtype)
        if u.op in VALUES:
            return self.elementwise(u)
        raise InternalError(f"the {self.lang.name} renderer cannot read the value of {u.op}")

    def elementwise(self, u: UOp) -> Value:
        """An elementwise op; see `c_ops`."""
        raise NotImplementedError

    def width(self, shape: tuple) -> int:
        """Elements of each variable of a value of this shape."""
        return self.lang.width(shape[-1]) if shape else 1

    def is_index_arithmetic(self, u: UOp) -> bool:
        """Shaped index arithmetic is folded into addresses; it is written only where it is used as data."""
        return u.shape != () and (u.dtype.kind == "x" or const_value(u, self.consts) is not None)

    def address(self, u: UOp) -> tuple[str, np.ndarray, list[UOp]]:
        """An index as (scalar base or "", constant offsets, shaped terms known only at run time)."""
        base, offs, dynamic = address_parts(u, self.consts)
        return self.scalar(base) if base is not None else "", offs, dynamic

    # ---- moving elements ---------------------------------------------------------------------------------------------
    def move(self, u: UOp) -> Value:
        """RESHAPE, EXPAND, PERMUTE and SHRINK as a table of elements."""
        x = u.src[0]
        at = np.arange(prod(x.shape)).reshape(x.shape)
        if u.op == "PERMUTE":
            at = at.transpose(u.arg)
        elif u.op == "EXPAND":
            at = np.broadcast_to(at, u.shape)
        elif u.op == "SHRINK":
            at = at[tuple(slice(o, o + n) for o, n in zip(u.src[1].sizes, u.shape, strict=True))]
        return self.take(self.value(x), u.dtype, at.reshape(u.shape))

    def pick(self, u: UOp) -> Value:
        """INDEX of a value by constants."""
        return self.take(self.value(u.src[0]), u.dtype, picked(u, self.consts))

    def broadcast(self, u: UOp, shape: tuple) -> list[str]:
        """The variables of `u`, repeated to `shape`."""
        v = self.value(u)
        if u.shape == shape:
            return v.regs
        return self.take(v, u.dtype, np.broadcast_to(np.arange(prod(u.shape)).reshape(u.shape), shape)).regs

    def take(self, v: Value, d: DType, at: np.ndarray) -> Value:
        """The value whose elements are those of `v` with the numbers `at`."""
        n = self.width(at.shape)
        if v.width == n == 1:
            return Value([v.regs[i] for i in at.ravel()], 1)
        return Value([self._register(v, d, row) for row in at.reshape(-1, n).tolist()], n)

    def _register(self, v: Value, d: DType, row: list[int]) -> str:
        """One variable of elements of `v`."""
        n, w = len(row), v.width
        first, start = divmod(row[0], w)
        if n == w and start == 0 and row == list(range(row[0], row[0] + w)):
            return v.regs[first]
        if len(set(row)) > 1 and all(i // w == first for i in row):
            return self.emit(d, n, self.lang.pick(v.regs[first], d, w, [i % w for i in row]))
        xs = [self.lane(d, v, i) for i in (row[:1] if len(set(row)) == 1 else row)]
        return self._vector(d, xs * (n // len(xs)))

    def _vector(self, d: DType, xs: list[str]) -> str:
        """One variable of the scalars."""
        if len(xs) == 1:
            return xs[0]
        if d is dtypes.bool:
            xs = [self.lang.mask(x) for x in xs]
        return self.emit(d, len(xs), self.lang.make(d, xs))

    # ---- lanes -------------------------------------------------------------------------------------------------------
    def lane(self, d: DType, v: Value, i: int) -> str:
        """Element `i` of a value, as a scalar."""
        r = v.regs[i // v.width]
        if v.width == 1:
            return r
        out = self.lang.lane(r, v.width, i % v.width)
        return self.lang.is_set(out) if d is dtypes.bool else out

    def elements(self, u: UOp, shape: tuple | None = None) -> list[str]:
        """Every element of a value, repeated to `shape`, as scalars."""
        v = self.value(u)
        at = np.arange(prod(u.shape)).reshape(u.shape)
        return [self.lane(u.dtype, v, i) for i in np.broadcast_to(at, u.shape if shape is None else shape).ravel()]

    def join(self, xs: list[str], shape: tuple, d: DType) -> Value:
        """The value of `shape` whose elements are the scalars `xs`."""
        n = self.width(shape)
        return Value([self._vector(d, xs[i : i + n]) for i in range(0, len(xs), n)], n)
