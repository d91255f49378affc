"""`monolect.array_api` has the names, signatures, dtypes and values of the array API standard, 2024.12.

NumPy's own namespace is the oracle for values: NumPy 2 implements the standard.
"""

import inspect
import math
import os
import subprocess
import sys

import numpy as np
import pytest

import monolect
from monolect import ArgumentError, AxisError, DTypeError, ShapeError, Tensor, array_api, dtypes

INTS = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
ALL = ("bool", *INTS, *UNSIGNED, *FLOATS)
NAMES = {  # the standard's names by section, without complex64 and complex128
    "constants": "e inf nan newaxis pi",
    "creation": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril"
    " triu zeros zeros_like",
    "dtypes": " ".join(ALL),
    "dtype functions": "astype can_cast finfo iinfo isdtype result_type",
    "elementwise": "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert"
    " bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor"
    " floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10"
    " logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal"
    " positive pow real reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc",
    "indexing": "take take_along_axis",
    "inspection": "__array_namespace_info__ __array_api_version__",
    "linear algebra": "linalg matmul matrix_transpose tensordot vecdot",
    "manipulation": "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll"
    " squeeze stack tile unstack",
    "searching": "argmax argmin count_nonzero nonzero searchsorted where",
    "sets": "unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort",
    "statistics": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "utility": "all any diff",
}
OF_LINALG = (  # the names of the extension that need no factorisation
    "cross diagonal matmul matrix_norm matrix_power matrix_transpose outer tensordot trace vecdot vector_norm"
)
METHODS = (
    "__abs__ __add__ __and__ __array_namespace__ __bool__ __dlpack__ __dlpack_device__ __eq__ __float__"
    " __floordiv__ __ge__ __getitem__ __gt__ __index__ __int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__"
    " __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __rshift__ __setitem__ __sub__ __truediv__ __xor__ __radd__"
    " __rand__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rsub__"
    " __rtruediv__ __rxor__ to_device dtype device mT ndim shape T"
).split()
# Keyword parameters with their defaults, and the number of parameters in front of them.
SIGNATURES = {
    "all": (1, {"axis": None, "keepdims": False}),
    "arange": (3, {"dtype": None, "device": None}),
    "argmax": (1, {"axis": None, "keepdims": False}),
    "argsort": (1, {"axis": -1, "descending": False, "stable": True}),
    "asarray": (1, {"dtype": None, "device": None, "copy": None}),
    "astype": (2, {"copy": True, "device": None}),
    "clip": (3, {}),
    "concat": (1, {"axis": 0}),
    "count_nonzero": (1, {"axis": None, "keepdims": False}),
    "cumulative_prod": (1, {"axis": None, "dtype": None, "include_initial": False}),
    "cumulative_sum": (1, {"axis": None, "dtype": None, "include_initial": False}),
    "diff": (1, {"axis": -1, "n": 1, "prepend": None, "append": None}),
    "expand_dims": (1, {"axis": 0}),
    "eye": (2, {"k": 0, "dtype": None, "device": None}),
    "flip": (1, {"axis": None}),
    "from_dlpack": (1, {"device": None, "copy": None}),
    "full": (2, {"dtype": None, "device": None}),
    "full_like": (2, {"dtype": None, "device": None}),
    "linspace": (3, {"dtype": None, "device": None, "endpoint": True}),
    "mean": (1, {"axis": None, "keepdims": False}),
    "prod": (1, {"axis": None, "dtype": None, "keepdims": False}),
    "repeat": (2, {"axis": None}),
    "reshape": (2, {"copy": None}),
    "roll": (2, {"axis": None}),
    "searchsorted": (2, {"side": "left", "sorter": None}),
    "sort": (1, {"axis": -1, "descending": False, "stable": True}),
    "squeeze": (2, {}),
    "std": (1, {"axis": None, "correction": 0.0, "keepdims": False}),
    "sum": (1, {"axis": None, "dtype": None, "keepdims": False}),
    "take": (2, {"axis": None}),
    "take_along_axis": (2, {"axis": -1}),
    "tensordot": (2, {"axes": 2}),
    "tril": (1, {"k": 0}),
    "vecdot": (2, {"axis": -1}),
    "zeros": (1, {"dtype": None, "device": None}),
    "zeros_like": (1, {"dtype": None, "device": None}),
}


def test_every_name_of_the_standard_is_there():
    names = {name for text in NAMES.values() for name in text.split()}
    assert names == set(array_api.__all__) == {n for n in dir(array_api) if n in names}
    assert [name for name in METHODS if not hasattr(Tensor, name)] == []
    assert {*array_api.linalg.__all__} == {*OF_LINALG.split()}
    for space, name, said in ((array_api, "complex64", "out of scope"), (array_api.linalg, "svd", "numpy.linalg")):
        with pytest.raises(AttributeError, match=f"array_api.*has no attribute '{name}'.*{said}"):
            getattr(space, name)
    assert (array_api.pi, array_api.e, array_api.inf, array_api.newaxis) == (math.pi, math.e, math.inf, None)
    assert math.isnan(array_api.nan)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    in_front, keywords = SIGNATURES[name]
    parameters = [*inspect.signature(getattr(array_api, name)).parameters.values()]
    assert len([p for p in parameters if p.kind is not p.KEYWORD_ONLY]) == in_front
    assert {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY} == keywords


def test_the_namespace_of_a_tensor():
    x = Tensor([1.0])
    assert x.__array_namespace__() is x.__array_namespace__(api_version="2024.12") is monolect.array_api
    with pytest.raises(ArgumentError, match="a version of the array API"):
        x.__array_namespace__(api_version="1999.12")
    assert x.to_device("python").device == "python" and x.to_device(x.device) is x
    with pytest.raises(ArgumentError, match="stream"):
        x.to_device("cpu", stream=1)
    about = array_api.__array_namespace_info__()
    assert about.default_dtypes() == {
        "real floating": dtypes.float32,
        "integral": dtypes.int64,
        "indexing": dtypes.int64,
    }
    assert tuple(about.dtypes()) == ALL and [*about.dtypes(kind=("bool", "real floating"))] == ["bool", *FLOATS]
    assert about.default_device() == about.devices()[0] == x.device
    assert about.capabilities()["max dimensions"] is None


# ---- promotion -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [INTS + UNSIGNED, FLOATS, ("bool",)], ids=["integers", "floats", "bool"])
def test_promotion_of_arrays(kind):
    """The tables of the standard; uint64 with a signed integer is in none."""
    for a in kind:
        for b in kind:
            if {a[0], b[0]} == {"i", "u"} and "uint64" in (a, b):
                continue
            want = str(np.result_type(a, b))
            x, y = array_api.ones(2, dtype=a), array_api.ones((), dtype=b)
            operation = array_api.logical_and if a == "bool" else array_api.multiply
            got = {array_api.result_type(x, y), array_api.result_type(getattr(dtypes, a), b), operation(x, y).dtype}
            got |= {array_api.concat([x, y[None]]).dtype, array_api.where(Tensor(True), x, y).dtype}
            assert [d.name for d in got] == [want], (a, b)
            assert array_api.can_cast(x, b) == (want == b)


def test_promotion_of_python_numbers():
    """A number of the array's kind or a lower one never changes the dtype, on either side."""
    for name in INTS + UNSIGNED + FLOATS:
        x = array_api.ones(2, dtype=name)
        for number in (2,) if name not in FLOATS else (2, 2.5, True):
            assert (x * number).dtype is (number * x).dtype is array_api.multiply(number, x).dtype is x.dtype
            assert array_api.result_type(x, number) is array_api.result_type(number, x.dtype) is x.dtype
    assert array_api.result_type(dtypes.int8, 2.5) is dtypes.float32
    assert array_api.result_type(dtypes.bool, 2) is dtypes.int64
    with pytest.raises(ArgumentError, match="result_type"):
        array_api.result_type(1, 2.0)
    with pytest.raises(DTypeError, match="add: operand"):
        array_api.add(1, 2)


@pytest.mark.parametrize("name", ["sum", "prod", "cumulative_sum", "cumulative_prod"])
def test_dtypes_of_sums(name):
    for dtype in ALL[1:]:
        want = "uint64" if dtype in UNSIGNED else "int64" if dtype in INTS else dtype
        x = array_api.asarray([3, 2], dtype=dtype)
        assert getattr(array_api, name)(x).dtype.name == want
        assert getattr(array_api, name)(x, dtype=dtypes.float64).dtype is dtypes.float64
    big = array_api.asarray([2**63, 5], dtype=dtypes.uint64)
    assert array_api.sum(big).item() == 2**63 + 5


def test_dtypes_of_new_arrays():
    assert [array_api.asarray(x).dtype.name for x in (True, 1, 1.0, [1, 2.0])] == [
        "bool",
        "int64",
        "float32",
        "float32",
    ]
    assert (
        array_api.asarray(np.float64(1)).dtype is dtypes.float64 and array_api.asarray(np.int8(1)).dtype is dtypes.int8
    )
    for make in (array_api.zeros, array_api.ones, array_api.empty, array_api.eye):
        assert make(2).dtype is dtypes.float32 and make(2, dtype=dtypes.int16).dtype is dtypes.int16
    assert array_api.full(2, 1).dtype is array_api.arange(3).dtype is dtypes.int64
    assert array_api.arange(3.0).dtype is array_api.linspace(0, 1, 3).dtype is dtypes.float32
    assert array_api.full((), True).dtype is dtypes.bool and array_api.full((), 1.5).shape == ()


def test_limits():
    for name in INTS + UNSIGNED:
        ours, theirs = array_api.iinfo(getattr(dtypes, name)), np.iinfo(name)
        assert (ours.bits, ours.max, ours.min, ours.dtype.name) == (theirs.bits, theirs.max, theirs.min, name)
    for name in FLOATS + ("float16",):
        ours, theirs = array_api.finfo(Tensor([1.0], dtype=name)), np.finfo(name)
        for field in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(ours, field) == float(getattr(theirs, field))
            assert type(getattr(ours, field)) is (int if field == "bits" else float)
    assert array_api.finfo(dtypes.bfloat16).eps == 2.0**-7
    for f, d in ((array_api.finfo, dtypes.int8), (array_api.iinfo, dtypes.float32)):
        with pytest.raises(DTypeError, match="info"):
            f(d)


def test_kinds():
    kinds = ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric")
    for name in ALL:
        for kind in kinds:
            assert array_api.isdtype(getattr(dtypes, name), kind) == np.isdtype(np.dtype(name), kind), (name, kind)
    assert array_api.isdtype(dtypes.int8, (dtypes.int8, "bool")) and not array_api.isdtype(dtypes.int8, dtypes.int16)
    with pytest.raises(ArgumentError, match="isdtype"):
        array_api.isdtype(dtypes.int8, "float")


# ---- values ----------------------------------------------------------------------------------------------------------
def array(shape, dtype, seed=0):
    values = np.random.default_rng(seed).integers(0 if dtype[0] in "ub" else -4, 5, shape)
    return np.asarray(values * 0.75 if dtype in FLOATS else values).astype(dtype)


def same(ours, theirs, tolerance=2e-6):
    """Compare dtypes and values. NumPy gives a number where the standard has an array without axes."""
    if isinstance(theirs, tuple | list):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b, tolerance)
        return
    theirs = np.asarray(theirs)
    assert isinstance(ours, Tensor) and ours.shape == theirs.shape and ours.dtype.name == str(theirs.dtype)
    np.testing.assert_allclose(ours.numpy(), theirs, tolerance if theirs.dtype == np.float32 else 1e-13, atol=1e-12)


UNARY = {
    FLOATS: "acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 reciprocal sin sinh sqrt tan tanh"
    " signbit",
    FLOATS + ("int8", "int64", "uint8"): "abs ceil floor isfinite isinf isnan negative positive round sign square trunc"
    " real imag conj",
    ("bool", "int8", "uint64"): "bitwise_invert",
    ("bool",): "logical_not",
}
BINARY = {
    FLOATS: "atan2 copysign divide hypot logaddexp nextafter",
    FLOATS + ("int8", "int64", "uint8"): "add equal floor_divide greater greater_equal less less_equal maximum minimum"
    " multiply not_equal pow remainder subtract",
    ("bool", "int8", "uint64"): "bitwise_and bitwise_or bitwise_xor",
    ("int8", "uint64"): "bitwise_left_shift bitwise_right_shift",
    ("bool",): "logical_and logical_or logical_xor",
}


def rows(table):
    return [(name, dtype) for kinds, names in table.items() for name in names.split() for dtype in kinds]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "dtype"), rows(UNARY))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_of_each_element(name, dtype):
    for shape in ((), (0,), (2, 3)):
        x = array(shape, dtype)
        if name in ("acosh", "log", "log2", "log10", "sqrt", "log1p", "reciprocal"):
            x = np.asarray(np.abs(x) + 1)
        elif name in ("acos", "asin", "atanh"):
            x = np.asarray(x / 4).astype(dtype)
        same(getattr(array_api, name)(Tensor(x)), getattr(np, name)(x))


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "dtype"), rows(BINARY))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_of_two_operands(name, dtype):
    ours, theirs = getattr(array_api, name), getattr(np, name)
    for one, two in (((2, 3), (2, 3)), ((2, 1), (3,)), ((), ()), ((0, 3), (3,))):
        x, y = array(one, dtype), array(two, dtype, 1)
        if name in ("pow", "remainder", "floor_divide", "divide", "bitwise_left_shift", "bitwise_right_shift"):
            x, y = (np.asarray(np.abs(v.astype(np.float64)) + 1).astype(dtype) for v in (x, y))
        same(ours(Tensor(x), Tensor(y)), theirs(x, y))
    number = True if dtype == "bool" else 2 if dtype not in FLOATS else 1.5
    same(ours(number, Tensor(y)), theirs(np.asarray(number, dtype), y))
    same(ours(Tensor(x), number), theirs(x, np.asarray(number, dtype)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_signs_and_limits():
    special = np.array([math.nan, math.inf, -math.inf, -0.0, 0.0, 3.5, -3.5])
    same(array_api.sign(Tensor(special)), np.sign(special))
    x = Tensor(special)
    zeros = np.array([-0.0, 0.0, 4.0, -4.0])
    for divisor in (2.0, -2.0, math.inf, -math.inf):
        got = array_api.remainder(Tensor(zeros), divisor)
        same(got, np.remainder(zeros, divisor))
        assert (np.signbit(got.numpy()) == (divisor < 0)).all()
    for low, high in ((None, None), (-1, 2), (None, 2), (-1.5, None), (Tensor(special), 9)):
        a, b = (v.numpy() if isinstance(v, Tensor) else v for v in (low, high))
        same(array_api.clip(x, low, high), np.clip(special, a, b))
    assert array_api.clip(Tensor([1, 9], dtype=dtypes.int8), max=5).dtype is dtypes.int8


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "count_nonzero"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_reductions(name):
    kinds = FLOATS if name in ("mean", "std", "var") else ("float64", "int16", "uint8")
    for dtype in ("bool",) if name in ("all", "any") else kinds:
        for shape, axes in (((), (None, ())), ((2, 3), (None, 0, -1, (0, 1), ())), ((2, 0, 3), (0, (1,)))):
            x = array(shape, dtype)
            for axis in axes:
                if name in ("max", "min") and 0 in (
                    x.shape[a] for a in ((axis,) if isinstance(axis, int) else axis or ())
                ):
                    with pytest.raises(ShapeError):
                        getattr(array_api, name)(Tensor(x), axis=axis)
                    continue
                want = getattr(np, name)(x, axis=axis, keepdims=True)
                same(getattr(array_api, name)(Tensor(x), axis=axis, keepdims=True), want)
                want = getattr(np, name)(x, axis=axis)
                same(getattr(array_api, name)(Tensor(x), axis=axis), want)
    if name in ("std", "var"):
        same(getattr(array_api, name)(Tensor(x), correction=1), getattr(np, name)(x, correction=1))


def test_running_sums():
    for name in ("cumulative_sum", "cumulative_prod"):
        for dtype in ("float64", "int8", "uint8"):
            for shape, axis in (((4,), None), ((2, 3), 0), ((2, 3), -1), ((2, 0), 1), ((0,), None)):
                x = array(shape, dtype)
                for first in (False, True):
                    want = getattr(np, name)(x, axis=axis, include_initial=first)
                    same(getattr(array_api, name)(Tensor(x), axis=axis, include_initial=first), want)
        for x in (Tensor(1.0), Tensor([[1.0]])):
            with pytest.raises(ShapeError, match=name):
                getattr(array_api, name)(x)
    x = array((2, 4), "int32")
    for options in ({}, {"axis": 0}, {"n": 2}, {"prepend": x[:, :1], "append": x}):
        ours = {k: Tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        same(array_api.diff(Tensor(x), **ours), np.diff(x, **options))


def test_orders_and_searches():
    for dtype in ("float32", "int64", "uint8", "bool"):
        for shape in ((6,), (2, 3), (2, 0)):
            x = array(shape, dtype)
            for axis in range(-1, len(shape)):
                same(array_api.sort(Tensor(x), axis=axis), np.sort(x, axis=axis))
                same(array_api.argsort(Tensor(x), axis=axis), np.argsort(x, axis=axis, stable=True))
                down = array_api.argsort(Tensor(x), axis=axis, descending=True)
                key = x.astype(np.float64)
                same(down, np.argsort(-key, axis=axis, stable=True))
                want = np.flip(np.sort(x, axis=axis), axis=axis)
                same(array_api.sort(Tensor(x), axis=axis, descending=True), want)
                if x.size:
                    for name in ("argmax", "argmin"):
                        want = getattr(np, name)(x, axis=axis, keepdims=True)
                        same(getattr(array_api, name)(Tensor(x), axis=axis, keepdims=True), want)
            if x.size:
                same(array_api.argmax(Tensor(x)), np.argmax(x))
            same(array_api.nonzero(Tensor(x)), np.nonzero(x))
    edges, values = np.array([1.0, 2.0, 2.0, 5.0]), np.array([[0.0, 2.0], [5.0, 9.0]])
    mixed = np.array([2, 0, 3, 1])
    for side in ("left", "right"):
        same(array_api.searchsorted(Tensor(edges), Tensor(values), side=side), np.searchsorted(edges, values, side))
        got = array_api.searchsorted(Tensor(edges[mixed]), Tensor(values), side=side, sorter=Tensor(np.argsort(mixed)))
        same(got, np.searchsorted(edges, values, side))
    with pytest.raises(ShapeError, match="nonzero"):
        array_api.nonzero(Tensor(1))


def test_sets():
    for x in (np.array([[3, 1], [3, 2]]), np.array(7), np.zeros((0, 2)), np.array([2.0, math.nan, 1.0, math.nan, 2.0])):
        for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
            want = getattr(np, name)(x)
            ours = getattr(array_api, name)(Tensor(x))
            same(ours, np.sort(want) if name == "unique_values" else want)
            assert getattr(ours, "_fields", None) == getattr(want, "_fields", None)


MOVES = {
    "concat": lambda xp, x, y: [xp.concat([x, x], axis=1), xp.concat((x, y), axis=None)],
    "stack": lambda xp, x, y: [xp.stack([x, x], axis=a) for a in (0, 1, -1)],
    "expand_dims": lambda xp, x, y: [xp.expand_dims(x, axis=a) for a in (0, 2, -1)],
    "flip": lambda xp, x, y: [xp.flip(x), xp.flip(x, axis=1), xp.flip(x, axis=(0, -1)), xp.flip(xp.asarray(1))],
    "moveaxis": lambda xp, x, y: [xp.moveaxis(x, 0, 1), xp.moveaxis(x, (0, 1), (1, 0))],
    "permute_dims": lambda xp, x, y: [xp.permute_dims(x, (1, 0)), xp.permute_dims(xp.asarray(1), ())],
    "repeat": lambda xp, x, y: [xp.repeat(x, 2), xp.repeat(x, 2, axis=1), xp.repeat(x, xp.asarray([1, 2]), axis=0)],
    "reshape": lambda xp, x, y: [xp.reshape(x, (3, 2)), xp.reshape(x, (-1,), copy=True), xp.reshape(y[:1], ())],
    "roll": lambda xp, x, y: [xp.roll(x, 2), xp.roll(x, 1, axis=(0, 1)), xp.roll(x, (1, -2), axis=(0, 1))],
    "squeeze": lambda xp, x, y: [xp.squeeze(x[None], 0), xp.squeeze(x[None, ..., None], (0, -1)), xp.squeeze(x, ())],
    "tile": lambda xp, x, y: [xp.tile(x, (2,)), xp.tile(x, (2, 1, 2)), xp.tile(x, ())],
    "unstack": lambda xp, x, y: [*xp.unstack(x), *xp.unstack(x, axis=-1)],
    "broadcast": lambda xp, x, y: [xp.broadcast_to(x, (4, 2, 3)), *xp.broadcast_arrays(x, y, xp.asarray(1))],
    "meshgrid": lambda xp, x, y: [
        *xp.meshgrid(y, y[:2]), *xp.meshgrid(y, y[:2], y[:1], indexing="ij"), *xp.meshgrid(y),
    ],
    "tri": lambda xp, x, y: [xp.tril(x), xp.triu(x, k=1), xp.tril(x[None], k=-1)],
    "take": lambda xp, x, y: [
        xp.take(x, xp.asarray([1, 0, 1]), axis=0), xp.take(y, xp.asarray([2])),
        xp.take_along_axis(x, xp.asarray([[1, 0], [2, 2]])), xp.take_along_axis(x, xp.asarray([[1, 0, 1]]), axis=0),
    ],
    "products": lambda xp, x, y: [
        xp.matmul(x, y), xp.matmul(y, y), xp.matrix_transpose(x[None]), x.mT, x.T, xp.vecdot(x, y),
        xp.vecdot(x, x, axis=0), xp.tensordot(x, x), xp.tensordot(x, y, axes=1), xp.tensordot(y, y, axes=0),
        xp.tensordot(x, x, axes=((0,), (0,))),
    ],
    "indexing": lambda xp, x, y: [
        x[0], x[..., 1], x[None, :, 0], x[::-1, 1:], x[x > 1], x[xp.asarray([1, 0])],
        x[xp.asarray([1]), xp.asarray([2])], xp.asarray(5)[()], x[1, 2],
    ],
    "like": lambda xp, x, y: [xp.zeros_like(x), xp.ones_like(x), xp.full_like(x, 3), xp.zeros_like(x, dtype=xp.bool)],
    "cast": lambda xp, x, y: [xp.astype(x, xp.float64), xp.astype(x, xp.int8), xp.astype(x, xp.bool, copy=False)],
    "where": lambda xp, x, y: [xp.where(x > 0, x, y), xp.where(y > 0, y, 0), xp.where(y > 0, 1, y)],
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_moves(name, dtype):
    x, y = array((2, 3), dtype), array((3,), dtype, 1)
    same(MOVES[name](array_api, Tensor(x), Tensor(y)), [*MOVES[name](np, x, y)])


def test_linalg():
    m = array((2, 3, 3), "float64")
    x, ours, theirs = Tensor(m), array_api.linalg, np.linalg
    for options in ({}, {"keepdims": True}, {"ord": 1}, {"ord": -math.inf}):
        same(ours.matrix_norm(x, **options), theirs.matrix_norm(m, **options))
    for options in ({}, {"axis": 1, "keepdims": True}, {"axis": (0, 2)}, {"axis": 0, "ord": 1}, {"ord": math.inf}):
        same(ours.vector_norm(x, **options), theirs.vector_norm(m, **options))
    for k in (0, 1, -2):
        same(ours.diagonal(x, offset=k), theirs.diagonal(m, offset=k))
        same(ours.trace(x, offset=k), theirs.trace(m, offset=k))
    same(ours.cross(x, x[..., ::-1]), theirs.cross(m, m[..., ::-1]))
    same(ours.matrix_power(x, 3), theirs.matrix_power(m, 3))
    same(ours.outer(x[0, 0], x[1, 0]), theirs.outer(m[0, 0], m[1, 0]))
    assert ours.trace(Tensor([[1]], dtype=dtypes.uint8)).dtype is dtypes.uint64
    with pytest.raises(ShapeError, match="diagonal"):
        ours.diagonal(Tensor([1]))


def test_new_arrays():
    for args in ((5,), (1, 5), (5, 1, -2), (2, 2), (5, 1), (0.0, 1.0, 0.25)):
        same(array_api.arange(*args, dtype="float64"), np.arange(*args, dtype="float64"))
    for args, options in (((3,), {}), ((2, 4), {"k": 1}), ((3, 2), {"k": -5}), ((0,), {})):
        same(array_api.eye(*args, **options, dtype="int8"), np.eye(*args, **options, dtype="int8"))
    for n in (0, 1, 2, 7):
        for end in (True, False):
            got = array_api.linspace(-1, 3, n, endpoint=end, dtype="float64")
            same(got, np.linspace(-1, 3, n, endpoint=end, dtype="float64"))
    assert array_api.empty((2, 0)).shape == array_api.empty_like(Tensor.zeros(2, 0)).shape == (2, 0)


def test_asarray_copies_when_asked():
    a = np.arange(3)
    shared, copied = array_api.asarray(a, copy=False), array_api.asarray(a, copy=True)
    x = array_api.asarray([1, 2])
    twin = array_api.asarray(x, copy=True)
    a[0], x[0] = 9, 9
    assert shared.tolist() == [9, 1, 2] and copied.tolist() == [0, 1, 2] and twin.tolist() == [1, 2]
    assert array_api.asarray(x) is x is array_api.asarray(x, copy=False) is array_api.astype(x, x.dtype, copy=False)
    assert array_api.astype(x, x.dtype) is not x
    for obj, options in (([1], {}), (x, {"dtype": dtypes.int8}), (a, {"dtype": dtypes.int8})):
        with pytest.raises(ArgumentError, match="asarray"):
            array_api.asarray(obj, copy=False, **options)
    assert array_api.from_dlpack(a, copy=True).tolist() == [9, 1, 2]


def test_wrong_axes():
    x = array_api.ones((2, 3))
    for call in (
        lambda: array_api.squeeze(x, 0),
        lambda: array_api.take(x, Tensor([0])),
        lambda: array_api.vecdot(x, array_api.ones((2, 1))),
    ):
        with pytest.raises(ShapeError):
            call()
    for call in (lambda: array_api.expand_dims(x, axis=3), lambda: array_api.sum(x, axis=2)):
        with pytest.raises(AxisError):
            call()


def test_masks_without_axes():
    """`x[mask]` is `x` with a new axis of size 1 if the mask is true, of size 0 if it is false."""
    for a in (np.array(5.0), np.arange(6.0).reshape(2, 3), np.zeros((0, 2))):
        for value in (True, False):
            same(Tensor(a)[Tensor(value)], a[np.array(value)])
            x = Tensor(a).clone()
            x[Tensor(value)] = 7
            same(x, np.where(value, 7.0, a))
            x[Tensor(value)] = x[Tensor(value)] + 1
            same(x, np.where(value, 8.0, a))
    with pytest.raises(ShapeError, match="elements"):
        Tensor([1.0])[Tensor(True)] = Tensor.zeros(0, 1)
    x = Tensor([1.0, 2.0], requires_grad=True)
    _ = (x * 3)[x.sum() > 0].sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


# ---- libraries that call the namespace -------------------------------------------------------------------------------
SCIPY = """
import numpy as np, scipy
from scipy import cluster, special, stats
from monolect import Tensor
a = np.random.default_rng(0).normal(size=(6, 3)) + 2.0
x = Tensor(a)
checks = {
    "logsumexp": lambda v: special.logsumexp(v, axis=1),
    "softmax": lambda v: special.softmax(v, axis=0),
    "expit": lambda v: special.expit(v),
    "zscore": lambda v: stats.zscore(v, axis=0),
    "skew": lambda v: stats.skew(v, axis=0),
    "kurtosis": lambda v: stats.kurtosis(v, axis=1),
    "gmean": lambda v: stats.gmean(abs(v) + 1, axis=0),
    "entropy": lambda v: stats.entropy(abs(v) + 1, axis=0),
    "ttest_1samp": lambda v: stats.ttest_1samp(v, 1.0).statistic,
    "whiten": lambda v: cluster.vq.whiten(v),
}
for name, f in checks.items():
    got = f(x)
    assert isinstance(got, Tensor), (name, type(got))
    np.testing.assert_allclose(got.numpy(), f(a), rtol=1e-10, err_msg=name)
print(len(checks), "agree")
"""
LEARN = """
import numpy as np, sklearn
from sklearn import decomposition, metrics, preprocessing
from monolect import Tensor
a = np.random.default_rng(0).normal(size=(20, 3))
y = (a[:, 0] > 0).astype(np.int64)
z = (a[:, 1] > 0).astype(np.int64)
checks = {
    "StandardScaler": lambda v, y, z: preprocessing.StandardScaler().fit_transform(v),
    "MinMaxScaler": lambda v, y, z: preprocessing.MinMaxScaler().fit_transform(v),
    "MaxAbsScaler": lambda v, y, z: preprocessing.MaxAbsScaler().fit_transform(v),
    "Normalizer": lambda v, y, z: preprocessing.Normalizer().fit_transform(v),
    "euclidean_distances": lambda v, y, z: metrics.pairwise.euclidean_distances(v),
    "balanced_accuracy_score": lambda v, y, z: metrics.balanced_accuracy_score(y, z),
    "f1_score": lambda v, y, z: metrics.f1_score(y, z),
    "log_loss": lambda v, y, z: metrics.log_loss(y, abs(v[:, 0]) / 9 + 0.1),
    "accuracy_score": lambda v, y, z: metrics.accuracy_score(y, z),
    "mean_squared_error": lambda v, y, z: metrics.mean_squared_error(v[:, 0], v[:, 1]),
    "r2_score": lambda v, y, z: metrics.r2_score(v[:, 0], v[:, 1]),
    "zero_one_loss": lambda v, y, z: metrics.zero_one_loss(y, z),
}
wanted = {name: f(a, y, z) for name, f in checks.items()}
with sklearn.config_context(array_api_dispatch=True):
    for name, f in checks.items():
        got = f(Tensor(a), Tensor(y), Tensor(z))
        if isinstance(wanted[name], np.ndarray):
            assert isinstance(got, Tensor), (name, type(got))
            got = got.numpy()
        np.testing.assert_allclose(got, wanted[name], rtol=1e-7, atol=1e-9, err_msg=name)
print(len(checks), "agree")
"""


@pytest.mark.sweep
@pytest.mark.parametrize(("library", "source"), [("scipy", SCIPY), ("sklearn", LEARN)], ids=["scipy", "sklearn"])
def test_libraries_dispatch_on_tensors(library, source):
    """In a process of its own, because SciPy reads SCIPY_ARRAY_API when it is imported."""
    pytest.importorskip(library, reason=f"{library} is not installed")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    run = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.endswith("agree\n")
