"""The listings of docs/compositions.md, as they are printed there: what their kernels do."""

import re
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monolect import Tensor, Variable
from monolect.backend.registry import Device
from monolect.ir.bounds import min_max
from monolect.pipeline import lower_kernel, schedule
from monolect.schedule.callify import over_params
from tests.structure.conftest import kernels_of

PAGE = Path(__file__).parents[2] / "docs" / "compositions.md"
DTYPES = ["float32", "float64", "float16", "int64", "int32", "int8", "uint8"]


@pytest.fixture(scope="module")
def listings() -> dict[str, Any]:
    """The functions of the page, without what it runs of them."""
    names: dict[str, Any] = {"np": np, "Tensor": Tensor}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M):
        for source in re.findall(r"^def .*?(?=^\S(?<!\s)(?!def )|\Z)", block, re.S | re.M):
            exec(compile(source, str(PAGE), "exec"), names)
    assert {"gemm", "prefix_sum", "arange", "gather", "scatter_add"} <= names.keys()
    return names


TARGET = Device["null"].target._replace(local_bytes=1 << 20)


def steps(*tensors: Tensor) -> int:
    """Iterations of the innermost loops of the generated code; a vector counts as its lanes."""
    sink, _, _ = over_params([t.uop for t in tensors])
    total = 0
    for call in schedule(list(sink.src), "null", TARGET.local_bytes).linear.src:
        nest, is_inner = [1], False
        for u in lower_kernel(call.src[0], TARGET).src:
            if u.op == "RANGE":
                nest.append(nest[-1] * min_max(u.src[0])[1])
                is_inner, lanes = True, 1
            elif u.op in ("LOAD", "STORE") and is_inner:
                lanes = max(lanes, prod(u.shape or u.src[-1].shape))
            elif u.op == "END":
                total += nest[-1] * lanes if is_inner else 0
                is_inner = False
                del nest[len(nest) - len(u.src) + 1 :]
    return total


def test_gemm_is_one_kernel_that_stores_only_its_result(listings, data) -> None:
    a, b = data(24, 32), data(32, 40)
    out = listings["gemm"](Tensor(a), Tensor(b))
    (k,) = kernels_of(out)
    assert k.ir["STORE"] == 1
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)


def test_prefix_sum_is_linear(listings, data) -> None:
    x = data(300)
    out = listings["prefix_sum"](Tensor(x))
    assert steps(out) <= 320, "the last vector overhangs"
    np.testing.assert_allclose(out.numpy(), np.cumsum(x), rtol=1e-4, atol=1e-4)


def test_arange_has_no_reduction_and_is_stored_nowhere(listings) -> None:
    (k,) = kernels_of(listings["arange"](50))
    assert k.reads == 0 and k.ir["REDUCE"] == 0
    x = Tensor(np.arange(50)).realize()
    (k,) = kernels_of(x * listings["arange"](50))
    assert k.reads == 1 and k.ir["STORE"] == 1


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_has_no_loop_over_the_table_for_each_index(listings, dtype) -> None:
    rng = np.random.default_rng(0)
    table, places = rng.integers(0, 9, 300).astype(dtype), rng.integers(0, 300, 500)
    out = listings["gather"](Tensor(table), Tensor(places))
    assert steps(out) <= 300 + 500
    assert out.tolist() == table[places].tolist()


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_add_has_no_loop_over_the_table_for_each_value(listings, dtype) -> None:
    rng = np.random.default_rng(0)
    table, places, v = rng.integers(0, 5, 300).astype(dtype), rng.integers(0, 300, 500), rng.integers(0, 3, 500)
    out = listings["scatter_add"](Tensor(table), Tensor(places), Tensor(v.astype(dtype)))
    assert steps(out) <= 3 * 300 + 3 * 500, "two tables are cleared, filled and read; each value is counted"
    wanted = table.astype("float64")
    np.add.at(wanted, places, v)
    assert out.numpy().astype("float64").tolist() == wanted.tolist()


def test_a_table_larger_than_local_memory_keeps_the_loops(listings) -> None:
    n = 5 << 20
    places, v = np.array([3, n - 1] * 20), np.ones(40, np.float32)
    out = listings["scatter_add"](Tensor.zeros(n), Tensor(places), Tensor(v))
    got = out.numpy()
    assert got[3] == got[n - 1] == 20 and got.sum() == 40


def test_listings_take_symbolic_sizes(listings) -> None:
    n = Variable("n_values", 1, 64)
    rng = np.random.default_rng(1)
    places, v = rng.integers(0, 40, 64), rng.standard_normal(64)
    table = rng.standard_normal(40)
    p, x, t = Tensor(places), Tensor(v), Tensor(table)
    for k in (1, 20, 64):
        wanted = table.copy()
        np.add.at(wanted, places[:k], v[:k])
        with n.bind(k):
            np.testing.assert_allclose(listings["scatter_add"](t, p[:n], x[:n]).numpy(), wanted, rtol=1e-12)
            np.testing.assert_allclose(listings["gather"](t, p[:n]).numpy(), table[places[:k]], rtol=1e-12)


def test_gradients_of_the_listings(listings) -> None:
    rng = np.random.default_rng(2)
    table, places, v = rng.standard_normal(30), rng.integers(0, 30, 50), rng.standard_normal(50)
    up, back = rng.standard_normal(30), rng.standard_normal(50)
    t, x = Tensor(table, requires_grad=True), Tensor(v, requires_grad=True)
    (listings["scatter_add"](t, Tensor(places), x) * Tensor(up)).sum().backward()
    np.testing.assert_allclose(t.grad.numpy(), up)
    np.testing.assert_allclose(x.grad.numpy(), up[places])
    t.grad = None
    (listings["gather"](t, Tensor(places)) * Tensor(back)).sum().backward()
    wanted = np.zeros(30)
    np.add.at(wanted, places, back)
    np.testing.assert_allclose(t.grad.numpy(), wanted)
    t.grad = None
    (listings["prefix_sum"](t) * Tensor(up)).sum().backward()
    np.testing.assert_allclose(t.grad.numpy(), np.cumsum(up[::-1])[::-1])
