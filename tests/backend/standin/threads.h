// A workgroup on one processor: each lane is a fiber, a barrier switches to the next lane. Included before a kernel.
// Lanes run one after another up to a barrier, first to last and then last to first: a barrier that is missing shows as
// a wrong value, every time. Mistakes that a GPU would not forgive are counted in `failed`.
#pragma once
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // C's <math.h>: that of C++ takes longer to read than a kernel to compile
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>
#include <type_traits>
#include <utility>

namespace standin {
struct uint3 { unsigned x, y, z; };
struct Lane { jmp_buf at; char* stack; uint3 id; bool is_started, is_done; };

enum Failure { NONE, DIVERGED = 1, MISALIGNED = 2, IN_FLIGHT = 4, NEVER = 8 };
constexpr size_t STACK_BYTES = 256 << 10;
constexpr unsigned MOST_LANES = 1024;
static Lane lanes[MOST_LANES];
static jmp_buf scheduler;
static Lane* current;
static uint3 group, lane;
static int failed;
static unsigned turn;  // of all lanes: from one barrier to the next
static void (*body)();

// A context is made once for each lane; from then on jumps switch, which ask nothing of the system.
static void barrier() {
  Lane* const me = current;
  if (!_setjmp(me->at)) _longjmp(scheduler, 1);
  lane = me->id;
}

static void start() {
  for (;;) {
    lane = current->id;
    body();
    current->is_done = true;
    barrier();  // until the next workgroup
  }
}

static void resume(Lane& l) {
  current = &l;
  if (_setjmp(scheduler)) return;
  if (l.is_started) _longjmp(l.at, 1);
  if (!l.stack) l.stack = (char*)malloc(STACK_BYTES);
  l.is_started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = l.stack;
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = nullptr;
  makecontext(&context, start, 0);
  setcontext(&context);
}

// Copies that a lane does not wait for are made when it does, not before.
struct Copy { void* to; const void* from; int n; };
constexpr int MOST_COPIES = 256;
static Copy copies[MOST_LANES][MOST_COPIES];
static int n_copies[MOST_LANES];

template <int N> void copy_async(void* to, const void* from) {
  const int me = current - lanes;
  if ((size_t)to % N || (size_t)from % N || n_copies[me] == MOST_COPIES) { failed |= MISALIGNED; return; }
  copies[me][n_copies[me]++] = {to, from, N};
}

static void copies_done() {
  const int me = current - lanes;
  for (int i = 0; i < n_copies[me]; i++) __builtin_memcpy(copies[me][i].to, copies[me][i].from, copies[me][i].n);
  n_copies[me] = 0;
}

static int n_arrivals, n_boxes;  // of copies of boxes: counters, and what nobody waited for yet

// All lanes of one workgroup, from barrier to barrier.
static void run_group(uint3 n, bool backwards) {
  const unsigned count = n.x * n.y * n.z;
  n_arrivals = n_boxes = 0;
  for (unsigned i = 0; i < count; i++) {
    lanes[i].id = {i % n.x, i / n.x % n.y, i / n.x / n.y};
    lanes[i].is_done = false;
    n_copies[i] = 0;  // what nobody waited for
  }
  for (unsigned done = 0; done < count; backwards = !backwards) {
    done = 0;
    turn++;
    for (unsigned i = 0; i < count; i++) {
      Lane& l = lanes[backwards ? count - 1 - i : i];
      if (!l.is_done) resume(l);
      done += l.is_done;
    }
    if (done && done < count) {  // some wait for lanes that have ended
      failed |= DIVERGED;
      for (unsigned i = 0; i < count; i++) lanes[i].is_started = false;
      return;
    }
  }
  if (n_boxes) failed |= IN_FLIGHT;
}

// ---- what a warp has in common ---------------------------------------------------------------------------------------
inline float half_of(unsigned short x) { return __builtin_bit_cast(_Float16, x); }
inline float half_of(_Float16 x) { return x; }
inline float tf32(float x) { return __builtin_bit_cast(float, (__builtin_bit_cast(unsigned, x) + 4096) & 0xFFFFE000); }

// What the lane has whose number differs in `bits`.
template <class T> T shuffle_xor(T x, int bits) {
  static T all[MOST_LANES];
  const int me = current - lanes;
  all[me] = x;
  barrier();
  x = all[me ^ bits];
  barrier();
  return x;
}

// What lanes in a row share: the first of them that comes in a turn makes it.
struct Made {
  unsigned in_turn;
  int by;
  bool now_by(int first) {
    if (in_turn == turn && by == first) return true;
    in_turn = turn, by = first;
    return false;
  }
};

// The product of tiles M x K and N x K of which each of T lanes holds a part: element i of lane l is at at[l * n + i].
template <int M, int N, int K, int T, class W, int na, int nb, int nc, class A, class B, class C, class X, class Y>
C in_warp(A a, B b, C c, const int (*at_a)[2], const int (*at_b)[2], const int (*at_c)[2], X x, Y y) {
  static A all_a[MOST_LANES];
  static B all_b[MOST_LANES];
  const int me = current - lanes, first = me / T * T;
  all_a[me] = a;
  all_b[me] = b;
  barrier();
  static W left[M][K], right[N][K];
  static Made made;
  for (int l = made.now_by(first) ? T : 0; l < T; l++) {
    for (int i = 0; i < na; i++) left[at_a[l * na + i][0]][at_a[l * na + i][1]] = x(all_a[first + l].e[i]);
    for (int i = 0; i < nb; i++) right[at_b[l * nb + i][0]][at_b[l * nb + i][1]] = y(all_b[first + l].e[i]);
  }
  for (int i = 0; i < nc; i++) {
    const int *at = at_c[(me - first) * nc + i];
    W sum = c.e[i];
    for (int k = 0; k < K; k++) sum += left[at[0]][k] * right[at[1]][k];
    c.e[i] = sum;
  }
  barrier();
  return c;
}

// An operand in local memory, in core matrices: 8 lines of 16 bytes, side by side. Bytes from one to the next.
// Or in the swizzling mode of 128 bytes, along_k then being bytes from one piece of 64 rows to the next, where turned.
struct Cores {
  const char* start; int along_k, along_rows; bool swizzled;
  bool operator==(const Cores&) const = default;
};

// Where that mode puts a byte: bits 4 to 6 of an address are changed by bits 7 to 9.
inline size_t swizzled(size_t at) { return at ^ (at >> 3 & 0x70); }

template <class E> E element(Cores x, bool turned, int row, int k) {
  if (x.swizzled) {
    const int line = turned ? k : row, in_line = turned ? row : k;
    const int at = line / 8 * 1024 + line % 8 * 128 + in_line % (128 / sizeof(E)) * sizeof(E);
    return *(const E*)swizzled((size_t)x.start + at + in_line / (128 / sizeof(E)) * x.along_k);
  }
  constexpr int per_line = 16 / sizeof(E);
  const int line = turned ? k % 8 : row % 8, at = turned ? row % 8 : k % per_line;
  const char* core = x.start + (row / 8) * x.along_rows + (k / per_line) * x.along_k;
  return *(const E*)(core + 16 * line + sizeof(E) * at);
}

// The same of a unit of four warps that reads its operands there. Lane l of warp w has rows 16 w + l / 4 and 8 below.
template <int M, int N, int K, class W, class A, class B, class C, class X, class Y>
void in_group(C& c, Cores a, Cores b, bool turned_a, bool turned_b, X x, Y y) {
  const int me = (current - lanes) % 128, first = current - lanes - me, n = M * N / 128;
  for (Cores o : {a, b})
    if ((size_t)o.start % 16 || o.along_k % 16 || o.along_rows % 16) failed |= MISALIGNED;
  barrier();
  static W left[M][K], right[N][K];
  static Made made;
  static Cores of_a, of_b;  // each lane says where they are
  if (!made.now_by(first) || a != of_a || b != of_b) {
    of_a = a, of_b = b;
    for (int k = 0; k < K; k++) {
      for (int i = 0; i < M; i++) left[i][k] = x(element<A>(a, turned_a, i, k));
      for (int i = 0; i < N; i++) right[i][k] = y(element<B>(b, turned_b, i, k));
    }
  }
  for (int i = 0; i < n; i++) {
    const int row = me / 32 * 16 + me % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + me % 4 * 2 + i % 2;
    W sum = c.e[i];
    for (int k = 0; k < K; k++) sum += left[row][k] * right[column][k];
    c.e[i] = sum;
  }
  barrier();
}

static const long long* arguments;

// Argument `i` of `n` as the kernel declares it; the last two of type uint3 are where the lane is.
template <class T> T argument(int i, int n) {
  if constexpr (sizeof(T) > 16) return *(const T*)arguments[i];  // a tensor map, given by its address
  else if constexpr (std::is_same_v<T, uint3>) return i == n - 1 ? lane : group;
  else if constexpr (std::is_reference_v<T>) return *(std::remove_reference_t<T>*)(arguments + i);
  else return (T)arguments[i];
}

template <auto kernel> struct Call;
template <class... A, void (*kernel)(A...)> struct Call<kernel> {
  template <size_t... I> static void with(std::index_sequence<I...>) { kernel(argument<A>(I, sizeof...(A))...); }
  static void call() { with(std::index_sequence_for<A...>{}); }
};

template <auto kernel> int run(const long long* args, const unsigned* groups, const unsigned* n, bool has_barrier) {
  failed = NONE;
  arguments = args;
  body = Call<kernel>::call;
  for (group.z = 0; group.z < groups[2]; group.z++)
    for (group.y = 0; group.y < groups[1]; group.y++)
      for (group.x = 0; group.x < groups[0]; group.x++) {
        if (has_barrier) run_group({n[0], n[1], n[2]}, group.x & 1);
        else
          for (lane.z = 0; lane.z < n[2]; lane.z++)
            for (lane.y = 0; lane.y < n[1]; lane.y++)
              for (lane.x = 0; lane.x < n[0]; lane.x++) body();
        if (failed) return failed;
      }
  return failed;
}

template <class V, class T> V wide_load(const T* p) {
  if ((size_t)p % sizeof(V)) failed |= MISALIGNED;
  return *(const V*)p;
}
template <class V, class T> void wide_store(T* p, V x) {
  if ((size_t)p % sizeof(V)) failed |= MISALIGNED;
  *(V*)p = x;
}
}  // namespace standin
