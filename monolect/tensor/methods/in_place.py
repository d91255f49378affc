"""Methods that write to a Tensor: augmented assignment, `copy_`, `fill_`, `zero_`.

Invariant: the dtype and the shape of the Tensor stay. A write to a view changes its base and all other views of the
base.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Self

from monolect.autograd.graph import cast, full
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DTypeError, GradientError, ShapeError
from monolect.base.numpy import is_array
from monolect.base.settings import settings
from monolect.ir.uop import UOp
from monolect.tensor.base import AnyTensor, Data, TensorBase, TensorLike, on_device, on_device_of, refused_shape
from monolect.tensor.devices.methods import compute_device
from monolect.tensor.guard import guard_methods


def kind_rank(dtype: Any) -> int:
    """Return 0 for bool, 1 for integers, 2 for floats: a value may not be written to a dtype of lower rank."""
    return 2 if dtype.is_float or dtype.kind == "s" else 0 if dtype is dtypes.bool else 1


def _augmented(name: str, compute: Callable[[Any, Any], Any]) -> Callable[[AnyTensor, TensorLike], AnyTensor]:
    """Return an augmented assignment method that writes `compute(self, other)` to self.

    `name` is the operator's text, such as "+". The method calls `compute` at each assignment; it returns the new value.
    """

    def method(self: Any, other: TensorLike) -> Any:
        return self._update(f"{name}=", compute(self, other))

    method.__name__ = name
    return method


def into(out: Any, name: str, value: Any) -> Any:
    """Return the result `value` of the function `name`: as it is if `out` is None, else written to `out`, which is
    returned.

    `out` is a Tensor; for a tuple of results it is a tuple of as many. Raises ShapeError for another shape than that of
    the result, DTypeError where `out` holds no such values (floats in integers, numbers in bools), GradientError for an
    `out` that requires a gradient, ArgumentError for another `out`; then nothing is written.
    """
    if out is None:
        return value
    is_one = not isinstance(value, tuple)
    outs, values = ((out,), (value,)) if is_one else (out, value)
    if not isinstance(outs, tuple) or len(outs) != len(values) or not all(isinstance(o, TensorBase) for o in outs):
        expected = "a Tensor" if is_one else f"a tuple of {len(values)} Tensors"
        raise ArgumentError(f"{name}: out", expected=expected, found=type(out).__name__)
    for o, v in zip(outs, values, strict=True):
        if o.shape != v.shape:
            expected = f"{v.shape}, the shape of the result (PyTorch changes the shape of out, monolect does not)"
            raise ShapeError(f"{name}: out", expected=expected, found=o.shape)
        o._check_update(f"{name}(out=...)", v)
    for o, v in zip(outs, values, strict=True):
        o._store(None, cast(v._uop, o.dtype))
    return out if is_one or type(value) is tuple else type(value)(*outs)


@guard_methods
class InPlaceMixin(TensorBase):
    """Methods that write to a Tensor and return it. A base class of Tensor."""

    __slots__ = ()

    def _update(self, name: str, new: TensorBase) -> Self:
        """Write `new`, cast to the dtype of self, to all elements and return self; `name` is the operator in messages.

        Raises what `_check_update` raises.
        """
        self._check_update(name, new)
        self._store(None, cast(new._uop, self.dtype))
        return self

    def _check_update(self, name: str, new: TensorBase) -> None:
        """Raise GradientError for a leaf that requires a gradient, unless GRAD is 0; DTypeError for floats into
        integers and numbers into bools, ShapeError for another shape than that of self.
        """
        if self._requires_grad and settings.GRAD:
            expected = "t.assign(value), which is not differentiated"
            raise GradientError(f"{name} writes to a leaf that requires a gradient", expected=expected, found=name)
        if kind_rank(new.dtype) > kind_rank(self.dtype):
            expected = f"a value that {self.dtype.name} holds"
            raise DTypeError(f"{name}: the result has another dtype", expected=expected, found=new.dtype.name)
        if new.shape != self.shape:
            raise refused_shape(name, self.shape, new.shape)

    def _written(self, name: str, *args: Any, **kwargs: Any) -> Self:
        """Write what the method `name` returns for the arguments to self, and return self: its in-place form."""
        return self._update(f"{name}_", getattr(self, name)(*args, **kwargs))

    __iadd__ = _augmented("+", operator.add)
    __isub__ = _augmented("-", operator.sub)
    __imul__ = _augmented("*", operator.mul)
    __itruediv__ = _augmented("/", operator.truediv)
    __ifloordiv__ = _augmented("//", operator.floordiv)
    __imod__ = _augmented("%", operator.mod)
    __ipow__ = _augmented("**", operator.pow)
    __iand__ = _augmented("&", operator.and_)
    __ior__ = _augmented("|", operator.or_)
    __ixor__ = _augmented("^", operator.xor)
    __ilshift__ = _augmented("<<", operator.lshift)
    __irshift__ = _augmented(">>", operator.rshift)

    def _value_to_write(self: Any, value: Any) -> Any:
        """Return `value`, a tensor, number, list or array, as a tensor; a Tensor is returned as it is.

        Other values go to the device of self. Python floats become the dtype of self in one step, since float32 may not
        hold them.
        """
        if isinstance(value, TensorBase):
            return value
        device = compute_device(self.device)
        v = self._kind(value, device=device)
        if not v.dtype.is_float or v.dtype is self.dtype or is_array(value):
            return v
        return self._kind(value, dtype=self.dtype, device=device)

    def copy_(self, src: Data) -> Self:
        """Write `src`, broadcast and cast, to self and return self.

        A value on another device is moved. Raises ShapeError if `src` does not broadcast to the shape of self.

        >>> Tensor([1, 2]).copy_(Tensor(3.7)).tolist()
        [3, 3]
        """
        value = self._value_to_write(src)
        u: UOp = value._uop
        if value.device != self.device:
            on_several = isinstance(self.device, tuple)
            u = on_device_of(value.expand(self.shape)._uop, self._uop) if on_several else value.to(self.device)._uop
        self._store(None, cast(u, self.dtype))
        return self

    def fill_(self, value: TensorLike) -> Self:
        """Write `value`, a number or a tensor that broadcasts, to all elements and return self.

        >>> t = Tensor([[1, 2], [3, 4]])
        >>> _ = t[0].fill_(7)
        >>> t.tolist()
        [[7, 7], [3, 4]]
        """
        if isinstance(value, TensorBase):
            return self.copy_(value)
        number, device = full(self.shape, value, self.dtype), compute_device(self.device)
        self._store(None, number if device is None else on_device(number, device))
        return self

    def zero_(self) -> Self:
        """Write 0 to all elements and return self.

        >>> Tensor([1.0, 2.0]).zero_().tolist()
        [0.0, 0.0]
        """
        return self.fill_(0)


__all__ = ["InPlaceMixin", "into", "kind_rank"]
