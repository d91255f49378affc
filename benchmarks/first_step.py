"""Seconds from the first Tensor call to the first loss of an MLP training step (784-512-512-10, Adam, batch 128), in
fresh processes: with cold caches, with warm ones, and in JAX where it is installed.

    python benchmarks/first_step.py [rounds]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

OURS = """
import time, numpy as np
from monolect import Tensor, nn, Context
import monolect.runtime.execute as execute
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((128, 784)).astype(np.float32), rng.integers(0, 10, 128)
start = time.perf_counter()
model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = nn.optim.Adam(model.parameters(), lr=1e-3)
loss = model(Tensor(X)).cross_entropy(Tensor(Y))
loss.backward()
optimizer.step()
loss.item()
total = time.perf_counter() - start
from monolect.backend.registry import Device
print(total, getattr(Device["cpu"], "compile_seconds", 0.0))
"""

JAX = """
import time, numpy as np, jax, jax.numpy as jnp
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((128, 784)).astype(np.float32), rng.integers(0, 10, 128)
start = time.perf_counter()
keys = jax.random.split(jax.random.key(0), 3)
sizes = [784, 512, 512, 10]
params = [(jax.random.normal(k, (o, i)) * i**-0.5, jnp.zeros(o)) for k, i, o in zip(keys, sizes, sizes[1:])]
def loss_of(params, x, y):
    for w, b in params[:-1]:
        x = jnp.maximum(x @ w.T + b, 0)
    z = jax.nn.log_softmax(x @ params[-1][0].T + params[-1][1])
    return -z[jnp.arange(len(y)), y].mean()
@jax.jit
def step(params, m, v, t, x, y):
    loss, g = jax.value_and_grad(loss_of)(params, x, y)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    new = lambda p, m, v: p - 1e-3 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return jax.tree.map(new, params, m, v), m, v, loss
zeros = jax.tree.map(jnp.zeros_like, params)
float(step(params, zeros, zeros, 1.0, X, Y)[3])
print(time.perf_counter() - start, 0.0)
"""


def first(code: str, cache: str) -> tuple[float, float]:
    """(seconds to the first loss, of it seconds in LLVM) of a fresh process."""
    env = {**os.environ, "MONOLECT_CACHE": cache, "THREADS": "2"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    if out.returncode:
        raise RuntimeError(out.stderr)
    total, compiling = out.stdout.split()
    return float(total), float(compiling)


def main() -> None:
    """Print medians; the processes take turns."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    have_jax = subprocess.run([sys.executable, "-c", "import jax"], capture_output=True, check=False).returncode == 0
    rows: dict[str, list[tuple[float, float]]] = {"cold": [], "warm": [], "jax": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            rows["cold"].append(first(OURS, cache))
            rows["warm"].append(first(OURS, cache))
        if have_jax:
            rows["jax"].append(first(JAX, ""))
    for name, values in rows.items():
        if values:
            total, compiling = (statistics.median(v) for v in zip(*values, strict=True))
            text = f", before LLVM {total - compiling:.3f} s" if name != "jax" else ""
            print(f"{name:5} first loss after {total:.3f} s{text}")


if __name__ == "__main__":
    main()
