"""Long chains of float32 additions are added part by part; what has its registers full, or is no such sum, is not."""

from itertools import count

import numpy as np
import pytest

from monolect import Tensor
from monolect.ir.uop import idx, node, toposort
from monolect.lower.blocked_sums import split
from tests.structure.conftest import kernels_of


def accumulators(t: Tensor) -> list[int]:
    """Of each kernel."""
    return [sum(u.op == "BUFFER" and u.arg.addrspace == "REG" for u in toposort(k.linear)) for k in kernels_of(t)]


@pytest.mark.parametrize("shape, axis", [((60_000, 100), 0), ((9973, 33), 0), ((16, 100_000), 1), ((16, 99_991), 1)])
def test_a_long_chain_has_an_accumulator_for_its_parts(data, shape, axis):
    assert accumulators(Tensor(data(*shape)).sum(axis)) == [2]


def test_short_chains_exact_sums_and_extremes_have_one(data):
    x = Tensor(data(16, 1000))
    assert accumulators(x.sum(1)) == [1]
    long = data(60_000, 100)
    assert accumulators(Tensor(long).amax(0)) == [1]
    assert accumulators(Tensor((long * 100).astype(np.int32)).sum(0)) == [1]


def test_all_reductions_of_a_loop_are_added_so_or_none(data):
    """A sum and a maximum of the same columns stay in one loop."""
    x = Tensor(data(60_000, 128))
    assert accumulators(x.sum(0) + x.amax(0)) == [4]


def test_tiles_of_products_have_longer_parts(data):
    """Their accumulators fill the registers: those of the parts wait in memory."""
    small, large = (Tensor(data(64, k)) @ Tensor(data(k, 64)) for k in (1000, 1024))
    assert accumulators(small) == [1] and accumulators(large) == [2]


def test_a_chain_that_a_mask_ends_is_added_part_by_part(data):
    """How long it is depends on the row."""
    q, k, v = (Tensor(data(1, 2, 1024, 64)) for _ in range(3))
    plain, causal = (q.scaled_dot_product_attention(k, v, is_causal=c) for c in (False, True))
    assert sum(accumulators(causal)) == sum(accumulators(plain))


@pytest.mark.parametrize("rows, k", [(5, 257), (12, 533), (63, 263)])
def test_a_chain_added_part_by_part_may_be_a_step_of_another(data, rows, k):
    """The last part is shorter: what bounds its loop is the loop over parts, which the outer sum renews."""
    a, b = data(rows, k), data(k, 2)
    total = (Tensor(a) @ Tensor(b)).sum(0)
    assert accumulators(total) == [3]
    np.testing.assert_allclose(total.numpy(), (a.astype(np.float64) @ b).sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("least", [0, 1, 2, 128])
def test_a_part_is_a_loop_however_few_its_steps_are(least):
    """Of 64 terms in a step two are enough, or one; a loop of four was left whole, with no part of it inside."""
    for sizes in ((4,), (8,), (3, 2), (257,)):
        loops = [node("RANGE", (idx(n),), (i, "REDUCE")) for i, n in enumerate(sizes)]
        _, within, _ = split(loops, least, count(9))
        assert within
