"""Whole training loops, each written once and run three times: eager, captured, and with PyTorch as the oracle."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.training_loops import Loops, apply, batches, check, clear, descend, error, network, problem

LOOPS = Loops()
loop = LOOPS.loop


def training(lib: Any, rng: Any, optimizer: Any) -> Iterator[Any]:
    """Three epochs of three batches."""
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    opt = optimizer(lib, params)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = error(params, x, y)
        loss.backward()
        opt.step()
        return loss

    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by).item()
    yield params


# ---- optimizers ------------------------------------------------------------------------------------------------------
OPTIMIZERS = {
    "SGD": lambda lib, p: lib.SGD(p, lr=0.1),
    "SGD with decay": lambda lib, p: lib.SGD(p, lr=0.1, weight_decay=0.05),
    "momentum": lambda lib, p: lib.SGD(p, lr=0.1, momentum=0.9),
    "momentum with dampening": lambda lib, p: lib.SGD(p, lr=0.1, momentum=0.9, dampening=0.2),
    "Nesterov": lambda lib, p: lib.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda lib, p: lib.Adam(p, lr=0.02),
    "AdamW": lambda lib, p: lib.AdamW(p, lr=0.02, weight_decay=0.1),
    "RMSprop": lambda lib, p: lib.RMSprop(p, lr=0.01),
    "RMSprop, centered, with momentum": lambda lib, p: lib.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
}
for _name, _optimizer in OPTIMIZERS.items():
    loop(_name, 1)(lambda lib, rng, optimizer=_optimizer: training(lib, rng, optimizer))


@loop("momentum by hand", 1)
def momentum_by_hand(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    speeds = [lib.tensor(np.zeros(p.shape)) for p in params]

    @lib.step
    def step(x: Any, y: Any) -> Any:
        loss = error(params, x, y)
        loss.backward()
        for p, v in zip(params, speeds, strict=True):
            v *= 0.9
            v += p.grad
            lib.write(p, p - 0.1 * v)
        clear(params)
        return loss

    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by)
        yield speeds
    yield params


@loop("Adam by hand, in rows of one tensor of state", 1)
def adam_by_hand(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    w = lib.leaf(rng.standard_normal((3, 1)))
    state = lib.tensor(np.zeros((2, 3, 1)))
    mean, square = state[0], state[1]
    count = lib.tensor(0.0)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        w.grad = None
        loss = (x @ w - y).square().mean()
        loss.backward()
        count.copy_(count + 1)
        mean.copy_(0.9 * mean + 0.1 * w.grad)
        square.copy_(0.99 * square + 0.01 * w.grad.square())
        change = mean / (1 - 0.9**count) / ((square / (1 - 0.99**count)).sqrt() + 1e-8)
        lib.write(w, w - 0.05 * change)
        return loss

    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by)
        yield state, count
    yield w


@loop("ragged last batch", 2)
def ragged_last_batch(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng, 10)
    params = network(lib, rng, 3, 4, 1)
    opt = lib.SGD(params, lr=0.1, momentum=0.9)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = error(params, x, y)
        loss.backward()
        opt.step()
        return loss

    for _ in range(3):
        total = 0.0
        for bx, by in batches(x, y):
            total += step(bx, by).item() * len(bx)
        yield total / len(x)
    yield params


@loop("gradient accumulation inside the step", 1)
def accumulation_inside(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    opt = lib.Adam(params, lr=0.02)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        losses = []
        for bx, by in batches(x, y):
            loss = error(params, bx, by) / 3
            loss.backward()
            losses.append(loss.detach())
        opt.step()
        return losses

    for _ in range(6):
        yield step(x, y)
    yield params


@loop("gradient accumulation in buffers", 1, 1)
def accumulation_in_buffers(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    sums = [lib.tensor(np.zeros(p.shape)) for p in params]

    @lib.step
    def add(x: Any, y: Any) -> Any:
        clear(params)
        loss = error(params, x, y)
        loss.backward()
        for p, s in zip(params, sums, strict=True):
            s += p.grad
        return loss

    @lib.step
    def update() -> None:
        for p, s in zip(params, sums, strict=True):
            lib.write(p, p - 0.05 * s)
            s.zero_()

    for _ in range(3):
        for bx, by in batches(x, y):
            yield add(bx, by), sums[0]
        update()
        yield params, sums


@loop("clipping by norm", 1)
def clipping_by_norm(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    opt = lib.SGD(params, lr=0.1, momentum=0.9)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = error(params, x, y * 10)
        loss.backward()
        norm = lib.stack([p.grad.square().sum() for p in params]).sum().sqrt()
        for p in params:
            p.grad = p.grad * (1.0 / (norm + 1e-6)).clamp(max=1.0)
        opt.step()
        return loss, norm

    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by)
    yield params


@loop("clipping in place", 1)
def clipping_in_place(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        clear(params)
        loss = error(params, x, y * 10)
        loss.backward()
        norm = lib.cat([p.grad.flatten() for p in params]).norm()
        for p in params:
            p.grad *= (0.5 / norm).clamp(max=1.0)
            p.grad.copy_(p.grad.clamp(-0.2, 0.2))
            lib.write(p, p - 0.1 * p.grad)
        return loss, norm, [p.grad for p in params]

    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by)
    yield params


# ---- schedules -------------------------------------------------------------------------------------------------------
@loop("schedule as a number", 2)
def schedule_as_a_number(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)

    @lib.step
    def step(x: Any, y: Any, rate: float) -> Any:
        loss = error(params, x, y)
        loss.backward()
        descend(lib, params, rate)
        return loss

    for epoch in range(4):
        for bx, by in batches(x, y):
            yield step(bx, by, 0.2 if epoch < 2 else 0.05)
    yield params


@loop("schedule as a tensor", 1)
def schedule_as_a_tensor(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)

    @lib.step
    def step(x: Any, y: Any, rate: Any) -> Any:
        loss = error(params, x, y)
        loss.backward()
        descend(lib, params, rate)
        return loss

    rate = lib.tensor(0.2)
    for epoch in range(4):
        for bx, by in batches(x, y):
            yield step(bx, by, rate)
            rate *= 0.9
        yield step(x[:4], y[:4], lib.tensor(0.1 / (1 + epoch)))
    yield params, rate


@loop("schedule of an optimizer", 1)
def schedule_of_an_optimizer(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    opt = lib.AdamW(params, lr=0.05)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = error(params, x, y)
        loss.backward()
        opt.step()
        return loss

    for epoch in range(4):
        lib.set_rate(opt, 0.05 * 0.5 * (1 + np.cos(np.pi * epoch / 4)))
        for bx, by in batches(x, y):
            yield step(bx, by)
    yield params


@loop("warm-up computed by the step", 1)
def warm_up(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    count = lib.tensor(0)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        nonlocal count
        count += 1
        loss = error(params, x, y)
        loss.backward()
        descend(lib, params, 0.2 * (count / 5.0).clamp(max=1.0))
        return loss

    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by)
    yield params, count


# ---- averages and targets --------------------------------------------------------------------------------------------
@loop("exponential average of weights", 1, 1)
def exponential_average(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    shadow = [p.detach().clone() for p in params]

    @lib.step
    def step(x: Any, y: Any) -> Any:
        loss = error(params, x, y)
        loss.backward()
        descend(lib, params)
        for s, p in zip(shadow, params, strict=True):
            s *= 0.9
            s += 0.1 * p.detach()
        return loss

    evaluate = lib.step(lambda x, y: error(shadow, x, y))
    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by).item(), evaluate(x, y).item()
    yield params, shadow


@loop("Polyak average", 1)
def polyak_average(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    opt = lib.SGD(params, lr=0.3)
    mean, count = [lib.tensor(np.zeros(p.shape)) for p in params], lib.tensor(0.0)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = error(params, x, y)
        loss.backward()
        opt.step()
        lib.write(count, count + 1)
        for m, p in zip(mean, params, strict=True):
            lib.write(m, m + (p - m) / count)
        return loss

    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by).item()
    for p, m in zip(params, mean, strict=True):
        lib.write(p, m)
    yield error(params, x, y), params, count


def transitions(rng: Any, rows: int) -> tuple[np.ndarray, ...]:
    """States, actions, rewards, next states."""
    s, t = rng.standard_normal((2, rows, 3))
    return s, rng.integers(0, 2, rows), rng.standard_normal(rows), t


@loop("soft target network", 1)
def soft_target_network(lib: Any, rng: Any) -> Iterator[Any]:
    online = network(lib, rng, 3, 4, 2)
    target = [p.detach().clone() for p in online]
    opt = lib.Adam(online, lr=0.02)

    @lib.step
    def step(s: Any, a: Any, r: Any, t: Any) -> Any:
        opt.zero_grad()
        wanted = r + 0.9 * apply(target, t).amax(1)
        loss = (apply(online, s).gather(1, a.reshape(-1, 1)).squeeze(1) - wanted.detach()).square().mean()
        loss.backward()
        opt.step()
        for p, q in zip(online, target, strict=True):
            q.copy_(0.8 * q + 0.2 * p.detach())
        return loss

    for _ in range(8):
        yield step(*map(lib.tensor, transitions(rng, 5)))
    yield online, target


@loop("hard target network", 1)
def hard_target_network(lib: Any, rng: Any) -> Iterator[Any]:
    online, target = network(lib, rng, 3, 4, 2), network(lib, rng, 3, 4, 2)

    @lib.step
    def step(s: Any, a: Any, r: Any, t: Any) -> Any:
        clear(online)
        wanted = r + 0.9 * apply(target, t).detach().amax(1)
        loss = (apply(online, s).gather(1, a.unsqueeze(1)).squeeze(1) - wanted).square().mean()
        loss.backward()
        for p in online:
            lib.write(p, p - 0.05 * p.grad)
        return loss

    for k in range(10):
        if k % 3 == 0:
            for p, q in zip(online, target, strict=True):
                lib.write(q, p)
        yield step(*map(lib.tensor, transitions(rng, 5)))
    yield online, target


@loop("replay buffer", 1)
def replay_buffer(lib: Any, rng: Any) -> Iterator[Any]:
    states, after = lib.tensor(np.zeros((12, 3))), lib.tensor(np.zeros((12, 3)))
    actions, rewards = lib.tensor(np.zeros(12, np.int64)), lib.tensor(np.zeros(12))
    q = network(lib, rng, 3, 4, 2)
    opt = lib.RMSprop(q, lr=0.01)

    @lib.step
    def step(rows: Any) -> Any:
        opt.zero_grad()
        wanted = rewards[rows] + 0.9 * apply(q, after[rows]).detach().amax(1)
        chosen = apply(q, states[rows]).gather(1, actions[rows].unsqueeze(1)).squeeze(1)
        loss = (chosen - wanted).square().mean()
        loss.backward()
        opt.step()
        return loss

    for k in range(7):
        at = 3 * k % 12
        for memory, new in zip((states, actions, rewards, after), transitions(rng, 3), strict=True):
            memory[at : at + 3] = lib.tensor(new)
        yield step(lib.tensor(rng.integers(0, min(3 * k + 3, 12), 4)))
    yield q, states, actions, rewards, after


@loop("queue of keys, shifted", 1)
def queue_shifted(lib: Any, rng: Any) -> Iterator[Any]:
    yield from momentum_contrast(lib, rng, lambda queue, keys, at: lib.write(queue, lib.cat([queue[4:], keys])))


@loop("queue of keys, circular", 1)
def queue_circular(lib: Any, rng: Any) -> Iterator[Any]:
    def put(queue: Any, keys: Any, at: Any) -> None:
        queue[at] = keys

    yield from momentum_contrast(lib, rng, put)


def momentum_contrast(lib: Any, rng: Any, put: Any) -> Iterator[Any]:
    queue = lib.tensor(rng.standard_normal((12, 2)))
    query = network(lib, rng, 3, 4, 2)
    key = [p.detach().clone() for p in query]

    @lib.step
    def step(x: Any, y: Any, at: Any) -> Any:
        clear(query)
        q, k = apply(query, x), apply(key, y).detach()
        scores = lib.cat([(q * k).sum(1, keepdim=True), q @ queue.T], dim=1)
        loss = (scores.logsumexp(1) - scores[:, 0]).mean()
        loss.backward()
        for p, s in zip(query, key, strict=True):
            lib.write(p, p - 0.1 * p.grad)
            lib.write(s, 0.9 * s + 0.1 * p)
        put(queue, k, at)
        return loss

    for i in range(7):
        x, y = rng.standard_normal((2, 4, 3))
        yield step(lib.tensor(x), lib.tensor(y), lib.tensor((np.arange(4) + 4 * i) % 12)), queue
    yield query, key


@loop("memory bank", 1)
def memory_bank(lib: Any, rng: Any) -> Iterator[Any]:
    bank = lib.tensor(rng.standard_normal((8, 2)))
    params, x = network(lib, rng, 3, 2), lib.tensor(rng.standard_normal((8, 3)))

    @lib.step
    def step(x: Any, rows: Any) -> Any:
        f = apply(params, x).tanh()
        loss = lib.cross_entropy(f @ bank.T, rows)
        loss.backward()
        descend(lib, params)
        bank[rows] = 0.5 * bank[rows] + 0.5 * f.detach()
        return loss

    for k in range(6):
        rows = rng.permutation(8)[:4]
        yield step(x[lib.tensor(rows)], lib.tensor(rows))
        bank[k] = 0.0
        bank[k][0] += 1.0
    yield params, bank


# ---- two networks ----------------------------------------------------------------------------------------------------
def gan(lib: Any, rng: Any) -> SimpleNamespace:
    """A generator, a discriminator, and optimizers of both."""
    g, d = network(lib, rng, 2, 4, 3), network(lib, rng, 3, 4, 1)
    return SimpleNamespace(g=g, d=d, opt_g=lib.Adam(g, lr=0.02), opt_d=lib.Adam(d, lr=0.02))


def likelihood(x: Any) -> Any:
    return -(x.sigmoid().log()).mean()


def noise(lib: Any, rng: Any) -> tuple[Any, Any]:
    return lib.tensor(rng.standard_normal((4, 3))), lib.tensor(rng.standard_normal((4, 2)))


@loop("adversaries in two steps", 1, 1)
def adversaries_in_two_steps(lib: Any, rng: Any) -> Iterator[Any]:
    n = gan(lib, rng)

    @lib.step
    def improve_d(real: Any, z: Any) -> Any:
        n.opt_d.zero_grad()
        loss = likelihood(apply(n.d, real)) + likelihood(-apply(n.d, apply(n.g, z).detach()))
        loss.backward()
        n.opt_d.step()
        return loss

    @lib.step
    def improve_g(z: Any) -> Any:
        n.opt_g.zero_grad()
        loss = likelihood(apply(n.d, apply(n.g, z)))
        loss.backward()
        n.opt_g.step()
        return loss

    for _ in range(6):
        real, z = noise(lib, rng)
        yield improve_d(real, z), improve_g(z)
    yield n.g, n.d


@loop("adversaries in one step", 1)
def adversaries_in_one_step(lib: Any, rng: Any) -> Iterator[Any]:
    n = gan(lib, rng)

    @lib.step
    def step(real: Any, z: Any) -> Any:
        fake = apply(n.g, z)
        n.opt_d.zero_grad()
        loss_d = likelihood(apply(n.d, real)) + likelihood(-apply(n.d, fake.detach()))
        loss_d.backward()
        n.opt_d.step()
        n.opt_g.zero_grad()
        loss_g = likelihood(apply(n.d, fake))
        loss_g.backward()
        n.opt_g.step()
        return loss_d, loss_g

    for _ in range(6):
        yield step(*noise(lib, rng))
    yield n.g, n.d


@loop("critic with clamped weights", 1, 1)
def critic_with_clamped_weights(lib: Any, rng: Any) -> Iterator[Any]:
    n = gan(lib, rng)

    @lib.step
    def improve_d(real: Any, z: Any) -> Any:
        n.opt_d.zero_grad()
        loss = (apply(n.d, apply(n.g, z).detach()) - apply(n.d, real)).mean()
        loss.backward()
        n.opt_d.step()
        for p in n.d:
            p.detach().copy_(p.detach().clamp(-0.3, 0.3))
        return loss

    @lib.step
    def improve_g(z: Any) -> Any:
        n.opt_g.zero_grad()
        loss = -apply(n.d, apply(n.g, z)).mean()
        loss.backward()
        n.opt_g.step()
        return loss

    for _ in range(3):
        for _ in range(2):
            real, z = noise(lib, rng)
            yield improve_d(real, z)
        yield improve_g(z), n.d
    yield n.g


@loop("two optimizers of shared parameters", 1, 1)
def two_optimizers(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    body, a, b = (network(lib, rng, *s) for s in ((3, 4), (4, 1), (4, 1)))
    opt_a, opt_b = lib.SGD([*body, *a], lr=0.1, momentum=0.9), lib.Adam([*body, *b], lr=0.02)

    def train(opt: Any, head: Any) -> Any:
        def step(x: Any, y: Any) -> Any:
            opt.zero_grad()
            loss = (apply(head, apply(body, x).tanh()) - y).square().mean()
            loss.backward()
            opt.step()
            return loss

        return lib.step(step)

    step_a, step_b = train(opt_a, a), train(opt_b, b)
    for _ in range(3):
        for bx, by in batches(x, y):
            yield step_a(bx, by), step_b(bx, by * by)
    yield body, a, b


@loop("two optimizers in one step", 1)
def two_optimizers_in_one_step(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    body, a, b = (network(lib, rng, *s) for s in ((3, 4), (4, 1), (4, 1)))
    opt_a, opt_b = lib.SGD([*body, *a], lr=0.1, momentum=0.9), lib.Adam([*body, *b], lr=0.02)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        losses = []
        for opt, head in ((opt_a, a), (opt_b, b)):
            opt.zero_grad()
            loss = (apply(head, apply(body, x).tanh()) - y).square().mean()
            loss.backward()
            opt.step()
            losses.append(loss)
        return losses

    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by)
    yield body, a, b


@pytest.mark.sweep
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_computes_what_it_does_in_pytorch(name: str, tmp_path: Path) -> None:
    check(LOOPS[name], tmp_path)
