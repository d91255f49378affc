"""A Tensor as text, and as a table in a notebook: values, then what differs from a float32 tensor on the CPU.

What it is for: `print(t)`, which computes the values, and `repr(t)`, which shows them where they are in memory. Long
tensors show the first and last elements of each axis.
What it is not: a format that is read again; `tolist`, `numpy` and `pickle` keep all digits.
"""

from __future__ import annotations

from html import escape
from math import prod
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.errors import JitError, MonolectError
from monolect.base.numpy import np
from monolect.runtime.buffer import is_realized
from monolect.tensor.base import TensorBase

_DIGITS = 4  # after the point
_MOST = 1000  # elements that are all shown
_EDGE = 3  # elements that are shown at each end of an axis of a longer tensor
_ROWS, _COLUMNS = 10, 12  # of a table in a notebook
_UNSAID = (dtypes.float32, dtypes.int64, dtypes.bool)  # what Python's numbers become


class PrintMixin(TensorBase):
    """What `print`, `repr`, f-strings and notebooks show of a Tensor."""

    __slots__ = ()

    def __repr__(self) -> str:
        """The values where they are in memory; else shape, dtype and device, and nothing is computed."""
        return str(self) if is_realized(self._uop) else brief(self)

    def __str__(self) -> str:
        """The values, computed; inside of a captured step, and where they cannot be, shape, dtype and device.

        >>> print(Tensor([[1.0, 2.0], [3.0, 4.5]], requires_grad=True) * 2)
        Tensor([[2., 4.],
                [6., 9.]])
        >>> print(Tensor([1, 2], dtype=dtypes.int8), Tensor.zeros(0, 3))
        Tensor([1, 2], dtype=int8) Tensor([], shape=(0, 3))
        """
        try:
            return text(self)
        except MonolectError:
            return brief(self, "" if is_realized(self._uop) else "lazy")

    def _repr_html_(self) -> str:
        return html(self)

    def __format__(self, spec: str) -> str:
        """The format of the one element: f"{loss:.3f}", f"{loss}". Without a format, of several elements, `str`. Raises
        ShapeError for a format of several.
        """
        if spec or not self.ndim:
            try:
                return format(self.item(), spec)
            except JitError:
                if spec:
                    raise
        return str(self)


def text(t: Any) -> str:
    """`Tensor([1., 2.], dtype=float64)`; computes `t`."""
    values = t.numpy()
    if values.dtype.kind not in "biufc":  # float8 and bfloat16 of other packages
        values = values.astype(np.float32)
    told = [np.array2string(values, None, _DIGITS, None, ", ", "Tensor(", threshold=_MOST, edgeitems=_EDGE)]
    if 0 in t.shape:
        told.append(f"shape={t.shape}")
    return f"Tensor({', '.join(told + _kind(t))})"


def brief(t: Any, state: str = "lazy") -> str:
    """Shape and kind, computing nothing."""
    told = [f"shape={t.shape}", f"dtype={t.dtype.name}", f"device={t.device!r}"]
    told += ["requires_grad=True"] if t._requires_grad else []
    return f"Tensor({', '.join(told + [state] * bool(state))})"


def html(t: Any) -> str:
    """A table of the first rows and columns of the last two axes, under a line that says shape, dtype and device."""
    head = f"Tensor {escape(str(t.shape))} {escape(', '.join([t.dtype.name, t.device]))}"
    values = t.numpy()
    values = values.reshape(prod(values.shape[:-1]), values.shape[-1]) if values.ndim else values.reshape(1, 1)
    rows = [[f"{v:.{_DIGITS}g}" if t.dtype.is_float else str(v) for v in row[:_COLUMNS]] for row in values[:_ROWS]]
    if values.shape[1] > _COLUMNS:
        rows = [[*row, "…"] for row in rows]
    if values.shape[0] > _ROWS:
        rows.append(["…"] * min(values.shape[1], _COLUMNS + 1))
    body = "".join("<tr>" + "".join(f"<td>{escape(v)}</td>" for v in row) + "</tr>" for row in rows)
    return f"<div>{head}</div><table>{body}</table>"


def _kind(t: Any) -> list[str]:
    """What is not as usual."""
    told = [] if t.dtype in _UNSAID else [f"dtype={t.dtype.name}"]
    told += [] if t.device == "cpu" else [f"device={t.device!r}"]
    return told + (["requires_grad=True"] if t._requires_grad else [])


__all__ = ["PrintMixin"]
