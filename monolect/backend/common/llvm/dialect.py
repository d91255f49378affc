"""Define the table of LLVM IR texts of a target with workgroups: ids, barriers, address spaces, kernels.

What it is for: each target is one table for the renderer in `workgroups`. Texts are formats: `{name}` and `{params}` of
a kernel, `{lanes}` of a workgroup, `{x}` to `{z}` lanes along each dimension. What it does not do: compile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Unit(NamedTuple):
    """The instruction of a matrix unit, which adds the product of tiles a and b to the tile c.

    Each lane holds some elements of each tile. It passes them as one vector, or as several registers if there is a
    `result`.
    Texts are formats of {a}, {b}, {c}: the operands with their types.
    """

    types: tuple[str, str, str]  # LLVM type of a lane's vector, or of each register, of a, b, c
    text: str  # the instruction
    declare: str = ""
    result: str = ""  # instruction that extracts register {i} of the new c from the instruction's result {r}
    rounded: str = ""  # instruction that rounds each element {x} of a and b before


@dataclass(frozen=True)
class Dialect:
    """The LLVM IR texts of one target. The type of a pointer names its address space."""

    name: str
    triple: str
    ids: Mapping[str, str]  # name of a SPECIAL -> the call that returns its value
    id_type: str = "i32"  # type that these calls return
    kernel: str = "define void @{name}({params})"
    attributes: str = "nounwind"  # of a kernel
    metadata: str = ""  # of a kernel
    pointer: str = "{p} align {align} {v}"  # a parameter that is a buffer
    global_space: int = 1
    local_space: int = 3
    barrier: tuple[str, ...] = ()
    # instructions that read the 32 bits {x} of the lane whose number differs in {bits}; {0}, {1}.. are earlier results
    shuffle: tuple[str, ...] = ()
    scope: str = ""  # of atomic additions, which is the whole device
    atomics: frozenset[str] = frozenset()  # names of dtypes that have atomic additions
    wide_bytes: int = 16  # bytes of the widest access, and alignment of buffers
    declares: tuple[str, ...] = ()
    footer: str = ""  # after all kernels
    units: Mapping[str, Unit] = field(default_factory=dict)


def ids(groups: str, lanes: str) -> dict[str, str]:
    """Return the calls for all ids of workgroups (gidx0..2) and lanes (lidx0..2), by name.

    `groups` and `lanes` are formats of {c}, "x" to "z", and {i}, 0 to 2.
    """
    calls = (("gidx", groups), ("lidx", lanes))
    return {f"{ours}{i}": theirs.format(c=c, i=i) for ours, theirs in calls for i, c in enumerate("xyz")}


__all__ = ["Dialect", "Unit", "ids"]
