"""OpenCL: its language, its driver's errors. What it shares with others is in `test_group_devices.py`."""

import re
import subprocess
import sys
from math import prod
from types import SimpleNamespace

import numpy as np
import pytest

from monolect import Tensor
from monolect.backend.common.diagnostics import compiler_message
from monolect.backend.common.launch import group_count
from monolect.backend.opencl import compile as opencl_compile
from monolect.backend.opencl import lanes
from monolect.backend.opencl.render import language, render_module
from monolect.backend.opencl.runtime import OpenCLDevice
from monolect.backend.registry import Device
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import CompileError, DeviceError, MissingExtraError
from tests.backend import test_ops_suite as suite
from tests.backend.test_group_devices import at, linear, load, param, store

needs_device = pytest.mark.skipif(bool(opencl_compile.missing()), reason=opencl_compile.missing() or "-")


# ---- the language, without a device ----------------------------------------------------------------------------------
def test_types_that_a_device_lacks_are_their_bits():
    def text(d: DType, **has: bool) -> str:
        return render_module([("k", linear(store(at(param(0, 4, dtype=d), 0), load(at(param(1, 4, dtype=d), 0)))))],
                             language(**has))  # fmt: skip

    assert "__global half* data0" in text(dtypes.float16, has_half=True)
    assert "__global ushort* data0" in text(dtypes.float16)
    assert "__global double* data0" in text(dtypes.float64) and "cl_khr_fp64 : enable" in text(dtypes.float64)
    assert "__global ulong* data0" in text(dtypes.float64, has_double=False)
    assert "EXTENSION" not in text(dtypes.float32, has_double=False)


def test_a_refusal_is_told_with_its_line():
    source = "one\ntwo\nthree\n"
    for message in (
        "error: /tmp/x.cl:2:10: use of y",
        "<kernel>:2:1: error: use of y",
        "/a/b:2:3: fatal error: use of y",
    ):
        assert (
            compiler_message("it", message, source, opencl_compile.ERROR_PATTERN)
            == "it refused the program at line 2: use of y\ntwo"
        )


def test_without_the_package_the_device_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    opencl_compile.devices.cache_clear()
    try:
        assert "pip install 'monolect[opencl]'" in Device.present()["opencl"]
        with pytest.raises(MissingExtraError):
            opencl_compile.devices()
    finally:
        monkeypatch.undo()
        opencl_compile.devices.cache_clear()


@pytest.mark.parametrize("found", [[], RuntimeError("PLATFORM_NOT_FOUND_KHR")])
def test_without_a_driver_the_device_says_what_to_install(monkeypatch, found):
    def platforms():
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setitem(sys.modules, "pyopencl", SimpleNamespace(Error=RuntimeError, get_platforms=platforms))
    opencl_compile.devices.cache_clear()
    try:
        assert "no OpenCL device" in (why := Device.present()["opencl"]) and "pocl-opencl-icd" in why
        with pytest.raises(DeviceError, match="no OpenCL device"):
            OpenCLDevice("opencl")
    finally:
        monkeypatch.undo()
        opencl_compile.devices.cache_clear()


def test_importing_monolect_does_not_import_pyopencl():
    code = "import sys, monolect, monolect.backend.opencl.runtime; sys.exit('pyopencl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@needs_device
def test_a_refused_program_shows_its_line_and_the_device_goes_on():
    device = Device["opencl"]
    with pytest.raises(CompileError, match="line 2: .*undeclared") as caught:
        device.compiler.compile("__kernel void f(__global int* x) {\n  x[0] = y;\n}\n")
    assert str(caught.value).splitlines()[1].strip() == "x[0] = y;"
    assert Tensor([1.0, 2.0], device="opencl").sum().item() == 3


# ---- whole programs --------------------------------------------------------------------------------------------------
@needs_device
def test_the_optimizer_shares_a_product_between_lanes():
    rng = np.random.default_rng(5)
    a = rng.standard_normal((128, 128)).astype(np.float32)
    x = Tensor(a, device="opencl").realize()
    before = set(Device["opencl"].programs)
    np.testing.assert_allclose((x @ x).numpy(), a @ a, rtol=1e-4, atol=1e-4)
    (key,) = set(Device["opencl"].programs) - before
    program = Device["opencl"].programs[key]
    assert prod(program.entry.lanes) > 16 and prod(group_count(n, {}) for n in program.entry.groups) > 1
    assert "__local float" in program.source and "barrier(" in program.source and "vload4" in program.source


# ---- lanes that trade values: PoCL has none, a function through local memory stands in ------------------
TYPES = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", "double")
TRADE = """
{t} __attribute__((overloadable)) traded(__local ulong* met, {t} x, uint bits) {{
  size_t i = get_local_id(0) + get_local_size(0) * (get_local_id(1) + get_local_size(1) * get_local_id(2));
  barrier(CLK_LOCAL_MEM_FENCE); *(__local {t}*)(met + i) = x;
  barrier(CLK_LOCAL_MEM_FENCE); {t} y = *(__local {t}*)(met + {other}); barrier(CLK_LOCAL_MEM_FENCE);
  return y;
}}"""


@pytest.fixture
def traders(monkeypatch, compiled_anew):
    """Opens `opencl` with sub-groups that are not there; `other`: who a lane trades with."""

    def opened(other: str = "(i ^ bits)") -> OpenCLDevice:
        build = opencl_compile.Compiler.compile
        stand_ins = "".join(TRADE.format(t=t, other=other) for t in TYPES)

        def compiled(self, source):
            if not other:  # a driver that has not what it says
                return build(self, source)
            source = re.sub(r"(__kernel [^{]*\{)", r"\1\n  __local ulong met[256];", source)
            name = "#define sub_group_shuffle_xor(x, bits) traded(met, x, bits)\n"
            return build(self, f"#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n{stand_ins}\n{name}{source}")

        monkeypatch.setattr(opencl_compile.Compiler, "compile", compiled)
        monkeypatch.setattr(lanes, "EXTENSIONS", frozenset())
        device = OpenCLDevice("opencl")
        monkeypatch.setitem(Device._open, "opencl", device)
        return device

    return opened


@needs_device
def test_lanes_of_a_sub_group_join_their_sums_in_registers(traders):
    device = traders()
    assert device.target.shuffles and device.target.warp == lanes.LANES
    rng = np.random.default_rng(6)
    a = rng.integers(-9, 9, (24, 2048)).astype(np.float32)
    x = Tensor(a, device="opencl").realize()
    b = rng.standard_normal((7, 600)).astype(np.float32)
    e = np.exp(b - b.max(1, keepdims=True))
    kinds = [np.int8, np.uint16, np.int64, np.float64, np.bool_]
    narrow = [a.astype(k) for k in kinds]
    got = [
        x.sum(1),
        x.amax(1),
        Tensor(b, device="opencl").softmax(1),
        *(Tensor(v, device="opencl").amax(1) for v in narrow),
    ]
    got[0].realize(*got[1:])
    np.testing.assert_array_equal(got[0].numpy(), a.sum(1))
    np.testing.assert_array_equal(got[1].numpy(), a.max(1))
    np.testing.assert_allclose(got[2].numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)
    for t, v in zip(got[3:], narrow, strict=True):
        np.testing.assert_array_equal(t.numpy(), v.max(1))
    sources = [p.source for p in device.programs.values()]
    assert all("sub_group_shuffle_xor(" in s and "intel_reqd_sub_group_size(16)" in s for s in sources)


@needs_device
@pytest.mark.parametrize("other", ["i", "(i ^ bits ^ (i / 16 & 1))", ""])
def test_a_device_whose_sub_groups_are_others_does_without(traders, other):
    device = traders(other)
    assert not device.target.shuffles and device.target.key.endswith(f"/{device.handle.max_compute_units}")
    a = np.arange(6 * 512, dtype=np.float32).reshape(6, 512) % 7
    np.testing.assert_array_equal(Tensor(a, device="opencl").sum(1).numpy(), a.sum(1))
    assert not any("sub_group" in p.source for p in device.programs.values())


# ---- of the suite of ops, a part that is quick -----------------------------------------------------------------------
@needs_device
@pytest.mark.parametrize("op", ["CMPNE", "IDIV", "MAX", "SHR", "WHERE"])
def test_elementwise(op):
    suite.test_elementwise(op, "opencl")


@needs_device
@pytest.mark.parametrize("d", [dtypes.float32, dtypes.int8], ids=lambda d: d.name)
def test_casts_and_reductions(d):
    suite.test_casts_between_all_dtypes(d, "opencl")
    suite.test_reductions("ADD", d, "opencl")
    suite.test_sums_by_place("opencl", d)
