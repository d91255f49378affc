"""A batch of requested values as one stateless function of its inputs: the key of the schedule cache.

Every BUFFER becomes PARAM k, in the order the walk meets them. A loop that builds the same graph on other buffers each
time makes the same PARAM graph, interned to the same node, and schedules nothing.
"""

from __future__ import annotations

from monolect.ir.ops import ParamArg
from monolect.ir.uop import UOp, node, rebuild, substitute, toposort


def resolve_functions(roots: list[UOp]) -> list[UOp]:
    """`roots` with each GETTUPLE(FUNCTION(body, args...)) replaced by its body over the arguments."""
    order = toposort(*roots)
    if not any(u.op == "GETTUPLE" for u in order):
        return roots
    new: dict[UOp, UOp] = {}
    for u in order:
        if u.op == "GETTUPLE":
            call = u.src[0]
            if call.op == "FUNCTION":
                args = [new[a] for a in call.src[1:]]
                inner = [p for p in toposort(call.src[0]) if p.op == "PARAM" and p.arg.name is None]
                new[u] = substitute(call.src[0].src[u.arg], {p: args[p.arg.slot] for p in inner})
                (new[u],) = resolve_functions([new[u]])
            else:
                new[u] = new[call].src[u.arg]
        else:
            new[u] = rebuild(u, tuple(new[s] for s in u.src))
    return [new[r] for r in roots]


def callify(roots: list[UOp]) -> tuple[UOp, list[UOp], list[UOp]]:
    """(SINK of the roots over PARAMs, the buffers to bind, symbolic Variables). Overwritten targets are no inputs."""
    roots = resolve_functions(roots)
    buffers: list[UOp] = []
    new: dict[UOp, UOp] = {}
    for u in toposort(*roots):
        if u.op == "BUFFER":
            new[u] = node("PARAM", u.src, ParamArg(len(buffers), u.dtype, u.arg.device, u.arg.addrspace))
            buffers.append(u)
        elif not u.src:
            new[u] = u
        else:
            new[u] = rebuild(u, tuple(new[s] for s in u.src))
    sink = node("SINK", tuple(new[r] for r in roots))
    return sink, buffers, [u for u in new.values() if u.op == "PARAM" and u.arg.name is not None]
