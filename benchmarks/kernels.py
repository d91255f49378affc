"""Kernels beside PyTorch and, where installed, JAX: the same inputs, interleaved rounds, medians and ratios.

    python benchmarks/kernels.py [names...]

Every result is checked against float64 NumPy before it is timed. A ratio above 1 means monolect is faster.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

THREADS = str(min(2, os.cpu_count() or 1))
os.environ.setdefault("OMP_NUM_THREADS", THREADS)
os.environ.setdefault("THREADS", THREADS)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from monolect import Tensor, jit  # noqa: E402

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None

torch.set_num_threads(int(THREADS))
K = 0.7978845608028654


class Case(NamedTuple):
    """One program in each library's words."""

    name: str
    inputs: Callable[[np.random.Generator], list[np.ndarray]]
    ours: Callable[..., Tensor]
    torch: Callable[..., Any]
    jax: Callable[..., Any] | None
    exact: Callable[..., np.ndarray]


def normal(*shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.standard_normal(shape, dtype=np.float32)


def several(*makers: Callable) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [m(rng) for m in makers]


def gelu_exact(x: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    z = x * a + b
    return 0.5 * z * (1 + np.tanh(K * (z + 0.044715 * z**3))) * c


def softmax_exact(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def norm_exact(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)


def jax_norm(x: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) * jax.lax.rsqrt(x.var(1, keepdims=True) + 1e-5)


def matmul(n: int) -> Case:
    pair = several(normal(n, n), normal(n, n))
    return Case(f"matmul {n}", pair, lambda a, b: a @ b, lambda a, b: a @ b, lambda a, b: a @ b, lambda a, b: a @ b)


CASES = [
    matmul(256),
    matmul(512),
    matmul(1024),
    Case(
        "matmul 1024 A.B^T",
        several(normal(1024, 1024), normal(1024, 1024)),
        lambda a, b: a @ b.T,
        lambda a, b: a @ b.T,
        lambda a, b: a @ b.T,
        lambda a, b: a @ b.T,
    ),
    Case(
        "gelu(x*a+b)*c 16M",
        several(normal(1 << 24), normal(1), normal(1), normal(1)),
        lambda x, a, b, c: (x * a + b).gelu(approximate="tanh") * c,
        lambda x, a, b, c: torch.nn.functional.gelu(x * a + b, approximate="tanh") * c,
        lambda x, a, b, c: jax.nn.gelu(x * a + b, approximate=True) * c,
        gelu_exact,
    ),
    Case(
        "softmax 4096x4096",
        several(normal(4096, 4096)),
        lambda x: x.softmax(1),
        lambda x: x.softmax(1),
        lambda x: jax.nn.softmax(x, axis=1),
        softmax_exact,
    ),
    Case(
        "layernorm 8192x1024",
        several(normal(8192, 1024)),
        lambda x: x.layer_norm((1024,)),
        lambda x: torch.nn.functional.layer_norm(x, (1024,)),
        jax_norm,
        norm_exact,
    ),
    Case(
        "cumsum 16M",
        several(lambda rng: rng.standard_normal(1 << 24, dtype=np.float32) * np.float32(0.01)),
        lambda x: x.cumsum(0),
        lambda x: x.cumsum(0),
        lambda x: jnp.cumsum(x),
        lambda x: x.cumsum(0),
    ),
]


def run(case: Case, rounds: int) -> str:
    """One row of the table."""
    arrays = case.inputs(np.random.default_rng(0))
    want = case.exact(*[a.astype(np.float64) for a in arrays])
    runs: dict[str, Callable[[], Any]] = {}
    ours, mine = jit(case.ours), [Tensor(a).realize() for a in arrays]
    runs["monolect"] = lambda: ours(*mine)
    theirs = [torch.from_numpy(a) for a in arrays]
    runs["torch"] = lambda: case.torch(*theirs)
    if jax is not None and case.jax is not None:
        compiled, on_device = jax.jit(case.jax), [jnp.asarray(a) for a in arrays]
        runs["jax"] = lambda: compiled(*on_device).block_until_ready()
    scale = np.abs(want).max()
    for name, f in runs.items():
        f()
        error = np.abs(np.asarray(f().numpy() if name == "monolect" else f()) - want).max() / scale
        assert error < 1e-4, f"{case.name}: {name} is off by {error}"
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, f in runs.items():
            start = time.perf_counter()
            f()
            times[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(t) for name, t in times.items()}
    cells = [f"{name} {m * 1e3:8.3f} ms" for name, m in medians.items()]
    ratios = [f"{m / medians['monolect']:5.2f}x {name}" for name, m in medians.items() if name != "monolect"]
    return f"{case.name:20} " + "  ".join(cells + ratios)


def main() -> None:
    """Print the table."""
    wanted = sys.argv[1:]
    for case in CASES:
        if not wanted or any(w in case.name for w in wanted):
            print(run(case, rounds=9), flush=True)


if __name__ == "__main__":
    main()
