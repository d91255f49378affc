"""What convolution, pooling windows and attention are, written with NumPy: references, and NumPy's own programs."""

from __future__ import annotations

from typing import Any

import numpy as np


def windows(x: np.ndarray, kernel: int, stride: int, padding: int, fill: float = 0.0) -> np.ndarray:
    """(N, C, H, W) as (N, C, OH, OW, kernel, kernel)."""
    p = (padding, padding)
    framed = np.pad(x, ((0, 0), (0, 0), p, p), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(framed, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]


def convolution(x: np.ndarray, w: np.ndarray, stride: int = 1, padding: int = 0, groups: int = 1) -> np.ndarray:
    """(N, C, H, W) with (O, C / groups, k, k), one image at a time."""
    out, _, k, _ = w.shape
    parts = w.reshape(groups, out // groups, -1)
    images = []
    for image in windows(x, k, stride, padding):
        c, oh, ow = image.shape[:3]
        columns = image.reshape(groups, c // groups, oh, ow, k, k).transpose(0, 1, 4, 5, 2, 3)
        images.append((parts @ columns.reshape(groups, -1, oh * ow)).reshape(out, oh, ow))
    return np.stack(images)


def max_pool(x: np.ndarray, kernel: int, stride: int, padding: int) -> np.ndarray:
    return windows(x, kernel, stride, padding, -np.inf).max((-1, -2))


def attention(library: Any, q: Any, k: Any, v: Any, causal: bool = True) -> Any:
    """softmax(q kᵀ / sqrt(width)) v in the words that NumPy and JAX share."""
    np = library.numpy if library.__name__ == "jax" else library
    s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        s = np.where(np.tri(q.shape[-2], k.shape[-2], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v
