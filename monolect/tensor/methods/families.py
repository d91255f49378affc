"""MethodsMixin joins the families of methods of this folder: one base class of Tensor.

What it is for: the families that most programs use are imported with Tensor. Each method of another family is a
LateMethod, which imports its family at the first use, so that `import monolect` and a second process are fast.
Invariant: a type checker, `hasattr` and `dir` see every method. The names are those of METHODS, which `make surface`
makes from the imports below that only a type checker follows.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from monolect.base.names import METHODS
from monolect.tensor.base import TensorBase
from monolect.tensor.methods.casts import CastMixin
from monolect.tensor.methods.elementwise import ElementwiseMixin
from monolect.tensor.methods.exchange import ExchangeMixin
from monolect.tensor.methods.functions import FunctionsMixin
from monolect.tensor.methods.in_place import InPlaceMixin
from monolect.tensor.methods.index import IndexMixin
from monolect.tensor.methods.linalg import LinalgMixin
from monolect.tensor.methods.movement import MovementMixin
from monolect.tensor.methods.reduce import ReduceMixin


class LateMethod:
    """An attribute of a class of methods, until its first use imports the family that defines it."""

    __slots__ = ("change", "family", "home", "name")

    def __init__(self, home: type, family: str, name: str) -> None:
        """`home` is the class with this attribute, `family` that with the method, as "module.Class".

        `change` makes of the method that which replaces this attribute; by default it is the method itself.
        """
        self.home, self.family, self.name = home, family, name
        self.change: Callable[[Any], Any] | None = None

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        module, _, name = self.family.rpartition(".")
        family = vars(getattr(import_module(module), name))
        for method in METHODS[self.family].split():
            late = vars(self.home)[method]
            if isinstance(late, LateMethod):  # no other thread was faster
                f = family[method]
                setattr(self.home, method, f if late.change is None else late.change(f))
        return vars(self.home)[self.name].__get__(instance, owner)


def with_late_methods(cls: Any) -> Any:
    """Class decorator: give `cls` a LateMethod for each method of the rows of METHODS in its package."""
    package = cls.__module__.rpartition(".")[0]
    for family, names in METHODS.items():
        if family.startswith(package):
            for name in names.split():
                setattr(cls, name, LateMethod(cls, family, name))
    return cls


if TYPE_CHECKING:
    from monolect.tensor.methods.arrangement.conversions import ConversionsMixin
    from monolect.tensor.methods.arrangement.joins import JoinsMixin
    from monolect.tensor.methods.arrangement.parts import PartsMixin
    from monolect.tensor.methods.in_place_forms.arithmetic import ArithmeticForms
    from monolect.tensor.methods.in_place_forms.creation import CreationForms
    from monolect.tensor.methods.in_place_forms.elements import ElementsForms
    from monolect.tensor.methods.in_place_forms.indexing import IndexingForms
    from monolect.tensor.methods.in_place_forms.layers import LayersForms
    from monolect.tensor.methods.in_place_forms.products import ProductsForms
    from monolect.tensor.methods.in_place_forms.reductions import ReductionsForms
    from monolect.tensor.methods.in_place_forms.special_functions import SpecialFunctionsForms
    from monolect.tensor.methods.in_place_forms.statistics import StatisticsForms
    from monolect.tensor.methods.pointwise.bessel import BesselMixin
    from monolect.tensor.methods.pointwise.gamma import GammaMixin
    from monolect.tensor.methods.pointwise.incomplete_gamma import IncompleteGammaMixin
    from monolect.tensor.methods.pointwise.normal import NormalMixin
    from monolect.tensor.methods.pointwise.numbers import NumbersMixin
    from monolect.tensor.methods.pointwise.polynomials import PolynomialsMixin
    from monolect.tensor.methods.products.added import AddedProductsMixin
    from monolect.tensor.methods.products.norms import NormsMixin
    from monolect.tensor.methods.scan import ScanMixin
    from monolect.tensor.methods.selection.counts import CountsMixin
    from monolect.tensor.methods.selection.masks import MasksMixin
    from monolect.tensor.methods.selection.writes import WritesMixin
    from monolect.tensor.methods.sort import SortMixin
    from monolect.tensor.methods.statistics.differences import DifferencesMixin
    from monolect.tensor.methods.statistics.samples import SamplesMixin
    from monolect.tensor.methods.windows.fold import FoldMixin
    from monolect.tensor.methods.windows.grid import GridMixin
    from monolect.tensor.methods.windows.signals import SignalsMixin
    from monolect.tensor.methods.windows.unpool import UnpoolMixin

    class LateMixin(
        ConversionsMixin,
        JoinsMixin,
        PartsMixin,
        ArithmeticForms,
        CreationForms,
        ElementsForms,
        IndexingForms,
        LayersForms,
        ProductsForms,
        ReductionsForms,
        SpecialFunctionsForms,
        StatisticsForms,
        BesselMixin,
        GammaMixin,
        IncompleteGammaMixin,
        NormalMixin,
        NumbersMixin,
        PolynomialsMixin,
        AddedProductsMixin,
        NormsMixin,
        ScanMixin,
        CountsMixin,
        MasksMixin,
        WritesMixin,
        SortMixin,
        DifferencesMixin,
        SamplesMixin,
        FoldMixin,
        GridMixin,
        SignalsMixin,
        UnpoolMixin,
    ):
        """Methods that are imported at their first use."""

        __slots__ = ()

else:

    @with_late_methods
    class LateMixin(TensorBase):
        """Methods that are imported at their first use."""

        __slots__ = ()


class MethodsMixin(
    ExchangeMixin,
    ElementwiseMixin,
    CastMixin,
    FunctionsMixin,
    MovementMixin,
    ReduceMixin,
    IndexMixin,
    LinalgMixin,
    LateMixin,
    InPlaceMixin,
):
    """Methods of Tensor by topic. A base class of Tensor."""

    __slots__ = ()


__all__ = ["LateMethod", "MethodsMixin", "with_late_methods"]
