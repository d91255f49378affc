"""Tuple devices resolved into per-device graphs and transfers. Only the trivial case exists: every value on one device.

The dialect carries tuple devices and the axis they share (`ir.placement`), so graphs over several devices can be built,
printed and verified; running them is refused here, before anything is scheduled.

Invariant: afterwards no value has a tuple device.
"""

from __future__ import annotations

from monolect.base.errors import DeviceError
from monolect.ir.placement import device
from monolect.ir.uop import UOp, toposort


def shard(roots: list[UOp]) -> list[UOp]:
    """`roots` as they are. Raises DeviceError when a value lives on several devices."""
    for u in toposort(*roots):
        if isinstance(device(u), tuple):
            raise DeviceError("running on several devices is not supported yet", expected="one device", found=device(u))
    return roots
