"""Timing in worker processes: what a candidate may do to its process, and what that does to the others: nothing."""

import os
import signal
import subprocess
import sys
import time
from math import inf

import numpy as np
import pytest

from monolect import Context
from monolect.backend.base import Portable
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.base.errors import AllocationError, DeviceError
from monolect.ir.text import parse
from monolect.pipeline import lower_kernel
from monolect.runtime.search import bench as benches
from monolect.runtime.search import bench_buffers as scratches
from monolect.runtime.search import worker_pool as pools
from monolect.runtime.search.bench import ProcessBench
from monolect.runtime.search.bench_buffers import Scratch, difference
from monolect.runtime.search.worker_pool import Failure, WorkerPool

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="searches need POSIX")
DEVICE = Device["cpu"]
FOREVER = 1 << 50


def kernel(iterations=8, offset=0, added="1.0", op="ADD", dtype="f32"):
    """out[i % 8 + offset] = in[i % 8] op added, for all i below `iterations`."""
    return parse(f"""
        %n = CONST idx[] ({iterations}, idx)
        %eight = CONST idx[] (8, idx)
        %shape = STACK idx[1] %eight
        %out = PARAM {dtype}[8] %shape ParamArg(slot=0, dtype={dtype}, addrspace="GLOBAL")
        %in = PARAM {dtype}[8] %shape ParamArg(slot=1, dtype={dtype}, addrspace="GLOBAL")
        %i = RANGE idx[] %n (0, "LOOP")
        %at = MOD idx[] %i %eight
        %off = CONST idx[] ({offset}, idx)
        %to = ADD idx[] %at %off
        %store = INDEX {dtype}[] %out %to
        %load = INDEX {dtype}[] %in %at
        %x = LOAD {dtype}[] %load
        %c = CONST {dtype}[] ({added}, {dtype})
        %y = {op} {dtype}[] %x %c
        %z = STORE void[] %store %y
        %e = END void[] %z %i
        %s = SINK void[] %e KernelInfo(name="k", actions=())
    """)


def doubled_in_place(dtype="f32", factor="2.0"):
    return parse(f"""
        %eight = CONST idx[] (8, idx)
        %shape = STACK idx[1] %eight
        %p = PARAM {dtype}[8] %shape ParamArg(slot=0, dtype={dtype}, addrspace="GLOBAL")
        %i = RANGE idx[] %eight (0, "LOOP")
        %at = INDEX {dtype}[] %p %i
        %x = LOAD {dtype}[] %at
        %c = CONST {dtype}[] ({factor}, {dtype})
        %y = MUL {dtype}[] %x %c
        %z = STORE void[] %at %y
        %e = END void[] %z %i
        %s = SINK void[] %e KernelInfo(name="k", actions=())
    """)


@pytest.fixture(scope="module")
def crew():
    made = WorkerPool("cpu", DEVICE.target, 2)
    yield made
    made.close()


@pytest.fixture
def bench(crew, monkeypatch):
    monkeypatch.setattr(benches, "RUN_S", 0.5)
    made = ProcessBench(crew)
    yield made
    made.close()


def kinds(bench):
    return [f.kind for f in bench.failures]


# ---- candidates that fail --------------------------------------------------------------------------------------------
BAD = {
    "crashed": kernel(9, offset=1 << 40),
    "hung": kernel(FOREVER),
    "wrong": kernel(9, added="2.0"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_candidate_takes_no_other_along(bench, kind):
    times = bench.times([kernel(), BAD[kind], kernel(16)])
    assert times[0] == 1.0 and times[1] == inf and 0 < times[2] < inf
    assert kinds(bench) == [kind] and bench.n_timed == 2
    (ratio,) = bench.against(kernel(), [kernel(16)])
    assert 0 < ratio < inf


def test_a_store_outside_of_its_buffer_is_wrong(bench):
    assert bench.times([kernel(), kernel(9, offset=8)])[1] == inf
    assert bench.failures[0].kind == "wrong" and "outside of PARAM 0" in bench.failures[0].text


def test_what_a_wrong_candidate_left_elsewhere_decides_on_no_other(bench):
    assert bench.times([kernel()]) == [1.0]
    before = bench.pool.worker(0).process
    assert bench.times([kernel(9, offset=8)]) == [inf]
    assert before.poll() is not None
    assert 0 < bench.times([kernel(16)])[0] < inf and kinds(bench) == ["wrong"]


def test_an_element_that_is_not_written_is_wrong(bench):
    assert bench.times([kernel(), kernel(7)])[1] == inf
    assert kinds(bench) == ["wrong"]


def test_what_does_not_compile_is_refused_with_the_reason(bench):
    (found,) = bench.pool.map("build", ["%0 = NOSUCHOP"], 5.0, lambda: None)
    assert isinstance(found, Failure) and found.kind == "failed" and "ParseError" in found.text
    assert bench.times([kernel(), kernel(16)])[1] < inf


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["crashed", "hung"])
def test_a_first_candidate_that_cannot_run_ends_the_search(crew, monkeypatch, kind):
    monkeypatch.setattr(benches, "OPEN_S", 0.5)
    bench = ProcessBench(crew)
    assert bench.times([BAD[kind]]) == [inf]
    assert kinds(bench) == [kind]
    bench.close()


def test_a_killed_worker_is_replaced(bench):
    bench.times([kernel()])
    before = bench.pool.n_started
    for w in bench.pool.workers:
        if w is not None:
            os.kill(w.process.pid, signal.SIGKILL)
            w.process.wait()
    assert bench.times([kernel(16)])[0] < inf
    assert bench.pool.n_started > before and bench.failures == []


def test_a_worker_killed_at_work_loses_one_item(bench):
    found = []

    def step():
        if not found:
            found.append(1)
            for w in bench.pool.workers:
                os.kill(w.process.pid, signal.SIGKILL)

    texts = ["not a kernel"] * 6
    out = bench.pool.map("build", texts, 5.0, step)
    assert len(out) == 6 and all(isinstance(f, Failure) for f in out)
    assert sum(f.kind == "crashed" for f in out) <= 2


# ---- buffers ---------------------------------------------------------------------------------------------------------
def test_runs_in_place_start_from_the_same_values(bench):
    assert bench.times([doubled_in_place(), doubled_in_place()])[0] == 1.0
    assert kinds(bench) == []
    assert bench.times([doubled_in_place(factor="4.0")]) == [inf]
    assert kinds(bench) == ["wrong"]


def run_here(k, scratch):
    program = DEVICE.loads(DEVICE.dumps(lower_kernel(k, DEVICE.target, first="device_axes")))
    return scratch.run_checked(scratch.commands(program))


def test_integers_stay_inside_what_they_index():
    gather = parse("""
        %eight = CONST idx[] (8, idx)
        %shape = STACK idx[1] %eight
        %out = PARAM i32[8] %shape ParamArg(slot=0, dtype=i32, addrspace="GLOBAL")
        %in = PARAM i32[8] %shape ParamArg(slot=1, dtype=i32, addrspace="GLOBAL")
        %i = RANGE idx[] %eight (0, "LOOP")
        %a = INDEX i32[] %in %i
        %x = LOAD i32[] %a
        %five = CONST i32[] (5, i32)
        %g = CMPLT b1[] %x %five
        %to = INDEX i32[] %out %i
        %z = STORE void[] %to %x %g
        %e = END void[] %z %i
        %s = SINK void[] %e KernelInfo(name="k", actions=())
    """)
    scratch = Scratch(gather, DEVICE)
    assert scratch.values(1).min() >= 0 and 0 < scratch.values(1).max() < 5
    assert run_here(gather, scratch)[1] == ""


def test_places_that_a_kernel_reads_and_writes_are_integers():
    """Of the type of index arithmetic, which NumPy lacks: where a median lies goes from one kernel to the next so."""
    places = kernel(dtype="idx", added="1")
    scratch = Scratch(places, DEVICE)
    assert run_here(places, scratch)[1] == "" and (scratch.values(0) == scratch.values(1) + 1).all()


def test_a_kernel_of_too_much_memory_is_not_searched(monkeypatch):
    assert scratches.fits(kernel())
    monkeypatch.setattr(scratches, "machine_bytes", lambda: 8)
    assert not scratches.fits(kernel())
    with pytest.raises(AllocationError, match="too large to search"):
        Scratch(kernel(), DEVICE)


@pytest.mark.skipif(not os.path.exists("/proc/self/oom_score_adj"), reason="the system has no such choice")
def test_where_memory_ends_a_worker_goes_first(crew):
    with open(f"/proc/{crew.worker(0).process.pid}/oom_score_adj") as file:
        assert file.read().strip() == "1000"


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_rounding_is_no_difference_and_errors_are(name):
    d = getattr(dtypes, name)
    tolerance = {16: 3e-2, 32: 1e-4, 64: 1e-9}[d.bits]
    a = np.linspace(-100, 100, 200_000).astype(d.numpy)
    b = a.copy()
    assert difference(a, b, d, tolerance) == ""
    b[150_000] = (np.float64(b[150_000]) + 40 * tolerance).astype(d.numpy)
    assert difference(a, b, d, tolerance) == ""
    b[199_999] = 0
    assert difference(a, b, d, tolerance).startswith("[199999]: 0")


def test_not_a_number_is_equal_to_itself_only():
    a = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    assert difference(a, a.copy(), dtypes.float32, 1e-4) == ""
    for i, other in enumerate([0, 1, np.inf, np.nan]):
        b = a.copy()
        b[i] = other
        assert difference(a, b, dtypes.float32, 1e-4).startswith(f"[{i}]")
    assert difference(np.arange(4), np.array([0, 1, 3, 3]), dtypes.int64, 1.0).startswith("[2]")


# ---- processes -------------------------------------------------------------------------------------------------------
def test_a_device_says_whether_its_programs_travel():
    assert isinstance(DEVICE, Portable)
    assert not isinstance(Device["python"], Portable) and not isinstance(Device["null"], Portable)


def test_a_worker_computes_for_this_target_or_does_not_start():
    with pytest.raises(DeviceError, match="does not start"):
        WorkerPool("cpu", DEVICE.target._replace(key="another machine"), 1).worker(0)


@pytest.mark.parametrize("executable", ["/no/such/python", None])
def test_without_an_interpreter_there_is_no_worker(monkeypatch, executable):
    monkeypatch.setattr(pools.sys, "executable", executable)
    with pytest.raises(DeviceError, match="no process"):
        WorkerPool("cpu", DEVICE.target, 1).worker(0)


def test_workers_are_quiet_and_see_the_settings():
    with Context(DEBUG=2, THREADS=3, COMPILE_CACHE=0):
        seen = pools._environment(DEVICE.target)
    assert (seen["DEBUG"], seen["VERIFY"], seen["COMPILE_CACHE"]) == ("", "", "0")
    assert seen["THREADS"] == str(DEVICE.target.n_threads)


def test_one_crew_a_process_for_one_target():
    a = pools.shared_pool("cpu", DEVICE.target, 1)
    assert pools.shared_pool("cpu", DEVICE.target, 1) is a
    pid = a.worker(0).process.pid
    other = pools.shared_pool("cpu", DEVICE.target._replace(n_threads=7), 1)
    assert other is not a and a.workers == [None]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    pools.close_shared_pool()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_workers_of_its_own():
    mine = pools.shared_pool("cpu", DEVICE.target, 1)
    pid = mine.worker(0).process.pid
    child = os.fork()
    if child == 0:
        try:
            theirs = pools.shared_pool("cpu", DEVICE.target, 1)
            ok = theirs is not mine and theirs.worker(0).process.pid != pid
            pools.close_shared_pool()
            os._exit(0 if ok else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert mine.worker(0).process.pid == pid and mine.ask("ready", limit_s=5.0) is True
    pools.close_shared_pool()


ORPHAN = """
import os, sys
from monolect.backend.registry import Device
from monolect.runtime.search.worker_pool import shared_pool
c = shared_pool("cpu", Device["cpu"].target, 2)
print(c.worker(0).process.pid, c.worker(1).process.pid, flush=True)
{end}
"""


@pytest.mark.sweep
@pytest.mark.parametrize("end", ["pass", "1 / 0", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_no_worker_outlives_its_process(end):
    command = [sys.executable, "-c", ORPHAN.format(end=end)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    pids = [int(p) for p in run.stdout.split()]
    assert len(pids) == 2
    until = time.monotonic() + 10
    while alive := [p for p in pids if is_running(p)]:
        assert time.monotonic() < until, f"{alive} still run"
        time.sleep(0.02)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
