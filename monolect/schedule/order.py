"""Build the kernels of a partition, and order them so that each kernel finds its inputs written.

`partition` leaves SINK(results..., GROUP(CALL(kernel, buffers...)...)). A value with its own buffer gets a BUFFER with
a slot that counts from 0. Equal kernels are one SINK, called with different buffers. After a kernel wrote a buffer,
later operands are AFTER(BUFFER, CALL). `order` leaves TUPLE(AFTER(BUFFER, LINEAR(CALL...))...).

Invariant: a schedule writes no input. If one of two CALLs writes a buffer that the other touches, one is AFTER the
other.
"""

from __future__ import annotations

from monolect.base.errors import InternalError
from monolect.ir.ops import BufferArg
from monolect.ir.placement import device
from monolect.ir.rewrite.calls import stored_slots
from monolect.ir.rewrite.normal import neutral
from monolect.ir.uop import UOp, broadcast_to, node, shape_source, substitute_all, toposort
from monolect.schedule.kernels import KernelBuilder, Known
from monolect.schedule.materialize import is_empty
from monolect.schedule.partition import Partition
from monolect.schedule.provenance import note_buffers
from monolect.schedule.ranges import clear_caches, overwrites
from monolect.schedule.result import base


def strip_markers(roots: list[UOp]) -> list[UOp]:
    """Return the roots without DETACH and CONTIGUOUS_BACKWARD on top: a marker needs no separate buffer."""
    out = []
    for root in roots:
        while root.op in ("DETACH", "CONTIGUOUS_BACKWARD"):
            root = root.src[0]
        out.append(root)
    return out


def partition(values: UOp, device_name: str, local_bytes: int) -> UOp:
    """Pass: turn a TUPLE of values over PARAMs into kernels. `local_bytes` is the local memory of each thread."""
    try:
        return _partition([*values.src], device_name, local_bytes)
    finally:
        clear_caches()


def _without_empty_reductions(roots: list[UOp]) -> list[UOp]:
    """Return the roots with reductions over no elements replaced by their neutral value: a loop without iterations is
    none that the kernels of its operands could share.
    """
    reductions = [u for u in toposort(*roots) if u.op == "REDUCE"]
    empty = [u for u in reductions if any(n.__class__ is int and n == 0 for n in u.src[0].shape) and 0 not in u.shape]
    if not empty:
        return roots
    new = {u: broadcast_to(neutral(u.arg[0], u.dtype), u.shape) for u in empty}
    return [*substitute_all(tuple(roots), new)]


def _partition(roots: list[UOp], device_name: str, local_bytes: int) -> UOp:
    """Partition the values `roots`, build each kernel, and return SINK(results..., GROUP(CALLs))."""
    roots = _without_empty_reductions(roots)
    part = Partition(roots, device_name, local_bytes).run()
    buffers = buffers_of(part)
    alive = [k for k, kernel in enumerate(part.kernels) if kernel is not None]
    alive.sort(key=lambda k: -part.kernel(k).later.bit_count())
    memory = _Memory({b for u, b in buffers.items() if b.op == "BUFFER" and not (is_empty(u) or 0 in u.shape)})
    known: Known = {}
    calls: dict[int, UOp] = {}
    for k in alive:
        sink, args = KernelBuilder(part, k, buffers, known).build()
        if sink.src:
            calls[k] = memory.call(sink, args)
    note_buffers({u: b for u, b in buffers.items() if u not in part.padded_values})
    results = [memory.current(buffers.get(r, r)) for r in roots]
    return node("SINK", (*results, node("GROUP", tuple([calls[k] for k in sorted(calls)]))))


class _Memory:
    """The latest version of each BUFFER, and the CALLs that read it since. `empty`: BUFFERs that no CALL wrote yet."""

    def __init__(self, empty: set[UOp]) -> None:
        self.empty = empty
        self.version: dict[UOp, UOp] = {}
        self.readers: dict[UOp, dict[UOp, None]] = {}

    def current(self, b: UOp) -> UOp:
        """Return the latest version of the buffer `b`: the AFTER that wrote it last, or `b` itself."""
        return self.version.get(b, b)

    def call(self, sink: UOp, args: list[UOp]) -> UOp:
        """Return the CALL of `sink` with the buffers `args`; its operands are AFTER the CALLs that must run first.

        Raises InternalError if it reads a buffer not written yet.
        """
        written = stored_slots(sink)
        operands = []
        for k, b in enumerate(args):
            if b in self.empty and k not in written:
                raise InternalError("a kernel reads memory before another writes it", found=repr(b))
            operand = self.version.get(b, b)
            if k in written and (readers := self.readers.get(b)):
                operand = node("AFTER", (operand, *readers))
            operands.append(operand)
        call = node("CALL", (sink, *operands))
        for k, b in enumerate(args):
            if b.op == "BUFFER" and k not in written:
                self.readers.setdefault(b, {})[call] = None
        self.empty.difference_update(args[k] for k in written)
        for k in written:
            self.version[args[k]] = node("AFTER", (args[k], call))
            self.readers.pop(args[k], None)
        return call


def order(sink: UOp) -> UOp:
    """Pass: put the CALLs of a partition into a LINEAR. CALLs that most others depend on run first."""
    *results, group = sink.src
    calls = group.src
    number = {c: k for k, c in enumerate(calls)}
    later = [0] * len(calls)  # for each CALL, the CALLs that must run after it, as bits
    # users before their operands: a node's serial number is larger than its sources'
    for c in sorted(calls, key=lambda c: -c.serial):
        k = number[c]
        for x in c.src[1:]:
            while x.op == "AFTER":
                for d in x.src[1:]:
                    later[number[d]] |= later[k] | 1 << k
                x = x.src[0]
    first = sorted(range(len(calls)), key=lambda k: -later[k].bit_count())
    linear = node("LINEAR", tuple([node("CALL", (calls[k].src[0], *map(base, calls[k].src[1:]))) for k in first]))
    out = []
    for r in results:
        b = base(r)
        out.append(b if b is r else node("AFTER", (b, linear)))
    return node("TUPLE", tuple(out))


def buffers_of(part: Partition) -> dict[UOp, UOp]:
    """Return the buffer of each stored value. A partial assign shares the buffer of its target."""
    out: dict[UOp, UOp] = {}
    for u in part.order:
        if u not in part.stored or u in part.padded_values:
            continue
        if u.op == "AFTER" and not overwrites(u):
            out[u] = out.get(u.src[0], u.src[0])
        else:
            dev = part.kernel(part.find(part.stored[u][0])).device or device(u)
            out[u] = node("BUFFER", (shape_source(u.shape),), BufferArg(len(out), u.dtype, dev))
    return out | {u: out[f.padded] for u, f in part.padded_values.items()}


__all__ = ["buffers_of", "order", "partition", "strip_markers"]
