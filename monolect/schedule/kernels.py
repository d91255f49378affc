"""Build the IR of each kernel of a partition: SINK(END(STORE(INDEX(PARAM, flat index), value, gate?), ranges...), ...).

Every value becomes a scalar expression over RANGE nodes; tensor ops are gone. PARAMs are numbered per kernel in the
order of first use, outputs first. Ranges are numbered by their position in the loop nest. Two kernels that do the same
are therefore the same node, compiled once. A fingerprint recognizes a kernel that was built before, as in equal layers,
without building it again.

Before: (tensor) %2 = ADD f32[4] PARAM0 CONST
After:  SINK(END(STORE(INDEX(PARAM0, r0), ADD(LOAD(INDEX(PARAM1, r0)), CONST)), r0))
Invariant: a LOAD or STORE whose index could leave its buffer carries a gate that masks it.
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
from monolect.schedule.kernel_graph import Kernel, Store
from monolect.schedule.materialize import is_empty
from monolect.schedule.partition import Partition
from monolect.schedule.ranges import (
    FIRST_REDUCE_RANGE,
    Index,
    broadcast_index,
    effect_target,
    flatten,
    placeholder,
    sources,
)
from monolect.schedule.scratch import LINEAR_OPS, zeroes_masked_rows

Key = tuple[UOp, Index, UOp]
Wanted = list[Key] | None  # the elements that an element is computed from; None for an element that is loaded
# fingerprint of a kernel -> (SINK, slots of the buffers that it uses, Variables that it takes)
Known = dict[tuple, tuple[UOp, tuple[int, ...], tuple[UOp, ...]]]


class KernelBuilder:
    """Builds the IR of one kernel. `buffers` maps stored values to the buffer (PARAM or BUFFER) that holds them."""

    def __init__(self, part: Partition, number: int, buffers: dict[UOp, UOp], known: Known):
        self.part, self.number, self.buffers, self.known = part, number, buffers, known
        self.kernel: Kernel = part.kernel(number)
        self.memo: dict[Key, UOp] = {}
        self.filled: dict[UOp, UOp] = {}  # placeholders of index tensors, and their values
        self.unfilled: dict[UOp, UOp] = {}  # placeholders without a value yet, each mapped to itself
        self.args: list[UOp] = []
        self.slots: dict[UOp, int] = {}  # PARAM number of each of `args`
        self.fills: dict[UOp, UOp] = {}  # AFTER(LOCAL, END(...)) of each scratch value

    def build(self) -> tuple[UOp, list[UOp]]:
        """Return (SINK, the buffers and Variables to bind to its PARAMs). The SINK is empty if nothing is to be stored.

        A value of INVALID alone, or without elements, is not stored.
        """
        for s in self.kernel.stores:
            self.slot(self.buffers[s.node])
        stores = [s for s in self.kernel.stores if s.effect is not None or not (is_empty(s.node) or 0 in s.node.shape)]
        fingerprint = self._fingerprint(stores)
        found = None if fingerprint is None else self.known.get(fingerprint)
        if found is None:
            found = self._sink(stores)
            if fingerprint is not None:
                self.known[fingerprint] = found
        sink, kept, variables = found
        return sink, [*[self.args[k] for k in kept], *variables]

    def _sink(self, stores: list[Store]) -> tuple[UOp, tuple[int, ...], tuple[UOp, ...]]:
        """Build the kernel of `stores`: (SINK, slots of the buffers that it uses, Variables)."""
        sink = node("SINK", tuple(self.store(s) for s in stores), KernelInfo(frames=self._stores_padding()))
        sink = substitute(sink, self._loop_order())
        sink, kept, variables = self._bind_params(sink)  # last, since it replaces the RANGEs of symbolic size
        return own_loops(sink) if self.fills else sink, kept, variables

    def _stores_padding(self) -> bool:
        """Whether the kernel stores the constant border of a padded buffer, not its interior."""
        return self.kernel.stores[0].node in {f.padded for f in self.part.padded_values.values()}

    def _fingerprint(self, stores: list[Store]) -> tuple | None:
        """Return a hashable description of everything that the SINK depends on, or None for a kernel with effects.

        It lists the loops; each computed element with the numbers of its operands; loads, scratch values and stores;
        and the buffers.
        """
        if any(s.effect is not None for s in stores):
            return None
        out: list[Any] = [self._stores_padding(), self.kernel.staged, *self.kernel.blocks]
        number: dict[Key, int] = {}
        scratch: dict[UOp, int] = {}

        def add(u: UOp, index: Index) -> None:
            own = sources(u, index, TRUE)
            for root in reversed(own):
                for key, wanted in self._order(root, number):
                    number[key] = len(number)
                    out.append(read(*key) if wanted is None else computed(key, wanted))
            out.append(self.slot(u) if _is_input(u) else computed((u, index, TRUE), own))

        def computed(key: Key, wanted: list[Key]) -> tuple:
            u, index, gate = key
            return (u.op, u.arg, u.dtype, index, gate, *[number[k] for k in wanted]) if wanted else key

        def read(u: UOp, index: Index, gate: UOp) -> tuple:
            if self._reads_buffer(u, index):
                return self.slot(self.buffers.get(u, u)), self.flat(u, index), gate, u.dtype
            if u not in scratch:
                s = self.part.staged[u]
                add(u, s.index)
                out.append((s.index, s.inner, u.shape))
                scratch[u] = len(scratch)
            return scratch[u], index

        for s in stores:
            add(s.node, s.index)
            out.append((self.slots[self.buffers[s.node]], self.flat(s.node, s.index), _root_gate(s.node, s.index)))
        return (*out, *[(b.dtype, b.arg.device, b.shape) for b in self.args])

    def slot(self, buf: UOp) -> int:
        """Return the number of this kernel's PARAM for the buffer `buf`."""
        k = self.slots.get(buf)
        if k is None:
            k = self.slots[buf] = len(self.args)
            self.args.append(buf)
        return k

    def param(self, buf: UOp) -> UOp:
        """Return this kernel's flat PARAM for the buffer `buf`."""
        arg = ParamArg(self.slot(buf), buf.dtype, buf.arg.device, "GLOBAL")
        return node("PARAM", (shape_source((count(buf.shape),)),), arg)

    def _bind_params(self, sink: UOp) -> tuple[UOp, tuple[int, ...], tuple[UOp, ...]]:
        """Renumber the PARAMs that are still used, without gaps, Variables last; return (SINK, used slots, Variables).

        A buffer may be unused because its value was folded away, as in `x * 0`.
        """
        params = [u for u in toposort(sink) if u.op == "PARAM"]
        buffers = sorted([u for u in params if u.arg.name is None], key=lambda u: u.arg.slot)
        variables = [u for u in params if u.arg.name is not None]
        numbered = [*(buffers if len(buffers) < len(self.args) else ()), *variables]
        first = len(buffers) + len(variables) - len(numbered)
        new = {u: node("PARAM", u.src, u.arg._replace(slot=k)) for k, u in enumerate(numbered, first)}
        return substitute(sink, new) if new else sink, tuple([u.arg.slot for u in buffers]), tuple(variables)

    def _loop_order(self) -> dict[UOp, UOp]:
        """Map each output RANGE to one numbered by its position in the chain of blocks; RANGEs of scratch values come
        last.
        """
        out: dict[UOp, UOp] = {}
        for block in self.kernel.blocks:
            for r in sorted(block, key=lambda r: r.arg[0]):
                new = node("RANGE", r.src, (len(out), r.arg[1]))
                out[r] = new
        if self.fills:
            scratch = [self.part.staged[u] for u in self.fills]
            for r in sorted((s.index[a] for s in scratch for a in s.inner), key=lambda r: -r.arg[0]):
                out[r] = node("RANGE", r.src, (len(out), r.arg[1]))
        return out if any(a is not b for a, b in out.items()) else {}

    # ---- stores ------------------------------------------------------------------------------------------------------
    def store(self, s: Store) -> UOp:
        """Return the STORE or effect of `s` inside an END over its loops."""
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
        """Return the STORE or ATOMICADD `e` of `after` for element `index` of its view, gated where it may leave the
        target.
        """
        at, gate, wanted = effect_target(e.src[0], after.src[0], index)
        for t, sub, g in wanted:
            self.filled[placeholder(t, sub, g)] = _bounded(self.value(t, sub, g), t)
        own = self.value(e.src[2], broadcast_index(index, e.src[2].shape), TRUE) if len(e.src) > 2 else TRUE
        # one flat index, even when rows are indexed through placeholders
        at_flat, n = flatten(at, after.shape), idx(count(after.shape))
        if self.filled:
            at_flat, gate, own = self.fill(at_flat), self.fill(gate), self.fill(own)
        buf = self.buffers[after]
        target = node("INDEX", (self.param(buf), at_flat))
        # the effect's own gate already keeps the index inside of the target
        if is_inside(at_flat, n, own, solver=False):
            gate = own
        else:
            gate = build("AND", gate, own)
        value = self.value(e.src[1], broadcast_index(index, e.src[1].shape), TRUE)
        return node(e.op, (target, value) if gate is TRUE else (target, value, gate), e.arg)

    def element(self, u: UOp, index: Index) -> UOp:
        """Return the INDEX node, into its PARAM, of element `index` of the stored value `u`."""
        flat = self.flat(u, index)
        return node("INDEX", (self.param(self.buffers[u]), self.fill(flat) if self.filled else flat))

    def flat(self, u: UOp, index: Index) -> UOp:
        """Return the flat index of element `index` of `u` in its buffer, which may be padded."""
        f = self.part.padded_values.get(u)
        return flatten(index, u.shape) if f is None else flatten(f.padded_index(index), f.padded.shape)

    def fill(self, u: UOp) -> UOp:
        """Replace the placeholders in `u` by their values. A placeholder without a value yet stays unchanged."""
        return substitute(u, {**self.unfilled, **self.filled})

    # ---- values ------------------------------------------------------------------------------------------------------
    def inside(self, u: UOp, index: Index) -> UOp:
        """Return the expression that this kernel stores for element `index` of `u`. For an input it is a LOAD: the
        kernel copies the input.
        """
        if _is_input(u):
            return node("LOAD", (node("INDEX", (self.param(u), flatten(index, u.shape))),))
        return self._compute(u, index, TRUE)

    def value(self, u: UOp, index: Index, gate: UOp) -> UOp:
        """Return the scalar expression for element `index` of `u`, built iteratively and memoized."""
        for key, wanted in self._order((u, index, gate), self.memo):
            self.memo[key] = self._assemble(key, wanted)
        return self.memo[u, index, gate]

    def _order(self, root: Key, known: Container[Key]) -> Iterator[tuple[Key, Wanted]]:
        """Yield the elements that `root` depends on and that are not in `known`, sources first.

        The caller must add each yielded element to `known` before it takes the next one.
        """
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
        """Return the expression of element `index` of `u`, computed from its operands even if `u` is stored."""
        wanted = self._sources((u, index, gate))
        for k in reversed(wanted):
            self.value(*k)
        return self._assemble((u, index, gate), wanted)

    def _reads_buffer(self, u: UOp, index: Index) -> bool:
        """Whether this kernel loads element `index` of `u` from a buffer instead of computing it."""
        if u.op in ("PARAM", "BUFFER"):
            return u.op == "BUFFER" or u.arg.name is None  # a Variable is a value, not memory
        where = self.part.stored.get(u)
        # a CONST stays a constant in every kernel, also if it is a requested result
        if where is None or u.op == "CONST":
            return False
        return self.part.find(where[0]) != self.number or where[1] != index

    def _reads_scratch(self, u: UOp) -> bool:
        """Whether `u` is a scratch value of this kernel."""
        return u in self.part.staged and self.part.find(self.part.staged[u].kernel) == self.number

    def load_scratch(self, u: UOp, index: Index) -> UOp:
        """Return the LOAD of element `index` of a scratch value, ordered after the loops that fill its local memory."""
        s = self.part.staged[u]
        shape = tuple(size_max(u.shape[a]) for a in s.inner)  # a symbolic axis has its maximum size
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
        """Return the elements that the element `key` is computed from, or None if this kernel loads it."""
        u, index, gate = key
        return None if self._reads_scratch(u) or self._reads_buffer(u, index) else self._sources(key)

    def _sources(self, key: Key) -> list[Key]:
        """Return the elements that the element `key` (value, index, gate) is computed from, without checking whether it
        is loaded. For an INDEX, record the placeholders of its index tensors in `unfilled`.
        """
        wanted = sources(*key)
        if key[0].op == "INDEX":
            self.unfilled.update((h, h) for h in (placeholder(*k) for k in wanted[1:]))
        return wanted

    def _assemble(self, key: Key, wanted: Wanted) -> UOp:
        """Return the expression of the element `key` from the memoized expressions of `wanted`; a LOAD if `wanted` is
        None.
        """
        u, index, gate = key
        if wanted is None:
            return self._load(u, index, gate) if self._reads_buffer(u, index) else self.load_scratch(u, index)
        vals = [self.memo[k] for k in wanted]
        op = u.op
        if op in ELEMENTWISE:
            out = build(op, *vals, arg=u.arg)
        elif op == "CONST" or op == "PARAM":
            return u
        elif op == "IOTA":
            at = self.fill(index[0]) if self.filled else index[0]
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
        """Return the element that an INDEX reads: record the values of its index placeholders and substitute them."""
        for (t, sub, g), v in zip(wanted[1:], vals[1:], strict=True):
            self.filled[placeholder(t, sub, g)] = _bounded(v, t)
        return vals[0] if not self.filled else self.fill(vals[0])

    def _load(self, u: UOp, index: Index, gate: UOp) -> UOp:
        """Return the LOAD of element `index` of the stored value or input `u`, with a zero alternative where the gate
        is needed.
        """
        buf = self.buffers.get(u, u)
        at = self.flat(u, index)
        p = node("INDEX", (self.param(buf), at))
        if gate is TRUE or (ranges(at).isdisjoint(ranges(gate)) and _always_inside(at, buf.shape)):
            return node("LOAD", (p,))  # the gate restricts only loops that the index does not use
        zero = const(False if u.dtype is dtypes.bool else 0, u.dtype)
        return node("LOAD", (p, zero, gate))


def _is_input(u: UOp) -> bool:
    """Whether `u` is a buffer that the schedule receives. A named PARAM is a Variable, which is a value."""
    return u.op == "BUFFER" or (u.op == "PARAM" and u.arg.name is None)


def _always_inside(at: UOp, shape: tuple) -> bool:
    """Whether the flat index `at` stays inside of `shape` in every iteration. False for symbolic shapes."""
    sizes = [n for n in shape if isinstance(n, int)]
    low, high = min_max(at)
    return len(sizes) == len(shape) and low >= 0 and high < prod(sizes)


def without_factors(u: UOp) -> UOp:
    """Return the REDUCE `u` with factors and divisors of its terms that do not depend on its loops moved outside."""
    closed = frozenset(u.src[1:])
    if u.arg[0] != "ADD" or u.src[0].op != "MUL":
        return u
    outside, terms, pending = [], [], [u.src[0]]
    while pending:
        x = pending.pop()
        main = [s for s in x.src if ranges(s) & closed]
        is_multiple = x.op in LINEAR_OPS and len(main) == 1
        if x.op == "DIV" or x.op == "WHERE":
            is_multiple &= main[0] is not x.src[1] if x.op == "DIV" else main[0] is x.src[2] and zeroes_masked_rows(x)
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
    """Give reductions that are nested in different loops different RANGEs, so that the optimizer can split the loops of
    each scratch value separately.
    """
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
    """Clamp `v`, an element of the integer tensor `t`, to the bounds that are known of `t`.

    A LOAD does not carry these bounds, and an index without a clamp was built because of them.
    """
    (low, high), known = min_max(t), min_max(v)
    if not t.dtype.is_float and t.dtype is v.dtype:
        v = build("MAX", v, const(low, t.dtype)) if known[0] < low else v
        if known[1] > high:
            v = build("WHERE", build("CMPLT", v, top := const(high, t.dtype)), v, top)
    return v


def _root_gate(u: UOp, index: Index) -> UOp:
    """Return the gate of a stored view: elements that a PAD leaves invalid are not written."""
    gate = TRUE
    while u.op in ("CONTIGUOUS", "RESHAPE", "PERMUTE", "FLIP", "EXPAND", "SHRINK", "PAD"):
        ((u, index, gate),) = sources(u, index, gate)
    return gate


def _bitcast(u: UOp, index: Index, vals: list[UOp]) -> UOp:
    """Return a BITCAST of scalars. Between different sizes it uses unsigned shifts, little-endian."""
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


__all__ = ["KernelBuilder", "Known", "own_loops", "without_factors"]
