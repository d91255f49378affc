"""Reductions over the same loop begin and add alike: what one of them may not do, none of them does."""

import pytest

from monolect.ir.text import parse
from monolect.ir.uop import UOp, toposort
from monolect.lower.blocked_sums import fold_sums
from monolect.lower.peel_last import peel_last
from monolect.lower.reduce import lower_reduce


def kernel(n: int, second: str) -> UOp:
    """A sum over r of what is masked in its last step, and a sum of `second` over r, too."""
    return parse(f"""
        %n = CONST idx[] ({n}, idx)
        %all = CONST idx[] ({8 * n}, idx)
        %eight = CONST idx[] (8, idx)
        %one = CONST idx[] (1, idx)
        %shape = STACK idx[1] %all
        %of_one = STACK idx[1] %one
        %out = PARAM f32[1] %of_one ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
        %p = PARAM f32[{8 * n}] %shape ParamArg(slot=1, dtype=f32, addrspace="GLOBAL")
        %r = RANGE idx[] %n (1000, "REDUCE")
        %k = RANGE idx[] %eight (1001, "REDUCE")
        %last = CONST idx[] ({n - 1}, idx)
        %c = CMPLT b1[] %r %last
        %at = INDEX f32[] %p %r
        %x = LOAD f32[] %at
        %zero = CONST f32[] (0.0, f32)
        %masked = WHERE f32[] %c %x %zero
        %a = REDUCE f32[] %masked %r ("ADD", ())
        %row = MUL idx[] %r %eight
        %place = ADD idx[] %row %k
        %in_row = INDEX f32[] %p %place
        %y = LOAD f32[] %in_row
        %inner = REDUCE f32[] %y %k ("MAX", ())
        %b = REDUCE f32[] {second} %r ("ADD", ())
        %sum = ADD f32[] %a %b
        %first = CONST idx[] (0, idx)
        %to = INDEX f32[] %out %first
        %store = STORE void[] %to %sum
        %sink = SINK void[] %store KernelInfo(name="k", actions=())
    """)


@pytest.mark.parametrize("second, alike", [("%x", True), ("%inner", False)])
def test_a_loop_does_its_last_step_first_for_all_of_its_sums_or_none(second, alike):
    """One with a loop of its own inside would stand in the code twice."""
    assert (peel_last(kernel(5, second)) is not kernel(5, second)) is alike


@pytest.mark.parametrize("second, alike", [("%x", True), ("%inner", False)])
def test_the_sums_of_a_long_loop_are_added_part_by_part_all_or_none(second, alike):
    assert (fold_sums(kernel(600, second)) is not kernel(600, second)) is alike


@pytest.mark.parametrize("second", ["%x", "%inner"])
@pytest.mark.parametrize("n", [5, 600])
def test_no_reduction_is_left(n, second):
    lowered = lower_reduce(fold_sums(peel_last(kernel(n, second))))
    assert not any(u.op == "REDUCE" for u in toposort(lowered))
