"""Each kernel of a partition as IR: SINK(END(STORE(INDEX(PARAM, flat index), value, gate?), ranges...), ...).

Every value is now a scalar expression of RANGE nodes; tensor ops are gone. PARAMs are numbered per kernel in the order
they are met (outputs first) and ranges by their place in the loop nest, so two kernels that do the same are the same
node, and are compiled once. What is made of the same as a kernel before, as in equal layers, is known by that, and not
built again to find that it is the same.

Before: (tensor) %2 = ADD f32[4] PARAM0 CONST
After:  SINK(END(STORE(INDEX(PARAM0, r0), ADD(LOAD(INDEX(PARAM1, r0)), CONST)), r0))
Invariant: a LOAD or STORE whose index could leave its buffer carries the gate that forbids it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from math import prod
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.errors import InternalError
from monolect.ir.bounds import min_max, ranges, replace_ranges, size_max
from monolect.ir.check.prove import is_inside
from monolect.ir.ops import ELEMENTWISE, BufferArg, KernelInfo, ParamArg
from monolect.ir.rewrite.normal import TRUE, count
from monolect.ir.uop import UOp, build, const, idx, node, rebuild, shape_source, substitute, toposort
from monolect.schedule.materialize import is_empty
from monolect.schedule.partition import Kernel, Partition, Store
from monolect.schedule.ranges import (
    FIRST_REDUCE_RANGE,
    Index,
    broadcast_index,
    effect_target,
    flatten,
    placeholder,
    sources,
)
from monolect.schedule.scratch import LINEAR_OPS, hides

Key = tuple[UOp, Index, UOp]
Wanted = list[Key] | None  # what an element is computed from, None for one that is read from memory
# by what kernels are made of: the SINK, the slots of the buffers that it still uses, the Variables it takes
Known = dict[tuple, tuple[UOp, tuple[int, ...], tuple[UOp, ...]]]


class KernelBuilder:
    """Builds the IR of one kernel. `buffers` maps stored values to the buffer (PARAM or BUFFER) that holds them."""

    def __init__(self, part: Partition, number: int, buffers: dict[UOp, UOp], known: Known):
        self.part, self.number, self.buffers, self.known = part, number, buffers, known
        self.kernel: Kernel = part.kernel(number)
        self.memo: dict[Key, UOp] = {}
        self.holes: dict[UOp, UOp] = {}
        self.unfilled: dict[UOp, UOp] = {}  # placeholders that are met before what they stand for, each by itself
        self.args: list[UOp] = []
        self.slots: dict[UOp, int] = {}  # of each of `args`
        self.fills: dict[UOp, UOp] = {}  # AFTER(LOCAL, END(...)) of each stage

    def build(self) -> tuple[UOp, list[UOp]]:
        """(SINK, the buffers to bind to its PARAMs). What stores nothing but invalid, or no element, has no effects."""
        for s in self.kernel.stores:
            self.slot(self.buffers[s.node])
        stores = [s for s in self.kernel.stores if s.effect is not None or not (is_empty(s.node) or 0 in s.node.shape)]
        made_of = self._made_of(stores)
        found = None if made_of is None else self.known.get(made_of)
        if found is None:
            found = self._sink(stores)
            if made_of is not None:
                self.known[made_of] = found
        sink, kept, variables = found
        return sink, [*[self.args[k] for k in kept], *variables]

    def _sink(self, stores: list[Store]) -> tuple[UOp, tuple[int, ...], tuple[UOp, ...]]:
        sink = node("SINK", tuple(self.store(s) for s in stores), KernelInfo(frames=self._is_frame()))
        sink = substitute(sink, self._loop_order())
        sink, kept, variables = self._bind_params(sink)  # not before: it makes other nodes of loops of symbolic size
        return own_loops(sink) if self.fills else sink, kept, variables

    def _is_frame(self) -> bool:
        """Whether it stores what is around a value."""
        return self.kernel.stores[0].node in {f.around for f in self.part.frames.values()}

    def _made_of(self, stores: list[Store]) -> tuple | None:
        """All that the SINK hangs on: loops; each element that is computed, with the numbers of those it is computed
        from; what is read, kept and stored where; buffers. None of a kernel with effects.
        """
        if any(s.effect is not None for s in stores):
            return None
        out: list[Any] = [self._is_frame(), self.kernel.staged, *self.kernel.blocks]
        number: dict[Key, int] = {}
        stages: dict[UOp, int] = {}

        def add(u: UOp, index: Index) -> None:
            own = sources(u, index, TRUE)
            for root in reversed(own):
                for key, wanted in self._order(root, number):
                    number[key] = len(number)
                    out.append(read(*key) if wanted is None else made(key, wanted))
            out.append(self.slot(u) if _is_input(u) else made((u, index, TRUE), own))

        def made(key: Key, wanted: list[Key]) -> tuple:
            u, index, gate = key
            return (u.op, u.arg, u.dtype, index, gate, *[number[k] for k in wanted]) if wanted else key

        def read(u: UOp, index: Index, gate: UOp) -> tuple:
            if self._reads_buffer(u, index):
                return self.slot(self.buffers.get(u, u)), self.flat(u, index), gate, u.dtype
            if u not in stages:
                s = self.part.staged[u]
                add(u, s.index)
                out.append((s.index, s.inner, u.shape))
                stages[u] = len(stages)
            return stages[u], index

        for s in stores:
            add(s.node, s.index)
            out.append((self.slots[self.buffers[s.node]], self.flat(s.node, s.index), _root_gate(s.node, s.index)))
        return (*out, *[(b.dtype, b.arg.device, b.shape) for b in self.args])

    def slot(self, buf: UOp) -> int:
        """The number of this kernel's PARAM for a buffer."""
        k = self.slots.get(buf)
        if k is None:
            k = self.slots[buf] = len(self.args)
            self.args.append(buf)
        return k

    def param(self, buf: UOp) -> UOp:
        """This kernel's flat PARAM for a buffer."""
        arg = ParamArg(self.slot(buf), buf.dtype, buf.arg.device, "GLOBAL")
        return node("PARAM", (shape_source((count(buf.shape),)),), arg)

    def _bind_params(self, sink: UOp) -> tuple[UOp, tuple[int, ...], tuple[UOp, ...]]:
        """The PARAMs of the buffers that are still used once values are folded (`x * 0` reads no `x`), numbered
        without gaps; behind them the symbolic Variables.
        """
        params = [u for u in toposort(sink) if u.op == "PARAM"]
        buffers = sorted([u for u in params if u.arg.name is None], key=lambda u: u.arg.slot)
        variables = [u for u in params if u.arg.name is not None]
        numbered = [*(buffers if len(buffers) < len(self.args) else ()), *variables]
        first = len(buffers) + len(variables) - len(numbered)
        new = {u: node("PARAM", u.src, u.arg._replace(slot=k)) for k, u in enumerate(numbered, first)}
        return substitute(sink, new) if new else sink, tuple([u.arg.slot for u in buffers]), tuple(variables)

    def _loop_order(self) -> dict[UOp, UOp]:
        """Output ranges renamed by their place in the chain of blocks."""
        out: dict[UOp, UOp] = {}
        for block in self.kernel.blocks:
            for r in sorted(block, key=lambda r: r.arg[0]):
                new = node("RANGE", r.src, (len(out), r.arg[1]))
                out[r] = new
        if self.fills:
            stages = [self.part.staged[u] for u in self.fills]
            for r in sorted((s.index[a] for s in stages for a in s.inner), key=lambda r: -r.arg[0]):
                out[r] = node("RANGE", r.src, (len(out), r.arg[1]))
        return out if any(a is not b for a, b in out.items()) else {}

    # ---- stores ------------------------------------------------------------------------------------------------------
    def store(self, s: Store) -> UOp:
        if s.effect is not None:
            effect = self._effect(s.node, s.effect, s.index)
        else:
            gate = _root_gate(s.node, s.index)
            target = self.element(s.node, s.index)
            effect = build("STORE", target, self.inside(s.node, s.index), *(() if gate is TRUE else (gate,)))
        rs = [r for block in self.kernel.blocks for r in sorted(block, key=lambda r: r.arg[0])]
        mine = frozenset().union(*(ranges(i) for i in s.index)) if s.index else frozenset()
        rs = [r for r in rs if r in mine]
        return build("END", effect, *rs) if rs else effect

    def _effect(self, after: UOp, e: UOp, index: Index) -> UOp:
        at, gate, wanted = effect_target(e.src[0], after.src[0], index)
        for t, sub, g in wanted:
            self.holes[placeholder(t, sub, g)] = _bounded(self.value(t, sub, g), t)
        own = self.value(e.src[2], broadcast_index(index, e.src[2].shape), TRUE) if len(e.src) > 2 else TRUE
        place, n = flatten(at, after.shape), idx(count(after.shape))  # whole while places are names: rows own theirs
        if self.holes:
            place, gate, own = self.fill(place), self.fill(gate), self.fill(own)
        buf = self.buffers[after]
        target = node("INDEX", (self.param(buf), place))
        if is_inside(place, n, own, solver=False):  # its own gate says all that is needed
            gate = own
        else:
            gate = build("AND", gate, own)
        value = self.value(e.src[1], broadcast_index(index, e.src[1].shape), TRUE)
        return node(e.op, (target, value) if gate is TRUE else (target, value, gate), e.arg)

    def element(self, u: UOp, index: Index) -> UOp:
        """The place of element `index` of the stored value `u`."""
        flat = self.flat(u, index)
        return node("INDEX", (self.param(self.buffers[u]), self.fill(flat) if self.holes else flat))

    def flat(self, u: UOp, index: Index) -> UOp:
        """Where element `index` of `u` is in its buffer."""
        f = self.part.frames.get(u)
        return flatten(index, u.shape) if f is None else flatten(f.place(index), f.around.shape)

    def fill(self, u: UOp) -> UOp:
        """`u` with its placeholders replaced by the values they stand for. One whose value is not known yet stays as it
        is, also where others stand in it: it is found again by what it is.
        """
        return substitute(u, {**self.unfilled, **self.holes})

    # ---- values ------------------------------------------------------------------------------------------------------
    def inside(self, u: UOp, index: Index) -> UOp:
        """The value this kernel computes for its own stored `u`; of an input, which needs no kernel, a copy."""
        if _is_input(u):
            return node("LOAD", (node("INDEX", (self.param(u), flatten(index, u.shape))),))
        return self._compute(u, index, TRUE)

    def value(self, u: UOp, index: Index, gate: UOp) -> UOp:
        """The scalar expression for element `index` of `u`."""
        for key, wanted in self._order((u, index, gate), self.memo):
            self.memo[key] = self._assemble(key, wanted)
        return self.memo[u, index, gate]

    def _order(self, root: Key, known: Container[Key]) -> Iterator[tuple[Key, Wanted]]:
        """What `root` is computed from and is not `known` yet, sources first; whoever takes one makes it known."""
        stack: list[Any] = [root]
        while stack:
            key = stack.pop()
            if len(key) == 2:
                yield key
            elif key not in known:
                wanted = self._wanted(key)
                stack.append((key, wanted))
                stack.extend(reversed(wanted or ()))

    def _compute(self, u: UOp, index: Index, gate: UOp) -> UOp:
        wanted = self._sources((u, index, gate))
        for k in reversed(wanted):
            self.value(*k)
        return self._assemble((u, index, gate), wanted)

    def _reads_buffer(self, u: UOp, index: Index) -> bool:
        if u.op in ("PARAM", "BUFFER"):
            return u.op == "BUFFER" or u.arg.name is None  # a Variable is a value, not memory
        where = self.part.stored.get(u)
        if where is None or u.op == "CONST":  # one that is a result, too, is a number in every kernel
            return False
        return self.part.find(where[0]) != self.number or where[1] != index

    def _reads_stage(self, u: UOp) -> bool:
        return u in self.part.staged and self.part.find(self.part.staged[u].kernel) == self.number

    def stage(self, u: UOp, index: Index) -> UOp:
        """The load of element `index` of a value kept in local memory, after what fills it."""
        s = self.part.staged[u]
        shape = tuple(size_max(u.shape[a]) for a in s.inner)  # a symbolic one as long as it may get
        if u not in self.fills:
            value = self._compute(u, s.index, TRUE)
            memory = node(
                "BUFFER", (shape_source((count(shape),)),), BufferArg(len(self.fills), u.dtype, None, "LOCAL")
            )
            own = tuple(s.index[a] for a in s.inner)
            store = node("STORE", (node("INDEX", (memory, flatten(own, shape))), value))
            self.fills[u] = node("AFTER", (memory, node("END", (store, *own))))
        at = flatten(tuple(index[a] for a in s.inner), shape)
        return node("LOAD", (node("INDEX", (self.fills[u], at)),))

    def _wanted(self, key: Key) -> Wanted:
        u, index, gate = key
        return None if self._reads_stage(u) or self._reads_buffer(u, index) else self._sources(key)

    def _sources(self, key: Key) -> list[Key]:
        wanted = sources(*key)
        if key[0].op == "INDEX":
            self.unfilled.update((h, h) for h in (placeholder(*k) for k in wanted[1:]))
        return wanted

    def _assemble(self, key: Key, wanted: Wanted) -> UOp:
        u, index, gate = key
        if wanted is None:
            return self._load(u, index, gate) if self._reads_buffer(u, index) else self.stage(u, index)
        vals = [self.memo[k] for k in wanted]
        op = u.op
        if op in ELEMENTWISE:
            out = build(op, *vals, arg=u.arg)
        elif op == "CONST" or op == "PARAM":
            return u
        elif op == "IOTA":
            at = self.fill(index[0]) if self.holes else index[0]
            return at if u.arg.kind == "x" else build("CAST", at, arg=u.arg)
        elif op == "REDUCE":
            closed = tuple(i for a, i in enumerate(wanted[0][1]) if a in u.arg[1])
            out = build("REDUCE", vals[0], *closed, arg=(u.arg[0], ()))
            out = without_factors(out) if self.kernel.staged else out
        elif op == "INDEX":
            return self._gather(u, index, gate, wanted, vals)
        elif op == "BITCAST":
            out = _bitcast(u, index, vals)
        elif op == "LOAD" and len(vals) == 3:
            out = build("WHERE", vals[2], vals[0], vals[1])
        elif op == "STACK" and len(vals) > 1:
            out = vals[-1]
            for k in range(len(vals) - 2, -1, -1):
                out = build("WHERE", build("CMPLT", index[0], idx(k + 1)), vals[k], out)
        else:
            return vals[0]
        if out.origin is None:
            out.origin = u.origin
        return out

    def _gather(self, u: UOp, index: Index, gate: UOp, wanted: list[Key], vals: list[UOp]) -> UOp:
        for (t, sub, g), v in zip(wanted[1:], vals[1:], strict=True):
            self.holes[placeholder(t, sub, g)] = _bounded(v, t)
        return vals[0] if not self.holes else self.fill(vals[0])

    def _load(self, u: UOp, index: Index, gate: UOp) -> UOp:
        buf = self.buffers.get(u, u)
        at = self.flat(u, index)
        p = node("INDEX", (self.param(buf), at))
        if gate is TRUE or (ranges(at).isdisjoint(ranges(gate)) and _always_inside(at, buf.shape)):
            return node("LOAD", (p,))  # what a gate says of other loops is no concern of this load
        zero = const(False if u.dtype is dtypes.bool else 0, u.dtype)
        return node("LOAD", (p, zero, gate))


def _is_input(u: UOp) -> bool:
    """Whether `u` is memory that a schedule is given; a Variable is a value."""
    return u.op == "BUFFER" or (u.op == "PARAM" and u.arg.name is None)


def _always_inside(at: UOp, shape: tuple) -> bool:
    """Whether a flat index lies inside of `shape` in every iteration."""
    sizes = [n for n in shape if isinstance(n, int)]
    low, high = min_max(at)
    return len(sizes) == len(shape) and low >= 0 and high < prod(sizes)


def without_factors(u: UOp) -> UOp:
    """A sum with the factors and divisors of its terms that its loops do not change outside of it."""
    closed = frozenset(u.src[1:])
    if u.arg[0] != "ADD" or u.src[0].op != "MUL":
        return u
    outside, terms, pending = [], [], [u.src[0]]
    while pending:
        x = pending.pop()
        main = [s for s in x.src if ranges(s) & closed]
        is_multiple = x.op in LINEAR_OPS and len(main) == 1
        if x.op == "DIV" or x.op == "WHERE":
            is_multiple &= main[0] is not x.src[1] if x.op == "DIV" else main[0] is x.src[2] and hides(x)
        if is_multiple:
            outside.append((x, main[0]))
            pending.append(main[0])
        elif x.op == "MUL" and len(main) == 2:
            pending.extend(reversed(x.src))
        else:
            terms.append(x)
    if not outside:
        return u
    body = terms[0]
    for x in terms[1:]:
        body = build("MUL", body, x)
    out = build("REDUCE", body, *u.src[1:], arg=u.arg)
    for multiple, of in reversed(outside):
        out = build(multiple.op, *(out if s is of else s for s in multiple.src), arg=multiple.arg)
    return out


def own_loops(sink: UOp) -> UOp:
    """The kernel with different loops for reductions that stand in different loops: each stage is split as it likes."""
    new: dict[UOp, UOp] = {}
    made: dict[tuple, UOp] = {}
    for u in toposort(sink):
        src = tuple(new[s] for s in u.src)
        if u.op == "REDUCE" and len(u.src) > 1:
            key = ranges(u)
            for r in u.src[1:]:
                made.setdefault((key, r), node("RANGE", r.src, (FIRST_REDUCE_RANGE + len(made), r.arg[1])))
            mapping = {r: made[key, r] for r in u.src[1:]}
            new[u] = node("REDUCE", (replace_ranges(src[0], mapping), *mapping.values()), u.arg)
        else:
            new[u] = rebuild(u, src)
    return new[sink]


def _bounded(v: UOp, t: UOp) -> UOp:
    """`v`, an element of the integer tensor `t`, within the bounds that the formula of `t` tells: memory it was kept in
    does not tell them, and a position was made without a clamp because of them.
    """
    (low, high), known = min_max(t), min_max(v)
    if not t.dtype.is_float and t.dtype is v.dtype:
        v = build("MAX", v, const(low, t.dtype)) if known[0] < low else v
        if known[1] > high:
            v = build("WHERE", build("CMPLT", v, top := const(high, t.dtype)), v, top)
    return v


def _root_gate(u: UOp, index: Index) -> UOp:
    """The gate of a stored view: elements a PAD left invalid are not written."""
    gate = TRUE
    while u.op in ("CONTIGUOUS", "RESHAPE", "PERMUTE", "FLIP", "EXPAND", "SHRINK", "PAD"):
        ((u, index, gate),) = sources(u, index, gate)
    return gate


def _bitcast(u: UOp, index: Index, vals: list[UOp]) -> UOp:
    """BITCAST of scalars; between sizes through unsigned shifts, little-endian."""
    old, new = u.src[0].dtype, u.dtype
    if old.itemsize == new.itemsize:
        return build("BITCAST", vals[0], arg=new)
    uint = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
    if old.itemsize > new.itemsize:
        word = build("BITCAST", vals[0], arg=uint[old.itemsize])
        k = old.itemsize // new.itemsize
        amount = build("CAST", (index[-1] % k) * (8 * new.itemsize), arg=word.dtype)
        return build("BITCAST", build("CAST", build("SHR", word, amount), arg=uint[new.itemsize]), arg=new)
    acc: Any = None
    for j, v in enumerate(vals):
        part = build("CAST", build("BITCAST", v, arg=uint[old.itemsize]), arg=uint[new.itemsize])
        part = build("SHL", part, const(8 * old.itemsize * j, part.dtype)) if j else part
        acc = part if acc is None else build("OR", acc, part)
    if acc is None:
        raise InternalError("BITCAST of nothing")
    return build("BITCAST", acc, arg=new)
