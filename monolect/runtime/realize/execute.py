"""Realize values: compute a batch of UOps into buffers.

`realize` callifies the batch, takes its plan from the cache or makes it (schedule, compile, memory plan, command
buffer), binds memory and runs it. A plan is stateless: replay runs it again on other buffers.

Invariant: no result is visible before the whole batch ran; a failed batch leaves every tensor as it was. All threads
share plans, command buffers and arenas, so a thread holds `running` while it compiles, binds or launches.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from monolect.backend.base import Preparing
from monolect.backend.registry import Device, is_here, is_on_disk
from monolect.base.errors import AllocationError, InternalError, IRError, JitError
from monolect.base.settings import settings
from monolect.command.forms import SHARED_ARENA, buffer_bytes, home
from monolect.ir.placement import device, engine
from monolect.ir.uop import UOp, new_buffer, new_buffer_like, node, substitute, toposort
from monolect.runtime import profile
from monolect.runtime.binding import bound_all, concrete, value_of
from monolect.runtime.buffer import VIEWS, base_of, from_numpy, is_realized, one_device, to_numpy, with_storage
from monolect.runtime.realize.held import note_stored, to_store
from monolect.runtime.realize.locks import running
from monolect.runtime.realize.varied import Inputs, is_likely, note_inputs, with_inputs
from monolect.schedule.callify import callify, independent, over_params, resolve_functions, structure

if TYPE_CHECKING:
    from monolect.runtime.realize.encode import Plan

MAX_PLANS = 1024  # plans in `plans`; beyond it the least recently used one is dropped


class Run(NamedTuple):
    """One execution of a plan, as a capture records it: the plan and the memory that it read and wrote.

    `inputs` and `fresh`, the new BUFFERs, are on one device each; `read` and `made` have the BUFFERs on several devices
    that they are parts of instead.
    """

    plan: Plan
    inputs: tuple[UOp, ...]
    fresh: tuple[UOp, ...]
    read: tuple[UOp, ...]
    made: tuple[UOp, ...]


plans: OrderedDict[tuple, Plan] = OrderedDict()  # by (structure or function of the batch, device, settings)
# (key, order of BUFFERs) of a batch whose FUNCTIONs are inlined, by its own key and the settings
_inlined: OrderedDict[tuple, tuple[Any, list[int]]] = OrderedDict()
placeholders: weakref.WeakSet[UOp] = weakref.WeakSet()  # BUFFERs without values, for Tensors of a traced function


class _Listeners(threading.local):
    """The lists of runs of the captures in progress in this thread; each run of this thread is appended to all of
    them.
    """

    def __init__(self) -> None:
        self.captures: list[list[Run]] = []
        self.see: Callable[[list[UOp], str], None] | None = None  # set by `batches_to`: called before each batch

    @contextmanager
    def to(self, runs: list[Run]) -> Iterator[None]:
        """In the block, also append each run to `runs`."""
        outer, self.captures = self.captures, [*self.captures, runs]
        try:
            yield
        finally:
            self.captures = outer


listening = _Listeners()


@contextmanager
def batches_to(see: Callable[[list[UOp], str], None]) -> Iterator[None]:
    """In the block, call `see(values, device)` before each batch that this thread runs, and forget cached plans."""
    outer, listening.see = listening.see, see
    plans.clear()  # `see` is not called for a cached plan
    try:
        yield
    finally:
        listening.see = outer


def realize(roots: list[UOp], as_symbolic: bool = False, also: list[tuple[UOp, UOp]] | None = None) -> list[UOp]:
    """Return for each root a BUFFER with storage that holds its value, or a view of such a BUFFER.

    A BUFFER of symbolic shape gets the shape for the bound values. With `as_symbolic` it keeps its symbolic shape, for
    graphs that are valid at every value. `also`: a list that receives (node, memory) of further nodes of the batch that
    were stored (`runtime/realize/held.py`).
    """
    todo = [r for r in roots if not is_realized(r)]
    if not todo:
        return list(roots)
    running.wait()
    with running.lock:
        new = compute(todo, as_symbolic, also)
    if len(todo) == len(roots):
        return new
    done = dict(zip(todo, new, strict=True))
    return [done.get(r, r) for r in roots]


def compute(todo: list[UOp], as_symbolic: bool = False, also: list[tuple[UOp, UOp]] | None = None) -> list[UOp]:
    """Realize values that have no memory; return a BUFFER or view for each. The caller holds `running`; the arguments
    are those of `realize`.
    """
    if len(todo) == 1 and _is_usual(todo[0]):  # what follows would find the same, in 5 us
        return _run_batch(todo, device(todo[0]), as_symbolic, also)
    done: dict[UOp, UOp] = {}
    groups: dict[str, list[UOp]] = {}
    for r in dict.fromkeys(todo):
        b = base_of(r)
        if b.op == "BUFFER" and b.storage is None:
            refuse_placeholder(b)
            b.storage = Device[b.arg.device].alloc(buffer_bytes(b))
        elif 0 in r.shape:
            dev = one_device([r]) or device(r)[0]
            shape = r.shape if as_symbolic or listening.captures else concrete(r.shape)  # a capture serves all sizes
            done[r] = with_storage(shape, r.dtype, dev, Device[dev].alloc(1))
        else:
            dev = one_device([r])
            if not dev or engine(dev) != dev:
                groups.setdefault("", []).append(r)
                continue
            groups.setdefault(dev, []).append(r)
    if "" in groups:
        sharded = groups.pop("")
        done.update(zip(sharded, _run_sharded(sharded, as_symbolic, also), strict=True))
    for dev, values in groups.items():
        for batch in independent(values):
            done.update(zip(batch, _run_batch(batch, dev, as_symbolic, also), strict=True))
    return [done.get(r, r) for r in todo]


def _is_usual(u: UOp) -> bool:
    """Whether `u` has elements, and is computed by a device that is its own engine."""
    name = device(u)
    return name.__class__ is str and _is_engine(name) and 0 not in u.shape and base_of(u).op != "BUFFER"


@lru_cache(maxsize=64)
def _is_engine(name: str) -> bool:
    return engine(name) == name and not is_on_disk(name)


def _run_batch(
    batch: list[UOp],
    dev: str,
    as_symbolic: bool,
    also: list[tuple[UOp, UOp]] | None = None,
    may_vary: bool = True,
) -> list[UOp]:
    """Run values of one device as one batch, from a cached or a new plan; return a BUFFER with storage for each.

    With `may_vary`, numbers that differ from those of earlier batches may become inputs.
    """
    if may_vary and is_likely(batch, dev) and (found := _run_varied(batch, dev, as_symbolic, also)) is not None:
        return found
    batch_key, buffers, known, has_functions = structure(batch)
    if also is not None and known != batch and (more := to_store(batch, known, dev)):
        return _with_held(batch, more, lambda values: _run_batch(values, dev, as_symbolic), also)
    if has_functions and batch_key is not None:
        batch_key, buffers = inlined_structure(batch, batch_key, buffers)
    plan_key = (batch_key, dev, settings.choices)
    plan = None if batch_key is None else cached(plan_key)
    if plan is None:
        if any(b.arg.device.__class__ is str and engine(b.arg.device) != b.arg.device for b in buffers):
            return _run_sharded(batch, as_symbolic)
        if batch_key is not None and may_vary and not listening.captures:

            def run_general(general: Inputs) -> list[UOp]:
                plan = cached((general.key, dev, settings.choices)) if settings.VERIFY < 2 else None
                if plan is not None:
                    return run_plan(plan, general.buffers, as_symbolic)
                return _run_batch(general.built(), dev, as_symbolic, may_vary=False)

            if (found := _with_numbers_as_inputs(batch, dev, run_general)) is not None:
                note_inputs(batch, dev, True)
                return found
        if listening.see is not None:
            listening.see(batch, dev)
            plans.clear()
        _prepare(batch, Device[dev])
        if batch_key is not None:
            plan = _plan_for(plan_key, "cached_plan", batch_key, len(batch), len(buffers), dev)
    if plan is not None:
        return run_plan(plan, buffers, as_symbolic, batch)
    names = _device_names(batch)
    if any(name.__class__ is tuple or engine(name) != name for name in names):
        return _run_sharded(batch, as_symbolic)
    function = _callified(node("TUPLE", tuple(batch)))
    values, buffers = function.src[0], [*function.src[1:]]
    if any(b.op != "BUFFER" for b in buffers):
        return _run_compound(batch, dev, as_symbolic)
    bases = map(base_of, values.src)
    if any(b.op == "PARAM" and b.arg.name is None for b in bases):  # a function that returns one of its arguments
        return realize(resolve_functions(batch), as_symbolic)
    if any(name != dev and Device[name].space != Device[dev].space for name in names):
        return _run_compound(batch, dev, as_symbolic, plan_key if batch_key is not None else None)
    if batch_key is None:
        plan_key = (values, dev, settings.choices)  # unlike a key from `structure`, it keeps the graph alive
    plan = _plan_for(plan_key, "make_plan", values, len(buffers), dev, batch_key)
    return run_plan(plan, buffers, as_symbolic, batch)


def inlined_structure(
    batch: list[UOp], key: tuple, buffers: list[UOp], may_inline: bool = True
) -> tuple[Any, list[UOp]]:
    """Return the key and BUFFERs of `batch` with its FUNCTIONs inlined, from the `key` and `buffers` of the batch as it
    is. They are found once for each key. (None, []) if they are not known and `may_inline` is false.
    """
    full_key = key, settings.choices
    known = _inlined.get(full_key)
    if known is None:
        if not may_inline:
            return None, []
        resolved = structure(resolve_functions(batch))
        number = {b: i for i, b in enumerate(buffers)}
        known = _inlined[full_key] = resolved.key, [number[b] for b in resolved.buffers]
        if len(_inlined) > MAX_PLANS:
            _inlined.popitem(last=False)
    return known[0], [buffers[i] for i in known[1]]


def _run_varied(batch: list[UOp], dev: str, as_symbolic: bool, also: list[tuple[UOp, UOp]] | None) -> list[UOp] | None:
    """Run a batch from the plan of its form with inputs for numbers, without the key that has its numbers, which is
    probably new; None if there is no such plan, or something observes the run. The arguments are those of `_run_batch`.
    """
    if listening.captures or listening.see is not None or settings.VERIFY > 1:
        return None
    general = with_inputs(batch, dev)
    plan = cached((general.key, dev, settings.choices)) if general is not None and general.key is not None else None
    if general is None or plan is None or any(engine(b.arg.device) != b.arg.device for b in general.buffers):
        note_inputs(batch, dev, False)
        return None
    known = general.inspected
    if also is not None and known != batch and (more := to_store(batch, known, dev)):
        return _with_held(batch, more, lambda values: _run_batch(values, dev, as_symbolic), also)
    with bound_all(general.sizes):
        return run_plan(plan, general.buffers, as_symbolic)


def _with_numbers_as_inputs(batch: list[UOp], dev: str, run: Callable[[Inputs], list[UOp]]) -> list[UOp] | None:
    """Return the values of `batch` from `run`, which gets its form with inputs for the numbers that differ between
    runs; None if there is no such form, or if the compiler refuses it.
    """
    general = with_inputs(batch, dev)
    if general is None:
        return None
    try:
        with bound_all(general.sizes):
            return run(general)
    except (IRError, InternalError):  # a form that only constants have
        general.program.refused.add(settings.choices)
        return None


def _with_held(
    batch: list[UOp], more: list[UOp], compute: Callable[[list[UOp]], list[UOp]], also: list[tuple[UOp, UOp]]
) -> list[UOp]:
    """Return the values of `batch` from `compute`, and append to `also` (node, memory) of the nodes `more`, which it
    stores besides if memory suffices.
    """
    try:
        outs = compute([*batch, *more])
    except AllocationError:
        return compute(batch)  # out of memory: without the optional values
    for u, b in zip(more, outs[len(batch) :], strict=True):
        note_stored(u, b)
        also.append((u, b))
    return outs[: len(batch)]


def _callified(values: UOp) -> UOp:
    """Return the batch as a FUNCTION over PARAMs. If a setting traces passes, the pipeline runs the pass."""
    if settings.looking:
        from monolect import pipeline  # imported only to look at passes

        for row in pipeline.GRAPH[:2]:
            values = pipeline.run_pass(row, values, pipeline.NO_TARGET)
        return values
    return callify(values)


def _prepare(batch: list[UOp], device: Any) -> None:
    """Preallocate memory for the results, so that its pages are faulted in while the plan is read or made."""
    if isinstance(device, Preparing):
        device.prepare([buffer_bytes(r) for r in batch if base_of(r).op not in ("BUFFER", "AFTER")])


def cached(key: tuple) -> Plan | None:
    """Return the cached plan of `key` and mark it most recently used; None if there is none."""
    plan = plans.get(key)
    if plan is not None and len(plans) > MAX_PLANS // 2:  # before, none is dropped soon; hashing a key again is slow
        plans.move_to_end(key)
    return plan


def _plan_for(key: tuple, make: str, *args: Any) -> Any:
    """Return the plan of `key`: cached, or from the function `make` of `runtime.realize.plan`, called with `args`."""
    if (plan := cached(key)) is not None:
        return plan
    from monolect.runtime.realize import plan as compiler  # imported only if a plan must be made

    plan = getattr(compiler, make)(*args)
    if plan is not None:
        _remember(key, plan)
    return plan


def _remember(key: tuple, plan: Plan) -> None:
    """Cache a plan under `key`; beyond MAX_PLANS drop the least recently used one."""
    plans[key] = plan
    if len(plans) > MAX_PLANS:
        plans.popitem(last=False)


def _device_names(batch: Sequence[UOp]) -> set[Any]:
    """Return the devices of the buffers of a batch and of its copies; a tuple for a value on several devices."""
    names = {u.arg.device for u in toposort(*batch) if u.op == "BUFFER" or (u.op == "LOAD" and u.arg is not None)}
    names.discard(None)  # of the placeholder of a constant, which `_input_address` refuses
    return names


def _run_compound(batch: list[UOp], dev: str, as_symbolic: bool, key: tuple | None = None) -> list[UOp]:
    """Run a batch with calls, or with copies between devices, as one plan; then realize views of its results.

    `key`: the key of the plan in `plans`, used if the plan's results are exactly the values of the batch.
    """
    from monolect.runtime.realize.compound import with_binaries_loaded  # imported only for calls and copies

    batch = with_binaries_loaded(resolve_functions(batch), dev)
    bases = [_viewed(r) for r in batch]
    todo = [b for b in dict.fromkeys(bases) if b.op != "BUFFER"]
    if not todo:  # functions that return their arguments
        return realize(batch, as_symbolic)
    values, buffers, _ = over_params(todo, with_calls=True)
    key = key if key is not None and todo == batch else (values, dev, settings.choices)
    plan = _plan_for(key, "make_compound_plan", values, len(buffers), dev)
    done = dict(zip(todo, run_plan(plan, buffers, as_symbolic), strict=True))
    return realize([substitute(r, {b: done.get(b, b)}) for r, b in zip(batch, bases, strict=True)], as_symbolic)


def _run_sharded(batch: list[UOp], as_symbolic: bool, also: list[tuple[UOp, UOp]] | None = None) -> list[UOp]:
    """Run a batch of values that reads or computes values on several devices, or on further devices of an engine."""
    from monolect.runtime.sharded import realize_sharded, wholes_of  # imported only for such values

    if also is None and _is_simulated(batch):
        from monolect.runtime.simulated import absent_results  # imported only for a simulation

        if listening.see is not None:
            listening.see(batch, Device.default)
        return absent_results(batch)
    if also is not None:
        known = structure(batch)[2]
        if known != batch and (more := to_store(batch, known, device(batch[0]))):
            return _with_held(batch, more, lambda values: _run_sharded(values, as_symbolic), also)
        return _run_sharded(batch, as_symbolic)
    captures = listening.captures
    first = [len(capture) for capture in captures]

    def computed(values: list[UOp]) -> list[UOp]:
        names = {*map(device, values), *_device_names(values)}
        if len(names) == 1:
            return compute(values, as_symbolic)
        dev = next((n for n in map(device, values) if is_here(n)), Device.default)
        if not captures:
            general = _with_numbers_as_inputs(values, dev, lambda g: _run_compound(g.built(), dev, as_symbolic))
            if general is not None:
                return general
        return _run_compound(values, dev, as_symbolic)

    found = realize_sharded(batch, computed, Device.default)
    if captures:
        read, made = [b for b in toposort(*batch) if b.op == "BUFFER"], [*map(base_of, found.values)]
        for capture, n in zip(captures, first, strict=True):
            for k, r in enumerate(capture[n:], n):
                inputs, fresh = (tuple([found.names.get(b, b) for b in bs]) for bs in (r.inputs, r.fresh))
                capture[k] = Run(r.plan, inputs, fresh, wholes_of(inputs, read), wholes_of(fresh, made))
    return found.values


def _is_simulated(batch: Sequence[UOp]) -> bool:
    """Whether a batch reads or computes values on several null devices, which have no memory."""
    names = {*map(device, batch), *_device_names(batch)}
    return any(name.__class__ is tuple and name[0].partition(":")[0] == "null" for name in names)


def _viewed(u: UOp) -> UOp:
    """Return the node below the views of `u`; `u` itself if that node has a symbolic size, because its stored result
    has the size of this call.
    """
    base = u
    while base.op in VIEWS:
        base = base.src[0]
    return base if all(n.__class__ is int for n in base.shape) else u


def run_plan(plan: Plan, buffers: list[UOp], as_symbolic: bool = False, batch: Sequence[UOp] = ()) -> list[UOp]:
    """Run a plan on `buffers`, its inputs in order; return a BUFFER for each root, shaped as `realize` says.

    `batch`: the values that the plan computes, for VERIFY; empty if unknown.
    """
    try:
        addresses = [b.storage.address for b in buffers]
    except AttributeError:  # an input without storage
        addresses = [_input_address(b, i in plan.reads) for i, b in enumerate(buffers)]
    if plan.is_plain and settings.VERIFY < 2 and not settings.tracing and not profile.recording:
        new = []
        alloc = Device[plan.device].alloc
        for template, n_bytes in plan.results:
            b = new_buffer_like(template)
            b.storage = memory = alloc(n_bytes)
            addresses.append(memory.address)
            new.append(b)
        owned = [alloc(n_bytes) for n_bytes in plan.owned_bytes]
        if owned:
            addresses += [memory.address for memory in owned]
        plan.commands.run(*addresses)
    else:
        new = _run_unusual(plan, buffers, addresses, as_symbolic, batch)
    for capture in listening.captures:
        capture.append(Run(plan, tuple(buffers), tuple(new), tuple(buffers), tuple(new)))
    return new if plan.is_new else [(buffers + new)[i] for i in plan.outputs]


def _run_unusual(
    plan: Plan, buffers: list[UOp], addresses: list[int], as_symbolic: bool, batch: Sequence[UOp]
) -> list[UOp]:
    """Run a plan, as `run_plan` does, with sizes, with further memory, on several devices, or under a setting that
    looks at the run. Return the new BUFFERs.
    """
    device = Device[plan.device]
    sizes = [value_of(v) for v in plan.variables] if plan.variables else []
    new = []
    for template, n_bytes in plan.results:
        is_bound = bool(sizes) and not as_symbolic
        name = template.arg.device
        b = new_buffer(concrete(template.shape), template.dtype, name) if is_bound else new_buffer_like(template)
        b.storage = memory = (device if name == plan.device else Device[home(b, plan.device)]).alloc(n_bytes)
        addresses.append(memory.address)
        new.append(b)
    addresses += sizes
    owned = [own_memory(Device[home(b, plan.device)], b) for b in plan.owned]
    addresses += [memory.address for memory in owned]
    if settings.VERIFY > 1 and not hasattr(plan.commands, "bind_memory"):
        from monolect.runtime.realize import verified  # imported only for VERIFY

        verified.run_plan(plan, batch, [*(b.storage for b in buffers), *(b.storage for b in new)], owned, sizes)
    else:
        if hasattr(plan.commands, "bind_memory"):
            every = [*(b.storage for b in buffers), *(b.storage for b in new), *sizes, *owned]
            for n, memory in enumerate(every):
                plan.commands.bind_memory(n, memory)
        run(plan.commands, addresses, plan.items)
    return new


def own_memory(device: Any, b: UOp) -> Any:
    """Return new memory on `device` for `b`, a BUFFER that a step owns."""
    return (device.alloc_shared if b.arg.slot == SHARED_ARENA else device.alloc)(buffer_bytes(b))


def run(commands: Any, addresses: list[int], items: tuple[UOp, ...], replayed: bool = False) -> None:
    """Bind `addresses` to the first positions of a command buffer and run it, by one call if the device supports
    that.
    """
    if settings.tracing or profile.recording or not hasattr(commands, "run"):
        for number, address in enumerate(addresses):
            commands.bind(number, address)
        launch(commands, items, replayed)
    else:
        commands.run(*addresses)


def launch(commands: Any, items: tuple[UOp, ...], replayed: bool = False) -> None:
    """Run a bound command buffer. Each item is timed if a setting or a Recorder needs times."""
    if settings.tracing or profile.recording:
        profile.record(items, commands.launch_timed(), replayed)
    else:
        commands.launch()


def _input_address(b: UOp, is_read: bool) -> int:
    """Return the address of an input; allocate memory for a declared buffer that is read before it was written.

    Returns 0 for a buffer without memory that the plan does not read.
    """
    if b.storage is None:
        if not is_read:
            return 0  # overwritten before it is read
        refuse_placeholder(b)
        b.storage = Device[b.arg.device].alloc(buffer_bytes(b))  # declared and never written: uninitialized
    return b.storage.address


def refuse_placeholder(b: UOp) -> None:
    """Raise JitError if `b` is the placeholder of a Tensor in a traced function: it has no value."""
    if b in placeholders:
        expected = "a function that only builds graphs, and returns the Tensors that are read outside of it"
        raise JitError("reading values while a @function is traced", expected=expected, found="a request for a value")


__all__ = [
    "Run",
    "cached",
    "compute",
    "from_numpy",
    "inlined_structure",
    "launch",
    "own_memory",
    "listening",
    "plans",
    "realize",
    "run",
    "run_plan",
    "placeholders",
    "to_numpy",
]
