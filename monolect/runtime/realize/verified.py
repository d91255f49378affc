"""What a program really wrote, compared at a few elements with what it should have: `VERIFY=2` and 3.

What it is for: faults of any part, at real sizes, also in code that came from a cache. Launches run one at a time.
After each, elements that its kernel stored are computed from the kernel as the scheduler left it, and elements of each
value that is complete by then from the tensor graph, both from what lies in memory.
What it is not: part of the usual path, which imports nothing of it.

What is left out is named under TRACE=passes: sums too long, native code, loops of the user's that carry values. Of
replays of a captured step kernels are compared, not values; launches that it would run at the same time run one by one.
Invariant: nothing is reported that other roundings explain (`ir.check.arithmetics`).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from monolect.backend.base import launching
from monolect.backend.registry import Device
from monolect.base.dtype import DType
from monolect.base.errors import VerifyError
from monolect.base.settings import Context, settings
from monolect.base.target import Target as CompileTarget
from monolect.command.forms import buffer_bytes, is_size, kernel_of, read_operand, writes
from monolect.ir.check.arrays import Array, storage
from monolect.ir.check.compare import SEED, Arithmetic, Difference, KernelCheck, compare_value
from monolect.ir.check.points import Unsupported
from monolect.ir.uop import UOp, node, toposort
from monolect.runtime import profile
from monolect.runtime.binding import value_of
from monolect.runtime.realize.plan import target_of
from monolect.runtime.realize.programs import loaded
from monolect.schedule.callify import over_params
from monolect.schedule.provenance import following
from monolect.schedule.result import Schedule, schedule_of

if TYPE_CHECKING:
    from monolect.runtime.realize.plan import Plan

HOST = "host"


class Piece(NamedTuple):
    """Memory of a buffer: bytes from `offset` on."""

    storage: Any
    offset: int
    n_bytes: int

    @property
    def address(self) -> int:
        return int(self.storage.address) + self.offset

    def overlaps(self, other: Piece) -> bool:
        """Whether they have a byte in common."""
        return self.address < other.address + other.n_bytes and other.address < self.address + self.n_bytes

    def read(self, d: DType, device: Any) -> Array:
        """Its elements: the memory itself where the host reaches it, without counting as a view of it."""
        kind = storage(d)
        n = self.n_bytes // kind.itemsize * kind.itemsize
        if device.space == HOST:
            flat = np.ctypeslib.as_array((ctypes.c_uint8 * n).from_address(self.address))
        else:
            flat = self.storage.view(np.uint8)[self.offset : self.offset + n]
        return flat.view(kind)


Pieces = Mapping[int, Any]  # by position: memory, or the value of a Variable


# ---- items -----------------------------------------------------------------------------------------------------------
def run_items(
    device: Any,
    items: Sequence[UOp],
    number: Mapping[UOp, int],
    pieces: Pieces,
    variables: Sequence[UOp] = (),
    done: Callable[[int], None] = lambda i: None,
    replayed: bool = False,
) -> None:
    """Run the items of a command buffer one by one; compare what each stored. Then `done` is told its number.

    `number` gives the position of each PARAM and BUFFER. `replayed`: of a captured step, for the lines of DEBUG=2.
    Raises VerifyError.
    """
    arithmetic = arithmetic_of(variables)
    times: list[int] = []
    for i, call in enumerate(items):
        operands = [piece_of(u, number, pieces) for u in call.src[1:]]
        check = _check_of(device, call, operands)
        times.append(_run_one(device, call, operands))
        if check is not None:
            _compare(check, device, call, operands, arithmetic)
        done(i)
    if settings.tracing or profile.recording:
        profile.record(tuple(items), times, replayed)


def piece_of(u: UOp, number: Mapping[UOp, int], pieces: Pieces) -> Piece | int:
    """The memory of an operand, or the value of a size."""
    o = read_operand(u)
    memory = pieces[number[o.base]]
    if isinstance(memory, int):
        return memory
    n_bytes = min(buffer_bytes(u), memory.n_bytes - o.offset)  # a size may be below its largest value
    return Piece(memory, o.offset, n_bytes)


def _check_of(device: Any, call: UOp, operands: Sequence[Piece | int]) -> KernelCheck | None:
    """The kernel to compare with, and a copy of what it changes and needs; None where it is left out."""
    sink, name = kernel_of(call), call.src[0].arg.name
    if sink.op != "SINK" or sink.arg.fills:
        _skip(name, "native code, or a kernel that packs")
        return None
    try:
        check = KernelCheck(sink)
    except Unsupported as why:
        _skip(name, str(why))
        return None
    written = [_memory(operands[slot]) for slot in check.written]
    for p in check.params:
        piece = _memory(operands[p.arg.slot])
        needed = p.arg.slot in check.read or p.arg.slot in check.met
        if needed and any(piece.overlaps(w) for w in written):
            check.before[p.arg.slot] = piece.read(p.dtype, device).copy()
    return check


def _memory(piece: Piece | int) -> Piece:
    assert isinstance(piece, Piece)
    return piece


def _run_one(device: Any, call: UOp, operands: Sequence[Piece | int]) -> int:
    """Nanoseconds."""
    items, number, programs = launching((loaded[call.src[0]], range(len(operands))))
    commands = device.encode(items, number, programs)
    for k, piece in enumerate(operands):
        commands.bind(k, piece if isinstance(piece, int) else piece.address)
    return int(commands.launch_timed()[0])


def _compare(
    check: KernelCheck, device: Any, call: UOp, operands: Sequence[Piece | int], arithmetic: Arithmetic
) -> None:
    def now(p: UOp) -> Array:
        return _memory(operands[p.arg.slot]).read(p.dtype, device)

    name = call.src[0].arg.name
    try:
        with np.errstate(all="ignore"):
            for p, d in check.compare(now, arithmetic):
                text = f"kernel {name} stored a value that it does not compute before any pass"
                raise _error(text, f"argument {p.arg.slot} ({p.dtype.name})", d, kernel_of(call))
    except Unsupported as why:
        _skip(name, str(why))


def _error(text: str, what: str, d: Difference, graph: UOp) -> VerifyError:
    origins = profile.origins(graph)
    return VerifyError(
        f"{text}: {what}, element {d.at} (samples of seed {SEED})",
        op=graph.op,
        expected=d.expected,
        found=d.found,
        line=(origins[0][0], origins[0][1]) if origins else ("", 0),
    )


def _skip(name: str, why: str) -> None:
    if "passes" in settings.tracing:
        print(f"       {name:15} not compared: {why}", file=sys.stderr)


def arithmetic_of(variables: Sequence[UOp]) -> Arithmetic:
    """The values that Variables have now, and how the settings let floats round."""
    return Arithmetic({v.arg.symbol: value_of(v) for v in variables}, bool(settings.TF32))


# ---- plans -----------------------------------------------------------------------------------------------------------
class Target(NamedTuple):
    """A value that is complete after item `last`, in the memory of this operand: as it was scheduled, and as it was
    asked for, if an equal one was. `needed`: the last item after which another value is computed from it.
    """

    value: UOp
    before: UOp | None
    operand: UOp
    last: int
    needed: int = -1

    @property
    def node(self) -> UOp:
        """What it is compared with."""
        return self.value if self.before is None else self.before


class Held:
    """What memory held when values were complete, for the graph that was asked for and for the one scheduled."""

    def __init__(self) -> None:
        self.asked: dict[UOp, Array] = {}
        self.scheduled: dict[UOp, Array] = {}

    def put(self, t: Target, array: Array) -> None:
        self.scheduled[t.value] = array
        if t.before is not None:
            self.asked[t.before] = array

    def drop(self, t: Target) -> None:
        self.scheduled.pop(t.value, None)
        if t.before is not None:
            self.asked.pop(t.before, None)

    def around(self, t: Target) -> dict[UOp, Array]:
        """What the value is computed from."""
        return self.scheduled if t.before is None else self.asked


def run_plan(
    plan: Plan, batch: Sequence[UOp], storages: Sequence[Any], owned: Sequence[Any], sizes: Sequence[int]
) -> None:
    """Run a plan that computes `batch` (nothing for a kernel of the user's), and compare. Raises VerifyError.

    `storages`: memory of its inputs, then of its outputs; `owned`: of what is between; `sizes`: values of Variables.
    """
    device, arithmetic, held = Device[plan.device], arithmetic_of(plan.variables), Held()
    pieces = dict(enumerate([*storages, *sizes, *owned]))
    roots = over_params(list(batch))[0].src if batch else ()
    for p in toposort(*roots):
        if p.op == "PARAM" and p.arg.name is None and (memory := pieces.get(p.arg.slot)) is not None:
            held.asked[p] = held.scheduled[p] = Piece(memory, 0, memory.n_bytes).read(p.dtype, device)
    targets = _targets(plan, roots)

    def done(i: int) -> None:
        mine = [t for t in targets if t.last == i]
        for t in mine:
            array = _memory(piece_of(t.operand, plan.number, pieces)).read(t.value.dtype, device)
            held.put(t, array.copy() if t.needed > i else array)
        for t in mine:
            _compare_value(t, held.around(t), arithmetic)
        for t in targets:
            if t.last <= i and t.needed <= i:
                held.drop(t)

    run_items(device, plan.items, plan.number, pieces, plan.variables, done)


def _compare_value(t: Target, around: dict[UOp, Array], arithmetic: Arithmetic) -> None:
    what = f"{t.node.op} {t.node.dtype.name} {t.node.shape}"
    try:
        with np.errstate(all="ignore"):
            for d in _differences(t.node, around, arithmetic):
                raise _error("a value in memory is not that of the tensor graph", what, d, t.node)
    except Unsupported as why:
        _skip(what, str(why))


def _differences(u: UOp, around: dict[UOp, Array], arithmetic: Arithmetic) -> list[Difference]:
    """Elements of a value that differ. A comparison of a stored float with the same float computed again is decided by
    the last bit, which a kernel rounds in its own way: then both sides are computed again, from the inputs.
    """
    found = [*compare_value(u, around[u], around, arithmetic)]
    if not found or not any(s.op.startswith("CMP") and s.src[0].dtype.is_float for s in toposort(u)):
        return found
    inputs = {s: array for s, array in around.items() if s.op == "PARAM"}
    return [*compare_value(u, around[u], inputs, arithmetic)]


_known: dict[int, tuple[Plan, tuple[UOp, ...], list[Target]]] = {}


def _targets(plan: Plan, roots: tuple[UOp, ...]) -> list[Target]:
    """The values that a plan stores, in whole."""
    known = _known.get(id(plan))
    if known is None or known[0] is not plan or known[1] != roots:
        if len(_known) > 256:
            _known.clear()
        known = _known[id(plan)] = plan, roots, _lived(_stored(plan, roots))
    return known[2]


class Stored(NamedTuple):
    """A value that a schedule stores: as it is scheduled, its buffer, and the value that was asked for, if there was
    an equal one.
    """

    value: UOp
    buffer: UOp
    before: UOp | None


def stored_values(roots: Sequence[UOp], target: CompileTarget) -> tuple[Schedule, list[Stored]]:
    """The schedule of values, and which values its buffers hold."""
    pipeline = import_module("monolect.pipeline")  # the scheduler tells what it stored: verification can wait for it
    with following() as followed, Context(STOP_AFTER="", VERIFY=0, CHECK_BOUNDS=0, DUMP="", DEBUG=0, TRACE=""):
        found = pipeline.scheduled(node("TUPLE", tuple(roots)), target)
    before: dict[UOp, UOp] = {}
    for u in toposort(*roots):
        v = u
        for step in followed.steps:
            v = step.get(v, v)
        before.setdefault(v, u)
    made = schedule_of(found)
    results = dict(zip(made.outputs, roots, strict=True))  # whatever a rewrite records, a result is what was asked for
    return made, [Stored(u, b, before.get(u, results.get(b))) for u, b in followed.buffers.items()]


def _stored(plan: Plan, roots: tuple[UOp, ...]) -> list[Target]:
    if not roots:
        return []
    found, stored = stored_values(roots, target_of(plan.device))
    made = schedule_of(plan.schedule)
    views = _views(made, plan)
    last: dict[UOp, int] = {}  # for each buffer; an item of the command buffer may name a part of it alone
    for i, call in enumerate(made.linear.src):
        last |= {_view(call.src[1 + k]): i for k in writes(call)}
    if found.linear is not made.linear:
        _skip("values", "the schedule is another one than would be made now: only results")
        pairs = zip(roots, made.outputs, strict=True)
        return [Target(r, r, views[b], last[b]) for r, b in dict(pairs).items() if b in views and b in last]
    overwritten = {(s.value.src[0], s.buffer) for s in stored if s.value.op == "AFTER"}
    final = [s for s in stored if (s.value, s.buffer) not in overwritten and s.buffer in views and s.buffer in last]
    return [Target(s.value, s.before, views[s.buffer], last[s.buffer]) for s in final]


def _views(made: Schedule, plan: Plan) -> dict[UOp, UOp]:
    """The view that each buffer of a schedule became, where the command buffer takes it as a whole."""
    out: dict[UOp, UOp] = {}
    for before, after in zip(made.linear.src, plan.items, strict=True):
        for b, u in zip(before.src[1:], after.src[1:], strict=True):
            if not is_size(b) and buffer_bytes(b) == buffer_bytes(u):
                out.setdefault(b, _view(u))
    return out


def _view(u: UOp) -> UOp:
    """An operand without what it comes after."""
    while u.op == "AFTER":
        u = u.src[0]
    return u


def _lived(targets: list[Target]) -> list[Target]:
    """The same, each with how long it is needed."""
    needed: dict[UOp, int] = {}
    scheduled, asked = {t.value: t for t in targets}, {t.before: t for t in targets if t.before is not None}
    for t in targets:
        among = scheduled if t.before is None else asked
        seen: set[UOp] = set()
        stack = [*t.node.src]
        while stack:
            u = stack.pop()
            if u not in seen:
                seen.add(u)
                source = among.get(u)
                if source is not None and source.last <= t.last:
                    needed[source.value] = max(needed.get(source.value, -1), t.last)
                else:
                    stack.extend(u.src)
    return [t._replace(needed=needed.get(t.value, -1)) for t in targets]


__all__ = ["Piece", "Pieces", "arithmetic_of", "run_items", "run_plan"]
