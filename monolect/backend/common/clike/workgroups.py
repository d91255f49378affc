"""Render programs for workgroups in a C-like language: registers hold scalars, and memory accesses are wide.

What it is for: languages whose hardware has no vectors, but moves 16 bytes of a lane in one instruction (`wide_bytes`):
CUDA, HIP, Metal. All loads from one base are covered by runs: contiguous elements at an address that is known to be a
multiple of the run's size. An element that is read twice is loaded once.
What it does not do: distribute work to lanes.

Invariant: buffers and intermediates are aligned to `wide_bytes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from monolect.backend.common.clike.language import AsyncCopies, Language, MemoryUnits
from monolect.backend.common.clike.program import CLOSED, OPEN, Position, Renderer, plus
from monolect.backend.common.clike.values import Value
from monolect.backend.common.launch import align_bytes, bytes_at_launch, tensor_map, tensor_maps, workgroup_local_layout
from monolect.backend.common.shaped import address_parts, const_value, register_of, strip_after
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.base.matrix_units import BY_NAME, Cores
from monolect.base.target import MatrixUnit
from monolect.ir.bounds import min_max
from monolect.ir.check.arrays import tiles_in_warp
from monolect.ir.rewrite.normal import linear as linear_form
from monolect.ir.uop import UOp, idx, toposort


class Base(NamedTuple):
    """The base of an access, to which constant offsets are added."""

    buffer: UOp
    base: UOp | None  # variable part of the index; None: 0


Offsets = tuple[Base, list[int]]  # the base of an access, and the constant offset of each element from it


class GroupRenderer(Renderer):
    """Renders one kernel for a device with workgroups."""

    def __init__(self, language: Language, linear: UOp, name: str):
        if language.small_index and all(is_small(u) for u in toposort(*linear.src)):
            language = replace(language, index=language.small_index)
        self.maps = tensor_maps(linear.src)
        if self.maps:
            if language.bulk_copies is None:
                raise InternalError(f"{language.name} has no copies of boxes")
            bulk = self.bulk = language.bulk_copies
            more = (bulk.parameter.format(v=f"map{k}") for k in range(len(self.maps)))
            language = replace(language, arguments=(*language.arguments, *more))
        # number of buffers used round-robin -> boxes of each step: the copies before the loop are those of one step
        self.boxes_before_loop = Counter(
            u.arg.n_buffers for u in linear.src if u.op == "TMACOPY" and u.src[2] is idx(0)
        )
        super().__init__(language, linear, name)
        self.units_read_local = any(_reads_local_operands(u) for u in linear.src)
        self.copies = language.async_copies if any(_is_async(u) for u in linear.src) else None
        if self.copies is not None:
            self.functions_used[self.copies.functions] = None
        self.stores_local = any(u.op == "STORE" and _in_local(u.src[0]) for u in linear.src)
        self.pending_sums: dict[str, list[str]] = {}  # variables that asynchronous units add to -> their elements
        self.launch_local_bytes = bytes_at_launch(linear.src, language.static_local_bytes)
        self.segment = 0  # number of the current part of the program without a store, a barrier, or the end of a block
        self.loaded: dict[Base, dict[int, str]] = {}  # loads of the current segment: offset -> variable
        self.loads_by_segment: dict[tuple[int, Base], set[int]] = {}  # offsets that each segment loads
        segment = 0
        for u in linear.src:
            segment += _ends_segment(u)
            if (
                u.op == "LOAD"
                and not _is_async(u)
                and len(u.src) == 1
                and register_of(u.src[0]) is None
                and u.src[0].shape == u.shape
            ):
                if (at := self.offsets(u.src[0])) is not None:
                    self.loads_by_segment.setdefault((segment, at[0]), set()).update(at[1])

    def signature(self) -> str:
        head = super().signature()
        if self.launch_local_bytes:
            self.line(self.lang.local_at_launch.format(align=align_bytes(self.program)))
        if self.maps:
            self.functions_used[self.bulk.functions] = None
        for turns, n in self.boxes_before_loop.items():
            self.line(self.bulk.begin.format(v=f"arrived{turns}", turns=turns, n=n))
        return head

    def local_buffer(self, u: UOp, v: str, n: int) -> None:
        """Declare an array, or a part of the local memory that the launch reserves, if it does."""
        if not self.launch_local_bytes:
            super().local_buffer(u, v, n)
            return
        at = workgroup_local_layout(self.program)[0][u]
        self.line(self.lang.local_part.format(t=self.lang.stored(u.dtype), v=v, at=at))

    def instruction(self, u: UOp) -> None:
        if _ends_segment(u):
            self.segment += 1
            self.loaded = {}
        if self.pending_sums and not _may_overlap_products(u):
            self.line(self.memory_units.end)
            for v in self.pending_sums:
                self.line(self.memory_units.pin.format(v=v))
            self.pending_sums = {}
        if u.op == "BARRIER" and self.copies is not None:
            self.line(self.copies.wait)
        if u.op == "BARRIER" and self.maps:
            self._wait_for_boxes(u)
        if u.op == "BARRIER" and self.units_read_local and self.stores_local:
            self.line(self.memory_units.publish)
        if u.op == "TMACOPY":
            self._copy_box(u)
        else:
            super().instruction(u)

    def _copy_box(self, u: UOp) -> None:
        """Render TMACOPY, which one lane issues."""
        (to,), at = self.elements_of(u.src[0]), ", ".join(self.scalar(x) for x in u.src[4:])
        arrived, n_bytes = f"arrived{u.arg.n_buffers}", prod(u.arg.box) * u.src[1].dtype.itemsize
        gate = const_value(u.src[3], self.consts)
        self.line(
            self.bulk.copy.format(
                to=f"{to.buffer} + {to.start}", map=f"map{self.maps.index(tensor_map(u))}", v=arrived, n=n_bytes, at=at,
                turn=self.scalar(u.src[2]), gate=OPEN if gate is not None and gate else self.scalar(u.src[3]),
            )
        )  # fmt: skip

    def _wait_for_boxes(self, u: UOp) -> None:
        """Wait for the boxes of a step. Sources of the BARRIER are TMACOPYs before the loop, and the loop's RANGE."""
        step = next((s for s in u.src if s.op == "RANGE"), None)
        for turns in dict.fromkeys(s.arg.n_buffers for s in u.src if s.op == "TMACOPY"):
            assert step is not None
            self.line(self.bulk.wait.format(v=f"arrived{turns}", step=self.scalar(step)))

    def load(self, u: UOp) -> Value:
        """Render LOAD, by runs if the offsets are constants. `store` renders an asynchronous one."""
        if _is_async(u) and self.copies is not None:
            return Value([], 1)
        at = self.offsets(u.src[0]) if register_of(u.src[0]) is None and u.src[0].shape == u.shape else None
        if at is None:
            return super().load(u)
        if len(u.src) == 3:
            return self._load_gated_runs(u, *at)
        key, offsets = at
        if key not in self.loaded:
            # all offsets that are read from this base before the next store or barrier
            there = sorted(self.loads_by_segment.get((self.segment, key), set()).union(offsets))
            found = self.loaded[key] = {}
            for start, n in runs(there, *self.alignment(key.base), self.widest(u.dtype)):
                xs = self._run(u.dtype, self.position(key, start), OPEN, [""] * n)
                found.update({start + i: x for i, x in enumerate(xs)})
        return self.join([self.loaded[key][o] for o in offsets], u.shape, u.dtype)

    def _load_gated_runs(self, u: UOp, key: Base, offsets: list[int]) -> Value:
        """Render a gated LOAD by runs: all elements of a run have one gate, and each has one value if it is closed."""
        d, alts, gates = u.dtype, self.elements(u.src[1], u.shape), self.gates(u.src[2], u.shape)
        found: dict[tuple[str, int, str], str] = {}
        for gate in dict.fromkeys(gates):
            mine = dict.fromkeys((o, a) for o, a, g in zip(offsets, alts, gates, strict=True) if g == gate)
            alt = dict(mine.keys())
            covered = sorted(alt) if len(alt) == len(mine) and gate != CLOSED else []
            for start, n in runs(covered, *self.alignment(key.base), self.widest(d)):
                xs = self._run(d, self.position(key, start), gate, [alt[start + i] for i in range(n)])
                found.update({(gate, start + i, alt[start + i]): x for i, x in enumerate(xs)})
            for o, a in mine:
                if (gate, o, a) not in found:
                    found[gate, o, a] = self._gated(d, self.position(key, o), gate, a)
        return self.join([found[row] for row in zip(gates, offsets, alts, strict=True)], u.shape, d)

    def store(self, u: UOp) -> None:
        """Render STORE, by runs if the offsets are constants and distinct."""
        target, val = u.src[0], u.src[1]
        if _is_async(val) and self.copies is not None:
            to, found = self.offsets(target), self.offsets(val.src[0])
            if to is not None and found is not None:
                self._copy_async(to, found, val.dtype, self.copies)
                return
            self.vals[val] = super().load(val)  # through registers, since the lane's offsets are known only at run time
        gate = u.src[2] if len(u.src) == 3 else None
        shape = np.broadcast_shapes(target.shape, val.shape, gate.shape if gate is not None else ())
        at = self.offsets(target) if register_of(target) is None and target.shape == shape else None
        if at is None or len(set(at[1])) < len(at[1]):
            super().store(u)
            return
        key, offsets = at
        d, values, gates = val.dtype, self.elements(val, shape), self.gates(gate, shape)
        for g in dict.fromkeys(gates):
            xs = {o: x for o, x, mine in zip(offsets, values, gates, strict=True) if mine == g}
            for start, n in runs(sorted(xs), *self.alignment(key.base), self.widest(d)):
                self._guarded(g, self._store_run(d, self.position(key, start), [xs[start + i] for i in range(n)]))

    def multiply_tiles(self, u: UOp) -> Value:
        """Render WMMA of a matrix unit of a warp: a call for each tile."""
        if u.arg[0] not in self.lang.units:
            return super().multiply_tiles(u)
        unit = BY_NAME[u.arg[0]]
        if unit.from_memory:
            return self._multiply_from_memory(u, unit)
        held = [self.elements(s) for s in u.src]
        self.functions_used[self.lang.units[unit.name]] = None
        out = [""] * len(held[2])
        for at in tiles_in_warp(unit, [s.shape for s in u.src], u.arg[1]):
            operands = [
                self.lang.build_wide.format(t=self.lang.type(s.dtype), n=len(i), x=", ".join(xs[k] for k in i))
                for s, xs, i in zip(u.src, held, at, strict=True)
            ]
            self.n += 1
            t = self.lang.wide.format(t=self.lang.type(u.dtype), n=len(at[2]))
            self.line(self.lang.declare.format(t=t, v=f"v{self.n}", x=f"{unit.name}({', '.join(operands)})"))
            for i, k in enumerate(at[2]):
                out[k] = self.lang.lane_wide.format(v=f"v{self.n}", i=i)
        return self.join(out, u.shape, u.dtype)

    def _copy_async(self, to: Offsets, found: Offsets, d: DType, copies: AsyncCopies) -> None:
        """Render a STORE of a LOAD as asynchronous copies of runs; runs below 4 bytes go through registers.

        `to`, `found`: base and offsets of the elements in local memory and in memory.
        """
        i = 0
        while i < len(to[1]):
            n = min(self.widest(d), len(to[1]) - i)
            while not all(self._is_run(key, offsets[i : i + n]) for key, offsets in (to, found)):
                n -= 1
            at, source = (self.position(key, offsets[i]) for key, offsets in (to, found))
            if n * d.itemsize < 4:
                self.line(self._assign(d, at, self._gated(d, source, OPEN, "")))
            else:
                to_, p = (f"{x.buffer} + {x.start}" for x in (at, source))
                self.line(copies.copy.format(n=n * d.itemsize, to=to_, p=p))
            i += n

    def _is_run(self, key: Base, offsets: list[int]) -> bool:
        """Whether the offsets are contiguous, their number is a power of two, and the address is a multiple of it."""
        n, (k, m) = len(offsets), self.alignment(key.base)
        if n & (n - 1) or offsets != list(range(offsets[0], offsets[0] + n)):
            return False
        return m % n == 0 and (k + offsets[0]) % n == 0

    @property
    def memory_units(self) -> MemoryUnits:
        """The language's texts for matrix units that read local memory."""
        if self.lang.memory_units is None:
            raise InternalError(f"{self.lang.name} has no matrix unit that reads local memory")
        return self.lang.memory_units

    def _multiply_from_memory(self, u: UOp, unit: MatrixUnit) -> Value:
        """Render WMMA of a unit that reads its operands from local memory and runs asynchronously.

        Consecutive products add to the same variable. The program waits for the sums before another instruction.
        """
        words, itemsize = self.memory_units, unit.a.itemsize
        self.functions_used[words.functions] = self.functions_used[self.lang.units[unit.name]] = None
        sides = [
            [
                (words.panels if cores.panels else words.operand).format(
                    p=f"{p.buffer} + {p.start}", lead=cores.lead * itemsize, stride=cores.stride * itemsize
                )
                for p in self.elements_of(at)
            ]
            for at, cores in zip(u.src[:2], (Cores(*x) for x in u.arg[2:]), strict=True)
        ]
        transposed = ", ".join(str(int(x[2])) for x in u.arg[2:])
        xs, calls, is_new = self.elements(u.src[2]), [], False
        out = [""] * len(xs)
        once = sum(u.src[2] in x.src for x in self.program) == 1
        for a, b, c in tiles_in_warp(unit, [s.shape for s in u.src], u.arg[1]):
            mine = [xs[k] for k in c]
            v = next((v for v, old in self.pending_sums.items() if once and old == mine), "")
            if not v:
                self.n, v, is_new = self.n + 1, f"v{self.n + 1}", True
                t = self.lang.type(u.dtype)
                made = self.lang.build_wide.format(t=t, n=len(c), x=", ".join(mine))
                self.line(f"{self.lang.wide.format(t=t, n=len(c))} {v} = {made};")
                self.line(words.pin.format(v=v))
                self.pending_sums[v] = [self.lang.lane_wide.format(v=v, i=i) for i in range(len(c))]
            calls.append(f"{unit.name}<{transposed}>({v}, {sides[0][a[0]]}, {sides[1][b[0]]});")
            for k, x in zip(c, self.pending_sums[v], strict=True):
                out[k] = x
        for text in ([words.begin] if is_new else []) + calls:
            self.line(text)
        return self.join(out, u.shape, u.dtype)

    def offsets(self, index: UOp) -> Offsets | None:
        """Return (base, offset of every element from it), or None if the offsets are not constants."""
        if len(index.src) < 2:
            return None
        base, offs, dynamic = address_parts(index.src[1], self.consts)
        if dynamic:
            return None
        if base is not None and base.op == "ADD" and base.src[1].op == "CONST":
            base, offs = base.src[0], offs + base.src[1].arg[0]
        return Base(strip_after(index.src[0]), base), np.broadcast_to(offs, index.shape).ravel().tolist()

    def position(self, key: Base, offset: int) -> Position:
        """Return the Position of the element at an offset from a base."""
        return Position(
            self.buffers[key.buffer], plus(self.scalar(key.base) if key.base is not None else "", offset), 1
        )

    def alignment(self, base: UOp | None) -> tuple[int, int]:
        """Return (k, m): the base is k plus a multiple of m. If m is 0, it is k."""
        if base is None:
            return 0, 0
        k, terms = linear_form(base)
        return k, gcd(*(c for _, c in terms))

    def widest(self, d: DType) -> int:
        """Return the most elements of a run."""
        return max(1, min(self.lang.wide_lanes, self.lang.wide_bytes // d.itemsize))

    def _run(self, d: DType, p: Position, gate: str, alts: list[str]) -> list[str]:
        """Load a run and return its elements as scalars; `alts` are their values if the gate is closed."""
        n, t = len(alts), self.lang.stored(d)
        if n == 1:
            return [self._gated(d, p, gate, alts[0])]
        wide = self.lang.wide.format(t=t, n=n)
        x = self.lang.load_wide.format(n=n, t=t, p=f"{p.buffer} + {p.start}")
        if gate != OPEN:
            x = f"({gate} ? {x} : {self.lang.build_wide.format(n=n, t=t, x=', '.join(alts))})"
        self.n += 1
        self.line(self.lang.declare.format(t=wide, v=f"v{self.n}", x=x))
        lanes = [self.lang.lane_wide.format(v=f"v{self.n}", i=i) for i in range(n)]
        return [self.emit(d, 1, self._from_memory(d, x)) for x in lanes] if d is dtypes.bool else lanes

    def _store_run(self, d: DType, p: Position, xs: list[str]) -> str:
        n = len(xs)
        if n == 1:
            return self._assign(d, p, xs[0])
        xs = [self.lang.cast(x, d, dtypes.uint8, 1) for x in xs] if d is dtypes.bool else xs
        t = self.lang.stored(d)
        x = self.lang.build_wide.format(n=n, t=t, x=", ".join(xs))
        return self.lang.store_wide.format(n=n, t=t, p=f"{p.buffer} + {p.start}", x=x) + ";"


def runs(offsets: Sequence[int], k: int, m: int, widest: int) -> list[tuple[int, int]]:
    """Return (first offset, length) of runs that cover the sorted `offsets` from a base that is `k` modulo `m`.

    Each length is a power of two, at most `widest`, and the address of a run is a multiple of it.
    Example: `runs([0, 1, 2, 3, 6, 7], 0, 2, 4) == [(0, 2), (2, 2), (6, 2)]`.
    """
    out, at, here = [], 0, set(offsets)
    while at < len(offsets):
        start, n = offsets[at], widest
        while n > 1 and not (m % n == 0 and (k + start) % n == 0 and all(start + i in here for i in range(n))):
            n //= 2
        out.append((start, n))
        at += n
    return out


def _ends_segment(u: UOp) -> bool:
    """Whether values that were loaded before `u` may be stale after it, or out of scope."""
    if u.op == "TMACOPY":
        return True
    if u.op in ("STORE", "ATOMICADD"):
        return register_of(u.src[0]) is None
    return u.op in ("BARRIER", "RANGE", "END", "IF", "ENDIF")


def _in_local(view: UOp) -> bool:
    """Whether `view` is local memory."""
    memory = strip_after(view.src[0]) if view.op == "INDEX" else strip_after(view)
    return memory.op == "BUFFER" and memory.arg.addrspace == "LOCAL"


def _is_async(u: UOp) -> bool:
    """Whether `u` is an asynchronous load to local memory, which needs no registers."""
    return u.op == "LOAD" and u.arg is not None and u.arg.pipelined == "async"


def _reads_local_operands(u: UOp) -> bool:
    """Whether `u` is a WMMA whose operands are in local memory."""
    return u.op == "WMMA" and u.arg[0] in BY_NAME and BY_NAME[u.arg[0]].from_memory


def _may_overlap_products(u: UOp) -> bool:
    """Whether `u` may run before asynchronous products end: it is such a product, or reads no sum and no memory."""
    return (
        _reads_local_operands(u)
        or u.op in ("CONST", "STACK", "INDEX", "AFTER")
        or (u.dtype.kind == "x" and u.op != "LOAD")
    )


def is_small(u: UOp) -> bool:
    """Whether an index fits into 32 bits; other values count as small, too."""
    if u.dtype.kind != "x" or u.op == "STACK":
        return True
    low, high = min_max(u)
    return -(1 << 31) < low and high < 1 << 31


__all__ = ["Base", "GroupRenderer", "is_small", "runs"]
