"""CUDA and HIP source to machine code, for every architecture that is named, without a GPU.

NVRTC comes with `pip install 'monolect[cuda]'` (`make test-cuda-compile`); a clang with AMD's code generator and lld
from the system (`make test-hip-compile`). Where one is missing, the tests are skipped and say so.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from importlib import metadata

import numpy as np
import pytest

from monolect import Context
from monolect.backend.common.launch import bytes_at_launch
from monolect.backend.cuda import compile as cuda_compile
from monolect.backend.cuda import render as cuda
from monolect.backend.hip import compile as hip_compile
from monolect.backend.hip import render as hip
from monolect.base.dtype import ALL, to_numpy
from monolect.base.errors import CompileError
from monolect.pipeline import lower_kernel
from tests.backend.test_units import UNITS, Product
from tests.backend.workgroup_kernels import CASES, kernels

needs_nvrtc = pytest.mark.skipif(bool(cuda_compile.missing()), reason=cuda_compile.missing() or "-")
needs_clang = pytest.mark.skipif(bool(hip_compile.missing()), reason=hip_compile.missing() or "-")
DTYPES = [d for d in ALL if d.kind not in "vxs"]
ELF = b"\x7fELF"
SLOW = pytest.mark.slow


def number(arch: str) -> int:
    return int(arch.rstrip("a"))


def programs(target) -> list:
    """(name, LINEAR): kernels planned by hand, elementwise and a reduction of every dtype, softmax."""
    linears = [case.program(target) for case in CASES.values()]
    sinks = []
    for d in DTYPES:
        x = np.ones((8, 64), to_numpy(d))
        sinks += kernels(target, lambda x: x * x + x, x)
        sinks += kernels(target, lambda x: x.sum(1), x) if d.kind != "b" else []
        sinks += kernels(target, lambda x: (x.exp2() + x.sin()).sqrt(), x) if d.is_float else []
    sinks += kernels(target, lambda x: x.softmax(-1), np.ones((16, 256), np.float32))
    sinks += kernels(target, lambda a, b: a @ b, np.ones((64, 64), np.float16), np.ones((64, 64), np.float16))
    linears += [lower_kernel(sink, target) for sink in sinks]
    return [(f"k_{i}", lin) for i, lin in enumerate(linears)]


def cases(target) -> list:
    return [(f"k_{i}", case.program(target)) for i, case in enumerate(CASES.values())]


# ---- CUDA ------------------------------------------------------------------------------------------------------------
@needs_nvrtc
@pytest.mark.parametrize(
    ("arch", "make"),
    [("75", cases), ("90a", cases), *(pytest.param(a, programs, marks=SLOW) for a in cuda_compile.ARCHITECTURES)],
)
def test_cuda(arch, make):
    named = make(cuda.target(number(arch)))
    code = cuda_compile.Compiler(arch).compile(cuda.render_module(named, number(arch)))
    assert code.startswith(ELF) and all(name.encode() in code for name, _ in named)


def nvdisasm() -> str:
    """The path of NVIDIA's disassembler: `pip install nvidia-cuda-nvdisasm`, or "" where there is none."""
    try:
        found = [f for f in metadata.files("nvidia-cuda-nvdisasm") or () if f.name == "nvdisasm"]
    except metadata.PackageNotFoundError:
        found = []
    return str(found[0].locate()) if found else shutil.which("nvdisasm") or ""


@needs_nvrtc
@pytest.mark.parametrize("arch", ["75", "90a", *(pytest.param(a, marks=SLOW) for a in ("80", "86", "89", "100a"))])
def test_matrix_units_are_instructions_of_nvidia(arch, tmp_path):
    """Each unit of an architecture is compiled; where a disassembler is here, it is seen in the machine code."""
    target = cuda.target(number(arch))
    products = [Product(u, target) for u in target.units if u.name in UNITS and (u.n < 64 or u.a.name == "float16")]
    named = [(p.unit.name, p.linear()) for p in products]
    code = cuda_compile.Compiler(arch).compile(cuda.render_module(named, number(arch)))
    assert code.startswith(ELF) and named
    if nvdisasm():
        sections = disassembled(code, tmp_path)
        assert sections.keys() == {name for name, _ in named}
        for name, section in sections.items():
            # a tile of rows by one of columns a warp and step: two of each are taken, in a loop or not
            assert len(re.findall(r"\b[HIQ]G?MMA\.", section)) >= 2, name
            if name.startswith("wgmma"):
                # lanes publish what they stored before the barrier; registers of the sum are waited for
                for word in ("FENCE.VIEW.ASYNC", "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR"):
                    assert word in section, (name, word)
                assert not re.search(r"\b[HIQ]MMA\.", section), name


@needs_nvrtc
def test_a_large_product_is_wgmma_without_a_wait_between(tmp_path):
    """The tile that is chosen: 128 registers of a sum in each lane, none of them in memory, one wait a stage."""
    target, x = cuda.target(90), np.ones((1024, 1024), np.float16)
    (sink,) = kernels(target, lambda a, b: a @ b, x, x)
    code = cuda_compile.Compiler("90a").compile(cuda.render_module([("k", lower_kernel(sink, target))], 90))
    if not nvdisasm():
        return
    count = Counter(re.findall(r"\b[A-Z0-9]+\b", disassembled(code, tmp_path)["k"]))
    assert count["HGMMA"] >= 4 and count["DEPBAR"] <= 2 * count["ARRIVE"] and not count["LDL"] + count["STL"]


@needs_nvrtc
@pytest.mark.parametrize(("layout", "n"), [("NN", 5), ("NT", 2), ("TN", 6), ("TT", 3)])
def test_tiles_of_wgmma_are_copied_by_boxes(layout, n, tmp_path):
    """4096^3: one lane asks for `n` boxes a step and for three steps before; nothing is spilled."""
    target, x = cuda.target(90), np.ones((4096, 4096), np.float16)
    turn = [(lambda t: t) if o == "N" else (lambda t: t.T) for o in layout]
    (sink,) = kernels(target, lambda a, b: turn[0](a) @ turn[1](b), x, x)
    source = cuda.render_module([("k", lower_kernel(sink, target))], 90)
    code = cuda_compile.Compiler("90a").compile(source)
    assert source.split(" k(", 1)[1].count("copy_box(") == 4 * n
    if nvdisasm():
        count = Counter(re.findall(r"\b[A-Z0-9]+\b", disassembled(code, tmp_path)["k"]))
        assert count["UTMALDG"] == 4 * n and count["HGMMA"] == 4 and count["PHASECHK"] >= 1
        assert not any(count[word] for word in ("LDGSTS", "LDG", "STS", "LDL", "STL", "HMMA"))


@needs_nvrtc
@pytest.mark.parametrize("arch", ["80", "90a"])
def test_tiles_of_more_local_memory_than_is_declared(arch):
    """Large products take it, within the architecture's limit; no more than that is asked for at the launch."""
    target, x = cuda.target(number(arch)), np.ones((4096, 4096), np.float16)
    (sink,) = kernels(target, lambda a, b: a @ b, x, x)
    linear = lower_kernel(sink, target)
    asked = bytes_at_launch(linear.src, cuda.DECLARED_BYTES)
    assert 48 << 10 < asked <= target.local_bytes == {"80": 163, "90a": 227}[arch] << 10
    source = cuda.render_module([("k", linear)], number(arch))
    assert source.count("extern __shared__") == 1 and "  alignas(16) __shared__" not in source
    assert cuda_compile.Compiler(arch).compile(source).startswith(ELF)


@needs_nvrtc
@pytest.mark.parametrize(("arch", "d", "n"), [("75", np.float16, 0), ("80", np.float16, 4), ("90a", np.int8, 4)])
def test_tiles_are_copied_without_registers(arch, d, n, tmp_path):
    """From 8.0 on, what is read a step ahead goes to local memory by itself, and is waited for before a barrier."""
    target, x = cuda.target(number(arch))._replace(bulk_copies=False), np.ones((512, 512), d)
    (sink,) = kernels(target, lambda a, b: a.int() @ b.T.int() if d is np.int8 else a @ b.T, x, x)
    source = cuda.render_module([("k", lower_kernel(sink, target))], number(arch))
    body = source.split(" k(", 1)[1]
    assert body.count("copy_async<16>(") >= n and ("copy_async<" in body) == bool(n)
    code = cuda_compile.Compiler(arch).compile(source)
    if nvdisasm():
        count = Counter(re.findall(r"\b[A-Z0-9]+\b", disassembled(code, tmp_path)["k"]))
        assert count["LDGSTS"] >= body.count("copy_async<") and bool(count["LDGDEPBAR"]) == bool(n)


def disassembled(code: bytes, folder) -> dict[str, str]:
    """The machine code of each kernel, as text."""
    tool = nvdisasm()
    os.chmod(tool, 0o755)
    (folder / "k.cubin").write_bytes(code)
    text = subprocess.run([tool, folder / "k.cubin"], capture_output=True, text=True, check=True).stdout
    return {s.split(",", 1)[0].split()[0]: s for s in text.split(".section\t.text.")[1:]}


@needs_nvrtc
def test_cuda_errors_name_the_line_and_the_compiler_stays_usable():
    compiler = cuda_compile.Compiler("80")
    good = '\nextern "C" __global__ void k(float* a) {\n  a[0] = 1;\n}\n'
    with pytest.raises(CompileError, match="line 3: .*undefined") as caught:
        compiler.compile(good.replace("1", "x"))
    assert str(caught.value).splitlines()[1].strip() == "a[0] = x;"
    assert compiler.compile(good) == compiler.compile(good)
    assert compiler.key != cuda_compile.Compiler("90a").key
    with pytest.raises(CompileError, match="sm_1"):
        cuda_compile.Compiler("1").compile(good)


@needs_nvrtc
def test_bfloat16_is_converted_by_an_instruction_where_there_is_one():
    x = np.ones(64, to_numpy(next(d for d in DTYPES if d.name == "bfloat16")))
    texts = {}
    for arch in (75, 80):
        target = cuda.target(arch)
        (sink,) = kernels(target, lambda x: x * x, x)
        texts[arch] = cuda.render_module([("k", lower_kernel(sink, target))], arch)
    assert "bf16_of_f32(" not in texts[75] and texts[80].count("bf16_of_f32(") > 1


@needs_nvrtc
def test_a_wide_access_is_one_instruction():
    compiler = cuda_compile.Compiler("90a")
    rtc, texts = compiler.nvrtc, {}
    for name in ("elementwise", "half the element", "matmul"):
        source = cuda.render_module([("k", CASES[name].program(cuda.target(90)))], 90)
        _, program = rtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None)
        rtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_90"])
        text = b" " * rtc.nvrtcGetPTXSize(program)[1]
        rtc.nvrtcGetPTX(program, text)
        texts[name] = text.decode()
        rtc.nvrtcDestroyProgram(program)
    assert texts["elementwise"].count("ld.global.v4") == texts["elementwise"].count("st.global.v4") == 1
    assert texts["half the element"].count("st.global.v4") == 1  # eight halves
    assert "ld.global.f32" not in texts["matmul"] and texts["matmul"].count("st.global.v4") == 2


def test_a_package_that_is_not_there_is_named_with_what_to_do(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(cuda_compile, "import_module", absent)
    with pytest.raises(CompileError, match=r"pip install 'monolect\[cuda\]'"):
        cuda_compile.Compiler("80")


# ---- HIP -------------------------------------------------------------------------------------------------------------
@needs_clang
@pytest.mark.parametrize(
    ("arch", "make"),
    [("gfx942", cases), *(pytest.param(a, programs, marks=SLOW) for a in hip_compile.ARCHITECTURES)],
)
def test_hip(arch, make):
    named = make(hip.TARGET)
    code = hip_compile.Compiler(arch).compile(hip.render_module(named))
    assert code.startswith(ELF) and all(f"{name}.kd".encode() in code for name, _ in named)


@needs_clang
@pytest.mark.parametrize(("arch", "instruction"), [
    ("gfx90a", "v_mfma"), ("gfx942", "v_mfma"), ("gfx1100", "v_wmma"), ("gfx1201", "v_wmma"),
])  # fmt: skip
def test_matrix_units_are_instructions_of_amd_by_hip(arch, instruction):
    target = hip.target(arch)
    products = [Product(u, target) for u in target.units]
    source = hip.render_module([(p.unit.name, p.linear()) for p in products], arch)
    assert hip_compile.Compiler(arch).compile(source).startswith(ELF)
    command = [hip_compile.find(), *hip_compile.FLAGS, f"--offload-arch={arch}", "-S", "-", "-o", "-"]
    text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    for p in products:
        body = text.split(f"\n{p.unit.name}:", 1)[1].split("s_endpgm", 1)[0]
        assert len(re.findall(instruction, body)) >= 2, p.unit.name


@needs_clang
def test_hip_errors_name_the_line_and_the_compiler_stays_usable():
    compiler = hip_compile.Compiler("gfx1100")
    good = hip.LANGUAGE.header + '\nextern "C" __global__ void k(float* a) {\n  a[0] = 1;\n}\n'
    with pytest.raises(CompileError, match="line .*undeclared") as caught:
        compiler.compile(good.replace("a[0] = 1", "a[0] = x"))
    assert str(caught.value).splitlines()[1].strip() == "a[0] = x;"
    assert compiler.compile(good) == compiler.compile(good)
    with pytest.raises(CompileError, match="gfx1"):
        hip_compile.Compiler("gfx1").compile(good)


def test_a_clang_that_is_not_there_is_named_with_what_to_do():
    with Context(HIPCC="no-such-clang"), pytest.raises(CompileError, match="no-such-clang is not on the PATH.*HIPCC"):
        hip_compile.Compiler("gfx942")
