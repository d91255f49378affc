"""VERIFY=2 and CHECK_BOUNDS=1 around passes: a planted bug is caught and the pass is named; what is right passes."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from monolect import Context, Tensor, pipeline
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.base.errors import ActionError, VerifyError
from monolect.base.target import Target
from monolect.ir.check import validate as validation
from monolect.ir.check.validate import validate
from monolect.ir.ops import KernelInfo, ParamArg
from monolect.ir.uop import UOp, build, const, idx, node, shape_source
from monolect.optimize.apply import apply_actions
from monolect.pipeline import KERNEL, lower_kernel, schedule
from monolect.runtime.realize import lowering  # noqa: F401  (gives the pipeline its interpreter of programs)
from monolect.schedule.callify import over_params
from tests.unit.planted import Rule, plant

TARGET = Device["null"].target


@pytest.fixture(autouse=True)
def forgets() -> Iterator[None]:
    """No outcome of another test is compared with."""
    validation._last.clear()
    yield
    validation._last.clear()


def t(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


def kernel(x: Tensor) -> UOp:
    sink, _, _ = over_params([x.uop])
    (call,) = schedule(list(sink.src), "null").linear.src
    return call.src[0]


def minus(u: UOp) -> UOp | None:
    """The mistake: a - b for a + b."""
    if u.op == "ADD" and u.dtype is dtypes.float32:
        return node("ADD", (u.src[0], node("MUL", (u.src[1], const(-1.0, u.dtype)))))
    return None


def one_further(op: str) -> Rule:
    """The mistake: an index that is one too large."""

    def rule(u: UOp) -> UOp | None:
        if u.op == op and u.src[0].op == "INDEX":
            place = u.src[0]
            return node(op, (node("INDEX", (place.src[0], place.src[1] + 1)), *u.src[1:]), u.arg)
        return None

    return rule


# ---- VERIFY=2 --------------------------------------------------------------------------------------------------------
ADDING: dict[str, Callable[[], Tensor]] = {
    "simplify_loops": lambda: t(6, 8) + t(8),
    "merge_ranges": lambda: t(6, 8) + t(6, 8),
    "apply": lambda: t(6, 8) + t(8),
    "expand": lambda: t(6, 32) + t(32),
    "lower_reduce": lambda: t(6, 640).sum(1),
    "select": lambda: t(6, 32) + t(32),
}


@pytest.mark.parametrize("name", ADDING)
def test_a_planted_bug_is_caught_and_its_pass_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = kernel(ADDING[name]())
    with Context(VERIFY=2):
        lower_kernel(sink, TARGET)
    plant(monkeypatch, name, minus)
    with Context(VERIFY=1):
        lower_kernel(sink, TARGET)  # nothing is wrong with its form
    with Context(VERIFY=2), pytest.raises(VerifyError) as e:
        lower_kernel(sink, TARGET)
    text = str(e.value)
    assert f"pass {name} changes what kernel" in text and "PARAM 0" in text
    assert f"before {name}: [" in text and f"after {name}: [" in text


def test_an_instruction_lost_by_linearize_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = kernel((t(6, 8) + 1).sum(1))
    rows = list(KERNEL)
    k = [r.name for r in rows].index("linearize")
    right: Any = rows[k].run

    def loses(ir: UOp, target: Any) -> UOp:
        lin = right(ir, target)
        last = max(i for i, u in enumerate(lin.src) if u.op == "STORE")
        return node("LINEAR", tuple(u for i, u in enumerate(lin.src) if i != last), lin.arg)

    rows[k] = rows[k]._replace(run=loses)
    monkeypatch.setattr(pipeline, "KERNEL", tuple(rows))
    with Context(VERIFY=2), pytest.raises(VerifyError, match="pass linearize changes what kernel"):
        lower_kernel(sink, TARGET)


def test_a_program_that_cannot_run_any_more_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = kernel(t(6, 8).cumsum(1))
    plant(monkeypatch, "linearize", one_further("STORE"))
    with Context(VERIFY=2, CHECK_BOUNDS=0), pytest.raises(VerifyError) as e:
        lower_kernel(sink, TARGET)
    assert "pass linearize" in str(e.value) and "cannot be run any more" in str(e.value)


def test_large_kernels_are_left_out_with_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, "expand", minus)
    with Context(VERIFY=2, TRACE="passes"):
        lower_kernel(kernel(t(400, 400) + t(400)), TARGET)
    assert "expand          not interpreted: 160000 elements are too many" in capsys.readouterr().err
    with Context(VERIFY=2):
        lower_kernel(kernel(t(400, 400) + t(400)), TARGET)
    assert capsys.readouterr().err == ""


def test_without_an_interpreter_of_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pipeline, "interpret_program", None)
    with Context(VERIFY=2, TRACE="passes"):
        lower_kernel(kernel(t(6, 8).sum(1)), TARGET)
    assert "linearize       not interpreted: there is no interpreter of programs" in capsys.readouterr().err


RIGHT: dict[str, Callable[[], Tensor]] = {
    "pad": lambda: t(7, 5).pad((3, 0, 1, 2)) + 1,
    "conv": lambda: t(1, 3, 6, 6).conv2d(t(4, 3, 3, 3), padding=1),
    "max pool": lambda: t(1, 2, 9, 9).max_pool2d(3, 2, padding=1),
    "cumsum of columns": lambda: t(7, 6).cumsum(0),
    "softmax": lambda: t(9, 33).softmax(-1),
    "variance": lambda: t(9, 33).var(1),
    "matmul with tails": lambda: t(17, 19) @ t(19, 21),
    "functions": lambda: t(50).sin() + t(50).exp() * t(50).tanh(),
    "half": lambda: (t(40).cast("float16") + 1).exp(),
    "gather": lambda: t(6, 7)[Tensor(np.array([0, 3, 5]))],
    "scatter": lambda: t(6, 7).scatter(0, Tensor(np.array([[0, 5], [2, 3]])), t(2, 2)),
    "integers": lambda: (t(40) * 10).cast("int32") // 3 % 5,
    "bits of a sum": lambda: (t(100) + t(100).sum()).bitcast("int32"),
    "random": lambda: Tensor.rand(30),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str) -> None:
    with Context(VERIFY=2, CHECK_BOUNDS=1):
        sink, _, _ = over_params([RIGHT[name]().uop])
        for call in schedule(list(sink.src), "null").linear.src:
            lower_kernel(call.src[0], TARGET)


def test_symbolic_sizes() -> None:
    n = node("PARAM", (), ParamArg(2, dtypes.index, None, None, "n", 3, 9))
    a, b = (node("PARAM", (shape_source((n,)),), ParamArg(k, dtypes.float32, "cpu")) for k in range(2))
    r = node("RANGE", (n,), (0, "LOOP"))

    def copy(scale: float) -> UOp:
        value = node("MUL", (node("LOAD", (node("INDEX", (b, r)),)), const(scale, dtypes.float32)))
        end = node("END", (node("STORE", (node("INDEX", (a, r)), value)), r))
        return node("SINK", (end,), KernelInfo("copy"))

    assert validate("test", copy(2.0), copy(2.0)) == ""
    assert validate("test", copy(2.0), node("SINK", copy(2.0).src, KernelInfo("other"))) == ""
    with pytest.raises(VerifyError, match="pass test changes what kernel copy computes"):
        validate("test", copy(2.0), copy(3.0))


@pytest.mark.parametrize(
    ("name", "a", "b", "same"),
    [
        ("float32", 1.0, 1.00001, True),
        ("float32", 1.0, 1.001, False),
        ("float32", float("nan"), float("nan"), True),
        ("float32", float("nan"), 1.0, False),
        ("float32", float("inf"), float("inf"), True),
        ("float32", float("inf"), float("-inf"), False),
        ("float64", 1.0, 1.00001, False),
        ("float16", 1.0, 1.01, True),
        ("int32", 3, 4, False),
        ("bool", True, False, False),
    ],
)
def test_tolerance(name: str, a: Any, b: Any, same: bool) -> None:
    d = getattr(dtypes, name)
    x, y = (np.array([v, 0], d.numpy) for v in (a, b))
    assert (validation._differences(x, y, d, d.bits).size == 0) is same


# ---- CHECK_BOUNDS=1 --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", ["LOAD", "STORE"])
def test_an_index_planted_by_the_optimizer_is_caught(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = kernel(t(6, 8) + t(8))
    plant(monkeypatch, "apply", one_further(op))
    with Context(VERIFY=1, CHECK_BOUNDS=0):
        lower_kernel(sink, TARGET)
    with Context(VERIFY=1, CHECK_BOUNDS=1), pytest.raises(VerifyError) as e:
        lower_kernel(sink, TARGET)
    text = str(e.value)
    assert f"kernel map_6x8: {op} of PARAM" in text and "after pass apply, not before" in text


def test_an_index_planted_earlier_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = kernel(t(6, 8) + t(8))
    plant(monkeypatch, "simplify_loops", one_further("LOAD"))
    with Context(VERIFY=1, CHECK_BOUNDS=1), pytest.raises(VerifyError, match="before and after pass apply"):
        lower_kernel(sink, TARGET)


def test_a_gate_that_is_lost_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = kernel(t(7, 5).pad((3, 0, 1, 2)) + 1)

    def ungated(u: UOp) -> UOp | None:
        return node("LOAD", u.src[:1], u.arg) if u.op == "LOAD" and len(u.src) == 3 else None

    with Context(VERIFY=1, CHECK_BOUNDS=1):
        lower_kernel(sink, TARGET)
    plant(monkeypatch, "apply", ungated)
    with Context(VERIFY=1, CHECK_BOUNDS=1), pytest.raises(VerifyError, match="no gate"):
        lower_kernel(sink, TARGET)


def test_a_device_axis_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes that read past their group's slots in local memory."""
    device = Target(name="t", native=TARGET.native, workgroups=True, max_local=64, local_bytes=4096)
    sink = kernel(t(6, 64).sum(1))
    sink = node("SINK", sink.src, KernelInfo("sum", (("SPLIT", 1, (8, "GROUP_REDUCE", False)),)))
    with Context(VERIFY=1, CHECK_BOUNDS=1):
        lower_kernel(sink, device)

    def past(u: UOp) -> UOp | None:
        if u.op == "INDEX" and u.src[0].op == "AFTER" and u.src[1].op == "RANGE":
            return node("INDEX", (u.src[0], u.src[1] + 1))
        return None

    plant(monkeypatch, "device_axes", past)
    with Context(VERIFY=1, CHECK_BOUNDS=1), pytest.raises(VerifyError, match="after pass device_axes, not before"):
        lower_kernel(sink, device)


def test_nothing_is_checked_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError

    for name in ("check_bounds", "validate", "verify"):
        monkeypatch.setattr(pipeline, name, refuse)
    with Context(VERIFY=0, CHECK_BOUNDS=0):
        lower_kernel(kernel(t(4) + 1), TARGET)


def test_a_lost_multiple_is_caught() -> None:
    """An index that stays inside its buffer, yet is the wrong one, is what proofs of bounds cannot see."""
    r, s = (node("RANGE", (idx(4),), (k, "LOOP")) for k in range(2))
    out = node("PARAM", (shape_source((16,)),), ParamArg(0, dtypes.int32, "cpu"))

    def numbered(at: UOp) -> UOp:
        store = node("STORE", (node("INDEX", (out, at)), build("CAST", r * 4 + s, arg=dtypes.int32)))
        return node("SINK", (node("END", (store, r, s)),), KernelInfo("numbers"))

    with pytest.raises(VerifyError, match="differ"):
        validate("test", numbered(r * 4 + s), numbered(s * 4 + r))


# ---- what these checks have found ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "actions",
    [
        (("SPLIT", 1, (2, "UNROLL", False)),),
        (("SPLIT", 1, (3, "UNROLL", False)), ("SPLIT", 1, (2, "UNROLL", False))),
        (("SPLIT", 1, (2, "GROUP_REDUCE", False)), ("SPLIT", 3, (4, "GROUP_REDUCE", False))),
    ],
)
def test_a_reduction_inside_another_has_memory_of_its_own(actions: tuple) -> None:
    """Unrolled copies of the outer loop, and lanes of both, must not share the inner accumulator."""
    sink = kernel((t(4, 6, 8).amax(2) * 2).sum(1))
    with Context(VERIFY=2, CHECK_BOUNDS=1):
        lower_kernel(node("SINK", sink.src, KernelInfo("nest", actions)), TARGET)


@pytest.mark.parametrize(
    "actions",
    [
        (("SPLIT", 0, (4, "LOOP", False)), ("SPLIT", 1, (3, "THREAD", True))),  # a clipped part inside another
        (("SPLIT", 1, (6, "LOOP", True)), ("SPLIT", 1, (2, "GLOBAL", True))),  # partial sums side by side
        (("SPLIT", 0, (8, "GLOBAL", True)), ("SPLIT", 0, (3, "THREAD", True))),  # a launch of another size a thread
    ],
)
def test_actions_that_would_leave_a_buffer_are_refused(actions: tuple) -> None:
    sink = kernel(t(8, 24).sum(1))
    device = Target(name="t", native=TARGET.native, workgroups=True, n_threads=2, max_local=64, local_bytes=4096)
    apply_actions(sink, actions[:1], device)
    with pytest.raises(ActionError):
        apply_actions(sink, actions, device)
