"""Shaped index arithmetic, as renderers see it: constants are folded, an address is a base, offsets, and the rest.

What it is for: renderers of any language. What it does not do: write code.
Invariant: the parts of an address add up to the index, element by element.
"""

from __future__ import annotations

from math import prod
from typing import Any

from monolect.base.dtype import DType
from monolect.base.errors import CompileError
from monolect.base.numpy import np
from monolect.ir.ops import ELEMENTWISE, INVALID, ROWS
from monolect.ir.uop import UOp

LINE_GAP = 128  # bytes between local buffers, so that they do not share cache sets line by line


def custom_text(u: UOp, operands: tuple[str, ...]) -> str:
    """The user's code of a CUSTOM, with its operands put in. Raises CompileError where it names others."""
    try:
        return str(u.arg[0].format(*operands))
    except (IndexError, KeyError, ValueError) as error:
        expected = f"{{0}} to {{{len(operands) - 1}}}" if operands else "no operand"
        raise CompileError("the text of a CUSTOM", expected=expected, found=f"{u.arg[0]!r}: {error}") from None


def address_parts(u: UOp, consts: dict[UOp, Any]) -> tuple[UOp | None, Any, list[UOp]]:
    """An index as (scalar node or None, constant offsets as an array, shaped terms known only at run time)."""
    offs: Any = np.zeros((), np.int64)
    dynamic: list[UOp] = []
    while u.shape != () or u.op == "CONST":
        if (c := const_value(u, consts)) is not None:
            return None, offs + c, dynamic
        if u.op != "ADD":
            return None, offs, [*dynamic, u]
        r = u.src[1]
        c = const_value(r, consts)
        if c is not None:
            offs = offs + c
        else:
            dynamic.append(r)
        u = u.src[0]
    return u, offs, dynamic


def picked(u: UOp, consts: dict[UOp, Any]) -> np.ndarray:
    """The elements that an INDEX of a value by constants picks, by their numbers in memory order, in its shape.

    Raises CompileError for an index that is known only at run time: registers have no addresses.
    """
    shape = u.src[0].shape
    at = [const_value(i, consts) for i in u.src[1:]]
    if any(i is None for i in at):
        expected = "constants, or an INDEX of memory: a BUFFER in LOCAL or REG memory"
        raise CompileError("an element of a value at an index known only at run time", expected=expected, found=repr(u))
    at += [np.arange(n) for n in shape[len(at) :]]
    return np.arange(prod(shape)).reshape(shape)[np.ix_(*map(np.ravel, at))].reshape(u.shape)


def const_value(u: UOp, memo: dict[UOp, Any]) -> Any:
    """The NumPy value of a subgraph of integer constants, or None."""
    if u in memo:
        return memo[u]
    out = None
    if u.op == "CONST":
        out = None if u.arg[0] is INVALID or u.dtype.is_float else np.array(u.arg[0], _storage(u.dtype))
    elif u.op in ("STACK", "RESHAPE", "EXPAND") or (u.op in ELEMENTWISE and ROWS[u.op].meaning):
        srcs = [const_value(s, memo) for s in (u.src if u.op != "RESHAPE" and u.op != "EXPAND" else u.src[:1])]
        if u.src and all(s is not None for s in srcs) and not u.dtype.is_float:
            if u.op == "STACK":
                out = np.stack(srcs)
            elif u.op == "RESHAPE":
                out = srcs[0].reshape(u.shape)
            elif u.op == "EXPAND":
                out = np.broadcast_to(srcs[0], u.shape)
            else:
                out = np.asarray(ROWS[u.op].meaning(u.src[-1].dtype, *srcs))  # type: ignore[misc]
    memo[u] = out
    return out


def _storage(d: DType) -> Any:
    return np.int64 if d.kind == "x" else d.numpy


def ordered(u: UOp) -> UOp:
    """What a chain of AFTERs orders."""
    while u.op == "AFTER":
        u = u.src[0]
    return u


def register_of(u: UOp) -> UOp | None:
    """The REG buffer behind `u`, or None."""
    u = ordered(u)
    return u if u.op == "BUFFER" and u.arg.addrspace == "REG" else None


def local_places(program: tuple[UOp, ...]) -> tuple[int, dict[UOp, int]]:
    """(bytes of local memory a thread needs, where each LOCAL buffer lies in it)."""
    n, places = 0, {}
    for u in program:
        if u.op == "BUFFER" and u.arg.addrspace == "LOCAL":
            places[u] = n
            n += -(-prod(u.shape) * u.dtype.itemsize // 64) * 64 + LINE_GAP
    return n, places
