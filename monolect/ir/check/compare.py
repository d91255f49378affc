"""Compare the memory that a kernel wrote, or the value of a tensor, with its expected value at sampled elements.

What it is for: `VERIFY=2`. `runtime.realize.verified` runs kernels and reads memory; this module compares the memory
with values that `ir.check.points` computes.
What it is not: a proof. Elements that are not sampled are not checked, and long sums are sampled less.

Invariant: the samples depend only on sizes, with a fixed seed. A kernel that cannot be checked raises Unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from monolect.base.dtype import DType
from monolect.ir.bounds import ranges
from monolect.ir.check.arithmetics import Evaluate, differing
from monolect.ir.check.arrays import Array, Mask
from monolect.ir.check.points import MOST_WRITES, Points, TooMuch, Unsupported, positions
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.calls import stored_slots
from monolect.ir.uop import UOp, toposort

SEED = 0
# (samples, limit of computed array elements) of one result; if the limit is exceeded, the next pair is tried.
ATTEMPTS = ((64, 1 << 22), (16, 1 << 22), (4, 1 << 23), (1, 1 << 25))
EDGES = (4, 8, 16, 32, 64, 128)  # sizes of vectors and tiles: elements next to their multiples are sampled more often

Memory = Mapping[UOp, Array]  # node -> flat array of its elements


class EvaluationOptions(NamedTuple):
    """Options for computing expected values: `variables` maps the symbol of each Variable, (name, min, max), to its
    value; `allow_tf32` says whether float32 products may use TF32.
    `points` makes an evaluation with these options.
    """

    variables: Mapping[tuple, int]
    allow_tf32: bool = False

    def points(self, memory: Memory, noise_seed: int = 0, most_work: int = ATTEMPTS[-1][1]) -> Points:
        """Return a new Points, an evaluation of single elements, that reads inputs from `memory` and computes at most
        `most_work` elements.

        `noise_seed`: the seed of random noise added to each rounding, to measure the effect of rounding; 0 means no
        noise.
        """
        return Points(memory, self.variables, noise_seed, self.allow_tf32, most_work)


class Difference(NamedTuple):
    """A sampled element with a wrong value: `at` is its index in a tensor, or its flat position in memory, as a
    tuple. `expected` and `found` are the right and the wrong value.
    """

    at: Any
    expected: Any
    found: Any


# ---- samples ---------------------------------------------------------------------------------------------------------
def sampled(sizes: Sequence[int], n: int) -> tuple[Array, ...]:
    """Return at most `n` sample points of the index space with the sizes `sizes`, as one array of coordinates for each
    axis.

    A space of at most `n` points is returned whole. Otherwise the samples are the first and the last point, points next
    to multiples of tile sizes, and random ones.
    """
    total = prod(sizes)
    if total <= n:
        return tuple(np.indices(tuple(sizes)).reshape(len(sizes), total))
    rng = np.random.default_rng(SEED)
    out = []
    for size in sizes:
        near = [m * k + d for k in EDGES for m in (1, size // k) for d in (-1, 0, 1)]
        edges = np.unique(np.clip([0, 1, size - 2, size - 1, *near], 0, size - 1))
        column = np.where(rng.random(n) < 0.5, rng.choice(edges, n), rng.integers(0, size, n))
        column[:2] = (size - 1, 0)[:n]
        out.append(column)
    return tuple(np.unique(np.stack(out), axis=1))


def _within_work(compare: Callable[[int, int], list[Difference]]) -> list[Difference]:
    """Call `compare(n_samples, most_work)` and return its result for the first pair of ATTEMPTS for which it does not
    raise TooMuch.

    The pairs have fewer and fewer samples. TooMuch of the last pair is raised.
    """
    for n, most_work in ATTEMPTS[:-1]:
        try:
            return compare(n, most_work)
        except TooMuch:
            continue
    return compare(*ATTEMPTS[-1])


def _full(value: tuple[Array, Mask], n: int) -> tuple[Array, Mask]:
    """Return the array and the mask of `value`, (array, mask), broadcast to `n` elements."""
    v, mask = value
    return np.broadcast_to(v, (n,)), None if mask is None else np.broadcast_to(mask, (n,))


# ---- kernels ---------------------------------------------------------------------------------------------------------
class KernelCheck:
    """A check of what one scheduled kernel, the SINK `sink`, wrote to memory.

    `before` maps the slot of each argument that the kernel both reads and writes to its old contents. `read` and
    `written` have the slots of the arguments that the kernel reads and writes. The caller fills `before` before it runs
    the kernel, and then calls `compare`. Raises Unsupported for a kernel that cannot be checked.
    """

    def __init__(self, sink: UOp) -> None:
        order = toposort(sink)
        self.params = [u for u in order if _is_param(u)]
        self.written = stored_slots(sink)
        self.read = {memory_of(u.src[0]).arg.slot for u in order if u.op == "LOAD" and _is_param(memory_of(u.src[0]))}
        self.effects = [*_effects(sink, ())]
        self.slots = [_slot(e) for e, _ in self.effects]
        self.overlapping = [s for (e, rs), s in zip(self.effects, self.slots, strict=True) if _may_overlap(e, rs)]
        if any(self.slots.count(s) > 1 for s in self.overlapping):
            raise Unsupported("several stores to one argument that may write the same element")
        self.before: dict[int, Array] = {}

    def compare(self, now: Callable[[UOp], Array], options: EvaluationOptions) -> Iterator[tuple[UOp, Difference]]:
        """Yield (PARAM, Difference) for each sampled element that the kernel wrote wrongly; the PARAM denotes the
        written argument.

        `now(param)` is called for each PARAM of memory; it returns the contents of the argument after the kernel ran.
        `options`: values of Variables, and whether TF32 is allowed.
        """
        memory = {p: self.before.get(p.arg.slot, now(p)) for p in self.params}
        for (e, rs), slot in zip(self.effects, self.slots, strict=True):
            points = options.points(memory)
            sizes = [max(0, points.size(r.src[0].value if r.src[0].op == "CONST" else r.src[0])) for r in rs]
            found = now(memory_of(e.src[0]))
            if not prod(sizes) or not len(found):
                continue
            store = StoreCheck(
                e, dict(zip(rs, sizes, strict=True)), memory, self.before.get(slot, found), found, options
            )
            for d in _within_work(store.overlapping if slot in self.overlapping else store.disjoint):
                yield memory_of(e.src[0]), d


class StoreCheck(NamedTuple):
    """A check of one STORE or ATOMICADD, `effect`, of a kernel.

    `loops`: the number of iterations of each loop around `effect`. `memory`: the kernel's arguments. `old` and `found`:
    contents of the written argument before and after the kernel ran. `options`: values of Variables, and whether TF32
    is allowed.
    """

    effect: UOp
    loops: dict[UOp, int]
    memory: Memory
    old: Array
    found: Array
    options: EvaluationOptions

    def disjoint(self, n: int, most_work: int) -> list[Difference]:
        """Return the differences in `n` sampled iterations of the loops. It is for an effect of which no two iterations
        write the same element.

        Raises TooMuch if more than `most_work` elements would be computed.
        """
        e, found = self.effect, self.found
        rows = sampled([*self.loops.values()], n)
        n = rows[0].size if rows else 1

        def at(noise_seed: int, which: Array) -> Points:
            points = self.options.points(self.memory, noise_seed, most_work)
            points.env = {r: positions(row[which]) for r, row in zip(self.loops, rows, strict=True)}
            return points

        everything = at(0, np.arange(n))
        flat, _ = _full(everything.value(e.src[0].src[1]), n)
        gate = (flat >= 0) & (flat < found.size)
        if len(e.src) > 2:
            gate &= _full(everything.value(e.src[2]), n)[0]

        def evaluate(noise_seed: int, which: Array) -> tuple[Array, Mask]:
            v, mask = _full(at(noise_seed, which).value(e.src[1]), len(which))
            return v, gate[which] if mask is None else gate[which] & mask

        return _differences([flat], found[np.clip(flat, 0, found.size - 1)], e.src[1].dtype, evaluate)

    def overlapping(self, n: int, most_work: int) -> list[Difference]:
        """Return the differences in about `n` sampled elements of the memory. It is for an effect of which several
        iterations may write the same element.

        The write positions of all iterations are computed. Raises Unsupported for more than MOST_WRITES iterations,
        TooMuch if more than `most_work` elements would be computed.
        """
        e, sizes = self.effect, [*self.loops.values()]
        rng, n_all = np.random.default_rng(SEED), prod(sizes)
        if n_all > MOST_WRITES:
            raise Unsupported(f"{n_all} writes to computed positions are too many")
        flat, _ = _full(self._write_positions(self.options.points(self.memory)), n_all)
        some = flat[sampled([n_all], n)[0]]
        some = np.concatenate([some[(some >= 0) & (some < self.found.size)], rng.integers(0, self.found.size, n)])
        at = np.unique(some)

        def evaluate(noise_seed: int, which: Array) -> tuple[Array, Mask]:
            points = self.options.points(self.memory, noise_seed, most_work)

            def stored(rows: Array) -> tuple[Array, Mask]:
                points.env = dict(zip(self.loops, points.unravel(rows, sizes), strict=True))
                return points.value(e.src[1])

            before = self.old[at[which]], None
            return _full(
                points.written(e, at[which], before, n_all, lambda: self._write_positions(points), stored), len(which)
            )

        return _differences([at], self.found[at], e.src[1].dtype, evaluate)

    def _write_positions(self, points: Points) -> tuple[Array, Mask]:
        """Return (flat position that each iteration writes to, mask of the iterations that write), computed with
        `points`.
        """
        e, sizes = self.effect, [*self.loops.values()]
        points.env = dict(zip(self.loops, points.unravel(np.arange(prod(sizes)), sizes), strict=True))
        flat, mask = points.value(e.src[0].src[1])
        inside = (flat >= 0) & (flat < self.found.size)
        for gate in [mask, points.value(e.src[2])[0] if len(e.src) > 2 else None]:
            inside = inside if gate is None else inside & gate
        return flat, inside


def _differences(at: Sequence[Array], found: Array, dtype: DType, evaluate: Evaluate) -> list[Difference]:
    """Return a Difference for each of the samples `found`, of dtype `dtype`, that is wrong. `at`: coordinates of the
    samples, one array for each axis.

    `evaluate(noise_seed, rows)` computes (expected values, validity mask) of the samples with the numbers `rows`.
    """
    wrong, expected = differing(found, dtype, evaluate)
    return [Difference(tuple(int(row[k]) for row in at), expected[k], found[k]) for k in wrong]


def _slot(effect: UOp) -> int:
    """Return the slot of the PARAM that `effect`, a STORE or ATOMICADD, writes to.

    Raises Unsupported unless the target is an INDEX of a PARAM by one scalar.
    """
    target, memory = effect.src[0], memory_of(effect.src[0])
    if target.op != "INDEX" or len(target.src) != 2 or target.src[1].shape or not _is_param(memory):
        raise Unsupported("a store of another form")
    named = target.src[0]  # the memory, or an AFTER of it and the loops around the effect
    if named is not memory and (named.op != "AFTER" or any(s.op != "RANGE" for s in named.src[1:])):
        raise Unsupported("a store that waits for another")
    return int(memory.arg.slot)


def _may_overlap(e: UOp, rs: tuple[UOp, ...]) -> bool:
    """Whether two iterations of the loops `rs` may write the same element by the effect `e`.

    A STORE whose index depends on all loops and reads no memory is taken not to: such an index is assumed to be
    injective. An ATOMICADD always may.
    """
    at = e.src[0].src[1]
    return e.op != "STORE" or any(u.op == "LOAD" for u in toposort(at)) or not ranges(at).issuperset(rs)


def _is_param(u: UOp) -> bool:
    return u.op == "PARAM" and u.arg.name is None


def _effects(u: UOp, around: tuple[UOp, ...]) -> Iterator[tuple[UOp, tuple[UOp, ...]]]:
    """Yield (effect, loops around it) for each STORE and ATOMICADD in `u`. `around`: loops around `u` itself.

    Raises Unsupported for other effects.
    """
    if u.op in ("STORE", "ATOMICADD"):
        yield u, around
    elif u.op == "END":
        yield from _effects(u.src[0], around + u.src[1:])
    elif u.op in ("SINK", "GROUP"):
        for s in u.src:
            yield from _effects(s, around)
    else:
        raise Unsupported(f"{u.op} has no meaning here")


# ---- values ----------------------------------------------------------------------------------------------------------
def compare_value(u: UOp, found: Array, memory: Memory, options: EvaluationOptions) -> Iterator[Difference]:
    """Yield a Difference for each sampled element of `found` that differs from the expected value of tensor `u`.

    `found`: the value of `u` that was read from memory, as a flat array. `memory`: flat arrays of the inputs of `u`.
    `options`: values of Variables, and whether TF32 is allowed. Raises Unsupported if the value cannot be computed or
    needs too much work.
    """
    points = options.points(memory)
    shape = points.shape(u)
    if 0 in shape:
        return

    def compare(n: int, most_work: int) -> list[Difference]:
        rows = sampled(shape, n)
        flat: Array = np.zeros(1, np.int64)
        for row, size in zip(rows, shape, strict=True):
            flat = flat * size + row

        def evaluate(noise_seed: int, which: Array) -> tuple[Array, Mask]:
            index = tuple(positions(row[which]) for row in rows)
            return _full(options.points(memory, noise_seed, most_work).value(u, index, inside=True), len(which))

        return _differences(rows, found[flat], u.dtype, evaluate)

    yield from _within_work(compare)


__all__ = ["SEED", "EvaluationOptions", "Difference", "KernelCheck", "compare_value", "sampled"]
