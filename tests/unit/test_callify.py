"""The structure of a batch: equal for the same program on other buffers, different for any other program."""

import numpy as np
import pytest

from monolect import Tensor, dtypes
from monolect.runtime.buffer import element
from monolect.schedule.callify import over_params, structure


def tensor(*shape: int, dtype: type = np.float32) -> Tensor:
    return Tensor(np.ones(shape, dtype)).realize()


PROGRAMS = {
    "sum": lambda: tensor(4, 6) + tensor(4, 6),
    "difference": lambda: tensor(4, 6) - tensor(4, 6),
    "another shape": lambda: tensor(6, 4) + tensor(6, 4),
    "another dtype": lambda: tensor(4, 6, dtype=np.int32) + tensor(4, 6, dtype=np.int32),
    "one buffer twice": lambda: (lambda x: x + x * 1)(tensor(4, 6)),
    "a constant": lambda: tensor(4, 6) + 2,
    "another constant": lambda: tensor(4, 6) + 3,
    "rows": lambda: tensor(4, 6).sum(0),
    "columns": lambda: tensor(4, 6).sum(1),
    "a slice": lambda: tensor(4, 6)[1:3] * 2,
    "another slice": lambda: tensor(4, 6)[2:4] * 2,
    "a transpose": lambda: tensor(4, 6).T * 2,
    "a cast": lambda: tensor(4, 6).cast(dtypes.float16),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_program_has_the_same_structure_and_others_another(name: str) -> None:
    first, second = PROGRAMS[name]().uop, PROGRAMS[name]().uop
    key, buffers, *_ = structure([first])
    assert first is not second and key == structure([second])[0]
    sink, inputs, _ = over_params([first])
    assert buffers == inputs and sink is over_params([second])[0]
    assert all(key != structure([make().uop])[0] for other, make in PROGRAMS.items() if other != name)


def test_several_results_are_told_apart_by_their_order() -> None:
    x = tensor(4)
    a, b = (x + 1).uop, (x * 2).uop
    keys = [structure(roots)[0] for roots in ([a, b], [b, a], [a], [a, a])]
    assert len(set(keys)) == 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint64, np.int64, np.bool_, np.float16])
def test_an_element_is_what_numpy_says(dtype: type) -> None:
    a = (np.arange(24).reshape(2, 3, 4) - 3).astype(dtype)
    t = Tensor(a).realize()
    for i, j, k in np.ndindex(2, 3, 4):
        got, want = t[i][j][k].item(), a[i, j, k].item()
        assert got == want and type(got) is type(want)
        assert t[i, j, k].item() == t[i - 2][j - 3, k - 4].item() == want
        assert t[:, j].T[k, i].item() == t.flip(0)[1 - i, j, k].item() == want


def test_elements_of_values_that_are_to_be_computed() -> None:
    t = tensor(2, 3) * 2
    assert element(t[1, 2].uop) is None and t[1, 2].item() == 2.0
    assert int(tensor(1).sum() + 4) == 5 and element(tensor(3)[1].uop) == 1.0
