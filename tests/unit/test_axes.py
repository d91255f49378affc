"""Axes that are no integers: no method takes a bool for one."""

import inspect
from typing import Any

import numpy as np
import pytest

from monolect.base.errors import AxisTypeError, MonolectError
from monolect.tensor.tensor import Tensor

AXES = {"dim", "axis", "dims", "dim0", "dim1", "dim2", "start_dim", "end_dim", "source", "destination"}
NO_AXES = {("tensordot", "dims"), ("tile", "dims"), *((f, "dim") for f in ("var", "std", "var_mean", "std_mean"))}
NO_AXES |= {(f, "source") for f in "index_add index_copy index_reduce masked_scatter put".split() for f in (f, f + "_")}
NO_AXES |= {("matrix_norm", "dim")}  # two axes
GIVEN: dict[str, Any] = {
    "index": Tensor([0, 1]), "indices": Tensor([[0, 1]]), "src": Tensor([1.0, 2.0]), "value": 1.0, "k": 1, "q": 0.5,
    "repeats": 2, "shifts": 1, "start": 0, "length": 1, "chunks": 1, "split_size_or_sections": 1, "sizes": (1, -1),
    "source": 0, "destination": 0, "dim": 0, "dim0": 0, "dim1": 1, "reduce": "amax",
}  # fmt: skip


def called(x: Tensor, name: str, axis: str, bad: Any) -> None:
    """The method with `bad` for the axis, and something for what else it needs."""
    method = getattr(x, name)
    if name == "rot90":
        bad = (bad, 1)
    keywords = {}
    for p in inspect.signature(method).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            method(*([bad] if p.name == axis else []), **({axis: bad} if p.name != axis else {}))
            return
        if p.name == axis or p.default is p.empty:
            keywords[p.name] = bad if p.name == axis else GIVEN.get(p.name, x)
    method(**keywords)


def methods() -> list[tuple[str, str]]:
    found = []
    for name in dir(Tensor):
        f = inspect.getattr_static(Tensor, name)
        if not name.startswith("_") and inspect.isfunction(f):
            found += [(name, axis) for axis in inspect.signature(f).parameters if axis in AXES]
    return [pair for pair in found if pair not in NO_AXES]


def test_no_method_takes_a_bool_for_an_axis() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert len(methods()) > 70
    for name, axis in methods():
        for bad in (True, False):
            with pytest.raises(AxisTypeError, match="a bool is not an axis"):
                called(x, name, axis, bad)
        for bad in ([True], np.True_, 0.0, "0"):
            with pytest.raises(MonolectError):
                called(x, name, axis, bad)
    for method in (Tensor(1.0).sum, Tensor(1.0).softmax, Tensor(1.0).max):
        with pytest.raises(AxisTypeError):
            method(False)
