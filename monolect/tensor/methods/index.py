"""Methods that read and write parts of a tensor: basic slices, integer tensors, gather and scatter.

What it is for: `x[...]`, `x[...] = v`, and PyTorch's gather, scatter, index_select and related methods.
A bool mask as an index means the positions of its true elements; the call computes the mask, because the size of the
result depends on it. Only `x[mask] = value` with a value that broadcasts computes nothing.
Invariants: ints and slices are views. Integer tensors become one INDEX into an axis that combines all indexed axes, so
a gather is a direct load. Writes are AFTER(base, STORE or ATOMICADD into the same view).

An index from an integer tensor that is out of range reads the nearest element of the axis, and writes nothing. Lists
and NumPy arrays are always checked at the call. Tensors are checked under CHECK_BOUNDS=1, which computes the index at
the call. A captured step computes the least and the greatest index and checks them after each call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, Self

from monolect.autograd import graph
from monolect.autograd.graph import cast, e, iota, where
from monolect.autograd.operands import same_device
from monolect.autograd.sharding import on_all_of
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DTypeError, IndexRangeError, IRError, ShapeError, user_line
from monolect.base.numpy import is_array, is_scalar, np
from monolect.base.settings import settings
from monolect.ir.bounds import at_most, bounds_text, min_max
from monolect.ir.placement import device
from monolect.ir.rewrite.normal import TRUE, count, within
from monolect.ir.uop import UOp, build, idx, new_buffer, node, shape_source
from monolect.runtime.buffer import element_at, to_numpy
from monolect.runtime.realize.execute import realize
from monolect.runtime.replay.in_progress import Check, changes, checks_under_way, refuse_while_capturing
from monolect.tensor.base import Data, Key, Number, TensorBase, TensorLike, as_size, refused
from monolect.tensor.guard import guard_methods, guarded
from monolect.tensor.methods.movement import strided
from monolect.tensor.methods.selection.masks import without_masks
from monolect.tensor.view import Window, names_of, row, shown, view_kind

_new = object.__new__
_window_slot: Any = vars(TensorBase)["_view"]


class _AxisPart(NamedTuple):
    """Part of one axis that one item of a key in `x[key]` selects; the parts of all axes make the view.

    It is every `step`-th of the `size` elements from `offset` on. A negative `step` counts from the last of them
    backwards. The axis is dropped from the view if `drop`.
    """

    offset: Any
    size: Any
    step: int = 1
    drop: bool = False


@cache
def _element_kind(kind: Any) -> type:
    """Return the class of views of one element of a realised Tensor of class `kind`: `item` reads memory without a
    node.

    Any other use builds the Window, which turns the Tensor into an ordinary view. Building the Window for `item` would
    double its time.
    """

    def window(t: Any) -> Window:
        if (part := t._part) is None:  # another thread has built the Window meanwhile
            return _window_slot.__get__(t)
        parent, key, _ = part

        def of(u: UOp) -> UOp:
            return view(None, u, key)

        _window_slot.__set__(t, found := Window(parent, of, lambda _: (), of, None))
        found.base_axes = None  # those when this view was made: the base may have another shape now
        t.__class__ = view_kind(kind)
        t._part = None  # a second reference to the base
        return found

    def item(t: Any) -> Any:
        parent, _, at = t._part
        u = parent._uop
        refuse_while_capturing("reading the values of a tensor", u)
        value = element_at(u, at)
        return kind.item(t) if value is None else value

    return type(kind.__name__, (view_kind(kind),), {**names_of(kind), "item": item, "_view": property(window)})


@guard_methods
class IndexMixin(TensorBase):
    """Methods that read and write parts of a tensor. A base class of Tensor."""

    __slots__ = ()

    def __getitem__(self, key: Key) -> Self:
        u = self._uop
        if key.__class__ is int and u.op == "BUFFER" and len(u.shape) > 1 and settings.GRAD:
            n = u.shape[0]
            if n.__class__ is int and -n <= key < n and u.storage is not None and u.arg.device.__class__ is str:
                return row(self, key if key >= 0 else key + n)
        at = _element_index(u, key)
        if at is None or self._is_view or not settings.GRAD:
            return _part_of(self, key)
        t: Any = _new(_element_kind(self._kind))
        t._part = self, key, at
        t._grad = None
        t._requires_grad = False
        return t

    def __setitem__(self, key: Key, value: Data) -> None:
        v = self._value_to_write(value)
        if isinstance(key, TensorBase) and key.dtype is dtypes.bool and key.ndim == 0:
            v = self._wrap(_drop_leading_ones(v._uop, self.shape))
            if v.shape == (0, *self.shape) and not key.item():
                return  # the value has an element for each time that the mask is true
        if isinstance(key, TensorBase) and key.dtype is dtypes.bool and _broadcasts(key, v, self):
            self._store(None, self._masked(key, v))
        else:
            key = without_masks(self, key)
            part = selection(self, key, writes=True)
            self._store(part.of, _drop_leading_ones(cast(v._uop, self.dtype), part.of(self._uop).shape))

    def _masked(self, mask: Any, v: Any) -> UOp:
        """Return the node of self with the Tensor `v`, cast and broadcast, where the bool Tensor `mask` is true.

        Raises ShapeError unless the shape of `mask` is that of the leading axes of self. `v` has one element or no more
        axes than the other axes of self.
        """
        if mask.shape != self.shape[: mask.ndim]:
            raise ShapeError("the mask does not fit", expected=f"leading axes of {self.shape}", found=mask.shape)
        m = graph.reshape(mask._uop, mask.shape + (1,) * (self.ndim - mask.ndim))
        new = cast(v._uop, self.dtype) if v.ndim <= self.ndim else graph.reshape(cast(v._uop, self.dtype), ())
        return where(m, new, self._uop)

    # ---- reading -----------------------------------------------------------------------------------------------------
    def gather(self, dim: int, index: TensorBase) -> Self:
        """Return out with out[i][j][k] = self[index[i][j][k]][j][k] for dim 0, in the shape of `index`; other dims
        alike.

        `index` holds integers and has the rank of self. On axes other than `dim` it is at most as long as self. Raises
        ShapeError for another rank or a longer index, and DTypeError for an index of floats.

        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[1], [0]])).tolist()
        [[2], [3]]
        """
        return self._gather("gather", dim, index)

    def _gather(self, name: str, dim: int, index: TensorBase, wrap: bool = False) -> Self:
        flat, _ = self._flat_index(name, dim, index, nearest=True, wrap=wrap)
        return self._wrap(graph.index(graph.reshape(self._uop, (count(self.shape),)), flat))

    def take_along_dim(self, indices: TensorBase, dim: int | None = None) -> Self:
        """Return the elements of self at `indices` along axis `dim`: out[i][j] = self[indices[i][j]][j] for dim 0.

        Negative indices count from the end. Both tensors have one rank and broadcast on the other axes; the result has
        the broadcast shape of `indices`. Without `dim` both tensors are flattened.

        >>> Tensor([[3, 1, 2]]).take_along_dim(Tensor([[0, -1]]), 1).tolist()
        [[3, 2]]
        """
        if dim is None:
            return self.flatten().take_along_dim(indices.flatten(), 0)
        a = self._axis(dim)
        shape = tuple(
            n if i != a and (at_most(m, n) or (m.__class__ is int and m == 1)) else m
            for i, (m, n) in enumerate(zip(indices.shape, self.shape, strict=True))
        )
        source = self.expand(*(n if i == a else shape[i] for i, n in enumerate(self.shape)))
        return source._gather("take_along_dim", a, indices.expand(*shape), wrap=True)

    def index_select(self, dim: int, index: TensorBase) -> Self:
        """Return the slices along axis `dim` at the positions in `index`, a vector of integers.

        The axis gets the size of `index`. Raises ShapeError for an index of more than one axis.

        >>> Tensor([[1, 2], [3, 4], [5, 6]]).index_select(0, Tensor([2, 0])).tolist()
        [[5, 6], [1, 2]]
        """
        return self[(slice(None),) * self._axis(dim) + (_vector(index),)]

    def take(self, index: TensorBase) -> Self:
        """Return the elements of the flattened tensor at the positions in `index`, in the shape of `index`.

        >>> Tensor([[1, 2], [3, 4]]).take(Tensor([3, 0])).tolist()
        [4, 1]
        """
        return self.flatten()[index]

    # ---- writing -----------------------------------------------------------------------------------------------------
    def scatter(
        self,
        dim: int,
        index: TensorBase,
        src: TensorLike | None = None,
        reduce: str | None = None,
        *,
        value: TensorLike | None = None,
    ) -> Self:
        """Return a copy of self with `src`, a tensor or a number, written at the positions `index` along axis `dim`.

        `value` is another name of `src`. If positions are equal, any one of the values is written, or all are added
        with reduce="add". `index` has the rank of self, and is at most as long on axes other than `dim`; `src` is at
        least as large as `index` and has the dtype of self. Raises ShapeError or DTypeError otherwise, and
        ArgumentError for another `reduce`.

        >>> Tensor.zeros(2, 3).scatter(1, Tensor([[2], [0]]), Tensor([[5.0], [6.0]])).tolist()
        [[0.0, 0.0, 5.0], [6.0, 0.0, 0.0]]
        """
        src = value if src is None else src
        if src is None:
            self._axis(dim)
            raise ArgumentError("scatter: src", expected="a tensor or a number", found=None)
        if reduce == "add":
            return self.scatter_add(dim, index, src)
        if reduce is not None:
            raise ArgumentError("scatter: unknown reduce", expected="None or 'add'", found=repr(reduce))
        return self._scattered("STORE", self._source(src, index.shape), *self._flat_index("scatter", dim, index))

    def scatter_add(self, dim: int, index: TensorBase, src: TensorLike) -> Self:
        """Return a copy of self with `src` added at the positions `index` along axis `dim`; equal positions add up.

        `index` has the rank of self, and is at most as long on axes other than `dim`; `src` is a number, or a tensor at
        least as large as `index` in the dtype of self. Raises ShapeError or DTypeError otherwise.

        >>> Tensor([0, 0, 0]).scatter_add(0, Tensor([1, 1]), Tensor([5, 6])).tolist()
        [0, 11, 0]
        """
        return self._scattered(
            "ATOMICADD", self._source(src, index.shape), *self._flat_index("scatter_add", dim, index)
        )

    def index_add(self, dim: int, index: TensorBase, source: TensorBase, *, alpha: Number = 1) -> Self:
        """Return a copy of self with alpha times the slices of `source` added at the positions in the vector `index`
        along axis `dim`.

        `source` has the dtype and shape of self, but as many slices along `dim` as `index` has elements. Raises
        ShapeError or DTypeError otherwise.

        >>> Tensor.zeros(3, 2).index_add(0, Tensor([2, 2]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [[0.0, 0.0], [0.0, 0.0], [4.0, 6.0]]
        """
        return self._into_slices("ATOMICADD", dim, index, source if alpha == 1 else source * alpha)

    def index_copy(self, dim: int, index: TensorBase, source: TensorBase) -> Self:
        """Return a copy of self with the slices of `source` written at the positions in the vector `index` along axis
        `dim`.

        `source` has the dtype and shape of self, but as many slices along `dim` as `index` has elements. Raises
        ShapeError or DTypeError otherwise.

        >>> Tensor.zeros(3, 2).index_copy(0, Tensor([2, 0]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]]
        """
        return self._into_slices("STORE", dim, index, source)

    def index_fill(self, dim: int, index: TensorBase, value: TensorLike) -> Self:
        """Return a copy of self with `value`, a number or a tensor without axes, in the slices at the positions in the
        vector `index` along axis `dim`.

        Raises ShapeError if `value` has axes or `index` more than one.

        >>> Tensor.zeros(2, 3).index_fill(1, Tensor([0, 2]), 7.0).tolist()
        [[7.0, 0.0, 7.0], [7.0, 0.0, 7.0]]
        """
        index, a = _vector(index), self._axis(dim)
        shape = tuple(index.shape[0] if i == a else n for i, n in enumerate(self.shape))
        if not isinstance(value, TensorBase):
            return self._into_slices("STORE", dim, index, self._wrap(graph.full(shape, value, self.dtype)))
        if value.ndim:
            raise ShapeError("index_fill: the value", expected="a number or a tensor of no axes", found=value.shape)
        same_device(self._uop, value._uop)
        # A mask, so that a position named twice is filled once.
        all_false = self._wrap(graph.full(self.shape, False, dtypes.bool))
        filled = all_false._into_slices("STORE", dim, index, self._wrap(graph.full(shape, True, dtypes.bool)))
        return self._wrap(where(filled._uop, cast(value._uop, self.dtype), self._uop))

    def put(self, index: TensorBase, source: TensorBase, accumulate: bool = False) -> Self:
        """Return a copy of self with `source` at the positions `index` of the flattened tensor; `accumulate` adds
        instead of writing.

        `source` has the dtype of self and is at least as large as `index`. Raises ShapeError or DTypeError otherwise.

        >>> Tensor.zeros(2, 2).put(Tensor([0, 3]), Tensor([7.0, 8.0])).tolist()
        [[7.0, 0.0], [0.0, 8.0]]
        """
        flat = graph.reshape(position(index, count(self.shape), "put"), (count(index.shape),))
        value = self._source(source, index.shape)
        return self._scattered("ATOMICADD" if accumulate else "STORE", graph.reshape(value, flat.shape), flat)

    def _into_slices(self, op: str, dim: int, index: TensorBase, source: TensorBase) -> Self:
        """Return a copy of self with `source` stored or added at the slices that the vector `index` names along `dim`.

        `op` is STORE or ATOMICADD. Raises ShapeError or DTypeError if `source` does not fit.
        """
        a = self._axis(dim)
        base = self._whole_copy(index, source)._uop
        target = view(self, base, (slice(None),) * a + (_vector(index),), writes=True)
        return self._after_write(op, base, target, self._source(source, target.shape))

    def _scattered(self, op: str, value: UOp, flat: UOp, inside: UOp | None = None) -> Self:
        """Return a copy of self with `value` stored or added at the row-major offsets `flat`.

        `op` is STORE or ATOMICADD. Elements where the bool node `inside` is false are not written; None writes all.
        """
        same_device(self._uop, value, flat)
        self_whole, value, flat = graph.wholes(self._uop, value, flat)
        base = _copy(self_whole, self.device)
        return self._after_write(
            op, base, build("INDEX", graph.reshape(base, (count(self.shape),)), flat), value, inside
        )

    def _whole_copy(self, *operands: Any) -> Self:
        """Return a copy of self, as the target of a write at indices: whole on each device of self and of those of
        `operands` that are tensors.
        """
        nodes = [x._uop for x in operands if isinstance(x, TensorBase)]
        return self._wrap(_copy(graph.wholes(self._uop, *nodes)[0], self.device))

    def _after_write(self, op: str, base: UOp, target: UOp, value: UOp, inside: UOp | None = None) -> Self:
        """Return the node `base` as a tensor after `op`, STORE or ATOMICADD, of `value` into `target`, a view of it.

        Elements where the bool node `inside` is false are not written; None writes all. Raises DeviceError if `value`
        is on another device than self.
        """
        same_device(self._uop, value)
        gate = () if inside is None else (graph.broadcast_to(inside, value.shape),)
        return self._wrap(build("AFTER", base, build(op, target, value, *gate)))

    def _source(self, src: Any, shape: tuple) -> UOp:
        """Return `src`, a number or a tensor at least as large as `shape`, as a node of `shape`.

        Raises DTypeError for a tensor of another dtype than self, ShapeError for another rank or a smaller tensor.
        """
        if not isinstance(src, TensorBase):
            return graph.full(shape, src, self.dtype)
        if src.dtype is not self.dtype:
            raise DTypeError("the source has a different dtype", expected=self.dtype.name, found=src.dtype.name)
        if len(src.shape) != len(shape) or not all(map(at_most, shape, src.shape)):
            raise ShapeError("the source does not fit the index", expected=shape, found=src.shape)
        return graph.leading(src._uop, shape)

    def _flat_index(
        self, name: str, dim: int, index: Any, nearest: bool = False, wrap: bool = False
    ) -> tuple[UOp, UOp | None]:
        """Return the row-major offset in self of each element that `index` names along `dim`, and a bool node that is
        true for indices in range.

        The bool node is None if all indices are known to be in range. With `nearest`, an index out of range gets the
        offset of the nearest element; with `wrap`, negative indices count from the end. Raises ShapeError, which names
        the method `name`, unless `index` has the rank of self and is at most as long on axes other than `dim`.
        """
        a = self._axis(dim)
        fits = index.ndim == self.ndim and all(
            at_most(m, n) for i, (m, n) in enumerate(zip(index.shape, self.shape, strict=True)) if i != a
        )
        if not fits:
            raise ShapeError(f"{name}: the index does not fit", expected=f"at most {self.shape}", found=index.shape)
        n = self.shape[a]
        along = position(index, n, name, wrap)
        inside = None if _is_inside(along, n) else within(along, 0, n)
        along = _nearest(along, n) if nearest else along
        flat, stride = None, 1
        for axis in reversed(range(self.ndim)):
            at = along if axis == a else iota(index.shape[axis], axis=axis, rank=self.ndim)
            term = at * stride
            flat = term if flat is None else flat + term
            stride = stride * self.shape[axis]
        assert flat is not None
        return graph.broadcast_to(flat, index.shape), inside  # the strides of an empty tensor are 0, which drops axes


def _select_part(self: Any, key: Any) -> Any:
    """Return the part of `self` that `key` names: a view, or a copy if tensors select elements."""
    if isinstance(key, TensorBase) and key.dtype is dtypes.bool and key.ndim == 0:
        return _select_part(_select_part(self, None), key.reshape(1))  # the whole tensor once, or not at all
    part = selection(self, without_masks(self, key))
    if part.is_copy:
        return self._wrap(part.of(self._uop))
    return shown(self, part.of, part.strides)


_part_of = guarded(_select_part, "__getitem__")


def _broadcasts(mask: Any, v: Any, t: Any) -> bool:
    """Whether the Tensor `v` broadcasts to the part of `t` that a bool `mask` selects, however many elements it has."""
    return v.ndim <= t.ndim - mask.ndim or v.numel() == 1 or mask.ndim == 0


def _drop_leading_ones(u: UOp, shape: tuple) -> UOp:
    """Return `u` without leading axes of size 1 while it has more axes than `shape`, as in PyTorch and NumPy."""
    while len(u.shape) > len(shape) and u.shape[0].__class__ is int and u.shape[0] == 1:
        u = graph.reshape(u, u.shape[1:])
    return u


# ---- keys ------------------------------------------------------------------------------------------------------------
def _element_index(u: UOp, key: Any) -> int | None:
    """Return the row-major index of the element of a realised BUFFER that `key` names, or None unless `key` is one int
    in range for each axis.
    """
    if u.op != "BUFFER" or u.storage is None:
        return None
    shape = u.shape
    if key.__class__ is int:
        if len(shape) == 1 and (n := shape[0]).__class__ is int and -n <= key < n:
            return key if key >= 0 else key + n
        return None
    if key.__class__ is not tuple or len(key) != len(shape) or not key:
        return None
    at = 0
    for k, n in zip(key, shape, strict=True):
        if k.__class__ is not int or n.__class__ is not int or not -n <= k < n:
            return None
        at = at * n + (k + n if k < 0 else k)
    return at


class _Selection(NamedTuple):
    """The part of a tensor that the key of `x[key]` names, as functions for reads, writes and views.

    `of` maps the node of the tensor to that of the part, `strides` its strides to those of the part. `is_copy`: the
    part has memory of its own, as integer tensors select its elements.
    """

    of: Callable[[UOp], UOp]
    strides: Callable[[tuple[int, ...]], tuple[int, ...]]
    is_copy: bool


def view(tensor: Any, u: UOp, key: Any, writes: bool = False) -> UOp:
    """Return the part of `u` that `key` names, to be read or, with `writes`, stored to: a chain of movement ops and at
    most one INDEX.

    `tensor`: the Tensor of `u`, whose class and device index arrays of the key get; it may be None if `key` is an int.
    """
    on_one = u.op == "BUFFER" and u.arg.device.__class__ is str
    if key.__class__ is int and (on_one or not graph.use.found) and u.shape and u.shape[0].__class__ is int:
        n, *rest = u.shape  # fast path for one element or row
        if -n <= key < n != 1:
            first, sizes = shape_source((key % n, *[0] * len(rest))), shape_source((1, *rest))
            if on_one:  # there is nothing to simplify
                return node("RESHAPE", (node("SHRINK", (u, first, sizes)), shape_source(rest)))
            return build("RESHAPE", build("SHRINK", u, first, sizes), shape_source(rest))
    return _by_key(tensor, u.shape, key, writes).of(u)


def selection(tensor: Any, key: Any, writes: bool = False) -> _Selection:
    """Return the _Selection of `tensor` that `key` names, to be read or, with `writes`, stored to.

    Raises ArgumentError for an item that is no index, IndexRangeError for an index outside its axis or too many items.
    """
    shape = tensor._uop.shape
    if key.__class__ is int and shape and (n := shape[0]).__class__ is int and -n <= key < n != 1:
        return _Selection(lambda u: view(None, u, key), lambda strides: strides[1:], False)
    return _by_key(tensor, shape, key, writes)


def _by_key(tensor: Any, sizes: tuple, key: Any, writes: bool) -> _Selection:
    """Return the _Selection for any `key` of `tensor`, of shape `sizes`, to be read or, with `writes`, stored to.

    Raises ArgumentError for an item that is no index, IndexRangeError for an index outside its axis or too many items.
    """
    items = _expanded(key if isinstance(key, tuple) else (key,), len(sizes))
    parts: list[_AxisPart] = []
    shape: list[Any] = []
    axes: list[int | None] = []  # axis of the tensor for each axis of the view, or None
    indices: list[tuple[int, Any]] = []  # (axis of the view, integer tensor)
    for item in items:
        if item is None:
            shape.append(1)
            axes.append(None)
            continue
        n = sizes[len(parts)]
        if isinstance(item, slice):
            part = _slice(item, n)
        elif isinstance(item, TensorBase | list | tuple | range) or is_array(item):
            indices.append((len(shape), _integers(tensor, item, n)))
            part = _AxisPart(0, n)
        else:
            part = _number(item, n, len(parts))
        if not part.drop:
            shape.append(_length(part))
            axes.append(len(parts))
        parts.append(part)

    def of(u: UOp) -> UOp:
        u = graph.reshape(_sliced(u, parts), tuple(shape))
        return _gathered(u, indices, writes) if indices else u

    def strides(old: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(0 if a is None else old[a] * parts[a].step for a in axes)

    return _Selection(of, strides, bool(indices))


def _expanded(items: tuple, rank: int) -> list[Any]:
    """Return the items of a key, with full slices for `...` and for those of `rank` axes that the key leaves out.

    Raises ArgumentError for more than one `...`, IndexRangeError for more indices than axes.
    """
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise ArgumentError("an index has more than one `...`", expected="one ...", found=len(dots))
    used = sum(1 for item in items if item is not None and item is not Ellipsis)
    if used > rank:
        raise IndexRangeError("too many indices", expected=f"at most {rank}", found=used)
    at = dots[0] if dots else len(items)
    return [*items[:at], *[slice(None)] * (rank - used), *items[at + 1 :]]


def _slice(item: slice, n: Any) -> _AxisPart:
    """Return the _AxisPart that the slice `item` selects on an axis of `n` elements.

    Raises ArgumentError for step 0, for a bound that is no size, and for symbolic bounds with another step than 1.
    Raises IndexRangeError for a symbolic bound that is negative for some values only.
    """
    if all(x is None or x.__class__ is int for x in (item.start, item.stop, item.step)) and n.__class__ is int:
        if item.step == 0:
            raise ArgumentError("a slice with step 0", expected="a step other than 0", found=0)
        span = range(n)[item]
        if not len(span):
            return _AxisPart(0, 0)
        return _AxisPart(min(span[0], span[-1]), abs(span[-1] - span[0]) + 1, span.step)
    step = 1 if item.step is None else as_size(item.step, "step")
    start = 0 if item.start is None else as_size(item.start, "slice start")
    stop = n if item.stop is None else as_size(item.stop, "slice stop")
    if all(x.__class__ is int for x in (start, stop, step, n)):
        return _slice(slice(start, stop, step), n)
    if step.__class__ is not int or step != 1:
        raise ArgumentError("a slice with symbolic bounds needs step 1", expected=1, found=item.step)
    start, stop = _from_front(start, n), _from_front(stop, n)
    if n.__class__ is int:  # a bound beyond the end means the end
        start, stop = (max(0, min(x, n)) if x.__class__ is int else x for x in (start, stop))
    size = idx(stop) - start
    return _AxisPart(start, size.arg[0] if size.op == "CONST" else size)


def _from_front(i: Any, n: Any) -> Any:
    """Return the index `i` on an axis of `n` elements, counted from its front.

    Raises IndexRangeError for a symbolic index that may have either sign.
    """
    low, high = (i, i) if i.__class__ is int else min_max(i)
    if low < 0 <= high:
        raise IndexRangeError(
            "a symbolic index is negative for some values only", expected="one sign", found=bounds_text(i)
        )
    return n + i if low < 0 else i


def _number(item: Any, n: Any, axis: int) -> _AxisPart:
    """Return the _AxisPart of an int or symbolic index `item` into an axis of `n` elements.

    `axis` is its number, for messages. Raises ArgumentError for a bool, float, text or another object, IndexRangeError
    for an index outside the axis.
    """
    kind = item.dtype.kind if is_scalar(item) else ""
    if isinstance(item, bool) or kind == "b":
        raise ArgumentError("a bool is not an index", expected="an int, slice, ..., None or integer tensor", found=item)
    if isinstance(item, float | str) or kind == "f":
        raise ArgumentError("not an index", expected="an int, slice, ..., None or integer tensor", found=repr(item))
    i = as_size(item, "index")
    if i.__class__ is int and n.__class__ is int:
        if not -n <= i < n:
            raise IndexRangeError(f"index {i} is outside axis {axis}", expected=f"{-n}..{n - 1}", found=i)
        i = i + n if i < 0 else i
    else:
        i = _from_front(i, n)
    return _AxisPart(i, 1, drop=True)


def _length(part: _AxisPart) -> Any:
    """Return the number of elements that `part` selects on its axis."""
    return part.size if part.step in (1, -1) else (part.size - 1) // abs(part.step) + 1


def _sliced(u: UOp, parts: list[_AxisPart]) -> UOp:
    """Return the view of `u` that `parts` selects, one _AxisPart for each axis; dropped axes keep size 1."""
    if not parts:
        return u
    u = graph.shrink(u, tuple(p.offset for p in parts), tuple(p.size for p in parts))
    u = graph.flip(u, [i for i, p in enumerate(parts) if p.step < 0])
    for i, p in enumerate(parts):
        u = strided(u, i, abs(p.step))
    return u


def _vector(index: Any) -> Any:
    """Return the Tensor `index` as a vector; a scalar gets the shape (1,). Raises ShapeError for more than one axis."""
    if index.ndim > 1:
        raise ShapeError("the index must be a vector", expected="at most 1 axis", found=index.shape)
    return index.flatten()


# ---- integer tensors -------------------------------------------------------------------------------------------------
def _integers(tensor: Any, item: Any, n: Any) -> UOp:
    """Return `item` of a key, a list, range, array or integer tensor, as a node of positions among `n` elements.

    A bool list or array means the positions of its true elements. Raises ShapeError if it has another length than `n`,
    ArgumentError for other values than integers, IndexRangeError for a position outside the axis. `tensor` is the
    indexed Tensor, whose class and device the positions get.
    """
    if isinstance(item, TensorBase):
        return position(item, n, "index")
    values = np.asarray([np.asarray(x) for x in item] if isinstance(item, list | tuple) else item)
    if values.dtype.kind == "b":  # the array is known, so its true positions are known
        if values.ndim != 1 or len(values) != n:
            raise ShapeError("the mask does not fit its axis", expected=f"({n},)", found=values.shape)
        values = np.nonzero(values)[0]
    if values.size == 0:
        values = values.astype(np.int64)
    if values.dtype.kind not in "iu":
        raise ArgumentError("an index array must hold integers", expected="an integer dtype", found=str(values.dtype))
    _in_range(values, n, "index", -n if n.__class__ is int else 0)
    values = np.where(values < 0, values + n, values) if n.__class__ is int else values
    return cast(type(tensor)(values.astype(np.int64), device=tensor.device)._uop, dtypes.index)


def position(index: Any, n: Any, name: str, wrap: bool = True) -> UOp:
    """Return the integer tensor `index` as a node of dtype index; with `wrap`, negative numbers count from the end of
    `n` elements.

    Raises ArgumentError for bools, DTypeError for floats, and IndexRangeError, which names the method `name`, for an
    index into an empty axis, a constant out of range, and under CHECK_BOUNDS=1 any value out of range.
    """
    u = index._uop
    if u.dtype is dtypes.bool:
        raise ArgumentError(
            "selecting by a bool mask gives a size that depends on the data",
            expected="where(), masked_fill() or an integer tensor",
            found="a bool tensor",
        )
    if not u.dtype.is_int:
        raise DTypeError(f"{name} needs integers", expected="an integer dtype", found=u.dtype.name)
    if n.__class__ is int and n == 0 and 0 not in u.shape:  # there is no nearest element to read instead
        raise IndexRangeError(f"{name}: an index into an empty axis", expected="a non-empty axis", found=f"{u.shape}")
    check_range(index, n, name, -n if wrap and n.__class__ is int else 0)
    if u.dtype.max > dtypes.index.max:  # clamped, as it would wrap to a negative index
        u = where(e("CMPLT", u, dtypes.index.max), u, dtypes.index.max)
    i = cast(u, dtypes.index)
    if not wrap or min_max(i)[0] >= 0:
        return i
    return where(build("CMPLT", i, idx(0)), i + n, i)


def check_range(index: Any, n: Any, name: str, least: int = 0, counted: Any = None) -> None:
    """Raise IndexRangeError if the tensor `index` has a value outside of least..n-1 where `counted`, if given, is true.

    `name` is the method in the message. A constant is always checked. Other tensors are checked under CHECK_BOUNDS=1:
    at once, at each call of the `@function` that is being traced, or after each call of the step that is being
    captured.
    """
    if counted is not None and (settings.CHECK_BOUNDS or index._uop.op == "CONST"):
        index = counted.where(index, 0)
    u = index._uop
    if u.op == "CONST":
        _in_range(np.asarray(u.arg[0]), n, name, least)
    elif settings.CHECK_BOUNDS and _may_exceed(u, n, least):
        if not changes.captures:
            _in_range(to_numpy(realize([u])[0]), n, name, least)
        elif (checks := checks_under_way()) is not None and 0 not in u.shape:
            t = index.detach()
            checks.append((Check(least, n, name, user_line()), t.min(), t.max()))


def _may_exceed(u: UOp, n: Any, least: int) -> bool:
    """Whether the values of `u` must be computed to check that they are in least..n-1, as the bounds of `u` do not
    prove it.

    False for a symbolic `n` or shape, and for the device `null`, which computes no values.
    """
    lo, hi = min_max(u)
    constant = n.__class__ is int and all(k.__class__ is int for k in u.shape)
    return constant and (lo < least or hi >= n) and device(u) != "null"


def _in_range(values: np.ndarray, n: Any, name: str, least: int) -> None:
    """Raise IndexRangeError, which names the method `name`, if one of `values` is outside of least..n-1.

    Nothing is checked for a symbolic `n`.
    """
    if n.__class__ is int and values.size and (int(values.min()) < least or int(values.max()) >= n):
        found = next(v for v in map(int, values.flat) if not least <= v < n)
        raise IndexRangeError(f"{name}: an index is out of range", expected=f"{least}..{n - 1}", found=found)


def _is_inside(positions: UOp, n: Any) -> bool:
    """Whether all positions are known to be on an axis of `n` elements."""
    low, high = min_max(positions)
    return bool(low >= 0 and high < min_max(idx(n))[0])


def _nearest(positions: UOp, n: Any) -> UOp:
    """Return the node `positions` clamped to 0..n-1; the same node if that is known to change nothing."""
    return (
        positions if _is_inside(positions, n) else build("MAX", build("MAX", positions, idx(0)) * -1, idx(1) - n) * -1
    )


def _gathered(u: UOp, indices: list[tuple[int, UOp]], writes: bool) -> UOp:
    """Return the elements of `u` at integer positions on some axes; `indices` holds (axis, positions) pairs.

    The positions are broadcast together, and their axes replace the indexed axes. With `writes` the result is the
    target of a store, where a position outside of its axis stores nothing; in a read it is clamped. Raises ShapeError
    for positions that do not broadcast, DeviceError for positions on another device.
    """
    same_device(u, *(i for _, i in indices))
    if writes:  # each device that has the memory writes all elements
        indices = list(zip([a for a, _ in indices], on_all_of(u, *(i for _, i in indices)), strict=True))
    axes = [a for a, _ in indices]
    rest = [a for a in range(len(u.shape)) if a not in axes]
    x = graph.permute(u, (*axes, *rest))
    try:
        flat = _flattened(indices, u.shape, writes)
    except IRError as error:
        raise refused("index", error, *(i for _, i in indices)) from None
    stride = count(tuple(u.shape[a] for a in axes))
    out = graph.index(graph.reshape(x, (stride, *(u.shape[a] for a in rest))), flat)
    numbers = [a for a, i in indices if not i.shape]  # these drop their axis, as an int does
    kept = [a - sum(b < a for b in numbers) for a in axes if a not in numbers]
    if not kept or kept[0] == 0 or kept != list(range(kept[0], kept[0] + len(kept))):
        return out
    rank, first = len(flat.shape), kept[0]  # the new axes replace the indexed axes
    order = [*range(rank, rank + first), *range(rank), *range(rank + first, len(out.shape))]
    return graph.permute(out, order)


def _flattened(indices: list[tuple[int, UOp]], shape: tuple, writes: bool) -> UOp:
    """Return positions on several axes of `shape` as positions on one axis that combines them.

    `indices` holds (axis, positions) pairs. A position outside of its axis must not reach an element of the next row.
    So for a read it is clamped. For the target of a store (`writes`) it becomes -1, which is outside of the combined
    axis, and nothing is stored.
    """
    if len(indices) == 1:
        return indices[0][1]
    flat: Any = None
    stride, inside = 1, TRUE
    for a, i in reversed(indices):
        if writes and not _is_inside(i, shape[a]):
            inside = build("AND", inside, within(i, 0, shape[a]))
        term = _nearest(i, shape[a]) * stride
        flat = term if flat is None else flat + term
        stride = stride * shape[a]
    return flat if inside is TRUE else where(inside, flat, idx(-1))


def _copy(u: UOp, device: Any) -> UOp:
    """Return `u` in memory of its own, so that a write does not change the buffer that `u` may be."""
    if u.op not in ("BUFFER", "CONTIGUOUS") or isinstance(device, tuple):
        return build("CONTIGUOUS", u)
    buffer = new_buffer(u.shape, u.dtype, device)
    return build("AFTER", buffer, build("STORE", buffer, u))


__all__ = ["IndexMixin", "check_range", "position", "selection", "view"]
