"""Compute the launch parameters of a program (workgroups, lanes, local memory), and check them against a target.

What it is for: targets with workgroups, and renderers that must write the size of a workgroup.
What it does not do: launch. Invariant: a program without SPECIALs is one workgroup of one lane.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from monolect.backend.common.shaped import register_of
from monolect.base.errors import CompileError, DTypeError
from monolect.base.target import Target
from monolect.ir.bounds import min_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.uop import UOp, idx, substitute, toposort

DIMENSIONS = 3  # of a grid and of a workgroup
ALIGN_BYTES = 16  # alignment of LOCAL buffers
TMA_ALIGN_BYTES = 1024  # alignment of LOCAL buffers in a program with TMACOPYs


def launch_sizes(program: tuple[UOp, ...]) -> tuple[list[UOp], list[int]]:
    """Return (number of workgroups, lanes of a workgroup) along each of three dimensions.

    The number of workgroups may depend on Variables. Raises CompileError if the number of lanes does.
    """
    groups, lanes = [idx(1)] * DIMENSIONS, [1] * DIMENSIONS
    for u in program:
        if u.op == "SPECIAL":
            k = int(u.arg[-1])
            if u.arg.startswith("lidx"):
                low, lanes[k] = min_max(u.src[0])
                if low != lanes[k]:
                    raise CompileError("lanes of a workgroup", expected="a number known when compiling", found=u.arg)
            else:
                groups[k] = u.src[0]
    return groups, lanes


def group_count(n: UOp, values: dict[str, int]) -> int:
    """Evaluate `n`, a number of workgroups, for the given values of its Variables."""
    if n.op != "CONST":
        named = [p for p in toposort(n) if p.op == "PARAM"]
        n = substitute(n, {p: idx(values[p.arg.name]) for p in named})
    return int(n.value)


class TensorMap(NamedTuple):
    """Describe the tensor in global memory that TMACOPYs copy boxes from; a launch passes it to the hardware.

    Axes are in order from the innermost one.
    """

    slot: int  # of the PARAM
    dtype: str  # name of the element type
    start: int  # bytes from the start of the PARAM
    sizes: tuple[int, ...]  # elements along each axis
    strides: tuple[int, ...]  # bytes, of each axis but the innermost
    box: tuple[int, ...]  # elements of a box along each axis


def tensor_map(u: UOp) -> TensorMap:
    """Return the TensorMap of a TMACOPY."""
    source, n = u.src[1], u.src[1].dtype.itemsize
    strides = tuple(s * n for s in u.arg.strides[1:])
    return TensorMap(source.arg.slot, source.dtype.name, u.arg.start * n, u.arg.sizes, strides, u.arg.box)


def tensor_maps(program: tuple[UOp, ...]) -> list[TensorMap]:
    """Return the distinct TensorMaps of a program, in the order in which its kernel takes them, after its PARAMs."""
    return list(dict.fromkeys(tensor_map(u) for u in program if u.op == "TMACOPY"))


def align_bytes(program: tuple[UOp, ...]) -> int:
    """Return the alignment in bytes of LOCAL buffers: TMACOPYs need a larger one."""
    return TMA_ALIGN_BYTES if any(u.op == "TMACOPY" for u in program) else ALIGN_BYTES


def workgroup_local_layout(program: tuple[UOp, ...]) -> tuple[dict[UOp, int], int]:
    """Return the byte offset of each LOCAL buffer, stored one after another, and the end of the last one in bytes."""
    out: dict[UOp, int] = {}
    end, align = 0, align_bytes(program)
    for u in program:
        if u.op == "BUFFER" and u.arg.addrspace == "LOCAL":
            out[u] = -(-end // align) * align
            end = out[u] + prod(u.shape) * u.dtype.itemsize
    return out, end


def local_bytes(program: tuple[UOp, ...]) -> int:
    """Return the bytes of local memory that a workgroup needs, including the barriers of TMACOPYs."""
    return workgroup_local_layout(program)[1] + (TMA_ALIGN_BYTES if align_bytes(program) == TMA_ALIGN_BYTES else 0)


def bytes_at_launch(program: tuple[UOp, ...], static_bytes: int) -> int:
    """Return the bytes of local memory that the launch must reserve, or 0 if the kernel can declare all it needs.

    A kernel can declare at most `static_bytes`; 0 means any size.
    Example: `bytes_at_launch(program, 48 << 10) == 0` for a program without local memory.
    """
    return workgroup_local_layout(program)[1] if static_bytes and local_bytes(program) > static_bytes else 0


def check_limits(name: str, program: tuple[UOp, ...], target: Target) -> None:
    """Raise CompileError if the launch of a program exceeds a limit of the target, or DTypeError for a float dtype that
    the target does not compute in. The message names the kernel, the device and a remedy.
    """
    groups, block = launch_sizes(program)
    for k, (n, most) in enumerate(zip(block, target.max_block, strict=False)):
        if n > most:
            expected = f"at most {most} on {target.name}: fewer LOCAL axes, or NOOPT=1"
            raise CompileError(f"{name}: too many lanes along dimension {k}", expected=expected, found=n)
    for k, (u, most) in enumerate(zip(groups, target.max_grid, strict=False)):
        if u.op == "CONST" and u.value > most:
            expected = f"at most {most} on {target.name}: more work in each, or NOOPT=1"
            raise CompileError(f"{name}: too many workgroups along dimension {k}", expected=expected, found=u.value)
    lanes = prod(block)
    if target.max_local and lanes > target.max_local:
        expected = f"at most {target.max_local} on {target.name}: fewer LOCAL axes, or NOOPT=1"
        raise CompileError(f"{name}: too many lanes in a workgroup", expected=expected, found=lanes)
    n_bytes = local_bytes(program)
    if n_bytes > target.local_bytes:
        expected = f"at most {target.local_bytes} bytes on {target.name}: smaller tiles, or NOOPT=1"
        raise CompileError(f"{name}: too much local memory", expected=expected, found=f"{n_bytes} bytes")
    for u in program:
        if u.op == "INDEX" and len(u.src) > 1 and register_of(u.src[0]) is not None:
            expected = "LOCAL memory, or whole registers"
            raise CompileError(
                f"{name}: registers of {target.name} have no addresses", expected=expected, found=repr(u)
            )
        if u.op in ELEMENTWISE and u.op != "WHERE" and u.src[-1].dtype.is_float:
            wide = next((v.dtype for v in (u, *u.src) if v.dtype.bits == 64 and v.dtype.is_float), None)
            if wide is not None and wide not in target.native_dtypes:
                expected = "a dtype it computes in, as in t.float(), or another device"
                raise DTypeError(f"{name}: {target.name} does not compute", expected=expected, found=wide.name)


__all__ = [
    "TensorMap",
    "align_bytes",
    "bytes_at_launch",
    "check_limits",
    "group_count",
    "launch_sizes",
    "local_bytes",
    "tensor_map",
    "tensor_maps",
    "workgroup_local_layout",
]
