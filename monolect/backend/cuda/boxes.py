"""Define the CUDA C++ functions that copy boxes of global memory to shared memory by NVIDIA's copy engine (TMA).

What it is for: one lane issues a copy, with the tensor map that the launch prepared. The shared-memory buffers are used
round-robin. Each has an mbarrier that counts issued boxes and arrived bytes; its phase ends once for each step that
uses the buffer: step s uses buffer s % turns. All lanes wait for the phase of their step. What it does not do: it does
not protect a buffer that is still read; the workgroup barrier before each copy does.
Source: NVIDIA, "PTX ISA", cp.async.bulk.tensor and mbarrier.
"""

from __future__ import annotations

from monolect.backend.common.clike.language import BulkCopies


def _copy(rank: int) -> str:
    """Return the text of `copy_box` for tensor maps of `rank` axes."""
    params = "".join(f", int c{i}" for i in range(rank))
    coordinates = ", ".join(f"%{i + 3}" for i in range(rank))
    values = ", ".join(f'"r"(c{i})' for i in range(rank))
    shared = "shared::cluster.global.mbarrier::complete_tx::bytes"
    return f"""\
__device__ __forceinline__ void copy_box(void* to, const tensor_map& map, unsigned long long* arrived, int n,
                                         bool on{params}) {{
  if (on && first_lane()) {{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(local_at(arrived)), "r"(n) : "memory");
    asm volatile("cp.async.bulk.tensor.{rank}d.{shared} [%0], [%1, {{{coordinates}}}], [%2];"
      :: "r"(local_at(to)), "l"(&map), "r"(local_at(arrived)), {values} : "memory");
  }}
  __syncwarp();
}}
"""


BULK_COPIES = BulkCopies(
    functions="""\
struct alignas(64) tensor_map { unsigned long long bits[16]; };
__device__ __forceinline__ unsigned local_at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ bool first_lane() { return (threadIdx.x | threadIdx.y | threadIdx.z) == 0; }
template <int turns> __device__ __forceinline__ void boxes_begin(unsigned long long (&arrived)[turns], int n) {
  if (first_lane()) {
    for (int i = 0; i < turns; i++)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(local_at(arrived + i)), "r"(n) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
}
template <int turns> __device__ __forceinline__ void boxes_wait(unsigned long long (&arrived)[turns], unsigned step) {
  const unsigned at = local_at(arrived + step % turns), phase = step / turns & 1;
  unsigned done;
  do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
    : "=r"(done) : "r"(at), "r"(phase) : "memory");
  while (!done);
}
"""
    + "".join(_copy(rank) for rank in range(2, 6)),
    parameter="const __grid_constant__ tensor_map {v}",
    begin="__shared__ unsigned long long {v}[{turns}]; boxes_begin({v}, {n});",
    copy="copy_box({to}, {map}, {v} + {turn}, {n}, {gate}, {at});",
    wait="boxes_wait({v}, {step});",
)


__all__ = ["BULK_COPIES"]
