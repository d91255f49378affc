"""Captured steps in a file: another process loads one and runs it, without tracing, scheduling or compiling.

What it is for: `step.save(path)` and `jit.load(path)`. One file holds the captures whose surroundings are those of now,
their machine code, the constants they read, and the tensors they read and update.
What it is not: an exchange format. A file fits the target it was made for, and this version of the format. It holds
machine code and pickled arguments: load only what you trust.
Invariant: a file is whole and unchanged, or an error; nothing of it is looked at before its checksum.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from monolect.backend.base import Portable, Program
from monolect.backend.registry import Device
from monolect.base.errors import ArgumentError, DeviceError, DTypeError, FileFormatError, JitError
from monolect.base.files import write_whole
from monolect.base.hashing import blake2b
from monolect.base.numpy import np
from monolect.ir.ops import KernelInfo
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp, node
from monolect.runtime.buffer import with_storage
from monolect.runtime.jit import Capture
from monolect.runtime.prologue import Step
from monolect.runtime.recipe import Outside, Recipe, mark
from monolect.schedule.memory import buffer_bytes
from monolect.tensor import random as random_state
from monolect.tensor.capture import Captured, Jit, Spec
from monolect.tensor.donated import Donation
from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import flatten, kind

FORMAT = 8  # of what is stored, as a test sees, and of how kernels are called: whoever changes that counts on
_MAGIC = b"MONOSTEP"
_HEADER = struct.Struct("<8sIQQ32s")  # magic, FORMAT, bytes of the head, of the arrays; checksum of both
_ALIGN = 64  # where an array starts
_LATER: Any = None  # in place of a capture, which is made where the file is loaded


class Part(NamedTuple):
    """One capture of a file."""

    recipe: Recipe
    outside: Outside
    captured: Captured  # without what is made anew where it is loaded


class Head(NamedTuple):
    """What a file holds beside the bytes of its arrays; pickled."""

    device: str
    target: str
    tensors: list[tuple[str, bool, int]]  # name, whether it wants a gradient, the number of its array
    arrays: list[str]  # a BUFFER of the kind of each, as text
    programs: list[bytes]
    donation: Donation
    parts: bytes  # pickled, with references to what is above


# ---- saving ----------------------------------------------------------------------------------------------------------
def save(jit: Jit, path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
    """See `Jit.save`."""
    tensors = {**getattr(jit, "tensors", {}), **tensors}  # a step from a file keeps its names
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise DTypeError(f"save: {name!r}", expected="a Tensor", found=type(t).__name__)
    now = [c for c in jit.captures.values() if c.spec.around == jit.around.key]
    captures = [c for c in now if c.capture.is_current()]  # what changed since is in the others as it was
    if not captures:
        why = "none since a tensor that it returns or has a view of changed" if now else "no capture"
        raise JitError("a step is saved once it is captured", expected="a call before", found=why)
    names = {c.capture.recipe.device for c in captures if c.capture.recipe.device is not None}
    names = names or {device for c in captures for *_, device, _ in c.kinds} or {"cpu"}  # its results are views
    device: Any = Device[names.pop()] if len(names) == 1 else None
    is_portable = isinstance(device, Portable)
    if not is_portable:
        found = sorted(names) if device is None else device.name
        raise DeviceError("a step that cannot be saved", expected="kernels on cpu or c", found=found)
    writer = _Writer(device, tensors, getattr(jit, "built", {}))
    parts = writer.dumps([writer.part(c) for c in captures])
    states = [(*writer.known[id(t)], writer.array(t._uop)) for t in writer.tensors]
    marks = [show(mark(b)) for b in writer.arrays]
    donation = jit.donation
    head = pickle.dumps(
        Head(device.name, device.target.key, states, marks, writer.programs(), donation, parts), protocol=5
    )
    body: list[Any] = [head]
    for b in writer.arrays:
        data = b.storage.view(np.uint8)[: buffer_bytes(b)]
        body += [data.data, bytes(-len(data) % _ALIGN)]
    n_bytes = sum(map(len, body)) - len(head)
    write_whole(path, [_HEADER.pack(_MAGIC, FORMAT, len(head), n_bytes, _checksum(body)), *body])


def _checksum(parts: list[Any]) -> bytes:
    state = blake2b(digest_size=32)
    for part in parts:
        state.update(part)
    return state.digest()


class _Writer:
    """Numbers the tensors, arrays and programs of captures."""

    def __init__(self, device: Any, names: Mapping[str, Tensor], built: dict[Program, bytes]) -> None:
        self.device, self.built = device, built
        self.names = {id(t): name for name, t in names.items()} | random_state.names()
        self.tensors: list[Tensor] = []
        self.known: dict[int, tuple[str, bool]] = {}  # by identity of a tensor
        self.arrays: dict[UOp, int] = {}
        self.kernels: dict[Program, UOp] = {}

    def part(self, c: Captured) -> Part:
        outside, recipe = c.capture.outside(), c.capture.recipe
        for t in (*outside.moves, *outside.in_place, *outside.reads, *c.graded, *c.blank):
            if isinstance(t, Tensor) and id(t) not in self.known:
                self.known[id(t)] = (self.names.get(id(t), str(len(self.tensors))), t.requires_grad)
                self.tensors.append(t)
        recipe = recipe._replace(early=tuple(map(self._step, recipe.early)), late=tuple(map(self._step, recipe.late)))
        spec = c.spec._replace(around=())
        if _Unpickler(io.BytesIO(self.dumps(spec)), {}).load().key != spec.key:
            expected = "arguments that are equal when their values are"
            raise JitError("an argument that another process could not give", expected=expected, found=spec.describe())
        return Part(recipe, outside, c._replace(capture=_LATER, kinds=(), spec=spec, usual={}))

    def _step(self, s: Step) -> Step:
        """A step without its kernel: the name and the buffers are left, for whoever looks at what runs."""
        kernel = s.kernel or s.call.src[0]
        if kernel.op == "CUSTOMFUNCTION":
            expected = "a step without native functions"
            raise JitError("native code is at an address of this process", expected=expected, found=kernel.arg)
        self.kernels.setdefault(s.launch.program, kernel)
        named = node("SINK", (), KernelInfo(s.launch.program.name))
        return s._replace(call=node("CALL", (named, *s.call.src[1:])), kernel=None)

    def programs(self) -> list[bytes]:
        """The code of each program: what was loaded as it came, the others compiled once more."""
        todo = [p for p in self.kernels if p not in self.built]
        if todo:
            lowered = import_module("monolect.runtime.lowering").lower(
                [self.kernels[p] for p in todo], self.device.name
            )
            self.built |= dict(zip(todo, map(self.device.dumps, lowered), strict=True))
        return [self.built[p] for p in self.kernels]

    def array(self, b: UOp) -> int:
        return self.arrays.setdefault(b, len(self.arrays))

    def dumps(self, x: Any) -> bytes:
        out = io.BytesIO()
        pickler = _Pickler(out, self)
        try:
            pickler.dump(x)
        except (pickle.PicklingError, TypeError, AttributeError) as e:
            expected = "arguments and results that pickle takes"
            raise JitError("a step that cannot be saved", expected=expected, found=str(e)) from e
        return out.getvalue()


class _Pickler(pickle.Pickler):
    def __init__(self, out: Any, writer: _Writer) -> None:
        super().__init__(out, protocol=5)
        self.writer, self.numbers = writer, {id(t): k for k, t in enumerate(writer.tensors)}
        self.programs = {p: k for k, p in enumerate(writer.kernels)}

    def persistent_id(self, x: Any) -> Any:
        """What stands for an object that is not pickled."""
        if isinstance(x, Tensor):
            number = self.numbers.get(id(x))
            return ("leaf", show(x._uop), x._requires_grad) if number is None else ("tensor", number)
        if isinstance(x, UOp):
            return ("node", show(x)) if x.storage is None else ("array", self.writer.array(x))
        return ("program", self.programs[x]) if isinstance(x, Program) else None


# ---- loading ---------------------------------------------------------------------------------------------------------
class Loaded(Jit):
    """A step from a file. `tensors` are those it reads and updates, by the names they were saved under."""

    def __init__(self, path: str, head: Head, arrays: list[UOp], given: Mapping[str, Tensor]) -> None:
        super().__init__(_nothing)
        self.around = self._reached()
        self.__name__, self.donation = path, head.donation
        self.tensors: dict[str, Tensor] = {}
        for name, wants_gradient, number in head.tensors:
            t = given[name] if name in given else random_state.tensor_named(name, Tensor)
            if t is None:
                t = Tensor._wrap(arrays[number])
                t._requires_grad = wants_gradient
            else:
                arrays[number] = _replacing(name, t, arrays[number])
            self.tensors[name] = t
        if unknown := given.keys() - self.tensors.keys():
            known = ", ".join(self.tensors) or "no tensor: the step has none"
            raise ArgumentError("jit.load: tensors", expected=known, found=", ".join(sorted(unknown)))
        device = Device[head.device]
        programs = list(map(device.loads, head.programs))
        self.built = dict(zip(programs, head.programs, strict=True))
        objects: dict[str, list[Any]] = {"tensor": [*self.tensors.values()], "array": arrays, "program": programs}
        parts: list[Part] = _Unpickler(io.BytesIO(head.parts), objects).load()
        self.around.named = frozenset().union(*(part.captured.spec.named for part in parts))
        for part in parts:
            spec = part.captured.spec._replace(around=self.around.key, named=self.around.named)
            leaves: list[Tensor] = []
            flatten((spec.args, spec.kwargs), leaves)
            kinds = tuple(map(kind, leaves))
            capture = Capture(part.recipe, part.outside)
            self.captures[spec.key] = part.captured._replace(capture=capture, kinds=kinds, spec=spec)

    def __reduce__(self) -> Any:
        raise JitError(
            "a saved step is neither copied nor pickled", expected="jit.load of its file", found=self.__name__
        )

    __copy__ = __reduce__

    def __deepcopy__(self, memo: Any) -> Any:
        self.__reduce__()

    def _plain(self) -> Any:
        expected = "the function it was saved from"
        raise JitError("a saved step inside a jitted function, which would be a part of it", expected=expected)

    def _capture(self, key: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        if key in self.captures:
            expected = "zero_grad() first, or the gradients returned by the step"
            raise JitError("a saved step that found no gradient meets one of an earlier backward", expected=expected)
        wanted = " or ".join(c.spec.describe() for c in self.captures.values())
        found = Spec(args, kwargs).describe()
        raise JitError("a saved step was not captured for these arguments", expected=wanted, found=found)


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: Any, objects: dict[str, list[Any]]) -> None:
        super().__init__(data)
        self.objects = objects

    def persistent_load(self, pid: Any) -> Any:
        """What a reference stands for."""
        kind, what, *flags = pid
        if kind in self.objects:
            return self.objects[kind][what]
        if kind == "node":
            return parse(what)
        t = Tensor._wrap(parse(what))
        (t._requires_grad,) = flags
        return t


def _nothing(*_: Any, **__: Any) -> None:
    """In place of the function of a loaded step."""


def _replacing(name: str, t: Tensor, saved: UOp) -> UOp:
    """The BUFFER of a tensor that takes the place of a saved one."""
    if t.shape != saved.shape or t.dtype is not saved.dtype or t.device != saved.arg.device:
        expected, found = (f"{x.dtype.name} {x.shape} on {d}" for x, d in ((saved, saved.arg.device), (t, t.device)))
        raise ArgumentError(f"jit.load: tensor {name}", expected=expected, found=found)
    t.realize()
    if t._uop.op != "BUFFER":
        t._uop = t.contiguous().realize()._uop
    return t._uop


def load(path: str | os.PathLike[str], tensors: Mapping[str, Tensor] | None = None) -> Loaded:
    """See `jit.load`."""
    name = os.fspath(path)
    with open(name, "rb") as f:
        header = f.read(_HEADER.size)
        if len(header) < _HEADER.size or header[: len(_MAGIC)] != _MAGIC:
            raise FileFormatError(f"{name} is no saved step", expected=_MAGIC, found=header[: len(_MAGIC)])
        _, version, n_head, n_arrays, checksum = _HEADER.unpack(header)
        if version != FORMAT:
            raise FileFormatError(f"{name}: a step of another format", expected=FORMAT, found=version)
        wanted, size = _HEADER.size + n_head + n_arrays, os.fstat(f.fileno()).st_size
        if size != wanted:
            raise FileFormatError(f"{name} is not whole", expected=f"{wanted} bytes", found=f"{size} bytes")
        body = np.empty(n_head + n_arrays, np.uint8)
        f.readinto(body.data)
    if (found := _checksum([body.data])) != checksum:
        raise FileFormatError(f"{name} is damaged", expected=checksum.hex(), found=found.hex())
    try:
        head: Head = pickle.loads(body[:n_head].data)
        device = Device[head.device]
        if device.target.key != head.target:
            raise DeviceError(f"{name}: a step for another target", expected=device.target.key, found=head.target)
        return Loaded(name, head, _arrays(head, body[n_head:], device), tensors or {})
    except (pickle.UnpicklingError, AttributeError, ImportError) as e:
        expected = "the classes of its arguments and results, where they were"
        raise FileFormatError(f"{name} cannot be read", expected=expected, found=str(e)) from e


def _arrays(head: Head, data: np.ndarray, device: Any) -> list[UOp]:
    out, at = [], 0
    for text in head.arrays:
        mark = parse(text)
        n = buffer_bytes(mark)
        memory = device.alloc(n)
        memory.view(np.uint8)[:n] = data[at : at + n]
        out.append(with_storage(mark.shape, mark.dtype, device.name, memory))
        at += -(-n // _ALIGN) * _ALIGN
    return out


__all__ = ["Loaded", "load", "save"]
