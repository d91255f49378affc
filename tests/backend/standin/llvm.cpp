// What a kernel of ours in LLVM IR calls on this processor: the ids of a lane, the barrier, shuffles, and what a matrix unit gave.
#include "cuda.h"
namespace standin { template <typename T, int N> struct held { T e[N]; }; }
static unsigned standin_sum[64];  // read by the lane that made it before another one runs
extern "C" unsigned standin_group(unsigned i) { return (&standin::group.x)[i]; }
extern "C" unsigned standin_lane(unsigned i) { return (&standin::lane.x)[i]; }
extern "C" void standin_barrier() { standin::barrier(); }
extern "C" unsigned standin_shuffle(unsigned x, unsigned bits) { return standin::shuffle_xor(x, (int)bits); }
extern "C" unsigned standin_i32(unsigned i) { return standin_sum[i]; }
extern "C" float standin_float(unsigned i) { return __builtin_bit_cast(float, standin_sum[i]); }
