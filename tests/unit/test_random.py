"""Random tensors: known Threefry numbers, moments, reproducibility, and independence of when they are realized."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import jit
from monolect.autograd import graph as g
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.ir.uop import build
from monolect.tensor import random
from monolect.tensor.tensor import Tensor


@pytest.fixture(autouse=True)
def _seed() -> None:
    random.manual_seed(1234)


# Of Random123's kat_vectors: Threefry-2x32, 20 rounds. (counter, key, result), each as (low, high) words.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


def words(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.array([low | high << 32 for low, high in pairs], np.uint64)


def test_threefry_gives_the_published_numbers() -> None:
    counter, key = Tensor(words([c for c, _, _ in KNOWN])), Tensor(words([k for _, k, _ in KNOWN]))
    out = Tensor(build("THREEFRY", counter.uop, key.uop)).numpy()
    assert [hex(v) for v in out] == [hex(v) for v in words([r for _, _, r in KNOWN])]


def test_threefry_of_constants_is_folded_to_the_same() -> None:
    c, k, r = KNOWN[2]
    u = build("THREEFRY", g.full((), int(words([c])[0]), dtypes.uint64), g.full((), int(words([k])[0]), dtypes.uint64))
    assert Tensor(u).item() == int(words([r])[0])


def test_the_first_numbers_of_a_seed_are_counter_one_and_on() -> None:
    expected = Tensor(
        build("THREEFRY", Tensor(np.arange(1, 9, dtype=np.uint64)).uop, g.full((8,), 1234, dtypes.uint64))
    )
    bits = expected.numpy()
    got = Tensor.rand(8).numpy()
    assert (got == ((bits & np.uint64(0xFFFFFFFF)) >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)).all()


# ---- moments ---------------------------------------------------------------------------------------------------------
N = 40_000


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_uniform_moments(dtype: str) -> None:
    x = Tensor.rand(N, dtype=dtype).double().numpy()
    assert x.min() >= 0.0 and x.max() < 1.0
    assert abs(x.mean() - 0.5) < 0.01 and abs(x.var() - 1 / 12) < 0.005
    counts = np.histogram(x, 16, (0, 1))[0]
    assert ((counts - N / 16) ** 2 / (N / 16)).sum() < 50  # chi-squared with 15 degrees of freedom


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_normal_moments(dtype: str) -> None:
    x = Tensor.randn(N, dtype=dtype).double().numpy()
    assert abs(x.mean()) < 0.02 and abs(x.var() - 1.0) < 0.03
    assert abs((x**3).mean()) < 0.1 and abs((x**4).mean() - 3.0) < 0.25
    assert abs((np.abs(x) < 1).mean() - 0.6827) < 0.01
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.02


def test_digits_of_the_mantissa() -> None:
    x = Tensor.rand(N).numpy()
    assert (x * 2**24 == np.round(x * 2**24)).all() and (np.round(x * 2**24) % 2 == 1).any()
    y = Tensor.rand(N, dtype="float64").numpy()
    assert (y * 2**53 % 2 == 1).any()
    assert len(np.unique(y)) == N


def test_integers() -> None:
    x = Tensor.randint(-3, 4, (N,)).numpy()
    assert x.dtype == np.int64 and set(x) == set(range(-3, 4))
    counts = np.bincount(x + 3)
    assert ((counts - N / 7) ** 2 / (N / 7)).sum() < 30
    assert set(Tensor.randint(2, (100,), dtype="int8").numpy()) == {0, 1}
    wide = Tensor.randint(0, 1 << 40, (1000,)).numpy()
    assert wide.max() > 1 << 39 and wide.min() >= 0
    assert Tensor.randint(5).shape == ()
    with pytest.raises(ArgumentError, match="range"):
        Tensor.randint(3, 3, (1,))
    with pytest.raises(ArgumentError, match="range"):
        Tensor.randint(0, 1000, (1,), dtype="int8")
    with pytest.raises(DTypeError, match="integer"):
        Tensor.randint(3, (1,), dtype="float32")


def test_initial_weights() -> None:
    w = Tensor.kaiming_uniform(64, 32, 3, 3, a=5**0.5).numpy()
    bound = (6 / (6 * 288)) ** 0.5
    assert np.abs(w).max() <= bound and np.abs(w).max() > 0.99 * bound
    assert abs(Tensor.kaiming_normal(64, 200).numpy().std() - 0.1) < 0.003
    assert abs(Tensor.xavier_normal(60, 140).numpy().std() - 0.1) < 0.003
    x = Tensor.xavier_uniform(60, 140).numpy()
    assert np.abs(x).max() <= 0.03**0.5
    u = Tensor.uniform(N, low=2.0, high=4.0).numpy()
    assert abs(u.mean() - 3.0) < 0.02 and u.min() >= 2.0 and u.max() <= 4.0
    assert abs(Tensor.normal(N, mean=3.0, std=2.0).numpy().std() - 2.0) < 0.03
    with pytest.raises(ShapeError, match="kaiming_uniform"):
        Tensor.kaiming_uniform(3)
    with pytest.raises(DTypeError, match="rand: dtype"):
        Tensor.rand(3, dtype="int32")


def test_choices() -> None:
    p = Tensor.randperm(300).numpy()
    assert sorted(p) == list(range(300)) and (p != np.arange(300)).mean() > 0.9
    with pytest.raises(ArgumentError, match="randperm"):
        Tensor.randperm(-1)
    b = Tensor.full((N,), 0.3).bernoulli().numpy()
    assert set(b) == {0.0, 1.0} and abs(b.mean() - 0.3) < 0.015
    m = Tensor([0.0, 1.0, 3.0, 0.0]).multinomial(N // 4, replacement=True).numpy()
    assert set(m) == {1, 2} and abs((m == 2).mean() - 0.75) < 0.02
    assert Tensor([[0.0, 1.0], [1.0, 0.0]]).multinomial(1).tolist() == [[1], [0]]
    with pytest.raises(ArgumentError, match="num_samples"):
        Tensor([1.0, 1.0]).multinomial(3)


# ---- reproducibility -------------------------------------------------------------------------------------------------
def test_a_seed_repeats_and_another_differs() -> None:
    a = [Tensor.rand(3, 4).numpy(), Tensor.randn(5).numpy()]
    random.manual_seed(1234)
    b = [Tensor.rand(3, 4).numpy(), Tensor.randn(5).numpy()]
    random.manual_seed(99)
    c = [Tensor.rand(3, 4).numpy(), Tensor.randn(5).numpy()]
    for x, y, z in zip(a, b, c, strict=True):
        assert (x == y).all() and (x != z).all()


def test_draws_of_one_batch_and_of_many_are_the_same_numbers() -> None:
    a, b, c = Tensor.rand(3), Tensor.rand(4), Tensor.rand(5)
    a.realize(b, c)
    together = np.concatenate([a.numpy(), b.numpy(), c.numpy()])
    random.manual_seed(1234)
    apart = np.concatenate([Tensor.rand(n).numpy() for n in (3, 4, 5)])
    assert (together == apart).all()
    assert len(set(together)) == 12


def test_a_tensor_drawn_early_and_realized_late_has_its_own_numbers() -> None:
    early = Tensor.rand(6)
    late = Tensor.rand(6)
    second = late.numpy()  # moves the state on
    third = Tensor.rand(6).numpy()
    first = early.numpy()
    random.manual_seed(1234)
    assert (first == Tensor.rand(6).numpy()).all()
    assert (second == Tensor.rand(6).numpy()).all()
    assert (third == Tensor.rand(6).numpy()).all()


def test_one_draw_used_twice_is_one_draw() -> None:
    x = Tensor.rand(5)
    y = x * 2
    assert (x.numpy() * 2 == y.numpy()).all()


def test_a_seed_given_between_draw_and_realization_leaves_the_draw() -> None:
    expected = Tensor.rand(5).numpy()
    random.manual_seed(1234)
    x = Tensor.rand(5)
    random.manual_seed(7)
    assert (x.numpy() == expected).all()


@pytest.mark.parametrize("draw", [lambda d: Tensor.rand(40, device=d), lambda d: Tensor.randint(9, (40,), device=d)])
def test_devices_agree(draw: Callable[[str], Any]) -> None:
    a = draw("cpu").numpy()
    random.manual_seed(1234)
    assert (draw("python").numpy() == a).all()


def test_manual_seed_takes_integers() -> None:
    with pytest.raises(ArgumentError, match="manual_seed"):
        random.manual_seed("now")


def test_a_batch_may_draw_more_numbers_than_there_are_counters():
    draws = [Tensor.rand(2**40, 2**22) for _ in range(80)]  # never computed
    assert Tensor.rand(3).tolist() != Tensor.rand(3).tolist()
    assert len(draws) == 80


# ---- around captured steps -------------------------------------------------------------------------------------------
def raw(n: int, device: str = "cpu") -> Tensor:
    return Tensor.randint(-(2**63), 2**63, (n,), device=device)


@pytest.mark.sweep
@pytest.mark.parametrize("n_calls", [0, 1, 3])
def test_a_lazy_draw_before_a_step_has_numbers_of_its_own(n_calls: int) -> None:
    def program(step: Callable[[], Tensor]) -> list[int]:
        Tensor.manual_seed(1)
        early = [step().tolist() for _ in range(n_calls)]
        first, many = raw(2), [raw(1) for _ in range(70)]
        then, last = step(), raw(3)
        drawn = [*early, first.tolist(), *(t.tolist() for t in many), then.tolist(), last.tolist()]
        return [x for xs in drawn for x in xs]

    got = program(jit(lambda: raw(3)))
    assert got == program(lambda: raw(3)) and len({*got}) == len(got)


def test_a_lazy_draw_on_another_device_is_no_part_of_a_captured_step() -> None:
    Tensor.manual_seed(1)
    there = raw(2, "python")
    step = jit(lambda: raw(2))
    assert step().tolist() == there.tolist() and step().tolist() == raw(2, "python").tolist()


def test_a_step_that_draws_keeps_its_usual_call() -> None:
    step = jit(lambda x: x + Tensor.rand(2))
    x = Tensor([1.0, 2.0]).realize()
    for _ in range(4):
        step(x).realize()
    assert step.usual is not None
    Tensor.manual_seed(1)
    late = Tensor.rand(2)
    got = (step(x) - x).tolist()
    Tensor.manual_seed(1)
    wanted = Tensor.rand(4).tolist()
    np.testing.assert_allclose([*late.tolist(), *got], wanted, atol=1e-6)


def test_initial_weights_that_a_step_computes_stay_what_they_are() -> None:
    weights, one = Tensor.randn(3), Tensor([1.0]).realize()
    step = jit(lambda x: (weights * x).realize())
    found = [step(one).tolist() for _ in range(3)]
    assert found == [weights.tolist()] * 3


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name, most", [("uint8", 256), ("int8", 128), ("float16", 2049), ("bfloat16", 257), ("bool", 2)]
)
def test_a_permutation_has_numbers_that_its_dtype_holds(name: str, most: int) -> None:
    d = getattr(dtypes, name)
    assert sorted(Tensor.randperm(most, dtype=d).cast(dtypes.int64).tolist()) == list(range(most))
    with pytest.raises(DTypeError, match="randperm"):
        Tensor.randperm(most + 1, dtype=d)


CALLS_OF_NORMAL: list[Any] = [
    lambda m, t: m.normal(5.0, 0.0, (2, 3)),
    lambda m, t: m.normal(5, 0, (2, 3)),
    lambda m, t: m.normal(5.0, 0.0, size=(2, 3)),
    lambda m, t: m.normal(mean=5.0, std=0.0, size=(2,)),
    lambda m, t: m.normal(t([1.0, 2.0]), 0.0),
    lambda m, t: m.normal(t([1.0, 2.0]), std=0.0),
    lambda m, t: m.normal(mean=t([1.0, 2.0]), std=t([0.0, 0.0])),
    lambda m, t: m.normal(3.0, t([0.0, 0.0])),
    lambda m, t: m.normal(t([[1.0], [2.0]]), t([0.0, 0.0, 0.0])),
    lambda m, t: m.normal(t([1.0, 2.0]).double(), t([0.0, 0.0]).double()),
]


@pytest.mark.parametrize("number", range(len(CALLS_OF_NORMAL)))
def test_calls_of_normal_are_those_of_torch(number: int) -> None:
    want = CALLS_OF_NORMAL[number](torch, torch.tensor)
    got = CALLS_OF_NORMAL[number](monolect, Tensor)
    assert (got.shape, f"torch.{got.dtype.name}") == (tuple(want.shape), str(want.dtype))
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_normal_numbers_around_tensors() -> None:
    mean = Tensor(np.full(N, 3.0, np.float32), requires_grad=True)
    drawn = monolect.normal(mean, 2.0)
    assert abs(drawn.mean().item() - 3.0) < 0.05 and abs(drawn.std().item() - 2.0) < 0.05
    ((drawn - mean) * 2).sum().backward()  # as in PyTorch, no gradient flows through the numbers
    assert mean.grad is not None and mean.grad.tolist() == [-2.0] * N
    assert monolect.normal(3, mean=1.0).shape == (3,) and monolect.normal(2, 3).shape == (2, 3)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: monolect.normal(0.0, 1.0), ArgumentError, "normal: size"),
        (lambda: monolect.normal(0.0, -1.0, (2,)), ArgumentError, "normal: std"),
        (lambda: monolect.normal(0.0, 1.0, (2,), std=2.0), ArgumentError, "each once"),
        (lambda: monolect.normal(0.0, 1.0, (2,), 3), ArgumentError, "normal: arguments"),
        (lambda: monolect.normal(Tensor([1.0, 2.0]), Tensor([1.0, 2.0, 3.0])), ShapeError, "broadcast"),
        (lambda: monolect.normal(2, mean=Tensor([[1.0], [2.0]])), ShapeError, "broadcast to the size"),
    ],
)
def test_refused_calls_of_normal(call: Any, kind: Any, words: str) -> None:
    with pytest.raises(kind, match=words):
        call()
