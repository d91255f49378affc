"""Run a value whose program ran before: one key, one look-up, one native call.

What it is for: an operation of an eager program takes microseconds, and less than one of them is the kernel's. The key
of such a value (`callify.structure`) and the settings tell all that `execute.compute` finds out step by step: the
device, that nothing is to be stored besides, that no number becomes an input.
What it is not: another cache. The plans are those of `execute`, which makes them; whatever is unusual is left to it.

Invariant: the result, and what changes besides, are those of `execute.compute([u], also=[])`; where None is returned,
nothing has changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from monolect.base.settings import settings
from monolect.ir.uop import UOp, new_buffer_like
from monolect.runtime import profile
from monolect.runtime.realize.encode import One
from monolect.runtime.realize.execute import cached, inlined_structure, listening
from monolect.runtime.realize.held import mark
from monolect.schedule.callify import structure

MAX_HEIGHT = 100  # of a value; a larger one would often be walked here in vain, and takes longer to run


def run_known(u: UOp) -> UOp | None:
    """Compute `u`, which is not realized, if that is one call of a program that ran before, and return its BUFFER; None
    if it is not. The caller holds `running`.
    """
    if u.height > MAX_HEIGHT or is_observed():
        return None
    one, buffers, inspected = known_program(u)
    if one is None:
        return None
    for x in inspected:
        if x is not u and x.recomputed:
            return None  # `held.to_store` chooses what to store besides
    new = launched(one, buffers)
    if new is not None and len(inspected) > 1:
        mark(inspected, (u,), new.arg.device)
    return new


def is_observed() -> bool:
    """Return whether a capture, a check, a trace or a profile has to see each run."""
    return bool(listening.captures or listening.see or settings.VERIFY > 1 or settings.tracing or profile.recording)


def known_program(u: UOp) -> tuple[One | None, list[UOp], list[UOp]]:
    """Return what runs `u` if that is one call of a program that ran before, else None; and the BUFFERs that it reads
    and the inspected nodes of `callify.structure`.
    """
    key, buffers, inspected, has_functions = structure([u])
    if has_functions and key is not None:
        key, buffers = inlined_structure([u], key, buffers, may_inline=False)
    plan = cached((key, buffers[0].arg.device, settings.choices)) if buffers else None
    return None if plan is None else plan.one, buffers, inspected


def launched(one: One, buffers: list[UOp], order: Sequence[int] | None = None) -> UOp | None:
    """Run `one` on `buffers`, or on those of the numbers `order`, and return the new BUFFER; None, and nothing runs, if
    one of them has no memory yet.
    """
    try:
        if order is None:
            addresses = [b.storage.address for b in buffers]
        else:
            addresses = [buffers[i].storage.address for i in order]
    except AttributeError:  # a declared buffer
        return None
    new = new_buffer_like(one.template)
    new.storage = memory = one.alloc(one.n_bytes)
    if one.owned_bytes:
        owned = [one.alloc(n) for n in one.owned_bytes]
        one.run(*addresses, memory.address, *[m.address for m in owned])
    else:
        one.run(*addresses, memory.address)
    return new


__all__ = ["MAX_HEIGHT", "is_observed", "known_program", "launched", "run_known"]
