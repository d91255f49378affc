"""What a program asks of a launch: workgroups, lanes of each, local memory; and whether the target has that.

What it is for: targets with workgroups, and renderers that must write the size of one.
What it does not do: launch. Invariant: a program without SPECIALs is one workgroup of one lane.
"""

from __future__ import annotations

from math import prod

from monolect.base.errors import CompileError, DTypeError
from monolect.base.target import Target
from monolect.ir.bounds import min_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.uop import UOp, idx, substitute, toposort

DIMENSIONS = 3
ALIGN_BYTES = 16  # of a LOCAL buffer


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


def local_places(program: tuple[UOp, ...]) -> tuple[dict[UOp, int], int]:
    """Where each LOCAL buffer begins, in bytes, if they lie one after another; and where the last one ends."""
    out: dict[UOp, int] = {}
    end = 0
    for u in program:
        if u.op == "BUFFER" and u.arg.addrspace == "LOCAL":
            out[u] = -(-end // ALIGN_BYTES) * ALIGN_BYTES
            end = out[u] + prod(u.shape) * u.dtype.itemsize
    return out, end


def local_bytes(program: tuple[UOp, ...]) -> int:
    """Local memory that a workgroup takes."""
    return local_places(program)[1]


def bytes_at_launch(program: tuple[UOp, ...], most: int) -> int:
    """Local memory that a launch must ask for, where a kernel has no more than `most` by declaring it; 0: all it wants.

    Example: `bytes_at_launch(program, 48 << 10) == 0` for a program without local memory.
    """
    n = local_bytes(program)
    return n if most and n > most else 0


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
        if u.op in ELEMENTWISE and u.op != "WHERE" and u.src[-1].dtype.is_float:
            wide = next((v.dtype for v in (u, *u.src) if v.dtype.bits == 64 and v.dtype.is_float), None)
            if wide is not None and wide not in target.native_dtypes:
                expected = "a dtype it computes in, as in t.float(), or another device"
                raise DTypeError(f"{name}: {target.name} does not compute", expected=expected, found=wide.name)
