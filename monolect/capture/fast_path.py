"""The usual call of a captured step, as straight-line Python written for that step.

What it is for: around a kernel of a microsecond a general replay is loops, lists and calls. What a step looks at never
changes, so it is written down once: is everything around it, each argument and each state what it was; the native call;
the results. Where anything is not so, nothing was done yet, and the call goes the general way.

A small result whose node and memory nobody holds any more gives both to the next call: of the last two of each output,
for a loop holds one while it makes the other.

Invariant: a call goes the general way and has changed nothing, or it did what that would have done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, repeat
from operator import attrgetter, eq, is_
from operator import call as apply
from sys import getrefcount
from typing import Any

from monolect.backend.common.host.memory import HOST
from monolect.base.settings import settings
from monolect.capture.captured import Captured
from monolect.capture.environment.dependencies import Reach
from monolect.capture.environment.guards import EMPTY, is_plain
from monolect.capture.gradients import is_brought
from monolect.capture.returned import Leaf
from monolect.ir.uop import UOp, new_buffer_like, next_serial, substitute
from monolect.runtime import profile
from monolect.runtime.binding import value_of
from monolect.runtime.realize.execute import running
from monolect.runtime.replay.capture import Capture, Fresh, NotKept, Value, under_way
from monolect.tensor import random as random_state
from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import content_of, unflatten
from monolect.tensor.view import along

MISS = object()  # in place of an argument that was not given
MOST_PLACES = 200  # looked at in a line each; more of them cost more to write down than they save
KEPT_BYTES = 256 << 10  # of a result whose memory is kept for the next one: two of them are half of a second cache
Line = tuple[str, dict[str, Any]]  # a condition under which the call is an unusual one, and what its names stand for


def _held_here() -> int:
    """What `getrefcount` says of a thing that a list and a name of a function hold, and nobody else."""
    things = [object()]
    thing = things[0]
    return getrefcount(thing)


def usual_call(
    captured: Captured, around: Reach, origins: Sequence[tuple], general: Callable[..., Any], not_kept: Any = None
) -> Callable[..., Any] | None:
    """A function of Tensors; None for a step whose calls need the general way.

    It may be called with anything: what is not usual it passes on to `general`, MISS for what was not given.

    `around`: what must hold. `origins`: the line that each of `capture.made` is said to come from. `not_kept`: what
    stands for a gradient that the step updates with.
    """
    looked_at = list(_around(around))
    if not _is_written_down(captured.capture, around, len(looked_at)):
        return None
    writer = _Writer(captured, origins)
    names = writer.names
    names |= {"general": general, "not_kept": not_kept}
    lines = [*writer.surroundings(looked_at), *writer.arguments(), *writer.run(), *writer.results()]
    # who gives up leaves the block, and with it the lock, before the general way begins
    given = "".join(f"{a}, " for a in writer.named)
    head = "".join(f"{a}=MISS, " for a in writer.named) + "/, " * bool(writer.named)
    text = [f"def __call__({head}*more, **named):", " while True:", *(" " + line for line in lines)]
    text.append(f" return general({given}*more, **named)")
    exec(compile("\n".join(text), "<monolect usual call>", "exec"), names)
    # its names do not name it: without a cycle it goes when it is dropped
    call: Callable[..., Any] = names.pop("__call__")
    return call


def _is_written_down(capture: Capture, around: Reach, n_around: int) -> bool:
    """Whether a call of the step is simple, and takes few lines, `n_around` of them for what is around it."""
    values = (*capture.outputs, *(s.after for s in capture.moves))
    known = all(v.source in ("fresh", "constant", "given") for v in values)
    simple = known and all(m.shape is None for m in capture.made) and not capture.reuse
    runs = capture.native is not None or (capture.device is None and not capture.moves)
    device: Any = capture.device
    saves = capture.may_fail and capture.in_place and device.space == HOST  # what a launch that fails has changed
    if not simple or settings.VERIFY > 1 or not runs or saves:
        return False
    n = n_around + sum(1 for _ in _states(capture)) + len(capture.moves)
    return n <= MOST_PLACES and not any(value is EMPTY for _, value in around.cells)


class _Writer:
    """The lines of a call, and what the names in them stand for: `a0` an argument, `u0` its node, `m0` its memory, `y0`
    and `n0` a BUFFER made and its memory, `t0` a result.
    """

    def __init__(self, captured: Captured, origins: Sequence[tuple]) -> None:
        self.captured, self.capture, self.origins = captured, captured.capture, origins
        self.brought = captured.brought
        self.n = len(captured.kinds)
        self.named = [f"a{i}" for i in range(self.n - len(self.brought))]  # arguments of the function
        self.made: set[str] = set()  # values and views of results
        self.draws = random_state.states_of(self.capture.assigned)
        self.names: dict[str, Any] = {
            "MISS": MISS, "EMPTY": EMPTY, "is_": is_, "eq": eq, "apply": apply, "repeat": repeat,
            "requires_grad": attrgetter("_requires_grad"), "code_of": attrgetter("__code__"), "content_of": content_of,
            "FREE": _held_here(), "Tensor": Tensor, "new": object.__new__,
            "settings": settings, "profile": profile, "under_way": under_way, "getrefcount": getrefcount,
            "unflatten": unflatten, "along": along, "next_serial": next_serial, "template": captured.template,
            "value_of": value_of, "running": running, "is_plain": is_plain, "prologue": self.capture.prologue,
            "NotKept": NotKept, "steering": settings.steering,
            "capture": self.capture,  # what native code reads lives as long as the call, though another took its place
        }  # fmt: skip

    def surroundings(self, looked_at: list[Line]) -> list[str]:
        """Lines that give up where something around the step is not as it was."""
        lines = _refuse(["more", "named", "under_way", "settings.tracing", "profile.recording"])
        lines += _refuse(["settings.steering is not steering"])
        for _, bound in looked_at:
            self.names |= bound
        if looked_at:  # a cell may have become empty, an entry gone
            lines += [" try:", *(" " + line for line in _refuse([condition for condition, _ in looked_at]))]
            lines += [" except (ValueError, KeyError): break"]
        return lines

    def arguments(self) -> list[str]:
        """Lines that name the nodes and the memory of the arguments and of the gradients that the call brings. They
        give up where one is of another kind.
        """
        names, n = self.names, self.n
        lines = _refuse([f"{a}.__class__ is not Tensor" for a in self.named])
        for i, (t, state) in enumerate(self.captured.found):
            if not is_brought(state):
                g = _gradient(t, names)
                names[f"shown{i}"] = state  # a view
                is_late = f"{g}.__class__ is not NotKept or {g}.tensor is not None"
                lines += _refuse([is_late if state is NotKept else f"{g} is not shown{i}"])
        brought = [f"a{i}" for i in range(len(self.named), n)]
        lines += [f" {a} = {_gradient(t, names)}" for a, t in zip(brought, self.brought, strict=True)]
        lines += _refuse([f"{a}.__class__ is not Tensor" for a in brought])
        for i, kind in enumerate(self.captured.kinds):
            lines += [f" u{i} = a{i}._uop", f" m{i} = u{i}.storage"]
            names |= dict(zip((f"shape{i}", f"dtype{i}", f"device{i}", f"leaf{i}"), kind, strict=True))
            differs = f"u{i}.src[0] is not shape{i}", f"u{i}.dtype is not dtype{i}", f"u{i}.arg[2] is not device{i}"
            lines += _refuse([f"m{i} is None", *differs, f"a{i}._requires_grad is not leaf{i}"])
        lines += _refuse([f"u{i} is u{k}" for i, k in combinations(range(n), 2)])
        looked = self.captured.looked
        if places := sorted({i for i in looked if i.__class__ is int}):  # its gradient would be that of either
            names["graded"] = {id(t) for t in looked if t.__class__ is not int}
            lines += _refuse([f"id(a{i}) in graded" for i in places if names["graded"]])
        if self.capture.moves and n:  # an argument that the step reaches from outside, too
            names["outside"] = {*(id(s.tensor) for s in self.capture.brought), *map(id, self.capture.read)}
            lines += _refuse([f"not outside.isdisjoint(map(id, ({', '.join((*self.named, *brought))},)))"])
        return lines

    def run(self) -> list[str]:
        """Lines that make memory, run the step, and leave states and gradients as it leaves them."""
        capture, names, n = self.capture, self.names, self.n
        states = list(_states(capture))
        for _, bound in states:
            names |= bound
        names |= {f"drawn{i}": s for i, s in enumerate(self.draws)}
        pending = [f"drawn{i}.is_pending()" for i in range(len(self.draws))]
        run = _refuse([*(condition for condition, _ in states), *pending])
        for i, s in enumerate(capture.brought, n):  # the old versions of states that move
            names[f"old{i}"] = s
            run += [f" u{i} = old{i}.tensor._uop; m{i} = u{i}.storage", *_refuse([f"m{i} is None"])]
        for k, made in enumerate(capture.made):
            run += _fresh(k, made, names, self.origins[k], capture.home(made.mark))
        given = [f"m{i}.address" for i in range(n + len(capture.brought))]
        given += [f"value_of({v})" for v in _sizes(capture, names)]
        given += [f"n{k}.address" for k in range(len(capture.made))]
        if capture.device is None:
            return [*run, *self.gradients()]  # results are views of arguments, and constants
        if capture.short is not None and not capture.moves and not self.draws:
            names["native"] = capture.short
            return [*run, *_called(given, self.gradients(), capture.may_fail)]
        names["native"] = capture.native
        run += [" prologue.refresh()"] * (capture.prologue is not None)
        news, stored = _moved(capture, names)
        run += [*news, *_called(given, [*stored, *self.gradients()], capture.may_fail)]
        # `with`, though calls of its methods cost less: an interrupt between those would leave it locked
        return [" with running.lock:", *(" " + line for line in run)]

    def gradients(self) -> list[str]:
        """Lines that give Tensors the gradients that the step leaves."""
        c, names, n = self.captured, self.names, self.captured.n_values
        after = [f" {' = '.join(_gradient(t, names) for t in ts)} = {value}" for ts, value in
                 ((c.cleared, "None"), (c.used_up, "not_kept")) if ts]  # fmt: skip
        after += [self.value(i) for i in range(n, len(self.capture.outputs))]
        after += [f" {_gradient(t, names)} = t{i}" for i, t in enumerate(c.graded, n)]
        lines, found = self.leaves([leaf for _, leaf in c.shared])
        return [*after, *lines, *(f" {_gradient(t, names)} = {g}" for (t, _), g in zip(c.shared, found, strict=True))]

    def value(self, i: int) -> str:
        """A line that makes a Tensor of an output."""
        node = _node(str(i), self.capture.outputs[i], self.names)
        return f" t{i} = new(Tensor); t{i}._uop = {node}; t{i}._grad = None; t{i}._requires_grad = False"

    def results(self) -> list[str]:
        """Lines that return the results."""
        lines, found = self.leaves(self.captured.leaves)
        return [*lines, f" return {_tree(self.captured.template, found)}"]

    def leaves(self, leaves: Sequence[Leaf]) -> tuple[list[str], list[str]]:
        """Lines that make the values and the views of results that no line has made yet; the results as expressions."""
        lines: list[str] = []
        for leaf in leaves:
            at = leaf.of if leaf.path else leaf.value
            if leaf.root is None and at < self.captured.n_values and f"t{at}" not in self.made:
                self.made.add(f"t{at}")
                lines.append(self.value(at))
            if leaf.path and f"l{leaf.value}" not in self.made:  # one that is returned twice is one
                self.made.add(f"l{leaf.value}")
                lines.append(f" l{leaf.value} = {_view(leaf, self.names)}")
        return lines, [f"l{k.value}" if k.path else _whole(k, self.names) for k in leaves]


def _tensor(t: Any, names: dict[str, Any]) -> str:
    """An argument, by its place, or a Tensor, as an expression."""
    if t.__class__ is int:
        return f"a{t}"
    names[name := f"leaf_{id(t)}"] = t
    return name


def _gradient(t: Any, names: dict[str, Any]) -> str:
    """The gradient of an argument, by its place, or of a Tensor, as an expression."""
    return _tensor(t, names) + "._grad"


def _whole(leaf: Leaf, names: dict[str, Any]) -> str:
    """A Tensor of a result, or what it is a view of, as an expression."""
    return _tensor(leaf.root, names) if leaf.root is not None else f"t{leaf.of if leaf.path else leaf.value}"


def _view(leaf: Leaf, names: dict[str, Any]) -> str:
    """A view that is a result as an expression."""
    names[f"path{leaf.value}"] = leaf.path
    return f"along({_whole(leaf, names)}, path{leaf.value})"


def _refuse(conditions: list[str]) -> list[str]:
    """A line that gives up when one of them holds."""
    return [f" if {' or '.join(conditions)}: break"] if conditions else []


def _around(around: Reach) -> Iterator[Line]:
    """What is looked at, a line each; where a model has hundreds of them, a line for each kind of those."""
    entries = [(mapping.get, name, value) for mapping, name, value in around.entries]
    lists: tuple[list, ...] = (entries, around.sizes, around.orders, around.kinds, around.flags, around.codes)
    if sum(map(len, lists)) > MOST_PLACES:
        yield from _same("entry", "is_", "map(apply, {0}, {1}, repeat(EMPTY)), {2}", entries)
        yield from _same("size", "eq", "map(len, {0}), {1}", around.sizes)
        yield from _same("order", "eq", "map(list, {0}), {1}", around.orders)
        yield from _same("kind", "is_", "map(type, {0}), {1}", around.kinds)
        yield from _same("flag", "is_", "map(requires_grad, {0}), {1}", around.flags)
        yield from _same("code", "is_", "map(code_of, {0}), {1}", around.codes)
    else:
        for i, (mapping, name, value) in enumerate(around.entries):
            bound = {f"key{i}": name, f"value{i}": value}
            if mapping.__class__ is dict and value is not EMPTY:  # a fifth of a step of SGD would be calls of `get`
                yield f"in{i}[key{i}] is not value{i}", {f"in{i}": mapping, **bound}
            else:
                yield f"get{i}(key{i}, EMPTY) is not value{i}", {f"get{i}": mapping.get, **bound}
        for i, (sized, n) in enumerate(around.sizes):
            yield f"len(sized{i}) != {n}", {f"sized{i}": sized}
        for i, (d, keys) in enumerate(around.orders):
            yield f"[*dict{i}] != keys_of{i}", {f"dict{i}": d, f"keys_of{i}": keys}
        for i, (x, kind) in enumerate(around.kinds):
            yield f"type(object{i}) is not kind_of{i}", {f"object{i}": x, f"kind_of{i}": kind}
        for i, (t, flag) in enumerate(around.flags):
            yield f"leaf_t{i}._requires_grad is not {flag}", {f"leaf_t{i}": t}
        for i, (f, code) in enumerate(around.codes):
            yield f"f{i}.__code__ is not code{i}", {f"f{i}": f, f"code{i}": code}
    for i, (held, data) in enumerate(around.arrays):
        yield f"content_of(array{i}) != data{i}", {f"array{i}": held, f"data{i}": data}
    for i, (mapping, key) in enumerate(around.plains):
        yield f"not is_plain(plain_in{i}.get({key!r}, EMPTY))", {f"plain_in{i}": mapping}
    for i, (target, dead) in enumerate(around.deaths):
        yield f"(target{i}() is None) is not {dead}", {f"target{i}": target}
    for i, (cell, value) in enumerate(around.cells):
        yield f"cell{i}.cell_contents is not held{i}", {f"cell{i}": cell, f"held{i}": value}
    for i, (held, values) in enumerate(around.contents):
        differs = f"len(held_in{i}) != {len(values)} or not all(map(is_, held_in{i}, values{i}))"
        yield differs, {f"held_in{i}": held, f"values{i}": values}
    for i, (ref, name, value) in enumerate(around.slots):
        yield f"getattr(ref{i}(), {name!r}, EMPTY) is not slot{i}", {f"ref{i}": ref, f"slot{i}": value}


def _same(name: str, compare: str, pairs: str, rows: Sequence[tuple]) -> Iterator[Line]:
    """One line for a table: what `pairs` makes of its columns is equal, or the same, row by row."""
    if rows:
        columns = {f"{name}{i}": column for i, column in enumerate(zip(*rows, strict=True))}
        yield f"not all(map({compare}, {pairs.format(*columns)}))", columns


def _states(capture: Capture) -> Iterator[Line]:
    for i, r in enumerate(capture.reads):
        yield f"r{i}.tensor._uop is not r{i}.uop", {f"r{i}": r}
    for i, s in enumerate(capture.in_place):
        # references: the tensor's, the state's, the argument of getrefcount; the BUFFER's, the state's, that
        held = f"getrefcount(s{i}.uop) > 3 or getrefcount(s{i}.memory) > 3"
        yield f"s{i}.tensor._uop is not s{i}.uop or {held}", {f"s{i}": s}


def _called(given: list[str], after: list[str], may_fail: bool) -> list[str]:
    """Lines that run the step, and leave what it computed: no call in between, so that an interrupt finds all of it."""
    call = f" native({', '.join(given)})"
    if may_fail or not after:
        return [call, *after]
    return [" try:", f" {call}", " finally:", *(" " + line for line in after)]


def _moved(capture: Capture, names: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Lines that name the new version of each state that moves, and lines that store them all."""
    news, stored = [], []
    for k, s in enumerate(capture.moves):
        names[f"moves{k}"] = s
        news.append(f" w{k} = {_node(f'w{k}', s.after, names)}")
        stored.append(f" {f'moves{k}.tensor' if s.argument is None else f'a{s.argument}'}._uop = w{k}")
    return news, stored


def _sizes(capture: Capture, names: dict[str, Any]) -> list[str]:
    names |= {f"v{i}": v for i, v in enumerate(capture.variables)}
    return [f"v{i}" for i in range(len(capture.variables))]


def _fresh(k: int, made: Fresh, names: dict[str, Any], origin: Any, device: Any) -> list[str]:
    """Lines after which `y{k}` is a BUFFER of its own and `n{k}` its memory."""

    def fresh() -> UOp:
        u = new_buffer_like(made.mark)
        u.storage, u.origin = device.alloc(made.n_bytes), origin
        return u

    names |= {f"fresh{k}": fresh, f"last{k}": [made.mark, made.mark]}
    if made.n_bytes > KEPT_BYTES:
        return [f" y{k} = fresh{k}(); n{k} = y{k}.storage"]
    # The list is one of the holders that are counted: another thread may have taken the node out of it since.
    held = [f"last{k}[1] is not y{k}", f"getrefcount(y{k}) > FREE", f"getrefcount(n{k}) > FREE"]
    held.append(f"y{k}.__weakref__ is not None")
    return [
        f" y{k}, last{k}[0] = last{k}; last{k}[1] = y{k}; n{k} = y{k}.storage",
        f" if {' or '.join(held)}: y{k} = last{k}[1] = fresh{k}(); n{k} = y{k}.storage",
        f" else: y{k}.serial = next_serial()",  # to all who see it, it is a new node
    ]


def _node(name: str, v: Value, names: dict[str, Any]) -> str:
    """The node of a result or a new version as an expression: what was made or brought, a constant, or a view of it."""
    if v.source == "constant":
        names[f"kept_{name}"] = v.node
        return f"kept_{name}"
    whole = f"y{v.at}" if v.source == "fresh" else f"u{v.at}"
    if v.node is v.base:
        return whole

    def view(new: UOp) -> UOp:
        u = substitute(v.node, {v.base: new})
        u.origin = new.origin
        return u

    names[f"view_{name}"] = view
    return f"view_{name}({whole})"


def _tree(template: Any, leaves: Sequence[str]) -> str:
    """The results as an expression."""
    tensors = ", ".join(leaves)
    if template.__class__ is Tensor:
        return tensors
    if template.__class__ is tuple and all(t.__class__ is Tensor for t in template):
        return f"({tensors},)" if leaves else "()"
    return f"unflatten(template, iter([{tensors}]))"


__all__ = ["MISS", "usual_call"]
