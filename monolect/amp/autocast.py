"""Define autocast: blocks and functions that compute products in a small float dtype."""

from __future__ import annotations

from contextlib import ContextDecorator

from monolect.base.dtype import DType, as_dtype, dtypes
from monolect.base.errors import DTypeError
from monolect.base.settings import Held, hold, release
from monolect.tensor.base import DTypeLike


class autocast(ContextDecorator):  # noqa: N801
    """For a `with` block or a decorated function: products and convolutions get operands of `dtype`, bfloat16 by
    default, and exponentials, sums, norms and losses float32 operands.

    Parameters stay as they are, and get gradients of their own dtype. float64 is not cast. It is the setting AUTOCAST,
    of the thread, which captured steps depend on. `device_type` and `cache_enabled` are not used; not
    `enabled`, nothing is cast in the block. Raises DTypeError for a dtype other than bfloat16 and float16.

    >>> with autocast(dtype=dtypes.bfloat16):
    ...     y = Tensor.ones(2, 3) @ Tensor.ones(3, 2)
    ...     y.dtype, y.softmax(1).dtype
    (dtypes.bfloat16, dtypes.float32)
    """

    def __init__(
        self,
        device_type: str | DTypeLike | None = None,
        dtype: DTypeLike | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ):
        found = as_dtype(dtypes.bfloat16 if dtype is None else dtype)
        if isinstance(device_type, DType) and dtype is None:
            found = device_type
        if enabled and found not in (dtypes.bfloat16, dtypes.float16):
            raise DTypeError("autocast: dtype", expected="bfloat16 or float16", found=found.name)
        self._name, self._held = found.name if enabled else "", list[Held]()

    def __enter__(self) -> None:
        self._held.append(hold("AUTOCAST", self._name))

    def __exit__(self, *exc_info: object) -> None:
        release(self._held.pop())


__all__ = ["autocast"]
