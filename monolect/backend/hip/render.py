"""Render LINEAR programs as HIP C++, using only builtins of clang: no headers and no libraries.

What it does not do: it uses no feature of a particular architecture except its matrix units; clang lowers operations
that an architecture lacks.
"""

from __future__ import annotations

from dataclasses import replace

from monolect.backend.common.clike import program as c_style
from monolect.backend.common.clike.language import Language
from monolect.backend.common.clike.program import C_NATIVE
from monolect.backend.common.clike.workgroups import GroupRenderer
from monolect.backend.hip.units import function, units
from monolect.base.dtype import ALL, dtypes
from monolect.base.target import Target
from monolect.ir.uop import UOp

NATIVE = C_NATIVE
WIDE_BYTES = 16  # of the widest access of a lane
_TYPES = {
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long",
    "float16": "_Float16", "float32": "float", "float64": "double",
}  # fmt: skip
_HEADER = """\
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
template <typename T, int N> struct alignas(sizeof(T) * N) vec { T e[N]; };
template <int N, typename T> __device__ vec<T, N> load_wide(const T* p) { return *(const vec<T, N>*)p; }
template <int N, typename T> __device__ void store_wide(T* p, vec<T, N> x) { *(vec<T, N>*)p = x; }
__device__ void workgroup_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
template <typename T> __device__ T shuffle_xor(T x, int bits) {
  const int lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  int words[(sizeof(T) + 3) / 4] = {};
  __builtin_memcpy(words, &x, sizeof(T));
  for (int& w : words) w = __builtin_amdgcn_ds_bpermute((lane ^ bits) * 4, w);
  __builtin_memcpy(&x, words, sizeof(T));
  return x;
}
template <typename T> __device__ void atomic_add(T* p, T x) {
  __hip_atomic_fetch_add(p, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
"""
_IDS = {"gidx": "__builtin_amdgcn_workgroup_id", "lidx": "__builtin_amdgcn_workitem_id"}
ATOMIC = ("int32", "uint32", "int64", "uint64", "float32", "float64")

LANGUAGE = Language(
    name="hip",
    types=_TYPES,
    suffixes={"float32": "f", "int64": "LL", "uint64": "ULL", "uint32": "U"},
    convert="(({t}){x})",
    reinterpret="__builtin_bit_cast({v}, {x})",
    functions={
        "SQRT float32": "__builtin_sqrtf({0})",
        "SQRT float64": "__builtin_sqrt({0})",
        "TRUNC float32": "__builtin_truncf({0})",
        "TRUNC float64": "__builtin_trunc({0})",
        "FMA float32": "__builtin_fmaf({0}, {1}, {2})",
        "FMA float64": "__builtin_fma({0}, {1}, {2})",
    },
    wide_bytes=WIDE_BYTES,
    declare="const {t} {v} = {x};",
    kernel='extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(1, {lanes}))) void {name}({params}) {{',
    scalar="const long long {v}",
    local="alignas(16) __shared__ {t} {v}[{n}];",
    barrier="workgroup_barrier();",
    shuffle="shuffle_xor<{t}>({x}, {bits})",
    ids={f"{ours}{i}": f"{theirs}_{c}()" for ours, theirs in _IDS.items() for i, c in enumerate("xyz")},
    atomic_add={d: f"atomic_add<{_TYPES[d]}>({{p}}, {{x}})" for d in ATOMIC} | {"": c_style.ADD_ALONE},
    header=_HEADER,
    index="long long",
    small_index="int",
)
TARGET = Target(
    name="hip",
    concurrency="graph",
    native=NATIVE,
    cast_dtypes=frozenset((dtypes.float16,)),
    vector_bytes=WIDE_BYTES,
    n_registers=256,
    workgroups=True,
    local_bytes=64 << 10,
    max_local=1024,
    max_block=(1024, 1024, 1024),
    max_grid=((1 << 31) - 1, 65535, 65535),
    warp=64,
    shuffles=True,
    n_units=64,
    atomics=frozenset(d for d in ALL if d.name in ATOMIC),
    branches=True,
    key="hip",
)


# C types of operand elements of matrix units; narrow floats without a C type are stored as their bits
_STORED = {d: _TYPES.get(d.name) or _TYPES[f"uint{d.bits}"] for d in ALL if d.kind in "iufs"}


def language(arch: str = "") -> Language:
    """Return the language table of HIP C++, with the matrix units of an architecture such as "gfx942"."""
    return replace(LANGUAGE, units={u.name: function(u, _STORED) for u in units(arch)})


def target(arch: str) -> Target:
    """Return the Target of an architecture such as "gfx942"; gfx9 (GCN, CDNA) has warps of 64 lanes, RDNA of 32."""
    warp = 64 if arch.startswith("gfx9") else 32
    return TARGET._replace(warp=warp, units=units(arch), key=f"hip/{arch}")


def render_module(kernels: list[tuple[str, UOp]], arch: str = "") -> str:
    """Return one HIP C++ source with a kernel for each (name, LINEAR)."""
    return c_style.render_module(kernels, language(arch), GroupRenderer)


__all__ = ["LANGUAGE", "NATIVE", "TARGET", "GroupRenderer", "language", "render_module", "target"]
