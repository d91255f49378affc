"""Integers at the limits of their types: as indices of every method that takes them, cast, and compared.

The oracles are exact Python integers. Indices follow docs/semantics.md: a read takes the nearest element, a write is
dropped, and under CHECK_BOUNDS=1 both raise.
"""

import operator
from typing import Any

import numpy as np
import pytest

from monolect.base.dtype import FLOATS, INTS, DType, dtypes
from monolect.base.errors import DTypeError, IndexRangeError
from monolect.base.settings import Context
from monolect.capture.jit import jit
from monolect.ir.ops import ParamArg
from monolect.ir.rewrite.normal import within
from monolect.ir.uop import UOp, idx, node, toposort
from monolect.tensor.tensor import Tensor

ROWS, COLUMNS = 4, 5
X = np.arange(1, 1 + ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


def edges(d: DType) -> list[int]:
    """Where an index of `d` begins to be something else: on axes of 4, 5 and 20 elements, and for 64 bits."""
    near = {s * n + k for n in (ROWS, COLUMNS, X.size) for s in (1, -1) for k in (-1, 0, 1)}
    far = {s * 2**b + k for b in (31, 32, 62, 63) for s in (1, -1) for k in (-1, 0, 1)} | {
        2**64 - k for k in (1, 4, 28)
    }
    return sorted(v for v in near | far | {d.min, d.max, 0, 2, -100} if d.min <= v <= d.max)


def at(v: int, n: int, wraps: bool) -> int:
    return v + n if wraps and v < 0 else v


def near(v: int, n: int, wraps: bool = True) -> int:
    return min(max(at(v, n, wraps), 0), n - 1)


def is_on(v: int, n: int, wraps: bool) -> bool:
    return 0 <= at(v, n, wraps) < n


# name: (method on (t, index), element by element on (x, values), the size of the axis, whether negative ones wrap)
READS: dict[str, tuple[Any, Any, int, bool]] = {
    "gather": (
        lambda t, i: t.gather(1, i.reshape(1, -1)),
        lambda x, v: [[x[0, near(k, 5, False)] for k in v]],
        5,
        False,
    ),
    "take_along_dim": (
        lambda t, i: t.take_along_dim(i.reshape(1, -1), 1),
        lambda x, v: [[row[near(k, 5)] for k in v] for row in x],
        5,
        True,
    ),
    "index": (lambda t, i: t[i], lambda x, v: [x[near(k, 4)] for k in v], 4, True),
    "index of a column": (lambda t, i: t[:, i], lambda x, v: [[r[near(k, 5)] for k in v] for r in x], 5, True),
    "two indices": (
        lambda t, i: t[i, i.flip(0)],
        lambda x, v: [x[near(a, 4), near(b, 5)] for a, b in zip(v, v[::-1], strict=True)],
        4,
        True,
    ),
    "index_select": (lambda t, i: t.index_select(1, i), lambda x, v: [[r[near(k, 5)] for k in v] for r in x], 5, True),
    "take": (lambda t, i: t.take(i), lambda x, v: [x.flat[near(k, 20)] for k in v], 20, True),
    "embedding": (lambda t, i: i.embedding(t), lambda x, v: [x[near(k, 4, False)] for k in v], 4, False),
    "one_hot": (lambda t, i: i.one_hot(5), lambda x, v: [[k == c for c in range(5)] for k in v], 5, False),
}


def written(set_: Any, n: int, wraps: bool) -> Any:
    def f(x: np.ndarray, values: list[int]) -> np.ndarray:
        for k, v in enumerate(values):
            if is_on(v, n, wraps):
                set_(x, at(v, n, wraps), k)
        return x

    return f, n, wraps


def put(where: Any, value: Any = 9.0, add: bool = False) -> Any:
    def f(x: np.ndarray, i: int, k: int) -> None:
        x[where(i)] = (x[where(i)] if add else 0) + (k + 1 if value is None else value)

    return f


def counted(i: Tensor, *shape: int) -> Tensor:
    return (
        (Tensor.arange(i.shape[0]) + 1)
        .float()
        .reshape(*shape)
        .expand(*(max(abs(n), 1) if n != -1 else -1 for n in shape))
    )


def assigned(t: Tensor, key: Any) -> Tensor:
    t = t.clone()
    t[key] = 9.0
    return t


def two_written(x: np.ndarray, values: list[int]) -> np.ndarray:
    for a, b in zip(values, values[::-1], strict=True):
        if is_on(a, 4, True) and is_on(b, 5, True):
            x[at(a, 4, True), at(b, 5, True)] = 9.0
    return x


ALL = slice(None)
WRITES: dict[str, tuple[Any, Any, int, bool]] = {
    "scatter": (lambda t, i: t.scatter(1, i.reshape(1, -1), 9.0), *written(put(lambda i: (0, i)), 5, False)),
    "scatter_add": (
        lambda t, i: t.scatter_add(1, i.reshape(1, -1), counted(i, 1, -1)),
        *written(put(lambda i: (0, i), None, True), 5, False),
    ),
    "index_add": (
        lambda t, i: t.index_add(0, i, counted(i, -1, 1).expand(-1, 5)),
        *written(put(lambda i: (i, ALL), None, True), 4, True),
    ),
    "index_copy": (
        lambda t, i: t.index_copy(1, i, Tensor.full((4, i.shape[0]), 9.0)),
        *written(put(lambda i: (ALL, i)), 5, True),
    ),
    "index_fill": (lambda t, i: t.index_fill(0, i, 9.0), *written(put(lambda i: (i, ALL)), 4, True)),
    "put": (
        lambda t, i: t.put(i, Tensor.full((i.shape[0],), 9.0)),
        *written(put(lambda i: (i // 5, i % 5)), 20, True),
    ),
    "put that adds": (
        lambda t, i: t.put(i, counted(i, -1), accumulate=True),
        *written(put(lambda i: (i // 5, i % 5), None, True), 20, True),
    ),
    "assignment": (lambda t, i: assigned(t, i), *written(put(lambda i: (i, ALL)), 4, True)),
    "assignment of columns": (lambda t, i: assigned(t, (ALL, i)), *written(put(lambda i: (ALL, i)), 5, True)),
    "assignment by two": (lambda t, i: assigned(t, (i, i.flip(0))), two_written, 4, True),
}


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("device", "noopt", "types"),
    [
        ("cpu", 0, INTS),
        ("python", 0, INTS),
        ("c", 0, INTS[-2:]),
        ("cpu", 1, INTS[-2:]),
    ],
    ids=str,
)
def test_indices_at_their_limits(device: str, noopt: int, types: tuple[DType, ...]) -> None:
    with Context(CHECK_BOUNDS=0, NOOPT=noopt):
        for d in types:
            values = edges(d)
            t, i = Tensor(X, device=device), Tensor(np.array(values, d.numpy), device=device)
            got = {name: method(t, i) for name, (method, *_) in (READS | WRITES).items()}
            Tensor.realize(*got.values())
            for name, (_, oracle, *_) in (READS | WRITES).items():
                wanted = np.array(oracle(X.copy(), values))
                np.testing.assert_array_equal(got[name].numpy(), wanted, f"{name} {d.name} of {values}")


@pytest.mark.sweep
@pytest.mark.parametrize("d", INTS, ids=lambda d: d.name)
def test_checked_bounds_are_those_of_the_method(d: DType) -> None:
    t = Tensor(X)
    with Context(CHECK_BOUNDS=1):
        for name, (method, _, n, wraps) in (READS | WRITES).items():
            for v in edges(d):
                index = Tensor(np.array([v, 0], d.numpy))
                if is_on(v, n, wraps) and ("two" not in name or is_on(v, 5, wraps)):
                    method(t, index)
                else:
                    with pytest.raises(IndexRangeError, match=f"found: {v}"):
                        method(t, index)


def test_checked_classes() -> None:
    x = Tensor(np.zeros((2, 3), np.float32))
    with Context(CHECK_BOUNDS=1):
        for d in INTS:
            for v in (-100, -1, 0, 2, 3, d.min, d.max):
                if not d.min <= v <= d.max:
                    continue
                target = Tensor(np.array([v, 1], d.numpy))
                for loss in (x.cross_entropy, x.nll_loss):
                    if v in (-100, 0, 1, 2):
                        loss(target)
                    else:
                        with pytest.raises(IndexRangeError, match=f"found: {v}"):
                            loss(target)
                    loss(target, ignore_index=v)
        step = jit(lambda i: x.gather(1, i) * 2)
        step(Tensor([[0], [2]]))
        with pytest.raises(IndexRangeError, match="gather: an index of a jitted step"):
            step(Tensor([[0], [-1]]))
    for d in (dtypes.int64, dtypes.uint64):  # a class that is outside has no probability
        values = [v for v in edges(d) if not 0 <= v < 3]
        with Context(CHECK_BOUNDS=0):
            loss = Tensor.zeros(len(values), 3).nll_loss(Tensor(np.array(values, d.numpy)), reduction="none")
            assert [np.isnan(x) for x in loss.tolist()] == [v != -100 for v in values]


def test_neighbours_in_memory_are_neither_read_nor_written() -> None:
    memory = np.full(3 * 64, 100.0, np.float32)
    memory[64:128] = 1.0
    t = Tensor(memory[64:128])
    assert np.shares_memory(t.numpy(), memory)
    others = [Tensor.zeros(64, dtype=dtypes.uint8).clone().realize() for _ in range(48)]
    others.insert(20, Tensor.zeros(64, dtype=dtypes.uint8).clone().realize())
    target = others.pop(24)
    distances = sorted({*range(1, 65, 9), *(64 * k + j for k in range(1, 20) for j in (0, 63))})
    with Context(CHECK_BOUNDS=0):
        for d, sign in ((dtypes.uint64, -1), (dtypes.int64, -1), (dtypes.int64, 1), (dtypes.int16, -1)):
            values = [(64 + k if sign > 0 else -64 - k) % (2**64 if d is dtypes.uint64 else 2**63) for k in distances]
            values = values if sign > 0 or d is dtypes.uint64 else [-64 - k for k in distances]
            i = Tensor(np.array(values, d.numpy))
            for read in (t.gather(0, i), t[i], t.take(i), t.index_select(0, i), t.take_along_dim(i, 0), i.embedding(t)):
                assert set(read.tolist()) == {1.0}, d
            for _ in range(3):
                r = target.clone().realize()
                r[i] = 77
                r = r.scatter(0, i, 77).index_fill(0, i, 77).put(i, Tensor.full(i.shape, 77, dtype=dtypes.uint8))
                assert r.realize().tolist() == [0] * 64, d
    assert all(z.tolist() == [0] * 64 for z in others)


# ---- conditions on indices -------------------------------------------------------------------------------------------
def evaluated(u: UOp, values: dict[UOp, int]) -> int:
    """Index arithmetic as a target computes it, in 64 bits."""
    known: dict[UOp, int] = {}
    for v in toposort(u):
        s = [known[x] for x in v.src]
        out = {
            "CONST": lambda v=v: v.arg[0],
            "PARAM": lambda v=v: values[v],
            "ADD": lambda s=s: s[0] + s[1],
            "MUL": lambda s=s: s[0] * s[1],
            "CMPLT": lambda s=s: s[0] < s[1],
            "CMPNE": lambda s=s: s[0] != s[1],
            "AND": lambda s=s: s[0] and s[1],
        }[v.op]()
        known[v] = out if isinstance(out, bool) else (out + 2**63) % 2**64 - 2**63
    return known[u]


def test_conditions_do_not_overflow() -> None:
    rng = np.random.default_rng(5)
    free = [node("PARAM", (), ParamArg(k, dtypes.index, None, None, f"v{k}", None, None)) for k in range(2)]
    small = [node("PARAM", (), ParamArg(2 + k, dtypes.index, None, None, f"s{k}", 0, 9)) for k in range(2)]
    points = [s * 2**63 + k for s in (-1, 0, 1) for k in range(-12, 13) if -(2**63) <= s * 2**63 + k < 2**63]
    tried = 0
    for _ in range(300):
        k, c = (int(n) for n in rng.integers(-9, 10, 2))
        a = free[0]
        b = [idx(k), free[1], small[0] + k, small[0] * 4 + small[1] * c + k][rng.integers(4)]
        conditions = [(a < b, "lt"), (b < a, "gt"), ((a < b) != 0, "lt"), (a >= b, "ge"), (within(a, k, b), "within")]
        for _ in range(20):
            values = {a: int(rng.choice(points)), free[1]: int(rng.choice(points))}
            values |= {s: int(rng.integers(10)) for s in small}
            left, right = values[a], evaluated(b, values)
            for condition, name in conditions:
                if isinstance(condition, bool):
                    continue
                expected = k <= left < right if name == "within" else getattr(operator, name)(left, right)
                assert bool(evaluated(condition, values)) == expected, (name, left, right)
                tried += 1
    assert tried > 10000


# ---- casts -----------------------------------------------------------------------------------------------------------
def limits(d: DType) -> list[Any]:
    if d.is_float:
        return [0.0, -0.5, 1.5, -2.7, 127.9, 128.0, -129.0, 300.5, 2.0**31, -(2.0**31), 2.0**63, 2.0**64, -(2.0**63),
                1e30, -1e30, float("inf"), float("-inf"), float("nan")]  # fmt: skip
    if d is dtypes.bool:
        return [False, True]
    return edges(d)


def converted(v: Any, d: DType) -> Any:
    """`v`, a number that its own dtype holds, as docs/semantics.md converts it."""
    if d is dtypes.bool:
        return bool(v)
    if d.is_float:
        return v
    if isinstance(v, float):
        return 0 if v != v else int(min(max(v, d.min), d.max))
    return (int(v) - d.min) % 2**d.bits + d.min


@pytest.mark.sweep
@pytest.mark.parametrize("device", ["cpu", "python"])
@pytest.mark.parametrize("new", [dtypes.bool, *INTS], ids=lambda d: d.name)
def test_casts_and_constructors_agree_at_the_limits(new: DType, device: str) -> None:
    for old in (dtypes.bool, *INTS, *(d for d in FLOATS if d.bits >= 32)):
        array = np.array(limits(old), old.numpy)
        own = array.tolist()
        expected = [converted(v, new) for v in own]
        assert Tensor(array, device=device).cast(new).tolist() == expected, (old.name, new.name)
        assert Tensor(array, dtype=new, device=device).tolist() == expected, (old.name, new.name)
        assert Tensor(own, dtype=new, device=device).tolist() == expected, (old.name, new.name)
        for v, e in zip(own, expected, strict=True):
            assert Tensor(v, dtype=new).item() == Tensor.full((1,), v, dtype=new).item() == e, (v, new.name)
            assert Tensor([[v], [v]], dtype=new).tolist() == [[e], [e]]


def test_integers_that_the_default_does_not_hold_are_refused() -> None:
    for v in (2**63, 2**64 - 1, 2**64, -(2**63) - 1):
        for make in (Tensor, lambda v: Tensor([v]), lambda v: Tensor([[1], [v]]), lambda v: Tensor.full((2,), v)):
            with pytest.raises(DTypeError, match="an integer does not fit"):
                make(v)
    for v in (2**64, -(2**63) - 1):
        for make in (
            Tensor,
            lambda v, dtype: Tensor([v], dtype=dtype),
            lambda v, dtype: Tensor.full((2,), v, dtype=dtype),
        ):
            with pytest.raises(DTypeError, match="an integer does not fit"):
                make(v, dtype=dtypes.uint64)
    with pytest.raises(DTypeError):
        Tensor([True, 2**63])
    assert Tensor([2**63, 2**64 - 1], dtype=dtypes.uint64).tolist() == [2**63, 2**64 - 1]
    assert Tensor([-1, 2**63], dtype=dtypes.uint64).tolist() == [2**64 - 1, 2**63]
    assert Tensor(np.array([2**63], np.uint64)).dtype is dtypes.uint64


# ---- comparisons -----------------------------------------------------------------------------------------------------
NAMES = ("lt", "le", "gt", "ge", "eq", "ne")


def compared(a: DType) -> list[int]:
    return (
        [int(v) for v in limits(a)] if a is dtypes.bool else [v for v in edges(a) if v in (a.min, a.max) or v % 3 < 2]
    )


@pytest.mark.sweep
@pytest.mark.parametrize("a", [dtypes.bool, *INTS], ids=lambda d: d.name)
def test_integers_compare_exactly(a: DType) -> None:
    left = compared(a)
    x = Tensor(np.array(left).astype(a.numpy) if a is dtypes.bool else np.array(left, a.numpy))
    for b in (dtypes.bool, *INTS):
        if b.priority < a.priority:
            continue
        right = compared(b)
        y = Tensor(np.array(right).astype(b.numpy) if b is dtypes.bool else np.array(right, b.numpy))
        for name in NAMES if dtypes.uint64 in (a, b) else ("lt", "eq"):
            expected = [[getattr(operator, name)(p, q) for q in right] for p in left]
            assert getattr(x.reshape(-1, 1), name)(y).tolist() == expected, (a.name, name, b.name)
    for q in (-(2**70), -(2**63) - 1, -129, -1, 1, 255, 300, 2**32, 2**63, 2**64 - 1, 2**64, 2**70):
        for name in NAMES if not (a.min <= q <= a.max) else ("lt", "eq"):
            for number in (q, np.int64(q)) if q in (-129, 300) else (q,):
                expected = [getattr(operator, name)(p, q) for p in left]
                assert getattr(x, name)(number).tolist() == expected, (a.name, name, q)


def test_extremes_beside_a_number_that_the_dtype_does_not_hold() -> None:
    for d in INTS:
        x = Tensor(np.array([d.min, 0, d.max], d.numpy))
        for q in (-(2**70), -129, 200, 2**63):
            held = min(max(q, d.min), d.max)
            for number in (q, np.int64(q)) if q == 200 else (q,):
                assert x.maximum(number).tolist() == [max(v, held) for v in x.tolist()], (d.name, q)
                assert x.minimum(number).tolist() == [min(v, held) for v in x.tolist()], (d.name, q)
                assert x.clamp(min=number).tolist() == [max(v, held) for v in x.tolist()], (d.name, q)


def test_a_loop_is_not_replaced_by_what_a_wrapped_counter_equals() -> None:
    for d in (dtypes.int8, dtypes.uint8):
        y = Tensor(np.array([3, 100, 0], d.numpy))
        counter, weights = Tensor.arange(600).cast(d), np.arange(600, dtype=np.int64) ** 2
        got = (counter.reshape(1, -1) == y.reshape(-1, 1)).where(Tensor(weights), 0).sum(1)
        wrapped = np.arange(600).astype(d.numpy)
        assert got.tolist() == [int(weights[wrapped == v].sum()) for v in y.numpy()]
