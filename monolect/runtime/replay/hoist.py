"""Find the packed blocks (rearranged copies of constants) that the optimizer's plan for a kernel uses, and cache the
result on disk.

The cache stores which blocks there are and their sizes, so that another process does not run the optimizer. No blocks
are reported under NOOPT, or for targets with workgroups, which pack blocks themselves. A BEAM search is not used here,
as it would time the packing too.
"""

from __future__ import annotations

import json

from monolect.base.disk.cache import DiskCache
from monolect.base.disk.version import compiler_version
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.command.forms import roles
from monolect.command.rewrites.pack_once import Packed
from monolect.ir.digest import digest
from monolect.ir.uop import UOp, node
from monolect.runtime.replay.packing import Budget

cache = DiskCache("hoist")
known: dict[str, tuple[Packed, ...]] = {}  # by key: blocks that this process found or read


def packed_blocks(kernel: UOp, target: Target) -> tuple[Packed, ...]:
    """Return a Packed (slot of the constant, bytes, layout) for each packed block of a constant that the optimized
    `kernel` would read on `target`.

    `kernel` names its constants in `KernelInfo.frozen`. The result is taken from the cache if known. It is () if
    kernels are not optimized or the target has workgroups.
    """
    if settings.NOOPT or settings.STOP_AFTER or target.workgroups:
        return ()
    key = f"{digest(kernel)}/{target.key}/{compiler_version()}{settings.switches}"
    if key not in known:
        found = read(cache.get(key)) if settings.COMPILE_CACHE else None
        if found is None:
            # imported only on a miss: they import the whole compiler
            from monolect.optimize.apply import kept_blocks, planned
            from monolect.pipeline import lower_kernel
            from monolect.runtime.realize.lowering import READY

            blocks = kept_blocks(planned(lower_kernel(kernel, target, last=READY), target))
            found = tuple(
                Packed(b.source_slot, b.kept_bytes, digest(node("SINK", tuple(b.fill(0))))) for b in blocks.values()
            )
            if settings.COMPILE_CACHE:
                cache.put(key, json.dumps(found).encode())
        known[key] = found
    return known[key]


def read(entry: bytes | None) -> tuple[Packed, ...] | None:
    """Return the packed blocks that `entry`, the bytes of a cache entry, describes; None for a missing or corrupt
    entry.
    For None the caller finds the blocks again.
    """
    try:
        return None if entry is None else tuple(Packed(int(k), int(n), str(name)) for k, n, name in json.loads(entry))
    except (ValueError, TypeError):
        return None


class StepBudget:
    """The limit on the memory of packed copies for one step.

    `step`: a FUNCTION, either applied to an argument for each PARAM (its BUFFER if it is a constant), or to no
    arguments. The pass `pack_once` calls `grants` before it packs a constant.
    """

    def __init__(self, step: UOp) -> None:
        self.budget = Budget()
        args = step.src[1:]
        n = len(roles(step))
        self.bound = dict(enumerate(args)) if len(args) == n else {}

    def grants(self, copies: set[tuple[UOp, str, int]]) -> bool:
        """Return whether `copies`, a set of (source, layout, bytes), fit into the limit. The source is a PARAM of the
        step or a BUFFER.
        """
        mine = {(self.bound.get(u.arg.slot, u) if u.op == "PARAM" else u, name, n) for u, name, n in copies}
        return self.budget.grants(mine)


__all__ = ["Packed", "StepBudget", "packed_blocks", "read"]
