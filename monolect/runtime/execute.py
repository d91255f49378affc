"""Realising: from requested values to memory that holds them.

`realize` callifies the batch, takes its plan from the schedule cache or makes it (schedule, compile, memory plan,
command buffer), binds memory and runs it. A plan is stateless: it can be run again on other buffers, which is what
replay does.

Invariant: nothing is visible before everything ran; a failed batch leaves every tensor as it was.
"""

from __future__ import annotations

import gc
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from monolect import pipeline
from monolect.backend.base import Launch, Program
from monolect.backend.registry import Device
from monolect.base.errors import InternalError
from monolect.base.settings import settings
from monolect.base.version import compiler_version
from monolect.ir.digest import digest
from monolect.ir.uop import UOp
from monolect.pipeline import lower_kernel
from monolect.runtime import profile
from monolect.runtime.buffer import base_of, from_numpy, is_realized, one_device, to_numpy, with_storage
from monolect.runtime.callify import callify
from monolect.schedule.memory import buffer_bytes, plan_memory
from monolect.schedule.order import schedule

MOST_PLANS = 512


class Plan(NamedTuple):
    """A batch ready to run. Buffer numbers: inputs, then outputs, then intermediates in one arena."""

    device: str
    commands: Any
    kernels: tuple[UOp, ...]  # the CALLs
    n_inputs: int
    outputs: tuple[int, ...]  # for each root, the number of its buffer
    fresh: tuple[UOp, ...]  # BUFFER templates to allocate: the outputs
    offsets: tuple[int, ...]  # of the intermediates in the arena
    arena_bytes: int
    launches: tuple[Launch, ...]


class Run(NamedTuple):
    """One execution of a plan, for capture: which memory it read and wrote."""

    plan: Plan
    inputs: tuple[UOp, ...]
    fresh: tuple[UOp, ...]  # the BUFFERs it wrote


plans: OrderedDict[tuple, Plan] = OrderedDict()
listeners: list[list[Run]] = []  # captures under way append the runs here


def realize(roots: list[UOp]) -> list[UOp]:
    """For each root a BUFFER with storage, or a view of one, holding its value."""
    todo = list(dict.fromkeys(r for r in roots if not is_realized(r)))
    done: dict[UOp, UOp] = {}
    groups: dict[str, list[UOp]] = {}
    for r in todo:
        b = base_of(r)
        if b.op == "BUFFER" and b.storage is None:
            b.storage = Device[b.arg.device].alloc(buffer_bytes(b))
        elif 0 in r.shape:
            dev = one_device([r])
            done[r] = with_storage(r.shape, r.dtype, dev, Device[dev].alloc(1))
        else:
            groups.setdefault(one_device([r]), []).append(r)
    for dev, batch in groups.items():
        done.update(zip(batch, _run_batch(batch, dev), strict=True))
    return [done.get(r, r) for r in roots]


def _run_batch(batch: list[UOp], dev: str) -> list[UOp]:
    sink, buffers, _ = callify(batch)
    key = (sink, dev, settings.NOOPT, settings.BEAM)
    plan = plans.get(key)
    if plan is None:
        plan = plans[key] = make_plan(list(sink.src), len(buffers), dev)
        if len(plans) > MOST_PLANS:
            plans.popitem(last=False)
    else:
        plans.move_to_end(key)
    return run_plan(plan, buffers)


def run_plan(plan: Plan, buffers: list[UOp]) -> list[UOp]:
    """Run on `buffers`, the inputs in order; one BUFFER for each root."""
    device = Device[plan.device]
    fresh = [device.alloc(buffer_bytes(b)) for b in plan.fresh]
    arena = device.alloc(plan.arena_bytes) if plan.arena_bytes else None
    addresses = [_input_address(b) for b in buffers]
    addresses += [m.address for m in fresh]
    if arena is not None:
        addresses += [arena.address + o for o in plan.offsets]
    for number, address in enumerate(addresses):
        plan.commands.bind(number, address)
    launch(plan.commands, plan.launches, plan.kernels)
    new = [with_storage(b.shape, b.dtype, b.arg.device, m) for b, m in zip(plan.fresh, fresh, strict=True)]
    outs = [buffers[i] if i < plan.n_inputs else new[i - plan.n_inputs] for i in plan.outputs]
    for capture in listeners:
        capture.append(Run(plan, tuple(buffers), tuple(new)))
    return outs


def launch(commands: Any, launches: tuple[Launch, ...], kernels: tuple[UOp, ...]) -> None:
    """Run a bound command buffer, each launch timed when somebody wants to see it."""
    if settings.tracing or profile.recording:
        profile.record(launches, kernels, commands.launch_timed())
    else:
        commands.launch()


def _input_address(b: UOp) -> int:
    if b.storage is None:
        return 0  # overwritten before it is read, or declared and never written: the plan does not read it
    return b.storage.address


@contextmanager
def collection_paused() -> Iterator[None]:
    """No cyclic garbage collection inside: compiling makes many nodes and no cycles, and tracing them again and again
    costs as much as making them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@collection_paused()
def make_plan(roots: list[UOp], n_inputs: int, dev: str) -> Plan:
    """Schedule, compile and bind `roots`, whose inputs are PARAM 0..n_inputs-1."""
    start = time.perf_counter_ns()
    sched = schedule(roots, dev)
    calls = sched.linear.src
    outs = {b for b in sched.outputs if b.op == "BUFFER"}
    fresh = [b for b in dict.fromkeys(sched.outputs) if b.op == "BUFFER"]
    memory = plan_memory(sched.linear, outs)
    number: dict[UOp, int] = {b: n_inputs + i for i, b in enumerate(fresh)}
    for b in memory.offsets:
        number[b] = len(number) + n_inputs
    scheduled = time.perf_counter_ns()
    programs = compile_kernels([c.src[0] for c in calls], dev)
    args = [tuple(b.arg.slot if b.op == "PARAM" else number[b] for b in c.src[1:]) for c in calls]
    launches = tuple(Launch(programs[c.src[0]], a) for c, a in zip(calls, args, strict=True))
    profile.compiled(scheduled - start, time.perf_counter_ns() - scheduled, len(calls), len(programs))
    return Plan(
        dev,
        Device[dev].commands(launches),
        calls,
        n_inputs,
        tuple(b.arg.slot if b.op == "PARAM" else number[b] for b in sched.outputs),
        tuple(fresh),
        tuple(memory.offsets.values()),
        memory.arena_bytes,
        launches,
    )


def compile_kernels(sinks: list[UOp], dev: str) -> dict[UOp, Program]:
    """A Program for each distinct kernel; what is in no cache is compiled together."""
    device = Device[dev]
    out: dict[UOp, Program] = {}
    missing: list[tuple[UOp, str]] = []
    for s in dict.fromkeys(sinks):
        key = f"{digest(s)}/{settings.NOOPT}/{settings.BEAM}/{compiler_version()}"
        found = device.lookup(key)
        if found is None:
            missing.append((s, key))
        else:
            out[s] = found
    if missing:
        lowered = [(key, lower_kernel(s, device.target)) for s, key in missing]
        programs = device.compile([(lin.arg.name, key, lin) for key, lin in lowered])
        if len(programs) != len(missing):
            raise InternalError(
                "a device compiled another number of kernels", expected=len(missing), found=len(programs)
            )
        for (s, _), p in zip(missing, programs, strict=True):
            out[s] = p
            if "src" in settings.tracing:
                profile.show_source(p)
    return out


def _interpret(linear: UOp, args: dict[int, Any]) -> None:
    """Run a program on the Python device, in place on the arrays of `args`: how VERIFY=2 sees what a program means."""
    device = Device["python"]
    (program,) = device.compile([("verify", "verify", linear)])
    commands = device.commands([Launch(program, tuple(range(1 + max(args, default=-1))))])
    for slot, a in args.items():
        commands.bind(slot, a if isinstance(a, int) else a.ctypes.data)
    commands.launch()


pipeline.interpret_program = _interpret

__all__ = ["Plan", "Run", "compile_kernels", "from_numpy", "listeners", "make_plan", "realize", "run_plan", "to_numpy"]
