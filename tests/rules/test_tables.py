"""Every entry of the rule tables, both sides of it, on random operands and on those at which things go wrong.

The graphs are tried on each entry in turn; an entry that no graph reaches fails. What accuracy the formulas have is
measured in tests/unit/test_decompose.py; here a rule is wrong or right.
"""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect.base.dtype import DType, dtypes
from monolect.base.target import Target
from monolect.ir.check.interp import evaluate, storage
from monolect.ir.ops import ELEMENTWISE, ROWS, KernelInfo, ParamArg
from monolect.ir.rewrite.normal import less, within
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, toposort
from monolect.rules.decompose import DECOMPOSE, PRIMITIVES, decompose
from monolect.rules.legalize import NARROW, legalize
from monolect.rules.loops.reductions import simplify_loops
from monolect.rules.transcendental import LN2, LOG2E
from tests.passes.conftest import assert_same_meaning
from tests.strategies import edge_values, often

F16, F32, F64, I8, I32, I64 = (
    dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int8, dtypes.int32, dtypes.int64,
)  # fmt: skip
U8, U64, BOOL, BF16 = dtypes.uint8, dtypes.uint64, dtypes.bool, dtypes.bfloat16


def param(d: DType, slot: int = 0, low: int | None = None, high: int | None = None) -> UOp:
    return node("PARAM", (shape_source(()),), ParamArg(slot, d, None, None, None, low, high))


def args(op: str, d: DType) -> UOp:
    return node(op, tuple(param(d, k) for k in range(ROWS[op].lo)))


GRAPHS: dict[str, list[UOp]] = {
    "NEG": [args("NEG", d) for d in (F32, I32, U8)],
    "SUB": [args("SUB", d) for d in (F32, F64, I64, U8)],
    "DIV": [args("DIV", d) for d in (F16, BF16, F32, F64)],
    "CMPGT": [args("CMPGT", d) for d in (F32, I32, BOOL)],
    "CMPGE": [args("CMPGE", d) for d in (F32, F16, I32, BOOL)],
    "CMPLE": [args("CMPLE", d) for d in (F32, F16, I32, BOOL)],
    "CMPEQ": [args("CMPEQ", d) for d in (F32, I32, BOOL)],
    "NOT": [args("NOT", d) for d in (I32, U8, BOOL)],
    "MAX": [args("MAX", d) for d in (F32, F64, I32, BOOL, U64)]
    + [node("MAX", (param(d), node("NEG", (param(d),)))) for d in (F32, F64)],
    "MULACC": [args("MULACC", d) for d in (F32, I32, U8)],
    "TRUNC": [args("TRUNC", d) for d in (F16, BF16, F32, F64)],
    "CAST": [node("CAST", (param(s),), t) for s, t in [(F32, BOOL), (I32, BOOL), (F32, I8), (F32, I32), (F64, I64),
                                                         (F32, U8), (F64, U64)]],
    "IDIV": [node("IDIV", (param(d), const(k, d))) for d in (I8, U8, I32) for k in (1, 3, 7, 8, 100)]
    + [node("IDIV", (param(dtypes.index, 0, -50, 10**6), const(k, dtypes.index))) for k in (3, 16)],
    "MOD": [node("MOD", (param(d), const(k, d))) for d in (I8, U8, I32) for k in (1, 3, 7, 8, 100)]
    + [node("MOD", (param(dtypes.index, 0, -50, 10**6), const(k, dtypes.index))) for k in (3, 16)],
    "EXP2": [args("EXP2", d) for d in (F16, F32, F64)] + [build("EXP2", param(F32) * LOG2E)],
    "LOG2": [args("LOG2", d) for d in (F16, F32, F64)],
    "MUL": [build("LOG2", param(d)) * LN2 for d in (F16, BF16, F32, F64)],
    "SIN": [args("SIN", d) for d in (F16, F32, F64)]
    + [node("SIN", (node("SUB", (const(math.pi / 2, d), param(d))),)) for d in (F32, F64)],
    "SQRT": [args("SQRT", d) for d in (F16, F32, F64)],
    "POW": [args("POW", d) for d in (F16, F32, F64)],
    "LDEXP": [node("LDEXP", (param(d), node("CAST", (param(I8, 1),), d))) for d in (F16, BF16, F32, F64)],
    "THREEFRY": [args("THREEFRY", U64)],
}  # fmt: skip
ENTRIES = [(op, d.name) for op, ds in DECOMPOSE.items() for d in ds]
ROUNDED = frozenset(("DIV", "EXP2", "LOG2", "MUL", "SIN", "POW", "SQRT"))


def applies(u: UOp, native: frozenset[str]):
    """The entry that `decompose` takes for `u`."""
    entries = (d for d in DECOMPOSE.get(u.op, ()) if d.needs is None or d.needs in native)
    return next((d for d in entries if (d.lacks or u.op) not in native and d.when(u)), None)


def operand(p: UOp, rng: np.random.Generator, n: int = 60) -> np.ndarray:
    """Random values and edge values of the PARAM's dtype, within its bounds."""
    d = p.dtype
    if d.kind == "x":
        return rng.integers(p.arg.min, p.arg.max + 1, n)
    if d.is_float:
        values = np.concatenate([rng.normal(0, 3, n), rng.normal(0, 1e3, n // 4), edge_values(d)])
    else:
        low, high = max(d.min, -(2**62)), min(d.max, 2**62)
        values = np.array([*rng.integers(low, high, n), *rng.integers(0, 5, n // 4), *edge_values(d)], dtype=object)
    with np.errstate(over="ignore"):
        return np.array([d.numpy.type(v) if d.is_float else int(v) for v in values], storage(d))


def both_sides(u: UOp, v: UOp, seed: int) -> tuple[np.ndarray, np.ndarray]:
    assert v.dtype is u.dtype and v.shape == u.shape
    rng = np.random.default_rng(seed)
    env = {}
    for p in sorted({p for p in toposort(u, v) if p.op == "PARAM"}, key=lambda p: p.arg.slot):
        a = operand(p, rng)
        env[p] = rng.permutation(a) if p.arg.slot else a
    n = min(map(len, env.values()))
    return tuple(evaluate([u, v], {p: a[:n] for p, a in env.items()}))


@pytest.mark.sweep
@pytest.mark.parametrize(("op", "name"), ENTRIES, ids=lambda x: x.replace(" ", "-"))
def test_both_sides_of_every_decomposition(op, name):
    reached = 0
    for u, native in product(GRAPHS[op], (PRIMITIVES - {op}, PRIMITIVES | {op}, PRIMITIVES | {"LDEXP"})):
        entry = applies(u, native)
        if entry is None or entry.name != name:
            continue
        reached += 1
        v = decompose(u, native)
        assert v is not None and v is not u
        for seed in range(3):
            want, got = both_sides(u, v, seed)
            if op in ROUNDED:
                rtol = {16: 2e-3, 32: 1e-6, 64: 1e-14}[u.dtype.bits] * (10 if u.dtype is BF16 else 1)
                tiny = 1e-6 if u.dtype.bits < 64 else 1e-15  # where the reference itself cancels
                if name in (
                    "exp_by_polynomial",
                    "exp_by_ldexp",
                    "cos_by_polynomial",
                    "cos_by_sine",
                ):  # two nodes at once: the reference rounds between them
                    rtol, tiny = rtol * 10, tiny * 500
                np.testing.assert_allclose(*(a.astype(np.float64) for a in (got, want)), rtol, tiny, err_msg=f"{u}")
            else:
                np.testing.assert_array_equal(*(a.astype(np.float64) if u.dtype is BF16 else a for a in (got, want)))
    assert reached, f"no graph of {op} reaches the entry {name!r}"


def test_the_graphs_are_of_known_ops():
    assert set(GRAPHS) == set(DECOMPOSE)


# ---- legalisation ----------------------------------------------------------------------------------------------------
FLOAT_OPS = sorted(
    ELEMENTWISE - {"CAST", "WHERE", "BITCAST", "NOT", "MOD", "IDIV", "XOR", "OR", "AND", "SHL", "SHR", "THREEFRY"}
)


@pytest.mark.parametrize("d", NARROW, ids=lambda d: d.name)
@pytest.mark.parametrize("op", FLOAT_OPS)
def test_arithmetic_on_narrow_floats(op, d):
    """Computed in float32 and rounded once, bit for bit as the interpreter does."""
    u = node(op, tuple(param(d, k) for k in range(ROWS[op].lo)))
    v = legalize(u, frozenset((F32, F64)))
    assert v is not None and all(s.dtype is not d for s in v.src) or u.dtype is BOOL
    want, got = both_sides(u, v, 5)
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("d", NARROW, ids=lambda d: d.name)
@pytest.mark.parametrize("other", [F32, F64, F16, BF16, I8, I32, U8, BOOL], ids=lambda d: d.name)
def test_casts_of_narrow_floats(d, other):
    if d is other:
        return
    for u in (node("CAST", (param(d),), other), node("CAST", (param(other),), d)):
        v, steps = u, 0
        while (w := legalize(v, frozenset((F32, F64)))) is not None and w is not v and steps < 4:
            v, steps = w, steps + 1
        assert steps
        want, got = both_sides(u, v, 9)
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def test_a_round_trip_through_single_vanishes():
    x = param(F16)
    assert legalize(node("CAST", (node("CAST", (x,), F32),), F16), frozenset((F32,))) is x
    assert legalize(node("ADD", (param(F32), param(F32, 1))), frozenset((F32,))) is None
    assert legalize(node("WHERE", (param(BOOL), param(F16, 1), param(F16, 2))), frozenset((F32,))) is None


# ---- loops -----------------------------------------------------------------------------------------------------------
N = 6
TARGET = Target(name="test", native=PRIMITIVES)


def buffer(slot: int, n: int, d: DType = I32) -> UOp:
    return node("PARAM", (shape_source((n,)),), ParamArg(slot, d, None, "GLOBAL"))


def load(slot: int, i: UOp, n: int = N, d: DType = I32) -> UOp:
    return node("LOAD", (node("INDEX", (buffer(slot, n, d), i)),))


def reduction(op: str, cond: UOp, value: UOp, i: UOp, j: UOp, d: DType = I32) -> UOp:
    """out[i] = op over j of value where cond, else what changes nothing."""
    neutral = const({"ADD": 0, "MUL": 1, "MAX": d.min}[op], d)
    r = node("REDUCE", (build("WHERE", cond, value, neutral), j), (op, ()))
    return node("SINK", (node("END", (node("STORE", (node("INDEX", (buffer(0, N, d), i)), r)), i)),), KernelInfo())


I, J = node("RANGE", (idx(N),), (0, "LOOP")), node("RANGE", (idx(N),), (1000, "REDUCE"))  # noqa: E741


def loops(sink: UOp) -> int:
    return sum(u.op == "REDUCE" for u in toposort(sink))


@given(
    st.sampled_from(["ADD", "MUL", "MAX"]),
    st.integers(-8, 8),
    st.integers(-2, 2),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_reductions_under_a_bound(op, k, m, below, negated, reads_j):
    """[j < a] or [j >= a] for any linear a, a body that does or does not read j: counting and scanning."""
    a = I * m + k
    cond = less(J, a) if below else less(a, J + 1)
    if negated:
        cond = build("CMPNE", cond, const(True, BOOL))
    before = reduction(op, cond, load(1, J if reads_j else I), I, J)
    after = simplify_loops(before, TARGET)
    assert_same_meaning(after, before)
    if op == "ADD" and not reads_j:
        assert loops(after) == 0, "a count needs no loop"
    if reads_j and not negated and below and m == 1 and k == 1:
        assert loops(after) == 0, "a scan carries its accumulator"


@given(
    st.integers(-8, 8), st.integers(-2, 2), st.sampled_from([1, 2]), st.integers(-3, 3), st.booleans(), st.booleans()
)
def test_reductions_that_pick(k, m, step, shift, cast, more):
    """[j * step + shift == e], e from memory or linear: a direct load where the step is 1."""
    e: UOp = build("CAST", load(2, I), arg=dtypes.index) + k if more else I * m + k
    left = J * step + shift
    if cast:
        left, e = build("CAST", left, arg=I64), build("CAST", e, arg=I64)
    before = reduction("ADD", node("CMPEQ", (left, e)), load(1, J), I, J)
    after = simplify_loops(before, TARGET)
    assert_same_meaning(after, before)
    assert (loops(after) == 0) == (step == 1) or loops(after) == 0


@settings(max_examples=often(8, 1000))
@given(st.integers(0, 3), st.integers(-2, 7))
def test_other_conditions_stay(parity, bound):
    """A second condition beside the one a rule uses."""
    odd = node("CMPEQ", (J % 2, idx(parity % 2)))
    for op in ("ADD", "MUL", "MAX"):
        before = reduction(op, build("AND", less(J, I + 1), odd), load(1, J), I, J)
        assert_same_meaning(simplify_loops(before, TARGET), before)
        before = reduction(op, build("AND", within(J + bound, 0, N), odd), load(1, J), I, J)
        assert_same_meaning(simplify_loops(before, TARGET), before)


def test_a_mask_as_a_factor():
    """[j == e] cast to an integer and multiplied is the same condition; of floats 0 * inf is nan, so the loop stays."""
    for d in (I32, F32):
        mask = build("CAST", node("CMPEQ", (J, build("CAST", load(2, I), arg=dtypes.index))), arg=d)
        r = node("REDUCE", (mask * load(1, J, d=d), J), ("ADD", ()))
        store = node("STORE", (node("INDEX", (buffer(0, N, d), I)), r))
        before = node("SINK", (node("END", (store, I)),), KernelInfo())
        after = simplify_loops(before, TARGET)
        assert loops(after) == (0 if d is I32 else 1)
        assert_same_meaning(after, before)
