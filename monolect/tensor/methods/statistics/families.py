"""StatisticsMixin joins the families of this folder: one base class of Tensor."""

from monolect.tensor.methods.statistics.differences import DifferencesMixin
from monolect.tensor.methods.statistics.samples import SamplesMixin


class StatisticsMixin(SamplesMixin, DifferencesMixin):
    """Methods of Tensor for statistics and differences along axes. A base class of Tensor."""

    __slots__ = ()


__all__ = ["StatisticsMixin"]
