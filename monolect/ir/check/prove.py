"""Prove that every LOAD, STORE and ATOMICADD of a kernel stays inside its buffer.

What it is for: CHECK_BOUNDS=1, and kernels from outside of the compiler. Three methods are tried, cheapest first.
First, intervals, after RANGEs that the gate bounds are narrowed. Second, linear reasoning on the normal form, also in
each iteration of a short loop: it uses any gate `terms < k`, loop bounds that depend on other loops or symbolic sizes,
and the relations of `x // c` and `x % c` to x. Third, Z3, if it is installed.
What it is not: a check at run time. It uses the gate of the access (the condition under which it happens), but no IF
around it.

Terms: an atom is an index value that is no sum and no product. A monomial is a product of atoms, as a tuple; a
polynomial is a dict from monomial to coefficient. A fact is a polynomial that is known to be >= 0.
Invariant: a proven access is inside in every iteration in which its gate is true, even if index arithmetic overflows: a
condition that may overflow proves nothing. An access that cannot be proven is an error, even if it is inside.
Source: Fourier-Motzkin elimination, here as a bounded search for one combination of facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from importlib.util import find_spec
from math import gcd, prod
from typing import Any, NamedTuple
from weakref import WeakSet

from monolect.base.dtype import dtypes
from monolect.base.errors import VerifyError
from monolect.ir.bounds import may_wrap, min_max, ranges
from monolect.ir.ops import KernelInfo, ParamArg
from monolect.ir.rewrite.normal import FALSE, conjuncts, limits, linear, negate
from monolect.ir.text import show_origin
from monolect.ir.uop import UOp, build, idx, node, substitute, substitute_all, toposort

Monomial = tuple[UOp, ...]  # a product of atoms, ordered by serial; () is 1
Poly = dict[Monomial, int]

_STEPS = 4000  # steps of one linear search, which then gives up
_DEPTHS = (3, 4, 6)  # numbers of facts in one combination, tried in this order
_FACTS = 200  # facts in one search; no more are derived
_CASES = 3  # nested case distinctions of MAX and WHERE
_ENUMERATED = 4  # iterations; loops of at most this length are also proven iteration by iteration
_Z3_MILLISECONDS = 1000  # time limit of one Z3 query
_FEW = 1 << 31  # values of a number that is replaced by a loop; with more, intervals could overflow
_SOLVER = True  # False in tests that must not use Z3
_proven: WeakSet[UOp] = WeakSet()  # accesses that were proven; nodes are interned, so this holds for all kernels


class Access(NamedTuple):
    """One index with which `node` (a LOAD, STORE, ATOMICADD or TMACOPY) addresses an axis of `memory` that has `size`
    elements.

    `gate`: the condition under which the access happens; None if it always happens.
    """

    node: UOp
    memory: UOp
    index: UOp  # type: ignore[assignment]  # hides the method of tuple
    size: UOp
    gate: UOp | None


def check_bounds(sink: UOp) -> None:
    """Prove that all accesses of the kernel `sink` are inside their memory. Raises VerifyError for the first access
    that cannot be proven.
    """
    seen, stack = {sink}, [sink]
    while stack:
        u = stack.pop()
        if u.op in ("LOAD", "STORE", "ATOMICADD", "TMACOPY") and u not in _proven:
            for a in accesses(u):
                if not is_inside(a.index, a.size, a.gate):
                    raise _error(a, sink)
            _proven.add(u)
        for s in u.src:
            if s not in seen:
                seen.add(s)
                stack.append(s)


def accesses(u: UOp) -> Iterator[Access]:
    """Yield an Access for each index with which `u` addresses memory; none for an access to a whole buffer or an
    accumulator.
    """
    if u.op == "TMACOPY":  # only its destination: reads out of bounds give zeros
        to, n = u.src[0], prod(u.arg.box)
        yield Access(u, to.src[0], to.src[1], idx(to.src[0].shape[0] - n + 1), u.src[3])
        return
    view, gate = u.src[0], u.src[2] if len(u.src) > 2 else None
    while view.op in ("AFTER", "INDEX", "RESHAPE", "EXPAND", "BITCAST"):
        if view.op == "INDEX":
            below = view.src[0]
            for i, n in zip(view.src[1:], below.shape, strict=False):
                yield Access(u, below, i, idx(n), gate)
        view = view.src[0]


def is_inside(index: UOp, size: UOp, gate: UOp | None = None, *, solver: bool = True) -> bool:
    """Whether 0 <= `index` < `size` is proven wherever the bool UOp `gate` is true (None: everywhere). If `solver` is
    false, Z3 is not used.
    False means that no proof was found, not that an access is outside.
    """
    lo, hi = min_max(index)
    if lo >= 0 and hi < min_max(size)[0]:
        return True
    if index.shape != () or (gate is not None and gate.shape != ()):
        return _all_inside(index, size, gate, solver)
    if index.dtype.kind != "x":
        return False  # integers of other dtypes wrap
    parts = [] if gate is None else conjuncts(gate)
    conditions = [c for c in parts if _is_exact(c)]
    # Only the terms must be exact: their sum wraps modulo 2**64, so it is right if its true value is inside.
    terms = [x for m in polynomial(index) for x in m]
    if not _is_exact(*terms):
        at, *found = _narrowed((index, *conditions), conditions)
        if at is not index and is_inside(at, size, _all_of(found), solver=solver):
            return True  # else the proof may need a condition that is not exact
        return _is_inside_hidden(index, size, gate, terms, solver)
    if FALSE in conditions or _by_intervals(index, size, conditions) or _by_facts(index, size, conditions, _CASES):
        return True
    if _by_enumeration(index, size, conditions):
        return True
    for simpler in (_divided, _rejoined):
        other, condition = simpler(index), None if gate is None else simpler(gate)
        if other is not index or condition is not gate:
            return is_inside(other, size, condition, solver=solver)
    if len(conditions) < len(parts) and _is_inside_hidden(index, size, gate, terms, solver):
        return True
    return solver and _SOLVER and _solved(index, size, conditions)


def _is_exact(*us: UOp) -> bool:
    """Whether the index arithmetic of the nodes `us` is exact: no part overflows where a WHERE selects it."""
    return not any(_overflows(v) for v in _parts(us))


def _parts(us: Sequence[UOp]) -> list[UOp]:
    """Return the nodes of index arithmetic below and including `us`. Sources of other nodes and the branches of WHEREs
    are not entered.
    """
    return [v for v in toposort(*us, stop=lambda v: v.op == "WHERE" or v.op not in _ARITHMETIC) if v.dtype.kind == "x"]


def _overflows(u: UOp) -> bool:
    """Whether `u`, a node of index arithmetic, may overflow. For a WHERE, its condition narrows the bounds of its
    branches.
    """
    if u.op != "WHERE":
        return may_wrap(u)
    c, a, b = u.src
    return c.shape != () or not _is_exact(c, _where_holds(a, c), _where_holds(b, negate(c)))


def _narrowed(us: tuple[UOp, ...], conditions: Sequence[UOp]) -> Sequence[UOp]:
    """Return `us` with each value that `conditions` bound by constants to few possible values, and that is no loop,
    replaced by a RANGE of these values.

    Index arithmetic on a value with few possible values does not overflow.
    """
    found = {x: limit for x, limit in limits(conditions).items() if x.op not in ("RANGE", "SPECIAL")}
    found = {x: (lo, hi) for x, (lo, hi) in found.items() if 0 <= hi - lo < _FEW}
    loops = {x: node("RANGE", (idx(hi - lo + 1),), (-1001 - x.serial, "LOOP")) + lo for x, (lo, hi) in found.items()}
    return substitute_all(us, loops)


def _is_inside_hidden(index: UOp, size: UOp, gate: UOp | None, terms: Sequence[UOp], solver: bool) -> bool:
    """Whether 0 <= `index` < `size` where `gate` is true is proven after nodes that may overflow are replaced by
    unknown int64 values.

    Such nodes are searched in `terms`, the factors in the polynomial of `index`, and in `gate`. So a comparison of a
    product that may overflow bounds this product in `index`. False if `index` itself may overflow. `solver`: whether Z3
    may be used.
    """
    conditions = [] if gate is None else conjuncts(gate)
    hidden: dict[UOp, UOp] = {}
    for v in _parts((*terms, *conditions)):
        if _overflows(v):
            number = node("PARAM", (), ParamArg(len(hidden), dtypes.int64, None, None, f"any_{len(hidden)}"))
            hidden[v] = build("CAST", number, arg=dtypes.index)
    if index in hidden:
        return False
    at, *found = substitute_all((index, *conditions), hidden)
    gates = [c for c in found if _is_exact(c)]
    if not _is_exact(*(x for m in polynomial(at) for x in m)):
        return False
    return is_inside(at, size, _all_of(gates), solver=solver)


def _all_of(conditions: Sequence[UOp]) -> UOp | None:
    """Return the conjunction of the bool UOps `conditions` as one UOp, or None if there are none."""
    return reduce(lambda a, b: build("AND", a, b), conditions) if conditions else None


def _where_holds(u: UOp, condition: UOp) -> UOp:
    """Return `u` with each value that the bool UOp `condition` bounds by constants replaced by a number with these
    bounds.
    """
    return substitute(
        u, {x: _between(k, lo, hi) for k, (x, (lo, hi)) in enumerate(limits(conjuncts(condition)).items()) if lo <= hi}
    )


def _between(k: int, lo: int, hi: int) -> UOp:
    """Return a number from `lo` to `hi`, the one with number `k`: a RANGE cannot count all that are below zero."""
    return node("PARAM", (), ParamArg(k, dtypes.index, None, None, f"between_{k}", lo, hi))


def _divided(index: UOp) -> UOp:
    """Return `index` with (k * n + y) // n rewritten to k + y // n, and (k * n + y) % n to y % n, for a symbolic size n
    > 0.

    k is not constant; y may have any value. `index` may also be a condition. It is returned itself if nothing is
    rewritten.
    """
    found: dict[UOp, UOp] = {}
    for u in toposort(index):
        if u.op in ("IDIV", "MOD") and u.src[1].op != "CONST" and min_max(u.src[1])[0] > 0:
            x, n = polynomial(u.src[0]), polynomial(u.src[1])
            if k := _quotient(x, n):
                rest = build(u.op, _value(_difference(x, _times(k, n))), u.src[1])
                found[u] = rest if u.op == "MOD" else rest + _value(k)
    return substitute(index, found) if found else index


def _rejoined(index: UOp) -> UOp:
    """Return `index` with x % n rewritten to x - n * (x // n) if `index` also contains x // n, for a symbolic size n >
    0.

    So an axis that is split and flattened again becomes x. `index` may also be a condition. It is returned itself if
    nothing is rewritten.
    """
    parts = [u for u in toposort(index) if u.op in ("IDIV", "MOD") and u.src[1].op != "CONST"]
    quotients = {u.src: u for u in parts if u.op == "IDIV" and min_max(u.src[1])[0] > 0}
    found = {u: u.src[0] + u.src[1] * quotients[u.src] * -1 for u in parts if u.op == "MOD" and u.src in quotients}
    return substitute(index, found) if found else index


def _all_inside(index: UOp, size: UOp, gate: UOp | None, solver: bool) -> bool:
    """Whether 0 <= `index` < `size` is proven where `gate` is true, for all elements of an `index` or `gate` with axes.

    A STACK of 0, 1, 2, ... is replaced by a loop. An index that still has axes then is not proven. `solver`: whether Z3
    may be used.
    """
    roots = (index,) if gate is None else (index, gate)
    counted: dict[UOp, UOp] = {}
    for u in toposort(*roots):
        flat = u.src[0] if u.op == "RESHAPE" else u
        if flat.op == "STACK" and flat.src and all(s is idx(k) for k, s in enumerate(flat.src)):
            counted[u] = node("RANGE", (idx(len(flat.src)),), (-1 - len(counted), "LOOP"))
    at, *gates = substitute_all(roots, counted)
    if at.shape != () or any(g.shape != () for g in gates):
        return False
    return is_inside(at, size, *gates, solver=solver)


# ---- intervals -------------------------------------------------------------------------------------------------------
def _by_intervals(index: UOp, size: UOp, conditions: Sequence[UOp]) -> bool:
    """Whether intervals prove 0 <= `index` < `size`, after the range of each RANGE that one of `conditions` bounds by
    constants is narrowed.
    """
    found = {r: limit for r, limit in limits(conditions).items() if r.op == "RANGE"}
    if any(lo > hi for lo, hi in found.values()):
        return True  # the conditions contradict each other, so the access is never reached
    if not found:
        return False
    short = {r: node("RANGE", (idx(hi - lo + 1),), r.arg) + lo for r, (lo, hi) in found.items()}
    lo, hi = min_max(substitute(index, short))
    return lo >= 0 and hi < min_max(size)[0]


def _by_enumeration(index: UOp, size: UOp, conditions: Sequence[UOp]) -> bool:
    """Whether 0 <= `index` < `size` where `conditions` hold is proven for each iteration of some short loop separately.

    This helps where a blocked loop splits a division, or a loop multiplies a symbolic size.
    """
    loops = [r for r in ranges(index) if r.op == "RANGE" and min_max(r)[1] < _ENUMERATED]
    return any(_in_each(r, index, size, conditions) for r in sorted(loops, key=lambda r: (min_max(r)[1], r.serial)))


def _in_each(r: UOp, index: UOp, size: UOp, conditions: Sequence[UOp]) -> bool:
    """Whether 0 <= `index` < `size` where `conditions` hold is proven, by intervals or facts, for each value of the
    RANGE `r`.
    """
    for i in range(min_max(r)[1] + 1):
        at, n, *rest = substitute_all((index, size, *conditions), {r: idx(i)})
        rest = [x for c in rest for x in conjuncts(c)]
        if FALSE not in rest and not _by_intervals(at, n, rest) and not _by_facts(at, n, rest, _CASES):
            return False
    return True


# ---- linear reasoning ------------------------------------------------------------------------------------------------
def _by_facts(index: UOp, size: UOp, conditions: Sequence[UOp], cases: int) -> bool:
    """Whether 0 <= `index` < `size` follows from `conditions` by linear reasoning.

    If not, a MAX or WHERE is split into its two cases, at most `cases` times.
    """
    facts = [f for c in conditions for f in _facts(c)]
    at = polynomial(index)
    below = _difference(polynomial(size), at)
    _add_to(below, {(): 1}, -1)
    search = _Search(facts, (at, below))
    if all(search.finds(goal) for goal in (at, below)):
        return True
    atom = next((x for p in (at, below, *facts) for m in p for x in m if x.op in ("MAX", "WHERE")), None)
    if atom is None or not cases:
        return False
    first = build("CMPLT", *atom.src) if atom.op == "MAX" else atom.src[0]
    ways = ((atom.src[1], first), (atom.src[0] if atom.op == "MAX" else atom.src[2], negate(first)))
    for value, case in ways:
        i, n, *rest = substitute_all((index, size, *conditions), {atom: value})
        rest = [x for c in (*rest, case) for x in conjuncts(c)]
        if FALSE not in rest and not _by_facts(i, n, rest, cases - 1):
            return False
    return True


def _facts(condition: UOp) -> list[Poly]:
    """Return polynomials that are >= 0 wherever the bool UOp `condition` is true.
    Returns [] for a condition that is no comparison of index values.
    """
    if condition.op == "CMPLT" and condition.src[0].dtype.kind == "x":
        out = _difference(polynomial(condition.src[1]), polynomial(condition.src[0]))
        _add_to(out, {(): 1}, -1)
        return [out, *_undivided(out)]
    if condition.op == "CMPNE" and condition.src[1].op == "CONST" and condition.src[1].arg[0] is True:
        denied = condition.src[0]
        if denied.op in ("CMPNE", "CMPLT") and denied.src[0].dtype.kind == "x":
            a, b = (polynomial(s) for s in denied.src)
            at_least = _difference(a, b)
            return [at_least] if denied.op == "CMPLT" else [at_least, _difference(b, a)]
    return []


def _undivided(fact: Poly) -> list[Poly]:
    """Return a polynomial about x that is >= 0, as a list, from `fact`, a polynomial >= 0 that bounds only x // n for a
    symbolic size n.

    The result means x >= k*n or x < (k + 1)*n. Returns [] for another `fact`.
    """
    (m, sign), *rest = ((m, c) for m, c in fact.items() if m) or (((), 0),)
    if rest or len(m) != 1 or abs(sign) != 1 or m[0].op != "IDIV" or min_max(m[0].src[1])[0] < 1:
        return []
    x, n = (polynomial(s) for s in m[0].src)
    k = -fact.get((), 0) * sign + (sign < 0)
    out = _difference(x, {a: c * k for a, c in n.items()})
    return [{a: c * sign for a, c in out.items()}] if sign > 0 else [_difference({(): -1}, out)]


def polynomial(u: UOp) -> Poly:
    """Return the index value `u` as a polynomial: a dict from monomial (a tuple of atoms, whose product it is) to
    coefficient.

    An atom is a node that is no sum and no product of index values. The constant has the monomial ().
    """
    k, terms = linear(u)
    out: Poly = {(): k} if k else {}
    for x, c in terms:
        if x.op == "MUL":
            _add_to(out, _times(polynomial(x.src[0]), polynomial(x.src[1])), c)
        else:
            out[(x,)] = c
    return out


def _add_to(out: Poly, p: Poly, factor: int) -> None:
    for m, c in p.items():
        n = out.get(m, 0) + c * factor
        if n:
            out[m] = n
        else:
            out.pop(m, None)


def _difference(a: Poly, b: Poly) -> Poly:
    out = dict(a)
    _add_to(out, b, -1)
    return out


def _times(a: Poly, b: Poly) -> Poly:
    out: Poly = {}
    for ma, ca in a.items():
        for mb, cb in b.items():
            _add_to(out, {tuple(sorted(ma + mb, key=lambda u: u.serial)): ca * cb}, 1)
    return out


def _quotient(x: Poly, n: Poly) -> Poly:
    """Return the polynomial quotient of `x` by `n` without its constant term.

    It is the sum of the factors k of those terms of `x` that are k times the term of `n` with the most atoms, where k
    has at least one atom.
    """
    largest, times = max(n.items(), key=lambda item: len(item[0]))
    out: Poly = {}
    for m, c in x.items():
        left = list(m)
        for a in largest:
            if a in left:
                left.remove(a)
        if left and len(left) == len(m) - len(largest) < len(m) and c % times == 0:
            out[tuple(left)] = c // times
    return out


def _value(poly: Poly) -> UOp:
    """Return the polynomial `poly` as a UOp of index arithmetic."""
    return sum((prod(m, start=idx(c)) for m, c in poly.items()), idx(0))


def _interval(monomial: Monomial) -> tuple[int, int]:
    """Return the (least, greatest) value of `monomial`, a product of atoms, from the intervals of the atoms."""
    lo = hi = 1
    for x in monomial:
        a, b = min_max(x)
        ends = (lo * a, lo * b, hi * a, hi * b)
        lo, hi = min(ends), max(ends)
    return lo, hi


def _least(poly: Poly) -> int:
    """Return a lower bound of the polynomial `poly`, from the intervals of its monomials."""
    return sum(c * _interval(m)[c < 0] for m, c in poly.items())


class _Search:
    """A search that proves goals: a goal, a polynomial, is proven >= 0 if subtracting multiples of facts leaves a
    polynomial that intervals show to be >= 0.

    `facts`: polynomials known to be >= 0; facts about their atoms and those of `goals` are added.
    """

    def __init__(self, facts: Sequence[Poly], goals: Sequence[Poly]):
        self.steps = _STEPS
        self.by_monomial: dict[tuple[Monomial, bool], list[Poly]] = {}
        self.seen: set[Any] = set()
        todo = list(facts)
        fresh = [m for p in (*goals, *facts) for m in p]
        most = (
            max(2, *map(len, fresh)) if fresh else 2
        )  # longer monomials could be derived without end, from x = n * (x // n) + x % n
        met: set[Monomial] = {()}
        while fresh and len(todo) < _FACTS:  # facts about atoms contain further atoms
            m = fresh.pop()
            if m not in met:
                met.add(m)
                for f in _known_about(m):
                    if all(len(n) <= most for n in f):
                        todo.append(f)
                        fresh.extend(f)
        for q in sorted((m[0] for m in met if len(m) == 1 and m[0].op == "IDIV"), key=lambda q: q.serial):
            todo += _quotient_bounds(q, todo)  # in this order, because one quotient may be the dividend of another
        for f in map(_reduced, todo):
            if _least(f) < 0:  # facts that intervals prove already cannot help
                for m, c in f.items():
                    if m:
                        self.by_monomial.setdefault((m, c > 0), []).append(f)

    def finds(self, goal: Poly) -> bool:
        """Whether the polynomial `goal` is proven >= 0 by the facts; combinations of few facts are tried first."""
        return any(self._finds_within(goal, depth) for depth in _DEPTHS)

    def _finds_within(self, goal: Poly, depth: int) -> bool:
        self.steps = _STEPS
        self.seen.clear()  # an earlier search that ran out of steps did not finish all entries
        return self.succeeds(goal, depth)

    def succeeds(self, goal: Poly, depth: int) -> bool:
        """Whether the polynomial `goal` is proven >= 0 by at most `depth` facts, before the search runs out of
        steps.
        """
        if _least(goal) >= 0:
            return True
        key = (depth, frozenset(goal.items()))
        if not depth or self.steps <= 0 or key in self.seen:
            return False
        self.seen.add(key)
        for m, c in sorted(goal.items(), key=_loss):
            for f in self.by_monomial.get((m, c > 0), ()):
                self.steps -= 1
                k = gcd(c, f[m])
                left = {n: d * abs(f[m]) // k for n, d in goal.items()}
                _add_to(left, f, -abs(c) // k)
                if self.succeeds(left, depth - 1):
                    return True
        return False


def _loss(term: tuple[Monomial, int]) -> int:
    """Return the least value of `term`, (monomial, coefficient). The search eliminates the terms with the smallest such
    value first.
    """
    return term[1] * _interval(term[0])[term[1] < 0]


def _reduced(p: Poly) -> Poly:
    """Return the fact `p` >= 0 divided by the common divisor of its coefficients, with the constant rounded down."""
    g = gcd(*(c for m, c in p.items() if m))
    return p if g < 2 else {m: c // g for m, c in p.items() if m or c // g}


def _quotient_bounds(quotient: UOp, facts: Sequence[Poly]) -> list[Poly]:
    """Return new facts, integer bounds of `quotient` = x // c, that follow from those of `facts` that bound x by
    multiples of c.
    Returns [] if c is a constant that is not positive.
    """
    if quotient.src[1].op != "CONST":
        return _symbolic_quotient_bounds(quotient, facts)
    if not _is_positive(quotient.src[1]):
        return []
    c, x = quotient.src[1].value, polynomial(quotient.src[0])
    k = x.pop((), 0)
    out: list[Poly] = []
    for sign in (1, -1):
        for f in facts:
            rest = {m: n for m, n in f.items() if m and m not in x}
            if (quotient,) in rest or any(n % c for n in rest.values()):
                continue
            if all(f.get(m) == n * sign for m, n in x.items()):
                bound = k - f.get((), 0) * sign  # x >= bound - rest, or x <= bound + rest
                out.append({(quotient,): sign, (): -(bound // c) * sign, **{m: n // c for m, n in rest.items()}})
    return out


def _symbolic_quotient_bounds(quotient: UOp, facts: Sequence[Poly]) -> list[Poly]:
    """Return new facts, bounds of `quotient` = x // c for a symbolic size c, that follow from `facts`. Returns []
    unless c > 0 is known.
    """
    if min_max(quotient.src[1])[0] < 1:
        return []
    x, c = polynomial(quotient.src[0]), polynomial(quotient.src[1])
    m, times = max(c.items(), key=lambda item: len(item[0]))
    loop = [_difference(polynomial(quotient.src[0].src[0]), {**x, (): 1})] if quotient.src[0].op == "RANGE" else []
    least, most = min_max(quotient)
    low, high = least, most
    for sign in (1, -1):  # f >= 0 means x <= x + f, or x >= x - f; the same holds for multiples of f
        for f in ({}, *facts, *(loop if sign == 1 else ())):
            often = next((abs(x[n]) // abs(k) for n, k in f.items() if n and n in x and x[n] % k == 0), 1)
            bound = {n: k * sign * often for n, k in f.items()}
            _add_to(bound, x, 1)
            k = bound.get(m, 0) // times
            left = _difference(bound, {n: k * d for n, d in c.items()})  # bound == k * c + left
            if sign == 1 and _least({n: -d for n, d in left.items()}) > 0:
                high = min(high, k - 1)
            elif sign == 1 and _least(_difference(c, left)) > 0:
                high = min(high, k)
            elif sign == -1 and _least(left) >= 0:
                low = max(low, k)
    return [
        f
        for f in ({(quotient,): -1, (): high}, {(quotient,): 1, (): -low})
        if (high < most if f[quotient,] < 0 else low > least)
    ]


def _known_about(m: Monomial) -> list[Poly]:
    """Return facts (polynomials >= 0) that contain the monomial `m`, from the definitions of its atoms."""
    if len(m) == 1:
        return _known_about_atom(m[0])
    out = []
    for i, x in enumerate(m):
        rest = m[:i] + m[i + 1 :]
        if _interval(rest)[0] >= 0:
            lo, hi = min_max(x)
            limits: list[Poly] = [{(x,): 1, (): -lo}, {(x,): -1, (): hi}]
            out += [_times(f, {rest: 1}) for f in (*limits, *_known_about_atom(x))]
    if len(m) == 2:
        a, b = ({(x,): -1, (): min_max(x)[1]} for x in m)
        out.append(_times(a, b))
    return out


def _known_about_atom(x: UOp) -> list[Poly]:
    """Return facts (polynomials >= 0) that follow from the definition of the atom `x`, such as its loop bound."""
    if x.op in ("RANGE", "SPECIAL"):
        if x.src[0].op == "CONST":
            return []
        left = _difference(polynomial(x.src[0]), {(x,): 1})
        _add_to(left, {(): 1}, -1)
        if x.src[0].op != "IDIV" or not _is_positive(x.src[0].src[1]):
            return [left]
        n, c = x.src[0].src  # also c * (x + 1) <= n: a quotient of x needs it as a single fact
        return [left, _difference(polynomial(n), {(x,): c.value, (): c.value})]
    if x.op == "MAX":
        return [_difference({(x,): 1}, polynomial(s)) for s in x.src]
    if x.op in ("IDIV", "MOD") and min_max(x.src[1])[0] > 0:
        whole, c = x.src
        q, r = (x, build("MOD", whole, c)) if x.op == "IDIV" else (build("IDIV", whole, c), x)
        back = _difference(polynomial(whole), polynomial(r))  # whole - c*q - r == 0
        _add_to(back, _times(polynomial(c), polynomial(q)), -1)
        out = [back, {n: -k for n, k in back.items()}] if back else []
        if c.op != "CONST":  # r < c, which intervals do not show
            below = _difference(polynomial(c), polynomial(r))
            _add_to(below, {(): 1}, -1)
            out.append(below)
        return out
    return []


# ---- Z3 --------------------------------------------------------------------------------------------------------------
def _solved(index: UOp, size: UOp, conditions: Sequence[UOp]) -> bool:
    """Whether the solver Z3 proves 0 <= `index` < `size` where `conditions` hold; False if Z3 is not installed or runs
    out of time.
    """
    try:
        import z3
    except ImportError:
        return False
    solver = z3.Solver()
    solver.set("timeout", _Z3_MILLISECONDS)
    known: dict[UOp, Any] = {}
    for u in toposort(index, size, *conditions, stop=lambda u: not _is_arithmetic(u)):
        known[u] = _translated(u, known, z3, solver)
    for c in conditions:
        solver.add(known[c])
    solver.add(z3.Or(known[index] < 0, known[index] >= known[size]))
    return bool(solver.check() == z3.unsat)


_ARITHMETIC = frozenset(
    ("ADD", "MUL", "MAX", "IDIV", "MOD", "WHERE", "CMPLT", "CMPNE", "AND", "OR", "RANGE", "SPECIAL")
)


def _is_arithmetic(u: UOp) -> bool:
    """Whether `u` can be translated for Z3: exact index arithmetic or a bool. Other integers cannot, because they
    wrap.
    """
    return u.op in _ARITHMETIC and u.shape == () and all(s.dtype.kind in "xb" for s in u.src)


def _translated(u: UOp, known: dict[UOp, Any], z3: Any, solver: Any) -> Any:
    """Return `u` as an expression of the Python module `z3`.

    `known` has the Z3 expressions of all sources of `u`. An atom becomes a new Z3 constant, and its bounds are added to
    `solver`.
    """
    if u.op == "CONST" and u.dtype.kind in "xb" and isinstance(u.value, int):
        return z3.BoolVal(u.value) if u.dtype is dtypes.bool else z3.IntVal(u.value)
    s = [known[x] for x in u.src] if _is_arithmetic(u) else []
    if u.op in ("RANGE", "SPECIAL") or not s or u.op in ("IDIV", "MOD") and not _is_positive(u.src[1]):
        x = z3.FreshConst(z3.BoolSort() if u.dtype is dtypes.bool else z3.IntSort())
        if u.dtype is not dtypes.bool and (u.dtype.is_int):
            solver.add(x >= int(min_max(u)[0]), x <= int(min_max(u)[1]))
        if s and u.op in ("RANGE", "SPECIAL"):
            solver.add(x < s[0])
        return x
    boolean = u.src[0].dtype is dtypes.bool
    rules: dict[str, Callable[..., Any]] = {
        "ADD": lambda a, b: z3.Or(a, b) if boolean else a + b,
        "MUL": lambda a, b: z3.And(a, b) if boolean else a * b,
        "MAX": lambda a, b: z3.Or(a, b) if boolean else z3.If(a < b, b, a),
        "IDIV": lambda a, b: a / b,
        "MOD": lambda a, b: a % b,
        "WHERE": lambda c, a, b: z3.If(c, a, b),
        "CMPLT": lambda a, b: z3.And(z3.Not(a), b) if boolean else a < b,
        "CMPNE": lambda a, b: a != b,
        "AND": lambda a, b: z3.And(a, b),
        "OR": lambda a, b: z3.Or(a, b),
    }
    return rules[u.op](*s)


def _is_positive(u: UOp) -> bool:
    """Whether `u` is a positive constant. For such a divisor, IDIV and MOD agree with Z3's division."""
    return u.op == "CONST" and u.value > 0


# ---- messages --------------------------------------------------------------------------------------------------------
def infix(u: UOp, depth: int = 8) -> str:
    """Return `u`, an index or condition, as text in infix notation, such as `r0*4 + r1//3`, where r0 is the RANGE of id
    0.

    Operands nested deeper than `depth` are written as `...`.
    """
    if u.op == "CONST":
        return str(u.value)
    if u.op in ("RANGE", "SPECIAL"):
        return f"r{u.arg[0]}" if u.op == "RANGE" else str(u.arg)
    if u.op == "PARAM":
        return u.arg.name or f"param{u.arg.slot}"
    if not depth:
        return "..."
    s = [infix(x, depth - 1) for x in u.src]
    sign = {"ADD": " + ", "MUL": "*", "IDIV": "//", "MOD": "%", "CMPLT": " < ", "CMPNE": " != ", "AND": " and "}
    if u.op == "ADD" or u.op == "AND":
        return sign[u.op].join(s)
    if u.op in sign:
        return sign[u.op].join(f"({t})" if " " in t and u.op != "CMPLT" else t for t in s)
    return f"{u.op.lower()}({', '.join(s)})"


def _error(a: Access, sink: UOp) -> VerifyError:
    """Return (not raise) the VerifyError for the access `a` of kernel `sink` that is not proven. It names the kernel,
    index, loops, gate and the line of the user's program.
    """
    name = sink.arg.name if isinstance(sink.arg, KernelInfo) else "kernel"
    lo, hi = min_max(a.index)
    loops = ", ".join(f"r{r.arg[0]} < {infix(r.src[0])}" for r in sorted(ranges(a.index), key=lambda r: r.arg[0]))
    memory = a.memory
    while not hasattr(memory.arg, "slot"):
        memory = memory.src[0]
    gate = "no gate" if a.gate is None else f"gate {infix(a.gate)}"
    origin = _origin(a.node, sink)
    message = (
        f"kernel {name}: {a.node.op} of {memory.op} {memory.arg.slot} is not proven to stay inside\n"
        f"  index: {infix(a.index)}  with {loops or 'no loops'}, {gate}"
    )
    message += f"\n  made by {show_origin(origin)}" if origin is not None else ""
    if find_spec("z3") is None:
        message += "\n  the solver Z3, which proves more, is not installed: pip install z3-solver"
    line = origin[:2] if isinstance(origin, tuple) and len(origin) >= 2 else None
    return VerifyError(
        message, op=a.node.op, expected=f"0 <= index < {infix(a.size)}", found=f"[{lo}, {hi}] by intervals", line=line
    )


def _origin(u: UOp, sink: UOp) -> Any:
    """Return the origin (the line of the user's program) of `u`, or of the nearest user or source of `u` in `sink` that
    has one.
    None if no node has one.
    """
    if u.origin is not None:
        return u.origin
    users = {u}
    for v in toposort(sink):
        if not users.isdisjoint(v.src):
            if v.origin is not None:
                return v.origin
            users.add(v)
    return next((v.origin for v in reversed(toposort(u)) if v.origin is not None), None)


__all__ = ["Access", "accesses", "check_bounds", "infix", "is_inside", "polynomial"]
