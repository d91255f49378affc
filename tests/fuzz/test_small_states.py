"""Random steps over numbers and small tensors from outside, counters of Python that go round, and memory of arrays,
beside PyTorch.

A world is states of several dtypes, many of them constants that were not computed yet, expressions that steps may
write too, and plain counters in an attribute and a dict. Steps compute with literal numbers that the states may be
equal to, copy arguments and states, and count; between the calls others write to the states and the expressions, set
counters back, and overwrite the array behind the argument.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from monolect import JitError, Tensor, dtypes, function, jit
from monolect.capture import recording
from monolect.capture import step as capture
from monolect.capture.around import external_reads, realize_external_values
from monolect.capture.function import Function
from tests.strategies import often

DTYPES = ("int8", "int32", "int64", "float32", "float64", "float64")
# of each kind of program: what its steps do, and what is done between their calls
KINDS = (
    (("literal", "folded", "value", "compare"), ("call",) * 5 + ("wait", "other", "other", "set", "scale")),
    (
        ("folded", "compare", "add", "copy", "swap", "fill", "value", *("argument",) * 3, *("count", "mapped") * 2),
        ("call",) * 9 + ("set", "set", "scale", "copy", "back", "read"),
    ),
)
N = 3  # states
FORMS: dict[str, Callable] = {
    "eager": lambda f: f,
    "jit": jit,
    "function": function,
    "precompiled": lambda f: function(f, precompile=True),
    "both": lambda f: jit(function(f)),
}


class World:
    """What a program has, of one library."""

    def __init__(self, lib: Any, r: random.Random, wrap: Callable):
        self.lib, self.r = lib, r
        self.ops, self.between = r.choice(KINDS)
        self.states = [self.state(r.choice(DTYPES)) for _ in range(N)]
        self.alive = [self.expression(i) for i in range(N)]  # not computed yet
        self.array = np.zeros(4)
        self.n, self.counts = 0, {"n": 0}
        self.steps = [wrap(self.step(k)) for k in range(2)]

    def number(self, value: Any, dtype: str) -> Any:
        if self.lib is torch:
            return torch.tensor(value, dtype=getattr(torch, dtype))
        return Tensor(value, dtype=getattr(dtypes, dtype))

    def state(self, dtype: str) -> Any:
        value, how = self.r.randrange(3), self.r.randrange(6)
        if how == 0:
            return self.number(value, dtype)
        if how > 2:
            return self.number([value] * 4, dtype)
        if self.lib is torch:
            return torch.full((4,) if how == 1 else (), value, dtype=getattr(torch, dtype))
        return Tensor.full((4,) if how == 1 else (), value, dtype=getattr(dtypes, dtype))

    def expression(self, i: int) -> Any:
        """As a step may write it, too."""
        return (self.states[i] + i) * 2

    def fit(self, value: Any, t: Any) -> Any:
        """`value` in the shape and dtype of `t`; a float is in the range of int8, as what becomes of others differs."""
        value = value.sum() if tuple(value.shape) != tuple(t.shape) else value
        value = value % 128 if "float" in str(value.dtype) and "int" in str(t.dtype) else value
        return value.to(t.dtype) if self.lib is torch else value.cast(t.dtype)

    def step(self, k: int) -> Callable:
        r, states = self.r, self.states
        plan = [(r.choice(self.ops), r.randrange(N), r.randrange(N), r.randrange(3)) for _ in range(r.randrange(1, 5))]

        def step(x: Any) -> tuple:
            back = [x * 2]
            for op, i, j, c in plan:
                a, b = states[i], states[j]
                if op == "literal":
                    back.append(self.expression(i) + c)
                elif op == "folded":
                    back.append(a + c + 1)
                elif op == "compare":
                    back.append((a > c) | (b > a.sum()))
                elif op == "value":
                    back.append((x + c) * a.sum() + (x > c))
                elif op == "count":
                    self.n = (self.n + 1) % 2
                    a.copy_(self.fit(b + self.n, a))
                elif op == "mapped":
                    self.counts["n"] = 1 - self.counts["n"]
                    back.append(b * self.counts["n"] + c)
                else:
                    self.write(op, i, j, c, x)
            return tuple(back)

        return step

    def write(self, op: str, i: int, j: int, c: int, x: Any) -> None:
        a, b = self.states[i], self.states[j]
        if op == "add":
            a.copy_(self.fit(b % 5 + c, a))
        elif op == "copy":
            a.copy_(self.fit(b, a))
        elif op == "argument":
            a.copy_(self.fit(x, a))
        elif op == "swap":
            before = a.clone()
            a.copy_(self.fit(b, a))
            b.copy_(self.fit(before, b))
        else:
            a.fill_(c)

    def run(self) -> Iterator[list[np.ndarray]]:
        """All values after each action."""
        r = self.r
        for _ in range(14):
            action, i, j, c = r.choice(self.between), r.randrange(N), r.randrange(N), r.randrange(3)
            back: tuple = ()
            if action == "call":
                self.array[:] = c, 1, j, 2
                x = torch.from_numpy(self.array) if self.lib is torch else Tensor(self.array)
                back = self.steps[i % 2](x)
            elif action == "set":
                self.write("fill", i, j, c + 1, None)
            elif action == "scale":
                self.states[i].copy_(self.fit(self.states[i] * 2 % 7, self.states[i]))
            elif action == "copy":
                self.write("copy", i, j, c, None)
            elif action == "back":
                self.n, self.counts["n"] = 0, c % 2
            elif action == "wait":
                self.alive[i] = self.expression(i)
            elif action == "other":
                self.alive[i].fill_(7)
            if back or action == "read":
                yield [t.numpy().copy() for t in (*back, *self.states)]
                self.array[:] = 99.0  # what was copied from it stays
                yield [t.numpy().copy() for t in self.states]
        yield [t.numpy().copy() for t in self.states]


def differs(seed: int, forms: tuple[str, ...]) -> bool:
    """Whether the program of a seed differs from PyTorch's in one of the forms."""
    wanted = [*World(torch, random.Random(seed), lambda f: f).run()]
    for form in forms:
        found = World(Tensor, random.Random(seed), FORMS[form]).run()
        for ours, theirs in zip(found, wanted, strict=True):
            if not all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)):
                return True
    return False


@pytest.mark.filterwarnings("ignore::monolect.CaptureWarning")
def test_programs_agree_with_pytorch(request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--hypothesis-seed")
    start = random.Random(seed).randrange(10**6)
    for k in range(start, start + often(3, 60)):
        assert not differs(k, tuple(FORMS)), f"the program of seed {k}"


def _without_sources(*args: Any) -> tuple[set, set]:
    return realize_external_values(*args)[0], set()


PLANTED: dict[str, tuple[Any, str, Any, str]] = {
    "a capture that counts is kept": (capture.Dependencies, "changed", lambda self, now: None, "jit"),
    "a trace that counts is kept": (Function, "_is_as_before", lambda *args: True, "function"),
    "numbers are folded into a step": (recording, "realize_dependencies", lambda *args: None, "jit"),
    "nothing is woven into a step": (recording, "external_reads", lambda *args: (external_reads(*args)[0], []), "jit"),
    "an expression of a step is a tensor": (recording, "realize_external_values", _without_sources, "jit"),
    "what a function copies is shared": ("monolect.capture.function", "in_own_memory", lambda u: u, "function"),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::monolect.CaptureWarning")
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, fault, form = PLANTED[name]
    if isinstance(target, str):
        monkeypatch.setattr(f"{target}.{attribute}", fault)
    else:
        monkeypatch.setattr(target, attribute, fault)
    assert any(_fails(seed, form) for seed in range(120))


def _fails(seed: int, form: str) -> bool:
    try:
        return differs(seed, (form,))
    except JitError:
        return True
