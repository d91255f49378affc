"""`@function`: a Python function of Tensors as one FUNCTION node, traced without running anything.

The Tensors among the arguments are found and deduplicated by identity, the function is run lazily, its inputs are
replaced by PARAMs, and the results come back as GETTUPLEs of FUNCTION(TUPLE(body), inputs...). The body holds no
buffers, so it is the same node for every call of one signature.

Source: the `@function` decorator of the specification.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from monolect.base.errors import ArgumentError
from monolect.ir.ops import ParamArg
from monolect.ir.place import device
from monolect.ir.uop import UOp, node, shape_source, substitute_all
from monolect.tensor.capture import flatten, unflatten
from monolect.tensor.tensor import Tensor


def function(f: Callable[..., Any]) -> Callable[..., Any]:
    """Make `f` a graph fragment: calling it adds one FUNCTION node. It may return nested lists and tuples of Tensors.

    >>> from monolect import Tensor, function
    >>> add = function(lambda a, b: a + b)
    >>> add(Tensor([1.0]), Tensor([2.0])).tolist()
    [3.0]
    """

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        tensors: list[Tensor] = []
        flatten((args, kwargs), tensors)
        inputs = list(dict.fromkeys(t._uop for t in tensors))
        result = f(*args, **kwargs)
        outputs: list[Tensor] = []
        flatten(result, outputs)
        if not outputs:
            raise ArgumentError("a @function returns Tensors", expected="at least one Tensor", found=repr(result))
        body = trace([t._uop for t in outputs], inputs)
        call_ = node("FUNCTION", (body, *inputs), getattr(f, "__name__", None))
        return unflatten(result, iter([Tensor._wrap(node("GETTUPLE", (call_,), i)) for i in range(len(outputs))]))

    return call


def trace(outputs: list[UOp], inputs: list[UOp]) -> UOp:
    """TUPLE of `outputs` with input k replaced by PARAM k."""
    params: dict[UOp, UOp] = {}
    for k, u in enumerate(inputs):
        params[u] = node("PARAM", (shape_source(u.shape),), ParamArg(k, u.dtype, device(u), "GLOBAL"))
    return node("TUPLE", substitute_all(tuple(outputs), params))
