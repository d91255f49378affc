"""Bad input: every public call refuses it with an error of the library's tree, at the caller's line."""

import gzip
import inspect
import os
import re
import struct
import subprocess
import sys

import numpy as np
import pytest

from monolect import Context, Device, Tensor, Variable, dtypes, grad, jit, nn, value_and_grad
from monolect.base.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    FileFormatError,
    GradientError,
    InternalError,
    IRError,
    JitError,
    MonolectError,
    SettingError,
    ShapeError,
)
from monolect.interop.safetensors import safe_load, safe_save
from monolect.nn.datasets import mnist_from_folder, read_idx
from tests.strategies import often

COMPUTING = {"realize", "numpy", "tolist", "item", "backward", "buffer", "manual_seed"}
FILLERS = {"dim": 0, "other": 2.0, "size": (2,), "dtype": None}
BAD = [
    None, -1, 99, 2.5, "x", object(), [], (1, "a"), float("nan"), np.zeros((2, 2)), dtypes.int8, 10**30, {}, [None],
    1j, Tensor([1.0, 2.0, 3.0, 4.0, 5.0]), Tensor([[1, 2]]), Tensor.zeros(0),
]  # fmt: skip
RECEIVERS = {
    "float": lambda: Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    "int": lambda: Tensor([[1, 2, 3], [4, 5, 6]]),
    "scalar": lambda: Tensor(2.0),
    "empty": lambda: Tensor.zeros(0, 3),
}
OPERATORS = ["__add__", "__sub__", "__truediv__", "__floordiv__", "__mod__", "__pow__", "__matmul__", "__and__"]
OPERATORS += ["__lshift__", "__lt__", "__eq__", "__getitem__"]
METHODS = [
    m
    for m in [*OPERATORS, *(n for n in dir(Tensor) if not n.startswith("_") and hasattr(Tensor, n))]
    if m not in COMPUTING and not isinstance(inspect.getattr_static(Tensor, m), property)
]


def calls(f):
    """(args, kwargs) that put each bad value into each place of the signature of `f`, the others being harmless."""
    parameters = [p for p in inspect.signature(f).parameters.values() if p.name != "self"]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    required = [p for p in parameters if p.default is p.empty and p.kind in named]
    for p in parameters:
        for bad in BAD:
            if p.kind == p.VAR_POSITIONAL:
                yield (bad,), {}
                yield (1, bad), {}
            elif p.kind != p.VAR_KEYWORD:
                yield (), {q.name: FILLERS.get(q.name, 1) for q in required} | {p.name: bad}


def refusal(f, *args, **kwargs):
    """What is wrong with the error of this call; None when it works or raises one of the tree."""
    try:
        f(*args, **kwargs)
    except MonolectError as e:
        if e.__class__ in (InternalError, IRError):
            return repr(e)
        return None if e.line[0] == __file__ else f"{e!r} at {e.line}"
    except TypeError as e:  # a call that does not fit the signature is Python's own affair
        return None if re.search("positional argument|positional-only|unexpected keyword", str(e)) else repr(e)
    except Exception as e:
        return repr(e)
    return None


@pytest.mark.sweep
@pytest.mark.parametrize("receiver", RECEIVERS)
def test_every_method_refuses_bad_values_at_every_place(receiver, start):
    """`make test` makes each call on one of the four receivers, by turns from seed to seed; `make test-all` on all."""
    wrong, turn = [], [*RECEIVERS].index(receiver) + start
    for m in METHODS:
        x = RECEIVERS[receiver]()
        bound = getattr(x, m)
        for k, (args, kwargs) in enumerate(calls(bound)):
            if (k + turn) % 4 < often(1, 4) and (w := refusal(bound, *args, **kwargs)):
                wrong.append(f"{m}{args}{kwargs}: {w}")
    assert not wrong, "\n".join(wrong[:10])


LAYERS = {
    "Linear": (2, 3), "Conv1d": (2, 3, 2), "Conv2d": (2, 3, 2), "BatchNorm1d": (2,), "BatchNorm2d": (2,),
    "LayerNorm": (2,), "RMSNorm": (2,), "GroupNorm": (1, 2), "Embedding": (3, 2), "Dropout": (), "MaxPool2d": (2,),
    "AvgPool2d": (2,), "Flatten": (), "ReLU": (), "MultiheadAttention": (4, 2),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", LAYERS)
def test_layers_refuse_bad_values(name):
    make = getattr(nn, name)
    wrong = [w for args, kwargs in calls(make) if (w := refusal(make, *args, **kwargs))]
    layer = make(*LAYERS[name])
    wrong += [w for bad in BAD if (w := refusal(layer, bad))]
    assert not wrong, "\n".join(wrong[:10])


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_optimizers_refuse_bad_values(name):
    make, p = getattr(nn.optim, name), Tensor([1.0], requires_grad=True)
    places = [q for q in inspect.signature(make).parameters if q != "params"]
    wrong = [w for q in places for bad in BAD if (w := refusal(make, [p], **{q: bad}))]
    wrong += [w for bad in BAD if (w := refusal(make, bad))]
    optimizer = make([p])
    wrong += [w for bad in BAD if (w := refusal(optimizer.load_state_dict, bad))]
    wrong += [w for bad in BAD if (w := refusal(setattr, optimizer, "lr", bad))]
    assert not wrong, "\n".join(wrong[:10])


REFUSED = {
    "a dtype that is None": lambda p: Tensor([1.0]).cast(None),
    "a quantile above 1": lambda p: Tensor([1.0, 2.0]).quantile(1.5),
    "a quantile among others below 0": lambda p: Tensor([1.0, 2.0]).quantile([0.5, -0.5]),
    "a deviation below 0": lambda p: Tensor.normal(2, std=-1.0),
    "a layer that cannot be called": lambda p: nn.Sequential(nn.ReLU(), 3),
    "a layer to append": lambda p: nn.ModuleList().append("x"),
    "a learning rate that is no number": lambda p: nn.optim.SGD([p], lr=float("nan")),
    "a dampening that is no number": lambda p: nn.optim.SGD([p], momentum=0.5, dampening="a"),
    "a value of a Variable": lambda p: Variable("n", 1, 8).bind(9).__enter__(),
    "a name for what is no Tensor": lambda p: jit(lambda x: x).save("nowhere", {"a": 3}),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_be_wrong_later_is_refused_now(what):
    with pytest.raises(MonolectError) as caught:
        REFUSED[what](Tensor([1.0], requires_grad=True))
    assert caught.value.line[0] == __file__
    assert caught.value.expected and caught.value.found is not None


def test_transforms_and_attributes_refuse_bad_values():
    p = Tensor([1.0, 2.0], requires_grad=True)
    wrong = []
    for bad in BAD:
        for transform in (grad, value_and_grad):
            wrong.append(refusal(lambda bad=bad, t=transform: t(bad)(p)))
            wrong.append(refusal(lambda bad=bad, t=transform: t(lambda x: x.sum(), bad)(p)))
            wrong.append(refusal(lambda bad=bad, t=transform: t(lambda x: bad)(p)))
            wrong.append(refusal(lambda bad=bad, t=transform: t(lambda x: bad, has_aux=True)(p)))
        wrong.append(refusal(jit, bad))
        wrong.append(refusal(p.realize, bad))
        wrong.append(refusal((p * 2).backward, bad))
        wrong.append(refusal(setattr, p, "grad", bad))
        wrong.append(refusal(lambda bad=bad: Device[bad]))
        wrong.append(refusal(Variable, bad, 1, 2))
        wrong.append(refusal(Variable, "n", bad, 2))
        wrong += [refusal(Tensor, [1.0], **{k: bad}) for k in ("device", "dtype", "requires_grad")]
        for name in ("DEBUG", "TRACE", "NOOPT", "THREADS", "CHECK_BOUNDS"):
            wrong.append(refusal(lambda bad=bad, name=name: Context(**{name: bad})))
    assert not [w for w in wrong if w]


def test_the_message_names_the_signature_the_cause_and_the_line():
    with pytest.raises(ArgumentError) as caught:
        Tensor([1.0]).masked_fill(None, 1.0)
    assert "masked_fill(self, mask" in caught.value.expected
    assert "NoneType" in caught.value.found
    assert caught.value.line[0] == __file__
    assert isinstance(caught.value.__cause__, AttributeError)


def test_shapes_that_do_not_fit_name_the_method():
    with pytest.raises(ShapeError, match="floor_divide|floordiv"):
        Tensor.ones(2, 3) // Tensor.ones(5)


def test_errors_of_the_users_own_functions_are_left_alone():
    def loss(x):
        return {}["missing"]

    with pytest.raises(KeyError):
        grad(loss)(Tensor(1.0))
    with pytest.raises(KeyError):
        jit(loss)(Tensor(1.0))


def test_a_list_that_holds_itself():
    endless = []
    endless.append(endless)
    with pytest.raises(JitError):
        jit(lambda x: x)(endless)
    with pytest.raises(JitError):
        jit(lambda x: endless)(Tensor(1.0))
    with pytest.raises(MonolectError):
        Tensor(endless)


def test_empty_arrays_beyond_numpy():
    with pytest.raises(MonolectError):
        Tensor.zeros(0, 10**30).numpy()


ARRAYS = {
    "structured": (np.zeros(2, dtype=[("a", "i4")]), DTypeError),
    "objects": (np.array([object()]), DTypeError),
    "complex": (np.zeros(2, complex), DTypeError),
    "dates": (np.zeros(2, "M8[s]"), DTypeError),
    "texts": (np.array(["a"]), DTypeError),
    "big-endian": (np.arange(4, dtype=">f4"), None),
    "reversed": (np.arange(9.0)[::-2], None),
    "transposed": (np.arange(6.0).reshape(2, 3).T, None),
    "unaligned": (np.frombuffer(bytes(range(17)), "u1")[1:].view("i4"), None),
    "read-only": (np.frombuffer(bytes(16), "f4"), None),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_every_kind(name):
    array, error = ARRAYS[name]
    if error is not None:
        with pytest.raises(error):
            Tensor(array)
        return
    before = array.copy()
    t = Tensor(array)
    assert (t.numpy() == array).all() and ((t + 1).numpy() == array + 1).all()
    t[0] = 7
    assert (t[0].numpy() == 7).all() and (array == before).all()


@pytest.mark.parametrize("value", [Tensor([1.0, 2.0]), Tensor([1, 2, 3]), "x", None, [1, "a"], np.zeros((2, 3))])
def test_a_failed_assign_changes_nothing(value):
    t = Tensor([1.0, 2.0, 3.0])
    with pytest.raises(MonolectError):
        t.assign(value)
    assert t.tolist() == [1.0, 2.0, 3.0]
    for key in (5, "x", 1.5, (0, 0)):
        with pytest.raises(MonolectError):
            t[key] = value
        assert t.tolist() == [1.0, 2.0, 3.0]


# ---- files -----------------------------------------------------------------------------------------------------------
def test_damaged_safetensors(tmp_path):
    path = tmp_path / "m.safetensors"
    safe_save({"a": Tensor([[1.0, 2.0]]), "b": Tensor([1, 2, 3])}, path)
    data = path.read_bytes()
    for n in range(len(data)):
        path.write_bytes(data[:n])
        with pytest.raises(FileFormatError):
            safe_load(path)
    for i in range(min(len(data), 150)):
        path.write_bytes(data[:i] + bytes([data[i] ^ 0x15]) + data[i + 1 :])
        assert refusal(safe_load, path) is None
    for bad in (None, 3, [Tensor([1.0])], {"a": None}, {3: Tensor([1.0])}):
        path.write_bytes(data)
        with pytest.raises(MonolectError):
            safe_save(bad, path)
        assert path.read_bytes() == data
    assert refusal(safe_load, None) is None


def test_damaged_idx_files(tmp_path):
    path = tmp_path / "images"
    whole = b"\0\0\x08\x03" + struct.pack(">3I", 2, 4, 4) + bytes(32)
    for data in (whole, gzip.compress(whole)):
        for n in range(len(data)):
            path.write_bytes(data[:n])
            with pytest.raises(FileFormatError):
                read_idx(path)
        for i in range(len(data)):
            path.write_bytes(data[:i] + bytes([data[i] ^ 0x15]) + data[i + 1 :])
            assert refusal(read_idx, path) is None
    for huge in (b"\0\0\x08\xff" + b"\xff" * 1020, b"\0\0\x08\x03" + b"\xff" * 12, b"\0\0\x08\x02" + b"\x80\0\0\0" * 2):
        path.write_bytes(huge)
        with pytest.raises(FileFormatError):
            read_idx(path)
    with pytest.raises(ArgumentError, match="part"):
        mnist_from_folder(tmp_path, "validation")


def test_disk_tensors_refuse(tmp_path):
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.write_bytes(b"")
    full.write_bytes(bytes(64))
    for path in (empty, tmp_path, tmp_path / "none"):
        with pytest.raises(FileFormatError):
            Tensor.from_file(path)
    with pytest.raises(DeviceError):
        Tensor.zeros(3, device="disk")
    with pytest.raises(MonolectError):
        Tensor.from_file(full)[:7].to("cpu").bitcast("float32")


# ---- settings --------------------------------------------------------------------------------------------------------
def test_a_pass_nobody_knows():
    with Context(STOP_AFTER="lineariz"), pytest.raises(SettingError, match="STOP_AFTER"):
        (Tensor([1.0, 2.0]) * 1.25).realize()


@pytest.mark.parametrize("value", ["DEBUG=x", "DEVICE=gpu9", "TRACE=foo", "THREADS=-1"])
def test_bad_environment(value):
    name, _, text = value.partition("=")
    code = "from monolect import Tensor; Tensor([1.0]).exp().item()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, name: text}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and text in done.stderr
    assert "SettingError" in done.stderr or "DeviceError" in done.stderr


def test_only_floats_have_gradients():
    with pytest.raises(GradientError):
        Tensor([1], requires_grad=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: Tensor.zeros(n, n),
        lambda n: Tensor.zeros(0, 2**70),
        lambda n: Tensor.arange(2**63),
        lambda n: Tensor.rand(n, n),
        lambda n: Tensor.zeros(1, 1).expand(n, n),
        lambda n: Tensor.zeros(n, 1) + Tensor.zeros(1, n),
        lambda n: Tensor.zeros(n, 1) @ Tensor.zeros(1, n),
        lambda n: Tensor.einsum("i,j->ij", Tensor.zeros(n), Tensor.zeros(n)),
        lambda n: Tensor.zeros(2).repeat(n, n),
        lambda n: Tensor.zeros(2).pad((2**62, 2**62)),
        lambda n: Tensor.cat([Tensor.zeros(2**62), Tensor.zeros(2**62)]),
        lambda n: Tensor.zeros(n, 4)[:, Tensor.zeros(n, dtype=dtypes.int64)],
        lambda n: Tensor.zeros(0, n, n).sum(0),
        lambda n: Tensor.zeros(Variable("n", 1, n).uop, n),
    ],
)
def test_more_elements_than_an_index_can_number(make):
    """They take no memory where a value is repeated, but counting them would wrap: a sum of 2**80 ones was 64."""
    with pytest.raises(ShapeError, match="more elements than can be counted") as e:
        make(2**40)
    assert e.value.line[0] == __file__


def test_as_many_elements_as_an_index_can_number():
    x = Tensor.zeros(2**31, 2**32 - 1) + Tensor.ones(2**32 - 1)
    assert x.shape == (2**31, 2**32 - 1) and x[2**30, 5].item() == 1
    assert Tensor.zeros(2**63 - 1).shape == (2**63 - 1,) and Tensor.zeros(0, 2**62).sum().item() == 0
