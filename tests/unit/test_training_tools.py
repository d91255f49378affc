"""Clipping of gradients, vectors of parameters, averages of weights and scales of losses are those of PyTorch."""

import copy
from typing import Any

import numpy as np
import pytest
import torch

from monolect import ArgumentError, Tensor, amp, jit, nn, optim
from monolect.amp import GradScaler
from monolect.nn import utils
from monolect.optim import swa_utils
from monolect.runtime import profile

SHAPES = ((3, 2), (4,), ())


def both(dtype: Any = np.float64, size: float = 1.0) -> tuple[list[Tensor], list[torch.Tensor]]:
    """Parameters with equal values and gradients in both libraries; the last has no gradient."""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s).astype(dtype) for s in (*SHAPES, (2,))]
    grads = [(rng.standard_normal(s) * size).astype(dtype) for s in SHAPES]
    ours = [Tensor(np.array(v), requires_grad=True) for v in values]
    theirs = [torch.tensor(np.array(v), requires_grad=True) for v in values]
    for p, q, g in zip(ours, theirs, grads, strict=False):
        p.grad, q.grad = Tensor(np.array(g)), torch.tensor(np.array(g))
    return ours, theirs


def assert_grads(ours: list[Tensor], theirs: list[torch.Tensor], rtol: float = 1e-9) -> None:
    for p, q in zip(ours, theirs, strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=rtol)


@pytest.mark.sweep
@pytest.mark.parametrize("order", [2, 1, 3.5, float("inf"), 0])
@pytest.mark.parametrize("most", [0.5, 100.0])
def test_gradients_are_clipped_by_their_norm(order: float, most: float) -> None:
    ours, theirs = both()
    mine = utils.clip_grad_norm_(ours, most, order)
    other = torch.nn.utils.clip_grad_norm_(theirs, most, order)
    np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-9)
    assert_grads(ours, theirs)
    np.testing.assert_allclose(
        utils.get_total_norm([p.grad for p in ours[:3]], order).numpy(),
        torch.nn.utils.get_total_norm([q.grad for q in theirs[:3]], order).numpy(),
        rtol=1e-9,
    )


def test_gradients_are_clipped_by_a_norm_and_by_value() -> None:
    ours, theirs = both()
    utils.clip_grads_with_norm_(ours, 0.5, Tensor(np.array(3.0)))
    torch.nn.utils.clip_grads_with_norm_(theirs, 0.5, torch.tensor(3.0, dtype=torch.float64))
    assert_grads(ours, theirs)
    utils.clip_grad_value_(ours, 0.05)
    torch.nn.utils.clip_grad_value_(theirs, 0.05)
    assert_grads(ours, theirs)
    assert utils.get_total_norm([]).item() == 0.0 and utils.clip_grad_norm_(ours[3:], 1.0).item() == 0.0


def test_a_norm_that_is_not_finite_is_an_error_if_asked_for() -> None:
    ours, _ = both()
    ours[1].grad = Tensor(np.array([1.0, np.inf, 1.0, 1.0]))
    assert utils.clip_grad_norm_(ours, 1.0).item() == np.inf
    with pytest.raises(ArgumentError, match="finite norm"):
        utils.clip_grad_norm_(ours, 1.0, error_if_nonfinite=True)


def test_a_captured_step_clips() -> None:
    def run(wrap: Any) -> tuple[list[float], Any]:
        w = Tensor(np.array([1.0, 2.0]), requires_grad=True)
        optimizer = optim.SGD([w], lr=0.5)

        @wrap
        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            (w * w * x).sum().backward()
            norm = utils.clip_grad_norm_([w], 1.0)
            utils.clip_grad_value_([w], 0.7)
            optimizer.step()
            return norm

        return [step(Tensor(np.array([k + 1.0, 1.0]))).item() for k in range(6)] + w.tolist(), step

    found, step = run(jit)
    np.testing.assert_allclose(found, run(lambda f: f)[0], rtol=1e-12)
    assert len(step.captures) == 1 and step.usual is not None


def test_parameters_are_a_vector_and_back() -> None:
    ours, theirs = both()
    np.testing.assert_array_equal(
        utils.parameters_to_vector(ours).numpy(), torch.nn.utils.parameters_to_vector(theirs).detach().numpy()
    )
    utils.vector_to_parameters(utils.parameters_to_vector(ours) * 2, ours)
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.detach().numpy() * 2)
        assert p.requires_grad
    with pytest.raises(ArgumentError, match="parameters_to_vector"):
        utils.parameters_to_vector([])
    with pytest.raises(Exception, match="vector_to_parameters"):
        utils.vector_to_parameters(Tensor([1.0]), ours)


@pytest.mark.sweep
@pytest.mark.parametrize("dim", [0, 1, None])
def test_a_weight_in_two_parts_trains_as_in_pytorch(dim: int | None) -> None:
    torch.manual_seed(0)  # else a result near zero has a larger relative error once in a while
    theirs = torch.nn.Linear(3, 2)
    ours = nn.Linear(3, 2)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    with pytest.warns(FutureWarning, match="weight_norm"):
        torch.nn.utils.weight_norm(theirs, dim=dim)
    utils.weight_norm(ours, dim=dim)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    mine, other = optim.SGD(ours.parameters(), lr=0.1), torch.optim.SGD(theirs.parameters(), lr=0.1)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    for _ in range(3):
        mine.zero_grad()
        other.zero_grad()
        (ours(Tensor(x)) ** 2).sum().backward()
        (theirs(torch.tensor(x)) ** 2).sum().backward()
        mine.step()
        other.step()
    for k, v in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[k].numpy(), v.numpy(), rtol=1e-4, atol=1e-6)
    y = ours(Tensor(x)).numpy()
    assert sorted(utils.remove_weight_norm(ours).state_dict()) == ["bias", "weight"] and type(ours) is nn.Linear
    np.testing.assert_allclose(ours(Tensor(x)).numpy(), y, rtol=1e-5)
    with pytest.raises(ArgumentError, match="weight_norm"):
        utils.remove_weight_norm(ours)
    with pytest.raises(ArgumentError, match="'scale'"):
        utils.weight_norm(ours, "scale")


# ---- averages --------------------------------------------------------------------------------------------------------
AVERAGES: dict[str, Any] = {
    "swa": lambda m: {},
    "swa by a function": lambda m: {"avg_fn": m.get_swa_avg_fn()},
    "ema": lambda m: {"avg_fn": m.get_ema_avg_fn(0.9), "use_buffers": True},
    "ema of a list": lambda m: {"multi_avg_fn": m.get_ema_multi_avg_fn(0.8)},
    "swa of a list": lambda m: {"multi_avg_fn": m.get_swa_multi_avg_fn()},
}


def model_of(torch_: bool) -> Any:
    m: Any = torch.nn if torch_ else nn
    model = m.Sequential(m.Linear(3, 4), m.BatchNorm1d(4), m.ReLU(), m.Linear(4, 2))
    rng = np.random.default_rng(1)
    state = {k: rng.random(tuple(t.shape)) for k, t in model.state_dict().items()}
    state = {k: np.array(0) if "num" in k else v.astype(np.float32) for k, v in state.items()}
    model.load_state_dict({k: torch.tensor(v) for k, v in state.items()} if torch_ else state)
    return model


@pytest.mark.sweep
@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", AVERAGES)
def test_averages_of_weights_are_those_of_pytorch(name: str, captured: bool) -> None:
    xs = np.random.default_rng(2).standard_normal((6, 5, 3)).astype(np.float32)
    states = []
    for torch_ in (False, True):
        model = model_of(torch_)
        m: Any = torch.optim if torch_ else optim
        average = m.swa_utils.AveragedModel(model, **AVERAGES[name](m.swa_utils))
        optimizer = m.SGD(model.parameters(), lr=0.1)

        def step(x: Any, model: Any = model, average: Any = average, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()
            average.update_parameters(model)

        call = jit(step) if captured and not torch_ else step
        for x in xs:
            call(torch.tensor(x) if torch_ else Tensor(x))
        if call is not step:
            assert len(call.captures) == 1
        batches = [torch.tensor(x) if torch_ else Tensor(x) for x in xs]
        states.append({k: np.array(v.numpy() if not torch_ else v.detach().numpy()) for k, v in
                       average.state_dict().items()})  # fmt: skip
        m.swa_utils.update_bn(batches, average)
        states[-1] |= {f"{k} of bn": np.array(v.detach().numpy()) for k, v in average.state_dict().items()}
        x = torch.tensor(xs[0]) if torch_ else Tensor(xs[0])
        states[-1]["out"] = average.eval()(x).detach().numpy()
    assert states[0].keys() == states[1].keys()
    for k, v in states[1].items():
        np.testing.assert_allclose(states[0][k], v, rtol=2e-4, atol=1e-5, err_msg=k)


@pytest.mark.parametrize("options", [{}, {"anneal_epochs": 4, "anneal_strategy": "linear"}, {"anneal_epochs": 0}])
def test_the_schedule_of_averages_is_that_of_pytorch(options: dict) -> None:
    found = []
    for torch_ in (False, True):
        w: Any = torch.ones(2, requires_grad=True) if torch_ else Tensor([1.0, 1.0], requires_grad=True)
        m: Any = torch.optim if torch_ else optim
        optimizer = m.SGD([w], lr=0.8)
        schedule = m.swa_utils.SWALR(optimizer, swa_lr=0.05, **options)
        found.append([optimizer.param_groups[0]["lr"]])
        for _ in range(20):
            if torch_:
                optimizer.step()
            schedule.step()
            found[-1].append(optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_an_average_of_no_decay_is_refused() -> None:
    for decay in (-0.1, 1.5):
        with pytest.raises(ArgumentError, match="decay"):
            swa_utils.get_ema_avg_fn(decay)


# ---- scales ----------------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("captured", [False, True])
def test_scales_and_skipped_steps_are_those_of_pytorch(captured: bool) -> None:
    xs = [1.0, 2.0, np.inf, 0.5, 1.0, np.nan, np.inf, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    found = []
    for torch_ in (False, True):
        w: Any = torch.tensor([1.0, 2.0], requires_grad=True) if torch_ else Tensor([1.0, 2.0], requires_grad=True)
        optimizer = (torch.optim if torch_ else optim).Adam([w], lr=0.1)
        options = {"init_scale": 8.0, "growth_interval": 3, "growth_factor": 4.0, "backoff_factor": 0.25}
        scaler = torch.amp.GradScaler("cpu", **options) if torch_ else GradScaler(**options)

        def step(x: Any, w: Any = w, optimizer: Any = optimizer, scaler: Any = scaler, torch_: bool = torch_) -> None:
            optimizer.zero_grad()
            scaler.scale((w * w * x).sum()).backward()
            scaler.unscale_(optimizer)
            (torch.nn.utils if torch_ else utils).clip_grad_value_([w], 3.0)
            scaler.step(optimizer)
            scaler.update()

        call = jit(step) if captured and not torch_ else step
        found.append([])
        for x in xs:
            call(torch.tensor(x) if torch_ else Tensor(float(x)))
            found[-1].append([*w.tolist(), scaler.get_scale()])
        if captured and not torch_:
            assert len(call.captures) == 1
        else:
            state = scaler.state_dict()
    np.testing.assert_allclose(*found, rtol=1e-5)
    fresh = GradScaler()
    fresh.load_state_dict(state)
    assert fresh.state_dict() == state


@pytest.mark.parametrize("captured", [False, True])
def test_each_of_two_optimizers_skips_its_own_overflow(captured: bool) -> None:
    found = []
    for torch_ in (False, True):
        v, w = (torch.tensor([1.0], requires_grad=True) if torch_ else Tensor([1.0], requires_grad=True) for _ in "vw")
        of_v, of_w = ((torch.optim if torch_ else optim).SGD([p], lr=0.125) for p in (v, w))
        scaler: Any = (torch.amp if torch_ else amp).GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def step(x: Any, y: Any, v: Any = v, w: Any = w, of: Any = (of_v, of_w), scaler: Any = scaler) -> None:
            for o in of:
                o.zero_grad()
            scaler.scale((v * x).sum()).backward()
            scaler.scale((w * y).sum()).backward()
            scaler.unscale_(of[1])
            for o in of:
                scaler.step(o)
            scaler.update()

        call = jit(step) if captured and not torch_ else step
        found.append([])
        for xy in ((1.0, 2.0), (np.inf, 2.0), (1.0, np.nan), (np.inf, np.inf), (3.0, 1.0), (1.0, 1.0)):
            call(*(torch.tensor(x) if torch_ else Tensor(float(x)) for x in xy))
            found[-1].append([*v.tolist(), *w.tolist(), scaler.get_scale()])
    assert found[0] == found[1]


def test_a_scaler_that_is_off_does_nothing() -> None:
    w = Tensor([1.0], requires_grad=True)
    optimizer, scaler = optim.SGD([w], lr=0.25), GradScaler(enabled=False)
    scaler.scale((w * w).sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0.5] and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    scaler.load_state_dict({})


def test_what_makes_no_scale_is_refused() -> None:
    w = Tensor([1.0], requires_grad=True)
    w.grad = Tensor([1.0])
    optimizer, scaler = optim.SGD([w]), GradScaler()
    with pytest.raises(ArgumentError, match="growth above 1"):
        GradScaler(growth_factor=1.0)
    scaler.unscale_(optimizer)
    with pytest.raises(ArgumentError, match="another call"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(ArgumentError, match="steps of an optimizer"):
        scaler.step(optimizer)
    scaler.update(2.0)
    assert scaler.get_scale() == 2.0 and [x.tolist() for x in scaler.scale([Tensor([1.0])])] == [[2.0]]
    assert copy.deepcopy(scaler).get_scale() == 2.0


@pytest.mark.parametrize("average", ["mean", "ema"])
def test_tied_weights_are_averaged_once(average: str) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

    model = Tied()
    averaged = swa_utils.AveragedModel(
        model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.5) if average == "ema" else None
    )
    for value in (1.0, 3.0, 5.0):
        model.a.weight.assign(Tensor.full((2, 2), value).detach())
        averaged.update_parameters(model)
    assert averaged.module.a.weight.tolist() == [[3.0 if average == "mean" else 3.5] * 2] * 2


def test_statistics_of_batches_compile_one_kernel_for_all() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    nn.state.load_state_dict(model, {k: v.numpy() for k, v in theirs.state_dict().items()})
    batches = [np.random.default_rng(k).normal(size=(5, 3)).astype(np.float32) for k in range(8)]
    torch.optim.swa_utils.update_bn([torch.tensor(b) for b in batches], theirs)
    swa_utils.update_bn([Tensor(b) for b in batches[:4]], model)
    before = profile.counts["schedules"]
    swa_utils.update_bn([Tensor(b) for b in batches], model)
    assert profile.counts["schedules"] - before < len(batches)
    np.testing.assert_allclose(model[1].running_mean.numpy(), theirs[1].running_mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(model[1].running_var.numpy(), theirs[1].running_var.numpy(), rtol=1e-5)
    assert model[1].momentum == 0.1
