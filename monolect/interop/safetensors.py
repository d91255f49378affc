"""Write and read safetensors files of named tensors.

What it is for: `safe_save(state, path)` and `safe_load(path)`, through the `safetensors` library.
What it is not: it has no sharded checkpoints; loading copies the file's bytes into memory.
Invariant: a save that fails leaves the old file unchanged; an incomplete file is an error and gives no tensors.
Source: https://github.com/huggingface/safetensors (the library owns the format).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from monolect.base.disk.files import write_whole
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import ArgumentError, DTypeError, FileFormatError, MissingExtraError
from monolect.base.numpy import is_array, np
from monolect.ir.uop import UOp
from monolect.runtime.buffer import from_bytes
from monolect.tensor.base import as_device
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

# Maps the format's names of element types to dtypes.
_NAMES: dict[str, DType] = {
    "BOOL": dtypes.bool, "U8": dtypes.uint8, "I8": dtypes.int8, "U16": dtypes.uint16, "I16": dtypes.int16,
    "U32": dtypes.uint32, "I32": dtypes.int32, "U64": dtypes.uint64, "I64": dtypes.int64, "F16": dtypes.float16,
    "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64, "F8_E4M3": dtypes.fp8e4m3,
    "F8_E5M2": dtypes.fp8e5m2, "F8_E4M3FNUZ": dtypes.float8_e4m3fnuz, "F8_E5M2FNUZ": dtypes.float8_e5m2fnuz,
    "F8_E8M0": dtypes.float8_e8m0fnu,
}  # fmt: skip


def _library() -> Any:
    try:
        import safetensors
    except ImportError:
        raise MissingExtraError("safetensors", "safetensors") from None
    return safetensors


@guarded
def safe_save(tensors: Mapping[str, Any], path: str | os.PathLike[str], metadata: dict[str, str] | None = None) -> None:
    """Write named tensors or NumPy arrays to the file `path`; lazy tensors are computed first, in one batch.

    The data go to a temporary file that then replaces `path`, so a failure leaves the old file. Raises ArgumentError
    for a value that is neither and for the name `__metadata__`, DTypeError for a dtype that the format lacks,
    MissingExtraError without the library.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> safe_save({"w": Tensor([1.0, 2.0])}, path)
    >>> safe_load(path)["w"].tolist()
    [1.0, 2.0]
    """
    write_whole(path, [encoded(tensors, metadata)])


def encoded(tensors: Mapping[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    """Return the contents of a safetensors file of named tensors or NumPy arrays. Raises as `safe_save`.

    >>> len(encoded({"w": Tensor([1.0, 2.0])})) > 8
    True
    """
    library = _library()
    arrays = {name: _array(name, value) for name, value in _realized(tensors).items()}
    try:
        data: bytes = import_module("safetensors.numpy").save(arrays, metadata)
    except (library.SafetensorError, KeyError) as e:
        found = sorted({str(a.dtype) for a in arrays.values()})
        expected = ", ".join(d.name for d in _NAMES.values())
        raise DTypeError("safe_save: a dtype that the format lacks", expected=expected, found=found) from e
    return data


def _realized(tensors: Mapping[str, Any]) -> dict[str, Any]:
    lazy = [t for t in tensors.values() if isinstance(t, Tensor)]
    if lazy:
        lazy[0].realize(*lazy[1:])
    return dict(tensors)


def _array(name: str, value: Any) -> np.ndarray:
    if not isinstance(value, Tensor) and not is_array(value):
        raise ArgumentError(f"safe_save: {name}", expected="a Tensor or a NumPy array", found=type(value).__name__)
    if name == "__metadata__":
        raise ArgumentError("safe_save: names", expected="another name than that of the metadata", found=name)
    if isinstance(value, Tensor) and value.dtype not in _NAMES.values():
        raise DTypeError(f"safe_save: {name}", expected=", ".join(_NAMES), found=value.dtype.name)
    a = value.numpy() if isinstance(value, Tensor) else value
    return np.ascontiguousarray(a).reshape(a.shape)  # ascontiguousarray gives scalars an axis


@guarded
def safe_load(path: str | os.PathLike[str], device: Any = None) -> dict[str, Tensor]:
    """Return the tensors of the file `path` by name, on `device`.

    Raises FileFormatError for a file that is truncated, corrupt or of another format, FileNotFoundError for a missing
    one, DTypeError for an element type that monolect lacks, and MissingExtraError without the library.

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> safe_save({"w": Tensor([1.0, 2.0]), "n": Tensor(3)}, path)
    >>> {name: t.tolist() for name, t in sorted(safe_load(path).items())}
    {'n': 3, 'w': [1.0, 2.0]}
    """
    library = _library()
    with open(path, "rb") as f:
        return _tensors(library, f.read(), os.fspath(path), as_device(device))


def decoded(data: bytes, name: object, device: Any = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return (tensors by name, metadata) of the contents of a safetensors file, whose `name` is for messages.

    Raises as `safe_load`.

    >>> tensors, metadata = decoded(encoded({"w": Tensor([1.0, 2.0])}, {"by": "monolect"}), "a file")
    >>> tensors["w"].tolist(), metadata
    ([1.0, 2.0], {'by': 'monolect'})
    """
    tensors = _tensors(_library(), data, name, as_device(device))
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return tensors, dict(header.get("__metadata__") or {})


def _tensors(library: Any, data: bytes, name: object, device: Any) -> dict[str, Tensor]:
    """Return the tensors of the contents `data` of a file. Raises FileFormatError, DTypeError."""
    try:
        entries = library.deserialize(data)
    except library.SafetensorError as e:
        raise FileFormatError(
            f"{name} is not a whole safetensors file", expected=_expected_size(data), found=f"{e}"
        ) from None
    return {key: Tensor._wrap(_decoded(key, info, device)) for key, info in entries}


def _expected_size(data: bytes) -> str:
    """Return for an error message what a valid file would have here: a header length, a whole header, or tensors that
    fill the rest of `data`.
    """
    if len(data) < 8:
        return "a header of 8 bytes or more"
    header = int.from_bytes(data[:8], "little")
    if header > len(data) - 8:
        return f"a header of {header} bytes in a file of {len(data)} bytes"
    return f"tensors that fill the {len(data) - 8 - header} bytes after the header"


def _decoded(name: str, info: Mapping[str, Any], device: str) -> UOp:
    dtype = _NAMES.get(info["dtype"])
    if dtype is None:
        raise DTypeError(f"safe_load: {name}", expected=", ".join(_NAMES), found=info["dtype"])
    return from_bytes(bytes(info["data"]), tuple(info["shape"]), dtype, device)


__all__ = ["decoded", "encoded", "safe_load", "safe_save"]
