"""Boxes of memory to local memory by NVIDIA's copy engine (TMA), as CUDA C++.

What it is for: one lane asks, with the tensor map that the launch made; an mbarrier for each of the blocks in turns
counts the boxes that were asked for and the bytes that came. All lanes wait for the phase of their step: that of block
s % turns ends once for each step s. What it does not do: protect a block that is still read, as the barrier of the
workgroup before each request does.
Source: NVIDIA, "PTX ISA", cp.async.bulk.tensor and mbarrier.
"""

from __future__ import annotations

from monolect.backend.common.clike.language import BulkCopies


def _copy(rank: int) -> str:
    """The function for maps of `rank` axes."""
    params = "".join(f", int c{i}" for i in range(rank))
    places = ", ".join(f"%{i + 3}" for i in range(rank))
    values = ", ".join(f'"r"(c{i})' for i in range(rank))
    shared = "shared::cluster.global.mbarrier::complete_tx::bytes"
    return f"""\
__device__ __forceinline__ void copy_box(void* to, const tensor_map& map, unsigned long long* arrived, int n,
                                         bool on{params}) {{
  if (on && first_lane()) {{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(local_at(arrived)), "r"(n) : "memory");
    asm volatile("cp.async.bulk.tensor.{rank}d.{shared} [%0], [%1, {{{places}}}], [%2];"
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
