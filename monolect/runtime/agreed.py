"""Agree with the other processes of a job on the schedule of a batch, and compile each of its kernels in one of them.

Each process runs the whole program, so all of them reach a batch over several processes with equal values. Rank 0
schedules it. Kernels that processes lack are divided among these; each sends what it compiled to all.

Invariant: all processes call these functions for the same batches, in one order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from monolect.backend.registry import Device, process_of
from monolect.base.disk.hashing import blake2b
from monolect.base.errors import DistributedError
from monolect.base.settings import settings
from monolect.command.forms import (
    base_of,
    buffer_bytes,
    calls_in,
    home,
    is_allreduce,
    is_scalar,
    items_of,
    operands_of,
    program_of,
)
from monolect.ir.binary import pack, unpack
from monolect.ir.digest import digest
from monolect.ir.placement import device as device_of
from monolect.ir.uop import UOp, toposort
from monolect.runtime.realize.programs import key_of


def agreed_schedule(values: UOp, shared: str, make: Callable[[], UOp]) -> UOp:
    """Return the schedule of `values` that all processes of a job run: rank 0 calls `make`, the others receive it.

    So the copies between processes have one order. `shared`: a device of one of the processes. Raises DistributedError
    if the processes compute different values.
    """
    link = Device[shared].transport
    outline = "\n".join(
        sorted(
            f"{u.op} {u.dtype.name}{u.shape}@{device_of(u)} {u.arg if u.op == 'CONST' else ''}"
            for u in toposort(values)
        )
    )
    sums = link.gather(blake2b(outline.encode(), digest_size=16).digest())
    if other := [rank for rank, s in enumerate(sums) if s != sums[link.rank]]:
        expected = "all ranks to run one program: equal shapes, operations in one order"
        found = f"other values on rank {', '.join(map(str, other))}"
        raise DistributedError(
            f"rank {link.rank}: the processes run different programs", expected=expected, found=found
        )
    made: UOp | None = None
    failure: Exception | None = None
    if link.rank == 0:
        try:
            made = make()
        except Exception as e:  # the others wait for an answer
            failure = e
    data = link.gather(b"" if made is None else pack(made))[0]
    if failure is not None:
        raise failure
    if not data:
        found = "no schedule"
        raise DistributedError(f"rank {link.rank}: rank 0 failed", expected="its error says why", found=found)
    return unpack(data) if made is None else made


def compile_once(items: Iterable[UOp], shared: str) -> None:
    """Make the programs of the CALLs `items` on devices of this process known to it, so that each kernel is compiled by
    one process of the job. `shared`: a device of one of the processes.

    Does nothing where a setting shows or searches kernels, or where processors differ: each compiles its own then.
    """
    if settings.looking or settings.BEAM:
        return
    link = Device[shared].transport
    kernels: dict[int, dict[str, UOp]] = {rank: {} for rank in range(link.size)}
    for c in items:
        if c.op == "CALL" and c.src[0].op == "SINK" and not is_allreduce(c):
            rank = process_of(str(base_of(next(u for u in operands_of(c) if not is_scalar(u))).arg.device))
            if rank is not None:
                kernels[rank].setdefault(key_of(c.src[0]), c.src[0])
    if not any(kernels.values()):
        return
    device: Any = Device["mpi" if link.rank == 0 else f"mpi:{link.rank}"]
    missing = dict.fromkeys(key for key in kernels[link.rank] if device.lookup(key) is None)
    said = [json.loads(s) for s in link.gather(json.dumps([device.target.key, *missing]).encode())]
    if len({key for key, *_ in said}) > 1:
        return
    lacking = [keys for _, *keys in said]
    if not any(lacking):
        return
    mine, built = _share(lacking)[link.rank], {}
    if mine:
        from monolect.runtime.realize.lowering import lowered  # imported on a miss: it imports the whole compiler

        rows = lowered([(kernels[link.rank][key], key) for key in mine], device.name)
        built = {key: device.dumps(linear) for _, key, linear in rows}
    head = json.dumps([[key, len(code)] for key, code in built.items()]).encode()
    for data in link.gather(b"\n".join((head, b"".join(built.values())))):
        head, _, codes = data.partition(b"\n")
        for key, n_bytes in json.loads(head):
            if key in missing:
                device.keep(key, codes[:n_bytes])
            codes = codes[n_bytes:]


def number_of(step: UOp) -> int:
    """Return a number that equal steps, results of `joined`, have in all processes of a job, and others have not: from
    the kernels, and the bytes and devices of all operands. Slots of BUFFERs may differ between processes.
    """

    def outline(u: UOp) -> str:
        return "size" if is_scalar(u) else f"{buffer_bytes(u)}@{home(base_of(u), '')}"

    text = [
        " ".join((digest(c.src[0]) if c.op == "CALL" else c.op, *map(outline, operands_of(c))))
        for c in calls_in(items_of(program_of(step)))
    ]
    return int.from_bytes(blake2b("\n".join(text).encode(), digest_size=8).digest(), "little")


def _share(missing: list[list[str]]) -> list[list[str]]:
    """Return the keys that each process compiles, of those that each lacks: a key is compiled once, by the process that
    lacks it and has the fewest so far.
    """
    out: list[list[str]] = [[] for _ in missing]
    lacking: dict[str, list[int]] = {}
    for rank, keys in enumerate(missing):
        for key in keys:
            lacking.setdefault(key, []).append(rank)
    for key, ranks in lacking.items():
        out[min(ranks, key=lambda rank: (len(out[rank]), rank))].append(key)
    return out


__all__ = ["agreed_schedule", "compile_once", "number_of"]
