"""One run of a step's function, and the capture that is made of it.

The function runs on stand-ins for its arguments: any other Tensor that it meets is seen to be from outside. What it
computed, assigned, returned and left as gradients is computed once, and recorded.

Invariant: the run leaves every Tensor as the function, run plainly, would have left it.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any

from monolect.autograd.gradient import SPENT, reach
from monolect.base.dtype import dtypes
from monolect.base.errors import JitError
from monolect.capture.around import (
    apart,
    compute_reached,
    computed_outside,
    move_in,
    passing,
    readers,
    refuse_asking,
    refuse_draws,
    refuse_shared,
    refuse_two_ways,
)
from monolect.capture.captured import Captured, Spec, given, is_flat, look, marked
from monolect.capture.environment import nondeterminism as drawn
from monolect.capture.environment.dependencies import Reach, own_of
from monolect.capture.gradients import (
    After,
    Brought,
    bringing,
    found_by,
    own_gradients,
    refuse_both_gradients,
    refuse_twice,
)
from monolect.capture.returned import described, put_back, results
from monolect.ir.rewrite.calls import is_body
from monolect.ir.uop import UOp, new_buffer, toposort
from monolect.runtime.buffer import base_of, is_realized
from monolect.runtime.realize import execute
from monolect.runtime.replay.capture import Capture, Check, NotKept, changes, steps, two_ways
from monolect.runtime.replay.record import external, record
from monolect.tensor import random as random_state
from monolect.tensor.tensor import Tensor, copied, leaf_nodes, leaves, live_tensors
from monolect.tensor.tree import check_results, flatten, kind, unflatten
from monolect.tensor.view import root_of


class Recording:
    """A run of `step`, a Jit, for a call of that key. `tensors`: the arguments, each once; `nodes`: their BUFFERs."""

    def __init__(self, step: Any, key: Any, args: Any, kwargs: Any, tensors: list[Tensor], nodes: list[UOp]) -> None:
        self.step, self.key, self.given = step, key, (args, kwargs)
        self.runs: list[execute.Run] = []
        self.start = new_buffer((), dtypes.bool, "cpu").serial  # nodes of the step have later numbers
        self.by_call = self.tensors = tensors  # `tensors`: gradients that the call brings are the last
        self.stand_ins = [*map(_stand_in, tensors, nodes)]
        self.inputs = [t._uop for t in self.stand_ins]
        self.kinds = tuple(map(kind, self.stand_ins))
        known = (*leaves(), *self.stand_ins, *step.around.tensors)
        self.before = {id(t): (t, t._grad) for t in known}  # gradients
        self.found: list[Tensor] = []  # the arguments, in their order
        flatten(self.given, self.found)
        as_given = unflatten(self.given, iter(map(marked, self.found)))
        self.spec = Spec(as_given[0], as_given[1], key[2], key[3], step.around.named, key[4])
        self.reached = step.around, Reach(self.given, step.around.named)
        self.checks: list[tuple[Check, Tensor, Tensor]] = []
        self.brought: Brought = []

    def run(self) -> tuple[Any, Captured | None]:
        """What the call returns, and the capture; None for a step with state that only now got a buffer of its own."""
        generators = passing(*self.reached)
        compute_reached([t for r in self.reached for t in r.tensors], self.inputs)
        stand_in = {id(t): s for t, s in zip(self.tensors, self.stand_ins, strict=True)}
        args, kwargs = unflatten(self.given, iter([stand_in[id(t)] for t in self.found]))
        with execute.listening.to(self.runs), changes.seen() as self.seen:
            self.seen.checks, self.seen.start, self.seen.inputs = self.checks, self.start, frozenset(self.inputs)
            self.seen.bring, self.seen.asked = bringing(self.brought, _stand_in), self.step.not_kept.asked
            with drawn.heard(any(r.asks for r in self.reached), refuse_asking):
                result = [steps.call(self.step._plain(), args, kwargs)]
            self._add_gradients()
            refuse_draws(generators)
            _refuse_changes((args, kwargs), self.found, [stand_in[id(t)] for t in self.found], self.spec, self.key)
            self._describe(result.pop())
            self._compute()
        return self._finish(is_flat(args, kwargs, self.by_call))

    def _add_gradients(self) -> None:
        """The gradients that the call brings are arguments, too."""
        self.tensors = [*self.tensors, *(g for _, g, *_ in self.brought)]
        self.stand_ins += [s for *_, s, _ in self.brought]
        self.inputs += [u for *_, u in self.brought]
        self.place = {id(t): i for i, t in enumerate(self.stand_ins)}
        changed = [t for t, _ in self.seen.alive()]
        refuse_two_ways(two_ways(self.tensors, changed, ()))
        refuse_shared(self.step._shared(self.tensors, self.named(changed)))
        refuse_twice(self.tensors, self.named(changed))
        refuse_both_gradients(self.step._shown(self.tensors), self.named([t for t, _ in self.seen.looked.alive()]))

    def named(self, tensors: list[Tensor]) -> list[Any]:
        """Arguments by place, others as they are."""
        return [self.place.get(id(t), t) for t in tensors]

    def _owner(self, t: Tensor) -> Any:
        return self.place.get(id(t), t)

    def name(self, t: Tensor) -> Any:
        """The place of an argument, a Tensor from outside itself; None for one that the step made, or that it may
        write over.
        """
        at = self.place.get(id(t))
        if at is None:
            return t if id(t) in self.known else None
        return None if at in self.donated else at

    def _describe(self, result: Any) -> None:
        """What the step returns and leaves. Afterwards Tensors that nobody but the function and its result held are
        gone: they are no state.
        """
        step, seen = self.step, self.seen
        places = {id(t): i for i, t in enumerate(self.tensors)}
        shown = [g for _, g in seen.looked.alive() if isinstance(g, Tensor)]  # gradients that are views
        self.known = self.before.keys() | {id(t) for r in self.reached for t, _ in r.flags} | {*map(id, shown)}
        self.donated = {places[id(t)] for t in step.donation.tensors(*self.given)}
        outputs: list[Tensor] = []
        flatten(result, outputs)
        check_results(result, _objects(self.given, step.owner), "jitted function")
        self.template = unflatten(result, itertools.repeat(Tensor._wrap(new_buffer((), dtypes.bool, "cpu"))))
        own = own_gradients(seen.looked, self.name)
        outputs = put_back(outputs, own)
        returned = {id(root_of(t)) for t in outputs}  # a gradient among them is read at each call
        updated = [] if step.keeps else [t for t, _ in seen.alive() if id(t._grad) not in returned]
        self.after = after = After(self.before, updated, seen.looked, self.name)
        del updated
        kept = [t._grad for t in after.kept]
        n, given = len(outputs), [t._grad for t in after.given]
        outputs, leaves = described([*outputs, *given], kept, self.name)
        self.leaves, self.shared = leaves[:n], [*zip(map(self._owner, after.given), leaves[n:], strict=True)]
        for t, g in zip(after.given, given, strict=True):
            t._grad = Tensor._wrap(g._uop) if g._is_view else g  # what it is a view of is no state
        del given
        self.returned = [(weakref.ref(t), t._uop) for t in outputs]
        outputs = [t if id(t) in self.before and not t._is_view else Tensor._wrap(t._uop) for t in outputs]
        del result, own
        apart([t for t, _ in seen.alive()])
        for t in after.used_up:
            t._grad = NotKept(step.not_kept.asked, t._grad)
        self.outputs, self.values = outputs, [*outputs, *kept]
        self.late = [t._grad.tensor for t in (*after.used_up, *after.dropped)]
        self.found_gradients = found_by(seen.looked, self.before, self.brought)
        self.looks = [t for _, *both in self.checks for t in both]
        self.lost = _lost(outputs)

    def _compute(self) -> None:
        """Compute everything in one batch, what Tensors from outside stood for included."""
        reached = [t for r in self.reached for t in r.tensors]
        self.live = functools.cache(lambda: live_tensors(reached))
        assigned = [t for t, _ in self.seen.alive()]
        batch = [*self.values, *self.looks, *assigned, *random_state.pending()]
        order = toposort(*(t._uop for t in batch), stop=is_body)  # a constant in a kernel is nobody's tensor
        graph = {u for u in order if u.serial < self.start and not is_realized(u)}
        found_outside = set(map(id, reached)).difference(map(id, assigned))
        own = {id(t) for t in (*batch, *self.late)} - found_outside  # the step may return one as it is
        gone, sources = computed_outside(self.live, batch, own, graph, {u for _, u in self.seen.alive()})
        self.graph = (graph - gone) | sources
        own_values = [t for t in self.values if id(t) not in self.before and not is_realized(t._uop) and not t._is_view]
        moved = [t for t, u in self.seen.alive() if t._uop is not u]
        move_in([*moved, *own_values], {b for r in self.runs for b in r.fresh})
        if batch:
            batch[0].realize(*batch[1:])
        parts = [t for t in moved if t._uop.op != "BUFFER"]  # views of what was computed, as of a sorted row
        for t in parts:
            t._uop = copied(t._uop)
        if parts:
            parts[0].realize(*parts[1:])

    def _finish(self, has_tensors_alone: bool) -> tuple[Any, Captured | None]:
        """Give the arguments what their stand-ins got, and record what ran."""
        step, after, tensors, inputs = self.step, self.after, self.tensors, self.inputs
        states = [(self.place.get(id(t), t), before, t._uop) for t, before in self.seen.alive()]
        checks = tuple([check for check, *_ in self.checks])
        if checks:
            look(checks, self.looks)
        outs = [t._uop for t in (*self.values, *self.looks)]
        made = {b for r in self.runs for b in r.fresh}
        for b in made.intersection(base_of(self.outputs[i]._uop) for i in self.lost):  # what was there is as it was
            b.origin = step._origin(True)
        fresh = [self._as_held(i) for i in range(len(self.outputs))]
        olds = {before for _, before, _ in states}
        read = {*external(self.runs, inputs)} - olds
        shown = {base_of(u) for u in outs}.difference(read, olds, inputs, made)
        mine = {id(t) for t in (*self.outputs, *fresh, *self.late)}.difference(self.before)
        reads, woven = readers(lambda: [t for t in self.live() if id(t) not in mine], read, self.graph, shown)
        around = {id(t) for t in step.around.tensors}  # another Tensor may be a view of the same memory
        outside = [*(t for t, _ in reads), *(t for t in tensors if t._uop in read | shown and id(t) in around)]
        assigned = [s for s, *_ in states]
        refuse_two_ways(two_ways(tensors, assigned, outside))
        refuse_shared(step._shared(tensors, assigned, [*outside, *(ref() for ref, _ in woven)]))
        self._give_back()
        others = {t._uop for r in self.reached for t in r.tensors}
        shared = others if len(olds) == len(states) else olds
        values = [*fresh, *self.values[len(fresh) :]]
        leaves = [*self.leaves, *(leaf for _, leaf in self.shared)]
        found = results(leaves, values, functools.partial(given, tensors=step._shown(tensors)))
        back = unflatten(self.template, found)
        for (owner, _), g in zip(self.shared, found, strict=True):
            given(owner, tensors)._grad = g
        if any(b.op != "BUFFER" or b.storage is None or a.op != "BUFFER" or b in shared for _, b, a in states):
            return back, None
        capture = Capture(*record(self.runs, inputs, outs, states, reads, self.donated), woven)
        brought = [(u.src[0], u.dtype, u.arg.device, g._requires_grad) for _, g, _, u in self.brought]
        return back, Captured(
            capture,
            self.template,
            (*self.kinds, *brought),
            has_tensors_alone and not (woven or checks or step.donation.arguments),
            self.named(after.kept),
            self.spec,
            {},
            self.named(after.cleared),
            self.named(after.used_up),
            [(self.place.get(id(t), t), g) for t, g in self.found_gradients],
            self.named(after.dropped),
            frozenset(v.at for i in self.lost if (v := capture.outputs[i]).source == "fresh"),
            checks,
            self.leaves,
            self.shared,
        )

    def _as_held(self, i: int) -> Tensor:
        """A new Tensor of a result; the Tensor itself where the function has also put it somewhere, as into an
        attribute. One with a graph keeps it, as no result does.
        """
        ref, node = self.returned[i]
        t = None if i in self.lost else ref()
        if t is None or t._is_view or id(t) in self.before:
            return Tensor._wrap(self.outputs[i]._uop)
        if t._uop is node:
            t._uop = self.outputs[i]._uop
        return t

    def _give_back(self) -> None:
        """The arguments and brought gradients get the nodes and gradients of their stand-ins."""
        for t, g, stand_in, _ in self.brought:
            if t._grad is stand_in:
                t._grad = g
        for t, stand_in, u in zip(self.tensors, self.stand_ins, self.inputs, strict=True):
            if stand_in._uop is not u:
                t._uop = stand_in._uop
            known = self.before.get(id(stand_in))
            if known is None or stand_in._grad is not known[1]:  # else it may be that of the Tensor from outside
                t._grad = stand_in._grad


def _objects(given: tuple[tuple, dict[str, Any]], owner: Callable[[], Any] | None) -> set[int]:
    """The arguments, by identity, and the instance of a method."""
    args, kwargs = given
    return {id(x) for x in (*args, *kwargs.values(), owner and owner())}


def _refuse_changes(now: Any, tensors: list[Tensor], stand_ins: list[Tensor], spec: Spec, key: Any) -> None:
    """Raise JitError when the function changed a list, a dict or an object that is an argument: no replay would."""
    after: list[Tensor] = []
    flatten(now, after)
    same = len(after) == len(stand_ins) and all(a is s for a, s in zip(after, stand_ins, strict=True))
    args, kwargs = unflatten(now, iter(tensors)) if same else ((), {})
    if not same or spec._replace(args=args, kwargs=kwargs).key != key:
        expected = "a function that returns what is new, or assigns to Tensors"
        raise JitError("a jitted function changes an argument", expected=expected, found=spec.describe())


def _stand_in(t: Tensor, node: UOp) -> Tensor:
    """What the function gets in place of an argument: what else is the same tensor is then seen to be from outside."""
    u = new_buffer(node.shape, node.dtype, node.arg.device)
    u.storage = node.storage
    new = type(t)._wrap(u)  # of a class of the user's with its attributes
    if (own := own_of(new)) is not None:
        own.update(own_of(t) or {})
    if t._requires_grad:
        new.requires_grad = True
    new._grad = t._grad
    return new


def _lost(outputs: list[Tensor]) -> list[int]:
    """The places of results whose gradients would reach a leaf, or did: a replay has no graph of them."""
    leaves = leaf_nodes()
    made = [(i, t._uop) for i, t in enumerate(outputs) if t._uop.op != "BUFFER"] if leaves else []
    return [i for i, u in made if any(v in leaves or v.tag == SPENT for v in reach(u, leaves))]


__all__ = ["Recording"]
