"""Optimizers with a `step` of their own, written as for PyTorch, and the state of others by PyTorch's names."""

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import ArgumentError, CaptureWarning, Tensor, jit, optim


def momentum(m: Any) -> Any:
    """The class for one of the libraries, by the same text."""

    class Momentum(m.optim.Optimizer):  # type: ignore[misc]
        def __init__(self, params: Any, lr: float = 0.1, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
            defaults = dict(lr=lr, momentum=momentum, weight_decay=weight_decay)
            super().__init__(params, defaults)

        @m.no_grad()  # type: ignore[untyped-decorator]
        def step(self, closure: Any = None) -> Any:
            loss = None
            if closure is not None:
                with m.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    grad = p.grad
                    if group["weight_decay"] != 0:
                        grad = grad.add(p, alpha=group["weight_decay"])
                    state = self.state[p]
                    if len(state) == 0:
                        state["buffer"] = m.zeros_like(p)
                    state["buffer"].mul_(group["momentum"]).add_(grad)
                    p.data.add_(state["buffer"], alpha=-group["lr"])
            return loss

    return Momentum


def trained(m: Any, is_captured: bool = False, closure: bool = False, n: int = 6) -> tuple[Any, list[Any], list[float]]:
    """Return the optimizer, its parameters and the losses of `n` steps under a schedule."""
    w, b = m.tensor([1.0, 2.0, 3.0], requires_grad=True), m.tensor([0.5], requires_grad=True)
    optimizer = momentum(m)([{"params": [w]}, {"params": [b], "lr": 0.05}], weight_decay=0.01)
    schedule = m.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    def step(x: Any) -> Any:
        def loss_of() -> Any:
            optimizer.zero_grad()
            loss = ((w * x + b) ** 2).sum()
            loss.backward()
            return loss

        if closure:
            return optimizer.step(loss_of)
        loss = loss_of()
        optimizer.step()
        return loss

    call: Any = jit(step) if is_captured else step
    losses = []
    for k in range(n):
        losses.append(call(m.tensor([1.0, 0.5, 0.1 * k])).item())
        schedule.step()
    return optimizer, [w, b], losses


@pytest.mark.parametrize("is_captured", [False, True], ids=["plain", "captured"])
@pytest.mark.parametrize("closure", [False, True], ids=["after backward", "with a closure"])
def test_a_step_written_for_torch(is_captured: bool, closure: bool) -> None:
    theirs, wanted, losses = trained(torch, closure=closure)
    ours, found, got = trained(monolect, is_captured, closure)
    np.testing.assert_allclose(got, losses, rtol=1e-5)
    for p, t in zip(found, wanted, strict=True):
        np.testing.assert_allclose(p.numpy(), t.detach().numpy(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(ours.state[p]["buffer"].numpy(), theirs.state[t]["buffer"].numpy(), rtol=1e-4)
    assert [g["lr"] for g in ours.param_groups] == pytest.approx([g["lr"] for g in theirs.param_groups])
    assert ours.defaults["momentum"] == theirs.defaults["momentum"] == 0.9


def test_updates_are_computed_when_the_step_returns() -> None:
    optimizer, (w, b), _ = trained(monolect, n=2)
    (w.sum() * b.sum()).backward()
    optimizer.step()
    assert all(t.uop.op == "BUFFER" for t in (w, b, optimizer.state[w]["buffer"], optimizer.state[b]["buffer"]))


def test_state_dicts_of_own_steps() -> None:
    theirs, _, _ = trained(torch)
    ours, found, _ = trained(monolect)
    state = ours.state_dict()
    assert state.keys() == theirs.state_dict().keys() and state["state"].keys() == theirs.state_dict()["state"].keys()
    assert [g["params"] for g in state["param_groups"]] == [g["params"] for g in theirs.state_dict()["param_groups"]]
    for given in (theirs.state_dict(), state):
        other, (w, _), _ = trained(monolect, n=0)
        assert len(other.state[w]) == 0
        other.load_state_dict(given)
        np.testing.assert_allclose(other.state[w]["buffer"].numpy(), ours.state[found[0]]["buffer"].numpy(), rtol=1e-5)
        assert other.param_groups[1]["lr"] == pytest.approx(ours.param_groups[1]["lr"])
    copied = copy.deepcopy(ours)
    p = copied.param_groups[0]["params"][0]
    assert p is not found[0] and copied.state[p]["buffer"].tolist() == ours.state[found[0]]["buffer"].tolist()
    with pytest.raises(ArgumentError, match="parameters of each group"):
        momentum(monolect)([Tensor([1.0], requires_grad=True)]).load_state_dict(state)


def test_a_number_that_a_captured_step_counts_is_named() -> None:
    class Counting(optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.5})

        def step(self, closure: Any = None) -> None:
            for p in self.param_groups[0]["params"]:
                self.state[p]["step"] = self.state[p].get("step", 0) + 1
                p.data.sub_(self.param_groups[0]["lr"] / self.state[p]["step"] * p.grad)

    w = Tensor([1.0], requires_grad=True)
    optimizer = Counting([w])

    @jit
    def step() -> Tensor:
        optimizer.zero_grad()
        (w * 2).sum().backward()
        optimizer.step()
        return w * 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        assert [step().item() for _ in range(3)] == pytest.approx([0.0, -0.5, -0.5 - 1 / 3])


def test_a_dict_of_settings_for_a_class_with_a_rule() -> None:
    class Signs(optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, defaults={"lr": lr, "note": "x"})

        def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Any) -> Tensor:
            return grad.sign() * now.lr

    w = Tensor([1.0, 2.0], requires_grad=True)
    (w * w).sum().backward()
    optimizer = Signs([w], 0.25)
    optimizer.step()
    assert w.tolist() == [0.75, 1.75] and optimizer.param_groups[0]["note"] == "x"
    assert [*optimizer.state_dict()] == ["numbers.0"]
    with pytest.raises(ArgumentError, match="lr"):
        Signs([w], -1.0)


NAMES: dict[str, dict[str, Any]] = {
    "Adam": {"amsgrad": True}, "AdamW": {}, "Adamax": {}, "RMSprop": {"momentum": 0.5, "centered": True},
    "Adagrad": {}, "Adadelta": {}, "SGD": {"momentum": 0.5}, "NAdam": {}, "RAdam": {}, "Rprop": {}, "ASGD": {},
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_state_by_the_names_of_torch(name: str) -> None:
    out = []
    for m in (torch, monolect):
        w: Any = m.tensor([1.0, -2.0, 3.0], requires_grad=True)
        optimizer = getattr(m.optim, name)([w], lr=0.01, **NAMES[name])
        for _ in range(3):
            optimizer.zero_grad()
            ((w + 1) ** 2).sum().backward()
            optimizer.step()
        out.append(optimizer.state[w])
    theirs, ours = out
    for key, value in theirs.items():
        if value is None:
            continue
        assert key in ours, (key, [*ours])
        np.testing.assert_allclose(np.asarray(ours[key].numpy()), np.asarray(value), rtol=1e-5, atol=1e-7)
    assert "absent" not in ours and ours.get("absent", 1) == 1
    with pytest.raises(KeyError):
        ours["absent"]
    with pytest.raises(ArgumentError, match="copy_"):
        ours["step"] = 0
