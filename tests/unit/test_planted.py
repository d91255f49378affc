"""A fault in any row of the pipeline is found by `VERIFY=2`: rows of graphs, kernels, programs and command buffers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from monolect import Context, Tensor, jit, pipeline
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.base.errors import VerifyError
from monolect.command import passes
from monolect.command.forms import items_of, once_of, program_of, with_program
from monolect.ir.uop import UOp, node
from monolect.pipeline import COMMAND, GRAPH, KERNEL, MACHINE, Pass
from monolect.runtime.realize.execute import plans
from tests.unit.planted import changed, forget_programs


def largest(u: UOp) -> UOp | None:
    """The fault: max(a, b) for a + b."""
    return node("MAX", u.src) if u.op == "ADD" and u.dtype is dtypes.float32 else None


def shortened(step: UOp) -> UOp:
    """The fault: the last item is lost."""
    program = program_of(step)
    return with_program(step, items_of(program)[:-1], once_of(program))


def plant(monkeypatch: pytest.MonkeyPatch, row: Pass, fault: Callable[[UOp], UOp]) -> None:
    """The row makes a mistake from now on; programs that are known are compiled again."""
    wrong = row._replace(run=lambda ir, target: fault(row.run(ir, target)))
    for module in (pipeline, passes):
        for section in ("GRAPH", "KERNEL", "COMMAND"):
            rows = getattr(module, section, ())
            if row in rows:
                monkeypatch.setattr(module, section, tuple(wrong if r is row else r for r in rows))
    forget_programs(monkeypatch)


@pytest.fixture(autouse=True)
def nothing_is_known() -> Any:
    plans.clear()
    with Context(VERIFY=2, COMPILE_CACHE=0):
        yield
    plans.clear()


def run() -> np.ndarray:
    rng = np.random.default_rng(0)
    a, b = (Tensor(rng.standard_normal((6, 8)).astype(np.float32), device="cpu").realize() for _ in range(2))
    return ((a + b).relu() @ (a + 1.5).T).softmax(1).numpy()


def replayed() -> list[float]:
    @jit
    def step(x: Tensor) -> Tensor:
        return ((x + 1.0).sum(0, keepdim=True) * x).sum(1)

    return [step(Tensor(np.full((3, 4), k, np.float32), device="cpu").realize()).sum().item() for k in range(3)]


def test_without_a_fault_nothing_is_found() -> None:
    assert np.isfinite(run()).all() and replayed() == [0.0, 72.0, 216.0]


@pytest.mark.sweep
@pytest.mark.parametrize("row", [*GRAPH, *KERNEL], ids=lambda row: row.name)
def test_of_graphs_and_kernels(row: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, row, partial(changed, rule=largest))
    with pytest.raises(VerifyError):
        run()


@pytest.mark.parametrize("row", MACHINE, ids=lambda row: row.name)
def test_of_programs(row: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows and the devices call the same two methods."""
    kind = type(Device["cpu"])
    method = {"render": "render", "compile": "build"}[row.name]
    right = getattr(kind, method)

    def wrong(self: Any, given: Any) -> Any:
        if method == "render":
            return right(self, given).replace("fadd", "fsub")
        return right(self, given.replace("fadd", "fsub"))

    monkeypatch.setattr(kind, method, wrong)
    forget_programs(monkeypatch)
    with pytest.raises(VerifyError):
        run()


@pytest.mark.sweep
@pytest.mark.parametrize("row", COMMAND, ids=lambda row: row.name)
def test_of_command_buffers(row: Pass, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, row, shortened)
    with pytest.raises(VerifyError, match="nothing wrote|not written whole"):
        run()
    with pytest.raises(VerifyError, match="nothing wrote|not written whole"):
        replayed()
