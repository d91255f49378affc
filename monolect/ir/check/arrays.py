"""Define the meanings of single operations on NumPy arrays: storage, conversion, reduction, matrix units, masks.

A mask is a bool array that is true where the elements of a value are valid, or None if all are valid.

What it is for: the reference interpreter and the interpreter of linearized programs share these meanings.
What it is not: it does not walk graphs. Elementwise meanings are in the op table.
Invariant: no function changes an argument, except `add_at`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from monolect.base.dtype import DType, converted, to_numpy, whole
from monolect.base.errors import InternalError
from monolect.base.matrix_units import n_elements, position
from monolect.base.target import MatrixUnit

Array = np.ndarray[Any, Any]
Mask = Array | None  # True where a value is valid; None: valid everywhere


def storage(dtype: DType) -> np.dtype:
    """Return the NumPy dtype in which the interpreter stores values of `dtype`; int64 for `index`."""
    return np.dtype(np.int64) if dtype.kind == "x" else to_numpy(dtype)


def garbage(dtype: DType) -> Any:
    """Return the value that the interpreter stores in invalid elements of dtype `dtype`: nan for floats, else 0."""
    return storage(dtype).type(np.nan if dtype.is_float else 0)


def is_small(dtype: DType) -> bool:
    """Whether `dtype` is a float of fewer than 32 bits; arithmetic of such floats is done in float32."""
    return dtype.is_float and dtype.bits < 32


def both_valid(a: Mask, b: Mask) -> Mask:
    """Return the mask that is true where the masks `a` and `b` are both true; None means true everywhere."""
    return b if a is None else a if b is None else a & b


def select_valid(c: Array, a: Mask, b: Mask) -> Mask:
    """Return the mask of the array that has elements of x where the bool array `c` is true, else those of y.

    `a`, `b`: the masks of x and of y; None means true everywhere.
    """
    if a is None and b is None:
        return None
    return np.where(c, True if a is None else a, True if b is None else b)


def cast(x: Array, old: DType, new: DType) -> Array:
    """Compute CAST of the array `x` from dtype `old` to dtype `new`.

    Float to integer saturates, and nan becomes 0; integers wrap; other values are rounded once to nearest.
    """
    if old.is_float and new.is_int:
        return whole(x, new)
    return converted(x, new) if is_small(new) else x.astype(storage(new))


def bitcast(x: Any, new: DType) -> Array:
    """Return the bytes of the array `x` reinterpreted as dtype `new` (op BITCAST). The size of the last axis changes if
    the item sizes differ.
    """
    x = np.array(x, order="C")
    x = x.view(np.uint8) if x.dtype == bool else x
    return x.view(np.uint8) != 0 if new.kind == "b" else x.view(storage(new))


def reduce_array(op: str, dtype: DType, x: Array, axes: tuple[int, ...]) -> Array:
    """Return `x`, of dtype `dtype`, reduced by `op` (ADD, MAX or MUL) along `axes`, which keep size 1. Float sums and
    products use float64.
    """
    if dtype.kind == "b":
        return (np.all if op == "MUL" else np.any)(x, axis=axes, keepdims=True)
    if op == "MAX":
        wide = x.astype(np.float32) if is_small(dtype) else x
        return np.max(wide, axis=axes, keepdims=True, initial=dtype.min).astype(x.dtype)
    f = np.sum if op == "ADD" else np.prod
    return f(x, axis=axes, keepdims=True, dtype=np.float64 if dtype.is_float else x.dtype).astype(x.dtype)


def scan_array(op: str, dtype: DType, x: Array, axis: int) -> Array:
    """Return the inclusive scan of `x`, of dtype `dtype`, by `op` (ADD, MAX or MUL) along `axis`. Floats accumulate in
    float64.
    """
    if dtype.kind == "b":
        return (np.logical_and if op == "MUL" else np.logical_or).accumulate(x, axis=axis)
    wide = x.astype(np.float64) if dtype.is_float else x
    f = {"ADD": np.add, "MUL": np.multiply, "MAX": np.maximum}[op]
    return f.accumulate(wide, axis=axis, dtype=wide.dtype).astype(x.dtype)


def multiply_tiles(dtype: DType, a: Array, b: Array, acc: Array, n_axes: int) -> Array:
    """Compute WMMA, a product of small matrices: return `acc` plus the sum of `a` * `b` over the last `n_axes` axes of
    this product.

    `dtype`: that of the result. Floats are computed in float64 and rounded once.
    """
    wide = np.float64 if dtype.is_float else storage(dtype)
    axes = tuple(range(-n_axes, 0))
    product = np.sum(a.astype(wide) * b.astype(wide), axis=axes, dtype=wide)
    return (product + acc.astype(wide)).astype(acc.dtype)


def multiply_in_warp(unit: MatrixUnit, a: Array, b: Array, acc: Array) -> Array:
    """Compute the WMMA of a warp by the matrix unit `unit`: return the sum of `acc` and the product of `a` and `b`.

    Each array has the shape (lanes, elements): row i has the elements of the matrix that lane i holds.
    """
    left, right = (_matrix(m, x, (n, unit.k)) for m, x, n in zip(unit.maps, (a, b), (unit.m, unit.n), strict=False))
    return add_product(unit, left, right, acc)


def add_product(unit: MatrixUnit, left: Array, right: Array, acc: Array) -> Array:
    """Return `acc` plus left @ right.T, where `acc` and the result are (lanes, elements): row i has the elements that
    lane i holds.

    `left` is (m, k) and `right` (n, k); a TF32 unit rounds both. `unit`: the matrix unit.
    """
    if unit.name.endswith("tf32"):
        left, right = tf32(left), tf32(right)
    wide = np.float64 if unit.acc.is_float else storage(unit.acc)
    held = _held(unit.maps[2], acc.shape)
    total = (left.astype(wide) @ right.astype(wide).T)[held] + acc.astype(wide)
    return total.astype(acc.dtype)


def tiles_in_warp(unit: MatrixUnit, shapes: Sequence[tuple], n_axes: int) -> list[tuple[Array, Array, Array]]:
    """Return, for each tile of a WMMA, a tuple (a, b, sum) of flat indices of one lane's elements of these arrays in
    that tile.

    `unit`: the matrix unit. `shapes`: shapes of a, b and the sum in one lane. The last `n_axes` axes of an operand, and
    the last axes of the sum, are the elements of one tile. Raises InternalError if `shapes` do not match the elements
    that a lane of the unit holds.
    """
    acc = shapes[2]
    held = [n_elements(m) for m in unit.maps]
    lead = next(acc[:k] for k in range(len(acc), -1, -1) if prod(acc[k:]) == held[2])
    out = [np.arange(prod(acc)).reshape(-1, held[2])]
    for shape, n in zip(shapes[:2], held, strict=False):
        outer = (1,) * (len(acc) + n_axes - len(shape)) + shape[: len(shape) - n_axes]
        if shape[len(shape) - n_axes :] and prod(shape[len(shape) - n_axes :]) != n or set(outer[len(lead) :]) - {1}:
            raise InternalError(f"WMMA of {unit.name}: not what a lane holds", expected=n, found=shape)
        at = np.arange(prod(shape)).reshape(*outer[: len(lead)], n)
        out.insert(-1, np.broadcast_to(at, (*lead, n)).reshape(-1, n))
    return list(zip(*out, strict=True))


def _held(words: tuple[str, str], shape: tuple[int, int]) -> tuple[Array, Array]:
    """Return (row indices, column indices) in a tile of the elements that each lane holds, both of shape `shape`.

    `words`: one of `MatrixUnit.maps`, the mapping from lanes to elements. `shape`: (lanes, elements of a lane).
    """
    lanes, elements = (np.arange(n) for n in shape)
    return position(words, lanes[:, None], elements)


def _matrix(words: tuple[str, str], x: Array, shape: tuple[int, int]) -> Array:
    """Return the operand tile, of shape `shape`, whose elements the lanes hold as `x`, an array of (lanes, elements).

    `words`: one of `MatrixUnit.maps`, the mapping from lanes to elements. Raises InternalError if lanes hold different
    values of one element.
    """
    out, at = np.zeros(shape, x.dtype), _held(words, x.shape)
    out[at] = x
    if out[at].tobytes() != np.ascontiguousarray(x).tobytes():
        raise InternalError("WMMA: lanes that should hold the same element of an operand differ", found=words)
    return out


def tf32(x: Array) -> Array:
    """Return the float32 array `x` rounded to 10 fraction bits (TF32), ties away from zero. inf and nan are kept."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def add_at(flat: Array, at: Array, new: Array) -> None:
    """Compute ATOMICADD: add the values `new` to the elements at the positions `at` of the array `flat`, in place.

    If a position occurs several times, its values are added one after another.
    """
    if flat.dtype.kind in "iuf" and flat.dtype.itemsize > 2 or flat.dtype.kind in "iu":
        np.add.at(flat, at, new)
        return
    wide = flat.astype(np.float32)  # bool and small floats: round after each addition, as hardware does
    for k, v in zip(at, new.astype(np.float32), strict=True):
        wide[k] = (wide[k] + v).astype(flat.dtype)
    flat[:] = wide.astype(flat.dtype)


__all__ = [
    "Array",
    "Mask",
    "add_at",
    "add_product",
    "bitcast",
    "both_valid",
    "cast",
    "garbage",
    "is_small",
    "multiply_in_warp",
    "multiply_tiles",
    "reduce_array",
    "scan_array",
    "select_valid",
    "storage",
    "tf32",
    "tiles_in_warp",
]
