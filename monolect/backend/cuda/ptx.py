"""NVIDIA GPUs by LLVM, as a table: PTX without NVRTC.

What it does not do: depend on the architecture, other than by the PTX that this one needs at least. A driver assembles
PTX for any GPU that is not older than the text says.
"""

from __future__ import annotations

from monolect.backend.common import llvm_group
from monolect.backend.common.llvm_compile import Compiler
from monolect.backend.common.llvm_dialect import Dialect, ids
from monolect.backend.common.llvm_ir import LLVM_NATIVE
from monolect.backend.cuda import render as cuda
from monolect.base.dtype import ALL, dtypes
from monolect.base.target import Target
from monolect.ir.uop import UOp

# architecture -> the oldest PTX that has it: what an old driver takes
ARCHITECTURES = {"75": "63", "80": "70", "86": "71", "89": "78", "90": "78", "100": "86", "120": "87"}
_ATOMIC = frozenset(("int32", "uint32", "int64", "uint64", "float32", "float64"))

DIALECT = Dialect(
    name="ptx",
    triple="nvptx64-nvidia-cuda",
    ids=ids("i32 @llvm.nvvm.read.ptx.sreg.ctaid.{c}()", "i32 @llvm.nvvm.read.ptx.sreg.tid.{c}()"),
    kernel="define ptx_kernel void @{name}({params})",
    attributes='nounwind "nvvm.maxntid"="{lanes}"',
    barrier=("call void @llvm.nvvm.barrier0()",),
    atomics=_ATOMIC,
    declares=(
        *(f"declare i32 @llvm.nvvm.read.ptx.sreg.{w}.{c}()" for w in ("ctaid", "tid") for c in "xyz"),
        "declare void @llvm.nvvm.barrier0()",
    ),
)


def target(arch: int) -> Target:
    """What every GPU of the architecture can do."""
    return cuda.target(arch)._replace(
        native=LLVM_NATIVE,
        cast_dtypes=frozenset((dtypes.float16,)),
        atomics=frozenset(d for d in ALL if d.name in _ATOMIC),
        units=(),
        key=f"ptx/sm_{arch}",
    )


def architecture(arch: int) -> str:
    """The newest architecture of the table that code may be for, to run on `arch`."""
    return max((known for known in ARCHITECTURES if int(known) <= arch), key=int)


def compiler(arch: str) -> Compiler:
    """LLVM for one architecture of the table, such as "80"; its assembly is PTX."""
    return Compiler("nvptx64", (f"ptx{ARCHITECTURES[arch]}",), triple=DIALECT.triple, cpu=f"sm_{arch}")


def render_module(kernels: list[tuple[str, UOp]]) -> str:
    """One LLVM module with a kernel for each (name, LINEAR)."""
    return llvm_group.render_module(kernels, DIALECT)


__all__ = ["ARCHITECTURES", "DIALECT", "architecture", "compiler", "render_module", "target"]
