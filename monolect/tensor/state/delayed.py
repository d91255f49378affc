"""Delay the nodes of method calls that were made before on operands of the same kinds.

What it is for: an eager program calls the same methods on computed Tensors of the same shapes again and again, and
building the nodes takes longer than the kernels. Such a call returns a delayed Tensor, which holds the call instead of
a node. If its value is asked for, the program that computed an equal call runs at once. Any other use builds the nodes.
What it is not: a cache of values or of nodes. Records of calls hold no memory, and refer to their program weakly.

Invariant: a delayed Tensor cannot be told from the one that the method returns. So the methods (METHODS) are functions
of their operands alone, the operands are computed Tensors that lead to no leaf, delayed Tensors, and plain numbers, and
the nodes are built by the method itself.

A float operand that differs from call to call is an input of the program, which reads it from a BUFFER (Number). Such
a program is built by calling the methods with a Tensor of that BUFFER instead of the float. A small contiguous view,
such as a row, is copied (Part), so its offset is no part of the program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from math import prod
from threading import RLock
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

from monolect.autograd.graph import reshape, shrink_axis
from monolect.base.dtype import DType
from monolect.base.errors import InternalError, IRError
from monolect.base.origin import is_own, provenance
from monolect.base.settings import Context, settings
from monolect.ir.placement import placement
from monolect.ir.rewrite.normal import INPUTS, may_vary
from monolect.ir.uop import UOp, next_serial, toposort
from monolect.runtime.buffer import base_of, copied_part, copied_run, from_number, is_realized
from monolect.runtime.known import is_observed, known_program, launched
from monolect.runtime.realize.encode import One
from monolect.runtime.realize.execute import compute
from monolect.runtime.realize.held import SMALL_BYTES
from monolect.runtime.replay.in_progress import under_way
from monolect.tensor.base import TensorBase
from monolect.tensor.state.leaves import leaf_refs, may_lead, paused_refs, watched
from monolect.tensor.view import Make, row_number

MAX_RECORDS = 256  # records of one method; beyond it all are dropped: they are those of a loop over many numbers
MIN_NUMBERS = 2  # calls that differ in a float alone, and have it as a constant; from the next one on, it is an input
MAX_INNER = 16  # delayed calls below one; the nodes of a longer chain are built
MAX_COPY = 1 << 16  # bytes of a view that a call copies; copying more takes longer than building the nodes of the view
MAX_BUILT = 64  # times that nodes of a record are built without a run between; beyond it its calls are not delayed
NEVER = 1 << 30  # `n_built` of a record whose calls are not delayed
METHODS = (
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __neg__ __lt__ __le__ __gt__ __ge__"
    " __eq__ __ne__ __matmul__ __pow__ add sub mul div neg pow matmul mm bmm mv dot linear maximum minimum where clamp"
    " abs exp exp2 log log2 sqrt rsqrt sin cos tanh sigmoid relu gelu silu square reciprocal softmax log_softmax"
    " sum prod mean amax amin max min argmax argmin var std all any"
).split()
NUMBERED = frozenset(
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __lt__ __le__ __gt__ __ge__"
    " add sub mul div maximum minimum where".split()
)  # methods that build the same graph for each value of a float
_CONSTANTS = frozenset((int, bool, float, str, type(None), DType))  # classes of operands that are no Tensors
_settling = RLock()  # held while a delayed Tensor gets its node; a finalizer may run inside
_new = object.__new__
_slot: Any = vars(TensorBase)["_uop"]
_set_node = _slot.__set__


class Record:
    """Describe the calls of one method on operands of the same kinds: dtype and shape of the result.

    `names`: of the last operands, which are keywords. `modes`: values of the settings of the thread. `one`: a weak
    reference to what runs their program under the settings `choices`, and `order`, the numbers of the BUFFERs that it
    reads. It is None before the program is known. `n_built` counts calls whose nodes were built since the last run.
    """

    __slots__ = ("choices", "dtype", "method", "modes", "n_built", "names", "one", "order", "shape")

    def __init__(self, method: Callable[..., Any], names: tuple[str, ...]) -> None:
        self.method, self.names, self.modes = method, names, settings.modes.key
        self.dtype: Any = None
        self.shape: tuple[int, ...] = ()
        self.one: ref[One] | None = None
        self.order: list[int] = []
        self.choices: Any = None
        self.n_built = 0

    def applied(self, operands: list[Any]) -> Any:
        """Return what the method returns for `operands`, Tensors and numbers."""
        n = len(operands) - len(self.names)
        return self.method(*operands[:n], **dict(zip(self.names, operands[n:], strict=True)))


class Number(NamedTuple):
    """A float operand that is an input of the program: its value, and a BUFFER that holds it."""

    value: float
    buffer: UOp


class Part(NamedTuple):
    """An operand that is a small contiguous view, such as a row, and an input of the program: a BUFFER with a copy of
    it. `make` maps the BUFFER `base` of all elements to the node of the view.
    """

    base: UOp
    make: Make
    buffer: UOp


class Call:
    """A call of a method whose nodes are not built yet.

    `operands`: in place of Tensors their BUFFERs or Calls, and in place of a float that is an input a Number,
    in place of a small view a Part.
    `buffers`: the distinct BUFFERs of it and of the Calls below it, `inner`. `line`: (file, user's line, method), or
    (code, position in it, method). `holder`: weak reference to the Tensor whose value it is. `is_recomputed`: a run
    computed the value while a Tensor held it, and did not store it.
    """

    __slots__ = ("buffers", "holder", "inner", "is_recomputed", "line", "node", "operands", "record")

    def __init__(
        self, record: Record, operands: list[Any], buffers: list[UOp], inner: tuple[Call, ...], line: Any
    ) -> None:
        self.record, self.operands, self.buffers, self.inner, self.line = record, operands, buffers, inner, line
        self.holder: ref[Any] | None = None
        self.node: UOp | None = None
        self.is_recomputed = False

    def run(self, is_alone: bool = False) -> UOp | None:
        """Run the program of equal calls, and return the BUFFER of the result.

        None, and this call does not run, if its program is not known (with `is_alone` it is made), if something
        observes runs, or if it would compute a value a second time that a Tensor holds. Such a value is stored then, as
        `runtime/realize/held.py` does for nodes.
        """
        record = self.record
        if is_observed() or watched.nodes:
            return None
        held: list[Call] = []
        if self.inner:
            held = [call for call in self.inner if (holder := call.holder) is not None and holder() is not None]
            if again := [call for call in held if call.is_recomputed]:
                if all([call._store() for call in again]):
                    record.n_built = 0  # its nodes are built from these values
                return None
        one = None if record.one is None or record.choices is not settings.choices else record.one()
        if one is None and not is_alone and not self.has_inputs():
            return None
        own = self.buffers
        for b in own:
            if b.recomputed or (leaf_refs and record.modes[0] and may_lead(b)):
                return None
        for call in held:
            call.is_recomputed = True
        if one is None:
            return self._first_run()
        record.n_built = 0
        for call in self.inner:
            call.record.n_built = 0
        return launched(one, own, record.order)

    def _store(self) -> bool:
        """Compute the value, which a Tensor holds, on its own, and return whether that was done. A large value stays a
        part of the programs that need it.
        """
        if self.node is not None:  # stored by another call, or built: then the batch with the nodes stores it
            return is_realized(self.node)
        record = self.record
        holder = None if self.holder is None else self.holder()
        if prod(record.shape) * record.dtype.itemsize > SMALL_BYTES or (value := self.run(True)) is None:
            return False
        self.node = value
        if holder is not None:
            settle_call(holder, self, value)
        return True

    def has_inputs(self) -> bool:
        """Return whether floats or small views are inputs of the program."""
        return any([x.__class__ in _INPUTS for call in (*self.inner, self) for x in call.operands])

    def _first_run(self) -> UOp | None:
        """Run the program, which is not known yet, and return the BUFFER of the result; None if it has inputs, and the
        compiler refuses it, as it may a form that only constants have.
        """
        with_inputs = self.has_inputs()
        try:
            u = self._made(with_inputs)
            (value,) = compute([u])
        except (IRError, InternalError):
            if not with_inputs:
                raise
            self.record.n_built = NEVER
            return None
        self._note_program(u)
        return value

    def learn(self, u: UOp) -> None:
        """Note the program of the node `u` of this call, which ran. A program that has inputs is known before."""
        if not self.has_inputs():
            self._note_program(u)

    def _note_program(self, u: UOp) -> None:
        one, buffers, _ = known_program(u)
        if one is not None and all([b in self.buffers for b in buffers]):
            record = self.record
            record.one, record.order = None, [self.buffers.index(b) for b in buffers]
            record.choices = settings.choices
            record.one = ref(one)

    def built(self, holder: ref[Any] | None) -> UOp:
        """Return the node of this call, built by its method; `holder` is the Tensor whose value it is."""
        u = self.node
        if u is None:
            self.record.n_built += 1
            start = next_serial()
            u = self._made(False)
            if u.serial > start:
                self._name_line(u, start)
            self.node = u
            if self.is_recomputed:
                u.recomputed = True
        u.holder = holder
        return u

    def _made(self, with_inputs: bool) -> UOp:
        """Return the node that the method makes for the operands: for a Number its value, or its BUFFER."""
        if settings.modes.key is not self.record.modes:
            grad, autocast = self.record.modes
            with Context(GRAD=grad, AUTOCAST=autocast):
                return self._made(with_inputs)
        found: UOp = self.record.applied([_operand(x, with_inputs) for x in self.operands])._uop
        return found

    def _name_line(self, u: UOp, start: int) -> None:
        """Give nodes that were made after the serial number `start`, and have an origin, the line of this call."""
        code, at, name = self.line
        origin = (code.co_filename, _line(code, at), name) if code.__class__ is CodeType else self.line
        seen = {u}
        stack = [u]
        while stack:
            u = stack.pop()
            if u.origin is not None:
                u.origin = origin
            for x in u.src:
                if x.serial > start and x not in seen:
                    seen.add(x)
                    stack.append(x)


def _operand(x: Any, with_inputs: bool) -> Any:
    """Return the operand `x` of a Call as its method takes it: a Tensor, or a number. With `with_inputs` a
    Number is a Tensor, and a Part one of its copy.
    """
    if x.__class__ is Call:
        x = x._made(True) if with_inputs and x.has_inputs() else x.built(x.holder)
    elif x.__class__ is Number:
        if not with_inputs:
            return x.value
        x = x.buffer
    elif x.__class__ is Part:
        x = x.buffer if with_inputs else x.make(x.base)
    elif x.__class__ is not UOp:
        return x
    t: Any = _new(kinds[0])
    t._uop = x
    t._grad = None
    t._requires_grad = False
    return t


def _line(code: CodeType, at: int) -> int:
    """Return the line of the position `at` of `code`."""
    return next((line for first, end, line in code.co_lines() if first <= at < end and line), code.co_firstlineno)


_INPUTS = frozenset((Number, Part))  # classes of operands that are inputs, or constants and views of nodes
kinds: list[Any] = []  # the class of Tensors, and that of delayed ones


def delaying(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return `method`, a function of Tensors and numbers, that returns a delayed Tensor for calls that were made
    before.
    """
    records: dict[tuple[Any, ...], Record | None] = {}
    numbered: dict[tuple[Any, ...], Record | int] | None = {} if name in NUMBERED else None

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if under_way or watched.nodes or paused_refs:
            return method(self, *args, **kwargs)
        plain, late = kinds
        modes = settings.modes.key
        key: list[Any] = [id(modes), id(settings.shared_steering)]  # equal tuples are one object, which stays
        operands: list[Any] = []
        buffers: list[UOp] = []
        inner: tuple[Call, ...] = ()
        if kwargs:
            key.append(tuple(kwargs))
        x: Any
        for x in (self, *args, *kwargs.values()):
            kind = x.__class__
            if kind is plain:
                u = x._uop
                if u.op != "BUFFER" or u.storage is None or (leaf_refs and modes[0] and _leads(x, u)):
                    return method(self, *args, **kwargs)
                if u in buffers:
                    key.append(buffers.index(u))
                else:
                    key += (u.src, u.dtype, u._placement or placement(u))
                    buffers.append(u)
                operands.append(u)
            elif kind is late:
                below = x._call
                if below is None or len(inner) + len(below.inner) >= MAX_INNER:
                    return method(self, *args, **kwargs)
                if below.holder is None:
                    below.holder = ref(x)
                key.append(below.record)
                for u in below.buffers:
                    if u not in buffers:
                        buffers.append(u)
                    key.append(buffers.index(u))
                inner = (*inner, *below.inner, below)
                operands.append(below)
            elif (kind in _CONSTANTS and (kind is not float or x)) or (  # 0.0 equals -0.0
                kind is tuple and all([n.__class__ is int for n in x])
            ):
                key += (kind, x)
                operands.append(x)
            elif (part := _copied(x, bool(modes[0]))) is not None:
                u = part.buffer
                key += (u.src, u.dtype, placement(u))
                buffers.append(u)
                operands.append(part)
            else:
                return method(self, *args, **kwargs)
        known = tuple(key)
        record = records.get(known)
        if record is None and numbered and not kwargs and known not in records:
            record = _with_input(numbered, known, operands, buffers)
        if record is None or record.n_built > MAX_BUILT:
            result = method(self, *args, **kwargs)
            if record is None:
                _note(records, numbered, known, Record(method, tuple(kwargs)), result, operands, buffers)
            return result
        try:
            frame = sys._getframe(1)
            code = frame.f_code
            line = provenance() if is_own(code.co_filename) else (code, frame.f_lasti, name)
        except ValueError:  # no Python code called this: a thread's function, or one of `atexit`
            line = ("", 0, name)
        t: Any = _new(late)
        t._call = Call(record, operands, buffers, inner, line)
        t._grad = None
        t._requires_grad = False
        return t

    # provenance reports this name
    call.__code__ = call.__code__.replace(co_name=name)  # type: ignore[attr-defined]
    return call


def _leads(t: Any, u: UOp) -> bool:
    """Return whether a gradient that flows to `t`, a Tensor of the BUFFER `u`, flows to a leaf."""
    return t._requires_grad or may_lead(u)


def _of_copies(record: Record, result: Any, operands: list[Any]) -> Any:
    """Return `result`, what the method of `record` returned for `operands`, if none is a Part; else what it returns for
    the copies.
    """
    if Part not in map(type, operands):
        return result
    return record.applied([_operand(x, x.__class__ is Part) for x in operands])


def _copied(x: Any, has_graph: bool) -> Part | None:
    """Return the Part of `x`, if it is a small contiguous view of computed values, such as a row, through which no
    gradient flows to a leaf; else None.

    The offset of the view is no part of the program then. `has_graph`: the setting GRAD of the thread.
    """
    if not isinstance(x, TensorBase) or not x._is_view or x._kind is not kinds[0] or x._requires_grad:
        return None
    if (part := getattr(x, "_part", None)) is not None:  # one element
        base, first, shape = part[0]._uop, part[2], ()
        make: Make = partial(_element, first)
    elif (found := row_number(x)) is not None:
        base, make = found[0]._uop, x._view.make
        shape = base.shape[1:]
        first = found[1] * prod(shape)
    else:
        u = x._uop
        base, first, make = base_of(u), None, lambda _: u
    if base.op != "BUFFER" or base.storage is None or (leaf_refs and has_graph and may_lead(base)):
        return None
    b = copied_part(u, MAX_COPY) if first is None else copied_run(base, first, shape, MAX_COPY)
    return None if b is None else Part(base, make, b)


def _element(number: int, u: UOp) -> UOp:
    """Return element `number` of `u`, in row-major order, without axes."""
    return reshape(shrink_axis(reshape(u, (prod(u.shape),)), 0, number, 1), ())


def _note(
    records: dict[Any, Record | None],
    numbered: dict[Any, Record | int] | None,
    key: Any,
    record: Record,
    result: Any,
    operands: list[Any],
    buffers: list[UOp],
) -> None:
    """Note in the `records` of a method that it was called with the key `key` and `operands`, and returned `result`.

    The second call with a key gets the `record`. So do calls whose keys differ from those of MIN_NUMBERS others in a
    float: `numbered` has the count of these by the key without the float, and then the record.
    """
    result = _of_copies(record, result, operands)
    if key in records:
        _fill(record, result, buffers)
        records[key] = record
        return
    if len(records) >= MAX_RECORDS:
        records.clear()
    records[key] = None
    if numbered is not None and (general := _without_float(key)) is not None:
        n = numbered.get(general, 0)
        if n.__class__ is int:
            numbered[general] = n + 1
            if n + 1 == MIN_NUMBERS:
                _fill(record, result, buffers)
                numbered[general] = record
        if len(numbered) > MAX_RECORDS:
            numbered.clear()


def _without_float(key: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the key of a call without the value of its float operand; None unless it has one such operand."""
    if key.count(float) != 1:
        return None
    at = key.index(float) + 1
    return key[:at] + key[at + 1 :]


def _dtype_of(x: Any) -> DType | None:
    """Return the dtype of the operand `x` of a Call if it is the BUFFER or the Call of a Tensor; None for a number."""
    x = x.buffer if x.__class__ is Part else x
    found: DType | None = x.dtype if x.__class__ is UOp else x.record.dtype if x.__class__ is Call else None
    return found


def _with_input(
    numbered: dict[Any, Record | int], key: tuple[Any, ...], operands: list[Any], buffers: list[UOp]
) -> Record | None:
    """Return the record of calls whose float operand is an input, and put its Number among the `operands` and
    `buffers` of the call with the key `key`; None if there is no such record, or if the float may be no input.
    """
    general = _without_float(key)
    record: Any = None if general is None else numbered.get(general)
    if record.__class__ is not Record or record.n_built > MAX_BUILT:
        return None
    d = next((d for d in map(_dtype_of, operands) if d is not None and d.is_float), None)
    at = [x.__class__ for x in operands].index(float)
    dev = buffers[0].arg.device
    if d not in INPUTS or dev.__class__ is not str or not may_vary(operands[at]):
        return None
    number = Number(operands[at], from_number(operands[at], d, dev))
    operands[at] = number
    buffers.append(number.buffer)
    return record


def _fill(record: Record, result: Any, buffers: list[UOp]) -> None:
    """Fill the record of a call that returned `result`. Calls are not delayed unless that is a new value of known sizes
    that depends on `buffers` alone.
    """
    record.n_built = NEVER
    if result.__class__ is not kinds[0] or result._requires_grad:
        return
    u = result._uop
    if base_of(u).op in ("BUFFER", "AFTER") or not all([n.__class__ is int and n for n in u.shape]):
        return
    for x in toposort(u):
        if x.op in ("PARAM", "CALL", "AFTER") or (x.op == "BUFFER" and x not in buffers):
            return
    record.n_built, record.dtype, record.shape = 0, u.dtype, u.shape


def settle(t: Any, u: UOp) -> None:
    """Make the delayed Tensor `t` an ordinary one with the node `u`."""
    with _settling:
        _set_node(t, u)
        t.__class__ = kinds[0]
        t._call = None


def settle_call(t: Any, call: Call, u: UOp) -> None:
    """Make the Tensor `t` an ordinary one with the node `u`, a value of its `call`, unless another thread has given it
    a node meanwhile: that may be of a later write.
    """
    with _settling:
        if t._call is call:  # what `settle` does; a call of it takes 0.2 us
            _set_node(t, u)
            t.__class__ = kinds[0]
            t._call = None


def delay_calls(cls: Any) -> Any:
    """Class decorator: delay the methods METHODS of the Tensor class `cls`, and return `cls`."""

    def node(t: Any) -> UOp:
        call = t._call
        if call is not None:
            settle_call(t, call, call.built(ref(t)))
        found: UOp = _slot.__get__(t)
        return found

    names = {
        "__slots__": (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "_uop": property(node, settle),
        "_wrap": cls._wrap,
        "_is_delayed": True,
        "dtype": property(lambda t: t._uop.dtype if (call := t._call) is None else call.record.dtype),
        "shape": property(lambda t: t._uop.shape if (call := t._call) is None else call.record.shape),
    }
    for name in METHODS:
        found = next(vars(c)[name] for c in cls.__mro__ if name in vars(c))
        method = delaying(found, name)
        method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"  # where pickle finds it
        setattr(cls, name, method)
    late_kind: Any = type(cls.__name__, (cls,), names)
    late_kind._kind = cls  # a new class is its own kind
    kinds[:] = cls, late_kind
    return cls


__all__ = ["delay_calls", "settle_call"]
