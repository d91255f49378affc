"""Quotients, remainders and casts to integers in vectors: every edge, and no element by itself."""

import numpy as np
import pytest

from monolect import Tensor, dtypes
from monolect.backend.common.llvm.elementwise import ElementwiseRenderer
from monolect.backend.common.llvm.program import render_module
from monolect.backend.common.llvm.workgroups import GroupRenderer
from monolect.backend.registry import Device
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def source(tensor):
    """The LLVM text of a tensor's only kernel."""
    sink, _, _ = over_params([tensor.uop])
    (call,) = schedule(list(sink.src), "cpu").linear.src
    return render_module([("k", lower_kernel(call.src[0], Device["cpu"].target))])


def operands(name):
    """All pairs of 8 bits; of others all pairs of edges, and random dividends at multiples of random divisors."""
    i, rng = np.iinfo(name), np.random.default_rng(1)
    if i.bits == 8:
        v = np.arange(i.min, i.max + 1)
        return np.repeat(v, 256).astype(name), np.tile(v, 256).astype(name)
    edges = [0, 1, 2, 3, 7, *(i.max // k - d for k in (1, 2, 3) for d in (0, 1, 2))]
    edges += [-1, -2, -3, *(i.min // k + d for k in (1, 2, 3) for d in (0, 1, 2))] if i.min else []
    signs = rng.choice([1, -1] if i.min else [1], (2, 3000)).tolist()
    sizes = (2 ** rng.uniform(0, i.bits - 1, (2, 3000))).tolist()
    (a, b) = ([int(x) * s for x, s in zip(*row, strict=True)] for row in zip(sizes, signs, strict=True))
    near = [
        min(max(x // y * y + int(k), i.min), i.max) for x, y, k in zip(a, b, rng.integers(-1, 2, 3000), strict=True)
    ]
    x, y = [e for e in edges for _ in edges] + a + near, edges * len(edges) + b + b
    return np.array(x, object).astype(name), np.array(y, object).astype(name)


@pytest.mark.sweep
@pytest.mark.parametrize("name", INTEGERS)
def test_quotients_and_remainders_are_exact(name):
    a, b = operands(name)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    low, n = np.iinfo(name).min, 1 << np.iinfo(name).bits
    quotients = [((x // y if y else 0) - low) % n + low for x, y in pairs]  # the smallest by -1 wraps
    np.testing.assert_array_equal((Tensor(a) // Tensor(b)).numpy(), np.array(quotients, object).astype(name))
    remainders = [x % y if y else 0 for x, y in pairs]
    np.testing.assert_array_equal((Tensor(a) % Tensor(b)).numpy(), np.array(remainders, object).astype(name))


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("of", ["float32", "float64"])
def test_casts_saturate(of, name):
    i, t, rng = np.iinfo(name), np.dtype(of).type, np.random.default_rng(1)
    x = [t(v) for v in (np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1e30, -1e30, 1e-40)]
    for limit in (t(i.min + k) for k in (0, 1, -1)):
        x += [limit, np.nextafter(limit, t(np.inf)), np.nextafter(limit, t(-np.inf)), limit + t(0.5)]
    for limit in (t(i.max + k) for k in (0, 1, -1)):
        x += [limit, np.nextafter(limit, t(np.inf)), np.nextafter(limit, t(-np.inf)), limit + t(0.5)]
    x += list((rng.standard_normal(1000) * 2.0 ** rng.uniform(0, 70, 1000)).astype(of))
    bounded = [0 if v != v else min(max(v, float(i.min)), float(i.max)) for v in map(float, x)]
    want = [min(max(int(v), i.min), i.max) for v in bounded]
    got = Tensor(np.array(x, of)).cast(getattr(dtypes, name)).numpy()
    np.testing.assert_array_equal(got, np.array(want, object).astype(name))


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_vectors_are_not_taken_apart(name):
    """No processor divides vectors of integers, and the code generator's own saturating casts go one by one."""
    a, b = (Tensor(np.ones(4096, name)) for _ in range(2))
    for text in (source(a // b), source(a % b)):
        assert "fdiv" in text and not any(f" {s}{op} " in text for s in "su" for op in ("div", "rem"))
    assert "sat" not in source(Tensor(np.ones(4096, np.float32)).cast(getattr(dtypes, name)))


def test_lanes_that_are_no_vectors_divide_by_themselves():
    """A GPU's lane divides integers, and may have no floats of 64 bits."""
    assert ElementwiseRenderer.is_simd and not GroupRenderer.is_simd
