"""Losses of margins, pairs, labels, distributions and alignments, distances, and tables, against PyTorch in float64."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from monolect import ArgumentError, DTypeError, ShapeError, Tensor
from tests.unit.torch_oracle import Fixed, check

rng = np.random.default_rng(1)
REDUCTIONS = ("mean", "sum", "none")


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


SIGNS = np.where(rng.random((4, 5)) < 0.5, -1, 1)
X, Y, Z = array(4, 5), array(4, 5), array(4, 5)
LABELS = Fixed((rng.random((4, 5)) < 0.5).astype(np.float64))
LISTED = np.array([[3, 0, -1, 1, 2], [-1, 0, 0, 0, 0], [0, 1, 2, 3, 4], [2, -1, 4, -1, 1]])
CLASSES = np.array([0, 4, 2, 2])
COUNTS = Fixed(rng.integers(0, 5, (4, 5)).astype(np.float64))

# name, positional arguments, rows of keywords
LOSSES: list[tuple[str, tuple[Any, ...], list[dict[str, Any]]]] = [
    ("hinge_embedding_loss", (X, SIGNS), [{}, {"margin": 0.3}]),
    ("margin_ranking_loss", (X, Y, SIGNS), [{}, {"margin": 0.4}]),
    ("cosine_embedding_loss", (X, Y, SIGNS[:, 0]), [{}, {"margin": 0.2}]),
    ("cosine_embedding_loss", (X[0], Y[0], np.array(1)), [{}]),
    ("triplet_margin_loss", (X, Y, Z), [{}, {"margin": 0.4, "p": 1.0}, {"swap": True, "eps": 1e-3}, {"p": 3.0}]),
    ("triplet_margin_with_distance_loss", (X, Y, Z), [{}, {"swap": True, "margin": 2.0}]),
    ("soft_margin_loss", (X, Fixed(SIGNS.astype(np.float64))), [{}]),
    ("multilabel_soft_margin_loss", (X, LABELS), [{}, {"weight": np.abs(array(5))}]),
    ("multilabel_margin_loss", (X, LISTED), [{}]),
    ("multilabel_margin_loss", (X[0], LISTED[0]), [{}]),
    ("multi_margin_loss", (X, CLASSES), [{}, {"p": 2, "margin": 0.5}, {"weight": rng.random(5)}]),
    ("multi_margin_loss", (X[0], np.array(3)), [{}]),
    ("poisson_nll_loss", (X, COUNTS), [{}, {"full": True}]),
    ("poisson_nll_loss", (np.abs(X), COUNTS), [{"log_input": False}, {"log_input": False, "full": True, "eps": 1e-3}]),
    ("gaussian_nll_loss", (X, Y, np.abs(Z)), [{}, {"full": True}, {"eps": 1.0}]),
    ("gaussian_nll_loss", (X, Y, np.abs(Z[:, :1])), [{}]),
    ("gaussian_nll_loss", (X, Y, np.abs(Z[:, 0])), [{}]),
    ("gaussian_nll_loss", (X, Y, 0.7), [{}]),
    ("linear_cross_entropy", (X, array(3, 5), np.array([0, 2, 1, 1])),
     [{}, {"linear_bias": array(3), "ignore_index": 1}]),
    ("l1_loss", (X, Y), [{}]),
    ("mse_loss", (X, Y), [{}]),
    ("smooth_l1_loss", (X, Y), [{}, {"beta": 0.3}]),
    ("huber_loss", (X, Y), [{}, {"delta": 0.3}]),
    ("binary_cross_entropy", (rng.random((4, 5)), LABELS), [{}, {"weight": rng.random(5)}]),
    ("binary_cross_entropy_with_logits", (X, LABELS), [{}, {"weight": rng.random(5), "pos_weight": rng.random(5)}]),
    ("kl_div", (X, LABELS), [{}, {"log_target": True}]),
    ("cross_entropy", (X, CLASSES), [{}, {"label_smoothing": 0.2}, {"weight": rng.random(5), "ignore_index": 2}]),
    ("cross_entropy", (X, Fixed(rng.random((4, 5)))), [{}, {"label_smoothing": 0.2}]),
    ("nll_loss", (X, CLASSES), [{}, {"weight": rng.random(5)}]),
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "args", "rows"), LOSSES, ids=[r[0] for r in LOSSES])
def test_losses(name: str, args: tuple[Any, ...], rows: list[dict[str, Any]]) -> None:
    warnings.simplefilter("ignore")  # the mean of kl_div
    for i, row in enumerate(rows):
        for reduction in REDUCTIONS if i == 0 else REDUCTIONS[i % 3 : i % 3 + 1]:
            check(getattr(Tensor, name), getattr(F, name), *args, **row, reduction=reduction)


@pytest.mark.sweep
@pytest.mark.parametrize("is_vector", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_alignments(reduction: str, is_vector: bool) -> None:
    x, targets = array(7, 3, 5), np.array([[1, 2, 2], [4, 1, 1], [3, 0, 0]])
    lengths, inputs = np.array([3, 1, 0]), np.array([7, 5, 6])
    if is_vector:
        targets = np.array([1, 2, 2, 4])
    for given in ((inputs, lengths), (tuple(map(int, inputs)), tuple(map(int, lengths)))):
        check(
            lambda x, *a: x.log_softmax(-1).ctc_loss(*a, reduction=reduction),
            lambda x, *a: F.ctc_loss(x.log_softmax(-1), *a, reduction=reduction),
            x, targets, *given,
        )  # fmt: skip


def test_alignments_of_one_sequence_and_of_none() -> None:
    x = array(4, 5)
    check(
        lambda x, *a, **k: x.log_softmax(-1).ctc_loss(*a, **k),
        lambda x, *a, **k: F.ctc_loss(x.log_softmax(-1), *a, **k),
        x, np.array([3, 3]), np.array(4), np.array(2), blank=1, reduction="none",
    )  # fmt: skip
    short = Tensor(x).log_softmax(-1)
    assert short.ctc_loss(Tensor([2, 2, 2]), 4, 3).item() == float("inf")
    assert short.ctc_loss(Tensor([2, 2, 2]), 4, 3, zero_infinity=True).item() == 0.0


# ---- distances -------------------------------------------------------------------------------------------------------
def test_distances() -> None:
    for dim in (1, -1, 0):
        check(Tensor.cosine_similarity, F.cosine_similarity, X, Y, dim)
    check(Tensor.cosine_similarity, F.cosine_similarity, X[0], Y, -1, eps=0.5)
    check(Tensor.cosine_similarity, F.cosine_similarity, X * 0, Y)
    for p in (2.0, 1.0, 3.0, float("inf"), 0.5):
        check(Tensor.pairwise_distance, F.pairwise_distance, X, Y, p, 1e-4, True)
        check(Tensor.normalize, F.normalize, X, p, -1)
        check(Tensor.pdist, F.pdist, X, p)
    check(Tensor.pairwise_distance, F.pairwise_distance, X, Y[0])
    check(Tensor.normalize, F.normalize, X * np.array([[1.0], [0.0], [1e-13], [2.0]]))


# ---- tables ----------------------------------------------------------------------------------------------------------
WEIGHT = array(6, 3)
BAGS = np.array([[1, 5, 1], [0, 2, 2]])
FLAT, OFFSETS = np.array([1, 5, 1, 0, 3]), np.array([0, 2, 2, 5])
EMBEDDED: list[dict[str, Any]] = [
    {}, {"padding_idx": 1}, {"padding_idx": -1}, {"max_norm": 1.0}, {"max_norm": 0.5, "norm_type": 1.0},
    {"scale_grad_by_freq": True},
]  # fmt: skip


@pytest.mark.parametrize("options", EMBEDDED, ids=str)
def test_embeddings(options: dict[str, Any]) -> None:
    ours, theirs = Tensor(WEIGHT.copy()).contiguous(), torch.tensor(WEIGHT.copy())
    ours.requires_grad, theirs.requires_grad = True, True
    y, t = Tensor(BAGS).embedding(ours, **options), F.embedding(torch.tensor(BAGS), theirs, **options)
    c = array(2, 3, 3)
    (y * Tensor(c)).sum().backward()
    (t * torch.tensor(c)).sum().backward()
    np.testing.assert_allclose(y.numpy(), t.detach().numpy(), rtol=1e-6 if "max_norm" in options else 1e-12)
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-6 if "max_norm" in options else 1e-12)
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-6, atol=1e-12)


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode: str) -> None:
    rows: list[dict[str, Any]] = [{}, {"padding_idx": 1}]
    if mode == "sum":
        own = rng.random(5)
        weighted = lambda i, w, o, p, f: f(i, w, o, mode="sum", per_sample_weights=p)  # noqa: E731
        check(
            lambda *a: weighted(*a, Tensor.embedding_bag),
            lambda *a: weighted(*a, F.embedding_bag),
            FLAT,
            WEIGHT,
            OFFSETS[:3],
            own,
        )
    for row in rows:
        check(Tensor.embedding_bag, F.embedding_bag, FLAT, WEIGHT, OFFSETS[:3], mode=mode, **row)
    check(Tensor.embedding_bag, F.embedding_bag, FLAT, WEIGHT, OFFSETS, mode=mode, include_last_offset=True)
    check(Tensor.embedding_bag, F.embedding_bag, BAGS, WEIGHT, mode=mode)


def test_gradients_of_bags_by_the_number_of_uses() -> None:
    check(  # PyTorch's own embedding_bag divides by the uses of another row
        lambda i, w: i.embedding_bag(w, mode="sum", scale_grad_by_freq=True),
        lambda i, w: F.embedding(i, w, scale_grad_by_freq=True).sum(1),
        BAGS, WEIGHT,
    )  # fmt: skip


# ---- gates and drops -------------------------------------------------------------------------------------------------
def test_gates() -> None:
    check(Tensor.glu, F.glu, array(4, 6))
    check(Tensor.glu, F.glu, array(4, 6), 0)
    check(Tensor.bilinear, F.bilinear, array(2, 4, 3), array(2, 4, 5), array(2, 3, 5), array(2))
    for size, options in ((2, {}), (3, {"alpha": 0.5, "beta": 0.4, "k": 2.0}), (5, {"alpha": 2.0})):
        check(Tensor.local_response_norm, F.local_response_norm, array(2, 4, 3), size, **options)
        check(Tensor.local_response_norm, F.local_response_norm, array(2, 3, 2, 2), size, **options)
    check(Tensor.rrelu, F.rrelu, X, 0.2, 0.6, training=False)


CHANNELS: list[tuple[str, tuple[int, ...], int]] = [
    ("dropout1d", (50, 40, 3), 2), ("dropout1d", (200, 3), 1), ("dropout2d", (50, 40, 2, 2), 2),
    ("dropout2d", (50, 40, 3), 2), ("dropout3d", (50, 40, 1, 2, 2), 2), ("dropout3d", (400, 1, 2, 2), 1),
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "shape", "lead"), CHANNELS)
def test_dropped_channels(name: str, shape: tuple[int, ...], lead: int) -> None:
    Tensor.manual_seed(0)
    x = Tensor.ones(*shape)
    y = getattr(x, name)(0.25, training=True).numpy().reshape(*shape[:lead], -1)
    assert ((y == y[..., :1]).all()) and np.isin(np.round(y, 5), [0.0, np.float32(1.33333)]).all()
    assert abs((y == 0).mean() - 0.25) < 0.12
    assert getattr(x, name)(0.25, training=False) is x


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    Tensor.manual_seed(0)
    x = Tensor.randn(200, 500)
    y = x.alpha_dropout(0.3, training=True).numpy()
    assert abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.02
    z = x.reshape(200, 50, 10).feature_alpha_dropout(0.3, training=True).numpy()
    dropped = (z == z[..., :1]).all(2)
    assert abs(dropped.mean() - 0.3) < 0.03
    assert abs(z.mean()) < 0.05 and abs(z.std() - 1) < 0.05


def test_random_slopes_and_choices() -> None:
    Tensor.manual_seed(0)
    slopes = (-Tensor(-np.ones(1000)).rrelu(0.2, 0.6, training=True)).numpy()
    assert slopes.min() >= 0.2 and slopes.max() < 0.6 and abs(slopes.mean() - 0.4) < 0.02
    logits = Tensor(np.log([[0.2, 0.3, 0.5]]), requires_grad=True)
    chosen = logits.expand(3000, 3).gumbel_softmax(hard=True)
    np.testing.assert_allclose(chosen.numpy().mean(0), [0.2, 0.3, 0.5], atol=0.03)
    soft = logits.expand(5, 3).gumbel_softmax(tau=0.5)
    np.testing.assert_allclose(soft.numpy().sum(1), 1.0, rtol=1e-12)
    (soft * Tensor([1.0, 2.0, 3.0])).sum().backward()
    assert np.isfinite(logits.grad.numpy()).all()


# ---- refused ---------------------------------------------------------------------------------------------------------
REFUSED: list[tuple[Any, Any, str]] = [
    (lambda x: x.hinge_embedding_loss(x, reduction="max"), ArgumentError, "reduction"),
    (lambda x: x.margin_ranking_loss(x[0], x), ShapeError, "ranks"),
    (lambda x: x.cosine_embedding_loss(x, x), ShapeError, "cosine_embedding_loss"),
    (lambda x: x.triplet_margin_loss(x[0], x), ShapeError, "ranks"),
    (lambda x: x.soft_margin_loss(x[0]), ShapeError, "soft_margin_loss"),
    (lambda x: x.multilabel_margin_loss(x), DTypeError, "integer classes"),
    (lambda x: x.multi_margin_loss(x[:, 0].long(), p=3), ArgumentError, "1 or 2"),
    (lambda x: x.multi_margin_loss(x), DTypeError, "integer classes"),
    (lambda x: x.gaussian_nll_loss(x, x[:2]), ShapeError, "var"),
    (lambda x: x.gaussian_nll_loss(x, -1.0), ArgumentError, "var"),
    (lambda x: x.ctc_loss(x, 1, 1), DTypeError, "integer classes"),
    (lambda x: x.ctc_loss(x.long()[0], 4, 2, blank=5), ArgumentError, "blank"),
    (lambda x: x.ctc_loss(x.long(), 4, 2), ShapeError, "targets"),
    (lambda x: x.pdist().pdist(), ShapeError, "pdist"),
    (lambda x: x.long().normalize(), DTypeError, "normalize"),
    (lambda x: x.long().cosine_similarity(x), DTypeError, "cosine_similarity"),
    (lambda x: x.glu(), ShapeError, "even"),
    (lambda x: x.bilinear(x, x), ShapeError, "bilinear"),
    (lambda x: x.local_response_norm(2), ShapeError, "local_response_norm"),
    (lambda x: x.dropout1d(2.0, training=True), ArgumentError, "probability"),
    (lambda x: x.dropout3d(), ShapeError, "dropout3d"),
    (lambda x: x[0].feature_alpha_dropout(), ShapeError, "feature_alpha_dropout"),
    (lambda x: x.rrelu(0.5, 0.1), ArgumentError, "bounds"),
    (lambda x: x.long().gumbel_softmax(), DTypeError, "gumbel_softmax"),
    (lambda x: x.embedding_bag(x), DTypeError, "integers"),
    (lambda x: Tensor([1]).embedding_bag(x), ShapeError, "offsets"),
    (lambda x: Tensor([[1]]).embedding_bag(x, Tensor([0])), ArgumentError, "offsets"),
    (lambda x: Tensor([[1]]).embedding_bag(x, mode="min"), ArgumentError, "mode"),
    (lambda x: Tensor([[1]]).embedding_bag(x, per_sample_weights=x), ArgumentError, "per_sample_weights"),
    (lambda x: Tensor([1]).embedding(x, padding_idx=4), ArgumentError, "padding_idx"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "match"), REFUSED, ids=[f"{i}: {r[2]}" for i, r in enumerate(REFUSED)])
def test_refused(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        call(Tensor(X))


# ---- no axes and no elements -----------------------------------------------------------------------------------------
EDGES: list[tuple[str, int, tuple[int, ...], tuple[Any, ...]]] = [  # name, tensors, their shape, other arguments
    ("l1_loss", 2, (), ()), ("mse_loss", 2, (), ()), ("soft_margin_loss", 2, (), ()),
    ("hinge_embedding_loss", 2, (), ()),
    ("poisson_nll_loss", 2, (), ()), ("margin_ranking_loss", 3, (), ()), ("gaussian_nll_loss", 3, (0, 3), ()),
    ("cosine_similarity", 2, (0, 3), ()), ("pairwise_distance", 2, (0, 3), ()), ("normalize", 1, (0, 3), ()),
    ("glu", 1, (0, 4), ()),
    ("local_response_norm", 1, (0, 2, 3), (2,)),
    ("interpolate", 1, (0, 2, 3, 3), (4,)), ("adaptive_avg_pool2d", 1, (0, 2, 4, 4), (3,)),
    ("adaptive_max_pool2d", 1, (0, 2, 4, 4), (3,)),
    ("channel_shuffle", 1, (0, 4, 2), (2,)), ("max_pool2d", 1, (0, 2, 4, 4), (2,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "count", "shape", "rest"), EDGES, ids=[f"{r[0]} {r[2]}" for r in EDGES])
def test_no_axes_and_no_elements(name: str, count: int, shape: tuple[int, ...], rest: tuple[Any, ...]) -> None:
    x = [np.asarray(np.abs(array(*shape)) + 0.1), *(Fixed(np.ones(shape)) for _ in range(count - 1))]
    check(getattr(Tensor, name), getattr(F, name), *x, *rest)


def test_distances_of_no_pairs() -> None:  # PyTorch's backward ends the process here
    for rows in (0, 1):
        x = Tensor(np.zeros((rows, 3)), requires_grad=True)
        x.pdist().sum().backward()
        assert x.pdist().shape == (0,) and x.grad.shape == (rows, 3)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_empty_bags(mode: str) -> None:
    none = np.zeros(0, np.int64)
    check(Tensor.embedding_bag, F.embedding_bag, none, Fixed(WEIGHT), np.array([0, 0]), mode=mode)
    check(Tensor.embedding, F.embedding, none, Fixed(WEIGHT), max_norm=1.0)
    check(Tensor.embedding, F.embedding, np.array(2), WEIGHT)


@pytest.mark.parametrize("kind", ["offsets", "rows"])
def test_bags_of_small_floats_are_summed_in_float32(kind: str) -> None:
    table = Tensor([[1.0], [3.0]]).cast("bfloat16")
    ids = np.array([0] * 600 + [1] * 600)
    given = (ids, np.array([0])) if kind == "offsets" else (ids[None],)
    index, *offsets = [Tensor(a) for a in given]
    assert index.embedding_bag(table, *offsets, mode="mean").float().tolist() == [[2.0]]
    total = index.embedding_bag(table, *offsets, mode="sum")
    assert total.dtype.name == "bfloat16" and total.float().tolist() == [[2400.0]]


def test_elements_outside_of_the_offsets_are_in_no_bag() -> None:
    table = Tensor([[1.0], [2.0], [4.0]])
    index = Tensor([0, 1, 2, 2])
    for mode, wanted in (("sum", [[2.0], [8.0]]), ("mean", [[2.0], [4.0]]), ("max", [[2.0], [4.0]])):
        assert index.embedding_bag(table, Tensor([1, 2]), mode=mode).tolist() == wanted
    offsets = Tensor([0, 2, 3])
    theirs = F.embedding_bag(
        torch.tensor([0, 1, 2, 2]), torch.tensor(table.numpy()), torch.tensor([0, 2, 3]), mode="sum",
        include_last_offset=True,
    )  # fmt: skip
    found = index.embedding_bag(table, offsets, mode="sum", include_last_offset=True)
    assert found.tolist() == theirs.tolist() == [[3.0], [4.0]]
