"""A batch of requested values as one stateless function of its inputs: the key of the schedule cache.

Every BUFFER becomes PARAM k, in the order the walk meets them. A loop that builds the same graph on other buffers each
time makes the same PARAM graph, interned to the same node, and schedules nothing.
"""

from __future__ import annotations

from monolect.ir.ops import ParamArg
from monolect.ir.uop import UOp, node, rebuild, toposort


def callify(roots: list[UOp]) -> tuple[UOp, list[UOp], list[UOp]]:
    """(SINK of the roots over PARAMs, the buffers to bind, symbolic Variables). Overwritten targets are no inputs."""
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
