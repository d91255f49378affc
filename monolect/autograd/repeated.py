"""Make the gradients of a graph as results of a FUNCTION whose body was recorded from an equal graph.

What it is for: a program without `jit` builds the graph of its loss again in each step, from other buffers and other
numbers. Walking it backward takes longer than the kernels.
What it is not: a cache of values. The body is a graph over PARAMs, which is inlined where a batch is planned.

Invariant: the body, inlined, is the graph that the backward walk makes. So the key of a graph has all that the walk
looks at: ops, sizes, numbers, and the derivatives in closed form with the values that their functions hold. Numbers
that differ from run to run (float constants, offsets of SHRINKs) are arguments.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from threading import RLock
from types import FunctionType
from typing import Any, NamedTuple

from monolect.autograd.closed_forms import closed, closed_form
from monolect.autograd.gradient import gradients, is_without_graph
from monolect.autograd.recorded import applications
from monolect.base.dtype import DType, dtypes
from monolect.base.settings import settings, switched
from monolect.ir.ops import MOVEMENT, ParamArg
from monolect.ir.placement import engine, param_like, placement
from monolect.ir.rewrite import normal
from monolect.ir.rewrite.normal import may_be_input
from monolect.ir.uop import UOp, new_buffer, node, rebuild, shape_source, substitute_all, toposort

MAX_PROGRAMS = 256  # programs in `_programs`; beyond it the least recently used one is dropped
_REFUSED = frozenset(("PARAM", "AFTER", "STORE", "ATOMICADD", "LOAD", "BINARY", "FUNCTION", "CALL"))
_PLAIN = frozenset((int, bool, str, type(None), DType))
_programs: OrderedDict[tuple, _Program] = OrderedDict()  # by the key of a graph without the numbers that may vary
_lock = RLock()  # of `_programs` and of the numbers of each
switched.append(_programs.clear)


class _Reading(NamedTuple):
    """A graph as a program and its operands. Two graphs with equal keys differ only in their BUFFERs and numbers.

    `uses`: (node, source, item) of each number; item -1 is the source itself, another one that of an offset in it.
    `targets`: the nodes of the graph that gradients are asked for, in the order of the walk.
    """

    key: tuple
    buffers: list[UOp]
    uses: list[tuple[UOp, int, int]]
    numbers: list[UOp]
    targets: list[UOp]


class _Recorded(NamedTuple):
    """Gradients as results of a FUNCTION. `body`: a TUPLE. `args`: for each argument the number of a BUFFER of the
    reading, or -1 - the number of a number. `reached`: numbers of the targets that have a gradient, in the order of the
    results.
    """

    body: UOp
    args: tuple[int, ...]
    reached: tuple[int, ...]

    def applied(self, found: _Reading) -> dict[UOp, UOp | None]:
        """Return target -> gradient in the graph that was read as `found`."""
        args = [found.buffers[i] if i >= 0 else found.numbers[-1 - i] for i in self.args]
        call = node("FUNCTION", (self.body, *args))
        return {found.targets[t]: node("GETTUPLE", (call,), k) for k, t in enumerate(self.reached)}


class _Program:
    """The numbers of the last graph of a program, and the indices of those that have `varied`. `recorded`: None before
    a second run, and False if the gradients cannot be recorded.
    """

    __slots__ = ("numbers", "recorded", "varied")

    def __init__(self, numbers: list[UOp]) -> None:
        self.numbers = numbers
        self.varied: set[int] = set()
        self.recorded: _Recorded | bool | None = None

    def see(self, found: _Reading) -> None:
        """Note the numbers of another run. Gradients that were recorded for one value of a number are dropped.

        If an offset differs, so will others of SHRINKs of equal shapes, such as those of actions in an episode.
        """
        pairs = enumerate(zip(self.numbers, found.numbers, strict=True))
        more = {i for i, (a, b) in pairs if a is not b} - self.varied
        if more:
            alike = {_shapes(found.uses[i]) for i in more}
            self.varied |= more
            self.varied |= {i for i, use in enumerate(found.uses) if use[2] >= 0 and _shapes(use) in alike}
            self.recorded = None
        self.numbers = found.numbers


def _shapes(use: tuple[UOp, int, int]) -> tuple:
    """Return the shapes and the axis of an offset of a SHRINK."""
    u, _, i = use
    return u.src[0].shape, u.shape, i


def leaf_gradients(root: UOp, root_grad: UOp, leaves: list[UOp], may_repeat: bool) -> dict[UOp, UOp | None]:
    """Return `gradient.gradients(root, root_grad, leaves, cut=True)`.

    With `may_repeat` they may be results of a FUNCTION, and leaves without a gradient may be left out.
    """
    found = _repeated(root, root_grad, frozenset(leaves)) if may_repeat and normal.allowed is None else None
    return gradients(root, root_grad, leaves, cut=True) if found is None else found


def _repeated(root: UOp, root_grad: UOp, leaves: frozenset[UOp]) -> dict[UOp, UOp | None] | None:
    """Return leaf -> gradient from what was recorded of an equal graph; None if none was seen before, or if the
    gradients of such a graph cannot be recorded.
    """
    found = _read(root, root_grad, leaves)
    if found is None:
        return None
    with _lock:
        program = _programs.get(found.key)
        if program is None:
            _programs[found.key] = _Program(found.numbers)
            if len(_programs) > MAX_PROGRAMS:
                _programs.popitem(last=False)
            return None
        if len(_programs) > MAX_PROGRAMS // 2:  # before, none is dropped soon; hashing a key again is slow
            _programs.move_to_end(found.key)
        program.see(found)
        if program.recorded is None:
            program.recorded = _record(root, root_grad, found, program.varied) or False
        return program.recorded.applied(found) if isinstance(program.recorded, _Recorded) else None


def _read(root: UOp, root_grad: UOp, targets: Collection[UOp]) -> _Reading | None:
    """Read the graph that a gradient of `root` may look at; None if it has a node that cannot be recorded: a write, a
    call, a size or value of a Variable, a node on several devices, a derivative that holds what is no plain value, or
    a value whose graph is not kept.
    """
    key: list[Any] = [settings.choices]
    buffers: list[UOp] = []
    uses: list[tuple[UOp, int, int]] = []
    numbers: list[UOp] = []
    reached: list[UOp] = []
    number: dict[UOp, int] = {}
    stack = [root_grad, root]
    while stack:
        u = stack.pop()
        op, src = u.op, u.src
        if op in _REFUSED or u.tag is not None:
            return None
        if not src or (op == "STACK" and u.height == 1):
            key.append(u)
            continue
        if (n := number.get(u)) is not None:
            key.append(n)
            continue
        number[u] = len(number)
        below: list[UOp] = []
        entry = None
        if u in targets:
            key.append("TARGET")
            reached.append(u)
        elif (entry := closed.get(u)) is not None:
            if (derivative := _value_of(entry[1])) is None:
                return None
            key += ("CLOSED", derivative, len(entry[0]))
        if (made := applications.get(u)) is not None:  # the record tells the nodes of the formula
            key += ("RECORD", made[0])
            below += made[1]
        elif op == "BUFFER":
            if is_without_graph(u) and u not in targets:
                return None
            there = placement(u)
            if there[0].__class__ is not str or engine(there[0]) != there[0]:
                return None
            key += (op, src[0], u.dtype, there)
            buffers.append(u)
        else:
            key += (op, u.arg, len(src))
            for k, s in enumerate(src):
                if s.op == "CONST" and may_be_input(s):
                    key.append(s.dtype)
                    uses.append((u, k, -1))
                    numbers.append(s)
                elif k == 1 and op == "SHRINK" and s.height == 1:
                    key.append(None)
                    uses += [(u, k, i) for i in range(len(s.src))]
                    numbers += s.src
                else:
                    key.append(1)
                    below.append(s)
        if entry is not None:
            below += entry[0]
        stack += reversed(below)
    return _Reading(tuple(key), buffers, uses, numbers, reached) if buffers else None


def _value_of(x: Any) -> Any:
    """Return a hashable value, equal for functions of the same code that hold equal values; None if `x` holds what may
    change, or what is no plain value.
    """
    if x.__class__ is FunctionType:
        if x.__defaults__ or x.__kwdefaults__:
            return None
        held = _values_of([c.cell_contents for c in x.__closure__ or ()])
        return None if held is None else (x.__module__, x.__code__, held)
    if x.__class__ in (tuple, list):
        return _values_of(x)
    if x.__class__ is UOp:
        return x if x.dtype is dtypes.index or x.op == "CONST" else None  # others may hold memory
    if x.__class__ is float:
        return x.hex()
    return (x.__class__, x) if x.__class__ in _PLAIN else None


def _values_of(xs: Sequence[Any]) -> tuple | None:
    """Return the values of `xs` as `_value_of` does; None if one has none."""
    values = tuple([_value_of(x) for x in xs])
    return None if any([v is None for v in values]) else values


def _record(root: UOp, root_grad: UOp, found: _Reading, varied: Collection[int]) -> _Recorded | None:
    """Return the gradients of the graph that was read as `found`, with its BUFFERs and the numbers `varied` as
    arguments; None if they use other memory, or if one of them is an argument itself.
    """
    new, inputs = _with_inputs(root, root_grad, found, varied)
    targets = [new[t] for t in found.targets]
    if len({*targets}) < len(targets):
        return None
    made = gradients(new[root], new[root_grad], targets, cut=True)
    reached = tuple([i for i, t in enumerate(targets) if made[t] is not None])
    results = [d for t in targets if (d := made[t]) is not None]
    numbers = {new.get(b, b): i for i, b in enumerate(found.buffers)} | {u: -1 - i for u, i in inputs.items()}
    used = [u for u in toposort(*results) if u.op in ("BUFFER", "PARAM")]
    if not results or any(u not in numbers for u in used):
        return None
    params = {
        u: param_like(u, k) if u.op == "BUFFER" else node("PARAM", u.src, u.arg._replace(slot=k, name=None))
        for k, u in enumerate(used)
    }
    values = substitute_all(tuple(results), params)
    if any(_base(v).op == "PARAM" for v in values):
        return None
    return _Recorded(node("TUPLE", values), tuple([numbers[u] for u in used]), reached)


def _base(u: UOp) -> UOp:
    """Return the node below the views and marks of `u`."""
    while u.op in MOVEMENT or u.op in ("BITCAST", "DETACH", "CONTIGUOUS"):
        u = u.src[0]
    return u


def _with_inputs(
    root: UOp, root_grad: UOp, found: _Reading, varied: Collection[int]
) -> tuple[dict[UOp, UOp], dict[UOp, int]]:
    """Return (node -> node, input -> number): the nodes of the graph with an input for each number in `varied`, a
    BUFFER or PARAM without a value. Computed values whose graphs are known become BUFFERs without memory, for which
    the rebuilt graphs are registered.
    """
    inputs: dict[UOp, int] = {}
    items: dict[tuple[UOp, int], dict[int, UOp]] = {}
    for i in sorted(varied):
        u, k, item = found.uses[i]
        x = found.numbers[i]
        if item < 0:
            v = new_buffer((), x.dtype, placement(found.buffers[0])[0])
        else:
            most = u.src[0].shape[item] - u.shape[item]
            v = node("PARAM", (shape_source(()),), ParamArg(0, dtypes.index, name=f"number{i}", min=0, max=most))
        inputs[v] = i
        items.setdefault((u, k), {})[item] = v
    targets = {*found.targets}
    new: dict[UOp, UOp] = {}

    def sources(u: UOp) -> tuple[UOp, ...]:
        entry = None if u in targets else closed.get(u)
        return u.src if entry is None else (*u.src, *entry[0])

    for u in toposort(root, root_grad, sources=sources):
        entry = None if u in targets else closed.get(u)
        if u.op == "BUFFER":
            new[u] = u if entry is None else new_buffer(u.shape, u.dtype, u.arg.device)
        else:
            src = [new[s] for s in u.src]
            for k in range(len(src)):
                if (given := items.get((u, k))) is not None:
                    offsets = u.src[k].src
                    src[k] = given.get(-1) or shape_source([given.get(j, c.value) for j, c in enumerate(offsets)])
            new[u] = rebuild(u, tuple(src))
        if entry is not None and new[u] is not u:
            closed_form(new[u], tuple([new[x] for x in entry[0]]), entry[1])
    return new, inputs


__all__ = ["leaf_gradients"]
