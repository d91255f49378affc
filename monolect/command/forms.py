"""Define the grammar of the COMMAND stage, and functions that build and read the parts of a step.

    step    := FUNCTION(TUPLE(out...))                   arg StepInfo: the role of each PARAM
    out     := view | AFTER(view, program)               a result, or the new value of a state
    program := LINEAR([LINEAR(item..., "once")], item...)
    item    := CALL(PROGRAM | SINK, operand...) | STORE(view, LOAD(view, (device, space))) | GROUP(item...)
             | BARRIER(item) | RANGE(bound) item... END(item, RANGE) | IF(scalar) item... ENDIF(IF)
    operand := view | AFTER(view, item...) | scalar      scalar: a size, a RANGE, or index arithmetic of them
    view    := [BITCAST] [SHRINK] [RESHAPE] of PARAM | BUFFER

Memory that a caller binds is a PARAM; memory that the step owns is a BUFFER. Items start in order; outside of a GROUP
each ends before the next one starts. Members of a GROUP may run at the same time, unless one is AFTER another. AFTER
alone defines the order; GROUP and BARRIER say how one device exploits it. The LINEAR "once" runs again only when a
constant was rebound or may have been written to.

Views have a normal form, so equal views are equal nodes.
Invariant: no pass identifies an item by its node, since a step may launch one program on the same memory twice. From
the pass `dependencies` on such items differ by the items that they are AFTER.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from monolect.base.dtype import DType, dtypes
from monolect.ir.bounds import min_max, size_max
from monolect.ir.collective import exchange_of, is_of_a_process
from monolect.ir.ops import BufferArg, KernelInfo, ProgramInfo, StepInfo
from monolect.ir.placement import engine
from monolect.ir.rewrite.calls import stored_slots
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, node, nodes_of, shape_source

ONCE = "once"  # arg of the LINEAR with the items that run once
FILES = "disk:"  # prefix of the name of a device that is a file
ARENA = -1  # slot of the BUFFER that all intermediates of a device share
SHARED_ARENA = -2  # the same for intermediates that sums over processes read and write


class Operand(NamedTuple):
    """An operand of an item, taken apart: a view of memory or a scalar, and the items that it is AFTER.

    `base`: the PARAM or BUFFER, or the scalar itself. `offset`: where the view starts in `base`, in bytes. `after`:
    earlier items that must end before the operand is used.
    """

    base: UOp
    offset: Any = 0  # bytes; index arithmetic if it depends on a loop
    after: tuple[UOp, ...] = ()


def buffer_bytes(b: UOp) -> int:
    """Return the size in bytes of `b`, a PARAM or BUFFER or a view of one, at least 1; at the largest values of
    symbolic sizes.
    """
    return max(1, size_max(count(b.shape)) * b.dtype.itemsize)


def is_scalar(u: UOp) -> bool:
    """Return whether the operand `u` is a number (a size, a RANGE, or index arithmetic of these) rather than memory."""
    return not u.shape and u.dtype is dtypes.index


def is_size(u: UOp) -> bool:
    """Return whether `u` is the PARAM of a Variable, a size that each call supplies."""
    return u.op == "PARAM" and u.arg.name is not None


# ---- views -----------------------------------------------------------------------------------------------------------
def view(base: UOp, offset: int, n_elements: int, dtype: DType) -> UOp:
    """Return the view of memory `base`, in normal form, that has `n_elements` of dtype `dtype` and starts at byte
    `offset`.
    `offset` and the size of the view are multiples of the element size of `base`.
    """
    unit = base.dtype.itemsize
    n = n_elements * dtype.itemsize // unit
    u = base
    if offset or n != count(base.shape):
        u = node("SHRINK", (_flat(u), shape_source((offset // unit,)), shape_source((n,))))
    return u if dtype is base.dtype else node("BITCAST", (u,), dtype)


def _flat(u: UOp) -> UOp:
    """Return the memory `u` reshaped to one axis."""
    return u if len(u.shape) == 1 else node("RESHAPE", (u, shape_source((count(u.shape),))))


def read_operand(u: UOp) -> Operand:
    """Return the Operand of `u`, an operand of an item: its memory or scalar, its byte offset, and the items that it is
    AFTER.
    """
    after: tuple[UOp, ...] = ()
    offset: Any = 0
    while u.op not in ("PARAM", "BUFFER"):
        if u.op == "AFTER":
            after += u.src[1:]
        elif u.op == "SHRINK":
            offset = offset + u.src[1].sizes[0] * u.dtype.itemsize
        elif u.op not in ("BITCAST", "RESHAPE"):
            return Operand(u, 0, after)  # a scalar
        u = u.src[0]
    return Operand(u, offset, after)


def base_of(u: UOp) -> UOp:
    """Return the PARAM or BUFFER that the operand `u` is a view of; a scalar operand is returned without its AFTER."""
    return u if u.op == "PARAM" or u.op == "BUFFER" else read_operand(u).base


def extent(u: UOp) -> tuple[int, int]:
    """Return (first byte, end byte) of the operand `u` in its memory, over all offsets that it can have. The end byte
    is the first one behind the view.
    """
    while u.op == "AFTER":
        u = u.src[0]
    start = read_operand(u).offset
    low, high = (start, start) if start.__class__ is int else map(int, min_max(start))
    return low, high + buffer_bytes(u)


# ---- programs --------------------------------------------------------------------------------------------------------
def kernel_of(call: UOp) -> UOp:
    """Return the kernel that `call`, a CALL, runs: a SINK or LINEAR, or a CUSTOMFUNCTION, which is native code of the
    user.
    """
    program = call.src[0]
    return program.src[0] if program.op == "PROGRAM" else program


@lru_cache(maxsize=4096)
def accesses(kernel: UOp) -> tuple[str, ...]:
    """Return how `kernel` accesses each of its PARAMs, indexed by slot: "read", "write", "update" (both), or "" for a
    size.
    A slot without a PARAM counts as "read".
    """
    written = stored_slots(kernel)
    order = nodes_of(kernel)
    read: set[int] = set()
    slots: dict[int, bool] = {}
    for u in order:
        if u.op == "PARAM":
            slots[u.arg.slot] = u.arg.name is None
        elif u.op in ("LOAD", "ATOMICADD", "TMACOPY", "CUSTOM", "CALL"):
            read.update(_slots_below(u.src[1 if u.op == "TMACOPY" else 0]))
    out = ["read"] * (1 + max(slots, default=-1))
    for k, is_memory in slots.items():
        stored = "update" if k in read else "write"
        out[k] = "" if not is_memory else stored if k in written else "read"
    return tuple(out)


def _slots_below(pointer: UOp) -> Iterator[int]:
    """Yield the slot of the PARAM that the address `pointer` is in; yield nothing if the address is not in a PARAM."""
    while pointer.op != "PARAM" and pointer.src:
        pointer = pointer.src[0]
    if pointer.op == "PARAM" and pointer.arg.name is None:
        yield pointer.arg.slot


def operands_of(item: UOp) -> tuple[UOp, ...]:
    """Return the operands of `item`: those of a CALL, or (destination, source) of a copy, a STORE of a LOAD."""
    return item.src[1:] if item.op == "CALL" else (item.src[0], item.src[1].src[0])


def with_operands(item: UOp, operands: Sequence[UOp]) -> UOp:
    """Return `item` with its operands, which have the order of `operands_of`, replaced by `operands`.
    `item`: a CALL or a copy.
    """
    if item.op == "CALL":
        return node("CALL", (item.src[0], *operands), item.arg)
    to, source = operands
    if to.shape != source.shape:  # memory with several axes, and a flat view of an arena
        to, source = _flat(to), _flat(source)
    load = item.src[1]
    return node("STORE", (to, node("LOAD", (source, *load.src[1:]), load.arg)), item.arg)


def access(item: UOp, k: int) -> str:
    """Return how `item` accesses its operand number `k`: "read", "write" or "update" (both)."""
    if item.op == "STORE":
        return "read" if k else "write"
    program = item.src[0]
    if program.op == "PROGRAM":
        return str(program.arg.operands[k][2])
    found = accesses(program)
    return found[k] if k < len(found) else "read"


def writes(item: UOp) -> list[int]:
    """Return the numbers of the operands that `item` writes, ascending."""
    if item.op == "STORE":
        return [0]
    program = item.src[0]
    if program.op == "PROGRAM":
        return [k for k, (_, _, how) in enumerate(program.arg.operands) if how in ("write", "update")]
    return sorted(stored_slots(program))


def program_info(kernel: UOp, operands: Sequence[UOp], name: str, key: str, threads: int, local: int) -> ProgramInfo:
    """Return the ProgramInfo of the compiled `kernel`: its `name`, its `key` in the caches of programs, its number of
    `threads`.

    `operands`: operands of one of its CALLs, from which the dtypes and sizes are taken. `local`: bytes of scratch
    memory of each thread.
    """
    how = accesses(kernel)
    rows = []
    for k, u in enumerate(operands):
        memory = not is_scalar(u)
        rows.append((u.dtype, size_max(count(u.shape)) if memory else 1, how[k] if k < len(how) else "read"))
    return ProgramInfo(name, key, threads, local, tuple(rows))


def device_of(item: UOp, default: str) -> str:
    """Return the engine (`ir.placement.engine`) that `item` runs on, for a copy that of its destination.

    `default`: the engine of an item that touches no memory.
    """
    operands = item.src[:1] if item.op == "STORE" else item.src[1:]
    found = (
        engine(home(b, default)) for b in map(base_of, operands) if b.op in ("PARAM", "BUFFER") and not is_scalar(b)
    )
    return next(found, default)


def home(b: UOp, default: str) -> str:
    """Return the name of the device that holds the memory `b`, a PARAM or BUFFER; `default` for memory without a
    device, or in a file, as a file runs no kernels.
    """
    name = b.arg.device
    return default if name is None or name.startswith(FILES) else str(name)


def is_allreduce(item: UOp) -> bool:
    """Return whether `item` is a CALL on the memory of several processes (`ir/collective.py`)."""
    names = [str(u.arg.device) for u in map(base_of, item.src[1:]) if not is_scalar(u)] if item.op == "CALL" else []
    return len({name for name in names if is_of_a_process(name)}) > 1


def is_collective(item: UOp) -> bool:
    """Return whether `item` is a CALL that no device runs: an allreduce of several processes, or the share of one
    device in a collective of a simulation.
    """
    return is_allreduce(item) or (item.op == "CALL" and exchange_of(item.src[0]) is not None)


def is_frame(item: UOp) -> bool:
    """Return whether `item` stores a padded frame: it fills the padding of a buffer in whose interior other items write
    values.
    """
    info = kernel_of(item).arg if item.op == "CALL" else None
    return isinstance(info, KernelInfo) and info.frames


# ---- steps -----------------------------------------------------------------------------------------------------------
def program_of(step: UOp) -> UOp:
    """Return the program of `step`: its LINEAR of items, or an empty LINEAR if the step computes nothing."""
    linear = next((out.src[1] for out in step.src[0].src if out.op == "AFTER"), None)
    return node("LINEAR") if linear is None else linear


def once_of(linear: UOp) -> tuple[UOp, ...]:
    """Return the items of the program `linear` that run once: those of its first source, if this is the LINEAR
    "once". Returns () if there are none.
    """
    first = linear.src[0] if linear.src else None
    return first.src if first is not None and first.op == "LINEAR" else ()


def items_of(linear: UOp) -> tuple[UOp, ...]:
    """Return the items of the program `linear` that run at each call: all but the LINEAR "once"."""
    return linear.src[1:] if linear.src and linear.src[0].op == "LINEAR" else linear.src


def calls_in(items: Sequence[UOp]) -> list[UOp]:
    """Return the CALLs and copies among `items` in order, including those in GROUPs."""
    out: list[UOp] = []
    for u in items:
        if u.op == "GROUP":
            out += u.src
        elif u.op == "CALL" or u.op == "STORE":
            out.append(u)
    return out


def has_loops(items: Sequence[UOp]) -> bool:
    """Return whether there are loops (RANGE) or branches (IF) among `items`."""
    return any(u.op in ("RANGE", "IF") for u in items)


def rebuilt(items: Sequence[UOp], new: Iterable[UOp]) -> list[UOp]:
    """Return `items` with their CALLs and copies, which have the order of `calls_in`, replaced by `new`."""
    calls = iter(new)
    out: list[UOp] = []
    for u in items:
        if u.op == "GROUP":
            out.append(node("GROUP", tuple([next(calls) for _ in u.src]), u.arg))
        elif u.op == "BARRIER" or u.op == "END":
            out.append(node(u.op, (out[-1], *u.src[1:])))
        else:
            out.append(next(calls) if u.op in ("CALL", "STORE") else u)
    return out


def with_program(step: UOp, items: Sequence[UOp], once: Sequence[UOp] = ()) -> UOp:
    """Return `step` with another program: the LINEAR of `items`, which begins with the LINEAR "once" of the items
    `once` if there are any.
    """
    first = (node("LINEAR", tuple(once), ONCE),) if once else ()
    linear = node("LINEAR", (*first, *items))
    outs = [node("AFTER", (out.src[0], linear)) if out.op == "AFTER" else out for out in step.src[0].src]
    return node("FUNCTION", (node("TUPLE", tuple(outs)), *step.src[1:]), step.arg)


def roles(step: UOp) -> tuple[str, ...]:
    """Return the role of each PARAM of `step`, by slot: "argument", "result", "constant" and so on (see StepInfo)."""
    assert isinstance(step.arg, StepInfo)
    return step.arg.roles


def new_slot(items: Sequence[UOp]) -> int:
    """Return a slot greater than those of all BUFFERs that `items` touch."""
    found = [b.arg.slot for c in items for b in map(base_of, operands_of(c)) if b.op == "BUFFER"]
    return 1 + max(found, default=-1)


def is_arena(b: UOp) -> bool:
    """Return whether `b`, a PARAM or BUFFER, is an arena: a BUFFER that intermediates of a device share."""
    return b.op == "BUFFER" and b.arg.slot in (ARENA, SHARED_ARENA)


def memory(slot: int, n_bytes: int, device: str) -> UOp:
    """Return a BUFFER node of `n_bytes` elements of uint8 with slot `slot` on `device`. It denotes memory that is
    allocated later.
    """
    return node("BUFFER", (shape_source((n_bytes,)),), BufferArg(slot, dtypes.uint8, device))


__all__ = [
    "ARENA",
    "ONCE",
    "Operand",
    "SHARED_ARENA",
    "access",
    "accesses",
    "base_of",
    "buffer_bytes",
    "calls_in",
    "device_of",
    "extent",
    "has_loops",
    "home",
    "is_allreduce",
    "is_arena",
    "is_collective",
    "is_frame",
    "is_scalar",
    "is_size",
    "items_of",
    "kernel_of",
    "memory",
    "new_slot",
    "once_of",
    "operands_of",
    "program_info",
    "program_of",
    "read_operand",
    "rebuilt",
    "roles",
    "view",
    "with_operands",
    "with_program",
    "writes",
]
