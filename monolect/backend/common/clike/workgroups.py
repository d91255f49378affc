"""Programs for workgroups of many lanes in a C-like language: scalars in registers, neighbours in memory at once.

What it is for: languages whose hardware has no vectors, but moves 16 bytes of a lane in one instruction (`wide_bytes`):
CUDA, HIP, Metal. The elements of a shaped load are covered by runs that lie side by side at an address the run's size
is proven to divide, all loads from one base together; an element that is read twice is loaded once. What it does not
do: choose which lane reads what.

Invariant: buffers begin at multiples of `wide_bytes`: devices allocate so, and intermediates are placed so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from monolect.backend.common.clike.language import AsyncCopies, Language, MemoryUnits
from monolect.backend.common.clike.program import CLOSED, OPEN, Place, Renderer, plus
from monolect.backend.common.clike.values import Value
from monolect.backend.common.launch import align_bytes, bytes_at_launch, local_places, tensor_map, tensor_maps
from monolect.backend.common.shaped import address_parts, const_value, ordered, register_of
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.base.matrix_units import BY_NAME, Cores
from monolect.base.target import MatrixUnit
from monolect.ir.bounds import min_max
from monolect.ir.check.arrays import tiles_in_warp
from monolect.ir.rewrite.normal import linear as linear_form
from monolect.ir.uop import UOp, idx, toposort


class Base(NamedTuple):
    """What offsets of an access are from."""

    buffer: UOp
    base: UOp | None


class GroupRenderer(Renderer):
    """One kernel."""

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
        # how many boxes of each step come to so many blocks in turns: one of them is asked for before the loop
        self.boxes = Counter(u.arg.n_buffers for u in linear.src if u.op == "TMACOPY" and u.src[2] is idx(0))
        super().__init__(language, linear, name)
        self.reads_memory = any(_of_memory(u) for u in linear.src)
        self.copies = language.async_copies if any(_is_async(u) for u in linear.src) else None
        self.stores_local = any(u.op == "STORE" and _in_local(u.src[0]) for u in linear.src)
        self.sums: dict[str, list[str]] = {}  # what units that work by themselves add to, with its elements
        self.at_launch = bytes_at_launch(linear.src, language.most_local_bytes)
        self.segment = 0  # stretches of the program without a store, a barrier, or the end of a block
        self.loaded: dict[Base, dict[int, str]] = {}  # what was read in the present one
        self.together: dict[tuple[int, Base], set[int]] = {}  # what is read in each
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
                    self.together.setdefault((segment, at[0]), set()).update(at[1])

    def signature(self) -> str:
        head = super().signature()
        if self.at_launch:
            self.line(self.lang.local_at_launch.format(align=align_bytes(self.program)))
        if self.maps:
            self.demanded[self.bulk.functions] = None
        for turns, n in self.boxes.items():
            self.line(self.bulk.begin.format(v=f"arrived{turns}", turns=turns, n=n))
        return head

    def local_buffer(self, u: UOp, v: str, n: int) -> None:
        """An array of its own, or where a launch must ask for local memory a part of that."""
        if not self.at_launch:
            super().local_buffer(u, v, n)
            return
        at = local_places(self.program)[0][u]
        self.line(self.lang.local_part.format(t=self.lang.stored(u.dtype), v=v, at=at))

    def instruction(self, u: UOp) -> None:
        if _ends_segment(u):
            self.segment += 1
            self.loaded = {}
        if self.sums and not _goes_on(u):
            self.line(self.memory_units.end)
            for v in self.sums:
                self.line(self.memory_units.pin.format(v=v))
            self.sums = {}
        if u.op == "BARRIER" and self.copies is not None:
            self.line(self.copies.wait)
        if u.op == "BARRIER" and self.maps:
            self._wait_for_boxes(u)
        if u.op == "BARRIER" and self.reads_memory and self.stores_local:
            self.line(self.memory_units.publish)
        if u.op == "TMACOPY":
            self._copy_box(u)
        else:
            super().instruction(u)

    def _copy_box(self, u: UOp) -> None:
        """TMACOPY, by one lane."""
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
        """Those of the step: the BARRIER's sources have those before the loop, and the loop."""
        step = next((s for s in u.src if s.op == "RANGE"), None)
        for turns in dict.fromkeys(s.arg.n_buffers for s in u.src if s.op == "TMACOPY"):
            assert step is not None
            self.line(self.bulk.wait.format(v=f"arrived{turns}", step=self.scalar(step)))

    def load(self, u: UOp) -> Value:
        """LOAD; where the offsets are known, by runs. One to local memory is the STORE's."""
        if _is_async(u) and self.copies is not None:
            return Value([], 1)
        at = self.offsets(u.src[0]) if register_of(u.src[0]) is None and u.src[0].shape == u.shape else None
        if at is None:
            return super().load(u)
        if len(u.src) == 3:
            return self._load_gated_runs(u, *at)
        key, offsets = at
        if key not in self.loaded:
            # all that is read from this base before the next store or barrier
            there = sorted(self.together.get((self.segment, key), set()).union(offsets))
            found = self.loaded[key] = {}
            for start, n in runs(there, *self.alignment(key.base), self.widest(u.dtype)):
                xs = self._run(u.dtype, self.place(key, start), OPEN, [""] * n)
                found.update({start + i: x for i, x in enumerate(xs)})
        return self.join([self.loaded[key][o] for o in offsets], u.shape, u.dtype)

    def _load_gated_runs(self, u: UOp, key: Base, offsets: list[int]) -> Value:
        """The same under a gate: a run has one gate, and an element has one value for where it is closed."""
        d, alts, gates = u.dtype, self.elements(u.src[1], u.shape), self.gates(u.src[2], u.shape)
        found: dict[tuple[str, int, str], str] = {}
        for gate in dict.fromkeys(gates):
            mine = dict.fromkeys((o, a) for o, a, g in zip(offsets, alts, gates, strict=True) if g == gate)
            alt = dict(mine.keys())
            places = sorted(alt) if len(alt) == len(mine) and gate != CLOSED else []
            for start, n in runs(places, *self.alignment(key.base), self.widest(d)):
                xs = self._run(d, self.place(key, start), gate, [alt[start + i] for i in range(n)])
                found.update({(gate, start + i, alt[start + i]): x for i, x in enumerate(xs)})
            for o, a in mine:
                if (gate, o, a) not in found:
                    found[gate, o, a] = self._gated(d, self.place(key, o), gate, a)
        return self.join([found[row] for row in zip(gates, offsets, alts, strict=True)], u.shape, d)

    def store(self, u: UOp) -> None:
        """STORE; where the offsets are known and no two are the same, by runs."""
        target, val = u.src[0], u.src[1]
        if _is_async(val) and self.copies is not None:
            self._copy_by_itself(target, val, self.copies)
            return
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
                self._guarded(g, self._store_run(d, self.place(key, start), [xs[start + i] for i in range(n)]))

    def multiply_tiles(self, u: UOp) -> Value:
        """WMMA of a unit that a warp has in common: a call for each tile of what this lane holds."""
        if u.arg[0] not in self.lang.units:
            return super().multiply_tiles(u)
        unit = BY_NAME[u.arg[0]]
        if unit.from_memory:
            return self._multiply_memory(u, unit)
        held = [self.elements(s) for s in u.src]
        self.demanded[self.lang.units[unit.name]] = None
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

    def _copy_by_itself(self, target: UOp, load: UOp, copies: AsyncCopies) -> None:
        """STORE of a LOAD, without registers where a run of both has 4 bytes at least."""
        self.demanded[copies.functions] = None
        to, found = self.offsets(target), self.offsets(load.src[0])
        if to is None or found is None:
            raise InternalError(f"{self.lang.name}: a copy between places that are not known", found=repr(load))
        d, i = load.dtype, 0
        while i < len(to[1]):
            n = min(self.widest(d), len(to[1]) - i)
            while not all(self._is_run(key, offsets[i : i + n]) for key, offsets in (to, found)):
                n -= 1
            at, source = (self.place(key, offsets[i]) for key, offsets in (to, found))
            if n * d.itemsize < 4:
                self.line(self._assign(d, at, self._gated(d, source, OPEN, "")))
            else:
                to_, p = (f"{x.buffer} + {x.start}" for x in (at, source))
                self.line(copies.copy.format(n=n * d.itemsize, to=to_, p=p))
            i += n

    def _is_run(self, key: Base, offsets: list[int]) -> bool:
        """Whether the offsets lie side by side, at an address that their number, a power of two, divides."""
        n, (k, m) = len(offsets), self.alignment(key.base)
        if n & (n - 1) or offsets != list(range(offsets[0], offsets[0] + n)):
            return False
        return m % n == 0 and (k + offsets[0]) % n == 0

    @property
    def memory_units(self) -> MemoryUnits:
        """How the language uses units that read local memory."""
        if self.lang.memory_units is None:
            raise InternalError(f"{self.lang.name} has no matrix unit that reads local memory")
        return self.lang.memory_units

    def _multiply_memory(self, u: UOp, unit: MatrixUnit) -> Value:
        """The same of a unit that reads its operands from local memory, and works on: sums are waited for when another
        instruction follows. Products that follow each other add to the same variable.
        """
        words, itemsize = self.memory_units, unit.a.itemsize
        self.demanded[words.functions] = self.demanded[self.lang.units[unit.name]] = None
        sides = [
            [
                (words.panels if cores.panels else words.operand).format(
                    p=f"{p.buffer} + {p.start}", lead=cores.lead * itemsize, stride=cores.stride * itemsize
                )
                for p in self.elements_of(at)
            ]
            for at, cores in zip(u.src[:2], (Cores(*x) for x in u.arg[2:]), strict=True)
        ]
        turned = ", ".join(str(int(x[2])) for x in u.arg[2:])
        xs, calls, is_new = self.elements(u.src[2]), [], False
        out = [""] * len(xs)
        once = sum(u.src[2] in x.src for x in self.program) == 1
        for a, b, c in tiles_in_warp(unit, [s.shape for s in u.src], u.arg[1]):
            mine = [xs[k] for k in c]
            v = next((v for v, old in self.sums.items() if once and old == mine), "")
            if not v:
                self.n, v, is_new = self.n + 1, f"v{self.n + 1}", True
                t = self.lang.type(u.dtype)
                made = self.lang.build_wide.format(t=t, n=len(c), x=", ".join(mine))
                self.line(f"{self.lang.wide.format(t=t, n=len(c))} {v} = {made};")
                self.line(words.pin.format(v=v))
                self.sums[v] = [self.lang.lane_wide.format(v=v, i=i) for i in range(len(c))]
            calls.append(f"{unit.name}<{turned}>({v}, {sides[0][a[0]]}, {sides[1][b[0]]});")
            for k, x in zip(c, self.sums[v], strict=True):
                out[k] = x
        for text in ([words.begin] if is_new else []) + calls:
            self.line(text)
        return self.join(out, u.shape, u.dtype)

    def offsets(self, index: UOp) -> tuple[Base, list[int]] | None:
        """(base, the offset from it of every element), or None where they are not constants."""
        if len(index.src) < 2:
            return None
        base, offs, dynamic = address_parts(index.src[1], self.consts)
        if dynamic:
            return None
        if base is not None and base.op == "ADD" and base.src[1].op == "CONST":
            base, offs = base.src[0], offs + base.src[1].arg[0]
        return Base(ordered(index.src[0]), base), np.broadcast_to(offs, index.shape).ravel().tolist()

    def place(self, key: Base, offset: int) -> Place:
        """Where an element lies."""
        return Place(self.buffers[key.buffer], plus(self.scalar(key.base) if key.base is not None else "", offset), 1)

    def alignment(self, base: UOp | None) -> tuple[int, int]:
        """(k, m): the base is k more than a multiple of m; m is 0 where it is k."""
        if base is None:
            return 0, 0
        k, terms = linear_form(base)
        return k, gcd(*(c for _, c in terms))

    def widest(self, d: DType) -> int:
        """Elements of the largest run."""
        return max(1, min(self.lang.wide_lanes, self.lang.wide_bytes // d.itemsize))

    def _run(self, d: DType, p: Place, gate: str, alts: list[str]) -> list[str]:
        """The elements of a run, as scalars."""
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

    def _store_run(self, d: DType, p: Place, xs: list[str]) -> str:
        n = len(xs)
        if n == 1:
            return self._assign(d, p, xs[0])
        xs = [self.lang.cast(x, d, dtypes.uint8, 1) for x in xs] if d is dtypes.bool else xs
        t = self.lang.stored(d)
        x = self.lang.build_wide.format(n=n, t=t, x=", ".join(xs))
        return self.lang.store_wide.format(n=n, t=t, p=f"{p.buffer} + {p.start}", x=x) + ";"


def runs(offsets: Sequence[int], k: int, m: int, widest: int) -> list[tuple[int, int]]:
    """(first offset, length) of runs that cover the sorted `offsets` from a base that is `k` modulo `m`: each length is
    a power of two, at most `widest`, and divides the address.
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
    """Whether what was read before may be something else after."""
    if u.op == "TMACOPY":
        return True
    if u.op in ("STORE", "ATOMICADD"):
        return register_of(u.src[0]) is None
    return u.op in ("BARRIER", "RANGE", "END", "IF", "ENDIF")


def _in_local(view: UOp) -> bool:
    """Whether it is a place in local memory."""
    memory = ordered(view.src[0]) if view.op == "INDEX" else ordered(view)
    return memory.op == "BUFFER" and memory.arg.addrspace == "LOCAL"


def _is_async(u: UOp) -> bool:
    """Whether it is a load to local memory, without registers."""
    return u.op == "LOAD" and u.arg is not None and u.arg.pipelined == "async"


def _of_memory(u: UOp) -> bool:
    """Whether it is a product of operands in local memory."""
    return u.op == "WMMA" and u.arg[0] in BY_NAME and BY_NAME[u.arg[0]].from_memory


def _goes_on(u: UOp) -> bool:
    """Whether units that work by themselves may go on while this is done: it reads no sum and no memory."""
    return _of_memory(u) or u.op in ("CONST", "STACK", "INDEX", "AFTER") or (u.dtype.kind == "x" and u.op != "LOAD")


def is_small(u: UOp) -> bool:
    """Whether an index needs no more than 32 bits."""
    if u.dtype.kind != "x" or u.op == "STACK":
        return True
    low, high = min_max(u)
    return -(1 << 31) < low and high < 1 << 31
