"""Define the CALL of one kernel on the memory of several processes, which is an allreduce, and build its kernels.

The operands of such a CALL are the results, one for each process, then the partial values, one for each process. Its
kernel says what is computed; no process runs it as it is, since none reaches the memory of all. Each process computes
a part by `sum_kernel` of its own, and the transport moves the rest (`runtime/allreduce.py`).

Before: REDUCE(ADD, x divided over mpi and mpi:1)
After:  AFTER(B1 on mpi, CALL(k, B1, B2 on mpi:1, s1, s2)), AFTER(B2, the same CALL)
        k: for i: p0[i] = p1[i] = p2[i] + p3[i]
Invariant: the partial values of an element are combined in the order of the operands, so all results have equal bits.

A simulation has one device and no others. Its collectives are CALLs of a kernel on that device's memory whose
KernelInfo says in `exchange` which collective it is a share of: CALL(k, result, part) waits for the device's own part.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from monolect.base.dtype import DType
from monolect.ir.ops import KernelInfo, LoadArg, ParamArg
from monolect.ir.placement import device as device_of
from monolect.ir.uop import UOp, build, idx, new_buffer, node, shape_source

PROCESS_KINDS = frozenset(("mpi",))  # kinds of devices of which each is of another process of a job


class Sum(NamedTuple):
    """The operation of an allreduce: `n` partial values of `dtype` are combined by `op`, such as ADD or MAX."""

    op: str
    dtype: DType
    n: int


class Exchange(NamedTuple):
    """A collective of a simulation. `name`: allgather, alltoall, allreduce, reduce_scatter or broadcast. `group`: pairs
    (number of devices, distance of neighbours) for each axis of the mesh along which they exchange.
    """

    name: str
    group: tuple[tuple[int, int], ...]

    @property
    def n(self) -> int:
        """The number of devices that exchange."""
        return prod(n for n, _ in self.group)


def exchange_of(kernel: UOp) -> Exchange | None:
    """Return the collective that `kernel` is a share of; None for a kernel that computes."""
    info = kernel.arg
    return Exchange(*info.exchange) if isinstance(info, KernelInfo) and info.exchange else None


def exchanged(e: Exchange, v: UOp, shape: tuple[int, ...]) -> UOp:
    """Return the result, of `shape`, of a collective in which `v` is the value of the simulated device."""
    n, own = prod(shape), prod(v.shape)
    result, source = (
        node("PARAM", (shape_source((size,)),), ParamArg(k, v.dtype, None, "GLOBAL")) for k, size in enumerate((n, own))
    )
    i = build("RANGE", idx(n), arg=(0, "LOOP"))
    value = build("LOAD", build("INDEX", source, i % own if n > own else i))
    end = build("END", build("STORE", build("INDEX", result, i), value), i)
    kernel = build("SINK", end, arg=KernelInfo(f"{e.name}_{e.n}", exchange=tuple(e)))
    into = new_buffer(shape, v.dtype, device_of(v))
    return build("AFTER", into, build("CALL", kernel, into, v))


def is_of_a_process(name: str) -> bool:
    """Whether the device `name` belongs to one process of a job; each process has the other devices."""
    return name.partition(":")[0] in PROCESS_KINDS


def are_processes(names: Sequence[str]) -> bool:
    """Whether the devices `names` are of several processes, each of another one."""
    return len({*names}) == len(names) > 1 and all(map(is_of_a_process, names))


def allreduced(op: str, partial: Sequence[UOp], names: Sequence[str]) -> list[UOp]:
    """Return on each of the devices `names` the values `partial`, one for each device, combined by `op` in order."""
    shape, dtype = partial[0].shape, partial[0].dtype
    results = [new_buffer(shape, dtype, name) for name in names]
    kernel = sum_kernel(Sum(op, dtype, len(names)), prod(shape), len(names))
    there = [_in_memory(p, name) for p, name in zip(partial, names, strict=True)]
    call = build("CALL", kernel, *results, *there)
    return [build("AFTER", r, call) for r in results]


def _in_memory(u: UOp, name: str) -> UOp:
    """Return a BUFFER that has the elements of `u` in row-major order, or else `u`, on the device `name`."""
    v = u
    while v.op == "RESHAPE" or (
        v.op == "REDUCE" and v.dtype is v.src[0].dtype and prod(v.shape) == prod(v.src[0].shape)
    ):
        v = v.src[0]
    if v.op == "BUFFER" and v.arg.device == name:
        return v
    return u if device_of(u) == name else build("LOAD", u, arg=LoadArg(name, "GLOBAL"))


def sum_kernel(s: Sum, size: Any, n_results: int = 1) -> UOp:
    """Return the kernel that combines `s.n` arrays of `size` elements, its last operands, and stores the result to each
    of its first `n_results` operands. A symbolic `size` is the operand after them.
    """
    args = [ParamArg(k, s.dtype, None, "GLOBAL") for k in range(n_results + s.n)]
    params = [node("PARAM", (shape_source((size,)),), arg) for arg in args]
    i = build("RANGE", idx(size), arg=(0, "LOOP"))
    value, *others = [build("LOAD", build("INDEX", p, i)) for p in params[n_results:]]
    for v in others:
        value = build(s.op, value, v)
    ends = [build("END", build("STORE", build("INDEX", p, i), value), i) for p in params[:n_results]]
    return build("SINK", *ends, arg=KernelInfo(f"allreduce_{s.op.lower()}_{s.n}"))


def sum_of(kernel: UOp) -> Sum:
    """Return what the kernel of an allreduce, a result of `sum_kernel`, computes."""
    n = len(kernel.src)
    value = kernel.src[0].src[0].src[1]
    return Sum(value.op, value.dtype, n)


__all__ = [
    "Exchange",
    "Sum",
    "allreduced",
    "are_processes",
    "exchange_of",
    "exchanged",
    "is_of_a_process",
    "sum_kernel",
    "sum_of",
]
