"""The CUDA device, over a driver that is not there: programs from tensors to results, graphs, memory, errors.

What this does not show: that the vendor's driver does what ours does. `make test-cuda` runs it on a GPU.
"""

import ctypes
import re
import subprocess
import sys

import numpy as np
import pytest

from monolect import Context, Tensor, jit
from monolect.backend import registry
from monolect.backend.base import launching
from monolect.backend.common.gpu import driver as gpu_driver
from monolect.backend.common.gpu import memory as gpu_memory
from monolect.backend.cuda import compile as nvrtc
from monolect.backend.cuda import driver as cuda_driver
from monolect.backend.cuda import ptx
from monolect.backend.cuda.runtime import CudaDevice
from monolect.base.dtype import dtypes
from monolect.base.errors import (
    ArgumentError,
    CompileError,
    DeviceError,
    MissingExtraError,
    SettingError,
)
from monolect.ir.digest import digest
from monolect.ir.ops import BufferArg, ParamArg
from monolect.ir.uop import const, node, shape_source
from monolect.runtime import dlpack
from monolect.runtime.realize.execute import plans
from tests.backend import test_ops_suite as suite
from tests.backend.standin.device import missing
from tests.backend.standin.driver import MODULES, Compiler, CUresult, Driver, PtxCompiler, frees_and_tries_once_more
from tests.backend.workgroup_kernels import linear, load, param, special, store

needs_compiler = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
OUT_OF_MEMORY = CUresult.CUDA_ERROR_OUT_OF_MEMORY


@pytest.fixture
def driver(monkeypatch):
    """Two GPUs that are not there."""
    fake = Driver(n_devices=2)
    opened = dict(registry.Device._open)
    monkeypatch.setattr(cuda_driver, "bindings", lambda: fake)
    monkeypatch.setattr(nvrtc, "Compiler", Compiler)
    monkeypatch.setattr(nvrtc, "missing", lambda: "")
    for name in ("cuda", "cuda:1"):
        opened.pop(name, None)
    monkeypatch.setattr(registry.Device, "_open", opened)
    with Context(COMPILE_CACHE=0):
        yield fake


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- finding one -----------------------------------------------------------------------------------------------------
def test_what_is_missing_is_said_with_what_to_do(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(cuda_driver, "import_module", absent)
    assert "pip install 'monolect[cuda]'" in registry.Device.present()["cuda"]
    with pytest.raises(MissingExtraError):
        CudaDevice()


def test_looking_for_one_imports_nothing_of_the_vendors():
    code = "import sys, monolect.backend.cuda.runtime; assert not [m for m in sys.modules if m.split('.')[0] == 'cuda']"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_driver(monkeypatch, driver):
    def no_library(flags):
        raise RuntimeError('"cuda" is an NVIDIA driver library\nand so on')

    monkeypatch.setattr(driver, "cuInit", no_library)
    assert "install NVIDIA's driver" in registry.Device.present()["cuda"]
    with pytest.raises(DeviceError, match="no CUDA driver: .cuda. is an NVIDIA driver library; install"):
        CudaDevice()


def test_no_gpu_and_no_such_gpu(driver):
    with pytest.raises(DeviceError, match="no such GPU") as caught:
        Tensor([1.0], device="cuda:7").realize()
    assert "cuda:0 to cuda:1" in str(caught.value)
    driver.n_devices = 0
    assert "the driver knows none" in registry.Device.present()["cuda"]


@needs_compiler
def test_the_table_of_devices_says_what_is_there(driver):
    driver_, compiler = registry.Device.about("cuda")
    assert driver_ == "a GPU, a GPU; driver for CUDA 13.2" and compiler.startswith("NVRTC ")


@needs_compiler
def test_values_come_from_and_go_to_other_devices(driver):
    x = data(5, 7)
    y = Tensor(x).to("cuda") * 2
    np.testing.assert_array_equal((y.to("cpu") + 1).numpy(), x * 2 + 1)


# ---- programs --------------------------------------------------------------------------------------------------------
@needs_compiler
def test_programs_from_tensors_to_results(driver):
    suite.check_programs_as_one_module("cuda")


@needs_compiler
def test_a_jitted_step_is_one_graph_that_is_told_only_what_changed(driver):
    @jit
    def step(x):
        return (x.softmax(-1) @ x.T).sum(0)

    for k in range(5):
        x = data(6, 8, seed=k)
        e = np.exp(x)
        want = ((e / e.sum(-1, keepdims=True)) @ x.T).sum(0)
        got = step(Tensor(x, device="cuda"))
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)
    assert driver.calls["cuGraphInstantiate"] >= 1
    launched = driver.calls["cuLaunchKernel"]
    step(Tensor(data(6, 8), device="cuda")).numpy()
    assert driver.calls["cuLaunchKernel"] == launched


@needs_compiler
def test_a_captured_step_tells_the_peaks_of_host_and_device(driver, capsys):
    n = 1 << 18
    x = Tensor(data(n), device="cuda").realize()
    step = jit(lambda x: (x * 2).contiguous() + 1)
    with Context(DEBUG=2):
        step(x)
    found = re.search(r"captured: .*; host peak ([0-9.]+) MB, cuda peak ([0-9.]+) MB", capsys.readouterr().err)
    host, device = map(float, found.groups())
    assert host > 0 and abs(device - registry.Device["cuda"].memory.peak_bytes / 1e6) < 0.1
    assert 2 * 4 * n / 1e6 <= device < 5 * 4 * n / 1e6, "the argument and the result, and what is in between"


@needs_compiler
def test_what_is_not_captured_tells_the_peaks_too(driver, capsys):
    x = Tensor(data(1 << 18), device="cuda").realize()
    with Context(DEBUG=2):
        large = (x + 1).realize()
        more = (large + x).realize()
    found = re.findall(r"ran 1 in .* us; host peak [0-9.]+ MB, cuda peak ([0-9.]+) MB", capsys.readouterr().err)
    assert [round(float(peak), 1) for peak in found] == [2.1, 3.1], "one buffer more each time"
    assert more.shape == x.shape


@needs_compiler
def test_programs_come_back_from_the_disk(driver):
    x = data(33)
    with Context(COMPILE_CACHE=1, VERIFY=0, CHECK_BOUNDS=0):
        np.testing.assert_allclose((Tensor(x, device="cuda") * 3.25 + 1).numpy(), x * 3.25 + 1, rtol=1e-5)
        (key, made), *_ = registry.Device["cuda"].programs.items()
        found = CudaDevice().lookup(key)
        assert found.name == made.name and found.entry[1:] == made.entry[1:]
        assert CudaDevice().lookup("no such key") is None
        for damaged in (b"{}", b"{", b'{"name": "k", "code": "gone", "symbol": "k"}'):
            device = CudaDevice()
            device.cache.put(f"kernel/{device.target.key}/{key}", damaged)
            assert device.lookup(key) is None


@needs_compiler
def test_the_number_of_workgroups_may_be_known_at_run_time(driver):
    n = node("PARAM", (shape_source(()),), ParamArg(1, dtypes.index, None, None, "n", 0, 64))
    at = node("SPECIAL", (n,), "gidx0")
    lin = linear(store(param(0, 64), at, const(1.0, dtypes.float32)))
    device = registry.Device["cuda"]
    (p,) = device.compile([("ones", digest(lin), lin)])
    commands = device.encode(*launching((p, (0, 1)), (p, (2, 1))))
    out, other = (device.from_array(np.zeros(64, np.float32)) for _ in range(2))
    commands.bind(0, out.address)
    commands.bind(2, other.address)
    for size in (5, 0, 7, 3, 9):
        commands.bind(1, size)
        commands.launch()
        if size in (0, 3):
            assert out.view(np.float32).sum() == {0: 5, 3: 7}[size]
    assert out.view(np.float32).sum() == other.view(np.float32).sum() == 9
    assert driver.calls["cuGraphInstantiate"] == 1


@needs_compiler
def test_times_are_by_the_clock_of_the_gpu(driver):
    x = Tensor(data(64), device="cuda").realize()
    before = set(plans)
    (x.exp().sum() + x).realize()
    (plan,) = {
        id(plans[k]): plans[k] for k in plans if k not in before
    }.values()  # by its structure, and by its function
    assert all(t == 1_000_000 for t in plan.commands.launch_timed())


# ---- without NVRTC ---------------------------------------------------------------------------------------------------
@pytest.fixture
def no_nvrtc(driver, monkeypatch):
    """The same GPUs, where only LLVM is installed."""
    monkeypatch.setattr(nvrtc, "missing", lambda: "no NVRTC: install it")
    monkeypatch.setattr(nvrtc, "version", lambda: "system")
    monkeypatch.setattr(ptx, "compiler", PtxCompiler)
    plans.clear()  # those of other tests launch on devices of their own
    return driver


@needs_compiler
def test_without_nvrtc_the_driver_is_given_ptx(no_nvrtc):
    assert registry.Device.present()["cuda"] == "" and "PTX by LLVM" in registry.Device.about("cuda")
    suite.check_programs_as_one_module("cuda")
    device = registry.Device["cuda"]
    (text, *_) = [code for code in MODULES if b".target sm_90" in code]
    assert b".version 8.4" in text and text.endswith(b"\0") and device.uses_llvm
    assert all(p.source == "" or p.source.startswith("define ptx_kernel") for p in device.programs.values())


@needs_compiler
def test_ptx_comes_back_from_the_disk(no_nvrtc):
    x = data(33)
    with Context(COMPILE_CACHE=1, VERIFY=0, CHECK_BOUNDS=0):
        np.testing.assert_allclose((Tensor(x, device="cuda") * 1.25 + 3).numpy(), x * 1.25 + 3, rtol=1e-5)
        (key, made), *_ = registry.Device["cuda"].programs.items()
        assert CudaDevice().lookup(key).entry[1:] == made.entry[1:]


@needs_compiler
def test_the_compiler_is_a_setting(driver, monkeypatch):
    keys = {}
    for name in ("nvrtc", "llvm"):
        with Context(CUDACC=name):
            keys[name] = CudaDevice().target.key
    assert keys["nvrtc"] != keys["llvm"] and CudaDevice().target.key == keys["nvrtc"]
    monkeypatch.setattr(nvrtc, "missing", lambda: "no NVRTC: install it")
    with Context(CUDACC="nvrtc"):
        assert registry.Device.present()["cuda"] == "no NVRTC: install it"
    with pytest.raises(SettingError, match="CUDACC") as caught:
        Context(CUDACC="nvcc").__enter__()
    assert "one of auto, nvrtc, llvm" in str(caught.value)


def test_ptx_is_for_the_newest_architecture_that_is_known():
    assert [ptx.architecture(n) for n in (75, 86, 87, 103, 121)] == ["75", "86", "86", "100", "120"]


# ---- memory ----------------------------------------------------------------------------------------------------------
@needs_compiler
def test_copies_larger_than_a_stage(driver, monkeypatch):
    monkeypatch.setattr(gpu_memory, "PINNED_BYTES", 4096)
    a = np.arange(5000, dtype=np.int32)
    device = registry.Device["cuda"]
    held = device.from_array(a)
    a += 1
    np.testing.assert_array_equal(held.view(np.int32), a - 1)
    assert driver.calls["cuMemcpyHtoDAsync"] == driver.calls["cuMemcpyDtoHAsync"] == 5
    assert driver.calls["cuMemHostAlloc"] == 2


@needs_compiler
def test_out_of_memory_frees_what_is_cached_and_tries_once_more(driver):
    frees_and_tries_once_more(driver, registry.Device["cuda"])


@needs_compiler
def test_another_gpu(driver):
    a, b = registry.Device["cuda"], registry.Device["cuda:1"]
    x = data(100)
    held, target = a.from_array(x), b.alloc(x.nbytes)
    b.copy_from(target, a, held, x.nbytes)
    b.copy_from(target, a, held, x.nbytes)
    assert driver.calls["cuCtxEnablePeerAccess"] == 1
    np.testing.assert_array_equal(target.view(np.float32), x)


@needs_compiler
def test_a_tensor_goes_to_another_gpu_without_the_host(driver):
    x = data(6, 5)
    y = (Tensor(x, device="cuda") * 2)[1:, ::2]
    moved = (y.to("cuda:1") + 1).realize()
    assert driver.calls["cuMemcpyPeerAsync"] == 1 and not driver.calls["cuMemcpyDtoHAsync"]
    np.testing.assert_array_equal(moved.numpy(), x[1:, ::2] * 2 + 1)
    again = Tensor(x, device="cuda").realize()
    np.testing.assert_array_equal(again.T.to("cuda:1").numpy(), x.T)
    assert again[:0].to("cuda:1").tolist() == []


# ---- errors ----------------------------------------------------------------------------------------------------------
@needs_compiler
def test_an_error_names_the_kernel(driver):
    x = Tensor(data(8, 8), device="cuda").realize()
    driver.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(
        DeviceError, match=r"cuda, kernel sum_\w+: cuLaunchKernel: an illegal memory access.*700|ILLEGAL"
    ):
        x.sum(1).realize()
    del driver.fail["cuLaunchKernel"]
    np.testing.assert_allclose(x.sum(1).numpy(), data(8, 8).sum(1), rtol=1e-5)


@needs_compiler
def test_a_forked_child_is_told(driver, monkeypatch):
    device = registry.Device["cuda"]
    monkeypatch.setattr(gpu_driver.os, "getpid", lambda: -1)
    with pytest.raises(DeviceError, match="cuda was opened before a fork"):
        device.alloc(100)


@needs_compiler
def test_a_program_over_a_limit_is_refused_with_the_kernel_and_the_remedy(driver):
    lane = special("lidx0", 2048)
    lin = linear(store(param(0, 2048), lane, load(param(1, 2048), lane)))
    with pytest.raises(CompileError, match="copy: too many lanes"):
        registry.Device["cuda"].compile([("copy", digest(lin), lin)])


@pytest.mark.sweep
@needs_compiler
@pytest.mark.parametrize(
    ("axis", "n", "message"),
    [("lidx2", 65, "too many lanes along dimension 2"), ("gidx1", 65536, "too many workgroups along dimension 1")],
)
def test_each_dimension_of_a_launch_has_a_limit(driver, axis, n, message):
    device = registry.Device["cuda"]
    at = special(axis, n)
    lin = linear(store(param(0, n), at, load(param(1, n), at)))
    with pytest.raises(CompileError, match=rf"(?s)copy: {message}.*on cuda: .*NOOPT=1"):
        device.compile([("copy", digest(lin), lin)])
    at = special(axis, n - 1)
    lin = linear(store(param(0, n), at, load(param(1, n), at)))
    assert device.compile([("copy", digest(lin), lin)])


# ---- memory of others ------------------------------------------------------------------------------------------------
class Lent:
    """Memory of the GPU that belongs to another library, with axes in any order."""

    def __init__(self, device: CudaDevice, array: np.ndarray, offset: int = 0):
        self.array, self.offset, self.streams = array, offset, []
        self.memory = device.from_array(array.transpose(np.argsort(array.strides, kind="stable")[::-1]))
        device.wait()

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        interface = {"version": 3, "typestr": self.array.dtype.str, "shape": self.array.shape}
        interface |= {"data": (self.memory.address + self.offset, False), "strides": self.array.strides}
        place = type("Place", (), {"__array_interface__": interface})()
        capsule = np.asarray(place).__dlpack__(max_version=max_version)
        dlpack.description(capsule).device_type = 2
        return capsule


@needs_compiler
def test_memory_is_shared_where_it_is(driver):
    t = (Tensor(data(6, 4), device="cuda:1") + 1).realize()
    assert t.__dlpack_device__() == (2, 1)
    told = dlpack.description(capsule := t.T.__dlpack__(max_version=(1, 0)))
    memory = t.uop.storage
    assert (told.data, told.device_type, told.device_number) == (memory.address, 2, 1)
    strides = (ctypes.c_int64 * 2).from_address(told.strides)
    assert list(strides) == [1, 4] and not any(driver.streams.values()), "what was queued is done"
    assert sys.getrefcount(memory) > 3 and memory.n_views == 1
    told.device_type = 1
    del capsule


@needs_compiler
def test_memory_of_another_library_is_read_where_it_is(driver):
    x = data(4, 6).T
    lent = Lent(registry.Device["cuda"], x)
    t = Tensor.from_dlpack(lent)
    assert t.device == "cuda" and dlpack.base_of(t.uop).storage.address == lent.memory.address
    assert lent.streams == [int(registry.Device["cuda"].stream)]
    np.testing.assert_array_equal(t.numpy(), x)
    np.testing.assert_array_equal((t * 2).numpy(), x * 2)
    with pytest.raises(ArgumentError, match="without a copy"):
        Tensor.from_dlpack(Lent(registry.Device["cuda"], data(8), offset=4))


@needs_compiler
def test_a_captured_step_reads_what_another_library_writes_on_the_gpu(driver):
    lent = Lent(registry.Device["cuda"], data(8, 8))
    w = Tensor.from_dlpack(lent)
    step = jit(lambda x: x @ w)
    for k in range(4):
        now, x = data(8, 8, seed=k), data(3, 8)
        registry.Device["cuda"].memory.write(lent.memory, now)
        np.testing.assert_allclose(step(Tensor(x, device="cuda")).numpy(), x @ now, rtol=1e-4, atol=1e-5)


@needs_compiler
def test_memory_on_the_gpu_can_be_asked_for_on_the_host(driver):
    x = data(5)
    np.testing.assert_array_equal(np.from_dlpack(Tensor(x, device="cuda"), device="cpu"), x)


@needs_compiler
def test_products_and_sums_of_a_warp(driver):
    """Matrix units and shuffles, as source for the device: halves into float32, rows that a warp sums."""
    a, b = (np.random.default_rng(k).integers(-4, 5, (256, 256)).astype(np.float16) for k in range(2))
    x, y = Tensor(a, device="cuda"), Tensor(b, device="cuda")
    product, sums = x @ y, x.float().sum(1)
    product.realize(sums)
    np.testing.assert_array_equal(product.numpy(), (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))
    np.testing.assert_array_equal(sums.numpy(), a.astype(np.float32).sum(1))
    sources = [p.source for p in registry.Device["cuda"].programs.values()]
    assert any("mma_m16n8k16_f16(" in s for s in sources) and any("shuffle_xor<float>(" in s for s in sources)


# ---- local memory that a launch asks for -----------------------------------------------------------------------------
def turned_around(n: int):
    """64 lanes put what they read into two arrays of local memory of which the first is `n` floats, and turn it."""
    lane = special("lidx0", 64)
    large, small = (node("BUFFER", (shape_source((m,)),), BufferArg(k, dtypes.float32, None, "LOCAL"))
                    for k, m in enumerate((n, 64)))  # fmt: skip
    x = load(param(1, 64), lane)
    ready = node("BARRIER", (store(large, lane + (n - 64), x), store(small, lane, x)))
    a, b = (load(node("AFTER", (m, ready)), at) for m, at in ((large, n - 1 - lane), (small, lane)))
    return linear(store(param(0, 64), lane, a * 2.0 + b))


@pytest.mark.sweep
@needs_compiler
@pytest.mark.parametrize(("n", "asked"), [(64, 0), ((48 << 8) - 64, 0), (50 << 8, (50 << 10) + 256)])
def test_local_memory_is_asked_for_where_it_is_much(driver, n, asked):
    """What is declared is at most 48 KB; beyond, launches and graphs say how much, and the kernel is allowed."""
    device, lin = registry.Device["cuda"], turned_around(n)
    (p,) = device.compile([("turn", digest(lin), lin)])
    assert p.entry.local_bytes == asked and driver.calls["cuFuncSetAttribute"] == bool(asked)
    assert ("extern __shared__" in p.source) == bool(asked)
    x = data(64)
    out, other, source = (device.from_array(a) for a in (np.zeros_like(x), np.zeros_like(x), x))
    commands = device.encode(*launching((p, (0, 1)), (p, (2, 1))))
    for k, memory in enumerate((out, source, other)):
        commands.bind(k, memory.address)
    for _ in range(2):  # kernel by kernel, then as a graph
        commands.launch()
        for held in (out, other):
            np.testing.assert_array_equal(held.view(np.float32), x[::-1] * 2 + x)
            device.memory.write(held, np.zeros_like(x))
    assert driver.calls["cuGraphLaunch"] == 1


@needs_compiler
def test_local_memory_is_asked_for_by_programs_from_the_disk(driver):
    lin = turned_around(40 << 8 | 3 << 12)
    with Context(COMPILE_CACHE=1, VERIFY=0, CHECK_BOUNDS=0):
        (made,) = registry.Device["cuda"].compile([("turn", digest(lin), lin)])
        found = CudaDevice().lookup(digest(lin))
    assert found.entry.local_bytes == made.entry.local_bytes > 48 << 10 and driver.calls["cuFuncSetAttribute"] == 2


@needs_compiler
def test_local_memory_beyond_the_gpus_is_refused(driver):
    assert registry.Device["cuda"].target.local_bytes == 227 << 10
    with Context(CUDACC="llvm"):
        assert CudaDevice().target.local_bytes == 48 << 10  # LLVM's PTX declares all of it
    lin = turned_around(227 << 8)
    with pytest.raises(CompileError, match=r"(?s)turn: too much local memory.*232448 bytes on cuda.*232704 bytes"):
        registry.Device["cuda"].compile([("turn", digest(lin), lin)])
