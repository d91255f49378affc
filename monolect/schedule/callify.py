"""A batch of requested values as one stateless function of its inputs: the key of the schedule cache.

Every BUFFER becomes PARAM k, in the order the walk meets them. A loop that builds the same graph on other buffers each
time makes the same PARAM graph, interned to the same node, and schedules nothing.
"""

from __future__ import annotations

from typing import Any

from monolect.base.errors import IRError
from monolect.ir.ops import MOVEMENT, ParamArg
from monolect.ir.placement import device
from monolect.ir.rewrite.calls import applied, is_body, is_opaque
from monolect.ir.uop import UOp, node, rebuild, shape_source, toposort

MOST_TOGETHER = 512  # number of values that are always one batch
MOST_AT_ONCE = 64  # number of values in one of the batches that a larger one is divided into
_ROWS = ("SINK", "STACK")  # may be whole, beside buffers
_GIVEN = frozenset(("CONST", "IOTA", "BUFFER", "PARAM"))  # shared at no cost


def resolve_functions(roots: list[UOp]) -> list[UOp]:
    """`roots` with each GETTUPLE(FUNCTION(body, args...)) replaced by its body over the arguments; CALLs stay, over
    arguments without FUNCTIONs.
    """
    while True:
        order = toposort(*roots, stop=is_body)
        if not any(u.op == "GETTUPLE" and not is_opaque(u) for u in order):
            return roots
        new: dict[UOp, UOp] = {}
        values: dict[UOp, tuple[UOp, ...]] = {}  # of each FUNCTION
        for u in order:
            if is_body(u):
                new[u] = u
            elif u.op == "FUNCTION":
                values[u] = applied(u.src[0], tuple([new[a] for a in u.src[1:]]))
                new[u] = u
            elif u.op == "GETTUPLE" and not is_opaque(u):
                call = u.src[0]
                new[u] = values[call][u.arg] if call.op == "FUNCTION" else call.src[u.arg]
            else:
                new[u] = rebuild(u, tuple([new[s] for s in u.src]))
        roots = [new[r] for r in roots]


def structure(roots: list[UOp]) -> tuple[Any, list[UOp], list[UOp]]:
    """A key that graphs share which differ in their buffers alone; those, in the order of the walk; and what
    `held.to_store` looks at.

    It is the walk written down: for each node its op, arg and tag, and its sources by number; a shape, and what else
    has no buffer below it, is one node in all graphs. Making it costs a fraction of making the function, which a loop
    that builds the same graph again does without. None for graphs that call functions.
    """
    key: list[Any] = []
    buffers: list[UOp] = []
    known: list[UOp] = []
    order = toposort(*roots, stop=_is_whole)
    number = {u: i for i, u in enumerate(order)}
    for u in order:
        op = u.op
        if op == "BUFFER":
            key += (op, u.src[0], *u.arg[1:])
            buffers.append(u)
            if u.recomputed:
                known.append(u)
        elif not u.src or (op in _ROWS and _is_whole(u)):
            key.append(u)
        elif op in ("FUNCTION", "CALL"):
            return None, [], [u for u in order if u.recomputed or u.holder is not None]
        else:
            if u.holder is not None:
                known.append(u)
            key += (op, u.arg, u.tag)
            for s in u.src:
                key.append(number[s])
    key += ("SINK", *[number[r] for r in roots])
    return tuple(key), buffers, known


def _is_whole(u: UOp) -> bool:
    """Whether a structure holds the node as it is: a buffer, by what it is; numbers in a row, such as a shape. What is
    called is not looked into.
    """
    return u.op == "BUFFER" or u.op == "SINK" or (u.op == "STACK" and all([s.op == "CONST" for s in u.src]))


def independent(roots: list[UOp]) -> list[list[UOp]]:
    """A batch of more than MOST_TOGETHER values as batches that share no computed value, of about MOST_AT_ONCE each.

    Equal ones among them, such as the initial weights of equal layers, have one structure: they are planned once.
    """
    if len(roots) <= MOST_TOGETHER:
        return [roots]
    first = [*range(len(roots))]  # a union-find over the roots; each computed value belongs to the first that needs it

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
            if u.op in _GIVEN or u.dtype.kind == "x":
                continue
            known = owner.setdefault(u, k)
            if known == k:
                stack.extend(u.src)
            a, b = find(known), find(k)
            first[max(a, b)] = min(a, b)
    parts: dict[int, list[UOp]] = {}
    for k, root in enumerate(roots):
        parts.setdefault(find(k), []).append(root)
    out: list[list[UOp]] = []
    for part in parts.values():
        if out and len(out[-1]) + len(part) <= MOST_AT_ONCE:
            out[-1] += part
        else:
            out.append(part)
    return out


def _effects(after: UOp) -> list[UOp]:
    """The effects that an AFTER waits for; a GROUP is what it groups. Raises IRError for others than writes."""
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
    """(TUPLE of the roots over PARAMs, the buffers to bind, symbolic Variables). Overwritten targets are no inputs.

    A result of a CALL is an input, too, and so are the bytes of a BINARY: each is listed with the buffers, and has no
    storage yet. `with_calls`: the CALLs stay, over PARAMs.
    """
    roots = resolve_functions(roots)
    buffers: list[UOp] = []
    new: dict[UOp, UOp] = {}
    for u in toposort(*roots, stop=is_body if with_calls else is_opaque):
        if with_calls and is_body(u):
            new[u] = u
        elif u.op in ("BUFFER", "BINARY") or (is_opaque(u) and not with_calls):
            shape = u.src if u.op == "BUFFER" else (shape_source(u.shape),)
            new[u] = node("PARAM", shape, ParamArg(len(buffers), u.dtype, device(u), "GLOBAL"))
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
    """The pass: FUNCTION(TUPLE over PARAMs, buffers...) of a TUPLE of values over BUFFERs."""
    body, buffers, _ = over_params([*values.src])
    return node("FUNCTION", (body, *buffers))
