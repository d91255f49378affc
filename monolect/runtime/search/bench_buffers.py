"""Allocate buffers to time one kernel on: with the program's sizes, generated values, and fences around each.

What it is for: candidates of a search run on these buffers, never on the user's data. Their results are compared with
those of the first candidate.
What it is not: it does not protect against a kernel that writes far outside of its buffers; so it runs in a separate
process.

Inputs are small integers without zero, so that most sums are exact in any order, no quotient is undefined, and integers
stay inside the axes that they index. A buffer that the kernel reads and writes is restored before each run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monolect.backend.base import Program, launching
from monolect.backend.common.host.memory import machine_bytes
from monolect.base.dtype import DType
from monolect.base.errors import AllocationError
from monolect.ir.bounds import size_max
from monolect.ir.check.arrays import storage
from monolect.ir.check.validate import TOLERANCE
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, toposort

FENCE_BYTES = 4096  # bytes before and after each buffer; a multiple of any alignment that buffers have
PATTERN = 65_537  # elements after which values repeat; a prime, so that rows of common sizes differ
CHUNK = 1 << 16  # elements compared at a time, to bound temporary memory
POISON = 0xA5  # byte in fences and in unwritten results; a changed fence is a store out of bounds


class Scratch:
    """Memory for each PARAM of `kernel` on `device`. Raises AllocationError if it exceeds a quarter of the machine's
    memory.
    """

    def __init__(self, kernel: UOp, device: Any):
        self.device = device
        order = toposort(kernel)
        self.params, self.written = _memory_of(order)
        read = {_base(u).arg.slot for u in order if u.op in ("LOAD", "ATOMICADD") and _base(u).op == "PARAM"}
        self.tolerance = TOLERANCE[min((u.dtype.bits for u in order if u.dtype.is_float), default=64)]
        if not fits(kernel):
            raise AllocationError("too large to search", expected="a quarter of the memory", found=kernel.arg.name)
        self.memory: dict[int, Any] = {}
        self.before: dict[int, np.ndarray] = {}  # initial values of slots that are read and written
        self.wanted: dict[int, np.ndarray] = {}  # results of the first run, by slot
        for slot, u in self.params.items():
            if u.arg.name is None:
                self.memory[slot] = self.device.alloc(_bytes(u) + 2 * FENCE_BYTES)
                self.raw(slot)[:] = POISON
                if slot in read:
                    self.values(slot)[:] = _values(u, order)
                if slot in read & self.written:
                    self.before[slot] = self.values(slot).copy()

    def raw(self, slot: int) -> np.ndarray:
        """Return the bytes of the buffer of PARAM `slot`, with its fences."""
        n = _bytes(self.params[slot]) + 2 * FENCE_BYTES
        return self.memory[slot].view(np.uint8)[:n]

    def values(self, slot: int) -> np.ndarray:
        """Return the elements of the buffer of PARAM `slot`, without its fences."""
        u = self.params[slot]
        return self.raw(slot)[FENCE_BYTES:-FENCE_BYTES].view(storage(u.dtype))

    def commands(self, program: Program) -> Any:
        """Return the program bound to these buffers, and to the largest values of symbolic sizes."""
        n = 1 + max(self.params, default=-1)
        made = self.device.encode(*launching((program, range(n))))
        for slot in range(n):
            u = self.params.get(slot)
            if u is None:
                made.bind(slot, 0)  # passes removed all uses of this PARAM
            else:
                made.bind(slot, u.arg.max if u.arg.name else self.memory[slot].address + FENCE_BYTES)
        return made

    def run(self, commands: Any) -> int:
        """Run once, with the buffers that the kernel reads and writes restored; return nanoseconds."""
        for slot, values in self.before.items():
            self.values(slot)[:] = values
        return int(commands.launch_timed()[0])

    def run_checked(self, commands: Any) -> tuple[int, str]:
        """Run once; return (nanoseconds, "" or a text about a wrong result). The first call sets the expected
        results.
        """
        for slot in self.written:
            self.raw(slot)[:] = POISON
        ns = self.run(commands)
        for slot in self.memory:
            raw = self.raw(slot)
            if (raw[:FENCE_BYTES] != POISON).any() or (raw[-FENCE_BYTES:] != POISON).any():
                raw[:FENCE_BYTES] = raw[-FENCE_BYTES:] = POISON
                return ns, f"a store outside of PARAM {slot}"
        if not self.wanted:
            self.wanted = {slot: self.values(slot).copy() for slot in self.written}
        for slot, wanted in self.wanted.items():
            if text := difference(wanted, self.values(slot), self.params[slot].dtype, self.tolerance):
                return ns, f"PARAM {slot}{text}"
        return ns, ""


def fits(kernel: UOp) -> bool:
    """Return whether buffers for `kernel`, with two copies of each written one, take at most a quarter of the machine's
    memory.
    """
    params, written = _memory_of(toposort(kernel))
    return sum(_bytes(u) * (3 if slot in written else 1) for slot, u in params.items()) <= machine_bytes() // 4


def _memory_of(order: list[UOp]) -> tuple[dict[int, UOp], set[int]]:
    """Return the PARAMs of a kernel by slot, and the slots that it writes."""
    params = {u.arg.slot: u for u in order if u.op == "PARAM"}
    return params, {_base(u).arg.slot for u in order if u.op in ("STORE", "ATOMICADD") and _base(u).op == "PARAM"}


def difference(wanted: np.ndarray, found: np.ndarray, dtype: DType, tolerance: float) -> str:
    """Return a text about the first element that differs by more than rounding explains; "" if there is none."""
    scale: float | None = None
    for start in range(0, wanted.size, CHUNK):
        a, b = wanted[start : start + CHUNK], found[start : start + CHUNK]
        if np.array_equal(a.view(np.uint8), b.view(np.uint8)):
            continue
        if dtype.is_float:
            scale = _scale(wanted) if scale is None else scale
            x, y = (v if v.dtype == np.float32 else v.astype(np.float64) for v in (a, b))
            with np.errstate(all="ignore"):
                near = np.abs(x - y) <= tolerance * scale
            if near.all():
                continue
            wrong = ~(near | (x == y) | (np.isnan(x) & np.isnan(y)))
        else:
            wrong = a != b
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            return f"[{start + i}]: {b[i]} instead of {a[i]}"
    return ""


def _scale(a: np.ndarray) -> float:
    """Return the largest finite magnitude. It works in chunks, as a copy of a large array costs more than a kernel."""
    most = 1e-3
    for start in range(0, a.size, CHUNK):
        x = np.abs(a[start : start + CHUNK].astype(np.float64))
        most = max(most, float(x[np.isfinite(x)].max(initial=0)))
    return most


def _base(u: UOp) -> UOp:
    """Return the PARAM or BUFFER that a LOAD, STORE or ATOMICADD accesses."""
    view = u.src[0]
    while view.op != "PARAM" and view.src and view.op != "BUFFER":
        view = view.src[0]
    return view


def _bytes(u: UOp) -> int:
    """Return the bytes of a PARAM at the largest sizes; 0 for a Variable."""
    return size_max(count(u.shape)) * u.dtype.itemsize if u.arg.name is None else 0


def _values(u: UOp, order: list[UOp]) -> np.ndarray:
    """Return input values for the PARAM `u`, flat."""
    n = size_max(count(u.shape))
    rng = np.random.default_rng(u.arg.slot)
    some = min(n, PATTERN)
    if u.dtype.is_float:
        values = rng.choice(np.array([-2, -1, 1, 2], np.float32), some)
    elif u.dtype.kind == "b":
        values = rng.integers(0, 2, some)
    else:
        values = rng.integers(0, min(u.dtype.max, _most(u, order)) + 1, some)
    return np.resize(values.astype(storage(u.dtype)), n)


def _most(u: UOp, order: list[UOp]) -> int:
    """Return the largest value to generate for the integer input `u`, which may be an index: the least constant above 1
    that it is compared with, minus 1; 100 if there is none.
    """
    mine = {v for v in order if v.op == "LOAD" and _base(v) is u}
    limits = [
        v.src[1].value
        for v in order
        if v.op == "CMPLT" and v.src[1].op == "CONST" and (v.src[0] in mine or mine.intersection(v.src[0].src))
    ]
    return min((n - 1 for n in limits if n > 1), default=100)


__all__ = ["Scratch", "difference", "fits"]
