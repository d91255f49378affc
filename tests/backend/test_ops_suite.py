"""One suite for every device: each op on each dtype it accepts, against NumPy, with edge values and documented corners.

Every device that is present runs it, `null` compiles it; one that is absent is skipped, and says why. What the ops
mean is said in the op table (`monolect ops`).
"""

import numpy as np
import pytest

from monolect import Tensor, dtypes
from monolect.backend.registry import Device
from monolect.base.dtype import ALL, DType, to_numpy
from monolect.ir.check.interp import cast, evaluate, storage
from monolect.ir.ops import ELEMENTWISE, ROWS, Stage
from monolect.ir.uop import UOp, build, node
from tests.strategies import edge_values

SLOW = ("opencl", "webgpu")  # their compilers: parts of the suite are in test_opencl.py and test_webgpu.py


def devices(slow: tuple[str, ...] = SLOW) -> list:
    """Every device that computes, those that are absent with a mark that says why."""
    present = {name: why for name, why in Device.present().items() if name not in ("disk", "null")}
    out = []
    for name, why in present.items():
        marks = [pytest.mark.skip(reason=f"{name}: {why}")] if why else []
        out.append(pytest.param(name, marks=[*marks, pytest.mark.slow] if name in slow else marks))
    return out


RUNS = [*devices(), "python:gpu"]
DEVICES = (*RUNS, "null")
DTYPES = [d for d in ALL if d.kind not in "vxs"]
NARROW = [d for d in DTYPES if d.is_float and d.bits < 32]
OPS = sorted(op for op in ELEMENTWISE - {"CAST", "THREEFRY", "CUSTOM"} if Stage.TENSOR in ROWS[op].stages)
# ULP of the device's float32 or float64 against NumPy's; all else is exact. Narrow floats are computed in float32.
ULPS = {"EXP2": 3, "LOG2": 3, "SIN": 3, "POW": 4, "DIV": 2, "RECIP": 2, "SQRT": 2}


def operands(d: DType, count: int, seed: int = 1) -> list[np.ndarray]:
    """All pairs of edge values, then random ones; a third operand is a permutation of the first."""
    rng = np.random.default_rng(seed)
    edges = edge_values(d)
    pairs = [(a, b) for a in edges for b in edges]
    if d.is_float:
        pairs += [tuple(p) for p in rng.normal(0, 8, (150, 2))]
    elif d.kind != "b":
        low, high = max(d.min, -1000), min(d.max, 1000)
        pairs += [tuple(int(v) for v in p) for p in rng.integers(low, high, (150, 2))]
    kind = np.float64 if d.is_float else object
    with np.errstate(all="ignore"):
        out = [np.array(column, kind).astype(storage(d)) for column in zip(*pairs, strict=True)]
    return [*out, rng.permutation(out[0])][:count]


def accepts(op: str, d: DType) -> bool:
    """Whether the op table allows `op` on `d`."""
    from monolect import IRError
    from monolect.ir.uop import const

    kinds = [dtypes.bool, d, d] if op == "WHERE" else [d] * ROWS[op].lo
    try:
        node(op, tuple(const(0, k) for k in kinds))
    except IRError:
        return False
    return True


def on(device: str, array: np.ndarray, dtype: DType) -> Tensor:
    return Tensor(array, device=device) if array.dtype == to_numpy(dtype) else Tensor(array, device=device, dtype=dtype)


def run(device: str, *us: UOp) -> list[np.ndarray]:
    """The values, computed together: one module to compile. None on `null`."""
    first, *others = [Tensor(u) for u in us]
    first.realize(*others)
    return [] if device == "null" else [np.array(t.numpy()) for t in (first, *others)]


def assert_close(got: np.ndarray, want: np.ndarray, d: DType, ulps: float, *args: np.ndarray) -> None:
    wide = (np.longdouble if d is dtypes.float64 else np.float64) if d.is_float else None
    if wide is None or not ulps:
        a, b = (x.astype(np.float64) if d in NARROW else x for x in (got, want))
        np.testing.assert_array_equal(a, b)
        return
    with np.errstate(all="ignore"):
        _check_ulps(got, want, wide, d, ulps, args)


def _check_ulps(got: np.ndarray, want: np.ndarray, wide: type, d: DType, ulps: float, args: tuple) -> None:
    a, b = got.astype(wide), want.astype(wide)
    both_nan = np.isnan(a) & np.isnan(b)
    same = both_nan | (a == b)
    info = np.finfo(np.float64 if d is dtypes.float64 else np.float32)
    narrow = {"float16": 2**-10, "bfloat16": 2**-7, "fp8e5m2": 0.25, "fp8e4m3": 0.125}
    eps = narrow.get(d.name, float(info.eps))
    tiny = float(info.tiny) if d not in NARROW else float(np.abs(want[want != 0].astype(np.float64)).min(initial=1))
    error = np.where(same, 0, np.abs(a - b) / (np.maximum(np.abs(b), tiny) * eps))
    error = np.where(np.isnan(error), np.inf, error)
    k = int(np.argmax(error))
    assert error[k] <= ulps, f"{error[k]} ULP at {[x[k] for x in args]}: {got[k]} instead of {want[k]}"


def assert_fused(got: np.ndarray, want: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        bits = 52 if a.dtype == np.float64 else 23 if a.dtype == np.float32 else 1
        x, y, product = (v.astype(np.float64) for v in (got, want, a.astype(np.float64) * b.astype(np.float64)))
        near = np.abs(x - y) <= (np.abs(product) + np.abs(y)) * 2.0**-bits
        assert np.all(near | (x == y) | (np.isnan(x) & np.isnan(y)))


def narrow_of(op: str) -> DType:
    """The one narrow float of an op; each is that of a quarter of the ops."""
    return NARROW[OPS.index(op) % len(NARROW)]


@pytest.mark.sweep
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", OPS)
def test_elementwise(op, device):
    """On every dtype the table allows, the device's values are the interpreter's (to the ULP for the rounded ones).

    On `c` each op has one of the narrow floats, and each of these some ops: GCC takes seconds for their casts, which
    are those of `test_casts_between_all_dtypes` whatever the op. `test_elementwise_of_narrow_floats` has all of them.
    """
    _check_elementwise(op, device, [d for d in DTYPES if device != "c" or d not in NARROW or d is narrow_of(op)])


@pytest.mark.slow
@pytest.mark.parametrize("device", [d for d in devices() if "c" in d.values])
@pytest.mark.parametrize("op", OPS)
def test_elementwise_of_narrow_floats(op, device):
    if any(accepts(op, d) for d in NARROW):
        _check_elementwise(op, device, NARROW)


def _check_elementwise(op: str, device: str, of: list[DType]) -> None:
    cases = []
    for d in [d for d in of if accepts(op, d)]:
        arrays = operands(d, ROWS[op].lo)
        tensors = [on(device, a, d) for a in arrays]
        if op == "WHERE":
            arrays = [arrays[0] != arrays[1], arrays[0], arrays[1]]
            tensors = [on(device, arrays[0], dtypes.bool), *tensors[:2]]
        if op == "POW" or op == "SIN":
            limit = 50
            with np.errstate(all="ignore"):
                arrays = [np.where(np.abs(a.astype(np.float64)) < limit, a, a.dtype.type(2)) for a in arrays]
            tensors = [on(device, a, d) for a in arrays]
        cases.append((d, node(op, tuple(t.uop for t in tensors)), tensors, arrays))
    results = run(device, *(u for _, u, _, _ in cases))
    assert cases and (results or device == "null")
    for (d, u, tensors, arrays), got in zip(cases, results, strict=bool(results)):
        want = evaluate(u, {t.uop: a for t, a in zip(tensors, arrays, strict=True)})
        assert got.dtype == want.dtype
        if op == "MULACC" and d.is_float:  # rounded once or twice: the product may be off by half a unit of its own
            assert_fused(got, want, *arrays)
            continue
        try:
            assert_close(got, want, u.dtype, ULPS.get(op, 0), *arrays)
        except AssertionError as e:
            raise AssertionError(f"{op} on {d.name}: {e}") from None


# ---- documented corners ----------------------------------------------------------------------------------------------
INTEGERS = [d for d in DTYPES if d.is_int]


@pytest.mark.sweep
@pytest.mark.parametrize("device", RUNS)
@pytest.mark.parametrize("d", INTEGERS, ids=lambda d: d.name)
def test_division_by_zero_is_zero_and_the_smallest_wraps(device, d):
    a = np.array([7, 0, d.max, d.min, d.min], storage(d))
    b = np.array([0, 0, 0, 0, 1 if d.is_unsigned else -1], storage(d))
    x, y = on(device, a, d), on(device, b, d)
    got = run(device, build("IDIV", x.uop, y.uop), build("MOD", x.uop, y.uop), (x // 0).uop, (x % 0).uop)
    assert got[0].tolist() == [0, 0, 0, 0, 0 if d.is_unsigned else d.min]
    assert [a.tolist() for a in got[1:]] == [[0] * 5] * 3


@pytest.mark.parametrize("device", RUNS)
def test_division_rounds_down_and_the_remainder_has_the_sign_of_the_divisor(device):
    a, b = (np.array(v, np.int32) for v in ([7, -7, 7, -7], [2, 2, -2, -2]))
    x, y = Tensor(a, device=device), Tensor(b, device=device)
    assert (x // y).tolist() == [3, -4, -4, 3] and (x % y).tolist() == [1, 1, -1, -1]
    assert (x // 2).tolist() == [3, -4, 3, -4] and (x % 3).tolist() == [1, 2, 1, 2]


@pytest.mark.sweep
@pytest.mark.parametrize("device", RUNS)
@pytest.mark.parametrize("d", INTEGERS, ids=lambda d: d.name)
def test_shifts_outside_of_the_bits(device, d):
    amounts = [0, 1, d.bits - 1, d.bits, min(d.bits + 1, d.max)] + ([] if d.is_unsigned else [-1, d.min])
    b = np.array(amounts, storage(d))
    values = (d.max, d.min, 1)
    y = on(device, b, d)
    xs = [on(device, np.full(len(b), value, storage(d)), d) for value in values]
    got = iter(run(device, *(build(op, x.uop, y.uop) for x in xs for op in ("SHL", "SHR"))))
    for value in values:
        inside = (b >= 0) & (b < d.bits)
        left = [(value << int(k)) % 2**d.bits if ok else 0 for k, ok in zip(b, inside, strict=True)]
        left = [v - 2**d.bits if not d.is_unsigned and v > d.max else v for v in left]
        right = [value >> int(k) if ok else -(value < 0) for k, ok in zip(b, inside, strict=True)]
        assert next(got).tolist() == left
        assert next(got).tolist() == right


@pytest.mark.sweep
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("source", DTYPES, ids=lambda d: d.name)
def test_casts_between_all_dtypes(source, device):
    """Floats saturate into integers and nan becomes 0; integers wrap; all else rounds to nearest even."""
    values = np.array(operands(source, 1)[0])
    if source.is_float:
        extra = [0.4, 0.5, 1.5, 2.5, -0.5, 127.6, 255.5, 2.0**31, -(2.0**31) - 1, 2.0**40, 2.0**63, 1e19, -1e19]
        values = np.concatenate(
            [values, np.array([e for e in extra if abs(e) < 6e4 or source.bits >= 32], storage(source))]
        )
    x = on(device, values, source)
    results = run(device, *(build("CAST", x.uop, arg=d) for d in DTYPES))
    for d, got in zip(DTYPES, results, strict=bool(results)):
        with np.errstate(all="ignore"):
            want = cast(values, source, d)
        a, b = (v.astype(np.float64) if d in NARROW else v for v in (got, want))
        np.testing.assert_array_equal(a, b, err_msg=f"{source.name} to {d.name}")


@pytest.mark.sweep
@pytest.mark.parametrize("device", RUNS)
@pytest.mark.parametrize("d", [d for d in DTYPES if d.kind != "b"], ids=lambda d: d.name)
def test_bitcasts(device, d):
    uint = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}[d.itemsize]
    (a,) = operands(d, 1)
    x = on(device, a, d).uop
    got, back = run(device, build("BITCAST", x, arg=uint), build("BITCAST", build("BITCAST", x, arg=uint) + 0, arg=d))
    np.testing.assert_array_equal(got, a.view(to_numpy(uint)))
    np.testing.assert_array_equal(back.view(to_numpy(uint)), a.view(to_numpy(uint)))


@pytest.mark.sweep
@pytest.mark.parametrize("device", RUNS)
def test_bitcast_between_sizes(device):
    a = np.arange(16, dtype=np.uint8) * 17
    for d in (dtypes.uint16, dtypes.float32, dtypes.int64):
        x = Tensor(a, device=device).bitcast(d)
        np.testing.assert_array_equal((x + 0).numpy().view(np.uint8) if d.is_int else x.numpy().view(np.uint8), a)
        np.testing.assert_array_equal((x.bitcast(dtypes.uint8) + 0).numpy(), a)


# ---- reductions ------------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", ["ADD", "MAX", "MUL"])
@pytest.mark.parametrize("d", DTYPES, ids=lambda d: d.name)
def test_reductions(op, d, device):
    rng = np.random.default_rng(2)
    a = (rng.integers(0, 2, (6, 8)) if op != "MUL" else rng.integers(1, 3, (6, 4))).astype(storage(d))
    x = on(device, a, d)
    us = [build("REDUCE", x.uop, arg=(op, axes)) for axes in ((0,), (1,), (0, 1), ())]
    results = run(device, *us)
    for u, got in zip(us, results, strict=bool(results)):
        want = evaluate(u, {x.uop: a})
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(*(v.astype(np.float64) if d in NARROW else v for v in (got, want)))


@pytest.mark.sweep
@pytest.mark.parametrize("device", RUNS)
@pytest.mark.parametrize("d", DTYPES, ids=lambda d: d.name)
def test_sums_by_place(device, d):
    a = np.ones((7, 3), storage(d))
    x, rows = on(device, a, d), Tensor(np.array([4, 0, 1, 1, 4, 4, 1]), device=device)
    got = Tensor.zeros(5, 3, dtype=d, device=device).index_add(0, rows, x).numpy()
    want = np.array([1, 3, 0, 0, 3]) if d is not dtypes.bool else np.array([1, 1, 0, 0, 1])
    got = got.view(np.uint8) if d is dtypes.bool else got
    np.testing.assert_array_equal(got.astype(np.float64), np.repeat(want[:, None], 3, 1))


@pytest.mark.parametrize("device", RUNS)
def test_a_maximum_of_nan_is_nan_and_of_nothing_special_is_right(device):
    a = np.array([[1, np.nan, 3], [-np.inf, -5, -2], [np.inf, 0, 1]], np.float32)
    np.testing.assert_array_equal(Tensor(a, device=device).amax(1).numpy(), [np.nan, -2, np.inf])
    b = np.full((3, 37), np.float32(-7))
    b[1, 36] = np.nan
    np.testing.assert_array_equal(Tensor(b, device=device).amax(1).numpy(), [-7, np.nan, -7])


# ---- whole programs, small on every device ---------------------------------------------------------------------------
A = np.arange(60, dtype=np.float32).reshape(3, 4, 5) % 7 - 2
B = np.arange(20, dtype=np.float32).reshape(5, 4) % 5 - 1
ROWS_OF_B = np.array([2, 0, 1, 2])
PROGRAMS = {
    "permute": (lambda a, b: a.permute(2, 0, 1) + 1, lambda a, b: a.transpose(2, 0, 1) + 1),
    "flip and slice": (lambda a, b: a.flip(1)[:, 1:, ::2] * 2, lambda a, b: a[:, ::-1][:, 1:, ::2] * 2),
    "pad": (lambda a, b: a.pad((1, 2, 0, 1)) - 1, lambda a, b: np.pad(a, ((0, 0), (0, 1), (1, 2))) - 1),
    "cat": (lambda a, b: a.cat(a + 1, dim=1), lambda a, b: np.concatenate([a, a + 1], 1)),
    "expand": (lambda a, b: b.reshape(1, 5, 4).expand(3, 5, 4) * 2, lambda a, b: np.broadcast_to(b, (3, 5, 4)) * 2),
    "matmul": (lambda a, b: a @ b, lambda a, b: a @ b),
    "matmul of transposes": (lambda a, b: b.T @ a[0].T, lambda a, b: b.T @ a[0].T),
    "softmax": (lambda a, b: a.softmax(-1), lambda a, b: (e := np.exp(a)) / e.sum(-1, keepdims=True)),
    "mean and variance": (lambda a, b: a.var((1, 2)) + a.mean(), lambda a, b: a.var((1, 2), ddof=1) + a.mean()),
    "cumsum": (lambda a, b: a.cumsum(1), lambda a, b: a.cumsum(1)),
    "gather": (lambda a, b: b[Tensor(ROWS_OF_B, device=b.device)] + 1, lambda a, b: b[ROWS_OF_B] + 1),
    "scatter": (
        lambda a, b: b.index_add(0, Tensor(ROWS_OF_B, device=b.device), b[:4]),
        lambda a, b: (c := b.copy(), np.add.at(c, ROWS_OF_B, b[:4]))[0],
    ),
    "sort": (
        lambda a, b: (s := a.sort(1, stable=True))[0] * 10 + s[1],
        lambda a, b: np.sort(a, 1) * 10 + np.argsort(a, 1, kind="stable"),
    ),
    "places of a sort": (lambda a, b: b.flip(0).sort(0).indices, lambda a, b: b[::-1].argsort(0, kind="stable")),
    "where": (lambda a, b: (a > 1).where(a, -a), lambda a, b: np.where(a > 1, a, -a)),
    "arange": (lambda a, b: b * Tensor.arange(4, device=b.device), lambda a, b: b * np.arange(4)),
    "convolution": (
        lambda a, b: a.reshape(1, 3, 4, 5).conv2d(a.reshape(5, 3, 2, 2), padding=1),
        lambda a, b: np.einsum(
            "chwij,ocij->ohw",
            np.lib.stride_tricks.sliding_window_view(np.pad(a, ((0, 0), (1, 1), (1, 1))), (2, 2), (1, 2)),
            a.reshape(5, 3, 2, 2),
        )[None],
    ),
}  # fmt: skip


def check_programs_as_one_module(device: str) -> None:
    """All programs in one batch give what NumPy does."""
    a, b = (Tensor(x, device=device) for x in (A, B))
    results = [ours(a, b) for ours, _ in PROGRAMS.values()]
    results[0].realize(*results[1:])
    for title, result in zip(PROGRAMS, results, strict=True):
        np.testing.assert_allclose(result.numpy(), PROGRAMS[title][1](A, B), rtol=2e-6, atol=2e-6, err_msg=title)


@pytest.mark.sweep
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, device):
    ours, theirs = PROGRAMS[name]
    y = ours(Tensor(A, device=device), Tensor(B, device=device))
    want = theirs(A, B)
    assert y.shape == want.shape and y.device == device
    y.realize()
    if device != "null":
        np.testing.assert_allclose(y.numpy(), want, rtol=2e-6, atol=2e-6)


@pytest.mark.sweep
@pytest.mark.parametrize("device", RUNS)
@pytest.mark.parametrize("d", NARROW, ids=lambda d: d.name)
def test_narrow_floats_are_storage(device, d):
    """Stored in their own bits; sums and products are exact where the values are."""
    a = (np.arange(24).reshape(4, 6) % 4).astype(to_numpy(d))
    x = Tensor(a, device=device)
    assert x.dtype is d
    wide = a.astype(np.float32)
    for got, want in ((x + x, wide * 2), (x.sum(1), wide.sum(1)), (x @ x.T, wide @ wide.T), (-x, -wide)):
        assert got.dtype is d and got.uop.dtype.itemsize == d.itemsize
        np.testing.assert_array_equal(got.numpy().astype(np.float32), want.astype(to_numpy(d)).astype(np.float32))
    y = Tensor(a, device=device)
    y[1:3, 2] = 3
    wide[1:3, 2] = 3
    np.testing.assert_array_equal(y.numpy().astype(np.float32), wide)


def test_the_suite_covers_the_devices_that_run():
    for name, missing in Device.present().items():
        if not missing and name != "disk":
            assert Device[name].name == name
