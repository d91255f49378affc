"""A call of a step or a `@function` that fails leaves everything as it was, in other calls and captures, too."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from monolect import ArgumentError, Context, GradientError, IndexRangeError, JitError, Tensor, function, jit
from monolect.capture import recording

WRAPS = {"jit": jit, "function": function}


def vector(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


@pytest.fixture
def world() -> SimpleNamespace:
    return SimpleNamespace(
        u=vector(1.0, 2.0), w=Tensor(np.array([1.0, 2.0], np.float32), requires_grad=True), fails=True
    )


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_random_numbers_of_a_failed_call_are_drawn_again(wrap, world):
    @wrap
    def draw(x: Tensor) -> Tensor:
        numbers = Tensor.rand(2)
        if world.fails:
            raise ValueError
        return numbers + x * 0

    Tensor.manual_seed(1)
    wanted = [Tensor.rand(2).tolist() for _ in range(3)]
    Tensor.manual_seed(1)
    early = Tensor.rand(2)  # not computed before the call
    for _ in range(2):
        with pytest.raises(ValueError):
            draw(vector(1.0, 1.0))
    world.fails = False
    assert [early.tolist(), draw(vector(1.0, 1.0)).tolist(), Tensor.rand(2).tolist()] == wanted


def test_random_numbers_are_drawn_again_where_the_error_comes_after_the_trace(world):
    def nothing(x: Tensor) -> float:
        Tensor.rand(2)
        return 1.0

    def writes(x: Tensor) -> Tensor:
        x += Tensor.rand(2)
        return world.u * 1

    Tensor.manual_seed(1)
    wanted = Tensor.rand(2).tolist()
    Tensor.manual_seed(1)
    with pytest.raises(ArgumentError, match="returns Tensors"):
        function(nothing)(vector(1.0, 1.0))
    with pytest.raises(JitError, match="shares"):
        function(writes)(world.u[:])
    assert Tensor.rand(2).tolist() == wanted


def test_a_failed_function_leaves_leaves(world):
    @function
    def freeze(x: Tensor) -> Tensor:
        world.w.requires_grad_(False)
        if world.fails:
            raise ValueError
        return x * 1

    with pytest.raises(ValueError):
        freeze(vector(1.0))
    assert world.w.requires_grad
    (world.w * 3).sum().backward()
    assert world.w.grad.tolist() == [3.0, 3.0]

    @jit
    def outer(x: Tensor) -> Tensor:
        world.fails = False  # read by the trace
        freeze(x)
        raise ValueError

    with pytest.raises(ValueError):
        outer(vector(1.0))
    assert world.w.requires_grad
    outer_function = function(lambda x: (world.w.requires_grad_(False), x.backward())[0])
    with pytest.raises((GradientError, JitError)):
        outer_function(vector(1.0))
    assert world.w.requires_grad


@pytest.mark.parametrize("outer", [lambda f: f, jit, function], ids=["plain", "jit", "function"])
@pytest.mark.parametrize("inner", WRAPS.values(), ids=WRAPS)
def test_a_failed_call_inside_another_is_undone_there(inner: Callable, outer: Callable, world: Any) -> None:
    @inner
    def fails(x: Tensor) -> Tensor:
        world.u += 1
        x *= 2
        Tensor.rand(2)
        raise ValueError

    @outer
    def goes_on(x: Tensor) -> Tensor:
        try:
            fails(x)
        except ValueError:
            return world.u + x + Tensor.rand(2) * 0.5

    Tensor.manual_seed(1)
    drawn = [Tensor.rand(2).tolist() for _ in range(2)]
    Tensor.manual_seed(1)
    for k in range(2):
        x = vector(1.0, 1.0)
        np.testing.assert_allclose(goes_on(x).numpy(), np.array([2.0, 3.0]) + np.array(drawn[k]) / 2, rtol=1e-6)
        assert world.u.tolist() == [1.0, 2.0] and x.tolist() == [1.0, 1.0]


def test_gradients_of_a_failed_part_of_a_capture(world):
    """Read or set first in the part that fails, then by the step around it, whose calls find another gradient each."""

    def step(sets: bool) -> Callable:
        @jit
        def part(x: Tensor) -> Tensor:
            if sets:
                world.w.grad = x * 7
            (world.w * x).sum().backward()
            raise ValueError

        def whole(x: Tensor) -> Tensor:
            try:
                part(x)
            except ValueError:
                (world.w * x).sum().backward()
            return world.w.grad * 1

        return whole

    for sets in (False, True):
        found = []
        for wrap in (lambda f: f, jit):
            world.w.grad, calls = None, wrap(step(sets))
            found.append([calls(vector(1.0, float(k))).tolist() for k in range(4)])
        assert found[0] == found[1] == [[k + 1.0, k * (k + 1) / 2] for k in range(4)]


def test_a_gradient_is_not_added_to_by_a_capture_that_cannot_be_made(world, monkeypatch):
    @jit
    def step(x: Tensor) -> Tensor:
        (world.w * x).sum().backward()
        world.u += x
        return x * 1

    def fail(*_: Any) -> None:
        raise MemoryError

    step(vector(1.0, 2.0))
    gradient = world.w.grad
    with monkeypatch.context() as m, pytest.raises(MemoryError):
        m.setattr(recording, "Capture", fail)
        step(vector(1.0, 2.0))  # captured again: it finds a gradient
    assert world.w.grad is gradient and gradient.tolist() == [1.0, 2.0] and world.u.tolist() == [2.0, 4.0]
    step(vector(1.0, 2.0))
    assert world.w.grad.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("calls", [0, 1, 3])
@pytest.mark.parametrize("result", [lambda w, x: w * 1, lambda w, x: w * 2, lambda w, x: w + x])
def test_an_assigned_argument_that_an_object_among_the_arguments_has(result: Any, calls: int) -> None:
    box = SimpleNamespace(w=vector(1.0, 2.0))
    f = jit(lambda box, x: (x.assign(x + 10), result(box.w, x))[1])
    for _ in range(calls):
        f(box, vector(0.0, 0.0))
    for _ in range(2):
        with pytest.raises(JitError, match="also reaches from outside"):
            f(box, box.w)
    assert box.w.tolist() == [1.0, 2.0]


def test_an_index_of_a_function_is_checked():
    table, calls = vector(10.0, 20.0, 30.0), vector(0.0)
    indices = [Tensor(np.array([0, k])).realize() for k in (1, 5, 2, -7)]

    def row(i: Tensor) -> Tensor:
        calls.assign(calls + 1)
        return table[i] * 2

    with Context(CHECK_BOUNDS=1):
        for options in ({}, {"precompile": True}):
            calls.zero_()
            rows = function(row, **options)
            for k, i in enumerate(indices):
                if k % 2:
                    with pytest.raises(IndexRangeError, match="of a @function"):
                        rows(i)
                else:
                    assert rows(i).tolist() == (table.numpy()[i.numpy()] * 2).tolist()
            assert calls.item() == 2 and len(rows.traces) == 1
        inside = [jit(lambda i: rows(i) + 1), function(lambda i: rows(i) + 1)]
        for outer in inside:
            for k, i in enumerate(indices):
                if k % 2:
                    with pytest.raises(IndexRangeError, match="of a @function"):
                        outer(i)
                else:
                    assert outer(i).tolist() == (table.numpy()[i.numpy()] * 2 + 1).tolist()
    with Context(CHECK_BOUNDS=0):
        assert rows(indices[1]).tolist() == [20.0, 60.0]


def test_random_numbers_before_an_index_that_is_checked():
    table = vector(10.0, 20.0, 30.0)
    with Context(CHECK_BOUNDS=1):
        far = function(lambda: table[(Tensor.rand(2) * 0 + 9).int()])
        Tensor.manual_seed(1)
        wanted = Tensor.rand(4).tolist()
        Tensor.manual_seed(1)
        early = Tensor.rand(2)
        with pytest.raises(IndexRangeError):
            far()
        assert early.tolist() + Tensor.rand(2).tolist() == wanted


def test_an_error_of_the_users_gradient_is_the_users():
    class Mine(ValueError):
        pass

    def gradient(inputs: Any, grads: Any) -> Any:
        raise Mine("why")

    x = Tensor([1.0], requires_grad=True)
    with pytest.raises(Mine, match="why"):
        function(lambda x: x * 2, gradient=gradient)(x).backward()
    assert x.grad is None


def test_a_tensor_that_a_function_leaves_outside_has_no_value():
    left = []

    @function
    def leaves(x: Tensor) -> Tensor:
        left.append(x.sum())
        return x * 1

    for x in (vector(1.0), Tensor.zeros(3)):  # in memory; a constant without a device
        leaves(x)
        with pytest.raises(JitError, match=r"(?s)while a @function is traced.*returns the Tensors"):
            left.pop().item()
