"""Build reverse-mode derivatives of graphs, as graphs.

What it is for: `gradients(root, root_grad, targets)` returns, for each target, the node of d(root)/d(target) applied to
`root_grad`. There is one row for each differentiable op. The result is an ordinary graph, so it can be differentiated
again.
What it is not: it computes nothing and knows no Tensor. Nodes are interned, so forward and backward share common
subexpressions without bookkeeping.
Invariants: the gradient of a node has the node's dtype and shape; only float nodes that lead to a target are visited;
there is no recursion through the graph.

A composed function may give its derivative in closed form (`closed_form`). The backward walk then goes from its result
to its inputs, and does not enter the formula. A side table holds these derivatives; without an entry the walk
differentiates the formula, which has the same meaning.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from math import log, nan, pi
from typing import Any

from monolect.autograd.closed_forms import FLAT, ClosedForm, closed, closed_form, replace, through
from monolect.autograd.graph import (
    broadcast_to,
    cast,
    e,
    flip,
    full,
    joined,
    pad,
    permute,
    reduce,
    reshape,
    shrink,
    shrink_axis,
    sum_to,
    where,
)
from monolect.autograd.parts import Part, joined_parts
from monolect.autograd.sharding import added_at, gradient_at, on_all_of, passed_to, to_devices_of
from monolect.base.errors import GradientError
from monolect.base.settings import switched
from monolect.ir.bounds import size_max
from monolect.ir.ops import ELEMENTWISE, MOVEMENT
from monolect.ir.placement import param_like
from monolect.ir.rewrite.calls import outside, parameters
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, const, node, toposort

Rule = Callable[[UOp, UOp], UOp]  # (node, gradient of the node) -> gradient of one source
LN_2 = log(2.0)
NO_GRAPH = "a result of a step, which keeps no graph"  # origin[2] of a BUFFER: a result of a replay, without a graph
OUTSIDE = "an argument of a step that was computed from a leaf"  # origin[2] of a BUFFER while the step is captured
APART = "of its own graph"  # tag of a DETACH: a value whose graph is another than the graph of its memory
SPENT = "after backward"  # origin[2] of a BUFFER, or tag of a DETACH: a value whose graph `backward` released

# Ops that have no derivative -> reason, for the error when a gradient reaches one.
NOT_DIFFERENTIABLE: dict[str, str] = {
    "CALL": "an opaque kernel has no derivative; give it one with @function(gradient=...), or detach() its result",
    "BITCAST": "reinterpreting bits is not continuous",
    "MOD": "it is defined on integers",
    "IDIV": "it is defined on integers",
    "CUSTOM": "the meaning of custom code is unknown",
    "SHUFFLE": "lanes appear only after differentiation",
    "WMMA": "tensor core tiles appear only after differentiation",
}
_CALLS = frozenset(("FUNCTION", "CALL"))
Backward = Callable[[tuple[UOp, ...], tuple[UOp, ...]], Sequence[UOp | None]]
_Derivative = tuple[UOp, tuple[int, ...], tuple[UOp, ...]]  # what `_derivative` returns
_derivatives: weakref.WeakKeyDictionary[UOp, dict[tuple, _Derivative]] = weakref.WeakKeyDictionary()
switched.append(_derivatives.clear)


def reach(root: UOp, stop: Collection[UOp] = ()) -> set[UOp]:
    """Return the nodes that a gradient of `root` may flow to. Nodes in `stop` are included, but not entered."""
    seen: set[UOp] = set()
    stack = [root]
    while stack:
        u = stack.pop()
        if u not in seen:
            seen.add(u)
            if u not in stop:
                stack.extend(_sources(u))
    return seen


def remember(
    values: Sequence[tuple[UOp, UOp]],
    leaves: Collection[UOp],
    may_share: bool = False,
    binding: Callable[[UOp], Any] = lambda u: None,
) -> list[UOp]:
    """Register the graphs of computed values, so that gradients pass from a value to its graph.

    Returns one node for each value: the given one, or a DETACH of it. `values`: (memory or views of it, the graph that
    it was computed from) for each value. A graph is registered only if it leads to one of the nodes `leaves`. Values
    may share memory: all but the first then become separate nodes, so that the first may become a leaf or release its
    graph. With `may_share`, as for results of a captured step, they stay equal. Nothing is registered if the graph
    contains the buffer itself, which was updated in place. `binding(graph)` returns the current values of the Variables
    of a graph, or None if it has none; it is called now and in each backward, which raises GradientError if the values
    differ.
    """
    if len(values) == 1:  # fast path of the most common case
        ((u, graph),) = values
        if u is graph:
            return [u]
        if (leaf := _leads(graph, leaves)) is not None:
            return [_remembered(u, graph, leaf, False, binding)]
        return [u if u.op == "BUFFER" and u not in leaves and u not in closed else _detached_from_leaves(u, leaves)]
    found = [None if computed is graph else _leads(graph, leaves) for computed, graph in values]
    new: list[UOp] = []
    taken: set[UOp] = set()
    for (u, graph), f in zip(values, found, strict=True):
        memory = u
        while memory.op in MOVEMENT or memory.op in ("DETACH", "CONTIGUOUS_BACKWARD"):
            memory = memory.src[0]
        is_shared = not may_share and memory in taken and u is not graph
        taken.add(memory)
        if f is not None:
            u = _remembered(u, graph, f, is_shared, binding)
        new.append(build("DETACH", u) if f is None and is_shared else u)
    return [
        _detached_from_leaves(u, leaves) if f is None and u is not graph else u
        for u, (_, graph), f in zip(new, values, found, strict=True)
    ]


def _detached_from_leaves(u: UOp, leaves: Collection[UOp]) -> UOp:
    """Return `u`, or its DETACH if a gradient of `u` may flow to one of the nodes `leaves` or to a value whose graph is
    registered or was released.
    """
    return u if _leads(u, leaves) is None else build("DETACH", u)


def _remembered(value: UOp, whole: UOp, found: UOp, is_shared: bool, binding: Callable[[UOp], Any]) -> UOp:
    """Register the graph `whole` of `value` and return the node of the value.

    `found`: the leaf that the graph leads to, or a value whose graph was released. The node is a tagged DETACH if the
    memory has another graph, or if the memory `is_shared` with another value. `binding(graph)` returns the values of
    the Variables of a graph, or None; a backward compares them with those of now.
    """
    computed, graph, views = _below_views(value, whole)
    if computed is graph:
        return value
    if graph.op == "AFTER" and graph.src[0] is computed:
        writes = _writes(graph)
        if len(writes) != 1 or writes[0].op != "STORE" or writes[0].src[0] is not computed:
            return value
        graph = writes[0].src[1]
    known = closed.get(computed)
    is_inside = computed.serial < graph.serial and computed in toposort(graph)  # sources are older than their users
    if _is_spent(found):
        if is_shared:
            return node("DETACH", (value,), None, SPENT)
        _mark_spent(computed)
    elif is_inside or (known is not None and known[0] == (graph,) and not is_shared):
        pass
    elif known is None and computed.op == "BUFFER" and not _is_spent(computed):
        closed[computed] = ((graph,), through(views, _to_graph_at(binding, graph)))
    else:
        value = node("DETACH", (value,), None, APART)
        closed.setdefault(value, ((whole,), _to_graph_at(binding, whole)))
    return value


def _to_graph_at(binding: Callable[[UOp], Any], graph: UOp) -> ClosedForm:
    """Return a derivative, for `closed_form`, of a value computed from `graph`: it passes the gradient on to `graph`.

    The backward walk calls the derivative. It raises GradientError unless `binding(graph)`, the values of the
    Variables of `graph`, is then what it is now. If `binding(graph)` is None now, nothing is compared.
    """
    if (bound := binding(graph)) is None:
        return _to_graph

    def checked(g: UOp, y: UOp, graph: UOp) -> tuple[UOp]:
        if (found := binding(graph)) != bound:
            what = "backward meets a value that was computed for another value of a Variable"
            raise GradientError(what, expected=bound, found="none" if found is None else found)
        return _to_graph(g, y, graph)

    return checked


def _to_graph(g: UOp, y: UOp, graph: UOp) -> tuple[UOp]:
    """Return the gradient `g` of a computed value `y` as the gradient of its `graph`, a 1-tuple.

    Raises GradientError if their shapes differ, because the graph has a symbolic size.
    """
    if g.shape != graph.shape:
        expected = "backward() before the value is asked for, or a value of known size"
        raise GradientError("backward meets a value of symbolic size that was computed before", expected=expected)
    return (g,)


def _below_views(computed: UOp, graph: UOp) -> tuple[UOp, UOp, tuple[UOp, ...]]:
    """Return (memory below the views of `computed`, its graph, views that `graph` does not have, inner first).

    Common views of `computed` and `graph` are removed from both. The graph is registered at the memory, because a
    further view of `computed` would merge with its views, and the merged graph would not contain `computed`.
    """

    def is_common(u: UOp, v: UOp) -> bool:
        same = u.op == v.op and u.arg == v.arg and u.src[1:] == v.src[1:]
        return same and u.op in MOVEMENT and u.src[0].shape == v.src[0].shape and v not in closed

    u, v = computed, graph
    while is_common(u, v):
        u, v = u.src[0], v.src[0]
    views: list[UOp] = []
    while u.op in ("RESHAPE", "PERMUTE", "FLIP", "SHRINK"):  # views that repeat no element
        views.append(u)
        u = u.src[0]
    return (u, v, tuple(reversed(views))) if u.op == "BUFFER" else (computed, graph, ())


def _leads(root: UOp, leaves: Collection[UOp]) -> UOp | None:
    """Return one of `leaves` that a gradient of `root` may flow to, or a value with a registered graph, which is not
    searched.

    Otherwise return a value whose graph was released, or None.
    """
    seen: set[UOp] = set()
    stack = [root]
    released = None
    while stack:
        u = stack.pop()
        if u in leaves or (u.op in ("BUFFER", "DETACH") and u in closed):
            return u
        if u not in seen:
            seen.add(u)
            if _is_spent(u):
                released = u
            stack.extend(_sources(u))
    return released


def _is_spent(u: UOp) -> bool:
    """Whether `backward` released the graph of `u`."""
    return u.tag == SPENT or (u.op == "BUFFER" and u.origin is not None and u.origin[2] == SPENT)


def release_graph(u: UOp) -> UOp:
    """Release the graph of `u` and return a node of the same value; a gradient that reaches it raises GradientError.

    A BUFFER forgets its graph and is returned itself. Another node is wrapped in a tagged DETACH, because an equal
    expression may share the node and keeps its graph.
    """
    if u.op != "BUFFER":
        return node("DETACH", (u,), None, SPENT)
    closed.pop(u, None)
    _mark_spent(u)
    return u


def _mark_spent(u: UOp) -> None:
    """Mark the BUFFER `u` as a value whose graph was released."""
    u.origin = (*(u.origin or ("", 0))[:2], SPENT)


def gradients(root: UOp, root_grad: UOp, targets: list[UOp], cut: bool = False) -> dict[UOp, UOp | None]:
    """Return d(root)/d(target) applied to `root_grad` for each target; None if `root` does not depend on it.

    `root_grad` is the gradient of the node `root`. With `cut`, the graphs of the targets are not entered. Raises
    GradientError if a gradient reaches an op without a derivative (NOT_DIFFERENTIABLE).
    """
    return gradients_of_roots({root: root_grad}, targets, cut)


def gradients_of_roots(grads: dict[UOp, UOp], targets: list[UOp], cut: bool) -> dict[UOp, UOp | None]:
    """Return target -> gradient or None for several roots; `grads` maps each root to its gradient, and is added to.

    With `cut`, the graphs of `targets` are not entered.
    """
    wanted = frozenset(targets)
    order = _nodes_on_paths(tuple(grads), wanted, cut)
    results: dict[UOp, dict[int, UOp]] = {}  # call -> number of a result -> gradient of the result
    parts: dict[UOp, list[tuple[UOp, UOp]]] = {}  # node -> (SHRINK of it, gradient of the SHRINK)
    for u in reversed(order):
        if u in parts:
            for d in _added_parts(u, parts.pop(u)):
                grads[u] = d if u not in grads else build("ADD", grads[u], d)
        if u.op in _CALLS and u.src[0].op == "TUPLE":
            passed = _through_call(u, results.get(u, {}), order)
        elif (g := grads.get(u)) is None or (cut and u in wanted):
            continue
        elif u.op == "GETTUPLE" and u.src[0].op in _CALLS:
            results.setdefault(u.src[0], {})[u.arg] = g
            continue
        elif u.op == "SHRINK" and u not in closed and u.src[0] in order:
            parts.setdefault(u.src[0], []).append((u, g))
            continue
        else:
            passed = _pass(u, g, order)
        for s, d in passed:
            if d.origin is None and d.op != "BUFFER":
                d.origin = _backward_origin(u, grads.get(u))
            had = grads.get(s)
            grads[s] = passed_to(s, d) if had is None else added_at(s, had, d)
    return {t: gradient_at(t, grads[t]) if t in order and t in grads else None for t in targets}


def _backward_origin(u: UOp, g: UOp | None) -> tuple[str, int, str] | None:
    """Return the origin (file, line, name) of a gradient that `u` passes on: the user's line that made `u`.

    A node inside of a Tensor method has no origin; the origin of its gradient `g` is returned then. The result is None
    if `g` has none or is None.
    """
    if u.origin is None:
        return g.origin if g is not None else None
    file, line, name = u.origin
    return file, line, f"{name} backward"


def cat(us: Sequence[UOp], axis: int) -> UOp:
    """Return the concatenation of `us` along `axis`. The gradient of an input is a slice of the incoming gradient.

    Differentiating the chain of WHEREs instead would give one full-size value for each input.
    """
    y = joined(us, axis)
    if not y.dtype.is_float:
        return y

    def parts(g: UOp, y: UOp, *inputs: UOp) -> list[UOp]:
        ends = [*accumulate((u.shape[axis] for u in inputs), initial=0)]
        return [shrink_axis(g, axis, o, u.shape[axis]) for o, u in zip(ends, inputs, strict=False)]

    return closed_form(y, tuple(us), parts)


def padded(u: UOp, offsets: Sequence[Any], shape: tuple, fill: Any = 0) -> UOp:
    """Return `u` at `offsets` in a result of `shape` whose other elements are `fill`.

    The gradient of `u` is a slice of the incoming gradient, without a mask, if all offsets are ints.
    """
    y = pad(u, offsets, shape, fill)
    if y is u or not u.dtype.is_float or any(o.__class__ is not int for o in offsets):
        return y
    return closed_form(y, (u,), lambda g, y, u: (shrink(g, offsets, u.shape),))


def _added_parts(x: UOp, parts: list[tuple[UOp, UOp]]) -> list[UOp]:
    """Return terms whose sum is the gradient of `x` from `parts`: its SHRINKs with their gradients.

    Many disjoint parts are concatenated into one term (`autograd/parts.py`). Parts that overlap are separate terms.
    """
    known: list[Part] = []
    out = []
    for u, g in parts:
        offsets = u.src[1].sizes
        if all(n.__class__ is int for n in (*offsets, *g.shape, *x.shape)) and 0 not in g.shape:
            known.append((offsets, g))
        else:
            out.append(GRADIENTS["SHRINK"][0](u, g))
    return out + [padded(g, offsets, x.shape) for offsets, g in joined_parts(known, x.shape, cat)]


def _nodes_on_paths(roots: tuple[UOp, ...], targets: frozenset[UOp], cut: bool) -> dict[UOp, bool]:
    """Return the nodes on paths from `roots` to `targets`, sources first, as the keys of a dict (all values are True).

    With `cut`, the sources of a target are not visited. Raises GradientError for a visited node that was computed from
    a leaf and whose graph is not kept (`refuse_without_graph`).
    """
    leads: dict[UOp, bool] = {}
    order: dict[UOp, bool] = {}
    stack: list[tuple[UOp, tuple[UOp, ...] | None]] = [(r, None) for r in roots]  # with sources once they were visited
    while stack:
        u, sources = stack.pop()
        if sources is not None:
            leads[u] = u in targets or any([leads.get(s, False) for s in sources])
            if leads[u]:
                order[u] = True
        elif u not in leads:
            if u not in targets:
                refuse_without_graph(u)
            leads[u] = False
            sources = _sources(u)
            stack.append((u, sources))
            if not (cut and u in targets):
                stack += [(s, None) for s in sources if s not in leads]
    return order


def is_without_graph(u: UOp) -> bool:
    """Whether `u` is a BUFFER computed from a leaf to which no gradient can pass: a replay kept no graph (NO_GRAPH),
    `backward` released it (SPENT), or it is outside of the captured step (OUTSIDE).
    """
    return u.op == "BUFFER" and u.origin is not None and u.origin[2:] in ((NO_GRAPH,), (SPENT,), (OUTSIDE,))


def refuse_without_graph(u: UOp) -> None:
    """Raise GradientError if `is_without_graph(u)`, or if `u` is a DETACH whose graph `backward` released."""
    if _is_spent(u):
        expected = "backward(retain_graph=True) the first time, or the value detached"
        raise GradientError("backward a second time through the same value", expected=expected, found="no graph")
    if u.op == "BUFFER" and u.origin is not None and u.origin[2] == NO_GRAPH:
        expected = "backward() inside the step, monolect.grad, or the value detached"
        raise GradientError("backward meets a result of a jitted step, which keeps no graph", expected=expected)
    if u.op == "BUFFER" and u.origin is not None and u.origin[2] == OUTSIDE:
        expected = "an argument that the step computes from the leaf itself, or a detached one"
        raise GradientError("backward inside a jitted step passes through an argument to a leaf", expected=expected)


def _sources(u: UOp) -> tuple[UOp, ...]:
    """Return the nodes to which a gradient of `u` flows directly.

    They are the inputs that `closed_form` registered for `u`, if it did; none for a `u` that is no float or passes no
    gradient on; for an AFTER the buffer and the stored values; else the sources of `u`.
    """
    if u.op in _CALLS:
        return u.src[1:]
    if not u.dtype.is_float:
        return ()
    if (c := closed.get(u)) is not None:
        return c[0]
    if u.op in FLAT:
        return ()
    if u.op == "AFTER":
        return (u.src[0], *(w.src[1] for w in _writes(u)), *(c for c in u.src[1:] if c.op == "CALL"))
    return u.src


def _pass(u: UOp, g: UOp, wanted: dict[UOp, bool]) -> list[tuple[UOp, UOp]]:
    """Return (source in `wanted`, its gradient) of `u` with the gradient `g`. GradientError: `u` has no derivative."""
    if (c := closed.get(u)) is not None:
        inputs, derivative = c
        found = zip(inputs, derivative(g, u, *inputs), strict=True)
        return [(s, sum_to(d, s.shape)) for s, d in found if s in wanted and d is not None]
    if u.op in FLAT:
        return []
    if u.op == "AFTER":
        if any(c in wanted for c in u.src[1:] if c.op == "CALL"):
            raise _refused(u.src[-1])
        return [(s, d) for s, d in _after(u, g) if s in wanted]
    rules = GRADIENTS.get(u.op)
    out = []
    for k, s in enumerate(u.src):
        if s in wanted and s.dtype.is_float:
            if rules is None:
                raise _refused(u)
            rule = rules[min(k, len(rules) - 1)]
            d = _part(u, g, k) if u.op == "STACK" else rule(u, g)
            out.append((s, sum_to(d, s.shape) if u.op in ELEMENTWISE else d))
    return out


def _refused(u: UOp) -> GradientError:
    """Return the GradientError for the node `u`, whose op has no derivative; the caller raises it."""
    reason = NOT_DIFFERENTIABLE.get(u.op, "it has no row in the table of gradients")
    return GradientError(f"{u.op} has no derivative: {reason}", line=u.origin[:2] if u.origin else None)


# ---- calls -----------------------------------------------------------------------------------------------------------
def _through_call(u: UOp, results: dict[int, UOp], wanted: dict[UOp, bool]) -> list[tuple[UOp, UOp]]:
    """Return the arguments of a FUNCTION or CALL that are in `wanted`, each with its gradient.

    The gradients are results of a call of the body's derivative, or of the user's `backward`, the derivative given with
    `@function(gradient=...)`. `results`: number of a result of `u` -> gradient of that result.
    """
    body, args = u.src[0], u.src[1:]
    if not results:
        return []
    own = getattr(u.arg, "backward", None)  # the user's derivative, an attribute of the name of the call
    if own is not None:
        grads = tuple([results.get(k, full(v.shape, 0, v.dtype)) for k, v in enumerate(body.src)])
        return [(a, d) for a, d in zip(args, own(args, grads), strict=False) if d is not None and a in wanted]
    slots = tuple([k for k, a in enumerate(args) if a in wanted and a.dtype.is_float])
    key = (len(args), tuple(sorted(results)), slots)  # len(args) counts: the body may not use all arguments
    cache = _derivatives.setdefault(body, {})
    if (found := cache.get(key)) is None:
        found = _derivative(body, *key)
        written = any(u.op == "BUFFER" and u.storage is None for u in found[2])  # in each call memory of its own
        if not written and not _has_users_derivative(body):
            cache[key] = found
    back, reached, memory = found
    call = node(u.op, (back, *args, *(results[k] for k in key[1]), *memory))
    return [(args[k], node("GETTUPLE", (call,), i)) for i, k in enumerate(reached)]


def _has_users_derivative(body: UOp) -> bool:
    """Whether a call in `body`, at any depth, has a derivative of the user's, which may read other values next time."""
    return any(u.op in _CALLS and getattr(u.arg, "backward", None) is not None for u in toposort(body))


def _derivative(body: UOp, n: int, results: tuple[int, ...], slots: tuple[int, ...]) -> _Derivative:
    """Return (derivative, slots, memory): a TUPLE body of gradients of the arguments `slots`, those that have a
    gradient, and what the gradients read from outside, such as tables of weights.

    `results`: the numbers of the results of `body` that have a gradient. The arguments of the derivative are the `n`
    arguments of `body`, the gradients of these results, and what is read from outside.
    """
    known = parameters(body)
    grads: dict[UOp, UOp] = {}
    for i, k in enumerate(results):
        v = body.src[k]
        g = param_like(v, n + i)
        grads[v] = g if v not in grads else build("ADD", grads[v], g)
    found = gradients_of_roots(grads, [known[k] for k in slots if k in known], cut=False)
    values = {k: d for k in slots if k in known and (d := found[known[k]]) is not None}
    made = tuple(values.values())
    memory = outside(made)
    params = {u: param_like(u, n + len(results) + i) for i, u in enumerate(memory)}
    return node("TUPLE", replace(made, params) if memory else made), tuple(values), memory


# ---- elementwise -----------------------------------------------------------------------------------------------------
def _times(k: int) -> Rule:
    """Return the rule for one factor of a product: a function (node, gradient of the node) -> gradient of the factor.

    That gradient is the node's gradient times source `k` of the node, the other factor.
    """
    return lambda u, g: build("MUL", g, u.src[k])


def _max(k: int) -> Rule:
    """Return the rule for operand `k` of MAX: a function (node, gradient of the node) -> gradient of the operand.

    The larger operand gets the gradient, equal operands half of it each.

    If an operand is nan, both get the whole gradient.
    """

    def rule(u: UOp, g: UOp) -> UOp:
        a, b = u.src[k], u.src[1 - k]
        return where(build("CMPEQ", a, b), e("MUL", g, 0.5), where(build("CMPLT", a, b), 0.0, g))

    return rule


def _pow_base(u: UOp, g: UOp) -> UOp:
    a, b = u.src
    d = e("MUL", g, build("MUL", b, build("POW", a, e("SUB", b, 1.0))))
    return where(e("CMPEQ", b, 0.0), 0.0, d)


def _pow_exponent(u: UOp, g: UOp) -> UOp:
    a, b = u.src
    flat = build("AND", e("CMPEQ", a, 0.0), e("CMPGE", b, 0.0))  # 0 ** b is constant there, and log(0) is not finite
    d = build("MUL", build("MUL", g, u), e("MUL", build("LOG2", a), LN_2))
    return where(flat, 0.0, d)


def cosine(x: UOp) -> UOp:
    """Return cos x, as the sine of pi/2 - x, which `rules.trigonometric` recognizes as one function of x."""
    y = build("SIN", build("SUB", const(pi / 2, x.dtype), x))
    return closed_form(y, (x,), lambda g, y, x: (build("NEG", build("MUL", g, build("SIN", x))),))


# ---- movement --------------------------------------------------------------------------------------------------------
def _expand(u: UOp, g: UOp) -> UOp:
    old = u.src[0].shape
    axes = [i for i, n in enumerate(u.shape) if old[i].__class__ is int and old[i] == 1 and n is not old[i]]
    return reduce(g, "ADD", [i for i in axes if not (u.shape[i].__class__ is int and u.shape[i] == 1)])


def _permute(u: UOp, g: UOp) -> UOp:
    return permute(g, sorted(range(len(u.arg)), key=u.arg.__getitem__))


def _index(u: UOp, g: UOp) -> UOp:
    """Return the gradient of the first source of the INDEX `u`: a scatter that adds, as it may read elements twice."""
    zeros, g, *indices = on_all_of(u, full(u.src[0].shape, 0, u.src[0].dtype), g, *u.src[1:])
    zeros = build("CONTIGUOUS", zeros)
    return build("AFTER", zeros, build("ATOMICADD", build("INDEX", zeros, *indices), g))


def _part(u: UOp, g: UOp, k: int) -> UOp:
    """Return the gradient of source `k` of the STACK `u`: slice `k` of `g`, the gradient of `u`, along axis 0."""
    return reshape(shrink_axis(g, 0, k, 1), u.shape[1:])


def _load(u: UOp, g: UOp) -> UOp:
    """Return the gradient of the memory that the LOAD `u` reads, on its device: `g`, and 0 where the gate is false."""
    g = to_devices_of(g, u.src[0])
    return g if len(u.src) < 3 else sum_to(where(u.src[2], g, 0.0), u.src[0].shape)


def _load_alternative(u: UOp, g: UOp) -> UOp:
    alt = u.src[1]
    return (
        sum_to(where(u.src[2], 0.0, to_devices_of(g, u.src[0])), alt.shape)
        if len(u.src) > 2
        else full(alt.shape, 0, alt.dtype)
    )


def _replicated(u: UOp, g: UOp) -> UOp:
    """Return the gradient of the source of the REPLICATED `u`: `g` for element 0 of the axis that `u` drops, else 0."""
    shape = u.src[0].shape
    return pad(reshape(g, (*g.shape[: u.arg], 1, *g.shape[u.arg :])), (0,) * len(shape), shape)


# ---- reductions ------------------------------------------------------------------------------------------------------
def _reduce(u: UOp, g: UOp) -> UOp:
    op, axes = u.arg
    x = u.src[0]
    if op == "ADD":
        return broadcast_to(g, x.shape)
    if op == "MAX":
        top = build(
            "OR", build("CMPEQ", x, u), build("CMPNE", x, x)
        )  # if one element is nan, all nan elements count as maxima
        return where(top, build("DIV", g, reduce(cast(top, g.dtype), "ADD", axes)), 0.0)
    return build("MUL", g, _product_of_others(x, axes))


def _product_of_others(x: UOp, axes: tuple[int, ...]) -> UOp:
    """Return, for each element of `x`, the product of the other elements along `axes`, without dividing by zero.

    At a single zero it is the product of the rest. At other elements it is 0 if there is a zero, or nan if another
    element is infinite or nan. The derivative is that of `_others_without_division`, because comparisons have none.
    """
    zero, endless = e("CMPEQ", x, 0.0), e("CMPNE", build("SUB", x, x), 0.0)
    safe = where(zero, 1.0, x)
    rest = reduce(safe, "MUL", axes)
    zeros, many = (reduce(cast(b, x.dtype), "ADD", axes) for b in (zero, endless))
    quotient = build("DIV", rest, safe)
    nothing = where(build("CMPLT", cast(endless, x.dtype), many), nan, where(endless, 0.0, e("MUL", quotient, 0.0)))
    others = where(
        e("CMPLT", zeros, 1.0),
        quotient,
        where(build("AND", zero, e("CMPLT", zeros, 2.0)), rest, nothing),
    )
    return closed_form(
        others, (x,), lambda h, y, x: (gradients(_others_without_division(x, axes), h, [x], cut=True)[x],)
    )


def _others_without_division(x: UOp, axes: tuple[int, ...]) -> UOp:
    """Return `_product_of_others`, along `axes`, by multiplications only: product of those before times those after."""
    kept = [a for a in range(len(x.shape)) if a not in axes]
    order = [*kept, *axes]
    rows = permute(x, order)
    flat = reshape(rows, (*rows.shape[: len(kept)], count(rows.shape[len(kept) :])))
    last = (len(kept),)
    others = [running_product(_shifted(u, 1)) for u in (flat, flip(flat, last))]
    out = build("MUL", others[0], flip(others[1], last))
    return permute(reshape(out, rows.shape), sorted(range(len(order)), key=order.__getitem__))


def running_product(u: UOp) -> UOp:
    """Return the inclusive running product along the last axis, by log2(n) multiplications of shifted values.

    It uses no divisions, so that all derivatives are right, also at zeros.
    """
    k = 1
    while k < size_max(u.shape[-1]):
        u = build("MUL", u, _shifted(u, k))
        k *= 2
    return u


def _shifted(u: UOp, k: int) -> UOp:
    """Return `u` shifted by `k` towards the end of the last axis; the first `k` elements are 1."""
    axis, n = len(u.shape) - 1, u.shape[-1]
    return shrink_axis(padded(u, (0,) * axis + (k,), (*u.shape[:-1], n + k), 1), axis, 0, n)


# ---- effects and calls -----------------------------------------------------------------------------------------------
def _writes(u: UOp) -> list[UOp]:
    """Return the STOREs and ATOMICADDs of the AFTER `u`, also those in GROUPs, in order; CALLs are left out."""
    out: list[UOp] = []
    stack = list(reversed(u.src[1:]))
    while stack:
        w = stack.pop()
        if w.op in ("STORE", "ATOMICADD"):
            out.append(w)
        elif w.op == "GROUP":
            stack.extend(reversed(w.src))
    return out


def _view(view: UOp, base: UOp, new: UOp) -> UOp:
    """Return the view of `new` that corresponds to `view`, a view of `base`.

    Raises GradientError if `view` is not a view of `base`.
    """
    chain = []
    while view is not base:
        if not view.src or view.op in ELEMENTWISE:
            raise GradientError("a store into something other than its buffer has no derivative", found=repr(view))
        chain.append(view)
        view = view.src[0]
    if chain:
        new = _before_other_parts(chain[-1], new)
    for v in reversed(chain):
        new = build(v.op, new, *v.src[1:], arg=v.arg)
    return new


def _before_other_parts(view: UOp, new: UOp) -> UOp:
    """Return `new` without its last stores, as long as they write parts that are disjoint from `view`.

    Otherwise each iteration of a user's loop that stores parts would read its own full-size copy.
    """
    while view.op == "SHRINK" and new.op == "AFTER" and [w.op for w in new.src] == ["CONTIGUOUS", "STORE"]:
        part = new.src[1].src[0]
        while part.src and part.src[0] is not new.src[0]:
            part = part.src[0]
        if part.op != "SHRINK" or not _are_disjoint(part, view):
            break
        new = new.src[0].src[0]
    return new


def _are_disjoint(a: UOp, b: UOp) -> bool:
    """Whether two SHRINKs of arrays of one shape are proven to have no element in common. Axes with symbolic offsets or
    sizes prove nothing.
    """
    axes = zip(a.src[1].sizes, a.shape, b.src[1].sizes, b.shape, strict=True)
    known = ((o, n, p, m) for o, n, p, m in axes if all(x.__class__ is int for x in (o, n, p, m)))
    return any(o + n <= p or p + m <= o for o, n, p, m in known)


def _after(u: UOp, g: UOp) -> list[tuple[UOp, UOp]]:
    """Return (source, gradient) pairs of the AFTER `u` from its gradient `g`, last write first.

    Each stored value gets the part of `g` that it wrote; the buffer gets the rest, if any is left.
    """
    x, out = u.src[0], []
    left: UOp | None = gradient_at(u, g)  # a write to it needs its memory on all devices of what it is gated by
    for w in reversed(_writes(u)):
        if left is None:
            break
        gate = w.src[2:]
        part = _view(w.src[0], x, left)
        out.append((w.src[1], sum_to(where(gate[0], part, 0.0) if gate else part, w.src[1].shape)))
        if w.op == "STORE" and w.src[0] is x and not gate:
            left = None
        elif w.op == "STORE":
            rest = build("CONTIGUOUS", left)
            hole = _view(w.src[0], x, rest)
            left = build("AFTER", rest, build("STORE", hole, full(hole.shape, 0, g.dtype), *gate))
    return out if left is None else [*out, (x, left)]


def _same(u: UOp, g: UOp) -> UOp:
    return g


# op -> rules, one for each source; the last rule serves any further sources.
GRADIENTS: dict[str, tuple[Rule, ...]] = {
    "ADD": (_same, _same),
    "SUB": (_same, lambda u, g: build("NEG", g)),
    "MUL": (_times(1), _times(0)),
    "MULACC": (_times(1), _times(0), _same),
    "DIV": (
        lambda u, g: build("DIV", g, u.src[1]),
        lambda u, g: build("NEG", build("DIV", build("MUL", g, u), u.src[1])),
    ),
    "NEG": (lambda u, g: build("NEG", g),),
    "RECIP": (lambda u, g: build("NEG", build("MUL", g, build("MUL", u, u))),),
    "MAX": (_max(0), _max(1)),
    "WHERE": (_same, lambda u, g: where(u.src[0], g, 0.0), lambda u, g: where(u.src[0], 0.0, g)),
    "CAST": (lambda u, g: cast(g, u.src[0].dtype),),
    "EXP2": (lambda u, g: e("MUL", build("MUL", g, u), LN_2),),
    "LOG2": (lambda u, g: build("DIV", g, e("MUL", u.src[0], LN_2)),),
    "SIN": (lambda u, g: build("MUL", g, cosine(u.src[0])),),
    "SQRT": (lambda u, g: build("DIV", g, build("ADD", u, u)),),
    "POW": (_pow_base, _pow_exponent),
    "RESHAPE": (lambda u, g: reshape(g, u.src[0].shape),),
    "EXPAND": (_expand,),
    "PERMUTE": (_permute,),
    "FLIP": (lambda u, g: flip(g, [i for i, f in enumerate(u.arg) if f]),),
    "PAD": (lambda u, g: shrink(g, u.src[1].sizes, u.src[0].shape),),
    "SHRINK": (lambda u, g: padded(g, u.src[1].sizes, u.src[0].shape),),
    "INDEX": (_index,),
    "REPLICATED": (_replicated,),
    "STACK": (_same,),
    "REDUCE": (_reduce,),
    "CONTIGUOUS": (_same,),
    "CONTIGUOUS_BACKWARD": (lambda u, g: build("CONTIGUOUS", g),),
    "LOAD": (_load, _load_alternative),
}


__all__ = [
    "Backward",
    "GRADIENTS",
    "NOT_DIFFERENTIABLE",
    "NO_GRAPH",
    "SPENT",
    "cat",
    "cosine",
    "gradients",
    "gradients_of_roots",
    "is_without_graph",
    "padded",
    "reach",
    "refuse_without_graph",
    "release_graph",
    "remember",
    "running_product",
]
