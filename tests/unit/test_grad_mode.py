"""Blocks without gradients: values and gradients are PyTorch's, plain and captured."""

from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import GradientError, Tensor, enable_grad, function, inference_mode, is_grad_enabled, jit, nn, no_grad
from monolect import set_grad_enabled as set_grad
from monolect.ir.uop import toposort
from monolect.runtime.realize import execute

# What is computed without gradients, by names that both libraries have.
PARTS: dict[str, Any] = {
    "product": lambda w: w * 2.0,
    "itself": lambda w: w * 1,
    "element": lambda w: w[1],
    "slice": lambda w: w[1:],
    "view": lambda w: w.reshape(2, 2).permute(1, 0),
    "reduction": lambda w: w.sum(),
    "of a detached one": lambda w: w.detach() * 3,
    "chain": lambda w: (w * w).exp().softmax(0)[1:] + w[0],
    "gather": lambda w: w[[0, 2]],
    "with a gradient inside": lambda w: _inside(w),
}


def _inside(w: Any) -> Any:
    module: Any = torch if isinstance(w, torch.Tensor) else monolect
    with module.enable_grad():
        y = w * 5.0
    return y + w * 7.0  # the second part has no graph, nor has the sum


def leaf(torch_: bool) -> Any:
    values = [1.0, 2.0, -1.0, 0.5]
    return torch.tensor(values, requires_grad=True) if torch_ else Tensor(values, requires_grad=True)


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["plain", "captured"])
@pytest.mark.parametrize("name", PARTS)
def test_no_gradient_flows_through_what_was_computed_without(name: str, wrap: Any) -> None:
    found = []
    for torch_ in (False, True):
        w = leaf(torch_)
        module: Any = torch if torch_ else monolect

        def step(x: Any, w: Any = w, module: Any = module) -> Any:
            with module.no_grad():
                part = PARTS[name](w)
            loss = (part.sum() * w * x).sum()
            loss.backward()
            return loss

        call = step if torch_ else wrap(step)
        for _ in range(3):
            w.grad = None
            loss = call(torch.tensor(2.0) if torch_ else Tensor(2.0))
        found.append([loss.item(), *w.grad.tolist()])
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_a_result_has_no_graph() -> None:
    w = leaf(False)
    with no_grad():
        y = (w * w).sum()
    with pytest.raises(GradientError, match="reaches no leaf"):
        y.backward()


def test_a_leaf_is_written_to_in_place() -> None:
    w = leaf(False)
    (w * w).sum().backward()
    with no_grad():
        w -= w.grad * 0.25
    assert w.tolist() == [0.5, 1.0, -0.5, 0.25] and w.requires_grad
    w.grad = None
    (w * w).sum().backward()
    assert w.grad.tolist() == [1.0, 2.0, -1.0, 0.5]
    with pytest.raises(GradientError):
        w -= 1.0


def test_a_view_made_without_a_graph_is_written_to() -> None:
    base = Tensor([1.0, 2.0, 3.0])
    with no_grad():
        part = base[1:]
        part += 1.0
    part *= 2.0
    assert base.tolist() == [1.0, 6.0, 8.0]


def test_modes_are_blocks_decorators_and_calls() -> None:
    @no_grad()
    def off() -> bool:
        return is_grad_enabled()

    @no_grad
    def bare() -> bool:
        return is_grad_enabled()

    @inference_mode
    def inferred() -> bool:
        return is_grad_enabled()

    @set_grad(False)
    def set_off() -> bool:
        return is_grad_enabled()

    assert [off(), bare(), inferred(), set_off(), is_grad_enabled()] == [False, False, False, False, True]
    with no_grad():
        with enable_grad():
            assert is_grad_enabled()
        with inference_mode(False):
            assert is_grad_enabled()
        with set_grad(True):
            assert is_grad_enabled()
        assert not is_grad_enabled()
    set_grad(False)
    assert not is_grad_enabled()
    set_grad(True)
    mode = no_grad()
    with mode, mode:
        assert not is_grad_enabled()
    with pytest.raises(ValueError), no_grad():
        raise ValueError
    assert is_grad_enabled()


def test_a_captured_step_depends_on_the_mode() -> None:
    w = leaf(False)
    step = jit(lambda x: (w * x).sum())
    for _ in range(2):
        with no_grad():
            a = step(Tensor(2.0))
        b = step(Tensor(2.0))
        assert a.item() == b.item() == 5.0
    assert len(step.captures) == 2


def test_a_function_with_a_trace_depends_on_the_mode() -> None:
    w = leaf(False)
    f = function(lambda x: x * x)
    for _ in range(2):
        with no_grad():
            y = f(w)
        w.grad = None
        (y * w).sum().backward()
        assert w.grad.tolist() == [1.0, 4.0, 1.0, 0.25]
        w.grad = None
        f(w).sum().backward()
        assert w.grad.tolist() == [2.0, 4.0, -2.0, 1.0]


def test_a_model_is_evaluated_and_trained_in_turn() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = monolect.optim.SGD(model.parameters(), lr=0.1)
    x = Tensor(np.ones((2, 3), np.float32))
    evaluate = jit(no_grad()(lambda x: model(x).sum()))

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(4):
        before = model(x).sum().item()
        assert abs(evaluate(x).item() - before) < 1e-6
        step(x)
    assert len(step.captures) == len(evaluate.captures) == 1


def test_a_decorated_set_grad_enabled_leaves_the_mode_of_its_caller() -> None:
    f = set_grad(True)(is_grad_enabled)
    with no_grad():
        assert [f(), is_grad_enabled(), f(), is_grad_enabled()] == [True, False, True, False]
        with set_grad(True):
            assert is_grad_enabled()
        assert not is_grad_enabled()
    assert is_grad_enabled()


def test_the_body_of_a_decorated_generator_runs_in_the_mode() -> None:
    def made(mode: Any, seen: Any) -> list[Any]:
        def body(first: int) -> Any:
            out = [seen()]
            try:
                got = yield first
                out.append((got, seen()))
                try:
                    yield got
                except ValueError:
                    out.append(("thrown", seen()))
                yield 3
            finally:
                out.append(("closed", seen()))
                results.append(out)

        results: list[Any] = []
        g = mode()(body)(1)
        steps = [next(g), seen(), g.send(2), seen(), g.throw(ValueError()), seen()]
        g.close()
        h = mode()(body)(5)
        return [steps, results, list(h)]

    found = made(no_grad, is_grad_enabled)
    assert found == made(torch.no_grad, torch.is_grad_enabled)
    assert is_grad_enabled()


def test_a_parameter_that_is_written_without_grad_is_no_other_value() -> None:
    """Equal expressions are one node: what equals the value of a parameter passes no gradient to it."""

    def gradients(lib: Any) -> list[Any]:
        x = lib.tensor([0.5, -1.0, 2.0])
        uses = (
            lambda a: a.detach(),
            lambda a: (a * 1).detach(),
            lambda a: a.detach() * 1,
            lambda a: a.detach().reshape(3, 1)[:, 0],
        )
        out = []
        for use in uses:
            a = lib.ones(3, requires_grad=True)
            with lib.no_grad():
                a.sub_(x * 0.5)
            (a * use(a)).sum().backward()
            out.append(a.grad.tolist())
        a, b = lib.ones(3, requires_grad=True), lib.ones(3, requires_grad=True)
        with lib.no_grad():
            a.copy_(x * 2)
            b.copy_(x * 2)
            c = x * 2
        (a.sum() + 2 * b.sum() + (a * c * (x * 2).detach()).sum()).backward()
        return [*out, a.grad.tolist(), b.grad.tolist()]

    assert gradients(monolect) == gradients(torch)


@pytest.mark.parametrize("writes", [None, "subtract", "copy"])
def test_what_was_computed_while_a_leaf_was_frozen_stays_apart(writes: str | None) -> None:
    def gradients(lib: Any) -> list[Any]:
        w, x = lib.tensor([1.0, 2.0, 3.0]), lib.tensor([0.5, -1.0, 2.0])
        out = []
        for i in range(7):
            before = (w * x).sum()
            w.requires_grad_(i % 2 == 0)
            loss = (w * x).square().sum() + before
            if i % 2 == 0:
                loss.backward()
                out.append(w.grad.tolist())
                w.grad = None
            with lib.no_grad():
                if writes == "subtract":
                    w -= 0.125
                elif writes == "copy":
                    w.copy_(x * 2)
        return out

    assert gradients(monolect) == gradients(torch)


def _set_data(p: Any, g: Any) -> None:
    p.data -= g * 0.05


UPDATES: dict[str, Any] = {
    "sub_": lambda p, g: p.sub_(g * 0.05),
    "add_": lambda p, g: p.add_(g, alpha=-0.05),
    "copy_": lambda p, g: p.copy_(p - 0.05 * (g + 0.1 * p)),
    "lerp_": lambda p, g: p.lerp_(p - g, 0.05),
    "two writes": lambda p, g: p.mul_(0.99).sub_(g * 0.05),
    "part by part": lambda p, g: [p[i : i + 2].sub_(g[i : i + 2] * 0.05) for i in (0, 2)],
    "data": _set_data,
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("read", ["before", "after", "never"])
def test_a_loop_that_updates_parameters_by_hand_has_programs_of_bounded_size(name: str, read: str) -> None:
    """The loss is read before or after the update, or only at the end. An average follows the parameters."""
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    losses: list[list[float]] = []
    for lib, make in ((monolect, Tensor), (torch, torch.tensor)):
        data: Any = make(x)
        p: Any = make(np.ones(4, np.float32))
        p.requires_grad_()
        mean: Any = make(np.zeros(4, np.float32))
        losses.append([])
        known = 0
        for k in range(24):
            loss = ((data @ p - 1) ** 2).mean()
            loss.backward()
            if read == "before":
                losses[-1].append(loss.item())
            with lib.no_grad():  # type: ignore[attr-defined]
                UPDATES[name](p, p.grad)
                mean.mul_(0.9).add_(p.detach() * 0.1)
            p.grad = None
            if read == "after" or (read == "never" and k == 23):
                losses[-1].append(loss.item())
            if lib is monolect:
                assert len(toposort(p.uop)) < 200
                known = len(execute.plans) if k < 12 else known
                assert len(execute.plans) == known or not 12 <= k < 23
        losses[-1] += mean.tolist() + p.tolist()
    np.testing.assert_allclose(*losses, rtol=1e-4)
