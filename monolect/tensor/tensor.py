"""Define Tensor, a handle on a node of the lazy graph that inherits its methods from the families in this folder.

What it is for: it holds a lazy value (`uop`), realizes it (`realize`, `numpy`), changes it (`assign`), and
differentiates with respect to leaves in reverse mode (`requires_grad`, `backward`).
What it is not: it knows no kernels and no backend. It passes nodes to the runtime and gets BUFFERs back.
Invariant: nothing runs before values are asked for, as by `realize`, `numpy`, `tolist`, `item` or a file; a call that
raises leaves every tensor unchanged.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterable
from sys import getrefcount
from typing import Any, Self

from monolect.autograd.gradient import remember
from monolect.autograd.graph import broadcast_to, cast
from monolect.autograd.operands import same_device
from monolect.autograd.sharding import leaves_parts, passed_to, to_devices_of, whole
from monolect.backend.common.host.memory import ONE_REF
from monolect.backend.registry import is_on_disk
from monolect.base.absent import mark_absent
from monolect.base.dtype import as_dtype, readable
from monolect.base.errors import DTypeError, GradientError, ShapeError
from monolect.base.numpy import np
from monolect.base.settings import settings
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, idx, substitute
from monolect.runtime.binding import bound_to, value_of, variables
from monolect.runtime.buffer import element, is_realized, to_list, to_numpy, with_storage
from monolect.runtime.known import run_known
from monolect.runtime.realize.execute import compute, realize
from monolect.runtime.realize.locks import running
from monolect.runtime.replay.in_progress import (
    OWN,
    NotKept,
    changes,
    note_assign,
    note_before,
    note_computed,
    note_gradient,
    refuse_while_capturing,
    sums_unkept,
    under_way,
)
from monolect.tensor import random as random_state
from monolect.tensor.base import (
    Data,
    DeviceLike,
    DTypeLike,
    Number,
    as_device,
    check_tensor,
    on_device_of,
    refused_shape,
)
from monolect.tensor.copies import CopyMixin
from monolect.tensor.creation import CreationMixin, from_data
from monolect.tensor.devices.files import is_pending, write
from monolect.tensor.devices.methods import DevicesMixin, compute_device
from monolect.tensor.draws.generator import Generator
from monolect.tensor.draws.in_place import RandomInPlaceMixin
from monolect.tensor.draws.methods import RandomMixin
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.families import MethodsMixin
from monolect.tensor.neural.autocast import autocasting
from monolect.tensor.neural.families import NeuralMixin
from monolect.tensor.printed import PrintMixin
from monolect.tensor.state.backward import BackwardMixin
from monolect.tensor.state.copied import apart, copied, in_own_memory
from monolect.tensor.state.deferred import defer, deferred, exclude, extends, outgrows
from monolect.tensor.state.delayed import delay_calls, settle_call
from monolect.tensor.state.hooks import HooksMixin
from monolect.tensor.state.leaves import (
    all_leaf_nodes,
    followed,
    leaf_nodes,
    leaf_tensors,
    leaves,
    marked,
    node_pairs,
    paused,
    watched,
)
from monolect.tensor.view import (
    MEMORY,
    Make,
    aliases,
    as_frozen,
    as_leaf,
    computed_by,
    detached,
    in_rows,
    is_alone,
    is_computed,
    is_row_major,
    settle,
    strides,
    target_of,
)


def live_tensors(known: Iterable[Tensor] = ()) -> list[Tensor]:
    """Return every Tensor of the process except views, as the objects that refer to their class.

    After `gc.freeze()` Python does not list older Tensors; then only leaves and the Tensors of `known` are found among
    them. `gc.get_objects` is not used: CPython raises SystemError in a thread that builds a tuple meanwhile.
    """
    kinds: list[Any] = [Tensor]
    for k in kinds:
        kinds.extend(k.__subclasses__())
    kinds = [k for k in kinds if not k._is_view and not hasattr(k, "donated_at")]
    found = {id(t): t for t in (*gc.get_referrers(*kinds), *leaves(), *known) if type(t) in kinds}
    return [t for t in found.values() if getattr(t, "_uop", None) is not None]  # another thread may be making one


def _computed(tensors: tuple[Tensor, ...]) -> UOp:
    """Compute `tensors` in one batch; return the node with the value of the first. The caller holds `running.lock`."""
    is_part = bool(under_way and (changes.captures or changes.is_inside))  # part of a captured step
    also: list[tuple[UOp, UOp]] | None = None if is_part else []
    leaves = followed()
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
    new = compute(before, also=also)
    rows: Iterable[tuple[Tensor, UOp, UOp]] = zip(batch, before, new, strict=True)
    if also:
        rows = [*rows, *((t, old, u) for old, u in also if (t := old.holder()) is not None)]
    if leaves or (len(new) > 1 and not is_part):
        rows = [*rows]
        if own := [u for t, _, u in rows if t._requires_grad]:
            leaves = {*leaves, *own}
        kept = remember([(u, u if t._requires_grad else old) for t, old, u in rows], leaves, is_part, bound_to)
        rows = [(t, old, u) for (t, old, _), u in zip(rows, kept, strict=True)]
    for t, old, u in rows:
        if t._is_view:
            settle(t, old, u)
        else:
            if under_way and t._uop is old:
                note_computed(t)
            t._exchange(old, u)
    selected = {
        u: _select(t, u, is_part)
        for t in wanted
        if (u := t._uop).op != "BUFFER" and is_realized(u) and not is_computed(t, u)
    }
    first = tensors[0]
    if wanted[0] is first:
        value = new[0] if batch and batch[0] is first else value
        return selected.get(value, value)
    u = first._uop  # a view of a computed value
    return u if is_realized(u) else realize([u])[0]


def _select(t: Tensor, u: UOp, is_part: bool) -> UOp:
    """Make `t`, whose node `u` is a part of memory that Variables select, the part at the values that hold now, and
    return its node. In a captured step, where other values follow, it becomes a copy.
    """
    if is_part:
        note_computed(t)
        return t._take_memory(u, realize([build("CONTIGUOUS", u)])[0])
    t.uop = substitute(u, {p: idx(value_of(p)) for p in variables(u)})
    return t.uop


def compute_pending() -> None:
    """Realize the random states and the deferred tensors; if these cannot be computed, exclude them from batches."""
    running.wait()
    with running.lock:
        random_state.settle()
        if late := deferred():
            try:
                _computed(tuple(late))
            except Exception:
                exclude(late)


@delay_calls
@autocasting
@guard_methods
class Tensor(
    CreationMixin,
    MethodsMixin,
    DevicesMixin,
    NeuralMixin,
    RandomMixin,
    RandomInPlaceMixin,
    CopyMixin,
    BackwardMixin,
    HooksMixin,
    PrintMixin,
):
    """An n-dimensional array that is computed when its values are needed.

    `Tensor(data)` takes a number, nested lists, a Tensor, or a NumPy array (shared, not copied, where its layout
    allows). Python floats become float32, ints int64, bools bool, unless `dtype` is given; arrays and NumPy scalars
    keep their dtype, and lists have the promoted dtype of their items. Raises ShapeError for ragged lists, DTypeError
    for data that are not numbers, DeviceError for an unknown device.

    >>> (Tensor([1.0, 2.0]) + 1).tolist()
    [2.0, 3.0]
    """

    __slots__ = ()

    def __init__(
        self, data: Data, device: DeviceLike | None = None, dtype: DTypeLike | None = None, requires_grad: bool = False
    ):
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
        """The node (UOp) of the lazy graph that this tensor refers to.

        >>> (Tensor([1.0, 2.0]) + 1).uop.op
        'ADD'
        """
        return self._uop

    @uop.setter
    def uop(self, value: UOp) -> None:
        self._uop = value
        self._note_node(value)

    def _note_node(self, u: UOp) -> None:
        """Note that this tensor has the node `u`."""
        if u.op != "BUFFER":
            u.holder = weakref.ref(self)
        if self._requires_grad:
            marked[u] = weakref.ref(self)

    def _exchange(self, old: UOp, new: UOp) -> None:
        """Make `new`, the value of the node `old`, the node of this tensor, unless another thread has assigned to it
        meanwhile.
        """
        if self._uop is old:
            self._uop = new  # no call between the two lines, so no other thread runs
            self._note_node(new)

    @property
    def grad(self) -> Tensor | None:
        """The gradient, a Tensor that `backward` accumulates, or None.

        Setting it raises ShapeError for another shape. Reading it raises JitError if a captured step consumed the
        gradient and did not keep it because it had never been read.

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
            check_tensor("grad", value)
        if value is not None and value.shape != self.shape:
            raise ShapeError("a gradient has the shape of its tensor", expected=self.shape, found=value.shape)
        note_gradient(self, OWN)
        self._grad = value

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` accumulates a gradient here. Setting it to True makes the tensor a leaf with a node of its
        own.

        Raises GradientError unless the dtype is a float.

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
            if self._requires_grad:
                self._is_frozen = True
            self._requires_grad = False
            leaf_tensors.pop(id(self), None)
            for u in [u for u, t in node_pairs(marked) if t() is self]:
                paused[u] = marked.pop(u)
            if self._is_view:
                as_frozen(self)
            else:
                self._part_from_graphs()
                paused.pop(self._uop, None)  # no graph has it
            return
        if not self.dtype.is_float:
            raise GradientError("only floats have gradients", expected="a float dtype", found=self.dtype.name)
        if self._requires_grad:
            return
        ref = weakref.ref(self)
        if self._is_view and not is_alone(self):
            as_leaf(self, lambda u: marked.__setitem__(u, ref))
        elif self._uop.op != "BUFFER" or self._uop in marked:
            # equal expressions are one node; a leaf needs a node that nothing else equals
            self._uop = copied(self._uop)
            self._uop.holder = ref  # so that it is stored when it is used again, as any value that is held
        else:
            self._part_from_graphs()
        self._requires_grad = True
        leaf_tensors[id(self)] = self
        marked[self._uop] = ref
        for u in [u for u, t in node_pairs(paused) if t() is self]:
            marked[u] = paused.pop(u)

    def _part_from_graphs(self) -> None:
        """Give this tensor another node of the same value if a graph may have the present one. So values computed while
        this tensor was no leaf pass no gradient to it.
        """
        u = self._uop
        if getrefcount(u) <= ONE_REF + 1 or changes.captures or changes.is_inside or is_on_disk(self.device):
            return
        if u.op != "BUFFER":
            self._uop = apart(u)
        elif u.storage is not None:
            self._uop = with_storage(u.shape, u.dtype, u.arg.device, u.storage)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad` and return this tensor.

        >>> Tensor([1.0]).requires_grad_().requires_grad
        True
        """
        self.requires_grad = requires_grad
        return self

    def numel(self) -> Any:
        """Return the number of elements, an int, or an index node for symbolic sizes.

        >>> Tensor.zeros(2, 3).numel()
        6
        """
        return count(self._uop.shape)

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the size of the axis `dim`. Raises AxisError for an axis outside the tensor.

        >>> Tensor.zeros(2, 3).size(), Tensor.zeros(2, 3).size(-1)
        ((2, 3), 3)
        """
        return self.shape if dim is None else self.shape[self._axis(dim)]

    def dim(self) -> int:
        """Return the number of axes.

        >>> Tensor.zeros(2, 3).dim()
        2
        """
        return self.ndim

    def element_size(self) -> int:
        """Return the size of one element in bytes.

        >>> Tensor.zeros(3, dtype=dtypes.float16).element_size()
        2
        """
        return self.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        """The size of all elements in bytes.

        >>> Tensor.zeros(3, dtype=dtypes.float16).nbytes
        6
        """
        return self.numel() * self.dtype.itemsize

    # ---- computing ---------------------------------------------------------------------------------------------------
    def realize(self, *others: Tensor) -> Self:
        """Compute this tensor and `others` in one batch, together with pending random states, and return this tensor.

        >>> a = Tensor([1.0, 2.0])
        >>> total, twice = a.sum(), a * 2
        >>> total.realize(twice) is total  # both, in one batch
        True
        >>> total, twice
        (Tensor(3.), Tensor([2., 4.]))
        """
        if not others:
            self._value()
            return self
        for t in others:
            check_tensor("realize", t)
        if not is_computed(self, self._uop) or any(not is_computed(t, t._uop) for t in others):
            running.wait()
            with running.lock:
                self._realize_with(others)
        return self

    def _take_memory(self, old: UOp, new: UOp) -> UOp:
        """Register the BUFFER `new` as the computed value of the node `old`, and make it this tensor's node if that is
        still `old`.

        Gradients still pass from the buffer to the graph of `old`. Return `new`, or another BUFFER of the same memory
        if `new` is registered with another graph already.
        """
        if old is not new and not self._requires_grad and (leaves := all_leaf_nodes()):
            (kept,) = remember([(new, old)], leaves, binding=bound_to)
            if kept.op != "BUFFER":  # the BUFFER has another graph
                new = with_storage(new.shape, new.dtype, new.arg.device, new.storage)
                (kept,) = remember([(new, old)], leaves, binding=bound_to)
            new = kept
        self._exchange(old, new)
        return new

    def _realize_with(self, others: tuple[Tensor, ...]) -> UOp:
        """Compute this tensor, `others`, the pending random states and the deferred tensors in one
        batch; return the node with the value of this one.

        If that fails outside of a capture, the deferred tensors are excluded and the rest is computed without them.
        """
        pending, late = random_state.pending(), deferred()
        call = None
        if not (others or pending or late or under_way or self._is_view or self._requires_grad):
            call = self._call if self._is_delayed else None
            if call is not None and (value := call.run()) is not None:
                settle_call(self, call, value)
                return value
            old = self._uop
            if not is_realized(old) and (value := run_known(old)) is not None:
                if call is not None:
                    call.learn(old)
                leaves = followed()
                kept = remember([(value, old)], leaves, binding=bound_to)[0] if leaves else value
                self._exchange(old, kept)
                return value
        requested = (self, *others, *pending)
        if not late:
            value = _computed(requested)
            if call is not None:
                call.learn(old)
            return value
        named = {*map(id, requested)}
        late = [t for t in late if id(t) not in named]
        try:
            return _computed((*requested, *late))
        except Exception:
            if not late or changes.captures:  # deferred tensors are part of a capture
                raise
        exclude(late)
        return _computed(requested)

    def _value(self) -> UOp:
        """Realize this tensor unless it is realized already, and return its node.

        The caller uses this node and does not read `_uop` again: another thread may assign meanwhile.
        """
        if not self._is_delayed:
            u = self._uop
            if is_computed(self, u):
                return u
        if running.user is not None:
            running.wait()
        with running.lock:  # so that no other thread's batch takes the pending states
            return self._realize_with(())

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """Compute the values and return them as a NumPy array of this shape and dtype. Raises JitError inside a
        captured step. `force` has no effect: a tensor with a gradient or on another device needs no force.

        >>> Tensor([[1, 2], [3, 4]]).numpy().sum(axis=0).tolist()
        [4, 6]
        """
        if under_way:
            refuse_while_capturing("reading the values of a tensor", self._uop)
        return to_numpy(self._value())

    def tolist(self) -> Any:
        """Compute the values and return them as nested Python lists; a tensor without axes gives a number.

        Raises JitError inside a captured step.

        >>> Tensor([[1, 2], [3, 4]]).tolist(), Tensor(5).tolist()
        ([[1, 2], [3, 4]], 5)
        """
        if under_way:
            refuse_while_capturing("reading the values of a tensor", self._uop)
        u = self._value()
        found = to_list(u)
        if found is not None:
            return found
        values = to_numpy(u)
        return readable(values, self.dtype).tolist()

    def item(self) -> Number:
        """Compute the only element and return it as a Python number.

        Raises ShapeError where there is not exactly one element, JitError inside a captured step.

        >>> Tensor([[1.5]]).item()
        1.5
        """
        u = self._uop if under_way or not self._is_delayed else self._value()
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
        return readable(values, self.dtype).item()

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

    __hash__ = object.__hash__

    # ---- copies and devices ------------------------------------------------------------------------------------------
    def contiguous(self) -> Self:
        """Return the same values in a row-major buffer from which later operations read them.

        The result is a view if this tensor is row-major already, else a copy.

        >>> Tensor([[1, 2], [3, 4]]).T.contiguous().tolist()
        [[1, 3], [2, 4]]
        """
        if is_row_major(self):
            return aliases(self, lambda u: build("CONTIGUOUS", u), functools.partial(in_rows, self.shape))
        return self._wrap(build("CONTIGUOUS", self._uop))

    def is_contiguous(self) -> bool:
        """Whether the elements are adjacent in row-major order, so that `reshape` gives a view. It is True for a tensor
        that is no view: computed values are stored so, whatever their operands are. It is False where a size is
        symbolic in a view.

        >>> x = Tensor([[1, 2], [3, 4]])
        >>> x.is_contiguous(), x.T.is_contiguous(), (x.T + 1).is_contiguous()
        (True, False, True)
        """
        return is_row_major(self)

    def stride(self, dim: int | None = None) -> Any:
        """Return the distance in memory between neighbours on each axis, in elements, as a tuple; with `dim` an int,
        that of one axis. A computed value is row-major. Raises AxisError for a missing axis, ShapeError for a view of
        symbolic size.

        >>> x = Tensor([[1, 2, 3], [4, 5, 6]])
        >>> x.stride(), x.T.stride(), x[:, ::2].stride(1)
        ((3, 1), (1, 3), 2)
        """
        found = strides(self)
        if found is None:
            raise ShapeError("stride", expected="sizes that are numbers", found=f"shape {self.shape}")
        return found if dim is None else found[self._axis(dim)]

    def contiguous_backward(self) -> Self:
        """Return a view of the same values whose gradient is stored in a buffer of its own.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = (x.contiguous_backward() * 3).sum().backward()
        >>> x.grad.tolist()
        [3.0, 3.0]
        """
        return aliases(self, lambda u: build("CONTIGUOUS_BACKWARD", u))

    def clone(self) -> Self:
        """Return a copy that later assignments to this tensor do not change.

        >>> a = Tensor([1.0, 2.0])
        >>> b = a.clone()
        >>> a[0] = 9.0
        >>> b.tolist()
        [1.0, 2.0]
        """
        return self._wrap(copied(self._uop))

    def detach(self) -> Self:
        """Return a view of all elements through which no gradient flows.

        >>> x = Tensor([3.0], requires_grad=True)
        >>> _ = (x * x.detach()).sum().backward()
        >>> x.grad.tolist()  # not 6
        [3.0]
        """
        return detached(self)

    @property
    def data(self) -> Self:
        """`detach()`: a view through which no gradient flows. Setting it writes the values, as `assign` does.

        >>> x = Tensor([3.0], requires_grad=True)
        >>> _ = x.data.mul_(2)
        >>> x.tolist()
        [6.0]
        """
        return self.detach()

    @data.setter
    def data(self, value: Data) -> None:
        self.assign(value.detach() if isinstance(value, Tensor) else value)

    def assign(self, value: Data) -> Self:
        """Write `value`, broadcast to this shape, to all elements, visible to the base and the views, and return this
        tensor.

        `value` is a Tensor of the same dtype, or a number or array. Values computed before do not change. A mapped file
        is written at once. Raises ShapeError, DTypeError or DeviceError where `value` does not fit, and ArgumentError
        for a view whose elements share memory; then nothing changes.

        >>> Tensor([1.0, 2.0]).assign(Tensor([3.0, 4.0])).tolist()
        [3.0, 4.0]
        """
        v = value if isinstance(value, Tensor) else Tensor(value, dtype=self.dtype, device=compute_device(self.device))
        if v.dtype is not self.dtype:
            raise DTypeError("assign: dtypes differ", expected=self.dtype.name, found=v.dtype.name)
        if self._is_view or self._uop.op in MEMORY or is_on_disk(self.device):
            self._store(lambda u: u, v._uop)
        else:
            self._store(None, v._uop)
        return self

    def _store(self, part: Make | None, value: UOp) -> None:
        """Write `value`, broadcast, to the part of this tensor that `part` maps its node to.

        With `part` None, all elements are replaced and the tensor's memory need not be reused. Raises ShapeError or
        DeviceError if `value` does not fit, ArgumentError for a view whose elements share memory.
        """
        written = self._uop if part is None else part(self._uop)
        if 0 in written.shape:  # also of a view whose elements share memory
            self._fitting(written, value)
            return
        root, window = target_of(self)
        u = root._uop
        on_disk = is_on_disk(root.device) and is_realized(u)
        if part is None and root is self and not on_disk:
            new = in_own_memory(on_device_of(self._fitting(u, value), u))  # a constant, too, stays on its device
            # equal expressions are one node, here perhaps that of a leaf
            if (self._requires_grad or not settings.modes.GRAD) and (new in marked or new in paused):
                new = apart(new)
            elif self._requires_grad and new.op == "DETACH":  # DETACH of this node would be this leaf
                new = copied(new)
            root._become(new)
        else:
            base = u if u.op in MEMORY or on_disk else build("CONTIGUOUS", u)
            at = window if part is None else lambda u: part(window(u))
            if leaves_parts(at, base):  # each device writes to a copy of all elements, and keeps its part
                base = build("CONTIGUOUS", whole(base))
            target = at(base)
            root._become(to_devices_of(root._stored(base, target, value), u))

    def _become(self, uop: UOp) -> None:
        """Replace the node of this tensor by `uop`, and note the assignment in the current capture.

        A value that depends on a bound Variable is deferred, so that it is computed before the Variable changes.
        """
        old = self._uop
        note_assign(self, old)
        self.uop = uop
        if self._requires_grad and outgrows(self, uop):
            self.realize(*[g for t in leaves() if isinstance(g := t._grad, Tensor)])
        elif extends(uop, old) or bound_to(uop):
            defer(self)

    def _stored(self, base: UOp, view: UOp, value: UOp) -> UOp:
        """Return the node `base` after a store of `value`, broadcast, into `view`, a node that is a view of it. A
        mapped file is written at once.
        """
        if is_on_disk(self.device) and is_realized(base):
            self._fitting(view, value, elsewhere=True)
            if late := [t for t in live_tensors() if is_pending(t._uop, self.device)]:
                late[0].realize(*late[1:])
            write(view, value)
            return base
        return build("AFTER", base, build("STORE", view, passed_to(base, self._fitting(view, value))))

    def _fitting(self, target: UOp, value: UOp, elsewhere: bool = False) -> UOp:
        """Return `value` broadcast to the shape of the node `target`, to which it will be assigned.

        Raises ShapeError if it does not broadcast, and DeviceError for another device unless `elsewhere`.
        """
        if not elsewhere:
            same_device(target, value)
        shape = target.shape
        fits = len(value.shape) <= len(shape) and all(
            n is m or n == m or (n.__class__ is int and n == 1)
            for n, m in zip(reversed(value.shape), reversed(shape), strict=False)
        )
        if not fits:
            raise refused_shape("assign", shape, value.shape)
        return broadcast_to(value, shape)


Generator.make = Tensor
mark_absent(Tensor, "Tensor")

__all__ = ["Tensor", "compute_pending", "leaf_nodes", "leaves", "live_tensors", "watched"]
