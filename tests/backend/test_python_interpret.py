"""The Python device: programs written by hand, as nodes and as text, and kernels lowered from tensor graphs."""

import time
from collections.abc import Callable
from math import prod

import numpy as np
import pytest

from monolect.autograd.graph import pad
from monolect.backend.base import launching
from monolect.backend.python.interpret import Kernel
from monolect.backend.python.runtime import PythonDevice
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import CompileError, IndexRangeError, InternalError
from monolect.ir.check.verify import verify
from monolect.ir.ops import ELEMENTWISE, INVALID, BufferArg, KernelInfo, ParamArg, Stage
from monolect.ir.text import parse
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, substitute, toposort
from monolect.lower.expand import expand
from monolect.lower.linearize import linearize
from monolect.lower.reduce import lower_reduce
from monolect.pipeline import schedule

F32, I32 = dtypes.float32, dtypes.int32


# ---- making and running programs -------------------------------------------------------------------------------------
def param(slot: int, *shape: int, dtype: DType = F32) -> UOp:
    return node("PARAM", (shape_source(shape),), ParamArg(slot, dtype, "python"))


def variable(slot: int, name: str, hi: int) -> UOp:
    return node("PARAM", (shape_source(()),), ParamArg(slot, dtypes.index, None, None, name, 0, hi))


def buffer(slot: int, space: str, *shape: int, dtype: DType = F32) -> UOp:
    return node("BUFFER", (shape_source(shape),), BufferArg(slot, dtype, None, space))


def loop(n: int | UOp, number: int = 0, kind: str = "LOOP") -> UOp:
    return node("RANGE", (idx(n),), (number, kind))


def special(name: str, n: int) -> UOp:
    return node("SPECIAL", (idx(n),), name)


def at(memory: UOp, *index: int | UOp) -> UOp:
    return node("INDEX", (memory, *(idx(i) for i in index)))


def load(view: UOp, *rest: UOp) -> UOp:
    return node("LOAD", (view, *rest))


def store(view: UOp, value: UOp, *gate: UOp) -> UOp:
    return node("STORE", (view, value, *gate))


def numbers(*values: int) -> UOp:
    return node("STACK", tuple(idx(v) for v in values))


def program(*effects: UOp) -> UOp:
    """The LINEAR of effects whose loops are closed by END nodes."""
    return linearize(lower_reduce(expand(node("SINK", effects, KernelInfo("test")))))


def linear(*roots: UOp) -> UOp:
    """The LINEAR of what the roots need, in the order of the graph."""
    return node("LINEAR", tuple(toposort(*roots)), KernelInfo("test"))


def run(lin: UOp, *args: np.ndarray | int) -> None:
    verify(lin, Stage.PROGRAM)
    device = PythonDevice()
    (p,) = device.compile([("test", "key", lin)])
    assert device.lookup("key") is p and device.lookup("other") is None and p.entry is lin
    commands = device.encode(*launching((p, tuple(range(len(args))))))
    for k, a in enumerate(args):
        commands.bind(k, a if isinstance(a, int) else a.ctypes.data)
    commands.launch()


def zeros(*shape: int, dtype: str = "f4") -> np.ndarray:
    return np.zeros(shape, dtype)


def arange(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32)


# ---- loops, registers, gates -----------------------------------------------------------------------------------------
def test_loop() -> None:
    r = loop(8)
    out, a, b = zeros(8), arange(8), arange(8) * 2
    value = build("ADD", load(at(param(1, 8), r)), load(at(param(2, 8), r)))
    run(program(node("END", (store(at(param(0, 8), r), value), r))), out, a, b)
    np.testing.assert_array_equal(out, a + b)


def test_text_with_a_bound_known_at_run_time() -> None:
    lin = parse("""
        %1 = STACK idx[0]
        %2 = PARAM idx[] %1 ParamArg(slot=2, dtype=idx, name="n", min=0, max=8)
        %3 = STACK idx[1] %2
        %4 = PARAM f32[%2] %3 ParamArg(slot=0, dtype=f32)
        %5 = PARAM f32[%2] %3 ParamArg(slot=1, dtype=f32)
        %6 = RANGE idx[] %2 (0, "LOOP")
        %7 = INDEX f32[] %5 %6
        %8 = LOAD f32[] %7
        %9 = SQRT f32[] %8
        %10 = INDEX f32[] %4 %6
        %11 = STORE void[] %10 %9
        %12 = END void[] %11 %6
        %13 = LINEAR void[] %2 %4 %5 %6 %7 %8 %9 %10 %11 %12
    """)
    for n in (0, 3, 8):
        out = zeros(8)
        run(lin, out, arange(8), n)
        np.testing.assert_array_equal(out, np.where(arange(8) < n, np.sqrt(arange(8)), 0))


def test_an_index_is_checked_against_the_size_at_run_time() -> None:
    n = variable(1, "n", 8)
    p = node("PARAM", (shape_source((n,)),), ParamArg(0, F32))
    lin = linear(store(at(p, 4), const(1.0, F32)))
    run(lin, out := zeros(8), 5)
    assert out[4] == 1
    with pytest.raises(IndexRangeError):
        run(lin, out, 4)


def test_reduction_in_a_register() -> None:
    i, k = loop(4), loop(8, 1, "REDUCE")
    total = node("REDUCE", (load(at(param(1, 32), i * 8 + k)), k), ("ADD", ()))
    lin = program(node("END", (store(at(param(0, 4), i), total), i)))
    assert any(u.op == "BUFFER" and u.arg.addrspace == "REG" for u in lin.src)
    out = zeros(4)
    run(lin, out, arange(32))
    np.testing.assert_array_equal(out, arange(32).reshape(4, 8).sum(1))


def test_indexed_register_is_an_array_and_a_load_is_a_copy() -> None:
    acc = buffer(0, "REG", 2)
    first = store(at(acc, 0), const(3.0, F32))
    before = load(at(node("AFTER", (acc, first)), 0))
    second = store(node("AFTER", (acc, first)), build("STACK", before * 2.0, before))
    after = load(node("AFTER", (acc, second)))
    out = zeros(3)
    written = store(at(param(0, 3), numbers(0, 1)), after)
    run(linear(first, before, second, after, written, store(at(param(0, 3), 2), before)), out)
    np.testing.assert_array_equal(out, [6, 3, 3])


def test_false_gate_touches_nothing() -> None:
    r = loop(6)
    inside = build("CMPLT", r, idx(4))
    value = load(at(param(1, 4), r), const(-1.0, F32), inside)
    out = zeros(6)
    run(program(node("END", (store(at(param(0, 6), r), value), r))), out, arange(4))
    np.testing.assert_array_equal(out, [0, 1, 2, 3, -1, -1])
    out = zeros(4)
    run(program(node("END", (store(at(param(0, 4), r), const(2.0, F32), inside), r))), out)
    np.testing.assert_array_equal(out, [2, 2, 2, 2])


def test_shaped_gates() -> None:
    lanes = numbers(0, 1, 2, 3, 4, 5)
    inside = build("CMPLT", lanes, idx(4))
    value = load(at(param(1, 4), lanes), const(-1.0, F32), inside)
    out, some = zeros(6), zeros(4)
    run(
        linear(store(at(param(0, 6), lanes), value), store(at(param(2, 4), lanes), value, inside)), out, arange(4), some
    )
    np.testing.assert_array_equal(out, [0, 1, 2, 3, -1, -1])
    np.testing.assert_array_equal(some, [0, 1, 2, 3])


def test_gate_larger_than_its_index_repeats_the_load() -> None:
    gate = build("CMPLT", numbers(0, 1), idx(1))
    value = load(at(param(1, 2), 0), const(-1.0, F32), gate)
    assert value.shape == (2,)
    out = zeros(2)
    run(linear(store(at(param(0, 2), numbers(0, 1)), value)), out, np.array([5, 7], np.float32))
    np.testing.assert_array_equal(out, [5, -1])


def test_invalid_is_not_stored() -> None:
    r = loop(4)
    value = node("WHERE", (build("CMPLT", r, idx(2)), const(7.0, F32), const(INVALID, F32)))
    effects = [store(at(param(0, 4), r), value), store(at(param(1, 4), r), const(INVALID, F32))]
    out, other = zeros(4), arange(4)
    run(program(*(node("END", (e, r)) for e in effects)), out, other)
    np.testing.assert_array_equal(out, [7, 7, 0, 0])
    np.testing.assert_array_equal(other, arange(4))


# ---- indices ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "index",
    [idx(4), idx(-1), numbers(1, 2, 3, 4), numbers(-1, 0), numbers(0, 2, 9), loop(5)],
    ids=["beyond", "negative", "run", "negative-lane", "lanes", "loop"],
)
@pytest.mark.parametrize("write", [False, True])
def test_index_outside_names_the_kernel(index: UOp, write: bool) -> None:
    out = zeros(16)
    value = const(1.0, F32) if write else load(at(param(0, 4), index))
    effect = store(at(param(0, 4), index), value) if write else store(at(param(1, 16), 0), load_first(value))
    lin = program(node("END", (effect, index))) if index.op == "RANGE" else linear(effect)
    with pytest.raises(IndexRangeError, match=r"kernel test: an index is outside PARAM 0(.|\n)*expected: 0\.\.3"):
        run(lin, out, out)
    assert not out[4:].any()


def load_first(value: UOp) -> UOp:
    return value if value.shape == () else build("RESHAPE", node("REDUCE", (value,), ("MAX", (0,))), shape_source(()))


def test_index_computed_from_data() -> None:
    lanes = numbers(0, 1, 2, 3)
    picked = build("CAST", load(at(param(2, 4, dtype=I32), lanes)), arg=dtypes.index)
    lin = linear(store(at(param(0, 4), lanes), load(at(param(1, 8), picked))))
    out = zeros(4)
    run(lin, out, arange(8), np.array([7, 0, 3, 3], np.int32))
    np.testing.assert_array_equal(out, [7, 0, 3, 3])
    with pytest.raises(IndexRangeError):
        run(lin, out, arange(8), np.array([7, 0, 8, 3], np.int32))


def test_an_index_from_memory_is_a_number_of_any_size() -> None:
    """Arithmetic that may leave 64 bits is done in Python's numbers."""
    picked = load(at(param(2, 4, dtype=dtypes.index), 3))
    lin = linear(store(at(param(0, 1), 0), load(at(param(1, 8), picked * 3 % 8))))
    out = zeros(1)
    run(lin, out, arange(8), np.array([0, 0, 0, 2**62 + 1]))
    np.testing.assert_array_equal(out, [((2**62 + 1) * 3 - 2**64) % 8])


def test_several_indices_and_views() -> None:
    i, j = loop(2), loop(3, 1)
    rows = load(at(param(1, 3, 2), j))  # a row: the last axis remains
    picked = node("INDEX", (rows, i))
    lin = program(node("END", (store(at(param(0, 2, 3), i, j), picked), i, j)))
    out, a = zeros(2, 3), arange(6).reshape(3, 2)
    run(lin, out, a)
    np.testing.assert_array_equal(out, a.T)
    with pytest.raises(IndexRangeError, match="PARAM 1"):
        run(linear(store(at(param(0, 2, 3), 0, 0), load(at(param(1, 3, 2), 0, 2)))), out, a)


def test_views_of_memory() -> None:
    whole = node("RESHAPE", (param(1, 6), shape_source((2, 3))))
    row = node("EXPAND", (node("RESHAPE", (at(whole, 1), shape_source((1, 3)))), shape_source((2, 3))))
    words = node("BITCAST", (param(1, 6),), dtypes.uint32)
    lin = linear(store(param(0, 2, 3), load(row)), store(param(2, dtype=dtypes.uint32), load(at(words, 3))))
    out, raw = zeros(2, 3), zeros(1, dtype="u4")
    run(lin, out, arange(6), raw)
    np.testing.assert_array_equal(out, [[3, 4, 5]] * 2)
    assert raw[0] == arange(6).view("u4")[3]


def test_empty_memory() -> None:
    p = param(1, 0)
    gate = build("CMPLT", load(at(param(2, 1, dtype=I32), 0)), const(0, I32))
    out = zeros(1)
    run(linear(store(at(param(0, 1), 0), load(at(p, 0), const(5.0, F32), gate))), out, 0, np.zeros(1, np.int32))
    assert out[0] == 5
    with pytest.raises(IndexRangeError, match="it is empty"):
        run(linear(store(at(param(0, 1), 0), load(at(p, 0)))), out, 0)


# ---- values ----------------------------------------------------------------------------------------------------------
def test_shaped_values() -> None:
    x = load(at(param(1, 6), numbers(0, 1, 2, 3, 4, 5)))
    grid = node("RESHAPE", (x, shape_source((2, 3))))
    column = node("RESHAPE", (load(at(param(2, 2), numbers(0, 1))), shape_source((2, 1))))
    both = build("ADD", grid, node("EXPAND", (column, shape_source((2, 3)))))
    total = node("REDUCE", (both,), ("ADD", (1,)))
    out, sums = zeros(2, 3), zeros(2, 1)
    run(linear(store(param(0, 2, 3), both), store(param(3, 2, 1), total)), out, arange(6), arange(2) * 10, sums)
    np.testing.assert_array_equal(out, arange(6).reshape(2, 3) + [[0], [10]])
    np.testing.assert_array_equal(sums, out.sum(1, keepdims=True))


def test_index_and_stack_of_values() -> None:
    i = load(at(param(1, 1, dtype=I32), 0))
    table = node("STACK", (const(1.5, F32), load(at(param(2, 1), 0)), const(2.5, F32)))
    out = zeros(1)
    lin = linear(store(at(param(0, 1), 0), node("INDEX", (table, build("CAST", i, arg=dtypes.index)))))
    run(lin, out, np.array([1], np.int32), np.array([9], np.float32))
    assert out[0] == 9
    with pytest.raises(IndexRangeError, match="kernel test: an index into a value"):
        run(lin, out, np.array([3], np.int32), zeros(1))


@pytest.mark.parametrize("d", [dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2])
def test_small_floats_are_rounded_after_each_operation(d: DType) -> None:
    a, b = (np.random.default_rng(k).normal(size=32).astype(d.numpy) for k in (1, 2))
    out, scalars = np.zeros(32, d.numpy), np.zeros(32, d.numpy)
    lanes, r = numbers(*range(32)), loop(32)

    def value(i: UOp) -> UOp:
        x, y = (load(at(param(k, 32, dtype=d), i)) for k in (1, 2))
        return build("ADD", build("MUL", x, y), x)

    run(linear(store(at(param(0, 32, dtype=d), lanes), value(lanes))), out, a, b)
    run(program(node("END", (store(at(param(0, 32, dtype=d), r), value(r)), r))), scalars, a, b)
    product = (a.astype("f4") * b.astype("f4")).astype(d.numpy)
    want = (product.astype("f4") + a.astype("f4")).astype(d.numpy)
    np.testing.assert_array_equal(out.view("u1"), want.view("u1"))
    np.testing.assert_array_equal(scalars.view("u1"), want.view("u1"))


def test_casts_saturate_integers_wrap_and_bits_are_kept() -> None:
    lanes = numbers(0, 1, 2, 3)
    x = load(at(param(1, 4), lanes))
    small = build("CAST", x, arg=dtypes.int8)
    wrapped = build("ADD", small, const(1, dtypes.int8))
    i8, u32 = param(0, 4, dtype=dtypes.int8), param(2, 4, dtype=dtypes.uint32)
    out, raw = zeros(4, dtype="i1"), zeros(4, dtype="u4")
    a = np.array([1e9, -1e9, np.nan, 2.7], np.float32)
    run(linear(store(at(i8, lanes), wrapped), store(at(u32, lanes), node("BITCAST", (x,), dtypes.uint32))), out, a, raw)
    np.testing.assert_array_equal(out, [-128, -127, 1, 3])
    np.testing.assert_array_equal(raw, a.view("u4"))


def test_where_and_bool_memory() -> None:
    r = loop(4)
    x = load(at(param(1, 4), r))
    small = build("CMPLT", x, const(2.0, F32))
    flags = param(2, 4, dtype=dtypes.bool)
    effects = [store(at(param(0, 4), r), node("WHERE", (small, x, const(0.0, F32)))), store(at(flags, r), small)]
    out, kept = zeros(4), zeros(4, dtype="?")
    run(program(*(node("END", (e, r)) for e in effects)), out, arange(4), kept)
    np.testing.assert_array_equal(out, [0, 1, 0, 0])
    np.testing.assert_array_equal(kept, [True, True, False, False])


def test_threefry_and_wide_integers() -> None:
    d = dtypes.uint64
    value = build("THREEFRY", load(at(param(1, 1, dtype=d), 0)), const(2**63 + 5, d))
    out = zeros(1, dtype="u8")
    run(linear(store(at(param(0, 1, dtype=d), 0), value)), out, np.array([7], np.uint64))
    assert out[0] > 0


@pytest.mark.parametrize(("a", "acc"), [(F32, F32), (dtypes.float16, F32), (dtypes.int8, I32)])
def test_wmma(a: DType, acc: DType) -> None:
    def tile(slot: int, d: DType, *shape: int) -> UOp:
        n = prod(shape)
        return node("RESHAPE", (load(at(param(slot, n, dtype=d), numbers(*range(n)))), shape_source(shape)))

    out = np.zeros((8, 4), acc.numpy)
    x, y = (np.random.default_rng(k).integers(-5, 5, s).astype(a.numpy) for k, s in ((1, (8, 16)), (2, (4, 16))))
    z = np.arange(32).astype(acc.numpy).reshape(8, 4)
    wmma = node("WMMA", (tile(1, a, 8, 1, 16), tile(2, a, 4, 16), tile(3, acc, 8, 4)), ("unit", 1))
    run(linear(store(param(0, 8, 4, dtype=acc), wmma)), out, x, y, z)
    np.testing.assert_array_equal(out, x.astype(acc.numpy) @ y.T.astype(acc.numpy) + z)


@pytest.mark.parametrize("d", [F32, I32, dtypes.float16])
def test_atomics_add_duplicates(d: DType) -> None:
    add = node("ATOMICADD", (at(param(0, 4, dtype=d), numbers(1, 1, 3, 1)), const(2, d)))
    r = loop(3)
    inside = build("CMPLT", r, idx(2))
    again = node("ATOMICADD", (at(param(0, 4, dtype=d), 0), const(1, d), inside))
    out = np.zeros(4, d.numpy)
    run(program(add, node("END", (again, r))), out)
    np.testing.assert_array_equal(out, [2, 6, 0, 2])
    with pytest.raises(IndexRangeError):
        run(linear(node("ATOMICADD", (at(param(0, 4, dtype=d), 4), const(1, d)))), out)


# ---- control, threads, workgroups ------------------------------------------------------------------------------------
def test_if() -> None:
    r = loop(6)
    x = load(at(param(1, 6), r))
    begin = node("IF", (build("CMPLT", r, idx(3)),))
    end = node("ENDIF", (begin,))
    write = store(at(param(0, 6), r), x)
    closed = node("END", (end, r))
    parts = [param(0, 6), param(1, 6), r, x.src[0], x, begin.src[0], begin, write.src[0], write, end, closed]
    out = zeros(6)
    run(node("LINEAR", tuple(parts)), out, arange(6) + 1)
    np.testing.assert_array_equal(out, [1, 2, 3, 0, 0, 0])


def test_threads() -> None:
    t, r = special("thread0", 2), loop(4)
    lin = program(node("END", (store(at(param(0, 8), t * 4 + r), build("CAST", t, arg=F32)), r)))
    out = zeros(8)
    run(lin, out)
    np.testing.assert_array_equal(out, [0] * 4 + [1] * 4)


def workgroup_sum(n_groups: int, n_lanes: int) -> UOp:
    """Each lane squares its element into LOCAL memory; after the BARRIER, lane 0 adds them up."""
    g, lane, k = special("gidx0", n_groups), special("lidx0", n_lanes), loop(n_lanes)
    tile, acc = buffer(0, "LOCAL", n_lanes), buffer(1, "REG")
    x = load(at(param(1, n_groups * n_lanes), g * n_lanes + lane))
    barrier = node("BARRIER", (store(at(tile, lane), build("MUL", x, x)),))
    start = store(acc, const(0.0, F32))
    shared = load(at(node("AFTER", (tile, barrier)), k))
    step = store(acc, build("ADD", load(node("AFTER", (acc, start, k))), shared))
    closed = node("END", (step, k))
    gate = build("CMPLT", lane, idx(1))
    out = store(at(param(0, n_groups), g), load(node("AFTER", (acc, closed))), gate)
    return in_order(barrier, start, gate, k, closed, out)


def in_order(*roots: UOp) -> UOp:
    """The LINEAR in which each root, with what it needs, follows the one before."""
    return node("LINEAR", tuple(dict.fromkeys(u for r in roots for u in toposort(r))), KernelInfo("test"))


def test_workgroups_with_local_memory_and_a_barrier() -> None:
    out, a = zeros(3), arange(24)
    run(workgroup_sum(3, 8), out, a)
    np.testing.assert_array_equal(out, (a * a).reshape(3, 8).sum(1))


def test_barrier_in_a_loop() -> None:
    """Lanes pass a value around a ring: each step reads what the neighbour wrote before the barrier."""
    lane, r, tile = special("lidx0", 4), loop(3), buffer(0, "LOCAL", 4)
    first = store(at(tile, lane), build("CAST", lane, arg=F32))
    ready = node("BARRIER", (first,))
    got = load(at(node("AFTER", (tile, ready, r)), (lane + 1) % 4))
    read = node("BARRIER", (got,))
    put = store(at(node("AFTER", (tile, read)), lane), got)
    done = node("BARRIER", (put,))
    closed = node("END", (done, r))
    out = store(at(param(0, 4), lane), load(at(node("AFTER", (tile, closed)), lane)))
    memory = zeros(4)
    run(in_order(ready, r, closed, out), memory)
    np.testing.assert_array_equal(memory, [3, 0, 1, 2])


def test_divergent_barrier() -> None:
    lane = special("lidx0", 3)
    begin = node("IF", (build("CMPLT", lane, idx(2)),))
    lin = node("LINEAR", (lane, begin.src[0], begin, node("BARRIER"), node("ENDIF", (begin,))))
    with pytest.raises(InternalError, match=r"diverge at a BARRIER(.|\n)*lane 1 at barrier 1, lane 2 at the end"):
        run(lin)


def test_registers_belong_to_a_lane_and_local_memory_to_a_workgroup() -> None:
    g, lane, acc, tile = special("gidx0", 2), special("lidx0", 2), buffer(0, "REG"), buffer(1, "LOCAL", 2)
    old = [load(acc), load(at(tile, lane))]
    effects = [store(acc, const(1.0, F32)), store(at(tile, lane), const(1.0, F32))]
    outs = [store(at(param(k, 4), g * 2 + lane), v) for k, v in enumerate(old)]
    a, b = zeros(4), zeros(4)
    run(linear(*outs, *effects), a, b)
    assert np.isnan(a).all() and np.isnan(b).all()


# ---- what is refused -------------------------------------------------------------------------------------------------
def test_foreign_code_is_refused() -> None:
    custom = node("CUSTOM", (), ("asm()", F32, False))
    with pytest.raises(CompileError, match="kernel test: the Python target cannot run CUSTOM"):
        Kernel(linear(store(at(param(0, 1), 0), custom)), "test")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: linear(store(at(param(0, 1), 0), node("REDUCE", (const(1.0, F32), loop(3)), ("ADD", ())))),
            "no row for REDUCE",
        ),
        (lambda: linear(store(param(0, 1), param(1, 1))), "memory is used as a value"),
        (lambda: node("LINEAR", (store(at(param(0, 1), 0), load(at(param(0, 1), 0))),)), "LOAD is used but not listed"),
        (lambda: linear(special("warp7", 3)), "unknown SPECIAL"),
        (lambda: linear(special("lidx0", 3), special("lidx0", 4)), "two bounds"),
        (lambda: linear(store(at(buffer(0, "GLOBAL", 2), 0), const(0.0, F32))), "without an address"),
    ],
)
def test_broken_programs_are_refused(make: Callable[[], UOp], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        Kernel(make(), "test")


def test_too_few_arguments() -> None:
    with pytest.raises(InternalError, match="too few arguments"):
        run(linear(store(at(param(1, 1), 0), const(0.0, F32))), zeros(1))


def test_target_decomposes_nothing() -> None:
    device = PythonDevice()
    assert ELEMENTWISE <= device.target.native and device.target.key == "python"
    assert dtypes.bfloat16 in device.target.native_dtypes


# ---- whole tensor graphs ---------------------------------------------------------------------------------------------
def reshape(x: UOp, *shape: int) -> UOp:
    return build("RESHAPE", x, shape_source(shape))


def spread(x: UOp, *shape: int) -> UOp:
    return build("EXPAND", reshape(x, *(1,) * (len(shape) - len(x.shape)), *x.shape), shape_source(shape))


def reduce(x: UOp, op: str = "ADD") -> UOp:
    return build("REDUCE", x, arg=(op, (len(x.shape) - 1,)))


def scaled(x: UOp, by: float) -> UOp:
    return build("MUL", x, spread(const(by, x.dtype), *x.shape))


def softmax(x: UOp) -> UOp:
    e = build("EXP2", build("ADD", x, scaled(spread(reduce(x, "MAX"), *x.shape), -1.0)))
    return build("MUL", e, build("RECIP", spread(reduce(e), *x.shape)))


def matmul(x: UOp, y: UOp) -> UOp:
    (m, k), (_, n) = x.shape, y.shape
    rows = spread(reshape(x, m, 1, k), m, n, k)
    columns = spread(build("PERMUTE", y, arg=(1, 0)), m, n, k)
    return reshape(reduce(build("MUL", rows, columns)), m, n)


def layernorm(x: UOp) -> UOp:
    n = x.shape[-1]
    centred = build("ADD", x, scaled(spread(reduce(x), *x.shape), -1.0 / n))
    variance = scaled(reduce(build("MUL", centred, centred)), 1.0 / n)
    root = build("SQRT", build("ADD", variance, spread(const(1e-5, F32), *variance.shape)))
    return build("MUL", centred, build("RECIP", spread(root, *x.shape)))


def padded(x: UOp) -> UOp:
    (m, n) = x.shape
    return pad(x, (1, 2), (m + 3, n + 4), fill=-1)


def numpy_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp2(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def numpy_layernorm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def numpy_padded(x: np.ndarray) -> np.ndarray:
    return np.pad(x, ((1, 2), (2, 2)), constant_values=-1)


def lowered(sink: UOp, shaped: bool) -> UOp:
    """The program of a kernel; if `shaped`, its last output loop becomes vector lanes."""
    if shaped:
        outer = [u for u in toposort(sink) if u.op == "RANGE" and u.arg[1] == "LOOP"]
        if outer:
            r = max(outer, key=lambda u: u.arg[0])
            sink = substitute(sink, {r: node("RANGE", r.src, (r.arg[0], "UPCAST"))})
    return linearize(lower_reduce(expand(sink)))


def compute(root: UOp, inputs: list[np.ndarray], shaped: bool) -> np.ndarray:
    """Schedule, lower and run the graph of `root`, whose PARAM k is `inputs[k]`."""
    device = PythonDevice()
    made = schedule([root], "python")
    memory = {u: device.from_array(inputs[u.arg.slot]) for u in toposort(root) if u.op == "PARAM"}
    buffers = [u for u in toposort(made.linear) if u.op == "BUFFER"]
    memory.update({u: device.alloc(prod(u.shape) * u.dtype.itemsize) for u in buffers})
    number = {u: k for k, u in enumerate(memory)}
    launches = []
    for k, call in enumerate(made.linear.src):
        (p,) = device.compile([(f"kernel{k}", f"key{k}", lowered(call.src[0], shaped))])
        launches.append((p, tuple(number[b] for b in call.src[1:])))
    commands = device.encode(*launching(*launches))
    for u, m in memory.items():
        commands.bind(number[u], m.address)
    assert len(commands.launch_timed()) == len(launches)
    (out,) = made.outputs
    return memory[out].view(out.dtype.numpy).reshape(root.shape).copy()


@pytest.mark.parametrize("shaped", [False, True], ids=["scalar", "shaped"])
@pytest.mark.parametrize(
    ("graph", "shapes", "reference"),
    [
        (softmax, [(5, 8)], numpy_softmax),
        (matmul, [(5, 7), (7, 8)], np.matmul),
        (padded, [(4, 6)], numpy_padded),
        (layernorm, [(3, 16)], numpy_layernorm),
    ],
    ids=["softmax", "matmul", "pad", "layernorm"],
)
def test_tensor_graphs(graph: Callable, shapes: list[tuple], reference: Callable, shaped: bool) -> None:
    inputs = [np.random.default_rng(k).normal(size=s).astype(np.float32) for k, s in enumerate(shapes)]
    root = graph(*(param(k, *s) for k, s in enumerate(shapes)))
    np.testing.assert_allclose(compute(root, inputs, shaped), reference(*inputs), rtol=2e-6, atol=2e-6)


def test_speed_of_vectors() -> None:
    i, j, lanes = loop(128), loop(4, 1), loop(16, 2, "UPCAST")
    index = i * 64 + j * 16 + lanes
    x, y = (load(at(param(k, 8192), index)) for k in (1, 2))
    value = build("SQRT", build("ADD", build("MUL", x, y), build("EXP2", x)))
    kernel = Kernel(program(node("END", (store(at(param(0, 8192), index), value), i, j, lanes))), "test")
    arrays = [zeros(8192), arange(8192) / 8192, arange(8192)]
    best = min(_seconds(lambda: kernel.run([a.ctypes.data for a in arrays])) for _ in range(5))
    np.testing.assert_allclose(arrays[0], np.sqrt(arrays[1] * arrays[2] + np.exp2(arrays[1])), rtol=1e-6)
    assert best < 0.1, f"{best * 1e3:.1f} ms"  # some milliseconds on an idle machine


def _seconds(f: Callable[[], None]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start
