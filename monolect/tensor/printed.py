"""Format a Tensor as text, and as a table in a notebook.

What it is for: `print(t)` computes the values; `repr(t)` shows them only if they are already in memory. After the
values follow dtype, device and requires_grad where they differ from the defaults. A long tensor shows the first and
last elements of each axis.
What it is not: a format to parse; `tolist`, `numpy` and `pickle` keep all digits.
"""

from __future__ import annotations

from math import prod
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.errors import JitError, MonolectError
from monolect.base.numpy import np
from monolect.runtime.buffer import is_realized
from monolect.tensor.base import TensorBase

_DIGITS = 4  # digits after the decimal point
_MAX_ELEMENTS = 1000  # elements; a larger tensor is shortened
_EDGE = 3  # elements shown at each end of an axis of a shortened tensor
_ROWS, _COLUMNS = 10, 12  # rows and columns shown by a table in a notebook
_DEFAULT_DTYPES = (dtypes.float32, dtypes.int64, dtypes.bool)  # dtypes of Python's numbers; not printed


class PrintMixin(TensorBase):
    """Define the text of a Tensor for `print`, `repr`, f-strings and notebooks; a base class of Tensor."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the values if they are in memory; else shape, dtype and device. Nothing is computed."""
        return str(self) if is_realized(self._uop) else brief(self)

    def __str__(self) -> str:
        """Compute the values and return them as text.

        Inside a captured step, or where computing fails, the text has shape, dtype and device instead.

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
        """Format the only element by `spec`, for example in f"{loss:.3f}". Without `spec` a tensor with axes gives the
        text of `str`.

        Raises ShapeError for a `spec` and several elements.
        """
        if spec or not self.ndim:
            try:
                return format(self.item(), spec)
            except JitError:
                if spec:
                    raise
        return str(self)


def text(t: Any) -> str:
    """Compute `t` and return text such as `Tensor([1., 2.], dtype=float64)`."""
    values = t.numpy()
    if values.dtype.kind not in "biufc":  # float8 and bfloat16 of other packages
        values = values.astype(np.float32)
    fields = [np.array2string(values, None, _DIGITS, None, ", ", "Tensor(", threshold=_MAX_ELEMENTS, edgeitems=_EDGE)]
    if 0 in t.shape:
        fields.append(f"shape={t.shape}")
    return f"Tensor({', '.join(fields + _differences(t))})"


def brief(t: Any, state: str = "lazy") -> str:
    """Return shape, dtype and device of `t` as text, followed by the word `state` unless that is empty.

    It computes nothing.
    """
    fields = [f"shape={t.shape}", f"dtype={t.dtype.name}", f"device={t.device!r}"]
    fields += ["requires_grad=True"] if t._requires_grad else []
    return f"Tensor({', '.join(fields + [state] * bool(state))})"


def html(t: Any) -> str:
    """Return an HTML table of a Tensor: its first rows and columns, below its shape, dtype and device.

    Rows are along the last axis; all other axes are flattened to one.
    """
    from html import escape  # late: its table of entities takes a millisecond of each start

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


def _differences(t: Any) -> list[str]:
    """Return texts for dtype, device and requires_grad of `t` where they differ from the defaults."""
    fields = [] if t.dtype in _DEFAULT_DTYPES else [f"dtype={t.dtype.name}"]
    fields += [] if t.device == "cpu" else [f"device={t.device!r}"]
    return fields + (["requires_grad=True"] if t._requires_grad else [])


__all__ = ["PrintMixin"]
