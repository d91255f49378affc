"""Steps whose states share memory with other values: captured once, or said to be captured again."""

from collections.abc import Callable

import numpy as np
import pytest

from monolect import CaptureWarning, Tensor, function, jit


def test_a_step_that_reads_shared_memory_is_captured_again_and_says_so() -> None:
    total = Tensor(0.0)

    @jit
    def add() -> Tensor:
        total.assign(total + 1)
        return total * 1  # in the memory of the state

    twice, held = jit(lambda x: x + total * 2), []
    with pytest.warns(CaptureWarning, match="shares its memory") as told:
        for i in range(8):
            held = [add()]
            assert twice(Tensor(0.0)).item() == 2 * (i + 1) and held[0].item() == i + 1
    assert len(told) == 1


# What a state becomes is then a part, or another shape, of memory that was computed.
ROW = Tensor(np.arange(8.0)).realize()
PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "topk": lambda s: (ROW + s.sum()).topk(3).values,
    "a part of a sorted row": lambda s: (ROW + s.sum()).sort(0).values[2:5],
    "a shape of a precompiled result": lambda s: function(lambda: s.reshape(3, 1) * 2, precompile=True)().reshape(3),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PARTS)
def test_a_state_that_becomes_a_part_of_a_value_is_captured(name: str) -> None:
    value, state, want = PARTS[name], Tensor(np.ones(3)), Tensor(np.ones(3))

    def advance(s: Tensor) -> Tensor:
        s.copy_(value(s))
        return s.sum()

    step, look = jit(lambda: advance(state)), jit(lambda x: (state * x).sum())
    for i in range(8):
        result, expected = (advance(state) if i % 3 == 2 else step()), advance(want)
        assert result.item() == expected.item() == look(Tensor(1.0)).item() and state.tolist() == want.tolist()
    assert (len(step.captures), len(look.captures)) == (1, 1)
