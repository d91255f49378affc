"""Copy Tensors by `copy.copy`, `copy.deepcopy` and `pickle`.

What it is for: a second model with the weights of the first (averaged weights, target networks), and models in files
and other processes. Python's memo keeps two references to one Tensor one Tensor.
What it is not: it copies no graph. A graph is immutable, so a copy of a lazy Tensor shares its nodes down to the
leaves. Pickling computes the value first.
Invariant: a deep copy does not change when the original Tensor or its memory changes later, by assignment or through
NumPy. The exception is a Tensor on `disk:`, whose copy is the same file.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any, Self

from monolect.autograd.sharding import moved
from monolect.backend.registry import Device, is_on_disk
from monolect.base.numpy import is_array, is_foreign_array, np
from monolect.command.forms import buffer_bytes
from monolect.ir.ops import ParamArg
from monolect.ir.placement import axis as axis_of
from monolect.ir.uop import UOp, build, new_buffer_like, node, shape_source, substitute, toposort
from monolect.runtime.buffer import from_numpy, is_realized, with_storage
from monolect.runtime.realize.execute import realize
from monolect.runtime.realize.locks import running
from monolect.runtime.replay.in_progress import changes, refuse_while_capturing
from monolect.tensor.base import DeviceLike, DTypeLike, TensorBase
from monolect.tensor.view import aliases, detached, is_alone, same_view_of, shown, strides


class CopyMixin(TensorBase):
    """Implement the protocols of `copy.copy`, `copy.deepcopy` and `pickle`; a base class of Tensor."""

    __slots__ = ()

    def __copy__(self) -> Self:
        """Return another Tensor of the same memory and with the same `grad`."""
        new = detached(self) if self._requires_grad else aliases(self, lambda u: u)
        new.__setstate__(self.__getstate__())
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return another Tensor with the same value in its own memory and a copy of `grad`.

        The deep copy of a view is a view of the copy of its base, the Tensor whose memory it shows. `memo` is the table
        of `copy.deepcopy`: id of an object -> its copy.

        >>> import copy
        >>> a = Tensor([1.0, 2.0], requires_grad=True)
        >>> b = copy.deepcopy(a)
        >>> _ = a.assign(a.detach() * 0)
        >>> b.tolist(), b.requires_grad
        ([1.0, 2.0], True)
        """
        if self._is_view:
            new = same_view_of(copy.deepcopy(self._view.parent, memo), self)
        else:
            new = self._wrap(_private_value(self))
        memo[id(self)] = new
        new.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return new

    @classmethod
    def _copy_of(cls, data: Any, dtype: DTypeLike | None, device: DeviceLike | None) -> Self:
        """Return a Tensor with the values of `data` in its own memory, through which no gradient flows.

        `data` is a Tensor or what `Tensor(data)` takes. Later writes to `data` do not change the result, also where
        NumPy or another library makes them.
        """
        kind: Any = cls
        if isinstance(data, TensorBase):
            u = _private_value(data)
            copied: Self = cls._wrap(u if u.op == "BUFFER" else build("DETACH", u))
        elif is_array(data):
            copied = kind(np.array(data), device=device, dtype=dtype)
        elif is_foreign_array(data) and hasattr(type(data), "__dlpack__"):
            shared: Any = data
            copied = kind.from_dlpack(shared.detach() if hasattr(shared, "detach") else shared, copy=True)
        else:
            copied = kind(np.array(data) if is_foreign_array(data) else data, device=device, dtype=dtype)
        return copied.to(device=device, dtype=dtype)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        """Return the pickled form: the computed values, the device, `requires_grad` and `grad`.

        `pickle` calls this method; `protocol` has no effect. A view that shares memory is pickled with the whole Tensor
        whose memory it shows. Raises JitError inside a jitted function.

        >>> import pickle
        >>> a = Tensor([1.0, 2.0])
        >>> b, part = pickle.loads(pickle.dumps((a, a[1:])))
        >>> _ = part.assign(Tensor([5.0]))
        >>> b.tolist()
        [1.0, 5.0]
        """
        refuse_while_capturing("pickling a tensor", self._uop)
        if self._is_view and not is_alone(self) and not is_on_disk(self.device):
            return _from_base, _view_as_text(self), self.__getstate__()
        values = self.numpy()
        device: Any = "cpu" if is_on_disk(self.device) else self.device
        return _from_values, (self._kind, values, device, axis_of(self._uop)), self.__getstate__()

    def __getstate__(self) -> tuple[bool, Self | None, dict[str, Any] | None, bool]:
        """Return the state apart from the value: (requires_grad, grad or None, attributes of a subclass or None,
        whether it was a leaf before).
        """
        return self._requires_grad, self._grad, getattr(self, "__dict__", None), getattr(self, "_is_frozen", False)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        is_leaf, self._grad, attributes, *frozen = state  # files of earlier versions have three
        if is_leaf:
            self.requires_grad_()
        elif any(frozen):
            self._is_frozen = True
        if attributes:
            vars(self).update(attributes)


def _private_value(t: Any) -> UOp:
    """Return a node with the value of `t` whose memory no other Tensor writes."""
    u: UOp = t._uop
    if changes.captures or changes.is_inside:  # so a replay copies the value at the time of the replay
        return t.clone()._uop
    if not is_realized(u):
        return u if u.op != "BUFFER" else new_buffer_like(u)
    if u.op != "BUFFER" or isinstance(u.arg.device, tuple):
        return realize([t.clone()._uop])[0]
    if is_on_disk(u.arg.device):
        return u  # a mapped file: the copy is the same file
    device, n_bytes = Device[u.arg.device], buffer_bytes(u)
    running.wait()
    with running.lock:
        memory = device.alloc(n_bytes)
        device.copy(memory, u.storage, n_bytes)
    return with_storage(u.shape, u.dtype, u.arg.device, memory)


def _from_values(kind: Any, values: np.ndarray, device: Any, shard_axis: int | None = None) -> Any:
    """Return the Tensor of class `kind` with the pickled `values`, divided along `shard_axis` where it was on several
    devices; `__setstate__` then restores its state.
    """
    if isinstance(device, tuple):
        return kind._wrap(moved(from_numpy(values, "cpu"), device, shard_axis))
    return kind._wrap(from_numpy(values, device))


def _view_as_text(t: Any) -> tuple[Any, str, str | None, tuple[Any, Any]]:
    """Describe the view `t` for pickle: (base, text of its node, text of the target of writes or None, strides).

    The base is the Tensor whose memory `t` shows. Both texts are IR over one PARAM in place of the base; `strides` is
    the pair of the strides of the base and of the view.
    """
    from monolect.ir.text import show  # imported only to pickle views

    window, base = t._view, t._view.parent
    over = node("PARAM", (shape_source(base.shape),), ParamArg(0, base.dtype, base.device))
    writes = None if window.writes is None else show(window.writes(over))
    return base, show(window.make(over)), writes, (strides(base), strides(t))


def _from_base(base: Any, made: str, writes: str | None, known: tuple[Any, Any]) -> Any:
    """Return the view of `base` that `_view_as_text` described. `made`, `writes`: texts of its node and of the target
    of writes, or None for a view that cannot be written; `known`: the strides of base and view when pickled. The view
    gets its old strides only if the base still has those.
    """
    before, after = known
    return shown(base, _over(made), lambda now: after if now == before else None, writes is not None and _over(writes))


def _over(text: str) -> Callable[[UOp], UOp]:
    """Return a function of a node: it returns the IR that `text` describes, with the node in place of its PARAM.

    The PARAM is the one without a name; named PARAMs, the Variables, stay.
    """
    from monolect.ir.text import parse  # imported only for pickled views

    template = parse(text)
    hole = next(u for u in toposort(template) if u.op == "PARAM" and u.arg.name is None)
    return lambda u: substitute(template, {hole: u})


def global_name(x: Any) -> str | None:
    """Return the qualified name of `x` if its module holds `x` under it, as `pickle` needs; else None."""
    name: str = getattr(x, "__qualname__", "")
    found: Any = sys.modules.get(x.__module__)
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is x else None


__all__ = ["CopyMixin", "global_name"]
