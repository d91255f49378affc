"""Interpret LINEAR programs: one launch runs the program for every thread, workgroup and lane on host memory.

What it is for: the oracle of lowered programs where there is no hardware, with loops, gates, registers, local memory,
barriers and matrix tiles, also those that a warp shares. The launch sizes are the bounds of the program's SPECIALs.
`thread0` and `gidx0..` count workgroups, which run one after another. `lidx0..` count the lanes of a workgroup, which
run in lockstep from stop to stop. A stop is a BARRIER, or a SHUFFLE or WMMA in which lanes exchange values.
What it is not: parallel, or a model of a target's timing. It detects data races only by running lanes backwards.

Invariant: memory outside the PARAMs' sizes is never read or written: a wrong index raises IndexRangeError.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from monolect.backend.python.generate import Body, Generator
from monolect.base.dtype import DType
from monolect.base.errors import InternalError
from monolect.ir.check.arrays import garbage, storage
from monolect.ir.check.interp import evaluate
from monolect.ir.uop import UOp, toposort


class Kernel:
    """A translated LINEAR program. Raises InternalError for a bad program, CompileError for code of another target.

    With `backwards`, the lanes of a workgroup run in reverse order; a different result then shows a data race.
    """

    def __init__(self, linear: UOp, name: str, backwards: bool = False):
        self.name, self.backwards = name, backwards
        self.body: Body = Generator(linear, name).run()
        self.bounds = self._bounds(linear)
        self.scalars = [u for u in self.body.params if u.arg.name is not None]

    def _bounds(self, linear: UOp) -> list[UOp]:
        """Return the bound of each SPECIAL, in the order of `Body.specials`."""
        found: dict[str, UOp] = {}
        for u in toposort(linear):
            if u.op == "SPECIAL" and found.setdefault(u.arg, u.src[0]) is not u.src[0]:
                raise InternalError(
                    f"kernel {self.name}: {u.arg} has two bounds", expected=found[u.arg], found=u.src[0]
                )
        return [found[s] for s in self.body.specials]

    def run(self, args: Sequence[int]) -> None:
        """Launch once; `args[slot]` is the host address of a PARAM's memory, or the value of a symbolic Variable."""
        body, run = self.body, self.body.run
        for u in body.params:
            if u.arg.slot >= len(args):
                raise InternalError(f"kernel {self.name}: too few arguments", expected=u.arg.slot + 1, found=len(args))
        env = {u: storage(u.dtype).type(args[u.arg.slot]) for u in self.scalars}
        values = [env[u].item() if u in env else self._view(u, args[u.arg.slot], env) for u in body.params]
        counts = [self._number(b, env) for b in self.bounds]
        is_lane = [s.startswith("lidx") for s in body.specials]
        with np.errstate(all="ignore"):
            for group in product(*(range(1 if lane else n) for n, lane in zip(counts, is_lane, strict=True))):
                local = [np.full(prod(u.shape), garbage(u.dtype)) for u in body.local]
                lanes = list(
                    product(*(range(n) if lane else (g,) for n, g, lane in zip(counts, group, is_lane, strict=True)))
                )
                if self.backwards:
                    lanes.reverse()
                if body.has_stops:
                    numbers = [self._lane(ids, counts) for ids in lanes]
                    self._step([run(values, ids, local) for ids in lanes], numbers)
                else:
                    for ids in lanes:
                        run(values, ids, local)

    def _lane(self, ids: Sequence[int], counts: list[int]) -> int:
        """Return the number of a lane in its workgroup; lidx0 varies fastest."""
        out = 0
        for name, i, n in reversed(list(zip(self.body.specials, ids, counts, strict=True))):
            out = out * n + i if name.startswith("lidx") else out
        return out

    def _step(self, lanes: list[Any], numbers: list[int]) -> None:
        """Run the lanes of a workgroup from stop to stop until all have ended; `numbers` are the lane numbers."""
        order = sorted(range(len(lanes)), key=lambda k: numbers[k])
        handed: list[Any] = [None] * len(lanes)
        while True:
            met = [_sent(lane, x) for lane, x in zip(lanes, handed, strict=True)]
            stops = [stop for stop, _, _ in met]
            if len(set(stops)) > 1:
                found = ", ".join(f"lane {k} " + _where(s) for k, s in enumerate(stops[:8]))
                raise InternalError(
                    f"kernel {self.name}: the lanes of a workgroup diverge at a BARRIER",
                    expected="every lane at the same BARRIER",
                    found=found + (", ..." if len(stops) > 8 else ""),
                )
            if not stops or stops[0] is None:
                return
            handed = [None] * len(lanes)
            if met[0][1] is not None:
                do, n = met[0][1], met[0][1].threads
                for first in range(0, len(order), n):
                    warp = order[first : first + n]
                    if len(warp) < n:
                        raise InternalError(f"kernel {self.name}: a warp is not full", expected=n, found=len(warp))
                    for k, x in zip(warp, do([met[k][2] for k in warp]), strict=True):
                        handed[k] = x

    def _view(self, param: UOp, address: int, env: dict[UOp, Any]) -> Any:
        """Return the memory of a PARAM as a flat array of the size that its shape gives."""
        return view(address, prod(self._number(n, env) for n in param.shape), param.dtype)

    def _number(self, size: Any, env: dict[UOp, Any]) -> int:
        if size.__class__ is int:
            return size
        return int(size.value if size.op == "CONST" else evaluate(size, env))


def _sent(lane: Any, x: Any) -> tuple[int | None, Any, Any]:
    """Resume `lane` with the value `x` and return its next stop as (number, exchange, value); all None at the end."""
    try:
        return lane.send(x)
    except StopIteration:
        return None, None, None


def _where(stop: int | None) -> str:
    return "at the end" if stop is None else f"at barrier {stop}"


def view(address: int, n: int, d: DType) -> np.ndarray[Any, Any]:
    """Return `n` elements of host memory at `address` as an array. The caller keeps the memory alive."""
    kept = storage(d)
    if n == 0:
        return np.empty(0, kept)
    memory: Any = (ctypes.c_char * (n * kept.itemsize)).from_address(address)
    return np.frombuffer(memory, kept)


__all__ = ["Kernel", "view"]
