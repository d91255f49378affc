"""State that an eager loop carries: each step costs the same, and compiles nothing after the first few."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor, Variable, dtypes, jit, nn
from monolect.backend.common.host.memory import stats
from monolect.base.errors import AllocationError
from monolect.ir.uop import live_nodes, toposort
from monolect.runtime.realize import execute
from tests.strategies import often

RNG = np.random.default_rng(3)
X = RNG.standard_normal((4, 8)).astype(np.float32)
W = (RNG.standard_normal((8, 8)) * 0.3).astype(np.float32)


def compiled(steps: Iterator[Any]) -> list[int]:
    """How many programs each step planned."""
    out = []
    before = {*execute.plans}
    for _ in steps:
        out.append(len({*execute.plans} - before))
        before |= {*execute.plans}
    return out


def recurrence(detach: bool = False, read: Callable[[Tensor], Any] = lambda t: t.numpy()) -> Iterator[Tensor]:
    h, w, x = Tensor(np.zeros((4, 8), np.float32)), Tensor(W), Tensor(X)
    out = Tensor(W[:, :3].copy())
    while True:
        h = (h @ w + x).tanh()
        h = h.detach() if detach else h
        read(h @ out)
        yield h


def mean() -> Iterator[Tensor]:
    m, x = Tensor(np.zeros(8, np.float32)), Tensor(X)
    while True:
        m = m * 0.9 + x.mean(0) * 0.1
        m.sum().item()
        yield m


def descent() -> Iterator[Tensor]:
    p, x = Tensor(np.ones(8, np.float32)), Tensor(X)
    while True:
        p = p - 0.1 * ((x * p).sum(1, keepdim=True) * x).mean(0)
        (x * p).sum().item()
        yield p


def parts() -> Iterator[Tensor]:
    t = Tensor(np.zeros(8, np.float32))
    while True:
        t[2:4] = t[1:3] * 0.5 + 1
        (t * 2).tolist()
        yield t


def kalman() -> Iterator[Tensor]:
    state, spread, noise = Tensor(np.ones(4, np.float32)), Tensor(np.eye(4, dtype=np.float32)), Tensor(W[:4, :4].copy())
    while True:
        spread = noise @ spread @ noise.T * 0.5 + noise
        gain = spread / (spread.abs().sum() + 1)
        state = state + gain @ (1 - state)
        (state * 2).numpy()
        yield state


LOOPS: dict[str, Callable[[], Iterator[Tensor]]] = {
    "recurrence": recurrence,
    "detached": lambda: recurrence(detach=True),
    "mean": mean,
    "descent": descent,
    "parts": parts,
    "kalman": kalman,
}


@pytest.mark.sweep
@pytest.mark.parametrize("has_leaf", [False, True])
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_step_costs_the_same_each_time(loop: Callable[[], Iterator[Tensor]], has_leaf: bool) -> None:
    leaf = Tensor([1.0], requires_grad=has_leaf)
    steps = loop()
    new = compiled(next(steps) for _ in range(6))
    assert sum(new[3:]) == 0, new
    gc.collect()
    nodes, memory = live_nodes(), stats().used_bytes
    assert sum(compiled(next(steps) for _ in range(40))) == 0
    gc.collect()
    assert live_nodes() <= nodes + 20 and stats().used_bytes <= memory + 2048
    assert len(toposort(next(steps).uop)) < 60
    assert leaf.item() == 1.0


@pytest.mark.parametrize("detach", [False, True])
def test_values_are_those_of_numpy(detach: bool) -> None:
    h, seen = np.zeros((4, 8), np.float32), []
    steps = recurrence(detach, lambda y: seen.append(y.numpy()))
    for _ in range(12):
        t = next(steps)
        h = np.tanh(h @ W + X)
        np.testing.assert_allclose(seen[-1], h @ W[:, :3], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(t.numpy(), h, rtol=1e-4, atol=1e-5)


def test_a_value_that_is_held_is_computed_twice_at_most() -> None:
    x = Tensor(X).realize()
    y = (x @ x.T).exp()
    y.sum().item()
    assert y.uop.op != "BUFFER", "the first batch is fused"
    y.max().item()
    assert y.uop.op == "BUFFER"
    np.testing.assert_allclose(y.numpy(), np.exp(X @ X.T), rtol=1e-4)


def test_what_nobody_holds_gets_no_memory() -> None:
    def forward(x: Tensor) -> Tensor:
        a = x.exp()
        b = a + 1
        return (a * b).sum()

    x, seen = Tensor(X).realize(), []
    for _ in range(3):
        runs: list[execute.Run] = []
        with execute.listening.to(runs):
            forward(x).item()
        seen.append([len(r.fresh) for r in runs])
    assert seen == [[1]] * 3


def test_large_values_of_small_inputs_get_none() -> None:
    x = Tensor(np.arange(3000, dtype=np.float32)).realize()
    far = (x.reshape(-1, 1) - x).abs()
    assert [far.max().item(), far.min().item(), far[5, 7].item()] == [2999.0, 0.0, 2.0]
    assert far.uop.op != "BUFFER"


def test_what_has_no_room_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = execute._run_batch

    def full(batch: Any, dev: str, as_symbolic: bool = False, also: Any = None) -> Any:
        if len(batch) > 1:
            raise AllocationError("no memory")
        return run(batch, dev, as_symbolic, also)

    monkeypatch.setattr(execute, "_run_batch", full)
    y = Tensor(X).exp()
    sums = [y.sum().item() for _ in range(3)]
    assert sums == sums[:1] * 3 and y.uop.op != "BUFFER"


def test_constants_and_views_get_none() -> None:
    one, row, data = Tensor.ones(8), Tensor(X)[1], Tensor(X)
    mask, local = Tensor.arange(8) > 3, data * 2
    for _ in range(3):
        local = row * one + mask
        (local * 2).sum().item()
    assert one.uop.op != "BUFFER" and mask.uop.op != "BUFFER" and local.uop.op != "BUFFER"


def test_a_variable_gives_each_time_another_value() -> None:
    n = Variable("n", 1, 8)
    x = Tensor(np.ones((8, 2), np.float32)).realize()
    part = x[:n].sum(0) * 2
    for value in (3, 5, 2, 7):
        with n.bind(value):
            assert (part + 1).tolist() == [2.0 * value + 1] * 2


@pytest.mark.parametrize("cut", [False, True])
def test_gradients_pass_through_what_got_memory(cut: bool) -> None:
    w, t = Tensor(W, requires_grad=True), torch.tensor(W, requires_grad=True)
    h, k = Tensor(X), torch.tensor(X)
    for i in range(7):
        h, k = (h @ w).tanh(), (k @ t).tanh()
        (h * 2).numpy()
        if cut and i == 4:
            h, k = h.detach(), k.detach()
    h.square().sum().backward()
    k.square().sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), t.grad.numpy(), rtol=1e-3, atol=1e-5)


def test_gradients_that_are_read_before_a_step_are_computed_twice_at_most() -> None:
    model = nn.Linear(8, 4).realize()
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)
    new = []
    for _ in range(6):
        before = {*execute.plans}
        optimizer.zero_grad()
        loss = model(Tensor(X)).square().mean().backward()
        norm = sum((p.grad.square().sum() for p in model.parameters()), Tensor(0.0)).sqrt().item()
        optimizer.step()
        assert norm > 0 and loss.item() > 0
        new.append(len({*execute.plans} - before))
    assert sum(new[3:]) == 0


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("has_leaf", [False, True])
def test_sums_that_are_read_at_the_end(captured: bool, has_leaf: bool) -> None:
    w = Tensor([1.0, 2.0], requires_grad=has_leaf)

    def step(x: Tensor) -> Tensor:
        loss = (w * x).sum()
        return (loss.backward() if has_leaf else loss).realize()

    f = jit(step) if captured else step
    total: Any = 0.0
    for i in range(300):
        w.grad = None
        total = total + f(Tensor([float(i), 1.0]))
    gc.collect()
    assert total.item() == sum(range(300)) + 600.0
    assert len(toposort(total.uop)) < 5


def test_captured_steps_are_as_before() -> None:
    h = Tensor(np.zeros((4, 8), np.float32))
    w = Tensor(W)

    @jit
    def step(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = (h @ w + x).tanh()
        middle = h * 2
        return h, middle.sum()

    x = Tensor(X)
    for _ in range(5):
        h, _ = step(x, h)
    assert len(step.captures) == 1 and all(len(c.capture.outputs) == 2 for c in step.captures.values())


# ---- programs at random ----------------------------------------------------------------------------------------------
OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "mix": (lambda s, o, x: s * 0.5 + o * 0.25 + x, lambda s, o, x: s * 0.5 + o * 0.25 + x),
    "tanh": (lambda s, o, x: (s + o).tanh(), lambda s, o, x: np.tanh(s + o)),
    "product": (lambda s, o, x: (s @ o) * 0.1 + x, lambda s, o, x: (s @ o) * 0.1 + x),
    "rows": (lambda s, o, x: s - s.mean(1, keepdim=True), lambda s, o, x: s - s.mean(1, keepdims=True)),
    "turned": (lambda s, o, x: s.T * 0.5 + x, lambda s, o, x: s.T * 0.5 + x),
    "largest": (lambda s, o, x: s.maximum(o) * 0.5, lambda s, o, x: np.maximum(s, o) * 0.5),
    "cut": (lambda s, o, x: s.detach() * 0.9 + x, lambda s, o, x: s * 0.9 + x),
    "same": (lambda s, o, x: s, lambda s, o, x: s),
}
step_ops = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([*OPS])), min_size=1, max_size=4)


@settings(max_examples=often(6, 100), deadline=None)
@given(
    ops=step_ops,
    every=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    hold=st.booleans(),
    leaf=st.booleans(),
    seed=st.integers(0, 99),
)
def test_programs_that_carry_state(ops: Any, every: list[int], hold: bool, leaf: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    there = [rng.uniform(-1, 1, (3, 3)).astype(np.float32) for _ in range(3)]
    at_all = Tensor([1.0], requires_grad=leaf)
    here = [Tensor(a.copy()) for a in there]
    held: list[tuple[Tensor, np.ndarray]] = []
    xs = rng.uniform(-1, 1, (40, 3, 3)).astype(np.float32)

    def steps() -> Iterator[None]:
        for i, x in enumerate(xs):
            given_x = Tensor(x)
            for to, other, name in ops:
                mine, theirs = OPS[name]
                here[to] = mine(here[to], here[other], given_x)
                there[to] = theirs(there[to], there[other], x)
            if hold and i % 5 == 0:
                held.append((here[0] * 2, there[0] * 2))
            for k, n in enumerate(every):
                if i % n == 0:
                    np.testing.assert_allclose((here[k] + 1).numpy(), there[k] + 1, rtol=1e-3, atol=1e-4)
            yield

    new = compiled(steps())
    assert sum(new[24:]) == 0, new
    for t, a in [*zip(here, there, strict=True), *held]:
        np.testing.assert_allclose(t.numpy(), a, rtol=1e-3, atol=1e-4)
    assert at_all.item() == 1.0 and here[0].dtype is dtypes.float32
