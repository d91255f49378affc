"""Check that operands are on one device, and concatenate operands."""

from __future__ import annotations

from monolect.autograd import gradient
from monolect.autograd.graph import cast
from monolect.base.dtype import promote
from monolect.base.errors import DeviceError, ShapeError
from monolect.ir.placement import axis, device, on_one_mesh
from monolect.ir.uop import UOp


def same_device(*uops: UOp) -> None:
    """Raise DeviceError unless all operands are on the same device; constants have none.

    If one operand is on several devices, others may be on one device: they are copied later. Two operands on
    different sets of several devices raise, and so do two on different meshes of the same devices.
    """
    found = None
    for u in uops:
        d = device(u)
        if d is not None and d is not found:
            if found is not None and d != found:
                if isinstance(d, tuple) != isinstance(found, tuple):
                    found = d if isinstance(d, tuple) else found
                    continue
                raise DeviceError(
                    "operands live on different devices", expected=f"both on {found!r} (use .to)", found=repr(d)
                )
            found = d
    if isinstance(found, tuple) and any(isinstance(axis(u), tuple) for u in uops):
        on_one_mesh("an operator", uops, len(found))


def join(us: list[UOp], axis: int) -> UOp:
    """Return the concatenation of `us` along `axis`, in their promoted dtype.

    Raises DeviceError if they are on different devices, ShapeError if shapes differ along another axis.
    """
    same_device(*us)
    dtype = promote(*(u.dtype for u in us))
    us = [cast(u, dtype) for u in us]
    first = us[0].shape
    for u in us:
        if len(u.shape) != len(first) or any(
            i != axis and m != n for i, (m, n) in enumerate(zip(u.shape, first, strict=True))
        ):
            raise ShapeError(f"cat: shapes differ outside axis {axis}", expected=first, found=u.shape)
    us = [u for u in us if not (u.shape[axis].__class__ is int and u.shape[axis] == 0)] or us[:1]
    if len(us) == 1:
        return us[0]
    return gradient.cat(us, axis)


__all__ = ["join", "same_device"]
