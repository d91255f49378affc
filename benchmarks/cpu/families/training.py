"""Training steps: forward, loss, gradients and Adam, of a small MLP and a small CNN.

The reference is PyTorch in float64: the losses of the first steps.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cpu.case import Case, Program
from benchmarks.cpu.families.models import Shapes, with_parameters
from benchmarks.cpu.words import InJax, InMonolect, InTorch, Words

RATE, DECAY, SQUARE_DECAY, EPS = 1e-3, 0.9, 0.999, 1e-8
STEPS = 3
Model = Callable[[Words, list, Any], Any]  # logits of a batch


def in_torch(model: Model) -> Program:
    def program(torch: Any, compiled: Callable, x: Any, y: Any, *params: Any) -> Callable[[], Any]:
        words, target = InTorch(torch), y.long()
        leaves = [p.requires_grad_() for p in params]
        optimizer = torch.optim.Adam(leaves, lr=RATE, betas=(DECAY, SQUARE_DECAY), eps=EPS)
        loss_of = compiled(lambda x, target: torch.nn.functional.cross_entropy(model(words, leaves, x), target))

        def step() -> Any:
            optimizer.zero_grad()
            loss = loss_of(x, target)
            loss.backward()
            optimizer.step()
            return loss

        return step

    return program


def in_jax(model: Model) -> Program:
    def program(jax: Any, _: Callable, x: Any, y: Any, *params: Any) -> Callable[[], Any]:
        words, np = InJax(jax), jax.numpy

        def loss_of(params: list, x: Any, y: Any) -> Any:
            logits = jax.nn.log_softmax(model(words, params, x))
            return -logits[np.arange(len(y)), y].mean()

        @functools.partial(jax.jit, donate_argnums=(0, 1, 2, 3))
        def step(params: list, m: list, v: list, t: Any, x: Any, y: Any) -> Any:
            loss, grads = jax.value_and_grad(loss_of)(params, x, y)
            t = t + 1
            m = jax.tree.map(lambda m, g: DECAY * m + (1 - DECAY) * g, m, grads)
            v = jax.tree.map(lambda v, g: SQUARE_DECAY * v + (1 - SQUARE_DECAY) * g * g, v, grads)

            def moved(p: Any, m: Any, v: Any) -> Any:
                return p - RATE * (m / (1 - DECAY**t)) / (np.sqrt(v / (1 - SQUARE_DECAY**t)) + EPS)

            return jax.tree.map(moved, params, m, v), m, v, t, loss

        state = [[np.array(p) for p in params], *[[np.zeros_like(p) for p in params] for _ in "mv"], np.zeros(())]

        def call() -> Any:
            *state[:], loss = step(*state, x, y)
            return loss.block_until_ready()

        return call

    return program


def in_monolect(model: Model) -> Program:
    def program(monolect: Any, compiled: Callable, x: Any, y: Any, *params: Any) -> Callable[[], Any]:
        words = InMonolect(monolect)
        leaves = [p.requires_grad_() for p in params]
        optimizer = monolect.nn.optim.Adam(leaves, lr=RATE, betas=(DECAY, SQUARE_DECAY), eps=EPS)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = model(words, leaves, x).cross_entropy(y)
            loss.backward()
            optimizer.step()
            return loss

        jitted = compiled(step)
        return lambda: jitted(x, y)

    return program


def in_float64(model: Model) -> Program:
    def losses(_: Any, x: np.ndarray, y: np.ndarray, *params: np.ndarray) -> list[np.ndarray]:
        torch = importlib.import_module("torch")
        tensors = [torch.from_numpy(a.copy()) for a in (x, y, *params)]
        step = in_torch(model)(torch, lambda f: f, *tensors)
        return [step().detach().numpy() for _ in range(STEPS)]

    return losses


def training(
    name: str, model: Model, shapes: Shapes, image: tuple[int, ...], batch: int, macs: float, quick: bool = False
) -> Case:
    """A step on one batch; `macs` is what the forward pass of one sample multiplies."""
    size = 4 * sum(math.prod(shape) for shape in shapes.values())
    first = 4 * batch * math.prod(image)

    def data(rng: np.random.Generator) -> list[np.ndarray]:
        return [rng.standard_normal((batch, *image), dtype=np.float32), rng.integers(0, 10, batch, np.int32)]

    return Case(
        name,
        "training",
        with_parameters(shapes, data),
        {"monolect": in_monolect(model), "torch": in_torch(model), "jax": in_jax(model)},
        exact=in_float64(model),
        tolerance=1e-3,
        flops=6.0 * batch * macs,
        moved=(first + 3 * size, 3 * size),
        steps=STEPS,
        quick=quick,
    )


def mlp(batch: int, *, sizes: tuple[int, ...] = (784, 512, 512, 10), quick: bool = False) -> Case:
    shapes: Shapes = {}
    for i, (into, out) in enumerate(zip(sizes, sizes[1:], strict=False)):
        shapes |= {f"{i}.w": (out, into), f"{i}.b": (out,)}

    def model(w: Words, p: list, x: Any) -> Any:
        for i in range(0, len(p) - 2, 2):
            x = w.relu(w.linear(x, *p[i : i + 2]))
        return w.linear(x, *p[-2:])

    macs = sum(a * b for a, b in zip(sizes, sizes[1:], strict=False))
    return training(
        f"MLP training bs {batch} ({'-'.join(map(str, sizes))})", model, shapes, sizes[:1], batch, macs, quick
    )


def cnn(batch: int, *, size: int = 28, widths: tuple[int, int] = (32, 64)) -> Case:
    """Two 5x5 convolutions, a pool, two 3x3 convolutions, a pool, a linear layer."""
    a, b = widths
    end = ((size - 8) // 2 - 4) // 2
    shapes: Shapes = {"0": (a, 1, 5, 5), "1": (a, a, 5, 5), "2": (b, a, 3, 3), "3": (b, b, 3, 3)}
    shapes |= {"w": (10, b * end * end), "b": (10,)}

    def model(w: Words, p: list, x: Any) -> Any:
        for first, second in (p[0:2], p[2:4]):
            x = w.relu(w.conv(w.relu(w.conv(x, first)), second))
            x = w.max_pool(x, 2, 2, 0)
        return w.linear(w.reshape(x, batch, b * end * end), *p[4:])

    half = (size - 8) // 2
    areas = [(size - 4) ** 2, (size - 8) ** 2, (half - 2) ** 2, (half - 4) ** 2]
    macs = sum(area * math.prod(shapes[str(i)]) for i, area in enumerate(areas))
    return training(f"CNN training bs {batch} ({size}x{size})", model, shapes, (1, size, size), batch, macs)


CASES = [mlp(128, quick=True), cnn(512)]
