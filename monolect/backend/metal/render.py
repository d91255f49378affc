"""Render LINEAR programs in the Metal Shading Language; the module defines the language table and the Target.

Metal has no float64. bfloat16 values are stored as integers, as Metal 3.0 lacks the type.
What it does not do: compile (`compile`).
"""

from __future__ import annotations

from monolect.backend.common.clike import program as c_style
from monolect.backend.common.clike.language import Language
from monolect.backend.common.clike.program import C_NATIVE
from monolect.backend.common.clike.workgroups import GroupRenderer
from monolect.backend.metal.units import function
from monolect.base.dtype import ALL, dtypes
from monolect.base.matrix_units import APPLE
from monolect.base.target import Target
from monolect.ir.uop import UOp

NATIVE = C_NATIVE
WIDE_BYTES = 16  # of the widest access of a lane
_TYPES = {
    "bool": "bool", "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar",
    "uint16": "ushort", "uint32": "uint", "uint64": "ulong", "float16": "half", "float32": "float",
}  # fmt: skip
# a pointer type names its address space, so each function exists for `device` and `threadgroup`
_HEADER = """\
#include <metal_stdlib>
#pragma METAL fp contract(off)
using namespace metal;
template <typename T> T shuffle_xor(T x, ushort bits) { return simd_shuffle_xor(x, bits); }
template <> long shuffle_xor(long x, ushort bits) {
  return as_type<long>(simd_shuffle_xor(as_type<uint2>(x), bits));
}
template <> ulong shuffle_xor(ulong x, ushort bits) {
  return as_type<ulong>(simd_shuffle_xor(as_type<uint2>(x), bits));
}
template <> bool shuffle_xor(bool x, ushort bits) { return simd_shuffle_xor((ushort)x, bits) != 0; }
template <int N, typename T> vec<T, N> load_wide(device const T* p) { return *(device const vec<T, N>*)p; }
template <int N, typename T> vec<T, N> load_wide(threadgroup const T* p) { return *(threadgroup const vec<T, N>*)p; }
template <int N, typename T> void store_wide(device T* p, vec<T, N> x) { *(device vec<T, N>*)p = x; }
template <int N, typename T> void store_wide(threadgroup T* p, vec<T, N> x) { *(threadgroup vec<T, N>*)p = x; }
"""
_ATOMIC = {"int32": "atomic_int", "uint32": "atomic_uint", "float32": "atomic_float"}

LANGUAGE = Language(
    name="metal",
    types=_TYPES,
    suffixes={"float32": "f", "int64": "L", "uint64": "UL", "uint32": "U"},
    convert="(({t}){x})",
    reinterpret="as_type<{v}>({x})",
    functions={
        "SQRT": "precise::sqrt({0})",
        "TRUNC": "trunc({0})",
        "FMA": "fma({0}, {1}, {2})",
    },
    wide_bytes=WIDE_BYTES,
    wide_lanes=4,
    lane_wide="{v}[{i}]",
    build_wide="vec<{t}, {n}>({x})",
    declare="const {t} {v} = {x};",
    kernel="[[kernel, max_total_threads_per_threadgroup({lanes})]] void {name}({params}) {{",
    pointer="device {t}* {v} [[buffer({slot})]]",
    scalar="constant long& {v} [[buffer({slot})]]",
    arguments=("uint3 group [[threadgroup_position_in_grid]]", "uint3 lane [[thread_position_in_threadgroup]]"),
    local="alignas(16) threadgroup {t} {v}[{n}];",
    barrier="threadgroup_barrier(mem_flags::mem_threadgroup);",
    shuffle="shuffle_xor<{t}>({x}, {bits})",
    ids={f"{k}{i}": f"{v}.{c}" for k, v in (("gidx", "group"), ("lidx", "lane")) for i, c in enumerate("xyz")},
    atomic_add={
        d: f"atomic_fetch_add_explicit((device {t}*){{p}}, {{x}}, memory_order_relaxed)" for d, t in _ATOMIC.items()
    }
    | {"": c_style.ADD_ALONE},
    units={u.name: function(u, {d: _TYPES.get(d.name) or "ushort" for d in (u.a, u.b, u.acc)}) for u in APPLE},
    header=_HEADER,
    index="long",
    small_index="int",
)
TARGET = Target(
    name="metal",
    native=NATIVE,
    native_dtypes=Target("metal", NATIVE).native_dtypes - {dtypes.float64},
    cast_dtypes=frozenset((dtypes.float16,)),
    vector_bytes=WIDE_BYTES,
    n_registers=128,
    workgroups=True,
    local_bytes=32 << 10,
    max_local=1024,
    max_block=(1024, 1024, 1024),
    warp=32,
    shuffles=True,
    n_units=16,
    atomics=frozenset(d for d in ALL if d.name in _ATOMIC),
    branches=True,
    units=APPLE,
    key="metal",
)


def render_module(kernels: list[tuple[str, UOp]]) -> str:
    """Return one Metal source with a kernel for each (name, LINEAR)."""
    return c_style.render_module(kernels, LANGUAGE, GroupRenderer)


__all__ = ["LANGUAGE", "NATIVE", "TARGET", "GroupRenderer", "render_module"]
