"""The LLVM front: objects, keys, diagnostics, and the facts about the processor."""

import subprocess
import sys
import threading

import pytest

from monolect import Context
from monolect.backend.c.runtime import CDevice
from monolect.backend.common.host.thread_pool import MAX_WORKERS
from monolect.backend.common.llvm import compile as llvm_compile
from monolect.backend.common.llvm.compile import Compiler, host_features
from monolect.backend.cpu.runtime import CpuDevice
from monolect.backend.registry import Device
from monolect.base.errors import CompileError, SettingError

KERNEL = """
define void @scale(ptr %args, i64 %thread) {
  %p = load ptr, ptr %args
  %v = load <16 x float>, ptr %p, align 4
  %w = fmul <16 x float> %v, splat (float 2.0)
  store <16 x float> %w, ptr %p, align 4
  ret void
}
"""


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler()


def test_object_is_elf_and_deterministic(compiler: Compiler) -> None:
    first = compiler.compile(KERNEL)
    assert first.startswith(b"\x7fELF")
    assert compiler.compile(KERNEL) == first
    assert Compiler().compile(KERNEL) == first


def test_every_level_compiles(compiler: Compiler) -> None:
    assert all(compiler.compile(KERNEL, opt).startswith(b"\x7fELF") for opt in range(4))


def test_assembly_names_the_function(compiler: Compiler) -> None:
    assert "scale:" in compiler.assembly(KERNEL)


def test_vectors_are_as_wide_as_the_processor_has(compiler: Compiler) -> None:
    host = host_features()
    if host.machine != "x86_64":
        pytest.skip("register names of x86-64")
    assert {64: "%zmm", 32: "%ymm", 16: "%xmm"}[host.vector_bytes] in compiler.assembly(KERNEL)


def test_parse_error_names_line_and_text(compiler: Compiler) -> None:
    with pytest.raises(CompileError) as caught:
        compiler.compile("define void @f() {\n  ret i32 0\n}\n")
    assert "line 2, column 7: value doesn't match function result type 'void'\n  ret i32 0" in str(caught.value)


def test_broken_dominance_is_an_error_and_no_crash(compiler: Compiler) -> None:
    ir = "define i32 @f(i32 %a) {\n br label %y\nx:\n %b = add i32 %a, 1\n br label %y\ny:\n ret i32 %b\n}"
    with pytest.raises(CompileError, match="does not dominate"):
        compiler.compile(ir)
    assert compiler.compile(KERNEL)


def test_key_tells_machines_features_and_levels_apart() -> None:
    compiler = Compiler()
    assert compiler.key == Compiler().key == compiler.key_at(2)
    others = [compiler.key_at(0), Compiler("aarch64", ("neon",)).key, Compiler("x86_64", ("avx2",)).key]
    assert len({compiler.key, *others}) == 4
    for part in (compiler.triple, *compiler.features):
        assert part in compiler.key


def test_key_and_import_load_no_llvm() -> None:
    program = (
        "import sys; from monolect.backend.common.llvm.compile import Compiler, host_features; "
        "Compiler().key; host_features(); "
        "print([name for name in sys.modules if name.split('.')[0] == 'llvmlite'])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_foreign_machine_compiles() -> None:
    foreign = "aarch64" if host_features().machine == "x86_64" else "x86_64"
    compiler = Compiler(foreign)
    assert compiler.features == ()
    obj = compiler.compile("define i32 @f(i32 %a) {\n %b = add i32 %a, 1\n ret i32 %b\n}")
    assert int.from_bytes(obj[18:20], "little") == {"aarch64": 183, "x86_64": 62}[foreign]


def test_foreign_inline_assembly_is_an_error_and_no_crash() -> None:
    foreign = "aarch64" if host_features().machine == "x86_64" else "x86_64"
    ir = 'define void @f() {\n call void asm sideeffect "nop", ""()\n ret void\n}'
    with pytest.raises(CompileError, match="inline assembly"):
        Compiler(foreign).compile(ir)


def test_threads_may_share_a_compiler(compiler: Compiler) -> None:
    expected = compiler.compile(KERNEL)
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(compiler.compile(KERNEL))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8


def test_host_features_are_sane() -> None:
    host = host_features()
    assert host.vector_bytes in (16, 32, 64)
    assert host.n_vector_registers in (16, 32)
    assert 4096 <= host.l1d_bytes <= host.l2_bytes
    assert host.n_cores >= 1
    assert host.multiply_adds in (1, 2)


@pytest.mark.parametrize(
    ("vector_bytes", "l1d_bytes", "flags", "wanted"),
    [
        (64, 32 << 10, {"sse4a"}, 1),
        (64, 48 << 10, {"sse4a"}, 2),
        (64, 32 << 10, set(), 2),
        (32, 32 << 10, {"sse4a"}, 2),
    ],
)
def test_units_of_half_a_vector_start_one_multiply_add_a_cycle(monkeypatch, vector_bytes, l1d_bytes, flags, wanted):
    monkeypatch.setattr(llvm_compile, "_processor_flags", lambda: frozenset(flags))
    assert llvm_compile._multiply_adds(vector_bytes, l1d_bytes) == wanted


def test_without_llvm_the_device_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(llvm_compile, "_llvm_version", lambda: "absent")
    assert "pip install llvmlite, or set DEVICE=c" in Device.present()["cpu"]
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.raises(CompileError, match="pip install llvmlite"):
        llvm_compile._llvm.__wrapped__(True)


@pytest.mark.parametrize("device", [CpuDevice, CDevice])
def test_too_many_threads_are_refused_with_the_setting(device) -> None:
    if device.missing():
        pytest.skip(device.missing())
    with Context(THREADS=MAX_WORKERS + 2), pytest.raises(SettingError, match="too many threads") as caught:
        device()
    assert f"THREADS of at most {MAX_WORKERS + 1}" in str(caught.value)
    with Context(THREADS=MAX_WORKERS + 1):
        assert device().n_threads == MAX_WORKERS + 1
