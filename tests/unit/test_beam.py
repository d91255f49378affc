"""BEAM=n from the user's side: the same results, one search a kernel and machine, whatever is in the cache."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

from monolect import Context, Tensor, jit
from monolect.backend.registry import Device
from monolect.base.disk import cache as disk
from monolect.base.disk.cache import DiskCache
from monolect.base.errors import DeviceError, SettingError
from monolect.base.settings import Settings, settings
from monolect.cli import main
from monolect.ir.ops import KernelInfo
from monolect.ir.text import show
from monolect.ir.uop import const, node, rebuild, substitute, toposort
from monolect.optimize.search import beam as searching
from monolect.optimize.search import moves
from monolect.pipeline import lower_kernel, schedule
from monolect.runtime.realize import lowering
from monolect.runtime.realize.execute import plans as known_plans
from monolect.runtime.search import beam as tuning
from monolect.runtime.search import bench as benches
from monolect.runtime.search import bench_buffers as scratch
from monolect.schedule.callify import over_params
from tests.unit.test_bench import is_running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="searches need POSIX")
RNG = np.random.default_rng(0)
A, B = (RNG.standard_normal(s).astype(np.float32) for s in ((20, 24), (24, 36)))


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """A search of a few candidates, in a cache of its own."""
    monkeypatch.setattr(searching, "MAX_ROUNDS", 1)
    monkeypatch.setattr(searching, "MAX_START_SLOWDOWN", float("inf"))  # a slow spell of the machine cuts no walk short
    monkeypatch.setattr(searching, "edits", lambda *a: iter(()))
    for kind in moves.MOVES.keys() - {"UNROLL", "SWAP"}:
        monkeypatch.delitem(moves.MOVES, kind)
    fresh(monkeypatch)
    with Context(MONOLECT_CACHE=str(tmp_path)):
        yield


def fresh(monkeypatch):
    """As in a new process: nothing is known but what is on disk."""
    monkeypatch.setattr(tuning, "known", {})
    monkeypatch.setattr(tuning, "failed", set())
    monkeypatch.setattr(Device["cpu"], "programs", {})
    known_plans.clear()


@pytest.fixture
def asked(monkeypatch):
    """The kernels that were to be timed."""
    out = []
    times = benches.ProcessBench.times

    def counted(self, kernels):
        out.extend(kernels)
        return times(self, kernels)

    monkeypatch.setattr(benches.ProcessBench, "times", counted)
    return out


@pytest.fixture
def steady(monkeypatch):
    """All candidates are equally fast: what is searched does not depend on the clock."""
    monkeypatch.setattr(benches.ProcessBench, "times", lambda self, kernels: [1.0] * len(kernels))
    monkeypatch.setattr(benches.ProcessBench, "again", lambda self, kernels: [1.0] * len(kernels))
    monkeypatch.setattr(benches.ProcessBench, "against", lambda self, old, new: [1.0] * len(new))


def product():
    return (Tensor(A) @ Tensor(B)).numpy()


def kernel():
    sink, _, _ = over_params([(Tensor(A) @ Tensor(B)).uop])
    (call,) = schedule(list(sink.src), "cpu").linear.src
    return call.src[0]


def ready():
    return lower_kernel(kernel(), Device["cpu"].target, last=lowering.READY)


# ---- results and caches ----------------------------------------------------------------------------------------------
def test_a_search_keeps_the_result_and_runs_once(asked, monkeypatch):
    with Context(BEAM=1):
        np.testing.assert_allclose(product(), A @ B, rtol=1e-5, atol=1e-5)
        n = len(asked)
        assert n > 3
        product()
        known_plans.clear()
        product()
        assert len(asked) == n
        fresh(monkeypatch)
        product()  # the program is on disk
        assert len(asked) == n
        monkeypatch.setattr(Device["cpu"], "cache", DiskCache("another"))
        fresh(monkeypatch)
        np.testing.assert_allclose(product(), A @ B, rtol=1e-5, atol=1e-5)  # its actions are
        assert len(asked) == n


def test_each_width_is_a_search_of_its_own(asked):
    with Context(BEAM=1):
        product()
    n = len(asked)
    with Context(BEAM=2):
        product()
    assert len(asked) > n


def test_no_search_unless_it_is_asked_for(asked):
    product()
    with Context(BEAM=2, NOOPT=1):
        product()
    with Context(BEAM=2):
        Tensor(A, device="python").sum().numpy()
        lowering.lower([kernel()], "null")
    assert asked == []


def test_without_a_disk_cache_a_process_searches_once(asked):
    with Context(BEAM=1, COMPILE_CACHE=0):
        lowering.lower([kernel()], "cpu")
        n = len(asked)
        lowering.lower([kernel()], "cpu")
    assert len(asked) == n > 0


def test_who_compiles_anew_does_not_search_anew(asked, monkeypatch):
    """As `monolect explain` does, after the program has run: a search takes minutes."""
    with Context(BEAM=1):
        product()
        n = len(asked)
        fresh(monkeypatch)
        with Context(COMPILE_CACHE=0):
            product()
    assert len(asked) == n > 0


def test_weights_that_are_packed_once_stay_so(asked):
    """A search would time the packing, too, and lose what a captured step saves."""
    w = Tensor(np.ones((256, 256), np.float32)).clone().realize()
    step = jit(lambda x: x @ w)
    with Context(BEAM=1):
        for _ in range(3):
            found = step(Tensor(np.ones((64, 256), np.float32))).numpy()
    np.testing.assert_array_equal(found, np.full((64, 256), 256, np.float32))
    prologue = next(iter(step.captures.values()))[0].prologue
    assert prologue is not None and any(c.src[0].arg.name.startswith("pack") for c in prologue.items)
    assert asked and not any(k.arg.frozen for k in asked)


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: b"", lambda d: d[:40] + b"?" + d[41:]])
def test_a_damaged_entry_is_searched_again(steady, asked, monkeypatch, tmp_path, damage):
    with Context(BEAM=1):
        lowering.lower([kernel()], "cpu")
        n = len(asked)
        (entry,) = (tmp_path / "search").iterdir()
        entry.write_bytes(damage(entry.read_bytes()))
        fresh(monkeypatch)
        lowering.lower([kernel()], "cpu")
    assert len(asked) == 2 * n > 6


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\xff",
        b"None",
        b"7",
        b"[",
        b"((1, 2),)",
        b"(('SPLIT', 0, 3),)",
        b"('SPLIT',)",
        b"__import__('os')",
        b"(" * 999,
    ],
)
def test_an_entry_that_holds_no_actions_is_none(entry):
    assert tuning.read(entry, ready(), Device["cpu"].target) is None


def test_actions_that_became_illegal_are_the_heuristics():
    target = Device["cpu"].target
    wanted = tuning.heuristic(ready(), target)
    assert wanted
    for entry in [
        b"(('SPLIT', 0, (7, 'UPCAST', False)),)",
        b"(('GONE', 0, None),)",
        b"(('SPLIT', 99, (2, 'LOOP', True)),)",
    ]:
        assert tuning.read(entry, ready(), target) == wanted
    legal = (("SWAP", 0, 1),)
    assert tuning.read(repr(legal).encode(), ready(), target) == legal


def test_actions_named_in_a_kernel_are_kept(asked):
    named = node("SINK", ready().src, KernelInfo(actions=(("SWAP", 0, 1),)))
    with Context(BEAM=1):
        assert lowering.searched([named], "cpu") == [named]
    assert asked == []


# ---- what goes wrong -------------------------------------------------------------------------------------------------
def test_a_plan_that_changes_the_result_is_dropped_and_reported(monkeypatch):
    """As if actions were wrong: kernels with any add one to what they store, so whichever is the fastest is dropped."""
    right = searching.apply_actions

    def wrong(sink, actions, target):
        made = right(sink, actions, target)
        return broken(made) if actions else made

    def broken(u):
        store = next(v for v in toposort(u) if v.op == "STORE")
        at, value, *gate = store.src
        return substitute(u, {store: rebuild(store, (at, value + const(1.0, value.dtype), *gate))})

    monkeypatch.setattr(searching, "apply_actions", wrong)
    with Context(BEAM=1), pytest.warns(RuntimeWarning, match="change its result, please report: .*instead of"):
        np.testing.assert_allclose(product(), A @ B, rtol=1e-5, atol=1e-5)


def test_without_workers_the_heuristic_stays_and_says_so(monkeypatch):
    def none(*a):
        raise DeviceError("no process to search in")

    monkeypatch.setattr(tuning, "shared_pool", none)
    with Context(BEAM=1), pytest.warns(RuntimeWarning, match="keeps the heuristic's actions: no process"):
        np.testing.assert_allclose(product(), A @ B, rtol=1e-5, atol=1e-5)


def test_a_search_that_failed_is_tried_again_by_the_next_process(asked, monkeypatch, tmp_path):
    """As on a machine that has no memory, or no time, for it just now: neither actions nor a program are kept."""
    with monkeypatch.context() as m, Context(BEAM=1):
        m.setattr(benches.ProcessBench, "times", lambda self, kernels: [float("inf")] * len(kernels))
        with pytest.warns(RuntimeWarning, match="keeps the heuristic's actions: the heuristic's plan cannot be timed"):
            np.testing.assert_allclose(product(), A @ B, rtol=1e-5, atol=1e-5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            known_plans.clear()
            product()  # this process does without
    assert not (tmp_path / "search").exists()
    fresh(monkeypatch)
    with Context(BEAM=1):
        np.testing.assert_allclose(product(), A @ B, rtol=1e-5, atol=1e-5)
    assert len(asked) > 3 and (tmp_path / "search").exists()


def test_a_kernel_too_large_to_time_keeps_the_heuristics_actions(asked, monkeypatch, tmp_path):
    monkeypatch.setattr(scratch, "machine_bytes", lambda: 1000)
    with warnings.catch_warnings(), Context(BEAM=1):
        warnings.simplefilter("error")
        np.testing.assert_allclose(product(), A @ B, rtol=1e-5, atol=1e-5)
    assert asked == []
    assert len(list((tmp_path / "search").iterdir())) == 1  # known, so that no process asks again


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no disk that is always full")
def test_a_search_on_a_full_disk(asked, monkeypatch):
    """Nothing can be kept: the process searches once."""

    def full(folder, name, data):
        with open("/dev/full", "wb") as file:
            file.write(data)

    monkeypatch.setattr(disk, "_write", full)
    with Context(BEAM=1):
        product()
        n = len(asked)
        known_plans.clear()
        np.testing.assert_allclose(product(), A @ B, rtol=1e-5, atol=1e-5)
    assert len(asked) == n > 3


def test_a_compiler_that_breaks_on_a_candidate_breaks_no_program(steady, monkeypatch):
    right = searching.apply_actions

    def breaks(sink, actions, target):
        if len(actions) == 1:
            raise IndexError("as a bug of ours")
        return right(sink, actions, target)

    monkeypatch.setattr(searching, "apply_actions", breaks)
    with (
        Context(BEAM=1),
        pytest.warns(RuntimeWarning, match="keeps the heuristic's actions, please report: IndexError"),
    ):
        np.testing.assert_allclose(product(), A @ B, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", ["l1_bytes", "l2_bytes", "l3_bytes"])
def test_a_processor_with_other_caches_searches_for_itself(steady, asked, monkeypatch, size):
    device = Device["cpu"]
    with Context(BEAM=1):
        lowering.lower([kernel()], "cpu")
        n = len(asked)
        monkeypatch.setattr(device, "target", device.target._replace(**{size: getattr(device.target, size) * 2}))
        lowering.lower([kernel()], "cpu")
    assert len(asked) > n > 0


def test_an_interrupt_leaves_no_worker_and_no_entry(monkeypatch, tmp_path):
    started = []

    def interrupted(self, kernels):
        started.extend(self.pool.worker(i).process.pid for i in range(2))
        raise KeyboardInterrupt

    monkeypatch.setattr(benches.ProcessBench, "times", interrupted)
    with Context(BEAM=1), pytest.raises(KeyboardInterrupt):
        product()
    assert len(started) == 2 and not any(is_running(p) for p in started)
    assert not (tmp_path / "search").exists()
    monkeypatch.undo()
    np.testing.assert_allclose(product(), A @ B, rtol=1e-5, atol=1e-5)


def test_threads_search_in_turns(asked):
    found = []

    def work():
        found.append(product())

    with Context(BEAM=1):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(found) == 3
    for got in found:
        np.testing.assert_allclose(got, A @ B, rtol=1e-5, atol=1e-5)
    assert len({searching.name(k) for k in asked}) == len(asked)


LONG = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is born deaf to it
import numpy as np
from monolect import Tensor
a = np.ones((200, 210), np.float32)
print("searching", flush=True)
(Tensor(a) @ Tensor(a.T.copy())).numpy()
print("done", flush=True)
"""


def children(pid):
    out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(p) for p in out.stdout.split()]


def test_ctrl_c_ends_a_search_and_its_processes(tmp_path):
    env = {**os.environ, "BEAM": "8", "MONOLECT_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", LONG]
    program = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    program.stdout.readline()
    until = time.monotonic() + 30
    while len(workers := children(program.pid)) < 2:
        assert time.monotonic() < until and program.poll() is None
        time.sleep(0.05)
    time.sleep(1.0)
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to the whole group
    out, error = program.communicate(timeout=30)
    assert "KeyboardInterrupt" in error and "done" not in out
    assert not any(is_running(p) for p in workers)
    entries = tmp_path / "search"
    assert not entries.exists() or list(entries.iterdir()) == []


# ---- settings, summary, progress, commands ---------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["-1", "x", "1.5", "65"])
def test_a_bad_width_is_refused(text):
    with pytest.raises(SettingError, match="BEAM"):
        Settings({"BEAM": text})
    with pytest.raises(SettingError, match="BEAM"):
        Context(BEAM=-1)
    assert settings.BEAM == 0


def test_a_summary_at_debug_3(capfd):
    with Context(BEAM=1, DEBUG=3):
        product()
    err = capfd.readouterr().err
    assert "sum_20x36_r24: searched" in err and "found by BEAM=1" in err
    with Context(BEAM=1, DEBUG=3):
        lowering.lower([kernel()], "cpu")
    err = capfd.readouterr().err
    assert "searched" not in err and "found by BEAM=1" in err


def test_silent_otherwise(capfd):
    with Context(BEAM=1):
        product()
    assert capfd.readouterr() == ("", "")


@pytest.mark.sweep
@pytest.mark.parametrize("progress", [0, 1])
def test_a_bar_on_a_terminal_only(monkeypatch, progress):
    monkeypatch.setattr(tuning.sys.stderr, "isatty", lambda: True, raising=False)
    seen = []
    bar = tuning.Progress
    monkeypatch.setattr(tuning, "Progress", lambda *a, **k: seen.append(bar(*a, **k)) or seen[-1])
    with Context(BEAM=1, PROGRESS=progress):
        product()
    assert len(seen) == progress
    if progress:
        (task,) = seen[0].tasks
        assert "search 1/1 sum_20x36_r24" in task.description and task.completed == task.total > 0
        assert seen[0].finished


def test_the_commands_show_what_was_found(tmp_path, capsys, monkeypatch):
    found = (("SWAP", 0, 1),)
    monkeypatch.setattr(tuning, "search", lambda *a: searching.Found(found, 0.5, 1, 1))
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nfrom monolect import Tensor\n"
        "a, b = np.ones((22, 26), 'f4'), np.ones((26, 38), 'f4')\n(Tensor(a) @ Tensor(b)).numpy()\n"
    )
    text = tmp_path / "kernel.ir"
    text.write_text(show(ready()))
    with Context(BEAM=1):
        assert main(["explain", f"{program}:4"]) == 0
        assert f"actions\n  {found[0]}\n" in capsys.readouterr().out
        assert main(["run", str(text), "--from", "choose", "--to", "apply"]) == 0
        assert 'actions=(("SWAP", 0, 1),)' in capsys.readouterr().out
    assert main(["run", str(text), "--from", "choose", "--to", "apply"]) == 0
    assert 'actions=(("SWAP", 0, 1),)' not in capsys.readouterr().out
