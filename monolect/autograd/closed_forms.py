"""Keep derivatives of composed functions in closed form: the backward walk goes from a result to its inputs.

What it is not: a part of a node. Without an entry the walk differentiates the formula, which has the same meaning.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

from monolect.ir.uop import UOp, build, node, rebuild, toposort

# Float ops whose derivative is zero wherever it exists; the backward walk stops at them.
FLAT = frozenset(("TRUNC", "DETACH", "CONST", "BUFFER", "PARAM", "BINARY", "IOTA"))
ClosedForm = Callable[..., Sequence[UOp | None]]
closed: weakref.WeakKeyDictionary[UOp, tuple[tuple[UOp, ...], ClosedForm]] = weakref.WeakKeyDictionary()


def closed_form(y: UOp, inputs: tuple[UOp, ...], derivative: ClosedForm) -> UOp:
    """Register `derivative(g, y, *inputs)` as the gradients of `y` with respect to `inputs`, and return `y`.

    The backward walk (`gradient.gradients`) calls `derivative` with g, the gradient of `y`. It returns for each input a
    gradient, which is summed to the shape of the input, or None for no gradient. It must use no other nodes than its
    arguments, because `replace` may substitute other inputs. A constant `y`, or one of `inputs`, is not registered.
    """
    if y.op != "CONST" and y not in inputs:
        base, views = _rearranged(y, inputs)
        closed[base] = (inputs, through(views, derivative) if views else derivative)
    return y


def closed_alone(y: UOp, inputs: tuple[UOp, ...], derivative: ClosedForm) -> UOp:
    """Register `derivative(g, y, *inputs)` as the gradients of a new node around `y`, and return that node.

    The new node is a CONTIGUOUS_BACKWARD of `y`. Other uses of the interned node `y` are not affected; in
    `closed_form`, which registers at `y` itself, they are. The backward walk calls `derivative`.
    """
    return closed_form(node("CONTIGUOUS_BACKWARD", (y,)), inputs, derivative)


def _rearranged(y: UOp, inputs: tuple[UOp, ...]) -> tuple[UOp, tuple[UOp, ...]]:
    """Return (node, views): the node below the RESHAPEs and PERMUTEs of `y`, and these views, inner first.

    The node is none of `inputs`.

    The derivative is registered at that node, because a further view of `y` would merge with the views, and the merged
    graph would not contain `y`.
    """
    views: list[UOp] = []
    while y.op in ("RESHAPE", "PERMUTE") and y.src[0] not in inputs and y.src[0].op not in FLAT:
        views.append(y)
        y = y.src[0]
    return y, tuple(reversed(views))


def through(views: tuple[UOp, ...], derivative: ClosedForm) -> ClosedForm:
    """Return the derivative of the node below `views` (inner first), from the `derivative` of the last view.

    It applies the ops of the views to the gradient and to the value of the node, and calls `derivative` with them.
    """
    steps = [(v.op, v.arg, v.src[1:]) for v in views]  # not the nodes, which would keep their own entry alive

    def moved(u: UOp) -> UOp:
        for op, arg, sizes in steps:
            u = build(op, u, *sizes, arg=arg)
        return u

    return lambda g, y, *inputs: derivative(moved(g), moved(y), *inputs)


def replace(roots: tuple[UOp, ...], mapping: dict[UOp, UOp]) -> tuple[UOp, ...]:
    """Return `roots` with every key of `mapping` replaced by its value.

    Derivatives that `closed_form` registered for a rebuilt node are registered for the new node too.
    """
    new = dict(mapping)

    def walk(roots: tuple[UOp, ...]) -> tuple[UOp, ...]:
        for u in toposort(*roots, stop=new.__contains__):
            if u not in new:
                new[u] = rebuild(u, tuple(new[s] for s in u.src))
                if u in closed and new[u] is not u:
                    inputs, derivative = closed[u]  # inputs that are views may be merged with others below `u`
                    closed_form(new[u], walk(inputs), derivative)
        return tuple(new[r] for r in roots)

    return walk(roots)


__all__ = ["FLAT", "ClosedForm", "closed", "closed_alone", "closed_form", "replace", "through"]
