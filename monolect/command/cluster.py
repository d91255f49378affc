"""Predict how long kernels and collectives take on hardware that is given as numbers: rates, links, hosts.

What it is for: the simulation of meshes that this machine does not have (`distributed.simulate`).
What it is not: a measurement. Kernels run at a fixed share of the peak rates, and messages of different collectives
never share a link.

Model: a kernel takes the longer of its operations and its bytes, plus a launch. The members of a collective are `k`
devices on each of `h` hosts. They exchange in two levels, between hosts over a link of each device, then inside a
host; each level takes as many latencies as the logarithm of its size. An allgather to W bytes moves (h-1)/h W/k bytes
a device between hosts, and (k-1)/k W inside: together the (n-1)/n W bytes of a ring. An allreduce is a reduce_scatter
and an allgather.
Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import ceil, log2
from typing import NamedTuple

from monolect.base.dtype import DType, dtypes
from monolect.base.errors import ArgumentError, nearest
from monolect.command.estimate import estimate
from monolect.command.forms import buffer_bytes, kernel_of, operands_of
from monolect.ir.collective import Exchange, exchange_of
from monolect.ir.uop import UOp, nodes_of


class Link(NamedTuple):
    """A connection. `latency`: seconds until a message of no bytes arrives. `overhead`: seconds that a process needs to
    send or receive one. `rate`: bytes per second in each direction.
    """

    latency: float
    overhead: float
    rate: float


class Hardware(NamedTuple):
    """The devices and links of a cluster.

    `memory_bytes`, `memory_rate`: bytes of a device's memory, and bytes per second that kernels read and write.
    `products`: operations per second of sums of products, by the dtype of their operands; `other`: of all else.
    `share`: the share of these rates that kernels reach. `launch`: seconds from one kernel to the next. `per_host`:
    devices of a host, which are neighbours on a mesh's last axis. `inside`, `between`: links of a device to those of
    its host, and to those of other hosts.
    """

    memory_bytes: int
    memory_rate: float
    products: Mapping[DType, float]
    other: float
    share: float
    launch: float
    per_host: int
    inside: Link
    between: Link


# Peak rates without sparsity are those of the vendors' data sheets; `share`, `launch` and latencies are assumptions.
HARDWARE: Mapping[str, Hardware] = {
    # NVIDIA, "H100 Tensor Core GPU" (SXM): 80 GB at 3.35 TB/s, NVLink 900 GB/s in both directions together, a network
    # link of 400 Gbit/s a device as in NVIDIA, "DGX H100".
    "h100": Hardware(
        memory_bytes=80 * 10**9,
        memory_rate=3.35e12,
        products={dtypes.bfloat16: 989e12, dtypes.float16: 989e12, dtypes.float32: 67e12, dtypes.float64: 67e12},
        other=67e12,
        share=0.5,
        launch=4e-6,
        per_host=8,
        inside=Link(3e-6, 1e-6, 450e9),
        between=Link(6e-6, 1e-6, 50e9),
    ),
    # A host of one processor: 32 cores at 3 GHz with two 512-bit multiply-adds, eight channels of DDR5-4800, 256 GiB,
    # and Ethernet of 100 Gbit/s.
    "cpu-node": Hardware(
        memory_bytes=256 << 30,
        memory_rate=307e9,
        products={dtypes.float32: 6.1e12, dtypes.float64: 3.1e12},
        other=6.1e12,
        share=0.5,
        launch=2e-6,
        per_host=1,
        inside=Link(3e-6, 1e-6, 4e9),
        between=Link(30e-6, 5e-6, 12.5e9),
    ),
}


def hardware_of(given: str | Hardware) -> Hardware:
    """Return the Hardware of a name in HARDWARE, or `given` itself. Raises ArgumentError for anything else."""
    if isinstance(given, Hardware):
        return given
    if given not in HARDWARE:
        names = ", ".join(HARDWARE)
        expected = nearest(str(given), HARDWARE) or f"one of {names}, or a Hardware"
        raise ArgumentError("simulate: hardware", expected=expected, found=repr(given))
    return HARDWARE[given]


class Message(NamedTuple):
    """The share of one device in a collective: the bytes that it sends to devices of its host (`inside`) and of others
    (`between`), and the number of latencies of each level.
    """

    inside: float
    between: float
    steps_inside: int
    steps_between: int

    def seconds(self, hw: Hardware) -> float:
        """Return the seconds that the message takes on `hw`, one level after the other."""
        return sum(
            steps * (link.latency + 2 * link.overhead) + n_bytes / link.rate
            for n_bytes, steps, link in (
                (self.inside, self.steps_inside, hw.inside),
                (self.between, self.steps_between, hw.between),
            )
        )


def message(e: Exchange, own: int, result: int, per_host: int) -> Message:
    """Return the message of the collective `e`. `own`, `result`: bytes of one device before and after it. `per_host`:
    devices of a host.
    """
    n, k = e.n, 1
    for count, far in e.group:
        k *= max(1, min(count, per_host // far))
    h = n / k
    steps = ceil(log2(k)), ceil(log2(h)) if h > 1 else 0
    if e.name == "alltoall":
        return Message((k - 1) / n * result, (n - k) / n * result, *steps)
    if e.name == "broadcast":  # in halves of the group: a device sends what it got on, (n-1)/n times on average
        return Message(*(((n - 1) / n * result, 0.0) if h == 1 else (0.0, (n - 1) / n * result)), *steps)
    whole = result * n if e.name == "reduce_scatter" else result
    rounds = 2 if e.name == "allreduce" else 1
    inside, between = (k - 1) / k * whole, (h - 1) / h * whole / k
    return Message(rounds * inside, rounds * between, *[rounds * s for s in steps])


def message_of(item: UOp, per_host: int) -> Message | None:
    """Return the message of an item of a simulation, None for an item that computes."""
    e = exchange_of(item.src[0]) if item.op == "CALL" else None
    if e is None:
        return None
    result, own = operands_of(item)
    return message(e, buffer_bytes(own), buffer_bytes(result), per_host)


def kernel_seconds(item: UOp, hw: Hardware) -> float:
    """Return the seconds of a kernel or of a copy on `hw`."""
    n_ops, n_bytes = estimate(item)
    rate = _rate(kernel_of(item), hw) if item.op == "CALL" else hw.other
    return max(n_ops / rate, n_bytes / hw.memory_rate) / hw.share + hw.launch


def _rate(kernel: UOp, hw: Hardware) -> float:
    """Return the operations per second of a kernel: those of products if it adds up products."""
    dtype = _factor(kernel)
    return hw.other if dtype is None else hw.products.get(dtype, hw.other)


@lru_cache(maxsize=4096)
def _factor(kernel: UOp) -> DType | None:
    """Return the dtype of the factors of a sum of products in `kernel`, the narrowest of several; None without one."""
    found: list[DType] = []
    for u in nodes_of(kernel):
        if u.op == "REDUCE" and u.arg[0] == "ADD":
            product = _below_casts(u.src[0])
            if product.op == "MUL":
                found.append(max(map(_narrowest, product.src), key=lambda d: d.bits))
    return min(found, key=lambda d: d.bits) if found else None


def _narrowest(u: UOp) -> DType:
    """Return the narrowest dtype that `u` was rounded to in the CASTs below it."""
    found = u.dtype
    while u.op == "CAST":
        u = u.src[0]
        found = min(found, u.dtype, key=lambda d: d.bits)
    return found


def _below_casts(u: UOp) -> UOp:
    while u.op == "CAST":
        u = u.src[0]
    return u


__all__ = ["HARDWARE", "Hardware", "Link", "Message", "hardware_of", "kernel_seconds", "message", "message_of"]
