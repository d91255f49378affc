"""Whole training loops whose state outlives a step: files, saved steps, objects, anchors, hidden states, gradients.

As in `test_training_loops.py`: each is written once and run eager, captured and with PyTorch.
"""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.training_loops import Loops, apply, batches, check, clear, descend, error, network, problem

LOOPS = Loops()
loop = LOOPS.loop


def training_step(lib: Any, params: list[Any], opt: Any) -> Any:
    @lib.step
    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = error(params, x, y)
        loss.backward()
        opt.step()
        return loss

    return step


# ---- files -----------------------------------------------------------------------------------------------------------
@loop("resume from a file of state", 2, 2)  # batches, and all rows
def resume_from_a_file(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    opt = lib.AdamW(params, lr=0.05)
    step = training_step(lib, params, opt)
    for bx, by in batches(x, y):
        yield step(bx, by)
    state = {f"weight.{i}": p.detach() for i, p in enumerate(params)}
    state |= {f"optimizer.{k}": t for k, t in lib.state_of(opt).items()}
    lib.save({k: t.contiguous() for k, t in state.items()}, lib.path)
    yield step(x, y), params  # it goes on
    found = lib.load(lib.path)
    again = [lib.leaf(np.zeros(p.shape)) for p in params]
    other = lib.AdamW(again, lr=0.05)
    for i, p in enumerate(again):
        lib.write(p, found[f"weight.{i}"])
    lib.set_state(other, {k.removeprefix("optimizer."): t for k, t in found.items() if k.startswith("optimizer.")})
    step = training_step(lib, again, other)
    yield step(x, y), again  # the same once more
    for bx, by in batches(x, y):
        yield step(bx, by)
    yield params, again


@loop("resume from a saved step", 2)
def resume_from_a_saved_step(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng, 10)
    params, count = network(lib, rng, 3, 4, 1), lib.tensor(0.0)
    speeds = [lib.tensor(np.zeros(p.shape)) for p in params]

    @lib.step
    def step(x: Any, y: Any) -> Any:
        nonlocal count
        count += 1
        loss = error(params, x, y)
        loss.backward()
        for p, v in zip(params, speeds, strict=True):
            v.copy_(0.9 * v + p.grad)
            lib.write(p, p - 0.1 / count * v)
        clear(params)
        return loss

    for bx, by in batches(x, y):
        yield step(bx, by)
    names = {f"{what}{i}": t for what, ts in (("p", params), ("v", speeds)) for i, t in enumerate(ts)}
    step = lib.reload(step, {**names, "count": count})
    for _ in range(2):
        for bx, by in batches(x, y):
            yield step(bx, by)
        speeds[0] *= 0.5  # seen by the step
        yield error(params, x, y), count
    yield params, speeds


# ---- objects ---------------------------------------------------------------------------------------------------------
@loop("a trainer with counters and logs", 2)
def trainer(lib: Any, rng: Any) -> Iterator[Any]:
    class Trainer:
        def __init__(self, params: list[Any], decay: float) -> None:
            self.params, self.decay = params, decay
            self.opt = lib.SGD(params, lr=0.1, momentum=0.9)
            self.epoch, self.losses = 0, []
            self.best: dict[str, Any] = {"loss": np.inf, "weights": None}
            self.mean = lib.tensor(0.0)

        def step(self, x: Any, y: Any) -> Any:
            self.opt.zero_grad()
            loss = error(self.params, x, y) + self.decay * sum(p.square().sum() for p in self.params)
            loss.backward()
            self.opt.step()
            self.mean.copy_(0.9 * self.mean + 0.1 * loss.detach())
            return loss

        step = lib.step(step)

        def fit(self, x: Any, y: Any, epochs: int) -> Iterator[Any]:
            for _ in range(epochs):
                self.epoch += 1
                total = sum(self.step(bx, by).item() for bx, by in batches(x, y))
                self.losses.append(total)
                if total < self.best["loss"]:
                    self.best = {"loss": total, "weights": [p.detach().clone() for p in self.params]}
                yield self.epoch, self.losses, self.mean

    x, y = problem(lib, rng)
    one, two = Trainer(network(lib, rng, 3, 4, 1), 0.01), Trainer(network(lib, rng, 3, 4, 1), 0.1)
    lib.kept = one, two  # captures are gone with the instance
    yield from zip(one.fit(x, y, 3), two.fit(x, y, 3), strict=True)
    yield one.best["weights"], two.best["weights"], one.params, two.params


# ---- anchors ---------------------------------------------------------------------------------------------------------
@loop("anchors (L2-SP)", 1, 1)
def anchors(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    opt = lib.Adam(params, lr=0.02)
    step = training_step(lib, params, opt)
    for bx, by in batches(x, y):
        yield step(bx, by)
    start = [p.detach().clone() for p in params]
    head = network(lib, rng, 4, 1)
    tuned = [*params[:2], *head]
    fine = lib.SGD(tuned, lr=0.05)

    @lib.step
    def tune(x: Any, y: Any) -> Any:
        fine.zero_grad()
        loss = error(tuned, x, y)
        near = sum((p - a).square().sum() for p, a in zip(tuned, start[:2], strict=False))
        (loss + 0.5 * near + 0.05 * sum(p.square().sum() for p in head)).backward()
        fine.step()
        return loss, near

    for _ in range(2):
        for bx, by in batches(x, y * y):
            yield tune(bx, by)
        lib.write(start[0], 0.5 * start[0] + 0.5 * params[0].detach())  # the anchor follows
    yield params, head, start


# ---- hidden states ---------------------------------------------------------------------------------------------------
def cell(params: list[Any], x: Any, h: Any) -> Any:
    return (x @ params[0] + h @ params[1] + params[2]).tanh()


def recurrence(lib: Any, rng: Any) -> SimpleNamespace:
    params = [lib.leaf(rng.standard_normal(s) / 2) for s in ((2, 4), (4, 4), (4,), (4, 1))]
    return SimpleNamespace(params=params, x=rng.standard_normal((12, 3, 2)), opt=lib.RMSprop(params, lr=0.01))


@loop("truncated recurrence, the hidden state returned", 1)
def truncated_returned(lib: Any, rng: Any) -> Iterator[Any]:
    n = recurrence(lib, rng)

    @lib.step
    def step(x: Any, h: Any) -> Any:
        n.opt.zero_grad()
        loss = 0.0
        for i in range(3):
            h = cell(n.params, x[i], h)
            loss = loss + (h @ n.params[3] - x[i].sum(1, keepdim=True)).square().mean()
        loss.backward()
        n.opt.step()
        return loss, h.detach()

    for _ in range(2):
        h = lib.tensor(np.zeros((3, 4)))
        for i in range(0, 12, 3):
            loss, h = step(lib.tensor(n.x[i : i + 3]), h)
            yield loss, h
    yield n.params


@loop("truncated recurrence, the hidden state written", 1)
def truncated_written(lib: Any, rng: Any) -> Iterator[Any]:
    n = recurrence(lib, rng)
    memory = lib.tensor(np.zeros((2, 3, 4)))  # of two sequences
    h = memory[1]

    @lib.step
    def step(x: Any) -> Any:
        n.opt.zero_grad()
        states = [h.detach().clone()]
        for i in range(3):
            states.append(cell(n.params, x[i], states[-1]))
        out = lib.stack(states[1:]) @ n.params[3]
        loss = (out.squeeze(2) - x.sum(2)).square().mean()
        loss.backward()
        n.opt.step()
        h.copy_(states[-1].detach())
        return loss

    for k in range(2):
        for i in range(0, 12, 3):
            yield step(lib.tensor(n.x[i : i + 3])), memory
        memory[1] = 0.0 if k else memory[0] + 1
    yield n.params, h


# ---- batches ---------------------------------------------------------------------------------------------------------
@loop("skipped and ragged batches", 3)
def skipped_batches(lib: Any, rng: Any) -> Iterator[Any]:
    params = network(lib, rng, 3, 4, 1)
    opt = lib.Adam(params, lr=0.02)
    skipped = lib.tensor(0)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        """Nothing changes where the loss is too large: weights are put back."""
        opt.zero_grad()
        loss = error(params, x, y)
        loss.backward()
        before = [p.detach().clone() for p in params]
        opt.step()
        ok = loss.detach() < 5.0
        for p, b in zip(params, before, strict=True):
            lib.write(p, lib.where(ok, p.detach(), b))
        skipped.copy_(skipped + (~ok).long())
        return lib.where(ok, loss.detach(), loss.detach() * 0)

    for k, rows in enumerate((4, 4, 3, 4, 0, 4, 1, 3)):
        x = rng.standard_normal((rows, 3))
        y = x.sum(1, keepdims=True) * (10 if k == 3 else 1)
        if not rows:
            continue
        yield step(lib.tensor(x), lib.tensor(y)), skipped
    yield params, lib.state_of(opt)["mean.0" if "mean.0" in lib.state_of(opt) else "0.exp_avg"]


@loop("gradients accumulated over calls, clipped by hand", 2, 1)
def accumulated_over_calls(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    opt = lib.SGD(params, lr=0.1, momentum=0.9)

    @lib.step
    def add(x: Any, y: Any) -> Any:
        loss = error(params, x, y * 10) / 3
        loss.backward()
        return loss

    @lib.step
    def update() -> Any:
        norm = lib.stack([p.grad.square().sum() for p in params]).sum().sqrt()
        for p in params:
            p.grad *= (1.0 / (norm + 1e-6)).clamp(max=1.0)
            p.grad[0] = p.grad[0].clamp(-0.2, 0.2)
        opt.step()
        opt.zero_grad()
        return norm

    for _ in range(4):
        for bx, by in batches(x, y):
            yield add(bx, by), params[0].grad
        yield update(), [p.grad is None for p in params], params


@loop("gradients zeroed in place", 2)
def zeroed_in_place(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        loss = error(params, x, y)
        loss.backward()
        for p in params:
            lib.write(p, p - 0.1 * p.grad)
            p.grad.zero_()
        return loss

    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by)
    yield params, [p.grad for p in params]


@loop("gradients in one buffer", 1)
def gradients_in_one_buffer(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    sizes = [int(np.prod(p.shape)) for p in params]
    flat = lib.tensor(np.zeros(sum(sizes)))
    for p, n, end in zip(params, sizes, np.cumsum(sizes), strict=True):
        p.grad = flat[int(end) - n : int(end)].reshape(p.shape)

    @lib.step
    def step(x: Any, y: Any) -> Any:
        flat.zero_()
        loss = error(params, x, y)
        loss.backward()
        norm = flat.norm()
        flat.copy_(flat * (0.5 / norm).clamp(max=1.0))
        for p in params:
            lib.write(p, p - 0.1 * p.grad)
        return loss, norm

    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by), flat
    yield params


@loop("gradients that are read between calls", 1)
def read_between_calls(lib: Any, rng: Any) -> Iterator[Any]:
    x, y = problem(lib, rng)
    params = network(lib, rng, 3, 4, 1)
    opt = lib.Adam(params, lr=0.02)
    step = training_step(lib, params, opt)
    for _ in range(3):
        for bx, by in batches(x, y):
            yield step(bx, by), [p.grad for p in params]
    error(params, x, y).backward()  # adds
    yield [p.grad for p in params]


@loop("adversaries whose gradients are read", 1, 2)
def adversaries_read(lib: Any, rng: Any) -> Iterator[Any]:
    g, d = network(lib, rng, 2, 4, 3), network(lib, rng, 3, 4, 1)

    @lib.step
    def improve_d(real: Any, z: Any) -> Any:
        clear(d)
        loss = (apply(d, apply(g, z).detach()) - apply(d, real)).tanh().mean()
        loss.backward()
        for p in d:
            lib.write(p, p - 0.1 * p.grad)
        return loss

    @lib.step
    def improve_g(z: Any) -> Any:
        loss = -apply(d, apply(g, z)).mean()
        loss.backward()  # to d, too
        descend(lib, g)
        return loss

    for _ in range(4):
        z, real = lib.tensor(rng.standard_normal((4, 2))), lib.tensor(rng.standard_normal((4, 3)))
        yield improve_d(real, z), improve_g(z), [p.grad for p in d]
    yield g, d


@pytest.mark.sweep
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_computes_what_it_does_in_pytorch(name: str, tmp_path: Path) -> None:
    check(LOOPS[name], tmp_path)
