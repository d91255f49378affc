"""Workgroup axes: kernels with GLOBAL, LOCAL and GROUP_REDUCE axes, run lane by lane on the Python interpreter."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monolect import Context, Tensor
from monolect.backend.base import launching
from monolect.backend.python.runtime import NATIVE, PythonDevice
from monolect.base.dtype import ALL, dtypes
from monolect.base.errors import ActionError
from monolect.base.target import Target
from monolect.ir.check.prove import check_bounds
from monolect.ir.check.verify import verify
from monolect.ir.ops import KernelInfo, ParamArg, Stage
from monolect.ir.text import parse
from monolect.ir.uop import UOp, build, idx, node, shape_source, toposort
from monolect.lower.control import control
from monolect.lower.gpu.device_axes import MOST_SLOTS, device_axes
from monolect.optimize.apply import apply_actions
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params

Actions = tuple[tuple[str, Any, Any], ...]


def target(**changes: Any) -> Target:
    given = {"max_local": 256, "local_bytes": 32768} | changes
    types = frozenset(d for d in ALL if d.kind != "v")
    return Target(name="python", native=NATIVE, native_dtypes=types, workgroups=True, key="test", **given)


def kernel(f: Callable[..., Tensor], *arrays: np.ndarray) -> UOp:
    """The one kernel of `f`; its PARAM 0 is the output, the others are the arrays in order."""
    sink, _, _ = over_params([f(*(Tensor(a) for a in arrays)).uop])
    (call,) = schedule(list(sink.src), "null").linear.src
    return lower_kernel(call.src[0], target(), last="merge_ranges")


def lowered(sink: UOp, actions: Actions, **changes: Any) -> tuple[UOp, UOp]:
    """The kernel after device_axes, its indices proven, and the program."""
    device = target(**changes)
    out = lower_kernel(apply_actions(sink, actions, device), device, first="device_axes", last="device_axes")
    verify(out, Stage.KERNEL)
    check_bounds(out)
    with Context(VERIFY=2):
        return out, lower_kernel(out, device, first="expand")


def run(linear: UOp, out: np.ndarray, *arrays: np.ndarray) -> np.ndarray:
    device = PythonDevice()
    (p,) = device.compile([("test", "key", linear)])
    commands = device.encode(*launching((p, tuple(range(1 + len(arrays))))))
    for k, a in enumerate((out, *arrays)):
        commands.bind(k, a.ctypes.data)
    commands.launch()
    return out


def specials(ir: UOp) -> dict[str, int]:
    return {u.arg: u.src[0].value for u in toposort(ir) if u.op == "SPECIAL"}


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def f32(*shape: int) -> np.ndarray:
    return np.full(shape, -7.0, np.float32)


# ---- launches --------------------------------------------------------------------------------------------------------
def test_elementwise_with_groups_and_lanes() -> None:
    a, b = rows(96), rows(96)
    ir, lin = lowered(
        kernel(lambda x, y: x * y + 1, a, b), (("SPLIT", 0, (8, "LOCAL", False)), ("SPLIT", 0, (12, "GLOBAL", False)))
    )
    assert specials(ir) == {"gidx0": 12, "lidx0": 8}
    assert "END" not in Counter(u.op for u in lin.src) or all(u.src[0].value == 1 for u in lin.src if u.op == "RANGE")
    np.testing.assert_allclose(run(lin, f32(96), a, b), a * b + 1, rtol=1e-6)


def test_a_padded_axis() -> None:
    a = rows(50)
    sink = kernel(lambda x: x + 1, a)
    actions = (("PADTO", 0, 16), ("SPLIT", 0, (16, "LOCAL", False)), ("SPLIT", 0, (4, "GLOBAL", False)))
    _, lin = lowered(sink, actions)
    np.testing.assert_allclose(run(lin, f32(50), a), a + 1, rtol=1e-6)


def test_no_workgroups_no_change() -> None:
    sink = kernel(lambda x: x.sum(1), rows(4, 8))
    plain = Target(name="cpu", native=NATIVE)
    grouped = apply_actions(sink, (("SPLIT", 1, (4, "GROUP_REDUCE", False)),), plain)
    assert device_axes(grouped, plain) is grouped
    assert device_axes(sink, target()) is sink


def test_before_and_after() -> None:
    before = parse("""
        %0 = CONST idx[] (6, idx)
        %1 = RANGE idx[] %0 (0, "GLOBAL")
        %2 = CONST idx[] (4, idx)
        %3 = RANGE idx[] %2 (1, "LOCAL")
        %4 = CONST idx[] (24, idx)
        %5 = STACK idx[1] %4
        %6 = PARAM f32[24] %5 ParamArg(slot=0, dtype=f32)
        %7 = MUL idx[] %1 %2
        %8 = ADD idx[] %7 %3
        %9 = INDEX f32[] %6 %8
        %10 = CONST f32[] (1.0, f32)
        %11 = STORE void[] %9 %10
        %12 = END void[] %11 %1 %3
        %13 = SINK void[] %12 KernelInfo(name="k", actions=None, threads=1)
    """)
    after = device_axes(before, target())
    verify(after, Stage.KERNEL)
    (store,) = after.src
    assert store.op == "STORE" and len(store.src) == 2
    assert {u.arg for u in toposort(after) if u.op == "SPECIAL"} == {"gidx0", "lidx0"}
    assert not any(u.op in ("RANGE", "END") for u in toposort(after))


def nest(*sizes: int, kind: str = "LOCAL") -> UOp:
    """A kernel that writes to each element its place, over axes of one type."""
    at: UOp = idx(0)
    loops = [node("RANGE", (idx(n),), (k, kind)) for k, n in enumerate(sizes)]
    for n, r in zip(sizes, loops, strict=True):
        at = at * n + r
    out = node("PARAM", (shape_source((int(np.prod(sizes)),)),), ParamArg(0, dtypes.int32, "python"))
    store = node("STORE", (node("INDEX", (out, at)), build("CAST", at, arg=dtypes.int32)))
    return node("SINK", (node("END", (store, *loops)),), KernelInfo("nest"))


@pytest.mark.parametrize("kind", ["GLOBAL", "LOCAL", "WARP"])
def test_more_axes_than_dimensions_are_merged(kind: str) -> None:
    sink = nest(2, 3, 4, 5, 2, kind=kind)
    ir = lower_kernel(sink, target(), first="device_axes", last="device_axes")
    check_bounds(ir)
    name = "gidx" if kind == "GLOBAL" else "lidx"
    assert specials(ir) == {f"{name}0": 2, f"{name}1": 5, f"{name}2": 24}
    out = run(lower_kernel(ir, target(), first="expand"), np.zeros(240, np.int32))
    np.testing.assert_array_equal(out, np.arange(240))


def test_too_many_lanes_are_refused() -> None:
    with pytest.raises(ActionError, match="too many lanes"):
        device_axes(nest(32, 16), target())


def test_too_much_local_memory_is_refused() -> None:
    grouped = apply_actions(
        kernel(lambda x: x.sum(1), rows(4, 64)), (("SPLIT", 1, (16, "GROUP_REDUCE", False)),), target()
    )
    with pytest.raises(ActionError, match="too much local memory"):
        device_axes(grouped, target(local_bytes=63))
    device_axes(grouped, target(local_bytes=64))


# ---- reductions shared by lanes --------------------------------------------------------------------------------------
GROUP = ("SPLIT", 1, (8, "GROUP_REDUCE", False))


@pytest.mark.sweep
@pytest.mark.parametrize(
    "actions",
    [
        (GROUP,),
        (("SPLIT", 1, (8, "GROUP_REDUCE", True)),),
        (("SPLIT", 1, (64, "GROUP_REDUCE", False)),),
        (GROUP, ("SPLIT", 0, (6, "GLOBAL", False))),
        (GROUP, ("SPLIT", 0, (2, "LOCAL", False)), ("SPLIT", 0, (3, "GLOBAL", False))),
        (("SPLIT", 1, (4, "UNROLL", False)), GROUP, ("SPLIT", 0, (3, "LOCAL", False))),
        (GROUP, ("SPLIT", 0, (2, "UPCAST", False))),
        (GROUP, ("SPLIT", 0, (2, "UPCAST", False)), ("SPLIT", 0, (3, "UPCAST", False))),
    ],
)
def test_sum_of_rows(actions: Actions) -> None:
    x = rows(6, 64)
    ir, lin = lowered(kernel(lambda x: x.sum(1), x), actions)
    assert any(u.op == "BUFFER" and u.arg.addrspace == "LOCAL" for u in toposort(ir))
    barriers = sum(u.op == "BARRIER" for u in lin.src)
    outer = [u for u in lin.src if u.op == "RANGE" and u.arg[1] == "LOOP"]
    steps = 2 if specials(ir)["lidx0"] > MOST_SLOTS else 1
    assert barriers == steps + bool(outer)
    np.testing.assert_allclose(run(lin, f32(6), x), x.sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["max", "prod"])
def test_other_reductions(op: str) -> None:
    x = rows(6, 64)
    sink = kernel(lambda x: x.amax(1) if op == "max" else x.prod(1), x)
    _, lin = lowered(sink, (GROUP, ("SPLIT", 0, (6, "GLOBAL", False))))
    np.testing.assert_allclose(run(lin, f32(6), x), getattr(x, op)(1), rtol=1e-5, atol=1e-9)


def test_one_lane_stores() -> None:
    x = rows(64)
    _, lin = lowered(kernel(lambda x: x.sum(), x), (("SPLIT", 0, (8, "GROUP_REDUCE", False)),))
    (store,) = [u for u in lin.src if u.op == "STORE" and toposort(u.src[0])[-1].src[0].op == "PARAM"]
    assert len(store.src) == 3
    assert [u.arg for u in toposort(store.src[2]) if u.op == "SPECIAL"] == ["lidx0"]


def test_reductions_that_follow_each_other() -> None:
    x = rows(6, 64)
    sink = kernel(lambda x: x.softmax(-1), x)
    reduced = 2  # rows, columns, and the axis that is reduced twice
    for actions in (
        (("SPLIT", reduced, (8, "GROUP_REDUCE", False)),),
        (("SPLIT", reduced, (16, "GROUP_REDUCE", True)), ("SPLIT", 0, (3, "GLOBAL", False))),
    ):
        _, lin = lowered(sink, actions)
        e = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(run(lin, f32(6, 64), x), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_a_reduction_inside_another() -> None:
    x = rows(4, 6, 8)
    sink = kernel(lambda x: (x.amax(2) * 2).sum(1), x)
    for inner, outer in ((2, 1), (1, 2)):
        _, lin = lowered(
            sink,
            (
                ("SPLIT", inner, (2, "GROUP_REDUCE", False)),
                ("SPLIT", outer + (outer > inner), (2, "GROUP_REDUCE", False)),
            ),
        )
        np.testing.assert_allclose(run(lin, f32(4), x), (x.max(2) * 2).sum(1), rtol=1e-5)


def test_matmul_with_tiles_of_lanes() -> None:
    a, b = rows(12, 16), rows(16, 8)
    sink = kernel(lambda a, b: a @ b, a, b)
    tiles = (("SPLIT", 0, (3, "LOCAL", False)), ("SPLIT", 2, (4, "LOCAL", False)))
    for more in ((), (("SPLIT", 0, (2, "UPCAST", False)),), (("SPLIT", 4, (4, "GROUP_REDUCE", False)),)):
        ir, lin = lowered(sink, tiles + more + (("SPLIT", 0, (2, "GLOBAL", False)),))
        assert specials(ir)["gidx0"] == 2
        np.testing.assert_allclose(run(lin, f32(12, 8), a, b), a @ b, rtol=1e-5, atol=1e-5)


def test_a_store_outside_a_launched_axis_is_made_once() -> None:
    """The sum of a row is added to memory inside no column loop: one lane of the column axis may do it."""
    n = node("RANGE", (idx(8),), (1, "LOCAL"))
    m = node("RANGE", (idx(3),), (0, "LOOP"))
    a, b = (node("PARAM", (shape_source((k,)),), ParamArg(s, dtypes.float32, "python")) for s, k in ((0, 3), (1, 24)))
    one = build("CAST", m, arg=dtypes.float32)
    row = node("END", (node("ATOMICADD", (node("INDEX", (a, m)), one)), m))
    cell = node("END", (node("STORE", (node("INDEX", (b, m * 8 + n)), one)), m, n))
    ir, lin = lowered(node("SINK", (row, cell), KernelInfo("two")), ())
    out, wide = np.zeros(3, np.float32), np.zeros(24, np.float32)
    run(lin, out, wide)
    np.testing.assert_array_equal(out, [0, 1, 2])
    np.testing.assert_array_equal(wide.reshape(3, 8), np.repeat([[0], [1], [2]], 8, 1))


# ---- branches --------------------------------------------------------------------------------------------------------
def test_gated_stores_become_branches() -> None:
    x = rows(6, 64)
    sink = kernel(lambda x: x.sum(1), x)
    _, masked = lowered(sink, (GROUP,))
    _, branched = lowered(sink, (GROUP,), branches=True)
    assert not any(u.op == "IF" for u in masked.src)
    ops = [u.op for u in branched.src]
    assert ops.count("IF") == ops.count("ENDIF") == 1 and ops[ops.index("IF") + 1 : ops.index("ENDIF")] == ["STORE"]
    verify(branched, Stage.PROGRAM)
    np.testing.assert_array_equal(run(masked, f32(6), x), run(branched, f32(6), x))


def test_neighbouring_stores_share_a_branch() -> None:
    r = node("RANGE", (idx(8),), (0, "LOOP"))
    gate = r < 5
    p, q = (node("PARAM", (shape_source((8,)),), ParamArg(s, dtypes.float32, "python")) for s in (0, 1))
    value = build("CAST", r, arg=dtypes.float32)
    stores = [node("STORE", (node("INDEX", (m, r)), value, gate)) for m in (p, q)]
    sink = node("SINK", tuple(node("END", (s, r)) for s in stores), KernelInfo("two"))
    lin = lower_kernel(sink, target(branches=True), first="expand")
    verify(lin, Stage.PROGRAM)
    ops = Counter(u.op for u in lin.src)
    assert (ops["STORE"], ops["IF"], ops["ENDIF"]) == (2, 1, 1)
    a, b = f32(8), f32(8)
    run(lin, a, b)
    np.testing.assert_array_equal(a, [0, 1, 2, 3, 4, -7, -7, -7])
    np.testing.assert_array_equal(a, b)
    assert control(lin, target()) is lin


def test_one_gate_in_two_places_is_two_branches() -> None:
    loops = [node("RANGE", (idx(4),), (k, "LOOP")) for k in range(2)]
    n = node("PARAM", (shape_source(()),), ParamArg(1, dtypes.index, None, None, "n", 0, 4))
    p = node("PARAM", (shape_source((8,)),), ParamArg(0, dtypes.float32, "python"))
    ends = []
    for k, r in enumerate(loops):
        value = build("CAST", r, arg=dtypes.float32)
        ends.append(node("END", (node("STORE", (node("INDEX", (p, r + 4 * k)), value, idx(1) < n)), r)))
    lin = lower_kernel(node("SINK", tuple(ends), KernelInfo("two")), target(branches=True), first="expand")
    verify(lin, Stage.PROGRAM)
    assert sum(u.op == "IF" for u in lin.src) == 2
