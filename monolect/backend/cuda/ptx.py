"""Compile kernels for NVIDIA GPUs to PTX by LLVM, without NVRTC.

What it does not do: it uses no feature of a particular architecture except its matrix units. PTX names the oldest
architecture that it runs on; the driver assembles it for the GPU.
"""

from __future__ import annotations

from itertools import islice

from monolect.backend.common.llvm import workgroups as llvm_group
from monolect.backend.common.llvm.compile import Compiler
from monolect.backend.common.llvm.dialect import Dialect, Unit, ids
from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.backend.cuda import render as cuda
from monolect.backend.cuda.units import instruction
from monolect.base.dtype import ALL, dtypes
from monolect.base.matrix_units import NVIDIA, n_elements
from monolect.base.target import MatrixUnit, Target
from monolect.ir.uop import UOp

# architecture -> the oldest PTX version with its instructions and matrix units: old drivers accept only old versions
ARCHITECTURES = {"75": "65", "80": "70", "86": "71", "89": "84", "90": "84", "100": "86", "120": "87"}


def _unit(u: MatrixUnit) -> Unit:
    """Return the instruction `mma.sync` of a matrix unit as inline assembly on 32-bit registers."""
    n_a, n_b = (n_elements(m) * d.itemsize // 4 for m, d in zip(u.maps, (u.a, u.b), strict=False))
    n = n_elements(u.maps[2])
    t, letter = ("float", "f") if u.acc.is_float else ("i32", "r")
    kind = "{" + ", ".join([t] * n) + "}"
    at = iter(range(n, n + n_a + n_b))
    acc, a, b = ("{" + ", ".join(f"${i}" for i in side) + "}" for side in (range(n), islice(at, n_a), at))
    constraints = ",".join([f"={letter}"] * n + ["r"] * (n_a + n_b) + [str(i) for i in range(n)])
    call = f'call {kind} asm sideeffect "{instruction(u)} {acc}, {a}, {b}, {acc};", "{constraints}"'
    return Unit(
        types=("i32", "i32", t),
        text=call.replace("{", "{{").replace("}", "}}") + "({a}, {b}, {c}) convergent",
        result=f"extractvalue {{{kind}}} {{r}}, {{i}}",
        rounded='call i32 asm "cvt.rna.tf32.f32 $0, $1;", "=r,f"(float {x})' if u.a is dtypes.float32 else "",
    )


_ATOMIC = frozenset(("int32", "uint32", "int64", "uint64", "float32", "float64"))

DIALECT = Dialect(
    name="ptx",
    triple="nvptx64-nvidia-cuda",
    ids=ids("i32 @llvm.nvvm.read.ptx.sreg.ctaid.{c}()", "i32 @llvm.nvvm.read.ptx.sreg.tid.{c}()"),
    kernel="define ptx_kernel void @{name}({params})",
    attributes='nounwind "nvvm.maxntid"="{lanes}"',
    barrier=("call void @llvm.nvvm.barrier0()",),
    shuffle=("call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 {x}, i32 {bits}, i32 31)",),
    atomics=_ATOMIC,
    units={u.name: _unit(u) for u in NVIDIA},
    declares=(
        *(f"declare i32 @llvm.nvvm.read.ptx.sreg.{w}.{c}()" for w in ("ctaid", "tid") for c in "xyz"),
        "declare void @llvm.nvvm.barrier0()",
        "declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)",
    ),
)


def target(arch: int) -> Target:
    """Return the Target of GPUs of compute capability `arch` / 10, as far as LLVM's PTX supports it."""
    return cuda.target(arch)._replace(
        native=LLVM_NATIVE,
        cast_dtypes=frozenset((dtypes.float16,)),
        async_copies=False,
        bulk_copies=False,
        local_bytes=cuda.DECLARED_BYTES,
        units=tuple(u for u in cuda.target(arch).units if u.name in DIALECT.units),
        atomics=frozenset(d for d in ALL if d.name in _ATOMIC),
        key=f"ptx/sm_{arch}",
    )


def architecture(arch: int) -> str:
    """Return the newest architecture in ARCHITECTURES whose code runs on GPUs of `arch`."""
    return max((known for known in ARCHITECTURES if int(known) <= arch), key=int)


def compiler(arch: str) -> Compiler:
    """Return the LLVM compiler for an architecture in ARCHITECTURES, such as "80"; its assembly is PTX."""
    return Compiler("nvptx64", (f"ptx{ARCHITECTURES[arch]}",), triple=DIALECT.triple, cpu=f"sm_{arch}")


def render_module(kernels: list[tuple[str, UOp]]) -> str:
    """Return one LLVM module with a kernel for each (name, LINEAR)."""
    return llvm_group.render_module(kernels, DIALECT)


__all__ = ["ARCHITECTURES", "DIALECT", "architecture", "compiler", "render_module", "target"]
