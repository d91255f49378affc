"""Matrix products of narrow numbers on this processor, whatever units it has, against float64 and exact integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import monolect
from monolect import ArgumentError, DTypeError, Tensor, dtypes
from monolect.backend.cpu.units import BY_NAME
from monolect.ir.ops import BufferArg
from monolect.ir.uop import broadcast_to, build, const, node, shape_source
from monolect.lower.matrix_products import multiply
from tests.strategies import COMPILED, often

BF16, F16, I8, U8 = dtypes.bfloat16, dtypes.float16, dtypes.int8, dtypes.uint8
SIZES = st.sampled_from([1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 48, 63, 64, 65, 96, 100, 127, 130, 200])


def draw_numbers(rng, d, *shape):
    if d.is_float:
        return rng.standard_normal(shape).astype(np.float32).astype(d.numpy)
    return rng.integers(int(d.min), int(d.max) + 1, shape).astype(d.numpy)


def turned(x, is_turned):
    return x.T if is_turned else x


@COMPILED
@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), st.sampled_from([BF16, F16]), st.integers(0, 99))
def test_small_floats_are_added_in_float32(m, k, n, left, right, d, seed):
    rng = np.random.default_rng(seed)
    a = draw_numbers(rng, d, *((k, m) if left else (m, k)))
    b = draw_numbers(rng, d, *((n, k) if right else (k, n)))
    x, y = (turned(z.astype(np.float64), t) for z, t in ((a, left), (b, right)))
    bound = 1e-30 + np.abs(x) @ np.abs(y) * (k + 2) * 2.0**-24  # of any order of additions, each rounded
    tx, ty = turned(Tensor(a), left), turned(Tensor(b), right)
    wide = (tx.float() @ ty.float()).numpy().astype(np.float64)
    assert (np.abs(wide - x @ y) <= bound).all()
    got = (tx @ ty).numpy().astype(np.float64)
    assert (np.abs(got - x @ y) <= bound + np.abs(x @ y) * (2.0**-8 if d is BF16 else 2.0**-11) + 2.0**-24).all()


@COMPILED
@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), st.sampled_from([I8, U8]), st.sampled_from([I8, U8]))
def test_bytes_are_added_exactly(m, k, n, left, right, da, db):
    rng = np.random.default_rng(m * k + n)
    a = draw_numbers(rng, da, *((k, m) if left else (m, k)))
    b = draw_numbers(rng, db, *((n, k) if right else (k, n)))
    got = turned(Tensor(a), left).int() @ turned(Tensor(b), right).int()
    wanted = turned(a.astype(np.int64), left) @ turned(b.astype(np.int64), right)
    np.testing.assert_array_equal(got.numpy(), wanted)


@settings(max_examples=often(12, 1000))
@given(SIZES, SIZES, SIZES, st.sampled_from([I8, U8]), st.sampled_from([I8, U8]))
def test_products_with_a_dtype_are_those_of_cast_operands(m, k, n, da, db):
    """They are the same node, so the same units compute them."""
    rng = np.random.default_rng(m * k + n)
    a, b = draw_numbers(rng, da, m, k), draw_numbers(rng, db, k, n)
    x, y = Tensor(a), Tensor(b)
    got = x.matmul(y, dtype=dtypes.int32)
    assert got._uop is (x.int() @ y.int())._uop
    for other in (monolect.matmul(x, y, dtype="int32"), x.mm(y, dtypes.int32), monolect.mm(x, y, dtype=np.int32)):
        assert other._uop is got._uop and other.dtype is dtypes.int32
    batches = monolect.bmm(x.reshape(1, m, k), y.reshape(1, k, n), out_dtype=dtypes.int32)
    assert batches._uop is x.reshape(1, m, k).int().bmm(y.reshape(1, k, n).int())._uop
    u, v = Tensor(a[0]), Tensor(b[:, 0])
    assert monolect.dot(u, v, dtype=dtypes.int32)._uop is u.int().dot(v.int())._uop
    assert x.matmul(y).dtype is (x @ y).dtype  # without it nothing is cast
    np.testing.assert_array_equal(got.numpy(), a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.sweep
@pytest.mark.parametrize("d", [BF16, F16], ids=str)
def test_products_of_small_floats_with_a_dtype_are_not_rounded(d):
    rng = np.random.default_rng(0)
    a, b, c = (draw_numbers(rng, d, *s) for s in ((48, 64), (64, 33), (48, 33)))
    x, y, t = Tensor(a), Tensor(b), Tensor(c)
    got = monolect.matmul(x, y, dtype=dtypes.float32)
    assert got.dtype is dtypes.float32 and got._uop is (x.float() @ y.float())._uop
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got.numpy(), exact, rtol=1e-5, atol=1e-4)
    added = monolect.addmm(t, x, y, dtypes.float32, beta=2)
    np.testing.assert_allclose(added.numpy(), exact + 2 * c.astype(np.float64), rtol=1e-5, atol=1e-4)
    batches = (z.unsqueeze(0) for z in (t, x, y))
    assert monolect.baddbmm(*batches, out_dtype=dtypes.float32).dtype is dtypes.float32
    w = x.detach().requires_grad_()
    w.matmul(y, dtype=dtypes.float32).sum().backward()
    np.testing.assert_allclose(
        w.grad.float().numpy(), np.tile(b.astype(np.float64).sum(1), (48, 1)), rtol=1e-2, atol=0.1
    )


def test_what_a_dtype_of_a_product_refuses():
    x, i = Tensor.ones(2, 2), Tensor([[1, 2], [3, 4]])
    for call in (lambda: x.matmul(i, dtype="int32"), lambda: i.mm(x, dtypes.int8), lambda: x.addmm(i, i, dtypes.int32)):
        with pytest.raises(DTypeError, match="dtype of floats"):
            call()
    with pytest.raises(ArgumentError, match="out_dtype"):
        i.mm(i, dtypes.int32, dtype=dtypes.int8)
    assert i.mm(i, dtypes.int32, dtype="int32").dtype is dtypes.int32


@pytest.mark.sweep
@pytest.mark.parametrize("da, db", [(I8, I8), (U8, I8), (I8, U8), (U8, U8)])
@pytest.mark.parametrize("ends", ["min", "max", "both"])
def test_sums_of_the_largest_bytes_wrap_as_integers_do(da, db, ends):
    k = 140_000  # 140000 * 128 * 128 > 2^31
    pick = {"min": lambda d: [d.min], "max": lambda d: [d.max], "both": lambda d: [d.min, d.max]}[ends]
    a, b = (np.resize(np.array(pick(d), d.numpy), s) for d, s in ((da, (17, k)), (db, (k, 16))))
    got = (Tensor(a).int() @ Tensor(b).int()).numpy()
    wanted = a.astype(np.int64) @ b.astype(np.int64)
    np.testing.assert_array_equal(got, wanted.astype(np.uint64).astype(np.uint32).view(np.int32))


def test_what_float32_cannot_hold_stays_infinite_or_nan():
    a = np.zeros((32, 64), np.float32)
    a[3, 5], a[4, 6], a[5, 7] = np.inf, np.nan, 3e38
    b = np.ones((64, 32), np.float32)
    got = (Tensor(a.astype(BF16.numpy)).float() @ Tensor(b.astype(BF16.numpy)).float()).numpy()
    assert np.isposinf(got[3]).all() and np.isnan(got[4]).all() and (got[5] > 2.9e38).all() and (got[0] == 0).all()


def test_elements_of_bfloat16_are_found_added_and_joined():
    """What LLVM has no instructions for in this type is done on its bits."""
    x = np.arange(64).reshape(8, 8).astype(BF16.numpy)
    t = Tensor(x)
    at = np.array([1, 1, 3])
    added = Tensor(np.zeros(8, BF16.numpy)).scatter_add(0, Tensor(at), Tensor(np.array([1.5, 2, 3], BF16.numpy)))
    np.testing.assert_array_equal(added.numpy().astype(np.float32), [0, 3.5, 0, 3, 0, 0, 0, 0])
    for got, wanted in [
        (t.T.contiguous(), x.T),
        (t.flip(1), x[:, ::-1]),
        (t[Tensor(at)], x[at]),
        (t[:, 1:6:2], x[:, 1:6:2]),
    ]:
        np.testing.assert_array_equal(got.numpy(), wanted)


@pytest.mark.parametrize(("factor", "is_exact"), [(0.5, True), (-3.0, True), (0.1, False), (257.0, False)])
def test_a_unit_takes_a_constant_only_if_its_type_holds_it(factor, is_exact):
    register = node("BUFFER", (shape_source((16, 2)),), BufferArg(0, dtypes.bfloat16, None, "REG"))
    x = build("CAST", node("LOAD", (register,)), arg=dtypes.float32)
    terms = node("MUL", (x, broadcast_to(const(factor, dtypes.float32), (16, 2))))
    total = build("RESHAPE", node("REDUCE", (terms,), ("ADD", (1,))), shape_source((16,)))
    assert (multiply(total, (BY_NAME["vdpbf16ps"].unit,)) is not None) == is_exact
