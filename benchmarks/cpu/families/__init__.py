"""All rows of the table, by family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.cpu.case import Case
from benchmarks.cpu.families import attention, conv, matmul, models, movement, narrow, rows, training

FAMILIES = {
    m.__name__.rpartition(".")[2]: m for m in (matmul, narrow, rows, movement, conv, attention, models, training)
}


def cases(random: int = 0, seed: int = 0) -> dict[str, Case]:
    """The fixed rows by name; with `random`, that many of random sizes from each family instead, drawn from `seed`."""
    if random:
        found = []
        for module in FAMILIES.values():
            if hasattr(module, "random_case"):
                rng = np.random.default_rng(seed)
                found += [module.random_case(rng) for _ in range(random)]
    else:
        found = [case for module in FAMILIES.values() for case in module.CASES]
    return {case.name: case for case in found}


def named(found: Iterable[Case], names: Sequence[str]) -> list[Case]:
    """The cases of the families in `names`, and those whose name holds another text of them; all without names."""
    return [c for c in found if not names or any(n == c.family or (n not in FAMILIES and n in c.name) for n in names)]
