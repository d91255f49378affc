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
        if isinstance(to, tuple) and not _is_divided(u.shape, 0, len(to)):
            expected = f"a first axis that is a multiple of {len(to)}"
            raise DeviceError("LOAD to several devices", expected=expected, found=u.shape)
        return (to or d), there, (0 if isinstance(to, tuple) else None if to else ax)
    if op in ELEMENTWISE or op == "STACK":  # both keep the axis as counted from the right
        return _combine(u)
    if not u.src:
        return None, None, None
    args = u.src[1:] if op in ("FUNCTION", "CALL") and len(u.src) > 1 else u.src  # not the body
    d, space, ax = args[0]._place
    if d is None:  # a constant, places of one, memory that is yet to be filled: where the rest is
        d = next((there for s in args if isinstance(there := s._place[0], str)), None)
    moved = _move_axis(u, ax, len(d) if isinstance(d, tuple) else 1)
    return d, space if op in ("INDEX", "AFTER", "SHRINK", "RESHAPE", "BITCAST") else None, moved


def _combine(u: UOp) -> tuple[Any, str | None, int | None]:
    """Elementwise and STACK: the sources' device and axis, counted from the right because shapes are right-aligned."""
    d, from_right = None, None
    for s in u.src:
        sd, _, sax = s._place
        if sd is not None and d is not None and sd != d:
            raise DeviceError(f"{u.op}: operands live on different devices", expected=d, found=sd)
        d = d or sd
        if sax is not None:
            if from_right not in (None, len(s.shape) - sax):
                found = [f"axis {v._place[2]} of {v.shape}" for v in u.src if v._place[2] is not None]
                raise DeviceError(f"{u.op}: operands are shared along different axes", expected="one axis", found=found)
            from_right = len(s.shape) - sax
    return d, None, None if from_right is None else len(u.shape) - from_right


def _move_axis(u: UOp, ax: int | None, n: int) -> int | None:
    """The axis of `u` along which `n` devices share it, when they share its first source along `ax`."""
    if ax is None:
        return None
    op, old, new = u.op, u.src[0].shape, u.shape
    if op == "PERMUTE":
        return u.arg.index(ax)
    if op == "REDUCE":
        return None if ax in u.arg[1] else ax
    if op == "INDEX" and len(u.src) > 1:
        if ax < len(u.src) - 1:
            raise DeviceError(
                "INDEX into the sharded axis", expected="the axis whole on each device", found=f"axis {ax}"
            )
        return ax - (len(u.src) - 1) + sum(len(i.shape) for i in u.src[1:])
    if op == "FLIP" and u.arg[ax]:
        raise _moved(u, ax, "no FLIP of that axis")
    if op in ("PAD", "SHRINK") and not _same(old[ax], new[ax]):
        raise _moved(u, ax, f"that axis of size {old[ax]}")
    if op == "RESHAPE":
        before = prod(old[:ax])
        axes = (i for i in range(len(new)) if _same(prod(new[:i]), before) and not _same(new[i], 1))
        ax, moved = next(axes, ax), ax
        if not _same(prod(new[:ax]), before) or not _is_divided(new, ax, n):
            raise _moved(u, moved, f"an axis that is a multiple of {n} and begins where axis {moved} does")
    elif op == "BITCAST" and not _is_divided(new, ax, n):
        raise _moved(u, ax, f"a multiple of {n} elements on that axis")
    return ax


def _same(a: Any, b: Any) -> bool:
    return a is b or (a.__class__ is int and b.__class__ is int and a == b)


def _is_divided(shape: tuple, ax: int, n: int) -> bool:
    """Whether `n` devices get equal parts of an axis. One of symbolic size is divided by whoever binds it."""
    return ax < len(shape) and (shape[ax].__class__ is not int or shape[ax] % n == 0)


def _moved(u: UOp, ax: int, expected: str) -> DeviceError:
    """The error for a movement op that needs elements of other devices, with the copy that brings them."""
    d = u.src[0]._place[0]
    copy = f'LOAD of it with LoadArg(device="{d[0]}", addrspace="GLOBAL") before, a copy to one device'
    found = f"{u.src[0].shape} on {len(d)} devices along axis {ax} to {u.shape}"
    return DeviceError(f"{u.op} moves the shard boundary", expected=f"{expected}; or {copy}", found=found)
