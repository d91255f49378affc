"""What fails leaves everything as it was: values, gradients, random numbers, and what is computed later."""

import threading
from typing import Any

import numpy as np
import pytest

from monolect import Tensor, jit, nn
from monolect.base.errors import AllocationError

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
