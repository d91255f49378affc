"""VERIFY=2 compares what ran: planted faults of all parts are caught, by values alone; what is right passes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, Variable, jit, nn, pipeline
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.base.errors import VerifyError
from monolect.command.rewrites import memory
from monolect.ir.bounds import ranges
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.normal import less
from monolect.ir.uop import UOp, build, const, idx, node, rebuild, substitute, toposort
from monolect.optimize import merge
from monolect.optimize.blocks import packed as pack
from monolect.optimize.merge import _DIVISIONS, _is_loop, is_scratch
from monolect.runtime.realize.execute import plans
from monolect.runtime.realize.programs import loaded
from monolect.schedule import kernels, partition
from monolect.schedule.scratch import scratch_value
from tests.unit import planted
from tests.unit.planted import Rule, forget_programs


def t(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).realize()


@pytest.fixture(autouse=True)
def values_alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Passes are not validated one by one, and nothing is known from another test."""
    monkeypatch.setattr(pipeline, "validate", lambda *args: "")
    plans.clear()
    with Context(VERIFY=2, CHECK_BOUNDS=0, COMPILE_CACHE=0):
        yield
    plans.clear()


@pytest.fixture
def sound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but values is looked at."""
    monkeypatch.setattr(pipeline, "verify", lambda *args: None)


def plant(monkeypatch: pytest.MonkeyPatch, name: str, rule: Rule) -> None:
    """Pass `name` makes a mistake from now on, and programs that are known are compiled again."""
    planted.plant(monkeypatch, name, rule)
    forget_programs(monkeypatch)


# ---- planted faults --------------------------------------------------------------------------------------------------
def _together_of_any(block: Any, d: Any, p: Any) -> bool:
    return not block.gated or d.weights == {r: w * p.size for r, w in p.weights.items()}


def _bound_of_all_words(block: Any, values: dict[UOp, UOp]) -> UOp:
    gate = substitute(block.gate, values)
    words = [r for d in block.dims if block._are_words(d, block.dims) for r in d.weights]
    for r, n in (block._bounds() | {r: block.plan.size(r) for r in words}).items():
        if r in values:
            gate = build("AND", gate, less(values[r], n))
    return gate


@pytest.mark.skipif(not Device["cpu"].target.units, reason="this processor has no matrix units")
def test_words_of_two_axes_copied_as_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    a, w = t(32, 64, 2).bfloat16().realize(), t(16, 2, 64, seed=1).bfloat16().realize()
    monkeypatch.setattr(pack.PackedBlock, "_can_gate_merged", _together_of_any)
    monkeypatch.setattr(pack.PackedBlock, "_gate", _bound_of_all_words)
    forget_programs(monkeypatch)
    with pytest.raises(VerifyError, match="stored a value that it does not compute before any pass"):
        Tensor.einsum("lck,okc->ol", a.float(), w.float()).realize()


def test_a_packed_block_read_at_another_stride(monkeypatch: pytest.MonkeyPatch) -> None:
    right = pack.PackedBlock._laid_out

    def swapped(block: Any, dims: list) -> list:
        dims = right(block, dims)
        return [d._replace(step=d.step // 2 or d.step) if d is dims[-1] else d for d in dims]

    a, b = t(256, 300), t(300, 256, seed=1)
    (a @ b).realize()
    monkeypatch.setattr(pack.PackedBlock, "_laid_out", swapped)
    forget_programs(monkeypatch)
    with pytest.raises(VerifyError, match="stored a value"):
        (a @ b).realize()


def test_two_constant_positions_of_a_stage_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_ranges_alone(part: Any, u: UOp, demands: list) -> Any:
        if demands:
            first = demands[0].index
            alike = [tuple(i if ranges(i) else j for i, j in zip(d.index, first, strict=True)) for d in demands]
            demands = [d._replace(index=i) for d, i in zip(demands, alike, strict=True)]
        return scratch_value(part, u, demands)

    def program() -> Tensor:
        p = (t(2, 32, 40) @ t(2, 32, 40, seed=1).transpose(-1, -2)).softmax(-1)
        return (p[0] - p[1] * 0.3) @ t(32, 40, seed=2)

    monkeypatch.setattr(partition, "scratch_value", by_ranges_alone)
    with pytest.raises(VerifyError, match="a value in memory is not that of the tensor graph"):
        program().realize()


def outside_of_loops(u: UOp) -> UOp | None:
    """An addition in loops that it does not mention, once."""
    if u.op != "END" or u.src[0].op != "ATOMICADD":
        return None
    place, *rest = u.src[0].src
    bare = node("ATOMICADD", (node("INDEX", (memory_of(place), *place.src[1:])), *rest), u.src[0].arg)
    own = [r for r in u.src[1:] if r in ranges(bare)]
    return node("END", (bare, *own)) if own else bare


@pytest.mark.usefixtures("sound")
@pytest.mark.parametrize("where", ["the scheduler", "a pass"])
def test_an_addition_outside_of_its_loops(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "a pass":
        plant(monkeypatch, "simplify", outside_of_loops)
    else:
        right = kernels.KernelBuilder.store
        monkeypatch.setattr(kernels.KernelBuilder, "store", lambda b, s: outside_of_loops(e := right(b, s)) or e)
    found = "stored a value" if where == "a pass" else "a value in memory"
    with pytest.raises(VerifyError, match=found) as e:
        Tensor.zeros(9).scatter_add(0, Tensor.full((6,), 4, dtype=dtypes.int64), Tensor.full((6,), 2.0)).realize()
    assert e.value.expected == 12.0


def _divided(sink: UOp, lanes: int) -> UOp:
    """As it was when loops were divided that carry sums."""
    order = toposort(sink)
    inner = order if any(is_scratch(u) for u in order) else toposort(*(u for u in order if u.op == "REDUCE"))
    found = {u.src[0]: u.src[1] for u in inner if u.op in _DIVISIONS and u.src[0].op == "RANGE"}
    whole = {r: n.value for r, n in found.items() if r.src[0].op == n.op == "CONST" and r.src[0].value % n.value == 0}
    whole = {r: n for r, n in whole.items() if _is_loop(r) or (r.arg[1] == "REDUCE" and lanes <= n)}
    if not whole:
        return sink
    new: dict[UOp, UOp] = {}
    parts: dict[UOp, tuple[UOp, ...]] = {}
    for u in order:
        if u.op == "RANGE":
            (k, kind), n = u.arg, whole.get(u, 1)
            parts[u] = (node("RANGE", (u.src[0] if n == 1 else idx(u.src[0].value // n),), (2 * k, kind)),)
            parts[u] += (node("RANGE", (idx(n),), (2 * k + 1, kind)),) if n > 1 else ()
            new[u] = parts[u][0] if n == 1 else parts[u][0] * n + parts[u][1]
        elif u.op == "END" or (u.op == "REDUCE" and len(u.src) > 1):
            new[u] = node(u.op, (new[u.src[0]], *(p for r in u.src[1:] for p in parts.get(r, (new[r],)))), u.arg)
        else:
            new[u] = rebuild(u, tuple(new[s] for s in u.src))
    return new[sink]


@pytest.mark.usefixtures("sound")
def test_a_loop_that_carries_sums_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "_divided", _divided)
    forget_programs(monkeypatch)
    with pytest.raises(VerifyError, match="stored a value"):
        (t(200, 2) @ t(2, 3, seed=1)).reshape(-1).cumsum(0).realize()


def test_a_comparison_that_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared with the least of all is not quite what that was taken of: the index of none is n."""

    def contracted(u: UOp) -> UOp | None:
        if u.op not in ("CMPNE", "CMPEQ") or not u.src[0].dtype.is_float:
            return None
        return node(u.op, (build("MUL", u.src[0], const(1 + 2.0**-22, u.src[0].dtype)), u.src[1]))

    x, c = t(7, 2), t(2, 2, seed=1)
    assert ((x.unsqueeze(1) - c).square().sum(2)).argmin(1).numpy().max() < 2
    plant(monkeypatch, "merge_ranges", contracted)
    with pytest.raises(VerifyError) as e:
        ((x.unsqueeze(1) - c).square().sum(2)).argmin(1).realize()
    assert e.value.expected < 2 and e.value.found != e.value.expected


def test_memory_that_is_taken_again_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the memory plan, which each kernel by itself does not show."""
    right = memory.assign_offsets
    monkeypatch.setattr(
        memory,
        "assign_offsets",
        lambda lives, align=64: right({b: x._replace(last=x.first) for b, x in lives.items()}, align),
    )
    with pytest.raises(VerifyError, match="a value in memory is not that of the tensor graph"):
        a = (t(64, 64) @ t(64, 64, seed=1)).contiguous()
        b = (
            t(64, 64, seed=2) @ t(64, 64, seed=4)
        ).contiguous()  # takes the memory of a, which its kernel does not read
        c = (b.sum(1, keepdim=True).contiguous() * t(64, 64, seed=5)).contiguous()
        (c.sum(0) + a.sum(0) + b.sum(0)).realize()


def one_further(op: str) -> Rule:
    def rule(u: UOp) -> UOp | None:
        return build("ADD", u, const(1, u.dtype)) if u.op == op and u.dtype is dtypes.float32 else None

    return rule


def test_an_error_tells_kernel_line_element_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "select", one_further("MUL"))
    with pytest.raises(VerifyError) as e:
        (t(40, 50) * 3.0).realize()
    text = str(e.value)
    assert "kernel map_" in text and "argument 0 (float32), element (0,) (samples of seed 0)" in text
    assert f"\n  at {__file__}:{test_an_error_tells_kernel_line_element_and_values.__code__.co_firstlineno + 3}" in text
    assert np.isclose(e.value.found, e.value.expected + 1)


def test_a_cached_program_is_compared_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A schedule and code from disk, of which the code is another kernel's; then the same plan again, from memory."""
    x = t(33, 7)
    with Context(VERIFY=0, COMPILE_CACHE=1, MONOLECT_CACHE=str(tmp_path)):
        (x * 5.0).realize()
        plans.clear()
        (x * 7.0).realize()
        tampered = loaded[next(iter(plans.values())).items[0].src[0]]
        plans.clear()
        monkeypatch.setattr(type(Device["cpu"]), "lookup", lambda self, key: tampered)
        (x * 5.0).realize()
    for _ in range(2):
        with pytest.raises(VerifyError, match="stored a value"):
            (x * 5.0).realize()


def test_code_from_a_warm_cache_is_compared(tmp_path: Any) -> None:
    """The entry on disk of one kernel names the code of another; a later process runs it and compares nothing else."""
    device, x = Device["cpu"], t(31, 7)
    with Context(VERIFY=0, CHECK_BOUNDS=0, COMPILE_CACHE=1, MONOLECT_CACHE=str(tmp_path)):
        keys = []
        for factor in (5.25, 7.25):
            before = {*device.programs}
            (x * factor).realize()
            keys += {*device.programs} - before
        assert len(keys) == 2
        entries = [f"kernel/{device.target.key}/{key}" for key in keys]
        other = device.cache.get(entries[1])
        assert other is not None
        device.cache.put(entries[0], other)
        plans.clear()
        for key in keys:
            del device.programs[key]
        with Context(VERIFY=3):
            np.testing.assert_array_equal((x * 7.25).numpy(), x.numpy() * np.float32(7.25))
            with pytest.raises(VerifyError, match="stored a value"):
                (x * 5.25).realize()
        plans.clear()
        for key in keys:
            device.programs.pop(key, None)


# ---- replays ---------------------------------------------------------------------------------------------------------
def test_replays_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "select", one_further("MUL"))

    @jit
    def step(x: Tensor) -> Tensor:
        return (x * 3.0).relu()

    x = t(40, 50)
    with Context(VERIFY=0):
        for _ in range(4):
            step(x)
    with pytest.raises(VerifyError, match="stored a value"):
        step(x)
    with Context(VERIFY=0):
        step(x)


def test_what_is_computed_once_for_all_replays_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    w, x = t(64, 64, seed=1), t(8, 64)

    @jit
    def step(x: Tensor) -> Tensor:
        return x @ (w * 3.0).contiguous()

    for _ in range(3):
        np.testing.assert_allclose(step(x).numpy(), x.numpy() @ (w.numpy() * 3), rtol=1e-4, atol=1e-4)
    plant(monkeypatch, "select", one_further("MUL"))
    with Context(VERIFY=0):
        again = jit(lambda x: x @ (w * 3.0).contiguous())
        again(x)
        again(x)
    (captured,) = again.captures.values()
    captured.capture.prologue.has_run = False
    with pytest.raises(VerifyError, match="stored a value"):
        again(x)


def train(step: Any, *args: Tensor, n: int = 4) -> list[float]:
    return [float(step(*args).item()) for _ in range(n)]


def test_a_training_step_passes() -> None:
    """Convolutions in frames, statistics, gradients, state in place: eager, captured, replayed."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))
    optimizer = nn.optim.Adam(model.parameters(), lr=1e-3)
    x, y = t(4, 3, 8, 8), Tensor(np.arange(4) % 10)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        with Context(TRAINING=1):
            loss = model(x).cross_entropy(y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

    assert np.isfinite(train(step, x, y)).all()


# ---- what is right ---------------------------------------------------------------------------------------------------
def scattered() -> Tensor:
    x = Tensor.zeros(50)
    x[Tensor(np.array([3, 4, 3, 49]))] = Tensor([1.0, 2.0, 3.0, 4.0])
    return x


def assigned() -> Tensor:
    x = t(40, 6)
    x[3:9] = x[:6] * 2
    x[:, 2] = 0
    return x


def symbolic() -> Tensor:
    n = Variable("n", 1, 20)
    with n.bind(13):
        return (t(20, 6)[:n] @ t(6, 5)).softmax(0).sum(1).realize()


def best_paths() -> Tensor:
    """One kernel stores a maximum and its index; the scores, which it rounds itself, are in local memory alone."""
    rng = np.random.default_rng(4)
    start, emitted, moved = (Tensor(rng.standard_normal(s)).realize() for s in ((40,), (3, 2, 40), (40, 40)))
    scores = (start.log_softmax(0) + emitted[:, 0]).unsqueeze(2) + moved.log_softmax(1)
    last = (scores.amax(1) + emitted[:, 1]).argmax(1)
    return Tensor.stack(scores.argmax(1).gather(1, last.unsqueeze(1)).squeeze(1), last, dim=1)


RIGHT: dict[str, Callable[[], Tensor]] = {
    "product": lambda: t(70, 130) @ t(130, 90, seed=1),
    "padded convolution": lambda: t(2, 3, 17, 17).conv2d(t(5, 3, 3, 3), padding=1).relu().conv2d(t(4, 5, 3, 3)),
    "attention": lambda: Tensor.scaled_dot_product_attention(*[t(2, 2, 40, 8, seed=k) for k in range(3)]),
    "long sum": lambda: t(3, 70000).sum(1),
    "variance": lambda: (t(5000) * 1e-3 + 100).var(),
    "scan": lambda: t(7, 300).cumsum(1) + t(7, 300).cummax(1).values,
    "largest of equal ones": lambda: (t(30, 40) * 4).round().argmax(1),
    "index of a stored maximum": best_paths,
    "random numbers": lambda: Tensor.rand(1000),
    "gather": lambda: t(40, 6)[Tensor(np.arange(90) % 41 - 1)],
    "scatter, twice to one place": scattered,
    "many additions": lambda: Tensor.zeros(50).index_add(0, Tensor(np.arange(40000) * 7 % 50), t(40000)),
    "assigned in parts": assigned,
    "symbolic sizes": symbolic,
    "halves": lambda: (t(40, 64).half() @ t(64, 30).half()).softmax(1),
    "bytes of a wider type": lambda: t(20, 4).bitcast(dtypes.int32) + 1,
    "cosines": lambda: t(1000).cos() + (t(1000) * 100).sin(),
    "of nothing": lambda: t(0, 4).sum(0),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("device", ["cpu", "python"])
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes_and_is_compared(name: str, device: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEVICE=device, TRACE="passes"):
        RIGHT[name]().realize()
    assert "not compared" not in capsys.readouterr().err


def test_what_is_not_compared_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with Context(TRACE="passes"):
        t(6, 100).sort(1)[0].realize()
    assert "not compared: a store of another form" in capsys.readouterr().err


# ---- random steps ----------------------------------------------------------------------------------------------------
STEPS: Any = [
    lambda x, w: x @ w, lambda x, w: (x @ w).softmax(-1), lambda x, w: x - x.mean(0), lambda x, w: x.cumsum(0) * w[0],
    lambda x, w: (x * w[1]).tanh() + x, lambda x, w: x[:, w[2].argsort()],
    lambda x, w: x / (1 + x.square().sum(1, keepdim=True)),
    lambda x, w: (x > x.amax(1, keepdim=True) * 0.5).where(x, w[3]), lambda x, w: x.flip(0).sort(1)[0],
]  # fmt: skip


@settings(max_examples=max(4, settings().max_examples // 12), suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=4), st.integers(2, 70), st.integers(5, 40))
def test_gradients_and_replays_are_found_right(steps: list[int], rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    w = Tensor(rng.standard_normal((columns, columns)).astype(np.float32), requires_grad=True)

    @jit
    def step(x: Tensor) -> Tensor:
        for s in steps:
            x = STEPS[s](x, w)
        (x @ w).square().sum().backward()
        gradient, w.grad = w.grad, None
        assert gradient is not None
        return gradient

    for _ in range(3):
        step(Tensor(rng.standard_normal((rows, columns)).astype(np.float32))).realize()


def test_a_value_that_is_assigned_in_part_is_complete_after_that() -> None:
    """The item that assigns may name a part of the memory."""
    x = t(2, 3, 3).reshape(18) + 0.0
    y = x.contiguous()
    y[16] = x[0]
    assert y.tolist()[16] == x.tolist()[0]
