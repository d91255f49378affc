"""Check and pair the operands of the array API: each is a Tensor, or a Python number next to one.

What it is for: the standard allows a Python number as either operand, and gives it the dtype of the array if that is of
the same or a higher kind. Arrays promote by their dtypes alone (`base/dtype.py`), also those without axes, whose dtype
counts less in the operators of Tensors.
"""

from __future__ import annotations

from typing import Any

from monolect.base.dtype import promote, scalar_dtype
from monolect.base.errors import DTypeError
from monolect.tensor.tensor import Tensor

COMPARISONS = frozenset({"equal", "greater", "greater_equal", "less", "less_equal", "not_equal"})


def array_of(x: Any, name: str) -> Tensor:
    """Return `x`. Raises DTypeError, which names the function `name`, if it is not a Tensor."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"{name}: operand", expected="a Tensor", found=type(x).__name__)
    return x


def by_dtype(*xs: Any) -> tuple[Any, ...]:
    """Return `xs`; those that are arrays have their common dtype where some of them have axes and others none."""
    arrays = [x for x in xs if isinstance(x, Tensor)]
    if len({bool(x.ndim) for x in arrays}) < 2 or len({x.dtype for x in arrays}) < 2:
        return xs
    d = promote(*(x.dtype for x in arrays))
    return tuple(x.cast(d) if isinstance(x, Tensor) else x for x in xs)


def paired(x1: Any, x2: Any, name: str) -> tuple[Tensor, Any]:
    """Return the operands of the function `name`, the first as a Tensor. Raises DTypeError if neither is a Tensor.

    Of arrays, those without axes are as `by_dtype` returns them; comparisons of integers need no common dtype.
    """
    if isinstance(x1, Tensor):
        compares_integers = name in COMPARISONS and isinstance(x2, Tensor) and x1.dtype.is_int and x2.dtype.is_int
        a, b = (x1, x2) if compares_integers else by_dtype(x1, x2)
        return a, b
    like = array_of(x2, name)
    return Tensor(x1, dtype=scalar_dtype(x1, like.dtype), device=like.device), like


__all__ = ["array_of", "by_dtype", "paired"]
