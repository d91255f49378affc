"""class Tensor: a handle on a node of the lazy graph, joined from the families of methods beside this file.

What it is for: holding a value-to-be (`uop`), turning it into memory (`realize`, `numpy`), changing it (`assign`), and
reverse-mode derivatives with respect to leaves (`requires_grad`, `backward`).
What it is not: it knows no kernels and no backend; it hands nodes to the runtime and takes BUFFERs back.
Invariant: nothing runs before `realize`, `numpy`, `tolist` or `item`; a call that raises leaves every tensor as it was.
"""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from collections.abc import Collection, Iterable
from importlib import import_module
from typing import Any

from monolect.autograd.gradient import gradients, reach, refuse_lost, remember, spent
from monolect.autograd.graph import broadcast_to, cast
from monolect.autograd.operands import same_device
from monolect.backend.registry import Device, is_on_disk
from monolect.base.dtype import DType, as_dtype, dtypes
from monolect.base.errors import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError
from monolect.base.numpy import np
from monolect.ir.ops import LoadArg
from monolect.ir.placement import device as place_device
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, const, new_buffer
from monolect.runtime.binding import values, variables
from monolect.runtime.buffer import aliased_memory, element, is_realized, to_list, to_numpy
from monolect.runtime.realize.execute import compute, realize, running
from monolect.runtime.replay.capture import (
    OWN,
    NotKept,
    changes,
    note_assign,
    note_before,
    note_gradient,
    refuse_while_capturing,
    sums_unkept,
    under_way,
)
from monolect.tensor import random as random_state
from monolect.tensor.base import as_device, placed_like, refuse_shape
from monolect.tensor.copies import CopyMixin
from monolect.tensor.creation import CreationMixin, from_data
from monolect.tensor.deferred import defer, deferred, set_aside
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.casts import CastMixin
from monolect.tensor.methods.elementwise import ElementwiseMixin
from monolect.tensor.methods.files import compute_device, is_pending, write, written_file
from monolect.tensor.methods.functions import FunctionsMixin
from monolect.tensor.methods.in_place import InPlaceMixin
from monolect.tensor.methods.index import IndexMixin
from monolect.tensor.methods.linalg import LinalgMixin
from monolect.tensor.methods.movement import MovementMixin
from monolect.tensor.methods.reduce import ReduceMixin
from monolect.tensor.methods.scan import ScanMixin
from monolect.tensor.methods.sort import SortMixin
from monolect.tensor.neural.conv import ConvMixin
from monolect.tensor.neural.loss import LossMixin
from monolect.tensor.printed import PrintMixin
from monolect.tensor.random import RandomMixin
from monolect.tensor.view import (
    MEMORY,
    Make,
    aliases,
    as_leaf,
    computed_by,
    detached,
    in_rows,
    is_alone,
    is_row_major,
    settle,
    target_of,
)

# The nodes that tensors with `requires_grad` stand for, or stood for before they were computed or assigned to: a graph
# made earlier still holds the earlier node.
_leaves: weakref.WeakKeyDictionary[UOp, weakref.ref[Tensor]] = weakref.WeakKeyDictionary()
_leaf_tensors: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()  # by identity
# NumPy's function of each binary operator, and the method of its right operand.
_REFLECTED: dict[str, str] = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__",
    "true_divide": "__rtruediv__", "floor_divide": "__rfloordiv__", "remainder": "__rmod__", "power": "__rpow__",
    "matmul": "__rmatmul__", "left_shift": "__rlshift__", "right_shift": "__rrshift__", "bitwise_and": "__rand__",
    "bitwise_or": "__ror__", "bitwise_xor": "__rxor__", "less": "__gt__", "less_equal": "__ge__", "greater": "__lt__",
    "greater_equal": "__le__", "equal": "__eq__", "not_equal": "__ne__",
}  # fmt: skip


def _dlpack() -> Any:
    """Imported when it is asked for: its descriptions of C structures cost more than any other module here."""
    return import_module("monolect.runtime.dlpack")


def leaf_nodes() -> dict[UOp, Tensor]:
    """The nodes that are leaves of `backward`, each with its tensor."""
    if not _leaf_tensors:
        return {}
    found = {u: leaf for u, ref in _leaf_rows() if (leaf := ref()) is not None and leaf._requires_grad}
    for t in leaves():
        u = t._uop
        if u not in found:  # replaced from outside, as replaying does
            _leaves[u] = weakref.ref(t)
            found[u] = t
    return found


def _leaf_rows() -> list[tuple[UOp, weakref.ref[Tensor]]]:
    """What `_leaves` holds now. Its own iterators end in an error when another thread makes a leaf meanwhile.

    The dict inside is asked by the references that it has: a look-up by node makes one, and takes four times as long.
    """
    rows = _leaves.data  # type: ignore[attr-defined]
    return [(u, ref) for r in _leaves.keyrefs() if (u := r()) is not None and (ref := rows.get(r)) is not None]


class _Watched(threading.local):
    """Nodes by which a function is differentiated, in this thread: what is computed of them remembers how."""

    nodes: tuple[UOp, ...] = ()


watched = _Watched()


def leaves() -> list[Tensor]:
    """The tensors with `requires_grad`."""
    return [t for r in _leaf_tensors.valuerefs() if (t := r()) is not None]


def live_tensors(known: Iterable[Tensor] = ()) -> list[Tensor]:
    """Every Tensor of the process but views: an object refers to its class. After `gc.freeze()` Python does not list
    those made before: of them the leaves, and what is `known`.

    Not out of all objects: CPython raises SystemError in a thread that is making a tuple which somebody else holds.
    """
    kinds: list[Any] = [Tensor]
    for k in kinds:
        kinds.extend(k.__subclasses__())
    kinds = [k for k in kinds if not k._is_view and not hasattr(k, "donated_at")]
    found = {id(t): t for t in (*gc.get_referrers(*kinds), *leaves(), *known) if type(t) in kinds}
    return [t for t in found.values() if getattr(t, "_uop", None) is not None]  # another thread may be making one


def _computed(tensors: tuple[Tensor, ...]) -> UOp:
    """Compute them in one batch, by who holds `running`; the node that has the value of the first."""
    wanted = [computed_by(t) if t._is_view else t for t in tensors]
    if len(wanted) > 1:
        wanted = [*{id(t): t for t in wanted}.values()]
    batch: list[Tensor] = []
    before: list[UOp] = []
    for t in wanted:
        if not is_realized(u := t._uop):
            batch.append(t)
            before.append(u)
        elif t is wanted[0]:
            value = u
    nodes_of_leaves = leaf_nodes()
    leaves: Collection[UOp] = {*nodes_of_leaves, *watched.nodes} if watched.nodes else nodes_of_leaves
    is_part = bool(under_way and (changes.captures or changes.is_inside))  # of a step: it stores what it is asked for
    also: list[tuple[UOp, UOp]] | None = None if is_part else []
    new = compute(before, also=also)
    rows: Iterable[tuple[Tensor, UOp, UOp]] = zip(batch, before, new, strict=True)
    if also:
        rows = [*rows, *((t, old, u) for old, u in also if (t := old.holder()) is not None)]
    if leaves or (len(new) > 1 and not is_part):
        rows = [*rows]
        if own := [u for t, _, u in rows if t._requires_grad]:
            leaves = {*leaves, *own}
        kept = remember([(u, u if t._requires_grad else old) for t, old, u in rows], leaves, may_share=is_part)
        rows = [(t, old, u) for (t, old, _), u in zip(rows, kept, strict=True)]
    for t, old, u in rows:
        if t._is_view:
            settle(t, old, u)
        elif t._uop is old:  # otherwise another thread has assigned to it since
            t.uop = u
    first = tensors[0]
    if wanted[0] is first:
        return new[0] if batch and batch[0] is first else value
    u = first._uop  # a view of what was computed
    return u if is_realized(u) else realize([u])[0]


def compute_pending() -> None:
    """Compute what was drawn, and what is deferred if it can be computed."""
    running.wait()
    with running.lock:
        random_state.settle()
        if late := deferred():
            try:
                _computed(tuple(late))
            except Exception:
                set_aside(late)


def _check_tensor(what: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise ArgumentError(f"{what}: not a tensor", expected="a Tensor", found=f"{type(value).__name__} {value!r:.60}")


def copied(u: UOp) -> UOp:
    """The value of `u` in memory of its own."""
    buffer = new_buffer(u.shape, u.dtype, place_device(u) or Device.default)
    return build("AFTER", buffer, build("STORE", buffer, u))


def in_own_memory(u: UOp) -> UOp:
    """The value of `u` for a Tensor that is written to: what is in memory is copied, as others may write to that."""
    memory = aliased_memory(u)
    return u if memory is None or memory.storage is None else copied(u)


def _whole(u: UOp) -> UOp:
    return u


@guard_methods
class Tensor(
    CreationMixin,
    ElementwiseMixin,
    CastMixin,
    FunctionsMixin,
    MovementMixin,
    ReduceMixin,
    ScanMixin,
    SortMixin,
    IndexMixin,
    InPlaceMixin,
    LinalgMixin,
    ConvMixin,
    LossMixin,
    RandomMixin,
    CopyMixin,
    PrintMixin,
):
    """An n-dimensional array that is computed when its values are asked for.

    `Tensor(data)` takes a number, nested lists, or a NumPy array (shared, not copied, where its layout allows). Floats
    become float32, ints int64, bools bool, unless `dtype` says otherwise; arrays keep their dtype.

    >>> (Tensor([1.0, 2.0]) + 1).tolist()
    [2.0, 3.0]
    """

    __slots__ = ()

    def __init__(self, data: Any, device: Any = None, dtype: Any = None, requires_grad: bool = False):
        if isinstance(data, Tensor):
            uop = data.to(device)._uop if device is not None else data._uop
            uop = cast(uop, as_dtype(dtype)) if dtype is not None else uop
        elif data.__class__ is UOp:
            uop = data
        else:
            uop = from_data(data, as_device(device), None if dtype is None else as_dtype(dtype))
        self._uop = uop
        self._grad: Any = None
        self._requires_grad = False
        if requires_grad:
            self.requires_grad = True

    # ---- what it is --------------------------------------------------------------------------------------------------
    @property
    def uop(self) -> UOp:
        """The node this tensor stands for.

        >>> (Tensor([1.0, 2.0]) + 1).uop.op
        'ADD'
        """
        return self._uop

    @uop.setter
    def uop(self, value: UOp) -> None:
        self._uop = value
        if value.op != "BUFFER":
            value.holder = weakref.ref(self)
        if self._requires_grad:
            _leaves[value] = weakref.ref(self)

    @property
    def grad(self) -> Tensor | None:
        """The derivative `backward` added up here, or None. Raises ShapeError for one of another shape, JitError for
        one that a captured step used up, unless one was read before.

        >>> x = Tensor([3.0], requires_grad=True)
        >>> _ = (x * x).sum().backward()
        >>> x.grad.tolist()
        [6.0]
        """
        g: Any = self._grad
        if g.__class__ is NotKept:
            g = self._grad = (g.without() if sums_unkept(self) else g).read(self.shape)
        return note_gradient(self, g) if changes.captures else g

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            _check_tensor("grad", value)
        if value is not None and value.shape != self.shape:
            raise ShapeError("a gradient has the shape of its tensor", expected=self.shape, found=value.shape)
        note_gradient(self, OWN)
        self._grad = value

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` leaves a gradient here. Setting it makes the tensor a leaf with an identity of its own.

        Raises GradientError for integers.

        >>> x = Tensor([1.0])
        >>> x.requires_grad = True
        >>> (x * 2).requires_grad  # not a leaf
        False
        """
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if changes.captures:
            note_before(self, self._uop)
        if not value:
            self._requires_grad = False
            _leaf_tensors.pop(id(self), None)
            for u in [u for u, t in _leaf_rows() if t() is self]:
                _leaves.pop(u, None)
            return
        if not self.dtype.is_float:
            raise GradientError("only floats have gradients", expected="a float dtype", found=self.dtype.name)
        if self._requires_grad:
            return
        if self._is_view and not is_alone(self):
            as_leaf(self)
        elif self._uop.op != "BUFFER" or self._uop in _leaves:
            # equal expressions are one node; a leaf needs a node that nothing else equals
            self._uop = copied(self._uop)
        self._requires_grad = True
        _leaf_tensors[id(self)] = self
        _leaves[self._uop] = weakref.ref(self)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set `requires_grad` and return the tensor.

        >>> Tensor([1.0]).requires_grad_().requires_grad
        True
        """
        self.requires_grad = requires_grad
        return self

    def numel(self) -> Any:
        """The number of elements.

        >>> Tensor.zeros(2, 3).numel()
        6
        """
        return count(self._uop.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis.

        >>> Tensor.zeros(2, 3).size(), Tensor.zeros(2, 3).size(-1)
        ((2, 3), 3)
        """
        return self.shape if dim is None else self.shape[self._axis(dim)]

    def dim(self) -> int:
        """The number of axes.

        >>> Tensor.zeros(2, 3).dim()
        2
        """
        return self.ndim

    def element_size(self) -> int:
        """Bytes of one element.

        >>> Tensor.zeros(3, dtype=dtypes.float16).element_size()
        2
        """
        return self.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        """Bytes of all elements.

        >>> Tensor.zeros(3, dtype=dtypes.float16).nbytes
        6
        """
        return self.numel() * self.dtype.itemsize

    # ---- computing ---------------------------------------------------------------------------------------------------
    def realize(self, *others: Tensor) -> Tensor:
        """Compute this tensor and `others`, together with the pending random state, and return this one.

        >>> a = Tensor([1.0, 2.0])
        >>> total, twice = a.sum(), a * 2
        >>> total.realize(twice) is total  # both, in one batch
        True
        >>> total, twice
        (Tensor(3.), Tensor([2., 4.]))
        """
        for t in others:
            _check_tensor("realize", t)
        if not is_realized(self._uop) or any(not is_realized(t._uop) for t in others):
            running.wait()
            with running.lock:  # what is pending belongs to this batch, and to no other thread's
                self._realize_with(others)
        return self

    def _realize_with(self, others: tuple[Tensor, ...]) -> UOp:
        """Compute them, and what is pending; the node that has the value of this one.

        Where what only came along cannot be computed, the others are computed without it.
        """
        asked = (self, *others, *random_state.pending())
        late = deferred()
        if not late:
            return _computed(asked)
        named = {*map(id, asked)}
        late = [t for t in late if id(t) not in named]
        try:
            return _computed((*asked, *late))
        except Exception:
            if not late or changes.captures:  # of a capture they are a part
                raise
        set_aside(late)
        return _computed(asked)

    def _value(self) -> UOp:
        """The node with the value, computed. Who reads it asks once: another thread may assign meanwhile."""
        u = self._uop
        if is_realized(u):
            return u
        running.wait()
        with running.lock:
            return self._realize_with(())

    def numpy(self) -> np.ndarray:
        """The values as a NumPy array.

        >>> Tensor([[1, 2], [3, 4]]).numpy().sum(axis=0).tolist()
        [4, 6]
        """
        refuse_while_capturing("reading the values of a tensor", self._uop)
        return to_numpy(self._value())

    def tolist(self) -> Any:
        """The values as nested Python lists, a scalar as a number.

        >>> Tensor([[1, 2], [3, 4]]).tolist(), Tensor(5).tolist()
        ([[1, 2], [3, 4]], 5)
        """
        refuse_while_capturing("reading the values of a tensor", self._uop)
        u = self._value()
        found = to_list(u)
        if found is not None:
            return found
        values = to_numpy(u)
        return (values.astype(np.float32) if self.dtype.is_float and self.dtype.bits < 32 else values).tolist()

    def item(self) -> Any:
        """The only element as a Python number. Raises ShapeError when there is not exactly one.

        >>> Tensor([[1.5]]).item()
        1.5
        """
        u = self._uop
        if u.shape != () and self.numel() != 1:
            raise ShapeError("item() needs exactly one element", expected="1 element", found=f"shape {self.shape}")
        refuse_while_capturing("reading the values of a tensor", u)
        value = element(u)
        if value is None:
            u = self._value()
            value = element(u)
        if value is not None:
            return value
        values = to_numpy(u).reshape(())
        return (values.astype(np.float32) if self.dtype.is_float and self.dtype.bits < 32 else values).item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise DTypeError("only integers are indices", expected="an integer dtype", found=self.dtype.name)
        return int(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("a tensor without axes has no length", expected="at least 1 axis", found="shape ()")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.numpy()
        return values if dtype is None and not copy else np.array(values, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """An operator with an array or a number of NumPy on its left is a Tensor; other functions take the values.

        >>> import numpy as np
        >>> x = Tensor([1.0, 2.0])
        >>> (np.float64(3) * x).tolist(), np.exp2(x)
        ([3.0, 6.0], array([2., 4.], dtype=float32))
        """
        operator = _REFLECTED.get(ufunc.__name__)
        if operator and method == "__call__" and not options and not isinstance(inputs[0], Tensor):
            return getattr(self, operator)(inputs[0])
        return getattr(ufunc, method)(*(x.numpy() if isinstance(x, Tensor) else x for x in inputs), **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Where its memory is, in DLPack's words. Raises DeviceError for a device that cannot share it."""
        return _dlpack().device_of(self.device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Its memory for another library, as `np.from_dlpack(t)` or `torch.from_dlpack(t)` asks for it: no copy.

        >>> import numpy as np
        >>> t = Tensor([1, 2, 3])
        >>> np.from_dlpack(t)[0] = 7
        >>> t.tolist()
        [7, 2, 3]
        """
        refuse_while_capturing("sharing the memory of a tensor", self._uop)
        here = self.__dlpack_device__()
        there = dl_device or here
        if there != here and (there != _dlpack().HOST or copy is False):
            raise DeviceError("memory that is elsewhere", expected=f"DLPack device {here}", found=there)
        t = self.to("cpu") if there != here else self.clone() if copy else self
        u = t._value()
        if _dlpack().is_flipped(u):
            if copy is False:
                raise ArgumentError("memory in reverse order is copied", expected="copy=None", found="copy=False")
            u = self._wrap(u).clone()._value()
        return _dlpack().share(u, max_version, stream)

    @classmethod
    def from_dlpack(cls, x: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
        """The tensor of another library, in its memory: what that library writes later is seen.

        It is copied when `copy` is True, or when it is None and the strides are those of no row-major array with its
        axes permuted, flipped or repeated; False raises ArgumentError instead.

        >>> import numpy as np
        >>> a = np.zeros(3, np.int64)
        >>> t = Tensor.from_dlpack(a)
        >>> a[1] = 5
        >>> t.tolist()
        [0, 5, 0]
        """
        return cls._wrap(_dlpack().borrow(x, None if device is None else as_device(device), copy))

    __hash__ = object.__hash__

    # ---- copies and places -------------------------------------------------------------------------------------------
    def to(self, *args: Any, device: Any = None, dtype: Any = None) -> Tensor:
        """The tensor on another device, in another dtype, or both, as `to("cpu")`, `to(dtypes.float16)`.

        A device `disk:path` is a file: it is written at once, as a whole, and the result is mapped, not held in memory.
        Raises FileFormatError where the file cannot be written.

        >>> Tensor([1.5, 2.5]).to(dtypes.int32).tolist()
        [1, 2]
        >>> Tensor([1.0]).to("python").device
        'python'
        """
        for a in args:
            if isinstance(a, DType | type) or (isinstance(a, str) and isinstance(getattr(dtypes, a, None), DType)):
                dtype = a
            elif a is not None:
                device = a
        u = self._uop if dtype is None else cast(self._uop, as_dtype(dtype))
        if is_on_disk(device):
            return self._wrap(written_file(u, as_device(device, may_be_file=True)))
        if device is not None and (target := as_device(device)) != self.device:
            u = build("LOAD", u, arg=LoadArg(target, "GLOBAL"))
        return self if u is self._uop else self._wrap(u)

    def cpu(self) -> Tensor:
        """The tensor on the cpu device.

        >>> Tensor([1.0], device="python").cpu().device
        'cpu'
        """
        return self.to("cpu")

    def contiguous(self) -> Tensor:
        """The same values in a buffer, in row-major order: what is made of it reads them from there. A view of a tensor
        that is in that order, else a copy.

        >>> Tensor([[1, 2], [3, 4]]).T.contiguous().tolist()
        [[1, 3], [2, 4]]
        """
        if is_row_major(self):
            return aliases(self, lambda u: build("CONTIGUOUS", u), functools.partial(in_rows, self.shape))
        return self._wrap(build("CONTIGUOUS", self._uop))

    def contiguous_backward(self) -> Tensor:
        """The same values; the gradient that flows back through here gets a buffer of its own.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = (x.contiguous_backward() * 3).sum().backward()
        >>> x.grad.tolist()
        [3.0, 3.0]
        """
        return aliases(self, lambda u: build("CONTIGUOUS_BACKWARD", u))

    def clone(self) -> Tensor:
        """A copy that no later assignment to this tensor reaches.

        >>> a = Tensor([1.0, 2.0])
        >>> b = a.clone()
        >>> a[0] = 9.0
        >>> b.tolist()
        [1.0, 2.0]
        """
        return self._wrap(copied(self._uop))

    def detach(self) -> Tensor:
        """A view of all elements, through which no gradient flows.

        >>> x = Tensor([3.0], requires_grad=True)
        >>> _ = (x * x.detach()).sum().backward()
        >>> x.grad.tolist()  # not 6
        [3.0]
        """
        return detached(self)

    def assign(self, value: Any) -> Tensor:
        """Write `value`, broadcast, to all elements; views of the tensor, and its base if it is a view, see it.

        Raises ShapeError or DTypeError, and changes nothing, when `value` does not fit; ArgumentError for a view whose
        elements share memory. Values that were computed before stay. A mapped file is written at once.

        >>> Tensor([1.0, 2.0]).assign(Tensor([3.0, 4.0])).tolist()
        [3.0, 4.0]
        """
        v = value if isinstance(value, Tensor) else Tensor(value, dtype=self.dtype, device=compute_device(self.device))
        if v.dtype is not self.dtype:
            raise DTypeError("assign: dtypes differ", expected=self.dtype.name, found=v.dtype.name)
        if self._is_view or self._uop.op in MEMORY or is_on_disk(self.device):
            self._store(_whole, v._uop)
        else:
            self._store(None, v._uop)
        return self

    def _store(self, part: Make | None, value: UOp) -> None:
        """Write `value`, broadcast, to the part of this tensor that `part` makes of its node; None: all, of which no
        memory is named.
        """
        root, window = target_of(self)
        u = root._uop
        on_disk = is_on_disk(root.device) and is_realized(u)
        if part is None and root is self and not on_disk:
            root._become(in_own_memory(self._fitting(u, value)))
        else:
            base = u if u.op in MEMORY or on_disk else build("CONTIGUOUS", u)
            target = window(base)
            root._become(root._stored(base, target if part is None else part(target), value))

    def _become(self, uop: UOp) -> None:
        """Stand for `uop` from now on; a capture under way takes note. What a Variable steers is computed while it is
        bound to what it is now.
        """
        before, self.uop = self._uop, uop
        note_assign(self, before)
        if (bound := values.get(None)) and (steering := variables(uop)):
            if all(v.arg.symbol in bound for v in steering):
                defer(self)

    def _stored(self, base: UOp, view: UOp, value: UOp) -> UOp:
        """`base` once `value`, broadcast, is stored into `view` of it."""
        if is_on_disk(self.device) and is_realized(base):
            self._fitting(view, value, elsewhere=True)
            if late := [t for t in live_tensors() if is_pending(t._uop, self.device)]:
                late[0].realize(*late[1:])
            write(view, value)
            return base
        return build("AFTER", base, build("STORE", view, self._fitting(view, value)))

    def _fitting(self, target: UOp, value: UOp, elsewhere: bool = False) -> UOp:
        """`value` broadcast to the shape of `target`. Raises ShapeError, DeviceError unless it may be `elsewhere`."""
        if not elsewhere:
            same_device(target, value)
        shape = target.shape
        fits = len(value.shape) <= len(shape) and all(
            n is m or n == m or (n.__class__ is int and n == 1)
            for n, m in zip(reversed(value.shape), reversed(shape), strict=False)
        )
        if not fits:
            raise refuse_shape("assign", shape, value.shape)
        return broadcast_to(value, shape)

    # ---- gradients ---------------------------------------------------------------------------------------------------
    def backward(
        self, gradient: Tensor | None = None, create_graph: bool = False, retain_graph: bool | None = None
    ) -> Tensor:
        """Add d(self)/d(leaf) to `.grad` of every leaf with `requires_grad` that this tensor was made from.

        With `create_graph` the gradients can be differentiated again; otherwise they are detached. Without
        `retain_graph` (None: as `create_graph`) this tensor keeps its value alone. Raises GradientError when this is
        not a float, not a scalar and no `gradient` is given, has no such leaf, or keeps no graph any more.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        g = self._root_gradient(gradient)
        leaves = leaf_nodes()
        below = reach(self._uop, leaves)
        nodes = [u for u in leaves if u in below]
        if not nodes:
            for u in below:
                refuse_lost(u)
            raise GradientError("backward reaches no leaf", expected="a leaf with requires_grad=True", found="none")
        new = []
        for u, d in gradients(self._uop, g, nodes, cut=True).items():
            t = leaves[u]
            if d is not None:
                d = placed_like(d, u)
                new.append((t, self._wrap(d if create_graph else build("DETACH", d))))
        for t, own in new:
            t._add_gradient(own, create_graph)
        is_kept = create_graph if retain_graph is None else retain_graph
        if not is_kept and self._uop not in leaves and is_alone(self):
            note_before(self, self._uop)
            self._uop = spent(self._uop)
        if self._uop.op != "BUFFER":
            defer(self)  # a loss is nearly free beside its gradients, and dear once they are gone
        return self

    def _add_gradient(self, own: Tensor, create_graph: bool) -> None:
        """Add `own` to `grad`, in place unless the sum is to be differentiated again. With what is not kept the sum is
        not kept.
        """
        old: Any = self._grad
        if changes.captures:
            old = note_gradient(self, old)
        if old is None:
            self._grad = own
        elif old.__class__ is NotKept:
            self._grad = old.plus(own)
        elif create_graph or old._requires_grad:
            self._grad = old + own
        else:
            old._store(None, cast((old + own)._uop, old.dtype))

    def _root_gradient(self, gradient: Tensor | None) -> UOp:
        if not self.dtype.is_float:
            raise GradientError("backward of a tensor that is not float", expected="a float", found=self.dtype.name)
        if gradient is None:
            if self.numel() != 1:
                raise GradientError("backward without a gradient", expected="a scalar", found=f"shape {self.shape}")
            return broadcast_to(const(1, self.dtype), self.shape)
        _check_tensor("backward: gradient", gradient)
        if gradient.shape != self.shape or gradient.dtype is not self.dtype:
            raise GradientError(
                "the gradient does not match its tensor",
                expected=f"{self.dtype.name} {self.shape}",
                found=f"{gradient.dtype.name} {gradient.shape}",
            )
        return gradient._uop
