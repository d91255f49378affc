"""What fails leaves everything as it was: values, gradients, random numbers, and what is computed later."""

import threading
from typing import Any

import numpy as np
import pytest

from monolect import Tensor, jit, nn
from monolect.base.errors import AllocationError, ShapeError
from monolect.tensor import tensor as tensor_module

TOO_MANY = 2**20  # values: their products with each other fit into no memory


def vector(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


def too_large(x: Tensor) -> Tensor:
    """The sum of all products, which are computed one and all."""
    return (x.reshape(-1, 1) * x.reshape(1, -1)).contiguous().sum()


# ---- what comes along ------------------------------------------------------------------------------------------------
def test_a_loss_that_cannot_be_computed_fails_nothing_else() -> None:
    p = Tensor.ones(TOO_MANY, requires_grad=True).realize()
    loss = too_large(p)
    loss.backward()
    for _ in range(2):
        with pytest.raises(AllocationError):
            loss.item()
        assert (vector(1.0) + 1).tolist() == [2.0]


def test_statistics_beside_a_batch_that_fails() -> None:
    p = Tensor.ones(TOO_MANY, requires_grad=True).realize()
    norm = nn.BatchNorm1d(2)
    norm(Tensor([[1.0, 2.0], [3.0, 6.0]]))
    too_large(p).backward()
    with pytest.raises(AllocationError):
        too_large(p.detach()).item()
    assert norm.running_mean is not None and norm.num_batches_tracked is not None
    np.testing.assert_allclose(norm.running_mean.tolist(), [0.2, 0.4], rtol=1e-6)
    norm(Tensor([[1.0, 2.0], [3.0, 6.0]])).realize()
    assert norm.num_batches_tracked.item() == 2 and norm.num_batches_tracked.uop.op == "BUFFER"


def test_batch_norm_that_is_refused_changes_no_statistics() -> None:
    norm = nn.BatchNorm1d(2)
    norm.bias = Tensor.zeros(3)
    for x in (Tensor.ones(1, 2), Tensor.ones(4, 2)):
        with pytest.raises(ShapeError):
            norm(x)
    assert norm.num_batches_tracked is not None and norm.running_mean is not None
    assert (norm.num_batches_tracked.item(), norm.running_mean.tolist()) == (0, [0.0, 0.0])


# ---- captures --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_capture_that_fails_leaves_everything_as_it_was(error: type) -> None:
    state, w, argument = vector(1.0, 2.0), vector(1.0).requires_grad_(), vector(1.0)
    frozen = vector(1.0).requires_grad_()
    kept = vector(7.0)
    w.grad = kept
    fails = [True]

    @jit
    def step(x: Tensor, fail: bool) -> Tensor:
        state[0] = state[1] + Tensor.rand(1)[0]
        x.assign(x + 1)
        w.grad = None
        (w * 2).sum().backward()
        frozen.requires_grad = False
        state.assign(state * 2).realize()
        if fail:
            raise error
        frozen.requires_grad = True
        return state + 1

    Tensor.manual_seed(3)
    early = Tensor.rand(2)
    with pytest.raises(error):
        step(argument, fails[0])
    assert (state.tolist(), argument.tolist(), w.grad is kept) == ([1.0, 2.0], [1.0], True)
    assert frozen.requires_grad and not step.captures
    then = Tensor.rand(2)
    Tensor.manual_seed(3)
    assert early.tolist() + then.tolist() == Tensor.rand(4).tolist()
    step(argument, False)
    assert argument.tolist() == [2.0] and w.grad is not None and w.grad.tolist() == [2.0]


def test_plain_code_that_fails_keeps_what_was_assigned_before() -> None:
    a, b = vector(1.0), vector(1.0)

    def step() -> None:
        a.assign(a + 1)
        b.assign(vector(1.0, 2.0))

    with pytest.raises(ShapeError):
        step()
    assert (a.tolist(), b.tolist()) == ([2.0], [1.0])
    with pytest.raises(ShapeError):
        jit(step)()
    assert (a.tolist(), b.tolist()) == ([2.0], [1.0])


@pytest.mark.parametrize("general", [False, True])
def test_an_interrupt_after_native_code_finds_all_of_a_step_done(general: bool) -> None:
    w = vector(1.0, 2.0).requires_grad_()
    optimizer = nn.optim.Adam([w], lr=0.1)  # of its states some move, some stay

    @jit
    def step(x: Tensor, _: object = None) -> Tensor:
        optimizer.zero_grad()
        loss = (x * w).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    def call() -> None:
        if general:
            step(vector(1.0, 3.0), _=0)
        else:
            step(vector(1.0, 3.0))

    call()
    (captured,) = step.captures.values()
    real, is_armed = captured.capture.native, []

    def interrupted(*addresses: int) -> None:
        real(*addresses)
        if is_armed:
            raise KeyboardInterrupt

    captured.capture.native = interrupted
    if captured.capture.short is not None:
        captured.capture.short = interrupted
    call()
    is_armed.append(1)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            call()
    is_armed.clear()
    call()
    found = [t.numpy().copy() for t in (w, *optimizer.state_dict().values())]
    other = vector(1.0, 2.0).requires_grad_()
    plain = nn.optim.Adam([other], lr=0.1)
    for _ in range(5):
        plain.zero_grad()
        (vector(1.0, 3.0) * other).square().sum().backward()
        plain.step()
    for got, wanted in zip(found, (other, *plain.state_dict().values()), strict=True):
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5)


@pytest.mark.parametrize("what", ["step", "lr", "load", "seed"])
def test_a_call_that_cannot_compute_changes_nothing(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Tensor.manual_seed(5)
    w = vector(1.0, 2.0).requires_grad_()
    optimizer = nn.optim.SGD([w], lr=0.25, momentum=0.9)
    (w * w).sum().backward()
    drawn = Tensor.rand(2).tolist()
    saved = {k: t.numpy() + 1 for k, t in optimizer.state_dict().items()}
    calls = {
        "step": optimizer.step,
        "lr": lambda: setattr(optimizer, "lr", 0.5),
        "load": lambda: optimizer.load_state_dict(saved),
        "seed": lambda: Tensor.manual_seed(6),
    }

    def fails(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def now() -> list:
        return [w.tolist(), optimizer.lr, *(t.tolist() for t in optimizer.state_dict().values())]

    before = now()
    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        for run in ("compute", "run_known"):
            m.setattr(tensor_module, run, fails)
        calls[what]()
    assert now() == before
    then = Tensor.rand(2).tolist()
    Tensor.manual_seed(5)
    assert drawn + then == Tensor.rand(4).tolist()


# ---- threads ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("read", ["numpy", "tolist", "item", "dlpack", "step", "argument"])
def test_a_thread_reads_while_another_assigns(read: str) -> None:
    t = Tensor(np.zeros(1 if read == "item" else 100, np.float32)).clone().realize()
    step, given = jit(lambda: t * 2), jit(lambda x: x * 2)
    readers: dict[str, Any] = {
        "numpy": t.numpy, "tolist": t.tolist, "item": lambda: [t.item()], "dlpack": lambda: np.from_dlpack(t),
        "step": lambda: step().tolist(), "argument": lambda: given(t).tolist(),
    }  # fmt: skip
    failed: list[BaseException] = []

    def reading() -> None:
        try:
            for _ in range(60):
                assert len({*np.asarray(readers[read]()).tolist()}) == 1
        except BaseException as e:
            failed.append(e)

    def assigning() -> None:
        for k in range(60):
            t.assign(Tensor(np.full(t.shape, k, np.float32)))

    threads = [threading.Thread(target=f) for f in (assigning, *(reading,) * 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
