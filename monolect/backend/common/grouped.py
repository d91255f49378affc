"""Devices with workgroups whose driver loads what a compiler made: programs compiled together, and kept on disk.

What it is for: OpenCL, CUDA and their like. A device says how its source is rendered, built and loaded, and which
kernel of a module a name is. What it does not do: memory and launches. Invariant: anything on disk may be damaged, or
not be taken by a driver: that is a miss.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from monolect.backend.base import Program
from monolect.backend.common.launch import check_limits, launch_sizes
from monolect.base.cache import DiskCache
from monolect.base.errors import MonolectError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.bounds import size_max
from monolect.ir.normal import count
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp

SCALAR = -1  # in place of the size of a buffer


class Entry(NamedTuple):
    """A kernel of a module, and what a launch of it takes."""

    kernel: Any
    arguments: tuple[tuple[int, int, str], ...]  # (slot, bytes or SCALAR, name of the Variable)
    groups: tuple[UOp, ...]
    lanes: tuple[int, ...]


class GroupDevice:
    """The programs of one device. `name` is also its space: its memory is its own."""

    target: Target
    opening: str  # the word a kernel begins with in the source
    refusals: tuple[type[Exception], ...] = ()  # what the driver raises for code that it does not take

    def __init__(self, name: str):
        self.name = self.space = name
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

    def kernel(self, module: Any, symbol: str, name: str) -> Any:
        """A kernel of a module. Raises where the module has none of that symbol; `name` is for the message."""
        raise NotImplementedError

    # ---- programs ----------------------------------------------------------------------------------------------------
    def compile(self, kernels: Sequence[tuple[str, str, UOp]]) -> list[Program]:
        """Programs for (name, key, LINEAR), built together. Raises CompileError or DTypeError."""
        for name, _, lin in kernels:
            check_limits(name, lin.src, self.target)
        named = [(f"k_{blake2b(key.encode(), digest_size=12).hexdigest()}", lin) for _, key, lin in kernels]
        source = self.render(named)
        module, code = self.build(source)
        code_name = blake2b(code, digest_size=16).hexdigest()
        if code:
            self._modules[code_name] = module
        if code and settings.COMPILE_CACHE:
            self.cache.put(f"code/{self.target.key}/{code_name}", code)
        out = []
        for (name, key, lin), (symbol, _) in zip(kernels, named, strict=True):
            info = {"name": name, "code": code_name, "symbol": symbol, **_launched(lin)}
            self.programs[key] = self._program(info, module, source if len(kernels) == 1 else self._one(source, symbol))
            out.append(self.programs[key])
            if code and settings.COMPILE_CACHE:
                self.cache.put(f"kernel/{self.target.key}/{key}", json.dumps(info).encode())
        return out

    def lookup(self, key: str) -> Program | None:
        """The program under `key`; a damaged or incomplete entry, or one the driver does not take, is a miss."""
        found = self.programs.get(key)
        if found is not None or not settings.COMPILE_CACHE:
            return found
        entry = self.cache.get(f"kernel/{self.target.key}/{key}")
        if entry is None:
            return None
        misses: tuple[type[Exception], ...] = (ValueError, KeyError, TypeError, MonolectError, *self.refusals)
        try:
            info = json.loads(entry)
            found = self._program(info, self._module(info["code"]), "")
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

    def _program(self, info: dict[str, Any], module: Any, source: str) -> Program:
        kernel = self.kernel(module, info["symbol"], info["name"])
        groups = tuple(parse(text) for text in info["groups"])
        arguments = tuple((int(slot), int(size), str(variable)) for slot, size, variable in info["arguments"])
        entry = Entry(kernel, arguments, groups, tuple(map(int, info["lanes"])))
        return Program(info["name"], entry, int(info["threads"]), source)

    def _one(self, source: str, symbol: str) -> str:
        """The text of one kernel of a module."""
        at = source.index(f" {symbol}(")
        return source[source.rindex(self.opening, 0, at) : source.index("\n}\n", at) + 3]


def _launched(lin: UOp) -> dict[str, Any]:
    """What a launch of a LINEAR takes, as JSON."""
    arguments = []
    for u in sorted((u for u in lin.src if u.op == "PARAM"), key=lambda u: u.arg.slot):
        n_bytes = size_max(count(u.shape)) * u.dtype.itemsize if u.arg.name is None else SCALAR
        arguments.append((u.arg.slot, n_bytes, u.arg.name or ""))
    groups, lanes = launch_sizes(lin.src)
    return {"arguments": arguments, "groups": [show(n) for n in groups], "lanes": lanes, "threads": lin.arg.threads}
