"""Compile kernels for AMD GPUs by LLVM and lld, without clang.

What it does not do: it uses no feature of a particular architecture except its matrix units; LLVM lowers operations
that an architecture lacks.
"""

from __future__ import annotations

from monolect.backend.common.llvm import lld
from monolect.backend.common.llvm import workgroups as llvm_group
from monolect.backend.common.llvm.compile import Compiler
from monolect.backend.common.llvm.dialect import Dialect, Unit, ids
from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.backend.common.llvm.types import type_name
from monolect.backend.hip import render as hip
from monolect.base.dtype import DType, dtypes
from monolect.base.matrix_units import CDNA2, CDNA3, RDNA3, RDNA4, n_elements
from monolect.base.target import MatrixUnit, Target
from monolect.ir.uop import UOp

CODE_OBJECT = 500  # version 5 of the code object layout; drivers accept it since ROCm 5.5
# implicit kernel arguments that no kernel reads; these attributes keep the hardware from passing them
_UNUSED = (
    "implicitarg-ptr", "dispatch-ptr", "queue-ptr", "dispatch-id", "lds-kernel-id", "completion-action",
    "default-queue", "heap-ptr", "hostcall-ptr", "multigrid-sync-arg",
)  # fmt: skip
_ATTRIBUTES = " ".join(f'"amdgpu-no-{name}"' for name in _UNUSED)


def _unit(u: MatrixUnit) -> Unit:
    """Return the intrinsic of a matrix unit: 16-bit floats are vectors, 8-bit operands are packed into integers."""
    held = [n_elements(m) for m in u.maps]
    acc = f"<{held[2]} x {'float' if u.acc.is_float else 'i32'}>"
    a, b = (_operand(u, d, n) for d, n in zip((u.a, u.b), held, strict=False))
    letter = SHORT[u.a]
    if u.name.startswith("mfma"):
        kind = {"bf16": "bf16.1k", "f16": "f16", "i8": ".i8"}[letter]
        name = f"mfma.{'f32' if u.acc.is_float else 'i32'}.{u.m}x{u.n}x{u.k}{kind}"
        return _call(name, acc, (a, b), "{a}, {b}, {c}, i32 0, i32 0, i32 0", f"{a}, {b}, {acc}, i32, i32, i32")
    total = f"v{held[2]}{'f32' if u.acc.is_float else 'i32'}"
    if not u.acc.is_float:
        signs = [int(not d.is_unsigned) for d in (u.a, u.b)]
        given = f"i1 {signs[0]}, {{a}}, i1 {signs[1]}, {{b}}, {{c}}, i1 0"
        return _call(f"wmma.i32.16x16x16.iu8.{total}.{_short(a)}", acc, (a, b), given, f"i1, {a}, i1, {b}, {acc}, i1")
    kind = letter if u.a.itemsize == 2 else f"{letter}.{SHORT[u.b]}"
    return _call(f"wmma.f32.16x16x16.{kind}.{total}.{_short(a)}", acc, (a, b), "{a}, {b}, {c}", f"{a}, {b}, {acc}")


def _operand(u: MatrixUnit, d: DType, n: int) -> str:
    if d.itemsize == 2:
        return f"<{n} x {type_name(d)}>"
    return "i64" if u.name.startswith("mfma") else f"<{n // 4} x i32>"


def _call(name: str, acc: str, operands: tuple[str, str], given: str, types: str) -> Unit:
    f = f"{acc} @llvm.amdgcn.{name}"
    return Unit((*operands, acc), f"call {f}({given})", f"declare {f}({types})")


def _short(t: str) -> str:
    """Return the suffix of an intrinsic's name for an LLVM vector type: `v8f16` for `<8 x half>`."""
    n, _, kind = t.strip("<>").split()
    return f"v{n}{'f16' if kind == 'half' else kind}"


SHORT = {
    dtypes.float16: "f16", dtypes.bfloat16: "bf16", dtypes.int8: "i8", dtypes.uint8: "i8", dtypes.fp8e4m3: "fp8",
    dtypes.fp8e5m2: "bf8",
}  # fmt: skip
DIALECT = Dialect(
    name="amdgcn",
    triple="amdgcn-amd-amdhsa",
    ids=ids("i32 @llvm.amdgcn.workgroup.id.{c}()", "i32 @llvm.amdgcn.workitem.id.{c}()"),
    kernel="define protected amdgpu_kernel void @{name}({params})",
    attributes='#0 "amdgpu-flat-work-group-size"="{lanes},{lanes}"',
    barrier=(
        'fence syncscope("workgroup") release',
        "call void @llvm.amdgcn.s.barrier()",
        'fence syncscope("workgroup") acquire',
    ),
    shuffle=(
        "call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)",
        "call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 {0})",
        "xor i32 {1}, {bits}",
        "shl i32 {2}, 2",
        "call i32 @llvm.amdgcn.ds.bpermute(i32 {3}, i32 {x})",
    ),
    scope='syncscope("agent") ',
    atomics=frozenset(hip.ATOMIC),
    declares=(
        *(f"declare i32 @llvm.amdgcn.{w}.id.{c}()" for w in ("workgroup", "workitem") for c in "xyz"),
        "declare void @llvm.amdgcn.s.barrier()",
        *(f"declare i32 @llvm.amdgcn.{name}(i32, i32)" for name in ("mbcnt.lo", "mbcnt.hi", "ds.bpermute")),
    ),
    units={u.name: _unit(u) for u in (*CDNA2, *CDNA3, *RDNA3, *RDNA4)},
    footer=f'attributes #0 = {{ nounwind "uniform-work-group-size"="true" {_ATTRIBUTES} }}\n'
    f'!llvm.module.flags = !{{!0}}\n!0 = !{{i32 1, !"amdhsa_code_object_version", i32 {CODE_OBJECT}}}\n',
)
TARGET = hip.TARGET._replace(native=LLVM_NATIVE, key="amdgcn")


def target(arch: str) -> Target:
    """Return the Target of an architecture such as "gfx942", with its matrix units."""
    return hip.target(arch)._replace(native=LLVM_NATIVE, key=f"amdgcn/{arch}")


def compiler(arch: str) -> Compiler:
    """Return the LLVM compiler for an architecture such as "gfx942"; it makes unlinked objects."""
    return Compiler("amdgcn", (), triple=DIALECT.triple, cpu=arch)


def code_object(source: str, arch: str) -> bytes:
    """Compile and link an LLVM module to a code object for AMD's driver. Raises CompileError, also without lld."""
    return lld.link("ld.lld", compiler(arch).compile(source), "-shared")


def render_module(kernels: list[tuple[str, UOp]]) -> str:
    """Return one LLVM module with a kernel for each (name, LINEAR)."""
    return llvm_group.render_module(kernels, DIALECT)


__all__ = ["DIALECT", "TARGET", "code_object", "compiler", "render_module", "target"]
