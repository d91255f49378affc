"""The heap that the processes of a host share, of a host with one process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monolect.backend.mpi import heap as module
from monolect.backend.mpi.heap import Heap

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has files without names")
MIB = 1 << 20


class Host:
    """A communicator of one process."""

    def Get_size(self) -> int:
        return 1

    def Get_rank(self) -> int:
        return 0

    def allgather(self, value: Any) -> list[Any]:
        return [value]


@pytest.fixture
def heap() -> Heap:
    made = Heap(Host())
    if made.alloc(1) is None:
        pytest.skip("a system that cannot fault pages ahead")
    return made


def shared_bytes() -> int:
    rows = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) << 10 for row in rows if row.startswith("RssShmem"))


def test_blocks_do_not_overlap_and_are_used_again(heap: Heap) -> None:
    blocks = [heap.alloc(n) for n in (1, 5000, 3 * MIB, 1, 4 * MIB, 5 * MIB)]
    ends = sorted((b.address, b.address + b.n_bytes) for b in blocks if b is not None)
    assert len(ends) == 6 and all(a[1] <= b[0] for a, b in zip(ends, ends[1:], strict=False))
    end = heap.end
    del blocks
    for _ in range(100):
        again = heap.alloc(3 * MIB)
        assert again is not None
        again.view(np.uint8)[:] = 7
        assert heap.files[0][heap.offset_of(again.view(np.uint8))] == 7
    assert heap.end == end and heap.offset_of(np.zeros(4)) == -1


def test_pages_beyond_what_is_cached_return_to_the_system(heap: Heap, monkeypatch: pytest.MonkeyPatch) -> None:
    before = shared_bytes()
    block = heap.alloc(64 * MIB)
    assert block is not None and shared_bytes() >= before + 64 * MIB
    monkeypatch.setattr(module, "CACHED", heap.n_bytes)
    del block
    assert shared_bytes() < before + MIB and heap.cached_bytes < MIB
    assert heap.alloc(64 * MIB) is not None


def test_without_room_there_is_no_memory(heap: Heap, monkeypatch: pytest.MonkeyPatch) -> None:
    assert heap.alloc(heap.n_bytes) is None
    monkeypatch.setattr(module, "POPULATE_WRITE", 9999)  # as if the system had no memory
    assert heap.alloc(64 * MIB) is None
    monkeypatch.setattr(module, "machine_bytes", lambda: 0)
    empty = Heap(Host())
    assert empty.alloc(1) is None and empty.offset_of(np.zeros(4)) == -1
    monkeypatch.delattr(os, "memfd_create")
    assert not Heap(Host()).files
