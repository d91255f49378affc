"""Graphs of GPUs: any order of the nodes that the edges allow gives what the launches give one after the other.

The drivers are not there: ours runs the nodes of a graph in the order that is least like the schedule's, or in a drawn
one. What this does not show: that kernels which run at the same time keep out of each other's way otherwise; for that,
what is not ordered is compared by its addresses.
"""

import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, Variable, jit
from monolect.backend import registry
from monolect.backend.cuda import compile as nvrtc
from monolect.backend.cuda import driver as cuda_driver
from monolect.backend.hip import compile as clang
from monolect.backend.hip import driver as hip_driver
from monolect.command.forms import writes
from monolect.command.rewrites.dependencies import all_before
from monolect.runtime.realize.execute import plans
from tests.backend.standin.device import missing
from tests.backend.standin.driver import Compiler, Driver, Hip, HipCompiler
from tests.strategies import often

pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing() or "-"), pytest.mark.sweep]
ROWS = np.arange(48, dtype=np.int64) % 7  # integers: sums in another order are the same


@pytest.fixture(scope="module", params=["cuda", "hip"])
def gpu(request) -> Iterator[tuple[str, Driver]]:
    """A GPU that is not there, by name, and its driver."""
    fake, m = Driver(), pytest.MonkeyPatch()
    m.setattr(cuda_driver, "bindings", lambda: fake)
    m.setattr(nvrtc, "Compiler", Compiler)
    m.setattr(nvrtc, "missing", lambda: "")
    m.setattr(hip_driver, "bindings", lambda: Hip(fake))
    m.setattr(clang, "Compiler", HipCompiler)
    m.setattr(clang, "missing", lambda: "")
    m.setattr(registry.Device, "_open", {k: d for k, d in registry.Device._open.items() if k[:3] not in ("cud", "hip")})
    plans.clear()  # those of other tests launch on devices of their own
    with Context(COMPILE_CACHE=0):
        yield request.param, fake
    plans.clear()
    m.undo()


def captured(f):
    return next(iter(f.captures.values())).capture


def check_conflicts(capture) -> int:
    """Launches that touch the same bytes, one of them writing, are ordered; how many pairs are not."""
    commands, steps = capture.commands, capture.items
    behind, free = all_before(commands.after), 0
    spans = []
    for step, s in zip(commands.steps, steps, strict=True):
        mine = []
        for i, (slot, n_bytes, name) in enumerate(step.entry.arguments):
            if not name:
                at = step.values[i]
                mine.append((at, at + n_bytes, slot in writes(s)))
        spans.append(mine)
    for i, mine in enumerate(spans):
        for j, theirs in enumerate(spans[:i]):
            if not behind[i] >> j & 1:
                free += 1
                assert not any(a < d and c < b and (v or w) for a, b, v in mine for c, d, w in theirs), (j, i)
    return free


def test_branches_run_side_by_side_and_meet(gpu):
    dev, driver = gpu

    def branches(x, y):
        a, b = x, y
        for k in range(3):
            a, b = (a.flip(0) + k).contiguous(), (b.cumsum(0) * 3).contiguous()
        return a - b

    x, y = (Tensor(ROWS * k, device=dev).realize() for k in (1, 3))
    want = branches(x.to("cpu"), y.to("cpu")).numpy()
    f = jit(branches)
    for _ in range(3):
        np.testing.assert_array_equal(f(x, y).numpy(), want)
    assert driver.graphs[-1] == [[], [], [0], [1], [2, 3]] and check_conflicts(captured(f)) == 4


def test_a_copy_waits_for_a_kernel_only_where_it_needs_it(gpu):
    dev, _ = gpu

    def step(x, y, needs):
        product = (x * 5 + 1).contiguous().realize()
        return product, (product if needs else y).reshape(6, 8).T.contiguous()

    x, y = (Tensor(ROWS + k, device=dev).realize() for k in (1, 3))
    for needs in (False, True):
        f = jit(lambda x, y, needs=needs: step(x, y, needs))
        for _ in range(3):
            product, copied = f(x, y)
            np.testing.assert_array_equal(copied.numpy(), (product if needs else y).numpy().reshape(6, 8).T)
        assert captured(f).commands.after == ([(), (0,)] if needs else [(), ()])


def test_arguments_that_are_the_same_memory(gpu):
    """Twice the same tensor, views of it, and results that are arguments again."""
    dev, _ = gpu
    base = Tensor(np.arange(96, dtype=np.int32), device=dev).realize()

    def step(x, y, z):
        a = (x.flip(0) + y).contiguous().realize()
        b = (z * 2 - x).contiguous().realize()
        return (a + b).contiguous(), (b.flip(0) - a).contiguous()

    f = jit(step)
    for k in range(8):
        parts = [(base[:48], base[48:], base[16:64]), (base[:48], base[:48], base[:48])][k % 2]
        x, y, z = (p.numpy() for p in parts)
        a, b = x[::-1] + y, z * 2 - x
        got, other = f(*parts)
        np.testing.assert_array_equal(got.numpy(), a + b)
        np.testing.assert_array_equal(other.numpy(), b[::-1] - a)
        for again in (f(got, other, got), f(other, got, got)):
            del again
        np.testing.assert_array_equal(got.numpy(), a + b)


def test_donated_arguments_and_their_results(gpu):
    dev, driver = gpu

    def step(x, y):
        back = x.flip(0).contiguous().realize()
        z = (y * 3 + 1).contiguous().realize()
        return back, x * 7 - z  # written over x, behind who reads x

    f, y = jit(step, donate=0), Tensor(ROWS * 2, device=dev).realize()
    for k in range(6):
        x = ROWS + k
        back, other = f((Tensor(x, device=dev) * 1).realize(), y)
        np.testing.assert_array_equal(back.numpy(), x[::-1])
        np.testing.assert_array_equal(other.numpy(), x * 7 - (6 * ROWS + 1))
    check_conflicts(captured(f))
    assert captured(f).reuse and driver.graphs[-1] == [[], [], [0, 1]]


def test_sizes_of_the_moment(gpu):
    dev, _ = gpu
    n = Variable("n", 1, 48)

    @jit
    def step(x):
        a, b = (x[:n] * 2).sum(), (x[:n] + 1).max()
        return a, b, (a - b) * 3

    x = Tensor(ROWS, device=dev).realize()
    for k in (5, 48, 1, 17, 17, 30):
        with n.bind(k):
            a, b = (ROWS[:k] * 2).sum(), (ROWS[:k] + 1).max()
            assert [t.item() for t in step(x)] == [a, b, (a - b) * 3]


EDGES = st.lists(st.tuples(*[st.integers(0, 30)] * 3), min_size=4, max_size=12)


@settings(max_examples=often(4, 24), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EDGES, st.booleans(), st.booleans(), st.integers(0, 1 << 30))
def test_any_program_in_any_order(gpu, edges, with_state, one_by_one, seed):
    dev, driver = gpu

    def graph(x, state):
        values = [x, state.flip(0)]
        for a, b, kind in edges:
            u, v = values[a % len(values)], values[b % len(values)]
            new = (u + v, (u * 5).cumsum(0) - v, u.flip(0) + v * 3, (u - v).cumsum(0) * 7)[kind % 4].contiguous()
            values.append(new.realize() if one_by_one else new)  # a kernel each, or fused
        if with_state:
            state.assign(values[-1] * 3)
        return values[-3:]

    def run(f, dev) -> list[np.ndarray]:
        state, out = (Tensor(ROWS + 1, device=dev) * 1).realize(), []
        for k in range(5):
            values = f(Tensor(ROWS + k, device=dev), state)
            out += [t.numpy() for t in values] + [state.numpy()]
        return out

    def plain(x, state):
        values = graph(x, state)
        values[0].realize(*values[1:], state)
        return values

    draw = random.Random(seed)
    orders = [lambda ready: ready[-1], draw.choice]
    want = run(plain, "python")
    for order in orders:
        driver.pick = order
        step = jit(graph)
        for f in (step, plain):  # the plain one's plans are graphs too, from their second run on
            for got, expected in zip(run(f, dev), want, strict=True):
                np.testing.assert_array_equal(got, expected)
        check_conflicts(captured(step))
    driver.pick = orders[0]


# ---- arrays that come while a step runs ------------------------------------------------------------------------------
N = 1 << 15  # elements: enough to travel beside


def batch(k: int) -> np.ndarray:
    return (np.arange(N, dtype=np.int32) * 7 + k) % 1001


@pytest.fixture(params=["early", "late"])
def streams(gpu, request):
    """The GPU, whose streams run as early or as late as they may."""
    gpu[1].is_early = request.param == "early"
    yield gpu
    gpu[1].is_early = True


def test_the_next_batch_travels_beside_the_step(gpu):
    dev, driver = gpu
    step, total = jit(lambda x, y: (x * 2 + y).flip(0)), Tensor(batch(0), device=dev)
    for k in range(4):
        total = step(total, Tensor(batch(k), device=dev))
    total.numpy()
    driver.order.clear()
    queued = driver.calls["cuGraphLaunch"] + driver.calls["cuLaunchKernel"]
    for k in range(3):
        total = step(total, Tensor(batch(k), device=dev))
    assert driver.calls["cuGraphLaunch"] + driver.calls["cuLaunchKernel"] == queued + 3
    total.numpy()
    assert driver.order[:2] == ["from the host"] * 2, "the second is there before the first step runs"


def test_no_array_arrives_in_memory_that_is_still_read(streams):
    dev, driver = streams
    step, want = jit(lambda x, total: (x.flip(0) * 3 + total).contiguous()), np.zeros(N, np.int32)
    total = Tensor(want, device=dev).realize()
    for k in range(12):
        x = Tensor(batch(k), device=dev)
        if k % 3 == 1:
            x, drop = Tensor(batch(k + 5), device=dev), x  # one that is never used
            del drop
        total = step(x, total)
        if k % 4 == 3:
            del x  # its memory is free while the step may still read it
        want = batch(k + 5 if k % 3 == 1 else k)[::-1] * 3 + want
        if k % 5 == 4:
            np.testing.assert_array_equal(total.numpy(), want)
    np.testing.assert_array_equal(total.numpy(), want)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from("nnnsskdrc"), st.integers(0, 5)), max_size=40))
def test_any_order_of_arrays_steps_and_reads(streams, actions):
    """New arrays, steps, tensors kept and dropped, reads, copies: each holds what it should at the end."""
    dev, _ = streams
    step = STEPS.setdefault(dev, jit(lambda a, b: (a.flip(0) * 3 + b).contiguous()))
    held = [(Tensor(batch(k), device=dev), batch(k)) for k in range(2)]
    for action, k in actions:
        (a, x), (b, y) = held[k % len(held)], held[-1]
        if action == "n":
            held.append((Tensor(batch(k), device=dev), batch(k)))
        elif action == "s":
            held.append((step(a, b), x[::-1] * 3 + y))
        elif action == "k":
            held = held[-4:]
        elif action == "d" and len(held) > 2:
            del held[k % len(held)]
        elif action == "r":
            np.testing.assert_array_equal(a.numpy(), x)
        elif action == "c":
            held.append((a.clone().realize(), x))
        del a, b
    for t, x in held:
        np.testing.assert_array_equal(t.numpy(), x)


STEPS: dict = {}


def test_arrays_that_come_and_go_take_one_block_more(gpu):
    dev, _ = gpu
    memory = registry.Device[dev].memory
    for k in range(50):  # more than other tests left free
        Tensor(batch(k), device=dev)
    before = memory.used_bytes + memory.cached_bytes
    for k in range(20):
        Tensor(batch(k), device=dev)
    assert memory.used_bytes + memory.cached_bytes == before
