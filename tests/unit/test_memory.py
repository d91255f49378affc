"""The host allocator: alignment, recycling, lifetime of views, and the bound on what is kept."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from monolect.backend.common import pages
from monolect.backend.common.host import memory
from monolect.backend.common.host.memory import (
    HUGE_PAGE_BYTES,
    SMALL_BYTES,
    Allocator,
    alloc,
    class_bytes,
    from_array,
    stats,
)
from monolect.backend.common.llvm.compile import Compiler
from monolect.base.errors import AllocationError, ArgumentError, CompileError

SIZES = [0, 1, 63, 64, 65, 4096, 5000, SMALL_BYTES, SMALL_BYTES + 1, 1 << 20, HUGE_PAGE_BYTES, (3 << 20) + 1]


@pytest.mark.parametrize("n_bytes", SIZES)
def test_block_is_aligned_and_writable_to_its_end(n_bytes: int) -> None:
    memory = alloc(n_bytes)
    assert memory.n_bytes == n_bytes
    assert memory.address % (HUGE_PAGE_BYTES if n_bytes >= HUGE_PAGE_BYTES else 64) == 0
    array = memory.view(np.uint8)
    assert array.shape == (n_bytes,)
    array[...] = 7
    assert np.all(array == 7)


@pytest.mark.parametrize("n_bytes", [1, 64, 65, 256, 257, 1000, 1024, 1025, SMALL_BYTES, (1 << 30) + 1])
def test_size_class_holds_its_block_and_wastes_less_than_a_quarter(n_bytes: int) -> None:
    size = class_bytes(n_bytes)
    assert size >= n_bytes and size % 64 == 0
    assert size - n_bytes < max(64, n_bytes / 4)
    assert class_bytes(size) == size


def test_every_small_size_gets_the_shelf_of_its_class() -> None:
    allocator = Allocator()
    for units in range(SMALL_BYTES // 64 + 1):
        assert allocator._free_lists[units].size == class_bytes(units * 64)


@pytest.mark.parametrize("n_bytes", [100, 100_000, 1 << 20, 4 << 20])
def test_freed_block_is_handed_out_again(n_bytes: int) -> None:
    allocator = Allocator()
    first = allocator.alloc(n_bytes)
    address = first.address
    del first
    assert allocator.alloc(n_bytes).address == address


def test_live_blocks_do_not_overlap() -> None:
    allocator = Allocator()
    blocks = [allocator.alloc(n) for n in SIZES * 3 + list(range(1, 2000, 37))]
    ranges = sorted((block.address, block.address + max(block.n_bytes, 1)) for block in blocks)
    assert all(end <= start for (_, end), (start, _) in zip(ranges, ranges[1:], strict=False))


@pytest.mark.parametrize("n_bytes", [256, 4 << 20])
def test_view_keeps_its_block(n_bytes: int) -> None:
    allocator = Allocator()
    view = allocator.alloc(n_bytes).view(np.float32)[4:]
    view[...] = 3.0
    gc.collect()
    others = [allocator.alloc(n_bytes) for _ in range(20)]
    for other in others:
        other.view(np.uint8)[...] = 0xFF
    assert np.all(view == 3.0)


def test_view_of_a_partial_element_is_refused() -> None:
    with pytest.raises(ValueError):
        alloc(6).view(np.float32)


def test_borrowed_memory_shares_and_keeps_the_array() -> None:
    array = np.arange(10, dtype=np.int32)
    memory = from_array(array)
    assert memory.address == array.ctypes.data and memory.n_bytes == 40
    memory.view(np.int32)[3] = 99
    assert array[3] == 99
    memory = from_array(np.full(1000, 5.0))
    gc.collect()
    assert np.all(memory.view(np.float64) == 5.0)


def test_borrowed_memory_of_a_read_only_array_stays_read_only() -> None:
    array = np.zeros(4)
    array.flags.writeable = False
    assert not from_array(array).view(np.float64).flags.writeable


def test_strided_array_is_refused() -> None:
    with pytest.raises(ArgumentError, match="C-contiguous"):
        from_array(np.zeros((4, 4)).T[1:])


def test_negative_and_impossible_sizes_are_refused() -> None:
    with pytest.raises(ArgumentError):
        alloc(-1)
    with pytest.raises(AllocationError):
        alloc(1 << 60)


@pytest.mark.parametrize("n_bytes", [64, 1 << 20])
def test_without_memory_what_is_kept_is_freed_and_it_is_tried_once_more(n_bytes: int, monkeypatch) -> None:
    allocator = Allocator()
    kept = allocator.alloc(16 << 20)
    del kept
    assert allocator.stats().cached_large_bytes == 16 << 20
    asked, real = [], memory.map_pages

    def full(n: int, until: int = 2):
        asked.append(n)
        if len(asked) < until:
            raise AllocationError(f"the system has no {n} bytes of memory")
        return real(n)

    monkeypatch.setattr(memory, "map_pages", full)
    block = allocator.alloc(n_bytes)
    assert len(asked) == 2 and allocator.stats().cached_large_bytes == 0
    asked.clear()
    monkeypatch.setattr(memory, "map_pages", lambda n: full(n, until=99))
    with pytest.raises(AllocationError, match="devices of the host: the system has no") as caught:
        allocator.alloc(32 << 20)
    assert len(asked) == 2, "once more, and no more"
    assert "smaller batches" in str(caught.value) and "bytes in use" in str(caught.value)
    assert block.n_bytes == n_bytes


def test_cached_large_blocks_are_bounded() -> None:
    allocator = Allocator(max_cached_bytes=8 << 20)
    blocks = [allocator.alloc(3 << 20) for _ in range(6)]
    assert allocator.stats().used_bytes == 18 << 20
    del blocks
    found = allocator.stats()
    assert found.used_bytes == 0
    assert 0 < found.cached_large_bytes <= 8 << 20
    assert found.mapped_bytes == found.cached_bytes
    allocator.trim()
    assert allocator.stats().mapped_bytes == 0
    assert allocator.stats().peak_bytes == 18 << 20


def test_stats_count_small_blocks() -> None:
    allocator = Allocator()
    blocks = [allocator.alloc(100) for _ in range(50)]
    assert allocator.stats().used_bytes == 50 * 128
    del blocks
    assert allocator.stats().used_bytes == 0
    assert stats().mapped_bytes >= stats().used_bytes


def test_threads_never_share_a_block() -> None:
    allocator = Allocator(max_cached_bytes=1 << 20)
    errors: list[str] = []

    def work(mark: int) -> None:
        for step in range(300):
            blocks = [allocator.alloc(n) for n in (64, 200, 5000, 300_000 + step)]
            for block in blocks:
                block.view(np.uint8)[:64] = mark
            for block in blocks:
                if np.any(block.view(np.uint8)[:64] != mark):
                    errors.append(f"{block} was written by another thread")

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert allocator.stats().used_bytes == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_has_its_own_copy() -> None:
    memory = alloc(1 << 20)
    view = memory.view(np.uint8)
    view[...] = 1
    child = os.fork()
    if child == 0:
        view[...] = 2
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert np.all(view == 1)


def flags(address: int) -> list[str]:
    """What the system was told about the pages at an address: hg wants huge ones, nh none."""
    try:
        with open("/proc/self/smaps", encoding="ascii") as f:
            lines = f.read().split("\n")
    except OSError:
        pytest.skip("the system does not tell about its pages: no /proc/self/smaps")
    inside = False
    for line in lines:
        first, _, rest = line.partition(" ")
        if "-" in first and ":" not in first:
            low, high = (int(x, 16) for x in first.split("-"))
            inside = low <= address < high
        elif inside and first == "VmFlags:":
            return rest.split()
    raise AssertionError("an address that is not mapped")


class Clock:
    """Time that passes at each look at a thread's clock, by `page_ns`, and otherwise by hand."""

    def __init__(self, page_ns: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.page_ns, self.now_ns, self.looks, self.now_s = page_ns, 0, 0, 100.0
        monkeypatch.setattr(memory.time, "thread_time_ns", self.thread)
        monkeypatch.setattr(memory.time, "monotonic", lambda: self.now_s)

    def thread(self) -> int:
        self.looks += 1
        self.now_ns += self.page_ns
        return self.now_ns


def needs_huge_pages() -> None:
    block = Allocator().alloc(HUGE_PAGE_BYTES)
    if not {"hg", "nh"} & set(flags(block.address)):
        pytest.skip("a kernel without huge pages")


def test_huge_pages_that_come_fast_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_huge_pages()
    clock = Clock(100_000, monkeypatch)
    block = Allocator().alloc(5 * HUGE_PAGE_BYTES)
    assert "hg" in flags(block.address + 4 * HUGE_PAGE_BYTES)
    assert clock.looks == 10  # all of a block of 10 MiB came
    clock.looks = 0
    large = Allocator().alloc(1 << 30)
    assert "hg" in flags(large.address) and clock.looks == 64  # of a large one the first 64 MiB


def test_huge_pages_that_come_slowly_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_huge_pages()
    clock = Clock(5_000_000, monkeypatch)
    allocator = Allocator()
    block = allocator.alloc(5 * HUGE_PAGE_BYTES)
    assert "nh" in flags(block.address + 4 * HUGE_PAGE_BYTES) and clock.looks == 2  # one was enough
    second = allocator.alloc(5 * HUGE_PAGE_BYTES)
    assert "hg" not in flags(second.address) and clock.looks == 2  # nor is another tried at once
    clock.now_s += 10
    third = allocator.alloc(5 * HUGE_PAGE_BYTES)
    assert "nh" in flags(third.address) and clock.looks == 4


def test_memory_that_is_used_again_may_become_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_huge_pages()
    Clock(5_000_000, monkeypatch)
    allocator = Allocator()
    block = allocator.alloc(5 * HUGE_PAGE_BYTES)
    address = block.address
    del block
    again = allocator.alloc(5 * HUGE_PAGE_BYTES)
    assert again.address == address and "hg" in flags(address)


def test_large_blocks_are_prepared_while_their_pages_come() -> None:
    allocator, n = Allocator(), 24 << 20
    threads = allocator.prepare([n, 1000, n, 3 << 20])
    assert len(threads) == 2 and allocator.stats().used_bytes == 0, "small ones come fast enough"
    mapped = allocator.stats().mapped_bytes
    blocks = [allocator.alloc(n) for _ in range(2)]
    for k, block in enumerate(blocks):
        block.view(np.uint8)[:] = k + 1  # at once: who makes pages come writes nothing
    for t in threads:
        t.join()
    assert all(np.all(b.view(np.uint8) == k + 1) for k, b in enumerate(blocks))
    assert allocator.stats().mapped_bytes == mapped
    del blocks, block
    assert allocator.prepare([n, n]) == [], "what was used before is there"
    allocator.prepare([64 << 20])
    allocator.trim()  # whoever still makes pages come there fails without harm
    assert allocator.stats().cached_bytes < 1 << 20


def test_prepared_pages_stay_small_where_huge_ones_come_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_huge_pages()
    Clock(5_000_000, monkeypatch)
    allocator = Allocator()
    (thread,) = allocator.prepare([32 << 20])
    block = allocator.alloc(32 << 20)
    thread.join()
    assert "hg" not in flags(block.address + (30 << 20))
    address = block.address
    del block
    assert allocator.alloc(32 << 20).address == address and "hg" in flags(address), "used again"


def test_no_more_is_prepared_than_is_kept() -> None:
    allocator = Allocator(max_cached_bytes=40 << 20)
    assert len(allocator.prepare([24 << 20, 24 << 20, 8 << 20])) == 2
    assert allocator.stats().cached_large_bytes <= 40 << 20


def test_without_the_systems_call_pages_come_as_they_are_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_c_function", lambda *_: None)
    allocator = Allocator()
    for t in allocator.prepare([8 << 20]):
        t.join()
    assert np.all(allocator.alloc(8 << 20).view(np.uint8) == 0)


def test_what_cannot_be_prepared_is_refused_when_it_is_asked_for() -> None:
    allocator = Allocator(max_cached_bytes=1 << 61)
    assert allocator.prepare([1 << 60]) == []
    with pytest.raises(AllocationError):
        allocator.alloc(1 << 60)


def test_what_a_name_holds_is_told_from_what_others_hold() -> None:
    thing = object()
    assert sys.getrefcount(thing) == memory.ONE_REF
    others = [thing]
    assert sys.getrefcount(thing) == memory.ONE_REF + len(others)


def test_memory_is_what_a_container_may_use(monkeypatch, tmp_path):
    limits = [tmp_path / "memory.max", tmp_path / "limit_in_bytes"]
    monkeypatch.setattr(memory, "CGROUP_LIMITS", tuple(map(str, limits)))
    whole = memory.machine_bytes()
    assert whole > 0
    limits[0].write_text("max\n")
    limits[1].write_text(f"{1 << 62}\n")
    assert memory.machine_bytes() == whole
    limits[0].write_text("1048576\n")
    assert memory.machine_bytes() == 1 << 20


def resident_bytes(address: int, n_bytes: int) -> int:
    """Of these addresses, how much is in memory."""
    found = inside = 0
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as f:
        for line in f:
            first, *rest = line.split()
            if not first.endswith(":"):
                low, high = (int(x, 16) for x in first.split("-"))
                inside = address < high and low < address + n_bytes
            elif inside and first == "Rss:":
                found += int(rest[0]) * 1024
    return found


def test_the_compilers_pages_are_dropped_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.path.exists("/proc/self/smaps"):
        pytest.skip("the system does not tell about its pages: no /proc/self/smaps")
    compiler = Compiler()
    text = "define i32 @f(i32 %x) {\n  %y = mul i32 %x, 7\n  ret i32 %y\n}\n"
    code = compiler.compile(text)
    assert pages._compiler_pages, "the library is not found"
    now = [1000.0]
    monkeypatch.setattr(pages.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(pages, "_next_drop_s", 0.0)

    def resident() -> int:
        return sum(resident_bytes(*part) for part in pages._compiler_pages.items())

    assert resident() > 4 << 20
    pages.trim_memory()
    assert resident() < 1 << 20
    assert compiler.compile(text) == code, "what was dropped is read from the file"
    pages.trim_memory()
    assert resident() > 4 << 20, "not each time"
    now[0] += pages.DROP_EVERY_S
    pages.trim_memory()
    assert resident() < 1 << 20
    with pytest.raises(CompileError):
        compiler.compile(text.replace("mul", "none"))


def test_no_page_is_dropped_that_was_written() -> None:
    """Neither one that may be, nor one that the dynamic linker protected after it wrote there."""
    if not os.path.exists("/proc/self/smaps"):
        pytest.skip("the system does not tell about its pages: no /proc/self/smaps")
    Compiler().compile("")
    assert pages._compiler_pages
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as f:
        lines = [line.split() for line in f]
    starts = [k for k, line in enumerate(lines) if not line[0].endswith(":")]
    n_seen = 0
    for first, after in zip(starts, [*starts[1:], len(lines)], strict=True):
        low, high = (int(x, 16) for x in lines[first][0].split("-"))
        if any(low < address + n and address < high for address, n in pages._compiler_pages.items()):
            n_seen += 1
            assert "w" not in lines[first][1]
            assert dict(line[:2] for line in lines[first + 1 : after])["Anonymous:"] == "0"
    assert n_seen >= len(pages._compiler_pages)


LOOKS_AND_LOADS = """
import _ctypes, ctypes, sys, sysconfig, threading
from pathlib import Path
from monolect.backend.common import pages
import llvmlite.binding as llvm
sys.setswitchinterval(1e-6)
function = ctypes.cast(ctypes.CDLL(llvm.ffi.lib._name).LLVMPY_DisposeString, ctypes.c_void_p).value
libraries = [str(p) for p in Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so")]
assert len(libraries) > 10 and pages._read_only_pages(function)
is_done = False
def look():
    while not is_done:
        pages._read_only_pages(function)
thread = threading.Thread(target=look)
thread.start()
for _ in range(10):
    for p in libraries:
        _ctypes.dlclose(ctypes.CDLL(p)._handle)
is_done = True
thread.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems load no ELF libraries")
def test_a_compiler_is_found_while_another_thread_imports() -> None:
    """Neither waits for ever: the dynamic linker's lock and the interpreter's are never wanted in both orders."""
    subprocess.run([sys.executable, "-c", LOOKS_AND_LOADS], check=True, timeout=120)
