"""Check that the lanes of an OpenCL device can shuffle: read each other's registers in sub-groups of 16.

What it is for: OpenCL does not define which work-items of a workgroup form a sub-group, or their order. Reductions over
lanes need that. So a probe kernel runs on each device that has the extensions. What it does not do: it does not choose
a size; all GPUs with the extensions support 16. Invariant: if the probe fails, lanes exchange values in local memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monolect.base.errors import CompileError

EXTENSIONS = frozenset(("cl_khr_subgroup_shuffle", "cl_intel_required_subgroup_size"))
LANES = 16  # of a sub-group
REQUIRED = f"__attribute__((intel_reqd_sub_group_size({LANES}))) "
SHUFFLE = "sub_group_shuffle_xor({x}, {bits}u)"  # reads `x` of the lane whose number is this lane's number XOR `bits`
PROBE_BLOCKS = ((64, 1, 1), (4, 8, 2), (1, 1, 32))
MAX_LANES = 64  # lanes of the largest block in PROBE_BLOCKS
_SHUFFLES = "\n".join(
    f"  out[{k * MAX_LANES}u + i] = {SHUFFLE.format(x='i', bits=1 << k)};" for k in range(LANES.bit_length() - 1)
)
PROBE = f"""__kernel {REQUIRED}void trade(__global uint* out) {{
  const uint i = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));
{_SHUFFLES}
}}
"""


def can_shuffle(device: Any) -> bool:
    """Whether each 16 consecutive lanes of a workgroup, numbered along x, y, z, are a sub-group of an OpenCLDevice.

    The probe kernel shuffles over each bit of the lane number, for several shapes of workgroups.
    """
    cl = device.cl
    if not set(device.handle.extensions.split()) >= EXTENSIONS:
        return False
    n_steps = LANES.bit_length() - 1
    out = np.zeros((n_steps, MAX_LANES), np.uint32)
    try:
        kernel = cl.Kernel(device.compiler.compile(PROBE), "trade")
        buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, out.nbytes)
        for block in PROBE_BLOCKS:
            n = int(np.prod(block))
            kernel(device.queue, block, block, buffer)
            cl.enqueue_copy(device.queue, out, buffer, is_blocking=True)
            if any((out[k, :n] != np.arange(n) ^ 1 << k).any() for k in range(n_steps)):
                return False
    except (cl.Error, CompileError):  # the driver reports the extensions, but does not support them
        return False
    return True


__all__ = ["LANES", "REQUIRED", "SHUFFLE", "can_shuffle"]
