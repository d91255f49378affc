"""Record the rewrites of a tensor graph: for each value, the value that replaced it.

What it is for: `VERIFY=2` compares the stored results of a schedule with the graph before the first rewrite. Scheduling
itself does not read the record.
Invariant: a value and its replacement have the same shape, dtype and, up to the order of float additions, elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from monolect.ir.uop import UOp

Replacements = Mapping[UOp, UOp]


class RewriteRecord(NamedTuple):
    """The rewrites of a graph, in order, and the buffer of each value that the partition stores."""

    steps: list[Replacements]
    buffers: dict[UOp, UOp]


_records: list[RewriteRecord] = []


def replace_roots(roots: list[UOp], new: Replacements) -> list[UOp]:
    """Return `roots` after a rewrite that replaced the keys of `new` by its values, and record the rewrite."""
    for f in _records:
        f.steps.append(new)
    return [new.get(r, r) for r in roots]


def note_buffers(buffers: dict[UOp, UOp]) -> None:
    """Record the buffer of each value that the partition stores; `buffers` maps the value to the buffer."""
    for f in _records:
        f.buffers.update(buffers)


@contextmanager
def following() -> Iterator[RewriteRecord]:
    """Return a context manager that yields the RewriteRecord of all rewrites inside of its `with` block."""
    _records.append(found := RewriteRecord([], {}))
    try:
        yield found
    finally:
        _records.pop()


__all__ = ["following", "note_buffers", "replace_roots"]
