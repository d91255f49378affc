"""Lanes of a warp join their partial results in registers; only those of different warps meet in local memory."""

import numpy as np
import pytest

from monolect import Context
from monolect.backend.base import launching
from monolect.backend.python.interpret import Kernel
from monolect.backend.python.runtime import GPU
from monolect.base.dtype import ALL, to_numpy
from monolect.ir.lanes import in_warp
from monolect.optimize.apply import apply_actions
from monolect.pipeline import lower_kernel
from tests.backend.standin.device import STANDINS, missing
from tests.backend.test_standins import aligned
from tests.backend.workgroup_kernels import kernels, split

LOCAL = lambda u: u.op == "BUFFER" and u.arg.addrspace == "LOCAL"  # noqa: E731


@pytest.mark.parametrize(("sizes", "joined", "warp", "bits"), [
    ([32], [0], 32, {0: [1, 2, 4, 8, 16]}),
    ([256], [0], 32, {0: [1, 2, 4, 8, 16]}),
    ([8, 64], [1], 32, {1: [8, 16]}),
    ([8, 64], [0, 1], 32, {0: [1, 2, 4], 1: [8, 16]}),
    ([48], [0], 32, {0: [1, 2, 4, 8]}),
    ([3, 8], [1], 32, {1: []}),  # lanes of a row are three apart: no bits of a number
    ([64], [0], 64, {0: [1, 2, 4, 8, 16, 32]}),
    ([7], [0], 32, {0: []}),
])  # fmt: skip
def test_bits_within_a_warp(sizes, joined, warp, bits):
    assert in_warp(sizes, joined, warp) == bits


def rows(*shape):
    return np.random.default_rng(5).integers(-9, 9, shape).astype(np.float32)


SUMS = {  # lanes that share a sum; shuffles, barriers, elements of local memory
    "a warp": ((6, 256), (split(1, 32, "GROUP_REDUCE"), split(0, 6, "GLOBAL")), (5, 0, 0)),
    "several warps": ((6, 512), (split(1, 256, "GROUP_REDUCE"), split(0, 6, "GLOBAL")), (5, 1, 256)),
    "short rows in a warp": ((32, 64), (split(1, 8, "GROUP_REDUCE"), split(0, 8, "LOCAL")), (3, 0, 0)),
    "rows side by side": ((32, 64), (split(0, 4, "LOCAL"), split(2, 16, "GROUP_REDUCE")), (3, 2, 64)),
    "not a power of two": ((4, 96), (split(1, 48, "GROUP_REDUCE"),), (4, 2, 48)),
}


def program(name, how, target=GPU):
    shape, actions, _ = SUMS[name]
    x = rows(*shape)
    (sink,) = kernels(target, lambda t: getattr(t, how)(1), x)
    sink = lower_kernel(sink, target, last="merge_ranges")
    with Context(VERIFY=2, CHECK_BOUNDS=1):
        return x, lower_kernel(apply_actions(sink, actions, target), target, first="device_axes")


@pytest.mark.sweep
@pytest.mark.parametrize("how", ["sum", "amax"])
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_lanes(name, how):
    x, linear = program(name, how)
    want = x.sum(1) if how == "sum" else x.max(1)
    for backwards in (False, True):
        out = np.zeros_like(want)
        Kernel(linear, "test", backwards).run([a.ctypes.data for a in (out, x)])
        np.testing.assert_array_equal(out, want)
    ops = [u.op for u in linear.src]
    memory = sum(int(np.prod(u.shape)) for u in linear.src if LOCAL(u))
    assert (ops.count("SHUFFLE"), ops.count("BARRIER"), memory) == SUMS[name][2]


@pytest.mark.sweep
@pytest.mark.parametrize("name", SUMS)
def test_without_shuffles_lanes_meet_in_memory(name):
    x, linear = program(name, "sum", GPU._replace(shuffles=False))
    assert not any(u.op == "SHUFFLE" for u in linear.src) and any(LOCAL(u) for u in linear.src)
    out = np.zeros(len(x), np.float32)
    Kernel(linear, "test").run([a.ctypes.data for a in (out, x)])
    np.testing.assert_array_equal(out, x.sum(1))


@pytest.mark.sweep
@pytest.mark.skipif(bool(missing()), reason=missing() or "-")
@pytest.mark.parametrize("name", [name for name, device in STANDINS.items() if device.target.shuffles])
def test_every_type_as_source(name):
    device = STANDINS[name](name)
    types = [d for d in ALL if d.kind in "iuf" and not (name == "standin-metal" and d.name == "float64")]
    arrays = [rows(4, 64).astype(to_numpy(d)) for d in types]
    linears = []
    for x in arrays:
        (sink,) = kernels(device.target, lambda t: t.amax(1), x)
        sink = lower_kernel(sink, device.target, last="merge_ranges")
        planned = apply_actions(sink, (split(1, 32, "GROUP_REDUCE"), split(0, 4, "GLOBAL")), device.target)
        linears.append(lower_kernel(planned, device.target, first="device_axes"))
        assert any(u.op == "SHUFFLE" for u in linears[-1].src)
    programs = device.compile([("test", f"{name}/{k}", lin) for k, lin in enumerate(linears)])
    for x, p in zip(arrays, programs, strict=True):
        out, x = aligned(np.zeros(4, x.dtype)), aligned(x)
        commands = device.encode(*launching((p, (0, 1))))
        commands.bind(0, out.ctypes.data)
        commands.bind(1, x.ctypes.data)
        commands.launch()
        np.testing.assert_array_equal(out, x.max(1), err_msg=str(x.dtype))
