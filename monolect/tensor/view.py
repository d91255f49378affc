"""Define views: Tensors that share the memory of another Tensor, their base.

Purpose: slices, reshapes, transposes and `detach` share memory with their base, as in PyTorch. A view holds its base
and a function that makes its node from the node of the base. The node is made at each use, so a view always shows the
current version of its base. A write through a view gives the root, the base that is not a view, a new version.
Scope: a view computes nothing. Values computed from a view are snapshots.
Invariant: a view whose root has no other reference may become an independent Tensor without visible effect.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from math import prod
from sys import getrefcount
from typing import Any

from monolect.autograd.graph import permute, reshape, shrink_axis
from monolect.backend.common.host.memory import ONE_REF
from monolect.base.errors import ArgumentError
from monolect.base.origin import provenance
from monolect.base.settings import settings
from monolect.ir.uop import UOp, build, new_buffer, node
from monolect.runtime.binding import variables
from monolect.runtime.buffer import VIEWS, base_of, contiguous_part, is_realized, is_steered
from monolect.runtime.realize.execute import realize
from monolect.tensor.base import AnyTensor, TensorBase, check_count, note_guarded, without_graph

Make = Callable[[UOp], UOp]  # maps the node of the base to the node of the view
Strides = tuple[int, ...]  # one for each axis, in elements
Restride = Callable[[Strides], Strides | None]  # maps the strides of the base to those of the view; None: unknown
AxisOrder = tuple[int | None, ...]  # number of an axis of the base for each axis; None: a new axis of size 1
Path = tuple[tuple[Make, Restride | None, Make | bool], ...]  # (make, restride, writes) of each Window from the root on

MEMORY = frozenset(("BUFFER", "AFTER"))
_new = object.__new__
_slot: Any = vars(TensorBase)["_uop"]
_leaf_numbers = count()


class Window:
    """Describe how a view is made from its base `parent`, the Tensor whose memory it shows; a field of each view.

    `make` maps the node of `parent` to the node of the view. `writes` maps it to the target of a write; it is None
    where elements of the view share memory. `restride` maps the strides of `parent` to those of the view; if it is
    None, they are unknown. `origin` is the user's line. For a base without memory, `node` caches the node or value of
    the view for the node `seen` of the base. For a view that is a leaf, `current` calls `note` with each node that it
    makes, and `unmarked` is the `make` from before the view became a leaf. `base_axes` is the Rearranged of the base
    when the view was made, or None if no method such as `t_` had changed the base before.
    """

    __slots__ = ("_parent", "base_axes", "make", "node", "note", "origin", "restride", "seen", "unmarked", "writes")

    def __init__(self, parent: Any, make: Make, restride: Restride | None, writes: Make | None, origin: Any) -> None:
        self._parent, self.make, self.restride, self.writes, self.origin = parent, make, restride, writes, origin
        self.base_axes = _rearranged(parent) if parent._is_view else None
        self.seen: weakref.ref[UOp] | None = None
        self.node: UOp | None = None
        self.note: Callable[[UOp], None] | None = None

    @property
    def parent(self) -> Any:
        """The base; if a method such as `t_` has changed its shape since this view was made, the Tensor that has kept
        the old shape.
        """
        above = self._parent
        while above._is_view and (now := _rearranged(above)) is not None and now is not self.base_axes:
            above = self._parent = now.before
        return above

    def current(self) -> UOp:
        """Return the node of the view for the current node of its base.

        The node is not cached where the base has memory: a reference to that memory would prevent an in-place write by
        a step.
        """
        base = self._parent
        above: UOp = (self.parent if base._is_view else base)._uop
        if self.seen is not None and self.seen() is above and self.node is not None:
            return self.node
        u = self.make(above)
        if u.origin is None:
            u.origin = self.origin or provenance()
        if self.note is not None:
            self.note(u)
        if base_of(above).op in MEMORY:
            self.seen = self.node = None
        else:
            self.seen, self.node = weakref.ref(above), u
        return u


class Rearranged(Window):
    """Describe a Tensor that changed its axes in place (`rearrange`): it shows all of its base `parent`.

    `axes` is what `_Axes` takes. `before` is the Tensor that kept the axes from before: views that were made of this
    Tensor earlier find their base there, so a Tensor need not know its views.
    """

    __slots__ = ("axes", "before")

    def __init__(self, parent: Any, axes: AxisOrder, before: Any, origin: Any) -> None:
        make = _Axes(axes)
        super().__init__(parent, make, make.strides, make, origin)
        self.axes, self.before = axes, before


class _Axes:
    """Map a node to the same elements with other axes: axis k of the result is axis `axes[k]`, or a new one of size 1
    where that is None. Axes that `axes` does not name have size 1.
    """

    __slots__ = ("axes",)

    def __init__(self, axes: AxisOrder) -> None:
        self.axes = axes

    def __call__(self, u: UOp) -> UOp:
        shape = u.shape
        kept = [a for a in self.axes if a is not None]
        order = (*kept, *(a for a in range(len(shape)) if a not in kept))
        u = u if order == tuple(range(len(shape))) else permute(u, order)
        return reshape(u, tuple(1 if a is None else shape[a] for a in self.axes))

    def strides(self, s: Strides) -> Strides:
        return tuple(1 if a is None else s[a] for a in self.axes)


def _rearranged(t: Any) -> Rearranged | None:
    """Return how the view `t` changed its axes in place, or None if it did not."""
    window = t._view
    return window if window.__class__ is Rearranged else None


def axes_in_place(t: Any) -> AxisOrder | None:
    """Return the axes that `t` has since it changed its axes in place, as numbers of axes of its base or None for a new
    axis; None if it did not change them.
    """
    now = _rearranged(t) if t._is_view else None
    return None if now is None else now.axes


def rearrange(t: Any, axes: AxisOrder) -> None:
    """Change the axes of `t` in place: axis k is the former axis `axes[k]`, or a new one of size 1 where that is None.

    The former axes that `axes` does not name have size 1. Views of `t` keep their shapes and share memory with it.
    """
    note_guarded(t)
    u, window = t._uop, t._view if t._is_view else None  # a delayed Tensor has a node, and its own class, from here on
    if window.__class__ is Rearranged and getrefcount(window) <= ONE_REF + 1:  # no view was made since: one step
        axes = tuple(None if a is None else window.axes[a] for a in axes)
        t._view = Rearranged(window.parent, axes, window.before, provenance())
        return
    before = t._kind._holding(u) if window is None else _with_window(t)
    t._view = Rearranged(before, axes, before, provenance())
    t.__class__ = view_kind(t._kind)
    if window is None:
        _slot.__delete__(t)  # a second reference to the memory


def _with_window(t: Any) -> Any:
    """Return a new Tensor that is the view that `t` is now, and no leaf."""
    new = _new(t.__class__)
    new._view, new._grad, new._requires_grad = t._view, None, False
    return new


def shown(parent: AnyTensor, make: Make, restride: Restride | None = None, writes: Make | bool = True) -> AnyTensor:
    """Return a view of `parent`: a Tensor that shares its memory. Errors of `make` for the current node propagate.

    `make` maps the node of `parent` to that of the view, at each use of the view. `restride` maps the strides of
    `parent` to those of the view; None means that they are unknown. `writes` maps the node of `parent` to the target of
    a write; True means `make`, False that the view cannot be written to.
    """
    if not settings.GRAD:
        writes, make = (make if writes is True else writes), _without_graph(make)
    u = make(parent._uop)
    if u.origin is None:
        check_count(u.shape)
        u.origin = provenance()
    return _made(parent, make, restride, make if writes is True else writes or None, u.origin)


class _Slice:
    """Map a node to slice `i` along `axis`, without that axis. A closure would be three objects."""

    __slots__ = ("axis", "i")

    def __init__(self, axis: int, i: int) -> None:
        self.axis, self.i = axis, i

    def __call__(self, u: UOp) -> UOp:
        a = self.axis
        return reshape(shrink_axis(u, a, self.i, 1), (*u.shape[:a], *u.shape[a + 1 :]))


def slices(parent: AnyTensor, axis: int) -> Iterator[AnyTensor]:
    """Yield the slices of `parent` along `axis`, without that axis, as views.

    Only the first node is made, to check it: the views of all rows of a tensor take 1 us each.
    """
    numbers = iter(range(parent.shape[axis]))
    if (first := next(numbers, None)) is None:
        return

    def restride(s: Strides) -> Strides:
        return (*s[:axis], *s[axis + 1 :])

    t: Any = shown(parent, _Slice(axis, first), restride)
    yield t
    kind, origin, has_graph = t.__class__, t._view.origin, settings.GRAD
    for i in numbers:  # `_made`, without two calls a view
        make = _Slice(axis, i)
        t = _new(kind)
        t._view = Window(parent, make if has_graph else _without_graph(make), restride, make, origin)
        t._grad = None
        t._requires_grad = False
        yield t


def row(parent: AnyTensor, i: int) -> AnyTensor:
    """Return slice `i`, not negative, of `parent` along its first axis, as a view; its node is made at its first use.
    `i` must be in range.
    """
    make = _Slice(0, i)
    return _made(parent, make, lambda s: s[1:], make, provenance())


def row_number(t: Any) -> tuple[Any, int] | None:
    """Return (base, number) of a view that `row` or `slices` made along the first axis; None for another view."""
    make = t._view.make
    return (t._view.parent, make.i) if make.__class__ is _Slice and make.axis == 0 else None


def _made(parent: AnyTensor, make: Make, restride: Restride | None, writes: Make | None, origin: Any) -> AnyTensor:
    t: Any = _new(view_kind(parent._kind))
    t._view = Window(parent, make, restride, writes, origin)
    t._grad = None
    t._requires_grad = False
    return t


def _without_graph(make: Make) -> Make:
    return lambda u: without_graph(make(u))


def names_of(kind: Any) -> dict[str, Any]:
    """Return the class attributes (name -> value) that make a subclass of the class `kind` look like `kind`: the same
    name and module, and no further slots.
    """
    return {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__}


@cache
def view_kind(kind: Any) -> type:
    """Return the class of views of Tensors of class `kind`: a subclass whose `_uop` is computed, with the same layout.

    `__getattr__` is not used: it would make each attribute access of all Tensors ten times as slow.
    """

    def become(t: Any, u: UOp) -> None:
        if hasattr(t, "_view") and _rearranged(t) is not None:  # its views look for their bases in its Window
            t._view = Rearranged(kind._wrap(u), tuple(range(len(u.shape))), _with_window(t), t._view.origin)
        elif not hasattr(t, "_view") or is_row_major(t):  # no `_view` yet: a Tensor that `type(view)(...)` makes
            _slot.__set__(t, u)
            t.__class__ = kind
            t._view = None
        else:  # a later `reshape` is a copy, as before
            ((make, restride, _),) = with_strides(t)
            t._view = Window(kind._wrap(u), make, restride, make, t._view.origin)

    names = {
        **names_of(kind),
        "_uop": property(lambda t: t._view.current(), become),
        "_kind": kind,
        "_wrap": kind._wrap,
        "_is_view": True,
    }
    return type(kind.__name__, (kind,), names)


# ---- roots -----------------------------------------------------------------------------------------------------------
def root_of(t: AnyTensor) -> AnyTensor:
    """Return the root of `t`, the Tensor whose memory it shows: the last in the chain of bases, or `t` if no view."""
    while t._is_view:
        t = t._view.parent
    return t


def target_of(t: AnyTensor) -> tuple[AnyTensor, Make]:
    """Return (root, target): the Tensor that is not a view and whose memory `t` shows, and the function that maps the
    node of the root to the node to store to in a write to `t`.

    Raises ArgumentError where several elements of `t` share memory.
    """
    makes: list[Make] = []
    while t._is_view:
        window = t._view
        if window.writes is None:
            expected = "a tensor with memory for each element, such as t.clone()"
            raise ArgumentError("a write to a view that repeats elements", expected=expected, found=f"shape {t.shape}")
        makes.append(window.writes)
        t = window.parent

    def target(u: UOp) -> UOp:
        for make in reversed(makes):
            u = make(u)
        return u

    return t, target


def computed_by(t: AnyTensor) -> AnyTensor:
    """Return the Tensor to realize so that `t` has a value: its root or `t` itself.

    The root is the Tensor that is not a view and whose memory `t` shows. It is realized if it has a pending write, if
    it is a part of memory that a Variable selects, or if the view `t` shows all of it and another Tensor may show it.
    """
    if not t._is_view:
        return t
    base = base_of(t._uop).op
    if has_known_size(root_of(t)) and (base == "AFTER" or (base == "BUFFER" and shows_steered(t))):
        return root_of(t)
    return t if is_alone(t) or not _shows_all(t) else root_of(t)


def is_computed(t: Any, u: UOp) -> bool:
    """Whether the node `u` of `t` is its computed value: it is in memory, and Variables do not select which part of
    memory it is.

    For a view, only the selection of its root counts, the Tensor whose memory it shows (`shows_steered`).
    """
    if u.op == "BUFFER":
        return u.storage is not None
    return u.op in VIEWS and is_realized(u) and not (is_steered(u) if not t._is_view else shows_steered(t))


def has_known_size(t: Any) -> bool:
    """Whether no axis of `t` has a symbolic size."""
    return all([n.__class__ is int for n in t.shape])


def shows_steered(t: Any) -> bool:
    """Whether Variables select which part of memory the root of the view `t` is, and computing `t` fixes that part.

    The root is the Tensor that is not a view and whose memory `t` shows. The part is fixed if the size of the root is
    known, or if only `t` shows the root.
    """
    return is_steered(root_of(t)._uop) and (has_known_size(root_of(t)) or is_alone(t))


def _shows_all(t: Any) -> bool:
    """Whether the view `t` is known to show each element of its root once; the root is the Tensor that is not a view
    and whose memory `t` shows.
    """
    shape = t.shape
    while t._is_view:
        if t._view.writes is None:
            return False
        t = t._view.parent
    whole = t.shape
    return all(n.__class__ is int for n in (*shape, *whole)) and prod(shape) == prod(whole)


def settle(t: Any, before: UOp, value: UOp) -> None:
    """Give the view `t` the node `value` that was computed for its node `before`.

    Nothing happens if the view has changed since, if it is another part of its base for another value of a Variable, or
    if it shows memory, which may be written to in place. A view with the only reference to its base becomes an
    independent Tensor; otherwise its node is cached.
    """
    shows_memory = base_of(before).op == "BUFFER" or root_of(t)._uop.op == "BUFFER"
    if shows_memory or t._uop is not before or (variables(before) and _follows_variable(t)):
        return
    if is_alone(t):
        t._uop = value
    else:
        t._view.node = value


def _follows_variable(t: Any) -> bool:
    """Whether the view `t` shows another part of memory for another value of a Variable."""
    root, path = path_of(t)
    u = new_buffer(root.shape, root.dtype, root.device, root.shard_axis)
    for make, *_ in path:
        u = make(u)
    return is_steered(u)


def is_alone(t: Any) -> bool:
    """Whether the view `t` holds the only references to its bases: its parent, the parent of that, and so on. It is
    True for a Tensor that is no view, and False for one that changed its axes in place: its views may look for their
    base there.
    """
    while t._is_view:
        if _rearranged(t) is not None:
            return False
        parent = t._view.parent
        if getrefcount(parent) > ONE_REF + 1:  # this name, and the window
            return False
        t = parent
        del parent
    return True


def in_memory(t: AnyTensor) -> AnyTensor:
    """Compute `t` and return a Tensor with its value that is not a view: `t` itself if it is not one or may become one,
    else a new Tensor on the memory of `t`, or on a copy if `t` is not contiguous.
    """
    u = t._value()
    if u.op != "BUFFER":
        u = contiguous_part(u) or realize([build("CONTIGUOUS", u)])[0]
    if is_alone(t) and not (t._is_view and t._view.make is _same):
        t._uop = u
        if not t._is_view:
            return t
    new = t._kind._wrap(u)
    if attributes := getattr(t, "__dict__", None):
        vars(new).update(attributes)
    new.requires_grad = t._requires_grad
    new._grad = t._grad
    return new


def as_leaf(t: Any, note: Callable[[UOp], None]) -> None:
    """Give the view `t` a node that no other Tensor has, so that gradients distinguish it from its base.

    `note` is called later, with each node that is built for the view: one for each node that its base has.
    """
    window, number = t._view, next(_leaf_numbers)
    make = window.make
    window.make = lambda u: node("DETACH", (make(u),), None, ("leaf", number))
    window.seen = window.node = None
    window.note, window.unmarked = note, make


def as_frozen(t: Any) -> None:
    """Undo `as_leaf`: the view `t` gets the node again that it had before. Nothing happens if `t` was no leaf."""
    window = t._view
    if window.note is not None:
        window.make, window.note = window.unmarked, None
        window.seen = window.node = None


def same_view_of(parent: AnyTensor, t: TensorBase) -> AnyTensor:
    """Return a view of the Tensor `parent` that selects the same elements as the view `t` does of its own parent, which
    has the same shape.
    """
    window = t._view
    return shown(parent, window.make, window.restride, window.writes or False)


def path_of(t: AnyTensor) -> tuple[AnyTensor, Path]:
    """Return (root, path): the Tensor whose memory `t` shows, and how `t` is made from it by views.

    The path has (make, restride, writes), the arguments of `shown`, for each view from the root on. `apply_path` makes
    the same view of another root.
    """
    path = []
    while t._is_view:
        window = t._view
        path.append((window.make, window.restride, window.writes or False))
        t = window.parent
    return t, tuple(reversed(path))


def with_strides(t: Any) -> Path:
    """Return the path, for `apply_path`, from a contiguous Tensor with the values of the view `t` to a view of all of
    it that reports the strides of `t`.

    These strides, and not the time of the computation, decide whether a later `reshape` is a copy.
    """
    known = strides(t)
    return ((_same, lambda _: known, True),)


def apply_path(root: AnyTensor, path: Path) -> AnyTensor:
    """Return the view of `root` that `path` describes; `root` itself if the path is empty.

    `path` has (make, restride, writes) of each view in the chain, from the root on.
    """
    for step in path:
        root = shown(root, *step)
    return root


def apply_path_or_copy(t: AnyTensor, path: Path) -> AnyTensor:
    """Return the view of `t` that `path` describes, with copies where `t` is not contiguous and a step needs one.

    `path` has (make, restride, writes) of each view in the chain, from `t` on; a step whose restride returns None
    needs a copy. A path is recorded on a contiguous placeholder, where a step such as `reshape` is a view.
    """
    if is_row_major(t):
        return apply_path(t, path)
    for make, restride, writes in path:
        old = strides(t)
        if old is not None and restride is not None and restride(old) is None:
            t = t._wrap(make(t._uop))
        else:
            t = shown(t, make, restride, writes)
    return t


def aliases(t: AnyTensor, make: Make, restride: Restride | None = None) -> AnyTensor:
    """Return a view of all elements of `t` with the same values, which may be written to.

    `make` maps the node of `t` to that of the view, and `restride` its strides; with `restride` None they are kept.
    """
    return shown(t, make, restride or _same, _same)


def _same(x: Any) -> Any:
    return x


def detached(t: AnyTensor) -> AnyTensor:
    """Return a view of all of `t` through which no gradient flows."""
    return aliases(t, lambda u: build("DETACH", u))


# ---- strides ---------------------------------------------------------------------------------------------------------
def row_major(shape: Sequence[Any]) -> Strides | None:
    """Return the strides of elements in `shape` that are contiguous in row-major order, in elements.

    The result is None if a size is symbolic.
    """
    out, stride = [], 1
    for n in reversed(shape):
        if n.__class__ is not int:
            return None
        out.append(stride)
        stride *= max(n, 1)
    return tuple(reversed(out))


def strides(t: Any) -> Strides | None:
    """Return the distance in memory between neighbours on each axis of the Tensor `t`, in elements.

    The result is None if the distances are unknown: for a symbolic size, or a view without known strides.
    """
    if not t._is_view:
        return row_major(t.shape)
    window = t._view
    above = None if window.restride is None else strides(window.parent)
    return None if above is None else window.restride(above)


def reshaped(shape: tuple, old: Strides | None, new: tuple) -> Strides | None:
    """Return the strides of a view in the shape `new` of elements in the shape `shape` with strides `old`.

    The result is None where no strides give that view, so that the caller must copy, for symbolic sizes, and if `old`
    is None (unknown).
    """
    if old is None or any(n.__class__ is not int for n in (*shape, *new)):
        return None
    if 0 in shape:
        return row_major(new)
    axes = [(n, s) for n, s in zip(shape, old, strict=True) if n != 1]
    out: list[int] = []
    left = list(reversed(new))
    while axes:  # one chunk: the last axes that are contiguous together
        n, first = axes.pop()
        stride = first
        while axes and axes[-1][1] == n * first:
            n *= axes.pop()[0]
        while left and (n > 1 or left[0] == 1):
            if n % left[0]:
                return None
            n //= left[0]
            out.append(stride)
            stride *= left.pop(0)
        if n > 1:
            return None
    out += [out[-1] if out else 1] * len(left)  # axes of size 1
    return tuple(reversed(out))


def in_rows(shape: tuple, found: Strides) -> Strides | None:
    """Return the strides `found` if with them the elements of `shape` are contiguous in row-major order.

    Otherwise, and for symbolic sizes, return None.
    """
    wanted = row_major(shape)
    if wanted is None:
        return None
    in_order = 0 in shape or all(n == 1 or a == b for n, a, b in zip(shape, found, wanted, strict=True))
    return found if in_order else None


def is_row_major(t: Any) -> bool:
    """Whether the elements of `t` are known to be contiguous in memory, in row-major order."""
    if not t._is_view:
        return True
    found = strides(t)
    return found is not None and in_rows(t.shape, found) is not None


__all__ = [
    "MEMORY",
    "Make",
    "Path",
    "Window",
    "aliases",
    "apply_path",
    "apply_path_or_copy",
    "as_leaf",
    "axes_in_place",
    "computed_by",
    "detached",
    "in_memory",
    "in_rows",
    "is_alone",
    "is_row_major",
    "names_of",
    "path_of",
    "rearrange",
    "reshaped",
    "root_of",
    "row",
    "row_number",
    "same_view_of",
    "settle",
    "shown",
    "slices",
    "strides",
    "target_of",
    "view_kind",
    "with_strides",
]
