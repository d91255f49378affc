"""Invalidate Tensors that were donated to a step, which may have written its results into their memory.

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

_slot: Any = vars(TensorBase)["_uop"]  # slot of the node; in a donated Tensor it holds the line of the donation


class Donation:
    """The donated arguments of `function`: arguments whose memory a step may reuse for its results.

    `names`: their names or positions, or a single one. `is_method`: the first parameter is the instance and is not
    counted. Raises ArgumentError for an argument that the function does not have. Every Jit has one; without `donate`
    it names no arguments.
    """

    def __init__(self, function: Any, names: Any, is_method: bool = False) -> None:
        self.names = names = (names,) if isinstance(names, str | int) else tuple(names)
        code = getattr(function, "__code__", None)
        all_names = parameters(function)[is_method:]
        n_positional = 0 if code is None else code.co_argcount - is_method
        self.arguments: list[tuple[int | None, str | None]] = []
        for x in names:
            if x not in all_names if isinstance(x, str) else not 0 <= x < n_positional:
                expected = f"names of {', '.join(all_names)}, or positions below {n_positional}"
                raise ArgumentError("jit: donate", expected=expected, found=repr(x))
            position = all_names.index(x) if isinstance(x, str) else x
            self.arguments.append((position if position < n_positional else None, all_names[position]))

    def tensors(self, args: tuple, kwargs: dict[str, Any]) -> list[Any]:
        """Return the Tensors in the donated arguments of a call with the arguments `args` and `kwargs`.
        A donated argument that the call does not supply has none.
        """
        found: list[Any] = []
        for position, name in self.arguments:
            if position is not None and position < len(args):
                flatten(args[position], found)
            elif name in kwargs:
                flatten(kwargs[name], found)
        return found


def invalidate(t: Any) -> None:
    """Make every later use of the donated Tensor `t` raise JitError, and release its memory.
    A Tensor that is donated already is left as it is.
    """
    if not hasattr(type(t), "donated_at"):
        t.requires_grad = False  # a donated Tensor is not a leaf
        kind: Any = t._kind
        t.__class__ = _donated_class(kind)
        t._grad = None
        _slot.__set__(t, provenance()[:2])


@cache
def _donated_class(kind: type) -> type:
    """Return a subclass of the Tensor class `kind` with the same layout, for donated Tensors: reading the node of an
    instance raises JitError.
    """

    def uop(t: Any) -> Any:
        file, line = _slot.__get__(t)
        expected = "the result of the step it was donated to, or a step that does not take it (donate=)"
        raise JitError("a donated tensor is used", expected=expected, found=f"donated at {file}:{line}")

    def text(t: Any) -> str:
        return "Tensor(donated at {}:{})".format(*t.donated_at)

    names = {"__slots__": (), "_uop": property(uop), "donated_at": property(lambda t: _slot.__get__(t))}
    return type(kind.__name__, (kind,), {**names, "__repr__": text, "__str__": text, "_repr_html_": text})


__all__ = ["Donation", "invalidate"]
