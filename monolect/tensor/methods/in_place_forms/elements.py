"""Forms that write to self, of the methods of each element; written by `make surface`.

Invariant: a form writes what its method returns to self, as an augmented assignment does: shape, dtype stay.
"""

from __future__ import annotations

from typing import Self

from monolect.tensor.base import TensorBase, TensorLike
from monolect.tensor.methods.in_place import InPlaceMixin


class ElementsForms(InPlaceMixin):
    """Forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()

    def abs_(self) -> Self:
        """Write the result of `abs` to self and return self.

        >>> Tensor([-2, 3]).abs_().tolist()
        [2, 3]
        """
        return self._written("abs")

    def acos_(self) -> Self:
        """Write the result of `acos` to self and return self.

        >>> round(Tensor(0.0).acos_().item(), 4)
        1.5708
        """
        return self._written("acos")

    def acosh_(self) -> Self:
        """Write the result of `acosh` to self and return self.

        >>> round(Tensor(2.0).acosh_().item(), 4)
        1.317
        """
        return self._written("acosh")

    def asin_(self) -> Self:
        """Write the result of `asin` to self and return self.

        >>> round(Tensor(1.0).asin_().item(), 4)
        1.5708
        """
        return self._written("asin")

    def asinh_(self) -> Self:
        """Write the result of `asinh` to self and return self.

        >>> round(Tensor(1.0).asinh_().item(), 4)
        0.8814
        """
        return self._written("asinh")

    def atan2_(self, other: TensorLike) -> Self:
        """Write the result of `atan2` to self and return self.

        >>> Tensor([1.0, -1.0]).atan2_(Tensor([0.0, -1.0])).rad2deg().tolist()
        [90.0, -135.0]
        """
        return self._written("atan2", other)

    def atan_(self) -> Self:
        """Write the result of `atan` to self and return self.

        >>> round(Tensor(1.0).atan_().item(), 4)
        0.7854
        """
        return self._written("atan")

    def atanh_(self) -> Self:
        """Write the result of `atanh` to self and return self.

        >>> round(Tensor(0.5).atanh_().item(), 4)
        0.5493
        """
        return self._written("atanh")

    def ceil_(self) -> Self:
        """Write the result of `ceil` to self and return self.

        >>> Tensor([1.2, -1.7]).ceil_().tolist()
        [2.0, -1.0]
        """
        return self._written("ceil")

    def clamp_(self, min: TensorLike | None = None, max: TensorLike | None = None) -> Self:
        """Write the result of `clamp` to self and return self.

        >>> Tensor([-2.0, 0.5, 3.0]).clamp_(0, 1).tolist()
        [0.0, 0.5, 1.0]
        """
        return self._written("clamp", min, max)

    def clamp_max_(self, max: TensorLike) -> Self:
        """Write the result of `clamp_max` to self and return self.

        >>> Tensor([-1, 2]).clamp_max_(0).tolist()
        [-1, 0]
        """
        return self._written("clamp_max", max)

    def clamp_min_(self, min: TensorLike) -> Self:
        """Write the result of `clamp_min` to self and return self.

        >>> Tensor([-1, 2]).clamp_min_(0).tolist()
        [0, 2]
        """
        return self._written("clamp_min", min)

    def copysign_(self, other: TensorLike) -> Self:
        """Write the result of `copysign` to self and return self.

        >>> Tensor([1.0, 2.0]).copysign_(Tensor([-3.0, 0.0])).tolist()
        [-1.0, 2.0]
        """
        return self._written("copysign", other)

    def cos_(self) -> Self:
        """Write the result of `cos` to self and return self.

        >>> round(Tensor(1.0).cos_().item(), 4)
        0.5403
        """
        return self._written("cos")

    def cosh_(self) -> Self:
        """Write the result of `cosh` to self and return self.

        >>> round(Tensor(1.0).cosh_().item(), 4)
        1.5431
        """
        return self._written("cosh")

    def deg2rad_(self) -> Self:
        """Write the result of `deg2rad` to self and return self.

        >>> round(Tensor(180.0).deg2rad_().item(), 4)
        3.1416
        """
        return self._written("deg2rad")

    def erf_(self) -> Self:
        """Write the result of `erf` to self and return self.

        >>> round(Tensor(1.0).erf_().item(), 4)
        0.8427
        """
        return self._written("erf")

    def erfc_(self) -> Self:
        """Write the result of `erfc` to self and return self.

        >>> round(Tensor(1.0).erfc_().item(), 4)
        0.1573
        """
        return self._written("erfc")

    def exp2_(self) -> Self:
        """Write the result of `exp2` to self and return self.

        >>> round(Tensor(3.0).exp2_().item(), 4)
        8.0
        """
        return self._written("exp2")

    def exp_(self) -> Self:
        """Write the result of `exp` to self and return self.

        >>> round(Tensor(1.0).exp_().item(), 4)
        2.7183
        """
        return self._written("exp")

    def expm1_(self) -> Self:
        """Write the result of `expm1` to self and return self.

        >>> round(Tensor(1.0).expm1_().item(), 4)
        1.7183
        """
        return self._written("expm1")

    def floor_(self) -> Self:
        """Write the result of `floor` to self and return self.

        >>> Tensor([1.7, -1.7]).floor_().tolist()
        [1.0, -2.0]
        """
        return self._written("floor")

    def frac_(self) -> Self:
        """Write the result of `frac` to self and return self.

        >>> Tensor([1.75, -1.75]).frac_().tolist()
        [0.75, -0.75]
        """
        return self._written("frac")

    def heaviside_(self, values: TensorLike) -> Self:
        """Write the result of `heaviside` to self and return self.

        >>> Tensor([-2.0, 0.0, 3.0]).heaviside_(0.5).tolist()
        [0.0, 0.5, 1.0]
        """
        return self._written("heaviside", values)

    def hypot_(self, other: TensorLike) -> Self:
        """Write the result of `hypot` to self and return self.

        >>> Tensor([3.0, 30.0]).hypot_(Tensor([4.0, 40.0])).tolist()
        [5.0, 50.0]
        """
        return self._written("hypot", other)

    def lerp_(self, end: TensorLike, weight: TensorLike) -> Self:
        """Write the result of `lerp` to self and return self.

        >>> Tensor([0.0, 10.0]).lerp_(Tensor([10.0, 20.0]), 0.5).tolist()
        [5.0, 15.0]
        """
        return self._written("lerp", end, weight)

    def log10_(self) -> Self:
        """Write the result of `log10` to self and return self.

        >>> round(Tensor(1000.0).log10_().item(), 4)
        3.0
        """
        return self._written("log10")

    def log1p_(self) -> Self:
        """Write the result of `log1p` to self and return self.

        >>> round(Tensor(1.0).log1p_().item(), 4)
        0.6931
        """
        return self._written("log1p")

    def log2_(self) -> Self:
        """Write the result of `log2` to self and return self.

        >>> round(Tensor(8.0).log2_().item(), 4)
        3.0
        """
        return self._written("log2")

    def log_(self) -> Self:
        """Write the result of `log` to self and return self.

        >>> round(Tensor(10.0).log_().item(), 4)
        2.3026
        """
        return self._written("log")

    def logit_(self, eps: float | None = None) -> Self:
        """Write the result of `logit` to self and return self.

        >>> Tensor([0.5, 1.0]).logit_().tolist()
        [0.0, inf]
        """
        return self._written("logit", eps)

    def masked_fill_(self, mask: TensorBase, value: TensorLike) -> Self:
        """Write the result of `masked_fill` to self and return self.

        >>> Tensor([1, 2, 3]).masked_fill_(Tensor([True, False, True]), 0).tolist()
        [0, 2, 0]
        """
        return self._written("masked_fill", mask, value)

    def nan_to_num_(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
        """Write the result of `nan_to_num` to self and return self.

        >>> Tensor([float("nan"), float("inf"), 1.0]).nan_to_num_(posinf=9.0).tolist()
        [0.0, 9.0, 1.0]
        """
        return self._written("nan_to_num", nan, posinf, neginf)

    def rad2deg_(self) -> Self:
        """Write the result of `rad2deg` to self and return self.

        >>> round(Tensor(1.0).rad2deg_().item(), 4)
        57.2958
        """
        return self._written("rad2deg")

    def round_(self, decimals: int = 0) -> Self:
        """Write the result of `round` to self and return self.

        >>> Tensor([0.5, 1.5, -2.5]).round_().tolist()
        [0.0, 2.0, -2.0]
        """
        return self._written("round", decimals)

    def rsqrt_(self) -> Self:
        """Write the result of `rsqrt` to self and return self.

        >>> round(Tensor(4.0).rsqrt_().item(), 4)
        0.5
        """
        return self._written("rsqrt")

    def sigmoid_(self) -> Self:
        """Write the result of `sigmoid` to self and return self.

        >>> round(Tensor(1.0).sigmoid_().item(), 4)
        0.7311
        """
        return self._written("sigmoid")

    def sign_(self) -> Self:
        """Write the result of `sign` to self and return self.

        >>> Tensor([-2.5, 0.0, 3.0]).sign_().tolist()
        [-1.0, 0.0, 1.0]
        """
        return self._written("sign")

    def sin_(self) -> Self:
        """Write the result of `sin` to self and return self.

        >>> round(Tensor(1.0).sin_().item(), 4)
        0.8415
        """
        return self._written("sin")

    def sinc_(self) -> Self:
        """Write the result of `sinc` to self and return self.

        >>> [round(x, 4) for x in Tensor([0.0, 0.5]).sinc_().tolist()]
        [1.0, 0.6366]
        """
        return self._written("sinc")

    def sinh_(self) -> Self:
        """Write the result of `sinh` to self and return self.

        >>> round(Tensor(1.0).sinh_().item(), 4)
        1.1752
        """
        return self._written("sinh")

    def sqrt_(self) -> Self:
        """Write the result of `sqrt` to self and return self.

        >>> round(Tensor(2.0).sqrt_().item(), 4)
        1.4142
        """
        return self._written("sqrt")

    def tan_(self) -> Self:
        """Write the result of `tan` to self and return self.

        >>> round(Tensor(1.0).tan_().item(), 4)
        1.5574
        """
        return self._written("tan")

    def tanh_(self) -> Self:
        """Write the result of `tanh` to self and return self.

        >>> round(Tensor(1.0).tanh_().item(), 4)
        0.7616
        """
        return self._written("tanh")

    def trunc_(self) -> Self:
        """Write the result of `trunc` to self and return self.

        >>> Tensor([1.7, -1.7]).trunc_().tolist()
        [1.0, -1.0]
        """
        return self._written("trunc")

    absolute_ = abs_

    arccos_ = acos_

    arccosh_ = acosh_

    arcsin_ = asin_

    arcsinh_ = asinh_

    arctan2_ = atan2_

    arctan_ = atan_

    arctanh_ = atanh_

    clip_ = clamp_

    fix_ = trunc_

    sgn_ = sign_


__all__ = ["ElementsForms"]
