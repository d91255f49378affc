"""Products of tiles on registers of tiles, two-dimensional ones: AMX, as SSA values of LLVM.

What it is for: WMMA of a unit that has tiles of its own. An accumulator is carried through loops as tiles; it becomes
vectors, through memory of the call, only where something else reads it. Operands are loaded as tiles from where they
lie, if their rows lie at one stride; others go through memory too. LLVM writes the tile configuration, and gives the
tiles back at the end.

What it is not: vector registers (`render`), or the permission to use tiles (`units`).
Invariant: a tile holds the rows of one axis of a value, `matrix.row_axis`, `unit.m` of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monolect.backend.common.llvm.program import Renderer
from monolect.backend.common.llvm.types import Value, memory_type, type_name
from monolect.backend.common.shaped import ordered, register_of
from monolect.backend.cpu.units import BY_NAME
from monolect.base.target import MatrixUnit
from monolect.ir.rewrite.normal import is_zero
from monolect.ir.uop import UOp
from monolect.lower.matrix_products import row_axis

TILE_BYTES = 1024
LINE = 64  # bytes of a row


class Tiles(Value):
    """A value in tiles. `grid[t, r]`: which of the registers it would have as vectors is row r of tile t."""

    def __init__(self, renderer: TileRenderer, u: UOp, tiles: list[str], axis: int):
        self.renderer, self.dtype, self.tiles = renderer, u.dtype, tiles
        self.lanes, self.lead = u.shape[-1], u.shape[:-1]
        self.grid = grid(u.shape, axis, len(tiles))

    @property
    def regs(self) -> list[str]:  # type: ignore[override]
        """The value as vectors."""
        out: list[str] = [""] * self.grid.size
        for t, rows in zip(self.tiles, self.grid, strict=True):
            for i, r in zip(rows, self.renderer.rows_of(t, self.dtype, self.lanes, len(rows)), strict=True):
                out[i] = r
        return out


def grid(shape: tuple, axis: int, n_tiles: int) -> Any:
    """For each tile the registers, of a value of `shape`, that are its rows."""
    at = np.arange(int(np.prod(shape[:-1]))).reshape(shape[:-1])
    return np.moveaxis(at, axis, -1).reshape(n_tiles, -1)


class TileRenderer(Renderer):
    """One function, of which some accumulators may be tiles."""

    tile_type = "x86_amx"

    def __init__(self, linear: UOp, name: str):
        super().__init__(linear, name)
        self.tiled: dict[UOp, int] = {}  # accumulator in tiles -> the axis of their rows
        readers: dict[UOp, set[UOp]] = {}
        for u in self.program:
            for s in u.src:
                readers.setdefault(s, set()).add(u)
            b = register_of(u.src[0]) if u.op == "STORE" else None
            if b is not None and u.src[1].op == "WMMA" and (unit := BY_NAME[u.src[1].arg[0]].unit).n_tiles:
                self.tiled[b] = self.axis_of(u.src[1], unit)
        self.placed: set[UOp] = set()  # loads, and changes of their shape, that only tiles are loaded by
        for u in reversed(self.program):
            if u.op in ("LOAD", "RESHAPE", "PERMUTE") and u.shape and u in readers:
                inside = all(r in self.placed or self.is_operand(r, u) for r in readers[u])
                if inside and _origin(u) is not None:
                    self.placed.add(u)

    @staticmethod
    def axis_of(u: UOp, unit: MatrixUnit) -> int:
        axis = row_axis(unit, u.src[0], u.src[1], u.shape, u.arg[1])
        assert axis is not None
        return axis

    @staticmethod
    def is_operand(u: UOp, x: UOp) -> bool:
        return u.op == "WMMA" and bool(BY_NAME[u.arg[0]].unit.n_tiles) and x in u.src[:2] and x is not u.src[2]

    # ---- in place of the renderer's own ------------------------------------------------------------------------------
    def instruction(self, u: UOp) -> None:
        if u not in self.placed:
            super().instruction(u)

    def carried_type(self, b: UOp) -> str:
        return self.tile_type if b in self.tiled else super().carried_type(b)

    def load(self, u: UOp) -> Value:
        b = register_of(u.src[0])
        return Tiles(self, u, self.accumulators[b.arg.slot], self.tiled[b]) if b in self.tiled else super().load(u)

    def store(self, u: UOp) -> None:
        b = register_of(u.src[0])
        if b not in self.tiled:
            super().store(u)
        else:
            self.accumulators[b.arg.slot] = self.in_tiles(u.src[1], b, self.tiled[b])

    # ---- tiles -------------------------------------------------------------------------------------------------------
    def multiply_tiles(self, u: UOp, unit: MatrixUnit, intrinsic: str) -> Value:
        """WMMA: one instruction for each tile of the accumulator."""
        a, b, acc = u.src
        axis = self.axis_of(u, unit)
        mine = self.in_tiles(acc, u, axis)
        places = grid(u.shape, axis, len(mine))
        t = self.tile_type
        name = self.declare(t, intrinsic, f"i16, i16, i16, {t}, {t}, {t}")
        loaded: dict[Any, str] = {}
        left = self.operand(a, u, places, loaded, True)
        right = self.operand(b, u, places, loaded, False)
        size = f"i16 {unit.m}, i16 {LINE}, i16 {LINE}"
        out = [
            self.emit(f"call {t} {name}({size}, {t} {c}, {t} {x}, {t} {y})")
            for c, x, y in zip(mine, left, right, strict=True)
        ]
        return Tiles(self, u, out, axis)

    def declare(self, kind: str, intrinsic: str, takes: str) -> str:
        """The name of an LLVM intrinsic, declared: what it returns and takes."""
        self.declares.add(f"declare {kind} @llvm.{intrinsic}({takes})")
        return f"@llvm.{intrinsic}"

    def in_tiles(self, x: UOp, like: UOp, axis: int) -> list[str]:
        """The tiles of an accumulator, of the shape of `like`."""
        n = int(np.prod(like.shape[:-1])) // 16
        v = self.value(x)
        if isinstance(v, Tiles):
            return v.tiles
        regs = self.broadcast(x, like.shape)
        if is_zero(x):
            name = self.declare(self.tile_type, "x86.tilezero.internal", "i16, i16")
            return [self.emit(f"call {self.tile_type} {name}(i16 16, i16 {LINE})") for _ in range(n)]
        t = type_name(like.dtype, like.shape[-1])
        return [
            self.tile_of([(LINE * r, t, regs[i]) for r, i in enumerate(rows)]) for rows in grid(like.shape, axis, n)
        ]

    def operand(self, x: UOp, u: UOp, places: Any, loaded: dict, is_left: bool) -> list[str]:
        """The tiles of an operand, one for each of the accumulator's. The left one has its rows as rows, what is summed
        along them; the right one has steps as rows, in each of them lanes and, side by side, what the unit pairs.
        """
        lead, n_axes = u.shape[:-1], u.arg[1]
        tail = x.shape[-1 - n_axes :]
        view = self.offsets(x)
        if view is not None:
            pointer, offs = view
            offs = np.broadcast_to(offs, (*lead, *tail)).reshape(-1, *tail)
        else:
            v = self.value(x)
            regs = np.array(v.regs, object).reshape(x.shape[:-1])
            regs = np.broadcast_to(regs, (*lead, *tail[:-1])).reshape(-1, *tail[:-1])
        out = []
        for rows in places:
            if view is not None:
                each = offs[rows][:, 0] if is_left else offs[rows[0]].swapaxes(0, 1)
                out.append(self.tile_at(pointer, each.reshape(16, -1), x, loaded))
            else:
                each = regs[rows][:, 0] if is_left else regs[rows[0]].swapaxes(0, 1)
                step, t = tail[-1] * x.dtype.itemsize, type_name(x.dtype, tail[-1])
                parts = [(LINE * r + step * k, t, e) for r, es in enumerate(each) for k, e in enumerate(es)]
                key = tuple(e for _, _, e in parts)
                loaded[key] = loaded.get(key) or self.tile_of(parts)
                out.append(loaded[key])
        return out

    def tile_at(self, pointer: str, offs: Any, x: UOp, loaded: dict) -> str:
        """The tile whose rows are those of `offs`, elements from `pointer` on; `offsets` said that there is one."""
        at, stride = int(offs[0, 0]), int(offs[1, 0] - offs[0, 0])
        if (at, stride, pointer) not in loaded:
            p = self._offset(pointer, memory_type(x.dtype), str(at)) if at else pointer
            loaded[at, stride, pointer] = self.load_tile(p, stride * x.dtype.itemsize)
        return loaded[at, stride, pointer]

    def offsets(self, x: UOp) -> tuple[str, Any] | None:
        """(address, offset of each element from there) of what is loaded as tiles, or None; then it has vectors."""
        load = _origin(x) if x in self.placed else None
        if load is None:
            return None
        base, offs, dynamic = self.address_parts(load.src[0].src[1])
        chain = _chain(x)
        if not dynamic:
            offs = np.broadcast_to(offs, load.shape)
            for c in reversed(chain):
                offs = offs.reshape(c.shape) if c.op == "RESHAPE" else offs.transpose(c.arg)
            if _is_tile(offs):
                p = self.value(ordered(load.src[0].src[0])).regs[0]
                return (p if base in (None, "0") else self._offset(p, memory_type(x.dtype), base)), offs
        self.vals[load] = self.load(load)
        for c in reversed(chain):
            self.vals[c] = self.permute(c) if c.op == "PERMUTE" else self.reshape(c)
        return None

    # ---- memory of the call ------------------------------------------------------------------------------------------
    def load_tile(self, p: str, stride_bytes: int) -> str:
        name = self.declare(self.tile_type, "x86.tileloadd64.internal", "i16, i16, ptr, i64")
        return self.emit(f"call {self.tile_type} {name}(i16 16, i16 {LINE}, ptr {p}, i64 {stride_bytes})")

    def tile_of(self, parts: list[tuple[int, str, str]]) -> str:
        """A tile of (place in it, type, register)."""
        p = self.place()
        for at, t, r in parts:
            q = self.emit(f"getelementptr inbounds i8, ptr {p}, i64 {at}") if at else p
            self.lines.append(f"  store {t} {r}, ptr {q}, align {min(64, at & -at or 64)}")
        return self.load_tile(p, LINE)

    def rows_of(self, tile: str, d: Any, lanes: int, n: int) -> list[str]:
        """The rows of a tile as vectors."""
        key = ("rows", tile)
        if (known := self.find_shared(key)) is not None:
            return known.split()
        p = self.place()
        t = self.tile_type
        name = self.declare("void", "x86.tilestored64.internal", f"i16, i16, ptr, i64, {t}")
        self.lines.append(f"  call void {name}(i16 {n}, i16 {LINE}, ptr {p}, i64 {LINE}, {t} {tile})")
        out = []
        for r in range(n):
            q = self.emit(f"getelementptr inbounds i8, ptr {p}, i64 {LINE * r}") if r else p
            out.append(self.emit(f"load {type_name(d, lanes)}, ptr {q}, align {LINE}"))
        self.shared[-1][key] = " ".join(out)
        return out

    def place(self) -> str:
        """Memory for one more tile."""
        r = f"%tile{len(self.scratch)}"
        self.scratch[r] = TILE_BYTES
        return r


def _chain(x: UOp) -> list[UOp]:
    out = []
    while x.op in ("RESHAPE", "PERMUTE"):
        out.append(x)
        x = x.src[0]
    return out


def _origin(x: UOp) -> UOp | None:
    """The load, without a gate, that `x` is in another shape."""
    while x.op in ("RESHAPE", "PERMUTE"):
        x = x.src[0]
    ungated = x.op == "LOAD" and len(x.src) == 1 and x.src[0].op == "INDEX" and len(x.src[0].src) == 2
    return x if ungated and x.src[0].shape == x.shape and register_of(x.src[0]) is None else None


def _is_tile(offs: Any) -> bool:
    """Whether rows of the last three axes, (lanes, steps, pairs), lie as a tile is loaded."""
    *_, lanes, steps, pair = offs.shape
    d = offs - offs[..., :1, :1, :1]
    inner = np.arange(pair)
    if lanes == 1:  # along a row: steps, pairs; the stride from row to row is checked by the last axis that moves
        return bool((d == (np.arange(steps)[:, None] * pair + inner)).all()) and _even(offs)
    stride = d[..., 0, 1, 0].reshape(-1)[0]
    wanted = np.arange(lanes)[:, None, None] * pair + np.arange(steps)[:, None] * stride + inner
    return bool((d == wanted).all())


def _even(offs: Any) -> bool:
    """Whether rows lie at one stride along each axis of the value."""
    first = offs[..., 0, 0, 0]
    return all((np.diff(first, n=2, axis=i) == 0).all() for i in range(first.ndim))
