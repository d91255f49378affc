"""Values on several devices: placements, the collectives of the specification, errors, and training."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import cache
from math import prod

import numpy as np
import pytest
from hypothesis import settings

from monolect import AxisError, Context, Device, DeviceError, Tensor, dtypes, jit, nn
from monolect.ir.check.interp import evaluate
from monolect.ir.ops import BufferArg
from monolect.ir.placement import axis, device
from monolect.ir.uop import build, node, shape_source, toposort
from monolect.runtime import profile
from monolect.schedule.rewrites.shard import moves, shard

DEVICES = tuple(["cpu", *(f"cpu:{k}" for k in range(1, 8))])
PAIR = DEVICES[:2]


# ---- the collectives, as printed in the specification ----------------------------------------------------------------
class Collectives:
    """Compositions for `n` devices D and a tensor of `s` elements, on one device or along axis 0 of D."""

    def __init__(self, n: int, s: int):
        self.n, self.s, self.D = n, s, DEVICES[:n]

    def broadcast(self, T: Tensor) -> Tensor:
        return T.reshape(1, self.s).expand(self.n, self.s).copy(self.D).replicated(0)

    def scatter(self, T: Tensor) -> Tensor:
        return T.copy(self.D)

    def gather(self, T: Tensor) -> Tensor:
        return T.copy(self.D[0])

    def reduce(self, T: Tensor) -> Tensor:
        return self.gather(T).reshape(self.n, self.s).sum(0)

    def allgather(self, T: Tensor, s: int = 0) -> Tensor:
        m = s or self.n * self.s
        return T.reshape(1, m).expand(self.n, m).copy(self.D).replicated(0)

    def reduce_scatter(self, T: Tensor) -> Tensor:
        n, s = self.n, self.s
        return T.reshape(n, n, s // n).permute(1, 0, 2).copy(self.D).sum(1).reshape(s)

    def allreduce(self, T: Tensor) -> Tensor:
        return self.allgather(self.reduce_scatter(T), self.s)


@pytest.mark.sweep
@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_collectives_are_those_of_numpy(n: int) -> None:
    s = 2 * n
    c, one = Collectives(n, s), np.arange(s, dtype=np.float64)
    each = np.random.default_rng(n).normal(size=(n, s))
    T, shards = Tensor(one), Tensor(each.reshape(-1)).shard(c.D)  # each device holds s elements
    expected: list[tuple[Tensor, np.ndarray, object, int | None]] = [
        (c.broadcast(T), one, c.D, None),
        (c.scatter(T), one, c.D, 0),
        (c.gather(shards), each.reshape(-1), "cpu", None),
        (c.reduce(shards), each.sum(0), "cpu", None),
        (c.allgather(shards), each.reshape(-1), c.D, None),
        (c.reduce_scatter(shards), each.sum(0), c.D, 0),
        (c.allreduce(shards), each.sum(0), c.D, None),
    ]
    for found, values, where, along in expected:
        assert (found.device, found.shard_axis) == (where, along)
        np.testing.assert_allclose(found.numpy(), values, rtol=1e-12)


@pytest.mark.parametrize("n", [2, 4])
def test_gradients_of_collectives(n: int) -> None:
    s = 2 * n
    c, weight = Collectives(n, s), np.linspace(1.0, 2.0, s)
    for f in (c.broadcast, c.scatter):
        x = Tensor(np.zeros(s), requires_grad=True)
        (f(x) * Tensor(weight)).sum().backward()
        assert x.grad is not None and x.grad.device == "cpu"
        np.testing.assert_allclose(x.grad.numpy(), weight)
    for f, of_each in ((c.reduce, weight), (c.reduce_scatter, weight), (c.allreduce, weight)):
        x = Tensor(np.zeros(n * s)).shard(c.D).detach()
        x.requires_grad = True
        (f(x) * Tensor(weight)).sum().backward()
        assert x.grad is not None and (x.grad.device, x.grad.shard_axis) == (c.D, 0)
        np.testing.assert_allclose(x.grad.numpy(), np.tile(of_each, n))


def test_all_devices_hold_the_same_bits() -> None:
    x = Tensor(np.random.default_rng(0).normal(size=(64, 33)).astype(np.float32)).shard(DEVICES[:4])
    total = x.sum(0).realize().uop
    while total.op != "BUFFER":
        total = total.src[0]
    parts = [Tensor._wrap(p).numpy() for p in total.storage.parts]
    assert len({p.tobytes() for p in parts}) == 1


# ---- placements ------------------------------------------------------------------------------------------------------
AT = (Tensor([1, 0, 7]), Tensor([2, 2, 0]))
METHODS: dict[str, tuple[Callable[[Tensor], Tensor], int | None]] = {
    "times two": (lambda x: x * 2, 0),
    "plus a row": (lambda x: x + Tensor(np.arange(3.0)), 0),
    "plus a column": (lambda x: x + Tensor(np.arange(8.0).reshape(8, 1)), 0),
    "transposed": (lambda x: x.T, 1),
    "product": (lambda x: x @ Tensor(np.ones((3, 2))), 0),
    "product along the shards": (lambda x: x.T @ x, None),
    "sum of rows": (lambda x: x.sum(1), 0),
    "sum of columns": (lambda x: x.sum(0), None),
    "maximum": (lambda x: x.max(0).values, None),
    "softmax": (lambda x: x.softmax(1), 0),
    "softmax along the shards": (lambda x: x.softmax(0), 0),
    "variance": (lambda x: x.var(0), None),
    "cumsum": (lambda x: x.cumsum(1), 0),
    "cumsum along the shards": (lambda x: x.cumsum(0), None),
    "reshape": (lambda x: x.reshape(4, 2, 3), 0),
    "reshape that cuts": (lambda x: x.reshape(3, 8), None),
    "flat": (lambda x: x.reshape(24), 0),
    "part": (lambda x: x[2:5], None),
    "part of each": (lambda x: x[:, 1:], 0),
    "row": (lambda x: x[1], None),
    "flip": (lambda x: x.flip(0), None),
    "pad": (lambda x: x.pad((1, 1)), 0),
    "cat": (lambda x: Tensor.cat(x, x, dim=0), None),
    "cat of each": (lambda x: Tensor.cat(x, x, dim=1), 0),
    "gather": (lambda x: x.gather(0, Tensor([[1, 0, 7]])), None),
    "rows by index": (lambda x: x[Tensor([3, 1])], None),
    "scatter_add": (lambda x: x.scatter_add(0, Tensor([[1, 0, 1]]), Tensor([[5.0, 6.0, 7.0]], dtype=x.dtype)), None),
    "index_put": (lambda x: x.index_put(AT, Tensor([5.0, 6.0, 7.0], dtype=x.dtype)), 0),
    "index_put of sums": (lambda x: x.index_put(AT, Tensor([5.0, 6.0, 7.0], dtype=x.dtype), accumulate=True), None),
    "put of sums": (lambda x: x.put(AT[0], Tensor([5.0, 6.0, 7.0], dtype=x.dtype), accumulate=True), None),
    "index_add": (lambda x: x.index_add(0, AT[0], x[:3]), None),
    "scatter_reduce": (lambda x: x.scatter_reduce(0, Tensor([[1, 0, 1]]), x[:1], "amax"), None),
    "masked_scatter": (lambda x: x.masked_scatter(x > 0, x), None),
    "sort": (lambda x: x.sort(0).values, None),
    "topk": (lambda x: x.topk(2, 0).values, None),
    "argmax": (lambda x: x.argmax(0), None),
    "where": (lambda x: (x > 3).where(x, 0), 0),
    "einsum": (lambda x: Tensor.einsum("ij,kj->ik", x, x), 0),
    "layer norm": (lambda x: x.layer_norm(3), 0),
    "conv": (lambda x: x.reshape(8, 1, 3).conv1d(Tensor(np.ones((2, 1, 2)))), 0),
    "clone": (lambda x: x.clone(), 0),
    "zeros_like": (lambda x: x.zeros_like(), 0),
    "copied": (lambda x: copy.deepcopy(x), 0),
    "pickled": (lambda x: pickle.loads(pickle.dumps(x)), 0),
    "resharded": (lambda x: x.T.shard(PAIR, 1) + x.T, 1),
    "no elements": (lambda x: x[:0], None),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", METHODS)
def test_methods_compute_what_they_do_on_one_device(name: str) -> None:
    f, along = METHODS[name]
    values = np.random.default_rng(1).normal(size=(8, 3))
    found, wanted = f(Tensor(values).shard(PAIR)), f(Tensor(values))
    assert found.shape == wanted.shape and found.dtype is wanted.dtype
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)
    if along is not None:
        assert (found.device, found.shard_axis) == (PAIR, along)
    again = f(Tensor(values).shard(PAIR)).realize()
    assert (again.device, again.shard_axis) == (found.device, found.shard_axis)
    np.testing.assert_allclose(again.numpy(), wanted.numpy(), rtol=1e-12)


def test_each_device_has_its_part_and_memory_of_its_own() -> None:
    x = Tensor(np.arange(8.0)).shard(DEVICES[:4]).realize()
    assert [device(p) for p in x.uop.storage.parts] == list(DEVICES[:4])
    assert [p.shape for p in x.uop.storage.parts] == [(2,)] * 4 and x.uop.storage.n_bytes == 64
    source = np.arange(4.0)
    t = Tensor(source).to("cpu:1").realize()
    source[0] = 9.0
    assert t.numpy()[0] == 0.0


@pytest.mark.sweep
@pytest.mark.parametrize(("size", "n", "sizes"), [(5, 4, [2, 2, 1, 0]), (1, 3, [1, 0, 0]), (7, 2, [4, 3])])
def test_the_last_parts_are_shorter_or_empty(size: int, n: int, sizes: list[int]) -> None:
    values = np.arange(2.0 * size).reshape(2, size) - 3
    x = Tensor(values).shard(DEVICES[:n], 1).realize()
    assert [p.shape for p in x.uop.storage.parts] == [(2, m) for m in sizes]
    functions: list[Callable[[Tensor], Tensor]] = [
        lambda t: t * t, lambda t: t.sum(1), lambda t: t.amax(1), lambda t: t.T @ t, lambda t: t.mean(0),
        lambda t: t.flatten() + 1, lambda t: t.argmax(1), lambda t: t[:, ::2], lambda t: t.reshape(size, 2),
    ]  # fmt: skip
    for f in functions:
        np.testing.assert_array_equal(f(x).numpy(), f(Tensor(values)).numpy())
    x.assign(Tensor(values) * 2)
    np.testing.assert_array_equal((x + 1).numpy(), values * 2 + 1)
    assert x.shard_axis == 1


def test_gradients_of_a_value_on_one_device_that_meets_several() -> None:
    values, other = np.arange(12.0).reshape(3, 4)[::-1].copy(), np.ones((3, 4))
    for f in (lambda t: t.sort(0)[0], lambda t: t.cumsum(1), lambda t: t[np.array([2, 0, 1])], lambda t: t.T.T * 2):
        grads = []
        for place in (lambda t: t, lambda t: t.replicate(PAIR), lambda t: t.shard(PAIR, 1)):
            x = Tensor(values, requires_grad=True)
            (f(x) + place(Tensor(other))).square().sum().backward()
            assert x.grad is not None and x.grad.device == "cpu"
            grads.append(x.grad.numpy())
        np.testing.assert_allclose(grads[1], grads[0], rtol=1e-12)
        np.testing.assert_allclose(grads[2], grads[0], rtol=1e-12)


@pytest.mark.parametrize("place", [lambda t: t, lambda t: t.replicate(PAIR), lambda t: t.shard(PAIR)])
@pytest.mark.parametrize("place_index", [lambda t: t.replicate(PAIR), lambda t: t.shard(PAIR)])
def test_gradients_of_writes_by_an_index_on_several_devices(
    place: Callable[[Tensor], Tensor], place_index: Callable[[Tensor], Tensor]
) -> None:
    """The gradient of the result is on one device, as that of a loss which weights it by a tensor there."""
    for write in (lambda t, i: t.index_fill(0, i, 3.0), lambda t, i: t.index_copy(0, i, Tensor([1.0, 1.0]))):
        x = place(Tensor([1.0, 2.0, 3.0])).detach()
        x.requires_grad = True
        _ = (write(x, place_index(Tensor([2, 0]))) * Tensor([5.0, 6.0, 7.0])).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [0.0, 6.0, 0.0]
        assert (x.grad.device, x.grad.shard_axis) == (x.device, x.shard_axis)


@pytest.mark.sweep
@pytest.mark.parametrize("devices", [("c", "c:1"), ("cpu", "c"), ("python", "python:1"), ("cpu", "python", "cpu:1")])
def test_devices_of_several_kinds(devices: tuple[str, ...]) -> None:
    values = np.arange(24.0).reshape(6, 4)
    found = (Tensor(values).shard(devices) * 2 + Tensor(values).shard(devices).sum(0)).realize()
    assert tuple(device(p) for p in found.uop.storage.parts) == devices
    np.testing.assert_array_equal(found.numpy(), values * 2 + values.sum(0))
    f = jit(lambda t: (t.T @ t).sum() + t.sum(1).amax())
    for _ in range(3):
        assert f(Tensor(values).shard(devices)).item() == (values.T @ values).sum() + values.sum(1).max()


def test_devices_of_one_process_share_threads() -> None:
    x = Tensor(np.ones((1 << 12, 1 << 8))).shard(DEVICES[:4])
    assert (x * 2).sum().item() == 2 << 20
    (pool,) = {Device[name].pool for name in DEVICES[:4]}
    assert len(pool._threads) <= Device["cpu"].n_threads - 1


def test_assignment_keeps_the_placement() -> None:
    x = Tensor(np.zeros((4, 2))).shard(PAIR).realize()
    x.assign(Tensor(np.ones((4, 2))))
    x += 1
    assert (x.device, x.shard_axis) == (PAIR, 0) and x.numpy().tolist() == [[2.0] * 2] * 4
    whole = Tensor(np.zeros(3)).replicate(PAIR).realize()
    whole.assign(whole + 1)
    assert (whole.device, whole.shard_axis) == (PAIR, None) and whole.tolist() == [1.0] * 3


def test_random_numbers_do_not_depend_on_the_placement() -> None:
    def drawn(place: Callable[[Tensor], Tensor]) -> list[np.ndarray]:
        Tensor.manual_seed(3)
        x = place(Tensor(np.ones((8, 4))))
        return [x.rand_like().numpy(), x.dropout(0.5, training=True).numpy(), (x * x.randn_like()).numpy()]

    for got, wanted in zip(drawn(lambda t: t.shard(PAIR, 1)), drawn(lambda t: t), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.sweep
@pytest.mark.parametrize("devices", [PAIR, "cpu:1"])
def test_state_that_a_loop_carries_is_computed_once(devices: tuple[str, ...] | str) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s) * 0.3 for s in ((8, 8), (4, 8), (8, 2))]
    weight, x, out = (Tensor(a).to(devices).realize() for a in arrays)
    state, expected, counts = x * 0, np.zeros((4, 8)), []
    for _ in range(20):
        state = (state @ weight + x).tanh()
        expected = np.tanh(expected @ arrays[0] + arrays[1])
        np.testing.assert_allclose((state @ out).numpy(), expected @ arrays[2], rtol=1e-12)
        counts.append(profile.counts["schedules"])
    assert counts[-1] - counts[4] <= 2  # not one for each step; collections of garbage decide when the last one comes


# ---- errors ----------------------------------------------------------------------------------------------------------
def test_bad_placements_say_what_to_do() -> None:
    x = Tensor(np.ones((4, 3)))
    with pytest.raises(DeviceError, match="two different devices"):
        x.shard(("cpu", "cpu:0"))
    with pytest.raises(DeviceError, match="two different devices"):
        x.replicate(["cpu"])
    with pytest.raises(DeviceError, match="unknown device"):
        x.shard(("cpu", "nowhere"))
    with pytest.raises(DeviceError, match="an axis to divide"):
        Tensor(1.0).copy(PAIR)
    with pytest.raises(AxisError):
        x.shard(PAIR, 2)
    with pytest.raises(DeviceError, match="two different devices"):
        Tensor([1.0, 2.0], device=("cpu",))


MADE: dict[str, Callable[[], Tensor]] = {
    "values": lambda: Tensor([1.0, 2.0], device=PAIR),
    "a number": lambda: Tensor(3.0, device=PAIR),
    "an array": lambda: Tensor(np.arange(4.0), device=PAIR),
    "a tensor": lambda: Tensor(Tensor([1.0, 2.0]), device=PAIR),
    "to": lambda: Tensor([1.0, 2.0]).to(PAIR),
    "to of a part": lambda: Tensor([1.0, 2.0]).shard(PAIR).to(("cpu:1", "cpu:2")),
    "zeros": lambda: Tensor.zeros(2, 3, device=PAIR),
    "full": lambda: Tensor.full((3,), 7, device=PAIR),
    "arange": lambda: Tensor.arange(5, device=PAIR),
    "linspace": lambda: Tensor.linspace(0, 1, 5, device=PAIR),
    "eye": lambda: Tensor.eye(3, device=PAIR),
    "rand": lambda: Tensor.rand(4, device=PAIR),
    "randn": lambda: Tensor.randn(4, device=PAIR),
    "randint": lambda: Tensor.randint(0, 9, (4,), device=PAIR),
    "randperm": lambda: Tensor.randperm(6, device=PAIR),
    "like a tensor": lambda: Tensor.zeros(4, device=Tensor.ones(2, device=PAIR).device),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", MADE)
def test_tensors_that_are_made_on_several_devices_are_whole_on_each(name: str) -> None:
    Tensor.manual_seed(5)
    t = MADE[name]()
    assert isinstance(t.device, tuple) and t.shard_axis is None
    Tensor.manual_seed(5)
    there = t.device
    values = MADE[name]().realize()
    assert values.device == there and values.shard_axis is None
    np.testing.assert_array_equal(values.numpy(), t.numpy() if name[:4] != "rand" else values.to("cpu").numpy())


def test_mixed_tuples_are_refused() -> None:
    a, b = Tensor(np.ones(4)).shard(PAIR), Tensor(np.ones(4)).shard(DEVICES[1:3])
    with pytest.raises(DeviceError, match="different devices"):
        a + b


def _adds_to_a_view(t: Tensor) -> None:
    v = t[1:4]
    v += 1


ASSIGNED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "a row": lambda t, x: t.__setitem__(2, x[2]),
    "rows": lambda t, x: t.__setitem__(slice(1, 3), x[1:3]),
    "a row that is computed": lambda t, x: t.__setitem__(2, x[2] * 1),
    "a view of a row": lambda t, x: t[3].assign(x[4]),
    "a column": lambda t, x: t.T.__setitem__(0, x.T[1]),
    "all": lambda t, x: t.assign(x),
    "a sum": lambda t, x: t.__iadd__(x),
    "a copy of a row": lambda t, x: t.copy_(x[1]),
    "a copy of a number": lambda t, x: t.T[0].copy_(x.sum()),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", ASSIGNED)
def test_values_of_any_placement_are_assigned(name: str) -> None:
    values = np.arange(14.0).reshape(7, 2)
    places: list[Callable[[Tensor], Tensor]] = [
        lambda t: t,
        lambda t: t.replicate(DEVICES[:3]),
        lambda t: t.shard(DEVICES[:3]),
        lambda t: t.shard(DEVICES[:3], 1),
    ]
    wanted = Tensor(values.copy())
    ASSIGNED[name](wanted, Tensor(values + 1))
    for place in places:
        for other in places:
            t, x = place(Tensor(values)).realize(), other(Tensor(values + 1)).realize()
            there = t.device, t.shard_axis
            ASSIGNED[name](t, x)
            np.testing.assert_array_equal(t.numpy(), wanted.numpy())
            assert (t.device, t.shard_axis) == there
            np.testing.assert_array_equal((x[-1] * t[0]).numpy(), values[-1] * wanted.numpy()[0] + wanted.numpy()[0])


WRITES: dict[str, Callable[[Tensor], object]] = {
    "rows": lambda t: t.__setitem__(slice(1, 3), 5),
    "a column": lambda t: t.__setitem__((slice(None), 1), 7.0),
    "an element": lambda t: t.__setitem__((4, 2), 9.0),
    "values": lambda t: t.__setitem__(slice(2, 5), Tensor(np.arange(9.0).reshape(3, 3))),
    "every second row": lambda t: t.__setitem__(slice(0, 4, 2), t[0:4:2] * 3),
    "a row": lambda t: t.__setitem__(2, -1.0),
    "indices": lambda t: t.__setitem__(np.array([0, 3]), 4.0),
    "a mask": lambda t: t.__setitem__(t > 8, 0.0),
    "a view": _adds_to_a_view,
    "a transposed view": lambda t: t.T.__setitem__(0, 3.0),
    "a flipped view": lambda t: t.flip(0).__setitem__(slice(0, 2), 1.0),
}


@pytest.mark.sweep
@pytest.mark.parametrize("is_realized", [False, True])
@pytest.mark.parametrize("along", [0, 1, None])
@pytest.mark.parametrize("name", WRITES)
def test_writes_to_parts_are_those_of_one_device(name: str, along: int | None, is_realized: bool) -> None:
    values = np.arange(15.0).reshape(5, 3)
    wanted, t = Tensor(values.copy()), Tensor(values)
    t = t.replicate(DEVICES[:3]) if along is None else t.shard(DEVICES[:3], along)
    before = t * 1
    if is_realized:
        t.realize()
    for x in (wanted, t):
        WRITES[name](x)
    np.testing.assert_array_equal(t.numpy(), wanted.numpy())
    np.testing.assert_array_equal(before.numpy(), values)
    assert t.shard_axis == along


def test_replicated_needs_one_element_a_device() -> None:
    with pytest.raises(DeviceError, match="several elements a device"):
        Tensor(np.ones((4, 2))).copy(PAIR).replicated(0).numpy()


def test_debug_names_what_moves(capsys: pytest.CaptureFixture[str]) -> None:
    x, w = Tensor(np.ones((8, 6))).shard(PAIR).realize(), Tensor(np.ones((6, 4))).shard(PAIR).realize()
    other = Tensor(np.ones((8, 6))).shard(PAIR, 1).realize()
    calls: dict[str, Callable[[], Tensor]] = {
        "allgather: 0.000 MB, float64": lambda: x @ w,
        "allreduce: 0.000 MB, float64 (1, 6)": lambda: x.sum(0),
        "alltoall: 0.000 MB, float64 (8, 6) for ADD": lambda: x + other,
        "scatter": lambda: Tensor(np.ones((4, 2))).shard(PAIR),
        "broadcast": lambda: Tensor(np.ones((4, 2))).replicate(PAIR),
        "gather": lambda: x.to("cpu"),
        "parts: 0.000 MB, float64 (1, 6)": lambda: x.roll(1, 0).shard(PAIR),
        "parts: 0.000 MB, float64 (2, 6)": lambda: x[3:5] * 2,
    }
    for text, call in calls.items():
        with Context(DEBUG=2):
            call().realize()
        assert text in capsys.readouterr().err
    with Context(DEBUG=2):
        (x * 2).realize()
    assert not any(word in capsys.readouterr().err for word in ("gather", "reduce:", "alltoall", "scatter"))


def moved_sizes(t: Tensor) -> list[int]:
    """The number of elements of each copy between devices that the values of `t` need."""
    copies = [u.src[0] for u in toposort(*shard([t.uop])) if u.op == "LOAD"]
    return sorted(prod(v.shape) for v in copies if device(v) is not None)


def test_only_needed_elements_move() -> None:
    four = ("cpu", "cpu:1", "cpu:2", "cpu:3")
    x = Tensor(np.arange(32.0).reshape(8, 4)).shard(four).realize()
    assert moved_sizes(x.roll(2, 0).shard(four)) == [8] * 4  # each device sends its two rows to the next one
    assert moved_sizes(x.roll(1, 0).shard(four)) == [4] * 4  # one row of two
    assert moved_sizes(x.roll(2, 0).roll(2, 0).shard(four)) == [8] * 4
    assert moved_sizes(x.reshape(4, 8).roll(1, 0).shard(four)) == [8] * 4
    assert moved_sizes(x[2:4]) == [8] * 3  # from the device that has both rows to each other
    assert moved_sizes(x[3:5] + 1) == [4] * 6
    assert moved_sizes(x[3:5].shard(four[:2])) == [4] * 2
    assert moved_sizes(x.shard(four, 1)) == [2] * 12
    assert moved_sizes(x.pad((0, 0, 8, 0)).shard(four)) == [8] * 3
    assert moved_sizes(Tensor.cat(x[:4], x[4:] * 2, dim=0).shard(four)) == []
    assert moved_sizes(x.sum(0).shard(four)) == [1] * 12  # each device gets the partial sums of one column
    wide = Tensor(np.ones((8, 1 << 16))).shard(("cpu", "c"), 0).realize()
    assert moved_sizes(wide.sum(0).shard(("cpu", "c"))) == [1 << 15] * 2  # reduce_scatter
    assert moved_sizes(wide.sum(0)) == [1 << 15] * 4


def test_a_value_is_widened_after_it_has_moved() -> None:
    narrow = Tensor(np.ones((8, 4), np.float32)).cast(dtypes.bfloat16).shard(PAIR).realize()
    whole = Tensor(np.ones((3, 8), np.float32)).replicate(PAIR).realize()
    product = whole @ narrow.float()
    (move,) = moves([product.uop])
    assert (move.collective, move.n_bytes) == ("allreduce", 2 * 12 * 4)  # the sum over the divided axis is wide
    other = Tensor(np.ones((1 << 12, 8), np.float32)).shard(PAIR).realize()
    (move,) = moves([(other @ narrow.float()).uop])
    assert (move.collective, move.n_bytes) == ("allgather", 32 * 2) and move.user.op == "MUL"
    np.testing.assert_array_equal((other @ narrow.float()).numpy(), np.full((1 << 12, 4), 8))


@pytest.mark.sweep
@pytest.mark.parametrize("table_axis", [None, 0, 1])
@pytest.mark.parametrize("axis_of_tokens", [0, 1])
def test_rows_of_an_embedding_are_added_where_they_are(table_axis: int | None, axis_of_tokens: int) -> None:
    rng = np.random.default_rng(3)
    weights, tokens, g = rng.normal(size=(6, 4)), rng.integers(0, 6, (8, 16)), rng.normal(size=(8, 16, 4))

    def gradient(of_table: Callable[[Tensor], Tensor], of_rest: Callable[[Tensor], Tensor]) -> Tensor:
        table = of_table(Tensor(weights)).realize().requires_grad_(True)
        (of_rest(Tensor(tokens)).embedding(table) * of_rest(Tensor(g))).sum().backward()
        assert table.grad is not None
        return table.grad

    expected = gradient(lambda t: t, lambda t: t).numpy()
    found = gradient(lambda t: t.shard(PAIR, table_axis), lambda t: t.shard(PAIR, axis_of_tokens).realize())
    assert sum(m.n_bytes for m in moves([found.uop])) <= 2 * 24 * 8  # of 24 elements of the table, not 512 of the rows
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_few_rows_of_an_embedding_go_to_all_devices() -> None:
    table = Tensor(np.ones((64, 4), np.float32)).replicate(PAIR).realize().requires_grad_(True)
    tokens = Tensor(np.array([[1], [5]])).shard(PAIR).realize()
    (tokens.embedding(table) * 2).sum().backward()
    assert table.grad is not None
    assert table.grad[5].tolist() == [2.0] * 4 and table.grad.sum().item() == 16


@pytest.mark.parametrize("axis_of_index", [None, 0])
@pytest.mark.parametrize("of_table", [lambda t: t, lambda t: t.replicate(PAIR), lambda t: t.shard(PAIR)])
def test_rows_are_added_to_zeros_wherever_these_are(
    of_table: Callable[[Tensor], Tensor], axis_of_index: int | None
) -> None:
    rng = np.random.default_rng(4)
    rows, index, expected = rng.normal(size=(40, 4)), rng.integers(0, 6, 40), np.zeros((6, 4))
    np.add.at(expected, index, rows)
    zeros = of_table(Tensor.zeros(6, 4, dtype=dtypes.float64))
    found = zeros.index_add(0, Tensor(index).shard(PAIR, axis_of_index), Tensor(rows).shard(PAIR))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


# ---- the pass --------------------------------------------------------------------------------------------------------
def test_the_pass_leaves_one_value_a_device() -> None:
    b = node("BUFFER", (shape_source((4, 2)),), BufferArg(0, dtypes.float32, PAIR))
    u = build("MUL", build("PERMUTE", b, arg=(1, 0)), build("PERMUTE", b, arg=(1, 0)))
    assert axis(u) == 1
    parts = shard([u])
    assert [device(v) for v in parts] == list(PAIR) and [v.shape for v in parts] == [(2, 2)] * 2
    assert not any(isinstance(device(v), tuple) for v in toposort(*parts))


def test_one_device_passes_unchanged() -> None:
    roots = [(Tensor([1.0]) + 1).uop]
    assert shard(roots) is roots


def test_the_interpreter_takes_element_0() -> None:
    x = node("BUFFER", (shape_source((2, 3)),), BufferArg(0, dtypes.float64, "cpu"))
    found = evaluate(node("REPLICATED", (x,), 1), {x: np.arange(6.0).reshape(2, 3)})
    assert np.asarray(found).tolist() == [0.0, 3.0]


# ---- training --------------------------------------------------------------------------------------------------------
def sharded_if_even(t: Tensor, along: int) -> Tensor:
    return t.shard(PAIR, along) if t.shape[along] % 2 == 0 else t.replicate(PAIR)


PLACES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, int], Tensor]]] = {
    "one device": (lambda x: x, lambda p, k: p),
    "data parallel": (lambda x: x.shard(PAIR), lambda p, k: p.replicate(PAIR)),
    "sharded parameters": (lambda x: x.shard(PAIR), lambda p, k: sharded_if_even(p, 0)),
    "tensor parallel": (
        lambda x: x.replicate(PAIR),
        lambda p, k: sharded_if_even(p, k % 2) if p.ndim == 2 else p.replicate(PAIR),
    ),
}
OPTIMIZERS: dict[str, Callable[[list[Tensor]], nn.optim.Optimizer]] = {
    "SGD": lambda ps: nn.optim.SGD(ps, lr=0.1, momentum=0.9),
    "Adam": lambda ps: nn.optim.Adam(ps, lr=0.01),
}


STEPS = 50 if settings().max_examples > 50 else 15  # `make test-all` has more


@cache
def losses(place: str, optimizer: str, dtype: str, is_captured: bool = False) -> np.ndarray:
    data, parameter = PLACES[place]
    rng = np.random.default_rng(7)
    values = [rng.normal(size=s) * 0.3 for s in ((6, 8), (8,), (8, 4), (4,))]
    params = [parameter(Tensor(v.astype(dtype)), k // 2).detach() for k, v in enumerate(values)]
    for p in params:
        p.requires_grad = True
    opt, out = OPTIMIZERS[optimizer](params), []

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        loss = (((x @ params[0] + params[1]).tanh() @ params[2] + params[3]) - y).square().mean()
        loss.backward()
        opt.step()
        return loss

    run = jit(step) if is_captured else step
    for _ in range(STEPS):
        out.append(run(*(data(Tensor(rng.normal(size=s).astype(dtype))) for s in ((8, 6), (8, 4)))).item())
    return np.array(out)


@pytest.mark.sweep
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("place", [p for p in PLACES if p != "one device"])
def test_training_follows_the_losses_of_one_device(place: str, optimizer: str) -> None:
    wanted = losses("one device", optimizer, "float64")
    np.testing.assert_allclose(losses(place, optimizer, "float64"), wanted, rtol=1e-9)
    np.testing.assert_allclose(losses(place, optimizer, "float64", is_captured=True), wanted, rtol=1e-9)
    assert np.ptp(wanted) > 0.1
    single = losses("one device", optimizer, "float32")
    np.testing.assert_allclose(losses(place, optimizer, "float32"), single, rtol=1e-4)


def test_a_model_runs_on_several_devices_by_its_input() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2))
    x = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    found = model(Tensor(x).shard(PAIR))
    assert found.shard_axis == 0
    np.testing.assert_allclose(found.numpy(), model(Tensor(x)).numpy(), rtol=1e-5)
