"""Several results over some of the same axes, computed together: kernels that share what they read share loops, too.

A program multiplies random tensors that each have a few of the axes, the others of size 1, and asks for all products at
once. The loops of every kernel nest, and the values are NumPy's, with actions and without. Many programs are only
divided into kernels, which costs no compilation.
"""

from itertools import permutations

import numpy as np
import pytest

from monolect import Context, Tensor
from monolect.ir.check.verify import verify
from monolect.ir.ops import Stage
from monolect.pipeline import schedule
from monolect.schedule.callify import over_params

N_SEEDS = 10
PROGRAMS = 4  # of each seed, that are run
SCHEDULED = 60  # of each seed, that are only divided into kernels
SIZES = (2, 3, 5, 17)
MODES = {"verified": {"VERIFY": 1}, "noopt": {"NOOPT": 1}, "one thread": {"THREADS": 1}}
KINDS = ("product", "product", "product", "product of three", "sum", "running sum", "difference to the mean")


def results(kinds, leaves):
    """One formula of `kinds` after the other: the same lines for arrays and for tensors."""
    out = []
    for kind, first, second, third, axis in kinds:
        value = leaves[first] * leaves[second]
        if kind == "product of three":
            value = value * leaves[third]
        elif kind == "sum":
            value = value.sum(axis, keepdims=True)
        elif kind == "running sum":
            value = value.cumsum(axis)
        elif kind == "difference to the mean":
            value = value - value.mean(axis, keepdims=True)
        out.append(value)
    return out


def agree(kinds, arrays, mode, order=None):
    wanted = results(kinds, [a.astype(np.float64) for a in arrays])
    with Context(**MODES[mode]):
        found = results(kinds, [Tensor(a) for a in arrays])
        Tensor.realize(*[found[k] for k in order or range(len(found))])
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-4)


def program(rng):
    """Formulas, and arrays for them. Most arrays have the first axis, so that results have loops in common."""
    sizes = [int(n) for n in rng.choice(SIZES, int(rng.integers(3, 5)))]
    chances = (0.9, *[0.5] * (len(sizes) - 1))
    shapes = [[n if rng.random() < p else 1 for n, p in zip(sizes, chances, strict=True)] for _ in range(5)]
    kinds = [
        (str(rng.choice(KINDS)), *(int(k) for k in rng.integers(0, len(shapes), 3)), int(rng.integers(len(sizes))))
        for _ in range(int(rng.integers(4, 9)))
    ]
    return kinds, [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.sweep
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_products_over_some_of_the_axes(seed, mode):
    rng = np.random.default_rng([seed, len(mode)])
    for _ in range(PROGRAMS):
        kinds, arrays = program(rng)
        print(f"seed {seed} {mode}: {[a.shape for a in arrays]}, {kinds}")
        agree(kinds, arrays, mode)


@pytest.mark.sweep
@pytest.mark.parametrize("local_bytes", [0, 1 << 15])
@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_loops_of_every_kernel_nest(seed, local_bytes):
    rng = np.random.default_rng(seed)
    for _ in range(SCHEDULED):
        kinds, arrays = program(rng)
        sink, _, _ = over_params([t.uop for t in results(kinds, [Tensor(a) for a in arrays])])
        print(f"seed {seed}: {[a.shape for a in arrays]}, {kinds}")
        for call in schedule(list(sink.src), "null", local_bytes).linear.src:
            verify(call.src[0], Stage.KERNEL)


@pytest.mark.sweep
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [(7, 5, 3), (31, 17, 13), (2, 64, 64)])
def test_a_loop_is_inside_of_the_same_loops_in_all_results(sizes, mode):
    """Results over (i, j) and (i, k) share a loop over i; one over (i, j, k) cannot share those over j and k, too."""
    rng = np.random.default_rng(0)
    i, j, k = sizes
    shapes = [(i, 1, 1), (i, j, 1), (i, 1, k), (i, 1, k)]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    for third in (2, 3):
        kinds = [("product", 1, 0, 0, 0), ("product", 2, 0, 0, 0), ("product", 1, third, 0, 0)]
        for order in permutations(range(3)):
            agree(kinds, arrays, mode, order)
