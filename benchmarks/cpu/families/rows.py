"""Elementwise chains, reductions, and what normalises rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.cpu.case import PYTORCH, Case, Program, Target, normal, same

TARGETS = (Target(1.0), Target(2.0, PYTORCH))
K = 0.7978845608028654


def gelu(*shape: int, name: str = "", quick: bool = False) -> Case:
    def in_numpy(np: Any, x: Any, a: Any, b: Any, c: Any) -> Any:
        z = x * a + b
        return 0.5 * z * (1 + np.tanh(K * (z + 0.044715 * z * z * z))) * c

    return Case(
        f"gelu(x*a+b)*c {name or 'x'.join(map(str, shape))}",
        "rows",
        normal(shape, (1,), (1,), (1,)),
        {
            "monolect": lambda _, x, a, b, c: (x * a + b).gelu(approximate="tanh") * c,
            "torch": lambda torch, x, a, b, c: torch.nn.functional.gelu(x * a + b, approximate="tanh") * c,
            "jax": lambda jax, x, a, b, c: jax.nn.gelu(x * a + b, approximate=True) * c,
            "ort": lambda g, x, a, b, c: g.Mul(g.Gelu(g.Add(g.Mul(x, a), b), approximate="tanh"), c),
            "numpy": in_numpy,
            "tinygrad": lambda _, x, a, b, c: (x * a + b).gelu() * c,
        },
        targets=TARGETS,
        flops=14.0 * int(np.prod(shape)),
        quick=quick,
    )


def softmax(*shape: int, quick: bool = False) -> Case:
    def in_numpy(np: Any, x: Any) -> Any:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return Case(
        f"softmax {'x'.join(map(str, shape))}",
        "rows",
        normal(shape),
        same(lambda _, x: x.softmax(-1), "monolect", "torch", "tinygrad")
        | {
            "jax": lambda jax, x: jax.nn.softmax(x, axis=-1),
            "ort": lambda g, x: g.Softmax(x, axis=-1),
            "numpy": in_numpy,
        },
        targets=TARGETS,
        quick=quick,
    )


def layer_norm(*shape: int, quick: bool = False) -> Case:
    width = shape[-1]

    def by_hand(library: Any, x: Any, w: Any, b: Any) -> Any:
        sqrt = library.numpy.sqrt if library.__name__ == "jax" else library.sqrt
        return (x - x.mean(-1, keepdims=True)) / sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b

    return Case(
        f"layernorm {'x'.join(map(str, shape))}",
        "rows",
        normal(shape, (width,), (width,)),
        same(by_hand, "jax", "numpy")
        | {
            "monolect": lambda _, x, w, b: x.layer_norm((width,), w, b),
            "torch": lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (width,), w, b),
            "ort": lambda g, x, w, b: g.LayerNormalization(x, w, b, axis=-1, epsilon=1e-5),
            "tinygrad": lambda _, x, w, b: x.layernorm() * w + b,
        },
        targets=TARGETS,
        quick=quick,
    )


def rms_norm(*shape: int) -> Case:
    width = shape[-1]

    def by_hand(library: Any, x: Any, w: Any) -> Any:
        sqrt = library.numpy.sqrt if library.__name__ == "jax" else library.sqrt
        return x / sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w

    return Case(
        f"rmsnorm {'x'.join(map(str, shape))}",
        "rows",
        normal(shape, (width,)),
        same(by_hand, "jax", "numpy")
        | {
            "monolect": lambda _, x, w: x.rms_norm((width,), w, eps=1e-5),
            "torch": lambda torch, x, w: torch.nn.functional.rms_norm(x, (width,), w, eps=1e-5),
            "ort": lambda g, x, w: g.SimplifiedLayerNormalization(x, w, axis=-1, epsilon=1e-5),
            "tinygrad": lambda _, x, w: x * ((x * x).mean(-1, keepdim=True) + 1e-5).rsqrt() * w,
        },
        targets=TARGETS,
    )


def reduction(method: str, *shape: int, dim: int | None = None, name: str = "", quick: bool = False) -> Case:
    """sum, mean, max or argmax along an axis, or of everything."""
    in_torch = {"max": "amax"}.get(method, method)
    of_graph = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}

    def called(method: str) -> Program:
        return lambda _, x: getattr(x, method)() if dim is None else getattr(x, method)(dim)

    def in_graph(g: Any, x: Any) -> Any:
        axis = np.array([dim if dim is not None else 0])
        flat = g.Reshape(x, np.array([-1])) if dim is None else x
        if method == "argmax":
            return g.ArgMax(flat, axis=int(axis[0]), keepdims=0)
        return getattr(g, of_graph[method])(flat, axis, keepdims=0)

    return Case(
        f"{method} {name or 'x'.join(map(str, shape))}{'' if dim is None else f' along {dim}'}",
        "rows",
        (lambda rng: [rng.random(shape, dtype=np.float32)]) if method in ("sum", "mean") else normal(shape),
        same(called(method), "jax", "numpy")
        | same(called(in_torch), "monolect", "torch")
        | {"ort": in_graph, "tinygrad": called(method)},
        targets=TARGETS,
        tolerance=0.0 if method == "argmax" else 1e-3,
        quick=quick,
    )


def random_case(rng: np.random.Generator) -> Case:
    """One to five axes of odd sizes, up to some four million elements."""
    rank = int(rng.integers(1, 6))
    room, shape = rng.uniform(6, 22), []
    for share in rng.dirichlet(np.ones(rank)):
        shape.append(max(1, int(2 ** (room * share)) + int(rng.integers(-2, 3))))
    kind = ["gelu", "softmax", "layernorm", "rmsnorm", "sum", "mean", "max", "argmax"][rng.integers(8)]
    if kind in ("gelu", "softmax", "layernorm", "rmsnorm"):
        return {"gelu": gelu, "softmax": softmax, "layernorm": layer_norm, "rmsnorm": rms_norm}[kind](*shape)
    return reduction(kind, *shape, dim=int(rng.integers(rank)))


CASES = [
    gelu(1 << 24, name="16M", quick=True),
    gelu(1 << 18, name="256K"),
    softmax(4096, 4096, quick=True),
    layer_norm(8192, 1024, quick=True),
    rms_norm(8192, 1024),
    reduction("sum", 1 << 26, name="64M", quick=True),
    reduction("argmax", 1 << 24, name="16M"),
]
