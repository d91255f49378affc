"""Additions by place: many to few places in parts, each with a table of its own; whose rows are whose."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, jit
from monolect.backend.cpu.render import render_module
from monolect.ir.text import parse, show
from monolect.schedule.rewrites import split_scatters as pass_
from monolect.schedule.rewrites.split_scatters import split_scatters
from tests.strategies import often

MANY = 1 << 16

BEFORE = """
%0 = CONST idx[] (100, idx)
%1 = STACK idx[1] %0
%2 = PARAM f32[100] %1 ParamArg(slot=0, dtype=f32, device="cpu")
%3 = CONST idx[] (65536, idx)
%4 = STACK idx[1] %3
%5 = PARAM i32[65536] %4 ParamArg(slot=1, dtype=i32, device="cpu")
%6 = CAST idx[65536] %5 idx
%7 = INDEX f32[65536] %2 %6
%8 = PARAM f32[65536] %4 ParamArg(slot=2, dtype=f32, device="cpu")
%9 = ATOMICADD void[] %7 %8
%10 = AFTER f32[100] %2 %9
"""


def test_before_and_after():
    after = show(split_scatters([parse(BEFORE)])[0])
    assert "ATOMICADD void[] " in after and "f32[1600]" in after, "sixteen tables"
    assert "idx[16,4096]" in after and "REDUCE f32[1,100]" in after, "an axis of parts, which are added up"
    assert after.rstrip().splitlines()[-2].split()[2] == "STORE", "the target is written once"


@pytest.mark.parametrize("n, places", [(MANY // 4, 10), (MANY, MANY)])
def test_few_additions_and_many_places_are_left_alone(n, places):
    roots = [parse(BEFORE.replace("65536", str(n)).replace("100", str(places)))]
    assert split_scatters(roots) is roots


def test_parts_are_shared_out(structure, data):
    i = np.random.default_rng(1).integers(0, 100, MANY)
    ks = structure(Tensor(data(100)).scatter_add(0, Tensor(i), Tensor(data(MANY))))
    assert [k.linear.arg.threads for k in ks] == [1, 2, 1], "zeros, the additions, the sums of the tables"
    assert ks[1].ir["ATOMICADD"] == 1 and ks[1].ir["MAX"] == 0, "a place outside is not moved: its gate is closed"


@pytest.mark.parametrize("shape", [(300, 300), (15, 20, 300), (3, 5, 4, 5, 300)])
def test_rows_share_out_what_is_written_and_added(structure, data, shape):
    """A gate keeps each place in its row, so rows are independent, and nothing is divided, whatever the axes are."""
    i = Tensor(np.random.default_rng(1).integers(0, 300, shape))
    for t in (
        Tensor(data(*shape)).scatter(-1, i, Tensor(data(*shape))),
        Tensor(data(*shape)).scatter_add(-1, i, i.float()),
    ):
        last = structure(t)[-1]
        assert last.linear.arg.threads == 2 and last.ir["MAX"] == last.ir["IDIV"] == last.ir["MOD"] == 0


def added(t: np.ndarray, i: np.ndarray, x: np.ndarray) -> np.ndarray:
    out = t.copy()
    inside = (i >= 0) & (i < len(t))
    np.add.at(out, i[inside], x[inside])
    return out


@settings(max_examples=often(6, 500))
@given(st.integers(1, 40), st.integers(1, 400), st.sampled_from([np.int64, np.float32]), st.integers(0, 5))
def test_every_size_keeps_its_values(places, n, dtype, seed):
    """Everything counts as many here; some places are negative, which are dropped."""
    rng = np.random.default_rng(seed)
    t, i, x = (
        rng.integers(-9, 9, places).astype(dtype),
        rng.integers(max(-2, -places), places, n),
        rng.integers(-9, 9, n),
    )
    x = x.astype(dtype)
    with pytest.MonkeyPatch.context() as patch, Context(CHECK_BOUNDS=0):
        patch.setattr(pass_, "MIN_ADDITIONS", 1)
        patch.setattr(pass_, "MIN_ADDITIONS_PER_ELEMENT", 0)
        a, at, b = Tensor(t).realize(), Tensor(i, dtype="int32"), Tensor(x)
        fresh, from_zeros = (a + 1).scatter_add(0, at, b), Tensor.zeros(places).cast(a.dtype).scatter_add(0, at, b)
        np.testing.assert_array_equal(fresh.numpy(), added(t + 1, i, x))
        np.testing.assert_array_equal(from_zeros.numpy(), added(t * 0, i, x))
        got = jit(lambda a, at, b: a.scatter_add(0, at, b).scatter_add(0, at, b * 2))(a, at, b)
        np.testing.assert_array_equal(got.numpy(), added(added(t, i, x), i, x * 2))
        np.testing.assert_array_equal(a.numpy(), t)


def test_the_gradient_of_picking_is_in_parts(structure):
    x = Tensor(np.arange(10, dtype=np.float32), requires_grad=True)
    i = np.arange(MANY) * 7 % 10
    x[Tensor(i)].sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.bincount(i))


def test_a_place_is_compared_once_and_picked_once(structure, data):
    """Of an addition: one comparison without a sign says whether it is inside, one address is where it goes."""
    i = Tensor(np.arange(50) % 30)
    k = structure(Tensor(data(30)).scatter_add(0, i, Tensor(data(50))))[-1]
    code = render_module([("k", k.linear)])
    assert code.count("icmp ult i64") == 1 and code.count("ptr %dummy") == 1 and "select i1" in code


def test_beyond_the_end_of_a_row_a_place_is_read_without_asking(structure, data):
    """Its index is zero there, which is in the row: the tail masks what it loads as index, and what it stores."""
    i = Tensor(np.arange(30 * 19).reshape(30, 19) % 19)
    code = render_module([("k", structure(Tensor(data(30, 19)).gather(1, i))[-1].linear)])
    assert "masked.load" in code and "masked.store" in code and "ptr %dummy" not in code
