"""Matrix products of bfloat16 (to bfloat16) and of int8 (to int32)."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from benchmarks.cpu.case import Case, Target, normal, same

TARGETS = (Target(0.9),)


def bfloat(m: int, k: int, n: int, *, quick: bool = False) -> Case:
    return Case(
        f"matmul bf16 {m if m == k == n else f'{m}x{k}x{n}'}",
        "narrow",
        normal((m, k), (k, n), dtype=ml_dtypes.bfloat16),
        same(lambda _, a, b: a @ b, "monolect", "torch", "jax"),
        exact=lambda _, a, b: a @ b,
        targets=TARGETS,
        tolerance=2e-2,
        flops=2.0 * m * k * n,
        unit="bf16",
        quick=quick,
    )


def int_eight(m: int, k: int, n: int) -> Case:
    return Case(
        f"matmul int8 {m if m == k == n else f'{m}x{k}x{n}'}",
        "narrow",
        lambda rng: [rng.integers(-127, 128, shape, np.int8) for shape in ((m, k), (k, n))],
        {
            "monolect": lambda _, a, b: a.int() @ b.int(),
            "torch": lambda torch, a, b: torch._int_mm(a, b),
            "jax": lambda jax, a, b: jax.numpy.matmul(a, b, preferred_element_type=np.int32),
            "ort": lambda g, a, b: g.MatMulInteger(a, b),
        },
        exact=lambda np, a, b: (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int32),
        targets=TARGETS,
        tolerance=0.0,
        flops=2.0 * m * k * n,
        unit="int8",
    )


def random_case(rng: np.random.Generator) -> Case:
    m, k, n = (int(rng.integers(17, 700)) for _ in range(3))
    return (bfloat if rng.integers(2) else int_eight)(m, k, n)


CASES = [bfloat(1024, 1024, 1024, quick=True), bfloat(2048, 2048, 2048)]
CASES += [int_eight(1024, 1024, 1024), int_eight(2048, 2048, 2048)]
