"""The partition as a LINEAR of CALLs, in an order in which every kernel finds its inputs written.

Values with a buffer of their own get a BUFFER with a slot that counts from 0 in this schedule; the runtime gives them
memory. Equal kernels are one SINK called with different buffers.
"""

from __future__ import annotations

from typing import NamedTuple

from monolect.ir.ops import BufferArg
from monolect.ir.place import device
from monolect.ir.uop import UOp, node, shape_source, toposort
from monolect.schedule.join_parts import join_parts
from monolect.schedule.join_products import join_products
from monolect.schedule.kernels import KernelBuilder, Known
from monolect.schedule.masked_sums import masked_sums
from monolect.schedule.materialize import own_targets
from monolect.schedule.partition import Partition
from monolect.schedule.ranges import forget, overwrites
from monolect.schedule.renewed import following
from monolect.schedule.result import Schedule
from monolect.schedule.split_reductions import split_reductions
from monolect.schedule.split_scatters import split_scatters
from monolect.schedule.split_softmax import split_softmax


def schedule(roots: list[UOp], default_device: str, local_bytes: int = 0) -> Schedule:
    """Kernels for the requested values `roots`, whose inputs are PARAMs. `local_bytes`: local memory of each thread."""
    try:
        return _schedule(roots, default_device, local_bytes)[0]
    finally:
        forget()


class Stored(NamedTuple):
    """A value that a schedule stores: as it is scheduled, its buffer, and the value that was asked for, if there was
    an equal one.
    """

    value: UOp
    buffer: UOp
    before: UOp | None


def stored_values(roots: list[UOp], default_device: str, local_bytes: int = 0) -> tuple[Schedule, list[Stored]]:
    """What `schedule` gives, and which values its buffers hold: for `VERIFY=2`."""
    try:
        with following() as steps:
            found, buffers = _schedule(roots, default_device, local_bytes)
    finally:
        forget()
    before: dict[UOp, UOp] = {}
    for u in toposort(*roots):
        v = u
        for step in steps:
            v = step.get(v, v)
        before.setdefault(v, u)
    return found, [Stored(u, b, before.get(u)) for u, b in buffers.items()]


def _schedule(roots: list[UOp], default_device: str, local_bytes: int) -> tuple[Schedule, dict[UOp, UOp]]:
    """The schedule, and the buffer of each value that is stored in one of its own."""
    roots = masked_sums(own_targets([_same_value(r) for r in roots]))
    roots = join_products(join_parts(roots))
    roots = split_reductions(split_scatters(roots))
    roots = split_softmax(roots, local_bytes)
    part = Partition(roots, default_device, local_bytes).run()
    buffers = buffers_of(part)
    alive = [k for k, kernel in enumerate(part.kernels) if kernel is not None]
    alive.sort(key=lambda k: -part.kernel(k).later.bit_count())
    calls = []
    known: Known = {}
    for k in alive:
        sink, args = KernelBuilder(part, k, buffers, known).build()
        if sink.src:
            calls.append(node("CALL", (sink, *args)))
    outputs = tuple(buffers.get(r, r) for r in roots)
    own = {u: b for u, b in buffers.items() if u not in part.frames}
    return Schedule(node("LINEAR", tuple(calls)), outputs), own


def _same_value(root: UOp) -> UOp:
    """What a marker marks: the two have the same elements and need no two buffers."""
    while root.op in ("DETACH", "CONTIGUOUS_BACKWARD"):
        root = root.src[0]
    return root


def buffers_of(part: Partition) -> dict[UOp, UOp]:
    """The buffer behind each stored value; a partial assign shares its target's."""
    out: dict[UOp, UOp] = {}
    for u in part.order:
        if u not in part.stored or u in part.frames:
            continue
        if u.op == "AFTER" and not overwrites(u):
            out[u] = out.get(u.src[0], u.src[0])
        else:
            dev = part.kernel(part.find(part.stored[u][0])).device or device(u)
            out[u] = node("BUFFER", (shape_source(u.shape),), BufferArg(len(out), u.dtype, dev))
    return out | {u: out[f.around] for u, f in part.frames.items()}
