"""Float types emulated by integers: conversions compared bit by bit with NumPy and ml_dtypes, arithmetic in float32."""

import numpy as np
import pytest

from monolect.base.dtype import dtypes, to_numpy
from monolect.ir.check.interp import evaluate
from monolect.ir.ops import ELEMENTWISE, ParamArg
from monolect.ir.uop import build, const, node, rebuild, shape_source, toposort
from monolect.rules.legalize import NARROW, legalize
from monolect.rules.transcendental import LN2, LOG2E

F, D, INT = dtypes.float32, dtypes.float64, dtypes.int32
NATIVE = frozenset((F, D))
RNG = np.random.default_rng(7)
NARROW_TYPES = pytest.mark.parametrize("d", NARROW, ids=lambda d: d.name)


def param(d, slot=0, shape=()):
    return node("PARAM", (shape_source(shape),), ParamArg(slot, d))


def legal(root, native=NATIVE, casts=frozenset()):
    """Legalise to a fixed point, sources last."""
    done = {}

    def visit(u):
        if u not in done:
            v = legalize(u, native, casts)
            done[u] = visit(v) if v is not None else finish(u)
        return done[u]

    def finish(u):
        new = rebuild(u, tuple(visit(s) for s in u.src))
        return new if new is u else visit(new)

    return visit(root)


def emulated(u, *arrays):
    """The value of `u` on a target that has no narrow floats; no arithmetic may be left on them."""
    v = legal(u)
    assert v.dtype is u.dtype and v.shape == u.shape
    for n in toposort(v):
        assert n.op not in ELEMENTWISE or n.op == "WHERE" or not any(x.dtype in NARROW for x in (n, *n.src)), n
    params = sorted((p for p in toposort(u) if p.op == "PARAM"), key=lambda p: p.arg.slot)
    return evaluate(v, dict(zip(params, arrays, strict=True)))


def every_value(d):
    return np.arange(2**d.bits).astype(to_numpy(NARROW[d].uint)).view(to_numpy(d))


def assert_same(got, want):
    """Equal in every bit, or both nan of the same sign."""
    assert got.dtype == want.dtype
    bits = f"uint{8 * got.dtype.itemsize}"
    with np.errstate(invalid="ignore"):
        nan = np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    same = nan | (got.view(bits) == want.view(bits))
    assert same.all(), (got[~same][:5], want[~same][:5])
    sign = np.array(1 << 8 * got.dtype.itemsize - 1, bits)
    assert np.array_equal(got.view(bits)[nan] & sign, want.view(bits)[nan] & sign)


def interesting_singles(d, n=300_000):
    """float32 values: all of `d`, all midpoints between neighbours, beside each the value just below and those above by
    one bit, each of which decides how it is rounded, and random bits.
    """
    with np.errstate(invalid="ignore"):
        values = every_value(d).astype(np.float64)
    values = np.sort(values[np.isfinite(values) & (values >= 0)])
    last = 2 * values[-1] - values[-2]  # the next step after the largest finite value
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2, [last, (last + values[-1]) / 2]])
    with np.errstate(over="ignore"):
        bits = points.astype(np.float32).view(np.uint32).astype(np.int64)
    bits = np.concatenate(
        [bits + k for k in (-1, 0, *(1 << n for n in range(23)))]
        + [np.array([0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000])]
    )
    bits = np.concatenate([bits.clip(0).astype(np.uint32), RNG.integers(0, 2**32, n, dtype=np.uint32)])
    return np.concatenate([bits, bits ^ np.uint32(1 << 31)]).view(np.float32)


@NARROW_TYPES
def test_widening_is_exact(d):
    x = every_value(d)
    with np.errstate(invalid="ignore"):
        want = x.astype(np.float32)
    assert_same(emulated(build("CAST", param(d), arg=F), x), want)


@NARROW_TYPES
def test_narrowing_rounds_like_numpy(d):
    x = interesting_singles(d)
    with np.errstate(all="ignore"):
        want = x.astype(to_numpy(d))
    assert_same(emulated(build("CAST", param(F), arg=d), x), want)


@pytest.mark.slow
@NARROW_TYPES
def test_narrowing_of_one_in_61_of_all_singles(d):
    u = build("CAST", param(F), arg=d)
    v = legal(u)
    step = 61 << 22
    for low in range(0, 2**32, step):
        x = np.arange(low, min(2**32, low + step), 61, dtype=np.uint64).astype(np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            want = x.astype(to_numpy(d))
        assert_same(evaluate(v, {u.src[0]: x}), want)


@NARROW_TYPES
def test_other_types_go_through_single(d):
    x = every_value(d)
    for target in {D, INT, dtypes.uint8, dtypes.bool, dtypes.float16, dtypes.bfloat16} - {d}:
        u = build("CAST", param(d), arg=target)
        got, want = emulated(u, x), evaluate(u, {u.src[0]: x})
        assert np.array_equal(got, want, equal_nan=target.is_float)
    i = np.array([0, 1, -1, 255, 256, 257, 2**24 + 1, 2**31 - 1, -(2**31)], np.int32)
    u = build("CAST", param(INT), arg=d)
    assert_same(emulated(u, i), evaluate(u, {u.src[0]: i}))


def test_double_to_half_rounds_once():
    one = np.float64(1 + 2.0**-11)
    x = np.concatenate([[one, one + 1e-12, one - 1e-12, 65519.999999, 65520, 1e300, -1e-300], RNG.normal(size=10_000)])
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
    assert_same(emulated(build("CAST", param(D), arg=dtypes.float16), x), want)


@NARROW_TYPES
def test_arithmetic_rounds_after_every_operation(d):
    x, y = (RNG.choice(every_value(d), 20_000) for _ in range(2))
    a, b = param(d), param(d, 1)
    for u in (a + b, a * b, build("MAX", a, b), a * b + a, build("CMPLT", a, b), build("RECIP", a * 3.0 + b)):
        with np.errstate(all="ignore"):
            want = evaluate(u, {a: x, b: y})
            got = emulated(u, *((x, y)))
        assert np.array_equal(got.astype(np.float32), want.astype(np.float32), equal_nan=True)


def test_round_trips_vanish():
    x = param(dtypes.bfloat16)
    wide = build("CAST", x, arg=F)
    assert legalize(build("CAST", wide, arg=dtypes.bfloat16), NATIVE) is x
    other = build("CAST", wide, arg=dtypes.float16)
    assert legal(other, NATIVE | {dtypes.float16, dtypes.bfloat16}) is other


def test_sums_stay_in_single_between_casts_only():
    """The rounding between two operations is part of the type's meaning and is kept."""
    x = param(dtypes.bfloat16)
    v = legal(x + x * 3.0, NATIVE, frozenset((dtypes.bfloat16,)))
    assert sum(u.op == "CAST" and u.dtype is dtypes.bfloat16 for u in toposort(v)) == 2


def test_what_the_target_has_is_left_alone():
    h = dtypes.float16
    x = param(h)
    for u in (x + x, build("CAST", x, arg=F), build("EXP2", x)):
        assert legalize(u, NATIVE | {h}) is None
    assert legalize(build("CAST", x, arg=F), NATIVE, frozenset((h,))) is None
    assert legalize(build("WHERE", param(dtypes.bool, 1), x, const(0.0, h)), NATIVE) is None
    assert legalize(param(INT) + 1, frozenset()) is None


@pytest.mark.parametrize("d", (dtypes.float16, dtypes.bfloat16), ids=lambda d: d.name)
def test_exponential_and_logarithm_keep_their_constants(d):
    x = RNG.uniform(-10, 10, 5000).astype(to_numpy(d))
    p = param(d)
    wanted = np.exp(x.astype(np.float64)).astype(to_numpy(d))
    assert np.mean(emulated(build("EXP2", p * LOG2E), x) == wanted) > 0.99
    wanted = np.log(np.abs(x).astype(np.float64)).astype(to_numpy(d))
    assert np.mean(emulated(build("LOG2", p) * LN2, np.abs(x)) == wanted) > 0.99


def test_values_keep_their_shape():
    for d in NARROW:
        x = param(d, shape=(6, 4, 16))
        assert legal(build("MAX", x, x * 2.0)).shape == (6, 4, 16)
