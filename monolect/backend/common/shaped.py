"""Split shaped index arithmetic for renderers: fold constants, and split an index into base, offsets and other terms.

What it is for: renderers of any language. What it does not do: write code.
Invariant: the parts of an index add up to the index, element by element.
"""

from __future__ import annotations

from math import prod
from typing import Any

from monolect.base.dtype import DType
from monolect.base.errors import CompileError
from monolect.base.numpy import np
from monolect.ir.ops import ELEMENTWISE, INVALID, ROWS
from monolect.ir.uop import UOp

LINE_GAP = 128  # bytes between two local buffers, so that equal offsets in them fall into different cache sets


def custom_text(u: UOp, operands: tuple[str, ...]) -> str:
    """Return the user's code of a CUSTOM with its operands substituted for {0}, {1}, ...

    Raises CompileError if the code names an operand that it does not have.
    """
    try:
        return str(u.arg[0].format(*operands))
    except (IndexError, KeyError, ValueError) as error:
        expected = f"{{0}} to {{{len(operands) - 1}}}" if operands else "no operand"
        raise CompileError("the text of a CUSTOM", expected=expected, found=f"{u.arg[0]!r}: {error}") from None


def address_parts(u: UOp, consts: dict[UOp, Any]) -> tuple[UOp | None, Any, list[UOp]]:
    """Split the index `u` into (scalar node or None, constant offsets as an array, other terms); their sum is `u`.

    The other terms have the index's shape and are known only at run time. `consts` memoizes `const_value`.
    """
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


def picked_elements(u: UOp, consts: dict[UOp, Any]) -> np.ndarray:
    """Return the flat indices of the elements that `u` selects, an INDEX of a value by constants, in the shape of `u`.

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
    """Return the value of `u` as a NumPy array if it depends on integer constants alone, or else None.

    `memo` caches the results.
    """
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


def strip_after(u: UOp) -> UOp:
    """Return `u` without the AFTERs around it."""
    while u.op == "AFTER":
        u = u.src[0]
    return u


def register_of(u: UOp) -> UOp | None:
    """Return the REG buffer that `u` is, without its AFTERs, or None."""
    u = strip_after(u)
    return u if u.op == "BUFFER" and u.arg.addrspace == "REG" else None


def thread_local_layout(program: tuple[UOp, ...]) -> tuple[int, dict[UOp, int]]:
    """Return (bytes of local memory that a thread needs, byte offset of each LOCAL buffer in it)."""
    n, offsets = 0, {}
    for u in program:
        if u.op == "BUFFER" and u.arg.addrspace == "LOCAL":
            offsets[u] = n
            n += -(-prod(u.shape) * u.dtype.itemsize // 64) * 64 + LINE_GAP
    return n, offsets


__all__ = [
    "address_parts",
    "const_value",
    "custom_text",
    "picked_elements",
    "register_of",
    "strip_after",
    "thread_local_layout",
]
