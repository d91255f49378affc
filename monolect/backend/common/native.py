"""Devices whose programs are this process's machine code: objects kept on disk, command tables run by the thread pool.

What it is for: targets that differ in how a LINEAR becomes an object file. Kernels missing at one time are compiled as
one module. Its object is one cache entry; each kernel's entry names the object and the symbol, so another process loads
exactly what it needs and never imports the compiler.

Kernel signature: `void name(ptr args, i64 thread)`, args being 8-byte slots: buffer addresses, then scalar Variables.
The slot before the first holds the address of local memory, `local_bytes` for each thread.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from monolect.backend.base import Launch, Program
from monolect.backend.common import memory
from monolect.backend.common.elf import Image, load_object
from monolect.backend.common.llvm_compile import Compiler
from monolect.backend.common.pool import ThreadPool
from monolect.backend.common.pool_ir import COMMAND_BYTES
from monolect.backend.common.shaped import local_places
from monolect.base.cache import DiskCache
from monolect.base.errors import ObjectFileError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.uop import UOp

LOCAL = -1  # in place of the number of a buffer: local memory


class NativeDevice:
    """The host's processor, by way of `render` and `emit`."""

    def __init__(self, name: str, target: Target):
        self.name, self.target, self.n_threads = name, target, target.n_threads
        self.programs: dict[str, Program] = {}
        self.images: dict[str, Image] = {}
        self.cache = DiskCache(target.name)
        self._pool: ThreadPool | None = None
        self.compile_seconds = 0.0  # spent in the compiler so far

    alloc = staticmethod(memory.alloc)
    from_array = staticmethod(memory.from_array)
    copy = staticmethod(memory.copy)
    space = memory.HOST

    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        """The source of a module with a function for each (symbol, LINEAR)."""
        raise NotImplementedError

    def emit(self, source: str) -> bytes:
        """The object file of a module."""
        raise NotImplementedError

    def one(self, source: str, symbol: str) -> str:
        """The text of one function of a module."""
        raise NotImplementedError

    @property
    def pool(self) -> ThreadPool:
        """The thread pool; its native code comes from the cache after the first time."""
        if self._pool is None:
            self._pool = ThreadPool(self.n_threads - 1, self._cached_compile)
        return self._pool

    def _cached_compile(self, ir: str) -> bytes:
        compiler = Compiler()
        key = f"text/{compiler.key}/{blake2b(ir.encode()).hexdigest()}"
        obj = self.cache.get(key) if settings.COMPILE_CACHE else None
        if obj is None:
            obj = compiler.compile(ir)
            if settings.COMPILE_CACHE:
                self.cache.put(key, obj)
        return obj

    def _timed_emit(self, source: str) -> bytes:
        start = time.perf_counter()
        obj = self.emit(source)
        self.compile_seconds += time.perf_counter() - start
        return obj

    def lookup(self, key: str) -> Program | None:
        """The program under `key`; a damaged or incomplete entry is a miss."""
        found = self.programs.get(key)
        if found is not None or not settings.COMPILE_CACHE:
            return found
        entry = self.cache.get(f"kernel/{self.target.key}/{key}")
        if entry is None:
            return None
        try:
            info = json.loads(entry)
            address = self._image(info["object"]).address(info["symbol"])
            found = Program(info["name"], address, info["threads"], local_bytes=info["local"])
        except (ValueError, KeyError, TypeError, ObjectFileError):
            return None
        self.programs[key] = found
        return found

    def _image(self, name: str, obj: bytes | None = None) -> Image:
        if name not in self.images:
            obj = obj if obj is not None else self.cache.get(f"object/{self.target.key}/{name}")
            if obj is None:
                raise KeyError(name)
            self.images[name] = load_object(obj)
        return self.images[name]

    def compile(self, kernels: Sequence[tuple[str, str, UOp]]) -> list[Program]:
        """Programs for (name, key, LINEAR), compiled together; see `Device`."""
        named = [(f"k_{blake2b(key.encode(), digest_size=12).hexdigest()}", lin) for _, key, lin in kernels]
        source = self.render(named)
        obj = self._timed_emit(source)
        object_name = blake2b(obj, digest_size=16).hexdigest()
        image = self._image(object_name, obj)
        if settings.COMPILE_CACHE:
            self.cache.put(f"object/{self.target.key}/{object_name}", obj)
        out = []
        for (name, key, lin), (symbol, _) in zip(kernels, named, strict=True):
            text = source if len(kernels) == 1 else self.one(source, symbol)
            n_local = local_places(lin.src)[0]
            p = Program(name, image.address(symbol), lin.arg.threads, text, n_local)
            self.programs[key] = p
            out.append(p)
            if settings.COMPILE_CACHE:
                info = {"object": object_name, "symbol": symbol, "threads": p.n_threads, "name": name, "local": n_local}
                self.cache.put(f"kernel/{self.target.key}/{key}", json.dumps(info).encode())
        return out

    def build(self, linear: UOp) -> bytes:
        """See `Portable`: an object file, behind a line with what else is known about the program."""
        info = {"name": linear.arg.name, "threads": linear.arg.threads, "local": local_places(linear.src)[0]}
        return json.dumps(info).encode() + b"\n" + self._timed_emit(self.render([("kernel", linear)]))

    def load(self, built: bytes) -> Program:
        """See `Portable`. Raises ObjectFileError when the object is damaged."""
        head, _, obj = built.partition(b"\n")
        info = json.loads(head)
        return Program(info["name"], load_object(obj).address("kernel"), info["threads"], local_bytes=info["local"])

    def commands(self, launches: Sequence[Launch]) -> NativeCommands:
        """The launches as one native command table."""
        return NativeCommands(self, launches)


class NativeCommands:
    """A native table of {function, arguments, threads} and its argument slots, run by one native call.

    Before the arguments of each launch stands the address of local memory, which the launches share.
    """

    def __init__(self, device: NativeDevice, launches: Sequence[Launch]):
        self.n = len(launches)
        flat = [a for launch in launches for a in (LOCAL, *launch.args)]
        n_local = max((p.local_bytes * p.n_threads for p, _ in launches), default=0)
        self.local = device.alloc(n_local) if n_local else None
        self.slots = (ctypes.c_int64 * max(1, len(flat)))()
        self.places: list[list[int]] = [[] for _ in range(max(flat, default=-1) + 1)]
        for place, number in enumerate(flat):
            if number != LOCAL:
                self.places[number].append(place)
            elif self.local is not None:
                self.slots[place] = self.local.address
        self.table = (ctypes.c_int64 * (3 * max(1, self.n)))()
        at = ctypes.addressof(self.slots)
        for i, launch in enumerate(launches):
            self.table[3 * i : 3 * i + 3] = [launch.program.entry, at + 8, launch.program.n_threads]
            at += 8 * (1 + len(launch.args))
        self.address = ctypes.addressof(self.table)
        self.pool = device.pool
        self.pool_address = self.pool.address
        self.native = _native(self.pool.run_address)

    def bind(self, number: int, address: int) -> None:
        """See `Commands`; a number no launch uses is ignored."""
        if number < len(self.places):
            for place in self.places[number]:
                self.slots[place] = address

    def launch(self) -> None:
        """One native call for the whole table."""
        if self.n:
            self.native(self.pool_address, self.address, self.n)

    def launch_timed(self) -> list[int]:
        """One native call a launch."""
        out = []
        for i in range(self.n):
            start = time.perf_counter_ns()
            self.native(self.pool_address, self.address + i * COMMAND_BYTES, 1)
            out.append(time.perf_counter_ns() - start)
        return out


def _native(address: int) -> Any:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)
