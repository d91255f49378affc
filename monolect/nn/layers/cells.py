"""Define cells: one step in time of a recurrent network.

What it is not: a layer over a sequence; a loop over its steps calls a cell.
Invariant: names, shapes and initial distributions of parameters are those of torch.nn.
"""

from __future__ import annotations

from math import sqrt

from monolect.base.errors import ArgumentError, ShapeError
from monolect.nn.layers.initial import uniform
from monolect.nn.module import Module
from monolect.tensor.base import DeviceLike, DTypeLike
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class _Cell(Module):
    parts = 1  # gates, which share the rows of a weight

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        self.input_size, self.hidden_size = input_size, hidden_size
        rows, bound = self.parts * hidden_size, 1.0 / sqrt(max(hidden_size, 1))
        self.weight_ih = uniform((rows, input_size), bound, device, dtype)
        self.weight_hh = uniform((rows, hidden_size), bound, device, dtype)
        self.bias_ih = uniform((rows,), bound, device, dtype) if bias else None
        self.bias_hh = uniform((rows,), bound, device, dtype) if bias else None

    def _start(self, x: Tensor) -> Tensor:
        """Return zeros for a state, in the shape that `x`, (N, input_size) or (input_size,), needs.

        Raises ShapeError for other inputs.
        """
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            expected = f"(batch, {self.input_size}) or ({self.input_size},)"
            raise ShapeError(f"{type(self).__name__}: the input", expected=expected, found=x.shape)
        return Tensor.zeros(*x.shape[:-1], self.hidden_size, dtype=x.dtype, device=x.device)

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        return f"{self.input_size}, {self.hidden_size}"


@guard_methods
class RNNCell(_Cell):
    """Return tanh(W_ih x + b_ih + W_hh h + b_hh): (N, input_size), (N, hidden_size) -> (N, hidden_size).

    The batch axis may be missing, and the state, which is then zeros. `nonlinearity` is tanh or relu. Raises
    ArgumentError for another one, ShapeError for other inputs.

    >>> RNNCell(3, 2)(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError("RNNCell: nonlinearity", expected="tanh or relu", found=nonlinearity)
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        """See the class."""
        start = self._start(x)
        h = start if hx is None else hx
        y = x.linear(self.weight_ih, self.bias_ih) + h.linear(self.weight_hh, self.bias_hh)
        return y.tanh() if self.nonlinearity == "tanh" else y.relu()


@guard_methods
class LSTMCell(_Cell):
    """Return the next (h, c) of a cell with long short-term memory: both (N, hidden_size) for (N, input_size).

    The rows of a weight are the gates in the order input, forget, cell, output. The batch axis may be missing, and the
    state, which is then zeros. Raises ShapeError for other inputs.

    >>> h, c = LSTMCell(3, 2)(Tensor.ones(4, 3))
    >>> h.shape, c.shape
    ((4, 2), (4, 2))
    """

    parts = 4

    def forward(self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """See the class."""
        start = self._start(x)
        h, c = (start, start) if hx is None else hx
        gates = x.linear(self.weight_ih, self.bias_ih) + h.linear(self.weight_hh, self.bias_hh)
        i, f, g, o = gates.chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


@guard_methods
class GRUCell(_Cell):
    """Return the next state of a gated recurrent unit: (N, input_size), (N, hidden_size) -> (N, hidden_size).

    The rows of a weight are the gates in the order reset, update, new. The batch axis may be missing, and the state,
    which is then zeros. Raises ShapeError for other inputs.

    >>> GRUCell(3, 2)(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    parts = 3

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        """See the class."""
        start = self._start(x)
        h = start if hx is None else hx
        xr, xz, xn = x.linear(self.weight_ih, self.bias_ih).chunk(3, -1)
        hr, hz, hn = h.linear(self.weight_hh, self.bias_hh).chunk(3, -1)
        z, n = (xz + hz).sigmoid(), (xn + (xr + hr).sigmoid() * hn).tanh()
        return (1 - z) * n + z * h


__all__ = ["GRUCell", "LSTMCell", "RNNCell"]
