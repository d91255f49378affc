"""Render LINEAR programs as CUDA C++; the module defines the language table and the Target of an architecture.

Kernels include no header: PTX instructions convert narrow floats.
What it does not do: it does not choose the architecture; callers pass it.
"""

from __future__ import annotations

from monolect.backend.common.clike import program as c_style
from monolect.backend.common.clike.language import AsyncCopies, Language
from monolect.backend.common.clike.program import C_NATIVE
from monolect.backend.common.clike.workgroups import GroupRenderer
from monolect.backend.cuda.boxes import BULK_COPIES
from monolect.backend.cuda.units import MEMORY_UNITS, WGMMA_ARCH, function, units
from monolect.base.dtype import ALL, DType, dtypes
from monolect.base.target import Target
from monolect.ir.uop import UOp

# CUDA's math functions have errors of at most 2 ULP and keep subnormal numbers; they are built into NVRTC
NATIVE = C_NATIVE | {"EXP2", "LOG2", "SIN"}
BFLOAT16_SINCE = ASYNC_SINCE = 80  # first architecture that converts bfloat16, and with cp.async
WIDE_BYTES = 16  # of the widest access of a lane
_TYPES = {
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long long",
    "float32": "float", "float64": "double",
}  # fmt: skip
_FUNCTIONS = {
    "SQRT float32": "sqrtf({0})", "SQRT float64": "sqrt({0})", "TRUNC float32": "truncf({0})",
    "TRUNC float64": "trunc({0})", "FMA float32": "fmaf({0}, {1}, {2})", "FMA float64": "fma({0}, {1}, {2})",
    "EXP2 float32": "exp2f({0})", "EXP2 float64": "exp2({0})", "LOG2 float32": "log2f({0})",
    "LOG2 float64": "log2({0})", "SIN float32": "sinf({0})", "SIN float64": "sin({0})",
}  # fmt: skip
# C types of operand elements of matrix units; narrow floats are stored as their bits
_STORED = {d: _TYPES.get(d.name) or _TYPES[f"uint{d.bits}"] for d in ALL if d.kind in "iufs"}
_WIDE = """\
template <typename T, int N> struct alignas(sizeof(T) * N) vec { T e[N]; };
template <int N, typename T> __device__ vec<T, N> load_wide(const T* p) { return *(const vec<T, N>*)p; }
template <int N, typename T> __device__ void store_wide(T* p, vec<T, N> x) { *(vec<T, N>*)p = x; }
"""
_SHUFFLE = """\
template <typename T> __device__ T shuffle_xor(T x, int bits) {
  if constexpr (sizeof(T) < 4) return (T)__shfl_xor_sync(0xFFFFFFFFu, (int)x, bits);
  else return __shfl_xor_sync(0xFFFFFFFFu, x, bits);
}
"""
_HALF = """\
__device__ float f32_of_f16(unsigned short x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
__device__ unsigned short f16_of_f32(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
"""
_BFLOAT = """\
__device__ float f32_of_bf16(unsigned short x) { return __uint_as_float((unsigned int)x << 16); }
__device__ unsigned short bf16_of_f32(float x) {
  unsigned short y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
"""
_COPIES = AsyncCopies(
    functions="""\
template <int N> __device__ __forceinline__ void copy_async(void* to, const void* from) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(to);
  const unsigned long long p = __cvta_generic_to_global(from);
  if constexpr (N == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(p) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(at), "l"(p), "n"(N) : "memory");
}
__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }
""",
    copy="copy_async<{n}>({to}, {p});",
    wait="copies_done();",
)
_ADD = "atomicAdd({p}, {x})"
_U64 = "unsigned long long"


def language(arch: int) -> Language:
    """Return the language table of CUDA C++ for compute capability `arch` / 10: 75, 80, 86, 89, 90, 100."""
    bfloat = arch >= BFLOAT16_SINCE
    conversions = {"float16 float32": "f32_of_f16({x})", "float32 float16": "f16_of_f32({x})"}
    if bfloat:
        conversions |= {"bfloat16 float32": "f32_of_bf16({x})", "float32 bfloat16": "bf16_of_f32({x})"}
    return Language(
        name="cuda",
        types=_TYPES,
        suffixes={"float32": "f", "int64": "LL", "uint64": "ULL", "uint32": "U"},
        convert="(({t}){x})",
        conversions=conversions,
        reinterpret="__builtin_bit_cast({v}, {x})",
        functions=_FUNCTIONS,
        wide_bytes=WIDE_BYTES,
        declare="const {t} {v} = {x};",
        kernel='extern "C" __global__ void __launch_bounds__({lanes}) {name}({params}) {{',
        pointer="{t}* {v}",
        scalar="const long long {v}",
        local="alignas({align}) __shared__ {t} {v}[{n}];",
        static_local_bytes=DECLARED_BYTES,
        local_at_launch="extern __shared__ __align__({align}) unsigned char local_memory[];",
        local_part="{t}* const {v} = ({t}*)(local_memory + {at});",
        barrier="__syncthreads();",
        shuffle="shuffle_xor<{t}>({x}, {bits})",
        ids={f"{ours}{i}": f"{theirs}.{c}" for ours, theirs in _IDS.items() for i, c in enumerate("xyz")},
        atomic_add={d: _ADD for d in ("int32", "uint32", "uint64", "float32", "float64")}
        | {"int64": f"atomicAdd(({_U64}*){{p}}, ({_U64}){{x}})", "": c_style.ADD_ALONE},
        header=_WIDE + _SHUFFLE + _HALF + (_BFLOAT if bfloat else ""),
        units={u.name: function(u, _STORED) for u in units(arch)},
        async_copies=_COPIES if arch >= ASYNC_SINCE else None,
        bulk_copies=BULK_COPIES if arch == WGMMA_ARCH else None,
        memory_units=MEMORY_UNITS if arch == WGMMA_ARCH else None,
        index="long long",
        small_index="int",
    )


DECLARED_BYTES = 48 << 10  # shared memory that a kernel can declare; a larger amount must be requested at the launch
# architecture -> KiB of shared memory that a workgroup can have
_LOCAL_KB = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99}  # fmt: skip
N_UNITS = 64  # multiprocessors, assumed when no device is open
_IDS = {"gidx": "blockIdx", "lidx": "threadIdx"}


def cast_dtypes(arch: int) -> frozenset[DType]:
    """Return the narrow float dtypes that the architecture converts by an instruction."""
    return frozenset((dtypes.float16, dtypes.bfloat16) if arch >= BFLOAT16_SINCE else (dtypes.float16,))


def local_bytes(arch: int) -> int:
    """Return the bytes of shared memory of a workgroup; for an unknown architecture those of the next older one."""
    return _LOCAL_KB[max(a for a in _LOCAL_KB if a <= arch)] << 10


def target(arch: int) -> Target:
    """Return the Target of GPUs of compute capability `arch` / 10."""
    rendered = language(arch).atomic_add
    return Target(
        name="cuda",
        concurrency="graph",
        native=NATIVE,
        cast_dtypes=cast_dtypes(arch),
        vector_bytes=WIDE_BYTES,
        n_registers=255,
        workgroups=True,
        local_bytes=local_bytes(arch),
        max_local=1024,
        max_block=(1024, 1024, 64),
        max_grid=((1 << 31) - 1, 65535, 65535),
        warp=32,
        shuffles=True,
        async_copies=arch >= ASYNC_SINCE,
        bulk_copies=arch == WGMMA_ARCH,
        n_units=N_UNITS,
        atomics=frozenset(d for d in ALL if d.name in rendered),
        branches=True,
        units=units(arch),
        key=f"cuda/sm_{arch}",
    )


def render_module(kernels: list[tuple[str, UOp]], arch: int) -> str:
    """Return one CUDA C++ source with a kernel for each (name, LINEAR)."""
    return c_style.render_module(kernels, language(arch), GroupRenderer)


__all__ = [
    "DECLARED_BYTES",
    "NATIVE",
    "GroupRenderer",
    "cast_dtypes",
    "language",
    "local_bytes",
    "render_module",
    "target",
]
