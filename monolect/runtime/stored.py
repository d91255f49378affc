"""A step as a file holds it: numbers, and the text of one graph. Reading one believes nothing.

    TUPLE(TUPLE(buffers by number), LINEAR(CALL(kernel, buffers...)...), TUPLE(results...), TUPLE(new states...))

What it is for: `step.save` writes a draft, `jit.load` gets one that may be planned, compiled and run like our own. A
BUFFER has its number as its slot; sizes are Variables. Everything else follows from that and is derived where the file
is read: programs, bytes, offsets, what waits for what.
What it is not: the file around it, with its arrays and trees of arguments (`tensor/saved.py`).

Invariant: a draft that was read touches only memory of its step, and writes no argument and no constant. What is not so
raises an error of ours, before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from monolect.backend.base import Launch
from monolect.base.dtype import dtypes
from monolect.base.errors import FileFormatError, JitError
from monolect.ir.admitted import admit_scheduled, flat_params, is_size, is_variable
from monolect.ir.bounds import at_most
from monolect.ir.call import stored_slots
from monolect.ir.normal import count
from monolect.ir.ops import BufferArg, Stage
from monolect.ir.place import memory_of
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp, idx, node, shape_source, substitute, toposort
from monolect.ir.verify import verify
from monolect.runtime.binding import BY
from monolect.runtime.buffer import VIEWS
from monolect.runtime.dependencies import written
from monolect.runtime.in_place import same_elements
from monolect.runtime.parts import from_parts
from monolect.runtime.prologue import Step
from monolect.runtime.recipe import BROUGHT, KEPT, MADE, READ, Draft, Made, Value, mark
from monolect.schedule.memory import buffer_bytes

_NUMBERS = ("moves", "in_place", "reads", "constants")  # lists of buffers, in a file


# ---- writing ---------------------------------------------------------------------------------------------------------
def write(draft: Draft, kinds: Mapping[int, UOp], kept: Sequence[UOp], device: str) -> tuple[dict[str, Any], str]:
    """The numbers of a draft, and its graph as text.

    `kinds`: a BUFFER of the kind of each argument, state and constant, by number. `kept`: those of results that the
    step does not compute. Raises JitError for a step that no file holds.
    """
    known = dict(kinds)
    first_size = draft.n_args + draft.n_olds
    first_made = first_size + len(draft.variables)
    known.update(enumerate(draft.variables, first_size))
    for k, m in enumerate(draft.made, first_made):
        known[k] = m.mark if m.shape is None else node("BUFFER", (shape_source(m.shape),), m.mark.arg)
    for s in draft.steps:
        for n, b in zip(s.launch.args, s.call.src[1:], strict=True):
            known.setdefault(n, b)
    number = {n: k for k, n in enumerate(sorted(known))}
    found = [known[n] for n in number] + [*kept]
    buffers = [b if is_variable(b) else _buffer(k, b.shape, b.dtype, device) for k, b in enumerate(found)]
    firsts: dict[int, Sequence[int]] = {MADE: range(first_made, draft.n_given), BROUGHT: range(first_size)}
    firsts |= {READ: [number[n] for n in draft.reads], KEPT: range(len(number), len(buffers))}

    def view(v: Value) -> UOp:
        return _moved(v.node, v.base, buffers[firsts[v.source][v.at]])

    calls = [node("CALL", (_kernel(s), *(buffers[number[n]] for n in s.launch.args))) for s in draft.steps]
    graph = (
        node("TUPLE", tuple(buffers)),
        node("LINEAR", tuple(calls)),
        node("TUPLE", tuple(map(view, draft.outputs))),
        node("TUPLE", tuple(view(v) for _, v in draft.moves)),
    )
    numbers: dict[str, Any] = {"arguments": draft.n_args, "sizes": len(draft.variables), "made": len(draft.made)}
    lists = ([n for n, _ in draft.moves], draft.in_place, draft.reads, draft.constants)
    numbers |= {key: [number[n] for n in found] for key, found in zip(_NUMBERS, lists, strict=True)}
    return {**numbers, "kept": len(kept), "reuse": [*draft.reuse.items()]}, show(node("TUPLE", graph))


def _buffer(number: int, shape: tuple, dtype: Any, device: str) -> UOp:
    return node("BUFFER", (shape_source(shape),), BufferArg(number, dtype, device))


def _moved(u: UOp, base: UOp, new: UOp) -> UOp:
    """The view `u` of `base`, of `new` instead. What it says of gradients, which a file keeps none of, is left out."""
    if u is base:
        return new
    below = _moved(u.src[0], base, new)
    return below if u.op in ("DETACH", "CONTIGUOUS_BACKWARD") else node(u.op, (below, *u.src[1:]), u.arg)


def _kernel(s: Step) -> UOp:
    kernel = s.call.src[0]
    if kernel.op == "CUSTOMFUNCTION":
        expected = "a step without native functions"
        raise JitError("native code is at an address of this process", expected=expected, found=kernel.arg)
    return kernel


# ---- reading ---------------------------------------------------------------------------------------------------------
def read(numbers: Mapping[str, Any], text: str, device: str, compiled: bool = True) -> tuple[Draft, tuple[UOp, ...]]:
    """The draft, and its buffers by number, with those of `kept` at the end; without its steps if not `compiled`.

    Raises ParseError, VerifyError or FileFormatError for what is none, or could touch memory that is not its own.
    """
    return _Reader(numbers, parse(text), device).draft(compiled)


class _Reader:
    def __init__(self, numbers: Mapping[str, Any], root: UOp, device: str):
        parts = root.src
        if [p.op for p in (root, *parts)] != ["TUPLE", "TUPLE", "LINEAR", "TUPLE", "TUPLE"]:
            raise damaged("the graph of a step", "TUPLE(TUPLE, LINEAR, TUPLE, TUPLE)", [p.op for p in (root, *parts)])
        self.device = device
        self.buffers, self.calls, self.outputs, self.news = (p.src for p in parts)
        n = len(self.buffers)
        self.n_args, n_sizes, n_made, n_kept = (
            _integer(numbers, key, n) for key in ("arguments", "sizes", "made", "kept")
        )
        self.moves, self.in_place, self.reads, self.constants = (
            _integers(numbers, key, n - n_kept) for key in _NUMBERS
        )
        first_size = self.n_args + sum(k >= self.n_args for k in self.moves)
        first_made = first_size + n_sizes
        self.sizes, self.made = range(first_size, first_made), range(first_made, first_made + n_made)
        self.kept = range(n - n_kept, n)
        olds = range(self.n_args, first_size)
        bound = [*self.in_place, *self.constants]
        bad = [k for k in self.moves if k >= self.n_args and k not in olds]
        bad += [k for k in bound if k < self.made.stop] + [k for k in self.reads if k not in self.constants]
        if bad or self.made.stop > self.kept.start or len({*bound}) != len(bound) or len(self.news) != len(self.moves):
            raise damaged("the numbers of a step", "arguments, old versions, sizes, results, then the others", bad)
        self.given = {*range(first_made), *bound}  # what holds a value, at first before the step runs
        self.stored: set[int] = set()
        self._check_buffers()
        self.reuse = self._reuse(numbers)

    def _check_buffers(self) -> None:
        self.number = {b: k for k, b in enumerate(self.buffers)}
        self.variables = tuple(self.buffers[k] for k in self.sizes)
        symbols = {v.arg.symbol for v in self.variables if _is_plain_variable(v)}
        if len({name for name, *_ in symbols}) != len(self.variables):
            raise damaged("the sizes of a step", "Variables of different names", self.variables)
        for k, b in enumerate(self.buffers):
            if k in self.sizes:
                continue
            same = _buffer(k, b.shape, b.dtype, self.device)
            is_kept = k in self.given or k in self.kept  # an index is no value of a tensor, only an intermediate
            if b is not same or b.dtype.kind in ("vx" if is_kept else "v") or not all(map(is_size, b.shape)):
                raise damaged(f"buffer {k} of a step", f"memory of {self.device}, of that number", b)
            if is_kept and not all(n.__class__ is int for n in b.shape):
                raise damaged(f"buffer {k} of a step", "a shape of numbers", b.shape)
        every = (*self.buffers, *self.calls, *self.outputs, *self.news)
        if unknown := [u for u in toposort(*every) if is_variable(u) and u.arg.symbol not in symbols]:
            raise damaged("a size that no call gives", [v.arg.name for v in self.variables], unknown[0])

    def _reuse(self, numbers: Mapping[str, Any]) -> dict[int, int]:
        pairs = numbers["reuse"]
        reuse = {index(k, len(self.made)): index(n, self.n_args) for k, n in pairs}
        same = all(
            buffer_bytes(self.buffers[self.made[k]]) == buffer_bytes(self.buffers[n])
            and all(x.__class__ is int for x in self.buffers[self.made[k]].shape)
            for k, n in reuse.items()
        )
        if not same or len({*reuse.values()}) != len(pairs):
            raise damaged("results over arguments", "as many bytes, each argument once", pairs)
        return reuse

    def draft(self, compiled: bool) -> tuple[Draft, tuple[UOp, ...]]:
        args = [self._checked(call) for call in self.calls]
        missing = [k for k in self.made if k not in self.given]
        if missing:
            raise damaged("a result that no kernel stores", "each result", missing)
        outputs, news = (tuple(map(self._value, views)) for views in (self.outputs, self.news))
        for k, v in zip(self.moves, news, strict=True):
            if (v.node.shape, v.node.dtype) != (self.buffers[k].shape, self.buffers[k].dtype):
                raise damaged("a state of another kind than before", repr(self.buffers[k]), repr(v.node))
        made = [(b := self.buffers[k], all(n.__class__ is int for n in b.shape)) for k in self.made]
        return Draft(
            self.device if self.calls else None, self.n_args, self.variables,
            tuple(Made(mark(b), buffer_bytes(b), None if fixed else b.shape) for b, fixed in made),
            outputs, tuple(zip(self.moves, news, strict=True)), self.reuse, self.in_place, self.reads, self.constants,
            self._steps(args) if compiled else (),
        ), self.buffers  # fmt: skip

    def _checked(self, call: UOp) -> tuple[int, ...]:
        """The numbers of what a CALL takes; its kernel keeps the rules and touches what it may."""
        sink, operands = call.src[0], call.src[1:]
        if call.op != "CALL" or call.arg is not None or sink.op != "SINK":
            raise damaged("an item of a step", "CALL of a kernel", call)
        if foreign := [b for b in operands if b not in self.number or self.number[b] in self.kept]:
            raise damaged("an operand of a kernel", "a buffer of the step", foreign[0])
        admit_scheduled(sink, flat_params(operands))
        args = tuple([self.number[b] for b in operands])
        stored = {args[k] for k in stored_slots(sink)}
        if fixed := stored & self.given - {*self.in_place, *self.made, *self.stored}:
            raise damaged("a kernel that writes what is not its step's", "results, states, intermediates", fixed)
        twice = [(i, k) for i in _slots_in_indices(sink) for k in stored_slots(sink) if args[i] == args[k]]
        if moving := [pair for pair in twice if not same_elements(sink, *pair)]:
            raise damaged("a kernel that stores what it counts with", "indices that stay while it runs", moving)
        unknown = {*args} - self.given - stored
        if unwritten := [k for k in unknown if 0 not in self.buffers[k].shape]:
            raise damaged("a kernel that reads what no kernel stored", "an earlier store", unwritten)
        self.given |= stored
        self.stored |= stored
        return args

    def _steps(self, args: Sequence[tuple[int, ...]]) -> tuple[Step, ...]:
        if not self.calls:
            return ()
        plan = import_module("monolect.runtime.plan")
        launches: tuple[Launch, ...] = plan.launches_of(self.calls, args, self.device)
        kernels = [from_parts(c.src[0], len(a)).kernel if item.offsets else None
                   for c, a, item in zip(self.calls, args, launches, strict=True)]  # fmt: skip
        rows = zip(launches, self.calls, args, kernels, strict=True)
        return tuple(Step(item, c, written(a, c), kernel) for item, c, a, kernel in rows)

    def _value(self, u: UOp) -> Value:
        """A view of a buffer, as what it is at a replay."""
        verify(u, Stage.TENSOR)
        base = u
        while base.op in VIEWS:
            _check_view(base)
            base = base.src[0]
        k = self.number.get(base, -1)
        places = ((MADE, self.made), (BROUGHT, range(self.sizes.start)), (READ, self.reads), (KEPT, self.kept))
        source, at = next(((s, p.index(k)) for s, p in places if k in p), (-1, -1))
        symbolic = not all(n.__class__ is int for n in base.shape)
        if source < 0 or (symbolic and u is not base):
            raise damaged("a result of a step", "a view of a result, an argument or a constant", repr(u))
        return Value(source, at, substitute(u, {base: mark(base)}), mark(base))


def _check_view(u: UOp) -> None:
    """What the rules of an op leave to its builder, where sizes are symbolic."""
    old, new = u.src[0].shape, u.shape
    inside = all(map(is_size, new))
    if u.op == "SHRINK":
        rows = zip(u.src[1].sizes, new, old, strict=True)
        inside = inside and all(is_size(o) and at_most(idx(o) + idx(n), s) for o, n, s in rows)
    if u.op == "RESHAPE":
        inside = inside and count(old) == count(new)
    if not inside or u.tag is not None:
        raise damaged("a view of a step", f"inside of {old}", repr(u))


def _slots_in_indices(sink: UOp) -> set[int]:
    """The PARAMs that indices are computed from: another iteration must not change what this one looks at."""
    below = toposort(*(u for u in toposort(sink) if u.dtype.kind == "x"))
    places = [memory_of(u.src[0]) for u in below if u.op == "LOAD"]
    return {p.arg.slot for p in places if p.op == "PARAM"}


def _is_plain_variable(u: UOp) -> bool:
    """Whether `u` is what `Variable` makes."""
    if u.op != "PARAM" or u.src or u.dtype is not dtypes.index or u.arg.addrspace is not None:
        return False
    name, least, most = u.arg.symbol
    base, _, multiple = (name if isinstance(name, str) else "").partition(BY)
    named = base.isidentifier() and (not multiple or multiple.isdecimal())
    return named and least.__class__ is int and most.__class__ is int and -(1 << 62) <= least <= most < 1 << 62


def _integer(numbers: Mapping[str, Any], key: str, most: int) -> int:
    return index(numbers[key], most + 1)


def _integers(numbers: Mapping[str, Any], key: str, below: int) -> tuple[int, ...]:
    found = tuple([index(n, below) for n in numbers[key]])
    if len({*found}) != len(found):
        raise damaged(key, "each number once", found)
    return found


def index(n: Any, below: int) -> int:
    """`n`, if it numbers one of `below` items. Raises FileFormatError."""
    if n.__class__ is not int or not 0 <= n < below:
        raise damaged("a number of a step", f"0 <= number < {below}", n)
    return int(n)


def damaged(what: str, expected: Any, found: Any) -> FileFormatError:
    """The error for a part of a file that is not as `step.save` writes it."""
    return FileFormatError(what, expected=expected, found=str(found)[:200])


__all__ = ["damaged", "index", "read", "write"]
