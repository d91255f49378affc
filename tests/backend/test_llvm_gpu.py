"""LLVM's own GPU targets: PTX, AMD's code objects, SPIR-V.

What kernels compute is checked by `standin-llvm` in test_standins. PTX becomes machine code where nvJitLink is there
(`make test-cuda-compile`), AMD's objects are linked where lld is (`make test-hip-compile`), SPIR-V is checked where
spirv-val is (`make test-llvm-targets`).
"""

import re
import shutil
import struct
import subprocess

import pytest

from monolect.backend.common.llvm import lld
from monolect.backend.common.llvm.workgroups import GroupRenderer
from monolect.backend.cuda import ptx
from monolect.backend.cuda.units import instruction
from monolect.backend.hip import amdgcn
from monolect.backend.hip.compile import ARCHITECTURES as AMD
from monolect.backend.opencl import spirv
from monolect.base.errors import CompileError
from tests.backend.test_gpu_compile import cases, programs
from tests.backend.test_units import Product
from tests.backend.workgroup_kernels import CASES, linear, load, param, special, store

SLOW = pytest.mark.slow
ELF = b"\x7fELF"


def nvjitlink_missing() -> str:
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except Exception as error:  # the packages raise errors of their own where a library is not found
        return f"no nvJitLink ({type(error).__name__}); `make test-cuda-compile` installs it"
    return ""


needs_nvjitlink = pytest.mark.skipif(bool(nvjitlink_missing()), reason=nvjitlink_missing() or "-")
needs_lld = pytest.mark.skipif(bool(lld.missing("ld.lld")), reason=lld.missing("ld.lld") or "-")
VALIDATOR = shutil.which("spirv-val") or ""
needs_validator = pytest.mark.skipif(not VALIDATOR, reason="no spirv-val; install spirv-tools")


def case(name, target):
    return CASES[name].program(target)


def ptx_of(linear_, arch="80", name="k"):
    return ptx.compiler(arch).assembly(ptx.render_module([(name, linear_)]))


def test_lanes_of_a_warp_add_in_registers():
    """32 lanes join their sums in five steps, without local memory and a barrier, by both vendors' instructions."""
    text = ptx_of(case("sum of rows", ptx.target(80)))
    assert text.count("shfl.sync.bfly.b32") == 5 and not re.search(r"bar\.sync|\.shared", text)
    for arch in AMD:
        linear_ = case("sum of rows", amdgcn.target(arch))
        text = amdgcn.compiler(arch).assembly(amdgcn.render_module([("k", linear_)]))
        assert text.count("ds_bpermute_b32") == 5 and "s_barrier" not in text


# ---- PTX -------------------------------------------------------------------------------------------------------------
def machine_code(text: str, arch: str) -> tuple[bytes, str]:
    """(the cubin, what the assembler says of registers and memory)."""
    from cuda.bindings import nvjitlink

    code, handle = text.encode(), nvjitlink.create(2, [f"-arch=sm_{arch}", "-verbose"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, code, len(code), "kernels.ptx")
        nvjitlink.complete(handle)
        out, said = (bytearray(size(handle)) for size in (nvjitlink.get_linked_cubin_size, nvjitlink.get_info_log_size))
        nvjitlink.get_linked_cubin(handle, out)
        nvjitlink.get_info_log(handle, said)
        return bytes(out), said.decode(errors="replace")
    finally:
        nvjitlink.destroy(handle)


@needs_nvjitlink
@pytest.mark.parametrize(
    ("arch", "make"),
    [("75", cases), ("90", cases), *(pytest.param(a, programs, marks=SLOW) for a in ptx.ARCHITECTURES)],
)
def test_ptx_is_taken_by_the_vendors_assembler(arch, make):
    named = make(ptx.target(int(arch)))
    code, said = machine_code(ptx.compiler(arch).assembly(ptx.render_module(named)), arch)
    assert code.startswith(ELF) and all(name.encode() in code for name, _ in named)
    assert "warning" not in said and set(re.findall(r"(\d+) bytes spill", said)) == {"0"}


def test_ptx_of_the_kernels_by_hand():
    texts = {name: ptx_of(c.program(ptx.target(80))) for name, c in CASES.items()}
    assert all(".version 7.0" in text and ".target sm_80" in text for text in texts.values())
    assert texts["elementwise"].count("ld.global.v4") == texts["elementwise"].count("st.global.v4") == 1
    assert texts["half the element"].count("st.global.v4") == 1  # eight halves
    assert "ld.global.b32" not in texts["matmul"] and texts["matmul"].count("st.global.v4") == 2
    assert texts["reversed"].count("bar") == 1 and ".shared" in texts["reversed"]
    assert ".maxntid 32" in texts["sum of rows"]
    assert ".local" not in "".join(texts.values())  # nothing lives in memory that is not the kernel's own
    assert re.search(r"(atom|red)\S*\.global\S*\.add", texts["counted in float32"])
    assert ".param .u64 .ptr .global .align 16 k_param_1" in texts["padded"]


def test_products_and_sums_are_fused_only_where_the_program_says_so():
    x = load(param(1, 8), special("lidx0", 8))
    text = ptx_of(linear(store(param(0, 8), special("lidx0", 8), x * x + x)))
    assert "fma" not in text and re.search(r"mul\.rn\.", text) and re.search(r"add\.rn\.", text)


# ---- AMD -------------------------------------------------------------------------------------------------------------
@needs_lld
@pytest.mark.parametrize(("arch", "make"), [("gfx942", cases), *(pytest.param(a, programs, marks=SLOW) for a in AMD)])
def test_amd_objects_are_linked(arch, make):
    named = make(amdgcn.TARGET)
    code = amdgcn.code_object(amdgcn.render_module(named), arch)
    assert code.startswith(ELF) and struct.unpack_from("<H", code, 16) == (3,)  # a shared object
    assert all(f"{name}.kd".encode() in code for name, _ in named)


def metadata(arch: str, text: str) -> list[dict]:
    """What AMD's driver is told of each kernel, from the assembly's YAML: the fields that are numbers."""
    body = amdgcn.compiler(arch).assembly(text).split("amdhsa.kernels:")[1].split("amdhsa.target")[0]
    return [
        {k: int(v) for k, v in re.findall(r"^    \.(\w+):\s+(\d+)$", part, re.MULTILINE)}
        | {"args": len(re.findall(r"\.value_kind:", part)), "hidden": part.count("hidden_")}
        for part in re.split(r"^  - ", body, flags=re.MULTILINE)[1:]
    ]


@pytest.mark.parametrize("arch", AMD)
def test_amd_kernels_say_what_they_take(arch):
    names = ("elementwise", "sum of rows", "matmul", "reversed")
    rows = metadata(arch, amdgcn.render_module([(f"k{i}", case(n, amdgcn.TARGET)) for i, n in enumerate(names)]))
    told = dict(zip(names, rows, strict=True))
    assert [r["args"] for r in rows] == [2, 2, 3, 2] and not any(r["hidden"] for r in rows)
    assert [r["kernarg_segment_size"] for r in rows] == [16, 16, 24, 16]
    assert [r["max_flat_workgroup_size"] for r in rows] == [64, 32, 16, 8]
    assert told["elementwise"]["group_segment_fixed_size"] == 0 and told["reversed"]["group_segment_fixed_size"] == 32
    assert told["sum of rows"]["group_segment_fixed_size"] == 0
    assert not any(r["private_segment_fixed_size"] for r in rows)  # no scratch memory
    assert {r["wavefront_size"] for r in rows} == {64 if arch.startswith("gfx9") else 32}


def test_a_linker_that_is_not_there_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr(lld.shutil, "which", lambda name: None)
    with pytest.raises(CompileError, match=r"no ld\.lld on the PATH; install lld"):
        lld.link("ld.lld", b"")


@needs_lld
def test_a_linker_that_refuses_is_quoted():
    with pytest.raises(CompileError, match="ld.lld: .*error"):
        lld.link("ld.lld", b"no object")


# ---- matrix units: what they compute is in test_units ----------------------------------------------------------------
def products(target):
    return [(f"k_{i}", Product(u, target).linear()) for i, u in enumerate(target.units)]


@pytest.mark.sweep
@pytest.mark.parametrize(("arch", "n"), [("75", 5), ("80", 18), ("90", 22)])
def test_units_of_ptx_are_instructions(arch, n):
    target = ptx.target(int(arch))
    text = ptx.compiler(arch).assembly(ptx.render_module(products(target)))
    assert set(re.findall(r"mma\.sync[\w.]+", text)) == {instruction(u) for u in target.units}
    assert len(target.units) == n and text.count("mma.sync") == 2 * n  # two tiles of rows a warp
    if not nvjitlink_missing():
        assert machine_code(text, arch)[0].startswith(ELF)


@pytest.mark.sweep
@pytest.mark.parametrize("arch", AMD)
def test_units_of_amd_are_instructions(arch):
    target = amdgcn.target(arch)
    named = products(target)
    text = amdgcn.compiler(arch).assembly(amdgcn.render_module(named))
    assert len(named) == {"gfx90a": 4, "gfx942": 6, "gfx1100": 6, "gfx1201": 10}[arch]
    for u, body in zip(target.units, re.split(r"^k_\d+:", text, flags=re.MULTILINE)[1:], strict=True):
        (found,) = set(re.findall(r"v_((?:mfma|wmma)_[a-z]+32_\d+x\d+x\d+)_?(\w+)", body))
        kinds = {"f16": ("f16",), "bf16": ("bf16", "bf16_1k"), "i8": ("i8", "iu8")}
        letters = amdgcn.SHORT[u.a], amdgcn.SHORT[u.b]
        assert found[0].endswith(f"32_{u.m}x{u.n}x{u.k}") and found[1] in kinds.get(letters[0], ("_".join(letters),))


# ---- SPIR-V ----------------------------------------------------------------------------------------------------------
@needs_validator
@pytest.mark.parametrize("make", [cases, pytest.param(programs, marks=SLOW)])
def test_spirv_is_valid(make):
    named = make(spirv.TARGET)
    with_half = [k for k in named if "half" in spirv.render_module([k])]
    # half is a type that OpenCL leaves to its devices: the validator has no environment with it
    for some, environment in ((with_half, "spv1.2"), ([k for k in named if k not in with_half], "opencl2.2")):
        assert some and validate(spirv.compile(spirv.render_module(some)), environment) == ""


@needs_validator
def test_the_validator_finds_what_is_wrong():
    module = bytearray(spirv.compile(spirv.render_module([("k", case("elementwise", spirv.TARGET))])))
    module[4:8] = struct.pack("<I", 0x00010600)  # a later version than OpenCL 2.2 takes
    assert "Invalid SPIR-V binary version" in validate(bytes(module), "opencl2.2")


def validate(module: bytes, environment: str) -> str:
    command = [VALIDATOR, "--target-env", environment, "-"]
    done = subprocess.run(command, input=module, capture_output=True, check=False)
    return (done.stderr + done.stdout).decode() if done.returncode else ""


def test_spirv_of_the_kernels_by_hand():
    text = spirv.assembly(spirv.render_module([("k", case("sum of rows", spirv.TARGET))]))
    assert text.count("OpControlBarrier") == 1 and "LocalSize 32 1 1" in text and "Workgroup" in text
    assert 'OpEntryPoint Kernel %1 "k"' in re.sub(r"%\d+", "%1", text) and "BuiltIn WorkgroupId" in text
    text = spirv.assembly(spirv.render_module([("k", case("counted in int32", spirv.TARGET))]))
    assert "OpAtomicIAdd" in text


def test_spirv_errors_name_the_line():
    with pytest.raises(CompileError, match="line 2.*expected instruction"):
        spirv.compile("define spir_kernel void @k() {\n  nonsense\n}\n")


# ---- the renderer ----------------------------------------------------------------------------------------------------
def test_addresses_are_as_aligned_as_is_proven():
    texts = {n: GroupRenderer(ptx.DIALECT, case(n, ptx.target(80)), "k").render() for n in CASES}
    loads = {n: re.findall(r"load (<\d+ x \w+>), .*align (\d+)", text) for n, text in texts.items()}
    assert loads["elementwise"] == [("<4 x float>", "16")] and loads["half the element"] == [("<8 x float>", "16")]
    assert not loads["every third"]


def test_what_a_gate_closes_is_not_read():
    text = GroupRenderer(ptx.DIALECT, case("padded", ptx.target(80)), "k").render()
    assert "%dummy" not in text and ("@llvm.masked.load" in text or "br i1" in text)
