"""The programs: a forward pass of GPT-2's size, of some layers; training steps of an MLP and of ResNet-18."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cpu.case import Case
from benchmarks.cpu.families import models, training
from benchmarks.cpu.words import Words

DEPTHS = (2, 4, 8, 16, 32)


def resnet_training(batch: int, size: int) -> Case:
    """ResNet-18 as trained: batch norm by the statistics of the batch."""
    widths = (64, 128, 256, 512)
    shapes: models.Shapes = {"stem.w": (64, 3, 7, 7), "stem.scale": (64,), "stem.shift": (64,)}
    plan, into = [], 64
    for stage, width in enumerate(widths):
        for index in range(2):
            stride, name = 2 if index == 0 and stage > 0 else 1, f"{stage}.{index}"
            parts = [("first", into, 3), ("second", width, 3)] + ([("skip", into, 1)] if stride != 1 else [])
            for part, n, k in parts:
                shapes |= {f"{name}.{part}.w": (width, n, k, k)}
                shapes |= {f"{name}.{part}.{leaf}": (width,) for leaf in ("scale", "shift")}
            plan.append((name, stride))
            into = width
    shapes |= {"head.w": (10, into), "head.b": (10,)}
    names = list(shapes)

    def model(w: Words, leaves: list, x: Any) -> Any:
        p = dict(zip(names, leaves, strict=True))

        def conv_norm(name: str, x: Any, stride: int, padding: int) -> Any:
            y = w.conv(x, p[f"{name}.w"], stride=stride, padding=padding)
            mean = w.mean(y, (0, 2, 3)).reshape(1, -1, 1, 1)
            centred = y - mean
            variance = w.mean(centred * centred, (0, 2, 3)).reshape(1, -1, 1, 1)
            scale, shift = (p[f"{name}.{leaf}"].reshape(1, -1, 1, 1) for leaf in ("scale", "shift"))
            return centred * (variance + 1e-5) ** -0.5 * scale + shift

        x = w.max_pool(w.relu(conv_norm("stem", x, 2, 3)), 3, 2, 1)
        for name, stride in plan:
            y = conv_norm(f"{name}.second", w.relu(conv_norm(f"{name}.first", x, stride, 1)), 1, 1)
            x = w.relu(y + (x if stride == 1 else conv_norm(f"{name}.skip", x, stride, 0)))
        return w.linear(w.mean(x, (2, 3)), p["head.w"], p["head.b"])

    return training.training(f"ResNet-18 training bs {batch}", model, shapes, (3, size, size), batch, 1.0)


def depth(layers: int) -> Case:
    """A transformer forward whose kernels are small beside its compiling."""
    return models.prefill(64, layers=layers, d=256, heads=4, vocabulary=1024)


ROWS: dict[str, Callable[[], Case]] = {
    "MLP training step": lambda: training.mlp(128),
    "GPT-2 forward, 12 layers, 256 tokens": lambda: models.prefill(256),
    "ResNet-18 training step, batch 8": lambda: resnet_training(8, 64),
    **{f"transformer forward, {n} layers": (lambda n=n: depth(n)) for n in DEPTHS},  # type: ignore[misc]
}


def train_blocks(layers: int) -> Callable[[Any], list[Any]]:
    """Of the module monolect: the loss and all gradients of a deep transformer, as nodes, nothing computed."""
    case = models.prefill(64, layers=layers, d=256, heads=4, vocabulary=1024)

    def build(monolect: Any) -> list[Any]:
        arrays = case.inputs(np.random.default_rng(0))
        index, *weights = (monolect.Tensor(a).realize() for a in arrays)
        leaves = [w.requires_grad_() for w in weights]
        out = case.programs["monolect"](monolect, index, *leaves)
        loss = (out * out).sum() * (1.0 / math.prod(out.shape))
        loss.backward()
        return [loss.uop, *(p.grad.uop for p in leaves if p.grad is not None)]

    return build
