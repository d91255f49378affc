"""The cost of single operations without `jit`, compared with PyTorch, JAX and NumPy.

    python -m benchmarks.eager             every row, about a minute
    python -m benchmarks.eager "x.sum"     the rows whose name holds a text

Each row gives every library the same work, compares the results, then times the libraries in turns; figures are medians
of rounds, in microseconds an operation or step. A ratio above 1 means that monolect is faster than PyTorch. `numpy` is
the clock of the machine: a busy one slows all of them alike.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from benchmarks.eager.rows import ROWS
from benchmarks.host.turns import measured

LIBRARIES = ("monolect", "numpy", "torch", "jax")


def main(words: list[str]) -> None:
    """Print the rows that hold one of the words; all without."""
    print(f"{'us an operation or step':44}{'goal':>7}" + "".join(f"{x:>11}" for x in LIBRARIES) + f"{'of torch':>11}")
    for name, (make, n, goal) in ROWS.items():
        if not words or any(w in name for w in words):
            got = {library: us / n for library, us in measured(make()).items()}
            cells = "".join(f"{got[x]:11.2f}" if x in got else f"{'':11}" for x in LIBRARIES)
            ratio = f"{got['torch'] / got['monolect']:10.2f}x" if "torch" in got else ""
            print(f"{name:44}{goal:>7}{cells}{ratio}", flush=True)
    for library in LIBRARIES:
        if find_spec(library) is None:
            print(f"{library}: not installed")


if __name__ == "__main__":
    main(sys.argv[1:])
