"""Combine values of processes by messages, along one of the routes of `backend/mpi/routes.py`.

Invariant: values are combined in the order of the ranks. Messages of two processes have equal sizes and orders on both
sides, since all processes choose the same route.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from monolect.backend.mpi.routes import CHUNK_BYTES
from monolect.backend.mpi.shared import Combine, spans


class Messenger(Protocol):
    """Send and receive messages. `rank`: the number of this process."""

    rank: int

    def send(self, data: np.ndarray, to: int) -> None:
        """Send a copy of `data`, a flat uint8 array, to the process of rank `to`; return before it has arrived."""

    def receive(self, into: np.ndarray, source: int) -> None:
        """Receive the next message of the process of rank `source` into a flat uint8 array of its size."""


def exchange(link: Messenger, data: np.ndarray, into: np.ndarray, combine: Combine, ranks: Sequence[int]) -> None:
    """Send `data` to all of `ranks`, and combine the values of all."""
    others = [rank for rank in ranks if rank != link.rank]
    for rank in others:
        link.send(data, rank)
    values = {rank: np.empty_like(data) for rank in others} | {link.rank: data}
    for rank in others:
        link.receive(values[rank], rank)
    combine([into], [values[rank] for rank in ranks])


def parts(link: Messenger, data: np.ndarray, into: np.ndarray, combine: Combine, ranks: Sequence[int]) -> None:
    """Combine a part of `data` here (reduce_scatter), and send it to all (allgather)."""
    part = dict(zip(ranks, spans(data.size, len(ranks)), strict=True))
    others = [rank for rank in ranks if rank != link.rank]
    a, b = part[link.rank]
    for rank in others:
        link.send(data[slice(*part[rank])], rank)
    received = {rank: np.empty(b - a, np.uint8) for rank in others}
    for rank in others:
        link.receive(received[rank], rank)
    if a < b:
        combine([into[a:b]], [data[a:b] if rank == link.rank else received[rank] for rank in ranks])
    for rank in others:
        link.send(into[a:b], rank)
    for rank in others:
        link.receive(into[slice(*part[rank])], rank)


def chain(link: Messenger, data: np.ndarray, into: np.ndarray, combine: Combine, ranks: Sequence[int]) -> None:
    """Add `data` to each chunk that comes from the rank before and pass it on; pass the results back.

    The results of a chunk come back while later chunks go forward: as many chunks are on the way as the chain has links
    behind this process, there and back.
    """
    at, last = ranks.index(link.rank), len(ranks) - 1
    chunks = [(a, min(a + CHUNK_BYTES, data.size)) for a in range(0, data.size, CHUNK_BYTES)]
    received = np.empty(min(CHUNK_BYTES, data.size), np.uint8)
    under_way = 2 * (last - at)

    def forward(a: int, b: int) -> None:
        if at == 0:
            link.send(data[a:b], ranks[1])
            return
        link.receive(received[: b - a], ranks[at - 1])
        combine([into[a:b]], [received[: b - a], data[a:b]])
        link.send(into[a:b], ranks[at + 1 if at < last else at - 1])

    def back(a: int, b: int) -> None:
        if at == last:
            return  # sent by `forward`
        link.receive(into[a:b], ranks[at + 1])
        if at > 0:
            link.send(into[a:b], ranks[at - 1])

    for t in range(len(chunks) + under_way):
        if t < len(chunks):
            forward(*chunks[t])
        if t >= under_way:
            back(*chunks[t - under_way])


ROUTES: dict[str, Callable[[Messenger, np.ndarray, np.ndarray, Combine, Sequence[int]], None]] = {
    "exchange": exchange, "parts": parts, "chain": chain,
}  # fmt: skip

__all__ = ["ROUTES", "Messenger", "chain", "exchange", "parts"]
