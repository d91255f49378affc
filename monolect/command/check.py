"""Check that a planned step keeps the rules of the COMMAND stage, byte by byte and with none of the planner's code.

The rules for items (kernel launches and copies): each operand fits what the item's program declares and is inside its
memory. Nothing is read before it is written or bound. Of two items that touch common bytes, one of which writes them,
the later one is AFTER the earlier one. An item that runs once touches only constants, and no other item writes its
results, except for values in the middle of a padded frame (`forms.is_frame`). Every PARAM of role "result" is written
whole. No item is listed twice. Results that may take the memory of an argument are also checked with that memory. An
item in a loop is checked for all offsets that its operands can have.

What it is not: a proof that programs compute what their kernels say (`VERIFY=2`), or that their indices stay inside of
their operands (`CHECK_BOUNDS`).
Invariant: the check returns None, or raises VerifyError naming the item.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from monolect.base.errors import VerifyError
from monolect.command.forms import access, is_arena, is_frame, is_scalar, read_operand
from monolect.ir.bounds import min_max, size_max
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp

BOUND = frozenset(("argument", "old", "state", "read", "constant"))  # roles of memory with a value before the step
FIXED = frozenset(("read", "constant"))  # roles of memory that no call changes


class MemoryAccess(NamedTuple):
    """The bytes from `start` to `end` - 1 of the memory `base` (a PARAM or BUFFER), which item number `item` reads or
    writes.
    `reads` and `writes` say which.
    """

    item: int
    base: UOp
    start: int
    end: int
    reads: bool
    writes: bool


class _Item(NamedTuple):
    """An item of the step's program, a CALL or a copy (STORE), and whether it runs once instead of at each call."""

    node: UOp
    is_once: bool


def check(step: UOp) -> None:
    """Check `step`, in the form that the last pass of the COMMAND stage returns. Raises VerifyError for an operand
    outside of its memory, for items that touch common bytes and are not ordered, for bytes that are read before they
    are written, for a wrong item that runs once, and for an item that is listed twice.
    """
    items = [*_items(step)]
    seen: set[UOp] = set()
    for it in items:
        if it.node in seen:
            raise _error(it.node, "an item listed twice", "items that differ by what they are AFTER", it.node.op)
        seen.add(it.node)
    accesses = [[*_accesses(i, it.node)] for i, it in enumerate(items)]
    roles = step.arg.roles
    _check_once(items, accesses, roles, step.arg.shared)
    before = _predecessors(items)
    flat = [a for mine in accesses for a in mine]
    _check_order(items, flat, before)
    for pair in step.arg.reuse:
        _check_order(items, _merged(flat, *pair), before)
    _check_defined(step, items, accesses)


def _items(step: UOp) -> Iterator[_Item]:
    """Yield an _Item for each CALL and copy in the program of `step`, in order; those that run once come first."""
    for out in step.src[0].src:
        if out.op == "AFTER":
            for u in out.src[1].src:
                for c in u.src if u.op in ("GROUP", "LINEAR") else (u,):
                    if c.op in ("CALL", "STORE"):
                        yield _Item(c, u.op == "LINEAR")
            return


def _parts(item: UOp) -> list[tuple[UOp, str, Any]]:
    """Return (operand, access, (dtype, minimum number of elements)) for each operand of `item`, as its program declares
    it.

    Access is "read", "write" or "update" (both). Raises VerifyError if the program declares another number of operands.
    """
    if item.op == "STORE":
        to, load = item.src
        return [(to, "write", (to.dtype, 0)), (load.src[0], "read", (load.src[0].dtype, 0))]
    if item.src[0].op != "PROGRAM":  # an allreduce
        return [(u, access(item, k), (u.dtype, 0)) for k, u in enumerate(item.src[1:])]
    info = item.src[0].arg
    if len(info.operands) != len(item.src) - 1:
        raise _error(item, "the number of operands is not the program's", len(info.operands), len(item.src) - 1)
    return [(u, how, (d, n)) for u, (d, n, how) in zip(item.src[1:], info.operands, strict=True)]


def _accesses(i: int, item: UOp) -> Iterator[MemoryAccess]:
    """Yield a MemoryAccess for each operand of `item` that is memory; `i` is the item's number.

    Raises VerifyError for an operand that is not aligned or not inside of its memory, or that has another dtype or
    fewer elements than the program takes.
    """
    for u, how, (dtype, n) in _parts(item):
        o = read_operand(u)
        if is_scalar(u):
            continue
        if u.dtype is not dtype:
            raise _error(item, "an operand of another dtype than the program takes", dtype.name, u.dtype.name)
        n_bytes = size_max(count(u.shape)) * u.dtype.itemsize
        whole = size_max(count(o.base.shape)) * o.base.dtype.itemsize
        low, high = (o.offset, o.offset) if o.offset.__class__ is int else map(int, min_max(o.offset))
        if n_bytes < n * dtype.itemsize or low < 0 or high + n_bytes > whole:
            found = f"{n_bytes} bytes from byte {low} on of {whole}"
            raise _error(item, "an operand outside of its memory", f"{n * dtype.itemsize} bytes inside", found)
        if low % dtype.itemsize:
            raise _error(item, "an operand that is not aligned to its elements", dtype.itemsize, low)
        yield MemoryAccess(i, o.base, low, high + n_bytes, how != "write", how != "read")


def _predecessors(items: Sequence[_Item]) -> list[int]:
    """Return, for each of `items`, a bit set of the numbers of all items that it comes after.

    These are the items that its operands are AFTER, directly or indirectly, and those that run once. Raises VerifyError
    if an item is AFTER an item that does not precede it.
    """
    number = {it.node: i for i, it in enumerate(items)}
    once = sum(1 << i for i, it in enumerate(items) if it.is_once)
    out: list[int] = []
    for i, it in enumerate(items):
        bits = 0 if it.is_once else once
        for u, *_ in _parts(it.node):
            for c in read_operand(u).after:
                j = number.get(c, i)
                if j >= i:
                    raise _error(it.node, "an item is AFTER an item that does not precede it", "an earlier item", c.op)
                bits |= out[j] | 1 << j
        out.append(bits)
    return out


def _check_order(items: Sequence[_Item], accesses: Sequence[MemoryAccess], before: list[int]) -> None:
    """Raise VerifyError if two of `accesses` to common bytes, one of them a write, are not ordered by AFTER.

    `items`: the items of the step. `before`: for each item the bit set of the items that it comes after.
    """
    by_base: dict[UOp, list[MemoryAccess]] = {}
    for a in accesses:
        mine = by_base.setdefault(a.base, [])
        for b in reversed(mine):
            if b.item == a.item or b.end <= a.start or a.end <= b.start or not (a.writes or b.writes):
                continue
            if not before[a.item] >> b.item & 1:
                found = f"item {a.item} is not AFTER item {b.item}, bytes {max(a.start, b.start)} on"
                raise _error(items[a.item].node, "two items that touch common bytes are not ordered", "AFTER", found)
            if b.writes and b.start <= a.start and a.end <= b.end:
                break  # earlier accesses precede that write
        mine.append(a)


def _merged(accesses: Sequence[MemoryAccess], result: int, argument: int) -> list[MemoryAccess]:
    """Return `accesses` with the memory of the PARAM with slot `result` replaced by that of the PARAM with slot
    `argument`.
    The accesses are unchanged if none of them is to the PARAM of `argument`.
    """
    params = {a.base.arg.slot: a.base for a in accesses if a.base.op == "PARAM"}
    new, old = params.get(argument), params.get(result)
    return [a._replace(base=new) if new is not None and a.base is old else a for a in accesses]


def _check_once(
    items: Sequence[_Item], accesses: Sequence[Sequence[MemoryAccess]], roles: Sequence[str], shared: Sequence[int]
) -> None:
    """Raise VerifyError if one of `items` that runs once touches memory that changes, or if another item writes its
    results.

    `accesses`: the accesses of each item. `roles`: the role of each PARAM, by slot. `shared`: slots of constants that
    external code may write.
    """
    left: set[UOp] = set()  # memory outside of the arena that the items that run once write
    for it, mine in zip(items, accesses, strict=True):
        for a in mine:
            if not it.is_once:
                if a.writes and a.base in left:
                    raise _error(it.node, "an item writes the result of an item that runs once", "another BUFFER", a)
                continue
            if a.base.op == "PARAM" and (roles[a.base.arg.slot] not in FIXED or a.base.arg.slot in shared or a.writes):
                raise _error(it.node, "an item that runs once touches memory that changes", "constants", repr(a.base))
            if a.writes and not is_arena(a.base):
                left.add(a.base)


# ---- defined bytes ---------------------------------------------------------------------------------------------------
class _Written:
    """A set of byte numbers, stored as disjoint (start, end) ranges in ascending order.
    It holds the bytes of one memory that items have written so far.
    """

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        """Add the byte numbers `start` to `end` - 1 to the set."""
        out = []
        for a, b in self.ranges:
            if b < start or end < a:
                out.append((a, b))
            else:
                start, end = min(a, start), max(b, end)
        self.ranges = sorted([*out, (start, end)])

    def has(self, start: int, end: int) -> bool:
        """Return whether all bytes `start` to `end` - 1 are in the set."""
        return any(a <= start and end <= b for a, b in self.ranges)


def _check_defined(step: UOp, items: Sequence[_Item], accesses: Sequence[Sequence[MemoryAccess]]) -> None:
    """Raise VerifyError if one of `items` reads bytes that nothing wrote or writes memory that is not the step's, or if
    a result is not written whole.

    `accesses`: the accesses of each item of `step`.
    """
    roles = step.arg.roles
    written: dict[UOp, _Written] = {}

    def of(base: UOp) -> _Written:
        if base not in written:
            written[base] = w = _Written()
            if base.op == "PARAM" and roles[base.arg.slot] in BOUND:
                w.add(0, 1 << 62)
        return written[base]

    frames: dict[UOp, _Written] = {}
    for it, mine in zip(items, accesses, strict=True):
        if is_frame(it.node):  # an item may read the middle of a frame before the frame is stored
            for a in mine:
                frames.setdefault(a.base, _Written()).add(a.start, a.end)
                of(a.base).add(a.start, a.end)
    was_once = False
    for it, mine in zip(items, accesses, strict=True):
        if was_once and not it.is_once:  # the arena keeps only frames of the items that ran once
            written = {b: w for b, w in written.items() if not is_arena(b)} | frames
        was_once = it.is_once
        for a in mine:
            if a.base.op == "PARAM" and a.writes and roles[a.base.arg.slot] not in ("result", "state"):
                raise _error(
                    it.node, "an item writes memory that is not the step's", "a result or a state", repr(a.base)
                )
            if a.reads and 0 not in a.base.shape and not of(a.base).has(a.start, a.end):
                raise _error(it.node, "an item reads bytes that nothing wrote", f"{a.start} to {a.end}", repr(a.base))
        for a in mine:
            if a.writes:
                of(a.base).add(a.start, a.end)
    for out in step.src[0].src:
        base = read_operand(out.src[0] if out.op == "AFTER" else out).base
        if base.op == "PARAM" and roles[base.arg.slot] == "result":
            n = size_max(count(base.shape)) * base.dtype.itemsize
            if n and not of(base).has(0, n):
                raise _error(step, "a result that is not written whole", f"{n} bytes", of(base).ranges)


def _error(u: UOp, message: str, expected: object, found: object) -> VerifyError:
    """Return (not raise) the VerifyError with the text `message` for node `u`; it has the name of the kernel and the
    line of the user's program if known.
    """
    name = f" of {u.src[0].arg.name}" if u.op == "CALL" and u.src[0].op == "PROGRAM" else ""
    line = u.origin[:2] if isinstance(u.origin, tuple) and len(u.origin) >= 2 else None
    return VerifyError(f"{u.op}{name}: {message}", op=u.op, expected=str(expected), found=str(found), line=line)


__all__ = ["check"]
