"""Classify a kernel by the properties of its loops and operands, in the field's terms: gemm, scan, gather, ...

What it is for: reports (`monolect explain`, DEBUG=2), and a word under which measurements and choices are compared.
What it is not: an input of the heuristic, which decides on the properties themselves.

Invariant: the class depends on the kernel's loops before actions are chosen, and on no target, name or size of memory.
"""

from __future__ import annotations

from enum import StrEnum

from monolect.base.target import Target
from monolect.ir.bounds import ranges
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, toposort
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.cost import Profile, StridedAccess

_NO_TARGET = Target("any", frozenset())
_WRITES = ("STORE", "ATOMICADD")


class KernelClass(StrEnum):
    """The classes of kernels, in the order in which `classify` tries them."""

    SORT = "sort"
    SCATTER = "scatter"
    SCAN = "scan"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    GEMM = "gemm"
    GEMV = "gemv"
    POOLING = "pooling"
    COLUMN_REDUCTION = "column reduction"
    ROW_REDUCTION = "row reduction"
    GATHER = "gather"
    TRANSPOSE = "transpose"
    ELEMENTWISE = "elementwise"
    OTHER = "other"


MEANINGS: dict[KernelClass, str] = {
    KernelClass.SORT: "exchanges elements by comparison, or stores each element where a counter of its key says",
    KernelClass.SCATTER: "the address of a store depends on loaded values",
    KernelClass.SCAN: "a loop over outputs carries a value to its next iteration",
    KernelClass.ATTENTION: "several products, with local memory between them",
    KernelClass.CONVOLUTION: "sums of products in which overlapping windows share an operand's elements",
    KernelClass.GEMM: "sums in which every operand is read again for some output",
    KernelClass.GEMV: "sums of products in which one operand is read once and another again",
    KernelClass.POOLING: "other reductions of overlapping windows",
    KernelClass.COLUMN_REDUCTION: "reductions whose operands are contiguous along an output, not along the reduction",
    KernelClass.ROW_REDUCTION: "all other reductions",
    KernelClass.GATHER: "the address of a load depends on loaded values",
    KernelClass.TRANSPOSE: "contiguous along one loop where it stores, along another where it loads",
    KernelClass.ELEMENTWISE: "no reduction: each output depends on a few inputs at addresses known from the loops",
    KernelClass.OTHER: "the user fixed the axis types",
}


def classify(kernel: UOp) -> KernelClass:
    """Return the class of the kernel with the SINK `kernel`, for which no actions are chosen yet. Call it after the
    pass `merge_ranges`, which leaves fewer loops.
    """
    plan = LoopPlan(kernel, _NO_TARGET)
    return KernelClass.OTHER if plan.is_given else _Facts(plan).kernel_class()


class _Facts:
    """Properties of the kernel with the plan `plan` on which its class depends."""

    def __init__(self, plan: LoopPlan):
        self.plan, self.profile = plan, Profile(plan)

    def kernel_class(self) -> KernelClass:
        """Return the first class of `KernelClass` that fits the kernel."""
        plan = self.plan
        if self.exchanges_by_comparison() or self.stores_by_counter():
            return KernelClass.SORT
        if any(_is_indirect(u) for u in plan.order if u.op in _WRITES and _is_global(u)):
            return KernelClass.SCATTER
        if plan.running or (plan.carried & frozenset(plan.outputs) and not plan.has_vectors):
            return KernelClass.SCAN
        if plan.reduced:
            return self.class_of_reduction()
        if any(_is_indirect(a.uop) for a in self.profile.loads):
            return KernelClass.GATHER
        return KernelClass.TRANSPOSE if self.is_transposed() else KernelClass.ELEMENTWISE

    # ---- without reductions ------------------------------------------------------------------------------------------
    def exchanges_by_comparison(self) -> bool:
        """Whether the kernel exchanges elements as a sorting network does: one comparison a < b selects both the
        smaller and the larger of a and b.
        """
        selected = {u.src for u in self.plan.order if u.op == "WHERE"}
        return any(
            src[0].op == "CMPLT" and {*src[0].src} == {*src[1:]} and src[1] is not src[2]
            and (src[0], src[2], src[1]) in selected
            for src in selected
        )  # fmt: skip

    def stores_by_counter(self) -> bool:
        """Whether the kernel sorts by counting: the address of a store depends on a table in local memory whose entries
        are counted up at addresses that depend on loaded values.
        """
        counters = {
            memory_of(u.src[0]) for u in self.plan.order if u.op in _WRITES and _is_indirect(u) and not _is_global(u)
        }
        addresses = [x for u in self.plan.order if u.op in _WRITES and _is_global(u) for x in toposort(u.src[0].src[1])]
        return any(x.op == "LOAD" and memory_of(x.src[0]) in counters for x in addresses)

    def is_transposed(self) -> bool:
        """Whether the kernel transposes: a load is strided along the loop in which stores are contiguous, and
        contiguous along another output loop.
        """
        for r in self.plan.outputs:
            strided = [a for a in self.profile.loads if a.step(r) not in (0, 1, -1, None)]
            if any(a.step(r) == 1 for a in self.profile.stores) and strided:
                return any(a.step(c) == 1 for a in strided for c in self.plan.outputs if c is not r)
        return False

    # ---- reductions --------------------------------------------------------------------------------------------------
    def class_of_reduction(self) -> KernelClass:
        """Return the class of a kernel with reductions: attention, convolution, pooling, gemm, gemv, or a row or column
        reduction.
        """
        products = {self.profile.scope(j) for j in self.plan.reduced if self.profile.reuses(j)}
        if self.is_attention():
            return KernelClass.ATTENTION
        windows = any(self.has_windows(a) for a in self.profile.loads)
        multiplies = any(u.src[0].op == "MUL" for u in self.plan.reduces)
        if windows:
            return KernelClass.CONVOLUTION if multiplies and len(self.operands()) > 1 else KernelClass.POOLING
        if products:
            return KernelClass.GEMM
        if any(self.is_matrix_by_vector(u) for u in self.plan.reduces):
            return KernelClass.GEMV
        return self.direction()

    def is_attention(self) -> bool:
        """Whether one sum of products fills a scratch buffer in local memory, and another sum of products reads local
        memory, as in attention.
        """
        fills = {x for e in self.plan.scratch.fills.values() for x in toposort(e)}
        products = [u for u in self.plan.reduces if u.src[0].op == "MUL" and u.src[0].src[0] is not u.src[0].src[1]]
        last = [u for u in products if u not in fills]
        return any(u in fills for u in products) and any(
            x.op == "LOAD" and memory_of(x.src[0]) in self.plan.scratch.fills for u in last for x in toposort(u.src[0])
        )

    def operands(self) -> set[UOp]:
        """The set of PARAMs and BUFFERs that the terms of the reductions read."""
        return {memory_of(a.uop.src[0]) for j in self.plan.reduced for a in self.profile.inside(j)}

    def has_windows(self, a: StridedAccess) -> bool:
        """Whether an output loop and a reduction inside it move the load `a` over overlapping windows of memory, as in
        a convolution or pooling.
        """
        gates = _conjuncts(a.uop.src[2]) if len(a.uop.src) == 3 else []
        cut = {r for g in gates if len(ranges(g)) == 1 for r in ranges(g)}  # loops whose ends the load does not reach
        free = [(r, abs(s)) for r, s in a.steps.items() if s and r not in cut and self.plan.extent(r) > 1]
        outputs, reduced = ([x for x in free if x[0] in rs] for rs in (self.plan.outputs, self.plan.reduced))
        return any(
            _overlap(s, self.plan.extent(r), t, self.plan.extent(j))
            for j, t in reduced for r, s in outputs if r in self.profile.scope(j)
        )  # fmt: skip

    def is_matrix_by_vector(self, u: UOp) -> bool:
        """Whether the REDUCE `u` sums products of a matrix element, which moves along all loops around, and a vector
        element, which moves along the reduction only.
        """
        body = u.src[0].src[0] if u.src[0].op == "CAST" else u.src[0]
        scope = {r for r in ranges(u) if self.plan.extent(r) > 1}
        if body.op != "MUL" or not scope:
            return False
        moves = [ranges(x) for x in body.src if any(y.op == "LOAD" for y in toposort(x))]
        along = [rs for rs in moves if not rs.isdisjoint(u.src[1:])]
        return len(along) == 2 and sum(scope <= rs for rs in along) == 1

    def direction(self) -> KernelClass:
        """Return the class of a kernel with reductions but without products or windows: COLUMN_REDUCTION if operands of
        the largest reduction are contiguous along an output loop and none along the reduction, else ROW_REDUCTION.
        """
        j = max(self.plan.reduced, key=self.plan.extent)
        inside = self.profile.inside(j)
        along = [k for u in self.plan.reduces if j in u.src[1:] for k in u.src[1:]]
        rows = any(a.step(k) in (1, -1) for a in inside for k in along)
        columns = any(a.step(r) in (1, -1) for a in inside for r in self.plan.outputs)
        return KernelClass.COLUMN_REDUCTION if columns and not rows else KernelClass.ROW_REDUCTION


def _overlap(s: int, n: int, t: int, m: int) -> bool:
    """Whether windows overlap in memory: n positions with a stride of s elements, and m positions with a stride of t
    elements.

    The larger stride must be a multiple of the smaller one, and the positions with the smaller stride must reach beyond
    the larger stride.
    """
    short, long, count = (s, t, n) if s <= t else (t, s, m)
    return long % short == 0 and long // short < count


def _conjuncts(gate: UOp) -> list[UOp]:
    """Return the conditions whose AND is `gate`."""
    return [x for s in gate.src for x in _conjuncts(s)] if gate.op == "AND" else [gate]


def _is_indirect(u: UOp) -> bool:
    """Whether the address of the LOAD, STORE or ATOMICADD `u` depends on a loaded value."""
    return len(u.src[0].src) > 1 and any(x.op == "LOAD" for x in toposort(u.src[0].src[1]))


def _is_global(u: UOp) -> bool:
    """Whether the STORE or ATOMICADD `u` writes to memory that outlives the kernel."""
    return memory_of(u.src[0]).op == "PARAM"


__all__ = ["MEANINGS", "KernelClass", "classify"]
