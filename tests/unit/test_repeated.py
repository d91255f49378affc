"""Gradients that come from a recorded body are those of the backward walk: the same nodes once the body is inlined.

Each program runs several times, from other data, with other numbers and offsets.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monolect
from monolect import Tensor, nn
from monolect.autograd import repeated
from monolect.autograd.gradient import gradients
from monolect.ir.uop import build, toposort
from monolect.schedule.callify import resolve_functions
from tests.strategies import often

RUNS = 5
Draw = random.Random


@pytest.fixture(autouse=True)
def forgotten() -> None:
    repeated._programs.clear()


def data(draw: Draw, *shape: int) -> np.ndarray:
    return np.random.default_rng(draw.randrange(2**32)).standard_normal(shape).astype(np.float32)


# Each takes a source of random numbers, the data x (4, 6) and the leaves w (6, 6), v (6,), and returns a loss.
PROGRAMS: dict[str, Callable[..., Tensor]] = {
    "a product": lambda draw, x, w, v: (x @ w).square().sum(),
    "tanh and softmax": lambda draw, x, w, v: ((x @ w).tanh() @ w).softmax(-1).log().mean(),
    "a row": lambda draw, x, w, v: (x @ w)[draw.randrange(4)].exp().sum(),
    "elements of rows": lambda draw, x, w, v: sum((x @ w).softmax(-1)[i, draw.randrange(6)].log() for i in range(4)),
    "numbers": lambda draw, x, w, v: ((x * draw.random()) @ w + draw.random()).pow(2.0).sum() * draw.uniform(-2, 2),
    "powers": lambda draw, x, w, v: ((x @ w).square() + 1).pow(draw.uniform(0.5, 3)).mean(),
    "a slice": lambda draw, x, w, v: (x @ w)[:, (k := draw.randrange(3)) : k + 3].square().sum(),
    "two parts that overlap": lambda draw, x, w, v: ((x @ w)[:2] * (x @ w)[(k := draw.randrange(3)) : k + 2]).sum(),
    "a concatenation": lambda draw, x, w, v: Tensor.cat(x @ w, x * v, dim=1).tanh().sum(),
    "cross entropy": lambda draw, x, w, v: (x @ w + v).cross_entropy(Tensor([draw.randrange(6) for _ in range(4)])),
    "layer norm": lambda draw, x, w, v: (x @ w).layer_norm((6,), v, v).square().sum(),
    "maxima": lambda draw, x, w, v: (x @ w).max(1)[0].sum() + (x @ w).relu().sum() * draw.random(),
    "a clamp": lambda draw, x, w, v: (x @ w).clamp(-draw.random(), draw.random()).sum(),
    "a choice": lambda draw, x, w, v: (x > draw.random()).where(x @ w, v * draw.random()).sum(),
    "a leaf by itself": lambda draw, x, w, v: (w * x.sum()).sum() + v.sum(),
    "attention": lambda draw, x, w, v: (x @ w).scaled_dot_product_attention(x, x @ w).square().sum(),
    "a loss that is divided": lambda draw, x, w, v: (x @ w).square().sum() / draw.randrange(2, 9),
    "a running sum": lambda draw, x, w, v: ((x @ w).cumsum(1) * v).sum(),
    "values in rows": lambda draw, x, w, v: (x @ w).gather(1, Tensor([[draw.randrange(6)] for _ in range(4)])).sum(),
    "embedding": lambda draw, x, w, v: w[Tensor([draw.randrange(6) for _ in range(5)])].square().sum(),
    "a flip": lambda draw, x, w, v: ((x @ w).flip(1) * (x @ w).roll(draw.randrange(3), 1)).sum(),
    "a pad": lambda draw, x, w, v: (x @ w).pad(((k := draw.randrange(3)), 3 - k)).tanh().sum(),
    "a value that is detached": lambda draw, x, w, v: ((x @ w) * (x @ w).detach().exp()).sum() * draw.random(),
    "a value that was computed": lambda draw, x, w, v: computed((x @ w).softmax(-1)).log()[draw.randrange(4)].sum(),
    "double precision": lambda draw, x, w, v: (x.double() @ w.double() * draw.random()).sum(),
    "half precision": lambda draw, x, w, v: (x.half() @ w.half()).float().square().mean() * draw.random(),
    "a draw": lambda draw, x, w, v: ((x @ w).dropout(0.5) * draw.random()).sum(),
}


def computed(t: Tensor) -> Tensor:
    t.detach().numpy()
    return t


def leaves(draw: Draw) -> tuple[Tensor, Tensor]:
    return tuple(Tensor(data(draw, *shape)).realize().requires_grad_() for shape in ((6, 6), (6,)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_inlined_body_is_the_graph_of_the_backward_walk(name: str, start: int) -> None:
    draw = Draw(start)
    w, v = leaves(draw)
    for _ in range(RUNS):
        loss = PROGRAMS[name](draw, Tensor(data(draw, 4, 6)), w, v)
        one = monolect.ones((), dtype=loss.dtype)._uop
        nodes = [w._uop, v._uop]
        want = gradients(loss._uop, one, nodes, cut=True)
        found = repeated.leaf_gradients(loss._uop, one, nodes, may_repeat=True)
        for leaf, d in want.items():
            got = found.get(leaf)
            assert (got is None) == (d is None)
            if got is None:
                continue
            (inlined,) = resolve_functions([got])
            if inlined is not d:
                a, b = Tensor._wrap(build("DETACH", inlined)).numpy(), Tensor._wrap(build("DETACH", d)).numpy()
                np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


REPEATED = (
    "a product", "tanh and softmax", "a row", "elements of rows", "numbers", "a slice", "a concatenation",
    "a value that was computed", "a loss that is divided", "maxima", "attention", "half precision",
)  # fmt: skip


@pytest.mark.parametrize("name", REPEATED)
def test_an_equal_graph_is_not_walked_again(name: str, start: int) -> None:
    """Once the numbers that differ were seen to differ."""
    draw = Draw(start)
    w, v = leaves(draw)
    for k in range(30):
        PROGRAMS[name](draw, Tensor(data(draw, 4, 6)), w, v).backward()
        is_repeated = any(u.op == "FUNCTION" for u in toposort(w.grad._uop))
        assert is_repeated or k < 29
        w.grad = v.grad = None


def test_what_a_derivative_holds_is_a_part_of_the_key(start: int) -> None:
    """Two slopes make graphs of equal structure whose derivatives differ."""
    w = Tensor(data(Draw(start), 6)).realize().requires_grad_()
    for slope in (0.5, 0.5, 0.25, 0.25, 0.75, 0.5):
        w.grad = None
        monolect.nn.functional.leaky_relu(w, slope).sum().backward()
        np.testing.assert_array_equal(w.grad.numpy(), np.where(w.numpy() > 0, 1, slope).astype(np.float32))


def test_other_leaves_are_another_program(start: int) -> None:
    draw = Draw(start)
    w, v = leaves(draw)
    for asks in ([w, v], [w, v], [w, v], [v], [v], [v], [w], [w]):
        w.grad = v.grad = None
        ((Tensor(data(draw, 4, 6)) @ w).tanh() * v).sum().backward(inputs=asks)
        for t in (w, v):
            assert (t.grad is not None) == any(t is a for a in asks)
            assert t.grad is None or np.isfinite(t.grad.numpy()).all()


def test_a_graph_that_was_released_is_refused_each_time(start: int) -> None:
    draw = Draw(start)
    w, v = leaves(draw)
    for _ in range(RUNS):
        loss = ((Tensor(data(draw, 4, 6)) @ w) * v).sum()
        loss.backward()
        with pytest.raises(monolect.GradientError):
            loss.backward()


def test_a_second_derivative_is_that_of_the_walk(start: int) -> None:
    draw = Draw(start)
    w, _ = leaves(draw)
    for _ in range(RUNS):
        w.grad = None
        x = Tensor(data(draw, 4, 6))
        (x @ w).tanh().sum().backward(create_graph=True)
        first = w.grad
        w.grad = None
        first.square().sum().backward()
        t = np.tanh((x.numpy() @ w.numpy()).astype(np.float64))
        g = x.numpy().T @ (1 - t**2)
        np.testing.assert_allclose(first.numpy(), g, rtol=1e-4, atol=1e-5)
        want = x.numpy().T @ (-2 * t * (1 - t**2) * (x.numpy() @ (2 * g)))
        np.testing.assert_allclose(w.grad.numpy(), want, rtol=1e-3, atol=1e-4)


def steps(draw: Draw, seed: int, name: str, optimizer: str, has_records: bool, patch: Any) -> list[np.ndarray]:
    """The weights after each of some steps of training by a random program."""
    patch.setattr(repeated, "_repeated", repeated._repeated if has_records else lambda *args: None)
    draw = Draw(seed)
    w, v = leaves(draw)
    made = getattr(nn.optim, optimizer)([w, v], lr=0.01)
    monolect.manual_seed(seed)
    out = []
    for k in range(6):
        made.zero_grad()
        for _ in range(1 + draw.randrange(2)):  # gradients add up
            loss = PROGRAMS[name](draw, Tensor(data(draw, 4, 6)), w, v)
            loss.backward()
        if draw.random() < 0.3:
            nn.utils.clip_grad_norm_([w, v], draw.random())
        made.step()
        if k % 2:
            out += [loss.detach().numpy()]
        out += [w.detach().numpy().copy(), v.detach().numpy().copy()]
    return out


@pytest.mark.sweep
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n != "a leaf by itself"])
def test_training_is_that_of_the_backward_walk(name: str, optimizer: str, start: int, monkeypatch: Any) -> None:
    for seed in range(start, start + often(1, 10)):
        with monkeypatch.context() as patch:
            want = steps(Draw(seed), seed, name, optimizer, False, patch)
        with monkeypatch.context() as patch:
            got = steps(Draw(seed), seed, name, optimizer, True, patch)
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5, equal_nan=True)
