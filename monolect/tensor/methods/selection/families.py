"""SelectionMixin joins the families of this folder: one base class of Tensor."""

from monolect.tensor.methods.selection.counts import CountsMixin
from monolect.tensor.methods.selection.masks import MasksMixin
from monolect.tensor.methods.selection.writes import WritesMixin


class SelectionMixin(MasksMixin, CountsMixin, WritesMixin):
    """Methods of Tensor that select by values, count, search and write. A base class of Tensor."""

    __slots__ = ()


__all__ = ["SelectionMixin"]
