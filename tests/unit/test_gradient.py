"""Gradients of graphs: second derivatives, writes, functions, the table and its reasons, the functional forms."""

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from monolect.autograd.gradient import GRADIENTS, NOT_DIFFERENTIABLE, gradients
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, GradientError
from monolect.base.settings import Context
from monolect.capture.function import function
from monolect.capture.transform import grad, value_and_grad
from monolect.ir.ops import ELEMENTWISE, MOVEMENT, ROWS, ParamArg, Stage
from monolect.ir.uop import build, const, node, shape_source
from monolect.tensor.tensor import Tensor, leaf_nodes

RNG = np.random.default_rng(4)
X = RNG.uniform(0.2, 0.9, (3, 4))

SECOND: list[Any] = [
    ("cube", lambda t: t**3),
    ("exp", lambda t: t.exp()),
    ("log", lambda t: t.log()),
    ("sin", lambda t: t.sin()),
    ("cos", lambda t: t.cos()),
    ("tanh", lambda t: t.tanh()),
    ("sigmoid", lambda t: t.sigmoid()),
    ("sqrt", lambda t: t.sqrt()),
    ("rsqrt", lambda t: t.rsqrt()),
    ("erf", lambda t: t.erf()),
    ("atan", lambda t: t.atan()),
    ("asin", lambda t: t.asin()),
    ("expm1", lambda t: t.expm1()),
    ("log1p", lambda t: t.log1p()),
    ("sinh", lambda t: t.sinh()),
    ("cosh", lambda t: t.cosh()),
    ("asinh", lambda t: t.asinh()),
    ("atanh", lambda t: t.atanh()),
    ("div", lambda t: 1 / (t + t * t)),
    ("pow", lambda t: t**t),
    ("softmax", lambda t: t.softmax(1)),
    ("log_softmax", lambda t: t.log_softmax(0) * t),
    ("var", lambda t: t.var(1) ** 2),
    ("prod", lambda t: t.prod(1)),
    ("cumsum", lambda t: t.cumsum(1) ** 2),
    ("amax", lambda t: t.amax(1) ** 2),
    ("norm", lambda t: t.norm(2, 1)),
    ("index", lambda t: t[[0, 2, 2]] ** 3),
    ("flip_pad", lambda t: (t.flip(1).T ** 2)[1:] * 2),
    ("hypot", lambda t: t.hypot(t * t)),
    ("atan2", lambda t: t.atan2(t * t)),
    ("where", lambda t: t.clamp(0.4, 0.7) ** 2),
    ("logsumexp", lambda t: t.logsumexp(1)),
    ("logaddexp", lambda t: t.logaddexp(t * t)),
    ("max", lambda t: t.maximum(1 - t) ** 2),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "f"), SECOND, ids=[r[0] for r in SECOND])
def test_second_derivatives(name: str, f: Any) -> None:
    w = RNG.uniform(0.5, 1.5, X.shape)

    def inner(x: Tensor) -> Tensor:
        return (grad(lambda y: f(y).sum())(x) * Tensor(w)).sum()

    got = grad(inner)(Tensor(X)).numpy()
    t = torch.tensor(X, requires_grad=True)
    (g,) = torch.autograd.grad(f(t).sum(), t, create_graph=True)
    (want,) = torch.autograd.grad((g * torch.tensor(w)).sum(), t)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "f", [lambda t: t.norm(2, 1), lambda t: t.norm(3, 1), lambda t: t.std(1)], ids=["2", "3", "std"]
)
def test_roots_of_nothing_are_flat(f: Any) -> None:
    """A row of zeros has the norm 0, and the gradient 0, as in PyTorch; it made all that stood before it nan."""
    rows = np.float32([[0, 0, 0], [1, -2, 2]])
    t = torch.tensor(rows, requires_grad=True)
    (f(t) * torch.tensor([2.0, 3.0])).sum().backward()
    got = grad(lambda x: (f(x) * Tensor([2.0, 3.0])).sum())(Tensor(rows)).numpy()
    np.testing.assert_allclose(got, t.grad.numpy(), rtol=1e-5)


def test_the_angle_of_the_origin_is_flat() -> None:
    dy, dx = grad(lambda y, x: y.atan2(x).sum(), argnums=(0, 1))(Tensor([0.0, 3.0]), Tensor([0.0, 4.0]))
    np.testing.assert_allclose([dy.numpy(), dx.numpy()], [[0, 0.16], [0, -0.12]], rtol=1e-5)


def test_second_derivatives_through_leaves() -> None:
    x = Tensor([0.5, 2.0], requires_grad=True)
    (x**4).sum().backward(create_graph=True)
    g, x.grad = x.grad, None
    g.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 12 * np.array([0.25, 4.0]), rtol=1e-6)


def test_grad_of_structures() -> None:
    params = {"w": Tensor([1.0, 2.0]), "layers": [Tensor([3.0]), Tensor([4.0])]}

    def f(p: dict, x: Tensor) -> Tensor:
        return (p["w"] * x).sum() + (p["layers"][0] * 5 + p["layers"][1] * p["layers"][1]).sum()

    g = grad(f)(params, Tensor([10.0, 20.0]))
    assert g["w"].tolist() == [10, 20] and [t.tolist() for t in g["layers"]] == [[5], [8]]
    value, (gp, gx) = value_and_grad(f, argnums=(0, 1))(params, Tensor([10.0, 20.0]))
    assert value.item() == 81 and gx.tolist() == [1, 2] and gp["w"].tolist() == [10, 20]
    assert params["w"].tolist() == [1, 2]


def test_aux_and_arguments_that_do_not_matter() -> None:
    (value, aux), g = value_and_grad(lambda x, y: ((x * x).sum(), {"twice": x * 2}), has_aux=True)(Tensor([3.0]), 7)
    assert value.item() == 9 and aux["twice"].tolist() == [6] and g.tolist() == [6]
    g, aux = grad(lambda x: (x.sum(), x + 1), has_aux=True)(Tensor([1.0]))
    assert g.tolist() == [1] and aux.tolist() == [2]
    assert grad(lambda x, y: (y * 2).sum())(Tensor([1.0]), Tensor([1.0])).tolist() == [0]


def test_a_closed_form_of_views_that_were_merged() -> None:
    """A convolution states its gradients by its weight, a view that no longer stands below its result."""
    x, w = np.float32(np.arange(11)).reshape(1, 1, 11), np.float32([[1, 2, 3, 4]])
    weight = Tensor(w).realize()

    def f(x: Tensor) -> Tensor:
        return (x.conv1d(weight.reshape(2, 2).transpose(0, 1).reshape(2, 1, 2)) ** 2).sum()

    got = grad(f)(Tensor(x)).numpy()
    wanted = torch.from_numpy(x).requires_grad_()
    kernel = torch.from_numpy(w).reshape(2, 2).T.reshape(2, 1, 2)
    (torch.nn.functional.conv1d(wanted, kernel) ** 2).sum().backward()
    np.testing.assert_allclose(got, wanted.grad.numpy(), rtol=1e-5)


def test_equal_arguments_have_gradients_of_their_own() -> None:
    x = Tensor([2.0])
    a, b = grad(lambda p, q: (p * p * q).sum(), argnums=(0, 1))(x, x)
    assert a.tolist() == [8] and b.tolist() == [4]


def test_a_function_may_look_at_values() -> None:
    g = grad(lambda x: x.sum() if x.sum().item() > 0 else -x.sum())
    assert g(Tensor([1.0, 2.0])).tolist() == [1, 1] and g(Tensor([-1.0, -2.0])).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda: grad(lambda x: x * 2)(Tensor([1.0, 2.0])), GradientError, "(2,)"),
        (lambda: grad(lambda x: 3.0)(Tensor([1.0])), GradientError, "float"),
        (lambda: grad(lambda x: x.sum())(Tensor([1])), GradientError, "int64"),
        (lambda: grad(lambda x: x.sum(), argnums=2)(Tensor([1.0])), ArgumentError, "2"),
    ],
)
def test_errors(f: Any, error: type, text: str) -> None:
    with pytest.raises(error) as info:
        f()
    assert text in str(info.value) and __file__ in str(info.value)


def test_functions_are_differentiated_through_their_bodies() -> None:
    shape = shape_source((2,))
    p, q = (node("PARAM", (shape,), ParamArg(k, dtypes.float32)) for k in range(2))
    body = node("TUPLE", (build("MUL", p, q), build("ADD", p, p)))
    x, y = Tensor([2.0, 3.0], requires_grad=True), Tensor([5.0, 7.0], requires_grad=True)
    call = node("FUNCTION", (body, x.uop, y.uop), "f")
    out = Tensor(node("GETTUPLE", (call,), 0)) + Tensor(node("GETTUPLE", (call,), 1))
    out.sum().backward()
    assert x.grad.tolist() == [7, 9] and y.grad.tolist() == [2, 3]


def test_what_cannot_be_differentiated_says_why() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    opaque = node("CALL", (x.uop * 2.0, x.uop))
    with pytest.raises(GradientError, match="opaque"):
        gradients(opaque, const(1, dtypes.float32), [x.uop])


def test_every_differentiable_op_has_a_row() -> None:
    handled = set(GRADIENTS) | set(NOT_DIFFERENTIABLE) | {"TRUNC", "DETACH", "AFTER", "FUNCTION", "GETTUPLE"}
    integer = {"XOR", "OR", "AND", "SHR", "SHL", "NOT", "THREEFRY", "MOD", "IDIV"}
    compare = {op for op in ELEMENTWISE if op.startswith("CMP")}
    of_kernels = {op for op in ELEMENTWISE if Stage.TENSOR not in ROWS[op].stages}
    missing = (
        (ELEMENTWISE | MOVEMENT | {"REDUCE", "STACK", "LOAD", "CONTIGUOUS", "CONTIGUOUS_BACKWARD"})
        - handled
        - integer
        - compare
        - of_kernels
    )
    assert not missing
    assert set(GRADIENTS) <= set(ROWS) and set(NOT_DIFFERENTIABLE) <= set(ROWS)


def test_contiguous_backward_and_detach() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x.contiguous_backward() * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_ten_thousand_steps_need_no_recursion() -> None:
    x = Tensor([1.0], requires_grad=True)
    y: Any = x
    for _ in range(10_000):
        y = y * 1.0001
    y.sum().backward()
    assert x.grad is not None


EMPTY: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x[0:0].sum(),
    "sum of an axis": lambda x: x[:, 1:1].sum(1).sum(),
    "prod": lambda x: x[0:0].prod(),
    "mean": lambda x: x[0:0].mean(),
    "squares": lambda x: (x * x)[2:2].sum(),
    "product": lambda x: x[0:0] @ x.T,
    "beside others": lambda x: x[0:0].sum() + 0 * x.sum(),
}


@pytest.mark.parametrize("name", EMPTY)
def test_the_gradient_of_no_elements_is_zero(name: str) -> None:
    x = Tensor(np.ones((2, 3), np.float32), requires_grad=True)
    y = torch.ones(2, 3, requires_grad=True)
    ours, theirs = EMPTY[name](x), EMPTY[name](y)
    ours.sum().backward()
    theirs.sum().backward()
    np.testing.assert_array_equal(ours.numpy(), theirs.detach().numpy())
    np.testing.assert_array_equal(x.grad.numpy(), y.grad.numpy())


def test_leaves_are_found_while_another_thread_makes_some() -> None:
    """What lists weak references may end in an error when there are more of them before it is over."""
    kept = [Tensor([1.0], requires_grad=True) for _ in range(300)]
    done = threading.Event()

    def make() -> None:
        while not done.is_set():
            [Tensor([float(i)], requires_grad=True) for i in range(50)]

    thread, interval = threading.Thread(target=make), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(3000):
            assert len(leaf_nodes()) >= len(kept)
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_the_gradient_of_a_product_of_zero_and_infinity_is_nan() -> None:
    """The others of 2 are 0 and inf, those of inf are 2 and 0; of two zeros each has one zero among its others."""
    for row, wanted in (
        ([2.0, 0.0, np.inf], [np.nan, np.inf, 0.0]),
        ([2.0, 0.0, 0.0, np.nan], [*[np.nan] * 3, 0.0]),
        ([2.0, 0.0, 0.0, 3.0], [0.0] * 4),
        ([2.0, 0.0, 3.0], [0.0, 6.0, 0.0]),
    ):
        x = Tensor(np.array(row, np.float32), requires_grad=True)
        x.prod().backward()
        np.testing.assert_array_equal(x.grad.numpy(), wanted)
        t = torch.tensor([row], requires_grad=True)
        t.prod(1).sum().backward()
        np.testing.assert_array_equal(t.grad[0].numpy(), wanted)


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_a_constant_gradient_lives_where_its_tensor_does(device: str) -> None:
    x = Tensor(np.ones((2, 3), np.float32), device=device)
    bias = Tensor(np.zeros(3, np.float32), device=device, requires_grad=True)
    (x + bias).sum().backward()
    assert bias.grad.device == device and bias.grad.tolist() == [2.0, 2.0, 2.0]
    assert (bias.detach() - bias.grad).tolist() == [-2.0, -2.0, -2.0]
    of_sum, of_none = grad(lambda a, b: a.sum(), (0, 1))(x, x * 2)
    assert of_none.realize().device == of_sum.realize().device == device
    assert (x * 2 + of_sum + of_none).tolist() == [[3.0] * 3] * 2


def test_parts_of_ordered_values_that_a_function_returns_pass_gradients_of_their_own() -> None:
    x = Tensor(np.arange(12.0).reshape(4, 3), requires_grad=True)
    rows = function(lambda x: x.sort(0).values.unbind(0))(x)
    rows[0].realize(*rows[1:])
    sum(k * rows[k].unsqueeze(0).sum() for k in range(4)).backward()
    assert x.grad.tolist() == [[float(k)] * 3 for k in range(4)]


@pytest.mark.parametrize("is_first", [True, False])
def test_equal_values_that_are_computed_together_are_leaves_of_their_own(is_first: bool) -> None:
    a, b = Tensor([1.0, 2.0]) * 2, Tensor([1.0, 2.0]) * 2
    a.realize(b)
    leaf, other = (a, b) if is_first else (b, a)
    leaf.requires_grad_()
    (leaf * other * other).sum().backward()
    assert leaf.grad.tolist() == [4.0, 16.0]


def test_copies_that_are_computed_with_their_leaf_pass_no_gradient_to_it() -> None:
    x = (Tensor([1.0, 2.0]) * 2).requires_grad_()
    copies = [x.detach() * 1, x.detach().contiguous(), x.detach().clone()]
    copies[0].realize(*copies[1:], x)
    sum((x * c).sum() for c in copies).backward()
    assert x.grad.tolist() == [6.0, 12.0]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_early", [True, False])
def test_equal_values_that_are_computed_together_give_up_graphs_of_their_own(is_first: bool, is_early: bool) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    values = (x * x).sum(), (x * x).sum()
    first, second = values if is_first else values[::-1]
    if is_early:
        values[0].realize(values[1])
    first.backward()
    values[0].realize(values[1])
    second.backward()
    assert x.grad.tolist() == [4.0, 8.0]
    for spent in values:
        with pytest.raises(GradientError, match="a second time"):
            spent.backward()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_detached_value_in_the_memory_of_an_equal_one_passes_no_gradient(is_first: bool) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y, constant = x * x, (x * x).detach()
    if is_first:
        constant.realize(y)
    else:
        y.realize(constant)
    (y * constant).sum().backward()
    assert x.grad.tolist() == [2.0, 16.0]
    assert (y.tolist(), constant.tolist()) == ([1.0, 4.0], [1.0, 4.0])


@pytest.mark.sweep
@pytest.mark.parametrize("later", ["reshape", "unsqueeze", "matmul", "transpose"])
@pytest.mark.parametrize("shape, axis", [((3, 5), 0), ((2, 3, 5), -1), ((2, 3, 5), 1)])
def test_ordered_values_computed_before_backward_keep_their_graph(shape: tuple, axis: int, later: str) -> None:
    """They are a rearranged buffer, and views of them are merged with what rearranges it: the buffer has the graph."""
    a = np.random.default_rng(1).normal(size=shape)
    found = []
    for library in (Tensor, torch.tensor):
        x = library(a, requires_grad=True)
        t = (x * 2).topk(2, axis)[0]
        if isinstance(t, Tensor):
            t.numpy()
        t = {
            "reshape": lambda t=t: t.reshape(-1) * 3,
            "unsqueeze": lambda t=t: t.unsqueeze(1) * 3,
            "matmul": lambda t=t, library=library: t @ library(np.ones((t.shape[-1], 2))),
            "transpose": lambda t=t: t.transpose(0, 1) * 3,
        }[later]()
        (t**2).sum().backward()
        found.append(np.asarray(x.grad.numpy()))
    np.testing.assert_allclose(*found, rtol=1e-12)


@pytest.mark.parametrize("n", [19, 31, 35])
def test_a_condition_that_is_known_in_all_steps_but_the_last_keeps_the_lanes_of_what_it_decides(n: int) -> None:
    """A sum of what a written part leaves, beside sums over other axes: masks of the last vector are views of lanes."""

    def gradients() -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        shapes = (1, 1, n, 8), (1, 1, 1, 1), (16, 1, 1, 8)
        a, b, w = (Tensor(rng.standard_normal(shape).astype(np.float32), requires_grad=True) for shape in shapes)
        u = w * b
        t = u.cummin(1).values.tanh()
        y = (t + a).clone()
        y[0:1, :, 0:18] = b
        (u.sum() + 2 * (t * t).sum() + 3 * y.permute(1, 3, 2, 0).sum()).backward()
        a.grad.realize(b.grad, w.grad)
        return [x.grad.numpy() for x in (a, b, w)]

    with Context(NOOPT=1):
        wanted = gradients()
    for got, want in zip(gradients(), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("is_view", [False, True])
@pytest.mark.parametrize("is_computed", [False, True])
def test_a_value_written_down_while_a_tensor_was_no_leaf_has_no_gradient_for_it(
    is_view: bool, is_computed: bool
) -> None:
    base = Tensor([1.0, 2.0, 3.0]).realize()
    x = base[:2].detach() if is_view else Tensor([1.0, 2.0]).realize()
    before = x * 2
    x.requires_grad_()
    as_leaf = x * 3
    x.requires_grad_(False)
    frozen = x * 5
    if is_computed:
        before.realize(as_leaf, frozen)
    x.requires_grad_()
    (before + as_leaf + frozen + x * 7).sum().backward()
    assert x.grad.tolist() == [10.0, 10.0]


@pytest.mark.parametrize("is_view", [False, True])
def test_a_value_of_a_leaf_before_a_write_has_a_gradient(is_view: bool) -> None:
    base = Tensor([1.0, 2.0, 3.0])
    x = (base[:2].detach() if is_view else Tensor([1.0, 2.0])).requires_grad_()
    before = x * 2
    x.assign(x.detach() * 10)
    (before + x * 3).sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]
