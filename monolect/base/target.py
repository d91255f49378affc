"""What a target can do, as data: passes read it and never ask which device they compile for."""

from __future__ import annotations

from typing import NamedTuple

from monolect.base.dtype import DType, dtypes


class MatrixUnit(NamedTuple):
    """An instruction that multiplies tiles: acc[m, n] += sum over k of a[m, k] * b[n, k].

    In memory, `b` lies as [k / pair][n][pair]: `pair` neighbours along k side by side. Where a warp of `threads` lanes
    multiplies together, `maps` says which lane holds what of a, of b and of the sum (`base.matrix_units`). One that
    reads its operands from local memory takes them in core matrices (`base.matrix_units.Cores`), not from lanes.
    """

    name: str
    m: int
    n: int
    k: int
    pair: int
    a: DType
    b: DType
    acc: DType
    n_tiles: int = 0  # tile registers of its own; 0: it works on vector registers
    threads: int = 0  # lanes that it takes together; 0: it belongs to one thread
    maps: tuple[tuple[str, str], ...] = ()
    from_memory: bool = False  # reads a and b in local memory; a lane then holds the place of each


class Target(NamedTuple):
    """Capabilities of one target. `native` names the ops rendered directly; everything else is decomposed."""

    name: str
    native: frozenset[str]
    native_dtypes: frozenset[DType] = frozenset(
        (dtypes.bool, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16,
         dtypes.uint32, dtypes.uint64, dtypes.float32, dtypes.float64, dtypes.index)
    )  # fmt: skip
    cast_dtypes: frozenset[DType] = frozenset()  # converted to and from float32, but not computed in
    vector_bytes: int = 0  # bytes of a vector register; 0: scalar target
    n_registers: int = 16  # vector registers; with workgroups, of four bytes in each lane
    multiply_adds: int = 2  # of whole vectors that start in a cycle; as many of them are loaded
    loads_first: bool = False  # arithmetic reads registers only: a scalar for all lanes takes a vector register
    n_threads: int = 1  # threads a THREAD axis may use
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 8 << 20  # of the last cache, or what counts as one
    streams: bool = False  # has stores past the caches and loads ahead of time
    workgroups: bool = False  # has GLOBAL and LOCAL axes
    local_bytes: int = 0  # local memory of a workgroup
    max_local: int = 0  # threads of a workgroup
    align_bytes: int = 64  # where a buffer inside another may start
    branches: bool = False  # has no masked stores: a gated STORE of a scalar becomes IF, STORE, ENDIF
    units: tuple[MatrixUnit, ...] = ()  # the best first
    key: str = ""  # everything compiled code depends on: compiler version, features
    # with workgroups; `vector_bytes` is then the widest access of one lane, a `max_local` of 0 no limit
    local_banks: int = 32  # of local memory, four bytes wide: lanes that meet in one wait for each other
    max_block: tuple[int, ...] = ()  # lanes of a workgroup along each dimension; (): no limits
    max_grid: tuple[int, ...] = ()  # workgroups of a launch along each dimension; (): no limits
    warp: int = 1  # lanes that run in step: a workgroup should be a multiple, and they should read side by side
    shuffles: bool = False  # lanes of a warp read each other's registers
    async_copies: bool = False  # from memory to local memory without registers, while the lanes go on
    bulk_copies: bool = False  # boxes of memory, whole, to local memory as units read it, by one lane for all
    n_units: int = 1  # workgroups that run at the same time, each with a workgroup's local memory and registers
    concurrency: str = (
        ""  # of launches: "lanes", threads that meet at barriers; "graph", each waits for those it needs; "": none
    )
    offsets: bool = False  # operands may begin inside a buffer: kernels that differ only in that are one program
    atomics: frozenset[DType] = frozenset()  # of which several lanes may ATOMICADD to one place

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in one vector register; 1 on a scalar target."""
        return max(1, self.vector_bytes // itemsize)
