"""The rows of the table: a program in both libraries, what it must give, what it moves or computes, and its goal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from monolect import Tensor

CHECKED = 64  # rows of a result that are compared
SQRT_2_OVER_PI = 0.7978845608028654
EPS = 1e-5


@dataclass(frozen=True)
class Row:
    """One program.

    `shapes` of its float32 inputs, which become `dtype` first. `definition` is in NumPy: it gets the inputs in float64,
    of the first `part` of them only CHECKED rows, and gives the same rows of the result. `goal`: at least this share of
    the measured copy's bandwidth if `of` is "copy", of PyTorch's speed if it is "torch".
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Tensor]
    theirs: Callable[..., Any]  # (torch, *tensors)
    definition: Callable[..., np.ndarray]
    of: str
    goal: float
    dtype: str = "float32"
    tf32: bool = False
    n_bytes: int = 0  # read and written, at least
    flops: float = 0.0
    part: int = 1
    tolerance: float = 1e-4  # of the largest value


def gelu(x: Any, tanh: Callable[[Any], Any]) -> Any:
    return 0.5 * x * (1 + tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPS) * w + b


def elementwise(n: int, m: int) -> list[Row]:
    size = n * m * 4
    return [
        Row("x + 1", ((n, m),), lambda x: x + 1, lambda _, x: x + 1, lambda x: x + 1, "copy", 0.9, n_bytes=2 * size),
        Row(
            "gelu(x * a + b)",
            ((n, m), (m,), (m,)),
            lambda x, a, b: gelu(x * a + b, Tensor.tanh),
            lambda torch, x, a, b: torch.nn.functional.gelu(x * a + b, approximate="tanh"),
            lambda x, a, b: gelu(x * a + b, np.tanh),
            "copy",
            0.9,
            n_bytes=2 * size,
        ),
    ]


def reductions(n: int, m: int) -> list[Row]:
    size = n * m * 4
    return [
        Row("sum of rows", ((n, m),), lambda x: x.sum(1), lambda _, x: x.sum(1), lambda x: x.sum(1), "copy", 0.9,
            n_bytes=size),
        Row("sum of columns", ((n, m),), lambda x: x.sum(0), lambda _, x: x.sum(0), lambda x: x.sum(0), "copy", 0.9,
            n_bytes=size, part=0),
        Row("maximum", ((n, m),), lambda x: x.max().reshape(1), lambda _, x: x.max().reshape(1),
            lambda x: x.max().reshape(1), "copy", 0.9, n_bytes=size, part=0),
    ]  # fmt: skip


def in_rows(n: int, m: int) -> list[Row]:
    size = n * m * 4
    return [
        Row("softmax", ((n, m),), lambda x: x.softmax(-1), lambda _, x: x.softmax(-1), softmax, "torch", 1.0,
            n_bytes=2 * size),
        Row("layer norm", ((n, m), (m,), (m,)), lambda x, w, b: x.layer_norm((m,), w, b, EPS),
            lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (m,), w, b, EPS), layer_norm, "torch", 1.0,
            n_bytes=2 * size),
    ]  # fmt: skip


def product(n: int, dtype: str = "float32", tf32: bool = False) -> Row:
    name = "tf32" if tf32 else dtype
    return Row(
        f"matmul {name} {n}",
        ((n, n), (n, n)),
        lambda a, b: a @ b,
        lambda _, a, b: a @ b,
        lambda a, b: a @ b,
        "torch",
        0.7,
        dtype=dtype,
        tf32=tf32,
        flops=2.0 * n**3,
        tolerance={"float32": 2e-3 if tf32 else 1e-4}.get(dtype, 1e-2),
    )


def attention(b: int, h: int, t: int, d: int, dtype: str) -> Row:
    def definition(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        q, k, v = (x[0, 0] for x in (q, k, v))
        scores = q @ k.T / np.sqrt(d)
        return softmax(np.where(np.tri(t, dtype=bool), scores, -np.inf)) @ v

    return Row(
        f"causal attention {dtype} ({b},{h},{t},{d})",
        ((b, h, t, d),) * 3,
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        definition,
        "torch",
        1.0,
        dtype=dtype,
        flops=2.0 * b * h * t * (t + 1) * d,
        part=0,
        tolerance=1e-2,
    )


def rows(is_small: bool = False) -> list[Row]:
    """The table; `is_small`: the same programs on sizes that any device runs in no time."""
    n, m = (96, 160) if is_small else (16384, 4096)
    sizes = (96,) if is_small else (4096, 8192)
    heads = (1, 2, 33, 16) if is_small else (4, 16, 2048, 64)
    kinds: list[dict[str, Any]] = [{}, {"tf32": True}, {"dtype": "bfloat16"}]
    return [
        *elementwise(n, m),
        *reductions(n, m),
        *in_rows(n, m),
        *[product(size, **kind) for kind in kinds for size in sizes],
        attention(*heads, "bfloat16"),
    ]


def checked(row: Row, result: np.ndarray) -> np.ndarray:
    """The part of a result that `expected` gives."""
    if "attention" in row.name:
        return result[0, 0]
    return result[:CHECKED] if row.part else result


def expected(row: Row, inputs: list[np.ndarray]) -> np.ndarray:
    """That part in float64, of inputs as the libraries have them."""
    given = [x.astype(np.float64) for x in (x[:CHECKED] if i < row.part else x for i, x in enumerate(inputs))]
    return row.definition(*given)
