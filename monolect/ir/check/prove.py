"""Proves that every LOAD, STORE and ATOMICADD of a kernel stays inside its buffer.

What it is for: CHECK_BOUNDS=1. Three ways are tried in turn, each dearer than the last: intervals, after the ranges
that an access' own gate bounds are narrowed; linear reasoning on the normal form, which uses any gate `terms < k`, loop
bounds that depend on other loops or on symbolic sizes, and what `x // c` and `x % c` have to do with x, also in each
iteration of a short loop; Z3, if installed. What it is not: a check at run time. Conditions around
an access are not looked at, only its own gate is.

Invariant: an access that is called inside is inside in every iteration in which its gate holds, also where index
arithmetic overflows: a condition that may overflow proves nothing. The reverse is not promised: an access that cannot
be proven is reported as an error.
Source: Fourier-Motzkin elimination, here as a bounded search for one combination of facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
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

_STEPS = 4000  # of one linear search
_DEPTHS = (3, 4, 6)  # facts in one combination
_FACTS = 200  # in one search
_CASES = 3  # nested case distinctions
_ENUMERATED = 4  # iterations of a loop that are looked at one by one
_Z3_MILLISECONDS = 1000
_FEW = 1 << 31  # values of a number that stands for a loop; intervals of a loop of 2**63 steps are not exact
_SOLVER = True  # tests switch Z3 off, to know what is proven without it
_proven: WeakSet[UOp] = WeakSet()  # nodes are interned, so an access is proven once for all kernels that hold it


class Access(NamedTuple):
    """One index of a LOAD, STORE, ATOMICADD or TMACOPY, into an axis of `size` elements."""

    node: UOp
    memory: UOp
    index: UOp  # type: ignore[assignment]  # hides the method of tuple
    size: UOp
    gate: UOp | None


def check_bounds(sink: UOp) -> None:
    """Prove all accesses under `sink`. Raises VerifyError with the first that cannot be proven."""
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
    """The indices with which `u` addresses memory; a whole buffer or accumulator has none."""
    if u.op == "TMACOPY":  # its first and last element; what it reads outside of the axes is zeros
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
    """Whether 0 <= index < size wherever `gate` holds. Without `solver`, Z3 is not asked, installed or not."""
    lo, hi = min_max(index)
    if lo >= 0 and hi < min_max(size)[0]:
        return True
    if index.shape != () or (gate is not None and gate.shape != ()):
        return _all_inside(index, size, gate, solver)
    if index.dtype.kind != "x":
        return False  # arithmetic that wraps
    conditions = [] if gate is None else [c for c in conjuncts(gate) if _is_exact(c)]
    # In the sum of these an overflow does no harm: it is right again where its value is inside.
    terms = [x for m in polynomial(index) for x in m]
    if not _is_exact(*terms):
        at, *found = _narrowed((index, *conditions), conditions)
        if at is not index and is_inside(at, size, _all_of(found), solver=solver):
            return True  # else what decides may be a condition that is not exact itself
        return _is_inside_hidden(index, size, gate, terms, solver)
    if FALSE in conditions or _by_intervals(index, size, conditions) or _by_facts(index, size, conditions, _CASES):
        return True
    if _by_enumeration(index, size, conditions):
        return True
    for simpler in (_divided, _rejoined):
        other, condition = simpler(index), None if gate is None else simpler(gate)
        if other is not index or condition is not gate:
            return is_inside(other, size, condition, solver=solver)
    return solver and _SOLVER and _solved(index, size, conditions)


def _is_exact(*us: UOp) -> bool:
    """Whether the index arithmetic of `us` is that of whole numbers: no part of it overflows where it is chosen."""
    return not any(_overflows(v) for v in _parts(us))


def _parts(us: Sequence[UOp]) -> list[UOp]:
    """The index arithmetic of `us`, down to its atoms and to each WHERE, which is judged as a whole."""
    return [v for v in toposort(*us, stop=lambda v: v.op == "WHERE" or v.op not in _ARITHMETIC) if v.dtype.kind == "x"]


def _overflows(v: UOp) -> bool:
    """Whether a part of index arithmetic may overflow; a branch of a WHERE has the bounds that its condition gives."""
    if v.op != "WHERE":
        return may_wrap(v)
    c, a, b = v.src
    return c.shape != () or not _is_exact(c, _where_holds(a, c), _where_holds(b, negate(c)))


def _narrowed(us: tuple[UOp, ...], conditions: Sequence[UOp]) -> Sequence[UOp]:
    """`us` with a loop for each number that is no loop and that `conditions` bound by constants: what is computed from
    a number of few values does not overflow.
    """
    found = {x: limit for x, limit in limits(conditions).items() if x.op not in ("RANGE", "SPECIAL")}
    found = {x: (lo, hi) for x, (lo, hi) in found.items() if 0 <= hi - lo < _FEW}
    loops = {x: node("RANGE", (idx(hi - lo + 1),), (-1001 - x.serial, "LOOP")) + lo for x, (lo, hi) in found.items()}
    return substitute_all(us, loops)


def _is_inside_hidden(index: UOp, size: UOp, gate: UOp | None, terms: Sequence[UOp], solver: bool) -> bool:
    """Whether it follows when each part that may overflow is replaced by an unknown number of 64 bits, the same one
    wherever that part is: a clamp of it has bounds all the same.
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
    """The conjunction of `conditions`, None where there are none."""
    return reduce(lambda a, b: build("AND", a, b), conditions) if conditions else None


def _where_holds(u: UOp, condition: UOp) -> UOp:
    """`u` with the bounds that a condition gives to what it compares with a number."""
    found = enumerate(limits(conjuncts(condition)).items())
    return substitute(u, {x: node("RANGE", (idx(hi - lo + 1),), (-1 - k, "LOOP")) + lo for k, (x, (lo, hi)) in found})


def _divided(index: UOp) -> UOp:
    """`index` with k + y // n for (k * n + y) // n, and y % n for the remainder, n a symbolic size and k no number."""
    found: dict[UOp, UOp] = {}
    for u in toposort(index):
        if u.op in ("IDIV", "MOD") and u.src[1].op != "CONST" and min_max(u.src[1])[0] > 0:
            x, n = polynomial(u.src[0]), polynomial(u.src[1])
            if k := _quotient(x, n):
                rest = build(u.op, _value(_difference(x, _times(k, n))), u.src[1])
                found[u] = rest if u.op == "MOD" else rest + _value(k)
    return substitute(index, found) if found else index


def _rejoined(index: UOp) -> UOp:
    """`index` with x - n * (x // n) for x % n where it holds that quotient too, of a symbolic size n: what flattens an
    axis and takes it apart again leaves x alone.
    """
    parts = [u for u in toposort(index) if u.op in ("IDIV", "MOD") and u.src[1].op != "CONST"]
    quotients = {u.src: u for u in parts if u.op == "IDIV" and min_max(u.src[1])[0] > 0}
    found = {u: u.src[0] + u.src[1] * quotients[u.src] * -1 for u in parts if u.op == "MOD" and u.src in quotients}
    return substitute(index, found) if found else index


def _all_inside(index: UOp, size: UOp, gate: UOp | None, solver: bool) -> bool:
    """Whether all places of a shaped index are inside. Elements that are counted, 0, 1, 2 and so on, count as a loop of
    their own; any other block of values was proven before it became one.
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
    """Whether intervals show it once each RANGE that a condition bounds by constants is replaced by a shorter one."""
    found = {r: limit for r, limit in limits(conditions).items() if r.op == "RANGE"}
    if any(lo > hi for lo, hi in found.values()):
        return True  # never reached
    if not found:
        return False
    short = {r: node("RANGE", (idx(hi - lo + 1),), r.arg) + lo for r, (lo, hi) in found.items()}
    lo, hi = min_max(substitute(index, short))
    return lo >= 0 and hi < min_max(size)[0]


def _by_enumeration(index: UOp, size: UOp, conditions: Sequence[UOp]) -> bool:
    """Whether it follows in each iteration of one of the short loops: one in blocks may leave a division in parts, one
    around rows of symbolic size a product of both.
    """
    loops = [r for r in ranges(index) if r.op == "RANGE" and min_max(r)[1] < _ENUMERATED]
    return any(_in_each(r, index, size, conditions) for r in sorted(loops, key=lambda r: (min_max(r)[1], r.serial)))


def _in_each(r: UOp, index: UOp, size: UOp, conditions: Sequence[UOp]) -> bool:
    for i in range(min_max(r)[1] + 1):
        at, n, *rest = substitute_all((index, size, *conditions), {r: idx(i)})
        rest = [x for c in rest for x in conjuncts(c)]
        if FALSE not in rest and not _by_intervals(at, n, rest) and not _by_facts(at, n, rest, _CASES):
            return False
    return True


# ---- linear reasoning ------------------------------------------------------------------------------------------------
def _by_facts(index: UOp, size: UOp, conditions: Sequence[UOp], cases: int) -> bool:
    """Whether it follows linearly from `conditions`; a MAX or WHERE in the way is resolved into its cases."""
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
    """What is >= 0 where `condition` holds."""
    if condition.op == "CMPLT" and condition.src[0].dtype.kind == "x":
        out = _difference(polynomial(condition.src[1]), polynomial(condition.src[0]))
        _add_to(out, {(): 1}, -1)
        return [out, *_undivided(out)]
    if condition.op == "CMPNE" and condition.src[1].op == "CONST" and condition.src[1].arg[0] is True:
        equal = condition.src[0]
        if equal.op == "CMPNE" and equal.src[0].dtype.kind == "x":
            a, b = (polynomial(s) for s in equal.src)
            return [_difference(a, b), _difference(b, a)]
    return []


def _undivided(fact: Poly) -> list[Poly]:
    """What `fact` says of x, where it bounds x // n alone, n a symbolic size: x >= k * n, or x < (k + 1) * n."""
    (m, sign), *rest = ((m, c) for m, c in fact.items() if m) or (((), 0),)
    if rest or len(m) != 1 or abs(sign) != 1 or m[0].op != "IDIV" or min_max(m[0].src[1])[0] < 1:
        return []
    x, n = (polynomial(s) for s in m[0].src)
    k = -fact.get((), 0) * sign + (sign < 0)
    out = _difference(x, {a: c * k for a, c in n.items()})
    return [{a: c * sign for a, c in out.items()}] if sign > 0 else [_difference({(): -1}, out)]


def polynomial(u: UOp) -> Poly:
    """`u` as a sum of products of atoms. An atom is what index arithmetic cannot take apart."""
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
    """Of the terms of `x` that are the largest term of `n` times something that is no number, those somethings."""
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


def _value(p: Poly) -> UOp:
    """A sum of products of atoms as index arithmetic."""
    return sum((prod(m, start=idx(c)) for m, c in p.items()), idx(0))


def _interval(m: Monomial) -> tuple[int, int]:
    lo = hi = 1
    for x in m:
        a, b = min_max(x)
        ends = (lo * a, lo * b, hi * a, hi * b)
        lo, hi = min(ends), max(ends)
    return lo, hi


def _least(p: Poly) -> int:
    return sum(c * _interval(m)[c < 0] for m, c in p.items())


class _Search:
    """Looks for facts that, taken from a goal in some multiples, leave what intervals show to be >= 0."""

    def __init__(self, facts: Sequence[Poly], goals: Sequence[Poly]):
        self.steps = _STEPS
        self.by_monomial: dict[tuple[Monomial, bool], list[Poly]] = {}
        self.seen: set[Any] = set()
        todo = list(facts)
        fresh = [m for p in (*goals, *facts) for m in p]
        most = max(2, *map(len, fresh)) if fresh else 2  # x = n * (x // n) + x % n, times n, would have no end
        met: set[Monomial] = {()}
        while fresh and len(todo) < _FACTS:  # facts about atoms bring atoms of their own
            m = fresh.pop()
            if m not in met:
                met.add(m)
                for f in _known_about(m):
                    if all(len(n) <= most for n in f):
                        todo.append(f)
                        fresh.extend(f)
        for q in sorted((m[0] for m in met if len(m) == 1 and m[0].op == "IDIV"), key=lambda q: q.serial):
            todo += _rounded(q, todo)  # which may be what another divides
        for f in map(_reduced, todo):
            if _least(f) < 0:  # what intervals show already cannot help
                for m, c in f.items():
                    if m:
                        self.by_monomial.setdefault((m, c > 0), []).append(f)

    def finds(self, goal: Poly) -> bool:
        """Whether goal >= 0 follows: from few facts, which one long way down may pass by, or else from more."""
        return any(self._finds_within(goal, depth) for depth in _DEPTHS)

    def _finds_within(self, goal: Poly, depth: int) -> bool:
        self.steps = _STEPS
        self.seen.clear()  # a search that ran out of steps did not see all that is below
        return self.succeeds(goal, depth)

    def succeeds(self, goal: Poly, depth: int) -> bool:
        """Whether goal >= 0 follows from at most `depth` facts."""
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


def _loss(item: tuple[Monomial, int]) -> int:
    return item[1] * _interval(item[0])[item[1] < 0]


def _reduced(p: Poly) -> Poly:
    """A fact `p` >= 0 divided by what its coefficients share, the constant rounded down."""
    g = gcd(*(c for m, c in p.items() if m))
    return p if g < 2 else {m: c // g for m, c in p.items() if m or c // g}


def _rounded(q: UOp, facts: Sequence[Poly]) -> list[Poly]:
    """Bounds of x // c, rounded to whole numbers, from facts that bound x by constants and by multiples of c."""
    if q.src[1].op != "CONST":
        return _whole(q, facts)
    if not _is_positive(q.src[1]):
        return []
    c, x = q.src[1].value, polynomial(q.src[0])
    k = x.pop((), 0)
    out: list[Poly] = []
    for sign in (1, -1):
        for f in facts:
            rest = {m: n for m, n in f.items() if m and m not in x}
            if (q,) in rest or any(n % c for n in rest.values()):
                continue
            if all(f.get(m) == n * sign for m, n in x.items()):
                bound = k - f.get((), 0) * sign  # x >= bound - rest, or x <= bound + rest
                out.append({(q,): sign, (): -(bound // c) * sign, **{m: n // c for m, n in rest.items()}})
    return out


def _whole(q: UOp, facts: Sequence[Poly]) -> list[Poly]:
    """Whole numbers that bound x // c, where c is a size above 0: from facts that bound x by multiples of that."""
    if min_max(q.src[1])[0] < 1:
        return []
    x, c = polynomial(q.src[0]), polynomial(q.src[1])
    m, times = max(c.items(), key=lambda item: len(item[0]))
    loop = [_difference(polynomial(q.src[0].src[0]), {**x, (): 1})] if q.src[0].op == "RANGE" else []
    least, most = min_max(q)
    low, high = least, most
    for sign in (1, -1):  # f >= 0 says x <= f + x, or x >= x - f; so do multiples
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
    return [f for f in ({(q,): -1, (): high}, {(q,): 1, (): -low}) if (high < most if f[q,] < 0 else low > least)]


def _known_about(m: Monomial) -> list[Poly]:
    """What is >= 0 about a monomial, from the meaning of its atoms."""
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
    if x.op in ("RANGE", "SPECIAL"):
        if x.src[0].op == "CONST":
            return []
        left = _difference(polynomial(x.src[0]), {(x,): 1})
        _add_to(left, {(): 1}, -1)
        if x.src[0].op != "IDIV" or not _is_positive(x.src[0].src[1]):
            return [left]
        n, c = x.src[0].src  # c * (x + 1) <= n, which takes two facts: one is all that bounds a quotient of x
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
    """Whether Z3, if it is installed, finds no way out of [0, size)."""
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
    """Whether Z3 may look into `u`: exact integers and truth values only, since other integers wrap."""
    return u.op in _ARITHMETIC and u.shape == () and all(s.dtype.kind in "xb" for s in u.src)


def _translated(u: UOp, known: dict[UOp, Any], z3: Any, solver: Any) -> Any:
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
    """A divisor for which Z3's division and the dialect's agree."""
    return u.op == "CONST" and u.value > 0


# ---- messages --------------------------------------------------------------------------------------------------------
def infix(u: UOp, depth: int = 8) -> str:
    """An index or condition as people write it: `r0*4 + r1//3`, r and the number of the loop."""
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
    line = origin[:2] if isinstance(origin, tuple) and len(origin) >= 2 else None
    return VerifyError(
        message, op=a.node.op, expected=f"0 <= index < {infix(a.size)}", found=f"[{lo}, {hi}] by intervals", line=line
    )


def _origin(u: UOp, sink: UOp) -> Any:
    """Where the user's program made `u`, or the nearest node that uses it or that it uses."""
    if u.origin is not None:
        return u.origin
    users = {u}
    for v in toposort(sink):
        if not users.isdisjoint(v.src):
            if v.origin is not None:
                return v.origin
            users.add(v)
    return next((v.origin for v in reversed(toposort(u)) if v.origin is not None), None)
