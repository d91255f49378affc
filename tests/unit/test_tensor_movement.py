"""Views, joins and paddings: values and gradients against PyTorch, errors, and that they compute nothing."""

from typing import Any

import numpy as np
import pytest
import torch

from monolect import Variable
from monolect.base.errors import ArgumentError, AxisError, DTypeError, ShapeError
from monolect.ir.uop import toposort
from monolect.tensor.tensor import Tensor
from tests.strategies import often

RNG = np.random.default_rng(1)
X = RNG.normal(size=(2, 3, 4)).astype(np.float32)
Y = RNG.normal(size=(2, 3, 4)).astype(np.float32)
V = RNG.normal(size=(7,)).astype(np.float32)
M = RNG.normal(size=(5, 6)).astype(np.float32)
F = torch.nn.functional


def pad(*a: Any, **k: Any) -> Any:
    return lambda t: t.pad(*a, **k) if isinstance(t, Tensor) else F.pad(t, *a, **k)


ONE: list[Any] = [
    ("reshape", lambda t: t.reshape(4, -1), X),
    ("view", lambda t: t.view(6, 4), X),
    ("flatten", lambda t: t.flatten(), X),
    ("flatten12", lambda t: t.flatten(1), X),
    ("unflatten", lambda t: t.unflatten(2, (2, -1)), X),
    ("permute", lambda t: t.permute(2, 0, 1), X),
    ("permute_neg", lambda t: t.permute(-1, 0, 1), X),
    ("transpose", lambda t: t.transpose(0, 2), X),
    ("T", lambda t: t.T, M),
    ("mT", lambda t: t.mT, X),
    ("swapaxes", lambda t: t.swapaxes(0, 1), X),
    ("movedim", lambda t: t.movedim((0, 1), (2, 0)), X),
    ("t", lambda t: t.t(), M),
    ("flip", lambda t: t.flip(0, 2), X),
    ("flip_list", lambda t: t.flip([1]), X),
    ("rot90", lambda t: t.rot90(1, (0, 1)), X),
    ("rot90x2", lambda t: t.rot90(2, (1, 2)), X),
    ("rot90x3", lambda t: t.rot90(3, (0, 2)), X),
    ("rot90neg", lambda t: t.rot90(-1, (0, 1)), X),
    ("roll", lambda t: t.roll(2), X),
    ("roll_axis", lambda t: t.roll(-1, 1), X),
    ("roll_axes", lambda t: t.roll((1, 5), (0, 2)), X),
    ("squeeze", lambda t: t.reshape(2, 1, 3, 1, 4).squeeze(), X),
    ("squeeze1", lambda t: t.reshape(2, 1, 3, 1, 4).squeeze(1), X),
    ("squeeze_not", lambda t: t.squeeze(0), X),
    ("unsqueeze", lambda t: t.unsqueeze(1).unsqueeze(-1), X),
    ("expand", lambda t: t.reshape(2, 3, 1, 4).expand(5, 2, -1, 3, 4), X),
    ("broadcast_to", lambda t: t.broadcast_to((3, 2, 3, 4)), X),
    ("repeat", lambda t: t.repeat(2, 1, 3), X),
    ("repeat_new", lambda t: t.repeat(2, 1, 1, 2), X),
    ("tile", lambda t: t.tile((2,)), X),
    ("interleave", lambda t: t.repeat_interleave(3, 1), X),
    ("interleave_flat", lambda t: t.repeat_interleave(2), X),
    ("narrow", lambda t: t.narrow(2, 1, 2), X),
    ("narrow_neg", lambda t: t.narrow(-1, -3, 2), X),
    ("diagonal", lambda t: t.diagonal(), M),
    ("diagonal+2", lambda t: t.diagonal(2), M),
    ("diagonal-3", lambda t: t.diagonal(-3), M),
    ("diagonal_batch", lambda t: t.diagonal(1, 0, 2), X),
    ("unfold", lambda t: t.unfold(0, 3, 2), V),
    ("unfold1", lambda t: t.unfold(-1, 2, 1), X),
    ("unfold_all", lambda t: t.unfold(1, 6, 1), M),
    ("tril", lambda t: t.tril(1), X),
    ("triu", lambda t: t.triu(-1), M),
    ("pad", pad((1, 2)), X),
    ("pad4", pad((1, 0, 2, 1), value=3.5), X),
    ("pad_cut", pad((-1, 2, 1, -2)), X),
    ("reflect", pad((2, 3), mode="reflect"), X),
    ("replicate", pad((2, 3), mode="replicate"), X),
    ("circular", pad((2, 3), mode="circular"), X),
    ("split", lambda t: t.split(2, 1)[1], X),
    ("sections", lambda t: t.split([1, 3], 2)[1], X),
    ("chunk", lambda t: t.chunk(3, 2)[1], X),
    ("unbind", lambda t: t.unbind(1)[2], X),
    ("iter", lambda t: list(t)[1], X),
    ("reshape_flip_pad", lambda t: pad((1, 1))(t.permute(2, 1, 0).reshape(4, 6).flip(1)).reshape(8, 4)[1:7], X),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "f", "x"), ONE, ids=[r[0] for r in ONE])
def test_view_and_its_gradient(name: str, f: Any, x: np.ndarray, both: Any) -> None:
    both(f, x)


JOINS: list[Any] = [
    ("cat", lambda a, b: a.cat(b, dim=1), lambda a, b: torch.cat([a, b], 1)),
    ("cat_list", lambda a, b: Tensor.cat([a, b, a], -1), lambda a, b: torch.cat([a, b, a], -1)),
    ("cat_same", lambda a, b: a.cat(a, dim=0), lambda a, b: torch.cat([a, a])),
    ("stack", lambda a, b: a.stack(b, dim=1), lambda a, b: torch.stack([a, b], 1)),
    ("stack_last", lambda a, b: Tensor.stack([a, b], -1), lambda a, b: torch.stack([a, b], -1)),
    ("cat_parts", lambda a, b: a[:, 1:].cat(b[:, :1], dim=1), lambda a, b: torch.cat([a[:, 1:], b[:, :1]], 1)),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "f", "g"), JOINS, ids=[r[0] for r in JOINS])
def test_join_and_its_gradient(name: str, f: Any, g: Any, both: Any) -> None:
    both(f, X, Y, g=g)


def test_cat_promotes_and_ignores_empty_parts() -> None:
    out = Tensor([1, 2]).cat(Tensor.zeros(0, dtype="int64"), Tensor([0.5]))
    assert out.dtype.name == "float32" and out.tolist() == [1.0, 2.0, 0.5]


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_meshgrid(indexing: str, check: Any) -> None:
    a, b = np.arange(3.0, dtype=np.float32), np.arange(4.0, dtype=np.float32)
    for x, y in zip(
        Tensor(a).meshgrid(Tensor(b), indexing=indexing),
        torch.meshgrid(torch.tensor(a), torch.tensor(b), indexing=indexing),
        strict=True,
    ):
        check(x, y)


def test_a_diagonal_outside_is_empty() -> None:
    assert Tensor(M).diagonal(9).tolist() == []


def test_pad_takes_pairs_for_each_axis() -> None:
    x = np.arange(6).reshape(2, 3)
    assert Tensor(x).pad(((1, 0), (0, 2)), value=9).tolist() == np.pad(x, ((1, 0), (0, 2)), constant_values=9).tolist()


def test_views_run_nothing() -> None:
    x = Tensor(X)
    y = x.permute(2, 0, 1).reshape(4, 6).pad((1, 1)).flip(0).expand(2, 4, 8)
    assert y.uop.op != "BUFFER" and x.uop in toposort(y.uop)
    assert not {"CONTIGUOUS", "STORE"} & {u.op for u in toposort(y.uop)}


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda x: x.reshape(5, 5), ShapeError, "24 elements"),
        (lambda x: x.reshape(-1, 5), ShapeError, "24 elements"),
        (lambda x: x.reshape(-1, -1), ShapeError, "-1"),
        (lambda x: x.permute(0, 1), AxisError, "each axis once"),
        (lambda x: x.permute(0, 1, 1), AxisError, "each axis once"),
        (lambda x: x.transpose(0, 3), AxisError, "axis 3"),
        (lambda x: x.unsqueeze(5), AxisError, "-4..3"),
        (lambda x: x.expand(2, 3, 5), ShapeError, "(2, 3, 5)"),
        (lambda x: x.expand(4), ShapeError, "fewer"),
        (lambda x: x.narrow(0, 1, 2), ShapeError, "leaves"),
        (lambda x: x.shrink_to(3, None, None), ShapeError, "leaves axis 0"),
        (lambda x: x.shrink((1, 0), None, None), ShapeError, "leaves axis 0"),
        (lambda x: x.shrink((-1, 1), None, None), ShapeError, "leaves axis 0"),
        (lambda x: x.shrink((0, 1)), ShapeError, "one item for each axis"),
        (lambda x: x.shrink((0, 1, 2), None, None), ShapeError, "a pair for each axis"),
        (lambda x: x.pad_to(1, None, None), ShapeError, "smaller than the axis"),
        (lambda x: x.pad_to(9), ShapeError, "one item for each axis"),
        (lambda x: x.split([1, 1], 1), ShapeError, "add up"),
        (lambda x: x.cat(x[:, :2], dim=0), ShapeError, "(2, 2, 4)"),
        (lambda x: x.cat(3), ArgumentError, "tensors"),
        (lambda x: x.stack(x[0]), ShapeError, "stack"),
        (lambda x: x.pad((1,)), ShapeError, "even"),
        (lambda x: x.pad((-3, -2)), ShapeError, "crops"),
        (lambda x: x.pad((9, 9), mode="reflect"), ShapeError, "reflect"),
        (lambda x: x.pad((1, 1), mode="mirror"), ArgumentError, "mirror"),
        (lambda x: x.unfold(0, 3), ArgumentError, "window"),
        (lambda x: x.flip(0, 0), AxisError, "twice"),
        (lambda x: x.repeat(2), ShapeError, "count for each"),
        (lambda x: x.t(), ShapeError, "2 axes"),
        (lambda x: x.diagonal(0, 1, 1), AxisError, "two axes"),
        (lambda x: x.expand(-1, 2, 3, 4), ShapeError, "new"),
        (lambda x: x.movedim(0, 9), AxisError, "axis 9"),
        (lambda x: x.reshape("a"), ArgumentError, "'a'"),
        (
            lambda x: x.view(dtype=1) if False else x.cat(Tensor.ones(2, 3, 4, dtype="bool").cast("no")),
            DTypeError,
            "no",
        ),
    ],
)
def test_errors(f: Any, error: type, text: str) -> None:
    with pytest.raises(error) as info:
        f(Tensor(X))
    assert text in str(info.value) and __file__ in str(info.value)


@pytest.mark.parametrize("shape", [(2, 3), (0, 3)])
@pytest.mark.parametrize("dim", [None, 1])
def test_a_negative_number_of_repeats_is_refused_also_of_nothing(shape, dim) -> None:
    with pytest.raises(ShapeError, match="negative"):
        Tensor(np.zeros(shape, np.float32)).repeat_interleave(-5, dim)


def test_a_diagonal_of_nothing():
    assert Tensor.zeros(0, 3, 4, 0).diagonal(0, 0, -2).numpy().shape == (3, 0, 0)
    assert Tensor.zeros(0, 3, 4).diagonal(5, 1, 2).numpy().shape == (0, 0)


def test_an_empty_axis_has_as_many_chunks_as_asked_for():
    assert [c.shape for c in Tensor.zeros(2, 0).chunk(3, 1)] == [(2, 0)] * 3


def test_one_shift_for_a_list_of_one_axis():
    assert Tensor([1, 2, 3]).roll(1, (0,)).tolist() == [3, 1, 2]


def test_axes_of_a_tensor_without_axes():
    x = Tensor(2.0)
    assert x.flatten(0, -1).shape == (1,) and x.argmax(-1).item() == 0
    for call in (lambda: x.flatten(2), lambda: x.argmax(1), lambda: x.argmin(-2)):
        with pytest.raises(AxisError):
            call()


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_widths_of_either_sign_are_those_of_torch(mode: str) -> None:
    """All are computed together: of up to three elements, in `make test-all` of up to four."""
    found: list[tuple[Tensor, list, tuple]] = []
    for n in range(1, often(4, 5)):
        x = np.arange(1, n + 1, dtype=np.float32)
        for before in range(-n - 1, n + 1):
            for after in range(-n - 1, n + 1):
                try:
                    expected = F.pad(torch.tensor(x)[None, None], (before, after), mode)[0, 0].tolist()
                except RuntimeError:
                    expected = []  # which PyTorch refuses in some modes
                if mode == "circular" and n + min(before, 0) + min(after, 0) < max(before, after):
                    expected = []  # PyTorch reads memory that is not its own
                try:
                    got = Tensor(x).pad((before, after), mode=mode)
                except ShapeError:
                    got = Tensor.zeros(0)
                found.append((got, expected, (n, before, after)))
    Tensor.realize(*(got for got, *_ in found))
    for got, expected, case in found:
        assert got.tolist() == expected, case


def test_repeated_axes_are_not_expanded_again() -> None:
    ones = Tensor([[1.0], [2.0]])
    wrong: list[tuple[Tensor, tuple[int, ...]]] = [
        (Tensor.ones(3), (5,)),
        (Tensor.zeros(4, 3), (4, 1)),
        (ones.expand(2, 3), (2, 5)),
        (Tensor.ones(2, 2), (2, 0)),
        (ones.expand(2, 3).permute(1, 0).expand(4, 3, 2).permute(0, 2, 1), (4, 2, 1)),
    ]
    for t, to in wrong:
        for method in (t.expand, t.broadcast_to):
            with pytest.raises(ShapeError):
                method(to)
    assert ones.expand(2, 3).expand(4, 2, 3).tolist() == [[[1.0] * 3, [2.0] * 3]] * 4
    assert Tensor.ones(1).expand(3).expand(3).tolist() == [1.0] * 3


def test_bytes_as_bools_are_true_unless_they_are_zero() -> None:
    for device in ("cpu", "c", "python"):
        t = Tensor(np.array([0, 1, 2, 255], np.uint8), device=device).bitcast("bool")
        assert t.tolist() == [False, True, True, True] and t.int().tolist() == [0, 1, 1, 1]
        assert t.bitcast("uint8").tolist() == [0, 1, 1, 1] and (~t).tolist() == [True, False, False, False]
        wide = Tensor(np.array([0x0100, 2], np.int16), device=device).bitcast("bool")
        assert wide.tolist() == torch.tensor([0x0100, 2], dtype=torch.int16).view(torch.bool).tolist()
        assert wide.bitcast("int16").tolist() == [0x0100, 1]


def test_shrink_and_pad_to_sizes() -> None:
    a = np.arange(12.0).reshape(3, 4)
    x = Tensor(a)
    assert x.shrink((1, 3), (0, 2)).tolist() == x.shrink(((1, 3), (0, 2))).tolist() == a[1:3, :2].tolist()
    assert x.shrink(None, (1, 4)).tolist() == a[:, 1:].tolist()
    assert x.shrink_to(2, None).tolist() == x.shrink_to((2, 4)).tolist() == a[:2].tolist()
    assert x.pad_to(None, 6).tolist() == np.pad(a, ((0, 0), (0, 2))).tolist()
    row = Tensor(a[0])
    assert row.shrink((1, 3)).tolist() == row.shrink(((1, 3),)).tolist() == [1.0, 2.0]
    assert row.shrink_to(2).tolist() == [0.0, 1.0] and row.pad_to(5).tolist() == [0.0, 1.0, 2.0, 3.0, 0.0]
    assert Tensor(True).reshape(1).pad_to(2).tolist() == [True, False]
    part = x.shrink(None, (1, 3))
    part[0, 0] = 50.0
    assert x[0, 1].item() == 50.0, "a view"


def test_shrink_and_pad_to_symbolic_sizes() -> None:
    n = Variable("n_kept", 1, 4)
    x = Tensor(np.arange(4.0), requires_grad=True)
    for k in (1, 3, 4):
        with n.bind(k):
            kept = x.shrink_to(n)
            np.testing.assert_array_equal(kept.pad_to(4).numpy(), np.where(np.arange(4) < k, np.arange(4), 0))
            np.testing.assert_array_equal(x.shrink((0, n)).numpy(), np.arange(k))
    with n.bind(2), pytest.raises(ShapeError, match="leaves axis 0"):
        x.shrink_to(n + 1)
    (x.shrink_to(2).pad_to(3) * Tensor([1.0, 2.0, 3.0]).double()).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 2.0, 0.0, 0.0]


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_an_empty_axis_may_be_padded_by_nothing(mode: str) -> None:
    assert Tensor.zeros(0, 3).pad((1, 1, 0, 0), mode=mode).shape == (0, 5)
    with pytest.raises(ShapeError):
        Tensor.zeros(0).pad((1, 0), mode=mode)
