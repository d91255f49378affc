// What a kernel of ours in LLVM IR calls on this processor: the ids of a lane, and the barrier.
#include "threads.h"
extern "C" unsigned standin_group(unsigned i) { return (&standin::group.x)[i]; }
extern "C" unsigned standin_lane(unsigned i) { return (&standin::lane.x)[i]; }
extern "C" void standin_barrier() { standin::barrier(); }
