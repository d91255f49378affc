"""Decide which state of a captured step is updated in place: its new version is written over the old one.

What it is for: a step that assigns a large tensor, or a few rows of one, needs no second buffer. The decision depends
only on the step's kernels; each replay checks whether the old version has another holder.
Invariant: no launch reads an element of the old version after that element was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from monolect.command.forms import buffer_bytes
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, nodes_of, toposort

Uses = dict[UOp, list[tuple[int, UOp, int]]]  # by buffer: (item number, kernel, slot), in order


def uses_of(items: Sequence[tuple[UOp, Sequence[UOp]]]) -> Uses:
    """Return, for each buffer, its uses in order: (number of the item, kernel, slot at which the kernel takes the
    buffer).

    `items`: (kernel, its buffers by slot) in the order in which they run.
    """
    out: Uses = {}
    for at, (kernel, buffers) in enumerate(items):
        for slot, b in enumerate(buffers):
            out.setdefault(b, []).append((at, kernel, slot))
    return out


def may_overwrite(before: UOp, after: UOp, uses: Uses) -> bool:
    """Return whether the new version `after` of a state can be written over its old version `before`, both BUFFERs or
    PARAMs.

    This holds if no kernel reads `before` once `after` is being written, except the writing kernel, at the element that
    it writes. False if the sizes differ, or if nothing writes `after`. `uses`: the uses of each buffer, from `uses_of`.
    """
    if buffer_bytes(before) != buffer_bytes(after):
        return False
    reads = uses.get(before, [])
    if not (writes := uses.get(after)):
        return False
    first, kernel, out = writes[0]
    if any(at > first for at, _, _ in reads):
        return False
    source = next((slot for at, _, slot in reads if at == first), None)
    alike = before.shape == after.shape and before.dtype.itemsize == after.dtype.itemsize
    return source is None or (alike and same_elements(kernel, source, out))


def is_copy(sink: UOp) -> bool:
    """Return whether the kernel `sink` does nothing but store one PARAM into another, element by element."""
    stores = [u for u in toposort(sink) if u.op in ("STORE", "ATOMICADD", "CUSTOM")]
    if len(stores) != 1 or stores[0].op != "STORE" or len(stores[0].src) != 2:
        return False
    to, value = stores[0].src
    are_indexed = to.op == "INDEX" and value.op == "LOAD" and len(value.src) == 1 and value.src[0].op == "INDEX"
    return are_indexed and to.src[1:] == value.src[0].src[1:] and {to.src[0].op, value.src[0].src[0].op} == {"PARAM"}


def same_elements(sink: UOp, source: int, out: int) -> bool:
    """Return whether the kernel `sink` reads the PARAM with slot `source` only at the index at which it stores the
    PARAM with slot `out`, and before this store.

    If a kernel has several stores, a load for another store may follow this one; only loads that this store itself uses
    are known to precede it.
    """
    order, indices = _indices_by_slot(sink)
    of_source, of_out = (indices.get(slot, set()) for slot in (source, out))
    at_source, at_out = ({u.src[1] for u in accesses} for accesses in (of_source, of_out))
    if len(at_out) != 1 or not at_source <= at_out:
        return False
    mine = set(toposort(*(s for s in order if s.op in ("STORE", "ATOMICADD") and s.src[0] in of_out)))
    return all(u in mine for u in order if not of_source.isdisjoint(u.src))


@lru_cache(maxsize=64)
def _indices_by_slot(sink: UOp) -> tuple[Sequence[UOp], dict[int, set[UOp]]]:
    """Return (nodes of the kernel `sink`, sources before users; {slot of a PARAM: INDEX nodes into this PARAM})."""
    order = nodes_of(sink)
    indices: dict[int, set[UOp]] = {}
    for u in order:
        if u.op == "INDEX" and (memory := memory_of(u)).op == "PARAM":
            indices.setdefault(memory.arg.slot, set()).add(u)
    return order, indices


__all__ = ["Uses", "is_copy", "may_overwrite", "same_elements", "uses_of"]
