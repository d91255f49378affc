"""OpenCL devices by LLVM, as a table: SPIR-V, for drivers that take it in place of source.

What it does not do: run; the `opencl` device builds source, which every driver takes.
Invariant: each module is made in a process of its own. The code generator of LLVM 22 keeps tables that outlive a module
and go by addresses of memory: later modules of the same process may have two things under one number.
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

FENCES = 3  # of local and of global memory

DIALECT = Dialect(
    name="spirv",
    triple="spirv64v1.2-unknown-unknown",  # 1.2 is what OpenCL 2.2 takes
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
    """The SPIR-V of a module. Raises CompileError."""
    return _in_a_process("compile", source)


def assembly(source: str) -> str:
    """The same as text."""
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
    """One LLVM module with a kernel for each (name, LINEAR)."""
    return llvm_group.render_module(kernels, DIALECT)


__all__ = ["DIALECT", "TARGET", "assembly", "compile", "render_module"]
