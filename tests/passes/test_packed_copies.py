"""PACK for tiles of matrix units: packed operands hold what the kernel reads. The loops of one copy may run in any order,
so each element of the block is written by one of them.
"""

import contextlib
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import ActionError
from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import toposort
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.apply import apply_actions
from tests.passes.test_actions import PROGRAMS, TARGET, UNITS, made, run, written
from tests.strategies import COMPILED

MOST_PARTS = 8  # copies of one block: the last iterations of three loops apart


@st.composite
def tiles_of_units(draw):
    """(program, actions): a tile of a unit, blocks of the sum, packed operands."""
    name = draw(st.sampled_from([name for name in PROGRAMS if "axes" in name and "product" in name]))
    plan = LoopPlan(made(name)[0], TARGET)
    lane, row = draw(st.permutations(plan.outputs))
    fits = [u for u in UNITS if u.n == 16 and u.acc is plan.reduces[0].dtype]
    deep, unit = draw(st.sampled_from(plan.reduced)), draw(st.sampled_from(fits))
    n_rows, n_blocks = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 1, 2, 3]))
    with contextlib.suppress(ActionError):
        for root, n in ((lane, unit.n), (row, n_rows), (deep, unit.k)):
            if plan.size(root) % n:
                plan.act(("PADTO", plan.axis_of(root), n))
        plan.act(("SPLIT", plan.axis_of(lane), (unit.n, "UPCAST", False)))
        if n_rows > 1:
            plan.act(("SPLIT", plan.axis_of(row), (n_rows, "UPCAST", False)))
        plan.act(("TC", plan.axis_of(deep), unit.name))
        if n_blocks > 1:
            plan.act(("SPLIT", plan.axis_of(deep, "REDUCE"), (n_blocks, "LOOP", True)))
    for load in draw(st.sampled_from([(0,), (1,), (0, 1)])):
        with contextlib.suppress(ActionError):
            plan.act(("PACK", load, None))
    return name, tuple(plan.actions)


def places(end):
    """The elements of local memory that the loops of an END write."""
    start, terms = linear(end.src[0].src[0].src[1])
    at = np.full(1, start)
    for r, step in terms:
        at = (at[:, None] + step * np.arange(r.src[0].value)).reshape(-1)
    return at


@settings(max_examples=2 * settings().max_examples)
@given(tiles_of_units())
def test_parts_of_a_copy_write_different_elements(case):
    name, actions = case
    kernel = apply_actions(made(name)[0], actions, TARGET)
    for u in toposort(kernel):
        parts = [s for s in u.src[1:] if s.op == "END"] if u.op == "AFTER" and u.src[0].op == "BUFFER" else []
        assert len(parts) <= MOST_PARTS
        for a, b in combinations(map(places, parts), 2):
            assert not np.intersect1d(a, b).size, case


@COMPILED
@given(tiles_of_units())
def test_tiles_of_packed_operands_keep_results(case):
    name, actions = case
    kernel, arrays, wanted = made(name)
    got = [a.copy() for a in arrays]
    run(apply_actions(kernel, actions, TARGET), got, f"test/{name}/{actions}")
    for p in written(kernel):
        k = p.arg.slot
        np.testing.assert_array_equal(got[k].view(p.dtype.numpy), wanted[k].view(p.dtype.numpy))
