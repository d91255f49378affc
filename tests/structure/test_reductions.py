"""Long reductions to few values are cut into parts that threads share and joined by a kernel; short ones stay whole."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monolect import Tensor
from monolect.graphs.sort_keys import LONG_ROW, SHORT_ROW
from monolect.ir.bounds import ranges
from monolect.ir.text import parse
from monolect.ir.uop import UOp, toposort
from monolect.schedule.rewrites import split_reductions as pass_
from monolect.schedule.rewrites.split_reductions import split_reductions
from tests.structure.conftest import kernels_of

LONG = 1 << 16


@pytest.mark.parametrize("method", ["sum", "max", "mean", "norm", "logsumexp"])
def test_a_long_reduction_is_shared_out_and_joined(method, structure, data):
    x = Tensor(data(LONG))
    ks = structure(getattr(x, method)(0) if method == "logsumexp" else getattr(x, method)())
    assert [k.linear.arg.threads for k in ks] == [2, 1] * (len(ks) // 2) and len(ks) == (
        4 if method == "logsumexp" else 2
    )
    assert all(k.sink.src[0].op != "END" for k in ks[1::2]), "one value is not written in a loop"


@pytest.mark.parametrize("shape", [(LONG // 2,), (256, 256), (2, LONG // 8), (8, LONG), (64, 4096)])
def test_what_is_short_or_has_enough_outputs_is_one_kernel(shape, structure, data):
    assert len(structure(Tensor(data(*shape)).sum(-1))) == 1


def test_the_rows_below_a_sum_count_as_its_work(check, data):
    """The sum over rows is short; the rows, reduced in the same kernel, are not."""
    a = data(64, 8192)
    ks = check(Tensor(a).max(1).values.sum(), a.max(1).sum())
    assert [k.linear.arg.threads for k in ks] == [2, 1]


def test_a_reduction_reads_every_element_once(check, data):
    a, b = data(512, 600), data(512, 600)
    first, second = check((Tensor(a) * Tensor(b)).sum(), (a * b).sum(dtype=np.float64))
    assert first.reads == 2 and first.loops == 2 and second.reads == 1


def test_siblings_share_their_parts(structure, data):
    x = Tensor(data(LONG))
    both, *joins = structure(x.sum(), x.amax())
    assert both.reads == 1 and both.ir["STORE"] == 2 and len(joins) == 2


def test_a_product_of_matrices_is_not_cut(structure, data):
    assert len(structure(Tensor(data(2, 4096)) @ Tensor(data(4096, 3)))) == 1


def test_a_tail_is_read_from_memory_alone(structure, data):
    """Sizes without a near divisor: no index is divided, in the parts or in the tail."""
    for shape in [(997, 997), (1000003,), (159224,), (70001,)]:
        for k in structure(Tensor(data(*shape)).sum()):
            assert k.ir["IDIV"] == k.ir["MOD"] == 0


@pytest.mark.parametrize("shape, outer", [((159224,), 64), ((70001,), 64), ((40001, 7), 13), ((9377, 7), 8)])
def test_parts_of_sizes_without_a_near_divisor_are_long(shape, outer, check, data):
    """Single elements as parts would only be stored: what is left over is at most a part in 64 of the axis. Parts and
    tail read what is given: nothing is stored for both.
    """
    a = data(*shape)
    first, *joins = check(Tensor(a).exp().sum(0), np.exp(a).sum(0), rtol=1e-4)
    assert first.linear.arg.actions and first.sink.src[0].src[1].src[0].value == outer and len(joins) <= 2
    assert first.ir["REDUCE"] == first.ir["STORE"] == 1 and first.reads == 1


def test_what_others_read_too_is_computed_once(check, data):
    a = data(159224)
    ks = check(Tensor(a).softmax(0), np.exp(a) / np.exp(a).sum(), atol=1e-6)
    assert sum(k.ir["EXP2"] > 0 for k in ks) == 1


def test_what_all_parts_share_is_not_their_work(data):
    """The place in a block is short, however long the search for the block was."""
    x = Tensor(data(20000))
    assert len(kernels_of(x.argmax(0))) == 1
    assert len(kernels_of((x + x.exp().sum(0, keepdim=True))[:64].sum())) <= 3


@st.composite
def reductions(draw):
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 17, 64, 67]), min_size=1, max_size=3)))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    return shape, tuple(sorted(axes)), draw(st.sampled_from(["sum", "amax", "prod"])), draw(st.booleans())


@example(((67, 1, 67), (0, 1, 2), "sum", False))  # a tail on two axes
@given(reductions())
def test_every_shape_keeps_its_values(case):
    """Everything counts as long here, parts are few and vectors short, so that each way of cutting is met."""
    shape, axes, method, broadcast = case
    a = np.random.default_rng(1).integers(-3, 4, shape)
    b = np.arange(shape[-1]) % 3 - 1
    x, want = (Tensor(a) + Tensor(b), a + b) if broadcast else (Tensor(a), a)
    if method == "prod":
        x, want = x.clip(1, 2), np.clip(want, 1, 2)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"MIN_WORK": 1, "PARTS": 8, "MAX_PARTS_RATIO": 2, "VECTORS": 4}.items():
            patch.setattr(pass_, name, value)
        got = x.prod(axes[0]) if method == "prod" else getattr(x, method)(axes)
        want = want.prod(axes[0]) if method == "prod" else getattr(want, {"amax": "max"}.get(method, method))(axes)
        np.testing.assert_array_equal(got.numpy(), want)


def roots(text: str) -> list[UOp]:
    return [parse(text)]


BEFORE = """
%0 = CONST idx[] (1048576, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1048576] %1 ParamArg(slot=0, dtype=f32, device="cpu")
%3 = REDUCE f32[1] %2 ("ADD", (0,))
"""
AFTER = """
%0 = CONST idx[] (1048576, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[1048576] %1 ParamArg(slot=0, dtype=f32, device="cpu")
%3 = CONST idx[] (64, idx)
%4 = CONST idx[] (16384, idx)
%5 = STACK idx[2] %3 %4
%6 = RESHAPE f32[64,16384] %2 %5
%7 = REDUCE f32[64,1] %6 ("ADD", (1,))
%8 = CONTIGUOUS f32[64,1] %7
%9 = REDUCE f32[1,1] %8 ("ADD", (0,))
%10 = CONST idx[] (1, idx)
%11 = STACK idx[1] %10
%12 = RESHAPE f32[1] %9 %11
"""


def test_before_and_after():
    assert split_reductions(roots(BEFORE))[0] is parse(AFTER)


def test_short_ones_are_left_alone():
    short = roots(BEFORE.replace("1048576", "32768"))
    assert split_reductions(short) is short


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7])
def test_a_few_outputs_get_as_many_parts_together(m, data):
    loops = kernels_of(Tensor(data(m, LONG)).sum(1))[0].sink.src[0].src[1:]
    assert 32 <= np.prod([r.src[0].value for r in loops]) <= 64


@pytest.mark.parametrize("shape, vectors", [((40, 30, 200), 13), ((40, 30, 240), 5), ((40, 30, 224), 7)])
def test_sums_over_near_rows_read_long_pieces_of_them(check, data, shape, vectors):
    """Memory is read as it lies: most of a row's sums stand in registers, by numbers of vectors that divide the row."""
    a = data(*shape)
    (k,) = check(Tensor(a).sum(-2), a.sum(-2))
    assert [arg[0] for op, _, arg in k.linear.arg.actions if op == "SPLIT" and arg[1] == "UPCAST"] == [16, vectors]


def splits(kernel, kind):
    """The sizes that loops of the kernel were split to, of one kind, in order."""
    return [arg[0] for op, _, arg in kernel.linear.arg.actions if op == "SPLIT" and arg[1] == kind]


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("size", "taps", "stride", "lanes", "sums"),
    [(16, 3, 1, 16, [3, 3]), (8, 3, 1, 8, [3, 3]), (16, 7, 1, 16, [7]), (32, 3, 2, 16, [3, 3])],
)
def test_sums_over_rows_for_the_places_of_a_window(check, data, size, taps, stride, lanes, sums):
    """The weight of a depthwise convolution: lanes run along the rows of the image, which are longer than the kernel's,
    and each vector of the gradient meets all taps.
    """
    x, w = data(2, 4, size, size), Tensor(data(4, 1, taps, taps)).requires_grad_()
    y = Tensor(x).conv2d(w, stride=stride, padding=taps // 2, groups=4)
    d = data(*y.shape)
    (y * Tensor(d)).sum().backward()
    pad, out = taps // 2, y.shape[-1]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    at = [slice(i, i + (out - 1) * stride + 1, stride) for i in range(taps)]
    wanted = np.array([[(padded[:, :, i, j] * d).sum((0, 2, 3)) for j in at] for i in at]).transpose(2, 0, 1)
    k = check(w.grad, wanted[:, None], atol=1e-4)[-1]
    assert splits(k, "GROUP_REDUCE") == [lanes] and splits(k, "UPCAST") == sums


@pytest.mark.sweep
@pytest.mark.parametrize("shape, columns", [((7, 275, 2), [2]), ((300, 2), [2]), ((2003, 3), [3]), ((2003, 4), [4])])
def test_few_columns_are_picked_from_whole_vectors(check, data, shape, columns):
    """Rows of the sum are the lanes: each column of as many rows as a vector has lanes is picked from what lies side by
    side.
    """
    a = data(*shape)
    for got, wanted in ((Tensor(a).sum(-2), a.sum(-2)), (Tensor(a).amax(-2), a.max(-2))):
        (k,) = check(got, wanted, atol=1e-4)
        assert splits(k, "GROUP_REDUCE")[0] == 16 and splits(k, "UPCAST") == columns
    assert (Tensor(a).argmax(-2).numpy() == a.argmax(-2)).all()
    np.testing.assert_allclose(Tensor(a).var(-2).numpy(), a.var(-2, ddof=1), rtol=2e-5)


@pytest.mark.parametrize("shape, rows", [((12, 275, 5), [8, 4]), ((15, 275, 12), [16, 3]), ((13, 275, 5), [8])])
def test_short_rows_of_sums_are_added_up_several_at_once(check, data, shape, rows):
    """Each step of a sum waits for the one before it: where one vector is all of a row, up to four rows take turns."""
    a = data(*shape)
    (k,) = check(Tensor(a).sum(1), a.sum(1), atol=1e-4)
    assert splits(k, "UPCAST") == rows


@pytest.mark.sweep
@pytest.mark.parametrize("n", [63, 187, 4095, 4096, 4097, 9001, 20000])
def test_an_extreme_is_searched_for_in_looks(data, n):
    """In one kernel: the maximum, then its place; of a long row maxima of blocks, then the first block that has its."""
    a = np.stack([data(n), np.full(n, -np.inf, np.float32), np.zeros(n, np.float32), data(n)])
    a[1, n - 1] = a[2, 5] = -0.0
    a[3, [3, n - 7, n - 5]] = [9, np.nan, np.nan]
    (k,) = kernels_of(Tensor(a[0]).argmax(0))
    looks = 1 if n < SHORT_ROW else 2 if n < LONG_ROW else 4
    assert sum(u.op == "REDUCE" for u in toposort(k.sink)) == looks
    assert not any(u.op == "LOAD" and len(u.src) > 1 for u in toposort(k.sink)) or n < LONG_ROW, "blocks need no masks"
    for x in (a, (a > 1).astype(np.int8), (np.nan_to_num(a).clip(-9, 9) * 100).astype(np.int64)):
        assert (Tensor(x).argmax(1).numpy() == x.argmax(1)).all()
        assert (Tensor(x).argmin(1).numpy() == x.argmin(1)).all()
    assert Tensor(a).reshape(2, 2, n).argmax(-1, keepdim=True).shape == (2, 2, 1)


@pytest.mark.sweep
@pytest.mark.parametrize("shape", [(1 << 17, 16), (70001, 40), (2, 1 << 16, 24)])
def test_many_rows_are_added_in_parts(shape, structure, data):
    """Each addition may lose half a place of the sum so far: the error grows with the rows added one by one."""
    x = (np.abs(data(*shape)) + 1).astype(np.float32)
    t, exact, axis = Tensor(x), x.astype(np.float64), len(shape) - 2
    assert len(structure(t.sum(axis))) > 1
    for got, wanted in [(t.sum(axis), exact.sum(axis)), (t.var(axis), exact.var(axis, ddof=1))]:
        assert np.abs(got.numpy() / wanted - 1).max() < 3e-6


def test_few_rows_are_added_by_one_kernel(structure, data):
    assert len(structure(Tensor(data(1 << 15, 16)).sum(0))) == 1
    assert len(structure(Tensor(data(1 << 17, 16)).amax(0))) == 1


@pytest.mark.sweep
@pytest.mark.parametrize("size", [4096, 49, 16])
def test_sums_over_channels_that_have_a_number_each_divide_no_index(check, data, size):
    """One loop over channels, one over what has the same number: the vector. Few rows of sums are no better one."""
    x, b = data(2, 16, size), data(16, 1)
    wanted = (x + b).reshape(2, 4, 4 * size).astype(np.float64)
    wanted = (wanted - wanted.mean(-1, keepdims=True)) / np.sqrt(wanted.var(-1, keepdims=True) + 1e-5)
    got = (Tensor(x) + Tensor(b)).group_norm(4)
    sums = next(k for k in check(got, wanted.reshape(x.shape), atol=1e-4) if k.ir["REDUCE"])
    assert sums.code["IDIV"] == sums.code["MOD"] == 0
    assert any(u.op == "LOAD" and u.shape and u.shape[-1] == 16 for u in sums.linear.src), "vectors along the sum"


def test_what_takes_long_to_compute_is_looked_at_once_for_its_extreme(data):
    x = Tensor(data(16, 1000))
    (k,) = kernels_of(x.exp().sin().argmax(1))
    assert sum(u.op == "REDUCE" for u in toposort(k.sink)) == 1
    (k,) = kernels_of(*(x * 2).max(1))
    assert sum(u.op == "REDUCE" for u in toposort(k.sink)) == 2, "the maximum is looked for once"


@pytest.mark.sweep
@pytest.mark.parametrize("n", [33, 75, 187, 1000, 1001])
@pytest.mark.parametrize("method", ["sum", "amax", "prod", "logsumexp"])
def test_only_the_last_step_of_a_reduction_is_masked(check, data, n, method):
    """Accumulators start with it: no load or choice inside of a loop asks what is inside."""
    a = (data(3, n) * 0.01 + 1).astype(np.float32)
    x = a.astype(np.float64)
    want = np.log(np.exp(x).sum(1)) if method == "logsumexp" else getattr(x, method.removeprefix("a"))(1)
    (k,) = check(getattr(Tensor(a), method)(1), want, rtol=1e-4)
    inner = [u for u in toposort(k.linear) if u.op in ("LOAD", "WHERE") and any(_steps(r) for r in ranges(u))]
    assert not any(u.op == "LOAD" and len(u.src) > 1 for u in inner)
    assert any(u.op == "LOAD" and len(u.src) > 1 for u in toposort(k.linear))


def _steps(r: UOp) -> bool:
    return r.arg[1] == "REDUCE"


@pytest.mark.parametrize("n, vectors", [(187, 4), (208, 1), (130, 1), (150, 2), (1000, 4)])
def test_vectors_behind_the_end_are_few(check, data, n, vectors):
    """So many of a sum are in flight that no more than a sixteenth are empty."""
    a = data(n)
    (k,) = check(Tensor(a).sum(), a.sum(), atol=1e-4)
    assert splits(k, "GROUP_REDUCE") == [16, vectors][: 1 + (vectors > 1)]


@pytest.mark.parametrize("dear", [True, False])
def test_terms_that_cost_much_are_vectors_of_elements_picked_one_by_one(check, data, dear):
    a, b = np.abs(data(40, 64)), np.abs(data(40, 64))
    x, y, turned = Tensor(a).flip(1), Tensor(b), a[:, ::-1]
    got, want = ((x.exp() + y).log(), np.log(np.exp(turned) + b)) if dear else (x * y, turned * b)
    (k,) = check(got.sum(1), want.sum(1), rtol=1e-5)
    assert splits(k, "GROUP_REDUCE") == ([16] if dear else [])
