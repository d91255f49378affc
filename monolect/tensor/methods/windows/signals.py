"""Weights of windows over signals: Hann, Hamming, Bartlett, Blackman, Kaiser.

What it is not: these windows move over nothing; they are vectors that a signal is multiplied by.
Invariant: a periodic window is the symmetric one of one more element, without its last element.
Source: names and defaults of PyTorch.
"""

from __future__ import annotations

from math import pi
from typing import Any, Self

from monolect.base.dtype import as_dtype, dtypes
from monolect.base.errors import ArgumentError, DTypeError
from monolect.tensor.base import DeviceLike, DTypeLike, TensorBase, as_int
from monolect.tensor.guard import guard_methods


@guard_methods
class SignalsMixin(TensorBase):
    """Methods of Tensor that make windows over signals, float32 unless `dtype` is given; one of one element is 1."""

    __slots__ = ()

    @classmethod
    def _window(cls, name: str, length: int, periodic: bool, formula: Any, options: Any) -> Self:
        """Return formula(t) for t from 0 to 1 in `length` steps, of which the last one is left out if `periodic`."""
        dtype, device, requires_grad = options
        n, d = as_int(length, "window_length"), dtypes.float32 if dtype is None else as_dtype(dtype)
        if n < 0:
            raise ArgumentError(f"{name}: window_length", expected="at least 0", found=n)
        if not d.is_float:
            raise DTypeError(f"{name}: dtype", expected="a float dtype", found=d.name)
        kind: Any = cls
        if n < 2:
            return kind.ones(n, dtype=d, device=device, requires_grad=requires_grad)
        wide = dtypes.float64 if d is dtypes.float64 else dtypes.float32
        t = kind.arange(n, dtype=wide, device=device) / (n if periodic else n - 1)
        made: Self = formula(t).cast(d)
        return made.requires_grad_() if requires_grad else made

    @classmethod
    def hann_window(
        cls,
        window_length: int,
        periodic: bool = True,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return the window of Hann, sin(pi t) ** 2; symmetric unless `periodic`.

        Raises ArgumentError for a negative length, DTypeError for an integer `dtype`.

        >>> [round(x, 4) for x in Tensor.hann_window(4).tolist()]
        [0.0, 0.5, 1.0, 0.5]
        """
        options = dtype, device, requires_grad
        return cls._window("hann_window", window_length, periodic, lambda t: (t * pi).sin().square(), options)

    @classmethod
    def hamming_window(
        cls,
        window_length: int,
        periodic: bool = True,
        alpha: float = 0.54,
        beta: float = 0.46,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return the window of Hamming, alpha - beta cos(2 pi t); symmetric unless `periodic`.

        Raises ArgumentError for a negative length, DTypeError for an integer `dtype`.

        >>> [round(x, 4) for x in Tensor.hamming_window(4).tolist()]
        [0.08, 0.54, 1.0, 0.54]
        """
        options = dtype, device, requires_grad
        return cls._window(
            "hamming_window", window_length, periodic, lambda t: alpha - beta * (t * (2 * pi)).cos(), options
        )

    @classmethod
    def bartlett_window(
        cls,
        window_length: int,
        periodic: bool = True,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return the triangle from 0 to 1 and back; symmetric unless `periodic`.

        Raises ArgumentError for a negative length, DTypeError for an integer `dtype`.

        >>> Tensor.bartlett_window(4).tolist()
        [0.0, 0.5, 1.0, 0.5]
        """
        options = dtype, device, requires_grad
        return cls._window("bartlett_window", window_length, periodic, lambda t: 1.0 - (t * 2.0 - 1.0).abs(), options)

    @classmethod
    def blackman_window(
        cls,
        window_length: int,
        periodic: bool = True,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return the window of Blackman, 0.42 - 0.5 cos(2 pi t) + 0.08 cos(4 pi t); symmetric unless `periodic`.

        Raises ArgumentError for a negative length, DTypeError for an integer `dtype`.

        >>> [abs(round(x, 4)) for x in Tensor.blackman_window(4).tolist()]
        [0.0, 0.34, 1.0, 0.34]
        """

        def formula(t: Any) -> Any:
            return 0.42 - 0.5 * (t * (2 * pi)).cos() + 0.08 * (t * (4 * pi)).cos()

        return cls._window("blackman_window", window_length, periodic, formula, (dtype, device, requires_grad))

    @classmethod
    def kaiser_window(
        cls,
        window_length: int,
        periodic: bool = True,
        beta: float = 12.0,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return the window of Kaiser, i0(beta sqrt(1 - (2 t - 1) ** 2)) / i0(beta); symmetric unless `periodic`.

        Raises ArgumentError for a negative length, DTypeError for an integer `dtype`.

        >>> [round(x, 4) for x in Tensor.kaiser_window(4, beta=2.0).tolist()]
        [0.4387, 0.8348, 1.0, 0.8348]
        """

        def formula(t: Any) -> Any:
            s = t * 2.0 - 1.0
            at = (1.0 - s.square()).clamp(min=0.0).sqrt() * beta
            return at.i0() / t.full_like(beta).i0()

        return cls._window("kaiser_window", window_length, periodic, formula, (dtype, device, requires_grad))


__all__ = ["SignalsMixin"]
