"""Forms of methods that write to self, such as `add_`; written by `make surface`."""

from __future__ import annotations

from monolect.tensor.methods.in_place_forms.activations import ActivationsForms
from monolect.tensor.methods.in_place_forms.arithmetic import ArithmeticForms
from monolect.tensor.methods.in_place_forms.creation import CreationForms
from monolect.tensor.methods.in_place_forms.elements import ElementsForms
from monolect.tensor.methods.in_place_forms.indexing import IndexingForms
from monolect.tensor.methods.in_place_forms.reductions import ReductionsForms


class FormsMixin(
    ActivationsForms,
    ArithmeticForms,
    CreationForms,
    ElementsForms,
    IndexingForms,
    ReductionsForms,
):
    """All forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()


__all__ = ["FormsMixin"]
