"""The native pool: every index once, real concurrency, order, many callers, forks, and quiet exits."""

import ctypes
import gc
import os
import re
import struct
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from monolect.backend.common.host.elf import Image, load_object
from monolect.backend.common.host.pool_ir import COMMAND_BYTES, pool_source
from monolect.backend.common.host.thread_pool import MAX_WORKERS, ThreadPool
from monolect.backend.common.llvm.compile import Compiler
from monolect.base.errors import ArgumentError

# count: args = (counters); counters[thread] += 1, not atomically.
# ordered: args = (cell, expected, failed); cell must equal expected, then becomes expected + 1.
# meet: args = (arrivals, n, failed); every thread waits, within bounds, until all n have arrived.
KERNELS = """
define void @count(ptr %args, i64 %t) {
  %base = load ptr, ptr %args
  %p = getelementptr i64, ptr %base, i64 %t
  %v = load i64, ptr %p
  %w = add i64 %v, 1
  store i64 %w, ptr %p
  ret void
}
define void @ordered(ptr %args, i64 %t) {
  %cell = load ptr, ptr %args
  %expected.p = getelementptr i64, ptr %args, i64 1
  %failed.p = getelementptr i64, ptr %args, i64 2
  %expected = load i64, ptr %expected.p
  %found = load i64, ptr %cell
  %bad = icmp ne i64 %found, %expected
  %flag = zext i1 %bad to i64
  %old = load i64, ptr %failed.p
  %new = or i64 %old, %flag
  store i64 %new, ptr %failed.p
  %next = add i64 %expected, 1
  store i64 %next, ptr %cell
  ret void
}
define void @meet(ptr %args, i64 %t) {
entry:
  %arrivals = load ptr, ptr %args
  %n.p = getelementptr i64, ptr %args, i64 1
  %failed.p = getelementptr i64, ptr %args, i64 2
  %n = load i64, ptr %n.p
  %mine = atomicrmw add ptr %arrivals, i64 1 seq_cst
  %round = udiv i64 %mine, %n
  %rounds = add i64 %round, 1
  %target = mul i64 %rounds, %n
  br label %look
look:
  %i = phi i64 [0, %entry], [%next, %again]
  %found = load atomic i64, ptr %arrivals acquire, align 8
  %all = icmp uge i64 %found, %target
  br i1 %all, label %done, label %again
again:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 20000000000
  br i1 %more, label %look, label %late
late:
  store i64 1, ptr %failed.p
  ret void
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def kernels() -> Image:
    return load_object(Compiler().compile(KERNELS))


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler()


class Table:
    """A command table and the memory it points to."""

    def __init__(self, kernels: Image, commands: list[tuple[str, list[int], int]]) -> None:
        self.arguments = [(ctypes.c_int64 * len(args))(*args) for _, args, _ in commands]
        packed = b"".join(
            struct.pack("<QQq", kernels.address(name), ctypes.addressof(block), n_threads)
            for (name, _, n_threads), block in zip(commands, self.arguments, strict=True)
        )
        self.n = len(commands)
        self.bytes = ctypes.create_string_buffer(packed, self.n * COMMAND_BYTES)
        self.address = ctypes.addressof(self.bytes)


@pytest.mark.parametrize("n_workers", [0, 1, 3])
@pytest.mark.parametrize("n_threads", [0, 1, 2, 3, 7, 100])
def test_every_index_runs_once(kernels: Image, compiler: Compiler, n_workers: int, n_threads: int) -> None:
    pool = ThreadPool(n_workers, compiler.compile)
    counters = (ctypes.c_int64 * 128)()
    table = Table(kernels, [("count", [ctypes.addressof(counters)], n_threads)] * 200)
    pool.run(table.address, table.n)
    expected = max(n_threads, 1)
    assert list(counters) == [200] * expected + [0] * (128 - expected)


def test_empty_table(compiler: Compiler) -> None:
    pool = ThreadPool(1, compiler.compile)
    pool.run(0, 0)


def test_threads_of_a_command_run_at_the_same_time(kernels: Image, compiler: Compiler) -> None:
    pool = ThreadPool(1, compiler.compile)
    arrivals = ctypes.c_int64()
    table = Table(kernels, [("meet", [ctypes.addressof(arrivals), 2, 0], 2)] * 500)
    pool.run(table.address, table.n)
    assert arrivals.value == 1000
    assert not any(block[2] for block in table.arguments)


def test_more_workers_than_cores(kernels: Image, compiler: Compiler) -> None:
    pool = ThreadPool(5, compiler.compile)
    arrivals = ctypes.c_int64()
    table = Table(kernels, [("meet", [ctypes.addressof(arrivals), 6, 0], 6)] * 3)
    pool.run(table.address, table.n)
    assert arrivals.value == 18
    assert not any(block[2] for block in table.arguments)


def test_sleeping_workers_wake(kernels: Image, compiler: Compiler) -> None:
    pool = ThreadPool(1, compiler.compile)
    arrivals = ctypes.c_int64()
    table = Table(kernels, [("meet", [ctypes.addressof(arrivals), 2, 0], 2)])
    for step in range(20):
        pool.run(table.address, 1)
        time.sleep(0.01)  # far longer than a worker spins
        assert arrivals.value == 2 * (step + 1)
    assert not table.arguments[0][2]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no sets of processors")
def test_a_worker_wakes_on_another_processor_than_its_caller(kernels: Image) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("one processor")
    program = f"""
        cpus = {cpus}
        os.sched_setaffinity(0, cpus)
        pool = ThreadPool(1, compiler.compile)
        meet(pool)
        worker = max(int(t) for t in os.listdir("/proc/self/task"))
        for cpu in (*cpus, *cpus):
            os.sched_setaffinity(0, [cpu])
            time.sleep(0.02)  # the worker falls asleep
            meet(pool)
            assert os.sched_getaffinity(worker) == set(cpus) - {{cpu}}
    """
    assert _run(program).split() == ["met"] * 5


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no sets of processors")
def test_more_workers_than_other_processors_run_on_all_of_them(kernels: Image) -> None:
    cpus = set(sorted(os.sched_getaffinity(0))[:2])
    program = f"""
        os.sched_setaffinity(0, {cpus})
        pool = ThreadPool({len(cpus)}, compiler.compile)
        meet(pool)
        workers = sorted(int(t) for t in os.listdir("/proc/self/task"))[-{len(cpus)}:]
        time.sleep(0.02)
        meet(pool)
        assert all(os.sched_getaffinity(w) == {cpus} for w in workers)
    """
    assert _run(program).split() == ["met"] * 2


def test_commands_run_in_order(kernels: Image, compiler: Compiler) -> None:
    pool = ThreadPool(1, compiler.compile)
    cell = ctypes.c_int64()
    counters = (ctypes.c_int64 * 4)()
    commands: list[tuple[str, list[int], int]] = []
    for step in range(300):
        commands.append(("ordered", [ctypes.addressof(cell), step, 0], 1))
        commands.append(("count", [ctypes.addressof(counters)], 4))
    table = Table(kernels, commands)
    pool.run(table.address, table.n)
    assert cell.value == 300 and list(counters) == [300] * 4
    assert not any(block[2] for block in table.arguments[::2])


def test_many_callers(kernels: Image, compiler: Compiler) -> None:
    pool = ThreadPool(2, compiler.compile)
    results: list[list[int]] = []

    def call() -> None:
        counters = (ctypes.c_int64 * 5)()
        arrivals = ctypes.c_int64()
        commands: list[tuple[str, list[int], int]] = [("count", [ctypes.addressof(counters)], 5)] * 50
        table = Table(kernels, [*commands, ("meet", [ctypes.addressof(arrivals), 2, 0], 2)])
        for _ in range(20):
            pool.run(table.address, table.n)
        results.append([*counters, arrivals.value, table.arguments[-1][2]])

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[1000] * 5 + [40, 0]] * 6


def test_raw_entry_point_starts_the_workers(kernels: Image, compiler: Compiler) -> None:
    pool = ThreadPool(1, compiler.compile)
    entry = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(pool.run_address)
    arrivals = ctypes.c_int64()
    table = Table(kernels, [("meet", [ctypes.addressof(arrivals), 2, 0], 2)])
    entry(pool.address, table.address, 1)  # a caller that keeps the interpreter lock
    assert arrivals.value == 2 and not table.arguments[0][2]


def test_collected_pool_ends_its_threads(kernels: Image, compiler: Compiler) -> None:
    pool = ThreadPool(2, compiler.compile)
    counters = (ctypes.c_int64 * 3)()
    table = Table(kernels, [("count", [ctypes.addressof(counters)], 3)])
    pool.run(table.address, 1)
    threads = list(pool._threads)
    assert len(threads) == 2
    del pool
    gc.collect()
    for thread in threads:
        thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in threads)


def test_impossible_worker_counts_are_refused(compiler: Compiler) -> None:
    for n_workers in (-1, MAX_WORKERS + 1):
        with pytest.raises(ArgumentError):
            ThreadPool(n_workers, compiler.compile)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("is_linux", [True, False])
def test_source_compiles_for_every_system(machine: str, is_linux: bool) -> None:
    source = pool_source(machine, is_linux)
    if machine != Compiler().machine:  # inline assembly is checked where it is native, all else here
        source = re.sub(r"call void asm .*", "", re.sub(r"call i64 asm .*", "add i64 %number, 0", source))
    assembly = Compiler(machine).assembly(source)
    assert "run_commands:" in assembly and "worker_loop:" in assembly


@pytest.mark.sweep
@pytest.mark.parametrize("opt", [0, 1, 3])
def test_pool_code_is_right_at_every_level(kernels: Image, opt: int) -> None:
    program = f"""
        pool = ThreadPool(1, lambda ir: compiler.compile(ir, {opt}))
        meet(pool)
    """
    assert _run(program) == "met"


def test_without_futex_the_pool_polls(kernels: Image) -> None:
    program = """
        sys.platform = "other"
        pool = ThreadPool(1, compiler.compile)
        meet(pool)
        time.sleep(0.01)
        sys.stdout = open(os.devnull, "w")
        meet(pool)
    """
    assert _run(program) == "met"


def test_forked_children_start_their_own_workers() -> None:
    program = """
        pool = ThreadPool(1, compiler.compile)
        meet(pool)
        child = os.fork()
        if child == 0:
            meet(pool)
            grandchild = os.fork()
            if grandchild == 0:
                meet(pool)
                os._exit(0)
            os._exit(os.waitpid(grandchild, 0)[1] != 0)
        assert os.waitpid(child, 0)[1] == 0
        meet(pool)
    """
    assert _run(program).split() == ["met"] * 4


def test_exit_with_busy_and_spinning_workers_is_quiet() -> None:
    program = """
        pool = ThreadPool(3, compiler.compile)
        meet(pool)
        threading.Thread(target=lambda: [meet(pool) for _ in range(10**9)], daemon=True).start()
        time.sleep(0.05)
        sys.stdout.flush()
        sys.stdout = open(os.devnull, "w")
    """
    assert set(_run(program).split()) == {"met"}


def _run(program: str) -> str:
    """Output of a fresh process that runs `program` after defining `compiler` and `meet(pool)`."""
    prelude = f"""
import ctypes, os, struct, sys, threading, time
from monolect.backend.common.host.elf import load_object
from monolect.backend.common.llvm.compile import Compiler
from monolect.backend.common.host.thread_pool import ThreadPool
compiler = Compiler()
kernels = load_object(compiler.compile({KERNELS!r}))
def meet(pool):
    arrivals = ctypes.c_int64()
    args = (ctypes.c_int64 * 3)(ctypes.addressof(arrivals), 2, 0)
    table = struct.pack("<QQq", kernels.address("meet"), ctypes.addressof(args), 2)
    table = ctypes.create_string_buffer(table)
    pool.run(ctypes.addressof(table), 1)
    assert arrivals.value == 2 and not args[2]
    os.write(1, b"met\\n") if sys.stdout.name != os.devnull else None
"""
    command = [sys.executable, "-W", "ignore", "-c", prelude + textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.strip()
