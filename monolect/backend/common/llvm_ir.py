"""LINEAR programs as LLVM IR text. Vectors stay vectors, accumulators become SSA values, nothing is left to IR passes.

A value of shape (6, 4, 16) is a list of 24 `<16 x float>`: the last axis is the vector, the others are counted out here.
Loops are emitted bottom-tested where the bound is known to be at least one. REG buffers never touch memory: the renderer
carries their current values through phis. Addresses are one scalar part plus constant offsets, taken from the normal form
of the index.

It knows nothing of a kernel's meaning and chooses nothing: what it is given is what it writes.
Kernel signature: `void name(ptr args, i64 thread)`, args being 8-byte slots: buffer addresses, then scalar Variables.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np

from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.ir.bounds import min_max
from monolect.ir.ops import ELEMENTWISE, INVALID, ROWS
from monolect.ir.uop import UOp

_FLOATS = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "bfloat"}
_COMPARE = {
    "CMPLT": ("olt", "lt"), "CMPNE": ("une", "ne"), "CMPGT": ("ogt", "gt"), "CMPGE": ("oge", "ge"),
    "CMPLE": ("ole", "le"), "CMPEQ": ("oeq", "eq"),
}  # fmt: skip
_BINARY = {"XOR": "xor", "OR": "or", "AND": "and"}
VALUES = ELEMENTWISE | {"BITCAST"}
_CALLS = {"SQRT": "sqrt", "TRUNC": "trunc"}
LLVM_NATIVE = frozenset(
    ("RECIP", "TRUNC", "CAST", "ADD", "MUL", "MAX", "MOD", "IDIV", "CMPLT", "CMPNE", "XOR", "OR", "AND", "SHR", "SHL",
     "WHERE", "NEG", "SUB", "DIV", "CMPGT", "CMPGE", "CMPLE", "CMPEQ", "NOT", "SQRT", "MULACC", "BITCAST")
)  # fmt: skip


def type_name(d: DType, lanes: int = 1) -> str:
    """The LLVM type of a value of dtype `d`."""
    if d.is_float:
        t = _FLOATS.get(d.name) or "i8"
    else:
        t = "i1" if d is dtypes.bool else "i64" if d.kind == "x" else f"i{d.bits}"
    return t if lanes == 1 else f"<{lanes} x {t}>"


def memory_type(d: DType, lanes: int = 1) -> str:
    """The type in memory: a bool is a byte."""
    return type_name(dtypes.uint8 if d is dtypes.bool else d, lanes)


def literal(value: Any, d: DType) -> str:
    """A scalar constant."""
    if value is INVALID:
        return "zeroinitializer" if not d.is_float else "0.0"
    if d is dtypes.bool:
        return "true" if value else "false"
    if not d.is_float:
        return str(int(value))
    if d is dtypes.float16:
        return "0xH" + struct.pack(">e", value).hex().upper()
    if d is dtypes.bfloat16:
        return "0xR" + struct.pack(">f", value)[:2].hex().upper()
    return "0x" + struct.pack(">d", value).hex().upper()


def const_value(u: UOp, memo: dict[UOp, Any]) -> Any:
    """The NumPy value of a subgraph of constants, or None."""
    if u in memo:
        return memo[u]
    out = None
    if u.op == "CONST":
        out = None if u.arg[0] is INVALID or u.dtype.is_float else np.array(u.arg[0], _np(u.dtype))
    elif u.op in ("STACK", "RESHAPE", "EXPAND") or (u.op in ELEMENTWISE and ROWS[u.op].meaning):
        srcs = [const_value(s, memo) for s in (u.src if u.op != "RESHAPE" and u.op != "EXPAND" else u.src[:1])]
        if u.src and all(s is not None for s in srcs) and not u.dtype.is_float:
            if u.op == "STACK":
                out = np.stack(srcs)
            elif u.op == "RESHAPE":
                out = srcs[0].reshape(u.shape)
            elif u.op == "EXPAND":
                out = np.broadcast_to(srcs[0], u.shape)
            else:
                out = np.asarray(ROWS[u.op].meaning(u.src[-1].dtype, *srcs))  # type: ignore[misc]
    memo[u] = out
    return out


def _np(d: DType) -> Any:
    return np.int64 if d.kind == "x" else d.numpy


class Value:
    """The registers of one shaped value: `regs` in row-major order of shape[:-1], each with shape[-1] lanes."""

    __slots__ = ("lanes", "lead", "regs")

    def __init__(self, shape: tuple, regs: list[str]):
        self.lanes = shape[-1] if shape else 1
        self.lead = shape[:-1]
        self.regs = regs


def n_regs(shape: tuple) -> int:
    return prod(shape[:-1]) if shape else 1


class Renderer:
    """One function."""

    def __init__(self, linear: UOp, name: str):
        self.program = linear.src
        self.name = name
        self.lines: list[str] = []
        self.vals: dict[UOp, Value] = {}
        self.splats: list[dict[tuple, str]] = [{}]
        self.regs: dict[int, list[str]] = {}
        self.consts: dict[UOp, Any] = {}
        self.declares: set[str] = set()
        self.n = 0
        self.block = "entry"
        self.loops: list[tuple] = []
        self.dummy: str | None = None
        self.stored = self._stored_in_loops()

    # ---- plumbing ----------------------------------------------------------------------------------------------------
    def emit(self, text: str) -> str:
        """Append an instruction that defines a new register."""
        self.n += 1
        r = f"%v{self.n}"
        self.lines.append(f"  {r} = {text}")
        return r

    def _stored_in_loops(self) -> dict[UOp, list[UOp]]:
        """RANGE -> the REG buffers stored inside its loop."""
        out: dict[UOp, list[UOp]] = {}
        open_: list[UOp] = []
        for u in self.program:
            if u.op == "RANGE":
                open_.append(u)
                out[u] = []
            elif u.op == "END":
                open_.pop()
            elif u.op == "STORE" and (b := _register(u.src[0])) is not None:
                for r in open_:
                    if b not in out[r]:
                        out[r].append(b)
        return out

    def render(self) -> str:
        for u in self.program:
            self.instruction(u)
        body = "\n".join(self.lines)
        head = f"define void @{self.name}(ptr %args, i64 %thread) #0 {{\nentry:\n  %dummy = alloca [64 x i8], align 64\n"
        return f"{head}{body}\n  ret void\n}}\n"

    def instruction(self, u: UOp) -> None:
        op = u.op
        f = getattr(self, "_" + op.lower(), None)
        if f is not None:
            f(u)
        elif op in VALUES:
            if self._skippable(u):
                return
            self.vals[u] = self.elementwise(u)
        elif op not in ("CONST", "STACK", "INDEX", "AFTER", "BUFFER", "GROUP", "RESHAPE", "EXPAND"):
            raise InternalError(f"the LLVM renderer has no row for {op}")

    def _skippable(self, u: UOp) -> bool:
        """Shaped index arithmetic is folded into addresses; it is rendered only where it is used as data."""
        return u.shape != () and (u.dtype.kind == "x" or const_value(u, self.consts) is not None)

    # ---- values ------------------------------------------------------------------------------------------------------
    def value(self, u: UOp) -> Value:
        v = self.vals.get(u)
        if v is None:
            v = self._lazy(u)
            if u.op == "CONST":
                self.vals[u] = v
        return v

    def _lazy(self, u: UOp) -> Value:
        if u.op == "CONST":
            return Value((), [literal(u.arg[0], u.dtype)])
        if u.op == "AFTER":
            return self.value(u.src[0])
        c = const_value(u, self.consts)
        if c is not None:
            rows = np.broadcast_to(c, u.shape).reshape(n_regs(u.shape), -1)
            return Value(u.shape, [self._const_vector(row, u.dtype) for row in rows])
        if u.op in ("RESHAPE", "EXPAND"):
            return self._reshape(u)
        if u.op == "STACK":
            return self._stack_value(u)
        if u.op in VALUES:
            return self.elementwise(u)
        raise InternalError(f"the LLVM renderer cannot read the value of {u.op}")

    def _const_vector(self, row: Any, d: DType) -> str:
        if len(row) == 1:
            return literal(row[0].item(), d)
        t = type_name(d)
        return "<" + ", ".join(f"{t} {literal(x.item(), d)}" for x in row) + ">"

    def _reshape(self, u: UOp) -> Value:
        x = u.src[0]
        v = self.value(x)
        if u.op == "EXPAND":
            return Value(u.shape, self.broadcast(x, u.shape))
        if prod(x.shape) == 1 or _squeeze(x.shape[:-1]) == _squeeze(u.shape[:-1]) and x.shape[-1:] == u.shape[-1:]:
            return Value(u.shape, v.regs)
        lanes = [self._lane(x, v, i) for i in range(prod(x.shape))]
        return self._from_scalars(lanes, u.shape, u.dtype)

    def _stack_value(self, u: UOp) -> Value:
        lanes = [self._lane(s, self.value(s), i) for s in u.src for i in range(prod(s.shape))]
        return self._from_scalars(lanes, u.shape, u.dtype)

    def _lane(self, u: UOp, v: Value, i: int) -> str:
        if v.lanes == 1:
            return v.regs[i]
        t = type_name(u.dtype, v.lanes)
        return self.emit(f"extractelement {t} {v.regs[i // v.lanes]}, i64 {i % v.lanes}")

    def _from_scalars(self, xs: list[str], shape: tuple, d: DType) -> Value:
        lanes = shape[-1] if shape else 1
        if lanes == 1:
            return Value(shape, xs)
        t, regs = type_name(d), []
        for k in range(0, len(xs), lanes):
            acc = "poison"
            for j in range(lanes):
                acc = self.emit(f"insertelement <{lanes} x {t}> {acc}, {t} {xs[k + j]}, i64 {j}")
            regs.append(acc)
        return Value(shape, regs)

    def broadcast(self, u: UOp, shape: tuple) -> list[str]:
        """The registers of `u`, repeated to `shape`."""
        v = self.value(u)
        if u.shape == shape:
            return v.regs
        lanes = shape[-1] if shape else 1
        lead = shape[:-1]
        regs = v.regs if v.lanes == lanes else [self.splat(r, u.dtype, lanes) for r in v.regs]
        if v.lead == lead:
            return regs
        if len(regs) == 1:
            return regs * prod(lead)
        at = np.arange(len(regs)).reshape((1,) * (len(lead) - len(v.lead)) + v.lead)
        return [regs[i] for i in np.broadcast_to(at, lead).ravel().tolist()]

    def splat(self, r: str, d: DType, lanes: int) -> str:
        key = (r, d.name, lanes)
        for scope in self.splats:
            if key in scope:
                return scope[key]
        t = type_name(d)
        if r[0] != "%":
            out = f"splat ({t} {r})"
        else:
            one = self.emit(f"insertelement <{lanes} x {t}> poison, {t} {r}, i64 0")
            out = self.emit(
                f"shufflevector <{lanes} x {t}> {one}, <{lanes} x {t}> poison, <{lanes} x i32> zeroinitializer"
            )
        self.splats[-1][key] = out
        return out

    # ---- elementwise -------------------------------------------------------------------------------------------------
    def elementwise(self, u: UOp) -> Value:
        lanes = u.shape[-1] if u.shape else 1
        if u.op == "CMPLT" and u.shape != () and u.src[0].dtype.kind == "x":
            fast = self._lane_bound(u)
            if fast is not None:
                return fast
        cols = [self.broadcast(s, u.shape) for s in u.src]
        f = getattr(self, "op_" + u.op.lower(), None)
        if f is None:
            f = self._op
        return Value(u.shape, [f(u, lanes, *row) for row in zip(*cols, strict=True)])

    def _lane_bound(self, u: UOp) -> Value | None:
        """base + constants < bound, compared in 32 bits: one scalar subtraction, one vector comparison."""
        base, offs, dynamic = self.address_parts(u.src[0])
        b = u.src[1]
        if dynamic or b.shape != () or base is None or np.abs(offs).max() > 1 << 20:
            return None
        room = self.emit(f"sub i64 {self.value(b).regs[0]}, {base}")
        self.declares.add("declare i64 @llvm.smax.i64(i64, i64)")
        self.declares.add("declare i64 @llvm.smin.i64(i64, i64)")
        room = self.emit(f"call i64 @llvm.smax.i64(i64 {room}, i64 -2097152)")
        room = self.emit(f"call i64 @llvm.smin.i64(i64 {room}, i64 2097152)")
        room = self.emit(f"trunc i64 {room} to i32")
        lanes = u.shape[-1]
        rows = np.broadcast_to(offs, u.shape).reshape(n_regs(u.shape), -1)
        t = type_name(dtypes.int32, lanes)
        wide = self.splat(room, dtypes.int32, lanes) if lanes > 1 else room
        return Value(
            u.shape, [self.emit(f"icmp slt {t} {self._const_vector(row, dtypes.int32)}, {wide}") for row in rows]
        )

    def _op(self, u: UOp, lanes: int, *x: str) -> str:
        op, d = u.op, u.src[-1].dtype
        t = type_name(d, lanes)
        if op in _COMPARE:
            f, i = _COMPARE[op]
            if d.is_float:
                return self.emit(f"fcmp {f} {t} {x[0]}, {x[1]}")
            sign = "" if i in ("eq", "ne") else "u" if d.is_unsigned else "s"
            return self.emit(f"icmp {sign}{i} {t} {x[0]}, {x[1]}")
        if op in _BINARY:
            return self.emit(f"{_BINARY[op]} {t} {x[0]}, {x[1]}")
        if op in _CALLS:
            return self.call(_CALLS[op], d, lanes, *x)
        raise InternalError(f"the LLVM renderer has no row for {op} of {d.name}")

    def call(self, name: str, d: DType, lanes: int, *x: str) -> str:
        """An LLVM intrinsic overloaded on one type."""
        t = type_name(d, lanes)
        suffix = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}.get(type_name(d), type_name(d))
        full = f"@llvm.{name}." + (f"v{lanes}" if lanes > 1 else "") + suffix
        self.declares.add(f"declare {t} {full}({', '.join([t] * len(x))})")
        return self.emit(f"call {t} {full}({', '.join(f'{t} {a}' for a in x)})")

    def _arith(self, u: UOp, lanes: int, f: str, i: str, b: str, x: tuple[str, ...]) -> str:
        d = u.dtype
        t = type_name(d, lanes)
        return self.emit(f"{f if d.is_float else b if d is dtypes.bool else i} {t} {x[0]}, {x[1]}")

    def op_add(self, u: UOp, lanes: int, *x: str) -> str:
        return self._arith(u, lanes, "fadd", "add", "or", x)

    def op_mul(self, u: UOp, lanes: int, *x: str) -> str:
        return self._arith(u, lanes, "fmul", "mul", "and", x)

    def op_sub(self, u: UOp, lanes: int, *x: str) -> str:
        return self._arith(u, lanes, "fsub", "sub", "xor", x)

    def op_div(self, u: UOp, lanes: int, *x: str) -> str:
        return self.emit(f"fdiv {type_name(u.dtype, lanes)} {x[0]}, {x[1]}")

    def op_recip(self, u: UOp, lanes: int, x: str) -> str:
        one = literal(1.0, u.dtype)
        one = one if lanes == 1 else f"splat ({type_name(u.dtype)} {one})"
        return self.emit(f"fdiv {type_name(u.dtype, lanes)} {one}, {x}")

    def op_neg(self, u: UOp, lanes: int, x: str) -> str:
        t = type_name(u.dtype, lanes)
        return self.emit(f"fneg {t} {x}" if u.dtype.is_float else f"sub {t} zeroinitializer, {x}")

    def op_not(self, u: UOp, lanes: int, x: str) -> str:
        minus = "-1" if lanes == 1 else f"splat ({type_name(u.dtype)} -1)"
        return self.emit(f"xor {type_name(u.dtype, lanes)} {x}, {'true' if minus == '-1' and u.dtype is dtypes.bool else minus}")

    def op_mulacc(self, u: UOp, lanes: int, *x: str) -> str:
        if u.dtype.is_float:
            return self.call("fma", u.dtype, lanes, *x)
        t = type_name(u.dtype, lanes)
        return self.emit(f"add {t} {self.emit(f'mul {t} {x[0]}, {x[1]}')}, {x[2]}")

    def op_max(self, u: UOp, lanes: int, a: str, b: str) -> str:
        d = u.dtype
        t, c = type_name(d, lanes), type_name(dtypes.bool, lanes)
        if d is dtypes.bool:
            return self.emit(f"or {t} {a}, {b}")
        if not d.is_float:
            return self.call("umax" if d.is_unsigned else "smax", d, lanes, a, b)
        if u.src[1].op == "CONST":  # b > a ? b : a keeps a nan in a, and is one instruction
            return self.emit(f"select {c} {self.emit(f'fcmp ogt {t} {b}, {a}')}, {t} {b}, {t} {a}")
        m = self.emit(f"select {c} {self.emit(f'fcmp ogt {t} {a}, {b}')}, {t} {a}, {t} {b}")
        return self.emit(f"select {c} {self.emit(f'fcmp uno {t} {a}, {a}')}, {t} {a}, {t} {m}")

    def op_where(self, u: UOp, lanes: int, c: str, a: str, b: str) -> str:
        t = type_name(u.dtype, lanes)
        return self.emit(f"select {type_name(dtypes.bool, lanes)} {c}, {t} {a}, {t} {b}")

    def _shift(self, u: UOp, lanes: int, x: str, n: str, left: bool) -> str:
        d = u.dtype
        t, b = type_name(d, lanes), type_name(dtypes.bool, lanes)
        how = "shl" if left else "lshr" if d.is_unsigned else "ashr"
        if u.src[1].op == "CONST" and 0 <= u.src[1].arg[0] < d.bits:
            return self.emit(f"{how} {t} {x}, {n}")
        lim = self._splat_const(d.bits - 1, d, lanes)
        far = self.emit(f"icmp ugt {t} {n}, {lim}")
        safe = self.emit(f"select {b} {far}, {t} {lim if not left and not d.is_unsigned else self._splat_const(0, d, lanes)}, {t} {n}")
        out = self.emit(f"{how} {t} {x}, {safe}")
        if not left and not d.is_unsigned:
            return out
        return self.emit(f"select {b} {far}, {t} {self._splat_const(0, d, lanes)}, {t} {out}")

    def _splat_const(self, value: Any, d: DType, lanes: int) -> str:
        return literal(value, d) if lanes == 1 else f"splat ({type_name(d)} {literal(value, d)})"

    def op_shl(self, u: UOp, lanes: int, x: str, n: str) -> str:
        return self._shift(u, lanes, x, n, True)

    def op_shr(self, u: UOp, lanes: int, x: str, n: str) -> str:
        return self._shift(u, lanes, x, n, False)

    def op_idiv(self, u: UOp, lanes: int, a: str, b: str) -> str:
        return self._divide(u, lanes, a, b, "div")

    def op_mod(self, u: UOp, lanes: int, a: str, b: str) -> str:
        return self._divide(u, lanes, a, b, "rem")

    def _divide(self, u: UOp, lanes: int, a: str, b: str, what: str) -> str:
        """Floor division and remainder that never trap: 0 where b is 0, wrapping where b is -1."""
        d, t, c = u.dtype, type_name(u.dtype, lanes), type_name(dtypes.bool, lanes)
        zero, one = self._splat_const(0, d, lanes), self._splat_const(1, d, lanes)
        known = u.src[1].op == "CONST" and u.src[1].arg[0] > 0
        if d.is_unsigned or (known and min_max(u.src[0])[0] >= 0):
            if known:
                return self.emit(f"u{what} {t} {a}, {b}")
            none = self.emit(f"icmp eq {t} {b}, {zero}")
            q = self.emit(f"u{what} {t} {a}, {self.emit(f'select {c} {none}, {t} {one}, {t} {b}')}")
            return self.emit(f"select {c} {none}, {t} {zero}, {t} {q}")
        minus = self._splat_const(-1, d, lanes)
        bad = self.emit(f"or {c} {self.emit(f'icmp eq {t} {b}, {zero}')}, {self.emit(f'icmp eq {t} {b}, {minus}')}")
        safe = self.emit(f"select {c} {bad}, {t} {one}, {t} {b}")
        r = self.emit(f"srem {t} {a}, {safe}")
        off = self.emit(f"icmp slt {t} {self.emit(f'xor {t} {r}, {safe}')}, {zero}")
        fix = self.emit(f"and {c} {off}, {self.emit(f'icmp ne {t} {r}, {zero}')}")
        if what == "rem":
            return self.emit(f"select {c} {fix}, {t} {self.emit(f'add {t} {r}, {safe}')}, {t} {r}")
        q = self.emit(f"sdiv {t} {a}, {safe}")
        q = self.emit(f"select {c} {fix}, {t} {self.emit(f'add {t} {q}, {minus}')}, {t} {q}")
        q = self.emit(f"select {c} {self.emit(f'icmp eq {t} {b}, {minus}')}, {t} {self.emit(f'sub {t} {zero}, {a}')}, {t} {q}")
        return self.emit(f"select {c} {self.emit(f'icmp eq {t} {b}, {zero}')}, {t} {zero}, {t} {q}")

    def op_bitcast(self, u: UOp, lanes: int, x: str) -> str:
        a, b = type_name(u.src[0].dtype, lanes), type_name(u.dtype, lanes)
        return x if a == b else self.emit(f"bitcast {a} {x} to {b}")

    def op_cast(self, u: UOp, lanes: int, x: str) -> str:
        s, d = u.src[0].dtype, u.dtype
        a, b = type_name(s, lanes), type_name(d, lanes)
        if a == b and s.is_float == d.is_float:
            return x
        if d is dtypes.bool:
            return self.emit(f"fcmp une {a} {x}, zeroinitializer" if s.is_float else f"icmp ne {a} {x}, zeroinitializer")
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
        name = "fptoui" if d.is_unsigned else "fptosi"
        a, b = type_name(s, lanes), type_name(d, lanes)
        v = f"v{lanes}" if lanes > 1 else ""
        f = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}[type_name(s)]
        full = f"@llvm.{name}.sat.{v}{type_name(d)}.{v}{f}"
        self.declares.add(f"declare {b} {full}({a})")
        return self.emit(f"call {b} {full}({a} {x})")

    # ---- memory ------------------------------------------------------------------------------------------------------
    def _param(self, u: UOp) -> None:
        slot = self.emit(f"getelementptr inbounds i64, ptr %args, i64 {u.arg.slot}")
        self.vals[u] = Value((), [self.emit(f"load {'ptr' if u.arg.name is None else 'i64'}, ptr {slot}, align 8")])

    def _special(self, u: UOp) -> None:
        self.vals[u] = Value((), ["%thread"])

    def address_parts(self, u: UOp) -> tuple[str | None, Any, list[UOp]]:
        """An index as (scalar base register, constant offsets as an array, shaped terms known only at run time)."""
        offs: Any = np.zeros((), np.int64)
        dynamic: list[UOp] = []
        while u.shape != () or u.op == "CONST":
            if (c := const_value(u, self.consts)) is not None:
                return "0", offs + c, dynamic
            if u.op != "ADD":
                dynamic.append(u)
                return None, offs, dynamic
            r = u.src[1]
            c = const_value(r, self.consts)
            if c is not None:
                offs = offs + c
            else:
                dynamic.append(r)
            u = u.src[0]
        return self.value(u).regs[0], offs, dynamic

    def pointers(self, index: UOp, scale: bool = True) -> tuple[list[tuple[str, int]], bool]:
        """For each register of the indexed value its address and the stride between its lanes: ([(ptr, stride)], ok)."""
        buf, at = index.src[0], index.src[1] if len(index.src) > 1 else None
        while buf.op == "AFTER":
            buf = buf.src[0]
        p, t = self.value(buf).regs[0], memory_type(buf.dtype)
        if at is None:
            return [(p, 0)], True
        base, offs, dynamic = self.address_parts(at)
        if dynamic:
            return [], False
        if base not in (None, "0"):
            p = self._gep(p, t, base)
        shape = index.shape
        rows = np.broadcast_to(offs, shape).reshape(n_regs(shape), -1) if shape else offs.reshape(1, 1)
        out = []
        for row in rows:
            step = int(row[1] - row[0]) if len(row) > 1 else 0
            if len(row) > 2 and (np.diff(row) != step).any():
                return [], False
            out.append((self._gep(p, t, str(int(row[0]))) if row[0] else p, step))
        return out, True

    def _gep(self, p: str, t: str, i: str | None) -> str:
        key = (p, t, i)
        for scope in self.splats:
            if key in scope:
                return scope[key]
        out = self.splats[-1][key] = self.emit(f"getelementptr inbounds {t}, ptr {p}, i64 {i}")
        return out

    def lane_pointers(self, index: UOp) -> list[str]:
        """The address of every element, for indices of any form."""
        buf = index.src[0]
        while buf.op == "AFTER":
            buf = buf.src[0]
        p, t = self.value(buf).regs[0], memory_type(buf.dtype)
        base, offs, dynamic = self.address_parts(index.src[1])
        n = prod(index.shape)
        at = [str(int(o)) for o in np.broadcast_to(offs, index.shape).ravel()]
        if base not in (None, "0"):
            p = self._gep(p, t, base)
        for d in dynamic:
            regs = self.broadcast(d, index.shape)
            v = Value(index.shape, regs)
            lanes = [self._lane(d, v, i) for i in range(n)]
            at = [self.emit(f"add i64 {a}, {b}") if a != "0" else b for a, b in zip(at, lanes, strict=True)]
        return [self._gep(p, t, a) for a in at]

    def _load(self, u: UOp) -> None:
        reg = _register(u.src[0])
        if reg is not None:
            self.vals[u] = Value(u.shape, self.regs[reg.arg.slot])
            return
        index = u.src[0]
        alt, gate = (u.src[1], u.src[2]) if len(u.src) == 3 else (None, None)
        ptrs, ok = self.pointers(index) if index.shape == u.shape else ([], False)
        lanes = u.shape[-1] if u.shape else 1
        ok = ok and all(s in (0, 1, -1) for _, s in ptrs)
        alts = self.broadcast(alt, u.shape) if alt is not None else [""] * n_regs(u.shape)
        gates = self.broadcast(gate, u.shape) if gate is not None and gate.shape else None
        if gate is not None and gates is None and (not ok or lanes > 1):
            gates = self.broadcast(gate, u.shape)
        if not ok:
            self.vals[u] = self._gather(u, index, gates, alt)
            return
        regs = []
        for k, (p, step) in enumerate(ptrs):
            g = gates[k] if gates is not None else self.value(gate).regs[0] if gate is not None else None
            regs.append(self._load_row(u.dtype, p, step, lanes, g, alts[k]))
        self.vals[u] = Value(u.shape, regs)

    def _load_row(self, d: DType, p: str, step: int, lanes: int, gate: str | None, alt: str) -> str:
        t, align = memory_type(d, lanes), d.itemsize
        if lanes == 1:
            if gate is not None:
                p = self.emit(f"select i1 {gate}, ptr {p}, ptr %dummy")
            r = self._from_memory(d, 1, self.emit(f"load {t}, ptr {p}, align {align}"))
            return r if gate is None else self.emit(f"select i1 {gate}, {type_name(d)} {r}, {type_name(d)} {alt}")
        if step == -1:
            p = self._gep(p, memory_type(d), str(1 - lanes))
        if gate is None:
            r = self.emit(f"load {t}, ptr {p}, align {align}")
        else:
            g = self._reverse(gate, dtypes.bool, lanes) if step == -1 else gate
            full = f"@llvm.masked.load.v{lanes}{_suffix(d)}.p0"
            self.declares.add(f"declare {t} {full}(ptr, i32, <{lanes} x i1>, {t})")
            r = self.emit(f"call {t} {full}(ptr {p}, i32 {align}, <{lanes} x i1> {g}, {t} zeroinitializer)")
        r = self._from_memory(d, lanes, r)
        if step == -1:
            r = self._reverse(r, d, lanes)
        return r if gate is None or alt in _ZEROS else self.emit(
            f"select <{lanes} x i1> {gate}, {type_name(d, lanes)} {r}, {type_name(d, lanes)} {alt}"
        )

    def _from_memory(self, d: DType, lanes: int, r: str) -> str:
        return r if d is not dtypes.bool else self.emit(f"icmp ne {memory_type(d, lanes)} {r}, zeroinitializer")

    def _reverse(self, r: str, d: DType, lanes: int) -> str:
        t = type_name(d, lanes)
        mask = ", ".join(f"i32 {i}" for i in reversed(range(lanes)))
        return self.emit(f"shufflevector {t} {r}, {t} poison, <{lanes} x i32> <{mask}>")

    def _gather(self, u: UOp, index: UOp, gates: list[str] | None, alt: UOp | None) -> Value:
        d, out = u.dtype, []
        g = Value(u.shape, gates) if gates is not None else None
        alts = Value(u.shape, self.broadcast(alt, u.shape)) if alt is not None else None
        ptrs = self.lane_pointers(index)
        ptrs = [ptrs[i] for i in np.broadcast_to(np.arange(len(ptrs)).reshape(index.shape), u.shape).ravel().tolist()]
        memo: dict[tuple, str] = {}
        for i, p in enumerate(ptrs):
            gate = self._lane(_bool_like(u), g, i) if g is not None else None
            key = (p, gate)
            if key not in memo:
                a = self._lane(u, alts, i) if alts is not None else ""
                memo[key] = self._load_row(d, p, 0, 1, gate, a)
            out.append(memo[key])
        return self._from_scalars(out, u.shape, d)

    def _store(self, u: UOp) -> None:
        target, val = u.src[0], u.src[1]
        reg = _register(target)
        if reg is not None:
            self.regs[reg.arg.slot] = list(self.broadcast(val, reg.shape))
            return
        shape = target.shape if len(target.shape) >= len(val.shape) else val.shape
        gate = u.src[2] if len(u.src) == 3 else None
        if gate is not None and gate.shape and prod(shape) == 1:
            shape = gate.shape
        regs, d = self.broadcast(val, shape), val.dtype
        lanes = shape[-1] if shape else 1
        ptrs, ok = self.pointers(target) if target.shape == shape else ([], False)
        gates = self.broadcast(gate, shape) if gate is not None else [None] * len(regs)
        if not ok or any(s != (1 if lanes > 1 else s) for _, s in ptrs):
            self._scatter(target, shape, d, regs, gates)
            return
        for (p, _), r, g in zip(ptrs, regs, gates, strict=True):
            self._store_row(d, p, lanes, r, g)

    def _store_row(self, d: DType, p: str, lanes: int, r: str, gate: str | None) -> None:
        t, align = memory_type(d, lanes), d.itemsize
        if d is dtypes.bool:
            r = self.emit(f"zext {type_name(d, lanes)} {r} to {t}")
        if gate is None:
            self.lines.append(f"  store {t} {r}, ptr {p}, align {align}")
        elif lanes == 1:
            p = self.emit(f"select i1 {gate}, ptr {p}, ptr %dummy")
            self.lines.append(f"  store {t} {r}, ptr {p}, align {align}")
        else:
            full = f"@llvm.masked.store.v{lanes}{_suffix(d)}.p0"
            self.declares.add(f"declare void {full}({t}, ptr, i32, <{lanes} x i1>)")
            self.lines.append(f"  call void {full}({t} {r}, ptr {p}, i32 {align}, <{lanes} x i1> {gate})")

    def _scatter(self, target: UOp, shape: tuple, d: DType, regs: list[str], gates: list) -> None:
        v, g = Value(shape, regs), Value(shape, gates)
        like, cond = _Like(d), _Like(dtypes.bool)
        ptrs = self.lane_pointers(target)
        ptrs = ptrs * (prod(shape) // len(ptrs))
        for i, p in enumerate(ptrs):
            gate = self._lane(cond, g, i) if gates[0] is not None else None  # type: ignore[arg-type]
            self._store_row(d, p, 1, self._lane(like, v, i), gate)  # type: ignore[arg-type]

    def _atomicadd(self, u: UOp) -> None:
        """One thread owns the kernel's whole target here: load, add, store, element after element."""
        target, val = u.src[0], u.src[1]
        gate = u.src[2] if len(u.src) == 3 else None
        shape = np.broadcast_shapes(target.shape, val.shape, gate.shape if gate is not None else ())
        regs, d = self.broadcast(val, shape), val.dtype
        lanes = shape[-1] if shape else 1
        ptrs, ok = self.pointers(target) if target.shape == shape else ([], False)
        gates = self.broadcast(gate, shape) if gate is not None else [None] * len(regs)
        add = "fadd" if d.is_float else "or" if d is dtypes.bool else "add"
        if ok and all(s == 1 or lanes == 1 for _, s in ptrs):
            zero = self._splat_const(0, d, lanes)
            for (p, _), r, g in zip(ptrs, regs, gates, strict=True):
                old = self._load_row(d, p, 1, lanes, g, zero)
                self._store_row(d, p, lanes, self.emit(f"{add} {type_name(d, lanes)} {old}, {r}"), g)
            return
        v, g = Value(shape, regs), Value(shape, gates)
        ptrs1 = self.lane_pointers(target)
        for i, p in enumerate(ptrs1 * (prod(shape) // len(ptrs1))):
            one = self._lane(_Like(dtypes.bool), g, i) if gate is not None else None  # type: ignore[arg-type]
            old = self._load_row(d, p, 0, 1, one, literal(0, d))
            new = self.emit(f"{add} {type_name(d)} {old}, {self._lane(_Like(d), v, i)}")  # type: ignore[arg-type]
            self._store_row(d, p, 1, new, one)

    def _reduce(self, u: UOp) -> None:
        """REDUCE over axes of a shaped value: a tree over registers, then over lanes."""
        x, (op, axes) = u.src[0], u.arg
        v = self.value(x)
        d, lanes = u.dtype, v.lanes
        rank = len(x.shape)
        grid: Any = np.array(v.regs, dtype=object).reshape(x.shape[:-1])
        for a in sorted((a for a in axes if a < rank - 1), reverse=True):
            rows = [np.take(grid, i, axis=a) for i in range(grid.shape[a])]
            while len(rows) > 1:
                half = [
                    np.frompyfunc(lambda p, q: self.combine(op, d, lanes, p, q), 2, 1)(rows[i], rows[i + 1])
                    for i in range(0, len(rows) - 1, 2)
                ]
                rows = half + rows[len(rows) - len(rows) % 2 :]
            grid = np.expand_dims(np.array(rows[0], dtype=object), a)
        regs = [str(r) for r in grid.ravel()]
        if rank - 1 in axes and lanes > 1:
            regs = [self._horizontal(op, d, lanes, r) for r in regs]
        self.vals[u] = Value(u.shape, regs)

    def _horizontal(self, op: str, d: DType, lanes: int, r: str) -> str:
        while lanes > 1:
            if lanes % 2:
                xs = [self.emit(f"extractelement {type_name(d, lanes)} {r}, i64 {i}") for i in range(lanes)]
                acc = xs[0]
                for x in xs[1:]:
                    acc = self.combine(op, d, 1, acc, x)
                return acc
            t, half = type_name(d, lanes), lanes // 2
            lo = ", ".join(f"i32 {i}" for i in range(half))
            hi = ", ".join(f"i32 {i + half}" for i in range(half))
            a = self.emit(f"shufflevector {t} {r}, {t} poison, <{half} x i32> <{lo}>")
            b = self.emit(f"shufflevector {t} {r}, {t} poison, <{half} x i32> <{hi}>")
            if half == 1:
                a = self.emit(f"extractelement {type_name(d, 1) if half > 1 else f'<1 x {type_name(d)}>'} {a}, i64 0")
                b = self.emit(f"extractelement <1 x {type_name(d)}> {b}, i64 0")
            r, lanes = self.combine(op, d, half, a, b), half
        return r

    def combine(self, op: str, d: DType, lanes: int, a: str, b: str) -> str:
        """One step of a reduction."""
        t = type_name(d, lanes)
        if op == "MAX":
            return self.op_max(_Like(d), lanes, a, b)  # type: ignore[arg-type]
        f, i, z = ("fadd", "add", "or") if op == "ADD" else ("fmul", "mul", "and")
        return self.emit(f"{f if d.is_float else z if d is dtypes.bool else i} {t} {a}, {b}")

    # ---- loops -------------------------------------------------------------------------------------------------------
    def _range(self, u: UOp) -> None:
        self.n += 1
        k = self.n
        bound = self.value(u.src[0]).regs[0]
        safe = min_max(u.src[0])[0] >= 1
        carried = [b for b in self.stored[u] if b.arg.slot in self.regs]
        before, head = self.block, f"loop{k}"
        self.lines += [f"  br label %{head}", f"{head}:"]
        phis = [(b, [f"%p{k}_{b.arg.slot}_{j}" for j in range(len(self.regs[b.arg.slot]))]) for b in carried]
        mark = len(self.lines)
        self.lines += [""]  # the phis, written at END
        starts = {b.arg.slot: self.regs[b.arg.slot] for b in carried}
        for b, names in phis:
            self.regs[b.arg.slot] = names
        if not safe:
            self.lines += [
                f"  %c{k} = icmp slt i64 %i{k}, {bound}",
                f"  br i1 %c{k}, label %body{k}, label %done{k}",
                f"body{k}:",
            ]
        self.block = head if safe else f"body{k}"
        self.vals[u] = Value((), [f"%i{k}"])
        self.splats.append({})
        self.loops.append((u, k, before, head, mark, phis, starts, bound, safe))

    def _end(self, u: UOp) -> None:
        r, k, before, head, mark, phis, starts, bound, safe = self.loops.pop()
        self.splats.pop()
        latch = self.block
        self.lines.append(f"  %n{k} = add nuw nsw i64 %i{k}, 1")
        text = [f"  %i{k} = phi i64 [ 0, %{before} ], [ %n{k}, %{latch} ]"]
        for b, names in phis:
            t = type_name(b.dtype, b.shape[-1] if b.shape else 1)
            for name, start, nxt in zip(names, starts[b.arg.slot], self.regs[b.arg.slot], strict=True):
                text.append(f"  {name} = phi {t} [ {start}, %{before} ], [ {nxt}, %{latch} ]")
        self.lines[mark] = "\n".join(text)
        if safe:
            self.lines += [f"  %c{k} = icmp slt i64 %n{k}, {bound}", f"  br i1 %c{k}, label %{head}, label %done{k}"]
        else:
            self.lines.append(f"  br label %{head}")
            for b, names in phis:
                self.regs[b.arg.slot] = names
        self.lines.append(f"done{k}:")
        self.block = f"done{k}"


_ZEROS = ("false", "0", "zeroinitializer", "0x0000000000000000", "splat (float 0x0000000000000000)",
          "splat (double 0x0000000000000000)", "splat (i32 0)", "splat (i64 0)", "splat (i1 false)")  # fmt: skip


class _Like:
    """Stands for a node where only its dtype is asked."""

    def __init__(self, d: DType):
        self.dtype = d
        self.src = (self, self)
        self.op = ""


def _bool_like(u: UOp) -> Any:
    return _Like(dtypes.bool)


def _suffix(d: DType) -> str:
    if d.is_float and d.name in _FLOATS:
        return {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}[_FLOATS[d.name]]
    return memory_type(d)


def _squeeze(shape: tuple) -> tuple:
    return tuple(n for n in shape if n != 1)


def _register(u: UOp) -> UOp | None:
    """The REG buffer behind `u`, or None."""
    while u.op == "AFTER":
        u = u.src[0]
    return u if u.op == "BUFFER" and u.arg.addrspace == "REG" else None


def render_module(kernels: list[tuple[str, UOp]]) -> str:
    """One LLVM module with a function for each (name, LINEAR)."""
    parts, declares = [], set()
    for name, linear in kernels:
        r = Renderer(linear, name)
        parts.append(r.render())
        declares |= r.declares
    return "\n".join([*sorted(declares), *parts, "attributes #0 = { nounwind }", ""])
