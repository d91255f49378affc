"""Rows by places, on nodes: reading, writing and adding at positions along the last of two axes.

Invariant: a place is inside of its row. Reading and adding may name a place twice, `scatter_rows` promises not to.
"""

from __future__ import annotations

from monolect.autograd import graph
from monolect.autograd.graph import cast, iota
from monolect.base.dtype import DType, dtypes
from monolect.ir.ops import INVALID
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build


def empty(shape: tuple[int, ...], d: DType) -> UOp:
    """Memory that is to be written before it is read."""
    return build("CONTIGUOUS", graph.full(shape, INVALID, d))


def gather_rows(x: UOp, places: UOp) -> UOp:
    """Element [r, places[r, i]] of `x` at [r, i]."""
    return build("INDEX", graph.reshape(x, (x.shape[0] * x.shape[1],)), _flat(places, x.shape[1]))


def scatter_rows(x: UOp, places: UOp, base: UOp | None = None) -> UOp:
    """Element [r, i] of `x` at [r, places[r, i]], which are distinct, of an array like `x`, or of a copy of `base`."""
    out = empty(x.shape, x.dtype) if base is None else build("CONTIGUOUS", base)
    return stored(out, _flat(places, out.shape[1]), x)


def add_rows(x: UOp, places: UOp, n: int) -> UOp:
    """The sum of the elements [r, i] of `x` with the same places[r, i], at that place of row r, of n elements."""
    out = build("CONTIGUOUS", graph.full((x.shape[0], n), 0, x.dtype))
    return build("AFTER", out, build("ATOMICADD", _places_of(out, _flat(places, n)), x))


def stored(out: UOp, at: UOp, value: UOp) -> UOp:
    """`out` with `value` at the flat positions `at`, which are distinct."""
    return build("AFTER", out, build("STORE", _places_of(out, at), value, arg="distinct"))


def _places_of(out: UOp, at: UOp) -> UOp:
    return build("INDEX", graph.reshape(out, (count(out.shape),)), at)


def _flat(places: UOp, n: int) -> UOp:
    return iota(places.shape[0], dtypes.index, 0, 2) * n + cast(places, dtypes.index)
