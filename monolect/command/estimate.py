"""Estimate the cost of an item (a kernel launch or copy): operations and bytes, counted on the IR of its kernel.

Arithmetic operations are those of one loop iteration times the iterations. Bytes are those of every buffer that the
kernel touches, each counted once, and at most as many as its loops visit.
"""

from __future__ import annotations

import weakref

from monolect.command.forms import buffer_bytes, kernel_of, operands_of, read_operand
from monolect.ir.bounds import ranges, size_max
from monolect.ir.ops import ELEMENTWISE, KernelInfo
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, nodes_of

# By kernel: (operations, bytes that its loops visit by slot of the PARAM).
_known: weakref.WeakKeyDictionary[UOp, tuple[int, dict[int, int]]] = weakref.WeakKeyDictionary()


def estimate(item: UOp) -> tuple[int, int]:
    """Return (arithmetic operations, bytes of memory touched) of `item`, a CALL or a copy, at the largest values of
    symbolic sizes.
    """
    n_ops, visited = (0, dict[int, int]()) if item.op == "STORE" else _of_kernel(kernel_of(item))
    touched: dict[tuple[UOp, int], int] = {}
    for k, u in enumerate(operands_of(item)):
        at = read_operand(u)[:2]
        whole = buffer_bytes(u)
        touched[at] = min(whole, touched.get(at, 0) + visited.get(k, whole))
    return n_ops, sum(touched.values())


def _of_kernel(kernel: UOp) -> tuple[int, dict[int, int]]:
    """Return (arithmetic operations, {slot of a PARAM: bytes of it that the loops visit}) of `kernel`, memoized."""
    found = _known.get(kernel)
    if found is None:
        found = _known[kernel] = _counted(kernel)
    return found


def _counted(kernel: UOp) -> tuple[int, dict[int, int]]:
    """Return (arithmetic operations, {slot of a PARAM: bytes of it that the loops visit}) of `kernel`."""
    n_ops = 0
    visited: dict[int, int] = {}
    if isinstance(kernel.arg, KernelInfo) and kernel.arg.fills:  # a packing kernel has no arithmetic
        return 0, visited
    for u in nodes_of(kernel):
        if u.op in ELEMENTWISE and u.dtype.kind != "x" and u.op not in ("WHERE", "CAST"):
            n_ops += _iterations(ranges(u))
        elif u.op == "REDUCE":
            n_ops += _iterations(ranges(u) | frozenset(u.src[1:]))
        elif u.op == "INDEX" and len(u.src) > 1 and (memory := memory_of(u)).op == "PARAM":
            n_bytes = _iterations(ranges(u)) * memory.dtype.itemsize
            visited[memory.arg.slot] = visited.get(memory.arg.slot, 0) + n_bytes
    return n_ops, visited


def _iterations(rs: frozenset[UOp]) -> int:
    """Return the product of the iterations of the RANGEs `rs`, at the largest values of symbolic sizes."""
    n = 1
    for r in rs:
        n *= size_max(r.src[0].value if r.src[0].op == "CONST" else r.src[0])
    return n


__all__ = ["estimate"]
