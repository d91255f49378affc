"""The CUDA device: kernels as CUDA C++, machine code by NVRTC, run by the driver. `cuda:1` is the second GPU.

What it is for: any GPU from compute capability 7.5. Needs the extra `cuda` and NVIDIA's driver.
Invariant: one stream runs what it is given in order, so that memory may be handed out again at once; the host waits
only where it reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from monolect.backend.base import Launch, Program
from monolect.backend.common.handles import HandleMemory
from monolect.backend.common.launch import check_limits, launch_sizes
from monolect.backend.cuda import compile as nvrtc
from monolect.backend.cuda.commands import CudaCommands, Entry
from monolect.backend.cuda.driver import Driver, about, count, missing
from monolect.backend.cuda.memory import CudaMemory
from monolect.backend.cuda.render import render_module, target
from monolect.base.cache import DiskCache
from monolect.base.errors import DeviceError, MonolectError
from monolect.base.settings import settings
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp

OLDEST = 75
WITH_OWN_CODE = 90  # from here on, machine code may use what only this architecture has


class CudaDevice:
    """One GPU. Raises MissingExtraError, or DeviceError where there is no driver, no such GPU, or too old a one."""

    def __init__(self, name: str = "cuda"):
        n, number = count(), name.partition(":")[2] or "0"
        if not number.isdigit() or int(number) >= n:
            raise DeviceError("no such GPU", expected=f"cuda or cuda:0 to cuda:{n - 1}" if n else "a GPU", found=name)
        self.name = self.space = name
        self.driver = Driver(name, int(number))
        read = self.driver.attribute
        self.arch = 10 * read("COMPUTE_CAPABILITY_MAJOR") + read("COMPUTE_CAPABILITY_MINOR")
        if self.arch < OLDEST:
            raise DeviceError(f"{self.driver.name()} is too old", expected=f"compute capability {OLDEST / 10} or more")
        self.stream = self.driver("cuStreamCreate", int(self.driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.memory = CudaMemory(self.driver, self.stream, int(self.driver("cuDeviceTotalMem", self.driver.handle)))
        self._compiler: nvrtc.Compiler | None = None
        self.target = target(self.arch)._replace(
            name=name,
            local_bytes=read("MAX_SHARED_MEMORY_PER_BLOCK"),
            max_local=read("MAX_THREADS_PER_BLOCK"),
            key=f"sm_{self.arch}/{nvrtc.version()}",
        )
        self.programs: dict[str, Program] = {}
        self._modules: dict[str, Any] = {}
        self.cache = DiskCache("cuda")
        self._peers: set[str] = set()

    @staticmethod
    def missing() -> str:
        """Why it cannot be used, or ""."""
        return missing() or nvrtc.missing()

    @staticmethod
    def about() -> str:
        """The GPUs here, their driver, and the compiler."""
        return f"{about()}; NVRTC {nvrtc.version()}"

    @property
    def compiler(self) -> nvrtc.Compiler:
        """NVRTC, loaded when something must be compiled."""
        if self._compiler is None:
            self._compiler = nvrtc.Compiler(f"{self.arch}{'a' if self.arch >= WITH_OWN_CODE else ''}")
        return self._compiler

    # ---- memory ------------------------------------------------------------------------------------------------------
    def alloc(self, n_bytes: int) -> HandleMemory:
        """Uninitialised memory. Raises AllocationError when there is none, also without what is kept for later."""
        return self.memory.alloc(n_bytes)

    def from_array(self, array: np.ndarray) -> HandleMemory:
        """A copy of the array on the GPU."""
        out = self.alloc(array.nbytes)
        self.memory.write(out, array)
        return out

    def copy(self, target: HandleMemory, source: HandleMemory, n_bytes: int) -> None:
        """The first bytes of one memory to another, within this GPU."""
        self.driver("cuMemcpyDtoDAsync", target.address, source.address, n_bytes, self.stream, at="a copy")

    def copy_from(self, target: HandleMemory, other: CudaDevice, source: HandleMemory, n_bytes: int) -> None:
        """The first bytes of memory of another GPU, directly where the two reach each other."""
        if other.name not in self._peers:
            self._peers.add(other.name)
            if int(self.driver("cuDeviceCanAccessPeer", self.driver.handle, other.driver.handle)):
                self.driver("cuCtxEnablePeerAccess", other.driver.context, 0, at=f"access to {other.name}")
        other.memory.wait()
        contexts = self.driver.context, other.driver.context
        places = (target.address, contexts[0], source.address, contexts[1], n_bytes)
        self.driver("cuMemcpyPeerAsync", *places, self.stream, at=f"a copy from {other.name}")
        self.memory.wait()  # the other GPU may hand the source out again

    # ---- programs ----------------------------------------------------------------------------------------------------
    def compile(self, kernels: Sequence[tuple[str, str, UOp]]) -> list[Program]:
        """Programs for (name, key, LINEAR), compiled together. Raises CompileError or DTypeError."""
        for name, _, lin in kernels:
            check_limits(name, lin.src, self.target)
        named = [(f"k_{blake2b(key.encode(), digest_size=12).hexdigest()}", lin) for _, key, lin in kernels]
        source = render_module(named, self.arch)
        code = self.compiler.compile(source)
        code_name = blake2b(code, digest_size=16).hexdigest()
        module = self._module(code_name, code)
        if settings.COMPILE_CACHE:
            self.cache.put(f"code/{self.target.key}/{code_name}", code)
        out = []
        for (name, key, lin), (symbol, _) in zip(kernels, named, strict=True):
            info = {"name": name, "code": code_name, "symbol": symbol, **_launched(lin)}
            self.programs[key] = self._program(info, module, source if len(kernels) == 1 else _one(source, symbol))
            out.append(self.programs[key])
            if settings.COMPILE_CACHE:
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
        try:
            info = json.loads(entry)
            found = self._program(info, self._module(info["code"]), "")
        except (ValueError, KeyError, TypeError, MonolectError):
            return None
        self.programs[key] = found
        return found

    def _module(self, name: str, code: bytes | None = None) -> Any:
        if name not in self._modules:
            code = code if code is not None else self.cache.get(f"code/{self.target.key}/{name}")
            if code is None:
                raise KeyError(name)
            self._modules[name] = self.driver("cuModuleLoadData", code, at="machine code")
        return self._modules[name]

    def _program(self, info: dict[str, Any], module: Any, source: str) -> Program:
        function = self.driver("cuModuleGetFunction", module, info["symbol"].encode(), at=f"kernel {info['name']}")
        arguments = tuple((int(slot), str(variable)) for slot, variable in info["arguments"])
        groups = tuple(parse(text) for text in info["groups"])
        return Program(info["name"], Entry(function, arguments, groups, tuple(info["lanes"])), 1, source)

    def commands(self, launches: Sequence[Launch]) -> CudaCommands:
        """The launches, in order, on the device's stream."""
        return CudaCommands(self.driver, self.stream, launches)


def _launched(lin: UOp) -> dict[str, Any]:
    """What a launch of a LINEAR takes, as JSON."""
    params = sorted((u for u in lin.src if u.op == "PARAM"), key=lambda u: u.arg.slot)
    groups, lanes = launch_sizes(lin.src)
    arguments = [(u.arg.slot, u.arg.name or "") for u in params]
    return {"arguments": arguments, "groups": [show(n) for n in groups], "lanes": lanes}


def _one(source: str, symbol: str) -> str:
    """The text of one kernel of a module."""
    found = re.search(rf'^extern "C"[^\n]* {symbol}\(.*?^}}$', source, re.MULTILINE | re.DOTALL)
    return found[0] if found else source
