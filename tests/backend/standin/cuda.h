// What a CUDA kernel of ours uses, for a C++ compiler.
#include "threads.h"
#include "boxes.h"
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(n)
// local memory that a launch asks for: whoever launches looks whether what is beyond is as it was
extern "C" { alignas(1024) unsigned char standin_local[256 << 10]; }
#define blockIdx standin::group
#define threadIdx standin::lane
#define __syncthreads standin::barrier
template <typename T, int N> struct alignas(sizeof(T) * N) vec { T e[N]; };
template <int N, typename T> vec<T, N> load_wide(const T* p) { return standin::wide_load<vec<T, N>>(p); }
template <int N, typename T> void store_wide(T* p, vec<T, N> x) { standin::wide_store(p, x); }
template <typename T> T atomicAdd(T* p, T x) { T old = *p; *p = old + x; return old; }
inline int atomicAdd(int* p, int x) { return atomicAdd((unsigned*)p, (unsigned)x); }
inline float f32_of_f16(unsigned short x) { return __builtin_bit_cast(_Float16, x); }
inline unsigned short f16_of_f32(float x) { return __builtin_bit_cast(unsigned short, (_Float16)x); }
inline float f32_of_bf16(unsigned short x) { return __builtin_bit_cast(float, (unsigned)x << 16); }
inline unsigned short bf16_of_f32(float x) {
  const unsigned u = __builtin_bit_cast(unsigned, x);
  return x != x ? 0x7FFF : (u + 0x7FFF + (u >> 16 & 1)) >> 16;
}
inline standin::Cores core_matrices(const void* p, int lead, int stride) { return {(const char*)p, lead, stride}; }
inline standin::Cores panels(const void* p, int lead) { return {(const char*)p, lead, 0, true}; }
template <int N> void copy_async(void* to, const void* from) { standin::copy_async<N>(to, from); }
inline void copies_done() { standin::copies_done(); }
inline void wgmma_begin() {}
inline void wgmma_end() {}
template <typename T, int N> void wgmma_pin(vec<T, N>&) {}
inline void publish() {}
template <typename T> T shuffle_xor(T x, int bits) { return standin::shuffle_xor(x, bits); }
