"""Methods that write to a Tensor: augmented assignment, `copy_`, `fill_`, `zero_`.

Invariant: the dtype stays. A write to a view changes its base and all other views of the base. The forms that change
the shape (`squeeze_`, `t_`) change that of the one Tensor, not of its base or its views, and move no element.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Self

from monolect.autograd.graph import cast, full
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DTypeError, GradientError, JitError, ShapeError
from monolect.base.numpy import is_array
from monolect.base.settings import settings
from monolect.ir.uop import UOp
from monolect.runtime.replay.in_progress import changes
from monolect.tensor.base import AnyTensor, Axes, Data, TensorBase, TensorLike, on_device, on_device_of, refused_shape
from monolect.tensor.devices.methods import compute_device
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.movement import may_differ
from monolect.tensor.state.leaves import is_parameter
from monolect.tensor.view import rearrange


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

    # ---- shape -------------------------------------------------------------------------------------------------------
    def squeeze_(self, dim: Axes = None) -> Self:
        """Drop the axes of size 1, or those of `dim` (an axis or several) that have size 1, and return self.

        Raises AxisError for a missing axis, GradientError for a leaf that requires or required a gradient, JitError for
        a tensor from outside of a captured step.

        >>> Tensor.ones(2, 1, 3, 1).squeeze_(1).shape
        (2, 3, 1)
        """
        dims, shape = self._axes(dim), self.shape
        return self._with_axes("squeeze_", [a for a, n in enumerate(shape) if a not in dims or may_differ(n, 1)])

    def unsqueeze_(self, dim: int) -> Self:
        """Add an axis of size 1 at index `dim` of the new shape, and return self. Errors are those of `squeeze_`.

        >>> Tensor.ones(2, 3).unsqueeze_(-1).shape
        (2, 3, 1)
        """
        axes: list[int | None] = [*range(self.ndim)]
        axes.insert(self._axis(dim, self.ndim + 1), None)
        return self._with_axes("unsqueeze_", axes)

    def transpose_(self, dim0: int, dim1: int) -> Self:
        """Exchange the axes `dim0` and `dim1`, and return self. Errors are those of `squeeze_`.

        >>> t = Tensor([[1, 2], [3, 4]])
        >>> row = t[0]
        >>> _ = t.transpose_(0, 1)
        >>> _ = row.fill_(7)  # it shares memory with the first column now
        >>> t.tolist()
        [[7, 3], [7, 4]]
        """
        axes: list[int | None] = [*range(self.ndim)]
        a, b = self._axis(dim0), self._axis(dim1)
        axes[a], axes[b] = b, a
        return self._with_axes("transpose_", axes)

    swapaxes_ = swapdims_ = transpose_

    def t_(self) -> Self:
        """Transpose a matrix in place, and return self; a vector or a scalar is unchanged. Raises ShapeError for more
        than two axes; other errors are those of `squeeze_`.

        >>> Tensor([[1, 2, 3]]).t_().shape
        (3, 1)
        """
        if self.ndim > 2:
            raise ShapeError("t_() is for matrices", expected="at most 2 axes", found=f"shape {self.shape}")
        return self._with_axes("t_", [*reversed(range(self.ndim))])

    def _with_axes(self, name: str, axes: Sequence[int | None]) -> Self:
        """Change the axes of self in place as `rearrange` does, and return self. `name`: the method, for messages."""
        if is_parameter(self):
            expected = f"a tensor that is no parameter; use x.{name[:-1]}(), and copy the result into a new leaf"
            raise GradientError(f"{name} changes the shape of a leaf", expected=expected, found=name)
        if changes.enclosing and changes.enclosing[-1].is_outside(self, self._uop):
            expected = f"a tensor that the step makes; use x = x.{name[:-1]}(...)"
            raise JitError(f"{name} in a captured or traced function", expected=expected, found="a tensor from outside")
        if tuple(axes) != tuple(range(self.ndim)):
            rearrange(self, tuple(axes))
        return self


__all__ = ["InPlaceMixin", "into", "kind_rank"]
