"""AMD GPUs by LLVM, as a table: object code without clang, a code object with lld.

What it does not do: depend on the architecture; LLVM lowers what one of them lacks.
"""

from __future__ import annotations

from monolect.backend.common import lld, llvm_group
from monolect.backend.common.llvm_compile import Compiler
from monolect.backend.common.llvm_dialect import Dialect, ids
from monolect.backend.common.llvm_ir import LLVM_NATIVE
from monolect.backend.hip import render as hip
from monolect.ir.uop import UOp

CODE_OBJECT = 500  # the version of its layout: 5, which drivers take since ROCm 5.5
# what a kernel of ours never asks the hardware or the launch for; without this each would be passed to it
_UNUSED = (
    "implicitarg-ptr", "dispatch-ptr", "queue-ptr", "dispatch-id", "lds-kernel-id", "completion-action",
    "default-queue", "heap-ptr", "hostcall-ptr", "multigrid-sync-arg",
)  # fmt: skip
_ATTRIBUTES = " ".join(f'"amdgpu-no-{name}"' for name in _UNUSED)

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
    scope='syncscope("agent") ',
    atomics=frozenset(hip.ATOMIC),
    declares=(
        *(f"declare i32 @llvm.amdgcn.{w}.id.{c}()" for w in ("workgroup", "workitem") for c in "xyz"),
        "declare void @llvm.amdgcn.s.barrier()",
    ),
    footer=f'attributes #0 = {{ nounwind "uniform-work-group-size"="true" {_ATTRIBUTES} }}\n'
    f'!llvm.module.flags = !{{!0}}\n!0 = !{{i32 1, !"amdhsa_code_object_version", i32 {CODE_OBJECT}}}\n',
)
TARGET = hip.TARGET._replace(native=LLVM_NATIVE, units=(), key="amdgcn")


def compiler(arch: str) -> Compiler:
    """LLVM for one architecture, such as "gfx942"; its objects are not linked yet."""
    return Compiler("amdgcn", (), triple=DIALECT.triple, cpu=arch)


def code_object(source: str, arch: str) -> bytes:
    """What AMD's driver loads, of a module. Raises CompileError, also where there is no lld."""
    return lld.link("ld.lld", compiler(arch).compile(source), "-shared")


def render_module(kernels: list[tuple[str, UOp]]) -> str:
    """One LLVM module with a kernel for each (name, LINEAR)."""
    return llvm_group.render_module(kernels, DIALECT)


__all__ = ["DIALECT", "TARGET", "code_object", "compiler", "render_module"]
