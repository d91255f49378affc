"""Refuse values on several devices, before anything is scheduled.

The dialect has tuple devices and the axis that is divided (`ir.placement`), so graphs over several devices can be
built, printed and verified. To run them, this pass would have to make a graph per device, and transfers.

Invariant: after the pass no value has a tuple device.
"""

from __future__ import annotations

from monolect.base.errors import DeviceError
from monolect.ir.placement import device
from monolect.ir.uop import UOp, toposort


def shard(roots: list[UOp]) -> list[UOp]:
    """Pass: return `roots` unchanged. Raises DeviceError if a value has several devices."""
    for u in toposort(*roots):
        if isinstance(device(u), tuple):
            raise DeviceError("running on several devices is not supported yet", expected="one device", found=device(u))
    return roots


__all__ = ["shard"]
