"""Packed once: a kernel that packs what it reads of a constant gets the blocks from a kernel of the prologue.

The kernel and its filling kernel are the same node but for two words of its info (`KernelInfo.frozen`, `fills`); the
optimizer makes one plan for both, so they agree on the layout. Which blocks there are, and how large, is kept on disk
beside the programs, so that another process asks the optimizer nothing.

Where it does not pay, the plan packs nothing: products that read a weight once a call stream it as it lies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from monolect.backend.base import Launch, Program
from monolect.backend.registry import Device
from monolect.base.cache import DiskCache
from monolect.base.settings import settings
from monolect.base.version import compiler_version
from monolect.ir.digest import digest
from monolect.ir.ops import KernelInfo
from monolect.ir.uop import UOp, node, toposort
from monolect.runtime.packing import Budget
from monolect.runtime.prologue import Step

cache = DiskCache("hoist")
known: dict[str, tuple[Kept, ...]] = {}  # what this process found or read


class Kept(NamedTuple):
    """One block that is packed once: the slot of its source, its bytes, and a name of its layout. Copies of one source
    in layouts of one name hold the same bytes.
    """

    slot: int
    n_bytes: int
    layout: str


def hoist(
    steps: Sequence[Step], frozen: set[int], dev: str, new: Callable[[], int], constants: Mapping[int, UOp]
) -> tuple[list[Step], list[Step]]:
    """(the steps that fill blocks, `steps` reading them). `frozen`: numbers of buffers that hold the same at every run;
    `constants`: those of them that are BUFFERs from outside, whose copies other captures share.

    `new` gives the number of one more buffer. Steps with the same kernel and constants share their blocks. A step whose
    blocks exceed what `PACK_LIMIT_MB` leaves packs at every run.
    """
    todo = [(s, frozen_kernel(s, frozen)) for s in steps]
    kept = {k: kept_blocks(k, dev) for _, k in todo if k is not None}
    budget = Budget()
    uses: list[tuple[Step, UOp | None, tuple[int, ...]]] = []
    for s, kernel in todo:
        blocks = kept.get(kernel, ()) if kernel is not None else ()
        sources = tuple(s.launch.args[b.slot] for b in blocks)
        copies = {(constants.get(n, n), b.layout, b.n_bytes) for n, b in zip(sources, blocks, strict=True)}
        is_kept = bool(blocks) and budget.grants(copies)
        uses.append((s, kernel if is_kept else None, sources))
    wanted = list(dict.fromkeys(k for _, k, _ in uses if k is not None))
    if not wanted:
        return [], list(steps)
    compile_kernels = import_module("monolect.runtime.plan").compile_kernels
    programs: dict[UOp, Program] = compile_kernels([x for k in wanted for x in (k, filling(k))], dev)
    filled: dict[tuple, tuple[int, ...]] = {}
    fills, late = [], []
    for s, kernel, sources in uses:
        if kernel is None:
            late.append(s)
            continue
        if (kernel, sources) not in filled:
            filled[kernel, sources] = tuple(new() for _ in sources)
            fills.append(_fill(s, kernel, kept[kernel], filled[kernel, sources], programs[filling(kernel)]))
        args = (*s.launch.args, *filled[kernel, sources])
        late.append(Step(Launch(programs[kernel], args), s.call, s.written, kernel))
    return fills, late


def _fill(s: Step, kernel: UOp, kept: tuple[Kept, ...], blocks: tuple[int, ...], program: Program) -> Step:
    """The step that fills the buffers `blocks` with what `kernel`, in place of that of `s`, reads packed."""
    sources = [s.launch.args[b.slot] for b in kept]
    pairs = tuple(n for pair in zip(blocks, sources, strict=True) for n in pair)
    call = node("CALL", (node("SINK", (), KernelInfo("pack")), *(s.call.src[1 + b.slot] for b in kept)))
    written = {n: b.n_bytes for n, b in zip(blocks, kept, strict=True)}
    packed = tuple((n, source, b.layout) for n, source, b in zip(blocks, sources, kept, strict=True))
    return Step(Launch(program, pairs), call, written, filling(kernel), packed)


def frozen_kernel(step: Step, frozen: set[int]) -> UOp | None:
    """The kernel of a step with its constants named, None when it sums nothing over them."""
    sink = step.call.src[0]
    slots = tuple(k for k, n in enumerate(step.launch.args) if n in frozen)
    if not slots or not slots_in_sums(sink).intersection(slots):
        return None
    return node("SINK", sink.src, (sink.arg or KernelInfo())._replace(frozen=slots))


@lru_cache(maxsize=4096)
def slots_in_sums(sink: UOp) -> frozenset[int]:
    """The PARAMs that a kernel reads inside of reductions."""
    sums = [u for u in toposort(sink) if u.op == "REDUCE" and len(u.src) > 1]
    loads = {u for u in toposort(*sums) if u.op == "LOAD"} if sums else set()
    return frozenset(p.arg.slot for u in loads for p in toposort(u.src[0]) if p.op == "PARAM")


def filling(kernel: UOp) -> UOp:
    """The kernel that fills the blocks of `kernel`."""
    return node("SINK", kernel.src, kernel.arg._replace(fills=True))


def kept_blocks(kernel: UOp, dev: str) -> tuple[Kept, ...]:
    """The blocks of constants that the heuristic's plan packs, which a search leaves alone (it would time the packing,
    too); none under NOOPT, and none where workgroups pack for themselves.
    """
    target = Device[dev].target
    if settings.NOOPT or settings.STOP_AFTER or target.workgroups:
        return ()
    key = f"{digest(kernel)}/{target.key}/{compiler_version()}"
    if key not in known:
        found = read(cache.get(key)) if settings.COMPILE_CACHE else None
        if found is None:
            lowering = import_module("monolect.runtime.lowering")
            ready = lowering.lower_kernel(kernel, target, last=lowering.READY)
            apply = import_module("monolect.optimize.apply")
            blocks = apply.kept_blocks(apply.planned(ready, target))
            found = tuple(
                Kept(b.source_slot, b.kept_bytes, digest(node("SINK", tuple(b.fill(0))))) for b in blocks.values()
            )
            if settings.COMPILE_CACHE:
                cache.put(key, json.dumps(found).encode())
        known[key] = found
    return known[key]


def read(entry: bytes | None) -> tuple[Kept, ...] | None:
    """The blocks of a cache entry; None when it holds none."""
    try:
        return None if entry is None else tuple(Kept(int(k), int(n), str(name)) for k, n, name in json.loads(entry))
    except (ValueError, TypeError):
        return None


__all__ = ["Kept", "frozen_kernel", "hoist", "kept_blocks"]
