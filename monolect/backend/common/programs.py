"""Programs of a device: compiled together, found again by their keys, kept on disk.

What it is for: kernels missing at one time are compiled as one module, or as some, by several threads, where the
compiler takes those. Its code is one entry on disk; each kernel's entry names the code, the symbol, and what a launch
must know, so another process loads exactly what it needs and never asks the compiler. What it does not do: memory and
launches. Invariant: anything on disk may be damaged, or not be taken by a driver: that is a miss.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from monolect.backend.base import Program
from monolect.backend.common.jobs import Jobs
from monolect.backend.common.pages import give_back
from monolect.base.disk.cache import DiskCache
from monolect.base.disk.hashing import blake2b
from monolect.base.errors import MonolectError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.uop import UOp


class ProgramDevice:
    """The part of a device that keeps programs."""

    target: Target
    refusals: tuple[type[Exception], ...] = ()  # what the driver raises for code that it does not take
    n_compiling = 1  # threads that may build modules at the same time
    module_instructions = 0  # a module is long enough with so many; 0: one for all kernels

    def __init__(self, name: str):
        self.name = name
        self.programs: dict[str, Program] = {}
        self.cache = DiskCache(name.partition(":")[0])
        self._modules: dict[str, Any] = {}

    # ---- what a device supplies --------------------------------------------------------------------------------------
    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        """The source of a module with a kernel for each (symbol, LINEAR)."""
        raise NotImplementedError

    def build(self, source: str) -> tuple[Any, bytes]:
        """The module of a source, loaded, and what to keep of it: b"" for nothing. Raises CompileError."""
        raise NotImplementedError

    def load(self, code: bytes) -> Any:
        """The module of what was kept."""
        raise NotImplementedError

    def beside(self) -> None:
        """Make ready what else programs need to run: done while the first kernels are lowered."""

    def check(self, name: str, linear: UOp) -> None:
        """Raises where the device could not launch it."""

    def info(self, linear: UOp) -> dict[str, Any]:
        """What a launch must know, as JSON."""
        raise NotImplementedError

    def program(self, info: dict[str, Any], module: Any, source: str) -> Program:
        """A kernel of a module. `info` also has its "name" and "symbol". Raises where the module has no such symbol."""
        raise NotImplementedError

    def one(self, source: str, symbol: str) -> str:
        """The text of one kernel of a module."""
        raise NotImplementedError

    # ---- programs ----------------------------------------------------------------------------------------------------
    def compile(self, kernels: Iterable[tuple[str, str, UOp]]) -> list[Program]:
        """Programs for (name, key, LINEAR), built together; see `Device`. Raises CompileError or DTypeError."""
        parts = []
        with Jobs(lambda job: job(), self.n_compiling) as jobs:
            jobs.add(self.beside)
            for part in self._modules_of(kernels):
                source = self.render([(_symbol(key), lin) for _, key, lin in part])
                parts.append((part, source))
                jobs.add(partial(self.build, source))
            _, *built = jobs.results()
        give_back()
        return [p for (part, source), found in zip(parts, built, strict=True) for p in self._keep(part, source, *found)]

    def _modules_of(self, kernels: Iterable[tuple[str, str, UOp]]) -> Iterator[list[tuple[str, str, UOp]]]:
        """What is built as one module: all, or as much as makes a module long enough."""
        part, n = [], 0
        for kernel in kernels:
            self.check(kernel[0], kernel[2])
            part.append(kernel)
            n += len(kernel[2].src)
            if self.module_instructions and n >= self.module_instructions:
                yield part
                part, n = [], 0
        if part:
            yield part

    def _keep(self, kernels: list[tuple[str, str, UOp]], source: str, module: Any, code: bytes) -> list[Program]:
        """The programs of a module, from now on found by their keys, in other processes too."""
        code_name = blake2b(code, digest_size=16).hexdigest()
        if code:
            module = self._modules.setdefault(code_name, module)
        is_kept = bool(code and settings.COMPILE_CACHE and not settings.looking)
        if is_kept:
            self.cache.put(f"code/{self.target.key}/{code_name}", code)
        out = []
        for name, key, lin in kernels:
            symbol = _symbol(key)
            info = {"name": name, "code": code_name, "symbol": symbol, **self.info(lin)}
            self.programs[key] = self.program(info, module, source if len(kernels) == 1 else self.one(source, symbol))
            out.append(self.programs[key])
            if is_kept:
                self.cache.put(f"kernel/{self.target.key}/{key}", json.dumps(info).encode())
        return out

    def lookup(self, key: str) -> Program | None:
        """The program under `key`; a damaged or incomplete entry, or one the driver does not take, is a miss, and so is
        any entry on disk while a setting asks to see how kernels are compiled.
        """
        found = self.programs.get(key)
        if found is not None or not settings.COMPILE_CACHE or settings.looking:
            return found
        entry = self.cache.get(f"kernel/{self.target.key}/{key}")
        if entry is None:
            return None
        misses: tuple[type[Exception], ...] = (ValueError, KeyError, TypeError, MonolectError, *self.refusals)
        try:
            info = json.loads(entry)
            found = self.program(info, self._module(info["code"]), "")
        except misses:
            return None
        self.programs[key] = found
        return found

    def _module(self, name: str) -> Any:
        if name not in self._modules:
            code = self.cache.get(f"code/{self.target.key}/{name}")
            if code is None:
                raise KeyError(name)
            self._modules[name] = self.load(code)
        return self._modules[name]


def _symbol(key: str) -> str:
    return f"k_{blake2b(key.encode(), digest_size=12).hexdigest()}"
