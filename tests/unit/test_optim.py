"""Optimizers: losses and parameters are PyTorch's in float64, or those of formulas written out, for every option."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import monolect.optim as optim
from monolect import ArgumentError, DTypeError, JitError, ShapeError, Tensor, dtypes, jit, nn

STEPS = 30
CASES: list[tuple[str, dict]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("Adam", {"lr": 0.05}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1, "amsgrad": True}),
    ("Adam", {"lr": 0.05, "betas": (0.0, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adam", {"lr": 0.01, "maximize": True}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.05, "maximize": True}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01, "alpha": 0.9, "maximize": True}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-3}),
    ("Adagrad", {"lr": 0.1, "maximize": True}),
    ("Adadelta", {"lr": 0.5}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-3, "weight_decay": 0.1}),
    ("Adadelta", {"maximize": True}),
    ("Adamax", {"lr": 0.05}),
    ("Adamax", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.05}),
    ("NAdam", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1, "momentum_decay": 0.1}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {"lr": 0.05}),
    ("RAdam", {"lr": 0.05, "betas": (0.8, 0.7), "eps": 1e-3, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.05, "betas": (0.8, 0.3), "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("ASGD", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 5, "weight_decay": 0.1}),
    ("ASGD", {"lr": 0.01, "maximize": True}),
    ("Rprop", {"lr": 0.05}),
    ("Rprop", {"lr": 0.05, "etas": (0.3, 1.4), "step_sizes": (1e-2, 0.2), "maximize": True}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-4, 1e-2), "d": 1.5, "weight_decay": 0.1}),
    ("Adafactor", {"lr": 0.1, "maximize": True}),
]
SHAPES = ((3, 4), (4,), (2, 3, 2))
START = [np.random.default_rng(5).standard_normal(shape) for shape in SHAPES]


@pytest.fixture(autouse=True)
def _float64_in_pytorch():
    """PyTorch keeps scalars of NAdam and ASGD in its default dtype, whatever that of the parameters is."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def loss_of(params: list[Any], x: Any) -> Any:
    a, b, c = params
    return ((x @ a + b).tanh() ** 2).sum() + ((c * c - 0.5) ** 2).mean() + (a * a).mean()


def inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(6)
    return [rng.standard_normal((5, 3)) for _ in range(STEPS)]


def ours(make: Callable[[list[Tensor]], Any], change: Callable[[Any, int], None] | None = None) -> tuple:
    """Losses and parameters of a captured step, its optimizer and its number of captures."""
    params = [Tensor(a.copy(), requires_grad=True) for a in START]
    optimizer = make(params)

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(params, x)
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for k, x in enumerate(inputs()):
        if change is not None:
            change(optimizer, k)
        losses.append(step(Tensor(x)).item())
    assert len(step.captures) == 1 and step.usual is not None
    return losses, params, optimizer


def theirs(make: Callable[[list[torch.Tensor]], Any], change: Callable[[Any, int], None] | None = None) -> tuple:
    params = [torch.tensor(a, requires_grad=True) for a in START]
    optimizer, losses = make(params), []
    for k, x in enumerate(inputs()):
        if change is not None:
            change(optimizer, k)
        optimizer.zero_grad()
        loss = loss_of(params, torch.tensor(x))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, params, optimizer


def assert_equal(mine: tuple, other: tuple, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(mine[0], other[0], rtol=rtol)
    for p, q in zip(mine[1], other[1], strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=rtol, atol=rtol)


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "options"), CASES)
def test_losses_are_those_of_pytorch(name: str, options: dict) -> None:
    mine = ours(lambda ps: getattr(optim, name)(ps, **options))
    assert_equal(mine, theirs(lambda ps: getattr(torch.optim, name)(ps, **options)))


def test_every_optimizer_of_pytorch_and_each_of_its_options_has_a_case() -> None:
    elsewhere = {"Optimizer", "SparseAdam", "LBFGS", "Muon"}
    names = {n for n in dir(torch.optim) if isinstance(getattr(torch.optim, n), type)} - elsewhere
    assert names <= {name for name, _ in CASES}
    assert not hasattr(optim, "SparseAdam")
    with pytest.raises(AttributeError, match=r"optim\.Adam"):
        _ = optim.SparseAdam  # type: ignore[attr-defined]


NUMBERS: dict[str, list[dict[str, Any]]] = {
    "SGD": [{"momentum": 0.5}, {"lr": 0.02}, {"weight_decay": 0.3}],
    "Adam": [{"betas": (0.7, 0.9)}, {"lr": 0.02}, {"eps": 1e-2}, {"weight_decay": 0.3}],
    "RMSprop": [{"alpha": 0.5}, {"momentum": 0.5}, {"eps": 1e-2}],
    "NAdam": [{"momentum_decay": 0.3}, {"betas": (0.7, 0.9)}],
    "Adadelta": [{"rho": 0.5}],
    "ASGD": [{"lambd": 0.2}, {"t0": 2.0}, {"alpha": 0.6}, {"lr": 0.01}],
    "Rprop": [{"etas": (0.4, 1.3)}, {"step_sizes": (1e-3, 0.1)}],
    "Adafactor": [{"d": 2.0}, {"beta2_decay": -0.6}, {"lr": 1e-3}],
    "RAdam": [{"betas": (0.7, 0.8)}],
    "Adamax": [{"betas": (0.7, 0.8)}],
    "Adagrad": [{"lr_decay": 0.3}],
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", NUMBERS)
def test_any_number_of_a_group_changes_without_another_capture(name: str) -> None:
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    if name in ("SGD", "Adam"):
        options["weight_decay"] = 0.1

    def change(optimizer: Any, k: int) -> None:
        if 0 < k <= len(NUMBERS[name]):
            for key, value in NUMBERS[name][k - 1].items():
                optimizer.param_groups[0][key] = value

    mine = ours(lambda ps: getattr(optim, name)(ps, **options), change)
    assert_equal(mine, theirs(lambda ps: getattr(torch.optim, name)(ps, **options), change))


def test_groups_have_settings_of_their_own_and_more_are_added() -> None:
    def made(ps: list[Any], kind: Any) -> Any:
        groups = [{"params": [ps[0]], "momentum": 0.9, "nesterov": True}, {"params": [ps[1]], "weight_decay": 0.1}]
        optimizer = kind(groups, lr=0.1)
        optimizer.add_param_group({"params": [ps[2]], "lr": 0.05, "maximize": True})
        return optimizer

    def change(optimizer: Any, k: int) -> None:
        optimizer.param_groups[k % 3]["lr"] *= 0.9

    mine, other = ours(lambda ps: made(ps, optim.SGD), change), theirs(lambda ps: made(ps, torch.optim.SGD), change)
    assert_equal(mine, other)
    for g, h in zip(mine[2].param_groups, other[2].param_groups, strict=True):
        assert {k: g[k] for k in g if k != "params"} == {k: h[k] for k in g if k != "params"}
    assert list(mine[2].state_dict()) == ["numbers.0", "settings.0", "momentum.0"]


def test_a_group_that_is_added_between_steps() -> None:
    def add(optimizer: Any, k: int) -> None:
        if k == 4:
            optimizer.add_param_group({"params": optimizer.later, "lr": 0.01})

    def made(ps: list[Any], kind: Any) -> Any:
        optimizer = kind(ps[:2], lr=0.05)
        optimizer.later = ps[2:]
        return optimizer

    params = [Tensor(a.copy(), requires_grad=True) for a in START]
    optimizer, losses = made(params, optim.Adam), []
    for k, x in enumerate(inputs()):
        add(optimizer, k)
        optimizer.zero_grad()
        loss = loss_of(params, Tensor(x))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert_equal((losses, params), theirs(lambda ps: made(ps, torch.optim.Adam), add))
    assert optimizer.state_dict()["numbers.0"].tolist()[2:] == [STEPS, STEPS, STEPS - 4]


# ---- what PyTorch lacks, or computes in another dtype ----------------------------------------------------------------
def lion(p: np.ndarray, g: np.ndarray, s: dict, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.0) -> np.ndarray:
    m = s.get("m", np.zeros_like(p))
    new = p - lr * (np.sign(betas[0] * m + (1 - betas[0]) * g) + weight_decay * p)
    s["m"] = betas[1] * m + (1 - betas[1]) * g
    return new


def lars(p, g, s, lr=0.1, momentum=0.9, weight_decay=0.0, trust_coefficient=1e-3, eps=0.0, nesterov=False):
    size, slope = np.sqrt((p * p).sum()), np.sqrt((g * g).sum())
    rate = trust_coefficient * size / (slope + weight_decay * size + eps) if size > 0 and slope > 0 else 1.0
    change = rate * lr * (g + weight_decay * p)
    s["m"] = momentum * s.get("m", 0.0) + change
    return p - (change + momentum * s["m"] if nesterov else s["m"])


def lamb(p, g, s, lr=1e-2, betas=(0.9, 0.999), eps=1e-6, weight_decay=1e-2):
    s["t"] = t = s.get("t", 0) + 1
    s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0.0) + (1 - betas[1]) * g * g
    r = s["m"] / (1 - betas[0] ** t) / (np.sqrt(s["v"] / (1 - betas[1] ** t)) + eps) + weight_decay * p
    size, length = np.sqrt((p * p).sum()), np.sqrt((r * r).sum())
    return p - lr * (size / length if size > 0 and length > 0 else 1.0) * r


def muon(p, g, s, lr=1e-2, weight_decay=0.1, momentum=0.95, nesterov=True, ns_steps=5, adjust_lr_fn=None):
    s["m"] = momentum * s.get("m", 0.0) + (1 - momentum) * g
    x = (1 - momentum) * g + momentum * s["m"] if nesterov else s["m"]
    n, m = p.shape
    x = x.T if n > m else x
    x = x / max(np.sqrt((x * x).sum()), 1e-7)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    scale = 0.2 * np.sqrt(max(n, m)) if adjust_lr_fn == "match_rms_adamw" else np.sqrt(max(1, n / m))
    return p * (1 - lr * weight_decay) - lr * scale * (x.T if n > m else x)


OTHERS: list[tuple[str, Callable, dict]] = [
    ("Lion", lion, {"lr": 1e-2}),
    ("Lion", lion, {"lr": 1e-2, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    ("LARS", lars, {"lr": 0.1}),
    ("LARS", lars, {"lr": 0.1, "weight_decay": 0.1, "trust_coefficient": 0.02, "eps": 1e-3, "nesterov": True}),
    ("LAMB", lamb, {"lr": 1e-2}),
    ("LAMB", lamb, {"lr": 1e-2, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.0}),
    ("Muon", muon, {"lr": 1e-2}),
    ("Muon", muon, {"lr": 1e-2, "nesterov": False, "ns_steps": 3, "adjust_lr_fn": "match_rms_adamw"}),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "rule", "options"), OTHERS)
def test_steps_are_those_of_the_formula(name: str, rule: Callable, options: dict) -> None:
    start = [START[0], START[0].T.copy() * 0.5] if name == "Muon" else [*START[:2], np.zeros(3)]
    params, values = [Tensor(a.copy(), requires_grad=True) for a in start], [a.copy() for a in start]
    optimizer, states = getattr(optim, name)(params, **options), [{} for _ in start]
    step = jit(optimizer.step)
    rng = np.random.default_rng(7)
    for _ in range(STEPS):
        for i, p in enumerate(params):
            g = rng.standard_normal(p.shape) * 0.1 + values[i]
            p.grad = Tensor(g.copy())
            values[i] = rule(values[i], g, states[i], **options)
        step()
        for p, v in zip(params, values, strict=True):
            np.testing.assert_allclose(p.numpy(), v, rtol=1e-9, atol=1e-11)
    assert len(step.captures) == 1


@pytest.mark.sweep
@pytest.mark.parametrize("options", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.0}])
def test_muon_is_near_that_of_pytorch_which_computes_in_bfloat16(options: dict) -> None:
    p, q = Tensor(START[0].copy(), requires_grad=True), torch.tensor(START[0], requires_grad=True)
    mine, other = optim.Muon([p], lr=0.02, **options), torch.optim.Muon([q], lr=0.02, **options)
    for k in range(5):
        g = np.random.default_rng(k).standard_normal(p.shape)
        p.grad, q.grad = Tensor(g.copy()), torch.tensor(g)
        mine.step()
        other.step()
    np.testing.assert_allclose(p.numpy(), q.detach().numpy(), atol=5 * 0.02 * 0.02)


@pytest.mark.sweep
@pytest.mark.parametrize("options", [
    {}, {"lr": 0.1, "max_iter": 5}, {"line_search_fn": "strong_wolfe"}, {"history_size": 3, "max_eval": 7},
    {"line_search_fn": "strong_wolfe", "lr": 30.0, "history_size": 2, "tolerance_change": 1e-3},
])  # fmt: skip
def test_lbfgs_is_that_of_pytorch(options: dict) -> None:
    """The function of Rosenbrock in four dimensions, which needs many steps."""

    def run(module: Any, p: Any, kind: Any, again: bool) -> list[float]:
        optimizer, losses = kind([p], **options), []

        def closure() -> Any:
            optimizer.zero_grad()
            loss = ((p[1:] - p[:-1] ** 2) ** 2).sum() * 100.0 + ((1.0 - p[:-1]) ** 2).sum()
            loss.backward()
            losses.append(loss.item())
            return loss

        for k in range(6):
            optimizer.step(closure)
            if again and k == 2:
                state = {name: t.numpy().copy() for name, t in optimizer.state_dict().items()}
                optimizer = kind([p], **options)
                optimizer.load_state_dict(state)
        return losses

    start = np.array([-1.2, 1.0, 0.5, -0.5])
    p, q = Tensor(start.copy(), requires_grad=True), torch.tensor(start, requires_grad=True)
    mine, other = run(np, p, optim.LBFGS, True), run(torch, q, torch.optim.LBFGS, False)
    assert len(mine) == len(other)
    np.testing.assert_allclose(mine[:40], other[:40], rtol=1e-6)  # rounding grows with every step


def test_lbfgs_refuses_what_it_cannot_do() -> None:
    p, q = parameter(), parameter()
    for call in (
        lambda: optim.LBFGS([{"params": [p]}, {"params": [q]}]),
        lambda: optim.LBFGS([p], line_search_fn="bisection"),
        lambda: optim.LBFGS([p]).step(),
        lambda: optim.LBFGS([p]).load_state_dict({}),
    ):
        with pytest.raises(ArgumentError):
            call()
    with pytest.raises(JitError):
        jit(lambda: optim.LBFGS([p]).step(lambda: (p * p).sum().backward()))()


KINDS = [n for n in optim.__all__ if isinstance(getattr(optim, n), type) and n not in ("Optimizer", "LBFGS")]


@pytest.mark.sweep
@pytest.mark.parametrize("name", KINDS)
def test_small_floats_are_stepped_in_their_dtype(name: str) -> None:
    w = Tensor(np.ones((2, 2), np.float32)).cast("bfloat16").realize().requires_grad_()
    step = jit(getattr(optim, name)([w]).step)
    for k in range(3):
        w.grad = Tensor(np.full((2, 2), 0.1 * (k + 1), np.float32)).cast("bfloat16")
        step()
    assert np.isfinite(w.float().numpy()).all() and w.dtype.name == "bfloat16" and len(step.captures) == 1


@pytest.mark.sweep
@pytest.mark.parametrize("name", KINDS)
def test_groups_on_several_devices_step_as_on_one(name: str) -> None:
    values, steps = np.arange(1.0, 9.0).reshape(4, 2), []
    divided = Tensor(values.copy()).shard(("cpu:1", "cpu:2"), 0).realize().requires_grad_()
    whole, alone = (Tensor(values.copy(), requires_grad=True) for _ in range(2))
    for groups in ([{"params": [divided]}, {"params": [whole], "lr": 0.1}], [{"params": [alone]}]):
        optimizer = getattr(optim, name)(groups)
        for _ in range(2):
            for p in optimizer.params:
                p.grad = p.detach() * 0.1
            optimizer.step()
        steps.append(optimizer.params[0].numpy())
    np.testing.assert_allclose(*steps, rtol=1e-12)
    assert len(optimizer.state_dict()) == len({*optimizer.state_dict()}) and not np.array_equal(whole.numpy(), steps[0])


# ---- settings --------------------------------------------------------------------------------------------------------
def parameter(*shape: int) -> Tensor:
    return Tensor(np.ones(shape or (2,)), requires_grad=True)


def test_a_setting_that_does_not_fit_changes_nothing() -> None:
    optimizer = optim.Adam([{"params": [parameter()]}, {"params": [parameter()], "lr": 0.5}])
    group = optimizer.param_groups[1]
    for change in (
        lambda: group.update(lr=-1.0),
        lambda: group.update(betas=(0.5, 1.0), lr=0.1),
        lambda: group.__setitem__("params", []),
        lambda: group.pop("lr"),
        lambda: group.__delitem__("eps"),
        lambda: group.clear(),
        lambda: setattr(optimizer, "eps", -1.0),
        lambda: optimizer.change_settings([{"lr": 0.1}, {"lr": "much"}]),
    ):
        with pytest.raises(ArgumentError, match="optimizer|group"):
            change()
    assert [g["lr"] for g in optimizer.param_groups] == [1e-3, 0.5] and optimizer.betas == (0.9, 0.999)
    assert optimizer.state_dict()["numbers.0"].tolist()[:2] == [1e-3, 0.5]


def test_what_makes_no_group_is_refused() -> None:
    p = parameter()
    for params, error, what in (
        (p, DTypeError, "iterable of Tensors"),
        ([{"lr": 0.1}], DTypeError, "a dict with params"),
        ([{"params": [p]}, {"params": [p]}], ArgumentError, "one group for each"),
        ([{"params": []}], ArgumentError, "at least one"),
        ([{"params": [p], "lr": -1.0}], ArgumentError, "lr"),
    ):
        with pytest.raises(error, match=what):
            optim.SGD(params)
    with pytest.raises(DTypeError, match="a dict with params"):
        optim.SGD([p]).add_param_group([parameter()])
    with pytest.raises(ArgumentError, match="differentiable"):
        optim.SGD([p], differentiable=True)
    with pytest.raises(ArgumentError, match="etas"):
        optim.Rprop([p], etas=(0.5, 0.9))
    with pytest.raises(ArgumentError, match="Adafactor"):
        optim.Adafactor([p], d=0.5)
    with pytest.raises(ShapeError, match="2 axes"):
        optim.Muon([p])
    with pytest.raises(ArgumentError, match="adjust_lr_fn"):
        optim.Muon([parameter(2, 2)], adjust_lr_fn="twice")
    with pytest.raises(ArgumentError, match="ns_steps"):
        optim.Muon([parameter(2, 2)], ns_steps=0)


def test_a_group_is_a_dict() -> None:
    p, q = parameter(), parameter()
    optimizer = optim.SGD([("weight", p), ("bias", q)], lr=Tensor(0.5))
    group = optimizer.param_groups[0]
    assert isinstance(group, dict) and group["lr"] == 0.5 and group["param_names"] == ["weight", "bias"]
    assert group.setdefault("initial_lr", 0.25) == 0.25 and group.pop("initial_lr") == 0.25
    group |= {"lr": 0.125, "note": 1}
    assert optimizer.lr == 0.125 and group.popitem() == ("note", 1) and type(group.copy()) is dict
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is None


def test_a_captured_step_that_changes_a_setting_is_refused() -> None:
    optimizer = optim.SGD([parameter()], lr=0.5)

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.param_groups[0]["lr"] = 0.25
        return x * 2

    with pytest.raises(JitError, match="changes a setting"):
        step(Tensor([1.0]))
    assert optimizer.lr == 0.5


def test_a_captured_step_that_reads_a_group_depends_on_it() -> None:
    optimizer = optim.SGD([parameter()], lr=0.5)
    step = jit(lambda x: x * optimizer.param_groups[0]["lr"])
    for lr in (0.5, 0.25, 0.5):
        optimizer.param_groups[0]["lr"] = lr
        assert step(Tensor([1.0])).item() == lr


def test_weight_decay_that_is_switched_on_is_applied() -> None:
    def change(optimizer: Any, k: int) -> None:
        if k in (3, 6):
            optimizer.param_groups[0]["weight_decay"] = 0.1 if k == 3 else 0.0

    params = [Tensor(a.copy(), requires_grad=True) for a in START]
    optimizer, losses = optim.SGD(params, lr=0.1), []

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(params, x)
        loss.backward()
        optimizer.step()
        return loss

    for k, x in enumerate(inputs()):
        change(optimizer, k)
        losses.append(step(Tensor(x)).item())
    assert_equal((losses, params), theirs(lambda ps: torch.optim.SGD(ps, lr=0.1), change))
    assert len(step.captures) == 2


def test_step_calls_a_closure() -> None:
    p = parameter()
    optimizer = optim.SGD([p], lr=0.25)
    assert optimizer.step(lambda: (p * p).sum().backward()).item() == 2.0
    assert p.tolist() == [0.5, 0.5]


# ---- state -----------------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize(("name", "options"), [c for c in CASES if c[0] not in ("SGD", "Adam")][::2] + CASES[1:6])
def test_a_run_continues_from_a_state_dict_of_pytorch(name: str, options: dict) -> None:
    values = [a.copy() for a in START]
    params, others = [Tensor(a.copy(), requires_grad=True) for a in values], [torch.tensor(a) for a in values]
    for q in others:
        q.requires_grad_()
    other = getattr(torch.optim, name)([{"params": others[:2]}, {"params": others[2:], "lr": 0.01}], **options)
    for k in range(6):
        grads = [np.random.default_rng(k).standard_normal(a.shape) for a in values]
        if k == 3:
            for p, q in zip(params, others, strict=True):
                p.assign(Tensor(q.detach().numpy().copy()))
            mine = getattr(optim, name)([{"params": params[:2]}, {"params": params[2:]}], **options)
            mine.change_settings([{"lr": 0.3}, {"lr": 0.3}])
            mine.load_state_dict(other.state_dict())
        for q, g in zip(others, grads, strict=True):
            q.grad = torch.tensor(g)
        other.step()
        if k >= 3:
            for p, g in zip(params, grads, strict=True):
                p.grad = Tensor(g)
            mine.step()
    for p, q in zip(params, others, strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-9)
    assert [g["lr"] for g in mine.param_groups] == [g["lr"] for g in other.param_groups]
    with pytest.raises(ArgumentError, match="parameters of each group"):
        getattr(optim, name)(params, **options).load_state_dict(other.state_dict())


def test_settings_are_restored_with_the_state() -> None:
    p = parameter()
    old = optim.Adam([p], lr=0.1, betas=(0.8, 0.9), weight_decay=0.2)
    new = optim.Adam([p], lr=0.5)
    new.load_state_dict({k: t.numpy().copy() for k, t in old.state_dict().items()})
    assert (new.lr, new.betas, new.weight_decay) == (0.1, (0.8, 0.9), 0.2)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_of_an_optimizer_has_groups_of_its_own(copied: Callable) -> None:
    p = parameter()
    first = optim.Adam([p], lr=0.1)
    q, second = copied((p, first))
    second.param_groups[0]["lr"] = 0.5
    (q * q).sum().backward()
    second.step()
    assert first.lr == 0.1 and p.tolist() == [1.0, 1.0] and abs(q.tolist()[0] - 0.5) < 1e-6
    assert second.param_groups[0]["params"][0] is q


def test_the_module_has_its_earlier_name() -> None:
    import monolect.nn.optim as earlier

    assert nn.optim is optim is earlier


@pytest.mark.sweep
@pytest.mark.parametrize("first", ["monolect.optim", "monolect.nn.optim", "monolect.optim.swa_utils", "monolect.amp"])
def test_any_of_the_modules_may_be_imported_first(first: str) -> None:
    program = f"import {first}; import monolect.nn.optim as a, monolect.optim as b; assert a is b and b.swa_utils.SWALR"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_switches_of_a_state_dict_of_pytorch_are_taken_over() -> None:
    values = np.array([1.0, -2.0])
    theirs = torch.tensor(values, requires_grad=True)
    given = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True, "weight_decay": 0.01}
    other = torch.optim.SGD([theirs], **given)
    torch.optim.lr_scheduler.StepLR(other, 3)
    mine = Tensor(values, requires_grad=True)
    optimizer = optim.SGD([mine], lr=0.5, momentum=0.9, weight_decay=0.01)
    optimizer.load_state_dict(other.state_dict())
    group = optimizer.param_groups[0]
    assert (group["nesterov"], group["maximize"], group["initial_lr"]) == (True, True, 0.1)
    for _ in range(4):
        (theirs * theirs).sum().backward()
        (mine * mine).sum().backward()
        for o in (other, optimizer):
            o.step()
            o.zero_grad()
    np.testing.assert_allclose(mine.numpy(), theirs.detach().numpy(), rtol=1e-12)


def test_the_history_of_pytorchs_lbfgs_is_refused() -> None:
    theirs = torch.ones(2, requires_grad=True)
    other = torch.optim.LBFGS([theirs])
    (theirs * theirs).sum().backward()
    other.step(lambda: (theirs * theirs).sum())
    with pytest.raises(ArgumentError, match="made no step"):
        optim.LBFGS([Tensor([1.0, 1.0], requires_grad=True)]).load_state_dict(other.state_dict())


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["LARS", "LAMB", "Adafactor"])
def test_norms_of_small_floats_do_not_overflow(name: str) -> None:
    found = []
    for dtype in (dtypes.float16, dtypes.float32):
        w = Tensor(np.full(40000, 2.0, np.float32)).cast(dtype).detach().requires_grad_()
        w.grad = Tensor(np.full(40000, 0.5, np.float32)).cast(dtype)
        getattr(optim, name)([w], lr=0.1).step()
        found.append(w.float().numpy())
    np.testing.assert_allclose(*found, rtol=4e-3)
