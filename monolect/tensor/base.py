"""Define TensorBase, the common base of the families of Tensor methods: it wraps nodes, records provenance and checks
arguments.

The families are mixin classes over :class:`TensorBase`; :class:`monolect.tensor.tensor.Tensor` inherits from all of
them. They make tensors through `self._wrap(uop)`, so no family imports Tensor.

Invariant: nothing here runs a computation, and each error is raised at the user's call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar
from weakref import ref

from monolect.autograd.operands import same_device
from monolect.autograd.sharding import gradient_at, replicated
from monolect.backend.registry import Device, is_on_disk
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import (
    ArgumentError,
    AxisError,
    AxisTypeError,
    DeviceError,
    DTypeError,
    IRError,
    MonolectError,
    ShapeError,
)
from monolect.base.numpy import is_array
from monolect.base.origin import provenance
from monolect.base.settings import settings
from monolect.ir.bounds import at_most, bounds_text, size_max
from monolect.ir.ops import LoadArg
from monolect.ir.placement import device as device_of
from monolect.ir.uop import UOp, build

if TYPE_CHECKING:
    import builtins
    from types import EllipsisType

    from monolect.base.numpy import np
    from monolect.tensor.variable import Variable

    class Named(Protocol):
        """Type of an argument: an object that names a device by its attribute `name`."""

        @property
        def name(self) -> str: ...

    class Shared(Protocol):
        """Type of the argument of `from_dlpack`: an object that gives its memory through DLPack."""

        def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
        def __dlpack_device__(self) -> tuple[int, int]: ...

    class Arrayed(Protocol):
        """Type of data for a Tensor: an object that NumPy reads as an array by `__array__`."""

        def __array__(self) -> np.ndarray: ...


AnyTensor = TypeVar("AnyTensor", bound="TensorBase")
# Types of arguments. They are texts: nothing is imported for them when a program runs.
Number: TypeAlias = "int | float"
PerAxis: TypeAlias = "int | Sequence[int]"  # one int for all axes, or one for each
Axes: TypeAlias = "int | Sequence[int] | None"  # None for all
Size: TypeAlias = "int | UOp | Variable"  # of one axis; a node or a Variable where it is symbolic
Sizes: TypeAlias = "Size | Sequence[Size]"  # as in `zeros(2, 3)` and in `zeros((2, 3))`
DTypeLike: TypeAlias = "DType | str | type | np.dtype"
DeviceLike: TypeAlias = "str | Named | tuple[str, ...] | list[str]"
TensorLike: TypeAlias = "TensorBase | Number | UOp | Variable | np.ndarray | np.generic"  # an operand
Data: TypeAlias = "TensorLike | Arrayed | Sequence[Data]"  # what becomes a tensor
Index: TypeAlias = (
    "int | slice | EllipsisType | TensorBase | UOp | Variable | np.ndarray | np.generic | Sequence | None"
)
Key: TypeAlias = "Index | tuple[Index, ...]"  # of `x[key]`

_new = object.__new__
_WITHOUT_GRAPH = frozenset(("CONST", "DETACH"))  # ops of nodes that GRAD=0 leaves as they are
MOST_ELEMENTS: int = dtypes.int64.max  # elements of a tensor or of one axis; more raise ShapeError


if TYPE_CHECKING:

    class _Joined:
        """Declare, for the type checker, methods of Tensor that one family calls and another family defines."""

        @property
        def requires_grad(self) -> builtins.bool: ...
        @requires_grad.setter
        def requires_grad(self, value: builtins.bool) -> None: ...
        def __neg__(self) -> Self: ...
        def __add__(self, other: TensorLike) -> Self: ...
        def __radd__(self, other: TensorLike) -> Self: ...
        def __sub__(self, other: TensorLike) -> Self: ...
        def __rsub__(self, other: TensorLike) -> Self: ...
        def __mul__(self, other: TensorLike) -> Self: ...
        def __rmul__(self, other: TensorLike) -> Self: ...
        def __truediv__(self, other: TensorLike) -> Self: ...
        def __rtruediv__(self, other: TensorLike) -> Self: ...
        def __pow__(self, other: TensorLike) -> Self: ...
        def __eq__(self, other: TensorLike) -> Self: ...  # type: ignore[override]
        def __ne__(self, other: TensorLike) -> Self: ...  # type: ignore[override]
        def __lt__(self, other: TensorLike) -> Self: ...
        def __gt__(self, other: TensorLike) -> Self: ...
        def __le__(self, other: TensorLike) -> Self: ...
        def __ge__(self, other: TensorLike) -> Self: ...
        def __getitem__(self, key: Key) -> Self: ...
        def __invert__(self) -> Self: ...

        abs: Callable[..., Self]
        all: Callable[..., Self]
        bool: Callable[..., Self]
        cast: Callable[..., Self]
        clone: Callable[..., Self]
        cumsum: Callable[..., Self]
        detach: Callable[..., Self]
        double: Callable[..., Self]
        dropout: Callable[..., Self]
        eq: Callable[..., Self]
        exp: Callable[..., Self]
        expand: Callable[..., Self]
        flatten: Callable[..., Self]
        float: Callable[..., Self]
        isfinite: Callable[..., Self]
        log: Callable[..., Self]
        log_softmax: Callable[..., Self]
        logsigmoid: Callable[..., Self]
        maximum: Callable[..., Self]
        mean: Callable[..., Self]
        minimum: Callable[..., Self]
        movedim: Callable[..., Self]
        ne: Callable[..., Self]
        rand: Callable[..., Self]
        requires_grad_: Callable[..., Self]
        reshape: Callable[..., Self]
        rsqrt: Callable[..., Self]
        softmax: Callable[..., Self]
        square: Callable[..., Self]
        squeeze: Callable[..., Self]
        sum: Callable[..., Self]
        to: Callable[..., Self]
        unsqueeze: Callable[..., Self]
        where: Callable[..., Self]
        _all_false: Callable[..., Self]
        _scalar: Callable[..., Self]
        item: Callable[[], Any]
        numel: Callable[[], Any]
        numpy: Callable[[], np.ndarray]
        _store: Callable[..., None]
        _value: Callable[[], UOp]
        _value_to_write: Callable[..., Any]

else:
    _Joined = object


# The value of "last" is replaced when the shape of a Tensor changes in place, or its hooks, and a captured step depends
# on that Tensor. All steps guard it.
guarded: dict[str, object] = {"last": object()}


def note_guarded(t: Any) -> None:
    """Note that the axes or the hooks of `t` change: captured steps that depend on `t` look at it again."""
    if getattr(t, "_is_guarded", False):
        guarded["last"] = object()


class TensorBase(_Joined):
    """Base class of the families of Tensor methods and so of Tensor: its fields, and checks of arguments.

    A view, a Tensor that shows memory of another Tensor, builds `_uop` from the node of that Tensor at each use.
    """

    __slots__ = (
        "__weakref__", "_call", "_grad", "_growth", "_hooks", "_is_frozen", "_is_guarded", "_part", "_requires_grad",
        "_uop", "_view",
    )  # fmt: skip
    _is_view = False
    _is_delayed = False
    _kind: Any  # the class that the user sees; the class of a view is a subclass of it
    _uop: UOp
    _view: Any  # the Window of a view
    _part: tuple[Any, Any, int] | None  # a one-element view without a Window yet: (base, key, element number in memory)
    _call: Any  # the Call of a delayed Tensor (`state/delayed.py`)
    _grad: Any  # a Tensor, None, or NotKept
    _requires_grad: bool
    _growth: tuple[int, int]  # of a leaf that was written: largest height of its node, number of writes that raised it
    _hooks: Any  # the Hooks of a tensor whose gradient hooks see; others have no value of it
    _is_guarded: bool  # True where a captured step depends on it; others have no value of it
    _is_frozen: bool  # True where it was a leaf before; many Tensors have no value of it

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls._is_view:
            cls._kind = cls

    @classmethod
    def _wrap(cls, uop: UOp) -> Self:
        """Return a Tensor of the node `uop`. A node without an origin gets the user's current line as its origin.

        Raises ShapeError if such a node may have more than 2**63 - 1 elements.
        """
        t: Any = _new(cls)
        if not settings.modes.GRAD:
            uop = without_graph(uop)
        t._uop = uop
        t._grad = None
        t._requires_grad = False
        uop.holder = ref(t)
        if uop.origin is None:
            check_count(uop.shape)
            uop.origin = provenance()
        return t

    @classmethod
    def _holding(cls, uop: UOp) -> Self:
        """Return a Tensor of the existing node `uop`, also where GRAD is 0."""
        t: Any = _new(cls)
        t._uop = uop
        t._grad = None
        t._requires_grad = False
        uop.holder = ref(t)
        return t

    @property
    def dtype(self) -> DType:
        """The element type, a DType.

        >>> Tensor([1.0]).dtype, Tensor([1]).dtype, Tensor([True]).dtype
        (dtypes.float32, dtypes.int64, dtypes.bool)
        """
        return self._uop.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The size of each axis: an int, or an index node (UOp) where the size is symbolic.

        >>> Tensor([[1, 2, 3]]).shape
        (1, 3)
        """
        return self._uop.shape

    @property
    def ndim(self) -> int:
        """The number of axes, an int.

        >>> Tensor([[1, 2, 3]]).ndim
        2
        """
        return len(self._uop.shape)

    @property
    def device(self) -> str | tuple[str, ...]:
        """The name of the device of the value, or a tuple of names if the tensor is on several devices.

        >>> Tensor([1.0], device="python").device
        'python'
        """
        names: str | tuple[str, ...] = device_of(self._uop) or Device.default
        return names

    # ---- arguments ---------------------------------------------------------------------------------------------------
    def _axis(self, dim: Any, rank: int | None = None) -> int:
        """Return `dim` counted from the front, as an int. `rank` None means the number of axes of this tensor.

        Raises AxisError outside [-rank, rank), AxisTypeError for a bool, ArgumentError for another non-integer.
        """
        rank = len(self._uop.shape) if rank is None else rank
        if dim.__class__ is not int:
            if isinstance(dim, bool):
                raise AxisTypeError("a bool is not an axis", expected="an int", found=dim)
            dim = as_int(dim, "axis")
        if -rank <= dim < rank:
            return dim + rank if dim < 0 else dim
        expected = f"{-rank}..{rank - 1}" if rank else "a tensor with an axis"
        raise AxisError(f"axis {dim} is outside a tensor of {rank} axes", expected=expected, found=dim)

    def _axes(self, dim: Any) -> tuple[int, ...]:
        """Return `dim` (None for all axes, an int or a list of ints) as sorted axes counted from the front.

        Raises AxisError for an axis that does not exist or is named twice. A tensor without axes allows 0 and -1.
        """
        if dim is None:
            return tuple(range(len(self._uop.shape)))
        if not isinstance(dim, tuple | list):
            return self._axes((dim,))
        if not self._uop.shape and len(dim) == 1:
            self._axis(dim[0], 1)
            return ()
        out = tuple(sorted(self._axis(d) for d in dim))
        if len(set(out)) != len(out):
            raise AxisError("an axis is named twice", expected="distinct axes", found=tuple(dim))
        return out

    def _check_float(self, what: str) -> None:
        if not self._uop.dtype.is_float:
            raise DTypeError(f"{what} needs floats", expected="a float dtype", found=self._uop.dtype.name)


def without_graph(uop: UOp) -> UOp:
    """Return the node of a result that is computed where GRAD is 0: no gradient flows through it."""
    return uop if uop.op in _WITHOUT_GRAPH or not uop.dtype.is_float else build("DETACH", uop)


def as_int(value: Any, what: str) -> int:
    """Return an int, or an object with `__index__`, as an int. Raises ArgumentError for others, such as 2.0; `what`
    names the value in the message.
    """
    try:
        return int(value.__index__())
    except (AttributeError, TypeError):
        raise ArgumentError(f"{what} must be an integer", expected="an int", found=repr(value)) from None


def as_size(value: Any, what: str = "size") -> Any:
    """Return `value` as a size: an int, or an index node for a Variable or another symbolic size.

    Raises ArgumentError for any other value, such as a float; the message calls the value `what`.
    """
    if value.__class__ is int or value.__class__ is UOp:
        return value
    uop = getattr(value, "uop", None)
    if uop.__class__ is UOp and uop.dtype is dtypes.index:
        return uop
    return as_int(value, what)


def unpacked(args: tuple) -> tuple:
    """Return the positional arguments `args` of `f(2, 3)`, `f((2, 3))` or `f([2, 3])` as the tuple (2, 3)."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], tuple | list) else args


def as_sizes(args: tuple, what: str = "size") -> tuple:
    """Return the sizes (2, 3) for the arguments `args` of `f(2, 3)` and of `f((2, 3))`.

    Raises an ArgumentError that calls the value `what` for anything but sizes.
    """
    return tuple(a if a.__class__ is int else as_size(a, what) for a in unpacked(args))


def check_sizes(shape: tuple) -> tuple:
    """Return `shape` unchanged. Raises ShapeError where a size may be negative or the elements may be more than
    2**63 - 1.
    """
    for n in shape:
        if not at_most(0, n):
            found = tuple(map(bounds_text, shape))
            raise ShapeError("a size is negative", expected="sizes of at least 0", found=found)
    check_count(shape)
    return shape


def check_count(shape: tuple) -> None:
    """Raise ShapeError where one axis of `shape`, or all axes together, may have more than 2**63 - 1 elements.

    A broadcast value needs no memory, but its elements are numbered. Intermediate values, such as the triangle of a
    scan, are not checked.
    """
    total = 1
    for n in shape:
        most = n if n.__class__ is int else size_max(n)
        total *= most
        if most > MOST_ELEMENTS:
            total = most
            break
    if total > MOST_ELEMENTS:
        found = tuple(map(bounds_text, shape))
        raise ShapeError("more elements than can be counted", expected="at most 2**63 - 1 elements", found=found)


@contextmanager
def restore_on_failure(tensors: Iterable[Any]) -> Iterator[None]:
    """Give `tensors` the nodes back that they had before the `with` block, if the block raises (also an interrupt)."""
    before = [(t, t._uop) for t in tensors]
    try:
        yield
    except BaseException:
        for t, u in before:
            t.uop = u
        raise


def as_device(device: Any, may_be_file: bool = False) -> Any:
    """Return the canonical name of `device`, or the tuple of the names of several; None is the default device.

    `device` is a name, an object with the attribute `name`, or a list or tuple of several devices.

    Raises DeviceError for an unknown device, for several that are fewer than two or not distinct, and for a file unless
    `may_be_file`.
    """
    if device is None:
        return Device.default
    if isinstance(device, tuple | list):
        names = tuple(map(as_device, device))
        if len(names) < 2 or len({*names}) < len(names):
            raise DeviceError("several devices", expected="two different devices or more", found=names)
        return names
    name = Device.canonical(device if isinstance(device, str) else getattr(device, "name", device))
    if is_on_disk(name) and not may_be_file:
        raise DeviceError("a tensor is not made in a file", expected="t.to('disk:path'), which writes it", found=name)
    return name


def node_of(self: Any, value: Any, name: str) -> UOp:
    """Return the node of `value`, an operand of `self` in the method `name`.

    Raises DTypeError if `self` or `value` is not a Tensor, DeviceError if they are on different devices.
    """
    for x in (self, value):
        if not isinstance(x, TensorBase):
            raise DTypeError(f"{name}: operand", expected="a Tensor", found=type(x).__name__)
    if value is not self:
        same_device(self._uop, value._uop)
    return value._uop


def check_tensor(what: str, value: Any) -> None:
    """Raise ArgumentError unless `value`, which messages call `what`, is a Tensor."""
    if not isinstance(value, TensorBase):
        raise ArgumentError(f"{what}: not a tensor", expected="a Tensor", found=f"{type(value).__name__} {value!r:.60}")


def operand_of(value: Any, other: Any) -> Any:
    """Return `value`, the first operand of a function such as `pow(2, x)`, as a Tensor: a number gets the dtype that it
    has in an operation with the Tensor `other`. Raises ArgumentError if neither is a Tensor.
    """
    if isinstance(value, TensorBase):
        return value
    check_tensor("one of two operands", other)
    return other._scalar(value)


def tensor_of(self: Any, array: Any) -> Any:
    """Return an operand that is an array of NumPy or of another library, such as a PyTorch tensor, as a Tensor on its
    memory.

    Raises ArgumentError for an array that its library does not export, as a PyTorch tensor that requires a gradient.
    """
    if is_array(array):
        return self._kind(array)
    try:
        return self._kind.from_dlpack(array) if hasattr(type(array), "__dlpack__") else self._kind(array)
    except MonolectError:
        raise
    except Exception as error:  # another library may raise any error
        expected = "an array that its library exports; detach() one that requires a gradient"
        raise ArgumentError("an operand of another library", expected=expected, found=str(error)[:80]) from error


def on_device(u: UOp, device: Any) -> UOp:
    """Return `u`, a node without a device, on `device`: unchanged for None and the default device, else copied by a
    LOAD; on several devices it is whole on each.
    """
    if isinstance(device, tuple):
        return replicated(u, device)
    return u if device is None or device == as_device(None) else build("LOAD", u, arg=LoadArg(device, "GLOBAL"))


def on_device_of(u: UOp, like: UOp) -> UOp:
    """Return `u`, moved to the device of `like` if `u` has no device, such as the constant gradient of a sum; where one
    of them is on several devices, placed as `like` is.
    """
    u = gradient_at(like, u)
    return u if device_of(u) is not None else on_device(u, device_of(like))


def refused(name: str, error: IRError, *uops: UOp) -> Exception:
    """Return the ShapeError or DTypeError of the method `name` for a node that the op table refused with `error`.

    It is a DTypeError if the message of `error` is about a dtype or an operand. `uops`: the operands, whose shapes the
    message shows. The caller raises the result.
    """
    kind = DTypeError if "dtype" in error.message or "operand" in error.message else ShapeError
    shapes = " and ".join(str(u.shape) for u in uops)
    if kind is ShapeError:
        return ShapeError(f"{name}: shapes {shapes} do not fit together", expected=error.expected, found=shapes)
    return DTypeError(f"{name}: {error.message}", expected=error.expected, found=error.found)


def refused_shape(name: str, expected: tuple, found: tuple) -> ShapeError:
    """Return the ShapeError of the method `name` for a value of shape `found` that does not broadcast to `expected`.

    The caller raises it.
    """
    return ShapeError(f"{name}: the value does not fit", expected=f"a shape that broadcasts to {expected}", found=found)


__all__ = [
    "Axes",
    "Data",
    "DTypeLike",
    "DeviceLike",
    "Index",
    "PerAxis",
    "Key",
    "Number",
    "Size",
    "Sizes",
    "TensorLike",
    "AnyTensor",
    "TensorBase",
    "as_device",
    "as_int",
    "as_size",
    "as_sizes",
    "check_count",
    "check_sizes",
    "check_tensor",
    "node_of",
    "on_device",
    "on_device_of",
    "operand_of",
    "refused_shape",
    "refused",
    "restore_on_failure",
    "unpacked",
    "tensor_of",
]
