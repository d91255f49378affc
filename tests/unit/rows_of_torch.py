"""A formula that is written once and run with both libraries: values, shapes, dtypes, and gradients in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from monolect import Tensor, dtypes

TOLERANCE = {"float64": 1e-12, "float32": 3e-6, "float16": 2e-3, "bfloat16": 2e-2}
NAMES = {"bool": "bool", "uint8": "uint8", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64"}
Row = tuple[Callable[..., Any], tuple[Any, ...]]


def tensors(x: Any) -> list[Any]:
    """The tensors in a result, in order."""
    if isinstance(x, Tensor | torch.Tensor):
        return [x]
    return [t for y in x for t in tensors(y)] if isinstance(x, tuple | list) else []


def wide(t: Any) -> np.ndarray:
    if isinstance(t, torch.Tensor):
        return t.detach().to(torch.float64 if t.dtype.is_floating_point else t.dtype).numpy(force=True)
    return (t.detach().cast(dtypes.float64) if t.dtype.is_float else t).numpy()


def check(f: Callable[..., Any], arrays: tuple[Any, ...], kind: str = "float64", tolerance: float = 0.0) -> None:
    """Compare the results of `f` of Tensors and of PyTorch's; float arrays have the dtype `kind`."""
    mine: list[Any] = []
    other: list[Any] = []
    for a in arrays:
        t = torch.tensor(a)
        is_float = t.dtype.is_floating_point
        t = t.to(getattr(torch, kind)) if is_float else t
        m = Tensor(np.array(a))
        m = m.cast(getattr(dtypes, kind)).realize() if is_float else m
        if is_float and kind == "float64":
            t.requires_grad_()
            m.requires_grad = True
        mine.append(m)
        other.append(t)
    found, want = tensors(f(*mine)), tensors(f(*other))
    assert len(found) == len(want)
    near = tolerance or TOLERANCE[kind]
    for m, t in zip(found, want, strict=True):
        assert m.shape == tuple(t.shape)
        assert str(m.dtype).removeprefix("dtypes.") == str(t.dtype).removeprefix("torch.")
        np.testing.assert_allclose(wide(m), wide(t), rtol=near, atol=near)
    if kind != "float64":
        return
    pairs = [(m, t) for m, t in zip(found, want, strict=True) if t.requires_grad]
    leaves = [(m, t) for m, t in zip(mine, other, strict=True) if t.requires_grad]
    if not pairs or not leaves:
        return
    weights = [np.linspace(0.5, 1.5, max(1, t.numel())).reshape(t.shape) if t.numel() else None for _, t in pairs]
    if all(w is None for w in weights):
        return
    theirs = sum((t * torch.tensor(w)).sum() for (_, t), w in zip(pairs, weights, strict=True) if w is not None)
    grads = torch.autograd.grad(theirs, [t for _, t in leaves], allow_unused=True)
    ours: Any = sum((m * Tensor(w)).sum() for (m, _), w in zip(pairs, weights, strict=True) if w is not None)
    ours.backward()
    for (m, _), g in zip(leaves, grads, strict=True):
        expected = np.zeros(m.shape) if g is None else g.numpy(force=True)
        got = np.zeros(m.shape) if m.grad is None else m.grad.numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-11)


__all__ = ["Row", "check", "tensors", "wide"]
