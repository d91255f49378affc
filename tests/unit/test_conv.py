"""Convolution and pooling against PyTorch: values, gradients, shapes and the messages of what does not fit."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.ir.uop import toposort
from monolect.tensor.tensor import Tensor
from tests.unit.oracle import agree

rng = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def check(ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: np.ndarray, tolerance: float = 3e-5) -> None:
    """Value and gradients of both functions agree on `arrays`."""
    agree(rng, ours, theirs, arrays, tolerance, tolerance, tolerance * 5)


CONV2D = [
    ((2, 3, 6, 7), (4, 3, 3, 3), {}),
    ((2, 3, 6, 7), (4, 3, 3, 2), {"padding": 1}),
    ((2, 3, 6, 7), (4, 3, 3, 3), {"padding": (2, 1), "stride": 2}),
    ((2, 3, 7, 8), (4, 3, 2, 3), {"stride": (1, 3)}),
    ((2, 3, 8, 9), (4, 3, 3, 3), {"dilation": 2}),
    ((2, 3, 8, 9), (4, 3, 2, 3), {"dilation": (3, 1), "padding": 1, "stride": (2, 1)}),
    ((1, 3, 20, 23), (17, 3, 3, 5), {"dilation": 2, "padding": 2, "stride": 3}),
    ((1, 3, 20, 23), (17, 3, 5, 3), {"dilation": (3, 2), "padding": 1, "stride": (2, 5)}),
    ((2, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    ((2, 4, 5, 5), (4, 1, 3, 3), {"groups": 4}),
    ((1, 3, 8, 8), (5, 3, 2, 2), {"stride": 2}),
    ((1, 3, 9, 9), (5, 3, 2, 2), {"stride": 3}),
    ((2, 3, 5, 5), (4, 3, 1, 1), {}),
    ((2, 3, 5, 5), (4, 3, 1, 1), {"stride": 2}),
    ((3, 6, 6), (4, 3, 3, 3), {"padding": 1}),
    ((2, 3, 6, 7), (4, 3, 4, 3), {"padding": "same"}),
    ((2, 3, 6, 7), (4, 3, 2, 3), {"padding": "same", "dilation": 2}),
    ((2, 3, 6, 7), (4, 3, 2, 3), {"padding": "valid"}),
    ((2, 3, 3, 3), (4, 3, 3, 3), {}),
]


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(("x", "w", "options"), CONV2D)
def test_conv2d(x: tuple, w: tuple, options: dict) -> None:
    check(
        lambda x, w, b: x.conv2d(w, b, **options),
        lambda x, w, b: F.conv2d(x, w, b, **options),
        array(*x), array(*w), array(w[0]),
    )  # fmt: skip


def test_conv1d_and_conv3d() -> None:
    check(lambda x, w: x.conv1d(w, padding=2), lambda x, w: F.conv1d(x, w, padding=2), array(2, 3, 8), array(4, 3, 3))
    check(lambda x, w: x.conv1d(w, stride=2), lambda x, w: F.conv1d(x, w, stride=2), array(2, 3, 8), array(4, 3, 3))
    check(
        lambda x, w: x.conv1d(w), lambda x, w: F.conv1d(x, w), array(2, 9, 97), array(20, 9, 5)
    )  # rows beyond the end
    x, w = array(1, 2, 4, 5, 4), array(3, 2, 2, 3, 2)
    check(lambda x, w: x.conv3d(w, padding=1), lambda x, w: F.conv3d(x, w, padding=1), x, w)


def test_gradient_of_the_gradient() -> None:
    """The closed form of the gradient is a graph that can be differentiated again."""
    a, b = array(1, 2, 4, 4), array(2, 2, 3, 3)
    x, w = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
    (x.conv2d(w, padding=1) ** 3).sum().backward(create_graph=True)
    gx = x.grad
    x.grad = w.grad = None
    (gx * gx).sum().backward()
    tx, tw = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (a, b))
    y = (F.conv2d(tx, tw, padding=1) ** 3).sum()
    (tgx,) = torch.autograd.grad(y, tx, create_graph=True)
    (tgx * tgx).sum().backward()
    for got, want in ((x.grad.numpy(), tx.grad.numpy()), (w.grad.numpy(), tw.grad.numpy())):
        np.testing.assert_allclose(got, want, rtol=0, atol=3e-6 * np.abs(want).max())


TRANSPOSED = [
    ((2, 4, 4, 5), (4, 3, 3, 3), {}),
    ((2, 4, 4, 5), (4, 3, 3, 2), {"stride": 2, "padding": 1}),
    ((2, 4, 4, 5), (4, 3, 3, 3), {"stride": (2, 3), "padding": 1, "output_padding": (1, 2)}),
    ((2, 4, 4, 5), (4, 2, 3, 3), {"groups": 2, "dilation": 2}),
    ((4, 4, 5), (4, 3, 2, 2), {"stride": 2}),
    ((1, 2, 4, 4), (2, 3, 2, 2), {"padding": 1}),
    ((1, 2, 3, 4), (2, 3, 4, 4), {"stride": 2, "padding": 1}),
    ((1, 2, 3, 4), (2, 3, 7, 8), {"stride": (3, 4), "padding": (2, 2), "output_padding": (1, 0)}),
    ((2, 3, 4, 3), (3, 16, 3, 2), {"stride": 2, "padding": 1, "output_padding": 1}),  # a convolution a phase
    ((1, 2, 3, 4), (2, 16, 1, 1), {"stride": (2, 3)}),  # phases without taps
    ((1, 4, 3, 4), (4, 2, 3, 2), {"stride": 2, "padding": 1, "output_padding": 2, "dilation": 3, "groups": 2}),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("x", "w", "options"), TRANSPOSED)
def test_conv_transpose2d(x: tuple, w: tuple, options: dict) -> None:
    check(
        lambda x, w, b: x.conv_transpose2d(w, b, **options),
        lambda x, w, b: F.conv_transpose2d(x, w, b, **options),
        array(*x), array(*w), array(w[1] * options.get("groups", 1)),
    )  # fmt: skip


def test_conv_transpose1d_and_3d() -> None:
    x, w = array(2, 3, 5), array(3, 2, 3)
    check(lambda x, w: x.conv_transpose1d(w, stride=2), lambda x, w: F.conv_transpose1d(x, w, stride=2), x, w)
    x, w = array(1, 2, 3, 3, 2), array(2, 2, 2, 2, 2)
    check(lambda x, w: x.conv_transpose3d(w), F.conv_transpose3d, x, w)


@pytest.mark.parametrize(("k", "stride", "padding", "taps"), [(4, 2, 1, 2), (16, 8, 4, 2), (3, 2, 1, 2), (3, 3, 1, 1)])
def test_a_transpose_meets_no_more_taps_than_each_element_has(k: int, stride: int, padding: int, taps: int) -> None:
    """Of a result that begins with elements which are dropped again, where that aligns the kernels of all places."""
    out = Tensor.ones(1, 2, 20).conv_transpose1d(Tensor.ones(2, 3, k), stride=stride, padding=padding)
    summed = [u.src[0].shape for u in toposort(out._uop) if u.op == "REDUCE"]
    assert [shape[-1] for shape in summed] == [taps]


def products_of(y: Tensor) -> int:
    """Products in the sums that y is made of."""
    return sum(prod(u.src[0].shape) for u in toposort(y._uop) if u.op == "REDUCE")


@pytest.mark.parametrize(("channels", "products"), [(16, 3), (3, 4)])
def test_places_between_outputs_are_convolutions_of_their_own_where_channels_fill_vectors(channels, products) -> None:
    """Of three taps in steps of two one reaches every other element, two the others."""
    y = Tensor.ones(1, 2, 8).conv_transpose1d(Tensor.ones(2, channels, 3), stride=2, padding=1, output_padding=1)
    assert products_of(y) == products * 2 * channels * 8


def test_the_gradient_of_a_transpose_is_the_convolution() -> None:
    x, w = Tensor.ones(1, 2, 8, requires_grad=True), Tensor.ones(2, 16, 4, requires_grad=True)
    x.conv_transpose1d(w, stride=2, padding=1).sum().backward()
    assert x.grad is not None and w.grad is not None
    ones = Tensor.ones(1, 16, 16)
    assert products_of(x.grad) == products_of(ones.conv1d(w.detach(), stride=2, padding=1)) == 2 * 16 * 4 * 8
    assert products_of(w.grad) == 2 * 16 * 4 * 8


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 16, 5, 7), (3, 16, 3, 3), {"stride": 2, "padding": 1}),
        ((1, 6, 9, 9), (4, 3, 3, 2), {"stride": (2, 3), "padding": 2, "dilation": 2, "groups": 2}),
        ((1, 16, 6, 6), (3, 16, 1, 1), {"stride": 2}),
        ((1, 2, 8, 8), (3, 2, 4, 4), {"stride": 4}),
    ],
)
def test_second_gradients_of_strided_convolutions(x: tuple, w: tuple, options: dict) -> None:
    values = array(*x), array(*w)
    theirs = [torch.tensor(v, requires_grad=True) for v in values]
    first = torch.autograd.grad(F.conv2d(*theirs, **options).square().sum(), theirs, create_graph=True)
    wanted = torch.autograd.grad(sum(d.square().sum() for d in first), theirs)
    a, b = ours = [Tensor(v, requires_grad=True) for v in values]
    y = a.conv2d(b, **options)
    (y * y).sum().backward(create_graph=True)
    grads = [t.grad for t in ours]
    for t in ours:
        t.grad = None
    sum(((d * d).sum() for d in grads), Tensor(0.0)).backward()
    for t, d in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(t.grad.numpy(), d.numpy(), rtol=1e-3, atol=1e-4 * float(d.abs().max()))


def test_half_precision_adds_up_in_float32() -> None:
    x = Tensor.ones(1, 512, 3, 3, dtype="float16")
    y = x.conv2d(Tensor.ones(1, 512, 3, 3, dtype="float16"))
    assert y.dtype.name == "float16" and y.float().item() == 4608.0  # added up in float16 it would stop at 2048


def test_conv_errors() -> None:
    x, w = Tensor.ones(1, 3, 4, 4), Tensor.ones(2, 3, 3, 3)
    with pytest.raises(ShapeError, match="channels") as e:
        x.conv2d(Tensor.ones(2, 4, 3, 3))
    assert "expected: 4 channels, as the weight is (2, 4, 3, 3)" in str(e.value)
    with pytest.raises(ShapeError, match="rank of the input"):
        Tensor.ones(4, 4).conv2d(w)
    with pytest.raises(ShapeError, match="weight"):
        x.conv2d(Tensor.ones(2, 3, 3))
    with pytest.raises(ShapeError, match="larger than the padded input"):
        Tensor.ones(1, 3, 2, 2).conv2d(w)
    with pytest.raises(ShapeError, match="bias"):
        x.conv2d(w, Tensor.ones(3))
    with pytest.raises(ShapeError, match="output channels"):
        Tensor.ones(1, 6, 4, 4).conv2d(Tensor.ones(3, 3, 3, 3), groups=2)
    with pytest.raises(ArgumentError, match="stride"):
        x.conv2d(w, stride=0)
    with pytest.raises(ArgumentError, match="stride 2|stride"):
        x.conv2d(w, stride=2, padding="same")
    with pytest.raises(ArgumentError, match="padding"):
        x.conv2d(w, padding="full")
    with pytest.raises(ArgumentError, match="padding"):
        x.conv2d(w, padding=-1)
    with pytest.raises(ArgumentError, match="groups"):
        x.conv2d(w, groups=0)
    with pytest.raises(ArgumentError, match="output_padding"):
        x.conv_transpose2d(Tensor.ones(3, 2, 3, 3), output_padding=1)


# ---- pools -----------------------------------------------------------------------------------------------------------
POOLS = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (2, 3), "stride": (3, 2)},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 1},
]


@pytest.mark.sweep
@pytest.mark.parametrize("options", POOLS)
def test_pools(options: dict) -> None:
    x = array(2, 3, 8, 9)
    check(lambda x: x.max_pool2d(**options), lambda x: F.max_pool2d(x, **options), x)
    check(lambda x: x.avg_pool2d(**options), lambda x: F.avg_pool2d(x, **options), x)
    own = {**options, "count_include_pad": False}
    check(lambda x: x.avg_pool2d(**own), lambda x: F.avg_pool2d(x, **own), x)


def test_pools_of_other_ranks() -> None:
    x1, x3 = array(2, 3, 8), array(1, 2, 4, 4, 6)
    check(lambda x: x.max_pool1d(3, 2, 1), lambda x: F.max_pool1d(x, 3, 2, 1), x1)
    check(lambda x: x.avg_pool1d(3, 2, 1), lambda x: F.avg_pool1d(x, 3, 2, 1), x1)
    check(lambda x: x.max_pool3d(2), lambda x: F.max_pool3d(x, 2), x3)
    check(lambda x: x.avg_pool3d(2), lambda x: F.avg_pool3d(x, 2), x3)
    check(lambda x: x.max_pool2d(2, dilation=2), lambda x: F.max_pool2d(x, 2, dilation=2), array(3, 7, 7))
    check(lambda x: x.avg_pool2d(2, divisor_override=3), lambda x: F.avg_pool2d(x, 2, divisor_override=3), x3[0])


OVERLAPPING = [
    ((9, 10), 3, 2, 1),
    ((8, 8), 3, 1, 1),
    ((11, 12), (5, 2), (3, 1), (2, 0)),
    ((9, 9), (4, 3), (2, 4), 0),
    ((7, 7), 5, 1, 2),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), OVERLAPPING)
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_gradients_of_overlapping_pools(size: tuple, kernel: Any, stride: Any, padding: Any, ceil_mode: bool) -> None:
    """Of few windows a sum of shifted ones, of many the sum of a view: both, also with what no window covers."""
    x = array(2, 3, *size)
    for name in ("max_pool2d", "avg_pool2d"):
        check(
            lambda x, name=name: getattr(x * x, name)(kernel, stride, padding, ceil_mode=ceil_mode),
            lambda x, name=name: getattr(F, name)(x * x, kernel, stride, padding, ceil_mode=ceil_mode),
            x,
        )


def test_of_elements_that_tie_the_first_gets_the_gradient_of_its_window() -> None:
    a, d = np.round(array(2, 9, 9)), array(2, 4, 4)
    x, t = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
    (x.max_pool2d(3, 2) * Tensor(d)).sum().backward()
    (F.max_pool2d(t, 3, 2) * torch.tensor(d)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_second_gradients_of_overlapping_pools() -> None:
    a = array(1, 2, 7, 7)
    for name in ("max_pool2d", "avg_pool2d"):
        x, t = Tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
        (getattr(x**3, name)(3, 2, 1) ** 2).sum().backward(create_graph=True)
        (wanted,) = torch.autograd.grad((getattr(F, name)(t**3, 3, 2, 1) ** 2).sum(), t, create_graph=True)
        first = x.grad
        np.testing.assert_allclose(first.numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-4)
        (theirs,) = torch.autograd.grad((wanted * wanted).sum(), t)
        x.grad = None
        (first * first).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), theirs.numpy(), rtol=1e-3, atol=1e-3)


def test_gradients_of_overlapping_pools_of_narrow_floats_add_up_in_float32() -> None:
    a = array(2, 8, 8)
    x = Tensor(a, dtype="bfloat16").requires_grad_()
    x.avg_pool2d(3, 1, 1).sum().backward()
    t = torch.ones(2, 8, 8, requires_grad=True)
    F.avg_pool2d(t, 3, 1, 1).sum().backward()
    assert x.grad.dtype.name == "bfloat16"
    np.testing.assert_allclose(x.grad.cast("float32").numpy(), t.grad.numpy(), rtol=1e-2)


def test_max_pool_of_negatives_and_integers() -> None:
    assert Tensor([[-5, -7], [-6, -8]]).max_pool2d(2, padding=1).tolist() == [[-5, -7], [-6, -8]]
    assert (Tensor(-np.ones((1, 3, 3), np.float32)).max_pool2d(3, 1, 1).numpy() == -1).all()


def test_adaptive_pools() -> None:
    x = array(2, 3, 8, 6)
    check(lambda x: x.adaptive_avg_pool2d((4, 3)), lambda x: F.adaptive_avg_pool2d(x, (4, 3)), x)
    check(lambda x: x.adaptive_avg_pool2d(1), lambda x: F.adaptive_avg_pool2d(x, 1), x)
    check(lambda x: x.adaptive_avg_pool2d((None, 2)), lambda x: F.adaptive_avg_pool2d(x, (None, 2)), x)
    check(lambda x: x.adaptive_max_pool2d(2), lambda x: F.adaptive_max_pool2d(x, 2), x)
    check(lambda x: x.adaptive_avg_pool1d(3), lambda x: F.adaptive_avg_pool1d(x, 3), x[0])


def test_pool_errors() -> None:
    x = Tensor.ones(1, 1, 4, 4)
    with pytest.raises(ArgumentError, match="kernel_size"):
        x.max_pool2d(0)
    with pytest.raises(ArgumentError, match="at most half"):
        x.max_pool2d(2, padding=2)
    with pytest.raises(ShapeError, match="larger than the padded input"):
        x.avg_pool2d(5)
    with pytest.raises(ArgumentError, match="at least 1"):
        x.adaptive_avg_pool2d(0)
    with pytest.raises(DTypeError, match="avg_pool2d"):
        Tensor.ones(4, 4, dtype="int32").avg_pool2d(2)
    with pytest.raises(ShapeError, match="rank"):
        Tensor.ones(4).max_pool2d(2)
