"""One fresh process: the seconds a library takes for its first result of a row, and for a warm one.

    python -m benchmarks.first.worker LIBRARY ROW       the row's first and later calls
    python -m benchmarks.first.worker schedule LAYERS   forward and backward of a deep transformer, scheduled only

It prints JSON. `before` are seconds from the start of the process to the first call, less the making of the weights.
"""

from __future__ import annotations

import time

START = time.perf_counter()

import json  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402


def first(library: str, name: str) -> dict[str, float]:
    """Seconds of a row in a library."""
    if library == "monolect":
        import monolect  # noqa: F401  # all that a program of the user's would import
    imported = time.perf_counter()

    import numpy as np

    from benchmarks.cpu.peers import PEERS
    from benchmarks.first.rows import ROWS

    case = ROWS[name]()
    arrays = case.inputs(np.random.default_rng(0))
    call = PEERS[library](library).prepare(case, arrays)
    began = time.perf_counter()
    result = call()
    done = time.perf_counter()
    if library == "monolect":
        (result[0] if isinstance(result, tuple | list) else result).numpy()
    done = time.perf_counter()
    warm = []
    for _ in range(5):
        at = time.perf_counter()
        call()
        warm.append(time.perf_counter() - at)
    return {"before": imported - START, "first": done - began, "warm": min(warm), **compiler()}


def compiler() -> dict[str, float]:
    """Seconds this process spent in LLVM, of the default device."""
    if "monolect.backend.registry" not in sys.modules:
        return {}
    from monolect.backend.registry import Device

    return {"llvm": float(getattr(Device[Device.default], "compile_seconds", 0.0))}


def schedule(layers: int) -> dict[str, float]:
    """Seconds from nodes to kernels in order."""
    import monolect
    from benchmarks.first.rows import train_blocks
    from monolect.backend.registry import Device
    from monolect.pipeline import schedule as scheduled
    from monolect.schedule.callify import over_params

    at = time.perf_counter()
    roots: list[Any] = train_blocks(layers)(monolect)
    built = time.perf_counter()
    sink, _, _ = over_params(roots)
    calls = scheduled(list(sink.src), "cpu", Device["cpu"].target.local_bytes).linear.src
    return {"build": built - at, "schedule": time.perf_counter() - built, "kernels": len(calls)}


if __name__ == "__main__":
    print(json.dumps(schedule(int(sys.argv[2])) if sys.argv[1] == "schedule" else first(sys.argv[1], sys.argv[2])))
