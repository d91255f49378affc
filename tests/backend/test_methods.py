"""Methods of Tensor on devices with memory of their own, none of which is the default: values and places of the CPU.

The suite of ops has the ops one by one; here is what methods make of them: constants, memory that is filled first,
places as int64. All results are asked for at once.
"""

import numpy as np
import pytest

from monolect import Tensor, function
from tests.backend.test_ops_suite import devices

RNG = np.random.default_rng(0)
A = RNG.standard_normal((4, 6)).astype(np.float32)
POSITIVE = np.abs(A) + np.float32(0.1)
PLACES = RNG.integers(0, 4, (4, 6))
LONG = RNG.standard_normal((2, 700)).astype(np.float32)
IMAGES, FILTERS = (
    RNG.standard_normal((1, 2, 6, 6)).astype(np.float32),
    RNG.standard_normal((3, 2, 3, 3)).astype(np.float32),
)

ALONE = """
    abs acos asin atan ceil cos cosh erf exp exp2 floor gelu log log2 log1p expm1 mish neg reciprocal relu round rsqrt
    sigmoid sign silu sin sinh softplus sqrt square tan tanh trunc sum mean var std prod amax amin argmax argmin median
""".split()
ALONG = """
    sum mean var std amax amin argmax argmin cumsum cumprod cummax cummin softmax log_softmax logsumexp sort argsort
""".split()
CALLS = {
    "one place": lambda t: t(A)[t(np.array([1, 0, 3]))],
    "places in rows": lambda t: t(A)[:, t(np.array([1, 0, -3]))],
    "a place of numbers": lambda t: Tensor.arange(24).reshape(4, 6)[t(np.array([1, 2]))],
    "gather": lambda t: t(A).gather(0, t(PLACES)),
    "scatter": lambda t: t(A).scatter(1, t(np.argsort(A, 1)), t(A)),
    "scatter_add": lambda t: t(A).scatter_add(0, t(PLACES), t(A)),
    "additions to zeros": lambda t: Tensor.zeros(4, 6).index_add(0, t(np.array([1, 1])), t(A[:2])),
    "one_hot": lambda t: t(PLACES).one_hot(5),
    "where": lambda t: Tensor.where(t(A > 0), 1.0, 0.0),
    "masked_fill": lambda t: t(A).masked_fill(t(A > 0), 0),
    "cat of constants": lambda t: Tensor.cat(t(A), Tensor.ones(2, 6)),
    "einsum": lambda t: Tensor.einsum("ij,kj->ik", t(A), t(A)),
    "convolution": lambda t: t(IMAGES).conv2d(t(FILTERS), padding=1),
    "pools": lambda t: t(IMAGES).max_pool2d(2) + t(IMAGES).avg_pool2d(2),
    "attention": lambda t: t(IMAGES).scaled_dot_product_attention(t(IMAGES), t(IMAGES), is_causal=True),
    "cross_entropy": lambda t: t(A).cross_entropy(t(PLACES[:, 0])),
    "topk": lambda t: t(A).topk(3),
    "topk of long rows": lambda t: t(LONG).topk(9),
    "long sort": lambda t: t(LONG).sort(1, descending=True),
    "long sort of integers": lambda t: t((LONG * 50).astype(np.int64)).sort(1),
    "median": lambda t: t(A).median(1),
    "quantile": lambda t: t(A).quantile(0.3, 1),
    "part assigned": lambda t: assigned(t(A.copy()), t(A[:2])),
    "a function": lambda t: function(lambda x, w: (x @ w).relu())(t(A), t(A.T.copy())),
    "gradients of a sort": lambda t: gradient(t(A)),
}  # fmt: skip
CALLS |= {name: lambda t, name=name: getattr(t(POSITIVE), name)() for name in ALONE}
CALLS |= {f"{name} along rows": lambda t, name=name: getattr(t(A), name)(1) for name in ALONG}


def assigned(x: Tensor, part: Tensor) -> Tensor:
    x[1:3] = part
    x[Tensor(np.array([0]), device=x.device)] = 0
    return x


def gradient(x: Tensor) -> Tensor:
    x.requires_grad_().sort(1)[0].cumsum(1).softmax(1).square().sum().backward()
    return x.grad


def results(device: str) -> dict[str, Tensor]:
    """Of each call, computed together; of a pair its parts."""
    out = {}
    for name, call in CALLS.items():
        got = call(lambda x: Tensor(x, device=device))
        out |= {f"{name}, {k}": r for k, r in enumerate(got)} if isinstance(got, tuple) else {name: got}
    first, *others = out.values()
    first.realize(*others)
    return out


@pytest.fixture(scope="module")
def want() -> dict[str, Tensor]:
    return results("cpu")


@pytest.mark.sweep
@pytest.mark.parametrize("device", [d for d in devices() if d.values[0] not in ("cpu", "python")])
def test_methods_give_the_values_of_the_cpu_where_their_tensors_are(device, want):
    for name, got in results(device).items():
        assert got.device == device, name
        a, b = got.numpy(), want[name].numpy()
        assert a.dtype == b.dtype, name
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)
