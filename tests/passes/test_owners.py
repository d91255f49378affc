"""Loops own the places of an effect up to the last element that stays inside of one iteration, and no further."""

import pytest

from monolect.ir.text import parse
from monolect.ir.uop import toposort
from monolect.optimize.loops.sequence import owners, sequential_ranges


def addition(n_places: int, stride: int = 4):
    """p[r*stride + at[k]] += 1, where at[k] is below `n_places`."""
    return parse(f"""
        %rows = CONST idx[] (3, idx)
        %many = CONST idx[] (7, idx)
        %size = CONST idx[] (64, idx)
        %shape = STACK idx[1] %size
        %p = PARAM f32[64] %shape ParamArg(slot=0, dtype=f32, addrspace="GLOBAL")
        %q = PARAM i32[64] %shape ParamArg(slot=1, dtype=i32, addrspace="GLOBAL")
        %r = RANGE idx[] %rows (0, "LOOP")
        %k = RANGE idx[] %many (1, "LOOP")
        %named = INDEX i32[] %q %k
        %value = LOAD i32[] %named
        %t = CAST idx[] %value idx
        %less = CONST idx[] (-1, idx)
        %negative = MUL idx[] %t %less
        %index = CONST idx[] (1, idx)
        %above = CONST idx[] ({n_places}, idx)
        %low = CMPLT b1[] %negative %index
        %high = CMPLT b1[] %t %above
        %gate = AND b1[] %low %high
        %stride = CONST idx[] ({stride}, idx)
        %row = MUL idx[] %r %stride
        %place = ADD idx[] %row %t
        %to = INDEX f32[] %p %place
        %one = CONST f32[] (1.0, f32)
        %add = ATOMICADD void[] %to %one %gate
        %end = END void[] %add %r %k
        %sink = SINK void[] %end KernelInfo(name="k", actions=())
    """)


@pytest.mark.parametrize("n_places, owned", [(3, True), (4, True), (5, False), (64, False)])
def test_a_row_owns_what_is_inside_of_it(n_places, owned):
    """The fifth place of a row of four is the first of the next row."""
    order = toposort(addition(n_places))
    (effect,) = (u for u in order if u.op == "ATOMICADD")
    by_number = {r.arg[0] for r in owners(effect)}
    assert by_number == ({0} if owned else set())
    assert {r.arg[0] for r in sequential_ranges(order)} == ({1} if owned else {0, 1})
