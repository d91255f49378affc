"""Optimizer actions: any legal sequence keeps what a kernel computes; an illegal one is refused with its reason."""

import contextlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monolect import ActionError, Tensor, dtypes
from monolect.backend.base import launching
from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.backend.cpu.units import ROWS
from monolect.backend.registry import Device
from monolect.base.target import MatrixUnit, Target
from monolect.graphs.radix_sort import _radix_pass
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


@settings(max_examples=often(20, 2000))
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


@settings(max_examples=often(20, 3000))
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


@pytest.mark.sweep
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


@pytest.mark.sweep
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


@pytest.mark.sweep
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


@settings(max_examples=often(12, 1000))
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
