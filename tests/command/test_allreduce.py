"""A CALL on the memory of several processes: its kernel, and what the passes over a step do with it."""

import numpy as np
import pytest

from monolect import dtypes
from monolect.base.errors import VerifyError
from monolect.command.check import check
from monolect.command.forms import ARENA, SHARED_ARENA, base_of, calls_in, is_allreduce, items_of, once_of, program_of
from monolect.command.interp import run_step
from monolect.command.passes import COMMAND, lower
from monolect.command.rewrites.dependencies import dependencies
from monolect.command.rewrites.group import group
from monolect.command.rewrites.memory import plan_memory
from monolect.command.rewrites.own import own
from monolect.command.rewrites.rebase import rebase
from monolect.ir.collective import Sum, allreduced, are_processes, sum_kernel, sum_of
from monolect.ir.ops import ParamArg, StepInfo
from monolect.ir.uop import UOp, new_buffer, node, shape_source
from monolect.runtime.realize.plan import target_of

NAMES = ("mpi", "mpi:1", "mpi:2")
SIZE = 5


def step_of(op: str, roles: tuple[str, ...] = ("argument",) * 3 + ("result",) * 3) -> UOp:
    """A replayed step with one allreduce of three arguments."""
    args = [ParamArg(k, dtypes.float32, NAMES[k % 3], "GLOBAL") for k in range(6)]
    params = [node("PARAM", (shape_source((SIZE,)),), arg) for arg in args]
    kernel = sum_kernel(Sum(op, dtypes.float32, 3), SIZE, 3)
    linear = node("LINEAR", (node("CALL", (kernel, *params[3:], *params[:3])),))
    outs = node("TUPLE", tuple([node("AFTER", (p, linear)) for p in params[3:]]))
    return node("FUNCTION", (outs,), StepInfo(roles, 3, is_replayed=True))


def calls_of(step: UOp) -> list[UOp]:
    return calls_in(items_of(program_of(step)))


@pytest.mark.parametrize(("op", "combine"), [("ADD", np.add), ("MUL", np.multiply), ("MAX", np.maximum)])
def test_all_results_have_the_bits_of_a_sum_in_order(op: str, combine: np.ufunc) -> None:
    a, b, c = np.random.default_rng(0).standard_normal((3, SIZE)).astype(np.float32)
    step = dependencies(step_of(op))
    check(step)
    memory = run_step(step, {0: a, 1: b, 2: c})
    found = [m.view(np.float32) for p, m in memory.bytes.items() if p.arg.slot >= 3]
    assert len(found) == 3
    for r in found:
        np.testing.assert_array_equal(r, combine(combine(a, b), c))


def test_a_step_with_a_wrong_operand_is_found() -> None:
    step = step_of("ADD", ("argument",) * 4 + ("result",) * 2)
    with pytest.raises(VerifyError, match="memory that is not the step's"):
        check(dependencies(step))


def test_the_kernel_says_what_is_combined() -> None:
    for s in (Sum("ADD", dtypes.float32, 2), Sum("MAX", dtypes.int8, 4)):
        assert sum_of(sum_kernel(s, SIZE, s.n)) == s


def test_no_pass_compiles_or_moves_it() -> None:
    step, target = step_of("ADD", ("constant",) * 3 + ("result",) * 3), target_of("cpu")
    (call,) = calls_of(step)
    assert is_allreduce(call)
    for name in ("once", "rebase"):
        row = next(row for row in COMMAND if row.name == name)
        after = row.run(step, target)
        assert not once_of(program_of(after)) and calls_of(after) == [call]
    assert lower(step, target) is step
    assert group(step, target._replace(concurrency="lanes", n_threads=2)) is step
    assert calls_of(rebase(step)) == [call]


@pytest.mark.parametrize(("name", "n"), [("mpi", 1), ("mpi:2", 1), ("mpi:3", 0)])
def test_processes_that_take_part_keep_it(name: str, n: int) -> None:
    assert len(calls_of(own(step_of("ADD"), lambda device: device == name))) == n


def test_a_partial_value_in_memory_is_not_copied() -> None:
    names = NAMES[:2]
    kept, summed = (
        [new_buffer((1, 6), dtypes.float32, name) for name in names],
        new_buffer((2, 6), dtypes.float32, "mpi"),
    )
    flat = [node("RESHAPE", (b, shape_source((2, 3)))) for b in kept]
    results = allreduced("ADD", flat, names)
    call = results[0].src[1]
    assert [*call.src[3:]] == kept and [r.shape for r in results] == [(2, 3), (2, 3)]
    two = [node("REDUCE", (summed,), ("ADD", (0,))), node("REDUCE", (kept[1],), ("ADD", (0,)))]
    call = allreduced("ADD", two, names)[0].src[1]
    assert [*call.src[3:]] == [two[0], kept[1]]


def test_processes_are_told_by_their_devices() -> None:
    assert are_processes(("mpi", "mpi:1")) and not are_processes(("cpu", "cpu:1"))
    assert not are_processes(("mpi",)) and not are_processes(("mpi", "mpi")) and not are_processes(("mpi", "cpu"))


def test_what_a_sum_reads_and_writes_is_in_an_arena_of_its_own() -> None:
    buffers = [new_buffer((SIZE,), dtypes.float32, name) for name in (*NAMES, *NAMES)]
    args = [node("PARAM", (shape_source((SIZE,)),), ParamArg(k, dtypes.float32, "mpi", "GLOBAL")) for k in range(2)]
    other = new_buffer((SIZE,), dtypes.float32, "mpi")
    copy = sum_kernel(Sum("ADD", dtypes.float32, 1), SIZE)
    items = [
        node("CALL", (copy, other, args[0])),
        node("CALL", (copy, buffers[3], other)),
        node("CALL", (sum_kernel(Sum("ADD", dtypes.float32, 3), SIZE, 3), *buffers)),
        node("CALL", (copy, args[1], buffers[0])),
    ]
    outs = node("TUPLE", (node("AFTER", (args[1], node("LINEAR", tuple(items)))),))
    step = plan_memory(node("FUNCTION", (outs,), StepInfo(("argument", "result"), 1)), target_of("cpu"))
    found = [[base_of(u).arg.slot for u in c.src[1:5]] for c in calls_of(step)]  # no item writes the last two operands
    assert found == [[ARENA, 0], [SHARED_ARENA, ARENA], [SHARED_ARENA] * 4, [1, SHARED_ARENA]]
