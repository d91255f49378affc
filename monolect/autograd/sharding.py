"""Build the graphs that move a value to several devices: sharded along an axis, or whole on each.

Each is a composition of the ops of the specification: a LOAD to a tuple of devices (its COPY) divides axis 0, and
REPLICATED drops an axis; each device holds one element along it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from monolect.base.errors import DeviceError
from monolect.ir.ops import LoadArg
from monolect.ir.placement import axis as axis_of
from monolect.ir.placement import device as device_of
from monolect.ir.uop import UOp, build, shape_source

Devices = str | tuple[str, ...]


class _Use:
    """Hold the flag `found`: whether any value of this process was ever put on several devices.

    While it is False, the functions of `graph` skip all work for several devices.
    """

    found = False


use = _Use()


def copied(u: UOp, devices: Devices) -> UOp:
    """Return `u` on the device `devices`, or divided along axis 0 over the tuple `devices`.

    Raises DeviceError if `u` is to be divided and has no axis.
    """
    use.found = use.found or isinstance(devices, tuple)
    if is_at(u, devices, 0):
        return u
    out = build("LOAD", u, arg=LoadArg(devices, "GLOBAL"))
    device_of(out)  # raises if there is no axis
    return out


def sharded(u: UOp, devices: tuple[str, ...], axis: int) -> UOp:
    """Return `u` divided along `axis` over `devices`."""
    if is_at(u, devices, axis):
        return u
    rest = [a for a in range(len(u.shape)) if a != axis]
    divided = copied(build("PERMUTE", u, arg=(axis, *rest)), devices)
    return build("PERMUTE", divided, arg=(*range(1, axis + 1), 0, *range(axis + 1, len(u.shape))))


def replicated(u: UOp, devices: tuple[str, ...]) -> UOp:
    """Return `u` whole on each of `devices`."""
    if is_at(u, devices, None):
        return u
    n = len(devices)
    one = build("RESHAPE", u, shape_source((1, *u.shape)))
    return build("REPLICATED", copied(build("EXPAND", one, shape_source((n, *u.shape))), devices), arg=0)


def to_devices_of(u: UOp, like: UOp) -> UOp:
    """Return `u` on the devices of `like`, sharded along the same axis; unchanged if `like` has no device."""
    devices = device_of(like)
    return u if devices is None else moved(u, devices, axis_of(like))


def moved(u: UOp, devices: Devices, axis: int | None) -> UOp:
    """Return `u` on `devices`: on several, sharded along `axis`, or whole on each if `axis` is None."""
    if not isinstance(devices, tuple):
        return copied(u, devices)
    return replicated(u, devices) if axis is None else sharded(u, devices, axis)


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


def whole_along(u: UOp, axes: Iterable[int]) -> UOp:
    """Return `u`; if it is divided over devices along one of `axes`, its copy that is whole on each of them.

    An op that moves elements along these axes needs that.
    """
    a = axis_of(u)
    return replicated(u, device_of(u)) if a is not None and a in axes else u


def whole_to_resize(u: UOp, sizes: Iterable[Any]) -> UOp:
    """Return `u`; if it is divided over devices along an axis whose size differs in `sizes`, its copy that is whole on
    each of them.

    A part or a padding of `u` with the sizes `sizes` needs that.
    """
    return whole_along(u, [a for a, (n, m) in enumerate(zip(sizes, u.shape, strict=True)) if n is not m and n != m])


def whole_to_reshape(u: UOp, shape: tuple[Any, ...]) -> UOp:
    """Return `u`; if a RESHAPE to `shape` would cut the parts into which devices divide `u`, its copy that is whole on
    each device.
    """
    a = axis_of(u)
    if a is None:
        return u
    before, n = prod(u.shape[:a]), len(device_of(u))
    is_even = u.shape[a].__class__ is int and u.shape[a] % n == 0
    at = (m for i, m in enumerate(shape) if prod(shape[:i]) == before and m.__class__ is int)
    fits = any(m == u.shape[a] or (is_even and m > 1 and m % n == 0) for m in at)
    return u if fits else replicated(u, device_of(u))


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


def is_at(u: UOp, devices: Any, axis: int | None) -> bool:
    """Whether `u` is on `devices`, one name or a tuple.

    On a tuple it must also be divided along `axis`, or be whole on each device if `axis` is None.
    """
    return bool(device_of(u) == devices) and (not isinstance(devices, tuple) or axis_of(u) == axis)


__all__ = [
    "Devices",
    "added_at",
    "copied",
    "gradient_at",
    "leaves_parts",
    "moved",
    "passed_to",
    "to_devices_of",
    "replicated",
    "sharded",
    "use",
    "whole",
    "whole_along",
    "whole_to_reshape",
    "whole_to_resize",
]
