"""Optimizer actions: any legal sequence keeps what a kernel computes; an illegal one is refused with its reason."""

import contextlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monolect import ActionError, Tensor, Variable, dtypes
from monolect.backend.base import launching
from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.backend.cpu.units import ROWS
from monolect.backend.registry import Device
from monolect.base.target import MatrixUnit, Target
from monolect.graphs import bitonic_sort as network
from monolect.graphs.bitonic_sort import Sorting
from monolect.graphs.radix_sort import _radix_pass
from monolect.ir.bounds import min_max
from monolect.ir.ops import KernelInfo
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, node, toposort
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.actions.split import SPLIT_RULES
from monolect.optimize.apply import apply, apply_actions, apply_plan, choose_actions, fill_kernel, kept_blocks, planned
from monolect.optimize.cpu.heuristic import choose
from monolect.optimize.merge import merge_ranges
from monolect.optimize.search.neighbours import edits, extensions
from monolect.pipeline import lower_kernel, schedule
from monolect.rules.loops.reductions import simplify_loops
from monolect.schedule.callify import over_params
from tests.strategies import often

BF16, F32, I8, U8, I32 = dtypes.bfloat16, dtypes.float32, dtypes.int8, dtypes.uint8, dtypes.int32
UNITS = (  # some that no processor has: their products are computed element by element
    MatrixUnit("pairs", 1, 4, 2, 2, BF16, BF16, F32),
    MatrixUnit("tiles of pairs", 2, 4, 4, 2, BF16, BF16, F32),
    MatrixUnit("quads", 1, 4, 4, 4, U8, I8, I32),
    *(r.unit for r in ROWS if r.unit.n == 16 and r.unit.m == 1),
)
TARGET = Target(
    name="test",
    native=LLVM_NATIVE,
    vector_bytes=64,
    n_registers=32,
    n_threads=2,
    local_bytes=1 << 20,
    streams=True,
    units=UNITS,
)
GPU = Target(name="gpu", native=LLVM_NATIVE, workgroups=True, local_bytes=1 << 15)


def whole(*shape, high=4):
    """Small whole numbers: sums of them are exact in any order."""
    return Tensor(np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape) * 7 % 11 % high)


def narrow(d, *shape):
    """Whole numbers of both signs, where there are any, in a narrow type."""
    x = np.arange(int(np.prod(shape))).reshape(shape) * 7 % 11
    return Tensor((x if d is U8 else x - 5).astype(d.numpy))


def product_over(spec, x, y, types, wide):
    """An einsum of narrow numbers, of shapes `x` and `y`, that are parts of larger tensors."""
    a, b = (narrow(d, s[0], s[1] + 3, *s[2:])[:, : s[1]] for d, s in zip(types, (x, y), strict=True))
    return Tensor.einsum(spec, a.cast(wide), b.cast(wide))


def attention(q, k, v):
    """Rows of scores, what reduces them, and a second product: stages in local memory."""
    s = q @ k.permute(0, 2, 1)
    e = s - s.amax(2, keepdim=True)
    return ((e * e) @ v) * (e * e).sum(2, keepdim=True)


def masked_attention(q, k, v):
    """The same with exact exponentials: whole powers of two, behind a causal mask."""
    n, m = q.shape[1], k.shape[1]
    visible = Tensor.arange(m).reshape(1, m) < Tensor.arange(n).reshape(n, 1) + 1
    s = visible.where(q @ k.permute(0, 2, 1), -1e30)
    e = (s - s.amax(2, keepdim=True)).exp2()
    return (e @ v) + e.sum(2, keepdim=True)


def rows(x):
    y = x - x.amax(1, keepdim=True)
    return y * y.sum(1, keepdim=True)


def counts(r, n):
    """How many earlier elements of a row are in the class of each."""
    x = whole(r, n, high=8).cast(dtypes.uint8) & 3
    earlier = Tensor.arange(n).reshape(1, n) < Tensor.arange(n).reshape(n, 1)
    alike = (x.reshape(r, n, 1) == x.reshape(r, 1, n)) & earlier
    return alike.where(1, 0).cast(dtypes.int32).sum(2, dtype=dtypes.int32)


def assigned(x, where, value):
    x[where] = value
    return x


SHARED = (1, (2, "UPCAST", False)), (3, (2, "GROUP_REDUCE", False)), (5, (2, "GROUP_REDUCE", False))
PROGRAMS = {
    "map": lambda: whole(6, 8) * 2 + whole(8),
    "transpose": lambda: whole(12, 10).T + whole(10, 12),
    "three axes": lambda: whole(4, 6, 8).permute(2, 0, 1).contiguous(),
    "pad": lambda: whole(5, 6).pad((1, 2, 3, 0)) + 1,
    "row sums": lambda: whole(6, 20).sum(1) * 2,
    "column sums": lambda: whole(20, 12).sum(0) + whole(12),
    "two sums that share a loop": lambda: whole(2, 4).T @ (y := whole(2, 2)) - y.sum(),
    "total": lambda: whole(6, 16).sum(),
    "maximum": lambda: whole(9, 8).amax(1),
    "integers": lambda: whole(6, 20).cast(dtypes.int32).prod(1),
    "rows": lambda: rows(whole(6, 8)),
    "matmul": lambda: (whole(8, 20) @ whole(20, 16)).relu() + whole(16),
    "batched dots": lambda: whole(2, 4, 16) @ whole(2, 6, 16).permute(0, 2, 1),
    "convolution": lambda: whole(1, 2, 6, 6).conv2d(whole(4, 2, 3, 3), padding=1),
    "strided convolution": lambda: whole(2, 2, 9, 7).conv2d(whole(4, 2, 3, 2), padding=(1, 0), stride=(2, 1)),
    "odd matmul": lambda: whole(7, 13).T @ whole(7, 9) + whole(9),
    "product of bfloat16": lambda: narrow(BF16, 8, 20).float() @ narrow(BF16, 20, 16).float(),
    "product of bfloat16 transposed": lambda: narrow(BF16, 20, 8).T @ narrow(BF16, 16, 20).T,
    "odd product of bfloat16": lambda: narrow(BF16, 7, 13).float() @ narrow(BF16, 13, 19).float() + whole(19),
    "rounded product": lambda: (whole(12, 20) @ whole(20, 18)).cast(dtypes.float16) + whole(18).cast(dtypes.float16),
    "product with a tail of one": lambda: narrow(BF16, 32, 16) @ narrow(BF16, 16, 65),
    "convolution of bfloat16": lambda: narrow(BF16, 1, 4, 6, 6).conv2d(narrow(BF16, 16, 4, 3, 3), padding=1),
    "product of int8": lambda: narrow(I8, 8, 20).int() @ narrow(I8, 20, 16).int(),
    "odd product of uint8": lambda: narrow(U8, 13, 7).T.int() @ narrow(U8, 21, 13).T.int(),
    "products of int8 and uint8": lambda: narrow(I8, 3, 4, 8).int() @ narrow(U8, 3, 8, 16).int(),
    "product of bfloat16 over three axes": lambda: product_over(
        "labc,ocba->lo", (8, 10, 11, 12), (16, 12, 11, 10), (BF16, BF16), F32
    ),
    "product of bfloat16 over two axes": lambda: product_over(
        "lck,okc->ol", (8, 64, 6), (32, 6, 64), (BF16, BF16), F32
    ),
    "product of uint8 and int8 over two axes": lambda: product_over(
        "lck,okc->lo", (9, 64, 3), (32, 3, 64), (U8, I8), I32
    ),
    "product of int8 over two axes": lambda: product_over("cbl,obc->lo", (8, 40, 20), (17, 40, 8), (I8, I8), I32),
    "attention": lambda: attention(whole(2, 12, 4), whole(2, 10, 4), whole(2, 10, 6)),
    "masked attention": lambda: masked_attention(whole(2, 12, 4), whole(2, 20, 4, high=2), whole(2, 20, 8)),
    "attention over joined keys": lambda: attention(
        whole(2, 12, 4), whole(2, 9, 4).cat(whole(2, 1, 4), dim=1), whole(2, 9, 6).cat(whole(2, 1, 6), dim=1)
    ),
    "attention over keys in two pieces": lambda: attention(
        whole(2, 12, 4), whole(2, 9, 4).cat(whole(2, 6, 4), dim=1), whole(2, 9, 6).cat(whole(2, 6, 6), dim=1)
    ),
    "scan": lambda: whole(4, 10).cumsum(1),
    "running maximum": lambda: whole(3, 4, 17).cummax(2).values + 1,
    "scans of one row": lambda: whole(1, 9).expand(6, 9).cumsum(1),
    "two scans": lambda: [(x := whole(6, 16)).cumsum(1), x.cummax(1).values],
    "running sums of columns": lambda: whole(20, 12).cumsum(0).cast(dtypes.int32),
    "gather": lambda: whole(9, 8)[Tensor(np.array([3, 1, 8, 0, 0, 5]))] + 1,
    "gather of a plane": lambda: whole(2, 9, 8)[:, Tensor(np.array([[3, -1, 8], [0, 0, 5]]))] * 2,
    "lower triangle": lambda: whole(9, 24).tril(2) + 1,
    "upper triangles": lambda: whole(2, 10, 13).triu(-1),
    "a rolled row": lambda: whole(40).roll(30, 0),
    "one of joined columns": lambda: (
        narrow(U8, 33, 3, 67).cat(narrow(U8, 33, 1, 134)[:, :, ::2], narrow(U8, 33, 4, 67), dim=1) + 1
    ),
    "siblings": lambda: [(x := whole(6, 12)) + 1, x * 2],
    "two reductions": lambda: [(x := whole(6, 12)).sum(1), x.amax(1)],
    "normalised, with its sums": lambda: [(x := whole(6, 12)) * x.sum(1, keepdim=True), x.sum(1, keepdim=True)],
    "scatter": lambda: Tensor.zeros(10).scatter_add(0, Tensor(np.arange(24) * 5 % 10), whole(24)),
    "scatter to one place": lambda: Tensor.zeros(10).scatter_add(0, Tensor.full((24,), 3), Tensor.ones(24)),
    "scatter with padded places": lambda: Tensor.zeros(10).scatter_add(
        0, Tensor(np.arange(20) * 3 % 10).pad((2, 2)), Tensor.ones(24)
    ),
    "running sums of a product": lambda: (whole(8, 2) @ whole(2, 3)).reshape(24).cumsum(0),
    "rows added": lambda: Tensor.zeros(10, 8).index_add(0, Tensor(np.arange(24) * 5 % 10), whole(24, 8)),
    "histograms": lambda: Tensor.zeros(6, 10).scatter_add(
        1, Tensor(np.arange(72).reshape(6, 12) * 5 % 10), whole(6, 12)
    ),
    "counts": lambda: counts(6, 16),
    "moves": lambda: Tensor._wrap(_radix_pass(whole(4, 3, 16, high=11).cast(dtypes.uint32).uop, 1, 4)),
}
FENCE = np.arange(4096, dtype=np.uint64).astype(np.uint8)  # around each buffer: nothing may be written there
MADE: dict[str, tuple[UOp, list, list]] = {}


def made(name):
    """The last kernel of a program, ready for actions, arrays for its buffers, and what they hold after it ran."""
    if name not in MADE:
        out = PROGRAMS[name]()
        outs = out if isinstance(out, list) else [out]
        sink, bound, _ = over_params([t.uop for t in outs])
        plan = schedule(list(sink.src), "cpu", TARGET.local_bytes)
        calls = [(merge_ranges(simplify_loops(c.src[0], TARGET), TARGET), c.src[1:]) for c in plan.linear.src]
        memory = {}
        for _, args in calls:
            for b in args:
                if b.op == "PARAM":
                    memory[b] = bound[b.arg.slot].storage.view("u1")[: b.dtype.itemsize * int(np.prod(b.shape))]
                else:
                    memory.setdefault(b, np.full(b.dtype.itemsize * int(np.prod(b.shape)), 77, np.uint8))
        for k, args in calls[:-1]:
            run(k, [memory[b] for b in args], f"test/{name}/first")
        kernel, args = calls[-1]
        arrays = [np.array(memory[b]) for b in args]
        wanted = [a.copy() for a in arrays]
        run(kernel, wanted, f"test/{name}/plain")
        for buffer, t in zip(plan.outputs, outs, strict=True):
            right = t.numpy()
            np.testing.assert_array_equal(wanted[args.index(buffer)].view(right.dtype), right.reshape(-1))
        MADE[name] = kernel, arrays, wanted
    return MADE[name]


def written(kernel):
    ps = {memory_of(u.src[0]) for u in toposort(kernel) if u.op in ("STORE", "ATOMICADD") and u.src[0].op == "INDEX"}
    return sorted((p for p in ps if p.op == "PARAM"), key=lambda p: p.arg.slot)


def aligned(a):
    """A copy of `a` in memory aligned as a device aligns it."""
    raw = np.empty(a.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    raw[start : start + a.nbytes] = a.view(np.uint8)
    return raw[start : start + a.nbytes]


def run(kernel, arrays, key):
    """Lower `kernel`, whose actions are done, compile it for the CPU and run it on the arrays, in place."""
    device = Device["cpu"]
    info = kernel.arg
    if info.actions is None:
        kernel = apply_actions(kernel, (), TARGET)
    lin = lower_kernel(kernel, device.target, first="expand")
    (p,) = device.compile([("test", f"{key}/{hash(lin)}", lin)])
    commands = device.encode(*launching((p, tuple(range(len(arrays))))))
    fenced = [aligned(np.concatenate([FENCE, a, FENCE])) for a in arrays]
    for k, f in enumerate(fenced):
        commands.bind(k, f.ctypes.data + len(FENCE))
    commands.launch()
    for a, f in zip(arrays, fenced, strict=True):
        before, a[:], after = np.split(f, [len(FENCE), len(FENCE) + len(a)])
        assert np.array_equal(before, FENCE) and np.array_equal(after, FENCE), "a store outside of its buffer"


@st.composite
def sequences(draw, names=tuple(PROGRAMS), most=6):
    """(program, legal actions): each is drawn, and dropped if the plan refuses it."""
    name = draw(st.sampled_from(names))
    plan = LoopPlan(made(name)[0], TARGET)
    if "product" in name and draw(st.booleans()):  # as drawn below, but oftener
        lane, unit = len(plan.outputs) - 1, draw(st.sampled_from(UNITS))
        rows = [("PADTO", lane - 1, 2), ("SPLIT", lane - 1, (2, "UPCAST", False))][: 2 * draw(st.booleans())]
        starts = [("PADTO", lane, unit.n), ("SPLIT", lane, (unit.n, "UPCAST", False)), *rows, ("PADTO", -1, unit.k)]
        for op, axis, arg in (*starts, ("TC", -1, unit.name)):
            with contextlib.suppress(ActionError):
                plan.act((op, axis % len(plan.axes), arg))
    for _ in range(draw(st.integers(1, most))):
        if not plan.axes:
            break
        axis = draw(st.integers(0, len(plan.axes) - 1))
        op = draw(st.sampled_from(["SPLIT"] * 6 + ["PADTO", "SWAP", "PEEL", "PEEL", "BOUND", "NOLOCALS", "TC"]))
        if op == "SPLIT":
            n = plan.axes[axis].size
            fits = [k for k in range(1, n + 1) if n % k == 0] or [1]
            k = draw(st.sampled_from(fits) if draw(st.integers(0, 4)) else st.integers(1, max(1, n)))
            arg = (k, draw(st.sampled_from(sorted(SPLIT_RULES))), draw(st.booleans()))
        elif op == "TC":
            arg = draw(st.sampled_from(UNITS)).name
        elif op == "PEEL":
            at_mask = [("mask", 0), ("mask", 1)]
            arg = draw(st.sampled_from([(0, 1), (1, 0), (1, 1), (2, 1), (1, 1, 0), (0, 2, 1), (1, 2, 1, 1), *at_mask]))
        else:
            arg = draw(st.sampled_from([2, 3, 4, 8, 16]) if op == "PADTO" else st.integers(0, len(plan.axes) - 1))
        try:
            plan.act((op, axis, None if op in ("NOLOCALS", "BOUND") else arg))
        except ActionError:
            continue
    for load in draw(st.sets(st.integers(0, 3), max_size=3)):
        with contextlib.suppress(ActionError):
            plan.act(("PACK", load, None))
    for op, number in draw(
        st.sets(st.tuples(st.sampled_from(["NONTEMPORAL", "PREFETCH"]), st.integers(0, 2)), max_size=4)
    ):
        with contextlib.suppress(ActionError):
            plan.act((op, number, draw(st.sampled_from([64, ("rows", 1), ("rows", 3)])) if op == "PREFETCH" else None))
    return name, tuple(plan.actions)


@settings(max_examples=often(40, 2000))
@given(sequences())
@example(("strided convolution", (("PADTO", 1, 2), ("PACK", 0, None), ("PACK", 1, None))))  # loops in two orders
# masks with a closed half, wider than vectors of 32 bytes: LLVM read that half as if it were open
@example(("lower triangle", (("SWAP", 0, 0), ("PADTO", 0, 8), ("PACK", 0, None))))
@example(("normalised, with its sums", (("PACK", 1, None),)))  # two readers: a loop of one is no pass of both
# the correction of a unit's sums, outside of the loops of the rows, prefetched for one of these
@example(
    (
        "product of int8",
        (
            *(("PADTO", 1, 4), ("SPLIT", 1, (4, "UPCAST", False)), ("PADTO", 3, 4), ("TC", 3, "quads")),
            *(("PEEL", 0, (0, 1)), ("PACK", 1, None)),
        ),
    )
)
def test_blocks_filled_once_keep_results(case):
    """With frozen inputs a kernel reads its packed blocks from arguments, which another kernel of the same plan fills."""
    name, actions = case
    kernel, arrays, wanted = made(name)
    outs = {p.arg.slot for p in written(kernel)}
    slots = tuple(k for k in range(len(arrays)) if k not in outs)
    actions += tuple(("PREFETCH", n, "next") for op, n, _ in actions if op == "PACK" and TARGET.streams)
    plan = planned(node("SINK", kernel.src, KernelInfo(actions=actions, frozen=slots)), TARGET)
    kept = list(kept_blocks(plan).values())
    assert len(kept) == sum(a[0] == "PACK" for a in actions)
    blocks = [np.full(b.kept_bytes, 77, np.uint8) for b in kept]
    got = [a.copy() for a in arrays]
    if kept:
        pairs = [a for b, block in zip(kept, blocks, strict=True) for a in (block, got[b.source_slot].copy())]
        run(fill_kernel(plan), pairs, f"test/{name}/{actions}/fill")
        blocks = pairs[::2]
    for k in {b.source_slot for b in kept} - {u for u in slots if reads_beside(kernel, u, plan)}:
        got[k][:] = 99  # read no more
    changed = {k: got[k].copy() for k in slots}
    run(apply_plan(plan), [*got, *blocks], f"test/{name}/{actions}/kept")
    for p in written(kernel):
        k = p.arg.slot
        np.testing.assert_array_equal(got[k].view(p.dtype.numpy), wanted[k].view(p.dtype.numpy))
    assert all(np.array_equal(got[k], a) for k, a in changed.items())


def reads_beside(kernel, slot, plan):
    """Whether a load that is not packed reads the buffer."""
    loads = (u for u in toposort(kernel) if u.op == "LOAD" and u not in plan.packs)
    return any(p.op == "PARAM" and p.arg.slot == slot for u in loads for p in toposort(u.src[0]))


@settings(max_examples=often(40, 3000))
@given(sequences())
# the loop that the sums share became an axis of its own for the outer sum alone
@example(("two sums that share a loop", tuple(("SPLIT", *split) for split in SHARED)))
@example(
    ("scans of one row", (("PADTO", 1, 4), ("SPLIT", 1, (4, "UPCAST", False)), ("SPLIT", 0, (2, "UPCAST", False))))
)
def test_legal_actions_keep_results(case):
    name, actions = case
    kernel, arrays, wanted = made(name)
    got = [a.copy() for a in arrays]
    run(apply_actions(kernel, actions, TARGET), got, f"test/{name}/{actions}")
    for p in written(kernel):
        k = p.arg.slot
        np.testing.assert_array_equal(got[k].view(p.dtype.numpy), wanted[k].view(p.dtype.numpy))


@pytest.mark.parametrize(
    "name, unit",
    [(n, u) for n in ("product of bfloat16", "product of bfloat16 transposed") for u in UNITS if u.a is BF16]
    + [("product of int8", u) for u in UNITS if u.acc is I32],
    ids=lambda x: getattr(x, "name", x),
)
def test_a_unit_reads_operands_as_they_lie(name, unit):
    kernel, arrays, wanted = made(name)
    actions = (("SPLIT", 1, (unit.n, "UPCAST", False)), ("SPLIT", 0, (2, "UPCAST", False)), ("TC", 4, unit.name))
    got = [a.copy() for a in arrays]
    run(apply_actions(kernel, actions, TARGET), got, f"test/{name}/{unit.name}")
    for p in written(kernel):
        np.testing.assert_array_equal(got[p.arg.slot].view(p.dtype.numpy), wanted[p.arg.slot].view(p.dtype.numpy))


SELDOM_DRAWN = {  # where mutations of the compiler passed all random sequences
    "equal additions in two sections of one iteration": ("scatter with padded places", [("PEEL", 0, (1, 1, 1))]),
    "equal additions in two sections": ("scatter with padded places", [("PEEL", 0, (2, 2))]),
    "a row whose padded end is in the middle": (
        "columns of one number", [("PADTO", 0, 4), ("SPLIT", 0, (4, "UPCAST", False)), ("PEEL", 0, (1, 0))]
    ),
    "sums whose padded end is in the middle": (
        "normalised, with its sums", [("PADTO", 0, 4), ("SPLIT", 0, (4, "UPCAST", False)), ("PEEL", 0, (1, 0))]
    ),
    "sections before a padded end": (
        "row of 203", [("PADTO", 0, 4), ("SPLIT", 0, (4, "UPCAST", False)), ("PEEL", 0, (1, 1, 0))]
    ),
    "a bounded loop whose reader is unrolled": (
        "masked attention", [("SPLIT", 6, (5, "UNROLL", False)), ("BOUND", 3, None)]
    ),
    "a bounded loop that is read in lanes": (
        "masked attention", [("SPLIT", 7, (4, "GROUP_REDUCE", False)), ("BOUND", 3, None)]
    ),
    "more iterations of what was split": (
        "map", [("SPLIT", 0, (3, "UPCAST", False)), ("PADTO", 0, 4), ("SPLIT", 0, (2, "THREAD", True))]
    ),
    "more steps of a reduction that was split": (
        "column sums", [("SPLIT", 1, (2, "UNROLL", False)), ("PADTO", 1, 4), ("SPLIT", 1, (2, "REDUCE", False))]
    ),
    "steps of a lane that stand one after the other": (
        "total", [("SPLIT", 0, (6, "GROUP_REDUCE", False)), ("SPLIT", 1, (3, "UNROLL", False))]
    ),
    "threads that share out a part of a part": (
        "a rolled row",
        [("SPLIT", 0, (2, "LOOP", True)), ("SPLIT", 1, (5, "LOOP", True)), ("SPLIT", 2, (2, "THREAD", True))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SELDOM_DRAWN)
def test_actions_that_are_seldom_drawn_together_keep_results(what):
    name, actions = SELDOM_DRAWN[what]
    kernel, arrays, wanted = made(name)
    got = [a.copy() for a in arrays]
    run(apply_actions(kernel, tuple(actions), TARGET), got, f"test/{name}/{actions}")
    for p in written(kernel):
        np.testing.assert_array_equal(got[p.arg.slot].view(p.dtype.numpy), wanted[p.arg.slot].view(p.dtype.numpy))


def test_unrolled_steps_of_a_unit_add_to_what_earlier_blocks_left():
    name, unit = "product with a tail of one", next(r.unit for r in ROWS if r.unit.name == "vdpbf16ps")
    kernel, arrays, wanted = made(name)
    shaped = (("PADTO", 1, 80), ("SPLIT", 1, (16, "UPCAST", False)), ("TC", 3, unit.name))
    actions = (*shaped, ("SPLIT", 3, (4, "UNROLL", False)), ("SPLIT", 3, (2, "LOOP", True)))
    got = [a.copy() for a in arrays]
    run(apply_actions(kernel, actions, TARGET), got, f"test/{name}/unrolled blocks")
    for p in written(kernel):
        np.testing.assert_array_equal(got[p.arg.slot].view(p.dtype.numpy), wanted[p.arg.slot].view(p.dtype.numpy))


GROUPS = [("SPLIT", 1, (4, "LOOP", True)), ("SPLIT", 2, (3, "LOOP", True))]


@pytest.mark.parametrize(
    "name, actions",
    [
        ("half sums", [("SPLIT", 1, (2, "LOOP", True)), ("PEEL", 0, (1, 1))]),
        ("columns", [*GROUPS, ("PADTO", 0, 4), ("SPLIT", 0, (4, "UPCAST", False)), ("PEEL", 0, (0, 1))]),
        ("columns", [*GROUPS, ("SPLIT", 0, (2, "THREAD", True)), ("SPLIT", 4, (2, "UNROLL", False))]),
        ("columns", [*GROUPS, ("SPLIT", 0, (4, "LOOP", True))]),
        ("columns", [GROUPS[0], ("SPLIT", 0, (4, "LOOP", True)), ("SPLIT", 3, (3, "LOOP", True))]),
        ("scaled columns", GROUPS),
        ("total", [("SPLIT", 0, (3, "LOOP", True)), ("SPLIT", 1, (4, "LOOP", True))]),
    ],
)
def test_sums_of_blocks_wait_for_their_group(name, actions):
    kernel, arrays, wanted = made(name)
    plan = LoopPlan(kernel, TARGET)
    got = [a.copy() for a in arrays]
    for a in actions:
        plan.act(a)
    assert sum(p.is_block and p.root in plan.reduced for p in plan.axes) >= 1
    run(apply_actions(kernel, tuple(actions), TARGET), got, f"test/{name}/{actions}")
    for p in written(kernel):
        np.testing.assert_array_equal(got[p.arg.slot].view(p.dtype.numpy), wanted[p.arg.slot].view(p.dtype.numpy))


def test_what_is_packed_of_a_padded_sum_is_zero_beyond_its_end():
    """The rows of a matrix lie on one line: what is beyond the end of one is the beginning of the next."""
    kernel, arrays, wanted = made("two reductions")
    actions = (("PADTO", 1, 16), ("SPLIT", 1, (16, "GROUP_REDUCE", False)), ("PACK", 0, None))
    got = [a.copy() for a in arrays]
    run(apply_actions(kernel, actions, TARGET), got, "test/packed rows")
    for p in written(kernel):
        np.testing.assert_array_equal(got[p.arg.slot].view(p.dtype.numpy), wanted[p.arg.slot].view(p.dtype.numpy))


@st.composite
def walks(draw, names=tuple(PROGRAMS)):
    """(program, actions) as a search makes them: extensions and edits, one after the other."""
    name = draw(st.sampled_from(names))
    kernel, actions = made(name)[0], ()
    if draw(st.booleans()):
        plan = LoopPlan(kernel, TARGET)
        choose(plan)
        actions = tuple(plan.actions)
    for _ in range(draw(st.integers(1, 3))):
        step = draw(st.sampled_from([extensions, edits]))
        actions = draw(st.sampled_from([actions, *step(kernel, TARGET, actions)]))
    return name, actions


@settings(max_examples=often(24, 1000))
@given(walks())
def test_what_a_search_tries_keeps_results(case):
    name, actions = case
    kernel, arrays, wanted = made(name)
    got = [a.copy() for a in arrays]
    run(apply_actions(kernel, actions, TARGET), got, f"test/{name}/{actions}")
    for p in written(kernel):
        k = p.arg.slot
        np.testing.assert_array_equal(got[k].view(p.dtype.numpy), wanted[k].view(p.dtype.numpy))


@given(sequences(most=4))
def test_a_refused_action_changes_nothing(case):
    name, actions = case
    plan = LoopPlan(made(name)[0], TARGET)
    for a in actions:
        plan.act(a)
    before = [vars(p).copy() for p in plan.axes], dict(plan.padded), list(plan.actions)
    for bad in (("SPLIT", 0, (7919, "UPCAST", False)), ("SWAP", 0, 99), ("SPLIT", 99, (2, "LOOP", True)), ("X", 0, 0)):
        with pytest.raises(ActionError):
            plan.act(bad)
    assert before == ([vars(p) for p in plan.axes], plan.padded, plan.actions)


@pytest.mark.sweep
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_heuristic_is_a_sequence_like_any_other(name):
    kernel, arrays, wanted = made(name)
    chosen = apply(choose_actions(kernel, TARGET), TARGET)
    assert apply_actions(kernel, chosen.arg.actions, TARGET) is chosen
    got = [a.copy() for a in arrays]
    run(chosen, got, f"test/{name}/chosen")
    for p in written(kernel):
        np.testing.assert_array_equal(got[p.arg.slot].view(p.dtype.numpy), wanted[p.arg.slot].view(p.dtype.numpy))


# ---- what is refused -------------------------------------------------------------------------------------------------
REFUSED = {
    "no such action": ("map", [("TILE", 0, 2)], "unknown action"),
    "no such axis": ("map", [("SPLIT", 9, (2, "UPCAST", False))], "no such axis"),
    "an axis that is no number": ("map", [("PADTO", "x", 2)], "no such axis"),
    "no such unit": ("product of bfloat16", [("TC", 2, "sixes")], "TC on test"),
    "a unit along an output": ("product of bfloat16", [("TC", 0, "pairs")], "only sum"),
    "a unit for a part of its steps": ("odd product of bfloat16", [("TC", 2, "pairs")], "multiple of 2 steps"),
    "a unit for blocks of unequal size": (
        "odd product of bfloat16", [("SPLIT", 2, (4, "LOOP", True)), ("TC", 3, "pairs")], "one size"),
    "a unit for a maximum": ("maximum", [("TC", 1, "pairs")], "sum of products"),
    "a unit for two sums": ("two reductions", [("TC", 1, "pairs")], "only sum"),
    "a unit without lanes": ("product of bfloat16", [("TC", 2, "pairs")], "vector lanes"),
    "a unit with too many lanes": (
        "product of bfloat16", [("SPLIT", 1, (8, "UPCAST", False)), ("TC", 3, "pairs")], "4 lanes"),
    "a unit with too few rows": (
        "product of bfloat16", [("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "tiles of pairs")], "2 rows"),
    "a unit of another type": (
        "product of bfloat16", [("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "quads")], "bfloat16"),
    "sums in the lanes of a unit": (
        "product of bfloat16",
        [("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "pairs"), ("SPLIT", 3, (2, "GROUP_REDUCE", False))], "lanes that add"),
    "a unit for floats": ("matmul", [("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "pairs")], "converted"),
    "a unit twice": (
        "product of bfloat16",
        [("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "pairs"), ("TC", 3, "pairs")], "once"),
    "no such target": ("map", [("SPLIT", 0, (2, "SIDEWAYS", False))], "SPLIT target"),
    "a reduction as UPCAST": ("row sums", [("SPLIT", 1, (2, "UPCAST", False))], "SPLIT to UPCAST"),
    "an output as UNROLL": ("row sums", [("SPLIT", 0, (2, "UNROLL", False))], "SPLIT to UNROLL"),
    "an output as GROUP_REDUCE": ("row sums", [("SPLIT", 0, (2, "GROUP_REDUCE", False))], "SPLIT to GROUP_REDUCE"),
    "an outer UPCAST": ("map", [("SPLIT", 0, (2, "UPCAST", True))], "SPLIT to UPCAST"),
    "a part of what threads take in turns": (
        "map", [("SPLIT", 0, (2, "THREAD", False)), ("SPLIT", 1, (2, "UPCAST", False))], "round-robin"),
    "ends of what threads take in turns": ("map", [("SPLIT", 0, (2, "THREAD", False)), ("PEEL", 1, (1, 0))], "round-robin"),
    "LOCAL without workgroups": ("map", [("SPLIT", 0, (2, "LOCAL", False))], "SPLIT to LOCAL"),
    "GLOBAL without workgroups": ("map", [("SPLIT", 0, (2, "GLOBAL", True))], "SPLIT to GLOBAL"),
    "a factor of 0": ("map", [("SPLIT", 0, (0, "UPCAST", False))], "SPLIT factor"),
    "a factor beyond the axis": ("map", [("SPLIT", 0, (1000, "UPCAST", False))], "SPLIT factor"),
    "a factor that is no divisor": ("map", [("SPLIT", 0, (5, "UPCAST", False))], "PADTO first"),
    "a clipped part": ("map", [("SPLIT", 0, (4, "LOOP", True)), ("SPLIT", 1, (2, "UPCAST", False))], "clipped"),
    "the outer part of a clipped axis": (
        "map", [("SPLIT", 0, (4, "LOOP", True)), ("SPLIT", 0, (2, "LOOP", False))], "clipped"),
    "swapping the parts of a scan": ("scan", [("SPLIT", 1, (2, "LOOP", False)), ("SWAP", 1, 2)], "independent"),
    "lanes of a scan that are not side by side": (
        "scan", [("SPLIT", 1, (2, "LOOP", False)), ("SPLIT", 1, (5, "UPCAST", False))], "SPLIT to UPCAST"),
    "lanes of lanes of a scan": (
        "scan", [("SPLIT", 1, (5, "UPCAST", False)), ("SPLIT", 1, (2, "UPCAST", False))], "SPLIT to UPCAST"),
    "a scan of a table as UPCAST": ("counts", [("SPLIT", 2, (2, "UPCAST", False))], "SPLIT to UPCAST"),
    "a scan as THREAD": ("scan", [("SPLIT", 1, (2, "THREAD", True))], "SPLIT to THREAD"),
    "two THREADs": ("matmul", [("SPLIT", 0, (2, "THREAD", True)), ("SPLIT", 1, (2, "THREAD", True))], "THREAD"),
    "more threads than there are": ("transpose", [("SPLIT", 0, (10, "THREAD", True))], "at most 8"),
    "turns of an inner part": (
        "transpose", [("SPLIT", 0, (2, "LOOP", True)), ("SPLIT", 1, (5, "THREAD", False))], "outermost part"),
    "a block of what one thread takes": (
        "transpose", [("SPLIT", 0, (1, "THREAD", False)), ("SPLIT", 1, (2, "LOOP", True))], "take round-robin"),
    "a unit for rows of one number": (
        "rows of one number", [("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "quads")], "move along the sum"),
    "a unit for columns of one number": (
        "columns of one number", [("SPLIT", 1, (4, "UPCAST", False)), ("TC", 3, "quads")], "move along the sum"),
    "a THREAD inside a reduction": ("normalised, with its sums", [("SPLIT", 1, (2, "THREAD", True))], "encloses"),
    "an inner block of a reduction": ("total", [("SPLIT", 0, (2, "LOOP", False))], "reduction to LOOP"),
    "a block out of other loops": (
        "normalised, with its sums", [("SPLIT", 1, (2, "LOOP", True))], "outermost"),
    "swapping a block": ("matmul", [("SPLIT", 0, (2, "LOOP", True)), ("SWAP", 0, 2)], "blocks"),
    "packing no load": ("matmul", [("PACK", 7, None)], "no such load"),
    "packing twice": ("matmul", [("PACK", 1, None), ("PACK", 1, None)], "without PACK or PREFETCH"),
    "a split of what is packed": ("matmul", [("PACK", 1, None), ("SPLIT", 0, (2, "LOOP", True))], "after PACK"),
    "packing between the blocks of an inner part": (
        "transpose", [("SPLIT", 0, (2, "LOOP", False)), ("SPLIT", 1, (2, "LOOP", True)), ("PACK", 0, None)], "outer part"),
    "packing for a scan": ("scan", [("PACK", 0, None)], "a scan"),
    "packing rows found in memory": ("gather", [("PACK", 0, None)], "linear in the loops"),
    "peeling a reduction": ("row sums", [("PEEL", 1, (1, 0))], "an output loop"),
    "peeling nothing": ("pad", [("PEEL", 0, (0, 0))], "some, not all"),
    "peeling all": ("pad", [("PEEL", 0, (4, 4))], "some, not all"),
    "peeling no pair": ("pad", [("PEEL", 0, 1)], "some, not all"),
    "peeling sections of more than all": ("pad", [("PEEL", 0, (3, 2, 3, 1))], "some, not all"),
    "peeling a vector": ("pad", [("SPLIT", 1, (3, "UPCAST", False)), ("PEEL", 2, (1, 1))], "an output loop"),
    "peeling a block": ("pad", [("SPLIT", 0, (2, "LOOP", True)), ("PEEL", 0, (1, 0))], "no block"),
    "peeling an inner part": ("pad", [("SPLIT", 0, (2, "LOOP", False)), ("PEEL", 1, (1, 0))], "outer part"),
    "peeling a scan": ("scan", [("PEEL", 0, (1, 0))], "memory of its own"),
    "peeling around stages": ("attention", [("PEEL", 0, (1, 0))], "memory of its own"),
    "peeling at no mask": ("pad", [("PEEL", 1, ("mask", 0))], "at a mask"),
    "peeling the rows of a mask": ("lower triangle", [("PEEL", 0, ("mask", 0))], "moves with the loops around"),
    "peeling at a mask of a tile": (
        "lower triangle", [("SPLIT", 0, (3, "UPCAST", False)), ("PEEL", 2, ("mask", 0))], "loops around"),
    "a split after peeling at a mask": (
        "lower triangle", [("PEEL", 1, ("mask", 0)), ("SPLIT", 0, (3, "UPCAST", False))], "at a mask"),
    "peeling all behind a mask": ("lower triangle", [("PEEL", 1, ("mask", 24))], "some, not all"),
    "peeling three loops": (
        "convolution", [("PEEL", 0, (1, 1)), ("PEEL", 1, (1, 1)), ("PEEL", 2, (1, 1))], "9 copies"),
    "a split of what is peeled": ("pad", [("PEEL", 0, (1, 1)), ("SPLIT", 0, (2, "UPCAST", False))], "peeled axis"),
    "padding what is peeled": ("pad", [("PEEL", 0, (1, 1)), ("PADTO", 0, 3)], "peeled axis"),
    "peeling twice": ("pad", [("PEEL", 0, (1, 1)), ("PEEL", 0, (1, 1))], "peeled axis"),
    "a bound without a mask": ("attention", [("BOUND", 3, None)], "BOUND"),
    "a bound of a loop around": ("masked attention", [("BOUND", 1, None)], "masked softmax"),
    "a stage as THREAD": ("attention", [("SPLIT", 3, (2, "THREAD", True))], "THREAD"),
    "a stage around the rows": ("attention", [("SPLIT", 3, (2, "LOOP", True))], "outermost"),
    "packing a stage": ("attention", [("PACK", 0, None)], "memory it writes"),
    "streaming no store": ("map", [("NONTEMPORAL", 1, None)], "no such store"),
    "streaming one element at a time": ("map", [("NONTEMPORAL", 0, None)], "vectors of 16 bytes"),
    "streaming vectors of 8 bytes": ("map", [("SPLIT", 1, (2, "UPCAST", False)), ("NONTEMPORAL", 0, None)], "16 bytes"),
    "streaming across lines": ("a slice", [("SPLIT", 0, (4, "UPCAST", False)), ("NONTEMPORAL", 0, None)], "multiples of 4"),
    "streaming behind a gate": ("row of 5", [("PADTO", 0, 8), ("SPLIT", 0, (4, "UPCAST", False)), ("NONTEMPORAL", 0, None)], "always"),
    "streaming a sum of blocks": ("column sums", [("SPLIT", 1, (4, "LOOP", True)), ("SPLIT", 0, (4, "UPCAST", False)), ("NONTEMPORAL", 0, None)], "happens once"),
    "streaming twice": ("map", [("SPLIT", 1, (4, "UPCAST", False)), ("NONTEMPORAL", 0, None), ("NONTEMPORAL", 0, None)], "without a flag"),
    "streaming to places that are computed": ("scatter", [("NONTEMPORAL", 0, None)], "plain STORE"),
    "a split after streaming": ("map", [("SPLIT", 1, (4, "UPCAST", False)), ("NONTEMPORAL", 0, None), ("SPLIT", 0, (2, "THREAD", True))], "after PACK"),
    "fetching no load": ("map", [("PREFETCH", 2, 64)], "no such load"),
    "fetching backwards": ("map", [("PREFETCH", 0, -64)], "PREFETCH distance"),
    "fetching one element at a time": ("map", [("PREFETCH", 0, 64)], "a load of vectors"),
    "fetching what is packed": ("matmul", [("PACK", 1, None), ("PREFETCH", 1, 64)], "a plain LOAD"),
    "fetching the next of what is packed each time": ("matmul", [("PACK", 1, None), ("PREFETCH", 1, "next")], "packed once"),
    "fetching no rows": ("map", [("SPLIT", 1, (4, "UPCAST", False)), ("PREFETCH", 0, ("rows", 1))], "an index in memory names"),
    "fetching rows backwards": ("gather", [("SPLIT", 1, (4, "UPCAST", False)), ("PREFETCH", 0, ("rows", -1))], "PREFETCH distance"),
    "fetching rows one element at a time": ("gather", [("PREFETCH", 0, ("rows", 1))], "vectors of rows"),
    "fetching rows of a tile": (
        "gather", [("SPLIT", 0, (3, "UPCAST", False)), ("SPLIT", 2, (4, "UPCAST", False)), ("PREFETCH", 0, ("rows", 1))], "one loop"),
    "groups of groups": (
        "total", [("SPLIT", 0, (3, "LOOP", True)), ("SPLIT", 1, (2, "LOOP", True)), ("SPLIT", 2, (2, "LOOP", True))], "reduction to LOOP"),
    "groups whose sums the result cannot hold": (
        "half sums", [("SPLIT", 1, (2, "LOOP", True)), ("SPLIT", 2, (2, "LOOP", True))], "partial sums"),
    "a block of a maximum": ("maximum", [("SPLIT", 1, (2, "LOOP", True))], "reduction to LOOP"),
    "blocks of two reductions": ("two reductions", [("SPLIT", 1, (2, "LOOP", True))], "reduction to LOOP"),
    "a block that partial sums cannot hold": (
        "half sums", [("NOLOCALS", None, None), ("SPLIT", 1, (2, "LOOP", True))], "partial sums"),
    "no local memory for partial sums": (
        "half sums", [("SPLIT", 1, (2, "LOOP", True)), ("NOLOCALS", None, None)], "partial sums"),
    "a block outside the innermost loop": ("scaled", [("SPLIT", 2, (2, "LOOP", True))], "innermost"),
    "added rows as THREAD": ("rows added", [("SPLIT", 0, (2, "THREAD", True))], "SPLIT to THREAD"),
    "places of one histogram as THREAD": ("histograms", [("SPLIT", 1, (2, "THREAD", True))], "SPLIT to THREAD"),
    "a loop with a table of its own as UPCAST": ("counts", [("SPLIT", 1, (2, "UPCAST", False))], "SPLIT to UPCAST"),
    "padding twice": ("map", [("PADTO", 0, 5), ("PADTO", 0, 7)], "PADTO"),
    "padding an inner part": ("map", [("SPLIT", 0, (2, "UPCAST", False)), ("PADTO", 1, 3)], "PADTO after SPLIT"),
    "padding what is cut unequally": ("map", [("SPLIT", 0, (5, "LOOP", True)), ("PADTO", 0, 3)], "PADTO after SPLIT"),
    "blocks inside of a scan": (
        "running sums of a product", [("SPLIT", 0, (6, "LOOP", False)), ("SPLIT", 1, (2, "LOOP", True))], "outer part of a scan"),
    "padding to 1": ("map", [("PADTO", 0, 1)], "PADTO"),
    "padding what may hit a place twice": ("rows added", [("PADTO", 0, 5)], "PADTO"),
    "swapping with no axis": ("matmul", [("SWAP", 0, 9)], "SWAP"),
    "swapping an output with a reduction": ("matmul", [("SWAP", 0, 2)], "SWAP"),
    "swapping a thread": ("matmul", [("SPLIT", 0, (2, "THREAD", True)), ("SWAP", 0, 2)], "SWAP"),
    "a clipped part outside its outer part": ("matmul", [("SPLIT", 0, (3, "LOOP", True)), ("SWAP", 0, 1)], "blocks"),
    "an outer loop inside a reduction's": ("normalised, with its sums", [("SWAP", 0, 1)], "outermost"),
}  # fmt: skip
PROGRAMS |= {
    "rows of one number": lambda: narrow(I8, 6, 1).expand(6, 8).int() @ narrow(I8, 8, 4).int(),
    "columns of one number": lambda: narrow(I8, 6, 8).int() @ narrow(I8, 1, 4).expand(8, 4).int(),
    "columns": lambda: whole(48, 14).sum(0),
    "scaled columns": lambda: whole(48, 14).sum(0) * 2 + 1,
    "half sums": lambda: whole(6, 20).sum(1).cast(dtypes.float16),
    "a slice": lambda: assigned(whole(12) * 2, slice(1, 9), whole(8)),
    "row of 5": lambda: whole(5) + 1,
    "row of 203": lambda: whole(203) + 1,
    "depthwise": lambda: whole(1, 2, 6, 64).conv2d(whole(2, 1, 3, 3), padding=1, groups=2),
    "strided pool": lambda: whole(2, 10, 128).max_pool2d(3, 2, 1),
    "scaled": lambda: whole(4, 6) * whole(4, 10).sum(1, keepdim=True),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    name, actions, reason = REFUSED[case]
    plan = LoopPlan(made(name)[0], TARGET)
    for a in actions[:-1]:
        plan.act(a)
    with pytest.raises(ActionError, match=reason) as e:
        plan.act(actions[-1])
    assert e.value.expected is not None and e.value.found is not None


def test_what_is_taken_in_turns_is_no_vector_then_of_symbolic_size_either():
    """Its iterations are counted in single elements: vectors would go on behind the end."""
    sink, _, _ = over_params([(whole(512)[: Variable("n", 1, 8) * 64] + 1).uop])
    call = schedule(list(sink.src), "cpu", TARGET.local_bytes).linear.src[-1]
    for threads in (1, 2):
        plan = LoopPlan(merge_ranges(simplify_loops(call.src[0], TARGET), TARGET), TARGET)
        plan.act(("SPLIT", 0, (threads, "THREAD", False)))
        with pytest.raises(ActionError, match="take round-robin"):
            plan.act(("SPLIT", 1, (16, "UPCAST", False)))


def test_what_finishes_sums_of_blocks_is_not_packed():
    refused = []
    for load in range(3):  # of both factors and of what is added, in the order of their making
        plan = LoopPlan(made("matmul")[0], TARGET)
        plan.act(("SPLIT", 2, (4, "LOOP", True)))
        try:
            plan.act(("PACK", load, None))
        except ActionError as e:
            refused.append(e)
    assert len(refused) == 1 and refused[0].expected == "a load that the sum uses"


def test_streams_need_a_target_that_has_them():
    plan = LoopPlan(made("map")[0], TARGET._replace(streams=False))
    plan.act(("SPLIT", 1, (4, "UPCAST", False)))
    for action in (("NONTEMPORAL", 0, None), ("PREFETCH", 0, 64)):
        with pytest.raises(ActionError, match="expected: a target with stores past its caches"):
            plan.act(action)


def test_packing_needs_local_memory():
    plan = LoopPlan(made("matmul")[0], TARGET._replace(local_bytes=0))
    with pytest.raises(ActionError, match="too large") as e:
        plan.act(("PACK", 1, None))
    assert e.value.expected == "<= 0" and e.value.found >= 640


@pytest.mark.parametrize(
    ("name", "axis"), [("rows added", 1), ("histograms", 0), ("counts", 1), ("moves", 1), ("moves", 2)]
)
def test_what_owns_its_places_may_be_a_thread(name, axis):
    LoopPlan(made(name)[0], TARGET).act(("SPLIT", axis, (2, "THREAD", True)))


def test_rows_of_a_stage_lie_side_by_side():
    """A loop around that becomes shape gives the buffer a row for each lane; others do not."""
    kernel = made("attention")[0]
    sizes = [b.shape for b in toposort(kernel) if b.op == "BUFFER"]
    assert sizes == [(10,), (10,)]  # scores, and their squared distances
    out = apply_actions(kernel, (("SPLIT", 1, (4, "UPCAST", False)), ("SPLIT", 0, (2, "THREAD", True))), TARGET)
    assert {b.shape for b in toposort(out) if b.op == "BUFFER"} == {(4 * 16,)}


def test_a_bounded_loop_ends_behind_the_last_row_of_its_tile():
    kernel = made("masked attention")[0]
    plan = LoopPlan(kernel, TARGET)
    own = next(iter(plan.scratch.fills.values())).src[1]
    actions = (("BOUND", plan.axis_of(own), None), ("SPLIT", 1, (4, "UPCAST", False)))
    out = apply_actions(kernel, actions, TARGET)
    products = [u for u in toposort(out) if u.op == "END" and plan.size(u.src[-1]) == 0]
    assert [min_max(r.src[0]) for u in products for r in u.src[1:]] == [(4, 12)] * 2  # of 20: scores, exponentials


@pytest.mark.parametrize("thread", [(), (("SPLIT", 0, (2, "THREAD", True)),)], ids=["alone", "in shares"])
def test_the_middle_of_a_peeled_loop_asks_nothing(thread):
    """Whole vectors have no mask, whichever thread has the last; the tail has one."""
    vectors = (("PADTO", 0, 4), ("SPLIT", 0, (4, "UPCAST", False)))
    for last, masked in ((0, [True]), (1, [False, True])):
        peel = (("PEEL", len(thread), (0, last)),) if last else ()
        out = apply_actions(made("row of 203")[0], (*vectors, *thread, *peel), TARGET)
        assert sorted(len(u.src) == 3 for u in toposort(out) if u.op == "STORE") == masked


def test_most_of_a_triangle_asks_nothing():
    """Rows are copied up to the edge, zeros behind it; what lies on it is masked, and is one vector."""
    kernel = made("lower triangle")[0]
    vectors = (("SPLIT", 1, (4, "UPCAST", False)), ("SPLIT", 0, (2, "THREAD", True)))
    out = apply_actions(kernel, (*vectors, ("PEEL", 2, ("mask", 0))), TARGET)
    stores = [u for u in toposort(out) if u.op == "STORE"]
    found = [[sum(v.op == op for v in toposort(u.src[1])) for op in ("LOAD", "WHERE")] for u in stores]
    assert sorted(found) == [[0, 0], [1, 0], [1, 1]]


@pytest.mark.parametrize("thread", [(), (("SPLIT", 0, (2, "THREAD", True)),)], ids=["alone", "in shares"])
def test_each_piece_of_a_rolled_row_is_one_load(thread):
    """Whichever thread has the seam: but for the vector in which it is, nothing is masked."""
    peel = ("PEEL", len(thread), (7, 1, 0))  # more than a share has
    out = apply_actions(made("a rolled row")[0], (("SPLIT", 0, (4, "UPCAST", False)), *thread, peel), TARGET)
    loads = [[len(v.src) for v in toposort(u.src[1]) if v.op == "LOAD"] for u in toposort(out) if u.op == "STORE"]
    assert sorted(loads) == [[1], [1], [3, 3]]


@pytest.mark.parametrize(
    ("name", "ends"), [("row of 203", (0, 1)), ("depthwise", (1, 1)), ("strided pool", (1, 0)), ("map", None)]
)
def test_the_heuristic_peels_the_ends_that_a_border_needs(name, ends):
    plan = LoopPlan(made(name)[0], TARGET)
    choose(plan)
    assert [arg for op, _, arg in plan.actions if op == "PEEL"] == ([ends] if ends else [])


def test_borders_of_a_padded_tensor_are_constants():
    out = apply_actions(made("pad")[0], (("PEEL", 1, (1, 2)), ("PEEL", 0, (3, 0))), TARGET)
    loads = [u for u in toposort(out) if u.op == "LOAD"]
    assert len(out.src) == 6 and len(loads) == 1 and len(loads[0].src) == 1


def test_values_stay_small():
    plan = LoopPlan(made("matmul")[0], TARGET)
    for a in (("SPLIT", 1, (16, "UPCAST", False)), ("SPLIT", 0, (8, "UPCAST", False))):
        plan.act(a)
    with pytest.raises(ActionError, match="too large"):
        plan.act(("SPLIT", 4, (20, "UNROLL", False)))


def test_workgroups_split_where_there_are_some():
    plan = LoopPlan(made("matmul")[0], GPU)
    plan.act(("SPLIT", 0, (8, "GLOBAL", False)))
    plan.act(("SPLIT", 1, (4, "LOCAL", False)))
    assert [p.type for p in plan.axes][:3] == ["LOOP", "GLOBAL", "LOCAL"]
    assert apply_plan(plan).arg.actions == tuple(plan.actions)


def test_a_kernel_written_with_vectors_is_shared_out_and_no_more():
    """A sorting network's values have shape already: lanes of the optimizer's would be taken for its own."""
    rows = Sorting(600, 32, dtypes.int32, False, False, 32)
    sort = lower_kernel(network.kernel(rows, network.block_of(32, 16, 16), "null"), TARGET, last="merge_ranges")
    plan = LoopPlan(sort, TARGET)
    with pytest.raises(ActionError, match="one written with vectors"):
        plan.act(("SPLIT", 0, (2, "UPCAST", False)))
    plan.act(("SPLIT", 0, (2, "THREAD", True)))
    for actions in (*edits(sort, TARGET, ()), *extensions(sort, TARGET, ())):
        lower_kernel(apply_actions(sort, actions, TARGET), TARGET, first="device_axes")
