"""`@jit`: a step that runs as one native command buffer after its first calls.

The first call with a new signature runs the function and records what it ran; later calls with that signature replay
it. The signature holds the shapes, dtypes and devices of every Tensor argument, in any nesting of lists, tuples and
dicts (in the order of their sorted keys), and every other argument by value. Tensors the function assigns (parameters,
optimizer state, random state) are state: they are read and updated at each call. Results are fresh tensors.

What cannot be captured: reading values inside (`item`, `numpy`), which raises JitError at the user's line.
"""

from __future__ import annotations

import copy
import functools
import os
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, overload

from monolect.autograd.gradient import NO_GRAPH
from monolect.base.errors import CaptureWarning, JitError, user_line
from monolect.base.settings import settings
from monolect.capture.around import (
    refuse_shared,
    refuse_two_ways,
)
from monolect.capture.captured import Captured, call_key, given, look
from monolect.capture.donated import Donation, give_up
from monolect.capture.environment.bytecode import parameters
from monolect.capture.environment.dependencies import Reach
from monolect.capture.fast_path import MISS, usual_call
from monolect.capture.gradients import (
    as_buffer,
    is_found,
    refuse_both_gradients,
    refuse_twice,
)
from monolect.capture.recording import Recording
from monolect.capture.returned import results
from monolect.ir.uop import UOp, build
from monolect.runtime.buffer import base_of, part
from monolect.runtime.realize import execute
from monolect.runtime.replay.capture import NotKept, changes, steps, two_ways
from monolect.tensor import random as random_state
from monolect.tensor.copies import global_name
from monolect.tensor.deferred import keep_only, waiting
from monolect.tensor.tensor import Tensor, compute_pending
from monolect.tensor.tree import (
    flatten,
    is_in_order,
    unflatten,
)
from monolect.tensor.view import in_memory, root_of, target_of

MOST_CAPTURES = 64
MOST_AROUND = 8  # of them for the same arguments: each holds what was around it, Tensors included
ENOUGH_IN_A_ROW = 3  # captures without a replay, each of which changed what is around it: it will not end
UNCHANGING = "keep it in a Tensor that the step assigns, or pass it as an argument"
SHARING = "reads or shows a part of a tensor that is assigned between the calls, or shares its memory", "clone() it"
_new = object.__new__


class Jit:
    """A function and its captures, a bounded cache of them. `owner`: the instance, weakly, whose method it is.

    What a call runs stands in a slot: Python goes from the step to the usual call without a function in between, which
    would gather the arguments and hand them on (0.1 us).

    >>> step = jit(lambda x: x + 1)
    >>> [step(Tensor(rows)).shape for rows in ([1.0], [2.0], [1.0, 2.0])], len(step.captures)
    ([(1,), (1,), (2,)], 2)
    """

    __slots__ = ("__call__", "__dict__", "__weakref__")
    __call__: Callable[..., Any]  # one value: threads replace it at once

    def __init__(self, function: Callable[..., Any], owner: Callable[[], Any] | None = None, donate: Any = ()):
        self.function, self.owner = function, owner
        self.donation = Donation(function, donate, owner is not None)
        self.parameters = parameters(function)[owner is not None :]
        self.captures: OrderedDict[Any, Captured] = OrderedDict()  # by their keys
        self.variants: dict[Any, list[Captured]] = {}  # by the key of a call: they find other gradients
        self.n_changing = 0  # captures in a row that changed what is around them, or could not be replayed
        self.__call__ = self._general = _general(self)
        self.around = Reach(())  # looked for at the first call: much may come to stand around it until then
        self._methods: dict[int, Jit] = {}
        self._views: dict[int, Tensor] = {}  # that are arguments of the call, by identity of what the step gets instead
        self.is_general = False  # does the next call assign, or return arguments? Views among them matter
        self.keeps = False  # gradients that it updates with
        self.not_kept = NotKept(_asked(self))  # those of its replays
        code = getattr(function, "__code__", None)
        self.origin = (code.co_filename, code.co_firstlineno, "jit") if code is not None else ("", 0, "jit")
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method has captures of its own for each instance, for as long as that lives."""
        if instance is None:
            return self
        found = self._methods.get(id(instance))
        if found is None:
            key = id(instance)
            try:
                ref = weakref.ref(instance, lambda _: self._methods.pop(key, None))
            except TypeError:
                expected, name = "a class without __slots__, or with __weakref__ among them", type(instance).__name__
                raise JitError(
                    "a jitted method of an object that has no weak references", expected=expected, found=name
                ) from None
            found = self._methods[key] = Jit(self.function, ref, self.donation.names)
        return Method(found, instance)

    def __copy__(self) -> Jit:
        return Jit(self.function, self.owner, self.donation.names)

    def __deepcopy__(self, memo: dict[int, Any]) -> Jit:
        """A step of the copied function, without captures; itself where that is the same, as a plain function is."""
        function = copy.deepcopy(self.function, memo)
        return self if function is self.function else Jit(function, donate=self.donation.names)

    def __reduce__(self) -> str | tuple:
        return global_name(self) or (Jit, (self.function, None, self.donation.names))

    @property
    def usual(self) -> Callable[..., Any] | None:
        """What a call like the last one runs, when that was of Tensors alone; else None.

        >>> step = jit(lambda x: x + 1)
        >>> step.usual is None, step(Tensor([1.0])).item(), step(Tensor([2.0])).item(), step.usual is None
        (True, 2.0, 3.0, False)
        """
        return None if self.__call__ is self._general else self.__call__

    @property
    def peak_bytes(self) -> int:
        """Bytes that a call takes at most beside its arguments, state and constants: intermediates, each in memory that
        others use before and after its life, results, what is computed once, and what kernels have for themselves (all
        steps of a device share that). 0 before the first capture.

        >>> double = jit(lambda x: x * 2)
        >>> _ = double(Tensor([1.0, 2.0])).realize()
        >>> double.peak_bytes  # of the result, two float32
        8
        """
        return max((sum(c.capture.bytes_by_kind.values()) for c in self.captures.values()), default=0)

    def _result(self, u: UOp, origin: Any) -> Tensor:
        """A result. `origin`: of what the call made; what was there before keeps its own."""
        u.origin = origin or u.origin or self.origin
        if origin:  # also of the memory: views of the result are merged with one that it is
            base_of(u).origin = origin
        t: Any = _new(Tensor)
        t._uop = u
        t._grad = None
        t._requires_grad = False
        return t

    def _call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A call with arguments of any kind."""
        if changes.captures or changes.is_inside:  # part of a capture, or of what is traced or differentiated
            return self._plain()(*args, **kwargs)
        steps.wait()
        with steps.lock:
            return self._step(args, kwargs)

    def _step(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        found: list[Tensor] = []
        flatten((args, kwargs), found)
        if any(t._is_view for t in found):
            return self._with_views(args, kwargs, found)
        if not is_in_order((args, kwargs)):
            args, kwargs = unflatten((args, kwargs), iter(found), sort=True)
            found = []
            flatten((args, kwargs), found)
        tensors = list({id(t): t for t in found}.values())
        inputs = [t._uop for t in tensors]  # read once: another thread may assign meanwhile
        if not all(u.op == "BUFFER" and u.storage is not None for u in inputs):
            self._own_buffers(tensors, inputs)
            return self.__call__(*args, **kwargs)
        if is_new := not self.around.holds():
            self.around = self._reached()
        places: tuple[int, ...] = ()
        if len(tensors) != len(found):  # one tensor in several places
            places = tuple(next(i for i, t in enumerate(tensors) if t is f) for f in found)
        key = call_key(args, kwargs, self.around.key, places, self.around.named, self._steering())
        captured = self._known(key, tensors)
        if captured is None and not is_new:  # some of what it names may not have been there when it looked
            self.around = self._reached()
            key = call_key(args, kwargs, self.around.key, places, self.around.named, self._steering())
            captured = self._known(key, tensors)
        with_gradients = [*tensors, *(given(t, tensors)._grad for t in captured.brought)] if captured else tensors
        is_outdated = captured is not None and not self._fits(captured, with_gradients)
        if captured is not None and is_outdated:
            self._drop(captured)
            captured = None
        if captured is None:
            self._expect(None)
            back = self._capture(key, args, kwargs, tensors, inputs, is_outdated)
            self._give_up(args, kwargs, tensors, inputs)
            return back
        self.captures.move_to_end(captured.key)
        self.n_changing = 0
        refuse_two_ways(two_ways(with_gradients, captured.capture.assigned, captured.capture.read))
        read = [*captured.capture.read, *(ref() for ref, _ in captured.capture.woven)]
        refuse_shared(self._shared(with_gradients, captured.capture.assigned, read))
        refuse_both_gradients(self._shown(with_gradients), captured.looked)
        if len(with_gradients) > len(tensors):
            refuse_twice(with_gradients, captured.capture.assigned)
        self._expect(captured)
        found, looks = self._replayed(captured, inputs, with_gradients)
        self._give_up(args, kwargs, tensors, inputs)
        look(captured.checks, looks)
        return unflatten(captured.template, iter(found))

    def _replayed(
        self, captured: Captured, inputs: list[UOp], tensors: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The Tensors that a call returns, and its values for checks."""
        capture, origins = captured.capture, self._origins(captured)
        found: list[Tensor] = []
        looks: list[Tensor] = []

        def finish(outs: list[UOp]) -> None:
            whence = (origins[v.at] if v.source == "fresh" else None for v in capture.outputs)
            values = [self._result(u, o) for u, o in zip(outs, whence, strict=False)]
            looks.extend(values[len(values) - 2 * len(captured.checks) :])
            leaves = [*captured.leaves, *(leaf for _, leaf in captured.shared)]
            found.extend(results(leaves, values, functools.partial(given, tensors=self._shown(tensors))))
            for t, grad in zip(captured.graded, values[captured.n_values :], strict=False):
                given(t, tensors)._grad = grad
            for t, grad in zip((t for t, _ in captured.shared), found[len(captured.leaves) :], strict=True):
                given(t, tensors)._grad = grad
            del found[len(captured.leaves) :]
            for t in captured.cleared:
                given(t, tensors)._grad = None
            for t in captured.used_up:
                given(t, tensors)._grad = self.not_kept
            for t in captured.dropped:
                given(t, tensors)._grad = given(t, tensors)._grad.without()

        for g in tensors[len(inputs) :]:
            g._uop = as_buffer(g._uop)
        inputs += [g._uop for g in tensors[len(inputs) :]]  # no other list: who holds donated memory is counted
        addresses = [u.storage.address for u in inputs]
        states = random_state.states_of(capture.assigned)
        if not states:
            capture.replay(inputs, addresses, tensors, finish)
            return found, looks
        execute.running.wait()
        with execute.running.lock:  # no other thread draws in between
            random_state.settle(states)
            capture.replay(inputs, addresses, tensors, finish)
        return found, looks

    def _with_views(self, args: tuple, kwargs: dict[str, Any], found: list[Tensor]) -> Any:
        """A call with views as arguments: the step gets Tensors of the same memory, and what it assigns to these is
        written to the views.
        """
        given = {id(t): t for t in found}
        instead = {k: in_memory(t) if t._is_view else t for k, t in given.items()}
        before = {k: (t._uop, t._grad) for k, t in instead.items()}
        args, kwargs = unflatten((args, kwargs), iter([instead[id(t)] for t in found]))
        outer, self._views = self._views, {id(instead[k]): t for k, t in given.items()}
        try:
            back = self._general(*args, **kwargs) if self.is_general else self.__call__(*args, **kwargs)
        finally:
            self._views = outer
        for k, t in given.items():
            new = instead[k]
            if new is not t and not hasattr(type(new), "donated_at"):
                if new._grad is not before[k][1]:
                    t._grad = new._grad
                if new._uop is not before[k][0]:
                    t.assign(new)
        return back

    def _shown(self, tensors: list[Tensor]) -> list[Tensor]:
        """The arguments as they were given: the views among them."""
        return [self._views.get(id(t), t) for t in tensors]

    def _shared(
        self, tensors: list[Tensor], assigned: Iterable[int | Tensor], read: Iterable[Any] = ()
    ) -> list[Tensor]:
        """The arguments that share memory with what the step assigns: arguments, by number, and outside Tensors; or
        that it assigns, and that share memory with what it reads from outside.

        Raises ArgumentError for an assigned argument whose elements share memory.
        """
        if not self._views:
            return []
        roots = [id(root_of(t)) for t in self._shown(tensors)]
        outside = {id(t) for t in assigned if t.__class__ is not int}
        places = [t for t in assigned if t.__class__ is int]
        for i in places:
            target_of(self._views.get(id(tensors[i]), tensors[i]))
        written = {roots[i] for i in places}
        twice = {r for r in written if roots.count(r) > 1} | written.intersection(map(id, read))
        return [t for t, r in zip(tensors, roots, strict=True) if r in outside or r in twice]

    def _reached(self) -> Reach:
        return Reach((self.function, None if self.owner is None else self.owner()), self.around.named)

    def _steering(self) -> tuple:
        return settings.steering

    def _known(self, key: Any, tensors: list[Tensor]) -> Captured | None:
        """The capture of this call that finds the gradients which are there."""
        try:
            known = [c for c in self.variants.get(key, ()) if self.captures.get(c.key) is c]
        except TypeError:
            expected = "Tensors and hashable values"
            raise JitError("an argument of a jitted function cannot be compared", expected=expected) from None
        return next((c for c in known if all(is_found(given(t, tensors)._grad, g) for t, g in c.found)), None)

    def _keep(self, captured: Captured) -> None:
        self.captures[captured.key] = captured
        self.variants.setdefault(captured.spec.key, []).append(captured)

    def _drop(self, captured: Captured) -> None:
        del self.captures[captured.key]
        known = self.variants.pop(captured.spec.key)
        if left := [c for c in known if c is not captured]:
            self.variants[captured.spec.key] = left

    def _fits(self, captured: Captured, tensors: list[Tensor]) -> bool:
        """Whether what the capture saw around it, beside its key, is still so."""
        if captured.capture.woven:
            assigned = [tensors[i] for i in captured.capture.assigned if i.__class__ is int]
            if not captured.capture.is_current() or captured.capture.weaves(assigned):
                return False
        return not (captured.used_up and self.keeps)

    def _plain(self) -> Callable[..., Any]:
        """The function that is not jitted; of a method, bound."""
        return self.function if self.owner is None else self.function.__get__(self.owner())

    def _expect(self, captured: Captured | None) -> None:
        """The next call will be one of this capture."""
        call: Any = None
        if captured is not None and captured.flat:
            calls, around = captured.usual, self.around
            call = calls.get(around, MISS)
            if call is MISS:
                call = usual_call(captured, around, self._origins(captured), self._general, self.not_kept)
                calls.clear()
                calls[around] = call
        self.is_general = captured is None or bool(captured.capture.assigned) or captured.shows_arguments
        self.__call__ = self._general if call is None else call
        if self.keeps and captured is not None and captured.used_up:  # asked for meanwhile, by another thread
            self.__call__ = self._general

    def _keep_gradients(self) -> None:
        """From the next call on, keep the gradients that the step updates with: somebody reads them."""
        if not self.keeps:
            self.keeps = True
            self.__call__ = self._general

    def _origins(self, captured: Captured) -> list[tuple]:
        """Where what the capture makes is said to come from."""
        return [self._origin(k in captured.lost) for k in range(len(captured.capture.made))]

    def _origin(self, is_lost: bool) -> tuple:
        return (*self.origin[:2], NO_GRAPH) if is_lost else self.origin

    def _bounded(self, key: Any, name: str | None, is_outdated: bool) -> None:
        """After a capture, whose run changed `name`: drop old ones, and warn when there will be no end to them.
        `is_outdated`: it replaced one of the same call.
        """
        alike = [k for k in self.captures if (k[:2], k[3]) == (key[:2], key[3])]
        old = alike[:-MOST_AROUND] or [*self.captures][: len(self.captures) > MOST_CAPTURES]
        for k in old:
            self._drop(self.captures[k])
        self.n_changing = self.n_changing + 1 if name is not None or is_outdated else 0
        if self.n_changing == ENOUGH_IN_A_ROW:
            what, mend = SHARING if name is None else (f"changes {name!r}, which it reads", UNCHANGING)
            told = f"a jitted step {what}: it is captured again at each call ({mend})"
            warnings.warn_explicit(told, CaptureWarning, *user_line())

    def _give_up(self, args: tuple, kwargs: dict[str, Any], tensors: list[Tensor], before: list[UOp]) -> None:
        """Donated arguments are not to be used any more, but for those that the step assigned."""
        if self.donation.arguments:
            same = {id(t) for t, u in zip(tensors, before, strict=False) if t._uop is u}
            for t in self.donation.tensors(args, kwargs):
                if id(t) in same:
                    give_up(t)

    def _own_buffers(self, tensors: list[Tensor], nodes: list[UOp]) -> None:
        """Every argument as a BUFFER with storage: a view as a part of memory, where it is one, else copied.

        A part shares memory with its base, and with views that overlap it. None of them is ever written to while
        another one lives: state in place, donated memory and results that are kept ask who else holds it.
        """
        for t, old, u in zip(tensors, nodes, execute.realize(nodes), strict=True):
            if u.op != "BUFFER":
                u = part(u) or execute.realize([build("CONTIGUOUS", u)])[0]
            if t._uop is old:  # otherwise another thread has assigned to it since
                t._uop = u

    def _capture(
        self, key: Any, args: Any, kwargs: Any, tensors: list[Tensor], nodes: list[UOp], is_outdated: bool
    ) -> Any:
        """Run the function and record it. Where that fails all is as it was before the call. `is_outdated`: a capture
        of the same call could not be replayed.
        """
        compute_pending()  # it is no part of the step
        arguments = [(t, (u, t._grad, t._requires_grad)) for t, u in zip(tensors, nodes, strict=True)]
        put_back, early = random_state.snapshot(), waiting()
        with changes.seen() as seen:
            try:
                back, captured = Recording(self, key, args, kwargs, tensors, nodes).run()
            except BaseException:
                for t, (node, grad, is_leaf) in (*seen.before.alive(), *arguments):
                    t._grad = grad
                    if t._requires_grad is not is_leaf:
                        t.requires_grad = is_leaf
                    if not t._is_view:
                        t.uop = node
                put_back()
                keep_only(early)
                raise
        name = None if self.around.holds() else self.around.changed(self._reached())
        if captured is not None and name is None:  # a replay would not change it
            self._keep(captured)
        self._bounded(key, name, is_outdated)
        return back

    def save(self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor] | None = None) -> None:
        """Write the captures of this step, for what is around it now, to the file `path`; `jit.load` reads it.

        What the step reads and updates is written with it; `tensors` (as from `model.state_dict()`) gives names.
        Raises JitError before the first call, for arguments and results that are not plain values, and for kernels that
        `jit.load` could not prove; DeviceError on other devices than `cpu` and `c`.

        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "double.step")
        >>> double = jit(lambda x: x * 2)
        >>> double(Tensor([1.0])).item()
        2.0
        >>> double.save(path)
        >>> os.path.getsize(path) > 0
        True
        """
        import_module("monolect.capture.saved").save(self, path, tensors or {})

    def export(self, folder: str | os.PathLike[str], **options: Any) -> None:
        """Write this step as a program without monolect to the new folder `folder`: C, or WebAssembly.

        The folder has `model.c` and `model.h` with `model_init` and `model_step`, a file of weights if there are any, a
        Makefile and a program that reads inputs from files. Options: `target`, "c" or "wasm"; `march`, the processor
        that C is compiled for, as compilers name it, or "native"; `threads`; `weights`, "file" or "array"; `name`, in
        place of "model"; `tensors`, names as for `save`; `capture`, the number of one where there are several.

        Raises ExportError for a step that needs more than kernels of one processor, ArgumentError for options.

        >>> import tempfile
        >>> double = jit(lambda x: x * 2)
        >>> double(Tensor([1.0])).item()
        2.0
        >>> double.export(os.path.join(folder := tempfile.mkdtemp(), "double"))
        >>> sorted(os.listdir(os.path.join(folder, "double")))
        ['Makefile', 'main.c', 'model.c', 'model.h']
        """
        import_module("monolect.export.write").export(self, folder, **options)


def _general(step: Jit) -> Callable[..., Any]:
    """What a call that is not the usual one runs. It holds the step weakly, as it stands in the step's own slot: a
    cycle is not gone when it is dropped. Who holds the call alone, as `step.__call__`, calls a new step.
    """
    function, owner, names, me = step.function, step.owner, step.donation.names, weakref.ref(step)

    def __call__(*args: Any, **kwargs: Any) -> Any:
        given = tuple(a for a in args if a is not MISS)
        return (me() or Jit(function, owner, names))._call(given, kwargs)

    return __call__


def _asked(step: Jit) -> Callable[[], None]:
    """Tells the step, if it still lives, that somebody reads a gradient which it updates with."""
    me = weakref.ref(step)

    def asked() -> None:
        if (found := me()) is not None:
            found._keep_gradients()

    return asked


class Method:
    """A jitted method of an instance, as Python's own bound methods are."""

    __slots__ = ("__self__", "jit")

    def __init__(self, jit: Jit, instance: Any):
        self.jit, self.__self__ = jit, instance

    def __copy__(self) -> Method:
        return Method(self.jit, self.__self__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Method:
        instance = copy.deepcopy(self.__self__, memo)
        return Method(Jit(self.jit.function, weakref.ref(instance), self.jit.donation.names), instance)

    def __reduce__(self) -> tuple:
        return getattr, (self.__self__, self.jit.function.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.jit(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.jit, name)


class Decorator:
    """`jit`: capture a function at its first call and replay it afterwards; see the module docstring.

    >>> from monolect import Tensor, jit
    >>> double = jit(lambda x: x * 2)
    >>> [double(Tensor([float(i)])).item() for i in range(3)]
    [0.0, 2.0, 4.0]
    """

    @overload
    def __call__(self, function: Callable[..., Any], *, donate: Any = ()) -> Jit: ...
    @overload
    def __call__(self, *, donate: Any = ()) -> Callable[[Callable[..., Any]], Jit]: ...
    def __call__(self, function: Any = None, *, donate: Any = ()) -> Any:
        """The function as a step; without one, a decorator.

        `donate` names arguments, or gives their places: results may be written over their memory, and using such a
        tensor after the call raises JitError. Raises JitError for what is not callable, ArgumentError for arguments
        that the function lacks.
        """
        if function is None:
            return lambda f: self(f, donate=donate)
        if not callable(function):
            raise JitError("jit takes a function", expected="a callable", found=type(function).__name__)
        return Jit(function, donate=donate)

    @staticmethod
    def load(
        path: str | os.PathLike[str], tensors: Mapping[str, Tensor] | None = None, *, device: str | None = None
    ) -> Any:
        """The step that `step.save` wrote to `path`: it runs without tracing or scheduling.

        What it reads and updates are tensors of its own, `step.tensors` by name; `tensors` gives some of them instead,
        such as those of a model. `device`: `cpu` or `c`, in place of the one it was saved on. Draws of random numbers
        go on from this process's state. A file may come from anybody: it holds no code, and its kernels are verified
        and proven. Programs come from the user's cache, or are compiled.

        Raises FileFormatError, ParseError or VerifyError for a file that is damaged, not whole, of another version, or
        could touch memory that is not its own; DeviceError for devices other than `cpu` and `c`; ArgumentError for
        tensors that do not fit. A call raises JitError for arguments of a kind that the step had not met when it was
        saved.

        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "double.step")
        >>> double = jit(lambda x: x * 2)
        >>> double(Tensor([1.0])).item()
        2.0
        >>> double.save(path)
        >>> jit.load(path)(Tensor([4.0])).item()
        8.0
        """
        return import_module("monolect.capture.saved").load(path, tensors, device)


jit = Decorator()
