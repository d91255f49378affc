"""The op table is complete, and its meanings agree with Python and NumPy on the values where things go wrong."""

import math

import numpy as np
import pytest

from monolect.base.dtype import FLOATS, INTS, DType, dtypes
from monolect.base.errors import IRError
from monolect.ir.check.interp import evaluate
from monolect.ir.ops import COMMUTATIVE, ELEMENTWISE, MOVEMENT, ROWS, ParamArg, Stage, broadcast
from monolect.ir.uop import UOp, const, idx, node, shape_source
from tests.strategies import edge_values

WIDE = [d for d in INTS if d.kind in "iu"]


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda r: r.name)
def test_rows_are_complete(row) -> None:
    assert row.prose.endswith(".") and row.prose[0].isprintable() and row.arg
    assert row.stages and row.stages in Stage.TENSOR | Stage.KERNEL | Stage.PROGRAM | Stage.COMMAND
    assert row.hi is None or row.lo <= row.hi
    assert row.meaning is not None or row.name == "CAST" or "elementwise" not in row.traits


def test_groups_come_from_the_rows() -> None:
    assert {"ADD", "MUL", "MAX", "CMPNE", "XOR"} <= COMMUTATIVE <= ELEMENTWISE
    assert MOVEMENT == {"PERMUTE", "FLIP", "RESHAPE", "EXPAND", "PAD", "SHRINK", "INDEX"}


def param(d: DType, shape: tuple = (), slot: int = 0) -> UOp:
    return node("PARAM", (shape_source(shape),), ParamArg(slot, d))


def on_edges(op: str, d: DType, arity: int = 2) -> tuple[np.ndarray, list[np.ndarray]]:
    """The op on every pair of edge values, and the operands."""
    values = np.array(edge_values(d), d.numpy)
    operands = [x.reshape(-1) for x in np.meshgrid(*[values] * arity)]
    leaves = [param(d, (values.size**arity,), k) for k in range(arity)]
    return evaluate(node(op, tuple(leaves)), dict(zip(leaves, operands, strict=True))), operands


def python_idiv(a: int, b: int) -> int:
    return 0 if b == 0 else a // b


def python_mod(a: int, b: int) -> int:
    return 0 if b == 0 else a % b


def wrap(v: int, d: DType) -> int:
    v &= (1 << d.bits) - 1
    return v if d.kind == "u" or v < 1 << (d.bits - 1) else v - (1 << d.bits)


INTEGER_MEANINGS = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "MAX": max,
    "IDIV": python_idiv,
    "MOD": python_mod,
    "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b,
    "XOR": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("d", WIDE, ids=lambda d: d.name)
@pytest.mark.parametrize("op", INTEGER_MEANINGS)
def test_integer_arithmetic_wraps(op: str, d: DType) -> None:
    got, (a, b) = on_edges(op, d)
    want = [wrap(INTEGER_MEANINGS[op](int(x), int(y)), d) for x, y in zip(a, b, strict=True)]
    assert got.tolist() == want


@pytest.mark.parametrize("d", WIDE, ids=lambda d: d.name)
def test_shifts_outside_the_width(d: DType) -> None:
    for amount in (0, 1, d.bits - 1, d.bits, d.bits + 5, *([-1] if d.kind == "i" else [])):
        for x in edge_values(d):
            leaf, by = param(d), const(amount, d)
            left, right = evaluate([node("SHL", (leaf, by)), node("SHR", (leaf, by))], {leaf: np.array(x, d.numpy)})
            inside = 0 <= amount < d.bits
            assert left == (wrap(x << amount, d) if inside else 0)
            assert right == (x >> amount if inside else -1 if x < 0 else 0)


@pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize(("op", "f"), [("ADD", np.add), ("MUL", np.multiply), ("MAX", np.maximum), ("DIV", np.divide)])
def test_float_arithmetic(op: str, f, d: DType) -> None:
    got, (a, b) = on_edges(op, d)
    wide = np.float32 if d.bits < 32 else d.numpy
    with np.errstate(all="ignore"):
        want = f(a.astype(wide), b.astype(wide)).astype(d.numpy)
    assert got.dtype == want.dtype
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)
    zeros = (want == 0) & (op != "MAX")  # which of two zeros is the larger is left open
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


@pytest.mark.parametrize("d", [*WIDE, dtypes.float32, dtypes.bool, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("op", "f"),
    [("CMPLT", "lt"), ("CMPNE", "ne"), ("CMPGT", "gt"), ("CMPGE", "ge"), ("CMPLE", "le"), ("CMPEQ", "eq")],
)
def test_comparisons(op: str, f: str, d: DType) -> None:
    got, (a, b) = on_edges(op, d)
    pairs = zip(a.astype(object), b.astype(object), strict=True)
    plain = [(float(x), float(y)) if d.is_float else (int(x), int(y)) for x, y in pairs]
    assert got.dtype == bool
    assert got.tolist() == [getattr(x, f"__{f}__")(y) for x, y in plain]


@pytest.mark.parametrize("op", ["RECIP", "TRUNC", "EXP2", "LOG2", "SIN", "SQRT", "NEG"])
def test_unary_floats(op: str) -> None:
    got, (a,) = on_edges(op, dtypes.float32, 1)
    with np.errstate(all="ignore"):
        want = {"RECIP": lambda x: 1 / x, "TRUNC": np.trunc, "EXP2": np.exp2, "LOG2": np.log2, "SIN": np.sin,
                "SQRT": np.sqrt, "NEG": np.negative}[op](a)  # fmt: skip
    np.testing.assert_array_equal(got, want)


def test_bool_arithmetic_is_logic() -> None:
    for op, f in (("ADD", "__or__"), ("MUL", "__and__"), ("MAX", "__or__"), ("XOR", "__xor__")):
        got, (a, b) = on_edges(op, dtypes.bool)
        assert got.tolist() == [getattr(bool(x), f)(bool(y)) for x, y in zip(a, b, strict=True)]
    for op in ("NEG", "SUB", "MOD", "IDIV"):
        with pytest.raises(IRError):
            node(op, (const(True, dtypes.bool),) * ROWS[op].lo)


def test_threefry_agrees_with_the_published_vectors() -> None:
    # Random123's known answers for threefry2x32 with 20 rounds: counter, key, result
    vectors = [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ]
    c, k = param(dtypes.uint64), param(dtypes.uint64, slot=1)
    for counter, key, want in vectors:
        env = {p: np.uint64(x[0] | x[1] << 32) for p, x in ((c, counter), (k, key))}
        got = int(evaluate(node("THREEFRY", (c, k)), env))
        assert (got & 0xFFFFFFFF, got >> 32) == want


@pytest.mark.parametrize(
    ("shapes", "want"),
    [([(2, 1), (3,)], (2, 3)), ([(), (4,)], (4,)), ([(1, 1), (5, 1)], (5, 1)), ([(0,), (1,)], (0,))],
)
def test_broadcast(shapes: list, want: tuple) -> None:
    assert broadcast(shapes) == want == np.broadcast_shapes(*shapes)


F = param(dtypes.float32, (2, 3))
H = param(dtypes.float16, (2, 3))
# fmt: off
REFUSED = [
    ("ADD", (F, H), None, "operand dtypes differ"),
    ("ADD", (F, param(dtypes.float32, (4,))), None, "do not broadcast"),
    ("ADD", (F,), None, "wrong number of sources"),
    ("XOR", (F, F), None, "integer or bool"),
    ("RECIP", (param(dtypes.int32),), None, "must be a float"),
    ("WHERE", (F, F, F), None, "condition of WHERE"),
    ("PERMUTE", (F,), (0, 0), "PERMUTE order"),
    ("FLIP", (F,), (True,), "FLIP flags"),
    ("RESHAPE", (F, shape_source((4, 2))), None, "changes the number of elements"),
    ("EXPAND", (F, shape_source((4, 3))), None, "EXPAND shape"),
    ("PAD", (F, shape_source((1, 0)), shape_source((2, 3))), None, "outside"),
    ("SHRINK", (F, shape_source((1, 0)), shape_source((2, 3))), None, "outside"),
    ("INDEX", (F, idx(0), idx(0), idx(0)), None, "more indices than axes"),
    ("INDEX", (F, F), None, "INDEX needs integers"),
    ("STACK", (F, param(dtypes.float32, (4,))), None, "STACK shapes differ"),
    ("BITCAST", (F,), dtypes.float64, "preserves total bytes"),
    ("REDUCE", (F,), ("SUB", (0,)), "REDUCE op"),
    ("REDUCE", (F,), ("ADD", (2,)), "REDUCE axes"),
    ("SCAN", (F,), ("ADD", 2), "along an axis"),
    ("SCAN", (F,), ("SUB", 0), "ADD, MAX or MUL"),
    ("CAST", (F,), dtypes.void, "target of a cast"),
    ("IOTA", (idx(3),), dtypes.float32, "IOTA dtype"),
    ("FOO", (), None, "unknown op"),
]
# fmt: on


@pytest.mark.parametrize(("op", "src", "arg", "message"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_refused_nodes(op: str, src: tuple, arg: object, message: str) -> None:
    with pytest.raises(IRError, match=message) as e:
        node(op, src, arg)
    assert e.value.expected is not None and e.value.found is not None


def test_power_and_multiply_add() -> None:
    x, y = param(dtypes.float64), param(dtypes.float64, slot=1)
    env = {x: 2.5, y: 3.0}
    assert evaluate(node("POW", (x, y)), env) == math.pow(2.5, 3)
    assert evaluate(node("MULACC", (x, y, x)), env) == 2.5 * 3 + 2.5
