"""FUNCTION and CALL: what a body is over its arguments, and what it writes.

Invariant: the PARAMs of a body are its own. A body inside a body has PARAMs of the same numbers, which may be the very
same nodes, so whoever puts arguments in for PARAMs stays out of inner bodies.
"""

from __future__ import annotations

from functools import lru_cache

from monolect.ir.place import memory_of
from monolect.ir.uop import UOp, build, rebuild, toposort

_BUFFERS = frozenset(("BUFFER", "PARAM", "AFTER"))
BODIES = frozenset(("TUPLE", "SINK", "CUSTOMFUNCTION"))


def is_body(u: UOp) -> bool:
    """Whether `u` is what a call runs: what is below it belongs to no tensor, even if it is the same node."""
    return u.op in BODIES


def is_opaque(u: UOp) -> bool:
    """Whether `u` is a result of a CALL: a value that something else computes, and that is not looked into."""
    if u.op == "GETTUPLE":
        return u.src[0].op == "CALL"
    return u.op == "AFTER" and any(s.op == "CALL" for s in u.src[1:])


def parameters(body: UOp) -> dict[int, UOp]:
    """The PARAMs of a TUPLE by slot, without symbolic sizes."""
    below = toposort(*body.src, stop=is_body)
    return {u.arg.slot: u for u in below if u.op == "PARAM" and u.arg.name is None}


def applied(body: UOp, args: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """The values of a TUPLE, with the arguments in place of its PARAMs. An argument that is written to in part, and has
    no buffer, gets one: a view of it would become one of what it is itself a view of.
    """
    new: dict[UOp, UOp] = {}
    order = toposort(*body.src, stop=is_body)
    in_part = {u.src[0] for u in order if u.op == "AFTER" and any(e.src[0] is not u.src[0] for e in u.src[1:])}
    for u in order:
        if is_body(u):
            new[u] = u
        elif u.op == "PARAM" and u.arg.name is None:
            arg = args[u.arg.slot]
            new[u] = build("CONTIGUOUS", arg) if u in in_part and arg.op not in _BUFFERS else arg
        else:
            new[u] = rebuild(u, tuple([new[s] for s in u.src]))
    return tuple([new[v] for v in body.src])


@lru_cache(maxsize=4096)
def stored_slots(body: UOp) -> frozenset[int]:
    """The PARAMs that a kernel writes, by slot; a custom function names them as its sources."""
    if body.op == "CUSTOMFUNCTION":
        return frozenset(p.arg.slot for p in body.src)
    places = [u.src[0] for u in toposort(body) if u.op in ("STORE", "ATOMICADD")]
    return frozenset(p.arg.slot for p in map(memory_of, places) if p.op == "PARAM")
