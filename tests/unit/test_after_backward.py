"""What a loss keeps after `backward`: its value alone, unless the graph is to be retained."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from monolect import Tensor, jit, nn
from monolect.backend.common.host.memory import stats
from monolect.base.errors import GradientError
from monolect.ir.uop import live_nodes
from monolect.tensor.tensor import leaf_nodes


def step_of(size: int, n_layers: int = 2) -> Callable[[Tensor], Tensor]:
    model = nn.Sequential(*(nn.Linear(size, size) for _ in range(n_layers))).realize()
    optimizer = nn.optim.SGD(model.parameters(), lr=0.01)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean().backward()
        optimizer.step()
        return loss

    return step


KEPT: dict[str, Callable[[Tensor], Any]] = {
    "loss": lambda t: t,
    "detached": lambda t: t.detach(),
    "realized": lambda t: t.realize(),
    "read": lambda t: (t.item(), t),
    "scaled": lambda t: (t * 2).realize(),
    "copied": lambda t: t.detach().clone().realize(),
}


@pytest.mark.sweep
@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("captured", [False, True])
def test_kept_losses_hold_no_weights(keep: Callable[[Tensor], Any], captured: bool) -> None:
    step, x = step_of(64), Tensor(np.ones((4, 64), np.float32))
    step = jit(step) if captured else step
    kept = [keep(step(x)) for _ in range(4)]
    gc.collect()
    memory, leaves, nodes = stats().used_bytes, len(leaf_nodes()), live_nodes()
    kept += [keep(step(x)) for _ in range(20)]
    gc.collect()
    assert stats().used_bytes - memory < 64 * 64 * 4, "less than one weight"
    assert len(leaf_nodes()) == leaves
    assert live_nodes() - nodes <= 20 * 6
    assert len(kept) == 24


READ: dict[str, Callable[[Tensor], Any]] = {
    "unread": lambda t: None,
    "read before": lambda t: t.item(),
}


def losses(read: Callable[[Tensor], Any], **options: Any) -> tuple[Tensor, Tensor]:
    w = Tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).sum()
    read(loss)
    loss.backward(**options)
    return w, loss


@pytest.mark.parametrize("through", [lambda t: t, lambda t: t * 2, lambda t: (t * t).realize()])
@pytest.mark.parametrize("later", [lambda t: None, lambda t: t.item()])
@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_a_second_backward_is_refused(read: Any, later: Any, through: Any) -> None:
    w, loss = losses(read)
    later(loss)
    with pytest.raises(GradientError, match=r"a second time(.|\n)*retain_graph=True"):
        through(loss).backward()
    with pytest.raises(GradientError, match="a second time"):
        (through(loss) + w.sum()).backward()
    assert w.grad is not None and w.grad.tolist() == [2.0, 4.0] and loss.item() == 5.0


@pytest.mark.parametrize("options", [{"retain_graph": True}, {"create_graph": True}])
@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_a_retained_graph_is_used_again(read: Any, options: dict[str, bool]) -> None:
    w, loss = losses(read, **options)
    (loss * 2).backward()
    assert w.grad is not None and w.grad.tolist() == [6.0, 12.0]
    with pytest.raises(GradientError, match="no leaf"):
        loss.detach().backward()


def test_the_gradients_of_a_created_graph_may_be_given_up() -> None:
    w, loss = losses(lambda t: None, create_graph=True, retain_graph=False)
    with pytest.raises(GradientError, match="a second time"):
        loss.backward()
    first, w.grad = w.grad, None
    assert first is not None
    first.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_a_detached_loss_is_a_constant(read: Any) -> None:
    w, loss = losses(read)
    w.grad = None
    (w * loss.detach()).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [5.0, 5.0]


def test_the_same_expression_computed_again_has_its_own_graph() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    kept = [(w * w).sum().backward() for _ in range(3)]
    assert w.grad is not None and w.grad.tolist() == [6.0, 12.0] and [t.item() for t in kept] == [5.0] * 3


def test_a_leaf_stays_one() -> None:
    w = Tensor(3.0, requires_grad=True)
    w.backward()
    w.backward()
    assert w.grad is not None and w.grad.item() == 2.0
    (w * w).backward()
    assert w.grad.item() == 8.0


def test_two_losses_of_one_graph() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    h = w * w
    h.sum().backward()
    (h * h).sum().backward()
    t = torch.tensor([1.0, 2.0], requires_grad=True)
    k = t * t
    (k.sum() + (k * k).sum()).backward()
    assert w.grad is not None and t.grad is not None and w.grad.tolist() == t.grad.tolist()


def test_a_result_of_a_step_that_was_differentiated_is_refused_at_each_call() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)

    def step(x: Tensor) -> Tensor:
        w.grad = None
        return (w * x).sum().backward()

    captured, other = jit(step), Tensor([1.0], requires_grad=True)
    for _ in range(4):
        with pytest.raises(GradientError, match="keeps no graph"):
            (captured(Tensor([1.0, 1.0])) * other).sum().backward()
