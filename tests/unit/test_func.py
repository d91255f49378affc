"""Transforms of functions are those of torch.func: Jacobians, products with them, and maps over samples."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import monolect
from monolect import (
    ArgumentError,
    AxisError,
    DTypeError,
    GradientError,
    JitError,
    ShapeError,
    Tensor,
    func,
    jit,
    native_function,
    nn,
)
from monolect.base.errors import IndexRangeError
from monolect.func.batches import RULES
from monolect.ir.ops import ANY, ROWS, Stage
from monolect.runtime import profile

RNG = np.random.default_rng(0)
X, W, M = (RNG.standard_normal(s).astype(np.float32) for s in ((5, 3, 4), (4, 6), (4, 4)))
POINT, OTHER = (RNG.standard_normal(s).astype(np.float32) for s in ((3, 4), (4, 3)))


def numbers(tree: Any) -> Any:
    """The tensors of either library in nested containers, as arrays."""
    if isinstance(tree, dict):
        return {k: numbers(v) for k, v in tree.items()}
    if isinstance(tree, tuple | list):
        return [numbers(v) for v in tree]
    return tree.detach().numpy() if isinstance(tree, torch.Tensor) else tree.numpy()


def both(f: Callable[..., Any], *arrays: Any, rtol: float = 2e-5) -> None:
    """`f` of (names of a library, its functional form, its tensors) gives the same in both libraries."""
    ours = numbers(f(func, monolect.nn.functional, *map(Tensor, arrays)))
    theirs = numbers(f(torch.func, F, *map(torch.tensor, arrays)))

    def compare(a: Any, b: Any) -> None:
        if isinstance(a, list | dict):
            assert type(a) is type(b) and len(a) == len(b)
            for k in a if isinstance(a, dict) else range(len(a)):
                compare(a[k], b[k])
        else:
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=rtol, atol=2e-6)

    compare(ours, theirs)


# ---- maps over samples -----------------------------------------------------------------------------------------------
def last(values: Any) -> Any:
    return values[0]


def written(a: Any) -> Any:
    b = a.clone()
    b[1] = a[0]
    b.add_(1)
    return b


# name -> (function of (functional form, sample, ...), other arguments, in_dims)
ONE: dict[str, tuple[Any, ...]] = {
    "sum": (lambda F, a: a.sum(0),),
    "softmax": (lambda F, a: a.softmax(-1),),
    "broadcast": (lambda F, a: a.sum(1) + a.sum(0).unsqueeze(1) * 2,),
    "flip": (lambda F, a: a.flip((0,)).movedim(0, 1),),
    "pad": (lambda F, a: F.pad(a, (1, 2), value=3.0),),
    "part": (lambda F, a: a[1:, ::2].reshape(-1),),
    "stack": (lambda F, a: a.unbind(0)[1] * a.unbind(1)[0].sum(),),
    "cumsum": (lambda F, a: a.cumsum(1),),
    "cumprod": (lambda F, a: a.cumprod(0),),
    "cummax": (lambda F, a: last(a.cummax(1)),),
    "sort": (lambda F, a: last(a.sort(1)),),
    "descending": (lambda F, a: last(a.reshape(-1).sort(0, descending=True))[:5],),
    "topk": (lambda F, a: last(a.topk(2)),),
    "norm": (lambda F, a: F.layer_norm(a, (4,)) + a.norm(),),
    "gelu": (lambda F, a: a.tanh() * F.gelu(a),),
    "attention": (lambda F, a: F.scaled_dot_product_attention(a[None], a[None], a[None]),),
    "written": (lambda F, a: written(a),),
    "product": (lambda F, a, b: a @ b, (W,), (0, None)),
    "of one": (lambda F, b, a: a @ b, (X,), (None, 0)),
    "norm of one": (lambda F, b, a: F.layer_norm(a, (4,), b), (X,), (None, 0)),
    "convolution": (lambda F, k, a: F.conv1d(a[None], k, padding=1)[0], (X,), (None, 0)),
    "rows": (lambda F, a, i: a[i], (RNG.integers(0, 3, (5, 2)),), (0, 0)),
    "rows of all": (lambda F, a, i: a[i], (RNG.integers(0, 3, (2, 2)),), (0, None)),
    "rows of one": (lambda F, b, i: b[i], (RNG.integers(0, 3, (5, 2)),), (None, 0)),
    "elements": (lambda F, a, i, j: a[i, j], (*RNG.integers(0, 3, (2, 5, 2)),), (0, 0, 0)),
    "gather": (lambda F, a, i: a.gather(1, i), (RNG.integers(0, 4, (5, 3, 2)),), (0, 0)),
    "scatter": (lambda F, a, i: a.scatter_add(1, i, a), (RNG.integers(0, 4, (5, 3, 4)),), (0, 0)),
    "index add": (lambda F, a, i: a.index_add(0, i, a), (RNG.integers(0, 3, (5, 3)),), (0, 0)),
    "cross entropy": (lambda F, a, i: F.cross_entropy(a, i), (RNG.integers(0, 4, (5, 3)),), (0, 0)),
}  # fmt: skip
OF_ONE = {"of one": M, "norm of one": M[0], "convolution": RNG.standard_normal((3, 3, 3)).astype(np.float32)}


@pytest.mark.sweep
@pytest.mark.parametrize("name", ONE)
def test_a_map_over_samples_and_its_gradient(name: str) -> None:
    f, *rest = ONE[name]
    others, dims = rest or ((), 0)
    first = OF_ONE.get(name, POINT if name == "rows of one" else X)

    def mapped(T: Any, F: Any, a: Any, *args: Any) -> Any:
        def loss(a: Any) -> Any:
            y = T.vmap(lambda *xs: f(F, *xs), in_dims=dims)(a, *args)
            return (y.square() * y).sum(), y

        return T.grad(loss, has_aux=True)(a)

    both(mapped, first, *others, rtol=1e-4)


def test_axes_and_containers_of_samples() -> None:
    both(
        lambda T, F, a, b: T.vmap(lambda a, b: a @ b, in_dims=(0, 2), out_dims=1)(a, b),
        X,
        OTHER.reshape(4, 3, 1).repeat(5, 2),
    )
    dims = ({"x": 1, "y": (0,)},)
    both(
        lambda T, F, a: T.vmap(lambda d: {"s": d["x"] + d["y"][0], "t": [d["x"]]}, in_dims=dims)(
            {"x": a, "y": (a.movedim(1, 0),)}
        ),
        X,
    )
    both(lambda T, F, a: T.vmap(lambda a: (a.sum(), a), out_dims=(0, 2))(a), X)
    both(lambda T, F, a: T.vmap(lambda a: (a.sum(), a * 2), in_dims=-1, out_dims=-1)(a), X)
    both(lambda T, F, a: T.vmap(lambda a, b: a * b)(a, b=a), X)
    both(lambda T, F, a: T.vmap(T.vmap(lambda r: r.cumprod(0)))(a), X)
    both(lambda T, F, a: T.vmap(lambda a: T.vmap(lambda r, s: r @ s, in_dims=(0, None))(a, a[0]))(a), X)
    assert func.vmap(lambda a: Tensor([1.0, 2.0]))(Tensor(X)).tolist() == [[1.0, 2.0]] * 5
    assert func.vmap(lambda a: a)(Tensor.zeros(0, 3)).shape == (0, 3)


def test_gradients_by_sample_are_one_graph() -> None:
    layer, x, y = nn.Linear(4, 6).realize(), Tensor(X[:, 0]), Tensor(np.array([0, 3, 2, 5, 1]))
    params = {k: p.detach() for k, p in layer.named_parameters()}

    def loss(p: Any, x: Any, y: Any) -> Any:
        return func.functional_call(layer, p, x).cross_entropy(y)

    with profile.Recorder() as kernels:
        found = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(params, x, y)
        found["weight"].realize(found["bias"])
    assert len(kernels) <= 4
    for k in range(5):
        one = func.grad(loss)(params, x[k], y[k])
        for name in one:
            np.testing.assert_allclose(found[name][k].numpy(), one[name].numpy(), rtol=1e-5, atol=1e-7)


def test_the_models_of_an_ensemble() -> None:
    models = [nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Tanh()).eval() for _ in range(3)]
    params, buffers = func.stack_module_state(models)
    assert all(p.requires_grad and p.shape[0] == 3 for p in params.values()) and params.keys() == {
        "0.weight", "0.bias", "1.weight", "1.bias",
    }  # fmt: skip
    x = Tensor(X[0])
    found = func.vmap(lambda p, b: func.functional_call(models[0], (p, b), x))(params, buffers)
    wanted = [m(x).numpy() for m in models]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)
    found.sum().backward()
    models[1](x).sum().backward()
    np.testing.assert_allclose(params["0.weight"].grad[1].numpy(), models[1][0].weight.grad.numpy(), rtol=1e-5)
    for wrong in ([], [nn.Linear(2, 2), nn.Linear(2, 3)]):
        with pytest.raises(ArgumentError, match="stack_module_state"):
            func.stack_module_state(wrong)
    with pytest.raises(ArgumentError, match="in two"):
        func.functional_call(models[0], (params, params), x)


def test_norms_without_running_statistics() -> None:
    model = func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))).eval()
    x = Tensor(X)
    found = func.vmap(model)(x)
    other = torch.func.replace_all_batch_norm_modules_(torch.nn.Sequential(torch.nn.BatchNorm1d(4))).eval()
    np.testing.assert_allclose(
        found.numpy(),
        model[1](Tensor(torch.func.vmap(other)(torch.tensor(X)).detach().numpy())).numpy(),
        rtol=1e-4,
        atol=1e-5,
    )


def test_a_map_in_a_captured_step() -> None:
    step = jit(lambda x: func.vmap(lambda a: last(a.sort(0)) + a.softmax(1))(x))
    for k in range(4):
        np.testing.assert_allclose(
            step(Tensor(X + k)).numpy(), (np.sort(X + k, 1) + torch.tensor(X).softmax(2).numpy()), rtol=1e-5
        )


def test_arguments_of_a_map_are_kept() -> None:
    x = Tensor(X)

    def changed(a: Tensor) -> Tensor:
        before = a * 2
        a.add_(1)
        a[0] = 7.0
        return a + before

    wanted = X * 3 + 1
    wanted[:, 0] = X[:, 0] * 2 + 7
    np.testing.assert_allclose(func.vmap(changed)(x).numpy(), wanted, rtol=1e-6)
    assert (x.numpy() == X).all()


def test_random_numbers_of_a_map() -> None:
    same = func.vmap(lambda a: a + Tensor.rand(4), randomness="same")(Tensor.zeros(3, 4)).numpy()
    assert (same[0] == same[1]).all() and (same[1] == same[2]).all() and same[0].std() > 0
    keys = monolect.random.split(monolect.random.key(3), 3)
    drawn = func.vmap(lambda key: monolect.random.uniform(size=4, key=key))(keys)
    wanted = [monolect.random.uniform(size=4, key=key).tolist() for key in keys]
    assert drawn.tolist() == wanted


OUTSIDE = Tensor.zeros(4)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: func.vmap(lambda a: Tensor([a.sum().item()]))(x), JitError, "reading"),
        (lambda x: func.vmap(lambda a: a + Tensor.rand(4))(x), ArgumentError, "randomness='same'"),
        (lambda x: func.vmap(lambda a: a, randomness="different")(x), ArgumentError, "keys of random.split"),
        (lambda x: func.vmap(lambda a: [OUTSIDE.add_(a), a][1])(x), ArgumentError, "from outside"),
        (lambda x: func.vmap(lambda a: 1.0)(x), ArgumentError, "1.0"),
        (lambda x: func.vmap(lambda a: a, in_dims=2)(x), AxisError, r"\(3, 4\)"),
        (lambda x: func.vmap(lambda a: a, in_dims=None)(x), ArgumentError, "none"),
        (lambda x: func.vmap(lambda a: a, in_dims=(0, 0))(x), ArgumentError, "1 arguments"),
        (lambda x: func.vmap(lambda a: a, in_dims=((0, 1),))(x), ArgumentError, "containers"),
        (lambda x: func.vmap(lambda a, b: a, in_dims=(0, 1))(x, x), ShapeError, "3, as of the first"),
        (lambda x: func.vmap(3), ArgumentError, "callable"),
        (lambda x: func.vmap(lambda a: x[0][a])(Tensor([0, 9])), IndexRangeError, "9"),
        (lambda x: func.vmap(lambda a: native_function(1, a, out=((4,), "float32")))(x), ArgumentError, "kernel"),
    ],
)  # fmt: skip
def test_what_a_map_refuses(call: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        call(Tensor(POINT))
    assert OUTSIDE.tolist() == [0.0] * 4


def test_each_op_of_graphs_of_tensors_has_a_rule() -> None:
    of_tensors = {name for name, row in ROWS.items() if Stage.TENSOR in row.stages and row.stages != ANY}
    constants = {"IOTA"}
    on_several_devices = {"REPLICATED"}
    of_calls = {"FUNCTION", "TUPLE", "GETTUPLE"}
    assert of_tensors - RULES.keys() <= constants | on_several_devices | of_calls
    assert {
        "PERMUTE",
        "RESHAPE",
        "EXPAND",
        "SHRINK",
        "INDEX",
        "STACK",
        "BITCAST",
        "LOAD",
        "STORE",
        "AFTER",
    } <= RULES.keys()


# ---- derivatives -----------------------------------------------------------------------------------------------------
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "elements": lambda F, a: a.tanh() * a,
    "softmax": lambda F, a: a.softmax(1),
    "scalar": lambda F, a: a.square().sum(),
    "part": lambda F, a: a[1, ::2],
    "product": lambda F, a: a @ a.transpose(0, 1),
    "several": lambda F, a: {"x": a.sum(0), "y": (a[0].prod(), a.exp())},
    "norm": lambda F, a: F.layer_norm(a, (4,)),
    "sort": lambda F, a: last(a.sort(1)) * a,
    "scan": lambda F, a: a.cumprod(1),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobians(name: str) -> None:
    f = FUNCTIONS[name]
    both(lambda T, F, a: T.jacrev(lambda a: f(F, a))(a), POINT, rtol=1e-4)
    both(lambda T, F, a: T.jacfwd(lambda a: f(F, a))(a), POINT, rtol=1e-4)
    if name not in ("several", "norm"):
        both(lambda T, F, a: T.hessian(lambda a: f(F, a))(a), POINT, rtol=1e-4)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:Attempted to insert")  # by PyTorch's linearize
@pytest.mark.parametrize("name", FUNCTIONS)
def test_products_with_jacobians(name: str) -> None:
    f = FUNCTIONS[name]

    def products(T: Any, F: Any, a: Any, t: Any) -> Any:
        y, pull = T.vjp(lambda a: f(F, a), a)
        pulled = pull(y)
        assert type(pulled) is tuple and len(pulled) == 1
        _, push = T.linearize(lambda a: f(F, a), a)
        return y, pulled, T.jvp(lambda a: f(F, a), (a,), (t,)), push(t), push(a)

    both(products, POINT, OTHER.reshape(3, 4), rtol=1e-4)


def test_several_arguments_and_what_is_returned_besides() -> None:
    def f(a: Any, b: Any) -> Any:
        return a @ b["w"], b["w"].sum(), a * 2

    def loss(a: Any, b: Any) -> Any:
        y = (a @ b["w"]).square().sum()
        return y, {"twice": y * 2}

    tangents = {"w": OTHER * 3}
    both(lambda T, F, a, b: T.jacrev(f, argnums=(0, 1))(a, {"w": b}), POINT, OTHER)
    both(lambda T, F, a, b: T.jacfwd(f, argnums=(1, 0))(a, {"w": b}), POINT, OTHER)
    both(lambda T, F, a, b: T.hessian(lambda a, b: loss(a, {"w": b})[0], argnums=(0, 1))(a, b), POINT, OTHER, rtol=1e-4)
    both(lambda T, F, a, b: T.jacrev(loss, argnums=1, has_aux=True)(a, {"w": b}), POINT, OTHER)
    both(lambda T, F, a, b: T.jacfwd(loss, argnums=1, has_aux=True)(a, {"w": b}), POINT, OTHER)
    both(lambda T, F, a, b: T.grad_and_value(loss, argnums=(0,), has_aux=True)(a, {"w": b}), POINT, OTHER)
    both(lambda T, F, a, b: T.grad_and_value(lambda a, b: loss(a, b)[0])(a, {"w": b}), POINT, OTHER)
    both(lambda T, F, a, b, t: T.jvp(loss, (a, {"w": b}), (a, {"w": t}), has_aux=True), POINT, OTHER, tangents["w"])

    def pulled(T: Any, F: Any, a: Any, b: Any) -> Any:
        y, pull, aux = T.vjp(loss, a, {"w": b}, has_aux=True)
        return y, pull(y), pull(y * 3), aux

    both(pulled, POINT, OTHER)


def test_derivatives_nest() -> None:
    both(lambda T, F, a: T.jacfwd(T.grad(lambda a: (a.tanh() * a).sum()))(a), POINT, rtol=1e-4)
    both(lambda T, F, a: T.grad(lambda a: T.jacrev(lambda a: a.exp() * a)(a).square().sum())(a), POINT, rtol=1e-4)
    both(
        lambda T, F, a, t: T.grad(lambda a: T.jvp(lambda a: a.sin() * a, (a,), (t,))[1].sum())(a),
        POINT,
        OTHER.reshape(3, 4),
    )
    both(lambda T, F, a: T.vmap(T.jacrev(lambda r: r.softmax(0)))(a), POINT, rtol=1e-4)
    both(lambda T, F, a: T.vmap(T.hessian(lambda r: r.prod()))(a), POINT, rtol=1e-4)
    both(lambda T, F, a: T.vmap(lambda a: T.jvp(lambda r: r.softmax(0), (a,), (a,)))(a), POINT, rtol=1e-4)


def test_derivatives_reach_leaves_and_steps() -> None:
    w, t = Tensor(POINT, requires_grad=True), torch.tensor(POINT, requires_grad=True)
    func.jacrev(lambda a: a.sin() * w)(Tensor(POINT)).sum().backward()
    torch.func.jacrev(lambda a: a.sin() * t)(torch.tensor(POINT)).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), t.grad.numpy(), rtol=1e-5)
    step = jit(lambda a: func.jacfwd(lambda a: a.sin() * a)(a))
    for k in range(4):
        wanted = torch.func.jacfwd(lambda a: a.sin() * a)(torch.tensor(POINT + k))
        np.testing.assert_allclose(step(Tensor(POINT + k)).numpy(), wanted.numpy(), rtol=1e-4, atol=1e-6)


def test_a_jacobian_is_few_kernels() -> None:
    x = Tensor(X.reshape(-1)).realize()
    with profile.Recorder() as kernels:
        func.jacrev(lambda a: a.tanh() * a.sum())(x).realize()
    assert len(kernels) <= 3


def test_a_function_that_looks_at_values_has_derivatives() -> None:
    y, pull = func.vjp(lambda a: a * 2 if a.sum().item() > 0 else -a, Tensor([1.0, 2.0]))
    assert y.tolist() == [2.0, 4.0] and pull(Tensor([1.0, 3.0]))[0].tolist() == [2.0, 6.0]
    assert func.jvp(lambda a: a * a.max().item(), (Tensor([1.0, 2.0]),), (Tensor([1.0, 3.0]),))[1].tolist() == [
        2.0,
        6.0,
    ]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: func.vjp(lambda a: a, x)[1](x[0]), ShapeError, r"\(3, 4\)"),
        (lambda x: func.vjp(lambda a: a, x)[1](x.double()), DTypeError, "float64"),
        (lambda x: func.vjp(lambda a: (a, a), x)[1](x), ArgumentError, "tuple"),
        (lambda x: func.vjp(lambda a: 3.0, x), GradientError, "3.0"),
        (lambda x: func.vjp(lambda a: a.argmax(), x), GradientError, "int64"),
        (lambda x: func.vjp(lambda a: a, Tensor([1])), GradientError, "int64"),
        (lambda x: func.vjp(lambda a: a, x, has_aux=True), ArgumentError, "has_aux"),
        (lambda x: func.jvp(lambda a: a, x, x), ArgumentError, "tuples"),
        (lambda x: func.jvp(lambda a: a, (x,), (x, x)), ArgumentError, "structure"),
        (lambda x: func.jvp(lambda a: Tensor([1.0]), (x,), (x,), strict=True), GradientError, "strict"),
        (lambda x: func.jacrev(lambda a: a, argnums=1)(x), ArgumentError, "argnums"),
        (lambda x: func.jacfwd(lambda a: a, argnums="a"), ArgumentError, "argnums"),
        (lambda x: func.linearize(5, x), ArgumentError, "callable"),
    ],
)
def test_wrong_calls_of_derivatives(call: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        call(Tensor(POINT))


def test_names_of_the_module() -> None:
    assert set(torch.func.__all__) - set(func.__all__) == {"debug_unwrap", "functionalize", "rearrange"}
    assert (
        monolect.func is func
        and monolect.vmap is func.vmap
        and not hasattr(func, "functionalize")
        and "vmap" in dir(func)
    )
    with pytest.raises(AttributeError, match="functionalize"):
        _ = func.functionalize  # type: ignore[attr-defined]
