"""Buffers to time one kernel on: the sizes it has in the program, values of our own, fences around each.

What it is for: candidates of a search run on these, never on the user's data, and are compared with what the first of
them computed. What it is not: it does not protect against a kernel that leaves its buffers altogether; that is why it
lives in a process of its own.

Inputs are small whole numbers without zero: most sums of them are exact in any order, no quotient of them is undefined,
and integers stay inside the axes they index. What a kernel reads and writes is restored before each run.
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

FENCE_BYTES = 4096  # keeps the alignment that buffers have in a program
PATTERN = 65_537  # elements until values repeat: a prime, so that rows of common sizes differ
CHUNK = 1 << 16  # elements compared at a time
POISON = 0xA5


class Scratch:
    """Memory for each PARAM of `kernel` on `device`. Raises AllocationError when that is more than a fair share."""

    def __init__(self, kernel: UOp, device: Any):
        self.device = device
        order = toposort(kernel)
        self.params, self.written = _memory_of(order)
        read = {_base(u).arg.slot for u in order if u.op in ("LOAD", "ATOMICADD") and _base(u).op == "PARAM"}
        self.tolerance = TOLERANCE[min((u.dtype.bits for u in order if u.dtype.is_float), default=64)]
        if not fits(kernel):
            raise AllocationError("too large to search", expected="a quarter of the memory", found=kernel.arg.name)
        self.memory: dict[int, Any] = {}
        self.before: dict[int, np.ndarray] = {}  # of what is read and written
        self.wanted: dict[int, np.ndarray] = {}
        for slot, u in self.params.items():
            if u.arg.name is None:
                self.memory[slot] = self.device.alloc(_bytes(u) + 2 * FENCE_BYTES)
                self.raw(slot)[:] = POISON
                if slot in read:
                    self.values(slot)[:] = _values(u, order)
                if slot in read & self.written:
                    self.before[slot] = self.values(slot).copy()

    def raw(self, slot: int) -> np.ndarray:
        """The bytes of a buffer and its fences."""
        n = _bytes(self.params[slot]) + 2 * FENCE_BYTES
        return self.memory[slot].view(np.uint8)[:n]

    def values(self, slot: int) -> np.ndarray:
        u = self.params[slot]
        return self.raw(slot)[FENCE_BYTES:-FENCE_BYTES].view(storage(u.dtype))

    def commands(self, program: Program) -> Any:
        """The program bound to these buffers, and to the largest values of symbolic sizes."""
        n = 1 + max(self.params, default=-1)
        made = self.device.encode(*launching((program, range(n))))
        for slot in range(n):
            u = self.params.get(slot)
            if u is None:
                made.bind(slot, 0)  # no pass left a use of it
            else:
                made.bind(slot, u.arg.max if u.arg.name else self.memory[slot].address + FENCE_BYTES)
        return made

    def run(self, commands: Any) -> int:
        """One run on restored buffers; nanoseconds."""
        for slot, values in self.before.items():
            self.values(slot)[:] = values
        return int(commands.launch_timed()[0])

    def run_checked(self, commands: Any) -> tuple[int, str]:
        """(nanoseconds, "" or what is wrong). The first run of all decides what is right."""
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
    """Whether buffers for `kernel`, with the copies kept of what is written, take at most a quarter of the memory."""
    params, written = _memory_of(toposort(kernel))
    return sum(_bytes(u) * (3 if slot in written else 1) for slot, u in params.items()) <= machine_bytes() // 4


def _memory_of(order: list[UOp]) -> tuple[dict[int, UOp], set[int]]:
    """The PARAMs of a kernel by slot, and the slots it writes."""
    params = {u.arg.slot: u for u in order if u.op == "PARAM"}
    return params, {_base(u).arg.slot for u in order if u.op in ("STORE", "ATOMICADD") and _base(u).op == "PARAM"}


def difference(wanted: np.ndarray, found: np.ndarray, dtype: DType, tolerance: float) -> str:
    """The first element that differs by more than rounding explains, "" when none does."""
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
    """The largest finite magnitude, in chunks: a copy of a large array costs more than a kernel."""
    most = 1e-3
    for start in range(0, a.size, CHUNK):
        x = np.abs(a[start : start + CHUNK].astype(np.float64))
        most = max(most, float(x[np.isfinite(x)].max(initial=0)))
    return most


def _base(u: UOp) -> UOp:
    """The memory an access goes to."""
    view = u.src[0]
    while view.op != "PARAM" and view.src and view.op != "BUFFER":
        view = view.src[0]
    return view


def _bytes(u: UOp) -> int:
    return size_max(count(u.shape)) * u.dtype.itemsize if u.arg.name is None else 0


def _values(u: UOp, order: list[UOp]) -> np.ndarray:
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
    """The largest value of an integer input that no comparison with a constant refuses: it may be an index."""
    mine = {v for v in order if v.op == "LOAD" and _base(v) is u}
    limits = [
        v.src[1].value
        for v in order
        if v.op == "CMPLT" and v.src[1].op == "CONST" and (v.src[0] in mine or mine.intersection(v.src[0].src))
    ]
    return min((n - 1 for n in limits if n > 1), default=100)
