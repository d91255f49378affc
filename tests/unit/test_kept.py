"""Schedules on disk: a second process makes none, a damaged one is made anew, and what is read is what was made."""

import os
import subprocess
import sys

import numpy as np
import pytest

from monolect import Tensor
from monolect.base.settings import Context
from monolect.runtime import kept, profile
from monolect.runtime.callify import callify
from monolect.schedule.order import schedule

TWICE = """
import sys
import numpy as np
from monolect import Tensor
from monolect.runtime import kept
made = []
schedule = kept._schedule
kept._schedule = lambda *a: made.append(1) or schedule(*a)
x = Tensor(np.ones((64, 64), np.float32)).realize()
for _ in range(5):
    x = (x @ x).relu() * 0.01
print(len(made), float(x.sum().item()), len(made))
compilers = {"monolect.pipeline", "monolect.schedule.partition", "monolect.rules.algebra", "llvmlite"}
print(*sorted(compilers & sys.modules.keys()))
"""


def batch():
    x = Tensor(np.ones((32, 32), np.float32)).realize()
    for _ in range(5):
        x = (x @ x).relu() * 0.1
    sink, _, _ = callify([x.uop, x.sum().uop])
    return list(sink.src)


def test_what_is_read_is_what_was_made(tmp_path):
    roots = batch()
    with Context(MONOLECT_CACHE=str(tmp_path), VERIFY=0):
        made = kept.kept_schedule(roots, "cpu", 0)
        assert [p for p in (tmp_path / "schedules").iterdir()]
        read = kept.kept_schedule(roots, "cpu", 0)
    assert made.linear is read.linear and made.outputs == read.outputs
    assert made.linear is schedule(roots, "cpu", 0).linear


@pytest.mark.parametrize("text", [b"", b"no graph", b"%0 = CONST idx[] (4, idx)\n", "é".encode("latin1")])
def test_an_entry_that_is_no_schedule_is_a_miss(tmp_path, monkeypatch, text):
    roots = batch()
    with Context(MONOLECT_CACHE=str(tmp_path), VERIFY=0):
        want = kept.kept_schedule(roots, "cpu", 0)
        monkeypatch.setattr(kept._cache, "get", lambda key: text)
        assert kept.kept_schedule(roots, "cpu", 0).linear is want.linear


def test_a_schedule_of_other_roots_is_a_miss(tmp_path, monkeypatch):
    roots = batch()
    with Context(MONOLECT_CACHE=str(tmp_path), VERIFY=0):
        kept.kept_schedule(roots, "cpu", 0)
        (stored,) = (kept._cache.get(key) for key in asked(monkeypatch, roots))
        monkeypatch.setattr(kept._cache, "get", lambda key: stored)
        assert len(kept.kept_schedule(roots[:1], "cpu", 0).outputs) == 1


def asked(monkeypatch, roots):
    """The keys that are looked for."""
    keys, get = [], kept._cache.get
    with monkeypatch.context() as m:
        m.setattr(kept._cache, "get", lambda key: keys.append(key) or get(key))
        kept.kept_schedule(roots, "cpu", 0)
    return keys


def test_few_kernels_are_not_kept(tmp_path):
    with Context(MONOLECT_CACHE=str(tmp_path), VERIFY=0):
        sink, _, _ = callify([(Tensor(np.ones(4, np.float32)).realize() + 1).uop])
        kept.kept_schedule(list(sink.src), "cpu", 0)
    assert not (tmp_path / "schedules").exists()


def test_whoever_wants_to_see_the_users_lines_gets_a_new_one(tmp_path, monkeypatch):
    roots, made = batch(), []
    monkeypatch.setattr(kept, "_schedule", lambda *a: made.append(1) or schedule(*a))
    with Context(MONOLECT_CACHE=str(tmp_path), VERIFY=0):
        for _ in range(2):
            kept.kept_schedule(roots, "cpu", 0)
        assert len(made) == 1
        with Context(DEBUG=2):
            kept.kept_schedule(roots, "cpu", 0)
        with profile.Recorder():
            kept.kept_schedule(roots, "cpu", 0)
        assert len(made) == 3


def test_a_second_process_schedules_nothing(tmp_path):
    env = {**os.environ, "MONOLECT_CACHE": str(tmp_path), "VERIFY": "0"}
    command = [sys.executable, "-c", TWICE]
    runs = [
        subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split() for _ in range(2)
    ]
    assert runs[0][1] == runs[1][1]
    assert int(runs[0][2]) > 0 and int(runs[1][2]) == 0
    assert len(runs[0]) == 3 + 4 and len(runs[1]) == 3  # nor does it import the compiler
