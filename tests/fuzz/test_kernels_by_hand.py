"""Random kernels of the user's: several stores that share outer loops, each of sums under conditions, against NumPy.

A store has the first one, two or three of the loops (i, k, l). Its value is a sum or a maximum over j of a value that
may depend on all of them, under conditions that `rules.loops.reductions` knows: what is before i, of the class of i.
"""

from collections.abc import Callable
from functools import reduce
from math import inf
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from monolect import Context, Tensor, custom_kernel
from monolect.ir.ops import KernelInfo
from monolect.ir.uop import UOp, build, const, idx

N_SEEDS = 10
PROGRAMS = 12  # of each seed
MODES: dict[str, dict[str, int]] = {"default": {}, "noopt": {"NOOPT": 1}, "one thread": {"THREADS": 1}}
LOOPS = "ikl"


def equal(a: Any, b: Any) -> Any:
    return build("CMPEQ", a, b) if isinstance(a, UOp) else a == b


def less(a: Any, b: Any) -> Any:
    return build("CMPLT", a, b if isinstance(b, UOp) else const(b, a.dtype)) if isinstance(a, UOp) else a < b


def load(memory: Any, *at: Any) -> Any:
    """Element `at` of an array, or of a PARAM and its shape."""
    if isinstance(memory, np.ndarray):
        return memory[at]
    param, shape = memory
    place = idx(0)
    for i, n in zip(at, shape, strict=True):
        place = place * n + i
    return build("LOAD", build("INDEX", param, place))


class Inputs(NamedTuple):
    """Values of j, k, l; values, and classes, of j."""

    x: Any
    y: Any
    classes: Any


Condition = Callable[[Inputs, Any, Any], Any]
CONDITIONS: dict[str, Condition] = {
    "up to i": lambda a, i, j: less(j, i + 1),
    "before i": lambda a, i, j: less(j, i),
    "from i on": lambda a, i, j: less(i + -1, j),
    "of the class of i": lambda a, i, j: equal(load(a.classes, j), load(a.classes, i)),
    "a property of j": lambda a, i, j: less(load(a.y, j), 1),
    "a property of i": lambda a, i, j: less(load(a.y, i), 1),
}
COMMON = (("up to i", "of the class of i"), ("before i", "of the class of i"), ("up to i",))
VALUES: dict[str, Callable[[Inputs, Any, Any, Any], Any]] = {
    "of j, k and l": lambda a, j, k, m: load(a.x, j, k, m),
    "of j and k": lambda a, j, k, m: load(a.x, j, k, 0 * m),
    "of j": lambda a, j, k, m: load(a.y, j),
}


class Store(NamedTuple):
    """The loops of a store, and its value."""

    loops: str
    op: str
    conditions: tuple[str, ...]
    value: str


def program(rng: Random) -> list[Store]:
    out = []
    for _ in range(rng.randint(1, 4)):
        common = rng.choice(COMMON) if rng.random() < 0.6 else tuple(rng.sample(sorted(CONDITIONS), rng.randint(0, 3)))
        value, op = rng.choice(sorted(VALUES)), rng.choice(("ADD", "ADD", "MAX"))
        out.append(Store(LOOPS[: rng.randint(1, 3)], op, common, value))
    return out


def kernel(stores: list[Store], sizes: dict[str, int], given: list[np.ndarray]) -> Callable[..., UOp]:
    def write(*params: UOp) -> UOp:
        arrays = params[len(stores) :]
        a = Inputs(*((p, array.shape) for p, array in zip(arrays, given, strict=True)))
        loops = {name: build("RANGE", idx(sizes[name]), arg=(k, "LOOP")) for k, name in enumerate(LOOPS)}
        ends = []
        for n, (s, out) in enumerate(zip(stores, params, strict=False)):
            i, k, m = (loops[name] if name in s.loops else idx(0) for name in LOOPS)
            j = build("RANGE", idx(sizes["i"]), arg=(len(LOOPS) + n, "LOOP"))
            value = VALUES[s.value](a, j, k, m)
            neutral = const(0 if s.op == "ADD" else -inf, value.dtype)
            if conditions := [CONDITIONS[name](a, i, j) for name in s.conditions]:
                value = build("WHERE", reduce(lambda c, d: build("AND", c, d), conditions), value, neutral)
            total = build("REDUCE", value, j, arg=(s.op, ()))
            at = idx(0)
            for name in s.loops:
                at = at * sizes[name] + loops[name]
            store = build("STORE", build("INDEX", out, at), total)
            ends.append(build("END", store, *(loops[name] for name in s.loops)))
        return build("SINK", *ends, arg=KernelInfo("by_hand"))

    return write


def wanted(s: Store, sizes: dict[str, int], given: list[np.ndarray]) -> np.ndarray:
    a = Inputs(*given)
    i, k, m = (g if name in s.loops else 0 * g[:1] for name, g in zip(LOOPS, indices(sizes), strict=True))
    i, k, m, j = np.broadcast_arrays(i[:, None, None, None], k[:, None, None], m[:, None], np.arange(sizes["i"]))
    value = VALUES[s.value](a, j, k, m)
    for name in s.conditions:
        value = np.where(CONDITIONS[name](a, i, j), value, 0 if s.op == "ADD" else -inf)
    return (value.sum(-1) if s.op == "ADD" else value.max(-1)).reshape([sizes[name] for name in s.loops])


def indices(sizes: dict[str, int]) -> list[np.ndarray]:
    return [np.arange(sizes[name]) for name in LOOPS]


@pytest.mark.sweep
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_stores_that_share_outer_loops(seed: int, mode: str) -> None:
    rng, numbers = Random(f"{seed} {mode}"), np.random.default_rng([seed, len(mode)])
    for _ in range(PROGRAMS):
        sizes = {name: rng.choice((2, 3, 5, 16, 17)) for name in LOOPS}
        stores = program(rng)
        print(f"seed {seed} {mode}: {sizes}, {stores}")
        check(stores, sizes, arrays(sizes, numbers), mode)


def arrays(sizes: dict[str, int], numbers: np.random.Generator) -> list[np.ndarray]:
    x = numbers.integers(-3, 4, [sizes[name] for name in LOOPS]).astype(np.float32)
    y, classes = numbers.integers(-3, 4, sizes["i"]).astype(np.float32), numbers.integers(0, 3, sizes["i"])
    return [x, y, classes.astype(np.int8)]  # so few that a table has room for all


def check(stores: list[Store], sizes: dict[str, int], given: list[np.ndarray], mode: str) -> None:
    out = [(tuple(sizes[name] for name in s.loops), "float32") for s in stores]
    with Context(**MODES[mode]):
        got = custom_kernel(kernel(stores, sizes, given), *(Tensor(a) for a in given), out=out)
        for s, t in zip(stores, got, strict=True):
            np.testing.assert_array_equal(t.numpy(), wanted(s, sizes, given), err_msg=str(s))


@pytest.mark.parametrize("mode", MODES)
def test_sums_by_class_beside_a_store_of_fewer_loops(mode: str) -> None:
    """The loop over k is inside of that over i: a table of sums by class that is carried through i has no row for k."""
    sizes = dict(zip(LOOPS, (20, 7, 1), strict=True))
    stores = [
        Store("i", "ADD", ("up to i",), "of j"),
        Store("ik", "ADD", ("up to i", "of the class of i"), "of j and k"),
    ]
    check(stores, sizes, arrays(sizes, np.random.default_rng(0)), mode)
