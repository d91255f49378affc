"""Resizing, adaptive and other pools, folds, shuffles and samples of a grid, against PyTorch in float64."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import ArgumentError, DTypeError, ShapeError, Tensor, nn
from monolect.tensor.methods.windows.taps import Taps, weighted_sums
from tests.strategies import often
from tests.unit.torch_oracle import check

rng = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


LINE, IMAGE, VOLUME = array(2, 3, 7), array(2, 3, 5, 7), array(1, 2, 4, 5, 3)
INPUTS = {1: LINE, 2: IMAGE, 3: VOLUME}


# ---- resizing --------------------------------------------------------------------------------------------------------
SIZES = {1: (9,), 2: (9, 4), 3: (2, 9, 5)}
FACTORS: list[dict[str, Any]] = [
    {"scale_factor": 1.7}, {"scale_factor": 0.6}, {"scale_factor": 1.7, "recompute_scale_factor": True},
]  # fmt: skip
RESIZED: list[tuple[Any, dict[str, Any]]] = [
    *((INPUTS[n], {"mode": m, "align_corners": a, **k})
      for m, n in (("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3))
      for a in (False, True) for k in ({"size": SIZES[n]}, *FACTORS[: 3 if n < 3 else 1])),
    *((IMAGE, {"mode": m, "align_corners": a, "antialias": True, "size": s})
      for m in ("bilinear", "bicubic") for a in (False, True) for s in ((3, 4), (2, 14), (5, 3))),
    *((IMAGE, {"mode": m, **k}) for m in ("nearest", "nearest-exact", "area")
      for k in ({"size": (9, 4)}, {"scale_factor": 2}, {"scale_factor": (1.7, 0.6)})),
    *((INPUTS[n], {"mode": m, "size": SIZES[n]}) for m in ("nearest", "nearest-exact", "area") for n in (1, 3)),
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("case", RESIZED, ids=lambda c: " ".join(map(str, c[1].values())))
def test_interpolate(case: tuple[Any, dict[str, Any]]) -> None:
    check(Tensor.interpolate, F.interpolate, case[0], **case[1])


def test_old_names_of_interpolate() -> None:
    check(Tensor.upsample, lambda x, *a: F.interpolate(x, *a), IMAGE, (9, 4))
    check(Tensor.upsample_nearest, lambda x, *a: F.interpolate(x, *a), IMAGE, None, 2)
    bilinear = lambda x, *a: F.interpolate(x, *a, mode="bilinear", align_corners=True)  # noqa: E731
    check(Tensor.upsample_bilinear, bilinear, IMAGE, (9, 4))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from(["nearest", "nearest-exact", "linear", "area"]))
def test_any_size_to_any_size(size: int, out: int, mode: str) -> None:
    x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
    found = Tensor(x).interpolate(out, mode=mode).numpy()
    np.testing.assert_allclose(found, F.interpolate(torch.tensor(x), out, mode=mode).numpy(), rtol=1e-5, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.floats(0.1, 6.0), st.sampled_from(["nearest", "nearest-exact", "linear"]))
def test_any_scale_factor(size: int, factor: float, mode: str) -> None:
    x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
    if int(size * factor) < 1:
        return
    found = Tensor(x).interpolate(scale_factor=factor, mode=mode).numpy()
    want = F.interpolate(torch.tensor(x), scale_factor=factor, mode=mode).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_integers_and_halves_are_resized() -> None:
    x = np.arange(6, dtype=np.uint8).reshape(1, 1, 2, 3)
    assert Tensor(x).interpolate((4, 5)).tolist() == F.interpolate(torch.tensor(x), (4, 5)).tolist()
    half = array(1, 2, 4, 5).astype(np.float16)
    found = Tensor(half).interpolate((7, 3), mode="bilinear")
    want = F.interpolate(torch.tensor(half), (7, 3), mode="bilinear")
    assert found.dtype.name == "float16"
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=2e-3, atol=1e-3)
    assert Tensor.ones(0, 2, 4).interpolate(8, mode="linear").shape == (0, 2, 8)


def test_second_derivatives_of_resizing() -> None:
    x, t = Tensor(LINE, requires_grad=True), torch.tensor(LINE, requires_grad=True)
    (x.interpolate(4, mode="linear").square() * x.interpolate(4, mode="area")).sum().backward()
    (F.interpolate(t, 4, mode="linear").square() * F.interpolate(t, 4, mode="area")).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-9, atol=1e-12)


def random_taps(rows: int, columns: int) -> Taps:
    column = rng.integers(-1, columns, (rows, 3))
    column = np.where(np.cumsum(column < 0, 1) > 0, -1, column)  # the absent ones come last
    return Taps(column, rng.standard_normal((rows, 3)), columns)


def dense(taps: Taps) -> np.ndarray:
    out = np.zeros((len(taps.column), taps.size))
    for row, (columns, weights) in enumerate(zip(taps.column, taps.weight, strict=True)):
        for c, w in zip(columns, weights, strict=True):
            if c >= 0:
                out[row, c] += w
    return out


def test_sparse_products_are_products() -> None:
    x = array(2, 5, 6, 3)
    for rows in (1, 4, 7):
        taps = [random_taps(rows, 5), random_taps(rows + 1, 6)]
        a, b = map(dense, taps)
        np.testing.assert_allclose(
            weighted_sums(Tensor(x), 1, taps).numpy(), np.einsum("ir,js,nrsk->nijk", a, b, x), rtol=1e-12, atol=1e-12
        )
        np.testing.assert_array_equal(dense(taps[0].transposed()), a.T)


# ---- pools -----------------------------------------------------------------------------------------------------------
POOLS: list[dict[str, Any]] = [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 2, "stride": 1, "dilation": 2},
    {"kernel_size": 2, "stride": 2, "ceil_mode": True},
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("n", INPUTS)
def test_adaptive_pools_of_any_size(n: int) -> None:
    """In `make test` without the smallest size of all axes."""
    for kind, options in (("avg", {}), ("max", {"return_indices": True}), ("max", {})):
        name = f"adaptive_{kind}_pool{n}d"
        sizes: list[Any] = [2, 3, 9, tuple([3, None, 2][:n])]
        for size in sizes[often(1, 0) : 4 if n < 3 else 2]:
            check(getattr(Tensor, name), getattr(F, name), INPUTS[n], size, **options)


@pytest.mark.sweep
@pytest.mark.parametrize("n", INPUTS)
def test_indices_of_maxima(n: int) -> None:
    for options in POOLS:
        check(getattr(Tensor, f"max_pool{n}d"), getattr(F, f"max_pool{n}d"), INPUTS[n], **options, return_indices=True)


def test_indices_of_equal_nan_and_integer_maxima() -> None:
    x = np.array([[1, 1, 3, 3, 0, 5]])
    assert Tensor(x).max_pool1d(2, return_indices=True)[1].tolist() == [[0, 2, 5]]
    y = np.array([[[1.0, np.nan, 2.0, 0.0]]])
    check(Tensor.max_pool1d, F.max_pool1d, y, 2, return_indices=True)
    check(Tensor.adaptive_max_pool1d, F.adaptive_max_pool1d, y, 3, return_indices=True)
    assert Tensor(x).adaptive_max_pool1d(4, return_indices=True)[0].tolist() == [[1, 3, 3, 5]]


@pytest.mark.sweep
@pytest.mark.parametrize("n", INPUTS)
def test_unpooling(n: int) -> None:
    def both(library: Any, x: Any) -> Any:
        values, indices = getattr(library, f"max_pool{n}d")(x, 2, return_indices=True)
        unpool = getattr(library, f"max_unpool{n}d")
        return unpool(values * 2, indices, 2, output_size=x.shape), unpool(values, indices, 2, 2, 0, x.shape[-n:])

    check(lambda x: both(Tensor, x), lambda x: both(F, x), INPUTS[n])


@pytest.mark.sweep
@pytest.mark.parametrize("n", INPUTS)
def test_power_means(n: int) -> None:
    name = f"lp_pool{n}d"
    check(getattr(Tensor, name), getattr(F, name), np.abs(INPUTS[n]), 3, 2)
    check(getattr(Tensor, name), getattr(F, name), INPUTS[n], 2.0, 2, 1, True)


@pytest.mark.sweep
@pytest.mark.parametrize("n", [2, 3])
def test_fractional_pools(n: int) -> None:
    x = array(2, 2, *(6, 7, 8)[:n])
    draw = rng.random((2, 2, n))
    ours, theirs = (getattr(library, f"fractional_max_pool{n}d") for library in (Tensor, F))
    for sizes in ((3, None), (None, (0.5,) * n)):
        check(
            lambda x, s=sizes: ours(x, 2, *s, True, Tensor(draw)),
            lambda x, s=sizes: theirs(x, 2, *s, True, torch.tensor(draw)),
            x,
        )
    assert ours(Tensor(x), 2, 1).shape == (2, 2, *(1,) * n)


# ---- folds and shuffles ----------------------------------------------------------------------------------------------
FOLDS: list[dict[str, Any]] = [
    {"kernel_size": 2}, {"kernel_size": (3, 2), "stride": 2, "padding": 1},
    {"kernel_size": 2, "stride": 1, "dilation": 2}, {"kernel_size": 2, "stride": 3},
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("options", FOLDS, ids=str)
def test_folds(options: dict[str, Any]) -> None:
    check(Tensor.im2col, F.unfold, IMAGE, **options)
    check(nn.functional.unfold, F.unfold, IMAGE, **options)
    check(Tensor.im2col, F.unfold, IMAGE[0], **options)
    columns = F.unfold(torch.tensor(IMAGE), **options).numpy()
    check(Tensor.fold, F.fold, columns, (5, 7), **options)
    check(Tensor.fold, F.fold, columns[0], (5, 7), **options)


def test_shuffles() -> None:
    check(Tensor.pixel_shuffle, F.pixel_shuffle, array(2, 8, 3, 4), 2)
    check(Tensor.pixel_shuffle, F.pixel_shuffle, array(9, 1, 2), 3)
    check(Tensor.pixel_unshuffle, F.pixel_unshuffle, array(2, 2, 6, 4), 2)
    check(Tensor.channel_shuffle, F.channel_shuffle, array(2, 8, 3, 4), 2)
    check(Tensor.channel_shuffle, F.channel_shuffle, array(2, 6, 3), 3)


# ---- samples of a grid -----------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "n"), [("bilinear", 2), ("nearest", 2), ("bicubic", 2), ("bilinear", 3), ("nearest", 3)]
)
def test_grid_sample(mode: str, n: int, padding: str) -> None:
    x, grid = array(2, 3, *(5, 4, 3)[:n]), rng.uniform(-1.6, 1.6, (2, *(3, 4, 2)[:n], n))
    for align in (False, True):
        check(Tensor.grid_sample, F.grid_sample, x, grid, mode, padding, align)


def test_affine_grid() -> None:
    for align in (False, True):
        check(Tensor.affine_grid, F.affine_grid, array(2, 2, 3), (2, 3, 4, 5), align)
        check(Tensor.affine_grid, F.affine_grid, array(2, 3, 4), (2, 3, 4, 2, 5), align)


# ---- refused ---------------------------------------------------------------------------------------------------------
REFUSED: list[tuple[Any, Any, str]] = [
    (lambda x: x.interpolate(3, mode="cubic"), ArgumentError, "mode"),
    (lambda x: x.interpolate(3, mode="linear"), ShapeError, "rank"),
    (lambda x: x.interpolate(3, align_corners=True), ArgumentError, "align_corners"),
    (lambda x: x.interpolate(3, antialias=True), ArgumentError, "antialias"),
    (lambda x: x.interpolate(), ArgumentError, "either size or scale_factor"),
    (lambda x: x.interpolate((3, 3, 3)), ShapeError, "2 numbers"),
    (lambda x: x.interpolate(0), ArgumentError, "at least 1"),
    (lambda x: x.interpolate(3, recompute_scale_factor=True), ArgumentError, "recompute_scale_factor"),
    (lambda x: x.int().interpolate(3, mode="bilinear"), DTypeError, "floats"),
    (lambda x: x.adaptive_max_pool2d(0), ArgumentError, "output_size"),
    (lambda x: x.max_unpool2d(x[:1].long(), 2), ShapeError, "indices"),
    (lambda x: x.max_unpool2d(x.long(), 2, output_size=(40, 40)), ArgumentError, "output_size"),
    (lambda x: x.lp_pool2d(0, 2), ArgumentError, "norm_type"),
    (lambda x: x.fractional_max_pool2d(2), ArgumentError, "either output_size"),
    (lambda x: x.fractional_max_pool2d(4, 5), ShapeError, "windows"),
    (lambda x: x.im2col(9), ShapeError, "larger"),
    (lambda x: x.fold((5, 7), 2), ShapeError, "fold"),
    (lambda x: x.pixel_shuffle(2), ShapeError, "multiple of 4"),
    (lambda x: x.pixel_unshuffle(2), ShapeError, "divisible by 2"),
    (lambda x: x.channel_shuffle(0), ArgumentError, "groups"),
    (lambda x: x.grid_sample(x), ShapeError, "grid_sample"),
    (lambda x: x.grid_sample(x[:, 0, :, :2].unsqueeze(1), "linear"), ArgumentError, "mode"),
    (lambda x: x.affine_grid((2, 3, 4, 5)), ShapeError, "affine_grid"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "match"), REFUSED, ids=[r[2] for r in REFUSED])
def test_refused(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        call(Tensor(IMAGE))


def test_sizes_beyond_all_tables_are_refused_at_once() -> None:
    x = Tensor.ones(1, 1, 4, 4)
    calls: list[Any] = [
        lambda: x.interpolate(10**9), lambda: x.interpolate(scale_factor=1e9, mode="bicubic"),
        lambda: x.adaptive_avg_pool2d(10**9), lambda: x.adaptive_max_pool2d((10**9, 1)),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ArgumentError, match="size"):
            call()
