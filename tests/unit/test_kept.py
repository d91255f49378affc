"""Schedules on disk: a second process makes none, a damaged one is made anew, and what is read is what was made."""

import os
import subprocess
import sys

import numpy as np
import pytest

from monolect import Tensor, pipeline
from monolect.base.errors import SettingError
from monolect.base.settings import Context
from monolect.base.target import Target
from monolect.ir.uop import node
from monolect.pipeline import schedule
from monolect.runtime import profile
from monolect.runtime.realize import execute
from monolect.runtime.realize import schedule_cache as kept
from monolect.schedule.callify import over_params, structure
from monolect.schedule.result import schedule_of

TWICE = """
import sys
import numpy as np
from monolect import Tensor
from monolect.runtime.realize import schedule_cache as kept
made = []
write = kept._write
kept._write = lambda *args: made.append(1) or write(*args)
x = Tensor(np.ones((64, 64), np.float32)).realize()
for _ in range(5):
    x = (x @ x).relu() * 0.01
print(len(made), float(x.sum().item()), len(made))
compilers = {"monolect.pipeline", "monolect.schedule.partition", "monolect.rules.algebra", "llvmlite"}
print(*sorted(compilers & sys.modules.keys()))
"""


def values():
    x = Tensor(np.ones((32, 32), np.float32)).realize()
    for _ in range(5):
        x = (x @ x).relu() * 0.1
    return [x.uop, x.sum().uop]


def batch():
    return list(over_params(values())[0].src)


def kept_schedule(roots):
    """As a batch is scheduled that has no structure, since it calls functions."""
    target, values = Target("cpu", frozenset()), node("TUPLE", tuple(roots))
    return schedule_of(kept.cached_schedule(values, target, kept.name_of(values, target)))


def test_what_is_read_is_what_was_made(tmp_path):
    roots = batch()
    with Context(MONOLECT_CACHE=str(tmp_path), VERIFY=0):
        made = kept_schedule(roots)
        assert [p for p in (tmp_path / "schedules").iterdir()]
        read = kept_schedule(roots)
    assert made.linear is read.linear and made.outputs == read.outputs
    assert made.linear is schedule(roots, "cpu", 0).linear


@pytest.mark.parametrize("text", [b"", b"no graph", b"%0 = CONST idx[] (4, idx)\n", "é".encode("latin1")])
def test_an_entry_that_is_no_schedule_is_a_miss(tmp_path, monkeypatch, text):
    roots = batch()
    with Context(MONOLECT_CACHE=str(tmp_path), VERIFY=0):
        want = kept_schedule(roots)
        monkeypatch.setattr(kept._cache, "get", lambda key: text)
        assert kept_schedule(roots).linear is want.linear


def test_a_schedule_of_other_roots_is_a_miss(tmp_path, monkeypatch):
    roots = batch()
    with Context(MONOLECT_CACHE=str(tmp_path), VERIFY=0):
        kept_schedule(roots)
        (stored,) = (kept._cache.get(key) for key in asked(monkeypatch, roots))
        monkeypatch.setattr(kept._cache, "get", lambda key: stored)
        assert len(kept_schedule(roots[:1]).outputs) == 1


def asked(monkeypatch, roots):
    """The keys that are looked for."""
    keys, get = [], kept._cache.get
    with monkeypatch.context() as m:
        m.setattr(kept._cache, "get", lambda key: keys.append(key) or get(key))
        kept_schedule(roots)
    return keys


def test_one_kernel_is_kept_too(tmp_path):
    with Context(MONOLECT_CACHE=str(tmp_path), VERIFY=0):
        sink, _, _ = over_params([(Tensor(np.ones(4, np.float32)).realize() + 1).uop])
        kept_schedule(list(sink.src))
    assert len(list((tmp_path / "schedules").iterdir())) == 1


def test_whoever_wants_to_see_the_users_lines_gets_a_new_one(tmp_path, monkeypatch):
    roots, made = batch(), []
    scheduled = pipeline.scheduled
    monkeypatch.setattr(pipeline, "scheduled", lambda *a: made.append(1) or scheduled(*a))
    with Context(MONOLECT_CACHE=str(tmp_path), VERIFY=0):
        for _ in range(2):
            kept_schedule(roots)
        assert len(made) == 1
        with Context(DEBUG=2):
            kept_schedule(roots)
        with profile.Recorder():
            kept_schedule(roots)
        assert len(made) == 3


def test_a_batch_is_found_before_its_function_is_made(tmp_path, monkeypatch):
    with Context(MONOLECT_CACHE=str(tmp_path), VERIFY=0):
        want = execute.to_numpy(execute.realize(values())[1])
        execute.plans.clear()
        monkeypatch.setattr(execute, "callify", None)
        np.testing.assert_array_equal(execute.to_numpy(execute.realize(values())[1]), want)
        n = len(execute.plans)
        execute.realize(values())  # and once only
        assert n == len(execute.plans) == 1
        with Context(STOP_AFTER="partition"), pytest.raises(SettingError):
            execute.plans.clear()
            execute.realize(values())


def test_batches_that_differ_are_told_apart():
    x, y = (Tensor(np.ones((4, 4), np.float32) * k).realize() for k in (1, 2))
    i = Tensor(np.ones((4, 4), np.int32)).realize()
    graphs = [
        x + y,
        x - y,
        x + x,
        y - x,
        x + i,
        x * 2,
        x * 3,
        x * -0.0,
        x * 0.0,
        x.sum(0),
        x.sum(1),
        x.reshape(2, 8) + 1,
    ]
    with Context(VERIFY=0):
        names = [kept.name_of(structure([g.uop])[0], Target("cpu", frozenset())) for g in graphs]
    assert names[0] and len(set(names)) == len(names) - 1  # but for the buffers, x - y is y - x
    assert names[1] == names[3]


def test_a_second_process_schedules_nothing(tmp_path):
    env = {**os.environ, "MONOLECT_CACHE": str(tmp_path), "VERIFY": "0", "CHECK_BOUNDS": "0"}
    command = [sys.executable, "-c", TWICE]
    runs = [
        subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split() for _ in range(2)
    ]
    assert runs[0][1] == runs[1][1]
    assert int(runs[0][2]) > 0 and int(runs[1][2]) == 0
    assert len(runs[0]) == 3 + 4 and len(runs[1]) == 3  # nor does it import the compiler
