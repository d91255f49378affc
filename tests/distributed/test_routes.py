"""The choice of a route for an allreduce by messages, and each route between threads that exchange arrays."""

from __future__ import annotations

import threading
from collections import defaultdict
from queue import Queue

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect.backend.mpi import messages
from monolect.backend.mpi.messages import ROUTES
from monolect.backend.mpi.routes import explained, routes


@pytest.mark.parametrize(
    ("n_bytes", "hosts", "name"),
    [
        (8, [0, 1], "exchange"),
        (1 << 10, [0, 0, 1, 1], "exchange"),
        (1 << 20, [0, 1], "exchange"),  # of two, as many bytes as parts
        (1 << 20, [0, 1, 2], "parts"),
        (64 << 20, [0, 1, 2, 3], "parts"),
        (64 << 20, [0] * 8 + [8] * 8, "chain"),  # each host's link carries the bytes twice, and not eight times
        (64 << 10, [0] * 8 + [8] * 8, "parts"),
    ],
)
def test_the_route_follows_size_and_hosts(n_bytes: int, hosts: list[int], name: str) -> None:
    assert routes(n_bytes, hosts)[0].name == name
    assert explained(n_bytes, hosts).startswith(f"{name} ")


@given(st.integers(0, 1 << 36), st.lists(st.integers(0, 5), min_size=2, max_size=40).map(sorted))
def test_each_route_has_a_time_that_grows_with_the_bytes(n_bytes: int, hosts: list[int]) -> None:
    small, large = routes(n_bytes, hosts), routes(2 * n_bytes + 1, hosts)
    assert {r.name for r in small} == {*ROUTES} and [r.seconds for r in small] == sorted(r.seconds for r in small)
    times = {r.name: r.seconds for r in small}
    assert all(0 < times[r.name] <= r.seconds for r in large)


class Post:
    """A process of a job, as a thread of this one. `queues`: the messages between each two of them."""

    def __init__(self, rank: int, queues: dict[tuple[int, int], Queue[np.ndarray]]) -> None:
        self.rank, self.queues = rank, queues

    def send(self, data: np.ndarray, to: int) -> None:
        self.queues[self.rank, to].put(data.copy())

    def receive(self, into: np.ndarray, source: int) -> None:
        found = self.queues[source, self.rank].get(timeout=20)
        assert found.size == into.size
        into[:] = found


def add(results: list[np.ndarray], values: list[np.ndarray]) -> None:
    total = values[0].view(np.float32)
    for v in values[1:]:
        total = total + v.view(np.float32)
    for r in results:
        r.view(np.float32)[:] = total


@given(st.sampled_from([*ROUTES]), st.integers(2, 6), st.integers(1, 3000), st.sampled_from([64, 512, 4096]))
def test_all_have_the_bits_of_a_sum_in_order(name: str, n: int, size: int, chunk: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.standard_normal((n, size), np.float32)
    wanted = values[0]
    for v in values[1:]:
        wanted = wanted + v
    queues: dict[tuple[int, int], Queue[np.ndarray]] = defaultdict(Queue)
    for a in range(n):
        for b in range(n):
            queues[a, b] = Queue()
    ranks = [3 * k + 1 for k in range(n)]
    queues |= {(3 * a + 1, 3 * b + 1): q for (a, b), q in [*queues.items()]}
    found = np.full((n, size), np.nan, np.float32)
    before, messages.CHUNK_BYTES = messages.CHUNK_BYTES, chunk
    try:
        threads = [
            threading.Thread(
                target=ROUTES[name],
                args=(Post(ranks[k], queues), values[k].view(np.uint8), found[k].view(np.uint8), add, ranks),
            )
            for k in range(n)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join(30)
    finally:
        messages.CHUNK_BYTES = before
    np.testing.assert_array_equal(found.view(np.int32), np.broadcast_to(wanted, (n, size)).view(np.int32))
    assert all(q.empty() for q in queues.values())
