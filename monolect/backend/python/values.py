"""Execute the instructions of a LINEAR program on NumPy values and memory; generated programs call these functions.

What it is for: one function per pure op, and loads, stores and atomic adds that check every index.
What it is not: control flow, which is Python's own (`generate`), or a second definition of an op: its meaning is its
row in the op table.

Invariant: a value of dtype `d` is a Python int (scalar `index`), a Python bool, or a NumPy scalar or array of
`storage(d)`. No function accesses memory outside its bounds, or where a gate is false.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from monolect.base.dtype import DType
from monolect.base.errors import IndexRangeError, InternalError
from monolect.base.matrix_units import BY_NAME, Cores
from monolect.ir.check.arrays import (
    add_at,
    add_product,
    bitcast,
    cast,
    multiply_in_warp,
    multiply_tiles,
    reduce_array,
    scan_array,
    storage,
    tiles_in_warp,
)
from monolect.ir.ops import ELEMENTWISE, ROWS, TmaCopyArg
from monolect.ir.uop import UOp

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
_NOWHERE = np.iinfo(np.int64).min  # a position that every check refuses
_FIRST_ONLY = frozenset(("RESHAPE", "EXPAND", "BITCAST", "REDUCE", "SHRINK"))  # their other sources are shapes


# ---- pure ops --------------------------------------------------------------------------------------------------------
def operands(u: UOp) -> tuple[UOp, ...]:
    """Return the sources of `u` whose values its function takes."""
    return u.src[:1] if u.op in _FIRST_ONLY else u.src


def function(u: UOp, kernel: str) -> Function | None:
    """Return the function from the operand values of the pure op `u` to its value; None if `u` is not pure or has no
    meaning.
    """
    op, shape = u.op, u.shape
    if op in ELEMENTWISE:
        return _elementwise(op, tuple(s.dtype for s in u.src), u.dtype)
    if op == "RESHAPE":
        return lambda x: np.reshape(x, shape)
    if op == "PERMUTE":
        return lambda x: np.transpose(x, u.arg)
    if op == "EXPAND":
        return lambda x: np.broadcast_to(x, shape)
    if op == "STACK":
        return _stack(u)
    if op == "INDEX":
        return lambda x, *at: _gather(kernel, x, at)
    if op == "BITCAST":
        old, new = storage(u.src[0].dtype), u.dtype
        return lambda x: bitcast(np.asarray(x, old), new)
    if op == "REDUCE" and len(u.src) == 1:
        (how, axes), d = u.arg, u.dtype
        return lambda x: reduce_array(how, d, x, axes)
    if op == "SCAN":
        (how, axis), d = u.arg, u.dtype
        return lambda x: scan_array(how, d, x, axis)
    if op == "SHRINK":
        window = tuple(slice(o, o + n) for o, n in zip(u.src[1].sizes, shape, strict=True))
        return lambda x: x[window]
    if op == "WMMA" and u.arg[0] not in BY_NAME:  # a tile shared by a warp is no function of one lane's values
        return _multiply_tiles(u)
    return None


@cache
def _elementwise(op: str, given: tuple[DType, ...], d: DType) -> Function:
    if op == "CAST":
        old, kept = given[0], storage(given[0])
        return lambda x: cast(np.asarray(x, kept), old, d)
    meaning, last, out = ROWS[op].meaning, given[-1], storage(d)
    if meaning is None:
        raise InternalError(f"the op table gives {op} no meaning")
    if op != "WHERE" and any(g.is_float and g.bits < 32 for g in given):
        return lambda *xs: np.asarray(meaning(last, *(np.asarray(x).astype(np.float32) for x in xs))).astype(out)
    if op != "THREEFRY" and all(g.kind in "fiu" for g in given):
        return partial(meaning, last)  # NumPy's own types: the result has the right one
    return lambda *xs: meaning(last, *xs).astype(out, copy=False)


def _stack(u: UOp) -> Function:
    kept = storage(u.dtype)
    if not u.src or u.src[0].shape == ():
        return lambda *xs: np.array(xs, kept)
    return lambda *xs: np.stack([np.asarray(x, kept) for x in xs])


def _multiply_tiles(u: UOp) -> Function:
    a, b, acc = (s.shape for s in u.src)
    n = u.arg[1]
    last = {x[-n:] for x in (a, b) if x}  # a scalar broadcasts to a tile
    if any(len(x) < n for x in last) or len(last) > 1 or np.broadcast_shapes(a[:-n], b[:-n], acc) != acc:
        expected = f"the same last {n} axes, the others broadcast to those of acc"
        raise InternalError("WMMA: tiles do not fit together", expected=expected, found=f"{a}, {b}, {acc}")
    return partial(multiply_tiles, u.dtype, n_axes=n)


class Shuffle:
    """SHUFFLE: each lane gets the value of the lane whose number differs in `bits`, among `threads` neighbours."""

    def __init__(self, u: UOp):
        self.bits, self.threads = u.arg, 2 * u.arg

    def __call__(self, lanes: list[Any]) -> list[Any]:
        """Return the value that each lane gets, from the values of all lanes."""
        return [lanes[k ^ self.bits] for k in range(self.threads)]


class Exchange:
    """WMMA of a matrix unit whose tiles are spread over `threads` lanes."""

    def __init__(self, u: UOp):
        self.u, self.unit = u, BY_NAME[u.arg[0]]
        self.threads = self.unit.threads
        self.tiles = tiles_in_warp(self.unit, [s.shape for s in u.src], u.arg[1])

    def __call__(self, lanes: list[tuple[Array, Array, Array]]) -> list[Array]:
        """Return the part of the sum that each lane gets, from the parts (a, b, acc) of all lanes."""
        held = [np.stack([np.ravel(lane[k]) for lane in lanes]) for k in range(3)]
        out = np.empty_like(held[2])
        for at in self.tiles:
            out[:, at[2]] = multiply_in_warp(self.unit, *(x[:, i] for x, i in zip(held, at, strict=True)))
        return [x.reshape(self.u.shape) for x in out]


class MemoryExchange(Exchange):
    """WMMA of a matrix unit that reads its operands from local memory."""

    def __init__(self, u: UOp):
        super().__init__(u)
        self.cores = [Cores(*x) for x in u.arg[2:]]

    def __call__(self, lanes: list[Any]) -> list[Array]:
        """Return the part of the sum that each lane gets, from what all lanes give: (a, b, part of acc).

        a and b are (Access, memory, start positions); all lanes must give the same start positions.
        """
        acc = np.stack([np.ravel(lane[2]) for lane in lanes])
        out = np.empty_like(acc)
        for a, b, c in self.tiles:
            left, right = self._operand(lanes, 0, a[0]), self._operand(lanes, 1, b[0])
            out[:, c] = add_product(self.unit, left, right, acc[:, c])
        return [x.reshape(self.u.shape) for x in out]

    def _operand(self, lanes: list[Any], side: int, number: int) -> Array:
        """Return tile `number` of the left (0) or right (1) operand as an array of rows, read from local memory."""
        starts = {int(np.ravel(lane[side][2])[number]) for lane in lanes}
        if len(starts) > 1:
            raise InternalError("WMMA: lanes that must give the same start position differ", found=sorted(starts)[:4])
        access, memory, _ = lanes[0][side]
        rows, steps = np.ogrid[: (self.unit.m, self.unit.n)[side], : self.unit.k]
        return access.load(memory, starts.pop() + self.cores[side].offset(rows, steps, memory.itemsize))


class Box:
    """TMACOPY: copy a box from global to local memory, with checks of both."""

    def __init__(self, arg: TmaCopyArg, source: Access, target: Access):
        self.arg, self.source, self.target = arg, source, target

    def __call__(self, memory: Array, local: Array, to: int, *at: int) -> None:
        """Copy the box that begins at index `at` on each axis to `local`, from element `to` on."""
        sources: Any = self.arg.start
        inside: Any = np.True_
        for first, step, size, n in zip(at, self.arg.strides, self.arg.sizes, self.arg.box, strict=True):
            x = np.arange(first, first + n)  # the innermost axis becomes the last one of the array
            shape = (n,) + (1,) * np.ndim(sources)
            sources, inside = sources + (x * step).reshape(shape), inside & ((x >= 0) & (x < size)).reshape(shape)
        found = self.source.load_gated(memory, sources, memory.dtype.type(0), inside)
        self.target.store(local, to + np.arange(found.size), found.ravel())


# ---- indices ---------------------------------------------------------------------------------------------------------
def pick(x: Array, at: tuple[Any, ...]) -> tuple[Any, Any]:
    """INDEX: replace an axis of `x` by the shape of each array of `at`. Return the elements and the mask of valid
    indices.
    """
    width = sum(np.ndim(i) for i in at)
    picks: list[Any] = []
    inside: Any = np.True_
    before = 0
    for k, i in enumerate(map(np.asarray, at)):
        before += i.ndim
        i = i.reshape(i.shape + (1,) * (width - before))
        ok = (i >= 0) & (i < x.shape[k])
        picks.append(np.where(ok, i, 0))
        inside = inside & ok
    rest = x.shape[len(at) :]
    if x.size == 0:
        inside = inside & False
        return np.zeros(np.shape(inside) + rest, x.dtype), inside
    return x[tuple(picks)] if picks else x, np.reshape(inside, np.shape(inside) + (1,) * len(rest))


def positions(x: Any, *at: Any) -> Array:
    """INDEX on an array of memory positions `x`; an invalid index gives a position that every check refuses."""
    out, inside = pick(np.asarray(x), at)
    return np.where(inside, out, _NOWHERE)


def _gather(kernel: str, x: Any, at: tuple[Any, ...]) -> Any:
    out, inside = pick(np.asarray(x), at)
    if not np.all(inside):
        raise IndexRangeError(
            f"kernel {kernel}: an index into a value is outside its axis",
            expected=f"indices inside {np.shape(x)}",
            found=" and ".join(str(np.asarray(i).tolist()) for i in at),
        )
    return out


# ---- memory ----------------------------------------------------------------------------------------------------------
class Access:
    """Checked access to the flat memory that messages call `what`, by the kernel named `kernel`."""

    __slots__ = ("kernel", "what")

    def __init__(self, kernel: str, what: str) -> None:
        self.kernel, self.what = kernel, what

    def outside(self, size: int, first: Any, last: Any = None) -> None:
        """Raise IndexRangeError for an access to position `first`, or to `first` to `last`."""
        found = str(first) if last in (None, first) else f"{first}..{last}"
        raise IndexRangeError(
            f"kernel {self.kernel}: an index is outside {self.what}",
            expected=f"0..{size - 1}" if size else "no access: it is empty",
            found="an index outside its axis" if first == _NOWHERE else found,
        )

    def check(self, memory: Array, at: Any) -> Any:
        """Return the positions `at` as an array. Raises IndexRangeError if one is outside `memory`."""
        at = np.asarray(at)
        if at.size and (at.min() < 0 or at.max() >= memory.size):
            self.outside(memory.size, at.min() if at.min() < 0 else at.max())
        return at

    def load(self, memory: Array, at: Any) -> Any:
        return memory[self.check(memory, at)]

    def load_gated(self, memory: Array, at: Any, alt: Any, gate: Any) -> Any:
        """Return the elements at `at` where `gate` holds, else `alt`; positions are checked only where `gate` holds."""
        at, on = np.broadcast_arrays(at, gate)
        out = np.array(np.broadcast_to(alt, at.shape), memory.dtype)
        out[on] = memory[self.check(memory, at[on])]
        return out

    def store(self, memory: Array, at: Any, new: Any, gate: Any = np.True_) -> None:
        """Write `new` to the elements at `at` where `gate` holds; the last of equal positions wins."""
        at, new = self.selected(memory, at, new, gate)
        memory[at] = new

    def add(self, memory: Array, at: Any, new: Any, gate: Any = np.True_) -> None:
        """Add `new` to the elements at `at` where `gate` holds; contributions to equal positions add up."""
        add_at(memory, *self.selected(memory, at, new, gate))

    def selected(self, memory: Array, at: Any, new: Any, gate: Any) -> tuple[Array, Array]:
        at, new, gate = np.broadcast_arrays(at, np.asarray(new, memory.dtype), gate)
        return self.check(memory, at[gate]), new[gate]


__all__ = ["Access", "Box", "Exchange", "MemoryExchange", "Shuffle", "function", "operands", "pick", "positions"]
