"""PACK on a target with workgroups: all lanes copy a block to local memory together, and then each reads what it needs.

A workgroup's memory is filled anew in each step through a reduction (a SPLIT to REDUCE from the top) and in each block
that its load depends on. The copy is one LOCAL range over the elements of the block in the order of memory, so that
neighbouring lanes read neighbouring elements, several at once where that is aligned; `device_axes` shares the range out
and adds the barriers. What a lane holds in registers side by side lies side by side in the block, then what
neighbouring lanes read. Rows are padded where fewer lanes of a warp then wait for one bank.

Two blocks in turns need one BARRIER a step instead of two: the lanes that still read one do not mind the copy to the
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
from typing import TYPE_CHECKING

from monolect.base.errors import ActionError
from monolect.base.matrix_units import place, runs
from monolect.ir.ops import BufferArg, LoadArg
from monolect.ir.rewrite.normal import TRUE, linear
from monolect.ir.uop import UOp, const, idx, node, shape_source, substitute
from monolect.optimize.actions.pack import Block, Dim, _sum

if TYPE_CHECKING:
    from monolect.optimize.actions.plan import Part, Plan

BANK_BYTES = 4
MOST_AHEAD = 8  # a load a step ahead may take one in so many registers


def bank_cycles(places: Sequence[int], n_bytes: int, banks: int) -> int:
    """Steps in which lanes read or write `n_bytes` at each of `places`, in bytes: the banks serve one word each a step.

    Example: 32 lanes, 4 bytes each, side by side: 1 step; at strides of 128 bytes: 32 steps; of 132: 1.
    """
    words = max(1, n_bytes // BANK_BYTES)
    at_once = max(1, banks // words)
    total = 0
    for k in range(0, len(places), at_once):
        mine = {p // BANK_BYTES + i for p in places[k : k + at_once] for i in range(words)}
        in_bank = [0] * banks
        for w in mine:
            in_bank[w % banks] += 1
        total += max(in_bank)
    return total


class SharedBlock(Block):
    """What a workgroup reads with the load `u` inside its level. Raises ActionError where PACK is not possible."""

    has_panels = False
    most_turns = 2

    def __init__(self, plan: Plan, u: UOp, turns: int = 1):
        super().__init__(plan, u)
        self.turns = turns
        if turns != 1:
            self._check_turns()

    def _check_turns(self) -> None:
        """Raises ActionError unless the block is copied in each step of one loop, which runs once."""
        what = "PACK of blocks in turns"
        if not 2 <= self.turns <= self.most_turns:
            raise ActionError(what, expected=f"1 to {self.most_turns} blocks", found=self.turns)
        assert self.plan.workgroup is not None
        held = self.elements * self.load.dtype.itemsize / BANK_BYTES / self.plan.workgroup.n_lanes(self.plan.axes)
        if not self.is_async and held > self.plan.target.n_registers // MOST_AHEAD:
            raise ActionError(what, expected="registers for what a lane copies of the next step", found=held)
        loops = [p for p in self.plan.axes if p.is_step or (p.type == "LOOP" and p.size != 1)]
        if len(loops) != 1 or not loops[0].is_step or loops[0] not in self.outer or len(self.plan.reduces) != 1:
            raise ActionError(what, expected="one loop of steps, of one sum, around the copy", found=len(loops))

    @property
    def is_async(self) -> bool:
        """Whether what a lane copies goes to local memory by itself: neighbours in both, of 4 bytes at least."""
        v, mine = self._vector(self.dims), self._in_memory_order(self.dims)
        side_by_side = v == 1 or mine[0].dst == 1
        wide = v * self.load.dtype.itemsize >= BANK_BYTES
        return self.plan.target.async_copies and self.turns > 1 and not self.gated and side_by_side and wide

    @property
    def stride(self) -> int:
        """Elements from one of the blocks to the other."""
        lanes = self.plan.target.lanes(self.load.dtype.itemsize)
        return -(-self.elements // lanes) * lanes

    @property
    def local_bytes(self) -> int:
        """Bytes of local memory."""
        return ((self.turns - 1) * self.stride + self.elements) * self.load.dtype.itemsize

    def is_outside(self, p: Part) -> bool:
        """Workgroups have a block each, the lanes of one share it."""
        return p.type == "GLOBAL" or p.is_block or p.is_step

    # ---- layout ------------------------------------------------------------------------------------------------------
    def _laid_out(self, dims: list[Dim]) -> list[Dim]:
        """What is side by side in registers first, then what neighbouring lanes read, then the order of memory."""
        dims = sorted(dims, key=lambda d: self._rank(d))
        if len(dims) < 2:
            return [d._replace(dst=1) for d in dims]
        pads = {0, self._width(dims[0]), self.plan.target.lanes(self.load.dtype.itemsize) if self.in_warp else 0}
        return min((self._padded(dims, pad) for pad in sorted(pads)), key=self._cycles)

    @property
    def in_warp(self) -> bool:
        """Whether a matrix unit that a warp has in common takes what is loaded."""
        return self.plan.unit is not None and any(r in self.steps for r in self.plan.sides)

    def _rank(self, d: Dim) -> tuple[int, int, int]:
        if any(p.type == "CONTRACT" for p, _ in d.parts):  # steps that a lane gives to a matrix unit together
            return -1, 0, 0
        shaped = min((p.made for p, w in d.parts if p.type == "UPCAST" and w == 1), default=1 << 20)
        lane = min((p.made for p, _ in d.parts if p.type in ("LOCAL", "GROUP_REDUCE")), default=1 << 20)
        return shaped, lane, abs(d.step)

    def _padded(self, dims: list[Dim], pad: int) -> list[Dim]:
        out, at = [], 1
        for k, d in enumerate(dims):
            out.append(d._replace(dst=at))
            at *= d.size + (pad if k == 0 else 0)
        return out

    def _width(self, d: Dim) -> int:
        """Elements of the dimension that a lane reads at once."""
        if self.in_warp:
            first = next(r for r in runs(self._words) if r.axis == 1)
            return 1 if first.is_lane else 1 << first.n_bits
        wide = next((p.size for p, w in d.parts if p.type == "UPCAST" and w == 1), 1)
        lanes = self.plan.target.lanes(self.load.dtype.itemsize)
        return next(k for k in range(min(wide, lanes), 0, -1) if wide % k == 0 and d.size % k == 0)

    def _cycles(self, dims: list[Dim]) -> tuple[int, int, int]:
        """Steps in which the first warp reads the block, steps in which it fills it; then its size."""
        target, itemsize = self.plan.target, self.load.dtype.itemsize
        width = self._width(dims[0])
        reads = [at * itemsize for at in self._read_places(dims)]
        v = self._vector(dims)
        fills = [self._fill_place(dims, lane * v) * itemsize for lane in range(target.warp)]
        side = v if self._in_memory_order(dims)[0].dst == 1 else 1
        return (
            bank_cycles(reads, width * itemsize, target.local_banks),
            bank_cycles(fills, side * itemsize, target.local_banks),
            dims[-1].dst * dims[-1].size,
        )

    def _read_places(self, dims: list[Dim]) -> list[int]:
        """Where in the block the lanes of the first warp read."""
        if self.in_warp:
            return self._operand_places(dims)
        assert self.plan.workgroup is not None
        groups = self.plan.workgroup.dims(self.plan.axes)
        out = []
        for lane in range(min(self.plan.target.warp, prod(mine[0].size for mine in groups))):
            at: dict[Part, int] = {}
            for mine in groups:
                at.update(dict.fromkeys(mine, lane % mine[0].size))
                lane //= mine[0].size
            out.append(sum(at.get(p, 0) * w * d.dst for d in dims for p, w in d.parts))
        return out

    @property
    def _words(self) -> tuple[str, str]:
        """The map of the operand that is loaded."""
        assert self.plan.unit is not None
        return self.plan.unit.maps[0 if self.plan.sides[0] in self.steps else 1]

    def _operand_places(self, dims: list[Dim]) -> list[int]:
        """Where the lanes of a warp find the first element that each holds for a matrix unit."""
        unit = self.plan.unit
        assert unit is not None
        side = next(r for r in self.plan.sides if r in self.steps)
        mine = sorted((p for p in self.inner if p.root is side), key=lambda p: p.stride)
        out = []
        for lane in range(unit.threads):
            row, step = place(self._words, lane, 0)
            at = {p: step for p in self.inner if p.type == "CONTRACT"}
            for p in mine:
                at[p], row = row % p.size, row // p.size
            out.append(sum(at.get(p, 0) * w * d.dst for d in dims for p, w in d.parts))
        return out

    def _fill_place(self, dims: list[Dim], e: int) -> int:
        """Where in the block element number `e` in the order of memory lies."""
        at = 0
        for d in self._in_memory_order(dims):
            at += e % d.size * d.dst
            e //= d.size
        return at

    @staticmethod
    def _in_memory_order(dims: list[Dim]) -> list[Dim]:
        return sorted(dims, key=lambda d: abs(d.step))

    def _vector(self, dims: list[Dim]) -> int:
        """Elements that a lane copies at once: neighbours in memory, and aligned whatever the loops are at."""
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
    def packed(self, made: dict[Part, UOp], ids: count, slots: count) -> UOp:
        """The load from the block, after the copy. `made`: the RANGE of each part."""
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
        if self.turns > 1:
            start, flag = (
                made[next(p for p in self.outer if p.is_step)] % self.turns * self.stride,
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
        place = node("INDEX", (u.src[0].src[0], source))
        alt = u.src[1] if len(u.src) == 3 else const(0, u.dtype)
        value = node("LOAD", (place, alt, gate), flag) if gate is not TRUE else node("LOAD", (place,), flag)
        value.origin = u.origin
        store = node("STORE", (node("INDEX", (memory, target)), value))
        filled = node("AFTER", (memory, node("END", (store, *loops))))
        reading = _sum((made[p], w * d.dst) for d in self.dims for p, w in d.parts if p in made)
        return node("LOAD", (node("INDEX", (filled, start + reading)),), u.arg)
