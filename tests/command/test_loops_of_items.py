"""Loops and branches around the items of a command buffer: verified, interpreted, and run by devices."""

from typing import Any

import numpy as np
import pytest

from monolect import Context, VerifyError
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.command.check import check
from monolect.command.forms import calls_in, items_of, program_of
from monolect.command.interp import run_step
from monolect.command.passes import planned
from monolect.ir.check.verify import verify
from monolect.ir.ops import KernelInfo, ParamArg, Stage, StepInfo
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, substitute
from monolect.runtime.realize.encode import encode
from monolect.runtime.realize.plan import positions, target_of

DEVICES = [name for name in ("cpu", "c", "python") if not Device.present()[name]]
N, ROWS = 4, 5


def memory(slot: int, n: int, dev: str) -> UOp:
    return node("PARAM", (shape_source((n,)),), ParamArg(slot, dtypes.float32, dev, "GLOBAL"))


def kernel(dev: str, add: float = 1.0) -> UOp:
    """out[i] = x[i] * 2 + add, of N elements."""
    out, x = memory(0, N, dev), memory(1, N, dev)
    i = node("RANGE", (idx(N),), (0, "LOOP"))
    value = build("ADD", build("MUL", node("LOAD", (node("INDEX", (x, i)),)), const(2.0, x.dtype)), const(add, x.dtype))
    return node("SINK", (node("END", (node("STORE", (node("INDEX", (out, i)), value)), i)),), KernelInfo())


def row(p: UOp, at: UOp) -> UOp:
    return node("SHRINK", (p, shape_source((at * N,)), shape_source((N,))))


def step_of(items: list[UOp], out: UOp, *roles: str) -> UOp:
    linear = node("LINEAR", tuple(items))
    return node("FUNCTION", (node("TUPLE", (node("AFTER", (out, linear)),)),), StepInfo(roles, 1))


def looped(dev: str) -> UOp:
    """Rows of a result from those of an argument in reverse order, each by one launch in a loop."""
    x, out = memory(0, N * ROWS, dev), memory(1, N * ROWS, dev)
    r = node("RANGE", (idx(ROWS),), (0, "LOOP"))
    call = node("CALL", (kernel(dev), row(out, r), row(x, ROWS - 1 - r)))
    return step_of([r, call, node("END", (call, r))], out, "argument", "result")


def branched(dev: str) -> UOp:
    """A result that a second item changes where a size is below 3."""
    x, out = memory(0, N, dev), memory(1, N, dev)
    n = node("PARAM", (), ParamArg(2, dtypes.index, None, None, "n_branch", 0, 9))
    first = node("CALL", (kernel(dev), out, x))
    condition = node("IF", (build("CMPLT", n, idx(3)),))
    second = node("CALL", (kernel(dev, 5.0), out, x))
    return step_of([first, condition, second, node("ENDIF", (condition,))], out, "argument", "result", "size")


def ran(step: UOp, dev: str, x: np.ndarray, n_out: int, *sizes: int) -> tuple[np.ndarray, Any]:
    """What the device stores, and the step as it was planned."""
    device = Device[dev]
    ready = planned(step, target_of(dev))
    number = positions(ready)
    commands = encode(items_of(program_of(ready)), number, dev, step)
    source, out = device.from_array(x), device.alloc(4 * n_out)
    for k, address in enumerate((source.address, out.address, *sizes)):
        commands.bind(k, address)
    commands.launch()
    got = out.view(np.float32)[:n_out].copy()
    times = commands.launch_timed()
    assert len(times) == len(calls_in(items_of(program_of(ready))))
    return got, ready


@pytest.mark.parametrize("dev", DEVICES)
def test_a_loop_of_launches(dev: str) -> None:
    x = np.arange(N * ROWS, dtype=np.float32)
    wanted = x.reshape(ROWS, N)[::-1].reshape(-1) * 2 + 1
    got, ready = ran(looped(dev), dev, x, N * ROWS)
    np.testing.assert_array_equal(got, wanted)
    verify(ready, Stage.COMMAND)
    check(ready)
    assert parse(show(ready)) is ready
    left = run_step(ready, {0: x})
    (out,) = (m for p, m in left.bytes.items() if p.op == "PARAM" and p.arg.slot == 1)
    np.testing.assert_array_equal(out.view(np.float32), wanted)


@pytest.mark.parametrize("dev", DEVICES)
@pytest.mark.parametrize("n", [0, 2, 3, 9])
def test_a_branch_around_a_launch(dev: str, n: int) -> None:
    x = np.arange(N, dtype=np.float32)
    got, ready = ran(branched(dev), dev, x, N, n)
    np.testing.assert_array_equal(got, x * 2 + (5 if n < 3 else 1))
    check(ready)
    assert parse(show(ready)) is ready
    left = run_step(ready, {0: x}, {"n_branch": n})
    (out,) = (m for p, m in left.bytes.items() if p.op == "PARAM" and p.arg.slot == 1)
    np.testing.assert_array_equal(out.view(np.float32), got)


def test_a_view_that_a_loop_moves_out_of_its_memory_is_refused() -> None:
    step = looped("cpu")
    with Context(VERIFY=0, CHECK_BOUNDS=0):
        ready = planned(step, target_of("cpu"))
    r = node("RANGE", (idx(ROWS + 1),), (0, "LOOP"))
    (old,) = (u for u in items_of(program_of(ready)) if u.op == "RANGE")
    with pytest.raises(VerifyError, match="outside of its memory"):
        check(substitute(ready, {old: r}))
