"""The field's terms, and which modules do what they name: `monolect where TERM`, `monolect glossary`.

What it is for: a reader who knows compilers finds the code by the word that they know. `others` are words of this code
and of other projects for the same thing.
What it is not: documentation of the modules, which say themselves what they do.
"""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """One row: the term, one sentence, modules below monolect/, other words for it."""

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
        "barrier",
        "A point that all threads or lanes reach before any goes on.",
        "command/rewrites/group.py backend/common/host/pool_ir.py",
        "fence, BARRIER",
    ),
    (
        "blocked summation",
        "Adding a long float sum in blocks whose partial sums are added last, for a smaller error.",
        "lower/blocked_sums.py optimize/actions/sums.py",
        "pairwise summation, part by part, folds",
    ),
    (
        "bounds check",
        "A proof while compiling that each index stays inside its buffer.",
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
        "capture/jit.py capture/recording.py capture/fast_path.py",
        "jit, trace, graph capture, usual call, fast path",
    ),
    (
        "causal bound",
        "The end of a loop where a causal mask hides all later iterations.",
        "optimize/actions/causal_bound.py",
        "BOUND, masked attention",
    ),
    (
        "coalesced access",
        "Neighbouring lanes read neighbouring addresses.",
        "optimize/gpu/groups.py optimize/gpu/shared.py",
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
        "What depends on constants alone is computed once for all replays.",
        "command/rewrites/once.py runtime/replay/prologue.py runtime/replay/hoist.py",
        "HOIST, loop-invariant, prologue",
    ),
    (
        "copy-on-write",
        "A state is written over its old version where nobody else can see it, else into new memory.",
        "command/rewrites/in_place.py tensor/view.py",
        "in place, donation, alias analysis",
    ),
    (
        "dead code",
        "What no result needs is in no graph, as graphs are built from their results.",
        "ir/uop.py schedule/partition.py",
        "elimination",
    ),
    (
        "decomposition",
        "An op that a target lacks, in terms of ops that it has.",
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
        "From a call of the user to launched kernels.",
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
        "lower/software_pipeline.py optimize/gpu/shared.py",
        "software pipelining, multi-buffer, in turns",
    ),
    (
        "epilogue",
        "Elementwise work that is fused behind a reduction, while its result is in registers.",
        "schedule/partition.py optimize/actions/sums.py",
        "fusion, post-op",
    ),
    (
        "fusion",
        "Several operations in one kernel, without memory between them.",
        "schedule/partition.py schedule/materialize.py schedule/scratch.py",
        "kernel fusion, loop fusion",
    ),
    (
        "flash attention",
        "Attention in blocks of keys with an online softmax, without storing the scores.",
        "schedule/rewrites/split_softmax.py optimize/cpu/staged.py graphs/attention.py",
        "online softmax, streaming attention",
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
        "optimize/cpu/contraction.py optimize/cpu/tile_cost.py optimize/actions/pack.py",
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
        "A convolution as a product over the windows of its input, which are views.",
        "graphs/windows.py graphs/convolution.py optimize/actions/pack.py",
        "implicit gemm, unfold",
    ),
    (
        "instruction selection",
        "From operations on values to those that a target has.",
        "lower/select.py lower/matrix_products.py lower/gpu/fragments.py",
        "isel, legalization",
    ),
    (
        "interpreter",
        "What IR means, on NumPy arrays: the oracle of tests.",
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
        "launch",
        "One run of a kernel with its buffers and sizes.",
        "command/forms.py lower/gpu/launch.py backend/common/launch.py",
        "grid, workgroups, CALL",
    ),
    (
        "legalization",
        "Types that a target lacks, in terms of those that it has.",
        "rules/legalize.py",
        "emulation of bf16, fp8, float16",
    ),
    (
        "liveness",
        "From the first write to the last read of a buffer: buffers whose lifetimes do not meet share memory.",
        "command/rewrites/memory.py",
        "lifetime, memory plan, buffer reuse",
    ),
    (
        "loop interchange",
        "Exchanging two loops of a nest.",
        "optimize/actions/plan.py optimize/actions/nest.py optimize/actions/sequence.py",
        "SWAP, reorder, permutation of loops",
    ),
    (
        "loop nest",
        "The loops of a kernel, as axes with types.",
        "optimize/actions/plan.py optimize/actions/nest.py",
        "axes, ranges, schedule of a kernel",
    ),
    (
        "loop split",
        "One loop as two, an outer and an inner one.",
        "optimize/actions/plan.py",
        "SPLIT, strip-mine, tile",
    ),
    (
        "matrix unit",
        "An instruction that multiplies small matrices.",
        "optimize/actions/matrix_unit.py optimize/gpu/warp.py lower/matrix_products.py backend/cpu/units.py",
        "AMX, tensor core, WMMA, TC, VNNI, MFMA",
    ),
    (
        "microkernel",
        "The innermost block of a product: vectors by rows that stay in registers.",
        "optimize/cpu/tile_cost.py optimize/cpu/contraction.py",
        "register block, register tile",
    ),
    (
        "non-temporal store",
        "A store that bypasses the caches.",
        "optimize/actions/stream.py",
        "NONTEMPORAL, streaming store",
    ),
    (
        "one-hot product",
        "A sum of a mask times a table, which is a gather.",
        "rules/loops/reductions.py rules/loops/class_scan.py schedule/rewrites/masked_sums.py",
        "embedding by matmul, masked sum",
    ),
    (
        "packing",
        "A copy of a block in the order in which the kernel reads it.",
        "optimize/actions/pack.py optimize/gpu/blocks.py command/rewrites/pack_once.py",
        "PACK, panel, prepacked weights, layout transform",
    ),
    (
        "page fault",
        "The first touch of a page, which the system must find: memory is touched ahead of its use.",
        "backend/common/pages.py backend/common/host/memory.py",
        "huge page, prefault, mmap",
    ),
    (
        "peel",
        "The first or last iterations of a loop as code of their own, so that the rest needs no masks.",
        "optimize/actions/peel.py lower/peel_last.py",
        "PEEL, remainder loop, loop peeling, tail",
    ),
    (
        "predication",
        "Lanes whose condition is false read nothing and write nothing.",
        "lower/control.py backend/common/llvm/memory.py",
        "predicate, mask, gate, masked load",
    ),
    (
        "prefetch",
        "Asking for a cache line before it is read.",
        "optimize/actions/stream.py optimize/cpu/contraction.py",
        "PREFETCH, software prefetch",
    ),
    (
        "radix sort",
        "Sorting by digits in linear time.",
        "graphs/radix_sort.py graphs/sort_keys.py",
        "sort, topk, argsort",
    ),
    (
        "rematerialization",
        "Computing a value again where that costs less than storing it.",
        "schedule/materialize.py",
        "recompute, checkpointing",
    ),
    (
        "reduction",
        "Many values joined to one along an axis.",
        "lower/reduce.py schedule/rewrites/split_reductions.py optimize/actions/sums.py",
        "sum, max, accumulator, tree reduction, split-k",
    ),
    (
        "register pressure",
        "More live values than registers: the rest is spilled to memory.",
        "optimize/cpu/tile_cost.py",
        "spill, occupancy of registers",
    ),
    (
        "rewrite rule",
        "A pattern and what replaces it.",
        "ir/rewrite/pattern.py ir/rewrite/driver.py rules/algebra.py rules/loops/reductions.py",
        "peephole, simplification, strength reduction",
    ),
    (
        "roofline",
        "The time that arithmetic or memory allows at best.",
        "optimize/cost.py command/estimate.py runtime/profile.py",
        "peak, GFLOP/s, GB/s, bandwidth",
    ),
    (
        "scan",
        "Running sums, products and extremes along an axis.",
        "graphs/scans.py lower/scan.py rules/loops/carry.py",
        "cumsum, prefix sum, running sum",
    ),
    (
        "shape inference",
        "The shape and dtype of a node, by the row of its op.",
        "ir/ops.py ir/uop.py",
        "type rule, dtype rule",
    ),
    (
        "shared memory",
        "Memory that the lanes of a workgroup have in common.",
        "optimize/gpu/shared.py optimize/actions/workgroup.py optimize/gpu/tma_boxes.py",
        "LOCAL, local memory, TMA, bank conflict",
    ),
    (
        "sharding",
        "A tensor in parts on several devices.",
        "schedule/shard.py ir/placement.py",
        "axis, collective, multi-device",
    ),
    (
        "snapshot",
        "A computed value does not follow later writes to what it was made from.",
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
        "A value that leaves registers for memory and comes back.",
        "optimize/cpu/tile_cost.py optimize/actions/sums.py",
        "waiting accumulator",
    ),
    (
        "stencil",
        "Each result reads a window of its neighbours.",
        "graphs/windows.py tensor/neural/pool.py optimize/actions/peel.py",
        "window, halo, pooling",
    ),
    (
        "symbolic size",
        "A size that is bound when a program runs, with bounds that the compiler knows.",
        "tensor/variable.py runtime/binding.py",
        "Variable, dynamic shape",
    ),
    (
        "thread affinity",
        "Keeping a worker off the processor of the caller.",
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
        "Comparing a kernel before and after each pass, and what it wrote with what it means.",
        "ir/check/validate.py ir/check/compare.py runtime/realize/verified.py",
        "VERIFY, differential testing",
    ),
    (
        "transposition in registers",
        "A block of vectors turned by shuffles.",
        "backend/common/llvm/shuffle.py",
        "shuffle, permute, transpose",
    ),
    (
        "unroll",
        "The iterations of a short loop as straight-line code.",
        "optimize/actions/plan.py lower/expand.py",
        "UNROLL, UPCAST, loop unrolling",
    ),
    (
        "vectorization",
        "Iterations of a loop as lanes of a vector.",
        "lower/expand.py optimize/cpu/heuristic.py backend/common/llvm/values.py",
        "SIMD, UPCAST, lanes",
    ),
    ("winograd", "A 3x3 convolution by fewer products.", "graphs/winograd.py", "minimal filtering, WINOGRAD"),
)


def found(word: str) -> list[Term]:
    """The terms that have a word in their name, or among the other words for them; names first."""
    lower = word.lower()
    named = [t for t in TERMS if lower in t.name.lower()]
    return named + [t for t in TERMS if t not in named and any(lower in o.lower() for o in t.others)]


__all__ = ["TERMS", "Term", "found"]
