"""Implement the null device: it compiles kernels and runs nothing, to measure the compiler. Its results are zeros.

Further null devices (`null:1`) have memory of their own, as those of a cluster have: what goes there is copied. Values
on several null devices have no memory (`runtime/simulated.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from monolect.backend.base import Commands, Program, unpacked
from monolect.backend.common.host import memory
from monolect.backend.null.render import NATIVE, render
from monolect.base.target import Target
from monolect.ir.uop import UOp


class NullDevice:
    """A device with host memory and no execution."""

    def __init__(self, name: str = "null"):
        self.name = name
        self.target = Target(name="null", native=NATIVE, vector_bytes=64, n_registers=32, n_threads=2, key="null")
        self.programs: dict[str, Program] = {}
        self.space = memory.HOST if name == "null" else name

    from_array = staticmethod(memory.from_array)
    copy = staticmethod(memory.copy)

    def alloc(self, n_bytes: int) -> memory.Memory:
        """Return zeroed host memory."""
        out = memory.alloc(n_bytes)
        out.view("u1")[:] = 0
        return out

    def lookup(self, key: str) -> Program | None:
        return self.programs.get(key)

    def compile(self, kernels: Iterable[tuple[str, str, UOp]]) -> list[Program]:
        out = []
        for name, key, linear in kernels:
            self.programs[key] = Program(name, None, 1, render(name, linear))
            out.append(self.programs[key])
        return out

    def encode(self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]) -> NullCommands:
        """Return commands that run nothing."""
        return NullCommands(len(unpacked(items, number, programs)[0]))


class NullCommands(Commands):
    """Accept bindings and launches, and run nothing."""

    def __init__(self, n: int):
        self.n = n

    def bind(self, number: int, address: int) -> None:
        pass

    def launch(self) -> None:
        pass

    def launch_timed(self) -> list[int]:
        return [0] * self.n


__all__ = ["NullCommands", "NullDevice"]
