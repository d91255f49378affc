"""MethodsMixin joins the families of methods of this folder: one base class of Tensor."""

from monolect.tensor.methods.arrangement.families import ArrangementMixin
from monolect.tensor.methods.casts import CastMixin
from monolect.tensor.methods.elementwise import ElementwiseMixin
from monolect.tensor.methods.exchange import ExchangeMixin
from monolect.tensor.methods.functions import FunctionsMixin
from monolect.tensor.methods.in_place_forms import FormsMixin
from monolect.tensor.methods.index import IndexMixin
from monolect.tensor.methods.linalg import LinalgMixin
from monolect.tensor.methods.movement import MovementMixin
from monolect.tensor.methods.pointwise.families import PointwiseMixin
from monolect.tensor.methods.products.families import ProductsMixin
from monolect.tensor.methods.reduce import ReduceMixin
from monolect.tensor.methods.scan import ScanMixin
from monolect.tensor.methods.selection.families import SelectionMixin
from monolect.tensor.methods.sort import SortMixin
from monolect.tensor.methods.statistics.families import StatisticsMixin
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
    SelectionMixin,
    ArrangementMixin,
    PointwiseMixin,
    StatisticsMixin,
    ProductsMixin,
    FormsMixin,
    LinalgMixin,
    UnpoolMixin,
    FoldMixin,
    GridMixin,
):
    """Methods of Tensor by topic. A base class of Tensor."""

    __slots__ = ()


__all__ = ["MethodsMixin"]
