"""NeuralMixin joins the families of this folder: one base class of Tensor. Each is imported at its first use."""

from typing import TYPE_CHECKING

from monolect.tensor.base import TensorBase
from monolect.tensor.methods.families import with_late_methods

if TYPE_CHECKING:
    from monolect.tensor.neural.alignment import AlignmentMixin
    from monolect.tensor.neural.conv import ConvMixin
    from monolect.tensor.neural.drop import DropMixin
    from monolect.tensor.neural.gates import GatesMixin
    from monolect.tensor.neural.margins import MarginsMixin
    from monolect.tensor.neural.tables import TablesMixin

    class NeuralMixin(ConvMixin, MarginsMixin, AlignmentMixin, DropMixin, GatesMixin, TablesMixin):
        """Methods of Tensor for networks. A base class of Tensor."""

        __slots__ = ()

else:

    @with_late_methods
    class NeuralMixin(TensorBase):
        """Methods of Tensor for networks. A base class of Tensor."""

        __slots__ = ()


__all__ = ["NeuralMixin"]
