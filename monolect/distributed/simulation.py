"""Predict what a training step costs on a mesh of devices that this machine does not have.

What it is for: `Mesh` over null devices, from two to thousands: seconds, messages and memory of a step, before anyone
pays for the cluster. The step is an ordinary function of Tensors; its plan is the one that the compiler makes.
What it is not: a measurement. `command/cluster.py` says what the model of the hardware leaves out.

If all devices run one program, the plan is that of the first device, whose parts are the largest. All send the same
messages in the same order, each to the devices of one group, so no two wait for each other. Where devices run different
programs, such as the stages of a pipeline, the plan of all devices is made, and their lists of items are run side by
side with messages that wait (`command/rendezvous.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from monolect.base.errors import ArgumentError
from monolect.base.settings import Context
from monolect.command.cluster import Hardware, hardware_of, kernel_seconds, message_of
from monolect.command.estimate import estimate
from monolect.command.forms import (
    base_of,
    buffer_bytes,
    calls_in,
    home,
    is_scalar,
    is_size,
    items_of,
    operands_of,
    program_of,
    roles,
)
from monolect.command.rendezvous import Part, ends
from monolect.command.timeline import Span, overlap, timeline, touched
from monolect.ir.collective import exchange_of
from monolect.ir.placement import device as device_of
from monolect.ir.uop import UOp, toposort
from monolect.runtime.realize.execute import batches_to
from monolect.runtime.simulated import planned_step
from monolect.schedule.rewrites.shard import shard
from monolect.tensor.tensor import Tensor
from monolect.tensor.tree import flatten

MOST_DIFFERENT = 64  # devices that may run different programs: all their items are planned


class Memory(NamedTuple):
    """Bytes of one device. `arguments`: tensors that the step reads, such as parameters, the optimizer's state and the
    batch. `results`: tensors that it makes. `intermediates`: the largest set of other values that are alive at once.
    """

    arguments: int
    results: int
    intermediates: int

    @property
    def total(self) -> int:
        """Bytes that the step needs."""
        return sum(self)


class Values(NamedTuple):
    """`n` values of one size and dtype: "arguments", or "intermediates", not all of which are alive at once."""

    kind: str
    n: int
    n_bytes: int  # of all of them
    what: str


class Prediction(NamedTuple):
    """The costs of a step on each of `n_devices` devices of `hardware`.

    `seconds`: of a step. `kernel_seconds`, `message_seconds`: of its kernels and messages, each alone; messages overlap
    with kernels that do not wait for them. `operations`: arithmetic operations of a device. `sent`: bytes that a device
    sends, by the name of the collective. `n_kernels`, `n_messages`: the items of a device's program. `largest`: which
    arguments and intermediates take most bytes.
    """

    n_devices: int
    hardware: Hardware
    seconds: float
    kernel_seconds: float
    message_seconds: float
    operations: int
    sent: dict[str, int]
    n_kernels: int
    n_messages: int
    memory: Memory
    largest: tuple[Values, ...]

    @property
    def exposed(self) -> float:
        """The share of the messages' seconds that no kernel hides: 0 if all are hidden, 1 if none is."""
        shown = max(0.0, self.seconds - self.kernel_seconds)
        return min(1.0, shown / self.message_seconds) if self.message_seconds else 0.0

    @property
    def fits(self) -> bool:
        """Whether the step fits into the memory of a device."""
        return self.memory.total <= self.hardware.memory_bytes

    def __str__(self) -> str:
        m, room = self.memory, self.hardware.memory_bytes
        sent = ", ".join(f"{name} {_bytes(n)}" for name, n in sorted(self.sent.items())) or "nothing"
        parts = ", ".join(f"{name} {_bytes(n)}" for name, n in zip(m._fields, m, strict=True))
        verdict = "fits" if self.fits else f"DOES NOT FIT, by {_bytes(m.total - room)}"
        milliseconds = [f"{s * 1e3:.4g} ms" for s in (self.seconds, self.kernel_seconds, self.message_seconds)]
        lines = [
            f"{self.n_devices} devices, a prediction:",
            f"  {milliseconds[0]} a step: {self.n_kernels} kernels {milliseconds[1]}, "
            f"{self.n_messages} messages {milliseconds[2]}, of which {self.exposed:.0%} are exposed",
            f"  {self.operations:.4g} operations a device; it sends: {sent}",
            f"  {_bytes(m.total)} of {_bytes(room)} a device ({verdict}): {parts}",
        ]
        if not self.fits:
            lines += [f"    {v.kind}: {v.n} of {v.what}, {_bytes(v.n_bytes)} together" for v in self.largest]
        return "\n".join(lines)


def _bytes(n: float) -> str:
    """Return a number of bytes as text, in units of powers of 1,000."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.4g} {unit}"
        n /= 1000
    return f"{n:.4g} TB"


def simulate(step: Callable[..., Any], *args: Any, hardware: str | Hardware = "h100") -> Prediction:
    """Return what one call `step(*args)` costs on the null devices that its tensors are on; it computes nothing.

    The step builds and realizes Tensors as on any mesh; what it returns is realized, too. `hardware`: a name in
    `command.cluster.HARDWARE`, or a Hardware with own numbers. Several batches run one after the other. Where devices
    run different programs, as the stages of a pipeline do, the costs are those of the device that needs most time and
    of the one that needs most memory. Raises ArgumentError for unknown hardware, and for a step that computes nothing
    on several null devices; DeviceError where more than MOST_DIFFERENT devices run different programs; DistributedError
    where devices would wait for each other.

    >>> from monolect.distributed import simulate
    >>> mesh = Mesh(("data",), (512,), [f"null:{i}" for i in range(512)])
    >>> x, w = Tensor.ones(4096, 64).shard(mesh).realize(), Tensor.ones(64, 64).replicate(mesh).realize()
    >>> found = simulate(lambda: (x @ w).sum(), hardware="h100")
    >>> found.sent, found.operations, found.fits  # 8 rows a device; a number of 4 bytes is summed over all
    ({'allreduce': 8}, 66048, True)
    """
    hw = hardware_of(hardware)
    batches: dict[tuple[int, ...], list[UOp]] = {}  # a batch may come by twice

    def note(values: list[UOp], device: str) -> None:
        batches[tuple(map(id, values))] = values

    with Context(CHECK_BOUNDS=0), batches_to(note):  # indices have no values to check
        out: list[Tensor] = []
        flatten(getattr(step, "__wrapped__", step)(*args), out)
        if out:
            out[0].realize(*out[1:])
    found = [(b, groups) for b in batches.values() if sum(map(len, groups := _groups(b))) > 1]
    if not found:
        expected = 'a step that computes tensors on a Mesh of "null:0", "null:1", ...'
        raise ArgumentError("simulate: a step", expected=expected, found="no values on several null devices")
    return _together([_predicted(b, groups, hw) for b, groups in found])


def _groups(batch: Sequence[UOp]) -> list[tuple[str, ...]]:
    """Return the null devices of a batch in groups that have values together, without the first device of a group."""
    names = {device_of(u) for u in toposort(*batch) if u.op in ("BUFFER", "LOAD")} | {*map(device_of, batch)}
    groups = [(d,) if isinstance(d, str) else d for d in names if d is not None]
    groups = [d for d in groups if _is_null(d[0])]
    firsts = {d[0] for d in groups if len(d) > 1}
    return [d for d in groups if len(d) > 1 or d[0] not in firsts]


def _is_null(name: str) -> bool:
    return name.partition(":")[0] == "null"


def _predicted(batch: Sequence[UOp], groups: Sequence[tuple[str, ...]], hw: Hardware) -> Prediction:
    """Return what one batch costs. `groups`: the devices that have values together."""
    if len(groups) > 1 and len({d for group in groups for d in group}) <= MOST_DIFFERENT:
        return _apart(batch, hw)
    step = planned_step(batch)
    items = calls_in(items_of(program_of(step)))
    messages = [message_of(c, hw.per_host) for c in items]
    seconds = [kernel_seconds(c, hw) if m is None else m.seconds(hw) for c, m in zip(items, messages, strict=True)]
    sent: dict[str, int] = {}
    for c, m in zip(items, messages, strict=True):
        if m is not None:
            name = exchange_of(c.src[0]).name  # type: ignore[union-attr]
            sent[name] = sent.get(name, 0) + round(m.inside + m.between)
    when = timeline(items, seconds)
    n_messages = sum(m is not None for m in messages)
    return Prediction(
        next(len(d) for d in map(device_of, batch) if isinstance(d, tuple)),
        hw,
        when.seconds,
        when.kernel_seconds,
        when.message_seconds,
        sum(estimate(c)[0] for c, m in zip(items, messages, strict=True) if m is None),
        sent,
        len(items) - n_messages,
        n_messages,
        _memory(step, items),
        tuple(_largest(items)),
    )


def _apart(batch: Sequence[UOp], hw: Hardware) -> Prediction:
    """Return what a batch costs whose devices run different programs."""
    step = planned_step(batch, shard)
    items = calls_in(items_of(program_of(step)))
    lists: dict[str, list[Part]] = {}
    own: dict[str, list[UOp]] = {}
    messages: list[tuple[int, list[Span]]] = []
    for k, c in enumerate(items):
        at = [home(base_of(u), "null") for u in operands_of(c) if not is_scalar(u)]
        spans = touched(c)
        needs = frozenset(key for key, other in messages if overlap(spans, other))
        part = Part(k, frozenset(filter(_is_null, at)), _seconds(c, at[0], at[-1], hw), needs)
        if len(part.devices) > 1:
            messages.append((k, spans))
        for d in part.devices:
            lists.setdefault(d, []).append(part)
            own.setdefault(d, []).append(c)
    end = ends(lists)
    last = max(end, key=end.__getitem__)
    fullest = max(own, key=lambda d: _memory(step, own[d], d).total)
    kernels = [p for p in lists[last] if len(p.devices) == 1]
    copies = [p for p in lists[last] if len(p.devices) > 1]
    copied = [c for c in own[last] if c.op == "STORE" and home(base_of(operands_of(c)[1]), "null") == last]
    n_bytes = sum(buffer_bytes(c.src[0]) for c in copied if home(base_of(c.src[0]), "null") != last)
    return Prediction(
        len(lists),
        hw,
        end[last],
        sum(p.seconds for p in kernels),
        sum(p.seconds for p in copies),
        sum(estimate(items[p.key])[0] for p in kernels),
        {"copy": n_bytes} if n_bytes else {},
        len(kernels),
        len(copies),
        _memory(step, own[fullest], fullest),
        tuple(_largest(own[fullest])),
    )


def _seconds(item: UOp, to: str, source: str, hw: Hardware) -> float:
    """Return the seconds of a kernel, or of a copy from the device `source` to the device `to`; what comes from the
    host's own memory is a kernel.
    """
    if to == source or not _is_null(source):
        return kernel_seconds(item, hw)
    hosts = {int(name.partition(":")[2] or 0) // hw.per_host for name in (to, source)}
    link = hw.inside if len(hosts) == 1 else hw.between
    return link.latency + 2 * link.overhead + buffer_bytes(item.src[0]) / link.rate


def _memory(step: UOp, items: Sequence[UOp], device: str = "") -> Memory:
    """Return the bytes that the memory of a planned step takes, on `device` if it is given. `items`: the kernels,
    copies and messages that touch it.
    """
    bases = dict.fromkeys(b for c in items for b in map(base_of, operands_of(c)) if b.op in ("PARAM", "BUFFER"))
    bases = dict.fromkeys(b for b in bases if not device or home(b, "null") == device)
    params = [b for b in bases if b.op == "PARAM" and not is_size(b)]
    results = sum(buffer_bytes(b) for b in params if roles(step)[b.arg.slot] == "result")
    buffers = sum(buffer_bytes(b) for b in bases if b.op == "BUFFER")
    return Memory(sum(map(buffer_bytes, params)) - results, results, buffers)


def _largest(items: Sequence[UOp]) -> list[Values]:
    """Return the sizes of values that take most bytes, three of arguments and three of intermediates."""
    views = dict.fromkeys(u for c in items for u in operands_of(c) if base_of(u).op in ("PARAM", "BUFFER"))
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for u in views:
        is_argument = base_of(u).op == "PARAM"
        key = "arguments" if is_argument else "intermediates", f"{u.dtype.name}{list(u.shape)}"
        n, n_bytes = found.get(key, (0, 0))
        found[key] = n + 1, n_bytes + buffer_bytes(u)
    rows = sorted((Values(kind, n, size, what) for (kind, what), (n, size) in found.items()), key=lambda v: -v.n_bytes)
    return [v for kind in ("arguments", "intermediates") for v in [r for r in rows if r.kind == kind][:3]]


def _together(parts: Sequence[Prediction]) -> Prediction:
    """Return what batches cost that run one after the other."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for p in parts for name in p.sent)
    largest = max(parts, key=lambda p: p.memory.total)
    sums = {f: sum(getattr(p, f) for p in parts) for f in
            ("seconds", "kernel_seconds", "message_seconds", "operations", "n_kernels", "n_messages")}  # fmt: skip
    return parts[0]._replace(
        **sums,
        sent={name: sum(p.sent.get(name, 0) for p in parts) for name in names},
        memory=largest.memory,
        largest=largest.largest,
    )


__all__ = ["Memory", "Prediction", "simulate"]
