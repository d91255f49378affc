"""Memory of captured steps: shared by intermediates, by kernels, and kept apart from what a capture computes."""

import re
from unittest.mock import Mock

import numpy as np
import pytest

from monolect import Context, Tensor, jit
from monolect.backend.registry import Device


def test_intermediates_share_memory_over_the_whole_capture(capsys: pytest.CaptureFixture) -> None:
    n = 4096

    @jit
    def step(x: Tensor) -> Tensor:
        for _ in range(6):
            x = (x * 0.5 + 1).contiguous().realize()  # each a batch of its own
        return x.sum()

    x = Tensor(np.ones(n, np.float32)).realize()
    with Context(DEBUG=2):
        step(x)
    assert re.search(r"captured: .* intermediates 0.033 MB.* host peak [0-9.]+ MB", capsys.readouterr().err)
    assert step.peak_bytes == 2 * 4 * n + 4, "two buffers take turns, and the result"
    want, first, second = x.numpy(), step(x), step(x)
    for _ in range(6):
        want = want * 0.5 + 1
    assert first.item() == second.item() == want.sum()


def test_what_kernels_have_for_themselves_is_shared_by_all_steps_of_a_device() -> None:
    values = [Tensor(np.ones((n, n), np.float32) / n).realize() for n in (384, 320, 256)]
    steps = [jit(lambda x: x @ x) for _ in values]
    shared = Device["cpu"].local(16 << 20)
    for _ in range(2):
        for step, x in zip(steps, values, strict=True):
            assert np.allclose(step(x).numpy(), x.numpy(), rtol=1e-5)
    captures = [c.capture for step in steps for c in step.captures.values()]
    assert all(c.commands.shares_local and c.commands.local is shared for c in captures)
    assert all(c.short is None for c in captures), "without a lock another step would write there meanwhile"
    for step, x, c in zip(steps, values, captures, strict=True):
        assert step.peak_bytes == x.numel() * 4 + c.commands.local_bytes
    small = jit(lambda x: x.exp().sum())
    small(values[0][0])
    commands = next(iter(small.captures.values())).capture.commands
    assert not commands.shares_local and commands.local_bytes < 1 << 16


def test_what_a_capture_made_on_its_way_is_not_written_by_replays() -> None:
    seen = Mock()  # of another library: what it holds makes no other step

    @jit
    def step(x: Tensor) -> Tensor:
        y = (x + 1).contiguous().realize()
        seen(y)
        return ((y * 2).contiguous().realize() - 1).contiguous()

    step(Tensor([1.0, 2.0]))
    assert step(Tensor([5.0, 6.0])).tolist() == [11.0, 13.0]
    assert [call.args[0].tolist() for call in seen.mock_calls] == [[2.0, 3.0]]
