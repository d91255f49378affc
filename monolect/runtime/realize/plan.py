"""Make plans: schedule and compile a batch of values and encode its command buffer, once for each structure.

`execute` imports this module when the first batch needs a plan. It imports the compiler (`runtime/realize/lowering.py`,
`schedule/order.py`) only if something is in no cache; a process that finds everything on disk never does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from monolect.backend.registry import Device, is_here, process_of
from monolect.base.collector import collection_paused
from monolect.base.dtype import dtypes, to_numpy
from monolect.base.errors import ArgumentError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.command.forms import (
    base_of,
    buffer_bytes,
    calls_in,
    has_loops,
    home,
    is_size,
    items_of,
    once_of,
    operands_of,
    program_of,
)
from monolect.command.passes import Pass, joined, planned, services
from monolect.ir.ops import ParamArg, StepInfo
from monolect.ir.placement import placement
from monolect.ir.uop import UOp, node, shape_source, toposort
from monolect.runtime import profile
from monolect.runtime.binding import as_written
from monolect.runtime.realize import schedule_cache
from monolect.runtime.realize.encode import One, Plan, encode
from monolect.schedule.result import schedule_of


def make_plan(values: UOp, n_inputs: int, dev: str, batch_key: tuple | None = None) -> Plan:
    """Return the plan of a TUPLE of values whose inputs are PARAM 0..n_inputs-1.

    `batch_key`: the key of the batch, from `callify.structure`, if known; other processes find the schedule by it.
    Raises DTypeError for a value of a dtype without storage, such as an index.
    """
    for v in values.src:
        to_numpy(v.dtype)
    start = time.perf_counter_ns()
    with collection_paused():
        target = target_of(dev)
        found = schedule_cache.cached_schedule(values, target, schedule_cache.name_of(batch_key or values, target))
        return _plan_of_schedule(found, n_inputs, dev, start)


def cached_plan(batch_key: tuple, n_roots: int, n_inputs: int, dev: str) -> Plan | None:
    """Return the plan of the batch with the key `batch_key` (`callify.structure`) if the schedule cache has its
    schedule; None otherwise.
    """
    start = time.perf_counter_ns()
    with collection_paused():
        found = schedule_cache.find(schedule_cache.name_of(batch_key, target_of(dev)), n_roots)
        return None if found is None else _plan_of_schedule(found, n_inputs, dev, start)


def target_of(dev: str) -> Target:
    """Return the target of a device, with the device's name."""
    target: Target = Device[dev].target
    return target if target.name == dev else target._replace(name=dev)


def make_compound_plan(values: UOp, n_inputs: int, dev: str) -> Plan:
    """Return the plan of a TUPLE of values over PARAMs that contains calls or copies between devices."""
    from monolect.runtime.realize.compound import compound_schedule  # imported only for copies

    start = time.perf_counter_ns()

    def schedule(values: UOp, dev: str) -> UOp:
        target = target_of(dev)
        return schedule_cache.cached_schedule(values, target, schedule_cache.name_of(values, target))

    def make() -> UOp:
        return compound_schedule(values, n_inputs, dev, schedule)

    with collection_paused():
        devices = [u.arg.device for u in toposort(values) if u.op in ("PARAM", "LOAD") and u.arg is not None]
        shared = next((d for d in devices if d is not None and process_of(d) is not None), None)
        if shared is None:
            found = make()
        else:
            from monolect.runtime.agreed import agreed_schedule, compile_once  # imported only in jobs

            found = agreed_schedule(values, shared, make)
            compile_once(schedule_of(found)[0].src, shared)
        return _plan_of_schedule(found, n_inputs, dev, start)


def _plan_of_schedule(schedule: UOp, n_inputs: int, dev: str, start: int) -> Plan:
    """Return the plan of a schedule: join, lower and memory-plan it, and encode the command buffer. `start`: the time
    in ns when scheduling began.
    """
    target = target_of(dev)
    linear, outputs = schedule_of(schedule)
    fresh = [b for b in dict.fromkeys(outputs) if b.op == "BUFFER"]
    for b in fresh:
        placement(b)  # known now, it is known of each result
    variables = _variables(linear.src)
    step = batch_step(schedule, n_inputs, fresh, variables, dev)
    scheduled = time.perf_counter_ns()
    whole = joined(step, target)
    step = planned(whole, target)
    program = program_of(step)
    items = tuple(calls_in(items_of(program)))
    number = positions(step)
    n_programs = len({id(c.src[0]) for c in items if c.op == "CALL"})
    commands = encode(items_of(program), number, dev, whole)
    profile.compiled(scheduled - start, time.perf_counter_ns() - scheduled, len(items), n_programs)
    at = {b: n_inputs + k for k, b in enumerate(fresh)}
    roots = tuple([b.arg.slot if b.op == "PARAM" else at[b] for b in outputs])
    owned = tuple([b for b in number if b.op == "BUFFER"])
    owned_bytes = tuple(map(buffer_bytes, owned))
    results = tuple([(b, buffer_bytes(b)) for b in fresh])
    is_one_call = hasattr(commands, "run") and not hasattr(commands, "bind_memory")
    is_plain = is_one_call and not variables and all(home(b, dev) == dev for b in (*fresh, *owned))
    is_new = roots == tuple(range(n_inputs, n_inputs + len(fresh)))
    return Plan(
        dev,
        commands,
        schedule,
        items,
        number,
        n_inputs,
        roots,
        tuple(fresh),
        results,
        owned,
        owned_bytes,
        variables,
        frozenset(b.arg.slot for c in linear.src for b in operands_of(c) if b.op == "PARAM" and not is_size(b)),
        is_plain,
        is_new,
        One(commands.run, Device[dev].alloc, *results[0], owned_bytes)
        if is_plain and is_new and len(roots) == 1
        else None,
    )


def schedule_step(schedule: UOp, dev: str) -> UOp:
    """Return a schedule, in the form that the pass `order` leaves, as a step with one run."""
    linear, outputs = schedule_of(schedule)
    inputs = [b for c in linear.src for b in operands_of(c) if b.op == "PARAM" and not is_size(b)]
    n_inputs = 1 + max((b.arg.slot for b in (*inputs, *outputs) if b.op == "PARAM"), default=-1)
    fresh = [b for b in dict.fromkeys(outputs) if b.op == "BUFFER"]
    return batch_step(schedule, n_inputs, fresh, _variables(linear.src), dev)


def batch_step(schedule: UOp, n_inputs: int, fresh: Sequence[UOp], variables: Sequence[UOp], dev: str) -> UOp:
    """Return a schedule as a step with one run. Its inputs become arguments; the BUFFERs `fresh` that it stores become
    results.
    """
    linear, outputs = schedule_of(schedule)
    inputs: dict[int, UOp] = {b.arg.slot: b for b in outputs if b.op == "PARAM"}
    inputs |= {b.arg.slot: b for c in linear.src for b in operands_of(c) if b.op == "PARAM" and not is_size(b)}
    unused = [node("PARAM", (shape_source((1,)),), ParamArg(k, dtypes.uint8, dev, "GLOBAL")) for k in range(n_inputs)]
    args = [inputs.get(k, unused[k]) for k in range(n_inputs)]
    at = {b: node("PARAM", b.src, ParamArg(n_inputs + k, b.dtype, b.arg.device, "GLOBAL")) for k, b in enumerate(fresh)}
    first = n_inputs + len(fresh)
    sizes = [node("PARAM", v.src, v.arg._replace(slot=first + k)) for k, v in enumerate(variables)]
    run = node("LINEAR", (node("FUNCTION", (schedule, *args, *at.values(), *sizes)),))
    outs = [args[b.arg.slot] if b.op == "PARAM" else node("AFTER", (at[b], run)) for b in outputs]
    roles = ("argument",) * n_inputs + ("result",) * len(fresh) + ("size",) * len(sizes)
    return node("FUNCTION", (node("TUPLE", tuple(outs)),), StepInfo(roles, len(outs)))


def positions(step: UOp) -> dict[UOp, int]:
    """Return the position of each PARAM and BUFFER that a step binds. A PARAM's position is its slot."""
    program = program_of(step)
    n = len(step.arg.roles)
    number: dict[UOp, int] = {}
    if has_loops(items_of(program)):  # include sizes that only loops and branches use
        below = toposort(*items_of(program), stop=lambda u: u.op in ("SINK", "PROGRAM"))
        number |= {p: p.arg.slot for p in below if is_size(p)}
    for c in (*once_of(program), *calls_in(items_of(program))):
        for u in operands_of(c):
            b = base_of(u)
            if b not in number:
                if b.op == "PARAM":
                    number[b] = b.arg.slot
                else:
                    number[b], n = n, n + 1
    return number


def _variables(calls: Sequence[UOp]) -> tuple[UOp, ...]:
    """Return the PARAM of each Variable that the kernels take, once. Raises ArgumentError for two Variables of one
    name.
    """
    found: dict[str, UOp] = {}
    for b in (b for c in calls for b in operands_of(c) if is_size(b)):
        if (same := found.setdefault(b.arg.name, b)).arg.symbol != b.arg.symbol:
            (name, one), (_, other) = as_written(same), as_written(b)
            expected = "one Variable, used wherever it is meant"
            raise ArgumentError(f"two Variables named {name}", expected=expected, found=f"{one} and {other}")
    return tuple(found.values())


def _run_pass(row: Pass, step: UOp, target: Target) -> UOp:
    """Run a pass through the runner of the pipeline, which checks and traces it. Raises SettingError for STOP_AFTER."""
    from monolect.pipeline import nothing_to_run, run_pass  # imported only to look at passes

    out = run_pass(row, step, target)
    if settings.STOP_AFTER == row.name:
        raise nothing_to_run()
    return out


def _here(name: str) -> bool | None:
    """Return whether the device `name` is of this process; None if each process has such a device."""
    return None if process_of(name) is None else is_here(name)


services.target, services.run_pass, services.process = target_of, _run_pass, process_of
services.here = _here


__all__ = [
    "batch_step",
    "cached_plan",
    "make_compound_plan",
    "make_plan",
    "positions",
    "schedule_step",
    "target_of",
]
