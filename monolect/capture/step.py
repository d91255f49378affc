"""Capture a step (a function whose kernels are recorded) and replay it as one native command buffer (`@jit`).

The first call with a new signature runs the function and records the kernels that it ran. Later calls with that
signature replay the kernels. The signature holds the shapes, dtypes and devices of every Tensor argument, in any
nesting of lists, tuples and dicts (in the order of their sorted keys), and every other argument by value. Tensors that
the function assigns (parameters, optimizer state, random state) are state: they are read and updated at each call.
Results are new Tensors.

A function that reads values (`item`, `numpy`) cannot be captured: reading raises JitError at the user's line.
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
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack, overload

from monolect.autograd.gradient import NO_GRAPH
from monolect.base.errors import CaptureWarning, JitError, user_line
from monolect.base.settings import settings
from monolect.capture.around import (
    refuse_aliased,
    refuse_external_arguments,
    undone_on_failure,
)
from monolect.capture.captured import Captured, call_key, resolve, run_checks
from monolect.capture.donated import Donation, invalidate
from monolect.capture.environment.bytecode import parameters
from monolect.capture.environment.dependencies import Dependencies
from monolect.capture.fast_path import MISSING, build_fast_path
from monolect.capture.gradients import (
    as_buffer,
    matches_state,
    refuse_ambiguous_gradients,
    refuse_duplicates,
)
from monolect.capture.recording import Recording
from monolect.capture.returned import rebuild_results
from monolect.ir.uop import UOp, build
from monolect.runtime.buffer import base_of, contiguous_part
from monolect.runtime.realize import execute
from monolect.runtime.replay.capture import aliased_arguments
from monolect.runtime.replay.in_progress import NotKept, changes, restore, steps
from monolect.tensor import random as random_state
from monolect.tensor.copies import global_name
from monolect.tensor.state.deferred import all_deferred, forget_others
from monolect.tensor.state.hooks import refuse_hooks
from monolect.tensor.tensor import Tensor, compute_pending
from monolect.tensor.tree import (
    flatten,
    has_sorted_keys,
    unflatten,
)
from monolect.tensor.view import in_memory, root_of, target_of

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
Donate: TypeAlias = str | int | Iterable[str | int]  # names or positions of arguments

MAX_CAPTURES = 64  # per step; the oldest capture is dropped beyond it
MAX_ENVIRONMENTS = 8  # captures of equal arguments; each keeps its environment alive, Tensors included
MAX_RECAPTURES = 3  # captures in a row without a replay; the step then warns
ADVICE_CHANGING = "keep it in a Tensor that the step assigns, or pass it as an argument"
SHARING_STATE = (
    "reads or shows a part of a tensor that is assigned between the calls, or shares its memory",
    "clone() it",
)
_new = object.__new__

if TYPE_CHECKING:

    class ExportOptions(TypedDict, total=False):
        """Types of the options of `Jit.export`, whose docstring explains them."""

        target: str
        march: str
        threads: int
        weights: str
        name: str
        tensors: Mapping[str, Tensor]
        capture: int


class Jit(Generic[P, R]):
    """A function with captures: recorded runs that later calls replay. The cache of captures is bounded.

    `function`: the user's function. `owner`: weak reference to the instance, for a method. `donate`: arguments whose
    memory results may take. The code of a call is in the slot `__call__`: Python calls the fast path without a function
    in between, which would pack and unpack the arguments (0.1 us).

    >>> step = jit(lambda x: x + 1)
    >>> [step(Tensor(rows)).shape for rows in ([1.0], [2.0], [1.0, 2.0])], len(step.captures)
    ([(1,), (1,), (2,)], 2)
    """

    __slots__ = ("__call__", "__dict__", "__weakref__")
    __call__: Callable[P, R]  # one value, so that threads replace it atomically

    def __init__(
        self, function: Callable[P, R], owner: Callable[[], object] | None = None, donate: Donate = ()
    ) -> None:
        functools.update_wrapper(self, function)  # first: attributes of the function do not replace those below
        self.function, self.owner = function, owner
        self.donation = Donation(function, donate, owner is not None)
        self.parameters = parameters(function)[owner is not None :]
        self.captures: OrderedDict[Any, Captured] = OrderedDict()  # by their keys
        self.variants: dict[Any, list[Captured]] = {}  # captures of calls with this key, which find other gradients
        self.n_recaptures = 0  # captures in a row that changed their environment, or replaced an outdated one
        self.__call__ = self._general = _general(self)
        self.environment = Dependencies(())  # found at the first call: globals may be defined until then
        self._methods: dict[int, Jit] = {}
        self._views: dict[int, Tensor] = {}  # views given to the current call, by id of the Tensor that replaces each
        self.needs_general_call = False  # views go to the general call, which writes to them or returns them
        self.keeps_gradients = False  # does it store gradients that it uses for updates only?
        self.not_kept = NotKept(_gradient_read_hook(self))  # marker on Tensors whose gradient a replay did not store
        code = getattr(function, "__code__", None)
        self.origin = (code.co_filename, code.co_firstlineno, "jit") if code is not None else ("", 0, "jit")

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Jit[P, R]: ...
    @overload
    def __get__(self: Jit[Concatenate[Any, Q], R], instance: object, owner: Any = None) -> Method[Q, R]: ...
    def __get__(self, instance: object, owner: Any = None) -> Any:
        """Return the step as a method of `instance`; the method has its own captures, which live as long as the
        instance.

        `owner`: the class of the instance, not used. Without an instance, returns this Jit. Raises JitError if
        `instance` allows no weak references.
        """
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
        """Return a new Jit of a deep copy of the user's function, without captures; return this Jit itself if copying
        gives the same function.
        """
        function = copy.deepcopy(self.function, memo)
        return self if function is self.function else Jit(function, donate=self.donation.names)

    def __reduce__(self) -> str | tuple:
        return global_name(self) or (Jit, (self.function, None, self.donation.names))

    @property
    def usual(self) -> Callable[..., Any] | None:
        """The fast path (generated code for one capture) that the next call runs, or None if it runs the general call,
        which serves any call.

        >>> step = jit(lambda x: x + 1)
        >>> step.usual is None, step(Tensor([1.0])).item(), step(Tensor([2.0])).item(), step.usual is None
        (True, 2.0, 3.0, False)
        """
        return None if self.__call__ is self._general else self.__call__

    @property
    def peak_bytes(self) -> int:
        """Greatest number of bytes that a call of one of the captures takes, without its arguments, state and
        constants; 0 before the first capture.

        They are the bytes of intermediates, results, values that are computed once, and memory that is private to
        kernels. Intermediates share memory with others before and after their lifetime. All steps of a device share the
        memory of kernels.

        >>> double = jit(lambda x: x * 2)
        >>> _ = double(Tensor([1.0, 2.0])).realize()
        >>> double.peak_bytes  # of the result, two float32
        8
        """
        return max((sum(c.capture.bytes_by_kind.values()) for c in self.captures.values()), default=0)

    def _result(self, u: UOp, origin: Any) -> Tensor:
        """Return a new Tensor with the node `u`. `origin`: the origin of a node with new memory; None for an existing
        node, which keeps its own.
        """
        u.origin = origin or u.origin or self.origin
        if origin:  # also of the memory: a view of the result takes the origin of its BUFFER
            base_of(u).origin = origin
        t: Any = _new(Tensor)
        t._uop = u
        t._grad = None
        t._requires_grad = False
        return t

    def _call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run the general call with the arguments `args` and `kwargs`, and return its results.

        Inside of another capture, a trace or a derivative, the user's function runs without a capture of its own.
        """
        if changes.captures:  # the call is part of another capture or trace
            with undone_on_failure():
                return self._unjitted()(*args, **kwargs)
        if changes.is_inside:  # of a derivative
            return self._unjitted()(*args, **kwargs)
        steps.wait()
        with steps.lock:
            return self._step(args, kwargs)

    def _step(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Find the capture for the arguments `args` and `kwargs` and replay it, or make a new one; return the results.
        The caller holds `steps.lock`.
        """
        found: list[Tensor] = []
        flatten((args, kwargs), found)
        if any(t._is_view for t in found):
            return self._with_views(args, kwargs, found)
        if not has_sorted_keys((args, kwargs)):
            args, kwargs = unflatten((args, kwargs), iter(found), sort=True)
            found = []
            flatten((args, kwargs), found)
        tensors = list({id(t): t for t in found}.values())
        refuse_hooks(tensors)
        if len(late := [t for t in tensors if t._is_delayed]) == 1:  # its program may be known
            late[0]._value()
            return self.__call__(*args, **kwargs)
        inputs = [t._uop for t in tensors]  # read once: another thread may assign meanwhile
        if not all(u.op == "BUFFER" and u.storage is not None for u in inputs):
            self._ensure_buffers(tensors, inputs)
            return self.__call__(*args, **kwargs)
        if is_new := not self.environment.holds():
            self.environment = self._find_dependencies()
        positions: tuple[int, ...] = ()
        if len(tensors) != len(found):  # a Tensor occurs twice
            positions = tuple(next(i for i, t in enumerate(tensors) if t is f) for f in found)
        key = call_key(args, kwargs, self.environment.key, positions, self.environment.attributes, self._steering())
        captured = self._find_capture(key, tensors)
        if captured is None and not is_new:  # a name may be defined only since the dependencies were found
            self.environment = self._find_dependencies()
            key = call_key(args, kwargs, self.environment.key, positions, self.environment.attributes, self._steering())
            captured = self._find_capture(key, tensors)
        with_gradients = (
            [*tensors, *(resolve(t, tensors)._grad for t in captured.supplied_gradients)] if captured else tensors
        )
        is_outdated = captured is not None and not self._is_valid(captured, with_gradients)
        if captured is not None and is_outdated:
            self._drop_capture(captured)
            captured = None
        if captured is None:
            self._choose_call(None)
            back = self._capture(key, args, kwargs, tensors, inputs, is_outdated)
            self._invalidate_donated(args, kwargs, tensors, inputs)
            return back
        self.captures.move_to_end(captured.key)
        self.n_recaptures = 0
        refuse_external_arguments(aliased_arguments(with_gradients, captured.capture.assigned, captured.capture.read))
        read = [*captured.capture.read, *(ref() for ref, _ in captured.capture.baked_in)]
        refuse_aliased(self._aliased_arguments(with_gradients, captured.capture.assigned, read))
        refuse_ambiguous_gradients(self._as_given(with_gradients), captured.gradient_owners)
        if len(with_gradients) > len(tensors):
            refuse_duplicates(with_gradients, captured.capture.assigned)
        self._choose_call(captured)
        found, check_values = self._replayed(captured, inputs, with_gradients)
        self._invalidate_donated(args, kwargs, tensors, inputs)
        run_checks(captured.checks, check_values)
        return unflatten(captured.template, iter(found))

    def _replayed(
        self, captured: Captured, inputs: list[UOp], tensors: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Replay `captured` on the nodes `inputs` of the arguments `tensors` (supplied gradients are last).

        Returns (Tensors of the results, Tensors with the least and greatest index of each index check).
        """
        capture, origins = captured.capture, self._origins(captured)
        found: list[Tensor] = []
        check_values: list[Tensor] = []

        def finish(outs: list[UOp]) -> None:
            result_origins = (None if (k := v.made_at) is None else origins[k] for v in capture.outputs)
            values = [self._result(u, o) for u, o in zip(outs, result_origins, strict=False)]
            check_values.extend(values[len(values) - 2 * len(captured.checks) :])
            leaves = [*captured.leaves, *(leaf for _, leaf in captured.aliased_gradients)]
            found.extend(rebuild_results(leaves, values, functools.partial(resolve, tensors=self._as_given(tensors))))
            for t, grad in zip(captured.gradient_targets, values[captured.n_values :], strict=False):
                resolve(t, tensors)._grad = grad
            for t, grad in zip((t for t, _ in captured.aliased_gradients), found[len(captured.leaves) :], strict=True):
                resolve(t, tensors)._grad = grad
            del found[len(captured.leaves) :]
            for t in captured.cleared:
                resolve(t, tensors)._grad = None
            for t in captured.consumed:
                resolve(t, tensors)._grad = self.not_kept
            for t in captured.dropped:
                resolve(t, tensors)._grad = resolve(t, tensors)._grad.without()

        for g in tensors[len(inputs) :]:
            g._uop = as_buffer(g._uop)
        inputs += [g._uop for g in tensors[len(inputs) :]]  # no new list: holders of donated memory are counted
        states = random_state.states_of(capture.assigned)
        if not states:
            capture.replay(inputs, tensors, finish)
            return found, check_values
        execute.running.wait()
        with execute.running.lock:  # no other thread draws random numbers in between
            random_state.settle(states)
            capture.replay(inputs, tensors, finish)
        return found, check_values

    def _with_views(self, args: tuple, kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        """Call the step with the arguments `args` and `kwargs`, but with each view in them replaced by a Tensor of the
        same memory; return its results.

        `tensors`: the Tensors in the arguments. If the step assigns to a Tensor that replaces a view, the new value is
        then written to the view.
        """
        given = {id(t): t for t in tensors}
        instead = {k: in_memory(t) if t._is_view else t for k, t in given.items()}
        before = {k: (t._uop, t._grad) for k, t in instead.items()}
        args, kwargs = unflatten((args, kwargs), iter([instead[id(t)] for t in tensors]))
        outer, self._views = self._views, {id(instead[k]): t for k, t in given.items()}
        try:
            back = self._general(*args, **kwargs) if self.needs_general_call else self.__call__(*args, **kwargs)
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

    def _as_given(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return `tensors` with each Tensor that replaced a view replaced by this view, as the caller passed it."""
        return [self._views.get(id(t), t) for t in tensors]

    def _aliased_arguments(
        self, tensors: list[Tensor], assigned: Iterable[int | Tensor], read: Iterable[Any] = ()
    ) -> list[Tensor]:
        """Return the arguments among `tensors` that share memory with a Tensor that the step assigns.

        Also return the arguments that the step assigns and that share memory with an external Tensor in `read`.
        `assigned`: positions of arguments, and external Tensors. Raises ArgumentError for an assigned view whose
        elements share memory.
        """
        if not self._views:
            return []
        roots = [id(root_of(t)) for t in self._as_given(tensors)]
        outside = {id(t) for t in assigned if t.__class__ is not int}
        positions = [t for t in assigned if t.__class__ is int]
        for i in positions:
            target_of(self._views.get(id(tensors[i]), tensors[i]))
        written = {roots[i] for i in positions}
        twice = {r for r in written if roots.count(r) > 1} | written.intersection(map(id, read))
        return [t for t, r in zip(tensors, roots, strict=True) if r in outside or r in twice]

    def _find_dependencies(self) -> Dependencies:
        return Dependencies((self.function, None if self.owner is None else self.owner()), self.environment.attributes)

    def _steering(self) -> tuple:
        return settings.steering

    def _find_capture(self, key: Any, tensors: list[Tensor]) -> Captured | None:
        """Return the capture for calls with the key `key` that fits the present gradients of the Tensors, or None; then
        the step is captured.

        `tensors`: the Tensors in the arguments. Raises JitError for arguments that have no hash.
        """
        try:
            known = [c for c in self.variants.get(key, ()) if self.captures.get(c.key) is c]
        except TypeError:
            expected = "Tensors and hashable values"
            raise JitError("an argument of a jitted function cannot be compared", expected=expected) from None
        return next(
            (c for c in known if all(matches_state(resolve(t, tensors)._grad, g) for t, g in c.initial_gradients)), None
        )

    def _add_capture(self, captured: Captured) -> None:
        self.captures[captured.key] = captured
        self.variants.setdefault(captured.spec.key, []).append(captured)

    def _drop_capture(self, captured: Captured) -> None:
        del self.captures[captured.key]
        known = self.variants.pop(captured.spec.key)
        if left := [c for c in known if c is not captured]:
            self.variants[captured.spec.key] = left

    def _is_valid(self, captured: Captured, tensors: list[Tensor]) -> bool:
        """Whether `captured`, which was found by its key, may be replayed with the arguments `tensors`.

        Its baked-in Tensors (whose nodes are part of its kernels) must be unchanged and not be assigned by the call. It
        must store all gradients that were read after earlier calls.
        """
        if captured.capture.baked_in:
            assigned = [tensors[i] for i in captured.capture.assigned if i.__class__ is int]
            if not captured.capture.is_current() or captured.capture.bakes_in(assigned):
                return False
        return not (captured.consumed and self.keeps_gradients)

    def _unjitted(self) -> Callable[..., Any]:
        """Return the user's function itself, which runs without a capture; bound to the instance, for a method."""
        return self.function if self.owner is None else self.function.__get__(self.owner())

    def _choose_call(self, captured: Captured | None) -> None:
        """Set the code that the next call runs: the fast path of `captured` if it has one, else the general call; the
        general call also for None.
        """
        call: Any = None
        if captured is not None and captured.flat:
            calls, environment = captured.fast_paths, self.environment
            call = calls.get(environment, MISSING)
            if call is MISSING:
                call = build_fast_path(captured, environment, self._origins(captured), self._general, self.not_kept)
                calls.clear()
                calls[environment] = call
        self.needs_general_call = captured is None or bool(captured.capture.assigned) or captured.aliases_arguments
        self.__call__ = self._general if call is None else call
        if self.keeps_gradients and captured is not None and captured.consumed:  # another thread read one meanwhile
            self.__call__ = self._general

    def _keep_gradients(self) -> None:
        """Make the step, from the next call on, also store the gradients that it uses only for updates. It is called
        when such a gradient is read.
        """
        if not self.keeps_gradients:
            self.keeps_gradients = True
            self.__call__ = self._general

    def _origins(self, captured: Captured) -> list[tuple]:
        """Return the origin (file, line, note) of each result with new memory in `captured`, which error messages name.

        The note tells whether an unjitted call would have given the result a graph.
        """
        return [self._origin(k in captured.without_graph) for k in range(len(captured.capture.made))]

    def _origin(self, is_lost: bool) -> tuple:
        return (*self.origin[:2], NO_GRAPH) if is_lost else self.origin

    def _trim_cache(self, key: Any, name: str | None, is_outdated: bool) -> None:
        """Drop old captures after a new one with the key `key` was added, and warn if the step is captured again at
        each call.

        `name`: name of a dependency that the run of the function changed, or None; it is used only in the warning.
        `is_outdated`: the new capture replaced one for the same call.
        """
        alike = [k for k in self.captures if (k[:2], k[3]) == (key[:2], key[3])]
        old = alike[:-MAX_ENVIRONMENTS] or [*self.captures][: len(self.captures) > MAX_CAPTURES]
        for k in old:
            self._drop_capture(self.captures[k])
        self.n_recaptures = self.n_recaptures + 1 if name is not None or is_outdated else 0
        if self.n_recaptures == MAX_RECAPTURES:
            what, advice = SHARING_STATE if name is None else (f"changes {name!r}, which it reads", ADVICE_CHANGING)
            message = f"a jitted step {what}: it is captured again at each call ({advice})"
            warnings.warn_explicit(message, CaptureWarning, *user_line())

    def _invalidate_donated(
        self, args: tuple, kwargs: dict[str, Any], tensors: list[Tensor], before: list[UOp]
    ) -> None:
        """Invalidate the donated Tensors in the arguments `args` and `kwargs`, except those that the step assigned.

        `before`: nodes of `tensors`, the Tensors in the arguments, before the run.
        """
        if self.donation.arguments:
            same = {id(t) for t, u in zip(tensors, before, strict=False) if t._uop is u}
            for t in self.donation.tensors(args, kwargs):
                if id(t) in same:
                    invalidate(t)

    def _ensure_buffers(self, tensors: list[Tensor], nodes: list[UOp]) -> None:
        """Compute each of `tensors`, whose nodes are `nodes`, into a BUFFER with memory.

        A view becomes a part of its base's memory if possible, else a copy. A part shares memory with its base and with
        views that overlap it. No replay writes to such memory while another BUFFER of it is alive: state in place,
        donated memory and recycled results count the holders first.
        """
        for t, old, u in zip(tensors, nodes, execute.realize(nodes), strict=True):
            if u.op != "BUFFER":
                u = contiguous_part(u) or execute.realize([build("CONTIGUOUS", u)])[0]
            t._take_memory(old, u)

    def _capture(
        self, key: Any, args: Any, kwargs: Any, tensors: list[Tensor], nodes: list[UOp], is_outdated: bool
    ) -> Any:
        """Run the function with the arguments `args` and `kwargs`, record the run as a capture, and return its results.
        If that raises, everything is restored as before.

        `key`: the key of the call. `tensors`: the Tensors in the arguments, with their `nodes`. `is_outdated`: a
        capture of the same call exists and could not be replayed.
        """
        compute_pending()  # pending values are not part of the step
        arguments = [(t, (u, t._grad, t._requires_grad)) for t, u in zip(tensors, nodes, strict=True)]
        put_back, early = random_state.snapshot(), all_deferred()
        with changes.seen() as seen:
            try:
                back, captured = Recording(self, key, args, kwargs, tensors, nodes).run()
            except BaseException:
                for t, state in (*seen.before.alive(), *arguments):
                    restore(t, *state)
                put_back()
                forget_others(early)
                raise
        name = None if self.environment.holds() else self.environment.changed(self._find_dependencies())
        if captured is not None and name is None:  # the run changed no dependency, as a replay changes none
            self._add_capture(captured)
        self._trim_cache(key, name, is_outdated)
        return back

    def save(self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor] | None = None) -> None:
        """Write the captures of this step that fit its current environment (the values that its function depends on) to
        the file `path`; `jit.load` reads it.

        The tensors that the step reads and updates are written too; `tensors` (as from `model.state_dict()`) maps names
        to them. Raises JitError before the first call, for arguments and results that are not plain values, and for
        kernels that `jit.load` could not prove; DeviceError on other devices than `cpu` and `c`.

        >>> import tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "double.step")
        >>> double = jit(lambda x: x * 2)
        >>> double(Tensor([1.0])).item()
        2.0
        >>> double.save(path)
        >>> os.path.getsize(path) > 0
        True
        """
        from monolect.capture.files.saved import save  # imported only to save

        save(self, path, tensors or {})

    def export(self, folder: str | os.PathLike[str], **options: Unpack[ExportOptions]) -> None:
        """Write this step as a program without monolect to the new folder `folder`: C, or WebAssembly.

        The folder has `model.c` and `model.h` with `model_init` and `model_step`, a file of weights if there are any, a
        Makefile and a program that reads inputs from files. Options: `target`, "c" or "wasm"; `march`, the processor
        that C is compiled for, as compilers name it, or "native"; `threads`; `weights`, "file" or "array"; `name`,
        instead of "model"; `tensors`, names as for `save`; `capture`, the number of a capture if there are several.

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
    """Return the general call of `step`: a function that accepts any arguments and calls the step.

    The function holds the step weakly, because the step's own slot holds the function, and a cycle would not be freed
    at once. If only the function is held, as `step.__call__`, it calls a new step.
    """
    function, owner, names, me = step.function, step.owner, step.donation.names, weakref.ref(step)

    def __call__(*args: Any, **kwargs: Any) -> Any:
        given = tuple(a for a in args if a is not MISSING)
        return (me() or Jit(function, owner, names))._call(given, kwargs)

    return __call__


def _gradient_read_hook(step: Jit) -> Callable[[], None]:
    """Return a function without arguments that calls `step._keep_gradients`, if the step is alive.

    It is called when code reads a gradient that was not stored. It holds the step weakly.
    """
    me = weakref.ref(step)

    def notify() -> None:
        if (found := me()) is not None:
            found._keep_gradients()

    return notify


class Method(Generic[P, R]):
    """A jitted method together with its instance, like Python's own bound methods.
    `jit`: the Jit that has the captures of this instance. A call passes its arguments on to `jit`.
    """

    __slots__ = ("__self__", "jit")

    def __init__(self, jit: Jit[..., R], instance: object) -> None:
        self.jit, self.__self__ = jit, instance

    def __copy__(self) -> Method:
        return Method(self.jit, self.__self__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Method:
        instance = copy.deepcopy(self.__self__, memo)
        return Method(Jit(self.jit.function, weakref.ref(instance), self.jit.donation.names), instance)

    def __reduce__(self) -> tuple:
        return getattr, (self.__self__, self.jit.function.__name__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.jit(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.jit, name)


__all__ = ["Jit", "Method"]
