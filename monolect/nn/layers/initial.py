"""Make the initial values of parameters, in the distributions of torch.nn.

What it is not: for one seed, values differ from PyTorch's; their distributions do not.
Invariant: random parameters are lazy until their first use; constant ones are in a buffer, so no kernel makes them.
"""

from __future__ import annotations

import numpy as np

from monolect.base.dtype import as_dtype, dtypes
from monolect.tensor.base import DeviceLike, DTypeLike
from monolect.tensor.tensor import Tensor


def uniform(shape: tuple[int, ...], bound: float, device: DeviceLike | None, dtype: DTypeLike | None) -> Tensor:
    """Return a parameter of numbers from [-bound, bound), float32 unless `dtype` is given."""
    return Tensor.uniform(*shape, low=-bound, high=bound, dtype=dtype, device=device, requires_grad=True)


def filled(
    shape: tuple[int, ...],
    value: float,
    device: DeviceLike | None,
    dtype: DTypeLike | None,
    requires_grad: bool = True,
) -> Tensor:
    """Return a parameter, or without `requires_grad` a buffer, filled with `value`, float32 unless `dtype` is given."""
    d = dtypes.float32 if dtype is None else as_dtype(dtype)
    return Tensor(np.full(shape, value, np.float32), dtype=d, device=device, requires_grad=requires_grad)


__all__ = ["filled", "uniform"]
