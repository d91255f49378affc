"""Define pooling layers: maxima, means, norms, and the inverse of maxima.

Sizes are an int or one for each axis; the stride is the kernel size by default. The batch axis may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monolect.base.errors import ArgumentError
from monolect.nn.module import Module
from monolect.tensor.base import Number, PerAxis
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor

Parts = int | Sequence[int | None]


@guard_methods
class _Pool(Module):
    axes = 0
    kernel_size: PerAxis
    stride: PerAxis | None
    padding: PerAxis

    def extra_repr(self) -> str:
        """Return kernel size, stride and padding as text."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


@guard_methods
class _MaxPool(_Pool):
    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ):
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def forward(self, x: Tensor) -> Any:
        """See the class."""
        method: Any = (x.max_pool1d, x.max_pool2d, x.max_pool3d)[self.axes - 1]
        sizes = (self.kernel_size, self.stride, self.padding, self.dilation)
        return method(*sizes, self.ceil_mode, return_indices=self.return_indices)


@guard_methods
class _AvgPool(_Pool):
    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        method: Any = (x.avg_pool1d, x.avg_pool2d, x.avg_pool3d)[self.axes - 1]
        sizes = (self.kernel_size, self.stride, self.padding)
        y: Tensor = method(*sizes, self.ceil_mode, self.count_include_pad, self.divisor_override)
        return y


@guard_methods
class _LPPool(Module):
    axes = 0

    def __init__(self, norm_type: Number, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False):
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        method: Any = (x.lp_pool1d, x.lp_pool2d, x.lp_pool3d)[self.axes - 1]
        y: Tensor = method(self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
        return y

    def extra_repr(self) -> str:
        """Return the order of the norm, kernel size and stride as text."""
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}"


@guard_methods
class _MaxUnpool(_Pool):
    def __init__(self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0):
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """See the class."""
        method: Any = (x.max_unpool1d, x.max_unpool2d, x.max_unpool3d)[self.axes - 1]
        y: Tensor = method(indices, self.kernel_size, self.stride, self.padding, output_size)
        return y


@guard_methods
class _AdaptiveAvgPool(Module):
    axes = 0

    def __init__(self, output_size: Parts):
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        method: Any = (x.adaptive_avg_pool1d, x.adaptive_avg_pool2d, x.adaptive_avg_pool3d)[self.axes - 1]
        y: Tensor = method(self.output_size)
        return y

    def extra_repr(self) -> str:
        """Return the output size as text."""
        return f"output_size={self.output_size}"


@guard_methods
class _AdaptiveMaxPool(Module):
    axes = 0

    def __init__(self, output_size: Parts, return_indices: bool = False):
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, x: Tensor) -> Any:
        """See the class."""
        method: Any = (x.adaptive_max_pool1d, x.adaptive_max_pool2d, x.adaptive_max_pool3d)[self.axes - 1]
        return method(self.output_size, return_indices=self.return_indices)

    def extra_repr(self) -> str:
        """Return the output size as text."""
        return f"output_size={self.output_size}"


@guard_methods
class _FractionalMaxPool(Module):
    axes = 0

    def __init__(
        self,
        kernel_size: PerAxis,
        output_size: PerAxis | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ):
        if (output_size is None) == (output_ratio is None):
            found = (output_size, output_ratio)
            raise ArgumentError(type(self).__name__, expected="either output_size or output_ratio", found=found)
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices, self._random_samples = return_indices, _random_samples
        self.unsaved_names = ("_random_samples",)

    def forward(self, x: Tensor) -> Any:
        """See the class."""
        method = x.fractional_max_pool2d if self.axes == 2 else x.fractional_max_pool3d
        sizes = (self.kernel_size, self.output_size, self.output_ratio)
        return method(*sizes, self.return_indices, self._random_samples)


@guard_methods
class MaxPool1d(_MaxPool):
    """Take the maximum of each window: (N, C, L) -> (N, C, L'). See `Tensor.max_pool1d`.

    With `return_indices` a call returns (maxima, their numbers).

    >>> MaxPool1d(2)(Tensor.ones(1, 1, 4)).shape
    (1, 1, 2)
    """

    axes = 1


@guard_methods
class MaxPool2d(_MaxPool):
    """Take the maximum of each window: (N, C, H, W) -> (N, C, H', W'). See `Tensor.max_pool2d`.

    With `return_indices` a call returns (maxima, their numbers).

    >>> MaxPool2d(2)(Tensor.ones(1, 1, 4, 4)).shape
    (1, 1, 2, 2)
    """

    axes = 2


@guard_methods
class MaxPool3d(_MaxPool):
    """Take the maximum of each window: (N, C, D, H, W) -> (N, C, D', H', W'). See `Tensor.max_pool3d`.

    With `return_indices` a call returns (maxima, their numbers).

    >>> MaxPool3d(2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    axes = 3


@guard_methods
class AvgPool1d(_AvgPool):
    """Take the mean of each window: (N, C, L) -> (N, C, L'). See `Tensor.avg_pool1d`.

    >>> AvgPool1d(2)(Tensor.ones(1, 1, 4)).shape
    (1, 1, 2)
    """

    axes = 1


@guard_methods
class AvgPool2d(_AvgPool):
    """Take the mean of each window: (N, C, H, W) -> (N, C, H', W'). See `Tensor.avg_pool2d`.

    >>> AvgPool2d(2)(Tensor.ones(1, 1, 4, 4)).shape
    (1, 1, 2, 2)
    """

    axes = 2


@guard_methods
class AvgPool3d(_AvgPool):
    """Take the mean of each window: (N, C, D, H, W) -> (N, C, D', H', W'). See `Tensor.avg_pool3d`.

    >>> AvgPool3d(2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    axes = 3


@guard_methods
class LPPool1d(_LPPool):
    """Take the norm of each window: (N, C, L) -> (N, C, L'). See `Tensor.lp_pool1d`.

    >>> LPPool1d(2, 2)(Tensor.ones(1, 1, 4)).shape
    (1, 1, 2)
    """

    axes = 1


@guard_methods
class LPPool2d(_LPPool):
    """Take the norm of each window: (N, C, H, W) -> (N, C, H', W'). See `Tensor.lp_pool2d`.

    >>> LPPool2d(2, 2)(Tensor.ones(1, 1, 4, 4)).shape
    (1, 1, 2, 2)
    """

    axes = 2


@guard_methods
class LPPool3d(_LPPool):
    """Take the norm of each window: (N, C, D, H, W) -> (N, C, D', H', W'). See `Tensor.lp_pool3d`.

    >>> LPPool3d(2, 2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    axes = 3


@guard_methods
class MaxUnpool1d(_MaxUnpool):
    """Put maxima back at their numbers, among zeros. See `Tensor.max_unpool1d`.

    >>> MaxUnpool1d(2)(*MaxPool1d(2, return_indices=True)(Tensor.ones(1, 1, 4))).shape
    (1, 1, 4)
    """

    axes = 1


@guard_methods
class MaxUnpool2d(_MaxUnpool):
    """Put maxima back at their numbers, among zeros. See `Tensor.max_unpool2d`.

    >>> MaxUnpool2d(2)(*MaxPool2d(2, return_indices=True)(Tensor.ones(1, 1, 4, 4))).shape
    (1, 1, 4, 4)
    """

    axes = 2


@guard_methods
class MaxUnpool3d(_MaxUnpool):
    """Put maxima back at their numbers, among zeros. See `Tensor.max_unpool3d`.

    >>> MaxUnpool3d(2)(*MaxPool3d(2, return_indices=True)(Tensor.ones(1, 1, 4, 4, 4))).shape
    (1, 1, 4, 4, 4)
    """

    axes = 3


@guard_methods
class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Take the means of parts: (N, C, L) -> (N, C, output_size).

    See `Tensor.adaptive_avg_pool1d`.

    >>> AdaptiveAvgPool1d(3)(Tensor.ones(1, 1, 4)).shape
    (1, 1, 3)
    """

    axes = 1


@guard_methods
class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Take the means of parts: (N, C, H, W) -> (N, C, *output_size).

    See `Tensor.adaptive_avg_pool2d`.

    >>> AdaptiveAvgPool2d(3)(Tensor.ones(1, 1, 4, 4)).shape
    (1, 1, 3, 3)
    """

    axes = 2


@guard_methods
class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Take the means of parts: (N, C, D, H, W) -> (N, C, *output_size).

    See `Tensor.adaptive_avg_pool3d`.

    >>> AdaptiveAvgPool3d(3)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 3, 3, 3)
    """

    axes = 3


@guard_methods
class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Take the maxima of parts: (N, C, L) -> (N, C, output_size).

    With `return_indices` a call returns (maxima, their numbers). See `Tensor.adaptive_max_pool1d`.

    >>> AdaptiveMaxPool1d(3)(Tensor.ones(1, 1, 4)).shape
    (1, 1, 3)
    """

    axes = 1


@guard_methods
class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Take the maxima of parts: (N, C, H, W) -> (N, C, *output_size).

    With `return_indices` a call returns (maxima, their numbers). See `Tensor.adaptive_max_pool2d`.

    >>> AdaptiveMaxPool2d(3)(Tensor.ones(1, 1, 4, 4)).shape
    (1, 1, 3, 3)
    """

    axes = 2


@guard_methods
class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Take the maxima of parts: (N, C, D, H, W) -> (N, C, *output_size).

    With `return_indices` a call returns (maxima, their numbers). See `Tensor.adaptive_max_pool3d`.

    >>> AdaptiveMaxPool3d(3)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 3, 3, 3)
    """

    axes = 3


@guard_methods
class FractionalMaxPool2d(_FractionalMaxPool):
    """Take the maxima of windows drawn at random: (N, C, H, W) -> (N, C, *output_size).

    See `Tensor.fractional_max_pool2d`. Raises ArgumentError unless one of the sizes is given.

    >>> FractionalMaxPool2d(2, output_size=3)(Tensor.ones(1, 1, 5, 5)).shape
    (1, 1, 3, 3)
    """

    axes = 2


@guard_methods
class FractionalMaxPool3d(_FractionalMaxPool):
    """Take the maxima of windows drawn at random: (N, C, D, H, W) -> (N, C, *output_size).

    See `Tensor.fractional_max_pool3d`. Raises ArgumentError unless one of the sizes is given.

    >>> FractionalMaxPool3d(2, output_size=3)(Tensor.ones(1, 1, 5, 5, 5)).shape
    (1, 1, 3, 3, 3)
    """

    axes = 3


__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]
