"""Call functions of the user's with the gradient that flows to a Tensor: hooks of gradients.

What it is for: `register_hook` reads or replaces the gradient of a tensor, `retain_grad` keeps that of a value, and
`register_post_accumulate_grad_hook` acts on a leaf whose gradient is complete.
What it is not: hooks of modules, which see values (`nn/module.py`).
Invariant: a hook of a leaf is called once for each `backward` that reaches the leaf. A hook of another tensor is called
with the sum of the gradients of all its uses: the tensor gets a node of its own, so it has no uses yet.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from itertools import count
from sys import getrefcount
from typing import Any

from monolect.autograd.closed_forms import closed, closed_form
from monolect.backend.common.host.memory import ONE_REF
from monolect.base.errors import ArgumentError, GradientError, JitError
from monolect.ir.uop import UOp, build, node
from monolect.runtime.replay.in_progress import changes, note_before
from monolect.tensor.base import TensorBase, check_tensor, note_guarded
from monolect.tensor.guard import guard_methods

_numbers = count()  # make nodes with hooks distinct: equal expressions are one node otherwise
_nodes: weakref.WeakValueDictionary[int, UOp] = weakref.WeakValueDictionary()  # those that call hooks, by number


class Hooks:
    """The hooks of one Tensor, in the order of their calls. `node` is the node that calls them, None for a leaf."""

    __slots__ = ("after", "before", "node")

    def __init__(self) -> None:
        self.before: list[GradientHook] = []
        self.after: list[GradientHook] = []
        self.node: weakref.ref[UOp] | None = None

    def passed(self, g: Any) -> Any:
        """Return the gradient `g`, a Tensor, after all hooks: each may return another one of its shape and dtype, on
        its device.

        Raises GradientError for a gradient of another kind, ArgumentError for a result that is no Tensor.
        """
        for hook in tuple(self.before):
            new = hook.function(g)
            if new is None:
                continue
            check_tensor("a hook of a gradient: its result", new)
            if (new.shape, new.dtype, new.device) != (g.shape, g.dtype, g.device):
                expected, found = (f"{t.dtype.name} {t.shape} on {t.device}" for t in (g, new))
                raise GradientError("a hook returns another kind of gradient", expected=expected, found=found)
            g = new
        return g


class Hook:
    """A function that is called until `remove()`. `hooks` is the list of those to call, which has this one."""

    def __init__(self, hooks: list[Any], function: Callable[..., Any]) -> None:
        self.function, self._hooks = function, hooks

    def remove(self) -> None:
        """Call the function no more."""
        if self in self._hooks:
            self._hooks.remove(self)


class GradientHook(Hook):
    """A function that is called with a gradient of `tensor`, until `remove()`."""

    def __init__(self, hooks: list[GradientHook], function: Callable[..., Any], tensor: Any) -> None:
        super().__init__(hooks, function)
        self._tensor = weakref.ref(tensor)

    def remove(self) -> None:
        """Call the function no more. A captured step that depends on the tensor is captured again."""
        super().remove()
        if (t := self._tensor()) is not None:
            note_guarded(t)


class _Keep:
    """A hook that adds the gradient of the value `t` to `t.grad`."""

    def __init__(self, t: Any) -> None:
        self._tensor = weakref.ref(t)

    def __call__(self, g: Any) -> None:
        """Add the gradient `g`."""
        if (t := self._tensor()) is not None:
            new = g._wrap(build("DETACH", g._uop))
            t._grad = new if t._grad is None else t._grad + new


def functions_of(t: Any) -> list[Any]:
    """Return the functions that are called with gradients of `t`, for the guards of captured steps."""
    hooks = getattr(t, "_hooks", None)
    return [] if hooks is None else [h.function for h in (*hooks.before, *hooks.after)]


def refuse_hooks(arguments: list[Any]) -> None:
    """Raise JitError if a leaf in `arguments` of a captured step has hooks: the step runs on a placeholder of it, and a
    replay would not call hooks that come later.
    """
    for t in arguments:
        if t._requires_grad and functions_of(t):
            expected = "hooks of leaves that the step reaches from outside, or hooks that it registers itself"
            raise JitError("a hook of an argument's gradient", expected=expected, found=f"a leaf of shape {t.shape}")


def hooked(gradients: list[tuple[Any, Any]]) -> tuple[list[tuple[Any, Any]], list[tuple[Any, GradientHook]]]:
    """Return (gradients, calls): the (leaf, gradient) pairs of `gradients` after the hooks of their leaves, and the
    (leaf, hook) pairs to call when the gradients are added. A leaf with hooks has one gradient, the sum of its own.
    """
    if not any([hasattr(t, "_hooks") for t, _ in gradients]):
        return gradients, []
    total: dict[int, tuple[Any, Any]] = {}
    for t, g in gradients:
        total[id(t)] = (t, g) if id(t) not in total else (t, total[id(t)][1] + g)
    found = [(t, getattr(t, "_hooks", None), g) for t, g in total.values()]
    after = [(t, hook) for t, hooks, _ in found if hooks is not None for hook in tuple(hooks.after)]
    return [(t, g if hooks is None else hooks.passed(g)) for t, hooks, g in found], after


@guard_methods
class HooksMixin(TensorBase):
    """Implement the methods of Tensor that register hooks of gradients; a base class of Tensor."""

    __slots__ = ()

    def register_hook(self, hook: Callable[[Any], Any]) -> GradientHook:
        """Call `hook(gradient)` in each backward with the gradient of this tensor; a Tensor that it returns replaces
        the gradient. The result's `remove()` ends the calls.

        A value, a tensor that is no leaf, must have no use yet: register the hook where the value is made. Under `@jit`
        a hook runs while the step is captured. Raises GradientError for a tensor that no gradient flows to, and for a
        value that is computed or has uses; JitError for a leaf from outside of a captured step, and inside a traced
        function.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> h = x.register_hook(lambda g: g * 10)
        >>> _ = (x * x).sum().backward()
        >>> x.grad.tolist()
        [20.0, 40.0]
        """
        return self._add_hook("register_hook", hook, True)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], Any]) -> GradientHook:
        """Call `hook(self)` in each backward after the gradient was added to `grad` of this leaf. The result's
        `remove()` ends the calls. Raises GradientError for a tensor that is no leaf with a gradient, JitError for a
        leaf from outside of a captured step.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> h = x.register_post_accumulate_grad_hook(lambda t: t.grad.clamp_(max=3.0))
        >>> _ = (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 3.0]
        """
        if not self._requires_grad:
            expected = "a leaf with requires_grad=True"
            raise GradientError("register_post_accumulate_grad_hook", expected=expected, found="another tensor")
        return self._add_hook("register_post_accumulate_grad_hook", hook, False)

    def retain_grad(self) -> None:
        """Keep the gradient of this value, a tensor that is no leaf: backward adds it to `grad`, as for a leaf.

        A leaf keeps its gradient anyway. Errors are those of `register_hook`.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> y = x * 3
        >>> y.retain_grad()
        >>> _ = (y * y).sum().backward()
        >>> y.grad.tolist()
        [6.0, 12.0]
        """
        if self._requires_grad or self.retains_grad:
            return
        self._add_hook("retain_grad", _Keep(self), True)

    @property
    def retains_grad(self) -> bool:
        """Whether this tensor is no leaf, and keeps its gradient (`retain_grad`).

        >>> x = Tensor([1.0], requires_grad=True)
        >>> x.retains_grad
        False
        """
        return any(f.__class__ is _Keep for f in functions_of(self))

    def _add_hook(self, name: str, function: Callable[..., Any], is_before: bool) -> GradientHook:
        if not callable(function):
            raise ArgumentError(f"{name}: hook", expected="a function", found=repr(function))
        t: Any = self
        if t.is_leaf and not t._requires_grad:
            expected, found = "a tensor that a gradient flows to", "a tensor that requires no gradient"
            raise GradientError(f"{name}: the tensor", expected=expected, found=found)
        if changes.enclosing and (not changes.enclosing[-1].start or t._requires_grad):
            expected = "a value that the captured step makes, or a hook that is registered outside"
            found = "a leaf" if t._requires_grad else "a traced function"
            raise JitError(f"{name} in a captured or traced function", expected=expected, found=found)
        hooks = getattr(t, "_hooks", None)
        if not t._requires_grad and (hooks is None or hooks.node is None or hooks.node() is not t._uop):
            hooks = t._hooks = Hooks()
            _with_node(name, t, hooks)
        elif hooks is None:
            hooks = t._hooks = Hooks()
        row = hooks.before if is_before else hooks.after
        row.append(hook := GradientHook(row, function, t))
        note_guarded(t)
        return hook


def has_uses(u: UOp) -> bool:
    """Return whether another node or derivative than those of hooks may refer to `u`, the node of a Tensor.

    Equal expressions are one node, and `x * 1` has the node of `x`: other Tensors may have the node, too.
    """
    if getrefcount(u) <= ONE_REF + 2:  # this name, that of the caller, and the Tensor
        return False
    own = {id(x) for n in _nodes.values() for x in (n.src, closed[n][0])}
    known = [r for r in gc.get_referrers(u) if isinstance(r, TensorBase) or id(r) in own]
    return getrefcount(u) > ONE_REF + 1 + len(known)


def _with_node(name: str, t: Any, hooks: Hooks) -> None:
    """Give the value `t` a node of its own whose derivative calls `hooks`. Raises GradientError for a value that has
    uses, or that is computed: what was made of it before has another node.
    """
    kind = t._kind

    def derivative(g: UOp, y: UOp, u: UOp) -> tuple[UOp]:
        return (hooks.passed(kind._wrap(g))._uop,)

    def with_hooks(u: UOp) -> UOp:
        own = node("CONTIGUOUS_BACKWARD", (u,), None, ("hook", number := next(_numbers)))
        _nodes[number] = own
        return closed_form(own, (u,), derivative)

    if t._is_view:
        window = t._view
        make, window.seen, window.node = window.make, None, None
        window.make = lambda u: with_hooks(make(u))
        return
    u = t._uop
    if has_uses(u) or (u.op == "BUFFER" and u in closed):
        expected = f"a value without uses: call {name} where it is made, before it is used or computed"
        raise GradientError(f"{name}: the value", expected=expected, found="a value that is computed or has uses")
    note_before(t, u)
    t.uop = with_hooks(u)
    hooks.node = weakref.ref(t._uop)


__all__ = ["GradientHook", "Hook", "Hooks", "HooksMixin", "functions_of", "hooked", "refuse_hooks"]
