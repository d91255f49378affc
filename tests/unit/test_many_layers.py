"""Models of thousands of small layers: equal layers are planned and compiled once, in memory linear in the model."""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

from monolect import Context, Tensor, function, jit, nn
from monolect.ir.uop import UOp, toposort
from monolect.runtime.realize.execute import plans
from monolect.runtime.realize.programs import loaded
from monolect.schedule import callify
from monolect.schedule.callify import independent
from monolect.tensor import random
from tests.strategies import often

IN_CODE = 4  # as few draws as tell what comes after them


@pytest.fixture(autouse=True)
def few_draws_in_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "MAX_CONSTANT_DRAWS", IN_CODE)


def weights(n: int) -> list[Tensor]:
    return [t for layer in [nn.Linear(4, 4) for _ in range(n)] for t in (layer.weight, layer.bias)]


def test_equal_layers_beyond_some_are_the_same_kernels() -> None:
    plans.clear()
    n = 300
    ts = weights(n)
    ts[0].realize(*ts[1:])
    launches = [item for plan in {id(p): p for p in plans.values()}.values() for item in plan.items]
    programs = {id(loaded[item.src[0]]) for item in launches}
    assert len(programs) <= IN_CODE + 4, "two kernels of the state, and one for each shape"
    assert len(launches) < 2 * n, "most of the layers run plans of others"


@pytest.mark.parametrize("one_batch", [False, True])
def test_numbers_are_those_of_draws_one_by_one(one_batch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    Tensor.manual_seed(3)
    wanted = [t.realize().numpy() for _ in range(20) for t in weights(1)]
    Tensor.manual_seed(3)
    got = weights(20)
    if not one_batch:
        monkeypatch.setattr(callify, "MAX_BATCH", 10)
    got[0].realize(*got[1:])
    assert all(np.array_equal(g.numpy(), w) for g, w in zip(got, wanted, strict=True))
    after = [Tensor.rand(5).numpy() for _ in range(2)]
    assert not np.array_equal(*after) and not any(np.isin(a, [w.ravel()[:1] for w in wanted]).any() for a in after)


@pytest.mark.parametrize("wrap", [jit, function], ids=["jit", "function"])
def test_a_step_that_draws_often_draws_what_the_plain_one_does(wrap) -> None:
    def step(x: Tensor) -> Tensor:
        return Tensor.stack([x + Tensor.rand(3) for _ in range(IN_CODE + 6)])

    x = Tensor.zeros(3).realize()
    Tensor.manual_seed(5)
    wanted = [step(x).numpy() for _ in range(4)]
    Tensor.manual_seed(5)
    wrapped = wrap(step)
    got = [wrapped(x).numpy() for _ in range(4)]
    for g, w in zip(got, wanted, strict=True):
        assert np.array_equal(g, w)
    assert len(np.unique(np.stack(got))) == np.stack(got).size


def test_a_plan_keeps_its_kernels_and_not_the_graph_it_was_made_from() -> None:
    x = Tensor.ones(4).contiguous().realize()

    def graph(n: int) -> Tensor:
        t = x
        for k in range(n):
            t = (t * (k + 1.5)).sum(0, keepdim=True).expand(4) + t[:1].pad((0, 3))
        return t.contiguous()

    def pads() -> set[UOp]:
        gc.collect()
        return {u for u in gc.get_objects() if isinstance(u, UOp) and u.op == "PAD"}

    before = pads()
    with Context(COMPILE_CACHE=0):  # a plan whose schedule is on disk is made from that
        graph(40).realize()
    assert pads() <= before


def random_batch(rng: np.random.Generator) -> tuple[list[Tensor], list[np.ndarray]]:
    """Values that share given tensors, views of those, and now and then what is computed."""
    given = [Tensor(rng.normal(size=(3, 4))).realize() for _ in range(4)]
    made = [(t, t.numpy()) for t in given]
    for _ in range(rng.integers(5, 60)):
        (a, x), (b, y) = (made[int(rng.integers(4 if rng.random() < 0.7 else len(made)))] for _ in range(2))
        kind = int(rng.integers(4))
        if kind == 0:
            new = a + b, x + y
        elif kind == 1:
            new = a.flip(0) * 2.0, x[::-1] * 2.0
        elif kind == 2:
            new = a - b.sum(), x - y.sum()
        else:
            new = a * Tensor.arange(4), x * np.arange(4)
        made.append(new)
    chosen = [made[k] for k in rng.permutation(range(4, len(made)))]
    return [t for t, _ in chosen], [v for _, v in chosen]


def computed(roots: list) -> set:
    moved = ("RESHAPE", "EXPAND", "PERMUTE", "FLIP", "SHRINK", "PAD", "CONST", "IOTA", "BUFFER")
    return {u for u in toposort(*roots) if u.dtype.kind != "x" and u.op not in moved}


@pytest.mark.parametrize("seed", range(6))
def test_batches_share_no_computed_value(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callify, "MAX_BATCH", 1)
    monkeypatch.setattr(callify, "SUB_BATCH", 3)
    ts, values = random_batch(np.random.default_rng(seed))
    roots = list(dict.fromkeys(t._uop for t in ts))
    batches = independent(roots)
    assert sorted(map(id, roots)) == sorted(id(r) for b in batches for r in b)
    sets = [computed(b) for b in batches]
    assert sum(map(len, sets)) == len(set().union(*sets))
    if seed < 2:
        ts[0].realize(*ts[1:])
        for t, v in zip(ts, values, strict=True):
            np.testing.assert_allclose(t.numpy(), v, rtol=1e-12, atol=1e-12)


def test_memory_of_the_process() -> None:
    """16 kB of graph a layer, and no more to compute it: 10,000 layers took 2 GB."""
    program = """
from monolect import nn
from monolect.tensor import random
random.MAX_CONSTANT_DRAWS = 4
def rss(): return int(open("/proc/self/statm").read().split()[1]) * 4096
nn.Sequential(*[nn.Linear(4, 4) for _ in range(100)]).realize()
before = rss()
kept = nn.Sequential(*[nn.Linear(4, 4) for _ in range(1000)]).realize()
print(rss() - before)
"""
    assert int(printed(program)) < 1000 * 45_000


def printed(program: str) -> str:
    """What a program prints in a process of its own, which finds nothing compiled."""
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("no /proc: memory of the process cannot be read here")
    environment = {**os.environ, "COMPILE_CACHE": "0"}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_thousands_of_layers() -> None:
    """10,000 in `make test-all`: time and memory are linear in their number."""
    n, fewer = often(1_500, 10_000), often(300, 1_000)
    program = f"""
import time
from monolect import nn
nn.Sequential(*[nn.Linear(4, 4) for _ in range(100)]).realize()
start = time.process_time()
nn.Sequential(*[nn.Linear(4, 4) for _ in range({fewer})]).realize()
between = time.process_time()
kept = nn.Sequential(*[nn.Linear(4, 4) for _ in range({n})]).realize()
lines = dict(line.split(":") for line in open("/proc/self/status"))
print(int(lines["VmHWM"].split()[0]) * 1024, (time.process_time() - between) / (between - start))
"""
    peak_bytes, ratio = map(float, printed(program).split())
    assert peak_bytes < 120e6 + n * 18_000
    assert ratio < 2.5 * n / fewer, "the time is linear in the number of layers"


def test_what_compiling_a_model_leaves_in_memory() -> None:
    """67 MB were the pages of LLVM's library."""
    program = """
import gc
from monolect import Tensor, jit, nn
from monolect.backend.common.host import memory
def rss(): return int(open("/proc/self/statm").read().split()[1]) * 4096
before = rss()
table, attend, norm, head = nn.Embedding(500, 32), nn.MultiheadAttention(32, 4), nn.LayerNorm(32), nn.Linear(32, 500)
step = jit(lambda i: head(norm((x := table(i)) + attend(x, x, x)[0])).softmax(-1))
for _ in range(3):
    step(Tensor.ones(1, 32, dtype="int64")).realize()
gc.collect()
memory.trim()
print(rss() - before - memory.stats().mapped_bytes)
"""
    assert int(printed(program)) < 45e6
