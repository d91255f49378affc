"""Render LINEAR programs as source text of a C-like language: C, CUDA, HIP, Metal, OpenCL, WGSL.

This module walks over a program, its loops and memory. `language` is the table of a language, `values` moves elements,
`ops` has one method an op. Accumulators (REG buffers) are variables. Local memory belongs to the workgroup, or on a CPU
to the thread.

It makes no decision on a kernel: it writes the program that it gets.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from monolect.backend.common.clike.language import Language
from monolect.backend.common.clike.ops import C_NATIVE, Ops
from monolect.backend.common.clike.values import MOVES, VALUES, Value
from monolect.backend.common.launch import align_bytes, launch_sizes
from monolect.backend.common.shaped import const_value, register_of, strip_after
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.ir.ops import ParamArg
from monolect.ir.uop import UOp, node, shape_source, toposort
from monolect.rules.legalize import NARROW, narrow, widen

_AT_USE = frozenset(("CONST", "STACK", "INDEX", "AFTER", "GROUP", *MOVES))  # ops rendered at each use
OPEN, CLOSED = "1", "0"  # texts of constant gates
ADD_ALONE = "{e} = {sum}"  # ATOMICADD of a dtype without atomics: the optimizer lets only one lane add to an element


class Position(NamedTuple):
    """The elements in memory of one variable of an access."""

    buffer: str
    start: str  # index of its first element
    step: int  # from one element to the next


class Renderer(Ops):
    """Renders one kernel as a function of a C-like language."""

    def __init__(self, language: Language, linear: UOp, name: str):
        super().__init__(language)
        self.program, self.function_name = linear.src, name
        self.buffers: dict[UOp, str] = {}
        self.functions_used: dict[str, None] = {}  # definitions of functions that this one calls
        self.accumulators: dict[int, list[str]] = {}  # slot of a REG buffer -> its variables
        self.params = sorted((u for u in linear.src if u.op == "PARAM"), key=lambda u: u.arg.slot)

    # ---- the function ------------------------------------------------------------------------------------------------
    def render(self) -> str:
        """Return the text of the function."""
        head = self.signature()
        for u in self.program:
            if u.op == "BUFFER":
                self.buffer(u)
        for u in self.program:
            self.instruction(u)
        return "\n".join([head, *self.lines, "}", ""])

    def signature(self) -> str:
        """Return the head of the function, with its parameters."""
        texts = []
        for u in self.params:
            v = self.buffers[u] = f"data{u.arg.slot}" if u.arg.name is None else f"size{u.arg.slot}"
            if u.arg.name is not None:
                self.vals[u] = Value([v], 1)
                texts.append(self.lang.scalar.format(t=self.lang.type(u.dtype), v=v, slot=u.arg.slot))
            else:
                texts.append(self.lang.pointer.format(t=self.lang.stored(u.dtype), v=v, slot=u.arg.slot))
        params = ", ".join([*texts, *self.lang.arguments])
        sides = launch_sizes(self.program)[1]
        block = ", ".join(map(str, sides))
        return self.lang.kernel.format(name=self.function_name, params=params, lanes=prod(sides), block=block)

    def buffer(self, u: UOp) -> None:
        """Declare a LOCAL buffer as an array, or a REG buffer as variables."""
        n, d = prod(u.shape), u.dtype
        if u.arg.addrspace == "LOCAL":
            v = self.buffers[u] = f"local{u.arg.slot}"
            self.local_buffer(u, v, n)
            return
        w = self.width(u.shape)
        names = [f"acc{u.arg.slot}_{i}" for i in range(n // w)]
        for v in names:
            self.line(self.lang.variable.format(t=self.lang.type(d, w), v=v))
        self.accumulators[u.arg.slot] = names

    def local_buffer(self, u: UOp, v: str, n: int) -> None:
        """Declare the LOCAL buffer `u` as an array `v` of `n` elements."""
        self.line(self.lang.local.format(t=self.lang.stored(u.dtype), v=v, n=n, align=align_bytes(self.program)))

    def instruction(self, u: UOp) -> None:
        """Render one node of the program; ops of _AT_USE write nothing here."""
        match u.op:
            case "PARAM" | "BUFFER" | "PREFETCH":
                pass
            case "SPECIAL":
                self.vals[u] = Value([self.emit(u.dtype, 1, self.special(u))], 1)
            case "RANGE":
                self.n += 1
                i = f"r{self.n}"  # not i32 and the like, which WGSL has as types
                self.open(self.lang.loop.format(t=self.lang.index, i=i, n=self.scalar(u.src[0])))
                self.vals[u] = Value([i], 1)
            case "IF":
                self.open(f"if ({self.scalar(u.src[0])}) {{")
            case "END" | "ENDIF":
                self.close()
            case "LOAD":
                self.vals[u] = self.load(u)
            case "STORE":
                self.store(u)
            case "ATOMICADD":
                self.atomic_add(u)
            case "REDUCE":
                self.vals[u] = self.reduce(u)
            case "SCAN":
                self.vals[u] = self.scan(u)
            case "SHUFFLE":
                xs = self.elements(u.src[0])
                t = self.lang.type(u.dtype)
                self.vals[u] = self.join([self.shuffled(t, x, u.arg) for x in xs], u.shape, u.dtype)
            case "WMMA":
                self.vals[u] = self.multiply_tiles(u)
            case "BARRIER":
                self.line(self.lang.barrier)
            case op if op in VALUES:
                if not self.is_index_arithmetic(u):
                    self.vals[u] = self.elementwise(u)
            case op if op not in _AT_USE:
                raise InternalError(f"the {self.lang.name} renderer has no row for {op}")

    def open(self, text: str) -> None:
        """Write `text` and open a block."""
        self.line(text)
        self.depth += 1
        self.shared.append({})

    def close(self) -> None:
        """Close the innermost block, and forget its variables."""
        self.depth -= 1
        self.shared.pop()
        self.line("}")

    def special(self, u: UOp) -> str:
        """Return the text of the index of a lane or workgroup that a SPECIAL names."""
        if u.arg not in self.lang.ids:
            raise InternalError(f"{self.lang.name} has no {u.arg}", expected=", ".join(self.lang.ids))
        return self.lang.ids[u.arg]

    def shuffled(self, t: str, x: str, bits: int) -> str:
        """Render a SHUFFLE of one element, as a new variable, since it must run at this point of the program."""
        if not self.lang.shuffle:
            raise InternalError(f"{self.lang.name}: the lanes of a warp have no access to each other")
        self.n += 1
        self.line(self.lang.declare.format(t=t, v=f"v{self.n}", x=self.lang.shuffle.format(t=t, x=x, bits=bits)))
        return f"v{self.n}"

    def multiply_tiles(self, u: UOp) -> Value:
        """Render WMMA; languages with matrix units override this."""
        raise InternalError(f"{self.lang.name} has no matrix unit {u.arg[0]}", expected=", ".join(self.lang.units))

    # ---- addresses ---------------------------------------------------------------------------------------------------
    def positions(self, index: UOp, n: int) -> list[Position] | None:
        """Return the Position of each variable of `n` elements of an INDEX.

        Return None if offsets are known only at run time, or the elements of a variable are not evenly spaced.
        """
        b = self.buffers[strip_after(index.src[0])]
        if len(index.src) < 2:
            return [Position(b, "0", 0)]
        base, offs, dynamic = self.address(index.src[1])
        if dynamic:
            return None
        out = []
        for row in np.broadcast_to(offs, index.shape).reshape(-1, n).tolist():
            step = row[1] - row[0] if n > 1 else 0
            if any(y - x != step for x, y in zip(row, row[1:], strict=False)):
                return None
            out.append(Position(b, plus(base, row[0]), step))
        return out

    def elements_of(self, index: UOp) -> list[Position]:
        """Return the Position of every element of an INDEX of any form."""
        b = self.buffers[strip_after(index.src[0])]
        base, offs, dynamic = self.address(index.src[1])
        at = [plus(base, o) for o in np.broadcast_to(offs, index.shape).ravel().tolist()]
        for term in dynamic:
            at = [x if a == "0" else f"{a} + {x}" for a, x in zip(at, self.elements(term, index.shape), strict=True)]
        return [Position(b, a, 0) for a in at]

    # ---- loads -------------------------------------------------------------------------------------------------------
    def load(self, u: UOp) -> Value:
        """Render LOAD, with or without a gate and the value of closed lanes."""
        reg = register_of(u.src[0])
        if reg is not None:  # a copy: the accumulator may change before this value is read
            n, d = self.width(reg.shape), u.dtype
            return Value([self._copy(d, n, r) for r in self.accumulators[reg.arg.slot]], n)
        index, d, n = u.src[0], u.dtype, self.width(u.shape)
        gated = len(u.src) == 3
        positions = self.positions(index, n) if index.shape == u.shape else None
        if positions is not None and all(p.step == 1 or n == 1 for p in positions) and not (gated and n == 1):
            if not gated:
                return Value([self._load(d, n, p) for p in positions], n)
            if self.lang.load_gated and d is not dtypes.bool:
                rows = zip(positions, self.broadcast(u.src[2], u.shape), self.broadcast(u.src[1], u.shape), strict=True)
                return Value([self._load_gated(d, n, *row) for row in rows], n)
        ends = self.elements_of(index) if len(index.src) > 1 else self.positions(index, 1) or []
        at = np.broadcast_to(np.arange(len(ends)).reshape(index.shape), u.shape).ravel()
        alts = self.elements(u.src[1], u.shape) if gated else [""] * len(at)
        gates = self.gates(u.src[2], u.shape) if gated else [OPEN] * len(at)
        xs = [self._gated(d, ends[i], g, a) for i, g, a in zip(at, gates, alts, strict=True)]
        return self.join(xs, u.shape, d)

    def gates(self, gate: UOp | None, shape: tuple) -> list[str]:
        """Return the gate of each element: an expression, OPEN or CLOSED."""
        if gate is None:
            return [OPEN] * prod(shape)
        known = const_value(gate, self.consts)
        if known is not None:
            return [OPEN if x else CLOSED for x in np.broadcast_to(known, shape).ravel()]
        return self.elements(gate, shape)

    def _copy(self, d: DType, n: int, r: str) -> str:
        """Return a new variable with the present value of the expression `r`, such as an accumulator."""
        self.n += 1
        self.line(self.lang.declare.format(t=self.lang.type(d, n), v=f"v{self.n}", x=r))
        return f"v{self.n}"

    def _load(self, d: DType, n: int, p: Position) -> str:
        """Load `n` elements into a new variable, since memory may have changed since an equal load."""
        if n == 1:
            return self._copy(d, 1, self._from_memory(d, f"{p.buffer}[{p.start}]"))
        t = self.lang.stored(d, n)
        x = self.lang.load_vector.format(n=n, t=t, p=f"{p.buffer} + {p.start}")
        if d is dtypes.bool:
            u8 = dtypes.uint8
            x = self.lang.compare("!=", u8, n, self._copy(u8, n, x), self.constant(0, u8, n))
        return self._copy(d, n, x)

    def _load_gated(self, d: DType, n: int, p: Position, gate: str, alt: str) -> str:
        """Load a vector in the lanes whose gate is open; closed lanes have the value of `alt`."""
        return self._copy(d, n, self.demand("load", self.lang.load_gated, d, n, p, gate, alt))

    def demand(self, name: str, call: str, d: DType, n: int, p: Position, gate: str, x: str) -> str:
        """Return a call of the language's masked access `name` ("load" or "store") to `n` elements in memory.

        `call` is the format of the call, `gate` the vector of gates, `x` the value to store, or the value of closed
        lanes of a load. The definition of the called function is written before the kernels.
        """
        row = {"t": self.lang.stored(d, n), "s": self.space(p)}
        lanes = [(i, self.lang.lane("c", n, i), self.lang.lane("x", n, i)) for i in range(n)]
        text = self.lang.on_demand[name].format(
            n=n, e=self.lang.stored(d), m=self.lang.type(dtypes.bool, n), **row,
            loads=" ".join(f"if ({c}) {v} = p[{i}];" for i, c, v in lanes),
            stores=" ".join(f"if ({c}) p[{i}] = {v};" for i, c, v in lanes),
        )  # fmt: skip
        self.functions_used[text] = None
        return call.format(p=f"{p.buffer} + {p.start}", c=gate, x=x, **row)

    def space(self, p: Position) -> str:
        """Return the address space of a buffer: "local" or "global"."""
        return "local" if p.buffer.startswith("local") else "global"

    def _gated(self, d: DType, p: Position, gate: str, alt: str) -> str:
        """Load one element if the gate is open, or else return `alt`."""
        if gate in (OPEN, CLOSED):
            return self._load(d, 1, p) if gate == OPEN else alt
        return self._copy(d, 1, f"({gate} ? {self._from_memory(d, f'{p.buffer}[{p.start}]')} : {alt})")

    def _from_memory(self, d: DType, x: str) -> str:
        return f"({x} != 0)" if d is dtypes.bool else x

    # ---- stores ------------------------------------------------------------------------------------------------------
    def store(self, u: UOp) -> None:
        """Render STORE, with or without a gate."""
        target, val = u.src[0], u.src[1]
        reg = register_of(target)
        if reg is not None:
            for v, x in zip(self.accumulators[reg.arg.slot], self.broadcast(val, reg.shape), strict=True):
                if v != x:
                    self.line(f"{v} = {x};")
            return
        gate = u.src[2] if len(u.src) == 3 else None
        shape = np.broadcast_shapes(target.shape, val.shape, gate.shape if gate is not None else ())
        n, d = self.width(shape), val.dtype
        positions = self.positions(target, n) if target.shape == shape and (gate is None or n > 1) else None
        if (
            positions is not None
            and all(p.step == 1 or n == 1 for p in positions)
            and (gate is None or self.lang.store_gated)
        ):
            gates = self.broadcast(gate, shape) if gate is not None else [""] * len(positions)
            for p, r, g in zip(positions, self.broadcast(val, shape), gates, strict=True):
                self._store(d, n, p, r, g)
            return
        ends = self.elements_of(target) if len(target.src) > 1 else self.positions(target, 1) or []
        xs = self.elements(val, shape)
        gates = self.gates(gate, shape)
        for i, (x, g) in enumerate(zip(xs, gates, strict=True)):
            self._guarded(g, self._assign(d, ends[i % len(ends)], x))

    def _store(self, d: DType, n: int, p: Position, r: str, gate: str) -> None:
        if n == 1:
            self.line(self._assign(d, p, r))
            return
        if d is dtypes.bool:
            r, d = self.emit(dtypes.uint8, n, self.lang.cast(r, d, dtypes.uint8, n)), dtypes.uint8
        if gate:
            self.line(self.demand("store", self.lang.store_gated, d, n, p, gate, r) + ";")
            return
        t = self.lang.stored(d, n)
        self.line(self.lang.store_vector.format(n=n, t=t, p=f"{p.buffer} + {p.start}", x=r) + ";")

    def _assign(self, d: DType, p: Position, x: str) -> str:
        x = self.lang.cast(x, d, dtypes.uint8, 1) if d is dtypes.bool else x
        return f"{p.buffer}[{p.start}] = {x};"

    def _guarded(self, gate: str, text: str) -> None:
        if gate != CLOSED:
            self.line(text if gate == OPEN else f"if ({gate}) {{ {text} }}")

    def atomic_add(self, u: UOp) -> None:
        """Render ATOMICADD, element by element."""
        target, val = u.src[0], u.src[1]
        gate = u.src[2] if len(u.src) == 3 else None
        shape = np.broadcast_shapes(target.shape, val.shape, gate.shape if gate is not None else ())
        ends, xs, d = self.elements_of(target), self.elements(val, shape), val.dtype
        gates = self.gates(gate, shape)
        for i, (x, g) in enumerate(zip(xs, gates, strict=True)):
            if d in NARROW and g != CLOSED:
                self._add_narrow(d, ends[i % len(ends)], x, g)
            else:
                self._guarded(g, self.atomic(d, ends[i % len(ends)], x))

    def _add_narrow(self, d: DType, p: Position, x: str, gate: str) -> None:
        """Add to a float of fewer than 32 bits, in float32; only one lane may add to the same element."""
        self.open("{" if gate == OPEN else f"if ({gate}) {{")
        outside, self.vals = self.vals, dict(self.vals)
        old, more = (node("PARAM", (shape_source(()),), ParamArg(-k, d, None)) for k in (1, 2))
        self.vals[old], self.vals[more] = Value([self._load(d, 1, p)], 1), Value([x], 1)
        total = narrow(widen(old) + widen(more), d)
        for u in toposort(total):
            if u.op in VALUES:
                self.vals[u] = self.elementwise(u)
        self.line(self._assign(d, p, self.scalar(total)))
        self.vals = outside
        self.close()

    def atomic(self, d: DType, p: Position, x: str) -> str:
        """Return the statement that adds `x` to one element atomically."""
        row = self.lang.atomic_add.get(d.name) or self.lang.atomic_add.get("")
        if row is None:
            raise InternalError(f"{self.lang.name} has no atomic addition of {d.name}")
        e = f"{p.buffer}[{p.start}]"
        total = f"({e} | {x})" if d is dtypes.bool else self._wrapping("+", d, 1, e, x)
        return row.format(p=f"&{e}", e=e, x=x, sum=total) + ";"


def plus(base: str, offset: int) -> str:
    """Return the text of `base` plus a constant offset; "" as a base is 0."""
    if not base:
        return str(offset)
    return base if not offset else f"{base} + {offset}" if offset > 0 else f"{base} - {-offset}"


def render_module(kernels: list[tuple[str, UOp]], language: Language, renderer: type[Renderer] = Renderer) -> str:
    """Render a source text with a function for each (name, LINEAR)."""
    rendered = [renderer(language, linear, name) for name, linear in kernels]
    texts = [r.render() for r in rendered]
    return "\n".join([language.header, *{f: None for r in rendered for f in r.functions_used}, *texts])


__all__ = ["C_NATIVE", "Renderer", "render_module"]
