"""What monolect costs on the host: importing, making nodes, replaying a step, building a step again.

python benchmarks/host.py
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time

import numpy as np

from monolect import Tensor, jit
from monolect.base.dtype import dtypes
from monolect.ir.ops import ParamArg, Stage
from monolect.ir.uop import UOp, node, shape_source
from monolect.ir.verify import verify


def import_seconds(module: str) -> float:
    """Seconds a fresh process takes to import `module`."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)


def imports() -> str:
    """monolect beside numpy, interleaved."""
    pairs = [(import_seconds("monolect"), import_seconds("numpy")) for _ in range(9)]
    ours, numpy = (statistics.median(p) for p in zip(*pairs, strict=True))
    return f"import monolect {ours * 1e3:.0f} ms, numpy {numpy * 1e3:.0f} ms: {ours / numpy:.2f}x"


def nodes() -> str:
    """Nodes made and verified a second, on a chain that is not interned yet."""
    rates = []
    for k in range(5):
        x = node("PARAM", (shape_source((4, 5)),), ParamArg(k, dtypes.float32, "cpu"))
        gc.collect()
        start = time.perf_counter()
        u: UOp = x
        for _ in range(50_000):
            u = node("ADD", (u, x))
        verify(u, Stage.TENSOR)
        rates.append(50_000 / (time.perf_counter() - start))
    return f"construct and verify {statistics.median(rates):,.0f} nodes/s"


def replay() -> str:
    """Microseconds of one call of a jitted x + 1."""
    f = jit(lambda x: x + 1)
    x = Tensor(np.arange(4, dtype=np.float32)).realize()
    f(x)
    f(x)
    times = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(5000):
            f(x)
        times.append((time.perf_counter() - start) / 5000)
    return f"jitted x + 1 on 4 floats {statistics.median(times) * 1e6:.2f} us a call"


def eager() -> str:
    """Microseconds of (a + b).realize() that hits the schedule cache."""
    a, b = Tensor(np.ones(16, np.float32)), Tensor(np.ones(16, np.float32))
    for _ in range(20):
        (a + b).realize()
    times = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(500):
            (a + b).realize()
        times.append((time.perf_counter() - start) / 500)
    return f"(a + b).realize() on 16 floats {statistics.median(times) * 1e6:.1f} us"


if __name__ == "__main__":
    for measure in (imports, nodes, replay, eager):
        print(measure(), flush=True)
