"""Encode programs as command buffers of devices, and define Plan, which holds the command buffer of a batch.

A program on one device is encoded by that device as a table, a graph or a submission. A program with loops, branches,
copies or several devices is run by the host in parts (`runtime/realize/host_commands.py`, imported only for such a
program).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from monolect.backend.base import Commands
from monolect.backend.registry import Device
from monolect.command.forms import calls_in, device_of, has_loops, is_allreduce
from monolect.ir.uop import UOp
from monolect.runtime.realize.programs import loaded


class One:
    """Hold what runs a plan of one new root: the function of its command buffer that binds and runs, that of its device
    that allocates, the template of the root's BUFFER, its bytes, and the bytes of further memory.
    """

    __slots__ = ("__weakref__", "alloc", "n_bytes", "owned_bytes", "run", "template")

    def __init__(
        self,
        run: Callable[..., None],
        alloc: Callable[[int], Any],
        template: UOp,
        n_bytes: int,
        owned_bytes: tuple[int, ...],
    ) -> None:
        self.run, self.alloc, self.template, self.n_bytes, self.owned_bytes = run, alloc, template, n_bytes, owned_bytes


class Plan(NamedTuple):
    """A batch that is ready to run. Positions of memory are numbered: inputs, outputs, sizes, then `owned`."""

    device: str
    commands: Any
    schedule: UOp  # in the form that the pass `order` leaves
    items: tuple[UOp, ...]  # the CALLs and copies of the command buffer
    number: dict[UOp, int]  # the position of each PARAM and BUFFER
    n_inputs: int
    outputs: tuple[int, ...]  # for each root, the position of its buffer
    fresh: tuple[UOp, ...]  # BUFFER templates to allocate: the outputs
    results: tuple[tuple[UOp, int], ...]  # each of `fresh` with its bytes
    owned: tuple[UOp, ...]  # BUFFERs that each run allocates: arenas, and destinations of copies
    owned_bytes: tuple[int, ...]
    variables: tuple[UOp, ...]  # PARAMs of the sizes
    reads: frozenset[int]  # inputs that are an operand of some item
    is_plain: bool  # it has memory of its device alone and no sizes, and one call binds it and runs
    is_new: bool  # the roots are `fresh`, in order
    one: One | None  # of a plain plan with one root, which is new


def encode(items: Sequence[UOp], number: Mapping[UOp, int], dev: str, step: UOp) -> Commands:
    """Return the command buffer of `items`. `number`: the position of each PARAM and BUFFER; `dev`: the device of items
    that touch no memory; `step`: the result of `joined` from which the items were made, with those of all processes.
    """
    calls = calls_in(items)
    launches = [c for c in calls if c.op == "CALL" and not is_allreduce(c)]
    programs = {c.src[0]: loaded[c.src[0]] for c in launches}
    names = {device_of(c, dev) for c in calls}
    if len(names) <= 1 and not has_loops(items) and len(launches) == len(calls):
        encoded: Commands = Device[names.pop() if names else dev].encode(items, number, programs)
        return encoded
    from monolect.runtime.realize.host_commands import HostCommands  # imported only for programs that the host runs

    return HostCommands(items, number, programs, dev, step)


__all__ = ["One", "Plan", "encode"]
