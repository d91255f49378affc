"""Formulas that are built from records make the nodes and the derivatives that their code makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, dtypes
from monolect.autograd import recorded as module
from monolect.autograd import special
from monolect.autograd.closed_forms import closed
from monolect.autograd.recorded import NOT_VIEWS, OPAQUE, recorded
from monolect.graphs.products import linear, matmul
from monolect.ir.uop import UOp, build, new_buffer, toposort
from monolect.tensor.methods.reduce import _log_softmax, _softmax
from tests.strategies import often

Formula = Callable[..., UOp]


def n_operands(f: Formula) -> int:
    """The nodes that a special function takes; its formula is inside of two decorators."""
    inside = inspect.getclosurevars(f.__wrapped__).nonlocals["formula"]  # type: ignore[attr-defined]
    return len(inspect.signature(inside).parameters)


SPECIAL = {k: f for k, f in vars(special).items() if hasattr(f, "__wrapped__") and f.__module__ == special.__name__}
UNARY = {k: f for k, f in SPECIAL.items() if n_operands(f) == 1}
ALONG_AXES = {"softmax": _softmax, "log_softmax": _log_softmax}
BINARY = {k: f for k, f in SPECIAL.items() if n_operands(f) == 2}


def operand(op: str, dtype: Any, shape: tuple[int, ...]) -> UOp:
    """A new node of `op`, or of the op that the normal form makes of it."""
    a, b = (new_buffer(shape, dtype, "cpu") for _ in range(2))
    if op == "BUFFER":
        return a
    if op == "REDUCE" and 1 in shape:
        axis = shape.index(1)
        return build("REDUCE", new_buffer((*shape[:axis], 3, *shape[axis + 1 :]), dtype, "cpu"), arg=("ADD", (axis,)))
    if op in ("EXP2", "REDUCE"):
        return build("EXP2", a)
    if op == "RESHAPE":
        return Tensor._wrap(new_buffer((*shape, 1), dtype, "cpu")).reshape(shape).uop
    if op == "PERMUTE":
        return Tensor._wrap(new_buffer(shape[::-1], dtype, "cpu")).permute(*reversed(range(len(shape)))).uop
    if op == "SHRINK":
        larger = new_buffer(tuple(n + 1 for n in shape), dtype, "cpu")
        return Tensor._wrap(larger)[tuple(slice(0, n) for n in shape)].uop
    if op == "EXPAND":
        return Tensor._wrap(new_buffer((1, *shape[1:]), dtype, "cpu")).expand(shape).uop
    return build(op, a, b)


def check(f: Formula, plain: Formula, *args: Any) -> None:
    """`f` makes of `args` what `plain` makes, with the same derivatives."""
    found = f(*args)
    derivatives = {u: closed.get(u) for u in toposort(found)}
    for u in derivatives:
        closed.pop(u, None)
    wanted = plain(*args)
    assert found is wanted
    for u, d in derivatives.items():
        other = closed.get(u)
        assert (d is None) == (other is None), u
        if d is not None and other is not None:
            assert d[0] == other[0] and d[1].__code__ is other[1].__code__


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_functions_of_one_operand(name: str, dtype: Any) -> None:
    f = UNARY[name]
    for op in sorted(OPAQUE):
        for shape in ((3, 4), (3, 1), (3, 4), (3, 1)):  # recorded, and built from the record
            check(f, f.__wrapped__, operand(op, dtype, shape))  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("name", sorted(ALONG_AXES))
def test_functions_along_axes(name: str, dtype: Any) -> None:
    f = ALONG_AXES[name]
    for op in sorted(OPAQUE):
        for shape in ((3, 4), (3, 1), (3, 4), (3, 1)):
            for axes in ((0,), (1,), (0, 1)):
                check(f, f.__wrapped__, operand(op, dtype, shape), axes)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(BINARY))
def test_functions_of_two_operands(name: str) -> None:
    f = BINARY[name]
    for a in sorted(OPAQUE):
        for b in sorted(OPAQUE):
            x, y = operand(a, dtypes.float32, (3, 4)), operand(b, dtypes.float32, (3, 1))
            check(f, f.__wrapped__, x, y)  # type: ignore[attr-defined]
            check(f, f.__wrapped__, y, x)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("left", "right"),
    [((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 6)), ((1, 4), (4, 1))],
)
def test_products(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """In each order of ops, heights and numbers of memory: they decide the order of the factors."""
    for a in sorted(NOT_VIEWS):
        for b in sorted(NOT_VIEWS):
            for is_reversed in (False, True):
                made = [operand(b, dtypes.float32, right), operand(a, dtypes.float32, left)]
                x, y = (
                    made[::-1] if is_reversed else (operand(a, dtypes.float32, left), operand(b, dtypes.float32, right))
                )
                check(matmul, matmul.__wrapped__, x, y)  # type: ignore[attr-defined]
                if right == (4,):
                    check(linear, linear.__wrapped__, x, y)  # type: ignore[attr-defined]
                elif len(right) == 2:
                    weight = operand(b, dtypes.float32, right[::-1])
                    check(linear, linear.__wrapped__, x, weight)  # type: ignore[attr-defined]


def test_the_product_of_a_value_with_itself_and_of_other_dtypes() -> None:
    u = operand("BUFFER", dtypes.float32, (3, 3))
    check(matmul, matmul.__wrapped__, u, u)  # type: ignore[attr-defined]
    for dtype in (dtypes.float16, dtypes.bfloat16, dtypes.int32, dtypes.float64):
        v = operand("BUFFER", dtype, (3, 3))
        check(matmul, matmul.__wrapped__, u, v)  # type: ignore[attr-defined]


def test_a_record_holds_no_memory_and_is_not_used_where_a_rule_is_off() -> None:
    f = recorded(lambda u: build("MUL", u, build("ADD", u, u)))
    for _ in range(3):
        f(operand("BUFFER", dtypes.float32, (5,)))
    (record,) = inspect.getclosurevars(f).nonlocals["records"].values()
    assert not any(u.op == "BUFFER" for c in record.constants for u in toposort(c)) and len(record.rows) == 2
    with Context(DISABLE="commute"):
        u = operand("BUFFER", dtypes.float32, (5,))
        assert f(u) is f.__wrapped__(u)  # type: ignore[attr-defined]
    hidden = operand("BUFFER", dtypes.float32, (5,))
    of_memory = recorded(lambda u: build("MUL", u, hidden))  # the memory of a formula is another operand each time
    x = operand("BUFFER", dtypes.float32, (5,))
    assert of_memory(x) is of_memory(x) is build("MUL", x, hidden)
    assert [*inspect.getclosurevars(of_memory).nonlocals["records"].values()] == [None]


def test_operands_on_several_devices_are_no_operands_of_a_record() -> None:
    f = recorded(lambda u: build("ADD", u, build("NEG", u)))
    divided = Tensor(np.ones((4, 2), np.float32)).shard(("cpu", "cpu:1")).realize().uop
    assert f(divided) is f.__wrapped__(divided)  # type: ignore[attr-defined]
    records = inspect.getclosurevars(f).nonlocals["records"]
    assert not records
    u = operand("BUFFER", dtypes.float32, (4, 2))
    assert f(u) is f.__wrapped__(u) and len(records) == 1  # type: ignore[attr-defined]


def test_many_shapes_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS", 4)
    f = recorded(lambda u: build("ADD", u, u))
    for n in range(1, 12):
        f(operand("BUFFER", dtypes.float32, (n,)))
    assert len(inspect.getclosurevars(f).nonlocals["records"]) <= 4


@settings(max_examples=often(4, 200), deadline=None)
@given(st.lists(st.sampled_from(["tanh", "softmax", "product", "exp", "log1p", "sum"]), min_size=1, max_size=6))
def test_chains_have_the_values_and_gradients_of_code(names: list[str]) -> None:
    """Twice, with other values: the second time from records."""
    rng = np.random.default_rng(len(names))

    def run(is_plain: bool) -> list[np.ndarray]:
        w = Tensor(rng_values[0], requires_grad=True)
        x = Tensor(rng_values[1]) @ w
        for name in names:
            x = {
                "tanh": lambda t: t.tanh(), "softmax": lambda t: t.softmax(-1), "product": lambda t: t @ w,
                "exp": lambda t: (-t.square()).exp(), "log1p": lambda t: t.square().log1p(),
                "sum": lambda t: t + t.sum(0),
            }[name](x)  # fmt: skip
        (x * x).sum().backward()
        return [x.numpy()] + ([w.grad.numpy()] if w.grad is not None else [])

    for _ in range(2):
        rng_values = rng.normal(size=(4, 4)).astype(np.float32), rng.normal(size=(3, 4)).astype(np.float32)
        found = run(False)
        with Context(DISABLE="reduce_nothing"):  # a rule that is off: no record is used
            wanted = run(True)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
