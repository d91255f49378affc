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
    """A pattern that matches nodes: by op (one, several or any), sources (patterns, or any), dtype, `arg`, and a
    predicate of the node.

    `value` is set in a pattern of one constant. Patterns are immutable; `named` and `guard` return new ones. `Var`,
    `Const`, `Pat` and operators build patterns. A pattern is the left side of a Rule; as its right side it is an
    expression that builds a node. Raises InternalError for an unknown op or kind of dtype.
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
        """Return the same pattern with the capture name `name`: the matched node is passed to the rule's right side by
        this name.
        """
        return self._with(name=name)

    def guard(self, where: Callable[[UOp], Any]) -> P:
        """Return the same pattern restricted to nodes for which `where(node)` is true.
        The matcher calls `where` after the other checks of the pattern. It replaces an earlier predicate.
        """
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
        """Return the pattern of `self != o` (op CMPNE), where `o` is a pattern or a number."""
        return Pat("CMPNE", self, o)

    def maximum(self, o: Any) -> P:
        """Return the pattern of the maximum of `self` and `o` (op MAX), where `o` is a pattern or a number."""
        return Pat("MAX", self, o)

    def choose(self, a: Any, b: Any) -> P:
        """Return the pattern of `a` where `self` is true, else `b` (WHERE). `a` and `b` are patterns or numbers."""
        return Pat("WHERE", self, a, b)


def Var(name: str, dtype: Any = None, where: Callable[[UOp], Any] | None = None) -> P:
    """Return a pattern of any node, captured as `name`, with the dtype `dtype` (None: any) and for which `where(node)`
    is true (None: any node).

    `dtype`: a DType or a kind such as "float", "int", "index".
    """
    return P(None, name=name, dtype=dtype, where=where)


def Const(of: Any = None, dtype: Any = None, where: Callable[[UOp], Any] | None = None) -> P:
    """Return a pattern of a CONST. `of` is the value that it must have (a number, a bool or INVALID), a str (the name
    to capture the node by; any valid value matches) or None (any valid value matches).

    `dtype`: a DType, or a kind such as "float", "int", "index"; None means any. `where`: a predicate of the node, or
    None.
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
    """Return a pattern of a node whose op is one of `op` (a name or names; None: any) and whose sources match `src`;
    without `src`, any sources match.

    `src`: patterns or numbers. `name`: the name to capture the node by. `dtype`: a DType, several of them, or a kind
    such as "float"; None means any. `arg`: the argument that the node must have, or a predicate of the argument.
    `where`: a predicate of the node, or None.
    """
    ops = None if op is None else (op,) if isinstance(op, str) else tuple(op)
    return P(ops, tuple(map(_lift, src)) or None, name=name, dtype=dtype, arg=arg, where=where)


def _lift(x: Any) -> P:
    return x if isinstance(x, P) else Const(x)


def _is_valid(u: UOp) -> bool:
    return u.arg[0] is not INVALID


class Rule:
    """A named rewrite rule: a node that matches `pattern` is replaced by `replacement`, if `when` holds.

    `replacement`: an expression (pattern) over captured names, a function of captured nodes that returns the new node
    or None, or a number. `when`: a function of captured nodes, or None (no condition). A parameter of either function
    is a captured name, `root` (the whole match) or `context` (the value given to `rewrite`). `text`: the rule as a
    formula for people. `changes_type`: whether the new node may have another dtype or shape.
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
    """Return the parameter names of `f`, a rule's replacement or condition: the names of the captured nodes that it
    takes.
    Raises InternalError if `f` is not a plain function or lambda.
    """
    code = getattr(f, "__code__", None)
    if code is None:
        raise InternalError("a rule needs a plain function or a lambda", expected="def or lambda", found=repr(f))
    return tuple(code.co_varnames[: code.co_argcount])


def _walk(p: P) -> Iterator[P]:
    yield p
    for s in p.src or ():
        yield from _walk(s)


class RuleSet:
    """A table of rules, tried in order, which `rewrite` applies to a graph. `a + b` has the rules of set `a`, then
    those of `b`. Raises InternalError if two rules have one name.
    """

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
        """Return the set without the rules whose names are in `names`; the set itself if it has none of them."""
        if names.isdisjoint(r.name for r in self.rules):
            return self
        return RuleSet(self.name, *(r for r in self.rules if r.name not in names))

    def compile(self) -> RuleSet:
        """Generate the matchers of all ops now, instead of at their first use, and return this set."""
        for op in ROWS:
            self.matcher(op)
        return self

    def matcher(self, op: str) -> Matcher | None:
        """Return the matcher for nodes of op `op`, generated at first use, or None if no rule has that root op.

        A matcher is `f(node, context) -> (new node, rule name)`, or None if no rule matches the node.
        """
        if op in self.matchers:
            return self.matchers[op]
        rules = [r for r in self.rules if r.pattern.ops is None or op in r.pattern.ops]
        self.matchers[op] = f = _Generator(self.name, op).function(rules) if rules else None
        return f

    def source(self, op: str) -> str:
        """Return the generated Python text of the matcher for nodes of op `op`; "" if there is none."""
        f = self.matcher(op)
        return "" if f is None else "".join(linecache.getlines(f.__code__.co_filename))


# ---- compiling -------------------------------------------------------------------------------------------------------
# One way to match a pattern: its nodes, each with its path of source numbers below the root, in the order of checks.
Way = list[tuple[P, tuple[int, ...]]]


class _Generator:
    """A generator of the matcher for one op, as Python source of nested `if`s.

    A rule has several ways to match (`Way`), one for each order of commutative operands. Ways that begin with the same
    checks share their `if`s.
    """

    def __init__(self, ruleset: str, op: str) -> None:
        self.ruleset, self.op = ruleset, op
        self.names: dict[str, Any] = {"build": build, "const": const, "finish": _finish, "INVALID": INVALID}
        self.lines: list[str] = []

    def function(self, rules: list[Rule]) -> Matcher:
        """Generate and compile the matcher function for `rules`, all of which may match nodes of this op, and return
        it.
        """
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
        """Append the lines that check the ways of `rule` to match from check number `at` on; `ways` are equal up to
        that check.

        `depth`: indentation. `variables`: path of source numbers from the root -> Python variable that holds the node
        there. `captured`: capture name -> Python variable.
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
        """Append the lines, indented by `depth`, that check `when` of `rule`, compute its right side and return it.

        `captured`: capture name -> Python variable.
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
        """Return the global name of the object `value` in the generated function; a new name is `kind` and a number."""
        for name, v in self.names.items():
            if v is value and name.startswith(kind):
                return name
        name = f"{kind}{len(self.names)}"
        self.names[name] = value
        return name

    def conditions(self, p: P, v: str, path: tuple[int, ...]) -> list[str]:
        """Return Python expressions, all true if the node in the Python variable `v` matches pattern `p` apart from its
        sources.

        `path`: numbers of the sources that lead from the root to the node; () for the root.
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
        """Return Python expressions, all true if the CONST in the Python variable `v` has the value `x`. True is not 1,
        and 0.0 is not -0.0.
        """
        if x is INVALID or isinstance(x, bool):
            return [f"{v}.arg[0] is {x if isinstance(x, bool) else 'INVALID'}"]
        same = (
            f"{v}.arg[0] == {x!r}" if x == x and abs(x) != float("inf") else f"{v}.arg[0] == {self.object('number', x)}"
        )
        return [same, f"{v}.dtype.kind != 'b'"]

    def call(self, f: Callable[..., Any], captured: dict[str, str]) -> str:
        return f"{self.object('f', f)}({', '.join(captured[n] for n in parameters(f))})"

    def expression(self, p: P, captured: dict[str, str], like: str) -> str:
        """Return the Python expression that builds `p`, the right side of a rule or a part of it. `captured`: capture
        name -> Python variable.

        A number gets the dtype of a sibling operand, or else of the node in the Python variable `like`. Raises
        InternalError unless `p` is a number, a captured name, or one op with its sources.
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
    """Return all ways to match `p`; each commutative op with two sources doubles their number.

    A way is a list of (pattern, path) in the order of checks, outer nodes first. `path`: numbers of the sources that
    lead from the root to `p`.
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
    """Return a sort key for `pattern`, a sub-pattern: a pattern that matches fewer nodes has a smaller key and is
    checked first.
    """
    return 0 if pattern.value is not _ANY else 1 if pattern.ops is not None else 2


def _unique(ways: list[Way]) -> Iterator[Way]:
    """Yield those of `ways` that differ by more than an exchange of equal sub-patterns."""
    seen = set()
    for way in ways:
        key = frozenset((_identity(p), path) for p, path in way)
        if key not in seen:
            seen.add(key)
            yield way


def _identity(pattern: P) -> Any:
    """Return a key that is equal for patterns with the same meaning: (name, dtype) if `pattern` is a bare variable,
    else its id.
    """
    plain = (
        pattern.ops is None
        and pattern.src is None
        and pattern.arg is _ANY
        and pattern.where is None
        and pattern.value is _ANY
    )
    return (pattern.name, pattern.dtype) if plain and pattern.name else id(pattern)


def _finish(root: UOp, r: UOp, name: str, expression: bool, keep: bool) -> UOp:
    """Return `r`, the node that rule `name` computed, as the replacement of `root`: broadcast to its shape and with its
    origin.

    Only the result of an expression (`expression` is true) is broadcast. With `keep`, raises InternalError if the dtype
    or shape differs from that of `root`. `name` is used only in the error.
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
