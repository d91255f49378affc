"""Views: Tensors that show elements of another Tensor's memory.

Purpose: slices, reshapes, transposes and `detach` share memory with their base, as in PyTorch. A view holds its base
and a function that makes its node from the node of the base. The node is made when it is used, so a view always shows
the current version of its base. A write through a view gives the root, the base that is no view, a new version.
Scope: a view computes nothing. Values computed from a view are snapshots.
Invariant: a view whose root nobody else can reach may become a Tensor of its own; nobody can tell the difference.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from monolect.backend.common.host.memory import ONE_NAME
from monolect.base.errors import ArgumentError
from monolect.base.origin import provenance
from monolect.ir.uop import UOp, build, node
from monolect.runtime.buffer import base_of, contiguous_part
from monolect.runtime.realize.execute import realize
from monolect.tensor.base import TensorBase, check_count

if TYPE_CHECKING:
    from monolect.tensor.tensor import Tensor

Make = Callable[[UOp], UOp]
Strides = tuple[int, ...]
Restride = Callable[[Strides], Strides | None]
Path = tuple[tuple[Make, Restride | None, Make | bool], ...]  # of a view: make, restride, writes of each window

MEMORY = frozenset(("BUFFER", "AFTER"))
_new = object.__new__
_slot: Any = vars(TensorBase)["_uop"]
_leaf_numbers = count()


class Window:
    """How a view is made from its base.

    `make`: the node of the view from that of `parent`; `writes`: the same for the target of a write, None where
    elements of the view share memory; `restride`: its strides from those of the base. `node` is its node or its value
    at the version `seen` of a base that has no memory.
    """

    __slots__ = ("make", "node", "origin", "parent", "restride", "seen", "writes")

    def __init__(self, parent: Any, make: Make, restride: Restride | None, writes: Make | None, origin: Any) -> None:
        self.parent, self.make, self.restride, self.writes, self.origin = parent, make, restride, writes, origin
        self.seen: weakref.ref[UOp] | None = None
        self.node: UOp | None = None

    def current(self) -> UOp:
        """The node of the view at the current version of its base.

        The node is not kept where the base has memory: a reference to that memory would keep a step from writing to it
        in place.
        """
        above: UOp = self.parent._uop
        if self.seen is not None and self.seen() is above and self.node is not None:
            return self.node
        u = self.make(above)
        if u.origin is None:
            u.origin = self.origin or provenance()
        if base_of(above).op in MEMORY:
            self.seen = self.node = None
        else:
            self.seen, self.node = weakref.ref(above), u
        return u


def shown(parent: Any, make: Make, restride: Restride | None = None, writes: Make | bool = True) -> Tensor:
    """A view of `parent`. Raises what `make` raises for the current node. `writes`: as in Window; True for `make`,
    False for None.
    """
    u = make(parent._uop)
    if u.origin is None:
        check_count(u.shape)
        u.origin = provenance()
    t: Any = _new(view_kind(parent._kind))
    t._view = Window(parent, make, restride, make if writes is True else writes or None, u.origin)
    t._grad = None
    t._requires_grad = False
    return t


def names_of(kind: Any) -> dict[str, Any]:
    """What a class below that of the user has so that it looks like that, in the same layout."""
    return {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__}


@cache
def view_kind(kind: Any) -> type:
    """The class of views of Tensors of `kind`: another `_uop`, the same layout.

    Not `__getattr__`: a class that has one makes each access to any attribute of all Tensors ten times as slow.
    """

    def become(t: Any, u: UOp) -> None:
        if not hasattr(t, "_view") or is_row_major(t):  # no `_view` yet: a Tensor that `type(view)(...)` makes
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
def root_of(t: Any) -> Tensor:
    """The Tensor whose memory `t` shows: `t` itself if it is no view."""
    while t._is_view:
        t = t._view.parent
    return t


def target_of(t: Any) -> tuple[Tensor, Make]:
    """The root of `t`, and the function that makes the target of a write to `t` from the node of the root.

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


def computed_by(t: Any) -> Tensor:
    """The Tensor to compute so that `t` has a value: the root where that is written to anyway, else `t`."""
    return root_of(t) if t._is_view and base_of(t._uop).op == "AFTER" else t


def settle(t: Any, before: UOp, value: UOp) -> None:
    """Give the view `t`, of node `before`, the memory that was computed for it."""
    if base_of(before).op == "BUFFER" or t._uop is not before:
        return
    if is_alone(t):
        t._uop = value
    else:
        t._view.node = value


def is_alone(t: Any) -> bool:
    """Whether only the view `t` can reach its root."""
    while t._is_view:
        parent = t._view.parent
        if getrefcount(parent) > ONE_NAME + 1:  # this name, and the window
            return False
        t = parent
        del parent
    return True


def in_memory(t: Any) -> Tensor:
    """A Tensor that is no view and has the memory of the view `t`, or a copy where its elements are not in a row."""
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


def as_leaf(t: Any) -> None:
    """Give the view `t` a node that no other Tensor has, so that gradients tell it from its base."""
    window, number = t._view, next(_leaf_numbers)
    make = window.make
    window.make = lambda u: node("DETACH", (make(u),), None, ("leaf", number))
    window.seen = window.node = None


def again(t: Any, parent: Any) -> Tensor:
    """Another view of `parent`, of the same elements as the view `t` of its base."""
    window = t._view
    return shown(parent, window.make, window.restride, window.writes or False)


def path_of(t: Any) -> tuple[Tensor, Path]:
    """The root of `t`, and how `t` is made from it: `along` makes the same view of another root."""
    path = []
    while t._is_view:
        window = t._view
        path.append((window.make, window.restride, window.writes or False))
        t = window.parent
    return t, tuple(reversed(path))


def with_strides(t: Any) -> Path:
    """The path from a Tensor of the same values, in a row, to one that has the strides of the view `t` by its account:
    whether a `reshape` of it is a copy depends on these, and not on when it was computed.
    """
    known = strides(t)
    return ((_same, lambda _: known, True),)


def along(root: Tensor, path: Path) -> Tensor:
    """The view of `root` on that path; `root` itself where that is empty."""
    for step in path:
        root = shown(root, *step)
    return root


def given_along(t: Any, path: Path) -> Tensor:
    """What a function returns for the argument `t`, if it is on that path from what the function got for `t`, whose
    elements are in a row. Where those of `t` are not, a step such as `reshape` may be a copy.
    """
    if is_row_major(t):
        return along(t, path)
    for make, restride, writes in path:
        now = strides(t)
        if now is not None and restride is not None and restride(now) is None:
            t = t._wrap(make(t._uop))
        else:
            t = shown(t, make, restride, writes)
    found: Tensor = t
    return found


def aliases(t: Any, make: Make, restride: Restride | None = None) -> Tensor:
    """A view of all of `t`, of the same values: `make` of its node. `restride`: None for strides that are the same."""
    return shown(t, make, restride or _same, _same)


def _same(x: Any) -> Any:
    return x


def detached(t: Any) -> Tensor:
    """A view of all of `t` through which no gradient flows."""
    return aliases(t, lambda u: build("DETACH", u))


# ---- strides ---------------------------------------------------------------------------------------------------------
def row_major(shape: Sequence[Any]) -> Strides | None:
    """The strides of elements in a row, in elements; None for symbolic sizes."""
    out, stride = [], 1
    for n in reversed(shape):
        if n.__class__ is not int:
            return None
        out.append(stride)
        stride *= max(n, 1)
    return tuple(reversed(out))


def strides(t: Any) -> Strides | None:
    """The distance in memory between neighbours on each axis, in elements; None where it is not known."""
    if not t._is_view:
        return row_major(t.shape)
    window = t._view
    above = None if window.restride is None else strides(window.parent)
    return None if above is None else window.restride(above)


def reshaped(shape: tuple, old: Strides | None, new: tuple) -> Strides | None:
    """The strides of a view of the same memory in shape `new`; None where a copy is needed, as in PyTorch."""
    if old is None or any(n.__class__ is not int for n in (*shape, *new)):
        return None
    if 0 in shape:
        return row_major(new)
    axes = [(n, s) for n, s in zip(shape, old, strict=True) if n != 1]
    out: list[int] = []
    left = list(reversed(new))
    while axes:  # a chunk: axes at the end that are in a row in memory
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
    """The strides if elements of that shape are known to be in a row in memory, in their order; else None."""
    wanted = row_major(shape)
    if wanted is None:
        return None
    in_order = 0 in shape or all(n == 1 or a == b for n, a, b in zip(shape, found, wanted, strict=True))
    return found if in_order else None


def is_row_major(t: Any) -> bool:
    """Whether the elements of `t` are known to lie in a row in memory, in their order."""
    if not t._is_view:
        return True
    found = strides(t)
    return found is not None and in_rows(t.shape, found) is not None


__all__ = [
    "MEMORY",
    "Make",
    "Path",
    "Window",
    "again",
    "along",
    "aliases",
    "as_leaf",
    "computed_by",
    "detached",
    "given_along",
    "in_memory",
    "in_rows",
    "is_alone",
    "is_row_major",
    "names_of",
    "path_of",
    "reshaped",
    "root_of",
    "settle",
    "shown",
    "strides",
    "target_of",
    "view_kind",
    "with_strides",
]
