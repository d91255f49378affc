"""Kernels that differ only in where in their buffers they begin are one program, and each launch finds its own part."""

from pathlib import Path

import numpy as np
import pytest

from monolect import Tensor, jit
from monolect.base.dtype import dtypes
from monolect.command.rewrites.rebase import rebased_kernel
from monolect.ir.check.prove import check_bounds
from monolect.ir.ops import KernelInfo, ParamArg
from monolect.ir.rewrite.normal import FALSE
from monolect.ir.uop import UOp, build, const, idx, node, shape_source
from monolect.runtime import profile
from monolect.runtime.realize.programs import loaded
from monolect.tensor.tensor import compute_pending

R = node("RANGE", (idx(16),), (0, "LOOP"))


def copy_of(index: UOp, gate: UOp | None = None, size: int = 512) -> UOp:
    """A kernel that reads an element of `size` in each of 16 iterations, where the gate lets it."""
    out, x = (
        node("PARAM", (shape_source((n,)),), ParamArg(k, dtypes.float32, "cpu", "GLOBAL"))
        for k, n in enumerate((16, size))
    )
    load = node("LOAD", (node("INDEX", (x, index)), *(() if gate is None else (const(0.0, dtypes.float32), gate))))
    return node("SINK", (node("END", (node("STORE", (node("INDEX", (out, R)), load)), R)),), KernelInfo())


def test_kernels_that_begin_elsewhere_are_one() -> None:
    (a, at), (b, further) = (rebased_kernel(copy_of(R + first), 2) for first in (32, 496))
    assert a is b and (at, further) == ((0, 128), (0, 1984))
    assert rebased_kernel(copy_of(R + 32, size=1024), 2).kernel is a  # what lies behind is no concern of it
    check_bounds(a)


def test_a_part_begins_at_a_line_of_memory() -> None:
    part, offsets = rebased_kernel(copy_of(R + 37), 2)
    assert offsets == (0, 128) and part is rebased_kernel(copy_of(R + 21), 2).kernel
    check_bounds(part)


def test_what_a_gate_keeps_inside_stays_inside() -> None:
    part, offsets = rebased_kernel(copy_of(R + 504, build("CMPLT", R, idx(8))), 2)
    assert offsets == (0, 496 * 4)
    check_bounds(part)


@pytest.mark.parametrize(
    "kernel",
    [copy_of(R), copy_of(R + 15), copy_of(R + -16, build("CMPLT", idx(15), R)), copy_of(R + 600, FALSE)],
    ids=["from the first", "in the first line", "before the first", "never inside"],
)
def test_other_kernels_stay_as_they_are(kernel: UOp) -> None:
    assert rebased_kernel(kernel, 2) == (kernel, ())


def unrolled(x: Tensor, w: Tensor, n: int) -> Tensor:
    h = x[:, 0].tanh()
    for t in range(1, n):
        h = (x[:, t] + h @ w).tanh()
    return h


def test_the_steps_of_a_recurrence_are_one_program() -> None:
    n = 6
    x, w = np.random.default_rng(0).standard_normal((2, n, 32, 32)).astype(np.float32)
    xs, ws = Tensor(np.ascontiguousarray(x.swapaxes(0, 1))).realize(), Tensor(w[0]).realize()
    want = np.tanh(x[0])
    for t in range(1, n):
        want = np.tanh(x[t] + want @ w[0])
    compute_pending()  # the count of a random draw of an earlier test would be a kernel of this batch
    with profile.Recorder() as kernels:
        got = unrolled(xs, ws, n).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert len(kernels) == n and len({id(loaded[k.call.src[0]]) for k in kernels}) < n - 1
    step = jit(lambda x, w: unrolled(x, w, n))
    for _ in range(3):
        np.testing.assert_array_equal(step(xs, ws).numpy(), got)


def test_gradients_of_parts_are_those_of_the_whole() -> None:
    x = np.random.default_rng(1).standard_normal((16, 8, 32)).astype(np.float32)

    def gradient(device: str) -> np.ndarray:
        t = Tensor(x, requires_grad=True, device=device)
        h = t[:, 0].tanh()
        for k in range(1, 8):
            h = (t[:, k] * h).tanh()
        h.sum().backward()
        return t.grad.numpy()

    np.testing.assert_allclose(gradient("cpu"), gradient("python"), rtol=1e-5, atol=1e-7)


def test_state_that_moves_through_its_own_memory_is_not_overwritten_too_soon() -> None:
    state = Tensor(np.arange(64, dtype=np.float32)).realize()
    step = jit(lambda x: state.assign(state[32:].cat(state[:32] + x)).sum())
    want = np.arange(64, dtype=np.float32)
    for _ in range(4):
        want = np.concatenate((want[32:], want[:32] + 1))
        assert step(Tensor([1.0])).item() == want.sum()
        np.testing.assert_array_equal(state.numpy(), want)


def test_a_row_is_read_while_another_of_the_same_tensor_is_written() -> None:
    table = Tensor(np.zeros((4, 32), np.float32)).realize()

    def step(x: Tensor) -> Tensor:
        for k in range(1, 4):
            table[k] = table[k - 1] * 2 + x
        return table.sum()

    jitted = jit(step)
    want = np.zeros((4, 32), np.float32)
    for _ in range(4):
        for k in range(1, 4):
            want[k] = want[k - 1] * 2 + 1
        assert jitted(Tensor([1.0])).item() == want.sum()


def test_a_saved_step_finds_its_parts(tmp_path: Path) -> None:
    x = np.random.default_rng(2).standard_normal((32, 4, 32)).astype(np.float32)
    w = Tensor(x[:, 0]).realize()
    step = jit(lambda x: unrolled(x, w, 4))
    want = [step(Tensor(x)).numpy() for _ in range(2)][1]
    step.save(tmp_path / "a.step")
    np.testing.assert_array_equal(jit.load(tmp_path / "a.step")(Tensor(x)).numpy(), want)
