"""The Metal device, over a system that is not there: programs from tensors to results, memory, order, errors.

What this does not show: that macOS does what ours does. `make test-metal` runs it on a Mac.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from monolect import Context, Tensor, jit
from monolect.backend import registry
from monolect.backend.base import launching
from monolect.backend.common import workgroups as grouped
from monolect.backend.metal import compile as metal_compile
from monolect.backend.metal.runtime import MetalDevice
from monolect.base.dtype import dtypes
from monolect.base.errors import AllocationError, CompileError, DeviceError, DTypeError, MissingExtraError
from monolect.ir.digest import digest
from monolect.ir.ops import ParamArg
from monolect.ir.uop import const, node, shape_source
from monolect.runtime.realize.execute import plans
from tests.backend import test_ops_suite as suite
from tests.backend.standin.device import missing
from tests.backend.standin.metal_system import OUT_OF_MEMORY, Metal, failure
from tests.backend.test_standins import DTYPES
from tests.backend.test_training import test_training_gives_the_losses_of_pytorch as training
from tests.backend.workgroup_kernels import linear, load, param, special, store

needs_compiler = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


def installed(monkeypatch, fake):
    opened = {k: d for k, d in registry.Device._open.items() if not k.startswith("metal")}
    monkeypatch.setitem(sys.modules, "Metal", fake)
    monkeypatch.setitem(sys.modules, "objc", SimpleNamespace(autorelease_pool=fake.autorelease_pool))
    monkeypatch.setattr(registry.Device, "_open", opened)
    metal_compile.gpus.cache_clear()
    plans.clear()  # those of other tests launch on devices of their own


@pytest.fixture
def system(monkeypatch):
    """Two GPUs that are not there."""
    fake = Metal(n_gpus=2)
    installed(monkeypatch, fake)
    with Context(COMPILE_CACHE=0):
        yield fake
    metal_compile.gpus.cache_clear()
    assert fake.live == 0


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- finding one -----------------------------------------------------------------------------------------------------
def test_what_is_missing_is_said_with_what_to_do(monkeypatch):
    metal_compile.gpus.cache_clear()
    monkeypatch.setitem(sys.modules, "Metal", None)
    monkeypatch.setattr(sys, "platform", "linux")
    assert registry.Device.present()["metal"] == "Metal is a part of macOS, and this is another system"
    installed(monkeypatch, Metal(n_gpus=0))
    assert "no GPU that Metal knows" in registry.Device.present()["metal"]
    metal_compile.gpus.cache_clear()
    monkeypatch.setitem(sys.modules, "Metal", None)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "pip install 'monolect[metal]'" in registry.Device.present()["metal"]
    with pytest.raises(MissingExtraError):
        MetalDevice()


def test_no_such_gpu(system):
    with pytest.raises(DeviceError, match="no such GPU") as caught:
        Tensor([1.0], device="metal:7").realize()
    assert "metal:0 to metal:1" in str(caught.value)


def test_what_a_gpu_can_do_is_in_its_target(system, monkeypatch):
    assert registry.Device.about("metal")[0] == "a GPU 0; a GPU 1"
    target = registry.Device["metal"].target
    assert target.units and target.shuffles and target.warp == 32 and dtypes.float32 in target.atomics
    installed(monkeypatch, Metal(family=1000))
    older = MetalDevice().target
    assert (older.units, older.shuffles, older.warp) == ((), False, 1) and dtypes.float32 not in older.atomics


# ---- programs --------------------------------------------------------------------------------------------------------
@needs_compiler
def test_programs_from_tensors_to_results(system, monkeypatch):
    monkeypatch.setattr(suite, "DTYPES", DTYPES["standin-metal"])
    suite.check_programs_as_one_module("metal")
    with pytest.raises(DTypeError, match="metal does not compute"):
        (Tensor(np.ones(5), device="metal") + 1).realize()


@needs_compiler
def test_a_jitted_step(system):
    @jit
    def step(x):
        return (x.softmax(-1) @ x.T).sum(0)

    for k in range(4):
        x = data(6, 8, seed=k)
        e = np.exp(x)
        want = ((e / e.sum(-1, keepdims=True)) @ x.T).sum(0)
        np.testing.assert_allclose(step(Tensor(x, device="metal")).numpy(), want, rtol=1e-4, atol=1e-5)


@needs_compiler
def test_a_replay_is_one_submission(system):
    step = jit(lambda x: (x.cumsum(0).contiguous().realize() * 3).flip(0).contiguous().realize().sum())
    x = Tensor(data(40), device="metal").realize()
    for _ in range(3):
        before = system.n_committed
        step(x)
    (captured,) = step.captures.values()
    assert len(captured.capture.items) > 1 and system.n_committed == before + 1


@needs_compiler
def test_training_gives_the_losses_of_pytorch(system):
    training("metal")


@needs_compiler
def test_programs_come_back_from_the_disk(system):
    x = data(33)
    with Context(COMPILE_CACHE=1, VERIFY=0, CHECK_BOUNDS=0):
        np.testing.assert_allclose((Tensor(x, device="metal") * 6.25 + 1).numpy(), x * 6.25 + 1, rtol=1e-5)
        (key, made), *_ = registry.Device["metal"].programs.items()
        assert MetalDevice().lookup(key).entry[1:] == made.entry[1:]


@needs_compiler
def test_the_number_of_workgroups_may_be_known_at_run_time(system):
    n = node("PARAM", (shape_source(()),), ParamArg(1, dtypes.index, None, None, "n", 0, 64))
    lin = linear(store(param(0, 64), node("SPECIAL", (n,), "gidx0"), const(1.0, dtypes.float32)))
    device = registry.Device["metal"]
    (p,) = device.compile([("ones", digest(lin), lin)])
    commands, out = device.encode(*launching((p, (0, 1)))), device.from_array(np.zeros(64, np.float32))
    commands.bind(0, out.address)
    for size, total in ((5, 5), (0, 5), (7, 7), (3, 7)):
        commands.bind(1, size)
        commands.launch()
        assert out.view(np.float32).sum() == total
    commands.bind(1, 9)
    assert commands.launch_timed() == [1000] and out.view(np.float32).sum() == 9


@needs_compiler
def test_a_refused_program_shows_its_line_and_the_device_goes_on(system):
    device = registry.Device["metal"]
    with pytest.raises(CompileError, match="Metal refused the program at line 2: it says so") as caught:
        device.build("// one\n#error no\n")
    assert "#error no" in str(caught.value)
    with pytest.raises(DeviceError, match="metal, sum: the library has no kernel k_0"):
        device.kernel(device.build("int nothing;\n")[0], "k_0", "sum")
    assert Tensor([1.0, 2.0], device="metal").sum().item() == 3


def test_a_kernel_over_a_limit_says_what_to_do(system):
    i = special("lidx0", 8)
    total = load(param(1, 8), i)
    for slot in range(2, 33):
        total = total + load(param(slot, 8), i)
    lin = linear(store(param(0, 8), i, total))
    with pytest.raises(CompileError, match="sum: too many buffers") as caught:
        registry.Device["metal"].compile([("sum", "key", lin)])
    assert "at most 31 on metal" in str(caught.value) and ".contiguous()" in str(caught.value)


# ---- memory, order, errors -------------------------------------------------------------------------------------------
@needs_compiler
def test_values_go_in_and_out_in_the_order_of_the_queue(system):
    device, a, b = registry.Device["metal"], data(100), data(100, seed=1)
    held = device.from_array(a)
    copied = device.alloc(a.nbytes)
    device.copy(copied, held, a.nbytes)
    at, handle = held.address, held.block.handle
    del held
    again = device.from_array(b)  # in the memory that the copy before still has to read
    assert (again.address, again.block.handle) == (at, handle)
    np.testing.assert_array_equal(copied.view(np.float32), a)
    np.testing.assert_array_equal(again.view(np.float32), b)
    assert ((Tensor(a).to("metal") * 2).to("cpu") + 1).tolist() == (a * 2 + 1).tolist()
    assert Tensor(a, device="metal").to("metal:1").tolist() == a.tolist()
    assert Tensor(np.zeros((0, 3), np.float32), device="metal").tolist() == []


@needs_compiler
def test_what_went_wrong_on_the_queue_is_raised_by_whoever_waits(system):
    x = Tensor(data(8, 8), device="metal").realize()
    x.numpy()
    system.fail["kernel"] = failure("GPU hang")
    total = x.sum(1).realize()
    with pytest.raises(DeviceError, match=r"metal, a copy to the host: kernel sum_\w+: GPU hang"):
        total.numpy()
    system.fail["kernel"] = failure("Insufficient Memory", OUT_OF_MEMORY)
    total = x.sum(0).realize()
    with pytest.raises(AllocationError, match="Insufficient Memory"):
        total.numpy()
    system.fail.clear()
    np.testing.assert_allclose(x.sum(0).numpy(), data(8, 8).sum(0), rtol=1e-5)


@needs_compiler
def test_without_memory_what_is_kept_is_freed_first(system):
    device = registry.Device["metal"]
    system.full_at = 3 << 20
    held = [device.alloc(1 << 20) for _ in range(2)]
    del held
    assert device.memory.cached_bytes == 2 << 20
    kept = device.alloc(2 << 20)
    assert device.memory.cached_bytes == 0
    with pytest.raises(AllocationError, match="metal has no memory for 2097152 bytes") as caught:
        device.alloc(2 << 20)
    assert f"{kept.block.n_bytes} bytes in use" in str(caught.value)
    with pytest.raises(AllocationError, match="at most 536870912 bytes"):
        device.alloc(1 << 30)


def test_a_device_from_before_a_fork_says_so(system, monkeypatch):
    device = registry.Device["metal"]
    monkeypatch.setattr(grouped.os, "getpid", lambda: -1)
    with pytest.raises(DeviceError, match="metal was opened before a fork"):
        device.alloc(100)
