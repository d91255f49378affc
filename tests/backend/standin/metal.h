// What a Metal kernel of ours uses of the language and its library, for a C++ compiler.
#include "threads.h"
#define device
#define constant const
#define threadgroup static
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef standin::uint3 uint3;
template <typename T, int N> struct alignas(sizeof(T) * N) vec {
  T e[N];
  vec() = default;
  template <typename... X> explicit vec(X... x) : e{(T)x...} { static_assert(sizeof...(x) == N && N <= 4); }
  T operator[](int i) const { return e[i]; }
};
template <int N, typename T> vec<T, N> load_wide(const T* p) { return standin::wide_load<vec<T, N>>(p); }
template <int N, typename T> void store_wide(T* p, vec<T, N> x) { standin::wide_store(p, x); }
template <typename T, typename S> T as_type(S x) { return __builtin_bit_cast(T, x); }
namespace precise {
inline float sqrt(float x) { return ::sqrtf(x); }
}
enum class mem_flags { mem_none, mem_device, mem_threadgroup };
inline void threadgroup_barrier(mem_flags) { standin::barrier(); }
enum memory_order { memory_order_relaxed };
typedef struct { int value; } atomic_int;
typedef struct { unsigned value; } atomic_uint;
typedef struct { float value; } atomic_float;
template <typename A, typename T> T atomic_fetch_add_explicit(A* p, T x, memory_order) {
  T old = p->value;
  p->value = old + x;
  return old;
}
template <typename T> T shuffle_xor(T x, int bits) { return standin::shuffle_xor(x, bits); }
