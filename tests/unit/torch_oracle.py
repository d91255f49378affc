"""Rows of calls that both libraries understand: values, numbers of results and gradients in float64 against PyTorch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from monolect import Tensor, dtypes, nn

TOLERANCE = 1e-9  # relative, of float64 values and gradients


class Fixed:
    """An array that is no leaf, such as a target."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


def translated(x: Any, leaves: list[tuple[Any, Any]], is_leaf: bool = True) -> tuple[Any, Any]:
    """(ours, theirs) of an argument: arrays become tensors, float arrays leaves, which are added to `leaves`."""
    if isinstance(x, Fixed):
        return Tensor(x.array), torch.tensor(x.array)
    if isinstance(x, np.ndarray):
        is_float = x.dtype.kind == "f" and is_leaf
        pair = Tensor(x, requires_grad=is_float), torch.tensor(x, requires_grad=is_float)
        if is_float:
            leaves.append(pair)
        return pair
    if isinstance(x, list) and any(isinstance(v, np.ndarray) for v in x):
        both = [translated(v, leaves) for v in x]
        return [a for a, _ in both], [b for _, b in both]
    if isinstance(x, torch.dtype):
        return getattr(dtypes, str(x).removeprefix("torch.")), x
    return x, x


def flat(x: Any) -> list[Any]:
    return [v for part in x for v in flat(part)] if isinstance(x, tuple | list) else [] if x is None else [x]


def compare(found: Any, want: Any, leaves: list[tuple[Any, Any]], rtol: float = TOLERANCE) -> None:
    """All results agree, and the gradients of `leaves` for random gradients of the float results."""
    found, want = flat(found), flat(want)
    assert len(found) == len(want)
    rng = np.random.default_rng(0)
    ours: Any = 0.0
    theirs: Any = 0.0
    for f, w in zip(found, want, strict=True):
        assert f.shape == tuple(w.shape)
        assert f.dtype.name == str(w.dtype).removeprefix("torch.")
        atol = rtol * max(1.0, w.detach().abs().nan_to_num(0, 0, 0).max().item()) if w.numel() and rtol else 0.0
        np.testing.assert_allclose(f.numpy(), w.detach().numpy(), rtol=rtol, atol=atol)
        if w.requires_grad and f.dtype.is_float:
            c = rng.standard_normal(f.shape)
            ours, theirs = ours + (f * Tensor(c)).sum(), theirs + (w * torch.tensor(c)).sum()
    if not isinstance(theirs, torch.Tensor) or not leaves:
        return
    theirs.backward()
    ours.backward()
    for i, (m, o) in enumerate(leaves):
        if o.grad is None:
            assert m.grad is None or not m.grad.numpy().any(), f"a gradient of leaf {i}"
            continue
        own = np.zeros(m.shape) if m.grad is None else m.grad.numpy()
        atol = rtol * max(1.0, o.grad.abs().max().item()) if o.grad.numel() else 0.0
        np.testing.assert_allclose(own, o.grad.numpy(), rtol=rtol, atol=atol, err_msg=f"the gradient of leaf {i}")


def check(ours: Callable[..., Any], theirs: Callable[..., Any], *args: Any, rtol: float = TOLERANCE, **kw: Any) -> None:
    """Both functions agree on these arguments; positional arrays of floats are leaves, others are not."""
    leaves: list[tuple[Any, Any]] = []
    both = [translated(a, leaves) for a in args]
    named = {k: translated(v, leaves, False) for k, v in kw.items()}
    found = ours(*(a for a, _ in both), **{k: a for k, (a, _) in named.items()})
    want = theirs(*(b for _, b in both), **{k: b for k, (_, b) in named.items()})
    compare(found, want, leaves, rtol)


# ---- layers ----------------------------------------------------------------------------------------------------------
Spec = tuple[str, tuple[Any, ...], dict[str, Any]]  # name in nn, arguments, keywords


def layer(name: str, *args: Any, **options: Any) -> Spec:
    return name, args, options


def text(spec: Spec) -> str:
    return f"{spec[0]}{spec[1]}{spec[2] or ''}"


def pair(spec: Spec) -> tuple[Any, Any]:
    """The layer of both libraries in float64, with the weights of theirs."""
    name, args, options = spec
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **options).double()
    ours = getattr(nn, name)(*args, **options).double()
    return loaded(ours, theirs), theirs


def loaded(ours: Any, theirs: torch.nn.Module) -> Any:
    ours.load_state_dict({k: v.detach().numpy() for k, v in theirs.state_dict().items()})
    return ours


def call(module: Any, args: list[Any]) -> Any:
    return module(*(tuple(a) if isinstance(a, list) else a for a in args))


def check_layer(spec: Spec, args: tuple[Any, ...], training: bool = True) -> None:
    """Results, gradients of inputs and weights, and the state afterwards are those of torch.nn, by the same names."""
    ours, theirs = pair(spec)
    assert [k for k, _ in ours.named_parameters()] == [k for k, _ in theirs.named_parameters()]
    assert [k for k, _ in ours.named_buffers()] == [k for k, _ in theirs.named_buffers()]
    ours.train(training)
    theirs.train(training)
    leaves: list[Any] = []
    both = [translated(a, leaves) for a in args]
    leaves += zip(ours.parameters(), theirs.parameters(), strict=True)
    compare(call(ours, [a for a, _ in both]), call(theirs, [b for _, b in both]), leaves)
    state, other = ours.state_dict(), theirs.state_dict()
    assert list(state) == list(other)  # also after running statistics have moved
    for name, t in other.items():
        np.testing.assert_allclose(state[name].numpy(), t.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in state.items()})


__all__ = ["Fixed", "Spec", "check", "check_layer", "compare", "flat", "layer", "pair", "text", "translated"]
