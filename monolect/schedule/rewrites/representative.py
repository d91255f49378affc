"""Replace values on several devices by those of the first device: the share of one device in a symmetric program.

What it is for: a simulation. All devices run one program, so the first one tells what thousands do. The rules of
`shard.py` give its local values; what it exchanges with the others is a CALL that names the collective
(`ir/collective.py`).
What it is not: a program that runs. It refuses values that only some of the devices have, such as stages of a pipeline.

Before: MUL(BUFFER on (a, b, ..), CONST), REDUCE(x divided over (a, b, ..))
After:  MUL(BUFFER on a, CONST), AFTER(B1 on a, CALL(allreduce of n, B1, REDUCE(x on a)))

Invariant: after the pass no value has a tuple device. The part of the first device is the largest of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from monolect.base.errors import DeviceError
from monolect.ir.collective import Exchange, exchanged
from monolect.ir.layout import Layout, axes_of, box, pairs_of, part_shape
from monolect.ir.placement import axis as axis_of
from monolect.ir.placement import device as device_of
from monolect.ir.uop import UOp, build, new_buffer, rebuild, shape_source
from monolect.schedule.rewrites.parts import copy, cut, is_widened, longer_view, makers, shrunk
from monolect.schedule.rewrites.shard import Devices, is_on_several, local_values

Group = tuple[tuple[int, int], ...]  # (number, distance) of the devices along axes of the mesh, as in `Exchange`

_parts: WeakKeyDictionary[UOp, UOp] = WeakKeyDictionary()  # the part of the first device of BUFFERs on several


def representative(roots: Sequence[UOp]) -> list[UOp]:
    """Return the value of the first device for each root. Raises DeviceError for values that only some devices have."""
    local = local_values(roots, First())
    return [local[r][0] for r in roots]


def part_of_first(b: UOp) -> UOp:
    """Return the part of the first device of `b`, a BUFFER on several: a BUFFER without memory, one for each `b`."""
    if b not in _parts:
        _parts[b] = new_buffer(part_shape(b.shape, b.arg.axis, 0, len(b.arg.device)), b.dtype, b.arg.device[0])
    return _parts[b]


class First(Devices):
    """The first of several devices. It exchanges elements with the others by collectives."""

    def __init__(self) -> None:
        self.known: dict[tuple[Exchange, UOp, tuple[int, ...]], UOp] = {}
        self.cutting: Group = ()  # the devices among which a value is being divided

    def computed(self, n: int) -> Sequence[int]:
        return (0,)

    def parts(self, b: UOp) -> list[UOp]:
        return [part_of_first(b)]

    def fetched(self, s: UOp, values: Sequence[UOp], layout: Layout, i: int, names: Sequence[str]) -> UOp:
        """Return the part of the first device. All its elements along an axis are from 0 on."""
        if not is_on_several(s):
            return self.spread(s, values[0], layout, names)
        v, now, home = values[0], axis_of(s), device_of(s)
        if home[0] != names[0] or (len(names) > 1 and home != tuple(names)):
            raise _asymmetric(home, names)
        at = pairs_of(layout, len(names))
        wanted, held = (
            [size for _, size in box(s.shape, x, 0, n)] for x, n in ((layout, len(names)), (now, len(home)))
        )
        name = "alltoall" if axes_of(layout) - axes_of(now) else "allgather"
        for a, (size, own) in enumerate(zip(wanted, held, strict=True)):
            if size.__class__ is not int or own.__class__ is not int:
                raise DeviceError("a simulated value", expected="constant sizes", found=s.shape)
            if size < own:
                with self.divides(innermost(at, a, -(-own // size) if size else 1)):
                    v = cut(v, a, 0, size)
        for a, (size, own) in enumerate(zip(wanted, held, strict=True)):
            if size > own:
                group = innermost(pairs_of(now, len(home)), a, -(-size // own))
                v = self.gathered(v, a, size, Exchange(name, group))
        return v

    def spread(self, s: UOp, v: UOp, layout: Layout, names: Sequence[str]) -> UOp:
        """Return the part of the value `v` of `s`, which is on one device or on none: on the first, or on one that each
        process has.
        """
        home = device_of(s)
        v = shrunk(v, [(0, size) for _, size in box(s.shape, layout, 0, len(names))])
        if home in names[1:]:
            raise _asymmetric(home, names)
        return self.broadcast(v, len(names)) if home == names[0] and len(names) > 1 else copy(v, names[0])

    def broadcast(self, v: UOp, n: int) -> UOp:
        """Return `v`, which the first device sends to all `n`; below views that repeat or reorder elements."""
        if v.op in ("EXPAND", "RESHAPE", "PERMUTE") or is_widened(v):
            return rebuild(v, (self.broadcast(v.src[0], n), *v.src[1:]))
        return self.result(Exchange("broadcast", ((n, 1),)), v, v.shape)

    def totals(
        self, op: str, partial: Sequence[UOp], layout: Layout, summed: Sequence[int], names: Sequence[str]
    ) -> list[UOp]:
        pairs = [*_with_distances(pairs_of(layout, len(names)))]
        return [self.total(partial[0], tuple([(n, far) for n, far, _ in (pairs[k] for k in summed)]))]

    # ---- collectives -------------------------------------------------------------------------------------------------
    def result(self, e: Exchange, v: UOp, shape: tuple[int, ...]) -> UOp:
        """Return the result of a collective; one for equal arguments."""
        key = e, v, shape
        if key not in self.known:
            self.known[key] = exchanged(e, v, shape)
        return self.known[key]

    def gathered(self, v: UOp, axis: int, size: int, e: Exchange) -> UOp:
        """Return `v` with the elements of the other devices: `size` along `axis`. Only what is below views moves."""

        def longer(at: int) -> UOp:
            return self.gathered(v.src[0], at, size * v.src[0].shape[at] // v.shape[axis], e)

        found = longer_view(v, axis, size, longer)
        if found is not None:
            return found
        parts = self.result(e, v, (e.n, *v.shape))
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(v.shape) + 1)]
        shape = (*v.shape[:axis], e.n * v.shape[axis], *v.shape[axis + 1 :])
        whole = build("RESHAPE", build("PERMUTE", parts, arg=tuple(order)), shape_source(shape))
        return cut(whole, axis, 0, size)

    def total(self, v: UOp, group: Group) -> UOp:
        """Return the sum of `v` over the devices of `group`: an allreduce, of a part that is cut a reduce_scatter."""
        out = self.result(Exchange("allreduce", group), v, v.shape)
        makers[out] = lambda axis, start, size: self.part_of_total(v, v, group, axis, size) if self.cutting else None
        return out

    def part_of_total(self, v: UOp, now: UOp, group: Group, axis: int, size: int) -> UOp:
        """Return the first `size` elements along `axis` of the sum of `v` over the devices of `group`, of which the
        first device keeps a part of the shape of `now`.

        Devices that do not add to the sum need a part of it each, and add up no more than that.
        """
        shape = (*now.shape[:axis], size, *now.shape[axis + 1 :])
        if not _overlap(self.cutting, group):
            is_whole, v = now is v, cut(v, axis, 0, size)
            if is_whole:
                return self.total(v, group)
        out = self.result(Exchange("reduce_scatter", group), v, shape)
        makers[out] = lambda axis, start, size: self.part_of_total(v, out, group, axis, size) if self.cutting else None
        return out

    @contextmanager
    def divides(self, group: Group) -> Iterator[None]:
        """In the block, parts that are cut are those of the devices of `group`."""
        outer, self.cutting = self.cutting, group
        try:
            yield
        finally:
            self.cutting = outer


def innermost(pairs: Sequence[tuple[int, int | None]], axis: int, m: int) -> Group:
    """Return the devices that hold the first `m` parts of `axis`; the first part is that of the first device."""
    out: list[tuple[int, int]] = []
    for n, far, a in reversed([*_with_distances(pairs)]):
        if a == axis and m > 1:
            out.append((min(n, m), far))
            m = -(-m // n)
    return tuple(reversed(out))


def _with_distances(pairs: Sequence[tuple[int, int | None]]) -> Iterator[tuple[int, int, Any]]:
    """Yield (number of parts, distance of devices with neighbouring parts, axis) for each pair of a layout."""
    far = prod(n for n, _ in pairs)
    for n, a in pairs:
        far //= n
        yield n, far, a


def _overlap(a: Group, b: Group) -> bool:
    """Whether two groups divide the mesh along a common axis."""
    return any(max(far, other) < min(n * far, m * other) for n, far in a for m, other in b)


def _asymmetric(home: Any, names: Sequence[str]) -> DeviceError:
    """Return (not raise) the error for values that only some of the devices have."""
    expected = "one program on all devices: values on the whole mesh, or on its first device"
    return DeviceError(
        "a simulation of devices that run different programs", expected=expected, found=_short(home, names)
    )


def _short(home: Any, names: Sequence[str]) -> str:
    """Return where a value is and where it is needed, without thousands of names."""
    here, there = ((x,) if isinstance(x, str) else tuple(x) for x in (home, names))
    return " and ".join(f"{len(d)} devices from {d[0]}" for d in (here, there))


__all__ = ["First", "innermost", "part_of_first", "representative"]
