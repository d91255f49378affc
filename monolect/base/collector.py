"""Pause Python's cyclic garbage collector while many objects are made that are not garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY: Final = 2_000  # new objects; to trace more takes over 0.2 ms, so they are moved to the oldest generation
_has_frozen = False  # True once the user's frozen objects were seen: Python counts them one by one, 0.1 us each


@contextmanager
def collection_paused() -> Iterator[None]:
    """Disable the cyclic garbage collector in the `with` block, and enable it again if it was enabled.

    Importing and compiling make many objects and no cycles, and tracing them repeatedly costs as much as making them.
    If more than MANY objects are left, `gc.freeze` and `gc.unfreeze` move them to the oldest generation without
    tracing. This is left out once the user has frozen objects, which must stay frozen.
    """
    global _has_frozen
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not _has_frozen and gc.get_count()[0] > MANY:
                _has_frozen = gc.get_freeze_count() > 0
                if not _has_frozen:
                    gc.freeze()
                    gc.unfreeze()
            gc.enable()


__all__ = ["MANY", "collection_paused"]
