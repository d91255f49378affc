"""What a launch waits for, in the sense of memory; and intermediates that lie so that small launches need not wait."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from monolect.base.dtype import dtypes
from monolect.command.forms import ARENA, calls_in, items_of, memory, operands_of, program_of, read_operand, view
from monolect.command.rewrites import memory as command_memory
from monolect.command.rewrites.dependencies import all_before
from monolect.command.rewrites.dependencies import dependencies as dependencies_pass
from monolect.command.rewrites.memory import SMALL_BYTES, Life, MemoryPlan, assign_offsets, assign_offsets_concurrent
from monolect.ir.ops import KernelInfo, ParamArg, ProgramInfo, StepInfo
from monolect.ir.uop import UOp, node, shape_source

MB = 1 << 20
MOST = 128  # numbers of buffers


class Use(NamedTuple):
    """What an item touches, and what it writes of that, by number; an operand for each it touches."""

    touched: tuple[int, ...]
    written: set[int]


def uses(*pairs: tuple[list[int], list[int]]) -> list[Use]:
    """Of items, each by what it reads and what it writes."""
    return [Use((*writes, *reads), set(writes)) for reads, writes in pairs]


def dependencies(
    steps: Sequence[Use], ranges: Mapping[int, tuple[int, int]], same: Mapping[int, int], in_group: bool = False
) -> tuple[tuple[int, ...], ...]:
    """For each item those that the pass says it is after. `ranges`: the bytes of the arena that a buffer takes, from
    and to. `same`: results that may be in the memory of an argument, by number. `in_group`: the items are one GROUP.
    """
    arena = memory(ARENA, 1 + max((end for _, end in ranges.values()), default=0), "cpu")

    def operand(n: int) -> UOp:
        if n in ranges:
            start, end = ranges[n]
            return view(arena, start, end - start, dtypes.uint8)
        return node("PARAM", (shape_source((16,)),), ParamArg(n, dtypes.float32, "cpu", "GLOBAL"))

    items = []
    for u in steps:
        operands = [*map(operand, u.touched)]
        rows = [(x.dtype, 16, "write" if n in u.written else "read") for n, x in zip(u.touched, operands, strict=True)]
        program = node("PROGRAM", (node("SINK", (), KernelInfo()),), ProgramInfo("k", operands=tuple(rows)))
        items.append(node("CALL", (program, *operands)))
    linear = node("LINEAR", (node("GROUP", tuple(items)),) if in_group else tuple(items))
    outs = node("TUPLE", (node("AFTER", (operand(MOST), linear)),))
    info = StepInfo(("argument",) * MOST + ("result",), 1, reuse=tuple(same.items()))
    after = calls_in(items_of(program_of(dependencies_pass(node("FUNCTION", (outs,), info)))))
    number = {item: i for i, item in enumerate(after)}
    assert len(number) == len(steps) or not any(u.written for u in steps)
    out = []
    for before, item in zip(items, after, strict=True):
        assert [read_operand(u)[:2] for u in operands_of(item)] == [read_operand(u)[:2] for u in operands_of(before)]
        found = [number[x] for u in operands_of(item) for x in read_operand(u).after]
        assert len({*found}) == len(found), "each is named once"
        out.append(tuple(sorted(found)))
    return tuple(out)


def test_a_chain_waits_for_the_one_before() -> None:
    chain = uses(([0], [1]), ([1, 0], [2]), ([1, 2], [3]))
    assert dependencies(chain, {}, {}) == ((), (0,), (1,)), "the first is known to be before the second"


def test_branches_wait_for_nobody_and_meet() -> None:
    branches = uses(([0], [1]), ([0], [2]), ([1], [3]), ([2], [4]), ([3, 4], [5]))
    assert dependencies(branches, {}, {}) == ((), (), (0,), (1,), (2, 3))


def test_a_writer_waits_for_the_readers_and_readers_for_the_last_writer() -> None:
    found = dependencies(uses(([], [1]), ([1], [2]), ([1], [3]), ([4], [1]), ([1], [5])), {}, {})
    assert found == ((), (0,), (0,), (1, 2), (3,))


def test_what_nobody_writes_is_waited_for_by_nobody() -> None:
    assert dependencies(uses(*(([0, 1], [k]) for k in range(2, 9))), {}, {}) == ((),) * 7


def test_buffers_in_the_same_memory_are_one() -> None:
    two = uses(([0], [1]), ([2], [3]))
    assert dependencies(two, {}, {}) == ((), ())
    for in_group in (False, True):
        waits = dependencies(two, {}, {3: 0}, in_group)
        assert waits == ((), (0,)), "the result takes the memory of the donated argument"


def test_ranges_of_the_arena_are_what_is_waited_for() -> None:
    """3 lies over the end of 1 and the beginning of 2; 4 beside all of them."""
    steps = uses(([0], [1]), ([0], [2]), ([1], [9]), ([0], [3]), ([0], [4]))
    ranges = {1: (0, 64), 2: (64, 128), 3: (32, 96), 4: (128, 192)}
    assert dependencies(steps, ranges, {}) == ((), (), (0,), (1, 2), ())


def test_who_reads_a_range_waits_for_who_wrote_it_as_another_buffer():
    assert dependencies(uses(([], [3]), ([2], [0])), {2: (0, 4), 3: (0, 4)}, {}) == ((), (0,))


some = st.lists(st.integers(0, 7), max_size=3, unique=True)
launches = st.lists(st.tuples(some, some.filter(bool)), max_size=24).map(lambda pairs: uses(*pairs))
places = st.dictionaries(st.integers(2, 6), st.integers(0, 12).map(lambda at: (at, at + 4)), max_size=5)


@given(launches, places, st.sampled_from([{}, {7: 0}, {7: 0, 6: 1}]), st.booleans())
def test_every_conflict_is_ordered_and_no_edge_says_what_others_do(steps, ranges, same, in_group) -> None:
    same = {a: b for a, b in same.items() if a not in ranges and b not in ranges}

    def meet(m: int, n: int) -> bool:
        if m in ranges and n in ranges:
            return ranges[m][0] < ranges[n][1] and ranges[n][0] < ranges[m][1]
        return same.get(m, m) == same.get(n, n)

    after = dependencies(steps, ranges, same, in_group)
    behind = all_before(after)
    for i, b in enumerate(steps):
        needed = set()
        for j, a in enumerate(steps[:i]):
            if any(meet(m, n) for m in a.touched for n in b.touched if m in a.written or n in b.written):
                needed.add(j)
                assert behind[i] >> j & 1
        assert set(after[i]) <= needed, "nothing waits without a reason"
        assert not any(behind[k] >> j & 1 for k in after[i] for j in after[i]), "nor twice"


# ---- where intermediates lie -----------------------------------------------------------------------------------------
def lives(n_bytes: int) -> tuple[list[Use], dict[int, Life]]:
    """Four chains of three launches, whose intermediates are 1.. and whose results 100.., with their lives."""
    pairs, touched = [], {}
    for k in range(4):
        a, b = 2 * k + 1, 2 * k + 2
        pairs += [([0], [a]), ([a], [b]), ([b], [100 + k])]
        touched |= {a: (3 * k, 3 * k + 1), b: (3 * k + 1, 3 * k + 2)}
    steps = uses(*pairs)
    behind = all_before(dependencies(steps, {}, {}))
    return steps, {n: Life(n_bytes, i, j, 1 << i | 1 << j, behind[i]) for n, (i, j) in touched.items()}


def after(plan: MemoryPlan, steps: list[Use], n_bytes: int) -> tuple[tuple[int, ...], ...]:
    return dependencies(steps, {n: (at, at + n_bytes) for n, at in plan.offsets.items()}, {})


def test_small_intermediates_of_chains_lie_apart_and_large_ones_share() -> None:
    for n_bytes in (64, 2 * MB):
        steps, found = lives(n_bytes)
        plan, least = assign_offsets_concurrent(found), assign_offsets(found)
        assert least.arena_bytes == 2 * n_bytes
        waits = after(plan, steps, n_bytes)
        if n_bytes <= SMALL_BYTES:
            assert waits == dependencies(steps, {}, {}) and plan.arena_bytes == 8 * n_bytes
        else:
            assert plan == least and all(waits[3:]), "the second chain stores where the first one did"


def test_a_long_chain_takes_two_places_also_apart() -> None:
    steps = uses(*(([k], [k + 1]) for k in range(200)))
    behind = all_before(dependencies(steps, {}, {}))
    found = {k + 1: Life(64, k, k + 1, 3 << k, behind[k]) for k in range(199)}
    assert assign_offsets_concurrent(found).arena_bytes == 2 * 64


def test_where_there_is_no_memory_for_it_nothing_lies_apart(monkeypatch) -> None:
    monkeypatch.setattr(command_memory, "MAX_EXTRA_BYTES", 3 * 64)
    _, found = lives(64)
    assert assign_offsets_concurrent(found) == assign_offsets(found)


@given(launches)
def test_nothing_that_is_alive_at_once_shares_memory(steps) -> None:
    behind = all_before(dependencies(steps, {}, {}))
    found: dict[int, Life] = {}
    for i, u in enumerate(steps):
        for n in u.touched:
            life = found.get(n) or Life(64 * (n + 1), i, i, 0, behind[i])
            found[n] = life._replace(last=i, users=life.users | 1 << i)
    plan = assign_offsets_concurrent(found)
    for a, b in combinations(found, 2):
        ends = plan.offsets[a] + found[a].n_bytes, plan.offsets[b] + found[b].n_bytes
        is_apart = ends[0] <= plan.offsets[b] or ends[1] <= plan.offsets[a]
        assert is_apart or not found[a].is_concurrent(found[b])
    written_first = all(n in next(u for u in steps if n in u.touched).written for n in found)
    if written_first:
        ranges = {n: (at, at + found[n].n_bytes) for n, at in plan.offsets.items()}
        assert all_before(dependencies(steps, ranges, {})) == behind, "memory is no reason to wait"
