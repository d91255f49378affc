"""Print the tables of docs/results/simulation.md: predicted training steps of a 7B and a 70B model on meshes.

    python benchmarks/simulation.py             all tables, some ten minutes
    python benchmarks/simulation.py 7b          one of them
    python benchmarks/simulation.py tiny        a small one, which the tests compare with the page

Nothing is measured: `examples/simulate_llm.py` predicts each row.
"""

import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from simulate_llm import SIZES, predict  # noqa: E402

from monolect import dtypes  # noqa: E402
from monolect.command.cluster import HARDWARE  # noqa: E402


class Row(NamedTuple):
    """A mesh, whether parameters are divided over `data`, and the tokens of a sequence, one for each part of `data`."""

    axes: dict[str, int]
    is_sharded: bool
    context: int


TABLES = {
    "tiny": [Row({"data": 8}, True, 32), Row({"data": 4, "model": 2}, False, 32)],
    "7b": [
        *(Row({"data": n}, True, 2048) for n in (8, 64, 512, 4096)),
        Row({"data": 64}, False, 2048),
        Row({"data": 64}, True, 4096),
        Row({"model": 8}, False, 4096),
        *(Row({"data": n, "model": 8}, True, 4096) for n in (8, 64, 512)),
        Row({"data": 512, "model": 8}, False, 4096),
    ],
    "70b": [
        Row({"data": 512, "model": 8}, True, 1024),
        Row({"data": 8, "model": 8}, True, 1024),
        Row({"data": 512, "model": 8}, True, 2048),
        Row({"data": 512, "model": 8}, True, 4096),
    ],
}
HEAD = (
    "devices | mesh | parameters | tokens a sequence | ms a step | tokens/s a device | share of peak | "
    "sent, GB | exposed | memory, GB | of which intermediates | fits"
)


def line(name: str, row: Row) -> str:
    """Return a row of the table of the model `name`."""
    size, hardware = SIZES[name], "h100"
    found = predict(size, row.axes, row.is_sharded, 1, row.context, hardware)
    n, tokens = found.n_devices, row.context * row.axes.get("data", 1)
    peak = HARDWARE[hardware].products[dtypes.bfloat16]
    m = found.memory
    mesh = " x ".join(f"{axis} {k}" for axis, k in row.axes.items())
    cells = [
        n,
        mesh,
        "divided" if row.is_sharded else "whole",
        row.context,
        f"{found.seconds * 1e3:.4g}",
        f"{tokens / found.seconds / n:.4g}",
        f"{found.operations / found.seconds / peak:.0%}",
        f"{sum(found.sent.values()) / 1e9:.3g}",
        f"{found.exposed:.0%}",
        f"{m.total / 1e9:.3g}",
        f"{m.intermediates / 1e9:.3g}",
        "yes" if found.fits else "**no**",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def main(names: list[str]) -> None:
    """Print the tables of the models `names`, all of them for an empty list."""
    for name in names or TABLES:
        begin = time.perf_counter()
        print(f"| {HEAD} |\n|{'---|' * (HEAD.count('|') + 1)}", flush=True)
        for row in TABLES[name]:
            print(line(name, row), flush=True)
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
