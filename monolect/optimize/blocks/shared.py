"""Implement PACK on a target with workgroups: all lanes copy a block to local memory, each then reads its part.

The copy runs in each step of a reduction (a SPLIT to REDUCE from the top) and in each block that its load depends on.
It is one LOCAL range over the elements of the block in the order of memory. Adjacent lanes read adjacent elements, so
the loads are coalesced, with several elements at once where that is aligned. `device_axes` shares the range out among
the lanes and adds the barriers. In the block, the elements that a lane holds in registers are contiguous, then those of
adjacent lanes. Rows are padded where that avoids bank conflicts.

A double buffer needs one BARRIER per step instead of two, as lanes may still read one buffer during the copy to the
other. The copy's LOAD is then pipelined: it runs one step ahead (`lower.software_pipeline`), through registers or,
where the target can, "async": to local memory without registers.

Before: REDUCE(MUL(LOAD(INDEX(A, g0*..+l0*..+r2*16+r3)), ..), r2:4 REDUCE, r3:16 REDUCE)
After:  REDUCE(MUL(LOAD(INDEX(AFTER(LOCAL[1088], END(STORE(INDEX(LOCAL, e//16 + e%16*68), LOAD(INDEX(A, ..))), e:1024
        LOCAL)), l0*4 + r3*68)), ..), r2:4 REDUCE, r3:16 REDUCE)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import prod

from monolect.base.errors import ActionError
from monolect.base.matrix_units import position, runs
from monolect.ir.ops import BufferArg, LoadArg
from monolect.ir.rewrite.normal import TRUE, linear
from monolect.ir.uop import UOp, const, idx, node, shape_source, substitute
from monolect.optimize.blocks.packed import BlockDim, PackedBlock, _sum
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import LoopNest
from monolect.optimize.tuning import PIPELINE_REGISTER_SHARE


def bank_cycles(offsets: Sequence[int], n_bytes: int, banks: int, word_bytes: int) -> int:
    """Return the cycles in which lanes access `n_bytes` at each of the byte offsets `offsets`, with one word of
    `word_bytes` per bank a cycle. `banks`: number of banks.

    Example: 32 lanes of 4 bytes: contiguous 1 cycle; at strides of 128 bytes 32 cycles; at strides of 132 bytes 1
    cycle.
    """
    words = max(1, n_bytes // word_bytes)
    at_once = max(1, banks // words)
    total = 0
    for k in range(0, len(offsets), at_once):
        mine = {p // word_bytes + i for p in offsets[k : k + at_once] for i in range(words)}
        in_bank = [0] * banks
        for w in mine:
            in_bank[w % banks] += 1
        total += max(in_bank)
    return total


class SharedBlock(PackedBlock):
    """The block that a workgroup's lanes copy and share, for the load `u`, in each step and block loop that `u` depends
    on.

    Raises ActionError where PACK is not possible.
    """

    has_panels = False
    max_buffers = 2

    def __init__(self, plan: LoopNest, u: UOp, n_buffers: int = 1):
        super().__init__(plan, u)
        self.n_buffers = n_buffers
        if n_buffers != 1:
            self._check_buffers()

    def _check_buffers(self) -> None:
        """Raise ActionError unless the block may have several buffers.

        The number must be supported, the registers must hold a copy through them, and the copy must be in the kernel's
        only loop, one over steps of its only sum.
        """
        what = "PACK to several buffers"
        if not 2 <= self.n_buffers <= self.max_buffers:
            raise ActionError(what, expected=f"1 to {self.max_buffers} buffers", found=self.n_buffers)
        assert self.plan.workgroup is not None
        held = (
            self.elements
            * self.load.dtype.itemsize
            / self.plan.target.bank_bytes
            / self.plan.workgroup.n_lanes(self.plan.axes)
        )
        if not self.is_async and held > self.plan.target.n_registers // PIPELINE_REGISTER_SHARE:
            raise ActionError(
                what, expected="registers for the elements that a lane copies for the next step", found=held
            )
        loops = [p for p in self.plan.axes if p.is_step or (p.type == "LOOP" and p.size != 1)]
        if len(loops) != 1 or not loops[0].is_step or loops[0] not in self.outer or len(self.plan.reduces) != 1:
            raise ActionError(what, expected="one loop of steps, of one sum, around the copy", found=len(loops))

    @property
    def is_async(self) -> bool:
        """Whether the copy bypasses registers: the target can, there are several buffers, the load has no gate, and a
        lane copies at least 4 bytes that are adjacent in memory and in the block.
        """
        v, mine = self._vector(self.dims), self._in_memory_order(self.dims)
        side_by_side = v == 1 or mine[0].dst == 1
        wide = v * self.load.dtype.itemsize >= self.plan.target.bank_bytes
        return self.plan.target.async_copies and self.n_buffers > 1 and not self.gated and side_by_side and wide

    @property
    def stride(self) -> int:
        """Elements from one buffer to the next."""
        lanes = self.plan.target.lanes(self.load.dtype.itemsize)
        return -(-self.elements // lanes) * lanes

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory that all buffers take."""
        return ((self.n_buffers - 1) * self.stride + self.elements) * self.load.dtype.itemsize

    def is_outside(self, p: AxisPart) -> bool:
        """Whether the copy is made inside of the loop p: workgroups have a block each, and the lanes of one
        share it.
        """
        return p.type == "GLOBAL" or p.is_block or p.is_step

    # ---- layout ------------------------------------------------------------------------------------------------------
    def _laid_out(self, dims: list[BlockDim]) -> list[BlockDim]:
        """Order the dimensions `dims` and pad them for the fewest bank conflicts; return them with their strides in the
        block.

        The elements in a lane's registers come first, then those of adjacent lanes, then the order of memory.
        """
        dims = sorted(dims, key=lambda d: self._rank(d))
        if len(dims) < 2:
            return [d._replace(dst=1) for d in dims]
        pads = {0, self._width(dims[0]), self.plan.target.lanes(self.load.dtype.itemsize) if self.in_warp else 0}
        return min((self._padded(dims, pad) for pad in sorted(pads)), key=self._cycles)

    @property
    def in_warp(self) -> bool:
        """Whether a matrix unit that a warp shares takes the loaded elements."""
        return self.plan.unit is not None and any(r in self.steps for r in self.plan.sides)

    def _rank(self, d: BlockDim) -> tuple[int, int, int]:
        if any(p.type == "CONTRACT" for p, _ in d.parts):  # steps that a lane passes to a matrix unit together
            return -1, 0, 0
        shaped = min((p.created for p, w in d.parts if p.type == "UPCAST" and w == 1), default=1 << 20)
        lane = min((p.created for p, _ in d.parts if p.type in ("LOCAL", "GROUP_REDUCE")), default=1 << 20)
        return shaped, lane, abs(d.step)

    def _padded(self, dims: list[BlockDim], pad: int) -> list[BlockDim]:
        out, at = [], 1
        for k, d in enumerate(dims):
            out.append(d._replace(dst=at))
            at *= d.size + (pad if k == 0 else 0)
        return out

    def _width(self, d: BlockDim) -> int:
        """Number of adjacent elements along d that a lane reads from the block at once, to compute with them."""
        if self.in_warp:
            first = next(r for r in runs(self._words) if r.axis == 1)
            return 1 if first.is_lane else 1 << first.n_bits
        wide = next((p.size for p, w in d.parts if p.type == "UPCAST" and w == 1), 1)
        lanes = self.plan.target.lanes(self.load.dtype.itemsize)
        return next(k for k in range(min(wide, lanes), 0, -1) if wide % k == 0 and d.size % k == 0)

    def _cycles(self, dims: list[BlockDim]) -> tuple[int, int, int]:
        """Return (bank cycles in which the first warp reads the block of dimensions `dims`, cycles in which it fills
        the block, the block's size in elements).
        """
        target, itemsize = self.plan.target, self.load.dtype.itemsize
        width = self._width(dims[0])
        reads = [at * itemsize for at in self._read_offsets(dims)]
        v = self._vector(dims)
        fills = [self._fill_offset(dims, lane * v) * itemsize for lane in range(target.warp)]
        side = v if self._in_memory_order(dims)[0].dst == 1 else 1
        return (
            bank_cycles(reads, width * itemsize, target.local_banks, target.bank_bytes),
            bank_cycles(fills, side * itemsize, target.local_banks, target.bank_bytes),
            dims[-1].dst * dims[-1].size,
        )

    def _read_offsets(self, dims: list[BlockDim]) -> list[int]:
        """Return the offsets, in elements, in the block of dimensions `dims` that the lanes of the first warp read."""
        if self.in_warp:
            return self._operand_offsets(dims)
        assert self.plan.workgroup is not None
        groups = self.plan.workgroup.dims(self.plan.axes)
        out = []
        for lane in range(min(self.plan.target.warp, prod(mine[0].size for mine in groups))):
            at: dict[AxisPart, int] = {}
            for mine in groups:
                at.update(dict.fromkeys(mine, lane % mine[0].size))
                lane //= mine[0].size
            out.append(sum(at.get(p, 0) * w * d.dst for d in dims for p, w in d.parts))
        return out

    @property
    def _words(self) -> tuple[str, str]:
        """The matrix unit's map of the loaded operand, from (lane, element of the lane) to an element's coordinates.

        It has one word of bits for each axis (see `base.matrix_units`).
        """
        assert self.plan.unit is not None
        return self.plan.unit.maps[0 if self.plan.sides[0] in self.steps else 1]

    def _operand_offsets(self, dims: list[BlockDim]) -> list[int]:
        """Return the offset, in the block of dimensions `dims`, of the first element that each lane of a warp holds for
        a matrix unit.
        """
        unit = self.plan.unit
        assert unit is not None
        side = next(r for r in self.plan.sides if r in self.steps)
        mine = sorted((p for p in self.inner if p.root is side), key=lambda p: p.stride)
        out = []
        for lane in range(unit.threads):
            row, step = position(self._words, lane, 0)
            at = {p: step for p in self.inner if p.type == "CONTRACT"}
            for p in mine:
                at[p], row = row % p.size, row // p.size
            out.append(sum(at.get(p, 0) * w * d.dst for d in dims for p, w in d.parts))
        return out

    def _fill_offset(self, dims: list[BlockDim], e: int) -> int:
        """Return the offset, in the block of dimensions `dims`, of element number `e` in the order of memory."""
        at = 0
        for d in self._in_memory_order(dims):
            at += e % d.size * d.dst
            e //= d.size
        return at

    @staticmethod
    def _in_memory_order(dims: list[BlockDim]) -> list[BlockDim]:
        return sorted(dims, key=lambda d: abs(d.step))

    def _vector(self, dims: list[BlockDim]) -> int:
        """Number of elements that a lane copies at once into the block of dimensions `dims`: contiguous in memory, and
        aligned in every iteration.
        """
        mine = self._in_memory_order(dims)
        if not mine or mine[0].step != 1 or self.gated:
            return 1
        k, terms = linear(self.index)
        steps = [k, *(d.step for d in mine[1:])]
        steps += [self.steps[x] * p.stride for x, _ in terms for p in self.outer if p.root is x]
        v = self.plan.target.lanes(self.load.dtype.itemsize)
        while v > 1 and (mine[0].size % v or any(s % v for s in steps)):
            v //= 2
        return v

    # ---- code --------------------------------------------------------------------------------------------------------
    def packed(self, made: dict[AxisPart, UOp], ids: count, slots: count) -> UOp:
        """Return the load from the block, after the copy. `made`: the RANGE of each part.

        `ids`, `slots`: free numbers of RANGEs, and of BUFFERs.
        """
        u = self.load
        n = self.local_bytes // u.dtype.itemsize
        memory = node("BUFFER", (shape_source((n,)),), BufferArg(next(slots), u.dtype, None, "LOCAL"))
        outer = {r: _sum((made[p], p.stride) for p in self.outer if p.root is r and p in made) for r in self.steps}
        values = dict(outer)
        dims, v = self._in_memory_order(self.dims), self._vector(self.dims)
        e = node("RANGE", (idx(prod(d.size for d in dims) // v),), (next(ids), "LOCAL"))
        loops = [e]
        left = e * v
        if v > 1:
            loops.append(node("RANGE", (idx(v),), (next(ids), "UPCAST")))
            left = left + loops[1]
        start, flag = idx(0), u.arg
        if self.n_buffers > 1:
            start, flag = (
                made[next(p for p in self.outer if p.is_step)] % self.n_buffers * self.stride,
                LoadArg(pipelined="async" if self.is_async else "registers"),
            )
        source, target = substitute(self.index, outer), start
        for k, d in enumerate(dims):
            at = left % d.size if k < len(dims) - 1 else left
            left = left // d.size
            source, target = source + at * d.step, target + at * d.dst
            for root, w in d.weights.items():
                values[root] = values[root] + at * w
        gate = self._gate(values)
        address = node("INDEX", (u.src[0].src[0], source))
        alt = u.src[1] if len(u.src) == 3 else const(0, u.dtype)
        value = node("LOAD", (address, alt, gate), flag) if gate is not TRUE else node("LOAD", (address,), flag)
        value.origin = u.origin
        store = node("STORE", (node("INDEX", (memory, target)), value))
        filled = node("AFTER", (memory, node("END", (store, *loops))))
        reading = _sum((made[p], w * d.dst) for d in self.dims for p, w in d.parts if p in made)
        return node("LOAD", (node("INDEX", (filled, start + reading)),), u.arg)


__all__ = ["SharedBlock", "bank_cycles"]
