"""Layers and optimizers against PyTorch: the same weights, several steps, the same state."""

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import jit, nn
from monolect.base.errors import ArgumentError, AxisError, DTypeError, ShapeError
from monolect.runtime.profile import Recorder
from monolect.tensor.tensor import Tensor

rng = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def copied(ours: Any, theirs: torch.nn.Module) -> Any:
    """`ours` with the weights of `theirs`: the names are the same."""
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    return ours


LAYERS: list[tuple[str, Callable[[], Any], Callable[[], torch.nn.Module], tuple]] = [
    ("Linear", lambda: nn.Linear(4, 3), lambda: torch.nn.Linear(4, 3), (2, 5, 4)),
    ("Linear without bias", lambda: nn.Linear(4, 3, bias=False), lambda: torch.nn.Linear(4, 3, bias=False), (2, 4)),
    ("Conv1d", lambda: nn.Conv1d(2, 3, 3, padding=1), lambda: torch.nn.Conv1d(2, 3, 3, padding=1), (2, 2, 6)),
    ("Conv2d", lambda: nn.Conv2d(2, 4, 3, 2, groups=2), lambda: torch.nn.Conv2d(2, 4, 3, 2, groups=2), (2, 2, 7, 7)),
    ("Conv3d", lambda: nn.Conv3d(1, 2, 2), lambda: torch.nn.Conv3d(1, 2, 2), (1, 1, 3, 4, 3)),
    ("BatchNorm1d", lambda: nn.BatchNorm1d(3), lambda: torch.nn.BatchNorm1d(3), (6, 3)),
    ("BatchNorm2d", lambda: nn.BatchNorm2d(3), lambda: torch.nn.BatchNorm2d(3), (4, 3, 2, 2)),
    ("LayerNorm", lambda: nn.LayerNorm(5), lambda: torch.nn.LayerNorm(5), (2, 3, 5)),
    ("RMSNorm", lambda: nn.RMSNorm(5), lambda: torch.nn.RMSNorm(5), (2, 5)),
    ("GroupNorm", lambda: nn.GroupNorm(2, 4), lambda: torch.nn.GroupNorm(2, 4), (2, 4, 3)),
    (
        "Sequential",
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3), nn.Tanh()),
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
            torch.nn.Linear(8, 3), torch.nn.Tanh(),
        ),
        (2, 1, 6, 6),
    ),
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("case", LAYERS, ids=[c[0] for c in LAYERS])
def test_layers(case: tuple) -> None:
    _, make, make_torch, shape = case
    theirs = make_torch()
    ours = copied(make(), theirs)
    x = array(*shape)
    mine, other = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, t = ours(mine), theirs(other)
    c = array(*y.shape)
    (y * Tensor(c)).sum().backward()
    (t * torch.tensor(c)).sum().backward()
    np.testing.assert_allclose(y.numpy(), t.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-3, atol=1e-4)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=1e-4)
    for (name, s), (other_name, o) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        assert name == other_name
        np.testing.assert_allclose(s.numpy(), o.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name", ["ReLU", "LeakyReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "Softmax", "Identity", "Flatten", "AvgPool2d"]
)
def test_layers_without_parameters(name: str) -> None:
    x = array(2, 3, 4, 4)
    args = {"AvgPool2d": (2,), "Softmax": (-1,)}.get(name, ())
    y, t = getattr(nn, name)(*args)(Tensor(x)), getattr(torch.nn, name)(*args)(torch.tensor(x))
    np.testing.assert_allclose(y.numpy(), t.numpy(), rtol=1e-5, atol=1e-6)


def test_embedding() -> None:
    theirs = torch.nn.Embedding(7, 3, padding_idx=2)
    ours = copied(nn.Embedding(7, 3, padding_idx=2), theirs)
    index = np.array([[1, 2], [6, 1]])
    y, t = ours(Tensor(index)), theirs(torch.tensor(index))
    c = array(2, 2, 3)
    (y * Tensor(c)).sum().backward()
    (t * torch.tensor(c)).sum().backward()
    np.testing.assert_allclose(y.numpy(), t.detach().numpy())
    np.testing.assert_allclose(ours.weight.grad.numpy(), theirs.weight.grad.numpy(), rtol=1e-6)
    assert (nn.Embedding(7, 3, padding_idx=-1).weight.numpy()[6] == 0).all()


@pytest.mark.sweep
@pytest.mark.parametrize("batch_first", [False, True])
def test_multihead_attention(batch_first: bool) -> None:
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first)
    ours = copied(nn.MultiheadAttention(8, 2, batch_first=batch_first), theirs)
    q, kv = array(3, 4, 8), array(3, 4, 8)
    shape = (4, 4) if batch_first else (3, 3)
    hidden = np.triu(np.ones(shape, bool), 1)
    padding = np.zeros((3, 4) if batch_first else (4, 3), bool)
    padding[0, -1] = True
    options = {"need_weights": False}
    y, _ = ours(Tensor(q), Tensor(kv), Tensor(kv), Tensor(padding), attn_mask=Tensor(hidden))
    t, _ = theirs(*map(torch.tensor, (q, kv, kv, padding)), attn_mask=torch.tensor(hidden), **options)
    np.testing.assert_allclose(y.numpy(), t.detach().numpy(), rtol=1e-4, atol=1e-5)
    y, _ = ours(Tensor(q[0]), Tensor(kv[0]), Tensor(kv[0]))
    t, _ = theirs(*map(torch.tensor, (q[0], kv[0], kv[0])), **options)
    np.testing.assert_allclose(y.numpy(), t.detach().numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="num_heads"):
        nn.MultiheadAttention(8, 3)


@pytest.mark.sweep
@pytest.mark.parametrize("of_bools", [False, True])
@pytest.mark.parametrize("padded_bools", [False, True])
def test_masks_of_multihead_attention_hide_what_either_hides(of_bools: bool, padded_bools: bool) -> None:
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    ours = copied(nn.MultiheadAttention(8, 2, batch_first=True), theirs)
    x = array(3, 4, 8)
    hidden, padding = np.triu(np.ones((4, 4), bool), 1), np.zeros((3, 4), bool)
    padding[0, 0] = padding[1, 2] = True  # the first query of the first row sees nothing

    def numbers(mask: np.ndarray, stays: bool) -> np.ndarray:
        return mask if stays else np.where(mask, -np.inf, 0.0).astype(np.float32)

    masks = numbers(hidden, of_bools), numbers(padding, padded_bools)
    y, _ = ours(*[Tensor(x)] * 3, attn_mask=Tensor(masks[0]), key_padding_mask=Tensor(masks[1]))
    arguments = {"attn_mask": torch.tensor(masks[0]), "key_padding_mask": torch.tensor(masks[1])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # masks of two kinds are deprecated there
        t, _ = theirs(*[torch.tensor(x)] * 3, need_weights=False, **arguments)
    np.testing.assert_allclose(y.numpy(), t.detach().numpy(), rtol=1e-4, atol=1e-5)
    causal, _ = ours(*[Tensor(x)] * 3, is_causal=True, key_padding_mask=Tensor(masks[1]))
    np.testing.assert_allclose(causal.numpy(), y.numpy(), rtol=1e-4, atol=1e-5)


def test_initial_weights_have_the_bounds_of_pytorch() -> None:
    w = nn.Linear(100, 50).weight.numpy()
    assert np.abs(w).max() <= 0.1 and np.abs(w).max() > 0.098
    k = nn.Conv2d(4, 32, 5).weight.numpy()
    assert np.abs(k).max() <= 0.1 and np.abs(k).max() > 0.098
    assert abs(nn.Embedding(100, 50).weight.numpy().std() - 1.0) < 0.05


# ---- modules ---------------------------------------------------------------------------------------------------------
def test_batch_norm_tracks_in_training_and_uses_it_in_evaluation() -> None:
    theirs, ours = torch.nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    for _ in range(3):
        x = array(4, 3, 2, 2) * 2 + 1
        ours(Tensor(x)).realize()
        theirs(torch.tensor(x))
    assert ours.num_batches_tracked.item() == 3
    np.testing.assert_allclose(ours.running_var.numpy(), theirs.running_var.numpy(), rtol=1e-5)
    x = array(2, 3, 2, 2)
    y, t = ours.eval()(Tensor(x)), theirs.eval()(torch.tensor(x))
    np.testing.assert_allclose(y.numpy(), t.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert ours.num_batches_tracked.item() == 3
    with pytest.raises(ShapeError, match="BatchNorm2d: rank"):
        ours(Tensor.ones(2, 3))


def test_train_and_eval_reach_everything_below() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.blocks = [nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5))]
            self.by_name = {"last": nn.Dropout(1.0)}

        def forward(self, x: Tensor) -> Tensor:
            return self.by_name["last"](x)

    model = Model()
    assert len(list(model.modules())) == 5 and model.training
    x = Tensor.ones(3)
    assert model(x).tolist() == [0.0] * 3
    assert model.eval()(x).tolist() == [1.0] * 3
    assert not any(m.training for m in model.modules())
    assert all(m.training for m in model.train().modules())


def test_containers() -> None:
    s = nn.Sequential(nn.Linear(2, 3), nn.ReLU()).append(nn.Linear(3, 1))
    assert list(s.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert len(s) == 3 and isinstance(s[1], nn.ReLU) and len(s[:2]) == 2
    assert "Linear(2, 3, bias=True)" in repr(s)
    assert "(1): Tensor.relu\n  (2): " in repr(nn.Sequential(nn.ReLU(), Tensor.relu, nn.Sequential(nn.Tanh())))
    with pytest.raises(AxisError, match="Sequential"):
        s[3]
    layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    assert len(layers.parameters()) == 4
    with pytest.raises(NotImplementedError):
        layers(Tensor.ones(2))
    with pytest.raises(NotImplementedError, match="Module defines no forward"):
        nn.Module()(1)


def test_shared_and_frozen_parameters() -> None:
    a = nn.Linear(2, 2)
    b = nn.Sequential(a, a)
    assert len(b.parameters()) == 2 and len(b.state_dict()) == 4
    a.requires_grad_(False)
    assert len(b.parameters()) == 2 and not any(p.requires_grad for p in b.parameters())


def test_frozen_parameters_stay_parameters() -> None:
    """A target network and an average follow the trained one, and what is frozen for a part of a step thaws."""

    def losses(lib: Any, wrap: Any) -> list[Any]:
        data = lib.tensor
        model, other = (
            filled(lib, lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 1))) for _ in "ab"
        )
        target = copy.deepcopy(model).requires_grad_(False)
        unused = lib.nn.Parameter(data([1.0]), requires_grad=False)
        assert isinstance(unused, lib.nn.Parameter) and not unused.requires_grad
        optimizer = lib.optim.Adam([*model.parameters(), unused], lr=0.05)
        tuned = lib.optim.SGD(other.parameters(), lr=0.1)
        average = lib.optim.swa_utils.AveragedModel(model).requires_grad_(False)
        out = []

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = ((model(x) - target(x) - 1) ** 2).mean()
            loss.backward()
            optimizer.step()
            with lib.no_grad():
                for t, p in zip(target.parameters(), model.parameters(), strict=True):
                    t.lerp_(p, 0.25)
            for p in model.parameters():
                p.requires_grad_(False)
            tuned.zero_grad()
            second = (model(other(x).repeat(1, 3)) ** 2).mean()
            second.backward()
            tuned.step()
            for p in model.parameters():
                p.requires_grad_(True)
            return loss, second

        run = wrap(step)
        for i in range(5):
            out += [float(v.item()) for v in run(data(np.linspace(-1, i, 12, dtype=np.float32).reshape(4, 3)))]
            average.update_parameters(model)
        out += [float(p.sum().item()) for m in (model, target, other, average) for p in m.parameters()]
        return out

    def filled(lib: Any, model: Any) -> Any:
        with lib.no_grad():
            for i, p in enumerate(model.parameters()):
                p.copy_(lib.tensor(np.linspace(-0.5, 0.4 + i, p.numel(), dtype=np.float32).reshape(tuple(p.shape))))
        return model

    expected = losses(torch, lambda f: f)
    for wrap in (lambda f: f, jit):
        np.testing.assert_allclose(losses(monolect, wrap), expected, rtol=2e-4, atol=1e-5)


def test_frozen_parameters_are_copied_and_stored_as_such() -> None:
    model = nn.Linear(2, 2).requires_grad_(False)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [name for name, _ in other.named_parameters()] == ["weight", "bias"]
        assert not any(p.requires_grad for p in other.parameters())
        assert all(p.requires_grad for p in other.requires_grad_().parameters())
    assert nn.ParameterList([model.weight])[0] is model.weight


def test_layer_errors() -> None:
    with pytest.raises(ArgumentError, match="groups"):
        nn.Conv2d(3, 4, 3, groups=2)
    with pytest.raises(ArgumentError, match="kernel_size"):
        nn.Conv2d(3, 4, 0)
    with pytest.raises(ArgumentError, match="num_groups"):
        nn.GroupNorm(2, 3)
    with pytest.raises(ArgumentError, match="Dropout"):
        nn.Dropout(-0.1)
    with pytest.raises(ArgumentError, match="padding_idx"):
        nn.Embedding(3, 2, padding_idx=3)
    with pytest.raises(ShapeError, match="the input does not fit the weight") as e:
        nn.Linear(3, 2)(Tensor.ones(2, 4))
    assert (e.value.expected, str(e.value.found)) == ("(..., 3), as the weight is (2, 3)", "(2, 4)")
    with pytest.raises(ShapeError, match="conv2d: the input does not fit the weight") as e:
        nn.Conv2d(4, 2, 3, groups=2)(Tensor.ones(1, 3, 5, 5))
    assert "4 channels = 2 groups * 2, as the weight is (2, 2, 3, 3)" in str(e.value.expected)


# ---- optimizers ------------------------------------------------------------------------------------------------------
OPTIMIZERS: list[tuple[str, dict]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("Adam", {"lr": 0.05}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-3}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_optimizers(name: str, options: dict) -> None:
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    ours = copied(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), theirs)
    mine = getattr(nn.optim, name)(ours.parameters(), **options)
    other = getattr(torch.optim, name)(theirs.parameters(), **options)
    for step in range(5):
        x, y = array(6, 4), array(6, 2)
        if step == 3:
            mine.lr = 0.02
            other.param_groups[0]["lr"] = 0.02
        mine.zero_grad()
        other.zero_grad()
        ours(Tensor(x)).mse_loss(Tensor(y)).backward()
        torch.nn.functional.mse_loss(theirs(torch.tensor(x)), torch.tensor(y)).backward()
        mine.step()
        other.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-4, atol=2e-6)


def test_float64_parameters_are_stepped_in_float64() -> None:
    a = rng.standard_normal(5)
    p, q = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    mine, other = nn.optim.Adam([p], lr=0.01), torch.optim.Adam([q], lr=0.01)
    for _ in range(4):
        p.grad = q.grad = None
        (p * p).sum().backward()
        (q * q).sum().backward()
        mine.step()
        other.step()
    np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-12)


def test_loss_and_step_in_one_batch() -> None:
    p = Tensor([2.0], requires_grad=True)
    optimizer = nn.optim.SGD([p], lr=0.25)
    loss = (p * p).sum()
    loss.backward()
    loss.realize(*optimizer.schedule_step())
    assert loss.item() == 4.0 and p.tolist() == [1.0]


def test_a_loss_read_after_the_step_is_the_loss_before_it() -> None:
    p = Tensor([2.0], requires_grad=True)
    optimizer = nn.optim.SGD([p], lr=0.25)
    loss = (p * p).sum()
    loss.backward()
    optimizer.step()
    assert loss.item() == 4.0 and p.tolist() == [1.0]


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_captured_step_replays_with_the_learning_rate_of_now(name: str) -> None:
    def run(wrap: Any) -> list[list[float]]:
        p = Tensor([10.0, -2.0], requires_grad=True)
        optimizer = getattr(nn.optim, name)([p], lr=1.0)

        @wrap
        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (p * p * x).sum()
            loss.backward()
            return loss.realize(*optimizer.schedule_step())

        seen = []
        for i in range(6):
            if i == 3:
                optimizer.lr = 0.125
            step(Tensor([0.25 * i]))
            seen.append(p.tolist())
        assert wrap is not jit or len(step.captures) == 1
        return seen

    np.testing.assert_allclose(run(jit), run(lambda f: f), rtol=1e-6)


def test_a_captured_step_that_reads_the_learning_rate_as_a_number_is_another_where_it_changed() -> None:
    optimizer = nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
    step = jit(lambda x: x * optimizer.lr)
    assert step(Tensor([1.0])).item() == 0.5
    optimizer.lr = 0.25
    assert step(Tensor([1.0])).item() == 0.25 and len(step.captures) == 2


OFF: list[tuple[str, dict, str]] = [
    ("SGD", {"momentum": 0.9}, "momentum"),
    ("SGD", {"momentum": 0.9, "nesterov": True}, "momentum"),
    ("RMSprop", {"momentum": 0.9, "centered": True}, "momentum"),
    ("RMSprop", {"centered": True}, "centered"),
]


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [lambda f: f, jit])
@pytest.mark.parametrize("name, options, setting", OFF)
def test_a_setting_that_is_off_for_some_steps(name: str, options: dict, setting: str, wrap) -> None:
    """Its state is not changed meanwhile, as in PyTorch."""
    p, q = Tensor(np.array([1.0, 2.0]), requires_grad=True), torch.tensor([1.0, 2.0], dtype=torch.float64)
    mine = getattr(nn.optim, name)([p], lr=0.1, **options)
    other = getattr(torch.optim, name)([q.requires_grad_()], lr=0.1, **options)
    step = wrap(mine.step)
    for k in range(9):
        value = options[setting] if k // 3 != 1 else type(options[setting])()
        setattr(mine, setting, value)
        other.param_groups[0][setting] = value
        p.grad, q.grad = Tensor(np.array([1.0, k])), torch.tensor([1.0, k], dtype=torch.float64)
        step()
        other.step()
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("name, setting", [("SGD", "momentum"), ("RMSprop", "momentum"), ("RMSprop", "centered")])
def test_a_setting_without_its_state_is_refused(name: str, setting: str) -> None:
    p = Tensor([1.0], requires_grad=True)
    optimizer = getattr(nn.optim, name)([p], lr=0.5)
    setattr(optimizer, setting, 0.5)
    p.grad = Tensor([1.0])
    for call in (optimizer.step, optimizer.schedule_step):
        with pytest.raises(ArgumentError, match=f"{setting} given to {name}"):
            call()
    assert p.tolist() == [1.0] and optimizer.state_dict()["numbers.0"].tolist() == [0.5, 0.0]


def test_steps_without_gradients_change_nothing() -> None:
    p, q = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
    optimizer = nn.optim.Adam([p, q], lr=0.1)
    optimizer.step()
    (p * 3).sum().backward()
    optimizer.step()
    assert q.tolist() == [1.0] and p.item() < 1.0
    assert optimizer.state_dict()["numbers.0"].tolist()[1:] == [1.0, 0.0]


LATE = {"first": (0,), "then": (0, 1), "both": (0, 1, 2), "without": (1, 2), "all": (0, 1, 2)}


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_a_parameter_counts_its_own_steps(name: str, options: dict, wrap: Any) -> None:
    """As in PyTorch it takes none without a gradient; the state of the run is put into a new optimizer on the way."""
    start = [array(3), array(3), array(2, 2)]
    ours = [Tensor(a.copy(), requires_grad=True) for a in start]
    theirs = [torch.tensor(a, requires_grad=True) for a in start]
    other = getattr(torch.optim, name)(theirs, **options)

    def steps() -> tuple[Any, Any]:
        optimizer = getattr(nn.optim, name)(ours, **options)

        @wrap
        def step(scale: Tensor, which: tuple[int, ...]) -> None:
            optimizer.zero_grad()
            (sum((ours[i] * ours[i]).sum() for i in which) * scale).backward()
            optimizer.step()

        return optimizer, step

    optimizer, step = steps()
    for which in LATE.values():
        for scale in (1.0, 0.5, 2.0):
            step(Tensor(scale), which)
            other.zero_grad()
            (sum((theirs[i] * theirs[i]).sum() for i in which) * scale).backward()
            other.step()
            for p, q in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-4, atol=2e-6)
        if which == LATE["then"]:
            state = {k: v.numpy().copy() for k, v in optimizer.state_dict().items()}
            optimizer, step = steps()
            optimizer.load_state_dict(state)
    assert optimizer.state_dict()["numbers.0"].tolist()[1:] == [12.0, 12.0, 9.0]


def test_parameters_that_step_together_share_their_scalars() -> None:
    def kernels(late: bool) -> int:
        ours = [Tensor(array(3), requires_grad=True) for _ in range(8)]
        optimizer = nn.optim.Adam(ours, lr=0.1)
        for first in (late, False, False):
            optimizer.zero_grad()
            sum((p * p).sum() for p in ours[first:]).backward()
            with Recorder() as seen:
                optimizer.step()
        return len(seen)

    numbers, scalars, updates = 1, 1, 4  # two parameters of a shape in one kernel
    assert kernels(late=False) <= numbers + scalars + updates
    assert kernels(late=True) <= numbers + 2 * scalars + 2 * updates


def test_counts_that_were_loaded_with_a_model_are_counted_on() -> None:
    def run(optimizer: Any, p: Tensor, q: Tensor, both: bool) -> None:
        optimizer.zero_grad()
        ((p * p).sum() + (q * q).sum() if both else (p * p).sum()).backward()
        optimizer.step()

    def made() -> tuple[Any, Tensor, Tensor]:
        p, q = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0], requires_grad=True)
        return nn.optim.Adam([p, q], lr=0.1), p, q

    first, second = made(), made()
    for _ in range(3):
        run(*first, both=False)
    whole = nn.state.get_state_dict(first)
    nn.state.load_state_dict(second, {k: v.numpy().copy() for k, v in whole.items()})
    run(*first, both=True)
    run(*second, both=True)
    assert first[1].tolist() == second[1].tolist() and first[2].tolist() == second[2].tolist()
    assert second[0].state_dict()["numbers.0"].tolist()[1:] == [4.0, 1.0]


def test_optimizer_state_continues_a_run() -> None:
    def run(optimizer: Any, p: Tensor, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            ((p - 3.0) * (p - 3.0)).sum().backward()
            optimizer.step()

    p = Tensor([0.0, 1.0], requires_grad=True)
    first = nn.optim.Adam([p], lr=0.1)
    run(first, p, 3)
    q = Tensor(p.numpy().copy(), requires_grad=True)
    second = nn.optim.Adam([q], lr=0.5)
    second.load_state_dict({k: v.numpy().copy() for k, v in first.state_dict().items()})
    assert abs(second.lr - 0.1) < 1e-7
    run(first, p, 3)
    run(second, q, 3)
    assert p.tolist() == q.tolist()


def test_optimizer_errors() -> None:
    p = Tensor([1.0], requires_grad=True)
    with pytest.raises(ArgumentError, match="params"):
        nn.optim.SGD([])
    with pytest.raises(ArgumentError, match="requires_grad=True"):
        nn.optim.SGD([Tensor([1.0])])
    with pytest.raises(DTypeError, match="Tensors"):
        nn.optim.SGD([1.0])
    with pytest.raises(ArgumentError, match="lr"):
        nn.optim.Adam([p], lr=-1.0)
    with pytest.raises(ArgumentError, match="nesterov"):
        nn.optim.SGD([p], nesterov=True)
    with pytest.raises(ArgumentError, match=r"betas\[1\]"):
        nn.optim.Adam([p], betas=(0.9, 1.0))


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_softmax_without_an_axis_takes_that_of_torch() -> None:
    for shape in ((), (3,), (2, 3), (2, 3, 2), (2, 3, 2, 2), (1, 2, 3, 2, 2)):
        x = array(*shape)
        expected = torch.nn.Softmax()(torch.tensor(x))
        np.testing.assert_allclose(nn.Softmax()(Tensor(x)).numpy(), expected.numpy(), rtol=1e-5, err_msg=str(shape))


@pytest.mark.parametrize("module", [nn, nn.optim, nn.state, nn.datasets])
def test_dir_lists_what_is_public(module) -> None:
    names = dir(module)
    assert names == sorted(module.__all__) and not {"Any", "import_module", "annotations"} & {*names}
    for name in names:
        x = getattr(module, name)
        assert getattr(x, "__module__", x.__name__).startswith("monolect")


def test_what_is_unfrozen_is_what_was_a_parameter() -> None:
    class Counted(nn.Module):
        buffer_names = ("seen",)

        def __init__(self) -> None:
            self.norm, self.seen, self.w = nn.BatchNorm1d(3), Tensor([0.0]), Tensor([1.0], requires_grad=True)

    model = Counted()
    names = [name for name, _ in model.named_parameters()]
    assert names == ["w", "norm.weight", "norm.bias"]
    model.requires_grad_(False)
    assert not any(p.requires_grad for p in model.parameters())
    model.requires_grad_()
    assert all(p.requires_grad for p in model.parameters())
    assert [name for name, _ in model.named_parameters()] == names
