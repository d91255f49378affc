"""Each operation rounds once, as written: random elementwise expressions have NumPy's bits in every kernel, and casts
to narrow floats those of exact arithmetic.
"""

import operator
import random
from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, dtypes, jit
from monolect.backend.registry import Device
from monolect.base.dtype import USER
from monolect.runtime.realize.execute import plans
from tests.strategies import COMPILED, often

DEVICES = [name for name, why in Device.present().items() if name in ("cpu", "c", "python") and not why]
SHAPES = [(7, 2), (5, 3), (37, 11), (64, 100), (130, 17), (1000,), (3, 5, 16)]
BINARY = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b}
SETTINGS = [{}, {"NOOPT": 1}, {"THREADS": 1}, {"THREADS": 2}, {"THREADS": 3}]


def expression(rng, leaves, depth):
    """A function of a list of arrays or Tensors, and its text: products and sums mostly, which could be contracted."""
    if depth == 0 or rng.random() < 0.1:
        if rng.random() < 0.2:
            c = rng.choice([0.3, 1.7, -0.77, 3.0])
            return (lambda x: c), str(c)
        k = rng.randrange(leaves)
        return (lambda x: x[k]), f"x{k}"
    op = rng.choice("+++-***/s")
    f, a = expression(rng, leaves, depth - 1)
    if op == "s":
        return (lambda x: root(f(x))), f"sqrt(|{a}|)"
    g, b = expression(rng, leaves, depth - 1)
    return (lambda x: BINARY[op](f(x), g(x))), f"({a} {op} {b})"


def root(x):
    """The square root of the magnitude, of an array, a Tensor or a number."""
    return (
        x.abs().sqrt() if isinstance(x, Tensor) else np.sqrt(np.abs(x)) if isinstance(x, np.ndarray) else abs(x) ** 0.5
    )


def in_many_kernels(f, x):
    """The expression by itself, stored the other way round, beside another result, and as what a maximum is of."""
    y = f(x)
    turned = y.permute(*reversed(range(y.ndim))).contiguous().permute(*reversed(range(y.ndim)))
    return y, turned, y + 0.0 * y.amax(-1, keepdim=True).isnan(), y.flip(0).contiguous().flip(0), y.reshape(-1)[1:]


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from(SHAPES), st.sampled_from(DEVICES), st.sampled_from(SETTINGS))
def test_elementwise_expressions_have_the_bits_of_numpy(seed, shape, device, context):
    rng, generator = random.Random(seed), np.random.default_rng(seed)
    d = rng.choice([np.float32, np.float32, np.float64])
    arrays = [generator.standard_normal(rng.choice([shape, shape[-1:]])).astype(d) for _ in range(4)]
    arrays[0] = generator.standard_normal(shape).astype(d)
    f, text = expression(rng, len(arrays), rng.choice([2, 3, 4]))
    with np.errstate(all="ignore"):
        want = arrays[0] * f(arrays) + arrays[1]
    with Context(**context):
        x = [Tensor(a, device=device).realize() for a in arrays]
        step = jit(lambda *x: in_many_kernels(lambda x: x[0] * f(x) + x[1], x)) if rng.random() < 0.3 else None
        found = step(*x) if step else in_many_kernels(lambda x: x[0] * f(x) + x[1], x)
        if step:
            found = step(*x)
        Tensor.realize(*found)
    for y in (y.numpy().ravel() for y in found):
        np.testing.assert_array_equal(y, want.ravel()[want.size - y.size :], err_msg=text)


@pytest.mark.parametrize("device", DEVICES)
def test_a_product_and_a_sum_round_twice_and_fma_once(device):
    a, b, c = (np.array([v], np.float32) for v in (1 + 2**-13, 1 - 2**-13, -1.0))
    x, y, z = (Tensor(v, device=device) for v in (a, b, c))
    assert (x * y + z).item() == (x * y - 1.0).item() == 0.0 == (a * b + c).item()
    if device != "python":  # whose multiply-add is NumPy's product and sum
        assert x.fma(y, z).item() == -(2.0**-26)
    assert (x.expand(3) * y).sum().item() == 3.0


def test_every_lane_of_a_kernel_rounds_alike():
    """Also the last lanes, which are in a loop of their own."""
    a, b = (np.random.default_rng(k).standard_normal((1000, 100)).astype(np.float32) for k in (0, 1))
    x, y = Tensor(a).realize(), Tensor(b).realize()
    turned = (x * x + y * y).T.contiguous().numpy().T
    np.testing.assert_array_equal(turned, a * a + b * b)
    np.testing.assert_array_equal((x * x + y * y).numpy(), a * a + b * b)


OF_PLACES = {
    name: lambda x, name=name: getattr(x, name)() for name in ("exp", "exp2", "log", "log2", "sin", "cos", "tanh")
}
OF_PLACES |= {"power": lambda x: (x * 0.0 + 1.7) ** (x / 0.37).trunc(), "exp(-x)": lambda x: (-x).exp()}


@pytest.mark.sweep
@pytest.mark.parametrize("name", OF_PLACES)
@pytest.mark.parametrize("n", [3, 4])
def test_functions_of_places_have_the_same_bits_where_loops_are_unrolled(name, n):
    """There the argument is a constant."""
    one = Tensor(np.eye(n, dtype=np.float32)[np.arange(20 * n) % n]).realize()
    for k in (0.37, 0.71, 1.3, 2.9):
        x = one * OF_PLACES[name]((Tensor.arange(n).float() + 0.3) * k)
        np.testing.assert_array_equal(x.abs().amax(1).numpy(), np.abs(x.contiguous().numpy()).max(1))


def test_powers_of_places_have_the_same_bits_where_loops_are_unrolled():
    """Products for small exponents would be other numbers than the power that a kernel of all exponents computes."""
    for d in (dtypes.float32, dtypes.float64):
        for n in (3, 4, 5):
            base = Tensor(np.random.default_rng(n).uniform(0.5, 3, (20 * n, 1)), dtype=d).realize()
            x = base ** Tensor.arange(n).cast(d)
            np.testing.assert_array_equal(x.abs().amax(1).numpy(), np.abs(x.contiguous().numpy()).max(1))


FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sigmoid softplus erf gelu sinh cosh asin atan asinh atanh"
    " rsqrt silu mish"
).split()


def forms_of_a_number(f, v, x, k, device, dtype):
    """`f` of the number `v`, element k of `x`, computed in several kernels, from it or from all of `x`."""
    one = Tensor(np.ones(5), device=device, dtype=dtype).realize()
    number = Tensor(v, device=device, dtype=dtype)
    yield f(number)
    yield f(Tensor.full((3,), v, device=device, dtype=dtype))[1]
    yield (one * f(number))[2]
    yield Tensor.stack([f(number), f(number + 1.0), f(number)])[2]
    yield f(x[k])
    yield f(x.reshape(1, -1).expand(3, -1).contiguous())[2, k]


@settings(max_examples=often(6, 100))
@given(
    st.sampled_from(FUNCTIONS),
    st.floats(-4, 4, width=16),
    st.sampled_from(DEVICES),
    st.sampled_from([dtypes.float32, dtypes.float64, dtypes.float16]),
)
def test_a_function_of_a_number_has_the_bits_of_that_of_a_tensor(name, v, device, dtype):
    def f(x):
        return getattr(x, name)()

    x = Tensor(np.array([0.5, 1.5, v, -2.0, 3.0]), device=device, dtype=dtype).realize()
    wanted = f(x).numpy()[2]
    for n, found in enumerate(forms_of_a_number(f, v, x, 2, device, dtype)):
        np.testing.assert_array_equal(found.numpy(), wanted, err_msg=f"{name} of {v}, form {n}")


def test_functions_keep_their_bits_after_others_of_the_same_form():
    """Numbers that differ become inputs; those that make an exp of an exp2 are no such numbers."""
    x = Tensor(np.random.default_rng(0).uniform(0.01, 9, 2000)).float().realize()

    def values(k):
        logs = {"log": x.log(), "log10": x.log10(), **{f"log2 {c}": x.log2() * c for c in (0.3, 0.7, k)}}
        powers = {"exp": x.exp(), **{f"exp2 {c}": (x * c).exp2() for c in (0.5, 0.7, k)}}
        waves = {"cos": x.cos(), **{f"sin {c}": (c - x).sin() for c in (1.0, 1.1, k)}}
        return logs | powers | waves

    first = {name: values(0.9)[name].numpy() for name in ("log", "exp", "cos")}
    for k in (0.1, 0.2, 0.4, 0.8):
        for y in values(k).values():
            y.numpy()
    plans.clear()  # as where they had made room for others
    for name, wanted in first.items():
        np.testing.assert_array_equal(values(0.9)[name].numpy(), wanted, err_msg=name)


@pytest.mark.sweep
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.float16])
def test_functions_of_numbers(dtype, device):
    """Such a function is a node of its own, no constant; it is that of a tensor but for the last places."""
    names = ["exp", "exp2", "expm1", "log", "log2", "sin", "cos", "tan", "tanh", "sigmoid", "softplus", "erf", "gelu"]
    for name in names:
        for v in (0.75, 3.0):
            one, many = (Tensor(x, device=device, dtype=dtype) for x in (v, np.full(5, v)))
            wanted = getattr(many, name)()[0].item()
            for found in (getattr(one, name)(), getattr(one, name)().reshape(1, 1).softmax(1) * getattr(one, name)()):
                assert found.item() == pytest.approx(wanted, rel=2e-3 if dtype is dtypes.float16 else 2e-6)


# ---- casts -----------------------------------------------------------------------------------------------------------
# digits behind the point, exponents of the smallest and the largest normal number, what is beyond the largest
FORMATS = {
    "float16": (10, -14, 15, inf),
    "bfloat16": (7, -126, 127, inf),
    "fp8e5m2": (2, -14, 15, inf),
    "fp8e4m3": (3, -6, 8, nan),
}
LARGEST = {"float16": 65504.0, "bfloat16": 255 * 2.0**120, "fp8e5m2": 57344.0, "fp8e4m3": 448.0}
BITS = {"int32": 31, "uint32": 32, "int64": 63, "uint64": 64}


def rounded(v, name):
    """The finite number `v` to nearest even in a narrow format, by exact arithmetic."""
    digits, low, _, beyond = FORMATS[name]
    x = abs(Fraction(v))
    e = low
    while x >= Fraction(2) ** (e + 1):
        e += 1
    y = round(x / Fraction(2) ** (e - digits)) * Fraction(2) ** (e - digits)  # of Fractions to even
    y = beyond if y > LARGEST[name] else float(y)
    return -y if v < 0 else y


def near_ties(rng, source, name, n):
    """Numbers half way between neighbours of a format, or off by a little: by what float32 still holds, or by less."""
    digits, low, high, _ = FORMATS[name]
    for _ in range(n):
        lead, half = rng.getrandbits(digits) | 1 << digits, rng.choice([0, 1])
        if source == "float64":
            v = (lead + half / 2) * 2.0 ** (rng.randint(low - digits - 2, high) - digits)
            v *= 1 + rng.choice([0, 1, -1]) * 2.0 ** -rng.randint(digits + 3, 52)
        else:
            shift = rng.randint(0, BITS[source] - digits - 2)
            v = (2 * lead + half << shift) + rng.choice([0, 1, -1]) * (1 << rng.randint(0, shift))
            v = min(v, 2 ** BITS[source] - 1)
        yield v if source[0] == "u" else rng.choice([-1, 1]) * v


@pytest.mark.sweep
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("source", ["float64", *BITS])
def test_casts_to_narrow_floats_round_once(source, name):
    seed = random.SystemRandom().randrange(2**32)
    numbers = list(near_ties(random.Random(seed), source, name, 500))
    x, d = np.array(numbers, source), getattr(dtypes, name)
    want = np.array([rounded(v, name) for v in numbers])
    found = {device: Tensor(x, device=device).cast(d) for device in DEVICES}
    found["in numpy"], found["a scalar"] = Tensor(x, dtype=d), Tensor.stack(*(Tensor(v, dtype=d) for v in numbers[:20]))
    for how, y in found.items():
        np.testing.assert_array_equal(y.double().numpy(), want[: y.numel()], err_msg=f"{how}, seed {seed}")


@pytest.mark.sweep
@pytest.mark.parametrize("source", ["float64", *BITS])
def test_casts_of_the_largest_and_the_smallest(source):
    edges = [0, 1, 2**24 + 1, 2 ** BITS.get(source, 10) - 1, *([-1, -(2 ** BITS[source])] if source[0] == "i" else [])]
    edges += [inf, -inf, nan, 1e-320, -1e-46, 3.4e38, 3.39e38, 1e300] if source == "float64" else []
    x = np.array(edges, source)
    for name in FORMATS:
        want = [
            v if v != v else FORMATS[name][3] * (1 if v > 0 else -1) if abs(v) == inf else rounded(v, name)
            for v in edges
        ]
        for device in DEVICES:
            got = Tensor(x, device=device).cast(getattr(dtypes, name)).double().numpy()
            np.testing.assert_array_equal(got, want, err_msg=f"{name} {device}")


NUMBERS = [0.0, -0.0, 1.0, -1.5, 0.1, 300.0, 448.0, 464.0, 465.0, 7e4, 2.0**31, -(2.0**63), 1e39, 1e300, inf, -inf, nan]
NAMES = [d.name for d in USER]


@COMPILED
@given(st.lists(st.sampled_from(NAMES), min_size=2, max_size=4), st.sampled_from(DEVICES))
@example(["float32", "fp8e4m3", "float32"], "cpu")
@example(["fp8e4m3", "uint64"], "python")
def test_casts_of_constants_are_those_of_data(chain, device):
    """What is folded while nodes are built has the numbers of a kernel, over any chain of types."""
    first, *rest = (getattr(dtypes, name) for name in chain)
    data = Tensor(NUMBERS, dtype=first, device=device)
    constants = [Tensor.full((2,), v, dtype=first, device=device) for v in NUMBERS]
    for d in rest:
        data, constants = data.cast(d), [c.cast(d) for c in constants]
    got = Tensor.stack(*(c[0] for c in constants))
    if rest[-1].is_float:
        data, got = data.double(), got.double()
    np.testing.assert_array_equal(got.numpy(), data.numpy())


@pytest.mark.sweep
@pytest.mark.parametrize("device", DEVICES)
def test_a_type_without_infinity(device):
    """An infinity of it is nan. Comparisons see the number itself, bounds the nearest number of the type."""
    x = Tensor(np.arange(256, dtype=np.uint8), device=device).bitcast(dtypes.fp8e4m3)
    w = x.float().numpy()
    same, found = np.testing.assert_array_equal, []
    for c in (inf, -inf, nan, 1000.0, -1000, 10**9, 448, -448.0, 3.0, np.float32(1e6)):
        for name in ("lt", "le", "gt", "ge", "eq", "ne"):
            found.append((getattr(x, name)(c), getattr(operator, name)(w, c), f"{name} {c}"))
        low, high = (np.clip(y, -448, 448) for y in (np.maximum(w, c), np.minimum(w, c)))
        found.append((x.maximum(c).float(), low, f"maximum {c}"))
        found.append((x.minimum(c).float(), high, f"minimum {c}"))
        found.append((x.clamp(min=c).float(), low, f"clamp from {c}"))
        found.append((x.clamp(max=c).float(), high, f"clamp to {c}"))
    Tensor.realize(*(got for got, *_ in found))
    for got, wanted, message in found:
        same(got.numpy(), wanted, err_msg=message)
    same(x.isfinite().numpy(), np.isfinite(w))
    same(x.isinf().numpy(), np.isinf(w))
    same(x.nan_to_num(1.0, 2.0, 3.0).float().numpy(), np.where(np.isnan(w), 1, w))
    endless = Tensor.full((3,), inf, dtype=dtypes.fp8e4m3, device=device)
    assert endless.isnan().tolist() == [True] * 3 and np.isnan(endless.float().numpy()).all()
