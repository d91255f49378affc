"""Interpret a graph of any stage that has values on NumPy arrays: the reference interpreter.

What it is for: the oracle of tests, of the rule checker, and of `VERIFY=2`, which compares kernels around each pass.
What it is not: fast, or faithful to one target's rounding. Float sums are added up in float64 and rounded once; types
below 32 bits are computed in float32 and rounded. It runs no machine instructions (INS, CUSTOM).

Invariant: the value of a node is an array of shape `(*batch, *u.shape)`. The batch axes are first: one for each loop
that a REDUCE closes, then the leading axes that the caller's arrays have in excess of their node's shape. An invalid
element is nan in floats and 0 in other types. A mask marks invalid elements, so that a STORE of them is dropped.
Source: the meanings in the op table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from monolect.base.errors import IRError
from monolect.ir.bounds import ranges
from monolect.ir.check.arrays import (
    Array,
    Mask,
    add_at,
    both_valid,
    cast,
    garbage,
    is_small,
    select_valid,
    storage,
)
from monolect.ir.check.interp_ops import ROW_VALUES, Evaluation, move
from monolect.ir.ops import ELEMENTWISE, MOVEMENT, ROWS
from monolect.ir.uop import UOp

Env = dict[UOp, Any]
_IDENTITY = frozenset(("CONTIGUOUS", "CONTIGUOUS_BACKWARD", "DETACH"))
_PACKS = frozenset(("TUPLE", "SINK"))
_NO_VALUE = frozenset(("STORE", "ATOMICADD", "END", "GROUP", "BARRIER", "PREFETCH"))
_CALLS = frozenset(("FUNCTION", "CALL"))
_WRITES = frozenset(("STORE", "ATOMICADD", "CALL"))


def evaluate(root: UOp | Sequence[UOp], env: Env) -> Any:
    """Return the value of `root` as a NumPy array, or a list of values for a sequence of roots. `env` binds nodes to
    their arrays.

    Sources of a bound node are not evaluated. An array may have additional leading axes: they are a batch, and all
    results have them. Loops that a REDUCE closes need no binding. Raises IRError for a node without a value.
    """
    roots = (root,) if isinstance(root, UOp) else tuple(root)
    with np.errstate(all="ignore"):
        m = Evaluator(env, roots)
        m.run()
        out = [m.result(r) for r in roots]
    return out[0] if isinstance(root, UOp) else out


def run_kernel(sink: UOp, buffers: Env) -> None:
    """Execute the STOREs and ATOMICADDs of the kernel `sink`, in place on `buffers`, which maps each PARAM to its
    array.

    `buffers` also binds the PARAMs of symbolic sizes to scalars. A BUFFER without an array gets one for this run. A
    kernel with an AFTER or such a BUFFER runs one iteration at a time, which is slow. Any other kernel runs all
    iterations at once, and reads all memory before it writes any. Raises IRError if an array to write is not contiguous
    or has another dtype than its PARAM.
    """
    nodes = _reachable((sink,), {})
    with np.errstate(all="ignore"):
        if any(u.op == "AFTER" or (u.op == "BUFFER" and u not in buffers) for u in nodes):
            _Loops(buffers).execute(sink, {})
        else:
            _run_at_once(sink, buffers, [u for u in nodes if u.op in ("RANGE", "SPECIAL") and u not in buffers])


# ---- walking ---------------------------------------------------------------------------------------------------------
def _reachable(roots: tuple[UOp, ...], env: Env, effects: bool = True) -> list[UOp]:
    """Return all nodes to evaluate for the values of `roots`, sources before users.

    Bodies of calls and sources of nodes that `env` binds are left out. Sources of effects (such as STORE) are left out
    too if `effects` is false.
    """
    out: list[UOp] = []
    seen: set[UOp] = set()
    stack: list[tuple[UOp, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        u, entered = stack.pop()
        if entered:
            out.append(u)
        elif u not in seen:
            seen.add(u)
            stack.append((u, True))
            if u not in env and (effects or u.op not in _NO_VALUE):
                src = u.src[1:] if u.op in _CALLS else u.src
                stack.extend((s, False) for s in reversed(src) if s not in seen)
    return out


def _base(view: UOp, stop: UOp | None = None) -> tuple[UOp, list[UOp]]:
    """Return (base, movement ops) of `view`: the memory below it and the movement ops between, the one next to the base
    first.

    If the node `stop` is reached first, it is the base.
    """
    chain: list[UOp] = []
    while view.op in MOVEMENT and view is not stop:
        chain.append(view)
        view = view.src[0]
    return view, chain[::-1]


def _root(u: UOp) -> UOp:
    """Return the node below the chain of AFTERs that begins with `u`; `u` itself if it is no AFTER."""
    while u.op == "AFTER":
        u = u.src[0]
    return u


def _effects(u: UOp) -> list[UOp]:
    """Return the STOREs, ATOMICADDs and CALLs in the effect `u` (which may be a GROUP, SINK, END, BARRIER or AFTER), in
    order.
    """
    out, stack = [], [u]
    while stack:
        e = stack.pop()
        if e.op in _WRITES:
            out.append(e)
        elif e.op in ("GROUP", "SINK", "BARRIER"):
            stack.extend(reversed(e.src))
        elif e.op in ("END", "AFTER"):
            stack.append(e.src[0])
    return out


# ---- the evaluator ---------------------------------------------------------------------------------------------------
class Evaluator(Evaluation):
    """One evaluation of nodes: their values and masks by node, and the batch axis of each loop.

    `env`: the caller's arrays by node. `roots`: the nodes to evaluate. `loops`: loops that get a batch axis in addition
    to those of REDUCEs. `hook`: evaluates AFTERs, if the kernel runs one iteration at a time; None otherwise.
    """

    def __init__(self, env: Env, roots: tuple[UOp, ...], loops: Sequence[UOp] = (), hook: _AfterHook | None = None):
        self.env, self.hook = env, hook
        self.order = _reachable(roots, env, effects=hook is None)
        closed = [r for u in self.order if u.op == "REDUCE" and u not in env for r in u.src[1:] if r not in env]
        self.axes = {r: i for i, r in enumerate(dict.fromkeys([*loops, *closed]))}
        extra = [np.ndim(v) - len(u.shape) for u, v in env.items() if not _is_storage(u, v)]
        self.user = max([0, *extra])
        self.batch = len(self.axes) + self.user
        self.values, self.masks = {}, {}

    def run(self) -> None:
        """Compute the value and mask of each node in `self.order`, and store them in `self.values` and `self.masks`."""
        for u in self.order:
            v, mask = self.bind(u) if u in self.env else self.step(u)
            if mask is not None and mask.shape != v.shape:
                mask = np.broadcast_to(mask, v.shape)
            self.values[u], self.masks[u] = v, mask

    def bind(self, u: UOp) -> tuple[Any, Mask]:
        """Return (array, None) for a node `u` that the caller bound: its array with size-1 axes for the batch. None: it
        has no mask. Raises IRError if the array has fewer axes than `u`.
        """
        v = np.asarray(self.env[u])
        if v.dtype != storage(u.dtype):
            v = v.astype(storage(u.dtype))
        if _is_storage(u, v):
            v = v.reshape(u.shape)
        if v.ndim < len(u.shape):
            raise IRError(f"{u.op} is bound to too small an array", op=u.op, expected=str(u.shape), found=str(v.shape))
        return v.reshape((1,) * (self.batch + len(u.shape) - v.ndim) + v.shape), None

    def result(self, u: UOp) -> Any:
        """Return the computed value of `u` in the form for the caller: without the batch axes of closed loops,
        broadcast to the caller's batch.

        The value of a TUPLE is a list of arrays; that of an effect is None.
        """
        v = self.values[u]
        if isinstance(v, tuple):
            return [self.finish(x) for x in v]
        return None if v is None else self.finish(v)

    def finish(self, array: Array) -> Array:
        """Return `array`, a computed value, without the batch axes of loops. Raises IRError if it depends on a loop
        that no REDUCE closes.
        """
        loops = len(self.axes)
        if any(n != 1 for n in array.shape[:loops]):
            raise IRError("a loop is neither closed nor bound", expected="a REDUCE or a binding for every RANGE")
        array = array.reshape(array.shape[loops:])
        sizes = [1] * self.user
        for u, x in self.env.items():
            if not _is_storage(u, x):
                lead = np.shape(x)[: np.ndim(x) - len(u.shape)]
                sizes = list(np.broadcast_shapes(tuple(sizes), lead)) if lead else sizes
        return np.array(np.broadcast_to(array, (*sizes, *array.shape[self.user :])))

    def step(self, u: UOp) -> tuple[Any, Mask]:
        """Return (value, mask) of the node `u`, computed from those of its sources. Raises IRError for an op without a
        value.
        """
        op = u.op
        if op in ELEMENTWISE:
            return self.elementwise(u)
        if op in MOVEMENT:
            return self.move(u, self.values[u.src[0]], self.masks[u.src[0]], frozenset())
        if op in _IDENTITY:
            return self.values[u.src[0]], self.masks[u.src[0]]
        if op in _NO_VALUE:
            return None, None
        if op in _PACKS:
            return tuple(self.values[s] for s in u.src), None
        handler = _HANDLERS.get(op)
        if handler is None:
            what = "has no value bound to it" if op in ("PARAM", "BUFFER") else "has no meaning here"
            raise IRError(f"{op} {what}", op=op, expected="a binding in env", found=repr(u))
        return handler(self, u)

    def elementwise(self, u: UOp) -> tuple[Array, Mask]:
        """Return (value, mask) of the elementwise op `u`, computed from those of its sources."""
        rank = len(u.shape)
        args = [self.aligned(self.values[s], rank) for s in u.src]
        masks = [None if (k := self.masks[s]) is None else self.aligned(k, rank) for s in u.src]
        if u.op == "CAST":
            return cast(args[0], u.src[0].dtype, u.dtype), masks[0]
        if u.op == "WHERE":
            mask = select_valid(args[0], masks[1], masks[2])
            return np.where(args[0], args[1], args[2]), both_valid(masks[0], mask)
        wide = [a.astype(np.float32) if is_small(s.dtype) else a for a, s in zip(args, u.src, strict=True)]
        out = np.asarray(ROWS[u.op].meaning(u.src[-1].dtype, *wide))  # type: ignore[misc]
        mask = None
        for k in masks:
            mask = both_valid(mask, k)
        return out.astype(storage(u.dtype), copy=False), mask

    def move(self, u: UOp, x: Array, mask: Mask, strict: frozenset[UOp]) -> tuple[Array, Mask]:
        """Apply the movement op `u` to the array `x`, the value of its first source, and return (value, mask).

        `mask`: the valid elements of `x`. If `u` is an INDEX in `strict`, elements whose index is out of bounds become
        invalid.
        """
        if u.op == "INDEX":
            return self.index(u, x, mask, u in strict)
        b = self.batch
        if u.op == "PAD":
            mask = np.ones(x.shape, bool) if mask is None else mask
        return move(self, u, x, b, garbage(u.dtype)), None if mask is None else move(self, u, mask, b, False)

    def index(self, u: UOp, x: Array, mask: Mask, strict: bool) -> tuple[Array, Mask]:
        """Apply INDEX `u` to the array `x`, the value of its first source, and return (value, mask).

        `mask`: the valid elements of `x`. Indices are clamped to the bounds; with `strict`, those out of bounds give
        invalid elements.
        """
        b, idx = self.batch, u.src[1:]
        width = b + sum(len(i.shape) for i in idx)
        picks: list[Any] = []
        for k in range(b):
            picks.append(np.arange(x.shape[k]).reshape((-1,) + (1,) * (width - k - 1)) if x.shape[k] > 1 else 0)
        at, inside = b, None
        for k, i in enumerate(idx):
            v, n = self.values[i], x.shape[b + k]
            v = v.reshape(v.shape[:b] + (1,) * (at - b) + v.shape[b:] + (1,) * (width - at - len(i.shape)))
            at += len(i.shape)
            if strict:
                inside = both_valid(inside, (v >= 0) & (v < n))
            picks.append(np.clip(v, 0, max(0, n - 1)).astype(np.int64))
            if (im := self.masks[i]) is not None:
                inside = both_valid(inside, im.reshape(v.shape))
        lead = np.broadcast_shapes(*(np.shape(p) for p in picks), (1,) * width)
        rest = x.shape[b + len(idx) :]
        if 0 in x.shape and 0 not in lead:  # nothing to read: the result is all invalid
            return np.full(lead + rest, garbage(u.dtype), x.dtype), np.zeros(lead + rest, bool)
        picks = [np.broadcast_to(p, lead) for p in picks]
        out = x[tuple(picks)] if picks else x
        got = None if mask is None else (mask[tuple(picks)] if picks else mask)
        if inside is not None:
            got = both_valid(got, np.broadcast_to(inside.reshape(inside.shape + (1,) * len(rest)), out.shape))
        return out, got

    # -- effects
    def positions(self, chain: list[UOp], size: tuple[int, ...], strict: bool) -> tuple[Array, Mask]:
        """Return (positions, mask) of the elements of a view: their flat positions in memory of shape `size`, and which
        are valid.

        `chain`: the movement ops of the view, the one next to memory first. With `strict`, an element whose index is
        out of bounds is not valid; else its index is clamped.
        """
        x: Array = np.arange(prod(size), dtype=np.int64).reshape((1,) * self.batch + size)
        mask: Mask = None
        for u in chain:
            x, mask = self.move(u, x, mask, frozenset(chain) if strict else frozenset())
        return x, mask

    def write(self, e: UOp, flat: Array, size: tuple[int, ...], root: UOp, lead: tuple[int, ...], gates: Any) -> None:
        """Execute `e`, a STORE or ATOMICADD, in all iterations of its loops, on the array `flat`.

        `root`: the memory that `e` writes; `flat`: its elements; `size`: its shape. `lead`: number of iterations along
        each batch axis. `gates`: bool arrays; an iteration writes only where all are true.
        """
        add = e.op == "ATOMICADD"
        pos, mask = self.positions(_base(e.src[0], root)[1], size, add)
        rank = pos.ndim - self.batch
        val, valid = self.aligned(self.values[e.src[1]], rank), self.masks[e.src[1]]
        if len(e.src) > 2:
            gates = [*gates, *(g for g in (self.values[e.src[2]], self.masks[e.src[2]]) if g is not None)]
        for g in [valid, *gates]:
            mask = both_valid(mask, None if g is None else self.aligned(g, rank))
        keep = np.True_ if mask is None else mask
        shape = np.broadcast_shapes(pos.shape, lead + (1,) * rank, val.shape, np.shape(keep))
        on = np.broadcast_to(keep, shape).reshape(-1)
        at, new = np.broadcast_to(pos, shape).reshape(-1)[on], np.broadcast_to(val, shape).reshape(-1)[on]
        if add:
            add_at(flat, at, new)
        else:
            flat[at] = new

    def after(self, u: UOp) -> tuple[Any, Mask]:
        """Return (value, mask) of the AFTER `u`: the value that its src[0] has once the effects src[1:] have
        happened.
        """
        x = u.src[0]
        if self.hook is not None:
            return self.hook.after(u, self), None
        root, effects = _root(x), [e for d in u.src[1:] for e in _effects(d)]
        if self.values[x] is None or isinstance(self.values[x], tuple):
            return self.values[x], None
        if any(_touches(e, root) for e in effects):
            return self.updated(u, x, root, effects), None
        under, chain = _base(root)
        if chain and any(_touches(e, _root(under)) for e in effects):  # the storage below the view was written
            value = self.updated(u, None, _root(under), effects)
            for c in chain:
                value, _ = self.move(c, value, None, frozenset())
            return value, None
        return self.values[x], self.masks[x]

    def updated(self, u: UOp, x: UOp | None, root: UOp, effects: list[UOp]) -> Array:
        """Return the contents of the memory `root` after `effects`, the effects that AFTER `u` waits for.

        `x`: the first source of `u`, which is `root` or an AFTER of `root`; None if `u` is an AFTER of a view of
        `root`. Raises IRError if the contents differ between iterations of a loop.
        """
        start, todo = self.history(u, x, root, effects)
        value = self.values[start]
        if any(n != 1 for n in value.shape[: self.batch]):
            raise IRError("AFTER inside a batch", op="AFTER", expected="storage that no loop varies", found=repr(u))
        flat = np.array(value).reshape(-1)
        for e in todo:
            if e.op == "CALL":
                self.call(e, root, flat)
            else:
                self.write(e, flat, value.shape[self.batch :], root, (1,) * self.batch, ())
        return flat.reshape(value.shape)

    def history(self, u: UOp, x: UOp | None, root: UOp, effects: list[UOp]) -> tuple[UOp, list[UOp]]:
        """Return (node, effects): a node whose value is known, and the effects on `root` that turn this value into that
        of AFTER `u`.

        `effects`: the effects that `u` waits for. `x`: the first source of `u`, which is the memory `root` or an AFTER
        of `root`; None if `u` is an AFTER of a view of `root`.
        """
        own = [e for e in effects if _touches(e, root)]
        bases = {b for e in own for v in _views(e) if _root(b := _base(v, root)[0]) is root}
        if x is not None and bases <= {x}:
            return x, own
        if x is not None and len(bases) == 1 and _orders_after(only := bases.pop(), x):
            return only, own
        # Several chains of effects join here: replay all of their effects, in the order of the traversal.
        below = (v for v in _reachable((u,), {}) if v.op in _WRITES)
        return root, [v for v in below if _touches(v, root)]

    def call(self, e: UOp, root: UOp, flat: Array) -> None:
        """Run the kernel of the CALL `e`, whose argument `root` has the memory `flat`; writes to other arguments are
        dropped.
        """
        env: Env = {}
        for p in _reachable((e.src[0],), {}):
            if p.op == "PARAM" and p.arg.slot + 1 < len(e.src):
                a = e.src[1 + p.arg.slot]
                v = flat if _root(_base(a, root)[0]) is root else np.array(self.values[a]).reshape(-1)
                env[p] = v if p.shape else v[0]
        run_kernel(e.src[0], env)


def _views(effect: UOp) -> tuple[UOp, ...]:
    """Return the operands of `effect` that it may write to, which are views of memory."""
    return effect.src[1:] if effect.op == "CALL" else effect.src[:1]


def _touches(effect: UOp, root: UOp) -> bool:
    """Whether `effect`, a STORE, ATOMICADD or CALL, may write to the memory `root`."""
    return any(_root(_base(v, root)[0]) is root for v in _views(effect))


def _orders_after(u: UOp, x: UOp) -> bool:
    """Whether `u` is `x`, or reaches `x` through a chain of AFTERs."""
    while u is not x and u.op == "AFTER":
        u = u.src[0]
    return u is x


def _is_storage(u: UOp, v: Any) -> bool:
    """Whether the array `v` is the whole memory of `u`, a PARAM or BUFFER, in its shape or flat, so that it has no
    batch axes.
    """
    if u.op not in ("PARAM", "BUFFER") or not u.shape or not all(n.__class__ is int for n in u.shape):
        return False
    return np.size(v) == prod(u.shape) and (np.ndim(v) == 1 or np.shape(v) == u.shape)


def _function(evaluator: Evaluator, u: UOp) -> tuple[Any, Mask]:
    """Return (values, None) of the FUNCTION `u`: evaluate its body with PARAM k bound to the value of argument k in
    `evaluator`.

    Variables have the values that they have in `evaluator`. Raises IRError if there is a loop around the FUNCTION.
    """
    if evaluator.batch:
        raise IRError("FUNCTION inside a batch", op=u.op, expected="no loops around it")
    env: Env = {k: v for k, v in evaluator.env.items() if k.op != "PARAM" or k.arg.name is not None}
    for p in _reachable((u.src[0],), env):
        if p.op == "PARAM" and p.arg.slot + 1 < len(u.src):
            env[p] = evaluator.values[u.src[1 + p.arg.slot]]
    inner = Evaluator(env, (u.src[0],))
    inner.run()
    return inner.values[u.src[0]], None


_HANDLERS: dict[str, Callable[[Evaluator, UOp], tuple[Any, Mask]]] = ROW_VALUES | {
    "FUNCTION": _function,
    "CALL": lambda m, u: (None, None),
    "AFTER": Evaluator.after,
}


# ---- kernels ---------------------------------------------------------------------------------------------------------
def _stores(u: UOp, around: tuple[UOp, ...]) -> list[tuple[UOp, tuple[UOp, ...]]]:
    """Return (effect, loops around it) for each STORE and ATOMICADD in `u`. `around`: the loops around `u`, which come
    first.
    """
    if u.op in ("STORE", "ATOMICADD"):
        return [(u, around)]
    if u.op == "END":
        return _stores(u.src[0], around + u.src[1:])
    return [x for s in u.src for x in _stores(s, around)] if u.op in ("SINK", "GROUP") else []


def _flat(buffers: Env, u: UOp) -> Array:
    """Return the array that `buffers` has for `u`, as a flat view. Raises IRError for an array of another dtype or
    layout.
    """
    out = buffers[u]
    if not isinstance(out, np.ndarray) or not out.flags.c_contiguous or out.dtype != storage(u.dtype):
        raise IRError("cannot write here", expected=f"a contiguous array of {u.dtype.name}", found=type(out).__name__)
    return out.reshape(-1)


def _run_at_once(sink: UOp, buffers: Env, loops: list[UOp]) -> None:
    """Execute the kernel `sink` on the arrays `buffers` with each of `loops` as a batch axis: read everything, then
    write.
    """
    stores = _stores(sink, ())
    roots = tuple(s for e, _ in stores for s in e.src) + tuple(loops)
    m = Evaluator(buffers, roots, loops)
    m.run()
    for e, around in stores:
        base, lead, gates = _base(e.src[0])[0], [1] * m.batch, []
        for r in around:
            lead[m.axes[r]] = m.values[r].size
            if m.values[r.src[0]].size > 1:
                gates.append(m.values[r] < m.values[r.src[0]])
        m.write(e, _flat(buffers, base), m.values[base].shape[m.batch :], base, tuple(lead), gates)


class _Loops:
    """An executor of a kernel, one iteration at a time. `memory` maps PARAMs and BUFFERs to arrays, which change.

    `done`: the effects that have run, each with the values of its loops. It is for kernels whose effects must run in
    order: those with an AFTER, or with a BUFFER of their own.
    """

    def __init__(self, buffers: Env) -> None:
        self.memory: Env = dict(buffers)
        self.done: set[tuple] = set()

    def execute(self, e: UOp, env: Env, again: bool = True) -> None:
        """Execute the effect `e` in one iteration. `env`: the value of each loop (RANGE) around `e`.

        With `again` false, do nothing if `e` has already run in this iteration.
        """
        key = (e, *((r, env[r]) for r in sorted(ranges(e), key=lambda r: r.serial) if r in env))
        if not again and key in self.done:
            return
        self.done.add(key)
        if e.op in ("SINK", "GROUP", "BARRIER", "AFTER"):
            for s in e.src:
                self.execute(s, env, again and e.op != "AFTER")
        elif e.op == "END":
            self.loop(e, e.src[1:], env)
        elif e.op in ("STORE", "ATOMICADD"):
            m, base = self.value(e.src, env), _memory(e.src[0])
            memory = self.storage(base)
            size = memory.shape if memory.ndim == len(base.shape) else base.shape
            m.write(e, _flat(self.memory, base), size, _base(e.src[0])[0], (1,) * m.batch, ())

    def loop(self, e: UOp, left: tuple[UOp, ...], env: Env) -> None:
        """Execute the body of the END `e` in all iterations of the loops `left`. `env`: the value of each loop around
        them.
        """
        if not left:
            return self.execute(e.src[0], env)
        r = left[0]
        bound = int(self.value((r.src[0],), env).values[r.src[0]].reshape(-1)[0])
        for k in range(bound):
            self.loop(e, left[1:], {**env, r: k})

    def value(self, roots: tuple[UOp, ...], env: Env) -> Evaluator:
        """Return an Evaluator that has evaluated `roots` on the current memory in the iteration `env` (the value of
        each loop).

        BUFFERs are allocated at first use.
        """
        for u in _reachable(roots, env, effects=False):
            if u.op == "BUFFER":
                self.storage(u)
        m = Evaluator({**self.memory, **env}, roots, (), _AfterHook(self, env))
        m.run()
        return m

    def storage(self, u: UOp) -> Array:
        """Return the array of `u`, a PARAM or BUFFER. The array of a BUFFER is allocated at first use."""
        if u not in self.memory:  # LOCAL and REG memory starts as garbage
            self.memory[u] = np.full(tuple(u.shape), garbage(u.dtype))
        return self.memory[u]


class _AfterHook:
    """The `hook` of an Evaluator, which evaluates AFTERs when the kernel runs one iteration at a time.

    `loops`: the executor of the kernel. `env`: the value of each loop in the current iteration.
    """

    def __init__(self, loops: _Loops, env: Env) -> None:
        self.loops, self.env = loops, env

    def after(self, u: UOp, evaluator: Evaluator) -> Any:
        """Run the effects of AFTER `u` that have not run in this iteration yet, and return the value that `u` then has.

        `evaluator` has the value of src[0], which is returned if `u` is an AFTER of a computed value rather than
        memory.
        """
        for d in u.src[1:]:
            self.loops.execute(d, self.env, again=False)
        x, chain = u, []
        while x.op in MOVEMENT or x.op in ("AFTER", "LOAD"):
            chain.append(x)
            x = x.src[0]
        if x not in self.loops.memory:
            return evaluator.values[u.src[0]]
        value = np.array(evaluator.bind(x)[0])  # a copy: the memory may change before this value is used
        for c in reversed(chain):
            if c.op in MOVEMENT:
                value, _ = evaluator.move(c, value, None, frozenset())
        return value


def _memory(view: UOp) -> UOp:
    """Return the PARAM or BUFFER below `view`, a chain of movement ops and AFTERs."""
    while view.op in MOVEMENT or view.op == "AFTER":
        view = view.src[0]
    return view


__all__ = ["Evaluator", "evaluate", "run_kernel"]
