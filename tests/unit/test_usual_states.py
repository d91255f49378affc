"""State in the usual call of a captured step: updated in place or moved, it is what plain calls would leave."""

import random
import sys
import threading

import numpy as np
import pytest

from monolect import JitError, Tensor, Variable, jit, nn
from tests.strategies import often

OPTIMIZERS = {
    "SGD": (nn.optim.SGD, {"lr": 0.05}),
    "SGD with momentum": (nn.optim.SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    "SGD with Nesterov": (nn.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "Adam": (nn.optim.Adam, {"lr": 0.01}),
    "Adam with decay": (nn.optim.Adam, {"lr": 0.01, "weight_decay": 0.01}),
    "AdamW": (nn.optim.AdamW, {"lr": 0.01}),
    "RMSprop": (nn.optim.RMSprop, {"lr": 0.01}),
    "RMSprop, centered": (nn.optim.RMSprop, {"lr": 0.01, "momentum": 0.9, "centered": True}),
}
STEPS = 20


def vector(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


def training(name: str):
    """A model and its optimizer, the same ones each time, and a step of them."""
    rng = np.random.default_rng(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10))
    for p in model.parameters():
        p.assign(Tensor(rng.standard_normal(p.shape).astype(np.float32) / 4)).realize()
    kind, options = OPTIMIZERS[name]
    optimizer = kind(model.parameters(), **options)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, step


HOLDERS = {
    "nobody": lambda t: None,
    "a tensor": lambda t: Tensor(t),
    "a view": lambda t: Tensor(t.reshape(-1)[1:]),
    "a graph": lambda t: t.detach() * 2,
    "an array": lambda t: t.numpy(),
}


@pytest.mark.sweep
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_every_optimizer_have_a_usual_call(name: str, holder: str) -> None:
    rng = np.random.default_rng(7)
    (m, o, plain), (jm, jo, captured) = training(name), training(name)
    step, held = jit(captured), []
    for k in range(STEPS):
        x, y = (Tensor(rng.standard_normal((4, n)).astype(np.float32)).realize() for n in (8, 10))
        want, got = plain(x, y), step(x, y)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4)
        if k % 3 == 2:
            states = [*jm.parameters(), *jo.state_dict().values()]
            held += [
                (h, np.array(h.numpy() if isinstance(h, Tensor) else h))
                for t in states
                if (h := HOLDERS[holder](t)) is not None
            ]
    assert step.usual is not None and len(step.captures) == 1
    for t, want in zip(
        (*jm.parameters(), *jo.state_dict().values()), (*m.parameters(), *o.state_dict().values()), strict=True
    ):
        np.testing.assert_allclose(t.numpy(), want.numpy(), rtol=1e-3, atol=1e-5)
    for h, before in held:
        np.testing.assert_array_equal(h.numpy() if isinstance(h, Tensor) else h, before)


# Each new value of a state, from states and arguments, in monolect and NumPy alike.
VALUES = (
    lambda s, t, a: s[::-1] + a, lambda s, t, a: t * 0.5 + 1, lambda s, t, a: s + t[::-1], lambda s, t, a: t * 1,
    lambda s, t, a: s * 0.5 - a[::-1], lambda s, t, a: s.sum() * 0.125 + t,
)  # fmt: skip


def program(rng: random.Random):
    """A step over three states and two arguments, as a function of lists of either kind; what it returns."""
    lines = [
        (rng.randrange(4), rng.randrange(len(VALUES)), rng.randrange(3), rng.randrange(2))
        for _ in range(rng.randint(1, 4))
    ]
    returned = [rng.randrange(4) for _ in range(rng.randint(0, 2))]

    def run(states: list, args: list, assign) -> list:
        places = [*states, args[0]]  # the first argument is assigned, too
        for to, f, other, a in lines:
            assign(places, to, VALUES[f](places[to], places[other], args[a]))
        return [places[k] for k in returned] + [places[0] + args[1]]

    return run


def store(places: list, to: int, value: np.ndarray) -> None:
    places[to][:] = value.astype(np.float32)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(often(2, 4)))
def test_random_states_and_holders(part: int) -> None:
    n_usual = n_moving = 0
    for seed in range(part * 25, part * 25 + 25):
        print("seed", seed)
        rng = random.Random(seed)
        run, n = program(rng), rng.choice([2, 5])
        numbers = [np.arange(k, k + n, dtype=np.float32) for k in range(3)]
        states, held = [vector(*v) for v in numbers], []

        def f(x: Tensor, y: Tensor, run=run, states=states) -> tuple:
            return tuple(run(states, [x, y], lambda places, to, value: places[to].assign(value)))

        step = jit(f)
        for k in range(8):
            given = [np.full(n, k + 1, np.float32), np.arange(n, dtype=np.float32) * k]
            args = [vector(*v) for v in given]
            got = step(*args)
            want = [np.array(v) for v in run(numbers, given, store)]
            for t, v in zip((*got, *states, args[0]), (*want, *numbers, given[0]), strict=True):
                np.testing.assert_allclose(t.numpy(), v, rtol=1e-5, err_msg=f"call {k}")
            given_back = {*map(id, states), id(args[0])}
            assert sum(id(t) in given_back for t in got) == len(got) - 1, "states and arguments are returned themselves"
            held += [(t, t.numpy().copy()) for t in got if id(t) not in given_back and rng.random() < 0.5]
            if rng.random() < 0.3:
                t = rng.choice([*states, args[0]])
                held += [(h, np.array(h.numpy())) for h in (Tensor(t), Tensor(t[::-1]), t + 1)[rng.randrange(3) :]]
            if rng.random() < 0.2:
                s = rng.randrange(3)
                numbers[s] += 1
                states[s].assign(states[s] + 1)
            for h, before in held:
                np.testing.assert_array_equal(h.numpy(), before, err_msg=f"held at call {k}")
        n_usual += step.usual is not None
        n_moving += any(c.capture.moves for c in step.captures.values())
    assert n_usual >= 15 and n_moving >= 8, (n_usual, n_moving)


def moving():
    """A step with a state that moves: it is read after its new version is written."""
    s, t = vector(1.0, 2.0), vector(3.0, 4.0)

    @jit
    def step(x: Tensor) -> Tensor:
        old = s.flip(0)
        s.assign(old + x)
        t.assign(old * 2)
        return x + 1

    return s, t, step


def test_an_argument_that_is_a_state_that_moves_is_refused() -> None:
    s, _, step = moving()
    for _ in range(3):
        step(vector(1.0, 1.0))
    assert step.usual is not None and next(iter(step.captures.values())).capture.moves
    before = s.tolist()
    with pytest.raises(JitError, match="also reaches from outside"):
        step(s)
    assert s.tolist() == before


def test_an_argument_that_is_assigned_and_also_read_from_outside_is_refused() -> None:
    w = vector(1.0, 2.0)
    step = jit(lambda x: x.assign((x + w)[::-1]) * 1)
    for k in range(3):
        x = vector(k, 1.0)
        assert step(x).tolist() == x.tolist() == [3.0, k + 1.0]
    assert step.usual is not None
    with pytest.raises(JitError, match="also reaches from outside"):
        step(w)
    assert w.tolist() == [1.0, 2.0]


def test_a_state_that_moves_is_computed_first_where_it_was_assigned_lazily() -> None:
    s, t, step = moving()
    for _ in range(3):
        step(vector(0.0, 0.0))
    s.assign(Tensor([5.0, 6.0]) * 2)
    step(vector(1.0, 1.0))
    assert s.tolist() == [13.0, 11.0] and t.tolist() == [24.0, 20.0]


@pytest.mark.parametrize("n", [4, 1 << 16])  # one that keeps the interpreter, and one that lets others have it
def test_threads_lose_no_update_of_a_state_that_moves(n: int) -> None:
    s = vector(*[0.0] * n)

    @jit
    def step(x: Tensor) -> Tensor:
        total = s.sum()
        s.assign(s[::-1] + x)
        return total + s.sum()

    for _ in range(3):
        step(vector(*[0.0] * n))
    assert step.usual is not None and next(iter(step.captures.values())).capture.moves

    def work() -> None:
        one = vector(*[1.0] * n)
        for _ in range(200):
            step(one)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert set(s.tolist()) == {800.0}


def test_sizes_come_after_the_old_versions_of_states() -> None:
    n, s = Variable("n", 1, 4), vector(1.0, 2.0)

    @jit
    def step(x: Tensor) -> Tensor:
        total = x[:n].sum()
        s.assign(s[::-1] + total)
        return total + s.sum()

    x, want = vector(1.0, 2.0, 3.0, 4.0), np.array([1.0, 2.0])
    for k in (1, 2, 3, 4, 2, 1):
        with n.bind(k):
            want = want[::-1] + (total := k * (k + 1) / 2)
            assert step(x).item() == total + want.sum() and s.tolist() == want.tolist()
    assert step.usual is not None and next(iter(step.captures.values())).capture.moves
