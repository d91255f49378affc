"""Evaluate Chebyshev series, compute in float64, and attach derivatives in closed form.

Invariant: special functions are computed in float64 and rounded once, so results of float32 are within one unit in the
last place; a device without float64 refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from monolect.autograd.closed_forms import closed_alone
from monolect.autograd.graph import cast
from monolect.autograd.operands import common_dtype
from monolect.base.dtype import dtypes
from monolect.base.errors import GradientError
from monolect.ir.uop import UOp, build
from monolect.tensor.base import TensorBase

Method = TypeVar("Method", bound=Callable[..., Any])


def chebyshev(coefficients: Sequence[float], t: Any) -> Any:
    """Return c0 + c1 T1(t) + c2 T2(t) + ... for a tensor `t` in -1..1, by Clenshaw's recurrence."""
    twice, last, before = t * 2, t * 0, t * 0
    for c in reversed(coefficients[1:]):
        last, before = twice * last - before + c, last
    return t * last - before + coefficients[0]


def polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """Return c0 + c1 x + c2 x^2 + ... for a tensor `x`, by Horner's scheme."""
    out = x * 0 + coefficients[-1]
    for c in reversed(coefficients[:-1]):
        out = out * x + c
    return out


def in_float64(method: Method) -> Method:
    """Decorate a method of Tensor: self and other tensors are cast to float64, the result to the float dtype that they
    have in common; integers give float32.
    """

    @wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        def widened(a: Any) -> Any:
            return a._wrap(cast(a._uop, dtypes.float64)) if isinstance(a, TensorBase) else a

        d = common_dtype(*(x._uop for x in (self, *args, *kwargs.values()) if isinstance(x, TensorBase)))
        given, named = [widened(a) for a in args], {k: widened(a) for k, a in kwargs.items()}
        return method(widened(self), *given, **named).cast(d if d.is_float else dtypes.float32)

    return wrapper  # type: ignore[return-value]


def with_slope(y: Any, x: Any, slope: Callable[[Any, Any], Any]) -> Any:
    """Return the tensor `y`, a function of each element of the tensor `x`, with the derivative `slope(y, x)`."""
    wrap = x._kind._wrap

    def derivative(g: UOp, y: UOp, x: UOp) -> tuple[UOp]:
        return (build("MUL", g, slope(wrap(y), wrap(x))._uop),)

    return x._wrap(closed_alone(y._uop, (x._uop,), derivative))


def refuse_gradient(x: Any, what: str) -> Any:
    """Return the tensor `x`, whose gradient raises GradientError: `what`, such as "zeta by self", has no derivative."""

    def derivative(g: UOp, y: UOp, x: UOp) -> tuple[UOp]:
        raise GradientError(f"{what} has no derivative", expected="detach() of the argument", found="a backward()")

    return x._wrap(closed_alone(x._uop, (x._uop,), derivative))


__all__ = ["chebyshev", "in_float64", "polynomial", "refuse_gradient", "with_slope"]
