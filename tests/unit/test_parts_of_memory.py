"""Views as arguments of jitted steps: parts of memory where they are one, and never seen to be written to."""

import gc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect import ArgumentError, JitError, Tensor, dtypes, jit
from monolect.backend.common.host.memory import alloc, part
from monolect.runtime.buffer import ALIGN_BYTES
from monolect.tensor.view import in_memory
from tests.strategies import COMPILED

ROWS, COLUMNS = 12, 4  # of float32: each row starts at a multiple of ALIGN_BYTES


def table(seed: int = 0, rows: int = ROWS, columns: int = COLUMNS) -> Tensor:
    values = np.random.default_rng(seed).integers(-8, 8, (rows, columns)).astype(np.float32)
    return (Tensor(values) + 0).realize()  # memory of its own


def address(t: Tensor) -> int:
    return in_memory(t)._uop.storage.address


VIEWS = {  # and the element at which it starts, if it is a part
    "rows": (lambda t: t[2:5], 8),
    "a row": (lambda t: t[3], 12),
    "rows of rows": (lambda t: t[2:9][1:3], 12),
    "rows in another shape": (lambda t: t[2:6].reshape(2, 8), 8),
    "a part of what was reshaped": (lambda t: t.reshape(3, 16)[1], 16),
    "a part of a row": (lambda t: t.reshape(ROWS // 2, 8)[1, 4:7], 12),
    "all of it": (lambda t: t.reshape(-1), 0),
    "detached": (lambda t: t[1:3].detach(), 4),
    "an element": (lambda t: t[1, 0], 4),
    "not aligned": (lambda t: t.reshape(-1)[1:9], None),
    "columns": (lambda t: t[:, 1:3], None),
    "a column": (lambda t: t[:, 0], None),
    "rows without their ends": (lambda t: t[0:3, 0:3], None),
    "transposed": (lambda t: t.T, None),
    "every other row": (lambda t: t[::2], None),
    "from the end": (lambda t: t[::-1], None),
    "repeated": (lambda t: t[0:1].expand(3, 4), None),
    "none of it": (lambda t: t[3:3], None),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_that_is_a_row_of_aligned_elements_is_taken_where_it_is(name: str) -> None:
    view, start = VIEWS[name]
    f, base = jit(lambda x: x * 2), table()
    want = view(base).numpy() * 2
    for _ in range(4):
        v = view(base)
        assert np.array_equal(f(v).numpy(), want) and np.array_equal(v.numpy(), want / 2)
        inside = address(base) <= address(v) < address(base) + 4 * ROWS * COLUMNS
        assert inside == (start is not None)
        assert start is None or address(v) == address(base) + 4 * start


def test_only_parts_as_aligned_as_arrays_are_taken() -> None:
    f = jit(lambda x: x + 1)
    for dtype in (dtypes.uint8, dtypes.float16, dtypes.float64):
        base = (Tensor(np.arange(64)).cast(dtype) + 0).realize()
        for at in range(0, 40):
            v = base[at : at + 9]
            assert f(v).tolist() == [*range(at + 1, at + 10)]
            shared = address(v) == address(base) + at * dtype.itemsize
            assert shared == (at * dtype.itemsize % ALIGN_BYTES == 0)


def test_parts_of_arrays_and_writes_to_them() -> None:
    f, array = jit(lambda x: x + 1), np.zeros((4, 4), np.float32)
    base = Tensor(array)
    for k in range(4):
        v = base[1:3]
        array[1] = k
        assert f(v).numpy()[0].tolist() == [k + 1.0] * 4
    held = v.numpy()
    assert np.shares_memory(held, array)
    array.flags.writeable = False
    v = Tensor(array)[1:3]
    f(v)
    assert not v.numpy().flags.writeable
    assert held.flags.writeable


def test_what_is_computed_once_sees_writes_through_a_part() -> None:
    w, f = table(), jit(lambda x: x * 2)
    g = jit(lambda x: (w * 3).sum() + x)
    zero = Tensor(0.0).realize()
    for _ in range(3):
        assert g(zero).item() == 3 * w.numpy().sum()
    v = w[2:4]
    f(v)
    array = v.numpy()
    for k in range(3):
        array[0, 0] = k
        assert g(zero).item() == 3 * w.numpy().sum() and w.numpy()[2, 0] == k
    del v, array
    assert g(zero).item() == 3 * w.numpy().sum()


def test_overlapping_arguments_and_their_base() -> None:
    f, base = jit(lambda a, b, c: (a @ b.T, a + 1, c * 2)), table()
    x = base.numpy().copy()
    for k in range(6):
        outs = f(base[k : k + 4], base[k + 1 : k + 5], base)
        want = x[k : k + 4] @ x[k + 1 : k + 5].T, x[k : k + 4] + 1, x * 2
        assert all(np.array_equal(o.numpy(), w) for o, w in zip(outs, want, strict=True))
        assert np.array_equal(base.numpy(), x)


def test_state_is_written_while_a_part_of_it_lives() -> None:
    state, look = table(), jit(lambda x: x + 0)

    @jit
    def step() -> None:
        state.assign(state + 1)

    for _ in range(3):
        step()
    at = address(state)
    step()
    assert address(state) == at  # in place
    part_ = state[2:4]
    before = look(part_).numpy().copy()
    step()
    assert np.array_equal(part_.numpy(), before + 1) and np.array_equal(state[2:4].numpy(), before + 1)
    assert address(state) == at
    kept, at = Tensor(part_), address(state)
    step()
    assert address(state) != at and np.array_equal(kept.numpy(), before + 1)
    assert np.array_equal(part_.numpy(), before + 2)


def test_a_part_of_the_state_that_a_step_assigns_is_refused() -> None:
    """The argument would be a snapshot, where plain Python would see the assignment."""
    state = table()

    @jit
    def step(x: Tensor) -> Tensor:
        state.assign(state * 2 + x.sum())
        return x * 1

    want = state.numpy().copy()
    for k in range(6):
        with pytest.raises(JitError, match="memory that an argument shares"):
            step(state[k : k + 3])
        assert np.array_equal(state.numpy(), want)
        step(state[k : k + 3].clone())
        want = want * 2 + want[k : k + 3].sum()
        assert np.array_equal(state.numpy(), want)
        want = np.fmod(want, 64)
        state.assign(Tensor(want)).realize()


def test_a_part_that_is_assigned_changes_its_base() -> None:
    base = table()
    want = base.numpy().copy()

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        x[0] = x[1] + y[0]
        return x.sum()

    for k in range(5):
        x, y = base[k : k + 3], base[k + 1 : k + 2]
        with pytest.raises(JitError, match="memory that an argument shares"):
            step(x, y)
        assert np.array_equal(base.numpy(), want)
        for _ in range(2):
            step(x, y.clone())
            want[k] = want[k + 1] + want[k + 1]
            assert np.array_equal(x.numpy(), want[k : k + 3]) and np.array_equal(y.numpy(), want[k + 1 : k + 2])
            assert np.array_equal(base.numpy(), want)


@pytest.mark.parametrize("which", ["view", "base", "reshaped"])
def test_donated_memory_that_others_hold_is_not_taken(which: str) -> None:
    base = table(rows=64, columns=64)
    step = jit(lambda x, y: (x * 2, y.sum()), donate=0)
    for _ in range(4):
        base = base.clone().realize()
        want, part_ = base.numpy().copy(), Tensor(base[8:16])
        given_ = {"view": base[0:16], "base": base, "reshaped": base.reshape(32, 128)}[which]
        shape, n = given_.shape, given_.shape[0] if which == "view" else 64
        out, _ = step(given_, part_)
        assert np.array_equal(out.numpy(), want[:n].reshape(shape) * 2)
        assert np.array_equal(part_.numpy(), want[8:16])
        if which == "base":
            with pytest.raises(JitError):
                given_.numpy()
        else:  # a view is not given up
            assert np.array_equal(given_.numpy().reshape(-1), want[:n].reshape(-1))
        if which == "base":
            base = Tensor(want)
        assert np.array_equal(base.numpy(), want)


def test_a_part_outlives_its_base_and_results_are_fresh() -> None:
    f = jit(lambda x: (x, x + 1))
    kept = []
    for k in range(8):
        base = table(k, 1024, 64)
        want = base.numpy()[8:12].copy()
        kept.append((*f(base[8:12]), want))
        del base
        gc.collect()
        table(99, 1024, 64)
    for same, more, want in kept:
        assert np.array_equal(same.numpy(), want) and np.array_equal(more.numpy(), want + 1)


def test_a_saved_step_takes_parts(tmp_path: Path) -> None:
    base, w = table(), table(1)
    f = jit(lambda x, y: x @ w.T + y.sum())
    f(base[0:4], base[2:4])
    f.save(tmp_path / "f.step")
    g, x, weights = jit.load(tmp_path / "f.step"), base.numpy(), w.numpy()
    for k in range(8):
        a, b = base[k : k + 4], base[k + 1 : k + 3]
        assert np.array_equal(g(a, b).numpy(), x[k : k + 4] @ weights.T + x[k + 1 : k + 3].sum())
        assert address(a) == address(base) + 16 * k


def test_a_part_lies_within_the_whole() -> None:
    whole = alloc(64)
    assert part(whole, 16, 48).address == whole.address + 16 and part(whole, 16, 48).is_lent()
    for at, n_bytes in ((-1, 4), (0, 65), (32, 33), (8, -1)):
        with pytest.raises(ArgumentError):
            part(whole, at, n_bytes)


ROW = st.integers(0, ROWS - 1)
ACTIONS = ("call", "keep", "assign", "store", "update", "scatter", "donate", "reshape", "drop", "write", "hold")


@COMPILED
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), ROW, ROW, st.integers(1, 4)), min_size=4, max_size=24))
def test_steps_of_views_beside_what_the_plain_functions_give(actions: list) -> None:
    """Whatever happens to bases and parts between calls, views show what those of NumPy show, results stay."""
    state = table()
    now = state.numpy().copy()
    kept: list[tuple[object, np.ndarray]] = []
    arrays: list[np.ndarray] = []

    def update(x: Tensor, y: Tensor) -> Tensor:
        state.assign(state * -1 + x[0] - y[0])
        return x[0] + y[0]

    def scatter(x: Tensor, y: Tensor) -> Tensor:
        x[0] = y[0] + 1
        return x + y[0]

    add = jit(lambda x, y: (x[0] + y[0], x, x * 2))
    update_, scatter_, donated = jit(update), jit(scatter), jit(lambda x, y: (x + 1, y * 2), donate=0)
    for action, i, k, n in actions:
        i, k = min(i, ROWS - n), min(k, ROWS - n)
        x, y = state[i : i + n], state[k : k + n]
        part_x, part_y = now[i : i + n], now[k : k + n]
        old_x, old_y = part_x.copy(), part_y.copy()
        if action in ("call", "keep"):
            first, same, twice = add(x, y)
            kept += [(first, old_x[0] + old_y[0]), (twice, old_x * 2)]
            assert same is x
            kept += [(x, part_x), (y, part_y)] if action == "keep" else []
        elif action == "assign":
            kept += [(x, part_x), (Tensor(x), old_x)]
            now[:] = np.random.default_rng(i).integers(-8, 8, now.shape)
            state.assign(Tensor(now.copy()) + 0)
        elif action == "store":
            kept.append((y, part_y))
            state[i] = y[0] + 1
            now[i] = old_y[0] + 1
        elif action == "update":
            kept += [(update_(x.clone(), y.clone()), old_x[0] + old_y[0]), (x, part_x)][: 1 + n % 2]
            now[:] = now * -1 + old_x[0] - old_y[0]
        elif action == "scatter":
            out = scatter_(x, y.clone())
            old_x[0] = part_x[0] = old_y[0] + 1
            kept += [(out, old_x + old_y[0]), (x, part_x), (y, part_y)]
        elif action == "donate":
            out, twice = donated(x, y)
            kept += [(out, old_x + 1), (twice, old_y * 2), (y, part_y)]
        elif action == "reshape":
            whole = state.reshape(-1, 2 * COLUMNS)
            out, twice = donated(whole, y)
            kept += [(out, now.reshape(whole_shape := (ROWS // 2, 2 * COLUMNS)) + 1), (twice, old_y * 2)]
            assert out.shape == whole_shape
        elif action == "drop":
            del kept[: len(kept) // 2]
        elif action == "write" and not kept and not arrays:  # arrays of the state are written only while nobody looks
            del x, y
            array = state.numpy()
            array[i] = now[i] = n
        elif action == "hold":
            arrays.append(state.numpy())
        for t, want in kept:
            assert np.array_equal(t.numpy(), want)  # type: ignore[attr-defined]
        assert np.array_equal(state.numpy(), now)
