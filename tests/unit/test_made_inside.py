"""Tensors that a step makes and assigns to are no state where nobody keeps them: it is captured at its first call."""

from unittest.mock import Mock

import numpy as np
import pytest

from monolect import Tensor, function, jit, nn
from monolect.tensor.tree import flatten


def a_part(x):
    b = Tensor.ones(2, 12).clone()
    b[:, :8] = x[:, :8]
    return b * 2


def a_part_returned(x):
    b = Tensor.ones(2, 12).clone()
    b[:, :8] = x[:, :8]
    return b


def whole(x):
    b = Tensor.zeros(5)
    b.assign(x[0, :5])
    return {"twice": b * 2, "once": [b, b]}


def views(x):
    b = Tensor.zeros(2, 9)
    b[:, 3:] += x[:, 3:]
    b[0] = 7
    return b.T, b[1]


def computed(x):
    b = Tensor.zeros(2, 8).realize()
    b[:] = x[:, :8]
    return b.assign(b * 2)


def descent(x):
    p = x.clone().requires_grad_()
    for _ in range(2):
        p.grad = None
        ((p - 1) ** 2).sum().backward()
        p.assign(p - 0.1 * p.grad)
    return p


def descent_summed(x):
    p = descent(x)
    return (p * 2).sum(), p.grad


def by_an_optimizer(x):
    p = x.clone().requires_grad_()
    optimizer = nn.optim.SGD([p], lr=0.1)
    ((p - 1) ** 2).sum().backward()
    optimizer.step()
    return p + 0


def in_a_function(x):
    return function(a_part)(x) + 1


def in_another(x):
    return jit(a_part)(x) + 1


STEPS = (
    a_part,
    a_part_returned,
    whole,
    views,
    computed,
    descent,
    descent_summed,
    by_an_optimizer,
    in_a_function,
    in_another,
)


def inputs(n: int) -> list[np.ndarray]:
    return list(np.random.default_rng(0).standard_normal((n, 2, 9)).astype(np.float32))


def arrays(result) -> list[np.ndarray]:
    tensors: list[Tensor] = []
    flatten(result, tensors)
    return [t.numpy() for t in tensors]


def same(found, wanted) -> None:
    for f, w in zip(found, arrays(wanted), strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-6, atol=1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize("f", STEPS, ids=lambda f: f.__name__)
def test_a_step_that_assigns_to_what_it_makes_is_captured_at_its_first_call(f) -> None:
    step = jit(f)
    kept = []
    for x in inputs(5):
        kept.append((step(Tensor(x)), f(Tensor(x))))
        assert len(step.captures) == 1
    (captured,) = step.captures.values()
    assert not captured.capture.in_place and not captured.capture.moves
    for result, wanted in kept:  # of earlier calls, too
        same(arrays(result), wanted)


@pytest.mark.parametrize("f", [a_part, descent_summed], ids=lambda f: f.__name__)
def test_such_a_step_in_a_file(f, tmp_path) -> None:
    step, (x, y) = jit(f), inputs(2)
    step(Tensor(x))
    step.save(tmp_path / "step")
    loaded = jit.load(tmp_path / "step")
    assert not loaded.tensors
    same(arrays(loaded(Tensor(y))), f(Tensor(y)))


class Counter:
    def __init__(self) -> None:
        self.n = Tensor([0.0]).realize()

    @jit
    def step(self, x):
        self.n.assign(self.n + 1)
        b = Tensor.zeros(9)
        b[2:4] = x[0, 2:4]
        return b * self.n


def test_in_a_method_beside_state() -> None:
    one, two = Counter(), Counter()
    for k, x in enumerate(inputs(4)):
        found = one.step(Tensor(x)).numpy()
        np.testing.assert_allclose(found[2:4], x[0, 2:4] * (k + 1), rtol=1e-6)
        assert not found[:2].any() and len(one.step.captures) == 1
    assert one.n.item() == 4.0 and two.n.item() == 0.0


def test_what_is_kept_outside_is_what_the_last_run_made() -> None:
    kept = []

    def f(x):
        b = Tensor.zeros(3)
        b[:2] = x[0, :2]
        kept.append(b)
        return b + 1

    step = jit(f)
    for x in inputs(2):
        same(arrays(step(Tensor(x))), Tensor([*x[0, :2], 0.0]) + 1)
        np.testing.assert_allclose(kept[-1].numpy(), [*x[0, :2], 0.0])


def test_a_function_that_assigns_to_what_it_makes_is_traced_once() -> None:
    note = Mock()  # of another library: what it holds is no part of the key

    @function
    def f(x):
        note()
        b = Tensor.zeros(5)
        b.assign(x[0, :5])
        return b

    for x in inputs(3):
        np.testing.assert_allclose(f(Tensor(x)).numpy(), x[0, :5])
    assert len(note.mock_calls) == 1
