"""Render matrix products on two-dimensional tile registers (AMX), which are SSA values in LLVM IR.

What it is for: WMMA of a unit with tile registers. Loops carry an accumulator as tiles. If anything else reads the
accumulator, it is converted to vectors through stack memory. An operand whose rows have a constant stride is loaded
from its buffer as tiles; other operands also go through stack memory. LLVM emits the tile configuration and the
release of the tiles.

What it is not: products on vector registers (`render`), or the permission to use tiles (`units`).
Invariant: the rows of a tile are `unit.m` consecutive indices of one axis of the value, `matrix_products.row_axis`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monolect.backend.common.llvm.program import Renderer
from monolect.backend.common.llvm.types import Value, memory_type, type_name
from monolect.backend.common.shaped import register_of, strip_after
from monolect.backend.cpu.units import BY_NAME
from monolect.base.target import MatrixUnit
from monolect.ir.rewrite.normal import is_zero
from monolect.ir.uop import UOp
from monolect.lower.matrix_products import row_axis

TILE_BYTES = 1024  # of a whole tile: 16 rows
ROW_BYTES = 64  # of a row of a tile


class TileValue(Value):
    """A value held in tiles. `row_registers[t, r]`: the index of the vector register that equals row r of tile t."""

    def __init__(self, renderer: TileRenderer, u: UOp, tiles: list[str], axis: int):
        self.renderer, self.dtype, self.tiles = renderer, u.dtype, tiles
        self.lanes, self.lead = u.shape[-1], u.shape[:-1]
        self.row_registers = row_registers_of(u.shape, axis, len(tiles))

    @property
    def regs(self) -> list[str]:  # type: ignore[override]
        """Vector registers of the value, stored from its tiles and loaded again on first use."""
        out: list[str] = [""] * self.row_registers.size
        for t, rows in zip(self.tiles, self.row_registers, strict=True):
            for i, r in zip(rows, self.renderer.tile_to_vectors(t, self.dtype, self.lanes, len(rows)), strict=True):
                out[i] = r
        return out


def row_registers_of(shape: tuple, axis: int, n_tiles: int) -> Any:
    """Return an array [n_tiles, rows] of vector register indices of a value of `shape`; tile rows run along `axis`."""
    at = np.arange(int(np.prod(shape[:-1]))).reshape(shape[:-1])
    return np.moveaxis(at, axis, -1).reshape(n_tiles, -1)


class TileRenderer(Renderer):
    """Renders one function; accumulators of products on tiles are tile registers."""

    tile_type = "x86_amx"

    def __init__(self, linear: UOp, name: str, vector_bytes: int):
        super().__init__(linear, name, vector_bytes)
        self.tiled: dict[UOp, int] = {}  # accumulator held in tiles -> the axis along which the rows of its tiles run
        readers: dict[UOp, set[UOp]] = {}
        for u in self.program:
            for s in u.src:
                readers.setdefault(s, set()).add(u)
            b = register_of(u.src[0]) if u.op == "STORE" else None
            if b is not None and u.src[1].op == "WMMA" and (unit := BY_NAME[u.src[1].arg[0]].unit).n_tiles:
                self.tiled[b] = self.axis_of(u.src[1], unit)
        self.tile_loads: set[UOp] = set()  # LOADs, and changes of their shape, that only tile products read
        for u in reversed(self.program):
            if u.op in ("LOAD", "RESHAPE", "PERMUTE") and u.shape and u in readers:
                inside = all(r in self.tile_loads or self.is_tile_operand(r, u) for r in readers[u])
                if inside and _ungated_load(u) is not None:
                    self.tile_loads.add(u)

    @staticmethod
    def axis_of(u: UOp, unit: MatrixUnit) -> int:
        axis = row_axis(unit, u.src[0], u.src[1], u.shape, u.arg[1])
        assert axis is not None
        return axis

    @staticmethod
    def is_tile_operand(u: UOp, x: UOp) -> bool:
        return u.op == "WMMA" and bool(BY_NAME[u.arg[0]].unit.n_tiles) and x in u.src[:2] and x is not u.src[2]

    # ---- overrides of the LLVM renderer ------------------------------------------------------------------------------
    def instruction(self, u: UOp) -> None:
        if u not in self.tile_loads:
            super().instruction(u)

    def carried_type(self, b: UOp) -> str:
        return self.tile_type if b in self.tiled else super().carried_type(b)

    def load(self, u: UOp) -> Value:
        b = register_of(u.src[0])
        return TileValue(self, u, self.accumulators[b.arg.slot], self.tiled[b]) if b in self.tiled else super().load(u)

    def store(self, u: UOp) -> None:
        b = register_of(u.src[0])
        if b not in self.tiled:
            super().store(u)
        else:
            self.accumulators[b.arg.slot] = self.accumulator_tiles(u.src[1], b, self.tiled[b])

    # ---- tiles -------------------------------------------------------------------------------------------------------
    def multiply_tiles(self, u: UOp, unit: MatrixUnit, intrinsic: str) -> Value:
        """Render a WMMA with one instruction for each tile of the accumulator."""
        a, b, acc = u.src
        axis = self.axis_of(u, unit)
        acc_tiles = self.accumulator_tiles(acc, u, axis)
        row_registers = row_registers_of(u.shape, axis, len(acc_tiles))
        t = self.tile_type
        name = self.declare(t, intrinsic, f"i16, i16, i16, {t}, {t}, {t}")
        loaded: dict[Any, str] = {}
        left = self.operand_tiles(a, u, row_registers, loaded, True)
        right = self.operand_tiles(b, u, row_registers, loaded, False)
        size = f"i16 {unit.m}, i16 {ROW_BYTES}, i16 {ROW_BYTES}"
        out = [
            self.emit(f"call {t} {name}({size}, {t} {c}, {t} {x}, {t} {y})")
            for c, x, y in zip(acc_tiles, left, right, strict=True)
        ]
        return TileValue(self, u, out, axis)

    def declare(self, kind: str, intrinsic: str, takes: str) -> str:
        """Declare an LLVM intrinsic with return type `kind` and parameter types `takes`, and return its name."""
        self.declares.add(f"declare {kind} @llvm.{intrinsic}({takes})")
        return f"@llvm.{intrinsic}"

    def accumulator_tiles(self, x: UOp, like: UOp, axis: int) -> list[str]:
        """Return the tiles of the accumulator `x`, broadcast to the shape of `like`, with rows along `axis`."""
        n = int(np.prod(like.shape[:-1])) // 16
        v = self.value(x)
        if isinstance(v, TileValue):
            return v.tiles
        regs = self.broadcast(x, like.shape)
        if is_zero(x):
            name = self.declare(self.tile_type, "x86.tilezero.internal", "i16, i16")
            return [self.emit(f"call {self.tile_type} {name}(i16 16, i16 {ROW_BYTES})") for _ in range(n)]
        t = type_name(like.dtype, like.shape[-1])
        return [
            self.assemble_tile([(ROW_BYTES * r, t, regs[i]) for r, i in enumerate(rows)])
            for rows in row_registers_of(like.shape, axis, n)
        ]

    def operand_tiles(self, x: UOp, u: UOp, row_registers: Any, loaded: dict, is_left: bool) -> list[str]:
        """Return the tile of operand `x` for each accumulator tile; equal tiles are loaded once.

        A row of a left tile is a row of the matrix with its contracted elements. A row of a right tile is one step of
        the contraction: for each lane its adjacent `unit.pair` elements.
        """
        lead, n_axes = u.shape[:-1], u.arg[1]
        tail = x.shape[-1 - n_axes :]
        view = self.tile_offsets(x)
        if view is not None:
            pointer, offs = view
            offs = np.broadcast_to(offs, (*lead, *tail)).reshape(-1, *tail)
        else:
            v = self.value(x)
            regs = np.array(v.regs, object).reshape(x.shape[:-1])
            regs = np.broadcast_to(regs, (*lead, *tail[:-1])).reshape(-1, *tail[:-1])
        out = []
        for rows in row_registers:
            if view is not None:
                each = offs[rows][:, 0] if is_left else offs[rows[0]].swapaxes(0, 1)
                out.append(self.load_operand_tile(pointer, each.reshape(16, -1), x, loaded))
            else:
                each = regs[rows][:, 0] if is_left else regs[rows[0]].swapaxes(0, 1)
                step, t = tail[-1] * x.dtype.itemsize, type_name(x.dtype, tail[-1])
                parts = [(ROW_BYTES * r + step * k, t, e) for r, es in enumerate(each) for k, e in enumerate(es)]
                key = tuple(e for _, _, e in parts)
                loaded[key] = loaded.get(key) or self.assemble_tile(parts)
                out.append(loaded[key])
        return out

    def load_operand_tile(self, pointer: str, offs: Any, x: UOp, loaded: dict) -> str:
        """Load the tile with these offsets [16, elements of a row] from `pointer`; the stride of rows is constant."""
        at, stride = int(offs[0, 0]), int(offs[1, 0] - offs[0, 0])
        if (at, stride, pointer) not in loaded:
            p = self._offset(pointer, memory_type(x.dtype), str(at)) if at else pointer
            loaded[at, stride, pointer] = self.load_tile(p, stride * x.dtype.itemsize)
        return loaded[at, stride, pointer]

    def tile_offsets(self, x: UOp) -> tuple[str, Any] | None:
        """Return (address, offset of each element) if the operand `x` can be loaded as tiles.

        Otherwise return None; the value of `x` is then in vector registers.
        """
        load = _ungated_load(x) if x in self.tile_loads else None
        if load is None:
            return None
        base, offs, dynamic = self.address_parts(load.src[0].src[1])
        chain = _shape_changes(x)
        if not dynamic:
            offs = np.broadcast_to(offs, load.shape)
            for c in reversed(chain):
                offs = offs.reshape(c.shape) if c.op == "RESHAPE" else offs.transpose(c.arg)
            if _is_tile_layout(offs):
                p = self.value(strip_after(load.src[0].src[0])).regs[0]
                return (p if base in (None, "0") else self._offset(p, memory_type(x.dtype), base)), offs
        self.vals[load] = self.load(load)
        for c in reversed(chain):
            self.vals[c] = self.permute(c) if c.op == "PERMUTE" else self.reshape(c)
        return None

    # ---- stack memory ------------------------------------------------------------------------------------------------
    def load_tile(self, p: str, stride_bytes: int) -> str:
        name = self.declare(self.tile_type, "x86.tileloadd64.internal", "i16, i16, ptr, i64")
        return self.emit(f"call {self.tile_type} {name}(i16 16, i16 {ROW_BYTES}, ptr {p}, i64 {stride_bytes})")

    def assemble_tile(self, parts: list[tuple[int, str, str]]) -> str:
        """Return a tile made of parts (byte offset in the tile, LLVM type, register), through stack memory."""
        p = self.scratch_tile()
        for at, t, r in parts:
            q = self.emit(f"getelementptr inbounds i8, ptr {p}, i64 {at}") if at else p
            self.lines.append(f"  store {t} {r}, ptr {q}, align {min(64, at & -at or 64)}")
        return self.load_tile(p, ROW_BYTES)

    def tile_to_vectors(self, tile: str, d: Any, lanes: int, n: int) -> list[str]:
        """Return the first `n` rows of a tile as vectors of `lanes` elements of dtype `d`, through stack memory."""
        key = ("rows", tile)
        if (known := self.find_shared(key)) is not None:
            return known.split()
        p = self.scratch_tile()
        t = self.tile_type
        name = self.declare("void", "x86.tilestored64.internal", f"i16, i16, ptr, i64, {t}")
        self.lines.append(f"  call void {name}(i16 {n}, i16 {ROW_BYTES}, ptr {p}, i64 {ROW_BYTES}, {t} {tile})")
        out = []
        for r in range(n):
            q = self.emit(f"getelementptr inbounds i8, ptr {p}, i64 {ROW_BYTES * r}") if r else p
            out.append(self.emit(f"load {type_name(d, lanes)}, ptr {q}, align {ROW_BYTES}"))
        self.shared[-1][key] = " ".join(out)
        return out

    def scratch_tile(self) -> str:
        """Reserve stack memory for a tile and return its address."""
        r = f"%tile{len(self.scratch)}"
        self.scratch[r] = TILE_BYTES
        return r


def _shape_changes(x: UOp) -> list[UOp]:
    out = []
    while x.op in ("RESHAPE", "PERMUTE"):
        out.append(x)
        x = x.src[0]
    return out


def _ungated_load(x: UOp) -> UOp | None:
    """Return the ungated LOAD from memory of which `x` is a RESHAPE or PERMUTE, or None."""
    while x.op in ("RESHAPE", "PERMUTE"):
        x = x.src[0]
    ungated = x.op == "LOAD" and len(x.src) == 1 and x.src[0].op == "INDEX" and len(x.src[0].src) == 2
    return x if ungated and x.src[0].shape == x.shape and register_of(x.src[0]) is None else None


def _is_tile_layout(offs: Any) -> bool:
    """Whether offsets whose last axes are (lanes, steps, pairs) are those of tiles with constant row stride."""
    *_, lanes, steps, pair = offs.shape
    d = offs - offs[..., :1, :1, :1]
    inner = np.arange(pair)
    if lanes == 1:  # left operand: a row is (steps, pairs); the stride between rows is that of an outer axis
        return bool((d == (np.arange(steps)[:, None] * pair + inner)).all()) and _has_constant_stride(offs)
    stride = d[..., 0, 1, 0].reshape(-1)[0]
    wanted = np.arange(lanes)[:, None, None] * pair + np.arange(steps)[:, None] * stride + inner
    return bool((d == wanted).all())


def _has_constant_stride(offs: Any) -> bool:
    """Whether the first elements of rows have a constant stride along each outer axis."""
    first = offs[..., 0, 0, 0]
    return all((np.diff(first, n=2, axis=i) == 0).all() for i in range(first.ndim))


__all__ = ["TileRenderer", "TileValue", "row_registers_of"]
