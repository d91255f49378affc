"""Find the common dtype of operands, check that they are on one device, and concatenate operands."""

from __future__ import annotations

from monolect.autograd import gradient
from monolect.autograd.graph import cast, e, where
from monolect.base.dtype import DType, dtypes, promote
from monolect.base.errors import DeviceError, ShapeError
from monolect.ir.placement import axis, device, on_one_mesh
from monolect.ir.uop import UOp


def common_dtype(*us: UOp) -> DType:
    """Return the dtype of an operation of the nodes `us`, as `torch.result_type` does.

    Nodes with axes promote among themselves, and so do nodes without axes. The latter count only if their category
    (bool, integer, float) is higher. A number counts as a node without axes: the caller gave it a dtype.
    """
    if len(us) == 2 and us[0].dtype is us[1].dtype and us[0].dtype.kind != "s":
        return us[0].dtype
    high = [u.dtype for u in us if u.shape]
    low = [u.dtype for u in us if not u.shape]
    d, zero = (dtypes.float32 if d.kind == "s" else d for d in (promote(*(high or low)), promote(*(low or high))))
    return promote(d, zero) if d is dtypes.bool or zero.is_float and not d.is_float else d


def promoted(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """Return both nodes cast to their promoted dtype, the common dtype of a binary operation by PyTorch's rules."""
    if a.dtype is b.dtype:
        if a.dtype.kind != "s":
            return a, b
        return cast(a, dtypes.float32), cast(b, dtypes.float32)
    d = common_dtype(a, b)
    return cast(a, d), cast(b, d)


def by_value(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """Return both nodes in the dtype in which they are compared: integers in one that holds the values of both."""
    d = common_dtype(a, b)
    d = d if d.is_float else promote(a.dtype, b.dtype)
    return cast(a, d), cast(b, d)


def nearest(u: UOp, dtype: DType) -> UOp:
    """Return `u` in `dtype`; an integer without axes that an integer `dtype` does not hold becomes the nearest one."""
    if not u.shape and u.dtype.is_int and dtype.is_int:
        low, high = max(u.dtype.min, dtype.min), min(u.dtype.max, dtype.max)
        if low > u.dtype.min:
            u = where(e("CMPLT", u, low), low, u)
        if high < u.dtype.max:
            u = where(e("CMPGT", u, high), high, u)
    return cast(u, dtype)


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


__all__ = ["by_value", "common_dtype", "join", "nearest", "promoted", "same_device"]
