"""Lower REDUCE over ranges to a loop around an accumulator in REG memory.

Independent reductions with the same outer loops and the same ranges share one loop. Dependent reductions (softmax: the
maximum, then the sum) get separate loops with separate RANGE nodes, so from here on a RANGE is exactly one loop. A sum
of products is accumulated by multiply-adds. The accumulator of a reduction whose last iteration is peeled (`peel_last`)
starts with that iteration.

Before: REDUCE(ADD, x(r0, r1000), r1000)
After:  LOAD(AFTER(acc, END(STORE(acc, ADD(LOAD(AFTER(acc, STORE(AFTER(acc, r0), 0))), x)), r1000)))
Invariant: no REDUCE over ranges is left; each RANGE is closed at one point of the loop nest.
"""

from __future__ import annotations

from monolect.ir.bounds import ranges, replace_ranges, unused_ranges, unused_slots
from monolect.ir.ops import BufferArg, broadcast
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.named_rules import Family, Row, fired, is_on
from monolect.ir.rewrite.normal import neutral
from monolect.ir.uop import UOp, broadcast_to, build, idx, node, nodes_of, rebuild, shape_source, toposort
from monolect.lower.peel_last import PEELED

ROWS = Family(
    "lowering", __name__,
    Row("sum_of_products", "sum + a * b, of floats, is mulacc(a, b, sum)"),
)  # fmt: skip

# reductions that share a loop: (outer RANGEs, reduced RANGEs, number of nested reductions)
Group = tuple[frozenset[UOp], tuple[UOp, ...], int]


class ReduceLowering:
    """Lowers the reductions of one kernel."""

    def __init__(self, sink: UOp):
        self.sink = sink
        order = nodes_of(sink)
        self.order = order
        self.slots = unused_slots(order)
        self.ids = unused_ranges(order)
        # copies of loops and accumulators, by group and by unrolled iteration
        self.clones: dict[tuple, dict[UOp, UOp]] = {}

    def run(self) -> UOp:
        """Return the SINK without REDUCEs over ranges."""
        if not any(u.op == "REDUCE" and len(u.src) > 1 for u in self.order):
            return self.sink
        new: dict[UOp, UOp] = {}
        level: dict[UOp, int] = {}  # reductions that a value depends on, nested
        for u in self.order:
            level[u] = max((level[s] for s in u.src), default=0)
            src = tuple(new[s] for s in u.src)
            if u.op == "REDUCE" and len(u.src) > 1:
                level[u] += 1
                new[u] = u if u.tag == PEELED else self._loop(u, src[0], (ranges(u), u.src[1:], level[u]))
            elif u.tag == PEELED:
                rest, last = u.src
                if rest.op == "REDUCE" and rest.tag == PEELED:
                    new[u] = self._loop(rest, new[rest.src[0]], (ranges(rest), rest.src[1:], level[rest]), src[1])
                else:
                    new[u] = self._combine(u.op, src[1], [src[0]])
            else:
                new[u] = rebuild(u, src)
        return new[self.sink]

    def _loop(self, u: UOp, body: UOp, group: Group, first: UOp | None = None) -> UOp:
        """Return the reduction `u` of `body`, with an accumulator that starts with `first` or else the neutral value.

        `group`: the reductions that share its loop.
        """
        op, shape = u.arg[0], body.shape
        if first is not None:
            shape = broadcast([shape, first.shape])
        closed = [r for r in u.src[1:] if r.arg[1] != "UNROLL"]
        mapping = self._own_ranges(group, body, closed)
        closed = [mapping[r] for r in closed]
        steps = self._steps(u, replace_ranges(body, mapping), group)
        if not closed:
            first, *steps = steps if first is None else [first, *steps]
            return broadcast_to(self._combine(op, first, steps), shape)
        outer = sorted(group[0], key=lambda r: r.arg[0])
        begin = neutral(op, u.dtype) if first is None else first
        return self._accumulate(u, shape, begin, steps, outer, closed)

    def _accumulate(
        self, u: UOp, shape: tuple, begin: UOp, steps: list[UOp], outer: list[UOp], closed: list[UOp]
    ) -> UOp:
        """Return the LOAD of an accumulator that starts with `begin` and takes `steps` in each iteration of `closed`.

        The loops `closed` are nested in the loops `outer`.
        """
        acc = node("BUFFER", (shape_source(shape),), BufferArg(next(self.slots), u.dtype, None, "REG"))
        start = node("STORE", (node("AFTER", (acc, *outer)) if outer else acc, begin))
        before = node("LOAD", (node("AFTER", (acc, start, *closed)),))
        end = node("END", (node("STORE", (acc, self._combine(u.arg[0], before, steps))), *closed))
        out = node("LOAD", (node("AFTER", (acc, end)),))
        out.origin = u.origin
        return out

    def _steps(self, u: UOp, body: UOp, key: tuple) -> list[UOp]:
        """Return a copy of `body` for each iteration of the UNROLL ranges of the REDUCE `u`.

        `key` identifies the loop around `body`; copies of inner loops are memoized by it.
        """
        copies: list[tuple[tuple, UOp]] = [(key, body)]
        for r in u.src[1:]:
            if r.arg[1] == "UNROLL":
                found = [(key, b, _own(b, r)) for key, b in copies]
                copies = [
                    ((key, r, i), self._copy(key, b, r, i, own)) for i in range(r.src[0].value) for key, b, own in found
                ]
        return [b for _, b in copies]

    def _copy(self, key: tuple, body: UOp, r: UOp, i: int, own: list[UOp]) -> UOp:
        """Return `body` in iteration i of the unrolled range r.

        `own` are the ENDs and STOREs inside of r. Each iteration but the first gets copies of their loops and buffers;
        bodies with the same `key` share these copies.
        """
        mapping = {r: idx(i)}
        if i:
            loops = {x for v in own if v.op == "END" for x in v.src[1:]}
            memories = {memory_of(v.src[0]) for v in own if v.op == "STORE"}
            self._add_clones((key, r, i), body, loops | memories, mapping)
        return replace_ranges(body, mapping)

    def _combine(self, op: str, acc: UOp, steps: list[UOp]) -> UOp:
        """Combine `acc` by `op` with each of `steps` in turn.

        A product of floats is added by MULACC, which a target may round only once.
        """
        for s in steps:
            if op == "ADD" and s.op == "MUL" and s.dtype.is_float and is_on("sum_of_products"):
                acc = fired("sum_of_products", s, build("MULACC", *s.src, acc))
            else:
                acc = build(op, acc, s)
        return acc

    def _own_ranges(self, group: Group, body: UOp, closed: list[UOp]) -> dict[UOp, UOp]:
        """Map the loops `closed` to RANGEs of `group`, and the loops and accumulators in `body` inside of them to
        copies.

        Other groups of reductions may use the originals.
        """
        if group not in self.clones:
            self.clones[group] = {r: node("RANGE", r.src, (next(self.ids), r.arg[1])) for r in closed}
        mapping = dict(self.clones[group])
        inner: set[UOp] = set()
        for v in toposort(body):
            if v.op == "END" and not ranges(v).isdisjoint(closed):
                inner.update(v.src[1:])
                inner.update(w for w in toposort(v.src[0]) if w.op == "BUFFER" and w.arg.addrspace == "REG")
        self._add_clones(group, body, inner, mapping)
        return mapping

    def _add_clones(self, key: tuple, body: UOp, old: set[UOp], mapping: dict[UOp, UOp]) -> None:
        """Map the loops and buffers `old` in `body` to copies, one set of copies for each `key`; add them to `mapping`.

        A loop is copied before loops whose sizes depend on it.
        """
        clones = self.clones.setdefault(key, {})
        for u in toposort(body) if old else ():
            if u not in old or u in mapping:
                continue
            if u not in clones:
                if u.op == "RANGE":
                    bound = replace_ranges(u.src[0], mapping)
                    clones[u] = node("RANGE", (bound,), (next(self.ids), u.arg[1]))
                else:
                    clones[u] = node("BUFFER", u.src, u.arg._replace(slot=next(self.slots)))
            mapping[u] = clones[u]


def _own(body: UOp, r: UOp) -> list[UOp]:
    """Return the ENDs and STOREs of `body` that depend on the range `r`."""
    return [v for v in toposort(body) if v.op in ("END", "STORE") and r in ranges(v)]


def lower_reduce(sink: UOp) -> UOp:
    """Pass: lower the REDUCEs over ranges of a kernel."""
    return ReduceLowering(sink).run()


__all__ = ["ReduceLowering", "lower_reduce"]
