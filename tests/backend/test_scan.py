"""SCAN and SHRINK of shaped values on every device, for every axis, number of lanes and dtype."""

import numpy as np
import pytest

from monolect.backend.base import launching
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes, to_numpy
from monolect.ir.check.arrays import scan_array
from monolect.ir.check.interp import run_kernel
from monolect.ir.ops import KernelInfo, ParamArg
from monolect.ir.uop import build, idx, node, shape_source
from monolect.lower.linearize import linearize

DTYPES = (dtypes.bool, dtypes.int8, dtypes.uint16, dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


def param(slot, shape, dtype):
    return node("PARAM", (shape_source((int(np.prod(shape)),)),), ParamArg(slot, dtype, None, "GLOBAL"))


def whole(x, shape):
    """All of the memory `x`, as a place of that shape."""
    flat = node("STACK", tuple(idx(i) for i in range(int(np.prod(shape)))))
    return build("INDEX", x, build("RESHAPE", flat, shape_source(shape)))


def kernel(shape, dtype, f):
    """A kernel that stores f(PARAM 1, read as `shape`) into PARAM 0."""
    x = param(1, shape, dtype)
    value = f(build("LOAD", whole(x, shape)))
    out = param(0, value.shape, dtype)
    store = node("STORE", (whole(out, value.shape), value))
    return node("SINK", (store,), KernelInfo("scan", (), 1)), out, x, value.shape


def agree(shape, dtype, f, data, wanted):
    """The interpreter and every device leave what is wanted, bit for bit."""
    sink, out, x, made = kernel(shape, dtype, f)
    assert made == wanted.shape
    got = np.zeros(wanted.size, wanted.dtype)
    run_kernel(sink, {out: got, x: data.reshape(-1).copy()})
    np.testing.assert_array_equal(got, wanted.reshape(-1))
    for name in ("cpu", "python"):
        device = Device[name]
        (program,) = device.compile([("scan", f"scan/{sink.serial}", linearize(sink))])
        arrays = [np.zeros(wanted.size + 1, wanted.dtype), data.reshape(-1).copy()]
        commands = device.encode(*launching((program, (0, 1))))
        for number, a in enumerate(arrays):
            commands.bind(number, a.ctypes.data)
        commands.launch()
        np.testing.assert_array_equal(arrays[0][:-1], wanted.reshape(-1), err_msg=name)
        assert not arrays[0][-1]


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(16,), (1,), (2,), (5,), (13,), (3, 8), (4, 2, 16), (2, 3, 1)], ids=str)
def test_running_values_along_each_axis(shape, dtype):
    data = (np.random.default_rng(1).integers(0, 3, shape)).astype(to_numpy(dtype))
    for op, f in (("ADD", np.add), ("MUL", np.multiply), ("MAX", np.maximum)):
        for axis in range(len(shape)):
            wanted = f.accumulate(data, axis=axis, dtype=data.dtype)
            np.testing.assert_array_equal(scan_array(op, dtype, data, axis), wanted)
            agree(shape, dtype, lambda x, op=op, axis=axis: node("SCAN", (x,), (op, axis)), data, wanted)


def test_a_running_maximum_keeps_nan():
    data = np.array([1, 2, np.nan, 5, 0, 7, 1, 1], np.float32)
    agree((8,), dtypes.float32, lambda x: node("SCAN", (x,), ("MAX", 0)), data, np.maximum.accumulate(data))


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_a_part_of_a_value(dtype):
    shape = (3, 4, 8)
    data = (np.arange(96) % 7 % 3).reshape(shape).astype(to_numpy(dtype))
    for first, sizes in (
        ((0, 0, 7), (3, 4, 1)),
        ((1, 0, 0), (2, 4, 8)),
        ((2, 3, 2), (1, 1, 5)),
        ((0, 1, 0), (3, 2, 8)),
    ):
        window = tuple(slice(o, o + n) for o, n in zip(first, sizes, strict=True))
        agree(
            shape,
            dtype,
            lambda x, o=first, n=sizes: build("SHRINK", x, shape_source(o), shape_source(n)),
            data,
            data[window],
        )
