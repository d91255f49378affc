"""Uses of the public names with the types that a type checker finds: mypy checks this file, and a test runs it.

In `refused`, each line that mypy does not refuse is an unused `type: ignore`, which mypy reports too.
"""

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np

import monolect
from monolect import Context, Tensor, Variable, custom_kernel, dtypes, function, grad, jit, nn, value_and_grad
from monolect.ir.uop import UOp
from monolect.tensor.methods.reduce import ValuesIndices


class Doubled(nn.Module):
    """A module whose call takes and returns more than a tensor."""

    def __init__(self) -> None:
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor, n: int = 2) -> tuple[Tensor, int]:
        """Return the result and the number of rows."""
        return self.layer(x) * n, len(x)


class Model:
    """A class with a jitted method and one that is a graph fragment."""

    @jit
    def step(self, x: Tensor, n: int) -> Tensor:
        """Return a product."""
        return x * n

    @function
    def part(self, x: Tensor) -> Tensor:
        """Return a sum."""
        return x + 1


def operators(x: Tensor) -> None:
    """Operators take numbers, arrays and symbolic sizes on either side."""
    assert_type(x + 1, Tensor)
    assert_type(2.0 * x, Tensor)
    assert_type(x + np.ones(2, np.float32), Tensor)
    assert_type(x @ x.T, Tensor)
    assert_type(-x, Tensor)
    assert_type(x < 1, Tensor)
    assert_type(x == 1, Tensor)
    assert_type(x[0, :, None], Tensor)
    assert_type(x[x > 1.5, ...] if False else x, Tensor)
    x[0] = 1.0
    x[:, 1] = np.zeros(2, np.float32)
    x += 1
    assert_type(x, Tensor)


def the_package_that_is_a_function(x: Tensor) -> None:
    """The package `monolect.tensor` is also the function that copies data."""
    assert_type(monolect.tensor([1.0, 2.0], dtype=dtypes.float64), Tensor)
    assert_type(monolect.tensor(x, requires_grad=True), Tensor)


def methods(x: Tensor) -> None:
    """Methods return tensors; those with several results name them."""
    assert_type(x.relu().exp().sum(1, keepdim=True), Tensor)
    assert_type(x.mean((0, 1)), Tensor)
    assert_type(x.sinc(), Tensor)
    assert_type(x.max(), Tensor)
    assert_type(x.max(1), ValuesIndices[Tensor])
    assert_type(x.max(dim=0).indices, Tensor)
    assert_type(x.max(axis=0), Tensor)
    assert_type(x.sort(0).values, Tensor)
    assert_type(x.median(), Tensor)
    assert_type(x.clamp(0, x), Tensor)
    assert_type(Tensor.where(x > 0, x, 0.0), Tensor)
    assert_type(Tensor.cat([x, x], dim=1), Tensor)
    assert_type(x.cat(x), Tensor)
    assert_type(Tensor.stack([x, x]), Tensor)
    assert_type(x.split(1), tuple[Tensor, ...])
    assert_type(x.to("cpu").to(dtypes.float64).contiguous().detach(), Tensor)
    assert_type(x.sum().item(), int | float)
    assert_type(x.device, str | tuple[str, ...])
    assert_type(x.is_floating_point(), bool)


def creation() -> None:
    """Sizes are numbers or symbolic; a dtype is one of monolect's, a name, or one of NumPy's."""
    n = Variable("n", 1, 4)
    assert_type(n + 1, UOp)
    assert_type(Tensor.zeros(2, 3, dtype=dtypes.float32), Tensor)
    assert_type(Tensor.ones((2, 3), dtype="float16", device="cpu"), Tensor)
    assert_type(Tensor.full((2, n), 7, dtype=np.float32), Tensor)
    assert_type(Tensor.randn(2, n * 2), Tensor)
    assert_type(Tensor.kaiming_uniform(3, 2, requires_grad=True), Tensor)
    assert_type(Tensor.arange(0, 1, 0.25), Tensor)
    for data in (1, [1.0, 2.0], [[1, 2], [3, 4]], range(3), np.zeros(3), Tensor([1])):
        assert_type(Tensor(data), Tensor)


def modules(x: Tensor) -> None:
    """The call of a module has the types of its `forward`."""
    assert_type(nn.Linear(2, 2)(x), Tensor)
    model = nn.Sequential(nn.Linear(2, 16), Tensor.relu, lambda y: y * 2, nn.Linear(16, 2))
    assert_type(model(x), Tensor)
    assert_type(Doubled()(x, n=3), tuple[Tensor, int])
    assert_type(nn.MultiheadAttention(2, 1, batch_first=True)(x, x, x)[0], Tensor)
    assert_type(model.eval(), nn.Sequential)
    optimizer = nn.optim.Adam(model.parameters(), lr=0.1)
    optimizer.load_state_dict(optimizer.state_dict())
    model.load_state_dict({name: t.numpy() for name, t in model.state_dict().items()})


def functions(x: Tensor) -> None:
    """Decorators keep the types of the function."""

    @jit
    def step(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
        return x * n, x + n

    @jit(donate="x")
    def donating(x: Tensor) -> Tensor:
        return x * 2

    @function(precompile=True)
    def part(x: Tensor) -> Tensor:
        return x + 1

    def loss(x: Tensor) -> Tensor:
        return (x * x).sum()

    @Context(TRAINING=1)
    def under_context() -> int:
        return 1

    assert_type(step(x, 2), tuple[Tensor, Tensor])
    assert_type(donating(x.clone()), Tensor)
    assert_type(part(x), Tensor)
    assert_type(Model().step(x, 2), Tensor)
    assert_type(Model().part(x), Tensor)
    assert_type(value_and_grad(loss)(x), tuple[Tensor, Any])
    derivative: Callable[[Tensor], Tensor] = grad(loss)
    assert_type(derivative(x), Tensor)
    assert_type(under_context(), int)


def refused(x: Tensor) -> None:
    """A type checker refuses each line; nothing runs it."""
    x.absent()  # type: ignore[attr-defined]
    nn.Absent  # type: ignore[attr-defined]  # noqa: B018
    x + "a"  # type: ignore[operator]
    x.sum("a")  # type: ignore[arg-type]
    x.cast(3)  # type: ignore[arg-type]
    x.reshape("a")  # type: ignore[arg-type]
    Tensor.zeros(2, device=3)  # type: ignore[arg-type]
    Tensor.zeros(2.5)  # type: ignore[arg-type]
    nn.Linear("a", 2)  # type: ignore[arg-type]
    nn.Linear(2, 2)("a")  # type: ignore[arg-type]
    nn.Sequential(3)  # type: ignore[arg-type]
    Doubled()(x, n="a")  # type: ignore[arg-type]
    Model().step(x, "a")  # type: ignore[arg-type]
    jit(nn.Linear(2, 2).forward)(3)  # type: ignore[arg-type]
    custom_kernel(lambda out: out, out=3)  # type: ignore[call-overload]
    nn.optim.SGD([3], lr=0.1)  # type: ignore[arg-type]
    Variable(3, 1, 2)  # type: ignore[arg-type]


def main() -> None:
    """Run all uses that are right."""
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    operators(x)
    the_package_that_is_a_function(x)
    methods(x)
    creation()
    modules(x)
    functions(x)
