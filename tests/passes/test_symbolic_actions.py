"""Actions on loops of symbolic size: legal ones keep what a kernel computes, for every value of the Variable."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect import ActionError, Tensor, Variable
from monolect.backend.base import launching
from monolect.backend.registry import Device
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.actions.split import SPLIT_RULES
from monolect.optimize.apply import apply_actions
from monolect.optimize.cpu.heuristic import choose
from monolect.optimize.merge import merge_ranges
from monolect.pipeline import lower_kernel, schedule
from monolect.rules.loops.reductions import simplify_loops
from monolect.schedule.callify import over_params
from tests.passes.test_actions import FENCE, GPU, TARGET, aligned

MOST, OUT = 13, "out"
ROWS = Variable("rows_of_actions", 0, MOST)
FOURS = Variable("fours_of_actions", 4, 12, multiple_of=4)
A = (np.arange(MOST * 20, dtype=np.float32).reshape(MOST, 20) * 7 % 11) % 4
B = (np.arange(20 * 16, dtype=np.float32).reshape(20, 16) * 5 % 7) % 4

PROGRAMS = {  # in monolect on Tensors and a Variable, as in NumPy on arrays and its value
    "map": lambda a, b, n: a[:n] * 2 + a[:n],
    "columns": lambda a, b, n: a.T[:, :n] + 1,
    "row sums": lambda a, b, n: a[:n].sum(1),
    "column sums": lambda a, b, n: a[:n].sum(0),
    "total": lambda a, b, n: a[:n].sum(),
    "product": lambda a, b, n: a[:n] @ b,
    "product of columns": lambda a, b, n: b.T @ a[:n].T,
    "product over rows": lambda a, b, n: a[:n].T @ a[:n],
}
VALUES = {ROWS: (0, 1, 2, 7, 8, 13), FOURS: (4, 8, 12)}
MADE: dict = {}


def made(name, variable):
    """The kernel of a program, and for each of its arguments an array, OUT, or the Variable."""
    if (name, variable) not in MADE:
        out = PROGRAMS[name](Tensor(A), Tensor(B), variable)
        sink, bound, _ = over_params([out.uop])
        (call,) = schedule(list(sink.src), "cpu", TARGET.local_bytes).linear.src
        args: list = []
        for b in call.src[1:]:
            if b.op == "BUFFER":
                args.append(OUT)
            else:
                args.append(variable if b.arg.name else np.array(bound[b.arg.slot].storage.view("u1")))
        MADE[name, variable] = merge_ranges(simplify_loops(call.src[0], TARGET), TARGET), args
    return MADE[name, variable]


def check(name, variable, actions):
    """For every value, what is computed is what NumPy says, and nothing is written elsewhere."""
    kernel, args = made(name, variable)
    device = Device["cpu"]
    lin = lower_kernel(apply_actions(kernel, actions, TARGET), device.target, first="expand")
    (program,) = device.compile([("test", f"symbolic/{name}/{hash(lin)}", lin)])
    commands = device.encode(*launching((program, tuple(range(len(args))))))
    for n in VALUES[variable]:
        right = np.ascontiguousarray(PROGRAMS[name](A, B, n), np.float32).reshape(-1)
        fenced = {}
        for k, a in enumerate(args):
            if a is variable:
                commands.bind(k, n // variable.multiple_of)
                continue
            held = np.full(right.nbytes, 77, np.uint8) if a is OUT else a
            fenced[k] = aligned(np.concatenate([FENCE, held, FENCE]))
            commands.bind(k, fenced[k].ctypes.data + len(FENCE))
        commands.launch()
        for f in fenced.values():
            assert np.array_equal(f[: len(FENCE)], FENCE) and np.array_equal(f[-len(FENCE) :], FENCE), (n, actions)
        got = fenced[args.index(OUT)][len(FENCE) : len(FENCE) + right.nbytes].view(np.float32)
        np.testing.assert_array_equal(got, right, err_msg=f"{variable} = {n}, {actions}")


@st.composite
def sequences(draw):
    """(program, Variable, legal actions), the symbolic axis first among those that are split."""
    name, variable = draw(st.sampled_from(list(PROGRAMS))), draw(st.sampled_from(list(VALUES)))
    plan = LoopPlan(made(name, variable)[0], TARGET)
    for _ in range(draw(st.integers(1, 6))):
        axis = draw(st.integers(0, len(plan.axes) - 1))
        op = draw(st.sampled_from(["SPLIT"] * 4 + ["PADTO"] * 3 + ["SWAP"]))
        arg = draw(st.sampled_from([2, 3, 4, 8]))
        if op == "SPLIT":
            arg = (arg, draw(st.sampled_from(sorted(SPLIT_RULES))), draw(st.booleans()))
        with contextlib.suppress(ActionError):
            plan.act((op, axis, arg))
    for load in draw(st.sets(st.integers(0, 1))):
        with contextlib.suppress(ActionError):
            plan.act(("PACK", load, None))
    return name, variable, tuple(plan.actions)


@given(sequences())
def test_legal_actions_keep_results(case):
    check(*case)


@pytest.mark.sweep
@pytest.mark.parametrize("variable", VALUES, ids=lambda v: v.name)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_heuristic_chooses_keeps_results(name, variable):
    plan = LoopPlan(made(name, variable)[0], TARGET)
    choose(plan)
    check(name, variable, tuple(plan.actions))


def test_padded_rows_are_split_and_threads_take_turns():
    plan = LoopPlan(made("product", ROWS)[0], TARGET)
    symbolic = next(i for i, p in enumerate(plan.axes) if not p.size)
    with pytest.raises(ActionError, match="a divisor of 1"):
        plan.act(("SPLIT", symbolic, (4, "UPCAST", False)))
    for action in (("PADTO", symbolic, 4), ("SPLIT", symbolic, (4, "UPCAST", False))):
        plan.act(action)
    plan.act(("SPLIT", symbolic, (2, "THREAD", True)))
    parts = [(p.size, p.stride, p.type) for p in plan.axes if p.root is plan.axes[symbolic].root]
    assert parts == [(2, 4, "THREAD"), (0, 8, "LOOP"), (4, 1, "UPCAST")]
    check("product", ROWS, tuple(plan.actions))


def test_what_is_refused_of_a_symbolic_axis():
    plan = LoopPlan(made("map", ROWS)[0], TARGET)
    symbolic = next(i for i, p in enumerate(plan.axes) if not p.size)
    for action in (("SPLIT", symbolic, (4, "LOOP", True)), ("PEEL", symbolic, (0, 1)), ("PADTO", symbolic, 1)):
        with pytest.raises(ActionError):
            plan.act(action)
    gpu = LoopPlan(made("map", ROWS)[0], GPU)
    with pytest.raises(ActionError, match="constant size"):
        gpu.act(("PADTO", symbolic, 4))


def test_a_product_of_symbolic_rows_is_a_tile_in_registers():
    many = Variable("many_rows_of_actions", 1, 512)
    sink, _, _ = over_params([(Tensor.empty(512, 64)[:many] @ Tensor.empty(64, 96)).uop])
    (call,) = schedule(list(sink.src), "cpu", TARGET.local_bytes).linear.src
    plan = LoopPlan(merge_ranges(simplify_loops(call.src[0], TARGET), TARGET), TARGET)
    choose(plan)
    rows, columns = ([p.size for p in plan.axes if p.type == "UPCAST" and p.root is r] for r in plan.outputs)
    assert columns[-1] == 16 and rows[0] >= 4, "vectors, and rows that share them"
    assert any(p.type == "THREAD" for p in plan.axes)
