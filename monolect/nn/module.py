"""Define Module, the base class of layers, and the containers Sequential and ModuleList.

What it is for: it has the `parameters`, `state_dict`, `train`, `eval` and calls that PyTorch users expect. Attributes
are plain attributes; a module finds its tensors and submodules by scanning them.
What it is not: it has no hooks, no registration and no lazy modules. Plain classes work as models too (`nn.state` walks
them).
Invariant: names in a state dict are PyTorch's, so weights move between the two libraries under the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeAlias, TypeVar, overload

from monolect.base.errors import AxisError, DTypeError
from monolect.nn.state import get_state_dict, load_state_dict
from monolect.tensor.base import Data
from monolect.tensor.tensor import Tensor

if TYPE_CHECKING:
    P = ParamSpec("P")
    R_co = TypeVar("R_co", covariant=True)

    class _HasForward(Protocol[P, R_co]):
        def forward(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    class _CallForward:
        def __get__(self, module: _HasForward[P, R_co], owner: Any = None) -> Callable[P, R_co]: ...


class Module:
    """A layer or a model: define `__init__` and `forward`, then call it.

    `training` starts as True, as in PyTorch; `eval()` sets it to False here and in all submodules. `buffer_names` lists
    the attributes that are state and not parameters: unfreezing the module leaves them alone.

    >>> class Double(Module):
    ...     def forward(self, x):
    ...         return x * 2
    >>> Double()(Tensor([1.0])).tolist()
    [2.0]
    """

    training: bool = True
    buffer_names: tuple[str, ...] = ()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result of a call. Raises NotImplementedError where a subclass defines no `forward`.

        >>> nn.Identity().forward(Tensor([1.0])).tolist()
        [1.0]
        """
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    if TYPE_CHECKING:
        __call__ = _CallForward()  # a call takes and returns what `forward` of the subclass does
    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.forward(*args, **kwargs)

    # ---- contents ----------------------------------------------------------------------------------------------------
    def _entries(self) -> dict[str, Any]:
        """Return the attributes that may hold tensors or modules, by their names in a state dict."""
        return vars(self)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield (name, module) for the direct submodules, also those in lists and dicts.

        >>> [name for name, _ in Sequential(nn.ReLU(), nn.Tanh()).named_children()]
        ['0', '1']
        """
        for name, value in self._entries().items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, list | tuple):
                yield from ((f"{name}.{i}", m) for i, m in enumerate(value) if isinstance(m, Module))
            elif isinstance(value, dict):
                yield from ((f"{name}.{k}", m) for k, m in value.items() if isinstance(m, Module))

    def children(self) -> Iterator[Module]:
        """Yield the direct submodules.

        >>> list(Sequential(nn.ReLU(), nn.Tanh()).children())
        [ReLU(), Tanh()]
        """
        return (m for _, m in self.named_children())

    def modules(self) -> Iterator[Module]:
        """Yield this module and all submodules, each once, parents first.

        >>> [type(m).__name__ for m in Sequential(nn.ReLU(), Sequential(nn.Tanh())).modules()]
        ['Sequential', 'ReLU', 'Sequential', 'Tanh']
        """
        seen: set[int] = set()
        stack: list[Module] = [self]
        while stack:
            m = stack.pop()
            if id(m) not in seen:
                seen.add(id(m))
                yield m
                stack.extend(reversed(list(m.children())))

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, tensor) for the tensors that require a gradient, each once.

        >>> [(name, p.shape) for name, p in nn.Linear(3, 2).named_parameters()]
        [('weight', (2, 3)), ('bias', (2,))]
        """
        seen: set[int] = set()
        for name, t in get_state_dict(self).items():
            if t.requires_grad and id(t) not in seen:
                seen.add(id(t))
                yield name, t

    def parameters(self) -> list[Tensor]:
        """Return the tensors that require a gradient, each once.

        >>> [p.shape for p in Sequential(nn.Linear(3, 2), nn.Linear(2, 1, bias=False)).parameters()]
        [(2, 3), (2,), (1, 2)]
        """
        return [t for _, t in self.named_parameters()]

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors of this module and its submodules, parameters or not, by dotted name.

        >>> list(nn.BatchNorm2d(3).state_dict())
        ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked']
        """
        return get_state_dict(self)

    def load_state_dict(self, state: Mapping[str, Data], strict: bool = True) -> None:
        """Copy the tensors of `state` into those of the same names. Raises as `nn.state.load_state_dict`.

        >>> a, b = nn.Linear(2, 2), nn.Linear(2, 2)
        >>> b.load_state_dict(a.state_dict())
        >>> a.weight.equal(b.weight)
        True
        """
        load_state_dict(self, state, strict=strict)

    # ---- changing it -------------------------------------------------------------------------------------------------
    def train(self, mode: bool = True) -> Self:
        """Set `training` to `mode` here and in all submodules, for dropout and batch statistics; return this module.

        >>> model = Sequential(nn.Dropout(0.5)).eval()
        >>> model.train()[0].training
        True
        """
        for m in self.modules():
            m.training = mode
        return self

    def eval(self) -> Self:
        """Set `training` to False here and in all submodules; return this module.

        >>> Sequential(nn.Dropout(0.5)).eval()[0].training
        False
        """
        return self.train(False)

    def zero_grad(self) -> None:
        """Set the gradients of all parameters to None.

        >>> model = nn.Linear(1, 1)
        >>> _ = model(Tensor.ones(1, 1)).sum().backward()
        >>> model.zero_grad()
        >>> model.weight.grad is None
        True
        """
        for p in self.parameters():
            p.grad = None

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze the parameters of this module (False), or make all its float tensors except `buffer_names` parameters
        (True); return this module.

        >>> len(nn.Linear(3, 2).requires_grad_(False).parameters())
        0
        >>> len(nn.BatchNorm1d(2).requires_grad_(False).requires_grad_().parameters())
        2
        """
        buffers = {id(getattr(m, name, None)) for m in self.modules() for name in m.buffer_names}
        for p in self.parameters() if not requires_grad else get_state_dict(self).values():
            if p.dtype.is_float and id(p) not in buffers:
                p.requires_grad = requires_grad
        return self

    def realize(self) -> Self:
        """Compute all tensors of this module, such as initial weights, in one batch; return this module.

        >>> nn.LayerNorm(2).realize().weight
        Tensor([1., 1.], requires_grad=True)
        """
        tensors = list(get_state_dict(self).values())
        if tensors:
            tensors[0].realize(*tensors[1:])
        return self

    def _parts(self) -> Iterator[tuple[str, str]]:
        """Yield (name, repr) of each submodule, for the repr of this module."""
        return ((name, repr(m)) for name, m in self.named_children())

    def extra_repr(self) -> str:
        """Return the text between the parentheses of this module's repr, "" unless a subclass has settings to show.

        >>> nn.Linear(3, 2).extra_repr(), nn.Linear(3, 2)
        ('3, 2, bias=True', Linear(3, 2, bias=True))
        """
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): " + text.replace("\n", "\n  ") for name, text in self._parts()]
        extra = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({extra})"
        return "\n".join([f"{type(self).__name__}({extra}", *(f"  {line}" for line in lines), ")"])


Layer: TypeAlias = "Module | Callable[[Tensor], Tensor]"


class Sequential(Module):
    """Apply modules, or functions of one tensor, one after the other. Raises DTypeError for a layer that is not
    callable.

    >>> Sequential(lambda x: x + 1, lambda x: x * 2)(Tensor([1.0])).tolist()
    [4.0]
    """

    def __init__(self, *layers: Layer | Sequence[Layer]):
        self.layers: list[Any] = []
        given: Any = layers[0] if len(layers) == 1 and isinstance(layers[0], list | tuple) else layers
        for layer in given:
            self.append(layer)

    def _entries(self) -> dict[str, Any]:
        return {str(i): layer for i, layer in enumerate(self.layers)}

    def _parts(self) -> Iterator[tuple[str, str]]:
        for name, layer in self._entries().items():
            called = getattr(layer, "__name__", "")
            # a method of Tensor under its own name, defined in one of its bases
            is_method = bool(called) and getattr(Tensor, called, None) is layer
            text = f"Tensor.{called}" if is_method else getattr(layer, "__qualname__", repr(layer))
            yield name, repr(layer) if isinstance(layer, Module) else text

    def forward(self, x: Tensor) -> Tensor:
        """Apply each layer to the result of the previous one."""
        for layer in self.layers:
            x = layer(x)
        return x

    def append(self, layer: Layer) -> Self:
        """Add a layer at the end and return this module. Raises DTypeError where the layer is not callable.

        >>> Sequential(lambda x: x + 1).append(lambda x: x * 2)(Tensor([1.0])).tolist()
        [4.0]
        """
        if not callable(layer):
            raise DTypeError(f"{type(self).__name__}: a layer", expected="a module or a function", found=repr(layer))
        self.layers.append(layer)
        return self

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Sequential(*self.layers[index])
        if not -len(self.layers) <= index < len(self.layers):
            raise AxisError("Sequential: layer", expected=f"0 to {len(self.layers) - 1}", found=index)
        return self.layers[index]


class ModuleList(Sequential):
    """A list of modules that the model iterates over; it cannot be called.

    >>> len(ModuleList(Module(), Module()))
    2
    """

    def forward(self, x: Tensor) -> Tensor:
        """Raise NotImplementedError, because a list does not say how its modules are used."""
        raise NotImplementedError("a ModuleList has no forward; iterate over it")


__all__ = ["Module", "ModuleList", "Sequential"]
