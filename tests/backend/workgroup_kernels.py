"""Kernels for workgroups, planned by hand: what a GPU language must be able to say, as programs with their oracle."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from monolect import Tensor
from monolect.base.dtype import dtypes
from monolect.base.target import Target
from monolect.ir.ops import BufferArg, KernelInfo, ParamArg
from monolect.ir.uop import UOp, idx, node, shape_source, toposort
from monolect.optimize.apply import apply_actions
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params


class Case(NamedTuple):
    """`program(target)` is a LINEAR; its arguments are `out`, then `arrays`; `want` is what `out` must become."""

    program: Callable[[Target], UOp]
    out: np.ndarray
    arrays: tuple[np.ndarray, ...]
    want: np.ndarray


def kernels(target: Target, f: Callable[..., Tensor], *arrays: np.ndarray) -> list[UOp]:
    """The kernels of `f`, as they are scheduled for the target, not yet lowered."""
    sink, _, _ = over_params([f(*(Tensor(a) for a in arrays)).uop])
    calls = schedule(list(sink.src), "null", 0 if target.workgroups else target.local_bytes).linear.src
    return [call.src[0] for call in calls]


def kernel(target: Target, f: Callable[..., Tensor], *arrays: np.ndarray) -> tuple[UOp, list[np.ndarray]]:
    """The one kernel of `f`, and the arrays in the order of its arguments, which come after its result."""
    tensors = [Tensor(a) for a in arrays]
    sink, buffers, _ = over_params([f(*tensors).uop])
    (call,) = schedule(list(sink.src), "null", 0 if target.workgroups else target.local_bytes).linear.src
    of = {u: a for t, a in zip(tensors, arrays, strict=True) for u in toposort(t.uop) if u.op == "BUFFER"}
    return call.src[0], [of[buffers[p.arg.slot]] for p in call.src[1:] if p.op == "PARAM"]


def planned(f: Callable[..., Tensor], want: np.ndarray, *arrays: np.ndarray, actions: tuple) -> Case:
    """A tensor program of one kernel, under a plan."""

    def program(target: Target) -> UOp:
        (sink,) = kernels(target, f, *arrays)
        sink = lower_kernel(sink, target, last="merge_ranges")
        return lower_kernel(apply_actions(sink, actions, target), target, first="device_axes")

    return Case(program, np.zeros_like(want), arrays, want)


def split(axis: int, n: int, kind: str, on_top: bool = False) -> tuple[str, int, Any]:
    return ("SPLIT", axis, (n, kind, on_top))


# ---- by hand ---------------------------------------------------------------------------------------------------------
def param(slot: int, n: int, d: Any = dtypes.float32) -> UOp:
    return node("PARAM", (shape_source((n,)),), ParamArg(slot, d, None, "GLOBAL"))


def special(name: str, n: int) -> UOp:
    return node("SPECIAL", (idx(n),), name)


def load(memory: UOp, at: UOp) -> UOp:
    return node("LOAD", (node("INDEX", (memory, at)),))


def store(memory: UOp, at: UOp, value: UOp, *gate: UOp) -> UOp:
    return node("STORE", (node("INDEX", (memory, at)), value, *gate))


def linear(*roots: UOp) -> UOp:
    return node("LINEAR", tuple(toposort(*roots)), KernelInfo("test"))


def reversed_in_groups(has_barrier: bool) -> UOp:
    """Each workgroup of 8 lanes turns its part of 32 elements around."""
    group, lane = special("gidx0", 4), special("lidx0", 8)
    memory = node("BUFFER", (shape_source((8,)),), BufferArg(0, dtypes.float32, None, "LOCAL"))
    written = store(memory, lane, load(param(1, 32), group * 8 + lane))
    ready = node("AFTER", (memory, node("BARRIER", (written,)) if has_barrier else written))
    return linear(store(param(0, 32), group * 8 + lane, load(ready, 7 - lane)))


def counted(d: Any) -> UOp:
    """Elements of 64 are counted by the remainder of their number, each lane adding one."""
    lane = special("gidx0", 2) * 32 + special("lidx0", 32)
    return linear(node("ATOMICADD", (node("INDEX", (param(0, 5, d), lane % 5)), node("CONST", (), (1, d)))))


# ---- the cases -------------------------------------------------------------------------------------------------------
def rows(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


A, B, LONG, ODD, DEEP = rows(32, 64), rows(64, 32, seed=4), rows(4096), rows(50), rows(6, 256)


def groups(axis: int, upcast: int, lanes: int, n: int, on_top: bool = False) -> tuple:
    """An axis in `n` workgroups of `lanes`, each with `upcast` neighbours."""
    return split(axis, upcast, "UPCAST"), split(axis, lanes, "LOCAL"), split(axis, n, "GLOBAL", on_top)


TURNS = ("PACK", 0, 2), ("PACK", 1, 2)


CASES: dict[str, Case] = {
    "elementwise": planned(lambda x: x * 2 + 1, LONG * 2 + 1, LONG, actions=groups(0, 4, 64, 16)),
    "half the element": planned(
        lambda x: x.half() * 2, LONG.astype(np.float16) * np.float16(2), LONG, actions=groups(0, 8, 64, 8)
    ),
    "padded": planned(lambda x: x + 1, ODD + 1, ODD, actions=(("PADTO", 0, 16), *groups(0, 4, 4, 4))),
    "every third": planned(
        lambda x: x[::3] + 1, LONG[::3] + 1, LONG, actions=(split(0, 2, "LOCAL"), split(0, 683, "GLOBAL"))
    ),
    "sum of rows": planned(
        lambda x: x.sum(1),
        DEEP.sum(1),
        DEEP,
        actions=(split(1, 4, "UNROLL"), split(1, 32, "GROUP_REDUCE"), split(0, 6, "GLOBAL")),
    ),
    "maximum of rows": planned(
        lambda x: x.amax(1),
        DEEP.max(1),
        DEEP,
        actions=(split(1, 64, "GROUP_REDUCE"), split(0, 2, "LOCAL"), split(0, 3, "GLOBAL")),
    ),
    "matmul": planned(
        lambda a, b: a @ b,
        A @ B,
        A,
        B,
        actions=(split(2, 4, "UNROLL"), *groups(1, 4, 4, 2), *groups(0, 2, 4, 4)),
    ),
    "matmul, blocks in turns": planned(
        lambda a, b: a @ b,
        A @ B,
        A,
        B,
        actions=(split(2, 32, "REDUCE", True), *groups(1, 4, 4, 2, True), *groups(0, 2, 4, 4, True), *TURNS),
    ),
    "padded matmul, blocks in turns": planned(
        lambda a, b: a @ b,
        A[:6, :50] @ B[:50, :5],
        A[:6, :50].copy(),
        B[:50, :5].copy(),
        actions=(
            *(("PADTO", 2, 4), ("PADTO", 1, 8), split(2, 26, "REDUCE", True)),
            *(*groups(1, 4, 2, 1, True), split(0, 3, "LOCAL"), split(0, 2, "GLOBAL", True), *TURNS),
        ),
    ),
    "matmul with shared sums": planned(
        lambda a, b: a @ b,
        A @ B,
        A,
        B,
        actions=(split(2, 8, "GROUP_REDUCE"), split(1, 4, "UPCAST"), split(1, 8, "LOCAL"), split(0, 32, "GLOBAL")),
    ),
    "reversed": Case(
        lambda t: reversed_in_groups(True), np.zeros(32, "f4"), (LONG[:32],), LONG[:32].reshape(4, 8)[:, ::-1].ravel()
    ),
}
for _d in (dtypes.int32, dtypes.uint32, dtypes.float32):
    _want = np.array([13, 13, 13, 13, 12], _d.numpy)
    CASES[f"counted in {_d.name}"] = Case(lambda t, d=_d: counted(d), np.zeros_like(_want), (), _want)
