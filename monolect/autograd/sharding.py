"""Build the graphs that move a value to several devices: divided in a layout, or whole on each.

Each is a LOAD to the devices, the specification's COPY with a layout. An operand that an op needs whole on each device
is copied before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from monolect.base.errors import DeviceError
from monolect.ir.bounds import size_max
from monolect.ir.layout import Layout, axes_of, layout_of, mapped
from monolect.ir.ops import LoadArg
from monolect.ir.placement import axis as axis_of
from monolect.ir.placement import device as device_of
from monolect.ir.placement import on_one_mesh
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build

Devices = str | tuple[str, ...]


class _Use:
    """Hold the flag `found`: whether any value of this process was ever put on several devices.

    While it is False, the functions of `graph` skip all work for several devices.
    """

    found = False


use = _Use()


def moved(u: UOp, devices: Devices, layout: Layout) -> UOp:
    """Return `u` on `devices`: on one, or on several in `layout`: divided along an axis, whole on each if None, or
    divided over a mesh.

    Raises DeviceError if `u` is to be divided and has no axis.
    """
    use.found = use.found or isinstance(devices, tuple)
    if is_at(u, devices, layout):
        return u
    out = build("LOAD", u, arg=LoadArg(devices, "GLOBAL", axis=layout if isinstance(devices, tuple) else 0))
    device_of(out)  # raises if there is no such axis
    return out


def copied(u: UOp, devices: Devices) -> UOp:
    """Return `u` on the device `devices`, or divided along axis 0 over the tuple `devices`."""
    return moved(u, devices, 0)


def replicated(u: UOp, devices: tuple[str, ...]) -> UOp:
    """Return `u` whole on each of `devices`."""
    return moved(u, devices, None)


def to_devices_of(u: UOp, like: UOp) -> UOp:
    """Return `u` on the devices of `like`, in its layout; unchanged if `like` has no device."""
    devices = device_of(like)
    return u if devices is None else moved(u, devices, axis_of(like))


def gradient_at(u: UOp, g: UOp) -> UOp:
    """Return the gradient `g` of `u`, moved to the devices of `u` if `g` or `u` is on several devices."""
    if not use.found:
        return g
    return to_devices_of(g, u) if isinstance(device_of(g), tuple) or isinstance(device_of(u), tuple) else g


def passed_to(u: UOp, g: UOp) -> UOp:
    """Return the gradient `g` of `u` on the one device of `u`. If `u` is on several devices, `g` is returned unchanged:
    it stays divided as it is until another gradient of `u` is added.
    """
    return gradient_at(u, g) if use.found and isinstance(device_of(u), str) else g


def added_at(u: UOp, g: UOp, more: UOp) -> UOp:
    """Return the sum of two gradients `g` and `more` of `u`, added on the devices of `u` if one of them is on several
    devices.
    """
    return build("ADD", gradient_at(u, g), gradient_at(u, more))


def whole(u: UOp) -> UOp:
    """Return `u`; if it is divided over several devices, its copy that is whole on each of them."""
    return u if axis_of(u) is None else replicated(u, device_of(u))


def on_all_of(u: UOp, *values: UOp) -> tuple[UOp, ...]:
    """Return `values`, each whole on each of the devices of `u`, or of its own if `u` has none; unchanged if all are on
    one device or on none.
    """
    if not use.found or not any(isinstance(device_of(v), tuple) for v in (u, *values)):
        return values
    devices = device_of(u)
    return tuple([moved(v, device_of(v) if devices is None else devices, None) for v in values])


def whole_together(us: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return `us`, each whole on each of the several devices of one of them; unchanged if none is on several. Values
    without a device stay as they are.
    """
    several = next((d for u in us if isinstance(d := device_of(u), tuple)), None)
    return us if several is None else tuple([u if device_of(u) is None else moved(u, several, None) for u in us])


def whole_along(u: UOp, axes: Iterable[int]) -> UOp:
    """Return `u`; if it is divided over devices along some of `axes`, its copy that is not divided along them.

    An op that moves elements along these axes needs that.
    """
    layout, kept = axis_of(u), frozenset(axes)
    if not axes_of(layout) & kept:
        return u
    devices = device_of(u)
    return moved(u, devices, mapped(layout, len(devices), lambda a, _: None if a in kept else a))


def to_index(data: UOp, indices: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return `data` and `indices` as an INDEX needs them: indexed axes are whole on each device, and each axis of a
    mesh divides one operand.

    Where it would divide several, one of them stays divided and the others are gathered, so that the fewest elements
    move. If that is `data`, the result is divided along another axis than the indices, and counts as moved.
    """
    operands = [whole_along(data, range(len(indices))), *indices]
    if sum(axis_of(s) is not None for s in operands) < 2:
        return tuple(operands)
    devices = next(d for s in operands if isinstance(d := device_of(s), tuple))
    counts, axes = on_one_mesh("INDEX", operands, len(devices))
    sizes = [size_max(count(s.shape)) for s in operands]
    n_result = size_max(count((*(n for i in indices for n in i.shape), *data.shape[len(indices) :])))
    for k in range(len(counts)):
        divided = [j for j, axes_of_one in enumerate(axes) if axes_of_one[k] is not None]
        if len(divided) > 1:
            total = sum(sizes[j] for j in divided)
            stays = min(divided, key=lambda j: total - sizes[j] + (0 if j else n_result))
            for j in divided:
                if j != stays:
                    axes[j][k] = None
    layouts = [layout_of(zip(counts, of_one, strict=True)) for of_one in axes]
    return tuple([moved(s, devices, at) if at != axis_of(s) else s for s, at in zip(operands, layouts, strict=True)])


def whole_to_resize(u: UOp, sizes: Iterable[Any]) -> UOp:
    """Return `u`; if it is divided over devices along an axis whose size differs in `sizes`, its copy that is whole on
    each of them.

    A part or a padding of `u` with the sizes `sizes` needs that.
    """
    return whole_along(u, [a for a, (n, m) in enumerate(zip(sizes, u.shape, strict=True)) if n is not m and n != m])


def whole_to_reshape(u: UOp, shape: tuple[Any, ...]) -> UOp:
    """Return `u`; if a RESHAPE to `shape` would cut the parts into which devices divide an axis of `u`, its copy that
    is not divided along that axis.
    """
    layout = axis_of(u)
    if layout is None:
        return u
    devices = device_of(u)
    return moved(u, devices, mapped(layout, len(devices), lambda a, n: a if _is_kept(u.shape, a, n, shape) else None))


def _is_kept(old: tuple[Any, ...], axis: int, n: int, new: tuple[Any, ...]) -> bool:
    """Whether a RESHAPE from the shape `old` to `new` keeps the `n` parts of `axis`."""
    before, size = prod(old[:axis]), old[axis]
    is_even = size.__class__ is int and size % n == 0
    at = (m for i, m in enumerate(new) if prod(new[:i]) == before and m.__class__ is int)
    return any(m == size or (is_even and m > 1 and m % n == 0) for m in at)


def leaves_parts(view: Callable[[UOp], UOp], base: UOp) -> bool:
    """Whether `view(base)` has elements of several parts of a sharded axis of `base`, so that it is no view of memory:
    it is refused, or a view of the value whole on each device.
    """
    if axis_of(base) is None:
        return False
    try:
        u = view(base)
        device_of(u)  # raises if the view cuts parts
    except DeviceError:
        return True
    while u is not base and u.src and u.op not in ("LOAD", "REPLICATED"):
        u = u.src[0]
    return u is not base


def is_at(u: UOp, devices: Any, layout: Layout) -> bool:
    """Whether `u` is on `devices`, one name, or a tuple in `layout`."""
    return bool(device_of(u) == devices) and (not isinstance(devices, tuple) or axis_of(u) == layout)


__all__ = [
    "Devices",
    "added_at",
    "copied",
    "gradient_at",
    "leaves_parts",
    "moved",
    "on_all_of",
    "passed_to",
    "to_devices_of",
    "to_index",
    "replicated",
    "use",
    "whole",
    "whole_along",
    "whole_together",
    "whole_to_reshape",
    "whole_to_resize",
]
