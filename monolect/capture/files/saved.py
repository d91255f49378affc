"""Write captured steps to a file: another process loads such a step and runs it without tracing or scheduling.

What it is for: `step.save(path)`; `loaded` reads the file. One file holds the captures of the current environment:
their kernels, the constants that they read, and the tensors that they read and update. It holds no code: programs come
from the user's own cache, or are compiled.
What it is not: an exchange format. A file fits this version of the format, and the devices `cpu` and `c`: a step is
lowered for the target of the process that loads it.
Invariant: a file that `save` writes can be loaded: its kernels are proven before it is written.

Layout: a header, JSON, the graphs of the captures as text with a form feed between them, and arrays, each at a multiple
of 64 bytes.
"""

from __future__ import annotations

import json
import os
import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from monolect.backend.base import Portable
from monolect.backend.registry import Device
from monolect.base.disk.files import write_whole
from monolect.base.disk.hashing import blake2b
from monolect.base.errors import (
    DeviceError,
    DTypeError,
    FileFormatError,
    JitError,
    VerifyError,
)
from monolect.base.numpy import np
from monolect.capture.captured import Captured, Spec
from monolect.capture.donated import Donation
from monolect.capture.environment.dependencies import Dependencies
from monolect.capture.files.plain_values import encode
from monolect.capture.gradients import as_buffer, is_supplied
from monolect.capture.returned import Leaf
from monolect.command.forms import buffer_bytes
from monolect.ir.ops import ParamArg
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, node, shape_source, toposort
from monolect.runtime.replay import stored
from monolect.runtime.replay.in_progress import NotKept
from monolect.tensor import random as random_state
from monolect.tensor.tensor import Tensor

FORMAT = 16  # version of the format; a change of the stored data must increase it, which a test checks
MAGIC = b"MONOSTEP"
HEADER = struct.Struct("<8sIQQQ32s")  # magic, FORMAT, bytes of the JSON, of the text, of the arrays; checksum of these
ALIGN = 64  # bytes; each array starts at a multiple of it
NEXT = "\f"  # separates two graphs
NONE, NOT_KEPT = "none", "not kept"  # gradient states; a supplied one is stored as its leaf flag
DEVICES = ("cpu", "c")


class Step(Protocol):
    """The attributes of a `Jit` that `save` reads.
    It is a Protocol, as this module does not import `Jit`.
    """

    captures: OrderedDict[Any, Captured]
    donation: Donation
    environment: Dependencies
    parameters: tuple[str, ...]


# ---- saving ----------------------------------------------------------------------------------------------------------
def save(jit: Step, path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
    """Write the captures of the step `jit` that fit its current environment to the file `path`.

    `tensors`: the step's external Tensors by the names to save them under. Raises JitError or DeviceError for a step
    that cannot be saved. Raises DTypeError if a value of `tensors` is no Tensor.
    """
    tensors = {**getattr(jit, "tensors", {}), **tensors}  # a loaded step keeps the names of its tensors
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise DTypeError(f"save: {name!r}", expected="a Tensor", found=type(t).__name__)
    captures = current(jit)
    writer = _Writer(device_of(captures), tensors)
    steps = {c._replace(spec=_normalized_spec(c.spec)).key: writer.capture_data(c) for c in captures}
    parts, texts = zip(*steps.values(), strict=True)
    donation = jit.donation
    head = {
        "device": writer.device.name,
        "parameters": jit.parameters,
        "steps": parts,
        "tensors": [(*writer.known[id(t)], writer.array(as_buffer(t._uop))) for t in writer.tensors],
        "donation": {"names": donation.names, "arguments": donation.arguments},
        "arrays": [(b.dtype.short, b.shape) for b in writer.arrays],
    }
    text = NEXT.join(texts).encode()
    text += b"\n" * (-len(text) % ALIGN)
    body: list[Any] = [json.dumps(head).encode(), text]
    sizes = [len(part) for part in body]
    for b in writer.arrays:
        data = b.storage.view(np.uint8)[: buffer_bytes(b)]
        body += [data.data, bytes(-len(data) % ALIGN)]
    n_bytes = sum(map(len, body)) - sum(sizes)
    write_whole(path, [HEADER.pack(MAGIC, FORMAT, *sizes, n_bytes, checksum_of(body)), *body])


def current(jit: Step) -> list[Captured]:
    """Return the captures of `jit` that fit the current values of its dependencies and whose baked-in Tensors are
    unchanged. Raises JitError if there is none.
    """
    now = [c for c in jit.captures.values() if c.spec.environment == jit.environment.key]
    captures = [c for c in now if c.capture.is_current()]  # the others have old values baked in
    if not captures:
        why = "none that is current: a tensor that it returns or views was assigned" if now else "no capture"
        raise JitError("a step is saved once it is captured", expected="a call before", found=why)
    return captures


def device_of(captures: Sequence[Captured]) -> str:
    """Return the name of the device of `captures`. Raises DeviceError if there are several devices, or for a device
    that is not in DEVICES.
    """
    names = {c.capture.device.name for c in captures if c.capture.device is not None}
    names |= {device for c in captures for *_, device, _ in c.kinds}
    names |= {u.arg.device for c in captures for u in toposort(c.capture.step) if u.op == "PARAM"} - {None}
    names = names or {"cpu"}  # results may be views
    if len(names) > 1 or not names <= {*DEVICES}:
        found = sorted(map(str, names)) if len(names) > 1 else names.pop()
        raise DeviceError("a step that cannot be saved", expected="kernels on cpu or c", found=found)
    return names.pop()


def text_of(captured: Captured, device: str) -> str:
    """Return the graph of `captured` on the device named `device` as text. Raises JitError if `jit.load` would reject
    the text.
    """
    text = stored.write(captured.capture.step, _params(captured, device))
    try:
        stored.read(text, device)
    except (FileFormatError, VerifyError) as e:
        expected = "kernels whose indices are proven to stay inside"
        raise JitError("a step that cannot be saved", expected=expected, found=e.describe()) from e
    return text


def on_device(text: str, old: str, new: str) -> str:
    """Return `text`, the graph of a capture, with the device name `old` replaced by `new`."""
    return text.replace(f'device="{old}"', f'device="{new}"')


def _normalized_spec(spec: Spec) -> Spec:
    """Return `spec` with its last setting, that of compiler diagnostics, set to 0, because a loaded step does not
    depend on this setting.
    """
    return spec._replace(steering=(*spec.steering[:-1], 0))


def checksum_of(parts: list[Any]) -> bytes:
    """Return the checksum of `parts`, the byte strings of a file that follow its header, in order."""
    state = blake2b(digest_size=32)
    for part in parts:
        state.update(part)
    return state.digest()


class _Writer:
    """A writer that numbers the tensors and arrays of captures, and describes captures as JSON.

    `device`: name of their device. `names`: the external Tensors by name. Raises DeviceError unless the device is `cpu`
    or `c`.
    """

    def __init__(self, device: str, names: Mapping[str, Tensor]) -> None:
        self.device: Any = Device[device]
        if not isinstance(self.device, Portable):
            raise DeviceError("a step that cannot be saved", expected="kernels on cpu or c", found=device)
        self.names = {id(t): name for name, t in names.items()} | random_state.names()
        self.tensors: list[Tensor] = []
        self.known: dict[int, tuple[str, bool]] = {}  # name and leaf flag, by id of a tensor
        self.arrays: dict[UOp, int] = {}

    def capture_data(self, captured: Captured) -> tuple[dict[str, Any], str]:
        """Return (description of `captured` as JSON data, text of its graph)."""
        outside = captured.capture.outside()
        text = text_of(captured, self.device.name)
        positions = iter(captured.spec.positions or range(len(captured.kinds)))
        leaves = map(self.leaf, captured.leaves)
        n_args = len(captured.kinds) - len(captured.supplied_gradients)
        return {
            "args": encode(captured.spec.args, lambda _: next(positions), "an argument"),
            "kwargs": encode(captured.spec.kwargs, lambda _: next(positions), "an argument"),
            "leaves": [wants_gradient for *_, wants_gradient in captured.kinds[:n_args]],
            "steering": captured.spec.steering[:-1],
            "results": encode(captured.template, lambda _: next(leaves), "a result"),
            "moves": [*map(self.number_of, outside.moves)],
            "in_place": [*map(self.number_of, outside.in_place)],
            "reads": [*map(self.number_of, outside.reads)],
            "constants": [*map(self.array, outside.constants)],
            "graded": [*map(self.number_of, captured.gradient_targets)],
            "found": [*(self.number_of(t) for t, _ in captured.initial_gradients)],
            "states": [*(_stored_state(g) for _, g in captured.initial_gradients)],
            "cleared": self.numbers_of_known(captured.cleared),
            "used_up": self.numbers_of_known(captured.consumed),
            "dropped": self.numbers_of_known(captured.dropped),
            "lost": sorted(captured.without_graph),
            "checks": captured.checks,
            "shared": [[self.number_of(t), self.leaf(g)] for t, g in captured.aliased_gradients],
        }, text

    def number_of(self, t: Any) -> int | list[int]:
        """Return how the file refers to a Tensor: the int `t` for the argument at this position, or [number] for the
        external Tensor `t`, which gets a new number if it has none.
        """
        if t.__class__ is int:
            return int(t)
        if id(t) not in self.known:
            self.known[id(t)] = (self.names.get(id(t), str(len(self.tensors))), t.requires_grad)
            self.tensors.append(t)
        return [next(k for k, x in enumerate(self.tensors) if x is t)]

    def leaf(self, leaf: Leaf) -> Any:
        """Return, as JSON, the rule `leaf` to rebuild a Tensor of the results.

        The rule is the index of the computed value, or {"given": `number_of` the argument or external Tensor that the
        result is}.
        """
        return leaf.value if leaf.value >= 0 else {"given": self.number_of(leaf.root)}

    def numbers_of_known(self, tensors: list[Any]) -> list[Any]:
        """Return `number_of(t)` for each `t` of `tensors` that is an argument or an external Tensor with a number.

        Other Tensors are left out, since a loaded step cannot reach them.
        """
        return [self.number_of(t) for t in tensors if t.__class__ is int or id(t) in self.known]

    def array(self, b: UOp) -> int:
        return self.arrays.setdefault(b, len(self.arrays))


def _params(captured: Captured, device: str) -> list[UOp]:
    """Return the PARAMs of the step of `captured`, by slot, with memory on `device`.

    PARAMs of results and sizes are as captured; others fit the memory that is bound now.
    """
    known = {
        p.arg.slot: p for p in (*captured.capture.variables, *(_memory(u) for u in captured.capture.step.src[0].src))
    }
    for slot, u in captured.capture.bound_now().items():
        known.setdefault(slot, _param(slot, u, device))
    for slot, k in enumerate(captured.kinds):
        known.setdefault(slot, node("PARAM", (k[0],), ParamArg(slot, k[1], k[2], "GLOBAL")))
    return [known[k] for k in range(len(captured.capture.roles))]


def _memory(u: UOp) -> UOp:
    return memory_of(u.src[0] if u.op == "AFTER" else u)


def _param(slot: int, b: UOp, device: str) -> UOp:
    return node("PARAM", (shape_source(b.shape),), ParamArg(slot, b.dtype, device, "GLOBAL"))


def _stored_state(g: Any) -> Any:
    """Return `g`, the `gradient_state` of a gradient, as JSON: the leaf flag if the gradient is an input of each call,
    else NONE or NOT_KEPT.

    Raises JitError for a gradient that is a view.
    """
    if is_supplied(g):
        return g[-1]
    if g is not None and g is not NotKept:
        raise JitError("a step that cannot be saved", expected="gradients with memory of their own", found="a view")
    return NONE if g is None else NOT_KEPT


__all__ = [
    "ALIGN",
    "DEVICES",
    "FORMAT",
    "HEADER",
    "MAGIC",
    "NEXT",
    "NONE",
    "NOT_KEPT",
    "checksum_of",
    "current",
    "device_of",
    "on_device",
    "save",
    "text_of",
]
