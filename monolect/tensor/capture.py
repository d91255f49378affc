"""`@jit`: a step that runs as one native command buffer after its first calls.

The first call with a new signature runs the function and records what it ran; later calls with that signature replay
it. The signature holds the shapes, dtypes and devices of every Tensor argument, in any nesting of lists, tuples and
dicts, and every other argument by value. Tensors the function assigns (parameters, optimizer state, random state) are
state: they are read and updated at each call. Results are fresh tensors.

What cannot be captured: reading values inside (`item`, `numpy`), which raises JitError at the user's line.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.errors import JitError
from monolect.ir.uop import UOp, new_buffer, substitute_all, toposort
from monolect.runtime import execute
from monolect.runtime.buffer import base_of, is_realized
from monolect.runtime.jit import Capture, changes, external
from monolect.tensor import random as random_state
from monolect.tensor.tensor import Tensor

MOST_CAPTURES = 64
Readers = tuple[list[tuple[Tensor, UOp]], list[tuple[weakref.ref[Tensor], UOp]]]


def flatten(tree: Any, tensors: list[Tensor]) -> None:
    """Append the Tensors of `tree` to `tensors`, in order. Raises JitError for a list or dict that holds itself."""
    try:
        _flatten(tree, tensors)
    except RecursionError:
        expected = "lists, tuples and dicts that end"
        raise JitError(
            "a value of a jitted function holds itself", expected=expected, found=type(tree).__name__
        ) from None


def _flatten(tree: Any, tensors: list[Tensor]) -> None:
    if isinstance(tree, Tensor):
        tensors.append(tree)
    elif isinstance(tree, list | tuple):
        for x in tree:
            _flatten(x, tensors)
    elif isinstance(tree, dict):
        for x in tree.values():
            _flatten(x, tensors)


def signature(tree: Any) -> Any:
    """What a capture depends on: structure, the places of Tensors, and everything else by value."""
    if tree.__class__ is Tensor:
        u = tree._uop
        return (u.src[0], u.dtype, u.arg.device)
    if isinstance(tree, list | tuple):
        return (type(tree), *[signature(x) for x in tree])
    if isinstance(tree, dict):
        return (dict, *[(k, signature(x)) for k, x in tree.items()])
    if isinstance(tree, Tensor):
        return signature(Tensor._wrap(tree._uop))
    return (tree.__class__, tree) if tree.__hash__ is not None else (tree.__class__, id(tree))


def unflatten(tree: Any, tensors: Any) -> Any:
    """`tree` with its Tensors replaced, in order, by the next of `tensors`."""
    if isinstance(tree, Tensor):
        return next(tensors)
    if isinstance(tree, list | tuple):
        items = [unflatten(x, tensors) for x in tree]
        return items if isinstance(tree, list) else type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    if isinstance(tree, dict):
        return {k: unflatten(v, tensors) for k, v in tree.items()}
    return tree


def live_tensors() -> list[Tensor]:
    """Every Tensor of the process."""
    kinds: list[type] = [Tensor]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    wanted = frozenset(kinds)
    return [t for t in gc.get_objects() if type(t) in wanted]


class Jit:
    """A function and its captures, a bounded cache of them."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.captures: OrderedDict[Any, tuple[Capture, Any]] = OrderedDict()
        self._bound: dict[int, Jit] = {}
        code = getattr(function, "__code__", None)
        self.origin = (code.co_filename, code.co_firstlineno, "jit") if code is not None else ("", 0, "jit")
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Jit:
        """A method has captures of its own for each instance."""
        if instance is None:
            return self
        found = self._bound.get(id(instance))
        if found is None or found.function.__self__ is not instance:  # type: ignore[attr-defined]
            found = self._bound[id(instance)] = Jit(self.function.__get__(instance, owner))
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors: list[Tensor] = []
        for a in args:
            if a.__class__ is Tensor:
                tensors.append(a)
            else:
                flatten(a, tensors)
        if kwargs:
            flatten(kwargs, tensors)
        inputs = [t._uop for t in tensors]
        for u in inputs:
            if u.op != "BUFFER" or u.storage is None:
                inputs = self._own_buffers(tensors)
                break
        key: Any = [signature(a) for a in args]
        if kwargs:
            key.append(signature(kwargs))
        if len(inputs) > 1 and len(set(inputs)) != len(inputs):
            key.append(tuple([inputs.index(u) for u in inputs]))
            inputs = list(dict.fromkeys(inputs))
        key = tuple(key)
        try:
            found = self.captures.get(key)
        except TypeError:
            expected = "Tensors and hashable values"
            raise JitError("an argument of a jitted function cannot be compared", expected=expected) from None
        if found is None:
            return self._capture(key, args, kwargs, inputs)
        capture, template = found
        if capture.woven and not capture.is_current():
            del self.captures[key]
            return self._capture(key, args, kwargs, inputs)
        outs = capture.replay(inputs)
        if template.__class__ is Tensor:
            return self._result(outs[0])
        return unflatten(template, iter([self._result(u) for u in outs]))

    def _result(self, u: UOp) -> Tensor:
        u.origin = self.origin
        return Tensor._wrap(u)

    def _own_buffers(self, tensors: list[Tensor]) -> list[UOp]:
        """Every argument as a BUFFER with storage; views are copied."""
        for t, u in zip(tensors, execute.realize([t._uop for t in tensors]), strict=True):
            t._uop = u if u.op == "BUFFER" else execute.realize([t.contiguous()._uop])[0]
        return [t._uop for t in tensors]

    def _readers(self, runs: list[execute.Run], inputs: list[UOp], states: set[UOp], graph: set[UOp]) -> Readers:
        """The tensors that the step reads from outside, so that a later assign to one is seen.

        One that alone has a buffer can be bound anew. What a tensor is that is a view of one, shares one, or was still
        part of the step's `graph`, is woven into the kernels: the step is captured again when it changes.
        """
        found = {b for b in external(runs, inputs) if b not in states}
        tensors = live_tensors() if found or graph else []
        holders = [t for t in tensors if t._uop in found]
        shared = Counter(t._uop for t in holders)
        reads = [(t, t._uop) for t in holders if shared[t._uop] == 1]
        woven = [t for t in tensors if shared[t._uop] > 1 or t._uop in graph]
        woven += [t for t in tensors if t._uop not in found and base_of(t._uop) in found]
        return reads, [(weakref.ref(t), t._uop) for t in woven]

    def _computed_outside(self, batch: list[Tensor], graph: set[UOp]) -> set[UOp]:
        """Realise what Tensors from outside still stand for in the `graph` of the step; the nodes that are gone now.

        It is no part of the step: a replay must not draw initial weights anew.
        """
        if not graph:
            return set()
        own = {id(t) for t in batch}
        outside = [t for t in live_tensors() if t._uop in graph and id(t) not in own]
        if not outside:
            return set()
        captures, execute.listening.captures = execute.listening.captures, []
        try:
            values = execute.realize([t._uop for t in outside])
        finally:
            execute.listening.captures = captures
        new = dict(zip((t._uop for t in outside), values, strict=True))
        for t in outside:
            t.uop = new[t._uop]
        for t, u in zip(batch, substitute_all(tuple(t._uop for t in batch), new), strict=True):
            t._uop = u
        return graph - {u for u in toposort(*(t._uop for t in batch)) if not is_realized(u)}

    def _capture(self, key: Any, args: Any, kwargs: Any, inputs: list[UOp]) -> Any:
        runs: list[execute.Run] = []
        start = new_buffer((), dtypes.bool, "cpu").serial
        execute.listening.captures.append(runs)
        changes.captures.append({})
        try:
            result = self.function(*args, **kwargs)
            outputs: list[Tensor] = []
            flatten(result, outputs)
            assigned = [t for t, _ in changes.captures[-1].values()]
            batch = [*outputs, *assigned, *random_state.pending()]
            graph = {u for u in toposort(*(t._uop for t in batch)) if u.serial < start and not is_realized(u)}
            graph -= self._computed_outside(batch, graph)
            if batch:
                batch[0].realize(*batch[1:])
        finally:
            execute.listening.captures.pop()
            befores = changes.captures.pop()
        states = [(t, before, t._uop) for t, before in befores.values()]
        if any(b.op != "BUFFER" or b.storage is None or a.op != "BUFFER" for _, b, a in states):
            return result  # state that only now got its buffer: captured at the next call
        reads, woven = self._readers(runs, inputs, {before for _, before, _ in states}, graph)
        self.captures[key] = (Capture(runs, inputs, [t._uop for t in outputs], states, reads, woven), result)
        if len(self.captures) > MOST_CAPTURES:
            self.captures.popitem(last=False)
        return unflatten(result, iter([Tensor._wrap(t._uop) for t in outputs]))


def jit(function: Callable[..., Any]) -> Jit:
    """Capture `function` at its first call and replay it afterwards; see the module docstring.

    >>> from monolect import Tensor, jit
    >>> double = jit(lambda x: x * 2)
    >>> [double(Tensor([float(i)])).item() for i in range(3)]
    [0.0, 2.0, 4.0]
    """
    if not callable(function):
        raise JitError("jit takes a function", expected="a callable", found=type(function).__name__)
    return Jit(function)
