"""The node: an immutable, interned UOp `(op, src, arg, tag)`, and how to build and walk graphs of them.

Equal means identical: `node` returns the one live UOp with those four fields, after the op's row has checked them and
derived dtype and shape. `build` does the same through the simplifier of the op (`ir.rewrite.normal` fills SIMPLIFIERS),
so local identities never reach the graph. This file holds no algebra, no devices, no I/O.

Invariant: nodes are never mutated; the underscore slots are caches of derived properties. `origin`, `storage`, `holder`
and `recomputed` are side tables that no property depends on.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from itertools import count
from types import MethodType
from typing import Any

from monolect.base.compiled import mypyc_attr
from monolect.base.dtype import DType, as_python, dtypes
from monolect.base.errors import IRError, ShapeError
from monolect.ir.ops import INVALID, ROWS, BufferArg

next_serial = count().__next__
_new_tuple = tuple.__new__
MANY = 1 << 62
_slots = count(1 << 32)  # far above the numbers the runtime gives to its own storage


class UOp:
    """One node. Compare with `is`; `dtype` and `shape` are derived at construction, other properties on demand."""

    __slots__ = (
        "__weakref__",
        "_linear",
        "_min_max",
        "_place",
        "_ranges",
        "_sizes",
        "arg",
        "dtype",
        "holder",
        "op",
        "origin",
        "recomputed",
        "serial",
        "shape",
        "src",
        "storage",
        "tag",
    )
    op: str
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    dtype: DType
    shape: tuple
    serial: int  # order of construction, only to order commutative operands
    origin: Any  # (file, line, tensor method) of the user's call that made it
    storage: Any  # the runtime's memory behind a BUFFER
    holder: Any  # a weak reference to the Tensor that last stood for it, or None
    recomputed: Any  # was it computed without memory while it had a holder? of a BUFFER: is it state of a loop?
    # Derived properties, None until they are asked for.
    _min_max: Any  # (lower, upper): ir.bounds
    _ranges: Any  # frozenset of the open RANGEs: ir.bounds
    _place: Any  # (device, addrspace, axis): ir.place
    _linear: Any  # (constant, ((term, factor), ...)): ir.normal
    _sizes: Any  # `sizes`

    @property
    def value(self) -> Any:
        """The Python value of a CONST."""
        return self.arg[0]

    @property
    def sizes(self) -> tuple:
        """A shape source as a tuple: Python ints where constant, index UOps where symbolic."""
        if self._sizes is None:
            if self.op != "STACK":
                raise IRError("not a shape", expected="a STACK of index scalars", found=self.op)
            self._sizes = tuple(s.arg[0] if s.op == "CONST" else s for s in self.src)
        return self._sizes

    def __repr__(self) -> str:
        return f"<{self.op} {self.dtype.short}{list(self.shape)} {'' if self.arg is None else self.arg}>"

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> UOp:
        return self

    def __reduce__(self) -> tuple:
        raise IRError(
            "a node is not pickled: equal ones are one", expected="its text (monolect.ir.text)", found=repr(self)
        )

    # arithmetic, for building index expressions and kernels by hand
    def __add__(self, o: Any) -> UOp:
        return build("ADD", self, lift(o, self))

    def __radd__(self, o: Any) -> UOp:
        return build("ADD", lift(o, self), self)

    def __mul__(self, o: Any) -> UOp:
        return build("MUL", self, lift(o, self))

    def __rmul__(self, o: Any) -> UOp:
        return build("MUL", lift(o, self), self)

    def __neg__(self) -> UOp:
        return build("MUL", self, lift(-1, self))

    def __sub__(self, o: Any) -> UOp:
        return self + -lift(o, self)

    def __rsub__(self, o: Any) -> UOp:
        return lift(o, self) + -self

    def __floordiv__(self, o: Any) -> UOp:
        return build("IDIV", self, lift(o, self))

    def __mod__(self, o: Any) -> UOp:
        return build("MOD", self, lift(o, self))

    def __lt__(self, o: Any) -> UOp:
        return build("CMPLT", self, lift(o, self))

    def __bool__(self) -> bool:
        """Of a comparison of sizes whether it holds, if that is known (`max(n, 1)` asks); other nodes are objects."""
        if self.op == "CONST" and self.dtype is dtypes.bool:
            return bool(self.arg[0])
        if self.op not in ("CMPLT", "CMPNE") or self.src[0].dtype is not dtypes.index:
            return True
        if any(u.op not in _OF_SIZES for u in toposort(self)):
            return True
        expected = "a number, or what is true of every value"
        raise ShapeError("a comparison of symbolic sizes is no condition", expected=expected, found=repr(self.src))

    def __ge__(self, o: Any) -> UOp:
        return build("CMPNE", self < o, const(True, dtypes.bool))

    def __gt__(self, o: Any) -> UOp:
        return build("CMPLT", lift(o, self), self)

    def __le__(self, o: Any) -> UOp:
        return build("CMPNE", self > o, const(True, dtypes.bool))

    def __and__(self, o: Any) -> UOp:
        return build("AND", self, lift(o, self))


_OF_SIZES = frozenset(("PARAM", "CONST", "ADD", "MUL", "MAX", "IDIV", "MOD", "CMPLT", "CMPNE"))  # and numbers

# A node that goes takes its entry along. The callback is `_forget(key, ref)`, a function in C: an interrupt is not
# raised in it, where Python would drop it. It would take the entry of an equal node that was made since, so a node that
# meets the entry of one whose callback is still to come (others of a cycle run theirs before) gets no entry: it stays.
_table: dict[tuple, weakref.ref[UOp]] = {}
_forget = _table.pop
_staying: dict[tuple, UOp] = {}
SIMPLIFIERS: dict[str, Callable[[tuple[UOp, ...], Any], UOp]] = {}


# The constructor is the compiler's inner loop: what it needs of a row, as a plain tuple.
_rules = {r.name: (r.lo, MANY if r.hi is None else r.hi, r.dtype, r.shape) for r in ROWS.values()}


def node(op: str, src: tuple[UOp, ...] = (), arg: Any = None, tag: Any = None) -> UOp:
    """The UOp with exactly these fields. Raises IRError when the op's row refuses them."""
    key = (op, src, arg, tag)
    ref = _table.get(key)
    if ref is not None and (u := ref()) is not None:
        return u
    if _staying and (kept := _staying.get(key)) is not None:
        return kept
    try:
        lo, hi, dtype, shape = _rules[op]
        if not lo <= len(src) <= hi:
            raise IRError("wrong number of sources", expected=f"{lo}..{'' if hi is MANY else hi}", found=len(src))
        u = UOp()
        u.dtype = dtype(src, arg)
        u.shape = shape(src, arg)
    except KeyError:
        raise IRError("unknown op", expected="an op of the table (monolect ops)", found=repr(op), op=str(op)) from None
    except IRError as e:
        raise IRError(f"{op}: {e.message}", expected=e.expected, found=e.found, op=op) from None
    u.op = op
    u.src = src
    u.arg = arg
    u.tag = tag
    u._min_max = u._ranges = u._place = u._linear = u._sizes = u.origin = u.storage = u.holder = u.recomputed = None
    u.serial = next_serial()
    ref = weakref.ref(u, MethodType(_forget, key))  # a method is smaller than a partial
    if (first := _table.setdefault(key, ref)) is not ref:
        del ref  # before its node goes, or it would take the other's entry along
        if (other := first()) is not None:  # another thread made the same node since
            return other
        return _staying.setdefault(key, u)
    return u


def build(op: str, *src: UOp, arg: Any = None) -> UOp:
    """The UOp for `op` in normal form: local identities are applied, index arithmetic is canonical."""
    f = SIMPLIFIERS.get(op)
    return node(op, src, arg) if f is None else f(src, arg)


def live_nodes() -> int:
    """How many UOps are alive."""
    return len(_table)


@mypyc_attr(native_class=False)
class _NegativeZero(float):
    """-0.0 as a CONST value: interning must not confuse it with 0.0, to which it compares equal."""

    def __eq__(self, o: object) -> bool:
        return self is o

    def __hash__(self) -> int:
        return id(self)


# Any, because their identity counts: compiled code may copy a float.
NEGATIVE_ZERO: Any = _NegativeZero(-0.0)
NAN: Any = float("nan")


def const(value: Any, dtype: DType) -> UOp:
    """A scalar CONST of `dtype`; the value is wrapped or rounded to it."""
    if value is not INVALID:
        value = as_python(value, dtype)
        if value.__class__ is float:
            if value != value:
                value = NAN
            elif value == 0.0 and str(value)[0] == "-":
                value = NEGATIVE_ZERO
    return node("CONST", (), (value, dtype))


def idx(value: Any) -> UOp:
    """A size or index: an int becomes an index CONST, an index UOp stays."""
    return value if value.__class__ is UOp else node("CONST", (), (int(value), dtypes.index))


def lift(value: Any, like: UOp) -> UOp:
    """`value` as an operand beside `like`: a UOp stays, a Variable is its node, a number a CONST of that dtype."""
    if value.__class__ is UOp:
        return value
    if value.__class__ is not int and hasattr(value, "symbol"):
        node_: UOp = value.uop
        return node_
    return const(value, like.dtype)


_shapes: dict[tuple, UOp] = {}


def shape_source(sizes: Iterable[Any]) -> UOp:
    """The STACK that carries a shape in `src`."""
    sizes = tuple(sizes)
    u = _shapes.get(sizes)
    if u is None:
        u = node("STACK", tuple(idx(s) for s in sizes))
        if all(s.__class__ is int for s in sizes) and len(_shapes) < 65536:
            _shapes[sizes] = u
    return u


def new_buffer(shape: Iterable[Any], dtype: DType, device: Any) -> UOp:
    """A BUFFER of its own: its slot is new in this process, so no other expression is the same node."""
    return node("BUFFER", (shape_source(shape),), BufferArg(next(_slots), dtype, device))


def new_buffer_like(template: UOp) -> UOp:
    """`new_buffer` with the shape, dtype and device of a BUFFER; replay makes them at each call, so no checks.

    Nobody else can ask for a node with its slot, so the table of nodes need not know it.
    """
    u = UOp()
    u.op, u.src, u.tag, u.dtype, u.shape = "BUFFER", template.src, None, template.dtype, template.shape
    _, dtype, device, space = template.arg
    u.arg = _new_tuple(BufferArg, (next(_slots), dtype, device, space))
    u._min_max = u._ranges = u._place = u._linear = u._sizes = u.origin = u.storage = u.holder = u.recomputed = None
    u.serial = next_serial()
    return u


def toposort(*roots: UOp, stop: Callable[[UOp], bool] | None = None) -> list[UOp]:
    """Every node below `roots`, sources first, each once. Nodes for which `stop` holds are listed, not entered."""
    out: list[UOp] = []
    seen: set[UOp] = set()
    stack: list[Any] = list(reversed(roots))
    while stack:
        u = stack.pop()
        if u.__class__ is tuple:
            out.append(u[0])
        elif u not in seen:
            seen.add(u)
            src = u.src
            if not src or (stop is not None and stop(u)):
                out.append(u)
            else:
                stack.append((u,))
                for s in reversed(src):
                    if s not in seen:
                        stack.append(s)
    return out


def substitute(root: UOp, mapping: dict[UOp, UOp]) -> UOp:
    """`root` with every key of `mapping` replaced by its value; what changes is rebuilt in normal form."""
    return substitute_all((root,), mapping)[0]


def substitute_all(roots: tuple[UOp, ...], mapping: dict[UOp, UOp]) -> tuple[UOp, ...]:
    """`substitute` for several roots at once, sharing the work."""
    new: dict[UOp, UOp] = dict(mapping)
    for u in toposort(*roots, stop=new.__contains__):
        if u not in new:
            new[u] = rebuild(u, tuple(new[s] for s in u.src))
    return tuple(new[r] for r in roots)


def rebuild(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """`u` with other sources, in normal form; `u` itself when they are the same."""
    if src == u.src:
        return u
    out = build(u.op, *src, arg=u.arg) if u.tag is None else node(u.op, src, u.arg, u.tag)
    if out.origin is None:
        out.origin = u.origin
    return out
