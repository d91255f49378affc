"""Methods that apply a function to each element: exponentials, trigonometry, rounding, clamping, activations.

Invariant: results are accurate near 0, and overflow only if the exact result does. The formulas that need care are in
`monolect.autograd.special`. As in PyTorch, integers become float32 where results are not whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, inf, isfinite, log, nan, pi, trunc
from typing import Any, Self, overload

from monolect.autograd import special
from monolect.autograd.closed_forms import closed_alone, closed_form
from monolect.autograd.division import floor
from monolect.autograd.gradient import cosine
from monolect.autograd.graph import cast, e, full, number, where
from monolect.autograd.operands import same_device
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DTypeError, IRError, ShapeError
from monolect.base.numpy import is_scalar
from monolect.ir.uop import UOp, build, const
from monolect.tensor.base import AnyTensor, TensorBase, TensorLike, as_int, refused
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.elementwise import (
    common,
    computes_in_float32,
    extremes,
    float_pair,
    floating,
    in_float32,
    operand,
    pair,
)

_SINC_TERMS = 9  # highest term of the series; below 1, later terms are less than half a bit of float64


def _op(
    name: str, function: Callable[[UOp], UOp], prose: str, at: float, gives: float
) -> Callable[[AnyTensor], AnyTensor]:
    """Return a method `name` that applies `function` to the node of a tensor, as floats.

    `function` maps a float node to the node of the result. The method's docstring is "Return `prose`", with an example:
    the method of `at` gives `gives`, rounded to 4 digits.
    """

    def method(self: AnyTensor) -> AnyTensor:
        return self._wrap(function(floating(self)))

    example = f">>> round(Tensor({at}).{name}().item(), 4)\n{gives}"
    method.__name__, method.__doc__ = name, f"Return {prose} Integers and bools give float32.\n\n{example}\n"
    method.__code__ = method.__code__.replace(co_name=name)  # the name that provenance reports
    return method


def _clamp_gradients(within: str, beyond: str) -> Any:
    """Return the derivative, for `closed_form`, of a clamp of `x` to one bound; the backward walk calls it.

    `within` and `beyond` are comparison ops, such as CMPGE and CMPLT. Where `x` compares with the bound as `within`,
    `x` gets the gradient; as `beyond`, the bound gets it; at nan neither does.
    """

    def derivative(g: UOp, y: UOp, x: UOp, bound: UOp) -> tuple[UOp, UOp]:
        return where(build(within, x, bound), g, 0.0), where(build(beyond, x, bound), g, 0.0)

    return derivative


@guard_methods
class FunctionsMixin(TensorBase):
    """Methods of Tensor that apply a function to each element; the shape stays."""

    __slots__ = ()

    # ---- exponentials, roots, trigonometry ---------------------------------------------------------------------------
    exp = _op("exp", special.exp, "e ** self.", 1.0, 2.7183)
    exp2 = _op("exp2", in_float32(lambda x: build("EXP2", x)), "2 ** self.", 3.0, 8.0)
    expm1 = _op("expm1", special.expm1, "e ** self - 1, accurate near 0.", 1.0, 1.7183)
    log = _op("log", special.log_e, "the natural logarithm, nan below 0.", 10.0, 2.3026)
    log2 = _op("log2", in_float32(lambda x: build("LOG2", x)), "the logarithm to base 2, nan below 0.", 8.0, 3.0)
    log10 = _op(
        "log10",
        in_float32(lambda x: e("MUL", build("LOG2", x), log(2) / log(10))),
        "the logarithm to base 10, nan below 0.",
        1000.0,
        3.0,
    )
    log1p = _op("log1p", special.log1p, "log(1 + self), accurate near 0.", 1.0, 0.6931)
    sqrt = _op("sqrt", lambda x: build("SQRT", x), "the square root, nan below 0.", 2.0, 1.4142)
    rsqrt = _op("rsqrt", in_float32(lambda x: build("RECIP", build("SQRT", x))), "1 / sqrt(self).", 4.0, 0.5)
    sin = _op("sin", lambda x: build("SIN", x), "the sine of angles in radians.", 1.0, 0.8415)
    cos = _op("cos", in_float32(cosine), "the cosine of angles in radians.", 1.0, 0.5403)
    tan = _op(
        "tan",
        in_float32(lambda x: build("DIV", build("SIN", x), cosine(x))),
        "the tangent of angles in radians.",
        1.0,
        1.5574,
    )
    asin = arcsin = _op("asin", special.asin, "the arc sine in radians, nan outside of [-1, 1].", 1.0, 1.5708)
    acos = arccos = _op("acos", special.acos, "the arc cosine in radians, nan outside of [-1, 1].", 0.0, 1.5708)
    atan = arctan = _op("atan", special.atan, "the arc tangent in radians.", 1.0, 0.7854)
    sinh = _op("sinh", special.sinh, "the hyperbolic sine.", 1.0, 1.1752)
    cosh = _op("cosh", special.cosh, "the hyperbolic cosine.", 1.0, 1.5431)
    tanh = _op("tanh", special.tanh, "the hyperbolic tangent.", 1.0, 0.7616)
    asinh = arcsinh = _op("asinh", special.asinh, "the inverse hyperbolic sine.", 1.0, 0.8814)
    acosh = arccosh = _op("acosh", special.acosh, "the inverse hyperbolic cosine, nan below 1.", 2.0, 1.317)
    atanh = arctanh = _op(
        "atanh", special.atanh, "the inverse hyperbolic tangent, nan outside of [-1, 1].", 0.5, 0.5493
    )
    erf = _op("erf", special.erf, "the error function.", 1.0, 0.8427)
    erfc = _op("erfc", special.erfc, "1 - erf(self), accurate also for tiny results.", 1.0, 0.1573)
    sigmoid = _op("sigmoid", special.sigmoid, "1 / (1 + exp(-self)).", 1.0, 0.7311)
    logsigmoid = _op("logsigmoid", special.log_sigmoid, "log(sigmoid(self)) without overflow.", 0.0, -0.6931)
    deg2rad = _op(
        "deg2rad", in_float32(lambda x: e("MUL", x, pi / 180)), "angles in degrees converted to radians.", 180.0, 3.1416
    )
    rad2deg = _op(
        "rad2deg", in_float32(lambda x: e("MUL", x, 180 / pi)), "angles in radians converted to degrees.", 1.0, 57.2958
    )

    def _floats(self) -> Self:
        """Return self, as float32 if it holds integers, whose sums and differences would wrap."""
        return self._wrap(floating(self))

    @computes_in_float32
    def logit(self, eps: float | None = None) -> Self:
        """Return log(self / (1 - self)), the inverse of `sigmoid`; with `eps`, self is first clamped to [eps, 1 - eps].

        Integers give float32.

        >>> Tensor([0.5, 1.0]).logit().tolist()
        [0.0, inf]
        """
        x = self._floats()
        inside = x if eps is None else x.clamp(eps, 1 - eps)
        low, high, beyond = (0.0, 1.0, nan) if eps is None else (eps, 1 - eps, 0.0)

        def derivative(g: UOp, y: UOp, x: UOp) -> tuple[UOp]:
            outside = build("OR", e("CMPLT", x, low), e("CMPGT", x, high))
            square = e("ADD", build("MUL", x, e("SUB", 1.0, x)), 0.0)  # 0, not -0, at -0
            return (where(outside, beyond, build("DIV", g, square)),)

        return self._wrap(closed_alone((inside / (1 - inside)).log()._uop, (x._uop,), derivative))

    def logaddexp(self, other: TensorLike) -> Self:
        """Return log(exp(self) + exp(other)) without overflow, broadcast; integers give float32.

        >>> round(Tensor(1000.0).logaddexp(1000.0).item(), 3)
        1000.693
        """
        return self._binary_float("logaddexp", special.logaddexp, other)

    def hypot(self, other: TensorLike) -> Self:
        """Return sqrt(self**2 + other**2) without overflow, broadcast; integers give float32.

        >>> Tensor([3, 30]).hypot(Tensor([4, 40])).tolist()
        [5.0, 50.0]
        """
        return self._binary_float("hypot", special.hypot, other)

    def atan2(self, other: TensorLike) -> Self:
        """Return the angle of the point (other, self) in (-pi, pi], broadcast; integers give float32.

        >>> Tensor([1.0, -1.0]).atan2(Tensor([0.0, -1.0])).rad2deg().tolist()
        [90.0, -135.0]
        """
        return self._binary_float("atan2", special.atan2, other)

    arctan2 = atan2

    def _binary_float(self, name: str, function: Any, other: Any) -> Self:
        """Return `function`, which maps two float nodes to a node, of self and `other`; integers become float32.

        `name` is the method in messages. Raises ShapeError for shapes that do not broadcast, DeviceError for operands
        on different devices.
        """
        a, b = float_pair(self, other)
        same_device(a, b)
        try:
            return self._wrap(function(a, b))
        except IRError as error:
            raise refused(name, error, a, b) from None

    # ---- rounding and signs ------------------------------------------------------------------------------------------
    def _rounded(self, function: Any) -> Self:
        """Return `function`, which maps a float node to a rounded node, of self, with gradient 0.

        Integers are unchanged, and `function` is not called.
        """
        return self._wrap(_zero_gradient(function(self._uop), self._uop) if self.dtype.is_float else self._uop)

    def trunc(self) -> Self:
        """Return the elements rounded toward zero, in the same dtype; integers are unchanged.

        >>> Tensor([1.7, -1.7]).trunc().tolist()
        [1.0, -1.0]
        """
        return self._rounded(lambda x: build("TRUNC", x))

    fix = trunc

    def floor(self) -> Self:
        """Return the elements rounded down, in the same dtype; integers are unchanged.

        >>> Tensor([1.7, -1.7]).floor().tolist()
        [1.0, -2.0]
        """
        return self._rounded(floor)

    def ceil(self) -> Self:
        """Return the elements rounded up, in the same dtype; integers are unchanged.

        >>> Tensor([1.2, -1.7]).ceil().tolist()
        [2.0, -1.0]
        """
        return self._rounded(_ceil)

    @computes_in_float32
    def round(self, decimals: int = 0) -> Self:
        """Return the elements rounded to `decimals` digits after the point; halves go to the even neighbour.

        Raises DTypeError for integers with negative `decimals`.

        >>> Tensor([0.5, 1.5, -2.5]).round().tolist()
        [0.0, 2.0, -2.0]
        """
        decimals = as_int(decimals, "decimals")
        if decimals < 0:
            self._check_float("round to tens")
        if decimals and self.dtype.is_float:
            scale = 10.0 ** abs(decimals)  # a power with a negative exponent would not be exact
            return (self * scale).round() / scale if decimals > 0 else (self / scale).round() * scale
        return self._rounded(_round)

    def frac(self) -> Self:
        """Return `self - trunc(self)`, the fractional part with the sign of self. Raises DTypeError for integers.

        >>> Tensor([1.75, -1.75]).frac().tolist()
        [0.75, -0.75]
        """
        self._check_float("frac")
        return self - self.trunc()

    def abs(self) -> Self:
        """Return the absolute values, in the same dtype.

        >>> Tensor([-2, 3]).abs().tolist()
        [2, 3]
        """
        u = self._uop
        return self._wrap(u if u.dtype.is_unsigned else special.absolute(u))

    absolute = abs

    def sign(self) -> Self:
        """Return 1, 0 or -1 in the same dtype; the sign of nan is 0, as in PyTorch.

        >>> Tensor([-2.5, 0.0, 3.0]).sign().tolist()
        [-1.0, 0.0, 1.0]
        """
        u = self._uop
        if u.dtype is dtypes.bool:
            return self._wrap(u)
        below = where(e("CMPLT", u, 0), const(-1, u.dtype), 0) if not u.dtype.is_unsigned else const(0, u.dtype)
        return self._wrap(_zero_gradient(where(e("CMPLT", const(0, u.dtype), u), 1, below), u))

    sgn = sign

    def signbit(self) -> Self:
        """Return a bool tensor: True where the sign is negative, also for -0.0.

        >>> Tensor([-1.0, -0.0, 0.0]).signbit().tolist()
        [True, True, False]
        """
        return self._wrap(special.negative(self._uop) if self.dtype.is_float else e("CMPLT", self._uop, 0))

    def copysign(self, other: TensorLike) -> Self:
        """Return the magnitude of self with the sign of `other`, broadcast; integers give float32.

        >>> Tensor([1.0, 2.0]).copysign(Tensor([-3.0, 0.0])).tolist()
        [-1.0, 2.0]
        """
        return self._binary_float("copysign", special.copysign, other)

    # ---- choosing and clamping ---------------------------------------------------------------------------------------
    @overload
    def where(self, input: TensorLike, other: TensorLike) -> Self: ...
    @overload
    def where(self) -> tuple[Self, ...]: ...
    def where(self, input: TensorLike | None = None, other: TensorLike | None = None) -> Self | tuple[Self, ...]:
        """Return `input` where the condition self holds, else `other`; called as `Tensor.where(condition, a, b)` or
        `condition.where(a, b)`. Without both it is `nonzero(as_tuple=True)`.

        All three broadcast, and the dtypes of `input` and `other` promote. Raises DTypeError for a condition that is
        not bool, ArgumentError for one of both.

        >>> Tensor.where(Tensor([True, False]), Tensor([1, 2]), 0).tolist()
        [1, 0]
        """
        if input is None or other is None:
            if input is not other:
                raise ArgumentError("where", expected="input and other, or none of them", found="one of them")
            t: Any = self
            return t.nonzero(as_tuple=True)
        if self.dtype is not dtypes.bool:
            raise DTypeError("where needs a bool condition", expected="bool", found=self.dtype.name)
        if isinstance(input, TensorBase):
            a, b = pair(input, other)
        elif isinstance(other, TensorBase):
            b, a = pair(other, input)
        else:
            a, b = pair(self._kind(input.item() if is_scalar(input) else input), other)
        same_device(self._uop, a, b)
        try:
            return self._wrap(build("WHERE", self._uop, a, b))
        except IRError as error:
            raise refused("where", error, self._uop, a, b) from None

    def masked_fill(self, mask: TensorBase, value: TensorLike) -> Self:
        """Return `value` where `mask` holds, else self, in the dtype of self; both broadcast.

        Raises DTypeError for a mask that is not bool.

        >>> Tensor([1, 2, 3]).masked_fill(Tensor([True, False, True]), 0).tolist()
        [0, 2, 0]
        """
        if mask.dtype is not dtypes.bool:
            raise DTypeError("masked_fill needs a bool mask", expected="bool", found=mask.dtype.name)
        same_device(self._uop, mask._uop)
        try:
            u = self._uop
            return self._wrap(where(mask._uop, _fill_value(self, u, value), u))
        except IRError as error:
            raise refused("masked_fill", error, self._uop, mask._uop) from None

    def clamp(self, min: TensorLike | None = None, max: TensorLike | None = None) -> Self:
        """Return self limited to [min, max], broadcast and promoted. Each bound is None, a number or a tensor.

        nan stays nan, also that of a bound; the derivative is 0 at nan, as in PyTorch. An int bound outside of the
        range of an integer dtype is replaced by the nearest number of the dtype. Raises ArgumentError without a bound.

        >>> Tensor([-2.0, 0.5, 3.0]).clamp(0, 1).tolist()
        [0.0, 0.5, 1.0]
        """
        if min is None and max is None:
            raise ArgumentError("clamp needs a bound", expected="min, max or both", found="neither")
        bounds = {less: x for less, x in (("CMPLT", min), ("CMPGT", max)) if x is not None}
        a, *found = extremes(self, *bounds.values())
        for less, b in zip(bounds, found, strict=True):
            beyond = build(less, a, b) if a.dtype.is_float or less == "CMPLT" else build("CMPLT", b, a)
            if a.dtype.is_float:
                beyond = build("OR", beyond, build("CMPNE", b, b))
            y = build("WHERE", beyond, b, a)
            if a.dtype.is_float:
                y = closed_alone(y, (a, b), _clamp_gradients("CMPGE" if less == "CMPLT" else "CMPLE", less))
            a = y
        return self._wrap(a)

    clip = clamp

    def clamp_min(self, min: TensorLike) -> Self:
        """Return the larger of self and `min`, as `clamp(min=min)`.

        >>> Tensor([-1, 2]).clamp_min(0).tolist()
        [0, 2]
        """
        return self.clamp(min=min)

    def clamp_max(self, max: TensorLike) -> Self:
        """Return the smaller of self and `max`, as `clamp(max=max)`.

        >>> Tensor([-1, 2]).clamp_max(0).tolist()
        [-1, 0]
        """
        return self.clamp(max=max)

    @computes_in_float32
    def lerp(self, end: TensorLike, weight: TensorLike) -> Self:
        """Return `self + weight * (end - self)`, broadcast and promoted; the result is exactly self at weight 0 and
        `end` at weight 1.

        >>> Tensor([0.0, 10.0]).lerp(Tensor([10.0, 20.0]), 0.5).tolist()
        [5.0, 15.0]
        """
        a, b, w = common(self, end, weight)
        same_device(a, b)
        try:
            return self._wrap(special.lerp(a, b, w))
        except IRError as error:
            raise refused("lerp", error, a, b, w) from None

    def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
        """Return self with nan replaced by `nan`, and infinities by `posinf` and `neginf`, by default the largest
        finite values.

        Integers are unchanged.

        >>> Tensor([float("nan"), float("inf"), 1.0]).nan_to_num(posinf=9.0).tolist()
        [0.0, 9.0, 1.0]
        """
        if not self.dtype.is_float:
            return self._wrap(self._uop)
        top = _LARGEST[self.dtype.name]
        u = self._uop
        high, low = top if posinf is None else posinf, -top if neginf is None else neginf
        out = where(e("CMPEQ", u, inf), high, where(e("CMPEQ", u, -inf), low, u))
        return self._wrap(where(build("CMPNE", u, u), nan, out))

    # ---- activations -------------------------------------------------------------------------------------------------
    def relu(self) -> Self:
        """Return max(self, 0), in the same dtype; the derivative at 0 is 0.

        >>> Tensor([-1.0, 2.0]).relu().tolist()
        [0.0, 2.0]
        """
        u = self._uop
        if u.dtype.is_unsigned:
            return self._wrap(u)
        return self._wrap(where(e("CMPLE", u, 0.0) if u.dtype.is_float else e("CMPLT", u, 0), 0, u))

    def relu6(self) -> Self:
        """Return min(max(self, 0), 6); the derivative at 0 and 6 is 0.

        >>> Tensor([-1.0, 2.0, 8.0]).relu6().tolist()
        [0.0, 2.0, 6.0]
        """
        return self.hardtanh(0.0, 6.0)

    @computes_in_float32
    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """Return self where it is positive, else negative_slope * self.

        >>> Tensor([-2.0, 3.0]).leaky_relu(0.25).tolist()
        [-0.5, 3.0]
        """
        return (self > 0).where(self, self * negative_slope)

    @computes_in_float32
    def prelu(self, weight: TensorBase) -> Self:
        """Return self where it is positive, else weight * self.

        `weight` is one slope, of shape () or (1,), or a vector with one slope for each channel (axis 1). Raises
        ShapeError for another shape.

        >>> Tensor([[-2.0, -2.0], [1.0, 1.0]]).prelu(Tensor([0.5, 0.25])).tolist()
        [[-1.0, -0.5], [1.0, 1.0]]
        """
        channels = self.shape[1] if self.ndim > 1 else 1
        if weight.shape not in ((), (1,), (channels,)):
            raise ShapeError("prelu: weight", expected=f"one slope, or {channels}", found=weight.shape)
        shape = (-1, *(1,) * (self.ndim - 2)) if weight.numel() != 1 else (1,) * min(self.ndim, 1)
        above = self > 0
        negative = above.where(0, self)  # an infinity above 0 must not meet the gradient 0 of its product
        return above.where(self, negative * weight.reshape(*shape))

    @computes_in_float32
    def elu(self, alpha: float = 1.0) -> Self:
        """Return self where it is positive, else alpha * expm1(self); integers give float32.

        >>> round(Tensor(-1.0).elu().item(), 4)
        -0.6321
        """
        return self._wrap(_elu(floating(self), alpha, 1.0, alpha))

    @computes_in_float32
    def celu(self, alpha: float = 1.0) -> Self:
        """Return self where it is positive, else alpha * expm1(self / alpha); integers give float32.

        >>> round(Tensor(-1.0).celu(alpha=2.0).item(), 4)
        -0.7869
        """
        return self._wrap(_elu(floating(self), alpha, alpha, 1.0))

    @computes_in_float32
    def selu(self) -> Self:
        """Return the self-normalising elu: 1.0507 times `elu` with alpha 1.6733.

        >>> round(Tensor(-1.0).selu().item(), 4)
        -1.1113
        """
        return self.elu(1.6732632423543772) * 1.0507009873554805

    def gelu(self, approximate: str = "none") -> Self:
        """Return the Gaussian error linear unit; `approximate` is "none" (exact) or "tanh".

        Integers give float32. Raises ArgumentError for another `approximate`.

        >>> round(Tensor(1.0).gelu().item(), 4)
        0.8413
        """
        if approximate not in ("none", "tanh"):
            raise ArgumentError("gelu: unknown approximation", expected="'none' or 'tanh'", found=repr(approximate))
        return self._wrap((special.gelu if approximate == "none" else special.gelu_tanh)(floating(self)))

    def silu(self) -> Self:
        """Return `self * sigmoid(self)`; integers give float32.

        >>> round(Tensor(1.0).silu().item(), 4)
        0.7311
        """
        return self._wrap(special.silu(floating(self)))

    @computes_in_float32
    def swish(self, beta: float = 1.0) -> Self:
        """Return `self * sigmoid(beta * self)`; integers give float32.

        >>> round(Tensor(1.0).swish(beta=2.0).item(), 4)
        0.8808
        """
        return self.silu() if beta == 1 else self * (self * beta).sigmoid()

    @computes_in_float32
    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """Return log(1 + exp(beta * self)) / beta, or self where beta * self > threshold.

        >>> round(Tensor(0.0).softplus().item(), 4), Tensor(30.0).softplus().item()
        (0.6931, 30.0)
        """
        if beta == 1:
            soft = self._wrap(special.softplus(floating(self)))
            return (self > threshold).where(self, soft)
        scaled = self * beta
        return (scaled > threshold).where(self, self._wrap(special.softplus(floating(scaled))) / beta)

    @computes_in_float32
    def mish(self) -> Self:
        """Return `self * tanh(softplus(self))`; integers give float32.

        >>> round(Tensor(1.0).mish().item(), 4)
        0.8651
        """
        return self * self._wrap(special.tanh(special.softplus(floating(self))))

    @computes_in_float32
    def softsign(self) -> Self:
        """Return `self / (1 + |self|)`; integers give float32.

        >>> Tensor([1.0, -3.0]).softsign().tolist()
        [0.5, -0.75]
        """
        x = self._floats()
        return x / (x.abs() + 1)

    @computes_in_float32
    def tanhshrink(self) -> Self:
        """Return `self - tanh(self)`; integers give float32.

        >>> round(Tensor(1.0).tanhshrink().item(), 4)
        0.2384
        """
        return self - self.tanh()

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """Return self clamped to [min_val, max_val]; the derivative is 0 at the bounds and at nan, as in PyTorch.

        Integers stay integers, with bounds rounded toward zero. Raises ArgumentError if min_val > max_val or a bound is
        nan.

        >>> Tensor([-3.0, 0.5, 3.0]).hardtanh().tolist()
        [-1.0, 0.5, 1.0]
        """
        if not min_val <= max_val:
            raise ArgumentError("hardtanh: bounds", expected="min_val <= max_val", found=(min_val, max_val))
        if self.dtype.is_int:
            low, high = (trunc(v) if isfinite(v) else None for v in (min_val, max_val))
            return self._wrap(self._uop) if low is high is None else self.clamp(low, high)
        u = floating(self)
        inner = where(e("CMPLE", u, min_val), min_val, u)
        y = where(e("CMPGE", u, max_val), max_val, inner)

        def derivative(g: UOp, y: UOp, u: UOp) -> tuple[UOp]:
            return (where(build("AND", e("CMPGT", u, min_val), e("CMPLT", u, max_val)), g, 0.0),)

        return self._wrap(closed_alone(y, (u,), derivative))

    @computes_in_float32
    def hardsigmoid(self) -> Self:
        """Return clamp(self / 6 + 1/2, 0, 1); integers give float32.

        >>> Tensor([-4.0, 0.0, 4.0]).hardsigmoid().tolist()
        [0.0, 0.5, 1.0]
        """
        return (self._floats() + 3).relu6() / 6

    @computes_in_float32
    def hardswish(self) -> Self:
        """Return `self * hardsigmoid(self)`; integers give float32.

        >>> Tensor([-1.5, 1.5, 4.0]).hardswish().tolist()
        [-0.375, 1.125, 4.0]
        """
        x = self._floats()
        return x * (x + 3).relu6() / 6

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """Return self, but 0 where |self| <= lambd; integers give float32.

        >>> Tensor([-2.0, 0.5, 1.0]).hardshrink().tolist()
        [-2.0, 0.0, 1.0]
        """
        x = self._floats()
        return (x.abs() <= lambd).where(0.0, x)

    def softshrink(self, lambd: float = 0.5) -> Self:
        """Return self moved toward 0 by `lambd`, and 0 where |self| <= lambd; integers give float32.

        >>> Tensor([-2.0, 0.5, 1.0]).softshrink().tolist()
        [-1.5, 0.0, 0.5]
        """
        x = self._floats()
        return (x.abs() <= lambd).where(0.0, (x > 0).where(x - lambd, x + lambd))

    def threshold(self, threshold: float, value: float) -> Self:
        """Return self where it is above the threshold, else `value`.

        >>> Tensor([1, 2, 3]).threshold(1, -1).tolist()
        [-1, 2, 3]
        """
        return (self <= threshold).where(value, self)

    def heaviside(self, values: TensorLike) -> Self:
        """Return 0 where self is below 0, 1 where it is above 0, and `values` where it is 0; shapes broadcast.

        >>> Tensor([-2.0, 0.0, 3.0]).heaviside(0.5).tolist()
        [0.0, 0.5, 1.0]
        """
        return self.eq(0).where(values, (self > 0).cast(self.dtype))

    @computes_in_float32
    def sinc(self) -> Self:
        """Return sin(pi * self) / (pi * self), and 1 at 0; integers give float32.

        >>> [round(x, 4) for x in Tensor([0.0, 0.5]).sinc().tolist()]
        [1.0, 0.6366]
        """
        x = self * pi
        small = x.abs() < 1  # at 0 the quotient has no derivative, and near 0 the derivative loses digits
        square: Self = small.where(x, 0.0).square()
        series = square * 0.0
        for k in range(_SINC_TERMS, -1, -1):
            series = series * square + (-1) ** k / factorial(2 * k + 1)
        return small.where(series, x.sin() / small.where(1.0, x))


def _elu(x: UOp, alpha: float, width: float, slope: float) -> UOp:
    """Return `x` where it is positive, else alpha * expm1(x / width).

    Where `x` is not positive, the derivative is slope * exp(x / width), since 1 + expm1 would lose digits.
    """

    def below(x: UOp) -> UOp:
        """Return x / width, and 0 where x is positive, as the branch that `where` rejects must not overflow."""
        u = where(e("CMPGT", x, 0.0), 0.0, x)
        return u if width == 1 else e("DIV", u, width)

    def derivative(g: UOp, y: UOp, x: UOp) -> tuple[UOp]:
        return (where(e("CMPGT", x, 0.0), g, build("MUL", g, e("MUL", special.exp(below(x)), slope))),)

    y = where(e("CMPGT", x, 0.0), x, e("MUL", special.expm1(below(x)), alpha))
    return closed_alone(y, (x,), derivative)


def _fill_value(self: Any, u: UOp, value: Any) -> UOp:
    """Return the operand `value` of a method of `self`, a number or tensor, as a node in the dtype of `u`.

    A number is converted in one step, since an intermediate dtype may not hold it.
    """
    value = value.item() if is_scalar(value) else value
    return number(value, u.dtype) if isinstance(value, bool | int | float) else cast(operand(self, u, value), u.dtype)


def _zero_gradient(y: UOp, x: UOp) -> UOp:
    """Return `y`, a piecewise constant function of `x`, with gradient 0."""
    return closed_form(y, (x,), lambda g, y, x: (full(x.shape, 0, x.dtype),))


def _ceil(x: UOp) -> UOp:
    """Return the smallest whole number not below x."""
    t = build("TRUNC", x)
    return where(build("CMPLT", t, x), e("ADD", t, 1.0), t)


def _round(x: UOp) -> UOp:
    """Return x rounded to whole numbers, halves to even: adding 2**23 (float64: 2**52) and subtracting it again rounds
    in hardware.
    """
    if x.dtype.bits < 32:
        return cast(_round(cast(x, dtypes.float32)), x.dtype)
    x, large = build("DETACH", x), 2.0 ** (52 if x.dtype is dtypes.float64 else 23)
    a = special.absolute(x)
    whole = e("SUB", e("ADD", a, large), large)
    return where(e("CMPLT", a, large), where(special.negative(x), build("NEG", whole), whole), x)


_LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "bfloat16": 3.3895313892515355e38,
    "float16": 65504.0,
    "fp8e4m3": 448.0,
    "fp8e5m2": 57344.0,
}


__all__ = ["FunctionsMixin"]
