"""Devices that run kernels of other processors: AArch64 and RISC-V under qemu, WebAssembly in node.

What it is for: the objects that `cpu/elsewhere` makes are linked and run, one process a launch. What it does not show:
other ways to call a kernel than with one argument block, and speed.
"""

import ctypes
import shutil
import struct
import subprocess
import tempfile
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

from monolect.backend.base import Program
from monolect.backend.common.llvm import lld
from monolect.backend.common.shaped import thread_local_layout
from monolect.backend.cpu import cross_targets as elsewhere
from monolect.base.errors import InternalError
from monolect.ir.bounds import size_max
from monolect.ir.rewrite.normal import count
from tests.backend.standin.device import Standin, params

HERE = Path(__file__).parent
CLANGS = ("clang-22", "clang-21", "clang-20", "clang-19", "clang")
QEMU_BUG = b"decode_save_opc: Assertion `ctx->insn_start != NULL' failed"
FLAGS = {"aarch64": (), "riscv64": ("-march=rv64gc", "-mcmodel=medany")}
QEMU = {"aarch64": (), "riscv64": ("-cpu", "rv64,v=true,vext_spec=v1.0")}


def first(*names: str) -> str:
    return next((path for name in names if (path := shutil.which(name))), "")


def missing(machine: str) -> str:
    if machine == "wasm32":
        return ("" if first("node") else "no node; install nodejs") or lld.missing("wasm-ld")
    if not first(f"qemu-{machine}-static", f"qemu-{machine}"):
        return f"no qemu-{machine}; install qemu-user-static"
    return ("" if first(*CLANGS) else "no clang for other processors; install clang-19") or lld.missing("ld.lld")


class Elsewhere(Standin):
    """One machine. A program's entry is (command, number of the kernel, its parameters, bytes of local memory)."""

    def __init__(self, name: str):
        super().__init__(name)
        self.machine = name.partition("-")[2]
        self.target = elsewhere.target(self.machine)
        self.folder = tempfile.TemporaryDirectory(prefix=f"monolect-{name}-")

    def compile(self, kernels):
        kernels = list(kernels)
        named = [(f"k_{blake2b(key.encode(), digest_size=8).hexdigest()}", lin) for _, key, lin in kernels]
        make = self.module if self.machine == "wasm32" else self.executable
        command = make(named)
        for i, ((name, key, lin), (symbol, _)) in enumerate(zip(kernels, named, strict=True)):
            entry = ([*command, symbol], i, params(lin), thread_local_layout(lin.src)[0])
            self.programs[key] = Program(name, entry, lin.arg.threads)
        return [self.programs[key] for _, key, _ in kernels]

    def path(self, suffix: str) -> Path:
        return Path(self.folder.name) / f"{len(self.programs)}{suffix}"

    def module(self, named) -> list[str]:
        path = self.path(".wasm")
        path.write_bytes(elsewhere.link_for(self.machine, named))
        return [first("node"), str(HERE / "launch.mjs"), str(path)]

    def executable(self, named) -> list[str]:
        """An ELF of the kernels and `launch.c`, which needs no library of that machine."""
        obj, stub, path = self.path(".o"), self.path(".c"), self.path(".elf")
        obj.write_bytes(elsewhere.compile_for(self.machine, named))
        names = [name for name, _ in named]
        declared = "".join(f"kernel {name};\n" for name in names)
        stub.write_text(
            f'#include "{HERE / "launch.c"}"\n{declared}kernel* const kernels[] = {{{", ".join(names)}}};\n'
        )
        m = elsewhere.MACHINES[self.machine]
        flags = ["-nostdlib", "-static", "-ffreestanding", "-O1", "-w", *FLAGS[self.machine]]
        tools = [first(*CLANGS), f"--target={m.triple}", f"--ld-path={lld.find('ld.lld')}"]
        command = [*tools, *flags, str(stub), str(obj), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InternalError(f"{' '.join(command)}: {done.stderr}")
        return [first(f"qemu-{self.machine}-static", f"qemu-{self.machine}"), *QEMU[self.machine], str(path)]

    @staticmethod
    def execute(program: Program, args: list[int]) -> None:
        run(program, args)


def run(program: Program, args: list[int]) -> None:
    command, number, declared, local = program.entry
    sizes = {u.arg.slot: size_max(count(u.shape)) * u.dtype.itemsize for u in declared if u.arg.name is None}
    named = {u.arg.slot for u in declared if u.arg.name is not None}
    held = {k: np.frombuffer((ctypes.c_uint8 * n).from_address(args[k]), np.uint8) for k, n in sizes.items() if n}
    rows = [
        struct.pack("<qq", -1, value) if k in named or k not in sizes else struct.pack("<q", sizes[k])
        for k, value in enumerate(args)
    ]
    head = struct.pack("<4q", number, program.n_threads, local * program.n_threads, len(args))
    given = head + b"".join([*rows, *(held[k].tobytes() for k in sorted(held))])
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    if QEMU_BUG in done.stderr:
        pytest.skip("qemu 7.2 (Debian 12) aborts at vector conversions that round in their own way; 10.0 runs them")
    if done.returncode or len(done.stdout) != sum(sizes.values()):
        raise InternalError(f"{program.name}: {command[0]}: {done.returncode}: {done.stderr.decode()[:2000]}")
    at = 0
    for k in sorted(held):
        held[k][...] = np.frombuffer(done.stdout, np.uint8, sizes[k], at)
        at += sizes[k]


ROWS = {f"standin-{machine}": (__name__, "Elsewhere") for machine in elsewhere.MACHINES}
