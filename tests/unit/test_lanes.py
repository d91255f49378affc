"""Axes as lanes and workgroups: which axes are the same lanes, what fits into a launch."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect import ActionError
from monolect.ir.check.interp import evaluate
from monolect.ir.lanes import fitted, shared_lanes
from monolect.ir.uop import idx, toposort
from monolect.lower.gpu.launch import launched
from tests.strategies import often


def test_axes_that_never_meet_are_the_same_lanes():
    nests = [frozenset("ab"), frozenset("bc"), frozenset("d")]
    assert shared_lanes([("a", 8), ("b", 8), ("c", 8)], nests) == [["a", "c"], ["b"]]
    assert shared_lanes([("a", 8), ("c", 4)], nests) == [["a"], ["c"]]  # of another size
    assert shared_lanes([("a", 8), ("d", 8), ("c", 8)], nests) == [["a", "d", "c"]]
    assert shared_lanes([], nests) == []


def test_dimensions_are_cut_anew_where_one_is_too_long():
    assert fitted([100, 20], (128, 64, 64)) is None  # one each
    assert fitted([1000], (128, 64, 64)) == [125, 8, 1]
    assert fitted([4, 100, 3], (128, 64, 64)) == [120, 10, 1]
    assert fitted([2, 2, 8, 16], (128, 64, 64)) == [128, 4, 1]
    with pytest.raises(ActionError, match="too many gidx"):
        fitted([257], (128, 64, 64))


@given(st.lists(st.integers(1, often(4, 6)), min_size=1, max_size=5), st.sampled_from([(), (4, 4, 60), (64, 8, 8)]))
def test_every_iteration_is_launched_once(sizes, limits):
    """Over all values of the SPECIALs, the axes take each combination of values once, the first running fastest."""
    try:
        values = launched([idx(n) for n in sizes], "gidx", limits)
    except ActionError:
        return
    names = sorted({u for v in values for u in toposort(v) if u.op == "SPECIAL"}, key=lambda u: u.arg)
    counts = [u.src[0].value for u in names]
    assert prod(counts) == prod(sizes) and len(counts) <= 3
    assert all(n <= m for n, m in zip(counts, limits, strict=False))
    seen = []
    for flat in np.ndindex(*counts[::-1]):
        env = dict(zip(names, flat[::-1], strict=True))
        seen.append(tuple(int(evaluate(v, env)) for v in values))
    assert seen == [at[::-1] for at in np.ndindex(*sizes[::-1])]
