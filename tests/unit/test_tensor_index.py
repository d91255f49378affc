"""Reading and writing parts: against PyTorch and NumPy, with gradients, and the errors of bad indices."""

from typing import Any

import numpy as np
import pytest
import torch

from monolect.base.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from monolect.base.settings import Context
from monolect.capture.jit import jit
from monolect.tensor.tensor import Tensor

RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 5, 6)).astype(np.float32)
I1, I2 = np.array([3, 0, -1, 3]), np.array([[1, -2, 0, 4], [0, 1, 2, 3]])
S = slice

BASIC: list[Any] = [
    1,
    -1,
    (1, 2),
    (1, 2, 3),
    S(1, 3),
    S(None, None, 2),
    S(3, 0, -1),
    S(None, None, -2),
    (S(None), -1),
    (Ellipsis, 0),
    (0, Ellipsis, 1),
    (S(None), S(1, 5, 3)),
    (None, 1),
    (S(None), None, 2, None),
    (S(2, 2),),
    (S(10, 20),),
    (S(-3, -1), S(-2, None)),
    (),
    Ellipsis,
    (S(None, None, 3), S(4, 1, -2), S(1, None, 4)),
]
ADVANCED: list[Any] = [
    (I1,),
    (S(None), I1),
    (S(None), S(None), I1),
    (I1, I1),
    (I1, I2),
    (I1, S(None), I2),
    (S(None), I1, I2),
    (I2 % 4, S(1, 3)),
    (S(None, None, 2), I2),
    (None, I1),
    (I1, None, I2),
    (S(0, 2), I1, S(None, None, 2)),
    (np.array(2),),
    (S(None), np.array(-1)),
    ([0, 2],),
    (S(None), [1, -1, 1]),
    (range(3), [0, 4, 2]),
    (S(None), range(4, 0, -2)),
    range(-1, 1),
    (I1, 2, I2),
    (1, S(None), I1),
]


def as_key(key: Any, make: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(as_key(k, make) for k in key)
    return make(key) if isinstance(key, np.ndarray) else key


@pytest.mark.sweep
@pytest.mark.parametrize("key", BASIC, ids=str)
def test_basic_reading(key: Any, both: Any) -> None:
    got = Tensor(X)[key]
    np.testing.assert_array_equal(got.numpy(), X[key])
    if "-2" not in str(key) and "-1, )" not in str(key) and X[key].size and "-1)" not in str(key):
        both(lambda t: t[key] * 2, X)


@pytest.mark.sweep
@pytest.mark.parametrize("key", ADVANCED, ids=lambda k: str(k).replace("\n", ""))
def test_integer_tensors(key: Any, both: Any) -> None:
    def f(t: Any) -> Any:
        return t[as_key(key, Tensor if isinstance(t, Tensor) else torch.tensor)]

    both(f, X)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "key", [k for k in BASIC if "-" not in str(k)] + ADVANCED, ids=lambda k: str(k).replace("\n", "")
)
def test_writing(key: Any) -> None:
    ours, theirs = Tensor(X.copy()), torch.tensor(X)
    tk = as_key(key, torch.tensor)
    part = theirs[tk].shape
    value = RNG.normal(size=part).astype(np.float32)
    if any(isinstance(k, np.ndarray | list) for k in (key if isinstance(key, tuple) else (key,))):
        value = np.full(part, 2.5, np.float32)  # an index may be named twice, and any of its values may win
    before = ours * 1
    ours[as_key(key, Tensor)] = Tensor(value)
    theirs[tk] = torch.tensor(value)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    np.testing.assert_array_equal(before.numpy(), X)


def test_writing_broadcasts_and_casts() -> None:
    x = Tensor.zeros(2, 3)
    x[0] = 5
    x[:, 1] = Tensor([1, 2])
    x[1, 2:] += 7
    assert x.tolist() == [[5, 1, 5], [0, 2, 7]]
    i = Tensor([1, 2, 3])
    i[1] = 9.7
    assert i.tolist() == [1, 9, 3] and i.dtype.name == "int64"


def test_leading_axes_of_one_element_count_for_none_in_what_is_written() -> None:
    for key, shape in ((0, (1,)), (0, (1, 5)), ((1, 2), (1, 1)), (slice(2, 4), (1, 1, 2, 1)), ([1, 3], (1, 2, 5))):
        ours, theirs = Tensor.zeros(4, 5), torch.zeros(4, 5)
        value = RNG.integers(1, 9, shape).astype(np.float32)
        ours[key], theirs[key] = Tensor(value), torch.tensor(value)
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    with pytest.raises(ShapeError):
        ours[0] = Tensor.ones(2, 5)


def test_a_failed_write_changes_nothing() -> None:
    x = Tensor([1.0, 2.0, 3.0])
    uop = x.uop
    for bad in (lambda: x.__setitem__(slice(0, 2), Tensor([1.0, 2.0, 3.0])), lambda: x.__setitem__(7, 1.0)):
        with pytest.raises((ShapeError, IndexRangeError)):
            bad()
        assert x.uop is uop


def test_equal_tensors_are_written_apart() -> None:
    a, b = Tensor.zeros(3), Tensor.zeros(3)
    a[0], b[1] = 1, 2
    a.realize(b)
    assert a.tolist() == [1, 0, 0] and b.tolist() == [0, 2, 0]


def test_overlapping_parts_read_before_they_are_written() -> None:
    x = Tensor.arange(6).contiguous()
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3, 4]


def test_bool_masks() -> None:
    x = Tensor([1.0, -2.0, 3.0])
    assert x[x > 0].tolist() == [1, 3]
    x[x < 0] = 0.0
    assert x.tolist() == [1, 0, 3]
    assert x[[True, False, True]].tolist() == [1, 3]
    m = Tensor([[1.0, 2.0], [3.0, 4.0]])
    m[Tensor([True, False])] = Tensor([8.0, 9.0])
    assert m.tolist() == [[8, 9], [3, 4]]


def test_an_empty_index_gives_an_empty_result() -> None:
    assert Tensor(X)[np.array([], np.int64)].shape == (0, 5, 6)


def test_write_carries_gradients(both: Any) -> None:
    def f(a: Any, b: Any) -> Any:
        y = a * 1
        y[1:3] = b[:2]
        y[0] = y[0] * 3
        return y * y

    both(f, X[0], X[0, :4, :].copy())


GATHERS: list[Any] = [(0, (2, 5, 6)), (1, (4, 7, 6)), (2, (4, 5, 3)), (-1, (1, 2, 9))]


@pytest.mark.parametrize(("dim", "shape"), GATHERS)
def test_gather(dim: int, shape: tuple, both: Any) -> None:
    i = RNG.integers(0, X.shape[dim], shape)
    both(lambda t: t.gather(dim, Tensor(i) if isinstance(t, Tensor) else torch.tensor(i)), X)


@pytest.mark.sweep
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_scatter(dim: int, both: Any) -> None:
    shape = (3, 4, 5)
    i = np.argsort(RNG.random(X.shape), axis=dim)[:3, :4, :5]  # distinct along the axis
    src = RNG.normal(size=shape).astype(np.float32)

    def pick(t: Any) -> Any:
        return Tensor(i) if isinstance(t, Tensor) else torch.tensor(i)

    both(lambda t, s: t.scatter(dim, pick(t), s), X, src)
    j = RNG.integers(0, 4, shape)

    def repeated(t: Any) -> Any:
        return Tensor(j) if isinstance(t, Tensor) else torch.tensor(j)

    both(lambda t, s: t.scatter_add(dim, repeated(t), s), X, src)
    both(lambda t: t.scatter(dim, pick(t), 1.5), X)


def test_slices_by_index(both: Any) -> None:
    i, src = np.array([2, 0, 2]), RNG.normal(size=(4, 3, 6)).astype(np.float32)

    def at(t: Any, v: Any = i) -> Any:
        return Tensor(v) if isinstance(t, Tensor) else torch.tensor(v)

    both(lambda t: t.index_select(1, at(t)), X)
    both(lambda t, s: t.index_add(1, at(t), s, alpha=2), X, src)
    both(lambda t, s: t.index_copy(1, at(t, np.array([4, 0, 1])), s), X, src)
    both(lambda t: t.index_fill(1, at(t), 3.0), X)
    both(lambda t: t.take(at(t)), X)
    both(lambda t: t.take_along_dim(at(t, np.full((1, 5, 6), 2)), 0), X)
    both(
        lambda t, s: t.put(at(t, np.array([1, 7])), s.flatten()[:2], True),
        X,
        src,
        g=lambda t, s: t.put(at(t, np.array([1, 7])), s.flatten()[:2], True),
    )


def test_embedding(both: Any) -> None:
    i = np.array([[0, 2], [2, 2]])
    both(
        lambda w: Tensor(i).embedding(w),
        X[:, :, 0].copy(),
        g=lambda w: torch.nn.functional.embedding(torch.tensor(i), w),
    )


def test_an_index_outside_its_axis_stays_in_its_row(both: Any) -> None:
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    far = Tensor([[0, 5], [-1, 2]])
    with Context(CHECK_BOUNDS=0):
        assert x.gather(1, far).tolist() == [[1, 3], [4, 6]]
        assert x.scatter_add(1, far, Tensor([[10.0, 20.0], [30.0, 40.0]])).tolist() == [[11, 2, 3], [4, 5, 46]]
        source = Tensor([[10.0, 20.0], [30.0, 40.0]], requires_grad=True)
        y = x.scatter(1, far, source)
        assert y.tolist() == [[10, 2, 3], [4, 5, 40]]
        (y * Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).sum().backward()
        assert x.grad.tolist() == [[0, 2, 3], [4, 5, 0]] and source.grad.tolist() == [[1, 0], [0, 6]]


def test_scatter_leaves_its_source_alone() -> None:
    x = Tensor([1.0, 2.0])
    y = x.scatter_add(0, Tensor([0]), Tensor([5.0]))
    assert y.tolist() == [6, 2] and x.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda x: x[4], IndexRangeError, "-4..3"),
        (lambda x: x[0, 5], IndexRangeError, "axis 1"),
        (lambda x: x[0, 0, 0, 0], IndexRangeError, "too many"),
        (lambda x: x[1.0], ArgumentError, "1.0"),
        (lambda x: x["a"], ArgumentError, "'a'"),
        (lambda x: x[True], ArgumentError, "bool"),
        (lambda x: x[..., ...], ArgumentError, "..."),
        (lambda x: x[::0], ArgumentError, "step"),
        (lambda x: x[[0, 9]], IndexRangeError, "9"),
        (lambda x: x[Tensor([0, 9])], IndexRangeError, "9"),
        (lambda x: x[Tensor([0.5])], DTypeError, "float32"),
        (lambda x: x[Tensor([0, 1]), Tensor([0, 1, 2])], ShapeError, "(2,)"),
        (lambda x: x.gather(0, Tensor([0])), ShapeError, "gather"),
        (lambda x: x.scatter(0, Tensor([[[0]]]), Tensor([[[1]]])), DTypeError, "int64"),
        (lambda x: x.scatter(0, Tensor([[[0]]]), 1.0, reduce="max"), ArgumentError, "max"),
    ],
)
def test_errors(f: Any, error: type, text: str) -> None:
    with Context(CHECK_BOUNDS=1), pytest.raises(error) as info:
        f(Tensor(X))
    assert text in str(info.value) and __file__ in str(info.value)


def test_out_of_range_reads_the_nearest_without_checks() -> None:
    with Context(CHECK_BOUNDS=0):
        assert Tensor([1.0, 2.0, 3.0])[Tensor([5, 1, -9])].tolist() == [3, 2, 1]


RUNNING = {
    "cumsum": lambda x, dim: x.cumsum(dim),
    "cumprod": lambda x, dim: x.cumprod(dim),
    "cummax": lambda x, dim: x.cummax(dim)[0],
}
WRITES = ["scatter", "scatter_add", "index_add", "index_copy"]


@pytest.mark.sweep
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("name", RUNNING)
def test_what_runs_along_an_axis_is_written_by_place(name: str, dim: int, write: str) -> None:
    """The loop along the axis is inside those in each iteration of which it starts anew, wherever places are."""
    shape, along = (4, 5, 6), 1
    places = np.argsort(RNG.random(shape), along) if write.startswith("scatter") else RNG.permutation(shape[along])
    zeros = np.zeros(shape, np.float32)
    source = RUNNING[name](Tensor(X).realize(), dim)
    got = getattr(Tensor(zeros).realize(), write)(along, Tensor(places).realize(), source)
    want = getattr(torch.from_numpy(zeros), write)(
        along, torch.from_numpy(places), RUNNING[name](torch.from_numpy(X), dim)
    )
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gradient_of_a_gather_beside_a_running_sum(dim: int) -> None:
    places = RNG.integers(0, 5, (4, 3, 6))
    ours, theirs = Tensor(X).realize().requires_grad_(), torch.from_numpy(X.copy()).requires_grad_()
    (ours.gather(1, Tensor(places)) * Tensor(X[:, :3].copy()).cumsum(dim)).sum().backward()
    (theirs.gather(1, torch.from_numpy(places)) * torch.from_numpy(X[:, :3].copy()).cumsum(dim)).sum().backward()
    assert ours.grad is not None
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad, rtol=1e-5, atol=1e-6)


def test_the_only_element_of_an_axis_is_read_in_any_loop() -> None:
    """What data says of an axis of one element is no place: a value that is read there and stored as well is stored
    outside of the loop over the data.
    """
    x = Tensor(np.array([3.0], np.float32)).detach().requires_grad_()
    weights = np.arange(33, dtype=np.float32) % 5 - 2
    loss = (x.gather(0, Tensor(np.zeros(33, np.int64))) * Tensor(weights)).sum()
    loss.backward()
    assert x.grad is not None
    with Context(VERIFY=1):
        np.testing.assert_array_equal(x.grad.numpy(), [weights.sum()])
        assert loss.item() == 3 * weights.sum() and x.tolist() == [3.0]


def test_gradient_of_joined_parts_read_at_places_that_are_read_at_places(both: Any) -> None:
    """What is added where data says is read there too, at places from data, out of one of two parts: the outer place is
    known before the inner one, in which it stands.
    """
    places, rows, columns = RNG.integers(0, 4, (4, 5, 12)), RNG.integers(0, 4, 2), RNG.integers(0, 5, 2)

    def f(x: Any) -> Any:
        kind, index = (Tensor, Tensor) if isinstance(x, Tensor) else (torch, torch.tensor)
        return kind.cat([x, x * 2], 2).gather(0, index(places))[index(rows), index(columns)].sigmoid()

    with Context(VERIFY=1):
        both(f, X)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_an_index_that_is_kept_in_memory_keeps_its_bounds(dtype: str) -> None:
    """A remainder needs no clamp; the memory it is kept in, for two readers, does not say that it is one."""
    at = np.array([7, 250, 3, 18], dtype)
    table = Tensor(np.arange(9, dtype=np.float32)).realize()
    y = table[Tensor(at).realize() % 9]
    with Context(CHECK_BOUNDS=1, VERIFY=1):
        twice, once = y.repeat(2), y * 2
        twice.realize(once)
    np.testing.assert_array_equal(twice.numpy(), np.tile(at % 9, 2))
    np.testing.assert_array_equal(once.numpy(), at % 9 * 2.0)


def test_a_kept_index_of_many_places_has_bounds_beyond_64_bits() -> None:
    """Three indices of any 64-bit value make one, whose formula may be larger than any number of the machine."""
    x = np.arange(256, dtype=np.uint8).reshape(2, 1, 128)
    rows, columns, places = np.array(-1), np.full((3, 1), -1), np.array([-17], np.int32)
    step = jit(lambda t: t[rows, Tensor(columns), Tensor(places).realize() * 2 // 2])
    for _ in range(2):
        np.testing.assert_array_equal(step(Tensor(x)).numpy(), x[rows, columns, places])


NOTHING = {
    "no column of a row": (0, S(1, 1)),
    "no column of every second row": (S(None, None, 2), S(2, 1)),
    "no place of a row": (0, np.zeros(0, np.int64)),
    "places of no row": (S(1, 1), np.array([0, 1])),
}


@pytest.mark.parametrize("what", NOTHING)
def test_a_part_without_elements_is_written_nowhere(what: str) -> None:
    """A loop that never runs has no first element either."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    key = tuple(Tensor(k) if isinstance(k, np.ndarray) else k for k in NOTHING[what])

    def f(t: Tensor) -> Tensor:
        t[key] = 100.0
        t[2, :2] = 7.0
        return t + 0

    wanted = x.copy()
    wanted[2, :2] = 7
    np.testing.assert_array_equal(f(Tensor(x.copy())).numpy(), wanted)
    step = jit(f)
    for _ in range(2):
        np.testing.assert_array_equal(step(Tensor(x.copy())).numpy(), wanted)


@pytest.mark.parametrize(
    "read",
    [
        lambda x, at: x[at],
        lambda x, at: x.take(at),
        lambda x, at: x.gather(0, at.reshape(2, 1)),
        lambda x, at: x.index_select(0, at),
        lambda x, at: at.embedding(x),
        lambda x, at: x.index_fill(0, at, 1.0),
        lambda x, at: x.put(at, Tensor.zeros(2)),
    ],
)
def test_no_element_of_an_empty_axis_is_named(read):
    with pytest.raises(IndexRangeError, match="an index into an empty axis"):
        read(Tensor(np.zeros((0, 1), np.float32)), Tensor(np.array([0, 0])))


def test_no_index_names_no_element_of_an_empty_axis():
    none = Tensor(np.zeros(0, np.int64))
    assert Tensor.zeros(0, 3)[none].shape == (0, 3) and Tensor.zeros(0).take(none).shape == (0,)


def test_gather_of_an_empty_tensor_has_the_shape_of_its_index():
    assert Tensor.zeros(1, 0).gather(0, Tensor(np.zeros((0, 0), np.int64))).numpy().shape == (0, 0)


def test_an_index_without_axes_names_one_slice():
    x, at = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor(1)
    assert x.index_select(0, at).tolist() == [[3.0, 4.0]]
    assert x.index_fill(1, at, 0.0).tolist() == [[1.0, 0.0], [3.0, 0.0]]
    with pytest.raises(ShapeError, match="the index must be a vector"):
        x.index_select(0, Tensor([[1]]))


def test_take_along_dim_repeats_an_index_for_no_rows():
    x, at = Tensor.zeros(0, 2), Tensor(np.array([[1]]))
    assert x.take_along_dim(at, 1).numpy().shape == (0, 1)


def test_the_value_of_a_fill_has_a_gradient() -> None:
    x, i = RNG.normal(size=(3, 4)).astype(np.float32), np.array([0, 2, 0])
    results = []
    for kind, index in ((Tensor, Tensor), (torch.tensor, torch.tensor)):
        t, w = kind(x, requires_grad=True), kind(2.0, requires_grad=True)
        (t.index_fill(1, index(i), w) ** 2).sum().backward()
        results.append((np.array(t.grad.tolist()), w.grad.item()))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-6)
    assert results[0][1] == results[1][1]
    with pytest.raises(ShapeError, match="index_fill: the value"):
        Tensor(x).index_fill(1, Tensor(i), Tensor([1.0]))


def test_a_tensor_of_no_axes_is_an_index_as_an_int_is() -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    keys: list[Any] = [
        lambda t: (t(1), slice(None), t([0, 1])),
        lambda t: (t([0, 1]), slice(None), t(1)),
        lambda t: (slice(None), t(1), t([0, 1])),
        lambda t: (t(1), None, t([0, 1])),
        lambda t: (t(1), slice(None), t([[0, 1]])),
        lambda t: (t(1), t(0), t([[0, 1]])),
        lambda t: (t(1), slice(None), t(2)),
        lambda t: (None, t(1), t([0, 1]), None, t(2)),
    ]
    for key in keys:
        want, x = torch.tensor(array)[key(torch.tensor)], Tensor(array.copy())
        assert x[key(Tensor)].shape == tuple(want.shape)
        np.testing.assert_array_equal(x[key(Tensor)].numpy(), want)
        written = torch.tensor(array)
        written[key(torch.tensor)] = value = -torch.arange(1.0, 1 + want.numel(), dtype=want.dtype).reshape(want.shape)
        x[key(Tensor)] = Tensor(value.numpy())
        np.testing.assert_array_equal(x.numpy(), written)
