"""List the field's terms, and the modules that implement them: `monolect where TERM`, `monolect glossary`.

What it is for: a reader who knows compilers finds code by a standard term. `others` are synonyms, in this code and in
other projects.
What it is not: documentation of the modules; their docstrings say what they do.
"""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """A term: its name, its meaning in one sentence, modules below monolect/, synonyms."""

    name: str
    meaning: str
    where: tuple[str, ...]
    others: tuple[str, ...] = ()


def _rows(*rows: tuple[str, str, str, str]) -> tuple[Term, ...]:
    return tuple(
        Term(name, meaning, tuple(where.split()), tuple(o.strip() for o in others.split(",") if o))
        for name, meaning, where, others in sorted(rows)
    )


TERMS = _rows(
    (
        "action",
        "A change of a kernel's loops as data, (op, subject, argument), such as SPLIT, PADTO, PEEL, TC or "
        "PACK; a plan accepts only legal ones.",
        "optimize/actions/plan.py optimize/actions/kind.py",
        "OptOps, scheduling primitive, transformation",
    ),
    (
        "alias",
        "Two names of one memory; a write through one is seen through the other.",
        "tensor/view.py capture/around.py capture/returned.py",
        "view, shared memory of tensors",
    ),
    (
        "arena",
        "One allocation that holds all intermediate buffers of a step at planned offsets.",
        "command/rewrites/memory.py backend/common/host/arena.py",
        "memory pool",
    ),
    (
        "autotuning",
        "Choosing a kernel's actions by timing candidates.",
        "optimize/search/beam.py runtime/search/beam.py runtime/search/bench.py",
        "BEAM, search, tuning",
    ),
    (
        "axis part",
        "One of the loops into which SPLIT cuts an axis, which is a RANGE of the original kernel: its size, "
        "its stride along the axis, and its axis type.",
        "optimize/loops/axis_part.py optimize/actions/split.py",
        "AxisPart, root, axis, clipped",
    ),
    (
        "axis type",
        "How a part of an axis runs: LOOP, REDUCE, THREAD, UPCAST (vector lanes or rows of a tile), UNROLL, "
        "GROUP_REDUCE (lanes with partial results), GLOBAL (workgroups), LOCAL (lanes of a workgroup), "
        "CONTRACT (steps inside of a matrix unit).",
        "optimize/loops/nest.py optimize/actions/split.py",
        "UPCAST, GROUP_REDUCE, CONTRACT",
    ),
    (
        "barrier",
        "A point that all threads or lanes reach before any goes on.",
        "command/rewrites/group.py backend/common/host/pool_ir.py",
        "fence, BARRIER",
    ),
    (
        "block loop",
        "A loop that SPLIT makes around all loops but threads, for cache blocks; packed memory is copied in "
        "its iterations.",
        "optimize/loops/axis_part.py optimize/actions/split.py optimize/cpu/contraction.py",
        "loop over cache blocks, outer tile loop",
    ),
    (
        "blocked summation",
        "Add a long float sum in blocks and then their partial sums, for a smaller rounding error.",
        "lower/blocked_sums.py optimize/loops/partial_sums.py",
        "pairwise summation, part by part, folds",
    ),
    (
        "bounds check",
        "A proof at compile time that each index is inside its buffer.",
        "ir/check/prove.py ir/check/custom_kernels.py",
        "CHECK_BOUNDS, out of bounds",
    ),
    (
        "branch of the rare case",
        "Code that runs only when some lane needs it.",
        "lower/cold_paths.py",
        "cold path, unlikely, seldom",
    ),
    (
        "broadcast operand",
        "The operand of a register tile whose scalars are repeated over a vector.",
        "optimize/cpu/contraction.py optimize/cpu/tile_cost.py",
        "scalars",
    ),
    (
        "cache block",
        "The part of the operands that a loop nest works on while it stays in a cache.",
        "optimize/cpu/contraction.py optimize/cpu/tile_cost.py",
        "blocking, tiling, panel",
    ),
    (
        "canonical form",
        "One form for all equal expressions, built when a node is built.",
        "ir/rewrite/normal.py",
        "normal form, simplification, constant fold, reassociate",
    ),
    (
        "captured step",
        "A function whose kernels were recorded once and are replayed as one command buffer.",
        "capture/step.py capture/recording.py capture/fast_path.py",
        "jit, trace, graph capture, usual call, fast path",
    ),
    (
        "causal bound",
        "The end of a loop where a causal mask hides all later iterations.",
        "optimize/actions/bound.py",
        "BOUND, masked attention",
    ),
    (
        "coalesced access",
        "Neighbouring lanes read neighbouring addresses.",
        "optimize/gpu/groups.py optimize/blocks/shared.py",
        "coalescing",
    ),
    (
        "command buffer",
        "The list of launches and copies that a device runs at one submission.",
        "command/forms.py command/passes.py runtime/realize/encode.py backend/common/host/entry.py",
        "command table, graph, schedule",
    ),
    (
        "common subexpression",
        "An expression that occurs twice is one node, since nodes are interned.",
        "ir/uop.py schedule/partition.py",
        "CSE, hash consing, interning",
    ),
    (
        "concatenation",
        "Tensors stored one after another along an axis, without a select inside of the loop.",
        "rules/loops/concat.py rules/loops/concat_boundaries.py",
        "cat, join, seam",
    ),
    (
        "constant hoisting",
        "Values that depend only on constants are computed once for all replays.",
        "command/rewrites/once.py runtime/replay/prologue.py runtime/replay/hoist.py",
        "HOIST, loop-invariant, prologue",
    ),
    (
        "contraction",
        "A sum of products whose operands are each read again for some output: a matrix product, a "
        "convolution, or a gradient of one.",
        "optimize/cpu/contraction.py optimize/gpu/tiles.py",
        "sum of products, einsum",
    ),
    (
        "copy-on-write",
        "A state overwrites its old version unless something else can read that version; then it gets new memory.",
        "command/rewrites/in_place.py tensor/view.py",
        "in place, donation, alias analysis",
    ),
    (
        "dead code",
        "Graphs are built from their results, so they contain no dead nodes.",
        "ir/uop.py schedule/partition.py",
        "elimination",
    ),
    (
        "decomposition",
        "Express an op that a target lacks by ops that it has.",
        "rules/decompose.py rules/transcendental.py rules/trigonometric.py lower/select.py",
        "expansion, polyfill",
    ),
    (
        "deoptimization",
        "A call whose guards fail leaves the fast path.",
        "capture/fast_path.py capture/environment/guards.py",
        "bailout, guard failure",
    ),
    (
        "depthwise convolution",
        "A convolution whose channels do not mix: no product of matrices.",
        "graphs/convolution.py optimize/cpu/heuristic.py",
        "grouped convolution",
    ),
    (
        "dispatch",
        "The path from a user's call to launched kernels.",
        "runtime/realize/execute.py capture/fast_path.py",
        "launch, host overhead",
    ),
    (
        "donation",
        "An argument whose memory a step may reuse for its results.",
        "capture/donated.py command/rewrites/in_place.py",
        "donate, buffer reuse",
    ),
    (
        "double buffer",
        "Two blocks of local memory: one is filled while the other is read.",
        "lower/software_pipeline.py optimize/blocks/shared.py",
        "software pipelining, multi-buffer, in turns",
    ),
    (
        "epilogue",
        "Elementwise work that is fused behind a reduction, while its result is in registers.",
        "schedule/partition.py optimize/loops/partial_sums.py",
        "fusion, post-op",
    ),
    (
        "flash attention",
        "Attention in blocks of keys with an online softmax, without storing the scores.",
        "schedule/rewrites/split_softmax.py optimize/cpu/staged.py graphs/attention.py",
        "online softmax, streaming attention",
    ),
    (
        "fusion",
        "Several operations in one kernel, without memory between them.",
        "schedule/partition.py schedule/materialize.py schedule/scratch.py",
        "kernel fusion, loop fusion",
    ),
    (
        "gate",
        "The condition of a LOAD or STORE: where it is false, the load yields its alternative value, mostly "
        "zero, and the store writes nothing.",
        "lower/control.py optimize/actions/peel.py",
        "mask, predicate, guard of an access",
    ),
    (
        "gather and scatter",
        "Reading, writing and adding at computed indices.",
        "graphs/gather_scatter.py tensor/methods/index.py schedule/rewrites/split_scatters.py",
        "index_add, take_along_dim, embedding",
    ),
    (
        "gemm",
        "A product of matrices: register tile, cache blocks, packed panels.",
        "optimize/cpu/contraction.py optimize/cpu/tile_cost.py optimize/blocks/packed.py",
        "matmul, contraction, sum of products, microkernel",
    ),
    (
        "gemv",
        "A product of a matrix and a vector, limited by memory.",
        "optimize/cpu/dot_products.py optimize/cpu/heuristic.py",
        "matvec, dot product",
    ),
    (
        "guard",
        "A cell, attribute or entry that a captured step read, and the check that it is unchanged.",
        "capture/environment/guards.py capture/environment/dependencies.py capture/environment/bytecode.py",
        "places, assumption, cache key",
    ),
    (
        "im2col",
        "A convolution as a matrix product over the windows of its input, which are views.",
        "graphs/windows.py graphs/convolution.py optimize/blocks/packed.py",
        "implicit gemm, unfold",
    ),
    (
        "instruction selection",
        "Replace operations on values by those that a target has.",
        "lower/select.py lower/matrix_products.py lower/gpu/fragments.py",
        "isel, legalization",
    ),
    (
        "interpreter",
        "Execution of IR on NumPy arrays: the oracle of tests.",
        "ir/check/interp.py ir/check/points.py command/interp.py backend/python/interpret.py",
        "reference, oracle, VERIFY",
    ),
    (
        "interval analysis",
        "The least and the largest value that an index expression can have.",
        "ir/bounds.py",
        "value range, bounds",
    ),
    (
        "kernel cache",
        "Machine code on disk, by the kernel, the target and the compiler's own source.",
        "backend/common/programs.py base/disk/cache.py base/disk/version.py runtime/realize/schedule_cache.py",
        "compile cache, disk cache, memoize",
    ),
    (
        "kernel in the IR",
        "A SINK node whose sources are effects (STORE or ATOMICADD, inside of an END that closes loops) and "
        "whose arg, a KernelInfo, has the kernel's name and actions.",
        "ir/ops.py ir/uop.py optimize/apply.py",
        "SINK, KernelInfo, effect, END",
    ),
    (
        "lane",
        "One element of a vector; on a device with workgroups also one of the work-items of a workgroup.",
        "optimize/loops/nest.py optimize/loops/workgroup.py",
        "SIMD lane, work-item, GPU thread",
    ),
    (
        "launch",
        "One run of a kernel with its buffers and sizes.",
        "command/forms.py lower/gpu/launch.py backend/common/launch.py",
        "grid, workgroups, CALL",
    ),
    (
        "legalization",
        "Emulate types that a target lacks by types that it has.",
        "rules/legalize.py",
        "emulation of bf16, fp8, float16",
    ),
    (
        "liveness",
        "The interval from the first write to the last read of a buffer; disjoint lifetimes share memory.",
        "command/rewrites/memory.py",
        "lifetime, memory plan, buffer reuse",
    ),
    (
        "loop in the IR",
        "A RANGE node is a loop's counter; END closes the loop around an effect, REDUCE closes it around the "
        "terms of a reduction. Enclosing loops are the loops around.",
        "ir/ops.py ir/bounds.py",
        "RANGE, END, REDUCE, loops around",
    ),
    (
        "loop interchange",
        "Exchanging two loops of a nest.",
        "optimize/actions/swap.py optimize/loops/order.py optimize/loops/sequence.py",
        "SWAP, reorder, permutation of loops",
    ),
    (
        "loop nest",
        "The loops of a kernel, as axes with types.",
        "optimize/loops/nest.py optimize/loops/order.py",
        "axes, ranges, schedule of a kernel",
    ),
    (
        "loop split",
        "One loop as two, an outer and an inner one.",
        "optimize/actions/split.py",
        "SPLIT, strip-mine, tile",
    ),
    (
        "mask limit",
        "The index from which on a causal mask hides all keys of a row; it grows with the row.",
        "optimize/actions/bound.py",
        "Limit, edge of a mask, BOUND",
    ),
    (
        "matrix unit",
        "An instruction that multiplies small matrices.",
        "optimize/actions/matrix_unit.py optimize/blocks/warp.py lower/matrix_products.py backend/cpu/units.py",
        "AMX, tensor core, WMMA, TC, VNNI, MFMA",
    ),
    (
        "memory in the IR",
        "A PARAM is an argument of a kernel, by its slot; a BUFFER is memory of the kernel itself, LOCAL or "
        "in registers. INDEX is an address; AFTER(x, y) is x once y has run.",
        "ir/ops.py ir/placement.py",
        "PARAM, BUFFER, INDEX, AFTER, slot",
    ),
    (
        "microkernel",
        "The innermost block of a product: vectors by rows that stay in registers.",
        "optimize/cpu/tile_cost.py optimize/cpu/contraction.py",
        "register block, register tile",
    ),
    (
        "move",
        "One action that a search tries, or several that only make sense together, such as PADTO and SPLIT.",
        "optimize/actions/kind.py optimize/search/moves.py",
        "Move, neighbour",
    ),
    (
        "moving along a loop",
        "An access moves along a loop (or axis) if its address depends on that loop's counter; its step is "
        "the stride in elements.",
        "optimize/cost.py optimize/loops/accesses.py",
        "stride, loop-variant address",
    ),
    (
        "non-temporal store",
        "A store that bypasses the caches.",
        "optimize/actions/nontemporal.py",
        "NONTEMPORAL, streaming store",
    ),
    (
        "one-hot product",
        "A sum of a mask times a table, which is a gather.",
        "rules/loops/reductions.py rules/loops/class_scan.py schedule/rewrites/masked_sums.py",
        "embedding by matmul, masked sum",
    ),
    (
        "packed once",
        "A packed copy of memory that is the same at every run, such as weights; a separate kernel fills it "
        "before the first run.",
        "optimize/blocks/packed.py command/rewrites/pack_once.py",
        "frozen, fill kernel, prepacked weights",
    ),
    (
        "packing",
        "A copy of a block in the order in which the kernel reads it.",
        "optimize/blocks/packed.py optimize/blocks/choice.py command/rewrites/pack_once.py",
        "PACK, panel, prepacked weights, layout transform",
    ),
    (
        "page fault",
        "The first access to a page traps to the system; memory is prefaulted ahead of use.",
        "backend/common/pages.py backend/common/host/memory.py",
        "huge page, prefault, mmap",
    ),
    (
        "panel",
        "The operand of a product whose loads move along the vector lanes (the tile's columns), and its "
        "packed copy; all rows reuse its vectors.",
        "optimize/cpu/contraction.py optimize/blocks/packed.py",
        "packed B, micro-panel",
    ),
    (
        "peel",
        "Run the first or last iterations of a loop in separate code, so that the rest needs no masks.",
        "optimize/actions/peel.py lower/peel_last.py",
        "PEEL, remainder loop, loop peeling, tail",
    ),
    (
        "peeled section",
        "One of the consecutive pieces into which PEEL cuts the iterations of a loop; each becomes a loop of its own.",
        "optimize/actions/peel.py",
        "PEEL, sections",
    ),
    (
        "plan",
        "The axis parts of one kernel and the actions performed on them so far (`LoopPlan`, base class "
        "`LoopNest`); no IR is written yet.",
        "optimize/actions/plan.py optimize/loops/nest.py",
        "schedule of a kernel, LoopPlan",
    ),
    (
        "predication",
        "Lanes whose condition is false read nothing and write nothing.",
        "lower/control.py backend/common/llvm/memory.py",
        "predicate, mask, gate, masked load",
    ),
    (
        "prefetch",
        "Load a cache line before it is read.",
        "optimize/actions/prefetch.py optimize/cpu/contraction.py",
        "PREFETCH, software prefetch",
    ),
    (
        "radix sort",
        "Sorting by digits in linear time.",
        "graphs/radix_sort.py graphs/sort_keys.py",
        "sort, topk, argsort",
    ),
    (
        "reduction",
        "Combine the values along an axis to one.",
        "lower/reduce.py schedule/rewrites/split_reductions.py optimize/loops/partial_sums.py",
        "sum, max, accumulator, tree reduction, split-k",
    ),
    (
        "register pressure",
        "More live values than registers: the rest is spilled to memory.",
        "optimize/cpu/tile_cost.py",
        "spill, occupancy of registers",
    ),
    (
        "register tile",
        "The rows and vectors of results that a product accumulates in registers at once.",
        "optimize/cpu/tile_cost.py optimize/cpu/contraction.py",
        "tile, microkernel, register block",
    ),
    (
        "rematerialization",
        "Computing a value again where that costs less than storing it.",
        "schedule/materialize.py",
        "recompute, checkpointing",
    ),
    (
        "rewrite rule",
        "A pattern and its replacement.",
        "ir/rewrite/pattern.py ir/rewrite/driver.py rules/algebra.py rules/loops/reductions.py",
        "peephole, simplification, strength reduction",
    ),
    (
        "roofline",
        "The lower bound of the run time from arithmetic and memory throughput.",
        "optimize/roofline.py backend/common/host/rates.py runtime/profile.py",
        "peak, GFLOP/s, GB/s, bandwidth, predicted time",
    ),
    (
        "scan",
        "Running sums, products and extremes along an axis.",
        "graphs/scans.py lower/scan.py rules/loops/carry.py",
        "cumsum, prefix sum, running sum",
    ),
    (
        "scratch value",
        "An intermediate result that a kernel stores to a LOCAL buffer (the scratch buffer) in one loop and "
        "reads in later loops, once per iteration of the loops around.",
        "optimize/loops/scratch.py optimize/scratch_rows.py schedule/scratch.py",
        "scratch buffer, scratch row, temporary",
    ),
    (
        "shape inference",
        "The shape and dtype of a node, by the row of its op.",
        "ir/ops.py ir/uop.py",
        "type rule, dtype rule",
    ),
    (
        "shaped part",
        "An axis part of type UPCAST or UNROLL, without workgroups also GROUP_REDUCE: an axis of a vector or "
        "tile value instead of a loop.",
        "optimize/loops/nest.py lower/expand.py",
        "shape, vector axis, unrolled axis",
    ),
    (
        "sharding",
        "A tensor in parts on several devices.",
        "schedule/rewrites/shard.py ir/placement.py autograd/sharding.py tensor/methods/devices.py",
        "axis, collective, multi-device",
    ),
    (
        "shared memory",
        "Memory that the lanes of a workgroup share.",
        "optimize/blocks/shared.py optimize/loops/workgroup.py optimize/blocks/tma_boxes.py",
        "LOCAL, local memory, TMA, bank conflict",
    ),
    (
        "snapshot",
        "A computed value does not change with later writes to its operands.",
        "tensor/view.py runtime/realize/held.py",
        "version, value semantics",
    ),
    (
        "sorting network",
        "A fixed order of compare-exchange steps on whole vectors.",
        "graphs/bitonic_sort.py",
        "bitonic sort",
    ),
    (
        "spill",
        "A value that is moved from registers to memory and back.",
        "optimize/cpu/tile_cost.py optimize/loops/partial_sums.py",
        "waiting accumulator",
    ),
    (
        "square of dot products",
        "A rectangle of results whose dot products are computed at once, with vector lanes along the "
        "reduction; operands are loaded once for a row or column.",
        "optimize/cpu/dot_products.py",
        "Square, dots, outer product of rows",
    ),
    (
        "stencil",
        "Each result reads a window of its neighbours.",
        "graphs/windows.py tensor/neural/pool.py optimize/actions/peel.py",
        "window, halo, pooling",
    ),
    (
        "step of a reduction",
        "An iteration of a reduction loop; with workgroups, the piece of the reduction whose operands the "
        "lanes copy to local memory at once.",
        "optimize/actions/split.py optimize/blocks/shared.py",
        "k step, is_step",
    ),
    (
        "streamed rows",
        "A few matrix rows that are read from memory in parallel, one vector of each at a time, without packing.",
        "optimize/cpu/contraction.py optimize/cpu/heuristic.py",
        "stream, multi-stream",
    ),
    (
        "symbolic size",
        "A size (Variable) bound at run time within known bounds; its symbol is (name, min, max).",
        "tensor/variable.py runtime/binding.py",
        "Variable, dynamic shape",
    ),
    (
        "tap",
        "One position in a window of a convolution or of pooling.",
        "optimize/cpu/heuristic.py optimize/actions/peel.py",
        "kernel position, filter element",
    ),
    (
        "thread affinity",
        "Keep a worker off the core of the caller.",
        "backend/common/host/thread_affinity.py",
        "pinning, sched_setaffinity",
    ),
    (
        "thread pool",
        "Native threads that run command tables and spin before they sleep.",
        "backend/common/host/thread_pool.py backend/common/host/pool_ir.py",
        "workers, THREADS, fork-join",
    ),
    (
        "topological order",
        "Sources before users.",
        "ir/uop.py schedule/order.py lower/linearize.py",
        "toposort, linearization",
    ),
    (
        "translation validation",
        "Compare a kernel before and after each pass, and its results with the interpreter's.",
        "ir/check/validate.py ir/check/compare.py runtime/realize/verified.py",
        "VERIFY, differential testing",
    ),
    (
        "transposition in registers",
        "Transpose a block of vectors by shuffles.",
        "backend/common/llvm/shuffle.py",
        "shuffle, permute, transpose",
    ),
    (
        "unroll",
        "The iterations of a short loop as straight-line code.",
        "optimize/actions/split.py lower/expand.py",
        "UNROLL, UPCAST, loop unrolling",
    ),
    (
        "vectorization",
        "Iterations of a loop as lanes of a vector.",
        "lower/expand.py optimize/cpu/heuristic.py backend/common/llvm/values.py",
        "SIMD, UPCAST, lanes",
    ),
    (
        "warp tile",
        "The tiles of a matrix unit that each warp of a workgroup computes at once.",
        "optimize/gpu/warp_tiles.py optimize/blocks/warp.py",
        "warp, fragment",
    ),
    ("winograd", "A 3x3 convolution with fewer multiplications.", "graphs/winograd.py", "minimal filtering, WINOGRAD"),
    (
        "workgroup",
        "Lanes of a device that run together and share local memory; its subgroups that run in lockstep are warps.",
        "optimize/loops/workgroup.py optimize/gpu/groups.py",
        "thread block, CTA, warp",
    ),
)


def found(word: str) -> list[Term]:
    """Return the terms with `word` in their name, then those with `word` in a synonym."""
    lower = word.lower()
    named = [t for t in TERMS if lower in t.name.lower()]
    return named + [t for t in TERMS if t not in named and any(lower in o.lower() for o in t.others)]


__all__ = ["TERMS", "Term", "found"]
