"""Find the loops of a kernel that must run in order: facts that make an action legal or not.

Iterations depend on each other in a scan, which carries an accumulator (a scalar in a register) or a table (an array in
registers or local memory) from one to the next, and where an effect may write one address twice. An effect at a
computed index never does so in different iterations of a loop that *owns* its addresses. Loop r of index = c*r + t owns
them in two cases. Either t consists of parts too small to reach the address of the next iteration wherever the effect's
gate is open, and of parts that step over all of the loop's addresses. Or the index counts whole rows, whose sizes need
not be constant. `index_add` owns its columns, a histogram of each row its row.

Invariant: a loop that is not listed may run in any order, and its iterations at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import gcd

from monolect.base.dtype import DType
from monolect.base.errors import InternalError
from monolect.ir.bounds import min_max, ranges
from monolect.ir.placement import is_memory, memory_of
from monolect.ir.rewrite.normal import conjuncts, limits, linear
from monolect.ir.uop import UOp, build, idx
from monolect.optimize.loops.scratch import is_local, is_scratch


def carried_ranges(order: Sequence[UOp]) -> frozenset[UOp]:
    """Return the RANGEs that carry an accumulator (a scalar in a register) or a table (an array) from one iteration to
    the next. They must run in order, inside of all other loops. `order`: the nodes of the kernel.
    """
    out: set[UOp] = set()
    for u in order:
        if u.op == "AFTER" and len(u.src) > 2 and u.src[0].op == "BUFFER" and u.src[1].op in ("STORE", "END"):
            out.update(r for r in u.src[2:] if r.op == "RANGE")
    return frozenset(out)


def sequential_ranges(order: Sequence[UOp]) -> frozenset[UOp]:
    """Return the RANGEs whose iterations must run in order: they carry a value, or their iterations may write one
    address twice. `order`: the nodes of the kernel.
    """
    out: set[UOp] = {*carried_ranges(order)}
    for u in order:
        if u.op == "ATOMICADD":
            out |= ranges(u) - owners(u)
        elif u.op == "STORE" and u.arg is None and _memory(u.src[0]).op == "PARAM":
            parts = [x for x, _ in _terms(u)]
            computed = frozenset().union(*(ranges(x) for x in parts if x.op != "RANGE"))
            if computed:
                out |= (computed | {x for x in parts if x.op == "RANGE"}) - owners(u)
    return frozenset(out)


def atomic_ranges(order: Sequence[UOp], atomics: frozenset[DType]) -> frozenset[UOp]:
    """Return the RANGEs that must run in order only because of ATOMICADDs that the target can do atomically, so that it
    may run them in any order after all.

    `order`: the nodes of the kernel. `atomics`: the dtypes that the target adds atomically.
    """
    rest = [u for u in order if u.op != "ATOMICADD" or u.src[1].dtype not in atomics]
    return sequential_ranges(order) - sequential_ranges(rest)


def running_ranges(order: Sequence[UOp]) -> frozenset[UOp]:
    """Return the RANGEs of scans that carry only running sums, products or maxima, so that several of their iterations
    may be computed at once as one SCAN of a vector. `order`: the nodes of the kernel.
    """
    uses = Counter(s for u in order for s in u.src)
    carried: dict[UOp, frozenset[UOp]] = {}  # accumulator -> the loops it is carried through
    plain: set[UOp] = set()
    for u in order:
        if u.op == "AFTER" and len(u.src) > 2 and u.src[0].op == "BUFFER":
            carried[u.src[0]] = frozenset(r for r in u.src[2:] if r.op == "RANGE")
        elif u.op == "STORE" and (acc := u.src[0]) in carried and u.src[1].op in ("ADD", "MUL", "MAX"):
            loads = [s for s in u.src[1].src if s.op == "LOAD" and s.src[0].op == "AFTER" and s.src[0].src[0] is acc]
            if len(loads) == 1 and uses[loads[0]] == 1:
                plain.add(acc)
    others = [r for acc, rs in carried.items() if acc not in plain for r in rs]
    kept = [u for u in order if u.op in ("STORE", "ATOMICADD")]
    return frozenset().union(*(carried[acc] for acc in plain)) - frozenset(others) - sequential_ranges(kept)


def scan_depths(order: Sequence[UOp]) -> dict[UOp, int]:
    """Return {RANGE of a scan: number of RANGEs that must enclose it}, for each RANGE that carries an accumulator or a
    table.

    The accumulator or table starts from its initial value in each iteration of the enclosing RANGEs. `order`: the nodes
    of the kernel.
    """
    starts: dict[UOp, frozenset[UOp]] = {}
    around: dict[UOp, frozenset[UOp]] = {}
    for u in order:
        if u.op == "AFTER" and u.src[0].op == "BUFFER":
            loops = frozenset(r for r in u.src[1:] if r.op == "RANGE")
            if loops and len(loops) == len(u.src) - 1:
                starts[u.src[0]] = loops
            elif u.src[1].op in ("STORE", "END"):
                around.update({r: around.get(r, frozenset()) | starts.get(u.src[0], frozenset()) for r in loops})
    for _ in around:  # enclosing loops of an enclosing loop enclose it, too
        around = {r: outer.union(*(around.get(o, ()) for o in outer)) for r, outer in around.items()}
    if any(r in outer for r, outer in around.items()):
        raise InternalError("two scans of a kernel each restart in the other's loop", expected="one in the other")
    return {r: len(outer) for r, outer in around.items()}


def private_local_ranges(order: Sequence[UOp]) -> frozenset[UOp]:
    """Return the RANGEs each of whose iterations needs a private LOCAL buffer or a private register array with a
    computed index.

    They cannot become vector lanes. Scratch buffers do not count, as they can have a row for each lane. `order`: the
    nodes of the kernel.
    """
    out: frozenset[UOp] = frozenset()
    tables = {memory_of(u.src[0]) for u in order if u.op == "INDEX" and is_memory(u) and len(u.src) > 1}
    for u in order:
        if u.op == "AFTER" and not is_scratch(u) and (is_local(u.src[0]) or _is_register_array(u, tables)):
            out |= ranges(u)
    return out


def _is_register_array(u: UOp, tables: set[UOp]) -> bool:
    """Whether the AFTER `u` is an array in registers that the kernel accesses at an index. `tables`: all memory that
    the kernel accesses at an index.
    """
    b = memory_of(u)
    return b in tables and b.op == "BUFFER" and b.arg.addrspace == "REG" and is_memory(u)


def owners(u: UOp) -> frozenset[UOp]:
    """Return the RANGEs that own the addresses of `u`: the STORE or ATOMICADD `u` never writes one address in two
    different iterations of such a RANGE.
    """
    terms = _terms(u)
    if any(x.op != "RANGE" for x, _ in terms) and (whole := _whole_rows(terms)):
        return whole
    known = limits(c for gate in u.src[2:] for c in conjuncts(gate))
    sizes = {x: hi - lo for x, _ in terms for lo, hi in [known.get(x) or min_max(x)]}  # where the gates are open
    return frozenset(x for x, c in terms if x.op == "RANGE" and _owns(x, c, [t for t in terms if t[0] is not x], sizes))


def _whole_rows(terms: tuple[tuple[UOp, int], ...]) -> frozenset[UOp]:
    """Return the RANGEs of an index of the form r0*n1*n2 + r1*n2 + r2, where n1, n2 are the constant or symbolic sizes
    of r1, r2; empty for any other index.

    `terms`: the (term, factor) pairs whose products add up to the index.
    """
    rest, left = set(terms), {r for x, _ in terms for r in ranges(x)}
    found: set[UOp] = set()
    stride = idx(1)
    while left:
        steps = {r: linear(build("MUL", r, stride))[1] for r in left}
        r = next((r for r, t in steps.items() if len(t) == 1 and t[0] in rest), None)
        if r is None:
            return frozenset()
        rest.remove(steps[r][0])
        left.remove(r)
        found.add(r)
        stride = build("MUL", stride, r.src[0])
    return frozenset() if rest else frozenset(found)


def _owns(r: UOp, c: int, others: list[tuple[UOp, int]], sizes: dict[UOp, int]) -> bool:
    """Whether the RANGE r, whose factor in an index is c, owns its addresses (see the module's docstring).

    `others`: the (term, factor) pairs of the rest of the index. `sizes`: {term: largest minus smallest value where the
    gates are open}.
    """
    c, small, large = abs(c), 0, 0
    for x, k in others:
        if k % c == 0 and abs(k) > c:
            large = gcd(large, k)
        else:
            small += abs(k) * sizes[x]
    return small < c and (large == 0 or c * min_max(r)[1] + small < large)


def _terms(u: UOp) -> tuple[tuple[UOp, int], ...]:
    """Return the (term, factor) pairs whose products add up to the index of the STORE or ATOMICADD `u`, without the
    constant; empty if it has no index.
    """
    return linear(u.src[0].src[1])[1] if u.src[0].op == "INDEX" and len(u.src[0].src) > 1 else ()


def _memory(view: UOp) -> UOp:
    """Return the PARAM or BUFFER below the INDEX and AFTER nodes of `view`."""
    while view.op in ("INDEX", "AFTER"):
        view = view.src[0]
    return view


__all__ = [
    "atomic_ranges",
    "carried_ranges",
    "owners",
    "private_local_ranges",
    "running_ranges",
    "scan_depths",
    "sequential_ranges",
]
