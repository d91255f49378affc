"""Render elementwise ops, reductions and scans in a C-like language: one method `op_<name>` for each op.

What it does not do: decompose ops. Ops outside of `C_NATIVE` were decomposed before.
Invariant: no op is undefined on any operand. Shifts by the width or more, division by zero and casts of values out of
range give the results that the table of ops defines. The maximum of floats propagates nan.
"""

from __future__ import annotations

from math import prod

import numpy as np

from monolect.backend.common.clike.values import Value, Values
from monolect.backend.common.shaped import custom_text
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.ir.bounds import min_max
from monolect.ir.rewrite.normal import is_unbounded
from monolect.ir.uop import UOp

_COMPARE = {"CMPLT": "<", "CMPNE": "!=", "CMPGT": ">", "CMPGE": ">=", "CMPLE": "<=", "CMPEQ": "=="}
_BITWISE = {"XOR": "^", "OR": "|", "AND": "&"}
C_NATIVE = frozenset(
    ("RECIP", "TRUNC", "CAST", "ADD", "MUL", "MAX", "MOD", "IDIV", "CMPLT", "CMPNE", "XOR", "OR", "AND", "SHR", "SHL",
     "WHERE", "NEG", "SUB", "DIV", "CMPGT", "CMPGE", "CMPLE", "CMPEQ", "NOT", "SQRT", "MULACC", "BITCAST")
)  # fmt: skip
_LONG_LITERAL = 32  # characters; a longer literal (an infinity by its bits) becomes a variable before it fills a vector
_MAX_NARROW = 1 << 20  # offsets up to this are compared with a bound in 32 bits
_MAX_FINITE = {32: 3.4028234663852886e38, 64: 1.7976931348623157e308}  # bits of a float -> its largest finite value


class Ops(Values):
    """Renders elementwise ops, reductions and scans.

    Each `op_*` takes the node, the number of lanes of a variable and one variable of each operand, and returns the text
    of an expression.
    """

    def elementwise(self, u: UOp) -> Value:
        """Render an elementwise op variable by variable."""
        if u.op == "CUSTOM":
            rows = zip(*(self.elements(s, u.shape) for s in u.src), strict=True) if u.src else [()]
            return self.join([self.emit(u.dtype, 1, custom_text(u, row)) for row in rows], u.shape, u.dtype)
        n = self.width(u.shape)
        if u.op == "CMPLT" and n > 1 and u.src[0].dtype.kind == "x" and (fast := self._lane_bound(u, n)) is not None:
            return fast
        cols = [self.broadcast(s, u.shape) for s in u.src]
        f = getattr(self, "op_" + u.op.lower(), self._op)
        return Value([self.emit(u.dtype, n, f(u, n, *row)) for row in zip(*cols, strict=True)], n)

    def _lane_bound(self, u: UOp, n: int) -> Value | None:
        """Render base + constant offsets < bound in 32 bits, by a scalar subtraction and a vector comparison.

        Return None if `u` does not have this form, or the offsets are too large.
        """
        base, offs, dynamic = self.address(u.src[0])
        if dynamic or u.src[1].shape != () or np.abs(offs).max() > _MAX_NARROW or any(map(is_unbounded, u.src)):
            return None
        d, (low, high) = dtypes.int32, (self.constant(k, dtypes.index, 1) for k in (-2 * _MAX_NARROW, 2 * _MAX_NARROW))
        room = self.emit(dtypes.index, 1, f"{self.scalar(u.src[1])} - {base}" if base else self.scalar(u.src[1]))
        for sign, end in (("<", low), (">", high)):
            far = self.lang.compare(sign, dtypes.index, 1, room, end)
            room = self.emit(dtypes.index, 1, self.lang.select(dtypes.index, 1, far, end, room))
        wide = self._vector(d, [self.emit(d, 1, self.lang.cast(room, dtypes.index, d, 1))] * n)
        rows = np.broadcast_to(offs, u.shape).reshape(-1, n).tolist()
        ends = [self._vector(d, [self.lang.literal(x, d) for x in row]) for row in rows]
        return Value([self.emit(dtypes.bool, n, self.lang.compare("<", d, n, x, wide)) for x in ends], n)

    def _op(self, u: UOp, n: int, *x: str) -> str:
        d = u.src[-1].dtype
        if u.op in _COMPARE:
            return self.lang.compare(_COMPARE[u.op], d, n, *x)
        if u.op in _BITWISE:
            return self._narrowed(d, n, f"({x[0]} {_BITWISE[u.op]} {x[1]})")
        if u.op in self.lang.functions or f"{u.op} {d.name}" in self.lang.functions:
            return self.lang.function(u.op, d, n, *x)
        raise InternalError(f"the {self.lang.name} renderer has no row for {u.op} of {d.name}")

    def _narrowed(self, d: DType, n: int, text: str) -> str:
        """Return `text` cast to `d` if it is a scalar integer of fewer than 32 bits, which C computes as int."""
        return self.lang.cast(text, d, d, 1) if n == 1 and d.is_int and d.bits < 32 else text

    def constant(self, value: object, d: DType, n: int) -> str:
        """Return the text of a constant with the same value in all `n` lanes."""
        x = self.lang.literal(value, d)
        if n == 1:
            return x
        return self._vector(d, [self.emit(d, 1, x) if len(x) > _LONG_LITERAL else x] * n)

    # ---- arithmetic --------------------------------------------------------------------------------------------------
    def _wrapping(self, sign: str, d: DType, n: int, a: str, b: str) -> str:
        """Return the text of `a` `sign` `b`, where signed integers wrap.

        If the language does not define that, they are computed as unsigned integers.
        """
        if d.kind != "i" or d.bits < 32 or self.lang.wraps:
            return self._narrowed(d, n, f"({a} {sign} {b})")
        u = dtypes.uint32 if d.bits == 32 else dtypes.uint64
        change = self.lang.cast if n == 1 else self.lang.bitcast
        x, y = (change(v, d, u, n) for v in (a, b))
        return change(f"({x} {sign} {y})", u, d, n)

    def op_add(self, u: UOp, n: int, a: str, b: str) -> str:
        return f"({a} | {b})" if u.dtype is dtypes.bool else self._wrapping("+", u.dtype, n, a, b)

    def op_mul(self, u: UOp, n: int, a: str, b: str) -> str:
        return f"({a} & {b})" if u.dtype is dtypes.bool else self._wrapping("*", u.dtype, n, a, b)

    def op_sub(self, u: UOp, n: int, a: str, b: str) -> str:
        return f"({a} ^ {b})" if u.dtype is dtypes.bool else self._wrapping("-", u.dtype, n, a, b)

    def op_div(self, u: UOp, n: int, a: str, b: str) -> str:
        return f"({a} / {b})"

    def op_recip(self, u: UOp, n: int, x: str) -> str:
        return f"({self.constant(1.0, u.dtype, n)} / {x})"

    def op_neg(self, u: UOp, n: int, x: str) -> str:
        return f"(-{x})" if u.dtype.is_float else self._wrapping("-", u.dtype, n, self.constant(0, u.dtype, n), x)

    def op_not(self, u: UOp, n: int, x: str) -> str:
        if u.dtype is dtypes.bool:
            return f"(~{x})" if n > 1 and self.lang.masks else f"(!{x})"
        return self._narrowed(u.dtype, n, f"(~{x})")

    def op_mulacc(self, u: UOp, n: int, a: str, b: str, c: str) -> str:
        if u.dtype.is_float:
            return self.lang.function("FMA", u.dtype, n, a, b, c)
        return self.op_add(u, n, self.emit(u.dtype, n, self.op_mul(u, n, a, b)), c)

    def op_max(self, u: UOp, n: int, a: str, b: str) -> str:
        return self.maximum(u.dtype, n, a, b)

    def maximum(self, d: DType, n: int, a: str, b: str) -> str:
        """Return the text of the maximum of two values, nan if one is nan."""
        if d is dtypes.bool:
            return f"({a} | {b})"
        more = self.lang.compare(">", d, n, a, b)
        if d.is_float:  # select a if it is larger or nan
            more = f"({more} | {self.lang.compare('!=', d, n, a, a)})"
        return self.lang.select(d, n, more, a, b)

    def op_where(self, u: UOp, n: int, c: str, a: str, b: str) -> str:
        return self.lang.select(u.dtype, n, c, a, b)

    # ---- integers ----------------------------------------------------------------------------------------------------
    def op_shl(self, u: UOp, n: int, x: str, k: str) -> str:
        return self._shift(u, n, x, k, "<<")

    def op_shr(self, u: UOp, n: int, x: str, k: str) -> str:
        return self._shift(u, n, x, k, ">>")

    def _shift(self, u: UOp, n: int, x: str, k: str, sign: str) -> str:
        """Return the text of a shift; by the width or more it gives 0, or the sign of a signed value shifted right."""
        d = u.dtype
        if u.src[1].op == "CONST" and 0 <= u.src[1].arg[0] < d.bits:
            return self._shifted(d, n, x, k, sign)
        last, zero = self.constant(d.bits - 1, d, n), self.constant(0, d, n)
        far = f"({self.lang.compare('>', d, n, k, last)}"
        far += ")" if d.is_unsigned else f" | {self.lang.compare('<', d, n, k, zero)})"
        keeps_sign = sign == ">>" and not d.is_unsigned
        out = self._shifted(d, n, x, self.emit(d, n, self.lang.select(d, n, far, last, k)), sign)
        return out if keeps_sign else self.lang.select(d, n, far, zero, self.emit(d, n, out))

    def _shifted(self, d: DType, n: int, x: str, k: str, sign: str) -> str:
        if sign == ">>" or d.is_unsigned or self.lang.wraps:
            return self._narrowed(d, n, self.lang.shift(sign, x, k))
        return self._wrapping(sign, d, n, x, k)

    def op_idiv(self, u: UOp, n: int, a: str, b: str) -> str:
        return self._divide(u, n, a, b, "/")

    def op_mod(self, u: UOp, n: int, a: str, b: str) -> str:
        return self._divide(u, n, a, b, "%")

    def _divide(self, u: UOp, n: int, a: str, b: str, sign: str) -> str:
        """Return the text of a floor division, or its remainder, that never traps: 0 for b = 0, wrapping for b = -1.

        `sign` is "/" or "%".
        """
        d = u.dtype
        known = u.src[1].op == "CONST" and u.src[1].arg[0] > 0
        if known and (d.is_unsigned or min_max(u.src[0])[0] >= 0):
            return self._narrowed(d, n, f"({a} {sign} {b})")
        zero, one = self.constant(0, d, n), self.constant(1, d, n)
        none = self.lang.compare("==", d, n, b, zero)
        if d.is_unsigned:
            safe = self.emit(d, n, self.lang.select(d, n, none, one, b))
            return self.lang.select(d, n, none, zero, self.emit(d, n, self._narrowed(d, n, f"({a} {sign} {safe})")))
        minus = self.lang.compare("==", d, n, b, self.constant(-1, d, n))
        safe = self.emit(d, n, self.lang.select(d, n, f"({none} | {minus})", one, b))
        r = self.emit(d, n, self._narrowed(d, n, f"({a} % {safe})"))
        apart = self.lang.compare("<", d, n, self.emit(d, n, self._narrowed(d, n, f"({r} ^ {safe})")), zero)
        off = self.emit(dtypes.bool, n, f"({apart} & {self.lang.compare('!=', d, n, r, zero)})")
        if sign == "%":
            return self.lang.select(d, n, off, self.emit(d, n, self._wrapping("+", d, n, r, safe)), r)
        q = self.emit(d, n, self._narrowed(d, n, f"({a} / {safe})"))
        q = self.emit(d, n, self.lang.select(d, n, off, self.emit(d, n, self._wrapping("-", d, n, q, one)), q))
        q = self.emit(d, n, self.lang.select(d, n, minus, self.emit(d, n, self._wrapping("-", d, n, zero, a)), q))
        return self.lang.select(d, n, none, zero, q)

    # ---- types -------------------------------------------------------------------------------------------------------
    def op_bitcast(self, u: UOp, n: int, x: str) -> str:
        return self.lang.bitcast(x, u.src[0].dtype, u.dtype, n)

    def op_cast(self, u: UOp, n: int, x: str) -> str:
        s, d = u.src[0].dtype, u.dtype
        if d is s:
            return x
        if s.is_float and s.bits < 32 and not d.is_float:  # narrow floats can be converted, but not compared
            x, s = self.emit(dtypes.float32, n, self.lang.cast(x, s, dtypes.float32, n)), dtypes.float32
        if d is dtypes.bool:
            return self.lang.compare("!=", s, n, x, self.constant(0, s, n))
        if s.is_float and d.is_int:
            return self._float_to_int(s, d, n, x)
        return self.lang.cast(x, s, d, n)

    def _float_to_int(self, s: DType, d: DType, n: int, x: str) -> str:
        """Return the text of a cast that saturates, with nan to 0."""
        low, high = float(d.min), float(d.max + 1)  # exact, as they are powers of two
        largest = _MAX_FINITE[s.bits]
        signs = (">=", "<=") if high <= largest else (">", "<")  # else only infinities are too large
        over = self.lang.compare(signs[0], s, n, x, self.constant(min(high, largest), s, n))
        under = self.lang.compare(signs[1], s, n, x, self.constant(max(low, -largest), s, n))
        number = self.lang.compare("==", s, n, x, x)
        over, under = (self.emit(dtypes.bool, n, c) for c in (over, under))
        inside = self.lang.select(s, n, f"({over} | {under})", self.constant(0.0, s, n), x)
        inside = self.emit(s, n, self.lang.select(s, n, number, self.emit(s, n, inside), self.constant(0.0, s, n)))
        out = self.emit(d, n, self.lang.cast(inside, s, d, n))
        out = self.emit(d, n, self.lang.select(d, n, over, self.constant(d.max, d, n), out))
        return self.lang.select(d, n, under, self.constant(d.min, d, n), out)

    # ---- reductions --------------------------------------------------------------------------------------------------
    def combine(self, op: str, d: DType, n: int, a: str, b: str) -> str:
        """Return a variable with one step of a reduction: `a` ADD, MUL or MAX `b`."""
        if op == "MAX":
            return self.emit(d, n, self.maximum(d, n, a, b))
        if d is dtypes.bool:
            return self.emit(d, n, f"({a} {'|' if op == 'ADD' else '&'} {b})")
        return self.emit(d, n, self._wrapping("+" if op == "ADD" else "*", d, n, a, b))

    def reduce(self, u: UOp) -> Value:
        """Render REDUCE over axes of a shaped value as a tree reduction: first of variables, then of their halves."""
        x, (op, axes) = u.src[0], u.arg
        v, last = self.value(x), len(x.shape) - 1
        lanes = x.shape[-1] if last in axes else 1  # elements of the last axis that are combined
        n_parts = x.shape[-1] // v.width
        grid = np.array(v.regs, object).reshape(*x.shape[:-1], n_parts)
        for a in sorted(axes, reverse=True):
            rows = [np.take(grid, i, axis=a) for i in range(grid.shape[a])]
            while len(rows) > 1:
                step = np.frompyfunc(lambda p, q: self.combine(op, u.dtype, v.width, p, q), 2, 1)
                pairs = [step(rows[i], rows[i + 1]) for i in range(0, len(rows) - 1, 2)]
                rows = pairs + rows[len(rows) - len(rows) % 2 :]
            grid = np.expand_dims(np.asarray(rows[0], object), a)
        regs = [str(r) for r in grid.ravel()]
        if lanes > 1:
            return Value([self._halves(op, u.dtype, v.width, r) for r in regs], 1)
        return Value(regs, v.width)

    def _halves(self, op: str, d: DType, n: int, r: str) -> str:
        """Return a scalar variable with the reduction of all lanes of a variable."""
        while n > 1:
            n //= 2
            both = Value([r], 2 * n)
            if n == 1:
                a, b = (self.emit(d, 1, self.lane(d, both, i)) for i in (0, 1))
            else:
                a, b = (self._register(both, d, list(range(start, start + n))) for start in (0, n))
            r = self.combine(op, d, n, a, b)
        return r

    def scan(self, u: UOp) -> Value:
        """Render SCAN along an axis of a shaped value: element by element along the last axis, or else row by row."""
        x, (op, axis) = u.src[0], u.arg
        v = self.value(x)
        if axis == len(x.shape) - 1:
            xs = self.elements(x)
            for i in range(prod(x.shape)):
                if i % x.shape[-1]:
                    xs[i] = self.combine(op, u.dtype, 1, xs[i - 1], xs[i])
            return self.join(xs, u.shape, u.dtype)
        grid = np.moveaxis(np.array(v.regs, object).reshape(*x.shape[:-1], -1), axis, 0)
        step = np.frompyfunc(lambda p, q: self.combine(op, u.dtype, v.width, p, q), 2, 1)
        for k in range(1, len(grid)):
            grid[k] = step(grid[k - 1], grid[k])
        return Value([str(r) for r in np.moveaxis(grid, 0, axis).ravel()], v.width)


__all__ = ["C_NATIVE", "Ops"]
