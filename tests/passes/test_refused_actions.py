"""Optimizer actions that are refused, with their reasons, and what actions leave of loops and conditions."""

import pytest

from monolect import ActionError, Variable, dtypes
from monolect.graphs import bitonic_sort as network
from monolect.graphs.bitonic_sort import Sorting
from monolect.ir.bounds import min_max
from monolect.ir.uop import toposort
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.apply import apply_actions, apply_plan
from monolect.optimize.cpu.heuristic import choose
from monolect.optimize.merge import merge_ranges
from monolect.optimize.search.neighbours import edits, extensions
from monolect.pipeline import lower_kernel, schedule
from monolect.rules.loops.reductions import simplify_loops
from monolect.schedule.callify import over_params
from tests.passes.test_actions import GPU, PROGRAMS, TARGET, assigned, made, narrow, whole

BF16, F32, I8, U8, I32 = dtypes.bfloat16, dtypes.float32, dtypes.int8, dtypes.uint8, dtypes.int32

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


@pytest.mark.sweep
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


@pytest.mark.sweep
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
