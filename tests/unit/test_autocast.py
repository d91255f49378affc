"""Products in small floats: dtypes, losses and gradients are those of PyTorch's autocast."""

from typing import Any

import numpy as np
import pytest
import torch

from monolect import DTypeError, Tensor, dtypes, function, jit, nn, optim
from monolect.amp import autocast

rng = np.random.default_rng(0)
A, B, IMAGE, KERNEL = (rng.standard_normal(s).astype(np.float32) for s in ((4, 6), (6, 5), (2, 3, 6, 6), (4, 3, 3, 3)))
LABELS = np.array([0, 3, 1, 2])

LOWERED: dict[str, Any] = {
    "matmul": (lambda a, b: a @ b, A, B),
    "mm": (lambda a, b: a.mm(b), A, B),
    "linear": (lambda a, b: torch.nn.functional.linear(a, b) if isinstance(a, torch.Tensor) else a.linear(b), A, A),
    "conv2d": (lambda a, b: torch.conv2d(a, b) if isinstance(a, torch.Tensor) else a.conv2d(b), IMAGE, KERNEL),
    "attention": (
        lambda a, b: torch.nn.functional.scaled_dot_product_attention(a, b, b)
        if isinstance(a, torch.Tensor)
        else a.scaled_dot_product_attention(b, b),
        IMAGE, IMAGE,
    ),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", LOWERED)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_are_those_of_small_operands(name: str, dtype: str) -> None:
    f, a, b = LOWERED[name]
    x, y = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
    p, q = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    with autocast(dtype=dtype):
        mine = f(x, y)
    with torch.autocast("cpu", dtype=getattr(torch, dtype)):
        other = f(p, q)
    assert mine.dtype.name == str(other.dtype).removeprefix("torch.") == dtype
    scale = 2**-7 if dtype == "bfloat16" else 2**-10
    np.testing.assert_allclose(mine.float().numpy(), other.float().detach().numpy(), atol=8 * scale, rtol=4 * scale)
    mine.float().sum().backward()
    other.float().sum().backward()
    for t, u in ((x, p), (y, q)):
        assert t.grad is not None and t.grad.dtype is dtypes.float32
        np.testing.assert_allclose(t.grad.numpy(), u.grad.numpy(), atol=60 * scale, rtol=8 * scale)


WIDENED = {
    "softmax": lambda x: x.softmax(1), "log_softmax": lambda x: x.log_softmax(1), "sum": lambda x: x.sum(),
    "exp": lambda x: x.exp(), "pow": lambda x: x**3.0, "norm": lambda x: x.norm(), "cumsum": lambda x: x.cumsum(0),
    "cross_entropy": lambda x: x.cross_entropy(Tensor(LABELS)), "mse_loss": lambda x: x.mse_loss(x * 2),
    "layer_norm": lambda x: x.layer_norm((5,)),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", WIDENED)
def test_sums_and_losses_of_products_are_float32(name: str) -> None:
    with autocast():
        small = Tensor(A) @ Tensor(B)
        found = WIDENED[name](small)
    assert found.dtype is dtypes.float32
    np.testing.assert_allclose(found.numpy(), WIDENED[name](small.float()).numpy(), rtol=2e-5)


def test_other_methods_and_float64_keep_their_dtypes() -> None:
    with autocast():
        small = Tensor(A) @ Tensor(B)
        assert (small * 2).relu().dtype is dtypes.bfloat16 and (small + 1.0).dtype is dtypes.bfloat16
        assert (Tensor(A) + 1).dtype is dtypes.float32
        assert (Tensor(A.astype(np.float64)) @ Tensor(B.astype(np.float64))).dtype is dtypes.float64
        assert (Tensor([[1, 2]]) @ Tensor([[3], [4]])).dtype is dtypes.int64
        assert Tensor.einsum("ij,jk->ik", Tensor(A), Tensor(B)).dtype is dtypes.bfloat16


def test_blocks_nest_and_end() -> None:
    @autocast(dtype=dtypes.float16)
    def inside() -> Any:
        return (Tensor(A) @ Tensor(B)).dtype

    with autocast("cpu", dtypes.bfloat16):
        assert inside() is dtypes.float16
        with autocast(enabled=False):
            assert (Tensor(A) @ Tensor(B)).dtype is dtypes.float32
        assert (Tensor(A) @ Tensor(B)).dtype is dtypes.bfloat16
    with pytest.raises(ValueError), autocast():
        raise ValueError
    assert (Tensor(A) @ Tensor(B)).dtype is dtypes.float32
    with pytest.raises(DTypeError, match="bfloat16 or float16"):
        autocast(dtype=dtypes.float32)


@pytest.mark.parametrize("wrap", [jit, function, lambda f: jit(function(f))])
def test_captures_and_traces_depend_on_it(wrap: Any) -> None:
    step = wrap(lambda x, y: (x @ y) * 1)
    x, y = Tensor(A), Tensor(B)
    for _ in range(2):
        assert step(x, y).dtype is dtypes.float32
        with autocast():
            assert step(x, y).dtype is dtypes.bfloat16
    np.testing.assert_allclose(step(x, y).numpy(), A @ B, rtol=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("captured", [False, True])
def test_a_model_trains_as_in_pytorch(captured: bool) -> None:
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    ours = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
    ours.load_state_dict({k: v.numpy().copy() for k, v in theirs.state_dict().items()})
    mine, other = optim.SGD(ours.parameters(), lr=0.5), torch.optim.SGD(theirs.parameters(), lr=0.5)

    def step(x: Tensor, y: Tensor) -> Tensor:
        mine.zero_grad()
        with autocast(dtype=dtypes.bfloat16):
            loss = ours(x).cross_entropy(y)
        loss.backward()
        mine.step()
        return loss

    call, losses = jit(step) if captured else step, []
    for _ in range(20):
        other.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(A)), torch.tensor(LABELS))
        loss.backward()
        other.step()
        losses.append((call(Tensor(A), Tensor(LABELS)).item(), loss.item()))
    np.testing.assert_allclose(*zip(*losses, strict=True), atol=0.03)
    assert losses[-1][0] < 0.5 * losses[0][0] and ours[0].weight.dtype is dtypes.float32
    if captured:
        assert len(call.captures) == 1
