"""Describe the capabilities of a target as data, so that passes need not know which device they compile for."""

from __future__ import annotations

from typing import NamedTuple

from monolect.base.dtype import DType, dtypes


class MatrixUnit(NamedTuple):
    """An instruction that multiplies tiles: acc[m, n] += sum over k of a[m, k] * b[n, k].

    In memory, `b` is stored as [k / pair][n][pair]: `pair` elements adjacent along k are contiguous. If the `threads`
    lanes of a warp multiply together, `maps` says which elements of a, b and the sum a lane holds
    (`base.matrix_units`). A unit that reads its operands from local memory (`from_memory`) takes them in core matrices
    (`base.matrix_units.Cores`), not from lanes.
    """

    name: str
    m: int
    n: int
    k: int
    pair: int
    a: DType
    b: DType
    acc: DType
    n_tiles: int = 0  # number of dedicated tile registers; 0: it uses vector registers
    threads: int = 0  # lanes that execute it together; 0: one thread executes it
    maps: tuple[tuple[str, str], ...] = ()
    from_memory: bool = False  # it reads a and b from local memory; a lane passes their addresses


class TensorMap(NamedTuple):
    """The limits of the map of a tensor whose boxes bulk copies (TMA) read.

    Source: NVIDIA, "CUDA driver API", cuTensorMapEncodeTiled.
    """

    axes: int = 5
    box_extent: int = 256  # elements of a box along one axis
    align_bytes: int = 16  # strides and the first address are multiples of it
    extent: int = 1 << 31  # elements; every axis is shorter


class Core(NamedTuple):
    """A processor core whose facts its features do not tell: the flags of Linux and the L1 cache that tell it."""

    name: str
    flags: frozenset[str]
    vector_bytes: int
    max_l1_bytes: int  # of the data cache; later cores with these flags have a larger one
    multiply_adds: int


# The flag sse4a identifies AMD. Its first processors with 512-bit vectors have 256-bit units; later ones have 512-bit
# units and a larger L1 cache.
CORES: tuple[Core, ...] = (Core("AMD Zen 4", frozenset(("sse4a",)), 64, 32 << 10, 1),)


def known_core(flags: frozenset[str], vector_bytes: int, l1_bytes: int) -> Core | None:
    """Return the row of CORES for a processor with these flags, widest vectors and L1 data cache, or None."""
    fits = (c for c in CORES if c.flags <= flags and c.vector_bytes == vector_bytes and l1_bytes <= c.max_l1_bytes)
    return next(fits, None)


class Target(NamedTuple):
    """The capabilities of a target. `native`: ops that are rendered directly; all other ops are decomposed."""

    name: str
    native: frozenset[str]
    native_dtypes: frozenset[DType] = frozenset(
        (dtypes.bool, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16,
         dtypes.uint32, dtypes.uint64, dtypes.float32, dtypes.float64, dtypes.index)
    )  # fmt: skip
    cast_dtypes: frozenset[DType] = frozenset()  # types that convert to and from float32, but have no arithmetic
    vector_bytes: int = 0  # bytes of a vector register; 0: scalar target
    n_registers: int = 16  # number of vector registers; with workgroups, of 4-byte registers of a lane
    multiply_adds: int = 2  # vector multiply-adds that start in a cycle; also the vector loads
    loads_first: bool = False  # arithmetic has no memory operands: a broadcast scalar takes a vector register
    n_threads: int = 1  # threads that a THREAD axis may use
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 8 << 20  # bytes of the last-level cache
    multiply_add_cycles: int = 4  # cycles of a multiply-add, after which the next step of its accumulator can start
    l1_period_bytes: int = 4096  # rows at multiples of it share the sets of the L1 cache
    l1_miss_cycles: int = 2  # cycles to load a vector that misses the L1 cache
    l2_miss_cycles: int = 12  # extra cycles for a vector that misses the L2 cache, while nothing overlaps
    l3_miss_cycles: int = 24  # cycles on top of l2_miss_cycles for a vector that also misses the L3 cache
    clock_hz: float = 3e9  # cycles in a second while vectors are busy
    dram_bytes_per_second: float = 30e9  # bytes that all threads together transfer from and to memory
    streams: bool = False  # has non-temporal stores and prefetches
    workgroups: bool = False  # has GLOBAL and LOCAL axes
    local_bytes: int = 0  # bytes of local memory of a workgroup (without workgroups: of a thread)
    max_local: int = 0  # largest number of lanes of a workgroup
    align_bytes: int = 64  # alignment, in bytes, of a buffer inside another
    branches: bool = False  # has no masked stores: a gated STORE of a scalar becomes IF, STORE, ENDIF
    units: tuple[MatrixUnit, ...] = ()  # matrix units, the best first
    key: str = ""  # cache key: everything that compiled code depends on, such as compiler version and features
    # Fields for workgroups. `vector_bytes` is then the widest access of one lane, and a `max_local` of 0 is no limit.
    local_banks: int = 32  # banks of local memory, 4 bytes wide; lanes that access one bank wait for each other
    max_block: tuple[int, ...] = ()  # largest number of lanes of a workgroup along each dimension; (): no limits
    max_grid: tuple[int, ...] = ()  # largest number of workgroups along each dimension of a launch; (): no limits
    warp: int = 1  # lanes that run in lockstep; workgroups should be multiples, and accesses of a warp contiguous
    shuffles: bool = False  # lanes of a warp can read each other's registers
    async_copies: bool = False  # has asynchronous copies from global to local memory that bypass registers
    bulk_copies: bool = False  # has TMA copies: one lane copies a box to local memory in the layout of matrix units
    n_units: int = 1  # workgroups that run in parallel, each with full local memory and registers
    # Rates of one multiprocessor in a cycle; the defaults are those of NVIDIA's GPUs.
    unit_multiply_adds: int = 128  # float32 multiply-adds without matrix units
    matrix_bytes_per_cycle: int = 2048  # bytes of either operand that all its matrix units multiply
    local_bytes_per_cycle: int = 128  # bytes of local memory that it reads
    global_bytes_per_cycle: int = 16  # bytes of global memory that it reads
    bank_bytes: int = 4  # bytes of a word that a bank of local memory delivers
    schedulers: int = 4  # warp schedulers; a warp uses the matrix units of one
    tensor_map: TensorMap = TensorMap()  # limits of bulk copies
    # Overlap of launches. "lanes": threads that wait at barriers; "graph": each waits for those it needs; "": none.
    concurrency: str = ""
    offsets: bool = False  # operands may start inside a buffer: kernels that differ only in offsets share a program
    atomics: frozenset[DType] = frozenset()  # types that ATOMICADD supports

    def lanes(self, itemsize: int) -> int:
        """Return the number of elements of `itemsize` bytes in a vector register; 1 on a scalar target."""
        return max(1, self.vector_bytes // itemsize)


__all__ = ["CORES", "Core", "MatrixUnit", "Target", "TensorMap", "known_core"]
