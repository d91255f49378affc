"""Separate a captured step from external Tensors: Tensors that its function reads or assigns, but that are neither its
arguments nor made by it.

Purpose: realize pending values before and after the function ran, find the external Tensors that the step reads, reject
effects that a replay could not repeat, and undo a call that fails. To realize a Tensor means to compute its pending
value into memory.
Invariant: a value that was computed outside the step is not part of the step, and the step sees later assignments to
it.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from monolect.backend.registry import is_on_disk
from monolect.base.errors import JitError
from monolect.base.settings import settings
from monolect.capture.environment import nondeterminism
from monolect.capture.environment.dependencies import Dependencies
from monolect.ir.placement import device
from monolect.ir.rewrite.calls import is_body
from monolect.ir.uop import UOp, build, substitute_all, toposort
from monolect.runtime.binding import variables
from monolect.runtime.buffer import base_of, is_realized
from monolect.runtime.realize import execute
from monolect.runtime.replay.in_progress import OWN, changes, restore
from monolect.tensor import random as random_state
from monolect.tensor.base import as_device
from monolect.tensor.state.copied import copied
from monolect.tensor.state.deferred import all_deferred, forget_others
from monolect.tensor.tensor import Tensor

LiveTensors = Callable[[], list[Tensor]]
ExternalReads = tuple[list[tuple[Tensor, UOp]], list[tuple[weakref.ref[Tensor], UOp]]]


def realize_dependencies(tensors: Iterable[Tensor], inputs: Iterable[UOp]) -> None:
    """Realize the pending Tensors among `tensors`, the external Tensors that the step depends on, so that their
    computation is not captured.

    `inputs`: nodes of the arguments. A captured expression would hide later assignments to its Tensor. A value in the
    memory of another Tensor, such as `t.flip(0)`, is copied: a replay would otherwise see later assignments to `t`. A
    constant is realized too: its node equals that of a literal in the step, and a literal must not follow an
    assignment. Files and expressions of a Variable are not realized; nor is a constant if dependencies and `inputs` are
    all on other devices than the default.
    """
    tensors = [*tensors]
    devices = {device(u) for u in (*inputs, *(t._uop for t in tensors))} - {None}
    default = as_device(None) if not devices or as_device(None) in devices else None
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


def realize_external_values(
    live: LiveTensors, batch: list[Tensor], own: set[int], graph: set[UOp], olds: set[UOp]
) -> tuple[set[UOp], set[UOp]]:
    """Realize the values in the `graph` of the step that external Tensors still hold, and substitute them in `batch`,
    the Tensors to compute.

    Returns (nodes of `graph` that are no longer pending, BUFFERs that the values were computed from or are stored in).
    The step is captured again if one of these BUFFERs changes, because its function may have built an equal expression
    itself. `live` returns all live Tensors. `own`: ids of the Tensors of the step. `graph`: nodes to compute for the
    step. `olds`: nodes that the step assigns to; an expression of them is taken for the step's own.

    A replay must not draw initial weights again, so such values are not part of the step. Of an expression that depends
    on a Variable only the Variable-free parts are realized: the step takes another value at each call. Constants stay
    constants.
    """
    if not graph:
        return set(), set()
    outside = [t for t in live() if t._uop in graph and id(t) not in own and device(t._uop) is not None]
    outside = [t for t in outside if olds.isdisjoint(map(base_of, toposort(t._uop, stop=is_realized)))]
    if not outside:
        return set(), set()
    roots = _variable_free_values({t._uop for t in outside})
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


def external_reads(live: LiveTensors, found: set[UOp], graph: set[UOp], shown: set[UOp]) -> ExternalReads:
    """Return (rebindable reads, baked-in Tensors): the external Tensors that the step reads through the BUFFERs
    `found`.

    Each is a list of pairs with the node of the Tensor: (Tensor, node), and (weak reference to the Tensor, node). A
    Tensor that is the only holder of its BUFFER is rebindable: its new BUFFER is bound after it is assigned. All others
    are baked into the kernels or results, and the step is captured again when one changes. These are views of a BUFFER,
    Tensors that share a BUFFER, Tensors whose node is in `graph`, the nodes of the step, and Tensors whose BUFFER is in
    `shown`, the bases of results that are views. `live` returns all live external Tensors.
    """
    environment = found | shown
    tensors = live() if environment or graph else []
    holders = [t for t in tensors if t._uop in found]
    shared = Counter(b for t in tensors if (b := base_of(t._uop)) in found)
    reads = [(t, t._uop) for t in holders if shared[t._uop] == 1]
    baked_in = [t for t in tensors if shared[t._uop] > 1 or t._uop in graph or t._uop in shown]
    baked_in += [t for t in tensors if t._uop not in environment and base_of(t._uop) in environment]
    return reads, [(weakref.ref(t), t._uop) for t in baked_in]


def separate_storage(assigned: list[Tensor]) -> None:
    """Copy the value of every Tensor in `assigned` that shares its BUFFER with an earlier one of the list, so that a
    replay updates each in its own memory.
    """
    seen: set[UOp] = set()
    for t in assigned:
        if base_of(t._uop) in seen:
            t._uop = copied(t._uop)
        seen.add(base_of(t._uop))


def copy_foreign_storage(tensors: list[Tensor], made: set[UOp]) -> None:
    """Give each realized Tensor in `tensors` whose BUFFER is not in `made`, the BUFFERs that the step allocated, a copy
    of its value.
    """
    for t in tensors:
        if is_realized(t._uop) and base_of(t._uop) not in made:
            t._uop = copied(t._uop)


@contextmanager
def undone_on_failure() -> Iterator[None]:
    """Context manager for a block that calls a `@function`, or a step as part of a capture: if the block raises,
    restore all Tensors and random states as they were before, and raise the error again.
    """
    if settings.CHECK_BOUNDS and not changes.captures:
        random_state.settle()  # the block computes indices, perhaps from random numbers
    put_back, early = random_state.snapshot(), all_deferred()
    with changes.called() as before:
        try:
            yield
        except BaseException:
            for t, (state, known) in before.alive():
                restore(t, *state)
                for c in changes.enclosing:
                    if c not in known and c.looked.knows(t):
                        if (first := c.looked.get(t)) is OWN:
                            c.looked.forget(t)
                        else:  # the placeholder of the gradient stays an input of the capture
                            t._grad = first
            put_back()
            forget_others(early)
            raise


def _variable_free_values(roots: set[UOp]) -> list[UOp]:
    """Return the nodes in `roots` that do not depend on a Variable, and the maximal Variable-free subexpressions of the
    others.

    Subexpressions that have memory already, and those on no device, such as constants, are left out.
    """
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
def random_generators(*reached: Dependencies) -> dict[str, tuple[Any, Any]]:
    """Return {name: (generator, its state)} for the Python and NumPy random generators among the dependencies
    `reached`.

    Raises JitError if a dependency is an iterator, because reading an iterator advances it.
    """
    if names := [name for r in reached for name in r.iterators]:
        message = "a jitted function reads an iterator, which each call would advance"
        raise JitError(message, expected="a list, or the items as an argument", found=names[0])
    return {name: (g, nondeterminism.generator_state(g)) for r in reached for name, g in r.generators.items()}


def refuse_nondeterminism(name: str, line: tuple[str, int]) -> None:
    """Raise JitError because the function called `name`, a clock or the system's random source, at `line`, (file, line
    number).
    It always raises; both arguments are used only in the error.
    """
    expected = "the number as an argument, or Tensor.rand and its like"
    message = "a jitted function calls what differs at each call: a replay would repeat the value of the capture"
    raise JitError(message, expected=expected, found=f"{name}()", line=line)


def refuse_draws(generators: dict[str, tuple[Any, Any]]) -> None:
    """Raise JitError if one of `generators` drew random numbers during the run, because a replay would repeat the same
    numbers.

    `generators`: {name: (Python or NumPy generator, its state before the run)}.
    """
    for name, (generator, before) in generators.items():
        if nondeterminism.generator_state(generator) != before:
            expected = "Tensor.rand and its like, or the numbers as arguments"
            message = "a jitted function draws random numbers that a replay would repeat"
            raise JitError(message, expected=expected, found=name)


def refuse_aliased(shared: list[Tensor]) -> None:
    """Raise JitError unless `shared` is empty: it lists arguments that share memory with a Tensor that the step
    assigns.
    """
    if not shared:
        return
    expected, found = "arguments that share no memory, such as x.clone()", f"a view of shape {shared[0].shape}"
    raise JitError("a jitted function assigns to memory that an argument shares", expected=expected, found=found)


def refuse_external_arguments(shared: list[Tensor]) -> None:
    """Raise JitError unless `shared` is empty: it lists arguments that the step also reaches as external Tensors, and
    assigns in one of these roles.
    """
    if not shared:
        return
    expected = "a tensor that is either an argument or from outside"
    found = f"a tensor of shape {shared[0].shape} that is both"
    message = "a jitted function assigns to an argument that it also reaches from outside"
    raise JitError(message, expected=expected, found=found)


__all__ = [
    "copy_foreign_storage",
    "external_reads",
    "random_generators",
    "realize_dependencies",
    "realize_external_values",
    "refuse_aliased",
    "refuse_draws",
    "refuse_external_arguments",
    "refuse_nondeterminism",
    "separate_storage",
    "undone_on_failure",
]
