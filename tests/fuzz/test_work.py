"""Random programs do no more work than their operations one by one: what is computed again costs less than to store it.

Work is counted in generated code (`Kernel.work`), without running it, and compared with that of the graph: operations
on floats, a function as many as it costs, of every value once.
"""

import numpy as np
import pytest

from monolect import Tensor
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.rewrite.normal import count
from monolect.schedule.materialize import WEIGHTS, values
from tests.structure.conftest import kernels_of

MOST = 4  # times the work of the graph
SMALL = 1 << 16  # operations that cost less than another kernel
LOCAL_BYTES = 1 << 20
SIZES = (2, 3, 33, 129, 700, 1500)
MOST_ELEMENTS = 1 << 21


def data(rng, *shape):
    return Tensor(rng.standard_normal(shape, np.float32))


def product(x, rng, axis):
    return x @ data(rng, x.shape[-1], int(rng.choice(SIZES[:4])))


def product_in_front(x, rng, axis):
    return data(rng, int(rng.choice(SIZES[:4])), x.shape[-2]) @ x


STEPS = {
    "softmax": lambda x, rng, axis: x.softmax(axis),
    "log_softmax": lambda x, rng, axis: x.log_softmax(axis),
    "share": lambda x, rng, axis: x / x.sum(axis, keepdim=True),
    "deviation": lambda x, rng, axis: (x - x.mean(axis, keepdim=True)) / x.std(axis, keepdim=True),
    "exp": lambda x, rng, axis: x.exp(),
    "sine": lambda x, rng, axis: x.sin() * x,
    "logarithm": lambda x, rng, axis: (x.abs() + 1).log(),
    "cumsum": lambda x, rng, axis: x.cumsum(axis),
    "permute": lambda x, rng, axis: x.transpose(axis, -1),
    "flip": lambda x, rng, axis: x + x.flip(axis),
    "rows": lambda x, rng, axis: x.index_select(axis, Tensor(rng.integers(0, x.shape[axis], x.shape[axis]))),
    "times": lambda x, rng, axis: x * data(rng, x.shape[-1]),
    "product": product,
    "product in front": product_in_front,
    "squares": lambda x, rng, axis: x @ x.transpose(-1, -2) if x.shape[-2] < 200 else x * x,
    "windows": lambda x, rng, axis: x + x.roll(1, axis),
    "join": lambda x, rng, axis: x.cat(x.exp(), dim=axis),
    "triangle": lambda x, rng, axis: x.tril(),
    "relative": lambda x, rng, axis: x - x.amax(axis, keepdim=True),
}


OF_ROWS = ("softmax", "log_softmax", "share", "deviation", "relative")


def own_work(x):
    """Of the graph of `x`, every value computed once."""
    total = 0
    for u in values([x.uop]):
        if u.dtype.is_float and u.op in ELEMENTWISE:
            total += count(u.shape) * WEIGHTS.get(u.op, 1)
        elif u.op == "REDUCE":
            total += count(u.src[0].shape)
    return total


def program(rng):
    """A tensor, and what it was made by. Half of the programs have rows between two products, as attention has."""
    x = data(rng, *(int(n) for n in rng.choice(SIZES, int(rng.integers(2, 4)), replace=False)))
    names = [f"{x.shape}"]
    steps = [str(name) for name in rng.choice(list(STEPS), int(rng.integers(2, 7)))]
    if rng.random() < 0.5:
        steps = ["product", *(str(name) for name in rng.choice(OF_ROWS, 2)), "product", *steps[:1]]
    for name in steps:
        axis = int(rng.integers(x.ndim))
        y = STEPS[name](x, rng, axis)
        if y.numel() <= MOST_ELEMENTS:
            x = y
            names.append(f"{name} {axis}")
    return x, ", ".join(names)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(24))
def test_nothing_dear_is_computed_again_and_again(seed):
    rng = np.random.default_rng(seed)
    x, names = program(rng)
    print(f"seed {seed}: {names}")
    for local_bytes in (0, LOCAL_BYTES):
        work = sum(k.work for k in kernels_of(x, local_bytes=local_bytes))
        assert work <= MOST * own_work(x) + SMALL, f"{work / own_work(x):.1f} times, with {local_bytes} bytes"
