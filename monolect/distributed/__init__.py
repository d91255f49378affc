"""Run one program on the processes of a job: `mpiexec -n 4 python train.py`.

What it is for: `devices()` are the processors of all processes; `Tensor.shard`, `replicate` and `nn.parallel` take them
like any devices. Each process runs the same program, compiles its own part of it, and holds its own parts of tensors.
`simulate` predicts what a step costs on devices that are not there.
What it is not: a launcher. `mpiexec`, Slurm and Ray start processes.
Invariant: all processes run the same operations in the same order. Tensors on other devices than `mpi` are those of
each process; a program gives them the same values on all ranks.
"""

from __future__ import annotations

import os
import sys
import traceback
from signal import SIGTERM, signal
from threading import current_thread, main_thread
from types import FrameType, TracebackType

from monolect.backend.mpi.transport import Transport, transport
from monolect.backend.registry import Device
from monolect.base.errors import DistributedError
from monolect.distributed.simulation import Memory, Prediction, simulate
from monolect.tensor.random import manual_seed

__all__ = ["Memory", "Prediction", "barrier", "devices", "rank", "simulate", "size"]

_LAUNCHED = ("PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")  # variables that launchers set
_started = False


def devices() -> tuple[str, ...]:
    """Return the devices of all processes, by rank. The first call seeds the random numbers of all ranks alike, and
    lets an exception in one process end all.

    Raises DistributedError for a job of a single process, or without mpi4py.
    """
    global _started
    n = _link().size
    if n < 2:
        raise DistributedError("a job of one process", expected="mpiexec -n 2 python train.py", found="size 1")
    if not _started:
        _started = True
        sys.excepthook = _end_all
        if current_thread() is main_thread():
            signal(SIGTERM, _ended)
        manual_seed(int.from_bytes(transport().gather(os.urandom(7))[0], "little"))
    return tuple("mpi" if k == 0 else f"mpi:{k}" for k in range(n))


def rank() -> int:
    """Return the number of this process; 0 for a program that no launcher started."""
    return 0 if _is_alone() else _link().rank


def size() -> int:
    """Return the number of processes; 1 for a program that no launcher started."""
    return 1 if _is_alone() else _link().size


def _link() -> Transport:
    """Return the transport of this job. Raises DistributedError without mpi4py."""
    if missing := Device.device_class("mpi").missing():
        raise DistributedError("processes cannot exchange data", expected=missing, found="no mpi4py")
    return transport()


def _is_alone() -> bool:
    """Whether mpi4py is missing and no launcher started this process."""
    return bool(Device.device_class("mpi").missing()) and not any(name in os.environ for name in _LAUNCHED)


def barrier() -> None:
    """Return once all processes have called it."""
    transport().gather(b"")


def _ended(number: int, frame: FrameType | None) -> None:
    """Say what this process waited for when `mpiexec` ends it, as it does if another process died."""
    link = transport()
    whom = f" while it waited for {link.waits_for}" if link.waits_for else ""
    print(f"monolect: rank {link.rank} of {link.size} is ended{whom}", file=sys.stderr, flush=True)
    os._exit(128 + number)


def _end_all(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught exception with its rank, and end all processes, which would wait for this one."""
    traceback.print_exception(kind, error, trace)
    print(f"monolect: rank {rank()} of {size()} failed; the job ends", file=sys.stderr, flush=True)
    transport().abort()
