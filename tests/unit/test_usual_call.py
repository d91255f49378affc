"""The usual call of a captured step: results are nobody else's, and what makes a call an unusual one is seen."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

from monolect import Context, Tensor, function, jit, nn
from monolect.capture.fast_path import MAX_REUSED_BYTES
from monolect.runtime import profile
from monolect.runtime.replay.capture import has_lock


def vector(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


def plus_one():
    """A step of which usual calls are expected."""
    f = jit(lambda x: x + 1)
    for _ in range(2):
        f(vector(0.0, 0.0))
    assert f.usual is not None
    return f


def test_a_loop_takes_the_nodes_and_the_memory_of_results_that_went():
    f, x, seen = plus_one(), vector(1.0, 2.0), []
    for _ in range(8):
        x = f(x)
        seen.append((id(x.uop), x.uop.storage.address))
    assert x.tolist() == [9.0, 10.0] and len(set(seen[2:])) == 2


HOLDERS = {
    "the tensor": (lambda y: y, [2.0, 3.0]),
    "a view": (lambda y: y[1:], [3.0]),
    "an element": (lambda y: y[0], 2.0),
    "a graph": (lambda y: y * 2, [4.0, 6.0]),
    "an array": (lambda y: y.numpy(), [2.0, 3.0]),
    "an array over DLPack": (lambda y: np.from_dlpack(y), [2.0, 3.0]),
    "its memory": (lambda y: y.uop.storage.view(np.float32)[:2], [2.0, 3.0]),
    "a leaf": (lambda y: y.requires_grad_() * 3, [6.0, 9.0]),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_what_somebody_holds_is_not_written_over(name):
    hold, want = HOLDERS[name]
    f = plus_one()
    held = hold(f(vector(1.0, 2.0)))
    later = [f(vector(float(k), 0.0)) for k in range(4)]
    assert [t.tolist() for t in later] == [[k + 1.0, 1.0] for k in range(4)]
    assert held.tolist() == want


def test_a_node_somebody_only_refers_to_does_not_come_to_mean_another():
    f = plus_one()
    gone = weakref.ref(f(vector(1.0, 2.0)).uop)
    kept = [f(vector(0.0, 0.0)) for _ in range(4)]
    assert gone() is None and kept


VIEWS = {
    "of what was made": (lambda x: (x + 1)[::-1], lambda x: (x + 1)[::-1]),
    "of an argument": (lambda x: x.reshape(1, 2).flip(1), lambda x: x[None, ::-1]),
    "the argument": (lambda x: x, lambda x: x),
    "some of each": (lambda x: (x[1:], x * 2, (x * 2)[:1], Tensor([3.0])), lambda x: (x[1:], x * 2, x[:1] * 2, [3.0])),
}


@pytest.mark.parametrize("name", VIEWS)
def test_results_may_be_views(name):
    f, want = VIEWS[name]
    step = jit(f)
    kept = []
    for k in range(5):
        x = np.array([k, 2 * k + 1], np.float32)
        kept.append((step(vector(*x)), want(x)))
    assert step.usual is not None
    for got, wanted in kept:
        pairs = zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
        for g, w in pairs:
            np.testing.assert_array_equal(g.numpy(), w)


def test_a_large_result_is_not_kept():
    f, x = jit(lambda x: x * 2), Tensor(np.ones(MAX_REUSED_BYTES // 4 + 1, np.float32)).realize()
    for _ in range(3):
        y = f(x)
    memory = weakref.ref(y.uop.storage)
    del y
    assert f.usual is not None and memory() is None


def test_nodes_are_numbered_in_the_order_of_the_calls():
    f, x = plus_one(), vector(1.0, 2.0)
    numbers = []
    for _ in range(6):
        x = f(x)
        numbers.append(x.uop.serial)
    assert numbers == sorted(set(numbers))


def test_results_in_any_tree_and_arguments_in_any_order():
    f = jit(lambda a, b: (a - b, {"sum": a + b, "all": [b - a]}))
    x, y = vector(1.0, 2.0), vector(3.0, 5.0)
    for a, b in ((x, y), (x, y), (y, x), (x, y)):
        d, rest = f(a, b)
        assert d.tolist() == (a.numpy() - b.numpy()).tolist() and rest["all"][0].tolist() == (-d.numpy()).tolist()
        assert rest["sum"].tolist() == [4.0, 7.0]
    assert f.usual is not None and f(x, x)[0].tolist() == [0.0, 0.0]


def test_a_step_inside_another_is_a_part_of_it():
    inner, w = jit(lambda x: x * w), vector(2.0)
    for k in range(3):
        assert inner(vector(float(k))).item() == 2.0 * k
    outer = jit(lambda x: inner(x) + inner(w))
    for k in range(4):
        assert outer(vector(float(k))).item() == 2.0 * k + 4.0
    w.assign(Tensor([3.0]))
    assert outer(vector(1.0)).item() == 12.0 and inner(vector(1.0)).item() == 3.0
    traced = function(lambda x: inner(x) + 1)
    assert [traced(vector(float(k))).item() for k in range(3)] == [1.0, 4.0, 7.0]


def test_a_step_inside_another_updates_its_state_there():
    c = vector(0.0)

    @jit
    def count(x):
        c.assign(c + x)
        return c * 1

    for _ in range(3):
        count(vector(1.0))
    outer = jit(lambda x: count(x) + count(x))
    assert [outer(vector(1.0)).item() for _ in range(4)] == [9.0, 13.0, 17.0, 21.0] and c.item() == 11.0


def test_what_is_around_a_step_inside_another_is_around_that_too():
    number = 2.0

    class Model:
        @jit
        def scaled(self, x):
            return x * self.scale

    model = Model()
    model.scale = 3.0
    inner = jit(lambda x: x * number)
    outer = jit(lambda x: inner(x) + model.scaled(x))
    got = [outer(vector(1.0)).item() for _ in range(3)]
    number, model.scale = 20.0, 3.0
    got.append(outer(vector(1.0)).item())
    model.scale = 30.0
    assert [*got, outer(vector(1.0)).item()] == [5.0, 5.0, 5.0, 23.0, 50.0]


def test_a_cell_that_was_emptied_is_an_error_of_the_function():
    scale = 2.0
    f = jit(lambda x: x * scale)  # noqa: F821
    for _ in range(3):
        assert f(vector(1.0)).item() == 2.0
    del scale
    with pytest.raises(NameError):
        f(vector(1.0))


def test_an_attribute_that_is_gone_or_comes_is_seen():
    class Scale:
        factor = 2.0

        def __call__(self, x):
            return x * self.factor

    scale, x = Scale(), Tensor([1.0]).realize()
    scale.factor = 3.0
    f = jit(scale)
    assert [f(x).item() for _ in range(3)] == [3.0] * 3 and f.usual is not None
    del scale.factor
    assert [f(x).item() for _ in range(3)] == [2.0] * 3 and f.usual is not None
    scale.factor = 5.0
    assert f(x).item() == 5.0
    del scale.factor, Scale.factor
    with pytest.raises(AttributeError):
        f(x)


def test_state_and_constants_are_looked_at_in_each_call():
    w, c = vector(1.0, 1.0), vector(0.0, 0.0)

    @jit
    def step(x):
        c.assign(c + x)
        return x * w

    x = vector(1.0, 2.0)
    for _ in range(4):
        step(x)
    assert step.usual is not None
    seen = c.numpy()
    w.assign(Tensor([5.0, 5.0]))
    assert step(x).tolist() == [5.0, 10.0] and seen.tolist() == [4.0, 8.0] and c.tolist() == [5.0, 10.0]
    c.assign(Tensor([0.0, 0.0]))
    step(x)
    assert c.tolist() == [1.0, 2.0]


def test_a_call_under_debug_is_seen(capsys):
    f = plus_one()
    with Context(DEBUG=2):
        f(vector(1.0, 2.0))
    assert "r cpu " in capsys.readouterr().err  # the number before it counts all kernels of the process
    with profile.Recorder() as kernels:
        f(vector(1.0, 2.0))
    assert len(kernels) == 1


@pytest.mark.parametrize("n", [4, 1 << 16])  # one that keeps the interpreter, and one that lets others have it
def test_threads_get_their_own_results(n):
    f, wrong = jit(lambda x: x * 3 + 1), []
    for _ in range(2):
        f(Tensor(np.zeros(n, np.float32)).realize())
    capture = next(iter(f.captures.values())).capture
    assert f.usual is not None and (capture.short is not None) == (n == 4 and has_lock())

    def work(k: int) -> None:
        x, kept = Tensor(np.full(n, k, np.float32)).realize(), []
        for _ in range(300):
            kept = [*kept[-2:], f(x)]
            wrong.extend(k for y in kept if y.numpy()[-1] != 3 * k + 1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_a_step_that_is_dropped_leaves_nothing():
    w = vector(1.0, 2.0)
    f = jit(lambda x: x * w)  # noqa: F821
    for _ in range(3):
        f(vector(1.0, 1.0))
    gone = weakref.ref(w.uop)
    gc.disable()
    try:
        del f, w
        assert gone() is None, "nothing has to be found by the garbage collector"
    finally:
        gc.enable()


def test_what_a_call_uses_lives_as_long_as_the_call():
    f = plus_one()
    call, capture = f.usual, weakref.ref(next(iter(f.captures.values())).capture)
    f.captures.clear()
    del f
    gc.collect()
    assert capture() is not None and call(vector(1.0, 2.0)).tolist() == [2.0, 3.0]
    del call
    assert capture() is None


def test_a_call_with_anything_else_goes_the_general_way_once():
    @jit
    def step(x, scale=None):
        if scale == "wrong":
            raise ValueError(scale)
        return x * (2.0 if scale is None else scale)

    x = vector(1.0, 2.0)
    for _ in range(3):
        step(x)
    assert step.usual is not None
    assert step(x=x).tolist() == [2.0, 4.0] and step(x, 3.0).tolist() == [3.0, 6.0]
    for _ in range(3):
        step(x)
    with pytest.raises(ValueError, match="wrong") as raised:
        step(x, scale="wrong")
    assert raised.value.__context__ is None, "the function ran once, and in no handler of ours"
    with pytest.raises(TypeError, match="positional argument"):
        step()


def test_a_step_is_gone_when_it_is_dropped_and_its_call_outlives_it():
    f = plus_one()
    gc.collect()
    gc.disable()
    try:
        gone, call = weakref.ref(f), jit(lambda x: x + 2.0).__call__
        del f
        assert gone() is None
    finally:
        gc.enable()
    assert call(vector(1.0)).tolist() == call(vector(1.0)).tolist() == [3.0]


class Deep:
    def __init__(self, n: int) -> None:
        self.layers = [nn.Linear(4, 4) for _ in range(n)]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


@pytest.mark.sweep
@pytest.mark.parametrize("hoist", [0, 1], ids=["at every call", "once"])
@pytest.mark.parametrize("n", [2, 60], ids=["a line each", "tables"])
def test_a_deep_model_has_a_usual_call_that_sees_any_change(n, hoist) -> None:
    model = Deep(n)
    step, x = jit(lambda x: model(x)), Tensor(np.ones((2, 4), np.float32)).realize()
    near = 1e-5 if hoist else 0  # what is packed once may be added in another order
    with Context(HOIST=hoist):
        for _ in range(3):
            step(x)
        assert step.usual is not None
        for change in (
            lambda: setattr(model.layers[-1], "bias", None),
            lambda: model.layers.append(nn.Linear(4, 4)),
            lambda: model.layers[0].weight.requires_grad_(False),
            lambda: setattr(model.layers[1], "extra", 1),
        ):
            change()
            for _ in range(4):
                np.testing.assert_allclose(step(x).numpy(), model(x).numpy(), rtol=near, atol=near / 100)
            assert step.usual is not None
