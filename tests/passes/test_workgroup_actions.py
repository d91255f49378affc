"""Actions on a target with workgroups: legal sequences keep what a kernel computes, whatever order the lanes run in."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import ActionError, Tensor, dtypes
from monolect.backend.python.interpret import Kernel
from monolect.backend.python.runtime import GPU
from monolect.ir.ops import LoadArg
from monolect.ir.uop import UOp, substitute, toposort
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.actions.split import SPLIT_RULES
from monolect.optimize.apply import apply, apply_actions, apply_plan, choose_actions
from monolect.optimize.merge import merge_ranges
from monolect.pipeline import lower_kernel, schedule
from monolect.rules.loops.reductions import simplify_loops
from monolect.schedule.callify import over_params
from tests.passes.test_actions import PROGRAMS, whole, written
from tests.strategies import often

PROGRAMS = PROGRAMS | {
    "long rows": lambda: whole(3, 300).sum(1),
    "rows by their sums": lambda: (x := whole(4, 8)) * x.sum(1, keepdim=True),
}
MADE: dict[str, tuple[UOp, list, list]] = {}


def made(name):
    """The last kernel of a program, ready for actions, arrays for its buffers, and what they hold after it ran."""
    if name not in MADE:
        out = PROGRAMS[name]()
        outs = out if isinstance(out, list) else [out]
        sink, bound, _ = over_params([t.uop for t in outs])
        stages = 1 << 20 if name.endswith("attention") else 0
        calls = [
            (merge_ranges(simplify_loops(c.src[0], GPU), GPU), c.src[1:])
            for c in schedule(list(sink.src), "python", stages).linear.src
        ]
        memory = {}
        for _, args in calls:
            for b in args:
                n = b.dtype.itemsize * int(np.prod(b.shape))
                if b.op == "PARAM":
                    memory[b] = bound[b.arg.slot].storage.view("u1")[:n].copy()
                else:
                    memory.setdefault(b, np.full(n, 77, np.uint8))
        for k, args in calls[:-1]:
            run(apply_actions(k, (), GPU), [memory[b] for b in args])
        kernel, args = calls[-1]
        arrays = [memory[b].copy() for b in args]
        wanted = [a.copy() for a in arrays]
        run(apply_actions(kernel, (), GPU), wanted)
        MADE[name] = kernel, arrays, wanted
    return MADE[name]


def in_place():
    """Rows times their sums, written over what is read."""
    kernel = made("rows by their sums")[0]
    a, b = sorted((u for u in toposort(kernel) if u.op == "PARAM"), key=lambda u: u.arg.slot)
    return substitute(kernel, {b: a})


def run(kernel, arrays, backwards=False):
    """Lower `kernel`, whose actions are done, and run it lane by lane on the arrays, in place."""
    program = Kernel(lower_kernel(kernel, GPU, first="device_axes"), "test", backwards)
    program.run([a.ctypes.data for a in arrays])


def check(name, kernel):
    """The results of `kernel` are those of the program, in whichever order lanes run between barriers."""
    _, arrays, wanted = made(name)
    for backwards in (False, True):
        got = [a.copy() for a in arrays]
        run(kernel, got, backwards)
        for p in written(kernel):
            a, b = (x[p.arg.slot].view(p.dtype.numpy) for x in (got, wanted))
            np.testing.assert_array_equal(a, b)


@st.composite
def sequences(draw, names=tuple(PROGRAMS), most=7):
    """(program, legal actions): each is drawn, and dropped if the plan refuses it."""
    name = draw(st.sampled_from(names))
    plan = LoopPlan(made(name)[0], GPU)
    types = [*sorted(SPLIT_RULES), "GLOBAL", "LOCAL", "LOCAL", "GROUP_REDUCE", "GROUP_REDUCE"]
    for _ in range(draw(st.integers(1, most))):
        if not plan.axes:
            break
        axis = draw(st.integers(0, len(plan.axes) - 1))
        op = draw(st.sampled_from(["SPLIT"] * 8 + ["PADTO", "SWAP", "BOUND"]))
        if op == "SPLIT":
            n = plan.axes[axis].size
            fits = [k for k in range(1, n + 1) if n % k == 0] or [1]
            arg = (draw(st.sampled_from(fits)), draw(st.sampled_from(types)), draw(st.booleans()))
        else:
            arg = draw(st.sampled_from([2, 3, 4, 8, 16]) if op == "PADTO" else st.integers(0, len(plan.axes) - 1))
        with contextlib.suppress(ActionError):
            plan.act((op, axis, None if op == "BOUND" else arg))
    for load in draw(st.sets(st.integers(0, 3), max_size=3)):
        with contextlib.suppress(ActionError):
            plan.act(("PACK", load, draw(st.sampled_from([None, 2]))))
    return name, tuple(plan.actions)


@settings(max_examples=often(12, 2000))
@given(sequences())
def test_legal_actions_keep_results(case):
    name, actions = case
    check(name, apply_actions(made(name)[0], actions, GPU))


@pytest.mark.sweep
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_heuristic_is_a_sequence_like_any_other(name):
    kernel = made(name)[0]
    chosen = apply(choose_actions(kernel, GPU), GPU)
    assert apply_actions(kernel, chosen.arg.actions, GPU) is chosen
    check(name, chosen)


LARGER = {  # several workgroups, steps and copies that do not divide
    "tiles": lambda: whole(40, 70) @ whole(70, 50),
    "tiles of transposes": lambda: whole(33, 40).T @ whole(36, 33).T,
    "tiles of images": lambda: whole(1, 4, 12, 12).conv2d(whole(8, 4, 3, 3), padding=1),
    "batches": lambda: whole(3, 16, 24) @ whole(3, 24, 20),
    "squares": lambda: whole(70, 40).T + whole(40, 70),
    "long rows and their sums": lambda: (x := whole(4, 600)) * x.sum(1, keepdim=True),
    "long columns": lambda: whole(300, 48).sum(0),
    "sums of planes": lambda: whole(3, 5, 100).sum((0, 2)),
    "vector times matrix": lambda: whole(1, 100) @ whole(100, 130),
    "half vectors": lambda: whole(4096).cast(dtypes.float16) * 2,
    "largest and their places": lambda: (t := whole(3, 40).topk(5)).values * 64 + t.indices,
    "additions": lambda: Tensor.zeros(20).scatter_add(0, Tensor(np.arange(700) * 7 % 20), whole(700)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", LARGER)
def test_larger_kernels_and_the_heuristic(name, monkeypatch):
    monkeypatch.setitem(PROGRAMS, name, LARGER[name])
    check(name, apply(choose_actions(made(name)[0], GPU), GPU))


@settings(max_examples=settings().max_examples // 2)
@given(
    st.sampled_from([1, 2, 5]), st.sampled_from([2, 3, 4, 7]), st.sampled_from(["both", "one", "other"]),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_blocks_in_turns(each, steps, which, padded, by_itself):
    """Two blocks of each operand, one BARRIER a step: an odd and an even number of steps, and a sum that is padded; by
    way of registers, or to the other block at once, where nothing is masked.
    """
    target = GPU._replace(async_copies=by_itself)
    name = f"steps {each} {steps} {padded}"
    k = each * steps - (padded and each > 1)
    PROGRAMS[name] = lambda: whole(8, k) @ whole(k, 16)
    kernel = made(name)[0]
    plan = LoopPlan(kernel, target)
    for a in ([("PADTO", 2, each)] if k % each else []) + [
        ("SPLIT", 2, (steps, "REDUCE", True)), ("SPLIT", 1, (4, "UPCAST", False)), ("SPLIT", 1, (2, "LOCAL", False)),
        ("SPLIT", 0, (4, "LOCAL", False)), ("SPLIT", 2, (2, "GLOBAL", True)), ("SPLIT", 0, (2, "GLOBAL", True)),
        ("PACK", 0, 2 if which != "other" else None), ("PACK", 1, 2 if which != "one" else None),
    ]:  # fmt: skip
        plan.act(a)
    out = apply_plan(plan)
    linear = lower_kernel(out, target, first="device_axes").src
    assert sum(u.op == "BARRIER" for u in linear) == (1 if which == "both" else 2)
    flying = sum(u.op == "LOAD" and u.arg == LoadArg(pipelined="async") for u in linear)
    assert by_itself or not flying
    if each == 1:  # single elements need not lie side by side in both
        assert flying == (0 if not by_itself else 4 if which == "both" else 2)
    check(name, out)


# ---- what is refused -------------------------------------------------------------------------------------------------
STEPS = [("SPLIT", 2, (2, "REDUCE", True)), ("SPLIT", 1, (16, "GLOBAL", True)), ("SPLIT", 0, (8, "GLOBAL", True))]
REFUSED = {
    "threads": ("map", [("SPLIT", 0, (2, "THREAD", True))], "SPLIT to THREAD"),
    "too many lanes": ("long rows", [("SPLIT", 1, (300, "GROUP_REDUCE", False))], "too many lanes"),
    "too many lanes together": (
        "long rows", [("SPLIT", 0, (3, "LOCAL", False)), ("SPLIT", 2, (100, "GROUP_REDUCE", False))], "too many lanes"),
    "a stage filled by several workgroups": ("attention", [("SPLIT", 3, (2, "GLOBAL", True))], "SPLIT to GLOBAL"),
    "lanes that would share the rows of a stage": ("attention", [("SPLIT", 0, (2, "LOCAL", False))], "local memory"),
    "lanes that would share a table": ("counts", [("SPLIT", 0, (2, "LOCAL", False))], "SPLIT to LOCAL"),
    "a scan": ("scan", [("SPLIT", 1, (2, "LOCAL", False))], "independent"),
    "columns of rows that are replaced": ("in place", [("SPLIT", 1, (2, "GLOBAL", True))], "encloses every loop"),
    "lanes that read what others replace": ("in place", [("SPLIT", 2, (2, "GROUP_REDUCE", True))], "read again"),
    "lanes after NOLOCALS": (
        "row sums", [("NOLOCALS", None, None), ("SPLIT", 1, (4, "GROUP_REDUCE", False))], "SPLIT to GROUP_REDUCE"),
    "packing after NOLOCALS": ("matmul", [("NOLOCALS", None, None), ("PACK", 0, None)], "PACK after NOLOCALS"),
    "NOLOCALS with lanes": ("map", [("SPLIT", 0, (2, "LOCAL", False)), ("NOLOCALS", None, None)], "NOLOCALS"),
    "blocks in turns without steps": ("matmul", [("PACK", 0, 2)], "PACK to several buffers"),
    "blocks in turns inside of another loop": (
        "matmul", [("SPLIT", 2, (2, "REDUCE", True)), ("PACK", 0, 2)], "PACK to several buffers"),
    "blocks in turns in a loop of results": (
        "odd product of bfloat16", [("SPLIT", 1, (19, "LOOP", True)), ("SPLIT", 0, (7, "GLOBAL", True)), ("PACK", 0, 2)],
        "PACK to several buffers"),
    "three blocks in turns": ("matmul", [*STEPS, ("PACK", 0, 3)], "PACK to several buffers"),
    "packing around workgroups": ("map", [("SPLIT", 1, (2, "GLOBAL", False)), ("PACK", 0, None)], "the outer part of an axis"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    name, actions, reason = REFUSED[case]
    plan = LoopPlan(in_place() if name == "in place" else made(name)[0], GPU)
    for a in actions[:-1]:
        plan.act(a)
    with pytest.raises(ActionError, match=reason) as e:
        plan.act(actions[-1])
    assert e.value.expected is not None and e.value.found is not None
    assert plan.actions == actions[:-1]


def test_local_memory_is_counted_together():
    """Two blocks fit one by one, not both; nor a block beside the slots of partial results."""
    kernel = made("matmul")[0]
    blocks = [("PACK", 0, None), ("PACK", 1, None)]
    sizes = []
    for b in blocks:
        out = apply_actions(kernel, (b,), GPU)
        sizes += [u.shape[0] * 4 for u in toposort(out) if u.op == "BUFFER"]
    small = GPU._replace(local_bytes=sum(sizes) - 4)
    for b in blocks:
        LoopPlan(kernel, small).act(b)
    plan = LoopPlan(kernel, small)
    plan.act(blocks[0])
    with pytest.raises(ActionError, match="local memory is too large") as e:
        plan.act(blocks[1])
    assert e.value.found == sum(sizes)
    plan = LoopPlan(kernel, GPU._replace(local_bytes=max(sizes), shuffles=False))
    plan.act(("SPLIT", 2, (4, "GROUP_REDUCE", True)))
    with pytest.raises(ActionError, match="local memory is too large"):
        plan.act(blocks[sizes.index(max(sizes))])


def test_a_launch_is_within_the_grid():
    plan = LoopPlan(made("map")[0], GPU._replace(max_grid=(3, 3, 3)))
    plan.act(("SPLIT", 0, (6, "GLOBAL", True)))
    with pytest.raises(ActionError, match="too many gidx"):
        plan.act(("SPLIT", 2, (8, "GLOBAL", True)))
