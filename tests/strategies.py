"""Random graphs for property tests, and arrays to bind to their leaves. Graphs are plain: nothing is simplified.

`index_graphs` are scalar index expressions over RANGEs, `tensor_graphs` tensors of up to three axes, `arguments` every
kind of value a node may carry.
"""

from math import inf, nan, prod
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from monolect.base.dtype import ALL, DType, dtypes
from monolect.ir.check.arrays import storage
from monolect.ir.ops import INVALID, ROWS, BufferArg, KernelInfo, ParamArg
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, toposort

Draw = Any
# of tests whose examples are programs to compile: half of the examples of `make test`, all of `make test-all`
COMPILED = settings(max_examples=n // 2 if (n := settings().max_examples) <= 50 else n)


def often(few: int, many: int) -> int:
    """`few` times in `make test`, `many` times in `make test-all`."""
    return many if settings().max_examples > 50 else few


SMALL_DTYPES = (dtypes.float32, dtypes.int32, dtypes.bool, dtypes.uint8, dtypes.float16, dtypes.int64, dtypes.bfloat16)
_UNARY_FLOAT = ("RECIP", "TRUNC", "NEG", "EXP2", "SQRT", "SIN", "LOG2")
_BINARY_INT = ("ADD", "MUL", "MAX", "MOD", "IDIV", "XOR", "OR", "AND", "SHR", "SHL", "SUB")
_BINARY_FLOAT = ("ADD", "MUL", "MAX", "SUB", "DIV")
_BINARY_BOOL = ("ADD", "MUL", "MAX", "XOR", "OR", "AND")
_COMPARE = ("CMPLT", "CMPNE", "CMPGT", "CMPGE", "CMPLE", "CMPEQ")


def edge_values(d: DType) -> list:
    """The values of `d` at which things go wrong."""
    if d.is_float:
        return [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, inf, -inf, nan]
    if d.kind == "b":
        return [False, True]
    if d.kind == "s":
        return [0]  # other values have no CONST
    lo, hi = (-(2**40), 2**40) if d.kind == "x" else (d.min, d.max)
    return [v for v in (0, 1, -1, 2, 3, 7, -5, lo, hi) if lo <= v <= hi]


def constants(d: DType) -> st.SearchStrategy[UOp]:
    return st.sampled_from(edge_values(d)).map(lambda v: const(v, d))


def bindings(u: UOp, seed: int = 0) -> dict[UOp, np.ndarray]:
    """Random arrays, edge values among them, for every BUFFER and PARAM below `u`."""
    rng = np.random.default_rng(seed)
    out = {}
    for v in toposort(u):
        if v.op in ("BUFFER", "PARAM"):
            if v.op == "PARAM" and v.arg.min is not None:
                out[v] = rng.integers(v.arg.min, v.arg.max + 1)
                continue
            values = edge_values(v.dtype) + list(range(10))
            pick = [values[k] for k in rng.integers(0, len(values), prod(v.shape))]
            out[v] = np.array(pick, storage(v.dtype)).reshape(v.shape)
    return out


def assert_same(got: np.ndarray, want: np.ndarray, message: str = "") -> None:
    """Equal dtype, shape and elements; nan is equal to nan."""
    assert got.dtype == want.dtype and got.shape == want.shape, message
    if got.dtype.kind not in "biuf":  # NumPy does not know that small floats have nans
        got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want, err_msg=message)


def normal_form(u: UOp) -> UOp:
    """`u` built anew through the simplifiers."""
    new: dict[UOp, UOp] = {}
    for v in toposort(u):
        src = tuple(new[s] for s in v.src)
        new[v] = build(v.op, *src, arg=v.arg) if v.tag is None else node(v.op, src, v.arg, v.tag)
    return new[u]


# ---- index expressions -----------------------------------------------------------------------------------------------
@st.composite
def index_graphs(draw: Draw, bounds: tuple[int, ...] = (4, 6, 5), size: int = 10, boolean: bool = False) -> UOp:
    """A scalar expression of ADD, MUL, IDIV, MOD, MAX by constants, and WHERE of CMPLT, over one RANGE a bound."""
    nodes = [node("RANGE", (idx(n),), (k, "LOOP")) for k, n in enumerate(bounds)]
    factor = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12, 24, -1, -2, -3, 0, 7])
    for _ in range(draw(st.integers(1, size))):
        kind = draw(
            st.sampled_from(["ADD", "ADD", "ADD", "MUL", "IDIV", "MOD", "IDIV", "MOD", "MAX", "WHERE", "const"])
        )
        pick = st.sampled_from(nodes[-4:] + nodes[: len(bounds)])
        a = draw(pick)
        if kind in ("ADD", "MAX"):
            nodes.append(node(kind, (a, draw(pick))))
        elif kind == "WHERE":
            nodes.append(node("WHERE", (node("CMPLT", (a, draw(pick))), draw(pick), draw(pick))))
        elif kind == "const":
            nodes.append(node("ADD", (a, idx(draw(st.integers(-30, 30))))))
        else:
            nodes.append(node(kind, (a, idx(draw(factor)))))
    if not boolean:
        return nodes[-1]
    return node("CMPLT", (nodes[-1], idx(draw(st.integers(-20, 60)))))


def range_grid(u: UOp) -> dict[UOp, np.ndarray]:
    """All values of all RANGEs below `u`, shaped to broadcast against each other."""
    loops = sorted((v for v in toposort(u) if v.op == "RANGE"), key=lambda v: v.arg[0])
    shapes = [(-1,) + (1,) * (len(loops) - k - 1) for k in range(len(loops))]
    return {r: np.arange(r.src[0].arg[0]).reshape(s) for r, s in zip(loops, shapes, strict=True)}


# ---- tensor graphs ---------------------------------------------------------------------------------------------------
@st.composite
def tensor_graphs(draw: Draw, size: int = 10, dtypes_: tuple[DType, ...] = SMALL_DTYPES, pad: bool = True) -> UOp:
    """A tensor of up to three axes of up to four elements, from a few BUFFERs."""
    nodes: list[UOp] = []
    for slot in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
        d = draw(st.sampled_from(dtypes_))
        nodes.append(node("BUFFER", (shape_source(shape),), BufferArg(slot, d, "cpu")))
    for _ in range(draw(st.integers(1, size))):
        x = draw(st.sampled_from(nodes[-3:] + nodes[:1]))
        step = draw(st.sampled_from(_STEPS if pad else [s for s in _STEPS if s is not _pad]))
        nodes.append(step(draw, x, nodes))
    return nodes[-1]


def _elementwise(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    d = x.dtype
    ops = _BINARY_FLOAT if d.is_float else _BINARY_BOOL if d.kind == "b" else _BINARY_INT
    y = draw(st.one_of(constants(d), st.sampled_from([n for n in nodes if n.dtype is d and _fits(n.shape, x.shape)])))
    pair = (x, y) if draw(st.booleans()) else (y, x)
    return node(draw(st.sampled_from(ops + _COMPARE)), pair)


def _unary(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    if x.dtype.is_float:
        return node(draw(st.sampled_from(_UNARY_FLOAT)), (x,))
    return node("NOT", (x,))


def _fits(a: tuple, b: tuple) -> bool:
    return len(a) <= len(b) and all(m in (1, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def _cast(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    return node("CAST", (x,), draw(st.sampled_from(SMALL_DTYPES)))


def _choose(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    zero = const(0, x.dtype)
    return node("WHERE", (node("CMPLT", (x, zero)), draw(constants(x.dtype)), x))


def _permute(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    return node("PERMUTE", (x,), tuple(draw(st.permutations(range(len(x.shape))))))


def _flip(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    return node("FLIP", (x,), tuple(draw(st.booleans()) for _ in x.shape))


def _reshape(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    n = prod(x.shape)
    shapes = [(n,), (1, n), (n, 1), x.shape, (*x.shape, 1)] + [(k, n // k) for k in (2, 3, 4) if n % k == 0]
    return node("RESHAPE", (x, shape_source(draw(st.sampled_from(shapes)))))


def _expand(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    return node("EXPAND", (x, shape_source(draw(st.integers(1, 3)) if n == 1 else n for n in x.shape)))


def _pad(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    around = [(draw(st.integers(0, 2)), draw(st.integers(0, 1))) for _ in x.shape]
    size = (n + a + b for n, (a, b) in zip(x.shape, around, strict=True))
    return node("PAD", (x, shape_source(a for a, _ in around), shape_source(size)))


def _shrink(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    off = [draw(st.integers(0, n - 1)) for n in x.shape]
    size = [draw(st.integers(1, n - o)) for n, o in zip(x.shape, off, strict=True)]
    return node("SHRINK", (x, shape_source(off), shape_source(size)))


def _reduce(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    axes = tuple(draw(st.sets(st.sampled_from(range(len(x.shape)))))) if x.shape else ()
    return node("REDUCE", (x,), (draw(st.sampled_from(["ADD", "MAX", "MUL"])), axes))


def _index(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    if not x.shape:
        return x
    if draw(st.booleans()):
        return node("INDEX", (x, idx(draw(st.integers(0, x.shape[0] - 1)))))
    return node("INDEX", (x, node("IOTA", (idx(draw(st.integers(1, x.shape[0]))),), dtypes.index)))


def _stack(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    return node("STACK", (x, x)) if len(x.shape) < 3 else x


def _marker(draw: Draw, x: UOp, nodes: list[UOp]) -> UOp:
    return node(draw(st.sampled_from(["CONTIGUOUS", "DETACH", "CONTIGUOUS_BACKWARD"])), (x,))


_STEPS = [
    _elementwise, _elementwise, _elementwise, _unary, _cast, _choose, _permute, _flip, _reshape, _expand, _pad, _shrink,
    _reduce, _index, _stack, _marker,
]  # fmt: skip


# ---- everything a node may carry -------------------------------------------------------------------------------------
def arguments() -> st.SearchStrategy[Any]:
    """Any argument or tag: numbers, strings, bytes, dtypes, records, and tuples of them."""
    dtype = st.sampled_from(ALL)
    name = st.none() | st.text(max_size=5)
    leaf = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(), dtype,
        st.binary(max_size=9), st.just(INVALID),
        _record(ParamArg, st.integers(0, 9), dtype, name, st.sampled_from([None, "GLOBAL", "REG"]), name,
                  st.none() | st.integers(), st.none() | st.integers()),
        _record(BufferArg, st.integers(0, 9), dtype, name | st.tuples(st.text(max_size=3), st.text(max_size=3))),
        _record(KernelInfo, st.text(max_size=9), st.none() | st.tuples(st.text(max_size=4)), st.integers(1, 8)),
    )  # fmt: skip
    return st.recursive(leaf, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)


def _record(kind: Any, *fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Records of these fields; `st.builds` would draw the others, whose types compiled modules do not tell."""
    return st.tuples(*fields).map(lambda values: kind(*values))


@st.composite
def any_graphs(draw: Draw) -> UOp:
    """A graph of any stage, with any tags and arguments of INS; it has a shape and a dtype but no meaning."""
    of_op = {
        "INS": arguments(),
        "SINK": st.none() | _record(KernelInfo, st.text(max_size=9), st.none(), st.integers(1, 8)),
        "GROUP": st.none() | st.integers(1, 8),
        "TUPLE": st.none(),
        "BARRIER": st.none(),
        "CUSTOMFUNCTION": st.text(),
        "SOURCE": st.text(),
        "BINARY": st.binary(max_size=20),
    }
    nodes = [draw(tensor_graphs(size=5)), draw(index_graphs(size=4))]
    nodes += [
        draw(constants(d)) for d in draw(st.lists(st.sampled_from([d for d in ALL if d.kind != "v"]), max_size=3))
    ]
    nodes.append(const(INVALID, dtypes.float32))
    for _ in range(draw(st.integers(0, 6))):
        op = draw(st.sampled_from([*of_op]))
        most = ROWS[op].hi
        src = tuple(draw(st.lists(st.sampled_from(nodes), max_size=3 if most is None else most)))
        nodes.append(node(op, src, draw(of_op[op]), draw(st.none() | arguments())))
    return node("SINK", tuple(nodes), draw(st.none() | st.just(KernelInfo("k", (("SPLIT", 0, 4),), 2))))
