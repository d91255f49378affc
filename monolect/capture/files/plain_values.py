"""Encode nested containers of arguments and results as JSON for the file of a saved step, and decode them.

What it is for: `step.save` and `jit.load`. Only plain values are allowed (numbers, strings, bytes, dtypes, containers)
and Tensors, so decoding runs no code of a user.
Invariant: `decode(encode(tree))` is equal to `tree` and has the same classes throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monolect.base.dtype import DType
from monolect.base.errors import FileFormatError, JitError
from monolect.ir.binary import DTYPES
from monolect.tensor.tensor import Tensor

_SELF = frozenset((bool, int, float, str, type(None)))  # classes that JSON represents


def encode(tree: Any, tensor: Callable[[Tensor], Any], where: str) -> Any:
    """Return `tree`, nested containers of plain values and Tensors, as values that `json` can write.

    `tensor(t)` is called for each Tensor in order, and returns the JSON value for it. Raises JitError for a value that
    a file cannot hold; `where` is the name of `tree` in its message.
    """
    kind = tree.__class__
    if kind in _SELF:
        return tree
    if kind is Tensor:
        return {"tensor": tensor(tree)}
    if kind is list or kind is tuple:
        return {kind.__name__: [encode(x, tensor, f"{where}[{k}]") for k, x in enumerate(tree)]}
    if kind is dict:
        rows = [(encode(k, tensor, f"a key of {where}"), encode(x, tensor, f"{where}[{k!r}]")) for k, x in tree.items()]
        return {"dict": rows}
    if kind is bytes:
        return {"bytes": tree.hex()}
    if kind is DType:
        return {"dtype": tree.short}
    expected = "None, bool, int, float, str, bytes, list, tuple, dict, dtype or Tensor"
    raise JitError(f"{where} of a step that is saved", expected=expected, found=f"{kind.__name__} {tree!r:.80}")


def decode(data: Any, tensor: Callable[[Any], Tensor]) -> Any:
    """Return the tree that `encode` returned as `data`. `tensor(x)` is called for each Tensor in order, and returns the
    Tensor for its JSON value `x`.

    Raises FileFormatError or ValueError for data that `encode` does not write.
    """
    if data.__class__ in _SELF:
        return data
    ((kind, value),) = data.items()
    if kind == "tensor":
        return tensor(value)
    if kind in ("list", "tuple"):
        items = [decode(x, tensor) for x in value]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {decode(k, tensor): decode(x, tensor) for k, x in value}
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "dtype" and value in DTYPES:
        return DTYPES[value]
    raise FileFormatError("a value of a saved step", expected="a plain value", found=f"{kind!r:.80}")


__all__ = ["decode", "encode"]
