"""Compute a parameter of a module by other modules from what is learned, as torch.nn.utils.parametrize does.

What it is for: `register_parametrization(layer, "weight", Symmetric())` makes `layer.weight` the result of the module
for `layer.parametrizations.weight.original`, at each use; `cached()` computes it once.
Invariant: the names in a state dict are those of PyTorch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.base.grad_mode import no_grad
from monolect.nn.containers import ModuleDict, ModuleList
from monolect.nn.module import Module
from monolect.nn.utils.computed import compute, parameter, plain_class, uncompute
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

M = TypeVar("M", bound=Module)


class _Cache(threading.local):
    """The values that are computed in `cached()`, by module and name; None outside."""

    values: dict[tuple[int, str], Tensor] | None = None


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Context manager: within the block, in this thread, a parametrized tensor is computed once, at its first use.

    >>> from monolect import nn
    >>> from monolect.nn.utils import parametrize
    >>> layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Tanh())
    >>> with parametrize.cached():
    ...     print(layer.weight is layer.weight)
    True
    """
    outer = _cache.values
    _cache.values = {} if outer is None else outer
    try:
        yield
    finally:
        _cache.values = outer


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, first to last, and what the first is computed from: `original`, or
    `original0`, `original1` and so on if its `right_inverse` returns several tensors.

    `module.parametrizations.weight` is one, made by `register_parametrization`.

    >>> from monolect import nn
    >>> from monolect.nn.utils import parametrize
    >>> layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Tanh())
    >>> len(layer.parametrizations.weight), layer.parametrizations.weight.original.shape
    (1, (2, 2))
    """

    unsafe = False
    n_originals: int | None = None  # None: one tensor, `original`

    def originals(self) -> list[Tensor]:
        """Return the tensors that the first parametrization is computed from.

        >>> from monolect import nn
        >>> from monolect.nn.utils import parametrize
        >>> layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Tanh())
        >>> [t.shape for t in layer.parametrizations.weight.originals()]
        [(2, 2)]
        """
        return [vars(self)[name] for name in _names(self.n_originals)]

    def value(self) -> Any:
        """Return the parametrized tensor.

        >>> from monolect import nn
        >>> from monolect.nn.utils import parametrize
        >>> layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Tanh())
        >>> layer.parametrizations.weight.value().equal(layer.weight)
        True
        """
        first, *others = self.layers
        x = first(*self.originals())
        for layer in others:
            x = layer(x)
        return x

    def right_inverse(self, value: Tensor) -> None:
        """Write what gives `value` to the originals, without a gradient, by `right_inverse` of the parametrizations.

        >>> from monolect import nn
        >>> from monolect.nn.utils import parametrize
        >>> class Double(nn.Module):
        ...     def forward(self, x):
        ...         return x * 2
        ...     def right_inverse(self, y):
        ...         return y / 2
        >>> layer = parametrize.register_parametrization(nn.Linear(1, 1), "weight", Double())
        >>> layer.weight = Tensor([[6.0]])
        >>> layer.parametrizations.weight.original.item(), layer.weight.item()
        (3.0, 6.0)
        """
        with no_grad():
            new = _inverse(self.layers, value)
            found = _tensors(new)
            if len(found) != len(self.originals()):
                raise ArgumentError("right_inverse", expected=f"{len(self.originals())} tensors", found=len(found))
            for t, x in zip(self.originals(), found, strict=True):
                t.assign(x.detach().clone())


def _of(module: Module, name: str) -> ParametrizationList:
    """Return the parametrizations of the tensor `name` of `module`."""
    found: ParametrizationList = vars(module)["parametrizations"][name]
    return found


def _names(n: int | None) -> list[str]:
    return ["original"] if n is None else [f"original{k}" for k in range(n)]


def _inverse(layers: Sequence[Any], value: Tensor) -> Any:
    """Return the tensor, or the sequence of tensors, for which `layers` give `value`. One without `right_inverse`, or
    that raises NotImplementedError in it, counts as the identity.
    """
    new: Any = value
    for layer in reversed(layers):
        try:
            new = layer.right_inverse(new) if hasattr(layer, "right_inverse") else new
        except NotImplementedError:
            pass
    return new


@dataclass(frozen=True)
class _Parametrized:
    """The value of a parametrized tensor `name` of a module."""

    name: str

    def __call__(self, module: Any) -> Tensor:
        own = _of(module, self.name)
        values = _cache.values
        if values is None:
            found: Tensor = own.value()
            return found
        key = id(module), self.name
        if key not in values:
            values[key] = own.value()
        return values[key]

    def write(self, module: Any, value: Tensor) -> None:
        """Write to the originals what gives `value`."""
        _of(module, self.name).right_inverse(value)


@guarded
def register_parametrization(module: M, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> M:
    """Make the parameter or buffer `tensor_name` of `module` the result of `parametrization` for it, at each use, and
    return `module`.

    The tensor becomes `module.parametrizations.<tensor_name>.original`, the same object where `right_inverse` keeps its
    shape. A method `right_inverse(value)` of `parametrization` returns the tensor, or the sequence of tensors, to
    start from; without one the tensor itself. An assignment to the attribute writes to the originals. Further calls
    apply their module to the result. Raises ArgumentError for a module without that tensor, DTypeError for
    what is no module, and unless `unsafe` ShapeError and DTypeError for a result of another shape or dtype.

    >>> from monolect import nn
    >>> from monolect.nn.utils import parametrize
    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    >>> layer.weight.equal(layer.weight.T), sorted(layer.state_dict())
    (True, ['bias', 'parametrizations.weight.original'])
    """
    if not isinstance(parametrization, Module):
        raise DTypeError("register_parametrization", expected="a Module", found=type(parametrization).__name__)
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        of_tensor = _of(module, tensor_name)
        if not unsafe:
            value: Tensor = getattr(module, tensor_name).detach()
            with no_grad():
                call: Any = parametrization
                result = call(value)
                _check("register_parametrization", result, value)
                _check("right_inverse", _inverse([parametrization], result), value)
        of_tensor.layers.append(parametrization)
        of_tensor.unsafe |= unsafe
        return module
    original = parameter("register_parametrization", module, tensor_name)
    made = _made(parametrization, original, unsafe)
    vars(module).setdefault("parametrizations", ModuleDict())[tensor_name] = made
    computed = _Parametrized(tensor_name)
    compute(module, tensor_name, computed, computed.write)
    module.buffer_names = tuple(n for n in module.buffer_names if n != tensor_name)
    return module


def _made(parametrization: Module, original: Tensor, unsafe: bool) -> ParametrizationList:
    """Return the list of the first parametrization of `original`, with what it is computed from."""
    call: Any = parametrization
    made = ParametrizationList(call)
    made.unsafe = unsafe
    with no_grad():
        new = _inverse([parametrization], original.detach())
        starts = _tensors(new)
        made.n_originals = None if isinstance(new, Tensor) else len(starts)
        if not unsafe:
            _check("register_parametrization", call(*starts), original)
        if isinstance(new, Tensor) and new.dtype is not original.dtype:
            expected = original.dtype.name
            raise DTypeError("register_parametrization: right_inverse", expected=expected, found=new.dtype.name)
        if isinstance(new, Tensor) and new.shape == original.shape:
            starts = [original.assign(new.clone())]
        else:
            starts = [t.detach().clone().realize() for t in starts]
    for name, t in zip(_names(made.n_originals), starts, strict=True):
        if original.requires_grad:
            vars(made)[name] = t.requires_grad_()
        else:
            made.register_buffer(name, t)
    return made


def _tensors(found: Any) -> list[Tensor]:
    """Return what `_inverse` found as a list."""
    return [found] if isinstance(found, Tensor) else list(found)


def _check(what: str, found: Any, like: Tensor) -> None:
    """Raise DTypeError or ShapeError unless `found` is a tensor of the dtype and shape of `like`."""
    if not isinstance(found, Tensor) or found.dtype is not like.dtype:
        name = found.dtype.name if isinstance(found, Tensor) else type(found).__name__
        raise DTypeError(f"{what}: a parametrization", expected=f"{like.dtype.name}, or unsafe=True", found=name)
    if found.shape != like.shape:
        raise ShapeError(f"{what}: a parametrization", expected=f"{like.shape}, or unsafe=True", found=found.shape)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Return whether the tensor `tensor_name` of `module`, or without a name one of them, is parametrized.

    >>> from monolect import nn
    >>> from monolect.nn.utils import parametrize
    >>> layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Tanh())
    >>> parametrize.is_parametrized(layer), parametrize.is_parametrized(layer, "bias")
    (True, False)
    """
    known = vars(module).get("parametrizations")
    return isinstance(known, ModuleDict) and (len(known) > 0 if tensor_name is None else tensor_name in known.keys())


@guarded
def remove_parametrizations(module: M, tensor_name: str, leave_parametrized: bool = True) -> M:
    """Make `tensor_name` an attribute of `module` again and return `module`.

    It has the computed values, or without `leave_parametrized` those of the original. It is the tensor that was
    parametrized if there is one original of the same shape. Raises ArgumentError for a tensor that is not
    parametrized, and for one of several originals without `leave_parametrized`.

    >>> from monolect import nn
    >>> from monolect.nn.utils import parametrize
    >>> layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Tanh())
    >>> sorted(parametrize.remove_parametrizations(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError("remove_parametrizations", expected=f"a parametrized {tensor_name!r}", found=repr(module))
    made = _of(module, tensor_name)
    originals = made.originals()
    if made.n_originals is not None and not leave_parametrized:
        expected = "leave_parametrized=True, or one original"
        raise ArgumentError("remove_parametrizations", expected=expected, found=f"{len(originals)} originals")
    tensor, is_leaf = originals[0], any(t.requires_grad for t in originals)
    if leave_parametrized:
        value: Tensor = made.value().detach().clone().realize()
        if made.n_originals is None and value.shape == tensor.shape and value.dtype is tensor.dtype:
            with no_grad():
                tensor.assign(value)
        else:
            tensor = value.requires_grad_(is_leaf)
    uncompute(module, tensor_name)
    del vars(module)["parametrizations"][tensor_name]
    if is_leaf:
        vars(module)[tensor_name] = tensor
    else:
        module.register_buffer(tensor_name, tensor)
    if not is_parametrized(module):
        del vars(module)["parametrizations"]
    return module


def type_before_parametrizations(module: Module) -> type:
    """Return the class of `module` without parametrizations.

    >>> from monolect import nn
    >>> from monolect.nn.utils import parametrize
    >>> layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Tanh())
    >>> parametrize.type_before_parametrizations(layer) is nn.Linear
    True
    """
    kind: type = plain_class(module)
    return kind


@guarded
def transfer_parametrizations_and_params(from_module: Module, to_module: M, tensor_name: str | None = None) -> M:
    """Parametrize the tensors of `to_module` as those of `from_module` are, with the same originals, and return
    `to_module`.

    With `tensor_name` only this one; a tensor that `to_module` lacks is made. Raises as `register_parametrization`.

    >>> from monolect import nn
    >>> from monolect.nn.utils import parametrize
    >>> a = parametrize.register_parametrization(nn.Linear(2, 2), "weight", nn.Tanh())
    >>> b = parametrize.transfer_parametrizations_and_params(a, nn.Linear(2, 2))
    >>> b.weight.equal(a.weight)
    True
    """
    if not is_parametrized(from_module):
        return to_module
    known = vars(from_module)["parametrizations"]
    for name in list(known.keys()) if tensor_name is None else [tensor_name]:
        given = _of(from_module, name)
        if not hasattr(to_module, name):
            value = getattr(from_module, name).detach().clone()
            setattr(to_module, name, value.requires_grad_(any(t.requires_grad for t in given.originals())))
        for layer in given.layers:
            register_parametrization(to_module, name, layer, unsafe=given.unsafe)
        for own, t in zip(_names(given.n_originals), given.originals(), strict=True):
            vars(_of(to_module, name))[own] = t
    return to_module


__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]


def __dir__() -> list[str]:
    return __all__
