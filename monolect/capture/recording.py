"""Run a step's function once, and make a capture of the run.

The function runs on placeholders for its arguments, so every other Tensor that it reads is external. The values that it
returns, assigns and leaves as gradients are computed in one batch, and recorded.

Invariant: the run leaves every Tensor as the function would leave it if it were not jitted.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any

from monolect.autograd.gradient import OUTSIDE, SPENT, is_without_graph, reach
from monolect.base.collector import collection_paused
from monolect.base.dtype import dtypes
from monolect.base.errors import JitError
from monolect.capture.around import (
    copy_foreign_storage,
    external_reads,
    random_generators,
    realize_dependencies,
    realize_external_values,
    refuse_aliased,
    refuse_draws,
    refuse_external_arguments,
    refuse_nondeterminism,
    separate_storage,
)
from monolect.capture.captured import Captured, Spec, is_flat, resolve, run_checks, spec_placeholder
from monolect.capture.environment import nondeterminism
from monolect.capture.environment.dependencies import Dependencies, attributes_of
from monolect.capture.gradients import (
    FinalGradients,
    Supplied,
    gradient_supplier,
    initial_gradients,
    refuse_ambiguous_gradients,
    refuse_duplicates,
    rewrap_gradients,
)
from monolect.capture.returned import describe_results, rebuild_results, replace_tensors
from monolect.ir.rewrite.calls import is_body
from monolect.ir.uop import UOp, new_buffer, toposort
from monolect.runtime.buffer import as_alias, base_of, is_realized
from monolect.runtime.realize import execute
from monolect.runtime.replay.capture import Capture, aliased_arguments
from monolect.runtime.replay.in_progress import Check, NotKept, changes, steps
from monolect.runtime.replay.record import external, record
from monolect.tensor import random as random_state
from monolect.tensor.state.copied import copied
from monolect.tensor.tensor import Tensor, leaf_nodes, leaves, live_tensors
from monolect.tensor.tree import check_results, flatten, kind, kind_of, unflatten
from monolect.tensor.view import root_of


class Recording:
    """One run of the function of `step`, a Jit, for a call with the key `key` and the arguments `args` and `kwargs`, to
    make a capture of it.

    `tensors`: the Tensors in the arguments, each once; `nodes`: their BUFFERs.
    """

    def __init__(self, step: Any, key: Any, args: Any, kwargs: Any, tensors: list[Tensor], nodes: list[UOp]) -> None:
        self.step, self.key, self.given = step, key, (args, kwargs)
        self.runs: list[execute.Run] = []
        self.start = new_buffer((), dtypes.bool, "cpu").serial  # serial number; nodes of the step have larger ones
        self.by_call = self.tensors = tensors  # supplied gradients will be appended to `tensors`
        self.placeholders = [*map(_placeholder, tensors, nodes)]
        self.inputs = [t._uop for t in self.placeholders]
        self.kinds = tuple(map(kind, self.placeholders))
        known = (*leaves(), *self.placeholders, *(t for t, _ in step.environment.flags))  # the views among them, too
        self.before = {id(t): (t, t._grad) for t in known}  # (Tensor, its gradient) by id
        self.arguments: list[Tensor] = []  # Tensors among the arguments, in order
        flatten(self.given, self.arguments)
        as_given = unflatten(self.given, iter(map(spec_placeholder, self.arguments)))
        self.spec = Spec(as_given[0], as_given[1], key[2], key[3], step.environment.attributes, key[4])
        self.reached = step.environment, Dependencies(self.given, step.environment.attributes)
        self.known = self.before.keys() | {id(t) for r in self.reached for t, _ in r.flags}  # ids of external Tensors
        self.checks: list[tuple[Check, Tensor, Tensor]] = []
        self.supplied: Supplied = []

    def run(self) -> tuple[Any, Captured | None]:
        """Run and record the function. Return (results, Captured), or (results, None) if this run cannot be replayed.

        It cannot be replayed if another thread computed a state of the step, if a state has no memory of its own yet,
        or if a gradient of a later call would pass to this call. The next call is then captured again.
        """
        generators = random_generators(*self.reached)
        realize_dependencies([t for r in self.reached for t in r.tensors], self.inputs)
        placeholder_of = {id(t): s for t, s in zip(self.tensors, self.placeholders, strict=True)}
        args, kwargs = unflatten(self.given, iter([placeholder_of[id(t)] for t in self.arguments]))
        with execute.listening.to(self.runs), changes.seen() as self.seen:
            self.seen.checks, self.seen.start, self.seen.inputs = self.checks, self.start, frozenset(self.inputs)
            self.seen.known = self.known
            self.seen.bring, self.seen.on_read = (
                gradient_supplier(self.supplied, _placeholder),
                self.step.not_kept.on_read,
            )
            with nondeterminism.watch_calls(any(r.needs_watch for r in self.reached), refuse_nondeterminism):
                result = [steps.call(self.step._unjitted(), args, kwargs)]
            self._add_gradients()
            refuse_draws(generators)
            _refuse_changes(
                (args, kwargs), self.arguments, [placeholder_of[id(t)] for t in self.arguments], self.spec, self.key
            )
            self._describe(result.pop())
            self._compute()
        with collection_paused():
            return self._finish(is_flat(args, kwargs, self.by_call))

    def _add_gradients(self) -> None:
        """Append the supplied gradients (existing gradients that are inputs) to the arguments, and raise JitError if
        these share memory with assigned Tensors.
        """
        self.tensors = [*self.tensors, *(g for _, g, *_ in self.supplied)]
        self.placeholders += [s for *_, s, _ in self.supplied]
        self.inputs += [u for *_, u in self.supplied]
        self.position = {id(t): i for i, t in enumerate(self.placeholders)}
        changed = [t for t, _ in self.seen.alive()]
        refuse_external_arguments(aliased_arguments(self.tensors, changed, ()))
        refuse_aliased(self.step._aliased_arguments(self.tensors, self.by_position(changed)))
        refuse_duplicates(self.tensors, self.by_position(changed))
        refuse_ambiguous_gradients(
            self.step._as_given(self.tensors), self.by_position([t for t, _ in self.seen.looked.alive()])
        )

    def by_position(self, tensors: list[Tensor]) -> list[Any]:
        """Return `tensors` with each placeholder of an argument or supplied gradient replaced by its position (int)."""
        return [self.position.get(id(t), t) for t in tensors]

    def _owner(self, t: Tensor) -> Any:
        return self.position.get(id(t), t)

    def name(self, t: Tensor) -> Any:
        """Return how the capture refers to `t`: its position if it is an argument, or `t` itself if it is an external
        Tensor.

        Return None for a Tensor that the step made, and for a donated argument, which the step may overwrite.
        """
        at = self.position.get(id(t))
        if at is None:
            return t if id(t) in self.known else None
        return None if at in self.donated else at

    def _describe(self, result: Any) -> None:
        """Set the attributes that tell a replay how to rebuild `result`, the results of the function, and the gradients
        that the step sets: a template of the containers, Leaf rules, and the Tensors to compute.

        Then release the Tensors that only the function and its result held, because they are not state.
        """
        step, seen = self.step, self.seen
        positions = {id(t): i for i, t in enumerate(self.tensors)}
        grads = [g for _, g in seen.looked.alive() if isinstance(g, Tensor)]  # those that the step read
        self.known = self.known.union(map(id, grads))
        self.donated = {positions[id(t)] for t in step.donation.tensors(*self.given)}
        outputs: list[Tensor] = []
        flatten(result, outputs)
        check_results(result, _objects(self.given, step.owner), "jitted function")
        self.template = unflatten(result, itertools.repeat(Tensor._holding(new_buffer((), dtypes.bool, "cpu"))))
        own = rewrap_gradients(seen.looked, self.name)
        outputs = replace_tensors(outputs, own)
        returned = {id(root_of(t)) for t in outputs}  # a gradient among the results must be stored at each call
        updated = [] if step.keeps_gradients else [t for t, _ in seen.alive() if id(t._grad) not in returned]
        self.final = final = FinalGradients(self.before, updated, seen.looked, self.name)
        del updated
        kept = [t._grad for t in final.kept]
        n, given = len(outputs), [t._grad for t in final.aliased]
        outputs, leaves = describe_results([*outputs, *given], kept, self.name)
        self.leaves = leaves[:n]
        self.aliased_gradients = [*zip(map(self._owner, final.aliased), leaves[n:], strict=True)]
        for t, g in zip(final.aliased, given, strict=True):
            t._grad = Tensor._holding(g._uop) if g._is_view else g  # the base of the view is not state
        del given
        self.returned = [(weakref.ref(t), t._uop) for t in outputs]
        outputs = [t if id(t) in self.before and not t._is_view else Tensor._holding(t._uop) for t in outputs]
        del result, own
        separate_storage([t for t, _ in seen.alive()])
        for t in final.consumed:
            t._grad = NotKept(step.not_kept.on_read, t._grad)
        self.outputs, self.values = outputs, [*outputs, *kept]
        self.delayed = [t._grad.tensor for t in (*final.consumed, *final.dropped)]
        self.found_gradients = initial_gradients(seen.looked, self.before, self.supplied)
        self.check_values = [t for _, *both in self.checks for t in both]
        self.without_graph = _values_without_graph(outputs)
        states = [t for t, _ in seen.alive() if not t._requires_grad]
        self.lost = {id(states[i]) for i in _values_without_graph(states)}

    def _compute(self) -> None:
        """Compute all results, gradients and states of the step in one batch, together with pending values of external
        Tensors.
        """
        reached = [t for r in self.reached for t in r.tensors]
        self.live = functools.cache(lambda: live_tensors(reached))
        assigned = [t for t, _ in self.seen.alive()]
        batch = [*self.values, *self.check_values, *assigned, *random_state.pending()]
        order = toposort(*(t._uop for t in batch), stop=is_body)  # constants inside kernels belong to no Tensor
        graph = {u for u in order if u.serial < self.start and not is_realized(u)}
        found_outside = set(map(id, reached)).difference(map(id, assigned))
        own = {id(t) for t in (*batch, *self.delayed)} - found_outside  # the step may return an external Tensor itself
        realized, sources = realize_external_values(self.live, batch, own, graph, {u for _, u in self.seen.alive()})
        self.graph = (graph - realized) | sources
        own_values = [t for t in self.values if id(t) not in self.before and not is_realized(t._uop) and not t._is_view]
        moved = [t for t, u in self.seen.alive() if t._uop is not u]
        copy_foreign_storage([*moved, *own_values], {b for r in self.runs for b in r.made})
        if batch:
            batch[0].realize(*batch[1:])
        parts = [t for t in moved if t._uop.op != "BUFFER"]  # views of computed values, such as of a sorted row
        for t in parts:
            t._uop = copied(t._uop)
        if parts:
            parts[0].realize(*parts[1:])

    def _finish(self, has_tensors_alone: bool) -> tuple[Any, Captured | None]:
        """Give the arguments the nodes and gradients of their placeholders. Return (results, Captured), or (results,
        None) if the run cannot be replayed.

        `has_tensors_alone`: all arguments are Tensors by position, each once.
        """
        step, final, tensors, inputs = self.step, self.final, self.tensors, self.inputs
        states = [(self.position.get(id(t), t), before, t._uop) for t, before in self.seen.alive()]
        checks = tuple([check for check, *_ in self.checks])
        if checks:
            run_checks(checks, self.check_values)
        outs = [t._uop for t in (*self.values, *self.check_values)]
        made = {b for r in self.runs for b in r.made}
        new = made.intersection(base_of(self.outputs[i]._uop) for i in self.without_graph)
        new |= made.intersection(base_of(t._uop) for t, _ in self.seen.alive() if id(t) in self.lost)
        for b in new:  # BUFFERs that existed before keep their origin
            b.origin = step._origin(True)
        fresh = [self._as_held(i) for i in range(len(self.outputs))]
        olds = {before for _, before, _ in states}
        read = {*external([(r.read, r.made) for r in self.runs], inputs)} - olds
        shown = {base_of(u) for u in outs}.difference(read, olds, inputs, made)
        mine = {id(t) for t in (*self.outputs, *fresh, *self.delayed)}.difference(self.before)
        reads, baked_in = external_reads(lambda: [t for t in self.live() if id(t) not in mine], read, self.graph, shown)
        inside = Dependencies((self.spec.args, self.spec.kwargs), step.environment.attributes)  # Tensors of objects
        environment = {id(t) for d in (step.environment, inside) for t in d.tensors}  # others may be views of memory
        outside = [*(t for t, _ in reads), *(t for t in tensors if t._uop in read | shown and id(t) in environment)]
        assigned = [s for s, *_ in states]
        refuse_external_arguments(aliased_arguments(tensors, assigned, outside))
        refuse_aliased(step._aliased_arguments(tensors, assigned, [*outside, *(ref() for ref, _ in baked_in)]))
        self._give_back()
        others = {t._uop for r in self.reached for t in r.tensors}
        shared = others if len(olds) == len(states) else olds
        values = [*fresh, *self.values[len(fresh) :]]
        leaves = [*self.leaves, *(leaf for _, leaf in self.aliased_gradients)]
        found = rebuild_results(leaves, values, functools.partial(resolve, tensors=step._as_given(tensors)))
        back = unflatten(self.template, found)
        for (owner, _), g in zip(self.aliased_gradients, found, strict=True):
            resolve(owner, tensors)._grad = g
        if self.seen.is_disturbed or any(
            b.op != "BUFFER" or b.storage is None or a.op != "BUFFER" or b in shared for _, b, a in states
        ):
            return back, None
        if self._may_pass_to_earlier_calls(states):
            return back, None
        capture = Capture(*record(self.runs, inputs, outs, states, reads, self.donated), baked_in)
        results = [capture.outputs[i] for i in self.without_graph]
        moved = self._mark_states(capture)
        brought = [kind_of(u, g._requires_grad) for _, g, _, u in self.supplied]
        return back, Captured(
            capture,
            self.template,
            (*self.kinds, *brought),
            has_tensors_alone and not (baked_in or checks or step.donation.arguments),
            self.by_position(final.kept),
            self.spec,
            {},
            self.by_position(final.cleared),
            self.by_position(final.consumed),
            [(self.position.get(id(t), t), g) for t, g in self.found_gradients],
            self.by_position(final.dropped),
            frozenset(k for v in (*results, *moved) if (k := v.made_at) is not None),
            checks,
            self.leaves,
            self.aliased_gradients,
        )

    def _may_pass_to_earlier_calls(self, states: list[tuple[Any, UOp, UOp]]) -> bool:
        """Whether the step reads gradients, and an unjitted call would give one of its states a graph for the first
        time.

        `states`: (tensor or argument number, node before, node after). In the next call a gradient would then flow
        through this state into the graph of this call, which a replay does not have. So this run becomes no capture:
        the next call is captured, which raises GradientError in that case.
        """
        if not self.seen.looked.alive():
            return False
        return any(id(t) in self.lost and not is_without_graph(before) for t, before, _ in states)

    def _mark_states(self, capture: Capture) -> list[Any]:
        """Set the origin of each state of `capture` that an unjitted call would give a graph, so that errors can say
        that a replay builds no graph.

        Return the new values of those of these states that get new memory at each call (`Capture.moves`).
        """
        moved = []
        lost = {self.position.get(i, i) for i in self.lost}
        for s in (*capture.moves, *capture.in_place):
            if (id(s.tensor) if s.argument is None else s.argument) in lost:
                s.origin = self.step._origin(True)
                moved += [] if s.after is None else [s.after]
        return moved

    def _as_held(self, i: int) -> Tensor:
        """Return a new Tensor of result number `i`, or the Tensor itself if the function also stored it, as in an
        attribute.

        A Tensor with a graph keeps its graph, so its result is always a new Tensor.
        """
        ref, node = self.returned[i]
        t = None if i in self.without_graph else ref()
        if t is None or t._is_view or id(t) in self.before:
            return Tensor._holding(self.outputs[i]._uop)
        if t._uop is node:
            t._uop = self.outputs[i]._uop
        return t

    def _give_back(self) -> None:
        """Move the nodes and gradients of the placeholders back to the arguments and supplied gradients that they
        replaced.
        """
        for t, g, placeholder, _ in self.supplied:
            if t._grad is placeholder:
                t._grad = g
        for t, placeholder, u in zip(self.tensors, self.placeholders, self.inputs, strict=True):
            if placeholder._uop is not u:
                t._uop = placeholder._uop
            known = self.before.get(id(placeholder))
            if known is None or placeholder._grad is not known[1]:  # if unchanged, it may be an external Tensor's
                t._grad = placeholder._grad


def _objects(given: tuple[tuple, dict[str, Any]], owner: Callable[[], Any] | None) -> set[int]:
    """Return the ids of the arguments in `given`, (args, kwargs), without objects inside of them, and of the instance
    of a method, which `owner` returns (None for a plain function).
    """
    args, kwargs = given
    return {id(x) for x in (*args, *kwargs.values(), owner and owner())}


def _refuse_changes(now: Any, tensors: list[Tensor], placeholders: list[Tensor], spec: Spec, key: Any) -> None:
    """Raise JitError if the function changed a list, a dict or an object that is an argument, because a replay would
    not change it.

    `now`: (args, kwargs) after the run, which hold `placeholders` in place of `tensors`. `spec` describes the call;
    `key` is its key before the run.
    """
    final: list[Tensor] = []
    flatten(now, final)
    same = len(final) == len(placeholders) and all(a is s for a, s in zip(final, placeholders, strict=True))
    args, kwargs = unflatten(now, iter(tensors)) if same else ((), {})
    if not same or spec._replace(args=args, kwargs=kwargs).key != key:
        expected = "a function that returns what is new, or assigns to Tensors"
        raise JitError("a jitted function changes an argument", expected=expected, found=spec.describe())


def _placeholder(t: Tensor, node: UOp) -> Tensor:
    """Return a Tensor that replaces the argument `t` during the run. `node`: the BUFFER of `t`.

    The placeholder has a new BUFFER with the same memory. If the function also reaches `t` in another way, `t` is
    recognized as an external Tensor.
    """
    u = as_alias(node)
    if is_without_graph(node):
        u.origin = node.origin
    elif not t._requires_grad and (leaves := leaf_nodes()) and not reach(node, leaves).isdisjoint(leaves):
        u.origin = ("", 0, OUTSIDE)
    new = type(t)._holding(u)  # a user's subclass keeps its attributes
    if (own := attributes_of(new)) is not None:
        own.update(attributes_of(t) or {})
    if t._requires_grad:
        new.requires_grad = True
    new._grad = t._grad
    return new


def _values_without_graph(outputs: list[Tensor]) -> list[int]:
    """Return the indices of those of `outputs`, results and states, that an unjitted call would give a graph, which a
    replay does not build.

    A gradient of such a value would reach a leaf, or a value whose graph was released or is missing.
    """
    leaves = leaf_nodes()
    made = [(i, t._uop) for i, t in enumerate(outputs) if t._uop.op != "BUFFER"] if leaves else []
    return [i for i, u in made if any(v in leaves or v.tag == SPENT or is_without_graph(v) for v in reach(u, leaves))]


__all__ = ["Recording"]
