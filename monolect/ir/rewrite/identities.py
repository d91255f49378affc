"""List the identities that simplify nodes while they are built, such as x * 1 = x, and switch them on and off.

What it is for: the code of the identities (`ir.rewrite.index`, `ir.rewrite.normal`) names a row of this list wherever
it applies one: `allowed is None or allowed("mul_one")`. `allowed` is a variable of these modules. It is None unless a
setting switches identities off (SIMPLIFY, DISABLE) or a listener records them (TRACE=rules, a test). The code of the
identities is not here.

Invariant: the code names each row, and no other name (tests/rules/test_named.py). The result of an identity has the
dtype of the requested node, and its value wherever that is defined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monolect.base.settings import settings, watchers
from monolect.ir.rewrite.named_rules import Family, Row, fired, listener
from monolect.ir.uop import SIMPLIFIERS, UOp, node

_SIZES = "sizes of shapes and loops are numbers"  # reason why a row cannot be switched off

IDENTITIES = Family(
    "identities", "monolect.ir.rewrite.index monolect.ir.rewrite.normal",
    # index arithmetic
    Row("index_numbers", "an op on index numbers is a number", _SIZES),
    Row("index_sum", "a + b, of index values, is one sum c1*x1 + c2*x2 + ... + k, equal terms once and in a fixed order"),
    Row("index_recombine", "x // n * n + x % n is x"),
    Row("index_scale", "(c1*x1 + ... + k) * c is c1*c*x1 + ... + k*c"),
    Row("index_distribute", "(x + y + k) * z is x*z + y*z + k*z"),
    Row("index_product", "(a*x) * (b*y) is a*b * (x*y), x being the older of both"),
    Row("index_div_self", "x // x is 1 for x > 0"),
    Row("index_div_below", "x // y is 0 for 0 <= x < y, y being no number"),
    Row("index_div_zero", "x // 0 is 0"),
    Row("index_div_one", "x // 1 is x"),
    Row("index_div_bounds", "x // c is q where all values of x have that quotient"),
    Row("index_div_multiples", "(c*x + y + k) // c is x + (y + k % c) // c + k // c"),
    Row("index_div_common", "(g*x + k) // (g*c) is (x + k // g) // c"),
    Row("index_div_small", "(m*x + y) // (m*c) is x // c for 0 <= y < m"),
    Row("index_div_div", "x // a // c is x // (a*c)"),
    Row("index_div_mod", "x % (c*m) // c is x // c % m"),
    Row("index_mod_self", "x % x is 0"),
    Row("index_mod_below", "x % y is x for 0 <= x < y, y being no number"),
    Row("index_mod_one", "x % 1 and x % 0 are 0"),
    Row("index_mod_bounds", "x % c is x - q*c where all values of x have the quotient q"),
    Row("index_mod_multiples", "(c*x + m*y + k) % c is (m % c * y + k % c) % c"),
    Row("index_mod_common", "(g*x + k) % (g*c) is (x + k // g) % c * g + k % g"),
    Row("index_mod_small", "(m*x + y) % (m*c) is x % c * m + y for 0 <= y < m"),
    Row("index_mod_mod", "x % (c*m) % c is x % c"),
    Row("index_less_bounds", "a < b is known where the interval of a - b says it"),
    Row("index_less_sum", "a < b is c1*x1 + ... < k"),
    Row("index_less_common", "g*x < k is x < k / g, rounded up"),
    Row("index_not_less", "not a < b is b - 1 < a"),
    Row("less_of_casts", "int(a) < int(b) is a < b, of index values that the integer type holds"),
    # arithmetic on elements
    Row("numbers", "an op on constants is a constant, except exp2, log2 and sin"),
    Row("commute", "a constant is the right operand, otherwise the older node is the left one"),
    Row("add_zero", "x + 0 is x, of integers"),
    Row("add_numbers", "(x + a) + b is x + (a + b), of integers"),
    Row("mul_one", "x * 1 is x"),
    Row("mul_zero", "x * 0 is 0, of integers"),
    Row("max_self", "max(x, x) is x"),
    Row("max_bounds", "max(x, y) is x where the intervals say so, of integers"),
    Row("div_one", "x // 1 is x"),
    Row("differ_bounds", "a != b is known where the intervals say it, of integers"),
    Row("differ_false", "p != False is p"),
    Row("not_not", "not not p is p"),
    Row("and_self", "x & x is x"),
    Row("and_true", "p & True is p, p & False is False"),
    Row("and_set", "the conditions of an & are each there once, in a fixed order"),
    Row("or_self", "x | x is x"),
    Row("or_false", "p | False is p, p | True is True"),
    Row("where_same", "(x if p else x) is x"),
    Row("where_known", "(x if True else y) is x, (x if False else y) is y"),
    Row("where_left", "((x if p else y) if p else z) is (x if p else z)"),
    Row("where_right", "(x if p else (y if p else z)) is (x if p else z)"),
    Row("where_bools", "(True if p else False) is p"),
    Row("cast_same", "a cast to the dtype that a value has is the value"),
    Row("cast_number", "a cast of a constant is a constant", _SIZES),
    Row("cast_index_back", "index(int(x)) is x, where the integer type holds all of its values"),
    Row("cast_of_bools", "a cast of a cast of a bool is one cast"),
    Row("cast_of_where", "a cast of (a if p else b), of constants, is a choice of constants"),
    Row("bits_same", "the bits of a value as its own dtype are the value"),
    Row("bits_of_bool", "the bits of a bool are those of a byte that is 0 or 1", "a register holds a bool as one bit"),
    # views
    Row("reshape_same", "a reshape to the shape that a value has is the value"),
    Row("reshape_reshape", "a reshape of a reshape is one"),
    Row("expand_same", "an expand to the shape that a value has is the value"),
    Row("expand_expand", "an expand of an expand is one"),
    Row("permute_same", "a permute that keeps the order is the value"),
    Row("permute_permute", "a permute of a permute is one"),
    Row("flip_none", "a flip of no axis is the value"),
    Row("shrink_whole", "a shrink to all of a value is the value"),
    Row("shrink_shrink", "a shrink of a shrink is one"),
    Row("pad_nothing", "a pad by nothing is the value"),
    # memory, order, sums
    Row("load_never", "a load whose gate is False is its alternative"),
    Row("gate_true", "a load or store whose gate is True has none"),
    Row("gate_lanes", "the conditions of a shaped gate that hold in all lanes are gone"),
    Row("after_nothing", "what comes after effects on no element comes after nothing", "no loop is left to index it"),
    Row("end_in_loops", "an effect in a loop that it does not depend on is made to depend on it", "it happens in each iteration"),
    Row("reduce_ones", "a reduction along axes of size 1 is the value; axes are in order, each once"),
    Row("reduce_nothing", "a reduction over a loop of no iteration is its neutral value"),
    Row("detach_detach", "a detach of a detach is one"),
    Row("contiguous_stored", "what is contiguous, or a buffer, is contiguous"),
)  # fmt: skip

# Identities that only bring a node into canonical form; they are reported only if no other identity applied to it.
FORMS = frozenset(("index_sum", "index_less_sum", "commute", "and_set"))
JOINED = " + "  # separator of the names of identities that were applied to one node

_setters: list[Callable[[Any], None]] = []  # functions that set `allowed` in the modules that apply identities
_frames: list[list[str]] = []  # stack of the nodes under construction: names of the identities applied to each
_plain: dict[str, Callable[[tuple[UOp, ...], Any], UOp]] = {}  # the plain simplifiers, while recording ones are in use
_off: set[str] = set()  # names of the identities that are switched off


def connect(setter: Callable[[Any], None]) -> None:
    """Register `setter`, a function that sets the variable `allowed` of a module that applies identities.

    `setter` is called now and after each change of the settings: with None if all identities apply and nothing listens,
    else with `_may`, a predicate of an identity's name.
    """
    _setters.append(setter)
    _follow()


def _may(name: str) -> bool:
    """Whether the identity `name`, whose conditions hold, is to be applied; if so, record the name for the listener."""
    if name in _off:
        return False
    if _frames:
        _frames[-1].append(name)
    return True


def _recording(op: str, simplify: Callable[[tuple[UOp, ...], Any], UOp]) -> Callable[[tuple[UOp, ...], Any], UOp]:
    """Return `simplify`, the simplifier of `op`, wrapped so that each call reports the applied identities to the
    listener.
    """

    def simplify_and_tell(src: tuple[UOp, ...], arg: Any) -> UOp:
        names: list[str] = []
        _frames.append(names)
        try:
            out = simplify(src, arg)
        finally:
            _frames.pop()
        if names and out is not (before := node(op, src, arg)):
            done = dict.fromkeys(n for n in names if n not in FORMS) or dict.fromkeys(names)
            fired(JOINED.join(done), before, out)
        return out

    return simplify_and_tell


def _follow() -> None:
    """Update `allowed` and the simplifiers after the settings or the listener changed."""
    listens = listener.callback is not None
    rows = IDENTITIES.rows
    _off.clear()
    if not settings.SIMPLIFY:
        _off.update(name for name, row in rows.items() if not row.needed)
    _off.update(settings.disabled & rows.keys())
    for setter in _setters:
        setter(_may if _off or listens else None)
    if listens and not _plain:
        _plain.update(SIMPLIFIERS)
        SIMPLIFIERS.update({op: _recording(op, f) for op, f in _plain.items()})
    elif _plain and not listens:
        SIMPLIFIERS.update(_plain)
        _plain.clear()


watchers.append(_follow)


__all__ = ["FORMS", "IDENTITIES", "JOINED", "connect"]
