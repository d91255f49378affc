"""WebGPU: its language, its adapters, its errors. What it shares with others is in `test_group_devices.py`.

The suite of ops (`test_ops_suite.py`) has the ops one by one. What needs an adapter is skipped where there is none.
"""

import os
import re
import subprocess
import sys
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from monolect import Context, Tensor
from monolect.backend import registry
from monolect.backend.common.diagnostics import compiler_message
from monolect.backend.common.launch import group_count
from monolect.backend.registry import Device
from monolect.backend.webgpu import compile as webgpu_compile
from monolect.backend.webgpu.render import NATIVE, language, render_module
from monolect.backend.webgpu.runtime import WebGPUDevice
from monolect.base.dtype import DType, dtypes, to_numpy
from monolect.base.errors import AllocationError, CompileError, DTypeError, MissingExtraError
from monolect.ir.uop import UOp, node
from tests.backend import test_ops_suite as suite
from tests.backend import test_training as training
from tests.backend.test_group_devices import at, linear, load, local, param, run, special, store
from tests.backend.workgroup_kernels import CASES, groups, planned

F32, I32, U8 = dtypes.float32, dtypes.int32, dtypes.uint8
GPU = {"native": NATIVE, "branches": True}
needs_adapter = pytest.mark.skipif(bool(webgpu_compile.missing()), reason=webgpu_compile.missing() or "-")


def copied(d: DType, n: int = 4) -> UOp:
    return linear(store(at(param(0, n, dtype=d), 0), load(at(param(1, n, dtype=d), 0))))


# ---- the language, without an adapter --------------------------------------------------------------------------------
def test_types_that_an_adapter_lacks_are_their_bits():
    def text(d: DType, **has: bool) -> str:
        return render_module([("k", copied(d))], language(**has))

    assert "data0: array<f16>" in text(dtypes.float16, has_half=True)
    assert "enable f16;" in text(dtypes.float16, has_half=True)
    assert "data0: array<atomic<u32>>" in text(dtypes.float16) and "data1: array<u32>" in text(dtypes.float16)
    assert "data0: array<f64>" in text(dtypes.float64)
    assert "data0: array<u64>" in text(dtypes.float64, has_double=False)
    assert "f16" not in text(F32) and "f64" not in text(F32, has_double=False)


def test_elements_that_fill_a_word_are_one_access_and_fewer_change_their_own_bits():
    def text(n: int) -> str:
        x = np.arange(256, dtype=np.uint8)
        case = planned(lambda x: x * 3, x * 3, x, actions=groups(0, n, 8, 256 // n // 8))
        return render_module([("k", case.program(Device["python:gpu"].target._replace(**GPU)))], language())

    assert text(4).count("atomicStore(") == text(4).count("= data1[") == 1 and "atomicXor" not in text(4)
    assert text(8).count("atomicStore(") == text(8).count("= data1[") == 2
    assert text(2).count("atomicXor(") == text(2).count("= data1[") == 1 and "65535u << " in text(2)
    assert text(1).count("atomicXor(") == 1 and "255u << " in text(1)


def test_a_refusal_is_told_with_its_line():
    message = "Validation Error\n\nCaused by:\n  In x\n\nShader '' parsing error: no `y`\n  ┌─ wgsl:2:9\n  │\n"
    assert (
        compiler_message("it", message, "one\ntwo\n", webgpu_compile.ERROR_PATTERN)
        == "it refused the program at line 2: no `y`\ntwo"
    )


def test_without_the_package_the_device_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "wgpu", None)
    webgpu_compile.adapters.cache_clear()
    try:
        assert "pip install 'monolect[webgpu]'" in Device.present()["webgpu"]
        with pytest.raises(MissingExtraError):
            webgpu_compile.adapters()
    finally:
        monkeypatch.undo()
        webgpu_compile.adapters.cache_clear()


def test_importing_monolect_does_not_import_wgpu():
    code = "import sys, monolect, monolect.backend.webgpu.runtime; sys.exit('wgpu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_neighbours_are_vectors_where_all_accesses_are_of_four():
    def text(name: str) -> str:
        return render_module([("k", CASES[name].program(Device["python:gpu"].target._replace(**GPU)))], language())

    assert "data0: array<vec4<f32>>" in text("elementwise") and "data1: array<vec4<f32>>" in text("elementwise")
    assert text("elementwise").count("= data1[") == text("elementwise").count("data0[") == 1
    assert "vec4" not in text("every third") and "data1: array<f32>" in text("padded")
    assert "data0: array<vec4<f32>>" in text("matmul") and text("matmul").count("vec4<f32>(") == 2


@needs_adapter
def test_looking_for_adapters_writes_nothing():
    code = "import os; from monolect.backend.webgpu import compile; compile.adapters(); print(dict(os.environ))"
    around = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
    done = subprocess.run([sys.executable, "-c", code], env=around, capture_output=True, text=True, check=True)
    assert done.stderr == "" and "XDG_RUNTIME_DIR" not in done.stdout


# ---- with an adapter -------------------------------------------------------------------------------------------------
@needs_adapter
def test_what_drivers_make_of_nan_and_of_constants_is_kept_from_them():
    """An adapter may take x != x for false, and (x + c) - c for x."""
    x = Tensor(np.array([np.nan, 0.3, np.inf], np.float32), device="webgpu")
    assert (x != x).tolist() == [True, False, False] and x.isnan().tolist() == [True, False, False]
    y = Tensor(np.array([0.3, 2.5, -7.75], np.float32), device="webgpu")
    np.testing.assert_array_equal((y + 12582912.0 - 12582912.0).numpy(), [0, 2, -8])
    with np.errstate(over="ignore"):
        want = y.numpy() * np.float32(1e38) * np.float32(1e-38)
    assert want[2] == -np.inf
    np.testing.assert_array_equal((y * 1e38 * 1e-38).numpy(), want)
    k = Tensor(np.arange(8, dtype=np.int32), device="webgpu").cast(dtypes.int64)
    assert (k < 3).tolist() == [True] * 3 + [False] * 5  # of numbers that were 32 bits a moment ago


@needs_adapter
@pytest.mark.parametrize("d", [dtypes.uint8, dtypes.int16, dtypes.bool], ids=lambda d: d.name)
def test_lanes_write_to_one_word_at_the_same_time(d):
    n = 4096
    i = special("gidx0", n // 64) * 64 + special("lidx0", 64)
    a = (np.arange(n) * 7 % 251).astype(d.numpy)
    lin = linear(store(at(param(0, n, dtype=d), i * -1 + (n - 1)), load(at(param(1, n, dtype=d), i))))
    out, _ = run("webgpu", lin, np.ones(n, d.numpy), a)
    np.testing.assert_array_equal(out, a[::-1])


@needs_adapter
def test_small_elements_lie_packed_in_local_memory():
    i = special("lidx0", 64)
    memory = local(0, 64, dtypes.int8)
    filled = node("BARRIER", (store(at(memory, i), load(at(param(1, 64, dtype=dtypes.int8), i))),))
    lin = linear(store(at(param(0, 64, dtype=dtypes.int8), i), load(at(node("AFTER", (memory, filled)), i * -1 + 63))))
    assert "var<workgroup> local0: array<atomic<u32>, 16>;" in render_module([("k", lin)], language())
    a = np.arange(-32, 32, dtype=np.int8)
    out, _ = run("webgpu", lin, np.zeros(64, np.int8), a)
    np.testing.assert_array_equal(out, a[::-1])


@needs_adapter
def test_a_refused_program_shows_its_line_and_the_device_goes_on():
    device = Device["webgpu"]
    source = "@compute @workgroup_size(1)\nfn k() {\n  let x = y;\n}\n"
    with pytest.raises(CompileError, match="line 3: .*`y`") as caught:
        device.build(source)
    assert str(caught.value).splitlines()[1].strip() == "let x = y;"
    with pytest.raises(CompileError, match="line 3"):
        device.build(source.replace("= y", ": i32 = 1.5f"))
    assert Tensor([1.0, 2.0], device="webgpu").sum().item() == 3


@pytest.fixture
def few(monkeypatch, compiled_anew):
    """`webgpu` with three buffers in a kernel."""
    device = WebGPUDevice("webgpu")
    monkeypatch.setattr(device, "language", replace(device.language, most_buffers=3))
    monkeypatch.setitem(registry.Device._open, "webgpu", device)
    return device


@needs_adapter
def test_buffers_over_the_adapters_limit_are_joined(few):
    rng = np.random.default_rng(8)
    kinds = (np.float32, np.int32, np.uint8, np.bool_, np.float32, np.int16)
    a = [rng.integers(0, 2 if k is np.bool_ else 9, 37 + n).astype(k) for n, k in enumerate(kinds)]
    xs = [Tensor(v, device="webgpu")[:37] for v in a]
    sums = xs[0] * 2 + xs[1] + xs[2] + xs[3].where(xs[4], 1) + xs[5]
    small = (xs[2] + xs[5]).cast(dtypes.uint8)
    sums.realize(small)
    want = a[0][:37] * 2 + a[1][:37] + a[2][:37] + np.where(a[3][:37], a[4][:37], 1) + a[5][:37]
    np.testing.assert_array_equal(sums.numpy(), want)
    np.testing.assert_array_equal(small.numpy(), (a[2][:37] + a[5][:37]).astype(np.uint8))
    sources = [p.source for p in few.programs.values()]
    assert any("joined: array<atomic<u32>>" in text for text in sources)
    assert all(text.count("var<storage") <= 3 for text in sources)
    assert any(part.is_written for p in few.programs.values() for part in p.entry.kernel.parts)


@needs_adapter
def test_training_with_joined_buffers(few):
    training.test_training_gives_the_losses_of_pytorch("webgpu")
    assert any(p.entry.kernel.parts for p in few.programs.values())


@needs_adapter
def test_what_cannot_be_joined_is_an_error_and_the_device_goes_on(few):
    xs = [Tensor(np.full(3, k, np.int64), device="webgpu") for k in range(5)]
    with pytest.raises(CompileError, match=r"(?s)too many buffers of 64 bits.*at most 3 on webgpu"):
        (xs[0] + xs[1] + xs[2] * xs[3] - xs[4]).realize()
    assert (xs[0] + xs[1]).tolist() == [1, 1, 1]


@needs_adapter
def test_a_tensor_too_large_for_a_binding_is_an_error_and_the_device_goes_on(monkeypatch):
    device = Device["webgpu"]
    x = Tensor(np.ones(1024, np.float32), device="webgpu").realize()
    monkeypatch.setattr(device, "limits", device.limits | {"max-storage-buffer-binding-size": 2048})
    with pytest.raises(AllocationError, match=r"(?s)too large a tensor.*at most 2048 bytes on webgpu"):
        (x + 5).realize()
    monkeypatch.undo()
    np.testing.assert_array_equal((x + 5).numpy(), np.full(1024, 6))


@needs_adapter
def test_no_memory_is_tried_once_more_and_then_an_error(monkeypatch):
    device, asked = Device["webgpu"], []
    create = device.handle.create_buffer

    def scarce(size, usage):
        asked.append(size)
        if len(asked) in fails:
            raise device.wgpu.GPUOutOfMemoryError("full")
        return create(size=size, usage=usage)

    kept = device.alloc(5 << 20)
    del kept
    assert device.memory.cached_bytes
    monkeypatch.setattr(device.handle, "create_buffer", scarce)
    fails = (1,)
    held = device.alloc(777777)
    assert held.n_bytes == 777777 and len(asked) == 2
    assert not device.memory.cached_bytes
    fails = (3, 4)
    with pytest.raises(AllocationError, match=r"(?s)webgpu has no memory for 888888 bytes.*full.*smaller batches"):
        device.alloc(888888)
    assert len(asked) == 4 and Tensor([1.0, 2.0], device="webgpu").sum().item() == 3


def test_without_an_adapter_the_device_says_what_to_install(monkeypatch):
    package = pytest.importorskip("wgpu")
    monkeypatch.setattr(package.gpu, "enumerate_adapters_sync", list)
    webgpu_compile.adapters.cache_clear()
    try:
        assert "apt-get install mesa-vulkan-drivers" in webgpu_compile.missing()
    finally:
        monkeypatch.undo()
        webgpu_compile.adapters.cache_clear()


@needs_adapter
def test_the_optimizer_shares_a_product_between_lanes():
    a = np.random.default_rng(5).standard_normal((128, 128)).astype(np.float32)
    x = Tensor(a, device="webgpu").realize()
    before = set(Device["webgpu"].programs)
    np.testing.assert_allclose((x @ x).numpy(), a @ a, rtol=1e-4, atol=1e-4)
    (key,) = set(Device["webgpu"].programs) - before
    program = Device["webgpu"].programs[key]
    assert prod(program.entry.lanes) > 16 and prod(group_count(n, {}) for n in program.entry.groups) > 1
    assert "var<workgroup>" in program.source and "workgroupBarrier()" in program.source


# ---- of the suite of ops, a part that is quick -----------------------------------------------------------------------
@needs_adapter
@pytest.mark.parametrize("op", ["ADD", "CMPNE", "EXP2", "IDIV", "MAX", "SHR", "SIN", "WHERE"])
def test_elementwise(op):
    suite.test_elementwise(op, "webgpu")


@needs_adapter
@pytest.mark.parametrize("d", [dtypes.float32, dtypes.int8, dtypes.float16, dtypes.uint64], ids=lambda d: d.name)
def test_casts_and_reductions(d):
    suite.test_casts_between_all_dtypes(d, "webgpu")
    suite.test_reductions("ADD", d, "webgpu")
    suite.test_sums_by_place("webgpu", d)


# ---- an adapter with nothing but what the standard promises ----------------------------------------------------------
@pytest.fixture
def bare(monkeypatch, no_plans):
    """`webgpu` without any feature."""
    monkeypatch.setattr(webgpu_compile, "WANTED", ())
    monkeypatch.setitem(registry.Device._open, "webgpu", WebGPUDevice("webgpu"))
    monkeypatch.setattr(suite, "DTYPES", [d for d in suite.DTYPES if d is not dtypes.float64])


@needs_adapter
@pytest.mark.parametrize(
    "op", ["ADD", "CMPLT", "EXP2", "IDIV", "MAX", "MOD", "MUL", "SHL", "SHR", "SIN", "SUB", "WHERE"]
)
def test_elementwise_without_features(bare, op):
    assert "enable" not in Device["webgpu"].language.header
    suite.test_elementwise(op, "webgpu")


@needs_adapter
@pytest.mark.slow
@pytest.mark.parametrize("op", suite.OPS)
def test_every_op_without_features(bare, op):
    suite.test_elementwise(op, "webgpu")


@needs_adapter
def test_programs_without_features(bare):
    suite.check_programs_as_one_module("webgpu")
    for d in (dtypes.float16, dtypes.bfloat16, dtypes.int16, dtypes.bool):
        suite.test_casts_between_all_dtypes(d, "webgpu")
        suite.test_reductions("MAX", d, "webgpu")
    for d in (dtypes.float16, dtypes.bfloat16, dtypes.int16):
        x = Tensor((np.arange(24) % 4).reshape(4, 6).astype(to_numpy(d)), device="webgpu")
        np.testing.assert_array_equal((x @ x.T).numpy(), x.numpy() @ x.numpy().T)


@needs_adapter
@pytest.mark.parametrize("d", [dtypes.int64, dtypes.uint64], ids=lambda d: d.name)
def test_integers_of_64_bits_without_features(bare, d):
    """Pairs of words, whose functions are ours."""
    suite.test_division_by_zero_is_zero_and_the_smallest_wraps("webgpu", d)
    suite.test_shifts_outside_of_the_bits("webgpu", d)
    suite.test_casts_between_all_dtypes(d, "webgpu")
    suite.test_casts_between_all_dtypes(dtypes.float32, "webgpu")
    suite.test_bitcasts("webgpu", d)
    for op in ("ADD", "MAX", "MUL"):
        suite.test_reductions(op, d, "webgpu")
    suite.test_sums_by_place("webgpu", d)
    sources = [p.source for p in Device["webgpu"].programs.values()]
    assert any("array<vec2<u32>>" in s for s in sources) and not any(re.search("[iu]64", s) for s in sources)


@needs_adapter
def test_numbers_of_64_bits_are_rounded_and_divided_as_they_should_without_features(bare):
    rng = np.random.default_rng(11)
    near = np.array([2**24 + 1, 2**32 - 1, 2**32, 2**40 + 2**16 + 1, 2**62 + 2**38, 2**62 + 2**38 + 1, 2**63 - 1])
    a = np.concatenate([near, -near, rng.integers(-(2**63), 2**63, 400), rng.integers(-(2**33), 2**33, 400)])
    b = np.concatenate(
        [rng.integers(-(2**63), 2**63, 200), rng.integers(-99999, 99999, 200), rng.integers(1, 2**34, 414)]
    )
    x, y = Tensor(a, device="webgpu"), Tensor(b, device="webgpu")
    got = [x.float(), x // y, x % y, x * y, (x < y), x.float().long(), x.bitcast(dtypes.uint64).float()]
    got[0].realize(*got[1:])
    wide = a.astype(np.float32)
    back = np.where(
        wide >= 2.0**63, 2**63 - 1, wide.astype(np.float64).clip(-(2.0**63), 2.0**63 - 1024).astype(np.int64)
    )
    want = [wide, a // b, a % b, a * b, a < b, back, a.view(np.uint64).astype(np.float32)]
    for t, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(t.numpy(), w)


@needs_adapter
def test_labels_and_places_of_64_bits_without_features(bare):
    rng = np.random.default_rng(2)
    a = rng.standard_normal((6, 9)).astype(np.float32)
    x, labels = Tensor(a, device="webgpu"), np.array([3, 8, 0, -1, 5, 2])
    np.testing.assert_array_equal(x.argmax(1).numpy(), a.argmax(1))
    np.testing.assert_array_equal(x[:, Tensor(labels, device="webgpu")].numpy(), a[:, labels])
    np.testing.assert_array_equal(x.sort(1)[1].numpy(), a.argsort(1))
    with Context(CHECK_BOUNDS=0):  # which refuses these indices
        for far in ([2**32, 2**32 + 1, -(2**40)], [2**31, 2**63 - 1, -(2**63)]):
            ones = Tensor.ones(3, device="webgpu")
            got = Tensor.zeros(4, device="webgpu").index_add(0, Tensor(np.array(far), device="webgpu"), ones)
            np.testing.assert_array_equal(got.numpy(), np.zeros(4))  # none is in it
    assert Tensor.arange(5, device="webgpu").tolist() == [0, 1, 2, 3, 4]
    training.test_training_gives_the_losses_of_pytorch("webgpu")


@needs_adapter
def test_floats_of_64_bits_without_features_are_errors_and_the_device_goes_on(bare):
    x = Tensor(np.arange(5.0), device="webgpu")
    with pytest.raises(DTypeError, match=r"(?s)webgpu does not compute.*t.float\(\).*float64"):
        (x * 3).realize()
    np.testing.assert_array_equal(x.flip(0).contiguous().numpy(), np.arange(5.0)[::-1])
    assert (Tensor(np.arange(5, dtype=np.int32), device="webgpu") * 3).tolist() == [0, 3, 6, 9, 12]
