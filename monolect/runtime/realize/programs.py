"""Compile kernels to Programs and map PROGRAM nodes to them, for the pass `lower` and for encoders.

Kernels that are in no cache are lowered and compiled together (`runtime/realize/lowering.py`).
Invariant: `loaded` has the Program of every PROGRAM node that the pass `lower` made in this process.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence

from monolect.backend.base import Program
from monolect.backend.common.host.native import NativeDevice, native_functions
from monolect.backend.registry import Device
from monolect.base.disk.version import compiler_version
from monolect.base.errors import DeviceError, InternalError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.command.forms import program_info
from monolect.command.passes import services
from monolect.ir.digest import digest
from monolect.ir.ops import KernelInfo, ProgramInfo
from monolect.ir.uop import UOp, node
from monolect.runtime import profile

loaded: weakref.WeakKeyDictionary[UOp, Program] = weakref.WeakKeyDictionary()  # by PROGRAM node


def programs(operands: Mapping[UOp, Sequence[UOp]], target: Target) -> dict[UOp, UOp]:
    """Return the PROGRAM node of each kernel, compiled for `target`. `operands`: the operands of each kernel; see
    `passes.Services`.
    """
    made = compile_kernels([*operands], target.name)
    out: dict[UOp, UOp] = {}
    for kernel, program in made.items():
        info = info_of(kernel, operands[kernel], program, target)
        out[kernel] = new = node("PROGRAM", (kernel,), info)
        loaded[new] = program
    return out


def info_of(kernel: UOp, operands: Sequence[UOp], program: Program, target: Target) -> ProgramInfo:
    """Return the ProgramInfo of a compiled kernel that runs on operands like these."""
    info = program_info(kernel, operands, program.name, key_of(kernel), program.n_threads, program.local_bytes)
    if not isinstance(kernel.arg, KernelInfo) or not kernel.arg.fills:
        return info
    from monolect.runtime.replay.hoist import packed_blocks  # imported only for kernels that fill blocks

    blocks = packed_blocks(_unfilled(kernel), target)
    rows = [(d, n, "read" if k % 2 else "write") for k, (d, n, _) in enumerate(info.operands)]
    return info._replace(operands=tuple(rows), layouts=tuple([b.layout for b in blocks]))


def _unfilled(kernel: UOp) -> UOp:
    """Return the kernel that reads the packed blocks which `kernel` fills."""
    return node("SINK", kernel.src, kernel.arg._replace(fills=False))


def key_of(kernel: UOp) -> str:
    """Return the key of a kernel's machine code in the caches of a device."""
    if kernel.op == "CUSTOMFUNCTION":
        return str(kernel.arg)
    return f"{digest(kernel)}/{'/'.join(map(str, settings.choices))}/{compiler_version()}"


def compile_kernels(kernels: Iterable[UOp], dev: str) -> dict[UOp, Program]:
    """Return a Program for each distinct kernel. Kernels that are in no cache are compiled together."""
    device = Device[dev]
    out: dict[UOp, Program] = {}
    missing: dict[str, UOp] = {}
    wanted: list[tuple[UOp, str]] = []
    for s in dict.fromkeys(kernels):
        if s.op == "CUSTOMFUNCTION":
            out[s] = _native(s, dev)
            continue
        key = key_of(s)
        found = device.lookup(key)
        if found is None:
            missing.setdefault(key, s)
            wanted.append((s, key))
        else:
            out[s] = found
    if missing:
        from monolect.runtime.realize.lowering import lowered  # imported on a miss: it imports the whole compiler

        made = device.compile(lowered([(s, key) for key, s in missing.items()], dev))
        if len(made) != len(missing):
            raise InternalError("a device compiled another number of kernels", expected=len(missing), found=len(made))
        by_key = dict(zip(missing, made, strict=True))
        out |= {s: by_key[key] for s, key in wanted}
        if "src" in settings.tracing:
            for p in made:
                profile.show_source(p)
    return out


def _native(function: UOp, dev: str) -> Program:
    """Return the user's machine code as a Program. Raises DeviceError if the device does not run the host processor's
    code.
    """
    address = native_functions[function.arg][0]
    if not isinstance(Device[dev], NativeDevice):
        raise DeviceError(
            "a native function on a device that does not run this processor's code", expected="cpu or c", found=dev
        )
    return Program(function.arg.partition("@")[0], address, 1)


services.programs = programs

__all__ = ["compile_kernels", "info_of", "key_of", "loaded", "programs"]
