"""Order operands of commutative ops by structure, so that equal programs have equal graphs in every process.

The order must not depend on when a node was made: a node is interned, so an earlier program of the process may have
made it already, and whether it still exists depends on garbage collection.
Two nodes are compared by height, op, number of sources, their first sources that are not one node, and argument. So a
value comes before what is computed from it, and equal layers have equal orders. Loops and memory are compared by their
numbers, which follow the order of the program.

Invariant: `compare` is a total order on nodes. A comparison takes at most as many steps as the nodes are deep.
"""

from __future__ import annotations

from functools import cmp_to_key

from monolect.ir.uop import UOp

_NUMBERED = frozenset(("RANGE", "PARAM", "BUFFER"))


def compare(a: UOp, b: UOp) -> int:
    """Return -1 if node `a` comes before node `b` in canonical order, 1 if it comes after `b`, 0 if both are one."""
    while a is not b:
        if a.height != b.height:
            return -1 if a.height < b.height else 1
        if a.op != b.op:
            return -1 if a.op < b.op else 1
        if a.op in _NUMBERED and (m := a.arg[0]) != (n := b.arg[0]):  # of a RANGE; the slot of a PARAM or BUFFER
            return -1 if m < n else 1
        if len(a.src) != len(b.src):
            return -1 if len(a.src) < len(b.src) else 1
        for x, y in zip(a.src, b.src, strict=True):
            if x is not y:
                a, b = x, y
                break
        else:
            return -1 if _argument(a) < _argument(b) else 1
    return 0


in_order = cmp_to_key(compare)  # the key of a node for `sorted`


def _argument(u: UOp) -> tuple:
    """Return a key that orders `u` among nodes of its op that have its sources."""
    return repr(u.arg), repr(u.tag), u.serial  # the serial number decides if texts are equal, as those of functions


__all__ = ["compare", "in_order"]
