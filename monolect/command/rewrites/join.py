"""Join consecutive runs of a step into one program. A run is a schedule applied to its inputs, to the memory of its
results in their order, and to the sizes of the step.

Before: LINEAR(FUNCTION(TUPLE(AFTER(BUFFER0, LINEAR(CALL(k, BUFFER0, PARAM0)))), PARAM0, PARAM1))
After:  LINEAR(CALL(k, PARAM1, PARAM0))
Each intermediate of a run gets a BUFFER with a slot that no other run uses.
Invariant: the program launches the same kernels as the runs, in their order, except copies of a buffer to itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from monolect.command.forms import is_size, operands_of, program_of, with_operands, with_program
from monolect.command.rewrites.in_place import is_copy
from monolect.ir.uop import UOp, node
from monolect.schedule.result import schedule_of


def join(step: UOp) -> UOp:
    """The pass: return `step`, whose program is a list of runs (schedules applied to arguments), with the kernel
    launches of all runs as its program.
    """
    args = [a for run in program_of(step).src for a in run.src[1:] if a.op == "BUFFER"]
    slots = count(1 + max([a.arg.slot for a in args], default=-1))
    items: list[UOp] = []
    for run in program_of(step).src:
        items += items_of_run(run, slots) if run.op == "FUNCTION" else [run]
    return with_program(step, items)


def items_of_run(run: UOp, slots: Iterator[int]) -> list[UOp]:
    """Return the items of `run`, a schedule applied to arguments, with the arguments as operands.

    The arguments are the inputs by slot, then the memory of the results; sizes may be among them. `slots`: yields
    unused slots for BUFFERs of the run's intermediates. Copies of a buffer to itself are left out.
    """
    schedule, *args = run.src
    sizes = {a.arg.symbol: a for a in args if is_size(a)}
    args = [a for a in args if not is_size(a)]
    linear, outputs = schedule_of(schedule)
    results = [b for b in dict.fromkeys(outputs) if b.op == "BUFFER"]
    n_inputs = len(args) - len(results)
    new: dict[UOp, UOp] = dict(zip(results, args[n_inputs:], strict=True))
    out = []
    for item in linear.src:
        operands = []
        for b in operands_of(item):
            u = new.get(b)
            if u is None:
                if b.op == "BUFFER":
                    u = node("BUFFER", b.src, b.arg._replace(slot=next(slots)))
                elif b.arg.name is not None:
                    u = sizes[b.arg.symbol]
                else:
                    u = args[b.arg.slot]
                new[b] = u
            operands.append(u)
        if item.op == "CALL" and len(operands) == 2 and operands[0] is operands[1] and is_copy(item.src[0]):
            continue  # copies a state to itself: the kernels before stored its parts in place
        out.append(with_operands(item, operands))
    return out


__all__ = ["items_of_run", "join"]
