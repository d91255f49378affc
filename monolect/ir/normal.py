"""Construction-time normal form: what is local and always right is applied the moment a node is built.

Every function here takes `(src, arg)` and returns the simplified UOp. Index arithmetic (dtype `index`) is kept as one
canonical sum `c1*x1 + c2*x2 + ... + k`, so equal indices are the same node and divisions, remainders and comparisons
are decided from the terms and their intervals. Other integers fold and drop neutral elements; floats keep IEEE meaning
(x*1 is x, but x+0 is not, because -0.0 + 0 is 0.0).

What it does not do: anything that needs a choice or a whole graph; those are named rules in `rules/`.
Invariant: the result has the dtype of the plain node, and its value wherever that is defined.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import e, gcd, log, log2, pi, prod
from typing import Any

from monolect.base.dtype import as_python, dtypes, to_numpy
from monolect.base.numpy import np
from monolect.ir.bounds import Interval, min_max, ranges
from monolect.ir.ops import INVALID, ROWS
from monolect.ir.place import memory_of
from monolect.ir.uop import SIMPLIFIERS, UOp, build, const, idx, node, shape_source

Terms = tuple[tuple[UOp, int], ...]
TRUE, FALSE = const(True, dtypes.bool), const(False, dtypes.bool)


# ---- sums of index terms ---------------------------------------------------------------------------------------------
def linear(u: UOp) -> tuple[int, Terms]:
    """`u` as `(k, ((x1, c1), ...))`, meaning k + c1*x1 + ...; no xi is a sum, a constant, or a constant multiple."""
    if u._linear is not None:
        return u._linear
    out: tuple[int, Terms]
    if u.op == "CONST" and u.arg[0] is not INVALID:
        out = (u.arg[0], ())
    elif u.op == "MUL" and u.src[1].op == "CONST":
        out = (0, ((u.src[0], u.src[1].arg[0]),))
    elif u.op == "ADD":
        out = _sum_of(u)
    else:
        out = (0, ((u, 1),))
    u._linear = out
    return out


def _sum_of(u: UOp) -> tuple[int, Terms]:
    k = 0
    terms: list[tuple[UOp, int]] = []
    while u.op == "ADD" and u._linear is None:  # the left-leaning chain that `from_linear` builds
        r = linear(u.src[1])
        k += r[0]
        terms.extend(reversed(r[1]))
        u = u.src[0]
    r = linear(u)
    return k + r[0], (*r[1], *reversed(terms))


def limits(conditions: Iterable[UOp]) -> dict[UOp, Interval]:
    """From where to where index values go while `conditions` hold; those that no condition bounds alone are missing."""
    out: dict[UOp, Interval] = {}
    for c in conditions:
        if c.op == "CMPLT" and c.src[0].dtype.kind == "x":
            k, terms = linear(c.src[0] + c.src[1] * -1)
            if len(terms) == 1:  # m*x <= most
                (x, m), most = terms[0], -k - 1
                lo, hi = out.get(x) or min_max(x)
                out[x] = (lo, min(hi, most // m)) if m > 0 else (max(lo, -(most // -m)), hi)
    return out


def _term_key(t: tuple[UOp, int]) -> tuple:
    u = t[0]
    return (len(u.shape), 0, u.arg[0], u.serial) if u.op == "RANGE" else (len(u.shape), 1, u.serial, 0)


def from_linear(k: int, terms: dict[UOp, int] | Iterable[tuple[UOp, int]]) -> UOp:
    """The canonical node for k + the sum of c*x. Recombines x // c * c + x % c."""
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
    """(k, items) with remainders and multiples of what they are left of put together again."""
    k, found = 0, dict(items)
    again = True
    while again and any(x.op == "MOD" for x in found):
        again = False
        for x, c in list(found.items()):
            if x.op == "MOD" and x in found and (more := _put_back(found, x, c)) is not None:
                k, again = k + more, True
    return k, [(x, c) for x, c in found.items() if c]


def _put_back(found: dict[UOp, int], x: UOp, c: int) -> int | None:
    """Terms c * (y % n) and c*n * (z // n) become c * z, z being y up to multiples of n; z // n may be written
    a // (m*n) for z = a // m. Returns the constant part of c * z, None when there is no such pair.
    """
    y, n = x.src[0], x.src[1].arg[0] if x.src[1].op == "CONST" else 0
    if n < 1:
        return None
    pairs = [(node("IDIV", (y, x.src[1])), y)]
    if y.op == "IDIV" and y.src[1].op == "CONST":
        pairs.append((node("IDIV", (y.src[0], idx(y.src[1].arg[0] * n))), y))
    same = (w for w in found if w.op == "IDIV" and w.src[1] is x.src[1] and _is_congruent(w.src[0], y, n))
    whole, z = next(((w, z) for w, z in (*pairs, *((w, w.src[0]) for w in same)) if found.get(w) == c * n), (x, x))
    if whole is x:
        return None
    k, terms = linear(z)
    del found[whole], found[x]
    for t, ct in terms:
        found[t] = found.get(t, 0) + ct * c
    return k * c


def _is_congruent(x: UOp, y: UOp, n: int) -> bool:
    """Whether x and y differ by a multiple of n."""
    (kx, tx), (ky, ty) = linear(x), linear(y)
    terms = dict(tx)
    for z, c in ty:
        terms[z] = terms.get(z, 0) - c
    return (kx - ky) % n == 0 and all(c % n == 0 for c in terms.values())


def _index_add(a: UOp, b: UOp) -> UOp:
    ka, ta = linear(a)
    kb, tb = linear(b)
    if not tb:
        return a if kb == 0 else from_linear(ka + kb, ta)
    if not ta and ka == 0:
        return b
    terms = dict(ta)
    for x, c in tb:
        terms[x] = terms.get(x, 0) + c
    return from_linear(ka + kb, terms)


def _index_mul(a: UOp, b: UOp) -> UOp:
    ka, ta = linear(a)
    kb, tb = linear(b)
    if ta and tb:
        single_a, single_b = len(ta) == 1 and not ka, len(tb) == 1 and not kb
        if len(ta) > 1 and single_b or single_a and len(tb) > 1:  # distribute over one symbolic factor
            many, (k, ts), one = (a, (ka, ta), b) if len(ta) > 1 else (b, (kb, tb), a)
            out = one * k
            for x, c in ts:
                out = out + _product(x, one) * c
            return out
        return _product(a, b)
    if not tb:
        if kb == 1:
            return a
        return from_linear(ka * kb, tuple((x, c * kb) for x, c in ta))
    return b if ka == 1 else from_linear(ka * kb, tuple((x, c * ka) for x, c in tb))


def _product(a: UOp, b: UOp) -> UOp:
    ca = cb = 1
    if a.op == "MUL" and a.src[1].op == "CONST":
        a, ca = a.src[0], a.src[1].arg[0]
    if b.op == "MUL" and b.src[1].op == "CONST":
        b, cb = b.src[0], b.src[1].arg[0]
    u = node("MUL", (a, b) if a.serial <= b.serial else (b, a))
    return u if ca * cb == 1 else from_linear(0, ((u, ca * cb),))


def _split_multiples(k: int, terms: Terms, c: int) -> tuple[int, dict[UOp, int], int, dict[UOp, int]]:
    """k + terms as c * (whole) + rest, with the rest's constant in [0, c)."""
    whole: dict[UOp, int] = {}
    rest: dict[UOp, int] = {}
    for x, m in terms:
        (whole if m % c == 0 else rest)[x] = m // c if m % c == 0 else m
    return k // c, whole, k % c, rest


def _index_idiv(a: UOp, b: UOp) -> UOp:
    if b.op != "CONST":
        if a is b and min_max(a)[0] > 0:
            return idx(1)
        if _counts_to(a, b) or (min_max(a)[0] >= 0 and min_max(a)[1] < min_max(b)[0]):
            return idx(0)
        return node("IDIV", (a, b))
    c = b.arg[0]
    if c == 0:
        return idx(0)
    if c == 1:
        return a
    k, terms = linear(a)
    if not terms:
        return idx(k // c)
    lo, hi = min_max(a)
    if lo // c == hi // c:
        return idx(lo // c)
    if c < 0:
        return node("IDIV", (a, b))
    kq, whole, kr, rest = _split_multiples(k, terms, c)
    if not rest:
        return from_linear(kq, whole)
    g = gcd(c, *rest.values())
    if g > 1:  # floor((g*A + kr) / (g*c')) == floor((A + kr // g) / c')
        inner = from_linear(kr // g, {x: m // g for x, m in rest.items()})
        q = _index_idiv(inner, idx(c // g))
    else:
        q = _idiv_rest(from_linear(kr, rest), c)
    return q if not whole and kq == 0 else from_linear(kq, whole) + q


def _idiv_rest(r: UOp, c: int) -> UOp:
    lo, hi = min_max(r)
    if lo // c == hi // c:
        return idx(lo // c)
    k, terms = linear(r)
    # drop small terms that never carry: when all the others are multiples of g and the small part stays within [0, g)
    if len(terms) > 1 or k:
        for _, m in sorted(terms, key=lambda t: -abs(t[1])):
            big = {y: n for y, n in terms if n % m == 0} if m > 1 else {}
            small = from_linear(k, {y: n for y, n in terms if y not in big})
            if m > 1 and big and c % m == 0 and min_max(small)[0] >= 0 and min_max(small)[1] < m:
                return _index_idiv(from_linear(0, {y: n // m for y, n in big.items()}), idx(c // m))
    if r.op == "IDIV" and r.src[1].op == "CONST" and r.src[1].arg[0] > 0:  # (x // a) // c == x // (a*c)
        return _index_idiv(r.src[0], idx(r.src[1].arg[0] * c))
    if r.op == "MOD" and r.src[1].op == "CONST" and r.src[1].arg[0] > 0 and r.src[1].arg[0] % c == 0:
        # (x % (c*m)) // c == (x // c) % m
        return _index_mod(_index_idiv(r.src[0], idx(c)), idx(r.src[1].arg[0] // c))
    return node("IDIV", (r, idx(c)))


def _counts_to(a: UOp, b: UOp) -> bool:
    """True for a loop that ends before `b`, whatever that is."""
    return a.op == "RANGE" and a.src[0] is b


def _index_mod(a: UOp, b: UOp) -> UOp:
    if b.op != "CONST":
        if a is b:
            return idx(0)
        if _counts_to(a, b) or (min_max(a)[0] >= 0 and min_max(a)[1] < min_max(b)[0]):
            return a
        return node("MOD", (a, b))
    c = b.arg[0]
    if c in (0, 1):
        return idx(0)
    if c < 0:
        return node("MOD", (a, b))
    lo, hi = min_max(a)
    if lo // c == hi // c:
        return a + -(lo // c) * c
    k, terms = linear(a)
    _, _, kr, rest = _split_multiples(k, terms, c)
    if not rest:
        return idx(kr)
    g = gcd(c, *rest.values())
    if g > 1:  # (g*A + g*kq + ks) mod (g*c') == g * ((A + kq) mod c') + ks
        inner = from_linear(kr // g, {x: m // g for x, m in rest.items()})
        return _index_mod(inner, idx(c // g)) * g + kr % g
    rest = {x: m % c if m > 0 else m for x, m in rest.items()}
    r = from_linear(kr, rest)
    lo, hi = min_max(r)
    if lo // c == hi // c:
        return r + -(lo // c) * c
    split = _mod_carry_free(kr, rest, c)
    if split is not None:
        return split
    if r.op == "MOD" and r.src[1].op == "CONST" and r.src[1].arg[0] % c == 0:
        return _index_mod(r.src[0], b)
    return node("MOD", (r, b))


def _mod_carry_free(k: int, rest: dict[UOp, int], c: int) -> UOp | None:
    """(m*A + small) % c == m * (A % (c/m)) + small, when m divides c and small stays within [0, m)."""
    for m in sorted({n for n in rest.values() if n > 1 and c % n == 0}, reverse=True):
        big = {y: n for y, n in rest.items() if n % m == 0}
        small = from_linear(k, {y: n for y, n in rest.items() if y not in big})
        if min_max(small)[0] >= 0 and min_max(small)[1] < m:
            return _index_mod(from_linear(0, {y: n // m for y, n in big.items()}), idx(c // m)) * m + small
    return None


def _index_less(a: UOp, b: UOp) -> UOp:
    """a < b as `terms < k` with the terms' common divisor taken out; decided when the interval allows.

    Where the sum of the terms may overflow, those without a bound stay on the side on which they have no minus sign.
    """
    k, terms = linear(a + b * -1)
    lo, hi = _sum_range(k, terms)
    if hi < 0:
        return TRUE
    if lo >= 0:
        return FALSE
    g = gcd(*(c for _, c in terms))
    bound = -k
    if g > 1:
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
    """From where to where k + c1*x1 + ... goes over whole numbers, which do not wrap."""
    lo = hi = k
    for x, c in terms:
        a, b = min_max(x)
        lo, hi = lo + min(c * a, c * b), hi + max(c * a, c * b)
    return lo, hi


def is_unbounded(x: UOp) -> bool:
    """Whether a value, as of an index in memory, may be so large that a sum with it overflows."""
    lo, hi = min_max(x)
    return bool(lo < -(2**62) or hi > 2**62)


# ---- one simplifier per op -------------------------------------------------------------------------------------------
def _is(u: UOp, value: Any) -> bool:
    return u.op == "CONST" and u.arg[0].__class__ is not bool and u.arg[0] == value


def _known(*src: UOp) -> bool:
    return all(s.op == "CONST" and s.arg[0] is not INVALID for s in src)


def fold(op: str, src: tuple[UOp, ...], arg: Any = None) -> UOp | None:
    """The CONST an op on CONSTs gives, through the row's meaning; None when it has none."""
    row = ROWS[op]
    if row.meaning is None:
        return None
    d = src[-1].dtype
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


def _commute(op: str, a: UOp, b: UOp) -> UOp:
    """Constants to the right, otherwise the older operand first."""
    if a.op == "CONST" and b.op != "CONST" or (b.op != "CONST" and a.serial > b.serial):
        a, b = b, a
    return node(op, (a, b))


def _keep(op: str, src: tuple[UOp, ...], like: UOp) -> UOp | None:
    """`like` as the result of `op` on `src`, unless broadcasting makes the result larger than it."""
    return like if all(s is like or s.shape == () or s.shape == like.shape for s in src) else None


def _add(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a.dtype.kind == "x" and b.dtype.kind == "x":
        return _index_add(a, b)
    if a.op == b.op == "CONST" and _known(a, b) and a.dtype is b.dtype and (f := fold("ADD", src)) is not None:
        return f
    if not a.dtype.is_float and a.dtype is b.dtype:
        if _is(b, 0) and a.dtype.is_int:
            return a
        if _is(a, 0) and a.dtype.is_int:
            return b
        if b.op == "CONST" and a.op == "ADD" and a.src[1].op == "CONST" and a.dtype.is_int:
            return build("ADD", a.src[0], build("ADD", a.src[1], b))
    return _commute("ADD", a, b)


MARKS = (log2(e), log(2.0), pi / 2)  # of EXP2(x * log2(e)), LOG2(x) * ln(2) and SIN(pi/2 - x)


def is_mark(c: UOp, *marks: float) -> bool:
    """Whether the constant `c` may mark e**x, ln(x) or cos(x), which are computed from x and not as they are written:
    such a constant is neither folded nor made an input, or the function would round differently where x is a number.
    """
    return c.dtype.is_float and any(abs(c.arg[0]) == as_python(m, c.dtype) for m in marks or MARKS)


def _mul(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a.dtype.kind == "x" and b.dtype.kind == "x":
        return _index_mul(a, b)
    if a.op == b.op == "CONST" and _known(a, b) and a.dtype is b.dtype:
        if (is_mark(a, MARKS[0]) or is_mark(b, MARKS[0])) and not (_is(a, 1) or _is(b, 1)):
            return _commute("MUL", a, b)
        if (f := fold("MUL", src)) is not None:
            return f
    if a.dtype is b.dtype:
        if _is(b, 1):
            return a
        if _is(a, 1):
            return b
        if a.dtype.is_int and (_is(b, 0) and a.shape == () or _is(a, 0) and b.shape == ()):
            return const(0, a.dtype)
    return _commute("MUL", a, b)


def _max(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a is b:
        return a
    if _known(a, b) and a.dtype is b.dtype and (f := fold("MAX", src)) is not None:
        return f
    if a.dtype.is_int and a.dtype is b.dtype:
        if min_max(a)[0] >= min_max(b)[1] and _keep("MAX", src, a):
            return a
        if min_max(b)[0] >= min_max(a)[1] and _keep("MAX", src, b):
            return b
    return _commute("MAX", a, b)


def _idiv(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a.dtype.kind == "x" and b.dtype.kind == "x":
        return _index_idiv(a, b)
    if _known(a, b) and a.dtype is b.dtype and (f := fold("IDIV", src)) is not None:
        return f
    return a if _is(b, 1) and a.dtype is b.dtype else node("IDIV", src)


def _mod(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a.dtype.kind == "x" and b.dtype.kind == "x":
        return _index_mod(a, b)
    if _known(a, b) and a.dtype is b.dtype and (f := fold("MOD", src)) is not None:
        return f
    return node("MOD", src)


def _cmplt(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a.dtype.kind == "x" and b.dtype.kind == "x" and a.shape == b.shape == ():
        return _index_less(a, b)
    if _known(a, b) and a.dtype is b.dtype and (f := fold("CMPLT", src)) is not None:
        return f
    if a.dtype.is_int and a.shape == b.shape == () and "CAST" in (a.op, b.op):
        i, j = _as_index(a), _as_index(b)
        if i is not None and j is not None:
            return _index_less(i, j)
    return node("CMPLT", src)


def _as_index(u: UOp) -> UOp | None:
    """The index whose value the integer `u` has."""
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
        if lo == hi:
            return TRUE if lo else FALSE
    if a.dtype is dtypes.bool and b.dtype is dtypes.bool and b.op == "CONST":
        if b.arg[0] is False:
            return a
        if a.op == "CMPNE" and a.src[1] is TRUE:  # not not x
            return a.src[0]
        if a.op == "CMPLT" and a.src[0].dtype.kind == "x" and a.shape == ():
            return negate(a)
    return _commute("CMPNE", a, b)


def conjuncts(u: UOp) -> list[UOp]:
    """The conditions an AND chain is made of."""
    out, stack = [], [u]
    while stack:
        v = stack.pop()
        if v.op == "AND" and v.dtype is dtypes.bool:
            stack.extend(reversed(v.src))
        else:
            out.append(v)
    return out


def _and(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a is b:
        return a
    if a.dtype is not dtypes.bool or b.dtype is not dtypes.bool:
        return (fold("AND", src) if _known(a, b) and a.dtype is b.dtype else None) or _commute("AND", a, b)
    for x, y in ((a, b), (b, a)):
        if x is TRUE:
            return y
        if x is FALSE and y.shape == ():
            return x
    if a.shape != b.shape or a.shape != ():
        return _commute("AND", a, b)
    parts = sorted(set(conjuncts(a)) | set(conjuncts(b)), key=lambda u: u.serial)
    acc = parts[0]
    for p in parts[1:]:
        acc = node("AND", (acc, p))
    return acc


def _or(src: tuple[UOp, ...], arg: Any) -> UOp:
    a, b = src
    if a is b:
        return a
    if a.dtype is dtypes.bool and b.dtype is dtypes.bool:
        for x, y in ((a, b), (b, a)):
            if x is FALSE:
                return y
            if x is TRUE and y.shape == ():
                return x
    elif _known(a, b) and a.dtype is b.dtype and (f := fold("OR", src)) is not None:
        return f
    return _commute("OR", a, b)


def _where(src: tuple[UOp, ...], arg: Any) -> UOp:
    c, a, b = src
    if a is b and (c.shape == () or c.shape == a.shape):
        return a
    if c.op == "CONST" and c.dtype is dtypes.bool:
        pick, drop = (a, b) if c.arg[0] else (b, a)
        if pick.dtype is drop.dtype and (drop.shape == () or drop.shape == pick.shape):
            return pick
    # what an equal condition never picks is gone, unless it is what the shape of the whole comes from
    if a.op == "WHERE" and a.src[0] is c and a.shape in (a.src[1].shape, b.shape, c.shape):
        a = a.src[1]
    if b.op == "WHERE" and b.src[0] is c and b.shape in (b.src[2].shape, a.shape, c.shape):
        b = b.src[2]
    if a is b and (c.shape == () or c.shape == a.shape):
        return a
    if a.dtype is dtypes.bool and a is TRUE and b is FALSE:
        return c
    return node("WHERE", (c, a, b))


def _cast(src: tuple[UOp, ...], arg: Any) -> UOp:
    (x,) = src
    if x.dtype is arg:
        return x
    if x.op == "CONST" and x.arg[0] is not INVALID:
        return const(as_python(x.arg[0], dtypes.int64) if arg.kind == "x" else x.arg[0], arg)  # an index of 64 bits
    if x.op == "CAST" and arg.kind == "x" and x.src[0].dtype.kind == "x":
        lo, hi = min_max(x.src[0])  # index -> int32 -> index is lossless within the bounds
        if x.dtype.is_int and x.dtype.min <= lo and hi <= x.dtype.max:
            return x.src[0]
    if x.op == "CAST" and x.src[0].dtype is dtypes.bool:  # every number type holds 0 and 1
        return _cast(x.src, arg)
    if x.op == "WHERE" and _known(*x.src[1:]):
        return _where((x.src[0], _cast(x.src[1:2], arg), _cast(x.src[2:], arg)), None)
    return node("CAST", src, arg)


def _bitcast(src: tuple[UOp, ...], arg: Any) -> UOp:
    """A bool is a byte that is 0 or 1 in memory and a single bit in a register: it goes through uint8."""
    (x,) = src
    if x.dtype is arg:
        return x
    if x.dtype is dtypes.bool:
        return _bitcast((_cast(src, dtypes.uint8),), arg)
    if arg is dtypes.bool:
        return build("CMPNE", _bitcast(src, dtypes.uint8), const(0, dtypes.uint8))
    return node("BITCAST", src, arg)


def _unary(op: str) -> Any:
    def simplify(src: tuple[UOp, ...], arg: Any) -> UOp:
        if _known(*src) and (f := fold(op, src, arg)) is not None:
            return f
        return node(op, src, arg)

    return simplify


# ---- movement ops: trivial ones vanish, chains of one kind merge -----------------------------------------------------
def _reshape(src: tuple[UOp, ...], arg: Any) -> UOp:
    x, s = src
    if x.shape == s.sizes:
        return x
    if x.op == "RESHAPE":
        return _reshape((x.src[0], s), None)
    return node("RESHAPE", src)


def _expand(src: tuple[UOp, ...], arg: Any) -> UOp:
    if src[0].shape == src[1].sizes:
        return src[0]
    if src[0].op == "EXPAND":
        ROWS["EXPAND"].shape(src, arg)  # an axis that is repeated already has its size
        return _expand((src[0].src[0], src[1]), None)
    return node("EXPAND", src)


def _permute(src: tuple[UOp, ...], arg: Any) -> UOp:
    x = src[0]
    if arg == tuple(range(len(arg))):
        return x
    if x.op == "PERMUTE" and len(arg) == len(x.arg):
        return _permute((x.src[0],), tuple(x.arg[i] for i in arg))
    return node("PERMUTE", src, arg)


def _flip(src: tuple[UOp, ...], arg: Any) -> UOp:
    return node("FLIP", src, arg) if any(arg) else src[0]


def _shrink(src: tuple[UOp, ...], arg: Any) -> UOp:
    x, off, new = src
    if x.shape == new.sizes and all(o.__class__ is int and o == 0 for o in off.sizes):
        return x
    if x.op == "SHRINK" and len(off.sizes) == len(x.shape):
        both = tuple(
            a + b if a.__class__ is int and b.__class__ is int else idx(a) + b
            for a, b in zip(x.src[1].sizes, off.sizes, strict=True)
        )
        return node("SHRINK", (x.src[0], shape_source(both), new))
    return node("SHRINK", src)


def _pad(src: tuple[UOp, ...], arg: Any) -> UOp:
    x, off, new = src
    if x.shape == new.sizes and all(o.__class__ is int and o == 0 for o in off.sizes):
        return x
    return node("PAD", src)


def _load(src: tuple[UOp, ...], arg: Any) -> UOp:
    src = _gated(src)
    if len(src) == 3 and src[2] is FALSE and src[1].shape == src[0].shape:
        return src[1]
    return node("LOAD", src[:-2] if len(src) == 3 and src[2] is TRUE else src, arg)


def _store(src: tuple[UOp, ...], arg: Any) -> UOp:
    src = _gated(src)
    return node("STORE", src[:-1] if len(src) == 3 and src[2] is TRUE else src, arg)


def _after(src: tuple[UOp, ...], arg: Any) -> UOp:
    """Without effects on parts that have no element: of a loop that never runs, no element would be left to index."""
    effects = tuple([e for e in src[1:] if not _is_nothing(e, src[0])])
    return node("AFTER", (src[0], *effects), arg) if effects or len(src) == 1 else src[0]


def _is_nothing(effect: UOp, base: UOp) -> bool:
    return effect.op in ("STORE", "ATOMICADD") and effect.src[0] is not base and 0 in effect.src[0].shape


def _end(src: tuple[UOp, ...], arg: Any) -> UOp:
    """The loops `src[1:]` around effects that name each of them, so that no pass moves an effect out of one."""
    loops = tuple([r for r in src[1:] if r.op == "RANGE" and r.arg[1] == "LOOP"])
    return node("END", (_repeated(src[0], loops), *src[1:]), arg)


def _repeated(effect: UOp, loops: tuple[UOp, ...]) -> UOp:
    """`effect`, dependent on `loops`.

    A value that is the same in all iterations of a loop may be computed before it. An effect may not: an addition
    happens in each iteration, and a store in none of a loop that never runs.
    """
    if effect.op in ("GROUP", "END"):
        inner = effect.src if effect.op == "GROUP" else effect.src[:1]
        src = (*[_repeated(e, loops) for e in inner], *effect.src[len(inner) :])
        return node(effect.op, src, effect.arg, effect.tag)
    if effect.op not in ("STORE", "ATOMICADD") or memory_of(effect.src[0]).op != "PARAM":
        return effect
    return told_apart(effect, tuple([r for r in loops if r not in ranges(effect)]))


def told_apart(effect: UOp, by: tuple[UOp, ...]) -> UOp:
    """`effect` on the same memory AFTER the values `by`: a node of its own for each of them."""
    place = effect.src[0]
    if not by or place.op != "INDEX":
        return effect
    memory = node("AFTER", (place.src[0], *by))
    target = node("INDEX", (memory, *place.src[1:]), place.arg)
    return node(effect.op, (target, *effect.src[1:]), effect.arg, effect.tag)


def _gated(src: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """The sources of an access without the conditions of a shaped gate that hold in all lanes."""
    if len(src) < 3 or src[2].shape == ():
        return src
    gate = TRUE
    for c in conjuncts(src[2]):
        if not (c.shape in ((), src[0].shape) and min_max(c)[0]):
            gate = _and((gate, c), None)
    return (*src[:2], gate)


def _reduce(src: tuple[UOp, ...], arg: Any) -> UOp:
    op, axes = arg
    if len(src) == 1:
        axes = tuple(sorted(a for a in set(axes) if src[0].shape[a] != 1)) if _in_rank(src[0], axes) else axes
        if not axes:
            return src[0]
    elif src[0].shape == () and any(r.op == "RANGE" and r.src[0] is idx(0) for r in src[1:]):
        d = src[0].dtype  # a loop that never runs has no element to read
        return const({"ADD": 0, "MUL": 1, "MAX": d.min}[op], d)
    return node("REDUCE", src, (op, axes))


def _in_rank(x: UOp, axes: tuple) -> bool:
    return all(0 <= a < len(x.shape) for a in axes)


def _detach(src: tuple[UOp, ...], arg: Any) -> UOp:
    return src[0] if src[0].op == "DETACH" and src[0].tag is None else node("DETACH", src)


def _contiguous(src: tuple[UOp, ...], arg: Any) -> UOp:
    return src[0] if src[0].op in ("CONTIGUOUS", "BUFFER") else node("CONTIGUOUS", src)


SIMPLIFIERS.update(
    {
        "ADD": _add, "MUL": _mul, "MAX": _max, "IDIV": _idiv, "MOD": _mod, "CMPLT": _cmplt, "CMPNE": _cmpne,
        "AND": _and, "OR": _or, "WHERE": _where, "CAST": _cast, "BITCAST": _bitcast, "RESHAPE": _reshape,
        "EXPAND": _expand, "PERMUTE": _permute, "FLIP": _flip, "SHRINK": _shrink, "PAD": _pad, "LOAD": _load,
        "STORE": _store, "AFTER": _after, "END": _end,
        "REDUCE": _reduce, "DETACH": _detach, "CONTIGUOUS": _contiguous,
    }
    # without EXP2, LOG2 and SIN: no target has NumPy's bits, which an unrolled step would then have in one kernel alone
    | {op: _unary(op) for op in ("RECIP", "TRUNC", "XOR", "SHR", "SHL", "SQRT")}
)  # fmt: skip


# ---- shorthands used by every layer above ----------------------------------------------------------------------------
def less(a: Any, b: Any) -> UOp:
    """a < b on index values."""
    return build("CMPLT", idx(a), idx(b))


def smaller(a: Any, b: Any) -> UOp:
    """The smaller of two index values, of which there is no op."""
    return build("MAX", idx(a) * -1, idx(b) * -1) * -1


def within(x: UOp, lo: Any, hi: Any) -> UOp:
    """lo <= x < hi on index values."""
    return build("AND", negate(less(x, lo)), less(x, hi))


def negate(u: UOp) -> UOp:
    """Logical not of a bool; not (a < b) on an index becomes b - 1 < a, where that cannot overflow."""
    if u is TRUE:
        return FALSE
    if u is FALSE:
        return TRUE
    if u.op != "CMPLT" or u.src[0].dtype.kind != "x":
        return build("CMPNE", u, TRUE)
    if is_unbounded(u.src[0]) and is_unbounded(u.src[1]):
        return node("CMPNE", (u, TRUE))
    return build("CMPLT", u.src[1] + -1, u.src[0])


def everywhere(u: UOp) -> UOp:
    """What `u` is in every element, where its shape only repeats one."""
    while u.op in ("EXPAND", "RESHAPE"):
        u = u.src[0]
    return u


def is_zero(u: UOp) -> bool:
    """True for the constant 0, in any shape."""
    u = everywhere(u)
    return u.op == "CONST" and bool(u.value == 0)


def count(shape: tuple) -> Any:
    """The number of elements of `shape`: an int, or an index UOp when a size is symbolic."""
    if all(s.__class__ is int for s in shape):
        return prod(shape)
    acc = idx(1)
    for s in shape:
        acc = acc * s
    return acc.arg[0] if acc.op == "CONST" else acc
