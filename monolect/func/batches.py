"""Add a leading axis to a graph: the graph of one sample becomes the graph of all samples.

What it is for: `vmap` traces a function once, on one sample, and gives each node that depends on the sample a leading
axis. There is one rule for each op of graphs of tensors; the result is an ordinary graph.
What it is not: it has no rule for calls of kernels, and none for values that several devices divide.
Invariants: row k of a result is the result for row k of the inputs. A node that does not depend on the sample stays as
it is. Derivatives in closed form get the axis, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from monolect.autograd import graph
from monolect.autograd.closed_forms import ClosedForm, closed, closed_form, replace
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError
from monolect.graphs.bitonic_sort import sort_by_network, sortings
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.placement import axis, device
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, new_buffer, node, rebuild, toposort

_SAME: Final = frozenset(("CONTIGUOUS", "CONTIGUOUS_BACKWARD", "DETACH", "GROUP", "BITCAST"))


def batched(roots: Sequence[UOp], values: Mapping[UOp, UOp], n: int) -> list[UOp]:
    """Return `roots` with each key of `values` replaced by its value, which has a leading axis of size `n` more.

    The results have this axis, too. Raises ArgumentError for a node without a rule.
    """
    walk = _Walk(dict(values), n)
    walk.through(roots)
    return [walk.whole(r) for r in roots]


class _Walk:
    """The nodes that have the leading axis of size `n`: `new` maps a node of one sample to that of all."""

    def __init__(self, new: dict[UOp, UOp], n: int) -> None:
        self.new, self.n = new, n
        self.seen: set[UOp] = set()

    def whole(self, u: UOp) -> UOp:
        """Return `u` with the leading axis: repeated along it if it does not depend on the sample."""
        known = self.new.get(u)
        return graph.expand(graph.reshape(u, (1, *u.shape)), (self.n, *u.shape)) if known is None else known

    def through(self, roots: Sequence[UOp]) -> None:
        """Add the nodes of the graphs of `roots` that depend on the sample to `new`."""
        new = self.new
        order = toposort(*roots, stop=lambda u: u in new or u in self.seen)
        self.seen.update(order)
        wanted = self._dependent(order)
        for u in order:
            if u in wanted and u not in new:
                new[u] = self._written(u) if not any(s in new for s in u.src) else self._node(u)
                if u in closed:
                    inputs, derivative = closed[u]  # inputs that are views may be merged with others below `u`
                    self.through(inputs)
                    form = _form(u, inputs, derivative, [x in new for x in inputs], self.n)
                    closed_form(new[u], tuple(new.get(x, x) for x in inputs), form)

    def _dependent(self, order: list[UOp]) -> set[UOp]:
        """Return the nodes of `order` that depend on the sample, and the memory that such nodes are written to."""
        found, n_before = set(self.new), -1
        while len(found) != n_before:
            n_before = len(found)
            for u in order:
                if not found.isdisjoint(u.src):
                    found.add(u)
                    if u.op == "AFTER":
                        found.add(u.src[0])
        for u in order:
            if u.op == "AFTER" and u.src[0].op == "BUFFER" and u.src[0] in self.new:  # a write to a sample
                self.new[u.src[0]] = build("CONTIGUOUS", self.new[u.src[0]])
        return found

    def _written(self, u: UOp) -> UOp:
        """Return memory for all samples with the values of `u`, memory of one sample that is written to."""
        if u.op == "BUFFER" and u.storage is not None:
            raise ArgumentError("vmap: a write to a tensor from outside", expected="a function that returns its values")
        if u.op == "BUFFER":  # memory that is written before it is read
            return new_buffer((self.n, *u.shape), u.dtype, device(u))
        return build("CONTIGUOUS", self.whole(u.src[0] if u.op == "CONTIGUOUS" else u))

    def _node(self, u: UOp) -> UOp:
        rule = RULES.get(u.op)
        if rule is None or isinstance(device(u), tuple):
            raise _without_rule(u.op)
        return rule(self, u)


# ---- rules -----------------------------------------------------------------------------------------------------------
def _elementwise(walk: _Walk, u: UOp) -> UOp:
    """Align the operands that have the leading axis: their other axes are the last ones of the result."""

    def operand(s: UOp) -> UOp:
        if s not in walk.new:
            return s
        return graph.reshape(walk.new[s], (walk.n, *(1,) * (len(u.shape) - len(s.shape)), *s.shape))

    return rebuild(u, tuple(map(operand, u.src)))


def _store(walk: _Walk, u: UOp) -> UOp:
    memory, value, *gate = u.src
    shape = (walk.n, *memory.shape)
    others = [graph.broadcast_to(_aligned(walk, s, len(memory.shape)), shape) for s in (value, *gate)]
    return node(u.op, (walk.whole(memory), *others), u.arg, u.tag)


def _aligned(walk: _Walk, s: UOp, rank: int) -> UOp:
    """Return `s` with the leading axis and `rank` axes behind it."""
    return graph.reshape(walk.whole(s), (walk.n, *(1,) * (rank - len(s.shape)), *s.shape)) if s in walk.new else s


def _index(walk: _Walk, u: UOp) -> UOp:
    """Index by one number: that of the element, in row-major order, among those of all indexed axes."""
    base, *indices = u.src
    sizes, rest = base.shape[: len(indices)], base.shape[len(indices) :]
    rank, at, used = sum(len(i.shape) for i in indices), None, 0
    for i, size in zip(indices, sizes, strict=True):
        behind = (1,) * (rank - used - len(i.shape))
        own = graph.cast(walk.new.get(i, i), dtypes.index)
        own = graph.reshape(own, (*(own.shape[:1] if i in walk.new else ()), *(1,) * used, *i.shape, *behind))
        used += len(i.shape)
        at = own if at is None else build("ADD", build("MUL", at, graph.size(size, dtypes.index)), own)
    assert at is not None
    if base in walk.new:
        first = graph.reshape(graph.iota(walk.n, dtypes.index, 0, 1), (walk.n, *(1,) * rank))
        at = build("ADD", build("MUL", first, graph.size(count(sizes), dtypes.index)), at)
        return build("INDEX", graph.reshape(walk.new[base], (walk.n * count(sizes), *rest)), at)
    return build("INDEX", graph.reshape(base, (count(sizes), *rest)), at)


def _after(walk: _Walk, u: UOp) -> UOp:
    """Order memory behind its effects; what a sort writes is sorted for all samples."""
    call = u.src[1]
    if call.op != "CALL":
        return rebuild(u, tuple(walk.new.get(s, s) for s in u.src))
    sorting = sortings[call.src[0]]
    x = graph.reshape(walk.whole(call.src[2]), (walk.n * sorting.rows, sorting.n))
    found = sort_by_network(x, sorting.descending, sorting.for_indices, sorting.first)
    return graph.reshape(found, (walk.n, *u.shape))


def _call(walk: _Walk, u: UOp) -> UOp:
    """Return the call as it is if `_after` has a rule for it."""
    if u.src[0] not in sortings:
        raise _without_rule("a custom kernel")
    return u


def _without_rule(found: str) -> ArgumentError:
    expected = "operations of tensors on one device, without custom kernels"
    return ArgumentError("vmap: a function with an operation that has no batches", expected=expected, found=found)


def _stack(walk: _Walk, u: UOp) -> UOp:
    rows = build("STACK", *map(walk.whole, u.src))
    return graph.permute(rows, (1, 0, *range(2, len(rows.shape))))


def _reduce(walk: _Walk, u: UOp) -> UOp:
    op, axes = u.arg
    return build("REDUCE", walk.new[u.src[0]], arg=(op, tuple(a + 1 for a in axes)))


def _load(walk: _Walk, u: UOp) -> UOp:
    return rebuild(u, (walk.new[u.src[0]], *u.src[1:]))


def _view(make: Callable[[UOp, UOp, int], UOp]) -> Callable[[_Walk, UOp], UOp]:
    """Return the rule of a view: `make(view, new source, n)` returns the view of the new source."""
    return lambda walk, u: make(u, walk.new[u.src[0]], walk.n)


def _first(sizes: Sequence[Any]) -> tuple[Any, ...]:
    return (0, *sizes)


RULES: Final[dict[str, Callable[[_Walk, UOp], UOp]]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(_SAME, lambda walk, u: rebuild(u, tuple(walk.new.get(s, s) for s in u.src))),
    **dict.fromkeys(("STORE", "ATOMICADD"), _store),
    "AFTER": _after,
    "CALL": _call,
    "INDEX": _index,
    "STACK": _stack,
    "REDUCE": _reduce,
    "LOAD": _load,
    "PERMUTE": _view(lambda u, x, n: graph.permute(x, (0, *(a + 1 for a in u.arg)))),
    "FLIP": _view(lambda u, x, n: build("FLIP", x, arg=(False, *u.arg))),
    "RESHAPE": _view(lambda u, x, n: graph.reshape(x, (n, *u.shape))),
    "EXPAND": _view(lambda u, x, n: graph.expand(x, (n, *u.shape))),
    "PAD": _view(lambda u, x, n: graph.pad_invalid(x, _first(u.src[1].sizes), (n, *u.shape))),
    "SHRINK": _view(lambda u, x, n: graph.shrink(x, _first(u.src[1].sizes), (n, *u.shape))),
}


def _form(u: UOp, inputs: tuple[UOp, ...], derivative: ClosedForm, on: Sequence[bool], n: int) -> ClosedForm:
    """Return the derivative in closed form of `u` with the leading axis, from its `derivative` by `inputs`.

    `on` says which of the inputs have the axis.
    """
    like = [(x.shape, x.dtype, device(x), axis(x)) for x in (u, u, *inputs)]

    def form(g: UOp, y: UOp, *xs: UOp) -> list[UOp | None]:
        first, value, *sample = [new_buffer(shape, dtype, where, layout) for shape, dtype, where, layout in like]
        parts = derivative(first, value, *sample)
        wanted = [d for d in parts if d is not None]
        values = {first: g, value: y} | {s: x for s, x, is_on in zip(sample, xs, on, strict=True) if is_on}
        others = {s: x for s, x, is_on in zip(sample, xs, on, strict=True) if not is_on}
        found = iter(replace(tuple(batched(wanted, values, n)), others))
        return [None if d is None else next(found) for d in parts]

    return form


__all__ = ["RULES", "batched"]
