"""A command buffer has a barrier where a launch needs what another thread made, and no other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, jit
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.command.forms import items_of
from monolect.command.rewrites import group as p
from monolect.command.rewrites.group import Group, Work, groups, work_of
from monolect.ir.ops import KernelInfo, ParamArg, ProgramInfo
from monolect.ir.uop import UOp, node, shape_source
from tests.strategies import often

W = Tensor(np.eye(8, dtype=np.float32)[::-1] * 0.5).realize()
TWO = Device["cpu"].target.n_threads == 2
pytestmark = pytest.mark.skipif(not TWO, reason="lanes are counted for two threads")


def buffer(number: int) -> UOp:
    return node("PARAM", (shape_source((16,)),), ParamArg(number, dtypes.float32, "cpu", "GLOBAL"))


COSTLY, CHEAP = 10_000, 20  # ns of an item


def step(reads: list[int], writes: list[int], n_threads: int = 1, ns: int = CHEAP, is_opaque: bool = False) -> Work:
    touched, written = frozenset(map(buffer, (*reads, *writes))), frozenset(map(buffer, writes))
    return Work(touched, written, n_threads, ns, is_opaque)


def costly(reads: list[int], writes: list[int], n_threads: int = 1, is_opaque: bool = False) -> Work:
    return step(reads, writes, n_threads, COSTLY, is_opaque)


def lanes(found: list[Group]) -> list:
    return [g.lanes or g.items for g in found]


def test_two_chains_have_a_lane_each_and_meet_at_one_barrier() -> None:
    chains = [costly([0], [2]), costly([2], [3]), costly([1], [4]), costly([4], [5]), costly([3, 5], [6])]
    found = groups(chains, 2)
    assert lanes(found) == [(((0, 0), (1, 0)), ((2, 0), (3, 0))), (4,)]


def test_small_launches_stay_on_one_thread() -> None:
    assert lanes(groups([step([0], [k]) for k in range(1, 9)], 2)) == [tuple(range(8))]


def test_independent_launches_that_are_shared_out_have_one_barrier() -> None:
    found = groups([step([0], [1], 2), step([0], [2], 2), step([0], [3]), step([1, 2, 3], [4], 2)], 2)
    assert lanes(found) == [(((0, 0), (1, 0), (2, 0)), ((0, 1), (1, 1))), (3,)]


@pytest.mark.parametrize(
    ("first", "second"),
    [(([0], [1]), ([1], [2])), (([1], [2]), ([0], [1])), (([0], [1]), ([2], [1]))],
    ids=["read after write", "write after read", "write after write"],
)
def test_what_touches_the_same_is_in_one_lane_or_behind_a_barrier(first, second) -> None:
    other = costly([7], [8])
    assert lanes(groups([costly(*first), other, costly(*second)], 2)) == [(((0, 0), (2, 0)), ((1, 0),))]
    assert len(groups([costly(*first, 2), costly(*second, 2)], 2)) == 2


def test_buffers_in_the_same_memory_are_one() -> None:
    info = ProgramInfo("k", operands=((dtypes.float32, 16, "write"), (dtypes.float32, 16, "read")))
    program = node("PROGRAM", (node("SINK", (), KernelInfo()),), info)
    both = [node("CALL", (program, buffer(k + 1), buffer(k))) for k in (0, 2)]
    assert not work_of(both[0], {}).touched & work_of(both[1], {}).touched
    same = {buffer(1): buffer(9), buffer(2): buffer(9)}
    assert work_of(both[0], same).written & work_of(both[1], same).touched == {buffer(9)}


def test_native_functions_of_the_users_are_alone() -> None:
    steps = [costly([0], [1]), costly([0], [2], is_opaque=True), costly([0], [3])]
    assert lanes(groups(steps, 2)) == [(0,), (1,), (2,)]


# ---- on the device ---------------------------------------------------------------------------------------------------
def branches(x: Tensor) -> Tensor:
    a, b = x, x.T.contiguous()
    for _ in range(4):
        a, b = (a @ W).contiguous(), (b @ W.T).contiguous()
    return a + b


def barriers(f) -> int:
    return next(iter(f.captures.values())).capture.commands.n_barriers


def test_barriers_of_a_captured_step(monkeypatch: pytest.MonkeyPatch) -> None:
    small, x = jit(branches), Tensor(np.arange(64, dtype=np.float32).reshape(8, 8)).realize()
    want = small(x).numpy()
    assert barriers(small) == 0
    monkeypatch.setattr(p, "BARRIER_NS", 0)
    parted = jit(branches)
    parted(x)
    assert 1 <= barriers(parted) <= 2 < len(next(iter(parted.captures.values())).capture.items)
    for _ in range(50):
        np.testing.assert_array_equal(parted(x).numpy(), want)


def test_large_independent_products_share_a_barrier() -> None:
    w = [Tensor(np.random.default_rng(k).standard_normal((256, 256)).astype(np.float32)).realize() for k in range(3)]

    def qkv(x: Tensor) -> tuple[Tensor, ...]:
        return tuple((x @ m).contiguous() for m in w)

    f, x = jit(qkv), Tensor(np.ones((256, 256), np.float32)).realize()
    f(x)
    n = len(next(iter(f.captures.values())).capture.items)
    assert barriers(f) == 1 <= n
    for got, m in zip(f(x), w, strict=True):
        np.testing.assert_allclose(got.numpy(), x.numpy() @ m.numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("needs", [False, True])
def test_a_copy_waits_for_a_kernel_only_where_it_needs_it(needs: bool) -> None:
    """On this device a copy is a launch like others: both are shared out, and the threads meet once, or in between."""
    w = Tensor(np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)).realize()

    def product_and_copy(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        product = (x @ w).contiguous().realize()
        return product, (product if needs else y).T.contiguous()

    f, x, y = jit(product_and_copy), Tensor.ones(512, 512).realize(), Tensor.rand(512, 512).realize()
    f(x, y)
    (captured,) = f.captures.values()
    *_, before, copy = captured.capture.items
    together = [u for u in items_of(captured.capture.program) if u.op == "GROUP" and {before, copy} <= {*u.src}]
    assert len(together) == (0 if needs else 1)
    assert barriers(f) == (2 if needs else 1)
    product, copied = f(x, y)
    np.testing.assert_array_equal(copied.numpy(), (product if needs else y).numpy().T)


@settings(max_examples=often(8, 60), deadline=None)
@given(st.data())
def test_any_graph_of_small_kernels_is_what_it_is_without_threads(data) -> None:
    edges = data.draw(st.lists(st.tuples(*[st.integers(0, 30)] * 3), min_size=4, max_size=14))
    with_state = data.draw(st.booleans())
    rows = np.arange(48, dtype=np.int64) % 7  # integers: sums in another order are the same

    def graph(x: Tensor, state: Tensor) -> list[Tensor]:
        values = [x, state * 1]
        for a, b, kind in edges:
            u, v = values[a % len(values)], values[b % len(values)]
            new = (u + v, u * 5 - v, u.flip(0) + v * 3, (u - v).cumsum(0) * 7, u.sort(0)[0] - v)[kind % 5]
            values.append(new.contiguous())
        if with_state:
            state.assign(values[-1] * 3)
        return values[2:]

    def run(f) -> list[np.ndarray]:
        state, out = Tensor(rows + 1).clone().realize(), []
        for k in range(4):
            out += [t.numpy() for t in f(Tensor(rows + k), state)] + [state.numpy()]
        return out

    before = p.BARRIER_NS
    try:
        p.BARRIER_NS = 0  # whatever may run at the same time does
        parallel = run(jit(graph))
    finally:
        p.BARRIER_NS = before
    with Context(NOOPT=1):
        serial = run(lambda x, state: _realized(graph(x, state), state))
    for got, want in zip(parallel, serial, strict=True):
        np.testing.assert_array_equal(got, want)


def _realized(values: list[Tensor], state: Tensor) -> list[Tensor]:
    values[0].realize(*values[1:], state)
    return values
