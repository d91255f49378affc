"""Map an index of a tensor value to the indices of its sources.

`sources(u, index, gate)` defines every tensor op on indices: if element `index` of `u` is needed under `gate`, it lists
the `(source, index, gate)` to read. Movement ops are fully described by this map. A chain of movements becomes index
arithmetic, kept small by the canonical form. PAD adds to the gate, so no index outside of a source is read. An INDEX by
an integer tensor puts a placeholder `INDEX(tensor, i...)` into the index, which is filled in when kernels are built.

What it is not: it does not choose which values get a buffer; `partition` does. Layers of a network repeat the same
maps, so flat indices and reshaped indices are memoized within one schedule.
Invariant: under its gate each returned index is inside of its source.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import prod
from typing import Any

from monolect.base.errors import InternalError
from monolect.ir.bounds import min_max, ranges, size_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.rewrite.normal import TRUE, count, smaller, within
from monolect.ir.uop import UOp, build, idx, node

Index = tuple[UOp, ...]
Read = tuple[UOp, Index, UOp]  # (node, index, gate)

ZERO = idx(0)
FIRST_REDUCE_RANGE = 1000  # number of the first RANGE of a reduction; RANGEs of outputs have lower numbers


def value_sources(u: UOp) -> tuple[UOp, ...]:
    """Return the sources of `u` that are tensor values (not shapes, offsets or effects)."""
    if u.op in _ONE_VALUE:
        return u.src[:1]
    if u.op == "LOAD" and len(u.src) < 3:  # a LOAD with a gate also has an alternative value
        return u.src[:1]
    return () if u.op in _NO_VALUE else u.src


_ONE_VALUE = frozenset(("RESHAPE", "EXPAND", "PAD", "SHRINK", "PERMUTE", "FLIP", "REDUCE"))
_NO_VALUE = frozenset(("PARAM", "BUFFER", "CONST", "IOTA", "BINARY"))


def full_index(shape: tuple) -> Index:
    """Return one output RANGE per axis, numbered by the axis, so that kernels of one shape share their RANGEs."""
    return tuple(ZERO if n == 1 else node("RANGE", (idx(n),), (k, "LOOP")) for k, n in enumerate(shape))


@cache
def flatten(index: Index, shape: tuple) -> UOp:
    """Return the row-major flat index of `index` in `shape`."""
    at: UOp = ZERO
    stride: Any = 1
    for i, n in zip(reversed(index), reversed(shape), strict=True):
        at = at + i * stride
        stride = stride * n if n.__class__ is int or stride.__class__ is int else stride * n
    return at


def sources(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the elements that element `index` of `u` reads, as (source, index, gate)."""
    op = u.op
    if op in ELEMENTWISE:
        return [(s, broadcast_index(index, s.shape), gate) for s in u.src]
    rule = _RULES.get(op)
    if rule is None:
        raise InternalError(f"no index rule for {op}")
    return rule(u, index, gate)


def broadcast_index(index: Index, shape: tuple) -> Index:
    """Return the index into a value of `shape` that is broadcast to the shape that `index` indexes."""
    rank = len(shape)
    if not rank:
        return ()
    index = index[len(index) - rank :]
    for n in shape:
        if n.__class__ is int and n == 1:
            return tuple(ZERO if n.__class__ is int and n == 1 else i for i, n in zip(index, shape, strict=True))
    return index


def _same(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the read of an op whose elements are those of its first source at the same index."""
    return [(u.src[0], index, gate)]


def _load(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the reads of a LOAD: a copy, or with a gate a choice between the copy and its alternative."""
    return [(s, broadcast_index(index, s.shape), gate) for s in u.src] if len(u.src) > 2 else _same(u, index, gate)


def _permute(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the read of a PERMUTE."""
    out: list[UOp] = [ZERO] * len(index)
    for i, a in zip(index, u.arg, strict=True):
        out[a] = i
    return [(u.src[0], tuple(out), gate)]


def _flip(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the read of a FLIP."""
    return [
        (
            u.src[0],
            tuple((idx(n) + i * -1 + -1) if f else i for i, f, n in zip(index, u.arg, u.shape, strict=True)),
            gate,
        )
    ]


def _expand(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the read of an EXPAND."""
    return [(u.src[0], broadcast_index(index, u.src[0].shape), gate)]


def _pad(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the read of a PAD, with a gate that is true inside of the source."""
    out = []
    for i, o, s, n in zip(index, u.src[1].sizes, u.src[0].shape, u.shape, strict=True):
        if s is n or s == n:
            out.append(i)
            continue
        i = i + idx(o) * -1
        gate = build("AND", gate, within(i, 0, s))
        out.append(i)
    return [(u.src[0], tuple(out), gate)]


def _shrink(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the read of a SHRINK."""
    return [(u.src[0], tuple(i + o for i, o in zip(index, u.src[1].sizes, strict=True)), gate)]


def _reshape(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the read of a RESHAPE."""
    return [(u.src[0], reshape_index(index, u.shape, u.src[0].shape), gate)]


@cache
def reshape_index(index: Index, new: tuple, old: tuple) -> Index:
    """Map `index` of shape `new` to an index of shape `old`.

    Axes are grouped where the sizes agree, so that divisions appear only inside of a group that really changes.
    """
    out: list[UOp] = []
    i = j = 0
    while i < len(new) or j < len(old):
        i0, j0 = i, j
        a: Any = 1
        b: Any = 1
        if i < len(new):
            a, i = new[i], i + 1
        if j < len(old):
            b, j = old[j], j + 1
        while not _equal(a, b):
            if i < len(new) and (j >= len(old) or _smaller(a, b)):
                a, i = _times(a, new[i]), i + 1
            elif j < len(old):
                b, j = _times(b, old[j]), j + 1
            else:
                break
        out.extend(_regroup(index[i0:i], new[i0:i], old[j0:j]))
    return tuple(out)


def clear_caches() -> None:
    """Clear the memoized indices, and with them the references to nodes, at the end of a schedule."""
    flatten.cache_clear()
    reshape_index.cache_clear()


def _equal(a: Any, b: Any) -> bool:
    """Whether two sizes are the same int or the same symbolic node."""
    return a is b or (a.__class__ is int and b.__class__ is int and a == b)


def _smaller(a: Any, b: Any) -> bool:
    """Whether size `a` is less than size `b`; symbolic sizes are compared by their maximum."""
    if a.__class__ is int and b.__class__ is int:
        return a < b
    return min_max(idx(a))[1] < min_max(idx(b))[1]


def _times(a: Any, b: Any) -> Any:
    """Return the product of two sizes, each an int or a symbolic node."""
    return count((a, b))


def _regroup(index: Index, new: tuple, old: tuple) -> list[UOp]:
    """Map `index` of the axes `new` to the axes `old` of equal total size, by flattening, division and modulo."""
    if len(new) == len(old) == 1:
        return list(index)
    if all(n.__class__ is int and n == 1 for n in old):
        return [ZERO] * len(old)
    flat = flatten(index, new)
    out: list[UOp] = []
    for k in range(len(old) - 1, -1, -1):
        out.append(flat if k == 0 else flat % old[k])
        flat = flat // old[k] if k else flat
    return out[::-1]


def _reduce(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the read of a REDUCE. Reduced axes get RANGEs that are unused in `index`; reductions at equal indices
    share RANGEs.
    """
    x, axes = u.src[0], u.arg[1]
    taken = {r.arg[0] for i in (*index, gate) for r in ranges(i)}
    out, k = list(index), FIRST_REDUCE_RANGE
    for a in axes:
        while k in taken:
            k += 1
        out[a] = node("RANGE", (idx(x.shape[a]),), (k, "REDUCE"))
        k += 1
    return [(x, tuple(out), gate)]


def _stack(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the reads of a STACK: one source for a constant first index, else all sources."""
    if index[0].op == "CONST":
        return [(u.src[index[0].value], index[1:], gate)]
    return [(s, index[1:], gate) for s in u.src]


def _index(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the reads of an INDEX: first the table, whose index contains placeholders, then the index tensors."""
    table, wanted, out = u.src[0], [], []
    at = 0
    for k, t in enumerate(u.src[1:]):
        sub = index[at : at + len(t.shape)]
        at += len(t.shape)
        if t.op == "CONST":
            out.append(clamp(idx(t.value), table.shape[k]))
            continue
        wanted.append((t, sub, gate))
        i = placeholder(t, sub, gate)
        out.append(clamp(i if i.dtype.kind == "x" else build("CAST", i, arg=ZERO.dtype), table.shape[k]))
    return [(table, (*out, *index[at:]), gate), *wanted]


def placeholder(t: UOp, index: Index, gate: UOp) -> UOp:
    """Return a placeholder for the value of element `index` of the tensor `t`, replaced when kernels are built.

    The gate is an extra dependency, so that two placeholders are the same node only if they read the same.
    """
    return node("AFTER", (node("INDEX", (t, *index)), gate)) if gate is not TRUE else node("INDEX", (t, *index))


def clamp(i: UOp, n: Any) -> UOp:
    """Return `i` clamped to [0, n), so that a data-dependent index never reads memory outside of the tensor."""
    if n.__class__ is int and n == 1:
        return ZERO  # independent of the data, so the index shows no loop in which the data is read
    lo, hi = min_max(i)
    if lo < 0:
        i = build("MAX", i, ZERO)
    if hi >= (n if n.__class__ is int else min_max(n)[0]):
        i = smaller(i, idx(n) + -1)
    return i


def _bitcast(u: UOp, index: Index, gate: UOp) -> list[Read]:
    """Return the reads of a BITCAST: several elements of the source if its dtype is smaller."""
    old, new = u.src[0].dtype.itemsize, u.dtype.itemsize
    if old == new:
        return [(u.src[0], index, gate)]
    if old > new:
        return [(u.src[0], (*index[:-1], index[-1] // (old // new)), gate)]
    k = new // old
    return [(u.src[0], (*index[:-1], index[-1] * k + j), gate) for j in range(k)]


_RULES = {
    "PERMUTE": _permute, "FLIP": _flip, "EXPAND": _expand, "PAD": _pad, "SHRINK": _shrink, "RESHAPE": _reshape,
    "REDUCE": _reduce, "STACK": _stack, "INDEX": _index, "BITCAST": _bitcast, "CONTIGUOUS": _same, "DETACH": _same,
    "CONTIGUOUS_BACKWARD": _same, "LOAD": _load, "AFTER": lambda u, i, g: [(stored_value(u), i, g)],
    "PARAM": lambda u, i, g: [], "CONST": lambda u, i, g: [], "IOTA": lambda u, i, g: [], "BUFFER": lambda u, i, g: [],
}  # fmt: skip


def stored_value(u: UOp) -> UOp:
    """Return the value that an overwriting AFTER stores."""
    return u.src[1].src[1]


def overwrites(u: UOp) -> bool:
    """Whether `u` is AFTER(X, STORE(X, v)) with v of the shape of X: the old content of X is not needed."""
    e = u.src[1] if len(u.src) == 2 else u
    return e.op == "STORE" and e.src[0] is u.src[0] and len(e.src) == 2 and e.src[1].shape == u.shape


def effect_target(view: UOp, target: UOp, index: Index) -> tuple[Index, UOp, list[Read]]:
    """Map `index` of `view` to an index of `target`: (index, gate, index tensors to read).

    Unlike in a read, an index out of range is not clamped: the gate drops the effect.
    """
    gate, wanted = TRUE, []
    while view is not target:
        if view.op == "INDEX":
            table, out, at = view.src[0], [], 0
            for k, t in enumerate(view.src[1:]):
                sub = index[at : at + len(t.shape)]
                at += len(t.shape)
                i = idx(t.value) if t.op == "CONST" else placeholder(t, sub, TRUE)
                if t.op != "CONST":
                    wanted.append((t, sub, TRUE))
                i = i if i.dtype.kind == "x" else build("CAST", i, arg=ZERO.dtype)
                gate = build("AND", gate, within(i, 0, table.shape[k]))
                out.append(i)
            view, index = table, (*out, *index[at:])
        else:
            ((view, index, gate),) = sources(view, index, gate)
    return index, gate, wanted


def covers(index: Index, shape: tuple) -> frozenset[UOp] | None:
    """Return the RANGEs of `index` if it visits every element of `shape` exactly once, else None."""
    seen = []
    for i, n in zip(index, shape, strict=True):
        if n.__class__ is int and n == 1:
            if i.op != "CONST" and ranges(i):
                return None  # under SIMPLIFY=0 a reduction over one element has a loop
            continue
        if i.op != "RANGE" or i in seen or not _equal(_bound(i), n):
            return None
        seen.append(i)
    return frozenset(seen)


def _bound(r: UOp) -> Any:
    """Return the size of the RANGE `r`: an int or a symbolic node."""
    return r.src[0].value if r.src[0].op == "CONST" else r.src[0]


def size(rs: Iterable[UOp]) -> int:
    """Return the maximum number of iterations of the loop nest over the RANGEs `rs`."""
    return prod(size_max(r.src[0].value if r.src[0].op == "CONST" else r.src[0]) for r in rs)


def ranges_of(index: Index) -> frozenset[UOp]:
    """Return the RANGEs of all axes of `index`."""
    return frozenset().union(*(ranges(i) for i in index)) if index else frozenset()


__all__ = [
    "FIRST_REDUCE_RANGE",
    "Index",
    "broadcast_index",
    "clamp",
    "clear_caches",
    "covers",
    "effect_target",
    "flatten",
    "full_index",
    "overwrites",
    "placeholder",
    "ranges_of",
    "reshape_index",
    "size",
    "sources",
    "stored_value",
    "value_sources",
]
