"""Register the leaves of `backward`: the Tensors with `requires_grad`, and the nodes that they have or had.

What it is not: it differentiates nothing, and keeps no Tensor alive.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection
from typing import Any

from monolect.autograd.closed_forms import closed
from monolect.autograd.gradient import SPENT
from monolect.ir.uop import UOp

# Maps the nodes of tensors with `requires_grad`, current and earlier ones, to the tensor: a graph that was built before
# the tensor was computed or assigned to holds an earlier node.
marked: weakref.WeakKeyDictionary[UOp, weakref.ref[Any]] = weakref.WeakKeyDictionary()
paused: weakref.WeakKeyDictionary[UOp, weakref.ref[Any]] = weakref.WeakKeyDictionary()  # of frozen tensors
leaf_tensors: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # by id
# the dicts inside of them: to ask a weak dictionary whether it is empty is a call of Python's
leaf_refs, paused_refs = leaf_tensors.data, paused.data  # type: ignore[attr-defined]


def is_parameter(x: Any) -> bool:
    """Return whether `x` is a Tensor that requires a gradient, or did before it was frozen: requires_grad is False."""
    return bool(getattr(x, "_requires_grad", False) or getattr(x, "_is_frozen", False))


def leaf_nodes() -> dict[UOp, Any]:
    """Return the nodes that are leaves of `backward`, each with its tensor."""
    if not leaf_tensors:
        return {}
    found = {u: leaf for u, ref in node_pairs(marked) if (leaf := ref()) is not None and leaf._requires_grad}
    for t in leaves():
        u = t._uop
        if u not in found:  # the node was replaced directly, as a replay does
            marked[u] = weakref.ref(t)
            found[u] = t
    return found


def node_pairs(nodes: weakref.WeakKeyDictionary[UOp, Any]) -> list[tuple[UOp, weakref.ref[Any]]]:
    """Return (node, weak reference to its Tensor) for each entry of `nodes`.

    Iterating over a WeakKeyDictionary raises if another thread adds a leaf meanwhile. The inner dict is read with its
    own references as keys, because a look-up by node creates a reference and takes four times as long.
    """
    rows = nodes.data  # type: ignore[attr-defined]
    return [(u, ref) for r in nodes.keyrefs() if (u := r()) is not None and (ref := rows.get(r)) is not None]


def all_leaf_nodes() -> set[UOp]:
    """Return the nodes of all leaves, and of Tensors that were leaves until their requires_grad was set to False."""
    return {*leaf_nodes(), *(u for u, _ in node_pairs(paused))}


class _Watched(threading.local):
    """Hold, for each thread, the nodes that `monolect.grad` differentiates by while it runs. A value that is computed
    then keeps its graph if that leads to one of them.
    """

    nodes: tuple[UOp, ...] = ()


watched = _Watched()


def leaves() -> list[Any]:
    """Return the living Tensors whose `requires_grad` is set, the leaves of `backward`."""
    return [t for r in leaf_tensors.valuerefs() if (t := r()) is not None]


def followed() -> Collection[UOp]:
    """Return the nodes that gradients are passed to: a value that is computed keeps its graph if that leads to one."""
    leaves: Collection[UOp] = leaf_nodes() if leaf_refs else ()
    if watched.nodes or paused_refs:
        return {*leaves, *watched.nodes, *(u for u, _ in node_pairs(paused))}
    return leaves


def may_lead(u: UOp) -> bool:
    """Return whether a gradient that flows to the BUFFER `u` may flow to a leaf, or its graph was released."""
    return u in marked or u in closed or (u.origin is not None and u.origin[2] == SPENT)


__all__ = [
    "all_leaf_nodes",
    "followed",
    "leaf_nodes",
    "leaf_refs",
    "leaf_tensors",
    "leaves",
    "marked",
    "may_lead",
    "node_pairs",
    "paused",
    "paused_refs",
    "watched",
]
