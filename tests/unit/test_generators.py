"""Generators and splittable keys: what a number depends on, and that it depends on nothing else."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from monolect import Generator, Tensor, dtypes, function, jit, random
from monolect.base.errors import ArgumentError, DeviceError, DTypeError, MonolectError, ShapeError

DEVICES = ("cpu", "cpu:1")
FEW = max(10, settings().max_examples // 4)

# What draws, given options; numbers of each are compared with those of the same call.
DRAWS: dict[str, Callable[..., Tensor]] = {
    "rand": lambda **o: Tensor.rand(3, 2, **o),
    "randn": lambda **o: Tensor.randn(5, dtype="float64", **o),
    "randint": lambda **o: Tensor.randint(0, 1 << 40, (4,), **o),
    "uniform": lambda **o: Tensor.uniform(4, low=1.0, high=2.0, **o),
    "normal": lambda **o: Tensor.normal(4, mean=1.0, std=2.0, **o),
    "randperm": lambda **o: Tensor.randperm(50, **o),
    "xavier": lambda **o: Tensor.xavier_normal(3, 4, **o),
    "rand_like": lambda **o: Tensor.zeros(4).rand_like(**o),
    "randn_like": lambda **o: Tensor.zeros(4).randn_like(**o),
    "randint_like": lambda **o: Tensor.zeros(4, dtype="int64").randint_like(1 << 40, **o),
    "bernoulli": lambda **o: Tensor.full((60,), 0.5).bernoulli(**o),
    "bernoulli of p": lambda **o: Tensor.zeros(60).bernoulli(0.5, **o),
    "multinomial": lambda **o: Tensor.ones(60).multinomial(20, **o),
    "multinomial with": lambda **o: Tensor.ones(60).multinomial(20, True, **o),
    "poisson": lambda **o: Tensor.full((9,), 1000.0).poisson(**o),
    "gamma": lambda **o: random.gamma(2.0, size=4, **o),
    "dirichlet": lambda **o: random.dirichlet(Tensor([1.0, 2.0]), size=2, **o),
    "categorical": lambda **o: random.categorical(Tensor.zeros(60), size=9, **o),
    "permutation": lambda **o: random.permutation(Tensor.arange(60), **o),
    "bits": lambda **o: random.bits(2, **o),
    "normal_": lambda **o: Tensor.zeros(3).normal_(**o),
    "uniform_": lambda **o: Tensor.zeros(3).uniform_(**o),
    "log_normal_": lambda **o: Tensor.zeros(3).log_normal_(**o),
    "exponential_": lambda **o: Tensor.zeros(3).exponential_(**o),
    "cauchy_": lambda **o: Tensor.zeros(3).cauchy_(**o),
    "geometric_": lambda **o: Tensor.zeros(30).geometric_(0.1, **o),
    "bernoulli_": lambda **o: Tensor.zeros(60).bernoulli_(**o),
    "random_": lambda **o: Tensor.zeros(3).random_(**o),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", DRAWS)
def test_numbers_of_a_generator_and_of_a_key_depend_on_nothing_else(name: str) -> None:
    draw, g, k = DRAWS[name], Generator().manual_seed(3), random.key(3)
    Tensor.manual_seed(1)
    state = random.get_rng_state().tolist()
    first, second = draw(generator=g).tolist(), draw(generator=g).tolist()
    by_key = draw(key=k).tolist()
    assert random.get_rng_state().tolist() == state  # the device's sequence is where it was
    assert first != second and by_key not in (first, second)
    Tensor.manual_seed(2)
    draw()
    g.manual_seed(3)
    other = Generator().manual_seed(4)
    mixed = [draw(generator=g), draw(generator=other), draw(key=k), draw(generator=g)]
    got = [t.tolist() for t in mixed]
    assert [got[0], got[2], got[3]] == [first, by_key, second] and got[1] not in (first, second)


def test_a_generator_has_the_methods_of_pytorch() -> None:
    g = Generator()
    assert g.initial_seed() == 67280421310721 and g.device == "cpu" and repr(g) == "Generator(device='cpu')"
    assert g.manual_seed(5) is g and g.initial_seed() == 5
    a, state, b = Tensor.rand(3, generator=g), g.get_state(), Tensor.rand(3, generator=g)
    assert state.tolist() == [3, 5] and state.dtype is dtypes.uint64
    late = b.tolist()
    assert Tensor.rand(3, generator=g.set_state(state)).tolist() == late != a.tolist()
    seed = g.seed()
    assert seed == g.initial_seed() and g.get_state().tolist() == [0, seed]
    assert Generator().manual_seed(-1).get_state().tolist() == [0, 2**64 - 1]
    for made in (copy.copy(g), copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert made.initial_seed() == seed
        numbers = Tensor.rand(2, generator=made).tolist()
        assert numbers == Tensor.rand(2, generator=Generator().manual_seed(seed)).tolist()
    assert g.get_state().tolist() == [0, seed]


def test_what_was_drawn_before_a_state_is_set_keeps_its_numbers() -> None:
    g = Generator().manual_seed(1)
    expected = Tensor.rand(3, generator=g).tolist()
    g.manual_seed(1)
    early = Tensor.rand(3, generator=g)
    g.manual_seed(9)
    again = Tensor.rand(3, generator=g)
    g.set_state(Generator().manual_seed(2).get_state())
    assert early.tolist() == expected != again.tolist()
    late = Tensor.rand(3, generator=Generator().manual_seed(1))
    assert late.tolist() == expected  # the Generator is gone before its numbers are computed


def test_the_state_of_a_device_is_read_and_set() -> None:
    Tensor.manual_seed(3)
    assert random.initial_seed() == 3
    Tensor.rand(5).realize()
    state = random.get_rng_state()
    drawn = Tensor.rand(2).tolist()
    assert state.tolist() == [5, 3]
    random.set_rng_state(state)
    assert Tensor.rand(2).tolist() == drawn
    assert random.seed() == random.initial_seed() != 3


# ---- in place --------------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "fp8e4m3"])
def test_a_view_that_is_filled_changes_its_base(dtype: str) -> None:
    base = Tensor.zeros(3, 4, dtype=dtype)
    row, alone = base[1], Tensor.zeros(4, dtype=dtype)
    assert row.normal_(key=random.key(0)) is row
    alone.normal_(key=random.key(0))
    assert base.float().tolist() == [[0.0] * 4, alone.float().tolist(), [0.0] * 4]
    base.T[2:].uniform_(1.0, 2.0, key=random.key(1))
    assert (base.float().numpy()[:, 2:] >= 1).all() and row.float().tolist()[:2] == alone.float().tolist()[:2]
    assert base.dtype.name == dtype


def test_a_leaf_takes_numbers_as_new_values() -> None:
    w = Tensor.zeros(3, requires_grad=True)
    w.normal_(key=random.key(0))
    (w * w).sum().backward()
    assert w.requires_grad and w.grad is not None and w.grad.tolist() == [2 * x for x in w.tolist()]


def test_an_earlier_value_stays() -> None:
    x = Tensor([1.0, 2.0])
    double = x * 2
    x.uniform_()
    assert double.tolist() == [2.0, 4.0]


# ---- several devices -------------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_numbers_are_the_same_on_any_devices(axis: int | None) -> None:
    def filled(x: Tensor, **o: Any) -> list:
        x.normal_(**o)
        x[1:3].exponential_(**o)
        return x.tolist()

    def made() -> list[Tensor]:
        x = Tensor.zeros(4, 4)
        return [x, x.replicate(DEVICES) if axis is None else x.shard(DEVICES, axis)]

    for options in (lambda: {}, lambda: {"generator": Generator().manual_seed(2)}, lambda: {"key": random.key(2)}):
        one, many = made()
        Tensor.manual_seed(1)
        expected = filled(one, **options())
        Tensor.manual_seed(1)
        assert filled(many, **options()) == expected
        assert many.device == DEVICES and many.shard_axis == axis
        assert Tensor.rand(3, device=DEVICES, **options()).device == DEVICES
    k = random.key(1)
    assert Tensor.rand(5, device=DEVICES, key=k).tolist() == Tensor.rand(5, key=k).tolist()
    assert Tensor.rand(5, device="python", key=k).tolist() == Tensor.rand(5, key=k).tolist()
    assert random.gamma(2.0, size=3, device="cpu:1", key=k).device == "cpu:1"


# ---- keys ------------------------------------------------------------------------------------------------------------
def test_keys_of_one_key_are_independent() -> None:
    n = 4096
    keys = random.split(random.key(0), n)
    assert keys.shape == (n,) and len({*keys.tolist(), random.key(0).item()}) == n + 1
    rows = np.array([Tensor.rand(16, key=k).tolist() for k in [keys[i] for i in range(200)]])
    assert stats.kstest(rows.ravel(), "uniform").pvalue > 1e-4
    across = np.corrcoef(rows)[np.triu_indices(200, 1)]
    assert abs(across.mean()) < 0.01 and abs(across.std() * 15**0.5 - 1) < 0.05
    bits = keys.numpy()[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / n**0.5
    a, b = random.split(random.key(0))
    assert [a.item(), b.item()] == keys[:2].tolist()  # the first keys do not depend on how many there are
    seeds = np.array([random.key(s).item() for s in range(64)], np.uint64)
    differ = [(int(x) ^ int(y)).bit_count() for x, y in zip(seeds, seeds[1:], strict=False)]
    assert 24 < np.mean(differ) < 40


def test_a_key_may_be_used_and_split() -> None:
    k = random.key(5)
    drawn = {*random.bits(1000, key=k).tolist()}
    split, folded = random.split(k, 1000), [random.fold_in(k, n).item() for n in range(20)]
    assert drawn.isdisjoint(split.tolist()) and drawn.isdisjoint(folded) and len({*folded}) == 20
    assert random.fold_in(k, Tensor(7)).item() == random.fold_in(k, 7).item() == folded[7]


@settings(max_examples=FEW)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("key", "generator", "device", "read"))), max_size=12))
def test_any_order_of_sources(program: list[tuple[int, str]]) -> None:
    """Numbers of each source in the order of its calls, lazily or not, as if the others were not there."""

    def numbers(wanted: str | None) -> list[list[int]]:
        Tensor.manual_seed(0)
        gs = [Generator().manual_seed(n) for n in range(4)]
        drawn: list[Tensor] = []
        for n, source in program:
            if source == "read":
                if drawn:
                    drawn[n % len(drawn)].realize()
            elif wanted in (None, source):
                options = {"key": {"key": random.key(n)}, "generator": {"generator": gs[n]}, "device": {}}[source]
                drawn.append(random.bits(n + 1, **options))
        return [t.tolist() for t in drawn]

    mixed = numbers(None)
    sources = [source for _, source in program if source != "read"]
    for wanted in ("key", "generator", "device"):
        assert numbers(wanted) == [x for x, source in zip(mixed, sources, strict=True) if source == wanted]


# ---- captured --------------------------------------------------------------------------------------------------------
def test_keys_are_arguments_of_captured_steps_and_functions() -> None:
    def step(key: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        key, own = random.split(key)
        return key, random.normal(x, key=own)

    x = Tensor([1.0, 100.0])
    for wrap in (jit, function):
        captured: Any = wrap(step)
        k, plain = random.key(1), random.key(1)
        for _ in range(4):
            k, got = captured(k, x)
            plain, wanted = step(plain, x)
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-6)
    assert len(jit(step).captures) == 0


def test_a_captured_step_continues_the_sequence_of_its_generator() -> None:
    g = Generator()

    def program(wrap: Callable[[Any], Any]) -> list[Any]:
        Tensor.manual_seed(1)
        g.manual_seed(2)
        step = wrap(lambda x: (x + Tensor.rand(2, generator=g), Tensor.rand(1)))
        x, out = Tensor([0.0, 0.0]).realize(), []
        for n in range(5):
            lazy = Tensor.rand(1, generator=g)
            out += [t.tolist() for t in step(x)] + [lazy.tolist()]
            if n == 2:
                g.manual_seed(7)
        return [*out, g.get_state().tolist()]

    assert program(jit) == program(lambda f: f) == program(function)


def test_the_generator_of_a_step_is_known_by_itself() -> None:
    first, second = Generator().manual_seed(1), Generator().manual_seed(2)
    around = {"g": first}
    of_argument, of_around = (
        jit(lambda g: random.bits(1, generator=g)),
        jit(lambda: random.bits(1, generator=around["g"])),
    )
    drawn: dict[Generator, list[int]] = {first: [], second: []}
    for n in range(8):
        g = around["g"] = (first, second)[n % 3 == 0]
        drawn[g] += [of_argument(g).item(), of_around().item()]
    assert len(of_argument.captures) == len(of_around.captures) == 2
    for g, seed in ((first, 1), (second, 2)):
        assert random.bits(len(drawn[g]), generator=Generator().manual_seed(seed)).tolist() == drawn[g]


def test_in_place_methods_in_a_captured_step() -> None:
    def program(wrap: Callable[[Any], Any]) -> list[Any]:
        Tensor.manual_seed(4)
        state = Tensor.zeros(2, 3).realize()

        def step() -> Tensor:
            state[0].normal_()
            state[1].exponential_(2.0)
            return state * 2

        captured = wrap(step)
        return [(captured().tolist(), state.tolist()) for _ in range(4)]

    got, wanted = program(jit), program(lambda f: f)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert got[0] != got[1]


# ---- errors ----------------------------------------------------------------------------------------------------------
REFUSED: list[tuple[Callable[[], Any], type[MonolectError], str]] = [
    (lambda: Tensor.rand(2, generator=Generator(), key=random.key(0)), ArgumentError, "a generator and a key"),
    (lambda: Tensor.rand(2, generator=7), ArgumentError, "generator"),  # type: ignore[arg-type]
    (lambda: Tensor.rand(2, key=7), ArgumentError, "a random key"),  # type: ignore[arg-type]
    (lambda: Tensor.rand(2, key=Tensor(7)), DTypeError, "a random key"),
    (lambda: Tensor.rand(2, key=random.split(random.key(0))), ShapeError, "a random key"),
    (lambda: Generator().manual_seed(1.5), ArgumentError, "manual_seed"),  # type: ignore[arg-type]
    (lambda: Generator().set_state(Tensor([1, 2])), ArgumentError, "a random state"),
    (lambda: Generator(DEVICES), DeviceError, "Generator"),
    (lambda: random.key("a"), ArgumentError, "key: seed"),  # type: ignore[arg-type]
    (lambda: random.split(random.key(0), 0), ArgumentError, "random.split"),
    (lambda: random.fold_in(random.key(0), Tensor([1])), ArgumentError, "fold_in"),
    (lambda: random.fold_in(random.key(0), 1.5), ArgumentError, "data"),
    (lambda: random.set_rng_state([0, 1]), ArgumentError, "a random state"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("use", "error", "text"), REFUSED)
def test_what_is_refused(use: Callable[[], Any], error: type[MonolectError], text: str) -> None:
    with pytest.raises(error, match=text):
        use()
