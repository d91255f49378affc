"""PointwiseMixin joins the families of this folder: one base class of Tensor."""

from monolect.tensor.methods.pointwise.bessel import BesselMixin
from monolect.tensor.methods.pointwise.gamma import GammaMixin
from monolect.tensor.methods.pointwise.normal import NormalMixin
from monolect.tensor.methods.pointwise.numbers import NumbersMixin
from monolect.tensor.methods.pointwise.polynomials import PolynomialsMixin


class PointwiseMixin(BesselMixin, GammaMixin, NormalMixin, NumbersMixin, PolynomialsMixin):
    """Methods of Tensor for each element, and statistics along axes. A base class of Tensor."""

    __slots__ = ()


__all__ = ["PointwiseMixin"]
