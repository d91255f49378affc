"""The pass `prefetch` on steps of several processes: gathered values live briefly, and no result changes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from monolect import dtypes
from monolect.command.forms import base_of, calls_in, is_allreduce, items_of, operands_of, program_of, writes
from monolect.command.interp import run_step
from monolect.command.rewrites import prefetch as module
from monolect.command.rewrites.dependencies import dependencies
from monolect.command.rewrites.own import own
from monolect.command.rewrites.prefetch import prefetch
from monolect.ir.collective import Sum, sum_kernel
from monolect.ir.ops import BufferArg, LoadArg, ParamArg, StepInfo
from monolect.ir.uop import UOp, node, shape_source

NAMES = ("mpi", "mpi:1")
SIZE = 4


@pytest.fixture(autouse=True)
def small_values_are_gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_BYTES", 1)


def is_message(c: UOp) -> bool:
    if c.op == "CALL":
        return is_allreduce(c)
    to, source = (base_of(u).arg.device for u in operands_of(c))
    return to != source


class Program:
    """A step under construction over PARAMs that it reads and writes, `n_state` on each device."""

    def __init__(self, n_state: int) -> None:
        names = [name for name in NAMES for _ in range(n_state)]
        args = [ParamArg(k, dtypes.float32, name, "GLOBAL") for k, name in enumerate(names)]
        self.params = [node("PARAM", (shape_source((SIZE,)),), arg) for arg in args]
        self.state = {name: [p for p in self.params if p.arg.device == name] for name in NAMES}
        self.items: list[UOp] = []

    def buffer(self, name: str) -> UOp:
        return node("BUFFER", (shape_source((SIZE,)),), BufferArg(len(self.items), dtypes.float32, name))

    def copy(self, source: UOp, name: str) -> UOp:
        to = self.buffer(name)
        self.items.append(node("STORE", (to, node("LOAD", (source,), LoadArg(name, "GLOBAL")))))
        return to

    def sum(self, *operands: UOp, to: UOp | None = None) -> UOp:
        to = self.buffer(operands[0].arg.device) if to is None else to
        self.items.append(node("CALL", (sum_kernel(Sum("ADD", dtypes.float32, len(operands)), SIZE), to, *operands)))
        return to

    def step(self) -> UOp:
        linear = node("LINEAR", tuple(self.items))
        outs = node("TUPLE", tuple([node("AFTER", (p, linear)) for p in self.params]))
        return node("FUNCTION", (outs,), StepInfo(("state",) * len(self.params), 0, is_replayed=True))


def training(n_layers: int) -> UOp:
    """Layers whose weights are divided over two processes, as levels of values put them in order."""
    p = Program(n_layers + 1)
    other = dict(zip(NAMES, NAMES[::-1], strict=True))
    weights = {name: s[1:] for name, s in p.state.items()}
    far = {(name, k): p.copy(weights[other[name]][k], name) for name in NAMES for k in range(n_layers)}
    whole = {key: p.sum(weights[key[0]][key[1]], far[key]) for key in far}
    x = {name: [s[0]] for name, s in p.state.items()}
    for k in range(n_layers):
        for name in NAMES:
            x[name].append(p.sum(x[name][k], whole[name, k]))
    grad = {name: x[name][-1] for name in NAMES}
    grads = {}
    for k in reversed(range(n_layers)):
        for name in NAMES:
            grads[name, k] = p.sum(grad[name], x[name][k])
            grad[name] = p.sum(grad[name], whole[name, k], x[name][k])
    moved = {(name, k): p.copy(g, other[name]) for (name, k), g in grads.items()}
    for name in NAMES:
        for k in range(n_layers):
            p.sum(weights[name][k], grads[name, k], moved[other[name], k], to=weights[name][k])
    return p.step()


def items(step: UOp) -> list[UOp]:
    return calls_in(items_of(program_of(step)))


def state_after(step: UOp) -> list[np.ndarray]:
    n = len(step.arg.roles)
    given = {k: np.random.default_rng(k).integers(-9, 9, SIZE).astype(np.float32) for k in range(n)}
    memory = run_step(dependencies(step), given)
    by_slot = {p.arg.slot: m.view(np.float32) for p, m in memory.bytes.items() if p.op == "PARAM"}
    return [by_slot.get(k, given[k]) for k in range(n)]


def most_alive(step: UOp, name: str) -> int:
    """How many BUFFERs of a device are between their first and their last item at once."""
    life: dict[UOp, list[int]] = {}
    for i, c in enumerate(items(step)):
        for b in map(base_of, operands_of(c)):
            if b.op == "BUFFER" and b.arg.device == name:
                life.setdefault(b, [i, i])[1] = i
    return max(sum(first <= i <= last for first, last in life.values()) for i in range(len(items(step))))


@pytest.mark.parametrize("n_layers", [1, 2, 3, 6, 12])
def test_training_keeps_its_results(n_layers: int) -> None:
    step = training(n_layers)
    after = prefetch(step, is_message)
    assert items(after) != items(step)
    for wanted, found in zip(state_after(step), state_after(after), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_what_is_gathered_does_not_grow_with_the_layers() -> None:
    """Beyond the activations, one a layer, the memory is that of a few layers, however many there are."""
    beyond = [most_alive(prefetch(training(n), is_message), "mpi") - n for n in (6, 12, 24)]
    assert len({*beyond}) == 1 and beyond[0] <= 10
    assert most_alive(training(24), "mpi") >= 2 * 24


def test_gathers_run_ahead_of_their_use_and_far_uses_gather_again() -> None:
    step = prefetch(training(6), is_message)
    mine = items(own(step, lambda device: device == "mpi"))
    gathers = [i for i, c in enumerate(mine) if c.op == "STORE" and base_of(operands_of(c)[1]).op == "PARAM"]
    here = [i for i in gathers if base_of(operands_of(mine[i])[0]).arg.device == "mpi"]
    assert len(here) > 6, "the first layers are gathered once more for the backward pass"
    for a, b in zip(here[:6], here[1:6], strict=False):
        first = next(i for i, c in enumerate(mine) if i > a and base_of(operands_of(mine[a])[0]) in operands_of(c))
        assert b < first, "the next gather begins before the one before it is used"


def test_gradients_are_sent_while_others_are_computed() -> None:
    step = prefetch(training(6), is_message)
    mine = items(own(step, lambda device: device == "mpi"))
    sent = [i for i, c in enumerate(mine) if c.op == "STORE" and base_of(operands_of(c)[1]).op == "BUFFER"]
    updates = [i for i, c in enumerate(mine) if c.op == "CALL" and base_of(operands_of(c)[0]).op == "PARAM"]
    assert len(updates) == 6 and updates[0] < sent[-1]
    between = [sum(c.op == "CALL" for c in mine[a:b]) for a, b in zip(sent, sent[2:], strict=False)]
    assert sum(n > 0 for n in between) >= len(between) - 1


def test_steps_without_gathers_stay_as_they_are() -> None:
    p = Program(2)
    p.sum(p.params[0], p.params[1], to=p.params[0])
    step = p.step()
    assert prefetch(step, is_message) is step
    moved = p.copy(p.sum(p.params[0], p.params[1]), "mpi:1")
    p.sum(moved, p.params[2], to=p.params[2])
    step = p.step()
    assert prefetch(step, is_message) is step, "a message of a computed value alone"


def test_a_gather_of_memory_that_changes_is_not_repeated() -> None:
    """Each of the values is read again after the memory that it came from has changed."""
    p = Program(8)
    here, far = p.state["mpi"], p.state["mpi:1"]
    gathered = [p.copy(w, "mpi") for w in far[1:]]
    for k, g in enumerate(gathered):
        p.sum(here[k], g, to=here[k])
    for w in far[1:]:
        p.sum(w, w, to=w)
    for k, g in enumerate(gathered):
        p.sum(here[k], g, to=here[k])
    step = p.step()
    for wanted, found in zip(state_after(step), state_after(prefetch(step, is_message)), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_gathered_value_that_is_written_to_is_not_gathered_again() -> None:
    p = Program(8)
    here, far = p.state["mpi"], p.state["mpi:1"]
    gathered = [p.copy(w, "mpi") for w in far[1:]]
    p.sum(here[0], gathered[0], to=gathered[0])
    for k, g in enumerate(gathered):
        p.sum(here[0], here[k], g, to=here[0])
    p.sum(here[0], gathered[0], to=here[0])
    step = p.step()
    for wanted, found in zip(state_after(step), state_after(prefetch(step, is_message)), strict=True):
        np.testing.assert_array_equal(found, wanted)


def random_program(draw: random.Random) -> UOp:
    """Copies between two processes, sums and updates in any order, with values read late and memory written early."""
    p = Program(draw.randint(2, 6))
    known = {name: [*s] for name, s in p.state.items()}
    for _ in range(draw.randint(4, 40)):
        name = draw.choice(NAMES)
        other = NAMES[name == NAMES[0]]
        kind = draw.choice(("gather", "copy", "sum", "sum", "sum", "update"))
        if kind == "gather":
            known[name].append(p.copy(draw.choice(p.state[other]), name))
        elif kind == "copy":
            known[name].append(p.copy(draw.choice(known[other]), name))
        else:
            operands = [draw.choice(known[name]) for _ in range(draw.randint(1, 3))]
            to = draw.choice(known[name] if draw.random() < 0.2 else p.state[name]) if kind == "update" else None
            made = p.sum(*operands, to=to)
            if to is None:
                known[name].append(made)
    for name in NAMES:  # each value counts
        p.sum(*known[name], to=p.state[name][0])
    return p.step()


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(4))
def test_random_steps_keep_their_results(seed: int, start: int) -> None:
    changed = 0
    for k in range(30):
        step = random_program(random.Random(f"{start} {seed} {k}"))
        after = prefetch(step, is_message)
        changed += after is not step
        for wanted, found in zip(state_after(step), state_after(after), strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg=f"{start} {seed} {k}")
        assert all(writes(c) for c in items(after))
    assert changed > 10
