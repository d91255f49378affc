"""Forms that write to self, of the methods for arithmetic, comparisons, logic and bits; written by `make surface`.

Invariant: a form writes what its method returns to self, as an augmented assignment does: shape, dtype stay.
"""

from __future__ import annotations

from typing import Self

from monolect.tensor.base import Number, TensorLike
from monolect.tensor.methods.in_place import InPlaceMixin


class ArithmeticForms(InPlaceMixin):
    """Forms of methods that write to self. A base class of Tensor."""

    __slots__ = ()

    def add_(self, other: TensorLike, *, alpha: Number = 1) -> Self:
        """Write the result of `add` to self and return self.

        >>> Tensor([1, 2]).add_(Tensor([10, 20]), alpha=2).tolist()
        [21, 42]
        """
        return self._written("add", other, alpha=alpha)

    def addcdiv_(self, tensor1: TensorLike, tensor2: TensorLike, *, value: Number = 1) -> Self:
        """Write the result of `addcdiv` to self and return self.

        >>> Tensor([1.0, 1.0]).addcdiv_(Tensor([1.0, 3.0]), Tensor([2.0, 4.0])).tolist()
        [1.5, 1.75]
        """
        return self._written("addcdiv", tensor1, tensor2, value=value)

    def addcmul_(self, tensor1: TensorLike, tensor2: TensorLike, *, value: Number = 1) -> Self:
        """Write the result of `addcmul` to self and return self.

        >>> Tensor([1, 1]).addcmul_(Tensor([2, 3]), Tensor([4, 5]), value=10).tolist()
        [81, 151]
        """
        return self._written("addcmul", tensor1, tensor2, value=value)

    def div_(self, other: TensorLike, *, rounding_mode: str | None = None) -> Self:
        """Write the result of `div` to self and return self.

        >>> Tensor([7, -7]).div_(2, rounding_mode="floor").tolist()
        [3, -4]
        """
        return self._written("div", other, rounding_mode=rounding_mode)

    def eq_(self, other: TensorLike) -> Self:
        """Write the result of `eq` to self and return self.

        >>> Tensor([1, 2, 3]).eq_(2).tolist()
        [0, 1, 0]
        """
        return self._written("eq", other)

    def float_power_(self, exponent: TensorLike) -> Self:
        """Write the result of `float_power` to self and return self.

        >>> Tensor([2.0, 4.0], dtype=dtypes.float64).float_power_(-1).tolist()
        [0.5, 0.25]
        """
        return self._written("float_power", exponent)

    def floor_divide_(self, other: TensorLike) -> Self:
        """Write the result of `floor_divide` to self and return self.

        >>> (Tensor([7, -7, 7]) // Tensor([2, 2, 0])).tolist()
        [3, -4, 0]
        """
        return self._written("floor_divide", other)

    def fmod_(self, other: TensorLike) -> Self:
        """Write the result of `fmod` to self and return self.

        >>> Tensor([-7, 7]).fmod_(Tensor([3, -3])).tolist()
        [-1, 1]
        """
        return self._written("fmod", other)

    def ge_(self, other: TensorLike) -> Self:
        """Write the result of `ge` to self and return self.

        >>> Tensor([1, 2, 3]).ge_(2).tolist()
        [0, 1, 1]
        """
        return self._written("ge", other)

    def gt_(self, other: TensorLike) -> Self:
        """Write the result of `gt` to self and return self.

        >>> Tensor([1, 2, 3]).gt_(2).tolist()
        [0, 0, 1]
        """
        return self._written("gt", other)

    def le_(self, other: TensorLike) -> Self:
        """Write the result of `le` to self and return self.

        >>> Tensor([1, 2, 3]).le_(2).tolist()
        [1, 1, 0]
        """
        return self._written("le", other)

    def logical_and_(self, other: TensorLike) -> Self:
        """Write the result of `logical_and` to self and return self.

        >>> Tensor([0, 1, 2]).logical_and_(Tensor([1, 0, 3])).tolist()
        [0, 0, 1]
        """
        return self._written("logical_and", other)

    def logical_not_(self) -> Self:
        """Write the result of `logical_not` to self and return self.

        >>> Tensor([0, 2]).logical_not_().tolist()
        [1, 0]
        """
        return self._written("logical_not")

    def logical_or_(self, other: TensorLike) -> Self:
        """Write the result of `logical_or` to self and return self.

        >>> Tensor([0, 0, 2]).logical_or_(Tensor([1, 0, 3])).tolist()
        [1, 0, 1]
        """
        return self._written("logical_or", other)

    def logical_xor_(self, other: TensorLike) -> Self:
        """Write the result of `logical_xor` to self and return self.

        >>> Tensor([0, 0, 2]).logical_xor_(Tensor([1, 0, 3])).tolist()
        [1, 0, 0]
        """
        return self._written("logical_xor", other)

    def lt_(self, other: TensorLike) -> Self:
        """Write the result of `lt` to self and return self.

        >>> Tensor([1, 2, 3]).lt_(2).tolist()
        [1, 0, 0]
        """
        return self._written("lt", other)

    def mul_(self, other: TensorLike) -> Self:
        """Write the result of `mul` to self and return self.

        >>> Tensor([1.0, 2.0]).mul_(Tensor([2.0, 0.5])).tolist()
        [2.0, 1.0]
        """
        return self._written("mul", other)

    def ne_(self, other: TensorLike) -> Self:
        """Write the result of `ne` to self and return self.

        >>> Tensor([1, 2, 3]).ne_(2).tolist()
        [1, 0, 1]
        """
        return self._written("ne", other)

    def neg_(self) -> Self:
        """Write the result of `neg` to self and return self.

        >>> Tensor([1, -2]).neg_().tolist()
        [-1, 2]
        """
        return self._written("neg")

    def pow_(self, exponent: TensorLike) -> Self:
        """Write the result of `pow` to self and return self.

        >>> (Tensor([2, 3]) ** 2).tolist()
        [4, 9]
        """
        return self._written("pow", exponent)

    def reciprocal_(self) -> Self:
        """Write the result of `reciprocal` to self and return self.

        >>> Tensor([2.0, 4.0]).reciprocal_().tolist()
        [0.5, 0.25]
        """
        return self._written("reciprocal")

    def remainder_(self, other: TensorLike) -> Self:
        """Write the result of `remainder` to self and return self.

        >>> Tensor([-7, 7]).remainder_(Tensor([3, -3])).tolist()
        [2, -2]
        """
        return self._written("remainder", other)

    def square_(self) -> Self:
        """Write the result of `square` to self and return self.

        >>> Tensor([-3, 4]).square_().tolist()
        [9, 16]
        """
        return self._written("square")

    def sub_(self, other: TensorLike, *, alpha: Number = 1) -> Self:
        """Write the result of `sub` to self and return self.

        >>> Tensor([5, 7]).sub_(Tensor([1, 2]), alpha=2).tolist()
        [3, 3]
        """
        return self._written("sub", other, alpha=alpha)

    def bitwise_and_(self, other: TensorLike) -> Self:
        """Write the result of `bitwise_and` to self and return self.

        >>> Tensor([12, 10]).bitwise_and_(6).tolist()
        [4, 2]
        """
        return self._written("bitwise_and", other)

    def bitwise_left_shift_(self, other: TensorLike) -> Self:
        """Write the result of `bitwise_left_shift` to self and return self.

        >>> Tensor([1, 5]).bitwise_left_shift_(2).tolist()
        [4, 20]
        """
        return self._written("bitwise_left_shift", other)

    def bitwise_not_(self) -> Self:
        """Write the result of `bitwise_not` to self and return self.

        >>> Tensor([0, 5]).bitwise_not_().tolist()
        [-1, -6]
        """
        return self._written("bitwise_not")

    def bitwise_or_(self, other: TensorLike) -> Self:
        """Write the result of `bitwise_or` to self and return self.

        >>> Tensor([12, 10]).bitwise_or_(6).tolist()
        [14, 14]
        """
        return self._written("bitwise_or", other)

    def bitwise_right_shift_(self, other: TensorLike) -> Self:
        """Write the result of `bitwise_right_shift` to self and return self.

        >>> Tensor([20, -5]).bitwise_right_shift_(2).tolist()
        [5, -2]
        """
        return self._written("bitwise_right_shift", other)

    def bitwise_xor_(self, other: TensorLike) -> Self:
        """Write the result of `bitwise_xor` to self and return self.

        >>> Tensor([12, 10]).bitwise_xor_(6).tolist()
        [10, 12]
        """
        return self._written("bitwise_xor", other)

    divide_ = div_

    greater_ = gt_

    greater_equal_ = ge_

    less_ = lt_

    less_equal_ = le_

    multiply_ = mul_

    negative_ = neg_

    not_equal_ = ne_

    subtract_ = sub_

    true_divide_ = div_


__all__ = ["ArithmeticForms"]
