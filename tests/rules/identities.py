"""For each identity, nodes on which it holds: `(op, src, arg)` as they are asked for, with numbers drawn at random.

A draw need not fire its identity; one of them must. Every draw must keep its value.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from monolect.base.dtype import dtypes
from monolect.ir.ops import BufferArg, ParamArg
from monolect.ir.rewrite.index import FALSE, TRUE
from monolect.ir.uop import UOp, const, idx, node, shape_source

F32, F16, I8, I32, I64, BOOL, INDEX = (
    dtypes.float32, dtypes.float16, dtypes.int8, dtypes.int32, dtypes.int64, dtypes.bool, dtypes.index,
)  # fmt: skip
Rng = np.random.Generator
Asked = tuple[str, tuple[UOp, ...], Any]


def loop(k: int, n: Any) -> UOp:
    return node("RANGE", (n if isinstance(n, UOp) else idx(n),), (k, "LOOP"))


def size(low: int, high: int, slot: int = 90) -> UOp:
    """A symbolic size."""
    return node("PARAM", (shape_source(()),), ParamArg(slot, INDEX, None, None, "n", low, high))


def tensor(d: Any, *shape: int, slot: int = 0) -> UOp:
    return node("BUFFER", (shape_source(shape),), BufferArg(slot, d, "cpu"))


def plus(*terms: Any) -> UOp:
    """A sum as it is written, in no form."""
    out = terms[0]
    for t in terms[1:]:
        out = node("ADD", (out, t if isinstance(t, UOp) else idx(t)))
    return out


def times(x: UOp, c: Any) -> UOp:
    return node("MUL", (x, c if isinstance(c, UOp) else idx(c)))


def over(op: str, x: UOp, c: Any) -> Asked:
    return op, (x, c if isinstance(c, UOp) else idx(c)), None


def draw(rng: Rng, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def gated(memory: UOp, at: UOp, alt: UOp, gate: UOp) -> tuple[UOp, ...]:
    return node("INDEX", (memory, at)), alt, gate


X, Y, Z = loop(0, 13), loop(1, 6), loop(2, 9)  # in the order of their serials
N = size(1, 7)
F, G, I, J, P, Q = (  # noqa: E741
    tensor(F32, 3, 4), tensor(F32, 3, 4, slot=1), tensor(I32, 3, 4, slot=2), tensor(I32, 3, 4, slot=3),
    tensor(BOOL, 3, 4, slot=4), tensor(BOOL, 3, 4, slot=5),
)  # fmt: skip
MEMORY = node("PARAM", (shape_source((13,)),), ParamArg(7, F32, None, "GLOBAL"))
LANES = shape_source(range(4))


def number(value: Any, d: Any = I32) -> UOp:
    return const(value, d)


def below(x: UOp, c: int) -> UOp:
    return node("CMPLT", (x, idx(c)))


def not_(p: UOp) -> UOp:
    return node("CMPNE", (p, TRUE))


def view(op: str, x: UOp, *sizes: tuple) -> Asked:
    return op, (x, *map(shape_source, sizes)), None


def a_number_of_any_op(rng: Rng) -> Asked:
    op = str(rng.choice(["ADD", "MUL", "MAX", "IDIV", "MOD", "CMPLT", "CMPNE"]))
    return op, (number(draw(rng, -9, 9)), number(draw(rng, 1, 9))), None


def an_index_number(rng: Rng) -> Asked:
    op = str(rng.choice(["ADD", "MUL", "MAX", "IDIV", "MOD", "CMPLT", "CMPNE"]))
    return op, (idx(draw(rng, -9, 9)), idx(draw(rng, 1, 9))), None


def products_of_ranges(rng: Rng) -> Asked:
    return over("MUL", times(Y, draw(rng, 2, 5)), times(X, draw(rng, -3, 3)))


# name -> draws
CASES: dict[str, Callable[[Rng], Asked]] = {
    "index_numbers": an_index_number,
    "index_sum": lambda r: over("ADD", plus(times(Y, draw(r, 1, 4)), draw(r, -3, 3)), plus(X, times(Y, draw(r, -4, 4)))),
    "index_recombine": lambda r: over("ADD", times(node("IDIV", (X, idx(k := draw(r, 2, 5)))), k), node("MOD", (X, idx(k)))),
    "index_scale": lambda r: over("MUL", plus(times(X, 3), Y, draw(r, -4, 4)), draw(r, -4, 4)),
    "index_distribute": lambda r: over("MUL", plus(X, times(Y, draw(r, 1, 3)), draw(r, -3, 3)), Z),
    "index_product": products_of_ranges,
    "index_div_self": lambda r: over("IDIV", N, N),
    "index_div_below": lambda r: over("IDIV", loop(0, N), N),
    "index_div_zero": lambda r: over("IDIV", X, 0),
    "index_div_one": lambda r: over("IDIV", X, 1),
    "index_div_bounds": lambda r: over("IDIV", plus(X, draw(r, 0, 40)), 13),
    "index_div_multiples": lambda r: over("IDIV", plus(times(X, 6), Y, draw(r, -30, 30)), 6),
    "index_div_common": lambda r: over("IDIV", plus(times(X, 4), times(Y, 6), draw(r, -9, 9)), 2 * draw(r, 4, 9)),
    "index_div_small": lambda r: over("IDIV", plus(times(X, 6), Y), 6 * draw(r, 2, 4)),
    "index_div_div": lambda r: over("IDIV", node("IDIV", (plus(X, draw(r, -4, 4)), idx(2))), draw(r, 2, 3)),
    "index_div_mod": lambda r: over("IDIV", node("MOD", (X, idx(2 * (c := draw(r, 2, 5))))), c),
    "index_mod_self": lambda r: over("MOD", N, N),
    "index_mod_below": lambda r: over("MOD", loop(0, N), N),
    "index_mod_one": lambda r: over("MOD", X, draw(r, 0, 1)),
    "index_mod_bounds": lambda r: over("MOD", plus(X, draw(r, 0, 40)), 13),
    "index_mod_multiples": lambda r: over("MOD", plus(times(X, draw(r, 1, 20)), times(Y, draw(r, 1, 9)), draw(r, -30, 30)), 7),
    "index_mod_common": lambda r: over("MOD", plus(times(X, 4), times(Y, 6), draw(r, -9, 9)), 2 * draw(r, 4, 9)),
    "index_mod_small": lambda r: over("MOD", plus(times(X, 6), Y), 6 * draw(r, 2, 4)),
    "index_mod_mod": lambda r: over("MOD", node("MOD", (X, idx(2 * (c := draw(r, 2, 5))))), c),
    "index_less_bounds": lambda r: over("CMPLT", X, draw(r, -2, 14)),
    "index_less_sum": lambda r: over("CMPLT", plus(X, draw(r, -4, 4)), times(Y, draw(r, 1, 3))),
    "index_less_common": lambda r: over("CMPLT", times(X, draw(r, 2, 5)), draw(r, 1, 40)),
    "index_not_less": lambda r: ("CMPNE", (below(X, draw(r, 1, 12)), TRUE), None),
    "less_of_casts": lambda r: ("CMPLT", (node("CAST", (X,), I32), number(draw(r, 1, 12))), None),
    "numbers": a_number_of_any_op,
    "commute": lambda r: ("ADD", (J, I) if draw(r, 0, 1) else (number(draw(r, 1, 9)), I), None),
    "add_zero": lambda r: ("ADD", (I, number(0)) if draw(r, 0, 1) else (number(0), I), None),
    "add_numbers": lambda r: ("ADD", (node("ADD", (I, number(draw(r, -9, 9)))), number(draw(r, 1, 9))), None),
    "mul_one": lambda r: ("MUL", (F, number(1, F32)) if draw(r, 0, 1) else (number(1), I), None),
    "mul_zero": lambda r: ("MUL", (tensor(I32), number(0)), None),
    "max_self": lambda r: ("MAX", (F, F), None),
    "max_bounds": lambda r: ("MAX", (X, idx(draw(r, -3, 15))), None),
    "div_one": lambda r: ("IDIV", (I, number(1)), None),
    "differ_bounds": lambda r: ("CMPNE", (X, idx(draw(r, 9, 20))), None),
    "differ_false": lambda r: ("CMPNE", (P, FALSE), None),
    "not_not": lambda r: ("CMPNE", (not_(P), TRUE), None),
    "and_self": lambda r: ("AND", (I, I), None),
    "and_true": lambda r: ("AND", (below(X, 5), TRUE if draw(r, 0, 1) else FALSE), None),
    "and_set": lambda r: ("AND", (node("AND", (below(X, 5), below(Y, 3))), below(X, 5)), None),
    "or_self": lambda r: ("OR", (I, I), None),
    "or_false": lambda r: ("OR", (P, FALSE) if draw(r, 0, 1) else (TRUE, below(X, 3)), None),
    "where_same": lambda r: ("WHERE", (P, F, F), None),
    "where_known": lambda r: ("WHERE", (TRUE if draw(r, 0, 1) else FALSE, F, G), None),
    "where_left": lambda r: ("WHERE", (P, node("WHERE", (P, F, G)), G), None),
    "where_right": lambda r: ("WHERE", (P, F, node("WHERE", (P, F, G))), None),
    "where_bools": lambda r: ("WHERE", (P, TRUE, FALSE), None),
    "cast_same": lambda r: ("CAST", (F,), F32),
    "cast_number": lambda r: ("CAST", (number(draw(r, -9, 9)),), F32 if draw(r, 0, 1) else I8),
    "cast_index_back": lambda r: ("CAST", (node("CAST", (X,), I8),), INDEX),
    "cast_of_bools": lambda r: ("CAST", (node("CAST", (P,), I8),), F32),
    "cast_of_where": lambda r: ("CAST", (node("WHERE", (P, number(draw(r, -9, 9)), number(2))),), F32),
    "bits_same": lambda r: ("BITCAST", (F,), F32),
    "bits_of_bool": lambda r: ("BITCAST", (P,), I8),
    "reshape_same": lambda r: view("RESHAPE", F, (3, 4)),
    "reshape_reshape": lambda r: view("RESHAPE", node("RESHAPE", (F, shape_source((12,)))), (2, 6)),
    "expand_same": lambda r: view("EXPAND", F, (3, 4)),
    "expand_expand": lambda r: view("EXPAND", node("EXPAND", (tensor(F32, 1, 1), shape_source((3, 1)))), (3, draw(r, 2, 5))),
    "permute_same": lambda r: ("PERMUTE", (F,), (0, 1)),
    "permute_permute": lambda r: ("PERMUTE", (node("PERMUTE", (tensor(F32, 2, 3, 4),), (2, 0, 1)),), (0, 2, 1)),
    "flip_none": lambda r: ("FLIP", (F,), (False, False)),
    "shrink_whole": lambda r: view("SHRINK", F, (0, 0), (3, 4)),
    "shrink_shrink": lambda r: view("SHRINK", node("SHRINK", (F, *map(shape_source, ((1, 1), (2, 3))))), (0, draw(r, 0, 1)), (1, 2)),
    "pad_nothing": lambda r: view("PAD", F, (0, 0), (3, 4)),
    "load_never": lambda r: ("LOAD", gated(MEMORY, X, number(draw(r, -3, 3), F32), FALSE), None),
    "gate_true": lambda r: ("LOAD", gated(MEMORY, X, number(draw(r, -3, 3), F32), TRUE), None),
    "gate_lanes": lambda r: (
        "LOAD",
        gated(MEMORY, LANES, number(2, F32), node("AND", (below(LANES, draw(r, 4, 6)), below(LANES, draw(r, 1, 3))))),
        None,
    ),
    "reduce_ones": lambda r: ("REDUCE", (tensor(F32, 1, 4, 1),), ("ADD", (2, 0) if draw(r, 0, 1) else (2, 1))),
    "reduce_nothing": lambda r: ("REDUCE", (node("CAST", (loop(0, 0),), F32), loop(0, 0)), (str(r.choice(["ADD", "MUL"])), ())),
    "detach_detach": lambda r: ("DETACH", (node("DETACH", (F,)),), None),
    "contiguous_stored": lambda r: ("CONTIGUOUS", (F,) if draw(r, 0, 1) else (node("CONTIGUOUS", (F,)),), None),
    "after_nothing": lambda r: ("AFTER", (F, nothing_stored()), None),
}  # fmt: skip


def nothing_stored() -> UOp:
    """A store to a part of F that has no element."""
    part = node("SHRINK", (F, shape_source((0, 0)), shape_source((0, 4))))
    return node("STORE", (part, number(1, F32)))
