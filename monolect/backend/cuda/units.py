"""List the matrix units of NVIDIA's architectures, and render each as a CUDA C++ function.

What it is for: in the function of a unit, each lane passes its elements of both operands and of the accumulator, and
gets its elements of the new accumulator. wgmma takes descriptors of operands in shared memory and runs asynchronously:
no lane may touch its accumulators between `wgmma_begin` and `wgmma_end`. `wgmma_pin` keeps the compiler from moving
code across them.
What it does not do: it does not say which elements a lane holds (`base.matrix_units`).
Source: NVIDIA, "PTX ISA", mma, wgmma.mma_async and its matrix descriptor.
"""

from __future__ import annotations

from monolect.backend.common.clike.language import MemoryUnits
from monolect.base.dtype import DType, dtypes
from monolect.base.matrix_units import HOPPER, NVIDIA, n_elements
from monolect.base.target import MatrixUnit

_PTX = {
    dtypes.float16: "f16", dtypes.bfloat16: "bf16", dtypes.float32: "tf32", dtypes.int8: "s8", dtypes.uint8: "u8",
    dtypes.fp8e4m3: "e4m3", dtypes.fp8e5m2: "e5m2",
}  # fmt: skip
_C = {
    dtypes.float32: ("float", "f", "f32"),
    dtypes.int32: ("int", "r", "s32"),
}  # of accumulators: C type, register constraint, PTX type


def units(arch: int) -> tuple[MatrixUnit, ...]:
    """Return the matrix units of compute capability `arch` / 10, the fastest first. wgmma needs code for sm_90a."""
    return (HOPPER if arch == WGMMA_ARCH else ()) + tuple(u for u in NVIDIA if _min_arch(u) <= arch)


WGMMA_ARCH = 90  # the only architecture with wgmma
MEMORY_UNITS = MemoryUnits(
    functions="""\
__device__ __forceinline__ unsigned long long core_matrices(const void* p, unsigned lead, unsigned stride) {
  const unsigned long long at = __cvta_generic_to_shared(p) & 0x3FFFF;
  return at >> 4 | (unsigned long long)(lead >> 4) << 16 | (unsigned long long)(stride >> 4) << 32;
}
__device__ __forceinline__ unsigned long long panels(const void* p, unsigned lead) {
  const unsigned long long at = __cvta_generic_to_shared(p) & 0x3FFFF;
  return at >> 4 | (unsigned long long)(lead ? lead >> 4 : 1) << 16 | 64ull << 32 | 1ull << 62;
}
__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_end() {
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
__device__ __forceinline__ void wgmma_pin(float& x) { asm volatile("" : "+f"(x) :: "memory"); }
__device__ __forceinline__ void wgmma_pin(int& x) { asm volatile("" : "+r"(x) :: "memory"); }
template <typename T, int N> __device__ __forceinline__ void wgmma_pin(vec<T, N>& x) {
  for (int i = 0; i < N; i++) wgmma_pin(x.e[i]);
}
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
""",
    operand="core_matrices({p}, {lead}, {stride})",
    panels="panels({p}, {lead})",
    begin="wgmma_begin();",
    end="wgmma_end();",
    pin="wgmma_pin({v});",
    publish="publish();",
)


def _wgmma_function(u: MatrixUnit) -> str:
    """Return the function of a wgmma unit, which adds to its accumulator in place."""
    n, (t, letter, total) = n_elements(u.maps[2]), _C[u.acc]
    can_transpose = u.a.itemsize == 2
    scales = "" if u.acc is dtypes.int32 else f", 1, 1, %{n + 2}, %{n + 3}" if can_transpose else ", 1, 1"
    name = f"wgmma.mma_async.sync.aligned.m{u.m}n{u.n}k{u.k}.{total}.{_PTX[u.a]}.{_PTX[u.b]}"
    sums = ", ".join(f"%{i}" for i in range(n))
    outs = ", ".join(f'"+{letter}"(c.e[{i}])' for i in range(n))
    turns = ', "n"(turned_a), "n"(turned_b)' if can_transpose else ""
    return "\n".join([
        "template <int turned_a, int turned_b>",
        f"__device__ __forceinline__ void {u.name}(vec<{t}, {n}>& c, unsigned long long a, unsigned long long b) {{",
        '  asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; "',
        f'      "{name} {{{sums}}}, %{n}, %{n + 1}, p{scales}; }}"',
        f'      : {outs} : "l"(a), "l"(b){turns});',
        "}",
        "",
    ])  # fmt: skip


def _min_arch(u: MatrixUnit) -> int:
    if u.a in (dtypes.fp8e4m3, dtypes.fp8e5m2):
        return 89
    first = (u.a is dtypes.float16 and u.k == 8) or u.m == 8
    return 75 if first else 80


def instruction(u: MatrixUnit) -> str:
    """Return the PTX name of a unit's mma.sync instruction."""
    total = _C[u.acc][2]
    return f"mma.sync.aligned.m{u.m}n{u.n}k{u.k}.row.col.{total}.{_PTX[u.a]}.{_PTX[u.b]}.{total}"


def function(u: MatrixUnit, stored: dict[DType, str]) -> str:
    """Return the CUDA C++ function of a unit; `stored` gives the C type of operand elements by dtype."""
    if u.from_memory:
        return _wgmma_function(u)
    held = [n_elements(m) for m in u.maps]
    t, letter, _ = _C[u.acc]
    n_registers = [n * d.itemsize // 4 for n, d in zip(held, (u.a, u.b), strict=False)]
    lines = []
    for x, n in zip("ab", n_registers, strict=True):
        if u.a is dtypes.float32:  # rounds to TF32; the instruction itself would truncate
            lines.append(f"  vec<unsigned int, {n}> {x}r;")
            lines += [f'  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"({x}r.e[{i}]) : "f"({x}.e[{i}]));' for i in range(n)]
        else:
            lines.append(f"  const auto {x}r = __builtin_bit_cast(vec<unsigned int, {n}>, {x});")
    sides, at = [], 0
    for n in (held[2], *n_registers, held[2]):
        sides.append("{" + ", ".join(f"%{(at + i) % (held[2] + sum(n_registers))}" for i in range(n)) + "}")
        at += n
    outs = ", ".join(f'"+{letter}"(c.e[{i}])' for i in range(held[2]))
    ins = ", ".join(f'"r"({x}r.e[{i}])' for x, n in zip("ab", n_registers, strict=True) for i in range(n))
    types = ", ".join(f"vec<{s}, {n}> {x}" for s, n, x in zip((stored[u.a], stored[u.b], t), held, "abc", strict=True))
    return "\n".join([
        f"__device__ vec<{t}, {held[2]}> {u.name}({types}) {{",
        *lines,
        f'  asm volatile("{instruction(u)} {", ".join(sides)};" : {outs} : {ins});',
        "  return c;",
        "}",
    ])  # fmt: skip


__all__ = ["MEMORY_UNITS", "WGMMA_ARCH", "function", "instruction", "units"]
