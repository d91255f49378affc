"""REDUCE over ranges becomes a loop around an accumulator in REG memory.

Reductions with the same outer loops and the same ranges that do not depend on each other share one loop. Reductions
that do depend on each other (softmax: the maximum, then the sum) get loops of their own, with RANGE nodes of their own,
so from here on a RANGE is exactly one loop. A sum of products is accumulated by multiply-adds. The accumulator of a
reduction whose last step is peeled (`tails`) starts with that step.

Before: REDUCE(ADD, x(r0, r1000), r1000)
After:  LOAD(AFTER(acc, END(STORE(acc, ADD(LOAD(AFTER(acc, STORE(AFTER(acc, r0), 0))), x)), r1000)))
Invariant: no REDUCE over ranges is left; each RANGE is closed in one place of the loop nest.
"""

from __future__ import annotations

from monolect.base.dtype import DType
from monolect.ir.bounds import ranges, replace_ranges, unused_ranges, unused_slots
from monolect.ir.ops import BufferArg, broadcast
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.named_rules import Family, Row, fired, is_on
from monolect.ir.uop import UOp, build, const, idx, node, rebuild, shape_source, toposort
from monolect.lower.peel_last import PEELED

ROWS = Family(
    "lowering", __name__,
    Row("sum_of_products", "sum + a * b, of floats, is mulacc(a, b, sum): the product is not rounded by itself"),
)  # fmt: skip

Group = tuple[frozenset[UOp], tuple[UOp, ...], int]


def neutral(op: str, d: DType) -> UOp:
    """The value that leaves `op` unchanged."""
    return const({"ADD": 0, "MUL": 1, "MAX": d.min}[op], d)


class ReduceLowering:
    """The reductions of one kernel."""

    def __init__(self, sink: UOp):
        self.sink = sink
        order = toposort(sink)
        self.order = order
        self.slots = unused_slots(order)
        self.ids = unused_ranges(order)
        self.clones: dict[tuple, dict[UOp, UOp]] = {}  # by group, and by iteration of what is unrolled

    def run(self) -> UOp:
        if not any(u.op == "REDUCE" and len(u.src) > 1 for u in self.order):
            return self.sink
        new: dict[UOp, UOp] = {}
        level: dict[UOp, int] = {}  # how many reductions a value waits for
        for u in self.order:
            level[u] = max((level[s] for s in u.src), default=0)
            src = tuple(new[s] for s in u.src)
            if u.op == "REDUCE" and len(u.src) > 1:
                level[u] += 1
                new[u] = u if u.tag == PEELED else self._loop(u, src[0], (ranges(u), u.src[1:], level[u]))
            elif u.tag == PEELED:
                rest, last = u.src
                if rest.tag == PEELED:
                    new[u] = self._loop(rest, new[rest.src[0]], (ranges(rest), rest.src[1:], level[rest]), src[1])
                else:
                    new[u] = self._combine(u.op, src[1], [src[0]])
            else:
                new[u] = rebuild(u, src)
        return new[self.sink]

    def _loop(self, u: UOp, body: UOp, group: Group, first: UOp | None = None) -> UOp:
        """The reduction `u` of `body`; the accumulator starts with `first`, by default with the neutral value."""
        op, shape = u.arg[0], body.shape
        if first is not None:
            shape = broadcast([shape, first.shape])
        closed = [r for r in u.src[1:] if r.arg[1] != "UNROLL"]
        mapping = self._own_ranges(group, body, closed)
        closed = [mapping[r] for r in closed]
        steps = self._steps(u, replace_ranges(body, mapping), group)
        if not closed:
            first, *steps = steps if first is None else [first, *steps]
            return _of_shape(self._combine(op, first, steps), shape)
        outer = sorted(group[0], key=lambda r: r.arg[0])
        begin = neutral(op, u.dtype) if first is None else first
        return self._accumulate(u, shape, begin, steps, outer, closed)

    def _accumulate(
        self, u: UOp, shape: tuple, begin: UOp, steps: list[UOp], outer: list[UOp], closed: list[UOp]
    ) -> UOp:
        """What `steps` add up to with `begin`, in loops over `closed` inside of `outer`."""
        acc = node("BUFFER", (shape_source(shape),), BufferArg(next(self.slots), u.dtype, None, "REG"))
        start = node("STORE", (node("AFTER", (acc, *outer)) if outer else acc, begin))
        before = node("LOAD", (node("AFTER", (acc, start, *closed)),))
        end = node("END", (node("STORE", (acc, self._combine(u.arg[0], before, steps))), *closed))
        out = node("LOAD", (node("AFTER", (acc, end)),))
        out.origin = u.origin
        return out

    def _steps(self, u: UOp, body: UOp, key: tuple) -> list[UOp]:
        """`body` in each iteration of what is unrolled."""
        copies: list[tuple[tuple, UOp]] = [(key, body)]
        for r in u.src[1:]:
            if r.arg[1] == "UNROLL":
                found = [(key, b, _own(b, r)) for key, b in copies]
                copies = [
                    ((key, r, i), self._copy(key, b, r, i, own)) for i in range(r.src[0].value) for key, b, own in found
                ]
        return [b for _, b in copies]

    def _copy(self, key: tuple, body: UOp, r: UOp, i: int, own: list[UOp]) -> UOp:
        """`body` in iteration i of the unrolled r. Copies share no memory: a loop inside of r has its own in each."""
        mapping = {r: idx(i)}
        if i:
            loops = {x for v in own if v.op == "END" for x in v.src[1:]}
            places = {memory_of(v.src[0]) for v in own if v.op == "STORE"}
            self._renew((key, r, i), body, loops | places, mapping)
        return replace_ranges(body, mapping)

    def _combine(self, op: str, acc: UOp, steps: list[UOp]) -> UOp:
        """`acc` joined with each step in turn; a product is added without being rounded by itself."""
        for s in steps:
            if op == "ADD" and s.op == "MUL" and s.dtype.is_float and is_on("sum_of_products"):
                acc = fired("sum_of_products", s, build("MULACC", *s.src, acc))
            else:
                acc = build(op, acc, s)
        return acc

    def _own_ranges(self, group: Group, body: UOp, closed: list[UOp]) -> dict[UOp, UOp]:
        """Fresh RANGEs for a group, inner loops and accumulators too: other groups may loop over the same ones."""
        if group not in self.clones:
            self.clones[group] = {r: node("RANGE", r.src, (next(self.ids), r.arg[1])) for r in closed}
        mapping = dict(self.clones[group])
        inner: set[UOp] = set()
        for v in toposort(body):
            if v.op == "END" and not ranges(v).isdisjoint(closed):
                inner.update(v.src[1:])
                inner.update(w for w in toposort(v.src[0]) if w.op == "BUFFER" and w.arg.addrspace == "REG")
        self._renew(group, body, inner, mapping)
        return mapping

    def _renew(self, key: tuple, body: UOp, old: set[UOp], mapping: dict[UOp, UOp]) -> None:
        """Put new loops and accumulators for `old` into `mapping`, those that bound other loops first."""
        mine = self.clones.setdefault(key, {})
        for u in toposort(body) if old else ():
            if u not in old or u in mapping:
                continue
            if u not in mine:
                if u.op == "RANGE":
                    bound = replace_ranges(u.src[0], mapping)
                    mine[u] = node("RANGE", (bound,), (next(self.ids), u.arg[1]))
                else:
                    mine[u] = node("BUFFER", u.src, u.arg._replace(slot=next(self.slots)))
            mapping[u] = mine[u]


def _own(body: UOp, r: UOp) -> list[UOp]:
    """The loops and stores of `body` that are inside of r."""
    return [v for v in toposort(body) if v.op in ("END", "STORE") and r in ranges(v)]


def _of_shape(v: UOp, shape: tuple) -> UOp:
    """`v` with the lanes of what it was before its conditions were known: without them it may be the same in all."""
    if v.shape == shape:
        return v
    ones = (1,) * (len(shape) - len(v.shape))
    return build("EXPAND", build("RESHAPE", v, shape_source((*ones, *v.shape))), shape_source(shape))


def lower_reduce(sink: UOp) -> UOp:
    """See the module docstring."""
    return ReduceLowering(sink).run()
