"""Copies of Tensors by `copy` and `pickle`: values of their own, leaves of their own.

What it is for: a second model with the weights of the first (averages of weights, target networks), models in files and
in other processes. Tensors that are one stay one within what is copied, as Python's memo has it.
What it is not: a graph is not copied. It is immutable, and a copy of what is not computed yet shares it, down to its
leaves; what goes to another process is computed first.
Invariant: a deep copy sees nothing of what happens to a Tensor or to its memory later, by assignment or through NumPy.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from monolect.backend.registry import Device, is_on_disk
from monolect.base.numpy import np
from monolect.command.forms import buffer_bytes
from monolect.ir.ops import ParamArg
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp, new_buffer, node, shape_source, substitute, toposort
from monolect.runtime.buffer import from_numpy, is_realized, with_storage
from monolect.runtime.realize.execute import realize, running
from monolect.runtime.replay.capture import changes, refuse_while_capturing
from monolect.tensor.base import TensorBase
from monolect.tensor.view import again, aliases, detached, is_alone, shown, strides

if TYPE_CHECKING:
    from monolect.tensor.tensor import Tensor


class CopyMixin(TensorBase):
    """What `copy.copy`, `copy.deepcopy` and `pickle` do with a Tensor."""

    __slots__ = ()

    def __copy__(self) -> Tensor:
        """Another Tensor of the same memory, and the same `grad`."""
        new = detached(self) if self._requires_grad else aliases(self, lambda u: u)
        new.__setstate__(self.__getstate__())
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """Another Tensor of the same value in memory of its own, with a copy of `grad`; of a view, a view of a copy of
        its base.

        >>> import copy
        >>> a = Tensor([1.0, 2.0], requires_grad=True)
        >>> b = copy.deepcopy(a)
        >>> _ = a.assign(a.detach() * 0)
        >>> b.tolist(), b.requires_grad
        ([1.0, 2.0], True)
        """
        new = again(self, copy.deepcopy(self._view.parent, memo)) if self._is_view else self._wrap(_own_value(self))
        memo[id(self)] = new
        new.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return new

    def __reduce_ex__(self, protocol: Any) -> tuple:
        """The values, computed, with device, `requires_grad` and `grad`; of a view that shares memory with others, its
        base with all values, as `torch.save` does. Raises JitError inside a jitted function.

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
        device = "cpu" if is_on_disk(self.device) else self.device
        return _from_values, (self._kind, values, device), self.__getstate__()

    def __getstate__(self) -> tuple[bool, Tensor | None, dict[str, Any] | None]:
        """What a Tensor is beside its value; of a subclass also its attributes."""
        return self._requires_grad, self._grad, getattr(self, "__dict__", None)

    def __setstate__(self, state: tuple[bool, Tensor | None, dict[str, Any] | None]) -> None:
        is_leaf, self._grad, attributes = state
        if is_leaf:
            self.requires_grad_()
        if attributes:
            vars(self).update(attributes)


def _own_value(t: Any) -> UOp:
    """The value of `t` as a node in whose memory nobody else writes."""
    u: UOp = t._uop
    if changes.captures or changes.is_inside:  # a replay copies what is there then
        return t.clone()._uop
    if not is_realized(u):
        return u if u.op != "BUFFER" else new_buffer(u.shape, u.dtype, u.arg.device)
    if u.op != "BUFFER":
        return realize([t.clone()._uop])[0]
    if is_on_disk(u.arg.device):
        return u  # a file, which no tensor writes
    device, n_bytes = Device[u.arg.device], buffer_bytes(u)
    running.wait()
    with running.lock:
        memory = device.alloc(n_bytes)
        device.copy(memory, u.storage, n_bytes)
    return with_storage(u.shape, u.dtype, u.arg.device, memory)


def _from_values(kind: Any, values: np.ndarray, device: str) -> Any:
    """The Tensor that a pickle holds, before its state."""
    return kind._wrap(from_numpy(values, device))


def _view_as_text(t: Any) -> tuple[Any, str, str | None, tuple[Any, Any]]:
    """The base of the view `t`; its node and the target of writes over a PARAM for the base; strides of both."""
    window, base = t._view, t._view.parent
    over = node("PARAM", (shape_source(base.shape),), ParamArg(0, base.dtype, base.device))
    writes = None if window.writes is None else show(window.writes(over))
    return base, show(window.make(over)), writes, (strides(base), strides(t))


def _from_base(base: Any, made: str, writes: str | None, known: tuple[Any, Any]) -> Any:
    """The view of `base` that a pickle holds, before its state."""
    before, after = known
    return shown(base, _over(made), lambda now: after if now == before else None, writes is not None and _over(writes))


def _over(text: str) -> Callable[[UOp], UOp]:
    """The function from a node to what `text` makes of the PARAM 0 without a name."""
    template = parse(text)
    hole = next(u for u in toposort(template) if u.op == "PARAM" and u.arg.name is None)
    return lambda u: substitute(template, {hole: u})


def global_name(x: Any) -> str | None:
    """The name under which a decorated function is found in its module, as `pickle` wants it; None where it is not."""
    name: str = getattr(x, "__qualname__", "")
    found: Any = sys.modules.get(x.__module__)
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is x else None


__all__ = ["CopyMixin", "global_name"]
