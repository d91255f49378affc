"""Random programs of values made from an array, views of all of their elements, and writes to the array meanwhile.

A value is what it was when it, or one of its views, was first computed: all of them show it from then on, whatever is
written to the array. A write through one of them reaches the others. The oracle is NumPy.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from monolect import Tensor

VIEWS: dict[str, Any] = {
    "detach": lambda t: t.detach() if isinstance(t, Tensor) else t,
    "reshape": lambda t: t.reshape(t.shape[1], t.shape[0]),
    "T": lambda t: t.T,
    "flip": lambda t: t[::-1],
    "all columns": lambda t: t[:, : t.shape[1]],
}
FACTORS = (2, 3)
Program = list[tuple[str, int, Any]]  # (action, number of a name, what)
programs = st.lists(
    st.one_of(
        st.tuples(st.just("view"), st.integers(0, 7), st.sampled_from([*VIEWS])),
        st.tuples(st.sampled_from(["compute", "write", "drop", "array"]), st.integers(0, 7), st.integers(1, 4)),
    ),
    max_size=12,
)


def differs(program: Program) -> bool:
    array = np.arange(6.0).reshape(2, 3)
    values: dict[int, np.ndarray] = {}  # by factor, of what was computed
    names = [(Tensor(array) * k, k, tuple[str, ...]()) for k in FACTORS]

    def shown(k: int, path: tuple[str, ...]) -> np.ndarray:
        value = values.setdefault(k, array * k)
        for name in path:
            value = VIEWS[name](value)
        return value

    for action, i, what in [*program, *(("compute", i, 0) for i in range(len(program) + 2))]:
        if action == "array":
            array[:] = np.arange(6.0).reshape(2, 3) + what
        if action == "array" or not names:
            continue
        t, k, path = names[i % len(names)]
        if action == "drop":
            names.pop(i % len(names))
        elif action == "view" and (what != "reshape" or {*path} <= {"detach", "reshape"}):  # else it may be a copy
            names.append((VIEWS[what](t), k, (*path, what)))
        elif action == "write":
            t *= what
            t.realize()
            view = shown(k, path)
            view *= what
        elif action == "compute" and not np.array_equal(t.realize().numpy(), shown(k, path)):
            return True
    return False


@given(programs)
def test_views_show_what_was_computed_first(program: Program) -> None:
    assert not differs(program)


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monolect.tensor.view._shows_all", lambda t: False)
    find(programs, differs, settings=settings(max_examples=1000, phases=[Phase.generate], database=None))
