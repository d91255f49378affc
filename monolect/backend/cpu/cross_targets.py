"""Compile kernels for other processors than this one: AArch64, RISC-V, and WebAssembly for browsers.

What it is for: kernels that a program without monolect calls. Their signature is that of the device `cpu`: `void
name(ptr args, i64 thread)`. `args` points to little-endian 8-byte slots, also where pointers have four bytes. The slot
before the first holds the address of local memory, `local_bytes` for each thread. What it does not do: run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from monolect.backend.common.llvm import lld
from monolect.backend.common.llvm.compile import LLVM_NATIVE, Compiler
from monolect.backend.cpu.render import render_module
from monolect.backend.cpu.units import units
from monolect.base.dtype import DType, dtypes
from monolect.base.target import Target
from monolect.ir.uop import UOp


class Machine(NamedTuple):
    """One processor: its LLVM triple and features, the capabilities for its Target, and its linker with options."""

    triple: str
    features: tuple[str, ...]
    lacks: frozenset[str] = (
        frozenset()
    )  # ops that LLVM would turn into calls of library functions, which are not linked
    cast_dtypes: frozenset[DType] = frozenset()
    vector_bytes: int = 16
    n_registers: int = 32
    local_bytes: int = 1 << 20
    abi: str = ""
    linker: str = "ld.lld"
    options: tuple[str, ...] = ("-shared", "--no-undefined")


HALF = frozenset((dtypes.float16,))
MACHINES: dict[str, Machine] = {
    "aarch64": Machine("aarch64-unknown-linux-gnu", ("neon",), cast_dtypes=HALF),
    "riscv64": Machine("riscv64-unknown-linux-gnu", ("m", "a", "f", "d", "c", "v"), abi="lp64d"),
    # LLVM has no float16 registers for it, and fma would be a library call; that of relaxed-simd may round twice
    "wasm32": Machine(
        "wasm32-unknown-unknown",
        ("simd128", "nontrapping-fptoint", "sign-ext", "bulk-memory"),
        frozenset(("MULACC",)),
        n_registers=16,
        linker="wasm-ld",
        options=("--no-entry", "--export=__heap_base"),
    ),
}


def target(machine: str) -> Target:
    """Return the Target of a machine in MACHINES."""
    m = MACHINES[machine]
    return Target(
        name=machine,
        native=LLVM_NATIVE - m.lacks,
        cast_dtypes=m.cast_dtypes,
        vector_bytes=m.vector_bytes,
        n_registers=m.n_registers,
        loads_first=True,
        local_bytes=m.local_bytes,
        units=units(m.features, m.vector_bytes),
        key=compiler(machine).key,
    )


def compiler(machine: str) -> Compiler:
    """Return the LLVM compiler for a machine in MACHINES."""
    m = MACHINES[machine]
    return Compiler(machine, m.features, triple=m.triple, abi=m.abi)


def compile_for(machine: str, kernels: list[tuple[str, UOp]], text: str = "") -> bytes:
    """Return the object file with a function for each (name, LINEAR), and the functions of the LLVM IR `text`."""
    return compiler(machine).compile(render_module(kernels, MACHINES[machine].vector_bytes) + text)


def link_for(
    machine: str, kernels: list[tuple[str, UOp]], text: str = "", exported: Sequence[str] | None = None
) -> bytes:
    """Compile as `compile_for` does and link: a shared library, or a WebAssembly module.

    It exports the functions in `exported`, by default all kernels. The WebAssembly module has its own memory, free
    from the exported address `__heap_base` on. Raises CompileError if lld is not installed.
    """
    m = MACHINES[machine]
    names = [name for name, _ in kernels] if exported is None else exported
    exports = [f"--export={name}" for name in names] if m.linker == "wasm-ld" else []
    return lld.link(m.linker, compile_for(machine, kernels, text), *m.options, *exports)


__all__ = ["MACHINES", "Machine", "compile_for", "compiler", "link_for", "target"]
