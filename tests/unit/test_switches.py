"""SIMPLIFY and DISABLE switch off what they name, and no cache mixes up results with and without it."""

import os
import subprocess
import sys

import numpy as np
import pytest

from monolect import Context, Device, JitError, Tensor, jit
from monolect.base.settings import settings
from monolect.command.rewrites import rebase
from monolect.ir.rewrite import index, normal
from monolect.ir.uop import UOp, idx, node
from monolect.optimize import cost
from monolect.pipeline import KERNEL, PIPELINE, lower_kernel, schedule
from monolect.runtime import profile
from monolect.runtime.realize import schedule_cache as kept
from monolect.runtime.realize.programs import key_of, loaded
from monolect.schedule.callify import over_params

X, Y = (node("RANGE", (idx(n),), (k, "LOOP")) for k, n in enumerate((7, 5)))


def array(*shape):
    return Tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))


def source(x):
    """The code of the kernel that computes `x * 3`."""
    with profile.Recorder() as kernels:
        assert (x * 3).tolist() == (x.numpy() * 3).tolist()
    return loaded[kernels[-1].call.src[0]].source


def first_kernel(x: Tensor) -> UOp:
    sink, _, _ = over_params([x.uop])
    return schedule(list(sink.src), "cpu", 1 << 20).linear.src[0].src[0]


def test_an_action_that_is_off_is_not_chosen_and_plans_are_kept_apart():
    x = array(6, 43)
    x.realize()
    plain = source(x)
    with Context(DISABLE="SPLIT_UPCAST"):
        off = source(x)
    assert "x float>" in plain and "x float>" not in off
    assert source(x) == plain


@pytest.mark.parametrize("name", [p.name for p in PIPELINE if p.optional and p in KERNEL])
def test_a_pass_that_is_off_leaves_the_kernel_as_it_was(name, monkeypatch):
    rows = {row.name: row for row in KERNEL}
    called = []
    rows[name] = rows[name]._replace(run=lambda ir, target: called.append(ir) or ir)
    monkeypatch.setattr("monolect.pipeline.KERNEL", tuple(rows.values()))
    kernel = first_kernel((array(6, 44) * 2).sum(1))
    lower_kernel(kernel, Device["cpu"].target)
    assert len(called) == 1
    with Context(DISABLE=name):
        lower_kernel(kernel, Device["cpu"].target)
    assert len(called) == 1


def test_raw_nodes_are_what_was_asked_for():
    with Context(SIMPLIFY=0):
        assert (X * 5 + Y) // 5 is node("IDIV", (node("ADD", (node("MUL", (X, idx(5))), Y)), idx(5)))
        assert Y + X is node("ADD", (Y, X)) and X + 0 is node("ADD", (X, idx(0)))
        assert idx(2) + idx(3) is idx(5) and idx(7) // idx(2) is idx(3), "sizes are numbers"
        raw = Y + X * 2 + (X + 3) * -2 + Y
        x = array(2, 3).realize()
        assert (x.T.T.reshape(3, 2).reshape(2, 3) * 1).uop.op == "MUL"
    assert (X * 5 + Y) // 5 is X
    assert index.linear(raw) == (-6, ((Y, 2),)), "terms are found in nodes of any form"
    assert index.allowed is None and normal.allowed is None


def test_one_identity_is_off():
    with Context(DISABLE="index_div_multiples,index_div_common"):
        assert ((X * 7 + 9) // 7) is node("IDIV", (X * 7 + 9, idx(7)))
        assert X + 0 is X
    with Context(DISABLE="index_sum"):
        assert Y + X is node("ADD", (Y, X))
    assert Y + X is X + Y


def test_settings_are_restored_and_names_are_in_order():
    with Context(DISABLE="mul_one,add_zero, mul_one"):
        assert settings.DISABLE == "add_zero,mul_one" and settings.disabled == {"add_zero", "mul_one"}
        with Context(SIMPLIFY=0):
            assert settings.switches == "/0/add_zero,mul_one"
    assert settings.disabled == frozenset() and settings.switches == ""


def test_keys_of_caches_hold_what_is_off():
    kernel = first_kernel(array(6, 45) + 1)
    target, keys, names = Device["cpu"].target, set(), set()
    contexts = [{}, {"SIMPLIFY": 0}, {"DISABLE": "PEEL"}, {"DISABLE": "PEEL,PADTO"}]
    for off in contexts:
        with Context(**off):
            keys.add(key_of(kernel))
            names.add(kept.name_of(node("TUPLE", (array(6, 45).uop,)), target))
            assert settings.choices[4:6] == settings.steering[8:10] == (off.get("SIMPLIFY", 1), settings.DISABLE)
    assert len(keys) == len(contexts) and len(names - {""}) in (0, len(contexts))


def test_caches_without_such_keys_are_emptied():
    (array(33, 40) / 3 % 5).exp().sum(1).realize()
    lower_kernel(first_kernel((array(33, 40) / 3).exp()), Device["cpu"].target)
    rebase.rebased_kernel(first_kernel(array(6, 46)[2:] + 1), 2)
    caches = [cost._decomposed, rebase.rebased_kernel]
    assert all(c.cache_info().currsize for c in caches)
    with Context(DISABLE="PEEL"):
        assert not any(c.cache_info().currsize for c in caches)


def test_a_captured_step_is_another_one_with_something_off(tmp_path):
    w = array(8).realize()
    step = jit(lambda x: (x * w).sum(0))
    x = array(5, 8).realize()
    want = step(x).tolist()
    with Context(DISABLE="SPLIT_UPCAST"):
        assert step(x).tolist() == step(x).tolist() == want
        step.save(tmp_path / "a.step")
        assert jit.load(tmp_path / "a.step")(x).tolist() == want
    assert step(x).tolist() == want
    only = jit(lambda x: (x * w).sum(0))
    with Context(DISABLE="SPLIT_UPCAST"):
        only(x), only(x)
        only.save(tmp_path / "b.step")
    with pytest.raises(JitError, match="captured under other settings") as e:
        jit.load(tmp_path / "b.step")(x)
    assert "DISABLE=SPLIT_UPCAST" in str(e.value)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "said"), [("mul_ane", "mul_one (did you mean that?)"), ("expand", "cannot be switched off")]
)
def test_a_name_in_the_environment_is_checked_when_monolect_is_imported(name, said):
    command = [sys.executable, "-c", "import monolect"]
    done = subprocess.run(command, env={**os.environ, "DISABLE": name}, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and said in done.stderr
