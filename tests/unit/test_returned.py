"""What captured steps and `@function`s return: values, Tensors from outside as they are, and views of these."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from monolect import ArgumentError, JitError, Tensor, function, jit

CALLS = 4  # the first is captured, the last are usual ones


def numbers(n: int, start: float = 0.0) -> Tensor:
    return Tensor(np.arange(n, dtype=np.float32) + start).realize()


def plain(f: Callable[..., Any]) -> Callable[..., Any]:
    return f


FORMS = {"eager": plain, "jit": jit, "function": function, "precompiled": function(precompile=True)}


@pytest.mark.parametrize("form", FORMS)
def test_a_tensor_from_outside_is_returned_itself(form: str) -> None:
    w = numbers(6)
    step = FORMS[form](lambda x: (w, {"x": x}, [x, x * 2]))
    for i in range(CALLS):
        x = numbers(4, i)
        a, b, (c, d) = step(x)
        assert a is w and b["x"] is x and c is x
        assert d.tolist() == (x * 2).tolist()
        a.assign(a + 1)
        assert w.tolist() == [float(k + i + 1) for k in range(6)]


@pytest.mark.filterwarnings("ignore::monolect.CaptureWarning")
@pytest.mark.parametrize("form", FORMS)
def test_a_view_of_a_tensor_from_outside_shares_its_memory(form: str) -> None:
    w = numbers(6)
    step = FORMS[form](lambda x: (w[1:3], x.reshape(2, 2).T, x * 2))
    for i in range(CALLS):
        x = numbers(4, i)
        a, b, _ = step(x)
        w.assign(w * 0 + i)
        assert a.tolist() == [i, i]
        a.assign(Tensor([10.0, 20.0]))
        assert w.tolist() == [i, 10, 20, i, i, i]
        b[0, 1] = 55.0
        assert x.tolist() == [i, i + 1, 55, i + 3]


@pytest.mark.parametrize("form", ["eager", "jit"])
def test_a_state_that_a_step_updates_and_returns_is_the_state(form: str) -> None:
    w = numbers(3)

    def update(x: Tensor) -> tuple[Tensor, Tensor]:
        w.assign(w + x)
        return w, w[:1]

    step, first = FORMS[form](update), None
    for i in range(CALLS):
        a, b = step(Tensor([1.0, 2.0, 3.0]).realize())
        first = b if first is None else first
        want = [1.0 + i, 3.0 + 2 * i, 5.0 + 3 * i]
        assert a is w and a.tolist() == want and b.tolist() == first.tolist() == want[:1]


@pytest.mark.parametrize("form", ["eager", "jit"])
def test_an_argument_that_is_a_view_is_returned_itself(form: str) -> None:
    step = FORMS[form](lambda x: (x, x[:1], x + 1))
    for i in range(CALLS):
        base = numbers(8, i)
        x = base[2:6]
        a, b, _ = step(x)
        assert a is x
        b[0] = 99.0
        assert base.tolist()[2] == 99.0


@pytest.mark.parametrize("form", FORMS)
def test_a_view_and_its_base_are_returned_together(form: str) -> None:
    def pair(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return y, y[0], y

    step = FORMS[form](pair)
    for i in range(CALLS):
        y, first, again = step(numbers(3, i))
        assert y is again
        y[0] = 5.0
        assert first.item() == 5.0
        first.assign(7.0)
        assert y.tolist() == [7.0, 2.0 * i + 2, 2.0 * i + 4]


@pytest.mark.parametrize("form", ["eager", "jit"])
def test_a_gradient_that_is_returned_is_the_gradient(form: str) -> None:
    w = numbers(2, 1)
    w.requires_grad = True

    def gradient(x: Tensor) -> Tensor:
        w.grad = None
        (w * x).sum().backward()
        return w.grad

    step = FORMS[form](gradient)
    for i in range(CALLS):
        g = step(numbers(2, i))
        assert g is w.grad and g.tolist() == [i, i + 1]
        g.assign(g.clamp(0, 1))
        assert w.grad.tolist() == [min(i, 1), 1]


@pytest.mark.parametrize("form", ["eager", "jit"])
def test_a_tensor_from_outside_as_a_gradient_is_that_tensor(form: str) -> None:
    a, b, other = numbers(2), numbers(2), numbers(2, 5)
    a.requires_grad = b.requires_grad = True

    def swap(x: Tensor) -> Tensor:
        a.grad = other
        b.grad = x
        return x + 1

    step = FORMS[form](swap)
    for i in range(CALLS):
        x = numbers(2, i)
        step(x)
        assert a.grad is other and b.grad is x
        other.assign(other + 1)
        assert a.grad.tolist() == [6.0 + i, 7.0 + i]
        a.grad = b.grad = None


def test_a_donated_argument_is_not_returned_itself() -> None:
    step = jit(lambda x: (x, x + 1), donate="x")
    for i in range(CALLS):
        x = numbers(3, i)
        a, b = step(x)
        assert a is not x and a.tolist() == [i, i + 1, i + 2] and b.tolist() == [i + 1, i + 2, i + 3]


def test_a_function_with_a_gradient_of_its_own_returns_what_has_it() -> None:
    reverse = function(lambda x: x, gradient=lambda inputs, grads: -grads[0])
    x = numbers(2, 1)
    x.requires_grad = True
    (reverse(x) * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [-3.0, -3.0]


def test_a_saved_step_returns_its_tensors_and_arguments_themselves(tmp_path: Path) -> None:
    w = numbers(3)

    def update(x: Tensor) -> tuple[Tensor, ...]:
        w.assign(w + x)
        return w, x, w * x, x[1:]

    step = jit(update)
    for _ in range(2):
        step(numbers(3))
    step.save(tmp_path / "a.step", {"w": w})
    loaded = jit.load(tmp_path / "a.step")
    for i in range(CALLS):
        x = numbers(3, i)
        a, b, c, d = loaded(x)
        assert a is loaded.tensors["w"] and b is x
        assert c.tolist() == (a * x).tolist() and d.tolist() == [i + 1, i + 2]


def test_a_step_of_the_form_of_a_gradient_is_saved(tmp_path: Path) -> None:
    w = numbers(2, 1)
    w.requires_grad = True

    def gradient(x: Tensor) -> list[Tensor]:
        w.grad = None
        (w * x).sum().backward()
        return [w.grad, x]

    step = jit(gradient)
    for i in range(2):
        step(numbers(2, i))
    step.save(tmp_path / "a.step", {"w": w})
    loaded = jit.load(tmp_path / "a.step", {"w": w})
    for i in range(CALLS):
        x = numbers(2, i)
        g, same = loaded(x)
        assert g is w.grad and same is x and g.tolist() == [i, i + 1]


# ---- views from outside and views of hidden values -------------------------------------------------------------------
@pytest.mark.parametrize("form", FORMS)
def test_a_view_from_outside_is_returned_itself(form: str) -> None:
    base = numbers(6)
    row, leaf = base[3:], base[:3].detach().requires_grad_()
    step = FORMS[form](lambda x: (row, leaf, x * 2))
    for i in range(CALLS):
        a, b, _ = step(numbers(2, i))
        assert a is row and b is leaf
        (b * 2).sum().backward()
        assert b.grad is not None and b.grad.tolist() == [2.0 * i + 2] * 3


@pytest.mark.parametrize("form", FORMS)
def test_views_of_one_value_that_is_not_returned_share_its_memory(form: str) -> None:
    def views(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return y.detach(), y[1:], y.reshape(1, 3)

    step = FORMS[form](views)
    for i in range(CALLS):
        whole, last, row = step(numbers(3, i))
        whole.assign(whole * 0 + 7)
        last[0] = 5.0
        assert whole.tolist() == [7.0, 5.0, 7.0] and row.tolist() == [[7.0, 5.0, 7.0]]


@pytest.mark.parametrize("form", FORMS)
def test_a_view_that_is_returned_twice_is_one(form: str) -> None:
    w = numbers(4)

    def twice(x: Tensor) -> tuple[Tensor, ...]:
        a, b = x[1:], w[2:]
        return a, b, a, b, x * 2

    step = FORMS[form](twice)
    for i in range(CALLS):
        for x in (numbers(3, i), numbers(6, i)[1:4]):
            a, b, c, d, _ = step(x)
            assert a is c and b is d


@pytest.mark.parametrize("form", FORMS)
def test_what_copies_an_argument_that_is_not_in_a_row_is_a_copy(form: str) -> None:
    step = FORMS[form](lambda x: (x.reshape(-1), x.contiguous(), x[1:], x.reshape(-1)[1:]))
    for i in range(CALLS):
        base = numbers(6, i).reshape(2, 3)
        flat, whole, rows, part = step(base.T)
        flat[0] = whole[0, 0] = part[0] = -1.0
        assert base.tolist() == [[i, i + 1, i + 2], [i + 3, i + 4, i + 5]]
        rows[0, 0] = -2.0
        assert base.tolist()[0] == [i, -2.0, i + 2]
        flat, whole, *_ = step(base)
        flat[0], whole[1, 1] = -3.0, -4.0
        assert base.tolist() == [[-3.0, -2.0, i + 2], [i + 3, -4.0, i + 5]]


def test_a_saved_step_with_two_views_of_a_value(tmp_path: Path) -> None:
    def views(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return y[:2], y[1:]

    step = jit(views)
    step(numbers(3))
    step.save(tmp_path / "a.step")
    loaded = jit.load(tmp_path / "a.step")
    for i in range(CALLS):
        assert [t.tolist() for t in loaded(numbers(3, i))] == [[2.0 * i, 2.0 * i + 2], [2.0 * i + 2, 2.0 * i + 4]]


# ---- gradients -------------------------------------------------------------------------------------------------------
def leaf(n: int, start: float = 0.0) -> Tensor:
    return numbers(n, start).requires_grad_()


@pytest.mark.parametrize("form", ["eager", "jit"])
def test_a_gradient_that_was_used_up_and_is_returned_is_the_gradient(form: str) -> None:
    w = leaf(3)

    def descend(x: Tensor) -> tuple[Tensor, Tensor]:
        w.grad = None
        (w * x).sum().backward()
        w.assign(w - w.grad)
        return w.grad, w.grad[1:]

    step = FORMS[form](descend)
    for i in range(CALLS):
        g, last = step(numbers(3, i))
        assert g is w.grad and g.tolist() == [i, i + 1, i + 2]
        last.assign(last * 0 + 9)
        assert w.grad.tolist() == [i, 9, 9]


@pytest.mark.parametrize("form", ["eager", "jit"])
def test_gradients_that_share_memory(form: str) -> None:
    v, w, p, q, r = (leaf(2) for _ in range(5))

    def share(x: Tensor, y: Tensor) -> Tensor:
        g = x[1:] * 2
        v.grad, w.grad = g, g
        p.grad = x[:2]
        q.grad = y
        z = x * 3
        r.grad = z[1:]
        return z

    step = FORMS[form](share)
    for i in range(CALLS):
        x, y = numbers(3, i), numbers(4, i)[1:3]
        z = step(x, y)
        assert v.grad is w.grad and q.grad is y
        v.grad += 1
        x.assign(x * 0 + 7)
        z.assign(z * 0 + 5)
        y.assign(y * 0 + 4)
        assert w.grad.tolist() == [2.0 * i + 3, 2.0 * i + 5] and p.grad.tolist() == [7.0, 7.0]
        assert q.grad.tolist() == [4.0, 4.0] and r.grad.tolist() == [5.0, 5.0]
        for t in (v, w, p, q, r):
            t.grad = None


def test_gradients_that_share_memory_in_a_saved_step(tmp_path: Path) -> None:
    v, w, other = leaf(2), leaf(2), leaf(2)

    def share(x: Tensor) -> Tensor:
        w.grad = None
        (w * x).sum().backward()
        v.grad, other.grad = w.grad, x
        return x + 1

    step, names = jit(share), {"v": v, "w": w, "other": other}
    step(numbers(2))
    step.save(tmp_path / "a.step", names)
    v.grad = other.grad = w.grad = None
    loaded = jit.load(tmp_path / "a.step", names)
    for i in range(CALLS):
        x = numbers(2, i)
        loaded(x)
        assert v.grad is w.grad and other.grad is x and v.grad.tolist() == [i, i + 1]
        v.grad = other.grad = w.grad = None


@pytest.mark.filterwarnings("ignore::monolect.CaptureWarning")
@pytest.mark.parametrize("form", ["eager", "jit"])
def test_a_view_that_is_a_gradient_is_returned_itself(form: str) -> None:
    w, base = leaf(2), numbers(4)
    w.grad = base[1:3]
    step = FORMS[form](lambda x: (w.grad, x + 1))
    for i in range(CALLS):
        g, _ = step(numbers(2))
        assert g is w.grad
        g.assign(g + 1)
        assert base.tolist() == [0.0, 2.0 + i, 3.0 + i, 3.0]


@pytest.mark.parametrize("form", FORMS)
def test_a_gradient_that_is_scaled_and_returned_is_the_gradient(form: str) -> None:
    w = leaf(2)
    w.grad = first = numbers(2, 1)

    def scale(x: Tensor) -> tuple[Tensor, Tensor]:
        w.grad *= 2
        return w.grad, x + 1

    step = FORMS[form](scale)
    for i in range(CALLS):
        g, _ = step(numbers(2))
        assert g is first and w.grad is first and g.tolist() == [2.0 ** (i + 1), 2.0 ** (i + 2)]


@pytest.mark.parametrize("form", ["eager", "jit"])
@pytest.mark.parametrize("is_view", [False, True])
def test_the_gradient_of_a_leaf_that_is_also_an_argument(form: str, is_view: bool) -> None:
    w = numbers(6)[3:].detach().requires_grad_() if is_view else leaf(3, 3)
    step = FORMS[form](lambda x: (w * x.detach()).sum().backward())
    for i in range(CALLS):
        step(w)
        assert w.grad is not None and w.grad.tolist() == [3.0 * i + 3, 4.0 * i + 4, 5.0 * i + 5]


@pytest.mark.parametrize("is_view", [False, True])
def test_gradients_of_a_leaf_both_ways_are_refused(is_view: bool) -> None:
    w = numbers(6)[3:].detach().requires_grad_() if is_view else leaf(3, 3)

    def product(x: Tensor) -> Tensor:
        w.grad = x.grad = None
        loss = (w * x).sum()
        loss.backward()
        return loss.detach()

    step = jit(product)
    with pytest.raises(JitError, match="gradients of an argument"):
        step(w)
    for _ in range(CALLS):
        step(leaf(3))
    for _ in range(2):
        with pytest.raises(JitError, match="gradients of an argument"):
            step(w)
    assert w.grad is not None and w.grad.tolist() == [0.0, 1.0, 2.0]


def test_a_gradient_that_comes_twice_beside_a_state() -> None:
    w, total = leaf(3), numbers(3)

    def add(x: Tensor) -> Tensor:
        total.assign(total + w.grad)
        return x + 1

    step = jit(add)
    for i in range(CALLS):
        w.grad = numbers(3)
        assert step(w.grad).tolist() == [1.0, 2.0, 3.0] and total.tolist() == [0.0, i + 2.0, 2.0 * i + 4]


# ---- memory that is reached twice ------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["jit", "function", "precompiled"])
@pytest.mark.parametrize("reads", ["base", "row"])
def test_a_view_that_is_assigned_and_also_read_from_outside_is_refused(form: str, reads: str) -> None:
    base = numbers(6)
    outside = base if reads == "base" else base[2:]

    def double(x: Tensor) -> Tensor:
        x.assign(x * 2)
        return outside * 1

    step = FORMS[form](double)
    for _ in range(2):
        with pytest.raises(JitError, match="memory that an argument shares"):
            step(base[3:])
        assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    for _ in range(CALLS):
        step(numbers(3))
        step(numbers(6)[3:])
    with pytest.raises(JitError, match="memory that an argument shares"):
        step(base[3:])
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("form", ["jit", "function", "precompiled"])
def test_two_views_of_one_memory_of_which_one_is_assigned_are_refused(form: str) -> None:
    def double(x: Tensor, y: Tensor) -> Tensor:
        x.assign(x * 2)
        return y * 1

    step, base = FORMS[form](double), numbers(6)
    for _ in range(2):
        with pytest.raises(JitError, match="memory that an argument shares"):
            step(base[:3], base[1:4])
        step(numbers(6)[:3], base[1:4])
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("captured", [False, True])
def test_a_call_that_assigns_to_a_view_that_repeats_elements_leaves_all_as_it_was(captured: bool) -> None:
    total = numbers(2)

    def double(x: Tensor) -> Tensor:
        total.assign(total + 1)
        x.assign(x * 2)
        return total * 1

    step, base = jit(double), numbers(3)
    if captured:
        step(numbers(6).reshape(2, 3))
    before = total.tolist()
    with pytest.raises(ArgumentError, match="repeats elements"):
        step(base.reshape(1, 3).expand(2, 3))
    assert total.tolist() == before and base.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("changes", ["added to", "set"])
def test_a_gradient_that_is_also_an_argument_is_not_assigned(changes: str) -> None:
    w = leaf(3)

    def step(x: Tensor) -> Tensor:
        if changes == "set":
            w.grad.assign(w.grad * 2)
        else:
            (w * x.detach()).sum().backward()
        return x * 2

    captured = jit(step)
    for _ in range(2):  # the first would be captured
        w.grad = numbers(3)
        with pytest.raises(JitError, match="both an argument and a gradient"):
            captured(w.grad)
        assert w.grad.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("form", ["eager", "jit"])
def test_the_gradient_that_is_a_view_of_the_leaf_it_updates(form: str) -> None:
    w = leaf(3)

    def double(x: Tensor) -> tuple[Tensor, Tensor]:
        w.grad = w.detach()
        w.grad.copy_(w.grad * 2)
        return w.grad, x + 1

    step = FORMS[form](double)
    for i in range(CALLS):
        g, _ = step(numbers(3))
        assert g is w.grad and g.tolist() == w.tolist() == [0.0, 2.0 ** (i + 1), 2.0 ** (i + 2)]


# ---- what the function also keeps ------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::monolect.CaptureWarning")
@pytest.mark.parametrize("form", ["eager", "jit"])
def test_a_value_that_is_kept_in_an_attribute_and_returned_is_one(form: str) -> None:
    around = SimpleNamespace(hidden=numbers(3), last=numbers(3))

    def advance(x: Tensor) -> tuple[Tensor, ...]:
        around.hidden = around.hidden * 0.5 + x
        around.last = x * 3
        around.last += 1
        return around.hidden, around.last, around.hidden[:1]

    step, want = FORMS[form](advance), np.arange(3.0)
    for i in range(CALLS):
        x = numbers(3, i)
        hidden, last, first = step(x)
        assert hidden is around.hidden and last is around.last
        first.assign(first * 0 + 9)
        want = want * 0.5 + x.numpy()
        want[0] = 9.0
        assert around.hidden.tolist() == want.tolist() and last.tolist() == (x * 3 + 1).tolist()
