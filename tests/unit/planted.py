"""Faults that tests plant in passes of kernels."""

from collections.abc import Callable
from typing import Any

import pytest

from monolect import pipeline
from monolect.backend.registry import Device
from monolect.ir.uop import UOp, rebuild, toposort
from monolect.pipeline import KERNEL
from monolect.runtime.realize.execute import plans

Rule = Callable[[UOp], UOp | None]


def changed(ir: UOp, rule: Rule) -> UOp:
    """`ir` with what `rule` gives for a node in its place."""
    new: dict[UOp, UOp] = {}
    for u in toposort(ir):
        v = rebuild(u, tuple(new[s] for s in u.src))
        new[u] = rule(v) or v
    return new[ir]


def plant(monkeypatch: pytest.MonkeyPatch, name: str, rule: Rule) -> None:
    """Pass `name` of kernels makes a mistake from now on."""
    rows = list(KERNEL)
    k = [r.name for r in rows].index(name)
    right: Any = rows[k].run
    rows[k] = rows[k]._replace(run=lambda ir, target: changed(right(ir, target), rule))
    monkeypatch.setattr(pipeline, "KERNEL", tuple(rows))


def forget_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are known are compiled again."""
    monkeypatch.setattr(type(Device["cpu"]), "lookup", lambda self, key: None)
    plans.clear()
