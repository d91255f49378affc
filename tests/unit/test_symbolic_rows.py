"""Order, windows, pools and convolution over axes of symbolic size, as for each size by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect import ArgumentError, ShapeError, Tensor, Variable, dtypes, jit
from monolect.runtime import profile

N, M = Variable("n", 3, 9), Variable("m", 1, 4)
FLOATS = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, 1.0, -2.0, 3.5]

ORDERS = {
    "sort": lambda x: [*x.sort(1)],
    "descending": lambda x: [*x.sort(1, descending=True)],
    "argsort of columns": lambda x: [x.argsort(0)],
    "topk": lambda x: [*x.topk(3, 1)],
    "smallest": lambda x: [*x.topk(2, 1, largest=False)],
    "kthvalue": lambda x: [*x.kthvalue(2, 1)],
    "median": lambda x: [*x.median(1), x.median()],
    "quantile": lambda x: [x.quantile(0.3, 1), x.quantile([0.5, 0.9])] if x.dtype.is_float else [],
}


def agree(f, data, sizes):
    """`f` of the symbolic part of `data` is what it is of the part of that size."""
    i, j = sizes
    wanted = [t.numpy() for t in f(Tensor(data[:j, :i].copy()))]
    with N.bind(i), M.bind(j):
        for got, want in zip(f(Tensor(data)[:M, :N]), wanted, strict=True):
            np.testing.assert_array_equal(got.contiguous().numpy(), want)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32, dtypes.uint8, dtypes.bool])
def test_order_along_an_axis_of_symbolic_size(name, dtype):
    rng = np.random.default_rng(1)
    if dtype.is_float:
        data = rng.choice(FLOATS, (4, 9)).astype(np.float32)
    else:
        data = rng.choice([dtype.min, dtype.max, 0, 1, 1], (4, 9)).astype(dtype.numpy)
    for sizes in ((3, 1), (6, 4), (9, 3)):
        agree(ORDERS[name], data, sizes)


@given(
    st.lists(st.sampled_from(FLOATS), min_size=36, max_size=36),
    st.tuples(st.integers(3, 9), st.integers(1, 4)),
    st.sampled_from(sorted(ORDERS)),
)
def test_any_numbers_in_order_at_any_size(values, sizes, name):
    agree(ORDERS[name], np.array(values, np.float32).reshape(4, 9), sizes)


def test_gradients_go_to_the_elements_that_were_taken():
    data = np.array([3, 1, 2, 9, 8, 7, 0, -1, 5], np.float32)
    weight = np.arange(1, 10, dtype=np.float32)
    for n in (3, 5, 9):
        x = Tensor(data, requires_grad=True)
        with N.bind(n):
            (x[:N].sort().values * Tensor(weight)[:N]).sum().backward()
            found = x.grad.numpy()
        wanted = np.zeros(9, np.float32)
        wanted[np.argsort(data[:n])] = weight[:n]
        np.testing.assert_array_equal(found, wanted)


def test_k_is_within_the_least_size():
    x = Tensor(np.zeros((2, 9), np.float32))[:, :N]
    with pytest.raises(ArgumentError, match="k is outside the axis") as error:
        x.topk(4)
    assert error.value.expected == "0..3, the least of 3..9 elements"
    with pytest.raises(ArgumentError, match="kthvalue"):
        x.kthvalue(4)


def test_one_capture_sorts_every_size():
    data = np.random.default_rng(2).standard_normal(9).astype(np.float32)
    x, step = Tensor(data).realize(), jit(lambda x: x[:N].sort().values)
    for _ in range(2):
        for n in (3, 7, 9):
            with N.bind(n), profile.Recorder() as kernels:
                np.testing.assert_array_equal(step(x).numpy(), np.sort(data[:n]))
    assert len(step.captures) == 1 and kernels


H, W = Variable("h", 4, 9), Variable("w", 5, 8)
KERNEL = np.random.default_rng(3).standard_normal((4, 3, 3, 2)).astype(np.float32)
WINDOWS = {
    "max_pool2d": lambda x: x.max_pool2d(3, 2, 1),
    "max_pool2d apart": lambda x: x.max_pool2d(2),
    "max_pool1d": lambda x: x.max_pool1d(3, 1, 1, 2),
    "avg_pool2d": lambda x: x.avg_pool2d(3, 2, 1),
    "avg_pool2d of what is there": lambda x: x.avg_pool2d((2, 3), 1, (1, 1), count_include_pad=False),
    "conv2d": lambda x: x.conv2d(Tensor(KERNEL), Tensor([1.0, 2.0, 3.0, 4.0]), padding=1),
    "conv2d in steps": lambda x: x.conv2d(Tensor(KERNEL), stride=2, padding=(1, 0), dilation=(1, 2)),
    "unfold": lambda x: x.unfold(2, 3, 2),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_along_axes_of_symbolic_size(name):
    data = np.random.default_rng(4).standard_normal((2, 3, 9, 8)).astype(np.float32)
    for h, w in ((4, 5), (5, 6), (8, 7), (9, 8)):
        wanted = WINDOWS[name](Tensor(data[:, :, :h, :w].copy())).numpy()
        with H.bind(h), W.bind(w):
            got = WINDOWS[name](Tensor(data)[:, :, :H, :W]).numpy()
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)


def test_gradients_of_a_convolution_and_a_pool_of_symbolic_size():
    data = np.random.default_rng(5).standard_normal((2, 3, 9, 8)).astype(np.float32)

    def gradients(part):
        x, k = (
            Tensor(data if part is H else data[:, :, :part].copy(), requires_grad=True),
            Tensor(KERNEL, requires_grad=True),
        )
        y = x[:, :, :part].conv2d(k, padding=1).max_pool2d(2)
        (y * y).sum().backward()
        return x.grad.numpy(), k.grad.numpy()

    for h in (4, 7, 9):
        wanted = gradients(h)
        with H.bind(h):
            of_x, of_k = gradients(H)
        np.testing.assert_allclose(of_x[:, :, :h], wanted[0], rtol=1e-4, atol=1e-4)
        assert not of_x[:, :, h:].any()
        np.testing.assert_allclose(of_k, wanted[1], rtol=1e-4, atol=1e-3)


def test_windows_that_do_not_fit_the_least_size_and_modes_that_are_refused():
    x = Tensor(np.zeros((1, 1, 9, 8), np.float32))[:, :, :H]
    with pytest.raises(ShapeError, match="the window is larger") as error:
        x.max_pool2d(5)
    assert "4..9" in str(error.value)
    with pytest.raises(ShapeError, match="ceil_mode over an axis of symbolic size"):
        x.max_pool2d(2, ceil_mode=True)
    with pytest.raises(ShapeError, match="adaptive_avg_pool2d over an axis of symbolic size"):
        x.adaptive_avg_pool2d(1)
    with pytest.raises(ShapeError, match="conv_transpose2d over an axis of symbolic size"):
        x.conv_transpose2d(Tensor(np.zeros((1, 1, 2, 2), np.float32)))
    with pytest.raises(ArgumentError, match="unfold"):
        x.unfold(2, 5)


def test_products_summed_over_an_axis_of_symbolic_size():
    """The sum may be all there is to a tile's depth: no panel of columns of it has a constant size."""
    rows = Variable("rows", 136, 152, 8)
    data = np.random.default_rng(7).standard_normal((16, 153, 64)).astype(np.float32)
    x = Tensor(data).realize()
    for k in (136, 144, 152):
        wanted = data[:, :k].max(0)
        with rows.bind(k):
            y = x[:, :rows].amax(0)
            got = (y.transpose(0, 1) @ y).numpy()
        np.testing.assert_allclose(got, wanted.T @ wanted, rtol=1e-5, atol=1e-4)


K, J = Variable("k", 17, 18), Variable("j", 16, 32, 16)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("shape", "part", "sizes"),
    [
        ((17, 19), lambda x, k, j: x[:, :k] @ x[:, :k].T, (17, 16)),
        ((2, 33, 37), lambda x, k, j: x[:, :, 37 - j :] @ x[:, :, 37 - j :].transpose(-1, -2), (17, 32)),
        ((19,), lambda x, k, j: (lambda z: z.transpose(-1, -2) @ z)(Tensor.stack([x[:k]] * 3, dim=0)), (18, 16)),
    ],
)
def test_gradients_through_flattened_axes_of_symbolic_size_are_inside(shape, part, sizes):
    """Indices with quotients and remainders of the size, which the prover must follow."""
    data = np.random.default_rng(8).standard_normal(shape).astype(np.float32)

    def gradient(k, j):
        x = Tensor(data, requires_grad=True)
        part(x, k, j).square().sum().backward()
        return x.grad.numpy()

    wanted = gradient(*sizes)
    with K.bind(sizes[0]), J.bind(sizes[1]):
        np.testing.assert_allclose(gradient(K.uop, J.uop), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.sweep
@pytest.mark.parametrize(("place", "size"), [(lambda x, n: x[:, n:][1:], 72), (lambda x, n: x[:, :n], 84)])
def test_stores_of_one_kernel_share_a_loop_of_symbolic_size(place, size):
    """Both gradients of a product: its loop is the outermost of both, by its number."""
    part = Variable("part", 68, 88, 4)
    data = np.random.default_rng(9).standard_normal((3, 89)).astype(np.float32)

    def gradient(n):
        x = Tensor(data, requires_grad=True)
        y = place(x, n)
        (y @ y.T).square().sum().backward()
        return x.grad.numpy()

    wanted = gradient(size)
    with part.bind(size):
        np.testing.assert_allclose(gradient(part.uop), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize("by", [0, 2, -3, 7, -20, "shift"])
def test_roll_by_what_is_left_of_the_shift(by):
    """Along an axis of symbolic size, by a symbolic number, of more elements than there are; and its gradient."""
    data, weight = np.arange(18, dtype=np.float32).reshape(2, 9), np.arange(9, dtype=np.float32) ** 2
    shift = Variable("shift", 0, 20)

    def rolled(n, by):
        x = Tensor(data, requires_grad=True)
        y = x[:, :n].roll(by, 1)
        (y * Tensor(weight)[:n]).sum().backward()
        return [t.contiguous().numpy() for t in (y, x.grad, x[:, :n].roll(by), x[:, :n].roll((1, by), (0, 1)))]

    for n, bound in ((3, 13), (5, 0), (9, 20)):
        number = bound if by == "shift" else by
        wanted = rolled(n, number)
        np.testing.assert_array_equal(wanted[0], np.roll(data[:, :n], number, 1))
        with N.bind(n), shift.bind(bound):
            for got, want in zip(rolled(N, shift if by == "shift" else by), wanted, strict=True):
                np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(Tensor(data).roll(shift, 1).numpy(), np.roll(data, bound, 1))


def test_roll_along_what_may_be_empty_is_refused():
    x = Tensor(np.zeros((2, 9), np.float32))[:, : Variable("z", 0, 9)]
    with pytest.raises(ShapeError, match="roll along an axis that may be empty") as error:
        x.roll(1, 1)
    assert "0..9" in str(error.value)
    with pytest.raises(ArgumentError, match="shift must be an integer"):
        x.roll(0.5, 1)


@pytest.mark.parametrize(
    "view", [lambda x, n: x[:, :n][:, : n - 1], lambda x, n: x[:, :n].T.T, lambda x, n: x[:, :n][:, :2].T]
)
def test_contiguous_of_a_view_of_a_view(view):
    data = np.arange(18, dtype=np.float32).reshape(2, 9)
    for n in (3, 9):
        with N.bind(n):
            np.testing.assert_array_equal(view(Tensor(data), N).contiguous().numpy(), view(data, n))
