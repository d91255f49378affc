"""Limit gradients, and join parameters to a vector, as torch.nn.utils does.

Functions whose names end in `_` write to the gradients. All of them may be part of a captured step, unless they are
asked to raise for values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from monolect.base.dtype import dtypes, promote
from monolect.base.errors import ArgumentError, ShapeError
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

Tensors = Tensor | Iterable[Tensor]
LEAST_NORM = 1e-6  # added to a norm that is divided by, as in PyTorch


def _norm(t: Tensor, p: float) -> Tensor:
    """Return the norm of order `p` of all elements of `t`, in float32 at least."""
    x = (t.cast(dtypes.float32) if t.dtype.bits < 32 else t).abs()
    if p == 2.0:
        return (x * x).sum().sqrt()
    if p in (math.inf, -math.inf):
        return x.max() if p > 0 else x.min()
    return (x != 0).sum().cast(x.dtype) if p == 0.0 else (x**p).sum() ** (1.0 / p)


def _near(t: Tensor, like: Tensor) -> Tensor:
    """Return `t` on the device of `like` if each is on one device, as tensors of the stages of a pipeline are."""
    is_near = isinstance(t.device, tuple) or isinstance(like.device, tuple)
    return t if is_near else t.to(like.device)


def _grads(parameters: Tensors) -> list[Tensor]:
    """Return the gradients of the parameters that have one."""
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p.grad for p in given if p.grad is not None]


@guarded
def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """Return the norm, of order `norm_type`, of the elements of all `tensors`; 0 for no tensors.

    It is the norm of the norms of the tensors, on the device of the first. `foreach` is not used. With
    `error_if_nonfinite`, raises ArgumentError for an infinite norm or nan; the call then computes the norm.

    >>> get_total_norm([Tensor([3.0]), Tensor([4.0])]).item()
    5.0
    """
    given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not given:
        return Tensor(0.0)
    order = float(norm_type)
    norms = [_near(_norm(t, order), given[0]) for t in given]
    total = _norm(norms[0].stack(*norms[1:]), order) if len(norms) > 1 else norms[0]
    total = total.cast(given[0].dtype)
    if error_if_nonfinite and not math.isfinite(total.item()):
        expected = "a finite norm, or error_if_nonfinite=False"
        raise ArgumentError("the norm of gradients", expected=expected, found=total.item())
    return total


@guarded
def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale the gradients so that their norm, which is `total_norm` now, is at most `max_norm`. `foreach` is not used.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> w.grad = Tensor([4.0])
    >>> clip_grads_with_norm_(w, 2.0, Tensor(4.0))
    >>> round(w.grad.item(), 4)
    2.0
    """
    factor = (float(max_norm) / (total_norm + LEAST_NORM)).minimum(1.0)
    for g in _grads(parameters):
        wide = g.cast(promote(g.dtype, factor.dtype))  # a factor without axes has the dtype of the gradient otherwise
        g.assign((wide * _near(factor, g)).cast(g.dtype))


@guarded
def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients of `parameters` so that their norm is at most `max_norm`; return their norm before.

    The norm is that of `get_total_norm`, with its errors. `foreach` is not used.

    >>> w = Tensor([1.0, 1.0], requires_grad=True)
    >>> w.grad = Tensor([3.0, 4.0])
    >>> clip_grad_norm_([w], 1.0).item(), [round(x, 4) for x in w.grad.tolist()]
    (5.0, [0.6, 0.8])
    """
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total = get_total_norm(_grads(given), norm_type, error_if_nonfinite).clone()
    clip_grads_with_norm_(given, max_norm, total)
    return total


@guarded
def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limit each element of the gradients of `parameters` to [-clip_value, clip_value]. `foreach` is not used.

    >>> w = Tensor([1.0, 1.0], requires_grad=True)
    >>> w.grad = Tensor([3.0, -0.5])
    >>> clip_grad_value_([w], 1.0)
    >>> w.grad.tolist()
    [1.0, -0.5]
    """
    for g in _grads(parameters):
        g.assign(g.clamp(-float(clip_value), float(clip_value)))


@guarded
def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return the elements of all `parameters` as one axis. Raises ArgumentError for no parameters.

    >>> parameters_to_vector([Tensor([[1.0], [2.0]]), Tensor([3.0])]).tolist()
    [1.0, 2.0, 3.0]
    """
    parts = [p.reshape(-1) for p in parameters]
    if not parts:
        raise ArgumentError("parameters_to_vector", expected="at least one Tensor", found="none")
    return parts[0].cat(*parts[1:]) if len(parts) > 1 else parts[0].clone()


@guarded
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the elements of `vec`, of one axis, to `parameters`, in order. Raises ShapeError if there are too few.

    >>> w = Tensor([[0.0], [0.0]], requires_grad=True)
    >>> vector_to_parameters(Tensor([1.0, 2.0]), [w])
    >>> w.tolist()
    [[1.0], [2.0]]
    """
    given, at = list(parameters), 0
    n = sum(p.numel() for p in given)
    if vec.ndim != 1 or vec.numel() < n:
        raise ShapeError("vector_to_parameters", expected=f"one axis of at least {n}", found=vec.shape)
    for p in given:
        p.assign(vec[at : at + p.numel()].reshape(p.shape).detach().cast(p.dtype))
        at += p.numel()


__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "parameters_to_vector",
    "vector_to_parameters",
]
