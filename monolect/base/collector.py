"""Python's cyclic garbage collector, paused where much is made and none of it is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY: Final = 10_000  # objects: to trace them takes a ms or more


@contextmanager
def collection_paused() -> Iterator[None]:
    """No cyclic garbage collection inside: importing and compiling make many objects and no cycles, and tracing them
    again and again costs as much as making them.

    Where many were made and are left, they are old at once: else the next collection would trace them all, as young.
    Nothing else makes objects old without tracing them. What the user froze stays frozen.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_count()[0] > MANY and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


__all__ = ["MANY", "collection_paused"]
