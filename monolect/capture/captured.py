"""Describe a captured step: the calls that it serves, its results and the gradients that it sets.

What it is for: `jit` finds a capture by its key, `recording` makes captures, `saved` writes and reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from monolect.capture.environment.dependencies import Dependencies, attributes_of, has_user_code
from monolect.capture.gradients import is_supplied
from monolect.capture.returned import Leaf
from monolect.ir.uop import UOp
from monolect.runtime.buffer import to_numpy
from monolect.runtime.replay.capture import Capture
from monolect.runtime.replay.in_progress import Check
from monolect.runtime.replay.record import mark
from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import fields, flatten, signature, unflatten

Kinds = tuple[tuple[UOp, Any, Any, bool], ...]  # shape, dtype, device and leaf flag of each argument
_CONTAINERS = frozenset((list, tuple, dict))


class Spec(NamedTuple):
    """The description of the calls that a capture serves: their arguments, as Tensors without memory, and everything
    else that the key of a call depends on.
    It is for the key of a capture, and for the arguments that a saved step and messages show.
    """

    args: tuple
    kwargs: dict[str, Any]
    environment: tuple = ()  # key of the function's dependencies
    positions: tuple[int, ...] = ()  # number of the Tensor at each leaf; () if all differ
    attributes: frozenset[str] = frozenset()  # names of the attributes that the function reads
    steering: tuple = ()  # values of the settings that change a traced graph

    @property
    def key(self) -> Any:
        """Key of the calls that the capture serves, without the states of the gradients that exist before a call. Calls
        with equal keys can use the same capture.
        """
        return call_key(*self)

    def describe(self) -> str:
        """Return the arguments as text for messages: each Tensor as dtype and shape, and its device unless that is the
        CPU.
        """
        found: list[Tensor] = []
        flatten((self.args, self.kwargs), found)
        devices = ["" if t.device == "cpu" else f" on {t.device}" for t in found]
        kinds = iter([_Unquoted(f"{t.dtype.name}{list(t.shape)}{d}") for t, d in zip(found, devices, strict=True)])
        args, kwargs = unflatten((self.args, self.kwargs), kinds)
        return f"({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in kwargs.items())])})"


class _Unquoted(str):
    __repr__ = str.__str__


def call_key(
    args: tuple,
    kwargs: dict[str, Any],
    environment: tuple,
    positions: tuple[int, ...],
    attributes: frozenset[str],
    steering: tuple,
) -> Any:
    """Return the hashable key of a call: calls with equal keys can use the same capture.

    The parameters `args`, `kwargs`, `environment`, `positions`, `attributes` and `steering` are the fields of Spec. The
    key has the signature of the arguments, the environment (key of the function's dependencies), the numbers that tell
    which arguments are one Tensor (`positions`), and the settings (`steering`). An object counts by the values of those
    of its attributes whose names are in `attributes`.
    """
    part = lambda x: Dependencies((x,), attributes).key  # noqa: E731
    own = lambda x: x.__class__ if x.__class__ in _CONTAINERS else _container_key(x, attributes)  # noqa: E731
    return (signature(args, part, own), signature(kwargs, part, own), environment, positions, steering)


def _container_key(x: Any, attributes: frozenset[str]) -> Any:
    """Return the key of `x`, a container of a user's class: its class, its attributes, and the code of the class.

    `attributes`: names of the attributes that the function reads.
    """
    kind, found = x.__class__, attributes_of(x)
    key = (kind, Dependencies((kind,), attributes).key) if has_user_code(kind, attributes) else kind
    if not found or fields(x) is not None:
        return key
    return key, Dependencies((SimpleNamespace(**{str(k): v for k, v in found.items()}),), attributes).key


class Captured(NamedTuple):
    """A Capture together with the template of its results and the gradients that it reads and sets.

    In a list of Tensors, an int is the argument at this position, and a Tensor is an external Tensor. A step has one
    for each key of calls that it served; a call with an equal key replays `capture`.
    """

    capture: Capture
    template: Any
    kinds: Kinds  # of the arguments, then of the supplied gradients
    flat: bool  # the fast path may serve it: `is_flat` arguments, nothing baked in, no checks, no donation
    gradient_targets: list[Any]  # Tensors that get a gradient at each call
    spec: Spec
    fast_paths: dict[Dependencies, Callable[..., Any] | None]  # at most one, by the environment that its guards check
    cleared: list[Any] = []  # Tensors that have no gradient after a call
    consumed: list[Any] = []  # Tensors updated with their gradient, which is not stored
    # Tensors with the `gradient_state` that the step found, supplied ones last
    initial_gradients: list[tuple[Any, Any]] = []
    dropped: list[Any] = []  # Tensors whose gradient was added to one that is not stored
    # numbers in `capture.made` of results that an unjitted call would give a graph
    without_graph: frozenset[int] = frozenset()
    checks: tuple[Check, ...] = ()  # index checks after each call; their values are the last outputs
    leaves: tuple[Leaf, ...] = ()  # how to rebuild each Tensor of `template`
    aliased_gradients: list[tuple[Any, Leaf]] = []  # Tensors whose gradient is another Tensor or a view

    @property
    def key(self) -> Any:
        """Key of the capture: the key of the calls that it serves, and the states of the gradients that it expects
        before a call.

        A gradient that is a view is identified by the id of its Window.
        """
        seen = ((t if t.__class__ is int else id(t), g if is_supplied(g) else id(g)) for t, g in self.initial_gradients)
        return (*self.spec.key, tuple(seen))

    @property
    def gradient_owners(self) -> list[Any]:
        """Tensors whose gradient the step reads, sets or clears; an argument is given as its position."""
        pairs = (*self.initial_gradients, *self.aliased_gradients)
        return [*self.gradient_targets, *self.cleared, *self.consumed, *self.dropped, *(t for t, _ in pairs)]

    @property
    def aliases_arguments(self) -> bool:
        """Whether a result, or a gradient that the call sets, is an argument or a view of an argument."""
        return any(leaf.root.__class__ is int for leaf in (*self.leaves, *(leaf for _, leaf in self.aliased_gradients)))

    @property
    def n_values(self) -> int:
        """Number of the capture's outputs that are results, rather than gradients or values of index checks."""
        return len(self.capture.outputs) - 2 * len(self.checks) - len(self.gradient_targets)

    @property
    def supplied_gradients(self) -> list[Any]:
        """Tensors whose existing gradient is an input of each call; an argument is given as its position."""
        return [t for t, g in self.initial_gradients if is_supplied(g)]


def resolve(t: Any, tensors: list[Tensor]) -> Tensor:
    """Return the Tensor that `t` denotes: the argument `tensors[t]` if `t` is an int, else the external Tensor `t`
    itself.
    """
    found: Tensor = tensors[t] if t.__class__ is int else t
    return found


def run_checks(checks: Sequence[Check], results: list[Tensor]) -> None:
    """Run the index checks of a call, which raise IndexRangeError for an index out of bounds. `results` has two Tensors
    for each of `checks`: the least and the greatest index.
    """
    for k, check in enumerate(checks):
        check.look(*(int(to_numpy(t._uop)) for t in results[2 * k : 2 * k + 2]))


def is_flat(args: tuple, kwargs: dict[str, Any], tensors: list[Tensor]) -> bool:
    """Whether a call with the arguments `args` and `kwargs` has only positional arguments, each a Tensor, and no Tensor
    occurs twice.

    `tensors`: the distinct Tensors in the arguments.
    """
    return not kwargs and len(args) == len(tensors) and all(a.__class__ is Tensor for a in args)


def spec_placeholder(t: Tensor) -> Tensor:
    """Return a Tensor without memory that has the shape, dtype, device and leaf flag (requires_grad) of `t`."""
    new = Tensor._holding(mark(t._uop))
    new._requires_grad = t._requires_grad
    return new


__all__ = ["Captured", "Spec", "call_key", "resolve", "is_flat", "run_checks", "spec_placeholder"]
