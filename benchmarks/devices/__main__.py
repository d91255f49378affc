"""What several devices cost: sums over them beside the speed of copies and beside MPI, training steps, host cost.

    python -m benchmarks.devices            every row, about a minute; rows of processes need the extra `mpi`
    python -m benchmarks.devices --rank     what `mpiexec` runs in each process for such a row

Each row checks its results before it is timed. Rows that are compared are timed alternately. Figures are medians in
milliseconds; that of the host cost, which other tenants of the machine double, is the least.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.host.steps import training_step
from monolect import Tensor, distributed, jit, nn
from monolect.backend.mpi.routes import routes
from monolect.backend.mpi.transport import transport
from monolect.command.forms import buffer_bytes, operands_of
from monolect.command.timeline import Timeline, is_message, timeline
from monolect.runtime import profile
from monolect.runtime.realize.execute import plans

ROUNDS = 9
STARTS = 7  # times that each program of the training row is started; the speed of a process differs between starts
SUM_BYTES = 64 << 20  # bytes of a value that is added up over devices
DEPTH = 6  # hidden layers of the model that is trained; the sum of the last gradient overlaps with nothing
FOUR = ("cpu", "cpu:1", "cpu:2", "cpu:3")
EIGHT = (*FOUR, "cpu:4", "cpu:5", "cpu:6", "cpu:7")


def in_turns(
    calls: dict[str, Callable[[], object]],
    before: Callable[[], object] = lambda: None,
    chosen: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """Milliseconds of each call, the `chosen` of several rounds; `before` is called before each start and end."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            before()
            start = time.perf_counter()
            call()
            before()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: chosen(t) for name, t in times.items()}


def sum_over_devices() -> None:
    """The sum of 64 MiB over four devices of this process, and the limit: 512 MiB copied by two threads."""
    a = np.random.default_rng(0).random((4, SUM_BYTES // 4), dtype=np.float32)
    x, f = Tensor(a).shard(FOUR).realize(), jit(lambda t: t.sum(0))
    np.testing.assert_allclose(f(x).numpy(), a.sum(0), rtol=1e-5)
    f(x)
    source, target = a.reshape(2, -1), np.empty_like(a.reshape(2, -1))  # 256 MiB

    def copied() -> None:
        for _ in range(2):
            threads = [threading.Thread(target=np.copyto, args=(target[k], source[k])) for k in range(2)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()

    found = in_turns({"sum": lambda: f(x), "limit": copied})
    show("sum of 64 MiB over 4 devices", found["sum"], "copying 512 MiB", found["limit"], goal=0.8)


def host_cost() -> None:
    """A small captured training step on one device and on eight: what the host does, in microseconds a device.

    The least of the rounds: the work of the host is the same in each, and other tenants of a core double its time.
    """

    def step_on(devices: tuple[str, ...]) -> Callable[[], object]:
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10))
        rng = np.random.default_rng(0)
        x, y = Tensor(rng.normal(size=(16, 8)).astype(np.float32)), Tensor(rng.integers(0, 10, 16))
        if len(devices) > 1:
            nn.parallel.replicate(model, devices)
            x, y = x.shard(devices), y.shard(devices)
        step, x, y = jit(training_step(model, nn.optim.SGD)), x.realize(), y.realize()
        for _ in range(5):
            step(x, y)

        def steps() -> None:
            for _ in range(200):
                step(x, y)

        return steps

    found = in_turns({"one": step_on(("cpu",)), "eight": step_on(EIGHT)}, chosen=min)
    one, eight = (found[k] / 200 * 1e3 for k in ("one", "eight"))
    print(f"{'captured SGD step, 8 devices':42} {eight / 8:8.2f} us a device   one device {one:.2f} us   goal 2.00 us")


def processes(n: int) -> None:
    """Start this module in `n` processes of one thread."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec), "-n", str(n), sys.executable, "-m", "benchmarks.devices", "--rank"]
    subprocess.run(command, env={**os.environ, "THREADS": "1"}, check=True)


def in_a_process() -> None:
    """The sum of 64 MiB over the processes beside MPI_Allreduce; only rank 0 prints."""
    from mpi4py import MPI

    devices, n, size = distributed.devices(), distributed.size(), SUM_BYTES // 4
    base = np.random.default_rng(0).random(size, dtype=np.float32)
    factors = Tensor(np.arange(1, n + 1, dtype=np.float32)).reshape(n, 1)
    x = (Tensor(base).reshape(1, size).expand(n, size) * factors).shard(devices).realize()
    f = jit(lambda t: t.sum(0))
    for _ in range(2):
        total = f(x)
    np.testing.assert_allclose(total.numpy(), base * (n * (n + 1) / 2), rtol=1e-5)
    own, out = base * (distributed.rank() + 1), np.empty_like(base)
    calls = {"sum": lambda: f(x), "MPI": lambda: MPI.COMM_WORLD.Allreduce(own, out)}
    found = in_turns(calls, distributed.barrier)
    if distributed.rank() == 0:
        show(f"sum of 64 MiB over {n} processes", found["sum"], "MPI_Allreduce", found["MPI"], goal=2.0)


def training_processes() -> None:
    """Data parallel training on 2 processes of one thread against one process of 2 threads, timed alternately."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    own = [sys.executable, "-m", "benchmarks.devices", "--train"]
    commands = {"two": ([str(mpiexec), "-n", "2", *own], "1"), "one": (own, "2"), "alone": ([*own, "--half"], "1")}
    found: dict[str, list[list[float]]] = {name: [] for name in commands}  # of each run its printed numbers
    for _ in range(STARTS):
        for name, (command, threads) in commands.items():
            env = {**os.environ, "THREADS": threads}
            out = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
            found[name].append([float(x) for x in out.split()])
    (two, sums, kernels, messages, step), (one, _), (alone, _) = (np.median(found[name], axis=0) for name in commands)
    show("training on 2 processes of 1 thread", two, "1 of 2 threads", one, goal=0.9)
    beyond = two - alone
    print(f"{'  beyond its compute':42} {beyond:8.2f} ms   its sums {sums:.2f} ms   {beyond / sums:.2f}")
    exposed = (step - kernels) / messages
    text = f"kernels {kernels:.2f} ms   sums {messages:.2f} ms   {exposed:.2f} of them exposed   goal 0.30"
    print(f"{'  predicted over 2 hosts, 10 Gbit/s':42} {step:8.2f} ms   {text}")


def in_training(is_half: bool) -> None:
    """Print the milliseconds of a training step, and those of the sums of its gradients alone. On several processes
    also the milliseconds of kernels, sums and the step in the timeline over a network. Only rank 0 prints.
    """
    devices = distributed.devices() if distributed.size() > 1 else ()
    hidden = [layer for _ in range(DEPTH) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(1024, 16))
    rng, batch = np.random.default_rng(0), 256 if is_half else 512
    x = Tensor(rng.normal(size=(batch, 1024)).astype(np.float32))
    y = Tensor(rng.integers(0, 16, batch))
    grads = [Tensor(np.ones((max(len(devices), 1), p.numel()), np.float32)) for p in model.parameters()]
    if devices:
        nn.parallel.replicate(model, devices)
        x, y, grads = x.shard(devices), y.shard(devices), [g.shard(devices) for g in grads]
    x.realize(y, *grads)
    step, total = jit(training_step(model, nn.optim.SGD)), jit(lambda gs: [g.sum(0) for g in gs])
    calls = {"step": lambda: step(x, y), "sums": lambda: total(grads)}
    for call in calls.values():
        for _ in range(3):
            call()
    found = in_turns(calls, distributed.barrier if devices else lambda: None)
    timelines = []
    if devices:
        transport().shared = None  # the sums of another capture go by messages, as between hosts
        plans.clear()
        apart = jit(training_step(model, nn.optim.SGD))
        for _ in range(3):
            apart(x, y)
        timelines = [over_network(lambda: apart(x, y)) for _ in range(ROUNDS)]
    if distributed.rank() == 0:
        rows = [(t.kernel_seconds * 1e3, t.message_seconds * 1e3, t.seconds * 1e3) for t in timelines]
        print(found["step"], found["sums"], *(np.median(rows, axis=0) if rows else ()))


def over_network(step: Callable[[], object]) -> Timeline:
    """The timeline of a step whose processes are on hosts of their own: measured kernels, predicted messages."""
    with profile.Recorder() as runs:
        step()
        items = [run.call for run in runs]
        hosts = range(distributed.size())
        seconds = [
            routes(buffer_bytes(operands_of(run.call)[0]), hosts)[0].seconds
            if is_message(run.call)
            else run.time_ns / 1e9
            for run in runs
        ]
    return timeline(items, seconds)


def show(name: str, ms: float, other: str, other_ms: float, goal: float) -> None:
    """Print a row: the other's time as a multiple of ours, and the goal for it."""
    print(f"{name:42} {ms:8.2f} ms   {other} {other_ms:.2f} ms   {other_ms / ms:.2f}   goal {goal:.2f}", flush=True)


if __name__ == "__main__":
    if "--rank" in sys.argv:
        in_a_process()
    elif "--train" in sys.argv:
        in_training("--half" in sys.argv)
    else:
        sum_over_devices()
        host_cost()
        for count in (2, 4):
            processes(count)
        training_processes()
