"""Every small step that a test captures is interpreted, in its order and in random orders, and must leave the same.

`conftest.py` installs it around `Capture`. Memory starts as poison, inputs are random; all that a call sees is compared
to the bit: results, new versions and states.
"""

import random
from typing import Any

import numpy as np

from monolect.base.errors import IRError
from monolect.command.estimate import estimate
from monolect.command.forms import base_of, calls_in, items_of, kernel_of, once_of, operands_of, program_of, writes
from monolect.command.interp import run_step
from monolect.ir.check.arrays import storage
from monolect.ir.uop import UOp, toposort
from monolect.runtime.replay.capture import Capture

MOST_WORK = 20_000  # operations and bytes of a step
MOST_ITEMS = 40
ORDERS = 2  # random orders of a step
counts = {"interpreted": 0, "too large": 0, "without a meaning": 0}


def install() -> None:
    """Interpret each step behind the constructor of `Capture`."""
    made = Capture.__init__

    def __init__(self: Capture, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        if self.device is not None:
            interpret(self.ready)

    Capture.__init__ = __init__  # type: ignore[method-assign]


def interpret(step: UOp) -> None:
    """Compare the orders of a planned step; AssertionError with the seed where they differ."""
    program = program_of(step)
    items = [*once_of(program), *calls_in(items_of(program))]
    work = sum(sum(estimate(c)) for c in items)
    if len(items) > MOST_ITEMS or work > MOST_WORK:
        counts["too large"] += 1
        return
    if any(
        kernel_of(c).op != "SINK" or any(u.op in ("CUSTOM", "SPECIAL") for u in toposort(kernel_of(c))) for c in items
    ):
        counts["without a meaning"] += 1
        return
    seed = random.getrandbits(32)
    rng = np.random.default_rng(seed)
    params = {b.arg.slot: b for c in items for b in map(base_of, operands_of(c)) if b.op == "PARAM"}
    given = {k: values(rng, p) for k, p in params.items() if step.arg.roles[k] not in ("size", "result")}
    sizes = {p.arg.name: (p.arg.min + p.arg.max) // 2 for p in toposort(program) if p.op == "PARAM" and p.arg.name}
    written = {base_of(operands_of(c)[k]) for c in items for k in writes(c)}
    try:
        wanted = run_step(step, given, sizes).bytes
    except (IRError, MemoryError):
        counts["without a meaning"] += 1
        return
    counts["interpreted"] += 1
    for k in range(ORDERS):
        found = run_step(step, given, sizes, random.Random(seed + k)).bytes
        for p in written:
            if p.op == "PARAM":
                same = np.array_equal(wanted[p], found[p])
                assert same, f"an order that the dependencies allow changes PARAM {p.arg.slot}: seed {seed}, order {k}"


def values(rng: np.random.Generator, p: UOp) -> np.ndarray:
    """Random elements of a PARAM: of integers 0 and 1, as they may be indices."""
    n = int(np.prod([x if isinstance(x, int) else 1 for x in p.shape]))
    kind = storage(p.dtype)
    return (rng.standard_normal(n) if p.dtype.is_float else rng.integers(0, 2, n)).astype(kind)
