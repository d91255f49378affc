"""Save nested dicts and lists of tensors, such as state dicts, in one file, and load them: `monolect.save` and `load`.

What it is for: `save(model.state_dict(), path)`, as torch.save does. The file is a safetensors file whose tensors have
the dotted names of their paths; the metadata have the structure as JSON. So other libraries can read the tensors.
What it is not: it executes nothing that is in a file, so it reads no pickles, and no files of torch.save.
Invariant: what `load` returns is equal to what `save` was given, in the same order; a save that fails leaves the old
file unchanged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import IO, Any

from monolect.base.disk.files import write_whole
from monolect.base.errors import ArgumentError, FileFormatError
from monolect.base.numpy import is_array, is_scalar
from monolect.interop.safetensors import decoded, encoded
from monolect.tensor.base import DeviceLike
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

File = str | os.PathLike[str] | IO[bytes]
STRUCTURE = "monolect.structure"  # key of the structure in the metadata of a file
PLAIN = (str, int, float, bool, type(None))  # values that are stored as JSON
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # how a file of torch.save begins, and one of numpy.savez
_PICKLE = tuple(bytes((0x80, n)) for n in range(2, 6))  # how a pickle begins, and an old file of torch.save


@guarded
def save(obj: object, f: File) -> None:
    """Write `obj` to the file `f`, a path or an object with `write`, so that `load` returns it.

    `obj` is a tensor, a NumPy array (loaded as a tensor), a number, str, bool or None, or a dict, list or tuple of
    these; the keys of a dict are strings, numbers, bools or None. Lazy tensors are computed first, in one batch. A
    tensor that occurs twice is stored twice. The data go to a temporary file that then replaces the file of the path.
    Raises ArgumentError for another object, such as a module (save its `state_dict()`), DTypeError for a dtype that the
    format lacks, MissingExtraError without the library safetensors.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "checkpoint.safetensors")
    >>> monolect.save({"model": {"w": Tensor([1.0, 2.0])}, "epoch": 3}, path)
    >>> found = monolect.load(path)
    >>> found["model"]["w"].tolist(), found["epoch"]
    ([1.0, 2.0], 3)
    """
    tensors: dict[str, Any] = {}
    structure = json.dumps(_described(obj, "", tensors), separators=(",", ":"))
    data = encoded(tensors, {STRUCTURE: structure})
    if isinstance(f, str | os.PathLike):
        write_whole(f, [data])
    else:
        f.write(data)


@guarded
def load(f: File, map_location: DeviceLike | None = None, *, weights_only: bool = True) -> Any:
    """Return what `save` wrote to the file `f`, a path or an object with `read`, with its tensors on `map_location`.

    None is the default device. A safetensors file of another program gives a dict of its tensors. Loaded tensors do not
    require gradients. `weights_only` has no effect, because a file holds no code. Raises FileFormatError for a file
    that is truncated, corrupt or of another format, as those of torch.save are, FileNotFoundError for a missing one,
    DTypeError for an element type that monolect lacks, MissingExtraError without the library safetensors.

    >>> import io
    >>> file = io.BytesIO()
    >>> monolect.save([Tensor([1, 2]), "text", None], file)
    >>> _ = file.seek(0)
    >>> monolect.load(file)
    [Tensor([1, 2]), 'text', None]
    """
    name, data = _read(f)
    if data.startswith(_ZIP) or data.startswith(_PICKLE):
        expected = "a file of monolect.save or of safetensors; for one of torch.save, call torch.load(path, "
        expected += "weights_only=True), and give its tensors to monolect.save or monolect.tensor"
        found = "a zip archive, as torch.save writes" if data.startswith(_ZIP) else "a pickle"
        raise FileFormatError(f"{name} is not a safetensors file", expected=expected, found=found)
    tensors, metadata = decoded(data, name, map_location)
    if STRUCTURE not in metadata:
        return tensors
    try:
        return _built(json.loads(metadata[STRUCTURE]), tensors)
    except (ValueError, TypeError, LookupError, RecursionError) as e:
        expected = "in its metadata a structure that monolect.save writes"
        raise FileFormatError(f"{name} cannot be read", expected=expected, found=repr(e)[:80]) from None


def _read(f: File) -> tuple[str, bytes]:
    """Return (name for messages, contents) of the file `f`, a path or an object with `read`."""
    if isinstance(f, str | os.PathLike):
        with open(f, "rb") as opened:
            return os.fspath(f), opened.read()
    return str(getattr(f, "name", "the file")), f.read()


def _described(obj: Any, name: str, tensors: dict[str, Any]) -> Any:
    """Return JSON for `obj`, whose path is the dotted `name`, and add its tensors to `tensors`.

    A tensor is {"tensor": name in the file}, a dict {"dict": [[key, value], ...]}, a tuple {"tuple": [...]}; other
    values are as JSON has them. Raises ArgumentError for an object of another class.
    """
    if isinstance(obj, Tensor) or is_array(obj):
        key = name or "tensor"
        while key in tensors:  # keys with dots can give two tensors one name
            key += "'"
        tensors[key] = obj
        return {"tensor": key}
    if is_scalar(obj):
        obj = obj.item()
    if isinstance(obj, PLAIN):
        return obj
    prefix = f"{name}." if name else ""
    if isinstance(obj, Mapping):
        return {"dict": [[_key(k, name), _described(v, f"{prefix}{k}", tensors)] for k, v in obj.items()]}
    if isinstance(obj, list | tuple):
        items = [_described(v, f"{prefix}{i}", tensors) for i, v in enumerate(obj)]
        return items if isinstance(obj, list) else {"tuple": items}
    expected = "a tensor, an array, a number, str, bool or None, or a dict, list or tuple of these"
    if hasattr(obj, "state_dict"):
        expected += "; here its state_dict()"
    raise ArgumentError(f"save: {name or 'obj'}", expected=expected, found=type(obj).__name__)


def _key(key: Any, name: str) -> Any:
    """Return the key of a dict as JSON. Raises ArgumentError for one that JSON does not have."""
    key = key.item() if is_scalar(key) else key
    if not isinstance(key, PLAIN):
        expected = "a str, a number, a bool or None"
        raise ArgumentError(f"save: a key of {name or 'obj'}", expected=expected, found=type(key).__name__)
    return key


def _built(found: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the object for its description `found`, as `_described` returns it, with its tensors from `tensors`.

    Raises ValueError, TypeError or LookupError for a value that is no such description.
    """
    if isinstance(found, PLAIN):
        return found
    if isinstance(found, list):
        return [_built(x, tensors) for x in found]
    ((kind, value),) = found.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "tuple":
        return tuple(_built(x, tensors) for x in value)
    if kind == "dict":
        return {key: _built(x, tensors) for key, x in value}
    raise ValueError(f"a value of the kind {kind!r}")


__all__ = ["load", "save"]
