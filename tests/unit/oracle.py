"""PyTorch as the oracle: a function of ours and one of theirs, compared in value and in every gradient."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from monolect.tensor.tensor import Tensor


def agree(
    rng: np.random.Generator, ours: Callable[..., Any], theirs: Callable[..., Any], arrays: tuple[np.ndarray, ...],
    tolerance: float, gradient_rtol: float, gradient_atol: float,
) -> None:  # fmt: skip
    """Value and gradients of both functions agree on `arrays`; the gradient that flows back is drawn from `rng`."""
    mine = [Tensor(a, requires_grad=True) for a in arrays]
    other = [torch.tensor(a, requires_grad=True) for a in arrays]
    y, t = ours(*mine), theirs(*other)
    assert y.shape == tuple(t.shape)
    c = rng.standard_normal(y.shape).astype(np.float32)
    (y * Tensor(c)).sum().backward()
    (t * torch.tensor(c)).sum().backward()
    np.testing.assert_allclose(y.numpy(), t.detach().numpy(), rtol=tolerance, atol=tolerance)
    for m, o in zip(mine, other, strict=True):
        np.testing.assert_allclose(m.grad.numpy(), o.grad.numpy(), rtol=gradient_rtol, atol=gradient_atol)
