"""Differentiate Tensors by leaves: `Tensor.backward`, which adds to `.grad`, and `autograd.grad`, which returns.

What it is for: it finds the leaves of a graph, makes their gradients Tensors, and releases graphs that are not kept.
What it is not: it builds no derivatives of ops (`autograd.gradient`), and runs nothing.
Invariant: a call that raises changes no gradient. Only leaves, Tensors with `requires_grad`, can be differentiated by:
other values share their nodes with equal expressions, so "the gradient by this value" has no meaning in the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from monolect.autograd.gradient import (
    SPENT,
    gradients_of_roots,
    is_without_graph,
    reach,
    refuse_without_graph,
    release_graph,
)
from monolect.autograd.graph import broadcast_to, cast, full
from monolect.autograd.repeated import leaf_gradients
from monolect.base.errors import ArgumentError, GradientError
from monolect.ir.uop import UOp, build, const
from monolect.runtime.binding import bound_to
from monolect.runtime.replay.in_progress import NotKept, changes, note_before, note_gradient
from monolect.tensor.base import TensorBase, check_tensor, on_device_of
from monolect.tensor.guard import guard_methods
from monolect.tensor.state.deferred import defer
from monolect.tensor.state.hooks import hooked
from monolect.tensor.state.leaves import followed, leaf_nodes
from monolect.tensor.view import is_alone


@guard_methods
class BackwardMixin(TensorBase):
    """Implement the methods of Tensor that belong to derivatives; a base class of Tensor."""

    __slots__ = ()

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor is a leaf, as PyTorch defines it: it requires a gradient, or no gradient of it would flow
        to a living tensor that does.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> x.is_leaf, (x * 2).is_leaf, (x * 2).detach().is_leaf, Tensor([1]).is_leaf
        (True, False, True, True)
        """
        t: Any = self
        if t._requires_grad:
            return True
        leaves = followed()
        below = reach(t._uop, leaves)
        return below.isdisjoint(leaves) and not any(u.tag == SPENT or is_without_graph(u) for u in below)

    def detach_(self) -> Self:
        """Cut this tensor from its graph: no gradient flows through it from now on, and it requires none. Values that
        were computed from it before keep their graphs. Returns this tensor.

        Raises GradientError for a view, such as `x[0]` or `x.T`: write `x = x.detach()`.

        >>> w = Tensor([3.0], requires_grad=True)
        >>> x = w * 2
        >>> _ = (x.detach_() * w).sum().backward()
        >>> w.grad.tolist()  # not 12
        [6.0]
        """
        t: Any = self
        if t._requires_grad:
            t.requires_grad = False
        elif t._is_view:
            raise GradientError("detach_ of a view", expected="x = x.detach()", found="a view of another tensor")
        elif not t.is_leaf:
            t._become(build("DETACH", t._uop))
        return self

    def backward(
        self,
        gradient: TensorBase | None = None,
        create_graph: bool = False,
        retain_graph: bool | None = None,
        inputs: TensorBase | Sequence[TensorBase] | None = None,
    ) -> Self:
        """Add the derivative of this tensor by each leaf with `requires_grad` to the leaf's `grad`, and return this
        tensor.

        `gradient` has the shape and dtype of this tensor; it may be omitted for a single element. With `create_graph`
        the gradients can be differentiated again; otherwise they are detached. Unless `retain_graph` (None: as
        `create_graph`), this tensor keeps only its value. With `inputs` only these leaves get a gradient. Raises
        GradientError for an integer tensor, for several elements without `gradient`, where no leaf is reached, or where
        the graph was released.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        t: Any = self
        g = _root_gradient(t, gradient)
        leaves = leaf_nodes()
        wanted: list[Any] | None = None if inputs is None else as_list(inputs)
        if wanted is not None and not all(w.requires_grad for w in wanted):
            raise GradientError("backward: inputs", expected="leaves with requires_grad=True", found="another tensor")
        nodes = [u for u, leaf in leaves.items() if wanted is None or any(leaf is w for w in wanted)]
        found = leaf_gradients(t._uop, g, nodes, not create_graph and not changes.captures)
        if all(d is None for d in found.values()) and (below := reach(t._uop, leaves)).isdisjoint(nodes):
            for u in below:
                refuse_without_graph(u)
            raise GradientError("backward reaches no leaf", expected="a leaf with requires_grad=True", found="none")
        new = []
        for u, d in found.items():
            if d is not None:
                d = on_device_of(d, u)
                new.append((leaves[u], t._wrap(d if create_graph else build("DETACH", d))))
        new, after = hooked(new)
        for leaf, own in new:
            _add_gradient(leaf, own, create_graph)
        for leaf, hook in after:
            hook.function(leaf)
        _after(t, leaves, create_graph if retain_graph is None else retain_graph)
        return self


def as_list(tensors: Any) -> list[Any]:
    """Return a Tensor, or a sequence of Tensors, as a list."""
    return [tensors] if isinstance(tensors, TensorBase) else [*tensors]


def _after(t: Any, leaves: dict[UOp, Any], is_kept: bool) -> None:
    """Release the graph of `t`, which was differentiated, unless it `is_kept` or `t` is one of `leaves`."""
    if not is_kept and t._uop not in leaves and is_alone(t):
        note_before(t, t._uop)
        t._uop = release_graph(t._uop)
    if t._uop.op != "BUFFER":
        defer(t)  # cheap to compute together with its gradients, expensive after their values are released


def _add_gradient(t: Any, own: Any, create_graph: bool) -> None:
    """Add `own` to the gradient of `t`: in place, except if the sum must be differentiable, as with `create_graph`.

    A NotKept gradient, one that a captured step did not keep, stays NotKept.
    """
    old = t._grad
    if changes.captures:
        old = note_gradient(t, old)
    if old is None:
        t._grad = own
        if bound_to(own._uop):
            defer(own)
    elif old.__class__ is NotKept:
        t._grad = old.plus(own)
    elif create_graph or old._requires_grad:
        t._grad = old + own
    else:
        old._store(None, cast((old + own)._uop, old.dtype))


def _root_gradient(t: Any, gradient: Any, name: str = "backward", argument: str = "gradient") -> UOp:
    """Return the node of `gradient`, the gradient of `t`; of 1 if it is None. `name`: the user's call, for errors."""
    if not t.dtype.is_float:
        raise GradientError(f"{name} of a tensor that is not float", expected="a float", found=t.dtype.name)
    if gradient is None:
        if t.numel() != 1:
            raise GradientError(f"{name} without a gradient", expected="a scalar", found=f"shape {t.shape}")
        return broadcast_to(const(1, t.dtype), t.shape)
    check_tensor(f"{name}: {argument}", gradient)
    if gradient.shape != t.shape or gradient.dtype is not t.dtype:
        expected, found = f"{t.dtype.name} {t.shape}", f"{gradient.dtype.name} {gradient.shape}"
        raise GradientError("the gradient does not match its tensor", expected=expected, found=found)
    node: UOp = gradient._uop
    return node


def grad(
    outputs: TensorBase | Sequence[TensorBase],
    inputs: TensorBase | Sequence[TensorBase],
    grad_outputs: TensorBase | Sequence[TensorBase | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of the sum of `outputs` by each of `inputs`, as a tuple; no `.grad` changes.

    `inputs` are leaves: Tensors with `requires_grad`. `grad_outputs` has a gradient for each output, of its shape and
    dtype; None for an output of one element is 1. With `create_graph` the gradients can be differentiated again;
    otherwise they are detached. Unless `retain_graph` (None: as `create_graph`), the outputs keep only their values.
    An input that no output depends on has the gradient None with `allow_unused`, zeros with `materialize_grads`. Raises
    GradientError for such an input otherwise, for an input that is no leaf, for outputs that are not floats or reach no
    leaf, and for several elements without a gradient; ArgumentError for what is no Tensor, and other numbers of
    gradients than outputs.

    >>> import monolect
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> (g,) = monolect.autograd.grad((x ** 3).sum(), x, create_graph=True)
    >>> (h,) = monolect.autograd.grad(g.sum(), x)
    >>> g.tolist(), h.tolist(), x.grad
    ([3.0, 12.0], [6.0, 12.0], None)
    """
    ends, wanted = as_list(outputs), as_list(inputs)
    if allow_unused is False and materialize_grads:
        expected = "allow_unused of None or True with materialize_grads"
        raise ArgumentError("autograd.grad: allow_unused", expected=expected, found=allow_unused)
    _check_inputs(ends, wanted)
    given = [None] * len(ends) if grad_outputs is None else as_list(grad_outputs)
    if len(given) != len(ends):
        expected, got = f"{len(ends)}, one for each output", str(len(given))
        raise ArgumentError("autograd.grad: number of grad_outputs", expected=expected, found=got)
    roots: dict[UOp, UOp] = {}
    for t, g in zip(ends, given, strict=True):
        u, d = t._uop, _root_gradient(t, g, "autograd.grad", "grad_outputs")
        roots[u] = d if u not in roots else build("ADD", roots[u], d)
    leaves = leaf_nodes()
    nodes = [u for u, leaf in leaves.items() if any(leaf is w for w in wanted)]
    below: set[UOp] = set().union(*(reach(u, leaves) for u in roots))
    if below.isdisjoint(leaves):
        for u in below:
            refuse_without_graph(u)
        raise GradientError("autograd.grad reaches no leaf", expected="a leaf with requires_grad=True", found="none")
    if len(roots) == 1:
        ((u, d),) = roots.items()
        found = leaf_gradients(u, d, nodes, not create_graph and not changes.captures)
    else:
        found = gradients_of_roots(roots, nodes, True)
    may_be_none = bool(allow_unused) or materialize_grads
    new = [_gradient_of(w, found, leaves, below, may_be_none) for w in wanted]
    out = [_as_result(w, d, create_graph, materialize_grads) for w, d in zip(wanted, new, strict=True)]
    for t in ends:
        _after(t, leaves, create_graph if retain_graph is None else retain_graph)
    return tuple(out)


def _check_inputs(outputs: list[Any], inputs: list[Any]) -> None:
    for name, tensors in (("outputs", outputs), ("inputs", inputs)):
        if not tensors:
            raise ArgumentError(f"autograd.grad: {name}", expected="at least one Tensor", found="none")
        for t in tensors:
            check_tensor(f"autograd.grad: {name}", t)
    for t in inputs:
        if not t._requires_grad:
            expected = (
                "a leaf with requires_grad=True, such as x = x.detach().requires_grad_() before x is used, or"
                " monolect.grad(f)(x), where f computes the output from x"
            )
            found = "a tensor that requires no gradient" if t.is_leaf else "a value that was computed from leaves"
            raise GradientError("autograd.grad: an input", expected=expected, found=f"{found}, of shape {t.shape}")


def _gradient_of(
    t: Any, found: dict[UOp, UOp | None], leaves: dict[UOp, Any], below: set[UOp], may_be_none: bool
) -> UOp | None:
    """Return the sum of the gradients at the nodes that the leaf `t` has or had; None if it has none and `may_be_none`,
    and zeros if it is in the graph (`below`) but no gradient flows.
    """
    mine = [u for u, leaf in leaves.items() if leaf is t]
    parts = [on_device_of(d, u) for u in mine if (d := found.get(u)) is not None]
    if not parts:
        if not below.isdisjoint(mine):
            return full(t.shape, 0, t.dtype)
        if not may_be_none:
            expected = "inputs that the outputs depend on, or allow_unused=True"
            raise GradientError("autograd.grad: an unused input", expected=expected, found=f"shape {t.shape}")
        return None
    total = parts[0]
    for d in parts[1:]:
        total = build("ADD", total, d)
    return total


def _as_result(t: Any, d: UOp | None, create_graph: bool, materialize: bool) -> Any:
    """Return the gradient `d` of `t` as a Tensor; for None, zeros if `materialize`, else None."""
    if d is None:
        if not materialize:
            return None
        d = full(t.shape, 0, t.dtype)
    d = on_device_of(d, t._uop)
    ((_, new),), _ = hooked([(t, t._wrap(d if create_graph else build("DETACH", d)))])
    if bound_to(new._uop):
        defer(new)
    return new


__all__ = ["BackwardMixin", "as_list", "grad"]
