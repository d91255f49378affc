"""Verify that a graph keeps the rules of its stage.

What it is for: tests verify the result of each pass, and parsed text is verified too. Each node is checked against its
row of the op table: the op is allowed at this stage and was not removed by an earlier pass, and dtype and shape follow
from the sources. A RANGE is not used outside of its END or REDUCE, a write to memory depends on every loop around it,
an accumulator is carried through whole loops, and the instructions of a LINEAR are in an order that can run.
What it is not: a proof of indices (that is CHECK_BOUNDS) or of meaning (that is `interp`).

Invariant: returns None, or raises VerifyError with the op, the node's text, the user's line and the text around it.
Source: the stage and rule columns of the op table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from weakref import WeakKeyDictionary

from monolect.base.dtype import dtypes
from monolect.base.errors import IRError, VerifyError
from monolect.ir.bounds import ranges
from monolect.ir.ops import AXIS_TYPES, ROWS, Row, Stage
from monolect.ir.placement import memory_of
from monolect.ir.text import show, show_origin
from monolect.ir.uop import UOp, toposort

_AROUND = 10  # lines of text that an error shows
_CLOSES = frozenset(("END", "REDUCE"))
_SPECIAL = frozenset(("RANGE", "AFTER", "ATOMICADD", "END", "REDUCE", "LINEAR", "CALL", "PROGRAM"))
# Items that a command buffer may contain twice; `command.rewrites.dependencies` orders each occurrence.
_REPEATED = frozenset(("CALL", "GROUP", "BARRIER"))
# Ops that are no instructions: in a LINEAR they may be at any position or missing.
_ANYWHERE = frozenset(("CONST", "STACK", "PARAM", "BUFFER", "BINARY", "SOURCE", "AFTER"))
_verified: WeakKeyDictionary[UOp, set[tuple]] = WeakKeyDictionary()  # {graph: (stage, removed ops) it was verified at}


@cache
def _allowed(stage: Stage) -> dict[str, Row]:
    return {name: row for name, row in ROWS.items() if stage & row.stages}


def verify(root: UOp, stage: Stage, removed: Collection[str] = ()) -> None:
    """Check that every node below `root` keeps the rules of its op's row, is allowed at `stage`, and is none of the ops
    `removed` by earlier passes.

    The body of a CALL is not entered, because it was verified at its own stage; nor is a PROGRAM at stage COMMAND. It
    also checks that loops nest, that each write depends on the loops around it, and that the instructions of a LINEAR
    are in an order that can run. Raises VerifyError.
    A graph that passed is not checked again at that stage: many passes leave a kernel as it was.
    """
    rules = (stage, *removed)
    if rules in _verified.get(root, ()):
        return
    allowed = _allowed(stage)
    if removed:
        allowed = {name: row for name, row in allowed.items() if name not in removed}
    seen, stack, nested = {root}, [root], []
    while stack:
        u = stack.pop()
        src = u.src
        row = allowed.get(u.op)
        if row is None:
            raise _foreign(u, root, stage, removed)
        n = len(src)
        if n < row.lo or (row.hi is not None and n > row.hi):
            raise _error(u, root, "wrong number of sources", f"{row.lo}..{row.hi}", n)
        try:
            agrees = row.dtype(src, u.arg) is u.dtype and row.shape(src, u.arg) == u.shape
        except IRError as e:
            raise _error(u, root, e.message, e.expected, e.found) from None
        if not agrees:
            raise _disagree(u, root, row)
        if u.op in _SPECIAL:
            if u.op == "CALL":
                src = src[1:]
            elif u.op == "PROGRAM" and stage is Stage.COMMAND:
                src = ()
            nested.append(u)
        for s in src:
            if s not in seen:
                seen.add(s)
                stack.append(s)
    if nested:
        _verify_loops(root, nested)
    _verified.setdefault(root, set()).add(rules)


def _disagree(u: UOp, root: UOp, row: Row) -> VerifyError:
    dtype, shape = row.dtype(u.src, u.arg), row.shape(u.src, u.arg)
    expected, found = f"{dtype.short}{list(shape)}", f"{u.dtype.short}{list(u.shape)}"
    return _error(u, root, "dtype and shape do not follow from the sources", expected, found)


def _foreign(u: UOp, root: UOp, stage: Stage, removed: Collection[str]) -> VerifyError:
    row = ROWS.get(u.op)
    if row is None:
        return _error(u, root, "unknown op", "an op of the table (monolect ops)", u.op)
    if u.op in removed:
        return _error(u, root, "an op that an earlier pass removes", "no " + u.op, u.op)
    return _error(u, root, f"an op that is not allowed at stage {stage.name}", f"stages {row.stages.name}", stage.name)


# ---- loops -----------------------------------------------------------------------------------------------------------
def _verify_loops(root: UOp, nodes: Sequence[UOp]) -> None:
    linear = [u for u in nodes if u.op == "LINEAR"]
    for u in nodes:
        if u.op == "RANGE" and not (isinstance(u.arg, tuple) and len(u.arg) == 2 and u.arg[1] in AXIS_TYPES):
            raise _error(u, root, "a RANGE of no axis type", "(id, one of " + ", ".join(AXIS_TYPES) + ")", u.arg)
        if u.op in _CLOSES and (other := [r for r in u.src[1:] if r.op != "RANGE"]):
            raise _error(u, root, f"{u.op} closes what is no loop", "RANGE nodes in src[1:]", other[0].op)
        if u.op == "AFTER" and _is_register(u.src[0]) and (other := [x for x in u.src[1:] if _is_computed(x)]):
            raise _error(u, root, "an accumulator of no loop", "effects and RANGE nodes in src[1:]", other[0].op)
    for u in linear:
        _verify_linear(u, root)
    if root.op == "SINK" and not linear and (free := ranges(root)):
        r = min(free, key=lambda v: v.serial)
        raise _error(r, root, "a RANGE that is used outside its END or REDUCE", "an END around every use", repr(r))
    ends = [u for u in nodes if u.op == "END" and not linear]
    _verify_nest(root, ends)
    _verify_writes(root, ends)


def _verify_nest(root: UOp, ends: Sequence[UOp]) -> None:
    """Check that loops nest by their ids: a loop that several of `ends` close must be inside the same loops in each
    END.

    `ends`: the ENDs in the graph `root`, which the error shows. Raises VerifyError.
    """
    outside: dict[UOp, list[UOp]] = {}
    for u in ends:
        outer = sorted(filter(_is_loop, ranges(u)), key=lambda r: r.arg[0])
        for r in sorted(filter(_is_loop, u.src[1:]), key=lambda r: r.arg[0]):
            if (known := outside.setdefault(r, list(outer))) != outer:
                found = " and ".join(str([o.arg[0] for o in x]) for x in (known, outer))
                raise _error(u, root, f"loop {r.arg[0]} is inside of different loops", "the same in each END", found)
            outer.append(r)


def _verify_writes(root: UOp, ends: Sequence[UOp]) -> None:
    """Check that each write to memory depends on each loop around it, and that no two of `ends` share an ATOMICADD.

    A shared ATOMICADD is one node, so it would happen only once. `ends`: the ENDs in the graph `root`. Raises
    VerifyError.
    """
    for u in ends:
        for e in _writes(u.src[0]):
            missing = [r for r in u.src[1:] if r not in ranges(e) and (e.op == "ATOMICADD" or _is_loop(r))]
            if missing:
                found = f"no dependence on loop {missing[0].arg[0]}"
                raise _error(e, root, "a write that may leave its loop", "a write that depends on each loop", found)
    added = Counter(e for src in (root.src, *(u.src[:1] for u in ends)) for e in src if e.op == "ATOMICADD")
    for e, n in added.items():
        if n > 1:
            raise _error(e, root, "an addition that several loops share", "an addition of its own in each", n)


def _writes(effect: UOp) -> Iterable[UOp]:
    """Yield the STOREs and ATOMICADDs to PARAMs in `effect`, including those in inner loops."""
    if effect.op in ("GROUP", "END"):
        for e in effect.src if effect.op == "GROUP" else effect.src[:1]:
            yield from _writes(e)
    elif effect.op in ("STORE", "ATOMICADD") and memory_of(effect.src[0]).op == "PARAM":
        yield effect


def _is_register(b: UOp) -> bool:
    """Whether `b` is a BUFFER in registers, an accumulator.

    An AFTER of such a BUFFER orders it behind effects and loops. An AFTER of a BUFFER in other memory may also wait for
    values.
    """
    return b.op == "BUFFER" and b.arg.addrspace == "REG"


def _is_computed(x: UOp) -> bool:
    """Whether `x`, a source of an AFTER, is index arithmetic on loops, rather than a RANGE, an effect, or another value
    to wait for.
    """
    return x.op != "RANGE" and x.dtype.kind == "x" and bool(ranges(x))


def _carries(u: UOp) -> bool:
    """Whether `u` is a loop-carried accumulator or table: an AFTER of its BUFFER, of the STORE that initializes it, and
    of a loop.
    """
    return u.op == "AFTER" and len(u.src) > 2 and u.src[0].op == "BUFFER" and u.src[1].op in ("STORE", "END")


def _is_loop(r: UOp) -> bool:
    """Whether the RANGE `r` has the axis type LOOP. The nesting order of RANGEs of other types is not checked."""
    return r.arg[1] == "LOOP"


def _verify_linear(linear: UOp, root: UOp) -> None:
    """Check `linear`, a LINEAR: each instruction follows its sources and is inside their blocks; RANGE/END and IF/ENDIF
    nest.

    A loop-carried accumulator is initialized before its loop. `root`: the graph that the error shows. Raises
    VerifyError.
    """
    listed = set(linear.src)
    position = {u: k for k, u in enumerate(linear.src)}
    block: dict[UOp, UOp | None] = {}  # the innermost block of each instruction
    blocks: list[UOp] = []
    for u in linear.src:
        if u in block and u.op not in _REPEATED:
            raise _error(u, root, "an instruction listed twice", "each instruction once", u.op)
        for s in u.src:
            if s not in listed or s.op in _ANYWHERE:
                continue
            if s not in block:
                raise _error(u, root, "an instruction before its source", f"{s.op} above it", u.op)
            inner = block[s]
            if inner is not None and s.dtype is not dtypes.void and inner not in blocks:
                raise _error(u, root, "a value used outside its block", f"a use of {s.op} in {inner.op}", u.op)
        if _carries(u):
            first = u.src[1]
            if any(r.op == "RANGE" and position.get(first, -1) > position.get(r, len(position)) for r in u.src[2:]):
                raise _error(
                    u, root, "a sum that starts inside the loop it is carried through", "its start above", u.op
                )
        if u.op in ("STORE", "ATOMICADD") and (outside := ranges(u).difference(blocks)):
            found = f"one outside of loop {min(r.arg[0] for r in outside)}"
            raise _error(u, root, "a write outside of its loop", "a write inside", found)
        if u.op == "ENDIF" or (u.op == "END" and len(u.src) > 1):
            for opened in _closed(u):
                if not blocks or blocks.pop() is not opened:
                    raise _error(u, root, f"{u.op} does not close the innermost block", "blocks that nest", u.op)
        if u.op in ("RANGE", "IF"):
            blocks.append(u)
        block[u] = blocks[-1] if blocks else None
    if blocks:
        raise _error(blocks[-1], root, "a block that is never closed", "an END or ENDIF", blocks[-1].op)


def _closed(u: UOp) -> Iterable[UOp]:
    """Return the RANGEs or IF that `u`, an END or ENDIF, closes, innermost first."""
    return u.src[:1] if u.op == "ENDIF" else reversed(u.src[1:])


# ---- messages --------------------------------------------------------------------------------------------------------
def _error(u: UOp, root: UOp, message: str, expected: object, found: object) -> VerifyError:
    """Return (not raise) the VerifyError for node `u` with the texts `message`, `expected` and `found`.

    It shows the lines around `u` in the text of graph `root`.
    """
    try:
        lines = show(root, origins=True, sections=False).splitlines()
        at = next(k for k, v in enumerate(toposort(root)) if v is u)
        text = "\n".join(
            ("> " if k == at else "  ") + lines[k]
            for k in range(max(0, at - _AROUND // 2), min(len(lines), at + _AROUND // 2))
        )
    except (IRError, StopIteration):
        text = f"> {u!r}"
    made = f" (made by {show_origin(u.origin)})" if u.origin is not None else ""
    line = u.origin[:2] if isinstance(u.origin, tuple) and len(u.origin) >= 2 else None
    return VerifyError(f"{u.op}: {message}{made}\n{text}", op=u.op, expected=str(expected), found=str(found), line=line)


__all__ = ["verify"]
