"""Move bytes between the processes of a job.

`Transport` is the interface; `MpiTransport` implements it by `mpi4py`. A transport for GPUs would implement it too.
Invariant: two processes exchange messages in the order of the copies of their equal programs, so no message has a name.
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


class Transport(Messenger, Protocol):
    """Exchange bytes with the other processes of a job. `size`: how many processes there are.

    `waits_for`: the processes that this one waits for now, as text; empty if it does not wait.
    """

    size: int
    waits_for: str

    def gather(self, data: bytes) -> list[bytes]:
        """Return the bytes that each process passed to this call, by rank. All processes call it."""

    def allreduce(self, data: np.ndarray, into: np.ndarray, combine: Combine, ranks: Sequence[int]) -> None:
        """Combine the flat uint8 arrays `data` of the processes `ranks`, in this order, into the array `into` of each.

        The processes `ranks` call it, with equal sizes. `combine` computes a part of the elements, and a transport that
        has sums of its own may read what it computes from it (`runtime/allreduce.py`).
        """

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

        self.byte, self.comm = MPI.BYTE, MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        self.waits_for = ""
        self.sent: list[tuple[Any, np.ndarray]] = []  # requests that may be in progress, each with its data
        self.host = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        self.hosts: list[int] = self.comm.allgather(self.host.bcast(self.rank))  # for each rank the first of its host
        self.shared = SharedMemory(self.comm, self.host) if self.size > 1 else None
        is_crowded = self.shared is not None and len(self.shared.members) > host_features().n_cores
        self.spin_seconds = SHORT_SPIN_SECONDS if is_crowded else SPIN_SECONDS
        self.watcher = Watcher(self.host, self.rank) if self.size > 1 and hasattr(os, "pidfd_open") else None

    def send(self, data: np.ndarray, to: int) -> None:
        self.sent = [pair for pair in self.sent if not pair[0].Test()]
        own = data.copy()
        for at in range(0, max(1, own.size), CHUNK_BYTES):
            part = own[at : at + CHUNK_BYTES]
            self.sent.append((self.comm.Isend([part, self.byte], to), part))

    def receive(self, into: np.ndarray, source: int) -> None:
        for at in range(0, max(1, into.size), CHUNK_BYTES):
            self._complete(self.comm.Irecv([into[at : at + CHUNK_BYTES], self.byte], source), f"rank {source}")

    def gather(self, data: bytes) -> list[bytes]:
        sizes = np.empty(self.size, np.int64)
        self._complete(self.comm.Iallgather(np.array([len(data)], np.int64), sizes), "all ranks")
        if sizes.min() < 0 or sizes.max() > MAX_GATHERED_BYTES:  # the bytes of another message
            size = f"a message of {int(sizes.max())} bytes"
            raise DistributedError("the processes run different programs", expected="all to run one", found=size)
        if not sizes.any():
            return [b""] * self.size
        own, ends = np.frombuffer(data, np.uint8), np.cumsum(sizes)
        found = np.empty(int(ends[-1]), np.uint8)
        counts, starts = sizes.tolist(), (ends - sizes).tolist()
        self._complete(self.comm.Iallgatherv([own, self.byte], [found, counts, starts, self.byte]), "all ranks")
        return [found[a:b].tobytes() for a, b in zip(starts, ends.tolist(), strict=True)]

    def allreduce(self, data: np.ndarray, into: np.ndarray, combine: Combine, ranks: Sequence[int]) -> None:
        if self.shared is not None and not self.is_remote(ranks):
            self.shared.allreduce(data, into, combine, ranks, lambda missing: self._wait(missing, SHORT_SPIN_SECONDS))
        else:
            hosts = [self.hosts[rank] for rank in ranks]
            ROUTES[routes(data.size, hosts)[0].name](self, data, into, combine, ranks)

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

    def _complete(self, request: Any, whom: str) -> None:
        """Wait until `request` is complete."""
        self._wait(lambda: "" if request.Test() else whom, self.spin_seconds)

    def _wait(self, missing: Callable[[], str], spin_seconds: float) -> None:
        """Wait until `missing`, which says who is waited for, returns ""; sleep between polls after `spin_seconds`.
        Raises DistributedError after DISTRIBUTED_TIMEOUT seconds.
        """
        start = time.monotonic()
        while whom := missing():
            self.waits_for = whom
            if self.sent:  # a process that waits for them may be one that is waited for
                self.sent = [pair for pair in self.sent if not pair[0].Test()]
            passed = time.monotonic() - start
            if passed > settings.DISTRIBUTED_TIMEOUT:
                expected = "all ranks to run one program; DISTRIBUTED_TIMEOUT may be longer"
                found = f"nothing from {whom} for {settings.DISTRIBUTED_TIMEOUT} s"
                raise DistributedError(f"rank {self.rank} waits for a message", expected=expected, found=found)
            if passed > spin_seconds:
                time.sleep(SLEEP_SECONDS)
        self.waits_for = ""


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
