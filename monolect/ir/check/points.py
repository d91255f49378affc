"""Compute single elements of a tensor graph, or of a scheduled kernel, with NumPy.

What it is for: `VERIFY=2` at real sizes. A few elements of a large result are computed on demand: a movement op maps
positions, a reduction computes all terms of these elements only, and values in memory are read.
What it is not: the interpreter of whole graphs (`ir.check.interp`), with which it shares the meanings of single
operations. It has its own index arithmetic, and shares no code with the scheduler or the passes that it checks.

Terms: an Index is a tuple with one Positions (an array of coordinates) for each axis. A Value is (array, mask); the
mask is true where an element is valid, and None if all are. Floats round once for each operation, and sums are added up
in float64. A `noise_seed` other than 0 perturbs the roundings (`ir.check.arithmetics`).

Invariant: the arrays of positions and values broadcast against each other. The last axis is that of the samples; each
reduction that is entered adds a leading axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import product
from math import prod, sqrt
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from monolect.base.dtype import DType
from monolect.ir.bounds import ranges
from monolect.ir.check.arithmetics import maximum, multiply_add, perturbed, rounded_constant, unit
from monolect.ir.check.arrays import Array, Mask, bitcast, both_valid, cast, garbage, select_valid, storage
from monolect.ir.ops import ELEMENTWISE, INVALID, ROWS
from monolect.ir.uop import UOp

CHUNK = 1 << 18  # elements of an array; longer reductions are computed in blocks
MOST_WRITES = 1 << 21  # iterations of a store to computed positions; more raise Unsupported
DEEPEST = 60  # nested reductions and gathers; deeper nesting raises Unsupported
FUNCTIONS = frozenset(("EXP2", "LOG2", "SIN", "POW"))  # ops that targets approximate, with errors of several ulps
EXACT = frozenset(("MAX", "WHERE", "NEG", "TRUNC"))  # float ops that never round

_IDENTITY = frozenset(("CONTIGUOUS", "CONTIGUOUS_BACKWARD", "DETACH"))
_MOVES = frozenset(("PERMUTE", "FLIP", "RESHAPE", "EXPAND", "PAD", "SHRINK"))
_LEAVES = frozenset(("CONST", "IOTA", "RANGE", "PARAM", "BUFFER", "BINARY"))


class Unsupported(Exception):
    """Raised if this module cannot compute a value; the message says why.
    Verification catches it and skips that kernel or value.
    """


class TooMuch(Unsupported):
    """Raised if an evaluation exceeds its limit of work. With fewer samples the evaluation may succeed.
    The caller tries again with fewer samples.
    """


class Positions:
    """Coordinates of the wanted elements along one axis, or values of a RANGE, as an array.

    Interned: equal Positions are the same object while in use, so that an Index is a part of a memo key.
    """

    __slots__ = ("__weakref__", "array")

    def __init__(self, array: Array) -> None:
        self.array = array


Index = tuple[Positions, ...]
Value = tuple[Array, Mask]
_interned: WeakValueDictionary[tuple, Positions] = WeakValueDictionary()


def positions(array: Any) -> Positions:
    """Return the interned Positions that hold `array`, an array of integers. Leading axes of size 1 are dropped."""
    a = np.asarray(array, np.int64)
    while a.ndim and a.shape[0] == 1:
        a = a[0]  # broadcasting gives the same result
    a = np.ascontiguousarray(a)
    key = (a.shape, a.tobytes() if a.size <= 8 else blake2b(a.data, digest_size=16).digest())
    p = _interned.get(key)
    if p is None:
        p = _interned[key] = Positions(a)
    return p


ZERO = positions(0)


class Points:
    """An evaluation of single elements of nodes; the computed values are memoized.

    `memory`: flat array of each node that is in memory. `variables`: values of symbolic sizes by symbol, (name, min,
    max). `noise_seed`: seed of the noise that is added to roundings, or 0 for none (`ir.check.arithmetics`).
    `allow_tf32`: float32 products may round their operands to 10 bits (TF32). `most_work`: limit of the elements of all
    computed arrays; beyond it TooMuch is raised.
    """

    def __init__(
        self,
        memory: Mapping[UOp, Array],
        variables: Mapping[tuple, int],
        noise_seed: int = 0,
        allow_tf32: bool = False,
        most_work: int = 1 << 25,
    ):
        self.most_work = most_work
        self.memory, self.variables, self.noise_seed, self.allow_tf32 = memory, variables, noise_seed, allow_tf32
        self.env: dict[UOp, Positions] = {}  # values of the bound RANGEs
        self.memo: dict[tuple, Value] = {}
        self.depth = 1  # current number of batch axes
        self.nested = 0
        self.sizes: dict[UOp, int] = {}
        self.work = 0

    # ---- walking -----------------------------------------------------------------------------------------------------
    def value(self, u: UOp, index: Index = (), inside: bool = False) -> Value:
        """Return (array, mask): the elements of `u` at `index`, which has one Positions for each axis.

        With `inside`, the elements are computed even if `u` is in memory. Raises Unsupported for a node without a known
        value, TooMuch beyond the limit of work.
        """
        key = self._key(u, index)
        if not inside and key in self.memo:
            return self.memo[key]
        stack: list[Any] = [(u, index, key, None)]
        while stack:
            v, at, key, wanted = stack.pop()
            if wanted is not None:
                found = self.memo[key] = self._combine(v, at, [self.value(*w) for w in wanted])
                self.work += found[0].size
                if self.work > self.most_work:
                    raise TooMuch(f"more than {self.most_work} elements are computed")
            elif (inside and v is u) or key not in self.memo:
                if v in self.memory and not (inside and v is u):
                    self.memo[key] = self._read(v, at)
                    continue
                wanted = self._sources(v, at)
                stack.append((v, at, key, wanted))
                stack.extend((*w, self._key(*w), None) for w in wanted)
        return self.memo[self._key(u, index)]

    def _key(self, u: UOp, index: Index) -> tuple:
        """Return the memo key of the elements of `u` at `index`: the node, the index, and the current values of the
        free RANGEs of `u`.
        """
        free = ranges(u)
        if not free:
            return u, index
        return u, index, *[self.env.get(r) for r in sorted(free, key=_serial)]

    def _nested(self, u: UOp, index: Index = ()) -> Value:
        """Return (array, mask) of the elements of `u` at `index`, on behalf of a reduction or gather.

        Raises Unsupported if reductions and gathers are nested too deeply.
        """
        self.nested += 1
        if self.nested > DEEPEST:
            raise Unsupported("reductions and gathers nested too deeply")
        try:
            return self.value(u, index)
        finally:
            self.nested -= 1

    def size(self, size: Any) -> int:
        """Return the value of `size`, one size of a shape (an int or an index UOp), as an int. Raises Unsupported if it
        depends on a loop.
        """
        if size.__class__ is int:
            return size
        if size not in self.sizes:
            v = self._nested(size)[0]
            if ranges(size) or v.size != 1:
                raise Unsupported("a size that depends on a loop")
            self.sizes[size] = int(v.reshape(-1)[0])
        return self.sizes[size]

    def shape(self, u: UOp) -> tuple[int, ...]:
        """Return the shape of `u` as ints, with the values of symbolic sizes."""
        return tuple([self.size(n) for n in u.shape])

    def unravel(self, flat: Array, shape: Sequence[int]) -> Index:
        """Return the Index (one Positions per axis) of elements of an array of shape `shape` from their row-major
        positions `flat`.
        """
        out = []
        for n in reversed(shape):
            out.append(ZERO if n == 1 else positions(flat % n))
            flat = flat // n
        return tuple(reversed(out))

    def _broadcast(self, index: Index, u: UOp) -> Index:
        """Return the Index into the operand `u` of an op that broadcasts `u` to its own shape, given the op's
        `index`.
        """
        rank = len(u.shape)
        tail = index[len(index) - rank :] if rank else ()
        return tuple(ZERO if n == 1 else i for i, n in zip(tail, self.shape(u), strict=True))

    # ---- operands and their indices ----------------------------------------------------------------------------------
    def _sources(self, u: UOp, index: Index) -> list[tuple[UOp, Index]]:
        """Return (operand, Index into it) for each operand that the elements of `u` at `index` are computed from. The
        list is empty for a node that is computed in another way. Raises Unsupported for an op without a value.
        """
        op = u.op
        if op in ELEMENTWISE:
            return [(s, self._broadcast(index, s)) for s in u.src]
        if op in _IDENTITY:
            return [(u.src[0], index)]
        if op in _MOVES:
            return [(u.src[0], self.source_index(u, index)[0])]
        if op == "INDEX":
            return [(u.src[0], self.gather_index(u, index, clamp=True)[0])] if not self._has_empty_source(u) else []
        if op == "LOAD":
            return [(s, index if s.shape == u.shape else self._broadcast(index, s)) for s in u.src]
        if op == "STACK":
            first, rest = index[0].array, index[1:]
            return [(u.src[int(first)], rest)] if first.ndim == 0 else [(s, rest) for s in u.src]
        if op == "BITCAST":
            return [(u.src[0], i) for i in self._bits(u, index)]
        if op in _LEAVES or op in ("REDUCE", "AFTER"):
            return []
        raise Unsupported(f"{op} has no value here")

    def _has_empty_source(self, u: UOp) -> bool:
        """Whether `u`, an INDEX, has a source without elements, so that all elements of `u` are invalid."""
        return 0 in self.shape(u.src[0])

    def _bits(self, u: UOp, index: Index) -> list[Index]:
        """Return the indices of the source elements that the elements of BITCAST `u` at `index` are made of.

        There are several if the elements of `u` are larger than those of its source, as from uint8 to float32.
        """
        old, new = u.src[0].dtype.itemsize, u.dtype.itemsize
        if old == new:
            return [index]
        last = index[-1].array
        if old > new:
            return [(*index[:-1], positions(last // (old // new)))]
        return [(*index[:-1], positions(last * (new // old) + k)) for k in range(new // old)]

    def source_index(self, u: UOp, index: Index) -> tuple[Index, Mask]:
        """Return (Index into the source of the movement op `u`, mask) for the elements of `u` at `index`.

        `u`: any movement op except INDEX. The mask is None for all ops but PAD. It is false for elements of padding,
        which are in no source; their Index is arbitrary but in bounds.
        """
        op, x = u.op, u.src[0]
        if op == "PERMUTE":
            return tuple(index[u.arg.index(a)] for a in range(len(index))), None
        if op == "FLIP":
            axes = zip(index, u.arg, self.shape(u), strict=True)
            return tuple(positions(n - 1 - i.array) if f else i for i, f, n in axes), None
        if op == "EXPAND":
            return self._broadcast(index, x), None
        if op == "RESHAPE":
            return self._reshaped(index, self.shape(u), self.shape(x)), None
        offsets = [self.size(o) for o in u.src[1].sizes]
        if op == "SHRINK":
            return tuple(i if not o else positions(i.array + o) for i, o in zip(index, offsets, strict=True)), None
        out, inside = [], None
        for i, o, n, whole in zip(index, offsets, self.shape(x), self.shape(u), strict=True):
            at = i.array - o
            if n != whole:
                inside = both_valid(inside, np.asarray((at >= 0) & (at < n)))
            out.append(positions(np.clip(at, 0, max(n - 1, 0))) if n != whole or o else i)
        return tuple(out), inside

    def _reshaped(self, index: Index, new: tuple[int, ...], old: tuple[int, ...]) -> Index:
        """Return the elements at `index` of an array of shape `new` as an Index into the same elements, in row-major
        order, of an array of shape `old`.

        Axes are processed in groups of equal products, so that an unchanged axis keeps its Positions.
        """
        out: list[Positions] = []
        i = j = 0
        while i < len(new) or j < len(old):
            first, a, b, sizes = i, 1, 1, []
            while True:
                if i < len(new) and (a <= b or j == len(old)):
                    a, i = a * new[i], i + 1
                elif j < len(old):
                    b, j = b * old[j], j + 1
                    sizes.append(old[j - 1])
                else:
                    break
                if a == b and (i > first and sizes or (i == len(new) and j == len(old))):
                    break
            mine = [(p, n) for p, n in zip(index[first:i], new[first:i], strict=True) if n != 1]
            kept = [n for n in sizes if n != 1]
            if len(mine) == 1 and kept == [mine[0][1]]:
                out += [ZERO if n == 1 else mine[0][0] for n in sizes]
                continue
            flat: Array = np.zeros((), np.int64)
            for p, n in mine:
                flat = flat * n + p.array
            out += self.unravel(flat, sizes)
        return tuple(out)

    def gather_index(self, u: UOp, index: Index, clamp: bool) -> tuple[Index, Mask]:
        """Return (Index into the first source of the INDEX `u`, mask of valid elements) for the elements of `u` at
        `index`.

        The Index is clamped to the bounds of the source. With `clamp`, elements out of bounds count as valid, since a
        read takes the nearest element.
        """
        out: list[Positions] = []
        at, inside = 0, None
        sizes = self.shape(u.src[0])
        for k, t in enumerate(u.src[1:]):
            v, mask = self._nested(t, index[at : at + len(t.shape)])
            at += len(t.shape)
            v = v.astype(np.int64)
            if not clamp:
                inside = both_valid(inside, (v >= 0) & (v < sizes[k]))
            inside = both_valid(inside, mask)
            out.append(positions(np.clip(v, 0, max(sizes[k] - 1, 0))))
        return (*out, *index[at:]), inside

    # ---- values ------------------------------------------------------------------------------------------------------
    def _combine(self, u: UOp, index: Index, vals: list[Value]) -> Value:
        """Return (array, mask) of the elements of `u` at `index`, computed from `vals`, the values of the operands that
        `_sources` listed.
        """
        op = u.op
        if op in ELEMENTWISE:
            return self._elementwise(u, vals)
        if op in _IDENTITY or (op == "LOAD" and len(vals) < 3):
            return vals[0]
        if op in _MOVES:
            return vals[0][0], both_valid(vals[0][1], self.source_index(u, index)[1] if op == "PAD" else None)
        if op == "INDEX":
            if not vals:
                return np.full((), garbage(u.dtype)), np.zeros((), bool)
            mask = self.gather_index(u, index, clamp=True)[1] if len(u.src) > 1 else None
            return vals[0][0], both_valid(vals[0][1], mask)
        if op == "LOAD":
            (x, a), (alt, b), (gate, _) = vals
            return np.where(gate, x, alt), select_valid(gate, a, b)
        if op == "STACK":
            return vals[0] if len(vals) == 1 else self._chosen(u, index[0].array, vals)
        if op == "BITCAST":
            return self._bitcast(u, index, vals)
        return self._leaf(u, index) if op in _LEAVES else _HANDLERS[op](self, u, index)

    def _leaf(self, u: UOp, index: Index) -> Value:
        """Return (array, mask) of the elements at `index` of `u`, a node without operands to compute: a CONST, IOTA,
        RANGE, PARAM or BINARY. Raises Unsupported if it has no value.
        """
        op = u.op
        if op == "CONST":
            if u.arg[0] is INVALID:
                return np.full((), garbage(u.dtype)), np.zeros((), bool)
            return rounded_constant(self.noise_seed, np.asarray(u.arg[0], storage(u.dtype)), u.dtype), None
        if op == "IOTA":
            return index[0].array.astype(storage(u.dtype)), None
        if op == "BINARY":
            return np.frombuffer(u.arg, np.uint8)[index[0].array], None
        if op == "RANGE" and u in self.env:
            return self.env[u].array, None
        if op == "PARAM" and u.arg.name is not None and u.arg.symbol in self.variables:
            return np.asarray(self.variables[u.arg.symbol], storage(u.dtype)), None
        raise Unsupported(f"{op} without a value")

    def _read(self, u: UOp, index: Index) -> Value:
        """Return (array, mask) of the elements at `index` of `u`, read from `self.memory`."""
        flat: Array = np.zeros((), np.int64)
        for i, n in zip(index, self.shape(u), strict=True):
            flat = flat * n + i.array
        memory = self.memory[u]
        if not len(memory):
            return np.full((), garbage(u.dtype), storage(u.dtype)), None
        return memory[np.clip(flat, 0, max(len(memory) - 1, 0))], None

    def _chosen(self, u: UOp, which: Array, vals: list[Value]) -> Value:
        """Return (array, mask) of elements of the STACK `u`: for each element, the value in `vals` with the number that
        `which` has for it.
        """
        out, mask = vals[0]
        for k, (v, m) in enumerate(vals[1:], 1):
            mask = select_valid(which == k, m, mask)
            out = np.where(which == k, v, out)
        return out, mask

    def _bitcast(self, u: UOp, index: Index, vals: list[Value]) -> Value:
        """Return (array, mask) of the elements of the BITCAST `u` at `index`, from `vals`, the values of the source
        elements that they are made of.
        """
        old, new = u.src[0].dtype.itemsize, u.dtype.itemsize
        mask = None
        for _, m in vals:
            mask = both_valid(mask, m)
        parts = np.stack(np.broadcast_arrays(*[v for v, _ in vals]), axis=-1)
        out = bitcast(parts, u.dtype)
        if old > new:
            last = np.asarray(index[-1].array % (old // new))
            shape = np.broadcast_shapes(out.shape[:-1], last.shape)
            out = np.broadcast_to(out, (*shape, out.shape[-1]))
            return np.take_along_axis(out, np.broadcast_to(last, shape)[..., None], -1)[..., 0], mask
        return out[..., 0], mask

    def _elementwise(self, u: UOp, vals: list[Value]) -> Value:
        """Return (array, mask) of the elementwise op `u` of the operand values `vals`: rounded, and perturbed if there
        is a noise seed.
        """
        args, masks = [v for v, _ in vals], [m for _, m in vals]
        op, d = u.op, u.dtype
        if op == "WHERE":
            mask = both_valid(masks[0], select_valid(args[0], masks[1], masks[2]))
            return np.where(args[0], args[1], args[2]), mask
        mask = None
        for m in masks:
            mask = both_valid(mask, m)
        if op == "CAST":
            out = cast(args[0], u.src[0].dtype, d)
            return (self._rounded(out, args[0].astype(np.float64), u) if d.is_float else out), mask
        floats = u.src[-1].dtype.is_float
        wide = [a.astype(np.float64) if s.dtype.is_float else a for a, s in zip(args, u.src, strict=True)]
        exact = np.asarray(_meaning(op)(u.src[-1].dtype, *(wide if floats else args)))
        out = exact.astype(storage(d), copy=False)
        if not d.is_float or op in EXACT:
            return out, mask
        if op == "MUL" and self.noise_seed % 2:  # a masked sum may skip terms 0 * x, even if x is inf or nan
            out = np.where((wide[0] == 0) | (wide[1] == 0), np.zeros((), out.dtype), out)
        lost: Any = np.False_
        if op in ("ADD", "SUB"):  # float64 may have rounded the sum, too
            a, b = wide[0], wide[1] if op == "ADD" else -wide[1]
            lost = (exact - a != b) | (exact - b != a)
        return self._rounded(out, exact, u, lost), mask

    # ---- rounding ----------------------------------------------------------------------------------------------------
    def _rounded(self, out: Array, exact: Array, u: UOp, lost: Any = np.False_) -> Array:
        """Return `out`, the rounded result of the op `u`. With a noise seed, the result is perturbed by some units in
        the last place where the op rounds.

        `exact`: the result before rounding. `lost`: mask of elements where `exact` itself was rounded.
        """
        if not self.noise_seed:
            return out
        inexact = lost | (out.astype(np.float64) != exact if u.dtype.bits < 64 else exact != np.trunc(exact))
        if self.allow_tf32 and u.op == "MUL" and u.dtype.bits == 32:
            return perturbed(self.noise_seed, out, exact, np.abs(exact) * 2.0**-10, u.dtype)
        units = 4.0 if u.op in FUNCTIONS else 1.0
        return perturbed(
            self.noise_seed, out, exact, np.where(inexact, np.abs(exact) * (unit(u.dtype) * units), 0.0), u.dtype
        )

    def _summed(self, u: UOp, total: Array, magnitude: Array, n: int, whole: bool) -> Array:
        """Return `total`, a sum of `n` terms that the node `u` computes, rounded. With a noise seed, the sum is
        perturbed as by another order of additions.

        `magnitude`: sum of the absolute terms. `whole`: all terms are integers, so that a small sum is exact.
        """
        out = total.astype(storage(u.dtype))
        if not self.noise_seed or (whole and np.all(magnitude < 1 / unit(u.dtype))):
            return out
        step = unit(u.dtype) + 2 * sqrt(n) * (2.0**-52 if u.dtype.bits == 64 else 2.0**-23)
        return perturbed(self.noise_seed, out, total, magnitude * step, u.dtype)

    # ---- reductions --------------------------------------------------------------------------------------------------
    def reduce(self, u: UOp, index: Index) -> Value:
        """Return (array, mask) of the elements at `index` of the REDUCE `u`, along axes or RANGEs. At most CHUNK terms
        are computed at a time.
        """
        op, axes = u.arg
        x, rs, d = u.src[0], u.src[1:], u.dtype
        shape = self.shape(x)
        sizes = [shape[a] for a in axes] + [max(0, self.size(_bound(r))) for r in rs]
        n = prod(sizes)
        if not sizes:
            return self._nested(x, index)
        total = _Total(op, d)
        outer = [i.array for i in index] + [p.array for r, p in self.env.items() if r in ranges(u)]
        batch = prod(np.broadcast_shapes(*[a.shape for a in outer])) if outer else 1
        depth, env, memo = self.depth, self.env, self.memo
        for blocks in _blocks(sizes, max(1, CHUNK // batch)) if n else ():
            own = []
            for k, (lo, hi) in enumerate(blocks):
                own.append(np.arange(lo, hi).reshape((-1,) + (1,) * (depth + k)))
            at = list(index)
            for a, v in zip(axes, own, strict=False):
                at[a] = positions(v)
            self.env = {**env, **{r: positions(v) for r, v in zip(rs, own[len(axes) :], strict=True)}}
            self.depth, self.memo = depth + len(own), dict(memo)
            try:
                v, mask = self._nested(x, tuple(at))
                total.add(v, mask, [hi - lo for lo, hi in blocks], depth)
                memo.update((k, w) for k, w in self.memo.items() if w[0].ndim <= depth)
            finally:
                self.depth, self.env, self.memo = depth, env, memo
        out = total.result()
        if op == "ADD" and d.is_float:
            out = self._summed(u, total.value, total.magnitude, n, total.whole)
        elif op == "MUL" and d.is_float and self.noise_seed:
            out = perturbed(self.noise_seed, out, total.value, np.abs(total.value) * unit(d) * n, d)
        return out, total.mask

    # ---- effects -----------------------------------------------------------------------------------------------------
    def after(self, u: UOp, index: Index) -> Value:
        """Return (array, mask) of the elements at `index` of the AFTER `u`: of a tensor after writes, or of local
        memory that loops filled. Raises Unsupported for an effect that is no STORE or ATOMICADD, or one of more than
        MOST_WRITES elements.
        """
        x = u.src[0]
        if x.op == "BUFFER" and x.arg.addrspace == "LOCAL":
            return self._local(u, index)
        effects = list(_effects(u.src[1:]))
        whole = [k for k, e in enumerate(effects) if e.op == "STORE" and e.src[0] is x and len(e.src) == 2]
        if whole:  # the last store to the whole tensor overwrites all earlier effects
            e = effects[whole[-1]]
            out, mask = self._nested(e.src[1], self._broadcast(index, e.src[1]))
            effects = effects[whole[-1] + 1 :]
        else:
            out, mask = self._nested(x, index)
        flat: Array = np.zeros((), np.int64)
        for i, n in zip(index, self.shape(x), strict=True):
            flat = flat * n + i.array
        for e in effects:
            view, shape = e.src[0], self.shape(e.src[0])
            count = prod(shape)
            if count > MOST_WRITES:
                raise Unsupported(f"{count} writes to computed positions are too many")
            at = self.unravel(np.arange(count), shape)

            def write_positions(
                e: UOp = e, at: Index = at, view: UOp = view, shape: tuple = shape
            ) -> tuple[Array, Mask]:
                to, inside = self.view_index(view, x, at)
                pos: Array = np.zeros((), np.int64)
                for i, n in zip(to, self.shape(x), strict=True):
                    pos = pos * n + i.array
                if len(e.src) > 2:
                    gate, valid = self._nested(e.src[2], self._broadcast(at, e.src[2]))
                    inside = both_valid(both_valid(inside, gate), valid)
                return pos, inside

            def stored(rows: Array, e: UOp = e, shape: tuple = shape) -> Value:
                return self._nested(e.src[1], self._broadcast(self.unravel(rows, shape), e.src[1]))

            out, mask = self.written(e, flat, (out, mask), count, write_positions, stored)
        return out, mask

    def view_index(self, view: UOp, x: UOp, index: Index) -> tuple[Index, Mask]:
        """Return (Index into `x`, mask) of the elements at `index` of `view`, a view of `x`. The mask is true where the
        Index is in the bounds of `x`. `view`: a chain of movement ops on `x`. Raises Unsupported for any other op.
        """
        inside: Mask = None
        while view is not x:
            if view.op == "INDEX":
                index, here = self.gather_index(view, index, clamp=False)
            elif view.op in _MOVES:
                index, here = self.source_index(view, index)
            else:
                raise Unsupported(f"a store through {view.op}")
            inside = both_valid(inside, here)
            view = view.src[0]
        return index, inside

    def written(
        self,
        e: UOp,
        flat: Array,
        before: Value,
        n: int,
        write_positions: Callable[[], tuple[Array, Mask]],
        stored: Callable[[Array], Value],
    ) -> Value:
        """Return (array, mask): the elements at positions `flat` of memory after `n` iterations of `e`, a STORE or
        ATOMICADD.

        `before`: the (array, mask) of these elements before. `write_positions()` returns (position that each iteration
        writes to, mask of the iterations that write). `stored(k)` returns (array, mask) of the values that the
        iterations with the numbers `k` write. Each function is called at most once; `stored` only if an iteration
        writes one of the elements.
        """
        out, mask = before
        depth, self.depth = self.depth, 1  # the only batch axis is that of the iterations
        try:
            pos, keep = write_positions()
            pos = np.broadcast_to(pos, (n,))
            rows = np.arange(n) if keep is None else np.flatnonzero(np.broadcast_to(keep, (n,)))
            rows = rows[np.argsort(pos[rows], kind="stable")]
            pos = pos[rows]
            flat, out = np.broadcast_arrays(flat, out)
            left, right = np.searchsorted(pos, flat, "left"), np.searchsorted(pos, flat, "right")
            if not (right > left).any():
                return out, mask
            if e.op == "STORE":
                hit = right > left
                self.depth = max(1, hit.ndim)
                new, valid = stored(rows[np.where(hit, right - 1, 0)])
                hit = hit & (True if valid is None else valid)
                return np.where(hit, new, out), select_valid(hit, None, mask)
            return self._added(e, out, mask, rows, left, right, stored)
        finally:
            self.depth = depth

    def _added(self, e: UOp, out: Array, mask: Mask, rows: Array, left: Array, right: Array, stored: Any) -> Value:
        """Return (array, mask) of elements of memory after the ATOMICADD `e`.

        `out`: the elements before, and `mask`: the valid ones. Element i gets the values of the iterations
        rows[left[i]:right[i]] added. `stored(k)` returns (array, mask) of the values that the iterations with the
        numbers `k` write. Raises Unsupported for more than MOST_WRITES additions.
        """
        counts = (right - left).reshape(-1)
        if counts.sum() > MOST_WRITES:
            raise Unsupported(f"{counts.sum()} additions are too many")
        owner = np.repeat(np.arange(counts.size), counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        taken = rows[np.repeat(left.reshape(-1), counts) + np.arange(len(owner)) - first]
        new, valid = stored(taken)
        new = np.broadcast_to(new, taken.shape)
        if valid is not None:
            new = np.where(valid, new, np.zeros((), new.dtype))
        d = e.src[1].dtype
        wide = np.dtype(np.float64) if d.is_float else out.dtype
        total, magnitude = out.reshape(-1).astype(wide), np.abs(out.reshape(-1)).astype(np.float64)
        if d.kind == "b":
            np.logical_or.at(total, owner, new)
        else:
            np.add.at(total, owner, new.astype(wide))
        if not d.is_float:
            return total.reshape(out.shape), mask
        np.add.at(magnitude, owner, np.abs(new.astype(np.float64)))
        n = int(counts.max()) * (1 if d.bits >= 32 else 1 << 10)  # narrow floats round at each addition
        whole = bool(np.all(total == np.trunc(total)) and np.all(new == np.trunc(new.astype(np.float64))))
        return self._summed(e.src[1], total, magnitude, n, whole).reshape(out.shape), mask

    def _local(self, u: UOp, index: Index) -> Value:
        """Return (array, mask) of the elements at `index` of local memory, from the values that the iterations of its
        single store write.

        `u`: an AFTER of the local BUFFER and the END around that store. Raises Unsupported for any other form, a gate,
        or loops that do not fill the memory in order.
        """
        if len(u.src) != 2 or u.src[1].op != "END" or u.src[1].src[0].op != "STORE":
            raise Unsupported("local memory that is not filled by one store in loops")
        store, own = u.src[1].src[0], u.src[1].src[1:]
        target, at = store.src[0], index[0].array
        if len(store.src) > 2 or target.op != "INDEX" or target.src[0] is not u.src[0] or len(index) != 1:
            raise Unsupported("local memory that is not filled element by element")
        env = self.env
        values = self.unravel(at, [self.size(_bound(r)) for r in own])
        self.env = {**env, **dict(zip(own, values, strict=True))}
        try:
            if not np.all(self._nested(target.src[1])[0] == at):
                raise Unsupported("local memory that is not filled in order")
            return self._nested(store.src[1])
        finally:
            self.env = env


_HANDLERS: dict[str, Callable[[Points, UOp, Index], Value]] = {"REDUCE": Points.reduce, "AFTER": Points.after}


def _meaning(op: str) -> Any:
    """Return the function (dtype, *arrays) -> array that computes the elementwise op `op`; MAX and MULACC are more
    precise than in the op table.
    """
    return {"MAX": maximum, "MULACC": multiply_add}.get(op) or ROWS[op].meaning


class _Total:
    """An accumulator of a reduction by `op` over terms of dtype `dtype`: the value so far (floats in float64) and the
    sum of the terms' magnitudes.
    `add` may be called for several blocks of terms; `result` returns the rounded value.
    """

    def __init__(self, op: str, dtype: DType) -> None:
        self.op, self.d = op, dtype
        self.wide = np.dtype(np.float64) if dtype.is_float else storage(dtype)
        self.value: Any = self.wide.type({"ADD": 0, "MUL": 1}.get(op, dtype.min))
        self.magnitude: Any = np.zeros(())
        self.whole = True
        self.mask: Mask = None

    def add(self, v: Array, mask: Mask, sizes: list[int], depth: int) -> None:
        """Reduce the terms `v`, whose valid elements are those of `mask`, into the accumulator.

        The leading axes of `v` are reduced; they have the `sizes` in reverse order. The last `depth` axes are kept.
        """
        axes = tuple(range(len(sizes)))
        lead = tuple(reversed(sizes))
        v = np.broadcast_to(v, np.broadcast_shapes(v.shape, lead + (1,) * depth)).astype(self.wide)
        if mask is not None:
            mask = np.broadcast_to(mask, np.broadcast_shapes(mask.shape, lead + (1,) * depth))
            self.mask = both_valid(self.mask, np.all(mask, axis=axes))
        if self.d.kind == "b":
            self.value = (np.logical_and if self.op == "MUL" else np.logical_or)(
                self.value, (np.all if self.op == "MUL" else np.any)(v, axis=axes)
            )
        elif self.op == "MAX":
            self.value = np.maximum(self.value, np.max(v, axis=axes))
        elif self.op == "MUL":
            self.value = self.value * np.prod(v, axis=axes, dtype=self.wide)
        else:
            self.value = self.value + np.sum(v, axis=axes, dtype=self.wide)
            if self.d.is_float:
                self.magnitude = self.magnitude + np.sum(np.abs(v), axis=axes)
                self.whole = self.whole and bool(np.all(v == np.trunc(v)))

    def result(self) -> Array:
        """Return the accumulated value, rounded to the dtype of the terms."""
        return np.asarray(self.value).astype(storage(self.d))


def _effects(sources: Sequence[UOp]) -> Iterator[UOp]:
    """Yield the STOREs and ATOMICADDs in `sources`, the effects that an AFTER waits for, including those in GROUPs.

    Raises Unsupported for another effect.
    """
    for e in sources:
        if e.op == "GROUP":
            yield from _effects(e.src)
        elif e.op in ("STORE", "ATOMICADD"):
            yield e
        else:
            raise Unsupported(f"what {e.op} writes is not known")


def _bound(loop: UOp) -> Any:
    """Return the number of iterations of the RANGE `loop`: an int, or an index UOp if it is symbolic."""
    return loop.src[0].value if loop.src[0].op == "CONST" else loop.src[0]


def _serial(u: UOp) -> int:
    return u.serial


def _blocks(sizes: Sequence[int], most: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield blocks that together cover an index space of `sizes`, each of at most `most` points. A block has a (start,
    end) for each axis.
    """
    cut = list(sizes)
    while prod(cut) > most and max(cut) > 1:
        k = cut.index(max(cut))
        cut[k] = -(-cut[k] // 2)
    parts = [[(lo, min(lo + c, n)) for lo in range(0, n, c)] for n, c in zip(sizes, cut, strict=True)]
    yield from product(*parts)


__all__ = ["MOST_WRITES", "Index", "Points", "TooMuch", "Unsupported", "Value", "positions"]
