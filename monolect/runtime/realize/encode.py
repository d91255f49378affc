"""Encode programs as command buffers of devices.

A program on one device is encoded by that device as a table, a graph or a submission. A program with loops, branches,
copies or several devices is run by the host in parts (`runtime/realize/host_commands.py`, imported only for such a
program).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from monolect.backend.base import Commands
from monolect.backend.registry import Device
from monolect.command.forms import calls_in, device_of, has_loops
from monolect.ir.uop import UOp
from monolect.runtime.realize.programs import loaded


def encode(items: Sequence[UOp], number: Mapping[UOp, int], dev: str) -> Commands:
    """Return the command buffer of `items`. `number`: the position of each PARAM and BUFFER; `dev`: the device of items
    that touch no memory.
    """
    calls = calls_in(items)
    programs = {c.src[0]: loaded[c.src[0]] for c in calls if c.op == "CALL"}
    names = {device_of(c, dev) for c in calls}
    if len(names) <= 1 and not has_loops(items) and all(c.op == "CALL" for c in calls):
        encoded: Commands = Device[names.pop() if names else dev].encode(items, number, programs)
        return encoded
    commands: Commands = import_module("monolect.runtime.realize.host_commands").HostCommands(
        items, number, programs, dev
    )
    return commands


__all__ = ["encode"]
