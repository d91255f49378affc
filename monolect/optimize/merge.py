"""Merge adjacent loops that every index combines in the same way, and split loops that are divided.

Two ranges a (size m) and b (size n) merge when every index uses them only as a*n + b. An elementwise kernel over
contiguous tensors becomes a single loop; a sum over two axes becomes a sum over one. Loops around a scan merge, too:
the scan restarts in each iteration of both. The reverse: an output loop that the terms of a reduction read as r // n,
such as channels of a grouped convolution, becomes two loops.

Before: SINK(END(STORE(INDEX(PARAM0, r0*64 + r1), ...), r0:128, r1:64))
After:  SINK(END(STORE(INDEX(PARAM0, r0), ...), r0:8192))
"""

from __future__ import annotations

from collections.abc import Sequence

from monolect.base.target import Target
from monolect.ir.check.custom_kernels import has_axes
from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import UOp, idx, node, nodes_of, rebuild, toposort
from monolect.optimize.loops.scratch import is_scratch
from monolect.optimize.loops.sequence import carried_ranges

_DIVISIONS = frozenset(("IDIV", "MOD"))


def merge_ranges(sink: UOp, target: Target) -> UOp:
    """Return the kernel `sink` with adjacent loops merged, and loops whose index is divided split. Kernels with axis
    types that a user fixed stay unchanged.
    """
    if has_axes(nodes_of(sink)):
        return sink
    # a resulting loop may be divided again: a window over two axes
    while (divided := _divided(sink, target.lanes(4))) is not sink:
        sink = divided
    while True:
        order = nodes_of(sink)
        for a, b in _neighbours(order):
            if _always_together(order, a, b) and (out := _merge(sink, order, a, b)) is not None:
                sink = out
                break
        else:
            return sink


def _divided(sink: UOp, lanes: int) -> UOp:
    """Return the kernel `sink` with each output loop r that inner loops use as r // n and r % n split into two loops
    (as grouped heads or channels are used); `sink` itself if there is none.

    Reductions are split likewise, as in a norm over channels that each have a bias, if n fills a vector of `lanes`
    elements. A loop that carries an accumulator stays whole: its iterations run in order.
    """
    order = nodes_of(sink)
    inner = order if any(is_scratch(u) for u in order) else toposort(*(u for u in order if u.op == "REDUCE"))
    found = {u.src[0]: u.src[1] for u in inner if u.op in _DIVISIONS and u.src[0].op == "RANGE"}
    whole = {r: n.value for r, n in found.items() if r.src[0].op == n.op == "CONST" and r.src[0].value % n.value == 0}
    whole = {r: n for r, n in whole.items() if 1 < n < r.src[0].value}  # r % n may be r, where identities are off
    whole = {r: n for r, n in whole.items() if _is_loop(r) or (r.arg[1] == "REDUCE" and lanes <= n)}
    carried = carried_ranges(order) if whole else ()
    whole = {r: n for r, n in whole.items() if r not in carried}
    if not whole:
        return sink
    new: dict[UOp, UOp] = {}
    parts: dict[UOp, tuple[UOp, ...]] = {}
    for u in order:
        if u.op == "RANGE" and (u in whole or u.arg[1] == "LOOP"):
            k, n, kind = 2 * u.arg[0], whole.get(u, 1), u.arg[1]
            parts[u] = (node("RANGE", (u.src[0] if n == 1 else idx(u.src[0].value // n),), (k, kind)),)
            parts[u] += (node("RANGE", (idx(n),), (k + 1, kind)),) if n > 1 else ()
            new[u] = parts[u][0] if n == 1 else parts[u][0] * n + parts[u][1]
        elif u.op in ("END", "AFTER") or (u.op == "REDUCE" and len(u.src) > 1):
            new[u] = node(u.op, (new[u.src[0]], *(p for r in u.src[1:] for p in parts.get(r, (new[r],)))), u.arg)
        else:
            new[u] = rebuild(u, tuple(new[s] for s in u.src))
    return new[sink]


def _is_loop(u: UOp) -> bool:
    """Whether the node `u` is a RANGE of axis type LOOP."""
    return u.op == "RANGE" and bool(u.arg[1] == "LOOP")


def _closers(order: Sequence[UOp]) -> list[tuple[UOp, ...]]:
    """Return, for each END and each REDUCE over RANGEs among the nodes `order`, the RANGEs that it closes."""
    return [u.src[1:] for u in order if u.op == "END" or (u.op == "REDUCE" and len(u.src) > 1)]


def _neighbours(order: Sequence[UOp]) -> list[tuple[UOp, UOp]]:
    """Return pairs (a, b) of RANGEs of constant size that may be merged: every END and REDUCE that closes a or b has b
    directly after a. `order`: the nodes of the kernel.
    """
    lists = _closers(order)
    pairs = {(a, b): None for rs in lists for a, b in zip(rs, rs[1:], strict=False)}
    out = []
    for a, b in pairs:
        if a.src[0].op != "CONST" or b.src[0].op != "CONST" or a.arg[1] != b.arg[1]:
            continue
        if all(_are_neighbours(rs, a, b) for rs in lists):
            out.append((a, b))
    return out


def _are_neighbours(rs: Sequence[UOp], a: UOp, b: UOp) -> bool:
    """Whether the RANGE `b` directly follows `a` in the list `rs`, or neither is in it."""
    if a not in rs:
        return b not in rs
    after = rs.index(a) + 1
    return after < len(rs) and rs[after] is b


def _always_together(order: Sequence[UOp], a: UOp, b: UOp) -> bool:
    """Whether every index uses the RANGEs a and b only as a * n + b, where n is the size of b, so that they may be
    merged. `order`: the nodes of the kernel.
    """
    n = b.src[0].value
    for u in order:
        if u.op == "INDEX" and len(u.src) > 1:
            terms = dict(linear(u.src[1])[1])
            if terms.get(a, 0) != terms.get(b, 0) * n:
                return False
        elif _is_scan_start(u):
            if (a in u.src) != (b in u.src):
                return False
        elif (a in u.src or b in u.src) and u.op not in ("END", "REDUCE", "ADD", "MUL", "INDEX"):
            return False
    return True


def _is_scan_start(u: UOp) -> bool:
    """Whether the node `u` is the accumulator of a scan with its initial value: a register BUFFER AFTER the RANGEs
    around the scan.
    """
    return u.op == "AFTER" and u.src[0].op == "BUFFER" and bool(u.src[0].arg.addrspace == "REG")


def _merge(sink: UOp, order: Sequence[UOp], a: UOp, b: UOp) -> UOp | None:
    """Return the kernel `sink` with the RANGEs a and b merged into one, or None if a division or remainder by the size
    of b would be left. `order`: the nodes of the kernel.
    """
    n = b.src[0].value
    one = node("RANGE", (idx(a.src[0].value * n),), a.arg)
    new: dict[UOp, UOp] = {a: one // n, b: one % n}
    for u in order:
        if u in new:
            continue
        if (u.op == "END" or u.op == "REDUCE" or _is_scan_start(u)) and a in u.src:
            closed = [one if r is a else new[r] for r in u.src[1:] if r is not b]
            new[u] = node(u.op, (new[u.src[0]], *closed), u.arg)
        else:
            new[u] = rebuild(u, tuple(new[s] for s in u.src))
            made = new[u]
            if made.op in _DIVISIONS and u.op not in _DIVISIONS and one in (*made.src[0].src, made.src[0]):
                return None
    left = (one // n, one % n)
    return None if any(u in left for u in toposort(new[sink])) else new[sink]


__all__ = ["merge_ranges"]
