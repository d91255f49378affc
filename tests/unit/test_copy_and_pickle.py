"""`copy` and `pickle` of tensors, modules, optimizers and steps: what is copied lives its own life."""

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monolect import Device, IRError, JitError, Tensor, Variable, dtypes, function, grad, jit, nn


def vector(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32))


def pickled(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


COPIES: dict[str, Callable[[Any], Any]] = {"deepcopy": copy.deepcopy, "pickle": pickled}
TENSORS: dict[str, Callable[[], Tensor]] = {
    "of an array": lambda: vector(1.0, 2.0, 3.0),
    "of its own": lambda: vector(1.0, 2.0, 3.0).clone().realize(),
    "a view": lambda: Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize()[1:, 1].flip(0),
    "not computed": lambda: vector(1.0, 2.0) * 3 + 1,
    "a number": lambda: Tensor(3.0),
    "one element": lambda: vector(5.0, 6.0).realize()[1],
    "a constant": lambda: Tensor.ones(2, 2),
    "empty": lambda: Tensor(np.zeros((0, 3), np.float32)),
    "no axes": lambda: vector(4.0).realize().reshape(()),
    "bool": lambda: vector(1.0, 2.0) > 1.5,
    "int8": lambda: Tensor([1, -2], dtype=dtypes.int8).realize(),
    "bfloat16": lambda: vector(1.5, 2.5).cast("bfloat16").realize(),
    "another device": lambda: Tensor([1.0, 2.0], device="python").realize(),
    "random": lambda: Tensor.rand(4),
}


@pytest.mark.parametrize("how", ["copy", *COPIES])
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_of_any_kind(name: str, how: str) -> None:
    t = TENSORS[name]()
    new = {"copy": copy.copy, **COPIES}[how](t)
    assert new is not t and isinstance(new, Tensor) and not new.requires_grad and new.grad is None
    assert (new.shape, new.dtype, new.device) == (t.shape, t.dtype, t.device)
    want = t.numpy().copy()
    np.testing.assert_array_equal(new.numpy(), want)
    t.assign(t.zeros_like()).realize()
    np.testing.assert_array_equal(new.numpy(), np.zeros_like(want) if how == "copy" else want)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", ["of an array", "of its own", "a view"])
def test_memory_is_not_shared(name: str, how: str) -> None:
    t = TENSORS[name]()
    new, want = COPIES[how](t), t.numpy().copy()
    t.numpy()[...] = 9.0
    np.testing.assert_array_equal(new.numpy(), want)
    new.numpy()[...] = 7.0
    assert set(t.numpy().flat) == {9.0}


@pytest.mark.parametrize("how", ["copy", *COPIES])
@pytest.mark.parametrize("is_computed", [True, False])
def test_a_leaf_is_another_leaf(how: str, is_computed: bool) -> None:
    w = (vector(2.0, 3.0) * 1).requires_grad_()
    if is_computed:
        w.realize()
    (w * w).sum().backward()
    new = {"copy": copy.copy, **COPIES}[how](w)
    assert new.requires_grad and new.grad.tolist() == w.grad.tolist() == [4.0, 6.0]
    assert (new.grad is w.grad) == (how == "copy")
    (new * 5).sum().backward()
    if how == "copy":  # a gradient is added to in place
        assert new.grad.tolist() == w.grad.tolist() == [9.0, 11.0]
        return
    assert new.grad.tolist() == [9.0, 11.0] and w.grad.tolist() == [4.0, 6.0]
    (w * 7).sum().backward()
    assert new.grad.tolist() == [9.0, 11.0] and w.grad.tolist() == [11.0, 13.0]


def test_a_shallow_copy_shares_memory() -> None:
    t = vector(1.0, 2.0)
    new = copy.copy(t)
    new[0] = 5.0
    t[1] = 7.0
    assert t.tolist() == new.tolist() == [5.0, 7.0]
    w = vector(2.0).requires_grad_()
    (copy.copy(w * w) * 3).sum().backward()  # of a value that is no leaf: the same graph
    assert w.grad.item() == 12.0


def test_what_is_not_computed_reaches_the_leaves_it_was_made_of() -> None:
    w = vector(3.0).requires_grad_()
    copy.deepcopy((w * w).sum()).backward()
    assert w.grad.item() == 6.0
    assert not pickled((w * w).sum()).requires_grad


@pytest.mark.parametrize("how", COPIES)
def test_tensors_that_are_one_stay_one(how: str) -> None:
    w = vector(1.0).requires_grad_()
    a, b, [c] = COPIES[how]((w, w, [w]))
    assert a is b is c is not w


class Net(nn.Module):
    """Tied weights, running statistics, a function, a step."""

    def __init__(self) -> None:
        self.first = nn.Linear(4, 4)
        self.tied = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.layers = nn.Sequential(nn.Linear(4, 4), Tensor.relu)
        self.n_calls = Tensor([0.0])

    def forward(self, x: Tensor) -> Tensor:
        self.n_calls.assign(self.n_calls + 1)
        return self.layers(self.norm(self.first(x) @ self.tied))

    @jit
    def step(self, x: Tensor) -> Tensor:
        return self.forward(x)


@pytest.mark.sweep
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("is_computed", [True, False])
def test_a_module_lives_its_own_life(how: str, is_computed: bool) -> None:
    x = Tensor(np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32))
    net = Net().realize() if is_computed else Net()
    if is_computed:
        net.step(x), net.step(x)
    new = COPIES[how](net)
    assert new.tied is new.first.weight is not net.tied and list(new.state_dict()) == list(net.state_dict())
    for a, b in zip(net.state_dict().values(), new.state_dict().values(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        assert a.requires_grad == b.requires_grad
    before = new.first.weight.numpy().copy()
    optimizer = nn.optim.SGD(net.parameters(), lr=0.1)

    @jit
    def train(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        train(x)
    assert np.abs(net.first.weight.numpy() - before).max() > 0
    np.testing.assert_array_equal(new.first.weight.numpy(), before)
    calls = new.n_calls.item()
    assert [new.step(x).shape for _ in range(3)] == [(8, 4)] * 3 and new.n_calls.item() == calls + 3
    net.eval()
    assert new.training and new.norm.training


def test_an_average_of_weights() -> None:
    net = nn.Linear(3, 1)
    average, optimizer = copy.deepcopy(net), nn.optim.SGD(net.parameters(), lr=0.5)
    for p in average.parameters():
        p.requires_grad = False

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (net(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        for a, p in zip(average.state_dict().values(), net.state_dict().values(), strict=True):
            a.assign(a * 0.9 + p.detach() * 0.1)
        return loss

    want = average.weight.numpy().astype(np.float64)
    for k in range(5):
        step(Tensor(np.full((4, 3), k / 5, np.float32)))
        want = want * 0.9 + net.weight.numpy() * 0.1
    np.testing.assert_allclose(average.weight.numpy(), want, rtol=1e-5, atol=1e-7)  # terms near 1 may cancel


@pytest.mark.parametrize("how", COPIES)
def test_a_run_goes_on_from_a_copy(how: str) -> None:
    def train(model: Any, optimizer: Any, k: int) -> float:
        optimizer.zero_grad()
        loss = (model(vector(1.0, float(k)).reshape(1, 2)) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    model = nn.Linear(2, 1)
    optimizer = nn.optim.Adam(model.parameters(), lr=0.1)
    for k in range(3):
        train(model, optimizer, k)
    both = COPIES[how]((model, optimizer))
    assert both[1].params[0] is both[0].weight
    assert [train(*both, k) for k in range(3)] == [train(model, optimizer, k) for k in range(3)]


# ---- steps -----------------------------------------------------------------------------------------------------------
scale = {"k": 2.0}


@jit
def scaled(x: Tensor) -> Tensor:
    return x * scale["k"]


@function
def cubed(x: Tensor) -> Tensor:
    return x * x * x


class Owner:
    def __init__(self, k: float) -> None:
        self.k = vector(k)
        self.own = jit(self.times)
        self.traced = function(self.times)

    def times(self, x: Tensor) -> Tensor:
        return x * self.k

    @jit
    def method(self, x: Tensor) -> Tensor:
        return x * self.k


@pytest.mark.parametrize("how", COPIES)
def test_steps(how: str) -> None:
    assert COPIES[how](scaled) is scaled and COPIES[how](cubed) is cubed
    owner = Owner(2.0)
    kept = owner.method
    for _ in range(2):
        assert [f(vector(1.0)).item() for f in (owner.own, owner.method, owner.traced, kept)] == [2.0] * 4
    new, other = COPIES[how]((owner, kept))
    assert other.__self__ is new
    new.k.assign(vector(5.0))
    assert not new.own.captures
    for _ in range(2):
        assert [f(vector(1.0)).item() for f in (new.own, new.method, new.traced, other)] == [5.0] * 4
        assert [f(vector(1.0)).item() for f in (owner.own, owner.method, owner.traced, kept)] == [2.0] * 4


def test_a_shallow_copy_of_a_step_has_captures_of_its_own() -> None:
    scaled(vector(1.0))
    new = copy.copy(scaled)
    assert new is not scaled and not new.captures and new(vector(3.0)).item() == 6.0
    owner = Owner(3.0)
    assert copy.copy(owner.method)(vector(2.0)).item() == 6.0


def test_a_saved_step_and_a_donated_tensor_are_refused(tmp_path) -> None:
    scaled(vector(1.0))
    scaled.save(tmp_path / "scaled.step")
    loaded = jit.load(tmp_path / "scaled.step")
    for how in (copy.copy, copy.deepcopy, pickled):
        with pytest.raises(JitError, match="a saved step"):
            how(loaded)
    gone = vector(1.0)
    jit(lambda x: x + 1, donate="x")(gone)
    for how in (copy.copy, copy.deepcopy, pickled):
        with pytest.raises(JitError, match="donated"):
            how(gone)


def test_inside_a_step_a_copy_is_of_the_call() -> None:
    w = vector(1.0)
    step = jit(lambda x: copy.deepcopy(x) * 2 + copy.deepcopy(w) + copy.copy(w))
    for k in range(3):
        w.assign(vector(float(k))).realize()
        assert step(vector(float(k))).item() == 4.0 * k
    with pytest.raises(JitError, match="pickling a tensor"):
        jit(lambda x: pickled(x))(w)
    assert grad(lambda x: (copy.deepcopy(x) * x).sum())(vector(3.0)).item() == 6.0


def test_subclasses_keep_what_they_hold() -> None:
    t = Labelled._wrap(vector(1.0, 2.0).uop)
    t.labels = ["a", "b"]
    for how in COPIES.values():
        new = how(t)
        assert type(new) is Labelled and new.labels == ["a", "b"] and new.labels is not t.labels
    assert copy.copy(t).labels is t.labels


class Labelled(Tensor):
    labels: list[str]


def _norms(model: nn.Module, queue: Any) -> None:
    queue.put({name: t * 2 for name, t in model.state_dict().items()})


def test_a_model_goes_to_another_process_and_tensors_come_back() -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    model = nn.Linear(2, 2)
    process = context.Process(target=_norms, args=(model, queue))
    process.start()
    got = queue.get(timeout=120)
    process.join(60)
    for name, t in model.state_dict().items():
        np.testing.assert_allclose(got[name].numpy(), t.numpy() * 2)


def test_what_is_one_is_not_copied_and_a_node_is_not_pickled():
    size = Variable("n", 1, 4) + 1
    assert copy.deepcopy(Device) is Device and pickle.loads(pickle.dumps(Device)) is Device
    assert copy.deepcopy(size) is size
    with pytest.raises(IRError, match="a node is not pickled"):
        pickle.dumps(size)
