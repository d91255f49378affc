"""Donated arguments: results take their memory where nobody else sees it, and using one again is an error."""

from pathlib import Path

import numpy as np
import pytest

from monolect import ArgumentError, Context, JitError, Tensor, jit
from monolect.backend.common.host.memory import stats
from monolect.tensor.tensor import live_tensors

N = 1 << 20

USES: list = [lambda x: x + 1, lambda x: 1 + x, lambda x: x.numpy(), lambda x: x.shape, lambda x: x.item(), len]
USES += [lambda x: x.realize(), lambda x: x.assign(x), lambda x: Tensor.stack([x])]


def fresh(value: float = 1.0, n: int = 64) -> Tensor:
    return (Tensor.full((n,), value) * 1).contiguous().realize()


def address(t: Tensor) -> int:
    return t.realize()._uop.storage.address


@pytest.mark.parametrize("donate", [0, "x", ("x",), [0]])
def test_a_result_takes_the_memory_of_a_donated_argument(donate) -> None:
    step = jit(donate=donate)(lambda x, y: x * 2 + y)
    y = fresh(1.0)
    step(fresh(), y)
    for value in (3.0, 5.0):
        x = fresh(value)
        at = address(x)
        out = step(x, y)
        assert address(out) == at and out.tolist() == [2 * value + 1] * 64
    assert step.peak_bytes == 0 and y.tolist() == [1.0] * 64


def test_a_chain_of_donations_takes_no_second_buffer() -> None:
    step = jit(lambda x: x + 1, donate=0)
    x = step(fresh(0.0, N))
    used, x = stats().used_bytes, step(x)
    for _ in range(5):
        x = step(x)
        assert stats().used_bytes == used
    assert x.tolist()[:2] == [7.0, 7.0]


def test_any_use_of_a_donated_tensor_raises() -> None:
    step = jit(lambda x: x + 1, donate="x")
    for _ in range(2):  # captured, replayed
        x = fresh()
        x.requires_grad = True
        step(x)
        for use in (*USES, step):
            with pytest.raises(JitError, match="a donated tensor is used") as e:
                use(x)
            assert "test_donated.py" in e.value.found and e.value.line[0].endswith("test_donated.py")
            assert e.value.expected is not None
        assert "donated at" in repr(x) and not any(t is x for t in live_tensors())
        with pytest.raises(JitError, match="donated"):
            (fresh() + x).realize()
    (fresh() * fresh(2.0)).sum().realize()  # others go on


def test_what_others_see_is_left_alone() -> None:
    step = jit(lambda x: x + 1, donate=0)
    step(fresh())
    x = fresh(1.0)
    view, values, a = x[:2], Tensor(x[:2]), x.numpy()
    assert step(x).tolist() == [2.0] * 64
    assert values.tolist() == [1.0, 1.0] and a[:2].tolist() == [1.0, 1.0]
    with pytest.raises(JitError, match="donated"):
        view.tolist()
    x = fresh(1.0)
    later = x * 3  # not computed yet
    assert step(x).tolist() == [2.0] * 64 and later.tolist() == [3.0] * 64
    array = np.ones(64, np.float32)
    assert step(Tensor(array)).tolist() == [2.0] * 64 and array[0] == 1.0


def test_the_same_tensor_twice_and_two_tensors_of_one_buffer() -> None:
    step = jit(lambda x, y: x + y.flip(0), donate="x")
    rows = np.arange(64, dtype=np.float32)
    for _ in range(3):
        x = (Tensor(rows) * 1).contiguous().realize()
        np.testing.assert_array_equal(step(x, x).numpy(), rows + rows[::-1])  # read in another order than written
        with pytest.raises(JitError, match="donated"):
            x.numpy()
        x = (Tensor(rows) * 1).contiguous().realize()
        y = Tensor._wrap(x._uop)
        np.testing.assert_array_equal(step(x, y).numpy(), rows + rows[::-1])
        np.testing.assert_array_equal(y.numpy(), rows)


@pytest.mark.parametrize("order", [1, -1])
def test_what_another_result_of_the_kernel_reads_is_not_overwritten_before(order: int) -> None:
    step = jit(lambda c, d: ((c + d).contiguous(), (d * 2).contiguous())[::order], donate="c")
    with Context(COMPILE_CACHE=0):
        for k in range(4):
            c, d = (Tensor(np.full(500, v, np.float32)).clone().realize() for v in (k, 2))
            total, double = step(c, d)[::order]
            assert set(total.tolist()) == {k + 2.0} and set(double.tolist()) == {4.0}


def test_what_is_read_later_or_elsewhere_is_not_overwritten() -> None:
    step = jit(lambda x: ((x * 2).contiguous(), x.flip(0).contiguous()), donate=0)
    rows = np.arange(64, dtype=np.float32)
    for _ in range(3):
        two, back = step((Tensor(rows) * 1).contiguous().realize())
        np.testing.assert_array_equal(two.numpy(), rows * 2)
        np.testing.assert_array_equal(back.numpy(), rows[::-1])


def test_trees_keywords_and_what_the_step_assigns() -> None:
    @jit(donate=("state", "w"))
    def step(state: dict, x: Tensor, *, w: Tensor) -> dict:
        state["n"].assign(state["n"] + 1)
        return {"m": state["m"] + x, "w": w * 2}

    for _ in range(3):
        state, x, w = {"m": fresh(1.0), "n": fresh(0.0)}, fresh(2.0), fresh(3.0)
        out = step(state, x, w=w)
        assert out["m"].tolist() == [3.0] * 64 and out["w"].tolist() == [6.0] * 64 and x.tolist() == [2.0] * 64
        assert state["n"].tolist() == [1.0] * 64, "assigned: it is the new version"
        for t in (state["m"], w):
            with pytest.raises(JitError, match="donated"):
                t.numpy()


def test_what_is_returned_as_it_came() -> None:
    step = jit(lambda x: (x, x + 1), donate=0)
    for value in (1.0, 2.0, 3.0):
        same, more = step(fresh(value))
        assert same.tolist() == [value] * 64 and more.tolist() == [value + 1] * 64


def test_methods_and_files(tmp_path: Path) -> None:
    class Model:
        @jit(donate="cache")
        def step(self, cache: Tensor, x: Tensor) -> Tensor:
            return cache + x

    model = Model()
    for _ in range(2):
        cache = fresh()
        assert model.step(cache, fresh(2.0)).tolist() == [3.0] * 64
        with pytest.raises(JitError, match="donated"):
            cache.numpy()
    model.step.save(tmp_path / "m.step")
    loaded, cache = jit.load(tmp_path / "m.step"), fresh()
    at = address(cache)
    out = loaded(cache, fresh(2.0))
    assert address(out) == at and out.tolist() == [3.0] * 64
    with pytest.raises(JitError, match="donated"):
        cache.numpy()


@pytest.mark.parametrize("donate", ["z", 2, -1, ("x", "z")])
def test_arguments_that_there_are_not(donate) -> None:
    with pytest.raises(ArgumentError, match="donate"):
        jit(lambda x, y: x, donate=donate)
