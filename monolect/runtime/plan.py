"""Making plans: a batch of values scheduled, compiled and bound to a command buffer, once for each structure.

`execute` imports it when the first batch needs a plan. Where something was not compiled before, it imports the compiler
(`runtime/lowering.py`, `schedule/order.py`); a process that finds everything on disk never does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from monolect.backend.base import Commands, Launch, Ordered, Program
from monolect.backend.common.native import NativeDevice
from monolect.backend.registry import Device
from monolect.base.collector import collection_paused
from monolect.base.errors import ArgumentError, DeviceError, InternalError
from monolect.base.settings import settings
from monolect.base.version import compiler_version
from monolect.ir.admitted import admit_called
from monolect.ir.digest import digest
from monolect.ir.ops import BufferArg, ParamArg
from monolect.ir.uop import UOp, node
from monolect.runtime import kept, profile
from monolect.runtime.binding import as_written
from monolect.runtime.dependencies import Use, dependencies, written
from monolect.runtime.execute import native_functions
from monolect.runtime.parts import FromParts, from_parts
from monolect.schedule.memory import buffer_bytes, plan_memory
from monolect.schedule.result import Schedule
from monolect.schedule.shard import shard


class Plan(NamedTuple):
    """A batch ready to run. Buffer numbers: inputs, then outputs, then intermediates in one arena."""

    device: str
    commands: Any
    kernels: tuple[UOp, ...]  # the CALLs
    n_inputs: int
    outputs: tuple[int, ...]  # for each root, the number of its buffer
    fresh: tuple[UOp, ...]  # BUFFER templates to allocate: the outputs
    fresh_bytes: tuple[int, ...]  # of each
    offsets: tuple[int, ...]  # of the intermediates in the arena
    arena_bytes: int
    variables: tuple[UOp, ...]  # symbolic sizes, numbered after everything else
    reads: frozenset[int]  # the inputs that some launch takes
    launches: tuple[Launch, ...]


def make_plan(roots: list[UOp], n_inputs: int, dev: str, shape: tuple | None = None) -> Plan:
    """Schedule, compile and bind `roots`, whose inputs are PARAM 0..n_inputs-1.

    `shape` is the `structure` they were made from, if it has one: other processes find the schedule by it.
    """
    start = time.perf_counter_ns()
    with collection_paused():
        roots = shard(roots)
        if settings.STOP_AFTER:
            import_module("monolect.pipeline").check_stop_after()
        batch = shape or node("SINK", tuple(roots))
        name = kept.name_of(batch, dev, _local_bytes(dev))
        return _planned(kept.kept_schedule(roots, dev, _local_bytes(dev), name), n_inputs, dev, start)


def kept_plan(shape: tuple, n_roots: int, n_inputs: int, dev: str) -> Plan | None:
    """The plan of a batch of that `structure`, where a schedule of it is kept."""
    start = time.perf_counter_ns()
    with collection_paused():
        found = kept.find(kept.name_of(shape, dev, _local_bytes(dev)), n_roots)
        return None if found is None else _planned(found, n_inputs, dev, start)


def _local_bytes(dev: str) -> int:
    target = Device[dev].target
    return 0 if target.workgroups else target.local_bytes


def make_kernel_plan(body: UOp, results: list[UOp], inputs: list[UOp], dev: str) -> Plan:
    """Compile and bind one kernel of the user's, or a native function: its results, then its inputs."""
    start = time.perf_counter_ns()
    if body.op == "SINK":
        admit_called(body, Device[dev].target)
    fresh = [node("BUFFER", b.src, BufferArg(k, b.dtype, b.arg.device)) for k, b in enumerate(results)]
    params = [node("PARAM", b.src, ParamArg(k, b.dtype, dev, "GLOBAL")) for k, b in enumerate(inputs)]
    with collection_paused():
        return _planned(
            Schedule(node("LINEAR", (node("CALL", (body, *fresh, *params)),)), tuple(fresh)), len(inputs), dev, start
        )


def _planned(sched: Schedule, n_inputs: int, dev: str, start: int) -> Plan:
    target = Device[dev].target
    calls = sched.linear.src
    outs = {b for b in sched.outputs if b.op == "BUFFER"}
    fresh = [b for b in dict.fromkeys(sched.outputs) if b.op == "BUFFER"]
    memory = plan_memory(sched.linear, outs, target.align_bytes)
    number: dict[Any, int] = {b: n_inputs + i for i, b in enumerate(fresh)}
    for b in memory.offsets:
        number[b] = len(number) + n_inputs
    ranges = {number[b]: (at, at + buffer_bytes(b)) for b, at in memory.offsets.items()}
    scheduled = time.perf_counter_ns()
    variables = _variables(calls, number, n_inputs)
    args = [tuple(_number(b, number) for b in c.src[1:]) for c in calls]
    launches = launches_of(calls, args, dev)
    n_programs = len({id(item.program) for item in launches})  # some programs have no hash
    profile.compiled(scheduled - start, time.perf_counter_ns() - scheduled, len(calls), n_programs)
    return Plan(
        dev,
        _commands(Device[dev], calls, launches, ranges),
        calls,
        n_inputs,
        tuple(b.arg.slot if b.op == "PARAM" else number[b] for b in sched.outputs),
        tuple(fresh),
        tuple(map(buffer_bytes, fresh)),
        tuple(memory.offsets.values()),
        memory.arena_bytes,
        variables,
        frozenset(n for a in args for n in a if n < n_inputs),
        launches,
    )


def launches_of(calls: Sequence[UOp], args: Sequence[tuple[int, ...]], dev: str) -> tuple[Launch, ...]:
    """The launch of each CALL on the buffers of those numbers."""
    has_parts = getattr(Device[dev], "has_parts", False)
    parts = [from_parts(c.src[0], len(c.src) - 1) if has_parts else FromParts(c.src[0], ()) for c in calls]
    programs = compile_kernels([p.kernel for p in parts], dev)
    return tuple(Launch(programs[p.kernel], a, p.offsets) for p, a in zip(parts, args, strict=True))


def _commands(
    device: Any, calls: tuple[UOp, ...], launches: tuple[Launch, ...], ranges: dict[int, tuple[int, int]]
) -> Commands:
    """The command buffer; with what each launch waits for, where others run beside it."""
    if not isinstance(device, Ordered):
        return device.commands(launches)
    uses = [Use(item.args, written(item.args, c).keys()) for item, c in zip(launches, calls, strict=True)]
    return device.ordered(launches, dependencies(uses, ranges, {}))


def _variables(calls: tuple[UOp, ...], number: dict[Any, int], n_inputs: int) -> tuple[UOp, ...]:
    """The Variables the kernels take, each numbered by its name: kernels hold it in different slots."""
    found: dict[str, UOp] = {}
    for b in (b for c in calls for b in c.src[1:] if b.op == "PARAM" and b.arg.name is not None):
        if (same := found.setdefault(b.arg.name, b)).arg.symbol != b.arg.symbol:
            (name, one), (_, other) = as_written(same), as_written(b)
            expected = "one Variable, used wherever it is meant"
            raise ArgumentError(f"two Variables named {name}", expected=expected, found=f"{one} and {other}")
    for name in found:
        number[name] = len(number) + n_inputs
    return tuple(found.values())


def _number(b: UOp, number: dict[Any, int]) -> int:
    if b.op != "PARAM":
        return number[b]
    return b.arg.slot if b.arg.name is None else number[b.arg.name]


def compile_kernels(sinks: list[UOp], dev: str) -> dict[UOp, Program]:
    """A Program for each distinct kernel; what is in no cache is compiled together."""
    device = Device[dev]
    out: dict[UOp, Program] = {}
    missing: list[tuple[UOp, str]] = []
    for s in dict.fromkeys(sinks):
        if s.op == "CUSTOMFUNCTION":
            out[s] = _native(s, dev)
            continue
        key = f"{digest(s)}/{'/'.join(map(str, settings.choices))}/{compiler_version()}"
        found = device.lookup(key)
        if found is None:
            missing.append((s, key))
        else:
            out[s] = found
    if missing:
        lowering = import_module("monolect.runtime.lowering")
        programs = device.compile(lowering.lowered(missing, dev))
        if len(programs) != len(missing):
            raise InternalError(
                "a device compiled another number of kernels", expected=len(missing), found=len(programs)
            )
        for (s, _), p in zip(missing, programs, strict=True):
            out[s] = p
            if "src" in settings.tracing:
                profile.show_source(p)
    return out


def _native(function: UOp, dev: str) -> Program:
    """Machine code of the user's as a Program. Raises DeviceError where the device runs none of this processor."""
    address = native_functions[function.arg][0]
    if not isinstance(Device[dev], NativeDevice):
        raise DeviceError(
            "a native function on a device that does not run this processor's code", expected="cpu or c", found=dev
        )
    return Program(function.arg.partition("@")[0], address, 1)
