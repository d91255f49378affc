"""`@jit` replays what the function would do: fresh results, living state, no stale value."""

import dataclasses
import gc
import linecache
import mmap
import pickle
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

from monolect import CaptureWarning, Context, JitError, Tensor, function, jit, nn
from monolect.backend.common import pages
from monolect.backend.common.host.memory import stats
from monolect.ir.uop import live_nodes
from monolect.runtime import profile


def values(*ts: Tensor) -> list:
    return [t.tolist() for t in ts]


def test_replay_runs_no_scheduler() -> None:
    f = jit(lambda x: (x * 2 + 1).softmax(0))
    x = Tensor([1.0, 2.0, 3.0])
    f(x)
    before = dict(profile.counts)
    got = f(Tensor([3.0, 2.0, 1.0])).numpy()
    assert profile.counts == before
    e = np.exp(np.array([7.0, 5.0, 3.0]) - 7)
    np.testing.assert_allclose(got, e / e.sum(), rtol=1e-6)


def test_outputs_are_fresh() -> None:
    f = jit(lambda x: x + 1)
    outs = [f(Tensor([float(i)])) for i in range(5)]
    assert values(*outs) == [[1.0], [2.0], [3.0], [4.0], [5.0]]


def test_shapes_dtypes_and_python_values_are_the_signature() -> None:
    f = jit(lambda x, k: x * k)
    assert f(Tensor([1.0, 2.0]), 2).tolist() == [2.0, 4.0]
    assert f(Tensor([1.0, 2.0]), 3).tolist() == [3.0, 6.0]
    assert f(Tensor([1.0, 2.0, 3.0]), 3).tolist() == [3.0, 6.0, 9.0]
    assert f(Tensor([1, 2]), 3).tolist() == [3, 6]
    assert len(f.captures) == 4


def test_the_same_tensor_twice_is_another_signature() -> None:
    f = jit(lambda a, b: a - b)
    x, y = Tensor([3.0]), Tensor([1.0])
    assert [f(x, y).item(), f(x, x).item(), f(y, x).item(), f(y, y).item()] == [2.0, 0.0, -2.0, 0.0]


def test_nested_arguments_and_results() -> None:
    f = jit(lambda d, *, w: {"sum": d["a"] + d["b"][0], "pair": (d["a"] * w, 7)})
    for i in range(3):
        out = f({"a": Tensor([float(i)]), "b": [Tensor([1.0])]}, w=Tensor([10.0]))
        assert (out["sum"].item(), out["pair"][0].item(), out["pair"][1]) == (i + 1.0, 10.0 * i, 7)


def test_state_is_read_and_updated() -> None:
    c = Tensor([0.0]).realize()

    @jit
    def step(k: Tensor) -> Tensor:
        c.assign(c + k)
        return c * 1

    kept = []
    for i in range(1, 6):
        assert step(Tensor([1.0])).item() == i
        assert c.item() == i
        kept.append((c.detach(), c.clone()))
    assert [[k.item() for k in pair] for pair in kept] == [[5.0, float(i)] for i in range(1, 6)]


def test_a_replay_takes_no_memory_from_the_system() -> None:
    resource = pytest.importorskip("resource")
    w, total = Tensor.ones(32, 512).realize(), Tensor.zeros(32, 512).realize()

    @jit
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        h = (x @ w).relu()  # passes between kernels
        total.assign(total + h.mean(0))
        return h @ w.T, h.sum()

    x = Tensor.ones(4096, 32).realize()
    for _ in range(4):
        out = step(x)
    mapped, found = stats().mapped_bytes, []
    for _ in range(3):  # other threads of the tests may touch pages of their own
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            out = step(x)
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert stats().mapped_bytes == mapped
    assert min(found) < 40, "0.5 MB of fresh memory is 128 faults a replay, 8 MB between kernels 2048"
    assert out[1].item() == 4096 * 512 * 32


def test_weights_that_were_not_computed_yet_are_drawn_once() -> None:
    w = Tensor.randn(3, 3)
    noisy = jit(lambda x: (x @ w, x + Tensor.rand(2, 3)))
    x = Tensor.ones(2, 3)
    drawn = [noisy(x) for _ in range(4)]
    for product, _ in drawn:
        np.testing.assert_allclose(product.numpy(), x.numpy() @ w.numpy(), rtol=1e-5)
    assert len({tuple(noise.numpy().ravel()) for _, noise in drawn}) == 4


def test_a_numpy_view_of_state_keeps_its_values() -> None:
    c = Tensor([0.0]).realize()

    @jit
    def step(k: Tensor) -> Tensor:
        c.assign(c + k)
        return k * 2

    one = Tensor([1.0])
    for _ in range(4):
        step(one)
    held = c.numpy()
    step(one)
    step(one)
    assert (held[0], c.item()) == (4.0, 6.0)


def test_an_array_that_became_state_keeps_its_values() -> None:
    c = Tensor([0.0]).realize()

    @jit
    def step(k: Tensor) -> Tensor:
        c.assign(c + k)
        return k * 2

    one = Tensor([1.0])
    for _ in range(4):
        step(one)
    a = np.array([5.0], np.float32)
    c.uop = Tensor(a).realize().uop
    step(one)
    assert (a[0], c.item()) == (5.0, 6.0)
    c.uop = Tensor(np.arange(4, dtype=np.float32)[1:2]).realize().uop
    step(one)
    assert c.item() == 2.0 and c.uop.storage.address % 64 == 0


def test_a_read_only_tensor_assigned_outside_is_seen() -> None:
    w = Tensor([2.0, 2.0]).realize()
    f = jit(lambda x: x * w)
    x = Tensor([1.0, 3.0])
    assert values(f(x), f(x)) == [[2.0, 6.0], [2.0, 6.0]]
    w.assign(Tensor([5.0, 5.0]))
    assert f(x).tolist() == [5.0, 15.0]
    w[0] = 9.0
    assert values(f(x), f(x)) == [[9.0, 15.0], [9.0, 15.0]]


def test_views_as_arguments() -> None:
    f = jit(lambda x: x + 1)
    base = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    for _ in range(3):
        assert f(base.T[1]).tolist() == [2.0, 5.0]


def vector(*v: float) -> Tensor:
    return Tensor(np.array(v, np.float32)).realize()


def test_an_argument_that_is_returned_is_that_of_the_call() -> None:
    f = jit(lambda x: (x, x.reshape(2, 1), x + 1))
    for i in range(3):
        same, view, more = f(vector(i, i + 1))
        assert values(same, view, more) == [[i, i + 1], [[i], [i + 1]], [i + 1, i + 2]]


def test_an_assigned_argument_is_that_of_the_call() -> None:
    def step(x: Tensor) -> Tensor:
        old = x * 1
        x.assign(x + 1)
        return old

    f = jit(step)
    for i in range(3):
        x = vector(10.0 * i)
        assert (f(x).item(), x.item()) == (10.0 * i, 10.0 * i + 1)
    assert ([f(x).item() for _ in range(3)], x.item()) == ([21.0, 22.0, 23.0], 24.0)


def test_parts_of_an_argument_in_a_dict_are_assigned_at_each_call() -> None:
    def step(cache: dict[str, Tensor], x: Tensor) -> Tensor:
        cache["keys"][1:2] = x
        return cache["keys"].sum()

    f = jit(step)
    a, b = {"keys": vector(1, 2, 3)}, {"keys": vector(4, 5, 6)}
    held = b["keys"].numpy()
    got = [f(cache, vector(v)).item() for cache, v in ((a, 7.0), (b, 8.0), (a, 9.0))]
    assert got == [11.0, 18.0, 13.0]
    assert values(a["keys"], b["keys"]) == [[1, 9, 3], [4, 8, 6]] and held.tolist() == [4, 5, 6]


def test_two_arguments_that_are_assigned_to_each_other() -> None:
    def swap(x: Tensor, y: Tensor) -> Tensor:
        old = x * 1
        x.assign(y)
        y.assign(old)
        return x

    f = jit(swap)
    for i in range(3):
        a, b = vector(i), vector(10.0)
        assert (f(a, b).item(), a.item(), b.item()) == (10.0, 10.0, i)


def test_one_tensor_as_two_arguments_is_assigned_once() -> None:
    def step(x: Tensor, y: Tensor) -> Tensor:
        x.assign(x + 1)
        return x * 2 + y

    f = jit(step)
    for _ in range(3):
        a, b, c = vector(1.0), vector(1.0), vector(5.0)
        assert (f(a, a).item(), a.item()) == (6.0, 2.0)
        assert (f(b, c).item(), b.item(), c.item()) == (9.0, 2.0, 5.0)


def test_an_argument_that_is_also_read_from_outside_is_two_things() -> None:
    w = vector(5.0)
    f = jit(lambda x: x * 10 + w)
    assert [f(w).item(), f(vector(1.0)).item(), f(w).item()] == [55.0, 15.0, 55.0]


def test_the_old_version_of_a_state_can_be_returned() -> None:
    c = vector(0.0)

    @jit
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        old = Tensor(c)
        c.assign(c + x)
        return old, c

    for i in range(4):
        old, new = step(vector(1.0))
        assert new is c and values(old, new) == [[i], [i + 1.0]]


@pytest.mark.parametrize("order", [1, -1])
def test_an_old_version_that_another_result_of_the_kernel_reads_is_read_before_it_is_gone(order: int) -> None:
    state, n = vector(*[1.0] * 500), np.float32

    @jit
    def step(x: Tensor) -> tuple:
        old = (state + x).contiguous()
        state.assign(x * 2)
        return (old, (x * 3).contiguous())[::order]

    want = np.ones(500, n)
    with Context(COMPILE_CACHE=0):
        for k in range(5):
            x = np.full(500, k + 1, n)
            np.testing.assert_array_equal(step(Tensor(x))[::order][0].numpy(), want + x)
            want = x * 2


def test_a_capture_keeps_no_memory_of_what_it_returned_or_replaced() -> None:
    n_bytes = 16 << 20
    gc.collect()  # what other tests left is not to go in between
    before = stats().used_bytes
    w = Tensor.zeros(n_bytes // 4).contiguous().realize()
    f = jit(lambda x: (w.assign(w + x), x.expand(w.shape) * 2)[1])
    for _ in range(3):
        out = f(vector(1.0))
    assert out.numpy().max() == 2.0
    del out
    assert len(w.uop.storage.view(np.uint8)) >= n_bytes  # the state's own; what older caches held may go meanwhile
    assert stats().used_bytes - before < 1.5 * n_bytes
    assert w.numpy().min() == 3.0


FACTOR = 1


def test_numbers_and_objects_around_a_step_are_part_of_the_signature() -> None:
    global FACTOR
    x, number, w = vector(1.0), 1, vector(2.0)
    f = jit(lambda x: x * FACTOR + x * number + w)
    assert f(x).item() == 4.0
    number = 3
    assert f(x).item() == 6.0
    FACTOR = 10
    assert f(x).item() == 15.0
    w = vector(100.0)
    assert f(x).item() == 113.0
    FACTOR, number = 1, 3
    assert [f(x).item(), f(x).item()] == [104.0, 104.0]
    n = len(f.captures)
    FACTOR, number = 10, 3
    assert f(x).item() == 113.0 and len(f.captures) == n, "what was captured once is replayed"


def test_a_step_that_changes_what_it_reads_is_told_once() -> None:
    class Model:
        def __init__(self) -> None:
            self.n = 0

        @jit
        def step(self, x: Tensor) -> Tensor:
            self.n += 1
            return x * self.n

    model = Model()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [model.step(Tensor([1.0])).item() for _ in range(8)] == [1, 2, 3, 4, 5, 6, 7, 8]
    (warning,) = caught
    assert warning.category is CaptureWarning and "'n'" in str(warning.message)
    assert warning.filename == __file__ and "model.step(Tensor" in linecache.getline(__file__, warning.lineno)


def test_what_settles_is_not_told() -> None:
    seen: dict[str, int] = {"n": 0}
    count = 0

    @jit
    def step(x: Tensor) -> Tensor:
        nonlocal count
        count = min(count + 1, 2)  # such as what is made at the first call
        return x * count

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [step(Tensor([1.0])).item() for _ in range(6)] == [1, 2, 2, 2, 2, 2] and not seen["n"]


def test_tensors_that_were_around_a_step_are_let_go() -> None:
    kept = []

    def around(value: float) -> weakref.ref[Tensor]:
        nonlocal t
        t = Tensor([value]).realize()
        assert step(Tensor([1.0])).item() == value + 1
        return weakref.ref(t)

    t = Tensor([0.0])
    step = jit(lambda x: x + t)
    kept = [around(float(k)) for k in range(20)]
    gc.collect()
    assert sum(ref() is not None for ref in kept) <= 9 and len(step.captures) <= 8
    t = kept[-1]()
    assert step(Tensor([1.0])).item() == 20.0


def test_attributes_of_an_instance_are_what_they_are_at_the_call() -> None:
    class Model:
        def __init__(self) -> None:
            self.k, self.total = 2.0, vector(0.0)

        @jit
        def scaled(self, x: Tensor) -> Tensor:
            return x * self.k

        @jit
        def added(self, x: Tensor) -> Tensor:
            self.total = self.total + x  # another object at each call, so another capture
            return self.total * 1

    m, x = Model(), vector(1.0)
    assert [m.scaled(x).item(), m.scaled(x).item()] == [2.0, 2.0]
    m.k = 5.0
    assert m.scaled(x).item() == 5.0
    with pytest.warns(CaptureWarning, match="changes 'total'"):
        assert [m.added(x).item() for _ in range(4)] == [1.0, 2.0, 3.0, 4.0] and m.total.item() == 4.0


def test_a_model_that_was_set_to_evaluate_evaluates() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    step, x = jit(lambda x: model(x)), Tensor(np.ones((64, 4), np.float32)).realize()

    def dropped() -> bool:
        return bool((step(x).numpy() == 0).mean() > 0.2)

    assert [dropped(), dropped()] == [True, True]
    model.eval()
    assert [dropped(), dropped()] == [False, False]
    model.train()
    assert [dropped(), dropped()] == [True, True] and len(step.captures) == 2


def test_a_tensor_that_is_returned_twice_is_one_tensor_at_every_call(tmp_path) -> None:
    def step(x: Tensor) -> dict[str, Any]:
        y, z = x * 2, x * 2  # equal, and yet two
        return {"first": y, "again": [y, z]}

    fast, x = jit(step), vector(1.0, 2.0)
    calls = [fast(x) for _ in range(4)]  # recorded, replayed, the usual call
    fast.save(tmp_path / "step")
    loaded = jit.load(tmp_path / "step")
    for found in (step(x), *calls, *(loaded(x) for _ in range(3))):
        y, z = found["again"]
        assert found["first"] is y and z is not y
        y.assign(y + 1)
        assert values(found["first"], z) == [[3.0, 5.0], [2.0, 4.0]]


@pytest.mark.sweep
@pytest.mark.parametrize("n", [3000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_steps_leave_nothing_behind(n: int) -> None:
    w = Tensor(np.ones((4, 3), np.float32), requires_grad=True)
    optimizer = nn.optim.SGD([w], lr=0.01)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (x @ w).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def run(f: Callable[[Tensor], Tensor], n: int) -> np.ndarray:
        for _ in range(n):
            f(Tensor(np.ones((2, 4), np.float32))).realize()
        gc.collect()
        pages.trim_memory()  # free memory of the C library is not what a step leaves behind
        return np.array([live_nodes(), stats().used_bytes, stats().mapped_bytes, resident_bytes()])

    for f in (step, jit(step)):
        run(f, n // 10)
        before = run(f, 10)
        for _ in range(3):
            now = run(f, n - n // 10)
            grown, before = now - before, now
            assert (grown[:3] < (50, 2000, 1 << 20)).all(), grown  # what other tests left behind may go meanwhile
            if grown[3] < 2 << 20:
                break
        else:  # resident pages come and go with what else the machine does; a leak grows each time
            pytest.fail(f"resident bytes grow each time: {grown}")


def resident_bytes() -> int:
    """What the process has in memory now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def test_methods_keep_no_instance_alive() -> None:
    class Scale:
        def __init__(self, k: float):
            self.k = vector(k)

        @jit
        def scaled(self, x: Tensor) -> Tensor:
            return x * self.k

    x, gone = vector(1.0), []
    for i in range(3):
        s = Scale(i)
        assert [s.scaled(x).item(), s.scaled(x).item()] == [i, i]
        gone.append(weakref.ref(s))
        method = s.scaled
        del s
        assert method(x).item() == i
    del method
    assert all(ref() is None for ref in gone)


def test_any_tree_of_arguments_and_results() -> None:
    @dataclasses.dataclass
    class Batch:
        x: Tensor
        scale: float

    class Pair(NamedTuple):
        left: Tensor
        right: Batch

    @jit
    def step(batch: Batch) -> Pair:
        return Pair(batch.x + 1, Batch(batch.x * batch.scale, batch.scale))

    for i, scale in enumerate((2.0, 2.0, 3.0, 2.0)):
        got = step(Batch(vector(i), scale))
        assert isinstance(got, Pair) and isinstance(got.right, Batch)
        assert (got.left.item(), got.right.x.item(), got.right.scale) == (i + 1, i * scale, scale)
    assert len(step.captures) == 2


def test_gradients_of_arguments_and_of_what_is_outside_are_those_of_the_call() -> None:
    w = Tensor(np.array([3.0], np.float32), requires_grad=True)

    @jit
    def step(x: Tensor) -> Tensor:
        w.grad = None
        loss = (x * x * w).sum()
        loss.backward()
        return loss

    for i in range(1, 4):
        x = Tensor(np.array([float(i)], np.float32), requires_grad=True)
        assert step(x).item() == 3.0 * i * i
        assert (x.grad.item(), w.grad.item()) == (6.0 * i, i * i)


def test_gradients_add_up() -> None:
    w = Tensor(np.array([3.0], np.float32), requires_grad=True)
    f = jit(lambda x: (x * w).sum().backward())
    for total, rows in ((1.0, [1.0]), (4.0, [1.0, 2.0]), (5.0, [1.0]), (6.0, [1.0])):
        f(vector(*rows))
        assert w.grad.item() == total


def test_an_assigned_argument_that_is_also_outside_is_refused() -> None:
    w = vector(1.0)
    f = jit(lambda x: (x.assign(x + w), x * 2)[1])
    assert f(vector(2.0)).item() == 6.0
    with pytest.raises(JitError, match="also reaches from outside"):
        jit(lambda x: (x.assign(x + w), x * 2)[1])(w)


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_state_that_is_also_an_argument_is_refused(calls: int) -> None:
    """At the first call and at a replay; the step has changed nothing then, and goes on."""
    w = vector(1.0)

    def state(x: Tensor) -> Tensor:
        w.assign(w * 2)
        return x + w

    def both(x: Tensor) -> Tensor:
        w.assign(w * 2)
        x[0] = 5.0
        return x + w

    def argument(x: Tensor) -> Tensor:
        x.assign(x + w)
        return x * 2

    for f_of_step, is_state in ((state, True), (both, True), (argument, False)):
        f = jit(f_of_step)
        w.assign(vector(1.0)).realize()
        for _ in range(calls):
            f(vector(3.0))
        for _ in range(2):
            with pytest.raises(JitError, match="also reaches from outside"):
                f(w)
        assert w.item() == (2.0**calls if is_state else 1.0)
        f(vector(3.0))
        assert w.item() == (2.0 ** (calls + 1) if is_state else 1.0)


@pytest.mark.parametrize("wrap", [lambda f: f, jit])
def test_a_tensor_that_is_only_returned_may_be_an_assigned_argument(wrap: Any) -> None:
    w = vector(1.0)
    f = wrap(lambda x: (x.assign(x + 1), x * 2, w)[1:])
    for k in range(3):
        assert f(vector(3.0))[1] is w
        assert [t.item() for t in f(w)] == [4.0 + 2 * k, 2.0 + k]


def test_training_step_equals_the_plain_one() -> None:
    def run(wrap: bool) -> list[float]:
        rng = np.random.default_rng(0)
        w = Tensor(rng.standard_normal((4, 3)).astype(np.float32), requires_grad=True)
        optimizer = nn.optim.Adam([w], lr=0.1)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = (x @ w).cross_entropy(y)
            loss.backward()
            optimizer.step()
            return loss

        f = jit(step) if wrap else step
        x, y = rng.standard_normal((8, 4)).astype(np.float32), rng.integers(0, 3, 8)
        losses = []
        for i in range(8):
            if i == 5:
                optimizer.lr = 0.5
            losses.append(f(Tensor(x + i), Tensor(y)).item())
        return losses

    np.testing.assert_allclose(run(True), run(False), rtol=1e-5)


def test_random_numbers_go_on() -> None:
    f = jit(lambda x: x + Tensor.rand(4))
    zero = Tensor([0.0] * 4)
    drawn = [tuple(f(zero).tolist()) for _ in range(6)]
    assert len(set(drawn)) == 6


def test_methods_keep_captures_apart() -> None:
    class Scale:
        def __init__(self, k: float):
            self.k = Tensor([k]).realize()

        @jit
        def __call__(self, x: Tensor) -> Tensor:
            return x * self.k

    a, b = Scale(2.0), Scale(3.0)
    x = Tensor([1.0])
    assert [s(x).item() for s in (a, b, a, b)] == [2.0, 3.0, 2.0, 3.0]


def test_a_failing_function_leaves_nothing_captured() -> None:
    calls = []

    @jit
    def f(x: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("first")
        return x + 1

    with pytest.raises(ValueError, match="first"):
        f(Tensor([1.0]))
    assert f(Tensor([1.0])).item() == 2.0
    assert f(Tensor([4.0])).item() == 5.0


def test_a_training_step_that_failed_is_captured_at_the_next_call() -> None:
    model = nn.Linear(2, 1)
    optimizer = nn.optim.Adam(model.parameters(), lr=0.1)
    fails = Tensor([1.0])

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        if len(calls) < 3:
            calls.append(1)
            raise ValueError("no")
        return loss

    calls: list[int] = []
    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            step(fails.reshape(1, 1).expand(1, 2).contiguous())
    losses = [step(Tensor([[1.0, 1.0]])).item() for _ in range(4)]
    assert losses[0] != losses[1] and len(step.captures) == 1


def test_reading_values_inside_is_refused() -> None:
    f = jit(lambda x: x * x.sum().item())
    with pytest.raises(JitError, match="inside a jitted function"):
        f(Tensor([1.0, 2.0]))
    assert Tensor([1.0]).item() == 1.0


@pytest.mark.parametrize(
    "read", [Tensor.item, Tensor.tolist, Tensor.numpy, lambda t: np.from_dlpack(t[None]), pickle.dumps]
)
def test_reading_values_in_a_thread_of_its_own_is_refused(read: Callable) -> None:
    """A replay would use what the thread read at the capture. What the step does not make may be read meanwhile."""
    outside = Tensor([3.0]) * 2

    def step(x: Tensor) -> Tensor:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(outside.item).result() == 6.0
            return x * pool.submit(read, x.sum()).result()

    for _ in range(2):
        with pytest.raises(JitError, match="inside a jitted function"):
            jit(step)(Tensor([1.0, 2.0]))


def test_what_is_not_a_function_is_refused() -> None:
    with pytest.raises(JitError, match="jit takes a function"):
        jit(3)  # type: ignore[arg-type]


def test_under_debug_the_result_is_the_same(capsys: pytest.CaptureFixture) -> None:
    f = jit(lambda x: (x @ x).sum())
    x = Tensor(np.ones((8, 8), np.float32))
    want = f(x).item()
    with Context(DEBUG=2):
        assert f(x).item() == want
    assert "GFLOP/s" in capsys.readouterr().err


def test_replayed_kernels_are_marked(capsys: pytest.CaptureFixture) -> None:
    f = jit(lambda x: x * 3)
    x = Tensor([1.0]).realize()
    with Context(DEBUG=2, NO_COLOR=1):
        f(x)
        first = capsys.readouterr().err
        f(x)
        second = capsys.readouterr().err
    kernels = [line.split()[0] for text in (first, second) for line in text.splitlines() if "GFLOP/s" in line]
    assert not kernels[0].endswith("r") and kernels[-1].endswith("r")


@pytest.mark.sweep
@pytest.mark.parametrize("leaf", [True, False])
def test_tensors_of_a_step_that_were_frozen_are_seen_to_change(leaf: bool) -> None:
    code = f"""
import gc
from monolect import Tensor, jit

class Model: pass

model = Model()
model.w = Tensor([3.0], requires_grad={leaf})
model.late = Tensor([1.0]) + 1.0
gc.freeze()
f = jit(lambda x: (x * model.w + model.late).detach())
x = Tensor([2.0])
assert [f(x).item() for _ in range(2)] == [8.0, 8.0]
model.w.assign(Tensor([5.0])).realize()
assert f(x).item() == 12.0
model.late.assign(Tensor([0.0])).realize()
assert f(x).item() == 10.0
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("wrap", [jit, function])
def test_attributes_of_the_function_are_not_those_of_the_step(wrap: Any) -> None:
    """A function may have attributes of any name: `functools.wraps` copies them."""

    def f(x: Tensor) -> Tensor:
        return x + 1

    names = [name for name in vars(wrap(f)) if not name.startswith("__")]
    for name in names:
        setattr(f, name, lambda x: x * 100)
    f.note = "kept"  # type: ignore[attr-defined]
    g = wrap(f)
    assert len(names) >= 5 and g.note == "kept"
    assert [g(Tensor([1.0])).tolist() for _ in range(3)] == [[2.0]] * 3
