"""Run tables of commands on a pool of native threads; the native code is in `pool_ir`.

What it is for: launching kernels without returning to Python between them. A kernel is `void kernel(ptr args, i64
thread)`, `args` an array of 8-byte slots (buffer addresses, or i64 scalars). A command is `{ptr fn, ptr args, i64
n_threads}`; `run_commands(ptr pool, ptr table, i64 n)` runs n of them in order, each complete before the next starts.

What it does not do: read arguments of a command, or order anything but the commands of a table. It is not re-entrant: a
kernel must not call `run_commands` on its own pool. At most `n_workers + 1` threads of a command run at the same time,
so kernels whose threads wait for each other must not have more threads.

Invariant: thread indices 0 .. n_threads-1 of a command each run exactly once, and all effects of a command are visible
to the commands after it.

The threads are Python daemon threads inside a native loop, without the interpreter lock. The first command with several
threads starts them: the pool calls back into Python once. A forked child has no workers and starts new ones likewise.
"""

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Final

from monolect.backend.common.host.elf import Image, load_object
from monolect.backend.common.host.pool_ir import LINE_BYTES, SHARES, SIZE, START, pool_source
from monolect.backend.common.llvm.compile import host_features
from monolect.base.errors import ArgumentError

MAX_WORKERS: Final = 1021  # participants with the caller are one less than `_STOP`, which stops the workers


def _externals(is_linux: bool) -> dict[str, int]:
    if is_linux:
        return {}
    libc = ctypes.CDLL(None)
    return {name: ctypes.cast(libc[name], ctypes.c_void_p).value or 0 for name in ("sched_yield", "usleep")}


_loaded: list[Image] = []  # the pool's code once it is loaded; all pools of the process share it


def _image(cached_compile: Callable[[str], bytes]) -> Image:
    if not _loaded:
        is_linux = sys.platform == "linux"
        source = pool_source(host_features().machine, is_linux)
        _loaded.append(load_object(cached_compile(source), _externals(is_linux)))
    return _loaded[0]


_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_WORKER_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_STOP_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_START_CALLBACK = ctypes.CFUNCTYPE(None)


class ThreadPool:
    """A pool of `n_workers` threads in addition to the callers; with 0 everything runs on the caller.

    `cached_compile` compiles LLVM IR text to object bytes; it is called once a process. Several Python threads may run
    commands at the same time: commands with one thread need no lock, commands with several threads run one after the
    other. If the system refuses more threads, the pool works with fewer. Keep the pool alive while its `address` is in
    use. After it is collected, or the interpreter exits, its commands run on the caller alone.
    """

    def __init__(self, n_workers: int, cached_compile: Callable[[str], bytes]) -> None:
        if not 0 <= n_workers <= MAX_WORKERS:
            raise ArgumentError("number of pool workers", expected=f"0 to {MAX_WORKERS}", found=n_workers)
        image = _image(cached_compile)
        self.n_workers = n_workers
        self.run_address: int = image.address("run_commands")  # void (ptr pool, ptr table, i64 n)
        self.lane_address: int = image.address("run_lane")  # a kernel: void (ptr lanes, i64 thread)
        self._run = _ENTRY(self.run_address)
        self._worker_loop = _WORKER_ENTRY(image.address("worker_loop"))
        self._resize = _WORKER_ENTRY(image.address("resize"))
        self._stop = _STOP_ENTRY(image.address("stop_workers"))
        self._mutex = threading.RLock()
        self._threads: list[threading.Thread] = []
        reference = weakref.ref(self)  # the callback must not keep the pool alive
        self._callback = _START_CALLBACK(lambda: _begin(reference))
        n_bytes = SHARES + (n_workers + 1) * LINE_BYTES
        storage = ctypes.create_string_buffer(n_bytes + LINE_BYTES)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(storage))  # a worker may still spin on it while Python exits
        self.address: int = (ctypes.addressof(storage) + LINE_BYTES - 1) & -LINE_BYTES
        self._n_bytes = n_bytes
        self._reset()
        _pools.add(self)
        weakref.finalize(self, _finish, self._stop, self.address, self._threads)

    def run(self, table_address: int, n: int) -> None:
        """Run the `n` commands of the table at `table_address` in order, and return when the last is complete."""
        self._run(self.address, table_address, n)

    def _reset(self) -> None:
        """Initialize the pool's structure, with workers not started yet."""
        callback = ctypes.cast(self._callback, ctypes.c_void_p).value if self.n_workers else None
        ctypes.memset(self.address, 0, self._n_bytes)
        ctypes.c_int64.from_address(self.address + SIZE).value = 1
        ctypes.c_void_p.from_address(self.address + START).value = callback

    def _start(self) -> None:
        with self._mutex:
            if self._threads:
                return
            for index in range(1, self.n_workers + 1):
                arguments = (self.address, index)
                thread = threading.Thread(target=self._worker_loop, args=arguments, name="monolect", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system refuses more threads: the pool works with fewer
                    break
                self._threads.append(thread)
            self._resize(self.address, len(self._threads) + 1)

    def _forget_workers(self) -> None:
        """Reset the pool in a forked child, where no worker exists and a missing thread may hold a lock."""
        self._mutex = threading.RLock()
        self._threads.clear()
        self._reset()


def _begin(reference: "weakref.ref[ThreadPool]") -> None:
    pool = reference()
    if pool is not None:
        pool._start()


def _finish(stop: Callable[[int], None], address: int, threads: list[threading.Thread]) -> None:
    stop(address)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(timeout=1.0)


_pools: "weakref.WeakSet[ThreadPool]" = weakref.WeakSet()


def _after_fork() -> None:
    global _sharing
    _sharing = threading.Lock()
    for pool in _pools:
        pool._forget_workers()


_shared: weakref.WeakValueDictionary[int, ThreadPool] = weakref.WeakValueDictionary()  # by number of workers
_sharing = threading.Lock()


def shared_pool(n_workers: int, cached_compile: Callable[[str], bytes]) -> ThreadPool:
    """Return the pool of `n_workers` threads that the devices of this process share. More devices need no more threads,
    as their commands with several threads run one after the other.
    """
    with _sharing:
        pool = _shared.get(n_workers)
        if pool is None:
            pool = _shared[n_workers] = ThreadPool(n_workers, cached_compile)
        return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


__all__ = ["MAX_WORKERS", "ThreadPool", "shared_pool"]
