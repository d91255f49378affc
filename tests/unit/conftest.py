"""What the unit tests share: with TENSOR_TESTS=interp the reference interpreter computes tensors, not the compiler.

That tells a wrong graph from a wrong kernel: `TENSOR_TESTS=interp pytest tests/unit/test_tensor_*.py`.
"""

import os
from typing import Any

import numpy as np
import pytest
import torch

from monolect.ir.check.interp import evaluate
from monolect.ir.uop import UOp, toposort
from monolect.runtime.buffer import from_numpy, to_numpy
from monolect.tensor import tensor
from monolect.tensor.tensor import Tensor


def _interpret(uops: list[UOp]) -> list[UOp]:
    buffers = [u for u in toposort(*uops) if u.op == "BUFFER"]
    env = {u: np.zeros(u.shape, u.dtype.numpy) if u.storage is None else to_numpy(u) for u in buffers}
    return [from_numpy(np.array(v), "cpu") for v in evaluate(uops, env)]


if os.environ.get("TENSOR_TESTS") == "interp":
    tensor.realize = _interpret


def _check(ours: Tensor, theirs: torch.Tensor, rtol: float = 2e-6, atol: float = 1e-6) -> None:
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
    assert ours.shape == tuple(theirs.shape)
    a = np.array(ours.tolist(), np.float64)
    b = theirs.detach().to(torch.float64).numpy()
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, equal_nan=True)


def _both(
    f: Any, *arrays: np.ndarray, g: Any = None, rtol: float = 5e-6, atol: float = 2e-6, grad: bool = True
) -> None:
    """Forward and gradient of `f` on tensors against `g` (or `f`) on PyTorch's."""
    ours = [Tensor(a, requires_grad=grad and a.dtype.kind == "f") for a in arrays]
    theirs = [torch.tensor(a, requires_grad=grad and a.dtype.kind == "f") for a in arrays]
    y, t = f(*ours), (g or f)(*theirs)
    _check(y, t, rtol, atol)
    if not grad:
        return
    w = np.random.default_rng(0).uniform(0.5, 1.5, t.shape).astype(str(t.dtype).removeprefix("torch."))
    (y * Tensor(w)).sum().backward()
    (t * torch.tensor(w)).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        if b.grad is not None:
            _check(Tensor.zeros_like(a) if a.grad is None else a.grad, b.grad, rtol * 10, atol * 10)


@pytest.fixture
def check() -> Any:
    """Compares dtype, shape and values of a tensor with those of a PyTorch tensor."""
    return _check


@pytest.fixture
def both() -> Any:
    """Runs a function on this library's tensors and on PyTorch's; compares results and gradients."""
    return _both
