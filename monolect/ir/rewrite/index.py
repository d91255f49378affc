"""Build index arithmetic in normal form.

A value of dtype `index` is one canonical sum `c1*x1 + c2*x2 + ... + k`, so equal indices are the same node. Its terms
`ci*xi` are given as pairs (xi, ci). Divisions, remainders and comparisons are simplified from the terms and their
intervals. Each identity has a row in `ir.rewrite.identities`, which the code names where it applies the identity.

Arithmetic on elements is in `ir.rewrite.normal`; rules that match larger graphs are in `rules/`.
Invariant: the result has the value of the plain node wherever that is defined.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Any

from monolect.base.dtype import dtypes
from monolect.ir.bounds import Interval, min_max
from monolect.ir.ops import INVALID
from monolect.ir.rewrite.identities import connect
from monolect.ir.rewrite.operand_order import in_order
from monolect.ir.uop import UOp, const, idx, node, rebuild, toposort

Terms = tuple[tuple[UOp, int], ...]
TRUE, FALSE = const(True, dtypes.bool), const(False, dtypes.bool)
_PLAIN = frozenset(("ADD", "MUL", "CONST"))  # ops that are no term of a sum: a constant factor is distributed over them
allowed: Any = None  # allowed(name): whether that identity is to be applied; None: all are
is_mixed = False  # True once nodes of this process may have been built without some identities


def _set_allowed(may: Any) -> None:
    global allowed, is_mixed
    allowed, is_mixed = may, is_mixed or may is not None


connect(_set_allowed)


# ---- sums of index terms ---------------------------------------------------------------------------------------------
def linear(u: UOp) -> tuple[int, Terms]:
    """Return the index value `u` as (constant k, terms ((x1, c1), ...)), meaning k + c1*x1 + ...

    No xi is a sum, a constant, or a multiple of another node by a constant.
    """
    if u._linear is not None:
        return u._linear
    out: tuple[int, Terms]
    if u.op == "CONST" and u.arg[0] is not INVALID:
        out = (u.arg[0], ())
    elif u.op == "MUL" and is_mixed and (u.src[1].op == "CONST" or u.src[0].op == "CONST"):
        x, c = u.src if u.src[1].op == "CONST" else u.src[::-1]
        out = (0, ((x, c.arg[0]),)) if x.op not in _PLAIN else _scaled(x, c.arg[0])
    elif u.op == "MUL" and u.src[1].op == "CONST":
        out = (0, ((u.src[0], u.src[1].arg[0]),))
    elif u.op == "ADD":
        out = _sum_of(u)
    else:
        out = (0, ((u, 1),))
    u._linear = out
    return out


def _sum_of(u: UOp) -> tuple[int, Terms]:
    """Return the ADD `u` of index values as (constant, terms), where the terms are (value, coefficient) pairs."""
    k = 0
    terms: list[tuple[UOp, int]] = []
    while u.op == "ADD" and u._linear is None:  # `from_linear` builds left-leaning chains
        r = linear(u.src[1])
        k += r[0]
        terms.extend(reversed(r[1]))
        u = u.src[0]
    r = linear(u)
    terms = [*r[1], *reversed(terms)]
    if is_mixed and len({x for x, _ in terms}) < len(terms):  # built without `index_sum`
        terms = _collected(terms)
    return k + r[0], tuple(terms)


def _scaled(x: UOp, c: int) -> tuple[int, Terms]:
    """Return the product of the index value `x` and the int `c` as (constant, terms), where the terms are (value,
    coefficient) pairs.

    Here `x` may be a sum or a constant, which happens if the product was built with identities switched off.
    """
    k, terms = linear(x)
    return k * c, tuple([(y, m * c) for y, m in terms if m * c])


def _collected(terms: list[tuple[UOp, int]]) -> list[tuple[UOp, int]]:
    """Return `terms`, (value, coefficient) pairs, with the coefficients of equal values added; zero terms are
    left out.
    """
    found: dict[UOp, int] = {}
    for x, c in terms:
        found[x] = found.get(x, 0) + c
    return [(x, c) for x, c in found.items() if c]


def as_sums(root: UOp) -> UOp:
    """Return the graph `root` with all index sums in normal form, as renderers need them.

    If all identities are switched on, all sums are in this form already, and `root` itself is returned.
    """
    if allowed is None:
        return root
    new: dict[UOp, UOp] = {}
    for u in toposort(root):
        v = rebuild(u, tuple([new[s] for s in u.src]))
        is_sum = v.op in ("ADD", "MUL") and v.dtype.kind == "x" and all(s.dtype.kind == "x" for s in v.src)
        new[u] = from_linear(*linear(v)) if is_sum else v
    return new[root]


def limits(conditions: Iterable[UOp]) -> dict[UOp, Interval]:
    """Return a dict from index value x to its interval (lower, upper) where all `conditions` hold.

    The dict has each x that one of the conditions bounds by a constant, `m*x < k` or `(m*x < k) != True`.
    """
    out: dict[UOp, Interval] = {}
    for c in conditions:
        is_negated = c.op == "CMPNE" and c.src[1].op == "CONST" and c.src[1].value is True
        less = c.src[0] if is_negated else c
        if less.op == "CMPLT" and less.src[0].dtype.kind == "x":
            k, terms = linear(less.src[0] + less.src[1] * -1)
            if len(terms) == 1:  # m*x <= most
                (x, m), most = ((terms[0][0], -terms[0][1]), k) if is_negated else (terms[0], -k - 1)
                lo, hi = out.get(x) or min_max(x)
                out[x] = (lo, min(hi, most // m)) if m > 0 else (max(lo, -(most // -m)), hi)
    return out


def _factor_key(u: UOp) -> tuple:
    return len(u.shape), u.op != "RANGE", in_order(u)


def _term_key(t: tuple[UOp, int]) -> tuple:
    return _factor_key(t[0])


def from_linear(k: int, terms: dict[UOp, int] | Iterable[tuple[UOp, int]]) -> UOp:
    """Return the canonical node for `k` plus the sum of c*x over `terms`, (x, c) pairs or a dict from x to c.

    Terms of the form x // c * c + x % c are combined to x.
    """
    items = [(x, c) for x, c in (terms.items() if isinstance(terms, dict) else terms) if c]
    if len(items) > 1:
        more, items = _recombine(items)
        k += more
        items.sort(key=_term_key)
    acc = None
    for x, c in items:
        t = x if c == 1 else node("MUL", (x, idx(c)))
        acc = t if acc is None else node("ADD", (acc, t))
    if acc is None:
        return idx(k)
    return acc if k == 0 else node("ADD", (acc, idx(k)))


def _recombine(items: list[tuple[UOp, int]]) -> tuple[int, list[tuple[UOp, int]]]:
    """Combine the terms c * (y % n) and c*n * (y // n) in `items` to c * y.

    `items` are (value, coefficient) pairs. Returns (constant to add, new pairs).
    """
    k, found = 0, dict(items)
    again = True
    while again and any(x.op == "MOD" for x in found):
        again = False
        for x, c in list(found.items()):
            if x.op == "MOD" and x in found and (more := _recombine_pair(found, x, c)) is not None:
                k, again = k + more, True
    return k, [(x, c) for x, c in found.items() if c]


def _recombine_pair(found: dict[UOp, int], x: UOp, c: int) -> int | None:
    """Replace, in `found`, the term c * x with x = y % n, and its partner c*n * (z // n), by the terms of c * z.

    `found` maps values to coefficients. z differs from y by a multiple of n. z // n may be written as a // (m*n), for z
    = a // m. Returns the constant part of c * z, or None if `found` has no partner of x.
    """
    y, n = x.src[0], x.src[1].arg[0] if x.src[1].op == "CONST" else 0
    if n < 1:
        return None
    pairs = [(node("IDIV", (y, x.src[1])), y)]
    if y.op == "IDIV" and y.src[1].op == "CONST":
        pairs.append((node("IDIV", (y.src[0], idx(y.src[1].arg[0] * n))), y))
    same = (w for w in found if w.op == "IDIV" and w.src[1] is x.src[1] and _is_congruent(w.src[0], y, n))
    whole, z = next(((w, z) for w, z in (*pairs, *((w, w.src[0]) for w in same)) if found.get(w) == c * n), (x, x))
    if whole is x or not (allowed is None or allowed("index_recombine")):
        return None
    k, terms = linear(z)
    del found[whole], found[x]
    for t, ct in terms:
        found[t] = found.get(t, 0) + ct * c
    return k * c


def _is_congruent(x: UOp, y: UOp, n: int) -> bool:
    """Whether the index values `x` and `y` are known to differ by a multiple of `n`."""
    (kx, tx), (ky, ty) = linear(x), linear(y)
    terms = dict(tx)
    for z, c in ty:
        terms[z] = terms.get(z, 0) - c
    return (kx - ky) % n == 0 and all(c % n == 0 for c in terms.values())


def index_add(a: UOp, b: UOp) -> UOp:
    """Return the canonical node for a + b of the index values `a` and `b`."""
    ka, ta = linear(a)
    kb, tb = linear(b)
    if allowed is not None and not allowed("index_sum" if ta or tb else "index_numbers"):
        return node("ADD", (a, b))
    if not tb:
        return a if kb == 0 else from_linear(ka + kb, ta)
    if not ta and ka == 0:
        return b
    terms = dict(ta)
    for x, c in tb:
        terms[x] = terms.get(x, 0) + c
    return from_linear(ka + kb, terms)


def index_mul(a: UOp, b: UOp) -> UOp:
    """Return the canonical node for a * b of the index values `a` and `b`.

    If one factor is a constant, the node is the other's sum with scaled coefficients. Otherwise the node is a product,
    which counts as one term of a sum. A sum of two or more terms times a single term is distributed to a sum of
    products.
    """
    ka, ta = linear(a)
    kb, tb = linear(b)
    if ta and tb:
        single_a, single_b = len(ta) == 1 and not ka, len(tb) == 1 and not kb
        distributes = len(ta) > 1 and single_b or single_a and len(tb) > 1  # over one symbolic factor
        if distributes and (allowed is None or allowed("index_distribute")):
            many, (k, ts), one = (a, (ka, ta), b) if len(ta) > 1 else (b, (kb, tb), a)
            out = one * k
            for x, c in ts:
                out = out + _product(x, one) * c
            return out
        return _product(a, b)
    if allowed is not None and not allowed("index_scale" if ta or tb else "index_numbers"):
        return node("MUL", (a, b))
    if not tb:
        if kb == 1:
            return a
        return from_linear(ka * kb, tuple((x, c * kb) for x, c in ta))
    return b if ka == 1 else from_linear(ka * kb, tuple((x, c * ka) for x, c in tb))


def _product(a: UOp, b: UOp) -> UOp:
    """Return the node for a * b, where `a` and `b` are single terms: their constant factors times the product of the
    remaining factors, which are in canonical order.
    """
    if allowed is not None and not allowed("index_product"):
        return node("MUL", (a, b))
    ca = cb = 1
    if a.op == "MUL" and a.src[1].op == "CONST":
        a, ca = a.src[0], a.src[1].arg[0]
    if b.op == "MUL" and b.src[1].op == "CONST":
        b, cb = b.src[0], b.src[1].arg[0]
    u, *more = sorted((*operands(a, "MUL"), *operands(b, "MUL")), key=_factor_key)
    for x in more:
        u = node("MUL", (u, x))
    return u if ca * cb == 1 else from_linear(0, ((u, ca * cb),))


def operands(u: UOp, op: str) -> list[UOp]:
    """Return the nodes that nested nodes of the binary `op` combine to `u`, from left to right; [u] if `u` is of
    another op.
    """
    out, stack = [], [u]
    while stack:
        v = stack.pop()
        if v.op == op:
            stack.extend(reversed(v.src))
        else:
            out.append(v)
    return out


def _split_multiples(k: int, terms: Terms, c: int) -> tuple[int, dict[UOp, int], int, dict[UOp, int]]:
    """Split the sum of `k` and `terms` into c * whole + rest, for the int `c`.

    Returns (constant of whole, terms of whole, constant of rest, terms of rest). The constant of rest is in [0, c), and
    no coefficient of rest is a multiple of c. The terms that are returned are dicts from value to coefficient.
    """
    whole: dict[UOp, int] = {}
    rest: dict[UOp, int] = {}
    for x, m in terms:
        (whole if m % c == 0 else rest)[x] = m // c if m % c == 0 else m
    return k // c, whole, k % c, rest


def index_idiv(a: UOp, b: UOp) -> UOp:
    """Return the canonical node for a // b of the index values `a` and `b`, rounded down; 0 for b = 0."""
    if b.op != "CONST":
        if a is b and min_max(a)[0] > 0 and (allowed is None or allowed("index_div_self")):
            return idx(1)
        if _is_below(a, b) and (allowed is None or allowed("index_div_below")):
            return idx(0)
        return node("IDIV", (a, b))
    c = b.arg[0]
    if c == 0:
        return idx(0) if a.op == "CONST" or (allowed is None or allowed("index_div_zero")) else node("IDIV", (a, b))
    if c == 1 and (allowed is None or allowed("index_div_one")):
        return a
    k, terms = linear(a)
    if not terms and (allowed is None or allowed("index_numbers")):
        return idx(k // c)
    lo, hi = min_max(a)
    if lo // c == hi // c and (allowed is None or allowed("index_div_bounds")):
        return idx(lo // c)
    if c < 0:
        return node("IDIV", (a, b))
    kq, whole, kr, rest = _split_multiples(k, terms, c)
    if allowed is not None and (whole or kq) and not allowed("index_div_multiples"):
        kq, whole, kr, rest = 0, {}, k, dict(terms)
    if not rest:
        return from_linear(kq, whole)
    g = gcd(c, *rest.values())
    if g > 1 and (
        allowed is None or allowed("index_div_common")
    ):  # floor((g*A + kr) / (g*c')) == floor((A + kr // g) / c')
        inner = from_linear(kr // g, {x: m // g for x, m in rest.items()})
        q = index_idiv(inner, idx(c // g))
    else:
        q = _idiv_rest(from_linear(kr, rest), c)
    return q if not whole and kq == 0 else from_linear(kq, whole) + q


def _idiv_rest(r: UOp, c: int) -> UOp:
    """Return the canonical node for r // c. No term of `r` has a coefficient that is a multiple of `c`, and the
    coefficients share no divisor with `c`.
    """
    lo, hi = min_max(r)
    if lo // c == hi // c and (allowed is None or allowed("index_div_bounds")):
        return idx(lo // c)
    k, terms = linear(r)
    # drop small terms that never carry: the other terms are multiples of m, and the small part is within [0, m)
    if len(terms) > 1 or k:
        for _, m in sorted(terms, key=lambda t: -abs(t[1])):
            big = {y: n for y, n in terms if n % m == 0} if m > 1 else {}
            small = from_linear(k, {y: n for y, n in terms if y not in big})
            carries = not (m > 1 and big and c % m == 0 and min_max(small)[0] >= 0 and min_max(small)[1] < m)
            if not carries and (allowed is None or allowed("index_div_small")):
                return index_idiv(from_linear(0, {y: n // m for y, n in big.items()}), idx(c // m))
    inner = r.src[1].arg[0] if r.op in ("IDIV", "MOD") and r.src[1].op == "CONST" else 0
    if r.op == "IDIV" and inner > 0 and (allowed is None or allowed("index_div_div")):
        return index_idiv(r.src[0], idx(inner * c))
    if r.op == "MOD" and inner > 0 and inner % c == 0 and (allowed is None or allowed("index_div_mod")):
        return index_mod(index_idiv(r.src[0], idx(c)), idx(inner // c))
    return node("IDIV", (r, idx(c)))


def _is_below(a: UOp, b: UOp) -> bool:
    """Whether 0 <= a < b is known: `a` is a RANGE of `b` iterations, or the intervals of `a` and `b` prove it."""
    if a.op == "RANGE" and a.src[0] is b:
        return True
    lo, hi = min_max(a)
    return bool(lo >= 0 and hi < min_max(b)[0])


def index_mod(a: UOp, b: UOp) -> UOp:
    """Return the canonical node for a % b of the index values `a` and `b`; the result has the sign of b, and is 0 for b
    = 0.
    """
    if b.op != "CONST":
        if a is b and (allowed is None or allowed("index_mod_self")):
            return idx(0)
        if _is_below(a, b) and (allowed is None or allowed("index_mod_below")):
            return a
        return node("MOD", (a, b))
    c = b.arg[0]
    if c in (0, 1):
        return idx(0) if a.op == "CONST" or (allowed is None or allowed("index_mod_one")) else node("MOD", (a, b))
    if c < 0:
        return node("MOD", (a, b))
    lo, hi = min_max(a)
    if lo // c == hi // c and (allowed is None or allowed("index_mod_bounds" if lo != hi else "index_numbers")):
        return a + -(lo // c) * c
    k, terms = linear(a)
    _, _, kr, rest = _split_multiples(k, terms, c)
    reduces = allowed is None or not _is_reduced(k, terms, c) and allowed("index_mod_multiples")
    if not reduces:
        kr, rest = k, dict(terms)
    if not rest:
        return idx(kr % c)
    g = gcd(c, *rest.values())
    if g > 1 and (
        allowed is None or allowed("index_mod_common")
    ):  # (g*A + g*kq + ks) mod (g*c') == g * ((A + kq) mod c') + ks
        inner = from_linear(kr // g, {x: m // g for x, m in rest.items()})
        return index_mod(inner, idx(c // g)) * g + kr % g
    if reduces:
        rest = {x: m % c if m > 0 else m for x, m in rest.items()}
    r = from_linear(kr, rest)
    lo, hi = min_max(r)
    if lo // c == hi // c and (allowed is None or allowed("index_mod_bounds")):
        return r + -(lo // c) * c
    split = _mod_carry_free(kr, rest, c)
    if split is not None:
        return split
    is_multiple = r.op == "MOD" and r.src[1].op == "CONST" and r.src[1].arg[0] % c == 0
    if is_multiple and (allowed is None or allowed("index_mod_mod")):
        return index_mod(r.src[0], b)
    return node("MOD", (r, b))


def _is_reduced(k: int, terms: Terms, c: int) -> bool:
    """Whether `k` and the coefficients of `terms` are already reduced modulo `c`, so that identity
    `index_mod_multiples` changes nothing.
    """
    return 0 <= k < c and all(m % c and m < c for _, m in terms)


def _mod_carry_free(k: int, rest: dict[UOp, int], c: int) -> UOp | None:
    """Simplify a remainder by the int `c`: (m*A + small) % c == m * (A % (c/m)) + small, where m divides c and 0 <=
    small < m. Return its node.

    The dividend m*A + small is `k` plus the sum of `rest`, a dict from value to coefficient. Returns None if no
    coefficient can be such an m.
    """
    for m in sorted({n for n in rest.values() if n > 1 and c % n == 0}, reverse=True):
        big = {y: n for y, n in rest.items() if n % m == 0}
        small = from_linear(k, {y: n for y, n in rest.items() if y not in big})
        if min_max(small)[0] >= 0 and min_max(small)[1] < m and (allowed is None or allowed("index_mod_small")):
            return index_mod(from_linear(0, {y: n // m for y, n in big.items()}), idx(c // m)) * m + small
    return None


def index_less(a: UOp, b: UOp) -> UOp:
    """Return the canonical node for a < b of the index values `a` and `b`; TRUE or FALSE if the result is known.

    Its form is `terms < k`, divided by the common divisor of the coefficients. If the sum of the terms may overflow,
    unbounded terms are moved to the side of the comparison on which their coefficient is positive.
    """
    k, terms = linear(a + b * -1)
    lo, hi = _sum_range(k, terms)
    if (hi < 0 or lo >= 0) and (allowed is None or allowed("index_less_bounds" if terms else "index_numbers")):
        return TRUE if hi < 0 else FALSE
    if allowed is not None and not allowed("index_less_sum"):
        return node("CMPLT", (a, b))
    g = gcd(*(c for _, c in terms))
    bound = -k
    if g > 1 and (allowed is None or allowed("index_less_common")):
        terms = tuple((x, c // g) for x, c in terms)
        bound = -((-bound) // g)  # ceil: x < bound/g over integers
    lo, hi = _sum_range(0, terms)
    if dtypes.index.min <= lo and hi <= dtypes.index.max:
        return node("CMPLT", (from_linear(0, terms), idx(bound)))
    left = [(x, c) for x, c in terms if c > 0 and is_unbounded(x)]
    right = [(x, -c) for x, c in terms if c < 0 and is_unbounded(x)]
    rest = [(x, c) for x, c in terms if not is_unbounded(x)]
    if left:
        return node("CMPLT", (from_linear(0, left), from_linear(bound, [*right, *((x, -c) for x, c in rest)])))
    return node("CMPLT", (from_linear(-bound, rest), from_linear(0, right)))


def _sum_range(k: int, terms: Terms) -> Interval:
    """Return the interval (lower, upper) of `k` + c1*x1 + ..., where `terms` are (xi, ci), in exact integers, without
    overflow.
    """
    lo = hi = k
    for x, c in terms:
        a, b = min_max(x)
        lo, hi = lo + min(c * a, c * b), hi + max(c * a, c * b)
    return lo, hi


def is_unbounded(x: UOp) -> bool:
    """Whether the index value `x` may be so large that a sum with it overflows; an index that is read from memory is an
    example.
    """
    lo, hi = min_max(x)
    return bool(lo < -(2**62) or hi > 2**62)


__all__ = [
    "FALSE",
    "TRUE",
    "as_sums",
    "from_linear",
    "index_add",
    "index_idiv",
    "index_less",
    "index_mod",
    "index_mul",
    "is_unbounded",
    "limits",
    "linear",
    "operands",
]
