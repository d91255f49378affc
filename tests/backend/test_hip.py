"""The HIP device, over a driver that is not there: programs from tensors to results, memory, errors; its calls.

What this does not show: that AMD's driver does what ours does.
"""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from monolect import Context, Tensor, jit
from monolect.backend import registry
from monolect.backend.common.gpu import driver as gpu_driver
from monolect.backend.hip import compile as clang
from monolect.backend.hip import driver as hip_driver
from monolect.backend.hip.runtime import HipDevice
from monolect.base.dtype import dtypes
from monolect.base.errors import AllocationError, CompileError, DeviceError
from monolect.ir.digest import digest
from monolect.ir.ops import BufferArg
from monolect.ir.uop import const, node, shape_source
from monolect.runtime.realize.execute import plans
from tests.backend import test_ops_suite as suite
from tests.backend.standin.device import missing
from tests.backend.standin.driver import CUresult, Driver, Hip, HipCompiler, frees_and_tries_once_more
from tests.backend.workgroup_kernels import linear, load, param, special, store

needs_compiler = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@pytest.fixture
def driver(monkeypatch):
    """Two GPUs that are not there."""
    fake = Driver(n_devices=2)
    opened = {k: d for k, d in registry.Device._open.items() if not k.startswith("hip")}
    monkeypatch.setattr(hip_driver, "bindings", lambda: Hip(fake))
    monkeypatch.setattr(clang, "Compiler", HipCompiler)
    monkeypatch.setattr(clang, "missing", lambda: "")
    monkeypatch.setattr(registry.Device, "_open", opened)
    plans.clear()  # those of other tests launch on devices of their own
    with Context(COMPILE_CACHE=0):
        yield fake


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- finding one -----------------------------------------------------------------------------------------------------
def test_what_is_missing_is_said_with_what_to_do(monkeypatch):
    monkeypatch.setattr(hip_driver, "LIBRARIES", ("libthere-is-none.so",))
    hip_driver.bindings.cache_clear()
    assert "libamdhip64.so is not found; install ROCm" in registry.Device.present()["hip"]
    with pytest.raises(DeviceError, match="no HIP driver"):
        HipDevice()
    hip_driver.bindings.cache_clear()


def test_no_gpu_and_no_such_gpu(driver):
    with pytest.raises(DeviceError, match="no such GPU") as caught:
        Tensor([1.0], device="hip:7").realize()
    assert "hip:0 to hip:1" in str(caught.value)
    driver.n_devices = 0
    assert registry.Device.present()["hip"] == "no AMD GPU: the driver knows none"


def test_without_clang_llvm_and_lld_are_wanted(driver, monkeypatch):
    monkeypatch.setattr(clang, "missing", lambda: "no HIP compiler")
    device = HipDevice()
    assert device.uses_llvm
    source = device.render(
        [("k", linear(store(param(0, 8), special("lidx0", 8), load(param(1, 8), special("lidx0", 8)))))]
    )
    assert device.kernel_source(source, "k").startswith("define protected amdgpu_kernel")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "no ld.lld on the PATH" in registry.Device.present()["hip"]


@needs_compiler
def test_the_table_of_devices_says_what_is_there(driver):
    assert registry.Device.present()["hip"] == ""
    assert registry.Device.about("hip")[0] == "a GPU (gfx942), a GPU (gfx942); HIP 6.4"
    target = registry.Device["hip"].target
    assert (target.warp, target.n_units, target.local_bytes) == (64, 304, 64 << 10) and target.units


# ---- programs --------------------------------------------------------------------------------------------------------
@needs_compiler
def test_programs_from_tensors_to_results(driver):
    suite.check_programs_as_one_module("hip")


@needs_compiler
def test_a_jitted_step_is_one_graph(driver):
    @jit
    def step(x):
        return (x.softmax(-1) @ x.T).sum(0)

    for k in range(4):
        x = data(6, 8, seed=k)
        e = np.exp(x)
        want = ((e / e.sum(-1, keepdims=True)) @ x.T).sum(0)
        np.testing.assert_allclose(step(Tensor(x, device="hip")).numpy(), want, rtol=1e-4, atol=1e-5)
    launched = driver.calls["cuLaunchKernel"], driver.calls["cuGraphLaunch"]
    step(Tensor(data(6, 8), device="hip")).numpy()
    assert (driver.calls["cuLaunchKernel"], driver.calls["cuGraphLaunch"]) == (launched[0], launched[1] + 1)


@needs_compiler
def test_programs_come_back_from_the_disk(driver):
    x = data(33)
    with Context(COMPILE_CACHE=1, VERIFY=0, CHECK_BOUNDS=0):
        np.testing.assert_allclose((Tensor(x, device="hip") * 5.25 + 1).numpy(), x * 5.25 + 1, rtol=1e-5)
        (key, made), *_ = registry.Device["hip"].programs.items()
        assert HipDevice().lookup(key).entry[1:] == made.entry[1:]


# ---- memory, errors --------------------------------------------------------------------------------------------------
@needs_compiler
def test_values_go_to_other_devices_and_to_another_gpu(driver):
    x = data(100)
    assert ((Tensor(x).to("hip") * 2).to("cpu") + 1).tolist() == (x * 2 + 1).tolist()
    a, b = registry.Device["hip"], registry.Device["hip:1"]
    held, target = a.from_array(x), b.alloc(x.nbytes)
    for _ in range(2):
        b.copy_from(target, a, held, x.nbytes)
    assert driver.calls["cuCtxEnablePeerAccess"] == 1 and driver.calls["cuMemcpyPeerAsync"] == 2
    np.testing.assert_array_equal(target.view(np.float32), x)
    assert a.dlpack == (10, 0) and b.dlpack == (10, 1)


@needs_compiler
def test_errors_name_the_device_the_kernel_and_the_call(driver, monkeypatch):
    x = Tensor(data(8, 8), device="hip").realize()
    driver.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match=r"hip, kernel sum_\w+: hipModuleLaunchKernel: an illegal memory access"):
        x.sum(1).realize()
    driver.fail.clear()
    driver.bytes_free = 1 << 20
    with pytest.raises(AllocationError, match="hip has no memory for 4194304 bytes"):
        registry.Device["hip"].alloc(4 << 20)
    monkeypatch.setattr(gpu_driver.os, "getpid", lambda: -1)
    with pytest.raises(DeviceError, match="hip was opened before a fork"):
        registry.Device["hip"].alloc(100)


@needs_compiler
def test_out_of_memory_frees_what_is_cached_and_tries_once_more(driver):
    frees_and_tries_once_more(driver, registry.Device["hip"])


@needs_compiler
def test_a_program_over_a_limit_is_refused_with_the_kernel_and_the_remedy(driver):
    device = registry.Device["hip"]
    lane = special("lidx0", 2048)
    wide = linear(store(param(0, 2048), lane, load(param(1, 2048), lane)))
    with pytest.raises(CompileError, match=r"(?s)copy: too many lanes.*on hip: fewer LOCAL axes"):
        device.compile([("copy", digest(wide), wide)])
    memory = node("BUFFER", (shape_source((1 << 15,)),), BufferArg(0, dtypes.float32, None, "LOCAL"))
    large = linear(store(memory, const(0, dtypes.index), const(1.0, dtypes.float32)))
    with pytest.raises(CompileError, match=r"(?s)large: too much local memory.*bytes on hip: smaller tiles"):
        device.compile([("large", digest(large), large)])
    assert Tensor([1.0, 2.0], device="hip").sum().item() == 3


# ---- the table of calls ----------------------------------------------------------------------------------------------
LIBRARY = """
#include <stdlib.h>
#include <string.h>
int hipMalloc(void** p, size_t n) { if (n > 1 << 20) return 2; *p = malloc(n); return 0; }
int hipFree(void* p) { free(p); return 0; }
int hipMemcpyHtoDAsync(void* to, void* from, size_t n, void* stream) {
  memcpy(to, from, n); return stream != (void*)87; }
int hipGetDeviceCount(int* n) { *n = 3; return 0; }
int hipEventElapsedTime(float* ms, void* a, void* b) { *ms = 2.5f; return a == b; }
int hipModuleGetFunction(void** f, void* module, const char* name) { *f = strcmp(name, "k") ? 0 : module; return 0; }
typedef unsigned u;
int hipModuleLaunchKernel(void* f, u a, u b, u c, u d, u e, u g, u shared, void* stream, void** params, void** extra) {
  *(long long*)params[0] = a + 10 * b + 100 * c + 1000 * d + 10000 * e + 100000 * g;
  return shared || !stream || extra; }
const char* hipGetErrorString(int code) { return code == 2 ? "out of memory" : "?"; }
typedef struct { u lanes[3]; void** extra; void* func; u groups[3]; void** params; u shared; } node;
int hipGraphCreate(void** graph, u flags) { *graph = (void*)11; return flags; }
int hipGraphAddKernelNode(void** out, void* graph, void** before, size_t n, node* p) {
  *out = (void*)(n ? (size_t)before[0] + (size_t)before[n - 1] : 1 << 20);
  *(long long*)p->params[0] = p->lanes[0] + 10 * p->lanes[2] + 100 * p->groups[0] + 1000 * p->groups[2] + p->shared;
  return graph != (void*)11 || p->func != (void*)0x7F0012345678 || p->extra; }
int hipGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long flags) { *exec = graph; return flags; }
int hipGetDevicePropertiesR0600(char* p, int number) {
  strcpy(p, "a card"); strcpy(p + 1160, "gfx90a:sramecc+:xnack-");
  *(size_t*)(p + 288) = 1ull << 36; *(size_t*)(p + 296) = 65536;
  *(int*)(p + 308) = 64; *(int*)(p + 320) = 1024; *(int*)(p + 388) = 104; return number != 1; }
"""


@pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("clang")), reason="no C compiler: install gcc or clang")
def test_calls_reach_a_library(tmp_path):
    """Numbers, pointers and what is handed out, as a library in C sees them."""
    path = tmp_path / "libhip.so"
    compiler = shutil.which("gcc") or shutil.which("clang")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", path], input=LIBRARY, text=True, check=True
    )
    api = hip_driver.Hip(ctypes.CDLL(str(path)))
    assert api.hipGetDeviceCount() == (0, 3)
    assert api.hipMalloc(1 << 40)[0] == 2 and api.hipGetErrorString(2) == "out of memory"
    code, place = api.hipMalloc(64)
    source = np.arange(8, dtype=np.int64)
    assert code == 0 and api.hipMemcpyHtoDAsync(place, source.ctypes.data, 64, 87) == (0,)
    assert list((ctypes.c_int64 * 8).from_address(place)) == list(range(8)) and api.hipFree(place) == (0,)
    assert api.hipEventElapsedTime(1, 2) == (0, 2.5)
    assert api.hipModuleGetFunction(0x7F0012345678, b"k") == (0, 0x7F0012345678)
    value, pointers = ctypes.c_int64(), (ctypes.c_void_p * 1)()
    pointers[0] = ctypes.addressof(value)
    assert api.hipModuleLaunchKernel(1, 1, 2, 3, 4, 5, 6, 0, 87, ctypes.addressof(pointers), 0) == (0,)
    assert value.value == 654321
    params = hip_driver.NodeParams(1, 2, 3, None, 0x7F0012345678, 4, 5, 6, ctypes.addressof(pointers), 70000)
    (_, graph), (_, first) = api.hipGraphCreate(0), api.hipGraphAddKernelNode(11, [], 0, params)
    assert value.value == 1 + 30 + 400 + 6000 + 70000 and first == 1 << 20
    assert api.hipGraphAddKernelNode(graph, [first, 7], 2, params) == (0, first + 7)
    assert api.hipGraphInstantiateWithFlags(graph, 0) == (0, 11)
    assert api.properties(1) == (0, hip_driver.Gpu("a card", "gfx90a", 1 << 36, 65536, 1024, 64, 104))
    assert api.properties(2)[0] == 1
