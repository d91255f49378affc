"""Derivatives of Python functions of tensors: `grad` and `value_and_grad`.

What it is for: derivatives without leaves and `.grad`; they nest, so second derivatives are `grad` of a `grad`.
Invariant: the arguments are not changed; the function is called once a call, with stand-ins for the tensors it is
differentiated by, so that equal arguments keep gradients of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from monolect.autograd.gradient import gradients, replace
from monolect.autograd.graph import full
from monolect.base.errors import ArgumentError, GradientError
from monolect.ir.uop import UOp, build, const, new_buffer
from monolect.runtime.replay.capture import changes
from monolect.tensor.base import placed_like
from monolect.tensor.tensor import Tensor, watched


def grad(f: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The derivative of a scalar function of tensors, by one argument or several.

    An argument may be a tensor, or lists, tuples and dicts of tensors; its gradient has the same structure. With
    `has_aux` the function returns (value, aux), and the derivative (gradient, aux).

    >>> grad(lambda x: (x ** 3).sum())(Tensor([1.0, 2.0])).tolist()
    [3.0, 12.0]
    """
    both = value_and_grad(f, argnums, has_aux)

    @wraps(f)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return derivative


def value_and_grad(
    f: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Like `grad`, but returns (value, gradient); with `has_aux` ((value, aux), gradient).

    >>> value, g = value_and_grad(lambda x: x * x)(Tensor(3.0))
    >>> value.item(), g.item()
    (9.0, 6.0)
    """
    if not callable(f):
        raise ArgumentError("grad takes a function", expected="a callable", found=repr(f)[:80])
    wanted = argnums if isinstance(argnums, tuple | list) else (argnums,)
    if not wanted or not all(isinstance(k, int) for k in wanted):
        raise ArgumentError("grad: argnums", expected="an int, or a tuple of ints", found=repr(argnums)[:80])

    @wraps(f)
    def both(*args: Any, **kwargs: Any) -> Any:
        stand_ins: dict[UOp, UOp] = {}
        inner = list(args)
        for k in wanted:
            if not -len(args) <= k < len(args):
                raise ArgumentError("argnums names no argument", expected=f"below {len(args)}", found=k)
            inner[k] = _map(lambda t: _stand_in(t, stand_ins), args[k])
        asked = [_map(lambda t: t.uop, inner[k]) for k in wanted]  # looking at a value gives it another
        outer, watched.nodes = watched.nodes, (*watched.nodes, *stand_ins)
        try:
            with changes.inside():  # a step replayed knows no derivative
                out = f(*inner, **kwargs)
        finally:
            watched.nodes = outer
        if has_aux and (not isinstance(out, tuple | list) or len(out) != 2):
            raise ArgumentError(
                "grad with has_aux", expected="a function that returns (value, aux)", found=repr(out)[:80]
            )
        value = _scalar(out[0] if has_aux else out)
        for u in list(stand_ins):
            stand_ins[u.src[0]] = stand_ins[u]
        found = gradients(value.uop, const(1, value.dtype), list(stand_ins), cut=True)
        grads = [_map(lambda u: _gradient(u, found, stand_ins), nodes) for nodes in asked]
        result = _map(lambda t: Tensor(replace((t.uop,), stand_ins)[0]), out)
        return result, grads[0] if isinstance(argnums, int) else tuple(grads)

    return both


def _scalar(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.shape != () or not value.dtype.is_float:
        found = f"{value.dtype.name} {value.shape}" if isinstance(value, Tensor) else type(value).__name__
        raise GradientError("grad needs a scalar function", expected="a float tensor of shape ()", found=found)
    return value


def _stand_in(t: Tensor, stand_ins: dict[UOp, UOp]) -> Tensor:
    """A tensor that is `t` to the graph but equal to no other node; remembers what it stands for."""
    if not t.dtype.is_float:
        raise GradientError("only floats have gradients", expected="a float dtype", found=t.dtype.name)
    buffer = new_buffer(t.shape, t.dtype, t.device)
    u = build("AFTER", buffer, build("STORE", buffer, t.uop))  # can be computed, should the function look at it
    stand_ins[u] = t.uop
    return Tensor(u)


def _gradient(u: UOp, found: dict[UOp, UOp | None], stand_ins: dict[UOp, UOp]) -> Tensor:
    """Of a stand-in, by its node and by its buffer: what was made of it after it was computed hangs there."""
    parts = [g for g in (found[u], found[u.src[0]]) if g is not None]
    g = full(u.shape, 0, u.dtype) if not parts else parts[0] if len(parts) == 1 else build("ADD", *parts)
    return Tensor(replace((placed_like(g, u),), stand_ins)[0])


def _map(f: Callable[[Any], Any], tree: Any) -> Any:
    """`tree` with `f` applied to every tensor and node in it."""
    if isinstance(tree, Tensor | UOp):
        return f(tree)
    if isinstance(tree, dict):
        return {k: _map(f, v) for k, v in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map(f, v) for v in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(_map(f, v) for v in tree)
    return tree
