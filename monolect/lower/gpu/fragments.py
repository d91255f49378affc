"""What each lane of a warp loads for a matrix unit that the warp has in common, before lanes are numbers.

After `apply` a product for such a unit is still a sum over CONTRACT ranges, with lanes and registers as the map of
the sum says. The unit does not want the rows and columns of a lane's own results there, but those that the maps of its
operands say: each bit of a row, a column or a step is a bit of the lane's number, or of the number of an element that
the lane holds. So the ranges in the loads are replaced, bit by bit, and the sum becomes a WMMA over ranges: CONTRACT
ones for what a lane holds of the operands, which it closes, UPCAST ones for what it holds of the sum.

A unit that reads local memory (wgmma) takes no operands from lanes: the WMMA has the places in local memory where they
begin. How far apart the core matrices of each lie is read off the index, which is linear in the same ranges.

Before: REDUCE(MUL(CAST(A[l1*64 + u1*512 + k]), CAST(B[k*64 + l0*2 + u0])), k:16 CONTRACT)
            l0:4, l1:8 LOCAL, u0:2, u1:2 UPCAST
After:  WMMA(A[l1*64 + e1*512 + l0*2 + e0 + e2*8], B[(l0*2 + e3 + e4*8)*64 + l1], 0, e0:2 .., u0, u1, l0, l1)
   or:  WMMA(INDEX(LOCAL0, r0*512), INDEX(LOCAL1, r0*1024), 0, u0, u1, l0, l1), of operands as Cores(64, 128, False) ..
Invariant: every lane of a warp meets the same WMMAs; a row's or column's guard stays with the element it is of.
"""

from __future__ import annotations

from itertools import count

from monolect.base.errors import ActionError, InternalError
from monolect.base.matrix_units import CORE_BYTES, PANEL_BYTES, Cores, Run, runs
from monolect.base.target import MatrixUnit, Target
from monolect.ir.bounds import ranges, unused_ranges
from monolect.ir.ops import KernelInfo
from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import UOp, const, idx, node, rebuild, substitute


def fragments(sink: UOp, order: list[UOp], target: Target) -> UOp:
    """See the module docstring; `sink` where no action says so."""
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
    """The unit that the kernel's actions name, if it is one of a warp."""
    actions = sink.arg.actions if isinstance(sink.arg, KernelInfo) else None
    names = [arg[0] for op, _, arg in actions or () if op == "TC" and isinstance(arg, tuple)]
    return next((unit for unit in target.units if unit.name in names), None)


class _Product:
    """One sum of products for a unit. `bits`: for each run of the sum's map the range that has its values."""

    def __init__(self, u: UOp, unit: MatrixUnit):
        self.u, self.unit = u, unit
        self.steps = [r for r in u.src[1:] if r.arg[1] == "CONTRACT"]
        held = runs(unit.maps[2])
        self.bits: dict[Run, UOp] = {}
        for kind, is_lane in (("LOCAL", True), ("UPCAST", False)):
            mine = sorted((r for r in held if r.is_lane == is_lane), key=lambda r: r.first)
            found = sorted((r for r in ranges(u) if r.arg[1] == kind), key=lambda r: -r.arg[0])[: len(mine)]
            if [r.src[0].value for r in found] != [1 << r.n_bits for r in mine]:
                raise InternalError(f"{unit.name}: other lanes than its own", expected=mine, found=found)
            self.bits.update(zip(mine, found, strict=True))

    def multiplied(self, ids: count) -> UOp:
        """The WMMA, and the sum of it over what other loops there are."""
        closed: list[UOp] = []
        held = [self._held(x, side, ids, closed) for side, x in enumerate(self._loads())]
        return self._summed(held, closed, (self.unit.name, len(closed)))

    def of_memory(self) -> UOp:
        """The same of a unit that reads its operands from local memory."""
        found = [self._cores(x, side) for side, x in enumerate(self._loads())]
        return self._summed([at for at, _ in found], [], (self.unit.name, 0, *(tuple(cores) for _, cores in found)))

    def _loads(self) -> list[UOp]:
        """Of the left operand and of the right one."""
        rows = [r for run, r in self.bits.items() if run.axis == 0]
        loads = (x.src[0] if x.op == "CAST" else x for x in self.u.src[0].src)
        return sorted(loads, key=lambda x: ranges(x).isdisjoint(rows))

    def _summed(self, held: list[UOp], closed: list[UOp], arg: tuple) -> UOp:
        out = node("WMMA", (*held, const(0, self.u.dtype), *closed, *self.bits.values()), arg)
        loops = [r for r in self.u.src[1:] if r not in self.steps]
        return node("REDUCE", (out, *loops), self.u.arg) if loops else out

    def _cores(self, load: UOp, side: int) -> tuple[UOp, Cores]:
        """Where an operand begins in local memory, and how it lies there."""
        memory, index = load.src[0].src[0], load.src[0].src[1]
        while memory.op == "AFTER":
            memory = memory.src[0]
        if memory.op != "BUFFER" or memory.arg.addrspace != "LOCAL" or len(load.src) > 1:
            raise ActionError(f"TC of {self.unit.name}", expected="operands in local memory (PACK)", found=memory.op)
        runs_of = {r: run for run, r in self.bits.items() if run.axis == side}
        far, near = sorted(self.steps, key=lambda r: r.arg[0])  # lines of steps, steps in a line
        apart = {r: c for r, c in linear(index)[1] if r in runs_of or r in self.steps}
        n = self.unit.a.itemsize
        turned = apart.get(near) != 1
        panels = any(s.op == "TMACOPY" for s in load.src[0].src[0].src)

        def at_row(bit: int) -> int:
            return next(
                (c >> run.at - bit for r, run in runs_of.items() if run.at >= bit and (c := apart.get(r, 0))), 0
            )

        cores = Cores(apart.get(far, 0), at_row(3), turned)
        if panels:
            cores = Cores(at_row((PANEL_BYTES // n).bit_length() - 1) if turned else 0, 0, turned, True)
        want = {r: cores.place(1 << run.at, 0, n) for r, run in runs_of.items()}
        want |= {near: cores.place(0, 1, n), far: cores.place(0, CORE_BYTES // n, n)}
        if any(apart.get(r, 0) != c for r, c in want.items()):
            raise InternalError(
                f"{self.unit.name}: an operand that is not in core matrices", expected=want, found=apart
            )
        start = substitute(index, dict.fromkeys((*runs_of, *self.steps), idx(0)))
        return node("INDEX", (load.src[0].src[0], start)), cores

    def _held(self, load: UOp, side: int, ids: count, closed: list[UOp]) -> UOp:
        """The load of what a lane holds of the left (0) or right (1) operand; new ranges are appended to `closed`."""
        words = self.unit.maps[side]
        own = {
            run: node("RANGE", (idx(1 << run.n_bits),), (next(ids), "CONTRACT"))
            for run in sorted(runs(words), key=lambda run: -run.first)
            if not run.is_lane
        }
        closed.extend(own.values())
        places = [self._bits(word, axis, own) for axis, word in enumerate(words)]
        mapping = {self.steps[0]: _sliced(places[1], 0, len(places[1]))}
        for run, r in self.bits.items():
            if run.axis == side:
                mapping[r] = _sliced(places[0], run.at, run.n_bits)
        return substitute(load, mapping)

    def _bits(self, word: str, axis: int, own: dict[Run, UOp]) -> list[tuple[UOp, int]]:
        """For each bit of a place along an axis: a range, and which of its bits."""
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


def _has(run: Run, number: int) -> bool:
    return run.first <= number < run.first + run.n_bits


def _sliced(bits: list[tuple[UOp, int]], first: int, n: int) -> UOp:
    """The number that bits first, first + 1, .. are, as a sum with one term for neighbours of one range."""
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
