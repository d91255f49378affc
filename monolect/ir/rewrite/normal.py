"""Simplify each node while it is built, by local identities that always hold.

Each simplifier takes `(src, arg)`, the sources and argument of a node to build, and returns the simplified UOp. Index
arithmetic (dtype `index`) is a canonical sum (`ir.rewrite.index`). Other integers fold constants and drop neutral
elements. Floats keep their IEEE 754 meaning: x*1 is x, but x+0 is not, because -0.0 + 0 is 0.0. Each identity has a row
in `ir.rewrite.identities`, which the code names where it applies the identity.

What it is not: rewriting that needs a choice or a whole graph; that is done by named rules in `rules/`.
Invariant: the result has the dtype of the plain node, and its value wherever that is defined.
"""

from __future__ import annotations

from functools import lru_cache
from math import e, log, log2, pi, prod
from typing import Any

from monolect.base.dtype import DType, as_python, dtypes, to_numpy
from monolect.base.errors import IRError
from monolect.base.numpy import np
from monolect.ir.bounds import min_max, ranges
from monolect.ir.ops import INVALID, ROWS
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.identities import connect
from monolect.ir.rewrite.index import (
    FALSE,
    TRUE,
    from_linear,
    index_add,
    index_idiv,
    index_less,
    index_mod,
    index_mul,
    is_unbounded,
    limits,
    linear,
    operands,
)
from monolect.ir.rewrite.operand_order import compare, in_order
from monolect.ir.uop import SIMPLIFIERS, UOp, build, const, idx, node, shape_source

allowed: Any = None  # allowed(name): whether that identity is to be applied; None: all are


def _set_allowed(may: Any) -> None:
    global allowed
    allowed = may


# ---- one simplifier per op -------------------------------------------------------------------------------------------
def _is(u: UOp, value: Any) -> bool:
    """Whether `u` is a CONST with the number `value`. A bool does not count as a number."""
    return u.op == "CONST" and u.arg[0].__class__ is not bool and u.arg[0] == value


def _known(*src: UOp) -> bool:
    """Whether all of `src` are CONSTs with a valid value (not INVALID, the value of padding that must be discarded)."""
    return all(s.op == "CONST" and s.arg[0] is not INVALID for s in src)


def fold(op: str, src: tuple[UOp, ...], arg: Any = None) -> UOp | None:
    """Compute `op` on the CONSTs `src` at compile time by the NumPy function in the op's row, and return the result as
    a CONST.

    `src`: CONSTs with valid values. `arg`: the argument of the op. Returns None if the row has no such function, if
    folding is switched off, or if an index value is too large; then the caller builds the node of `op`.
    """
    row = ROWS[op]
    d = src[-1].dtype
    if row.meaning is None or allowed is not None and not allowed("index_numbers" if d.kind == "x" else "numbers"):
        return None
    if d.kind == "x":
        vals: list[Any] = [s.arg[0] for s in src]
        if any(abs(v) > 2**62 for v in vals):
            return None
        nd: Any = np.int64
    else:
        nd = np.float32 if d.is_float and d.bits < 32 else to_numpy(d)
        vals = [s.arg[0] for s in src]
    with np.errstate(all="ignore"):
        arrays = [np.array(v, bool if s.dtype is dtypes.bool else nd) for v, s in zip(vals, src, strict=True)]
        return const(row.meaning(d, *arrays).item(), row.dtype(src, arg))


ORDERED = frozenset(("ADD", "MUL", "MAX", "CMPNE", "AND", "OR"))  # ops whose simplifiers call `_commute`


def _commute(op: str, a: UOp, b: UOp) -> UOp:
    """Return the node of the commutative op `op` on `a` and `b` in canonical order: a constant is the right operand;
    else `operand_order.compare` decides.
    """
    is_one_constant = (a.op == "CONST") != (b.op == "CONST")
    if a.op == "CONST" if is_one_constant else compare(a, b) > 0:
        if allowed is None or allowed("commute"):
            a, b = b, a
    return node(op, (a, b))


def _keep(op: str, src: tuple[UOp, ...], like: UOp) -> UOp | None:
    """Return `like`, one of the operands `src`, as the result of `op`; None if broadcasting makes the result larger
    than `like`.
    `op`: name of the op; the result does not depend on it.
    """
    return like if all(s is like or s.shape == () or s.shape == like.shape for s in src) else None


def _add(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a.dtype.kind == "x" and b.dtype.kind == "x":
        return index_add(a, b)
    if a.op == b.op == "CONST" and _known(a, b) and a.dtype is b.dtype and (f := fold("ADD", src)) is not None:
        return f
    if not a.dtype.is_float and a.dtype is b.dtype:
        if _is(b, 0) and a.dtype.is_int and (allowed is None or allowed("add_zero")):
            return a
        if _is(a, 0) and a.dtype.is_int and (allowed is None or allowed("add_zero")):
            return b
        is_number = b.op == "CONST" and a.op == "ADD" and a.src[1].op == "CONST" and a.dtype.is_int
        if is_number and (allowed is None or allowed("add_numbers")):
            return build("ADD", a.src[0], build("ADD", a.src[1], b))
    return _commute("ADD", a, b)


INPUTS = (dtypes.float32, dtypes.float64)  # dtypes of constants that may become inputs
MARKS = (log2(e), log(2.0), pi / 2)  # constants in EXP2(x * log2(e)), LOG2(x) * ln(2) and SIN(pi/2 - x)


def is_mark(c: UOp, *marks: float) -> bool:
    """Whether the constant `c` is one of `marks`: factors such as log2(e) by which later rules recognize e**x, ln(x) or
    cos(x), and compute a more precise function.

    Such a constant is neither folded nor made an input. Otherwise the function would round differently if x is a
    constant. `marks`: constants to compare with (default: MARKS). `c`: a CONST; False if its dtype is not a float.
    """
    return c.dtype.is_float and abs(c.arg[0]) in _rounded(marks or MARKS, c.dtype)


@lru_cache
def _rounded(marks: tuple[float, ...], d: DType) -> frozenset[Any]:
    return frozenset([as_python(m, d) for m in marks])


@lru_cache(maxsize=4096)  # of nodes that hold no memory
def may_be_input(c: UOp) -> bool:
    """Whether the node `c` is a float constant that may become an input of a program whose numbers vary."""
    return c.op == "CONST" and c.dtype in INPUTS and isinstance(c.value, float) and not is_mark(c)


def may_vary(value: float) -> bool:
    """Whether a program may read the float `value` from memory instead of having it as a constant. It may not if
    `value` is close to one of MARKS, or rounds to 0 or infinity in one of the dtypes INPUTS.
    """
    size = abs(value)
    return 1e-30 < size < 1e30 and all([abs(size - m) > 1e-6 for m in MARKS])


def _mul(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a.dtype.kind == "x" and b.dtype.kind == "x":
        return index_mul(a, b)
    if a.op == b.op == "CONST" and _known(a, b) and a.dtype is b.dtype:
        if (is_mark(a, MARKS[0]) or is_mark(b, MARKS[0])) and not (_is(a, 1) or _is(b, 1)):
            return _commute("MUL", a, b)
        if (f := fold("MUL", src)) is not None:
            return f
    if a.dtype is b.dtype:
        if (_is(b, 1) or _is(a, 1)) and (allowed is None or allowed("mul_one")):
            return a if _is(b, 1) else b
        is_zero = a.dtype.is_int and (_is(b, 0) and a.shape == () or _is(a, 0) and b.shape == ())
        if is_zero and (allowed is None or allowed("mul_zero")):
            return const(0, a.dtype)
    return _commute("MUL", a, b)


def _max(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a is b and (allowed is None or allowed("max_self")):
        return a
    if _known(a, b) and a.dtype is b.dtype and (f := fold("MAX", src)) is not None:
        return f
    if a.dtype.is_int and a.dtype is b.dtype:
        if min_max(a)[0] >= min_max(b)[1] and _keep("MAX", src, a) and (allowed is None or allowed("max_bounds")):
            return a
        if min_max(b)[0] >= min_max(a)[1] and _keep("MAX", src, b) and (allowed is None or allowed("max_bounds")):
            return b
    return _commute("MAX", a, b)


def _idiv(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a.dtype.kind == "x" and b.dtype.kind == "x":
        return index_idiv(a, b)
    if _known(a, b) and a.dtype is b.dtype and (f := fold("IDIV", src)) is not None:
        return f
    return a if _is(b, 1) and a.dtype is b.dtype and (allowed is None or allowed("div_one")) else node("IDIV", src)


def _mod(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a.dtype.kind == "x" and b.dtype.kind == "x":
        return index_mod(a, b)
    if _known(a, b) and a.dtype is b.dtype and (f := fold("MOD", src)) is not None:
        return f
    return node("MOD", src)


def _cmplt(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a.dtype.kind == "x" and b.dtype.kind == "x" and a.shape == b.shape == ():
        return index_less(a, b)
    if _known(a, b) and a.dtype is b.dtype and (f := fold("CMPLT", src)) is not None:
        return f
    if a.dtype.is_int and a.shape == b.shape == () and "CAST" in (a.op, b.op):
        i, j = _as_index(a), _as_index(b)
        if i is not None and j is not None and (allowed is None or allowed("less_of_casts")):
            return index_less(i, j)
    return node("CMPLT", src)


def _as_index(u: UOp) -> UOp | None:
    """Return a node of dtype `index` with the value of the integer node `u`, or None if no such node is known. A CONST,
    or a CAST of an index that cannot wrap, has one.
    """
    if u.op == "CONST" and u.arg[0] is not INVALID:
        return idx(u.arg[0])
    if u.op != "CAST" or u.src[0].dtype.kind != "x":
        return None
    lo, hi = min_max(u.src[0])
    return u.src[0] if u.dtype.min <= lo and hi <= u.dtype.max else None


def _cmpne(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if _known(a, b) and a.dtype is b.dtype and (f := fold("CMPNE", src)) is not None:
        return f
    if a.dtype.is_int and a.dtype is b.dtype and a.shape == b.shape == ():
        lo, hi = min_max(node("CMPNE", (a, b))) if a is not b else (False, False)
        if lo == hi and (allowed is None or allowed("differ_bounds")):
            return TRUE if lo else FALSE
    if a.dtype is dtypes.bool and b.dtype is dtypes.bool and b.op == "CONST":
        if b.arg[0] is False and (allowed is None or allowed("differ_false")):
            return a
        if a.op == "CMPNE" and a.src[1] is TRUE and b.arg[0] is True and (allowed is None or allowed("not_not")):
            return a.src[0]
        if a.op == "CMPLT" and a.src[0].dtype.kind == "x" and a.shape == ():
            return negate(a)
    return _commute("CMPNE", a, b)


def conjuncts(u: UOp) -> list[UOp]:
    """Return the conditions c1, c2, ... of `u` = c1 AND c2 AND ...; [u] if `u` is no AND of bools."""
    return operands(u, "AND") if u.dtype is dtypes.bool else [u]


def _and(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a is b and (allowed is None or allowed("and_self")):
        return a
    if a.dtype is not dtypes.bool or b.dtype is not dtypes.bool:
        return (fold("AND", src) if _known(a, b) and a.dtype is b.dtype else None) or _commute("AND", a, b)
    for x, y in ((a, b), (b, a)):
        if x is TRUE and (allowed is None or allowed("and_true")):
            return y
        if x is FALSE and y.shape == () and (allowed is None or allowed("and_true")):
            return x
    if a.shape != b.shape or a.shape != ():
        return _commute("AND", a, b)
    if allowed is not None and not allowed("and_set"):
        return node("AND", (a, b))
    parts = sorted(set(conjuncts(a)) | set(conjuncts(b)), key=in_order)
    acc = parts[0]
    for p in parts[1:]:
        acc = node("AND", (acc, p))
    return acc


def _or(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a is b and (allowed is None or allowed("or_self")):
        return a
    if a.dtype is dtypes.bool and b.dtype is dtypes.bool:
        for x, y in ((a, b), (b, a)):
            if x is FALSE and (allowed is None or allowed("or_false")):
                return y
            if x is TRUE and y.shape == () and (allowed is None or allowed("or_false")):
                return x
    elif _known(a, b) and a.dtype is b.dtype and (f := fold("OR", src)) is not None:
        return f
    return _commute("OR", a, b)


def _where(src: tuple[UOp, ...], arg: Any) -> UOp:
    c, a, b = src
    if a is b and (c.shape == () or c.shape == a.shape) and (allowed is None or allowed("where_same")):
        return a
    if c.op == "CONST" and c.dtype is dtypes.bool:
        pick, drop = (a, b) if c.arg[0] else (b, a)
        fits = pick.dtype is drop.dtype and (drop.shape == () or drop.shape == pick.shape)
        if fits and (allowed is None or allowed("where_known")):
            return pick
    # a nested WHERE of the same condition is replaced by the branch that is taken, unless that changes the shape
    if a.op == "WHERE" and a.src[0] is c and a.shape in (a.src[1].shape, b.shape, c.shape):
        a = a.src[1] if (allowed is None or allowed("where_left")) else a
    if b.op == "WHERE" and b.src[0] is c and b.shape in (b.src[2].shape, a.shape, c.shape):
        b = b.src[2] if (allowed is None or allowed("where_right")) else b
    if a is b and (c.shape == () or c.shape == a.shape) and (allowed is None or allowed("where_same")):
        return a
    if a.dtype is dtypes.bool and a is TRUE and b is FALSE and (allowed is None or allowed("where_bools")):
        return c
    return node("WHERE", (c, a, b))


def _cast(src: tuple[UOp, ...], arg: Any) -> UOp:
    (x,) = src
    if x.dtype.kind == "s" or arg.kind == "s":
        found = f"{x.dtype.name} to {arg.name}"
        raise IRError("dtype of an operand of CAST", expected="a formula for a storage dtype", found=found)
    if x.dtype is arg and (allowed is None or allowed("cast_same")):
        return x
    if x.op == "CONST" and x.arg[0] is not INVALID and (allowed is None or allowed("cast_number")):
        return const(as_python(x.arg[0], dtypes.int64) if arg.kind == "x" else x.arg[0], arg)  # an index of 64 bits
    if x.op == "CAST" and arg.kind == "x" and x.src[0].dtype.kind == "x":
        lo, hi = min_max(x.src[0])  # index -> int32 -> index is lossless within the bounds
        fits = x.dtype.is_int and x.dtype.min <= lo and hi <= x.dtype.max
        if fits and (allowed is None or allowed("cast_index_back")):
            return x.src[0]
    if x.op == "CAST" and x.src[0].dtype is dtypes.bool and (allowed is None or allowed("cast_of_bools")):
        return _cast(x.src, arg)  # every number type holds 0 and 1
    if x.op == "WHERE" and _known(*x.src[1:]) and (allowed is None or allowed("cast_of_where")):
        return _where((x.src[0], _cast(x.src[1:2], arg), _cast(x.src[2:], arg)), None)
    return node("CAST", src, arg)


def _bitcast(src: tuple[UOp, ...], arg: Any) -> UOp:
    """Return the simplified BITCAST of the source in `src` to the dtype `arg`.

    A BITCAST from or to bool goes through uint8, because a bool is a byte in memory and a bit in a register.
    """
    (x,) = src
    if x.dtype is arg and (allowed is None or allowed("bits_same")):
        return x
    if (x.dtype is dtypes.bool) is not (arg is dtypes.bool) and allowed is not None:
        allowed("bits_of_bool")
    if x.dtype is dtypes.bool and arg is not dtypes.bool:
        return _bitcast((_cast(src, dtypes.uint8),), arg)
    if arg is dtypes.bool and x.dtype is not dtypes.bool:
        return build("CMPNE", _bitcast(src, dtypes.uint8), const(0, dtypes.uint8))
    return node("BITCAST", src, arg)


def _unary(op: str) -> Any:
    """Return a simplifier for `op`, a function (src, arg) -> UOp, that only folds constants."""

    def simplify(src: tuple[UOp, ...], arg: Any) -> UOp:
        if _known(*src) and (f := fold(op, src, arg)) is not None:
            return f
        return node(op, src, arg)

    return simplify


# ---- movement ops: trivial ones vanish, chains of one kind merge -----------------------------------------------------
def _reshape(src: tuple[UOp, ...], arg: Any) -> UOp:
    x, s = src
    if x.shape == s.sizes and (allowed is None or allowed("reshape_same")):
        return x
    if x.op == "RESHAPE" and (allowed is None or allowed("reshape_reshape")):
        return _reshape((x.src[0], s), None)
    return node("RESHAPE", src)


def _expand(src: tuple[UOp, ...], arg: Any) -> UOp:
    if src[0].shape == src[1].sizes and (allowed is None or allowed("expand_same")):
        return src[0]
    if src[0].op == "EXPAND" and (allowed is None or allowed("expand_expand")):
        ROWS["EXPAND"].shape(src, arg)  # raises if the outer EXPAND changes an axis that is already expanded
        return _expand((src[0].src[0], src[1]), None)
    return node("EXPAND", src)


def _permute(src: tuple[UOp, ...], arg: Any) -> UOp:
    x = src[0]
    if arg == tuple(range(len(arg))) and (allowed is None or allowed("permute_same")):
        return x
    if x.op == "PERMUTE" and len(arg) == len(x.arg) and (allowed is None or allowed("permute_permute")):
        return _permute((x.src[0],), tuple(x.arg[i] for i in arg))
    return node("PERMUTE", src, arg)


def _flip(src: tuple[UOp, ...], arg: Any) -> UOp:
    return src[0] if not any(arg) and (allowed is None or allowed("flip_none")) else node("FLIP", src, arg)


def _shrink(src: tuple[UOp, ...], arg: Any) -> UOp:
    x, off, new = src
    is_whole = x.shape == new.sizes and all(o.__class__ is int and o == 0 for o in off.sizes)
    if is_whole and (allowed is None or allowed("shrink_whole")):
        return x
    if x.op == "SHRINK" and len(off.sizes) == len(x.shape) and (allowed is None or allowed("shrink_shrink")):
        both = tuple(
            a + b if a.__class__ is int and b.__class__ is int else idx(a) + b
            for a, b in zip(x.src[1].sizes, off.sizes, strict=True)
        )
        return node("SHRINK", (x.src[0], shape_source(both), new))
    return node("SHRINK", src)


def _pad(src: tuple[UOp, ...], arg: Any) -> UOp:
    x, off, new = src
    is_whole = x.shape == new.sizes and all(o.__class__ is int and o == 0 for o in off.sizes)
    return x if is_whole and (allowed is None or allowed("pad_nothing")) else node("PAD", src)


def _load(src: tuple[UOp, ...], arg: Any) -> UOp:
    src = _gated(src)
    if (
        len(src) == 3
        and src[2] is FALSE
        and src[1].shape == src[0].shape
        and (allowed is None or allowed("load_never"))
    ):
        return src[1]
    is_open = len(src) == 3 and src[2] is TRUE and (allowed is None or allowed("gate_true"))
    return node("LOAD", src[:-2] if is_open else src, arg)


def _store(src: tuple[UOp, ...], arg: Any) -> UOp:
    src = _gated(src)
    is_open = len(src) == 3 and src[2] is TRUE and (allowed is None or allowed("gate_true"))
    return node("STORE", src[:-1] if is_open else src, arg)


def _after(src: tuple[UOp, ...], arg: Any) -> UOp:
    """Return the simplified AFTER with the sources `src`: a value or memory, and the effects that it waits for.

    Effects on views without elements are dropped, because their loops never run.
    """
    effects = tuple([e for e in src[1:] if not _is_nothing(e, src[0])])
    if allowed is not None and len(effects) < len(src) - 1:
        allowed("after_nothing")
    return node("AFTER", (src[0], *effects), arg) if effects or len(src) == 1 else src[0]


def _is_nothing(effect: UOp, base: UOp) -> bool:
    """Whether `effect` writes to a view of `base` that has no elements, so that it does nothing."""
    return effect.op in ("STORE", "ATOMICADD") and effect.src[0] is not base and 0 in effect.src[0].shape


def _end(src: tuple[UOp, ...], arg: Any) -> UOp:
    """Return the END with the sources `src`, its body and its loops, and the argument `arg`.

    Each write to a PARAM in the body is made dependent on all LOOP ranges of the END, so that no pass hoists the write
    out of a loop.
    """
    loops = tuple([r for r in src[1:] if r.op == "RANGE" and r.arg[1] == "LOOP"])
    if allowed is not None:
        allowed("end_in_loops")
    return node("END", (_repeated(src[0], loops), *src[1:]), arg)


def _repeated(effect: UOp, loops: tuple[UOp, ...]) -> UOp:
    """Return `effect` with each write to a PARAM made dependent on all `loops`.

    A loop-invariant value may be hoisted out of a loop, but an effect may not: an ATOMICADD happens in each iteration,
    and a STORE must not happen if the loop has no iterations.
    """
    if effect.op in ("GROUP", "END"):
        inner = effect.src if effect.op == "GROUP" else effect.src[:1]
        src = (*[_repeated(e, loops) for e in inner], *effect.src[len(inner) :])
        return node(effect.op, src, effect.arg, effect.tag)
    if effect.op not in ("STORE", "ATOMICADD") or memory_of(effect.src[0]).op != "PARAM":
        return effect
    return with_dependencies(effect, tuple([r for r in loops if r not in ranges(effect)]))


def with_dependencies(effect: UOp, by: tuple[UOp, ...]) -> UOp:
    """Return `effect`, a STORE or ATOMICADD, with its memory AFTER the nodes `by`, so that it is a separate node for
    each choice of `by`.

    An effect whose target is no INDEX is returned unchanged, as is any effect if `by` is empty.
    """
    old = effect.src[0]
    if not by or old.op != "INDEX":
        return effect
    memory = node("AFTER", (old.src[0], *by))
    target = node("INDEX", (memory, *old.src[1:]), old.arg)
    return node(effect.op, (target, *effect.src[1:]), effect.arg, effect.tag)


def _gated(src: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the sources `src` of a LOAD or STORE with a simplified gate.

    If the gate has axes (one condition for each vector lane), its conditions that are true in all lanes are dropped.
    """
    if len(src) < 3 or src[2].shape == ():
        return src
    gate = TRUE
    for c in conjuncts(src[2]):
        if not (c.shape in ((), src[0].shape) and min_max(c)[0] and (allowed is None or allowed("gate_lanes"))):
            gate = _and((gate, c), None)
    return (*src[:2], gate)


def _reduce(src: tuple[UOp, ...], arg: Any) -> UOp:
    op, axes = arg
    if len(src) == 1:
        if not axes:
            return src[0]
        if _in_rank(src[0], axes) and (allowed is None or allowed("reduce_ones")):
            axes = tuple(sorted([a for a in {*axes} if src[0].shape[a] != 1]))
            if not axes:
                return src[0]
    elif _is_empty(src) and (allowed is None or allowed("reduce_nothing")):
        return neutral(op, src[0].dtype)  # the result of a loop without iterations
    return node("REDUCE", src, (op, axes))


def neutral(op: str, d: DType) -> UOp:
    """Return the neutral element of reductions by `op` in the dtype `d`, as a CONST."""
    return const({"ADD": 0, "MUL": 1, "MAX": d.min}[op], d)


def _is_empty(src: tuple[UOp, ...]) -> bool:
    """Whether a REDUCE with the sources `src` has a loop without iterations."""
    return src[0].shape == () and any(r.op == "RANGE" and r.src[0] is idx(0) for r in src[1:])


def _in_rank(x: UOp, axes: tuple) -> bool:
    return min(axes) >= 0 and max(axes) < len(x.shape)


def _detach(src: tuple[UOp, ...], arg: Any) -> UOp:
    is_one = src[0].op == "DETACH" and src[0].tag is None
    return src[0] if is_one and (allowed is None or allowed("detach_detach")) else node("DETACH", src)


def _contiguous(src: tuple[UOp, ...], arg: Any) -> UOp:
    is_stored = src[0].op in ("CONTIGUOUS", "BUFFER")
    return src[0] if is_stored and (allowed is None or allowed("contiguous_stored")) else node("CONTIGUOUS", src)


SIMPLIFIERS.update(
    {
        "ADD": _add, "MUL": _mul, "MAX": _max, "IDIV": _idiv, "MOD": _mod, "CMPLT": _cmplt, "CMPNE": _cmpne,
        "AND": _and, "OR": _or, "WHERE": _where, "CAST": _cast, "BITCAST": _bitcast, "RESHAPE": _reshape,
        "EXPAND": _expand, "PERMUTE": _permute, "FLIP": _flip, "SHRINK": _shrink, "PAD": _pad, "LOAD": _load,
        "STORE": _store, "AFTER": _after, "END": _end,
        "REDUCE": _reduce, "DETACH": _detach, "CONTIGUOUS": _contiguous,
    }
    # EXP2, LOG2 and SIN are not folded: targets round them differently from NumPy, so folded and unfolded would differ
    | {op: _unary(op) for op in ("RECIP", "TRUNC", "XOR", "SHR", "SHL", "SQRT")}
)  # fmt: skip
connect(_set_allowed)


# ---- shorthands used by every layer above ----------------------------------------------------------------------------
def less(a: Any, b: Any) -> UOp:
    """Return the bool UOp a < b of the index values `a` and `b` (int or UOp)."""
    return build("CMPLT", idx(a), idx(b))


def smaller(a: Any, b: Any) -> UOp:
    """Return the minimum of the index values `a` and `b` (int or UOp) as a UOp. It is the negated MAX of the negated
    values, because there is no MIN op.
    """
    return build("MAX", idx(a) * -1, idx(b) * -1) * -1


def within(x: UOp, lo: Any, hi: Any) -> UOp:
    """Return the bool UOp lo <= x < hi of the index values `x`, `lo` and `hi`; the bounds may be ints."""
    return build("AND", negate(less(x, lo)), less(x, hi))


def negate(u: UOp) -> UOp:
    """Return the logical not of the bool UOp `u`. For index values, not (a < b) becomes b - 1 < a if that cannot
    overflow.
    """
    if u is TRUE:
        return FALSE
    if u is FALSE:
        return TRUE
    if u.op != "CMPLT" or u.src[0].dtype.kind != "x":
        return build("CMPNE", u, TRUE)
    if (is_unbounded(u.src[0]) and is_unbounded(u.src[1])) or not (allowed is None or allowed("index_not_less")):
        return node("CMPNE", (u, TRUE))
    return build("CMPLT", u.src[1] + -1, u.src[0])


def unbroadcast(u: UOp) -> UOp:
    """Return the node below the EXPANDs and RESHAPEs of `u`; if `u` repeats a scalar, this is the scalar."""
    while u.op in ("EXPAND", "RESHAPE"):
        u = u.src[0]
    return u


def is_zero(u: UOp) -> bool:
    """Whether `u` is the constant 0, or this constant broadcast to any shape. False of dtype bool counts as 0; -0.0
    does not.
    """
    u = unbroadcast(u)
    return u.op == "CONST" and bool(u.value == 0)


def count(shape: tuple) -> Any:
    """Return the number of elements of an array of shape `shape`: an int, or an index UOp if a size is symbolic."""
    if all(s.__class__ is int for s in shape):
        return prod(shape)
    acc = idx(1)
    for s in shape:
        acc = acc * s
    return acc.arg[0] if acc.op == "CONST" else acc


__all__ = [
    "FALSE", "MARKS", "TRUE", "conjuncts", "count", "unbroadcast", "fold", "from_linear", "is_mark", "is_unbounded",
    "is_zero", "less", "limits", "linear", "negate", "smaller", "with_dependencies", "within",
]  # fmt: skip
