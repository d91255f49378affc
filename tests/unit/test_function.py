"""`@function`: traced once for each signature and never for another, stateful and differentiable; precompiled calls."""

import dataclasses
import gc
import threading
import weakref
from collections import deque, namedtuple
from collections.abc import Callable
from itertools import repeat
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from monolect import Context, Tensor, function, grad, jit, nn
from monolect.base.errors import ArgumentError, GradientError, JitError
from monolect.capture.function import MAX_TRACES, Function
from monolect.ir.uop import live_nodes, toposort
from monolect.runtime.realize import execute
from monolect.runtime.replay.in_progress import changes, steps, under_way


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def counting(f, **options):
    """`function(f)` and a list that grows by one at each trace."""
    note = Mock()  # of another library: what it holds is no part of the key
    made = function(lambda *a, **k: (note(), f(*a, **k))[1], **options)
    return made, note.mock_calls


def test_a_signature_is_traced_once() -> None:
    f, runs = counting(lambda a, b: a * b + 1)
    for k in range(3):
        x, y = values(4, seed=k), values(4, seed=k + 9)
        np.testing.assert_allclose(f(Tensor(x), Tensor(y)).numpy(), x * y + 1, rtol=1e-6)
    assert len(runs) == 1
    f(Tensor(values(5)), Tensor(values(5)))
    assert len(runs) == 2
    x = Tensor(values(4))
    np.testing.assert_allclose(f(x, x).numpy(), values(4) ** 2 + 1, rtol=1e-6)
    assert len(runs) == 3  # one Tensor twice is another function of its inputs


def test_calls_of_one_signature_share_one_body() -> None:
    f, _ = counting(lambda a: (a.exp() + a).sum())
    one, two = f(Tensor(values(4))), f(Tensor(values(4, seed=1)))
    calls = [t.uop.src[0] for t in (one, two)]
    assert calls[0].op == "FUNCTION" and calls[0].src[0] is calls[1].src[0] and calls[0] is not calls[1]
    assert not any(u.op == "BUFFER" for u in toposort(calls[0].src[0]))


Pair = namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Config:
    weight: Tensor
    scale: float


def test_tensors_are_found_in_any_nesting() -> None:
    w = Tensor(values(3, seed=5))
    layer = nn.Linear(3, 2)

    def f(tree, *, config):
        return tree["p"].left @ layer.weight.T + tree["l"][0][0] * config.scale + (w * config.weight).sum()

    made, runs = counting(f)
    for k in range(2):
        a, b, c = (values(3, seed=10 * k + j) for j in range(3))
        tree = {"p": Pair(Tensor(a), None), "l": [(Tensor(b[:1]),)]}
        got = made(tree, config=Config(Tensor(c), 2.0)).numpy()
        want = a @ layer.weight.numpy().T + b[:1] * 2.0 + (w.numpy() * c).sum()
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert len(runs) == 1
    made({"p": Pair(Tensor(a), None), "l": [(Tensor(b[:1]),)]}, config=Config(Tensor(c), 3.0))
    assert len(runs) == 2


SCALE = 2.0


def test_numbers_that_a_function_reads_are_part_of_the_signature(monkeypatch) -> None:
    exponent = 2

    @function
    def f(x, add=0):
        return x**exponent * SCALE + add

    x = Tensor([3.0])
    assert f(x).item() == 18.0
    exponent = 3
    assert f(x).item() == 54.0
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    assert f(x).item() == 27.0
    assert f(x, add=1).item() == 28.0 and f(x, add=True).item() == 28.0 and f(x, add=1.5).item() == 28.5
    assert len(f.traces) == 6


def test_a_mode_of_a_layer_is_part_of_the_signature() -> None:
    norm = nn.BatchNorm1d(4)
    f = function(lambda x: norm(x))
    x = Tensor(values(8, 4))
    trained = f(x).numpy()
    norm.eval()
    assert np.abs(f(x).numpy() - trained).max() > 1e-3


def test_what_is_assigned_is_assigned_at_each_call() -> None:
    ours, reference = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    f, runs = counting(lambda x: ours(x))
    for k in range(3):
        x = Tensor(values(8, 4, seed=k) + k)
        np.testing.assert_allclose(f(x).numpy(), reference(x).numpy(), rtol=1e-5, atol=1e-6)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        np.testing.assert_allclose(getattr(ours, name).numpy(), getattr(reference, name).numpy(), rtol=1e-5, atol=1e-6)
    assert len(runs) == 1


def test_an_argument_that_is_assigned() -> None:
    @function
    def add_to(total, x):
        total.assign(total + x)
        return total * 2

    for start in (1.0, 5.0):
        total = Tensor([start]).realize()
        assert add_to(total, Tensor([1.0])).item() == 2 * (start + 1)
        assert total.item() == start + 1
    assert len(add_to.traces) == 1


def test_random_numbers_are_new_at_each_call() -> None:
    f, runs = counting(lambda x: x + Tensor.rand(4))
    a, b = f(Tensor([0.0])), f(Tensor([0.0]))
    assert a.tolist() != b.tolist() and len(runs) == 2


def test_a_tensor_that_is_not_found_is_never_stale() -> None:
    hidden = repeat(Tensor([1.0]).realize())  # where nobody looks for it
    f, runs = counting(lambda x: x * next(hidden))
    assert f(Tensor([3.0])).item() == 3.0
    hidden = repeat(Tensor([2.0]).realize())
    assert f(Tensor([3.0])).item() == 6.0 and len(runs) == 2
    x = Tensor([5.0])
    assert grad(lambda t: f(t).sum())(x).item() == 2.0


def test_a_function_in_a_function_has_parameters_of_its_own() -> None:
    inner = function(lambda a, b: a - b)

    @function
    def outer(x, y, z):
        return inner(y, x) * inner(z, y), inner(x, z)

    x, y, z = (Tensor([v]) for v in (1.0, 10.0, 100.0))
    assert [t.item() for t in outer(x, y, z)] == [9.0 * 90.0, -99.0]
    product = lambda *t: outer(*t)[0].sum()  # noqa: E731
    assert [grad(product, k)(x, y, z).item() for k in range(3)] == [-90.0, 81.0, 9.0]


def test_results_that_are_inputs() -> None:
    x = Tensor(values(2, 3))
    same, turned = function(lambda t: (t, t.T))(x)
    np.testing.assert_array_equal(same.numpy(), x.numpy())
    np.testing.assert_array_equal(turned.numpy(), x.numpy().T)


@pytest.mark.sweep
@pytest.mark.parametrize("precompile", [False, True])
def test_derivatives_are_those_of_the_body(precompile: bool) -> None:
    def f(x, w):
        h = (x @ w).tanh()
        return h.sum(1), (h * h).mean()

    made, runs = counting(f, precompile=precompile)

    def loss(g):
        return lambda x, w: (lambda a, b: (a**2).sum() * b)(*g(x, w))

    for k in range(2):
        x, w = Tensor(values(3, 4, seed=k)), Tensor(values(4, 5, seed=k + 7))
        for got, want in zip(grad(loss(made), (0, 1))(x, w), grad(loss(f), (0, 1))(x, w), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    assert len(runs) == 1
    second = [grad(lambda v, g=g: (grad(loss(g))(v, w) ** 2).sum())(x).numpy() for g in (made, f)]  # noqa: B023
    np.testing.assert_allclose(*second, rtol=1e-3, atol=1e-4)


def test_a_derivative_is_made_once_for_all_calls() -> None:
    f = function(lambda x: (x.exp() * x).sum())
    backs = []
    for k in range(2):
        x = Tensor(values(4, seed=k), requires_grad=True)
        f(x).backward()
        backs.append([u.src[0] for u in toposort(x.grad.uop) if u.op == "FUNCTION"])
        np.testing.assert_allclose(x.grad.numpy(), np.exp(x.numpy()) * (x.numpy() + 1), rtol=1e-5)
    assert backs[0] == backs[1] != []


@pytest.mark.parametrize("precompile", [False, True])
def test_a_derivative_is_that_of_a_call_with_as_many_arguments(precompile: bool) -> None:
    """Bodies are shared, also by a function that names a tensor without using it, of the kind of the gradient here."""
    w, rate = Tensor([1.0, 2.0], requires_grad=True), Tensor(100.0)

    def plain(x: Tensor) -> Tensor:
        return (x * w).sum()

    def logged(x: Tensor) -> Tensor:
        y = (x * w).sum()
        assert rate.shape == ()
        return y

    for f in (plain, logged, plain):
        w.grad = None
        function(f, precompile=precompile)(Tensor([3.0, 4.0])).backward()
        assert w.grad.tolist() == [3.0, 4.0]


def test_leaves_inside_a_layer_get_gradients() -> None:
    a = nn.Linear(3, 2)
    f = function(lambda x: a(x).relu())
    x = Tensor(values(5, 3))
    f(x).sum().backward()
    got, a.weight.grad = a.weight.grad.numpy(), None
    a(x).relu().sum().backward()
    np.testing.assert_allclose(got, a.weight.grad.numpy(), rtol=1e-6)


def test_a_derivative_of_the_users() -> None:
    @function(gradient=lambda inputs, grads: (grads[0] * 10, None))
    def f(x, y):
        return x * y

    x, y = Tensor([2.0], requires_grad=True), Tensor([3.0], requires_grad=True)
    f(x, y).sum().backward()
    assert x.grad.item() == 10.0 and y.grad is None
    assert grad(lambda a: (a * y).sum())(x).item() == 3.0  # the same formula without it


@pytest.mark.parametrize("precompile", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_derivative_of_the_users_reads_what_is_there_now(depth: int, precompile: bool) -> None:
    weight, factor = Tensor([2.0, 3.0]), SimpleNamespace(value=1.0)
    f = function(lambda x: x * 1.0, gradient=lambda inputs, grads: grads[0] * weight * factor.value)
    outer = f
    for _ in range(depth):
        outer = function(lambda x, inner=outer: inner(x) + x.detach(), precompile=precompile)
    step = jit(grad(lambda x: outer(x).sum()))
    for k in range(4):
        factor.value = 1.0 + k // 2
        x = Tensor([1.0, 1.0], requires_grad=True)
        outer(x).sum().backward()
        assert x.grad.tolist() == step(x).tolist() == (weight * factor.value).tolist()
        weight[0] = 5.0 + k


@pytest.mark.parametrize("change", ["none", "assign", "mul_"])
def test_a_derivative_of_the_users_has_a_gradient_for_a_leaf_that_it_reads(change: str) -> None:
    weight = Tensor([2.0, 3.0], requires_grad=True)
    f = function(lambda x: x * 1.0, gradient=lambda inputs, grads: grads[0] * weight * weight)
    outer = function(lambda x: f(x) * 1.0)
    for _ in range(3):
        weight.grad = None
        found = grad(lambda x: outer(x).sum())(Tensor([1.0, 1.0]))
        (found * Tensor([1.0, 2.0])).sum().backward()
        np.testing.assert_allclose(weight.grad.numpy(), 2 * weight.numpy() * [1, 2])
        if change == "assign":
            weight.assign(weight * 1.5)
        elif change == "mul_":
            with Context(GRAD=0):
                weight.mul_(1.5)


def test_a_derivative_of_the_users_lives_as_long_as_a_graph_needs_it() -> None:
    class Tenfold:
        def __call__(self, inputs, grads):
            return grads[0] * 10

    backward = Tenfold()
    x, gone = Tensor([2.0], requires_grad=True), weakref.ref(backward)
    loss = function(lambda a: a * 3, gradient=backward)(x).sum()
    del backward
    loss.backward()
    assert x.grad.item() == 10.0
    del loss, x
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "given", [lambda i, g: g[0].sum(), lambda i, g: 1.0, lambda i, g: (g[0], g[0])], ids=["shape", "no tensor", "many"]
)
def test_a_derivative_that_does_not_fit_is_refused(given) -> None:
    f = function(lambda x: x * 2, gradient=given)
    with pytest.raises(GradientError, match="gradient of a @function"):
        grad(lambda x: f(x).sum())(Tensor([1.0, 2.0]))


# ---- precompiled -----------------------------------------------------------------------------------------------------
def blocks(n: int, precompile: bool):
    layers = [nn.Linear(8, 8) for _ in range(n)]
    block = function(lambda x, layer: layer(x).relu() + x, precompile=precompile)

    def net(x):
        for layer in layers:
            x = block(x, layer)
        return x

    return net, layers


def n_plans() -> int:
    return len({id(p) for p in execute.plans.values()})


def test_precompiled_calls_are_planned_once() -> None:
    net, layers = blocks(6, precompile=True)
    for layer in layers:
        layer.weight.realize(layer.bias)
    x = Tensor(values(4, 8)).realize()
    execute.plans.clear()  # where they are many, one goes for each that comes
    got = net(x).numpy()
    assert n_plans() == 1
    want = x.numpy()
    for layer in layers:
        want = np.maximum(want @ layer.weight.numpy().T + layer.bias.numpy(), 0) + want
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    x = Tensor(values(4, 8, seed=1), requires_grad=True)
    net(x).sum().backward()
    x.grad.realize()
    middle = n_plans()
    again, more = blocks(12, precompile=True)
    for layer in more:
        layer.weight.realize(layer.bias)
    x = Tensor(values(4, 8, seed=2), requires_grad=True).realize()
    loss = again(x).sum()
    loss.backward()
    at = n_plans()
    loss.realize(x.grad, *(p.grad for layer in more for p in (layer.weight, layer.bias)))
    assert n_plans() - at <= 8 and middle > 1  # as many for twelve layers as for two


@pytest.mark.sweep
@pytest.mark.parametrize(("hoist", "rtol", "atol"), [(0, 1e-6, 0), (1, 1e-5, 1e-6)], ids=["at every call", "once"])
def test_precompiled_calls_in_a_captured_step(hoist, rtol, atol) -> None:
    """What is packed once may be added in another order."""
    net, _ = blocks(3, precompile=True)
    plain = jit(net)
    with Context(HOIST=hoist):
        for k in range(4):
            x = Tensor(values(2, 8, seed=k))
            np.testing.assert_allclose(plain(x).numpy(), net(x).numpy(), rtol=rtol, atol=atol)


def test_a_precompiled_call_of_views_and_of_calls() -> None:
    f = function(lambda x: x.sum(0), precompile=True)
    x = Tensor(values(3, 4))
    got = f(f(x.T).expand(5, 3) + 1)
    np.testing.assert_allclose(got.numpy(), (x.numpy().sum(1) + 1) * 5, rtol=1e-5)


# ---- what is refused -------------------------------------------------------------------------------------------------
def test_reading_values_while_tracing_is_refused_with_the_line() -> None:
    x = Tensor([1.0, 2.0])
    with pytest.raises(
        JitError, match=r"reading the values of a tensor inside a jitted function[^$]*test_function.py:\d+"
    ):
        function(lambda t: t * t.sum().item())(x)
    with pytest.raises(JitError, match="while a @function is traced"):
        function(lambda t: (t + 1).realize())(x)
    assert (x * 2).tolist() == [2.0, 4.0]  # and the tensors are what they were


def test_reading_values_while_tracing_is_refused_where_sizes_differed() -> None:
    """The sum of other sizes before has a plan of a symbolic size."""
    for n in (3, 5, 6, 7, 9, 10, 11, 12):
        (Tensor(np.ones(n, np.float32)).realize() + 1).realize()
    for _ in range(3):
        with pytest.raises(JitError, match="while a @function is traced"):
            function(lambda t: (t + 1).realize())(Tensor([1.0, 2.0]))


def test_a_failed_trace_changes_nothing() -> None:
    total, x = Tensor([1.0]).realize(), Tensor([2.0])

    def fails(t):
        total.assign(total + t)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        function(fails)(x)
    assert total.item() == 1.0 and x.item() == 2.0


@pytest.mark.parametrize("result", [None, 3, [], {}], ids=repr)
def test_a_function_without_results_is_refused(result) -> None:
    with pytest.raises(ArgumentError, match="returns Tensors"):
        function(lambda x: result)(Tensor([1.0]))


def test_backward_inside_is_refused() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match="backward.. inside a @function"):
        function(lambda t: (t * t).sum().backward())(x)
    assert x.grad is None


def test_what_is_no_function_is_refused() -> None:
    for bad in (3, "f"):
        with pytest.raises(ArgumentError, match="callable"):
            function(bad)
        with pytest.raises(ArgumentError, match="callable"):
            function(lambda x: x, gradient=bad)


# ---- caches ----------------------------------------------------------------------------------------------------------
def test_traces_are_bounded_and_leave_nothing_behind() -> None:
    f = function(lambda x, k: x + k)
    x = Tensor([1.0]).realize()
    for k in range(MAX_TRACES + 20):
        assert f(x, k).item() == 1.0 + k
    assert len(f.traces) == MAX_TRACES
    at = live_nodes()
    for k in range(MAX_TRACES + 20):
        f(x, k % 7).item()
    assert live_nodes() <= at + 50


def deeper(n: int, f: Callable[[], object]) -> object:
    return f() if n == 0 else deeper(n - 1, f)


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [function, jit])
def test_a_recursion_without_an_end_is_an_error_at_its_line(wrap) -> None:
    def down(x: Tensor) -> Tensor:
        return endless(x + 1) * 2

    @wrap
    def halved(x: Tensor, n: int) -> Tensor:
        return x if n == 0 else halved(x * 0.5, n - 1)

    endless, x = wrap(down), Tensor([1.0]).realize()
    for n in range(25):  # Python's limit is reached at any place
        with pytest.raises(JitError, match="recurses without an end") as caught:
            deeper(n, lambda: endless(x))
        assert caught.value.found == "down"
        assert caught.value.line == (__file__, down.__code__.co_firstlineno + 1)
        assert not under_way and not changes.captures and not changes.is_inside
        assert execute.running.user is None and steps.user is None
    assert halved(x, 5).item() == 2.0**-5


def test_threads_trace_and_call_at_once() -> None:
    f: Function = function(lambda x, k: (x * k).sum())
    wrong: list[object] = []

    def work(seed: int) -> None:
        for k in range(12):
            x = values(4, seed=seed)
            got = f(Tensor(x), k % 4).item()
            if abs(got - float((x * (k % 4)).sum())) > 1e-4:
                wrong.append((seed, k, got))

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_plans_of_all_kinds_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(execute, "MAX_PLANS", 3)
    execute.plans.clear()
    x = Tensor(values(4, 8)).realize()
    for k in range(6):
        (x * (k + 2)).numpy()
        net, _ = blocks(1, precompile=True)
        net(x).numpy()
        assert len(execute.plans) <= 3


ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(2, 1).values,
    "topk along another axis": lambda x: x.topk(2, 0, largest=False).values,
    "median": lambda x: x.median(1).values,
    "quantile": lambda x: x.quantile(0.3, 1),
    "cummax": lambda x: x.cummax(1).values,
    "cumprod": lambda x: x.cumprod(1),
    "max": lambda x: x.max(1).values,
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", ORDERS)
def test_gradients_of_orders_and_scans_go_through_a_function(name: str) -> None:
    """Their closed forms use nodes of the traced body, where others stand in a call."""
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    grads = []
    for wrap in (function, lambda f: f):
        w = Tensor(x, requires_grad=True)
        f = wrap(lambda t, w=w: (ORDERS[name](t * w) ** 2).sum())
        for _ in range(2):
            w.grad = None
            f(Tensor(x)).backward()
        grads.append(w.grad.numpy())
    np.testing.assert_allclose(grads[0], grads[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precompile", [False, True])
def test_a_tensor_that_is_returned_twice_is_one_tensor(precompile):
    @function(precompile=precompile)
    def twice(x):
        y, z = x * 2, x * 2  # equal, and yet two
        return {"first": y, "again": [y, z]}

    for value in (1.0, 3.0):  # traced, found
        x = Tensor([value], requires_grad=True)
        found = twice(x)
        y, z = found["again"]
        assert found["first"] is y and z is not y
        (found["first"] * y).sum().backward()
        assert x.grad.tolist() == [8 * value]
        y.assign(y + 1)
        assert (found["first"].tolist(), z.tolist()) == ([2 * value + 1], [2 * value])


@pytest.mark.sweep
@pytest.mark.parametrize("precompile", [False, True])
@pytest.mark.parametrize("n", [64, 257])
def test_a_kernel_of_its_own_inside_keeps_its_local_memory(precompile, n):
    """A row is sorted by a kernel of vectors, which has registers and local memory: no inputs of the function."""
    x = Tensor(np.random.default_rng(n).integers(-9, 9, (3, n)).astype(np.float32))
    f = function(lambda v: (*v.sort(1), v.flip(0) + 1), precompile=precompile)
    for k in range(2):
        for got, wanted in zip(f(x * (k + 1)), (*(x * (k + 1)).sort(1), (x * (k + 1)).flip(0) + 1), strict=True):
            np.testing.assert_array_equal(got.numpy(), wanted.numpy())
    step = jit(lambda v: f(v * 2)[0])
    for k in range(3):
        np.testing.assert_array_equal(step(x + k).numpy(), np.sort((x.numpy() + k) * 2, 1))


@pytest.mark.parametrize("precompile", [False, True])
def test_a_view_that_is_assigned_to_in_part(precompile):
    """The part is one of the argument, not of what that is a view of."""

    def swapped(x):
        x[:4] = x[:4].flip(0)
        x[1::2] = 9.0
        return x * 1

    f = function(swapped, precompile=precompile)
    base = np.arange(12.0)
    for view in (lambda t: t[:6], lambda t: t.flip(0)[3:9], lambda t: t.reshape(2, 6)[1], lambda t: t[:6] + 1):
        x, wanted = view(Tensor(base)), view(Tensor(base))
        assert f(x).tolist() == swapped(wanted).tolist()
        assert x.tolist() == wanted.tolist()


@pytest.mark.parametrize("precompile", [False, True])
def test_results_of_a_function_are_operands_of_a_kernel_of_its_own(precompile):
    x = np.random.default_rng(0).normal(size=(5, 4))
    wanted = np.sort(np.sort(x, 0), 1)
    f = function(lambda x: x.sort(0).values, precompile=precompile)
    g = function(lambda x: f(x).sort(1).values, precompile=precompile)
    step = jit(lambda x: f(x).sort(1).values)
    for of in (lambda t: f(t).sort(1).values, g, step, step):
        np.testing.assert_array_equal(of(Tensor(x)).numpy(), wanted)
    both = np.sort(np.sort(np.sort(x, 1), 0), 1)
    np.testing.assert_array_equal(f(Tensor(x).sort(1).values).sort(1).values.numpy(), both)


@pytest.mark.parametrize("precompile", [False, True])
@pytest.mark.parametrize("outer", [lambda f: f, jit, function])
def test_what_is_copied_from_an_argument_is_a_copy(precompile, outer) -> None:
    state, other, array = Tensor([1.0, 2.0, 3.0, 4.0]).realize(), Tensor.zeros(4).realize(), np.zeros(4, np.float32)

    def f(x):
        state.copy_(x.reshape(2, 2).reshape(4))
        other.copy_(state)
        return x * 2

    step = outer(function(f, precompile=precompile))
    for k in range(3):
        step(Tensor(array)).realize(state, other)
        array += 1
        assert state.tolist() == other.tolist() == [float(k)] * 4
        assert not np.shares_memory(state.numpy(), array) and not np.shares_memory(state.numpy(), other.numpy())


def test_a_result_that_is_an_argument_is_copied_too() -> None:
    state, x = Tensor.zeros(2).realize(), Tensor([1.0, 2.0]).realize()
    state.copy_(function(lambda x: x * 1)(x))
    assert not np.shares_memory(state.realize().numpy(), x.numpy()) and state.tolist() == [1.0, 2.0]


@pytest.mark.sweep
@pytest.mark.parametrize("precompile", [False, True])
@pytest.mark.parametrize("outer", [lambda f: f, jit, function])
def test_a_gradient_that_is_read_is_that_of_the_call(outer, precompile) -> None:
    flat = Tensor([1.0, 2.0, 3.0])
    for w in (Tensor([1.0, 2.0], requires_grad=True), flat[1:].detach().requires_grad_()):
        inner = function(lambda x, w=w: x if w.grad is None else x * w.grad, precompile=precompile)
        f, x = outer(lambda x, inner=inner: inner(x) + 1), Tensor([1.0, 10.0])
        for grad_of_call in (None, Tensor([2.0, 3.0]), Tensor([4.0, 5.0]), Tensor.ones(2) * 7, flat[:2], None):
            w.grad = grad_of_call
            wanted = x if grad_of_call is None else x * grad_of_call
            assert f(x).tolist() == (wanted + 1).tolist() and w.grad is grad_of_call


@pytest.mark.parametrize("outer", [lambda f: f, jit, function])
def test_an_argument_that_is_a_view_is_the_leaf_that_it_was(outer) -> None:
    v = Tensor([1.0, 2.0, 3.0])[1:].detach().requires_grad_()
    inner = function(lambda x: (x if x.grad is None else x.grad) + (1 if x.requires_grad else 0))
    f = outer(lambda: inner(v) * 2)
    assert f().tolist() == [6.0, 8.0]
    v.grad = Tensor([5.0, 6.0])
    assert f().tolist() == [12.0, 14.0]
    v.requires_grad_(False)
    assert f().tolist() == [10.0, 12.0]


@pytest.mark.parametrize("precompile", [False, True])
def test_tensors_that_change_places_do_so_at_each_call(precompile) -> None:
    """Two tensors of a kind: the key of the call is the same before and after, whichever is first."""

    def results(wrap: Callable) -> list[list[float]]:
        pair, ring = [Tensor([1.0]), Tensor([2.0])], deque(Tensor([k]) for k in (1.0, 10.0, 100.0))

        def step(x: Tensor) -> Tensor:
            pair[0], pair[1] = pair[1], pair[0]
            ring.rotate(1)
            return x * pair[0] + ring[0]

        call = wrap(step)
        return [call(Tensor([1.0])).tolist() for _ in range(6)]

    assert results(lambda f: function(f, precompile=precompile)) == results(lambda f: f)


def test_a_state_that_is_put_back_is_traced_once() -> None:
    pair = [Tensor([1.0]), Tensor([2.0])]

    def step(x: Tensor) -> Tensor:
        pair.reverse()
        y = x * pair[0]
        pair.reverse()
        return y

    f, runs = counting(step)
    assert [f(Tensor([k])).item() for k in (1.0, 2.0, 3.0)] == [2.0, 4.0, 6.0] and len(runs) == 1


def test_a_function_that_exchanges_names_is_traced_at_each_call():
    """The names stand for tensors of one kind, so that the key of the call is the same before and after."""
    box = SimpleNamespace(a=Tensor([1.0]), b=Tensor([2.0]))
    row = [Tensor([1.0]), Tensor([2.0]), Tensor([3.0])]

    @function
    def exchanged(x):
        box.a, box.b = box.b, box.a
        row.append(row.pop(0))
        return box.a * 10 + row[0] + x

    found = [exchanged(Tensor([0.0])).item() for _ in range(4)]
    assert found == [22.0, 13.0, 21.0, 12.0] and box.a.item() == 1.0


def _leaf_of_a_memory() -> tuple[Tensor, Tensor]:
    flat = Tensor([1.0, 2.0, 3.0, 4.0])
    return flat, flat[:2].detach().requires_grad_()


@pytest.mark.parametrize("precompile", [False, True])
def test_a_leaf_that_is_a_view_from_outside_has_a_gradient(precompile: bool) -> None:
    flat, leaf = _leaf_of_a_memory()
    inner = function(lambda x: x * leaf, precompile=precompile)
    outer = function(lambda x: (inner(x) * leaf * flat[2:]).sum(), precompile=precompile)
    for scale in (1.0, 2.0):
        leaf.grad = None
        outer(Tensor([1.0, 3.0])).backward()
        assert leaf.grad.tolist() == [6.0 * scale**2, 48.0 * scale**2] and flat.grad is None
        flat *= 2.0


def test_a_leaf_that_is_a_view_may_be_an_argument_too() -> None:
    flat, leaf = _leaf_of_a_memory()
    other = flat[2:].detach().requires_grad_()
    f = function(lambda p: (p * leaf * other).sum())
    f(leaf).backward()
    assert leaf.grad.tolist() == [6.0, 16.0] and other.grad.tolist() == [1.0, 4.0]
    leaf.grad = other.grad = None
    f(other).backward()
    assert leaf.grad.tolist() == [9.0, 16.0] and other.grad.tolist() == [6.0, 16.0]


@pytest.mark.parametrize("is_view", [False, True])
def test_backward_to_a_leaf_that_a_function_assigned_and_then_read_is_refused(is_view: bool) -> None:
    flat, leaf = _leaf_of_a_memory()
    leaf = leaf if is_view else Tensor([1.0, 2.0], requires_grad=True)
    f = function(lambda x: ((x * leaf).sum(), leaf.assign(leaf.detach() * 2), (x * leaf).sum())[::2])
    before, after = f(Tensor([1.0, 3.0]))
    with pytest.raises(GradientError, match="assigned and then read"):
        after.backward()
    before.backward()
    assert (before.item(), after.item()) == (7.0, 14.0) and leaf.grad.tolist() == [1.0, 3.0]
    assert leaf.tolist() == [2.0, 4.0] and (flat.tolist() == [2.0, 4.0, 3.0, 4.0]) is is_view


RESIZING: dict[str, Callable] = {
    "means of uneven parts": lambda x: x.interpolate((4, 5), mode="area"),
    "nearest": lambda x: x.interpolate(scale_factor=1.5),
    "cubic": lambda x: x.interpolate((3, 9), mode="bicubic"),
    "sum of windows": lambda x: nn.functional.fold(x.reshape(2, 4, 6), (3, 4), 2),
}


@pytest.mark.parametrize("precompile", [False, True])
@pytest.mark.parametrize("name", RESIZING)
def test_gradients_that_read_tables_go_through_a_function(name: str, precompile: bool) -> None:
    plain = RESIZING[name]
    f = function(plain, precompile=precompile)
    for k in range(3):
        x, y = Tensor(values(2, 2, 2, 6, seed=k)), Tensor(values(2, 2, 2, 6, seed=k))
        x.requires_grad_()
        y.requires_grad_()
        (f(x) * (f(x * 2) + k)).sum().backward()
        (plain(y) * (plain(y * 2) + k)).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", RESIZING)
def test_second_gradients_that_read_tables_go_through_a_function(name: str) -> None:
    plain = RESIZING[name]

    def second(f: Callable) -> np.ndarray:
        return grad(lambda x: (grad(lambda x: (f(x) ** 3).sum())(x) ** 2).sum())(Tensor(values(2, 2, 2, 6))).numpy()

    np.testing.assert_allclose(second(function(plain)), second(plain), rtol=1e-4, atol=1e-4)
