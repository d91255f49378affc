"""Compare a few elements that a program stored with their expected values: `VERIFY=2` and 3.

What it is for: it finds faults of any part of the compiler, at real sizes, also in code that came from a cache.
Launches run one at a time. After each launch, sampled elements that its kernel stored are computed from the kernel as
the scheduler left it. Sampled elements of each value that is complete by then are computed from the tensor graph. Both
are computed from the contents of memory.
What it is not: part of the fast path, which imports nothing of this module.

Not compared, and named under TRACE=passes: reductions that are too long, native code, user loops that carry values. In
replays of a captured step kernels are compared, not values; launches that would run in parallel run one by one.
Invariant: a difference that rounding can explain is not reported (`ir.check.arithmetics`).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from monolect.backend.base import launching
from monolect.backend.registry import Device
from monolect.base.dtype import DType
from monolect.base.errors import VerifyError
from monolect.base.settings import Context, settings
from monolect.base.target import Target
from monolect.command.forms import buffer_bytes, is_size, kernel_of, read_operand, writes
from monolect.ir.check.arrays import Array, storage
from monolect.ir.check.compare import SEED, Difference, EvaluationOptions, KernelCheck, compare_value
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
    from monolect.runtime.realize.encode import Plan

HOST = "host"


class Piece(NamedTuple):
    """A range of bytes in the memory of a buffer."""

    storage: Any
    offset: int
    n_bytes: int

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return int(self.storage.address) + self.offset

    def overlaps(self, other: Piece) -> bool:
        """Return whether the two ranges have a byte in common."""
        return self.address < other.address + other.n_bytes and other.address < self.address + self.n_bytes

    def read(self, d: DType, device: Any) -> Array:
        """Return the elements of dtype `d`: a view if the host reaches the memory, else a copy. `n_views` of the
        memory does not count this view.
        """
        kind = storage(d)
        n = self.n_bytes // kind.itemsize * kind.itemsize
        if device.space == HOST:
            flat = np.ctypeslib.as_array((ctypes.c_uint8 * n).from_address(self.address))
        else:
            flat = self.storage.view(np.uint8)[self.offset : self.offset + n]
        return flat.view(kind)


Pieces = Mapping[int, Any]  # by position: memory object, or int value of a Variable


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
    """Run the items of a command buffer one by one, and compare the elements that each stored. Raises VerifyError.

    `number`: the position of each PARAM and BUFFER. `done`: called with an item's index after its comparison.
    `replayed`: whether the items are a replay of a captured step, for the lines of DEBUG=2.
    """
    options = evaluation_options(variables)
    times: list[int] = []
    for i, call in enumerate(items):
        operands = [piece_of(u, number, pieces) for u in call.src[1:]]
        check = _check_of(device, call, operands)
        times.append(_run_one(device, call, operands))
        if check is not None:
            _compare(check, device, call, operands, options)
        done(i)
    if settings.tracing or profile.recording:
        profile.record(tuple(items), times, replayed)


def piece_of(u: UOp, number: Mapping[UOp, int], pieces: Pieces) -> Piece | int:
    """Return the memory of an operand, or the value of a size."""
    o = read_operand(u)
    memory = pieces[number[o.base]]
    if isinstance(memory, int):
        return memory
    n_bytes = min(buffer_bytes(u), memory.n_bytes - o.offset)  # a bound size may be below its maximum
    return Piece(memory, o.offset, n_bytes)


def _check_of(device: Any, call: UOp, operands: Sequence[Piece | int]) -> KernelCheck | None:
    """Return the KernelCheck of a CALL, with snapshots of the operands that it reads and overwrites; None if the kernel
    is not compared.
    """
    sink, name = kernel_of(call), call.src[0].arg.name
    if sink.op != "SINK" or sink.arg.fills:
        _skip(name, "native code, or a kernel that packs")
        return None
    try:
        check = KernelCheck(sink)
    except Unsupported as why:
        _skip(name, str(why))
        return None
    written = [_as_piece(operands[slot]) for slot in check.written]
    for p in check.params:
        piece = _as_piece(operands[p.arg.slot])
        needed = p.arg.slot in check.read or p.arg.slot in check.overlapping
        if needed and any(piece.overlaps(w) for w in written):
            check.before[p.arg.slot] = piece.read(p.dtype, device).copy()
    return check


def _as_piece(piece: Piece | int) -> Piece:
    """Return an operand that is memory, not a size."""
    assert isinstance(piece, Piece)
    return piece


def _run_one(device: Any, call: UOp, operands: Sequence[Piece | int]) -> int:
    """Run one CALL; return its time in nanoseconds."""
    items, number, programs = launching((loaded[call.src[0]], range(len(operands))))
    commands = device.encode(items, number, programs)
    for k, piece in enumerate(operands):
        commands.bind(k, piece if isinstance(piece, int) else piece.address)
    return int(commands.launch_timed()[0])


def _compare(
    check: KernelCheck, device: Any, call: UOp, operands: Sequence[Piece | int], options: EvaluationOptions
) -> None:
    """Compare sampled elements that a kernel stored. Raises VerifyError."""

    def now(p: UOp) -> Array:
        return _as_piece(operands[p.arg.slot]).read(p.dtype, device)

    name = call.src[0].arg.name
    try:
        with np.errstate(all="ignore"):
            for p, d in check.compare(now, options):
                text = f"kernel {name} stored a value that it does not compute before any pass"
                raise _error(text, f"argument {p.arg.slot} ({p.dtype.name})", d, kernel_of(call))
    except Unsupported as why:
        _skip(name, str(why))


def _error(text: str, what: str, d: Difference, graph: UOp) -> VerifyError:
    """Return the VerifyError for the difference `d`, with the origin of `graph`."""
    origins = profile.origins(graph)
    return VerifyError(
        f"{text}: {what}, element {d.at} (samples of seed {SEED})",
        op=graph.op,
        expected=d.expected,
        found=d.found,
        line=(origins[0][0], origins[0][1]) if origins else ("", 0),
    )


def _skip(name: str, why: str) -> None:
    """Print why something is not compared, under TRACE=passes."""
    if "passes" in settings.tracing:
        print(f"       {name:15} not compared: {why}", file=sys.stderr)


def evaluation_options(variables: Sequence[UOp]) -> EvaluationOptions:
    """Return the current values of Variables, and how the settings let floats round."""
    return EvaluationOptions({v.arg.symbol: value_of(v) for v in variables}, bool(settings.TF32))


# ---- plans -----------------------------------------------------------------------------------------------------------
class StoredValue(NamedTuple):
    """A value that a plan stores, complete after item `last` in the memory of `operand`.

    `value`: the value as scheduled. `before`: the equal value of the requested graph, None if there is none. `needed`:
    the last item after which another value is computed from this one.
    """

    value: UOp
    before: UOp | None
    operand: UOp
    last: int
    needed: int = -1

    @property
    def reference(self) -> UOp:
        """The node that the memory is compared with."""
        return self.value if self.before is None else self.before


class Snapshots:
    """Contents of memory when each value was complete, by the node of the value in the requested graph and in the
    scheduled graph.
    """

    def __init__(self) -> None:
        self.requested: dict[UOp, Array] = {}
        self.scheduled: dict[UOp, Array] = {}

    def put(self, t: StoredValue, array: Array) -> None:
        """Note the elements of a complete value."""
        self.scheduled[t.value] = array
        if t.before is not None:
            self.requested[t.before] = array

    def drop(self, t: StoredValue) -> None:
        """Forget the elements of a value."""
        self.scheduled.pop(t.value, None)
        if t.before is not None:
            self.requested.pop(t.before, None)

    def known(self, t: StoredValue) -> dict[UOp, Array]:
        """Return the snapshots, by node, of the graph from which `t` is computed for the comparison."""
        return self.scheduled if t.before is None else self.requested


def run_plan(
    plan: Plan, batch: Sequence[UOp], storages: Sequence[Any], owned: Sequence[Any], sizes: Sequence[int]
) -> None:
    """Run a plan that computes `batch` and compare its values. Raises VerifyError.

    `batch`: empty for a user's kernel. `storages`: memory of the inputs, then of the outputs. `owned`: memory of the
    plan's own BUFFERs. `sizes`: values of the Variables.
    """
    device, options, held = Device[plan.device], evaluation_options(plan.variables), Snapshots()
    pieces = dict(enumerate([*storages, *sizes, *owned]))
    roots = over_params(list(batch))[0].src if batch else ()
    for p in toposort(*roots):
        if p.op == "PARAM" and p.arg.name is None and (memory := pieces.get(p.arg.slot)) is not None:
            held.requested[p] = held.scheduled[p] = Piece(memory, 0, memory.n_bytes).read(p.dtype, device)
    targets = _stored_values(plan, roots)

    def done(i: int) -> None:
        mine = [t for t in targets if t.last == i]
        for t in mine:
            array = _as_piece(piece_of(t.operand, plan.number, pieces)).read(t.value.dtype, device)
            held.put(t, array.copy() if t.needed > i else array)
        for t in mine:
            _compare_value(t, held.known(t), options)
        for t in targets:
            if t.last <= i and t.needed <= i:
                held.drop(t)

    run_items(device, plan.items, plan.number, pieces, plan.variables, done)


def _compare_value(t: StoredValue, around: dict[UOp, Array], options: EvaluationOptions) -> None:
    """Compare sampled elements of a complete value, computed from the elements in `around`. Raises VerifyError."""
    what = f"{t.reference.op} {t.reference.dtype.name} {t.reference.shape}"
    try:
        with np.errstate(all="ignore"):
            for d in _differences(t.reference, around, options):
                raise _error("a value in memory is not that of the tensor graph", what, d, t.reference)
    except Unsupported as why:
        _skip(what, str(why))


def _differences(u: UOp, around: dict[UOp, Array], options: EvaluationOptions) -> list[Difference]:
    """Return the sampled elements of the value `u` that differ from those computed from `around`.

    If `u` compares floats, the result of a comparison may depend on the last bit of a stored float, which the kernel
    rounds in its own way. Such values are compared a second time, with everything computed from the inputs.
    """
    found = [*compare_value(u, around[u], around, options)]
    if not found or not any(s.op.startswith("CMP") and s.src[0].dtype.is_float for s in toposort(u)):
        return found
    inputs = {s: array for s, array in around.items() if s.op == "PARAM"}
    return [*compare_value(u, around[u], inputs, options)]


_known: dict[int, tuple[Plan, tuple[UOp, ...], list[StoredValue]]] = {}


def _stored_values(plan: Plan, roots: tuple[UOp, ...]) -> list[StoredValue]:
    """Return the values that a plan stores as a whole, from a cache of 256 plans."""
    known = _known.get(id(plan))
    if known is None or known[0] is not plan or known[1] != roots:
        if len(_known) > 256:
            _known.clear()
        known = _known[id(plan)] = plan, roots, _with_last_use(_stored(plan, roots))
    return known[2]


class Stored(NamedTuple):
    """A value that a schedule stores: the value as scheduled, its buffer, and the equal value of the requested graph or
    None.
    """

    value: UOp
    buffer: UOp
    before: UOp | None


def stored_values(roots: Sequence[UOp], target: Target) -> tuple[Schedule, list[Stored]]:
    """Return the schedule of the values `roots`, and the values that its buffers hold."""
    from monolect.pipeline import scheduled  # imported only for VERIFY

    # schedules again, as cached schedules lack provenance
    with following() as followed, Context(STOP_AFTER="", VERIFY=0, CHECK_BOUNDS=0, DUMP="", DEBUG=0, TRACE=""):
        found = scheduled(node("TUPLE", tuple(roots)), target)
    before: dict[UOp, UOp] = {}
    for u in toposort(*roots):
        v = u
        for step in followed.steps:
            v = step.get(v, v)
        before.setdefault(v, u)
    made = schedule_of(found)
    results = dict(zip(made.outputs, roots, strict=True))  # a result counts as requested, whatever rewrites recorded
    return made, [Stored(u, b, before.get(u, results.get(b))) for u, b in followed.buffers.items()]


def _stored(plan: Plan, roots: tuple[UOp, ...]) -> list[StoredValue]:
    """Return the values that a plan stores as a whole, without their last use."""
    if not roots:
        return []
    found, stored = stored_values(roots, target_of(plan.device))
    made = schedule_of(plan.schedule)
    views = _views(made, plan)
    last: dict[UOp, int] = {}  # by buffer: the last item that writes it
    for i, call in enumerate(made.linear.src):
        last |= {_view(call.src[1 + k]): i for k in writes(call)}
    if found.linear is not made.linear:
        _skip("values", "the plan's schedule differs from a new one: only results are compared")
        pairs = zip(roots, made.outputs, strict=True)
        return [StoredValue(r, r, views[b], last[b]) for r, b in dict(pairs).items() if b in views and b in last]
    overwritten = {(s.value.src[0], s.buffer) for s in stored if s.value.op == "AFTER"}
    final = [s for s in stored if (s.value, s.buffer) not in overwritten and s.buffer in views and s.buffer in last]
    return [StoredValue(s.value, s.before, views[s.buffer], last[s.buffer]) for s in final]


def _views(made: Schedule, plan: Plan) -> dict[UOp, UOp]:
    """Return {buffer of the schedule: operand of the plan that holds it}, for buffers of which an item of the plan
    takes all bytes.
    """
    out: dict[UOp, UOp] = {}
    for before, after in zip(made.linear.src, plan.items, strict=True):
        for b, u in zip(before.src[1:], after.src[1:], strict=True):
            if not is_size(b) and buffer_bytes(b) == buffer_bytes(u):
                out.setdefault(b, _view(u))
    return out


def _view(u: UOp) -> UOp:
    """Return an operand without the AFTERs around it."""
    while u.op == "AFTER":
        u = u.src[0]
    return u


def _with_last_use(targets: list[StoredValue]) -> list[StoredValue]:
    """Return the values with `needed` set."""
    needed: dict[UOp, int] = {}
    scheduled, requested = {t.value: t for t in targets}, {t.before: t for t in targets if t.before is not None}
    for t in targets:
        among = scheduled if t.before is None else requested
        seen: set[UOp] = set()
        stack = [*t.reference.src]
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


__all__ = ["Piece", "Pieces", "evaluation_options", "run_items", "run_plan"]
