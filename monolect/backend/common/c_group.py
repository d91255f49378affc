"""Programs for workgroups of many lanes in a C-like language: scalars in registers, neighbours in memory at once.

What it is for: languages whose hardware has no vectors, but moves 16 bytes of a lane in one instruction (`wide_bytes`):
CUDA, HIP, Metal. The elements of a shaped load are covered by runs that lie side by side at an address the run's size
is proven to divide; an element that is read twice is loaded once. What it does not do: choose which lane reads what.

Invariant: buffers begin at multiples of `wide_bytes`: devices allocate so, and intermediates are placed so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from monolect.backend.common.c_language import Language
from monolect.backend.common.c_style import CLOSED, OPEN, Place, Renderer, ordered, plus, register
from monolect.backend.common.c_values import Value
from monolect.backend.common.shaped import address_parts
from monolect.base.dtype import DType, dtypes
from monolect.ir.bounds import min_max
from monolect.ir.normal import linear as linear_form
from monolect.ir.uop import UOp, toposort


class GroupRenderer(Renderer):
    """One kernel."""

    def __init__(self, language: Language, linear: UOp, name: str):
        if language.small_index and all(_is_small(u) for u in toposort(*linear.src)):
            language = replace(language, index=language.small_index)
        super().__init__(language, linear, name)

    def load(self, u: UOp) -> Value:
        """LOAD; where the offsets are known, by runs."""
        index, d = u.src[0], u.dtype
        at = self.offsets(index) if register(index) is None and index.shape == u.shape else None
        if at is None:
            return super().load(u)
        buffer, base, offsets = at
        gated = len(u.src) == 3
        alts = self.elements(u.src[1], u.shape) if gated else [""] * len(offsets)
        gates = self.gates(u.src[2], u.shape) if gated else [OPEN] * len(offsets)
        found: dict[tuple[str, int, str], str] = {}
        for gate in dict.fromkeys(gates):
            mine = {
                (o, a if gate != OPEN else ""): None for o, a, g in zip(offsets, alts, gates, strict=True) if g == gate
            }
            alt = {o: a for o, a in mine}
            # the same element with two values for where the gate is closed is read twice
            places = sorted(alt) if len(alt) == len(mine) and gate != CLOSED else []
            for start, n in runs(places, *self.alignment(index), self.widest(d)):
                xs = self._run(d, Place(buffer, plus(base, start), 1), gate, [alt[start + i] for i in range(n)])
                found.update({(gate, start + i, alt[start + i]): x for i, x in enumerate(xs)})
            for o, a in mine:
                if (gate, o, a) not in found:
                    found[gate, o, a] = self._gated(d, Place(buffer, plus(base, o), 0), gate, a)
        xs = [found[g, o, a if g != OPEN else ""] for o, a, g in zip(offsets, alts, gates, strict=True)]
        return self.join(xs, u.shape, d)

    def store(self, u: UOp) -> None:
        """STORE; where the offsets are known and no two are the same, by runs."""
        target, val = u.src[0], u.src[1]
        gate = u.src[2] if len(u.src) == 3 else None
        shape = np.broadcast_shapes(target.shape, val.shape, gate.shape if gate is not None else ())
        at = self.offsets(target) if register(target) is None and target.shape == shape else None
        if at is None or len(set(at[2])) < len(at[2]):
            super().store(u)
            return
        buffer, base, offsets = at
        d, values, gates = val.dtype, self.elements(val, shape), self.gates(gate, shape)
        for g in dict.fromkeys(gates):
            xs = {o: x for o, x, mine in zip(offsets, values, gates, strict=True) if mine == g}
            for start, n in runs(sorted(xs), *self.alignment(target), self.widest(d)):
                p = Place(buffer, plus(base, start), 1)
                self._guarded(g, self._store_run(d, p, [xs[start + i] for i in range(n)]))

    def offsets(self, index: UOp) -> tuple[str, str, list[int]] | None:
        """(buffer, base, the offset of every element) of a shaped access, or None where they are not constants."""
        if index.shape == () or len(index.src) < 2:
            return None
        base, offs, dynamic = self.address(index.src[1])
        if dynamic:
            return None
        return self.buffers[ordered(index.src[0])], base, np.broadcast_to(offs, index.shape).ravel().tolist()

    def alignment(self, index: UOp) -> tuple[int, int]:
        """(k, m): the base of the access is k more than a multiple of m; m is 0 where it is k."""
        base = address_parts(index.src[1], self.consts)[0]
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


def _is_small(u: UOp) -> bool:
    """Whether an index needs no more than 32 bits."""
    if u.dtype.kind != "x" or u.op == "STACK":
        return True
    low, high = min_max(u)
    return -(1 << 31) < low and high < 1 << 31
