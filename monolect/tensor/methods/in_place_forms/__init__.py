"""Forms of methods that write to self, such as `add_`; written by `make surface`."""

from __future__ import annotations

from monolect.tensor.methods.in_place_forms.arithmetic import ArithmeticForms
from monolect.tensor.methods.in_place_forms.creation import CreationForms
from monolect.tensor.methods.in_place_forms.elements import ElementsForms
from monolect.tensor.methods.in_place_forms.indexing import IndexingForms
from monolect.tensor.methods.in_place_forms.layers import LayersForms
from monolect.tensor.methods.in_place_forms.products import ProductsForms
from monolect.tensor.methods.in_place_forms.reductions import ReductionsForms
from monolect.tensor.methods.in_place_forms.special_functions import SpecialFunctionsForms
from monolect.tensor.methods.in_place_forms.statistics import StatisticsForms


class FormsMixin(
    ArithmeticForms,
    CreationForms,
    ElementsForms,
    IndexingForms,
    LayersForms,
    ProductsForms,
    ReductionsForms,
    SpecialFunctionsForms,
    StatisticsForms,
):
    """All forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()


__all__ = ["FormsMixin"]
