"""Around a captured step: Tensors that are neither its arguments nor its results.

Purpose: compute what is pending before and after the function ran, find the Tensors that the step reads, and refuse
what a replay could not repeat.
Invariant: a value that was computed outside is no part of the step, and a later assignment to it is seen.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from monolect.backend.registry import is_on_disk
from monolect.base.errors import JitError
from monolect.capture.environment import nondeterminism as drawn
from monolect.capture.environment.dependencies import Reach
from monolect.ir.placement import device
from monolect.ir.rewrite.calls import is_body
from monolect.ir.uop import UOp, build, substitute_all, toposort
from monolect.runtime.binding import variables
from monolect.runtime.buffer import base_of, is_realized
from monolect.runtime.realize import execute
from monolect.tensor import random as random_state
from monolect.tensor.base import as_device
from monolect.tensor.tensor import Tensor, copied

Live = Callable[[], list[Tensor]]
Readers = tuple[list[tuple[Tensor, UOp]], list[tuple[weakref.ref[Tensor], UOp]]]


def compute_reached(tensors: Iterable[Tensor], inputs: Iterable[UOp]) -> None:
    """Compute what Tensors that the step reaches have not computed yet: it is no part of the step, and the step would
    not see a later assignment. A snapshot in the memory of another Tensor, such as `t.flip(0)`, gets memory of its own:
    the step would bind that memory to later versions. So does a constant: the numbers that the step writes itself are
    the same node, and stay when it is assigned. Left out are files, what a Variable steers, and constants where neither
    what the step reaches nor its `inputs` are on the default device.
    """
    tensors = [*tensors]
    places = {device(u) for u in (*inputs, *(t._uop for t in tensors))} - {None}
    default = as_device(None) if not places or as_device(None) in places else None
    pending = [
        t
        for t in tensors
        if t._uop.op != "BUFFER" and (d := device(t._uop) or default) is not None and not is_on_disk(d)
    ]
    pending = [t for t in pending if not variables(*toposort(t._uop))]
    if snapshots := [t for t in pending if is_realized(t._uop)]:
        copies = execute.realize([build("CONTIGUOUS", t._uop) for t in snapshots])
        for t, u in zip(snapshots, copies, strict=True):
            t.uop = u
    if pending := [t for t in pending if not is_realized(t._uop)]:
        pending[0].realize(*pending[1:])


def computed_outside(
    live: Live, batch: list[Tensor], own: set[int], graph: set[UOp], olds: set[UOp]
) -> tuple[set[UOp], set[UOp]]:
    """Realise what Tensors from outside still stand for in the `graph` of the step; the nodes that are gone now,
    and those they were computed from. The step may as well have written the same expression of these as read the
    value: where they change it is captured again. A constant stays one, which the step may as well have written.

    It is no part of the step, whose Tensors are `own`: a replay must not draw initial weights anew. Of what a
    Variable steers only that which none does: equal expressions are one node, and that of the step takes another
    value at each call. What is made from `olds`, which the step assigns, is taken for its own expression.
    """
    if not graph:
        return set(), set()
    outside = [t for t in live() if t._uop in graph and id(t) not in own and device(t._uop) is not None]
    outside = [t for t in outside if olds.isdisjoint(map(base_of, toposort(t._uop, stop=is_realized)))]
    if not outside:
        return set(), set()
    roots = _whatever_is_bound({t._uop for t in outside})
    state = {u for t in random_state.tensors() for u in (t._uop, base_of(t._uop))}
    sources = {base_of(u) for u in toposort(*roots, stop=is_realized) if is_realized(u)} - state
    captures, execute.listening.captures = execute.listening.captures, []
    try:
        new = dict(zip(roots, execute.realize(roots), strict=True))
    finally:
        execute.listening.captures = captures
    for t in outside:
        t.uop = new.get(t._uop, t._uop)
    new |= {u: u for u in toposort(*(t._uop for t in batch), stop=is_body) if is_body(u)}
    for t, u in zip(batch, substitute_all(tuple(t._uop for t in batch), new), strict=True):
        if not t._is_view:  # a view follows its base
            t._uop = u
    left = {u for u in toposort(*(t._uop for t in batch), stop=is_body) if not is_realized(u)}
    return graph - left, sources | {base_of(u) for u in new.values() if is_realized(u)}


def readers(live: Live, found: set[UOp], graph: set[UOp], shown: set[UOp]) -> Readers:
    """The tensors that the step reads from outside, buffers `found`, so that a later assign to one is seen.

    One that alone has a buffer can be bound anew. What a tensor is that is a view of one, shares one, was still
    part of the step's `graph`, or was until it was computed beside the step, is woven into the kernels, and what a
    result only shows, buffers `shown`, into that: the step is captured again when it changes.
    """
    around = found | shown
    tensors = live() if around or graph else []
    holders = [t for t in tensors if t._uop in found]
    shared = Counter(b for t in tensors if (b := base_of(t._uop)) in found)
    reads = [(t, t._uop) for t in holders if shared[t._uop] == 1]
    woven = [t for t in tensors if shared[t._uop] > 1 or t._uop in graph or t._uop in shown]
    woven += [t for t in tensors if t._uop not in around and base_of(t._uop) in around]
    return reads, [(weakref.ref(t), t._uop) for t in woven]


def apart(assigned: list[Tensor]) -> None:
    """Give tensors that were assigned the same value memory of their own: each is updated in its own at a replay."""
    seen: set[UOp] = set()
    for t in assigned:
        if base_of(t._uop) in seen:
            t._uop = copied(t._uop)
        seen.add(base_of(t._uop))


def move_in(tensors: list[Tensor], made: set[UOp]) -> None:
    """Give tensors that stand for memory which the step has not `made`, as of an equal value outside, a copy."""
    for t in tensors:
        if is_realized(t._uop) and base_of(t._uop) not in made:
            t._uop = copied(t._uop)


def _whatever_is_bound(roots: set[UOp]) -> list[UOp]:
    """Of the roots those that depend on no Variable; of the others the largest values below that do not, either."""
    steered: set[UOp] = set()
    order = toposort(*roots, stop=is_body)
    for u in order:
        inside = toposort(u) if is_body(u) else (u,)
        if variables(*inside) or not steered.isdisjoint(u.src):
            steered.add(u)
    below = {x for u in order if u in steered for x in u.src}
    found = [u for u in order if u not in steered and (u in roots or u in below)]
    return [u for u in found if u in roots or (device(u) is not None and not is_realized(u) and not is_body(u))]


# ---- what is refused ----------------------------------------------------------------------------------------------
def passing(*reached: Reach) -> dict[str, tuple[Any, Any]]:
    """Generators of random numbers by name, each with its state. Raises JitError for iterators: each look moves one."""
    if names := [name for r in reached for name in r.passing]:
        expected = "what it gives, as an argument; or a list"
        raise JitError(
            "a jitted function reaches an iterator, as its next call would not", expected=expected, found=names[0]
        )
    return {name: (g, drawn.state_of(g)) for r in reached for name, g in r.generators.items()}


def refuse_asking(name: str, line: tuple[str, int]) -> None:
    """Raise JitError, at the line that asks, for what each replay would take for what it was at the capture."""
    expected = "the number as an argument, or Tensor.rand and its like"
    raise JitError("a jitted function asks for what differs at each call", expected=expected, found=name, line=line)


def refuse_draws(generators: dict[str, tuple[Any, Any]]) -> None:
    """Raise JitError when a generator of Python's or NumPy's drew a number, which each replay would use again."""
    for name, (generator, before) in generators.items():
        if drawn.state_of(generator) != before:
            expected = "Tensor.rand and its like, or the numbers as arguments"
            raise JitError("a jitted function draws numbers that a replay would not", expected=expected, found=name)


def refuse_shared(shared: list[Tensor]) -> None:
    """Raise JitError for arguments that show memory which the step assigns in another way."""
    if not shared:
        return
    expected, found = "arguments that share no memory, such as x.clone()", f"a view of shape {shared[0].shape}"
    raise JitError("a jitted function assigns to memory that an argument shows, too", expected=expected, found=found)


def refuse_two_ways(ways: list[Tensor]) -> None:
    """Raise JitError for arguments that the function also reaches from outside."""
    if not ways:
        return
    expected, found = "a tensor that is either an argument or from outside", f"both, of shape {ways[0].shape}"
    message = "a jitted function assigns to an argument that it also reaches from outside"
    raise JitError(message, expected=expected, found=found)
