"""Where there are no graphs, a command buffer is one submission to the queue, and nobody waits for it.

Devices in name only: what is called is counted. Metal's is counted on its stand-in (`test_metal.py`).
"""

from unittest.mock import MagicMock

import pytest

from monolect.backend.base import Call, Program
from monolect.backend.common.workgroups import Entry
from monolect.backend.opencl.runtime import OpenCLCommands
from monolect.backend.webgpu.runtime import WebGPUCommands
from monolect.ir.uop import idx

OPENCL = (OpenCLCommands, ("module", "k"), "cl.enqueue_nd_range_kernel", "queue.flush")
WEBGPU = (
    WebGPUCommands,
    MagicMock(parts=[]),
    "handle.create_command_encoder().begin_compute_pass().dispatch_workgroups",
    "queue.submit",
)


def called(device: MagicMock, name: str) -> int:
    return sum(call[0] == name for call in device.mock_calls)


@pytest.mark.parametrize(("commands", "kernel", "launched", "submitted"), [OPENCL, WEBGPU], ids=["opencl", "webgpu"])
def test_a_command_buffer_is_one_submission(commands, kernel, launched, submitted):
    program = Program("k", Entry(kernel, ((0, 64, ""), (1, 64, "")), (idx(2),), (1,)), 1)
    device = MagicMock()
    buffer = commands(device, [Call(program, ((k + 1, 0), (k, 0))) for k in range(5)])
    for n in range(3):
        for k in range(6):
            buffer.bind(k, 4096 * (k + n))
        before = called(device, launched), called(device, submitted)
        buffer.launch()
        assert (called(device, launched), called(device, submitted)) == (before[0] + 5, before[1] + 1)
    assert not device.queue.finish.called and not device.memory.wait.called
