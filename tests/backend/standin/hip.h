// What a HIP kernel of ours uses, for a C++ compiler.
#include "threads.h"
#define __global__
#define __shared__ static
#define amdgpu_flat_work_group_size(a, b)
inline unsigned __builtin_amdgcn_workgroup_id_x() { return standin::group.x; }
inline unsigned __builtin_amdgcn_workgroup_id_y() { return standin::group.y; }
inline unsigned __builtin_amdgcn_workgroup_id_z() { return standin::group.z; }
inline unsigned __builtin_amdgcn_workitem_id_x() { return standin::lane.x; }
inline unsigned __builtin_amdgcn_workitem_id_y() { return standin::lane.y; }
inline unsigned __builtin_amdgcn_workitem_id_z() { return standin::lane.z; }
inline void workgroup_barrier() { standin::barrier(); }
template <typename T, int N> struct alignas(sizeof(T) * N) vec { T e[N]; };
template <int N, typename T> vec<T, N> load_wide(const T* p) { return standin::wide_load<vec<T, N>>(p); }
template <int N, typename T> void store_wide(T* p, vec<T, N> x) { standin::wide_store(p, x); }
template <typename T> void atomic_add(T* p, T x) { *p = *p + x; }
template <typename T> T shuffle_xor(T x, int bits) { return standin::shuffle_xor(x, bits); }
