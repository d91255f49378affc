"""A part of a value that devices exchange has the elements of the SHRINK, wherever it is cut."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from monolect import dtypes
from monolect.autograd import graph
from monolect.ir.check.interp import evaluate
from monolect.ir.ops import BufferArg, LoadArg
from monolect.ir.uop import UOp, build, iota, node, shape_source, toposort
from monolect.schedule.rewrites.parts import combined, copy, cut, joined

DEVICES = ("cpu", "cpu:1", "cpu:2")
SHAPES = ((4, 6), (6, 4), (2, 3, 4), (12,), (3, 8))


class Program:
    """A random graph over copies, concatenations and sums of values on several devices; all BUFFERs have values."""

    def __init__(self, seed: int) -> None:
        self.rng, self.values = Random(seed), dict[UOp, np.ndarray]()

    def buffer(self, shape: tuple[int, ...]) -> UOp:
        name = self.rng.choice(DEVICES)
        b = node("BUFFER", (shape_source(shape),), BufferArg(len(self.values), dtypes.float64, name))
        self.values[b] = np.random.default_rng(len(self.values)).integers(-9, 10, shape).astype(float)
        return b

    def moved(self, shape: tuple[int, ...]) -> UOp:
        """A value of `shape` that is joined of copies, a sum of copies that is copied, or a copy."""
        axis = self.rng.randrange(len(shape))
        n = self.rng.choice([n for n in (1, 2, 3) if shape[axis] % n == 0])
        kind = self.rng.randrange(4)
        if kind == 0:
            part = (*shape[:axis], shape[axis] // n, *shape[axis + 1 :])
            return joined([copy(self.buffer(part), "cpu:1") for _ in range(n)], axis)
        if kind == 1 and shape[axis] > 1:
            k = self.rng.randrange(1, shape[axis])
            sizes = [(*shape[:axis], m, *shape[axis + 1 :]) for m in (k, shape[axis] - k)]
            return joined([copy(self.buffer(s), "cpu:1") for s in sizes], axis)
        if kind == 2:
            return copy(combined("ADD", [self.buffer(shape) for _ in range(3)], "cpu:2"), "cpu:1")
        return build("LOAD", self.buffer(shape), arg=LoadArg("cpu:1", "GLOBAL"))

    def step(self, v: UOp) -> UOp:
        """A view or an operation of `v`."""
        rng, shape = self.rng, v.shape
        axis = rng.randrange(len(shape))
        match rng.randrange(9):
            case 0:
                return build("MUL", v, self.moved(shape))
            case 1:  # a broadcast operand
                return build("ADD", v, self.moved((1,) * axis + shape[axis:]))
            case 2:
                order = [*range(len(shape))]
                rng.shuffle(order)
                return build("PERMUTE", v, arg=tuple(order))
            case 3:
                return build(
                    "RESHAPE", v, shape_source((shape[0] * shape[1], *shape[2:]) if shape[1:] else _halved(shape[0]))
                )
            case 4:
                low, high = rng.randrange(3), rng.randrange(3)
                padded = (*shape[:axis], shape[axis] + low + high, *shape[axis + 1 :])
                return graph.pad(v, (0,) * axis + (low,) + (0,) * (len(shape) - axis - 1), padded, 7.0)
            case 5:
                return build("EXPAND", build("RESHAPE", v, shape_source((1, *shape))), shape_source((2, *shape)))
            case 6:
                i = build("CAST", iota(shape[axis], axis=axis, rank=len(shape)), arg=dtypes.float64)
                return build("MUL", v, i)
            case 7:
                return graph.joined([v, self.moved(shape)], axis)
            case _:
                return build("STACK", v, self.moved(shape))


def _halved(n: int) -> tuple[int, ...]:
    return (2, n // 2) if n % 2 == 0 else (1, n)


@given(st.integers(0, 10**6))
def test_a_part_has_the_elements_of_the_shrink(seed: int) -> None:
    p = Program(seed)
    v = p.moved(p.rng.choice(SHAPES))
    for _ in range(p.rng.randrange(6)):
        v = p.step(v)
    axis = p.rng.randrange(len(v.shape))
    start = p.rng.randrange(v.shape[axis])
    size = p.rng.randrange(1, v.shape[axis] - start + 1)
    part = cut(v, axis, start, size)
    wanted = np.take(evaluate(v, p.values), range(start, start + size), axis)
    np.testing.assert_array_equal(evaluate(part, p.values), wanted)
    assert part.shape == wanted.shape


def test_long_computations_are_cut_at_their_end() -> None:
    """No recursion follows a chain of thousands of operations."""
    p = Program(0)
    v = p.moved((4, 6))
    for _ in range(3000):
        v = build("ADD", v, p.buffer((4, 6))) if len(p.values) < 9 else build("SQRT", v)
    assert cut(v, 0, 1, 2).op == "SHRINK"


def test_a_part_of_a_shared_value_is_cut_once() -> None:
    """The work does not double with each operation that reads a value twice."""
    v = Program(1).moved((4, 6))
    for _ in range(60):
        v = build("MUL", v, build("SQRT", v))
    assert len(toposort(cut(v, 0, 1, 2))) < 300
