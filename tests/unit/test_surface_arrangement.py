"""Splits, joins, diagonals, products and norms beside PyTorch; new tensors and queries."""

from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import ArgumentError, DTypeError, ShapeError, Tensor, dtypes
from tests.unit.rows_of_torch import check

INF = float("inf")
X = np.arange(24.0).reshape(2, 3, 4) / 5 - 1.3
A = X[0].copy()
B = X[1].copy()
V = X[0, 0].copy()
S = np.array([[0.5, -0.25, 0.3], [0.1, 0.7, -0.6], [0.2, 0.4, 0.9]])
I = np.array([[3, 1, 2], [0, 3, 2]])  # noqa: E741
Z = np.zeros((0, 3))


def of(x: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """The function `name` of the library of `x`, a tensor or a list of tensors."""
    first = x[0] if isinstance(x, list) else x
    return getattr(monolect if isinstance(first, Tensor) else torch, name)(x, *args, **kwargs)


ROWS: dict[str, Any] = {
    **{
        name: (lambda a, b, n=name: of([a, b], n), (A, B))
        for name in ("hstack", "vstack", "row_stack", "dstack", "column_stack")
    },
    **{
        f"{name} of vectors": (lambda a, b, n=name: of([a, b], n), (V, V[::-1].copy()))
        for name in ("hstack", "vstack", "dstack", "column_stack")
    },
    "cartesian_prod": (lambda a, b: _unpacked("cartesian_prod", a, b), (V, V[:2].copy())),
    "block_diag of all ranks": (lambda a, b: _unpacked("block_diag", a, b), (A, V)),
    "combinations": (lambda a: of(a, "combinations", 3), (V,)),
    "combinations again": (lambda a: of(a, "combinations", 2, True), (V,)),
    "broadcast_tensors": (lambda a, b: _unpacked("broadcast_tensors", a, b), (A, V)),
    **{
        f"atleast_{n}d of {a.ndim}": (lambda a, n=n: of(a, f"atleast_{n}d"), (a,))
        for n in (1, 2, 3)
        for a in (np.array(2.0), V, A, X)
    },
    "select": (lambda x: x.select(-1, 2), (X,)),
    "split_with_sizes": (lambda x: x.split_with_sizes([1, 3], 2), (X,)),
    "tensor_split": (lambda x: x.tensor_split(3, 2), (X,)),
    "tensor_split at": (lambda x: x.tensor_split((1, -1, 9), 2), (X,)),
    "hsplit": (lambda x: x.hsplit(3), (X,)),
    "hsplit of a vector": (lambda x: x.hsplit([1, 3]), (V,)),
    "vsplit": (lambda x: x.vsplit(2), (X,)),
    "dsplit": (lambda x: x.dsplit((1, 3)), (X,)),
    "fliplr": (lambda x: x.fliplr(), (X,)),
    "flipud": (lambda x: x.flipud(), (X,)),
    "ravel": (lambda x: x.ravel(), (X,)),
    "sum_to_size": (lambda x: x.sum_to_size(3, 1), (X,)),
    "sum_to_size of ints": (lambda x: x.sum_to_size(1, 3), (I,)),
    **{f"diag {k} {a.ndim}": (lambda x, k=k: x.diag(k), (a,)) for k in (0, 1, -2) for a in (V, A)},
    **{
        f"diag_embed {args}": (lambda x, args=args: x.diag_embed(*args), (A,))
        for args in ((), (1,), (-2,), (0, 0, 1), (1, 2, 0), (-1, -1, -3))
    },
    "diagflat": (lambda x: x.diagflat(-1), (A,)),
    "trace": (lambda x: x.trace(), (A,)),
    "H": (lambda x: x.H, (A,)),
    "mH": (lambda x: x.mH, (X,)),
    "adjoint": (lambda x: x.adjoint(), (X,)),
    "fill_diagonal": (lambda x: x.clone().fill_diagonal_(2.5), (A,)),
    "fill_diagonal wrap": (lambda x: x.clone().fill_diagonal_(2.5, True), (np.ones((7, 2)),)),
    "unravel_index": (lambda i: of(i, "unravel_index", (2, 2)), (I,)),
    "reversed": (lambda x: x.__reversed__(), (X,)),
    # ---- products ----
    **{
        f"addmm {beta} {alpha}": (
            lambda x, a, b, beta=beta, alpha=alpha: x.addmm(a, b, beta=beta, alpha=alpha),
            (S, A, B.T.copy()),
        )
        for beta, alpha in ((1, 1), (0, 1), (0.5, -2))
    },
    "addmm of ints": (lambda x, a, b: x.addmm(a, b, beta=2), (I, I[:, :2].copy(), I)),
    "addmv": (lambda x, a, b: x.addmv(a, b, alpha=3), (S[0].copy(), A, V)),
    "addr": (lambda x, a, b: x.addr(a, b, beta=2), (A, S[0].copy(), V)),
    "baddbmm": (lambda x, a, b: x.baddbmm(a, b.transpose(1, 2)), (S, X, X[::-1].copy())),
    "addbmm": (lambda x, a, b: x.addbmm(a, b.transpose(1, 2), beta=0.5), (S, X, X[::-1].copy())),
    "matrix_power": (lambda x: x.matrix_power(5), (S,)),
    "matrix_power 1": (lambda x: x.matrix_power(1), (S,)),
    "matrix_power of ints": (lambda x: x.matrix_power(3), (I[:, :2].copy(),)),
    "ger": (lambda a, b: a.ger(b), (V, S[0].copy())),
    "inner": (lambda a, b: a.inner(b), (A, B)),
    "inner of vectors": (lambda a, b: a.inner(b), (A, V)),
    "vdot": (lambda a, b: a.vdot(b), (V, V + 1)),
    "cross": (lambda a, b: a.cross(b), (A, B)),
    "cross along": (lambda a, b: a.cross(b, 1), (S, S[::-1].copy())),
    "cross broadcast": (lambda a, b: a.cross(b, -1), (S, S[:1].copy())),
    "kron": (lambda a, b: a.kron(b), (A, S)),
    "kron of ranks": (lambda a, b: a.kron(b), (V, S)),
    "vander": (lambda x: of(x.detach(), "vander", 3), (V,)),
    "vander of ints": (lambda x: of(x, "vander", increasing=True), (I[0].copy(),)),
    **{f"dist {p}": (lambda a, b, p=p: a.dist(b, p), (A, B[:1].copy())) for p in (1, 2, 3.5, INF, 0)},
    **{f"cdist {p}": (lambda a, b, p=p: of(a, "cdist", b, p), (A, B[:2] ** 2)) for p in (1.0, 2.0, 3.5, INF)},
    "cdist of a batch": (lambda a, b: of(a, "cdist", b), (X, B)),
}
LINALG: dict[str, Any] = {
    **{f"vector_norm {p}": (lambda f, x, p=p: f.vector_norm(x, p), X) for p in (2, 1, INF, -INF, 0.5, 3)},
    "vector_norm along": (lambda f, x: f.vector_norm(x, 2, (0, 1), True), X),
    **{f"matrix_norm {p}": (lambda f, x, p=p: f.matrix_norm(x, p), X) for p in ("fro", 1, -1, INF, -INF)},
    "matrix_norm of axes": (lambda f, x: f.matrix_norm(x, 1, (2, 0), True), X),
    "vecdot": (lambda f, x: f.vecdot(x, x[0], dim=1), X),
    "multi_dot": (lambda f, x: f.multi_dot([x[0, 0], x[0].T, x[1], x[1, 2]]), X),
    "multi_dot of two": (lambda f, x: f.multi_dot([x[0].T, x[1]]), X),
    "matrix_power": (lambda f, x: f.matrix_power(x[:, :, :3], 3), X),
}


def _unpacked(name: str, *tensors: Any) -> Any:
    return getattr(monolect if isinstance(tensors[0], Tensor) else torch, name)(*tensors)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:Using torch.cross")
@pytest.mark.parametrize("row", ROWS)
def test_rows(row: str) -> None:
    f, arrays = ROWS[row]
    if row.startswith("dist 0"):
        arrays = tuple(a.astype(np.float32) for a in arrays)
        check(f, arrays, "float32")
        return
    check(f, arrays, tolerance=1e-11)
    if arrays[0].dtype.kind == "f" and "fill" not in row:
        check(f, arrays, "float32", 1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("row", LINALG)
def test_linalg(row: str) -> None:
    f, x = LINALG[row]
    check(lambda t: f(monolect.linalg if isinstance(t, Tensor) else torch.linalg, t), (x,), tolerance=1e-12)


def test_shapes_of_nothing() -> None:
    assert Tensor(Z).hsplit(3)[0].shape == (0, 1) and Tensor(Z).fliplr().shape == (0, 3)
    assert Tensor(Z).ravel().shape == (0,) and Tensor([[1.0]]).matrix_power(0).tolist() == [[1.0]]
    assert Tensor.broadcast_shapes((2, 1), (3,)) == torch.broadcast_shapes((2, 1), (3,))
    for row, col, offset in ((3, 4, 0), (3, 3, 1), (4, 2, -1), (0, 2, 0)):
        for name in ("tril_indices", "triu_indices"):
            want = getattr(torch, name)(row, col, offset)
            assert getattr(monolect, name)(row, col, offset).tolist() == want.tolist()


def test_new_tensors_and_queries() -> None:
    x = Tensor([[1.5, 2.5]], dtype=dtypes.float64)
    assert x.new_zeros(2).dtype is dtypes.float64 and x.new_ones((1, 2), dtype=dtypes.int32).tolist() == [[1, 1]]
    assert x.new_full((2,), 3).tolist() == [3.0, 3.0] and x.new_empty(2, 3).shape == (2, 3)
    t = x.new_tensor([1, 2], requires_grad=True)
    assert t.requires_grad and t.tolist() == [1.0, 2.0] and t.dtype is dtypes.float64
    assert x.nelement() == 2 and x.ndimension() == 2 and x.is_signed() and not Tensor([True]).is_signed()
    assert x.is_same_size(x + 1) and not x.is_same_size(t) and Tensor([2]).is_nonzero() and not Tensor(0.0).is_nonzero()
    assert 1.5 in x and 7 not in x and Tensor([1.7]).byte().dtype is dtypes.uint8
    assert Tensor([1.7]).char().dtype is dtypes.int8 and Tensor([1.7]).short().dtype is dtypes.int16
    assert x.clone().addmm_(Tensor([[1.0]], dtype=dtypes.float64), x).tolist() == [[3.0, 5.0]]


def test_nan_of_self_does_not_reach_a_product_with_beta_0() -> None:
    x, a = Tensor([[float("nan")]]), Tensor([[2.0]])
    assert x.addmm(a, a, beta=0).item() == 4.0 and x.addr(a[0], a[0], beta=0).item() == 4.0


def test_what_is_refused() -> None:
    x = Tensor(A)
    for wrong in (
        lambda: x.hsplit(3), lambda: Tensor(V).vsplit(2), lambda: Tensor(V).fliplr(), lambda: Tensor(X).trace(),
        lambda: Tensor(X).diag(), lambda: x.addmm(x, x), lambda: x.matrix_power(2), lambda: x.cross(x[:2], 0),
        lambda: Tensor.broadcast_shapes((2,), (3,)), lambda: x.cdist(Tensor(S)), lambda: x.inner(Tensor(S)),
        lambda: Tensor(X).cartesian_prod(), lambda: x.sum_to_size(2, 2), lambda: Tensor(V).fill_diagonal(1.0),
    ):  # fmt: skip
        with pytest.raises(ShapeError):
            wrong()
    with pytest.raises(ArgumentError, match="inverse"):
        Tensor(S).matrix_power(-1)
    with pytest.raises(ArgumentError, match="matrix_norm"):
        x.matrix_norm("nuc")
    with pytest.raises(DTypeError, match="addmm"):
        x.addmm(Tensor(S).float(), x)
    with pytest.raises(ArgumentError, match="tensor_split"):
        x.tensor_split(0)
