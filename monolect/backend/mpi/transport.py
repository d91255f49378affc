"""Move bytes between the processes of a job.

`Transport` is the interface; `MpiTransport` implements it by `mpi4py`. A transport for GPUs would implement it too.
Invariant: two processes exchange messages in the order of the copies of their equal programs. The tag of a message
names the program. If the next message of an awaited process is not the awaited one, their programs differ, and the job
ends with an error.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Protocol

import numpy as np

from monolect.backend.common.host.memory import Memory
from monolect.backend.common.llvm.compile import host_features
from monolect.backend.mpi import watch
from monolect.backend.mpi.messages import ROUTES, Messenger
from monolect.backend.mpi.routes import explained, routes
from monolect.backend.mpi.shared import Combine, SharedMemory
from monolect.base.errors import DistributedError
from monolect.base.settings import settings

CHUNK_BYTES = 1 << 30  # bytes of one message; MPI counts elements in 32 bits
MAX_GATHERED_BYTES = 1 << 40  # bytes of one process in `gather`; more is taken for a message of another kind
SPIN_SECONDS = 1e-3  # seconds during which a receiver only polls; after them it sleeps between two polls
SHORT_SPIN_SECONDS = 5e-5  # the same, for a barrier in shared memory, or if there are more processes than processors
SLEEP_SECONDS = 2e-5  # seconds between two polls
PROBE_SECONDS = 0.5  # seconds between two looks at what else has come from the processes that this one waits for
GATHERS, ENDED, FIRST_PROGRAM = 0, 1, 2  # tags of messages: of `gather`, of the end of a process, of programs
N_PROGRAMS = 32765  # tags of programs; MPI has 32768 at least


class Transport(Messenger, Protocol):
    """Exchange bytes with the other processes of a job. `size`: how many processes there are.

    `waits_for`: the processes that this one waits for now, as text; empty if it does not wait. `program`: the number of
    the program whose messages follow, as `runtime.agreed.number_of` computes it.
    """

    size: int
    waits_for: str
    program: int

    def gather(self, data: bytes) -> list[bytes]:
        """Return the bytes that each process passed to this call, by rank. All processes call it."""

    def allreduce(self, data: np.ndarray, into: np.ndarray, combine: Combine, ranks: Sequence[int]) -> None:
        """Combine the flat uint8 arrays `data` of the processes `ranks`, in this order, into the array `into` of each.

        The processes `ranks` call it, with equal sizes. `combine` computes a part of the elements, and a transport that
        has sums of its own may read what it computes from it (`runtime/allreduce.py`).
        """

    def alloc(self, n_bytes: int) -> Memory | None:
        """Return memory for values and results of `allreduce`, which it combines faster there; None if it has none."""

    def is_remote(self, ranks: Sequence[int]) -> bool:
        """Return whether `allreduce` of the processes `ranks` moves values by messages, so that a processor waits."""

    def path(self, ranks: Sequence[int], n_bytes: int) -> str:
        """Return how `allreduce` of the processes `ranks` moves a value of `n_bytes`, as text: the route and, if others
        were possible, the predicted time of each.
        """

    def abort(self) -> None:
        """End all processes of the job."""


class MpiTransport:
    """The processes that `mpiexec` started."""

    def __init__(self) -> None:
        from mpi4py import MPI  # initializes MPI

        self.mpi, self.byte, self.comm = MPI, MPI.BYTE, MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self.waits_for, self.program = "", 0
        self.sent: list[tuple[Any, np.ndarray]] = []  # requests that may be in progress, each with its data
        self.host = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.hosts: list[int] = self.comm.allgather(self.host.bcast(self.rank))  # for each rank the first of its host
        self.shared = SharedMemory(self.comm, self.host) if self.size > 1 else None
        is_crowded = self.shared is not None and len(self.shared.members) > host_features().n_cores
        self.spin_seconds = SHORT_SPIN_SECONDS if is_crowded else SPIN_SECONDS
        self.watcher = Watcher(self.host, self.rank) if self.size > 1 and hasattr(os, "pidfd_open") else None
        atexit.register(self._announce, ENDED)

    def send(self, data: np.ndarray, to: int) -> None:
        self._forget_sent()
        own = data.copy()
        for at in range(0, max(1, own.size), CHUNK_BYTES):
            self._start(own[at : at + CHUNK_BYTES], to, self._tag())

    def receive(self, into: np.ndarray, source: int) -> None:
        for at in range(0, max(1, into.size), CHUNK_BYTES):
            self._received(into[at : at + CHUNK_BYTES], source, self._tag())

    def gather(self, data: bytes) -> list[bytes]:
        self._announce(GATHERS)
        for rank in self._others():
            self._received(np.empty(0, np.uint8), rank, GATHERS)
        sizes = np.empty(self.size, np.int64)
        self._complete(self.comm.Iallgather(np.array([len(data)], np.int64), sizes))
        if sizes.min() < 0 or sizes.max() > MAX_GATHERED_BYTES:  # the bytes of another message
            size = f"a message of {int(sizes.max())} bytes"
            raise DistributedError("the processes run different programs", expected="all to run one", found=size)
        if not sizes.any():
            return [b""] * self.size
        own, ends = np.frombuffer(data, np.uint8), np.cumsum(sizes)
        found = np.empty(int(ends[-1]), np.uint8)
        counts, starts = sizes.tolist(), (ends - sizes).tolist()
        self._complete(self.comm.Iallgatherv([own, self.byte], [found, counts, starts, self.byte]))
        return [found[a:b].tobytes() for a, b in zip(starts, ends.tolist(), strict=True)]

    def allreduce(self, data: np.ndarray, into: np.ndarray, combine: Combine, ranks: Sequence[int]) -> None:
        if self.shared is not None and not self.is_remote(ranks):
            tag = self._tag()
            self.shared.allreduce(data, into, combine, ranks, tag, lambda m: self._wait(m, SHORT_SPIN_SECONDS, tag))
        else:
            hosts = [self.hosts[rank] for rank in ranks]
            ROUTES[routes(data.size, hosts)[0].name](self, data, into, combine, ranks)

    def alloc(self, n_bytes: int) -> Memory | None:
        return None if self.shared is None or not self.shared.members else self.shared.heap.alloc(n_bytes)

    def is_remote(self, ranks: Sequence[int]) -> bool:
        return self.shared is None or not self.shared.holds(ranks)

    def path(self, ranks: Sequence[int], n_bytes: int) -> str:
        if not self.is_remote(ranks):
            return "in shared memory"
        return f"by messages: {explained(n_bytes, [self.hosts[rank] for rank in ranks])}"

    def abort(self) -> None:
        if self.watcher is not None:
            self.watcher.note_end(0, self.watcher.n)
        self.comm.Abort(1)

    def _others(self) -> list[int]:
        """Return the ranks of the other processes."""
        return [rank for rank in range(self.size) if rank != self.rank]

    def _tag(self) -> int:
        """Return the tag of messages of the program that runs now."""
        return FIRST_PROGRAM + self.program % N_PROGRAMS

    def _announce(self, tag: int) -> None:
        """Send a message without bytes to each other process."""
        self._forget_sent()
        for rank in self._others():
            self._start(np.empty(0, np.uint8), rank, tag)

    def _start(self, data: np.ndarray, to: int, tag: int) -> None:
        """Start a message of `data`, which must not change until it was sent."""
        self.sent.append((self.comm.Isend([data, self.byte], to, tag), data))

    def _forget_sent(self) -> None:
        """Free the requests of messages that were sent."""
        self.sent = [pair for pair in self.sent if not pair[0].Test()]

    def _received(self, into: np.ndarray, source: int, tag: int) -> None:
        """Receive the next message of the process `source`, which has the tag `tag`."""
        request = self.comm.Irecv([into, self.byte], source, tag)
        self._wait(lambda: [] if request.Test() else [source], self.spin_seconds, tag)

    def _complete(self, request: Any) -> None:
        """Wait until `request`, in which all processes have a part, is complete."""
        self._wait(lambda: [] if request.Test() else self._others(), self.spin_seconds, None)

    def _check(self, ranks: Sequence[int], missing: Callable[[], Sequence[int]], tag: int) -> None:
        """Raise DistributedError if the next message of one of `ranks`, which this process waits for, has another tag
        than `tag`, and nothing else has come meanwhile.
        """
        status = self.mpi.Status()
        for rank in ranks:
            if self.comm.Iprobe(rank, self.mpi.ANY_TAG, status) and status.Get_tag() != tag and rank in missing():
                found = f"rank {rank} {_activity(status.Get_tag())}, while this rank {_activity(tag)}"
                raise DistributedError(
                    f"rank {self.rank}: the processes run different programs",
                    expected="all ranks to run the same operations on the same shapes, in one order",
                    found=found,
                )

    def _wait(self, missing: Callable[[], Sequence[int]], spin_seconds: float, tag: int | None) -> None:
        """Wait until `missing`, which returns the ranks that are waited for, returns none; sleep between polls after
        `spin_seconds`. `tag`: that of the message that comes; None where others may be ahead.

        Raises DistributedError if a process that is waited for sends another message, and after DISTRIBUTED_TIMEOUT
        seconds.
        """
        start, probe = time.monotonic(), PROBE_SECONDS
        while ranks := missing():
            whom = "all ranks" if 1 < len(ranks) == self.size - 1 else f"rank {', '.join(map(str, ranks))}"
            self.waits_for = whom
            if self.sent:  # a process that waits for them may be one that is waited for
                self._forget_sent()
            passed = time.monotonic() - start
            if passed > settings.DISTRIBUTED_TIMEOUT:
                expected = "all ranks to run one program; DISTRIBUTED_TIMEOUT may be longer"
                found = f"nothing from {whom} for {settings.DISTRIBUTED_TIMEOUT} s"
                raise DistributedError(f"rank {self.rank} waits for a message", expected=expected, found=found)
            if tag is not None and passed > probe:
                probe += PROBE_SECONDS
                self._check(ranks, missing, tag)
            if passed > spin_seconds:
                time.sleep(SLEEP_SECONDS)
        self.waits_for = ""


def _activity(tag: int) -> str:
    """Return what a process does that sends or awaits messages with the tag `tag`, as text."""
    known = {GATHERS: "plans a computation that it sees for the first time", ENDED: "has ended"}
    return known.get(tag, f"runs program {tag - FIRST_PROGRAM}")


class Watcher:
    """The program that names a process of this host that dies (`watch.py`). All processes of the host make it at once.

    `host`: their communicator. `rank`: the rank of this process in the job.
    """

    def __init__(self, host: Any, rank: int) -> None:
        ranks = host.allgather((rank, os.getpid()))
        self.at, self.n = host.Get_rank(), len(ranks)
        path = None
        if self.at == 0:
            descriptor, path = tempfile.mkstemp(prefix="monolect-job-")
            os.write(descriptor, bytes(self.n))
            os.close(descriptor)
            command = [sys.executable, "-I", "-S", watch.__file__, path, *(f"{r}:{pid}" for r, pid in ranks)]
            subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.path = host.bcast(path)
        atexit.register(self.note_end, self.at, 1)

    def note_end(self, first: int, n: int) -> None:
        """Note that `n` processes of this host from number `first` on end as they should, or that it is known why."""
        with suppress(OSError), open(self.path, "r+b") as f:  # it is gone if the job is about to end
            f.seek(first)
            f.write(watch.ENDED * n)


@cache
def transport() -> Transport:
    """Return the transport of this job. The first call initializes it."""
    return MpiTransport()


__all__ = ["MpiTransport", "Transport", "transport"]
