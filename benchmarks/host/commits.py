"""Host cost of two commits of monolect: has a call, a replay or a start become slower?

    python -m benchmarks.host.commits REV             every row, these sources against those of REV
    python -m benchmarks.host.commits REV "x + 1"     the rows whose name holds a text

Three trees take turns in every round: this one, that of REV, and that of REV once more as the control. A row is
slower by the same rule as in `benchmarks.commits`. Rows are microseconds of one call in a process that stays alive, and
seconds of a whole process: an import, a first and a second process of a small model.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.commits import CONTROL, NEW, OLD, Ratio, is_slower, sources
from benchmarks.cpu.measure import ROOT

ROUNDS, ROUND_SECONDS = 15, 0.03

# A program that is started with an empty cache folder, then once more with the filled one.
MODEL = """
from monolect import Tensor, jit, nn
layers = [m for _ in range(4) for m in (nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64))]
model = nn.Sequential(*layers)
optimizer = nn.optim.Adam(model.parameters(), lr=0.01)
@jit
def step(x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss
x = Tensor.randn(16, 64).realize()
for _ in range(3):
    step(x).item()
"""


# ---- what a worker times ---------------------------------------------------------------------------------------------
def _calls() -> dict[str, Callable[[], Callable[[], Any]]]:
    import numpy as np

    from benchmarks.host import steps
    from monolect import Tensor, jit, nn

    def add_one() -> Callable[[], Any]:
        f, x = jit(lambda x: x + 1), Tensor(np.arange(4, dtype=np.float32)).realize()
        return lambda: f(x)

    def trained(make: Callable[..., Any], captured: bool) -> Callable[[], Any]:
        model = nn.Sequential(nn.Linear(*steps.SIZES[:2]), nn.ReLU(), nn.Linear(*steps.SIZES[1:]))
        step = steps.training_step(model, make)
        f = jit(step) if captured else lambda x, y: step(x, y).realize()
        x, y = Tensor(steps.X).realize(), Tensor(steps.Y).realize()
        return lambda: f(x, y)

    def eager_add(n_others: int = 0) -> Callable[[], Any]:
        a = np.ones(16, np.float32)
        x, y = Tensor(a).realize(), Tensor(a + 1).realize()
        others = [Tensor(a) for _ in range(n_others)]
        return lambda: ((x + y).realize(), others)[0]

    def chain() -> Callable[[], Any]:
        def run(x: Tensor) -> Tensor:
            for _ in range(100):
                x = (x + 1).contiguous()  # one operation: how a * b + c is rounded is no host cost
            return x

        f, x = jit(run), Tensor(np.arange(64, dtype=np.float32)).realize()
        return lambda: f(x)

    def read(index: Any) -> Callable[[], Any]:
        t = Tensor(np.arange(8, dtype=np.float32)).realize()
        return lambda: t[index].item()

    return {
        "captured x + 1": add_one,
        "captured SGD step": lambda: trained(nn.optim.SGD, True),
        "captured Adam step": lambda: trained(nn.optim.Adam, True),
        "SGD step built at each call": lambda: trained(nn.optim.SGD, False),
        "(a + b).realize()": eager_add,
        "(a + b).realize() among 20,000 tensors": lambda: eager_add(20_000),
        "replay of 100 dependent kernels": chain,
        "t[3].item()": lambda: read(3),
    }


def serve() -> None:
    """The worker: for each name on a line of input, microseconds of one call, the median of a round, on a line."""
    made: dict[str, Callable[[], Any]] = {}
    counts: dict[str, int] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in made:
            call = made[name] = _calls()[name]()
            for _ in range(5):
                call()
            start = time.perf_counter()
            call()
            counts[name] = max(3, int(ROUND_SECONDS / (time.perf_counter() - start)))
        call = made[name]
        call()
        start = time.perf_counter()
        for _ in range(counts[name]):
            call()
        print((time.perf_counter() - start) / counts[name] * 1e6, flush=True)


# ---- the parent ------------------------------------------------------------------------------------------------------
class Trees:
    """The sources under comparison, each with a worker and a cache folder."""

    def __init__(self, old: Path, folder: Path) -> None:
        shutil.rmtree(old / "benchmarks")
        shutil.copytree(ROOT / "benchmarks", old / "benchmarks")  # the same work for both
        self.roots = {NEW: ROOT, OLD: old, CONTROL: old}
        self.caches = {name: folder / f"cache-{name}" for name in self.roots}
        for root in (ROOT, old):  # a start is not to pay for compiling sources to bytecode
            compileall.compile_dir(root / "monolect", quiet=1)
        command = [sys.executable, "-c", "from benchmarks.host.commits import serve; serve()"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.workers = {n: subprocess.Popen(command, cwd=r, env=self.environment(n), **pipes)
                        for n, r in self.roots.items()}  # fmt: skip

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a process of those sources. Such a process may write bytecode."""
        paths = {"PYTHONPATH": str(self.roots[name]), "MONOLECT_CACHE": str(self.caches[name])}
        return {**os.environ, **paths, "PYTHONDONTWRITEBYTECODE": ""}

    def call(self, name: str, row: str) -> float:
        """Microseconds of one call."""
        worker = self.workers[name]
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.write(row + "\n")
        worker.stdin.flush()
        return float(worker.stdout.readline())

    def process(self, name: str, code: str, cold: bool = False) -> float:
        """Seconds of a process that runs `code`; with `cold` its cache folder is empty."""
        if cold:
            shutil.rmtree(self.caches[name] / "cold", ignore_errors=True)
        environment = {**self.environment(name), "MONOLECT_CACHE": str(self.caches[name] / "cold")}
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], cwd=self.roots[name], env=environment, check=True)
        return time.perf_counter() - start

    def close(self) -> None:
        """Stop the workers."""
        for worker in self.workers.values():
            worker.terminate()
            worker.wait()


def main() -> int:
    """Print the rows; 1 where one is slower in each of three runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("names", nargs="*", help="parts of names; all rows without")
    options = parser.parse_args()
    rows: dict[str, tuple[int, Callable[[Trees, str], float]]] = {
        name: (ROUNDS, lambda t, n, name=name: t.call(n, name)) for name in _calls()
    }
    rows["import monolect"] = (9, lambda t, n: t.process(n, "from monolect import Tensor"))
    rows["first process of a model"] = (3, lambda t, n: t.process(n, MODEL, cold=True))
    rows["second process of a model"] = (5, lambda t, n: t.process(n, MODEL))
    is_bad = False
    with tempfile.TemporaryDirectory(prefix="monolect-host-") as name:
        trees = Trees(sources(options.revision, Path(name)), Path(name))
        try:
            for row, (rounds, measure) in rows.items():
                if options.names and not any(w in row for w in options.names):
                    continue
                runs: list[Ratio] = []
                while len(runs) < 3 and (not runs or is_slower(runs)):
                    times: dict[str, list[float]] = {n: [] for n in trees.roots}
                    for _ in range(rounds):
                        for n in trees.roots:
                            times[n].append(measure(trees, n))
                    median = {n: statistics.median(t) for n, t in times.items()}
                    runs.append(Ratio(median[NEW] / median[OLD], median[CONTROL] / median[OLD]))
                is_bad |= len(runs) >= 3 and is_slower(runs)
                cells = "  ".join(f"{r.new:.3f} ({r.control:.3f})" for r in runs)
                print(f"{row:42} {median[OLD]:10.3f} -> {median[NEW]:10.3f}   {cells}", flush=True)
        finally:
            trees.close()
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
