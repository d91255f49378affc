"""Implement the Python device: it interprets programs with NumPy on host memory, without a compiler, and checks every
index.

What it is for: an oracle of lowered programs on any machine, for tests and for finding a wrong pass. `python` has
vectors and threads like a CPU; `python:gpu` has workgroups, lanes and local memory like a GPU.
What it is not: fast. It runs one Python statement per instruction and loop iteration.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from monolect.backend.base import Call, Commands, Program, unpacked
from monolect.backend.common.host import memory
from monolect.backend.python.interpret import Kernel
from monolect.backend.python.render import render
from monolect.base.dtype import ALL
from monolect.base.matrix_units import NVIDIA
from monolect.base.target import Target
from monolect.ir.ops import ELEMENTWISE, KernelInfo
from monolect.ir.uop import UOp

NATIVE = ELEMENTWISE | {"BITCAST", "WMMA"}


TYPES = frozenset(d for d in ALL if d.kind != "v")
CPU = Target(name="python", native=NATIVE, native_dtypes=TYPES, vector_bytes=64, n_threads=2, key="python")
GPU = Target(
    name="python",
    native=NATIVE,
    native_dtypes=TYPES,
    vector_bytes=16,
    n_registers=128,
    workgroups=True,
    local_bytes=32 << 10,
    max_local=256,
    max_block=(256, 256, 64),
    max_grid=(65535, 65535, 65535),
    warp=32,
    shuffles=True,
    n_units=8,
    atomics=TYPES,
    branches=True,
    units=NVIDIA,
    key="python:gpu",
)  # limits that every GPU meets, and the matrix units of NVIDIA's


class PythonDevice:
    """A device with host memory and interpreted programs. `Program.entry` is the LINEAR itself."""

    def __init__(self, name: str = "python"):
        self.name = name
        self.target = GPU if name.endswith(":gpu") else CPU
        self.programs: dict[str, Program] = {}
        self._kernels: dict[tuple[str, UOp], Kernel] = {}

    alloc = staticmethod(memory.alloc)
    from_array = staticmethod(memory.from_array)
    copy = staticmethod(memory.copy)
    space = memory.HOST

    def lookup(self, key: str) -> Program | None:
        """Return the program compiled under `key` in this process, None if there is none."""
        return self.programs.get(key)

    def compile(self, kernels: Iterable[tuple[str, str, UOp]]) -> list[Program]:
        """Return Programs for (name, key, LINEAR) triples. Raises for a program that the interpreter cannot run."""
        out = []
        for name, key, linear in kernels:
            n_threads = linear.arg.threads if isinstance(linear.arg, KernelInfo) else 1
            self.programs[key] = Program(name, linear, n_threads, render(name, linear))
            self.kernel(self.programs[key])
            out.append(self.programs[key])
        return out

    def kernel(self, program: Program) -> Kernel:
        """Return the translated program; each is translated once."""
        key = (program.name, program.entry)
        if key not in self._kernels:
            self._kernels[key] = Kernel(program.entry, program.name)
        return self._kernels[key]

    def encode(
        self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]
    ) -> PythonCommands:
        """Return commands that run the items in order."""
        return PythonCommands(self, unpacked(items, number, programs)[0])


class PythonCommands(Commands):
    """Kernels with the numbers and offsets of their operands."""

    def __init__(self, device: PythonDevice, calls: Sequence[Call]):
        self.calls = [(device.kernel(call.program), call.operands) for call in calls]
        self.addresses: dict[int, int] = {}

    def bind(self, number: int, address: int) -> None:
        """Set buffer `number` to the memory at `address`, or to this value for a size."""
        self.addresses[number] = address

    def launch(self) -> None:
        """Run all launches in order."""
        for kernel, operands in self.calls:
            kernel.run([self.addresses[n] + offset for n, offset in operands])

    def launch_timed(self) -> list[int]:
        """Run all launches in order, and return the time of each in nanoseconds."""
        out = []
        for kernel, operands in self.calls:
            start = time.perf_counter_ns()
            kernel.run([self.addresses[n] + offset for n, offset in operands])
            out.append(time.perf_counter_ns() - start)
        return out


__all__ = ["GPU", "NATIVE", "PythonCommands", "PythonDevice"]
