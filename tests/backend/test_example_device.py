"""The device that docs/how-to/add-a-device.md builds, as it stands on the page, through the suite of ops."""

from pathlib import Path

import numpy as np
import pytest

from monolect import DeviceError, Tensor, Variable, jit
from monolect.backend.registry import TARGETS, Device
from monolect.base.errors import CompileError
from monolect.cli import main
from monolect.ir.uop import node
from tests.backend import test_ops_suite as suite
from tests.docs.pages import blocks

PAGE = Path(__file__).parents[2] / "docs/how-to/add-a-device.md"


@pytest.fixture(scope="module")
def page():
    names = {"__name__": "__page__"}
    opened, own = dict(Device._open), dict(Device._own)
    for line, source in blocks(PAGE.read_text()):
        exec(compile("\n" * (line - 1) + source, str(PAGE), "exec"), names)
    yield names
    Device._open, Device._own = opened, own


def test_it_is_short(page):
    code = [line for _, source in blocks(PAGE.read_text()) for line in source.splitlines() if line.strip()]
    assert len(code) <= 130 and Device["toy"].__class__ is page["ToyDevice"]


@pytest.mark.sweep
@pytest.mark.parametrize("op", suite.OPS)
def test_ops(page, op):
    suite.test_elementwise(op, "toy")


@pytest.mark.sweep
@pytest.mark.parametrize("d", suite.DTYPES, ids=lambda d: d.name)
def test_dtypes(page, d):
    suite.test_casts_between_all_dtypes(d, "toy")
    suite.test_bitcasts("toy", d)
    if d.bits > 8 or not d.is_float:  # a sum that is asked for in 8 bits is added in 8 bits, element by element
        suite.test_reductions("ADD", d, "toy")
    suite.test_sums_by_place("toy", d)


@pytest.mark.sweep
@pytest.mark.parametrize("name", suite.PROGRAMS)
def test_programs(page, name):
    suite.test_programs(name, "toy")


@pytest.mark.parametrize("d", [d for d in suite.DTYPES if d.is_int], ids=lambda d: d.name)
def test_integers(page, d):
    suite.test_division_by_zero_is_zero_and_the_smallest_wraps("toy", d)
    suite.test_shifts_outside_of_the_bits("toy", d)


def test_corners(page):
    suite.test_division_rounds_down_and_the_remainder_has_the_sign_of_the_divisor("toy")
    suite.test_bitcast_between_sizes("toy")
    suite.test_a_maximum_of_nan_is_nan_and_of_nothing_special_is_right("toy")


@pytest.mark.parametrize("d", suite.NARROW, ids=lambda d: d.name)
def test_narrow_floats(page, d):
    suite.test_narrow_floats_are_storage("toy", d)


def test_a_step_is_replayed(page):
    step = jit(lambda x: (x * 2).sum(0))
    for k in range(4):
        assert step(Tensor(np.full((3, 2), k, np.float32), device="toy")).tolist() == [6 * k] * 2


def test_sizes_may_be_symbolic(page):
    n = Variable("n", 1, 8)
    x = Tensor(np.arange(8, dtype=np.float32), device="toy")
    for k in (3, 8):
        with n.bind(k):
            assert (x[:n] * 2).sum().item() == k * (k - 1)


def test_it_is_listed_and_its_errors_say_what_is_wrong(page, capsys):
    assert Device.present()["toy"] == "" and "toy" in Device.targets()
    assert main(["devices"]) == 0
    assert "toy" in capsys.readouterr().out
    with pytest.raises(CompileError, match="toy has no BARRIER"):
        page["render"]("program", [node("BARRIER", ())])


@pytest.mark.parametrize("name", ["cpu", "disk", "My Device", "toy:1", "", "Toy", 7])
def test_a_device_needs_a_name_of_its_own(name):
    with pytest.raises(DeviceError, match="name"):
        Device.register(name, object)
    assert set(Device.targets()) >= set(TARGETS)


def test_a_device_is_opened_with_the_name_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(Device, "_own", {})
    monkeypatch.setattr(Device, "_open", {})
    opened = []
    Device.register("own", lambda name: opened.append(name) or object())
    assert Device["own:1"] is Device["OWN:1"] is not Device["own"]
    assert opened == ["own:1", "own"]
    first = Device["own"]
    Device.register("own", lambda name: object())
    assert Device["own"] is not first, "the class that was registered last"
    with pytest.raises(DeviceError, match="unknown device") as caught:
        Device["ow"]
    assert "own (did you mean that?)" in str(caught.value)
