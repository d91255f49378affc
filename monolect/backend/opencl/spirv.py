"""Compile kernels to SPIR-V by LLVM, for OpenCL drivers that accept SPIR-V.

What it does not do: it runs nothing; the device `opencl` builds OpenCL C, which every driver accepts.
Invariant: each module is compiled in a new process. The SPIR-V code generator of LLVM 22 has tables that outlive a
module and use memory addresses as keys: later modules in the same process may give two objects the same id.
"""

from __future__ import annotations

import subprocess
import sys

from monolect.backend.common.llvm import workgroups as llvm_group
from monolect.backend.common.llvm.dialect import Dialect, ids
from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.base.dtype import ALL, dtypes
from monolect.base.errors import CompileError
from monolect.base.target import Target
from monolect.ir.uop import UOp

FENCES = 3  # argument of barrier(): fences of local (1) and global (2) memory

DIALECT = Dialect(
    name="spirv",
    triple="spirv64v1.2-unknown-unknown",  # OpenCL 2.2 accepts SPIR-V 1.2
    ids=ids("spir_func i64 @_Z12get_group_idj(i32 {i})", "spir_func i64 @_Z12get_local_idj(i32 {i})"),
    id_type="i64",
    kernel="define spir_kernel void @{name}({params})",
    metadata="!reqd_work_group_size !{{i32 {x}, i32 {y}, i32 {z}}}",
    barrier=(f"call spir_func void @_Z7barrierj(i32 {FENCES})",),
    atomics=frozenset(("int32", "uint32")),
    declares=(
        "declare spir_func i64 @_Z12get_group_idj(i32)",
        "declare spir_func i64 @_Z12get_local_idj(i32)",
        "declare spir_func void @_Z7barrierj(i32) convergent",
    ),
)
TARGET = Target(
    name="spirv",
    native=LLVM_NATIVE,
    cast_dtypes=frozenset((dtypes.float16,)),
    vector_bytes=16,
    n_registers=128,
    workgroups=True,
    local_bytes=32 << 10,
    max_local=256,
    max_block=(256, 256, 64),
    warp=32,
    n_units=16,
    atomics=frozenset(d for d in ALL if d.name in DIALECT.atomics),
    branches=True,
    key="spirv",
)


def compile(source: str) -> bytes:
    """Compile an LLVM module to a SPIR-V binary. Raises CompileError."""
    return _in_a_process("compile", source)


def assembly(source: str) -> str:
    """Compile an LLVM module to SPIR-V assembly text. Raises CompileError."""
    return _in_a_process("assembly", source).decode()


def _in_a_process(method: str, source: str) -> bytes:
    program = _PROGRAM.format(path=sys.path, triple=DIALECT.triple, method=method)
    done = subprocess.run([sys.executable, "-c", program], input=source.encode(), capture_output=True, check=False)
    if done.returncode:
        raise CompileError(done.stderr.decode(errors="replace").strip() or f"LLVM ended with {done.returncode}")
    return done.stdout


_PROGRAM = """
import sys
sys.path[:] = {path!r}
from monolect.backend.common.llvm.compile import Compiler
from monolect.base.errors import CompileError
try:
    made = Compiler("spirv64", (), triple="{triple}").{method}(sys.stdin.read())
except CompileError as error:
    sys.exit(error.message)
sys.stdout.buffer.write(made if isinstance(made, bytes) else made.encode())
"""


def render_module(kernels: list[tuple[str, UOp]]) -> str:
    """Return one LLVM module with a kernel for each (name, LINEAR)."""
    return llvm_group.render_module(kernels, DIALECT)


__all__ = ["DIALECT", "TARGET", "assembly", "compile", "render_module"]
