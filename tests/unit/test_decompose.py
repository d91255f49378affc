"""Decompositions against NumPy, with every op switched off that has one: errors in ULP, bit-exactness, graph sizes.

References are computed in long double, whose own error is negligible here. Bounds are those of `rules.accuracy`, or of
a rule's docstring. `evaluate` does not fuse MULACC; the tests marked fused give it the meaning of an FMA.
"""

import math

import numpy as np
import pytest

from monolect.base.dtype import dtypes, to_numpy
from monolect.ir.bounds import min_max
from monolect.ir.check.interp import evaluate
from monolect.ir.ops import DECOMPOSED, ROWS, ParamArg
from monolect.ir.uop import build, const, node, rebuild, shape_source, toposort
from monolect.optimize.cost import operations
from monolect.rules import trigonometric
from monolect.rules.accuracy import MAX_ULP
from monolect.rules.decompose import DECOMPOSE, PRIMITIVES, decompose, fitting
from monolect.rules.transcendental import LN2, LOG2E
from tests.unit.ulp import HALF_PI, RNG, assert_close, near_quadrants, needs_long_double, patterns, uniform, wide

F, D, INT, LONG = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64


# ---- driver ----------------------------------------------------------------------------------------------------------
def param(d, slot=0, shape=(), low=None, high=None):
    return node("PARAM", (shape_source(shape),), ParamArg(slot, d, None, None, None, low, high))


def lower(root, native=PRIMITIVES):
    """Decompose to a fixed point; a node is asked before its sources change, and again after."""
    done = {}

    def visit(u):
        if u not in done:
            v = decompose(u, native)
            done[u] = visit(v) if v is not None else finish(u)
        return done[u]

    def finish(u):
        new = rebuild(u, tuple(visit(s) for s in u.src))
        return new if new is u else visit(new)

    out = visit(root)
    left = {u.op for u in toposort(out)} & set(DECOMPOSE) - native - {"IDIV", "MOD", "MUL", "CAST"}
    assert not left
    return out


def run(u, *arrays, native=PRIMITIVES):
    """The value of `u`, lowered, with its PARAMs bound in order of slot; shape and dtype must not change."""
    v = lower(u, native)
    assert v.dtype is u.dtype and v.shape == u.shape
    params = sorted((p for p in toposort(u) if p.op == "PARAM"), key=lambda p: p.arg.slot)
    return evaluate(v, dict(zip(params, arrays, strict=True)))


def size(u):
    return sum(v.op not in ("CONST", "PARAM", "STACK") for v in toposort(u))


# ---- accuracy --------------------------------------------------------------------------------------------------------
def exp(x):
    return build("EXP2", x * LOG2E)


def log(x):
    return build("LOG2", x) * LN2


def cos(x):
    return build("SIN", build("SUB", const(HALF_PI, x.dtype), x))


FUNCTIONS = {  # the graph, the reference, dense ranges
    "exp2": (lambda x: build("EXP2", x), np.exp2, [(-1090, 1030), (-152, 130), (-1, 1)]),
    "exp": (exp, np.exp, [(-750, 712), (-105, 90), (-1, 1)]),
    "log2": (lambda x: build("LOG2", x), np.log2, [(0.6, 1.6), (0.999, 1.001), (0, 10)]),
    "log": (log, np.log, [(0.6, 1.6), (0.999, 1.001), (0, 10)]),
    "sin": (lambda x: build("SIN", x), np.sin, [(-4, 4), (-1e5, 1e5)]),
    "cos": (cos, np.cos, [(-4, 4), (-1e5, 1e5)]),
    "sqrt": (lambda x: build("SQRT", x), np.sqrt, [(0, 4)]),
}


def check_function(name, d, n):
    bound = getattr(MAX_ULP[name], d.name)
    graph, reference, ranges = FUNCTIONS[name]
    samples = [patterns(d, n)] + [uniform(d, a, b, n) for a, b in ranges]
    samples += [near_quadrants(d)] if name in ("sin", "cos") else []
    for x in samples:
        with np.errstate(all="ignore"):
            exact = reference(x.astype(wide))
        assert_close(run(graph(param(d)), x), exact, bound, x)


@pytest.mark.sweep
@needs_long_double
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32(name):
    check_function(name, F, 200_000)


@pytest.mark.sweep
@needs_long_double
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64(name):
    check_function(name, D, 60_000)


@needs_long_double
@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_patterns(name):
    check_function(name, F, 8_000_000)


@pytest.fixture
def fused(monkeypatch):
    """MULACC as an FMA; the double rounding of the sum is far below what is measured."""

    def meaning(d, a, b, c):
        assert d is F
        return (np.asarray(a, np.float64) * b + c).astype(np.float32)

    monkeypatch.setitem(ROWS, "MULACC", ROWS["MULACC"]._replace(meaning=meaning))


@pytest.mark.sweep
@needs_long_double
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_fused(name, fused):
    graph, reference, ranges = FUNCTIONS[name]
    for x in [patterns(F, 200_000)] + [uniform(F, a, b) for a, b in ranges]:
        with np.errstate(all="ignore"):
            exact = reference(x.astype(wide))
        assert_close(run(graph(param(F)), x, native=PRIMITIVES | {"MULACC"}), exact, MAX_ULP[name].float32, x)


@needs_long_double
@pytest.mark.parametrize("d", (F, D))
@pytest.mark.parametrize("name", ("exp", "exp2"))
def test_by_scaling(name, d):
    """Exponentials on a target that scales by powers of two."""
    graph, reference, ranges = FUNCTIONS[name]
    for x in [patterns(d, 50_000)] + [uniform(d, a, b, 50_000) for a, b in ranges]:
        with np.errstate(all="ignore"):
            exact = reference(x.astype(wide))
        bound = MAX_ULP[name].float32 if d is F else MAX_ULP[name].float64
        assert_close(run(graph(param(d)), x, native=PRIMITIVES | {"LDEXP"}), exact, bound, x)
    assert size(lower(graph(param(d)), PRIMITIVES | {"LDEXP"})) < size(lower(graph(param(d))))


@pytest.mark.parametrize("d", (F, D))
def test_scaling_is_exact(d):
    """Also where the result is subnormal, and for a subnormal that is scaled up."""
    a = patterns(d, 50_000)
    a = a[np.isfinite(a)]
    least, most = (-149, 280) if d is F else (-1074, 2150)
    for b in (RNG.integers(-most, most, a.size), least - np.frexp(a)[1] + RNG.integers(-3, 30, a.size)):
        got = run(build("LDEXP", param(d), param(d, 1)), a, b.astype(a.dtype))
        with np.errstate(all="ignore"):
            want = np.ldexp(a, b.astype(np.int32))
        assert np.array_equal(got, want) and np.array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("d", (F, D))
def test_exact_values(d):
    n = np.arange(-1074 if d is D else -149, 1024 if d is D else 128)
    powers = np.ldexp(1.0, n).astype(to_numpy(d))
    x = param(d)
    assert np.array_equal(run(build("EXP2", x), n.astype(to_numpy(d))), powers)
    assert np.array_equal(run(build("LOG2", x), powers), n)
    assert np.array_equal(run(build("SQRT", x), powers[n % 2 == 0]), np.sqrt(powers[n % 2 == 0]))


@pytest.mark.parametrize("d", (F, D))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name, d):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], to_numpy(d))
    graph, reference, _ = FUNCTIONS[name]
    got = run(graph(param(d)), x)
    with np.errstate(all="ignore"):
        want = reference(x)
    special = ~np.isfinite(want) | (want == 0)
    assert np.array_equal(got[special], want[special], equal_nan=True)
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


# ---- sine and cosine -------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@needs_long_double
@pytest.mark.parametrize("d", (F, D))
@pytest.mark.parametrize("name", ("sin", "cos"))
def test_short_reduction(name, d, monkeypatch):
    """The cheap reduction, to the end of its range and next to all zeros in it."""
    monkeypatch.setattr(trigonometric, "upper_bound", lambda x: 1.0)
    graph, reference, _ = FUNCTIONS[name]
    limit = trigonometric.SMALL_ARGUMENT
    for x in (uniform(d, -limit, limit), near_quadrants(d, int(limit / HALF_PI))):
        assert_close(run(graph(param(d)), x), reference(x.astype(wide)), 1.0, x)


def test_short_reduction_is_chosen():
    i = param(INT, low=0, high=99_999)
    x = build("CAST", i, arg=F)
    assert trigonometric.upper_bound(x * 0.01) <= 1001.1
    assert trigonometric.upper_bound(x) > 1024
    assert trigonometric.upper_bound(param(F)) == math.inf
    assert trigonometric.upper_bound(build("SIN", param(F)) * 3.0 + 1.0) <= 4.01
    assert size(lower(build("SIN", x * 0.01))) < size(lower(build("SIN", x * 1.0)))


@pytest.mark.sweep
@pytest.mark.parametrize("d", (F, D))
def test_cosine_is_recognised_and_never_above_one(d):
    x = param(d)
    half = const(HALF_PI, d)
    spellings = [half + x * -1, build("SUB", half, x), x + half, half + build("NEG", x)]
    assert len({lower(build("SIN", s)) for s in spellings}) == 1
    y = uniform(d, -0.01, 0.01)
    assert np.abs(run(cos(x), y)).max() <= 1 and np.abs(run(build("SIN", half * 0 + x), y + HALF_PI)).max() <= 1


def test_inverse_of_pi_against_the_worst_case():
    """The float64 nearest to a multiple of pi/2 (Muller, table 11.1), where half of all bits cancel."""
    x = np.array([math.ldexp(6381956970095103.0, 797)])
    assert_close(run(cos(param(D)), x), np.array([wide("-4.68716592425462761112e-19")]), 1.2, x)


# ---- power -----------------------------------------------------------------------------------------------------------
SCALES = PRIMITIVES | {"LDEXP"}
POWERS = pytest.mark.parametrize(("d", "native"), ((F, PRIMITIVES), (F, SCALES), (D, PRIMITIVES)))


@needs_long_double
@POWERS
def test_power(d, native):
    p = build("POW", param(d), param(d, 1))
    x = np.abs(patterns(d, 60_000))
    x = x[np.isfinite(x) & (x > 0) & (x != 1)]
    low, high = (-149, 128) if d is F else (-1074, 1024)
    y = (RNG.uniform(low, high, len(x)) / np.log2(x.astype(wide))).astype(to_numpy(d))
    near = uniform(d, 0.9, 1.1, 60_000), uniform(d, low * 6, high * 6, 60_000)
    for a, b in ((x, y), near, (patterns(d, 60_000), patterns(d, 60_000))):
        with np.errstate(all="ignore"):
            exact = np.power(a.astype(wide), b.astype(wide))
        assert_close(run(p, a, b, native=native), exact, getattr(MAX_ULP["pow"], d.name), a, b)


@POWERS
def test_power_of_special_values(d, native):
    v = [0, 1, 2, 3, 0.5, 2.5, math.inf, math.nan, 1e-40, 1e30, 16777217, 8388607, 33554432, 1 - 2**-24, 3e38, 1e300]
    with np.errstate(over="ignore"):
        v = np.array(v + [-x for x in v]).astype(to_numpy(d))
    a, b = (m.ravel() for m in np.meshgrid(v, v))
    got = run(build("POW", param(d), param(d, 1)), a, b, native=native)
    with np.errstate(all="ignore"):
        want = np.power(a, b)
    special = ~np.isfinite(want) | (want == 0)
    assert np.array_equal(got[special], want[special], equal_nan=True)
    assert np.array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


def test_power_by_scaling_takes_fewer_operations():
    p = build("POW", param(F), param(F, 1))
    assert operations(p, SCALES) < operations(p, PRIMITIVES) * 0.75  # without the special cases, which are seldom


@pytest.mark.parametrize("exponent", (-1, 0, 1, 2, 3, 4, 0.5))
def test_power_by_a_constant_has_the_bits_of_that_by_a_value(exponent):
    """Where a loop is unrolled, values become constants."""
    x = patterns(F, 20_000)
    one = run(build("POW", param(F), const(exponent, F)), x)
    other = run(build("POW", param(F), param(F, 1)), x, np.full_like(x, exponent))
    assert np.array_equal(one.view(np.int32)[~np.isnan(other)], other.view(np.int32)[~np.isnan(other)])
    assert np.array_equal(np.isnan(one), np.isnan(other))


# ---- arithmetic and comparisons --------------------------------------------------------------------------------------
def operands(d, count):
    if d is dtypes.bool:
        v = np.array([False, True])
    elif d.is_float:
        v = np.array([0.0, -0.0, 1.0, -1.0, 1.5, np.inf, -np.inf, np.nan, 1e30], to_numpy(d))
    else:
        v = np.array([k for k in (0, 1, 2, 7, -1, -7, d.min, d.max) if d.min <= k <= d.max], to_numpy(d))
    return [m.ravel() for m in np.meshgrid(*[v] * count)]


EXACT = {
    "NEG": (F, D, INT, dtypes.uint8), "SUB": (F, D, INT, dtypes.uint64), "MULACC": (F, D, INT, dtypes.uint8),
    "CMPGT": (F, INT, dtypes.bool), "CMPGE": (F, D, INT, dtypes.bool), "CMPLE": (F, INT, dtypes.bool),
    "CMPEQ": (F, D, INT, dtypes.bool), "NOT": (INT, dtypes.uint8, dtypes.bool), "MAX": (F, D, INT, dtypes.bool),
}  # fmt: skip


@pytest.mark.parametrize(("op", "d"), [(op, d) for op, ds in EXACT.items() for d in ds])
def test_exact_ops(op, d):
    count = ROWS[op].lo
    u = build(op, *(param(d, k) for k in range(count)))
    arrays = operands(d, count)
    assert np.array_equal(run(u, *arrays), evaluate(u, dict(zip(u.src, arrays, strict=True))), equal_nan=d.is_float)


@needs_long_double
def test_division():
    u = build("DIV", param(F), param(F, 1))
    x, y = patterns(F, 200_000), patterns(F, 200_000)
    pairs = [(x, y), (uniform(F, 0.5, 4), uniform(F, 0.5, 4)), (x, uniform(F, 0.5, 4, len(x))), operands(F, 2)]
    for a, b in pairs:
        with np.errstate(all="ignore"):
            assert_close(run(u, a, b), a.astype(wide) / b.astype(wide), 1.5, a, b)


@needs_long_double
def test_division_fused(fused):
    a, b = uniform(F, 0.5, 4), uniform(F, 0.5, 4)
    u = build("DIV", param(F), param(F, 1))
    assert_close(run(u, a, b, native=PRIMITIVES | {"MULACC"}), a.astype(wide) / b.astype(wide), 0.51, a, b)


@pytest.mark.parametrize("d", (F, D))
def test_truncation(d):
    x = np.concatenate([patterns(d, 100_000), uniform(d, -100, 100), uniform(d, -(2.0**53), 2.0**53)])
    with np.errstate(invalid="ignore"):
        got, want = run(build("TRUNC", param(d)), x), np.trunc(x)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got[~np.isnan(x)]), np.signbit(want[~np.isnan(x)]))


@pytest.mark.parametrize(
    "target", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64]
)
@pytest.mark.parametrize("source", (F, D))
def test_saturating_cast(source, target):
    u = build("CAST", param(source), arg=target)
    v = lower(u, PRIMITIVES - {"CAST"})
    (inner,) = (c for c in toposort(v) if c.op == "CAST")
    limits = np.array([*fitting(source, target), target.min, target.max, 0.5, -0.5, -0.99], to_numpy(source))
    x = np.concatenate([limits, np.nextafter(limits, -np.inf), np.nextafter(limits, np.inf), patterns(source, 20_000)])
    p = u.src[0]
    low, high = fitting(source, target)
    safe = evaluate(inner.src[0], {p: x})
    assert low <= safe.min() and safe.max() <= high
    assert np.array_equal(evaluate(v, {p: x}), evaluate(u, {p: x}))


def test_cast_to_bool():
    x = np.array([0.0, -0.0, 1e-45, np.nan, np.inf], np.float32)
    u = build("CAST", param(F), arg=dtypes.bool)
    assert run(u, x, native=PRIMITIVES - {"CAST"}).tolist() == [False, False, True, True, True]


# ---- division by constants -------------------------------------------------------------------------------------------
DIVISORS = (1, 2, 3, 5, 7, 10, 12, 16, 100, 127, 641, 1000, 4096, 65537, 10**6 + 3)
DIVIDES = PRIMITIVES - {"IDIV", "MOD"}


def check_division(p, x, d):
    for op in ("IDIV", "MOD"):
        u = build(op, p, const(d, p.dtype))
        v = lower(u, DIVIDES)
        assert np.array_equal(evaluate(v, {p: x}), evaluate(u, {p: x})), (op, d)
        yield v


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16))
def test_every_small_integer_is_divided_right(dtype):
    x = np.arange(dtype.min, dtype.max + 1).astype(to_numpy(dtype))
    p = param(dtype)
    for d in {d for d in range(1, 300 if dtype.bits == 16 else 128) if d <= dtype.max}:
        for v in check_division(p, x, d):
            assert not {"IDIV", "MOD"} & {u.op for u in toposort(v)}


@pytest.mark.parametrize("low, high", [(0, 10), (0, 2**20), (0, 2**31 - 2), (-1000, 50), (-(2**31), 2**31 - 1)])
@pytest.mark.parametrize("dtype", (INT, LONG, dtypes.index))
def test_bounded_integers_are_divided_right(dtype, low, high):
    p = param(dtype, low=low, high=high)
    storage = np.int32 if dtype is INT else np.int64
    for d in DIVISORS:
        edges = np.array([k * d + j for k in (low // d, -1, 0, 1, high // d - 1, high // d) for j in (-1, 0, 1)])
        x = np.concatenate([edges, RNG.integers(low, high, 2000, endpoint=True)])
        x = x[(low <= x) & (x <= high)].astype(storage)
        list(check_division(p, x, d))


def test_division_keeps_bounds_and_narrow_products():
    p = param(dtypes.index, low=0, high=1000)
    v = lower(build("IDIV", p, const(7, dtypes.index)), DIVIDES)
    assert {u.op for u in toposort(v)} <= {"PARAM", "CONST", "STACK", "MUL", "SHR"}
    assert min_max(v) == (0, 142)
    assert decompose(build("IDIV", param(LONG), const(7, LONG)), PRIMITIVES - {"IDIV"}) is None
    assert decompose(build("IDIV", param(INT), param(INT, 1)), frozenset()) is None


# ---- random numbers --------------------------------------------------------------------------------------------------
def test_threefry_is_exact():
    u64 = dtypes.uint64
    c, k = (RNG.integers(0, 2**64, 5000, dtype=np.uint64) for _ in range(2))
    c[:2], k[:2] = (0, 2**64 - 1), (0, 2**64 - 1)
    u = build("THREEFRY", param(u64), param(u64, 1))
    got = run(u, c, k)
    assert np.array_equal(got, evaluate(u, dict(zip(u.src, (c, k), strict=True))))
    assert got[0] == 0x99BA4EFE6B200159 and got[1] == 0xBB002BE71CB996FC  # the vectors of Random123: two words each


# ---- the table -------------------------------------------------------------------------------------------------------
def test_every_decomposed_op_has_its_decomposition():
    assert DECOMPOSED <= set(DECOMPOSE)
    assert not PRIMITIVES & DECOMPOSED


def test_native_ops_are_left_alone():
    x = param(F)
    for op in DECOMPOSED - {"THREEFRY", "NOT"}:
        u = build(op, *[x] * ROWS[op].lo)
        assert decompose(u, PRIMITIVES | {op}) is None
    assert decompose(log(x), PRIMITIVES | {"LOG2"}) is None


def test_values_keep_their_shape():
    x, y = param(F, shape=(6, 4, 16)), param(F, 1, (6, 4, 16))
    for u in (exp(x), log(x), cos(x), build("SIN", x), build("POW", x, y), build("DIV", x, y), build("MAX", x, y)):
        v = lower(u)
        assert v.shape == u.shape and v.dtype is u.dtype
        assert not {"RANGE", "IF", "LOAD", "CALL", "INDEX"} & {n.op for n in toposort(v)}


SIZES = {"exp2": 23, "exp": 24, "log2": 30, "log": 32, "sin": 102, "cos": 101, "sqrt": 24}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_are_small(name):
    """Nodes for a target with subtraction, division and multiply-add; constants are not counted."""
    assert size(lower(FUNCTIONS[name][0](param(F)), PRIMITIVES | {"SUB", "NEG", "DIV", "MULACC"})) <= SIZES[name]


def test_narrow_floats_are_computed_in_single():
    for d in (dtypes.float16, dtypes.bfloat16):
        x = uniform(d, -4, 4, 5000)
        for graph, reference in ((exp, np.exp), (cos, np.cos), (lambda p: build("SIN", p), np.sin)):
            got = run(graph(param(d)), x)
            want = reference(x.astype(np.float64)).astype(to_numpy(d))
            assert np.mean(got == want) > 0.999
        got = run(log(param(d)), np.abs(x))
        assert np.mean(got == np.log(np.abs(x).astype(np.float64)).astype(to_numpy(d))) > 0.999
