"""Represent shaped values as LLVM registers: read, broadcast, reshape and split them.

A value of shape (6, 4, 16) is a list of 24 `<16 x float>`: the last axis is the lanes, the others number the registers.

What it does not do: arithmetic and memory, which `elementwise` and `memory` add.
Invariant: a register is read only where its definition dominates. So registers that are computed once and reused (a
splat, an address) are memoized by loop: `shared` has one table for each open loop, the innermost last.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from monolect.backend.common.llvm.shuffle import transpose
from monolect.backend.common.llvm.types import (
    Value,
    lane_list,
    literal,
    n_regs,
    type_name,
    vector_literal,
)
from monolect.backend.common.shaped import address_parts, const_value, picked_elements
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.uop import UOp

VALUES = ELEMENTWISE | {"BITCAST", "CUSTOM"}


class ValueRenderer:
    """The lines of a function that is being rendered, and the registers of its values."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.n = 0  # registers and loops numbered so far
        self.declares: set[str] = set()
        self.vals: dict[UOp, Value] = {}
        self.shared: list[dict[tuple, str]] = [{}]  # memoized registers; see the module docstring
        self.splats: set[str] = set()  # registers with one value in all lanes
        self.consts: dict[UOp, Any] = {}  # memo of `const_value`

    def emit(self, text: str) -> str:
        """Append an instruction that defines a new register, and return the register."""
        self.n += 1
        r = f"%v{self.n}"
        self.lines.append(f"  {r} = {text}")
        return r

    def find_shared(self, key: tuple) -> str | None:
        """Return the register that an open loop memoizes under `key`, or None."""
        for scope in self.shared:
            if key in scope:
                return scope[key]
        return None

    # ---- reading -----------------------------------------------------------------------------------------------------
    def value(self, u: UOp) -> Value:
        """Return the registers of `u`. A node without an instruction of its own is rendered here, at each use."""
        v = self.vals.get(u)
        if v is None:
            v = self._render_at_use(u)
            if u.op == "CONST":
                self.vals[u] = v
        return v

    def _render_at_use(self, u: UOp) -> Value:
        if u.op == "CONST":
            return Value((), [literal(u.arg[0], u.dtype)])
        if u.op == "AFTER":
            return self.value(u.src[0])
        c = const_value(u, self.consts)
        if c is not None:
            rows = np.broadcast_to(c, u.shape).reshape(n_regs(u.shape), -1)
            return Value(u.shape, [vector_literal(row, u.dtype) for row in rows])
        if u.op in ("RESHAPE", "EXPAND"):
            return self.reshape(u)
        if u.op == "STACK":
            return self._stack(u)
        if u.op == "INDEX":
            return self.pick(u)
        if u.op in VALUES:
            return self.elementwise(u)
        raise InternalError(f"the LLVM renderer cannot read the value of {u.op}")

    def elementwise(self, u: UOp) -> Value:
        """Render an elementwise op register by register; `elementwise` overrides this."""
        raise NotImplementedError

    def is_index_arithmetic(self, u: UOp) -> bool:
        """Whether `u` is shaped index arithmetic, which is folded into addresses and rendered only if used as data."""
        return u.shape != () and (u.dtype.kind == "x" or const_value(u, self.consts) is not None)

    def address_parts(self, u: UOp) -> tuple[str, Any, list[UOp]]:
        """Split an index into (scalar base register, constant offsets as an array, shaped terms known at run time)."""
        base, offs, dynamic = address_parts(u, self.consts)
        return self.value(base).regs[0] if base is not None else "0", offs, dynamic

    # ---- shape -------------------------------------------------------------------------------------------------------
    def reshape(self, u: UOp) -> Value:
        """Render RESHAPE or EXPAND: reuse the registers if the last axis stays, or else rebuild them lane by lane."""
        x = u.src[0]
        if is_interleaving(u):
            rows = self.value(x.src[0])
            return Value(u.shape, [self.interleave(rows.regs, x.dtype, rows.lanes)])
        v = self.value(x)
        if u.op == "EXPAND":
            return Value(u.shape, self.broadcast(x, u.shape))
        if prod(x.shape) == 1 or x.shape[-1:] == u.shape[-1:]:
            return Value(u.shape, v.regs)
        return self.join([self.lane(x.dtype, v, i) for i in range(prod(x.shape))], u.shape, u.dtype)

    def permute(self, u: UOp) -> Value:
        """Render PERMUTE: reorder the registers if the last axis stays last, or else transpose blocks of them."""
        x, last = u.src[0], len(u.shape) - 1
        v, k = self.value(x), u.arg[-1]
        at = np.arange(n_regs(x.shape)).reshape(x.shape[:-1])
        if k == last:
            return Value(u.shape, [v.regs[i] for i in at.transpose(u.arg[:-1]).ravel()])
        regs, t = v.regs, type_name(x.dtype)
        if x.dtype is dtypes.bool:
            t = "i8"
            regs = [self.emit(f"zext {type_name(x.dtype, v.lanes)} {r} to {_vector(t, v.lanes)}") for r in regs]
        blocks = np.moveaxis(at, k, -1)  # the outer axes, and then the one that becomes the lanes
        out: Any = np.empty((*blocks.shape[:-1], v.lanes), object)
        for i in np.ndindex(blocks.shape[:-1]):
            out[i] = transpose(self.emit, [regs[j] for j in blocks[i]], t, v.lanes, x.dtype.itemsize)
        axes = [a for a in range(last) if a != k] + [last]
        regs = out.transpose([axes.index(a) for a in u.arg[:-1]]).ravel().tolist()
        if x.dtype is dtypes.bool:
            lanes = u.shape[-1]
            regs = [self.emit(f"trunc {_vector(t, lanes)} {r} to {type_name(x.dtype, lanes)}") for r in regs]
        return Value(u.shape, regs)

    def shrink(self, u: UOp) -> Value:
        """Render SHRINK: select registers, and lanes of them."""
        x, (*lead, lanes) = u.src[0], u.shape
        v, (*before, first) = self.value(x), u.src[1].sizes
        window = tuple(slice(o, o + n) for o, n in zip(before, lead, strict=True))
        regs = [v.regs[i] for i in np.arange(n_regs(x.shape)).reshape(x.shape[:-1])[window].ravel()]
        if lanes == 1 != v.lanes:
            t = type_name(x.dtype, v.lanes)
            regs = [self.emit(f"extractelement {t} {r}, i64 {first}") for r in regs]
        elif lanes != v.lanes:
            regs = [self.shuffle(r, x.dtype, v.lanes, range(first, first + lanes)) for r in regs]
        return Value(u.shape, regs)

    def pick(self, u: UOp) -> Value:
        """Render an INDEX of a value by constants: select registers, and lanes of them."""
        x, v = u.src[0], self.value(u.src[0])
        rows = picked_elements(u, self.consts).reshape(-1, u.shape[-1] if u.shape else 1).tolist()
        return Value(u.shape, [self._picked(x.dtype, v, row) for row in rows])

    def _picked(self, d: DType, v: Value, row: list[int]) -> str:
        """Return a register of the elements of `v` that `row` numbers in row-major order."""
        if len(row) == 1:
            return self.lane(d, v, row[0])
        if v.lanes == 1 or len({i // v.lanes for i in row}) > 1:
            return self.join([self.lane(d, v, i) for i in row], (len(row),), d).regs[0]
        r, lanes = v.regs[row[0] // v.lanes], [i % v.lanes for i in row]
        return r if lanes == list(range(v.lanes)) else self.shuffle(r, d, v.lanes, lanes)

    def _stack(self, u: UOp) -> Value:
        if u.shape[1:]:  # of whole registers
            return Value(u.shape, [r for s in u.src for r in self.value(s).regs])
        lanes = [self.lane(s.dtype, self.value(s), i) for s in u.src for i in range(prod(s.shape))]
        return self.join(lanes, u.shape, u.dtype)

    def broadcast(self, u: UOp, shape: tuple) -> list[str]:
        """Return the registers of `u` broadcast to `shape`."""
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

    # ---- lanes -------------------------------------------------------------------------------------------------------
    def splat(self, r: str, d: DType, lanes: int) -> str:
        """Return a register, or a constant, with the scalar `r` in every lane."""
        key = (r, d.name, lanes)
        found = self.find_shared(key)
        if found is not None:
            return found
        t = type_name(d)
        if r[0] != "%":
            out = f"splat ({t} {r})"
        else:
            one = self.emit(f"insertelement <{lanes} x {t}> poison, {t} {r}, i64 0")
            out = self.emit(
                f"shufflevector <{lanes} x {t}> {one}, <{lanes} x {t}> poison, <{lanes} x i32> zeroinitializer"
            )
        self.shared[-1][key] = out
        self.splats.add(out)
        return out

    def lane(self, d: DType, v: Value, i: int) -> str:
        """Return the scalar element `i`, in row-major order, of a value of dtype `d`."""
        if v.lanes == 1:
            return v.regs[i]
        t = type_name(d, v.lanes)
        return self.emit(f"extractelement {t} {v.regs[i // v.lanes]}, i64 {i % v.lanes}")

    def join(self, xs: list[str], shape: tuple, d: DType) -> Value:
        """Return a value of `shape` with the scalars `xs` as elements in row-major order."""
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

    def interleave(self, regs: list[str], d: DType, lanes: int) -> str:
        """Return one register with lane 0 of each register, then lane 1 of each, and so on.

        The number of registers is a power of two.
        """
        while len(regs) > 1:
            half, t = len(regs) // 2, type_name(d, lanes)
            pick = lane_list([i // 2 + lanes * (i % 2) for i in range(2 * lanes)])
            pairs = zip(regs[:half], regs[half:], strict=True)
            regs = [self.emit(f"shufflevector {t} {a}, {t} {b}, {pick}") for a, b in pairs]
            lanes *= 2
        return regs[0]

    def concatenate(self, regs: list[str], d: DType, lanes: int) -> str:
        """Return one register with the lanes of all registers, one register after the other.

        The number of registers is a power of two.
        """
        while len(regs) > 1:
            t, pick = type_name(d, lanes), lane_list(range(2 * lanes))
            pairs = zip(regs[::2], regs[1::2], strict=True)
            regs = [self.emit(f"shufflevector {t} {a}, {t} {b}, {pick}") for a, b in pairs]
            lanes *= 2
        return regs[0]

    def shuffle(self, r: str, d: DType, lanes: int, pick: Any) -> str:
        """Return a register of the lanes of `r` that `pick` numbers; -1 is any lane."""
        t = type_name(d, lanes)
        return self.emit(f"shufflevector {t} {r}, {t} poison, {lane_list(pick)}")


def is_interleaving(u: UOp) -> bool:
    """Whether `u` flattens the transpose of 2, 4 or 8 rows, which is one register with the rows interleaved."""
    if u.op != "RESHAPE" or len(u.shape) != 1 or u.src[0].op != "PERMUTE" or u.src[0].dtype is dtypes.bool:
        return False
    rows = u.src[0].src[0].shape
    n = rows[0]
    return len(rows) == 2 and u.src[0].arg == (1, 0) and n & (n - 1) == 0 and 1 < n <= 8


def _vector(t: str, lanes: int) -> str:
    return t if lanes == 1 else f"<{lanes} x {t}>"


__all__ = ["VALUES", "ValueRenderer", "is_interleaving"]
