"""Losses, normalisation and dropout against PyTorch: values, gradients and the messages of what does not fit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.base.settings import Context
from monolect.tensor.tensor import Tensor
from tests.unit.oracle import agree

rng = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def check(ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: np.ndarray, tolerance: float = 3e-5) -> None:
    """Value and gradients of both functions agree on `arrays`."""
    agree(rng, ours, theirs, arrays, tolerance, tolerance * 5, tolerance * 5)


# ---- classes ---------------------------------------------------------------------------------------------------------
CLASSES = [
    {},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"label_smoothing": 0.1},
    {"ignore_index": 1},
    {"ignore_index": 1, "label_smoothing": 0.2},
    {"ignore_index": 1, "reduction": "none"},
]


@pytest.mark.sweep
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", CLASSES)
def test_cross_entropy_with_classes(options: dict, weighted: bool) -> None:
    y = np.array([0, 3, 1, 4, 1])
    w = np.abs(array(5)) if weighted else None
    check(
        lambda x: x.cross_entropy(Tensor(y), None if w is None else Tensor(w), **options),
        lambda x: F.cross_entropy(x, torch.tensor(y), None if w is None else torch.tensor(w), **options),
        array(5, 5) * 3,
    )


def test_cross_entropy_of_images_of_one_row_and_of_small_integers() -> None:
    y = rng.integers(0, 3, (2, 4, 4))
    check(lambda x: x.cross_entropy(Tensor(y)), lambda x: F.cross_entropy(x, torch.tensor(y)), array(2, 3, 4, 4))
    check(lambda x: x.cross_entropy(Tensor(2)), lambda x: F.cross_entropy(x, torch.tensor(2)), array(5))
    small = np.array([0, 2], np.uint8)
    check(
        lambda x: x.cross_entropy(Tensor(small)),
        lambda x: F.cross_entropy(x, torch.tensor(small).long()),
        array(2, 3),
    )


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.1}])
def test_cross_entropy_with_probabilities(options: dict) -> None:
    y = np.abs(array(4, 5))
    y /= y.sum(1, keepdims=True)
    w = np.abs(array(5))
    check(
        lambda x: x.cross_entropy(Tensor(y), Tensor(w), **options),
        lambda x: F.cross_entropy(x, torch.tensor(y), torch.tensor(w), **options),
        array(4, 5),
    )


def test_cross_entropy_is_stable_and_shows_classes_that_do_not_exist() -> None:
    x = Tensor([[1000.0, 0.0], [-1000.0, 0.0]])
    assert x.cross_entropy(Tensor([0, 1])).item() == 0.0
    with Context(CHECK_BOUNDS=0):
        loss = x.cross_entropy(Tensor([0, 2]), reduction="none").numpy()
        assert loss[0] == 0.0 and np.isnan(loss[1])
        assert np.isnan(x.cross_entropy(Tensor([-1, 0])).item())


def test_nll_loss() -> None:
    y, w = np.array([0, 2, -100]), np.abs(array(4))
    check(
        lambda x: x.log_softmax(1).nll_loss(Tensor(y), Tensor(w)),
        lambda x: F.nll_loss(x.log_softmax(1), torch.tensor(y), torch.tensor(w)),
        array(3, 4),
    )


def test_class_loss_errors() -> None:
    x = Tensor.ones(2, 3)
    with pytest.raises(ShapeError, match="target") as e:
        x.cross_entropy(Tensor([0, 1, 2]))
    assert "expected: (2,)" in str(e.value) and "found: (3,)" in str(e.value)
    with pytest.raises(ShapeError, match="target"):
        x.cross_entropy(Tensor.ones(2, 4))
    with pytest.raises(DTypeError, match="target"):
        x.cross_entropy(Tensor([True, False]))
    with pytest.raises(DTypeError, match="cross_entropy"):
        Tensor([[1, 2]]).cross_entropy(Tensor([0]))
    with pytest.raises(ShapeError, match="weight"):
        x.cross_entropy(Tensor([0, 1]), Tensor.ones(2))
    with pytest.raises(ArgumentError, match="reduction"):
        x.cross_entropy(Tensor([0, 1]), reduction="average")
    with pytest.raises(ArgumentError, match="label_smoothing"):
        x.cross_entropy(Tensor([0, 1]), label_smoothing=2.0)


# ---- numbers and probabilities ---------------------------------------------------------------------------------------
REGRESSIONS = [
    ("mse_loss", {}), ("mse_loss", {"reduction": "sum"}), ("l1_loss", {}), ("smooth_l1_loss", {}),
    ("smooth_l1_loss", {"beta": 0.3, "reduction": "none"}), ("smooth_l1_loss", {"beta": 0.0}),
    ("huber_loss", {"delta": 0.4}), ("huber_loss", {"reduction": "sum"}),
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "options"), REGRESSIONS)
def test_regression_losses(name: str, options: dict) -> None:
    check(
        lambda x, y: getattr(x, name)(y, **options),
        lambda x, y: getattr(F, name)(x, y, **options),
        array(3, 4), array(3, 4),
    )  # fmt: skip


def test_binary_cross_entropy() -> None:
    y, w = rng.random((3, 4), np.float32), rng.random((3, 4), np.float32)
    p = rng.random((3, 4), np.float32)
    check(
        lambda x: x.binary_cross_entropy(Tensor(y), Tensor(w)),
        lambda x: F.binary_cross_entropy(x, torch.tensor(y), torch.tensor(w)),
        p, tolerance=1e-4,
    )  # fmt: skip
    assert Tensor([0.0, 1.0]).binary_cross_entropy(Tensor([1.0, 1.0]), reduction="none").tolist() == [100.0, 0.0]
    logits, positive = array(3, 4) * 20, rng.random(4, np.float32)
    check(
        lambda x: x.binary_cross_entropy_with_logits(Tensor(y), pos_weight=Tensor(positive), reduction="none"),
        lambda x: F.binary_cross_entropy_with_logits(
            x, torch.tensor(y), pos_weight=torch.tensor(positive), reduction="none"
        ),
        logits,
    )
    assert Tensor([-200.0, 200.0]).binary_cross_entropy_with_logits(Tensor([1.0, 0.0])).item() == 200.0


@pytest.mark.filterwarnings("ignore:reduction:UserWarning")
def test_kl_div() -> None:
    y = np.abs(array(3, 4))
    y /= y.sum(1, keepdims=True)
    y[0, 0] = 0.0
    for reduction in ("mean", "sum", "none", "batchmean"):
        check(
            lambda x, r=reduction: x.log_softmax(1).kl_div(Tensor(y), r),
            lambda x, r=reduction: F.kl_div(x.log_softmax(1), torch.tensor(y), reduction=r),
            array(3, 4),
        )
    z = array(3, 4)
    check(
        lambda x: x.kl_div(Tensor(z), "sum", log_target=True),
        lambda x: F.kl_div(x, torch.tensor(z), reduction="sum", log_target=True),
        array(3, 4),
    )


def test_kl_div_hides_nothing() -> None:
    for t in (np.nan, -1.0, 0.0, 0.5):
        for x in (np.nan, -np.inf, 0.5):
            got = Tensor([x]).kl_div(Tensor([t]), "none").numpy()
            np.testing.assert_allclose(got, F.kl_div(torch.tensor([x]), torch.tensor([t]), reduction="none"), rtol=1e-6)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_rms_norm_of_small_numbers(name: str) -> None:
    x = np.array([0.03, 0.01, 0.0])
    got = Tensor(x, dtype=getattr(dtypes, name)).rms_norm(3).cast(dtypes.float64).numpy()
    np.testing.assert_allclose(got, F.rms_norm(torch.tensor(x, dtype=getattr(torch, name)), (3,)).double(), rtol=8e-3)


def test_loss_errors() -> None:
    with pytest.raises(ShapeError, match="mse_loss: target"):
        Tensor.ones(3).mse_loss(Tensor.ones(4))
    with pytest.raises(DTypeError, match="l1_loss: target"):
        Tensor.ones(3).l1_loss(1.0)
    with pytest.raises(ArgumentError, match="reduction"):
        Tensor.ones(3).mse_loss(Tensor.ones(3), "avg")
    with pytest.raises(ArgumentError, match="delta"):
        Tensor.ones(3).huber_loss(Tensor.ones(3), delta=0.0)


# ---- normalisation ---------------------------------------------------------------------------------------------------
def test_layer_and_rms_norm() -> None:
    x, w, b = array(2, 3, 8) * 3 + 5, array(8), array(8)
    check(lambda x, w, b: x.layer_norm((8,), w, b), lambda x, w, b: F.layer_norm(x, (8,), w, b), x, w, b)
    check(lambda x: x.layer_norm((3, 8)), lambda x: F.layer_norm(x, (3, 8)), x)
    check(lambda x, w: x.rms_norm(8, w), lambda x, w: F.rms_norm(x, (8,), w), x, w)
    check(lambda x: x.rms_norm(8, eps=0.1), lambda x: F.rms_norm(x, (8,), eps=0.1), x)


def test_group_and_instance_norm() -> None:
    x, w, b = array(2, 6, 4, 3), array(6), array(6)
    check(lambda x, w, b: x.group_norm(3, w, b), lambda x, w, b: F.group_norm(x, 3, w, b), x, w, b)
    check(lambda x: x.instance_norm(), F.instance_norm, x)
    check(
        lambda x, w, b: x.instance_norm(weight=w, bias=b), lambda x, w, b: F.instance_norm(x, weight=w, bias=b), x, w, b
    )


def test_batch_norm() -> None:
    x, w, b = array(4, 3, 2, 2), array(3), array(3)
    mean, var = array(3), np.abs(array(3))
    check(
        lambda x, w, b: x.batch_norm(Tensor(mean), Tensor(var), w, b),
        lambda x, w, b: F.batch_norm(x, torch.tensor(mean), torch.tensor(var), w, b),
        x, w, b,
    )  # fmt: skip
    m, v, tm, tv = Tensor(mean), Tensor(var), torch.tensor(mean), torch.tensor(var)
    check(
        lambda x, w, b: x.batch_norm(m, v, w, b, training=True, momentum=0.3),
        lambda x, w, b: F.batch_norm(x, tm, tv, w, b, training=True, momentum=0.3),
        x, w, b, tolerance=1e-4,
    )  # fmt: skip
    np.testing.assert_allclose(m.numpy(), tm.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(v.numpy(), tv.numpy(), rtol=1e-5, atol=1e-6)


def test_norms_of_halves_are_computed_in_float32() -> None:
    x = (array(4, 64) + 300).astype(np.float16)
    y = Tensor(x).layer_norm(64)
    assert y.dtype.name == "float16"
    np.testing.assert_allclose(
        y.float().numpy(), F.layer_norm(torch.tensor(x).float(), (64,)).numpy(), rtol=2e-3, atol=2e-3
    )


def test_norm_errors() -> None:
    with pytest.raises(ShapeError, match="normalized_shape"):
        Tensor.ones(2, 3).layer_norm(4)
    with pytest.raises(ShapeError, match="layer_norm: weight"):
        Tensor.ones(2, 3).layer_norm(3, Tensor.ones(2))
    with pytest.raises(DTypeError, match="layer_norm"):
        Tensor([[1, 2]]).layer_norm(2)
    with pytest.raises(ArgumentError, match="num_groups"):
        Tensor.ones(2, 3, 4).group_norm(2)
    with pytest.raises(ArgumentError, match="statistics"):
        Tensor.ones(2, 3).batch_norm()
    with pytest.raises(ShapeError, match="2 or more values"):
        Tensor.ones(1, 3).batch_norm(training=True)
    with pytest.raises(ShapeError, match="running_mean"):
        Tensor.ones(2, 3).batch_norm(Tensor.ones(2), Tensor.ones(3))


# ---- dropout ---------------------------------------------------------------------------------------------------------
def test_dropout() -> None:
    Tensor.manual_seed(3)
    x = Tensor.ones(4000)
    assert x.dropout(0.5) is x
    with Context(TRAINING=1):
        y = x.dropout(0.25).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.03
    assert x.dropout(1.0, training=True).sum().item() == 0.0
    w = Tensor(array(50), requires_grad=True)
    z = w.dropout(0.5, training=True)
    z.sum().backward()
    assert (w.grad.numpy() == np.where(z.numpy() != 0, 2.0, 0.0)).all()
    with pytest.raises(ArgumentError, match="dropout: p"):
        x.dropout(1.5)


def test_binary_cross_entropy_of_certain_probabilities():
    p, t = [0.0, 0.0, 1.0, 1.0, 0.3, 0.0], [0.0, 1.0, 0.0, 1.0, 0.6, 0.5]
    x, y = Tensor(p, dtype="float64", requires_grad=True), torch.tensor(p, dtype=torch.float64, requires_grad=True)
    loss = x.binary_cross_entropy(Tensor(t, dtype="float64"), reduction="none")
    wanted = torch.nn.functional.binary_cross_entropy(y, torch.tensor(t, dtype=torch.float64), reduction="none")
    loss.sum().backward(), wanted.sum().backward()
    np.testing.assert_allclose(loss.numpy(), wanted.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-8)


def test_group_norm_of_an_empty_batch():
    assert Tensor.zeros(0, 4, 3).group_norm(2).numpy().shape == (0, 4, 3)


@pytest.mark.parametrize("name", ["l1_loss", "smooth_l1_loss", "huber_loss"])
def test_gradients_of_distances_at_every_pair_of_special_values(name: str) -> None:
    values = np.array([0.0, 0.5, 1.0, -1.0, 3.0, 1e30, -1e30, np.inf, -np.inf], np.float32)
    a, b = np.meshgrid(values, values[:-2])
    x, y = Tensor(a.copy(), requires_grad=True), Tensor(b.copy(), requires_grad=True)
    tx, ty = (torch.tensor(v, requires_grad=True) for v in (a, b))
    loss, want = getattr(x, name)(y, reduction="none"), getattr(F, name)(tx, ty, reduction="none")
    loss.sum().backward()
    want.sum().backward()
    np.testing.assert_array_equal(loss.numpy(), want.detach().numpy())
    for t, w in ((x, tx), (y, ty)):
        assert t.grad is not None and w.grad is not None
        np.testing.assert_array_equal(t.grad.numpy(), w.grad.numpy())


def test_losses_of_halves_add_up_in_singles() -> None:
    n = 70_000  # more than the largest float16
    x, y = Tensor.full((n, 2), -0.5, dtype=dtypes.float16), Tensor.zeros(n, dtype=dtypes.int64)
    assert x.nll_loss(y).item() == 0.5 and x.nll_loss(y).dtype is dtypes.float16
    assert x.cross_entropy(y).item() == pytest.approx(np.log(2), rel=1e-3)
    many = Tensor.full((n, 1), 0.5, dtype=dtypes.float16)
    assert many.zeros_like().kl_div(many, "batchmean").item() == pytest.approx(0.5 * np.log(0.5), rel=1e-3)


@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss", "mse_loss", "l1_loss"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 3.0, 0.2])
def test_derivatives_of_distances(name: str, value: float) -> None:
    check(
        lambda x: getattr(x, name)(Tensor([0.0, 0.0]), reduction="none"),
        lambda x: getattr(F, name)(x, torch.zeros(2), reduction="none"),
        np.array([value, 0.5], np.float32),
    )
