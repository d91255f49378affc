"""Methods that change the element type, by value or by bits.

Invariant: a float saturates into integers, nan becomes 0; the names shadow the builtins, so nothing else stands here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monolect.autograd.graph import cast, e
from monolect.base.dtype import DType, as_dtype, dtypes
from monolect.base.errors import IRError
from monolect.ir.uop import build
from monolect.tensor.base import TensorBase, refused
from monolect.tensor.guard import guard_methods

if TYPE_CHECKING:
    from monolect.tensor.tensor import Tensor


@guard_methods
class CastMixin(TensorBase):
    """Changes of dtype."""

    __slots__ = ()

    def cast(self, dtype: Any) -> Tensor:
        """The values in another dtype; the tensor itself where it has that dtype. Floats saturate into integers and nan
        becomes 0.

        >>> Tensor([1.7, -2.5]).cast("int32").tolist()
        [1, -2]
        """
        d = dtype if isinstance(dtype, DType) else as_dtype(dtype)
        u = self._uop
        if u.dtype is d:
            return self  # type: ignore[return-value]
        if d is dtypes.bool:
            return self._wrap(e("CMPNE", u, 0))
        return self._wrap(cast(u, d))

    type = cast

    def type_as(self, other: Tensor) -> Tensor:
        """The values in the dtype of `other`.

        >>> Tensor([1.7, 2.0]).type_as(Tensor([1])).tolist()
        [1, 2]
        """
        return self.cast(other.dtype)

    def bitcast(self, dtype: Any) -> Tensor:
        """The same bytes read as another dtype; the last axis changes when the sizes differ. As a bool, every byte
        but 0 is True.

        >>> Tensor([1.0]).bitcast(dtypes.int32).tolist()
        [1065353216]
        """
        try:
            return self._wrap(build("BITCAST", self._uop, arg=as_dtype(dtype)))
        except IRError as error:
            raise refused("bitcast", error, self._uop) from None

    def float(self) -> Tensor:
        """The values as float32.

        >>> Tensor([1, 2]).float().tolist()
        [1.0, 2.0]
        """
        return self.cast(dtypes.float32)

    def double(self) -> Tensor:
        """The values as float64.

        >>> Tensor([0.1]).double().tolist()  # what float32 has lost does not come back
        [0.10000000149011612]
        """
        return self.cast(dtypes.float64)

    def half(self) -> Tensor:
        """The values as float16: 11 digits in base 2, numbers up to 65504.

        >>> Tensor([0.1, 70000.0]).half().tolist()
        [0.0999755859375, inf]
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Tensor:
        """The values as bfloat16: the range of float32, 8 digits in base 2.

        >>> Tensor([0.1, 70000.0]).bfloat16().tolist()
        [0.10009765625, 70144.0]
        """
        return self.cast(dtypes.bfloat16)

    def int(self) -> Tensor:
        """The values as int32, floats rounded toward zero.

        >>> Tensor([1.7, -1.7]).int().tolist()
        [1, -1]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Tensor:
        """The values as int64, floats rounded toward zero.

        >>> Tensor([True, False]).long().tolist()
        [1, 0]
        """
        return self.cast(dtypes.int64)

    def bool(self) -> Tensor:
        """True where the element is not zero.

        >>> Tensor([0.0, 0.5]).bool().tolist()
        [False, True]
        """
        return self.cast(dtypes.bool)

    def is_floating_point(self) -> Any:
        """Whether the dtype is a float.

        >>> Tensor([1.0]).is_floating_point(), Tensor([1]).is_floating_point()
        (True, False)
        """
        return self._uop.dtype.is_float
