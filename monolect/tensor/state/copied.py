"""Give a value memory or a node of its own, for a Tensor that is assigned to.

What it is not: it copies nothing. The nodes say what a batch will copy.
"""

from __future__ import annotations

from monolect.backend.registry import Device
from monolect.ir.placement import axis as axis_of
from monolect.ir.placement import device as device_of
from monolect.ir.uop import UOp, build, new_buffer
from monolect.runtime.buffer import aliased_memory


def copied(u: UOp) -> UOp:
    """Return a node that stores the value of `u` into a new buffer."""
    buffer = new_buffer(u.shape, u.dtype, device_of(u) or Device.default, axis_of(u))
    return build("AFTER", buffer, build("STORE", buffer, u))


def in_own_memory(u: UOp) -> UOp:
    """Return `u` as the new node of a Tensor that is assigned to: copied if `u` shows memory, as other Tensors may use
    that memory.
    """
    memory = aliased_memory(u)
    return u if memory is None or memory.storage is None else copied(u)


def apart(u: UOp) -> UOp:
    """Return a node of the value of `u` that no expression equals, and that passes no gradient to `u`."""
    cut = build("DETACH", u)
    return copied(build("DETACH", copied(u)) if cut is u else cut)  # DETACH of a DETACH is the same node


__all__ = ["apart", "copied", "in_own_memory"]
