"""Masks, unique elements, counts, searches, and writes at computed positions, beside PyTorch."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import monolect
from monolect import (
    ArgumentError,
    Context,
    DTypeError,
    IndexRangeError,
    JitError,
    ShapeError,
    Tensor,
    dtypes,
    jit,
)
from tests.unit.rows_of_torch import check, wide

X = np.array([[3.0, -1.0, 2.0, 3.0], [0.5, 3.0, -2.0, 0.0], [1.0, 1.0, 4.0, -1.0]])
Y = np.arange(12.0).reshape(3, 4) / 7 + 0.3
M = X > 0.7
I = np.array([[3, 1, 2, 3], [0, 3, 2, 0]])  # noqa: E741
V = np.array([3, 1, 3, 0, 7])
ROW = np.array([True, False, True])
AT = np.array([[0, 2, 0, 1], [2, 2, 0, 0]])
W = Y[:2]

ROWS: dict[str, Any] = {
    "x[mask]": (lambda x, m: x[m], (X, M)),
    "x[row mask]": (lambda x, m: x[m], (X, ROW)),
    "x[row mask, slice]": (lambda x, m: x[m, 1:3], (X, ROW)),
    "x[..., mask]": (lambda x, m: x[..., m], (X, M[0])),
    "x[mask, indices]": (lambda x, m, i: x[m, i], (X, ROW, np.array([3, 1]))),
    "x[None, mask]": (lambda x, m: x[None, m], (X, ROW)),
    "x[no element]": (lambda x, m: x[m], (X, M & ~M)),
    "nonzero": (lambda x: x.nonzero(), (X,)),
    "nonzero as_tuple": (lambda x: x.nonzero(as_tuple=True), (X,)),
    "nonzero of a number": (lambda x: x.nonzero(), (np.array(2.0),)),
    "nonzero of none": (lambda x: x.nonzero(), (np.zeros((0, 3)),)),
    "argwhere": (lambda x: x.argwhere(), (I,)),
    "masked_select": (lambda x, m: x.masked_select(m), (X, M)),
    "masked_select, broadcast": (lambda x, m: x.masked_select(m), (X, M[0])),
    "masked_scatter": (lambda x, m, y: x.masked_scatter(m, y), (X, M, Y)),
    "unique": (lambda x: x.unique(return_inverse=True, return_counts=True), (I,)),
    "unique along": (lambda x: x.unique(return_inverse=True, return_counts=True, dim=1), (I,)),
    "unique of floats": (lambda x: x.detach().unique(), (X,)),
    "unique_consecutive": (lambda x: x.unique_consecutive(return_inverse=True, return_counts=True), (V,)),
    "unique_consecutive along": (lambda x: x.unique_consecutive(dim=0), (I[[0, 0, 1, 1, 0]],)),
    "bincount": (lambda x: x.bincount(), (V,)),
    "bincount with weights": (lambda x, w: x.bincount(w.detach(), minlength=10), (V, Y.reshape(-1)[:5].copy())),
    "bincount of none": (lambda x: x.bincount(minlength=2), (V[:0],)),
    "histc": (lambda x: x.detach().histc(4, -2, 3), (X,)),
    "histc of its range": (lambda x: x.detach().histc(5), (X,)),
    "histogram": (lambda x: x.detach().histogram(4), (X,)),
    "histogram range": (lambda x: x.detach().histogram(3, range=(-1.0, 2.0), density=True), (X,)),
    "histogram edges": (
        lambda x, e, w: x.detach().histogram(e.detach(), weight=w.detach()),
        (X, np.array([-2.0, 0, 1, 3]), Y),
    ),
    "index_put": (lambda x, i, j, v: x.index_put((i, j), v), (X, AT[0], AT[1], Y[0])),
    "index_put by a mask": (lambda x, m, v: x.index_put((m,), v.sum()), (X, M, Y)),
    "index_put accumulated": (lambda x, i, v: x.index_put((i,), v, accumulate=True), (X, np.array([0, 0, 2]), Y)),
    "select": (lambda x: x.select(1, -1), (X,)),
    "select_scatter": (lambda x, y: x.select_scatter(y, 1, -1), (X, Y[:, 0].copy())),
    "slice_scatter": (lambda x, y: x.slice_scatter(y, 1, 1, 4, 2), (X, Y[:, :2].copy())),
    "diagonal_scatter": (lambda x, y: x.diagonal_scatter(y, 1), (X, Y[0, :3].copy())),
    "diagonal_scatter below": (lambda x, y: x.diagonal_scatter(y, -1, 1, 0), (X, Y[0, :3].copy())),
}
REDUCED = {
    f"{name} {reduce}{'' if keeps else ' without self'}": (name, reduce, keeps)
    for name in ("scatter_reduce", "index_reduce")
    for reduce in ("sum", "mean", "prod", "amax", "amin")
    for keeps in (True, False)
    if (name, reduce) != ("index_reduce", "sum")
}
SEARCHES = {
    "vector": ([1.0, 3.0, 3.0, 5.0], [[0.0, 3.0], [5.0, 9.0]]),
    "rows": ([[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]], [[3.0, 0.0], [7.0, 4.0]]),
    "nan": ([1.0, 3.0, float("nan")], [2.0, float("nan"), 4.0]),
    "one": ([2.0], [1.0, 2.0, 3.0]),
    "none": ([], [1.0]),
}


@pytest.mark.sweep
@pytest.mark.parametrize("row", ROWS)
def test_rows(row: str) -> None:
    f, arrays = ROWS[row]
    check(f, arrays)
    if all(np.array(a).dtype.kind != "f" or a is not X for a in arrays):
        return
    for kind in ("float32", "float16"):
        if not (kind == "float16" and row.startswith(("hist", "unique", "bincount"))):
            check(f, arrays, kind)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("row", REDUCED)
def test_reductions_at_indices(row: str) -> None:
    name, reduce, keeps = REDUCED[row]
    if name == "scatter_reduce":
        f = lambda x, i, y: x.scatter_reduce(0, i, y, reduce, include_self=keeps)  # noqa: E731
        check(f, (X, AT, W))
        check(f, ((X * 2).astype(np.int64), AT, (W * 5).astype(np.int64)))
        check(lambda x, i, y: x.scatter_reduce(1, i, y, reduce, include_self=keeps), (X, AT, W))
    else:
        f = lambda x, i, y: x.index_reduce(1, i, y, reduce, include_self=keeps)  # noqa: E731
        check(f, (X, np.array([0, 3, 0]), Y[:, :3].copy()))


@pytest.mark.parametrize("reduce", ["mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("keeps", [True, False])
def test_negative_indices_of_index_reduce_count_from_the_end(reduce: str, keeps: bool) -> None:
    x, index, values = Tensor([[2, 3, 5]]), Tensor([-3, 1, -1, 0]), Tensor([[7, 11, 13, 1]])
    wanted = x.index_reduce(1, index % 3, values, reduce, include_self=keeps).tolist()
    for kind in (dtypes.int64, dtypes.int8):
        with Context(CHECK_BOUNDS=1):
            assert x.index_reduce(1, index.cast(kind), values, reduce, include_self=keeps).tolist() == wanted
    assert x.index_reduce_(1, index, values, reduce, include_self=keeps).tolist() == wanted
    many = Tensor.ones(200).index_reduce(0, Tensor([-128, -1], dtype=dtypes.int8), Tensor([2.0, 3.0]), "prod")
    assert many[72].item() == 2 and many[199].item() == 3 and many.sum().item() == 203
    with Context(CHECK_BOUNDS=0):
        assert x.index_reduce(1, Tensor([-4, 3, 2**62, -(2**62)]), values, reduce).tolist() == x.tolist()
    with Context(CHECK_BOUNDS=1), pytest.raises(IndexRangeError, match="index_reduce"):
        x.index_reduce(1, index - 1, values, reduce)


@pytest.mark.sweep
@pytest.mark.parametrize("row", SEARCHES)
@pytest.mark.parametrize("right", [False, True])
def test_searches(row: str, right: bool) -> None:
    sequence, values = (np.array(v) for v in SEARCHES[row])
    ours = Tensor(sequence).searchsorted(Tensor(values), right=right)
    theirs = torch.searchsorted(torch.tensor(sequence), torch.tensor(values), right=right)
    assert ours.tolist() == theirs.tolist()
    if sequence.ndim == 1:
        assert Tensor(values).bucketize(Tensor(sequence), right=right, out_int32=True).tolist() == theirs.tolist()


def test_isin_and_repeat_interleave() -> None:
    assert Tensor(I).isin(Tensor([1, 2])).tolist() == torch.isin(torch.tensor(I), torch.tensor([1, 2])).tolist()
    assert Tensor(I).isin(3, invert=True).tolist() == (I != 3).tolist()
    check(lambda x, n: x.repeat_interleave(n, 0), (X, np.array([2, 0, 1])))
    check(lambda x, n: x.repeat_interleave(n), (X[0], np.array([2, 0, 1, 3])))


def test_writes_by_a_mask() -> None:
    for key, value in ((M, Y[M]), (ROW, Y[:2]), (ROW, Y[0]), (M, np.array(5.0)), (ROW, Y[:1])):
        x, t = Tensor(X.copy()), torch.tensor(X)
        x[Tensor(key)] = Tensor(value)
        t[torch.tensor(key)] = torch.tensor(value)
        np.testing.assert_array_equal(x.numpy(), t.numpy())
    x = Tensor(X.copy())
    x[Tensor(ROW), 1:3] = 7.0
    assert x.tolist()[0] == [3.0, 7.0, 7.0, 3.0] and x.tolist()[1] == X[1].tolist()


def test_a_write_by_a_mask_carries_gradients() -> None:
    def f(x: Any, y: Any, m: Any) -> Any:
        z = x * 2
        z[m] = y[m] * 3
        return z

    check(f, (X, Y, M))


@given(st.integers(0, 2**32 - 1))
def test_masks_and_indices_of_random_tensors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(0, 4, rng.integers(1, 4)))
    x = rng.standard_normal(shape)
    ndim = int(rng.integers(1, len(shape) + 1))
    mask = rng.random(shape[:ndim]) < 0.5
    np.testing.assert_array_equal(wide(Tensor(x)[Tensor(mask)]), x[mask])
    np.testing.assert_array_equal(wide(Tensor(mask).nonzero()), np.argwhere(mask))
    value = rng.standard_normal(x[mask].shape)
    y = Tensor(x.copy())
    y[Tensor(mask)] = Tensor(value)
    z = x.copy()
    z[mask] = value
    np.testing.assert_array_equal(wide(y), z)


def test_what_is_refused() -> None:
    x = Tensor(X)
    with pytest.raises(ShapeError, match="mask does not fit"):
        x[Tensor([True, False])]
    with pytest.raises(ShapeError):
        x[Tensor(M)] = Tensor([1.0, 2.0])
    with pytest.raises(DTypeError, match="bool mask"):
        x.masked_select(x)
    with pytest.raises(ArgumentError, match="reduce"):
        x.scatter_reduce(0, Tensor(AT), Tensor(W), "median")
    with pytest.raises(DTypeError, match="bincount needs integers"):
        x.bincount()
    with pytest.raises(ArgumentError, match="from 0 on"):
        Tensor([-1]).bincount()
    with pytest.raises(ShapeError, match="unique"):
        Tensor.zeros(0, 2).unique(dim=0)


@pytest.mark.parametrize("name", ["nonzero", "unique", "argwhere", "unique_consecutive"])
def test_a_size_that_depends_on_values_is_refused_under_jit(name: str) -> None:
    step = jit(lambda x: getattr(x, name)())
    with pytest.raises(JitError):
        for _ in range(3):
            step(Tensor([1.0, 0.0]).realize())


def test_means_of_small_floats_are_summed_in_float32() -> None:
    ones, index = Tensor(np.ones(3000)).half(), Tensor(np.zeros(3000, np.int64))
    assert Tensor([1.0]).half().scatter_reduce(0, index, ones, "mean").float().tolist() == [1.0]
    assert Tensor([1.0]).half().index_reduce(0, index, ones, "mean").float().tolist() == [1.0]


def test_weights_that_are_not_finite_stay_in_their_bins() -> None:
    x, w = [0, 1, 1], [float("inf"), 1.0, 2.0]
    theirs = torch.tensor(x).bincount(torch.tensor(w))
    assert Tensor(x).bincount(Tensor(w)).tolist() == theirs.tolist() == [float("inf"), 3.0]
    with pytest.raises(ArgumentError, match="at least 0"):
        Tensor.zeros(0, dtype="int64").bincount(minlength=-1)


def test_results_are_on_the_device_of_the_input() -> None:
    empty = Tensor.zeros(0, device="python")
    for f in (lambda x: x.long().bincount(minlength=2), lambda x: x.histc(3), lambda x: x.trapezoid()):
        assert f(empty).device == "python"
    assert Tensor([1, 2], device="python").bincount().device == "python"
    signed = {"int4": True, "uint4": False, "float8_e4m3fnuz": True, "float8_e8m0fnu": False, "bool": False}
    assert {name: Tensor([0]).cast(name).is_signed() for name in signed} == signed


POINTS = np.random.default_rng(4).uniform(-1, 2, (5, 10, 3))
WEIGHTS = np.random.default_rng(5).uniform(0, 2, (5, 10))
EDGES_OF_EACH = [[-1.0, 0.0, 0.5], [0.0, 1.0, 1.5, 2.0], [0.0, 1.0]]


@pytest.mark.sweep
@pytest.mark.parametrize("bins", [4, [2, 3, 1], EDGES_OF_EACH], ids=["a number", "numbers", "edges"])
@pytest.mark.parametrize(
    "options", [{}, {"range": (0.0, 1.0, -1.0, 1.0, 0.0, 2.0)}, {"density": True}, {"weight": WEIGHTS}]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_histogramdd(bins: Any, options: dict[str, Any], dtype: str) -> None:
    options = {k: v for k, v in options.items() if k != "range" or bins is not EDGES_OF_EACH}  # edges need no range

    def made(tensor: Any) -> Any:
        named = {k: tensor(v.astype(dtype)) if k == "weight" else v for k, v in options.items()}
        given = [tensor(np.array(e, dtype)) for e in bins] if bins is EDGES_OF_EACH else bins
        return tensor(POINTS.astype(dtype)), given, named

    x, given, named = made(Tensor)
    t, theirs, others = made(torch.from_numpy)
    hist, edges = monolect.histogramdd(x, given, **named)
    want, ends = torch.histogramdd(t, theirs, **others)
    assert hist.dtype.name == dtype and hist.shape == tuple(want.shape)
    np.testing.assert_allclose(hist.numpy(), want.numpy(), rtol=1e-5)
    for e, w in zip(edges, ends, strict=True):
        np.testing.assert_allclose(e.numpy(), w.numpy(), rtol=1e-5, atol=1e-6)


def test_edges_of_histogramdd() -> None:
    for shape, bins in (((0, 2), [2, 3]), ((2, 2, 2), [1, 2]), ((4, 1), 3)):
        got, want = Tensor.ones(*shape).histogramdd(bins), torch.histogramdd(torch.ones(shape), bins)
        assert got.hist.tolist() == want.hist.tolist()
        assert [[round(x, 5) for x in e.tolist()] for e in got.bin_edges] == [
            [round(x, 5) for x in e.tolist()] for e in want.bin_edges
        ]
    empty = torch.histogram(torch.zeros(0), 4)
    assert Tensor.zeros(0).histogram(4).bin_edges.tolist() == empty.bin_edges.tolist()
    nan = Tensor([[float("nan"), 0.5], [0.5, 0.5]]).histogramdd(2, range=(0.0, 1.0, 0.0, 1.0))
    assert nan.hist.tolist() == [[0.0, 0.0], [0.0, 1.0]]
    x = Tensor.ones(3, 2)
    for wrong in ([1, 2, 3], [0, 1]):
        with pytest.raises(ArgumentError, match="histogramdd"):
            x.histogramdd(wrong)
    with pytest.raises(ArgumentError, match="histogramdd"):
        x.histogramdd(2, range=(0.0, 1.0))
    for call in (lambda: Tensor.ones(3).histogramdd(2), lambda: x.histogramdd(2, weight=Tensor.ones(2))):
        with pytest.raises(ShapeError, match="histogramdd"):
            call()
    with pytest.raises(DTypeError, match="histogramdd"):
        Tensor([[1, 2]]).histogramdd(2)
