"""Jobs: work done by threads while the caller makes more; and LLVM in several of them."""

import sys
import threading
import time

import numpy as np
import pytest

from monolect import Context, Tensor
from monolect.backend.common.jobs import Jobs
from monolect.backend.common.llvm.compile import Compiler
from monolect.backend.cpu.runtime import CpuDevice
from monolect.backend.registry import Device
from monolect.base.errors import CompileError
from monolect.pipeline import schedule
from monolect.runtime.realize.programs import compile_kernels
from monolect.runtime.replay.capture import has_lock
from monolect.schedule.callify import over_params

WAIT_S = 20.0


@pytest.fixture(autouse=True)
def none_left():
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def test_results_stand_in_the_order_of_the_items():
    with Jobs(lambda x: time.sleep(x % 3 / 1000) or x * x, 3) as jobs:
        for x in range(20):
            jobs.add(x)
        assert jobs.results() == [x * x for x in range(20)]


def test_no_items_no_results():
    with Jobs(lambda x: x, 2) as jobs:
        assert jobs.results() == []


def test_one_thread_is_the_callers_own():
    with Jobs(lambda _: threading.get_ident(), 1) as jobs:
        for x in range(5):
            jobs.add(x)
        assert jobs.results() == [threading.get_ident()] * 5


def test_others_work_while_the_caller_adds():
    begun = threading.Event()
    with Jobs(lambda _: begun.set(), 2) as jobs:
        jobs.add(0)
        assert begun.wait(WAIT_S)
        jobs.results()


def test_two_jobs_run_at_the_same_time():
    meeting = threading.Barrier(2, timeout=WAIT_S)
    with Jobs(lambda _: meeting.wait() >= 0, 2) as jobs:
        jobs.add(0)
        jobs.add(1)
        assert jobs.results() == [True, True]


def test_the_interpreter_switches_more_often_for_as_long_as_threads_work():
    before, seen = sys.getswitchinterval(), []
    with pytest.raises(KeyError), Jobs(lambda _: seen.append(sys.getswitchinterval()), 2) as jobs:
        for x in range(3):
            jobs.add(x)
        jobs.results()
        assert sys.getswitchinterval() == before
        raise KeyError
    assert all(0 < s <= before for s in seen) and min(seen) < before and sys.getswitchinterval() == before


def test_an_error_is_raised_and_what_was_not_begun_is_dropped():
    done = []

    def work(x):
        if x == 0:
            raise ValueError("the first")
        done.append(x)

    with Jobs(work, 1) as jobs:
        for x in range(50):
            jobs.add(x)
        with pytest.raises(ValueError, match="the first"):
            jobs.results()
    assert done == []


def test_an_error_of_the_caller_ends_the_threads():
    release, begun, done = threading.Event(), threading.Event(), []

    def work(x):
        begun.set()
        release.wait(WAIT_S)
        done.append(x)

    with pytest.raises(KeyError), Jobs(work, 2) as jobs:
        for x in range(10):
            jobs.add(x)
        begun.wait(WAIT_S)
        threading.Timer(0.05, release.set).start()
        raise KeyError
    assert done == [0]


def test_without_threads_to_be_had_the_caller_does_it(monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with Jobs(lambda x: -x, 4) as jobs:
        for x in range(3):
            jobs.add(x)
        assert jobs.results() == [0, -1, -2]


def kernel(k: int) -> str:
    body = "\n".join(f"  %v{i} = fmul <16 x float> %v{i - 1}, splat (float {k + i}.0)" for i in range(1, 200))
    return (
        f"define void @f{k}(ptr %a) {{\n  %v0 = load <16 x float>, ptr %a, align 4\n{body}\n"
        f"  store <16 x float> %v199, ptr %a, align 4\n  ret void\n}}\n"
    )


def longest_wait(work) -> float:
    """The longest time in which the interpreter was not to be had while a thread did `work`, as a part of its time."""
    spent = []

    def timed():
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)

    thread = threading.Thread(target=timed)
    longest, last = 0.0, time.perf_counter()
    thread.start()
    while thread.is_alive():
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    thread.join()
    return max(longest, time.perf_counter() - last) / spent[0]


def long_text(n: int) -> str:
    """A module whose code takes LLVM a while."""
    lines = [f"  %x{k + 1} = fmul <16 x float> %x{k}, %x{k // 2}" for k in range(n)]
    return f"""define void @kernel(ptr %p) {{
  %x0 = load <16 x float>, ptr %p
{chr(10).join(lines)}
  store <16 x float> %x{n}, ptr %p
  ret void
}}
"""


def test_a_thread_that_counts_goes_on_while_another_compiles():
    """Generating code is one call of LLVM's: with the interpreter locked the wait would be most of it."""
    compiler, text, exponent = Compiler(), long_text(2500), 1_500_000
    compiler.compile(long_text(1))
    waits = (longest_wait(lambda: compiler.compile(text)) for _ in range(5))  # others may want this processor, too
    assert any(wait < 0.25 for wait in waits)
    if has_lock():
        assert longest_wait(lambda: pow(3, exponent)) > 0.5, "what does not let go of the interpreter is seen"


def test_llvm_in_threads_makes_the_same_bytes():
    compiler = Compiler()
    texts = [kernel(k) for k in range(12)] + ["define void @f() {\n  ret i32 0\n}\n"]
    alone = [compiler.compile(t) for t in texts[:-1]]

    def work(text):
        try:
            return compiler.compile(text)
        except CompileError as error:
            return str(error)

    with Jobs(work, 4) as jobs:
        for t in texts * 3:
            jobs.add(t)
        got = jobs.results()
    assert got[:12] == got[13:25] == got[26:38] == alone
    assert all("line 2" in text for text in got[12::13])


@pytest.mark.parametrize("n_threads", [1, 4])
def test_kernels_are_compiled_as_modules_by_that_many_threads(n_threads, monkeypatch):
    device = CpuDevice()
    device.module_instructions = 1
    monkeypatch.setitem(Device._open, "cpu", device)
    threads, emit = set(), device.emit
    device.emit = lambda source: threads.add(threading.get_ident()) or time.sleep(0.02) or emit(source)
    sink, _, _ = over_params([Tensor(np.ones((7, 5 + k), np.float32)).sum(0).uop for k in range(4)])
    sinks = [call.src[0] for call in schedule(list(sink.src), "cpu", 0).linear.src]
    with Context(COMPILE_CACHE=0, COMPILE_THREADS=n_threads):
        programs = compile_kernels(sinks, "cpu")
    assert len({p.entry for p in programs.values()}) == len(set(sinks)) == 4
    assert all(p.source.count("define void") == 1 for p in programs.values())
    assert (threads == {threading.get_ident()}) == (n_threads == 1)
