"""Random eager programs, each run several times on other data, and compared with PyTorch after each run.

The second run of a program finds records of its calls, and the third runs kernels without nodes
(`tensor/state/delayed.py`). So a run holds values, writes to operands, freezes and unfreezes leaves, differentiates,
and calls captured steps between the call of a method and the use of its value.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import Tensor
from monolect.tensor.state import delayed
from tests.strategies import often

RUNS = 9  # a number that differs is an input from the fifth run on, and its programs run without nodes from the sixth
SIZE = 4
Step = Callable[[Any, list[Any], dict[str, Any]], None]  # of (library, values, what it keeps)


class Ours:
    """The calls that are written differently."""

    no_grad = staticmethod(monolect.no_grad)
    where = staticmethod(monolect.where)
    tensor = staticmethod(lambda a: Tensor(a).realize())
    step = staticmethod(monolect.jit(lambda x: x * 2 + 1))
    compute = staticmethod(lambda t: t.realize())
    read = staticmethod(lambda t: t.numpy())


class Theirs:
    no_grad = staticmethod(torch.no_grad)
    where = staticmethod(torch.where)
    tensor = staticmethod(lambda a: torch.from_numpy(a.copy()))
    step = staticmethod(lambda x: (x * 2 + 1).detach())
    compute = staticmethod(lambda t: t)
    read = staticmethod(lambda t: t.detach().numpy())


def binary(draw: random.Random) -> Step:
    op = draw.choice(("add", "sub", "mul", "maximum", "minimum", "__add__", "__mul__", "__matmul__"))
    i, j = draw.randrange(9), draw.randrange(9)

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        values.append(getattr(values[i % len(values)], op)(values[j % len(values)]) * 0.5)

    return step


def with_number(draw: random.Random) -> Step:
    op = draw.choice(("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__truediv__"))
    i, number = draw.randrange(9), draw.choice((1, 2, 0.0, -0.0, 0.5, True, -1, 3))
    number = 2.5 if op in ("__truediv__", "__sub__", "__rsub__") else number  # PyTorch refuses True - x
    differs = draw.choice((0.0, 0.25, 0.25))  # by which it differs from run to run
    if differs:
        number = draw.choice((0.5, 1.25))  # a float, which becomes an input; some of them are equal in some runs

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        by = number + differs * (kept["run"] % 5) if differs else number
        values.append(getattr(values[i % len(values)], op)(by))

    return step


def unary(draw: random.Random) -> Step:
    op = draw.choice(("tanh", "relu", "sigmoid", "abs", "square", "softmax", "neg"))
    i = draw.randrange(9)

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        x = values[i % len(values)].tanh()
        values.append(x.softmax(-1) if op == "softmax" else getattr(x, op)())

    return step


def reduction(draw: random.Random) -> Step:
    op, i, dim, keep = draw.choice(("sum", "mean", "amax", "amin")), draw.randrange(9), draw.choice((0, 1)), True

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        values.append(getattr(values[i % len(values)], op)(dim, keepdim=keep) + values[0])

    return step


def view(draw: random.Random) -> Step:
    i, kind = draw.randrange(9), draw.randrange(3)

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        x = values[i % len(values)]
        values.append((x.reshape(2, -1).reshape(SIZE, SIZE), x.t(), x[1:2].expand(SIZE, SIZE))[kind])

    return step


def rows(draw: random.Random) -> Step:
    """Rows and elements, others in each run, as operands; perhaps their base is written to before the value is read."""
    i, j, at, how = draw.randrange(9), draw.randrange(9), draw.randrange(SIZE), draw.randrange(4)
    op, is_written = draw.choice(("__add__", "__mul__", "maximum")), draw.random() < 0.3

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        x, y = values[i % len(values)], values[j % len(values)]
        k = (at + kept["run"]) % SIZE
        part = (y[k], y[k, -1], [*y][k], y[k:][0])[how]
        if how == 1:
            part = part.reshape(1)
        value = getattr(x[-1 - k], op)(part) * 0.5
        if is_written and kept["leaf"] is None:
            kept["data"][0][k] = 0.25
            kept["data"][1].mul_(0.5)
        values.append(value + values[0])

    return step


def write_to_data(draw: random.Random) -> Step:
    """Write to one of the inputs, which delayed calls may read."""
    i, j, op = draw.randrange(3), draw.randrange(9), draw.choice(("add_", "mul_", "row"))

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        x, y = kept["data"][i], values[j % len(values)]
        if kept["leaf"] is not None:  # PyTorch refuses a later backward
            return
        if op == "row":
            x[1] = y.detach()[0] * 1  # PyTorch may read what it has written where `y` shows `x`
        else:
            getattr(x, op)(y.detach().tanh())
        values.append(x * 0.5)

    return step


def compute(draw: random.Random) -> Step:
    i = draw.randrange(9)

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        lib.compute(values[i % len(values)])

    return step


def forget(draw: random.Random) -> Step:
    i = draw.randrange(9)

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        if len(values) > 4:
            values.pop(3 + i % (len(values) - 3))

    return step


def captured(draw: random.Random) -> Step:
    i = draw.randrange(9)

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        values.append(lib.step(values[i % len(values)].detach()))

    return step


def leaf(draw: random.Random) -> Step:
    """Make the last input a leaf: values computed before pass no gradient to it."""

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        if kept["leaf"] is None:
            kept["leaf"] = kept["data"][2].requires_grad_()
            values.append(kept["leaf"] * 2)

    return step


def without_gradient(draw: random.Random) -> Step:
    inner = draw.choice((binary, unary, with_number))(draw)

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        with lib.no_grad():
            inner(lib, values, kept)

    return step


def differentiate(draw: random.Random) -> Step:
    i = draw.randrange(9)

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        if kept["leaf"] is not None:
            loss = (values[i % len(values)] * kept["leaf"]).tanh().sum()
            loss.backward(retain_graph=True)
            kept["gradient"] = lib.read(kept["leaf"].grad).copy()

    return step


def chain(draw: random.Random) -> Step:
    """Make several calls, each on the value of the one before, and hold the last value alone."""
    steps = [draw.choice((binary, with_number, unary, reduction))(draw) for _ in range(draw.randrange(2, 5))]
    is_computed = draw.random() < 0.5

    def step(lib: Any, values: list[Any], kept: dict[str, Any]) -> None:
        own = [*values]
        for inner in steps:
            inner(lib, own, kept)
            own = [own[-1], *values]  # the calls above have no other holder
        values.append(lib.compute(own[0]) if is_computed else own[0])

    return step


STEPS = (
    *(chain,) * 8,
    *(binary, with_number, unary, reduction, rows) * 3,
    *(view, write_to_data, compute, forget, captured, leaf, without_gradient, differentiate),
)


def result(lib: Any, steps: list[Step], data: list[np.ndarray], run: int) -> list[np.ndarray]:
    """Return the values that run number `run` of the program `steps` leaves on `data`, its gradient last."""
    values = [lib.tensor(a) for a in data]
    kept: dict[str, Any] = {"data": [*values], "leaf": None, "gradient": np.zeros(1), "run": run}
    for step in steps:
        step(lib, values, kept)
    found = [lib.read(values.pop()).copy() for _ in range(len(values))]
    return [*found, *(lib.read(v).copy() for v in kept["data"]), kept["gradient"]]


@pytest.mark.parametrize("seed", range(often(12, 600)))
def test_runs_of_one_program_are_those_of_pytorch(seed: int) -> None:
    draw = random.Random(seed)
    steps = [draw.choice(STEPS)(draw) for _ in range(draw.randrange(3, 16))]
    for run in range(RUNS):
        rng = np.random.default_rng([seed, run])
        data = [rng.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(3)]
        for ours, theirs in zip(result(Ours, steps, data, run), result(Theirs, steps, data, run), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)


def test_programs_use_records() -> None:
    """The generator reaches what it is for: most programs run calls without nodes."""
    runs = 0
    launch = delayed.launched

    def counted(*args: Any) -> Any:
        nonlocal runs
        runs += 1
        return launch(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delayed, "launched", counted)
        for seed in range(6):
            test_runs_of_one_program_are_those_of_pytorch(1000 + seed)
    assert runs > 20
