"""Second and third derivatives where formulas branch: at zeros, at equal operands, at several zeros of a product.

A program is one or two functions of two arrays of few values, so that ties are frequent, in float64 beside PyTorch. All
functions have the derivatives that are compared, everywhere; PyTorch's that are not finite are left out.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from monolect import Tensor, grad

FEW = max(12, settings().max_examples // 3)
VALUES = (0.0, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0)
N = 7  # elements


class Ours:
    stack = staticmethod(lambda *xs: Tensor.stack(*xs, dim=0))
    logcumsumexp = staticmethod(lambda x: x.logcumsumexp(0))


class Theirs:
    stack = staticmethod(lambda *xs: torch.stack(xs))

    @staticmethod
    def logcumsumexp(x: torch.Tensor) -> torch.Tensor:
        """PyTorch's own has a derivative that is not to be differentiated where a gradient is 0."""
        return torch.stack([x[: k + 1].logsumexp(0) for k in range(len(x))])


FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "softplus": lambda L, x, y: (x - y).logaddexp(x * 0),
    "sigmoid": lambda L, x, y: (x * y).sigmoid(),
    "tanh": lambda L, x, y: (x + y).tanh() * x,
    "expm1": lambda L, x, y: (x * y).expm1(),
    "log1p": lambda L, x, y: (x * x).log1p() * y,
    "erf": lambda L, x, y: (x - y).erf(),
    "atan": lambda L, x, y: (x - y).atan() * y,
    "asinh": lambda L, x, y: (x - y).asinh() * y,
    "sinh": lambda L, x, y: x.sinh() * y.cosh(),
    "squares": lambda L, x, y: x**2 * y**3,
    "powers": lambda L, x, y: (x * x + 0.5) ** y,
    "sinc": lambda L, x, y: (x + 0.25).sinc() * y,
    "hypot": lambda L, x, y: (x + 0.3).hypot(y),
    "atan2": lambda L, x, y: (x + 0.3).atan2(y),
    "logaddexp": lambda L, x, y: x.logaddexp(y),
    "logaddexp of multiples": lambda L, x, y: x.logaddexp(x * 0.5) * y,
    "prod": lambda L, x, y: L.stack(x, y, x * y, y * 0.5).prod(0),
    "prod of all": lambda L, x, y: (x.reshape(1, N) + 0 * y).prod(1) * y,
    "cumprod": lambda L, x, y: L.stack(x, y, x * 2, y).cumprod(0).sum(0),
    "cumprod of all": lambda L, x, y: x.cumprod(0) * y,
    "softmax": lambda L, x, y: L.stack(x, y, x + y).softmax(0)[0],
    "logsumexp": lambda L, x, y: L.stack(x, y, x + y).logsumexp(0),
    "logcumsumexp": lambda L, x, y: L.logcumsumexp(L.stack(x, y, x + y))[1],
    "variance": lambda L, x, y: L.stack(x, y, x + y).var(0),
    "norm": lambda L, x, y: L.stack(x + 0.3, y, x + y).norm(2, 0),
    "mean of squares": lambda L, x, y: x * ((L.stack(x, y) ** 2).mean(0) + 0.1).rsqrt(),
    "cumsum": lambda L, x, y: (x * y).cumsum(0) ** 2 * 0.1,
}


def derivatives(f: Callable[..., Any], order: int, xs: list[Any]) -> list[Any]:
    """The value of `f`, and of each order the gradients of a weighted sum of those of the order before."""

    made = Tensor if isinstance(xs[0], Tensor) else torch.tensor

    def weighted(k: int, values: Any) -> Any:
        terms = [(v * made(np.cos(np.arange(N) + k + i))).sum() for i, v in enumerate(values)]
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    if isinstance(xs[0], Tensor):

        def of(k: int) -> Callable[..., Any]:
            if k == 0:
                return lambda *xs: weighted(0, [f(*xs)])
            return lambda *xs: weighted(k, grad(of(k - 1), (0, 1))(*xs))

        return [f(*xs), *(g for k in range(order) for g in grad(of(k), (0, 1))(*xs))]
    out = [f(*xs)]
    total = weighted(0, out)
    for k in range(order):
        flat = not total.requires_grad  # the derivative before is a constant
        found = [None] * 2 if flat else torch.autograd.grad(total, xs, create_graph=True, allow_unused=True)
        gs = [x * 0 if g is None else g for g, x in zip(found, xs, strict=True)]
        out, total = [*out, *gs], weighted(k + 1, gs)
    return out


@settings(max_examples=FEW, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.integers(0, 2**32 - 1))
def test_at_zeros_and_ties(seed: int) -> None:
    r = Random(seed)
    names = r.choices(sorted(FUNCTIONS), k=r.randint(1, 2))
    arrays = [np.array(r.choices(VALUES, k=N)) for _ in range(2)]

    def f(L: Any, x: Any, y: Any) -> Any:
        first = FUNCTIONS[names[0]](L, x, y)
        return first if len(names) == 1 else FUNCTIONS[names[1]](L, first, x)

    order = r.randint(2, 3)
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    wanted = derivatives(lambda *xs: f(Theirs, *xs), order, theirs)
    got = derivatives(lambda *xs: f(Ours, *xs), order, [Tensor(a).realize() for a in arrays])
    got[0].realize(*got[1:])
    for k, (g, w) in enumerate(zip(got, wanted, strict=True)):
        want = w.detach().numpy()
        known = np.isfinite(want)
        message = f"{names} at {arrays}, output {k}"
        np.testing.assert_allclose(g.numpy()[known], want[known], rtol=1e-7, atol=1e-8, err_msg=message)


def test_the_curvature_of_losses_without_a_difference() -> None:
    for loss in (
        lambda x: x.smooth_l1_loss(x.detach(), beta=0.5, reduction="sum"),
        lambda x: 2 * x.huber_loss(x.detach(), delta=0.5, reduction="sum"),
    ):
        x = Tensor([0.0, -1.0, 3.0])
        assert grad(lambda x, f=loss: grad(f)(x).sum())(x).tolist() == [2.0] * 3


def test_sinc_at_and_near_zero() -> None:
    """Its derivatives there are -pi^2/3 x and -pi^2/3, up to terms of the next order."""
    x = np.array([0.0, -0.0, 1e-30, -1e-9, 1e-5])
    first = grad(lambda t: t.sinc().sum())
    np.testing.assert_allclose(first(Tensor(x)).numpy(), -(np.pi**2) / 3 * x, rtol=1e-8)
    np.testing.assert_allclose(grad(lambda t: first(t).sum())(Tensor(x)).numpy(), -(np.pi**2) / 3, rtol=1e-8)
    assert grad(lambda t: t.sinc().sum())(Tensor([1e-45, 1e30])).isfinite().all().item()
