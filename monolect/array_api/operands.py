"""Check and pair the operands of the array API: each is a Tensor, or a Python number next to one.

What it is for: the standard allows a Python number as either operand, and gives it the dtype of the array if that is of
the same or a higher kind. What it is not: promotion of arrays, which is that of `base/dtype.py`.
"""

from __future__ import annotations

from typing import Any

from monolect.base.dtype import scalar_dtype
from monolect.base.errors import DTypeError
from monolect.tensor.tensor import Tensor


def array_of(x: Any, name: str) -> Tensor:
    """Return `x`. Raises DTypeError, which names the function `name`, if it is not a Tensor."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name}: operand", expected="a Tensor", found=type(x).__name__)
    return x


def paired(x1: Any, x2: Any, name: str) -> tuple[Tensor, Any]:
    """Return the operands of the function `name`, the first as a Tensor. Raises DTypeError if neither is a Tensor."""
    if isinstance(x1, Tensor):
        return x1, x2
    like = array_of(x2, name)
    return Tensor(x1, dtype=scalar_dtype(x1, like.dtype), device=like.device), like


__all__ = ["array_of", "paired"]
