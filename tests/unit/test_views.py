"""Views: what shares memory with its base, what is a copy, and what a write to either is refused for."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

from monolect import (
    ArgumentError,
    AxisError,
    DTypeError,
    GradientError,
    JitError,
    ShapeError,
    Tensor,
    dtypes,
    function,
    jit,
    nn,
    no_grad,
)
from monolect.func import vmap
from monolect.tensor.view import is_row_major, reshaped, root_of, row_major, strides


def table() -> Tensor:
    return Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).clone().realize()


WRITES = {
    "an element of a row": (lambda t: t[1].__setitem__(2, 50.0), (1, 2)),
    "transposed": (lambda t: t.T.__setitem__((2, 1), 50.0), (1, 2)),
    "rows": (lambda t: t[1:2].assign(t[1:2] * 0 + 50), (1, slice(None))),
    "diagonal": (lambda t: t.diagonal().fill_(50), ([0, 1, 2], [0, 1, 2])),
    "windows": (lambda t: t.unfold(1, 2, 2)[:, 1].fill_(50), (slice(None), slice(2, 4))),
    "every other": (lambda t: t[::2, ::3].fill_(50), (slice(None, None, 2), slice(None, None, 3))),
    "reshaped": (lambda t: t.view(2, 6)[1].fill_(50), (np.array([1, 1, 2, 2, 2, 2]), np.array([2, 3, 0, 1, 2, 3]))),
    "detached": (lambda t: t.detach().__setitem__(0, 50.0), (0, slice(None))),
    "contiguous": (lambda t: t.contiguous().__setitem__(0, 50.0), (0, slice(None))),
    "a part of parts": (lambda t: t.split(2, 1)[1].unbind(0)[2].copy_(Tensor(50.0)), (2, slice(2, 4))),
}


@pytest.mark.sweep
@pytest.mark.parametrize("realized", [True, False])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_through_a_view_changes_the_base(name: str, realized: bool) -> None:
    write, key = WRITES[name]
    t = table() if realized else table() + 0
    other, before = t[:, :], t + 0
    write(t)
    want = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(before.numpy(), want)
    want[key] = 50
    np.testing.assert_array_equal(t.numpy(), want)
    np.testing.assert_array_equal(other.numpy(), want)


def test_augmented_assignment_keeps_the_tensor() -> None:
    t = table()
    v = same = t[1:3]
    v += 1
    v *= 2
    v -= Tensor(1.0)
    assert v is same and t.tolist()[1] == [9.0, 11.0, 13.0, 15.0]
    n = m = Tensor([7, 8])
    n //= 2
    n %= 3
    n **= 2
    n |= 4
    n ^= 1
    n &= 5
    n <<= 2
    n >>= 1
    assert n is m and m.tolist() == [10, 8]


def test_what_is_not_written() -> None:
    n, b = Tensor([1, 2]), Tensor([True])
    with pytest.raises(DTypeError, match="another dtype"):
        n += 0.5
    with pytest.raises(DTypeError, match="another dtype"):
        n /= 2
    with pytest.raises(DTypeError, match="another dtype"):
        b += 1
    with pytest.raises(ShapeError):
        n += Tensor([[1, 2], [3, 4]])
    w = Tensor([1.0], requires_grad=True)
    with pytest.raises(GradientError, match=r"assign\(value\)"):
        w -= 1.0
    with pytest.raises(ArgumentError, match="repeats elements"):
        Tensor([[1.0], [2.0]]).expand(2, 3).zero_()
    with pytest.raises(ArgumentError, match="repeats elements"):
        Tensor([1.0, 2.0, 3.0]).unfold(0, 2, 1).zero_()
    assert n.tolist() == [1, 2] and b.tolist() == [True] and w.tolist() == [1.0]


def test_strides_tell_views_from_copies() -> None:
    t = table()
    assert strides(t) == (4, 1) and strides(t.T) == (1, 4) and strides(t[1, ::2]) == (2,)
    assert strides(t.unfold(1, 2, 1)) == (4, 1, 1) and strides(t[:, None]) == (4, 0, 1)
    assert row_major((2, 0, 3)) == (3, 3, 1)
    assert reshaped((3, 4), (4, 1), (2, 6)) == (6, 1) and reshaped((4, 3), (1, 4), (12,)) is None
    assert reshaped((3, 2, 2), (1, 6, 3), (3, 4)) == (1, 3) and reshaped((2, 3), (4, 1), (6,)) is None
    assert is_row_major(t[1:]) and not is_row_major(t[:, 1:]) and is_row_major(t.T.T)
    t.T.reshape(-1)[0] = 50.0
    assert t[0, 0].item() == 0.0
    t.reshape(-1)[0] = 50.0
    assert t[0, 0].item() == 50.0


def test_what_nobody_can_reach_is_not_kept() -> None:
    x = table() + 1
    ref, v = weakref.ref(x), x.reshape(-1)[3]
    del x
    assert v.item() == 4.0
    gc.collect()
    assert ref() is None and v.item() == 4.0
    x = table() + 1
    ref, v = weakref.ref(x), x.reshape(-1)[3]
    assert v.item() == 4.0 and ref() is x
    x += 1
    assert v.item() == 5.0


def test_a_leaf_that_is_a_view_shares_memory() -> None:
    base = Tensor([1.0, 2.0]).realize()
    w = base.detach().requires_grad_()
    optimizer = nn.optim.SGD([w], lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        (w * base * 2).sum().backward()
        optimizer.step()
    assert base.tolist() == w.tolist() == [0.0, 0.0]
    base.assign(Tensor([3.0, 4.0]))
    assert w.tolist() == [3.0, 4.0]


WHOLE = {
    "detach": Tensor.detach,
    "reshape": lambda t: t.reshape(2, 2),
    "T": lambda t: t.reshape(2, 2).T,
    "flipped": lambda t: t[::-1],
    "copy": copy.copy,
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_view_of_all_elements_is_computed_with_its_base(name: str) -> None:
    array = np.ones(4)
    base = Tensor(array) * 2
    held, dropped = WHOLE[name](base), WHOLE[name](Tensor(array) * 3)
    held.realize(dropped)
    array[:] = 9.0
    assert base.tolist() == [2.0] * 4
    assert held.flatten().tolist() == [2.0] * 4 and dropped.flatten().tolist() == [3.0] * 4


def test_a_part_is_computed_alone() -> None:
    base = Tensor(np.ones((4, 4))) * 2
    part, repeated = base[:2], base[:1].expand(4, 4)
    part.realize(repeated)
    assert base.uop.op == "MUL" and part.tolist() == [[2.0] * 4] * 2 and repeated.tolist() == [[2.0] * 4] * 4


def test_copies_of_views() -> None:
    t = table()
    both = copy.deepcopy([t, t[0]])
    both[1].zero_()
    assert both[0][0].tolist() == [0.0] * 4 and t[0].tolist() == [0.0, 1.0, 2.0, 3.0]
    both[0].fill_(3)
    assert both[1].tolist() == [3.0] * 4


@pytest.mark.parametrize("wrap", [jit, function])
def test_steps_write_to_views_that_are_arguments(wrap) -> None:
    t = table()
    step = wrap(lambda x: (x.assign(x + 1), x.sum())[1])
    assert [step(t[k % 2]).item() for k in range(4)] == [10.0, 26.0, 14.0, 30.0]
    assert t.tolist() == [[2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0], [8.0, 9.0, 10.0, 11.0]]
    both = wrap(lambda x, y: (x.assign(x + 1), y.sum())[1])
    for _ in range(2):
        with pytest.raises(JitError, match="memory that an argument shares"):
            both(t, t[0])
        assert t[0].tolist() == [2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("alias", [lambda w: Tensor(w), lambda w: w.flip(0).flip(0), lambda w: w.clone()])
def test_a_step_that_assigns_reads_a_snapshot_of_its_state(alias) -> None:
    w = Tensor(np.arange(4, dtype=np.float32)).clone().realize()
    kept, want = alias(w), np.arange(4.0)

    @jit
    def step(z: Tensor) -> Tensor:
        w.assign(w * 2 - kept.sum())
        return w.sum() + z

    for _ in range(4):
        want = want * 2 - 6
        assert step(Tensor([1.0])).item() == want.sum() + 1
    assert kept.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("expression", [lambda w: w.sum(), lambda w: w.reshape(2, 2).sum()])
def test_an_expression_of_state_that_somebody_else_holds_too(expression) -> None:
    """The captured step took the value that was held for its own expression."""
    w = Tensor(np.arange(4, dtype=np.float32)).clone().realize()
    held = expression(w)

    @jit
    def step(z: Tensor) -> Tensor:
        before = expression(w)
        w.assign(w + 1)
        return w.sum() - before + z

    assert [step(Tensor([float(k)])).item() for k in range(4)] == [4.0, 5.0, 6.0, 7.0]
    assert held.item() == 6.0


def test_roots() -> None:
    t = table()
    assert root_of(t[1:].T[0].reshape(2, 1)) is t and root_of(t) is t and root_of(t.flip(0)) is not t
    assert t[1].dtype is dtypes.float32 and isinstance(t[0], Tensor) and "shape=(4,)" in repr(t[0] + 1)


@pytest.mark.parametrize("write", [lambda t: t.fill_(3), lambda t: t.zero_().copy_(3), lambda t: t[1:].fill_(3)])
def test_a_tensor_that_is_filled_stays_on_its_device(write) -> None:
    t, other = (Tensor([1.0, 2.0], device="python") for _ in range(2))
    write(t)
    assert t.device == "python" and (t + other).tolist()[1] == 5.0
    assert t.realize().device == "python"


@pytest.mark.parametrize("wrap", [lambda f: f, jit, function])
def test_a_cast_to_the_same_dtype_is_the_tensor_itself(wrap) -> None:
    state = Tensor([0.0, 0.0])

    def step(x: Tensor) -> Tensor:
        y = x.float()
        y += 1
        state.type_as(x).copy_(state + y)
        (+state)[0] = 9.0
        return y

    x, f = Tensor([1.0, 2.0]), wrap(step)
    for k in range(3):
        assert f(x) is x and x.tolist() == [2.0 + k, 3.0 + k]
    assert state.tolist() == [9.0, 12.0]


@pytest.mark.parametrize("wrap", [lambda f: f, jit, function])
@pytest.mark.parametrize("reads", [False, True])
def test_a_reshape_is_a_copy_whenever_the_view_was_computed(wrap, reads) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    step = wrap(lambda x: (x * 2).T)
    for _ in range(3):
        y = step(x)
        if reads:
            y.realize()
            assert jit(lambda y: y + 1)(y).tolist() == [[3.0, 7.0], [5.0, 9.0]]
        y.reshape(-1)[1] = 50.0
        assert y.tolist() == [[2.0, 6.0], [4.0, 8.0]]
        y[0, 1] = 7.0
        assert y.tolist() == [[2.0, 7.0], [4.0, 8.0]]


def test_a_tensor_made_by_the_class_of_a_view_is_no_view() -> None:
    """`type(view)` is a class of its own."""
    for v in (Tensor([[1.0, 2.0], [3.0, 4.0]]).T, Tensor([1.0, 2.0])[1:]):
        new = type(v)([5.0, 6.0])
        assert new.tolist() == [5.0, 6.0] and not new._is_view


def test_a_view_that_is_computed_when_it_is_read_is_computed_again_after_a_step() -> None:
    array = np.zeros((6, 4))
    base = Tensor(array)
    part = base[::2].diagonal()

    def step(x: Tensor, scale: int) -> Tensor:
        part[0] += x
        return x * scale

    run = jit(step)
    for k, scale in enumerate((1, 2, 2, 2, 1)):
        run(Tensor(1.0, dtype="float64"), scale)
        assert part.tolist() == [k + 1.0, 0.0, 0.0] and base[0, 0].item() == k + 1.0
    shared = Tensor(array)[::2].diagonal()
    assert shared.tolist() == [0.0, 0.0, 0.0]
    array[0, 0] = 7.0
    assert shared.tolist() == [7.0, 0.0, 0.0]


def test_a_write_of_no_elements_changes_nothing_also_where_elements_share_memory() -> None:
    t = Tensor(np.ones((3, 1), np.float32)).expand(3, 4)
    t[:, 4:] = 5.0
    t[:, :0].add_(1)
    assert t.tolist() == [[1.0] * 4] * 3
    with pytest.raises(ShapeError):
        t[:, 4:] = np.ones((3, 2), np.float32)
    with pytest.raises(ArgumentError, match="a view that repeats elements"):
        t[:, 3:] = 5.0


# ---- axes that change in place --------------------------------------------------------------------------------------
def test_views_keep_their_shape_where_the_axes_of_the_base_change() -> None:
    t = table()
    row, flat = t[0], t.reshape(12)
    assert t.t_() is t and t.shape == (4, 3) and row.shape == (4,)
    column = t[:, 0]  # the same elements as `row`
    t.unsqueeze_(1)
    row += 10
    t[3, 0, 2] = -1.0
    np.testing.assert_array_equal(column.numpy(), [10, 11, 12, 13])
    want = np.arange(12, dtype=np.float32).reshape(3, 4)
    want[0] += 10
    want[2, 3] = -1
    np.testing.assert_array_equal(t.numpy(), want.T[:, None])
    np.testing.assert_array_equal(flat.numpy(), want.reshape(12))
    np.testing.assert_array_equal(t.squeeze_().transpose_(0, 1).numpy(), want)


def test_an_element_keeps_its_number_where_the_axes_of_the_base_change() -> None:
    t = table()
    read, written = t[1, 2], t[2, 1]
    t.t_()
    assert read.item() == 6
    written.fill_(50)
    assert t[1, 2].item() == 50


def test_repeated_changes_of_axes_are_one_step_to_the_base() -> None:
    t = table()
    for _ in range(2000):
        t.t_().unsqueeze_(0).squeeze_(0)
    assert t.tolist() == table().tolist() and root_of(t) is t._view.parent


def test_gradients_flow_through_axes_that_changed_in_place() -> None:
    x = table()
    x.requires_grad = True
    y = x * x
    row = y[1]
    y.t_()
    (y[:, 0] * 3 + row).sum().backward()
    want = 2 * np.arange(12, dtype=np.float32).reshape(3, 4) * np.array([[3], [1], [0]])
    np.testing.assert_array_equal(x.grad.numpy(), want)


@pytest.mark.parametrize("shape", [(3, 4), (3, 3)])  # of a square, the shape does not tell
def test_steps_follow_axes_that_change_in_place(shape: tuple[int, int]) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    read, state, argument = (Tensor(values).clone().realize() for _ in range(3))
    first = state[0]

    @jit
    def reads(x: Tensor) -> Tensor:
        return (read * x).sum(0)

    @jit
    def writes(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state.sum(0)

    @jit
    def doubles(x: Tensor) -> Tensor:
        x.copy_(x * 2)
        return x.sum(0)

    @function
    def traced(x: Tensor) -> Tensor:
        return (read - x).sum(0)

    at, doubled, one = values, values, Tensor(1.0)
    for call in range(9):
        if call in (3, 6):
            read.t_(), state.t_(), argument.t_()
        way = (lambda a: a.T) if 3 <= call < 6 else (lambda a: a)
        at, doubled = at + 1, doubled * 2
        np.testing.assert_array_equal(reads(one).numpy(), way(values).sum(0))
        np.testing.assert_array_equal(traced(one).numpy(), way(values - 1).sum(0))
        np.testing.assert_array_equal(writes(one).numpy(), way(at).sum(0))
        np.testing.assert_array_equal(doubles(argument).numpy(), way(doubled).sum(0))
        np.testing.assert_array_equal(first.numpy(), at[0])


def test_steps_follow_a_gradient_whose_axes_change_in_place() -> None:
    p, weights = Tensor(np.zeros((2, 2), np.float32), requires_grad=True), np.array([[1, 2], [3, 4]], np.float32)

    @jit
    def step(x: Tensor) -> None:
        (p * x).sum().backward()

    want = np.zeros((2, 2), np.float32)
    for call in range(9):
        step(Tensor(weights))
        want = want + weights
        if call in (1, 3, 4, 6):
            p.grad.t_()
            want = want.T
        np.testing.assert_array_equal(p.grad.numpy(), want)


def test_a_step_changes_the_axes_of_its_own_tensors() -> None:
    @jit
    def step(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, constant = x * 2, Tensor([1.0, 2.0])
        row = y.t_()[0]
        y += 1
        return y.unsqueeze_(0), row, constant.unsqueeze_(1)

    for k in range(4):
        y, row, constant = step(table() + k)
        want = (table().numpy() + k).T * 2 + 1
        np.testing.assert_array_equal(y.numpy(), want[None])
        np.testing.assert_array_equal(row.numpy(), want[0])
        assert constant.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("wrap", [jit, function, lambda f: vmap(f, in_dims=0)])
def test_axes_of_a_tensor_from_outside_do_not_change_in_a_step(wrap) -> None:
    memory, pending = table(), table() + 1
    for make in (lambda x: x, lambda x: memory, lambda x: pending):

        def f(x: Tensor) -> Tensor:
            make(x).t_()  # noqa: B023
            return x * 1

        given = Tensor(np.ones((2, 3, 4), np.float32)) if wrap not in (jit, function) else table()
        if wrap not in (jit, function) and make(given) is pending:
            continue  # vmap runs its function each time
        shape = given.shape
        with pytest.raises(JitError, match="t_ in a captured or traced function"):
            wrap(f)(given)
        assert (memory.shape, pending.shape, given.shape) == ((3, 4), (3, 4), shape)


def test_a_leaf_keeps_its_shape() -> None:
    layer = nn.Linear(2, 3)
    with pytest.raises(GradientError, match="t_ changes the shape of a leaf"):
        layer.weight.t_()
    with no_grad(), pytest.raises(GradientError, match="unsqueeze_ changes the shape of a leaf"):
        layer.weight.unsqueeze_(0)
    layer.weight.requires_grad = False
    with pytest.raises(GradientError, match="changes the shape of a leaf"):
        layer.weight.transpose_(0, 1)
    with pytest.raises(ShapeError, match="t_\\(\\) is for matrices"):
        Tensor.zeros(1, 2, 3).t_()
    with pytest.raises(AxisError):
        Tensor.zeros(1, 2).squeeze_(2)


def test_copies_and_files_of_axes_that_changed_in_place() -> None:
    for way in (copy.deepcopy, lambda names: pickle.loads(pickle.dumps(names))):
        t = table()
        row = t[0]
        t.t_()
        new, part = way((t, row))
        part += 1
        assert new.shape == (4, 3) and new.tolist() == (t.numpy() + [1, 0, 0]).tolist()
        assert t.tolist() == table().T.tolist()
