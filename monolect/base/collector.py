"""Python's cyclic garbage collector, paused where much is made and none of it is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """No cyclic garbage collection inside: importing and compiling make many objects and no cycles, and tracing them
    again and again costs as much as making them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def made_to_stay() -> Iterator[None]:
    """The same for what lives as long as the process, as modules do: it is old at once, never traced as what is young.

    Nothing else makes objects old without tracing them. What the user froze before stays frozen.
    """
    with collection_paused():
        yield
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()


__all__ = ["collection_paused", "made_to_stay"]
