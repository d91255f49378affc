"""Turn a capture into a step with named parameters whose results are each in memory of their own.

What it is for: everything that a Python call does around the kernels becomes part of the step, or a reason to refuse
the export. A result that is a view is copied by a kernel. A result that is an argument, a state or a constant is
copied.
What it is not: a plan. It knows no offsets, and uses the target only to schedule those copying kernels.
Invariant: parameters, results and new versions of states are distinct whole PARAMs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from monolect.base.dtype import DType
from monolect.base.errors import ArgumentError, DeviceError, ExportError, FileFormatError, JitError, VerifyError
from monolect.base.settings import STEERING
from monolect.base.target import Target
from monolect.capture.captured import Captured
from monolect.capture.files import saved
from monolect.capture.step import Jit
from monolect.command.forms import FILES, base_of, calls_in, items_of, kernel_of, new_slot, operands_of, program_of
from monolect.command.rewrites.join import items_of_run
from monolect.export.names import Names
from monolect.ir.ops import ParamArg
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, node, shape_source, substitute
from monolect.runtime.binding import as_written
from monolect.runtime.realize.schedule_cache import cached_schedule
from monolect.runtime.replay import stored
from monolect.runtime.replay.in_progress import Check
from monolect.tensor import random as random_state
from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import fields


class Parameter(NamedTuple):
    """A parameter of the exported function. `kind` is "input", "output", "size", or "update" for an input that the step
    assigns.
    """

    name: str
    kind: str
    slot: int  # slot of its PARAM
    dtype: DType
    shape: tuple
    origin: str  # name in the user's code


class Copy(NamedTuple):
    """A copy of the memory of PARAM `source` to PARAM `to` (slots) after all items have run."""

    to: int
    source: int


class Exported(NamedTuple):
    """A step with its parameters, copies and checks."""

    step: UOp
    parameters: tuple[Parameter, ...]
    copies: tuple[Copy, ...]  # copies of results, in order, then of states
    checks: tuple[tuple[Check, int, int], ...]  # (check, slot of the least index, slot of the greatest index)
    values: Mapping[int, UOp]  # slot -> BUFFER with the initial value
    named: Mapping[int, str]  # slot -> the user's name of the tensor, "" if unknown
    notes: tuple[str, ...]  # sentences on results that are not parameters
    compiling: Mapping[str, Any]  # settings of the capture that affect the plans of kernels


def read(jit: Jit, number: int | None, names: Names, target: Target, tensors: Mapping[str, Tensor]) -> Exported:
    """Return the capture `number` of `jit`, or its only one, as an Exported step for `target`. Raises ExportError for a
    capture that needs more than kernels, ArgumentError for a bad `number`.
    """
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
    # slots of external tensors after a call
    after = dict(zip(map(id, outside.moves), news, strict=True))
    for role, found in (("state", outside.in_place), ("read", outside.reads)):
        after |= zip(map(id, found), _slots(roles, role), strict=True)
    shown = {id(k.root): whole.copy(after[id(k.root)]) for k in c.leaves if k.value < 0 and id(k.root) in after}
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
        what = "gradients from before the call, which the step reads or adds to"
    elif c.gradient_targets or c.aliased_gradients:
        what = f"gradients that the step leaves on {len(c.gradient_targets) + len(c.aliased_gradients)} tensors"
    else:
        return
    expected = "a step that clears gradients at its start and returns those that the caller needs"
    raise ExportError("an exported program has no gradients", expected=expected, found=what)


def _refuse_items(c: Captured) -> None:
    """Raise ExportError for a capture with an item that is not a kernel of one processor, or that reads a disk file."""
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
    """Return the step of a capture for the device `name`, read back from its saved text, which proves its indices."""
    try:
        device = saved.device_of([c])
        text = saved.on_device(saved.text_of(c, device), device, name)
        return stored.read(text, name)
    except DeviceError as e:
        expected = "a step captured on cpu or c, or saved and loaded with device="
        raise ExportError("a step of another device", expected=expected, found=e.found) from e
    except (JitError, FileFormatError, VerifyError) as e:
        expected = "kernels of Tensor methods, whose indices are proven"
        raise ExportError("a step that cannot be saved", expected=expected, found=e.describe()) from e


# ---- results in separate memory --------------------------------------------------------------------------------------
class _Whole:
    """Make each result of a step a whole PARAM of its own, by copies and by kernels that copy."""

    def __init__(self, step: UOp, target: Target) -> None:
        self.original, self.target = step, target
        self.params, self.roles = [*step.src[1:]], [*step.arg.roles]
        self.items = [*items_of(program_of(step))]
        self.slots = count(new_slot(self.items))
        self.used: set[int] = set()
        self.copies: list[Copy] = []

    def own(self, u: UOp) -> int:
        """Return the slot of a PARAM that holds only the value `u` when the step has run."""
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
        """Return the slot of a new PARAM that gets a copy of PARAM `slot` after all items have run."""
        new: int = self._new(self.params[slot]).arg.slot
        self.copies.append(Copy(new, slot))
        return new

    def _new(self, like: UOp) -> UOp:
        arg = ParamArg(len(self.params), like.dtype, self.target.name, "GLOBAL")
        self.params.append(node("PARAM", (shape_source(like.shape),), arg))
        self.roles.append("result")
        return self.params[-1]

    def _copying(self, u: UOp, p: UOp, new: UOp) -> list[UOp]:
        """Return the items that store the view `u` of the PARAM `p` into the PARAM `new`."""
        first = node("PARAM", p.src, p.arg._replace(slot=0))
        value = node("CONTIGUOUS", (substitute(u, {p: first}),))
        schedule = cached_schedule(node("TUPLE", (value,)), self.target, "")
        return items_of_run(node("FUNCTION", (schedule, p, new)), self.slots)

    def step(self) -> UOp:
        """Return the FUNCTION of the step with the added PARAMs and items. Its results are the PARAMs of role "result"
        or "state" that no Copy fills.
        """
        linear = node("LINEAR", tuple(self.items))
        copied = {c.to for c in self.copies}
        kept = [p for k, p in enumerate(self.params) if self.roles[k] in ("result", "state") and k not in copied]
        written = [node("AFTER", (p, linear)) for p in kept]
        info = self.original.arg._replace(
            roles=tuple(self.roles), n_results=len(written), moves=(), reuse=(), shared=()
        )
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
    """Return the parameters (arguments, then sizes, then outputs), and a note on each result that is not one. `known`:
    as in `_arguments`. `made`: PARAMs by slot. `outs`: slots of the results. `shown`: id of an external tensor's root
    -> slot of the copy of its new value.
    """
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
            notes.append(f"{text} is no output: it is an argument, or a tensor that the step does not change")
        elif slot in seen:
            notes.append(f"{text} is the same as {seen[slot]}")
        else:
            seen[slot] = text
            p = made[slot]
            out.append(Parameter(names.new(text, "out"), "output", slot, p.dtype, p.shape, text))
    return tuple(out), tuple(notes)


def _arguments(c: Captured, known: Sequence[str]) -> dict[int, str]:
    """Return the name of each tensor argument of the capture, by slot. `known`: names of the function's positional
    parameters; missing ones become arg0, arg1, ...
    """
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
    """Yield a name for each Tensor of a tree, in the order of `flatten`. The keys of a result dict name its parts."""
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
