"""Kernels written by hand: shorthands for their nodes, and one run of them on a device."""

import numpy as np
import pytest

from monolect import Context, Tensor, custom_kernel, dtypes
from monolect.backend.registry import Device
from monolect.ir.ops import BufferArg, KernelInfo
from monolect.ir.uop import UOp, build, idx, node, shape_source

F32 = dtypes.float32
EIGHT = np.arange(8, dtype=np.float32)
PROCESSORS = ("cpu", "c", "python")


def tensor(values, dtype="float32"):
    return Tensor(np.asarray(values, dtype))


def loop(k, n, kind="LOOP"):
    return build("RANGE", idx(n), arg=(k, kind))


def sink(*stores, name="mine", actions=None):
    return build("SINK", *stores, arg=KernelInfo(name, actions))


def at(memory, *index):
    return node("INDEX", (memory, *index))


def load(memory, *index):
    return node("LOAD", (at(memory, *index) if index else memory,))


def memory(n, space="REG", slot=0, dtype=F32):
    return node("BUFFER", (shape_source(n if isinstance(n, tuple) else (n,)),), BufferArg(slot, dtype, None, space))


def part(u: UOp, first: int, n: int) -> UOp:
    return node("SHRINK", (u, shape_source((first,)), shape_source((n,))))


def on(device):
    if why := Device.present()[device.partition(":")[0]]:
        pytest.skip(f"{device}: {why}")
    return Context(DEVICE=device)


def run(device, kernel, x, out, dtype="float32"):
    with on(device):
        return custom_kernel(kernel, Tensor(x), out=(out, dtype)).numpy()


def in_groups(out, x):
    g, lane = node("SPECIAL", (idx(2),), "gidx0"), node("SPECIAL", (idx(4),), "lidx0")
    return sink(node("STORE", (at(out, g * 4 + lane), load(x, g * 4 + lane))))
