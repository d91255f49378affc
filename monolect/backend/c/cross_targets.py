"""Describe the processors that exported C programs can be built for, one Target for each `-march=` name.

What it is for: kernels that are exported as C and compiled by the user. The empty name means any processor: vectors
have 16 bytes, and multiply-adds round twice. "native" is this processor as the device `c` describes it: equal kernels
give equal bits. What it does not do: it runs no compiler, except to probe the features of "native".
"""

from __future__ import annotations

from typing import NamedTuple

from monolect.backend.c.compile import Compiler, find
from monolect.backend.c.render import NATIVE
from monolect.backend.common.host.native import host_target
from monolect.backend.common.llvm.compile import host_features
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, nearest
from monolect.base.target import Target

MAX_THREADS = 64  # threads of an exported program; more are refused


class Machine(NamedTuple):
    """Capabilities of one processor, which become fields of its Target."""

    vector_bytes: int = 16
    n_registers: int = 16
    has_fma: bool = False
    loads_first: bool = False
    has_half: bool = False  # `_Float16` compiles without library calls


MACHINES: dict[str, Machine] = {
    "": Machine(),
    "x86-64": Machine(),
    "x86-64-v2": Machine(),
    "x86-64-v3": Machine(32, 16, True),
    "x86-64-v4": Machine(64, 32, True),
    "armv8-a": Machine(16, 32, True, True),
    "armv8.2-a": Machine(16, 32, True, True),
    "rv64gc": Machine(16, 32, True, True),
}


def target(march: str = "", n_threads: int = 1) -> tuple[Target, bool]:
    """Return the Target for `-march=` and whether C has `_Float16` there. Raises ArgumentError."""
    if march != "native" and march not in MACHINES:
        known = ", ".join(["native", *filter(None, MACHINES)])
        raise ArgumentError("export: march", expected=known, found=nearest(march, [*MACHINES, "native"]) or march)
    if not 1 <= n_threads <= MAX_THREADS:
        raise ArgumentError("export: threads", expected=f"1 to {MAX_THREADS}", found=n_threads)
    if march == "native":
        processor_target, has_half = _native()
    else:
        m = MACHINES[march]
        has_half = m.has_half
        processor_target = Target(
            name="c",
            native=NATIVE if m.has_fma else NATIVE - {"MULACC"},
            vector_bytes=m.vector_bytes,
            n_registers=m.n_registers,
            loads_first=m.loads_first,
            offsets=True,
            local_bytes=4 << 20,
        )
    half_dtypes = frozenset((dtypes.float16,)) if has_half else frozenset()
    lanes = "lanes" if n_threads > 1 else ""
    key = f"c elsewhere {march} {processor_target.key} {has_half}/{n_threads}"
    return processor_target._replace(n_threads=n_threads, concurrency=lanes, cast_dtypes=half_dtypes, key=key), has_half


def _native() -> tuple[Target, bool]:
    """Return the Target of this processor, and whether C has `_Float16`; LLVM tells if no compiler is found."""
    if find():
        facts = Compiler().facts
        has_fma, has_half = facts.has_fma, facts.has_half
    else:
        host = host_features()
        has_fma, has_half = "fma" in host.features or host.machine == "aarch64", False
    return host_target("c", NATIVE if has_fma else NATIVE - {"MULACC"}, ""), has_half


__all__ = ["MACHINES", "MAX_THREADS", "Machine", "target"]
