"""Attention is one kernel: a row block of scores stays in local memory between the product that makes it, softmax and
the product that uses it.
"""

from math import prod

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monolect import Tensor, Variable, dtypes
from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.base.target import Target
from monolect.ir.bounds import ranges, size_max
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import node, toposort
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.apply import choose_actions
from monolect.optimize.cpu.heuristic import Chooser
from monolect.optimize.cpu.staged import Staged
from monolect.pipeline import lower_kernel, schedule
from monolect.runtime.profile import Recorder
from monolect.schedule.callify import over_params
from tests.strategies import COMPILED
from tests.structure.conftest import kernels_of

TARGET = Target(name="test", native=LLVM_NATIVE, vector_bytes=64, n_registers=32, n_threads=2, local_bytes=4 << 20)


def calls_of(*tensors, local_bytes=TARGET.local_bytes):
    """The CALLs that computing `tensors` takes on a target with local memory of its own for each thread."""
    sink, _, _ = over_params([t.uop for t in tensors])
    return schedule(list(sink.src), "cpu", local_bytes).linear.src


def kernel_of(tensor):
    """The one kernel of `tensor`, ready to be optimized."""
    (call,) = calls_of(tensor)
    return lower_kernel(call.src[0], TARGET, last="merge_ranges")


def chosen(tensor):
    """The actions for the one kernel of `tensor`."""
    return choose_actions(kernel_of(tensor), TARGET).arg.actions


def operands(data, q, k=None, v=None):
    return tuple(Tensor(data(*s)) for s in (q, k or q, v or k or q))


def naive(q, k, v):
    """As it is written in text books."""
    return (q @ k.transpose(-1, -2) / 8).softmax(-1) @ v


def naive_masked(q, k, v):
    n, m = q.shape[-2], k.shape[-2]
    visible = Tensor.arange(m).reshape(1, m) <= Tensor.arange(n).reshape(n, 1)
    return visible.where(q @ k.transpose(-1, -2) * 0.125, -np.inf).softmax(-1) @ v


def unlike_sdpa(q, k, v):
    """Rows shared by several reductions, without exp."""
    s = q @ k.transpose(-1, -2)
    return (s - s.mean(-1, keepdim=True)).relu() @ v


def fused(**options):
    return lambda q, k, v: q.scaled_dot_product_attention(k, v, **options)


FORMS = {
    "plain": (fused(), (2, 3, 64, 16), None, None),
    "causal": (fused(is_causal=True), (2, 3, 64, 16), None, None),
    "naive": (naive, (2, 3, 64, 16), None, None),
    "naive, masked": (naive_masked, (2, 3, 64, 16), None, None),
    "odd lengths": (fused(), (1, 4, 197, 20), None, None),
    "odd lengths, causal": (fused(is_causal=True), (1, 4, 97, 20), None, None),
    "another length of keys, another width": (fused(scale=0.3), (2, 2, 33, 24), (2, 2, 77, 24), (2, 2, 77, 40)),
    "grouped heads": (fused(enable_gqa=True), (2, 8, 40, 16), (2, 2, 40, 16), None),
    "grouped heads, causal": (fused(enable_gqa=True, is_causal=True), (1, 8, 100, 16), (1, 4, 100, 16), None),
    "one query": (fused(), (2, 6, 1, 32), (2, 6, 80, 32), None),
    "one query of grouped heads": (fused(enable_gqa=True), (1, 8, 1, 32), (1, 2, 80, 32), None),
    "no batch": (naive, (40, 16), None, None),
    "no softmax": (unlike_sdpa, (2, 64, 16), None, None),
}


def in_float64(form, q, k, v):
    """The same by NumPy."""
    f = FORMS[form][0]
    k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) if x.ndim > 2 else x for x in (k, v))
    s = q.astype(np.float64) @ np.swapaxes(k, -1, -2)
    if f is unlike_sdpa:
        return np.maximum(s - s.mean(-1, keepdims=True), 0) @ v
    s *= 0.125 if f in (naive, naive_masked) else 0.3 if "width" in form else q.shape[-1] ** -0.5
    if "causal" in form or "masked" in form:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def largest_error(dtype):
    """Of a result rounded to `dtype`, as a share of it: half a step for each of the two products."""
    return {dtypes.float32: 2e-5, dtypes.float16: 2.0**-10, dtypes.bfloat16: 2.0**-7}[dtype]


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("form", FORMS)
def test_attention_is_one_kernel_that_stores_only_its_result(form, dtype, data):
    f, *shapes = FORMS[form]
    tensors = [x.cast(dtype).realize() for x in operands(data, *shapes)]
    with Recorder() as kernels:
        got = f(*tensors).realize()
    assert len(kernels) == 1
    wanted = in_float64(form, *(x.cast(dtypes.float32).numpy() for x in tensors))
    tolerance = largest_error(dtype)
    # what is written by hand rounds scores and weights to the dtype too
    np.testing.assert_allclose(
        got.cast(dtypes.float32).numpy(), wanted, rtol=2 * tolerance, atol=tolerance * max(1, abs(wanted).max())
    )
    (call,) = calls_of(f(*tensors))
    assert [b.op for b in call.src[1:]].count("BUFFER") == 1  # the result


@pytest.mark.parametrize("form", ["plain", "causal", "naive, masked", "grouped heads", "one query"])
def test_exp_is_computed_once_for_each_score(form, data):
    f, *shapes = FORMS[form]
    q, k, v = operands(data, *shapes)
    kernel = kernel_of(f(q, k, v))
    (exp,) = (u for u in toposort(kernel) if u.op == "EXP2")
    assert prod(r.src[0].value for r in ranges(exp)) == prod(q.shape[:-1]) * k.shape[-2]


def test_masks_are_part_of_the_kernel(data):
    q, k, v = operands(data, (2, 2, 40, 16))
    added, seen = data(40, 40), data(40, 40) > 0
    seen[3] = False
    for mask in (added, seen):
        with Recorder() as kernels:
            got = q.scaled_dot_product_attention(k, v, Tensor(mask)).numpy()
        assert len(kernels) == 1
        s = q.numpy().astype(np.float64) @ np.swapaxes(k.numpy(), -1, -2) / 4
        s = np.where(mask, s, -1e30) if mask is seen else s + mask
        e = np.exp(s - s.max(-1, keepdims=True))
        wanted = e / e.sum(-1, keepdims=True) @ v.numpy()
        if mask is seen:
            wanted[..., 3, :] = 0
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_masks_and_projections_in_half_precision_add_no_kernel(dtype, data):
    x, w = (Tensor(data(*s)).cast(dtype).realize() for s in ((48, 64), (64, 192)))
    mask = Tensor(data(48, 48) > -1)
    q, k, v = (t.reshape(48, 4, 16).transpose(0, 1) for t in (x @ w).split(64, 1))
    out = q.scaled_dot_product_attention(k, v, mask).transpose(0, 1).reshape(48, 64) @ w[:, :64]
    calls = calls_of(out + x)
    assert len(calls) == 3
    made = {b for call in calls for b in call.src[1:] if b.op == "BUFFER"}
    assert {b.dtype for b in made} == {dtype}  # nothing is widened in memory


def with_factors_swapped(sink):
    """The same graph as it is where nodes that were there before give factors the other order."""
    new = {}
    for u in toposort(sink):
        src = tuple(new[s] for s in u.src)
        new[u] = node(u.op, src[::-1] if u.op == "MUL" else src, u.arg)
    return new[sink]


@pytest.mark.parametrize("batch", [1, 2])
def test_values_of_one_head_projected_beside_it_have_a_buffer(batch, data):
    """One head's features are an axis of the result too; kept between loops, they would have to be the outermost."""
    x, *weights = (Tensor(data(*s)).realize() for s in ((batch, 24, 16), *[(16, 16)] * 3))
    q, k, v = (x @ w for w in weights)
    sink, _, _ = over_params([q.scaled_dot_product_attention(k, v).uop])
    for graph in (sink, with_factors_swapped(sink)):
        calls = schedule(list(graph.src), "cpu", TARGET.local_bytes).linear.src
        assert len(calls) == 3  # keys, values, and queries with the rest


def test_the_plan_of_causal_attention(data):
    actions = chosen(fused(is_causal=True)(*operands(data, (1, 12, 256, 64))))
    assert [a[0] for a in actions[-2:]] == ["BOUND", "PACK"]  # keys, which lie across the lanes, are turned once a head
    assert sum(a[0] == "SPLIT" and a[2][1] == "THREAD" for a in actions) == 1


@pytest.mark.parametrize("heads, rows", [(1, 256), (1, 203), (3, 203)])
def test_threads_take_rows_in_turns_where_a_mask_hides_the_more_from_them_the_earlier_they_are(heads, rows, data):
    def shared_out(**options):
        actions = chosen(fused(**options)(*operands(data, (1, heads, rows, 64))))
        return [arg for op, _, arg in actions if op == "SPLIT" and arg[1] == "THREAD"]

    assert shared_out(is_causal=True) == [(2, "THREAD", False)]
    assert shared_out() == [(2, "THREAD", True)]


def test_without_a_mask_no_loop_ends_early(data):
    assert "BOUND" not in [a[0] for a in chosen(fused()(*operands(data, (1, 12, 256, 64))))]


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["plain", "causal", "naive, masked"])
def test_tokens_of_symbolic_number_store_no_scores(form, data):
    f, most = FORMS[form][0], 40
    n = Variable("tokens_of_attention", 1, most)
    q, k, v = operands(data, (3, most, 16))
    (call,) = calls_of(f(q[:, :n], k[:, :n], v[:, :n]))
    stored = [p for p in toposort(call.src[0]) if p.op == "PARAM" and p.arg.name is None]
    assert all(size_max(count(p.shape)) <= 3 * most * 16 for p in stored)
    for rows in (1, 2, 17, most):
        with n.bind(rows):
            got = f(q[:, :n], k[:, :n], v[:, :n]).numpy()
        want = f(*(Tensor(x.numpy()[:, :rows].astype(np.float64)) for x in (q, k, v))).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_target_without_local_memory_stores_the_scores(data):
    out = fused()(*operands(data, (2, 3, 64, 16)))
    assert len(calls_of(out, local_bytes=0)) > 1


def test_weights_that_are_wanted_too_are_stored_once(check, data):
    q, k, v = operands(data, (2, 40, 16))
    weights = (q @ k.transpose(-1, -2)).softmax(-1)
    assert len(calls_of(weights, weights @ v)) > 1


def test_products_with_nothing_along_rows_between_them_stay_apart(data):
    a, b, c = operands(data, (64, 64))
    assert len(calls_of((a @ b).relu() @ c)) == 2


# ---- what a mask hides -----------------------------------------------------------------------------------------------
def test_what_comes_before_is_finite_whatever_is_hidden(data):
    """Keys and values that no query of a tile sees are not read: what is not finite there spreads no further."""
    q, k, v = (data(1, 2, 256, 16) for _ in range(3))
    broken_k, broken_v = k.copy(), v.copy()
    broken_k[:, :, 192:], broken_v[:, :, 192:] = np.inf, np.nan
    got = fused(is_causal=True)(*map(Tensor, (q, broken_k, broken_v))).numpy()
    wanted = fused(is_causal=True)(*map(Tensor, (q, k, v))).numpy()
    np.testing.assert_array_equal(got[:, :, :64], wanted[:, :, :64])


def test_a_visible_nan_reaches_its_rows(data):
    q, k, v = (data(1, 2, 32, 16) for _ in range(3))
    k[:, :, 5] = np.nan
    got = fused(is_causal=True)(*map(Tensor, (q, k, v))).numpy()
    assert np.isfinite(got[:, :, :5]).all() and np.isnan(got[:, :, 5:]).all()


# ---- a key that is joined to those before ----------------------------------------------------------------------------
def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def chooses(kernel):
    """Whether some load, or some value, is picked by a condition."""
    return any(u.op == "WHERE" or (u.op == "LOAD" and len(u.src) == 3) for u in toposort(kernel))


@pytest.mark.sweep
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["last", "first"])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16], ids=lambda d: d.name)
def test_a_joined_key_stands_apart_and_no_load_is_masked(order, dtype, data):
    q, k, v, new_k, new_v = (Tensor(data(1, 12, n, 16)).cast(dtype).realize() for n in (1, 64, 64, 1, 1))

    def joined(x, new):
        return Tensor.cat(*((x, new)[i] for i in order), dim=2)

    out = q.scaled_dot_product_attention(joined(k, new_k), joined(v, new_v))
    kernel = kernel_of(out)
    assert not chooses(kernel)
    (exp, apart) = sorted((u for u in toposort(kernel) if u.op == "EXP2"), key=lambda u: -len(ranges(u)))
    assert prod(r.src[0].value for r in ranges(exp)) == 12 * 64 and len(ranges(apart)) == 1
    q, k, v, new_k, new_v = (x.cast(dtypes.float32).numpy().astype(np.float64) for x in (q, k, v, new_k, new_v))
    weights = softmax(q @ np.concatenate([k, new_k], 2).swapaxes(2, 3) / 4)
    wanted = weights @ np.concatenate([v, new_v], 2)
    tolerance = largest_error(dtype)
    np.testing.assert_allclose(out.cast(dtypes.float32).numpy(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.sweep
@pytest.mark.parametrize("rows", [1, 8, 40])
@pytest.mark.parametrize("sizes", [(64, 8), (5, 64), (64, 2), (3, 61), (40, 17, 9)], ids=str)
def test_joined_keys_have_loops_of_their_own_and_no_load_is_masked(sizes, rows, data):
    q = Tensor(data(1, 12, rows, 16))
    keys, values = ([Tensor(data(1, 12, n, 16)) for n in sizes] for _ in range(2))
    out = q.scaled_dot_product_attention(Tensor.cat(*keys, dim=2), Tensor.cat(*values, dim=2))
    kernel = kernel_of(out)
    assert not chooses(kernel)
    exps = [prod(r.src[0].value for r in ranges(u)) for u in toposort(kernel) if u.op == "EXP2"]
    assert sum(exps) == 12 * rows * sum(sizes)
    k, v = (np.concatenate([x.numpy().astype(np.float64) for x in xs], 2) for xs in (keys, values))
    wanted = softmax(q.numpy() @ k.swapaxes(2, 3) / 4) @ v
    np.testing.assert_allclose(out.numpy(), wanted, rtol=2e-5, atol=2e-5)


def test_sums_over_pieces_share_one_tile_and_cost_what_both_do(data):
    q, k, new = (Tensor(data(1, 12, n, 64)) for n in (64, 1024, 64))
    joined, whole = Tensor.cat(k, new, dim=2), Tensor(data(1, 12, 1088, 64))
    costs = []
    for keys in (joined, whole):
        chooser = Chooser(LoopPlan(kernel_of(q.scaled_dot_product_attention(keys, keys)), TARGET))
        staged = Staged(chooser)
        rows = next(x for x in staged.around if chooser.plan.size(x) == 64)
        costs.append(staged.best(rows)[0])
    assert 0.9 < costs[0] / costs[1] < 1.3


def test_keys_that_a_mask_hides_from_all_rows_leave_heads_and_rows_to_the_others(data):
    """Their scores are constants, a stage within no loop: it says nothing of the loops around the other stages. Where
    it did, heads were vectors, and the program had some eighty thousand lines.
    """
    q, old, new = operands(data, (10, 4, 8), (10, 15, 8), (10, 12, 8))
    keys = Tensor.cat(old, new, dim=1)
    kernel = kernel_of(q.scaled_dot_product_attention(keys, keys, is_causal=True))
    chooser = Chooser(LoopPlan(kernel, TARGET))
    assert any(not ranges(e) for e in chooser.plan.scratch.fills.values())
    assert [chooser.plan.extent(r) for r in Staged(chooser).around] == [10, 4]


def test_sums_over_joined_rows_stay_in_one_piece(data):
    """Without stages, a product is one sum: its tile is chosen for that."""
    a, b, new = operands(data, (4, 65), (64, 48), (1, 48))
    (reduce,) = (u for u in toposort(kernel_of(a @ Tensor.cat(b, new))) if u.op == "REDUCE")
    assert [r.src[0].value for r in reduce.src[1:]] == [65]


@COMPILED
@given(
    heads=st.integers(1, 16),
    rows=st.integers(1, 9),
    keys=st.integers(1, 40),
    more=st.integers(1, 12),
    width=st.integers(1, 20),
    seed=st.integers(0, 99),
    first=st.booleans(),
    causal=st.booleans(),
    masked=st.booleans(),
)
@example(heads=4, rows=2, keys=2, more=3, width=2, seed=0, first=True, causal=True, masked=False)
def test_attention_over_joined_keys_is_right_in_any_size(heads, rows, keys, more, width, seed, first, causal, masked):
    rng = np.random.default_rng(seed)
    shapes = [(rows, width), (keys, width), (keys, width), (more, width), (more, width)]
    q, k, v, new_k, new_v = (rng.standard_normal((heads, *s), dtype=np.float32) for s in shapes)
    pairs = [(x, y)[:: -1 if first else 1] for x, y in ((k, new_k), (v, new_v))]
    mask = rng.standard_normal((rows, keys + more), dtype=np.float32) if masked and not causal else None
    all_k, all_v = (Tensor.cat(*map(Tensor, p), dim=1) for p in pairs)
    added = None if mask is None else Tensor(mask)
    got = Tensor(q).scaled_dot_product_attention(all_k, all_v, added, is_causal=causal).numpy()
    k, v = (np.concatenate(p, 1).astype(np.float64) for p in pairs)
    s = q @ k.swapaxes(1, 2) * width**-0.5
    s = s + mask if mask is not None else np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf) if causal else s
    np.testing.assert_allclose(got, softmax(s) @ v, rtol=2e-5, atol=2e-5)


def n_stages(tensor):
    """How many values each kernel of `tensor` keeps in local memory."""
    return [sum(u.op == "BUFFER" for u in toposort(c.src[0])) for c in calls_of(tensor)]


@pytest.mark.parametrize("width, kept", [(16, True), (512, False)])
def test_rows_whose_products_read_more_than_fits_are_no_stages(data, width, kept):
    """Experts: what their products read for a row of tokens is all of their weights."""
    x, up, down = Tensor(data(64, width)), Tensor(data(8, width, 2 * width)), Tensor(data(8, 2 * width, width))
    share, head = Tensor(data(8, 64, 1)), Tensor(data(width, 8))
    h = ((x @ up).relu() @ down * share).sum(0)
    h = h - h.mean(-1, keepdim=True)
    assert (max(n_stages(h @ head)) > 3) is kept


def test_short_rows_across_memory_are_no_stages(data):
    """A weight that is stored along the places of a channel, after a norm over channels."""
    x, w, z = Tensor(data(32, 64)), Tensor(data(64, 16 * 64)), Tensor(data(32, 100))
    y = (x @ w).reshape(32, 64, 16)
    y = y * (y * y).sum((0, 2), keepdim=True)
    assert sum(n_stages(z.T @ y.reshape(32, 1024))) == 0


def test_what_a_row_of_zeros_multiplies_is_not_lost(data):
    """A choice of 0 for a row is a factor of every term of its sum: 0 * inf is nan."""
    q, k, v, rows = data(8, 4), data(8, 4), data(8, 4), np.arange(8).reshape(8, 1)
    v[3, 1] = np.inf
    got = (Tensor(rows) > 4).where((Tensor(q) @ Tensor(k).T).softmax(-1), 0.0) @ Tensor(v)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(got.numpy(), np.where(rows > 4, softmax(q @ k.T), 0) @ v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axes", [(0, 2), (0, 1), (1, 2), (2, 0)])
def test_a_sum_across_the_rows_of_a_stage_is_done_once(data, axes):
    """A row that products read is kept in local memory; what it takes from all other rows is not computed for each."""
    x = Tensor(data(1127, 2, 2)) @ Tensor(data(2, 129))
    out = x.softmax(axes[0]).softmax(axes[1]) @ Tensor(data(129, 33))
    work = sum(k.work for k in kernels_of(out, local_bytes=TARGET.local_bytes))
    assert work < 2 * 1127 * 2 * 129 * (33 + 20)
