"""List the passes over a step in order: the last section of the pipeline, which runs in every process that launches
kernels.

They have their own module because a process that finds all its kernels in caches imports these passes and no others.
`pipeline.PIPELINE` ends with them; its runner checks and traces them if a setting says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from monolect.base.errors import InternalError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.command.forms import (
    base_of,
    calls_in,
    device_of,
    home,
    is_collective,
    items_of,
    once_of,
    operands_of,
    program_of,
    rebuilt,
    with_program,
)
from monolect.command.rewrites.dependencies import dependencies
from monolect.command.rewrites.group import group
from monolect.command.rewrites.join import join
from monolect.command.rewrites.memory import plan_memory
from monolect.command.rewrites.once import once
from monolect.command.rewrites.own import own
from monolect.command.rewrites.pack_once import Budget, Packed, pack_once
from monolect.command.rewrites.prefetch import prefetch
from monolect.command.rewrites.rebase import rebase
from monolect.ir.ops import Stage
from monolect.ir.uop import UOp, node

C = Stage.COMMAND


class Pass(NamedTuple):
    """One compiler pass: a row of the pipeline.

    `run(ir, target)` returns the new graph; `target` describes the device. `reads` and `leaves` are the stages of the
    graph before and after. After the pass the graph has none of the ops `removes`. The passes `after` must have run
    before. `why`: the reason for the position of the pass. An `optional` pass may be disabled (DISABLE), as later
    passes accept its input too. The function `run` of this module, or the pipeline, calls `run` of each row in order.
    """

    name: str
    reads: Stage
    leaves: Stage
    run: Callable[[UOp, Target], UOp]
    removes: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    why: str = ""
    optional: bool = False


# ({kernel: operands of one of its CALLs}, target) -> {kernel: PROGRAM node}
Programs = Callable[[Mapping[UOp, Sequence[UOp]], Target], dict[UOp, UOp]]


class Services:
    """Functions of the runtime that the passes call. The runtime sets them when it is imported, as this package must
    not import the runtime.
    A function is None until the runtime sets it.
    """

    programs: Programs | None = None
    target: Callable[[str], Target] | None = None  # target of a device by name
    # the rank of the process of a device by name, and whether it is this process; None if every process has one
    process: Callable[[str], int | None] = staticmethod(lambda name: None)
    here: Callable[[str], bool | None] = staticmethod(lambda name: None)
    # (kernel, target) -> blocks that the kernel's plan packs of its frozen PARAMs
    packed_blocks: Callable[[UOp, Target], tuple[Packed, ...]] | None = None
    budget: Callable[[UOp], Budget] | None = None  # step -> budget for packed copies of its constants
    # (row, step, target) -> step: runs a pass where a setting checks or traces passes
    run_pass: Callable[[Pass, UOp, Target], UOp] | None = None


services = Services()


def lower(step: UOp, target: Target, programs: Programs | None = None) -> UOp:
    """Return `step` with each kernel replaced by its compiled PROGRAM for `target`.

    `programs`: a function that compiles the kernels; None means `services.programs`, which takes programs from caches
    and compiles the others. The kernel of an allreduce stays, as no device runs it. A kernel on another device is compiled for the target of that device. Raises InternalError
    if there are kernels and the runtime is not imported.
    """
    programs = programs or services.programs
    linear = program_of(step)
    first, items = once_of(linear), items_of(linear)
    operands: dict[str, dict[UOp, Sequence[UOp]]] = {}
    for c in (*first, *calls_in(items)):
        if c.op == "CALL" and c.src[0].op != "PROGRAM" and not is_collective(c):
            operands.setdefault(device_of(c, target.name), {}).setdefault(c.src[0], c.src[1:])
    if not operands:
        return step
    if programs is None or services.target is None:
        raise InternalError("kernels are lowered by the runtime", expected="monolect.runtime imported", found="none")
    made: dict[str, dict[UOp, UOp]] = {}
    for name, kernels in operands.items():
        made[name] = programs(kernels, target if name == target.name else services.target(name))

    def lowered(c: UOp) -> UOp:
        if c.op != "CALL" or c.src[0].op == "PROGRAM" or is_collective(c):
            return c
        return node("CALL", (made[device_of(c, target.name)][c.src[0]], *c.src[1:]))

    return with_program(step, rebuilt(items, map(lowered, calls_in(items))), [lowered(c) for c in first])


def _pack_once(step: UOp, target: Target) -> UOp:
    """Return `step` after the pass `pack_once`, which runs only for a replayed step and if `target` has no
    workgroups.
    """
    if services.packed_blocks is None or services.budget is None or target.workgroups or not step.arg.is_replayed:
        return step
    blocks = services.packed_blocks
    return pack_once(step, lambda kernel: blocks(kernel, target), services.budget(step))


def _is_message(item: UOp) -> bool:
    """Return whether `item` moves memory of one process to another one."""
    if item.op != "STORE":
        return is_collective(item)
    to, source = (services.process(home(base_of(u), "")) for u in operands_of(item))
    return source is not None and source != to


def _rebase(step: UOp, target: Target) -> UOp:
    """Return `step` after the pass `rebase`, which runs only if `target` binds operands at offsets and all items run on
    its device.
    """
    calls = calls_in(items_of(program_of(step)))
    is_alone = all(device_of(c, target.name) == target.name and not is_collective(c) for c in calls)
    return rebase(step) if target.offsets and is_alone else step


# fmt: off
COMMAND: tuple[Pass, ...] = (  # a step: FUNCTION to FUNCTION
    Pass("join",         C, C, lambda s, t: join(s), (), ("order",), "runs of a captured step, or the one of a batch, as one program over what a call binds"),
    Pass("once",         C, C, lambda s, t: once(s, _is_message), (), ("join",), "what depends on constants alone leaves the program before anything of it is planned", optional=True),
    Pass("pack_once",    C, C, _pack_once, (), ("once",), "constants that kernels pack are known now; the kernels must still be whole", optional=True),
    Pass("rebase",       C, C, _rebase, (), ("pack_once",), "kernels that differ in where their operands begin become one, before each is compiled", optional=True),
    Pass("prefetch",     C, C, lambda s, t: prefetch(s, _is_message), (), ("rebase",), "all processes order the same items, before each forgets those of the others; memory is planned for this order", optional=True),
    Pass("own",          C, C, lambda s, t: own(s, services.here), (), ("prefetch",), "what other processes run is neither compiled nor planned; what is computed once was found in the whole step"),
    Pass("lower",        C, C, lower, (), ("own",), "groups depend on the threads of programs, operands on what they access"),
    Pass("group",        C, C, group, (), ("lower",), "what may run at once must be known before memory is shared", optional=True),
    Pass("plan_memory",  C, C, plan_memory, (), ("group",), "lifetimes are known once the order and the groups are", optional=True),
    Pass("dependencies", C, C, lambda s, t: dependencies(s), (), ("plan_memory",), "memory that is taken again is a reason to wait, as data is"),
)
# fmt: on


def planned(step: UOp, target: Target, programs: Programs | None = None) -> UOp:
    """Run all passes after `join` on `step`, the result of `join`; return a step that the device described by `target`
    can encode.

    `programs`: a function that compiles the kernels; None means `services.programs`.
    """
    for row in COMMAND[1:]:
        if row.name == "lower" and programs is not None:
            row = row._replace(run=lambda s, t: lower(s, t, programs))
        step = run(row, step, target)
    return step


def joined(step: UOp, target: Target) -> UOp:
    """Return `step` with its runs joined into one program, by the pass `join`. A run is a schedule applied to its
    inputs, results and sizes.
    `target`: the target of the device; `join` does not depend on it.
    """
    return run(COMMAND[0], step, target)


def run(row: Pass, step: UOp, target: Target) -> UOp:
    """Return the step that the pass `row` makes of `step` for `target`; `step` itself if the pass is disabled.

    If a setting checks or traces passes, the pass runs through the pipeline's runner. Raises InternalError if it has
    to, but the runtime is not imported.
    """
    if not settings.looking:
        return step if row.name in settings.disabled else row.run(step, target)
    if services.run_pass is None:
        raise InternalError("the runtime runs passes under a trace", expected="monolect.runtime imported", found="none")
    return services.run_pass(row, step, target)


__all__ = ["COMMAND", "Pass", "Programs", "Services", "joined", "lower", "planned", "run", "services"]
