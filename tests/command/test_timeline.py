"""The predicted timeline of a step: kernels in order, messages in parallel, waits for memory."""

import pytest

from monolect import dtypes
from monolect.command.timeline import is_message, timeline, touched
from monolect.ir.collective import Sum, sum_kernel
from monolect.ir.ops import BufferArg, KernelInfo, LoadArg, ParamArg
from monolect.ir.uop import UOp, build, idx, node, shape_source


def memory(slot: int, dev: str = "mpi") -> UOp:
    return node("BUFFER", (shape_source((8,)),), BufferArg(slot, dtypes.float32, dev))


def kernel(to: UOp, source: UOp) -> UOp:
    """A CALL that copies memory of one device."""
    out, x = (node("PARAM", (shape_source((8,)),), ParamArg(k, dtypes.float32, None, "GLOBAL")) for k in (0, 1))
    i = build("RANGE", idx(8), arg=(0, "LOOP"))
    store = build("STORE", build("INDEX", out, i), build("LOAD", build("INDEX", x, i)))
    return node("CALL", (build("SINK", build("END", store, i), arg=KernelInfo("copy")), to, source))


def summed(to: UOp, source: UOp) -> UOp:
    """A sum over two processes; those of the other have slots of their own."""
    others = [memory(100 + to.arg.slot, "mpi:1"), memory(100 + source.arg.slot, "mpi:1")]
    return node("CALL", (sum_kernel(Sum("ADD", dtypes.float32, 2), 8, 2), to, others[0], source, others[1]))


def times(items: list[UOp], seconds: list[float]) -> list[tuple[float, float]]:
    return [(e.start, e.end) for e in timeline(items, seconds).events]


A, B, C, E, F = (memory(k) for k in range(5))


def test_a_sum_overlaps_with_kernels_that_do_not_touch_it() -> None:
    items = [kernel(B, A), summed(C, B), kernel(E, A), kernel(F, C)]
    assert times(items, [1, 5, 2, 1]) == [(0, 1), (1, 6), (1, 3), (6, 7)]
    t = timeline(items, [1, 5, 2, 1])
    assert (t.seconds, t.kernel_seconds, t.message_seconds, t.exposed) == (7, 4, 5, 3 / 5)


def test_a_kernel_that_overwrites_the_operand_of_a_sum_waits() -> None:
    assert times([summed(C, B), kernel(B, A)], [5, 1]) == [(0, 5), (5, 6)]


def test_messages_keep_their_order_and_the_step_ends_with_the_last() -> None:
    items = [summed(C, B), summed(E, A), kernel(F, F)]
    assert times(items, [3, 1, 1]) == [(0, 3), (3, 4), (0, 1)]
    assert timeline(items, [3, 1, 1]).seconds == 4


def test_messages_are_sums_and_copies_between_processes() -> None:
    def copied(a: str, b: str) -> UOp:
        return node("STORE", (memory(1, b), node("LOAD", (memory(0, a),), LoadArg(b, "GLOBAL"))))

    assert is_message(summed(C, B)) and is_message(copied("mpi", "mpi:1")) and is_message(copied("mpi", "cpu"))
    assert not is_message(kernel(B, A)) and not is_message(copied("cpu", "cpu:1"))


def test_an_empty_step_takes_no_time() -> None:
    assert timeline([], []).seconds == timeline([], []).exposed == 0


@pytest.mark.parametrize("item", [kernel(B, A), summed(C, B)])
def test_items_touch_their_operands(item: UOp) -> None:
    assert {base for base, _, _ in touched(item)} == set(item.src[1:])
    assert all((first, end) == (0, 32) for _, first, end in touched(item))
