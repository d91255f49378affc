"""Schedules: every value is PyTorch's over 50 steps, and one capture of a training step follows them."""

from typing import Any

import numpy as np
import pytest
import torch

import monolect.optim as optim
from monolect import ArgumentError, DTypeError, JitError, Tensor, jit
from monolect.optim import lr_scheduler

STEPS = 50
SGD: dict[str, Any] = {"momentum": 0.9}


class Doubling:
    """A rule with a state."""

    def __init__(self, by: float):
        self.by = by

    def __call__(self, step: int) -> float:
        return self.by


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("LambdaLR", "SGD", {"lr_lambda": lambda step: 0.95**step}),
    ("LambdaLR", "SGD", {"lr_lambda": [lambda step: 1 / (step + 1), Doubling(0.5)]}),
    ("MultiplicativeLR", "SGD", {"lr_lambda": lambda step: 0.9 if step % 3 else 1.1}),
    ("StepLR", "SGD", {"step_size": 7, "gamma": 0.5}),
    ("MultiStepLR", "SGD", {"milestones": [5, 20, 20, 30], "gamma": 0.3}),
    ("ConstantLR", "SGD", {"factor": 0.25, "total_iters": 8}),
    ("LinearLR", "SGD", {"start_factor": 0.25, "end_factor": 0.75, "total_iters": 11}),
    ("ExponentialLR", "SGD", {"gamma": 0.9}),
    ("PolynomialLR", "SGD", {"total_iters": 20, "power": 2.0}),
    ("CosineAnnealingLR", "SGD", {"T_max": 7, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", "SGD", {"T_0": 6}),
    ("CosineAnnealingWarmRestarts", "SGD", {"T_0": 4, "T_mult": 2, "eta_min": 0.01}),
    ("CyclicLR", "SGD", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 4, "step_size_down": 7}),
    ("CyclicLR", "Adam", {"base_lr": [0.1, 0.2], "max_lr": 0.5, "step_size_up": 5, "mode": "triangular2"}),
    ("CyclicLR", "SGD", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 5, "mode": "exp_range", "gamma": 0.97}),
    ("CyclicLR", "Adagrad", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 5, "cycle_momentum": False,
                             "scale_fn": lambda x: 0.9**x, "scale_mode": "iterations"}),
    ("OneCycleLR", "SGD", {"max_lr": 0.5, "total_steps": 51}),
    ("OneCycleLR", "Adam", {"max_lr": [0.5, 0.2], "epochs": 10, "steps_per_epoch": 6, "anneal_strategy": "linear",
                            "three_phase": True, "pct_start": 0.4, "div_factor": 5.0, "final_div_factor": 10.0}),
    ("OneCycleLR", "Adagrad", {"max_lr": 0.5, "total_steps": 60, "cycle_momentum": False}),
]  # fmt: skip


def optimizer_of(torch_: bool, name: str) -> Any:
    make = (lambda: torch.ones(2, requires_grad=True)) if torch_ else (lambda: Tensor([1.0, 1.0], requires_grad=True))
    kind = getattr(torch.optim if torch_ else optim, name)
    return kind([{"params": [make()]}, {"params": [make()], "lr": 0.3}], lr=0.8, **(SGD if name == "SGD" else {}))


def values(optimizer: Any) -> list[tuple[float, ...]]:
    keys = ("lr", "momentum", "betas")
    return [tuple(np.ravel([g[k] for k in keys if k in g and k != "betas"] + [*g.get("betas", ())]).tolist())
            for g in optimizer.param_groups]  # fmt: skip


def run(torch_: bool, name: str, of: str, options: dict, state_at: int | None = None) -> list[Any]:
    module = torch.optim.lr_scheduler if torch_ else lr_scheduler
    optimizer = optimizer_of(torch_, of)
    schedule = getattr(module, name)(optimizer, **options)
    found = [values(optimizer)]
    for k in range(STEPS):
        if torch_:
            optimizer.step()
        if k == 25:  # most schedules go on from the present value
            optimizer.param_groups[1]["lr"] *= 0.5
        schedule.step()
        found.append(values(optimizer))
        assert schedule.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
        if k == state_at:
            state = schedule.state_dict()
            before = values(optimizer)
            schedule = getattr(module, name)(optimizer, **options)
            schedule.load_state_dict(state)
            optimizer.change_settings([{"lr": v[0]} for v in before])
    return found


@pytest.mark.parametrize(("name", "of", "options"), CASES)
def test_values_are_those_of_pytorch(name: str, of: str, options: dict) -> None:
    np.testing.assert_allclose(run(False, name, of, options), run(True, name, of, options), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("name", "of", "options"), [c for c in CASES if c[0] != "OneCycleLR"])
def test_a_schedule_goes_on_from_its_state(name: str, of: str, options: dict) -> None:
    found = run(False, name, of, options, state_at=13)
    np.testing.assert_allclose(found, run(False, name, of, options), rtol=1e-12, atol=1e-15)


COMBINED: dict[str, Any] = {
    "in sequence": lambda o, m: m.SequentialLR(
        o, [m.LinearLR(o, 0.1, total_iters=5), m.CosineAnnealingLR(o, 20), m.ExponentialLR(o, 0.9)], [5, 25]
    ),
    "restarts in sequence": lambda o, m: m.SequentialLR(
        o, [m.ConstantLR(o, 0.5, 3), m.CosineAnnealingWarmRestarts(o, 4, 2), m.StepLR(o, 3, 0.7)], [4, 30]
    ),
    "at once": lambda o, m: m.ChainedScheduler([m.ConstantLR(o, 0.1, 2), m.ExponentialLR(o, 0.95)]),
    "a sequence of a chain": lambda o, m: m.SequentialLR(
        o, [m.PolynomialLR(o, 9), m.MultiStepLR(o, [3, 6], 0.5), m.LambdaLR(o, lambda k: 0.9**k)], [7, 20]
    ),
}


@pytest.mark.parametrize("name", COMBINED)
def test_schedules_of_schedules_are_those_of_pytorch(name: str) -> None:
    found = []
    for torch_ in (False, True):
        optimizer = optimizer_of(torch_, "SGD")
        schedule = COMBINED[name](optimizer, torch.optim.lr_scheduler if torch_ else lr_scheduler)
        found.append([values(optimizer)])
        for k in range(STEPS):
            if torch_:
                optimizer.step()
            elif k == 9:
                state, before = schedule.state_dict(), values(optimizer)
                schedule = COMBINED[name](optimizer, lr_scheduler)
                schedule.load_state_dict(state)
                optimizer.change_settings([{"lr": v[0]} for v in before])
            schedule.step()
            found[-1].append(values(optimizer))
    np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-15)


@pytest.mark.sweep
@pytest.mark.parametrize("options", [
    {"factor": 0.5, "patience": 2}, {"mode": "max", "patience": 0, "cooldown": 2, "min_lr": [0.1, 0.05]},
    {"threshold": 0.5, "threshold_mode": "abs", "patience": 3}, {"mode": "max", "threshold_mode": "abs", "eps": 0.2},
])  # fmt: skip
def test_a_plateau_reduces_as_in_pytorch(options: dict) -> None:
    losses = np.random.default_rng(3).standard_normal(STEPS) + 2.0
    found = []
    for torch_ in (False, True):
        optimizer = optimizer_of(torch_, "SGD")
        module = torch.optim.lr_scheduler if torch_ else lr_scheduler
        schedule = module.ReduceLROnPlateau(optimizer, **options)
        found.append([])
        for loss in losses:
            schedule.step(loss if torch_ else Tensor(loss))
            state = (schedule.best, schedule.num_bad_epochs, schedule.in_cooldown, schedule.last_epoch)
            found[-1].append([*np.ravel(values(optimizer)), *state, *schedule.get_last_lr()])
    np.testing.assert_allclose(*found, rtol=1e-6)


@pytest.mark.parametrize("name", ["StepLR", "CosineAnnealingWarmRestarts", "ExponentialLR", "LinearLR"])
def test_a_step_to_a_given_epoch(name: str) -> None:
    options = next(o for n, _, o in CASES if n == name)
    found = []
    for torch_ in (False, True):
        optimizer = optimizer_of(torch_, "SGD")
        schedule = getattr(torch.optim.lr_scheduler if torch_ else lr_scheduler, name)(optimizer, **options)
        found.append([])
        for epoch in (3, 17, 0, 40):
            if torch_:
                with pytest.warns(UserWarning) if name != "CosineAnnealingWarmRestarts" else _nothing():
                    schedule.step(epoch)
            else:
                schedule.step(epoch)
            found[-1].append(values(optimizer))
    np.testing.assert_allclose(*found, rtol=1e-12)


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


@pytest.mark.parametrize("name", ["OneCycleLR", "CosineAnnealingLR", "CyclicLR"])
def test_a_captured_step_follows_a_schedule_with_one_capture(name: str) -> None:
    _, of, options = next(c for c in CASES if c[0] == name)
    rng = np.random.default_rng(0)
    start, xs = rng.standard_normal((2, 2)), rng.standard_normal((STEPS, 2))
    found = []
    for torch_ in (False, True):
        make = (lambda a: torch.tensor(a, requires_grad=True)) if torch_ else (lambda a: Tensor(a, requires_grad=True))
        params = [make(a.copy()) for a in start]
        module = torch.optim if torch_ else optim
        optimizer = getattr(module, of)([{"params": [params[0]]}, {"params": [params[1]], "lr": 0.3}], lr=0.2, **SGD)
        schedule = getattr(module.lr_scheduler, name)(optimizer, **options)

        def step(x: Any, optimizer: Any = optimizer, params: Any = params) -> Any:
            optimizer.zero_grad()
            loss = ((params[0] * x - 1.0) ** 2 + (params[1] * x + 1.0) ** 2).sum() * 0.1
            loss.backward()
            optimizer.step()
            return loss

        call = step if torch_ else jit(step)
        found.append([])
        for x in xs:
            found[-1].append(call(torch.tensor(x) if torch_ else Tensor(x)).item())
            schedule.step()
        if not torch_:
            assert len(call.captures) == 1 and call.usual is not None
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_a_trainer_that_holds_its_schedule_is_captured_once() -> None:
    from monolect import nn

    class Trainer(nn.Module):
        def __init__(self) -> None:
            self.weight = Tensor([1.0, 2.0], requires_grad=True)
            self.optimizer = optim.SGD([self.weight], lr=0.5)
            self.schedule = lr_scheduler.ExponentialLR(self.optimizer, 0.5)

        @jit
        def step(self, x: Tensor) -> Tensor:
            self.optimizer.zero_grad()
            loss = (self.weight * x).sum()
            loss.backward()
            self.optimizer.step()
            return loss

        @jit
        def scaled(self, x: Tensor) -> Tensor:
            return x * self.schedule.get_last_lr()[0]

    t = Trainer()
    for k in range(5):
        t.step(Tensor([1.0, 1.0]))
        assert t.scaled(Tensor([1.0])).item() == 0.5**k * 0.5
        t.schedule.step()
    assert len(t.step.captures) == 1
    assert t.weight.tolist() == [1.0 - sum(0.5**k for k in range(1, 6)), 2.0 - sum(0.5**k for k in range(1, 6))]


def test_what_makes_no_schedule_is_refused() -> None:
    o, adagrad = optimizer_of(False, "SGD"), optimizer_of(False, "Adagrad")
    m = lr_scheduler
    for call, what in (
        (lambda: m.LambdaLR(o, [lambda step: 1.0]), "one for each group"),
        (lambda: m.StepLR(o, 3, last_epoch=4), "initial_lr"),
        (lambda: m.ConstantLR(o, 2.0), "factor"),
        (lambda: m.LinearLR(o, 0.0), "factors"),
        (lambda: m.ReduceLROnPlateau(o, factor=1.0), "factor"),
        (lambda: m.ReduceLROnPlateau(o, "least"), "mode"),
        (lambda: m.ReduceLROnPlateau(o, threshold_mode="part"), "threshold_mode"),
        (lambda: m.CyclicLR(o, 0.1, 0.2, mode="square"), "mode"),
        (lambda: m.CyclicLR(adagrad, 0.1, 0.2), "momentum or betas"),
        (lambda: m.OneCycleLR(o, 0.1), "steps"),
        (lambda: m.OneCycleLR(o, 0.1, total_steps=5, anneal_strategy="sine"), "anneal_strategy"),
        (lambda: m.OneCycleLR(o, 0.1, total_steps=3).step(4), "at most 3 steps"),
        (lambda: m.CosineAnnealingWarmRestarts(o, 0), "T_0"),
        (lambda: m.CosineAnnealingWarmRestarts(o, 3).step(-1), "epoch"),
        (lambda: m.SequentialLR(o, [m.StepLR(o, 1)], [1]), "milestones"),
        (lambda: m.SequentialLR(o, [m.StepLR(adagrad, 1)], []), "one optimizer"),
        (lambda: m.ChainedScheduler([]), "at least one"),
        (lambda: m.ChainedScheduler([m.ReduceLROnPlateau(o)]), "measured"),
    ):
        with pytest.raises(ArgumentError, match=what):
            call()
    with pytest.raises(DTypeError, match="an Optimizer"):
        m.StepLR([], 1)


def test_a_step_of_a_schedule_inside_a_captured_step_is_refused() -> None:
    optimizer = optimizer_of(False, "SGD")
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.5)
    with pytest.raises(JitError, match="changes a setting"):
        jit(lambda x: (schedule.step(), x * 2)[1])(Tensor([1.0]))
    assert schedule.last_epoch == 0 and schedule.get_last_lr() == [0.8, 0.3]


def test_every_schedule_of_pytorch_is_there() -> None:
    assert set(torch.optim.lr_scheduler.__all__) == set(lr_scheduler.__all__)
