"""PERMUTE of shaped values: the shuffle network on symbols, then whole kernels on every device."""

import re
from itertools import permutations

import numpy as np
import pytest

from monolect.backend.base import launching
from monolect.backend.common.llvm.shuffle import transpose
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes, to_numpy
from monolect.ir.check.interp import run_kernel
from monolect.ir.ops import KernelInfo, ParamArg
from monolect.ir.uop import build, idx, node, shape_source
from monolect.lower.linearize import linearize


class Shuffles:
    """Runs the instructions of a network on lists of labels; counts the two-source shuffles."""

    def __init__(self):
        self.known, self.count = {}, 0

    def __call__(self, text):
        name = f"%v{len(self.known)}"
        if m := re.fullmatch(r"shufflevector <(\d+) x f> (\S+), <\1 x f> (\S+), <\d+ x i32> <(.*)>", text):
            lanes = self.read(m[2], int(m[1])) + self.read(m[3], int(m[1]))
            picks = [p.split()[1] for p in m[4].split(", ")]
            self.known[name] = [None if p == "poison" else lanes[int(p)] for p in picks]
            self.count += 1
        elif m := re.fullmatch(r"extractelement <(\d+) x f> (\S+), i64 (\d+)", text):
            self.known[name] = [self.read(m[2], int(m[1]))[int(m[3])]]
        else:
            m = re.fullmatch(r"insertelement <(\d+) x f> (\S+), f (\S+), i64 (\d+)", text)
            lanes = list(self.read(m[2], int(m[1])))
            lanes[int(m[4])] = self.read(m[3], 1)[0]
            self.known[name] = lanes
        return name

    def read(self, register, lanes):
        out = [None] * lanes if register == "poison" else self.known[register]
        assert len(out) == lanes, "a vector read as one of another length"
        return out


def network(rows, lanes, itemsize):
    emit = Shuffles()
    regs = [f"%r{i}" for i in range(rows)]
    emit.known |= {r: [(i, j) for j in range(lanes)] for i, r in enumerate(regs)}
    out = transpose(emit, regs, "f", lanes, itemsize)
    assert [emit.known[r] for r in out] == [[(i, j) for i in range(rows)] for j in range(lanes)]
    return emit.count


@pytest.mark.sweep
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_a_block_of_any_size_is_transposed(itemsize):
    for rows in range(1, 18):
        for lanes in range(1, 18):
            network(rows, lanes, itemsize)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
def test_a_square_takes_one_shuffle_a_register_and_stage(n):
    assert [network(n, n, itemsize) for itemsize in (1, 2, 4, 8)] == [n * (n.bit_length() - 1)] * 4


def kernel(shape, order, dtype):
    """A kernel that stores PARAM 1, read as `shape`, permuted, into PARAM 0."""
    size = int(np.prod(shape))
    out, x = (node("PARAM", (shape_source((size,)),), ParamArg(k, dtype, None, "GLOBAL")) for k in (0, 1))
    flat = node("STACK", tuple(idx(i) for i in range(size)))
    value = build("LOAD", build("INDEX", x, build("RESHAPE", flat, shape_source(shape))))
    value = build("PERMUTE", value, arg=order)
    place = build("INDEX", out, build("RESHAPE", flat, shape_source(value.shape)))
    return node("SINK", (node("STORE", (place, value)),), KernelInfo("turn", (), 1)), out, x


DTYPES = (dtypes.bool, dtypes.int8, dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.int64)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "shape", [(16, 16), (4, 16), (16, 4), (3, 5), (1, 4), (4, 1), (2, 3, 4), (2, 1, 2, 8)], ids=str
)
def test_any_order_of_axes_on_every_device(shape, dtype):
    data = (np.arange(np.prod(shape)) % 251 * 3 % 127).astype(to_numpy(dtype))
    for order in permutations(range(len(shape))):
        sink, out, x = kernel(shape, order, dtype)
        wanted = np.ascontiguousarray(data.reshape(shape).transpose(order)).reshape(-1)
        got = np.zeros_like(data)
        run_kernel(sink, env := {out: got, x: data})
        assert np.array_equal(env[out], wanted)
        for name in ("cpu", "python"):
            device = Device[name]
            (program,) = device.compile([("turn", f"turn/{shape}/{order}/{dtype.name}", linearize(sink))])
            arrays = [np.zeros(data.size + 1, data.dtype), np.array(data)]
            commands = device.encode(*launching((program, (0, 1))))
            for number, a in enumerate(arrays):
                commands.bind(number, a.ctypes.data)
            commands.launch()
            assert np.array_equal(arrays[0][:-1], wanted) and not arrays[0][-1], name
