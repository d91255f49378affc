"""The matrix units of NVIDIA's GPUs: from which architecture on, and how CUDA C++ says them.

What it is for: one function a unit, in which a lane gives what it holds of both operands and of the sum and gets what
it holds of the new sum. wgmma takes descriptors of operands in local memory, and adds while the lanes go on: registers
of a sum are its own from `wgmma_begin` to `wgmma_end`, and what the compiler would move across those is pinned there.
What it does not do: say which elements those are (`base.matrix_units`).
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
_C = {dtypes.float32: ("float", "f", "f32"), dtypes.int32: ("int", "r", "s32")}  # of a sum: type, register, in PTX


def units(arch: int) -> tuple[MatrixUnit, ...]:
    """What compute capability arch / 10 has, the best first. Only code for sm_90a itself may use wgmma."""
    return (HOPPER if arch == WITH_WGMMA else ()) + tuple(u for u in NVIDIA if _since(u) <= arch)


WITH_WGMMA = 90
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


def _of_memory(u: MatrixUnit) -> str:
    """wgmma: the sum is added to in place."""
    n, (t, letter, total) = n_elements(u.maps[2]), _C[u.acc]
    may_turn = u.a.itemsize == 2
    scales = "" if u.acc is dtypes.int32 else f", 1, 1, %{n + 2}, %{n + 3}" if may_turn else ", 1, 1"
    name = f"wgmma.mma_async.sync.aligned.m{u.m}n{u.n}k{u.k}.{total}.{_PTX[u.a]}.{_PTX[u.b]}"
    sums = ", ".join(f"%{i}" for i in range(n))
    outs = ", ".join(f'"+{letter}"(c.e[{i}])' for i in range(n))
    turns = ', "n"(turned_a), "n"(turned_b)' if may_turn else ""
    return "\n".join([
        "template <int turned_a, int turned_b>",
        f"__device__ __forceinline__ void {u.name}(vec<{t}, {n}>& c, unsigned long long a, unsigned long long b) {{",
        '  asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0; "',
        f'      "{name} {{{sums}}}, %{n}, %{n + 1}, p{scales}; }}"',
        f'      : {outs} : "l"(a), "l"(b){turns});',
        "}",
        "",
    ])  # fmt: skip


def _since(u: MatrixUnit) -> int:
    if u.a in (dtypes.fp8e4m3, dtypes.fp8e5m2):
        return 89
    first = (u.a is dtypes.float16 and u.k == 8) or u.m == 8
    return 75 if first else 80


def instruction(u: MatrixUnit) -> str:
    """The name of a unit's instruction in PTX."""
    total = _C[u.acc][2]
    return f"mma.sync.aligned.m{u.m}n{u.n}k{u.k}.row.col.{total}.{_PTX[u.a]}.{_PTX[u.b]}.{total}"


def function(u: MatrixUnit, stored: dict[DType, str]) -> str:
    """The function of a unit; `stored`: the types in which the language keeps elements."""
    if u.from_memory:
        return _of_memory(u)
    held = [n_elements(m) for m in u.maps]
    t, letter, _ = _C[u.acc]
    n_registers = [n * d.itemsize // 4 for n, d in zip(held, (u.a, u.b), strict=False)]
    lines = []
    for x, n in zip("ab", n_registers, strict=True):
        if u.a is dtypes.float32:  # rounded, where the instruction alone would cut off
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
