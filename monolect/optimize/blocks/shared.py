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
    """Return the number of cycles in which the lanes of a warp access `n_bytes` each in local memory, with bank
    conflicts.

    `offsets`: the byte offset of each lane. `banks`: the number of banks; each serves one word of `word_bytes` per
    cycle.

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
    """The packed block in a workgroup's local memory: all lanes copy the memory that the LOAD `u` reads and then share
    the block. It is copied in each step and block loop that `u` depends on.

    `n_buffers`: 1, or 2 for a double buffer. Raises ActionError where PACK is not possible.
    """

    has_panels = False
    max_buffers = 2

    def __init__(self, plan: LoopNest, u: UOp, n_buffers: int = 1):
        super().__init__(plan, u)
        self.n_buffers = n_buffers
        if n_buffers != 1:
            self._check_buffers()

    def _check_buffers(self) -> None:
        """Raise ActionError unless the block may have `n_buffers` buffers.

        The target must support the number. A copy that is not asynchronous must fit a share of the lanes' registers.
        The copy must be in the kernel's only loop, a loop over steps of its only sum.
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
        """Whether the copy goes to local memory without registers, asynchronously.

        It does if the target can, if there are several buffers, if the load has no gate, and if a lane copies at least
        4 bytes at once that are adjacent both in memory and in the block.
        """
        v, mine = self._vector(self.dims), self._in_memory_order(self.dims)
        side_by_side = v == 1 or mine[0].dst == 1
        wide = v * self.load.dtype.itemsize >= self.plan.target.bank_bytes
        return self.plan.target.async_copies and self.n_buffers > 1 and not self.gated and side_by_side and wide

    @property
    def stride(self) -> int:
        """Number of elements from the start of one buffer to the start of the next."""
        lanes = self.plan.target.lanes(self.load.dtype.itemsize)
        return -(-self.elements // lanes) * lanes

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory that all buffers take."""
        return ((self.n_buffers - 1) * self.stride + self.elements) * self.load.dtype.itemsize

    def is_outside(self, p: AxisPart) -> bool:
        """Whether the part p is a loop around the copy (workgroups, block loops or steps of a reduction), so that each
        of its iterations has its own block. All lanes of a workgroup share one block.
        """
        return p.type == "GLOBAL" or p.is_block or p.is_step

    # ---- layout ------------------------------------------------------------------------------------------------------
    def _laid_out(self, dims: list[BlockDim]) -> list[BlockDim]:
        """Return the dimensions `dims` of the block, innermost first, with their strides `dst` in the block.

        The order is the elements that a lane holds in registers, those of adjacent lanes, then the order of memory. The
        innermost dimension is padded if that gives fewer bank conflicts.
        """
        dims = sorted(dims, key=lambda d: self._rank(d))
        if len(dims) < 2:
            return [d._replace(dst=1) for d in dims]
        pads = {0, self._width(dims[0]), self.plan.target.lanes(self.load.dtype.itemsize) if self.in_warp else 0}
        return min((self._padded(dims, pad) for pad in sorted(pads)), key=self._cycles)

    @property
    def in_warp(self) -> bool:
        """Whether the packed load is an operand of a matrix unit that a warp shares."""
        return self.plan.unit is not None and any(r in self.steps for r in self.plan.sides)

    def _rank(self, d: BlockDim) -> tuple[int, int, int]:
        """Return the sort key of the dimension d: dimensions with smaller keys are further inside the block."""
        if any(p.type == "CONTRACT" for p, _ in d.parts):  # steps that a lane passes to a matrix unit together
            return -1, 0, 0
        shaped = min((p.created for p, w in d.parts if p.type == "UPCAST" and w == 1), default=1 << 20)
        lane = min((p.created for p, _ in d.parts if p.type in ("LOCAL", "GROUP_REDUCE")), default=1 << 20)
        return shaped, lane, abs(d.step)

    def _padded(self, dims: list[BlockDim], pad: int) -> list[BlockDim]:
        """Return the dimensions `dims` with their strides `dst`, where the innermost dimension has room for `pad` more
        elements.
        """
        out, at = [], 1
        for k, d in enumerate(dims):
            out.append(d._replace(dst=at))
            at *= d.size + (pad if k == 0 else 0)
        return out

    def _width(self, d: BlockDim) -> int:
        """Number of adjacent elements along the dimension d that a lane loads from the block by one access."""
        if self.in_warp:
            first = next(r for r in runs(self._words) if r.axis == 1)
            return 1 if first.is_lane else 1 << first.n_bits
        wide = next((p.size for p, w in d.parts if p.type == "UPCAST" and w == 1), 1)
        lanes = self.plan.target.lanes(self.load.dtype.itemsize)
        return next(k for k in range(min(wide, lanes), 0, -1) if wide % k == 0 and d.size % k == 0)

    def _cycles(self, dims: list[BlockDim]) -> tuple[int, int, int]:
        """Return (cycles in which the first warp reads its elements from the block, cycles in which it stores them to
        the block, size of the block in elements), for a block with the dimensions `dims`. Bank conflicts add cycles.
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
        """Return, for each lane of the first warp, the offset in elements at which it reads a block with the dimensions
        `dims`.
        """
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
        """The matrix unit's map of the operand that is packed, as two words of bits, one for each axis of the operand.
        The map says which element of the operand each lane holds as its n-th element (see `base.matrix_units`).
        """
        assert self.plan.unit is not None
        return self.plan.unit.maps[0 if self.plan.sides[0] in self.steps else 1]

    def _operand_offsets(self, dims: list[BlockDim]) -> list[int]:
        """Return, for each lane of a warp, the offset in elements of the first element that the lane holds for the
        matrix unit, in a block with the dimensions `dims`.
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
        """Return the offset in elements, in a block with the dimensions `dims`, of the element that is number `e` of
        the block in the order of memory.
        """
        at = 0
        for d in self._in_memory_order(dims):
            at += e % d.size * d.dst
            e //= d.size
        return at

    @staticmethod
    def _in_memory_order(dims: list[BlockDim]) -> list[BlockDim]:
        """Return the dimensions `dims` sorted by their stride in memory, smallest first."""
        return sorted(dims, key=lambda d: abs(d.step))

    def _vector(self, dims: list[BlockDim]) -> int:
        """Number of elements that a lane copies by one access into a block with the dimensions `dims`: elements that
        are contiguous in memory, and aligned in every iteration.
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
        """Return the LOAD from the block that replaces the packed load, AFTER the copy by all lanes.

        `made`: {part of an axis: its new RANGE}. `ids`, `slots`: free numbers of RANGEs, and of BUFFERs.
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
