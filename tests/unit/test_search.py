"""Moves, edits and the walk of a search: with a bench that computes times, so that what it finds is known."""

from math import inf, prod

import pytest

from monolect import ActionError, Tensor, dtypes
from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.backend.cpu.units import units
from monolect.base.target import Target
from monolect.ir.bounds import ranges
from monolect.ir.uop import toposort
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.cpu.heuristic import choose
from monolect.optimize.search import beam as searching
from monolect.optimize.search.beam import name, search
from monolect.optimize.search.moves import MOVES, kind_of, legal_moves, replay
from monolect.optimize.search.neighbours import Trail, edits, extensions
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params

CPU = Target(name="test", native=LLVM_NATIVE, vector_bytes=64, n_registers=32, n_threads=2, local_bytes=1 << 20)
CPU = CPU._replace(units=units(("avx512vnni",), 64))
GPU = Target(name="gpu", native=LLVM_NATIVE, vector_bytes=16, workgroups=True, max_local=256, local_bytes=1 << 15)
PROGRAMS = {
    "map": lambda: Tensor.ones(48, 64) + 1,
    "odd": lambda: Tensor.empty(509, 250) + Tensor.empty(250, 509).T,
    "matmul": lambda: Tensor.empty(64, 96) @ Tensor.empty(96, 64),
    "narrow": lambda: Tensor.empty(64, 96, dtype=dtypes.int8).int() @ Tensor.empty(96, 64, dtype=dtypes.int8).int(),
    "rows": lambda: Tensor.empty(48, 64).softmax(1),
    "scan": lambda: Tensor.empty(48, 64).cumsum(1),
    "masked attention": lambda: masked_attention(*(Tensor.empty(2, 20, 8) for _ in range(3))),
    "total": lambda: Tensor.empty(4096).sum(),
    "convolution": lambda: Tensor.empty(2, 8, 14, 14).conv2d(Tensor.empty(16, 8, 3, 3), padding=1),
}


def masked_attention(q, k, v):
    """Rows see the keys before their own."""
    return q.scaled_dot_product_attention(k, v, is_causal=True)


FAR = CPU._replace(streams=True, l2_bytes=1 << 10, l3_bytes=1 << 12)  # every output is larger than its caches


def kernel(program, target=CPU):
    sink, _, _ = over_params([PROGRAMS[program]().uop])
    n_bytes = 0 if target.workgroups else target.local_bytes
    return lower_kernel(schedule(list(sink.src), "cpu", n_bytes).linear.src[-1].src[0], target, last="merge_ranges")


def chosen(sink, target=CPU):
    plan = LoopPlan(sink, target)
    choose(plan)
    return tuple(plan.actions)


def shape(plan):
    return [(p.size, p.type) for p in plan.axes]


# ---- moves and edits -------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("target", [CPU, GPU, FAR], ids=["cpu", "gpu", "far"])
def test_every_move_and_every_edit_is_legal(program, target):
    sink = kernel(program, target)
    start = chosen(sink, target)
    for actions in [(), start]:
        for move in legal_moves(sink, target, actions):
            replay(sink, target, (*actions, *move))
    for found in (*edits(sink, target, start), *extensions(sink, target, start)):
        replay(sink, target, found)


def test_every_row_has_moves_somewhere():
    found = {
        kind
        for program in PROGRAMS
        for target in (CPU, GPU, FAR)
        for kind in MOVES
        if legal_moves(sink := kernel(program, target), target, chosen(sink, target) if target is FAR else (), kind)
    }
    assert found == set(MOVES)


def test_a_row_makes_actions_of_its_kind():
    for program in PROGRAMS:
        for kind in MOVES:
            for move in legal_moves(kernel(program), CPU, (), kind):
                assert kind in {kind_of(action) for action in move}


def test_what_no_size_divides_is_padded_a_little():
    moves = legal_moves(kernel("odd"), CPU, (), "UPCAST")
    assert (("PADTO", 1, 16), ("SPLIT", 1, (16, "UPCAST", False))) in moves
    assert all(-(-509 // m) * m <= 1.125 * 509 for move in moves for op, _, m in move if op == "PADTO")


def test_a_matrix_unit_may_be_changed_for_another():
    tiles = CPU.units[0]._replace(name="tiles", m=2, k=8, pair=4)  # steps of pairs: one axis more
    target = CPU._replace(units=(*CPU.units, tiles))
    sink = kernel("narrow", target)
    start = (("SPLIT", 1, (16, "UPCAST", False)), ("SPLIT", 0, (4, "UPCAST", False)), ("TC", 4, "vpdpbusd"))
    start = (*start, ("SPLIT", 4, (2, "UNROLL", False)))
    found = list(edits(sink, target, start))
    for actions in found:
        replay(sink, target, actions)
    without_rows = (("SPLIT", 1, (16, "UPCAST", False)), ("TC", 3, "vpdpbusd"), ("SPLIT", 3, (2, "UNROLL", False)))
    assert without_rows in found, "the unit stays on its axis when another is gone"


def test_dropping_an_action_leaves_the_meaning_of_later_ones():
    sink = kernel("matmul")
    actions = (
        ("SPLIT", 0, (4, "UPCAST", False)),  # rows
        ("SPLIT", 2, (16, "UPCAST", False)),  # columns, now axis 2
        ("SPLIT", 4, (4, "UNROLL", False)),  # the reduction
        ("SPLIT", 2, (2, "THREAD", True)),
    )
    assert shape(replay(sink, CPU, actions))[0] == (16, "LOOP")
    without_rows = (
        ("SPLIT", 1, (16, "UPCAST", False)),
        ("SPLIT", 3, (4, "UNROLL", False)),
        ("SPLIT", 1, (2, "THREAD", True)),
    )
    other_rows = (("SPLIT", 0, (8, "UPCAST", False)), *actions[1:])
    found = set(edits(sink, CPU, actions))
    assert {without_rows, other_rows, actions[:2] + actions[3:], actions[:3]} <= found


def test_a_bound_stays_on_its_loop_when_another_action_goes():
    sink = kernel("masked attention")
    plan = LoopPlan(sink, CPU)
    own = next(iter(plan.scratch.fills.values())).src[1]
    loop_ = plan.axis_of(own)
    actions = (("SPLIT", 0, (2, "LOOP", False)), ("BOUND", loop_ + 1, None))
    replay(sink, CPU, actions)
    assert (("BOUND", loop_, None),) in set(edits(sink, CPU, actions))


def test_what_was_done_to_a_dropped_part_is_dropped_with_it():
    sink = kernel("matmul", GPU)
    actions = (("SPLIT", 0, (8, "LOCAL", False)), ("SPLIT", 1, (2, "UPCAST", False)), ("SPLIT", 3, (4, "LOCAL", False)))
    replay(sink, GPU, actions)
    assert (("SPLIT", 1, (4, "LOCAL", False)),) in set(edits(sink, GPU, actions))


def test_a_move_stands_before_what_must_be_last():
    sink = kernel("matmul")
    packed = (("SPLIT", 2, (3, "LOOP", True)), ("PACK", 1, None))
    found = set(extensions(sink, CPU, packed))
    assert (packed[0], ("SPLIT", 1, (16, "UPCAST", False)), packed[1]) in found
    assert (*packed, ("PACK", 0, None)) in found
    assert (packed[0],) in set(edits(sink, CPU, packed))


def test_a_refused_step_leaves_the_trail_as_it_was():
    trail = Trail(kernel("matmul"), CPU)
    trail.act(("SPLIT", 0, (4, "UPCAST", False)))
    names, steps = list(trail.names), list(trail.steps)
    with pytest.raises(ActionError):
        trail.act(("SPLIT", 0, (7, "UPCAST", False)))
    assert (trail.names, trail.steps) == (names, steps)
    assert not trail.redo(steps[0]._replace(axis="an axis that is no more"))


# ---- the walk --------------------------------------------------------------------------------------------------------
class Counted:
    """A bench whose times are `cost` of the actions; it records what it is asked."""

    def __init__(self, cost):
        self.cost, self.asked, self.compared = cost, [], []
        self.first = None

    def times(self, kernels):
        self.asked += kernels
        self.first = self.first or self.cost(kernels[0].arg.actions)
        return [self.cost(k.arg.actions) / self.first for k in kernels]

    def again(self, kernels):
        return [self.cost(k.arg.actions) / self.first for k in kernels]

    def against(self, old, new):
        self.compared += new
        return [self.cost(k.arg.actions) / self.cost(old.arg.actions) for k in new]


def upcast(actions):
    return prod(k for op, _, arg in actions if op == "SPLIT" for k, target, _ in [arg] if target == "UPCAST")


def more_is_better(actions):
    return 1000 - 4 * min(upcast(actions), 128)


def found_by(cost, width=2, program="matmul", start=()):
    bench = Counted(cost)
    return search(kernel(program), CPU, start, width, bench), bench


def test_the_best_is_found_and_confirmed():
    found, bench = found_by(more_is_better)
    assert upcast(found.actions) >= 128 and found.ratio == 488 / 996
    assert found.n_timed == len(bench.asked) and found.n_rounds >= 2
    assert found.actions in [k.arg.actions for k in bench.compared]


def test_a_kernel_is_timed_once():
    _, bench = found_by(lambda actions: 100 - len(actions) % 7, width=3)
    names = [name(k) for k in bench.asked]
    assert len(names) == len(set(names)) > 50


def test_a_wider_search_times_more():
    assert found_by(more_is_better, width=3)[0].n_timed > found_by(more_is_better, width=1)[0].n_timed


def test_nothing_faster_means_the_heuristic():
    start = chosen(kernel("matmul"))
    found, bench = found_by(lambda actions: 10 if actions == start else 10.5, start=start)
    assert (found.actions, found.ratio) == (start, 1.0)
    assert bench.compared == []


def test_a_lucky_measurement_is_not_followed():
    """One plan seems ten times as fast at first; measured again it is not, and the search goes on from the best."""
    lucky = (("SWAP", 0, 1),)

    class Lucky(Counted):
        def times(self, kernels):
            found = super().times(kernels)
            return [0.1 if k.arg.actions == lucky else t for k, t in zip(kernels, found, strict=True)]

    bench = Lucky(more_is_better)
    found = search(kernel("matmul"), CPU, (), 1, bench)
    assert lucky in [k.arg.actions for k in bench.asked]
    assert not any(k.arg.actions[:1] == lucky and len(k.arg.actions) > 1 for k in bench.asked)
    assert upcast(found.actions) >= 128


def test_of_equally_fast_plans_the_simplest_is_taken():
    found, bench = found_by(lambda actions: 100 - 40 * (upcast(actions) >= 16) - 0.1 * len(actions))
    assert found.actions == min((k.arg.actions for k in bench.compared), key=len)
    assert len(found.actions) == 1 < max(len(k.arg.actions) for k in bench.compared)
    assert len(bench.compared) == searching.MAX_FINALISTS  # the simplest is beside the fastest


def test_what_does_not_win_the_last_comparison_is_dropped():
    class Lucky(Counted):
        def against(self, old, new):
            self.compared += new
            return [0.99, *[inf] * (len(new) - 1)]

    bench = Lucky(more_is_better)
    found = search(kernel("matmul"), CPU, (), 2, bench)
    assert len(bench.compared) == searching.MAX_FINALISTS - 1  # the simplest is one of the fastest
    assert (found.actions, found.ratio) == ((), 1.0)


def test_a_heuristic_that_cannot_be_timed_stays():
    class Broken(Counted):
        def times(self, kernels):
            self.asked += kernels
            return [inf] * len(kernels)

    sink, bench = kernel("matmul"), Broken(None)
    assert search(sink, CPU, chosen(sink), 2, bench).actions == chosen(sink)
    assert len(bench.asked) == 1


def test_candidates_that_fail_are_not_followed():
    found, bench = found_by(lambda actions: inf if any(op == "PADTO" for op, *_ in actions) else 10, program="odd")
    assert found.actions == ()
    assert sum(any(op == "PADTO" for op, *_ in k.arg.actions) for k in bench.asked) > 0
    assert all(sum(op == "PADTO" for op, *_ in k.arg.actions) <= 1 for k in bench.asked)


def test_a_walk_from_nothing_finds_what_a_bad_start_hides():
    """Threads cannot be undone by one edit when the cost of each step is high; the empty plan has none."""

    def cost(actions):
        threaded = any(op == "SPLIT" and arg[1] == "THREAD" for op, _, arg in actions)
        return 500 if threaded else 400 - min(upcast(actions), 64)

    found, _ = found_by(cost, width=1, start=(("SPLIT", 0, (2, "THREAD", True)),))
    assert upcast(found.actions) >= 64 and found.ratio < 0.8


def test_a_start_that_would_run_too_long_is_not_taken():
    """Nothing at all takes a thousand times as long; with the first action of the heuristic it is ten times."""
    start = chosen(kernel("matmul"))

    def cost(actions):
        return 1 if actions[:2] == start[:2] else 10 if actions[:1] == start[:1] else 1000

    found, bench = found_by(cost, start=start)
    asked = [k.arg.actions for k in bench.asked]
    assert () in asked and found.actions == start
    assert (("SWAP", 0, 1),) not in asked and (("SWAP", 0, 1),) in extensions(kernel("matmul"), CPU, ())
    assert any(actions[:1] == start[:1] and actions[1:2] not in ((), start[1:2]) for actions in asked)


def test_kernels_without_axes_are_left_alone():
    sink, _, _ = over_params([(Tensor.empty(1) + 1).uop])
    k = lower_kernel(schedule(list(sink.src), "cpu").linear.src[-1].src[0], CPU, last="merge_ranges")
    assert not [u for u in toposort(k) if ranges(u)]
    assert search(k, CPU, (), 2, Counted(lambda actions: 1)).n_timed == 1
