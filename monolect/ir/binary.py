"""Serialize the graph of a UOp as bytes for caches, and read it back: `unpack(pack(u)) is u`. This is five times as
fast as the text form (`ir.text`).

What it is for: a second process loads its schedules (`runtime/realize/schedule_cache.py`) without the text parser.
What it is not: an exchange format. Only the version of monolect that wrote the bytes reads them. Forged bytes can crash
`marshal`, so the cache (`base/disk/cache.py`) checks that the bytes are complete and that the user owns the file.

Invariant: complete bytes that do not encode a graph raise ParseError and nothing else. Unpacking simplifies no node.
"""

from __future__ import annotations

import marshal
from typing import Any, Final

from monolect.base.dtype import ALL, DType
from monolect.base.errors import IRError, ParseError
from monolect.ir.ops import INVALID, BufferArg, KernelInfo, LoadArg, ParamArg, ProgramInfo, StepInfo, TmaCopyArg
from monolect.ir.uop import NAN, NEGATIVE_ZERO, UOp, node, toposort

# Arguments may hold these types in addition to numbers, strings, bytes and tuples; `ir.text` writes the same names.
DTYPES: Final[dict[str, DType]] = {d.short: d for d in ALL}
RECORDS: Final[dict[str, Any]] = {
    c.__name__: c for c in (ParamArg, BufferArg, KernelInfo, LoadArg, TmaCopyArg, ProgramInfo, StepInfo)
}
_SINGLE: Final = {"nan": NAN, "-0.0": NEGATIVE_ZERO, "invalid": INVALID}
_FORMAT: Final = 4  # version of the marshal format; every supported Python reads it
_MADE: Final[dict[str, Any]] = {
    "tuple": lambda *items: items,
    "dtype": DTYPES.__getitem__,
    "single": _SINGLE.__getitem__,
    **RECORDS,
}
_PLAIN: Final = frozenset((int, str, bytes, bool, type(None)))


def pack(u: UOp) -> bytes:
    """Serialize `u` and all nodes below it as bytes, which `unpack` reads.

    The arguments and tags of nodes may be None, numbers, strings, bytes, dtypes, tuples, and the argument records of
    the op table (`ParamArg` and the like). Raises IRError for an argument or tag that holds any other object.
    """
    numbers: dict[UOp, int] = {}
    values: dict[str, int] = {}  # keyed by repr, because 1 == True but both must be kept apart
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
    """Return the root node of the graph that `pack` wrote as the bytes `data`. Raises ParseError for bytes that encode
    no graph.
    """
    try:
        plain, rows = marshal.loads(data)
        values = [_value(p) for p in plain]
        nodes: list[UOp] = []
        for op, src, arg, tag in rows:
            nodes.append(node(op, tuple([nodes[s] for s in src]), values[arg], values[tag]))
        return nodes[-1]
    except Exception as e:  # bytes that hold no graph fail in marshal or in the rules of the op table
        raise ParseError("no packed graph", expected="what `pack` writes", found=f"{data[:20]!r} ({e})") from None


def _plain(value: Any) -> Any:
    """Convert `value`, the argument or tag of a node, to types that `marshal` can write, and return it.

    The result is None, a number, string, bytes, or a tuple that begins with the name of the original type. `_value`
    converts it back. Raises IRError for a value of any other type.
    """
    kind: type = value.__class__
    if kind in _PLAIN:
        return value
    if kind is DType:
        return "dtype", value.short
    if isinstance(value, tuple):
        name = kind.__name__
        return (name if RECORDS.get(name) is kind else "tuple", *map(_plain, value))
    if value is INVALID or value is NEGATIVE_ZERO:
        return "single", repr(value)
    if isinstance(value, float):  # only NEGATIVE_ZERO means -0.0; any other zero is written as 0.0
        return ("single", "nan") if value != value else abs(float(value)) if value == 0.0 else float(value)
    for base in (int, str):
        if isinstance(value, base):
            return base(value)
    raise IRError(
        "an argument that cannot be serialized", expected="numbers, strings, bytes, dtypes, tuples", found=repr(value)
    )


def _value(p: Any) -> Any:
    """Convert `p`, a value that `_plain` returned, back to the argument or tag of a node, and return it."""
    return p if p.__class__ is not tuple else _MADE[p[0]](*map(_value, p[1:]))


__all__ = ["DTYPES", "RECORDS", "pack", "unpack"]
