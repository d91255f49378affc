"""Packed copies of constants, shared by the captured steps of a process.

What it is for: steps that read one weight in one layout, such as a step captured for several batch sizes, bind the same
memory. A copy is freed with the last capture that binds it. All copies together take at most `PACK_LIMIT_MB`.
What it is not: it packs nothing. The prologue of each capture fills the copies that it binds.

Invariant: copies are shared only where the source is the same BUFFER and the layout has the same name, so whoever fills
one writes the bytes that all its users expect.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from monolect.base.settings import settings
from monolect.ir.uop import UOp


class PackedCopy:
    """Memory that holds one packed constant."""

    __slots__ = ("__weakref__", "memory", "n_bytes")

    def __init__(self, memory: Any, n_bytes: int):
        self.memory, self.n_bytes = memory, n_bytes


_copies: WeakValueDictionary[tuple[UOp, str, int], PackedCopy] = WeakValueDictionary()


def packed_copy(device: Any, source: UOp, layout: str, n_bytes: int) -> PackedCopy:
    """The copy of the BUFFER `source` in that layout; one whose memory nobody filled yet where there is none."""
    key = source, layout, n_bytes
    copy = _copies.get(key)
    if copy is None:
        copy = _copies[key] = PackedCopy(device.alloc(n_bytes), n_bytes)
    return copy


def packed_bytes() -> int:
    """The bytes of all packed copies that captures of this process share."""
    return sum(c.n_bytes for c in list(_copies.values()))


class Budget:
    """What `PACK_LIMIT_MB` leaves for the copies of one more capture."""

    def __init__(self) -> None:
        self.left_bytes = (settings.PACK_LIMIT_MB << 20) - packed_bytes()
        self.granted: set[tuple[Any, str, int]] = set()

    def grants(self, copies: set[tuple[Any, str, int]]) -> bool:
        """Whether there is room for (source, layout, bytes) that are not there yet. Then they count from now on."""
        new = {c for c in copies if c not in self.granted and c not in _copies}
        n_bytes = sum(n for *_, n in new)
        if n_bytes > self.left_bytes:
            return False
        self.left_bytes -= n_bytes
        self.granted |= new
        return True


__all__ = ["Budget", "PackedCopy", "packed_bytes", "packed_copy"]
