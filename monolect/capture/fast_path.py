"""Generate the fast path of a captured step: Python code without loops for one call, specialized for this step.

What it is for: for a kernel of a microsecond, the loops, lists and calls of a general replay cost too much. The guards
of a step never change, so their code is generated once. The code checks the environment (the values that the function
reads besides its arguments), each argument and each state. Then it makes the native call and builds the results. If a
guard fails, nothing was changed yet, and the general call (the code that serves any call) runs.

A small result whose node and memory have no other holder is recycled by a later call. Two BUFFERs of each result are
kept, because a loop holds one while it computes the other.

Invariant: a call either changes nothing and runs the general call, or has the effects of the general call.
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
from monolect.capture.environment.dependencies import Dependencies
from monolect.capture.environment.guards import EMPTY, is_plain
from monolect.capture.gradients import is_supplied
from monolect.capture.returned import Leaf
from monolect.ir.uop import UOp, new_buffer_like, next_serial
from monolect.runtime import profile
from monolect.runtime.binding import value_of
from monolect.runtime.realize.locks import running
from monolect.runtime.replay.capture import Capture, Fresh, Output
from monolect.runtime.replay.in_progress import NotKept, under_way
from monolect.tensor import random as random_state
from monolect.tensor.state.hooks import functions_of
from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import content_of, unflatten
from monolect.tensor.view import apply_path

MISSING = object()  # default of the parameters: an argument that was not given
MAX_GUARD_LINES = 200  # guards; more are checked by table, and a step with more lines has no fast path
MAX_REUSED_BYTES = 256 << 10  # bytes; memory of larger results is not recycled: two of them are half of an L2 cache
GuardLine = tuple[str, dict[str, Any]]  # condition under which the guard fails, and the values of its names


def _unshared_refcount() -> int:
    """Return what `getrefcount` returns for an object that only one list and one local variable hold."""
    things = [object()]
    thing = things[0]
    return getrefcount(thing)


def build_fast_path(
    captured: Captured,
    environment: Dependencies,
    origins: Sequence[tuple],
    general: Callable[..., Any],
    not_kept: Any = None,
) -> Callable[..., Any] | None:
    """Return the fast path of `captured` as a function, or None if the step cannot have one.

    The function accepts any arguments. If a guard fails, it passes them to `general`, with MISSING for those not given.

    `environment`: the dependencies to guard. `origins`: the origin of each result in `capture.made`. `not_kept`: the
    marker that replaces a gradient which the step uses to update its Tensor, and does not store.
    """
    guards = list(_guard_lines(environment))
    if not _is_supported(captured.capture, environment, len(guards)):
        return None
    writer = _Writer(captured, origins)
    names = writer.names
    names |= {"general": general, "not_kept": not_kept}
    lines = [*writer.environment_guards(guards), *writer.arguments(), *writer.run(), *writer.results()]
    # a failed guard leaves the loop, and releases the lock, before the general call begins
    given = "".join(f"{a}, " for a in writer.parameters)
    head = "".join(f"{a}=MISSING, " for a in writer.parameters) + "/, " * bool(writer.parameters)
    text = [f"def __call__({head}*more, **named):", " while True:", *(" " + line for line in lines)]
    text.append(f" return general({given}*more, **named)")
    exec(compile("\n".join(text), "<monolect fast path>", "exec"), names)
    # its globals do not hold it: without a cycle it is freed when it is dropped
    call: Callable[..., Any] = names.pop("__call__")
    return call


def _is_supported(capture: Capture, environment: Dependencies, n_guards: int) -> bool:
    """Whether a fast path can be generated for the step of `capture`, with at most MAX_GUARD_LINES guards.

    `n_guards`: the number of guards of `environment`; guards of the external Tensors that the step reads or updates are
    added to it here.
    """
    values = [*capture.outputs, *(s.after for s in capture.moves)]
    values = [part for v in values for part in (v.at if v.source == "parts" else (v,))]
    known = all(v.source in ("fresh", "constant", "given") for v in values)
    simple = known and all(m.shape is None for m in capture.made) and not capture.reuse
    runs = capture.native is not None or (capture.device is None and not capture.moves)
    device: Any = capture.device
    saves = capture.may_fail and capture.in_place and device.space == HOST  # a launch that fails needs a snapshot
    if not simple or settings.VERIFY > 1 or not runs or saves:
        return False
    n = n_guards + sum(1 for _ in _state_guards(capture)) + len(capture.moves)
    return n <= MAX_GUARD_LINES and not any(value is EMPTY for _, value in environment.cells)


class _Writer:
    """A generator of the lines of a fast path; it also collects the values of global names that the lines use, in
    `names`.

    Names in the generated code, for argument i: `a0` the Tensor, `u0` its node, `m0` its memory. For a new BUFFER: `y0`
    its node, `n0` its memory. `t0` is a result.
    """

    def __init__(self, captured: Captured, origins: Sequence[tuple]) -> None:
        self.captured, self.capture, self.origins = captured, captured.capture, origins
        self.supplied = captured.supplied_gradients
        self.n = len(captured.kinds)
        self.parameters = [f"a{i}" for i in range(self.n - len(self.supplied))]  # parameters of the generated function
        self.made: set[str] = set()  # names of results that a line makes
        # (number of an argument or old state, number of the part or None) for each BUFFER that a call supplies
        devices = [kind[2][0] if kind[2].__class__ is tuple else kind[2] for kind in captured.kinds]
        devices += [s.tensor.device for s in self.capture.brought]
        self.parts: list[tuple[int, int | None]] = []
        for i, d in enumerate(devices):
            self.parts += [(i, p) for p in range(len(d))] if d.__class__ is tuple else [(i, None)]
        self.draws = random_state.states_of(self.capture.assigned)
        self.names: dict[str, Any] = {
            "MISSING": MISSING, "EMPTY": EMPTY, "is_": is_, "eq": eq, "apply": apply, "repeat": repeat,
            "requires_grad": attrgetter("_requires_grad"), "has_hooks": functions_of,
            "code_of": attrgetter("__code__"), "content_of": content_of,
            "FREE": _unshared_refcount(), "Tensor": Tensor, "new": object.__new__,
            "settings": settings, "profile": profile, "under_way": under_way, "getrefcount": getrefcount,
            "unflatten": unflatten, "apply_path": apply_path, "next_serial": next_serial, "template": captured.template,
            "value_of": value_of, "running": running, "is_plain": is_plain, "prologue": self.capture.prologue,
            "NotKept": NotKept, "steering": settings.shared_steering,
            "modes": settings.modes, "mode": settings.modes.key,
            "capture": self.capture,  # keeps memory of native code alive if another thread replaces the fast path
        }  # fmt: skip

    def environment_guards(self, guards: list[GuardLine]) -> list[str]:
        """Return lines of code that leave the fast path if one of `guards` fails, or if the fast path cannot serve the
        call.

        It cannot serve calls with surplus or keyword arguments, with changed settings, with TRACE output or a profile,
        or while a capture, trace or derivative is in progress.
        """
        lines = _bail_if(["more", "named", "under_way", "settings.tracing", "profile.recording"])
        changed = "(settings.shared_steering is not steering or modes.key is not mode)"
        is_usual = settings.modes.key is settings.modes.first
        lines += _bail_if([f"settings.usual_steering is not steering and {changed}" if is_usual else changed])
        for _, bound in guards:
            self.names |= bound
        if guards:  # an empty cell or a deleted entry raises
            lines += [" try:", *(" " + line for line in _bail_if([condition for condition, _ in guards]))]
            lines += [" except (ValueError, KeyError): break"]
        return lines

    def arguments(self) -> list[str]:
        """Return lines of code that name the nodes and memory of the arguments and of supplied gradients (gradients
        that are inputs).

        The lines leave the fast path if one of these Tensors has another class, shape, dtype, device or leaf flag than
        when the step was captured, or if two have the same node.
        """
        names, n = self.names, self.n
        lines = _bail_if([f"{a}.__class__ is not Tensor" for a in self.parameters])
        for i, (t, state) in enumerate(self.captured.initial_gradients):
            if not is_supplied(state):
                g = _gradient_expression(t, names)
                names[f"view{i}"] = state  # the gradient is a view
                is_other = f"getattr({g}, '_view', None) is not view{i}" if state is not None else f"{g} is not None"
                is_late = f"{g}.__class__ is not NotKept or {g}.tensor is not None"
                lines += _bail_if([is_late if state is NotKept else is_other])
        supplied = [f"a{i}" for i in range(len(self.parameters), n)]
        lines += [f" {a} = {_gradient_expression(t, names)}" for a, t in zip(supplied, self.supplied, strict=True)]
        lines += _bail_if([f"{a}.__class__ is not Tensor" for a in supplied])
        for i, kind in enumerate(self.captured.kinds):
            lines += [f" u{i} = a{i}._uop", f" m{i} = u{i}.storage"]
            names |= dict(zip((f"shape{i}", f"dtype{i}", f"device{i}", f"leaf{i}"), kind, strict=True))
            differs = [f"u{i}.src[0] is not shape{i}", f"u{i}.dtype is not dtype{i}", f"u{i}.arg[2] is not device{i}"]
            if kind[2].__class__ is tuple:  # (devices, axis that they divide)
                differs[2] = f"(u{i}.arg[2], u{i}.arg[4]) != device{i}"
            lines += _bail_if([f"m{i} is None", *differs, f"a{i}._requires_grad is not leaf{i}"])
            if kind[3]:
                lines += _bail_if([f"has_hooks(a{i})"])
        lines += _bail_if([f"u{i} is u{k}" for i, k in combinations(range(n), 2)])
        looked = self.captured.gradient_owners
        if positions := sorted({i for i in looked if i.__class__ is int}):  # an external argument is ambiguous
            names["owners"] = {id(t) for t in looked if t.__class__ is not int}
            lines += _bail_if([f"id(a{i}) in owners" for i in positions if names["owners"]])
        if self.capture.moves and n:  # an argument that is also an external Tensor of the step
            names["outside"] = {*(id(s.tensor) for s in self.capture.brought), *map(id, self.capture.read)}
            lines += _bail_if([f"not outside.isdisjoint(map(id, ({', '.join((*self.parameters, *supplied))},)))"])
        return lines

    def run(self) -> list[str]:
        """Return lines of code that allocate memory, run the step, and set its states and gradients."""
        capture, names, n = self.capture, self.names, self.n
        states = list(_state_guards(capture))
        for _, bound in states:
            names |= bound
        names |= {f"drawn{i}": s for i, s in enumerate(self.draws)}
        pending = [f"drawn{i}.is_pending()" for i in range(len(self.draws))]
        run = _bail_if([*(condition for condition, _ in states), *pending])
        for i, s in enumerate(capture.brought, n):  # the old versions of rebound states
            names[f"old{i}"] = s
            run += [f" u{i} = old{i}.tensor._uop; m{i} = u{i}.storage", *_bail_if([f"m{i} is None"])]
        for k, made in enumerate(capture.made):
            run += _result_buffer(k, made, names, self.origins[k], capture.home(made.mark))
        given = [
            f"{self.given(k)}.storage.address" if p is not None else f"m{i}.address"
            for k, (i, p) in enumerate(self.parts)
        ]
        given += [f"value_of({v})" for v in _size_names(capture, names)]
        given += [f"n{k}.address" for k in range(len(capture.made))]
        if capture.device is None:
            return [*run, *self.gradients()]  # results are views of arguments, or constants
        if capture.short is not None and not capture.moves and not self.draws:
            names["native"] = capture.short
            return [*run, *_native_call(given, self.gradients(), capture.may_fail)]
        names["native"] = capture.native
        run += [" prologue.refresh()"] * (capture.prologue is not None)
        news, stored = self.new_versions()
        run += [*news, *_native_call(given, [*stored, *self.gradients()], capture.may_fail)]
        # `with`, though calls of its methods cost less: an interrupt between those would leave it locked
        return [" with running.lock:", *(" " + line for line in run)]

    def gradients(self) -> list[str]:
        """Return lines of code that assign the gradients which the step sets or clears."""
        c, names, n = self.captured, self.names, self.captured.n_values
        after = [f" {' = '.join(_gradient_expression(t, names) for t in ts)} = {value}" for ts, value in
                 ((c.cleared, "None"), (c.consumed, "not_kept")) if ts]  # fmt: skip
        after += [self.value(i) for i in range(n, len(self.capture.outputs))]
        after += [f" {_gradient_expression(t, names)} = t{i}" for i, t in enumerate(c.gradient_targets, n)]
        lines, found = self.leaves([leaf for _, leaf in c.aliased_gradients])
        return [
            *after,
            *lines,
            *(f" {_gradient_expression(t, names)} = {g}" for (t, _), g in zip(c.aliased_gradients, found, strict=True)),
        ]

    def given(self, k: int) -> str:
        """Return the expression of the node at position `k`: an argument or an old state, or its part on one device."""
        i, part = self.parts[k]
        return f"u{i}" if part is None else f"m{i}.parts[{part}]"

    def node(self, name: str, output: Output) -> str:
        """Return the expression of the node of `output`, a result or new version; adds to `names`, with the suffix
        `name`.

        The node is new memory, an input, a constant, a view of one, or a BUFFER on several devices that has them as
        parts.
        """
        names = self.names
        if output.source == "parts":
            names[f"whole_{name}"] = output.joined
            return f"whole_{name}({', '.join(self.node(f'{name}_{p}', part) for p, part in enumerate(output.at))})"
        if output.source == "constant":
            names[f"kept_{name}"] = output.node
            return f"kept_{name}"
        whole = f"y{output.at}" if output.source == "fresh" else self.given(output.at)
        if output.node is output.base:
            return whole
        names[f"view_{name}"] = output.shown
        return f"view_{name}({whole})"

    def new_versions(self) -> tuple[list[str], list[str]]:
        """Return lines that name the new version of each rebound state, and lines that store them."""
        news, stored = [], []
        for k, s in enumerate(self.capture.moves):
            self.names[f"moves{k}"] = s
            news.append(f" w{k} = {self.node(f'w{k}', s.after)}")
            stored.append(f" {f'moves{k}.tensor' if s.argument is None else f'a{s.argument}'}._uop = w{k}")
        return news, stored

    def value(self, i: int) -> str:
        """Return a line that makes a Tensor of output `i`."""
        node = self.node(str(i), self.capture.outputs[i])
        return f" t{i} = new(Tensor); t{i}._uop = {node}; t{i}._grad = None; t{i}._requires_grad = False"

    def results(self) -> list[str]:
        """Return lines of code that build and return the results of the call."""
        lines, found = self.leaves(self.captured.leaves)
        return [*lines, f" return {_tree_expression(self.captured.template, found)}"]

    def leaves(self, leaves: Sequence[Leaf]) -> tuple[list[str], list[str]]:
        """Return (lines of code, expressions) for `leaves`, the Tensors of a result.

        The lines make the computed Tensors and views that no earlier line made. The expressions denote the Tensors, one
        for each leaf.
        """
        lines: list[str] = []
        for leaf in leaves:
            at = leaf.of if leaf.path else leaf.value
            if leaf.root is None and at < self.captured.n_values and f"t{at}" not in self.made:
                self.made.add(f"t{at}")
                lines.append(self.value(at))
            if leaf.path and f"l{leaf.value}" not in self.made:  # a view that is returned twice is one Tensor
                self.made.add(f"l{leaf.value}")
                lines.append(f" l{leaf.value} = {_view_expression(leaf, self.names)}")
        return lines, [f"l{k.value}" if k.path else _base_expression(k, self.names) for k in leaves]


def _tensor_expression(t: Any, names: dict[str, Any]) -> str:
    """Return the code of an expression for the Tensor that `t` denotes: the argument at position `t`, or the external
    Tensor `t`, which is added to `names`.
    """
    if t.__class__ is int:
        return f"a{t}"
    names[name := f"leaf_{id(t)}"] = t
    return name


def _gradient_expression(t: Any, names: dict[str, Any]) -> str:
    """Return the code of an expression for the gradient of the Tensor that `t` denotes: the argument at position `t`,
    or the external Tensor `t`, which is added to `names`.
    """
    return _tensor_expression(t, names) + "._grad"


def _base_expression(leaf: Leaf, names: dict[str, Any]) -> str:
    """Return the code of an expression for the Tensor of the result `leaf`, or for its base if the result is a view.
    `names`: global names of the code, which may grow.
    """
    return _tensor_expression(leaf.root, names) if leaf.root is not None else f"t{leaf.of if leaf.path else leaf.value}"


def _view_expression(leaf: Leaf, names: dict[str, Any]) -> str:
    """Return the code of an expression for the result `leaf`, which is a view. The steps that make the view are added
    to `names`.
    """
    names[f"path{leaf.value}"] = leaf.path
    return f"apply_path({_base_expression(leaf, names)}, path{leaf.value})"


def _bail_if(conditions: list[str]) -> list[str]:
    """Return, as a list, a line of code that leaves the fast path if one of `conditions` (code) is true; [] if there
    are none.
    """
    return [f" if {' or '.join(conditions)}: break"] if conditions else []


def _guard_lines(environment: Dependencies) -> Iterator[GuardLine]:
    """Yield a GuardLine, (code of a condition that is true if the guard fails, values of its names), for the guards of
    `environment`.

    There is one for each guard, or, if there are hundreds, one for all guards of a kind.
    """
    entries = [(mapping.get, name, value) for mapping, name, value in environment.entries]
    lists: tuple[list, ...] = (
        entries,
        environment.sizes,
        environment.orders,
        environment.kinds,
        environment.flags,
        environment.codes,
    )
    if sum(map(len, lists)) > MAX_GUARD_LINES:
        yield from _table_guard("entry", "is_", "map(apply, {0}, {1}, repeat(EMPTY)), {2}", entries)
        yield from _table_guard("size", "eq", "map(len, {0}), {1}", environment.sizes)
        yield from _table_guard("order", "eq", "map(list, {0}), {1}", environment.orders)
        yield from _table_guard("kind", "is_", "map(type, {0}), {1}", environment.kinds)
        yield from _table_guard("flag", "is_", "map(requires_grad, {0}), {1}", environment.flags)
        yield from _table_guard("code", "is_", "map(code_of, {0}), {1}", environment.codes)
    else:
        for i, (mapping, name, value) in enumerate(environment.entries):
            bound = {f"key{i}": name, f"value{i}": value}
            if mapping.__class__ is dict and value is not EMPTY:  # calls of `get` would take a fifth of an SGD step
                yield f"in{i}[key{i}] is not value{i}", {f"in{i}": mapping, **bound}
            else:
                yield f"get{i}(key{i}, EMPTY) is not value{i}", {f"get{i}": mapping.get, **bound}
        for i, (sized, n) in enumerate(environment.sizes):
            yield f"len(sized{i}) != {n}", {f"sized{i}": sized}
        for i, (d, keys) in enumerate(environment.orders):
            yield f"[*dict{i}] != keys_of{i}", {f"dict{i}": d, f"keys_of{i}": keys}
        for i, (x, kind) in enumerate(environment.kinds):
            yield f"type(object{i}) is not kind_of{i}", {f"object{i}": x, f"kind_of{i}": kind}
        for i, (t, flag) in enumerate(environment.flags):
            yield f"leaf_t{i}._requires_grad is not {flag}", {f"leaf_t{i}": t}
        for i, (f, code) in enumerate(environment.codes):
            yield f"f{i}.__code__ is not code{i}", {f"f{i}": f, f"code{i}": code}
    for i, (held, data) in enumerate(environment.arrays):
        yield f"content_of(array{i}) != data{i}", {f"array{i}": held, f"data{i}": data}
    for i, (mapping, key) in enumerate(environment.plains):
        yield f"not is_plain(plain_in{i}.get({key!r}, EMPTY))", {f"plain_in{i}": mapping}
    for i, (target, dead) in enumerate(environment.weak_references):
        yield f"(target{i}() is None) is not {dead}", {f"target{i}": target}
    for i, (cell, value) in enumerate(environment.cells):
        yield f"cell{i}.cell_contents is not held{i}", {f"cell{i}": cell, f"held{i}": value}
    for i, (held, values) in enumerate(environment.contents):
        differs = f"len(held_in{i}) != {len(values)} or not all(map(is_, held_in{i}, values{i}))"
        yield differs, {f"held_in{i}": held, f"values{i}": values}
    for i, (ref, name, value) in enumerate(environment.slots):
        yield f"getattr(ref{i}(), {name!r}, EMPTY) is not slot{i}", {f"ref{i}": ref, f"slot{i}": value}


def _table_guard(name: str, compare: str, pairs: str, rows: Sequence[tuple]) -> Iterator[GuardLine]:
    """Yield one guard that checks all `rows` at once; yield nothing if there are none. It fails unless `compare` is
    true for each pair.

    A guard is (code of a condition that is true if the guard fails, values of its names). `pairs`: the code of two
    iterables, which give the operands of the function named `compare`; `{k}` in it is column k of `rows`. `name`:
    prefix of the columns' names in the code.
    """
    if rows:
        columns = {f"{name}{i}": column for i, column in enumerate(zip(*rows, strict=True))}
        yield f"not all(map({compare}, {pairs.format(*columns)}))", columns


def _state_guards(capture: Capture) -> Iterator[GuardLine]:
    """Yield a GuardLine for each external Tensor that the step of `capture` reads or updates in place.

    A GuardLine is (code of a condition that is true if the guard fails, values of its names). The guard fails if the
    Tensor has another node, or if other code holds the node or memory of a state that is updated in place.
    """
    for i, r in enumerate(capture.reads):
        yield f"r{i}.tensor._uop is not r{i}.uop", {f"r{i}": r}
    for i, s in enumerate(capture.in_place):
        # references: the tensor's, the state's, the argument of getrefcount; the BUFFER's, the state's, that
        held = f"getrefcount(s{i}.uop) > 3 or getrefcount(s{i}.memory) > 3"
        held += f" or s{i}.has_shared_part()" * capture.is_on_several
        yield f"s{i}.tensor._uop is not s{i}.uop or {held}", {f"s{i}": s}


def _native_call(arguments: list[str], after: list[str], may_fail: bool) -> list[str]:
    """Return lines of code that run the step and then the lines `after`, with no Python call between them, so that no
    interrupt separates them.

    `arguments`: code of the arguments of the native call. `may_fail`: the step may raise; then `after` is not run.
    """
    call = f" native({', '.join(arguments)})"
    if may_fail or not after:
        return [call, *after]
    return [" try:", f" {call}", " finally:", *(" " + line for line in after)]


def _size_names(capture: Capture, names: dict[str, Any]) -> list[str]:
    names |= {f"v{i}": v for i, v in enumerate(capture.variables)}
    return [f"v{i}" for i in range(len(capture.variables))]


def _result_buffer(k: int, result: Fresh, names: dict[str, Any], origin: Any, device: Any) -> list[str]:
    """Return lines of code after which `y{k}` is a BUFFER that no other code holds, and `n{k}` its memory, for result
    number `k`.

    It is the BUFFER of an earlier call if that is free and small, else a new one on `device`. `result`: the rule for
    its memory. `origin`: (file, line, what) of new nodes. Adds to `names`.
    """

    def fresh() -> UOp:
        u = new_buffer_like(result.mark)
        u.storage, u.origin = device.alloc(result.n_bytes), origin
        return u

    names |= {f"fresh{k}": fresh, f"last{k}": [result.mark, result.mark]}
    if result.n_bytes > MAX_REUSED_BYTES:
        return [f" y{k} = fresh{k}(); n{k} = y{k}.storage"]
    # FREE counts the list as a holder: check that no other thread replaced the node in it.
    held = [f"last{k}[1] is not y{k}", f"getrefcount(y{k}) > FREE", f"getrefcount(n{k}) > FREE"]
    held.append(f"y{k}.__weakref__ is not None")
    return [
        f" y{k}, last{k}[0] = last{k}; last{k}[1] = y{k}; n{k} = y{k}.storage",
        f" if {' or '.join(held)}: y{k} = last{k}[1] = fresh{k}(); n{k} = y{k}.storage",
        f" else: y{k}.serial = next_serial()",  # a recycled node counts as a new one
    ]


def _tree_expression(template: Any, leaves: Sequence[str]) -> str:
    """Return the code of an expression for the results in the nesting of `template`. `leaves`: the code of an
    expression for each Tensor in it.
    """
    tensors = ", ".join(leaves)
    if template.__class__ is Tensor:
        return tensors
    if template.__class__ is tuple and all(t.__class__ is Tensor for t in template):
        return f"({tensors},)" if leaves else "()"
    return f"unflatten(template, iter([{tensors}]))"


__all__ = ["MISSING", "build_fast_path"]
