"""Addresses for handles: ranges, parts, recycling, and running out of memory, on a device of dictionaries."""

import gc

import numpy as np
import pytest

from monolect.backend.common.gpu.handles import HandleAllocator
from monolect.backend.common.gpu.memory import GpuMemory, UploadStream
from monolect.base.errors import AllocationError


class Allocator(HandleAllocator):
    """Handles are byte arrays; there are at most `limit` bytes of them."""

    def __init__(self, limit: int, max_cached_bytes: int = 1 << 20):
        super().__init__("toy", max_cached_bytes)
        self.limit, self.made, self.waits = limit, 0, 0

    def create(self, n_bytes):
        if self.made + n_bytes > self.limit:
            raise AllocationError("full")
        self.made += n_bytes
        return bytearray(n_bytes)

    def release(self, handle):
        self.made -= len(handle)

    def wait(self):
        self.waits += 1

    def read(self, memory):
        return np.frombuffer(bytes(memory.block.handle[: memory.n_bytes]), np.uint8)


def test_an_address_inside_is_a_handle_and_an_offset():
    memory = Allocator(1 << 20)
    a, b = memory.alloc(1000), memory.alloc(5000)
    assert memory.find(a.address) == (a.block, 0) and memory.find(b.address + 4999) == (b.block, 4999)
    assert a.address + 1000 < b.address and b.view(np.uint8).shape == (5000,)
    for outside in (0, a.address - 1, a.address + a.block.n_bytes, b.address + (1 << 20)):
        with pytest.raises(AllocationError, match="no memory at this address"):
            memory.find(outside)


def test_a_block_is_handed_out_again_and_counted():
    memory = Allocator(1 << 20)
    a = memory.alloc(1000)
    block, size = a.block, a.block.n_bytes
    assert (memory.used_bytes, memory.cached_bytes) == (size, 0)
    del a
    gc.collect()
    assert (memory.used_bytes, memory.cached_bytes) == (0, size)
    assert memory.alloc(990).block is block and memory.made == size


def test_what_is_kept_is_bounded_and_addresses_are_never_used_again():
    memory = Allocator(1 << 20, max_cached_bytes=4096)
    seen = set()
    for n in (1024, 2048, 4096, 8192):
        a = memory.alloc(n)
        assert a.address not in seen
        seen.add(a.address)
        del a
    assert memory.cached_bytes <= 4096 and memory.made <= 4096
    memory.trim()
    assert memory.cached_bytes == memory.made == 0
    for address in seen:
        with pytest.raises(AllocationError):
            memory.find(address)


def test_without_memory_what_is_kept_is_freed_and_it_is_tried_once_more():
    memory = Allocator(8192)
    a = memory.alloc(4096)
    del a
    b = memory.alloc(8192)  # only when the cached block is gone
    assert memory.waits == 1 and memory.cached_bytes == 0
    with pytest.raises(AllocationError, match=r"toy has no memory for 100 bytes.*full") as caught:
        memory.alloc(100)
    assert memory.waits == 2 and "smaller batches" in str(caught.value) and "8192 bytes in use" in str(caught.value)
    del b
    assert memory.alloc(100).n_bytes == 100


class Calls:
    """A driver that only hands out addresses."""

    device = "toy"

    def __init__(self):
        self.next = 1 << 20

    def __call__(self, name, *args, at=""):
        self.next += 1 << 24
        return self.next


def test_what_is_given_back_to_a_gpu_is_forgotten():
    memory = GpuMemory(Calls(), 0, 1 << 30)
    memory._upload = UploadStream(memory.driver, 0)
    for _ in range(3):
        blocks = [memory.alloc(1 << 20) for _ in range(4)]
        del blocks
        gc.collect()
        assert len(memory._freed_epochs) == 4
        memory.trim()
        assert not memory._freed_epochs
