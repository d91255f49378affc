"""Compute values on several devices: one batch of local values, whose results become the parts of one BUFFER.

The devices of the host's processor (`cpu`, `cpu:1`) are memory of one engine. Their local values are computed in one
batch of that engine: it reads the memory of all of them, and a copy between them is a result with memory of its own.

Invariant: a BUFFER on n devices has Shards as its storage; each part is a BUFFER on its device, of the shape
`ir.layout.part_shape`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from monolect.base.settings import settings
from monolect.ir.ops import BufferArg, LoadArg
from monolect.ir.placement import axis as axis_of
from monolect.ir.placement import device as device_of
from monolect.ir.placement import engine
from monolect.ir.rewrite.calls import is_body, is_opaque
from monolect.ir.uop import UOp, build, node, rebuild, toposort
from monolect.runtime import profile
from monolect.runtime.buffer import Shards, base_of, parts_of, with_storage
from monolect.schedule.callify import resolve_functions
from monolect.schedule.rewrites.shard import is_on_several, moves, shard


class Sharded(NamedTuple):
    """Computed values of a batch. `names`: for each BUFFER of an engine that the batch read or wrote for another device
    of it, the BUFFER of that device.
    """

    values: list[UOp]
    names: dict[UOp, UOp]


def realize_sharded(batch: Sequence[UOp], run: Callable[[list[UOp]], list[UOp]], default: str) -> Sharded:
    """Return the values of `batch` as BUFFERs with storage. `run`: computes values on engines as one batch.

    `default`: the device of values that have none. Each part of each result has memory of its own, also if an operand
    or another result has the same part: a BUFFER is in the storage of one BUFFER on several devices.
    """
    roots = resolve_functions([*batch])
    if "cmds" in settings.tracing:
        for move in moves(roots):
            profile.moved(*move)
    devices = [device_of(r) if is_on_several(r) else (device_of(r) or default,) for r in roots]
    flat = [name for names in devices for name in names]
    values, names = on_engines([v for local in _local_values(roots) for v in local])
    parts = []
    for name, b in zip(flat, run(separate(values, [*map(engine, flat)])), strict=True):
        memory = base_of(b)
        if b is not memory or memory.arg.device != name:
            names[memory] = with_storage(b.shape, b.dtype, name, memory.storage)
        parts.append(names.get(memory, memory))
    rest = iter(parts)
    return Sharded([_assembled(r, [next(rest) for _ in there]) for r, there in zip(roots, devices, strict=True)], names)


def wholes_of(parts: Sequence[UOp], buffers: Sequence[UOp]) -> tuple[UOp, ...]:
    """Return the BUFFERs that the BUFFERs `parts` of single devices are parts of, among `buffers`; a part of none, or
    that is itself among them, stays.
    """
    wholes: dict[UOp, list[UOp]] = {}
    for b in buffers:
        if b.storage is not None:
            for p in parts_of(b):
                wholes.setdefault(p, []).append(b)
    return tuple(dict.fromkeys(w for p in parts for w in wholes.get(p, (p,))))


def _local_values(roots: list[UOp]) -> list[list[UOp]]:
    """Return for each root its value on each of its devices, by the pass `shard`. If a setting traces passes, the
    pipeline runs the pass.
    """
    if settings.looking:
        from monolect import pipeline  # imported only to look at passes

        flat = iter(pipeline.run_pass(pipeline.GRAPH[0], node("TUPLE", tuple(roots)), pipeline.NO_TARGET).src)
    else:
        flat = iter(shard(roots))
    return [[next(flat) for _ in (device_of(r) if is_on_several(r) else (r,))] for r in roots]


def on_engines(values: Sequence[UOp]) -> tuple[list[UOp], dict[UOp, UOp]]:
    """Return `values` with the engine of each device as its device, and the BUFFER of each new BUFFER.

    A LOAD between devices of one engine is its source.
    """
    new: dict[UOp, UOp] = {}
    aliases: dict[UOp, UOp] = {}
    for u in toposort(*values, stop=is_body):
        if is_body(u):
            new[u] = u
        elif u.op == "BUFFER":
            new[u] = u if u.arg.device is None else _alias(u, engine(u.arg.device))
            if new[u] is not u:
                aliases[new[u]] = u
        elif u.op == "LOAD" and u.arg is not None and u.arg.device is not None:
            there, source = engine(u.arg.device), new[u.src[0]]
            is_there = len(u.src) == 1 and device_of(source) == there
            src = (source, *[new[s] for s in u.src[1:]])
            new[u] = source if is_there else build("LOAD", *src, arg=LoadArg(there, u.arg.addrspace))
        else:
            new[u] = rebuild(u, tuple([new[s] for s in u.src]))
    return [new[v] for v in values], aliases


def _alias(b: UOp, name: str) -> UOp:
    """Return a BUFFER on the device `name` with the memory of `b`; `b` itself if it is there."""
    if b.arg.device == name:
        return b
    new = node("BUFFER", b.src, BufferArg(b.arg.slot, b.dtype, name))
    new.storage = b.storage
    return new


def separate(values: Sequence[UOp], engines: Sequence[str]) -> list[UOp]:
    """Return nodes that compute each of `values` into memory of its own, on its engine.

    A value that is wanted twice is computed once and copied. A result of a CALL has memory of its own, also reshaped.
    """
    first: dict[UOp, UOp] = {}
    called: set[UOp] = set()
    out: list[UOp] = []
    for k, (v, name) in enumerate(zip(values, engines, strict=True)):
        if v in first:
            out.append(node("LOAD", (first[v],), LoadArg(name, "GLOBAL"), k))  # the tag keeps it distinct
            continue
        is_copy = device_of(v) is None or _is_in_memory(v)
        there = node("LOAD", (v,), LoadArg(name, "GLOBAL")) if is_copy else v
        result = _below_reshapes(v)
        is_own = v.op == "AFTER" or (is_opaque(result) and result not in called)
        called.add(result)
        first[v] = there if is_own else build("CONTIGUOUS", there)
        out.append(first[v])
    return out


def _is_in_memory(u: UOp) -> bool:
    """Whether `u` is a realized node whose memory holds its elements in row-major order."""
    u = _below_reshapes(u)
    return u.op == "BUFFER" and u.storage is not None


def _below_reshapes(u: UOp) -> UOp:
    while u.op == "RESHAPE":
        u = u.src[0]
    return u


def _assembled(u: UOp, parts: list[UOp]) -> UOp:
    """Return a realized node of the value `u`, from its part on each of its devices."""
    if not is_on_several(u):
        return parts[0]
    return with_storage(u.shape, u.dtype, device_of(u), Shards(tuple(parts), axis_of(u)))


__all__ = ["Sharded", "on_engines", "realize_sharded", "separate", "wholes_of"]
