"""Tools for gradients, weights (pruned, parametrized, fused), sequences and calls with other parameters, by the names
of torch.nn.utils.
"""

from monolect.nn.utils import checkpoint, fusion, parametrizations, parametrize, prune, rnn, stateless
from monolect.nn.utils.gradients import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)
from monolect.nn.utils.weights import (
    remove_spectral_norm,
    remove_weight_norm,
    skip_init,
    spectral_norm,
    weight_norm,
)

__all__ = [
    "checkpoint",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fusion",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]


def __dir__() -> list[str]:
    return __all__
