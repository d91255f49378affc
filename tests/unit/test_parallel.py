"""Models on several devices: data parallel, sharded parameters, tensor parallel."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from monolect import ArgumentError, DTypeError, Mesh, Tensor, jit, nn
from monolect.nn.state import get_state_dict, load_state_dict
from monolect.schedule.rewrites.shard import moves
from tests.strategies import often

D = ("cpu", "cpu:1")
STEPS = often(8, 20)


class Block(nn.Module):
    def __init__(self) -> None:
        self.first, self.second, self.norm = nn.Linear(6, 8), nn.Linear(8, 6), nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.second(self.first(x).gelu()))


def model() -> nn.Sequential:
    Tensor.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Linear(6, 3))


def pairs(m: nn.Sequential) -> None:
    nn.parallel.replicate(m, D)
    for block in m[:2]:
        nn.parallel.tensor_parallel([block.first, block.second], D)


WAYS = {
    "one device": (lambda m: None, lambda x: x),
    "data parallel": (lambda m: nn.parallel.replicate(m, D), lambda x: x.shard(D)),
    "sharded parameters": (lambda m: nn.parallel.shard(m, D), lambda x: x.shard(D)),
    "tensor parallel": (pairs, lambda x: x.replicate(D)),
}


def losses(way: str, make: object, steps: int = 20, is_captured: bool = False) -> list[float]:
    prepare, data = WAYS[way]
    m = model()
    prepare(m)
    optimizer, rng, out = make(m.parameters()), np.random.default_rng(1), []

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = m(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    f = jit(step) if is_captured else step
    for _ in range(steps):
        x = data(Tensor(rng.normal(size=(8, 6)).astype(np.float32)))
        y = data(Tensor(rng.integers(0, 3, 8)))
        out.append(f(x, y).item())
    return out


def adam(params: list[Tensor]) -> nn.optim.Adam:
    return nn.optim.Adam(params, lr=0.01)


@pytest.fixture(scope="module")
def wanted() -> list[float]:
    return losses("one device", adam, STEPS)


@pytest.mark.sweep
@pytest.mark.parametrize("way", [w for w in WAYS if w != "one device"])
def test_training_has_the_losses_of_one_device(way: str, wanted: list[float]) -> None:
    np.testing.assert_allclose(losses(way, adam, STEPS), wanted, rtol=1e-4)
    np.testing.assert_allclose(losses(way, adam, STEPS, is_captured=True), wanted, rtol=1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize("micro_batches", [1, 3, pytest.param(8, marks=pytest.mark.slow)])
def test_a_pipeline_trains_as_its_stages_do_on_one_device(micro_batches: int) -> None:
    """8 rows at once, and in parts of 3, 3 and 2; parts of one row, which are slow, differ from those in size only."""

    def run(is_piped: bool, is_captured: bool) -> list[float]:
        stages = [*model()]
        net = nn.parallel.Pipeline(stages, (*D, "cpu:2"), micro_batches) if is_piped else nn.Sequential(*stages)
        optimizer, rng = nn.optim.Adam(net.parameters(), lr=0.01), np.random.default_rng(1)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            out = net(x)
            loss = out.cross_entropy(y.to(out.device))
            loss.backward()
            optimizer.step()
            return loss

        f, out = jit(step) if is_captured else step, []
        for _ in range(often(4, 6)):
            x, y = Tensor(rng.normal(size=(8, 6)).astype(np.float32)), Tensor(rng.integers(0, 3, 8))
            out.append(f(x, y).item())
        return out

    wanted = run(False, False)
    np.testing.assert_allclose(run(True, False), wanted, rtol=1e-4)
    np.testing.assert_allclose(run(True, True), wanted, rtol=1e-4)


def test_gradients_of_a_pipeline_are_clipped() -> None:
    found = []
    for devices in (("cpu", "cpu"), ("cpu:2", "cpu:1")):
        Tensor.manual_seed(0)
        m = nn.parallel.Pipeline([nn.Linear(4, 5), nn.Linear(5, 2)], devices, 2)
        _ = m(Tensor.ones(4, 4)).square().sum().backward()
        total = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        assert total.device == devices[0]
        found.append([total.item(), *(p.grad.norm().item() for p in m.parameters() if p.grad is not None)])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_a_pipeline_needs_a_device_for_each_stage() -> None:
    with pytest.raises(ArgumentError, match="one device a stage"):
        nn.parallel.Pipeline([nn.Linear(2, 2)], D)
    with pytest.raises(ArgumentError, match="micro_batches"):
        nn.parallel.Pipeline([nn.Linear(2, 2)], ("cpu",), 0)


def test_state_is_divided_as_the_parameters_are() -> None:
    m = model()
    nn.parallel.shard(m, D)
    optimizer = nn.optim.Adam(m.parameters(), lr=0.01)
    m(Tensor.ones(4, 6)).sum().backward()
    optimizer.step()
    for p in m.parameters():
        assert p.grad is not None and p.grad.shard_axis == p.shard_axis and p.grad.device == D
    for slot in optimizer._state.values():
        assert [t.shard_axis for t in slot] == [p.shard_axis for p in m.parameters()]


def test_a_state_dict_goes_to_any_placement_and_back() -> None:
    a, b = model(), model()
    nn.parallel.shard(a, D)
    values = {name: t.numpy().copy() for name, t in get_state_dict(a).items()}
    load_state_dict(b, {name: v + 1 for name, v in values.items()})
    load_state_dict(a, get_state_dict(b))
    for name, t in get_state_dict(a).items():
        np.testing.assert_array_equal(t.numpy(), values[name] + 1)
        assert t.device == D
    assert a[2].weight.shard_axis == 1


def test_a_state_dict_goes_from_several_devices_to_others() -> None:
    four = ("cpu", "cpu:1", "cpu:2", "cpu:3")
    meshes = [Mesh(("data", "model"), counts, (*four, "cpu:4", "cpu:5")) for counts in ((2, 3), (3, 2))]
    placements: list[Callable[[Tensor], Tensor]] = [
        lambda t: t.shard(four),
        lambda t: t.shard(four[::-1], t.ndim - 1),
        lambda t: t.replicate(four[:3]),
        lambda t: t.shard(meshes[0], {"data": 0}),
        lambda t: t.shard(meshes[1], {"model": t.ndim - 1}),
        lambda t: t.to("cpu:5"),
    ]
    pairs = [*zip(placements, placements[1:] + placements[:1], strict=True), *product(placements, placements)]
    for saved, loaded in pairs[: often(6, len(pairs))]:
        a, b = model(), model()
        nn.parallel.move(a, saved)
        nn.parallel.move(b, loaded)
        before = [(t.device, t.shard_axis) for t in get_state_dict(b).values()]
        b.load_state_dict(a.state_dict())
        assert [(t.device, t.shard_axis) for t in get_state_dict(b).values()] == before
        for name, t in get_state_dict(a).items():
            np.testing.assert_array_equal(get_state_dict(b)[name].numpy(), t.numpy())


def test_what_does_not_fit_changes_nothing() -> None:
    m = model()
    with pytest.raises(ArgumentError, match="another shape of 0.first.weight"):
        nn.parallel.move(m, lambda t: t.reshape(-1))
    with pytest.raises(ArgumentError, match="pairs of Linear layers"):
        nn.parallel.tensor_parallel([m[2]], D)
    assert {t.device for t in get_state_dict(m).values()} == {"cpu"}


# ---- ring attention --------------------------------------------------------------------------------------------------
FOUR = ("cpu", "cpu:1", "cpu:2", "cpu:3")
GRID = Mesh(("data", "sequence"), (2, 2), FOUR)
PLACES = {
    "2 devices": lambda t: t.shard(D, 2),
    "4 devices": lambda t: t.shard(FOUR, 2),
    "a mesh": lambda t: t.shard(GRID, {"data": 0, "sequence": 2}),
    "both axes of a mesh": lambda t: t.shard(GRID, (2, 2)),
}


def attention(f: object, place: object, lengths: tuple[int, int], is_causal: bool) -> list[np.ndarray]:
    """The result and the gradients of an attention of float64 operands with 2 heads."""
    rng = np.random.default_rng(0)
    shapes = [(2, 2, n, d) for n, d in zip((lengths[0], lengths[1], lengths[1]), (5, 5, 3), strict=True)]
    leaves = [place(Tensor(rng.normal(size=s) * 3)).detach() for s in shapes]
    for t in leaves:
        t.requires_grad = True
    out = f(*leaves, is_causal=is_causal)
    (out * Tensor(rng.normal(size=out.shape))).sum().backward()
    return [out.numpy(), *(t.grad.numpy() for t in leaves)]


@pytest.mark.sweep
@pytest.mark.parametrize(("lengths", "is_causal"), [((8, 8), False), ((8, 8), True), ((4, 16), False), ((4, 4), True)])
@pytest.mark.parametrize("place", PLACES)
def test_ring_attention_is_attention(place: str, lengths: tuple[int, int], is_causal: bool) -> None:
    def plain(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        return q.scaled_dot_product_attention(k, v, is_causal=is_causal)

    wanted = attention(plain, lambda t: t, lengths, is_causal)
    found = attention(nn.parallel.ring_attention, PLACES[place], lengths, is_causal)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


def test_ring_attention_stores_no_scores_and_moves_each_part_to_the_next_device() -> None:
    n = 2048
    q, k, v = (Tensor.randn(1, 1, n, 16).shard(FOUR, 2).realize() for _ in range(3))
    f = jit(lambda q, k, v: nn.parallel.ring_attention(q, k, v))
    for _ in range(2):
        out = f(q, k, v)
    wanted = Tensor(q.numpy()).scaled_dot_product_attention(Tensor(k.numpy()), Tensor(v.numpy()))
    np.testing.assert_allclose(out.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert f.peak_bytes < n * n  # a quarter of the scores
    found = moves([nn.parallel.ring_attention(q, k, v).uop])
    assert {m.collective for m in found} == {"parts"}
    assert sum(m.n_bytes for m in found) == 3 * (k.nbytes + v.nbytes)  # each part passes the three other devices


@pytest.mark.sweep
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("dtype", "value"), [("float16", "float16"), ("bfloat16", "bfloat16"), ("float16", "float32")])
def test_ring_attention_of_narrow_floats_has_wide_scores(dtype: str, value: str, is_causal: bool) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (Tensor(rng.normal(size=(1, 2, 8, 4)) * 4, dtype=d) for d in (dtype, dtype, value))
    wanted = q.scaled_dot_product_attention(k, v, is_causal=is_causal)
    found = nn.parallel.ring_attention(*(t.shard(FOUR, 2) for t in (q, k, v)), is_causal=is_causal)
    assert found.dtype == wanted.dtype
    bound = 2.0**-7 if dtype == "bfloat16" else 2.0**-9
    np.testing.assert_allclose(found.float().numpy(), wanted.float().numpy(), rtol=bound, atol=bound)


def test_ring_attention_refuses_integers() -> None:
    q = Tensor.ones(1, 2, 4, 3, dtype="int32").shard(D, 2)
    with pytest.raises(DTypeError, match="needs floats"):
        nn.parallel.ring_attention(q, q, q)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (lambda t: t, "divided along axis -2 into equal parts"),
        (lambda t: t.shard(D, 1), "divided along axis -2 into equal parts"),
        (lambda t: t.shard(("cpu", "cpu:1", "cpu:2"), 2), "divided along axis -2 into equal parts"),
        (lambda t: t.replicate(D), "divided along axis -2 into equal parts"),
    ],
)
def test_ring_attention_refuses_other_divisions(place: object, text: str) -> None:
    q = place(Tensor.ones(1, 2, 4, 3))
    with pytest.raises(ArgumentError, match=text):
        nn.parallel.ring_attention(q, q, q)


def test_ring_attention_refuses_lengths_that_do_not_fit() -> None:
    q, k = (Tensor.ones(1, 2, n, 3).shard(D, 2) for n in (4, 8))
    with pytest.raises(ArgumentError, match="sequence lengths"):
        nn.parallel.ring_attention(q, k, q)
    with pytest.raises(ArgumentError, match="as many queries"):
        nn.parallel.ring_attention(q, k, k, is_causal=True)
