"""A program of tensors that come from numbers and files, and go out as numbers, never imports NumPy."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect import Tensor, dtypes
from monolect.base.dtype import INTS, as_python

PROGRAM = """
import json, sys
from monolect import Tensor, jit
from monolect.interop.safetensors import safe_load

imported = "numpy" in sys.modules
w = safe_load(sys.argv[1])["w"]

@jit
def step(x):
    y = (x @ w).relu().softmax(1)
    return y[:, 0], y.argmax(1)

x = Tensor([[1.0, 2.0], [3.0, -4.0]]).realize()
results = [step(x) for _ in range(3)][-1]
values = [r.tolist() for r in results] + [results[1][1].item(), int(results[1].sum())]
compiler = [m for m in ("numpy", "llvmlite", "monolect.schedule.order") if m in sys.modules]
print(json.dumps([imported, compiler, values]))
"""


def test_the_second_process_imports_neither_numpy_nor_the_compiler(tmp_path):
    pytest.importorskip("safetensors")
    from monolect.interop.safetensors import safe_save

    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    safe_save({"w": Tensor(w)}, tmp_path / "w")
    env = {k: v for k, v in os.environ.items() if k not in ("VERIFY", "CHECK_BOUNDS", "DEVICE", "COMPILE_CACHE")}
    env["MONOLECT_CACHE"] = str(tmp_path / "cache")
    found = [
        json.loads(subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "w")], env=env, check=True,
                                  capture_output=True, text=True).stdout)
        for _ in range(2)
    ]  # fmt: skip
    assert [f[0] for f in found] == [False, False]
    assert found[1][1] == []  # the first one compiled
    assert found[0][2] == found[1][2]
    y = np.maximum(np.array([[1, 2], [3, -4]], np.float32) @ w, 0)
    p = np.exp(y - y.max(1, keepdims=True))
    np.testing.assert_allclose(found[1][2][0], (p / p.sum(1, keepdims=True))[:, 0], rtol=1e-6)
    assert found[1][2][1:] == [p.argmax(1).tolist(), int(p.argmax(1)[1]), int(p.argmax(1).sum())]


numbers = st.one_of(
    st.lists(st.booleans(), min_size=1),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.floats(width=64), min_size=1),
)


@given(numbers, st.integers(1, 3))
def test_numbers_are_what_numpy_makes_of_them(row, rows):
    default = {bool: np.bool_, int: np.int64, float: np.float32}[type(row[0])]
    with np.errstate(all="ignore"):
        wanted = np.array([row] * rows).astype(default)
    t = Tensor([row] * rows)
    assert (t.shape, t.dtype.numpy) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(t.numpy(), wanted)
    np.testing.assert_array_equal(np.array(t.tolist(), default), wanted)
    assert type(t.tolist()[0][0]) is type(row[0])


@pytest.mark.parametrize("dtype", [*INTS, dtypes.float64, dtypes.float16])
def test_numbers_of_a_dtype(dtype):
    data = [[0, 1, 2], [120, 7, 5]] if dtype.is_int else [[0.5, 1.0, 2.0], [120.0, 7.0, 5.0]]
    t = Tensor(data, dtype=dtype)
    assert (t.dtype, t.tolist()) == (dtype, data)


def test_integers_that_overflow_a_dtype_wrap():
    assert Tensor([300, -1], dtype=dtypes.uint8).tolist() == [44, 255]


def test_empty_lists_and_views():
    assert Tensor([]).tolist() == []
    assert Tensor([[], []]).shape == (2, 0)
    t = Tensor([[1, 2, 3], [4, 5, 6]]).realize()
    assert t.reshape(3, 2).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert t.permute(1, 0).tolist() == [[1, 4], [2, 5], [3, 6]]
    assert t[1, 1:].tolist() == [5, 6]
    assert t.sum().tolist() == 21


@given(st.floats(width=64), st.sampled_from([dtypes.float32, dtypes.float16]))
def test_constants_round_as_numpy_rounds(value, dtype):
    with np.errstate(all="ignore"):
        wanted = float(np.array(value).astype(dtype.numpy))
    np.testing.assert_equal(as_python(value, dtype), wanted)
    assert np.signbit(as_python(value, dtype)) == np.signbit(wanted) or value != value
