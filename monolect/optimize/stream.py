"""STREAM and FETCH: stores that go past the caches, loads that ask for what comes later. Flags on a STORE or a LOAD.

What fills more than the last cache is gone from it before anybody reads it: a STREAM store spares reading each line
before it is overwritten. It writes whole, aligned vectors, so it is refused where that is not proven: behind a gate, at
an offset that is no multiple of the vector, into memory that the kernel reads. A FETCH of n bytes asks for the line n
bytes after what it loads: more of a stream, the next rows of tiles, or the next panel of what was packed once. It may
ask for memory that does not exist.

What it does not do: choose. `heuristic` does, by sizes.

Before: STORE(INDEX(PARAM0, r0*16 + u), LOAD(INDEX(PARAM1, r0*16 + u)))              u: UPCAST of 16
After:  STORE(INDEX(PARAM0, r0*16 + u), LOAD(INDEX(PARAM1, r0*16 + u), arg 4096), arg "stream")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges, size_max
from monolect.ir.normal import count, linear
from monolect.ir.uop import UOp

if TYPE_CHECKING:
    from monolect.optimize.action import Part, Plan

SMALLEST_BYTES = 16  # of a vector that can be stored past the caches
FARTHEST_BYTES = 1 << 20
PAGE_BYTES = 4096  # up to which processors follow a stream


def buffer_bytes(u: UOp) -> int:
    """Bytes of the memory that an access is to."""
    memory = u.src[0].src[0]
    return memory.dtype.itemsize * size_max(count(memory.shape)) if memory.op == "PARAM" else 0


def vector_of(plan: Plan, u: UOp) -> Part | None:
    """The part of a loop that moves an access by one element and becomes shape."""
    if u.src[0].op != "INDEX" or len(u.src[0].src) != 2:
        return None
    steps = dict(linear(u.src[0].src[1])[1])
    shaped = (p for p in plan.axes if p.type in ("UPCAST", "GROUP_REDUCE"))
    return next((p for p in shaped if steps.get(p.root, 0) * p.stride == 1), None)


def next_rows(plan: Plan, u: UOp) -> int:
    """Bytes from where an access is to, to where it is in the next iteration of the outermost loop that moves it inside
    of the blocks: the next rows of tiles. 0 where there is none, where that is so near that the processor asks for it
    by itself, or farther than what can be asked for.
    """
    steps = dict(linear(u.src[0].src[1])[1])
    loops = (p for p in plan.axes if p.type == "LOOP" and p.size > 1 and not p.is_block)
    n_bytes = next((abs(steps[p.root]) * p.stride for p in loops if steps.get(p.root)), 0) * u.src[0].dtype.itemsize
    return n_bytes if PAGE_BYTES <= n_bytes <= FARTHEST_BYTES else 0


def check_stream(plan: Plan, number: Any) -> tuple[UOp, str]:
    """(the STORE, its new arg). Raises ActionError where a store past the caches is not provably right."""
    u = _numbered(plan, "STREAM", "store", plan.stores, number)
    if u.op != "STORE" or u.arg is not None or u.src[0].src[0].op != "PARAM":
        raise ActionError("STREAM", expected="a plain STORE to memory", found=repr(u))
    peeled = {p.root for p, ends in plan.peeled.items() if ends[-1]}  # the tail is masked, and not streamed
    if len(u.src) > 2 or any(r in plan.padded and r not in peeled for r in ranges(u)):
        raise ActionError("STREAM", expected="a store that always happens", found="a gate")
    if plan.sequential - plan.running or any(p.is_block and p.root in plan.reduced for p in plan.axes):
        raise ActionError("STREAM", expected="a store that happens once", found="a scan, or blocks of a sum")
    if any(v.op == "LOAD" and v.src[0].op == "INDEX" and v.src[0].src[0] is u.src[0].src[0] for v in plan.order):
        raise ActionError("STREAM", expected="memory that the kernel does not read", found=repr(u.src[0].src[0]))
    p = vector_of(plan, u)
    n_bytes = p.size * u.src[1].dtype.itemsize if p is not None else 0
    if p is None or n_bytes < SMALLEST_BYTES or n_bytes & (n_bytes - 1) or n_bytes > plan.target.vector_bytes:
        raise ActionError("STREAM", expected="vectors of 16 bytes up to a register", found=n_bytes)
    k, terms = linear(u.src[0].src[1])
    steps = [k]
    for x, c in terms:
        parts = [q for q in plan.axes if q.root is x]
        if not parts:
            raise ActionError("STREAM", expected="an index linear in the loops", found=repr(x))
        steps += [c * q.stride for q in parts if q is not p]
    if any(s % p.size for s in steps):
        raise ActionError("STREAM", expected=f"steps that are multiples of {p.size}", found=steps)
    return u, "stream"


def check_fetch(plan: Plan, number: Any, n_bytes: Any) -> tuple[UOp, int]:
    """(the LOAD, its new arg). Raises ActionError where fetching ahead means nothing."""
    u = _numbered(plan, "FETCH", "load", plan.loads, number)
    if not isinstance(n_bytes, int) or not 0 < n_bytes <= FARTHEST_BYTES:
        raise ActionError("FETCH distance", expected=f"1..{FARTHEST_BYTES} bytes", found=n_bytes)
    if u.arg is not None or u.src[0].src[0].op != "PARAM" or (u in plan.packs and not plan.is_frozen(u)):
        raise ActionError("FETCH", expected="a plain LOAD from memory, or one packed once", found=repr(u))
    if u in plan.packs:
        return u, n_bytes
    rows = any(p.type == "UPCAST" and p.root in ranges(u.src[0]) for p in plan.axes)
    if vector_of(plan, u) is None and not rows:
        raise ActionError("FETCH", expected="a load of vectors, or of rows of a tile", found="one element at a time")
    return u, n_bytes


def _numbered(plan: Plan, op: str, what: str, found: list[UOp], number: Any) -> UOp:
    if not plan.target.streams:
        raise ActionError(op, expected="a target with stores past its caches", found=plan.target.name)
    if not isinstance(number, int) or not 0 <= number < len(found):
        raise ActionError(f"{op}: no such {what}", expected=f"0..{len(found) - 1}", found=number)
    if found[number] in plan.flags:
        raise ActionError(op, expected=f"a {what} without a flag", found=plan.flags[found[number]])
    return found[number]
