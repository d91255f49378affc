"""Define layers that pad the last axes.

`padding` is a width for all sides, or one for each side, from the last axis on: left, right, top, bottom, front, back.
A negative width crops. The batch axis may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from monolect.base.errors import ArgumentError, ShapeError
from monolect.nn.module import Module
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class _Pad(Module):
    axes = 0
    mode = "constant"

    def __init__(self, padding: int | Sequence[int]):
        n = 2 * self.axes
        self.padding = (padding,) * n if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != n:
            raise ArgumentError(f"{type(self).__name__}: padding", expected=f"an int or {n} ints", found=padding)
        self.value = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        if self.mode != "constant" and x.ndim not in (self.axes + 1, self.axes + 2):
            expected = f"(batch, channels, {self.axes} axes)"
            raise ShapeError(f"{type(self).__name__}: rank of the input", expected=expected, found=x.shape)
        return x.pad(self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        """Return the widths as text."""
        return f"{self.padding}"


@guard_methods
class ZeroPad1d(_Pad):
    """Pad the last axis of (N, C, L) with zeros.

    >>> ZeroPad1d((2, 1))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 3)).flatten().tolist()
    [0.0, 0.0, 1.0, 2.0, 3.0, 0.0]
    """

    axes, mode = 1, "constant"


@guard_methods
class ZeroPad2d(_Pad):
    """Pad the last two axes of (N, C, H, W) with zeros.

    >>> ZeroPad2d((2, 1, 0, 0))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 3)).flatten().tolist()
    [0.0, 0.0, 1.0, 2.0, 3.0, 0.0]
    """

    axes, mode = 2, "constant"


@guard_methods
class ZeroPad3d(_Pad):
    """Pad the last three axes of (N, C, D, H, W) with zeros.

    >>> ZeroPad3d((2, 1, 0, 0, 0, 0))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 1, 3)).flatten().tolist()
    [0.0, 0.0, 1.0, 2.0, 3.0, 0.0]
    """

    axes, mode = 3, "constant"


@guard_methods
class ConstantPad1d(_Pad):
    """Pad the last axis of (N, C, L) with `value`.

    >>> ConstantPad1d((2, 1), 9.0)(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 3)).flatten().tolist()
    [9.0, 9.0, 1.0, 2.0, 3.0, 9.0]
    """

    axes, mode = 1, "constant"

    def __init__(self, padding: int | Sequence[int], value: float):
        super().__init__(padding)
        self.value = value


@guard_methods
class ConstantPad2d(_Pad):
    """Pad the last two axes of (N, C, H, W) with `value`.

    >>> ConstantPad2d((2, 1, 0, 0), 9.0)(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 3)).flatten().tolist()
    [9.0, 9.0, 1.0, 2.0, 3.0, 9.0]
    """

    axes, mode = 2, "constant"

    def __init__(self, padding: int | Sequence[int], value: float):
        super().__init__(padding)
        self.value = value


@guard_methods
class ConstantPad3d(_Pad):
    """Pad the last three axes of (N, C, D, H, W) with `value`.

    >>> ConstantPad3d((2, 1, 0, 0, 0, 0), 9.0)(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 1, 3)).flatten().tolist()
    [9.0, 9.0, 1.0, 2.0, 3.0, 9.0]
    """

    axes, mode = 3, "constant"

    def __init__(self, padding: int | Sequence[int], value: float):
        super().__init__(padding)
        self.value = value


@guard_methods
class ReflectionPad1d(_Pad):
    """Pad the last axis of (N, C, L) with the elements that mirror the inside at its ends.

    >>> ReflectionPad1d((2, 1))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 3)).flatten().tolist()
    [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]
    """

    axes, mode = 1, "reflect"


@guard_methods
class ReflectionPad2d(_Pad):
    """Pad the last two axes of (N, C, H, W) with the elements that mirror the inside at its ends.

    >>> ReflectionPad2d((2, 1, 0, 0))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 3)).flatten().tolist()
    [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]
    """

    axes, mode = 2, "reflect"


@guard_methods
class ReflectionPad3d(_Pad):
    """Pad the last three axes of (N, C, D, H, W) with the elements that mirror the inside at its ends.

    >>> ReflectionPad3d((2, 1, 0, 0, 0, 0))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 1, 3)).flatten().tolist()
    [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]
    """

    axes, mode = 3, "reflect"


@guard_methods
class ReplicationPad1d(_Pad):
    """Pad the last axis of (N, C, L) with its first and last elements.

    >>> ReplicationPad1d((2, 1))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 3)).flatten().tolist()
    [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]
    """

    axes, mode = 1, "replicate"


@guard_methods
class ReplicationPad2d(_Pad):
    """Pad the last two axes of (N, C, H, W) with its first and last elements.

    >>> ReplicationPad2d((2, 1, 0, 0))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 3)).flatten().tolist()
    [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]
    """

    axes, mode = 2, "replicate"


@guard_methods
class ReplicationPad3d(_Pad):
    """Pad the last three axes of (N, C, D, H, W) with its first and last elements.

    >>> ReplicationPad3d((2, 1, 0, 0, 0, 0))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 1, 3)).flatten().tolist()
    [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]
    """

    axes, mode = 3, "replicate"


@guard_methods
class CircularPad1d(_Pad):
    """Pad the last axis of (N, C, L) with the elements of the other end.

    >>> CircularPad1d((2, 1))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 3)).flatten().tolist()
    [2.0, 3.0, 1.0, 2.0, 3.0, 1.0]
    """

    axes, mode = 1, "circular"


@guard_methods
class CircularPad2d(_Pad):
    """Pad the last two axes of (N, C, H, W) with the elements of the other end.

    >>> CircularPad2d((2, 1, 0, 0))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 3)).flatten().tolist()
    [2.0, 3.0, 1.0, 2.0, 3.0, 1.0]
    """

    axes, mode = 2, "circular"


@guard_methods
class CircularPad3d(_Pad):
    """Pad the last three axes of (N, C, D, H, W) with the elements of the other end.

    >>> CircularPad3d((2, 1, 0, 0, 0, 0))(Tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 1, 3)).flatten().tolist()
    [2.0, 3.0, 1.0, 2.0, 3.0, 1.0]
    """

    axes, mode = 3, "circular"


__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]
