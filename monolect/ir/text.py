"""Write a graph of UOps as text and parse it: `parse(show(u)) is u`. Each line is a node; sources precede users.

    %0 = CONST idx[] (8, idx)
    %1 = RANGE idx[] %0 (0, "LOOP")
    %2 = STACK idx[1] %0
    %3 = PARAM f32[8] %2 ParamArg(slot=0, dtype=f32)
    %4 = INDEX f32[] %3 %1                              # digits.py:12 getitem

The body of a FUNCTION, CALL or PROGRAM is a section that precedes the call, with its own node names:

    @sum_8 {
      %0 = CONST idx[] (8, idx)
      ...
    }
    %5 = PROGRAM void[] @sum_8 ProgramInfo(name="sum_8")

What it is for: tests, dumps, bug reports, and running a part of the compiler from a file. The last line is the root.
The parser checks dtype and shape. It ignores blank lines and comments. A comment shows the origin of a node: the line
of the user's program that made it.
What it is not: a format for caches (`ir.binary` is). Only the version that wrote a text is sure to read it.

Invariant: text that is not a graph raises ParseError and nothing else. Parsing simplifies no node. A tuple subclass
that is not an argument record of the op table is written as a plain tuple, to which it is equal.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from monolect.base.disk.version import COMPILED
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import IRError, ParseError
from monolect.ir.binary import DTYPES, RECORDS
from monolect.ir.ops import INVALID
from monolect.ir.uop import NAN, NEGATIVE_ZERO, UOp, node, toposort

_WORDS: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "inf": float("inf"),
    "nan": NAN,
    "invalid": INVALID,
}
_ANY_NUMBERS = ("FLIP", "WMMA", "CUSTOM", "INS")  # ops whose argument may hold a bool or a float
_RECORD_OPS = ("PARAM", "BUFFER", "SINK", "FUNCTION", "LOAD", "TMACOPY", "PROGRAM")  # ops whose arg is no plain tuple
_MAX_DEPTH = 64  # nested parentheses in one argument; deeper text raises ParseError

_LINE = re.compile(r"[ \t]*%(\w+) = (\w+) (\w+\[[^\]]*\])((?: [%@]\w+)*)[ \t]*(.*)", re.ASCII | re.DOTALL)
_SECTION = re.compile(r"[ \t]*(@\w+)[ \t]*\{[ \t\r]*", re.ASCII)
_RUNNING = frozenset(("FUNCTION", "CALL", "PROGRAM"))  # ops whose first source is a body
_TOKEN = re.compile(
    r"""[ \t]*(?: (?P<str>"(?:[^"\\]|\\.)*") | (?P<bytes>b"[0-9a-f]*")
    | (?P<float>-?[0-9]+(?:\.[0-9]+(?:e[-+]?[0-9]+)?|e[-+]?[0-9]+)|-inf) | (?P<int>-?[0-9]+)
    | (?P<name>[A-Za-z_][A-Za-z_0-9]*) | (?P<mark>[(),=]) | (?P<end>\#.*|$) )""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN = re.compile(r'(\w+)=(?:([0-9]{1,18})|([A-Za-z_]\w*)|"([\w:]*)")(?:, |\)$)', re.ASCII)  # a field of most records


def summary(u: UOp) -> Counter[str]:
    """Return a Counter from op name to the number of nodes with this op in the graph of `u`."""
    return Counter(v.op for v in toposort(u))


# ---- writing ---------------------------------------------------------------------------------------------------------
def show(u: UOp, *, origins: bool = False, sections: bool = True) -> str:
    """Return the graph of `u` as text that `parse` reads.

    With `origins`, each line ends with a comment: the line of the user's program that made the node. Without
    `sections`, bodies of calls are not written as sections, and all nodes are in one list. Raises IRError if an
    argument or a tag of a node has no text form.
    """
    bodies: dict[UOp, UOp] = {}  # body -> the first node that runs it
    for v in toposort(u) if sections else ():
        if v.op in _RUNNING and v.src and v.src[0].op != "PROGRAM":
            bodies.setdefault(v.src[0], v)
    if not bodies:
        return "".join(line + "\n" for line in _lines(u, {}, origins))
    named: dict[UOp, str] = {}
    out = []
    for body, user in bodies.items():  # inner ones first
        named[body] = name = _section_name(user if user.op == "PROGRAM" else body, {*named.values()})
        out += [f"{name} {{", *("  " + line for line in _lines(body, named, origins)), "}"]
    return "\n".join([*out, *_lines(u, named, origins)]) + "\n"


def _section_name(u: UOp, taken: set[str]) -> str:
    """Return an `@name`, not in `taken`, for the section of the body `u`: from its program or kernel name, or
    `@body`.
    """
    given = getattr(u.arg, "name", None) or "body"
    name = "@" + re.sub(r"\W", "_", given, flags=re.ASCII)
    others = (f"{name}_{k}" for k in itertools.count(1))
    return next(n for n in itertools.chain([name], others) if n not in taken)


def _lines(u: UOp, named: dict[UOp, str], origins: bool) -> Iterator[str]:
    """Yield a line of text for each node in the graph of `u`, except nodes in `named` and the nodes below them.

    `named`: for each body that is written as a section, its `@name`. With `origins`, each line ends with a comment: the
    line of the user's program that made the node.
    """
    names: dict[UOp, str] = {}
    columns: dict[tuple, str] = {}
    for v in toposort(u, stop=lambda v: v is not u and v in named):
        if v is not u and v in named:
            continue
        names[v] = name = f"%{len(names)}"
        parts = [name, "=", v.op, _column(v, names, columns)]
        parts += [names.get(s) or named[s] for s in v.src]
        if v.arg is not None:
            parts.append(_write(v.arg))
        if v.tag is not None:
            parts.append("tag=" + _write(v.tag))
        if origins and v.origin is not None:
            parts.append(" # " + show_origin(v.origin))
        yield " ".join(parts)


def show_origin(origin: Any) -> str:
    """Return `origin`, the (file, line, method) of the user's program that made a node, as the text `file:line method`
    on one line.
    An `origin` that is not such a tuple is written as if it were the file, with line 0.
    """
    file, line, *method = origin if isinstance(origin, tuple) and len(origin) >= 2 else (origin, 0)
    return " ".join([f"{file}:{line}", *map(str, method)]).replace("\n", " ").replace("\r", " ")


def _column(u: UOp, names: dict[UOp, str], columns: dict[tuple, str]) -> str:
    """Return the dtype and shape of `u` as text, such as `f32[4,%7]`; a size that has no line in the text is written
    `?`.

    `names`: the name, such as `%7`, of each node that is written. `columns`: memo from (dtype, shape) to the text.
    """
    key = (u.dtype, u.shape)
    out = columns.get(key)
    if out is None:
        sizes = [names.get(n, "?") if n.__class__ is UOp else str(n) for n in u.shape]
        out = f"{u.dtype.short}[{','.join(sizes)}]"
        if "?" not in sizes:  # else the node of the size may follow later and get a name
            columns[key] = out
    return out


def _write(value: Any) -> str:
    """Return `value`, the argument or tag of a node or a part of one, as text. Raises IRError for a value that has no
    text form.
    """
    kind = value.__class__
    if kind is int:
        return repr(value)
    if kind is str:
        return json.dumps(value)
    if isinstance(value, tuple):
        if kind.__name__ in RECORDS and RECORDS[kind.__name__] is kind:
            return _write_record(value)
        inner = ", ".join(map(_write, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if kind is DType:
        return value.short
    if value is None or value is INVALID or kind is bool:
        return repr(value)
    if isinstance(value, float):
        # 0.0 and -0.0 are equal keys outside of a CONST: only NEGATIVE_ZERO is written as -0.0.
        return "-0.0" if value is NEGATIVE_ZERO else repr(abs(float(value)) if value == 0.0 else float(value))
    if isinstance(value, bytes):
        return f'b"{value.hex()}"'
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, str):
        return json.dumps(value)
    raise IRError(
        "an argument that has no text", expected="numbers, strings, bytes, dtypes and tuples", found=repr(value)
    )


def _write_record(v: Any) -> str:
    defaults = v._field_defaults
    fields = [(f, x) for f, x in zip(v._fields, v, strict=True) if f not in defaults or x is not defaults[f]]
    return f"{v.__class__.__name__}({', '.join(f'{f}={_write(x)}' for f, x in fields)})"


# ---- parsing ---------------------------------------------------------------------------------------------------------
def parse(text: str) -> UOp:
    """Parse `text`, a graph with one node per line, and return the node of its last line.

    Raises ParseError with the line number if the text is not a graph.
    """
    nodes: dict[str, UOp] = {}
    names: dict[UOp, str] = {}
    columns: dict[tuple, str] = {}
    bodies: dict[str, UOp] = {}
    outer: tuple | None = None  # saved state of the text around the current section
    section = ""
    arguments: dict[str, tuple[Any, Any]] = {"": (None, None)}
    u: UOp | None = None
    number = 0
    for number, line in enumerate(text.split("\n"), 1):
        m = _LINE.fullmatch(line)
        if m is None:
            if line.lstrip(" \t\r")[:1] in ("", "#"):
                continue
            if begin := _SECTION.fullmatch(line):
                if outer is not None:
                    raise _error(number, "a section inside of a section", f"the end of {section}: }}", line)
                if (section := begin.group(1)) in bodies:
                    raise _error(number, "a section defined twice", "a new name", section)
                outer = nodes, names, columns, u
                nodes, names, columns, u = {}, {}, {}, None
                continue
            if line.strip(" \t\r") == "}" and outer is not None:
                if u is None:
                    raise _error(number, f"no node in {section}", "at least one line", "nothing")
                bodies[section] = u
                nodes, names, columns, u = outer
                outer = None
                continue
            raise _error(number, "not a node", "%name = OP dtype[shape] %source ... argument", line)
        name, op, column, sources, rest = m.groups()
        if name in nodes:
            raise _error(number, "a name defined twice", "a new name (a file holds one graph)", "%" + name)
        src = []
        for s in sources.split():
            if (v := bodies.get(s) if s[0] == "@" else nodes.get(s[1:])) is None:
                raise _error(number, "an unknown source", "the name of a line or section above", s)
            src.append(v)
        pair = arguments.get(rest)
        if pair is None:
            pair = arguments[rest] = _plain_record(rest) or _Arguments(rest, number).read()
        u, found = _build(number, op, tuple(src), pair, names, columns)
        nodes[name] = u
        names.setdefault(u, "%" + name)
        if found != column and not _same_column(found, column):
            raise _error(number, "another dtype or shape than the node has", found, column)
    if outer is not None:
        raise _error(number, f"{section} has no end", "}", "the end of the text")
    if u is None:
        raise _error(1, "no node", "at least one line", "nothing")
    return u


def _error(number: int, message: str, expected: object, found: object) -> ParseError:
    return ParseError(f"line {number}: {message}", expected=expected, found=found)


def _build(
    number: int, op: str, src: tuple[UOp, ...], pair: tuple[Any, Any], names: dict[UOp, str], columns: dict[tuple, str]
) -> tuple[UOp, str]:
    """Return (node, text of its dtype and shape) for line number `number`, which names the op `op` and the sources
    `src`.

    `pair`: argument and tag of the node. `names`: the name, such as `%7`, of each node of earlier lines. `columns`:
    memo from (dtype, shape) to text. Raises ParseError with the line number if these do not make a valid node.
    """
    if not _is_exact(op, pair[0]):
        raise _error(
            number, f"a number of another type than {op} has", "an int, a float or a bool as its dtype says", pair[0]
        )
    try:
        u = node(op, src, *pair)
        return u, _column(u, names, columns)
    except IRError as e:
        raise _error(number, e.message, e.expected, e.found) from None
    except Exception as e:  # the rules of the table trust the type of `arg`, which text may have wrong
        raise _error(number, f"an argument that {op} cannot have", "see `monolect ops`", f"{pair[0]!r} ({e})") from None


def _same_column(found: str, given: str) -> bool:
    """Whether `found` and `given`, texts of dtype and shape, agree apart from spaces. An unknown size `?` agrees with
    any size.
    """
    a, b = (re.split(r"[\[\],]", re.sub(r"[ \t]", "", s)) for s in (found, given))
    return len(a) == len(b) and all(x == y or "?" in (x, y) for x, y in zip(a, b, strict=True))


def _plain_record(text: str) -> tuple[Any, Any] | None:
    """Parse `text`, an argument record whose fields are small numbers, words and simple strings: a fast path of
    `_Arguments`.

    Nearly all PARAMs and BUFFERs have such a record, and they take most of the time of reading a saved step; this is
    three times as fast. Returns (record, None), meaning an argument without a tag. Returns None if `text` is anything
    else or is wrong; then the caller parses it by `_Arguments`, which raises the error.
    """
    name, _, fields = text.partition("(")
    kind = RECORDS.get(name)
    if kind is None:
        return None
    values: dict[str, Any] = {}
    at = n = 0
    for m in _PLAIN.finditer(fields):
        if m.start() != at:
            return None
        field, number, word, string = m.groups()
        if number is not None:
            values[field] = int(number)
        elif word is None:
            values[field] = string
        elif word in _WORDS:
            values[field] = _WORDS[word]
        elif word in DTYPES:
            values[field] = DTYPES[word]
        else:
            return None
        at, n = m.end(), n + 1
    if at != len(fields) or not fields.endswith(")") or len(values) != n:
        return None
    if not _fields_fit(kind, values):
        return None
    try:
        return kind(**values), None
    except TypeError:  # an unknown field, or a missing one
        return None


def _is_exact(op: str, arg: Any) -> bool:
    """Whether `arg`, a node's argument, has exactly the Python types that op `op` uses.

    Equal values of another type, such as True for 1 or a tuple for a record, would be interned as the same node. The
    fields of records are not checked here, but where they are parsed. `op` is "" for the elements of a tuple.
    """
    if op in _RECORD_OPS:
        return arg.__class__ is not tuple
    if op == "CONST" and arg.__class__ is tuple and len(arg) == 2 and isinstance(arg[1], DType):
        value, dtype = arg
        wanted = bool if dtype is dtypes.bool else int if dtype.is_int else float
        return value is INVALID or value.__class__ is wanted or wanted is float and isinstance(value, float)
    if op in _ANY_NUMBERS or arg.__class__ is str:
        return True
    if arg.__class__ is not tuple:
        return arg.__class__ is not bool and not isinstance(arg, float)
    return all(_is_exact("", x) for x in arg)


@functools.cache
def _field_types(kind: Any) -> dict[str, Any]:
    """Return a dict from field name to type for the argument record class `kind`. A compiled build reads the types from
    the module's source.
    """
    if not COMPILED:
        return get_type_hints(kind)
    import ast  # only a compiled build needs it

    module = sys.modules[kind.__module__]
    source = Path(str(module.__file__)).with_name(module.__name__.rpartition(".")[2] + ".py").read_text("utf-8")
    body = next(c.body for c in ast.parse(source).body if isinstance(c, ast.ClassDef) and c.name == kind.__name__)
    fields = [a for a in body if isinstance(a, ast.AnnAssign)]
    return {ast.unparse(a.target): eval(ast.unparse(a.annotation), vars(module)) for a in fields}


def _fields_fit(kind: Any, fields: dict[str, Any]) -> bool:
    """Whether all values in `fields` (name -> value) have the types that the argument record class `kind` declares.
    Fields that the class does not have are ignored here.
    """
    types = _field_types(kind)
    return all(f not in types or _fits(v, types[f]) for f, v in fields.items())


def _fits(v: Any, wanted: Any) -> bool:
    """Whether the value `v` has exactly the type `wanted`.

    `True` and `1.0` do not fit `int`: they equal 1, so a node that holds them would be interned as the node of 1.
    `wanted`: a class, Any, a union of classes, or a tuple type; Any accepts every value.
    """
    if wanted is Any or v.__class__ is wanted:
        return True
    if get_origin(wanted) is UnionType:
        return any(_fits(v, w) for w in get_args(wanted))
    if get_origin(wanted) is not tuple or v.__class__ is not tuple:
        return False
    items = get_args(wanted)
    if items[-1] is ...:
        items = items[:1] * len(v)
    return len(v) == len(items) and all(map(_fits, v, items))


class _Arguments:
    """A parser of the end of a line, after the sources of a node: an optional argument and an optional `tag=` part.
    `read` returns (argument, tag), None for each that is missing. Wrong text raises ParseError with the line number
    `number`.
    """

    def __init__(self, text: str, number: int) -> None:
        self.text, self.number, self.at = text, number, 0
        self.kind, self.token = "", ""
        self.advance()

    def fail(self, expected: str) -> ParseError:
        return _error(self.number, "not an argument", expected, self.token or "the end of the line")

    def advance(self) -> None:
        m = _TOKEN.match(self.text, self.at)
        if m is None:
            raise _error(self.number, "not an argument", "a value", self.text[self.at :].strip()[:40])
        self.kind, self.at = m.lastgroup or "", m.end()
        self.token = m.group(self.kind)

    def take(self, token: str) -> None:
        if self.token != token:
            raise self.fail(f"'{token}'")
        self.advance()

    def read(self) -> tuple[Any, Any]:
        arg = tag = None
        if self.kind != "end" and self.token != "tag":
            arg = self.value(0)
        if self.token == "tag":
            self.advance()
            self.take("=")
            tag = self.value(0)
        if self.kind != "end":
            raise self.fail("the end of the line")
        return arg, tag

    def value(self, depth: int) -> Any:
        kind, token = self.kind, self.token
        if depth > _MAX_DEPTH:
            raise self.fail(f"at most {_MAX_DEPTH} nested parentheses")
        self.advance()
        try:
            if kind == "int":
                return int(token)
            if kind == "float":
                return NEGATIVE_ZERO if (v := float(token)) == 0.0 and token[0] == "-" else v
            if kind == "str":
                return json.loads(token)
            if kind == "bytes":
                return bytes.fromhex(token[2:-1])
        except ValueError as e:
            raise _error(self.number, "not an argument", "a number or a string", f"{token[:40]} ({e})") from None
        if token == "(":
            return self.tuple(depth)
        if kind == "name" and (token in _WORDS or token in DTYPES):
            return _WORDS[token] if token in _WORDS else DTYPES[token]
        if token in RECORDS:
            return self.record(RECORDS[token], depth)
        raise _error(self.number, "not an argument", "a number, string, dtype, tuple or record", token or "nothing")

    def tuple(self, depth: int) -> tuple:
        out = []
        while self.token != ")":
            out.append(self.value(depth + 1))
            if self.token != ")":
                self.take(",")
            elif len(out) == 1:
                raise self.fail("',' after the only element of a tuple")
        self.advance()
        return tuple(out)

    def record(self, kind: Any, depth: int) -> Any:
        self.take("(")
        fields: dict[str, Any] = {}
        while self.token != ")":
            field = self.token
            if field not in kind._fields or field in fields:
                raise self.fail("one of " + ", ".join(kind._fields) + ", once")
            self.advance()
            self.take("=")
            fields[field] = self.value(depth + 1)
            if self.token != ")":
                self.take(",")
        self.advance()
        missing = [f for f in kind._fields if f not in fields and f not in kind._field_defaults]
        if missing:
            raise _error(self.number, f"{kind.__name__} lacks a field", ", ".join(missing), ", ".join(fields) or "none")
        types = _field_types(kind)
        for f, v in fields.items():
            if not _fits(v, types[f]):
                wanted = types[f].__name__ if isinstance(types[f], type) else types[f]
                raise _error(self.number, f"{f} of {kind.__name__} has another type", wanted, repr(v)[:80])
        return kind(**fields)


__all__ = ["parse", "show", "show_origin", "summary"]
