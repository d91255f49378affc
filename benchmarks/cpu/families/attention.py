"""Causal attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.cpu.case import PYTORCH, Case, Target, normal


def by_hand(library: Any, q: Any, k: Any, v: Any) -> Any:
    """In the words that NumPy and JAX share."""
    np = library.numpy if library.__name__ == "jax" else library
    s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    s = np.where(np.tri(q.shape[-2], k.shape[-2], dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v


def in_graph(g: Any, q: Any, k: Any, v: Any, rows: int, width: int) -> Any:
    s = g.Mul(g.MatMul(q, g.Transpose(k, perm=[0, 1, 3, 2])), np.float32(width**-0.5))
    s = g.Add(s, np.where(np.tri(rows, dtype=bool), 0, -np.inf).astype(np.float32))
    return g.MatMul(g.Softmax(s, axis=-1), v)


def causal(b: int, h: int, t: int, d: int, *, quick: bool = False) -> Case:
    return Case(
        f"attention causal ({b},{h},{t},{d})",
        "attention",
        normal(*[(b, h, t, d)] * 3),
        {
            "monolect": lambda _, q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
            "torch": lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
            "jax": by_hand,
            "ort": lambda g, q, k, v: in_graph(g, q, k, v, t, d),
            "numpy": by_hand,
        },
        targets=(Target(1.3, PYTORCH), Target(1.0)),
        flops=2.0 * b * h * t * (t + 1) * d,
        quick=quick,
    )


def random_case(rng: np.random.Generator) -> Case:
    return causal(*(int(rng.integers(1, n)) for n in (4, 13, 400, 97)))


CASES = [causal(1, 12, 1024, 64, quick=True), causal(4, 12, 256, 64)]
