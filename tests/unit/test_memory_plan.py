"""Lifetimes of intermediates: what lives at the same time lies apart, and the arena is no larger than it must be."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect.base.dtype import dtypes
from monolect.base.target import Target
from monolect.command.forms import ARENA, buffer_bytes, items_of, operands_of, program_of, read_operand
from monolect.command.rewrites import memory
from monolect.command.rewrites.memory import ALIGN_BYTES, Life, plan_memory
from monolect.ir.ops import BufferArg, KernelInfo, ParamArg, ProgramInfo, StepInfo
from monolect.ir.uop import UOp, node, shape_source


class Plan(NamedTuple):
    offsets: dict[UOp, int]
    arena_bytes: int


def planned(lives):
    """The plan for buffers of (bytes, first item, last item), as the pass leaves it, and their lives by buffer."""
    n_items = max((last for _, _, last in lives), default=0) + 1
    buffers = {
        node("BUFFER", (shape_source((size,)),), BufferArg(k, dtypes.uint8, "cpu")): (size, first, last)
        for k, (size, first, last) in enumerate(lives)
    }
    used = [[b for b, (_, first, last) in buffers.items() if i in (first, last)] for i in range(n_items)]
    items = []
    for bs in used:
        info = ProgramInfo("k", operands=tuple([(b.dtype, buffer_bytes(b), "update") for b in bs]))
        items.append(node("CALL", (node("PROGRAM", (node("SINK", (), KernelInfo()),), info), *bs)))
    result = node("PARAM", (shape_source((1,)),), ParamArg(0, dtypes.uint8, "cpu", "GLOBAL"))
    outs = node("TUPLE", (node("AFTER", (result, node("LINEAR", tuple(items)))),))
    step = plan_memory(node("FUNCTION", (outs, result), StepInfo(("result",), 1)), Target("cpu", frozenset()))
    offsets, arenas = {}, set()
    for bs, item in zip(used, items_of(program_of(step)), strict=True):
        for b, u in zip(bs, operands_of(item), strict=True):
            arena, offset, _ = read_operand(u)
            arenas.add(arena)
            assert (u.shape, u.dtype) == (b.shape, b.dtype) and offsets.setdefault(b, offset) == offset
    assert len(arenas) == bool(lives) and all((u.op, u.arg.slot) == ("BUFFER", ARENA) for u in arenas)
    return Plan(offsets, sum(map(buffer_bytes, arenas))), buffers


def most_alive(buffers):
    """Bytes of the largest set alive at one step."""
    lives = [(-(-size // ALIGN_BYTES) * ALIGN_BYTES, first, last) for size, first, last in buffers.values()]
    return max((sum(s for s, a, b in lives if a <= i <= b) for i in {first for _, first, _ in lives}), default=0)


step = st.integers(0, 20)
life = st.tuples(st.integers(1, 1000), step, step).map(lambda t: (t[0], min(t[1:]), max(t[1:])))


@given(st.lists(life, max_size=30))
def test_what_lives_at_the_same_time_lies_apart(lives):
    plan, buffers = planned(lives)
    assert plan.offsets.keys() == buffers.keys()
    for b, (size, first, last) in buffers.items():
        assert plan.offsets[b] % ALIGN_BYTES == 0 and plan.offsets[b] + size <= plan.arena_bytes
        for c, (_, begin, until) in buffers.items():
            if b is not c and first <= until and begin <= last:
                ends = [plan.offsets[x] + buffer_bytes(x) for x in (b, c)]
                assert ends[0] <= plan.offsets[c] or ends[1] <= plan.offsets[b]
    assert plan.arena_bytes >= most_alive(buffers)


def test_a_chain_takes_two_buffers():
    plan, _ = planned([(1000, i, i + 1) for i in range(3000)])
    assert plan.arena_bytes == 2 * 1024


def test_nested_lives_take_no_more_than_is_alive():
    """As in training: what is made first is needed last."""
    lives = [(64 * (1 + i % 7), i, 999 - i) for i in range(400)]
    plan, buffers = planned(lives)
    assert plan.arena_bytes == most_alive(buffers)


@given(st.lists(life, max_size=60))
def test_few_and_many_buffers_are_placed_alike(lives):
    kinds = {k: Life(*one) for k, one in enumerate(lives)}
    plans = []
    for few in (0, 1 << 30):
        with pytest.MonkeyPatch.context() as m:
            m.setattr(memory, "MAX_LISTED_BLOCKS", few)
            plans.append(memory.assign_offsets(kinds))
    assert plans[0] == plans[1]
