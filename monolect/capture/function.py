"""Make a Python function of Tensors one node of the graph (`@function`), traced once for each signature.

The Tensors that the function depends on (in its arguments, its closure, and the globals that it names) are found and
deduplicated by identity. The function runs once, lazily, on placeholders for them. Its results become TUPLE(body) over
PARAMs, and each call is FUNCTION(body, inputs...) with a GETTUPLE for each result. The body holds no buffers, so calls
of one signature share it, and its derivative (`autograd.gradient`).

Tensors that the function assigns are results too: each call assigns to them. A function is traced at each call if its
trace cannot be used again: it draws random numbers, or depends on something that may change unseen.

Source: the `@function` decorator of the specification.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, overload

from monolect.autograd.closed_forms import closed_form, replace
from monolect.autograd.gradient import Backward
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, GradientError, JitError
from monolect.base.settings import settings
from monolect.capture.around import undone_on_failure
from monolect.capture.captured import resolve, run_checks
from monolect.capture.environment import nondeterminism
from monolect.capture.environment.dependencies import Dependencies
from monolect.capture.returned import Leaf, describe_results, rebuild_results, replace_tensors
from monolect.ir.placement import axis, device, param_like
from monolect.ir.rewrite.calls import is_body
from monolect.ir.uop import UOp, const, new_buffer, node, toposort
from monolect.runtime.realize.execute import placeholders
from monolect.runtime.realize.locks import running
from monolect.runtime.replay.in_progress import Check, NotKept, changes, checks_under_way, note_before, restore
from monolect.tensor import random as random_state
from monolect.tensor.copies import global_name
from monolect.tensor.state.copied import in_own_memory
from monolect.tensor.state.deferred import defer, deferred
from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import check_results, flatten, unflatten
from monolect.tensor.view import root_of

MAX_TRACES = 64  # per function; the oldest trace is dropped beyond it
P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
_numbers = itertools.count()
Gradient = Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], Any]


class CallName(str):
    """The unique name of the calls of a Function that has a derivative defined by the user; `backward` is this
    derivative.

    The nodes of the calls hold the name, so that the derivative lives as long as they do.
    """

    backward: Backward


class Trace(NamedTuple):
    """The result of running a Function's code for one signature: a TUPLE of values over PARAMs, the template of the
    results, and the assigned Tensors.
    All calls of the signature use the trace, unless it has `extra` inputs.
    """

    body: UOp
    extra: tuple[UOp, ...]  # inputs that are no Tensor of the signature: such a trace serves one call
    result: Any
    n_results: int
    assigned: tuple[tuple[int, bool], ...]  # index in `Dependencies.tensors`, is it deferred?
    leaves: tuple[Leaf, ...]  # of the results; a root is an index in `Dependencies.tensors`, or an external view
    checks: tuple[Check, ...]  # of the indices that the function computes
    check_body: UOp  # TUPLE of the least and the greatest index of each check
    check_extra: tuple[UOp, ...]  # inputs of `check_body`, as `extra`


class Function(Generic[P, R]):
    """A Python function of Tensors whose calls are nodes of the graph, with a bounded cache of its traces, which the
    decorator `function` makes.
    A call runs the Python code only if no trace fits its signature.
    """

    def __init__(self, f: Callable[P, R], precompile: bool, gradient: Gradient | None) -> None:
        functools.update_wrapper(self, f)  # first: attributes of `f` do not replace those below
        self.op = "CALL" if precompile else "FUNCTION"
        self.traces: OrderedDict[Any, Trace] = OrderedDict()
        self.attribute_names: frozenset[str] = frozenset()  # names of the attributes that `f` reads
        self.name: str | None = getattr(f, "__name__", None)
        self.gradient = gradient  # a step that calls this Function also depends on what `gradient` reads
        if gradient is not None:
            self.name = name = CallName(f"{self.name or 'function'}#{next(_numbers)}")
            name.backward = _backward_on_nodes(gradient)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Function[P, R]: ...
    @overload
    def __get__(self: Function[Concatenate[Any, Q], R], instance: object, owner: Any = None) -> Callable[Q, R]: ...
    def __get__(self, instance: object, owner: Any = None) -> Any:
        """Return the function as a method of `instance`: its first argument is the instance."""
        call: Callable[..., Any] = self
        return call if instance is None else functools.partial(call, instance)

    def __deepcopy__(self, memo: dict[int, Any]) -> Function:
        """Return a new Function of a deep copy of the user's function, without traces; return this Function itself if
        copying gives the same function.
        """
        f, gradient = copy.deepcopy((self.__wrapped__, self.gradient), memo)  # type: ignore[attr-defined]
        return self if f is self.__wrapped__ else Function(f, self.op == "CALL", gradient)  # type: ignore[attr-defined]

    def __reduce__(self) -> str | tuple:
        parts = self.__wrapped__, self.op == "CALL", self.gradient  # type: ignore[attr-defined]
        return global_name(self) or (Function, parts)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        given: list[Tensor] = []
        flatten((args, kwargs), given)
        views = {id(t): t for t in given if t._is_view}
        if not views:
            return self._call_without_views(args, kwargs, {})
        # Views are values of the call, not of the trace, so that one trace serves all of them.
        values = {k: _value_of_view(t) for k, t in views.items()}
        args, kwargs = unflatten((args, kwargs), iter([values.get(id(t), t) for t in given]))
        before = {k: t._uop for k, t in values.items()}
        back = self._call_without_views(args, kwargs, {id(values[k]): root_of(t) for k, t in views.items()})
        for k, t in views.items():
            if values[k]._uop is not before[k]:
                t.assign(values[k])
        return replace_tensors(back, {id(values[k]): t for k, t in views.items()})

    def _call_without_views(self, args: tuple, kwargs: dict[str, Any], roots: Mapping[int, Tensor]) -> Any:
        """Return the results of a call with the arguments `args` and `kwargs`, which are not views.

        `roots`: views among the original arguments were replaced by values; this maps the id of each value to the root
        Tensor of the view. Raises JitError if the function assigns to memory that two of its Tensors share and one of
        them was a view: the other would not see the write.
        """
        with undone_on_failure():
            return self._called(*self._find_trace(args, kwargs, roots))

    def _called(self, trace: Trace, found: Dependencies) -> Any:
        """Return the results of a call that uses `trace`, and assign to the Tensors that the function assigns to.

        `found`: the Tensors and nodes that this call reaches.
        """
        if trace.checks:
            _check_indices(trace, found.nodes)
        call = node(self.op, (trace.body, *found.nodes, *trace.extra), self.name)
        values = [node("GETTUPLE", (call,), k) for k in range(len(trace.body.src))]
        if self.gradient is None:  # a constant is on no device, not on that of the first argument
            inputs = call.src[1:]
            values = [
                _inlined(u, inputs) if device(u) is None else value
                for u, value in zip(trace.body.src, values, strict=True)
            ]
        for (position, is_deferred), u in zip(trace.assigned, values[trace.n_results :], strict=True):
            found.tensors[position]._become(in_own_memory(u))
            if is_deferred:
                defer(found.tensors[position])
        made = [Tensor._wrap(u) for u in values[: trace.n_results]]
        return unflatten(
            trace.result, rebuild_results(trace.leaves, made, functools.partial(resolve, tensors=found.tensors))
        )

    def _find_trace(
        self, args: tuple, kwargs: dict[str, Any], roots: Mapping[int, Tensor]
    ) -> tuple[Trace, Dependencies]:
        """Return (Trace, Dependencies) for a call with the arguments `args` and `kwargs`: the trace, a new one if none
        fits, and the values that the call depends on.

        `roots`: maps the id of each value that replaced a view among the arguments to the root Tensor of this view.
        Raises JitError if the function assigns to memory that two of its Tensors share and one of them was a view.
        """
        f = self.__wrapped__  # type: ignore[attr-defined]
        running.wait()
        with running.lock:
            found = Dependencies((args, kwargs, f), self.attribute_names, by_kind=True)
            self.attribute_names = found.attributes
            key = (found.key, settings.steering)
            try:
                t = self.traces.get(key)
            except TypeError:
                t, found.is_complete = None, False
            if t is None:
                t = trace(f, args, kwargs, found, self.gradient is not None)
                if found.is_complete and self._is_as_before(found, args, kwargs):
                    self.traces[key] = t
                    if len(self.traces) > MAX_TRACES:
                        self.traces.popitem(last=False)
        if roots and _is_aliased([found.tensors[position] for position, _ in t.assigned], found.tensors, roots):
            expected, name = "arguments that share no memory, such as x.clone()", self.name or "a function"
            raise JitError("a @function assigns to memory that an argument shares", expected=expected, found=name)
        return t, found

    def _is_as_before(self, found: Dependencies, args: tuple, kwargs: dict[str, Any]) -> bool:
        """Whether running the function on `args` and `kwargs` left everything that it reads unchanged. `found`: its
        dependencies before the run.

        A reused trace would not repeat a side effect, such as counting, appending to a list, or exchanging the values
        of two variables.
        """
        if found.holds():
            return True
        f = self.__wrapped__  # type: ignore[attr-defined]
        now = Dependencies((args, kwargs, f), self.attribute_names, by_kind=True)
        # a key by kind does not tell which Tensor is where: the function may have exchanged two of a kind
        same = len(found.tensors) == len(now.tensors) and all(map(is_, found.tensors, now.tensors))
        return bool(same and found.key == now.key)


@overload
def function(f: Callable[P, R], *, precompile: bool = False, gradient: Gradient | None = None) -> Function[P, R]: ...
@overload
def function(
    *, precompile: bool = False, gradient: Gradient | None = None
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def function(f: Callable[..., Any] | None = None, *, precompile: bool = False, gradient: Gradient | None = None) -> Any:
    """Make calls of `f` single nodes of the graph: a call adds one node, and runs the code of `f` only for a new
    signature.

    `f` takes anything and returns Tensors, in any nesting of lists, tuples and dicts. The signature is the shapes,
    dtypes and devices of the Tensors that `f` can reach (by arguments, closure and globals), and every other value that
    it can reach. Returns a Function; without `f`, a decorator.

    With `precompile` a call is opaque (CALL): it is scheduled and compiled separately, once for all its calls, and
    nothing is fused across its border. `gradient(inputs, grads)` defines the derivative. `inputs` are the Tensors that
    `f` reached, in the order in which they were found; `grads` are the gradients of the results. `gradient` returns a
    gradient or None for each input.

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


def _value_of_view(t: Tensor) -> Tensor:
    """Return a Tensor that is not a view and has the value and attributes of the view `t`."""
    new = t._kind._wrap(t._uop)
    new._requires_grad, new._grad = t._requires_grad, t._grad
    if changes.captures and (t._requires_grad or t._grad is not None) and t._grad.__class__ is not NotKept:
        new._grad = t.grad  # a capture under way depends on that of the view
        for c in changes.enclosing:
            c.looked.note(new, new._grad)
    if attributes := getattr(t, "__dict__", None):
        vars(new).update(attributes)
    return new


def _check_indices(trace: Trace, nodes: Iterable[UOp]) -> None:
    """Check that the indices which a call of `trace` computes are in range. `nodes`: the inputs of the call.

    They are checked now or, if a step is being captured, after each call of the step. Raises IndexRangeError.
    """
    call = node("FUNCTION", (trace.check_body, *nodes, *trace.check_extra))
    found = [Tensor._wrap(node("GETTUPLE", (call,), k)) for k in range(2 * len(trace.checks))]
    if not changes.captures:
        found[0].realize(*found[1:])
        run_checks(trace.checks, found)
    elif (collected := checks_under_way()) is not None:
        collected += zip(trace.checks, found[::2], found[1::2], strict=True)


def _inlined(u: UOp, inputs: tuple[UOp, ...]) -> UOp:
    """Return `u`, a value of the body of a call, with its PARAMs replaced by `inputs`, the inputs of the call."""
    params = [p for p in toposort(u, stop=is_body) if p.op == "PARAM" and p.arg.name is None]
    return replace((u,), {p: inputs[p.arg.slot] for p in params})[0] if params else u


def _is_aliased(assigned: Sequence[Tensor], reached: Sequence[Tensor], roots: Mapping[int, Tensor]) -> bool:
    """Whether one of `assigned` shares memory with another Tensor in `reached`.

    `roots`: maps the id of each value that replaced a view among the arguments to the root Tensor of this view.
    """
    memory = [id(roots.get(id(t), t)) for t in reached]
    return any(memory.count(id(roots.get(id(t), t))) > 1 for t in assigned)


def trace(f: Callable[..., Any], args: Any, kwargs: Any, found: Dependencies, has_gradient: bool) -> Trace:
    """Run `f` with the arguments `args` and `kwargs` on placeholders for the Tensors of `found`, and return the Trace.

    With `has_gradient`, the function has a user's derivative, and all results are values of the call, including
    external Tensors that `f` returns. Sets `found.is_complete` to False if another call with an equal signature might
    have another result. Raises ArgumentError if `f` returns no Tensor, and GradientError if it calls backward() to an
    external Tensor.
    """
    buffers = [new_buffer(u.shape, u.dtype, device(u), axis(u)) for u in found.nodes]
    placeholders.update(buffers)
    real = [(t, t._uop, t._grad) for t in found.tensors]
    before, early = random_state.drawn(), {id(t) for t in deferred()}
    outputs: list[Tensor] = []
    checks: list[tuple[Check, Any, Any]] = []
    with changes.seen(alone=True) as seen:
        seen.checks = checks
        views_as_leaves = _views_as_leaves(found)
        for t, u, _ in real:
            t._uop = buffers[found.nodes[u]]
        for t, k in views_as_leaves:
            buffers[k] = t._uop  # over the placeholder of its base, until `_body` makes it a PARAM of its own
        for t, u, _ in real:
            t._uop = buffers[found.nodes[u]]
        calls: list[str] = []
        try:
            with nondeterminism.watch_calls(found.needs_watch, lambda name, line: calls.append(name)):
                result = running.call(f, args, kwargs)
            flatten(result, outputs)
            check_results(result, (), "@function")
            positions = {id(t): k for k, t in enumerate(found.tensors)}
            views = {id(t): t for t, _ in found.flags if t._is_view}  # external views: part of the trace's key
            grads = {id(g): g for *_, g in real if isinstance(g, Tensor)}  # external gradients: not part of the key
            known = {**grads, **views, **positions}
            made, leaves = describe_results(outputs, (), lambda t: None if has_gradient else known.get(id(t)))
            found.is_complete &= not any(id(leaf.root) in grads for leaf in leaves)
            values = [t._uop for t in made]
            result = unflatten(result, itertools.repeat(Tensor._wrap(const(0, dtypes.bool))))
            outputs.clear()  # drop Tensors that only the function held
            made.clear()
            assigned = [t for t, _ in seen.alive()]
            roots = (*values, *(t._uop for t in assigned))
            read = set(toposort(*values, stop=is_body))
            whole = [(t, found.nodes[u]) for t, u, _ in real if t._requires_grad]
            for t, k in (*whole, *views_as_leaves):
                if t._uop in read and t._uop is not buffers[k]:
                    closed_form(t._uop, (buffers[k],), _refuse_assigned_leaf)
            late = {id(t) for t in deferred()} - early
            looked = {id(t): g for t, g in seen.looked.alive()}
            if any(t._grad is not looked.get(id(t), g) for t, _, g in real):
                expected = "monolect.grad or value_and_grad inside, or backward() outside"
                raise GradientError("backward() inside a @function, to a Tensor from outside", expected=expected)
            if not leaves:
                found_text = repr(result)[:80]
                raise ArgumentError("a @function returns Tensors", expected="at least one Tensor", found=found_text)
        except BaseException:
            for t, state in seen.before.alive():
                restore(t, *state)
            raise
        finally:
            brought = {id(t): g for t, g in seen.looked.alive() if isinstance(g, Tensor)}
            for t, u in seen.alive():
                t._uop = u
            for t, u, g in real:
                t._uop, t._grad = u, brought.get(id(t), g)
    for t, (_, _, is_leaf) in seen.before.alive():  # the only note of it for a capture or call around this
        if t._requires_grad is not is_leaf:
            note_before(t, t._uop, is_leaf)
    body, extra = _body(roots, buffers)
    check_body, check_extra = _body(tuple(t._uop for _, *both in checks for t in both), buffers)
    unknown = [t for t in assigned if id(t) not in positions]
    for t in unknown:
        positions[id(t)] = len(found.tensors)
        found.tensors.append(t)
    found.is_complete &= (
        not extra and not check_extra and not unknown and not calls and not looked and random_state.drawn() == before
    )
    marks = tuple((positions[id(t)], id(t) in late) for t in assigned)
    names = tuple([check for check, *_ in checks])
    return Trace(body, extra, result, len(values), marks, leaves, names, check_body, check_extra)


def _refuse_assigned_leaf(g: UOp, y: UOp, leaf: UOp) -> list[UOp | None]:
    """Raise GradientError: the function assigned to the leaf node `leaf` and then read it, so the value `y` is no input
    of the call.

    The signature is that of a derivative, whose first argument `g` is a gradient. `backward` calls this function if it
    meets the leaf; `y` and `leaf` are not used.
    """
    expected = "a function that reads the leaf before it assigns to it, or the assignment outside"
    raise GradientError("backward meets a leaf that a @function assigned and then read", expected=expected)


def _views_as_leaves(found: Dependencies) -> list[tuple[Tensor, int]]:
    """Return (Tensor, number of its node among the inputs) for each external Tensor in `found` that is a leaf
    (requires_grad) and a view.
    """
    return [(t, found.nodes[t._uop]) for t, is_leaf in found.flags if is_leaf and t._is_view]


def _body(roots: tuple[UOp, ...], buffers: list[UOp]) -> tuple[UOp, tuple[UOp, ...]]:
    """Return (TUPLE of the values `roots` over PARAMs, BUFFERs that become extra inputs).

    `buffers`: the placeholders, which become PARAMs 0, 1 and so on. Other BUFFERs that the values read become the
    PARAMs after these. BUFFERs inside bodies of nested calls are private to kernels and stay.
    """
    known = frozenset(buffers)
    extra = tuple(u for u in toposort(*roots, stop=is_body) if u.op == "BUFFER" and u not in known)
    params: dict[UOp, UOp] = {}
    for k, u in enumerate((*buffers, *extra)):
        params[u] = param_like(u, k)
    return node("TUPLE", replace(roots, params)), extra


def _backward_on_nodes(gradient: Gradient) -> Backward:
    """Return a function from nodes to nodes that computes a derivative by calling `gradient`, the user's function on
    Tensors.
    `backward` calls the function. It returns None for an input without a gradient, and raises GradientError if
    `gradient` returns anything but None or a Tensor of the input's shape and dtype.
    """

    def backward(inputs: tuple[UOp, ...], grads: tuple[UOp, ...]) -> list[UOp | None]:
        given = gradient(tuple(map(Tensor._wrap, inputs)), tuple(map(Tensor._wrap, grads)))
        given = given if isinstance(given, tuple | list) else (given,)
        if len(given) > len(inputs) or not all(d is None or isinstance(d, Tensor) for d in given):
            expected = f"at most {len(inputs)} Tensors, each may be None"
            raise GradientError("gradient of a @function", expected=expected, found=repr(given)[:80])
        for x, d in zip(inputs, given, strict=False):
            if d is not None and (d.shape != x.shape or d.dtype is not x.dtype):
                expected, got = f"{x.dtype.name} {x.shape}", f"{d.dtype.name} {d.shape}"
                raise GradientError("gradient of a @function does not fit its input", expected=expected, found=got)
        return [None if d is None else d._uop for d in given]

    return backward


__all__ = ["Function", "function"]
