"""What the cost model chooses for sums of products: which operand is copied and turned, the tile, the blocks."""

from math import prod

import ml_dtypes
import numpy as np
import pytest

from monolect import Tensor, dtypes
from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.base.target import MatrixUnit, Target
from monolect.ir.bounds import min_max, ranges
from monolect.ir.uop import UOp, toposort
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.apply import apply_plan
from monolect.optimize.blocks.packed import PackedBlock
from monolect.optimize.cpu.contraction import Contraction
from monolect.optimize.cpu.heuristic import Chooser
from monolect.optimize.cpu.tile_cost import RegisterTile
from monolect.optimize.loops.partial_sums import are_sums_local, block_of_sum
from monolect.optimize.tuning import FULL_REGISTER_TILE
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params

TARGET = Target("test", LLVM_NATIVE, vector_bytes=64, n_registers=32, n_threads=2)
TARGET = TARGET._replace(l1_bytes=48 << 10, l2_bytes=1 << 20, local_bytes=4 << 20)


def of(*shape: int) -> Tensor:
    return Tensor(np.zeros(shape, np.float32), device="null")


def planned(tensor: Tensor, target: Target = TARGET) -> Chooser:
    """The decisions for the one kernel of a tensor, before they are made."""
    sink, _, _ = over_params([tensor.uop])
    (call,) = schedule(list(sink.src), "null", target.local_bytes).linear.src
    return Chooser(LoopPlan(lower_kernel(call.src[0], target, last="merge_ranges"), target))


def tile(tensor: Tensor, target: Target = TARGET) -> tuple[RegisterTile, list[UOp]]:
    """The cheapest tile, and the output loops: rows, columns."""
    chooser = planned(tensor, target)
    found = Contraction(chooser, chooser.plan.reduced).best()
    assert found is not None
    return found, chooser.plan.outputs


@pytest.mark.parametrize(("m", "n", "k"), [(256, 2304, 768), (256, 768, 3072), (64, 768, 768), (256, 50257, 768)])
def test_weights_that_are_read_by_few_rows_are_not_turned(m, n, k):
    """Lanes run along the rows of x, of which there are less: turning W would cost more than all the stores turned."""
    found, (rows, _) = tile(of(m, k) @ of(n, k).T)
    assert found.c is rows


@pytest.mark.parametrize(("m", "n", "k"), [(2048, 256, 1024), (197, 192, 192), (4096, 64, 512)])
def test_weights_that_are_read_by_many_rows_are_turned(m, n, k):
    found, (_, columns) = tile(of(m, k) @ of(n, k).T)
    assert found.c is columns


@pytest.mark.parametrize(("m", "k", "n"), [(270, 2, 19), (247, 16, 14), (500, 9, 15)])
@pytest.mark.parametrize("multiply_adds", [1, 2])
def test_few_columns_of_short_sums_are_stored_in_long_pieces(m, k, n, multiply_adds):
    """Of a tile that is turned each lane stores its rows, in powers of two: by ones or twos it takes longest."""
    found, (rows, _) = tile(of(k, m).T @ of(k, n), TARGET._replace(multiply_adds=multiply_adds))
    assert found.c is not rows or found.rows * found.lanes >= 64 * found.rows.bit_count()


@pytest.mark.parametrize(
    ("sizes", "changed", "is_tight"),
    [
        ((1024, 1024, 1024), {}, True),
        ((1024, 1024, 1024), {"multiply_adds": 1}, False),  # lines of scalars come in time: 4x4 and 4x5 are as fast
        ((1024, 1024, 1024), {"loads_first": True}, False),  # scalars take registers
        ((1024, 1024, 1000), {}, False),  # the masks of the last columns do
        ((1024, 1024, 64 * 3), {}, False),  # three tiles for two threads
    ],
)
def test_the_tightest_tile_is_taken_where_it_holds_operands_alone(sizes, changed, is_tight):
    m, k, n = sizes
    found, _ = tile(of(m, k) @ of(k, n), TARGET._replace(**changed))
    assert ((found.vectors, found.rows) == FULL_REGISTER_TILE) == is_tight


def test_rows_at_strides_of_pages_share_few_cache_sets():
    """Rows of 12 KiB start in one set of the first cache each: fewer of them side by side than of rows of 3 KiB."""
    near, _ = tile(of(250, 768) @ of(750, 768).T)
    far, _ = tile(of(250, 3072) @ of(750, 3072).T)
    assert far.rows * 4096 <= TARGET.l1_bytes * 2 // 3 < near.rows * 4096


@pytest.mark.parametrize(("k", "blocks"), [(256, 1), (768, 1), (4096, 4)])
def test_a_sum_is_cut_in_as_few_blocks_as_fit_the_cache(k, blocks):
    """Each block stores and loads all sums again."""
    chooser = planned(of(512, k) @ of(k, 768))
    chooser.run()
    cut = [p for p in chooser.plan.axes if p.is_block and p.root in chooser.plan.reduced]
    assert [p.size for p in cut] == ([] if blocks == 1 else [blocks])


@pytest.mark.parametrize("n", [512, 2048, 4096])
def test_rows_that_are_neighbours_in_memory_are_packed_tile_by_tile(n):
    """Aᵀ·B: the rows of a tile side by side, and copied again at most once for 512 columns."""
    chooser = planned(of(n, n).T @ of(n, n))
    chooser.run()
    plan = chooser.plan
    rows, columns = plan.outputs
    block = next(b for b in (PackedBlock(plan, u) for u in plan.packs) if rows in b.steps)
    tall = next(p.size for p in plan.axes if p.root is rows and p.type == "UPCAST")
    assert (block.dims[0].size, block.dims[0].step, block.dims[0].dst) == (tall, 1, 1)
    assert block.dims[1].dst == tall
    assert sum(p.is_block and p.root is columns and p.size > max(1, n // 2 // 512) for p in plan.axes) == 0


DOTS = MatrixUnit("dot", 1, 16, 2, 2, dtypes.bfloat16, dtypes.bfloat16, dtypes.float32)


@pytest.mark.parametrize("n", [512, 1024, 2048])
def test_rows_of_a_tile_divide_what_there_is(n):
    """Where some rows lie beyond the end, each row of each tile asks before it is stored."""
    found, _ = tile(of(n, n).T @ of(n, n))
    assert n % found.rows == 0


def of_bfloat16(*shape: int) -> Tensor:
    return Tensor(np.zeros(shape, ml_dtypes.bfloat16), device="null")


@pytest.mark.parametrize("n", [2048, 4096])
def test_sums_that_are_finished_stand_in_local_memory_and_are_finished_once(n):
    """Aᵀ·B in bfloat16: scalars are packed for wide blocks of columns, so the sum is cut; what follows it is not."""
    chooser = planned((of_bfloat16(n, n).T @ of_bfloat16(n, n)).float().exp(), TARGET._replace(units=(DOTS,)))
    chooser.run()
    assert any(p.is_block and p.root in chooser.plan.reduced for p in chooser.plan.axes)
    order = toposort(apply_plan(chooser.plan))
    (exp,) = (u for u in order if u.op == "EXP2")
    times = 2 * prod(int(min_max(r.src[0])[1]) for r in ranges(exp))  # by both threads
    assert n * n <= times < 1.02 * n * n
    sums = [u for u in order if u.op == "STORE" and u.src[0].src[0].op == "BUFFER" and u.src[1].dtype is dtypes.float32]
    assert len(sums) == 1 and prod(sums[0].src[0].src[0].shape) * 4 <= TARGET.local_bytes
    (result,) = (u for u in order if u.op == "STORE" and u.src[0].src[0].op == "PARAM")
    assert not [u for u in order if u.op == "LOAD" and u.src[0].src[0] is result.src[0].src[0]]


def test_a_sum_that_is_the_result_adds_up_there():
    chooser = planned(of(512, 4096) @ of(4096, 768))
    chooser.run()
    (added,) = (u for u in toposort(apply_plan(chooser.plan)) if u.op == "STORE" and u.src[1].op == "ADD")
    assert added.src[0].src[0].op == "PARAM"


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("f", "dtype"), [(lambda a, b: a.T @ b, dtypes.bfloat16), (lambda a, b: (a @ b).relu() + b[0], dtypes.float32)]
)
def test_products_whose_sums_wait_in_local_memory_are_right(f, dtype, data):
    a, b = (Tensor(data(1100, 1100)).cast(dtype).realize() for _ in range(2))
    x, y = (t.cast(dtypes.float32).numpy().astype(np.float64) for t in (a, b))
    wanted = x.T @ y if dtype is dtypes.bfloat16 else np.maximum(x @ y, 0) + y[0]
    got = f(a, b).cast(dtypes.float32).numpy()
    np.testing.assert_allclose(
        got, wanted, rtol=0, atol=abs(wanted).max() * (2**-8 if dtype is dtypes.bfloat16 else 1e-6)
    )


def test_columns_of_b_are_no_scalars_where_they_would_be_packed_for_each_block_of_rows():
    """Where only panels are packed a sum of 4096 in bfloat16 is not cut: its sums would wait in local memory."""
    chooser = planned(of_bfloat16(4096, 4096) @ of_bfloat16(4096, 4096), TARGET._replace(units=(DOTS,)))
    found = Contraction(chooser, chooser.plan.reduced).best()
    assert found is not None and found.c is chooser.plan.outputs[1]


def test_few_rows_of_two_operands_along_memory_are_dot_products():
    chooser = planned(of(8, 4096) @ of(4096, 4096).T)
    chooser.run()
    assert "GROUP_REDUCE" in [a[2][1] for a in chooser.plan.actions if a[0] == "SPLIT"]


def test_a_row_of_taps_is_no_vector_to_sum_along():
    """Of few channels, each seventh of a vector for the sake of taps that are side by side: channels are the lanes."""
    plan = planned(of(2, 30, 52, 52).conv2d(of(5, 30, 7, 7), stride=2)).plan
    chooser = Chooser(plan)
    chooser.run()
    assert chooser.vector == {plan.outputs[1]}


@pytest.mark.parametrize("multiply_adds", [1, 2])
@pytest.mark.parametrize(
    ("image", "out", "k", "stride", "groups"),
    [((3, 22, 59, 59), 7, 5, 3, 1), ((3, 10, 47, 47), 12, 7, 3, 1), ((1, 54, 42, 42), 48, 7, 2, 2)],
)
def test_taps_that_are_no_whole_square_are_not_turned(image, out, k, stride, groups, multiply_adds):
    """A square of few taps costs as much as a whole one to turn: lanes are channels, not rows of the image."""
    x = of(*image).conv2d(of(out, image[1] // groups, k, k), stride=stride, padding=k // 2, groups=groups)
    chooser = planned(x, TARGET._replace(multiply_adds=multiply_adds))
    chooser.run()
    image_loads = [u for u in chooser.plan.loads if prod(u.src[0].src[0].shape) == prod(image)]
    assert image_loads and all(chooser.vector.isdisjoint(ranges(u.src[0].src[1])) for u in image_loads)


def test_what_follows_a_product_of_padded_rows_is_read_in_vectors():
    """197 rows in tiles of 6: a mask a row, instead of rows whose addresses are picked one by one."""
    chooser = planned(of(197, 192) @ of(192, 192) + of(197, 192))
    chooser.run()
    (store,) = (u for u in toposort(apply_plan(chooser.plan)) if u.op == "STORE" and u.src[0].src[0].op == "PARAM")
    outside = [u for u in toposort(store.src[1], stop=lambda u: u.op == "REDUCE") if u.op == "LOAD"]
    assert len(outside) == 1
    assert "MAX" not in [u.op for u in toposort(outside[0].src[0])]


@pytest.mark.parametrize(("channels", "out", "k", "groups"), [(64, 50, 1, 2), (66, 82, 5, 2), (75, 60, 2, 3)])
def test_groups_of_a_convolution_are_a_loop_of_their_own(channels, out, k, groups):
    """So that a tile of rows shares what it loads: the input is no irregular access of the channel of the output."""
    chooser = planned(of(4, channels, 20, 20).conv2d(of(out, channels // groups, k, k), groups=groups))
    found = Contraction(chooser, chooser.plan.reduced).best()
    assert found is not None and found.vectors * found.rows >= 8
    assert groups in [chooser.plan.size(r) for r in chooser.plan.outputs]
    assert all(None not in a.steps.values() for a in chooser.profile.accesses)


@pytest.mark.parametrize(("stride", "k", "unrolled"), [(1, 3, True), (2, 3, False), (2, 2, True), (2, 5, False)])
def test_taps_that_rows_share_steps_later_are_a_loop(stride, k, unrolled):
    """In one block of code they would be loaded once and spilled: 14 rows of 2 vectors leave no register for them."""
    chooser = planned(of(4, 64, 56, 56).conv2d(of(128, 64, k, k), stride=stride, padding=k // 2))
    chooser.run()
    assert any(a[0] == "SPLIT" and a[2][1] == "UNROLL" for a in chooser.plan.actions) == unrolled


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_rows_of_an_image_and_their_taps_are_packed_once(blocks):
    """In each block of rows the copy holds those and the borders, whole lines of them, not each row for each tap."""
    plan = planned(of(1, 4, 56, 56).conv2d(of(32, 4, 3, 3), padding=1)).plan
    rows = plan.axis_of(plan.outputs[-2])
    if blocks > 1:
        plan.act(("SPLIT", rows, (blocks, "LOOP", True)))
    (image,) = (PackedBlock(plan, u) for u in plan.loads if len(u.src) == 3)
    assert sorted(d.size for d in image.dims) == [4, 56 // blocks + 2, 58]


@pytest.mark.parametrize(
    ("k", "stride", "dilation", "padding", "sizes"),
    [
        (3, 3, 2, 2, [3, 4, 19, 59]),  # neither the rows nor the taps move by one
        (5, 2, 3, 2, [4, 59, 59]),
        (3, 3, 1, 1, [3, 4, 19, 57]),  # no place is read twice, and yet a line is copied whole
        (2, 3, 1, 0, [2, 4, 19, 56]),  # every third place of a line is not read, and copied all the same; not so lines
    ],
)
def test_rows_and_taps_of_any_steps_are_packed_once(k, stride, dilation, padding, sizes):
    """What a row reads at a tap depends on a sum of both alone, whatever their steps are."""
    image = of(1, 4, 56, 56).conv2d(of(32, 4, k, k), padding=padding, stride=stride, dilation=dilation)
    plan = planned(image).plan
    assert sizes in [sorted(d.size for d in PackedBlock(plan, u).dims) for u in plan.loads]


@pytest.mark.parametrize(
    ("x", "waits"),
    [(lambda: of(1, 256, 28, 28).conv2d(of(256, 256, 3, 3)), True), (lambda: of(512, 2048) @ of(2048, 512), False)],
    ids=["channels as lanes, pixels side by side in the result", "columns as lanes and in the result"],
)
def test_sums_in_blocks_wait_as_tiles_lie(x, waits):
    """In the result only where lanes are neighbours there: each block would turn its sums around, twice."""
    chooser = planned(x())
    chooser.run()
    plan = chooser.plan
    assert block_of_sum(plan) is not None and plan.stores[0].src[1] is plan.reduces[0]
    assert are_sums_local(plan) == waits


@pytest.mark.sweep
@pytest.mark.parametrize("k", [9, 35, 69, 223, 224])
def test_a_panel_is_turned_in_whole_squares(k, data):
    """Also where its rows do not end with one: what goes beyond is room of the block, and only the last square asks."""
    chooser = planned(of(150, k) @ of(320, k).T)
    chooser.run()
    panels = (b for u in chooser.plan.packs if (b := PackedBlock(chooser.plan, u)).is_panel)
    (panel,) = (b for b in panels if b.dims[0].step != 1)
    squares = prod(n for _, cut in panel._copy_loops() for n, _, kind in cut if kind == "LOOP")
    assert squares * 16 * 16 == panel.elements
    copies = [
        u.src[1] for u in toposort(apply_plan(chooser.plan)) if u.op == "STORE" and u.src[0].src[0].op == "BUFFER"
    ]
    assert any(u.op == "LOAD" and len(u.src) == 1 for u in copies) == (k >= 64), "most squares ask for nothing"
    a, b = data(150, k), data(320, k)
    np.testing.assert_allclose((Tensor(a) @ Tensor(b).T).numpy(), a @ b.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("multiply_adds", [1, 2])
@pytest.mark.parametrize(("m", "k", "n"), [(206, 69, 7), (278, 149, 5), (411, 22, 7), (664, 18, 14)])
def test_few_columns_are_lanes_of_a_narrow_vector(m, k, n, multiply_adds):
    """Two of half a vector start in a cycle: turning all rows around, for a few products each, would take longer."""
    found, (_, columns) = tile(of(m, k) @ of(k, n), TARGET._replace(multiply_adds=multiply_adds))
    assert found.c is columns


# ---- dot products ----------------------------------------------------------------------------------------------------
def actions_of(tensor: Tensor, target: Target = TARGET) -> list:
    chooser = planned(tensor, target)
    chooser.run()
    return chooser.plan.actions


@pytest.mark.parametrize("multiply_adds", [1, 2])
@pytest.mark.parametrize(
    ("batch", "m", "k", "n"), [((), 512, 512, 2), ((), 278, 149, 5), ((), 618, 175, 3), ((2,), 300, 149, 5)]
)
def test_few_columns_of_long_rows_are_turned_to_dot_products(batch, m, k, n, multiply_adds):
    """Lanes run along the sum, where all of each vector is used; the columns are turned once, to lie that way."""
    actions = actions_of(of(*batch, m, k) @ of(*batch, k, n), TARGET._replace(multiply_adds=multiply_adds))
    assert [a[2][1] for a in actions if a[0] == "SPLIT"].count("GROUP_REDUCE") == 1
    assert sum(a[0] == "PACK" for a in actions) == 1


@pytest.mark.parametrize("n", [512, 1024, 2048])
def test_operands_that_no_first_cache_holds_are_no_dot_products(n):
    target = TARGET._replace(multiply_adds=1)
    assert not [a for a in actions_of(of(n, n) @ of(n, n).T, target) if a[0] == "SPLIT" and a[2][1] == "GROUP_REDUCE"]


@pytest.mark.parametrize("k", [1024, 4096, 16384])
def test_few_long_rows_share_what_they_read(k):
    """Also where the first cache holds neither: four of one by four of the other read half a vector a product."""
    sides = [a[2][0] for a in actions_of(of(8, k) @ of(4096, k).T) if a[0] == "SPLIT" and a[2][1] == "UPCAST"]
    assert sides == [4, 4]


def test_products_of_what_reads_as_zero_ask_nothing():
    """Beyond the end of a padded sum: a WHERE would keep them from becoming one instruction with the sum."""
    x = of(278, 149)
    for tensor, asks in ((x @ of(5, 149).T, False), ((x * x).sum(1), False), ((x * (x + 1)).sum(1), True)):
        plan = planned(tensor).plan
        plan.act(("PADTO", plan.axis_of(plan.reduced[0]), 16))
        (total,) = (u for u in toposort(apply_plan(plan)) if u.op == "REDUCE")
        assert (total.src[0].op == "WHERE") == asks


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("k", [16, 37, 56, 149])
def test_lanes_of_several_sums_are_added_together(k, dtype, data):
    for m, n in [(1, 2), (2, 33), (3, 1), (4, 4), (5, 5), (7, 2), (12, 6), (20, 1), (35, 7)]:
        a, b = ((data(*shape) * 8).astype(dtype) for shape in ((m, k), (k, n)))
        want = a.astype(np.float64) @ b.astype(np.float64)
        u, v = (Tensor(np.ascontiguousarray(x.T)).T for x in (a, b))
        for x, y in ((Tensor(a), Tensor(b)), (Tensor(a), v), (u, v)):
            np.testing.assert_allclose((x @ y).numpy(), want, rtol=0, atol=1e-5 * abs(want).max())


@pytest.mark.parametrize(
    ("turned", "product", "by_rows"),
    [
        (True, (1501, 26, 14), True),  # half a short row each
        (False, (250, 58, 669), True),  # rows that end in the middle of a line
        (False, (252, 208, 560), True),  # vectors that reach into the next row, of which nothing is stored
        (False, (251, 208, 640), False),  # whole lines: no share is longer than the other
        (False, (12, 600, 669), False),  # too few rows for it to matter beside a panel that each would copy
    ],
)
def test_threads_do_not_write_to_the_same_lines(turned, product, by_rows):
    """Lines to which both write go to and fro between them, row by row."""
    m, k, n = product
    chooser = planned((of(k, m).T if turned else of(m, k)) @ of(k, n), TARGET._replace(multiply_adds=1))
    chooser.run()
    rows, columns = chooser.plan.outputs
    assert [p.root for p in chooser.plan.axes if p.type == "THREAD"] == [rows if by_rows else columns]


def test_what_stays_in_the_second_cache_does_not_stream():
    """No blocks of the sum, whose results would be stored and loaded for each."""
    actions = actions_of(of(8, 145, 936).transpose(1, 2) @ of(8, 145, 2))
    assert not [a for a in actions if a[0] == "SPLIT" and a[2][1] == "LOOP" and a[2][2]]


ONE_A_CYCLE = TARGET._replace(multiply_adds=1, l1_bytes=32 << 10, l3_bytes=32 << 20)


@pytest.mark.parametrize(
    ("m", "k", "n", "rows"), [(2, 4096, 4096, 8), (8, 4096, 4096, 8), (16, 768, 3072, 8), (8, 1000, 1000, 20)]
)
def test_few_rows_let_weights_stream(m, k, n, rows):
    """A vector of as many rows as the sets of the first cache hold; x is copied, sums wait in local memory."""
    chooser = planned(of(m, k) @ of(k, n), ONE_A_CYCLE)
    chooser.run()
    plan = chooser.plan
    (j,), (x, c) = plan.reduced, plan.outputs
    assert next(p.size for p in plan.axes if p.is_block and p.root is j) == k // rows
    assert prod(p.size for p in plan.axes if p.root is c and p.type == "UPCAST") == 16
    assert prod(p.size for p in plan.axes if p.root is x and p.type == "UPCAST") == m
    assert [c in ranges(u) for u in plan.packs] == [False] and are_sums_local(plan)


def test_sums_of_short_blocks_begin_at_zero_and_are_not_masked():
    chooser = planned(of(8, 4096) @ of(4096, 4096), ONE_A_CYCLE)
    chooser.run()
    assert all(len(u.src) == 1 for u in toposort(apply_plan(chooser.plan)) if u.op == "LOAD")


@pytest.mark.parametrize(
    ("m", "k", "n", "streams"), [(64, 4096, 4096, True), (512, 4096, 4096, False), (512, 768, 3072, False)]
)
def test_many_rows_pay_for_a_copy_of_the_weights(m, k, n, streams):
    assert tile(of(m, k) @ of(k, n), ONE_A_CYCLE)[0].streams == streams


def test_columns_whose_sums_the_second_cache_does_not_hold_are_cut_in_even_pieces():
    chooser = planned(of(8, 768) @ of(768, 50257), ONE_A_CYCLE)
    chooser.run()
    columns = chooser.plan.outputs[1]
    assert [p.size for p in chooser.plan.axes if p.is_block and p.root is columns] == [2]


@pytest.mark.sweep
@pytest.mark.parametrize(("m", "k", "n"), [(3, 300, 1003), (8, 512, 1024), (19, 257, 1100), (64, 130, 9001)])
@pytest.mark.parametrize("finish", [False, True])
def test_products_of_few_rows_are_right(m, k, n, finish):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, s).astype(np.float32) for s in ((m, k), (k, n)))
    got = Tensor(a) @ Tensor(b)
    want = a @ b
    np.testing.assert_array_equal(
        (got + 1).relu().numpy() if finish else got.numpy(), np.maximum(want + 1, 0) if finish else want
    )


# ---- what is narrow in memory ----------------------------------------------------------------------------------------
def of_float16(*shape: int) -> Tensor:
    return Tensor(np.zeros(shape, np.float16), device="null")


@pytest.mark.parametrize("turn", ["A·B", "A·Bᵀ", "Aᵀ·B"])
def test_what_no_matrix_unit_reads_is_widened_once_where_it_is_packed(turn):
    a, b = of_float16(1024, 1024), of_float16(1024, 1024)
    chooser = planned({"A·B": a @ b, "A·Bᵀ": a @ b.T, "Aᵀ·B": a.T @ b}[turn])
    chooser.run()
    order = toposort(apply_plan(chooser.plan))
    (total,) = (u for u in order if u.op == "REDUCE")
    terms = toposort(total.src[0], stop=lambda u: u.op == "AFTER")
    assert not [u for u in terms if u.op == "CAST"], "the products read what is wide already"
    copies = [u for u in order if u.op == "STORE" and u.src[1].op == "CAST" and u.src[1].src[0].dtype is dtypes.float16]
    assert len(copies) == 2 and {u.src[0].dtype for u in copies} == {dtypes.float32}
    assert any(p.is_block and p.root in chooser.plan.reduced for p in chooser.plan.axes), "wide, in blocks of the sum"


def test_what_a_matrix_unit_reads_stays_narrow():
    chooser = planned(of_bfloat16(1024, 1024) @ of_bfloat16(1024, 1024), TARGET._replace(units=(DOTS,)))
    chooser.run()
    order = toposort(apply_plan(chooser.plan))
    blocks = {u.arg.dtype for u in order if u.op == "BUFFER" and u.arg.addrspace == "LOCAL" and u.arg.slot >= 0}
    assert dtypes.bfloat16 in blocks


# ---- sums along memory -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rows", "k", "at_once"),
    [(36, 363, 4), (6, 363, 3), (7, 363, 1), (2, 363, 1), (36, 384, 4), (36, 16, 4), (67, 384, 4), (13, 384, 1)],
)
def test_rows_that_are_multiplied_by_one_vector_share_it(rows, k, at_once):
    """A load of the vector serves several rows, the last of which may be few. Of 13 rows, 3 of 16 would be idle."""
    chooser = planned(of(rows, k) @ of(k))
    chooser.run()
    splits = (arg for op, _, arg in chooser.plan.actions if op == "SPLIT")
    assert [n for n, kind, _ in splits if kind == "UPCAST"] == [at_once] * (at_once > 1)


@pytest.mark.parametrize("k", [24, 193])
def test_more_rows_share_the_vectors_of_a_panel_that_the_first_cache_does_not_hold(k):
    """Each row of tiles reads all columns again. Five vectors by two rows waste nothing, but load as many vectors as
    they use twice: 38 KiB of them come from the first cache in time, 310 KiB from the second do not.
    """
    found, _ = tile(of(166, k) @ of(k, 398))
    assert (found.rows >= 4) == (k * 398 * 4 > TARGET.l1_bytes)


# ---- one multiply-add a cycle ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("n", [512, 1024, 2048])
def test_more_vectors_share_few_rows_where_loads_keep_up(n, turned):
    """Each line of scalars costs as much, and vectors of the panel come in time beside one multiply-add a cycle."""
    a, b = of(n, n), of(n, n)
    found, _ = tile((a.T if turned else a) @ b, TARGET._replace(multiply_adds=1))
    assert (found.vectors, found.rows >= 4) == (4, True)


def test_rows_that_are_a_window_are_read_again_by_the_next_tap():
    """Their lines are in the first cache: what each tile reads anew is no reason for fewer rows."""
    image = of(4, 64, 14, 14).conv2d(of(64, 64, 3, 3), padding=1)
    one, two = (tile(image, TARGET._replace(multiply_adds=k))[0] for k in (1, 2))
    assert (one.vectors, one.rows) == (two.vectors, two.rows)


# ---- rows beyond the end ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("added", [False, True])
def test_the_last_tile_of_rows_begins_earlier_and_asks_nothing(added):
    """Not where an element that is stored is read: both may be in one place, and some rows are computed twice."""
    x = of(2, 8, 43).conv1d(of(32, 8, 3))
    plan = planned(x + of(2, 32, 41) if added else x).plan
    channels, rows = plan.outputs[1:]
    plan.act(("PADTO", plan.axis_of(rows), 7))
    plan.act(("SPLIT", plan.axis_of(channels), (16, "UPCAST", False)))
    plan.act(("SPLIT", plan.axis_of(rows), (7, "UPCAST", False)))
    gated = [u for u in toposort(apply_plan(plan)) if u.op in ("LOAD", "STORE") and len(u.src) == 3]
    assert bool(gated) == added


def test_a_panel_that_is_one_run_of_memory_is_copied_in_vectors():
    """Its rows, each a vector of its own, are neighbours: one vector of all of them took minutes to compile."""
    x = of(514, 13, 12)
    chooser = planned(x.transpose(-1, -2) @ x)
    chooser.run()
    (block,) = (PackedBlock(chooser.plan, u) for u in chooser.plan.packs)
    ((panel, loops),) = block._copy_loops()
    assert panel.size == 257 * 13 * 12 and [n for n, _, kind in loops if kind == "UPCAST"] <= [4, 16]
