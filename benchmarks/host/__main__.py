"""What monolect costs on the host beside its peers: compiled calls, replays, steps built anew.

    python -m benchmarks.host             every row, about a minute
    python -m benchmarks.host "x + 1"     the rows whose name holds a text

Each row gives every library the same work, compares the results, then times the libraries in turns; figures are medians
of rounds, in microseconds. `NumPy` is the clock of the machine: a busy one slows all of them alike.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.host import steps
from benchmarks.host.turns import Calls, measured, peers
from monolect import Tensor, jit
from monolect.base.dtype import dtypes
from monolect.ir.check.verify import verify
from monolect.ir.ops import ParamArg, Stage
from monolect.ir.uop import UOp, node, shape_source
from monolect.runtime import profile

LIBRARIES = ("monolect", "numpy", "torch", "jax", "ort")


# ---- rows with peers -------------------------------------------------------------------------------------------------
def add_one() -> Calls:
    a = np.arange(4, dtype=np.float32)
    f, x = jit(lambda x: x + 1), Tensor(a).realize()
    f(x)
    return peers(
        lambda: f(x), numpy=lambda: lambda: a + 1, torch=lambda: steps.torch_add(a), jax=lambda: steps.jax_add(a),
        ort=lambda: steps.ort_add(a),
    )  # fmt: skip


def train_jitted() -> Calls:
    step = jit(steps.ours_train())
    x, y = Tensor(steps.X).realize(), Tensor(steps.Y).realize()
    return peers(lambda: step(x, y), torch=steps.torch_train, jax=steps.jax_train)


def train_anew() -> Calls:
    step = steps.ours_train()
    x, y = Tensor(steps.X).realize(), Tensor(steps.Y).realize()
    return peers(lambda: step(x, y).realize(), torch=steps.torch_train)


def eager_add() -> Calls:
    a = np.ones(16, np.float32)
    x, y = Tensor(a).realize(), Tensor(a + 1).realize()
    b = a + 1
    return peers(
        lambda: (x + y).realize(), numpy=lambda: lambda: a + b, torch=lambda: steps.torch_sum(a, b),
        jax=lambda: steps.jax_sum(a, b),
    )  # fmt: skip


def read_scalar() -> Calls:
    a = np.array(3)
    t = Tensor(a).realize()
    return peers(lambda: int(t), numpy=lambda: lambda: int(a), torch=lambda: steps.torch_int(a))


def read_element() -> Calls:
    a = np.arange(8, dtype=np.float32)
    t = Tensor(a).realize()
    return peers(lambda: t[3].item(), numpy=lambda: lambda: a[3].item(), torch=lambda: steps.torch_element(a))


def live_tensors() -> Calls:
    """Our own cost once more, as 'numpy': with 20,000 other tensors alive it must not be dearer."""
    a = np.ones(16, np.float32)
    x, y = Tensor(a).realize(), Tensor(a + 1).realize()
    others: list[Tensor] = []

    def call(n: int) -> Tensor:
        if len(others) != n:
            others[:] = [Tensor(a) for _ in range(n)]
        return (x + y).realize()

    return {"monolect": lambda: call(20_000), "numpy": lambda: call(0)}


PEERED: dict[str, tuple[Callable[[], Calls], str]] = {
    "jitted x + 1, 4 floats": (add_one, "1.5"),
    "jitted training step 8-16-10, batch 4": (train_jitted, "0.15x JAX"),
    "the same step, built anew each time": (train_anew, "-"),
    "(a + b).realize(), 16 floats": (eager_add, "30"),
    "int(t)": (read_scalar, "3"),
    "t[3].item()": (read_element, "3"),
    "(a + b).realize() beside 20,000 tensors ('numpy': beside none)": (live_tensors, "1x none"),
}


# ---- rows of our own -------------------------------------------------------------------------------------------------
def replay() -> str:
    """100 small kernels that need each other: one call, and the part of it that is not the kernels."""

    def chain(x: Tensor) -> Tensor:
        for _ in range(100):
            x = (x * 0.5 + 1).contiguous()
        return x

    f, x = jit(chain), Tensor(np.arange(64, dtype=np.float32)).realize()
    np.testing.assert_allclose(f(x).numpy(), np.full(64, 2.0), rtol=1e-5)
    commands = next(iter(f.captures.values())).capture.commands
    got = measured({"call": lambda: (f(x), 0)[1], "table": lambda: (commands.launch(), 0)[1]})
    return f"replay of 100 dependent kernels: {got['call']:.2f} us, {got['call'] - got['table']:.2f} beyond the kernels"


def decode() -> str:
    """A step over a cache of several lengths, beside NumPy's, and what each cached token adds to both."""
    ours, step = steps.ours_decode()
    theirs = steps.numpy_decode()
    a = np.full((steps.HEADS, 1, steps.WIDTH), 0.1, np.float32)
    x = Tensor(a).realize()
    for n in steps.LENGTHS[:2]:
        ours(x, n)
    made = dict(profile.counts)
    rows = {}
    for n in steps.LENGTHS:
        rows[n] = measured({"monolect": lambda n=n: ours(x, n), "numpy": lambda n=n: theirs(a, n)})
    assert profile.counts == made and len(step.captures) == 1, "compiled again"
    cells = [f"{n} tokens {got['monolect']:.1f} ({got['numpy']:.1f})" for n, got in rows.items()]
    first, *_, last = steps.LENGTHS
    per = {k: 1e3 * (rows[last][k] - rows[first][k]) / (last - first) for k in ("monolect", "numpy")}
    text = f"decode, us a step (NumPy): {', '.join(cells)}; ns a token more {per['monolect']:.1f} ({per['numpy']:.1f})"
    return f"{text}; 0 compilations"


def import_seconds(module: str) -> float:
    """Seconds a fresh process takes to import `module`."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)


def imports() -> str:
    """monolect beside NumPy, in turns."""
    pairs = [(import_seconds("monolect"), import_seconds("numpy")) for _ in range(9)]
    ours, numpy = (statistics.median(p) for p in zip(*pairs, strict=True))
    return f"import: monolect {ours * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms: {ours / numpy:.2f}x"


def nodes() -> str:
    """Nodes made and verified a second, on a chain that is not interned yet."""
    rates = []
    for k in range(5):
        x = node("PARAM", (shape_source((4, 5)),), ParamArg(k, dtypes.float32, "cpu"))
        start = time.perf_counter()
        u: UOp = x
        for _ in range(50_000):
            u = node("ADD", (u, x))
        verify(u, Stage.TENSOR)
        rates.append(50_000 / (time.perf_counter() - start))
    return f"nodes: {statistics.median(rates):,.0f} made and verified a second"


OWN: dict[str, Callable[[], str]] = {"replay": replay, "decode": decode, "import": imports, "nodes": nodes}


def main(words: list[str]) -> None:
    """Print the rows that hold one of the words; all without."""
    print(f"{'us a call':64}{'goal':>10}" + "".join(f"{name:>11}" for name in LIBRARIES), flush=True)
    for name, (make, goal) in PEERED.items():
        if not words or any(w in name for w in words):
            got = measured(make())
            cells = (f"{got[lib]:11.2f}" if lib in got else f"{'':11}" for lib in LIBRARIES)
            print(f"{name:64}{goal:>10}" + "".join(cells), flush=True)
    for name, line in OWN.items():
        if not words or any(w in name for w in words):
            print(line(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
