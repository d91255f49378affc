"""Represent shaped values as variables of a C-like language.

A value of shape (6, 4, 16) is a list of variables in row-major order: vectors of the widest type of the language, or
scalars. An op that only moves elements (RESHAPE, EXPAND, PERMUTE, SHRINK, STACK, broadcasts) is a table of source
elements. If these are whole variables, it needs no code.

What it does not do: arithmetic and memory (`ops`, `program`).
Invariant: the text of a value is a variable or a literal; all other expressions are assigned to variables.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from monolect.backend.common.clike.language import Language
from monolect.backend.common.shaped import address_parts, const_value, picked_elements
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.uop import UOp

VALUES = ELEMENTWISE | {"BITCAST", "CUSTOM"}
MOVES = frozenset(("RESHAPE", "EXPAND", "PERMUTE", "SHRINK"))


class Value:
    """The variables `regs` of one value, of `width` elements each, in row-major order."""

    __slots__ = ("regs", "width")

    def __init__(self, regs: list[str], width: int):
        self.regs, self.width = regs, width


class Values:
    """The lines of a function that is being rendered, and the variables of its values."""

    def __init__(self, language: Language) -> None:
        self.lang = language
        self.lines: list[str] = []
        self.depth = 1  # of open blocks
        self.n = 0  # variables named so far
        self.vals: dict[UOp, Value] = {}
        self.consts: dict[UOp, Any] = {}  # memo of `const_value`
        self.shared: list[dict[tuple, str]] = [{}]  # for each open block: (type, expression) -> its variable

    # ---- lines -------------------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        """Append a line, indented by the depth of open blocks."""
        self.lines.append("  " * self.depth + text)

    def name(self, t: str, text: str) -> str:
        """Return a variable of type `t` with the value of the expression; reuse one of an open block if possible."""
        key = (t, text)
        for scope in self.shared:
            if key in scope:
                return scope[key]
        self.n += 1
        v = self.shared[-1][key] = f"v{self.n}"
        self.line(self.lang.declare.format(t=t, v=v, x=text))
        return v

    def emit(self, d: DType, n: int, text: str) -> str:
        """Return a variable of `n` lanes of dtype `d` with the value of the expression."""
        return self.name(self.lang.type(d, n), text)

    # ---- reading -----------------------------------------------------------------------------------------------------
    def value(self, u: UOp) -> Value:
        """Return the variables of `u`; a node without code of its own is rendered at each use."""
        v = self.vals.get(u)
        if v is None:
            v = self._at_use(u)
            if u.op == "CONST":
                self.vals[u] = v
        return v

    def scalar(self, u: UOp) -> str:
        """Return the variable, or literal, of a value with one element."""
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
        """Render an elementwise op; `ops` overrides this."""
        raise NotImplementedError

    def width(self, shape: tuple) -> int:
        """Return the number of elements of each variable of a value of this shape."""
        return self.lang.width(shape[-1]) if shape else 1

    def is_index_arithmetic(self, u: UOp) -> bool:
        """Whether `u` is shaped index arithmetic, which is folded into addresses and rendered only if used as data."""
        return u.shape != () and (u.dtype.kind == "x" or const_value(u, self.consts) is not None)

    def address(self, u: UOp) -> tuple[str, np.ndarray, list[UOp]]:
        """Split an index into (scalar base or "", constant offsets, shaped terms known only at run time)."""
        base, offs, dynamic = address_parts(u, self.consts)
        return self.scalar(base) if base is not None else "", offs, dynamic

    # ---- moving elements ---------------------------------------------------------------------------------------------
    def move(self, u: UOp) -> Value:
        """Render RESHAPE, EXPAND, PERMUTE or SHRINK by a table of source elements."""
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
        """Render an INDEX of a value by constants."""
        return self.take(self.value(u.src[0]), u.dtype, picked_elements(u, self.consts))

    def broadcast(self, u: UOp, shape: tuple) -> list[str]:
        """Return the variables of `u` broadcast to `shape`."""
        v = self.value(u)
        if u.shape == shape:
            return v.regs
        return self.take(v, u.dtype, np.broadcast_to(np.arange(prod(u.shape)).reshape(u.shape), shape)).regs

    def take(self, v: Value, d: DType, at: np.ndarray) -> Value:
        """Return the value of the elements `at` of `v`, numbered in row-major order, in the shape of `at`."""
        n = self.width(at.shape)
        if v.width == n == 1:
            return Value([v.regs[i] for i in at.ravel()], 1)
        return Value([self._register(v, d, row) for row in at.reshape(-1, n).tolist()], n)

    def _register(self, v: Value, d: DType, row: list[int]) -> str:
        """Return one variable of the elements `row` of `v`."""
        n, w = len(row), v.width
        first, start = divmod(row[0], w)
        if n == w and start == 0 and row == list(range(row[0], row[0] + w)):
            return v.regs[first]
        if len(set(row)) > 1 and all(i // w == first for i in row):
            return self.emit(d, n, self.lang.pick(v.regs[first], d, w, [i % w for i in row]))
        xs = [self.lane(d, v, i) for i in (row[:1] if len(set(row)) == 1 else row)]
        return self._vector(d, xs * (n // len(xs)))

    def _vector(self, d: DType, xs: list[str]) -> str:
        """Return one variable of the scalars `xs`."""
        if len(xs) == 1:
            return xs[0]
        if d is dtypes.bool:
            xs = [self.lang.mask(x) for x in xs]
        return self.emit(d, len(xs), self.lang.make(d, xs))

    # ---- lanes -------------------------------------------------------------------------------------------------------
    def lane(self, d: DType, v: Value, i: int) -> str:
        """Return the scalar element `i` of a value, in row-major order."""
        r = v.regs[i // v.width]
        if v.width == 1:
            return r
        out = self.lang.lane(r, v.width, i % v.width)
        return self.lang.is_set(out) if d is dtypes.bool else out

    def elements(self, u: UOp, shape: tuple | None = None) -> list[str]:
        """Return all elements of a value, broadcast to `shape`, as scalars."""
        v = self.value(u)
        at = np.arange(prod(u.shape)).reshape(u.shape)
        return [self.lane(u.dtype, v, i) for i in np.broadcast_to(at, u.shape if shape is None else shape).ravel()]

    def join(self, xs: list[str], shape: tuple, d: DType) -> Value:
        """Return a value of `shape` with the scalars `xs` as elements in row-major order."""
        n = self.width(shape)
        return Value([self._vector(d, xs[i : i + n]) for i in range(0, len(xs), n)], n)


__all__ = ["MOVES", "VALUES", "Value", "Values"]
