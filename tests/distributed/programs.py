"""The programs that `test_mpi.py` runs on several processes: `mpiexec -n 2 python programs.py NAME`."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from monolect import Context, Device, DistributedError, Tensor, distributed, jit, nn
from monolect.backend.mpi import messages
from monolect.backend.mpi import shared as memory
from monolect.backend.mpi import transport as transport_module
from monolect.backend.mpi.routes import CHUNK_BYTES, Route, routes
from monolect.backend.mpi.transport import transport
from monolect.cli.explain import explain
from monolect.command.forms import (
    base_of,
    buffer_bytes,
    calls_in,
    is_allreduce,
    is_arena,
    items_of,
    operands_of,
    program_of,
)
from monolect.command.timeline import Span
from monolect.interop.checkpoint import load_checkpoint, save_checkpoint
from monolect.ir.text import show
from monolect.ir.uop import UOp
from monolect.runtime import profile
from monolect.runtime.realize import host_commands
from monolect.runtime.realize.host_commands import InFlight

Place = Callable[[Tensor], Tensor]


def values() -> None:
    """Tensors that are divided, whole, and on one process, and what is computed from them."""
    d = distributed.devices()
    n, a = len(d), np.arange(30.0).reshape(5, 6)
    for axis in (0, 1):
        x = Tensor(a).shard(d, axis)
        assert x.device == d and x.shard_axis == axis
        np.testing.assert_array_equal(x.numpy(), a)
        np.testing.assert_array_equal((x * 2 + 1).numpy(), a * 2 + 1)
        np.testing.assert_array_equal((x.T @ x).numpy(), a.T @ a)
        np.testing.assert_array_equal(x.sum(axis).numpy(), a.sum(axis))
        np.testing.assert_array_equal(x.shard(d, 1 - axis).numpy(), a)
        np.testing.assert_array_equal(x.to("cpu").numpy(), a)
        np.testing.assert_array_equal(x[1:3].numpy(), a[1:3])
        assert x.sum().item() == a.sum() and x.amax().item() == 29.0
    whole = Tensor(a).replicate(d)
    np.testing.assert_array_equal((whole + Tensor(a).shard(d)).numpy(), 2 * a)
    last = Tensor(a, device=d[-1])
    np.testing.assert_array_equal((last + 1).to("cpu").numpy(), a + 1)
    numbers = Tensor([1.0, 2.0], device=d[-1]) * 2
    assert numbers.to("cpu").tolist() == [2.0, 4.0]
    if distributed.rank() < n - 1:
        for read in (numbers.numpy, numbers.tolist, numbers.sum().item):
            try:
                read()
            except DistributedError as error:
                assert "another process" in str(error)
            else:
                raise AssertionError("a value of another process was read")
    state = Tensor(a).shard(d, 1).realize()
    before = state * 1
    state.assign(state * 3)
    np.testing.assert_array_equal(state.numpy(), a * 3)
    np.testing.assert_array_equal(before.numpy(), a)
    weight = Tensor(a).shard(d)
    weight.requires_grad = True
    (weight * weight).sum().backward()
    assert weight.grad is not None and weight.grad.shard_axis == 0
    np.testing.assert_array_equal(weight.grad.numpy(), 2 * a)
    assert n == distributed.size() and 0 <= distributed.rank() < n


def collectives() -> None:
    """The collectives of the specification."""
    d = distributed.devices()
    n = len(d)
    a = np.random.default_rng(0).normal(size=(n, 6))
    one = Tensor(a[0])
    np.testing.assert_array_equal(one.reshape(1, 6).expand(n, 6).copy(d).replicated(0).numpy(), a[0])  # broadcast
    parts = Tensor(a).copy(d)  # scatter
    np.testing.assert_array_equal(parts.numpy(), a)
    np.testing.assert_array_equal(parts.copy("cpu").numpy(), a)  # gather
    np.testing.assert_allclose(parts.sum(0).copy("cpu").numpy(), a.sum(0), rtol=1e-15)  # reduce
    np.testing.assert_array_equal(parts.replicate(d).numpy(), a)  # allgather
    np.testing.assert_allclose(parts.sum(0).numpy(), a.sum(0), rtol=1e-15)  # allreduce
    np.testing.assert_allclose(parts.sum(0).shard(d).numpy(), a.sum(0), rtol=1e-15)  # reduce_scatter
    large = np.random.default_rng(1).normal(
        size=(n, 3, 10_001)
    )  # each process adds up a part of it, the last a smaller
    for op, wanted in (("sum", large.sum(0)), ("amax", large.max(0))):
        total = getattr(Tensor(large).shard(d), op)(0)
        np.testing.assert_allclose(total.numpy(), wanted, rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(
            jit(lambda t, op=op: getattr(t, op)(0))(Tensor(large).shard(d)).numpy(), wanted, rtol=1e-14
        )


OPS = (("float32", "sum"), ("float64", "sum"), ("float16", "amax"), ("bfloat16", "sum"), ("int8", "sum"),
       ("int64", "prod"), ("uint8", "amax"), ("bool", "any"), ("float32", "amax"))  # fmt: skip


def sums() -> None:
    """Sums over all and over some processes, of any size, have the bits of one process on all ranks."""
    d, link = distributed.devices(), transport()
    rng = np.random.default_rng(0)
    shared = link.shared
    assert shared is not None and link.path(range(len(d)), 8) == "in shared memory"
    slot_bytes = shared.slot_bytes
    for k in range(60):
        dtype, op = OPS[k % len(OPS)] if k % 20 else OPS[0]
        is_large = k % 20 == 0  # of float32, some parts without masks
        shared.slot_bytes = slot_bytes if is_large else int(rng.choice([slot_bytes, 4096, 3 * 4096]))  # many chunks
        link.shared = None if k % 3 == 2 else shared  # without: by messages
        transport_module.routes = lambda *_, k=k: [Route([*messages.ROUTES][k % 9 // 3], 0.0)]
        messages.CHUNK_BYTES = 1 << 18 if is_large else 512
        ranks = sorted(rng.choice(len(d), rng.integers(2, len(d) + 1), replace=False).tolist())
        size = 1_500_001 if is_large else int(rng.choice([1, 7, 64, 1000, 8192, 10_001, 70_003]))
        a = Tensor(rng.integers(-9, 9, (len(ranks), size)) / 3).cast(dtype).realize()
        some, same = tuple(d[r] for r in ranks), tuple(f"cpu:{r}" if r else "cpu" for r in ranks)

        def total(t: Tensor, op: str = op) -> Tensor:
            return getattr(t, op)(0)

        f = jit(total)
        alone = total(a.shard(same)).to("cpu").realize()
        wanted = alone.uop.storage.view(np.uint8)[: alone.nbytes]  # memory of a size that varies may be larger
        x = a.shard(some).realize()
        for found in (total(x), f(x), f(x), f(x)):
            found.realize()
            if link.rank in ranks:
                (mine,) = (p for p in found.uop.storage.parts if p.arg.device == d[link.rank])
                np.testing.assert_array_equal(mine.storage.view(np.uint8)[: found.nbytes], wanted)
    link.shared, shared.slot_bytes = shared, slot_bytes
    transport_module.routes, messages.CHUNK_BYTES = routes, CHUNK_BYTES


def in_place() -> None:
    """Sums of what steps make are combined in place, with the bits of sums by other ways; memory is used again."""
    d, link = distributed.devices(), transport()
    shared, n_calls, n_ranks = link.shared, [], len(d)
    assert shared is not None
    heap, combined = shared.heap, shared._in_place
    shared._in_place = lambda *args: (n_calls.append(1), combined(*args))  # type: ignore[func-returns-value, method-assign]

    def summed(t: Tensor) -> tuple[Tensor, Tensor]:
        return (t * 3).sum(0) * 2, (t / 3).amax(0) + 1

    rng = np.random.default_rng(0)
    wanted: list[np.ndarray] = []
    steps = []  # several steps stay alive, each with memory of its own
    for size in (8193, 10_001, 70_003, 1_500_001):
        x = Tensor(rng.normal(size=(n_ranks, size)).astype(np.float32)).shard(d).realize()
        f = jit(summed)
        for way in ("in place", "not all in place", "in chunks", "by messages"):
            offset_of = heap.offset_of
            if way == "in chunks" or (way == "not all in place" and link.rank == 1):
                heap.offset_of = lambda data: -1  # type: ignore[method-assign]
            link.shared = None if way == "by messages" else shared
            before = len(n_calls)
            found = [t.numpy() for g in (f, f, f, summed) for t in g(x)]
            assert len(n_calls) - before == (8 if way == "in place" else 0), (way, n_calls)
            heap.offset_of, link.shared = offset_of, shared  # type: ignore[method-assign]
            if way == "in place":
                wanted = found[:2]
            for k, t in enumerate(found):
                np.testing.assert_array_equal(t, wanted[k % 2])
        steps.append((f, x, wanted))
    end = heap.end
    for k in range(80):
        f, x, wanted = steps[k % 4]
        np.testing.assert_array_equal((f if k % 8 < 4 else summed)(x)[0].numpy(), wanted[0])
    assert heap.end == end and heap.cached_bytes
    cached = heap.cached_bytes
    steps.clear()
    del f, x
    assert heap.cached_bytes > cached, "a step that is gone returns its memory"
    heap.alloc = lambda n_bytes: None  # type: ignore[method-assign]
    before = len(n_calls)
    x = Tensor(rng.normal(size=(n_ranks, 70_001)).astype(np.float32)).shard(d).realize()
    assert summed(x)[0].numpy().tobytes() == jit(summed)(x)[0].numpy().tobytes() and len(n_calls) == before


def seen() -> None:
    """DEBUG=2 has a line for each copy and each sum over processes, with how its bytes move."""
    d, link = distributed.devices(), transport()
    shared = link.shared
    for k, path in enumerate(("in shared memory", "by messages: exchange ")):
        link.shared = shared if k == 0 else None
        text = io.StringIO()
        with contextlib.redirect_stderr(text), Context(DEBUG=2, NO_COLOR=1):
            Tensor(np.ones((len(d), 3 + k), np.float32)).shard(d).sum(0).numpy()
        lines = text.getvalue().splitlines()
        assert [path in line for line in lines if " allreduce_add_" in line] == [True], lines
        assert any(" copy " in line and f" to {d[distributed.rank()]} " in line for line in lines), lines
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as page:
        program = Path(folder, "program.py")
        program.write_text(
            "import numpy as np\nfrom monolect import Tensor, distributed\n"
            f"Tensor(np.ones(({len(d)}, 5), np.float32)).shard(distributed.devices()).sum(0).numpy()\n"
        )
        explain(str(program), (), brief=True)
    text = page.getvalue()
    values = rf"^adds   {len(d)} values f32\[1, 5\] by ADD, in the order of the ranks$"
    assert re.search(values + r"\nmoves  by messages: exchange \d+ us, ", text, re.M), text
    assert re.search(rf"^moves  f32\[5\] to {d[distributed.rank()]}$", text, re.M), text


def room() -> None:
    """A host with little room shares less memory, one without room shares none."""
    d, link = distributed.devices(), transport()
    ranks = range(len(d))
    memory._room = lambda: 1 << 20
    small = memory.SharedMemory(link.comm, link.host)
    assert small.holds(ranks) and small.slot_bytes * 2 * (len(d) + 1) <= 1 << 20
    memory._room = lambda: 1 << 10
    assert not memory.SharedMemory(link.comm, link.host).holds(ranks)
    link.shared = small
    a = np.arange(len(d) * 100_003, dtype=np.float32).reshape(len(d), -1) % 5
    np.testing.assert_array_equal(Tensor(a).shard(d).sum(0).numpy(), a.sum(0))


def states() -> None:
    """Sums of states that the same batch or step writes, and sums that are read twice; rank 0 also computes alone."""
    d = distributed.devices()
    n = len(d)
    a = np.arange(n * 20_000.0, dtype=np.float32).reshape(n, 20_000) % 7
    x = Tensor(a).shard(d).realize()
    before = x.sum(0)
    x.assign(x * 3)
    after = x.sum(0)
    Tensor.realize(before, after)
    np.testing.assert_array_equal(before.numpy(), a.sum(0))
    np.testing.assert_array_equal(after.numpy(), 3 * a.sum(0))
    same = [x.sum(0), x.sum(0), x.sum(0, keepdim=True), x.sum(0).clone()]
    Tensor.realize(*same)
    for k, t in enumerate(same):
        t.assign(t + k)
    for k, t in enumerate(same):
        np.testing.assert_array_equal(t.numpy().reshape(-1), 3 * a.sum(0) + k)
    state = Tensor(np.zeros(20_000, np.float32)).replicate(d).realize()

    @jit
    def step(t: Tensor) -> Tensor:
        state.assign(state + t.sum(0))
        return state.sum()

    for k in range(1, 5):
        if distributed.rank() == 0:
            assert (Tensor([1, 2]) * k + 1).tolist() == [k + 1, 2 * k + 1]
        assert step(x).item() == 3 * k * a.sum()
    np.testing.assert_array_equal(state.numpy(), 12 * a.sum(0))


def training() -> None:
    """Losses and parameters of three ways to train, eager and captured, are those of one device."""
    d = distributed.devices()
    rng = np.random.default_rng(0)
    xs, ys = rng.normal(size=(5, 12, 5)), rng.integers(0, 3, (5, 12))

    def run(data: Place, parameter: Place, is_captured: bool) -> tuple[list[float], list[np.ndarray]]:
        Tensor.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
        for p in model.parameters():
            p.uop = parameter(p.double()).detach().realize().uop
        optimizer = nn.optim.Adam(model.parameters(), lr=0.05)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).dropout(0.2, training=True).cross_entropy(y)
            loss.backward()
            optimizer.step()
            return loss

        f = jit(step) if is_captured else step
        losses = [f(data(Tensor(xs[k % 5])), data(Tensor(ys[k % 5]))).item() for k in range(8)]
        return losses, [p.numpy() for p in model.parameters()]

    wanted, parameters = run(lambda t: t, lambda p: p, False)
    ways: list[tuple[Place, Place]] = [
        (lambda t: t.shard(d), lambda p: p.replicate(d)),
        (lambda t: t.shard(d), lambda p: p.shard(d)),
        (lambda t: t.replicate(d), lambda p: p.shard(d, p.ndim - 1)),
    ]
    for data, parameter in ways:
        for is_captured in (False, True):
            losses, found = run(data, parameter, is_captured)
            np.testing.assert_allclose(losses, wanted, rtol=1e-9)
            for p, q in zip(found, parameters, strict=True):
                np.testing.assert_allclose(p, q, rtol=1e-9, atol=1e-12)


def schedules() -> None:
    """Settings of an optimizer change, and its state is loaded, on all processes as on one device."""
    d = distributed.devices()

    def run(place: Callable[[nn.Module], None], to: Place) -> list[float]:
        Tensor.manual_seed(0)
        model: nn.Module = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
        place(model)
        losses, state = [], None
        for k in range(2):
            optimizer = nn.optim.Adam(model[0].parameters(), lr=0.1, amsgrad=True)
            optimizer.add_param_group({"params": [*model[1].parameters()], "lr": 0.2})
            schedule = nn.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=9)
            if state is not None:
                optimizer.load_state_dict(state)
                assert schedule.get_last_lr() != [g["lr"] for g in optimizer.param_groups]
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(to(Tensor.ones(4, 4))).square().mean().to("cpu")
                losses.append(loss.backward().item())
                optimizer.step()
                schedule.step()
            state = optimizer.state_dict()
            if k == 0:
                optimizer.param_groups[1]["weight_decay"] = 0.1
        return losses

    wanted = run(lambda m: None, lambda t: t)
    for place in (lambda m: nn.parallel.replicate(m, d), lambda m: nn.parallel.shard(m, d)):
        np.testing.assert_allclose(run(place, lambda t: t.shard(d)), wanted, rtol=1e-4)


def overlap() -> None:
    """Sums by messages overlap with the kernels behind them, in the order of the program, and change no result."""
    link = transport()
    link.shared = None
    host_commands.MIN_OVERLAPPED_BYTES = 64
    started: list[int] = []
    start = InFlight.start

    def counted(self: InFlight, run: Callable[[], None], spans: list[Span], n_bytes: int) -> None:
        start(self, run, spans, n_bytes)
        started.append(len(self.pending))

    InFlight.start = counted  # type: ignore[method-assign]
    training()
    assert max(started) > 1  # several sums are on the way at once


def numbers() -> None:
    """A number that differs from call to call is an input of one plan on all processes, also without a capture."""
    d, a = distributed.devices(), np.random.default_rng(0).normal(size=(12, 6))
    x, w = Tensor(a).shard(d).realize(), Tensor(a.T.copy()).replicate(d).realize()
    here = Tensor(a[:4]).realize()
    formulas: list[tuple[Callable[[float], Tensor], Callable[[float], Any], bool]] = [
        (lambda k: (x * k - k).sum(0), lambda k: (a * k - k).sum(0), True),
        (lambda k: ((x * k) @ w).sum(1), lambda k: ((a * k) @ a.T).sum(1), True),
        (lambda k: (x * k).sum(0).shard(d), lambda k: (a * k).sum(0), True),
        (lambda k: (x * k).shard(d, 1) + k, lambda k: a * k + k, True),
        (lambda k: (x.sum(0) * k).to("cpu") + here.sum(0) * k, lambda k: a.sum(0) * k + a[:4].sum(0) * k, True),
        (lambda k: x.clip(-k, k).sum(), lambda k: a.clip(-k, k).sum(), True),
        (lambda k: (x > k).where(x * k, 1 / k).sum(1), lambda k: np.where(a > k, a * k, 1 / k).sum(1), True),
        (lambda k: x[int(k) : int(k) + 3].sum(0) * k, lambda k: a[int(k) : int(k) + 3].sum(0) * k, False),
        (lambda k: x.roll(int(k), 0) * k, lambda k: np.roll(a, int(k), 0) * k, False),
    ]
    for f, g, is_one_plan in formulas:
        new = []
        for k in range(1, 9):
            before = profile.counts["schedules"]
            np.testing.assert_allclose(f(k + 0.25).numpy(), g(k + 0.25), rtol=1e-9, atol=1e-9)
            new.append(profile.counts["schedules"] - before)
        assert not is_one_plan or new[-3:] == [0, 0, 0], new


def gathers() -> None:
    """Divided parameters are gathered layer by layer, and gradients are freed so: beyond its activation a layer takes
    no memory. The parts of a sum go to the processes that need them. No bit depends on it.
    """
    d, width = distributed.devices(), 128
    n_rows = 160 * len(d)  # more elements than a weight, which is what moves then
    xs = np.random.default_rng(1).normal(size=(n_rows, width)).astype(np.float32)

    def trained(depth: int, disabled: str) -> tuple[int, list[float], set[str]]:
        Tensor.manual_seed(0)
        layers = [f() for _ in range(depth) for f in (lambda: nn.Linear(width, width, bias=False), nn.Tanh)]
        model, x = nn.Sequential(*layers), Tensor(xs).shard(d).realize()
        nn.parallel.shard(model, d)
        optimizer = nn.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        f = jit(step)
        with Context(DISABLE=disabled):
            losses = [f(x).item() for _ in range(4)]
        ready = next(iter(f.captures.values())).capture.ready
        items = calls_in(items_of(program_of(ready)))
        memory = {b for c in items for b in map(base_of, operands_of(c)) if is_arena(b) and b.arg.device == mine}
        summed = {str(operands_of(c)[0].shape) for c in items if is_allreduce(c)}
        return sum(map(buffer_bytes, memory)), losses, summed

    mine = d[distributed.rank()]
    few, losses, summed = trained(4, "")
    many, longer, _ = trained(8, "")
    assert (many - few) / 4 < 1.1 * xs.nbytes / len(d), "an activation a layer"
    before = [trained(depth, "prefetch") for depth in (4, 8)]
    assert (before[1][0] - before[0][0]) / 4 > 1.6 * xs.nbytes / len(d), "with gathers where they can be at once"
    assert (losses, longer) == (before[0][1], before[1][1])
    assert all(len(s) < 12 for s in summed), f"only the loss is a sum on all processes, not {summed}"


def residual() -> None:
    """A residual stream to which each layer adds a sum over the processes is stored: no kernel reads the sums of all
    layers again.
    """
    d, width = distributed.devices(), 16
    xs = np.random.default_rng(1).normal(size=(64, width))

    def trained(depth: int, is_divided: bool) -> tuple[float, list[np.ndarray], int]:
        Tensor.manual_seed(0)
        pairs = [[nn.Linear(width, 32), nn.Linear(32, width)] for _ in range(depth)]
        parameters = [p for pair in pairs for layer in pair for p in layer.parameters()]
        for p in parameters:
            p.uop = p.detach().double().uop
        x = Tensor(xs)
        if is_divided:
            for pair in pairs:
                nn.parallel.tensor_parallel(pair, d)
            x = x.replicate(d)

        def step(x: Tensor) -> tuple[Tensor, list[Tensor]]:
            for p in parameters:
                p.grad = None
            for first, second in pairs:
                x = x + second(first(x).relu())
            loss = x.square().mean()
            loss.backward()
            return loss, [p.grad for p in parameters]

        f = jit(step)
        for _ in range(3):
            loss, gradients = f(x)
        ready = next(iter(f.captures.values())).capture.ready
        most = max(len(c.src) - 1 for c in calls_in(items_of(program_of(ready))))
        return loss.item(), [g.numpy() for g in gradients], most

    (wanted, gradients, _), (loss, found, few) = trained(4, False), trained(4, True)
    np.testing.assert_allclose(loss, wanted, rtol=1e-12)
    for g, h in zip(found, gradients, strict=True):
        np.testing.assert_allclose(g, h, rtol=1e-9, atol=1e-12)
    assert trained(12, True)[2] <= few <= 8, "the operands of a kernel do not grow with the depth"


def ring() -> None:
    """Ring attention, values and gradients, is attention on one device; each process sends its parts to the next."""
    d = distributed.devices()
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(2, 12, 4)) for _ in range(3)]

    def run(place: Place, f: Callable[..., Tensor], is_causal: bool) -> list[np.ndarray]:
        leaves = [place(Tensor(a)).detach() for a in arrays]
        for t in leaves:
            t.requires_grad = True
        out = f(*leaves, is_causal=is_causal)
        out.square().sum().backward()
        return [out.numpy(), *(t.grad.numpy() for t in leaves)]

    def plain(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        return q.scaled_dot_product_attention(k, v, is_causal=is_causal)

    for is_causal in (False, True):
        wanted = run(lambda t: t, plain, is_causal)
        found = run(lambda t: t.shard(d, 1), nn.parallel.ring_attention, is_causal)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
        step = jit(lambda *a, is_causal=is_causal: nn.parallel.ring_attention(*a, is_causal=is_causal))
        for _ in range(3):
            captured = step(*(Tensor(a).shard(d, 1) for a in arrays))
            np.testing.assert_allclose(captured.numpy(), wanted[0], rtol=1e-10, atol=1e-12)


def compiles() -> None:
    """Each kernel is compiled in one process, and all that need it load it."""
    d, link = distributed.devices(), transport()
    device = Device[d[link.rank]]
    made: list[str] = []
    dumps, compiled = type(device).dumps, type(device).compile

    def counted(self: Any, linear: UOp) -> bytes:
        made.append(hashlib.sha256(show(linear).encode()).hexdigest())
        return dumps(self, linear)

    def alone(self: Any, kernels: Any) -> Any:
        raise AssertionError(f"{[name for name, _, _ in kernels]} compiled by rank {link.rank} for itself")

    type(device).dumps, type(device).compile = counted, alone
    with Context(COMPILE_CACHE=0):
        x = Tensor.ones(len(d) * 3, 37).shard(d)
        found = [(x * 3 + k).exp().sum(1) for k in range(5)] + [(x + 1).log().tanh(), x.cumsum(1)]
        values = [t.realize().to("cpu") for t in found]
        for t in values:
            t.realize()
    type(device).dumps, type(device).compile = dumps, compiled
    np.testing.assert_allclose(values[0].numpy(), np.full(len(d) * 3, 37 * np.exp(3)), rtol=1e-5)
    np.testing.assert_allclose(values[-1].numpy(), np.tile(np.arange(1.0, 38), (len(d) * 3, 1)))
    counts = [int(n) for n in link.gather(str(len(made)).encode())]
    assert max(counts) < sum(counts), counts  # several processes compile
    all_made = b" ".join(link.gather(" ".join(made).encode())).split()
    assert len(all_made) == len({*all_made}) >= 4


def pipeline() -> None:
    """Stages on processes, with micro-batches, have the losses of one device."""
    d = distributed.devices()
    rng = np.random.default_rng(0)
    xs, ys = rng.normal(size=(5, 8, 5)), rng.integers(0, 3, (5, 8))

    def run(is_piped: bool, is_captured: bool) -> list[float]:
        Tensor.manual_seed(0)
        stages = [nn.Linear(5, 7), nn.Linear(7, 3)]
        for p in (p for stage in stages for p in stage.parameters()):
            p.uop = p.double().detach().realize().uop
        model = nn.parallel.Pipeline(stages, (d[0], d[-1]), 4) if is_piped else nn.Sequential(*stages)
        optimizer = nn.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            out = model(x)
            loss = out.cross_entropy(y.to(out.device))
            loss.backward()
            optimizer.step()
            return loss.to("cpu")

        f = jit(step) if is_captured else step
        return [f(Tensor(x), Tensor(y)).item() for x, y in zip(xs, ys, strict=True)]

    wanted = run(False, False)
    np.testing.assert_allclose(run(True, False), wanted, rtol=1e-9)
    np.testing.assert_allclose(run(True, True), wanted, rtol=1e-9)


def random() -> None:
    """All processes draw the same numbers, and a tensor of them does not depend on where it is."""
    d = distributed.devices()
    first = Tensor.rand(4).numpy()
    np.testing.assert_array_equal(Tensor(first).shard(d).numpy(), first)
    Tensor.manual_seed(3)
    wanted = Tensor.zeros(6, 2).rand_like().numpy()
    Tensor.manual_seed(3)
    np.testing.assert_array_equal(Tensor.zeros(6, 2).shard(d).rand_like().numpy(), wanted)


def save(folder: str) -> None:
    """Write a checkpoint from this number of processes."""
    d = distributed.devices()
    a = np.arange(30.0).reshape(5, 6)
    tensors = {"rows": Tensor(a).shard(d), "columns": Tensor(a).shard(d, 1), "whole": Tensor(a).replicate(d)}
    save_checkpoint({**tensors, "last": Tensor(a, device=d[-1]), "one": Tensor(a)}, folder)


def save_others(folder: str) -> None:
    """Save an earlier checkpoint, then one in which the last process names a tensor in another way."""
    d = distributed.devices()
    x = Tensor.ones(4, 2).shard(d)
    save_checkpoint({"x": x}, folder)
    save_checkpoint({"y" if distributed.rank() == distributed.size() - 1 else "x": x + 1}, folder)


def load(folder: str) -> None:
    """Read a checkpoint on this number of processes."""
    d = distributed.devices()
    a = np.arange(30.0).reshape(5, 6)
    found = load_checkpoint(folder)
    assert len(found) == 5
    for t in found.values():
        np.testing.assert_array_equal(t.numpy(), a)
        np.testing.assert_array_equal(t.shard(d).numpy(), a)


def fails(how: str, after: str) -> None:
    """The last process does something else than the others after some steps. The first three compile; in the others
    the number is an input.
    """
    d = distributed.devices()
    x = Tensor.ones(8, 2).shard(d)
    for k in range(100_000):
        if k == int(after) and distributed.rank() == distributed.size() - 1:
            if how == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif how == "raises":
                raise ValueError("an error of one process")
            elif how == "has other shapes":
                x = Tensor.ones(8, 3).shard(d)
            elif how == "ends early":
                return
        (x * k).sum().item()


def fails_in_a_sum(how: str) -> None:
    """The last process leaves a loop of replayed sums, one of them in place, or adds up a value of another size."""
    d, link = distributed.devices(), transport()
    x, f = Tensor.ones(len(d), 100_000).shard(d).realize(), jit(lambda t: (t.sum(0), (t * 2).sum(0) + 1))
    for k in range(100_000):
        if k == 5 and distributed.rank() == distributed.size() - 1:
            if how == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif how == "ends early":
                return
            elif how == "has another size":
                few = np.zeros(16, np.uint8)
                link.allreduce(few, few.copy(), lambda into, parts: None, range(len(d)))
        f(x)


def fails_in_order(kind: str) -> None:
    """The last process runs another of two steps, whose messages are equal, than the others."""
    d = distributed.devices()
    x = Tensor.ones(len(d), 100).shard(d).realize()

    def moved(t: Tensor) -> Tensor:
        return t.sum(0) if kind == "sums" else t.shard(d, 1)

    steps = [jit(lambda t: moved(t * 2)), jit(lambda t: moved(t * 3))]
    for k in range(100_000):
        other = k == 20 and distributed.rank() == distributed.size() - 1
        steps[(k + other) % 2](x)


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    globals()[name](*rest)
    print("done", distributed.rank(), flush=True)
