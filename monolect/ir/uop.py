"""Define the node of the graph, an immutable and interned UOp `(op, src, arg, tag)`, and functions that build and walk
graphs.

`src` is the tuple of sources, the nodes that a node depends on. Equal nodes are identical: `node` returns the only live
UOp with these four fields. It checks them by the op's row in the op table, which also gives dtype and shape. `build`
first applies the simplifier of the op (`ir.rewrite.normal` fills SIMPLIFIERS), so local identities are applied during
construction. This file has no algebra, no devices and no I/O.

Invariant: the four fields never change. Slots of the Python class with an underscore cache derived properties. `origin`
(the line of the user's program), `storage`, `holder` and `recomputed` may change; no derived property depends on them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import count
from types import MethodType
from typing import Any

from monolect.base.compiled import mypyc_attr
from monolect.base.dtype import DType, as_python, dtypes
from monolect.base.errors import IRError, ShapeError
from monolect.ir.layout import Layout
from monolect.ir.ops import INVALID, ROWS, BufferArg

next_serial = count().__next__
_new_tuple = tuple.__new__
MANY = 1 << 62
_slots = count(1 << 32)  # slots of tensors' BUFFERs; far above the slots that the runtime gives to its own storage


class UOp:
    """A node of the graph: op name, sources `src` (the nodes that it depends on), argument `arg` and `tag`, which never
    change.

    Compare nodes with `is`, because equal nodes are the same object. `dtype` and `shape` are derived at construction,
    other properties at first use. A UOp also means the whole graph of the nodes below it (its sources, their sources,
    and so on).
    """

    __slots__ = (
        "__weakref__",
        "_linear",
        "_min_max",
        "_placement",
        "_ranges",
        "_sizes",
        "arg",
        "dtype",
        "height",
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
    height: int  # number of edges on the longest path to a node without sources
    serial: int  # order of construction: sources have smaller numbers
    origin: Any  # (file, line, tensor method) of the user's call that made the node
    storage: Any  # the runtime's memory of a BUFFER
    holder: Any  # weak reference to the Tensor whose value the node last was, or None
    recomputed: Any  # True: a held value was computed but not stored; for a BUFFER: it holds loop-carried state
    # Derived properties, None until first used.
    _min_max: Any  # (lower, upper): ir.bounds
    _ranges: Any  # frozenset of the open RANGEs: ir.bounds
    _placement: Any  # (device, addrspace, axis): ir.placement
    _linear: Any  # (constant, ((term, factor), ...)): ir.rewrite.index
    _sizes: Any  # cache of `sizes`

    @property
    def value(self) -> Any:
        """Python value of this CONST node.
        A number, or INVALID for an invalid constant.
        """
        return self.arg[0]

    @property
    def sizes(self) -> tuple:
        """Sizes of the shape that this node, a STACK of index scalars, represents, as a tuple: an int for a constant
        size, else an index UOp. Raises IRError for another node.
        """
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

    # operators for index expressions and handwritten kernels
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
        """Return the value of a bool CONST; return True for any other node, except an undecided comparison of sizes.

        Raises ShapeError for a comparison of symbolic sizes whose result depends on the sizes, as in `max(n, 1)`.
        """
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

# The table of interned nodes. When a node is collected, its weak reference calls `_forget(key, ref)`, which deletes the
# entry. `_forget` is a C function, so that no interrupt is raised in it (Python would drop the exception). While the
# entry of a dead node is still in the table, a new equal node must not replace it, or the late callback would delete
# the new entry: the new node goes to `_staying` instead, and is never collected.
_table: dict[tuple, weakref.ref[UOp]] = {}
_forget = _table.pop
_staying: dict[tuple, UOp] = {}
SIMPLIFIERS: dict[str, Callable[[tuple[UOp, ...], Any], UOp]] = {}


# The columns of the op table that `node` needs, as plain tuples, because `node` is the compiler's inner loop.
_rules = {r.name: (r.lo, MANY if r.hi is None else r.hi, r.dtype, r.shape) for r in ROWS.values()}


def node(
    op: str,
    src: tuple[UOp, ...] = (),
    arg: Any = None,
    tag: Any = None,
    known: tuple[DType, tuple[Any, ...]] | None = None,
) -> UOp:
    """Return the interned UOp with exactly the fields `op` (a name), `src` (its sources), `arg` (its argument) and
    `tag`.

    No simplifier is applied. Raises IRError if the fields violate the op's row in the op table. `known`: the dtype and
    shape that the row gives, if the caller has them from a node with sources of the same dtypes and shapes. Nothing is
    checked then.
    """
    key = (op, src, arg, tag)
    ref = _table.get(key)
    if ref is not None and (u := ref()) is not None:
        return u
    if _staying and (kept := _staying.get(key)) is not None:
        return kept
    if known is not None:
        return _entered(key, *known)
    try:
        lo, hi, dtype, shape = _rules[op]
        if not lo <= len(src) <= hi:
            raise IRError("wrong number of sources", expected=f"{lo}..{'' if hi is MANY else hi}", found=len(src))
        return _entered(key, dtype(src, arg), shape(src, arg))
    except KeyError:
        raise IRError("unknown op", expected="an op of the table (monolect ops)", found=repr(op), op=str(op)) from None
    except IRError as e:
        raise IRError(f"{op}: {e.message}", expected=e.expected, found=e.found, op=op) from None


def _entered(key: tuple[str, tuple[UOp, ...], Any, Any], dtype: DType, shape: tuple[Any, ...]) -> UOp:
    """Return a new UOp with the fields `key` in the table; the one of another thread if that made it meanwhile."""
    u = UOp()
    u.op, u.src, u.arg, u.tag = key
    u.dtype = dtype
    u.shape = shape
    height = 0
    for s in u.src:
        if s.height >= height:
            height = s.height + 1
    u.height = height
    u._min_max = u._ranges = u._placement = u._linear = u._sizes = u.origin = u.storage = u.holder = u.recomputed = None
    u.serial = next_serial()
    ref = weakref.ref(u, MethodType(_forget, key))  # a method takes less memory than a partial
    if (first := _table.setdefault(key, ref)) is not ref:
        del ref  # before the node is collected, or its callback would delete the other node's entry
        if (other := first()) is not None:
            return other
        return _staying.setdefault(key, u)
    return u


def build(op: str, *src: UOp, arg: Any = None) -> UOp:
    """Return the UOp for `op` on the sources `src` with the argument `arg`, simplified to its normal form.

    Local identities are applied, and index arithmetic is canonical, so the result may be a node of another op. Raises
    IRError if the op's row in the op table does not allow these sources or this argument.
    """
    f = SIMPLIFIERS.get(op)
    return node(op, src, arg) if f is None else f(src, arg)


def live_nodes() -> int:
    """Return the number of nodes in the table of interned UOps, which excludes BUFFERs that `new_buffer_like` made."""
    return len(_table)


@mypyc_attr(native_class=False)
class _NegativeZero(float):
    """The float -0.0 as a CONST value; it equals only itself, so that interning separates it from 0.0.
    NEGATIVE_ZERO is the only instance.
    """

    def __eq__(self, o: object) -> bool:
        return self is o

    def __hash__(self) -> int:
        return id(self)


# Typed as Any, because mypyc may copy a float, and the identity of these two objects matters.
NEGATIVE_ZERO: Any = _NegativeZero(-0.0)
NAN: Any = float("nan")


def const(value: Any, dtype: DType) -> UOp:
    """Return a scalar CONST of dtype `dtype` with the value `value`, which is wrapped (integers) or rounded (floats) to
    the dtype.
    `value`: a Python or NumPy number, or INVALID, which is kept as it is.
    """
    if value is not INVALID:
        value = as_python(value, dtype)
        if value.__class__ is float:
            if value != value:
                value = NAN
            elif value == 0.0 and str(value)[0] == "-":
                value = NEGATIVE_ZERO
    return node("CONST", (), (value, dtype))


def idx(value: Any) -> UOp:
    """Return the size or index `value` as a UOp: an int becomes a CONST of dtype `index`, and a UOp is returned
    unchanged.
    """
    return value if value.__class__ is UOp else node("CONST", (), (int(value), dtypes.index))


def lift(value: Any, like: UOp) -> UOp:
    """Return `value` as an operand of an op: a UOp unchanged, a Variable as its PARAM, a number as a CONST of the dtype
    of `like`.
    """
    if value.__class__ is UOp:
        return value
    if value.__class__ is not int and hasattr(value, "symbol"):
        node_: UOp = value.uop
        return node_
    return const(value, like.dtype)


_shapes: dict[tuple, UOp] = {}


def shape_source(sizes: Iterable[Any]) -> UOp:
    """Return the STACK of index scalars that represents the shape `sizes` (ints or index UOps) as a source of another
    node.
    """
    sizes = tuple(sizes)
    u = _shapes.get(sizes)
    if u is None:
        u = node("STACK", tuple(idx(s) for s in sizes))
        if all(s.__class__ is int for s in sizes) and len(_shapes) < 65536:
            _shapes[sizes] = u
    return u


def broadcast_to(u: UOp, shape: tuple) -> UOp:
    """Return `u` broadcast to the shape `shape`: axes of size 1 are added on the left, and axes of size 1 are
    repeated. Raises IRError if `u` does not broadcast to `shape`.
    """
    if u.shape == shape:
        return u
    ones = (1,) * (len(shape) - len(u.shape))
    return build("EXPAND", build("RESHAPE", u, shape_source((*ones, *u.shape))), shape_source(shape))


def iota(n: Any, dtype: DType = dtypes.index, axis: int = 0, rank: int = 1) -> UOp:
    """Return 0, 1, ..., n - 1 along `axis` of a result with `rank` axes, which has size 1 on the others."""
    u = build("IOTA", idx(n), arg=dtype)
    return u if rank == 1 else build("RESHAPE", u, shape_source((1,) * axis + u.shape + (1,) * (rank - 1 - axis)))


def new_buffer(shape: Iterable[Any], dtype: DType, device: Any, axis: Layout = 0) -> UOp:
    """Return a BUFFER of shape `shape` and dtype `dtype`, with a slot that no other BUFFER of this process has.

    `device`: a device name, or a tuple of names, which divides the BUFFER in the layout `axis` (`ir/layout.py`).
    """
    divided = axis if device.__class__ is tuple else 0
    return node("BUFFER", (shape_source(shape),), BufferArg(next(_slots), dtype, device, "GLOBAL", divided))


def new_buffer_like(template: UOp) -> UOp:
    """Return a new BUFFER node with the shape, dtype, device and address space of the BUFFER `template`, and an unused
    slot.

    Each replay of a captured step calls this function, so it checks nothing. Because the slot is new, the node is not
    entered in the table of interned nodes.
    """
    u = UOp()
    u.op, u.src, u.tag, u.dtype, u.shape = "BUFFER", template.src, None, template.dtype, template.shape
    _, dtype, device, space, axis = template.arg
    u.height = template.height
    u.arg = _new_tuple(BufferArg, (next(_slots), dtype, device, space, axis))
    u._placement = template._placement
    u._min_max = u._ranges = u._linear = u._sizes = u.origin = u.storage = u.holder = u.recomputed = None
    u.serial = next_serial()
    return u


def toposort(
    *roots: UOp,
    stop: Callable[[UOp], bool] | None = None,
    sources: Callable[[UOp], tuple[UOp, ...]] | None = None,
) -> list[UOp]:
    """Return all nodes of the graphs of `roots`, each once, sources before users.

    `stop(node)` is called for each node that has sources; if it is true, the node is listed, but its sources are not
    visited. `sources(node)` returns the sources to visit; by default all.
    """
    out: list[UOp] = []
    seen: set[UOp] = set()
    stack: list[Any] = list(reversed(roots))
    while stack:
        u = stack.pop()
        if u.__class__ is tuple:
            out.append(u[0])
        elif u not in seen:
            seen.add(u)
            src = u.src if sources is None else sources(u)
            if not src or (stop is not None and stop(u)):
                out.append(u)
            else:
                stack.append((u,))
                for s in reversed(src):
                    if s not in seen:
                        stack.append(s)
    return out


@lru_cache(maxsize=128)
def nodes_of(kernel: UOp) -> tuple[UOp, ...]:
    """Return all nodes of `kernel`, sources before users. The result is memoized for the most recent kernels, because
    several passes walk each kernel.
    """
    return tuple(toposort(kernel))


def substitute(root: UOp, mapping: dict[UOp, UOp]) -> UOp:
    """Return the graph `root` with each node that is a key of `mapping` replaced by its value; changed nodes are
    rebuilt in normal form.
    A value replaces its key as it is: keys below a value are not replaced.
    """
    return substitute_all((root,), mapping)[0]


def substitute_all(roots: tuple[UOp, ...], mapping: dict[UOp, UOp]) -> tuple[UOp, ...]:
    """Apply `substitute` with the same `mapping` to each of `roots`; return the new roots. Nodes that roots share are
    rebuilt once.
    """
    new: dict[UOp, UOp] = dict(mapping)
    for u in toposort(*roots, stop=new.__contains__):
        if u not in new:
            new[u] = rebuild(u, tuple(new[s] for s in u.src))
    return tuple(new[r] for r in roots)


def rebuild(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """Return node `u` with its sources replaced by `src`, in normal form and with the origin of `u`.

    Returns `u` itself if `src` are its sources.
    """
    if src == u.src:
        return u
    out = build(u.op, *src, arg=u.arg) if u.tag is None else node(u.op, src, u.arg, u.tag)
    if out.origin is None:
        out.origin = u.origin
    return out


__all__ = [
    "NAN",
    "NEGATIVE_ZERO",
    "SIMPLIFIERS",
    "UOp",
    "broadcast_to",
    "build",
    "const",
    "idx",
    "iota",
    "lift",
    "live_nodes",
    "new_buffer",
    "new_buffer_like",
    "next_serial",
    "node",
    "nodes_of",
    "rebuild",
    "shape_source",
    "substitute",
    "substitute_all",
    "toposort",
]
