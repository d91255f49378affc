"""Dtypes and values of operators between tensors with axes, tensors without axes and numbers, against PyTorch.

A tensor without axes promotes less than one with axes, as `torch.result_type` says; functions of the array API promote
by dtype alone.
"""

import itertools
import random
from typing import Any

import numpy as np
import pytest

import monolect
from monolect import Tensor, amp, array_api, dtypes, func, jit, optim
from monolect.base.errors import DTypeError
from monolect.nn.utils import clip_grads_with_norm_

torch = pytest.importorskip("torch")

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
RANKS = ((1, 0), (0, 1), (0, 0))
METHODS = (
    *("add sub mul div pow floor_divide remainder fmod maximum minimum fmax fmin atan2 hypot copysign".split()),
    *("logaddexp logaddexp2 ldexp xlogy float_power bitwise_and bitwise_or bitwise_xor __lshift__ __rshift__".split()),
    *("gcd lcm eq ne lt le gt ge clamp_min clamp_max logical_and logical_or".split()),
)
IN_PLACE = ("add_", "sub_", "mul_", "div_", "pow_", "floor_divide_", "remainder_", "bitwise_and_", "clamp_", "atan2_")
OF_THREE = {
    "where": lambda x, y, z: (z == z).where(x, y) if isinstance(z, Tensor) else torch.where(z == z, x, y),
    "clamp": lambda x, y, z: x.clamp(y, z),
    "addcmul": lambda x, y, z: x.addcmul(y, z),
    "addcdiv": lambda x, y, z: x.addcdiv(y, z),
    "lerp": lambda x, y, z: x.lerp(y, z),
    "sub with alpha": lambda x, y, z: x.sub(y, alpha=3),
    "sum of three": lambda x, y, z: x + y * z,
}
VALUES = {"bool": (True, False), "other": (3, 2)}


def both(dtype: str, rank: int, at: int = 0) -> tuple[Any, Any]:
    """A tensor of `dtype` and the one of PyTorch; with axes, two equal elements."""
    value = VALUES.get(dtype, VALUES["other"])[at]
    data = [value] * 2 if rank else value
    return Tensor(data, dtype=getattr(dtypes, dtype)), torch.tensor(data, dtype=getattr(torch, dtype))


def result(f: Any) -> Any:
    """The result of PyTorch's `f()`, or None where it refuses the dtypes."""
    try:
        return f()
    except (RuntimeError, NotImplementedError):
        return None


def compared(pairs: list[tuple[Any, Any, Any]]) -> None:
    """Check that each result of monolect has the dtype and the values of PyTorch's; all are computed at once."""
    outs = [got for got, _, _ in pairs]
    outs[0].realize(*outs[1:])
    for got, want, about in pairs:
        assert got.dtype.name == str(want.dtype).removeprefix("torch."), about
        rtol = {"float16": 2e-3, "bfloat16": 1.6e-2}.get(got.dtype.name, 1e-5)
        np.testing.assert_allclose(
            np.array(got.tolist(), np.float64), np.array(want.tolist(), np.float64), rtol=rtol, err_msg=str(about)
        )


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("name", METHODS)
def test_methods_of_two_tensors(name: str) -> None:
    pairs = []
    for a, b, (m, n) in itertools.product(DTYPES, DTYPES, RANKS):
        (x, p), (y, q) = both(a, m), both(b, n, 1)
        if (want := result(lambda: getattr(p, name)(q))) is not None:  # noqa: B023
            pairs.append((getattr(x, name)(y), want, (name, a, m, b, n)))
    compared(pairs)


@pytest.mark.sweep
@pytest.mark.parametrize("name", OF_THREE)
def test_three_operands(name: str) -> None:
    """PyTorch takes triples of equal dtypes only for some; the others are compared with its `result_type`."""
    draw, pairs = random.Random(name), []
    for _ in range(120):
        about = [(draw.choice(DTYPES), draw.randrange(2)) for _ in range(3)]
        (x, p), (y, q), (z, r) = (both(d, rank, k % 2) for k, (d, rank) in enumerate(about))
        if (want := result(lambda: OF_THREE[name](p, q, r))) is not None:  # noqa: B023
            pairs.append((OF_THREE[name](x, y, z), want, (name, about)))
    compared(pairs)


def test_a_number_among_several_operands_counts_least() -> None:
    x, half = Tensor([1, 5], dtype=dtypes.int8), Tensor(2.0, dtype=dtypes.float16)
    assert x.lerp(half, 0.5).dtype is dtypes.float16 and x.clamp(half, 2.5).dtype is dtypes.float16
    assert x.addcmul(half, 2.5).dtype is dtypes.float16 and x.fma(half, 2.5).dtype is dtypes.float16
    assert x.half().fma(Tensor(np.array(2.0)), Tensor(1.0)).tolist() == [3.0, 11.0]


@pytest.mark.sweep
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_forms(name: str) -> None:
    pairs = []
    for a, b, m in itertools.product(DTYPES, DTYPES, (0, 1)):
        (x, p), (y, q) = both(a, m), both(b, 0, 1)
        try:
            want = getattr(p, name)(q)
        except NotImplementedError:
            continue
        except RuntimeError as error:
            if "can't be cast" in str(error):
                with pytest.raises(DTypeError):
                    getattr(x, name)(y)
            continue
        pairs.append((getattr(x, name)(y), want, (name, a, m, b)))
    compared(pairs)


def test_out_takes_the_promoted_dtype() -> None:
    out = Tensor([0, 0], dtype=dtypes.int8)
    assert monolect.add(Tensor([1, 2], dtype=dtypes.int8), Tensor(3), out=out) is out and out.tolist() == [4, 5]
    with pytest.raises(DTypeError):
        monolect.add(Tensor([1, 2], dtype=dtypes.int8), Tensor(3.0), out=out)


def test_numbers_and_arrays_with_a_tensor_without_axes() -> None:
    small = Tensor(1, dtype=dtypes.int8)
    assert (small + 300).dtype is dtypes.int8 and (small + 300).item() == 45
    assert (small + 1.5).dtype is dtypes.float32 and (Tensor(True) + 1).dtype is dtypes.int64
    assert (small.half() * 1.5).dtype is dtypes.float16
    single, whole = Tensor([1.0, 2.0]), Tensor([1, 2], dtype=dtypes.int8)
    for array, d in ((np.array(1.5), dtypes.float32), (np.array([1.5]), dtypes.float64)):
        assert (array * single).dtype is (single * array).dtype is d
    assert (np.array(1.5) * whole).dtype is dtypes.float64 and (np.float64(1.5) * whole).dtype is dtypes.float32
    assert single.result_type(Tensor(np.array(1.5))) is dtypes.float32


def test_integers_are_compared_by_value() -> None:
    """PyTorch wraps the tensor without axes: 300 is 44 for it. Numbers of Python have the same results here."""
    x, most = Tensor([44, 255], dtype=dtypes.uint8), Tensor(300)
    for k in (most, 300):
        assert (x == k).tolist() == [False, False] and (x < k).tolist() == [True, True]
        assert x.maximum(k).tolist() == [255, 255] and x.minimum(k).tolist() == x.clamp(max=k).tolist() == [44, 255]
    assert (most > x).tolist() == [True, True] and most.minimum(x).tolist() == [44, 255]
    least = Tensor(-1)
    assert (x > least).tolist() == [True, True] and x.minimum(least).tolist() == [0, 0]
    assert x.maximum(least).dtype is dtypes.uint8 and x.clamp(least, most).tolist() == [44, 255]
    big = Tensor([2**63, 2], dtype=dtypes.uint64)
    assert (big > least).tolist() == [True, True] and (big == Tensor(2)).tolist() == [False, True]
    assert not x.isclose(most).any().item()
    # floats are compared in the dtype of the tensor with axes, as in PyTorch
    assert (Tensor([0.1]) == Tensor(np.array(0.1))).tolist() == [True]


@pytest.mark.parametrize("name", ["mul", "add", "div", "maximum", "pow"])
def test_gradients_have_the_dtype_of_their_leaf(name: str) -> None:
    x, y = Tensor(np.array(2.5), requires_grad=True), Tensor([1.5, 3.0], requires_grad=True)
    p, q = (torch.tensor(t.tolist(), dtype=getattr(torch, t.dtype.name), requires_grad=True) for t in (x, y))
    for (a, b), (c, d) in (((x, y), (p, q)), ((y, x), (q, p))):
        getattr(a, name)(b).sum().backward()
        getattr(c, name)(d).sum().backward()
    for ours, theirs in ((x, p), (y, q)):
        assert ours.grad is not None and ours.grad.dtype is ours.dtype
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)


def test_captured_and_repeated_calls_and_maps_over_samples() -> None:
    step = jit(lambda s, x: s * x + s)
    for k in range(4):
        s, x = Tensor(np.array(0.1 + k)), Tensor([1.0, 2.0])
        want = (torch.tensor(0.1 + k, dtype=torch.float64) * torch.tensor([1.0, 2.0]) + (0.1 + k)).tolist()
        for got in (step(s, x), s * x + s):
            assert got.dtype is dtypes.float32
            np.testing.assert_allclose(got.tolist(), want, rtol=1e-6)
    rows, values = Tensor([[1.0, 2.0]] * 3), Tensor(np.array([1.0, 2.0, 3.0]))
    assert func.vmap(lambda s, row: s * row)(values, rows).dtype is dtypes.float32
    theirs = torch.func.vmap(lambda s, row: s * row)(torch.ones(3, dtype=torch.float64), torch.ones(3, 2))
    assert theirs.dtype is torch.float32


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "maximum", "pow", "remainder", "where", "atan2"])
def test_the_array_api_promotes_by_dtype_alone(name: str) -> None:
    f = getattr(array_api, name)
    if name == "where":
        f = lambda x, y: array_api.where(Tensor([True, False]), x, y)  # noqa: E731
    kinds = ("int8", "int16", "int64", "uint8", "float32", "float64")
    for a, b in itertools.product(kinds, kinds):
        if (a[0] == "f") != (b[0] == "f"):
            continue
        zero, one = Tensor(3, dtype=a), Tensor([1, 2], dtype=b)
        wanted = array_api.result_type(zero, one)
        wanted = dtypes.float32 if name in ("divide", "atan2") and not wanted.is_float else wanted
        assert f(zero, one).dtype is f(one, zero).dtype is wanted


def test_comparisons_and_limits_of_the_array_api() -> None:
    tenth, small = Tensor(np.array(0.1)), Tensor([44, 255], dtype=dtypes.uint8)
    assert not array_api.equal(Tensor([0.1]), tenth).item() and not array_api.equal(small, Tensor(300)).any().item()
    assert array_api.less(Tensor([2**63], dtype=dtypes.uint64), Tensor(-1)).tolist() == [False]
    assert array_api.clip(tenth, Tensor([0.0]), None).tolist() == [0.1]
    assert array_api.clip(small, max=Tensor(300)).tolist() == [44, 255]
    assert array_api.result_type(tenth, Tensor([1.0])) is dtypes.float64


OPTIMIZERS = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.1},
    "Adam": {"weight_decay": 0.1},
    "AdamW": {},
    "NAdam": {},
    "RAdam": {},
    "Adamax": {},
    "Adagrad": {},
    "Adadelta": {},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Adafactor": {},
    "ASGD": {},
    "Rprop": {},
    "Lion": {},
    "LARS": {"lr": 0.5},
    "LAMB": {},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_compute_steps_of_narrow_parameters_in_float32(name: str) -> None:
    start = np.linspace(-2.0, 2.0, 64, dtype=np.float32).reshape(8, 8)
    slopes = [np.cos(start * (k + 1)) for k in range(4)]
    settings: dict[str, Any] = {"lr": 0.013} | OPTIMIZERS[name]
    ends = []
    for d in (dtypes.bfloat16, dtypes.float32):
        w = Tensor(start).cast(dtypes.bfloat16).cast(d).detach().requires_grad_()
        optimizer = getattr(optim, name)([w], **settings)
        for slope in slopes:
            w.grad = Tensor(slope).cast(dtypes.bfloat16).cast(d)
            optimizer.step()
        ends.append(w.float().numpy())
    # each step rounds the parameter and each state, by half a unit
    np.testing.assert_allclose(ends[0], ends[1], rtol=0.0, atol=6 * 2.0**-8)


def test_factors_of_narrow_gradients_are_not_rounded() -> None:
    w = Tensor([1.0]).half().requires_grad_()
    w.grad = Tensor([60000.0]).half()
    scaler = amp.GradScaler(init_scale=2.0**26)  # float16 does not hold its inverse
    scaler.unscale_(optim.SGD([w]))
    assert w.grad.item() == np.float16(60000.0 * 2.0**-26)
    w.grad = Tensor([3000.0]).half()
    clip_grads_with_norm_([w], 2.0, Tensor(3.0e9))
    assert w.grad.item() == np.float16(3000.0 * np.float32(2.0 / 3.0e9))
