"""Gradients, settings, Variables and threads around a captured step: what it did once is right again, or refused."""

import asyncio
import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from monolect import Context, Tensor, Variable, function, grad, jit, nn, value_and_grad
from monolect.base.errors import ArgumentError, GradientError, JitError


def vector(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


def leaf(value: float = 1.0) -> Tensor:
    return vector(value).requires_grad_()


# ---- gradients from outside ------------------------------------------------------------------------------------------
def test_a_step_reads_the_gradient_of_its_call() -> None:
    w = leaf()
    optimizer = nn.optim.SGD([w], lr=0.5)
    step = jit(optimizer.step)
    for k, wanted in enumerate((0.0, -1.0, -1.0, -3.0, -5.0)):
        if k != 2:
            w.grad = None
            (w * (2 + 2 * (k > 2))).sum().backward()
        else:
            w.grad = None  # nothing to do
        step()
        assert w.tolist() == [wanted]
    assert len(step.captures) == 2


def test_a_step_reads_the_gradient_of_its_argument() -> None:
    step = jit(lambda x: x * x.grad)
    for k in (1.0, 2.0, 3.0):
        x = vector(k)
        x.grad = vector(2.0 * k)
        assert step(x).item() == 2 * k * k and x.grad.item() == 2 * k
    x.grad = vector(1.0)[:1]  # a view: its memory is that of its base
    assert step(x).item() == 3.0


def test_a_gradient_that_is_an_argument_too_is_only_read() -> None:
    w = leaf()

    @jit
    def step(x: Tensor) -> Tensor:
        w.grad *= 2
        return x + w.grad

    for k in (1.0, 2.0):
        w.grad = vector(k)
        assert step(vector(1.0)).item() == 1 + 2 * k and w.grad.item() == 2 * k
        with pytest.raises(JitError, match="both an argument and a gradient"):
            step(w.grad)
        assert w.grad.item() == 2 * k
    add = jit(lambda x: x + w.grad)
    assert [add(w.grad).item() for _ in range(3)] == [8.0] * 3


def test_a_gradient_that_is_left_is_added_to() -> None:
    w = leaf()

    @jit
    def step(x: Tensor) -> Tensor:
        loss = (x * w).sum()
        loss.backward()
        return loss

    for value in (2.0, 3.0, 4.0):
        w.grad = None
        step(vector(value))
        assert w.grad.tolist() == [value]
    first = w.grad
    for k in (1, 2, 3):
        step(vector(5.0))
        assert w.grad.tolist() == [4.0 + 5.0 * k] and w.grad is first
    assert len(step.captures) == 2 and step.usual is not None


def test_a_step_that_clears_gradients_at_its_end_sees_those_that_come_between() -> None:
    w = leaf()
    optimizer = nn.optim.SGD([w], lr=0.1)

    @jit
    def step(x: Tensor) -> Tensor:
        loss = (x * w).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for k in range(3):
        step(vector(1.0))
        np.testing.assert_allclose(w.numpy(), [1 - 0.1 * (k + 1)], rtol=1e-6)
    (w * 10).sum().backward()
    step(vector(1.0))
    np.testing.assert_allclose(w.numpy(), [0.7 - 1.1], rtol=1e-6)
    assert w.grad is None


def test_a_step_that_clears_first_is_captured_once_whatever_gradients_there_are() -> None:
    w = leaf()
    optimizer = nn.optim.SGD([w], lr=0.1)

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (x * w).sum()
        loss.backward()
        optimizer.step()
        return loss

    for k in range(4):
        step(vector(1.0))
        (w * 10).sum().backward()
        np.testing.assert_allclose(w.numpy(), [1 - 0.1 * (k + 1)], rtol=1e-6)
    assert len(step.captures) == 1 and step.usual is not None


# ---- derivatives through a step --------------------------------------------------------------------------------------
def test_the_derivative_of_a_step_and_of_what_calls_one() -> None:
    step = jit(lambda x: x * x)
    for value in (3.0, 4.0, 5.0):
        step(vector(value))
        assert grad(lambda x: step(x).sum())(vector(value)).tolist() == [2 * value]
        assert grad(jit(lambda x: (x * x).sum()))(vector(value)).tolist() == [2 * value]
        y, g = value_and_grad(lambda x: step(x * 2).sum())(vector(value))
        assert (y.item(), g.tolist()) == (4 * value**2, [8 * value])
        assert step(vector(value)).tolist() == [value**2]


def test_backward_does_not_drop_what_a_step_did() -> None:
    step = jit(lambda x: x * x)
    for value in (3.0, 4.0, 5.0):
        x = leaf(value)
        with pytest.raises(GradientError, match="result of a jitted step"):
            (step(x) + x).sum().backward()
        assert x.grad is None
        (step(x).detach() + x).sum().backward()
        assert x.grad.tolist() == [1.0]
    plain = vector(2.0)
    (step(plain) * x).sum().backward()  # which depends on no leaf
    assert x.grad.tolist() == [5.0]


@pytest.mark.parametrize("general", [False, True])
def test_only_results_that_depend_on_a_leaf_have_lost_their_graph(general: bool) -> None:
    x = leaf(3.0)
    step = jit(lambda v, _=None: ((v * x).sum(), v * 2))
    for value in (1.0, 2.0, 3.0, 4.0):
        loss, plain = step(vector(value), _=0) if general else step(vector(value))
        for root in (loss, (loss * x).sum()):
            with pytest.raises(GradientError, match="result of a jitted step"):
                root.backward()
        x.grad = None
        (plain * x).sum().backward()
        assert x.grad.tolist() == [2 * value]


@pytest.mark.sweep
@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_rearranged_result_has_lost_its_graph_too(general: bool, axis: int) -> None:
    """Views of it are merged with what rearranges its memory: the memory is what says so."""
    x = Tensor([[[3.0, 1.0, 2.0]] * 2] * 2, requires_grad=True)
    step = jit(lambda v, _=None: (v * x).sort(axis).values)
    for value in (1.0, 2.0, 3.0, 4.0):
        found = step(Tensor.full((2, 2, 3), value), _=0) if general else step(Tensor.full((2, 2, 3), value))
        for view in (found, found.reshape(-1), found.unsqueeze(1), found.transpose(0, 1)):
            with pytest.raises(GradientError, match="result of a jitted step"):
                ((view * 2).sum() + x.sum()).backward()
        assert x.grad is None


def test_the_derivative_of_a_function_that_looks_at_values() -> None:
    def argument(x: Tensor) -> Tensor:
        return (x * x).sum() * x.item()

    def derived(x: Tensor) -> Tensor:
        y = x * 2
        return (y * y).sum() * y.item()

    for value in (1.0, 3.0):
        assert grad(argument)(Tensor(value)).item() == 2 * value**2  # what was looked at is a number
        assert grad(derived)(Tensor(value)).item() == 16 * value**2
        assert grad(lambda x: grad(derived)(x * 1).sum())(Tensor(value)).item() == 16 * value


# ---- settings --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("made", [jit, function])
def test_settings_that_steer_a_function_are_part_of_its_signature(made) -> None:
    x = Tensor(np.ones(256, np.float32)).realize()
    f = made(lambda x: x.dropout(0.5))
    for _ in range(3):
        assert (f(x).numpy() == 1).all()
        with Context(TRAINING=1):
            assert (f(x).numpy() == 0).any()


# ---- Variables -------------------------------------------------------------------------------------------------------
def test_variables_of_one_name_are_told_apart() -> None:
    x = vector(*range(8))
    by_four, by_one = Variable("told_apart", 4, 8, multiple_of=4), Variable("told_apart", 1, 8)
    with by_four.bind(8), pytest.raises(ArgumentError, match="not bound"):
        x[:by_one].sum().item()
    with by_four.bind(8), by_one.bind(3):
        assert x[:by_one].sum().item() == 3 and x[:by_four].sum().item() == 28
        assert (x[:by_one].sum() + x[:by_four].sum()).item() == 31
    shorter = Variable("told_apart", 1, 7)
    with shorter.bind(2), by_one.bind(3), pytest.raises(ArgumentError, match="two Variables named told_apart"):
        (x[:by_one].sum() + x[:shorter].sum()).item()


def test_threads_and_tasks_bind_values_of_their_own() -> None:
    n = Variable("of_their_own", 1, 100)
    x = Tensor(np.ones(100, np.float32)).realize()
    step = jit(lambda x: x[:n].sum())
    got: list[tuple[int, float]] = []

    def work(k: int) -> None:
        for _ in range(50):
            with n.bind(k):
                got.append((k, step(x).item()))

    threads = [threading.Thread(target=work, args=(k,)) for k in (3, 50, 99)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    async def task(k: int) -> None:
        with n.bind(k):
            await asyncio.sleep(0.001 * (4 - k))
            got.append((k, x[:n].sum().item()))

    async def tasks() -> None:
        await asyncio.gather(*(task(k) for k in (1, 2, 3)))

    asyncio.run(tasks())
    assert len(got) == 153 and all(k == value for k, value in got)


# ---- threads ---------------------------------------------------------------------------------------------------------
def test_threads_that_call_a_step_for_the_first_time_at_once() -> None:
    total = vector(0.0)

    @jit
    def step(x: Tensor) -> Tensor:
        total.assign(total + x)
        return total * 1

    start = threading.Barrier(6)
    seen: list[float] = []

    def work() -> None:
        start.wait()
        seen.extend(step(vector(1.0)).item() for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(seen) == [float(k + 1) for k in range(120)] and total.item() == 120
    assert step(vector(1.0)).item() == 121 and len(step.captures) == 1


def test_an_instance_that_cannot_be_held_weakly_is_refused() -> None:
    class Slots:
        __slots__ = ("k",)

        @jit
        def times(self, x: Tensor) -> Tensor:
            return x * self.k

    s = Slots()
    s.k = 2.0
    with pytest.raises(JitError, match="no weak references"):
        s.times(vector(1.0))


def test_state_that_a_step_returns_is_no_result_without_a_graph() -> None:
    held = vector(2.0, 3.0)
    w = Tensor([1.0, 1.0], requires_grad=True)
    both = function(lambda x: (w * x, held))
    step = jit(lambda x: both(x))
    for _ in range(3):
        assert step(vector(1.0, 2.0))[1].tolist() == [2.0, 3.0]
        w.grad = None
        (w * held).sum().backward()
        assert w.grad.tolist() == [2.0, 3.0]


# ---- gradients after replays -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("general", [False, True])
def test_a_replay_clears_what_the_step_clears(general: bool) -> None:
    w = leaf()
    frozen = leaf()
    optimizer = nn.optim.SGD([w, frozen], lr=0.1)
    frozen.requires_grad = False

    @jit
    def step(x: Tensor, _: object = None) -> Tensor:
        loss = (x * w).sum()
        optimizer.zero_grad()
        return loss.detach()

    for _ in range(4):
        (w * 10).sum().backward()
        frozen.grad = vector(3.0)
        if general:
            step(vector(1.0), _=0)
        else:
            step(vector(1.0))
        assert w.grad is None and frozen.grad is None
    assert general or step.usual is not None


def training_step(w: Tensor, optimizer: nn.optim.Optimizer) -> Any:
    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (x * w).sum()
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("first", [0, 1, 3])
def test_the_gradient_of_a_tensor_that_a_step_updated_is_kept_once_it_is_read(first: int) -> None:
    w = leaf()
    optimizer = nn.optim.SGD([w], lr=0.1)
    step = training_step(w, optimizer)
    for k in range(first + 4):
        step(vector(1.0 + k))
        if k < first:
            continue
        (w * 10).sum().backward()  # is added
        for t in (w, copy.deepcopy(w), pickle.loads(pickle.dumps(w))):
            if k == first and first:
                with pytest.raises(JitError, match="a jitted step updated") as e:
                    _ = t.grad
                assert ("the next call keeps it" in str(e.value)) == (t is w)
            else:
                assert t.grad.tolist() == [11.0 + k]
        if k == first and first:
            with pytest.raises(JitError, match="that a jitted step updated"):
                optimizer.step()
    assert len(step.captures) == 1 and step.usual is not None
    w.grad = None
    (w * 10).sum().backward()
    assert w.grad.tolist() == [10.0]


def test_a_step_whose_gradients_nobody_reads_computes_none() -> None:
    w = Tensor(np.ones(1000, np.float32), requires_grad=True).realize()
    step = training_step(w, nn.optim.SGD([w], lr=0.1))
    for _ in range(3):
        step(Tensor(np.ones(1000, np.float32)))
    few = step.peak_bytes
    with pytest.raises(JitError):
        _ = w.grad
    step(Tensor(np.ones(1000, np.float32)))
    assert w.grad.tolist() == [1.0] * 1000 and step.peak_bytes >= few + 4000


def test_a_step_that_never_clears() -> None:
    w = leaf()
    optimizer = nn.optim.SGD([w], lr=0.5)
    step = jit(lambda x: ((x * w).sum().backward(), optimizer.step())[1:0])
    for _ in range(4):
        step(vector(1.0))
        assert w.grad is not None
    assert w.tolist() == [1 - 0.5 * (1 + 2 + 3 + 4)] and w.grad.tolist() == [4.0]


def test_a_step_that_never_clears_and_that_nobody_looks_at() -> None:
    w = leaf()
    optimizer = nn.optim.SGD([w], lr=0.5)
    step = jit(lambda x: ((x * w).sum().backward(), optimizer.step())[1:0])
    for _ in range(4):
        step(vector(1.0))
    assert w.tolist() == [1 - 0.5 * (1 + 2 + 3 + 4)] and w.grad.tolist() == [4.0]


def test_gradients_that_a_step_zeroes_in_place() -> None:
    w = leaf()

    @jit
    def step(x: Tensor) -> Tensor:
        loss = (x * w).sum()
        loss.backward()
        w.assign(w - 0.5 * w.grad)
        w.grad.zero_()
        return loss

    for k in range(5):
        step(vector(1.0))
        assert w.tolist() == [0.5 - 0.5 * k]
    assert w.grad.tolist() == [0.0] and len(step.captures) == 2


@pytest.mark.sweep
@pytest.mark.parametrize("detached", [False, True])
def test_two_steps_that_train_against_each_other(detached: bool) -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(s).astype(np.float32) for s in ((2, 2), (1, 2))]

    def losses(captured: bool) -> list[float]:
        g, d = (Tensor(a.copy(), requires_grad=True) for a in values)
        first, second = nn.optim.SGD([g], lr=0.1), nn.optim.SGD([d], lr=0.1)

        def discriminate(z: Tensor, x: Tensor) -> Tensor:
            second.zero_grad()
            made = z.linear(g).detach() if detached else z.linear(g)
            loss = (x.linear(d) - made.linear(d)).square().mean()
            loss.backward()
            second.step()
            return loss

        def generate(z: Tensor) -> Tensor:
            first.zero_grad()
            loss = -z.linear(g).linear(d).mean()
            loss.backward()
            first.step()
            return loss

        made = jit if captured else lambda f: f
        steps, found, data = (made(discriminate), made(generate)), [], np.random.default_rng(1)
        for _ in range(5):
            z, x, other = (Tensor(data.standard_normal((4, 2)).astype(np.float32)) for _ in range(3))
            found += [steps[0](z, x).item(), steps[1](other).item()]
        return found

    np.testing.assert_allclose(losses(True), losses(False), rtol=1e-5)


def test_a_saved_step_leaves_the_gradients_that_the_step_leaves(tmp_path) -> None:
    w = leaf()
    optimizer = nn.optim.SGD([w], lr=0.5)

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (x * w).sum()
        loss.backward()
        optimizer.step()
        return loss

    step(vector(1.0))
    step.save(tmp_path / "a.step", {"w": w})
    other = leaf(3.0)
    loaded = jit.load(tmp_path / "a.step", {"w": other})
    other.grad = vector(7.0)
    loaded(vector(1.0))
    assert other.tolist() == [2.5]
    with pytest.raises(JitError, match="that a jitted step updated"):
        _ = other.grad


def test_the_gradient_of_a_view_that_is_no_leaf_is_that_of_the_call() -> None:
    part = Tensor([1.0, 2.0, 3.0])[1:].detach().requires_grad_().requires_grad_(False)
    step, x = jit(lambda x: x if part.grad is None else x * part.grad), Tensor([1.0, 2.0])
    for values in (None, [3.0, 3.0], None, [4.0, 5.0]):
        part.grad = None if values is None else Tensor(values)
        assert step(x).tolist() == (x.tolist() if values is None else [values[0], 2 * values[1]])


def test_what_a_step_reads_keeps_its_graph() -> None:
    p, h = Tensor([0.5, 1.5], requires_grad=True), Tensor([0.1, 0.2])
    metric, read = jit(lambda y: y * 2), jit(lambda x: h * x)
    for _ in range(4):
        p.grad = None
        y = p * 2.0
        h.copy_(p * 3.0)
        _ = metric(y), read(Tensor(1.0))
        _ = (y.sum() + h.sum()).backward()
        assert p.grad.tolist() == [5.0, 5.0]


def test_a_state_that_a_step_replaces_has_lost_its_earlier_graph() -> None:
    p, h = Tensor([0.5, 1.5], requires_grad=True), Tensor([0.1, 0.2])
    replace = jit(lambda x: (h.copy_(h.detach() * 0.5 + x), x * 2)[1])
    for i in range(4):
        p.grad = None
        h.copy_(p * 2.0)
        h.realize()
        replace(Tensor(float(i)))
        _ = ((h * h).sum() + (p * p).sum()).backward()
        assert p.grad.tolist() == [1.0, 3.0]


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_state_that_a_step_computes_from_a_leaf_keeps_no_graph(calls: int) -> None:
    p, h = Tensor([0.5, 1.5], requires_grad=True), Tensor([0.1, 0.2])
    step = jit(lambda x: (h.copy_(p * x), x * 2)[1])
    for i in range(calls):
        step(Tensor(float(i)))
    with pytest.raises(GradientError, match="keeps no graph"):
        ((h * h).sum() + (p * p).sum()).backward()
    _ = ((h.detach() * 2).sum() + (p * p).sum()).backward()
    assert p.grad.tolist() == [1.0, 3.0]


def test_a_gradient_that_passes_to_earlier_calls_is_refused() -> None:
    p, h = Tensor([0.5, 1.5], requires_grad=True), Tensor([0.1, 0.2])

    def step(x: Tensor) -> Tensor:
        p.grad = None
        h.copy_((h * p).tanh() + x)
        return (h * h).sum().backward()

    captured = jit(step)
    captured(Tensor(1.0))
    with pytest.raises(GradientError, match="keeps no graph"):
        captured(Tensor(1.0))
    h.copy_(h.detach())
    captured(Tensor(1.0))


def test_a_gradient_that_passes_through_an_argument_is_refused() -> None:
    p = Tensor([0.5, 1.5], requires_grad=True)
    step = jit(lambda y: ((y * 2).sum() + (p * p).sum()).backward())
    with pytest.raises(GradientError, match="passes through an argument"):
        step(p * 3.0)
    step((p * 3.0).detach())
    assert p.grad.tolist() == [1.0, 3.0]
