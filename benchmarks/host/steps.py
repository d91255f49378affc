"""The work of `benchmarks.host` in each library: what is timed is one call of what these return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from monolect import Tensor, Variable, jit, nn

Call = Callable[[], Any]
_rng = np.random.default_rng(0)
SIZES, BATCH, RATE = (8, 16, 10), 4, 0.0  # a rate of 0: every step has the same loss, whoever made how many
X = _rng.standard_normal((BATCH, SIZES[0])).astype(np.float32)
Y = _rng.integers(0, SIZES[-1], BATCH)
WEIGHTS = [
    (_rng.standard_normal((o, i)).astype(np.float32), np.zeros(o, np.float32))
    for i, o in zip(SIZES, SIZES[1:], strict=False)
]


# ---- a training step -------------------------------------------------------------------------------------------------
def training_step(model: nn.Module, make: Callable[..., nn.optim.Optimizer]) -> Callable[[Tensor, Tensor], Tensor]:
    """A step that trains `model` on a batch by the optimizer of `make`, at a rate of RATE; it returns the loss."""
    optimizer = make(model.parameters(), lr=RATE)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def ours_train() -> Callable[[Tensor, Tensor], Tensor]:
    """A step of plain SGD on a network of two layers; it returns the loss."""
    model = nn.Sequential(nn.Linear(*SIZES[:2]), nn.ReLU(), nn.Linear(*SIZES[1:]))
    for layer, (w, b) in zip((model[0], model[2]), WEIGHTS, strict=True):
        layer.weight.assign(Tensor(w))
        layer.bias.assign(Tensor(b))
    return training_step(model, nn.optim.SGD)


def torch_train() -> Call:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(*SIZES[:2]), torch.nn.ReLU(), torch.nn.Linear(*SIZES[1:]))
    with torch.no_grad():
        for layer, (w, b) in zip((model[0], model[2]), WEIGHTS, strict=True):
            layer.weight.copy_(torch.from_numpy(w))
            layer.bias.copy_(torch.from_numpy(b))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    x, y = torch.from_numpy(X), torch.from_numpy(Y)

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def jax_train() -> Call:
    import jax
    import jax.numpy as jnp

    def loss(params: Any, x: Any, y: Any) -> Any:
        (w1, b1), (w2, b2) = params
        rows = jax.nn.log_softmax(jax.nn.relu(x @ w1.T + b1) @ w2.T + b2)
        return -rows[jnp.arange(BATCH), y].mean()

    @jax.jit
    def step(params: Any, x: Any, y: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return value, jax.tree.map(lambda p, d: p - RATE * d, params, grads)

    params = [jax.tree.map(jnp.asarray, pair) for pair in WEIGHTS]
    x, y = jnp.asarray(X), jnp.asarray(Y)

    def call() -> Any:
        nonlocal params
        value, params = step(params, x, y)
        jax.block_until_ready(params)
        return value

    return call


# ---- decoding with a growing cache -----------------------------------------------------------------------------------
LENGTHS, LENGTH, HEADS, WIDTH = (64, 256, 1024, 4000), 4096, 8, 64


def ours_decode() -> tuple[Callable[[Tensor, int], Tensor], Any]:
    """A step of attention over a cache: a token in, its key and value stored, one out. With it, the jitted function."""
    place = Variable("decode_place", 0, LENGTH - 1)
    keys, values = (Tensor(c).clone().realize() for c in _caches())

    @jit
    def step(x: Tensor) -> Tensor:
        keys[:, place.uop : place.uop + 1] = x
        values[:, place.uop : place.uop + 1] = x
        seen = place.uop + 1
        return (x @ keys[:, :seen].transpose(1, 2)).softmax(2) @ values[:, :seen]

    def call(x: Tensor, n: int) -> Tensor:
        with place.bind(n):
            return step(x)

    return call, step


def numpy_decode() -> Callable[[np.ndarray, int], np.ndarray]:
    """The same in NumPy: the work itself, whose growth is the measure."""
    keys, values = _caches()

    def call(x: np.ndarray, n: int) -> np.ndarray:
        keys[:, n : n + 1] = values[:, n : n + 1] = x
        scores = x @ keys[:, : n + 1].transpose(0, 2, 1)
        e = np.exp(scores - scores.max(2, keepdims=True))
        return (e / e.sum(2, keepdims=True)) @ values[:, : n + 1]

    return call


def _caches() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal((HEADS, LENGTH, WIDTH)).astype(np.float32) for _ in range(2)]


# ---- small operations ------------------------------------------------------------------------------------------------
def torch_add(a: np.ndarray) -> Call:
    import torch

    x = torch.from_numpy(a)
    return lambda: x + 1


def jax_add(a: np.ndarray) -> Call:
    import jax

    f, x = jax.jit(lambda x: x + 1), jax.numpy.asarray(a)
    return lambda: f(x).block_until_ready()


def ort_add(a: np.ndarray) -> Call:
    import onnx
    import onnxruntime

    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "one"], ["y"])], "add",
        [value("x", onnx.TensorProto.FLOAT, a.shape)], [value("y", onnx.TensorProto.FLOAT, a.shape)],
        [onnx.numpy_helper.from_array(np.float32(1).reshape(()), "one")],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    model.ir_version = 9
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": a})[0]


def torch_sum(a: np.ndarray, b: np.ndarray) -> Call:
    import torch

    x, y = torch.from_numpy(a), torch.from_numpy(b)
    return lambda: x + y


def jax_sum(a: np.ndarray, b: np.ndarray) -> Call:
    import jax.numpy as jnp

    x, y = jnp.asarray(a), jnp.asarray(b)
    return lambda: (x + y).block_until_ready()


def torch_int(a: np.ndarray) -> Call:
    import torch

    t = torch.from_numpy(a)
    return lambda: int(t)


def torch_element(a: np.ndarray) -> Call:
    import torch

    t = torch.from_numpy(a)
    return lambda: t[3].item()
