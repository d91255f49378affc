"""ArrangementMixin joins the families of this folder: one base class of Tensor."""

from monolect.tensor.methods.arrangement.joins import JoinsMixin
from monolect.tensor.methods.arrangement.parts import PartsMixin


class ArrangementMixin(JoinsMixin, PartsMixin):
    """Methods of Tensor that split, join, rearrange and describe. A base class of Tensor."""

    __slots__ = ()


__all__ = ["ArrangementMixin"]
