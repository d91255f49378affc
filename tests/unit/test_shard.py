"""Several devices: in the dialect, but refused with a reason before anything runs."""

import pytest

from monolect import DeviceError, Tensor
from monolect.base.dtype import dtypes
from monolect.ir.ops import BufferArg
from monolect.ir.placement import axis
from monolect.ir.uop import build, node, shape_source
from monolect.schedule.rewrites.shard import shard

PAIR = ("cpu", "cpu:1")


def test_a_graph_over_several_devices_can_be_built_and_is_refused() -> None:
    b = node("BUFFER", (shape_source((4, 2)),), BufferArg(0, dtypes.float32, PAIR))
    u = build("PERMUTE", b, arg=(1, 0))
    assert axis(u) == 1
    with pytest.raises(DeviceError, match="several devices"):
        shard([u])


def test_tensors_say_so_at_the_call() -> None:
    with pytest.raises(DeviceError, match="several devices"):
        Tensor([1.0, 2.0]).to(PAIR)
    with pytest.raises(DeviceError, match="several devices"):
        Tensor([1.0, 2.0], device=PAIR)


def test_one_device_passes_unchanged() -> None:
    roots = [(Tensor([1.0]) + 1).uop]
    assert shard(roots) is roots
