"""Causal attention."""

from __future__ import annotations

import numpy as np

from benchmarks.cpu.case import PYTORCH, Case, Target, normal, same
from benchmarks.cpu.definitions import attention


def causal(b: int, h: int, t: int, d: int, *, quick: bool = False) -> Case:
    return Case(
        f"attention causal ({b},{h},{t},{d})",
        "attention",
        normal(*[(b, h, t, d)] * 3),
        same(attention, "jax", "numpy")
        | {
            "monolect": lambda _, q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
            "torch": lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
            "ort": lambda g, q, k, v: g.Attention(q, k, v, is_causal=1),
        },
        targets=(Target(1.3, PYTORCH), Target(1.0)),
        flops=2.0 * b * h * t * (t + 1) * d,
        quick=quick,
    )


def random_case(rng: np.random.Generator) -> Case:
    return causal(*(int(rng.integers(1, n)) for n in (4, 13, 400, 97)))


CASES = [causal(1, 12, 1024, 64, quick=True), causal(4, 12, 256, 64)]
