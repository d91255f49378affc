"""`@function`: a Python function of Tensors as one node of the graph, traced once for each signature.

The Tensors that the function can reach (in its arguments, in any nesting; in what it closes over; in the globals it
names) are found and deduplicated by identity. The function runs once, lazily, on stand-ins for them; its results become
TUPLE(body) over PARAMs, and each call FUNCTION(body, inputs...) with a GETTUPLE for each result. The body holds no
buffers, so calls of one signature share it, and its derivative (`autograd.gradient`).

Tensors that the function assigns are results too: each call assigns to them. What cannot be repeated without running
the function again (random numbers, a Tensor reached through something that may change unseen) is traced at each call.

Source: the `@function` decorator of the specification.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from monolect.autograd.gradient import Backward, replace
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, GradientError, JitError
from monolect.base.settings import settings
from monolect.capture.captured import given
from monolect.capture.environment import nondeterminism as drawn
from monolect.capture.environment.dependencies import Reach
from monolect.capture.returned import Leaf, described, put_back, results
from monolect.ir.ops import ParamArg
from monolect.ir.placement import device
from monolect.ir.rewrite.calls import is_body
from monolect.ir.uop import UOp, const, new_buffer, node, shape_source, toposort
from monolect.runtime.realize.execute import running, stand_ins
from monolect.runtime.replay.capture import changes
from monolect.tensor import random as random_state
from monolect.tensor.copies import global_name
from monolect.tensor.deferred import defer, deferred
from monolect.tensor.tensor import Tensor, in_own_memory
from monolect.tensor.tree import check_results, flatten, unflatten
from monolect.tensor.view import root_of

MOST_TRACES = 64
_numbers = itertools.count()
Gradient = Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], Any]


class Named(str):
    """The name of calls with a derivative of the user's, which lives as long as a node has it: no other is equal."""

    backward: Backward


class Trace(NamedTuple):
    """One signature: the TUPLE of results, the results as the function nested them, and what it assigned."""

    body: UOp
    extra: tuple[UOp, ...]  # inputs that belong to no Tensor that was found: such a trace serves one call
    result: Any
    n_results: int
    assigned: tuple[tuple[int, bool], ...]  # for each assigned Tensor its place in `Reach.tensors`; deferred?
    leaves: tuple[Leaf, ...]  # of the results; roots are places in `Reach.tensors`, and views from outside


class Function:
    """A function of Tensors and its traces, a bounded cache of them. See `function`."""

    def __init__(self, f: Callable[..., Any], precompile: bool, gradient: Gradient | None):
        self.op = "CALL" if precompile else "FUNCTION"
        self.traces: OrderedDict[Any, Trace] = OrderedDict()
        self.named: frozenset[str] = frozenset()  # attributes that `f` reads
        functools.update_wrapper(self, f)
        self.name: str | None = getattr(f, "__name__", None)
        self.gradient = gradient  # a step that calls this depends on what it reads, too
        if gradient is not None:
            self.name = name = Named(f"{self.name or 'function'}#{next(_numbers)}")
            name.backward = _on_nodes(gradient)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method: the instance is the first argument."""
        return self if instance is None else functools.partial(self, instance)

    def __deepcopy__(self, memo: dict[int, Any]) -> Function:
        """The copied function, without traces; itself where that is the same, as a plain function is."""
        f, gradient = copy.deepcopy((self.__wrapped__, self.gradient), memo)  # type: ignore[attr-defined]
        return self if f is self.__wrapped__ else Function(f, self.op == "CALL", gradient)  # type: ignore[attr-defined]

    def __reduce__(self) -> str | tuple:
        parts = self.__wrapped__, self.op == "CALL", self.gradient  # type: ignore[attr-defined]
        return global_name(self) or (Function, parts)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given: list[Tensor] = []
        flatten((args, kwargs), given)
        views = {id(t): t for t in given if t._is_view}
        if not views:
            return self._called(args, kwargs, {})
        # Views are values of the call, not of the trace, so that one trace serves all of them.
        values = {k: _value(t) for k, t in views.items()}
        args, kwargs = unflatten((args, kwargs), iter([values.get(id(t), t) for t in given]))
        before = {k: t._uop for k, t in values.items()}
        back = self._called(args, kwargs, {id(values[k]): root_of(t) for k, t in views.items()})
        for k, t in views.items():
            if values[k]._uop is not before[k]:
                t.assign(values[k])
        return put_back(back, {id(values[k]): t for k, t in views.items()})

    def _called(self, args: tuple, kwargs: dict[str, Any], roots: Mapping[int, Tensor]) -> Any:
        """A call whose arguments are no views. `roots`: of the views that were given, by identity of their values.

        Raises JitError when the function assigns to memory that it reaches in two ways, one of them such a value: the
        other would not see it.
        """
        f = self.__wrapped__  # type: ignore[attr-defined]
        running.wait()
        with running.lock:
            found = Reach((args, kwargs, f), self.named, by_kind=True)
            self.named = found.named
            key = (found.key, settings.steering)
            try:
                t = self.traces.get(key)
            except TypeError:
                t, found.is_complete = None, False
            if t is None:
                t = trace(f, args, kwargs, found, self.gradient is not None)
                if found.is_complete and self._is_as_before(found, args, kwargs):
                    self.traces[key] = t
                    if len(self.traces) > MOST_TRACES:
                        self.traces.popitem(last=False)
        if roots and _is_shared([found.tensors[place] for place, _ in t.assigned], found.tensors, roots):
            expected, name = "arguments that share no memory, such as x.clone()", self.name or "a function"
            raise JitError("a @function assigns to memory that an argument shows, too", expected=expected, found=name)
        call = node(self.op, (t.body, *found.nodes, *t.extra), self.name)
        values = [node("GETTUPLE", (call,), k) for k in range(len(t.body.src))]
        for (place, late), u in zip(t.assigned, values[t.n_results :], strict=True):
            found.tensors[place]._become(in_own_memory(u))
            if late:
                defer(found.tensors[place])
        made = [Tensor._wrap(u) for u in values[: t.n_results]]
        return unflatten(t.result, results(t.leaves, made, functools.partial(given, tensors=found.tensors)))

    def _is_as_before(self, found: Reach, args: tuple, kwargs: dict[str, Any]) -> bool:
        """Whether the run of the function left all that it reads as it was: a trace that is used again does nothing to
        a counter or a list.
        """
        if found.holds():
            return True
        f = self.__wrapped__  # type: ignore[attr-defined]
        return bool(found.key == Reach((args, kwargs, f), self.named, by_kind=True).key)


def function(f: Callable[..., Any] | None = None, *, precompile: bool = False, gradient: Gradient | None = None) -> Any:
    """Make `f` a graph fragment: a call adds one node, and runs `f` only for a signature that is new.

    `f` takes anything and returns Tensors, in any nesting of lists, tuples and dicts. The signature is the shapes,
    dtypes and devices of the Tensors that `f` can reach, and every other value that it can reach.

    With `precompile` a call is opaque (CALL): it is scheduled and compiled on its own, once for all its calls, and
    nothing is fused across its border. With `gradient(inputs, grads)` the derivative is the user's: from the Tensors
    that `f` reached, in the order in which they were found, and the gradients of its results, it returns for each
    input a gradient or None.

    Raises JitError for a function that reads values while it is traced, ArgumentError for one that returns no Tensor.

    >>> from monolect import Tensor, function
    >>> @function
    ... def scaled(a, b):
    ...     print("traced")
    ...     return a * b
    >>> scaled(Tensor([1.0]), Tensor([2.0])).tolist(), scaled(Tensor([3.0]), Tensor([4.0])).tolist()
    traced
    ([2.0], [12.0])
    """
    if f is None:
        return functools.partial(function, precompile=precompile, gradient=gradient)
    for what, value in (("a function", f), ("gradient", gradient)):
        if value is not None and not callable(value):
            raise ArgumentError(f"@function: {what}", expected="a callable", found=repr(value)[:80])
    return Function(f, precompile, gradient)


def _value(t: Tensor) -> Tensor:
    """A Tensor that is no view and has the value of the view `t`."""
    new = t._kind._wrap(t._uop)
    if attributes := getattr(t, "__dict__", None):
        vars(new).update(attributes)
    return new


def _is_shared(assigned: Sequence[Tensor], reached: Sequence[Tensor], roots: Mapping[int, Tensor]) -> bool:
    """Whether memory of one of `assigned` is that of another of `reached`. `roots`: as in `Function._called`."""
    memory = [id(roots.get(id(t), t)) for t in reached]
    return any(memory.count(id(roots.get(id(t), t))) > 1 for t in assigned)


def trace(f: Callable[..., Any], args: Any, kwargs: Any, found: Reach, has_gradient: bool) -> Trace:
    """Run `f` on stand-ins for the Tensors found, and what it made of them as a TUPLE over PARAMs. With a gradient of
    its own all results are values of the call, those that are Tensors from outside, too.

    Sets `found.is_complete` to False when another call could make something else of equal inputs.
    """
    stands = [new_buffer(u.shape, u.dtype, device(u)) for u in found.nodes]
    stand_ins.update(stands)
    real = [(t, t._uop, t._grad) for t in found.tensors]
    before, early = random_state.drawn(), {id(t) for t in deferred()}
    outputs: list[Tensor] = []
    with changes.seen(alone=True) as seen:
        for t in found.tensors:
            t._uop = stands[found.nodes[t._uop]]
        asked: list[str] = []
        try:
            with drawn.heard(found.asks, lambda name, line: asked.append(name)):
                result = running.call(f, args, kwargs)
            flatten(result, outputs)
            check_results(result, (), "@function")
            places = {id(t): k for k, t in enumerate(found.tensors)}
            views = {id(t): t for t, _ in found.flags if t._is_view}  # from outside: the key of the trace has them
            grads = {id(g): g for *_, g in real if isinstance(g, Tensor)}  # it has not those
            known = {**grads, **views, **places}
            made, leaves = described(outputs, (), lambda t: None if has_gradient else known.get(id(t)))
            found.is_complete &= not any(id(leaf.root) in grads for leaf in leaves)
            values = [t._uop for t in made]
            result = unflatten(result, itertools.repeat(Tensor._wrap(const(0, dtypes.bool))))
            outputs.clear()  # what nobody but the function held is gone
            made.clear()
            assigned = [t for t, _ in seen.alive()]
            roots = (*values, *(t._uop for t in assigned))
            late = {id(t) for t in deferred()} - early
            differentiated = any(t._grad is not g for t, _, g in real)
        finally:
            for t, u in seen.alive():
                t._uop = u
            for t, u, g in real:
                t._uop, t._grad = u, g
    if differentiated:
        expected = "monolect.grad or value_and_grad inside, or backward() outside"
        raise GradientError("backward() inside a @function, to a Tensor from outside", expected=expected)
    if not leaves:
        raise ArgumentError("a @function returns Tensors", expected="at least one Tensor", found=repr(result)[:80])
    body, extra = _body(roots, stands)
    unknown = [t for t in assigned if id(t) not in places]
    for t in unknown:
        places[id(t)] = len(found.tensors)
        found.tensors.append(t)
    found.is_complete &= not extra and not unknown and not asked and random_state.drawn() == before
    marks = tuple((places[id(t)], id(t) in late) for t in assigned)
    return Trace(body, extra, result, len(values), marks, leaves)


def _body(roots: tuple[UOp, ...], stands: list[UOp]) -> tuple[UOp, tuple[UOp, ...]]:
    """TUPLE of the roots over PARAMs: for the stand-ins, and for every other buffer; these come as inputs, too. What
    kernels have for themselves, in bodies of their own, stays there.
    """
    known = frozenset(stands)
    extra = tuple(u for u in toposort(*roots, stop=is_body) if u.op == "BUFFER" and u not in known)
    params: dict[UOp, UOp] = {}
    for k, u in enumerate((*stands, *extra)):
        params[u] = node("PARAM", (shape_source(u.shape),), ParamArg(k, u.dtype, device(u), "GLOBAL"))
    return node("TUPLE", replace(roots, params)), extra


def _on_nodes(gradient: Gradient) -> Backward:
    """A gradient of Tensors as one of nodes."""

    def backward(inputs: tuple[UOp, ...], grads: tuple[UOp, ...]) -> list[UOp | None]:
        given = gradient(tuple(map(Tensor._wrap, inputs)), tuple(map(Tensor._wrap, grads)))
        given = given if isinstance(given, tuple | list) else (given,)
        if len(given) > len(inputs) or not all(d is None or isinstance(d, Tensor) for d in given):
            expected = f"at most {len(inputs)} Tensors, or None in their place"
            raise GradientError("gradient of a @function", expected=expected, found=repr(given)[:80])
        for x, d in zip(inputs, given, strict=False):
            if d is not None and (d.shape != x.shape or d.dtype is not x.dtype):
                expected, got = f"{x.dtype.name} {x.shape}", f"{d.dtype.name} {d.shape}"
                raise GradientError("gradient of a @function does not fit its input", expected=expected, found=got)
        return [None if d is None else d._uop for d in given]

    return backward


__all__ = ["Function", "function"]
