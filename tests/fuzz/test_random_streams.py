"""Random programs that draw random numbers: lazily, at once, in captured steps and in `@function`s, on two devices and
under changing seeds. Captured programs hand out the numbers that plain ones do, in the order of the calls, and none
of a seed twice.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor, dtypes, function, jit
from tests.strategies import often

FEW = often(6, 500)
DEVICES = ("cpu", "python")
OPS = ("draw", "draw", "normal", "step", "step", "again", "again", "again", "again", "read", "many", "seed")
programs = st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 15), st.booleans()), min_size=2, max_size=12)


def bits(n: int, device: str) -> Tensor:
    """All bits of each number: two that are equal are one."""
    return Tensor.randint(-(2**63), 2**63, (n,), device=device)


class Program:
    """Steps that draw, each captured if `is_captured`, and what was drawn so far."""

    def __init__(self, is_captured: bool):
        made: Callable = jit if is_captured else lambda f: f
        self.drawn: list[tuple[int, Tensor]] = []  # with the number of the seed
        self.others: list[Tensor] = []
        self.n_seeds = self.last = 0
        self.steps = [(made(f), args) for k in range(8) for d in DEVICES for f, args in [self.steps_of(d)[k]]]

    def steps_of(self, d: str) -> list[tuple[Callable, tuple]]:
        state, ones = Tensor(np.zeros(1, np.float32), device=d), Tensor(np.ones(6, np.float32), device=d)
        zeros = Tensor(np.zeros(3, np.int64), device=d)
        self.others.append(state)
        inner = function(lambda x: x + bits(3, d))
        opaque = function(lambda x: x + bits(3, d), precompile=True)

        def in_two_batches() -> Any:
            first = bits(2, d).realize()
            return first, bits(3, d)

        def dropped(x: Tensor) -> Any:
            state.assign(state + x.sum())
            return bits(2, d), x.dropout(0.5, training=True)

        def not_returned() -> Any:
            Tensor.rand(5, device=d)
            return bits(1, d)

        def assigned() -> Any:
            new = bits(2, d)
            state.assign(Tensor.rand(1, device=d))
            return new

        return [
            (lambda: bits(3, d), ()), (in_two_batches, ()), (dropped, (ones,)), (not_returned, ()), (assigned, ()),
            (lambda x: inner(x), (zeros,)), (lambda x: opaque(x), (zeros,)),
            (lambda x: (Tensor.randn(4, device=d), x * 2, bits(1, d)), (ones,)),
        ]  # fmt: skip

    def run(self, op: str, k: int, is_late: bool) -> None:
        device, found = DEVICES[k % 2], []
        if op == "draw":
            found = [bits(1 + k, device)]
        elif op == "normal":
            found = [Tensor.randn(1 + k, device=device)]
        elif op == "many":
            found = [bits(1, device) for _ in range(70)]
        elif op in ("step", "again"):
            self.last = k if op == "step" else self.last
            step, args = self.steps[self.last]
            result = step(*args)
            found = [result] if isinstance(result, Tensor) else [*result]
        elif op == "seed":
            Tensor.manual_seed(k)
            self.n_seeds += 1
        elif op == "read" and self.drawn:
            self.drawn[k % len(self.drawn)][1].realize()
        for t in found:
            if t.dtype is dtypes.int64:
                self.drawn.append((self.n_seeds, t))
            self.others.append(t if is_late else t.realize())


def values(program: list[tuple[str, int, bool]], is_captured: bool) -> list[list]:
    """What the program drew, and its state; no number of a seed is drawn twice on a device."""
    Tensor.manual_seed(0)
    p = Program(is_captured)
    for op in program:
        p.run(*op)
    seen: set[tuple] = set()
    for seed, t in p.drawn:
        new = {(seed, t.device, x) for x in t.tolist()}
        assert len(new) == t.numel() and seen.isdisjoint(new), "a number is drawn twice"
        seen |= new
    return [t.tolist() for t in p.others]


@settings(max_examples=FEW)
@given(programs)
def test_captured_programs_draw_the_numbers_of_plain_ones(program):
    for got, wanted in zip(values(program, True), values(program, False), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
