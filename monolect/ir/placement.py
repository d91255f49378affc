"""Derive where the value of a node is stored: its device, its address space, and how several devices divide it: the
axis that they divide (its sharded axis), or a layout for a mesh. These three are the placement of the node.

On a mesh the rules hold for each axis of the mesh by itself.
Source: the specification's table of derived properties (device, addrspace, axis).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

from monolect.base.errors import DeviceError
from monolect.ir.layout import Layout, axes_of, common_counts, is_layout, layout_of, mapped, refined
from monolect.ir.ops import ELEMENTWISE, ParamArg
from monolect.ir.uop import UOp, node, shape_source

Placement = tuple[Any, str | None, Layout]  # (device, address space, layout)

HOST_KINDS = frozenset(("cpu", "c"))  # kinds of devices whose kernels run on the host's processor

VIEWS = frozenset(("AFTER", "INDEX", "RESHAPE", "EXPAND", "BITCAST"))


def memory_of(view: UOp) -> UOp:
    """Return the PARAM or BUFFER that `view` is a view of: the first one on the chain of first sources.
    If the chain has neither, the last node of the chain is returned, so the caller checks the op.
    """
    while view.src and view.op not in ("PARAM", "BUFFER"):
        view = view.src[0]
    return view


def is_memory(u: UOp) -> bool:
    """Whether `u` denotes memory (a PARAM, a BUFFER or a view of one) rather than a computed value.
    Only AFTER, INDEX, RESHAPE, EXPAND and BITCAST count as views here. The PARAM of a Variable is not memory.
    """
    while u.op in VIEWS:
        u = u.src[0]
    return u.op == "BUFFER" or (u.op == "PARAM" and u.arg.name is None)


def engine(name: str) -> str:
    """Return the device whose kernels compute on the memory of the device `name`.

    `cpu:1` is further memory of the engine `cpu`, because all devices of the host's processor share its threads. Any
    other device is its own engine.
    """
    kind, _, number = name.partition(":")
    return kind if number and kind in HOST_KINDS else name


def device(u: UOp) -> Any:
    """Return the device name of the value of `u`: a tuple of names if several devices hold it, None for constants and
    RANGEs.
    """
    return (u._placement or _placement(u))[0]


def addrspace(u: UOp) -> str | None:
    """Return the address space of `u` if it denotes memory ("GLOBAL", "LOCAL" or "REG"), or None if it is a computed
    value.
    """
    return (u._placement or _placement(u))[1]


def axis(u: UOp) -> Layout:
    """Return the axis along which several devices divide the value of `u`, or its layout on a mesh; None if one device
    holds all of it, or each device does.
    """
    return (u._placement or _placement(u))[2]


def placement(u: UOp) -> Placement:
    """Return the placement of `u`. Equal placements are one object."""
    known: Placement = u._placement or _placement(u)
    return known


def note_value_of(u: UOp, operands: Sequence[UOp]) -> None:
    """Note the placement of `u`, a computed value of `operands`, if all of them are on one device; then the nodes
    between need no placement.
    """
    found: str | None = None
    for s in operands:
        d = device(s)
        if d is not None and d != found:
            if found is not None or d.__class__ is not str:
                return
            found = d
    if found is not None and u._placement is None:
        there = found, None, None
        u._placement = _known_placements.setdefault(there, there)


def param_like(u: UOp, slot: int) -> UOp:
    """Return a PARAM with slot `slot` in global memory, with the shape, dtype, device and sharded axis of `u`."""
    devices, divided = device(u), axis(u) if isinstance(device(u), tuple) else 0
    return node("PARAM", (shape_source(u.shape),), ParamArg(slot, u.dtype, devices, "GLOBAL", axis=divided))


NOWHERE: Placement = (None, None, None)  # of constants
_known_placements: dict[tuple, tuple] = {NOWHERE: NOWHERE}  # interned triples, because each node keeps one


def _placement(u: UOp) -> Placement:
    """Compute the placement of `u`, (device, address space, sharded axis), without recursion; each node caches its
    placement.
    """
    stack = [u]
    while stack:
        v = stack[-1]
        if v._placement is None:
            n = len(stack)
            for s in v.src:
                if s._placement is None:
                    stack.append(s)
            if len(stack) > n:
                continue
            derived = _derive(v)
            v._placement = _known_placements.setdefault(derived, derived)
        stack.pop()
    known: Placement = u._placement
    return known


def _derive(u: UOp) -> Placement:
    """Compute the placement of `u`, (device, address space, sharded axis), from the cached placements of its
    sources. Raises DeviceError for operands on different devices, for an op that would move elements between shards,
    and for a LOAD of a scalar to several devices.
    """
    op = u.op
    if op in ("PARAM", "BUFFER"):
        d = u.arg.device
        there = u.arg.axis if isinstance(d, tuple) else None
        return d, u.arg.addrspace or ("GLOBAL" if u.shape else None), there
    if op == "LOAD":
        d, space, ax = u.src[0]._placement
        to, there = (None, None) if u.arg is None else (u.arg.device, u.arg.addrspace)
        if not isinstance(to, tuple):
            return (to or d), there, None if to else ax
        if not is_layout(u.arg.axis, len(to), len(u.shape)):
            raise DeviceError("LOAD to several devices", expected="an axis to divide", found=(u.arg.axis, u.shape))
        return to, there, u.arg.axis
    if op in ELEMENTWISE or op == "STACK":  # both keep the position of the axis from the right
        return _combine(u)
    if not u.src:
        return NOWHERE
    if op == "GETTUPLE" and u.src[0].op in ("FUNCTION", "CALL"):  # the first argument may be on another device
        d, _, ax = u.src[0].src[0].src[u.arg]._placement
        if d is not None:
            return d, None, ax
    if op == "INDEX" and len(u.src) > 1:
        return _indexed(u)
    args = u.src[1:] if op in ("FUNCTION", "CALL") and len(u.src) > 1 else u.src  # not the body
    d, space, ax = args[0]._placement
    if d is None:  # src[0] is a constant or memory without a device yet: take the device of another source
        d = next((there for s in args if (there := s._placement[0]) is not None), None)
    moved = mapped(ax, len(d), lambda a, n: _move_axis(u, a, n)) if isinstance(d, tuple) else None
    return d, space if op in ("INDEX", "AFTER", "SHRINK", "RESHAPE", "BITCAST") else None, moved


def _combine(u: UOp) -> Placement:
    """Return the placement (device, None, layout) of an elementwise op or STACK `u`, from those of its operands.

    The address space is None because the node is a computed value. If one operand is on a single device and another on
    several, the first is copied to the several devices. The result is sharded over each axis of the mesh along the axis
    of the largest operand that is sharded over it, of equally large ones along the first axis; the others are
    resharded. Axes are counted from the right, because shapes are right-aligned. Raises DeviceError for operands on
    different devices or meshes.
    """
    one = NOWHERE
    for s in u.src:
        p = s._placement
        if p is not one and p is not NOWHERE:
            if one is not NOWHERE and p[0] is not one[0]:
                break
            one = p
    else:
        if one[2] is None and one[0].__class__ is not tuple:  # the most common case: all operands on one device
            return one if one[1] is None else (one[0], None, None)
    d: Any = None
    sharded: tuple[UOp, ...] = ()
    for s in u.src:
        sd, _, layout = s._placement
        if sd is not d and sd is not None:
            d = sd if d is None else joint_device(u.op, d, sd)
        if layout is not None:
            sharded += (s,)
    return d, None, _largest(u, sharded, len(d)) if sharded else None


def _largest(u: UOp, sharded: Sequence[UOp], n: int) -> Layout:
    """Return the layout of an elementwise op or STACK `u` on a mesh of `n` devices, from its sharded operands."""
    counts, axes = on_one_mesh(u.op, sharded, n)
    found: list[int | None] = [None] * len(counts)
    for k in range(len(counts)):
        over_k = [(s, a) for s, of_s in zip(sharded, axes, strict=True) if (a := of_s[k]) is not None]
        if over_k:
            in_result = [(_stored_elements(s), -(len(u.shape) - len(s.shape) + a)) for s, a in over_k]
            found[k] = -max(in_result)[1]
    return layout_of(zip(counts, found, strict=True))


def on_one_mesh(what: str, operands: Sequence[UOp], n: int) -> tuple[tuple[int, ...], list[list[int | None]]]:
    """Return the numbers of parts of a mesh of `n` devices that all operands' meshes are coarser forms of, and the axis
    that each operand divides over each of its axes. Raises DeviceError, which names `what`, if there is no such mesh.
    """
    layouts = [axis(s) for s in operands]
    counts = common_counts(layouts, n)
    axes = [counts and refined(x, n, counts, s.shape) for x, s in zip(layouts, operands, strict=True)]
    if counts is None or not all(axes):
        expected = "operands on one mesh; `shard` or `replicate` one of them before"
        raise DeviceError(f"{what}: operands on different meshes", expected=expected, found=layouts)
    return counts, axes  # type: ignore[return-value]


def _stored_elements(u: UOp) -> int:
    """Return the number of elements of the value below the EXPANDs, RESHAPEs and PERMUTEs of `u`; 0 for a symbolic
    number.
    """
    while u.op in ("EXPAND", "RESHAPE", "PERMUTE"):
        u = u.src[0]
    n = prod(u.shape)
    return n if n.__class__ is int else 0


def joint_device(op: str, a: Any, b: Any) -> Any:
    """Return the device of the result of `op`, with operands on the devices `a` and `b` (a name, a tuple of names or
    None).

    If one of them is a tuple of devices and the other a single device, the result is on the tuple of devices, to which
    the other operand is copied. Raises DeviceError for other operands on different devices. `op`: name of the op, used
    only in the text of the error.
    """
    if a is None or b is None or a == b:
        return b if a is None else a
    if isinstance(a, tuple) != isinstance(b, tuple):
        return a if isinstance(a, tuple) else b
    raise DeviceError(f"{op}: operands live on different devices", expected=a, found=b)


def _indexed(u: UOp) -> Placement:
    """Return the placement (device, address space, layout) of an INDEX `u` with index operands.

    The result is sharded along the sharded axis of its data, if no index is applied to that axis, or along the sharded
    axis of one of the indices. Raises DeviceError if an index is applied to the sharded axis of the data, if two
    operands are sharded over the same devices, or if the devices of the operands conflict.
    """
    data, *indices = u.src
    d, space, ax = data._placement
    for there in (i._placement[0] for i in indices):
        if d is None or isinstance(d, tuple) or isinstance(there, tuple):  # indices of one device may be elsewhere
            d = joint_device("INDEX", d, there)
    if cut := sorted(a for a in axes_of(ax) if a < len(indices)):
        raise DeviceError(
            "INDEX into the sharded axis", expected="the axis whole on each device", found=f"axis {cut[0]}"
        )
    if all(s._placement[2] is None for s in u.src):
        return d, space, None
    *starts, end = accumulate((len(i.shape) for i in indices), initial=0)  # of each index: its axis 0 in the result
    counts, axes = on_one_mesh(u.op, u.src, len(d))
    found: list[int | None] = [None] * len(counts)
    for start, of_s in zip((end - len(indices), *starts), axes, strict=True):
        for k, a in enumerate(of_s):
            if a is not None and found[k] is not None:
                expected, both = "one of them whole on each device", f"axes {found[k]} and {start + a}"
                raise DeviceError("INDEX: two operands are sharded", expected=expected, found=both)
            found[k] = found[k] if a is None else start + a
    return d, space, layout_of(zip(counts, found, strict=True))


def _move_axis(u: UOp, ax: int, n: int) -> int | None:
    """Return the axis along which `u` is sharded into `n` parts, if its first source is sharded along axis `ax`.

    `u`: a movement op, REDUCE, REPLICATED, or an op that keeps the axes of its first source. Returns None if `u` is not
    sharded. Raises DeviceError if computing `u` would need elements of other devices.
    """
    op, old, new = u.op, u.src[0].shape, u.shape
    if op == "PERMUTE":
        return u.arg.index(ax)
    if op == "REDUCE":
        return None if ax in u.arg[1] else ax
    if op == "REPLICATED":
        return None if ax == u.arg else ax - (ax > u.arg)
    if op == "EXPAND" and not _same(old[ax], new[ax]):
        return None
    if op == "FLIP" and u.arg[ax]:
        raise _moved(u, ax, "no FLIP of that axis")
    if op in ("PAD", "SHRINK") and not _same(old[ax], new[ax]):
        raise _moved(u, ax, f"that axis of size {old[ax]}")
    if op == "RESHAPE":
        before = prod(old[:ax])
        begin = [i for i in range(len(new)) if _same(prod(new[:i]), before)]  # axes that begin where this one does
        wider = next((i for i in begin if not _same(new[i], 1)), ax)
        ax, moved = next((i for i in begin if _same(new[i], old[ax])), wider), ax
        fits = ax < len(new) and (_same(new[ax], old[moved]) or (_divides(old[moved], n) and _divides(new[ax], n)))
        if not fits or not _same(prod(new[:ax]), before):
            raise _moved(u, moved, f"an axis that is a multiple of {n} and begins where axis {moved} does")
    elif op == "BITCAST" and not _same(new[ax], old[ax]) and not (_divides(old[ax], n) and _divides(new[ax], n)):
        raise _moved(u, ax, f"a multiple of {n} elements on that axis")
    return ax


def _same(a: Any, b: Any) -> bool:
    return a is b or (a.__class__ is int and b.__class__ is int and a == b)


def _divides(size: Any, n: int) -> bool:
    """Whether an axis of `size` elements divides into `n` equal parts. True for a symbolic size, which is checked when
    it is bound.
    """
    return size.__class__ is not int or size % n == 0


def _moved(u: UOp, ax: int, expected: str) -> DeviceError:
    """Return (not raise) the DeviceError for a movement op `u` that would need elements of other devices; it says how
    to copy the value first.

    `ax`: the sharded axis of the source. `expected`: text for the forms of the op that need no copy.
    """
    d = u.src[0]._placement[0]
    copy = f'LOAD of it with LoadArg(device="{d[0]}", addrspace="GLOBAL") before, a copy to one device'
    found = f"{u.src[0].shape} on {len(d)} devices along axis {ax} to {u.shape}"
    return DeviceError(f"{u.op} moves the shard boundary", expected=f"{expected}; or {copy}", found=found)


__all__ = [
    "VIEWS",
    "addrspace",
    "axis",
    "device",
    "is_memory",
    "joint_device",
    "memory_of",
    "on_one_mesh",
    "placement",
]
