"""Arrays in a folder: inputs and expected results are made once and read by every library's process."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes  # noqa: F401 - its types are known to NumPy by name once it is imported
import numpy as np

ALIGNMENT_BYTES = 64


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that starts at a cache line, as every library's own memory does."""
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    room = np.empty(n_bytes + ALIGNMENT_BYTES, np.uint8)
    start = -room.ctypes.data % ALIGNMENT_BYTES
    return room[start : start + n_bytes].view(dtype).reshape(shape)


def save(folder: str, what: str, arrays: list[np.ndarray]) -> None:
    """Write `arrays` under the name `what`."""
    root = Path(folder)
    for i, a in enumerate(arrays):
        np.ascontiguousarray(a).tofile(root / f"{what}{i}")
    (root / f"{what}.json").write_text(json.dumps([[a.dtype.name, a.shape] for a in arrays]))


def load(folder: str, what: str) -> list[np.ndarray]:
    """What `save` wrote, in memory of the caller's own."""
    root, out = Path(folder), []
    for i, (dtype, shape) in enumerate(json.loads((root / f"{what}.json").read_text())):
        a = aligned(tuple(shape), np.dtype(dtype))
        a.reshape(-1).view(np.uint8)[:] = np.fromfile(root / f"{what}{i}", np.uint8)
        out.append(a)
    return out
