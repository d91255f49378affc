"""Whole models with random weights, forward only: GPT-2's size, ViT-tiny, ResNet-18."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.cpu.case import BEST, PYTORCH, Case, Inputs, Target
from benchmarks.cpu.words import Words, in_all

Shapes = dict[str, tuple[int, ...]]


def initial(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Weights that keep values of order one through many layers; variances are positive."""
    if len(shape) > 1:
        fan_in = 1 if name.startswith("token") else math.prod(shape[1:])
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02 if fan_in == 1 else fan_in**-0.5)
    noise = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.1)
    return noise + np.float32(1) if name.endswith(("scale", "var")) else noise


def with_parameters(shapes: Shapes, first: Callable[[np.random.Generator], list[np.ndarray]]) -> Inputs:
    return lambda rng: first(rng) + [initial(name, shape, rng) for name, shape in shapes.items()]


def forward(
    name: str,
    model: Callable[..., Any],
    shapes: Shapes,
    first: Callable[[np.random.Generator], list[np.ndarray]],
    flops: float,
    targets: tuple[Target, ...] = BEST,
    quick: bool = False,
) -> Case:
    """A model over its inputs; ONNX Runtime gets the parameters as constants. NumPy's ResNet is a reference only."""
    programs = in_all(model, list(shapes))
    exact = programs["numpy"]
    if "stem.w" in shapes:
        del programs["numpy"]
    return Case(
        name,
        "models",
        with_parameters(shapes, first),
        programs,
        exact=exact,
        targets=targets,
        tolerance=1e-3,
        flops=flops,
        constants=len(shapes),
        quick=quick,
    )


# ---- transformers ----------------------------------------------------------------------------------------------------
def block_shapes(layer: int, d: int) -> Shapes:
    shapes: Shapes = {}
    for norm in ("norm_before", "norm_between"):
        shapes |= {f"{layer}.{norm}.scale": (d,), f"{layer}.{norm}.shift": (d,)}
    for part, out, into in (("qkv", 3 * d, d), ("project", d, d), ("widen", 4 * d, d), ("narrow", d, 4 * d)):
        shapes |= {f"{layer}.{part}.w": (out, into), f"{layer}.{part}.b": (out,)}
    return shapes


def block(
    w: Words, p: dict, layer: int, x: Any, b: int, t: int, d: int, heads: int, past: Any = None, causal: bool = False
) -> Any:
    """Pre-norm attention and MLP; `past` holds keys and values that stand before this step's."""

    def of(name: str, *leaves: str) -> list[Any]:
        return [p[f"{layer}.{name}.{leaf}"] for leaf in leaves]

    y = w.linear(w.layer_norm(x, *of("norm_before", "scale", "shift")), *of("qkv", "w", "b"))
    q, k, v = [w.permute(w.reshape(z, b, t, heads, d // heads), (0, 2, 1, 3)) for z in w.parts(y, 3, d)]
    if past is not None:
        k, v = w.cat([past[0], k], 2), w.cat([past[1], v], 2)
    y = w.reshape(w.permute(w.attention(q, k, v, causal), (0, 2, 1, 3)), b, t, d)
    x = x + w.linear(y, *of("project", "w", "b"))
    y = w.gelu(w.linear(w.layer_norm(x, *of("norm_between", "scale", "shift")), *of("widen", "w", "b")))
    return x + w.linear(y, *of("narrow", "w", "b"))


def gpt_shapes(layers: int, d: int, vocabulary: int, positions: int) -> Shapes:
    shapes: Shapes = {"token": (vocabulary, d), "token_position": (positions, d)}
    for layer in range(layers):
        shapes |= block_shapes(layer, d)
    return shapes | {"norm.scale": (d,), "norm.shift": (d,)}


def prefill(tokens: int, *, layers: int = 12, d: int = 768, heads: int = 12, vocabulary: int = 50257) -> Case:
    """Logits of every position of a prompt."""
    shapes = gpt_shapes(layers, d, vocabulary, tokens)

    def model(w: Words, p: dict, index: Any) -> Any:
        x = w.rows(p["token"], index) + p["token_position"]
        for layer in range(layers):
            x = block(w, p, layer, x, 1, tokens, d, heads, causal=True)
        return w.linear(w.layer_norm(x, p["norm.scale"], p["norm.shift"]), p["token"])

    return forward(
        f"GPT-2 prefill {tokens}",
        model,
        shapes,
        lambda rng: [rng.integers(0, vocabulary, (1, tokens), np.int32)],
        2.0 * tokens * (12 * layers * d * d + vocabulary * d) + 2.0 * layers * tokens * (tokens + 1) * d,
    )


def decode(
    past: int, *, layers: int = 12, d: int = 768, heads: int = 12, vocabulary: int = 50257, quick: bool = False
) -> Case:
    """Logits of the next token after `past` others whose keys and values are kept."""
    shapes = gpt_shapes(layers, d, vocabulary, 1)
    kept = (1, heads, past, d // heads)

    def model(w: Words, p: dict, index: Any, *cache: Any) -> Any:
        x = w.rows(p["token"], index) + p["token_position"]
        for layer in range(layers):
            x = block(w, p, layer, x, 1, 1, d, heads, past=cache[2 * layer : 2 * layer + 2])
        return w.linear(w.layer_norm(x, p["norm.scale"], p["norm.shift"]), p["token"])

    def first(rng: np.random.Generator) -> list[np.ndarray]:
        cache = [rng.standard_normal(kept, dtype=np.float32) for _ in range(2 * layers)]
        return [rng.integers(0, vocabulary, (1, 1), np.int32), *cache]

    return forward(
        f"GPT-2 decode after {past}", model, shapes, first, 2.0 * (12 * layers * d * d + vocabulary * d), quick=quick
    )


def vit(
    *, size: int = 224, patch: int = 16, layers: int = 12, d: int = 192, heads: int = 3, classes: int = 1000
) -> Case:
    """ViT-tiny, one image."""
    t = (size // patch) ** 2 + 1
    shapes: Shapes = {"patch": (d, 3, patch, patch), "patch.b": (d,), "token": (1, 1, d), "token_position": (t, d)}
    for layer in range(layers):
        shapes |= block_shapes(layer, d)
    shapes |= {"norm.scale": (d,), "norm.shift": (d,), "head.w": (classes, d), "head.b": (classes,)}

    def model(w: Words, p: dict, image: Any) -> Any:
        x = w.permute(w.reshape(w.conv(image, p["patch"], patch), 1, d, t - 1), (0, 2, 1)) + p["patch.b"]
        x = w.cat([p["token"], x], 1) + p["token_position"]
        for layer in range(layers):
            x = block(w, p, layer, x, 1, t, d, heads)
        x = w.layer_norm(x, p["norm.scale"], p["norm.shift"])
        return w.linear(w.first(x), p["head.w"], p["head.b"])

    return forward(
        "ViT-tiny bs 1",
        model,
        shapes,
        lambda rng: [rng.standard_normal((1, 3, size, size), dtype=np.float32)],
        2.0 * t * (12 * layers * d * d + 3 * patch * patch * d) + 4.0 * layers * t * t * d,
    )


# ---- ResNet-18 -------------------------------------------------------------------------------------------------------
def conv_norm_shapes(name: str, out: int, into: int, k: int) -> Shapes:
    norm = {f"{name}.{leaf}": (out,) for leaf in ("scale", "shift", "mean", "var")}
    return {f"{name}.w": (out, into, k, k)} | norm


def resnet(batch: int, *, size: int = 224, widths: tuple[int, ...] = (64, 128, 256, 512), quick: bool = False) -> Case:
    """Two blocks of two 3x3 convolutions a width."""
    shapes = conv_norm_shapes("stem", widths[0], 3, 7)
    plan, into, area, macs = [], widths[0], (size // 4) ** 2, 147.0 * widths[0] * (size // 2) ** 2
    for stage, width in enumerate(widths):
        for index in range(2):
            stride = 2 if index == 0 and stage > 0 else 1
            area //= stride * stride
            name = f"{stage}.{index}"
            shapes |= conv_norm_shapes(f"{name}.first", width, into, 3) | conv_norm_shapes(
                f"{name}.second", width, width, 3
            )
            macs += 9.0 * width * (into + width) * area
            if stride != 1:
                shapes |= conv_norm_shapes(f"{name}.skip", width, into, 1)
                macs += width * into * area
            plan.append((name, stride))
            into = width
    shapes |= {"head.w": (1000, into), "head.b": (1000,)}

    def model(w: Words, p: dict, x: Any) -> Any:
        def conv_norm(name: str, x: Any, stride: int, padding: int) -> Any:
            norm = [p[f"{name}.{leaf}"] for leaf in ("scale", "shift", "mean", "var")]
            return w.batch_norm(w.conv(x, p[f"{name}.w"], stride=stride, padding=padding), *norm)

        x = w.max_pool(w.relu(conv_norm("stem", x, 2, 3)), 3, 2, 1)
        for name, stride in plan:
            y = w.relu(conv_norm(f"{name}.first", x, stride, 1))
            y = conv_norm(f"{name}.second", y, 1, 1)
            x = w.relu(y + (x if stride == 1 else conv_norm(f"{name}.skip", x, stride, 0)))
        return w.linear(w.mean(x, (2, 3)), p["head.w"], p["head.b"])

    return forward(
        f"ResNet-18 bs {batch}",
        model,
        shapes,
        lambda rng: [rng.standard_normal((batch, 3, size, size), dtype=np.float32)],
        2.0 * batch * macs,
        (Target(1.2, (*PYTORCH, "jax")), Target(0.8, ("ort",))),
        quick,
    )


def by_winograd(case: Case) -> Case:
    """The same where monolect is asked for fewer products that round otherwise (WINOGRAD=4); the peers as they come."""
    program = case.programs["monolect"]

    def asked(library: Any, *tensors: Any) -> Any:
        with library.Context(WINOGRAD=4):
            return program(library, *tensors)

    return replace(case, name=f"{case.name}, WINOGRAD=4", programs=case.programs | {"monolect": asked})


CASES = [prefill(256), decode(256, quick=True), vit(), resnet(1, quick=True), resnet(16), by_winograd(resnet(16))]
