"""Record which kernels ran, their times and origins: the lines of DEBUG=2, the kernel table, the totals of DEBUG=1.

Operations and bytes are estimates (`command/estimate.py`).
"""

from __future__ import annotations

import atexit
import sys
from math import prod
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from monolect.backend.base import Program
from monolect.backend.common.host import memory
from monolect.backend.registry import Device
from monolect.base.settings import settings
from monolect.command.estimate import estimate
from monolect.command.forms import base_of, is_allreduce, kernel_of, operands_of
from monolect.ir.uop import UOp, toposort


class KernelRun(NamedTuple):
    """One run of a kernel, a row of `kernel_table`."""

    name: str
    call: UOp  # CALL(PROGRAM, operands...)
    time_ns: int
    n_ops: int
    n_bytes: int


recording = False
runs: list[KernelRun] = []
totals = {"kernels": 0, "time_ns": 0, "n_ops": 0, "n_bytes": 0}
counts = {"kernels": 0, "schedules": 0, "schedule_ns": 0, "compile_ns": 0}
_ADDRESS_OPS = frozenset(("CONST", "PARAM", "BUFFER", "RANGE", "STACK", "INDEX"))  # compute no value of the user's


def record(calls: tuple[UOp, ...], times: list[int], replayed: bool = False) -> None:
    """Record one timed run of `calls`; `times` are nanoseconds.

    At DEBUG=2, print a line for each CALL, and for a batch that was not replayed the peak memory so far. Register the
    printing of the totals at exit.
    """
    if not totals["kernels"]:
        atexit.register(show_totals)
    for call, ns in zip(calls, times, strict=True):
        n_ops, n_bytes = estimate(call)
        run = KernelRun(name_of(call), call, ns, n_ops, n_bytes)
        totals["kernels"] += 1
        totals["time_ns"] += ns
        totals["n_ops"] += n_ops
        totals["n_bytes"] += n_bytes
        if recording:
            runs.append(run)
        if "cmds" in settings.tracing:
            print(line(totals["kernels"], run, replayed), file=sys.stderr)
    if "cmds" in settings.tracing and calls and not replayed:
        print(
            f"      ran {len(calls)} in {sum(times) / 1e3:.1f} us; {peaks(Device[device_of(calls[0])])}",
            file=sys.stderr,
        )


def name_of(item: UOp) -> str:
    """Return the name of the program that `item`, a CALL, launches; "copy" for a copy between devices."""
    return str(item.src[0].arg.name) if item.op == "CALL" else "copy"


def show_totals() -> None:
    """Print the total time, GFLOP/s and GB/s of all timed kernels, for DEBUG=1."""
    if "totals" in settings.tracing:
        ns = max(1, totals["time_ns"])
        text = f"{totals['kernels']} kernels in {ns / 1e6:.1f} ms, {totals['n_ops'] / ns:.2f} GFLOP/s"
        text += f", {totals['n_bytes'] / ns:.2f} GB/s, {counts['schedules']} plans"
        print(f"{text}, at most {memory.stats().peak_bytes / 1e6:.1f} MB of host memory", file=sys.stderr)


def line(number: int, k: KernelRun, replayed: bool = False) -> str:
    """Return one line of text for a kernel run: number, device, name, class, buffers, time, GFLOP/s, GB/s, the user's
    line.

    A replayed run is marked with "r" and printed in green.
    """
    ns = max(1, k.time_ns)
    dev = device_of(k.call)
    text = f"{number:5}{'r' if replayed else ' '} {dev:7} {k.name:36} {how(k.call):16}"
    text += f" {len(operands_of(k.call)):3} buffers {ns / 1e3:10.1f} us"
    text += f" {k.n_ops / ns:8.2f} GFLOP/s {k.n_bytes / ns:8.2f} GB/s  {origin_of(k.call)}".rstrip()
    return text if settings.NO_COLOR or not sys.stderr.isatty() else f"\033[{32 if replayed else 36}m{text}\033[0m"


_classes: WeakKeyDictionary[UOp, str] = WeakKeyDictionary()


def how(item: UOp) -> str:
    """Return the class of the kernel of `item`; for an allreduce how its bytes move, for a copy where they go."""
    if item.op != "CALL":
        return f"to {device_of(item)}"
    if not is_allreduce(item):
        return class_of(item)
    first, devices = operands_of(item)[0], [Device[str(base_of(u).arg.device)] for u in operands_of(item)]
    n_bytes = prod(first.shape) * first.dtype.itemsize
    return str(devices[0].transport.path([d.rank for d in devices][: len(devices) // 2], n_bytes))


def class_of(call: UOp) -> str:
    """Return the name of the class of a CALL's kernel (`optimize/classes.py`).

    It is "" for native code of the user's, for kernels that pack constants, and while TRACE prints rules, as the passes
    that show a kernel's loops would print theirs again. The compiler is imported here: other runs may not need it.
    """
    sink = kernel_of(call)
    if sink.op != "SINK" or (sink.arg is not None and sink.arg.fills) or "rules" in settings.tracing:
        return ""
    if (found := _classes.get(sink)) is None:
        from monolect.optimize.classes import classify  # imported only for DEBUG=2 and explanations
        from monolect.pipeline import ready_kernel  # imported only for DEBUG=2 and explanations

        found = _classes[sink] = str(classify(ready_kernel(sink, Device[device_of(call)].target)))
    return found


def device_of(item: UOp) -> str:
    """Return the name of the device that a CALL runs on, or that a copy goes to."""
    return next((str(b.arg.device) for b in map(base_of, operands_of(item))), "cpu")


def peaks(device: Any) -> str:
    """Return a text with the peak memory so far: of the host, and of a device that has its own memory."""
    text = f"host peak {memory.stats().peak_bytes / 1e6:.1f} MB"
    own = getattr(getattr(device, "memory", None), "peak_bytes", None)
    return text if own is None else f"{text}, {device.name} peak {own / 1e6:.1f} MB"


def compiled(schedule_ns: int, compile_ns: int, n_kernels: int, n_programs: int) -> None:
    """Count a new plan; at DEBUG=2 print its kernels and the times of scheduling and compiling."""
    counts["schedules"] += 1
    counts["kernels"] += n_kernels
    counts["schedule_ns"] += schedule_ns
    counts["compile_ns"] += compile_ns
    if "cmds" in settings.tracing:
        text = f"      plan: {n_kernels} kernels ({n_programs} distinct), schedule {schedule_ns / 1e6:.1f} ms"
        print(f"{text}, lower and compile {compile_ns / 1e6:.1f} ms", file=sys.stderr)


def captured(device: Any, n_kernels: int, n_once: int, bytes_: dict[str, int]) -> None:
    """Print a captured step at DEBUG=2: its kernels, its memory by kind, and the peak memory of host and device so
    far.
    """
    if "cmds" not in settings.tracing:
        return
    parts = ", ".join(f"{name} {n / 1e6:.3f} MB" for name, n in bytes_.items())
    text = f"      captured: {n_kernels} kernels a call, {n_once} once; {parts}: {sum(bytes_.values()) / 1e6:.3f} MB"
    print(f"{text}; {peaks(device)}", file=sys.stderr)


def moved(name: str, value: UOp, user: UOp, n_bytes: int) -> None:
    """Print at DEBUG=2 a collective that moves `n_bytes` of `value` between devices, because the node `user` needs it
    elsewhere.
    """
    text = f"      {name}: {n_bytes / 1e6:.3f} MB, {value.dtype.name} {value.shape} for {user.op}"
    file, number, what = user.origin or value.origin or ("", 0, "")
    line = f"  {file.rsplit('/', 1)[-1]}:{number} {what}" if number else ""
    print(f"{text}{line}", file=sys.stderr)


def show_source(p: Program) -> None:
    """Print the generated code of a program, for DEBUG=4."""
    print(p.source, file=sys.stderr)


class Recorder:
    """Collect the kernels that run inside a `with` block. Each kernel is timed separately."""

    def __enter__(self) -> list[KernelRun]:
        global recording
        recording = True
        runs.clear()
        return runs

    def __exit__(self, *exc: object) -> None:
        global recording
        recording = False


def kernel_table(kernels: list[KernelRun]) -> str:
    """Return a table of kernel runs as text: time, GFLOP/s, GB/s and origin, slowest first, with a total."""
    rows = sorted(kernels, key=lambda k: -k.time_ns)
    out = [f"{'kernel':36} {'us':>9} {'GFLOP/s':>9} {'GB/s':>8}  from"]
    for k in rows:
        ns = max(1, k.time_ns)
        out.append(f"{k.name:36} {ns / 1e3:9.1f} {k.n_ops / ns:9.2f} {k.n_bytes / ns:8.2f}  {origin_of(k.call)}")
    total = sum(k.time_ns for k in kernels)
    out.append(f"{len(kernels)} kernels, {total / 1e3:.1f} us")
    return "\n".join(out)


def origin_of(call: UOp) -> str:
    """Return "file:line methods" of a kernel: the user's line and the Tensor methods that it computes; "" if
    unknown.
    """
    found = origins(kernel_of(call)) if call.op == "CALL" else []
    if not found:
        return ""
    file, number, _ = found[0]
    methods = list(dict.fromkeys(method for _, _, method in found))
    return f"{file.rsplit('/', 1)[-1]}:{number} {'+'.join(methods[:4])}".strip()


def origins(sink: UOp) -> list[tuple[str, int, str]]:
    """Return (file, line, Tensor method) of each value that a kernel computes, from its results backwards.

    A node's origin is the first program line that made an equal node. So constants are used only if no other value has
    an origin, and nodes of addresses only if no constant has one.
    """
    order = [u for u in reversed(toposort(sink)) if u.origin is not None]
    values = [u for u in order if u.op not in _ADDRESS_OPS and u.dtype.kind != "x"]
    constants = [u for u in order if u.op == "CONST" and u.dtype.kind != "x"]
    return [u.origin for u in values or constants or order]


__all__ = [
    "KernelRun",
    "Recorder",
    "captured",
    "class_of",
    "compiled",
    "device_of",
    "kernel_table",
    "line",
    "origin_of",
    "origins",
    "peaks",
    "record",
    "show_source",
    "show_totals",
]
