"""Random steps whose states become parts, shapes and copies of what they compute, captured and plain by turns: values
are those of the plain step, and a step is captured once where its results share no memory with states.
"""

import random
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monolect import CaptureWarning, Tensor, function, jit
from monolect.capture import recording
from monolect.capture.recording import Recording
from tests.strategies import often

FEW = often(3, 250)
N = 6
rotate = function(lambda x: (x.roll(1, 0) * 0.5, x.reshape(2, 3).T @ x.reshape(2, 3)), precompile=True)
# What a state of six elements becomes, of another one and an argument.
VALUES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sorted": lambda s, x: (s + x).sort(0).values,
    "first sorted": lambda s, x: Tensor.cat(s, x).sort(0).values[:N],
    "last sorted": lambda s, x: Tensor.cat(s, x).sort(0, descending=True).values[N:],
    "topk": lambda s, x: (s * 0.5 + x).topk(N).values,
    "topk of more": lambda s, x: Tensor.cat(s, x * 2).topk(N).values,
    "rows of topk": lambda s, x: Tensor.stack(s, x).topk(3, 1).values.reshape(N),
    "precompiled": lambda s, x: rotate(s + x)[0],
    "shape of precompiled": lambda s, x: (rotate(s)[1] * 0.1).reshape(9)[:N] + x,
    "part of precompiled": lambda s, x: rotate(s + x)[1].reshape(9)[3:],
    "running sum": lambda s, x: (s + x).cumsum(0)[-1:].expand(N) * 0.1,
    "turned": lambda s, x: (s + x).contiguous().reshape(2, 3).T.reshape(N),
    "part": lambda s, x: Tensor.cat(s * 0.5, x).contiguous()[3 : 3 + N],
    "argument": lambda s, x: x,
    "state": lambda s, x: s,
    "detached": lambda s, x: (s * 0.9).detach(),
    "shapes": lambda s, x: (s + 1).reshape(2, 3).reshape(N) * 1,
}
RESULTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda s, x: (s + x).sum(),
    "equal": lambda s, x: s * 1,
    "state": lambda s, x: s,
    "part": lambda s, x: s[1:3],
    "clone": lambda s, x: s.clone(),
}
ALONE = ("sum", "clone")  # results that share no memory with a state, which would be captured again when it changes


class Calls:
    """The calls of a program: plain steps may leave a part of a value in a state, which the next capture of a step that
    assigns it cannot replay.
    """

    after_plain = False  # was there a plain call since the step under way was called last?


def program(seed: int, wrap: Callable[[Callable], Any], calls: Calls) -> tuple[list[np.ndarray], list[Any]]:
    """What the program of a seed reads after each call, and its steps that return values of their own."""
    r = random.Random(seed)
    rng = np.random.default_rng(seed)
    states = [Tensor(rng.standard_normal(N)) for _ in range(3)]
    names, alone = r.sample(sorted(VALUES), 4), r.random() < 0.5

    def made() -> Callable[[Tensor], Tensor]:
        plan = [(VALUES[r.choice(names)], r.randrange(3), r.randrange(3)) for _ in range(r.randrange(1, 4))]
        result, of = RESULTS[r.choice(ALONE if alone else sorted(RESULTS))], r.randrange(3)

        def step(x: Tensor) -> Tensor:
            for value, i, j in plan:
                states[i].copy_(value(states[j], x))
            return result(states[of], x)

        return step

    plain = [made(), made()]
    steps = [wrap(f) for f in plain]
    read, held, after_plain = [], None, [False, False]
    for _ in range(10):
        x, k = Tensor(rng.standard_normal(N)), r.randrange(2)
        is_plain = r.random() < 0.2
        calls.after_plain = after_plain[k]
        if is_plain:
            after_plain = [True, True]
        else:
            after_plain[k] = False
        back = (plain if is_plain else steps)[k](x)
        held = back if r.random() < 0.5 else held  # results live on
        read += [t.numpy().copy() for t in (back, *states) if r.random() < 0.8]
    assert held is None or held.ndim < 2
    return read, steps if alone else []


def wrong(seed: int) -> str | None:
    """What is wrong with the program of a seed, if anything is."""
    calls = Calls()
    want, _ = program(seed, lambda f: f, calls)
    captured: Counter[int] = Counter()
    run = Recording.run

    def counted(self: Recording) -> Any:
        captured[id(self.step)] += not calls.after_plain
        return run(self)

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(Recording, "run", counted)
        warnings.simplefilter("ignore", CaptureWarning)
        found, steps = program(seed, jit, calls)
    for a, b in zip(found, want, strict=True):
        if not np.allclose(a, b, rtol=1e-9, atol=1e-12):
            return f"a value is {a}, expected {b}"
    if any(captured[id(s)] > 2 for s in steps):
        return f"captured {[captured[id(s)] for s in steps]} times"
    return None


def test_steps_are_captured_once(start: int) -> None:
    for seed in range(start, start + FEW):
        assert (what := wrong(seed)) is None, f"the program of seed {seed}: {what}"


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """States may stay parts of what a step has computed."""
    monkeypatch.setattr(recording, "copied", lambda u: u)
    assert any(wrong(seed) for seed in range(30))
