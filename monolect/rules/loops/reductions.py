"""Remove reduction loops that only count, pick one element, or extend a result of the previous output iteration.

Each rule looks at one REDUCE over one range j and the condition in its body:
- `reduce_repeats`: the sum over j of a value free of j is n times the value, and the maximum is the value.
- `reduce_counts`:  the sum over j of [j < a] is a clamped into [0, n]: arange as a prefix sum costs nothing.
- `reduce_picks`:   the sum over j of [j == e] * f(j) is f(e) if 0 <= e < n, else 0: gather by one-hot is a direct load.
- `reduce_scans`:   the sum over j of [j <= i] * f(j), i being an output loop, adds f(i) to the sum of i - 1:
                    a cumulative sum is linear (`rules.loops.carry` says what is carried).
- `reduce_slides`:  the same for a window that slides over a padded row.
- `reduce_tallies`: the same with a condition that j and i are of one class: see `rules.loops.class_scan`.
- `reduce_bins`:    the sum over j of [k(j) == i] * f(j), i being an output loop, is loaded from a table of such sums.
Before this pass, `rules.loops.concat` and `rules.loops.concat_boundaries` remove output loops that only select, and
selections between rows.

Before: REDUCE(ADD, WHERE(CMPLT(r1000 - r0, 1), LOAD(INDEX(PARAM1, r1000)), 0), r1000)
After:  acc = acc + LOAD(INDEX(PARAM1, r0)), one REG accumulator carried through the loop r0
Source: `gather`, `prefix_sum` and `arange` of the specification, applied in reverse.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from monolect.base.dtype import DType, dtypes
from monolect.base.target import Target
from monolect.ir.bounds import min_max, ranges, replace_ranges, unused_slots
from monolect.ir.check.custom_kernels import has_axes
from monolect.ir.ops import BufferArg
from monolect.ir.rewrite.named_rules import Family, Row, fired, is_on
from monolect.ir.rewrite.normal import conjuncts, linear, negate, smaller, within
from monolect.ir.uop import UOp, build, const, idx, node, nodes_of, rebuild, shape_source
from monolect.rules.loops.carry import carried_type, step
from monolect.rules.loops.class_scan import binned, tallies

ROWS = Family(
    "loops", "monolect.rules.loops.reductions monolect.rules.loops.carry",
    Row("reduce_repeats", "the sum over j < n of an integer x free of j is n*x; the maximum is x"),
    Row("reduce_counts", "the sum over j < n of [j < a] is a clamped into 0..n"),
    Row("reduce_picks", "the sum over j < n of [j == e] * f(j) is f(e) if 0 <= e < n, else 0"),
    Row("reduce_scans", "the sum over j <= i of f(j) is the sum for i - 1 plus f(i)"),
    Row("reduce_slides", "the sum over the last i + 1 of n padded elements is the sum for i - 1 plus the last element"),
    Row("reduce_tallies", "the sum over j <= i of [k(j) == k(i)] * f(j) is an element of a table that iteration i updates"),
    Row("reduce_bins", "the sum over j of [k(j) == i] * f(j) is element i of a table that one loop over j fills"),
    Row("carry_in_double", "a running sum or product of float32 is carried in float64"),
)  # fmt: skip

Nests = dict[UOp, frozenset[UOp]]  # output loop -> all loops of the smallest nest that contains it
NEUTRAL = {"ADD": 0, "MUL": 1}
MIN_TABLE_LOOPS = 16  # iterations of both loops; from here on a table is faster than comparing every pair


def simplify_loops(sink: UOp, target: Target) -> UOp:
    """Pass: apply the rules of this module to every REDUCE. A kernel whose author fixed its axis types is returned
    unchanged.
    """
    order = nodes_of(sink)
    if has_axes(order) or not any(u.op == "REDUCE" for u in order):
        return sink
    slots = unused_slots(order)
    nests: Nests = {}
    for u in order:
        if u.op == "END":
            nests.update({r: nests.get(r, frozenset(u.src[1:])) & frozenset(u.src[1:]) for r in u.src[1:]})
    new: dict[UOp, UOp] = {}
    for u in order:
        v = rebuild(u, tuple(new[s] for s in u.src))
        if v.op == "REDUCE" and len(v.src) > 1:
            v = _simplify(v, target, nests, slots)
        new[u] = v
    return new[sink]


def _simplify(u: UOp, target: Target, nests: Nests, slots: count) -> UOp:
    """Return the value of the REDUCE `u` by the first rule that removes one of its loops, or `u` if no rule applies.

    `nests`: the output loops. `slots` numbers new buffers.
    """
    op = u.arg[0]
    for j in u.src[1:]:
        if is_on("reduce_repeats") and (out := _repeats(u, j)) is not None:
            return fired("reduce_repeats", u, out)
        body, conds, alt = _conditional(u.src[0])
        if alt is None or not _is_neutral(alt, op):
            return u
        for c in conds:
            if j not in ranges(c):
                continue
            rest = [d for d in conds if d is not c]
            out = _picks(u, j, c, body, rest, alt) or _counts(u, j, c, body, rest) if op == "ADD" else None
            out = (
                out
                or _scans(u, j, c, body, rest, alt, target, nests, slots)
                or _tallies(u, j, c, body, rest, alt, nests, slots)
                or _bins(u, j, c, body, rest, alt, target, nests, slots)
            )
            if out is not None:
                return out
    return u


def without_loop(u: UOp, out: Iterable[UOp], local_bytes: int = 0) -> UOp | None:
    """Return the REDUCE `u` in a nest of the loops `out` after a rule removed a loop, or None if no rule applies.

    Tables may use some of the `local_bytes`.
    """
    loops = frozenset(r for r in out if r.op == "RANGE")
    target = Target("any", frozenset(), local_bytes=local_bytes)
    v = _simplify(u, target, dict.fromkeys(loops, loops), count())
    return None if v is u else v


def _conditional(body: UOp) -> tuple[UOp, list[UOp], UOp | None]:
    """Return a body as (value, conditions, alternative); the alternative is None for a body without conditions.

    A body with conditions is a WHERE, a gated LOAD, a condition cast to a number, an integer product with such a cast,
    or a CAST of one of these. A float product is not: it is nan where the condition is false and the value infinite
    (`schedule.rewrites.masked_sums`).
    """
    if body.op == "WHERE" and body.src[1].op == "CONST" and body.src[2].op != "CONST":
        c, alt, value = body.src  # `simplify` swapped the values of a negated condition
        return value, [negate(c)], alt
    if body.op == "WHERE":
        return body.src[1], conjuncts(body.src[0]), body.src[2]
    if body.op == "LOAD" and len(body.src) == 3:
        return body, conjuncts(body.src[2]), body.src[1]
    if body.op == "CAST" and body.src[0].dtype is dtypes.bool:
        return const(1, body.dtype), conjuncts(body.src[0]), const(0, body.dtype)
    if body.op == "CAST":  # a cast of a value that is 0 where masked
        value, conds, masked = _conditional(body.src[0])
        if masked is None or masked.op != "CONST" or masked.arg[0] != 0:
            return body, [], None
        return build("CAST", value, arg=body.dtype), conds, const(0, body.dtype)
    if body.op == "MUL" and not body.dtype.is_float:
        for m, x in (body.src, body.src[::-1]):
            if m.op == "CAST" and m.src[0].dtype is dtypes.bool:
                return x, conjuncts(m.src[0]), const(0, body.dtype)
    return body, [], None


def _is_neutral(alt: UOp, op: str) -> bool:
    """Whether `alt` is the neutral constant of `op`."""
    return alt.op == "CONST" and alt.arg[0] == (NEUTRAL[op] if op in NEUTRAL else alt.dtype.min)


def _when(conds: list[UOp], value: UOp, alt: UOp) -> UOp:
    """Return `value` where all `conds` are true, else `alt`."""
    for c in conds:
        value = build("WHERE", c, value, alt)
    return value


def _rest_of(u: UOp, j: UOp, body: UOp) -> UOp:
    """Return the REDUCE `u` of `body` without the range j; `body` itself if j is its only range."""
    others = tuple(r for r in u.src[1:] if r is not j)
    return build("REDUCE", body, *others, arg=u.arg) if others else body


def _equal_to(c: UOp, j: UOp) -> UOp | None:
    """Return e if the condition `c` is j == e in any equivalent form, with e free of j; else None."""
    if c.op == "CMPNE" and c.src[1].op == "CONST" and c.src[1].arg[0] is True and c.src[0].op == "CMPNE":
        a, b = c.src[0].src
    elif c.op == "CMPEQ":
        a, b = c.src
    else:
        return None
    for x, y in ((a, b), (b, a)):
        while x.op == "CAST" and _fits(x.dtype, x.src[0]):
            x = x.src[0]
        if x.dtype.kind == "x" and j in ranges(x) and j not in ranges(y):
            k, terms = linear(x)
            rest = [(t, m) for t, m in terms if t is not j]
            if dict(terms).get(j) == 1 and all(j not in ranges(t) for t, _ in rest):
                e = y if y.dtype.kind == "x" else build("CAST", y, arg=dtypes.index)
                for t, m in rest:
                    e = e + t * -m
                return e + -k
    return None


def _fits(d: DType, u: UOp) -> bool:
    """Whether the integer type `d` represents every value of the integer `u`."""
    lo, hi = min_max(u)
    return u.dtype.is_int and d.is_int and (d.kind == "x" or (d.min <= lo and hi <= d.max))


# Arguments of the rules below: `u` is a REDUCE over the range j of `body` where the condition c and all conditions of
# `rest` hold, and of `alt` elsewhere. `nests` is that of `simplify_loops`; `slots` yields unused numbers of buffers.
def _picks(u: UOp, j: UOp, c: UOp, body: UOp, rest: list[UOp], alt: UOp) -> UOp | None:
    """Return the sum `u` as its term at j = e (0 if e is not in the range j) if the condition `c` is j == e; else None.

    The terms are `body` where `c` and all of `rest` hold, and `alt` elsewhere.
    """
    e = _equal_to(c, j)
    if e is None or not is_on("reduce_picks"):
        return None
    inside = within(e, 0, j.src[0])
    lo, hi = min_max(e)
    safe = e
    n = min_max(j.src[0])[0]
    if lo < 0:
        safe = build("MAX", safe, idx(0))
    if hi >= n:
        safe = smaller(safe, j.src[0] + -1)
    value = replace_ranges(_when(rest, body, alt), {j: safe})
    return fired("reduce_picks", u, _rest_of(u, j, build("WHERE", inside, value, alt)))


def index_limit(c: UOp, j: UOp) -> tuple[UOp, bool] | None:
    """Return (a, True) if the condition `c` is j < a, (a, False) if it is j >= a, with a free of j; else None."""
    if c.op != "CMPLT" or c.src[0].dtype.kind != "x":
        return None
    k, terms = linear(c.src[0] + c.src[1] * -1)
    m = dict(terms).get(j)
    if m not in (1, -1):
        return None
    rest = idx(k)
    for t, n in terms:
        if t is not j:
            if j in ranges(t):
                return None
            rest = rest + t * n
    return (rest * -1, True) if m == 1 else (rest + 1, False)


def _repeats(u: UOp, j: UOp) -> UOp | None:
    """Return the REDUCE of a value free of j without j: a sum of integers as n times the value, a maximum as the value.

    Return None for other reductions. A float sum stays, because the product would round differently.
    """
    body, op = u.src[0], u.arg[0]
    if j in ranges(body) or j.src[0].op != "CONST" or j.src[0].value < 1:
        return None
    if op == "MAX":
        return _rest_of(u, j, body)
    return (
        _rest_of(u, j, build("MUL", body, const(j.src[0].value, body.dtype)))
        if op == "ADD" and body.dtype.is_int
        else None
    )


def _counts(u: UOp, j: UOp, c: UOp, body: UOp, rest: list[UOp]) -> UOp | None:
    """Return the sum over j of `body` times [j < a] or [j >= a], the condition `c`, as a product, or None.

    `body` and the other conditions, `rest`, must be free of j.
    """
    if j in ranges(body) or any(j in ranges(d) for d in rest) or not body.dtype.is_int:
        return None  # floats would round differently
    found = index_limit(c, j)
    if found is None or not is_on("reduce_counts"):
        return None
    a, under = found
    n = j.src[0]
    a = smaller(build("MAX", a, idx(0)), n)
    many = build("CAST", a if under else n + a * -1, arg=body.dtype)
    out = _rest_of(u, j, _when(rest, build("MUL", body, many), const(0, body.dtype)))
    return fired("reduce_counts", u, out)


def _scans(
    u: UOp, j: UOp, c: UOp, body: UOp, rest: list[UOp], alt: UOp, target: Target, nests: Nests, slots: count
) -> UOp | None:
    """Return the REDUCE `u` as a running sum if it takes one more term in each iteration of an output loop i, or None.

    `u` reduces `body` where `c` and all of `rest` hold, and `alt` elsewhere. The keys of `nests` are the output loops;
    `slots` numbers the accumulator.
    """
    found = index_limit(c, j)
    if found is None or len(u.src) != 2:
        return None
    value = _when(rest, body, alt)
    name, grown = ("reduce_scans", _grows) if found[1] else ("reduce_slides", _slides)
    i, term = (grown(found[0], j, value) if is_on(name) else None) or (None, value)
    if i is None or i not in nests or i.src != j.src or not ranges(u) <= nests[i]:
        return None
    # it restarts in every iteration of the other loops of its smallest nest, used or not, which enclose it
    outer = sorted((ranges(u) | nests[i]) - {i}, key=lambda r: r.arg[0])
    wide = carried_type(u.arg[0], u.dtype, target)
    acc = node("BUFFER", (shape_source(()),), BufferArg(next(slots), wide, None, "REG"))
    start = node("STORE", (node("AFTER", (acc, *outer)) if outer else acc, build("CAST", alt, arg=wide)))
    before = node("LOAD", (node("AFTER", (acc, start, i)),))
    return fired(name, u, step(u.arg[0], acc, before, term))


def _tallies(u: UOp, j: UOp, c: UOp, body: UOp, rest: list[UOp], alt: UOp, nests: Nests, slots: count) -> UOp | None:
    """Return the REDUCE as a running sum per class if it is over the elements up to i of the class of i, else None.

    The parameters are those of `_scans`.
    """
    found = index_limit(c, j)
    if found is None or not found[1] or len(u.src) != 2 or not is_on("reduce_tallies"):
        return None
    i = next((t for t, _ in linear(found[0])[1]), None)
    if i not in nests or not ranges(u) <= nests[i]:
        return None  # a loop inside of that over i would clear the table before each of its iterations
    outer = sorted((ranges(u) | nests[i]) - {i}, key=lambda r: r.arg[0])
    out = tallies(u.arg[0], j, found[0], body, rest, alt, outer, slots)
    return None if out is None else fired("reduce_tallies", u, out)


def _bins(
    u: UOp, j: UOp, c: UOp, body: UOp, rest: list[UOp], alt: UOp, target: Target, nests: Nests, slots: count
) -> UOp | None:
    """Return the REDUCE as a LOAD from a table if it is over elements whose class is the output loop i, else None.

    The parameters are those of `_scans`.
    """
    if target.workgroups or len(u.src) != 2 or min_max(j.src[0])[1] < MIN_TABLE_LOOPS or not is_on("reduce_bins"):
        return None
    for i in ranges(c) & nests.keys():
        if (e := _equal_to(c, i)) is not None and min_max(i.src[0])[0] >= MIN_TABLE_LOOPS:
            out = binned(u.arg[0], i, j, e, body, rest, alt, target, slots)
            return None if out is None else fired("reduce_bins", u, out)
    return None


def _grows(a: UOp, j: UOp, value: UOp) -> tuple[UOp, UOp] | None:
    """Return (i, value at j = i) if the condition j < `a` is j < i + 1 and `value` is free of i; else None."""
    k, terms = linear(a)
    if k != 1 or len(terms) != 1 or terms[0][1] != 1 or terms[0][0] in ranges(value):
        return None
    i = terms[0][0]
    return (i, replace_ranges(value, {j: i})) if i.op == "RANGE" else None


def _slides(a: UOp, j: UOp, value: UOp) -> tuple[UOp, UOp] | None:
    """Return (i, value at j = n - 1) if the condition j >= `a` is j >= n - 1 - i and `value` depends on i + j only;
    else None.

    The window slides over a padded row: iteration i adds the value at j = n - 1.
    """
    k, terms = linear(a)
    if len(terms) != 1 or terms[0][1] != -1 or j.src[0].op != "CONST" or k != j.src[0].value - 1:
        return None
    i = terms[0][0]
    if i.op != "RANGE" or replace_ranges(value, {i: i + 1, j: j + -1}) is not value:
        return None
    return i, replace_ranges(value, {j: idx(k)})


__all__ = ["index_limit", "simplify_loops", "without_loop"]
