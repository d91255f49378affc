// Copies of boxes by tensor maps, with counters of arrivals. In every other workgroup they are made when they are asked
// for, else when somebody waits for them: a wait that is missing shows as a wrong value, and so does a block that is
// still read. Lines of 128 bytes are swizzled, as the driver was told.
#pragma once
#include "threads.h"

struct alignas(64) tensor_map {
  const char* base;
  unsigned long long strides[4];  // bytes, from the second axis on
  unsigned sizes[5], box[5], itemsize, rank;
};

namespace standin {
struct Box { char* to; tensor_map map; int at[5]; };
struct Arrivals { int expected, arrived, phases, n; Box boxes[64]; };
static Arrivals arrivals[16];

static void copy_now(const Box& b) {
  const tensor_map& m = b.map;
  int i[5] = {};
  for (size_t e = 0;; e++) {
    const char* from = m.base;
    bool inside = true;
    for (unsigned k = 0; k < m.rank; k++) {
      const long long x = (long long)b.at[k] + i[k];
      inside &= x >= 0 && x < m.sizes[k];
      from += x * (long long)(k ? m.strides[k - 1] : m.itemsize);
    }
    char* to = (char*)swizzled((size_t)b.to + e * m.itemsize);
    if (inside) __builtin_memcpy(to, from, m.itemsize);
    else __builtin_memset(to, 0, m.itemsize);
    unsigned k = 0;
    while (k < m.rank && ++i[k] == (int)m.box[k]) i[k++] = 0;
    if (k == m.rank) return;
  }
}

static void arrive(Arrivals& a) {
  for (int i = 0; i < a.n; i++) copy_now(a.boxes[i]);
  n_boxes -= a.arrived;
  a.n = a.arrived = 0;
  a.phases++;
}
}  // namespace standin

template <int turns> void boxes_begin(unsigned long long (&arrived)[turns], int n) {
  if (standin::current == standin::lanes)
    for (auto& x : arrived) standin::arrivals[x = standin::n_arrivals++] = {n};
  standin::barrier();
}

template <class... At>
void copy_box(void* to, const tensor_map& map, unsigned long long* arrived, int n, bool on, At... at) {
  if (!on || standin::current != standin::lanes) return;
  standin::Arrivals& a = standin::arrivals[*arrived];
  int bytes = map.itemsize;
  for (unsigned k = 0; k < map.rank; k++) bytes *= map.box[k];
  if ((size_t)to % 1024 || map.rank != sizeof...(at)) standin::failed |= standin::MISALIGNED;
  if (bytes != n || a.arrived == a.expected) { standin::failed |= standin::NEVER; return; }
  const standin::Box box = {(char*)to, map, {(int)at...}};
  a.arrived++, standin::n_boxes++;
  if (standin::group.x & 1) copy_now(box);
  else a.boxes[a.n++] = box;
}

// Whether the phase of this step is over. All lanes come here, so those that ask for boxes have done so.
template <int turns> void boxes_wait(unsigned long long (&arrived)[turns], unsigned step) {
  standin::barrier();
  standin::Arrivals& a = standin::arrivals[arrived[step % turns]];
  if (a.phases == (int)(step / turns) && a.arrived == a.expected) standin::arrive(a);
  if (a.phases != (int)(step / turns) + 1) standin::failed |= standin::NEVER;
}
