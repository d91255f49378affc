"""Differentiate Python functions of tensors: `grad` and `value_and_grad`.

What it is for: derivatives without leaves and `.grad`. They nest: the second derivative is `grad` of a `grad`.
Invariant: the arguments are not changed. Each call runs the function once, on placeholders for the tensors that it is
differentiated by, so equal arguments have separate gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from monolect.autograd.closed_forms import replace
from monolect.autograd.gradient import gradients
from monolect.autograd.graph import full
from monolect.base.errors import ArgumentError, GradientError
from monolect.ir.uop import UOp, build, const, new_buffer
from monolect.runtime.replay.in_progress import changes
from monolect.tensor.base import on_device_of
from monolect.tensor.tensor import Tensor, watched

P = ParamSpec("P")
R = TypeVar("R")


def grad(f: Callable[P, Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[P, Any]:
    """Return a function with the parameters of `f` that computes the gradient of `f`, whose result is a scalar, by the
    arguments numbered `argnums`.

    The gradient for an int is one value, for a tuple of ints a tuple. An argument may be a tensor, or lists, tuples and
    dicts of tensors; its gradient has the same structure. Raises GradientError unless the result of `f` is a float
    tensor of shape () and the tensors in these arguments are floats. With `has_aux`, `f` returns (value, aux), and the
    new function returns (gradient, aux).

    >>> grad(lambda x: (x ** 3).sum())(Tensor([1.0, 2.0])).tolist()
    [3.0, 12.0]
    """
    both = value_and_grad(f, argnums, has_aux)

    @wraps(f)
    def derivative(*args: P.args, **kwargs: P.kwargs) -> Any:
        value, g = both(*args, **kwargs)
        return (g, value[1]) if has_aux else g

    return derivative


def value_and_grad(
    f: Callable[P, R], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[P, tuple[R, Any]]:
    """Return a function with the parameters of `f` that computes (value of `f`, its gradient by the arguments numbered
    `argnums`).

    Raises ArgumentError for wrong `argnums`. The new function raises GradientError unless the value is a float tensor
    of shape () and the tensors in these arguments are floats. With `has_aux`, `f` returns (value, aux), and the new
    function returns ((value, aux), gradient).

    >>> value, g = value_and_grad(lambda x: x * x)(Tensor(3.0))
    >>> value.item(), g.item()
    (9.0, 6.0)
    """
    if not callable(f):
        raise ArgumentError("grad takes a function", expected="a callable", found=repr(f)[:80])
    wanted = numbers_of(argnums)

    @wraps(f)
    def both(*args: P.args, **kwargs: P.kwargs) -> Any:
        traced = Traced(f, args, kwargs, wanted)
        value = _scalar(traced.value_and_aux()[0] if has_aux else traced.out)
        grads = traced.gradients(value.uop, const(1, value.dtype))
        result, found = traced.bound((traced.out, grads))
        return result, found[0] if isinstance(argnums, int) else tuple(found)

    return both


def numbers_of(argnums: int | Sequence[int]) -> Sequence[int]:
    """Return `argnums` as a sequence. Raises ArgumentError unless it is an int, or a tuple or list of ints."""
    wanted = argnums if isinstance(argnums, tuple | list) else (argnums,)
    if not wanted or not all(isinstance(k, int) for k in wanted):
        raise ArgumentError("grad: argnums", expected="an int, or a tuple of ints", found=repr(argnums)[:80])
    return wanted


class Traced:
    """A call of a function with placeholders for the tensors in some arguments: what derivatives of it are made of.

    `out` is its result, a graph over the placeholders. `inputs` has, for each of these arguments, the nodes of its
    placeholders in its structure.
    """

    def __init__(self, f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], wanted: Sequence[int]):
        """Call `f(*args, **kwargs)` with placeholders in the arguments numbered `wanted`.

        Raises ArgumentError for a number without an argument, GradientError for tensors in them that are not floats.
        """
        placeholders: dict[UOp, UOp] = {}
        inner: list[Any] = list(args)
        for k in wanted:
            if not -len(args) <= k < len(args):
                raise ArgumentError("argnums names no argument", expected=f"below {len(args)}", found=k)
            inner[k] = map_tensors(lambda t: _placeholder(t, placeholders), args[k])
        self.inputs: list[Any] = [map_tensors(lambda t: t.uop, inner[k]) for k in wanted]  # `f` may replace a node
        outer, watched.nodes = watched.nodes, (*watched.nodes, *placeholders)
        try:
            with changes.inside():  # an inner step runs unjitted: a replay has no derivative
                self.out: Any = f(*inner, **kwargs)
        finally:
            watched.nodes = outer
        self._values = placeholders | {u.src[0]: value for u, value in placeholders.items()}

    def value_and_aux(self) -> tuple[Any, Any]:
        """Return the two parts of `out`. Raises ArgumentError if it is no pair."""
        if not isinstance(self.out, tuple | list) or len(self.out) != 2:
            raise ArgumentError(
                "grad with has_aux", expected="a function that returns (value, aux)", found=repr(self.out)[:80]
            )
        return self.out[0], self.out[1]

    def gradients(self, root: UOp, root_grad: UOp) -> list[Any]:
        """Return the gradients of `inputs`, in their structure, over the placeholders; `root_grad` is that of `root`.

        They are zero where `root` does not depend on the input.
        """
        found = gradients(root, root_grad, list(self._values), cut=True)
        return [map_tensors(lambda u: _gradient(u, found), nodes) for nodes in self.inputs]

    def bound(self, tree: Any) -> Any:
        """Return `tree` with the values of the arguments in place of the placeholders."""
        new = iter(replace(tuple(t.uop for t in tensors_in(tree)), self._values))
        return map_tensors(lambda _: Tensor(next(new)), tree)


def _scalar(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.shape != () or not value.dtype.is_float:
        found = f"{value.dtype.name} {value.shape}" if isinstance(value, Tensor) else type(value).__name__
        raise GradientError("grad needs a scalar function", expected="a float tensor of shape ()", found=found)
    return value


def _placeholder(t: Tensor, placeholders: dict[UOp, UOp]) -> Tensor:
    """Return a tensor with the value of `t` and a unique node. The node of `t` is added to `placeholders` under this
    node.
    Raises GradientError if `t` is not a float.
    """
    if not t.dtype.is_float:
        raise GradientError("only floats have gradients", expected="a float dtype", found=t.dtype.name)
    buffer = new_buffer(t.shape, t.dtype, t.device, t.shard_axis)
    u = build("AFTER", buffer, build("STORE", buffer, t.uop))  # it can be computed if the function reads its value
    placeholders[u] = t.uop
    return Tensor(u)


def _gradient(u: UOp, found: dict[UOp, UOp | None]) -> Tensor:
    """Return the gradient by the placeholder node `u`: the sum of the gradients in `found` at this node and at its
    BUFFER. It is zero if there is none.

    A graph that was built after the placeholder was computed refers to the BUFFER.
    """
    parts = [g for g in (found[u], found[u.src[0]]) if g is not None]
    g = full(u.shape, 0, u.dtype) if not parts else parts[0] if len(parts) == 1 else build("ADD", *parts)
    return Tensor(on_device_of(g, u))


def map_tensors(f: Callable[[Any], Any], tree: Any) -> Any:
    """Return `tree`, nested containers, with `f` applied to each tensor and node (UOp) in it. Other values are kept."""
    if isinstance(tree, Tensor | UOp):
        return f(tree)
    if isinstance(tree, dict):
        return {k: map_tensors(f, v) for k, v in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(f, v) for v in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(map_tensors(f, v) for v in tree)
    return tree


def tensors_in(tree: Any) -> list[Any]:
    """Return the tensors and nodes (UOp) in the nested containers `tree`, in the order of `map_tensors`."""
    found: list[Any] = []
    map_tensors(found.append, tree)
    return found


__all__ = ["Traced", "grad", "map_tensors", "numbers_of", "tensors_in", "value_and_grad"]
