"""MethodsMixin joins the families of methods of this folder: one base class of Tensor."""

from monolect.tensor.methods.arrangement.joins import JoinsMixin
from monolect.tensor.methods.arrangement.parts import PartsMixin
from monolect.tensor.methods.casts import CastMixin
from monolect.tensor.methods.elementwise import ElementwiseMixin
from monolect.tensor.methods.exchange import ExchangeMixin
from monolect.tensor.methods.functions import FunctionsMixin
from monolect.tensor.methods.in_place_forms import FormsMixin
from monolect.tensor.methods.index import IndexMixin
from monolect.tensor.methods.linalg import LinalgMixin
from monolect.tensor.methods.movement import MovementMixin
from monolect.tensor.methods.pointwise.bessel import BesselMixin
from monolect.tensor.methods.pointwise.gamma import GammaMixin
from monolect.tensor.methods.pointwise.normal import NormalMixin
from monolect.tensor.methods.pointwise.numbers import NumbersMixin
from monolect.tensor.methods.pointwise.polynomials import PolynomialsMixin
from monolect.tensor.methods.products.added import AddedProductsMixin
from monolect.tensor.methods.products.norms import NormsMixin
from monolect.tensor.methods.reduce import ReduceMixin
from monolect.tensor.methods.scan import ScanMixin
from monolect.tensor.methods.selection.counts import CountsMixin
from monolect.tensor.methods.selection.masks import MasksMixin
from monolect.tensor.methods.selection.writes import WritesMixin
from monolect.tensor.methods.sort import SortMixin
from monolect.tensor.methods.statistics.differences import DifferencesMixin
from monolect.tensor.methods.statistics.samples import SamplesMixin
from monolect.tensor.methods.windows.fold import FoldMixin
from monolect.tensor.methods.windows.grid import GridMixin
from monolect.tensor.methods.windows.unpool import UnpoolMixin


class MethodsMixin(
    ExchangeMixin,
    ElementwiseMixin,
    CastMixin,
    FunctionsMixin,
    MovementMixin,
    ReduceMixin,
    ScanMixin,
    SortMixin,
    IndexMixin,
    MasksMixin,
    CountsMixin,
    WritesMixin,
    JoinsMixin,
    PartsMixin,
    BesselMixin,
    GammaMixin,
    NormalMixin,
    NumbersMixin,
    PolynomialsMixin,
    SamplesMixin,
    DifferencesMixin,
    AddedProductsMixin,
    NormsMixin,
    FormsMixin,
    LinalgMixin,
    UnpoolMixin,
    FoldMixin,
    GridMixin,
):
    """Methods of Tensor by topic. A base class of Tensor."""

    __slots__ = ()


__all__ = ["MethodsMixin"]
