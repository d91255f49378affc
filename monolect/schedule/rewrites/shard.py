"""Replace values on several devices by one value for each device, and what they exchange by copies.

Before: MUL(BUFFER on (a, b), CONST)                 one graph over a tuple of devices
After:  MUL(BUFFER on a, CONST), MUL(BUFFER on b, CONST)

A value that is sharded along an axis has on each device a part of that axis: equal parts of the smallest size that
holds it, of which the last may be shorter or empty. Any other value is whole on each device. A BUFFER on several
devices has a node for its part on each. Only LOADs to a device move data: those that the graph has, of operands that
are on one device only, and those that combine a reduction along the shard axis.

Invariant: after the pass no value has a tuple device. Each element of a reduction along the shard axis is combined
once, in the order of the devices, so that a replicated value has the same bits on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from monolect.autograd import graph
from monolect.base.errors import DeviceError
from monolect.ir.collective import allreduced, are_processes
from monolect.ir.ops import ELEMENTWISE, LoadArg
from monolect.ir.placement import axis as axis_of
from monolect.ir.placement import device as device_of
from monolect.ir.placement import engine
from monolect.ir.uop import UOp, build, new_buffer, rebuild, shape_source, toposort

MIN_SCATTERED_BYTES = 1 << 16  # bytes of a value from which its sum over several engines is divided among them

_LOCAL = frozenset(("PERMUTE", "FLIP", "CAST", "BITCAST", "CONTIGUOUS", "CONTIGUOUS_BACKWARD", "DETACH"))
_EFFECTS = frozenset(("AFTER", "GROUP"))
_VIEWS = _LOCAL - {"CAST", "CONTIGUOUS"} | {"RESHAPE", "SHRINK", "PAD", "INDEX", "AFTER"}  # of the target of a STORE


_declared: WeakKeyDictionary[UOp, tuple[UOp, ...]] = WeakKeyDictionary()  # parts of BUFFERs without storage


def shards_of(b: UOp) -> tuple[UOp, ...]:
    """Return the parts of a BUFFER on several devices: those of its storage; of one without storage, new BUFFERs."""
    if b.storage is not None:
        parts: tuple[UOp, ...] = b.storage.parts
        return parts
    names = b.arg.device
    shapes = [part_shape(b.shape, b.arg.axis, i, len(names)) for i in range(len(names))]
    parts = tuple([new_buffer(shape, b.dtype, name) for shape, name in zip(shapes, names, strict=True)])
    return _declared.setdefault(b, parts)


def is_on_several(u: UOp) -> bool:
    """Whether `u` is on a tuple of devices."""
    return isinstance(device_of(u), tuple)


def shard(roots: list[UOp]) -> list[UOp]:
    """Pass: return `roots` with each value on several devices replaced by one value for each device, in order."""
    if not any(is_on_several(u) for u in toposort(*roots)):
        return roots
    local = local_values(roots)
    return [v for r in roots for v in (local[r] if is_on_several(r) else [local[r][0]])]


def local_values(roots: Sequence[UOp]) -> dict[UOp, list[UOp]]:
    """Return for each node below `roots` its value for each device; one value for a node on one device or on none."""
    local: dict[UOp, list[UOp]] = {}
    for u in toposort(*roots):
        local[u] = _Node(u, local).values()
    return local


def moves(roots: Sequence[UOp]) -> list[tuple[str, UOp, UOp]]:
    """Return what the graphs of `roots` move between devices, as (collective, value that moves, node that needs it).

    The collectives are those of the specification: broadcast, scatter, gather, allgather, allreduce, and alltoall for a
    value whose shard axis changes.
    """
    found: list[tuple[str, UOp, UOp]] = []
    for u in toposort(*roots):
        here = _Node(u, {})
        if u.op == "LOAD" and u.arg is not None and u.arg.device is not None:
            source = u.src[0]
            if is_on_several(source):
                is_whole = axis_of(source) is None
                name = ("broadcast" if here.devices else "copy") if is_whole else "copy" if here.devices else "gather"
            else:
                is_one = source.op == "EXPAND"  # one value, for each device
                name = "copy" if not here.devices else "broadcast" if is_one else "scatter"
            found.append((name, source, u))
        elif u.op == "REDUCE" and here.devices and (a := axis_of(u.src[0])) is not None and a in u.arg[1]:
            found.append(("allreduce", u, u))
        elif here.devices and (u.op in ELEMENTWISE or u.op in ("STACK", "STORE", "INDEX")):
            for k, s in enumerate(u.src):
                if is_on_several(s) and s.dtype.kind != "v" and not (u.op == "STORE" and k == 0):
                    now, at = axis_of(s), here.axis_in(s, k)
                    if now is not None and now != at:
                        found.append(("allgather" if at is None else "alltoall", s, u))
    return found


class _Node:
    """One node of the graph whose sources have local values."""

    def __init__(self, u: UOp, local: dict[UOp, list[UOp]]):
        self.u, self.local = u, local
        found = device_of(u)
        self.devices: tuple[str, ...] = found if isinstance(found, tuple) else ()
        self.n = len(self.devices)
        self.axis = axis_of(u) if self.devices else None

    def values(self) -> list[UOp]:
        """Return the value on each device, or the one value."""
        u = self.u
        if not any(is_on_several(s) for s in u.src) and not self.devices:
            return [self.same()]
        if u.op == "LOAD" and u.arg is not None and u.arg.device is not None:
            return self.copied()
        if not self.devices:
            raise DeviceError(f"{u.op} of values on several devices", expected="a copy to one device", found=u.src)
        if u.op == "BUFFER":
            return list(shards_of(u))
        if u.op in ELEMENTWISE or u.op == "STACK" or u.op in ("STORE", "ATOMICADD", "INDEX", *_EFFECTS):
            if u.op == "STORE" and is_on_several(u.src[0]):
                self.check_target()
            return [rebuild(u, tuple([self.operand(s, k, i) for k, s in enumerate(u.src)])) for i in range(self.n)]
        if u.op == "REDUCE":
            return self.reduced()
        if u.op == "LOAD" or u.op in _LOCAL:
            return [rebuild(u, (self.local[u.src[0]][i], *u.src[1:])) for i in range(self.n)]
        if u.op in ("RESHAPE", "EXPAND", "PAD", "SHRINK"):
            return [self.moved(self.local[u.src[0]][i], i) for i in range(self.n)]
        if u.op == "REPLICATED":
            return [self.replicated(self.local[u.src[0]][i]) for i in range(self.n)]
        raise DeviceError(f"{u.op} on several devices", expected="an op that this pass divides", found=u.op)

    def same(self) -> UOp:
        """Return the node with its sources rebuilt, for values on one device."""
        u = self.u
        if u.op == "REPLICATED":
            return self.replicated(self.local[u.src[0]][0])
        src = tuple([self.local[s][0] for s in u.src])
        return u if src == u.src else rebuild(u, src)

    def check_target(self) -> None:
        """Check that the target of a STORE is memory on each device. Raises DeviceError."""
        for v in self.local[self.u.src[0]]:
            while v.op in _VIEWS:
                v = v.src[0]
            if v.op not in ("BUFFER", "PARAM", "CONTIGUOUS"):
                expected = "an assignment of the whole tensor, or a part of each device's elements"
                raise DeviceError("a write to a part of a sharded tensor", expected=expected, found=self.u.src[0].shape)

    # ---- operands ----------------------------------------------------------------------------------------------------
    def operand(self, s: UOp, k: int, i: int) -> UOp:
        """Return source `k`, the node `s`, as device `i` needs it: its part where this node is sharded, copied."""
        if self.u.op in _EFFECTS or s.dtype.kind == "v":
            return self.local[s][i if is_on_several(s) else 0]
        if self.u.op == "STORE" and k == 0 and is_on_several(s):
            return self.local[s][i]
        at = self.axis_in(s, k)
        if is_on_several(s):
            values, now = self.local[s], axis_of(s)
            if now is None:
                return part(values[i], at, i, self.n)
            if now == at:
                return values[i]
            return joined([copy(part(v, at, i, self.n), self.devices[i]) for v in values], now)  # resharded
        v = part(self.local[s][0], at, i, self.n)
        home = device_of(v)
        return v if home is None or home == self.devices[i] else copy(v, self.devices[i])

    def axis_in(self, s: UOp, k: int) -> int | None:
        """Return the axis of source `k`, the node `s`, along which this node is sharded; None if it has none."""
        if self.axis is None:
            return None
        u = self.u
        if u.op == "INDEX":
            return self.axis_in_index(k)
        shape = u.src[0].shape if u.op == "STORE" else u.shape
        at = self.axis - (len(shape) - len(s.shape))
        return at if at >= 0 and (s.shape[at] != 1 or shape[self.axis] == 1) else None

    def axis_in_index(self, k: int) -> int | None:
        """Return the axis of source `k` of an INDEX along which the result is sharded; None if it has none."""
        data, *indices = self.u.src
        first = 0
        for j, i in enumerate(indices, 1):
            if self.axis is not None and first <= self.axis < first + len(i.shape):
                return self.axis - first if k == j else None
            first += len(i.shape)
        return self.axis - first + len(indices) if k == 0 and self.axis is not None else None

    # ---- movement ----------------------------------------------------------------------------------------------------
    def moved(self, v: UOp, i: int) -> UOp:
        """Return a movement op of `v`, the value on device `i`; it repeats a sharded axis of size 1 on each device."""
        u = self.u
        if u.op == "EXPAND" and self.axis is None and (a := axis_of(u.src[0])) is not None:
            v = joined([copy(p, self.devices[i]) for p in self.local[u.src[0]]], a)
        *offsets, sizes = u.src[1:]
        return build(u.op, v, *offsets, shape_source(part_shape(sizes.sizes, self.axis, i, self.n)))

    def replicated(self, v: UOp) -> UOp:
        """Return element 0 of the axis of a REPLICATED, of the local value `v`."""
        a, source = self.u.arg, self.u.src[0]
        shape = (*v.shape[:a], 1, *v.shape[a + 1 :])
        if self.devices and axis_of(source) == a and source.shape[a] != self.n:
            expected, found = f"{self.n} elements, one a device", f"axis {a} of {source.shape}"
            raise DeviceError("REPLICATED of an axis of several elements a device", expected=expected, found=found)
        if shape != v.shape:
            v = build("SHRINK", v, shape_source((0,) * len(shape)), shape_source(shape))
        return build("RESHAPE", v, shape_source((*shape[:a], *shape[a + 1 :])))

    # ---- what moves data ---------------------------------------------------------------------------------------------
    def reduced(self) -> list[UOp]:
        """Return a REDUCE on each device; along the shard axis the partial results of all devices are combined."""
        u = self.u
        source = u.src[0]
        partial = [rebuild(u, (self.local[source][i], *u.src[1:])) for i in range(self.n)]
        if axis_of(source) is None or axis_of(source) not in u.arg[1]:
            return partial
        return totals(u.arg[0], partial, self.devices)

    def copied(self) -> list[UOp]:
        """Return the LOAD to another device or to several: a COPY of the specification, which shards along axis 0."""
        u = self.u
        source = u.src[0]
        to = u.arg.device
        names = to if isinstance(to, tuple) else (to,)
        if len(u.src) > 1:
            raise DeviceError(
                "a gated copy to or from several devices", expected="no gate", found=f"{len(u.src)} sources"
            )
        return [self.fetched(source, i, name, len(names)) for i, name in enumerate(names)]

    def fetched(self, source: UOp, i: int, name: str, n: int) -> UOp:
        """Return part `i` of `n` along axis 0 of `source`, copied to the device `name`; all of it if `n` is 1."""
        values = self.local[source]
        at = 0 if n > 1 else None
        if not is_on_several(source):
            return copy(part(values[0], at, i, n), name)
        home = device_of(source)
        shard_axis = axis_of(source)
        if shard_axis is None:
            nearest = home.index(name) if name in home else 0
            return copy(part(values[nearest], at, i, n), name)
        if shard_axis == 0 and n > 1:
            if n != len(home):
                raise DeviceError(
                    "a copy between tuples of different lengths", expected=f"{len(home)} devices", found=n
                )
            return copy(values[i], name)
        return joined([copy(part(v, at, i, n), name) for v in values], shard_axis)


def span(size: Any, i: int, n: int) -> tuple[Any, Any]:
    """Return (offset, size) of part `i` of `n` of an axis of `size`; the last parts are shorter or empty if it does not
    divide. A symbolic size must divide.
    """
    if size.__class__ is not int:
        return size // n * i, size // n
    step = -(-size // n)
    start = min(i * step, size)
    return start, min(step, size - start)


def part_shape(shape: tuple[Any, ...], axis: int | None, i: int, n: int) -> tuple[Any, ...]:
    """Return the shape of part `i` of `n` along `axis`; `shape` if `axis` is None."""
    return shape if axis is None else (*shape[:axis], span(shape[axis], i, n)[1], *shape[axis + 1 :])


def part(v: UOp, axis: int | None, i: int, n: int) -> UOp:
    """Return part `i` of `n` of `v` along `axis`; all of it if `axis` is None or `n` is 1.

    The part is taken below views that repeat elements, so that a copy of it moves each element once.
    """
    if axis is None or n == 1:
        return v
    shape = part_shape(v.shape, axis, i, n)
    if v.op == "EXPAND":
        below = v.src[0] if v.src[0].shape[axis] != v.shape[axis] else part(v.src[0], axis, i, n)
        return build("EXPAND", below, shape_source(shape))
    if v.op == "PERMUTE":
        return build("PERMUTE", part(v.src[0], v.arg[axis], i, n), arg=v.arg)
    if v.op == "RESHAPE" and (below_axis := _same_axis(v, axis)) is not None:
        return build("RESHAPE", part(v.src[0], below_axis, i, n), shape_source(shape))
    offsets = [0] * len(v.shape)
    offsets[axis] = span(v.shape[axis], i, n)[0]
    return build("SHRINK", v, shape_source(offsets), shape_source(shape))


def _same_axis(v: UOp, axis: int) -> int | None:
    """Return the axis of the source of a RESHAPE that `axis` is, or None."""
    before, below = prod(v.shape[:axis]), v.src[0].shape
    return next((a for a in range(len(below)) if prod(below[:a]) == before and below[a] == v.shape[axis]), None)


def copy(v: UOp, name: str) -> UOp:
    """Return `v` on the device `name`. The copy is below views that repeat or reorder elements."""
    if device_of(v) == name:
        return v
    if v.op in ("EXPAND", "RESHAPE", "PERMUTE"):
        return rebuild(v, (copy(v.src[0], name), *v.src[1:]))
    return build("LOAD", v, arg=LoadArg(name, "GLOBAL"))


def totals(op: str, partial: Sequence[UOp], names: Sequence[str]) -> list[UOp]:
    """Return on each of the devices `names` the value of `partial`, one for each device, combined by `op` in order: an
    allreduce. All results have equal bits.

    On one engine, or for few bytes, the first device combines them. Else each device combines a part of the elements
    (reduce_scatter), and all parts go to all devices (allgather): each device sends and receives about twice the bytes
    of the value, and not n times. Over processes the transport does so.
    """
    shape, n = partial[0].shape, len(names)
    is_constant = all(size.__class__ is int for size in shape)
    n_bytes = prod(shape) * partial[0].dtype.itemsize if is_constant else 0
    if n_bytes and are_processes(names):
        return allreduced(op, partial, names)
    if n_bytes < MIN_SCATTERED_BYTES or len({engine(name) for name in names}) == 1:
        total = combined(op, partial, names[0])
        return [copy(total, name) for name in names]
    flat = [build("RESHAPE", p, shape_source((prod(shape),))) for p in partial]
    parts = [combined(op, [part(v, 0, i, n) for v in flat], name) for i, name in enumerate(names)]
    return [build("RESHAPE", joined([copy(p, name) for p in parts], 0), shape_source(shape)) for name in names]


def combined(op: str, partial: Sequence[UOp], name: str) -> UOp:
    """Return the partial results, combined by `op` in order on the device `name`."""
    first, *others = [copy(p, name) for p in partial]
    for p in others:
        first = build(op, first, p)
    return first


def joined(values: Sequence[UOp], axis: int) -> UOp:
    """Return the concatenation of values along `axis`, in memory of its own. Views that repeat or reorder elements are
    applied to the concatenation.
    """
    first = values[0]
    if any(v.shape != first.shape for v in values):
        return build("CONTIGUOUS", graph.joined([v for v in values if v.shape[axis] != 0], axis))
    shape = (*first.shape[:axis], first.shape[axis] * len(values), *first.shape[axis + 1 :])
    if all(v.op == "EXPAND" for v in values) and first.src[0].shape[axis] == first.shape[axis]:
        return build("EXPAND", joined([v.src[0] for v in values], axis), shape_source(shape))
    if all(v.op == "PERMUTE" and v.arg == first.arg for v in values):
        return build("PERMUTE", joined([v.src[0] for v in values], first.arg[axis]), arg=first.arg)
    if all(v.op == "RESHAPE" for v in values) and (below := _same_axis(first, axis)) is not None:
        return build("RESHAPE", joined([v.src[0] for v in values], below), shape_source(shape))
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
    stacked = build("PERMUTE", build("STACK", *values), arg=tuple(order))
    return build("CONTIGUOUS", build("RESHAPE", stacked, shape_source(shape)))


__all__ = ["is_on_several", "local_values", "moves", "shard", "shards_of"]
