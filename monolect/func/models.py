"""Call models as functions of their parameters: for gradients by sample and for ensembles, as torch.func does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monolect.base.errors import ArgumentError
from monolect.nn.layers.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d
from monolect.nn.module import Module
from monolect.nn.utils import stateless
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

Tensors = Mapping[str, Tensor]


@guarded
def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Tensors | Sequence[Tensors],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Return `module(*args, **kwargs)`, computed with the given tensors, by dotted name, instead of its own.

    They are one dict, or several without a common name. It is `nn.utils.stateless.functional_call`, with its errors;
    raises ArgumentError for a name that is in two dicts.

    >>> from monolect import func, nn
    >>> layer, x = nn.Linear(2, 1, bias=False), Tensor([[3.0, 4.0]])
    >>> g = func.grad(lambda p: func.functional_call(layer, p, x).sum())({"weight": Tensor([[1.0, 2.0]])})
    >>> g["weight"].tolist()
    [[3.0, 4.0]]
    """
    given = (
        [parameter_and_buffer_dicts] if isinstance(parameter_and_buffer_dicts, Mapping) else parameter_and_buffer_dicts
    )
    joined: dict[str, Tensor] = {}
    for tensors in given:
        if common := joined.keys() & tensors.keys():
            raise ArgumentError("functional_call", expected="names in one dict", found=f"in two: {sorted(common)[:5]}")
        joined.update(tensors)
    return stateless.functional_call(module, joined, args, kwargs, tie_weights=tie_weights, strict=strict)


@guarded
def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return (parameters, buffers) of `models`, by name, each stacked along a new axis 0, for `vmap`.

    The models are of one class, with tensors of the same names and shapes. The parameters are new leaves where those of
    the models are. Raises ArgumentError for no models and for those that differ.

    >>> from monolect import func, nn
    >>> models = [nn.Linear(2, 1), nn.Linear(2, 1)]
    >>> params, buffers = func.stack_module_state(models)
    >>> x = Tensor([1.0, 2.0])
    >>> func.vmap(lambda p: func.functional_call(models[0], p, x))(params).shape
    (2, 1)
    """
    if not models:
        raise ArgumentError("stack_module_state", expected="at least one model", found="none")
    states = [(dict(m.named_parameters()), dict(m.named_buffers())) for m in models]
    kinds = [{k: t.shape for part in state for k, t in part.items()} for state in states]
    if any(type(m) is not type(models[0]) or kind != kinds[0] for m, kind in zip(models, kinds, strict=True)):
        expected = f"{len(models)} models like the first, {type(models[0]).__name__}"
        raise ArgumentError("stack_module_state", expected=expected, found=", ".join(type(m).__name__ for m in models))

    def stacked(part: int, name: str) -> Tensor:
        first, *others = [state[part][name].detach() for state in states]
        return first.stack(*others).realize()

    params = {name: stacked(0, name).requires_grad_() for name in states[0][0]}
    return params, {name: stacked(1, name) for name in states[0][1]}


@guarded
def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Drop the running statistics of all batch norms of `root`, which `vmap` cannot write to, and return `root`.

    They then use the statistics of each batch, in evaluation, too.

    >>> from monolect import func, nn
    >>> list(func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2))).state_dict())
    ['0.weight', '0.bias']
    """
    for m in root.modules():
        if isinstance(m, BatchNorm1d | BatchNorm2d | BatchNorm3d):
            m.running_mean = m.running_var = m.num_batches_tracked = None
            m.track_running_stats = False
    return root


__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]
