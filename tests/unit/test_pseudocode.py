"""A kernel as loops and formulas: what is shared has a name, what is long too, and any stage can be written."""

import re

import numpy as np
import pytest

from monolect import Context, Tensor
from monolect.backend.registry import Device
from monolect.ir.ops import ROWS
from monolect.ir.pseudocode import _INFIX, pseudocode
from monolect.ir.text import parse
from monolect.pipeline import KERNEL, lower_kernel, schedule
from monolect.runtime.realize.lowering import READY
from monolect.schedule.callify import over_params


def kernel(t, last=READY):
    sink, _, _ = over_params([t.uop])
    (call,) = schedule(list(sink.src), "null").linear.src
    return lower_kernel(call.src[0], Device["null"].target, last=last)


def array(*shape):
    return Tensor(np.ones(shape, np.float32))


def test_a_softmax_names_what_is_used_twice():
    text = pseudocode(kernel(array(8, 16).softmax(1)))
    assert text.startswith("for r0 < 8:\n  for r1000 < 16:\n    t1 = p1[r0*16 + r1000]\n  t2 = max(r1000 < 16: t1)\n")
    assert text.endswith("sum(r1000 < 16: exp2((t1 - t2) * 1.4426950216293335))")


def test_parentheses_stand_where_they_are_needed():
    def formula(t):
        return re.sub(r"p\d\[r0\]", "p", pseudocode(kernel(t)).splitlines()[-1].strip())

    x, y, z = (Tensor(np.full(5, k, np.float32)) for k in (1, 2, 3))
    assert formula((x + y) * z) in ("p = (p + p) * p", "p = p * (p + p)")  # operands stand in the order they were made
    assert formula(x - (y - z)) == "p = p - (p - p)"
    assert formula(x - y - z) == "p = p - p - p"


def test_masks_and_running_sums():
    assert " if " in pseudocode(kernel(array(4, 4).pad((1, 1))))
    text = pseudocode(kernel(array(3, 7).cumsum(1)))
    assert text.startswith("for r0 < 3:\n  reg0 = 0.0\n  for r1 < 7:\n    reg0 = ")
    assert text.endswith("    p0[r0*7 + r1] = f32(reg0)")


def test_the_text_is_linear_in_the_graph():
    x = array(4)
    for _ in range(60):
        x = x * x + x
    text = pseudocode(kernel(x))
    assert len(text) < 20_000 and max(map(len, text.splitlines())) < 200


def test_blocks_of_values_have_names_too():
    rows = Tensor(np.arange(1000, dtype=np.float32)[::-1].copy()).sort()[0]
    text = pseudocode(kernel(rows))
    assert len(text) < 100_000 and max(map(len, text.splitlines())) < 2000


@pytest.mark.parametrize("last", [row.name for row in KERNEL])
def test_every_stage_can_be_written(last):
    with Context(VERIFY=0):
        assert pseudocode(kernel((array(33, 40) @ array(40, 50)).exp(), last))


def test_only_ops_have_a_notation():
    assert set(_INFIX) <= set(ROWS)


def test_a_kernel_from_text():
    lines = (
        "%0 = CONST idx[] (8, idx)",
        '%1 = RANGE idx[] %0 (0, "LOOP")',
        "%2 = STACK idx[1] %0",
        "%3 = PARAM f32[8] %2 ParamArg(slot=0, dtype=f32)",
        "%4 = INDEX f32[] %3 %1",
        "%5 = LOAD f32[] %4",
        "%6 = NEG f32[] %5",
        "%7 = STORE void[] %4 %6",
        "%8 = END void[] %7 %1",
        "%9 = SINK void[] %8 KernelInfo()",
    )
    ir = parse("\n".join(lines) + "\n")
    assert pseudocode(ir) == "for r0 < 8:\n  p0[r0] = -p0[r0]"
