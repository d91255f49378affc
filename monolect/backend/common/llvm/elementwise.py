"""Render elementwise ops as LLVM instructions: one method `op_<name>` for each op, called once for each register.

What it does not do: decompose ops. Ops outside of `LLVM_NATIVE` were decomposed before.
Invariant: no op is undefined on any operand. Shifts by the width or more, division by zero and casts of values out of
range give the results that the table of ops defines. The maximum of floats propagates nan, as the table defines.
"""

from __future__ import annotations

import re
from math import prod

import numpy as np

from monolect.backend.common.llvm.types import (
    Value,
    lane_list,
    n_regs,
    overload,
    splat_literal,
    type_name,
    vector_literal,
)
from monolect.backend.common.llvm.values import VALUES, ValueRenderer
from monolect.backend.common.shaped import custom_text
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.ir.bounds import min_max
from monolect.ir.ops import ParamArg
from monolect.ir.rewrite.normal import is_unbounded, less
from monolect.ir.uop import UOp, node, shape_source, toposort
from monolect.rules.formula import magnitude_argument
from monolect.rules.legalize import NARROW, narrow, widen

_COMPARE = {
    "CMPLT": ("olt", "lt"), "CMPNE": ("une", "ne"), "CMPGT": ("ogt", "gt"), "CMPGE": ("oge", "ge"),
    "CMPLE": ("ole", "le"), "CMPEQ": ("oeq", "eq"),
}  # fmt: skip
_BITWISE = {"XOR": "xor", "OR": "or", "AND": "and"}
_INTRINSICS = {"SQRT": "sqrt", "TRUNC": "trunc"}
_CALL = re.compile(r"\bcall (\S+) (@[\w.]+)\(([^)]*)\)")
_EXACT_FLOATS = {8: dtypes.float32, 16: dtypes.float32, 32: dtypes.float64}  # n -> float that represents n-bit integers
_MAX_NARROW = 1 << 20  # offsets up to this are compared with a bound in 32 bits


def _bounded_index(u: UOp) -> UOp | None:
    """Return x if `u` is -1 < x & x < n with a constant n > 0, where the first may be any form that `less` builds."""
    low, high = u.src
    if low.op != "CMPLT" or high.op != "CMPLT" or high.src[1].op != "CONST" or high.src[0].dtype.kind != "x":
        return None
    x = high.src[0]
    return x if x.op != "CONST" and low is less(-1, x) and high.src[1].value > 0 else None


class ElementwiseRenderer(ValueRenderer):
    """Renders elementwise ops, reductions and scans.

    Each `op_*` takes the node, the number of lanes of a register and one register of each operand, and returns the
    register of the result.
    """

    is_simd = True  # an instruction handles all lanes of a register; if not, ops that vectors lack cost nothing extra

    def elementwise(self, u: UOp) -> Value:
        """Render an elementwise op register by register."""
        if u.op == "CUSTOM":
            return self.custom(u)
        lanes = u.shape[-1] if u.shape else 1
        if u.op == "CMPLT" and u.shape != () and u.src[0].dtype.kind == "x":
            fast = self._lane_bound(u)
            if fast is not None:
                return fast
        if u.op == "BITCAST" and u.shape != u.src[0].shape:
            v = self.value(u.src[0])
            a, b = type_name(u.src[0].dtype, v.lanes), type_name(u.dtype, lanes)
            return Value(u.shape, [self.emit(f"bitcast {a} {r} to {b}") for r in v.regs])
        cols = [self.broadcast(s, u.shape) for s in u.src]
        f = getattr(self, "op_" + u.op.lower(), self._op)
        return Value(u.shape, [f(u, lanes, *row) for row in zip(*cols, strict=True)])

    def custom(self, u: UOp) -> Value:
        """Render a CUSTOM: the user's instruction for each element. Functions that it calls are declared."""
        at = [np.broadcast_to(np.arange(prod(s.shape)).reshape(s.shape), u.shape).ravel() for s in u.src]
        values = [self.value(s) for s in u.src]
        xs = []
        for k in range(prod(u.shape)):
            row = tuple(self.lane(s.dtype, v, int(i[k])) for s, v, i in zip(u.src, values, at, strict=True))
            text = custom_text(u, row)
            for result, name, given in _CALL.findall(text):
                kinds = ", ".join(a.split()[0] for a in given.split(",") if a.strip())
                self.declares.add(f"declare {result} {name}({kinds})")
            xs.append(self.emit(text))
        return self.join(xs, u.shape, u.dtype)

    def _lane_bound(self, u: UOp) -> Value | None:
        """Render base + constant offsets < bound in 32 bits, by a scalar subtraction and a vector comparison.

        Return None if `u` does not have this form, or the offsets are too large.
        """
        base, offs, dynamic = self.address_parts(u.src[0])
        b = u.src[1]
        if dynamic or b.shape != () or np.abs(offs).max() > _MAX_NARROW or is_unbounded(u.src[0]) or is_unbounded(b):
            return None
        room = self.emit(f"sub i64 {self.value(b).regs[0]}, {base}")
        room = self.call("smax", dtypes.int64, 1, room, str(-2 * _MAX_NARROW))
        room = self.call("smin", dtypes.int64, 1, room, str(2 * _MAX_NARROW))
        room = self.emit(f"trunc i64 {room} to i32")
        lanes = u.shape[-1]
        rows = np.broadcast_to(offs, u.shape).reshape(n_regs(u.shape), -1)
        t = type_name(dtypes.int32, lanes)
        wide = self.splat(room, dtypes.int32, lanes) if lanes > 1 else room
        return Value(u.shape, [self.emit(f"icmp slt {t} {vector_literal(row, dtypes.int32)}, {wide}") for row in rows])

    def call(self, name: str, d: DType, lanes: int, *x: str) -> str:
        """Emit a call of the LLVM intrinsic `name`, overloaded on dtype `d`; return the register of the result."""
        t = type_name(d, lanes)
        full = f"@llvm.{name}.{overload(type_name(d), lanes)}"
        self.declares.add(f"declare {t} {full}({', '.join([t] * len(x))})")
        return self.emit(f"call {t} {full}({', '.join(f'{t} {a}' for a in x)})")

    def _op(self, u: UOp, lanes: int, *x: str) -> str:
        op, d = u.op, u.src[-1].dtype
        t = type_name(d, lanes)
        if op in _COMPARE:
            f, i = _COMPARE[op]
            if d.is_float:
                return self.emit(f"fcmp {f} {t} {x[0]}, {x[1]}")
            sign = "" if i in ("eq", "ne") else "u" if d.is_unsigned else "s"
            return self.emit(f"icmp {sign}{i} {t} {x[0]}, {x[1]}")
        if op in _BITWISE:
            return self.emit(f"{_BITWISE[op]} {t} {x[0]}, {x[1]}")
        if op in _INTRINSICS:
            return self.call(_INTRINSICS[op], d, lanes, *x)
        raise InternalError(f"the LLVM renderer has no row for {op} of {d.name}")

    # ---- arithmetic --------------------------------------------------------------------------------------------------
    def arithmetic(self, d: DType, lanes: int, names: tuple[str, str, str], a: str, b: str) -> str:
        """Emit the binary instruction whose `names` are (for floats, for integers, for bools)."""
        name = names[0] if d.is_float else names[2] if d is dtypes.bool else names[1]
        return self.emit(f"{name} {type_name(d, lanes)} {a}, {b}")

    def op_add(self, u: UOp, lanes: int, a: str, b: str) -> str:
        return self.arithmetic(u.dtype, lanes, ("fadd", "add", "or"), a, b)

    def op_mul(self, u: UOp, lanes: int, a: str, b: str) -> str:
        return self.arithmetic(u.dtype, lanes, ("fmul", "mul", "and"), a, b)

    def op_sub(self, u: UOp, lanes: int, a: str, b: str) -> str:
        return self.arithmetic(u.dtype, lanes, ("fsub", "sub", "xor"), a, b)

    def op_div(self, u: UOp, lanes: int, a: str, b: str) -> str:
        return self.emit(f"fdiv {type_name(u.dtype, lanes)} {a}, {b}")

    def op_recip(self, u: UOp, lanes: int, x: str) -> str:
        return self.emit(f"fdiv {type_name(u.dtype, lanes)} {splat_literal(1.0, u.dtype, lanes)}, {x}")

    def op_neg(self, u: UOp, lanes: int, x: str) -> str:
        t = type_name(u.dtype, lanes)
        return self.emit(f"fneg {t} {x}" if u.dtype.is_float else f"sub {t} zeroinitializer, {x}")

    def op_not(self, u: UOp, lanes: int, x: str) -> str:
        ones = "-1" if lanes == 1 else f"splat ({type_name(u.dtype)} -1)"
        if lanes == 1 and u.dtype is dtypes.bool:
            ones = "true"
        return self.emit(f"xor {type_name(u.dtype, lanes)} {x}, {ones}")

    def op_mulacc(self, u: UOp, lanes: int, a: str, b: str, c: str) -> str:
        if u.dtype.is_float:
            return self.call("fma", u.dtype, lanes, a, b, c)
        return self.op_add(u, lanes, self.op_mul(u, lanes, a, b), c)

    def op_max(self, u: UOp, lanes: int, a: str, b: str) -> str:
        if u.dtype.is_float and magnitude_argument(u) is not None:
            return self.call("fabs", u.dtype, lanes, a)
        c = u.src[1]
        return self.maximum(u.dtype, lanes, a, b, c.op == "CONST" and c.value == c.value)

    def maximum(self, d: DType, lanes: int, a: str, b: str, b_is_number: bool = False) -> str:
        """Emit the maximum of two values, nan if one is nan; it is cheaper if `b` is known not to be nan."""
        t, c = type_name(d, lanes), type_name(dtypes.bool, lanes)
        if d is dtypes.bool:
            return self.emit(f"or {t} {a}, {b}")
        if not d.is_float:
            return self.call("umax" if d.is_unsigned else "smax", d, lanes, a, b)
        if b_is_number:  # b > a ? b : a propagates a nan in a, and is one instruction
            return self.emit(f"select {c} {self.emit(f'fcmp ogt {t} {b}, {a}')}, {t} {b}, {t} {a}")
        m = self.emit(f"select {c} {self.emit(f'fcmp ogt {t} {a}, {b}')}, {t} {a}, {t} {b}")
        return self.emit(f"select {c} {self.emit(f'fcmp uno {t} {a}, {a}')}, {t} {a}, {t} {m}")

    def op_and(self, u: UOp, lanes: int, a: str, b: str) -> str:
        """Render AND; for a scalar index x and a constant n, -1 < x & x < n becomes one unsigned comparison."""
        x = _bounded_index(u) if u.shape == () else None
        if x is not None:
            return self.emit(f"icmp ult {type_name(x.dtype)} {self.value(x).regs[0]}, {u.src[1].src[1].value}")
        return self._op(u, lanes, a, b)

    def op_where(self, u: UOp, lanes: int, c: str, a: str, b: str) -> str:
        t = type_name(u.dtype, lanes)
        return self.emit(f"select {type_name(dtypes.bool, lanes)} {c}, {t} {a}, {t} {b}")

    def op_ldexp(self, u: UOp, lanes: int, x: str, n: str) -> str:
        """Render LDEXP by an AVX-512 instruction for 128, 256 or 512 bits.

        Fewer lanes are padded to such a register, more are split into several.
        """
        d, bits = u.dtype, lanes * u.dtype.bits
        wide = max(128, 1 << (bits - 1).bit_length()) // d.bits
        if lanes == 1:
            x, n = (self.splat(r, d, wide) for r in (x, n))
        elif lanes < wide:
            x, n = (self.shuffle(r, d, lanes, [*range(lanes), *[-1] * (wide - lanes)]) for r in (x, n))
        if wide * d.bits > 512:
            halves = [range(k, k + wide // 2) for k in (0, wide // 2)]
            parts = [self.op_ldexp(u, wide // 2, *(self.shuffle(r, d, wide, h) for r in (x, n))) for h in halves]
            r = self.concatenate(parts, d, wide // 2)
        else:
            t, mask = type_name(d, wide), f"i{max(8, wide)}"
            name = f"@llvm.x86.avx512.mask.scalef.{'ps' if d.bits == 32 else 'pd'}.{wide * d.bits}"
            given, rounding = (", i32", ", i32 4") if wide * d.bits == 512 else ("", "")
            self.declares.add(f"declare {t} {name}({t}, {t}, {t}, {mask}{given})")
            r = self.emit(f"call {t} {name}({t} {x}, {t} {n}, {t} zeroinitializer, {mask} -1{rounding})")
        if lanes == 1:
            return self.emit(f"extractelement {type_name(d, wide)} {r}, i64 0")
        return r if lanes == wide else self.shuffle(r, d, wide, range(lanes))

    # ---- integers ----------------------------------------------------------------------------------------------------
    def op_shl(self, u: UOp, lanes: int, x: str, n: str) -> str:
        return self._shift(u, lanes, x, n, True)

    def op_shr(self, u: UOp, lanes: int, x: str, n: str) -> str:
        return self._shift(u, lanes, x, n, False)

    def _shift(self, u: UOp, lanes: int, x: str, n: str, left: bool) -> str:
        """Emit a shift; by the width or more it gives 0, or the sign if a signed value is shifted right."""
        d = u.dtype
        t, c = type_name(d, lanes), type_name(dtypes.bool, lanes)
        how = "shl" if left else "lshr" if d.is_unsigned else "ashr"
        if u.src[1].op == "CONST" and 0 <= u.src[1].arg[0] < d.bits:
            return self.emit(f"{how} {t} {x}, {n}")
        keeps_sign = not left and not d.is_unsigned
        most, zero = splat_literal(d.bits - 1, d, lanes), splat_literal(0, d, lanes)
        far = self.emit(f"icmp ugt {t} {n}, {most}")
        safe = self.emit(f"select {c} {far}, {t} {most if keeps_sign else zero}, {t} {n}")
        out = self.emit(f"{how} {t} {x}, {safe}")
        return out if keeps_sign else self.emit(f"select {c} {far}, {t} {zero}, {t} {out}")

    def op_idiv(self, u: UOp, lanes: int, a: str, b: str) -> str:
        return self._divide(u, lanes, a, b, "div")

    def op_mod(self, u: UOp, lanes: int, a: str, b: str) -> str:
        return self._divide(u, lanes, a, b, "rem")

    def _divide(self, u: UOp, lanes: int, a: str, b: str, what: str) -> str:
        """Emit a floor division or its remainder that never traps: 0 for b = 0, wrapping for b = -1.

        `what` is "div" or "rem".
        """
        d, t, c = u.dtype, type_name(u.dtype, lanes), type_name(dtypes.bool, lanes)
        zero, one = splat_literal(0, d, lanes), splat_literal(1, d, lanes)
        known = u.src[1].op == "CONST" and u.src[1].arg[0] > 0
        if known and (d.is_unsigned or min_max(u.src[0])[0] >= 0):
            return self.emit(f"u{what} {t} {a}, {b}")
        if lanes > 1 and self.is_simd and d.bits in _EXACT_FLOATS and (d.is_unsigned or u.src[1].op != "CONST"):
            return self._divide_floats(d, lanes, a, b, what)
        if d.is_unsigned:
            none = self.emit(f"icmp eq {t} {b}, {zero}")
            q = self.emit(f"u{what} {t} {a}, {self.emit(f'select {c} {none}, {t} {one}, {t} {b}')}")
            return self.emit(f"select {c} {none}, {t} {zero}, {t} {q}")
        minus = splat_literal(-1, d, lanes)
        bad = self.emit(f"or {c} {self.emit(f'icmp eq {t} {b}, {zero}')}, {self.emit(f'icmp eq {t} {b}, {minus}')}")
        safe = self.emit(f"select {c} {bad}, {t} {one}, {t} {b}")
        r = self.emit(f"srem {t} {a}, {safe}")
        off = self.emit(f"icmp slt {t} {self.emit(f'xor {t} {r}, {safe}')}, {zero}")
        fix = self.emit(f"and {c} {off}, {self.emit(f'icmp ne {t} {r}, {zero}')}")
        if what == "rem":
            return self.emit(f"select {c} {fix}, {t} {self.emit(f'add {t} {r}, {safe}')}, {t} {r}")
        q = self.emit(f"sdiv {t} {a}, {safe}")
        q = self.emit(f"select {c} {fix}, {t} {self.emit(f'add {t} {q}, {minus}')}, {t} {q}")
        wraps = self.emit(f"icmp eq {t} {b}, {minus}")
        q = self.emit(f"select {c} {wraps}, {t} {self.emit(f'sub {t} {zero}, {a}')}, {t} {q}")
        return self.emit(f"select {c} {self.emit(f'icmp eq {t} {b}, {zero}')}, {t} {zero}, {t} {q}")

    def _divide_floats(self, d: DType, lanes: int, a: str, b: str, what: str) -> str:
        """Emit a `_divide` of vectors by a division of floats, as no processor divides vectors of integers.

        It is exact because the float has more bits of mantissa than the integer has bits: a quotient that is no integer
        is at least 1/|b| away from one, and the rounding error is smaller. x / 0 is computed as 0 / 1. The least
        integer divided by -1, which is out of range, wraps.
        """
        f = _EXACT_FLOATS[d.bits]
        t, w, c = type_name(d, lanes), type_name(f, lanes), type_name(dtypes.bool, lanes)
        sign = "u" if d.is_unsigned else "s"
        zero = splat_literal(0, d, lanes)
        none = self.emit(f"icmp eq {t} {b}, {zero}")
        a = self.emit(f"select {c} {none}, {t} {zero}, {t} {a}")
        b = self.emit(f"select {c} {none}, {t} {splat_literal(1, d, lanes)}, {t} {b}")
        x, y = (self.emit(f"{sign}itofp {t} {v} to {w}") for v in (a, b))
        q = self.emit(f"fdiv {w} {x}, {y}")
        if not d.is_unsigned:
            q = self.call("floor", f, lanes, q)
            low, high = (splat_literal(v, f, lanes) for v in (float(d.min), float(-d.min)))
            q = self.emit(f"select {c} {self.emit(f'fcmp oeq {w} {q}, {high}')}, {w} {low}, {w} {q}")
        q = self.emit(f"fpto{sign}i {w} {q} to {t}")
        return q if what == "div" else self.emit(f"sub {t} {a}, {self.emit(f'mul {t} {q}, {b}')}")

    # ---- types -------------------------------------------------------------------------------------------------------
    def op_bitcast(self, u: UOp, lanes: int, x: str) -> str:
        a, b = type_name(u.src[0].dtype, lanes), type_name(u.dtype, lanes)
        return x if a == b else self.emit(f"bitcast {a} {x} to {b}")

    def op_cast(self, u: UOp, lanes: int, x: str) -> str:
        s, d = u.src[0].dtype, u.dtype
        a, b = type_name(s, lanes), type_name(d, lanes)
        if a == b and s.is_float == d.is_float:
            return x
        if d is dtypes.bool:
            return self.emit(f"{'fcmp une' if s.is_float else 'icmp ne'} {a} {x}, zeroinitializer")
        if s.is_float and d.is_float:
            how = "fpext" if d.bits > s.bits else "fptrunc"
            return self.emit(f"{how} {a} {x} to {b}")
        if s.is_float:
            return self._float_to_int(s, d, lanes, x)
        if d.is_float:
            return self.emit(f"{'uitofp' if s.is_unsigned else 'sitofp'} {a} {x} to {b}")
        wide, narrow = (64 if d.kind == "x" else d.bits), (64 if s.kind == "x" else s.bits)
        return self.emit(f"{'trunc' if wide < narrow else 'zext' if s.is_unsigned else 'sext'} {a} {x} to {b}")

    def _float_to_int(self, s: DType, d: DType, lanes: int, x: str) -> str:
        """Emit a cast that saturates, with nan to 0.

        Vectors are clamped by comparisons, since LLVM's code generator splits its saturating casts into lanes.
        """
        if lanes > 1 and self.is_simd:
            return self._floats_to_ints(s, d, lanes, x)
        a, b = type_name(s, lanes), type_name(d, lanes)
        name = "fptoui" if d.is_unsigned else "fptosi"
        full = f"@llvm.{name}.sat.{overload(type_name(d), lanes)}.{overload(type_name(s), lanes)}"
        self.declares.add(f"declare {b} {full}({a})")
        return self.emit(f"call {b} {full}({a} {x})")

    def _floats_to_ints(self, s: DType, d: DType, lanes: int, x: str) -> str:
        low, high = (float(s.numpy.type(v)) for v in (d.min, d.max))  # `high` may be one above the largest integer
        t, c = type_name(s, lanes), type_name(dtypes.bool, lanes)
        least, most, zero = (splat_literal(v, s, lanes) for v in (low, high, 0.0))
        none = "" if d.is_unsigned else self.emit(f"fcmp uno {t} {x}, {x}")
        far = "" if high == d.max else self.emit(f"fcmp oge {t} {x}, {most}")
        x = self.emit(f"select {c} {self.emit(f'fcmp ogt {t} {x}, {least}')}, {t} {x}, {t} {least}")  # nan is `low` now
        below = self.emit(f"fcmp olt {t} {x}, {most}")
        x = self.emit(f"select {c} {below}, {t} {x}, {t} {zero if far else most}")
        i = d if d.bits >= 32 else dtypes.int32  # narrower integers have no vector conversions
        out = self.emit(f"fpto{'u' if i.is_unsigned else 's'}i {t} {x} to {type_name(i, lanes)}")
        if i is not d:
            out = self.emit(f"trunc {type_name(i, lanes)} {out} to {type_name(d, lanes)}")
        for when, value in ((far, d.max), (none, 0)):
            if when:
                v = type_name(d, lanes)
                out = self.emit(f"select {c} {when}, {v} {splat_literal(value, d, lanes)}, {v} {out}")
        return out

    # ---- reductions --------------------------------------------------------------------------------------------------
    def combine(self, op: str, d: DType, lanes: int, a: str, b: str) -> str:
        """Emit one step of a reduction or an atomic addition: `a` ADD, MUL or MAX `b`."""
        if op == "MAX":
            return self.maximum(d, lanes, a, b)
        if op == "ADD" and d in NARROW and d is not dtypes.float16:  # of an ATOMICADD; reductions are in float32
            return self._add_narrow(d, lanes, a, b)
        return self.arithmetic(d, lanes, ("fadd", "add", "or") if op == "ADD" else ("fmul", "mul", "and"), a, b)

    def _add_narrow(self, d: DType, lanes: int, a: str, b: str) -> str:
        """Emit the sum of two narrow floats, which LLVM IR holds as integers: widen, add in float32, and round."""
        shape = () if lanes == 1 else (lanes,)
        x, y = (node("PARAM", (shape_source(shape),), ParamArg(-k, d, None)) for k in (1, 2))
        outside, self.vals = self.vals, {**self.vals, x: Value(shape, [a]), y: Value(shape, [b])}
        total = narrow(widen(x) + widen(y), d)
        for u in toposort(total):
            if u.op in VALUES:
                self.vals[u] = self.elementwise(u)
        (out,) = self.value(total).regs
        self.vals = outside
        return out

    def reduce(self, u: UOp) -> Value:
        """Render REDUCE over axes of a shaped value as a tree reduction: first of registers, then of lanes."""
        x, (op, axes) = u.src[0], u.arg
        v = self.value(x)
        last = len(x.shape) - 1
        step = np.frompyfunc(lambda p, q: self.combine(op, u.dtype, v.lanes, p, q), 2, 1)
        grid = np.array(v.regs, dtype=object).reshape(x.shape[:-1])
        for a in sorted((a for a in axes if a < last), reverse=True):
            rows = [np.take(grid, i, axis=a) for i in range(grid.shape[a])]
            while len(rows) > 1:
                pairs = [step(rows[i], rows[i + 1]) for i in range(0, len(rows) - 1, 2)]
                rows = pairs + rows[len(rows) - len(rows) % 2 :]
            grid = np.expand_dims(np.array(rows[0], dtype=object), a)
        regs = [str(r) for r in grid.ravel()]
        if last in axes and v.lanes > 1:
            together = v.lanes if v.lanes & (v.lanes - 1) == 0 and u.dtype is not dtypes.bool else 1
            parts = [regs[i : i + together] for i in range(0, len(regs), together)]
            regs = [r for part in parts for r in self._reduce_rows(op, u.dtype, v.lanes, part)]
        return Value(u.shape, regs)

    def scan(self, u: UOp) -> Value:
        """Render SCAN along an axis of a shaped value: register after register, or inside of each for the last axis."""
        x, (op, axis) = u.src[0], u.arg
        v = self.value(x)
        if axis == len(x.shape) - 1:
            return Value(u.shape, [self._scan_lanes(op, u.dtype, v.lanes, r) for r in v.regs])
        step = np.frompyfunc(lambda p, q: self.combine(op, u.dtype, v.lanes, p, q), 2, 1)
        grid = np.moveaxis(np.array(v.regs, dtype=object).reshape(x.shape[:-1]), axis, 0)
        for k in range(1, len(grid)):
            grid[k] = step(grid[k - 1], grid[k])
        return Value(u.shape, [str(r) for r in np.moveaxis(grid, 0, axis).ravel()])

    def _scan_lanes(self, op: str, d: DType, lanes: int, r: str) -> str:
        """Emit a scan of the lanes of a register in log2(lanes) steps, as in Sklansky's adder.

        A step joins pairs of blocks of 1, 2, 4, ... lanes: it combines the last lane of a block with each lane of the
        next block. The shuffles are cheap: those of blocks up to 128 bits do not cross 128-bit parts of the register.
        """
        t, c, block = type_name(d, lanes), type_name(dtypes.bool, lanes), 1
        while block < lanes:
            later = [bool(k & block) for k in range(lanes)]
            moved = self.shuffle(r, d, lanes, [(k & -block) - 1 if on else -1 for k, on in enumerate(later)])
            both = self.combine(op, d, lanes, r, moved)
            mask = vector_literal(np.array(later), dtypes.bool)
            r, block = self.emit(f"select {c} {mask}, {t} {both}, {t} {r}"), 2 * block
        return r

    def _reduce_rows(self, op: str, d: DType, lanes: int, regs: list[str]) -> list[str]:
        """Emit the reduction of the lanes of each register, and return a scalar for each. There are at most as many
        registers as lanes.

        A step halves two registers at once: it shuffles the low halves of both into one register, the high halves into
        another, and combines them. The shuffles are cheap: they move elements within 128 bits, or whole 128 bits.
        """
        if len(regs) == 1:
            return [self._reduce_lanes(op, d, lanes, regs[0])]
        t, width = type_name(d, lanes), lanes  # `width`: lanes left of each given register
        unit = min(lanes, max(1, 16 // d.itemsize))
        rows = [(r, [k] * lanes) for k, r in enumerate(regs)]  # (register, number of the given register of each lane)
        while len(rows) > 1:
            half, part = width // 2, lanes if width > unit else unit
            low = [i + e for i in range(0, part, width) for e in range(half)]
            picks = [start + i + n * lanes for start in range(0, lanes, part) for n in (0, 1) for i in low]
            pairs = []
            for k in range(0, len(rows), 2):
                (a, owners), (b, others) = rows[k], rows[k + 1] if k + 1 < len(rows) else ("poison", [-1] * lanes)
                moved = [
                    self.emit(f"shufflevector {t} {a}, {t} {b}, {lane_list([i + at for i in picks])}")
                    for at in (0, half)
                ]
                pairs.append((self.combine(op, d, lanes, *moved), [(owners + others)[i] for i in picks]))
            rows, width = pairs, half
        r, owners = rows[0]
        while width > 1:  # with fewer registers than lanes each has more than one lane left
            half = width // 2
            low = [i + e for i in range(0, lanes, width) for e in range(half)]
            a, b = (self.shuffle(r, d, lanes, [i + at for i in low]) for at in (0, half))
            lanes, width, owners = len(low), half, [owners[i] for i in low]
            r = self.combine(op, d, lanes, a, b)
        return [self.emit(f"extractelement {type_name(d, lanes)} {r}, i64 {owners.index(k)}") for k in range(len(regs))]

    def _reduce_lanes(self, op: str, d: DType, lanes: int, r: str) -> str:
        """Emit the reduction of the lanes of a register to a scalar.

        An even number of lanes is halved; an odd number is combined one by one; bools are reduced by an intrinsic.
        """
        if d is dtypes.bool and lanes > 1:
            name = f"@llvm.vector.reduce.{'and' if op == 'MUL' else 'or'}.v{lanes}i1"
            self.declares.add(f"declare i1 {name}(<{lanes} x i1>)")
            return self.emit(f"call i1 {name}(<{lanes} x i1> {r})")
        while lanes > 1:
            if lanes % 2:
                xs = [self.emit(f"extractelement {type_name(d, lanes)} {r}, i64 {i}") for i in range(lanes)]
                acc = xs[0]
                for x in xs[1:]:
                    acc = self.combine(op, d, 1, acc, x)
                return acc
            half = lanes // 2
            a, b = (self.shuffle(r, d, lanes, range(start, start + half)) for start in (0, half))
            if half == 1:
                a, b = (self.emit(f"extractelement <1 x {type_name(d)}> {x}, i64 0") for x in (a, b))
            r, lanes = self.combine(op, d, half, a, b), half
        return r


__all__ = ["ElementwiseRenderer"]
