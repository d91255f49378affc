"""Define layers that resize images, or move elements between channels and pixels."""

from __future__ import annotations

from collections.abc import Sequence

from monolect.nn.module import Module
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class Upsample(Module):
    """Resize the spatial axes of (N, C, ...) to `size` or by `scale_factor`. See `Tensor.interpolate`.

    >>> Upsample(scale_factor=2, mode="bilinear")(Tensor.ones(1, 2, 3, 4)).shape
    (1, 2, 6, 8)
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ):
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.interpolate(self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)

    def extra_repr(self) -> str:
        """Return size or factor, and mode, as text."""
        size = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{size}, mode={self.mode!r}"


@guard_methods
class UpsamplingNearest2d(Upsample):
    """Resize (N, C, H, W) by repeating the nearest element.

    >>> UpsamplingNearest2d(scale_factor=2)(Tensor.ones(1, 1, 2, 2)).shape
    (1, 1, 4, 4)
    """

    def __init__(self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None):
        super().__init__(size, scale_factor)


@guard_methods
class UpsamplingBilinear2d(Upsample):
    """Resize (N, C, H, W) by linear interpolation with aligned corners.

    >>> UpsamplingBilinear2d(scale_factor=2)(Tensor.ones(1, 1, 2, 2)).shape
    (1, 1, 4, 4)
    """

    def __init__(self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None):
        super().__init__(size, scale_factor, "bilinear", True)


@guard_methods
class PixelShuffle(Module):
    """Turn channels into pixels: (..., C * r * r, H, W) -> (..., C, H * r, W * r). See `Tensor.pixel_shuffle`.

    >>> PixelShuffle(2)(Tensor.ones(1, 4, 2, 2)).shape
    (1, 1, 4, 4)
    """

    def __init__(self, upscale_factor: int):
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.pixel_shuffle(self.upscale_factor)

    def extra_repr(self) -> str:
        """Return the factor as text."""
        return f"upscale_factor={self.upscale_factor}"


@guard_methods
class PixelUnshuffle(Module):
    """Turn pixels into channels: (..., C, H * r, W * r) -> (..., C * r * r, H, W). See `Tensor.pixel_unshuffle`.

    >>> PixelUnshuffle(2)(Tensor.ones(1, 1, 4, 4)).shape
    (1, 4, 2, 2)
    """

    def __init__(self, downscale_factor: int):
        self.downscale_factor = downscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.pixel_unshuffle(self.downscale_factor)

    def extra_repr(self) -> str:
        """Return the factor as text."""
        return f"downscale_factor={self.downscale_factor}"


@guard_methods
class ChannelShuffle(Module):
    """Let the channels of all groups alternate in (N, C, ...). See `Tensor.channel_shuffle`.

    >>> ChannelShuffle(2)(Tensor([[[1], [2], [3], [4]]])).tolist()
    [[[1], [3], [2], [4]]]
    """

    def __init__(self, groups: int):
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.channel_shuffle(self.groups)

    def extra_repr(self) -> str:
        """Return the number of groups as text."""
        return f"groups={self.groups}"


__all__ = [
    "ChannelShuffle",
    "PixelShuffle",
    "PixelUnshuffle",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]
