"""Seconds to the first result in fresh processes, which take turns: cold, with a warm disk cache, and in JAX.

    python -m benchmarks.first [rounds] [words]      all rows, or those whose name holds a word

`cold` and `jax` are the first call less a warm one; `python` is the part of `cold` outside LLVM, of a process that
compiles in one thread; `second` is import and first call of a process whose disk cache is warm, without the making of
weights.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks.first.rows import DEPTHS, ROWS

THREADS = "2"


def process(cache: str, *args: str, compile_threads: str = "0") -> dict[str, float]:
    """What one worker prints."""
    env = {**os.environ, "MONOLECT_CACHE": cache, "THREADS": THREADS, "PYTHONDONTWRITEBYTECODE": ""}
    env["COMPILE_THREADS"] = compile_threads
    command = [sys.executable, "-m", "benchmarks.first.worker", *args]
    out = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if out.returncode:
        raise RuntimeError(out.stderr)
    return dict(json.loads(out.stdout.splitlines()[-1]))


def row(name: str, rounds: int, peer: bool) -> dict[str, float]:
    """Medians of a row."""
    found: dict[str, list[float]] = {"cold": [], "python": [], "second": [], "jax": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            cold = process(cache, "monolect", name)
            again = process(cache, "monolect", name)
        found["cold"].append(cold["first"] - cold["warm"])
        with tempfile.TemporaryDirectory() as cache:
            alone = process(cache, "monolect", name, compile_threads="1")
        found["python"].append(alone["first"] - alone["warm"] - alone["llvm"])
        found["second"].append(again["before"] + again["first"])
        if peer:
            jax = process("", "jax", name)
            found["jax"].append(jax["first"] - jax["warm"])
    return {k: statistics.median(v) for k, v in found.items() if v}


def main(words: list[str]) -> None:
    """Print the table."""
    rounds = int(words.pop(0)) if words and words[0].isdigit() else 3
    peer = importlib.util.find_spec("jax") is not None
    columns = ("cold", "python", "second", "jax")
    print(f"{'seconds':40}" + "".join(f"{c:>9}" for c in columns), flush=True)
    cold: dict[str, float] = {}
    for name in ROWS:
        if not words or any(w in name for w in words):
            got = row(name, rounds, peer)
            cold[name] = got["cold"]
            print(f"{name:40}" + "".join(f"{got[c]:9.3f}" if c in got else f"{'':9}" for c in columns), flush=True)
    depths = [cold[f"transformer forward, {n} layers"] for n in DEPTHS if f"transformer forward, {n} layers" in cold]
    if len(depths) == len(DEPTHS):
        growth = ", ".join(f"{b / a:.2f}" for a, b in zip(depths, depths[1:], strict=False))
        print(f"growth with each doubling of the layers: {growth}")
    if not words or "schedule" in words:
        with tempfile.TemporaryDirectory() as cache:
            runs = [process(cache, "schedule", "32") for _ in range(rounds)]
        seconds = {k: statistics.median(r[k] for r in runs) for k in ("build", "schedule", "kernels")}
        print(
            f"32 layers, forward and backward: {seconds['schedule']:.3f} s to schedule,"
            f" {seconds['kernels']:.0f} kernels,"
            f" {seconds['build']:.3f} s to build"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
