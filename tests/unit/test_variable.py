"""Symbolic sizes: one plan and one kernel for every bound value, and clear errors."""

from collections.abc import Callable

import numpy as np
import pytest

from monolect import (
    ArgumentError,
    Context,
    Device,
    DTypeError,
    GradientError,
    IndexRangeError,
    JitError,
    ShapeError,
    Tensor,
    Variable,
    function,
    jit,
)
from monolect.ir.uop import toposort
from monolect.runtime import profile
from monolect.runtime.realize.execute import plans
from monolect.runtime.realize.programs import loaded

N = Variable("rows", 1, 8)
X = np.arange(24, dtype=np.float32).reshape(8, 3)

PROGRAMS = {
    "slice": (lambda x: x[:N] * 2, lambda a, n: a[:n] * 2),
    "sum over the rows": (lambda x: x[:N].sum(0), lambda a, n: a[:n].sum(0)),
    "sum over the columns": (lambda x: x[:N].sum(1), lambda a, n: a[:n].sum(1)),
    "maximum": (lambda x: (x[:N] * -1).amax(0), lambda a, n: (a[:n] * -1).max(0)),
    "transpose": (lambda x: x[:N].T + 1, lambda a, n: a[:n].T + 1),
    "product": (lambda x: x @ x[:N].T, lambda a, n: a @ a[:n].T),
    "mean": (lambda x: x[:N].mean(0), lambda a, n: a[:n].mean(0)),
    "joined": (lambda x: x[:N].cat(x[:N] + 1, dim=0), lambda a, n: np.concatenate([a[:n], a[:n] + 1])),
    "padded": (lambda x: x[:N].pad((0, 0, 1, 2)), lambda a, n: np.pad(a[:n], ((1, 2), (0, 0)))),
    "the size as a number": (lambda x: x / N, lambda a, n: a / np.float32(n)),
    "from the end": (lambda x: x[-N:] + 1, lambda a, n: a[-n:] + 1),
    "sizes of a size": (
        lambda x: x[: (N + 1) // 2].sum(0) + x[8 - N],
        lambda a, n: a[: (n + 1) // 2].sum(0) + a[8 - n],
    ),
    "repeated": (lambda x: x[:1].repeat(N, 1) + x[:N], lambda a, n: a[:1] + a[:n]),
    "split": (lambda x: x.split((N, 8 - N))[1].cat(x[:N], dim=0), lambda a, n: np.concatenate([a[n:], a[:n]])),
    "two kernels": (lambda x: (x[:N] - x[:N].sum()).contiguous() * 3, lambda a, n: (a[:n] - a[:n].sum()) * 3),
}


@pytest.mark.sweep
@pytest.mark.parametrize("device", ["cpu", "python"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_plan_for_every_value(name: str, device: str) -> None:
    ours, theirs = PROGRAMS[name]
    x = Tensor(X, device=device).realize()
    with N.bind(3):
        np.testing.assert_allclose(ours(x).numpy(), theirs(X, 3), rtol=1e-5)
    before, made = len(plans), profile.counts["schedules"]
    for n in (1, 8, 5):
        with N.bind(n):
            got = ours(x).numpy()
        assert got.shape == theirs(X, n).shape
        np.testing.assert_allclose(got, theirs(X, n), rtol=1e-5)
    assert (len(plans), profile.counts["schedules"]) == (before, made)


def test_without_the_optimizer() -> None:
    x = Tensor(X).realize()
    with Context(NOOPT=1), N.bind(4):
        np.testing.assert_allclose(x[:N].sum(1).numpy(), X[:4].sum(1))


def test_a_value_is_checked_when_it_is_bound() -> None:
    for value in (0, 9, 2.0, "3"):
        with pytest.raises(ArgumentError, match="value of rows"), N.bind(value):  # type: ignore[arg-type]
            pass


def test_integers_of_numpy_are_bound() -> None:
    for value in (np.int64(3), np.uint8(3), np.arange(4)[3]):
        with N.bind(value):
            assert Tensor(X)[:N].sum(0).tolist() == X[:3].sum(0).tolist()


def test_an_unbound_variable_is_named() -> None:
    with pytest.raises(ArgumentError, match="Variable rows is not bound"):
        Tensor(X)[:N].numpy()


def test_bindings_nest_and_end() -> None:
    x = Tensor(X).realize()
    with N.bind(2):
        with N.bind(5):
            assert x[:N].numpy().shape == (5, 3)
        assert x[:N].numpy().shape == (2, 3)
    with pytest.raises(ArgumentError, match="not bound"):
        x[:N].numpy()


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_capture_for_every_value(name: str) -> None:
    ours, theirs = PROGRAMS[name]
    f = jit(ours)
    with N.bind(3):
        f(Tensor(X))
    made = profile.counts["schedules"]
    kept = []
    for n in (1, 8, 5, 3):
        with N.bind(n):
            got = f(Tensor(X + n))
            kept.append((got, theirs(X + n, n)))
            assert got.shape == kept[-1][1].shape
    for got, want in kept:
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)
    assert len(f.captures) == 1 and profile.counts["schedules"] == made
    with pytest.raises(ArgumentError, match="rows is not bound"):
        f(Tensor(X))


def test_a_growing_cache_decodes_in_one_capture_without_work_on_its_rest() -> None:
    length, d = 64, 8
    place = Variable("place", 0, length - 1)
    rng = np.random.default_rng(0)
    w = rng.standard_normal((d, 3 * d)).astype(np.float32)
    keys, values = (Tensor(np.zeros((length, d), np.float32)).clone().realize() for _ in range(2))
    weights = Tensor(w).realize()

    @jit
    def step(x: Tensor) -> Tensor:
        q, k, v = (x @ weights).split(d, dim=1)
        keys[place.uop : place.uop + 1] = k
        values[place.uop : place.uop + 1] = v
        seen = place.uop + 1
        return (q @ keys[:seen].T).softmax(1) @ values[:seen]

    xs = rng.standard_normal((length, 1, d)).astype(np.float32)
    k, v = xs[:, 0] @ w[:, d : 2 * d], xs[:, 0] @ w[:, 2 * d :]
    for n in range(12):
        if n == 2:
            made = dict(profile.counts)  # schedules, kernels compiled, and the time of both
        with place.bind(n):
            got = step(Tensor(xs[n])).numpy()
        scores = np.exp(xs[n] @ w[:, :d] @ k[: n + 1].T)
        np.testing.assert_allclose(got, scores / scores.sum() @ v[: n + 1], rtol=1e-4)
    assert profile.counts == made and len(step.captures) == 1
    np.testing.assert_allclose(keys.numpy()[:12], k[:12], rtol=1e-4)
    with profile.Recorder() as kernels, place.bind(12):
        step(Tensor(xs[12]))
    assert not [r.name for r in kernels if str(length * d) in r.name], "a kernel walks all of the cache"
    loops = [r.src[0] for k in kernels for r in toposort(k.call.src[0]) if r.op == "RANGE"]
    constant = [n.value for n in loops if n.op == "CONST"]
    assert len(constant) < len(loops) and max(constant) < length, "loops over the cache end where it does now"


def test_a_value_of_symbolic_size_that_is_computed_in_between_is_refused() -> None:
    def step(x: Tensor) -> Tensor:
        y = (x[:N] * 2).realize()
        return y + 1

    with N.bind(2), pytest.raises(JitError, match="symbolic size, then reads it"):
        jit(step)(Tensor(X))


LONG = Variable("long", 0, 9)  # more than X has rows
OTHER = Variable("other", 1, 8)


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x[:LONG], lambda x: x[LONG], lambda x: x[LONG:], lambda x: x[-LONG:], lambda x: x[OTHER:N],
        lambda x: x[: N - 2], lambda x: x[:N][:3], lambda x: x.narrow(0, N, 3), lambda x: x.narrow(0, 0, LONG),
        lambda x: x.split((LONG, 8 - LONG))[0], lambda x: x.pad((0, 0, 0, 4 - N)), lambda x: x[:1].expand(N - 3, 3),
        lambda x: Tensor.zeros(N - 2), lambda x: Tensor.arange(N - 2), lambda x: x[:1].repeat(4 - N, 1),
        lambda x: x[:OTHER].gather(1, Tensor.zeros(8, 3, dtype="int64")[:N]),
        lambda x: x.clone().scatter(0, Tensor.zeros(8, 3, dtype="int64")[:N], x[:OTHER]),
        lambda x: x.clone().__setitem__(LONG.uop, 1.0), lambda x: x[:N].conv1d(Tensor.ones(3, 3, 1)),
    ],
)  # fmt: skip
def test_what_may_leave_an_axis_for_some_value_is_refused(part) -> None:
    with N.bind(1), OTHER.bind(1), LONG.bind(1), pytest.raises((ShapeError, IndexRangeError, ArgumentError)):
        part(Tensor(X).realize()).numpy()


def test_a_variable_alone_is_a_number_once_it_has_a_type() -> None:
    number = jit(lambda: Tensor(N.uop).cast("int32").expand(2))
    for n in (3, 5):
        with N.bind(n):
            assert number().tolist() == [n, n] and Tensor(N.uop).float().item() == n
            with pytest.raises(DTypeError, match="no storage"):
                Tensor(N.uop).numpy()


def test_bad_variables() -> None:
    with pytest.raises(ArgumentError, match="identifier"):
        Variable("a b", 1, 2)
    with pytest.raises(ArgumentError, match="min <= max"):
        Variable("a", 3, 2)


BLOCKS = Variable("blocks", 4, 16, multiple_of=4)
Y = np.arange(48, dtype=np.float32).reshape(16, 3)


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_a_multiple_is_one_plan_too_alone_and_captured(device: str) -> None:
    y = Tensor(Y, device=device).realize()
    programs = [
        (lambda y: y[:BLOCKS].sum(0), lambda a: a.sum(0)),
        (lambda y: y[:BLOCKS] * 2 + 1, lambda a: a * 2 + 1),
        (lambda y: y[:BLOCKS].reshape(-1), lambda a: a.reshape(-1)),
    ]
    for ours, theirs in programs:
        step = jit(ours)
        with BLOCKS.bind(4):
            step(y), ours(y).numpy()
        before = len(plans)
        for n in (16, 8, 12):
            with BLOCKS.bind(n):
                np.testing.assert_allclose(ours(y).numpy(), theirs(Y[:n]), rtol=1e-6)
                np.testing.assert_allclose(step(y).numpy(), theirs(Y[:n]), rtol=1e-6)
        assert len(plans) == before


ROWS = Variable("rows_of_16", 0, 96, multiple_of=16)


@pytest.mark.parametrize("width", [1, 3, 16])
def test_an_axis_whose_divisor_is_known_is_a_vector(width: int) -> None:
    a = np.random.default_rng(width).standard_normal((width, 96)).astype(np.float32)
    x = Tensor(a).realize()
    programs = [
        (lambda x: x[:, :ROWS] * 2 + 1, lambda a: a * 2 + 1),
        (lambda x: x[:, :ROWS].sum(0), lambda a: a.sum(0)),
        (lambda x: x[:, :ROWS].sum(1), lambda a: a.sum(1)),
        (lambda x: (x[:, :ROWS] * x[:, :ROWS].sum(1, keepdim=True)).contiguous(), lambda a: a * a.sum(1)[:, None]),
    ]
    for k, (ours, theirs) in enumerate(programs):
        with ROWS.bind(32), Context(COMPILE_CACHE=0), profile.Recorder() as kernels:
            ours(x).realize()
        made = profile.counts["schedules"]
        if k < 2 and width > 1:
            sources = [loaded[r.call.src[0]].source for r in kernels]
            assert any("x float>" in source for source in sources), sources[-1]
        for n in (0, 16, 32, 80, 96):
            with ROWS.bind(n):
                np.testing.assert_allclose(ours(x).numpy(), theirs(a[:, :n]), rtol=1e-4, atol=1e-5)
        assert profile.counts["schedules"] == made


def test_rows_of_symbolic_size_are_shared_out_by_an_axis_that_is_not() -> None:
    n = Variable("rows_between", 16, 64)
    x = Tensor(np.ones((64, 64, 64), np.float32)).realize()
    with n.bind(17), profile.Recorder() as kernels:
        np.testing.assert_array_equal((x[:, :n] * 2).numpy(), np.full((64, 17, 64), 2.0, np.float32))
    assert [loaded[k.call.src[0]].n_threads for k in kernels] == [Device["cpu"].target.n_threads]


def test_threads_take_rows_of_symbolic_size_in_turns() -> None:
    n = Variable("rows_in_turns", 0, 2048)
    a = np.random.default_rng(0).standard_normal((2048, 256)).astype(np.float32)
    x = Tensor(a).realize()
    for k in (0, 1, 2, 3, 1000, 2048):
        with n.bind(k), profile.Recorder() as kernels:
            np.testing.assert_allclose(x[:n].softmax(1).numpy(), np.exp(a[:k]) / np.exp(a[:k]).sum(1)[:, None], 1e-5)
        assert {loaded[r.call.src[0]].n_threads for r in kernels} == {Device["cpu"].target.n_threads}


def test_a_transformer_over_tokens_of_symbolic_number_is_one_capture() -> None:
    most, d, heads = 48, 32, 4
    n = Variable("tokens", 1, most)
    rng = np.random.default_rng(0)
    sizes = {"q": (d, d), "k": (d, d), "v": (d, d), "o": (d, d), "up": (d, 4 * d), "down": (4 * d, d), "table": (50, d)}
    w = {k: Tensor((rng.standard_normal(s) * 0.2).astype(np.float32)).realize() for k, s in sizes.items()}
    ids = Tensor(rng.integers(0, 50, most)).realize()

    def model(ids: Tensor, tokens) -> Tensor:
        x = w["table"][ids[:tokens]]
        for _ in range(2):
            h = x.layer_norm((d,))
            q, k, v = ((h @ w[c]).reshape(tokens, heads, d // heads).transpose(0, 1) for c in "qkv")
            a = q.scaled_dot_product_attention(k, v, is_causal=True)
            x = x + a.transpose(0, 1).reshape(tokens, d) @ w["o"]
            x = x + (x.layer_norm((d,)) @ w["up"]).gelu() @ w["down"]
        return x @ w["table"].T

    step = jit(lambda ids: model(ids, n))
    whole = model(ids, most).numpy()  # no token sees those after it
    for k in (3, 10, most, 33, 1):
        with n.bind(k):
            got = step(ids)
        assert got.shape == (k, 50)
        np.testing.assert_allclose(got.numpy(), whole[:k], rtol=2e-4, atol=2e-4)
    assert len(step.captures) == 1


def test_what_is_no_multiple_is_refused() -> None:
    for value in (5, 2, 20):
        with pytest.raises(ArgumentError, match="value of blocks"), BLOCKS.bind(value):
            pass
    for bad in (0, -4, 3, 2.0):
        with pytest.raises(ArgumentError, match="multiple_of of Variable n"):
            Variable("n", 4, 16, multiple_of=bad)  # type: ignore[arg-type]
    assert repr(BLOCKS) == "Variable('blocks', 4, 16, multiple_of=4)"


def test_errors_name_a_variable_of_multiples_as_the_user_did():
    one, other = Variable("said_twice", 4, 8, multiple_of=4), Variable("said_twice", 4, 16, multiple_of=4)
    x = Tensor.ones(16).realize()
    with one.bind(4), other.bind(8), pytest.raises(ArgumentError, match="two Variables named said_twice\n") as caught:
        (x[: one.uop].sum() + x[: other.uop].sum()).item()
    assert "4..8 and 4..16" in str(caught.value) or "4..16 and 4..8" in str(caught.value)
    with pytest.raises(ArgumentError, match="name of a Variable"):
        Variable("said__by_4", 1, 2)


WIDTH = Variable("width", 4, 32, multiple_of=4)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_products_along_an_axis_of_symbolic_size(dtype: str) -> None:
    a = np.random.default_rng(0).integers(-9, 9, (31, 32)).astype(dtype)
    x = Tensor(a).realize()
    for n in (4, 32, 12):
        with WIDTH.bind(n):
            np.testing.assert_array_equal((x[:, :WIDTH] @ x[:, :WIDTH].T).numpy(), a[:, :n] @ a[:, :n].T)


@pytest.mark.parametrize("width", [1, 5, 20, 64])
def test_products_of_rows_of_symbolic_number_with_each_other(width: int) -> None:
    a = np.random.default_rng(0).integers(-9, 9, (8, width)).astype(np.float32)
    x = Tensor(a).realize()
    product = jit(lambda x: x[:N] @ x[:N].T)
    for n in (1, 8, 3):
        with N.bind(n):
            np.testing.assert_array_equal(product(x).numpy(), a[:n] @ a[:n].T)


def test_heads_of_symbolic_width() -> None:
    a = np.random.default_rng(0).standard_normal((2, 5, 32)).astype(np.float32)
    x = Tensor(a).realize()
    for n in (4, 32, 12):
        e = np.exp(a[..., :n] @ a[..., :n].swapaxes(1, 2) / np.sqrt(n))
        with WIDTH.bind(n):
            part = x[..., :WIDTH]
            got = part.scaled_dot_product_attention(part, part).numpy()
        np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True) @ a[..., :n], rtol=1e-4, atol=1e-5)


def test_a_comparison_of_sizes_is_no_condition_unless_it_holds_for_every_value() -> None:
    n = Tensor(X)[:N].shape[0]
    assert n < 9 and not n < 1 and n >= 1 and n <= 8 and not n > 8 and max(n, 1) is n and min(n, 20) is n
    for compare in (lambda: bool(n < 3), lambda: max(n, 4), lambda: 3 if n >= 4 else 5):
        with pytest.raises(ShapeError, match="a comparison of symbolic sizes is no condition"):
            compare()


@pytest.mark.parametrize("made", [lambda x, n: x[:n].sum(), lambda x, n: (x * 2)[:n].cumsum(0).sum()])
def test_an_expression_of_a_step_that_stands_outside_too_takes_each_value(made):
    """Equal expressions are one node: that of the tensor outside was computed once, and the step returned that."""
    n, x = Variable("n", 1, 9), Tensor(np.arange(9, dtype=np.float32))
    outside = made(x, n)
    step = jit(lambda: made(x, n))
    for value in (1, 9, 3, 2):
        with n.bind(value):
            assert step().item() == made(x.numpy(), value)
    assert len(step.captures) == 1 and outside.uop.op != "BUFFER"


def test_what_a_variable_takes_a_part_of_is_computed_once():
    n, drawn = Variable("n", 1, 9), Tensor.rand(9)
    part = drawn[:n]
    step = jit(lambda: part.sum())
    sums = []
    for value in (1, 9, 3, 9):
        with n.bind(value):
            sums.append(step().item())
    np.testing.assert_allclose(sums, [drawn.numpy()[:value].sum() for value in (1, 9, 3, 9)], rtol=1e-6)


def test_variables_of_multiples_are_others_than_those_of_their_counts():
    four, one = Variable("n", 4, 8, multiple_of=4), Variable("n", 1, 2)
    x = Tensor(np.arange(8, dtype=np.float32))
    step = jit(lambda: (x[:four].sum(), x[:one].sum()))
    for a, b in ((4, 2), (8, 1)):
        with four.bind(a), one.bind(b):
            assert [t.item() for t in step()] == [x.numpy()[:a].sum(), x.numpy()[:b].sum()]
    with one.bind(2), pytest.raises(ArgumentError, match=r"Variable n is not bound(.|\n)*4\.\.8"):
        x[:four].sum().item()


@pytest.mark.parametrize("precompile", [False, True])
def test_a_function_that_stores_a_part_stores_it_where_it_is_at_the_call(precompile):
    n, cache = Variable("n", 0, 3), Tensor.zeros(4).contiguous().realize()

    @function(precompile=precompile)
    def append(x):
        cache[n : n + 1] = x
        return cache[: n + 1].sum()

    for value in range(4):
        with n.bind(value):
            assert append(Tensor([value + 1.0])).item() == sum(range(value + 2))
    assert cache.tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("traced", [False, True])
def test_what_is_assigned_is_computed_at_the_value_of_then(traced):
    """Nobody reads in between: each assignment belongs to the value that was bound when it was written."""
    n = Variable("assigned", 0, 3)

    def put(cache, total, x):
        cache[n : n + 1] = x[n : n + 1] * 2
        total.assign(total + x[n : n + 1])
        return total

    put = function(put) if traced else put
    x, cache, total = Tensor([1.0, 2.0, 3.0, 4.0]), Tensor.zeros(4), Tensor.zeros(1)
    for value in range(4):
        with n.bind(value):
            put(cache, total, x)
    assert cache.tolist() == [2.0, 4.0, 6.0, 8.0] and total.tolist() == [10.0]


def test_a_binding_within_a_binding_computes_what_was_assigned_before():
    n, t = Variable("nested", 0, 3), Tensor.zeros(4)
    with n.bind(1):
        t[n : n + 1] = 5
        with n.bind(2):
            t[n : n + 1] = 6
        t[n : n + 1] += 1
    assert t.tolist() == [0.0, 6.0, 6.0, 0.0]


def test_a_block_that_raises_has_stored_what_came_before():
    n, t = Variable("raising", 0, 3), Tensor.zeros(4)
    with pytest.raises(KeyError), n.bind(1):
        t[n : n + 1] = 5
        raise KeyError
    assert t.tolist() == [0.0, 5.0, 0.0, 0.0]


def test_what_another_variable_steers_waits_for_that():
    n, m, t = Variable("bound", 0, 3), Variable("unbound", 0, 3), Tensor.zeros(4)
    with n.bind(1):
        t[m : m + 1] = 5
    assert (Tensor([1.0]) + 1).tolist() == [2.0]
    with pytest.raises(ArgumentError, match="unbound is not bound"):
        t.tolist()


def test_a_variable_of_one_value_is_that_number() -> None:
    one, four = Variable("one", 1, 1), Variable("four", 4, 4, 4)
    a, b = Tensor(np.full((1, 1), 3.0, np.float32)).realize(), Tensor(X[:1]).realize()
    w = b.detach()
    w.requires_grad = True
    with one.bind(1), four.bind(4):
        out = a[:, :one] @ w[:one]
        (out * out).sum().backward()
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), 2 * 9 * X[:1])
        assert Tensor(X)[:four].shape == (4, 3) and Tensor(X)[: one + 1].sum(0).tolist() == X[:2].sum(0).tolist()
        assert jit(lambda n: Tensor(X)[:n] * 2)(four).shape == (4, 3)
    with pytest.raises(ArgumentError):
        one.bind(2)
    assert one == Variable("one", 1, 1) != Variable("other", 1, 1) and hash(one) == hash(Variable("one", 1, 1))


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_sizes_are_compared_as_products_are_multiplied_out(rows: int) -> None:
    n, m = Variable("rows_before_the_last", 1, 7), Variable("columns", 2, 3)
    x = Tensor(X).realize()
    for columns in (2, 3):
        with n.bind(rows), m.bind(columns):
            part = X[: rows + 1, : columns - 1]
            ours = x[: n + 1, : m - 1]
            np.testing.assert_array_equal(ours.repeat(2, 2).numpy(), np.tile(part, (2, 2)))
            flat = ours.reshape(n * (m - 1) + m - 1)
            np.testing.assert_array_equal(flat.numpy(), part.reshape(-1))
            again = (ours * 2).unsqueeze(0).expand(m, -1, -1).reshape(m * (n + 1), m - 1)
            np.testing.assert_array_equal(again.numpy(), np.tile(part * 2, (columns, 1)))
    for wrong in ((n, m), (n + 1, m), ((n + 1) * m,), (n * (m - 1),)):
        with pytest.raises(ShapeError, match="number of elements"):
            x[: n + 1, : m - 1].reshape(*wrong)


def test_backward_through_a_value_of_symbolic_size_that_was_computed_is_refused() -> None:
    x = Tensor(X, requires_grad=True)
    with N.bind(3):
        y = x[:N] * x[:N]
        loss = y.sum()
        y.numpy()
        with pytest.raises(GradientError, match="a value of symbolic size that was computed before"):
            (y * 2.0).sum().backward()
        loss.backward()
        np.testing.assert_allclose(x.grad.numpy()[:3], 2 * X[:3], rtol=1e-6)


AT = Variable("at", 0, 7)
SELECTED = {
    "times one": (lambda x: x[AT] * 1, lambda a, k: a[k]),
    "rows times one": (lambda x: x[:AT] * 1, lambda a, k: a[:k]),
    "a view of that": (lambda x: (x[AT] * 1).reshape(3, 1), lambda a, k: a[k].reshape(3, 1)),
    "all of that": (lambda x: (x[AT] * 1).detach(), lambda a, k: a[k]),
    "a copy": (lambda x: x[AT].clone(), lambda a, k: a[k]),
    "a sum": (lambda x: x[AT] + 1, lambda a, k: a[k] + 1),
}


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [lambda f: f, jit, function])
@pytest.mark.parametrize("name", SELECTED)
def test_a_computed_part_stays_that_of_the_value_it_was_computed_at(name: str, wrap: Callable) -> None:
    ours, theirs = SELECTED[name]
    x, step = Tensor(X).realize(), wrap(ours)
    results = []
    for k in (3, 5):
        with AT.bind(k):
            results.append(step(x).realize())
    with AT.bind(1):
        for k, y in zip((3, 5), results, strict=True):
            np.testing.assert_array_equal(y.numpy(), theirs(X, k))


@pytest.mark.parametrize("is_computed", [False, True])
def test_a_view_of_a_part_follows_the_variable(is_computed: bool) -> None:
    x = Tensor(X) + 1
    if is_computed:
        x.realize()
    row = x[AT]
    for k in (3, 5):
        with AT.bind(k):
            np.testing.assert_array_equal(row.numpy(), X[k] + 1)


def test_a_gradient_is_that_of_the_value_at_backward() -> None:
    x = Tensor(X, requires_grad=True)
    for k in (3, 5):
        with AT.bind(k):
            _ = (x[AT] * x[AT]).sum().backward()
    wanted = np.zeros_like(X)
    wanted[3], wanted[5] = 2 * X[3], 2 * X[5]
    with AT.bind(1):
        np.testing.assert_array_equal(x.grad.numpy(), wanted)


def test_backward_at_another_value_than_the_computed_one_is_refused() -> None:
    x = Tensor(X, requires_grad=True)
    with AT.bind(3):
        y = x[AT].exp().realize()
        x[AT].exp().realize().sum().backward()
    with AT.bind(5), pytest.raises(GradientError, match="another value of a Variable"):
        y.sum().backward()
    with pytest.raises(GradientError, match="another value of a Variable"):
        y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy()[3], np.exp(X[3]), rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda f: f, jit], ids=["eager", "captured"])
def test_a_computed_value_without_elements_has_the_bound_size(wrap: Callable) -> None:
    f = wrap(lambda x: (x[:N, :0] * 2, x[:N, 1:1].sum(0), Tensor.zeros(0, N)))
    for k in (3, 5, 3):
        with N.bind(k):
            found = [t.numpy() for t in f(Tensor(X))]
        assert [a.shape for a in found] == [(k, 0), (0,), (0, k)]
