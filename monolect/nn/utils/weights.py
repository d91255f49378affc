"""Compute a weight of a module from other tensors: its length and direction, or itself divided by its spectral norm.

What it is for: `weight_norm` and `spectral_norm` of torch.nn.utils, and `skip_init`. The weight becomes a property of
the module, computed at each use.
Invariant: the names in a state dict are those of PyTorch. All of them may be part of a captured step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from monolect.base.errors import ArgumentError
from monolect.nn.layers.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from monolect.nn.module import Module
from monolect.nn.utils.computed import compute, computed, parameter, uncompute
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

M = TypeVar("M", bound=Module)
P = ParamSpec("P")


def _without_property(call: str, module: Any, name: str, part: str) -> Tensor:
    """Remove the property `name` from `module` and return its value. Raises ArgumentError, which names the
    function, where `name` is none or the tensor `part` is missing.
    """
    if name not in computed(module) or part not in vars(module):
        raise ArgumentError(f"remove_{call}", expected=f"a module of {call}", found=repr(module))
    weight: Tensor = getattr(module, name).detach().clone().realize()
    uncompute(module, name)
    return weight


def length(v: Tensor, dim: int | None) -> Tensor:
    """Return the norm of `v` over all axes but `dim`, kept with size 1; over all axes for None."""
    axes = [i for i in range(v.ndim) if dim is None or i != dim % v.ndim]
    return v.square().sum(axes, keepdim=dim is not None).sqrt()


@guarded
def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Replace the parameter `name` of `module` by its length `name_g` and direction `name_v`, and return `module`.

    `dim` is the axis that keeps a length for each index; None means one length. The weight is computed at each use.
    Raises ArgumentError for a module without that parameter.

    >>> from monolect import nn
    >>> layer = weight_norm(nn.Linear(2, 3))
    >>> layer.weight_g.shape, layer.weight_v.shape, layer.weight.shape
    ((3, 1), (3, 2), (3, 2))
    """
    weight = parameter("weight_norm", module, name)

    def value(self: Any) -> Tensor:
        v = getattr(self, f"{name}_v")
        return v * (getattr(self, f"{name}_g") / length(v, dim))

    own = vars(module)
    own[f"{name}_g"] = length(weight, dim).detach().clone().realize().requires_grad_()
    own[f"{name}_v"] = weight.detach().clone().realize().requires_grad_()
    compute(module, name, value)
    return module


@guarded
def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Give `module`, on which `weight_norm` was called, its parameter `name` back, and return `module`.

    Raises ArgumentError for another module.

    >>> from monolect import nn
    >>> sorted(remove_weight_norm(weight_norm(nn.Linear(2, 3))).state_dict())
    ['bias', 'weight']
    """
    weight, own = _without_property("weight_norm", module, name, f"{name}_g"), vars(module)
    del own[f"{name}_g"], own[f"{name}_v"]
    own[name] = weight.requires_grad_()
    return module


# ---- spectral norm ---------------------------------------------------------------------------------------------------
def rows(weight: Tensor, dim: int) -> Tensor:
    """Return `weight` as a matrix whose rows are the indices of the axis `dim`."""
    return weight.movedim(dim, 0).reshape(weight.shape[dim], -1)


def unit(x: Tensor, eps: float) -> Tensor:
    """Return `x` divided by its norm, which counts as `eps` where it is less."""
    return x / x.square().sum().sqrt().maximum(eps)


@dataclass(frozen=True)
class _Iteration:
    """The hook of `spectral_norm`: in training it improves the singular vectors of the weight `name`."""

    name: str
    n: int
    eps: float
    axis: int

    def __call__(self, module: Any, args: tuple[Any, ...]) -> None:
        if not module.training:
            return
        matrix = rows(getattr(module, f"{self.name}_orig").detach(), self.axis)
        u = getattr(module, f"{self.name}_u")
        for _ in range(self.n):
            v = unit(matrix.T.mv(u), self.eps)
            u = unit(matrix.mv(v), self.eps)
        getattr(module, f"{self.name}_u").assign(u)
        getattr(module, f"{self.name}_v").assign(v)


@guarded
def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Divide the parameter `name` of `module` by its largest singular value, and return `module`.

    The parameter becomes `name_orig`; `name_u` and `name_v` are buffers with the singular vectors, estimated by
    `n_power_iterations` before each call in training. The weight is a matrix whose rows are the indices of the axis
    `dim`: by default 0, and 1 for transposed convolutions. Norms of vectors are at least `eps`. Raises ArgumentError
    for a module without that parameter, and for no iterations.

    >>> from monolect import nn
    >>> layer = spectral_norm(nn.Linear(2, 3))
    >>> sorted(layer.state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    weight = parameter("spectral_norm", module, name)
    if n_power_iterations < 1:
        raise ArgumentError("spectral_norm: n_power_iterations", expected="at least 1", found=n_power_iterations)
    axis = dim if dim is not None else int(isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d))

    def value(self: Any) -> Tensor:
        w = getattr(self, f"{name}_orig")
        u, v = (getattr(self, f"{name}_{k}").detach() for k in "uv")
        return w / u.dot(rows(w, axis).mv(v))

    matrix = rows(weight.detach(), axis)
    for key, n in zip("uv", matrix.shape, strict=True):
        drawn = Tensor.randn(n, dtype=weight.dtype, device=weight.device)
        module.register_buffer(f"{name}_{key}", unit(drawn, eps).realize())
    vars(module)[f"{name}_orig"] = weight.detach().clone().realize().requires_grad_()
    compute(module, name, value)
    module.register_forward_pre_hook(_Iteration(name, n_power_iterations, eps, axis))
    return module


@guarded
def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Give `module`, on which `spectral_norm` was called, its parameter `name` back, and return `module`.

    The parameter has the divided values. Raises ArgumentError for another module.

    >>> from monolect import nn
    >>> sorted(remove_spectral_norm(spectral_norm(nn.Linear(2, 3))).state_dict())
    ['bias', 'weight']
    """
    weight, own = _without_property("spectral_norm", module, name, f"{name}_orig"), vars(module)
    hooks = own["_hooks"].before
    for hook in [h for h in hooks if isinstance(h.function, _Iteration) and h.function.name == name]:
        hook.remove()
    for part in ("orig", "u", "v"):
        del own[f"{name}_{part}"]
    module.buffer_names = tuple(n for n in module.buffer_names if n not in (f"{name}_u", f"{name}_v"))
    own[name] = weight.requires_grad_()
    return module


@guarded
def skip_init(module_cls: Callable[P, M], *args: P.args, **kwargs: P.kwargs) -> M:
    """Return `module_cls(*args, **kwargs)` with parameters of uninitialized memory, to be written before they are read.

    No initial values are computed; the sequence of random numbers goes on as if they were. Buffers have their values.
    Raises ArgumentError where the call returns no module.

    >>> from monolect import nn
    >>> layer = skip_init(nn.Linear, 2, 3)
    >>> nn.init.zeros_(layer.weight).tolist(), layer.bias.requires_grad
    ([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], True)
    """
    module = module_cls(*args, **kwargs)
    if not isinstance(module, Module):
        raise ArgumentError("skip_init: module_cls", expected="a class of modules", found=repr(module_cls))
    for p in module.parameters():
        p.uop = p.detach().empty_like().uop
    return module


__all__ = [
    "length",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rows",
    "skip_init",
    "spectral_norm",
    "unit",
    "weight_norm",
]
