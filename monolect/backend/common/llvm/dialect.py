"""What a target with workgroups calls things in LLVM IR, as a table: ids, barriers, memory, kernels.

What it is for: one table a target, over one renderer (`llvm_group`). A text in braces is a format: `{name}`,
`{params}`, `{lanes}` of a workgroup, `{x}` to `{z}` the same by dimension. What it does not do: compile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Unit(NamedTuple):
    """The instruction of a matrix unit: the type of what a lane gives it of a, of b and of the sum, all of it as one
    vector or, with `result`, register by register. Texts are formats of {a}, {b}, {c}: the operands with their types.
    """

    types: tuple[str, str, str]
    text: str
    declare: str = ""
    result: str = ""  # register {i} of the sum, where {r} is what the instruction gave
    rounded: str = ""  # what is made of each {x} of a and of b before


@dataclass(frozen=True)
class Dialect:
    """One target. Pointers are typed by the address space that they point into."""

    name: str
    triple: str
    ids: Mapping[str, str]  # SPECIAL -> the call that gives it
    id_type: str = "i32"
    kernel: str = "define void @{name}({params})"
    attributes: str = "nounwind"  # of a kernel
    metadata: str = ""  # on a kernel
    pointer: str = "{p} align {align} {v}"  # a parameter that is a buffer
    global_space: int = 1
    local_space: int = 3
    barrier: tuple[str, ...] = ()
    shuffle: tuple[str, ...] = ()  # steps to what the lane {bits} away has of 32 bits {x}; {0}, {1}.. are steps before
    scope: str = ""  # of atomic additions: the whole device
    atomics: frozenset[str] = frozenset()  # names of dtypes
    wide_bytes: int = 16  # of one access, and what buffers begin at a multiple of
    declares: tuple[str, ...] = ()
    footer: str = ""  # after all kernels
    units: Mapping[str, Unit] = field(default_factory=dict)


def ids(groups: str, lanes: str) -> dict[str, str]:
    """A call for each dimension: formats of {c}, x to z, and {i}, 0 to 2."""
    calls = (("gidx", groups), ("lidx", lanes))
    return {f"{ours}{i}": theirs.format(c=c, i=i) for ours, theirs in calls for i, c in enumerate("xyz")}
