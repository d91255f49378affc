"""Plan batches for devices that this machine does not have: several null devices, whose values have no memory.

What it is for: `distributed.simulate` (predicted seconds, messages and memory). The plan is that of the first device,
made by the passes that plan every step: schedule, order of gathers, memory.
What it is not: it compiles no kernel and computes no value.

Invariant: a value on several null devices never has bytes here, however large it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from monolect.backend.common.host.absent import AbsentMemory
from monolect.base.collector import collection_paused
from monolect.base.errors import DeviceError
from monolect.base.target import Target
from monolect.command.forms import base_of as memory_of
from monolect.command.forms import items_of, operands_of, program_info, program_of, with_operands, with_program
from monolect.command.passes import joined, planned
from monolect.command.rewrites.in_place import may_overwrite, uses_of
from monolect.ir.bounds import size_max
from monolect.ir.layout import part_shape
from monolect.ir.ops import ProgramInfo
from monolect.ir.placement import device as device_of
from monolect.ir.placement import engine
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, new_buffer, node, substitute_all
from monolect.runtime.buffer import Shards, base_of
from monolect.runtime.realize import schedule_cache
from monolect.runtime.realize.compound import compound_schedule, with_binaries_loaded
from monolect.runtime.realize.plan import batch_step, target_of
from monolect.runtime.sharded import on_engines, separate
from monolect.schedule.callify import over_params, resolve_functions
from monolect.schedule.result import schedule_of
from monolect.schedule.rewrites.representative import part_of_first, representative
from monolect.schedule.rewrites.shard import is_on_several


class AbsentShards(Shards):
    """The storage of a BUFFER on several null devices: it has sizes, and no bytes. Reading it raises DeviceError."""

    def __init__(self, b: UOp) -> None:
        self.whole, self.axis = b, b.arg.axis
        self.memory = AbsentMemory(size_max(count(b.shape)) * b.dtype.itemsize, _unknown)
        self.address = self.memory.address
        self.view = self.memory.view  # type: ignore[method-assign]

    @cached_property
    def parts(self) -> tuple[UOp, ...]:  # type: ignore[override]
        """A BUFFER without bytes for each device, made when a plan of all devices asks for them."""
        b, names = self.whole, self.whole.arg.device
        others = [
            new_buffer(part_shape(b.shape, self.axis, i, len(names)), b.dtype, names[i]) for i in range(len(names))
        ]
        return (part_of_first(b), *others[1:])


def _unknown() -> DeviceError:
    """Return (not raise) the error for a read of a value of a simulation."""
    expected = "distributed.simulate, which predicts what a program costs"
    return DeviceError("a read of a tensor on several null devices", expected=expected, found="no values")


def absent_results(batch: Sequence[UOp]) -> list[UOp]:
    """Return a BUFFER without bytes for each value of a batch on several null devices."""
    return [_absent(r) for r in batch]


def _absent(r: UOp) -> UOp:
    """Return a BUFFER of the shape, dtype and devices of `r` without bytes."""
    b = new_buffer(r.shape, r.dtype, device_of(r), 0 if not is_on_several(r) else r._placement[2])
    b.storage = (
        AbsentShards(b) if is_on_several(r) else AbsentMemory(size_max(count(r.shape)) * r.dtype.itemsize, _unknown)
    )
    return b


def planned_step(batch: Sequence[UOp], of: Callable[[list[UOp]], list[UOp]] = representative) -> UOp:
    """Return the step that computes the values of `batch`: a FUNCTION whose kernels are PROGRAMs without code.

    `of`: the pass that leaves values on single devices: `representative`, for the step of the first device, which
    raises DeviceError if the devices run different programs, or `shard`, for the step of all of them.
    """
    with collection_paused():
        values, _ = on_engines(of(resolve_functions([*batch])))
        dev = next((d for d in map(device_of, values) if d is not None), "null")
        roots = with_binaries_loaded(separate(values, [engine(device_of(v) or dev) for v in values]), dev)
        over, buffers, variables = over_params(roots, with_calls=True)
        found = compound_schedule(over, len(buffers), dev, _scheduled)
        outputs = schedule_of(found).outputs
        fresh = [b for b in dict.fromkeys(outputs) if b.op == "BUFFER"]
        target = target_of(dev)
        step = joined(batch_step(found, len(buffers), fresh, variables, dev), target)
        return planned(_in_place(step, _states(values, buffers, outputs, fresh)), target, _programs)


def _scheduled(values: UOp, dev: str) -> UOp:
    target = target_of(dev)
    return schedule_cache.cached_schedule(values, target, schedule_cache.name_of(values, target))


def _states(
    values: Sequence[UOp], buffers: Sequence[UOp], outputs: Sequence[UOp], fresh: Sequence[UOp]
) -> list[tuple[int, int]]:
    """Return (slot before, slot after) of each tensor that the batch assigns. `outputs`: the memory of each value."""
    before = {b: k for k, b in enumerate(buffers)}
    after = {b: len(buffers) + k for k, b in enumerate(fresh)}
    return [
        (before[base_of(v.src[0])], after[o])
        for v, o in zip(values, outputs, strict=True)
        if v.op == "AFTER" and base_of(v.src[0]) in before and o in after
    ]


def _in_place(step: UOp, states: Sequence[tuple[int, int]]) -> UOp:
    """Return `step` with the new version of a state in the memory of the old one where that is safe, as in a captured
    step. `states`: (slot before, slot after) of each.
    """
    items = items_of(program_of(step))
    params = {b.arg.slot: b for c in items for b in map(memory_of, operands_of(c)) if b.op == "PARAM"}
    uses = uses_of([(c.src[0], [memory_of(u) for u in c.src[1:]]) for c in items if c.op == "CALL"])
    new = {
        params[after]: params[before]
        for before, after in states
        if before in params and after in params and may_overwrite(params[before], params[after], uses)
    }
    if not new:
        return step
    states_at = {b.arg.slot for b in new.values()}
    roles = tuple(["state" if k in states_at else role for k, role in enumerate(step.arg.roles)])
    old = tuple([out for out in step.src[0].src if out.op == "AFTER" and out.src[0] in new])
    outs = dict(zip(old, substitute_all(old, new), strict=True))
    values = node("TUPLE", tuple([outs.get(out, out) for out in step.src[0].src]))
    step = node("FUNCTION", (values, *step.src[1:]), step.arg._replace(roles=roles))
    return with_program(step, [with_operands(c, [new.get(u, u) for u in operands_of(c)]) for c in items])


def _programs(kernels: Mapping[UOp, Sequence[UOp]], target: Target) -> dict[UOp, UOp]:
    """Return a PROGRAM without code for each kernel: what later passes ask of it follows from the kernel."""

    def info(kernel: UOp, operands: Sequence[UOp]) -> ProgramInfo:
        return program_info(kernel, operands, "simulated", "", target.n_threads, 0)

    return {kernel: node("PROGRAM", (kernel,), info(kernel, operands)) for kernel, operands in kernels.items()}


__all__ = ["absent_results", "planned_step"]
