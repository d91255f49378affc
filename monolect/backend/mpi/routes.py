"""Choose how an allreduce by messages goes, from the links between the processes and the size of the value.

What it is for: processes on several hosts, or on one without memory to share. Three routes combine the values in the
order of the ranks, so that all results have the bits of a sum in one process:

    exchange   each process sends its value to all others and combines all values
    parts      each process combines a part (reduce_scatter) and sends it to all (allgather)
    chain      a chunk goes from the first process to the last; each adds its value; the result goes back

A ring and recursive halving combine in another order on each process, or in pairs; the chain is the ring without its
last link. Its bytes cross the link of a host twice, however many processes a host has.
What it is not: it measures nothing. LINKS says for which hardware its numbers are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from monolect.command.cluster import Link

CHUNK_BYTES = 1 << 18  # bytes of a chunk of a chain: some 200 us of a link of 10 Gbit/s


# "memory": MPI between processes of one host, as measured with MPICH on an AMD EPYC. "network": Ethernet
# of 10 Gbit/s with TCP, from its specification.
LINKS = {"memory": Link(3e-6, 1e-6, 4e9), "network": Link(30e-6, 5e-6, 1.1e9)}


class Route(NamedTuple):
    """A way of an allreduce, and the seconds that it is predicted to take."""

    name: str
    seconds: float


def routes(n_bytes: int, hosts: Sequence[int]) -> list[Route]:
    """Return the routes for a value of `n_bytes`, the fastest first. `hosts`: the number of the host of each process,
    in the order of the ranks.
    """
    n, per_host = len(hosts), Counter(hosts)
    link = LINKS["network" if len(per_host) > 1 else "memory"]  # the processes of a host share its rate

    def all_to_all(size: float) -> float:
        """Return the seconds in which each process sends `size` bytes to each other one."""
        network = max(k * (n - k) for k in per_host.values()) * size / LINKS["network"].rate
        memory = max(k * (k - 1) for k in per_host.values()) * size / LINKS["memory"].rate
        return link.latency + 2 * (n - 1) * link.overhead + max(network, memory)

    chunk = min(n_bytes, CHUNK_BYTES)
    n_chunks = -(-n_bytes // max(1, chunk))
    crossings: Counter[tuple[int, bool]] = Counter()  # links of the chain that leave each host, and that stay on it
    for a, b in zip(hosts, hosts[1:], strict=False):
        for host in {a, b}:
            crossings[host, a == b] += 1
    busiest = max(
        2 * count * chunk / LINKS["memory" if stays else "network"].rate for (_, stays), count in crossings.items()
    )
    step = 4 * link.overhead + busiest
    found = [
        Route("exchange", all_to_all(n_bytes)),
        Route("parts", 2 * all_to_all(n_bytes / n)),
        Route("chain", 2 * (n - 1) * (link.latency + 2 * link.overhead + chunk / link.rate) + (n_chunks - 1) * step),
    ]
    return sorted(found, key=lambda r: r.seconds)


def explained(n_bytes: int, hosts: Sequence[int]) -> str:
    """Return the routes with their predicted times as text, the chosen one first."""
    return ", ".join(f"{r.name} {r.seconds * 1e6:.0f} us" for r in routes(n_bytes, hosts))


__all__ = ["CHUNK_BYTES", "LINKS", "Link", "Route", "explained", "routes"]
