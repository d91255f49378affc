"""What a convolution pads is stored once, in the middle of the padded memory, by the kernel that makes it."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from monolect import Context, InternalError, Tensor, Variable, jit
from monolect.ir.bounds import ranges
from monolect.ir.uop import UOp, toposort
from monolect.pipeline import schedule
from monolect.runtime import profile
from monolect.schedule.callify import over_params
from monolect.schedule.kernels import KernelBuilder
from monolect.schedule.padded_storage import PaddedValue

CHANNELS = 8
WEIGHTS = ((CHANNELS, 3, 3, 3), *((CHANNELS, CHANNELS, 3, 3),) * 4)


def net(x: Any, weights: Any, conv: Any) -> Any:
    """A convolution and two residual blocks of two; the last result is padded no more."""
    x = conv(x, weights[0]).relu()
    for first, second in (weights[1:3], weights[3:5]):
        x = (x + conv(conv(x, first).relu(), second)).relu()
    return x.mean((2, 3))


def ours(x: Tensor, *weights: Tensor) -> Tensor:
    return net(x, weights, lambda x, w: x.conv2d(w, padding=1) * 0.2)


def theirs(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    return net(x, weights, lambda x, w: F.conv2d(x, w, padding=1) * 0.2)


def calls_of(*tensors: Tensor) -> list[UOp]:
    """The kernels that computing `tensors` together calls."""
    sink, _, _ = over_params([t.uop for t in tensors])
    return list(schedule(list(sink.src), "null").linear.src)


def loads(call: UOp) -> int:
    return sum(u.op == "LOAD" for u in toposort(call.src[0]))


@pytest.fixture
def arrays(data: Any) -> list[np.ndarray]:
    return [data(2, 3, 10, 9), *(data(*s) for s in WEIGHTS)]


def test_a_value_and_what_is_around_it_share_a_buffer(arrays: list[np.ndarray]) -> None:
    calls = calls_of(ours(*(Tensor(a).realize() for a in arrays)))
    frames = [c for c in calls if c.src[0].arg.frames]
    sums = [c for c in calls if any(u.op == "REDUCE" for u in toposort(c.src[0]))]
    assert len(frames) == 4 and len(sums) == 6 and len(calls) == 10  # a frame an inner value, no copy
    assert all(len(c.src) == 2 and not loads(c) for c in frames)
    for c in frames:
        padded = c.src[1]
        assert padded.shape == (2, CHANNELS, 12, 11)
        assert sum(s.src[1] is padded for s in sums) == 1  # one kernel stores what is inside
    second, third = (next(s for s in sums if s.src[1] is c.src[1]) for c in frames[1:3])
    assert frames[0].src[1] in second.src  # a convolution reads it with what is around it, a sum without
    assert {frames[0].src[1], frames[1].src[1]} <= set(third.src)


def test_nothing_is_framed_that_no_sum_is_below(data: Any) -> None:
    x, w = Tensor(data(1, 4, 8, 8)).realize(), Tensor(data(4, 4, 3, 3)).realize()
    assert not any(c.src[0].arg.frames for c in calls_of((x * 2).relu().conv2d(w, padding=1)))


def test_results_have_memory_of_their_own(data: Any) -> None:
    x, w = Tensor(data(1, 4, 8, 8)).realize(), Tensor(data(4, 4, 3, 3)).realize()
    y = x.conv2d(w).relu()
    z = y.conv2d(w, padding=1)
    assert not any(c.src[0].arg.frames for c in calls_of(y, z))
    wanted = F.relu(F.conv2d(torch.tensor(x.numpy()), torch.tensor(w.numpy())))
    y.realize(z)
    np.testing.assert_allclose(y.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)


def test_a_frame_much_larger_than_its_value_is_copied(data: Any) -> None:
    x, w = Tensor(data(1, 8, 6, 6)).realize(), Tensor(data(8, 8, 3, 3)).realize()
    y = x.conv2d(w).exp()
    assert any(c.src[0].arg.frames for c in calls_of(y.conv2d(w, padding=2)))
    assert not any(c.src[0].arg.frames for c in calls_of(y.conv2d(w, padding=3)))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("pads", "kernel"), [((0, 3, 0, 0), (2, 2)), ((2, 0, 1, 3), (3, 2)), ((0, 0, 2, 1), (3, 3)), ((1, 1, 0, 0), (1, 3))]
)
@pytest.mark.parametrize("fill", [0.0, 1.5])
def test_frames_of_any_kind(data: Any, pads: tuple, kernel: tuple, fill: float) -> None:
    """Around some axes only, wider before or after, of another number than zero."""
    x, w, u = data(2, 3, 9, 8), data(5, 3, 3, 3), data(8, 5, *kernel)
    y = Tensor(x).conv2d(Tensor(w)).tanh().pad(pads, value=fill)
    calls = calls_of(y.conv2d(Tensor(u)))
    assert sum(c.src[0].arg.frames for c in calls) == 1 and len(calls) == 3
    wanted = F.pad(F.conv2d(torch.tensor(x), torch.tensor(w)).tanh(), pads, value=fill)
    wanted = F.conv2d(wanted, torch.tensor(u))
    got = Tensor(x).conv2d(Tensor(w)).tanh().pad(pads, value=fill).conv2d(Tensor(u))
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-4)


READERS = {
    "sorted": lambda p: p.sort(0)[0],
    "turned": lambda p: p.transpose(0, 1).exp(),
    "squares": lambda p: (p * p).sum(0),
    "running": lambda p: p.cumsum(1),
    "product": lambda p: p @ p.transpose(0, 1),
}


@pytest.mark.sweep
@pytest.mark.parametrize("readers", [c for n in (1, 2, 3) for c in combinations(READERS, n)], ids=" ".join)
def test_the_number_around_a_value_is_a_result_too(data: Any, readers: tuple[str, ...]) -> None:
    """It is stored for whoever asked for it; every other kernel has it as a constant, and waits for no memory."""
    x = data(3, 4)
    p = Tensor(x).realize().log_softmax(1).pad((1, 5), value=0.5)
    got = [READERS[r](p) for r in readers]
    constant = Tensor.full((), 0.5)
    got[0].realize(*got[1:], constant)
    p = F.pad(torch.tensor(x).log_softmax(1), (1, 5), value=0.5)
    for r, t in zip(readers, got, strict=True):
        np.testing.assert_allclose(t.numpy(), READERS[r](p), rtol=1e-5, err_msg=r)
    assert constant.item() == 0.5


def test_memory_that_is_read_before_it_is_written_is_an_error(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: kernels read a constant from the memory of the result that it is, and wait for nobody to write it."""
    reads = KernelBuilder._reads_buffer
    planted = lambda self, u, index: u in self.part.stored if u.op == "CONST" else reads(self, u, index)  # noqa: E731
    p = Tensor(data(3, 4)).realize().log_softmax(1).pad((1, 5), value=0.5)
    monkeypatch.setattr(KernelBuilder, "_reads_buffer", planted)
    with pytest.raises(InternalError, match="reads memory before another writes it"):
        calls_of(p.cumsum(1), p @ p.transpose(0, 1), Tensor.full((), 0.5))


def test_two_frames_around_one_value(data: Any) -> None:
    """Of the wider and the narrower one holds the value, the other is copied from there."""
    x, w, a, b = data(1, 3, 9, 9), data(8, 3, 3, 3), data(8, 8, 3, 3), data(8, 8, 5, 5)

    def both(x: Any, w: Any, a: Any, b: Any, conv: Any) -> Any:
        y = conv(x, w, 0).relu()
        return conv(y, a, 1) + conv(y, b, 2) * y

    tensors = [Tensor(v).realize() for v in (x, w, a, b)]
    got = both(*tensors, lambda x, w, p: x.conv2d(w, padding=p))
    assert sum(c.src[0].arg.frames for c in calls_of(got)) == 1
    wanted = both(*map(torch.tensor, (x, w, a, b)), lambda x, w, p: F.conv2d(x, w, padding=p))
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize("device", ["cpu", "python"])
def test_values_and_gradients(arrays: list[np.ndarray], device: str) -> None:
    if device == "python":
        arrays = [arrays[0][:, :, :4, :3], *(a[:3, :3] for a in arrays[1:])]
    mine = [Tensor(a, device=device, requires_grad=True) for a in arrays]
    other = [torch.tensor(a, requires_grad=True) for a in arrays]
    y, t = ours(*mine), theirs(*other)
    (y * y).sum().backward()
    (t * t).sum().backward()
    np.testing.assert_allclose(y.numpy(), t.detach().numpy(), rtol=1e-4, atol=1e-5)
    for m, o in zip(mine, other, strict=True):
        np.testing.assert_allclose(m.grad.numpy(), o.grad.numpy(), rtol=1e-3, atol=1e-4)


def test_batches_of_symbolic_size(arrays: list[np.ndarray]) -> None:
    x, *weights = arrays
    n = Variable("frames", 1, 4)
    tensors = [Tensor(w).realize() for w in weights]
    for k in (2, 1, 4):
        images = np.concatenate([x, x[::-1]])
        with n.bind(k):
            got = ours(Tensor(images)[:n], *tensors).numpy()[:k]
        wanted = theirs(torch.tensor(images[:k]), *map(torch.tensor, weights)).numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_a_captured_step_frames_once(arrays: list[np.ndarray]) -> None:
    """Its memory is recycled among what has the same around it, so zeros stay where they were stored once."""
    x, *weights = arrays
    held = [Tensor(w).realize() for w in weights]
    step = jit(lambda x: ours(x, *held))
    found = []
    for k in range(5):
        images = x * (k + 1.0)
        with profile.Recorder() as kernels:
            got = step(Tensor(images)).numpy()
        found.append(len(kernels))
        np.testing.assert_allclose(
            got, theirs(torch.tensor(images), *map(torch.tensor, weights)).numpy(), rtol=1e-4, atol=1e-4
        )
    assert found[0] == 10 and found[-1] == 6  # and weights are packed once


def test_a_captured_step_frames_in_each_call_what_a_variable_says(arrays: list[np.ndarray]) -> None:
    """How many rows there are, and so where zeros lie around them, is another at each call."""
    x, *weights = arrays
    held, n = [Tensor(w).realize() for w in weights], Variable("n", 1, 4)
    step = jit(lambda x: ours(x[:n], *held).contiguous())
    for k in (1, 2, 4, 3, 4):
        images = np.concatenate([x, x[::-1]]) * (k + 1.0)
        with n.bind(k):
            got = step(Tensor(images)).numpy()
        wanted = theirs(torch.tensor(images[:k]), *map(torch.tensor, weights)).numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_captured_gradient_of_a_part_of_columns_of_symbolic_rows(data: Any) -> None:
    """The gradient of the part is framed by zeros: it was, once, for the rows of the first call."""
    x, w, n = data(25, 16, 16), data(16, 64), Variable("n", 17, 20)

    def gradient(x: Any, w: Any, n: Any) -> Any:
        ((x[:n] @ w)[:, :, 9:] ** 2).sum().backward()
        return x.grad

    step = jit(lambda x: gradient(x.detach().requires_grad_(True), Tensor(w), n))
    for k in (17, 17, 19, 20):
        with n.bind(k):
            got = step(Tensor(x)).numpy()
        wanted = gradient(torch.tensor(x, requires_grad=True), torch.tensor(w), k).numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-3)


def test_a_captured_step_without_a_prologue_frames_in_each_call(arrays: list[np.ndarray]) -> None:
    x, *weights = arrays
    held = [Tensor(w).realize() for w in weights]
    with Context(HOIST=0):
        step = jit(lambda x: ours(x, *held))
        for k in range(4):
            got = step(Tensor(x * (k + 1.0))).numpy()
            wanted = theirs(torch.tensor(x * (k + 1.0)), *map(torch.tensor, weights)).numpy()
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_captured_training_step(arrays: list[np.ndarray]) -> None:
    """Weights that change in place, other memory between: what is around values stays as it was."""
    x, *weights = arrays
    mine = [Tensor(w, requires_grad=True) for w in weights]
    other = [torch.tensor(w, requires_grad=True) for w in weights]

    @jit
    def step(x: Tensor) -> Tensor:
        for w in mine:
            w.grad = None
        loss = (ours(x, *mine) ** 2).sum()
        loss.backward()
        for w in mine:
            w.assign(w.detach() - 0.01 * w.grad)
        return loss

    for k in range(5):
        images = x[:, :, ::-1].copy() if k % 2 else x
        found = step(Tensor(images)).item()
        loss = (theirs(torch.tensor(images), *other) ** 2).sum()
        gradients = torch.autograd.grad(loss, other)
        with torch.no_grad():
            for w, d in zip(other, gradients, strict=True):
                w -= 0.01 * d
        np.testing.assert_allclose(found, loss.item(), rtol=1e-3)
    for m, o in zip(mine, other, strict=True):
        np.testing.assert_allclose(m.numpy(), o.detach().numpy(), rtol=1e-2, atol=1e-4)


def test_each_block_around_three_axes_has_loops_of_its_own() -> None:
    """Blocks of three axes share sizes in pairs: with one loop for each size no order of the loops would suit all."""
    frame = PaddedValue(Tensor.zeros(2, 8, 10, 9, 12).uop, Tensor.zeros(2, 8, 6, 7, 8).uop, (0, 0, 2, 1, 2))
    blocks = [frozenset().union(*(ranges(i) for i in index)) for index in frame.borders()]
    assert len(blocks) == 6
    for loops, others in combinations(blocks, 2):
        assert {r.arg[0] for r in loops & others} == {0, 1}  # the axes that are not padded


def test_around_three_axes_with_gradients(data: Any) -> None:
    x, w = data(2, 8, 6, 6, 9), data(8, 9, 1, 2, 3)
    kw: Any = {
        "stride": (1, 3, 1),
        "padding": (2, 1, 3),
        "output_padding": (1, 0, 2),
        "groups": 4,
        "dilation": (2, 1, 3),
    }
    ours = [Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)]
    theirs = [torch.tensor(x, requires_grad=True), torch.tensor(w, requires_grad=True)]
    got = ours[0].relu().conv_transpose3d(ours[1], **kw).softmax(-1)
    wanted = F.conv_transpose3d(theirs[0].relu(), theirs[1], **kw).softmax(-1)
    pull = data(*wanted.shape)
    (got * Tensor(pull)).sum().backward()
    (wanted * torch.tensor(pull)).sum().backward()
    with Context(VERIFY=1):
        got.realize(*(t.grad for t in ours))
    for a, b in ((got, wanted.detach()), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-5)
