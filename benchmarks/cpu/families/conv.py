"""Convolution, pooling and batch normalisation, images and channels in the order NCHW."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.cpu.case import Case, normal
from benchmarks.cpu.definitions import convolution, max_pool


def conv(
    n: int,
    c: int,
    size: int,
    out: int,
    k: int,
    stride: int = 1,
    groups: int = 1,
    *,
    name: str = "",
    quick: bool = False,
) -> Case:
    """A square kernel on square images, padded by half the kernel."""
    padding, made = k // 2, (size + 2 * (k // 2) - k) // stride + 1
    what = name or f"conv {k}x{k}" + (f"/{stride}" if stride > 1 else "") + (f" g{groups}" if groups > 1 else "")
    return Case(
        f"{what} ({n},{c},{size},{size})->{out}",
        "conv",
        normal((n, c, size, size), (out, c // groups, k, k)),
        {
            "monolect": lambda _, x, w: x.conv2d(w, stride=stride, padding=padding, groups=groups),
            "torch": lambda torch, x, w: torch.conv2d(x, w, None, stride, padding, 1, groups),
            "jax": lambda jax, x, w: jax.lax.conv_general_dilated(
                x, w, (stride, stride), [(padding, padding)] * 2, feature_group_count=groups
            ),
            "ort": lambda g, x, w: g.Conv(x, w, strides=[stride] * 2, pads=[padding] * 4, group=groups),
        },
        exact=lambda _, x, w: convolution(x, w, stride, padding, groups),
        flops=2.0 * n * out * made * made * (c // groups) * k * k,
        constants=1,
        quick=quick,
    )


def pooling(n: int, c: int, size: int) -> Case:
    return Case(
        f"maxpool 3x3/2 ({n},{c},{size},{size})",
        "conv",
        normal((n, c, size, size)),
        {
            "monolect": lambda _, x: x.max_pool2d(3, 2, 1),
            "torch": lambda torch, x: torch.max_pool2d(x, 3, 2, 1),
            "jax": lambda jax, x: jax.lax.reduce_window(
                x, -np.inf, jax.lax.max, (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1))
            ),
            "ort": lambda g, x: g.MaxPool(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
            "tinygrad": lambda _, x: x.max_pool2d(3, 2, padding=1),
        },
        exact=lambda _, x: max_pool(x, 3, 2, 1),
    )


def batch_norm(n: int, c: int, size: int) -> Case:
    def by_hand(library: Any, x: Any, w: Any, b: Any) -> Any:
        sqrt = library.numpy.sqrt if library.__name__ == "jax" else library.sqrt
        mean, var = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
        return (x - mean) / sqrt(var + 1e-5) * w[:, None, None] + b[:, None, None]

    return Case(
        f"batchnorm training ({n},{c},{size},{size})",
        "conv",
        normal((n, c, size, size), (c,), (c,)),
        {
            "monolect": lambda _, x, w, b: x.batch_norm(None, None, w, b, training=True),
            "torch": lambda torch, x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True),
            "jax": by_hand,
        },
        exact=by_hand,
    )


def random_case(rng: np.random.Generator) -> Case:
    """Channels and sizes that fill no vector, kernels of one to seven."""
    k = int(rng.choice([1, 2, 3, 5, 7]))
    groups = int(rng.choice([1, 1, 1, 2, 3]))
    c, out = (groups * int(rng.integers(1, 48)) for _ in range(2))
    size = int(rng.integers(k, 60))
    return conv(int(rng.integers(1, 9)), c, size, out, k, int(rng.integers(1, 4)), groups)


CASES = [
    conv(32, 64, 56, 64, 3, quick=True),
    conv(32, 256, 56, 64, 1),
    conv(32, 256, 56, 256, 1),
    conv(32, 128, 56, 128, 3, groups=128, name="depthwise 3x3"),
    conv(32, 3, 224, 64, 7, 2),
    conv(1, 512, 7, 512, 3),
    pooling(32, 64, 112),
    batch_norm(32, 64, 112),
]
