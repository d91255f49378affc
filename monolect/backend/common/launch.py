"""What a program asks of a launch: workgroups, lanes of each, local memory; and whether the target has that.

What it is for: targets with workgroups, and renderers that must write the size of one.
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

DIMENSIONS = 3
ALIGN_BYTES, BOX_ALIGN_BYTES = 16, 1024  # of a LOCAL buffer, of one that boxes are copied to


def launch_sizes(program: tuple[UOp, ...]) -> tuple[list[UOp], list[int]]:
    """(workgroups, lanes of one) along three dimensions; how many groups there are may depend on Variables."""
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
    """How many workgroups there are where Variables have these values."""
    if n.op != "CONST":
        named = [p for p in toposort(n) if p.op == "PARAM"]
        n = substitute(n, {p: idx(values[p.arg.name]) for p in named})
    return int(n.value)


class TensorMap(NamedTuple):
    """What a launch tells the hardware of the memory that boxes are copied from (TMACOPY): PARAM `slot`, `start` bytes
    into it, and of each axis, the innermost first, how many places it has, how far apart they are but for the first
    axis, in bytes, and how many a box has.
    """

    slot: int
    dtype: str
    start: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]


def tensor_map(u: UOp) -> TensorMap:
    """That of a TMACOPY."""
    source, n = u.src[1], u.src[1].dtype.itemsize
    strides = tuple(s * n for s in u.arg.strides[1:])
    return TensorMap(source.arg.slot, source.dtype.name, u.arg.start * n, u.arg.sizes, strides, u.arg.box)


def tensor_maps(program: tuple[UOp, ...]) -> list[TensorMap]:
    """Those of a program, in the order in which a kernel takes them, after its PARAMs."""
    return list(dict.fromkeys(tensor_map(u) for u in program if u.op == "TMACOPY"))


def align_bytes(program: tuple[UOp, ...]) -> int:
    """What divides the places of LOCAL buffers: boxes want more."""
    return BOX_ALIGN_BYTES if any(u.op == "TMACOPY" for u in program) else ALIGN_BYTES


def local_places(program: tuple[UOp, ...]) -> tuple[dict[UOp, int], int]:
    """Where each LOCAL buffer begins, in bytes, if they lie one after another; and where the last one ends."""
    out: dict[UOp, int] = {}
    end, align = 0, align_bytes(program)
    for u in program:
        if u.op == "BUFFER" and u.arg.addrspace == "LOCAL":
            out[u] = -(-end // align) * align
            end = out[u] + prod(u.shape) * u.dtype.itemsize
    return out, end


def local_bytes(program: tuple[UOp, ...]) -> int:
    """Local memory that a workgroup takes, with what counts boxes."""
    return local_places(program)[1] + (BOX_ALIGN_BYTES if align_bytes(program) == BOX_ALIGN_BYTES else 0)


def bytes_at_launch(program: tuple[UOp, ...], most: int) -> int:
    """Local memory that a launch must ask for, where a kernel has no more than `most` by declaring it; 0: all it wants.

    Example: `bytes_at_launch(program, 48 << 10) == 0` for a program without local memory.
    """
    return local_places(program)[1] if most and local_bytes(program) > most else 0


def check_limits(name: str, program: tuple[UOp, ...], target: Target) -> None:
    """Raise CompileError or DTypeError, naming kernel, device and remedy, for what the target does not have."""
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
