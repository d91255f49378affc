"""Calls that are delayed (`tensor/state/delayed.py`) give the nodes, values, lines and gradients of their methods."""

import _thread
import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import Tensor
from monolect.base.errors import AllocationError, AxisError
from monolect.runtime.realize import execute
from monolect.tensor.state import delayed

A = np.array([[0.5, -1.25, 2.0], [3.5, 0.25, -0.75]], np.float32)
B = np.array([[1.5, 2.0, -0.5], [0.125, 4.0, 1.0]], np.float32)

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "a sum": lambda a, b: a + b,
    "a sum with itself": lambda a, b: a + a,
    "the other order": lambda a, b: b - a,
    "a number": lambda a, b: a * 2.5,
    "an integer": lambda a, b: a + 1,
    "a bool": lambda a, b: a + True,
    "a number first": lambda a, b: 3 - a,
    "zero": lambda a, b: a * 0.0,
    "negative zero": lambda a, b: a * -0.0,
    "a comparison": lambda a, b: a < b,
    "a product": lambda a, b: a @ b.t(),
    "a total": lambda a, b: a.sum(),
    "sums of rows": lambda a, b: a.sum(1, keepdim=True),
    "means of columns": lambda a, b: a.mean(dim=(0,)),
    "a function": lambda a, b: a.tanh(),
    "a form of a function": lambda a, b: a.gelu(approximate="tanh"),
    "a chain": lambda a, b: ((a + b) * b - a) / (b * b) + a,
    "a value used twice": lambda a, b: (lambda c: c * c + c)(a + b),
    "a choice": lambda a, b: (a < b).where(a, b * 2),
    "a norm of rows": lambda a, b: (a * a).sum(1).sqrt(),
    "a softmax of scores": lambda a, b: (a * 0.5).softmax(-1).log(),
}


def computed(array: np.ndarray) -> Tensor:
    return Tensor(array.copy()).realize()


def is_delayed(t: Tensor) -> bool:
    return t._is_delayed and t._call is not None


def known(call: Callable[..., Any], *operands: Tensor) -> None:
    """Make the call often enough that its program is known."""
    for _ in range(20):
        call(*operands).realize()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an item for each run of a call without nodes."""
    found: list[int] = []
    launch = delayed.launched

    def counted(*args: Any) -> Any:
        found.append(1)
        return launch(*args)

    monkeypatch.setattr(delayed, "launched", counted)
    return found


@pytest.mark.parametrize("name", CALLS)
def test_a_known_call_runs_without_nodes_and_has_the_same_bits(name: str, runs: list[int]) -> None:
    call = CALLS[name]
    a, b = computed(A), computed(B)
    first = call(a, b).numpy()
    known(call, a, b)
    runs.clear()
    other = call(computed(A), computed(B)).realize()
    assert runs or name in ("zero", "negative zero", "a product", "a softmax of scores"), name
    assert first.tobytes() == other.numpy().tobytes()
    assert (other.shape, other.dtype) == (first.shape, call(a, b).dtype)
    np.testing.assert_array_equal(call(computed(B), computed(A)).numpy(), _fresh(call, B, A))


def _fresh(call: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    """The value of a call whose nodes are built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delayed, "under_way", [1])
        result = call(*map(computed, arrays))
        assert not result._is_delayed
    return result.numpy()


@pytest.mark.parametrize("name", CALLS)
def test_the_nodes_of_a_delayed_call_are_those_of_its_method(name: str) -> None:
    call = CALLS[name]
    a, b = computed(A), computed(B)
    known(call, a, b)
    late = call(a, b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delayed, "under_way", [1])
        built = call(a, b)
    assert late.uop is built.uop
    assert not late._is_delayed
    assert type(late) is Tensor


def test_shape_and_dtype_build_no_nodes() -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: a < b, a, b)
    t = a < b
    assert (t.shape, t.dtype, t.ndim, t.device) == ((2, 3), monolect.dtypes.bool, 2, a.device)
    known(lambda a: a.sum(1), a)
    t = a.sum(1)
    assert t.shape == (2,)
    assert t.dtype is monolect.dtypes.float32
    assert is_delayed(t)
    assert isinstance(t, Tensor)


def test_a_delayed_value_is_that_of_the_call() -> None:
    """Not of the time of its use: writes to the operands do not change it."""
    a, b = computed(A), computed(B)
    known(lambda a, b: a + b, a, b)
    t, u = a + b, (a + b).exp()
    assert is_delayed(t)
    a += 1
    b[0] = 7.0
    np.testing.assert_array_equal(t.numpy(), A + B)
    np.testing.assert_allclose(u.numpy(), np.exp(A + B), rtol=1e-6)
    np.testing.assert_array_equal((a + b).numpy(), a.numpy() + b.numpy())


def test_a_call_names_the_users_line() -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: (a + b).exp(), a, b)
    line = sys._getframe().f_lineno + 1
    t = a + b
    u = t.exp()
    assert is_delayed(t)
    assert t.uop.origin == (__file__, line, "__add__")
    assert u.uop.origin == (__file__, line + 1, "exp")


def test_a_call_inside_of_the_package_names_the_users_line() -> None:
    a, b = computed(A), computed(B)
    for _ in range(6):
        t = monolect.add(a, b)
    assert t.uop.origin[:2] == (__file__, sys._getframe().f_lineno - 1)


def test_numbers_that_are_equal_and_differ_have_records_of_their_own() -> None:
    a = computed(A)
    ints = Tensor(np.array([1, 2], np.int32)).realize()
    for _ in range(6):
        assert np.signbit((a * 0.0).numpy()).tolist() == np.signbit(A * np.float32(0.0)).tolist()
        assert np.signbit((a * -0.0).numpy()).tolist() == np.signbit(A * np.float32(-0.0)).tolist()
        assert (ints + 1).dtype is monolect.dtypes.int32
        assert (ints + 1.0).dtype is monolect.dtypes.float32
        assert (ints + True).dtype is monolect.dtypes.int32
        assert a.sum(1).shape == (2,)
        with pytest.raises(AxisError):
            a.sum(True)


def test_a_leaf_gets_its_gradient() -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: (a * b).sum(), a, b)
    before = a * b  # computed while `a` was no leaf
    a.requires_grad_()
    loss = (a * b).sum() + before.sum()
    loss.realize()
    loss.backward()
    assert a.grad is not None
    np.testing.assert_array_equal(a.grad.numpy(), B)
    a.requires_grad = False
    for _ in range(4):
        assert not (a * b).realize().requires_grad
    with monolect.no_grad():
        known(lambda a, b: (a * b).sum(), a, b)


def test_values_of_leaves_keep_their_graphs() -> None:
    w, x = computed(A), computed(B)
    known(lambda w, x: w * x, w, x)
    w.requires_grad_()
    for _ in range(4):
        y = (w * x).realize()
        z = (y * x).realize()
        z.sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 4 * B * B, rtol=1e-6)


def test_without_gradients_calls_on_leaves_are_delayed() -> None:
    w, x = computed(A), computed(B)
    w.requires_grad_()
    with monolect.no_grad():
        known(lambda w, x: w * x, w, x)
        t = w * x
        assert is_delayed(t)
    u = t * 3  # the node is built outside of the block, and has no gradient
    assert u.uop.op == "MUL"
    (u.sum() + (w * x).sum()).backward()
    assert w.grad is not None
    np.testing.assert_array_equal(w.grad.numpy(), B)


def test_transforms_see_their_arguments() -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: (a * b).sum(), a, b)
    c = a * b
    assert is_delayed(c)
    for _ in range(3):
        g = monolect.grad(lambda x: (x * b).sum() + (c * 2).sum())(a)
        np.testing.assert_array_equal(g.numpy(), B)


def test_captured_steps_take_and_return_delayed_values() -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: a + b, a, b)
    step = monolect.jit(lambda x: (x + b) * 2)
    for k in range(4):
        x = a + b
        y = step(x)
        np.testing.assert_allclose((y + x).numpy(), (A + 2 * B) * 2 + A + B, rtol=1e-6, err_msg=str(k))


def test_results_of_steps_that_only_delayed_calls_read_keep_their_memory() -> None:
    a = computed(A)
    step = monolect.jit(lambda x: x * 2)
    for _ in range(6):
        known(lambda a: a + 1, a)
        step(a)
    for k in range(4):
        t = step(a + k) + 1
        u = t * 3
        step(computed(B)), step(computed(B))
        np.testing.assert_array_equal(u.numpy(), ((A + k) * 2 + 1) * 3)
        np.testing.assert_array_equal(t.numpy(), (A + k) * 2 + 1)


def test_a_state_that_a_step_updates_is_read_as_it_was() -> None:
    a, b = computed(A), computed(B)
    state = computed(A)
    known(lambda a, b: a + b, a, b)

    @monolect.jit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state.sum()

    total = A.copy()
    for _ in range(6):
        t = state + b
        step(b)
        np.testing.assert_array_equal(t.numpy(), total + B)
        total += B
        np.testing.assert_array_equal(state.numpy(), total)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_value_that_is_held_is_stored_when_it_is_needed_again(is_known: bool, runs: list[int]) -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: (a + b).exp(), a, b)
    if is_known:
        known(lambda a, b: (a + b) * 3, a, b)
    t = a + b
    u = t.exp()
    runs.clear()
    u.realize()
    assert len(runs) == 1 and is_delayed(t), "the first program that needs it computes it as a part"
    v = (t * 3).realize()
    assert t.uop.op == "BUFFER"
    for _ in range(2):
        np.testing.assert_array_equal((t - b).numpy(), A + B - B)
    np.testing.assert_array_equal(t.numpy(), A + B)
    np.testing.assert_array_equal(v.numpy(), (A + B) * 3)
    np.testing.assert_allclose(u.numpy(), np.exp(A + B), rtol=1e-6)


def test_a_large_value_that_is_held_stays_a_part_of_the_programs_that_need_it() -> None:
    n = 1024
    x = Tensor(np.arange(n, dtype=np.float32)).realize()
    for _ in range(6):
        outer = x[:, None] * x
        total, least = outer.sum(), outer.min()
        assert total.item() == pytest.approx((n * (n - 1) / 2) ** 2, rel=1e-5) and least.item() == 0.0


@pytest.mark.parametrize("n", [4, 1024])
def test_loops_over_named_values(n: int, runs: list[int]) -> None:
    """All values have names, some are needed by two others or are written to: as in a program that a person writes."""
    w = computed(np.linspace(-1, 1, n * 3, dtype=np.float32).reshape(n, 3))
    theirs = torch.from_numpy(w.numpy().copy())
    for k in range(12):
        x = np.random.default_rng(k).standard_normal((8, n)).astype(np.float32)
        found = []
        for data, weights in ((Tensor(x).realize(), w), (torch.from_numpy(x), theirs)):
            scores = data @ weights
            hidden = scores.relu()
            centred = hidden - hidden.mean(0)
            spread = (centred * centred).mean(0).sqrt() + 0.5
            z = centred / spread
            total = z.abs().sum()
            most = z.amax()
            if k % 3 == 2:
                hidden[0] = 1.0
            found.append([total.item(), most.item(), float(hidden.sum()), scores.sum().item(), float(z[0, 0])])
        np.testing.assert_allclose(found[0], found[1], rtol=2e-4, atol=2e-4)
    assert len(runs) > 12


@pytest.mark.parametrize("error", [AllocationError("no memory"), KeyboardInterrupt()])
def test_a_failure_leaves_the_call_delayed(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: a - b, a, b)
    t = a - b

    def fails(n_bytes: int) -> Any:
        raise error

    one = t._call.record.one()
    alloc = one.alloc
    monkeypatch.setattr(one, "alloc", fails)
    with pytest.raises(type(error)):
        t.realize()
    assert is_delayed(t)
    monkeypatch.setattr(one, "alloc", alloc)
    np.testing.assert_array_equal(t.numpy(), A - B)


def test_calls_whose_nodes_are_needed_each_time_are_not_delayed() -> None:
    a, b = computed(A), computed(B)
    for _ in range(delayed.MAX_BUILT + 4):
        t = a + b
        assert t.reshape(6).uop.op == "RESHAPE"
    assert not (a + b)._is_delayed


def test_records_hold_no_memory() -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: (a - b).abs(), a, b)
    memory = [weakref.ref(t.uop) for t in (a, b)]
    del a, b
    gc.collect()
    assert [r() for r in memory] == [None, None]


def test_a_program_that_is_dropped_is_planned_again(runs: list[int]) -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: a.maximum(b), a, b)
    execute.plans.clear()
    gc.collect()
    runs.clear()
    np.testing.assert_array_equal(a.maximum(b).numpy(), np.maximum(A, B))
    assert not runs
    known(lambda a, b: a.maximum(b), a, b)
    assert runs


def test_settings_that_choose_other_kernels_are_followed(runs: list[int]) -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: a.minimum(b), a, b)
    t = a.minimum(b)
    runs.clear()
    with monolect.Context(NOOPT=1):
        np.testing.assert_array_equal(t.numpy(), np.minimum(A, B))
        np.testing.assert_array_equal(a.minimum(b).numpy(), np.minimum(A, B))
    assert not runs


def test_programs_are_known_after_a_block_that_changes_settings(runs: list[int]) -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: a.maximum(b), a, b)
    runs.clear()
    for _ in range(3):
        with monolect.Context(TRAINING=1):
            pass
        a.maximum(b).realize()
    assert len(runs) == 3


def test_the_kind_of_a_delayed_tensor_is_that_of_others() -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: a.minimum(b * 7), a, b)
    t = a.minimum(b * 7)
    assert is_delayed(t)
    assert t._kind is Tensor


def test_autocast_of_the_call_holds_for_its_nodes() -> None:
    a, b = computed(A), computed(B.T)
    for _ in range(4):
        t = a @ b
        with monolect.Context(AUTOCAST="bfloat16"):
            u = a @ b
            assert (t.dtype, u.dtype) == (monolect.dtypes.float32, monolect.dtypes.bfloat16)
            assert t.uop.dtype is monolect.dtypes.float32
        assert u.uop.dtype is monolect.dtypes.bfloat16


def test_equal_operands_in_other_positions_have_records_of_their_own() -> None:
    arrays = [A, B, A * B]
    tensors = [computed(x) for x in arrays]
    for _ in range(4):
        for i, j, k, m in itertools.product(range(3), repeat=4):
            (x, y, z, w), (a, b, c, d) = ([v[n] for n in (i, j, k, m)] for v in (arrays, tensors))
            np.testing.assert_array_equal(((a + b) * c - d).numpy(), (x + y) * z - w)
            np.testing.assert_array_equal((a < b).where(c, d).numpy(), np.where(x < y, z, w))
            np.testing.assert_array_equal(((a - b) * (c - d)).numpy(), (x - y) * (z - w))


def test_a_chain_without_an_end_is_built() -> None:
    a = computed(A)
    for _ in range(3):
        x = a
        for _ in range(200):
            x = x + 1
        np.testing.assert_allclose(x.numpy(), A + 200, rtol=1e-5)


def test_threads_use_one_delayed_tensor() -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: a * b, a, b)
    reads = (lambda t: t.numpy(), lambda t: (t + 0.0).numpy(), lambda t: t.uop)
    for _ in range(30):
        t = a * b
        with ThreadPoolExecutor(len(reads)) as pool:
            found = [*pool.map(lambda read, t=t: read(t), reads)]
        assert len(found) == 3
        np.testing.assert_array_equal(t.numpy(), A * B)
        np.testing.assert_array_equal(found[1], A * B)


def test_a_write_by_another_thread_while_a_call_runs_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: a.minimum(b * 3), a, b)
    t = a.minimum(b * 3)
    launch = delayed.launched

    def slow(*args: Any) -> Any:
        value = launch(*args)
        thread = threading.Thread(target=lambda: t.add_(1.0))
        thread.start()
        thread.join()
        return value

    with monkeypatch.context() as patch:
        patch.setattr(delayed, "launched", slow)
        t.realize()
    np.testing.assert_array_equal(t.numpy(), np.minimum(A, B * 3) + 1)


def test_reading_a_tensor_does_not_undo_a_write_by_another_thread() -> None:
    a, b = computed(A), computed(B)
    known(lambda a, b: a.maximum(b * 3), a, b)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            for _ in range(300):
                t = a.maximum(b * 3)
                reads = pool.submit(lambda t=t: t.realize()), pool.submit(lambda t=t: t.ndim)
                t.add_(1.0)
                for read in reads:
                    read.result()
                np.testing.assert_array_equal(t.numpy(), np.maximum(A, B * 3) + 1)
    finally:
        sys.setswitchinterval(interval)


def test_a_call_that_no_python_code_made_has_a_value() -> None:
    a = computed(A)
    known(lambda a: a.exp2(), a)
    found: list[Any] = []
    done = threading.Event()
    # the iterator calls the method, and the thread has no other frame
    calls = map(lambda t: (found.append(t), done.set()), map(Tensor.exp2, [a]))
    _thread.start_new_thread(calls.__next__, ())
    assert done.wait(10)
    assert is_delayed(found[0])
    assert found[0].uop.origin == ("", 0, "exp2")


NUMBERED: dict[str, Callable[[Any, Any, float], Any]] = {
    "a factor": lambda a, b, v: a * v,
    "a factor first": lambda a, b, v: v * a,
    "a term": lambda a, b, v: a + v,
    "a difference": lambda a, b, v: v - a,
    "a divisor": lambda a, b, v: a / v,
    "a dividend": lambda a, b, v: v / a,
    "a comparison": lambda a, b, v: (a < v).where(a, b),
    "a maximum": lambda a, b, v: a.maximum(v),
    "a choice": lambda a, b, v: (a < b).where(a, v),
    "a chain": lambda a, b, v: ((a * v + b) * 0.5 - a).sum(),
    "two uses": lambda a, b, v: a * v + b * v,
    "two numbers": lambda a, b, v: a * v + b * (v + 0.25),
    "a value used twice": lambda a, b, v: (lambda c: c * c + c)(a * v),
    "a mean": lambda a, b, v: (a * v).mean(),
    "no number in the method's name": lambda a, b, v: (a - v).abs().amax(1),
}


@pytest.mark.parametrize("name", NUMBERED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_float_that_differs_is_an_input(name: str, dtype: str, runs: list[int]) -> None:
    """Values have the bits that the method gives: of numbers that differ, come again, are constants of the formula or
    equal another number, and of those that are no inputs.
    """
    call = NUMBERED[name]
    a, b = computed(A.astype(dtype)), computed(B.astype(dtype))
    seldom = [0.0, -0.0, 1.0, -1.0, 2.0, np.inf, np.nan, 1e30, 1e-42, 1.4426950408889634, 0.6931471805599453, 1e300]
    numbers = [k * 0.25 - 1.125 for k in range(12)] + [0.5, 1 / 6, 0.25, 0.5] + seldom + [0.375, 0.625, 0.5, 3.0]
    for number in numbers * 2:
        with pytest.MonkeyPatch.context() as patch:
            found = call(a, b, number).numpy()
            patch.setattr(delayed, "under_way", [1])
            assert found.tobytes() == call(a, b, number).numpy().tobytes(), number
    assert len(runs) > len(numbers) // 2


def test_a_float_that_is_no_longer_an_input_alone_is_no_constant_of_the_program() -> None:
    """One of two numbers stays for some runs, and sometimes equals the other one."""
    a, b = computed(A), computed(B)
    for i, j in [(1, 9), (2, 9), (3, 9), (4, 9), (9, 9), (5, 9), (9, 9), (6, 8), (7, 7), (8, 5), (9, 9), (3, 4)] * 3:
        x, y = i * 0.125, j * 0.125
        found = (a * x + b * y).numpy()
        np.testing.assert_array_equal(found, A * np.float32(x) + B * np.float32(y))


def test_a_number_that_is_an_input_is_the_number_in_nodes_that_are_built() -> None:
    a = computed(A)
    for k in range(12):
        x = a * (k + 0.25)
        view = x[0]  # builds nodes
        assert view.tolist() == (A[0] * np.float32(k + 0.25)).tolist()
        w = Tensor(A, requires_grad=True)
        _ = (w * (a * (k + 0.5))).sum().backward()
        assert w.grad.numpy().tobytes() == (A * np.float32(k + 0.5)).tobytes()


def test_calls_whose_programs_have_no_inputs_are_given_up(runs: list[int]) -> None:
    """Of bfloat16 values numbers stay constants."""
    a = computed(A).bfloat16().realize()
    for k in range(delayed.MAX_BUILT + 20):
        found = (a * (0.5 + k / 64)).float().numpy()
        want = a.float().numpy() * np.float32(Tensor(0.5 + k / 64).bfloat16().float().item())
        np.testing.assert_allclose(found, want, rtol=1e-2)
    assert not runs


# ---- rows ------------------------------------------------------------------------------------------------------------
ROWS: dict[str, Callable[[Any, int], Any]] = {
    "a row": lambda a, i: a[i] * 2.5,
    "a row from the end": lambda a, i: a[-1 - i] + 1,
    "two rows": lambda a, i: a[i] - a[1 - i],
    "an element": lambda a, i: a[i, 2] * 3,
    "an element of a row": lambda a, i: a[i][1] + a[0],
    "rows of an iteration": lambda a, i: [*a][i] * a[i],
    "a total of a row": lambda a, i: a[i].sum(),
    "some rows": lambda a, i: a[i : i + 1].square(),
}


@pytest.mark.parametrize("name", ROWS)
def test_another_row_is_no_other_program(name: str, runs: list[int]) -> None:
    f, a, want = ROWS[name], Tensor(A).clone().realize(), torch.from_numpy(A)
    for i in (0, 1, 0, 1):
        _ = f(a, i).realize()
    before = len(runs)
    for i in (1, 0, 1):
        np.testing.assert_array_equal(f(a, i).numpy(), f(want, i).numpy())
    assert len(runs) == before + 3, "each ran a known program, without nodes"


def test_a_row_is_read_as_it_was_at_the_call(runs: list[int]) -> None:
    def f(a: Tensor, i: int) -> Tensor:
        return a[i] * 2.5

    a = Tensor(A).clone().realize()
    known(lambda x: f(x, 0), a)
    row, early, late = a[1], f(a, 1), f(a, 0)
    a[1] = 7.0
    a += 1
    np.testing.assert_array_equal(early.numpy(), A[1] * 2.5)
    np.testing.assert_array_equal(late.numpy(), A[0] * 2.5)
    np.testing.assert_array_equal((row * 2.5).numpy(), np.full(3, 20.0, np.float32))  # the row itself follows
    assert runs


def test_a_row_of_a_leaf_passes_its_gradient() -> None:
    a = Tensor(A).clone().realize()
    for i in (0, 1, 0, 1):
        _ = (a[i] * 2.5).sum().realize()
    a.requires_grad = True
    (a[1] * 2.5).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [[0.0] * 3, [2.5] * 3]


def test_a_row_that_is_out_of_range_or_of_no_memory_on_the_host() -> None:
    a = Tensor(A).clone().realize()
    for i in (2, -3):
        with pytest.raises(monolect.IndexRangeError):
            _ = a[i]
    b = Tensor(A, device="python").realize()
    for i in (0, 1, 0, 1, 0):
        np.testing.assert_array_equal((b[i] * 2.5).numpy(), A[i] * 2.5)
    parts = Tensor(A).shard(("cpu:0", "cpu:1"), axis=0).realize()
    for i in (0, 1, 0, 1, 0):
        np.testing.assert_array_equal((parts[i] * 2.5).numpy(), A[i] * 2.5)


def test_rows_of_a_mapped_file_are_no_inputs(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(bytes(range(12)))
    rows = Tensor.from_file(str(tmp_path / "rows")).reshape(3, 4)
    for i in (0, 1, 2, 0, 1):
        assert (rows[i] + 1).tolist() == [4 * i + k + 1 for k in range(4)]
        assert (rows[i, 1] + 1).item() == 4 * i + 2
        assert (rows[i:][0] + 1).tolist() == [4 * i + k + 1 for k in range(4)]
