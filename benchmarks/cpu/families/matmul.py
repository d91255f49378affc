"""Matrix products of f32: square in the three layouts, and skinny ones whose weights come from memory."""

from __future__ import annotations

import numpy as np

from benchmarks.cpu.case import BEST, Case, Target, normal, same

LIBRARIES = ("monolect", "torch", "jax", "numpy")
IN_TINYGRAD = {
    "A·B": lambda _, a, b: a @ b,
    "A·Bᵀ": lambda _, a, b: a @ b.transpose(-1, -2),
    "Aᵀ·B": lambda _, a, b: a.transpose(-1, -2) @ b,
}


def matmul(m: int, k: int, n: int, layout: str = "A·B", *, batch: tuple[int, ...] = (), quick: bool = False) -> Case:
    """(m, k) times (k, n), with either operand stored transposed."""
    a = (*batch, k, m) if layout == "Aᵀ·B" else (*batch, m, k)
    b = (*batch, n, k) if layout == "A·Bᵀ" else (*batch, k, n)
    plain = {
        "A·B": lambda _, a, b: a @ b,
        "A·Bᵀ": lambda _, a, b: a @ b.swapaxes(-1, -2),
        "Aᵀ·B": lambda _, a, b: a.swapaxes(-1, -2) @ b,
    }[layout]
    flags = {"A·B": {}, "A·Bᵀ": {"transB": 1}, "Aᵀ·B": {"transA": 1}}[layout]
    sizes = "x".join(str(s) for s in (*batch, m, k, n))
    return Case(
        f"matmul {m if m == k == n and not batch else sizes} {layout}",
        "matmul",
        normal(a, b),
        same(plain, *LIBRARIES)
        | {"tinygrad": IN_TINYGRAD[layout]}
        | {"ort": (lambda g, a, b: g.Gemm(a, b, **flags)) if flags else lambda g, a, b: g.MatMul(a, b)},
        flops=2.0 * m * k * n * int(np.prod(batch)),
        quick=quick,
    )


def skinny(m: int, layout: str, ratio: float, *, k: int = 4096, n: int = 4096, weights: int = 4) -> Case:
    """A few rows times one of several large matrices in turn: the matrix comes from memory at every call."""
    shape = (k, n) if layout == "W" else (n, k)
    return Case(
        f"matmul {m}x{k}x{n} x·{layout}",
        "matmul",
        normal((m, k), *[shape] * weights),
        same((lambda _, x, w: x @ w) if layout == "W" else (lambda _, x, w: x @ w.swapaxes(0, 1)), *LIBRARIES)
        | {"ort": lambda g, x, w: g.Gemm(x, w, transB=int(layout == "Wᵀ"))}
        | {"tinygrad": IN_TINYGRAD["A·B" if layout == "W" else "A·Bᵀ"]},
        targets=(Target(ratio),) if ratio != 1.0 else BEST,
        flops=2.0 * m * k * n,
        rotation=weights,
        quick=m == 1 and layout == "W",
    )


def random_case(rng: np.random.Generator) -> Case:
    """Odd, prime and small sizes, some of them batched."""
    batch = [(), (), (2,), (3, 5)][rng.integers(4)]
    m, k, n = (int(2 ** rng.uniform(0, 9 if batch else 11)) for _ in range(3))
    layout = "A·B" if batch else ["A·B", "A·Bᵀ", "Aᵀ·B"][rng.integers(3)]
    return matmul(m, k, n, layout, batch=batch)


CASES = [
    *[
        matmul(n, n, n, layout, quick=(n, layout) in ((512, "A·B"), (1024, "A·B"), (1024, "A·Bᵀ")))
        for layout in ("A·B", "A·Bᵀ", "Aᵀ·B")
        for n in (512, 1024, 2048, 4096)
    ],
    *[skinny(m, layout, ratio) for m, ratio in ((1, 1.0), (8, 1.5)) for layout in ("W", "Wᵀ")],
    matmul(4096, 64, 4096),
]
