"""CHECK_BOUNDS=1 looks at the indices of a captured step, too: after each call, by two numbers the step computes."""

import numpy as np
import pytest

from monolect import Context, IndexRangeError, Tensor, jit
from monolect.runtime import profile

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


def made():
    """A step that reads rows, with a state, and that state."""
    table, calls = Tensor(TABLE).realize(), Tensor(np.zeros(1, np.float32)).realize()

    @jit
    def step(index):
        calls.assign(calls + 1)
        return table[index] * 2

    return step, calls


def indices(*values):
    return Tensor(np.array(values)).realize()


def test_an_index_out_of_range_is_found_at_a_replay():
    with Context(CHECK_BOUNDS=1):
        step, calls = made()
        for _ in range(3):
            np.testing.assert_array_equal(step(indices(0, 3, -1)).numpy(), TABLE[[0, 3, -1]] * 2)
        for wrong in (4, -5, 10**9, -(2**62)):
            with pytest.raises(IndexRangeError, match="index: an index of a jitted step") as error:
                step(indices(0, wrong, 1))
            assert str(wrong) in str(error.value) and "-4..3" in str(error.value)
            assert "test_checked_steps.py" in str(error.value)
        np.testing.assert_array_equal(step(indices(1, 2, 3)).numpy(), TABLE[1:] * 2)
        assert len(step.captures) == 1 and calls.item() == 8


def test_a_step_that_is_captured_with_one_changes_nothing():
    with Context(CHECK_BOUNDS=1):
        step, calls = made()
        with pytest.raises(IndexRangeError):
            step(indices(0, 7))
        assert calls.item() == 0 and not step.captures
        step(indices(0, 3))
        assert calls.item() == 1 and len(step.captures) == 1


def test_gather_and_stores_by_place():
    with Context(CHECK_BOUNDS=1):
        x = Tensor(TABLE).realize()
        gather = jit(lambda i: x.gather(1, i))
        add = jit(lambda i: Tensor.zeros(4, 3).scatter_add(1, i, x))
        right, wrong = np.zeros((4, 3), np.int64), np.full((4, 3), 3, np.int64)
        for step in (gather, add):
            for _ in range(2):
                step(Tensor(right).realize())
            with pytest.raises(IndexRangeError):
                step(Tensor(wrong).realize())


def test_a_step_without_the_setting_is_as_it_was():
    counts = []
    for on in (0, 1):
        with Context(CHECK_BOUNDS=on):
            step, _ = made()
            step(indices(0, 1))
            with profile.Recorder() as kernels:
                step(indices(0, 1))
            (captured,) = step.captures.values()
            counts.append((len(kernels), len(captured.capture.outputs), len(captured.checks), step.usual is not None))
    assert counts[0][1:] == (1, 0, True)
    assert counts[1][1:] == (3, 1, False) and counts[1][0] > counts[0][0]


def test_indices_that_are_known_to_be_inside_are_not_looked_at():
    with Context(CHECK_BOUNDS=1):
        x = Tensor(TABLE).realize()
        step = jit(lambda i: x[i % 4])
        step(indices(5, 6))
        (captured,) = step.captures.values()
        assert captured.checks == ()


def test_a_saved_step_looks_too(tmp_path):
    with Context(CHECK_BOUNDS=1):
        step, _ = made()
        step(indices(0, 3))
        step.save(tmp_path / "step")
        loaded = jit.load(tmp_path / "step")
        np.testing.assert_array_equal(loaded(indices(1, 2)).numpy(), TABLE[1:3] * 2)
        with pytest.raises(IndexRangeError):
            loaded(indices(1, 4))
