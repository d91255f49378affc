"""A capture as a program of its own sees it: a step over parameters with names, each result in memory of its own.

What it is for: everything that a call of Python does around the kernels becomes part of the step, or a reason not to
export it. Views among the results are kernels that copy; results that are arguments, states or constants are copies.
What it is not: a plan. It knows no offsets and no target but for the scheduler of those kernels.
Invariant: parameters, results and new versions of states are whole PARAMs, each another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from monolect.base.dtype import DType
from monolect.base.errors import ArgumentError, DeviceError, ExportError, FileFormatError, JitError, VerifyError
from monolect.base.settings import STEERING
from monolect.base.target import Target
from monolect.capture import saved
from monolect.capture.captured import Captured
from monolect.capture.jit import Jit
from monolect.command.forms import FILES, base_of, calls_in, items_of, kernel_of, new_slot, operands_of, program_of
from monolect.command.rewrites.join import items_of_run
from monolect.export.names import Names
from monolect.ir.ops import ParamArg
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, node, shape_source, substitute
from monolect.runtime.binding import as_written
from monolect.runtime.realize.schedule_cache import cached_schedule
from monolect.runtime.replay import stored
from monolect.runtime.replay.capture import Check
from monolect.tensor import random as random_state
from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import fields


class Parameter(NamedTuple):
    """A parameter of the exported function. `kind`: "input"; "update", which the step assigns; "size"; "output"."""

    name: str
    kind: str
    slot: int  # of its PARAM
    dtype: DType
    shape: tuple
    origin: str  # as the user's code names it


class Copy(NamedTuple):
    """The memory of one PARAM to that of another, by slot, once all items are done."""

    to: int
    source: int


class Exported(NamedTuple):
    """A step and what it takes and leaves. `values`: the PARAMs of BUFFERs with a value, by slot, and their names."""

    step: UOp
    parameters: tuple[Parameter, ...]
    copies: tuple[Copy, ...]  # of results, in order, then of states
    checks: tuple[tuple[Check, int, int], ...]  # with the slots of the least and the greatest index
    values: Mapping[int, UOp]
    named: Mapping[int, str]
    notes: tuple[str, ...]  # on results that are no parameters
    compiling: Mapping[str, Any]  # settings that decide on the plans of kernels, as they were at the capture


def read(jit: Jit, number: int | None, names: Names, target: Target, tensors: Mapping[str, Tensor]) -> Exported:
    """The capture of that number, or the only one. Raises ExportError for one that needs more than kernels."""
    c = _chosen(jit, number)
    _refuse_gradients(c)
    _refuse_items(c)
    random_state.settle(random_state.states_of(c.capture.assigned))
    outside = c.capture.outside()
    step = _joined(c, target.name)
    whole = _Whole(step, target)
    n, moves = step.arg.n_results, step.arg.moves
    outs = [whole.own(u) for u in step.src[0].src[:n]]
    news = [whole.own(u) for u in step.src[0].src[n : n + len(moves)]]
    roles = step.arg.roles
    today = dict(zip(map(id, outside.moves), news, strict=True))  # the slots of tensors from outside after a call
    for role, found in (("state", outside.in_place), ("read", outside.reads)):
        today |= zip(map(id, found), _slots(roles, role), strict=True)
    shown = {id(k.root): whole.copy(today[id(k.root)]) for k in c.leaves if k.value < 0 and id(k.root) in today}
    parameters, notes = _parameters(c, jit.parameters, whole.params, step, outs, shown, names)
    looks = outs[len(outs) - 2 * len(c.checks) :]
    checks = tuple([(k, looks[2 * i], looks[2 * i + 1]) for i, k in enumerate(c.checks)])
    known = {id(t): name for name, t in {**getattr(jit, "tensors", {}), **tensors}.items()} | random_state.names()
    named: dict[int, str] = {}
    for role, found in (("state", outside.in_place), ("read", outside.reads)):
        named |= {k: known.get(id(t), "") for k, t in zip(_slots(roles, role), found, strict=True)}
    named |= {k: known.get(id(t), "") for k, t in zip(step.arg.moves, outside.moves, strict=True)}
    moved = [Copy(slot, new) for slot, new in zip(moves, news, strict=True)]
    compiling = {k: x for k, x in zip(STEERING, c.spec.steering, strict=False) if k in ("NOOPT", "TF32")}
    return Exported(
        whole.step(), parameters, (*whole.copies, *moved), checks, c.capture.bound_now(), named, notes, compiling
    )


def _slots(roles: Sequence[str], role: str) -> list[int]:
    return [k for k, r in enumerate(roles) if r == role]


# ---- what can be exported --------------------------------------------------------------------------------------------
def _chosen(jit: Jit, number: int | None) -> Captured:
    try:
        captures = saved.current(jit)
    except JitError as e:
        expected = "a step that was called with arguments of the kind to export"
        raise ExportError("there is nothing to export", expected=expected, found=e.found) from e
    kinds = "; ".join(f"{k}: {c.spec.describe()}" for k, c in enumerate(captures))
    if number is None and len(captures) > 1:
        raise ArgumentError("export: the step has several captures", expected=f"capture=, one of {kinds}")
    if not 0 <= (number or 0) < len(captures):
        raise ArgumentError("export: capture", expected=f"one of {kinds}", found=number)
    return captures[number or 0]


def _refuse_gradients(c: Captured) -> None:
    if c.supplied_gradients:
        what = "gradients that are there before the call, and that the step reads or adds to"
    elif c.gradient_targets or c.aliased_gradients:
        what = f"gradients that the step leaves on {len(c.gradient_targets) + len(c.aliased_gradients)} tensors"
    else:
        return
    expected = "a step that clears gradients at its start, and returns those it is for"
    raise ExportError("a program of its own has no gradients", expected=expected, found=what)


def _refuse_items(c: Captured) -> None:
    """Raise ExportError for what is no kernel of one processor."""
    items = items_of(program_of(c.capture.step))
    for item in items:
        if item.op in ("RANGE", "IF"):
            expected = (
                "a step without loops and branches of the host: write them with Tensor methods, or in the program"
            )
            raise ExportError(f"a loop of the host ({item.op})", expected=expected, found=f"{item!r}")
        if item.op == "CALL" and kernel_of(item).op == "CUSTOMFUNCTION":
            expected = "a step without native functions: write it with Tensor methods, or call it from the program"
            what = "native code at an address of this process (CUSTOMFUNCTION)"
            raise ExportError(what, expected=expected, found=kernel_of(item).arg)
    operands = [b for item in calls_in(items) for b in map(base_of, operands_of(item)) if b.shape]
    names = {str(b.arg.device) for b in operands} | {str(device) for *_, device, _ in c.kinds}
    if files := sorted(name for name in names if name.startswith(FILES)):
        expected = "values in memory: t.to('cpu').realize() before the step is captured"
        raise ExportError("a step that reads a file as memory", expected=expected, found=files[0])
    if any(item.op == "STORE" for item in items) or len(names) > 1:
        expected = "a step whose tensors are all on cpu, or all on c: copy them before the call"
        raise ExportError(
            "a step over several devices, with copies between (STORE)", expected=expected, found=sorted(names)
        )


def _joined(c: Captured, name: str) -> UOp:
    """The step of a capture on the device of that name, proven."""
    try:
        device = saved.device_of([c])
        text = saved.on_device(saved.text_of(c, device), device, name)
        return stored.read(text, name)
    except DeviceError as e:
        expected = "a step captured on cpu or c, or saved and loaded with device="
        raise ExportError("a step of another device", expected=expected, found=e.found) from e
    except (JitError, FileFormatError, VerifyError) as e:
        expected = "kernels of Tensor methods, whose indices are proven"
        raise ExportError("a step that no file can hold", expected=expected, found=e.describe()) from e


# ---- results in memory of their own ----------------------------------------------------------------------------------
class _Whole:
    """A step whose results become whole PARAMs, by copies and by kernels that copy."""

    def __init__(self, step: UOp, target: Target) -> None:
        self.was, self.target = step, target
        self.params, self.roles = [*step.src[1:]], [*step.arg.roles]
        self.items = [*items_of(program_of(step))]
        self.slots = count(new_slot(self.items))
        self.used: set[int] = set()
        self.copies: list[Copy] = []

    def own(self, u: UOp) -> int:
        """The slot of a PARAM that holds the value `u` once the step is done, and nothing else."""
        u = u.src[0] if u.op == "AFTER" else u
        p = memory_of(u)
        slot: int = p.arg.slot
        if u is p and self.roles[slot] == "result" and slot not in self.used:
            self.used.add(slot)
            return slot
        if u is p:
            return self.copy(slot)
        new = self._new(u)
        if 0 not in u.shape:
            self.items += self._copying(u, p, new)
        return int(new.arg.slot)

    def copy(self, slot: int) -> int:
        """The slot of a PARAM that gets what that one holds once all items are done."""
        new: int = self._new(self.params[slot]).arg.slot
        self.copies.append(Copy(new, slot))
        return new

    def _new(self, like: UOp) -> UOp:
        arg = ParamArg(len(self.params), like.dtype, self.target.name, "GLOBAL")
        self.params.append(node("PARAM", (shape_source(like.shape),), arg))
        self.roles.append("result")
        return self.params[-1]

    def _copying(self, u: UOp, p: UOp, new: UOp) -> list[UOp]:
        """Kernels that store a view."""
        first = node("PARAM", p.src, p.arg._replace(slot=0))
        value = node("CONTIGUOUS", (substitute(u, {p: first}),))
        schedule = cached_schedule(node("TUPLE", (value,)), self.target, "")
        return items_of_run(node("FUNCTION", (schedule, p, new)), self.slots)

    def step(self) -> UOp:
        """The step with what was added. Its values are the slots that `own` gave."""
        linear = node("LINEAR", tuple(self.items))
        copied = {c.to for c in self.copies}
        kept = [p for k, p in enumerate(self.params) if self.roles[k] in ("result", "state") and k not in copied]
        written = [node("AFTER", (p, linear)) for p in kept]
        info = self.was.arg._replace(roles=tuple(self.roles), n_results=len(written), moves=(), reuse=(), shared=())
        return node("FUNCTION", (node("TUPLE", tuple(written)), *self.params), info)


# ---- names -----------------------------------------------------------------------------------------------------------
def _parameters(
    c: Captured,
    known: Sequence[str],
    made: Sequence[UOp],
    step: UOp,
    outs: Sequence[int],
    shown: Mapping[int, int],
    names: Names,
) -> tuple[tuple[Parameter, ...], tuple[str, ...]]:
    """The parameters, in order, and a line on each result that is none."""
    out, notes = [], []
    for slot, text in _arguments(c, known).items():
        p = step.src[1 + slot]
        kind = "update" if slot in step.arg.moves else "input"
        out.append(Parameter(names.new(text, "arg"), kind, slot, p.dtype, p.shape, text))
    for slot in _slots(step.arg.roles, "size"):
        p = step.src[1 + slot]
        text = as_written(p)[0]
        out.append(Parameter(names.new(text, "size"), "size", slot, p.dtype, (), text))
    seen: dict[int, str] = {}  # texts of results, by slot
    for text, leaf in zip(_paths(c.template, "out"), c.leaves, strict=True):
        slot = outs[leaf.value] if leaf.value >= 0 else shown.get(id(leaf.root), -1)
        if slot < 0:
            notes.append(f"{text} is what the caller has: an argument, or a tensor that the step does not touch")
        elif slot in seen:
            notes.append(f"{text} is {seen[slot]} again")
        else:
            seen[slot] = text
            p = made[slot]
            out.append(Parameter(names.new(text, "out"), "output", slot, p.dtype, p.shape, text))
    return tuple(out), tuple(notes)


def _arguments(c: Captured, known: Sequence[str]) -> dict[int, str]:
    """A text for each argument, by slot."""
    texts: list[str] = []
    for k, x in enumerate(c.spec.args):
        texts += _paths(x, known[k] if k < len(known) else f"arg{k}")
    for name, x in c.spec.kwargs.items():
        texts += _paths(x, name)
    slots = c.spec.positions or range(len(texts))
    out: dict[int, str] = {}
    for slot, text in zip(slots, texts, strict=True):
        out.setdefault(slot, text)
    return out


def _paths(tree: Any, name: str) -> Iterator[str]:
    """A text for each Tensor of a tree, in the order of `flatten`. A result that is a dict names its parts itself."""
    if isinstance(tree, Tensor):
        yield name
    elif isinstance(tree, dict):
        for k, x in tree.items():
            yield from _paths(x, str(k) if name == "out" else f"{name}.{k}")
    elif isinstance(tree, list | tuple):
        parts = getattr(tree, "_fields", None) or range(len(tree))
        for k, x in zip(parts, tree, strict=True):
            yield from _paths(x, f"{name}.{k}" if parts.__class__ is tuple else f"{name}{k}")
    elif (parts := fields(tree)) is not None:
        for k in parts:
            yield from _paths(getattr(tree, k), f"{name}.{k}")


__all__ = ["Copy", "Exported", "Parameter", "read"]
