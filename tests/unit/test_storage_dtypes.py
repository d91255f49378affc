"""Storage dtypes, formats of 8 and 4 bits: casts have the bits of `ml_dtypes`, operators compute in float32."""

import operator
import pickle
import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, dtypes, jit
from monolect.backend.registry import Device
from monolect.base.dtype import STORED, USER, DType, as_dtype, is_whole
from monolect.base.errors import DTypeError, GradientError
from tests.strategies import often

DEVICES = [name for name, why in Device.present().items() if name in ("cpu", "c", "python") and not why]
FLOATS = [d for d in STORED if not is_whole(d)]
BYTES = {d: 16 if d.max in (6.0, 7, 15) else 256 for d in STORED}  # different bytes
NAMES = "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4"


def ml(d: DType) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, d.name))


def values(d: DType) -> np.ndarray:
    """All values of a dtype, by their bytes."""
    return np.arange(BYTES[d], dtype=np.uint8).view(ml(d)).astype(np.float32)


def encoded(x: np.ndarray, d: DType) -> np.ndarray:
    """The bytes of numbers by `ml_dtypes`; that wraps floats outside of an integer format, which saturate here."""
    with np.errstate(all="ignore"):
        if is_whole(d) and x.dtype.kind == "f":
            whole = np.trunc(np.where(np.isnan(x), 0, np.clip(x, d.min, d.max)))
            return whole.astype(np.int64).astype(np.uint8) & 15
        return x.astype(ml(d)).view(np.uint8)


def test_names() -> None:
    assert tuple(d.name for d in STORED) == NAMES and not set(STORED) & set(USER)
    for d in STORED:
        assert as_dtype(ml(d)) is as_dtype(d.name) is getattr(dtypes, d.name) is d and d.numpy == ml(d)
        assert d.itemsize == 1 and not d.is_float and not d.is_int and pickle.loads(pickle.dumps(d)) is d
        finite = values(d)[np.isfinite(values(d))]
        assert (d.min, d.max) == (finite.min(), finite.max())
    for name in NAMES[:3]:
        assert as_dtype(getattr(torch, name)) is getattr(dtypes, name)
        assert Tensor([1.0]).to(getattr(torch, name)).dtype.name == name


# ---- casts -----------------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("d", STORED)
def test_every_byte_is_decoded(d: DType, device: str) -> None:
    raw = Tensor(np.arange(BYTES[d], dtype=np.uint8), device=device)
    x = raw.bitcast(d)
    want = values(d)
    np.testing.assert_array_equal(x.float().numpy(), want)
    assert (np.signbit(x.float().numpy()) == np.signbit(want))[~np.isnan(want)].all()
    np.testing.assert_array_equal(x.double().numpy(), want)
    assert (x.float().cast(d).bitcast("uint8").numpy() == encoded(want, d)).all()
    assert x.numpy().dtype == ml(d) and (x.bitcast("uint8").numpy() == np.arange(BYTES[d])).all()
    if is_whole(d):
        assert x.tolist() == x.long().tolist() == want.tolist() and isinstance(x[0].item(), int)


def numbers(d: DType) -> np.ndarray:
    """Random float32 numbers, all numbers near values of a dtype and near the middle between two, and special ones."""
    rng = np.random.default_rng(len(d.name))
    v = np.unique(values(d)[np.isfinite(values(d))])
    near = np.concatenate([v, v[1:] / 2 + v[:-1] / 2, v[-2:] * 1.25, v[-2:] * 1.125, v[-2:] * 1.5]).astype(np.float32)
    near = np.concatenate([np.nextafter(near, np.float32(to)) for to in (-np.inf, np.inf)] + [near, -near])
    bits = rng.integers(0, 1 << 32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    tiny = np.array([1, 0x3FFFFF, 0x400000, 0x400001, 0x600000, 0x7FFFFF, 0x800000], np.uint32).view(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38], np.float32)
    return np.concatenate([near, bits, tiny, special, rng.normal(size=2000).astype(np.float32) * 8])


@pytest.mark.sweep
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("d", STORED)
def test_float32_is_rounded_as_by_ml_dtypes(d: DType, device: str) -> None:
    x = numbers(d)
    want = encoded(x, d)
    for device_settings in ({}, {"NOOPT": 1}, {"VERIFY": 2}) if device == "cpu" else ({},):
        with Context(**device_settings):
            got = Tensor(x, device=device).cast(d).bitcast("uint8").numpy()
        np.testing.assert_array_equal(got, want, err_msg=str(device_settings))
    at_once = Tensor(x, dtype=d, device=device)
    assert (at_once.bitcast("uint8").numpy() == want).all()


@pytest.mark.sweep
@pytest.mark.parametrize("d", STORED)
def test_other_dtypes_are_rounded_once(d: DType) -> None:
    rng = random.Random(7)
    v = sorted({float(x) for x in values(d) if np.isfinite(x)})
    middles = [(a + b) / 2 for a, b in zip(v, v[1:], strict=False) if a != 2.0**-127]  # it has a rule of its own
    doubles = [m * (1 + s * 2.0**-k) for m in middles for s in (-1, 1) for k in (26, 40)] + middles
    wide, single = np.array(doubles), np.array(doubles, np.float32)
    if not is_whole(d):  # the nearest value, of the exact number
        got = Tensor(wide).cast(d).double().numpy()
        distance = np.abs(wide[:, None] - np.array(v)[None])
        assert (np.abs(got - wide) == distance.min(1)).all()
        tie = np.isclose(np.sort(distance, 1)[:, 0], np.sort(distance, 1)[:, 1], rtol=1e-15, atol=0) & (wide == single)
        np.testing.assert_array_equal(got[tie], single[tie].astype(ml(d)).astype(np.float64))
    for name in ("float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"):
        low, high = (0, 1) if name == "bool" else (-40, 40) if name[0] != "u" else (0, 80)
        n = np.array([rng.randint(low, high) for _ in range(200)])
        x = Tensor(n, dtype=name)
        exact = encoded(n.astype(np.float32 if not is_whole(d) or "float" in name else np.int64), d)
        assert (x.cast(d).bitcast("uint8").numpy() == exact).all(), name
    large = [2**k + s for k in (25, 31, 40, 62) for s in (-1, 0, 1)] + [3 * 2**40 - 1, 3 * 2**40, 3 * 2**40 + 1]
    if d is dtypes.float8_e8m0fnu:
        want = [2.0 ** (k + (x >= 3 << (k - 1))) for x in large for k in [x.bit_length() - 1]]
        assert Tensor(large).cast(d).tolist() == want


def test_integers_wrap_and_floats_saturate() -> None:
    assert Tensor([-9, -8, 7, 8, 100]).cast("int4").tolist() == [7, -8, 7, -8, 4]
    assert Tensor([-1, 15, 16, 100]).cast("uint4").tolist() == [15, 15, 0, 4]
    x = [-1e9, -8.9, -0.5, 1.9, 7.5, 99.0, np.inf, np.nan]
    assert Tensor(x).cast("int4").tolist() == Tensor(x, dtype="int4").tolist() == [-8, -8, 0, 1, 7, 7, 7, 0]
    assert Tensor(x).cast("uint4").tolist() == [0, 0, 0, 1, 7, 15, 15, 0]
    assert Tensor([17.0, 3.0], dtype="float4_e2m1fn").cast("int4").tolist() == [6, 3]


@settings(max_examples=often(10, 200))
@given(st.sampled_from(STORED), st.sampled_from(STORED), st.sampled_from(DEVICES))
def test_a_cast_between_two_goes_through_the_value(first: DType, second: DType, device: str) -> None:
    x = Tensor(np.arange(BYTES[first], dtype=np.uint8), device=device).bitcast(first)
    through = x.long() if is_whole(first) and is_whole(second) else x.float()
    assert (x.cast(second).bitcast("uint8").numpy() == through.cast(second).bitcast("uint8").numpy()).all()


# ---- values are made, moved and written ------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("d", STORED)
def test_values_are_made_and_moved(d: DType) -> None:
    a = np.array([[1.0, 2.0, 4.0], [1.0, 4.0, 2.0]])
    x = Tensor(a, dtype=d)

    def same(got: Tensor, want: Any) -> None:
        assert got.dtype is d
        np.testing.assert_array_equal(got.float().numpy(), np.asarray(want, np.float32))

    same(Tensor(a.astype(ml(d))), a)
    same(Tensor([1, 2, 4], dtype=d), [1, 2, 4])
    same(Tensor(2.0, dtype=d), 2.0)
    same(Tensor.full((2,), 4, dtype=d), [4, 4])
    same(Tensor.ones(3, dtype=d), [1, 1, 1])
    same(x.full_like(2.0), np.full((2, 3), 2))
    same(Tensor.zeros(2, dtype=d), [np.nan] * 2 if d is dtypes.float8_e8m0fnu else [0, 0])
    same(x.T.contiguous(), a.T)
    same(x[:, 1:], a[:, 1:])
    same(x.flip(1), a[:, ::-1])
    same(x[Tensor([1, 0, 1])], a[[1, 0, 1]])
    same(x.gather(1, Tensor([[2], [0]])), [[4], [1]])
    same(Tensor.cat(x, x.flip(0)), np.concatenate([a, a[::-1]]))
    same(Tensor.stack(x, x), np.stack([a, a]))
    same(x.roll(1, 1), np.roll(a, 1, 1))
    same(x.pad((1, 1), value=2.0), np.pad(a, ((0, 0), (1, 1)), constant_values=2))
    same(x.masked_fill(Tensor([True, False, True]), 4.0), np.where([True, False, True], 4, a))
    same(x.repeat(2, 1).clone(), np.tile(a, (2, 1)))
    same(x.shard(("cpu", "cpu:1"), 0).to("cpu"), a)
    x[0, 1:] = Tensor([4.0, 1.0])
    x[1] = 2
    same(x, [[1, 4, 1], [2, 2, 2]])
    x /= x
    same(x, np.ones((2, 3)))
    x.fill_(1.0)
    x.copy_(Tensor([4.0, 2.0, 1.0]))
    same(x, [[4, 2, 1]] * 2)
    assert repr(x[0].realize()).endswith(f"dtype={d.name})") and x[0].tolist() == [4, 2, 1]
    step = jit(lambda t: t.float() * 2)
    assert step(x).tolist() == step(x).tolist() == [[8, 4, 2]] * 2


@pytest.mark.sweep
@pytest.mark.parametrize("d", STORED)
def test_operators_compute_in_float32(d: DType) -> None:
    a, b = np.array([1.0, 2.0, 4.0], np.float32), np.array([2.0, 4.0, 1.0], np.float32)
    x, y = Tensor(a, dtype=d), Tensor(b, dtype=d)
    for f in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.floordiv):
        for other, want in (
            (y, f(a, b)),
            (0.3, f(a, np.float32(0.3))),
            (Tensor([3, 1, 2]), f(a, np.float32([3, 1, 2]))),
        ):
            got = f(x, other)
            assert got.dtype is dtypes.float32
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    for f in (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge):
        assert (f(x, y).numpy() == f(a, b)).all() and (f(x, 2.5).numpy() == f(a, 2.5)).all()
    np.testing.assert_allclose((x.reshape(1, 3) @ y).numpy(), [a @ b])
    np.testing.assert_allclose((x.reshape(1, 3) @ Tensor(np.eye(3))).numpy(), [a])
    np.testing.assert_allclose(x.linear(Tensor(np.stack([a, b]))).numpy(), np.stack([a, b]) @ a)
    np.testing.assert_allclose([x.sum().item(), (-x).sum().item(), x.cumsum(0)[2].item()], [7, -7, 7])
    np.testing.assert_allclose(x.exp().numpy(), np.exp(a), rtol=1e-6)
    assert (x * Tensor(a).double()).dtype is dtypes.float64 and (x + Tensor(a).half()).dtype is dtypes.float32
    assert x.bool().tolist() == [True] * 3 and Tensor([True, False, True]).where(x, y).tolist() == [1, 4, 4]


def test_weights_that_are_stored_in_few_bits() -> None:
    """A product with dequantised weights is one kernel of bytes, and has a gradient for what is a float."""
    rng = np.random.default_rng(1)
    w, scale = rng.integers(-8, 8, (16, 32)), rng.random((16, 1)).astype(np.float32)
    stored, x = Tensor(w, dtype="int4"), Tensor(rng.random((4, 32)).astype(np.float32), requires_grad=True)
    s = Tensor(scale, requires_grad=True)
    (x @ (stored * s).T).sum().backward()
    assert x.grad is not None and s.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.tile((w * scale).sum(0), (4, 1)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(s.grad.numpy(), (x.numpy() @ w.T).sum(0)[:, None], rtol=1e-4, atol=1e-3)


# ---- errors ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("d", STORED)
def test_what_needs_numbers_is_refused(d: DType) -> None:
    x = Tensor([1.0, 2.0], dtype=d)
    for name in (
        "sort",
        "argsort",
        "argmax",
        "max",
        "min",
        "relu",
        "abs",
        "softmax",
        "mean",
        "isnan",
        "sign",
        "median",
    ):
        with pytest.raises(DTypeError):
            getattr(x, name)()
    with pytest.raises(DTypeError):
        x.topk(1)
    with pytest.raises(DTypeError):
        x & 1  # noqa: B018
    with pytest.raises(GradientError):
        x.requires_grad_(True)
    with pytest.raises(DTypeError, match="dtype"):
        Tensor.randn(2, dtype=d)
    leaf = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match="no leaf"):  # a cast has no derivative
        leaf.cast(d).float().sum().backward()


def test_memory_is_shared_with_pytorch() -> None:
    for name in NAMES[:3]:
        ours = Tensor([1.0, 2.0, 4.0], dtype=name).realize()
        theirs = torch.from_dlpack(ours)
        assert theirs.dtype is getattr(torch, name) and theirs.float().tolist() == [1, 2, 4]
        back = Tensor.from_dlpack(theirs)
        assert back.dtype.name == name and back.tolist() == [1, 2, 4]
        assert (Tensor([1.0, 1.0, 1.0]) + theirs).tolist() == [2, 3, 5]
