"""Tensors that were given to a step, which may have written its results over them: any use raises.

Invariant: a donated Tensor holds no memory, and reading it is an error at the user's line, never a stale value.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from monolect.base.errors import ArgumentError, JitError
from monolect.base.origin import provenance
from monolect.capture.environment.bytecode import parameters
from monolect.tensor.base import TensorBase
from monolect.tensor.tree import flatten

_slot: Any = vars(TensorBase)["_uop"]  # of a donated Tensor it holds the line at which it was given away


class Donation:
    """Which arguments of `function` are donated: `names` of them, or places. Raises ArgumentError for one it lacks."""

    def __init__(self, function: Any, names: Any, is_method: bool = False) -> None:
        self.names = names = (names,) if isinstance(names, str | int) else tuple(names)
        code = getattr(function, "__code__", None)
        all_names = parameters(function)[is_method:]
        n_places = 0 if code is None else code.co_argcount - is_method
        self.arguments: list[tuple[int | None, str | None]] = []
        for x in names:
            if x not in all_names if isinstance(x, str) else not 0 <= x < n_places:
                expected = f"names of {', '.join(all_names)}, or places below {n_places}"
                raise ArgumentError("jit: donate", expected=expected, found=repr(x))
            place = all_names.index(x) if isinstance(x, str) else x
            self.arguments.append((place if place < n_places else None, all_names[place]))

    def tensors(self, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
        """The donated Tensors of a call."""
        found: list[Any] = []
        for place, name in self.arguments:
            if place is not None and place < len(args):
                flatten(args[place], found)
            elif name in kwargs:
                flatten(kwargs[name], found)
        return found


def give_up(t: Any) -> None:
    """From now on, any use of the Tensor raises JitError."""
    if not hasattr(type(t), "donated_at"):
        t.requires_grad = False  # it is no leaf any more
        kind: Any = t._kind
        t.__class__ = _donated(kind)
        t._grad = None
        _slot.__set__(t, provenance()[:2])


@cache
def _donated(kind: type) -> type:
    """A class of the same layout, whose node cannot be read."""

    def uop(t: Any) -> Any:
        file, line = _slot.__get__(t)
        expected = "the result of the step it was donated to, or a step that does not take it (donate=)"
        raise JitError("a donated tensor is used", expected=expected, found=f"donated at {file}:{line}")

    def text(t: Any) -> str:
        return "Tensor(donated at {}:{})".format(*t.donated_at)

    names = {"__slots__": (), "_uop": property(uop), "donated_at": property(lambda t: _slot.__get__(t))}
    return type(kind.__name__, (kind,), {**names, "__repr__": text, "__str__": text, "_repr_html_": text})


__all__ = ["Donation", "give_up"]
