"""Kernels over rows: exponentials that are computed once, and how many rows are read at once."""

from collections import Counter

import numpy as np
import pytest

from monolect import Tensor, Variable
from monolect.graphs import radix_sort as radix
from monolect.graphs import sort_keys as order
from monolect.ir.uop import toposort
from monolect.optimize.apply import choose_actions
from monolect.pipeline import lower_kernel
from tests.structure.test_attention import TARGET, calls_of


def kernels(tensor, target=TARGET):
    """The kernels of a tensor as their loops stand before they are split, on a target with local memory."""
    return [lower_kernel(c.src[0], target, last="merge_ranges") for c in calls_of(tensor)]


def ops(kernel):
    return Counter(u.op for u in toposort(kernel))


@pytest.mark.parametrize("shape", [(32, 100), (16, 1000), (4, 8, 65), (1000,), (3, 5000)])
def test_a_softmax_over_rows_keeps_its_exponentials(shape, data):
    x = data(*shape)
    y = Tensor(x).softmax(-1)
    (k,) = kernels(y)
    assert (ops(k)["EXP2"], ops(k)["BUFFER"]) == (1, 1)
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    np.testing.assert_allclose(y.numpy(), e / e.sum(-1, keepdims=True), rtol=2e-5)


@pytest.mark.parametrize("shape, axis", [((32, 20), 1), ((1000, 32), 0), ((8, 1 << 17), 1)])
def test_short_far_and_long_rows_do_not(shape, axis):
    (k,) = kernels(Tensor.empty(*shape).softmax(axis))
    assert (ops(k)["EXP2"], ops(k)["BUFFER"]) == (2, 0)


@pytest.mark.parametrize("n, lanes", [(3, []), (4, [4]), (7, [8]), (13, [16]), (16, [16])])
def test_rows_of_a_few_values_are_vectors_of_their_own(n, lanes, data):
    """What all lanes of the result need alike is not computed value by value, though the sum has few steps."""
    x = data(33, n)
    y = Tensor(x).softmax(-1)
    (k,) = kernels(y)
    splits = [arg for op, _, arg in choose_actions(k, TARGET).arg.actions if op == "SPLIT"]
    assert [size for size, kind, _ in splits if kind == "GROUP_REDUCE"] == lanes
    assert [size for size, kind, _ in splits if kind == "UNROLL"] == ([] if lanes else [n])
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    np.testing.assert_allclose(y.numpy(), e / e.sum(-1, keepdims=True), rtol=2e-5)


def test_a_softmax_over_rows_of_symbolic_length(data):
    n = Variable("n", 64, 200)
    x = data(16, 200)
    for size in (64, 65, 200):
        with n.bind(size):
            got = Tensor(x)[:, :n].softmax(1).numpy()
        e = np.exp(x[:, :size] - x[:, :size].max(1, keepdims=True))
        np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=2e-5)


def rows_at_once(*shape):
    """Iterations of rows that became shape in their sum."""
    (k,) = kernels(Tensor.empty(*shape).sum(1))
    splits = [(axis, arg) for op, axis, arg in choose_actions(k, TARGET).arg.actions if op == "SPLIT"]
    return next((k for axis, (k, kind, _) in splits if axis == 0 and kind == "UPCAST"), 1)


def test_rows_at_once():
    """Far rows that are shorter than many pages are one stream; what waits for itself runs beside others."""
    assert rows_at_once(4096, 1024) == rows_at_once(4096, 1000) == 1
    assert rows_at_once(64, 1 << 18) == 2
    assert rows_at_once(100, 16) == rows_at_once(100000, 16) == 4


def test_elements_by_rank_are_counted_not_sorted(structure, data):
    """Keys once, rounds over them in one kernel or two, and the element: nothing is moved, and nothing masked."""
    ks = structure(Tensor(data(40, 700)).median(1).values)
    assert len(ks) <= 4 and not any(k.ir["ATOMICADD"] for k in ks)
    rounds = [u for k in ks[1:] for u in k.linear.src if u.op == "LOAD" and u.shape == (16,)]
    assert len(rounds) > 16 and sum(len(u.src) > 1 for u in rounds) <= 1, "but for the search of a nan"


def test_many_ranks_are_read_from_sorted_rows(structure, data):
    q = Tensor(np.linspace(0, 1, 20, dtype=np.float32))
    assert len(structure(Tensor(data(2, 5000)).quantile(q, 1))) > 8


@pytest.mark.parametrize("shape", [(1, 117), (40, 100)])
def test_pairs_of_keys_are_compared_with_a_row_of_lanes(structure, data, shape):
    """One comparison of words that hold key and place; no lane waits for another of its row."""
    x = Tensor(data(*shape)).uop
    indices = radix._sort_by_counting(x, order.unsigned(order.key(x))).indices  # as where there are no vectors
    ranks = structure(Tensor._wrap(indices))[1]
    kinds = [arg[1] for op, _, arg in ranks.linear.arg.actions if op == "SPLIT"]
    assert "GROUP_REDUCE" not in kinds and kinds[0] == "UPCAST"
    assert ranks.ir["CMPLT"] == 1 and ranks.ir["CMPEQ"] == ranks.ir["CMPNE"] == 0


def is_shared_out(tensor) -> bool:
    """Whether two threads run its kernel."""
    (k,) = kernels(tensor)
    return any(op == "SPLIT" and arg[1] == "THREAD" for op, _, arg in choose_actions(k, TARGET).arg.actions)


def test_threads_share_a_kernel_by_what_its_functions_cost():
    """A sine is as much as fifty additions; what is never needed of it, or seldom, does not count."""
    x = Tensor.empty(4000)
    assert [is_shared_out(t) for t in (x + 1, x.sqrt(), x.sin(), x.atan2(x))] == [False, False, True, True]
    assert not is_shared_out(Tensor.empty(20_000) + 1) and is_shared_out(Tensor.empty(60_000) + 1)
    assert [is_shared_out(Tensor.empty(n, 100).softmax(1)) for n in (10, 100)] == [False, True]


@pytest.mark.parametrize("n", [1000, 5015])
def test_a_single_row_is_vectors_in_every_loop(n):
    """Its stage stands in no loop; its maximum, its exponentials, their sum and their quotient have one each."""
    (k,) = kernels(Tensor.empty(n).softmax(0))
    shaped = [axis for op, axis, arg in choose_actions(k, TARGET).arg.actions if op == "SPLIT" and arg[1] != "THREAD"]
    assert set(shaped) >= {0, 1, 2}
