"""The few words that the models are written in, said by each library in its own way.

Tensors are the library's own; a linear layer's weight is (out, in) and images are NCHW, as PyTorch keeps them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.cpu.definitions import attention, convolution, max_pool

EPS = 1e-5


class Words:
    """What all libraries say alike, and the names of what they do not."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def linear(self, x: Any, w: Any, b: Any = None) -> Any:
        y = x @ self.permute(w, (1, 0))
        return y if b is None else y + b

    def permute(self, x: Any, axes: Sequence[int]) -> Any:
        return x.transpose(axes)

    def reshape(self, x: Any, *shape: int) -> Any:
        return x.reshape(shape)

    def parts(self, x: Any, count: int, width: int) -> list[Any]:
        """The last axis in `count` parts of `width`."""
        return [x[..., i * width : (i + 1) * width] for i in range(count)]

    def rows(self, table: Any, index: Any) -> Any:
        return table[index]

    def first(self, x: Any) -> Any:
        """Without the second axis: what stands first along it."""
        return x[:, 0]

    def mean(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.mean(axes)


class InNumPy(Words):
    """NumPy and, where they agree, JAX."""

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self.np = library

    def relu(self, x: Any) -> Any:
        return self.np.maximum(x, 0)

    def gelu(self, x: Any) -> Any:
        return 0.5 * x * (1 + self.np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / self.np.sqrt(x.var(-1, keepdims=True) + EPS) * w + b

    def batch_norm(self, x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
        scale = w / self.np.sqrt(var + EPS)
        return x * scale[:, None, None] + (b - mean * scale)[:, None, None]

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        return attention(self.library, q, k, v, causal)

    def cat(self, xs: Sequence[Any], axis: int) -> Any:
        return self.np.concatenate(xs, axis)

    def conv(self, x: Any, w: Any, stride: int = 1, padding: int = 0) -> Any:
        return convolution(x, w, stride, padding)

    def max_pool(self, x: Any, k: int, stride: int, padding: int) -> Any:
        return max_pool(x, k, stride, padding)


class InJax(InNumPy):
    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self.np, self.gelu = library.numpy, library.nn.gelu

    def conv(self, x: Any, w: Any, stride: int = 1, padding: int = 0) -> Any:
        return self.library.lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2)

    def max_pool(self, x: Any, k: int, stride: int, padding: int) -> Any:
        sides = ((0, 0), (0, 0), (padding, padding), (padding, padding))
        return self.library.lax.reduce_window(
            x, -np.inf, self.library.lax.max, (1, 1, k, k), (1, 1, stride, stride), sides
        )


class InTorch(Words):
    def __init__(self, library: Any) -> None:
        super().__init__(library)
        f = library.nn.functional
        self.linear, self.relu, self.conv, self.max_pool = f.linear, f.relu, self._conv, f.max_pool2d
        self.gelu = functools.partial(f.gelu, approximate="tanh")
        self.cat = library.cat

    def rows(self, table: Any, index: Any) -> Any:
        return self.library.nn.functional.embedding(index, table)

    def permute(self, x: Any, axes: Sequence[int]) -> Any:
        return x.permute(axes)

    def _conv(self, x: Any, w: Any, stride: int = 1, padding: int = 0) -> Any:
        return self.library.nn.functional.conv2d(x, w, None, stride, padding)

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return self.library.nn.functional.layer_norm(x, (x.shape[-1],), w, b)

    def batch_norm(self, x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
        return self.library.nn.functional.batch_norm(x, mean, var, w, b)

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        return self.library.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


class InMonolect(Words):
    """The methods of a Tensor; tinygrad names its own alike."""

    def permute(self, x: Any, axes: Sequence[int]) -> Any:
        return x.permute(*axes)

    def linear(self, x: Any, w: Any, b: Any = None) -> Any:
        return x.linear(w, b)

    def relu(self, x: Any) -> Any:
        return x.relu()

    def gelu(self, x: Any) -> Any:
        return x.gelu(approximate="tanh")

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return x.layer_norm((x.shape[-1],), w, b)

    def batch_norm(self, x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
        return x.batch_norm(mean, var, w, b, training=False)

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        return q.scaled_dot_product_attention(k, v, is_causal=causal)

    def cat(self, xs: Sequence[Any], axis: int) -> Any:
        return xs[0].cat(*xs[1:], dim=axis)

    def conv(self, x: Any, w: Any, stride: int = 1, padding: int = 0) -> Any:
        return x.conv2d(w, stride=stride, padding=padding)

    def max_pool(self, x: Any, k: int, stride: int, padding: int) -> Any:
        return x.max_pool2d(k, stride, padding)


class InTinygrad(InMonolect):
    def linear(self, x: Any, w: Any, b: Any = None) -> Any:
        return x.linear(w.T, b)

    def gelu(self, x: Any) -> Any:
        return x.gelu()

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return x.layernorm() * w + b

    def batch_norm(self, x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
        return x.batchnorm(w, b, mean, (var + EPS).rsqrt())

    def max_pool(self, x: Any, k: int, stride: int, padding: int) -> Any:
        return x.max_pool2d(k, stride, padding=padding)


class InGraph(Words):
    """Nodes of an ONNX graph."""

    def permute(self, x: Any, axes: Sequence[int]) -> Any:
        return self.library.Transpose(x, perm=list(axes))

    def reshape(self, x: Any, *shape: int) -> Any:
        return self.library.Reshape(x, np.array(shape))

    def parts(self, x: Any, count: int, width: int) -> list[Any]:
        return self.library.Split(x, outputs=count, axis=-1, num_outputs=count)

    def rows(self, table: Any, index: Any) -> Any:
        return self.library.Gather(table, index)

    def first(self, x: Any) -> Any:
        return self.library.Gather(x, np.array(0), axis=1)

    def mean(self, x: Any, axes: tuple[int, ...]) -> Any:
        return self.library.ReduceMean(x, np.array(axes), keepdims=0)

    def relu(self, x: Any) -> Any:
        return self.library.Relu(x)

    def gelu(self, x: Any) -> Any:
        return self.library.Gelu(x, approximate="tanh")

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return self.library.LayerNormalization(x, w, b, axis=-1, epsilon=EPS)

    def batch_norm(self, x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
        return self.library.BatchNormalization(x, w, b, mean, var, epsilon=EPS)

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any:
        return self.library.Attention(q, k, v, is_causal=int(causal))

    def cat(self, xs: Sequence[Any], axis: int) -> Any:
        return self.library.Concat(*xs, axis=axis)

    def conv(self, x: Any, w: Any, stride: int = 1, padding: int = 0) -> Any:
        return self.library.Conv(x, w, strides=[stride] * 2, pads=[padding] * 4)

    def max_pool(self, x: Any, k: int, stride: int, padding: int) -> Any:
        return self.library.MaxPool(x, kernel_shape=[k, k], strides=[stride] * 2, pads=[padding] * 4)


WORDS: dict[str, type[Words]] = {
    "monolect": InMonolect,
    "torch": InTorch,
    "jax": InJax,
    "ort": InGraph,
    "numpy": InNumPy,
    "tinygrad": InTinygrad,
}


def in_all(model: Callable[..., Any], names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """`model(words, parameters by name, *inputs)` as a program of each library: inputs first, then the parameters."""

    def program(words: type[Words]) -> Callable[..., Any]:
        def run(library: Any, *tensors: Any) -> Any:
            first = len(tensors) - len(names)
            return model(words(library), dict(zip(names, tensors[first:], strict=True)), *tensors[:first])

        return run

    return {library: program(words) for library, words in WORDS.items()}
