"""Compute values on several devices: one batch of local values, whose results become the parts of one BUFFER.

Invariant: a BUFFER on n devices has Shards as its storage; each part is a BUFFER on its device, of the shape
`schedule.rewrites.shard.part_shape`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monolect.base.settings import settings
from monolect.ir.ops import LoadArg
from monolect.ir.placement import axis as axis_of
from monolect.ir.placement import device as device_of
from monolect.ir.uop import UOp, build, node
from monolect.runtime.buffer import Shards, base_of, parts_of, with_storage
from monolect.schedule.callify import resolve_functions
from monolect.schedule.rewrites.shard import is_on_several, shard


def realize_sharded(batch: Sequence[UOp], run: Callable[[list[UOp], str], list[UOp]], is_captured: bool) -> list[UOp]:
    """Return the values of `batch` as BUFFERs with storage. `run`: computes values on single devices as one batch,
    given the device of those that have none. If `is_captured`, results share no memory with operands.
    """
    roots = resolve_functions([*batch])
    local = _local_values(roots)
    todo: dict[UOp, UOp] = {}  # local value -> the value that is computed: on its device, if it has none
    for r, values in zip(roots, local, strict=True):
        names = device_of(r) if is_on_several(r) else (device_of(r),)
        for v, name in zip(values, names, strict=True):
            if is_captured or not _is_in_memory(v):
                has_home = device_of(v) is not None or name is None
                there = v if has_home else build("LOAD", v, arg=LoadArg(name, "GLOBAL"))
                todo.setdefault(v, there if v.op == "AFTER" else build("CONTIGUOUS", there))
    done: dict[UOp, UOp] = {}
    if todo:
        computed = run([*todo.values()], str(device_of(next(iter(todo.values())))))
        done = dict(zip(todo, computed, strict=True))

    def result(r: UOp, values: list[UOp]) -> UOp:
        parts = [_buffer(done.get(v, v)) for v in values]
        return _assembled(r, parts) if is_on_several(r) else parts[0]

    return [result(r, values) for r, values in zip(roots, local, strict=True)]


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


def _is_in_memory(u: UOp) -> bool:
    """Whether `u` is a realized node whose memory holds its elements in row-major order, so that it can be a part."""
    while u.op == "RESHAPE":
        u = u.src[0]
    return u.op == "BUFFER" and u.storage is not None


def _buffer(u: UOp) -> UOp:
    """Return the BUFFER of a realized node whose memory holds its elements in row-major order."""
    return u if u.op == "BUFFER" else with_storage(u.shape, u.dtype, device_of(u), base_of(u).storage)


def _assembled(u: UOp, parts: list[UOp]) -> UOp:
    """Return a realized node of the value `u` on several devices, from its parts."""
    return with_storage(u.shape, u.dtype, device_of(u), Shards(tuple(parts), axis_of(u)))


__all__ = ["realize_sharded", "wholes_of"]
