"""Translate a LINEAR program to the source of a Python function that runs for every lane of every launch.

Loops and conditions become Python's. A value becomes a local variable. An op becomes a call of its function in
`values`, or a Python expression for scalar index arithmetic. Constant expressions are computed here. A REG buffer that
is only read and written as a whole is a variable; others are arrays. A BARRIER and an exchange between lanes are each a
`yield`, so the caller can run lanes in lockstep. `body(args, ids, local)` takes the PARAMs' memory or values, the
SPECIALs and the LOCAL buffers, each in the order of its list in `Body`.

What it is not: an optimizer. Instructions run in the listed order and loops.
Invariant: operands are computed before a gate is tested, and an index check precedes every load and store.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from monolect.backend.python.place import FlatIndex, extent, is_run, plus, root_of, total, validity
from monolect.backend.python.values import Access, Box, Exchange, MemoryExchange, Shuffle, function, operands, positions
from monolect.base.dtype import dtypes
from monolect.base.errors import CompileError, InternalError
from monolect.base.matrix_units import BY_NAME
from monolect.ir.bounds import may_wrap
from monolect.ir.check.arrays import garbage, storage
from monolect.ir.ops import INVALID
from monolect.ir.placement import VIEWS, is_memory
from monolect.ir.uop import UOp, toposort

_SILENT = frozenset(("PARAM", "BUFFER", "AFTER", "GROUP", "SPECIAL", "CONST", "SINK", "PREFETCH"))
_VARYING = frozenset(("PARAM", "BUFFER", "LOAD", "RANGE", "SPECIAL", "AFTER", "SHUFFLE"))
_FOREIGN = frozenset(("CUSTOM", "CUSTOMFUNCTION", "INS"))
_SPECIAL = re.compile(r"thread0|[gl]idx[0-9]")
_SCALAR_INDEX = {
    "ADD": "{0} + {1}", "MUL": "{0} * {1}", "SUB": "{0} - {1}", "NEG": "-{0}", "MAX": "max({0}, {1})",
    "IDIV": "{0} // {1} if {1} else 0", "MOD": "{0} % {1} if {1} else 0", "CMPLT": "{0} < {1}", "CMPNE": "{0} != {1}",
    "CMPGT": "{0} > {1}", "CMPGE": "{0} >= {1}", "CMPLE": "{0} <= {1}", "CMPEQ": "{0} == {1}",
}  # fmt: skip
_WRAPPED = "(({}) + 2**63) % 2**64 - 2**63"  # in 64 bits, as on other devices
_SCALAR_BOOL = {"AND": "{0} & {1}", "OR": "{0} | {1}", "XOR": "{0} ^ {1}", "CMPNE": "{0} != {1}", "CMPEQ": "{0} == {1}"}


class Body(NamedTuple):
    """The translated program. `run` is a generator function if lanes wait for each other at a BARRIER or an exchange.

    It yields (number of the stop, exchange function or None, value that the lane gives).
    """

    run: Callable[..., Any]
    source: str
    params: list[UOp]
    specials: list[str]  # names, sorted
    local: list[UOp]
    has_stops: bool


class Generator:
    """Translate one program."""

    def __init__(self, linear: UOp, kernel: str):
        self.linear, self.kernel = linear, kernel
        self.lines: list[str] = []
        self.depth = 1
        self.names: list[dict[UOp, str]] = [
            {}
        ]  # one scope per open block: values of an inner block are unknown after it
        self.known: dict[UOp, Any] = {}
        self.varying: set[UOp] = set()
        self.accesses: dict[UOp, Access] = {}
        self.space: dict[str, Any] = {"np": np}
        self.shared: dict[int, str] = {}  # id of an object in `space` -> its name
        self.n = self.n_stops = 0
        nodes = toposort(linear)
        self.params = [u for u in nodes if u.op == "PARAM"]
        self.specials = sorted({u.arg for u in nodes if u.op == "SPECIAL"})
        for name in self.specials:
            if not _SPECIAL.fullmatch(name):
                raise InternalError(
                    f"kernel {kernel}: an unknown SPECIAL", expected="thread0, gidx0.., lidx0..", found=name
                )
        self.buffers = [u for u in nodes if u.op == "BUFFER"]
        self.local = [u for u in self.buffers if u.arg.addrspace == "LOCAL"]
        self.variables = self._variables(nodes)

    def _variables(self, nodes: list[UOp]) -> set[UOp]:
        """Return the REG buffers that are only loaded and stored as a whole."""
        out = {u for u in self.buffers if u.arg.addrspace == "REG"}
        for u in nodes:
            if u.op in ("AFTER", "LINEAR") or (u.op in ("LOAD", "STORE") and len(u.src) == (u.op == "STORE") + 1):
                continue
            for s in u.src:
                out.discard(root_of(s))
        return out

    def run(self) -> Body:
        with np.errstate(all="ignore"):  # constants are computed here
            self._prologue()
            for u in self.linear.src:
                self.instruction(u)
        has_stops = any(
            u.op in ("BARRIER", "SHUFFLE") or (u.op == "WMMA" and u.arg[0] in BY_NAME) for u in self.linear.src
        )
        source = "def body(args, ids, local):\n" + "\n".join(self.lines or ["    pass"]) + "\n"
        try:
            exec(compile(source, f"<monolect kernel {self.kernel}>", "exec"), self.space)
        except SyntaxError as e:  # Python bounds how deep blocks may nest
            raise InternalError(f"kernel {self.kernel} cannot be translated: {e.msg}", found=source) from None
        return Body(self.space["body"], source, self.params, self.specials, self.local, has_stops)

    def _prologue(self) -> None:
        scope = self.names[0]
        for k, u in enumerate(self.params):
            scope[u] = f"p{k}"
        for k, u in enumerate(self.buffers):
            if u.arg.addrspace not in ("LOCAL", "REG"):
                raise InternalError(
                    f"kernel {self.kernel}: a BUFFER without an address", expected="a PARAM", found=repr(u)
                )
            scope[u] = f"b{k}"
        for listed, argument in ((self.params, "args"), (self.local, "local")):
            if listed:
                self.line(f"{', '.join(scope[u] for u in listed)}, = {argument}")
        if self.specials:
            self.line(f"{', '.join(self.specials)}, = ids")
        for u in self.buffers:
            if u.arg.addrspace == "REG":
                fill = self.share(garbage(u.dtype))
                size = u.shape if u in self.variables else prod(u.shape)
                self.line(f"{scope[u]} = np.full({size}, {fill})" if size != () else f"{scope[u]} = {fill}")

    # ---- plumbing ----------------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def assign(self, text: str) -> str:
        """Emit an assignment of the expression `text` to a new variable and return its name."""
        self.n += 1
        self.line(f"v{self.n} = {text}")
        return f"v{self.n}"

    def share(self, x: Any) -> str:
        """Return the name of the object `x` in the program; a Python int or bool is its own text."""
        if x.__class__ is int or x.__class__ is bool:
            return f"({x})" if x < 0 else repr(x)
        name = self.shared.get(id(x))
        if name is None:
            name = self.shared[id(x)] = f"g{len(self.space)}"
            self.space[name] = x
        return name

    def open(self, head: str) -> None:
        self.line(head)
        self.depth += 1
        self.names.append({})

    def close(self) -> None:
        if self.lines[-1].endswith(":"):
            self.line("pass")
        self.depth -= 1
        self.names.pop()

    # ---- values ------------------------------------------------------------------------------------------------------
    def value(self, u: UOp) -> str:
        """Return the variable, constant or number with the value of `u`; emits its computation at the first use."""
        while u.op == "AFTER":
            u = u.src[0]
        if self.constant(u):
            return self.share(self.known[u])
        for scope in reversed(self.names):
            if u in scope:
                return self._of_scope(u, scope[u])
        name = self.names[-1][u] = self._compute(u)
        return name

    def _of_scope(self, u: UOp, name: str) -> str:
        if is_memory(u):
            raise InternalError(f"kernel {self.kernel}: memory is used as a value", expected="a LOAD", found=repr(u))
        return name

    def constant(self, u: UOp) -> bool:
        """Whether `u` depends on no input or loop; then `known` has its value."""
        if u in self.known or u in self.varying:
            return u in self.known
        if u.op == "CONST":
            v = u.arg[0]
            self.known[u] = (
                garbage(u.dtype) if v is INVALID else v if u.dtype.kind in "xb" else storage(u.dtype).type(v)
            )
            return True
        given = operands(u)
        fixed = u.op not in _VARYING and u.dtype.kind != "v" and all(self.constant(s) for s in given)
        f = function(u, self.kernel) if fixed else None
        if f is None:
            self.varying.add(u)
            return False
        out = f(*(self.known[s] for s in given))
        self.known[u] = int(out) if u.shape == () and u.dtype.kind == "x" else out
        return True

    def _compute(self, u: UOp) -> str:
        if u.op == "SPECIAL":
            return u.arg
        if u.op in VIEWS and is_memory(u):
            return self._of_scope(u, "")
        if u.op in ("LOAD", "RANGE"):
            raise InternalError(f"kernel {self.kernel}: a {u.op} is used but not listed before", found=repr(u))
        f = function(u, self.kernel)
        if f is None:
            self._refuse(u)
        given = [self.value(s) for s in operands(u)]
        text = _scalar_expression(u)
        return self.assign(text.format(*given) if text else _whole(u, f"{self.share(f)}({', '.join(given)})"))

    def _refuse(self, u: UOp) -> None:
        if u.op in _FOREIGN:
            raise CompileError(
                f"kernel {self.kernel}: the Python target cannot run {u.op}, which is code for another target"
            )
        raise InternalError(f"the Python interpreter has no row for {u.op}", found=repr(u))

    # ---- instructions ------------------------------------------------------------------------------------------------
    def instruction(self, u: UOp) -> None:
        handler = getattr(self, "_" + u.op.lower(), None)
        if handler is not None:
            handler(u)
        elif u.op in _SILENT or self.constant(u) or (u.op in VIEWS and is_memory(u)):
            pass
        elif u.dtype.kind == "v" and u.op not in _FOREIGN:
            self._refuse(u)
        elif u.shape == () or u.dtype.kind != "x" or u.op != "ADD":  # shaped sums mostly end in addresses
            self.value(u)

    def _range(self, u: UOp) -> None:
        bound, name = self.value(u.src[0]), f"i{u.arg[0]}_{len(self.lines)}"
        self.open(f"for {name} in range({bound}):")
        self.names[-1][u] = name

    def _end(self, u: UOp) -> None:
        for _ in u.src[1:]:
            self.close()

    def _if(self, u: UOp) -> None:
        if u.src[0].shape != ():
            raise InternalError(f"kernel {self.kernel}: IF needs a scalar", expected="shape ()", found=u.src[0].shape)
        self.open(f"if {self.value(u.src[0])}:")

    def _endif(self, u: UOp) -> None:
        self.close()

    def _barrier(self, u: UOp) -> None:
        self.n_stops += 1
        self.line(f"yield {self.n_stops}, None, None")

    def _wmma(self, u: UOp) -> None:
        if u.arg[0] not in BY_NAME:
            self.value(u)
            return
        self.n_stops += 1  # all lanes of a warp give their operands, and get their part of the result
        if BY_NAME[u.arg[0]].from_memory:
            operand_memory = [(root_of(x), total(self.flat_index(x), self.share)) for x in u.src[:2]]
            held = [f"({self.share(self.access(m))}, {self.memory(m)}, {at})" for m, at in operand_memory]
            exchange: Exchange = MemoryExchange(u)
        else:
            held, exchange = [self.value(s) for s in u.src[:2]], Exchange(u)
        values = ", ".join((*held, self.value(u.src[2])))
        self.names[-1][u] = self.assign(f"yield {self.n_stops}, {self.share(exchange)}, ({values})")

    def _shuffle(self, u: UOp) -> None:
        self.n_stops += 1
        self.names[-1][u] = self.assign(f"yield {self.n_stops}, {self.share(Shuffle(u))}, {self.value(u.src[0])}")

    def _load(self, u: UOp) -> None:
        view, scope = u.src[0], self.names[-1]
        root = root_of(view)
        if root in self.variables:
            scope[u] = self.assign(self.memory(root))
            return
        if not is_memory(view):
            raise InternalError(f"kernel {self.kernel}: LOAD of what is not memory", found=repr(view))
        p, at, access = self.memory(root), self.flat_index(view), self.share(self.access(root))
        if len(u.src) < 3:
            scope[u] = self.assign(self._read(u, p, at, access))
            return
        alt, gate = u.src[1:]
        self._must_broadcast(u, gate)
        other, on = self.value(alt), self.value(gate)
        if gate.shape != ():
            scope[u] = self.assign(f"{access}.load_gated({p}, {total(at, self.share)}, {other}, {on})")
            return
        other = other if alt.shape == u.shape else f"np.broadcast_to({other}, {u.shape})"
        name = scope[u] = self.assign(other)
        self.open(f"if {on}:")
        self.line(f"{name} = {self._read(u, p, at, access)}")
        self.close()

    def _must_broadcast(self, u: UOp, gate: UOp) -> None:
        rank = len(u.shape) - len(gate.shape)
        if rank < 0 or any(g not in (1, n) for g, n in zip(gate.shape, u.shape[rank:], strict=True)):
            raise InternalError(
                f"kernel {self.kernel}: the gate of a LOAD is larger than it", expected=u.shape, found=gate.shape
            )

    def _read(self, u: UOp, p: str, at: FlatIndex, access: str) -> str:
        """Emit the check of the view at `at` of the memory `p`, and return the expression that reads it."""
        if at.offsets is None:
            if u.shape != ():
                return f"{access}.load({p}, {at.base})"
            self._check(p, access, at.base, 0, 0)
            return _whole(u, f"{p}[{at.base}]")
        lo, hi = extent(at)
        self._check(p, access, at.base, lo, hi)
        if not is_run(at.offsets):
            return f"{p}[{total(at, self.share)}]"
        read = f"{p}[{plus(at.base, lo)}:{plus(at.base, hi + 1)}].copy()"
        return read if len(u.shape) == 1 else f"{read}.reshape({u.shape})"

    def _check(self, p: str, access: str, base: str, lo: int, hi: int) -> None:
        first, last = plus(base, lo), plus(base, hi)
        inside = f"0 <= {first} < {p}.size" if lo == hi else f"0 <= {first} and {last} < {p}.size"
        self.line(f"if not ({inside}): {access}.outside({p}.size, {first}, {last})")

    def _store(self, u: UOp) -> None:
        view, new = u.src[0], u.src[1]
        root, gate = root_of(view), self._gate(u)
        value = self.value(new)
        if root in self.variables and gate is None:
            wide = value if new.shape == root.shape else f"np.broadcast_to({value}, {root.shape})"
            self.line(f"{self.memory(root)} = {wide}")
            return
        if root in self.variables:  # an invalid value, which is not written
            wide = f"np.where({gate}, {value}, {self.memory(root)})"
            self.line(f"{self.memory(root)} = {wide if gate != 'False' else self.memory(root)}")
            return
        p, at, access = self.memory(root), self.flat_index(view), self.share(self.access(root))
        scalar = len(u.src) < 3 or u.src[2].shape == ()
        if gate is not None and (not scalar or validity(new) is not None):
            self.line(f"{access}.store({p}, {total(at, self.share)}, {value}, {gate})")
            return
        if gate is not None:
            self.open(f"if {gate}:")
        self._write(view, new, p, at, access, value)
        if gate is not None:
            self.close()

    def _write(self, view: UOp, new: UOp, p: str, at: FlatIndex, access: str, value: str) -> None:
        shape = view.shape
        if np.broadcast_shapes(shape, new.shape) != shape or (at.offsets is None and shape != ()):
            self.line(f"{access}.store({p}, {total(at, self.share)}, {value})")
            return
        lo, hi = (0, 0) if at.offsets is None else extent(at)
        self._check(p, access, at.base, lo, hi)
        if at.offsets is None or not is_run(at.offsets):
            self.line(f"{p}[{total(at, self.share)}] = {value}")
            return
        run = f"{p}[{plus(at.base, lo)}:{plus(at.base, hi + 1)}]"
        self.line(f"{run} = {value}" if len(shape) == 1 else f"{run}.reshape({shape})[...] = {value}")

    def _tmacopy(self, u: UOp) -> None:
        """Emit TMACOPY as a copy that lane 0 completes at once, although the hardware's copy is asynchronous."""
        (to, at), source = (root_of(u.src[0]), total(self.flat_index(u.src[0]), self.share)), root_of(u.src[1])
        lane = [f"{s} == 0" for s in self.specials if s.startswith("lidx")]
        given = ", ".join(self.value(s) for s in u.src[4:])
        box = Box(u.arg, self.access(source), self.access(to))
        self.open(f"if {' and '.join([self.value(u.src[3]), *lane])}:")
        self.line(f"{self.share(box)}({self.memory(source)}, {self.memory(to)}, {at}, {given})")
        self.close()

    def _atomicadd(self, u: UOp) -> None:
        root, gate = root_of(u.src[0]), self._gate(u)
        p, at, access = self.memory(root), self.flat_index(u.src[0]), self.share(self.access(root))
        gated = "" if gate is None else f", {gate}"
        self.line(f"{access}.add({p}, {total(at, self.share)}, {self.value(u.src[1])}{gated})")

    def _gate(self, u: UOp) -> str | None:
        """Return the condition of a write: its gate, and that its value is not invalid; None for an unconditional
        write.
        """
        parts = [self.value(u.src[2])] if len(u.src) > 2 else []
        valid = validity(u.src[1])
        if valid is not None:
            condition, sign = valid
            parts.append("False" if condition is None else f"np.equal({self.value(condition)}, {sign})")
        return None if not parts else parts[0] if len(parts) == 1 else f"np.logical_and({', '.join(parts)})"

    # ---- memory ------------------------------------------------------------------------------------------------------
    def memory(self, root: UOp) -> str:
        """Return the variable with the flat memory of a PARAM or BUFFER, or of a BITCAST of one."""
        for scope in reversed(self.names):
            if root in scope:
                return scope[root]
        below = root
        while below.op in ("BITCAST", "AFTER", "RESHAPE"):
            below = below.src[0]
        if below is root or below.op not in ("PARAM", "BUFFER"):
            raise InternalError(f"kernel {self.kernel}: not memory", expected="a PARAM or BUFFER", found=repr(root))
        kept = self.share(storage(root.dtype))
        name = self.names[-1][root] = self.assign(f"{self.memory(below)}.view({kept})")
        return name

    def access(self, root: UOp) -> Access:
        """Return the Access of this memory, one object for each memory, since the program refers to it by identity."""
        if root not in self.accesses:
            below = root
            while below.op not in ("PARAM", "BUFFER"):
                below = below.src[0]
            space = "" if below.op == "PARAM" else f"{below.arg.addrspace} "
            self.accesses[root] = Access(self.kernel, f"{space}{below.op} {below.arg.slot}")
        return self.accesses[root]

    def flat_index(self, view: UOp) -> FlatIndex:
        """Return the positions of the elements of `view` in its memory."""
        while view.op == "AFTER":
            view = view.src[0]
        root = root_of(view)
        if view is root:
            if all(n.__class__ is int for n in root.shape):
                return (
                    FlatIndex("0", np.arange(prod(root.shape)).reshape(root.shape))
                    if root.shape
                    else FlatIndex("0", None)
                )
            return FlatIndex(f"np.arange({self.memory(root)}.size)", None)
        base = view.src[0]
        while base.op == "AFTER":
            base = base.src[0]
        if view.op == "INDEX" and base is root and len(root.shape) == len(view.src) - 1 == 1:
            return self._sums(view.src[1])
        below = self.flat_index(base)
        at = total(below, self.share)
        if view.op == "INDEX":
            given = "".join(f", {self.value(i)}" for i in view.src[1:])
            return FlatIndex(self.assign(f"{self.share(positions)}({at}{given})"), None)
        move = "reshape" if view.op == "RESHAPE" else "broadcast_to"
        return FlatIndex(self.assign(f"np.{move}({at}, {view.shape})"), None)

    def _sums(self, u: UOp) -> FlatIndex:
        """Return an index as one scalar plus constants, or as an array of its values if it is no such sum."""
        shape, whole, scalars = u.shape, u, []
        offsets: Any = np.zeros((), np.int64)
        while shape != () and u.op == "ADD" and not self.constant(u):
            a, b = u.src
            rest, term = (a, b) if b.shape == () or self.constant(b) else (b, a)
            if self.constant(term):
                offsets = offsets + self.known[term]
            elif term.shape == ():
                scalars.append(term)
            else:
                break
            u = rest
        if shape == () or not (self.constant(u) or u.shape == ()):
            return FlatIndex(self.value(whole), None)
        if self.constant(u):
            offsets = offsets + self.known[u]
        else:
            scalars.append(u)
        names = [self.value(s) for s in scalars]
        base = "0" if not names else names[0] if len(names) == 1 else self.assign(" + ".join(names))
        return FlatIndex(base, np.array(np.broadcast_to(offsets, shape), np.int64))


def _whole(u: UOp, text: str) -> str:
    """Return `text`, converted to a Python int for an index, because NumPy's arithmetic would overflow."""
    return f"int({text})" if u.shape == () and u.dtype.kind == "x" else text


def _scalar_expression(u: UOp) -> str | None:
    """Return a format of Python's arithmetic for a scalar index or gate, which is exact and much faster; None for
    others.
    """
    if u.shape != ():
        return None
    given = [s.dtype.kind for s in u.src]
    if u.op == "WHERE":
        return "{1} if {0} else {2}"
    if u.op == "CAST" and u.dtype.kind == "x" and given[0] != "f":
        return "int({0})" if u.src[0].dtype.max <= dtypes.index.max else _WRAPPED.format("int({0})")
    if set(given) == {"x"} and (text := _SCALAR_INDEX.get(u.op)) is not None:
        return _WRAPPED.format(text) if may_wrap(u) else text
    return _SCALAR_BOOL.get(u.op) if set(given) == {"b"} else None


__all__ = ["Body", "Generator"]
