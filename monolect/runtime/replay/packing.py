"""Share packed copies of constants between the captured steps of a process. A packed copy holds a constant in the order
in which kernels read it.

What it is for: steps that read one weight in one layout, such as a step captured for several batch sizes, bind the same
memory. A copy is freed with the last capture that binds it. All copies together take at most `PACK_LIMIT_MB`.
What it is not: it packs nothing. The prologue of each capture (the kernels that depend only on constants) fills the
copies that it binds.

Invariant: copies are shared only between users of the same source BUFFER and the same layout name. So each prologue
that fills a copy writes the same bytes.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from monolect.base.settings import settings
from monolect.ir.uop import UOp


class PackedCopy:
    """The memory of `n_bytes` bytes that holds a packed copy of a constant.
    It is freed with the last capture that holds it.
    """

    __slots__ = ("__weakref__", "memory", "n_bytes")

    def __init__(self, memory: Any, n_bytes: int):
        self.memory, self.n_bytes = memory, n_bytes


_copies: WeakValueDictionary[tuple[UOp, str, int], PackedCopy] = WeakValueDictionary()


def packed_copy(device: Any, source: UOp, layout: str, n_bytes: int) -> PackedCopy:
    """Return the packed copy, of `n_bytes` bytes, of the constant BUFFER `source` in the layout named `layout`.

    If there is none yet, the new copy has uninitialized memory of `device`.
    """
    key = source, layout, n_bytes
    copy = _copies.get(key)
    if copy is None:
        copy = _copies[key] = PackedCopy(device.alloc(n_bytes), n_bytes)
    return copy


def packed_bytes() -> int:
    """Return the total size in bytes of all packed copies in this process."""
    return sum(c.n_bytes for c in list(_copies.values()))


class Budget:
    """The bytes of the limit `PACK_LIMIT_MB` that are left for packed copies of one more capture.
    `grants` is called before a constant is packed.
    """

    def __init__(self) -> None:
        self.left_bytes = (settings.PACK_LIMIT_MB << 20) - packed_bytes()
        self.granted: set[tuple[Any, str, int]] = set()

    def grants(self, copies: set[tuple[Any, str, int]]) -> bool:
        """Return whether `copies`, a set of (source BUFFER, layout, bytes), fit into the bytes that are left.

        If so, the bytes of copies that do not exist yet are subtracted.
        """
        new = {c for c in copies if c not in self.granted and c not in _copies}
        n_bytes = sum(n for *_, n in new)
        if n_bytes > self.left_bytes:
            return False
        self.left_bytes -= n_bytes
        self.granted |= new
        return True


__all__ = ["Budget", "PackedCopy", "packed_bytes", "packed_copy"]
