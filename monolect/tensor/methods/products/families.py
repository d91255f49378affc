"""ProductsMixin joins the families of this folder: one base class of Tensor."""

from monolect.tensor.methods.products.added import AddedProductsMixin
from monolect.tensor.methods.products.norms import NormsMixin


class ProductsMixin(AddedProductsMixin, NormsMixin):
    """Methods of Tensor for products, norms and distances. A base class of Tensor."""

    __slots__ = ()


__all__ = ["ProductsMixin"]
