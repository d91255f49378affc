"""Define patterns and named rules, and compile tables of rules into matchers.

    x, c = Var("x"), Const("c")
    TIDY = RuleSet("tidy",
        Rule("mul_one", x * 1, x),
        Rule("add_twice", (x + c.named("a")) + Const("b"), lambda x, a, b: x + (a + b)),
    )

A pattern is built with operators and `Pat`. A name captures the matched node; if a name occurs twice, both must be the
same node. Operands of commutative ops match in both orders. The right side of a rule is an expression over the same
names, or a function that returns the new node or None. Its parameters are captured nodes by name; `root` is the whole
match, and `context` the value given to `rewrite`. `when` is a condition of the same kind.

What it is not: an order of rules other than the order in the table, or a driver (that is `rewrite`).
Invariant: a rule set compiles once into one Python function for each root op; tracebacks show its text. A rule keeps
dtype and shape unless it has `changes_type`.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from monolect.base.dtype import DType
from monolect.base.errors import InternalError
from monolect.ir.ops import COMMUTATIVE, INVALID, ROWS
from monolect.ir.uop import UOp, build, const, shape_source

Matcher = Callable[[UOp, Any], tuple[UOp, str] | None]
_ANY = object()
_DTYPE_KINDS = {
    "float": "{}.dtype.is_float",
    "int": "{}.dtype.is_int",  # index included
    "index": "{}.dtype.kind == 'x'",
    "bool": "{}.dtype.kind == 'b'",
    "signed": "{}.dtype.kind == 'i'",
    "unsigned": "{}.dtype.kind == 'u'",
    "number": "{}.dtype.kind not in 'bv'",
}


class P:
    """A pattern of a node: its op (or several, or any), its sources (or any), and guards on dtype, arg and the node.

    `value` is set in a pattern of one constant. Patterns are immutable; `named` and `guard` return new ones.
    """

    __slots__ = ("arg", "dtype", "name", "ops", "src", "value", "where")

    def __init__(
        self,
        ops: tuple[str, ...] | None,
        src: tuple[P, ...] | None = None,
        *,
        name: str | None = None,
        dtype: Any = None,
        arg: Any = _ANY,
        where: Callable[[UOp], Any] | None = None,
        value: Any = _ANY,
    ) -> None:
        for op in ops or ():
            if op not in ROWS:
                raise InternalError("a pattern with an unknown op", expected="an op of the table", found=op)
        if isinstance(dtype, str) and dtype not in _DTYPE_KINDS:
            raise InternalError(
                "a pattern with an unknown kind of dtype", expected=", ".join(_DTYPE_KINDS), found=dtype
            )
        self.ops, self.src, self.name, self.dtype = ops, src, name, dtype
        self.arg, self.where, self.value = arg, where, value

    def _with(self, **changes: Any) -> P:
        fields = {k: getattr(self, k) for k in P.__slots__} | changes
        return P(fields.pop("ops"), fields.pop("src"), **fields)

    def named(self, name: str) -> P:
        """Return the same pattern, which captures its node as `name`."""
        return self._with(name=name)

    def guard(self, where: Callable[[UOp], Any]) -> P:
        """Return the same pattern, which matches only if `where(node)` is true."""
        return self._with(where=where)

    def __repr__(self) -> str:
        if self.value is not _ANY:
            return repr(self.value)
        ops = "|".join(self.ops) if self.ops else "_"
        label = f"{self.name}:" if self.name and self.ops else self.name or ""
        if self.ops is None and self.name:
            return label
        return f"{label}{ops}" + ("" if self.src is None else f"({', '.join(map(repr, self.src))})")

    def __add__(self, o: Any) -> P:
        return Pat("ADD", self, o)

    def __radd__(self, o: Any) -> P:
        return Pat("ADD", o, self)

    def __mul__(self, o: Any) -> P:
        return Pat("MUL", self, o)

    def __rmul__(self, o: Any) -> P:
        return Pat("MUL", o, self)

    def __neg__(self) -> P:
        return Pat("MUL", self, -1)

    def __sub__(self, o: Any) -> P:
        return Pat("ADD", self, Pat("MUL", o, -1))

    def __floordiv__(self, o: Any) -> P:
        return Pat("IDIV", self, o)

    def __mod__(self, o: Any) -> P:
        return Pat("MOD", self, o)

    def __lt__(self, o: Any) -> P:
        return Pat("CMPLT", self, o)

    def __and__(self, o: Any) -> P:
        return Pat("AND", self, o)

    def __or__(self, o: Any) -> P:
        return Pat("OR", self, o)

    def __xor__(self, o: Any) -> P:
        return Pat("XOR", self, o)

    def __lshift__(self, o: Any) -> P:
        return Pat("SHL", self, o)

    def __rshift__(self, o: Any) -> P:
        return Pat("SHR", self, o)

    def differs(self, o: Any) -> P:
        """Return the pattern of `self != o` (CMPNE)."""
        return Pat("CMPNE", self, o)

    def maximum(self, o: Any) -> P:
        """Return the pattern of the maximum of `self` and `o` (MAX)."""
        return Pat("MAX", self, o)

    def choose(self, a: Any, b: Any) -> P:
        """Return the pattern of `a` where `self` is true, else `b` (WHERE)."""
        return Pat("WHERE", self, a, b)


def Var(name: str, dtype: Any = None, where: Callable[[UOp], Any] | None = None) -> P:
    """Return a pattern of any node, captured as `name`, for which `where(node)` is true.

    `dtype`: a DType or a kind such as "float", "int", "index".
    """
    return P(None, name=name, dtype=dtype, where=where)


def Const(of: Any = None, dtype: Any = None, where: Callable[[UOp], Any] | None = None) -> P:
    """Return a pattern of a CONST of value `of`. If `of` is a str (the name to capture) or None: of any valid value.

    `dtype` and `where`: as in `Var`.
    """
    if of is None or isinstance(of, str):
        guard = _is_valid if where is None else lambda u: _is_valid(u) and where(u)
        return P(("CONST",), name=of, dtype=dtype, where=guard)
    return P(("CONST",), dtype=dtype, where=where, value=of)


def Pat(
    op: str | Iterable[str] | None,
    *src: Any,
    name: str | None = None,
    dtype: Any = None,
    arg: Any = _ANY,
    where: Callable[[UOp], Any] | None = None,
) -> P:
    """Return a pattern of a node of one of the ops `op` (None: any) with the sources `src`; no `src`: any sources.

    `arg`: its argument, or a predicate of it. `name`, `dtype` and `where`: as in `Var`.
    """
    ops = None if op is None else (op,) if isinstance(op, str) else tuple(op)
    return P(ops, tuple(map(_lift, src)) or None, name=name, dtype=dtype, arg=arg, where=where)


def _lift(x: Any) -> P:
    return x if isinstance(x, P) else Const(x)


def _is_valid(u: UOp) -> bool:
    return u.arg[0] is not INVALID


class Rule:
    """A named rewrite rule; `text` is its formula for people.

    Raises InternalError if the right side or the condition uses a name that the pattern does not capture.
    """

    __slots__ = ("changes_type", "name", "pattern", "replacement", "text", "when")

    def __init__(
        self,
        name: str,
        pattern: P,
        replacement: P | Callable[..., UOp | None] | int | float,
        when: Callable[..., Any] | None = None,
        *,
        text: str = "",
        changes_type: bool = False,
    ) -> None:
        self.text = text or name
        self.name, self.pattern, self.when, self.changes_type = name, pattern, when, changes_type
        self.replacement: P | Callable[..., UOp | None]
        self.replacement = replacement if isinstance(replacement, P) or callable(replacement) else _lift(replacement)
        known = {p.name for p in _walk(pattern) if p.name} | {"root", "context"}
        used = {p.name for p in _walk(self.replacement) if p.name} if isinstance(self.replacement, P) else set()
        for f in (self.replacement, when):
            if f is not None and not isinstance(f, P):
                used |= set(parameters(f))
        if used - known:
            found = ", ".join(sorted(used - known))
            raise InternalError(f"rule {name}: a name that its pattern lacks", expected=sorted(known), found=found)

    def __repr__(self) -> str:
        right = self.replacement if isinstance(self.replacement, P) else getattr(self.replacement, "__name__", "?")
        return f"{self.name}: {self.pattern!r} -> {right!r}"


def parameters(f: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameter names of a replacement or condition: the captured nodes that it needs."""
    code = getattr(f, "__code__", None)
    if code is None:
        raise InternalError("a rule needs a plain function or a lambda", expected="def or lambda", found=repr(f))
    return tuple(code.co_varnames[: code.co_argcount])


def _walk(p: P) -> Iterator[P]:
    yield p
    for s in p.src or ():
        yield from _walk(s)


class RuleSet:
    """A table of rules, tried in order; `+` concatenates two sets. Raises InternalError for a name used twice."""

    def __init__(self, name: str, *rules: Rule) -> None:
        self.name, self.rules = name, rules
        names = [r.name for r in rules]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise InternalError(f"rule set {name}: a name used twice", expected="unique names", found=", ".join(twice))
        self.matchers: dict[str, Matcher | None] = {}

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __add__(self, o: RuleSet) -> RuleSet:
        return RuleSet(f"{self.name}+{o.name}", *self.rules, *o.rules)

    def without(self, names: frozenset[str]) -> RuleSet:
        """Return the set without the rules `names`; the set itself if it has none of them."""
        if names.isdisjoint(r.name for r in self.rules):
            return self
        return RuleSet(self.name, *(r for r in self.rules if r.name not in names))

    def compile(self) -> RuleSet:
        """Compile the matchers of all ops now, instead of at first use, and return the set."""
        for op in ROWS:
            self.matcher(op)
        return self

    def matcher(self, op: str) -> Matcher | None:
        """Return the matcher of nodes of `op`, or None if no rule has that root op.

        A matcher is `f(node, context) -> (new node, rule name)`, or None if no rule matches.
        """
        if op in self.matchers:
            return self.matchers[op]
        rules = [r for r in self.rules if r.pattern.ops is None or op in r.pattern.ops]
        self.matchers[op] = f = _Generator(self.name, op).function(rules) if rules else None
        return f

    def source(self, op: str) -> str:
        """Return the source text of the matcher for `op`; "" if there is none."""
        f = self.matcher(op)
        return "" if f is None else "".join(linecache.getlines(f.__code__.co_filename))


# ---- compiling -------------------------------------------------------------------------------------------------------
# One way to match a pattern: its nodes, each with its path of source numbers below the root, in the order of checks.
Way = list[tuple[P, tuple[int, ...]]]


class _Generator:
    """A generator of the matcher of one op, as Python source of nested `if`s.

    A rule has several ways to match (`Way`), one for each order of commutative operands; they share their first `if`s.
    """

    def __init__(self, ruleset: str, op: str) -> None:
        self.ruleset, self.op = ruleset, op
        self.names: dict[str, Any] = {"build": build, "const": const, "finish": _finish, "INVALID": INVALID}
        self.lines: list[str] = []

    def function(self, rules: list[Rule]) -> Matcher:
        """Generate and compile the matcher for `rules`."""
        row = ROWS[self.op]
        fixed = row.lo if row.lo == row.hi else 0
        self.lines = [f"def rewrite_{self.op}(root, context):"]
        variables: dict[tuple[int, ...], str] = {(): "root"} | {(k,): f"s{k}" for k in range(fixed)}
        if fixed:
            self.lines.append("    " + ", ".join(f"s{k}" for k in range(fixed)) + (",") * (fixed == 1) + " = root.src")
        for rule in rules:
            self.lines.append(f"    # {rule.name}")
            ways = list(_unique(_alternatives(rule.pattern)))
            self.ways(rule, ways, 0, 1, variables, {"root": "root", "context": "context"})
        self.lines.append("    return None")
        text = "\n".join(self.lines) + "\n"
        file = f"<monolect rules {self.ruleset} {self.op}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), self.names)
        return self.names[f"rewrite_{self.op}"]

    def ways(
        self, rule: Rule, ways: list[Way], at: int, depth: int, variables: dict[tuple[int, ...], str], captured: dict
    ) -> None:
        """Write the lines that check `ways` from step `at` on; the ways are equal up to that step.

        `depth`: indentation. `variables`: Python variable of each path that is bound; `captured`: variable of each
        captured name.
        """
        groups: dict[Any, list[Way]] = {}
        for way in ways:
            groups.setdefault((id(way[at][0]), way[at][1]) if at < len(way) else None, []).append(way)
        for key, group in groups.items():
            if key is None:
                self.result(rule, depth, captured)
                continue
            p, path = group[0][at]
            d, v, names = depth, dict(variables), dict(captured)
            if path not in v:
                v[path] = "v" + "_".join(map(str, path))
                self.line(d, f"{v[path]} = {v[path[:-1]]}.src[{path[-1]}]")
            here = v[path]
            conditions = self.conditions(p, here, path)
            if p.name and p.name in names and names[p.name] != here:
                conditions.append(f"{names[p.name]} is {here}")
            if p.name:
                names.setdefault(p.name, here)
            if conditions:
                self.line(d, "if " + " and ".join(conditions) + ":")
                d += 1
            self.ways(rule, group, at + 1, d, v, names)

    def result(self, rule: Rule, depth: int, captured: dict[str, str]) -> None:
        """Write the lines, indented by `depth`, that check `when` of `rule`, compute its right side and return it.

        `captured`: Python variable of each captured name.
        """
        if rule.when is not None:
            self.line(depth, f"if {self.call(rule.when, captured)}:")
            depth += 1
        expression = isinstance(rule.replacement, P)
        if isinstance(rule.replacement, P):
            self.line(depth, f"r = {self.expression(rule.replacement, captured, 'root')}")
        else:
            self.line(depth, f"r = {self.call(rule.replacement, captured)}")
        self.line(depth, "if r is not None and r is not root:")
        checks = f"{expression}, {not rule.changes_type}"
        self.line(depth + 1, f"return finish(root, r, {rule.name!r}, {checks}), {rule.name!r}")

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def object(self, kind: str, value: Any) -> str:
        """Return the name of the object `value` in the function's globals; a new one is named `kind` and a number."""
        for name, v in self.names.items():
            if v is value and name.startswith(kind):
                return name
        name = f"{kind}{len(self.names)}"
        self.names[name] = value
        return name

    def conditions(self, p: P, v: str, path: tuple[int, ...]) -> list[str]:
        """Return Python conditions under which variable `v` matches `p`, apart from its sources.

        `path`: indices of the sources that lead from the root to the node; () for the root.
        """
        out = []
        if path and p.ops is not None:
            out.append(f"{v}.op == {p.ops[0]!r}" if len(p.ops) == 1 else f"{v}.op in {tuple(p.ops)!r}")
        ops = p.ops if path else (self.op,)
        if p.src is not None and (ops is None or any(not ROWS[o].lo == ROWS[o].hi == len(p.src) for o in ops)):
            out.append(f"len({v}.src) == {len(p.src)}")
        if p.value is not _ANY:
            out += self.value(p.value, v)
        if isinstance(p.dtype, str):
            out.append(_DTYPE_KINDS[p.dtype].format(v))
        elif isinstance(p.dtype, DType):
            out.append(f"{v}.dtype is {self.object('dtype', p.dtype)}")
        elif p.dtype is not None:
            out.append(f"{v}.dtype in {self.object('dtypes', tuple(p.dtype))}")
        if p.arg is not _ANY:
            out.append(
                f"{self.object('arg', p.arg)}({v}.arg)" if callable(p.arg) else f"{v}.arg == {self.literal(p.arg)}"
            )
        if p.where is _is_valid:
            out.append(f"{v}.arg[0] is not INVALID")
        elif p.where is not None:
            out.append(f"{self.object('where', p.where)}({v})")
        return out

    def literal(self, x: Any) -> str:
        return repr(x) if x.__class__ in (int, str, bool) or x is None else self.object("arg", x)

    def value(self, x: Any, v: str) -> list[str]:
        """Return Python conditions under which the CONST in variable `v` is `x`. True is not 1, and 0.0 is not -0.0."""
        if x is INVALID or isinstance(x, bool):
            return [f"{v}.arg[0] is {x if isinstance(x, bool) else 'INVALID'}"]
        same = (
            f"{v}.arg[0] == {x!r}" if x == x and abs(x) != float("inf") else f"{v}.arg[0] == {self.object('number', x)}"
        )
        return [same, f"{v}.dtype.kind != 'b'"]

    def call(self, f: Callable[..., Any], captured: dict[str, str]) -> str:
        return f"{self.object('f', f)}({', '.join(captured[n] for n in parameters(f))})"

    def expression(self, p: P, captured: dict[str, str], like: str) -> str:
        """Return Python text that builds the right side `p`; `captured`: Python variable of each captured name.

        A number takes the dtype of a sibling operand, or else that of the variable `like`.
        """
        if p.value is not _ANY:
            return f"const({self.object('number', p.value)}, {like}.dtype)"
        if p.name is not None:
            return captured[p.name]
        if p.ops is None or len(p.ops) != 1 or p.src is None:
            raise InternalError("a right side must build one op", expected="Pat(op, sources...)", found=repr(p))
        operands = p.src[1:] if p.ops[0] == "WHERE" else p.src
        sibling = next((self.expression(s, captured, like) for s in operands if s.value is _ANY), like)
        inner = [self.expression(s, captured, sibling) for s in p.src]
        arg = "" if p.arg is _ANY else f", arg={self.literal(p.arg)}"
        return f"build({p.ops[0]!r}, {', '.join(inner)}{arg})"


def _alternatives(p: P, path: tuple[int, ...] = ()) -> list[Way]:
    """Return all ways to match `p`, outer nodes first; each commutative op with two sources doubles their number.

    `path`: indices of the sources that lead from the root to `p`.
    """
    if p.src is None:
        return [[(p, path)]]
    n = len(p.src)
    orders = [tuple(range(n))]
    if n == 2 and p.ops is not None and all(op in COMMUTATIVE for op in p.ops):
        orders.append((1, 0))
    out = []
    for order in orders:
        laid: list[Way] = [[(p, path)]]
        for s, k in sorted(zip(p.src, order, strict=True), key=lambda x: _looseness(x[0])):
            laid = [a + b for a in laid for b in _alternatives(s, (*path, k))]
        out += laid
    return out


def _looseness(pattern: P) -> int:
    """Return the sort key of a pattern: patterns that fail often are checked first."""
    return 0 if pattern.value is not _ANY else 1 if pattern.ops is not None else 2


def _unique(ways: list[Way]) -> Iterator[Way]:
    """Yield the ways without those that only swap two equal operands."""
    seen = set()
    for way in ways:
        key = frozenset((_identity(p), path) for p, path in way)
        if key not in seen:
            seen.add(key)
            yield way


def _identity(pattern: P) -> Any:
    """Return a key that is equal for patterns of equal meaning: a bare variable is identified by name and dtype."""
    plain = (
        pattern.ops is None
        and pattern.src is None
        and pattern.arg is _ANY
        and pattern.where is None
        and pattern.value is _ANY
    )
    return (pattern.name, pattern.dtype) if plain and pattern.name else id(pattern)


def _finish(root: UOp, r: UOp, name: str, expression: bool, keep: bool) -> UOp:
    """Return the result `r` of a rule as the replacement of `root`, broadcast to its shape and with its origin.

    With `keep`, raises InternalError if dtype or shape differ. Only the result of an `expression` is broadcast.
    """
    if keep and r.shape != root.shape and expression:
        ones = (1,) * (len(root.shape) - len(r.shape)) + r.shape
        r = build("EXPAND", build("RESHAPE", r, shape_source(ones)), shape_source(root.shape))
    if keep and (r.dtype is not root.dtype or r.shape != root.shape):
        raise InternalError(f"rule {name} changes dtype or shape", expected=repr(root), found=repr(r))
    if r.origin is None:
        r.origin = root.origin
    return r


__all__ = ["Const", "P", "Pat", "Rule", "RuleSet", "Var", "parameters"]
