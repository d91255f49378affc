"""The targets for which the frozen corpus records choices: processors and a GPU as data, on whatever machine it runs.

Cache sizes are those of one core; `cores` has the numbers of threads for which plans are recorded.
"""

from __future__ import annotations

from monolect.backend.common.llvm.compile import native_ops
from monolect.backend.cpu.units import units
from monolect.backend.cuda import render as cuda
from monolect.base.dtype import dtypes
from monolect.base.target import Target

KIB, MIB = 1 << 10, 1 << 20
AVX2 = ("sse4.1", "f16c", "fma", "avx2")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
ZEN4 = (*AVX512, "avx512vnni", "avx512bf16")
XEON = (*ZEN4, "amx-tile", "amx-bf16", "amx-int8")


def _processor(
    name: str, features: tuple[str, ...], vector_bytes: int, l1: int, l2: int, l3: int, **more: int
) -> Target:
    """A target as `backend.cpu.runtime` makes it; `more`: fields that differ from those of most x86 processors."""
    machine = "x86_64" if "sse4.1" in features else "aarch64"
    target = Target(
        name=name,
        native=native_ops(machine, features),
        cast_dtypes=frozenset((dtypes.float16,)),
        vector_bytes=vector_bytes,
        n_registers=16 if vector_bytes == 32 else 32,
        loads_first=machine != "x86_64",
        streams=machine == "x86_64",
        offsets=True,
        l1_bytes=l1,
        l2_bytes=l2,
        l3_bytes=l3,
        local_bytes=4 * l2,
        units=units(features, vector_bytes),
        key=name,
    )
    return target._replace(**more)


def with_threads(target: Target, n: int) -> Target:
    return target._replace(name=f"{target.name} x{n}", n_threads=n, concurrency="lanes" if n > 1 else "")


ZEN_5 = _processor("zen5", ZEN4, 64, 48 * KIB, 1 * MIB, 32 * MIB)
ZEN_4 = _processor("zen4", ZEN4, 64, 32 * KIB, 1 * MIB, 32 * MIB, multiply_adds=1)
AMX = _processor("amx", XEON, 64, 48 * KIB, 2 * MIB, 32 * MIB)
OLD = _processor("avx2", AVX2, 32, 32 * KIB, 256 * KIB, 8 * MIB)
NEON = _processor("neon", ("neon", "dotprod", "bf16"), 16, 64 * KIB, 1 * MIB, 8 * MIB)
PROCESSORS: tuple[Target, ...] = tuple(
    with_threads(target, n)
    for target, cores in ((ZEN_5, (1, 2, 16)), (ZEN_4, (1, 2)), (AMX, (1, 2)), (OLD, (1, 4)), (NEON, (1, 4)))
    for n in cores
)
H100 = cuda.target(90)._replace(name="h100", n_units=132)
GPUS: tuple[Target, ...] = (H100, H100._replace(name="h100-tf32"))

__all__ = ["AMX", "GPUS", "H100", "PROCESSORS", "ZEN_5", "with_threads"]
