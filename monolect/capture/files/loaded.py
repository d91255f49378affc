"""Load a captured step from a file that `saved` wrote.

What it is for: `jit.load(path)`. The captures in the file are read and checked; their programs come from the user's
caches, or are compiled.
Invariant: reading a file runs nothing that is in it. Its contents are checked as if an attacker had written them;
kernels are verified, and each of their indices is proven to be in bounds (`runtime/replay/stored.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.base.errors import (
    ArgumentError,
    DeviceError,
    FileFormatError,
    JitError,
    MonolectError,
)
from monolect.base.numpy import np
from monolect.base.settings import STEERING, Context, settings
from monolect.capture.captured import Captured, Spec, is_flat
from monolect.capture.donated import Donation
from monolect.capture.files.plain_values import decode
from monolect.capture.files.saved import (
    ALIGN,
    DEVICES,
    FORMAT,
    HEADER,
    MAGIC,
    NEXT,
    NONE,
    NOT_KEPT,
    checksum_of,
    on_device,
)
from monolect.capture.gradients import gradient_state
from monolect.capture.returned import Leaf
from monolect.capture.step import Jit
from monolect.command.forms import buffer_bytes
from monolect.ir.binary import DTYPES
from monolect.ir.check.custom_kernels import is_size
from monolect.ir.ops import BufferArg
from monolect.ir.uop import UOp, const, node, shape_source
from monolect.runtime.buffer import with_storage
from monolect.runtime.replay import stored
from monolect.runtime.replay.capture import Capture
from monolect.runtime.replay.in_progress import Check, NotKept
from monolect.runtime.replay.record import Outside, mark
from monolect.runtime.replay.stored import damaged, index
from monolect.tensor import random as random_state
from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import kind
from monolect.tensor.view import in_memory

# settings that a loaded step is compiled under again, with their saved values
_COMPILING = frozenset(("NOOPT", "BEAM", "TF32", "SIMPLIFY", "DISABLE"))


class Loaded(Jit):
    """A step that was loaded from the file at `path`. `tensors`: the Tensors that it reads and updates, by the names
    that they were saved under.

    `head`: the JSON of the file. `texts`: the graph of each capture as text. `arrays`: BUFFERs with the saved arrays.
    `given`: Tensors of the user that replace saved ones, by name. A Loaded has no Python function: a call that no saved
    capture serves raises JitError.
    """

    def __init__(
        self, path: str, head: Mapping[str, Any], texts: Sequence[str], arrays: list[UOp], given: Mapping[str, Tensor]
    ) -> None:
        super().__init__(_no_function)
        self.environment = self._find_dependencies()
        self.__name__, self.donation = path, _donation(head["donation"])
        self.parameters = tuple(map(_text, head["parameters"]))
        self.tensors: dict[str, Tensor] = {}
        for name, wants_gradient, number in head["tensors"]:
            at = index(number, len(arrays))
            self.tensors[_text(name)] = self._tensor(name, bool(wants_gradient), at, arrays, given)
        if unknown := given.keys() - self.tensors.keys():
            known = ", ".join(self.tensors) or "no tensor: the step has none"
            raise ArgumentError("jit.load: tensors", expected=known, found=", ".join(sorted(unknown)))
        if len(self.tensors) != len(head["tensors"]):
            raise damaged("the tensors of a step", "a name for each", head["tensors"])
        for data, text in zip(head["steps"], texts, strict=True):
            captured = _CaptureReader(data, self, arrays).captured(text, head["device"])
            self._add_capture(captured)

    def _tensor(
        self, name: str, wants_gradient: bool, number: int, arrays: list[UOp], given: Mapping[str, Tensor]
    ) -> Tensor:
        device = arrays[number].arg.device
        t = given[name] if name in given else None
        if t is None and name == f"random/{device}":
            t = random_state.tensor_named(name, Tensor)
        if t is None:
            t = Tensor._wrap(arrays[number])
            t.requires_grad = wants_gradient
        else:
            arrays[number] = _replacing(name, t, arrays[number])
        return t

    def __reduce__(self) -> Any:
        raise JitError(
            "a saved step is neither copied nor pickled", expected="jit.load of its file", found=self.__name__
        )

    __copy__ = __reduce__

    def __deepcopy__(self, memo: Any) -> Any:
        self.__reduce__()

    def _steering(self) -> tuple:
        return (*settings.steering[:-1], 0)  # diagnostics of the compiler were printed at loading

    def _unjitted(self) -> Any:
        expected = "the function it was saved from"
        raise JitError("a saved step is called inside a jitted function", expected=expected)

    def _capture(
        self, key: Any, args: Any, kwargs: Any, tensors: list[Tensor], nodes: list[UOp], is_outdated: bool
    ) -> Any:
        if key in self.variants:
            expected = "the gradients of a saved capture: none, or one for each tensor whose gradient it adds to"
            raise JitError("a saved step finds gradients that it was not captured for", expected=expected)
        if steerings := [k[4] for k in self.captures if k[:4] == key[:4]]:
            expected, found = " or ".join(map(_settings, steerings)), _settings(key[4])
            raise JitError("a saved step was captured under other settings", expected=expected, found=found)
        wanted = " or ".join(c.spec.describe() for c in self.captures.values())
        found = Spec(args, kwargs).describe()
        raise JitError("a saved step was not captured for these arguments", expected=wanted, found=found)


class _CaptureReader:
    """A reader of one capture of a file, which also checks its data.

    `data`: the JSON of the capture. `step`: the Loaded that the capture belongs to. `arrays`: BUFFERs with the saved
    arrays. Wrong data raises FileFormatError.
    """

    def __init__(self, data: Mapping[str, Any], step: Loaded, arrays: list[UOp]):
        self.data, self.step, self.arrays = data, step, arrays
        self.tensors = [*step.tensors.values()]

    def captured(self, text: str, device: str) -> Captured:
        """Return the capture as a Captured. Raises FileFormatError, ParseError or VerifyError if its data is wrong.
        `text`: its graph with its kernels. `device`: name of the device that it is read for.
        """
        data, steering = self.data, self.data["steering"]
        if [x.__class__ for x in steering] != [x.__class__ for x in settings.steering[:-1]]:
            raise damaged("the settings of a step", settings.steering[:-1], steering)
        compiling = {name: x for name, x in zip(STEERING, steering, strict=True) if name in _COMPILING}
        with Context(**compiling):  # compile it as it was compiled when it was saved
            step = stored.read(text, device)
            self.params, self.roles, self.moves = step.src[1:], step.arg.roles, step.arg.moves
            self.n_args = self.roles.count("argument")
            outside = self._outside()
            bound = dict(zip(self._slots("read", "constant"), outside.constants, strict=True))
            args = [bound.get(k, p) for k, p in enumerate(self.params)]
            is_computing = any(u.op == "AFTER" for u in step.src[0].src)
            step = node("FUNCTION", (step.src[0], *args), step.arg)
            capture = Capture(step, outside, device if is_computing else None)
        checks = tuple(
            [
                Check(_integer(first), _integer(n), _text(name), (_text(f), _integer(k)))
                for first, n, name, (f, k) in data["checks"]
            ]
        )
        spec, marks = self._spec((*steering, 0))
        nodes = [Tensor._wrap(v.node) for v in capture.outputs]
        template, leaves = self._results(nodes)
        keys = ("graded", "cleared", "used_up", "dropped", "found")
        gradient_targets, cleared, consumed, dropped, seen_at = map(self._tensors_at, keys)
        found = self._found(seen_at)
        if not {*map(id, dropped)} <= {id(t) for t, g in found if g is NotKept}:
            raise damaged("the gradients of a step", "sums with gradients that are not kept", data["dropped"])
        shared = [(self._tensor_at(t), self._leaf(g, nodes)) for t, g in data["shared"]]
        seen = {k.value for k in (*leaves, *(k for _, k in shared))}.difference([-1])
        n_values, n_looked = len(nodes) - 2 * len(checks) - len(gradient_targets), len(nodes) - 2 * len(checks)
        if n_values < 0 or not seen <= {*range(n_looked)}:
            raise damaged("the results of a step", f"numbers below {n_looked}", sorted(seen))
        if any(t.shape or not t.dtype.is_int for t in nodes[n_looked:]):
            raise damaged("the checks of a step", "two integers each", checks)
        for t, g in zip(gradient_targets, nodes[n_values:n_looked], strict=True):
            self._same_kind(self.params[t] if t.__class__ is int else t._uop, g._uop)
        flat = is_flat(spec.args, spec.kwargs, marks) and not (checks or self.step.donation.arguments)
        without_graph = frozenset([index(k, self.roles.count("result")) for k in data["lost"]])
        kinds = tuple(map(kind, (*marks, *self._gradients())))
        return Captured(
            capture, template, kinds, flat, gradient_targets, spec, {}, cleared, consumed, found, dropped,
            without_graph, checks, leaves, shared,
        )  # fmt: skip

    def _gradients(self) -> list[Tensor]:
        """Return a Tensor without memory for each supplied gradient: each existing gradient that is an input of a
        call.
        """
        marks = []
        n = len(self.data["leaves"])
        for b, state in zip(
            self.params[n : self.n_args], [s for s in self.data["states"] if s.__class__ is bool], strict=True
        ):
            marks.append(Tensor._wrap(mark(b)))
            marks[-1]._requires_grad = state is True
        return marks

    def _found(self, tensors: list[Any]) -> list[tuple[Any, Any]]:
        """Return (Tensor, its `gradient_state` when the step was captured) for each of `tensors`.

        Raises FileFormatError for an unknown state.
        """
        states = self.data["states"]
        brought = iter(self._gradients())
        known = {NONE: None, NOT_KEPT: NotKept}
        if not all(s.__class__ is bool or (s.__class__ is str and s in known) for s in states):
            raise damaged("the gradients of a step", "bools, or one of " + ", ".join(known), states)
        return [
            (t, gradient_state(next(brought)) if s.__class__ is bool else known[s])
            for t, s in zip(tensors, states, strict=True)
        ]

    def _outside(self) -> Outside:
        """Return the Outside of the capture: the external Tensors that are states or are read, and the constants.

        Raises FileFormatError if they do not fit the PARAMs of the step.
        """
        moves, in_place, reads = self._tensors_at("moves"), self._tensors_at("in_place"), self._tensors_at("reads")
        for n, t in zip(self.moves, moves, strict=True):
            if (t.__class__ is int) != (n < self.n_args) or (t.__class__ is int and t != n):
                raise damaged("a state of a step", "an argument by its number, or a tensor", n)
            if t.__class__ is not int:
                self._same_kind(self.params[n], t._uop)
        for n, t in zip((*self._slots("state"), *self._slots("read")), (*in_place, *reads), strict=True):
            if t.__class__ is int:
                raise damaged("a state of a step", "a tensor", t)
            self._same_kind(self.params[n], t._uop)
        states = [id(t) for t in (*moves, *in_place)]
        if len({*states}) != len(states):
            raise damaged("the states of a step", "each once", self.data["moves"])
        n = len(self.arrays)
        constants = [self.arrays[index(k, n)] for k in self.data["constants"]]
        for n, b in zip(self._slots("read", "constant"), constants, strict=True):
            self._same_kind(self.params[n], b)
        return Outside(moves, in_place, reads, constants)

    def _slots(self, *roles: str) -> list[int]:
        return [k for k, r in enumerate(self.roles) if r in roles]

    def _same_kind(self, wanted: UOp, found: UOp) -> None:
        if (wanted.shape, wanted.dtype) != (found.shape, found.dtype):
            raise damaged("memory of a step", f"{wanted.dtype.name} {wanted.shape}", found)

    def _tensors_at(self, key: str) -> list[Any]:
        """Return the Tensors in the list with the key `key` in the file: an argument as its position, an external
        Tensor as itself.
        """
        return [*map(self._tensor_at, self.data[key])]

    def _tensor_at(self, x: Any) -> Any:
        if x.__class__ is int:
            return index(x, self.n_args)
        (k,) = x
        return self.tensors[index(k, len(self.tensors))]

    def _leaf(self, x: Any, nodes: list[Tensor]) -> Leaf:
        return Leaf(-1, self._tensor_at(x["given"])) if x.__class__ is dict else Leaf(index(x, len(nodes)))

    def _results(self, nodes: list[Tensor]) -> tuple[Any, tuple[Leaf, ...]]:
        """Return (template of the results, a Leaf for each Tensor in the template).

        `nodes`: the Tensors of the capture's outputs, to which the numbers in the file refer.
        """
        leaves: list[Leaf] = []
        hole = Tensor._wrap(const(0, dtypes.bool))

        def leaf(x: Any) -> Tensor:
            leaves.append(self._leaf(x, nodes))
            return hole

        return decode(self.data["results"], leaf), tuple(leaves)

    def _spec(self, steering: tuple) -> tuple[Spec, list[Tensor]]:
        """Return (Spec of the calls that the capture serves, a Tensor without memory for each Tensor in their
        arguments).

        `steering`: the values of the settings that change a traced graph, a field of the Spec. Raises FileFormatError
        if the arguments do not fit the step.
        """
        marks: list[Tensor] = []
        n_args = min(len(self.data["leaves"]), self.n_args)
        for b, wants_gradient in zip(self.params[:n_args], self.data["leaves"], strict=True):
            marks.append(Tensor._wrap(mark(b)))
            marks[-1]._requires_grad = wants_gradient is True
        args, positions = _decoded(self.data["args"], marks)
        kwargs, more = _decoded(self.data["kwargs"], marks)
        positions += more
        twice = len(positions) > len(marks)
        if [*dict.fromkeys(positions)] != [*range(len(marks))] or args.__class__ is not tuple:
            raise damaged("the arguments of a step", f"{len(marks)} Tensors, in order", positions)
        if kwargs.__class__ is not dict or not all(k.__class__ is str for k in kwargs):
            raise damaged("the arguments of a step", "names", kwargs)
        environment = self.step.environment
        return Spec(
            args, kwargs, environment.key, tuple(positions) if twice else (), environment.attributes, steering
        ), marks


def _settings(steering: tuple) -> str:
    return " ".join(f"{name}={value}" for name, value in zip(STEERING, steering, strict=False))


def _decoded(data: Any, tensors: Sequence[Tensor]) -> tuple[Any, list[int]]:
    """Return (the tree that `encode` wrote as `data`, the numbers of its Tensors in order). The numbers are indices of
    `tensors`.
    """
    numbers: list[int] = []

    def leaf(k: Any) -> Tensor:
        numbers.append(index(k, len(tensors)))
        return tensors[k]

    return decode(data, leaf), numbers


def _no_function(*_: Any, **__: Any) -> None:
    """Serve as the function of a loaded step, which has no Python code; it is never called."""


def _donation(data: Mapping[str, Any]) -> Donation:
    new = Donation(None, ())
    new.names = tuple([_text(x) if x.__class__ is str else _integer(x) for x in data["names"]])
    for position, name in data["arguments"]:
        new.arguments.append(
            (position if position is None else _integer(position), name if name is None else _text(name))
        )
    return new


def _replacing(name: str, t: Tensor, saved: UOp) -> UOp:
    """Return the BUFFER of `t`, the user's tensor that replaces the saved tensor `name`, whose BUFFER is `saved`.

    Raises ArgumentError if the shape, dtype or device of `t` differs, or if `t` is a view. `name` is used only in the
    error.
    """
    if t.shape != saved.shape or t.dtype is not saved.dtype or t.device != saved.arg.device:
        expected, found = (f"{x.dtype.name} {x.shape} on {d}" for x, d in ((saved, saved.arg.device), (t, t.device)))
        raise ArgumentError(f"jit.load: tensor {name}", expected=expected, found=found)
    if t._is_view and in_memory(t) is not t:
        raise ArgumentError(f"jit.load: tensor {name}", expected="a tensor with memory of its own", found="a view")
    t.realize()
    if t._uop.op != "BUFFER":
        t._uop = t.contiguous().realize()._uop
    return t._uop


def load(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor] | None = None, device: str | None = None
) -> Loaded:
    """Return the step in the file at `path`, which `step.save` wrote.

    `tensors`: Tensors that replace some of the step's external Tensors, by name. `device`: name of the device to load
    the step for; None means the device that it was saved on. Raises FileFormatError, ParseError or VerifyError for a
    wrong file, DeviceError for a device that is not in DEVICES, ArgumentError for `tensors` that do not fit.
    """
    name = os.fspath(path)
    if device is not None and device not in DEVICES:
        raise DeviceError("jit.load: device", expected=DEVICES, found=str(device)[:80])
    with open(name, "rb") as f:
        header = f.read(HEADER.size)
        if len(header) < HEADER.size or header[: len(MAGIC)] != MAGIC:
            raise FileFormatError(f"{name} is no saved step", expected=MAGIC, found=header[: len(MAGIC)])
        _, version, n_json, n_text, n_arrays, checksum = HEADER.unpack(header)
        if version != FORMAT:
            raise FileFormatError(f"{name}: a step of another format", expected=FORMAT, found=version)
        wanted, size = HEADER.size + n_json + n_text + n_arrays, os.fstat(f.fileno()).st_size
        if size != wanted:
            raise FileFormatError(f"{name} is not whole", expected=f"{wanted} bytes", found=f"{size} bytes")
        body = np.empty(size - HEADER.size, np.uint8)
        f.readinto(body.data)
    if (computed := checksum_of([body.data])) != checksum:
        raise FileFormatError(f"{name} is damaged", expected=checksum.hex(), found=computed.hex())
    try:
        head = json.loads(body[:n_json].tobytes())
        texts = body[n_json : n_json + n_text].tobytes().decode().rstrip("\n").split(NEXT)
        if head["device"] not in DEVICES:
            raise DeviceError(f"{name}: a step for another device", expected=DEVICES, found=str(head["device"])[:80])
        if device is not None:
            texts = [on_device(text, head["device"], device) for text in texts]
            head = _for_device(head, device)
        arrays = _arrays(head["arrays"], body[n_json + n_text :], Device[head["device"]])
        return Loaded(name, head, texts, arrays, tensors or {})
    except MonolectError:
        raise
    except Exception as e:  # any error of data that `save` does not write
        found = f"{type(e).__name__}: {e}"[:200]
        raise FileFormatError(f"{name} cannot be read", expected="what `save` writes", found=found) from e


def _for_device(head: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Return `head`, the JSON of a step, adapted to the device named `device`.

    Its random state becomes that of the device, and the value of the setting DEVICE that of the loading process.
    """
    random = {f"random/{head['device']}": f"random/{device}"}
    tensors = [(random.get(name, name), *rest) for name, *rest in head["tensors"]]
    at = STEERING.index("DEVICE")
    steps = [{**s, "steering": [*s["steering"][:at], settings.DEVICE, *s["steering"][at + 1 :]]} for s in head["steps"]]
    return {**head, "device": device, "tensors": tensors, "steps": steps}


def _arrays(kinds: Sequence[Any], data: np.ndarray, device: Any) -> list[UOp]:
    marks = []
    for dtype, sizes in kinds:
        if not all(is_size(n) for n in sizes) or DTYPES[dtype].kind in "vx":
            raise damaged("an array of a step", "a dtype and sizes", (dtype, sizes))
        marks.append(node("BUFFER", (shape_source(sizes),), BufferArg(0, DTYPES[dtype], device.name)))
    n_bytes = [-(-buffer_bytes(m) // ALIGN) * ALIGN for m in marks]
    if sum(n_bytes) != len(data):
        raise damaged("the arrays of a step", f"{sum(n_bytes)} bytes", len(data))
    out, at = [], 0
    for m, padded in zip(marks, n_bytes, strict=True):
        n = buffer_bytes(m)
        memory = device.alloc(n)
        memory.view(np.uint8)[:n] = data[at : at + n]
        out.append(with_storage(m.shape, m.dtype, device.name, memory))
        at += padded
    return out


def _integer(x: Any) -> int:
    if x.__class__ is not int:
        raise damaged("a value of a step", "an integer", x)
    return int(x)


def _text(x: Any) -> str:
    if x.__class__ is not str:
        raise damaged("a value of a step", "a text", x)
    return str(x)


__all__ = ["Loaded", "load"]
