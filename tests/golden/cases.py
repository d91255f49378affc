"""The golden cases: tiny programs, and the text of each after every kernel pass and as LLVM IR, for a fixed target; the
five that are made by hand also in every other language there is.

`python tests/golden/cases.py FOLDER` writes one file a case. It runs in a process of its own: the order of commutative
operands is the order in which nodes were made, so it must not depend on which tests ran before.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from monolect import Tensor
from monolect.backend.c import render as c
from monolect.backend.common.clike.workgroups import GroupRenderer
from monolect.backend.common.llvm.program import LLVM_NATIVE
from monolect.backend.common.llvm.workgroups import GroupRenderer as LlvmGroupRenderer
from monolect.backend.cpu.render import render_module
from monolect.backend.cpu.units import units
from monolect.backend.cuda import ptx
from monolect.backend.cuda import render as cuda
from monolect.backend.hip import amdgcn
from monolect.backend.hip import render as hip
from monolect.backend.metal import render as metal
from monolect.backend.opencl import render as opencl
from monolect.backend.opencl import spirv
from monolect.backend.webgpu import render as webgpu
from monolect.base.dtype import dtypes
from monolect.base.target import Target
from monolect.ir.ops import KernelInfo, ParamArg
from monolect.ir.text import show
from monolect.ir.uop import UOp, const, idx, node, shape_source
from monolect.pipeline import KERNEL, run_pass, schedule
from monolect.schedule.callify import over_params

TARGET = Target(
    name="golden",
    native=LLVM_NATIVE,
    vector_bytes=64,
    n_registers=32,
    n_threads=2,
    l2_bytes=1 << 18,
    local_bytes=1 << 20,
    units=units(("avx512vnni",), 64),
)
I32 = dtypes.int32


def param(slot: int, n: int) -> UOp:
    return node("PARAM", (shape_source((n,)),), ParamArg(slot, I32, "cpu", "GLOBAL"))


def kernel(*effects: UOp) -> UOp:
    return node("SINK", effects, KernelInfo())


def store(p: UOp, value: UOp) -> UOp:
    return node("STORE", (node("INDEX", (p, idx(0))), value))


def of(*tensors: Tensor) -> UOp:
    """The only kernel of a tensor program."""
    sink, _, _ = over_params([t.uop for t in tensors])
    (call,) = schedule(list(sink.src), "cpu", TARGET.local_bytes).linear.src
    return call.src[0]


def attention(q: Tensor, k: Tensor, v: Tensor) -> UOp:
    return of(q.scaled_dot_product_attention(k, v, is_causal=True))


def array(*shape: int, dtype: type = np.float32) -> Tensor:
    return Tensor(np.zeros(shape, dtype))


CASES: dict[str, Callable[[], UOp]] = {
    # five programs by hand, each one step more than the last
    "empty": lambda: kernel(),
    "one-buffer": lambda: kernel(node("GROUP", (param(0, 1),))),
    "store-constant": lambda: kernel(store(param(0, 1), const(199, I32))),
    "folded-add": lambda: kernel(store(param(0, 1), const(199, I32) + const(200, I32))),
    "dot-product": lambda: of((Tensor(np.array([1, 2], np.int32)) * Tensor(np.array([3, 4], np.int32))).sum(dtype=I32)),
    # and five that use what the compiler is for
    "softmax-rows": lambda: of(array(4, 32).softmax(-1)),
    "padded-vector": lambda: of(array(50) * 2 + 1),
    "blocked-matmul": lambda: of(array(64, 1024) @ array(1024, 64)),
    "matrix-unit": lambda: of(array(16, 12, dtype=np.int8).cast(I32) @ array(12, 16, dtype=np.int8).cast(I32)),
    "attention": lambda: attention(array(1, 16, 4), array(1, 16, 4), array(1, 16, 16)),
}

BY_HAND = tuple(CASES)[:5]
LANGUAGES: dict[str, Callable[[UOp], str]] = {
    "C": lambda ir: c.CRenderer(c.language(False), ir, "kernel").render(),
    "CUDA": lambda ir: GroupRenderer(cuda.language(80), ir, "program").render(),
    "HIP": lambda ir: GroupRenderer(hip.LANGUAGE, ir, "program").render(),
    "Metal": lambda ir: GroupRenderer(metal.LANGUAGE, ir, "program").render(),
    "LLVM IR for PTX": lambda ir: LlvmGroupRenderer(ptx.DIALECT, ir, "program").render(),
    "LLVM IR for AMD": lambda ir: LlvmGroupRenderer(amdgcn.DIALECT, ir, "program").render(),
    "LLVM IR for SPIR-V": lambda ir: LlvmGroupRenderer(spirv.DIALECT, ir, "program").render(),
    "OpenCL": lambda ir: opencl.OpenCLRenderer(opencl.language(), ir, "kernel").render(),
    "WGSL": lambda ir: webgpu.render_kernel(webgpu.language(), ir, "program"),
}


def produce(name: str) -> str:
    """The case as text: its IR, and after each pass that changed it; then the generated code."""
    ir = CASES[name]()
    parts = [f"; {name}\n", f"\n---- kernel\n{show(ir)}"]
    for row in KERNEL:
        after = run_pass(row, ir, TARGET)
        parts.append(f"\n---- after {row.name}\n" + ("(unchanged)\n" if after is ir else show(after)))
        ir = after
    parts.append("\n---- LLVM IR\n" + render_module([("kernel", ir)]).strip() + "\n")
    if name in BY_HAND:
        parts += [f"\n---- {language}\n{render(ir).strip()}\n" for language, render in LANGUAGES.items()]
    return "".join(parts)


if __name__ == "__main__":
    gc.disable()  # when a node is collected and made again decides the order of instructions
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        (folder / f"{case}.txt").write_text(produce(case), encoding="utf-8")
