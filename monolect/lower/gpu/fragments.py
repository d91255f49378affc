"""Map ranges to the elements that each lane of a warp holds of a matrix unit's operands, before lanes become numbers.

The optimizer (`optimize.apply`) leaves a product for a warp's unit as a sum over CONTRACT ranges. The LOCAL and UPCAST
ranges around the sum give each lane the elements that the unit's map of the sum assigns to it. The elements of the
operands have to be distributed by two other maps. In a map, each bit of a row, column or step is a bit of the lane
number or of the number of an element that the lane holds. So the ranges in the loads are replaced bit by bit, and the
sum becomes a WMMA over ranges: CONTRACT ranges for the elements of operands, which it closes, and UPCAST ranges for
elements of the sum.

A unit that reads local memory (wgmma) takes no operands from lanes: the WMMA has the addresses at which the operands
begin. The strides of the core matrices are read off the index, which is linear in the same ranges.

Before: REDUCE(MUL(CAST(A[l1*64 + u1*512 + k]), CAST(B[k*64 + l0*2 + u0])), k:16 CONTRACT)
            l0:4, l1:8 LOCAL, u0:2, u1:2 UPCAST
After:  WMMA(A[l1*64 + e1*512 + l0*2 + e0 + e2*8], B[(l0*2 + e3 + e4*8)*64 + l1], 0, e0:2 .., u0, u1, l0, l1)
   or:  WMMA(INDEX(LOCAL0, r0*512), INDEX(LOCAL1, r0*1024), 0, u0, u1, l0, l1), of operands as Cores(64, 128, False) ..
Invariant: every lane of a warp reaches the same WMMAs; the guard of a row or column stays with its element.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from monolect.base.errors import ActionError, InternalError
from monolect.base.matrix_units import CORE_BYTES, PANEL_BYTES, BitRun, Cores, runs
from monolect.base.target import MatrixUnit, Target
from monolect.ir.bounds import ranges, unused_ranges
from monolect.ir.ops import KernelInfo
from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import UOp, const, idx, node, rebuild, substitute


def fragments(sink: UOp, order: Sequence[UOp], target: Target) -> UOp:
    """Rewrite the products of a kernel whose actions choose a unit of a warp; return other kernels unchanged.

    `order`: the nodes of `sink`, sources first.
    """
    unit = warp_unit(sink, target)
    if unit is None:
        return sink
    ids = unused_ranges(order)
    new: dict[UOp, UOp] = {}
    for u in order:
        if u.op == "REDUCE" and any(r.op == "RANGE" and r.arg[1] == "CONTRACT" for r in u.src[1:]):
            product = _Product(u, unit)
            new[u] = product.of_memory() if unit.from_memory else product.multiplied(ids)
        else:
            new[u] = rebuild(u, tuple(new[s] for s in u.src))
    return new[sink]


def warp_unit(sink: UOp, target: Target) -> MatrixUnit | None:
    """Return the matrix unit of a warp that the kernel's actions name, or None."""
    actions = sink.arg.actions if isinstance(sink.arg, KernelInfo) else None
    names = [arg[0] for op, _, arg in actions or () if op == "TC" and isinstance(arg, tuple)]
    return next((unit for unit in target.units if unit.name in names), None)


class _Product:
    """The REDUCE `u` of products that a matrix unit of a warp computes.

    The unit's map of the sum gives each bit of a row or column index as a bit of the lane number or of the element
    number. `bits` maps each run of consecutive such bits to the RANGE of the kernel whose value they are.
    """

    def __init__(self, u: UOp, unit: MatrixUnit):
        self.u, self.unit = u, unit
        self.steps = [r for r in u.src[1:] if r.arg[1] == "CONTRACT"]
        held = runs(unit.maps[2])
        self.bits: dict[BitRun, UOp] = {}
        for kind, is_lane in (("LOCAL", True), ("UPCAST", False)):
            mine = sorted((r for r in held if r.is_lane == is_lane), key=lambda r: r.first)
            found = sorted((r for r in ranges(u) if r.arg[1] == kind), key=lambda r: -r.arg[0])[: len(mine)]
            if [r.src[0].value for r in found] != [1 << r.n_bits for r in mine]:
                raise InternalError(f"{unit.name}: other lanes than its own", expected=mine, found=found)
            self.bits.update(zip(mine, found, strict=True))

    def multiplied(self, ids: count) -> UOp:
        """Return the product as a WMMA whose operands the lanes hold in registers. `ids` numbers new ranges."""
        closed: list[UOp] = []
        held = [self._operand(x, side, ids, closed) for side, x in enumerate(self._loads())]
        return self._sum(held, closed, (self.unit.name, len(closed)))

    def of_memory(self) -> UOp:
        """Return the product as a WMMA that reads its operands from local memory."""
        found = [self._cores(x, side) for side, x in enumerate(self._loads())]
        return self._sum([at for at, _ in found], [], (self.unit.name, 0, *(tuple(cores) for _, cores in found)))

    def _loads(self) -> list[UOp]:
        """Return the LOADs of the left and the right operand, without their CASTs."""
        rows = [r for run, r in self.bits.items() if run.axis == 0]
        loads = (x.src[0] if x.op == "CAST" else x for x in self.u.src[0].src)
        return sorted(loads, key=lambda x: ranges(x).isdisjoint(rows))

    def _sum(self, operands: list[UOp], closed: list[UOp], arg: tuple) -> UOp:
        """Return the WMMA of `operands` with argument `arg`, in a REDUCE over the loops of `self.u`, if any.

        The loops are the ranges that `self.u` reduces, without the CONTRACT ranges, which the WMMA sums itself.
        `closed`: the ranges over a lane's elements of the operands, which the WMMA closes.
        """
        out = node("WMMA", (*operands, const(0, self.u.dtype), *closed, *self.bits.values()), arg)
        loops = [r for r in self.u.src[1:] if r not in self.steps]
        return node("REDUCE", (out, *loops), self.u.arg) if loops else out

    def _cores(self, load: UOp, side: int) -> tuple[UOp, Cores]:
        """Return the INDEX of the first element that `load` reads, and the strides of its core matrices.

        `load` is the left (`side` 0) or right (1) operand. Raises ActionError if the operand is not in local memory.
        """
        memory, index = load.src[0].src[0], load.src[0].src[1]
        while memory.op == "AFTER":
            memory = memory.src[0]
        if memory.op != "BUFFER" or memory.arg.addrspace != "LOCAL" or len(load.src) > 1:
            raise ActionError(f"TC of {self.unit.name}", expected="operands in local memory (PACK)", found=memory.op)
        runs_of = {r: run for run, r in self.bits.items() if run.axis == side}
        outer_steps, inner_steps = sorted(self.steps, key=lambda r: r.arg[0])  # lines of steps; steps in a line
        strides = {r: c for r, c in linear(index)[1] if r in runs_of or r in self.steps}
        n = self.unit.a.itemsize
        transposed = strides.get(inner_steps) != 1
        panels = any(s.op == "TMACOPY" for s in load.src[0].src[0].src)

        def at_row(bit: int) -> int:
            """Return the offset, in elements, between rows 2**bit apart."""
            return next(
                (c >> run.at - bit for r, run in runs_of.items() if run.at >= bit and (c := strides.get(r, 0))), 0
            )

        cores = Cores(strides.get(outer_steps, 0), at_row(3), transposed)
        if panels:
            cores = Cores(at_row((PANEL_BYTES // n).bit_length() - 1) if transposed else 0, 0, transposed, True)
        expected = {r: cores.offset(1 << run.at, 0, n) for r, run in runs_of.items()}
        expected |= {inner_steps: cores.offset(0, 1, n), outer_steps: cores.offset(0, CORE_BYTES // n, n)}
        if any(strides.get(r, 0) != c for r, c in expected.items()):
            raise InternalError(
                f"{self.unit.name}: an operand that is not in core matrices", expected=expected, found=strides
            )
        start = substitute(index, dict.fromkeys((*runs_of, *self.steps), idx(0)))
        return node("INDEX", (load.src[0].src[0], start)), cores

    def _operand(self, load: UOp, side: int, ids: count, closed: list[UOp]) -> UOp:
        """Return `load`, the left (`side` 0) or right (1) operand, as the load of a lane's elements.

        Its new ranges, with numbers from `ids`, are appended to `closed`.
        """
        words = self.unit.maps[side]
        own = {
            run: node("RANGE", (idx(1 << run.n_bits),), (next(ids), "CONTRACT"))
            for run in sorted(runs(words), key=lambda run: -run.first)
            if not run.is_lane
        }
        closed.extend(own.values())
        bits_of = [self._bits(word, axis, own) for axis, word in enumerate(words)]
        mapping = {self.steps[0]: _sliced(bits_of[1], 0, len(bits_of[1]))}
        for run, r in self.bits.items():
            if run.axis == side:
                mapping[r] = _sliced(bits_of[0], run.at, run.n_bits)
        return substitute(load, mapping)

    def _bits(self, word: str, axis: int, own: dict[BitRun, UOp]) -> list[tuple[UOp, int]]:
        """Return (range, bit of the range) for each bit of an operand's index along `axis`, the lowest bit first.

        `word` is the unit's map of that index, and `own` has the ranges over the elements that a lane holds.
        """
        out = []
        for at, bit in enumerate(word.split()):
            number = int(bit[1:])
            if bit[0] == "l":
                found = ((r, number - run.first) for run, r in self.bits.items() if run.is_lane and _has(run, number))
            else:
                found = (
                    (r, at - run.at) for run, r in own.items() if run.axis == axis and 0 <= at - run.at < run.n_bits
                )
            out.append(next(found))
        return out


def _has(run: BitRun, number: int) -> bool:
    """Whether the bits that `run` takes from its number (the lane number, or an element's) include bit `number`."""
    return run.first <= number < run.first + run.n_bits


def _sliced(bits: list[tuple[UOp, int]], first: int, n: int) -> UOp:
    """Return the number whose `n` bits are bits[first], bits[first + 1], .., the lowest first, as a sum.

    An item (r, k) of `bits` is bit k of the range r; adjacent bits of one range are one term.
    """
    out, at = idx(0), 0
    while at < n:
        r, low = bits[first + at]
        k = 1
        while at + k < n and bits[first + at + k] == (r, low + k):
            k += 1
        part = r // (1 << low) if low else r
        whole = r.src[0].value >> low == 1 << k
        out = out + (part if whole else part % (1 << k)) * (1 << at)
        at += k
    return out


__all__ = ["fragments", "warp_unit"]
