"""Read small real data sets that are on the machine: scikit-learn's digits and folders of MNIST files.

What it is for: examples and tests that learn from real data without a download.
What it is not: it has no loaders and no augmentation.
Invariant: images are float32 in [0, 1], (N, 1, height, width), labels int64; an incomplete file is an error.
Source: scikit-learn's `load_digits`; the idx format of http://yann.lecun.com/exdb/mnist/.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import struct
import zlib

import numpy as np

from monolect.base.errors import ArgumentError, FileFormatError, MissingExtraError
from monolect.tensor.guard import guarded

Arrays = tuple[np.ndarray, np.ndarray]
_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MNIST = {"train": "train", "test": "t10k"}


def load_digits() -> Arrays:
    """Return scikit-learn's bundled handwritten digits: float32 images (1797, 1, 8, 8) in [0, 1], int64 labels (1797,).

    The file is read from the installed package; scikit-learn itself is not imported, since that takes a second. Raises
    MissingExtraError without scikit-learn, FileFormatError for a damaged file.

    >>> images, labels = load_digits()
    >>> images.shape, int(labels[0])
    ((1797, 1, 8, 8), 0)
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise MissingExtraError("scikit-learn", "demo")
    path = os.path.join(os.path.dirname(spec.origin), "datasets", "data", "digits.csv.gz")
    try:
        table = np.loadtxt(_bytes(path).decode("ascii").splitlines(), delimiter=",", dtype=np.float32)
    except ValueError as e:
        raise FileFormatError(f"{path} is not the table of digits", expected="numbers", found=str(e)) from None
    if table.ndim != 2 or table.shape[1] != 65:
        raise FileFormatError(f"{path} is not the table of digits", expected="65 columns", found=table.shape)
    return (table[:, :64] / 16.0).reshape(-1, 1, 8, 8), table[:, 64].astype(np.int64)


@guarded
def mnist_from_folder(path: str | os.PathLike[str], part: str = "train") -> Arrays:
    """Return the MNIST images (N, 1, 28, 28), float32 in [0, 1], and int64 labels (N,) of a folder of idx files, gzip
    or not.

    `part` is "train" or "test". Files have MNIST's own names: `train-images-idx3-ubyte`, `t10k-labels-idx1-ubyte.gz`
    and so on, also with a dot before `idx`. Raises FileNotFoundError for a missing file, FileFormatError for a damaged
    one.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with open(os.path.join(folder, "train-images-idx3-ubyte"), "wb") as f:
    ...     _ = f.write(struct.pack(">BBBB3I", 0, 0, 8, 3, 2, 28, 28) + bytes(2 * 28 * 28))
    >>> with open(os.path.join(folder, "train-labels-idx1-ubyte"), "wb") as f:
    ...     _ = f.write(struct.pack(">BBBBI", 0, 0, 8, 1, 2) + bytes([7, 3]))
    >>> images, labels = mnist_from_folder(folder)
    >>> images.shape, labels.tolist()
    ((2, 1, 28, 28), [7, 3])
    """
    if part not in _MNIST:
        raise ArgumentError("mnist_from_folder: part", expected="'train' or 'test'", found=repr(part))
    images = read_idx(_find(path, f"{_MNIST[part]}-images", "idx3-ubyte"))
    labels = read_idx(_find(path, f"{_MNIST[part]}-labels", "idx1-ubyte"))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        found = f"images {images.shape}, labels {labels.shape}"
        raise FileFormatError(f"MNIST in {os.fspath(path)}", expected="images (N, H, W), labels (N,)", found=found)
    return (images.astype(np.float32) / 255.0)[:, None], labels.astype(np.int64)


@guarded
def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Return the array in an idx file, gzip or not. Raises FileFormatError where the file is incomplete or of another
    format.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(delete=False) as f:
    ...     _ = f.write(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 6, 7]))  # uint8, one axis of 3
    >>> read_idx(f.name).tolist()
    [5, 6, 7]
    >>> os.unlink(f.name)
    """
    name, data = os.fspath(path), _bytes(path)
    if len(data) < 4 or data[0] != 0 or data[1] != 0 or data[2] not in _IDX_TYPES:
        raise FileFormatError(f"{name} is not an idx file", expected="00 00, a type, a rank", found=data[:4].hex(" "))
    dtype, rank = np.dtype(_IDX_TYPES[data[2]]), data[3]
    start = 4 + 4 * rank
    if len(data) < start:
        raise FileFormatError(f"{name} is truncated", expected=f"{start} bytes of header", found=f"{len(data)} bytes")
    shape = struct.unpack(f">{rank}I", data[4:start])
    size = start + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if len(data) != size:
        raise FileFormatError(f"{name} is not whole", expected=f"{size} bytes for {shape}", found=f"{len(data)} bytes")
    return np.frombuffer(data, dtype, offset=start).reshape(shape)


def _bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file, decompressed if it is gzip. Raises FileFormatError for damaged gzip data."""
    with open(path, "rb") as f:
        data = f.read()
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as e:
        raise FileFormatError(f"{os.fspath(path)}: damaged gzip", expected="a whole gzip file", found=str(e)) from None


def _find(folder: str | os.PathLike[str], stem: str, kind: str) -> str:
    names = [f"{stem}{dot}{kind}{end}" for dot in "-." for end in ("", ".gz")]
    for name in names:
        full = os.path.join(folder, name)
        if os.path.isfile(full):
            return full
    raise FileNotFoundError(f"no {names[0]} (nor {', '.join(names[1:])}) in {os.fspath(folder)}")


__all__ = ["load_digits", "mnist_from_folder", "read_idx"]


def __dir__() -> list[str]:
    return __all__
