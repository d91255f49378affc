"""Methods for parts and relations of numbers: divisors, exponents, neighbours, extremes that ignore nan.

Invariant: results have PyTorch's dtypes; complex numbers do not exist, so `conj` and `real` are self.
"""

from __future__ import annotations

from math import inf, nan, pi
from typing import Any, NamedTuple, Self

from monolect.autograd import graph
from monolect.autograd.closed_forms import closed_alone
from monolect.autograd.graph import e, where
from monolect.base.dtype import dtypes, promote
from monolect.base.errors import DTypeError
from monolect.ir.uop import UOp, build, const
from monolect.tensor.base import AnyTensor, TensorBase, TensorLike
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.elementwise import computes_in_float32, floating, pair


class Frexp(NamedTuple):
    """The result of `frexp`: fractions in [0.5, 1), and exponents of 2."""

    mantissa: Any
    exponent: Any


@guard_methods
class NumbersMixin(TensorBase):
    """Methods of Tensor for parts and relations of numbers."""

    __slots__ = ()

    # ---- integers ----------------------------------------------------------------------------------------------------
    def gcd(self, other: TensorLike) -> Self:
        """Return the greatest common divisor, at least 0, broadcast and promoted. Raises DTypeError for floats and
        bools.

        >>> Tensor([12, -8, 0]).gcd(Tensor([18, 12, 5])).tolist()
        [6, 4, 5]
        """
        a, b = _integers(self, "gcd", other)
        # Euclid's algorithm: each two steps halve the smaller number
        steps = {8: 12, 16: 24, 32: 47, 64: 93}[a.dtype.bits]
        for _ in range(steps):
            a, b = b.ne(0).where(b, a), b.ne(0).where(a % b.ne(0).where(b, 1), b)
        # the smallest number has no absolute value: remainders by it are negative
        return a if a.dtype.is_unsigned else a.abs()

    def lcm(self, other: TensorLike) -> Self:
        """Return the least common multiple, at least 0, broadcast and promoted. Raises DTypeError for floats and bools.

        >>> Tensor([4, 0]).lcm(Tensor([6, 5])).tolist()
        [12, 0]
        """
        a, b = _integers(self, "lcm", other)
        g = a.gcd(b)
        return (a // g.ne(0).where(g, 1) * b).abs() if not a.dtype.is_unsigned else a // g.ne(0).where(g, 1) * b

    # ---- exponents and neighbours ------------------------------------------------------------------------------------
    @computes_in_float32
    def ldexp(self, other: TensorLike) -> Self:
        """Return `self * 2 ** other`, broadcast; integers give float32.

        >>> Tensor([1.0, 3.0]).ldexp(Tensor([2, -1])).tolist()
        [4.0, 1.5]
        """
        x: Any = self
        n: Any = other if isinstance(other, TensorBase) else x._scalar(other)
        return x * (n if n.dtype.is_float else n.cast(promote(dtypes.float32, x.dtype))).exp2()

    def frexp(self) -> Frexp:
        """Return (mantissa, exponent): self is `mantissa * 2 ** exponent`, with |mantissa| in [0.5, 1) or 0.

        The exponents are int32. Infinities and nan have the exponent 0. The mantissa has a gradient. Raises DTypeError
        for integers.

        >>> [t.tolist() for t in Tensor([8.0, -0.75, 0.0]).frexp()]
        [[0.5, -0.75, 0.0], [4, 0, 0]]
        """
        self._check_float("frexp")
        x: Any = self
        wide = x if x.dtype.bits >= 32 else x.float()
        bits, bias, width = (52, 1022, 2047) if wide.dtype is dtypes.float64 else (23, 126, 255)
        is_plain = wide.isfinite() & wide.ne(0)
        is_small = is_plain & (wide.abs() < 2.0 ** (1 - bias))  # its exponent is in the digits
        scaled = is_small.where(wide * 2.0 ** (bits + 1), wide).detach()
        kind = "int64" if bits == 52 else "int32"
        raw = ((scaled.bitcast(kind) >> bits) & width) - bias
        exponent = is_plain.where(is_small.where(raw - bits - 1, raw), 0)
        half = -(exponent // 2)
        low, high = (n.cast(wide.dtype).exp2() for n in (half, -exponent - half))  # their product may overflow
        return Frexp((wide * low * high).cast(self.dtype), exponent.int())

    def nextafter(self, other: TensorLike) -> Self:
        """Return the next number of the dtype after self in the direction of `other`, broadcast.

        Raises DTypeError for integers.

        >>> (Tensor([1.0]).nextafter(Tensor([2.0])) - 1).tolist() == [2.0**-23]
        True
        """
        self._check_float("nextafter")
        x: Any = self
        a, b = (x._wrap(u).detach() for u in pair(self, other))
        kind = f"int{a.dtype.bits}"
        bits = a.bitcast(kind)
        grows = (b > a) == (a > 0)
        least = (b > 0).where(1, (bits & 0) | _least_negative(a.dtype.bits))
        moved = a.eq(0).where(least, grows.where(bits + 1, bits - 1)).bitcast(a.dtype)
        out: Self = a.eq(b).where(b, moved)
        return (a.isnan() | b.isnan()).where(nan, out)

    def logaddexp2(self, other: TensorLike) -> Self:
        """Return log2(2 ** self + 2 ** other) without overflow, broadcast; integers give float32.

        >>> round(Tensor(1000.0).logaddexp2(1000.0).item(), 3)
        1001.0
        """
        return _logaddexp2(self, other)

    # ---- extremes and comparisons ------------------------------------------------------------------------------------
    def fmax(self, other: TensorLike) -> Self:
        """Return the larger element of self and `other`, broadcast and promoted; nan only if both are nan.

        >>> Tensor([1.0, float("nan")]).fmax(Tensor([float("nan"), 2.0])).tolist()
        [1.0, 2.0]
        """
        return _of_both(self, other, "CMPGE")

    def fmin(self, other: TensorLike) -> Self:
        """Return the smaller element of self and `other`, broadcast and promoted; nan only if both are nan.

        >>> Tensor([1.0, float("nan")]).fmin(Tensor([float("nan"), 2.0])).tolist()
        [1.0, 2.0]
        """
        return _of_both(self, other, "CMPLE")

    def isposinf(self) -> Self:
        """Return a bool tensor: True where the value is the positive infinity.

        >>> Tensor([float("inf"), float("-inf"), 1.0]).isposinf().tolist()
        [True, False, False]
        """
        return self == inf if self.dtype.is_float else self._all_false()

    def isneginf(self) -> Self:
        """Return a bool tensor: True where the value is the negative infinity.

        >>> Tensor([float("inf"), float("-inf"), 1.0]).isneginf().tolist()
        [False, True, False]
        """
        return self == -inf if self.dtype.is_float else self._all_false()

    # ---- real numbers ------------------------------------------------------------------------------------------------
    def isreal(self) -> Self:
        """Return True for each element, as there are no complex numbers.

        >>> Tensor([1.0, 2.0]).isreal().tolist()
        [True, True]
        """
        return self._wrap(graph.full(self.shape, True, dtypes.bool))

    def positive(self) -> Self:
        """Return self. Raises DTypeError for bools.

        >>> Tensor([-1, 2]).positive().tolist()
        [-1, 2]
        """
        if self.dtype is dtypes.bool:
            raise DTypeError("'+' is not defined on bool", expected="a number", found="bool")
        return self

    def conj(self) -> Self:
        """Return self, as there are no complex numbers.

        >>> Tensor([1.0]).conj().tolist()
        [1.0]
        """
        return self

    def conj_physical(self) -> Self:
        """Return self, as there are no complex numbers.

        >>> Tensor([1.0]).conj_physical().tolist()
        [1.0]
        """
        return self

    @property
    def real(self) -> Self:
        """The real part: self, as there are no complex numbers.

        >>> Tensor([1.0]).real.tolist()
        [1.0]
        """
        return self

    def angle(self) -> Self:
        """Return the angle of real numbers: pi where self is negative, else 0; nan stays nan. Integers give float32.

        >>> [round(x, 4) for x in Tensor([-2.0, 3.0]).angle().tolist()]
        [3.1416, 0.0]
        """
        u = floating(self)
        y = where(build("CMPNE", u, u), u, where(e("CMPLT", u, 0.0), const(pi, u.dtype), 0.0))
        return self._wrap(closed_alone(y, (u,), lambda g, y, u: (graph.full(u.shape, 0, u.dtype),)))


def _integers(self: Any, name: str, other: Any) -> tuple[Any, Any]:
    """Return the magnitudes of two integer operands in their common dtype. Raises DTypeError for others."""
    a, b = pair(self, other)
    if not a.dtype.is_int or a.dtype is dtypes.bool:
        raise DTypeError(f"{name} needs integers", expected="an integer dtype", found=a.dtype.name)
    x, y = self._wrap(a), self._wrap(b)
    return (x, y) if a.dtype.is_unsigned else (x.abs(), y.abs())


def _least_negative(bits: int) -> int:
    """Return the bits, as an integer, of the negative float of the least magnitude."""
    return 1 - (1 << (bits - 1))


@computes_in_float32
def _logaddexp2(self: Any, other: Any) -> Any:
    a, b = (self._wrap(floating(self._wrap(u))) for u in pair(self, other))
    high = a.maximum(b).detach()
    shift = high.isfinite().where(high, 0.0)
    return ((a - shift).exp2() + (b - shift).exp2()).log2() + shift


def _of_both(self: AnyTensor, other: Any, op: str) -> AnyTensor:
    """Return the element of self where it compares with `other` by `op` or that is nan, else the one of `other`.

    The chosen operand gets the gradient.
    """
    a, b = pair(self, other)
    if not a.dtype.is_float:
        x: Any = self._wrap(a)
        found: AnyTensor = x.maximum(self._wrap(b)) if op == "CMPGE" else x.minimum(self._wrap(b))
        return found
    first = build("OR", build(op, a, b), build("CMPNE", b, b))
    y = build("WHERE", first, a, b)

    def derivative(g: UOp, y: UOp, a: UOp, b: UOp) -> tuple[UOp, UOp]:
        chosen = build("OR", build(op, a, b), build("CMPNE", b, b))
        return where(chosen, g, 0.0), where(chosen, 0.0, g)

    return self._wrap(closed_alone(y, (a, b), derivative))


__all__ = ["Frexp", "NumbersMixin"]
