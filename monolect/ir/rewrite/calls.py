"""Analyze FUNCTION and CALL nodes: substitute arguments for PARAMs, check arguments, and find the memory that a body
writes.

The first source of a FUNCTION or CALL is its body, a graph over PARAMs. The other sources are the arguments: argument k
is bound to the PARAM with slot k.

Invariant: the PARAMs of a body are private to it. A nested body has PARAMs with the same slots, which may be the same
interned nodes, so a substitution of PARAMs must not enter nested bodies.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from monolect.base.dtype import dtypes
from monolect.base.errors import IRError
from monolect.ir.ops import CALLS
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, idx, node, nodes_of, rebuild, substitute, toposort

_BUFFERS = frozenset(("BUFFER", "PARAM", "AFTER"))
BODIES = frozenset(("TUPLE", "SINK", "CUSTOMFUNCTION"))


def is_body(u: UOp) -> bool:
    """Whether `u` is the body of a call: a TUPLE, a kernel's SINK or a CUSTOMFUNCTION.

    Nodes below a body belong to no tensor, even if a tensor has the same interned node.
    """
    return u.op in BODIES


def is_opaque(u: UOp) -> bool:
    """Whether `u` is a result of a CALL (a GETTUPLE of it, or memory AFTER it), whose computation no rewrite may
    enter.
    """
    if u.op == "GETTUPLE":
        return u.src[0].op == "CALL"
    return u.op == "AFTER" and any(s.op == "CALL" for s in u.src[1:])


def parameters(body: UOp) -> dict[int, UOp]:
    """Return the PARAMs in the body `body`, a TUPLE, as a dict from slot to PARAM, without those of symbolic sizes.
    Nested bodies are not entered.
    """
    below = toposort(*body.src, stop=is_body)
    return {u.arg.slot: u for u in below if u.op == "PARAM" and u.arg.name is None}


def outside(values: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the largest nodes below `values`, which are over PARAMs, that read memory and no PARAM: what a body takes
    from outside of it. Indices, and targets of the writes of the body, are part of the body.
    """
    order = toposort(*values, stop=is_body)
    inside: set[UOp] = set()
    reads: set[UOp] = set()
    for u in order:
        if u.op == "PARAM" or any(s in inside for s in u.src):
            inside.add(u)
        elif u.op == "BUFFER" or any(s in reads for s in u.src):
            reads.add(u)
    for u in [u for u in inside if u.op in ("STORE", "ATOMICADD")]:
        target = u.src[0]
        while target.op != "BUFFER" and target.src:
            inside.add(target)
            target = target.src[0]
    found = dict.fromkeys(v for v in values if v not in inside and v in reads)
    for u in reversed(order):
        for s in u.src if u in inside else ():
            if s in reads and s not in inside:
                if s.dtype is dtypes.index:
                    inside.add(s)
                else:
                    found[s] = None
    return tuple(found)


def inlined(body: UOp, args: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """Return the values of `body`, a TUPLE, with each PARAM replaced by `args[slot]`, where `slot` is the slot of the
    PARAM.

    If the body writes only a part of an argument that is not memory, the argument becomes CONTIGUOUS. Otherwise the
    view that is written would merge with the views in the argument, and the write would reach the memory below these
    views.
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
    """Return the slots of the PARAMs that `body`, a kernel or a CUSTOMFUNCTION, writes: for a kernel the targets of its
    stores, for a CUSTOMFUNCTION all its PARAMs.
    """
    if body.op == "CUSTOMFUNCTION":
        return frozenset(p.arg.slot for p in body.src)
    targets = [u.src[0] for u in nodes_of(body) if u.op in ("STORE", "ATOMICADD")]
    return frozenset(p.arg.slot for p in map(memory_of, targets) if p.op == "PARAM")


# ---- the rules of the op table ---------------------------------------------------------------------------------------
_expectations: WeakKeyDictionary[UOp, tuple[UOp, ...]] = WeakKeyDictionary()  # body -> its PARAMs; keeps no body alive


def _expected(body: UOp) -> tuple[UOp, ...]:
    """Return the PARAMs of `body` that need an argument, which excludes Variables, because a Variable is bound by
    name.
    """
    known = _expectations.get(body)
    if known is None:
        if body.op == "SINK" and body.arg is not None and body.arg.fills:
            known = ()  # the operands of a fill kernel are packed blocks and their sources
        elif body.op == "TUPLE":
            known = tuple(parameters(body).values())
        else:
            known = tuple([u for u in nodes_of(body) if u.op == "PARAM" and u.arg.name is None])
        _expectations[body] = known
    return known


def argument_bound(body: UOp, k: int) -> int | None:
    """Return the largest value of argument `k` of a call of `body`, an index; None if it is unknown or not used."""
    return next((p.arg.max for p in _expected(body) if p.arg.slot == k), None)


def check_arguments(body: UOp, args: tuple[UOp, ...], is_typed: bool = False) -> None:
    """Check that each PARAM of `body` has an argument in `args` with its dtype and shape. Raises IRError if an argument
    is missing or has another dtype or shape.

    For a kernel only the number of elements counts, because a kernel sees memory as one axis. A native function
    (CUSTOMFUNCTION) may get uint8 bytes of an arena instead of its dtype, unless `is_typed`. A symbolic size is
    compared after its PARAMs are replaced by arguments. `node` calls this function for each new FUNCTION or CALL.
    """
    for p in _expected(body):
        k = p.arg.slot
        if k >= len(args):
            raise IRError("an argument is missing", expected=f"one for PARAM {k}", found=f"{len(args)} arguments")
        if body.op == "CUSTOMFUNCTION" and not is_typed and args[k].dtype is dtypes.uint8:
            continue
        if args[k].dtype is not p.dtype:
            raise IRError(f"argument {k} of another dtype", expected=p.dtype.name, found=args[k].dtype.name)
        wanted, found = p.shape, args[k].shape
        if wanted != found and body.op != "TUPLE":
            wanted, found = (count(wanted),), (count(found),)
        if wanted != found and not _are_equal(shape_of_call(wanted, (body, *args)), found, body):
            raise IRError(f"argument {k} of another shape", expected=p.shape, found=args[k].shape)


def _are_equal(wanted: tuple, found: tuple, body: UOp) -> bool:
    """Whether the shapes `wanted` and `found` are equal in a call of `body`.

    A kernel has its own PARAMs for Variables, so in its shapes Variables are compared by name.
    """
    if len(wanted) != len(found):
        return False
    pairs = [(a, b) for a, b in zip(wanted, found, strict=True) if a is not b and a != b]
    if body.op == "TUPLE" or any(a.__class__ is b.__class__ for a, b in pairs if a.__class__ is int):
        return not pairs
    return all(_by_name(idx(a)) is _by_name(idx(b)) for a, b in pairs)


def _by_name(size: UOp) -> UOp:
    """Return the symbolic size `size` with the slot of each Variable set to 0, so that sizes of equally named Variables
    are one node.
    """
    params = [u for u in toposort(size) if u.op == "PARAM" and u.arg.name is not None]
    return substitute(size, {u: node("PARAM", u.src, u.arg._replace(slot=0)) for u in params})


def shape_of_call(shape: tuple, src: tuple[UOp, ...]) -> tuple[Any, ...]:
    """Return `shape`, the shape of a value in a body, with the PARAMs in its symbolic sizes replaced by the arguments
    of a call.

    `src`: the sources of the call: its body and then its arguments.
    """
    if all(n.__class__ is int for n in shape):
        return shape
    body, args = src[0], src[1:]
    new = {p: args[p.arg.slot] for p in _expected(body) if not p.shape and p.arg.slot < len(args)}
    sizes = [substitute(n, new) if n.__class__ is UOp else n for n in shape]
    return tuple([n.value if n.__class__ is UOp and n.op == "CONST" else n for n in sizes])


CALLS.update(arguments=check_arguments, shape=shape_of_call)


__all__ = [
    "argument_bound",
    "check_arguments",
    "inlined",
    "is_body",
    "is_opaque",
    "outside",
    "parameters",
    "shape_of_call",
    "stored_slots",
]
