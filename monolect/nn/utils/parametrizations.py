"""Parametrize weights by their lengths and directions, or by their spectral norms, as torch.nn.utils.parametrizations.

What it is for: `weight_norm` and `spectral_norm` by modules of `parametrize`. The functions of the same names in
`nn.utils` are PyTorch's older forms, with other names in state dicts.
Invariant: the names in a state dict are those of PyTorch.
"""

from __future__ import annotations

from typing import NoReturn, TypeVar

from monolect.base.absent import hint
from monolect.base.errors import ArgumentError
from monolect.base.grad_mode import no_grad
from monolect.nn.layers.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from monolect.nn.module import Module
from monolect.nn.utils.computed import parameter
from monolect.nn.utils.parametrize import register_parametrization
from monolect.nn.utils.weights import length, rows, unit
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

M = TypeVar("M", bound=Module)
START = 15  # iterations for the first singular vectors, as in PyTorch


class _WeightNorm(Module):
    """Compute a weight from its lengths (original0) and directions (original1)."""

    def __init__(self, dim: int | None) -> None:
        self.dim = dim

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return v * (g / length(v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lengths and directions that give `weight`."""
        return length(weight, self.dim), weight


class _SpectralNorm(Module):
    """Divide a weight by its largest singular value, which iterations in training estimate."""

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        self.n_power_iterations, self.dim, self.eps = n_power_iterations, dim, eps
        if weight.ndim > 1:
            for key, n in zip("uv", rows(weight, dim).shape, strict=True):
                drawn = Tensor.randn(n, dtype=weight.dtype, device=weight.device)
                self.register_buffer(f"_{key}", unit(drawn, eps).realize())
            self._iterate(rows(weight, dim), START)

    def _iterate(self, matrix: Tensor, n: int) -> None:
        """Improve the singular vectors of `matrix` by `n` iterations."""
        with no_grad():
            u = v = vars(self)["_v"]
            for _ in range(n):  # in PyTorch's order, which is the reverse of that in `nn.utils.spectral_norm`
                u = unit(matrix.mv(v), self.eps)
                v = unit(matrix.T.mv(u), self.eps)
            vars(self)["_u"].assign(u)
            vars(self)["_v"].assign(v)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return unit(weight, self.eps)
        matrix = rows(weight, self.dim)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = (vars(self)[k].detach().clone() for k in ("_u", "_v"))
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """Return `value`: an assigned weight is divided as any other."""
        return value


@guarded
def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Parametrize the tensor `name` of `module` by its length (`parametrizations.weight.original0`) and direction
    (`original1`), and return `module`.

    `dim` is the axis that keeps a length for each index; None means one length. Raises ArgumentError for a module
    without that parameter.

    >>> from monolect import nn
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> layer.parametrizations.weight.original0.shape, layer.weight.shape
    ((3, 1), (3, 2))
    """
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


@guarded
def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Parametrize the tensor `name` of `module` by itself divided by its largest singular value, and return `module`.

    The singular vectors are buffers, improved by `n_power_iterations` at each use in training. The weight is a matrix
    whose rows are the indices of the axis `dim`: by default 0, and 1 for transposed convolutions. Norms of vectors are
    at least `eps`. Raises ArgumentError for a module without that parameter, and for no iterations.

    >>> from monolect import nn
    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3))
    >>> sorted(layer.state_dict())[1:]
    ['parametrizations.weight.0._u', 'parametrizations.weight.0._v', 'parametrizations.weight.original']
    """
    if n_power_iterations < 1:
        raise ArgumentError("spectral_norm: n_power_iterations", expected="at least 1", found=n_power_iterations)
    axis = dim if dim is not None else int(isinstance(module, ConvTranspose1d | ConvTranspose2d | ConvTranspose3d))
    value = getattr(module, name, None)
    weight = value if isinstance(value, Tensor) else parameter("spectral_norm", module, name)
    return register_parametrization(module, name, _SpectralNorm(weight.detach(), n_power_iterations, axis, eps))


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(hint("nn.utils.parametrizations", name))


__all__ = ["spectral_norm", "weight_norm"]
