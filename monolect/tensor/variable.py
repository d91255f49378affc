"""Define symbolic sizes: a Variable is a bounded integer whose value is bound when a program runs.

>>> from monolect import Tensor
>>> n = Variable("n", 1, 4)
>>> x = Tensor([1.0, 2.0, 3.0, 4.0])
>>> for value in (2, 3):
...     with n.bind(value):
...         x[:n].sum().item()
3.0
6.0
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from operator import index
from typing import SupportsIndex

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError
from monolect.ir.ops import ParamArg
from monolect.ir.uop import UOp, build, idx, node
from monolect.runtime.binding import BY, values, variables
from monolect.runtime.replay.in_progress import changes
from monolect.tensor.state.deferred import all_deferred


class Variable:
    """A symbolic integer `Variable(name, min, max)` with inclusive bounds; `multiple_of` divides all its values.

    It is the size or offset of slices and tensors whose value is bound at run time (`bind`), so that one compiled
    program serves all values. `uop` is its index node in a graph: a scalar PARAM, times `multiple_of`, so the compiler
    knows that divisor. A Variable with min == max is that constant. Sums, differences, products, `//` and `%` of a
    Variable are sizes too.

    Raises ArgumentError for a name that is not an identifier, for bounds that are not integers with min <= max, and for
    a `multiple_of` that does not divide both bounds.

    >>> n = Variable("n", 1, 4)
    >>> x = Tensor([1.0, 2.0, 3.0, 4.0])[:n] * 2
    >>> with n.bind(3):
    ...     x.tolist()
    [2.0, 4.0, 6.0]
    """

    __slots__ = ("max", "min", "multiple_of", "name", "symbol", "uop")

    def __init__(self, name: str, min: int, max: int, multiple_of: int = 1) -> None:
        if not isinstance(name, str) or not name.isidentifier() or BY in name:
            raise ArgumentError("name of a Variable", expected=f"an identifier without {BY!r}", found=repr(name))
        if not isinstance(min, int) or not isinstance(max, int) or min > max:
            raise ArgumentError(f"bounds of Variable {name}", expected="integers with min <= max", found=(min, max))
        m = multiple_of
        if not isinstance(m, int) or m < 1 or min % m or max % m:
            expected = "a whole number above 0 that divides both bounds"
            raise ArgumentError(f"multiple_of of Variable {name}", expected=expected, found=m)
        self.name, self.min, self.max, self.multiple_of = name, min, max, m
        param_name = name if m == 1 else f"{name}{BY}{m}"  # distinct from the Variable `name` without multiple_of
        param = node("PARAM", (), ParamArg(0, dtypes.index, None, None, param_name, min // m, max // m))
        self.symbol = param.arg.symbol
        self.uop: UOp = idx(min) if min == max else param if m == 1 else build("MUL", param, idx(m))

    def __repr__(self) -> str:
        step = "" if self.multiple_of == 1 else f", multiple_of={self.multiple_of}"
        return f"Variable({self.name!r}, {self.min}, {self.max}{step})"

    def __eq__(self, other: object) -> bool:
        return other.__class__ is Variable and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__reduce__())

    def __add__(self, other: int | UOp | Variable) -> UOp:
        return self.uop + other

    def __sub__(self, other: int | UOp | Variable) -> UOp:
        return self.uop - other

    def __mul__(self, other: int | UOp | Variable) -> UOp:
        return self.uop * other

    def __floordiv__(self, other: int | UOp | Variable) -> UOp:
        return self.uop // other

    def __mod__(self, other: int | UOp | Variable) -> UOp:
        return self.uop % other

    def __neg__(self) -> UOp:
        return -self.uop

    def __rsub__(self, other: int | UOp | Variable) -> UOp:
        return other - self.uop

    __radd__ = __add__
    __rmul__ = __mul__

    def __reduce__(self) -> tuple:
        return (Variable, (self.name, self.min, self.max, self.multiple_of))

    def bind(self, value: SupportsIndex) -> AbstractContextManager[Variable]:
        """Return a context manager that binds the Variable to `value` for realizations inside its `with` block.

        A result keeps the shape that it had there.

        Tensors assigned in the block that depend on the Variable are computed when it ends, at the latest. A new value
        needs no compilation. Each thread and each asyncio task has its own binding. Raises ArgumentError for a value
        outside the bounds or not a multiple of `multiple_of`.

        >>> n, cache = Variable("n", 0, 2), Tensor.zeros(3)
        >>> for value in range(3):
        ...     with n.bind(value):
        ...         cache[n : n + 1] = value + 1
        >>> cache.tolist()
        [1.0, 2.0, 3.0]
        """
        return self._bound(self.check(value) // self.multiple_of)

    @contextmanager
    def _bound(self, value: int) -> Iterator[Variable]:
        before = values.get({})
        if before.get(self.symbol, value) != value:
            self._store()
        token = values.set({**before, self.symbol: value})
        try:
            yield self
        finally:
            try:
                self._store()
            finally:
                values.reset(token)

    def _store(self) -> None:
        """Realize the assigned Tensors that depend on this Variable, before it gets another value."""
        if changes.captures or changes.is_inside:  # inside a capture, assignments are part of the step
            return
        late = [t for t in all_deferred() if any(v.arg.symbol == self.symbol for v in variables(t._uop))]
        if late:
            late[0].realize(*late[1:])

    def check(self, value: SupportsIndex) -> int:
        """Return `value` if it is an integer within the bounds and a multiple of `multiple_of`. Raises ArgumentError
        otherwise.

        >>> Variable("n", 0, 8, multiple_of=4).check(4)
        4
        """
        try:
            number = index(value)
        except TypeError:
            number = self.min - 1
        if not self.min <= number <= self.max:
            raise ArgumentError(f"value of {self.name}", expected=f"an int in {self.min}..{self.max}", found=value)
        if number % self.multiple_of:
            raise ArgumentError(f"value of {self.name}", expected=f"a multiple of {self.multiple_of}", found=value)
        return number


__all__ = ["Variable"]
