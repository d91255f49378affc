"""`nn.init` beside PyTorch's: gains, distributions, structure, and that values are written in place."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from monolect import Generator, Tensor, jit, nn
from monolect.base.errors import ArgumentError, DTypeError, JitError, MonolectError, ShapeError

SHAPE = (60, 40, 3)  # fan_in 120, fan_out 180
LEAST_P = 1e-4
NAMES = sorted(n for n in dir(torch.nn.init) if n.endswith("_") and n[0] != "_")


def spread(name: str, **options: Any) -> Any:
    """The distribution that PyTorch fills a weight of SHAPE with, by its standard deviation."""
    w = getattr(torch.nn.init, name)(torch.empty(SHAPE), **options)
    std = float(w.std())
    return stats.norm(0, std) if "normal" in name else stats.uniform(-float(w.abs().max()), 2 * float(w.abs().max()))


def test_all_names_and_parameters_of_pytorch() -> None:
    assert {*NAMES, "calculate_gain"} == {*nn.init.__all__}
    for name in nn.init.__all__:
        ours, theirs = (
            inspect.signature(getattr(space, name)).parameters.values() for space in (nn.init, torch.nn.init)
        )
        assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in theirs], name


def test_gains() -> None:
    for name in ("linear", "conv1d", "conv2d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert nn.init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name), rel=1e-12)
    assert nn.init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("xavier_uniform_", {"gain": 2.0}), ("xavier_normal_", {}), ("kaiming_uniform_", {"a": 5**0.5}),
        ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "relu"}), ("kaiming_normal_", {}),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "tanh"}),
        ("uniform_", {"a": -0.5, "b": 0.5}), ("normal_", {"std": 2.0}),
    ],
)  # fmt: skip
def test_distributions(name: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    law = spread(name, **options)
    w = Tensor.zeros(*SHAPE, requires_grad=True)
    assert getattr(nn.init, name)(w, **options, generator=Generator().manual_seed(1)) is w and w.requires_grad
    x = w.numpy().ravel()
    assert abs(x.std() / law.std() - 1) < 0.03
    assert (
        stats.kstest(
            x / x.std(), (stats.norm(0, 1) if "normal" in name else stats.uniform(-(3**0.5), 2 * 3**0.5)).cdf
        ).pvalue
        > LEAST_P
    )


def test_truncated_normal() -> None:
    for mean, std, a, b in ((0.0, 1.0, -2.0, 2.0), (1.0, 0.5, 0.0, 1.25)):
        w = nn.init.trunc_normal_(Tensor.zeros(9000), mean, std, a, b, Generator().manual_seed(2))
        law = stats.truncnorm((a - mean) / std, (b - mean) / std, mean, std)
        assert stats.kstest(w.numpy(), law.cdf).pvalue > LEAST_P
    half = nn.init.trunc_normal_(Tensor.zeros(999, dtype="float16"))
    assert half.dtype.name == "float16" and bool((half.abs() <= 2).all().item())


@pytest.mark.sweep
@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 2, 3), (2, 3, 2, 2), (1, 4), (0, 3)])
def test_orthogonal_rows_or_columns(shape: tuple[int, ...]) -> None:
    w = nn.init.orthogonal_(Tensor.zeros(*shape), gain=2.0).numpy().reshape(shape[0], int(np.prod(shape[1:])))
    small = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_orthogonal_matrices_are_uniform() -> None:
    """The angle of a random rotation or reflection is uniform."""
    g = Generator().manual_seed(3)
    ws = [nn.init.orthogonal_(Tensor.zeros(2, 2), generator=g).numpy() for _ in range(500)]
    angles = [np.arctan2(w[1, 0], w[0, 0]) for w in ws]
    assert stats.kstest(angles, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > LEAST_P
    assert stats.binomtest(sum(np.linalg.det(w) > 0 for w in ws), 500).pvalue > LEAST_P


@pytest.mark.parametrize(
    ("shape", "groups"), [((4, 3, 3), 1), ((6, 2, 3), 3), ((3, 5, 2, 3), 1), ((4, 4, 3, 3, 3), 2), ((2, 3, 4), 2)]
)
def test_dirac_beside_pytorch(shape: tuple[int, ...], groups: int) -> None:
    expected = torch.nn.init.dirac_(torch.ones(shape), groups).numpy()
    assert (nn.init.dirac_(Tensor.ones(*shape), groups).numpy() == expected).all()


def test_constants_beside_pytorch() -> None:
    for dtype in ("float32", "float16", "int32"):
        for name, args in (("eye_", ()), ("ones_", ()), ("zeros_", ()), ("constant_", (3,))):
            expected = getattr(torch.nn.init, name)(torch.full((3, 4), 7, dtype=getattr(torch, dtype)), *args)
            got = getattr(nn.init, name)(Tensor.full((3, 4), 7, dtype=dtype), *args)
            assert got.dtype.name == dtype and got.tolist() == expected.tolist()


def test_sparse_columns() -> None:
    w = nn.init.sparse_(Tensor.ones(50, 400), 0.31, std=2.0, generator=Generator().manual_seed(4)).numpy()
    assert ((w == 0).sum(0) == 16).all()
    assert stats.kstest(w[w != 0], stats.norm(0, 2).cdf).pvalue > LEAST_P
    assert stats.chisquare((w == 0).sum(1)).pvalue > LEAST_P
    assert len({tuple(c) for c in (w == 0).T}) > 390
    assert (nn.init.sparse_(Tensor.ones(3, 2), 1.0) == 0).all().item()


# ---- in place --------------------------------------------------------------------------------------------------------
def fills(t: Tensor, name: str, g: Generator | None) -> Tensor:
    more = {"sparse_": (0.5,)}.get(name, ())
    made: Tensor = getattr(nn.init, name)(t, *more, **({} if name == "eye_" else {"generator": g}))
    return made


FILLS = (
    "uniform_", "normal_", "trunc_normal_", "xavier_normal_", "kaiming_uniform_", "orthogonal_", "sparse_", "eye_",
)  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", FILLS)
def test_values_go_to_parameters_views_and_several_devices(name: str) -> None:
    layer = nn.Linear(4, 6)
    weight = layer.weight
    expected = fills(weight, name, Generator().manual_seed(5)).tolist()
    assert layer.weight is weight and weight.requires_grad
    layer(Tensor.ones(2, 4)).sum().backward()
    assert weight.grad is not None and weight.grad.shape == (6, 4)
    base = Tensor.zeros(3, 6, 4)
    fills(base[1], name, Generator().manual_seed(5))
    assert base[1].tolist() == expected and base[0].abs().sum().item() == base[2].abs().sum().item() == 0.0
    many = Tensor.zeros(6, 4).shard(("cpu", "cpu:1"))
    assert fills(many, name, Generator().manual_seed(5)).tolist() == expected and many.shard_axis == 0


def test_values_in_a_captured_step() -> None:
    w = Tensor.zeros(4, 4).realize()
    step = jit(lambda: nn.init.sparse_(w, 0.5) * 1)
    numbers = [step().tolist() for _ in range(3)]
    assert numbers[0] != numbers[1] != numbers[2] and w.tolist() == numbers[2]
    with pytest.raises(JitError, match="orthogonal_"):
        jit(lambda: nn.init.orthogonal_(w))()


# ---- errors ----------------------------------------------------------------------------------------------------------
REFUSED: list[tuple[Callable[[], Any], type[MonolectError], str]] = [
    (lambda: nn.init.calculate_gain("gelu"), ArgumentError, "nonlinearity"),
    (lambda: nn.init.calculate_gain("leaky_relu", True), ArgumentError, "slope"),
    (lambda: nn.init.xavier_uniform_(Tensor.zeros(3)), ShapeError, "xavier_uniform_"),
    (lambda: nn.init.kaiming_normal_(Tensor.zeros(3)), ShapeError, "kaiming_normal_"),
    (lambda: nn.init.kaiming_normal_(Tensor.zeros(3, 2), mode="in"), ArgumentError, "mode"),
    (lambda: nn.init.eye_(Tensor.zeros(3)), ShapeError, "eye_"),
    (lambda: nn.init.dirac_(Tensor.zeros(3, 3)), ShapeError, "dirac_"),
    (lambda: nn.init.dirac_(Tensor.zeros(3, 3, 3), 2), ArgumentError, "groups"),
    (lambda: nn.init.orthogonal_(Tensor.zeros(3)), ShapeError, "orthogonal_"),
    (lambda: nn.init.orthogonal_(Tensor.zeros(3, 3, dtype="int32")), DTypeError, "orthogonal_"),
    (lambda: nn.init.sparse_(Tensor.zeros(3), 0.5), ShapeError, "sparse_"),
    (lambda: nn.init.sparse_(Tensor.zeros(3, 3), 1.5), ArgumentError, "sparsity"),
    (lambda: nn.init.trunc_normal_(Tensor.zeros(3), a=1.0, b=0.0), ArgumentError, "range"),
    (lambda: nn.init.trunc_normal_(Tensor.zeros(3), std=0.0), ArgumentError, "std"),
    (lambda: nn.init.normal_(Tensor.zeros(3, dtype="int32")), DTypeError, "normal_"),
]


@pytest.mark.parametrize(("use", "error", "text"), REFUSED)
def test_what_is_refused(use: Callable[[], Any], error: type[MonolectError], text: str) -> None:
    with pytest.raises(error, match=text):
        use()
