"""Turn a batch of requested values into one stateless function of its inputs, which is the key of the schedule cache.

Every BUFFER becomes PARAM k, numbered in the order of the walk. A loop that builds the same graph over other buffers
each time yields the same interned PARAM graph, so it schedules nothing new.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from monolect.base.errors import IRError
from monolect.ir.ops import MOVEMENT
from monolect.ir.placement import param_like, placement
from monolect.ir.rewrite.calls import inlined, is_body, is_opaque
from monolect.ir.uop import UOp, node, rebuild, toposort

MAX_BATCH = 512  # requested values; a batch up to this size is never divided
SUB_BATCH = 64  # requested values in each part of a divided batch, at most, unless they share work
_LITERALS = ("SINK", "STACK")  # nodes that are one item of a structure; a STACK if its sources have no sources
_CALLS = ("FUNCTION", "CALL")
# nodes that two batches may both use without computing anything twice
_FREE = frozenset(("CONST", "IOTA", "BUFFER", "PARAM"))


def resolve_functions(roots: list[UOp]) -> list[UOp]:
    """Return `roots` with each GETTUPLE(FUNCTION(body, args...)) replaced by the body applied to the arguments.

    CALLs stay; their arguments contain no FUNCTIONs any more.
    """
    while True:
        order = toposort(*roots, stop=is_body)
        if not any(u.op == "GETTUPLE" and not is_opaque(u) for u in order):
            return roots
        new: dict[UOp, UOp] = {}
        values: dict[UOp, tuple[UOp, ...]] = {}  # the results of each FUNCTION
        for u in order:
            if is_body(u):
                new[u] = u
            elif u.op == "FUNCTION":
                values[u] = inlined(u.src[0], tuple([new[a] for a in u.src[1:]]))
                new[u] = u
            elif u.op == "GETTUPLE" and not is_opaque(u):
                call = u.src[0]
                new[u] = values[call][u.arg] if call.op == "FUNCTION" else call.src[u.arg]
            else:
                new[u] = rebuild(u, tuple([new[s] for s in u.src]))
        roots = [new[r] for r in roots]


class Structure(NamedTuple):
    """Describe a graph, as `structure` does. `key`: equal for graphs that differ only in their BUFFERs. `inspected`:
    nodes that may have to be stored besides the roots. `has_functions`: whether the graph applies FUNCTIONs.
    """

    key: Any
    buffers: list[UOp]
    inspected: list[UOp]
    has_functions: bool


def structure(roots: list[UOp]) -> Structure:
    """Return the Structure of a graph.

    The key spells the graph out from the roots on, a node before its sources: op, arg, tag and number of sources of a
    node where the walk meets it first, its number in the walk where it meets it again. Constant shapes and other leaves
    are listed as nodes, and so is the body of a FUNCTION. The BUFFERs are in the order of `over_params`, except if the
    graph has FUNCTIONs, which that inlines. The inspected nodes (`runtime.realize.held`) are those that were the value
    of a Tensor, and BUFFERs of loop-carried state. Making a key is much cheaper than `over_params`. The key is None for
    graphs with a CALL.
    """
    if len(roots) == 1 and roots[0].height <= 3 and (found := _of_one_op(roots[0])) is not None:
        return found
    key: list[Any] = []
    buffers: list[UOp] = []
    known: list[UOp] = []
    number: dict[UOp, int] = {}
    has_functions = False
    stack = roots[::-1]
    while stack:
        u = stack.pop()
        op, src = u.op, u.src
        if not src or (op in _LITERALS and (op == "SINK" or u.height == 1)):
            key.append(u)
        elif (n := number.get(u)) is not None:
            key.append(n)
        elif op == "BUFFER":
            number[u] = len(number)
            key += (op, src[0], u.dtype, u._placement or placement(u))
            buffers.append(u)
            if u.recomputed:
                known.append(u)
        elif op == "FUNCTION":
            number[u] = len(number)
            has_functions = True
            key += (op, len(src), src[0])  # its arg names it, and may hold a derivative of the user's
            stack += src[:0:-1]
        elif op == "CALL":
            inspected = [u for u in toposort(*roots) if u.recomputed or u.holder is not None]
            return Structure(None, [], inspected, has_functions)
        else:
            number[u] = len(number)
            if u.holder is not None:
                known.append(u)
            key += (op, u.arg, u.tag, len(src))
            stack += src[::-1]
    return Structure(tuple(key), buffers, known, has_functions)


def _of_one_op(u: UOp) -> Structure | None:
    """Return the `structure` of a value computed by one op from BUFFERs and constants, without a walk, which takes
    twice as long; None for another value.
    """
    op, src = u.op, u.src
    if op == "BUFFER" or op in _CALLS:
        return None
    key: list[Any] = [op, u.arg, u.tag, len(src)]
    buffers: list[UOp] = []
    known = [] if u.holder is None else [u]
    for s in src:
        if s.op == "BUFFER":
            if s in buffers:
                key.append(1 + buffers.index(s))
                continue
            key += ("BUFFER", s.src[0], s.dtype, s._placement or placement(s))
            buffers.append(s)
            if s.recomputed:
                known.append(s)
        elif not s.src or (s.op == "STACK" and s.height == 1):
            key.append(s)
        else:
            return None
    return Structure(tuple(key), buffers, known, False) if src else None


def independent(roots: list[UOp]) -> list[list[UOp]]:
    """Divide a batch of more than MAX_BATCH values into batches of up to SUB_BATCH values without shared work.

    Values that share work stay in one batch, which may then be larger.

    Equal batches, such as the initial weights of equal layers, have one structure: they are planned once.
    """
    if len(roots) <= MAX_BATCH:
        return [roots]
    out: list[list[UOp]] = []
    for part in components(roots):
        if out and len(out[-1]) + len(part) <= SUB_BATCH:
            out[-1] += part
        else:
            out.append(part)
    return out


def components(roots: list[UOp]) -> list[list[UOp]]:
    """Divide a batch into the smallest batches without shared work."""
    # union-find over the roots; each computed value belongs to the first root that needs it
    first = [*range(len(roots))]

    def find(k: int) -> int:
        while first[k] != k:
            first[k] = k = first[first[k]]
        return k

    owner: dict[UOp, int] = {}
    for k, root in enumerate(roots):
        stack = [root]
        while stack:
            u = stack.pop()
            while u.op in MOVEMENT:
                u = u.src[0]
            if u.op in _FREE or u.dtype.kind == "x":
                continue
            if u not in owner:
                owner[u] = k
                stack.extend(u.src)
            a, b = find(owner[u]), find(k)
            first[max(a, b)] = min(a, b)
    parts: dict[int, list[UOp]] = {}
    for k, root in enumerate(roots):
        parts.setdefault(find(k), []).append(root)
    return [*parts.values()]


def _effects(after: UOp) -> list[UOp]:
    """Return the STOREs, ATOMICADDs or CALL that an AFTER waits for, with GROUPs flattened. Raises IRError for any
    other op.
    """
    out: list[UOp] = []
    todo = [*reversed(after.src[1:])]
    while todo:
        e = todo.pop()
        if e.op == "GROUP":
            todo += reversed(e.src)
        elif e.op in ("STORE", "ATOMICADD") or is_opaque(after):
            out.append(e)
        else:
            expected = "STORE, ATOMICADD, a GROUP of those, or a CALL by itself"
            raise IRError("AFTER: a tensor does not wait for this", expected=expected, found=repr(e), op="AFTER")
    return out


def over_params(roots: list[UOp], with_calls: bool = False) -> tuple[UOp, list[UOp], list[UOp]]:
    """Return (TUPLE of the roots over PARAMs, the buffers to bind, the PARAMs of symbolic Variables).

    The buffers include targets of assigns, results of CALLs and the bytes of BINARYs, which have no storage yet. With
    `with_calls` the CALLs stay, over PARAMs.
    """
    roots = resolve_functions(roots)
    buffers: list[UOp] = []
    new: dict[UOp, UOp] = {}
    for u in toposort(*roots, stop=is_body if with_calls else is_opaque):
        if with_calls and is_body(u):
            new[u] = u
        elif u.op in ("BUFFER", "BINARY") or (is_opaque(u) and not with_calls):
            new[u] = param_like(u, len(buffers))
            buffers.append(u)
        elif not u.src:
            new[u] = u
        elif u.op == "AFTER":
            new[u] = rebuild(u, (new[u.src[0]], *[new[e] for e in _effects(u)]))
        else:
            new[u] = rebuild(u, tuple([new[s] for s in u.src]))
    values = node("TUPLE", tuple([new[r] for r in roots]))
    return values, buffers, [u for u in new.values() if u.op == "PARAM" and u.arg.name is not None]


def callify(values: UOp) -> UOp:
    """Pass: turn a TUPLE of values over BUFFERs into FUNCTION(TUPLE over PARAMs, buffers...)."""
    body, buffers, _ = over_params([*values.src])
    return node("FUNCTION", (body, *buffers))


__all__ = ["callify", "independent", "over_params", "resolve_functions", "structure"]
