"""Methods that change the element type, by value or by bits.

Invariant: a float saturates into integers and nan becomes 0. The method names shadow builtins (`float`, `int`, `bool`),
so this module holds nothing else.
"""

from __future__ import annotations

import builtins
from typing import Self

from monolect.autograd.graph import cast, e
from monolect.base.dtype import DType, as_dtype, dtypes, is_dtype
from monolect.base.errors import IRError
from monolect.ir.uop import build
from monolect.tensor.base import DTypeLike, Sizes, TensorBase, refused
from monolect.tensor.guard import guard_methods


@guard_methods
class CastMixin(TensorBase):
    """Methods that change the dtype; the shape stays, except in `bitcast`. A base class of Tensor."""

    __slots__ = ()

    def cast(self, dtype: DTypeLike) -> Self:
        """Return the values in another dtype, given as a DType or its name; the tensor itself if it has that dtype.

        Floats saturate into integers, and nan becomes 0. Raises DTypeError for an unknown dtype.

        >>> Tensor([1.7, -2.5]).cast("int32").tolist()
        [1, -2]
        """
        d = dtype if isinstance(dtype, DType) else as_dtype(dtype)
        u = self._uop
        if u.dtype is d:
            return self
        if d is dtypes.bool:
            return self._wrap(e("CMPNE", cast(u, dtypes.float32) if u.dtype.kind == "s" else u, 0))
        return self._wrap(cast(u, d))

    type = cast

    def type_as(self, other: TensorBase) -> Self:
        """Return the values in the dtype of `other`.

        >>> Tensor([1.7, 2.0]).type_as(Tensor([1])).tolist()
        [1, 2]
        """
        return self.cast(other.dtype)

    def view(self, *shape: Sizes | DTypeLike, dtype: DTypeLike | None = None) -> Self:
        """Return self reshaped, as `reshape`; `view(dtype)` returns the same bytes as another dtype, as `bitcast`.

        >>> Tensor([1.0, 2.0]).view(2, 1).shape, Tensor([1.0]).view(dtypes.int32).tolist()
        ((2, 1), [1065353216])
        """
        if dtype is None and len(shape) == 1 and is_dtype(shape[0]):
            return self.bitcast(shape[0])  # type: ignore[arg-type]
        return self.reshape(*shape) if dtype is None else self.bitcast(dtype)

    def bitcast(self, dtype: DTypeLike) -> Self:
        """Return the same bytes read as another dtype. If the item sizes differ, the last axis changes in size.

        As bool, every byte but 0 is True. Raises ShapeError if the bytes of the last axis are no whole number of new
        elements, DTypeError for a dtype that cannot be read so.

        >>> Tensor([1.0]).bitcast(dtypes.int32).tolist()
        [1065353216]
        """
        try:
            return self._wrap(build("BITCAST", self._uop, arg=as_dtype(dtype)))
        except IRError as error:
            raise refused("bitcast", error, self._uop) from None

    def float(self) -> Self:
        """Return the values as float32.

        >>> Tensor([1, 2]).float().tolist()
        [1.0, 2.0]
        """
        return self.cast(dtypes.float32)

    def double(self) -> Self:
        """Return the values as float64.

        >>> Tensor([0.1]).double().tolist()  # the precision lost in float32 is not restored
        [0.10000000149011612]
        """
        return self.cast(dtypes.float64)

    def half(self) -> Self:
        """Return the values as float16, which has 11 significant bits; larger numbers than 65504 become inf.

        >>> Tensor([0.1, 70000.0]).half().tolist()
        [0.0999755859375, inf]
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Return the values as bfloat16, which has the range of float32 and 8 significant bits.

        >>> Tensor([0.1, 70000.0]).bfloat16().tolist()
        [0.10009765625, 70144.0]
        """
        return self.cast(dtypes.bfloat16)

    def int(self) -> Self:
        """Return the values as int32; floats are rounded toward zero and saturate.

        >>> Tensor([1.7, -1.7]).int().tolist()
        [1, -1]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """Return the values as int64; floats are rounded toward zero and saturate.

        >>> Tensor([True, False]).long().tolist()
        [1, 0]
        """
        return self.cast(dtypes.int64)

    def short(self) -> Self:
        """Return the same values as int16.

        >>> Tensor([1.7, -2.5]).short().tolist()
        [1, -2]
        """
        return self.cast(dtypes.int16)

    def char(self) -> Self:
        """Return the same values as int8.

        >>> Tensor([1.7, -2.5]).char().tolist()
        [1, -2]
        """
        return self.cast(dtypes.int8)

    def byte(self) -> Self:
        """Return the same values as uint8.

        >>> Tensor([1.7, 2.5]).byte().tolist()
        [1, 2]
        """
        return self.cast(dtypes.uint8)

    def bool(self) -> Self:
        """Return a bool tensor: True where the element is not zero.

        >>> Tensor([0.0, 0.5]).bool().tolist()
        [False, True]
        """
        return self.cast(dtypes.bool)

    def is_floating_point(self) -> builtins.bool:
        """Whether the dtype is a float dtype.

        >>> Tensor([1.0]).is_floating_point(), Tensor([1]).is_floating_point()
        (True, False)
        """
        return self._uop.dtype.is_float


__all__ = ["CastMixin"]
