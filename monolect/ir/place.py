"""Where a value lives: its device, its address space, and the axis along which several devices share it.

Source: the specification's table of derived properties (device, addrspace, axis).
"""

from __future__ import annotations

from math import prod
from typing import Any

from monolect.base.errors import DeviceError
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.uop import UOp

VIEWS = frozenset(("AFTER", "INDEX", "RESHAPE", "EXPAND", "BITCAST"))


def memory_of(view: UOp) -> UOp:
    """The PARAM or BUFFER below a view."""
    while view.src and view.op not in ("PARAM", "BUFFER"):
        view = view.src[0]
    return view


def is_memory(u: UOp) -> bool:
    """Whether `u` stands for a place in memory rather than a value."""
    while u.op in VIEWS:
        u = u.src[0]
    return u.op == "BUFFER" or (u.op == "PARAM" and u.arg.name is None)


def device(u: UOp) -> Any:
    """The device name of `u`, a tuple of names when it is sharded, None for constants and ranges."""
    return _place(u)[0]


def addrspace(u: UOp) -> str | None:
    """GLOBAL, LOCAL or REG for what lives in memory, None for values."""
    return _place(u)[1]


def axis(u: UOp) -> int | None:
    """The axis along which a tuple of devices shares `u`; None where every device holds all of it."""
    return _place(u)[2]


_places: dict[tuple, tuple] = {}  # equal ones are one object: every node has one


def _place(u: UOp) -> tuple[Any, str | None, int | None]:
    known: tuple[Any, str | None, int | None] | None = u._place
    if known is not None:
        return known
    stack = [u]
    while stack:
        v = stack[-1]
        if v._place is None:
            n_known = len(stack)
            for s in v.src:
                if s._place is None:
                    stack.append(s)
            if len(stack) > n_known:
                continue
            derived = _derive(v)
            v._place = _places.setdefault(derived, derived)
        stack.pop()
    return u._place


def _derive(u: UOp) -> tuple[Any, str | None, int | None]:
    op = u.op
    if op in ("PARAM", "BUFFER"):
        d = u.arg.device
        return d, u.arg.addrspace or ("GLOBAL" if u.shape else None), 0 if isinstance(d, tuple) else None
    if op == "LOAD":
        d, space, ax = u.src[0]._place
        to, there = (None, None) if u.arg is None else (u.arg.device, u.arg.addrspace)
        return (to or d), there, (0 if isinstance(to, tuple) else None if to else ax)
    if op in ELEMENTWISE or op == "STACK":  # both keep the axis as counted from the right
        return _combine(u)
    if not u.src:
        return None, None, None
    args = u.src[1:] if op in ("FUNCTION", "CALL") and len(u.src) > 1 else u.src  # not the body
    d, space, ax = args[0]._place
    if d is None:  # a constant, places of one, memory that is yet to be filled: where the rest is
        d = next((there for s in args if isinstance(there := s._place[0], str)), None)
    if op in ("INDEX", "AFTER", "SHRINK", "RESHAPE", "BITCAST"):
        return d, space, _move_axis(u, ax)
    return d, None, _move_axis(u, ax)


def _combine(u: UOp) -> tuple[Any, str | None, int | None]:
    """Elementwise and STACK: the sources' device and axis, counted from the right because shapes are right-aligned."""
    d, from_right = None, None
    for s in u.src:
        sd, _, sax = s._place
        if sd is not None and d is not None and sd != d:
            raise DeviceError(f"{u.op}: operands live on different devices", expected=d, found=sd)
        d = d or sd
        if sax is not None:
            from_right = len(s.shape) - sax
    return d, None, None if from_right is None else len(u.shape) - from_right


def _move_axis(u: UOp, ax: int | None) -> int | None:
    if ax is None:
        return None
    if u.op == "PERMUTE":
        return u.arg.index(ax)
    if u.op == "REDUCE":
        return None if ax in u.arg[1] else ax
    if u.op == "INDEX" and len(u.src) > 1:
        if ax < len(u.src) - 1:
            raise DeviceError(
                "INDEX into the sharded axis", expected="the axis whole on each device", found=f"axis {ax}"
            )
        return ax - (len(u.src) - 1) + sum(len(i.shape) for i in u.src[1:])
    if u.op == "RESHAPE":
        before = prod(u.src[0].shape[:ax])
        for i in range(len(u.shape)):
            if prod(u.shape[:i]) == before and (u.shape[i] != 1 or u.src[0].shape[ax] == 1):
                return i
        raise DeviceError(
            "RESHAPE moves the shard boundary", expected=f"axis {ax} of {u.src[0].shape} kept", found=u.shape
        )
    return ax
