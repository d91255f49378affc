"""The time of exported steps against that of the devices `c` and `cpu`, in one interleaved run.

    python -m benchmarks.export [words]     all cases, or those whose name holds a word; THREADS is that of all

Times are medians; with one thread of the processor time, which other processes do not change. `c` and `cpu` are ratios:
above 1 the exported step is faster than that device.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.export.models import LARGE, Case
from benchmarks.export.program import Program, build, compilers
from monolect import Tensor
from monolect.backend.common.llvm.compile import host_features
from monolect.base.settings import settings

ROUNDS, SLICE_NS = 30, 20_000_000
FLAGS = ("-O3 -march=native", "-O2 -march=native")
DEVICES = ("c", "cpu")


def times(calls: dict[str, Callable[[], Any]], threads: int) -> dict[str, float]:
    """The median of each call in microseconds; they take turns."""
    clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    repeats = {}
    for name, call in calls.items():
        start = clock()
        call()
        repeats[name] = max(1, SLICE_NS // max(1, clock() - start))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = clock()
            for _ in range(repeats[name]):
                call()
            found[name].append((clock() - start) / repeats[name] / 1e3)
    return {name: statistics.median(x) for name, x in found.items()}


def row(case: Case, folder: Path, threads: int) -> None:
    """Print the rows of a case."""
    steps = {device: case.make(device) for device in DEVICES}
    for device, step in steps.items():
        case.call(step, 0, device)
    steps["c"].export(folder, march="native", threads=threads)
    n = case.sizes[len(case.sizes) // 2] if case.size else 0
    out = [np.zeros(shape, np.float32) for shape in case.outputs]
    programs = {}
    for compiler in compilers():
        for flags in FLAGS:
            build(folder, compiler, flags)
            programs[f"{compiler} {flags[:3]}"] = program = Program(folder)
            given = [*case.arguments, *([n] if case.size else []), *out]
            program(*given)
    calls: dict[str, Callable[[], Any]] = {}
    words = Program.words(given)
    for name, program in programs.items():
        calls[name] = lambda run=program.run: run(*words)
    for device, step in steps.items():
        tensors = [Tensor(a, device=device).realize() for a in case.arguments]
        calls[device] = lambda step=step, tensors=tensors: step(*tensors)
    with case.size.bind(n) if case.size else contextlib.nullcontext():
        found = times(calls, threads)
    for name in programs:
        ratios = "".join(f"{found[device] / found[name]:>8.2f}" for device in DEVICES)
        print(f"{case.name:14}{name:16}{found[name]:>12.1f}{ratios}", flush=True)


def main(words: list[str]) -> None:
    """Print the table."""
    threads = settings.THREADS or host_features().n_cores
    print(f"{threads} threads{'':13}{'':8}{'us':>10}" + "".join(f"{d:>8}" for d in DEVICES), flush=True)
    for case in LARGE:
        if not words or any(w.lower() in case.name.lower() for w in words):
            with tempfile.TemporaryDirectory(prefix="monolect-export-") as folder:
                row(case, Path(folder) / "out", threads)


if __name__ == "__main__":
    main(sys.argv[1:])
