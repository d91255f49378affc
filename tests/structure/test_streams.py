"""Stores past the caches and loads ahead of time: where they are chosen, and what becomes of them."""

import re

import numpy as np
import pytest

from monolect import Tensor
from monolect.backend.base import launching
from monolect.backend.common.llvm.compile import Compiler
from monolect.backend.common.llvm.program import LLVM_NATIVE, render_module
from monolect.backend.python.runtime import PythonDevice
from monolect.base.target import Target
from monolect.ir.bounds import min_max
from monolect.ir.text import show
from monolect.ir.uop import idx, substitute, toposort
from monolect.optimize.apply import apply, apply_actions, choose_actions
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params

TARGET = Target(
    name="test", native=LLVM_NATIVE, vector_bytes=64, n_registers=32, n_threads=2, l2_bytes=1 << 12, l3_bytes=1 << 16,
    streams=True,
)  # fmt: skip
TWICE_ROWS = TARGET._replace(l2_bytes=1 << 17)  # whose second cache holds rows of tiles of 32 KB, and the next
AVX512 = Compiler("x86_64", ("avx", "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"))
N = 1 << 14  # float32 elements that fill the last cache


def optimized(x, target=TARGET):
    (call,) = schedule(list(over_params([x.uop])[0].src), "cpu").linear.src
    return apply(choose_actions(lower_kernel(call.src[0], target, last="merge_ranges"), target), target)


def assembly(x, target=TARGET):
    linear = lower_kernel(optimized(x, target), target, first="device_axes")
    return AVX512.assembly(render_module([("kernel", linear)]))


def flags(x, target=TARGET):
    return flags_of(optimized(x, target))


def flags_of(kernel):
    """What the text of the kernel says of its stores and loads."""
    text = show(kernel)
    return re.findall(r"STORE void\[\] .*?(\"nontemporal\")?$", text, re.M), re.findall(
        r"LOAD \w+\[\] .*? LoadArg\(prefetch_bytes=(\d+)\)$", text, re.M
    )


def data(*shape, dtype=np.float32):
    return Tensor(np.zeros(shape, dtype)).realize()


def test_a_large_output_is_streamed_and_its_inputs_fetched():
    stores, loads = flags(data(N) + data(N))
    assert stores == ['"nontemporal"'] and loads == ["4096", "4096"]


@pytest.mark.parametrize(
    ("what", "x"),
    {
        "an output that fits": lambda: data(N // 4) + 1,
        "a large input alone": lambda: data(64, N).sum(1),
        "few rows of a large table": lambda: data(64, N // 64)[Tensor(np.arange(16, dtype=np.int32)).realize()],
        "a large output of a small input": lambda: data(2, 1).expand(2, N // 4).contiguous(),
    }.items(),
)
def test_what_stays_in_the_caches_is_left_alone(what, x):
    stores, loads = flags(x())
    assert stores == [""] and loads == []


def test_a_target_without_streams_gets_none():
    assert flags(data(N) + 1, TARGET._replace(streams=False)) == ([""], [])


def test_a_running_sum_is_streamed():
    assert flags(data(N).cumsum(0)) == (["", "", '"nontemporal"'], ["4096"])


@pytest.mark.parametrize("n", [N + 1, N + 8])
def test_whole_vectors_before_a_masked_tail_are_streamed(n):
    """Both stores have the flag; what is masked goes to the cache all the same."""
    assert flags(data(n) + 1)[0] == ['"nontemporal"', '"nontemporal"']


def test_rows_that_are_no_multiple_of_a_vector_are_stored_plainly():
    assert flags(data(1024, 24)[:, :20] + data(20))[0] == [""]


def test_the_next_row_of_a_row_kernel_is_fetched():
    stores, loads = flags(data(64, 2048).softmax(1), TARGET._replace(l2_bytes=1 << 16))
    assert stores == ['"nontemporal"'] and loads == [str(2048 * 4)]


def test_the_other_side_of_a_transpose_is_not_fetched():
    assert flags(data(128, N // 128).T.contiguous()) == (['"nontemporal"'], [])


def at(*shape, dtype=np.int64):
    """Rows of a table, named in memory."""
    return Tensor(np.arange(np.prod(shape)).reshape(shape).astype(dtype)).realize()


def asked(x, target=TARGET):
    """Which rows ahead the kernel asks for, and how many PREFETCHes there are in its text."""
    kernel = optimized(x, target)
    rows = [arg[1] for op, _, arg in kernel.arg.actions if op == "PREFETCH" and isinstance(arg, tuple)]
    return rows, show(kernel).count("PREFETCH void[]")


ROW = N // 64  # elements: 64 rows fill the last cache, a row is 1 KB


@pytest.mark.parametrize(
    ("what", "x"),
    {
        "named by one axis": lambda: data(64, ROW)[at(64)],
        "in a narrow type": lambda: data(64, ROW)[at(64, dtype=np.int32)],
        "named by two axes": lambda: data(64, ROW)[at(8, 8)],
        "of each matrix": lambda: data(2, 64, ROW).index_select(1, at(32)),
        "few, and used": lambda: data(64, ROW)[at(12)] * 2 + data(ROW),
        "whose vectors have a tail": lambda: data(70, ROW + 3)[at(64)],
    }.items(),
)
def test_rows_that_an_index_names_are_asked_for(what, x):
    """As many ahead as are a page, whether what is written fits a cache or not."""
    assert asked(x()) == ([4], 2 if "tail" in what else 1)


@pytest.mark.parametrize(
    ("what", "x"),
    {
        "a table that fits": lambda: data(3, ROW)[at(3)],
        "elements": lambda: data(64, ROW).gather(1, at(64, ROW) % ROW),
        "rows that lie in order": lambda: data(64, ROW)[8:40] + 1,
        "rows that are summed up": lambda: data(64, ROW)[at(64)].sum(0),
        "rows of one vector": lambda: data(N // 16, 16)[at(64)],
    }.items(),
)
def test_other_places_are_not_asked_for_by_rows(what, x):
    assert asked(x())[1] == 0


def test_rows_are_asked_for_once_in_their_loop():
    """A line of a later row beside each line of this one, and what names that row outside of the columns' loop."""
    text = assembly(data(64, ROW)[at(64)])
    assert text.count("prefetcht1") == text.count("vmovntps") == 4
    linear = lower_kernel(optimized(data(64, ROW)[at(64)]), TARGET, first="device_axes")
    ops = [u.op for u in linear.src if u.op in ("RANGE", "LOAD", "PREFETCH", "END")]
    assert ops == ["RANGE", "LOAD", "LOAD", "RANGE", "LOAD", "PREFETCH", "END", "END"]


def test_rows_ahead_are_those_of_the_loop():
    """Threads that take every second row ask for what they read next."""
    x = data(64, ROW)[at(64)]
    (call,) = schedule(list(over_params([x.uop])[0].src), "cpu").linear.src
    actions = (("SPLIT", 1, (16, "UPCAST", False)), ("SPLIT", 0, (2, "THREAD", False)), ("PREFETCH", 1, ("rows", 3)))
    kernel = apply_actions(lower_kernel(call.src[0], TARGET, last="merge_ranges"), actions, TARGET)
    (fetch,) = (u for u in toposort(kernel) if u.op == "PREFETCH")
    (loop,) = (r for r in toposort(fetch) if r.op == "RANGE" and r.src[0] is idx(32))
    (place,) = (u.src[0].src[1] for u in toposort(fetch) if u.op == "LOAD")
    assert min_max(substitute(place, {loop: idx(0)})) == (6, 7) and min_max(place) == (6, 63)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.float16])
def test_object_code(dtype):
    n = 4 * (N << 2) // np.dtype(dtype).itemsize
    streamed, plain = (
        assembly(data(n, dtype=dtype) + data(n, dtype=dtype), TARGET._replace(streams=s)) for s in (1, 0)
    )
    vectors = len(re.findall(r"\tvmovnt(?:ps|pd|dq)\t%[xyz]mm", streamed))
    assert vectors == streamed.count("vmovnt") > 0 and streamed.count("prefetcht0") >= 2
    assert "vmovnt" not in plain and "prefetch" not in plain
    fence = r"(mfence|lock\w*\s+or\w*)"
    last = streamed[streamed.rindex("vmovnt") :]
    assert re.search(fence, last) and not re.search(fence, plain), "streamed stores are ordered by a fence alone"


def test_an_interpreted_program_ignores_the_flags():
    a, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    (call,) = schedule(list(over_params([(Tensor(a) * 2).uop])[0].src), "cpu").linear.src
    actions = (("SPLIT", 0, (16, "UPCAST", False)), ("NONTEMPORAL", 0, None), ("PREFETCH", 0, 4096))
    kernel = apply_actions(lower_kernel(call.src[0], TARGET, last="merge_ranges"), actions, TARGET)
    assert flags_of(kernel) == (['"nontemporal"'], ["4096"])
    device = PythonDevice()
    (program,) = device.compile([("double", "double", lower_kernel(kernel, device.target, first="device_axes"))])
    commands = device.encode(*launching((program, (0, 1))))
    for k, x in enumerate((out, a)):
        commands.bind(k, x.ctypes.data)
    commands.launch()
    np.testing.assert_array_equal(out, a * 2)


def test_values_are_the_same():
    rng = np.random.default_rng(1)
    a = rng.standard_normal((4096, 2048), dtype=np.float32)  # an output as large as the largest last cache counted
    x = Tensor(a)
    for got, want in (
        (x * 2 + 1, a * 2 + 1),
        (x.T.contiguous(), a.T),
        (x - x.amax(1, keepdim=True), a - a.max(1)[:, None]),
    ):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


# ---- products of few rows, whose weights come from memory ------------------------------------------------------------
def test_rows_of_weights_that_stream_are_asked_for_early():
    assert flags(data(1, 256) @ data(256, 256), TARGET._replace(multiply_adds=1))[1] == ["1024"]
    assert flags(data(8, 256) @ data(256, 256))[1] == ["1024"]
    assert flags(data(8, 256) @ data(256, 256).T)[1] == ["2048"]
    assert flags(data(8, 64) @ data(64, 64))[1] == []  # they stay in the last cache


@pytest.mark.parametrize("w", [data(256, 256), data(256, 256).T])
def test_rows_that_stream_side_by_side_are_asked_for_in_the_second_cache(w):
    """They meet in few sets of the first, which what comes next would leave before it is read."""
    text = assembly(data(8, 256) @ w)
    assert text.count("prefetcht1") and not text.count("prefetcht0")


@pytest.mark.parametrize("multiply_adds", [1, 2])
@pytest.mark.parametrize("rows", [6, 8, 12])
def test_weights_that_stream_are_read_once(rows, multiply_adds):
    """A tile has all rows, and each thread columns of its own: else the weights would come from memory again."""
    kernel = optimized(data(rows, 256) @ data(256, 512), TARGET._replace(multiply_adds=multiply_adds))
    splits = [(axis, arg[:2]) for op, axis, arg in kernel.arg.actions if op == "SPLIT"]
    assert (0, (rows, "UPCAST")) in splits
    loads = {u.src[0].src[0].shape: u for u in toposort(kernel) if u.op == "LOAD"}
    shared = {shape for shape, u in loads.items() if any(x.op == "SPECIAL" for x in toposort(u))}
    assert (256 * 512,) in shared and (rows * 256,) not in shared


@pytest.mark.parametrize(
    ("n", "k", "changes", "side_by_side"),
    [
        (64, 2048, {}, [8]),
        (60, 2048, {}, [6]),  # what divides the rows
        (64, 2048, {"multiply_adds": 2}, []),
        (64, 512, {}, []),  # short ones, one after the other, are one stream
        (64, 2056, {}, []),  # each step would ask which lanes are inside
    ],
)
def test_long_rows_that_are_multiplied_by_one_vector_stream_side_by_side(n, k, changes, side_by_side):
    target = TARGET._replace(**({"multiply_adds": 1, "l1_bytes": 32 << 10, "l2_bytes": 1 << 20} | changes))
    kernel = optimized(data(1, k) @ data(n, k).T, target)
    splits = [arg for op, _, arg in kernel.arg.actions if op == "SPLIT"]
    assert [rows for rows, kind, _ in splits if kind == "UPCAST"] == side_by_side
    assert flags_of(kernel)[1] == [str(rows * k * 4) for rows in side_by_side]  # where the next rows have it
    if side_by_side:
        assert flags(data(1, k) @ data(n, k).T, target._replace(l2_bytes=1 << 12))[1] == ["1024"]


def test_rows_of_a_matrix_in_cache_share_the_vector_and_no_more():
    target = TARGET._replace(multiply_adds=1, l3_bytes=1 << 20)
    kernel = optimized(data(1, 2048) @ data(64, 2048).T, target)
    splits = [arg for op, _, arg in kernel.arg.actions if op == "SPLIT"]
    assert [rows for rows, kind, _ in splits if kind == "UPCAST"] == [4]
    assert flags_of(kernel)[1] == []


# ---- products of many rows -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("k", "n", "strides"), [(2048, 64, [2048]), (64, 64, []), (2048, 2048, [2048] * 2)])
def test_the_next_rows_of_tiles_are_asked_for(k, n, strides):
    """Those of A, and what earlier blocks of the sum left: a page away or more, and not in the second cache."""
    kernel = optimized(data(64, k) @ data(k, n), TWICE_ROWS)
    rows = next(n for op, axis, (n, kind, _) in kernel.arg.actions if op == "SPLIT" and kind == "UPCAST" and axis == 0)
    assert flags_of(kernel)[1] == [str(rows * stride * 4) for stride in strides]


@pytest.mark.parametrize(("size", "ahead"), [(34, 96 * 34 * 34), (70, 2 * 70)])
def test_the_next_rows_of_an_image_are_asked_for_where_the_next_image_had_to_leave_again(size, ahead):
    """Of what is asked for, half of the second cache stays until it is used. Rows that near are no stream: between two
    of them all channels are read.
    """
    kernel = optimized(data(4, 96, size, size).conv2d(data(128, 96, 3, 3), stride=2), TARGET._replace(l2_bytes=1 << 20))
    assert flags_of(kernel)[1] == [str(ahead * 4)]


def test_a_line_is_asked_for_once():
    """Four steps of the sum read one line of each row of a tile, two vectors of what they add to are two."""
    a, b = data(64, 2048), data(2048, 64)
    rows = next(n for op, axis, (n, kind, _) in optimized(a @ b, TWICE_ROWS).arg.actions if op == "SPLIT" and axis == 0)
    assert assembly(a @ b, TWICE_ROWS).count("prefetcht1") == rows > 1


def test_what_earlier_blocks_left_is_read_when_the_sum_is_known():
    """Under a mask, for the first block reads nothing: after the loop, not before it."""
    text = assembly(data(64, 2048) @ data(2048, 2048))
    masked = [m.start() for m in re.finditer(r"\{%k\d\}", text)]
    assert masked and min(masked) > text.rindex("vfmadd")


def test_each_thread_reads_its_own_part_of_the_weights():
    """x·Wᵀ of few rows: threads share out the rows of W, which there are most of, not those of x."""
    kernel = optimized(data(8, 512) @ data(256, 512).T)
    loads = {u.src[0].src[0].shape: u for u in toposort(kernel) if u.op == "LOAD"}
    shared = {shape for shape, u in loads.items() if any(x.op == "SPECIAL" for x in toposort(u))}
    assert shared == {(256 * 512,)} and len(loads) == 2


@pytest.mark.parametrize(
    ("l1_bytes", "columns", "rows"), [(32 << 10, 1024, 8), (48 << 10, 1024, 16), (32 << 10, 1000, 16)]
)
@pytest.mark.parametrize("f", [lambda x, w: x @ w, lambda x, w: w.sum(0)])
def test_as_many_rows_stream_side_by_side_as_the_first_cache_holds(f, l1_bytes, columns, rows):
    """Rows at strides of pages meet in one set of it, which has a line of each page that the cache is large."""
    target = TARGET._replace(l1_bytes=l1_bytes, multiply_adds=1)
    kernel = optimized(f(data(1, 256), data(256, columns)), target)
    splits = (arg for op, _, arg in kernel.arg.actions if op == "SPLIT")
    assert [k for k, kind, _ in splits if kind == "LOOP"] == [256 // rows]


@pytest.mark.parametrize(
    ("rows", "changed", "ahead", "at_once"),
    [
        (8, {}, 4 * 4096, 4),
        (4, {}, 1024, 16),  # few sums: the processor comes by itself
        (8, {"multiply_adds": 1}, 1024, 16),
        (8, {"l2_bytes": 32 << 10}, 1024, 16),  # four rows and the next four leave no room for sums
    ],
)
def test_many_sums_ask_for_the_next_few_rows(rows, changed, ahead, at_once):
    target = TARGET._replace(**{"l1_bytes": 64 << 10, "l2_bytes": 64 << 10, "multiply_adds": 2} | changed)
    kernel = optimized(data(rows, 256) @ data(256, 1024), target)
    blocks = [k for op, _, (k, kind, _) in (a for a in kernel.arg.actions if a[0] == "SPLIT") if kind == "LOOP"]
    assert flags_of(kernel)[1] == [str(ahead)] and 256 // at_once in blocks


@pytest.mark.parametrize("f", [lambda x, w: x @ w, lambda x, w: w.sum(0)])
def test_beside_two_multiply_adds_four_vectors_of_four_rows_stream_unasked(f):
    """Such processors come for them by themselves: what is asked for as well takes their place."""
    kernel = optimized(f(data(1, 256), data(256, 1024)), TARGET._replace(multiply_adds=2))
    splits = [(k, kind) for op, _, (k, kind, _) in (a for a in kernel.arg.actions if a[0] == "SPLIT")]
    assert (16, "UPCAST") in splits and (4, "UPCAST") in splits and (4, "UNROLL") in splits
    assert flags_of(kernel)[1] == []
