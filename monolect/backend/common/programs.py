"""Compile the programs of a device in modules, and cache them by key in memory and on disk.

What it is for: kernels that miss the cache together are compiled in one module, or in several modules in parallel if
the compiler is thread-safe. The code of a module is one entry on disk. The entry of a kernel names the code, the symbol
and the launch parameters, so another process loads the kernels that it needs without the compiler.
What it does not do: memory and launches.
Invariant: an entry on disk that is damaged, or that the driver refuses, is a cache miss.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from monolect.backend.base import Program
from monolect.backend.common.jobs import Jobs
from monolect.backend.common.pages import trim_memory
from monolect.base.disk.cache import DiskCache
from monolect.base.disk.hashing import blake2b
from monolect.base.errors import MonolectError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.uop import UOp


class ProgramDevice:
    """The part of a device that compiles and caches programs."""

    target: Target
    load_errors: tuple[type[Exception], ...] = ()  # exceptions that the driver raises for code that it refuses
    n_compiling = 1  # threads that may build modules at the same time
    module_instructions = 0  # instructions from which on a module is full; 0: one module for all kernels

    def __init__(self, name: str):
        self.name = name
        self.programs: dict[str, Program] = {}
        self.cache = DiskCache(name.partition(":")[0])
        self._modules: dict[str, Any] = {}

    # ---- what a device supplies --------------------------------------------------------------------------------------
    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        """Return the source of a module with a kernel for each (symbol, LINEAR)."""
        raise NotImplementedError

    def build(self, source: str) -> tuple[Any, bytes]:
        """Compile a source; return the loaded module and its code for the disk cache, b"" if it cannot be cached.

        Raises CompileError.
        """
        raise NotImplementedError

    def load(self, code: bytes) -> Any:
        """Return the loaded module of code from the disk cache."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Load other code that programs need to run, in parallel with the lowering of the first kernels."""

    def check(self, name: str, linear: UOp) -> None:
        """Raise CompileError or DTypeError if the device cannot launch the kernel `name`."""

    def info(self, linear: UOp) -> dict[str, Any]:
        """Return the launch parameters of a kernel, as values that JSON can store."""
        raise NotImplementedError

    def program(self, info: dict[str, Any], module: Any, source: str) -> Program:
        """Return the Program of one kernel of a loaded module.

        `info` holds its launch parameters, "name" and "symbol". Raises if the module lacks the symbol.
        """
        raise NotImplementedError

    def kernel_source(self, source: str, symbol: str) -> str:
        """Return the part of a module's source that is the kernel `symbol`."""
        raise NotImplementedError

    # ---- programs ----------------------------------------------------------------------------------------------------
    def compile(self, kernels: Iterable[tuple[str, str, UOp]]) -> list[Program]:
        """Compile kernels (name, key, LINEAR) in modules and return their Programs, in order; see `Device`.

        Raises CompileError or DTypeError.
        """
        parts = []
        with Jobs(lambda job: job(), self.n_compiling) as jobs:
            jobs.add(self.warm_up)
            for part in self._batches(kernels):
                source = self.render([(_symbol(key), lin) for _, key, lin in part])
                parts.append((part, source))
                jobs.add(partial(self.build, source))
            _, *built = jobs.results()
        trim_memory()
        return [
            p for (part, source), found in zip(parts, built, strict=True) for p in self._store(part, source, *found)
        ]

    def _batches(self, kernels: Iterable[tuple[str, str, UOp]]) -> Iterator[list[tuple[str, str, UOp]]]:
        """Check the kernels and group them into modules: one module, or modules of `module_instructions` or more."""
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

    def _store(self, kernels: list[tuple[str, str, UOp]], source: str, module: Any, code: bytes) -> list[Program]:
        """Return the Programs of a built module, and cache them by key in memory and on disk."""
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
            self.programs[key] = self.program(
                info, module, source if len(kernels) == 1 else self.kernel_source(source, symbol)
            )
            out.append(self.programs[key])
            if is_kept:
                self.cache.put(f"kernel/{self.target.key}/{key}", json.dumps(info).encode())
        return out

    def lookup(self, key: str) -> Program | None:
        """Return the cached Program of `key`, or None.

        An entry on disk that is damaged or incomplete, or that the driver refuses, is a miss. So is every entry on disk
        while a setting shows how kernels are compiled.
        """
        found = self.programs.get(key)
        if found is not None or not settings.COMPILE_CACHE or settings.looking:
            return found
        entry = self.cache.get(f"kernel/{self.target.key}/{key}")
        if entry is None:
            return None
        misses: tuple[type[Exception], ...] = (ValueError, KeyError, TypeError, MonolectError, *self.load_errors)
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


__all__ = ["ProgramDevice"]
