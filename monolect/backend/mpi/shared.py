"""Combine values of the processes of one host in memory that they share.

Each process has two slots, into which it copies a chunk of its value, and two results, into which it combines its part
of a chunk. So a value is read once and written once, and all else stays in the caches. A loop has three phases at once:
copy chunk t, combine chunk t - 1, read the results of chunk t - 2; a barrier ends each iteration. A value of few bytes
is combined by each process on its own, with one barrier.

Values and results in the heaps of all processes (`heap.py`) are combined in place: each process reads its part of all
values and stores it to all results, between two barriers. So no byte is copied.

Invariant: a process writes to a slot or a result only after the others have read what it held before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import disk_usage
from typing import Any

import numpy as np

from monolect.backend.mpi.heap import Heap
from monolect.base.errors import DistributedError

SLOT_BYTES = 16 << 20  # bytes of a slot; a smaller one costs barriers, which are slow if processors are shared
HOST_BYTES = 64 << 20  # bytes of one slot of all processes; more processes have smaller slots
SMALL_BYTES = 1 << 15  # bytes up to which reading all values takes less time than a second barrier
MAX_IN_PLACE = 8  # processes that store to the results of all; more stores at once than buffers of a core are slow
LINE_BYTES = 64  # bytes of a cache line; parts begin on one
PAGE_BYTES = 4096
SHARED_FOLDER = Path("/dev/shm")  # where Linux has such memory; a container may limit its size

# (results, which get equal values, partial values in order), all of them arrays of bytes
Combine = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]
Wait = Callable[[Callable[[], Sequence[int]]], None]  # wait until the function, which lists missing ranks, returns none


class SharedMemory:
    """The memory that the processes of a host share. `members`: their ranks in the job. All of them make it at once.

    The first page of each process has counters. Counter k of process i is the number of times that i has met k, or
    arrived to meet it. The last four counters are the tag of the program that i runs, the size of the value that it
    combines now, and where the value and the result are in its heap, -1 if one of them is not.
    """

    def __init__(self, comm: Any, host: Any) -> None:
        """`comm`, `host`: the communicators of the job and of the processes on this host."""
        n = host.Get_size()
        self.me: int = host.Get_rank()
        self.members: list[int] = host.allgather(comm.Get_rank())  # empty if the host has no memory to share
        slot = host.bcast(min(SLOT_BYTES, HOST_BYTES // n, _room() // (2 * (n + 1)))) // PAGE_BYTES * PAGE_BYTES
        result = _rounded(-(-slot // n), PAGE_BYTES)
        counters = _rounded(8 * (n + 4), PAGE_BYTES)
        self.window: Any = _window(host, counters + 2 * slot + 2 * result) if slot >= SMALL_BYTES else None
        if self.window is None:
            self.members = []
            return
        self.window.Lock_all()  # as `Sync` needs it
        whole = [np.frombuffer(self.window.Shared_query(k)[0], np.uint8) for k in range(n)]
        self.counters = [m[:counters].view(np.int64) for m in whole]
        ends = np.cumsum([counters, slot, slot, result, result]).tolist()
        parts = [[m[a:b] for a, b in zip(ends, ends[1:], strict=False)] for m in whole]
        self.slots, self.results = [p[:2] for p in parts], [p[2:] for p in parts]
        self.slot_bytes = slot
        self.heap = Heap(host)
        self.readers: list[int] = []  # processes that may still read what this one wrote
        self.counters[self.me][:] = 0
        self.window.Sync()
        host.Barrier()

    def holds(self, ranks: Sequence[int]) -> bool:
        """Return whether the processes `ranks` share this memory."""
        return set(ranks) <= {*self.members}

    def allreduce(
        self, data: np.ndarray, into: np.ndarray, combine: Combine, ranks: Sequence[int], tag: int, wait: Wait
    ) -> None:
        """See `Transport.allreduce`. `tag`: names the program that combines. Raises DistributedError if a process
        combines a value of another size or of another program.
        """
        group = [self.members.index(rank) for rank in ranks]
        self._meet(self.readers, wait)
        self.readers = group
        offsets = self.heap.offset_of(data), self.heap.offset_of(into)
        is_shared = min(offsets) >= 0 and len(group) <= MAX_IN_PLACE
        self.counters[self.me][-4:] = tag, data.size, *(offsets if is_shared else (-1, -1))
        if data.size <= SMALL_BYTES:
            self.slots[self.me][0][: data.size] = data
            self._arrive(group)
            self._meet(group, wait)
            self._check_equal(group)
            combine([into], [data if k == self.me else self.slots[k][0][: data.size] for k in group])
            self._arrive(group)
            return
        if not is_shared:
            self._fill(0, data, group)
        self._arrive(group)
        self._meet(group, wait)
        self._check_equal(group)
        shared = [self.counters[k][-1] >= 0 for k in group]
        if all(shared):
            self._in_place(data.size, combine, group)
            self._arrive(group)
            self._meet(group, wait)
            return
        if any(shared):
            if is_shared:
                self._fill(0, data, group)
            self._arrive(group)
            self._meet(group, wait)
        self._in_chunks(data, into, combine, group, wait)
        self._arrive(group)

    def _in_place(self, size: int, combine: Combine, group: Sequence[int]) -> None:
        """Combine the part of this process of values of `size` bytes in the heaps of all."""
        a, b = [*spans(size, len(group))][group.index(self.me)]
        if a < b:
            operands = [(self.heap.files[k], *self.counters[k][-2:].tolist()) for k in group]
            results = [file[result + a : result + b] for file, _, result in operands]
            combine(results, [file[value + a : value + b] for file, value, _ in operands])

    def _fill(self, t: int, data: np.ndarray, group: Sequence[int]) -> None:
        """Copy to a slot what others combine of chunk `t` of `data`."""
        chunk, slot = data[t * self.slot_bytes : (t + 1) * self.slot_bytes], self.slots[self.me][t & 1]
        for k, (a, b) in zip(group, spans(chunk.size, len(group)), strict=True):
            if k != self.me:
                slot[a:b] = chunk[a:b]

    def _in_chunks(
        self, data: np.ndarray, into: np.ndarray, combine: Combine, group: Sequence[int], wait: Wait
    ) -> None:
        """Combine `data` chunk by chunk; the first chunk is in the slots already. See the docstring of the module."""
        step, me, at = self.slot_bytes, self.me, group.index(self.me)
        n_chunks = -(-data.size // step)
        for t in range(1, n_chunks + 2):
            now, before = t & 1, t + 1 & 1
            if t < n_chunks:
                self._fill(t, data, group)
            if t <= n_chunks:
                chunk, result = data[(t - 1) * step : t * step], into[(t - 1) * step : t * step]
                a, b = [*spans(chunk.size, len(group))][at]
                if a < b:
                    parts = [chunk[a:b] if k == me else self.slots[k][before][a:b] for k in group]
                    combine([result[a:b], self.results[me][before][: b - a]], parts)
            if t >= 2:
                chunk = into[(t - 2) * step : (t - 1) * step]
                for k, (a, b) in zip(group, spans(chunk.size, len(group)), strict=True):
                    if k != me:
                        chunk[a:b] = self.results[k][now][: b - a]
            if t <= n_chunks:
                self._arrive(group)
                self._meet(group, wait)

    def _arrive(self, group: Sequence[int]) -> None:
        """Let the processes `group` see what this one wrote, and that it read what they wrote."""
        self.window.Sync()
        for k in group:
            self.counters[self.me][k] += 1

    def _meet(self, group: Sequence[int], wait: Wait) -> None:
        """Wait until the processes `group` have arrived as often as this one."""
        mine, others = self.counters[self.me], [k for k in group if k != self.me]

        def missing() -> list[int]:
            return [self.members[k] for k in others if self.counters[k][self.me] < mine[k]]

        wait(missing)
        self.window.Sync()

    def _check_equal(self, group: Sequence[int]) -> None:
        """Raise DistributedError if a process of `group` combines a value of another size or program than this one."""
        mine = self.counters[self.me][-4:-2].tolist()
        if other := [self.members[k] for k in group if self.counters[k][-4:-2].tolist() != mine]:
            found = f"another size or program on rank {', '.join(map(str, other))}"
            rank = self.members[self.me]
            raise DistributedError(
                f"rank {rank}: the processes run different programs",
                expected=f"all to add up {mine[1]} bytes of one program",
                found=found,
            )


def _room() -> int:
    """Return the bytes that processes may share; writing to more would end a process."""
    return disk_usage(SHARED_FOLDER).free // 2 if SHARED_FOLDER.exists() else HOST_BYTES


def _window(host: Any, n_bytes: int) -> Any:
    """Return a window of `n_bytes` of each process of the communicator `host`; None if one of them cannot have it."""
    from mpi4py import MPI

    found = None
    with suppress(MPI.Exception):
        found = MPI.Win.Allocate_shared(n_bytes, 1, comm=host)
    return found if all(host.allgather(found is not None)) else None


def spans(size: int, n: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each of `n` parts of `size` bytes; parts begin on cache lines, the last may be empty."""
    step = _rounded(-(-size // n), LINE_BYTES)
    for k in range(n):
        yield min(k * step, size), min((k + 1) * step, size)


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


__all__ = ["Combine", "SMALL_BYTES", "SharedMemory", "Wait", "spans"]
