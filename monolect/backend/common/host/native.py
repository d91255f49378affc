"""Run programs as machine code in this process: load their object files, and run command tables by the thread pool.

What it is for: the base of targets that differ only in how a LINEAR becomes an object file.

Kernel signature: `void name(ptr args, i64 thread)`, args being 8-byte slots: buffer addresses, then scalar Variables.
The slot before the first one holds the address of local memory, `local_bytes` for each thread.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from monolect.backend.base import Call, Group, Program, unpacked
from monolect.backend.common.host import memory
from monolect.backend.common.host.elf import Image, load_object
from monolect.backend.common.host.entry import methods, python_functions
from monolect.backend.common.host.pool_ir import COMMAND_BYTES
from monolect.backend.common.host.thread_pool import MAX_WORKERS, ThreadPool, shared_pool
from monolect.backend.common.llvm.compile import Compiler, host_features
from monolect.backend.common.programs import ProgramDevice
from monolect.backend.common.shaped import thread_local_layout
from monolect.base.disk.hashing import blake2b
from monolect.base.errors import SettingError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.uop import UOp

native_functions: dict[str, tuple[int, Any]] = {}  # by name of a CUSTOMFUNCTION: (address, object that owns the code)

LOCAL = -1  # number of an operand that is local memory, not a buffer
MIN_SHARED_BYTES = 1 << 16  # bytes of local memory from which on command buffers share it; less is private to one
MAX_L3_BYTES = 32 << 20  # a larger last-level cache counts as this size: cores of other users share it


def host_target(name: str, native: frozenset[str], key: str) -> Target:
    """Return the Target of this processor; `native`, its native ops, and `key` depend on the compiler.

    Raises SettingError if the setting THREADS is too large.
    """
    host = host_features()
    n_threads = settings.THREADS or host.n_cores
    if n_threads > MAX_WORKERS + 1:
        expected = f"THREADS of at most {MAX_WORKERS + 1}, or 0 for one per core"
        raise SettingError(f"{name}: too many threads", expected=expected, found=n_threads)
    return Target(
        name=name,
        native=native,
        vector_bytes=host.vector_bytes,
        n_registers=host.n_vector_registers,
        multiply_adds=host.multiply_adds,
        loads_first=host.machine != "x86_64",
        n_threads=n_threads,
        concurrency="lanes" if n_threads > 1 else "",
        offsets=True,
        l1_bytes=host.l1d_bytes,
        l2_bytes=host.l2_bytes,
        l3_bytes=min(host.l3_bytes, MAX_L3_BYTES),
        local_bytes=4 * host.l2_bytes,
        key=f"{key}/{n_threads}",
    )


class NativeDevice(ProgramDevice):
    """A device that is the host's processor; subclasses add `render` (LINEAR to source) and `emit` (source to code)."""

    def __init__(self, name: str, target: Target):
        super().__init__(name)
        self.target, self.n_threads = target, target.n_threads
        self.space = memory.HOST if ":" not in name else name  # further devices of a kind have memory of their own
        self._pool: ThreadPool | None = None
        self.compile_seconds = 0.0  # spent in the compiler so far, summed over threads
        self._local: memory.Memory | None = None

    module_instructions = 256
    alloc = staticmethod(memory.alloc)
    prepare = staticmethod(memory.prepare)
    from_array = staticmethod(memory.from_array)
    copy = staticmethod(memory.copy)

    def local(self, n_bytes: int) -> memory.Memory:
        """Return local memory for a command buffer; from MIN_SHARED_BYTES on all command buffers share one block.

        They can share it because they run one after the other. If the block is too small, a block at least 1.5 times as
        large replaces it. Earlier command buffers keep the old blocks, at most three times the largest in total.
        """
        if n_bytes < MIN_SHARED_BYTES:
            return self.alloc(n_bytes)
        if self._local is None or self._local.n_bytes < n_bytes:
            self._local = self.alloc(max(n_bytes, 0 if self._local is None else 3 * self._local.n_bytes // 2))
        return self._local

    def emit(self, source: str) -> bytes:
        """Compile the source of a module and return the object file. Raises CompileError."""
        raise NotImplementedError

    @property
    def n_compiling(self) -> int:  # type: ignore[override]
        """Number of threads that may build modules at the same time: COMPILE_THREADS, or one for each core."""
        return settings.COMPILE_THREADS or host_features().n_cores

    @property
    def pool(self) -> ThreadPool:
        """The thread pool, made at the first use, which devices with equal numbers of threads share; its native code is
        cached on disk.
        """
        if self._pool is None:
            self._pool = shared_pool(self.n_threads - 1, self._cached_compile)
        return self._pool

    def warm_up(self) -> None:
        """Load the native code of the thread pool and of `entry`, which takes 35 ms on a cache miss."""
        methods(self.pool.run_address, self._cached_compile)

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

    def load(self, code: bytes) -> Image:
        """Load an object file from the disk cache. Raises ObjectFileError if it is damaged."""
        return load_object(code)

    def build(self, source: str) -> tuple[Image, bytes]:
        """Compile and load a source; return the loaded Image and the object file for the disk cache."""
        obj = self._timed_emit(source)
        return load_object(obj), obj

    def info(self, linear: UOp) -> dict[str, Any]:
        """Return the number of threads and the bytes of local memory per thread of a kernel."""
        return {"threads": linear.arg.threads, "local": thread_local_layout(linear.src)[0]}

    def program(self, info: dict[str, Any], module: Image, source: str) -> Program:
        """Return the Program of one kernel of a loaded object; its entry is the kernel's address."""
        return Program(info["name"], module.address(info["symbol"]), info["threads"], source, info["local"])

    def dumps(self, linear: UOp) -> bytes:
        """Compile a program without loading it; return a line of JSON (launch parameters), then the object file."""
        info = {"name": linear.arg.name, "symbol": "kernel", **self.info(linear)}
        return json.dumps(info).encode() + b"\n" + self._timed_emit(self.render([("kernel", linear)]))

    def loads(self, built: bytes) -> Program:
        """Load the program that `dumps` of an equal device returned. Raises ObjectFileError if it is damaged."""
        head, _, obj = built.partition(b"\n")
        return self.program(json.loads(head), load_object(obj), "")

    def keep(self, key: str, built: bytes) -> None:
        """Load the program that `dumps` of an equal device returned, and cache it by `key` in memory and on disk.
        Raises ObjectFileError if it is damaged.
        """
        head, _, code = built.partition(b"\n")
        info, name = json.loads(head), blake2b(code, digest_size=16).hexdigest()
        self._modules[name] = self.load(code)
        self.programs[key] = self.program(info, self._modules[name], "")
        if settings.COMPILE_CACHE:
            self.cache.put(f"code/{self.target.key}/{name}", code)
            self.cache.put(f"kernel/{self.target.key}/{key}", json.dumps({**info, "code": name}).encode())

    def encode(
        self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]
    ) -> NativeCommands:
        """Encode the items of a step as one native command table."""
        return NativeCommands(self, *unpacked(items, number, programs))


class NativeCommands:
    """A table of native commands {function, arguments, threads} with its argument slots, run by one native call.

    The slot before the arguments of a call holds the address of its scratch memory; calls that run one after the other
    share it. A group with lanes is one command. `n_barriers`: number of commands that run on several threads and end
    with a barrier. `shares_local`: whether other tables use the same scratch memory, so that they must not run at the
    same time.
    """

    def __init__(self, device: NativeDevice, calls: Sequence[Call], groups: Sequence[Group] = ()):
        self.n = len(calls)
        flat = [pair for call in calls for pair in ((LOCAL, 0), *call.operands)]
        local, n_local = local_offsets(calls, groups)
        self.local = device.local(n_local) if n_local else None
        self.local_bytes, self.shares_local = n_local, n_local >= MIN_SHARED_BYTES
        self.slots = (ctypes.c_int64 * max(1, len(flat)))()
        self.bindings: list[list[tuple[int, int]]] = [[] for _ in range(max(flat, default=(-1,))[0] + 1)]
        of_calls = iter(local)
        for slot, (number, offset) in enumerate(flat):
            if number != LOCAL:
                self.bindings[number].append((slot, offset))
            elif self.local is not None:
                self.slots[slot] = self.local.address + next(of_calls)
        self.table = (ctypes.c_int64 * (3 * max(1, self.n)))()
        at = ctypes.addressof(self.slots)
        for i, call in enumerate(calls):
            self.table[3 * i : 3 * i + 3] = [call.program.entry, at + 8, call.program.n_threads]
            at += 8 * (1 + len(call.operands))
        self.pool = device.pool
        commands = [self.table[i : i + 3] for i in range(0, 3 * self.n, 3)]
        self.lanes: list[Any] = []
        if groups:
            commands = [c for group in groups for c in self._group(group, commands)]
        self.n_barriers = sum(n > 1 for _, _, n in commands)
        self.run_table = (ctypes.c_int64 * max(1, 3 * len(commands)))(*(word for c in commands for word in c))
        self.run, self.run_held = python_functions(
            self.pool.run_address,
            self.pool.address,
            ctypes.addressof(self.run_table),
            len(commands),
            ctypes.addressof(self.slots),
            self.bindings,
            device._cached_compile,
        )

    def _group(self, group: Group, commands: list[list[int]]) -> list[list[int]]:
        """Return the commands of a group: those of its calls, or one command whose thread k runs lane k."""
        if not group.lanes:
            return [commands[i] for i in group.calls]
        starts, items = [len(group.lanes) + 1], []
        for lane in group.lanes:
            items += [word for i, thread in lane for word in (*commands[i][:2], thread)]
            starts.append(len(group.lanes) + 1 + len(items))
        self.lanes.append((ctypes.c_int64 * (len(starts) + len(items)))(*starts, *items))
        return [[self.pool.lane_address, ctypes.addressof(self.lanes[-1]), len(group.lanes)]]

    def bind(self, number: int, address: int) -> None:
        """Set buffer `number` to the memory at `address`, or a size to this value. An unused number is ignored."""
        if number < len(self.bindings):
            for slot, offset in self.bindings[number]:
                self.slots[slot] = address + offset

    def launch(self) -> None:
        """Run the whole table by one native call, and wait."""
        self.run()

    def launch_timed(self) -> list[int]:
        """Run each launch by a native call of its own, and return the nanoseconds of each."""
        out = []
        address = ctypes.addressof(self.table)
        for i in range(self.n):
            start = time.perf_counter_ns()
            self.pool.run(address + i * COMMAND_BYTES, 1)
            out.append(time.perf_counter_ns() - start)
        return out


def local_offsets(calls: Sequence[Call], groups: Sequence[Group]) -> tuple[list[int], int]:
    """Return the offset of each call's scratch memory, and the bytes in total.

    Calls in the lanes of one group do not share scratch memory; all others start at offset 0.
    """
    programs = [call.program for call in calls]
    n_bytes = [-(-p.local_bytes * p.n_threads // memory.ALIGN_BYTES) * memory.ALIGN_BYTES for p in programs]
    offsets, most = [0] * len(calls), max(n_bytes, default=0)
    for group in groups:
        if group.lanes:
            at = 0
            for i in group.calls:
                offsets[i], at = at, at + n_bytes[i]
            most = max(most, at)
    return offsets, most


__all__ = ["NativeCommands", "NativeDevice", "host_target", "local_offsets"]
