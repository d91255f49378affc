"""Attention over more keys than local memory holds goes in blocks of keys: no scores in memory, the same values."""

from contextlib import contextmanager
from math import inf, nan, prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monolect import Tensor, dtypes
from monolect.ir.bounds import ranges
from monolect.ir.uop import toposort
from monolect.optimize.apply import choose_actions
from monolect.pipeline import lower_kernel
from monolect.runtime.profile import Recorder
from monolect.runtime.realize import execute, varied
from monolect.schedule.callify import over_params
from monolect.schedule.rewrites import split_softmax as pass_
from monolect.schedule.rewrites.split_softmax import split_softmax
from tests.strategies import often
from tests.structure.test_attention import FORMS, TARGET, calls_of, fused, in_float64, largest_error, naive, operands
from tests.structure.test_attention import softmax as weights_of

CUT = [form for form in FORMS if form != "no softmax"]


@contextmanager
def blocks_of(most):
    """Rows of more than `most` keys count as too long; no plan is kept from before, or for later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pass_, "longest_row", lambda *_: most)
        execute.plans.clear()
        varied._programs.clear()
        yield
    execute.plans.clear()


def run(make, most=16):
    """The values of `make()` in blocks, and its kernels."""
    with blocks_of(most), Recorder() as kernels:
        out = make().realize()
    return out.cast(dtypes.float64).numpy(), list(kernels)


def graph(*tensors):
    sink, _, _ = over_params([t.uop for t in tensors])
    return list(sink.src)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("form", CUT)
def test_blocks_of_keys_give_the_same_values(form, dtype, data):
    f, *shapes = FORMS[form]
    tensors = [x.cast(dtype).realize() for x in operands(data, *shapes)]
    got, kernels = run(lambda: f(*tensors))
    assert len(kernels) > 1
    wanted = in_float64(form, *(x.cast(dtypes.float32).numpy() for x in tensors))
    tolerance = largest_error(dtype)
    np.testing.assert_allclose(got, wanted, rtol=2 * tolerance, atol=tolerance * max(1, abs(wanted).max()))


@pytest.mark.parametrize("form", [fused(), fused(is_causal=True), naive], ids=["fused", "causal", "naive"])
@pytest.mark.parametrize("keys", [1 << 16, 40000], ids=["even blocks", "a shorter one"])
def test_no_buffer_holds_rows_of_scores(form, keys):
    q, k, v = (Tensor.empty(2, n, 64).realize() for n in (512, keys, keys))
    calls = calls_of(form(q, k, v))
    made = {b for call in calls for b in call.src[1:] if b.op == "BUFFER"}
    assert len(calls) <= 4 and max(prod(b.shape) for b in made) <= 2 * 512 * 64 * 8


def test_exp_is_computed_once_for_each_score():
    q, k = (Tensor.empty(2, n, 64).realize() for n in (512, 1 << 16))
    first = calls_of(fused()(q, k, k))[0]
    (exp,) = (u for u in toposort(lower_kernel(first.src[0], TARGET, last="merge_ranges")) if u.op == "EXP2")
    assert prod(r.src[0].value for r in ranges(exp)) == 2 * 512 << 16


def test_hidden_blocks_are_skipped():
    q, k = (Tensor.empty(2, 1 << 15, 64).realize() for _ in range(2))
    first = calls_of(fused(is_causal=True)(q, k, k))[0]
    kernel = lower_kernel(first.src[0], TARGET, last="merge_ranges")
    assert "BOUND" in [a[0] for a in choose_actions(kernel, TARGET).arg.actions]


@pytest.mark.parametrize("local_bytes", [0, TARGET.local_bytes], ids=["no local memory", "rows that fit"])
def test_other_rows_stay_whole(local_bytes, data):
    roots = graph(fused()(*operands(data, (2, 64, 16))))
    assert split_softmax(roots, local_bytes) is roots


def test_rows_that_are_wanted_too_stay_whole():
    q, k = (Tensor.empty(n, 64).realize() for n in (16, 1 << 16))
    scores = q @ k.transpose(-1, -2)
    weights, is_top = scores.softmax(-1), scores == scores.amax(-1, keepdim=True)
    for roots in (
        graph(weights, weights @ k),
        graph(weights.square() @ k, weights @ k),
        graph(weights.sum(0)),
        graph(weights @ k, scores),
        graph(weights @ k, is_top),
    ):
        assert split_softmax(roots, TARGET.local_bytes) is roots


def test_rows_that_no_product_makes_stay_whole():
    roots = graph(Tensor.empty(16, 1 << 16).realize().softmax(-1) @ Tensor.empty(1 << 16, 64).realize())
    assert split_softmax(roots, TARGET.local_bytes) is roots


# ---- values that are not finite --------------------------------------------------------------------------------------
def mask_of(rows, keys):
    """-inf in whole blocks, in all blocks but one, in all, and here and there."""
    mask = np.zeros((rows, keys), np.float32)
    mask[0, :32] = mask[1, 8:] = mask[2] = mask[3, ::3] = mask[4, -1:] = -inf
    return mask


@pytest.mark.sweep
@pytest.mark.parametrize("keys", [64, 67])
def test_scores_of_minus_infinity(keys, data):
    q, k, v = data(8, 16), data(keys, 16), data(keys, 16)
    mask = mask_of(8, keys)
    got, _ = run(lambda: Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(mask)))
    with np.errstate(invalid="ignore"):
        wanted = weights_of(q.astype(np.float64) @ k.T / 4 + mask) @ v
    assert np.isnan(wanted[2]).all() and np.isfinite(np.delete(wanted, 2, 0)).all()
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def test_a_query_that_sees_no_key_gives_zeros(data):
    q, k, v = data(8, 16), data(64, 16), data(64, 16)
    seen = mask_of(8, 64) == 0
    got, _ = run(lambda: Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(seen)))
    wanted = weights_of(np.where(seen, q.astype(np.float64) @ k.T / 4, -1e30)) @ v
    wanted[2] = 0
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("value", [inf, nan])
def test_what_is_not_finite_reaches_its_rows(value, data):
    q, k, v = data(8, 16), data(64, 16), data(64, 16)
    added = np.zeros((8, 64), np.float32)
    added[3, 50] = value
    got, _ = run(lambda: Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(added)))
    assert np.isnan(got[3]).all() and np.isfinite(np.delete(got, 3, 0)).all()


def test_scores_far_apart_and_far_from_zero(data):
    q, k, v = 30 * data(8, 16), 30 * data(64, 16), data(64, 16)
    got, _ = run(lambda: Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v)))
    s = (q @ k.T).astype(np.float64) / 4
    np.testing.assert_allclose(got, weights_of(s) @ v, rtol=5e-3, atol=5e-3)  # scores of 1e4 have errors of 1e-3


# ---- any size --------------------------------------------------------------------------------------------------------
@settings(max_examples=often(8, 200))
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(2, 40), st.integers(1, 9)),
    most=st.integers(1, 20),
    kind=st.sampled_from(["plain", "causal", "masked", "dropped", "scaled"]),
)
@example(sizes=(1, 4, 5, 2), most=4, kind="causal")
@example(sizes=(1, 4, 5, 3), most=1, kind="plain")  # exponentials of five lanes
def test_any_size_in_any_blocks(sizes, most, kind):
    heads, rows, keys, width = sizes
    rng = np.random.default_rng(keys)
    q, k, v = (rng.standard_normal((heads, n, width), dtype=np.float32) for n in (rows, keys, keys))
    s = q.astype(np.float64) @ k.swapaxes(1, 2) * width**-0.5
    more = rng.standard_normal((rows, keys), dtype=np.float32)
    if kind == "dropped":
        wanted = (weights_of(s) * more) @ v
    elif kind == "causal":
        wanted = weights_of(np.where(np.tril(np.ones((rows, keys), bool)), s, -inf)) @ v
    else:
        wanted = weights_of(s + more if kind == "masked" else s) @ v / (2 if kind == "scaled" else 1)

    def attention():
        x, y, z = map(Tensor, (q, k, v))
        if kind == "dropped":
            return ((x @ y.transpose(1, 2) * width**-0.5).softmax(-1) * Tensor(more)) @ z
        if kind == "scaled":
            return ((x @ y.transpose(1, 2) * width**-0.5).softmax(-1) / Tensor([2.0])) @ z
        mask = Tensor(more) if kind == "masked" else None
        return x.scaled_dot_product_attention(y, z, mask, is_causal=kind == "causal")

    got, _ = run(attention, most)
    np.testing.assert_allclose(got, wanted, rtol=5e-5, atol=5e-5)
