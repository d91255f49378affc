"""The reference interpreter against NumPy, op by op, and on small kernels."""

import ml_dtypes
import numpy as np
import pytest

from monolect.base.dtype import DType, dtypes
from monolect.base.errors import IRError
from monolect.ir.check.interp import evaluate, run_kernel
from monolect.ir.ops import INVALID, BufferArg, KernelInfo, ParamArg
from monolect.ir.uop import UOp, build, const, idx, node, shape_source

rng = np.random.default_rng(0)


def buffer(shape: tuple, dtype: DType = dtypes.float32, slot: int = 0) -> UOp:
    return node("BUFFER", (shape_source(shape),), BufferArg(slot, dtype, "cpu"))


def param(shape: tuple, dtype: DType = dtypes.float32, slot: int = 0) -> UOp:
    return node("PARAM", (shape_source(shape),), ParamArg(slot, dtype))


def variable(name: str, lo: int, hi: int) -> UOp:
    return node("PARAM", (), ParamArg(0, dtypes.index, name=name, min=lo, max=hi))


def loop(k: int, bound: int | UOp, kind: str = "LOOP") -> UOp:
    return node("RANGE", (idx(bound),), (k, kind))


B = buffer((3, 4))
X = rng.standard_normal((3, 4)).astype(np.float32)


def check(u: UOp, want: np.ndarray, env: dict | None = None) -> None:
    got = evaluate(u, {B: X} if env is None else env)
    want = np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape == u.shape
    np.testing.assert_array_equal(got, want)


# ---- tensor stage
def test_movement_ops_agree_with_numpy() -> None:
    check(node("PERMUTE", (B,), (1, 0)), X.T)
    check(node("FLIP", (B,), (True, False)), X[::-1])
    check(node("RESHAPE", (B, shape_source((2, 6)))), X.reshape(2, 6))
    wide = node("RESHAPE", (B, shape_source((3, 1, 4))))
    check(node("EXPAND", (wide, shape_source((3, 5, 4)))), np.repeat(X[:, None], 5, 1))
    check(node("SHRINK", (B, shape_source((1, 0)), shape_source((2, 3)))), X[1:, :3])
    padded = np.full((5, 4), np.nan, np.float32)
    padded[1:4] = X
    check(node("PAD", (B, shape_source((1, 0)), shape_source((5, 4)))), padded)
    check(node("STACK", (B, B)), np.stack([X, X]))


def test_pad_of_integers_reads_as_zero_outside() -> None:
    b = buffer((2,), dtypes.int32)
    pad = node("PAD", (b, shape_source((1,)), shape_source((4,))))
    check(pad, np.array([0, 5, 6, 0], np.int32), {b: np.array([5, 6], np.int32)})


def test_index_is_orthogonal_and_clamps() -> None:
    rows, cols = buffer((2, 2), dtypes.int32, 1), buffer((3,), dtypes.int32, 2)
    r, c = np.array([[0, 2], [-1, 9]], np.int32), np.array([3, 0, 1], np.int32)
    want = X[np.clip(r, 0, 2)][..., c]
    check(node("INDEX", (B, rows, cols)), want, {B: X, rows: r, cols: c})
    check(node("INDEX", (B, rows)), X[np.clip(r, 0, 2)], {B: X, rows: r})
    check(node("INDEX", (B, idx(1))), X[1])
    check(node("INDEX", (B, idx(1), idx(2))), X[1, 2])
    check(node("INDEX", (B,)), X)


def test_index_into_an_empty_axis_reads_garbage() -> None:
    empty = buffer((0, 2))
    got = evaluate(node("INDEX", (empty, idx(0))), {empty: np.zeros((0, 2), np.float32)})
    assert got.shape == (2,) and np.isnan(got).all()


def test_iota_bitcast_binary() -> None:
    check(node("IOTA", (idx(5),), dtypes.uint8), np.arange(5, dtype=np.uint8), {})
    check(node("BITCAST", (B,), dtypes.int32), X.view(np.int32))
    check(node("BITCAST", (B,), dtypes.uint8), X.view(np.uint8).reshape(3, 16))
    check(node("BITCAST", (B,), dtypes.float64), X.view(np.float64).reshape(3, 2))
    check(node("BINARY", (), b"\x01\x02"), np.array([1, 2], np.uint8), {})


def test_reduce() -> None:
    total = X.sum(0, keepdims=True, dtype=np.float64).astype(np.float32)
    check(node("REDUCE", (B,), ("ADD", (0,))), total)
    check(node("REDUCE", (B,), ("MAX", (0, 1))), X.max(keepdims=True).reshape(1, 1))
    b = buffer((4,), dtypes.int8)
    check(node("REDUCE", (b,), ("ADD", (0,))), np.array([-56], np.int8), {b: np.array([100, 50, 25, 25], np.int8)})
    check(node("REDUCE", (b,), ("MUL", (0,))), np.array([0], np.int8), {b: np.array([64, 4, 1, 1], np.int8)})
    flags = buffer((3,), dtypes.bool)
    for op, want in (("ADD", True), ("MUL", False), ("MAX", True)):
        check(node("REDUCE", (flags,), (op, (0,))), np.array([want]), {flags: np.array([True, False, True])})


@pytest.mark.parametrize(("op", "want"), [("ADD", 0.0), ("MUL", 1.0), ("MAX", -np.inf)])
def test_reduce_of_nothing_is_the_neutral_element(op: str, want: float) -> None:
    e = buffer((0, 2))
    check(node("REDUCE", (e,), (op, (0,))), np.full((1, 2), want, np.float32), {e: np.zeros((0, 2), np.float32)})


def test_reduce_max_keeps_nan() -> None:
    assert np.isnan(evaluate(node("REDUCE", (B,), ("MAX", (0, 1))), {B: np.where(X > 1, np.nan, X).astype("f4")}))


def test_casts() -> None:
    f = buffer((6,))
    v = np.array([1.9, -1.9, 300.0, -300.0, np.nan, np.inf], np.float32)
    check(node("CAST", (f,), dtypes.int8), np.array([1, -1, 127, -128, 0, 127], np.int8), {f: v})
    check(node("CAST", (f,), dtypes.uint8), np.array([1, 0, 255, 0, 0, 255], np.uint8), {f: v})
    big = np.array([1e30, -1e30, 2.0**63, -(2.0**63), 0, 5], np.float32)
    lo, hi = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    check(node("CAST", (f,), dtypes.int64), np.array([hi, lo, hi, lo, 0, 5]), {f: big})
    check(node("CAST", (f,), dtypes.uint64), np.array([2**64 - 1, 0, 2**63, 0, 0, 5], np.uint64), {f: big})
    check(node("CAST", (f,), dtypes.bool), np.array([True] * 6), {f: v})
    i = buffer((2,), dtypes.int32)
    check(node("CAST", (i,), dtypes.uint8), np.array([44, 255], np.uint8), {i: np.array([300, -1], np.int32)})


@pytest.mark.parametrize("d", [dtypes.bfloat16, dtypes.float16, dtypes.fp8e4m3, dtypes.fp8e5m2])
def test_small_floats_are_computed_in_float32_and_rounded(d: DType) -> None:
    a, b = buffer((64,), d, 0), buffer((64,), d, 1)
    x, y = (rng.uniform(0.5, 2, 64).astype(d.numpy) for _ in range(2))
    want = (x.astype(np.float32) * y.astype(np.float32)).astype(d.numpy)
    check(node("MUL", (a, b)), want, {a: x, b: y})
    total = x.astype(np.float64).sum(keepdims=True).astype(d.numpy)
    check(node("REDUCE", (a,), ("ADD", (0,))), total, {a: x})
    assert evaluate(node("CAST", (a,), dtypes.bfloat16), {a: x}).dtype == ml_dtypes.bfloat16


def test_elementwise_broadcasts() -> None:
    row = buffer((4,), slot=1)
    y = X[0] * 2
    check(node("ADD", (B, row)), X + y, {B: X, row: y})
    check(
        node("WHERE", (node("CMPLT", (B, row)), row, const(0.0, dtypes.float32))), np.where(X < y, y, 0), {B: X, row: y}
    )
    check(node("MULACC", (B, row, row)), X * y + y, {B: X, row: y})


def test_symbolic_sizes_come_from_the_environment() -> None:
    n = variable("n", 1, 3)
    u = node("SHRINK", (B, shape_source((0, 0)), shape_source((n, 4))))
    np.testing.assert_array_equal(evaluate(u, {B: X, n: 2}), X[:2])


def test_function_binds_parameters_by_slot() -> None:
    p, q = param((3, 4), slot=0), param((3, 4), slot=1)
    body = node("TUPLE", (node("ADD", (p, q)), node("MUL", (p, p))))
    call = node("FUNCTION", (body, B, node("ADD", (B, B))))
    inner = node("FUNCTION", (node("TUPLE", (node("GETTUPLE", (node("FUNCTION", (body, q, p)),), 0),)), B, B))
    check(node("GETTUPLE", (call,), 0), X + (X + X))
    check(node("GETTUPLE", (call,), 1), X * X)
    check(node("GETTUPLE", (inner,), 0), X + X)


def test_several_roots_and_deep_graphs() -> None:
    u = B
    for _ in range(5000):
        u = node("ADD", (u, const(1.0, dtypes.float32)))
    got = evaluate([u, B], {B: np.zeros((3, 4), np.float32)})
    assert got[0][0, 0] == 5000 and got[1][0, 0] == 0


def test_what_has_no_value_raises() -> None:
    with pytest.raises(IRError, match="BUFFER has no value bound to it"):
        evaluate(B, {})
    with pytest.raises(IRError, match="loop"):
        evaluate(loop(0, 3), {})
    with pytest.raises(IRError, match="no meaning"):
        evaluate(node("CUSTOM", (), ("x", dtypes.float32, True)), {})


# ---- effects
def view(x: UOp, off: tuple, size: tuple) -> UOp:
    return node("SHRINK", (x, shape_source(off), shape_source(size)))


def test_store_through_a_view() -> None:
    one = node("EXPAND", (node("RESHAPE", (const(1.0, dtypes.float32), shape_source((1, 1)))), shape_source((2, 2))))
    got = evaluate(node("AFTER", (B, node("STORE", (view(B, (1, 1), (2, 2)), one)))), {B: X})
    want = X.copy()
    want[1:3, 1:3] = 1
    np.testing.assert_array_equal(got, want)


def test_store_with_a_gate_and_of_invalid() -> None:
    gate = node("CMPLT", (B, const(0.0, dtypes.float32)))
    check(node("AFTER", (B, node("STORE", (B, node("MUL", (B, B)), gate)))), np.where(X < 0, X * X, X))
    maybe = node("WHERE", (gate, node("MUL", (B, B)), const(INVALID, dtypes.float32)))
    check(node("AFTER", (B, node("STORE", (B, maybe)))), np.where(X < 0, X * X, X))
    inner = node("PAD", (view(B, (0, 0), (2, 4)), shape_source((1, 0)), shape_source((3, 4))))
    check(node("AFTER", (B, node("STORE", (B, inner)))), np.concatenate([X[:1], X[:2]]))


def test_stores_one_after_the_other() -> None:
    two, three = const(2.0, dtypes.float32), const(3.0, dtypes.float32)
    first = node("AFTER", (B, node("STORE", (node("INDEX", (B, idx(0), idx(0))), two))))
    cell = node("INDEX", (first, idx(0), idx(1)))
    want = X.copy()
    want[0, 0], want[0, 1] = 2, 3
    check(node("AFTER", (first, node("STORE", (cell, three)))), want)
    check(node("AFTER", (B, node("STORE", (cell, three)))), want)  # the base of the view is already an AFTER
    other = node("STORE", (node("INDEX", (B, idx(2), idx(3))), three))
    want[2, 3] = 3
    check(node("AFTER", (B, node("GROUP", (node("STORE", (cell, three)), other)))), want)


def test_after_a_store_below_the_view() -> None:
    flat = node("RESHAPE", (B, shape_source((12,))))
    effect = node("STORE", (node("INDEX", (B, idx(0), idx(1))), const(9.0, dtypes.float32)))
    want = X.reshape(12).copy()
    want[1] = 9
    check(node("AFTER", (flat, effect)), want)


def test_atomic_add_accumulates_and_drops_what_is_outside() -> None:
    where, val = buffer((4,), dtypes.int32, 1), buffer((4,), dtypes.float32, 2)
    acc = buffer((3,), dtypes.float32, 3)
    effect = node("ATOMICADD", (node("INDEX", (acc, where)), val))
    env = {acc: np.zeros(3, "f4"), where: np.array([1, 1, 7, -1], "i4"), val: np.array([1, 2, 4, 8], "f4")}
    check(node("AFTER", (acc, effect)), np.array([0, 3, 0], np.float32), env)


# ---- kernel stage
def test_bound_ranges_are_a_batch() -> None:
    i, j = loop(0, 3), loop(1, 4)
    u = node("INDEX", (B, i, j))
    got = evaluate(u, {B: X, i: np.arange(3)[:, None], j: np.arange(4)})
    np.testing.assert_array_equal(got, X)
    assert evaluate(idx(3), {i: np.arange(3)}).shape == (3,)


def test_reduce_over_ranges() -> None:
    i, k = loop(0, 3), loop(1, 4, "REDUCE")
    u = node("REDUCE", (node("INDEX", (B, i, k)), k), ("ADD", ()))
    np.testing.assert_array_equal(evaluate(u, {B: X, i: np.arange(3)}), X.sum(1, dtype=np.float64).astype(np.float32))
    triangle = loop(2, node("ADD", (i, idx(1))), "REDUCE")
    v = node("REDUCE", (node("INDEX", (B, i, triangle)), triangle), ("ADD", ()))
    want = np.array([X[r, : r + 1].sum(dtype=np.float64) for r in range(3)], np.float32)
    np.testing.assert_array_equal(evaluate(v, {B: X, i: np.arange(3)}), want)


def matmul(m: int, n: int, k: int) -> tuple[UOp, list[UOp]]:
    out, a, b = param((m * n,), slot=0), param((m * k,), slot=1), param((k * n,), slot=2)
    i, j, r = loop(0, m, "GLOBAL"), loop(1, n, "GLOBAL"), loop(2, k, "REDUCE")
    product = build("MUL", node("INDEX", (a, i * k + r)), node("INDEX", (b, r * n + j)))
    store = node("STORE", (node("INDEX", (out, i * n + j)), node("REDUCE", (product, r), ("ADD", ()))))
    return node("SINK", (node("END", (store, i, j)),), KernelInfo("matmul")), [out, a, b]


def test_kernel_runs_in_place() -> None:
    sink, (out, a, b) = matmul(3, 5, 4)
    y = rng.standard_normal((4, 5)).astype(np.float32)
    memory = np.zeros(15, np.float32)
    run_kernel(sink, {out: memory, a: X.reshape(-1), b: y.reshape(-1)})
    np.testing.assert_allclose(memory.reshape(3, 5), X @ y, rtol=1e-5, atol=1e-6)


def test_kernel_with_gate_and_atomic_add_counts_every_iteration() -> None:
    out, i, j = param((4,), dtypes.int32), loop(0, 6), loop(1, 5)
    gate = node("CMPLT", (i, idx(4)))
    one = const(1, dtypes.int32)
    add = node("ATOMICADD", (node("INDEX", (out, build("MOD", i, idx(4)))), one, gate))
    memory = np.zeros(4, np.int32)
    run_kernel(node("SINK", (node("END", (add, i, j)),), KernelInfo()), {out: memory})
    np.testing.assert_array_equal(memory, [5, 5, 5, 5])


def test_kernel_with_an_accumulator_runs_in_order() -> None:
    out, a = param((3,), slot=0), param((12,), slot=1)
    acc = node("BUFFER", (shape_source(()),), BufferArg(0, dtypes.float32, None, "REG"))
    i, r = loop(0, 3), loop(1, 4, "REDUCE")
    start = node("AFTER", (acc, i))
    begin = node("AFTER", (start, node("STORE", (start, const(0.0, dtypes.float32)))))
    inside = node("AFTER", (begin, r))
    step = node("STORE", (inside, node("ADD", (node("LOAD", (inside,)), node("INDEX", (a, i * 4 + r))))))
    total = node("LOAD", (node("AFTER", (begin, node("END", (step, r)))),))
    sink = node("SINK", (node("END", (node("STORE", (node("INDEX", (out, i)), total)), i)),), KernelInfo())
    memory = np.zeros(3, np.float32)
    run_kernel(sink, {out: memory, a: X.reshape(-1)})
    np.testing.assert_allclose(memory, X.sum(1), rtol=1e-6)


def test_call_of_a_kernel_writes_its_arguments() -> None:
    sink, _ = matmul(3, 5, 4)
    out, b = buffer((15,), slot=3), buffer((20,), slot=4)
    a = node("RESHAPE", (B, shape_source((12,))))
    y = rng.standard_normal(20).astype(np.float32)
    done = node("AFTER", (out, node("CALL", (sink, out, a, b))))
    got = evaluate(done, {B: X, out: np.zeros(15, np.float32), b: y})
    np.testing.assert_allclose(got.reshape(3, 5), X @ y.reshape(4, 5), rtol=1e-5, atol=1e-6)
