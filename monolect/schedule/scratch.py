"""Values kept in local memory between the loops of one kernel: stages.

A value that several later loops of one kernel want, and that is too much work to compute again in each, need not go
through memory as a whole: if all of them stand in common outer loops, one iteration of those needs only a part of it.
The part is a stage, computed in loops of its own and kept in local memory, private to the iteration. The scores of
attention are the example: a row of them is wanted by the maximum, by the exponentials and so on, for one query at once.

What it is not: the choice how to run a stage; `optimize` splits its loops as any other. Nor is every chain of loops a
stage: it pays where a product feeds reductions along its rows and these feed a product, and where a row, and what the
products read for it, fit the caches; and for a function dear enough, such as the exponentials of a softmax over rows.
Invariant: a stage's index is full RANGEs: those of the loops around, or its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from monolect.ir.bounds import ranges, size_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.rewrite.normal import TRUE, count, everywhere, is_zero
from monolect.ir.uop import UOp, node
from monolect.schedule.ranges import Index, covers, sources

if TYPE_CHECKING:
    from monolect.schedule.partition import Demand, Partition

FIRST_RANGE = 500  # ids of stages' own loops, until the kernel is built
FEWEST_ROWS = 8
SMALL_WORK = 1 << 15  # values that one thread computes sooner than it wakes others
ROWS = 16  # rows of a stage that must fit local memory several times over
DEAR = frozenset(("EXP2", "LOG2", "SIN", "POW"))  # of which one costs more than a row written and read again
LEAST_ROW = 64  # values of which a row is worth being kept
HIDDEN = -1e29  # a score this low is one that a mask hides
LINEAR_OPS = frozenset(("MUL", "DIV", "WHERE"))


class Stage(NamedTuple):
    """A value kept in local memory by `kernel`: computed at `index`, of which the axes `inner` are its own loops."""

    kernel: int
    index: Index  # type: ignore[assignment]  # hides the method of tuple
    inner: tuple[int, ...]


def is_wanted(part: Partition, u: UOp, demands: list[Demand]) -> bool:
    """True for what would else be computed in several loops: a value that a product is computed for, in a kernel with
    stages, or one that reductions of products were needed for, as a term of another product.
    """
    cost = part.cost[u]
    if u.op not in ELEMENTWISE or not cost.product:
        return is_dear(part, u, demands)
    if part.kernel(demands[0].kernel).staged:
        return len({(d.index, d.red) for d in demands}) > 1
    return cost.rows and any(d.linear and d.out - ranges_of(d.index) for d in demands)


def is_dear(part: Partition, u: UOp, demands: list[Demand]) -> bool:
    """True for a function that several loops along a row would compute, as softmax its exponentials, in a kernel
    without products or other stages.
    """
    if u.op not in DEAR or len(demands) < 2 or part.cost[u].product:
        return False
    k = part.kernel(demands[0].kernel)
    return not (k.reuse or k.staged) and any(d.red for d in demands)


def stage(part: Partition, u: UOp, demands: list[Demand]) -> Stage | None:
    """`u` as a stage of the one kernel that wants it, or None."""
    if not part.local_bytes or not demands:
        return None
    dear = is_dear(part, u, demands)
    if not dear and not part.cost[u].product:
        return None
    number = demands[0].kernel
    k = part.kernel(number)
    if any(d.kernel != number or d.gate is not TRUE for d in demands):
        return None
    if any(s.effect is not None for s in k.stores):
        return None
    if not dear and not part.cost[u].rows and not k.staged:
        return None
    around = frozenset.intersection(*(d.out for d in demands)) & k.all_ranges()
    index = list(demands[0].index)
    inner: list[int] = []
    for a, i in enumerate(index):
        if not ranges(i) <= around or any(d.index[a] is not i for d in demands):
            if any(d.index[a].op != "RANGE" or covers((d.index[a],), (u.shape[a],)) is None for d in demands):
                return None
            index[a] = node("RANGE", i.src, (FIRST_RANGE + part.n_stage_ranges + len(inner), "LOOP"))
            inner.append(a)
    outer = frozenset().union(*(ranges(i) for i in index)) & k.all_ranges()
    row = 1
    for a in inner:
        row *= size_max(u.shape[a])
    once = size(outer) * row <= size_max(count(u.shape))  # each element
    if not inner or not once:
        return None
    if not (fits_alone(part, u, row, inner, outer) if dear else fits(part, u, row, demands, outer)):
        return None
    if not dear and turns(outer, k.blocks) and row <= max(size(d.out - outer) for d in demands):
        return None  # less is spared by it than is stored across memory
    if k.scan in outer or any(not outer <= ranges_of(s.index) for s in k.stores):
        return None
    if k.refined(outer) is None:  # its loops would stand outside of those that another stage is kept in
        return None
    return Stage(number, tuple(index), tuple(inner))


def fits(part: Partition, u: UOp, row: int, demands: list[Demand], outer: frozenset[UOp]) -> bool:
    """Whether there are rows for all threads, and some of them, with what products read beside each, are small: the
    product that wants a row reads as much for every result of its own, be they stored or another stage, and one that
    makes it reads its terms for every element of it.
    """
    beside = max(size(d.out - outer - ranges_of(d.index)) for d in demands)
    if u.op == "REDUCE":
        beside = max(beside, prod(size_max(u.src[0].shape[a]) for a in u.arg[1]))
    if size(outer) < FEWEST_ROWS:
        return False
    return row <= longest_row(u.dtype.itemsize, beside, part.local_bytes)


def fits_alone(part: Partition, u: UOp, row: int, inner: list[int], outer: frozenset[UOp]) -> bool:
    """Whether rows of values that no product reads are neighbours, worth it, and small; and enough for all threads, or
    so little in all that one thread does them anyway.
    """
    return (
        inner == [len(u.shape) - 1]
        and (size(outer) >= FEWEST_ROWS or size(outer) * row <= SMALL_WORK)
        and LEAST_ROW <= row <= part.local_bytes // ROWS // u.dtype.itemsize
    )


def longest_row(itemsize: int, beside: int, local_bytes: int) -> int:
    """Elements of a row of which several fit local memory, with `beside` others that a product reads for each."""
    return local_bytes // (itemsize * max(2 * ROWS, 2 * beside))


def main_source(u: UOp, d: Demand) -> UOp | None:
    """The source that `u`, a factor of a sum's terms, is a multiple of: what is constant along the sum may leave it."""
    if not d.linear or u.op not in LINEAR_OPS or not d.red:
        return None
    main = [s for s, index, _ in sources(u, d.index, d.gate) if not ranges_of(index).isdisjoint(d.red)]
    if len(main) != 1 or (u.op == "DIV" and main[0] is not u.src[0]):
        return None
    if u.op == "WHERE" and not (main[0] is u.src[2] and hides(u)):
        return None
    return main[0]


def hides(u: UOp) -> bool:
    """Whether the WHERE `u` is 0 in the rows of which a mask hides the highest score. A sum of multiples of it may be 0
    there whatever is multiplied (docs/semantics.md). Any other choice of 0 must stay a factor: 0 * inf is nan.
    """
    c = u.src[0]
    limit = everywhere(c.src[1]) if c.op == "CMPLT" else c
    return is_zero(u.src[1]) and limit.op == "CONST" and limit.value <= HIDDEN


def turns(rs: frozenset[UOp], blocks: list[frozenset[UOp]]) -> bool:
    """Whether the innermost loop of a chain, along which memory lies, would stand outside of others if `rs` did."""
    order = [r for b in blocks for r in sorted(b, key=lambda r: r.arg[0])]
    return bool(order) and order[-1] in rs and not rs.issuperset(order)


def size(rs: Iterable[UOp]) -> int:
    """The most iterations of a nest of loops."""
    return prod(size_max(r.src[0].value if r.src[0].op == "CONST" else r.src[0]) for r in rs)


def ranges_of(index: Index) -> frozenset[UOp]:
    """The ranges of all axes."""
    return frozenset().union(*(ranges(i) for i in index)) if index else frozenset()
