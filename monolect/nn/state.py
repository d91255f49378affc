"""Find the tensors of an object by name, and load saved ones into them.

What it is for: any object is a model: a Module, a plain class, nested lists, tuples and dicts. A name is the path of
attributes and indices, joined by dots.
What it is not: it reads and writes no files; `interop.safetensors` does.
Invariant: `load_state_dict` checks everything before it changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.tensor.base import Data, restore_on_failure
from monolect.tensor.guard import guarded
from monolect.tensor.state.leaves import is_parameter
from monolect.tensor.tensor import Tensor

_SHOWN = 5  # names in an error message; the others are counted


class IncompatibleKeys(NamedTuple):
    """Names that a state dict lacks, and those that the model lacks.

    >>> load_state_dict({"w": Tensor([1.0])}, {"b": Tensor([2.0])}, strict=False)
    IncompatibleKeys(missing_keys=['w'], unexpected_keys=['b'])
    """

    missing_keys: list[str]
    unexpected_keys: list[str]


def get_state_dict(obj: object, prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors reachable from `obj` through attributes, lists, tuples and dicts, by dotted name, in order.

    A tensor reachable under two names is listed under both. `prefix` is put before each name.

    >>> list(get_state_dict({"layers": [Tensor([1.0]), Tensor([2.0])]}))
    ['layers.0', 'layers.1']
    """
    out: dict[str, Tensor] = {}
    _collect(obj, prefix.rstrip("."), out, (), [])
    return out


def all_tensors(obj: object) -> dict[str, Tensor]:
    """Return the tensors of `get_state_dict` and the buffers that are not saved, by dotted name.

    >>> list(all_tensors({"w": Tensor([1.0])}))
    ['w']
    """
    out: dict[str, Tensor] = {}
    _collect(obj, "", out, (), [], only_saved=False)
    return out


def _collect(
    obj: Any, name: str, out: dict[str, Tensor], path: tuple[int, ...], owners: list[Any], only_saved: bool = True
) -> None:
    """Add the tensors of `obj` to `out`, and the objects that list their tensors by `_entries` to `owners`.

    With `only_saved` the names in an attribute `unsaved_names` are left out.
    """
    if isinstance(obj, Tensor):
        out[name] = obj
        return
    if id(obj) in path:  # an object that holds itself, such as a parent link
        return
    entries: Any = ()
    if hasattr(obj, "_entries"):
        found = obj._entries()  # tensors of a module are listed before its submodules, as in PyTorch
        last = getattr(obj, "buffer_names", ())
        entries = sorted(found.items(), key=lambda entry: (not isinstance(entry[1], Tensor), entry[0] in last))
        owners.append(obj)
    elif isinstance(obj, list | tuple):
        entries = enumerate(obj)
    elif isinstance(obj, dict):
        entries = obj.items()
    elif hasattr(obj, "__dict__") and not isinstance(obj, type) and not callable(getattr(obj, "__wrapped__", None)):
        entries = vars(obj).items()
    unsaved = getattr(obj, "unsaved_names", ()) if only_saved else ()
    for key, value in entries:
        if not isinstance(value, str | int | float | bool | None) and key not in unsaved:
            _collect(value, f"{name}.{key}" if name else str(key), out, (*path, id(obj)), owners, only_saved)


def get_parameters(obj: object) -> list[Tensor]:
    """Return the parameters reachable from `obj`, also the frozen ones, each once.

    >>> get_parameters({"a": Tensor([1.0], requires_grad=True), "b": Tensor([2.0])})[0].tolist()
    [1.0]
    """
    found = {id(t): t for t in all_tensors(obj).values() if is_parameter(t)}
    return list(found.values())


@guarded
def load_state_dict(obj: object, state: Mapping[str, Data], strict: bool = True) -> IncompatibleKeys:
    """Copy the tensors of `state` into those of the same names in `obj`, in one batch; return the names that only one
    of both has.

    Values may be Tensors or NumPy arrays. With `strict`, the names must be the same. Raises ArgumentError for different
    names, ShapeError and DTypeError for tensors that differ; then nothing changes.

    >>> model = {"w": Tensor([1.0, 2.0])}
    >>> load_state_dict(model, {"w": Tensor([3.0, 4.0])})
    IncompatibleKeys(missing_keys=[], unexpected_keys=[])
    >>> model["w"].tolist()
    [3.0, 4.0]
    """
    own: dict[str, Tensor] = {}
    owners: list[Any] = []
    _collect(obj, "", own, (), owners)
    missing, unknown = [k for k in own if k not in state], [k for k in state if k not in own]
    if strict and (missing or unknown):
        found = f"missing: {_some(missing)}; not expected: {_some(unknown)}"
        raise ArgumentError("state dict: names differ", expected=f"{len(own)} names of the model", found=found)
    pairs = []
    for name, target in own.items():
        if name not in state:
            continue
        given = state[name]
        value = given if isinstance(given, Tensor) else Tensor(given)
        if value.shape != target.shape:
            raise ShapeError(f"state dict: {name}", expected=target.shape, found=value.shape)
        if value.dtype is not target.dtype:
            raise DTypeError(f"state dict: {name}", expected=target.dtype.name, found=value.dtype.name)
        pairs.append((target, _to_devices_of(target, value.detach())))
    with restore_on_failure(t for t, _ in pairs):
        for target, value in pairs:
            target.assign(value)
        if pairs:
            pairs[0][0].realize(*(t for t, _ in pairs[1:]))
        for owner in owners:
            if hasattr(owner, "_loaded"):
                owner._loaded()
    return IncompatibleKeys(missing, unknown)


def _to_devices_of(target: Tensor, value: Tensor) -> Tensor:
    """Return `value` on the devices of `target`, divided as it is. From one device it goes to several by the
    assignment.
    """
    if isinstance(target.device, str):
        return value.to(target.device)
    return value.shard(target.device, target.shard_axis) if isinstance(value.device, tuple) else value


def _some(names: list[str]) -> str:
    if not names:
        return "none"
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


__all__ = ["all_tensors", "get_parameters", "get_state_dict", "load_state_dict"]


def __dir__() -> list[str]:
    return __all__
