"""Keep values in local memory between the loops of one kernel: scratch values.

A scratch value is used by several later loops of one kernel and is expensive to recompute in each. If all of these
loops are nested in common outer loops, one iteration of those needs only a part of the value. The part is computed in
its own loops and kept in local memory, private to the iteration. The scores of attention are an example: the maximum,
the exponentials and so on need one row of scores for each query.

What it is not: it does not choose how to run the loops; `optimize` splits them like any others. A scratch value is used
only where a contraction feeds reductions along its rows and these feed another contraction, if a row and its operands
fit the caches; and for expensive functions, such as the exponentials of a softmax over rows.
Invariant: the index of a scratch value consists of full RANGEs: outer loops or its own loops.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from monolect.ir.bounds import ranges, size_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.rewrite.normal import TRUE, count, is_zero, unbroadcast
from monolect.ir.uop import UOp, node
from monolect.schedule.kernel_graph import Demand, KernelGraph
from monolect.schedule.ranges import Index, covers, ranges_of, size, sources

FIRST_RANGE = 500  # numbers of the loops of scratch values, until the kernel is built
MIN_ROWS = 8  # iterations of the outer loops; with fewer, threads would be idle
SMALL_WORK = 1 << 15  # elements; below it, one thread finishes before others wake up
ROWS = 16  # rows of a scratch value that must fit local memory together
EXPENSIVE = frozenset(("EXP2", "LOG2", "SIN", "POW"))  # ops that cost more than storing and loading their result
MIN_ROW = 64  # elements; shorter rows are recomputed
HIDDEN = -1e29  # a score up to this is taken as masked
LINEAR_OPS = frozenset(("MUL", "DIV", "WHERE"))  # ops that may only scale one of their sources


class ScratchValue(NamedTuple):
    """A value in local memory of `kernel`, computed at `index`; the axes `inner` of the index are its own loops."""

    kernel: int
    index: Index  # type: ignore[assignment]  # hides the method of tuple
    inner: tuple[int, ...]


def is_worth_scratch(part: KernelGraph, u: UOp, demands: list[Demand]) -> bool:
    """Whether several loops would compute `u` again, and `u` is an expensive function or derived from a contraction.

    A derived value counts in a kernel with scratch values, or as a factor of another contraction if it depends on
    reductions of products.
    """
    cost = part.cost[u]
    if u.op not in ELEMENTWISE or not cost.product:
        return is_expensive(part, u, demands)
    if part.kernel(demands[0].kernel).staged:
        return len({(d.index, d.red) for d in demands}) > 1
    return cost.rows and any(d.linear and d.out - ranges_of(d.index) for d in demands)


def is_expensive(part: KernelGraph, u: UOp, demands: list[Demand]) -> bool:
    """Whether several loops along a row would compute the expensive function `u`, in a kernel without contraction or
    scratch.

    The exponentials of a softmax are an example.
    """
    if u.op not in EXPENSIVE or len(demands) < 2 or part.cost[u].product:
        return False
    k = part.kernel(demands[0].kernel)
    return not (k.reuse or k.staged) and any(d.red for d in demands)


def scratch_value(part: KernelGraph, u: UOp, demands: list[Demand]) -> ScratchValue | None:
    """Return `u` as a ScratchValue of the one kernel that demands it, or None if that is impossible or does not pay."""
    if not part.local_bytes or not demands:
        return None
    expensive = is_expensive(part, u, demands)
    if not expensive and not part.cost[u].product:
        return None
    number = demands[0].kernel
    k = part.kernel(number)
    if any(d.kernel != number or d.gate is not TRUE for d in demands):
        return None
    if any(s.effect is not None for s in k.stores):
        return None
    if not expensive and not part.cost[u].rows and not k.staged:
        return None
    around = frozenset.intersection(*(d.out for d in demands)) & k.all_ranges()
    index = list(demands[0].index)
    inner: list[int] = []
    for a, i in enumerate(index):
        if not ranges(i) <= around or any(d.index[a] is not i for d in demands):
            if any(d.index[a].op != "RANGE" or covers((d.index[a],), (u.shape[a],)) is None for d in demands):
                return None
            index[a] = node("RANGE", i.src, (FIRST_RANGE + part.n_scratch_ranges + len(inner), "LOOP"))
            inner.append(a)
    outer = frozenset().union(*(ranges(i) for i in index)) & k.all_ranges()
    row = 1
    for a in inner:
        row *= size_max(u.shape[a])
    once = size(outer) * row <= size_max(count(u.shape))  # whether each element is computed once
    if not inner or not once:
        return None
    if not (fits_without_products(part, u, row, inner, outer) if expensive else fits(part, u, row, demands, outer)):
        return None
    if not expensive and moves_innermost_out(outer, k.blocks) and row <= max(size(d.out - outer) for d in demands):
        return None  # the strided stores cost more than the recomputation
    if k.scan in outer or any(not outer <= ranges_of(s.index) for s in k.stores):
        return None
    if k.refined(outer) is None:  # its loops would enclose the loops of another scratch value
        return None
    return ScratchValue(number, tuple(index), tuple(inner))


def fits(part: KernelGraph, u: UOp, row: int, demands: list[Demand], outer: frozenset[UOp]) -> bool:
    """Whether there are enough rows for all threads, and several rows of `u` fit local memory with the contractions'
    operands.

    A contraction that reads a row loads operands for every element of its own result. A contraction that computes a row
    loads its terms for every element of the row.
    """
    per_element = max(size(d.out - outer - ranges_of(d.index)) for d in demands)
    if u.op == "REDUCE":
        per_element = max(per_element, prod(size_max(u.src[0].shape[a]) for a in u.arg[1]))
    if size(outer) < MIN_ROWS:
        return False
    return row <= longest_row(u.dtype.itemsize, per_element, part.local_bytes)


def fits_without_products(part: KernelGraph, u: UOp, row: int, inner: list[int], outer: frozenset[UOp]) -> bool:
    """Whether rows of a value that no contraction reads are contiguous, long enough, and small enough for local memory.

    There must also be enough rows for all threads, or so few elements that one thread computes them.
    """
    return (
        inner == [len(u.shape) - 1]
        and (size(outer) >= MIN_ROWS or size(outer) * row <= SMALL_WORK)
        and MIN_ROW <= row <= part.local_bytes // ROWS // u.dtype.itemsize
    )


def longest_row(itemsize: int, per_element: int, local_bytes: int) -> int:
    """Return the most elements a row may have so that several rows fit local memory.

    `per_element`: operand elements that a contraction reads for each element of a row.
    """
    return local_bytes // (itemsize * max(2 * ROWS, 2 * per_element))


def main_source(u: UOp, d: Demand) -> UOp | None:
    """Return the source that the demand's sum runs over if `u` only scales it, so that `u` can be moved out of the sum;
    or None.

    `u` must be a factor of each term, and its other sources constant along the sum.
    """
    if not d.linear or u.op not in LINEAR_OPS or not d.red:
        return None
    main = [s for s, index, _ in sources(u, d.index, d.gate) if not ranges_of(index).isdisjoint(d.red)]
    if len(main) != 1 or (u.op == "DIV" and main[0] is not u.src[0]):
        return None
    if u.op == "WHERE" and not (main[0] is u.src[2] and zeroes_masked_rows(u)):
        return None
    return main[0]


def zeroes_masked_rows(u: UOp) -> bool:
    """Whether `u` is WHERE(x < c, 0, y) with a constant c <= HIDDEN, the form in which masked rows are zeroed.

    x is taken to be the highest score of a row, which is not checked.
    """
    c = u.src[0]
    limit = unbroadcast(c.src[1]) if c.op == "CMPLT" else c
    return is_zero(u.src[1]) and limit.op == "CONST" and limit.value <= HIDDEN


def moves_innermost_out(rs: frozenset[UOp], blocks: list[frozenset[UOp]]) -> bool:
    """Whether making `rs` the outer loops would move the innermost, contiguous loop of the chain outside of other
    loops.
    """
    order = [r for b in blocks for r in sorted(b, key=lambda r: r.arg[0])]
    return bool(order) and order[-1] in rs and not rs.issuperset(order)


__all__ = [
    "FIRST_RANGE",
    "LINEAR_OPS",
    "SMALL_WORK",
    "ScratchValue",
    "fits",
    "fits_without_products",
    "is_expensive",
    "is_worth_scratch",
    "longest_row",
    "main_source",
    "moves_innermost_out",
    "scratch_value",
    "zeroes_masked_rows",
]
