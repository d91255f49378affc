"""A capture, what calls it serves, and how a call is described.

What it is for: `capture` tells captures apart by their keys, `recording` makes them, `saved` writes and reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from monolect.capture.environment.dependencies import Reach, has_code, own_of
from monolect.capture.gradients import is_brought
from monolect.capture.returned import Leaf
from monolect.ir.uop import UOp
from monolect.runtime.buffer import to_numpy
from monolect.runtime.replay.capture import Capture, Check
from monolect.runtime.replay.record import mark
from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import fields, flatten, signature, unflatten

Kinds = tuple[tuple[UOp, Any, Any, bool], ...]  # of each argument: shape, dtype, device; does it require a gradient?
_CONTAINERS = frozenset((list, tuple, dict))


class Spec(NamedTuple):
    """A call as a capture sees it: arguments with Tensors without memory, what is around, and which of the Tensors are
    the same, if any are.
    """

    args: tuple
    kwargs: dict[str, Any]
    around: tuple = ()
    places: tuple[int, ...] = ()
    named: frozenset[str] = frozenset()  # attributes that the function reads
    steering: tuple = ()  # settings

    @property
    def key(self) -> Any:
        """What captures are told apart by."""
        return call_key(*self)

    def describe(self) -> str:
        """The arguments as text: each Tensor by its dtype, its shape, and its device where that is not the CPU."""
        found: list[Tensor] = []
        flatten((self.args, self.kwargs), found)
        devices = ["" if t.device == "cpu" else f" on {t.device}" for t in found]
        kinds = iter([_Kind(f"{t.dtype.name}{list(t.shape)}{d}") for t, d in zip(found, devices, strict=True)])
        args, kwargs = unflatten((self.args, self.kwargs), kinds)
        return f"({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})"


class _Kind(str):
    __repr__ = str.__str__


def call_key(
    args: tuple,
    kwargs: dict[str, Any],
    around: tuple,
    places: tuple[int, ...],
    named: frozenset[str],
    steering: tuple,
) -> Any:
    """The key of a `Spec`. An object counts by the attributes that the function reads."""
    part = lambda x: Reach((x,), named).key  # noqa: E731
    own = lambda x: x.__class__ if x.__class__ in _CONTAINERS else _own(x, named)  # noqa: E731
    return (signature(args, part, own), signature(kwargs, part, own), around, places, steering)


def _own(x: Any, named: frozenset[str]) -> Any:
    """What a container of another class has beside its items: attributes, and code that reads what is around it."""
    kind, found = x.__class__, own_of(x)
    key = (kind, Reach((kind,), named).key) if has_code(kind, named) else kind
    if not found or fields(x) is not None:
        return key
    return key, Reach((SimpleNamespace(**{str(k): v for k, v in found.items()}),), named).key


class Captured(NamedTuple):
    """A capture, and what it returns: the tree of results with nodes that stand for them."""

    capture: Capture
    template: Any
    kinds: Kinds  # of each argument, if it is `flat`
    flat: bool  # all arguments are Tensors, each another, and nothing else can make it outdated
    graded: list[Any]  # what gets a gradient at each call: places of arguments, and tensors from outside
    spec: Spec
    usual: dict[Reach, Callable[..., Any] | None]  # the usual call, as long as what is around is the same
    cleared: list[Any] = []  # what has no gradient after a call; as in `graded`
    used_up: list[Any] = []  # what has one then that is not kept
    found: list[tuple[Any, Any]] = []  # the gradients that the step found, as `state_of`; those that are brought last
    dropped: list[Any] = []  # what has one then to which one was added, and that is not kept
    lost: frozenset[int] = frozenset()  # what of `capture.made` would have a graph, if it were not replayed
    checks: tuple[Check, ...] = ()  # what is looked at after each call: values behind the gradients
    leaves: tuple[Leaf, ...] = ()  # of `template`; roots as in `graded`
    shared: list[tuple[Any, Leaf]] = []  # what gets a gradient that is described as a result is

    @property
    def key(self) -> Any:
        """That of the call, and the gradients that it finds: those of a view by identity."""
        seen = ((t if t.__class__ is int else id(t), g if is_brought(g) else id(g)) for t, g in self.found)
        return (*self.spec.key, tuple(seen))

    @property
    def looked(self) -> list[Any]:
        """What has a gradient that the step reads, sets or clears; as in `graded`."""
        pairs = (*self.found, *self.shared)
        return [*self.graded, *self.cleared, *self.used_up, *self.dropped, *(t for t, _ in pairs)]

    @property
    def shows_arguments(self) -> bool:
        """Whether an argument, or a view of one, is a result or a gradient."""
        return any(leaf.root.__class__ is int for leaf in (*self.leaves, *(leaf for _, leaf in self.shared)))

    @property
    def n_values(self) -> int:
        """Values of results."""
        return len(self.capture.outputs) - 2 * len(self.checks) - len(self.graded)

    @property
    def brought(self) -> list[Any]:
        """What has a gradient that each call brings; as in `graded`."""
        return [t for t, g in self.found if is_brought(g)]


def given(t: Any, tensors: list[Tensor]) -> Tensor:
    """A tensor from outside, or the argument of that place."""
    found: Tensor = tensors[t] if t.__class__ is int else t
    return found


def look(checks: Sequence[Check], results: list[Tensor]) -> None:
    """Look at what a call computed for its checks."""
    for k, check in enumerate(checks):
        check.look(*(int(to_numpy(t._uop)) for t in results[2 * k : 2 * k + 2]))


def is_flat(args: tuple, kwargs: dict[str, Any], tensors: list[Tensor]) -> bool:
    """Whether all arguments are Tensors, each another."""
    return not kwargs and len(args) == len(tensors) and all(a.__class__ is Tensor for a in args)


def marked(t: Tensor) -> Tensor:
    """What stands for an argument in a `Spec`."""
    new = Tensor._wrap(mark(t._uop))
    new._requires_grad = t._requires_grad
    return new


__all__ = ["Captured", "Spec", "call_key", "given", "is_flat", "look", "marked"]
