"""Build gather, scatter and scatter-add along the second of two axes.

Invariant: every index is inside its row. Gathering and adding may repeat an index; the indices of `scatter_rows` are
distinct.
"""

from __future__ import annotations

from monolect.autograd import graph
from monolect.autograd.graph import cast, iota
from monolect.base.dtype import DType, dtypes
from monolect.ir.ops import INVALID
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build


def empty(shape: tuple[int, ...], dtype: DType) -> UOp:
    """Return a CONTIGUOUS node of uninitialized memory for elements of `dtype` in `shape`.

    The memory must be written before it is read.
    """
    return build("CONTIGUOUS", graph.full(shape, INVALID, dtype))


def gather_rows(x: UOp, indices: UOp) -> UOp:
    """Return y with y[r, i] = x[r, indices[r, i]], of the shape of `indices`; `x` and `indices` have two axes."""
    return graph.index(graph.reshape(x, (x.shape[0] * x.shape[1],)), _flat(indices, x.shape[1]))


def scatter_rows(x: UOp, indices: UOp, base: UOp | None = None) -> UOp:
    """Return y of the shape of `base`, with y[r, indices[r, i]] = x[r, i] and the elements of `base` elsewhere.

    The indices of a row are distinct. Without `base` they are a permutation of the row, and y has the shape of x.
    """
    out = empty(x.shape, x.dtype) if base is None else build("CONTIGUOUS", base)
    return store_flat(out, _flat(indices, out.shape[1]), x)


def add_rows(x: UOp, indices: UOp, n: int) -> UOp:
    """Return y of shape (rows, n), where y[r, j] is the sum of all x[r, i] with indices[r, i] == j."""
    out = build("CONTIGUOUS", graph.full((x.shape[0], n), 0, x.dtype))
    return build("AFTER", out, build("ATOMICADD", _elements_at(out, _flat(indices, n)), x))


def store_flat(out: UOp, at: UOp, value: UOp) -> UOp:
    """Return `out` after storing `value` at the distinct row-major offsets `at`: an AFTER of the memory `out`.

    `value` and `at` have one shape; `out` must be in memory, such as a CONTIGUOUS.
    """
    return build("AFTER", out, build("STORE", _elements_at(out, at), value, arg="distinct"))


def _elements_at(out: UOp, at: UOp) -> UOp:
    """Return the INDEX of the elements of `out` at row-major offsets `at`."""
    return build("INDEX", graph.reshape(out, (count(out.shape),)), at)


def _flat(indices: UOp, n: int) -> UOp:
    """Return the row-major offsets of the elements `indices`, shape (r, m), of rows of `n` elements."""
    return iota(indices.shape[0], dtypes.index, 0, 2) * n + cast(indices, dtypes.index)


__all__ = ["add_rows", "empty", "gather_rows", "scatter_rows", "store_flat"]
