"""Define the containers of modules and of parameters: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict.

What it is for: a model whose parts are in lists and dicts. A plain list or dict as an attribute does the same; its name
is part of the names in the state dict in both cases.
Invariant: names in a state dict are PyTorch's: the index in a list, the key in a dict.
Source: torch.nn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias, overload

from monolect.base.errors import ArgumentError, AxisError, DTypeError
from monolect.nn.module import Module
from monolect.tensor.state.leaves import is_parameter
from monolect.tensor.tensor import Tensor

Layer: TypeAlias = "Module | Callable[[Tensor], Tensor]"


def _checked(kind: str, layer: object) -> Any:
    """Return `layer`. Raises DTypeError, which names the class `kind`, unless it is callable."""
    if not callable(layer):
        raise DTypeError(f"{kind}: a layer", expected="a module or a function", found=repr(layer))
    return layer


class Sequential(Module):
    """Apply modules, or functions of one tensor, one after the other. Raises DTypeError for a layer that is not
    callable.

    A dict of layers gives them names, which are also attributes. A module that is set as another attribute, or added by
    `add_module`, is a further layer.

    >>> Sequential(lambda x: x + 1, lambda x: x * 2)(Tensor([1.0])).tolist()
    [4.0]
    >>> model = Sequential({"first": nn.Linear(2, 3), "act": nn.ReLU()})
    >>> model.act, list(model.state_dict())
    (ReLU(), ['first.weight', 'first.bias'])
    """

    _inner = Module._inner | {"layers", "names"}

    def __init__(self, *layers: Layer | Sequence[Layer] | Mapping[str, Layer]):
        self.layers: list[Any] = []
        given: Any = layers[0] if len(layers) == 1 and isinstance(layers[0], list | tuple | Mapping) else layers
        if isinstance(given, Mapping):
            self.names = list(given)
            given = given.values()
        for layer in given:
            self.layers.append(_checked(type(self).__name__, layer))

    def _contents(self) -> dict[str, Any]:
        names = self.__dict__.get("names")
        return dict(zip(names or map(str, range(len(self.layers))), self.layers, strict=True))

    if not TYPE_CHECKING:  # a type checker would not find that other attributes are absent

        def __getattr__(self, name: str) -> Any:
            named = self._contents() if "layers" in self.__dict__ else {}
            if name not in named:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return named[name]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. A module is a layer: it replaces the one of that name, or is appended."""
        if not isinstance(value, Module) or "layers" not in self.__dict__:
            super().__setattr__(name, value)
            return
        names = list(self._contents())
        if name in names:
            self.layers[names.index(name)] = value
            return
        if "names" in self.__dict__ or name != str(len(names)):
            self.names = [*names, name]
        self.layers.append(value)

    def _parts(self) -> Iterator[tuple[str, str]]:
        for name, layer in self._contents().items():
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
        return self.insert(len(self.layers), layer)

    def extend(self, layers: Iterable[Layer]) -> Self:
        """Add all `layers` at the end and return this module.

        >>> len(Sequential(nn.ReLU()).extend([nn.Tanh(), nn.ReLU()]))
        3
        """
        for layer in layers:
            self.append(layer)
        return self

    def insert(self, index: int, layer: Layer) -> Self:
        """Add a layer before number `index` and return this module; later layers get other names.

        >>> nn.Sequential(nn.ReLU()).insert(0, nn.Tanh())[0]
        Tanh()
        """
        self.layers.insert(index, _checked(type(self).__name__, layer))
        if "names" in self.__dict__:
            self.names.insert(index, str(len(self.names)))
        return self

    def pop(self, index: int = -1) -> Any:
        """Remove the layer number `index` and return it.

        >>> nn.Sequential(nn.ReLU(), nn.Tanh()).pop()
        Tanh()
        """
        layer = self[index]
        del self[index]
        return layer

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)

    def _number(self, index: Any) -> int:
        """Return the number of the layer `index`, counted from the front. Raises AxisError for one that is absent."""
        if not -len(self.layers) <= index < len(self.layers):
            raise AxisError(f"{type(self).__name__}: layer", expected=f"0 to {len(self.layers) - 1}", found=index)
        return int(index) % len(self.layers)

    def _like(self, layers: Any) -> Any:
        """Return a new container of the class of this one."""
        kind: Any = type(self)
        return kind(layers)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            names = self.__dict__.get("names")
            part = self.layers[index]
            return self._like(dict(zip(names[index], part, strict=True)) if names else part)
        return self.layers[self._number(index)]

    def __setitem__(self, index: int, layer: Layer) -> None:
        self.layers[self._number(index)] = _checked(type(self).__name__, layer)

    def __delitem__(self, index: int | slice) -> None:
        at = index if isinstance(index, slice) else self._number(index)
        del self.layers[at]
        if "names" in self.__dict__:
            del self.names[at]

    def __add__(self, other: Iterable[Layer]) -> Self:
        return self._like([*self.layers, *other])

    def __iadd__(self, other: Iterable[Layer]) -> Self:
        return self.extend(other)


class ModuleList(Sequential):
    """A list of modules that the model iterates over; it cannot be called. `layers` are modules, or one iterable of
    them.

    >>> len(ModuleList([Module(), Module()])), len(ModuleList(Module() for _ in range(3)))
    (2, 3)
    """

    def __init__(self, *layers: Layer | Iterable[Layer]):
        is_one = len(layers) == 1 and isinstance(layers[0], Iterable) and not isinstance(layers[0], Mapping)
        super().__init__(*(layers[0] if is_one else layers))  # type: ignore[misc]

    def forward(self, x: Tensor) -> Tensor:
        """Raise NotImplementedError, because a list does not say how its modules are used."""
        raise NotImplementedError("a ModuleList has no forward; iterate over it")


class _Named(Module):
    """A module whose entries are those of a dict, in the order of their insertion."""

    _inner = Module._inner | {"by_name"}

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}

    def _contents(self) -> dict[str, Any]:
        return self.by_name

    if not TYPE_CHECKING:  # a type checker would not find that other attributes are absent

        def __getattr__(self, name: str) -> Any:
            entries = self.__dict__.get("by_name", ())
            if name not in entries:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return entries[name]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a module is an entry."""
        if isinstance(value, Module) and "by_name" in self.__dict__:
            self[name] = value
        else:
            super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """Raise NotImplementedError, because a container does not say how its entries are used."""
        raise NotImplementedError(f"a {type(self).__name__} has no forward; use its entries")

    def keys(self) -> Iterable[str]:
        """Return the names.

        >>> list(nn.ModuleDict({"a": nn.ReLU()}).keys())
        ['a']
        """
        return self.by_name.keys()

    def values(self) -> Iterable[Any]:
        """Return the entries.

        >>> list(nn.ModuleDict({"a": nn.ReLU()}).values())
        [ReLU()]
        """
        return self.by_name.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return (name, entry) of all entries.

        >>> list(nn.ModuleDict({"a": nn.ReLU()}).items())
        [('a', ReLU())]
        """
        return self.by_name.items()

    def update(self, entries: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add `entries`, or replace those of the same names.

        >>> m = nn.ModuleDict({"a": nn.ReLU()})
        >>> m.update({"b": nn.Tanh()})
        >>> list(m)
        ['a', 'b']
        """
        for name, entry in entries.items() if isinstance(entries, Mapping) else entries:
            self[name] = entry

    def pop(self, name: str) -> Any:
        """Remove an entry and return it. Raises ArgumentError for a name that is absent.

        >>> nn.ModuleDict({"a": nn.ReLU()}).pop("a")
        ReLU()
        """
        entry = self[name]
        del self[name]
        return entry

    def clear(self) -> None:
        """Remove all entries.

        >>> m = nn.ModuleDict({"a": nn.ReLU()})
        >>> m.clear()
        >>> len(m)
        0
        """
        self.by_name.clear()

    def _check(self, entry: object) -> Any:
        return entry

    def __getitem__(self, name: str) -> Any:
        if name not in self.by_name:
            raise ArgumentError(
                f"{type(self).__name__}: name", expected=" or ".join(self.by_name) or "none", found=name
            )
        return self.by_name[name]

    def __setitem__(self, name: str, entry: object) -> None:
        if not isinstance(name, str) or "." in name:
            raise ArgumentError(f"{type(self).__name__}: name", expected="a str without dots", found=repr(name))
        self.by_name[name] = self._check(entry)

    def __delitem__(self, name: str) -> None:
        self[name]
        del self.by_name[name]

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __contains__(self, name: object) -> bool:
        return name in self.by_name


class ModuleDict(_Named):
    """Modules by name, which are also attributes; it cannot be called. Raises DTypeError for other entries than
    modules and functions.

    >>> d = ModuleDict({"act": nn.ReLU()})
    >>> d["act"] is d.act
    True
    """

    def __init__(self, modules: Mapping[str, Layer] | Iterable[tuple[str, Layer]] | None = None):
        super().__init__()
        self.update(modules or {})

    def _check(self, entry: object) -> Any:
        return _checked("ModuleDict", entry)


def _parameter(kind: str, value: Any) -> Any:
    """Return `value`, a Tensor, as an entry; other data become a parameter. Raises DTypeError for what is no tensor."""
    if isinstance(value, Tensor):
        return value if is_parameter(value) or not value.dtype.is_float else value.detach().requires_grad_()
    try:
        return Tensor(value).requires_grad_()
    except Exception as e:
        raise DTypeError(f"{kind}: an entry", expected="a Tensor or data of one", found=repr(value)) from e


class ParameterList(Module):
    """A list of parameters. A float Tensor that is no parameter becomes one. Raises DTypeError for other entries.

    >>> [p.shape for p in ParameterList([Tensor.ones(2), Tensor.ones(3)]).parameters()]
    [(2,), (3,)]
    """

    _inner = Module._inner | {"entries"}

    def __init__(self, values: Iterable[Tensor] = ()):
        self.entries: list[Any] = []
        self.extend(values)

    def _contents(self) -> dict[str, Any]:
        return {str(i): t for i, t in enumerate(self.entries)}

    def append(self, value: Tensor) -> Self:
        """Add an entry at the end and return this list.

        >>> len(ParameterList().append(Tensor([1.0])))
        1
        """
        self.entries.append(_parameter("ParameterList", value))
        return self

    def extend(self, values: Iterable[Tensor]) -> Self:
        """Add entries at the end and return this list.

        >>> len(ParameterList().extend([Tensor([1.0]), Tensor([2.0])]))
        2
        """
        for value in values:
            self.append(value)
        return self

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.entries)

    def __getitem__(self, index: int) -> Tensor:
        if not -len(self) <= index < len(self):
            raise AxisError("ParameterList: entry", expected=f"0 to {len(self) - 1}", found=index)
        found: Tensor = self.entries[index]
        return found

    def __setitem__(self, index: int, value: Tensor) -> None:
        self[index]
        self.entries[index] = _parameter("ParameterList", value)


class ParameterDict(_Named):
    """Parameters by name. A float Tensor that is no parameter becomes one. Raises DTypeError for other entries.

    >>> ParameterDict({"scale": Tensor([2.0])})["scale"].requires_grad
    True
    """

    def __init__(self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] | None = None):
        super().__init__()
        self.update(parameters or {})

    def _check(self, entry: object) -> Any:
        return _parameter("ParameterDict", entry)


__all__ = ["Layer", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]
