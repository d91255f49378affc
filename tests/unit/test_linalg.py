"""Products against PyTorch: values, gradients, dtypes and the messages of what does not fit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from monolect.base.errors import ArgumentError, AxisError, DTypeError, ShapeError
from monolect.tensor.tensor import Tensor
from tests.unit.oracle import agree

rng = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def check(ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: np.ndarray, tolerance: float = 2e-5) -> None:
    """Value and gradients of both functions agree on `arrays`."""
    agree(rng, ours, theirs, arrays, tolerance, tolerance, tolerance)


SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((1, 1), (1, 1)), ((3, 1), (1, 5)),
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_matmul(a: tuple, b: tuple) -> None:
    check(lambda x, y: x @ y, lambda x, y: x @ y, array(*a), array(*b))


def test_special_products() -> None:
    check(lambda x, y: x.mm(y), torch.mm, array(2, 3), array(3, 4))
    check(lambda x, y: x.bmm(y), torch.bmm, array(2, 3, 4), array(2, 4, 2))
    check(lambda x, y: x.mv(y), torch.mv, array(2, 3), array(3))
    check(lambda x, y: x.dot(y), torch.dot, array(3), array(3))
    check(lambda x, y: x.outer(y), torch.outer, array(3), array(2))
    linear = torch.nn.functional.linear
    check(lambda x, w, b: x.linear(w, b), linear, array(2, 3, 4), array(5, 4), array(5))
    check(lambda x, w: x.linear(w), linear, array(4), array(5, 4))
    check(lambda x, w: x.linear(w), linear, array(2, 4), array(4))


def test_integers_stay_integers() -> None:
    a, b = np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(6, dtype=np.int32).reshape(3, 2)
    y = Tensor(a) @ Tensor(b)
    assert y.dtype.name == "int32"
    assert y.tolist() == (a @ b).tolist()
    assert (Tensor(a) @ Tensor(array(3, 2))).dtype.name == "float32"


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_halves_add_up_in_float32(name: str) -> None:
    # 4096 ones and a half: float16 would stop at 2048, bfloat16 at 256.
    y = Tensor.ones(1, 4097, dtype=name) @ Tensor.ones(4097, 1, dtype=name)
    assert y.dtype.name == name
    assert y.float().item() == torch.tensor(4097.0).to(getattr(torch, name)).item()


def test_matmul_errors() -> None:
    with pytest.raises(ShapeError, match="inner sizes differ") as e:
        Tensor.ones(2, 3) @ Tensor.ones(4, 5)
    assert "(2, 3) @ (4, 5)" in str(e.value)
    with pytest.raises(ShapeError, match="batch axes differ"):
        Tensor.ones(2, 3, 4) @ Tensor.ones(3, 4, 5)
    with pytest.raises(ShapeError, match="scalar"):
        Tensor.ones(2) @ Tensor(1.0)
    with pytest.raises(ShapeError, match="rank of self"):
        Tensor.ones(2).mm(Tensor.ones(2, 2))
    with pytest.raises(ShapeError, match="batch sizes differ"):
        Tensor.ones(2, 3, 4).bmm(Tensor.ones(1, 4, 5))
    with pytest.raises(DTypeError, match="bools"):
        Tensor([[True]]) @ Tensor([[True]])
    with pytest.raises(DTypeError, match="operand"):
        Tensor.ones(2).dot([1.0, 2.0])
    with pytest.raises(ShapeError, match="bias"):
        Tensor.ones(2, 3).linear(Tensor.ones(4, 3), Tensor.ones(3))
    with pytest.raises(TypeError):
        Tensor.ones(2, 2) @ 3.0


EINSUM = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("ii->i", (3, 3)),
    ("ii", (3, 3)), ("iij->j", (2, 2, 3)), ("bik,bkj->bij", (2, 3, 4), (2, 4, 2)), ("i,j->ij", (2,), (3,)),
    ("...ij,...jk->...ik", (2, 3, 4), (1, 4, 2)), ("...ij,jk->...ik", (5, 2, 3, 4), (4, 2)), ("i...->...", (2, 3)),
    ("...", (2, 3)), ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)), ("ijk,jil->kl", (2, 3, 4), (3, 2, 5)),
    ("bn,anm,bm->ba", (2, 3), (4, 3, 2), (2, 2)), ("ba", (2, 3)), ("i,i,i->i", (3,), (3,), (3,)),
    ("ij,kl->jl", (2, 3), (4, 5)), ("iijj->ij", (2, 2, 3, 3)), ("iii->i", (3, 3, 3)), (" i j , j -> i ", (2, 3), (3,)),
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("case", EINSUM, ids=[c[0] for c in EINSUM])
def test_einsum(case: tuple) -> None:
    formula, *shapes = case
    arrays = [array(*s) for s in shapes]
    check(lambda *x: Tensor.einsum(formula, *x), lambda *x: torch.einsum(formula, *x), *arrays)


def test_einsum_errors() -> None:
    with pytest.raises(ShapeError, match="sizes of j") as e:
        Tensor.einsum("ij,jk->ik", Tensor.ones(2, 3), Tensor.ones(4, 5))
    assert "expected: 3 or 1" in str(e.value) and "found: 4" in str(e.value)
    with pytest.raises(ShapeError, match='rank of "ij"'):
        Tensor.einsum("ij->i", Tensor.ones(2))
    with pytest.raises(ShapeError, match="in one operand"):
        Tensor.einsum("ii->i", Tensor.ones(2, 3))
    with pytest.raises(ArgumentError, match="number of operands"):
        Tensor.einsum("ij,jk->ik", Tensor.ones(2, 3))
    with pytest.raises(ArgumentError, match="result"):
        Tensor.einsum("ij->k", Tensor.ones(2, 3))
    with pytest.raises(ArgumentError, match="twice|each name once"):
        Tensor.einsum("ij->ii", Tensor.ones(2, 3))
    with pytest.raises(ArgumentError, match="term"):
        Tensor.einsum("i1->i", Tensor.ones(2, 3))
    with pytest.raises(ArgumentError, match="without operands"):
        Tensor.einsum("ij->i")


def test_tensordot() -> None:
    check(lambda a, b: a.tensordot(b, 1), lambda a, b: torch.tensordot(a, b, 1), array(2, 3), array(3, 4))
    check(lambda a, b: a.tensordot(b), lambda a, b: torch.tensordot(a, b, 2), array(2, 3, 4), array(3, 4, 5))
    check(lambda a, b: a.tensordot(b, 0), lambda a, b: torch.tensordot(a, b, 0), array(2), array(3))
    pairs = ([0, 2], [1, 0])
    check(lambda a, b: a.tensordot(b, pairs), lambda a, b: torch.tensordot(a, b, pairs), array(2, 3, 4), array(4, 2, 5))
    with pytest.raises(ShapeError, match="paired axes differ"):
        Tensor.ones(2, 3).tensordot(Tensor.ones(4, 5), 1)
    with pytest.raises(AxisError, match="axis"):
        Tensor.ones(2, 3).tensordot(Tensor.ones(3, 2), ([5], [0]))
    with pytest.raises(ArgumentError, match="dims"):
        Tensor.ones(2).tensordot(Tensor.ones(2), 2)


# ---- attention -------------------------------------------------------------------------------------------------------
attention = torch.nn.functional.scaled_dot_product_attention


def test_attention() -> None:
    q, k, v = array(2, 3, 4, 8), array(2, 3, 5, 8), array(2, 3, 5, 6)
    check(lambda q, k, v: q.scaled_dot_product_attention(k, v), attention, q, k, v)
    check(
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True, scale=0.3),
        lambda q, k, v: attention(q, k, v, is_causal=True, scale=0.3),
        q, k, v,
    )  # fmt: skip
    added = array(4, 5)
    check(
        lambda q, k, v: q.scaled_dot_product_attention(k, v, Tensor(added)),
        lambda q, k, v: attention(q, k, v, torch.tensor(added)),
        q, k, v,
    )  # fmt: skip


def test_attention_that_sees_nothing_gives_zeros_and_no_nan() -> None:
    mask = rng.random((4, 5)) > 0.4
    mask[2] = False
    q, k, v = array(1, 4, 8), array(1, 5, 8), array(1, 5, 6)
    check(
        lambda q, k, v: q.scaled_dot_product_attention(k, v, Tensor(mask)),
        lambda q, k, v: attention(q, k, v, torch.tensor(mask)),
        q, k, v,
    )  # fmt: skip
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(mask)).numpy()
    assert (out[0, 2] == 0).all()


def test_attention_with_grouped_heads() -> None:
    q, k, v = array(2, 6, 4, 8), array(2, 3, 5, 8), array(2, 3, 5, 8)
    check(
        lambda q, k, v: q.scaled_dot_product_attention(k, v, enable_gqa=True),
        lambda q, k, v: attention(q, k, v, enable_gqa=True),
        q, k, v,
    )  # fmt: skip
    mask = rng.random((2, 6, 4, 5)) > 0.3
    mask[..., 0] = True
    ours = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), Tensor(mask), enable_gqa=True)
    theirs = attention(*map(torch.tensor, (q, k, v, mask)), enable_gqa=True)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-5, atol=2e-5)


def test_attention_in_half_precision_keeps_its_dtype() -> None:
    q = Tensor(array(2, 4, 8)).half()
    assert q.scaled_dot_product_attention(q, q).dtype.name == "float16"


def test_attention_errors() -> None:
    q = Tensor.ones(2, 4, 8)
    with pytest.raises(ShapeError, match="width of key"):
        q.scaled_dot_product_attention(Tensor.ones(2, 4, 6), q)
    with pytest.raises(ShapeError, match="length of value"):
        q.scaled_dot_product_attention(q, Tensor.ones(2, 3, 8))
    with pytest.raises(ShapeError, match="mask"):
        q.scaled_dot_product_attention(q, q, Tensor.ones(3, 3))
    with pytest.raises(ArgumentError, match="two masks"):
        q.scaled_dot_product_attention(q, q, Tensor.ones(4, 4), is_causal=True)
    with pytest.raises(ShapeError, match="heads"):
        q.scaled_dot_product_attention(Tensor.ones(3, 4, 8), Tensor.ones(3, 4, 8), enable_gqa=True)
    with pytest.raises(DTypeError, match="floats"):
        Tensor.ones(2, 4, 8, dtype="int32").scaled_dot_product_attention(*[Tensor.ones(2, 4, 8, dtype="int32")] * 2)
