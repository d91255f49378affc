"""Simulations: what a step sends, computes and stores on null devices, against formulas and the plan of all devices."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from monolect import ArgumentError, DeviceError, Mesh, Tensor, dtypes, nn
from monolect.command.cluster import HARDWARE, Hardware, Link, hardware_of, kernel_seconds, message
from monolect.command.forms import base_of, buffer_bytes, calls_in, home, items_of, operands_of, program_of
from monolect.distributed import Prediction, simulate
from monolect.distributed import simulation as module
from monolect.ir.collective import Exchange
from monolect.ir.uop import UOp
from monolect.runtime.simulated import planned_step
from monolect.schedule.rewrites import shard as shard_module
from monolect.schedule.rewrites.representative import innermost
from monolect.schedule.rewrites.shard import moves, shard

WIDTH, HIDDEN, BATCH = 256, 512, 1024
PARAMETERS = 2 * WIDTH * HIDDEN + WIDTH + HIDDEN  # of `pair`
NUMBERS = 64  # bytes of the loss and of the numbers of an optimizer, which go to all devices

Step = Callable[[], Tensor]


def mesh_of(*shape: int) -> Mesh:
    n = int(np.prod(shape))
    return Mesh(("data", "model")[: len(shape)], shape, [f"null:{i}" for i in range(n)])


def pair() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))


def replicated(model: nn.Sequential, mesh: Mesh) -> None:
    nn.parallel.replicate(model, mesh)


def sharded(model: nn.Sequential, mesh: Mesh) -> None:
    nn.parallel.shard(model, mesh)


def in_pairs(model: nn.Sequential, mesh: Mesh) -> None:
    nn.parallel.tensor_parallel([*model], mesh)


def both(model: nn.Sequential, mesh: Mesh) -> None:
    nn.parallel.tensor_parallel([*model], mesh, "model")
    nn.parallel.shard(model, mesh, "data")


def training(mesh: Mesh, divide: Any, model: nn.Sequential | None = None, whole_batch: bool = False) -> Step:
    """A step of SGD of `model`, divided over the mesh, on a batch that is divided over "data" or whole on each."""
    model = model or pair()
    divide(model, mesh)
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)
    x = Tensor.ones(BATCH, WIDTH)
    x = (x.replicate(mesh) if whole_batch else x.shard(mesh, {"data": 0})).realize()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def example(name: str) -> ModuleType:
    return load(Path(__file__).parents[2] / "examples" / f"{name}.py")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


# ---- formulas --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [2, 8, 64, 512, 4096])
def test_data_parallel_sends_the_gradients_twice(n: int) -> None:
    found = simulate(training(mesh_of(n), replicated))
    assert found.n_devices == n and found.sent.keys() == {"allreduce", "broadcast"}
    assert found.sent["allreduce"] == pytest.approx(2 * (n - 1) / n * 4 * PARAMETERS, abs=NUMBERS)
    assert found.sent["broadcast"] <= NUMBERS
    assert found.memory.arguments == pytest.approx(4 * PARAMETERS + 4 * WIDTH * BATCH / min(n, BATCH), abs=NUMBERS)


@pytest.mark.parametrize("n", [2, 8, 64])
def test_divided_parameters_are_gathered_and_their_gradients_scattered(n: int) -> None:
    found = simulate(training(mesh_of(n), sharded))
    moved = (n - 1) / n * 4 * PARAMETERS
    assert found.sent["reduce_scatter"] == pytest.approx(moved, abs=NUMBERS)
    assert found.sent["allgather"] == pytest.approx(moved, abs=NUMBERS)
    assert found.sent["allreduce"] <= NUMBERS
    assert found.memory.arguments == pytest.approx(4 * PARAMETERS / n + 4 * WIDTH * BATCH / n, abs=NUMBERS)


def test_a_deep_model_gathers_its_parameters_twice_and_holds_few_of_them() -> None:
    layers, n = 16, 8
    deep = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))
    found = simulate(training(mesh_of(n), sharded, deep))
    one = 4 * WIDTH * WIDTH
    kept = 3  # layers whose backward pass begins soon after their forward pass
    assert found.sent["allgather"] == pytest.approx((n - 1) / n * one * (2 * layers - kept), abs=one)
    activations = layers * 4 * WIDTH * BATCH / n
    assert found.memory.intermediates < activations + 10 * one  # of 32 with all parameters and gradients


@pytest.mark.parametrize("n", [2, 8])
def test_tensor_parallel_sums_one_activation_for_a_pair_in_each_direction(n: int) -> None:
    pairs = nn.Sequential(*pair(), *pair())
    found = simulate(training(mesh_of(n), in_pairs, pairs, whole_batch=True))
    activation = 4 * BATCH * WIDTH
    assert found.sent.keys() == {"allreduce", "broadcast"}
    assert found.sent["allreduce"] == pytest.approx(2 * (n - 1) / n * 3 * activation, abs=NUMBERS)  # no gradient of x


def test_operations_of_all_devices_are_those_of_one() -> None:
    by_n = {n: simulate(training(mesh_of(n), replicated)).operations for n in (2, 4, 16)}
    products = 2 * BATCH * WIDTH * HIDDEN * 5  # two forward, three backward
    for n, found in by_n.items():
        assert found * n == pytest.approx(products, rel=0.1)


def test_a_larger_mesh_hides_less_and_divided_state_shrinks() -> None:
    found = {n: simulate(training(mesh_of(n), sharded)) for n in (8, 64, 256)}
    assert [p.memory.arguments * n for n, p in found.items()] == pytest.approx(
        [found[8].memory.arguments * 8] * 3, rel=0.01
    )
    assert found[8].kernel_seconds > found[64].kernel_seconds > found[256].kernel_seconds
    assert found[8].message_seconds < found[64].message_seconds < found[256].message_seconds


def test_operations_of_a_transformer_are_six_for_a_parameter_and_token() -> None:
    llm = example("simulate_llm")
    size = llm.Size(layers=2, width=512, hidden=1376, heads=4, groups=4, vocabulary=4096)
    context = 512
    found = llm.predict(size, {"data": 8}, True, 1, context, "h100")
    weights = size.layers * (4 * size.width**2 + 3 * size.width * size.hidden) + size.width * size.vocabulary
    attention = 12 * size.layers * size.width * context**2
    assert found.operations == pytest.approx(6 * weights * context + attention, rel=0.05)


def test_the_page_has_the_predictions_of_now() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs/results/simulation.md").read_text(encoding="utf-8")
    sys.path.insert(0, str(root / "examples"))
    try:
        table = load(root / "benchmarks/simulation.py")
    finally:
        sys.path.pop(0)
    for row in table.TABLES["tiny"]:
        assert table.line("tiny", row) in page
    assert page.count("| data ") + page.count("| model ") == sum(map(len, table.TABLES.values()))


def test_the_example_prints_a_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    llm = example("simulate_llm")
    found = llm.main(["--size", "tiny", "--mesh", "data=4,model=2", "--shard", "--context", "16"])
    assert found.n_devices == 8 and "8 devices, a prediction" in capsys.readouterr().out


# ---- the plan of all devices -----------------------------------------------------------------------------------------
def batches_of(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Prediction]) -> tuple[Prediction, list[UOp]]:
    """The prediction of `run` and the values of its one batch."""
    seen: list[list[UOp]] = []

    def noted(batch: list[UOp]) -> UOp:
        seen.append(batch)
        return planned_step(batch)

    monkeypatch.setattr(module, "planned_step", noted)
    found = run()
    (batch,) = seen
    return found, batch


@pytest.fixture
def sums_are_cut_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "MIN_SCATTERED_BYTES", 1 << 40)


def check_against_all_devices(found: Prediction, batch: list[UOp]) -> None:
    """The first device sends the mean of all, by the moves of the graph and by the copies of the plan of all devices,
    and its memory outside of the plan is that of the first device there.

    In one process large sums are divided over the devices before it is known which part a device needs, unlike on a
    cluster; the plan of all devices is made without that.
    """
    n = found.n_devices
    sent = sum(found.sent.values())
    assert sent == pytest.approx(sum(m.n_bytes for m in moves(batch)) / n, abs=len(found.sent))
    items = calls_in(items_of(program_of(planned_step(batch, shard))))
    assert sent == pytest.approx(sum(buffer_bytes(c.src[0]) for c in items if c.op == "STORE") / n, abs=len(found.sent))
    params = {b for c in items for b in map(base_of, operands_of(c)) if b.op == "PARAM"}
    outside = sum(buffer_bytes(b) for b in params if home(b, "null") == "null")
    assert found.memory.arguments + found.memory.results == outside
    kernels = Counter(home(base_of(c.src[1]), "null") for c in items if c.op == "CALL")
    assert found.n_kernels <= kernels["null"]  # there it also joins pieces and adds up


@pytest.mark.sweep
@pytest.mark.usefixtures("sums_are_cut_late")
@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("divide", [replicated, sharded, in_pairs])
def test_the_first_device_has_its_share_of_the_plan_of_all(
    n: int, divide: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = training(mesh_of(n), divide, whole_batch=divide is in_pairs)
    check_against_all_devices(*batches_of(monkeypatch, lambda: simulate(step)))


@pytest.mark.sweep
@pytest.mark.usefixtures("sums_are_cut_late")
@pytest.mark.parametrize("shape", [(2, 2), (4, 2)])
def test_the_first_device_of_a_mesh_has_its_share_of_the_plan_of_all(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = training(mesh_of(*shape), both)
    check_against_all_devices(*batches_of(monkeypatch, lambda: simulate(step)))


@pytest.mark.sweep
@pytest.mark.usefixtures("sums_are_cut_late")
@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_transformer_has_its_share_of_the_plan_of_all(is_sharded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = example("simulate_llm")
    axes = {"data": 2, "model": 2}
    run = lambda: llm.predict(llm.SIZES["tiny"], axes, is_sharded, 4, 32, "h100")  # noqa: E731
    check_against_all_devices(*batches_of(monkeypatch, run))


def test_a_value_that_changes_its_axis_sends_the_parts_of_the_others() -> None:
    n = 8
    mesh = mesh_of(n)
    x = Tensor.ones(64, 128).shard(mesh, 0).realize()
    found = simulate(lambda: x.shard(mesh, 1) * 2)
    assert found.sent == {"alltoall": 64 * 128 * 4 // n * (n - 1) // n}


def test_state_is_updated_in_place() -> None:
    mesh = mesh_of(4)
    w = Tensor.ones(64, 64).replicate(mesh).realize()
    found = simulate(lambda: w.assign(w * 2))
    assert found.memory == (64 * 64 * 4, 0, 0)


# ---- memory ----------------------------------------------------------------------------------------------------------
def test_values_on_null_devices_have_no_memory() -> None:
    mesh = mesh_of(2)
    huge = Tensor.randn(1 << 20, 1 << 20).shard(mesh).realize()
    assert huge.shape == (1 << 20, 1 << 20) and (huge + 1).realize().device == tuple(mesh)
    with pytest.raises(DeviceError, match="several null devices") as error:
        huge.numpy()
    assert "simulate" in str(error.value) and "no values" in str(error.value)


def test_a_step_that_does_not_fit_says_so() -> None:
    small = HARDWARE["h100"]._replace(memory_bytes=1 << 20)
    found = simulate(training(mesh_of(8), replicated), hardware=small)
    assert not found.fits and "DOES NOT FIT, by" in str(found)
    assert "arguments: 1 of float32[512, 256], 524.3 kB together" in str(found)
    assert found.memory.total == sum(found.memory) > small.memory_bytes
    assert simulate(training(mesh_of(8), replicated)).fits


def test_batches_follow_each_other() -> None:
    x = Tensor.ones(64, 64).shard(mesh_of(4)).realize()

    def step() -> Tensor:
        y = (x + 1).realize()
        return y.sum().realize()

    found = simulate(step)
    first, second = simulate(lambda: x + 1), simulate(lambda: x.sum())
    assert found.seconds == pytest.approx(first.seconds + second.seconds)
    assert found.n_kernels == first.n_kernels + second.n_kernels and found.sent == second.sent
    assert found.memory.total == max(first.memory.total, second.memory.total)


# ---- time ------------------------------------------------------------------------------------------------------------
PLAIN = Hardware(
    memory_bytes=1 << 30,
    memory_rate=1e9,
    products={dtypes.float32: 1e12},
    other=1e9,
    share=1.0,
    launch=0.0,
    per_host=4,
    inside=Link(0.0, 0.0, 1e9),
    between=Link(0.0, 0.0, 1e8),
)


def test_collectives_inside_a_host_and_between_hosts() -> None:
    near, far = Exchange("allgather", ((4, 1),)), Exchange("allgather", ((8, 4),))
    assert message(near, 100, 400, 4)[:2] == (300, 0)
    assert message(far, 100, 800, 4)[:2] == (0, 700)
    wide = message(Exchange("allgather", ((16, 1),)), 100, 1600, 4)  # 4 hosts: 1/4 of 3/4 between them, 3/4 inside
    assert wide[:2] == (1200, 300) and wide.seconds(PLAIN) == pytest.approx(1200 / 1e9 + 300 / 1e8)
    twice = message(Exchange("allreduce", ((16, 1),)), 1600, 1600, 4)
    assert twice[:2] == (2400, 600)
    assert message(Exchange("reduce_scatter", ((4, 1),)), 400, 100, 4)[:2] == (300, 0)
    assert message(Exchange("alltoall", ((8, 1),)), 80, 80, 4)[:2] == (30, 40)
    assert message(Exchange("broadcast", ((4, 1),)), 100, 100, 4)[:2] == (75, 0)


def test_latencies_grow_with_the_logarithm_of_the_group() -> None:
    late = PLAIN._replace(inside=Link(1.0, 0.0, 1e99), between=Link(100.0, 0.0, 1e99))
    for n, steps in ((2, 1), (4, 2), (8, 102), (64, 402)):
        assert message(Exchange("allgather", ((n, 1),)), 1, n, 4).seconds(late) == pytest.approx(steps)


def test_products_and_other_kernels_have_their_own_rates() -> None:
    mesh, late = mesh_of(2), PLAIN._replace(memory_rate=1e99)
    a = Tensor.ones(64, 64).replicate(mesh).realize()
    assert simulate(lambda: a @ a, hardware=late).seconds == pytest.approx(2 * 64**3 / 1e12)
    assert simulate(lambda: a.exp() + a, hardware=late).seconds >= 64 * 64 / 1e9
    slow = PLAIN._replace(other=1e99, launch=1.0, share=0.5)
    assert simulate(lambda: a + a, hardware=slow).seconds == pytest.approx(1 + 2 * 2 * 64 * 64 * 4 / 1e9)


def test_the_group_of_neighbouring_parts() -> None:
    pairs = ((2, 0), (3, None), (4, 0))
    assert innermost(pairs, 0, 8) == ((2, 12), (4, 1)) and innermost(pairs, 0, 2) == ((2, 1),)
    assert innermost(pairs, 0, 1) == () and innermost(pairs, 1, 4) == ()


# ---- errors ----------------------------------------------------------------------------------------------------------
def test_unknown_hardware_is_refused() -> None:
    with pytest.raises(ArgumentError, match="hardware") as error:
        simulate(lambda: None, hardware="h10")
    assert "h100" in str(error.value)
    assert hardware_of(PLAIN) is PLAIN and kernel_seconds.__module__ == "monolect.command.cluster"


@pytest.mark.parametrize(
    "step", [lambda: None, lambda: Tensor.ones(4) + 1, lambda: Tensor.ones(4).shard(("cpu", "cpu:1"))]
)
def test_a_step_without_null_devices_is_refused(step: Callable[[], Any]) -> None:
    with pytest.raises(ArgumentError, match="simulate: a step") as error:
        simulate(step)
    assert "null:0" in str(error.value)


def test_a_contiguous_value_is_computed_once_for_all_levels() -> None:
    """The rows are looked up before the first sum over the devices, not again between any two of them."""
    mesh = mesh_of(4)
    table, tokens = Tensor.ones(1024, 64).shard(mesh), Tensor.zeros(4, 16, dtype=dtypes.int32).replicate(mesh)
    weights = [Tensor.ones(64, 64).shard(mesh) for _ in range(3)]
    table.realize(tokens, *weights)

    def step() -> Tensor:
        rows = x = tokens.embedding(table).contiguous()
        for w in weights:
            x = x @ w + rows
        return x

    found = simulate(step)
    assert found.sent["allgather"] == 1024 * 64 * 4 * 3 // 4
    assert found.n_kernels == 1 + 2 * len(weights)  # the lookup, then a product and what is added for each


def test_many_devices_that_run_different_programs_are_refused() -> None:
    mesh = mesh_of(128)
    x = Tensor.ones(128, 8).shard(mesh).realize()
    with pytest.raises(DeviceError, match="different programs") as error:
        simulate(lambda: x.shard(mesh[64:]) + 1)
    assert "128 devices from null and 64 devices from null:64" in str(error.value)
    one = Tensor.ones(128, 8, device="null:1").realize()
    with pytest.raises(DeviceError, match="different programs"):
        simulate(lambda: x + one)


# ---- devices that run different programs -----------------------------------------------------------------------------
TIMED = PLAIN._replace(products={dtypes.float32: 1e9}, memory_rate=1e99, inside=Link(0.0, 0.0, 1e99))


@pytest.mark.sweep
@pytest.mark.parametrize("micro_batches", [1, 2, 4, 8])
def test_a_pipeline_overlaps_its_micro_batches(micro_batches: int) -> None:
    n, rows = 256, 512
    stages = [nn.Linear(n, n, bias=False) for _ in range(2)]
    model = nn.parallel.Pipeline(stages, ("null:1", "null:2"), micro_batches)
    x = Tensor.ones(rows, n, device="null:1").realize()
    found = simulate(lambda: model(x), hardware=TIMED)
    one = 2 * rows * n * n / 1e9  # seconds of a stage for the whole batch
    assert found.seconds == pytest.approx(one * (1 + 1 / micro_batches), rel=0.05)
    assert found.n_devices == 2 and found.n_messages == micro_batches


def test_a_pipeline_trains_and_its_bytes_are_those_of_the_activations() -> None:
    n, rows = 64, 128
    model = nn.parallel.Pipeline([nn.Linear(n, n), nn.Linear(n, n)], ("null:1", "null:2"), 2)
    optimizer = nn.optim.SGD(model.parameters(), lr=0.1)
    x = Tensor.ones(rows, n, device="null:1").realize()

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        loss.realize(*optimizer.schedule_step())
        return loss

    found = simulate(step, hardware=TIMED)
    assert found.n_devices == 2 and found.sent["copy"] == rows * n * 4  # activations there, their gradients back
    assert found.memory.arguments >= (n + 1) * n * 4


def test_a_mesh_and_one_device_of_another_are_planned_as_a_whole() -> None:
    mesh = mesh_of(4)
    x = Tensor.ones(8, 8).shard(mesh).realize()
    found = simulate(lambda: x.to("null:7") * 2)
    assert found.n_devices == 5 and found.n_messages == 4
