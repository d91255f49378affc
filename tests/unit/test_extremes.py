"""Extremes of computed values: the index is inside and names the maximum, some element equals it, and its gradient
arrives, whatever kernels compute the value again; ties have PyTorch's gradients.
"""

import random
from math import inf, nan

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, dtypes, jit
from monolect.backend.registry import Device
from monolect.runtime import profile

DEVICES = [name for name, why in Device.present().items() if name in ("cpu", "c", "python") and not why]
SIZES = [(7, 2), (1000, 100), (37, 11), (128, 16), (101, 3), (513, 7), (64, 129), (30, 256), (3, 5000), (1, 1000)]
SETTINGS = [{}, {"NOOPT": 1}, {"THREADS": 1}, {"THREADS": 2}, {"THREADS": 3}, {"THREADS": 8}]
DTYPES = [dtypes.float32] * 3 + [dtypes.float64, dtypes.float16, dtypes.bfloat16]
FORMS = {
    "sum of products": lambda a, b, c, x, y: a * b + c * a,
    "distance": lambda a, b, c, x, y: (x.unsqueeze(1) - y).square().sum(2),
    "expanded distance": lambda a, b, c, x, y: (x * x).sum(1, keepdim=True) + (y * y).sum(1) - 2 * (x @ y.T),
    "product of terms": lambda a, b, c, x, y: (x.unsqueeze(1) * 0.1 + y).prod(2),
    "weighted skip": lambda a, b, c, x, y: a * 0.3 + b * 0.7 + c,
    "mixup": lambda a, b, c, x, y: a * 0.4 + b * (1 - 0.4),
    "gate": lambda a, b, c, x, y: a.sigmoid() * b + (1 - a.sigmoid()) * c,
    "functions": lambda a, b, c, x, y: (a * b + c).tanh() * c.exp() + a.sin(),
    "softmax of a product": lambda a, b, c, x, y: (x @ y.T).softmax(1),
    "normalised": lambda a, b, c, x, y: (a - a.mean(1, keepdim=True)) / (a.var(1, keepdim=True) + 1e-5).sqrt() * b + c,
    "joined": lambda a, b, c, x, y: Tensor.cat(x @ y.T, a * b + c, dim=1),
    "running": lambda a, b, c, x, y: (a * b).cumsum(1) * c,
    "sums of rows": lambda a, b, c, x, y: a + x.sum(1, keepdim=True) * y.sum(1),
}


def extremes(t, axis):
    top, low = t.max(axis), t.min(axis)
    is_top, is_any = (t == t.amax(axis, keepdim=True)).any(axis), (t == t.amax()).any()
    return top.values, top.indices, t.argmax(axis), low.values, t.argmin(axis), is_top, is_any, t.argmax()


def check(values, t, axis):
    top, place, same, low, lowest, is_top, is_any, first = values
    n = t.shape[axis]
    for at, value in ((place, top), (same, top), (lowest, low)):
        assert at.min() >= 0 and at.max() < n
        np.testing.assert_array_equal(np.take_along_axis(t, np.expand_dims(at, axis), axis).squeeze(axis), value)
    np.testing.assert_array_equal(top, t.max(axis))
    np.testing.assert_array_equal(low, t.min(axis))
    assert is_top.all() and is_any and first < t.size and t.ravel()[first] == t.max()


@settings(max_examples=12)
@given(
    st.integers(0, 2**32), st.sampled_from(sorted(FORMS)), st.sampled_from(SIZES), st.sampled_from(DTYPES),
    st.sampled_from(DEVICES), st.sampled_from(SETTINGS),
)  # fmt: skip
def test_extremes_of_computed_values(seed, form, size, dtype, device, context):
    rng, generator = random.Random(seed), np.random.default_rng(seed)
    n, m = size
    k, axis, jitted = rng.choice([1, 2, 3, 5, 8, 33, 100]), rng.choice([0, 1, 1]), rng.random() < 0.3

    def step(*x):
        t = FORMS[form](*x)
        return *(v.double() if v.dtype.is_float else v for v in extremes(t, axis)), t.double()

    with Context(**context):
        shapes = [(n, m)] * 3 + [(n, k), (m, k)]
        x = [Tensor(generator.standard_normal(s), device=device).cast(dtype).realize() for s in shapes]
        step = jit(step) if jitted else step
        values = step(*x)
        values = step(*x) if jitted else values
        Tensor.realize(*values)
        *values, t = (v.numpy() for v in values)
        check(values, t, axis)
        for largest in (lambda t: t.amax(axis), lambda t: t.max(axis).values):
            z = Tensor.zeros(*t.shape, device=device, dtype=dtype, requires_grad=True)
            largest(FORMS[form](*x) + z).float().sum().backward()
            np.testing.assert_allclose(z.grad.double().numpy().sum(axis), 1.0, atol=0.02)


@pytest.mark.parametrize(("rows", "keys", "width"), [(8, 50000, 128), (3, 40000, 64)])
def test_scores_of_long_rows_that_are_compared_are_computed_once(rows, keys, width):
    q, k = (Tensor(np.random.default_rng(n).standard_normal((1, n, width), np.float32)) for n in (rows, keys))
    t = q @ k.transpose(1, 2)
    mixed, is_top = t.softmax(-1) @ k, (t == t.amax(-1, keepdim=True)).any(-1)
    Tensor.realize(mixed, is_top)
    assert is_top.all().item()


def test_the_extreme_of_an_elementwise_value_needs_no_buffer():
    a, b, c = (Tensor(np.random.default_rng(k).standard_normal((100, 300), np.float32)).realize() for k in range(3))
    with profile.Recorder() as kernels:
        (a * b + c).argmax(1).realize()
    assert len(kernels) == 1


# ---- ties ------------------------------------------------------------------------------------------------------------
def same_gradient(x, ours, theirs):
    t, u = torch.tensor(x, requires_grad=True), Tensor(x, requires_grad=True)
    want, got = theirs(t), ours(u)
    weights = np.random.default_rng(0).standard_normal(tuple(want.shape)).astype(x.dtype)
    (want * torch.tensor(weights)).sum().backward()
    (got * Tensor(weights)).sum().backward()
    np.testing.assert_array_equal(got.numpy(), want.detach().numpy())
    np.testing.assert_allclose(u.grad.numpy(), t.grad.numpy(), rtol=1e-5, atol=1e-6)


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_the_first_of_equal_elements_of_a_window_gets_the_gradient(seed, n):
    rng, generator = random.Random(seed), np.random.default_rng(seed)
    x = generator.integers(0, 3, (2, 3, *(rng.randint(5, 9) for _ in range(n)))).astype(np.float32)
    if rng.random() < 0.2:
        x[generator.random(x.shape) < 0.5] = -inf
    kernel = rng.randint(1, 3)
    how = kernel, rng.choice([None, 1, 2, 3]), rng.randint(0, kernel // 2), rng.choice([1, 1, 2]), rng.random() < 0.4
    name = f"max_pool{n}d"
    same_gradient(x, lambda t: getattr(t, name)(*how), lambda t: getattr(torch.nn.functional, name)(t, *how))


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.sampled_from(["max", "min"]), st.booleans())
def test_equal_extremes(seed, name, keepdim):
    """Along one axis the gradient goes to the index, else equal elements share it; both of one tensor, too."""
    rng, generator = random.Random(seed), np.random.default_rng(seed)
    x = generator.integers(0, 3, tuple(rng.randint(1, 7) for _ in range(rng.randint(1, 4)))).astype(np.float32)
    a = rng.randrange(x.ndim)

    def both(t):
        along = getattr(t, name)(a, keepdim)[0]
        return along + getattr(t, f"a{name}")(a, keepdim) * 2 + getattr(t, name)()

    same_gradient(x, both, both)
    for f in (lambda t: t.median(a, True), lambda t: t.kthvalue(1, a, True), lambda t: t.topk(1, a)):
        u = Tensor(x, requires_grad=True)
        values, indices = f(u)
        values.sum().backward()
        want = np.zeros_like(x)
        np.put_along_axis(want, indices.numpy(), 1, a)
        np.testing.assert_array_equal(u.grad.numpy(), want)


def test_the_gradient_of_nan_goes_to_nan():
    x = Tensor([[1.0, nan, 2.0], [3.0, 1.0, 3.0]], requires_grad=True)
    (x.amax(1) + x.max(1).values + x.reshape(2, 1, 3).max_pool1d(3).flatten()).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[0, 3, 0], [2.5, 0, 0.5]])
    assert x.argmax(1).tolist() == [1, 0]
