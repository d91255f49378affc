"""Replace values on several devices by one value for each device, and what they exchange by copies.

Before: MUL(BUFFER on (a, b), CONST)                 one graph over a tuple of devices
After:  MUL(BUFFER on a, CONST), MUL(BUFFER on b, CONST)

A value that is sharded along an axis has on each device a part of that axis: equal parts of the smallest size that
holds it, of which the last may be shorter or empty (`ir/layout.py`). Any other value is whole on each device. A BUFFER
on several devices has a node for its part on each. Only LOADs to a device move data: those that the graph has, of
operands that are on one device only or divided differently, and those that combine a reduction along the shard axis.

Invariant: after the pass no value has a tuple device. Each element of a reduction along the shard axis is combined
once, in the order of the devices, so that a replicated value has the same bits on all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from monolect.base.errors import DeviceError
from monolect.ir.bounds import size_max
from monolect.ir.collective import are_processes
from monolect.ir.layout import Layout, axes_of, box, mapped, neighbours, pairs_of, part_shape
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.placement import axis as axis_of
from monolect.ir.placement import device as device_of
from monolect.ir.placement import engine
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, new_buffer, rebuild, shape_source, toposort
from monolect.schedule.rewrites.parts import (
    combined,
    combined_by_all,
    copy,
    cut,
    is_copy,
    joined,
    part,
    same_span,
    shrunk,
)

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


class Devices:
    """The devices that local values are of, and how elements move between them: all devices, by copies.

    A subclass may compute the values of some devices only.
    """

    def computed(self, n: int) -> Sequence[int]:
        """Return the numbers of the devices, of `n`, whose values are computed."""
        return range(n)

    def parts(self, b: UOp) -> list[UOp]:
        """Return the part of the BUFFER `b` on each computed device."""
        return list(shards_of(b))

    def fetched(self, s: UOp, values: Sequence[UOp], layout: Layout, i: int, names: Sequence[str]) -> UOp:
        """Return the part of `s` that device `i` of `names` has in `layout`. `values`: the local values of `s`."""
        return fetched(s, values, layout, i, names)

    def totals(
        self, op: str, partial: Sequence[UOp], layout: Layout, summed: Sequence[int], names: Sequence[str]
    ) -> list[UOp]:
        """Return on each computed device the values `partial`, combined by `op` over the devices of `names` that differ
        in the pairs numbered `summed` of `layout` only.
        """
        out: dict[int, UOp] = {}
        for i in range(len(names)):
            if i not in out:
                group = neighbours(layout, i, len(names), summed)
                combined = totals(op, [partial[j] for j in group], [names[j] for j in group])
                out |= zip(group, combined, strict=True)
        return [out[i] for i in range(len(names))]


def local_values(roots: Sequence[UOp], where: Devices | None = None) -> dict[UOp, list[UOp]]:
    """Return for each node below `roots` its value for each device; one value for a node on one device or on none.

    `where`: the devices to compute values for; None for all.
    """
    where = where or Devices()
    local: dict[UOp, list[UOp]] = {}
    order = toposort(*roots)
    written = {view for u in order if u.op in ("STORE", "ATOMICADD") for view in _views_of_target(u.src[0])}
    for u in order:
        local[u] = _Node(u, local, u in written, where).values()
    return local


def _views_of_target(target: UOp) -> Iterator[UOp]:
    """Yield the views from the target of a STORE or ATOMICADD to its memory."""
    while target.op in _VIEWS:
        yield target
        target = target.src[0]


class Move(NamedTuple):
    """A transfer of `n_bytes` between devices, in all copies that the node `user` needs. `collective` is one of the
    specification's (broadcast, scatter, gather, allgather, allreduce), alltoall for a value whose shard axis changes,
    copy, or parts: `value` is made of parts of a copied value, and nothing else of that moves.
    """

    collective: str
    value: UOp
    user: UOp
    n_bytes: int


def moves(roots: Sequence[UOp]) -> list[Move]:
    """Return what the graphs of `roots` move between devices. A copy that several nodes need is of the first."""
    local = local_values(roots)
    reached = {*toposort(*(v for r in roots for v in local[r]))}
    seen: set[UOp] = set()
    found = []
    for u in toposort(*roots):
        copies = [v for v in _unseen(local[u], seen) if _crosses_devices(v)]
        used = [v for v in copies if v in reached]
        if used:
            name, value = _collective(u) if len(used) == len(copies) else ("parts", u)
            found.append(Move(name, value, u, sum(map(_bytes_moved, used))))
    return found


def _unseen(values: Sequence[UOp], seen: set[UOp]) -> Iterator[UOp]:
    """Yield the nodes of the graphs of `values` that are not in `seen`, and add them."""
    pending = [*values]
    while pending:
        u = pending.pop()
        if u not in seen:
            seen.add(u)
            pending += u.src
            yield u


def _crosses_devices(u: UOp) -> bool:
    """Whether `u` moves elements from one device to another: a LOAD, or the allreduce of several processes."""
    if u.op == "CALL":
        return len({device_of(s) for s in u.src[1:]}) > 1
    return is_copy(u) and device_of(u.src[0]) not in (None, u.arg.device)


def _bytes_moved(u: UOp) -> int:
    """Return the bytes that the LOAD or allreduce `u` moves; a symbolic size counts as its maximum."""
    n_bytes = size_max(count(u.src[-1].shape)) * u.src[-1].dtype.itemsize
    return n_bytes if u.op == "LOAD" else 2 * n_bytes * (len({device_of(s) for s in u.src[1:]}) - 1)


def _collective(u: UOp) -> tuple[str, UOp]:
    """Return the name of the collective of the node `u`, and the value that it moves."""
    if u.op == "LOAD":
        return _name_of_copy(u), u.src[0]
    if u.op in ("REDUCE", "AFTER"):
        return "allreduce", u
    here = _Node(u, {}, False, Devices())
    for k, s in enumerate(u.src):
        if is_on_several(s) and s.dtype.kind != "v":
            now, at = axes_of(axis_of(s)), axes_of(here.layout_in(s, k))
            if now - at:
                return ("alltoall" if at - now else "allgather"), s
    return "parts", u


def _name_of_copy(u: UOp) -> str:
    """Return the name of the collective that the LOAD `u` to a device or to several is."""
    source, is_to_several = u.src[0], isinstance(u.arg.device, tuple)
    now, at = axes_of(axis_of(source)), axes_of(u.arg.axis) if is_to_several else frozenset()
    if not is_on_several(source):
        return "copy" if not is_to_several else "scatter" if at else "broadcast"
    if not is_to_several:
        return "gather" if now else "copy"
    return "copy" if now <= at else "alltoall" if at else "allgather"


class _Node:
    """One node of the graph whose sources have local values. `is_written`: it is a view in the target of a STORE."""

    def __init__(self, u: UOp, local: dict[UOp, list[UOp]], is_written: bool, where: Devices):
        self.u, self.local, self.is_written, self.where = u, local, is_written, where
        found = device_of(u)
        self.devices: tuple[str, ...] = found if isinstance(found, tuple) else ()
        self.n = len(self.devices)
        self.here = where.computed(self.n)  # the devices whose values are computed
        self.layout: Layout = axis_of(u) if self.devices else None

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
            return self.where.parts(u)
        if u.op == "AFTER" and (found := self.scattered()) is not None:
            return found
        if u.op in ELEMENTWISE or u.op == "STACK" or u.op in ("STORE", "ATOMICADD", "INDEX", *_EFFECTS):
            if u.op == "STORE" and is_on_several(u.src[0]):
                self.check_target()
            return [rebuild(u, tuple([self.operand(s, k, i) for k, s in enumerate(u.src)])) for i in self.here]
        if u.op == "REDUCE":
            return self.reduced()
        if u.op == "LOAD" or u.op in _LOCAL:
            return [rebuild(u, (self.local[u.src[0]][i], *u.src[1:])) for i in self.here]
        if u.op in ("RESHAPE", "EXPAND", "PAD", "SHRINK"):
            return [self.moved(self.local[u.src[0]][i], i) for i in self.here]
        if u.op == "REPLICATED":
            return [self.replicated(self.local[u.src[0]][i]) for i in self.here]
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
        at = self.layout_in(s, k)
        if is_on_several(s) or device_of(s) is not None:
            return self.where.fetched(s, self.local[s], at, i, self.devices)
        return part(self.local[s][0], at, i, self.n)

    def layout_in(self, s: UOp, k: int) -> Layout:
        """Return the layout of source `k`, the node `s`, that this node needs: its own, over the axes of the source."""
        return mapped(self.layout, self.n, lambda a, _: self.axis_in(s, k, a))

    def axis_in(self, s: UOp, k: int, axis: int) -> int | None:
        """Return the axis of source `k`, the node `s`, that `axis` of this node is; None if it has none."""
        u = self.u
        if u.op == "INDEX":
            return self.axis_in_index(k, axis)
        shape = u.src[0].shape if u.op == "STORE" else u.shape
        at = axis - (len(shape) - len(s.shape))
        return at if at >= 0 and (s.shape[at] != 1 or shape[axis] == 1) else None

    def axis_in_index(self, k: int, axis: int) -> int | None:
        """Return the axis of source `k` of an INDEX that `axis` of the result is; None if it has none."""
        _, *indices = self.u.src
        first = 0
        for j, i in enumerate(indices, 1):
            if first <= axis < first + len(i.shape):
                return axis - first if k == j else None
            first += len(i.shape)
        return axis - first + len(indices) if k == 0 else None

    # ---- movement ----------------------------------------------------------------------------------------------------
    def moved(self, v: UOp, i: int) -> UOp:
        """Return a movement op of `v`, the value on device `i`; it repeats a sharded axis of size 1 on each device."""
        u = self.u
        if u.op == "EXPAND":
            v = self.where.fetched(u.src[0], self.local[u.src[0]], self.layout, i, self.devices)
        *offsets, sizes = u.src[1:]
        if u.op == "SHRINK" and not self.is_written:
            spans = zip(offsets[0].sizes, part_shape(sizes.sizes, self.layout, i, self.n), strict=True)
            return shrunk(v, [*spans])
        return build(u.op, v, *offsets, shape_source(part_shape(sizes.sizes, self.layout, i, self.n)))

    def replicated(self, v: UOp) -> UOp:
        """Return element 0 of the axis of a REPLICATED, of the local value `v`."""
        a, source = self.u.arg, self.u.src[0]
        shape = (*v.shape[:a], 1, *v.shape[a + 1 :])
        if a in axes_of(axis_of(source)) and source.shape[a] != (n := self.parts_along(a)):
            expected, found = f"{n} elements, one a device", f"axis {a} of {source.shape}"
            raise DeviceError("REPLICATED of an axis of several elements a device", expected=expected, found=found)
        if shape != v.shape:
            v = build("SHRINK", v, shape_source((0,) * len(shape)), shape_source(shape))
        return build("RESHAPE", v, shape_source((*shape[:a], *shape[a + 1 :])))

    def parts_along(self, axis: int) -> int:
        """Return the number of parts of `axis` of source 0."""
        return prod(count for count, a in pairs_of(axis_of(self.u.src[0]), self.n) if a == axis)

    # ---- what moves data ---------------------------------------------------------------------------------------------
    def reduced(self) -> list[UOp]:
        """Return a REDUCE on each device; along the shard axis the partial results of all devices are combined."""
        u = self.u
        source = u.src[0]
        partial = [rebuild(u, (self.local[source][i], *u.src[1:])) for i in self.here]
        summed = [k for k, (_, a) in enumerate(pairs_of(axis_of(source), self.n)) if a in u.arg[1]]
        if not summed:
            return partial
        return self.where.totals(u.arg[0], partial, axis_of(source), summed, self.devices)

    def scattered(self) -> list[UOp] | None:
        """Return an AFTER that adds to zeros at the indices of gathered rows: each device adds its own rows, and the
        results are combined, as in REDUCE. None for any other AFTER, and where the rows are smaller than the results.
        """
        zeros, *effects = self.u.src
        add = effects[0] if len(effects) == 1 and effects[0].op == "ATOMICADD" else None
        if add is None or len(add.src[0].src) != 2 or add.src[0].src[0] is not zeros or not _is_zeros(zeros):
            return None
        if device_of(zeros) != self.devices or axis_of(zeros) is not None:
            return None
        index, rows = (s.src[0] if s.op == "LOAD" else s for s in (add.src[0].src[1], add.src[1]))
        if device_of(rows) != self.devices or count(rows.shape) < 2 * count(zeros.shape):
            return None
        at = mapped(axis_of(rows), self.n, lambda a, _: a if a < len(index.shape) else None)
        if at is None:
            return None
        partial = []
        for i in self.here:
            own, there = (self.where.fetched(s, self.local[s], at, i, self.devices) for s in (rows, index))
            memory = self.local[zeros][i]
            partial.append(build("AFTER", memory, build("ATOMICADD", build("INDEX", memory, there), own)))
        summed = [k for k, (_, a) in enumerate(pairs_of(at, self.n)) if a is not None]
        return self.where.totals("ADD", partial, at, summed, self.devices)

    def copied(self) -> list[UOp]:
        """Return the LOAD to another device or to several: a COPY of the specification, in the layout of its arg."""
        u = self.u
        if len(u.src) > 1:
            raise DeviceError(
                "a gated copy to or from several devices", expected="no gate", found=f"{len(u.src)} sources"
            )
        names = self.devices or (u.arg.device,)
        here = self.where.computed(len(names))
        return [self.where.fetched(u.src[0], self.local[u.src[0]], self.layout, i, names) for i in here]


def _is_zeros(u: UOp) -> bool:
    """Whether `u` is memory of a computed value that is 0 everywhere."""
    below = u.src[0] if u.src else u
    while below.op in ("LOAD", "EXPAND", "RESHAPE"):
        below = below.src[0]
    return u.op == "CONTIGUOUS" and below.op == "CONST" and below.value == 0 and count(u.shape).__class__ is int


def fetched(s: UOp, values: Sequence[UOp], layout: Layout, i: int, names: Sequence[str]) -> UOp:
    """Return the part of the value `s` that device `i` of `names` has in `layout`, copied to that device.

    `values`: the local values of `s`. Only elements of the part are copied, from the device itself where it has them.
    """
    name, now = names[i], axis_of(s)
    home = device_of(s) if is_on_several(s) else (device_of(s),)
    nearest = home.index(name) if name in home else 0
    wanted = box(s.shape, layout, i, len(names))
    held = [box(s.shape, now, j, len(home)) for j in range(len(home))]
    differ = [a for a in range(len(s.shape)) if not same_span(wanted[a], held[nearest][a])]

    def gathered(j: int, axes: Sequence[int], cuts: Sequence[tuple[int, Any, Any]]) -> UOp:
        """Return the wanted elements along `axes` of device `j` and of those that differ from it along `axes`. `cuts`:
        (axis, offset, size) of the wanted elements along the other axes.
        """
        if not axes:
            v = values[j]
            for a, start, size in cuts:
                v = cut(v, a, start, size)
            return copy(v, name)
        (a, *rest), (start, size) = axes, wanted[axes[0]]
        along = [k for k, (_, b) in enumerate(pairs_of(now, len(home))) if b == a]
        if not along:
            return gathered(j, rest, [*cuts, (a, start, size)])
        others = neighbours(now, j, len(home), along)
        if s.shape[a].__class__ is not int:
            v = joined([gathered(q, rest, cuts) for q in others], a)
            return v if same_span((start, size), (0, s.shape[a])) else cut(v, a, start, size)
        pieces = []
        for q in others:
            at, n = held[q][a]
            first, end = max(start, at), min(start + size, at + n)
            if first < end:
                pieces.append(gathered(q, rest, cuts if end - first == n else [*cuts, (a, first - at, end - first)]))
        return joined(pieces, a) if pieces else gathered(j, rest, [*cuts, (a, 0, 0)])

    return gathered(nearest, differ, [])


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
        return combined_by_all(op, partial, names)
    if n_bytes < MIN_SCATTERED_BYTES or len({engine(name) for name in names}) == 1:
        total = combined(op, partial, names[0])
        return [copy(total, name) for name in names]
    flat = [build("RESHAPE", p, shape_source((prod(shape),))) for p in partial]
    parts = [combined(op, [part(v, 0, i, n) for v in flat], name) for i, name in enumerate(names)]
    return [build("RESHAPE", joined([copy(p, name) for p in parts], 0), shape_source(shape)) for name in names]


__all__ = ["Devices", "Move", "is_on_several", "local_values", "moves", "shard", "shards_of"]
