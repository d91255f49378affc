"""A graph as bytes, for caches: `unpack(pack(u)) is u`, in a fifth of the time that its text takes.

What it is for: a second process reads its schedules (`runtime/realize/schedule_cache.py`) without the reader of text
and its patterns.
What it is not: a format to exchange, or to take from others. The version that wrote it reads it; whoever keeps it
checks that it is whole, and that it is the user's own (`base/disk/cache.py`), because forged bytes can crash `marshal`.

Invariant: whole bytes that are no graph raise ParseError and nothing else. Unpacking simplifies nothing.
"""

from __future__ import annotations

import marshal
from typing import Any, Final

from monolect.base.dtype import ALL, DType
from monolect.base.errors import IRError, ParseError
from monolect.ir.ops import INVALID, BufferArg, KernelInfo, LoadArg, ParamArg, ProgramInfo, StepInfo, TmaCopyArg
from monolect.ir.uop import NAN, NEGATIVE_ZERO, UOp, node, toposort

# What arguments are made of beside numbers, strings, bytes and tuples; `ir.text` writes them by the same names.
DTYPES: Final[dict[str, DType]] = {d.short: d for d in ALL}
RECORDS: Final[dict[str, Any]] = {
    c.__name__: c for c in (ParamArg, BufferArg, KernelInfo, LoadArg, TmaCopyArg, ProgramInfo, StepInfo)
}
_SINGLE: Final = {"nan": NAN, "-0.0": NEGATIVE_ZERO, "invalid": INVALID}
_FORMAT: Final = 4  # of marshal: all versions of Python that can run this read it
_MADE: Final[dict[str, Any]] = {
    "tuple": lambda *items: items,
    "dtype": DTYPES.__getitem__,
    "single": _SINGLE.__getitem__,
    **RECORDS,
}
_PLAIN: Final = frozenset((int, str, bytes, bool, type(None)))


def pack(u: UOp) -> bytes:
    """`u` as bytes. Raises IRError when an argument or a tag holds what is no number, string, dtype or tuple."""
    numbers: dict[UOp, int] = {}
    values: dict[str, int] = {}  # by their text: 1 and True are equal, and not the same
    plain: list[Any] = []
    rows = []
    for v in toposort(u):
        fields = []
        for x in (v.arg, v.tag):
            p = _plain(x)
            if (text := repr(p)) not in values:
                values[text] = len(plain)
                plain.append(p)
            fields.append(values[text])
        rows.append((v.op, tuple([numbers[s] for s in v.src]), *fields))
        numbers[v] = len(numbers)
    return marshal.dumps((plain, rows), _FORMAT)


def unpack(data: bytes) -> UOp:
    """The graph that `pack` wrote. Raises ParseError for bytes that hold none."""
    try:
        plain, rows = marshal.loads(data)
        values = [_value(p) for p in plain]
        nodes: list[UOp] = []
        for op, src, arg, tag in rows:
            nodes.append(node(op, tuple([nodes[s] for s in src]), values[arg], values[tag]))
        return nodes[-1]
    except Exception as e:  # what bytes that are no graph lead to, in the reader or in the rules of the op table
        raise ParseError("no packed graph", expected="what `pack` writes", found=f"{data[:20]!r} ({e})") from None


def _plain(v: Any) -> Any:
    """A value of an argument as what `marshal` knows: numbers, strings and bytes, and tuples that begin with a name."""
    kind: type = v.__class__
    if kind in _PLAIN:
        return v
    if kind is DType:
        return "dtype", v.short
    if isinstance(v, tuple):
        name = kind.__name__
        return (name if RECORDS.get(name) is kind else "tuple", *map(_plain, v))
    if v is INVALID or v is NEGATIVE_ZERO:
        return "single", repr(v)
    if isinstance(v, float):  # of zeros only NEGATIVE_ZERO is the negative one
        return ("single", "nan") if v != v else abs(float(v)) if v == 0.0 else float(v)
    for base in (int, str):
        if isinstance(v, base):
            return base(v)
    raise IRError("an argument that cannot be kept", expected="numbers, strings, bytes, dtypes, tuples", found=repr(v))


def _value(p: Any) -> Any:
    return p if p.__class__ is not tuple else _MADE[p[0]](*map(_value, p[1:]))


__all__ = ["DTYPES", "RECORDS", "pack", "unpack"]
