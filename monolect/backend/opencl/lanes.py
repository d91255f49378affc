"""Lanes of an OpenCL device that trade values: sub-groups of a size that a kernel asks for.

What it is for: OpenCL leaves open which work-items of a workgroup are one sub-group, and in which order; sums of lanes
must know. So a device that offers what is needed is asked by a small program. What it does not do: choose a size; every
GPU with the extension has this one. Invariant: where the answer is another than expected, lanes meet in local memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monolect.base.errors import CompileError

EXTENSIONS = frozenset(("cl_khr_subgroup_shuffle", "cl_intel_required_subgroup_size"))
LANES = 16
REQUIRED = f"__attribute__((intel_reqd_sub_group_size({LANES}))) "
SHUFFLE = "sub_group_shuffle_xor({x}, {bits}u)"  # what the lane has whose number differs in these bits
BLOCKS = ((64, 1, 1), (4, 8, 2), (1, 1, 32))
MOST = 64  # lanes of a block
_TRADES = "\n".join(
    f"  out[{k * MOST}u + i] = {SHUFFLE.format(x='i', bits=1 << k)};" for k in range(LANES.bit_length() - 1)
)
QUESTION = f"""__kernel {REQUIRED}void trade(__global uint* out) {{
  const uint i = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));
{_TRADES}
}}
"""


def trade(device: Any) -> bool:
    """Whether lanes of an OpenCLDevice, numbered one dimension after the other, are sub-groups in that order."""
    cl = device.cl
    if not set(device.handle.extensions.split()) >= EXTENSIONS:
        return False
    n_steps = LANES.bit_length() - 1
    out = np.zeros((n_steps, MOST), np.uint32)
    try:
        kernel = cl.Kernel(device.compiler.compile(QUESTION), "trade")
        buffer = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, out.nbytes)
        for block in BLOCKS:
            n = int(np.prod(block))
            kernel(device.queue, block, block, buffer)
            cl.enqueue_copy(device.queue, out, buffer, is_blocking=True)
            if any((out[k, :n] != np.arange(n) ^ 1 << k).any() for k in range(n_steps)):
                return False
    except (cl.Error, CompileError):  # it says that it can, and cannot
        return False
    return True
