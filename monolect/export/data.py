"""Encode the initial bytes of an exported program: weights and states, as a file or as a C array.

The file is a header of eight 64-bit words (magic number, identity, bytes of each segment, zeros), then the segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from monolect.base.disk.hashing import blake2b
from monolect.base.numpy import np
from monolect.export.layout import STORED, Model, Value

MAGIC = int.from_bytes(b"monolect", "little")  # first word of a weights file


def segment_data(model: Model) -> list[Any]:
    """Return the bytes of weights and states, in parts, with zeros between the values."""
    return [part for s in STORED for part in _data(model.values[s], model.n_bytes[s])]


def _data(values: Iterable[Value], n_bytes: int) -> list[Any]:
    out: list[Any] = []
    at = 0
    for v in values:
        out += [bytes(v.at - at), np.asarray(v.buffer.storage.view(np.uint8)[: v.n_bytes]).data]
        at = v.at + v.n_bytes
    return [*out, bytes(n_bytes - at)]


def identity(model: Model, data: Sequence[Any]) -> int:
    """Return a hash of the stored values and their offsets. The program and its weights file both contain the hash, so
    that the program refuses the file of another model.
    """
    state = blake2b(digest_size=8)
    state.update(repr([(v.name, v.at, v.n_bytes) for s in STORED for v in model.values[s]]).encode())
    for part in data:
        state.update(part)
    return int.from_bytes(state.digest(), "little")


def head_of(model: Model, number: int) -> bytes:
    """Return the 64-byte header of the weights file; `number` is the result of `identity`."""
    words = [MAGIC, number, *(model.n_bytes[s] for s in STORED), 0, 0, 0]
    return np.array(words, np.uint64).tobytes()


def array_text(name: str, data: Sequence[Any]) -> str:
    """Return a C source with the weights, then the states, as an array of 32-bit words."""
    words = np.frombuffer(b"".join(bytes(part) for part in data), np.uint32)
    rows = [",".join(f"0x{w:x}" for w in row.tolist()) for row in np.split(words, range(12, len(words), 12))]
    head = f"#include <stdint.h>\nextern const uint32_t {name}_weights[];\n"
    return head + f"_Alignas(64) const uint32_t {name}_weights[{len(words)}] = {{\n" + ",\n".join(rows) + "};\n"


__all__ = ["MAGIC", "array_text", "head_of", "identity", "segment_data"]
