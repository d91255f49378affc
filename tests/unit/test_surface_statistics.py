"""Statistics, differences and integrals beside PyTorch."""

from typing import Any

import numpy as np
import pytest
import torch

from monolect import ArgumentError, DTypeError, ShapeError, Tensor
from tests.unit.rows_of_torch import check, wide

NAN = float("nan")
X = np.array([[3.0, -1.0, 2.0, 3.5], [0.5, 3.0, -2.0, 0.0], [1.0, 1.5, 4.0, -1.0]])
N = np.array([[3.0, NAN, 2.0, 3.5], [NAN, NAN, 7.0, NAN], [1.0, 1.5, NAN, -1.0]])
I = np.array([[3, 1, 2, 3], [0, 3, 0, 2], [1, 1, 4, 0]])  # noqa: E741
T = np.array([0.0, 0.5, 1.5, 2.0])
ROWS: dict[str, Any] = {
    **{
        f"{name} {dim} {keepdim}": (lambda x, n=name, d=dim, k=keepdim: getattr(x, n)(d, k), (N,))
        for name in ("nansum", "nanmean")
        for dim, keepdim in ((0, False), (-1, True), ((0, 1), False), (None, False))
    },
    "nanmean of none": (lambda x: x[:1, 1:2].detach().nanmean(1), (N,)),
    "nansum of ints": (lambda x: x.nansum(1), (I,)),
    "nanmedian": (lambda x: x.nanmedian(), (N,)),
    "nanmedian along": (lambda x: x.nanmedian(1, True), (N,)),
    "nanmedian of ints": (lambda x: x.nanmedian(), (I,)),
    **{
        f"nanquantile {how}": (lambda x, how=how: x.nanquantile(0.3, 1, interpolation=how), (N,))
        for how in ("linear", "lower", "higher", "nearest", "midpoint")
    },
    "nanquantile of several": (lambda x, q: x.nanquantile(q.detach(), 1, True), (N, np.array([0.25, 0.5, 1.0]))),
    "nanquantile of all": (lambda x: x.nanquantile(0.5), (N,)),
    "aminmax": (lambda x: x.aminmax(), (X,)),
    "aminmax along": (lambda x: x.aminmax(dim=1, keepdim=True), (X,)),
    "mode": (lambda x: x.mode().values, (I,)),
    "mode along": (lambda x: x.mode(0, True).values, (I,)),
    "mode gradient": (lambda x: x.mode(0).values, (X,)),
    "cov": (lambda x: x.cov(), (X,)),
    "cov of a vector": (lambda x: x[0].cov(correction=0), (X,)),
    "cov weighted": (lambda x, f, a: x.cov(fweights=f, aweights=a.detach()), (X, I[0], T + 0.5)),
    "corrcoef": (lambda x: x.corrcoef(), (X,)),
    "renorm": (lambda x: x.renorm(2, 0, 3.0), (X,)),
    "renorm 1": (lambda x: x.renorm(1, 1, 2.5), (X,)),
    "diff": (lambda x: x.diff(), (X,)),
    "diff twice": (lambda x: x.diff(2, 0), (X,)),
    "diff joined": (lambda x, p: x.diff(1, 1, p[:, :1], p[:, 1:3]), (X, X[::-1].copy())),
    "diff of bools": (lambda x: x.diff(), (I > 1,)),
    "diff of none": (lambda x: x.diff(7), (X,)),
    "trapezoid": (lambda y: _of(y, "trapezoid", dx=0.5), (X,)),
    "trapezoid at points": (lambda y, x: _of(y, "trapezoid", x), (X, T)),
    "trapezoid at points of each": (lambda y, x: _of(y, "trapezoid", x, dim=0), (X, X.cumsum(0))),
    "cumulative_trapezoid": (lambda y, x: _of(y, "cumulative_trapezoid", x), (X, T)),
    "cumulative_trapezoid along": (lambda y: _of(y, "cumulative_trapezoid", dim=0), (X,)),
    "gradient": (lambda x: _of(x, "gradient"), (X,)),
    "gradient 2": (lambda x: _of(x, "gradient", spacing=0.5, edge_order=2), (X,)),
    "gradient at points": (lambda x, t: _of(x, "gradient", spacing=(t.detach(),), dim=1), (X, T)),
    "gradient at points 2": (lambda x, t: _of(x, "gradient", spacing=(t.detach(),), dim=1, edge_order=2), (X, T)),
}


def _of(x: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(x, name)(*args, **kwargs) if isinstance(x, Tensor) else getattr(torch, name)(x, *args, **kwargs)


@pytest.mark.sweep
@pytest.mark.parametrize("row", ROWS)
def test_rows(row: str) -> None:
    f, arrays = ROWS[row]
    check(f, arrays, tolerance=1e-11)
    if arrays[0].dtype.kind == "f" and not row.startswith(("mode gradient", "cov weighted")):
        check(f, arrays, "float32", 2e-5)


def test_the_index_of_a_mode_has_its_value() -> None:
    values, indices = Tensor(I).mode(1)
    assert np.array_equal(np.take_along_axis(I, indices.numpy()[:, None], 1)[:, 0], values.numpy())


def test_numbers_have_statistics() -> None:
    x = Tensor(2.5)
    assert x.aminmax().min.item() == 2.5 and x.mode().values.item() == 2.5 and x.nanmedian(0).values.item() == 2.5
    assert wide(Tensor(X).cov()).shape == (3, 3) and Tensor([1.0]).nansum().item() == 1.0


def test_what_is_refused() -> None:
    x = Tensor(X)
    with pytest.raises(DTypeError):
        Tensor([1, 2]).nanmean()
    with pytest.raises(ShapeError, match="no elements"):
        Tensor.zeros(0).nanmedian()
    with pytest.raises(ArgumentError, match="interpolation"):
        x.nanquantile(0.5, interpolation="cubic")
    with pytest.raises(ShapeError, match="cov"):
        Tensor.zeros(1, 2, 3).cov()
    with pytest.raises(ArgumentError, match="edge_order"):
        x.gradient(edge_order=3)
    with pytest.raises(ShapeError, match="trapezoid"):
        x.trapezoid(Tensor([1.0, 2.0]))
    with pytest.raises(ArgumentError, match="diff"):
        x.diff(-1)
