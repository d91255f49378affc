"""Define the user's Tensor: its lazy methods in families, its creation, views, copies, printing and random numbers.

A method builds nodes and computes nothing. This layer must not import `nn`, `interop` or a layer above them. It reaches
targets and passes only through the runtime.

The package is also the function `monolect.tensor(data)`, because PyTorch's function has the name that the package has.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from monolect.tensor.guard import guarded

if TYPE_CHECKING:
    from monolect.tensor.base import Data, DeviceLike, DTypeLike
    from monolect.tensor.tensor import Tensor


class _CallablePackage(ModuleType):
    """The class of this package, so that a call of the package makes a tensor; imports of its modules are as usual."""

    def __call__(
        self,
        data: Data,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """Return a Tensor with a copy of `data`, as torch.tensor does.

        `data` is a number, nested lists, a NumPy array, a Tensor, or a tensor of another library; shape and dtype are
        those of `Tensor(data)`, which shares the memory of arrays. The result is a leaf: no gradient flows to `data`.
        `device` None is that of `data`. Raises ShapeError for ragged lists, DTypeError for data that are not numbers,
        GradientError for `requires_grad` of integers, DeviceError for an unknown device.

        >>> import numpy as np
        >>> a = np.zeros(2, np.float32)
        >>> t = monolect.tensor(a)
        >>> a[0] = 5
        >>> t.tolist(), monolect.tensor([1, 2], dtype=dtypes.float64).tolist()
        ([0.0, 0.0], [1.0, 2.0])
        """
        from monolect.tensor.tensor import Tensor  # imported at the first call, after the package

        made = Tensor._copy_of(data, dtype, device)
        return made.requires_grad_() if requires_grad else made

    __call__ = guarded(__call__, "tensor")


sys.modules[__name__].__class__ = _CallablePackage
