"""PACK: the loops of one copy may run in any order, so each element of the block is written by one of them."""

from itertools import combinations

import numpy as np
from hypothesis import given, settings

from monolect.ir.normal import linear
from monolect.ir.uop import toposort
from monolect.optimize.apply import apply_actions
from tests.passes.test_actions import TARGET, made, tiles_of_units

MOST_PARTS = 8  # copies of one block: the last iterations of three loops apart


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
