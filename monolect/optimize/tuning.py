"""Define the numbers by which the heuristic chooses, except facts about a machine: thresholds, candidates, cycles.

What it is for: one table, which `monolect tuning` prints; the modules of the heuristic read their numbers here. A row
says where its value was measured, or that it was not.
What it is not: facts of a machine, which are fields of `base/target.py`, or limits of an action's legality.

Invariant: `row` returns the value as it is, so each constant has its type, and each is in TABLE by its name.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")


class Constant(NamedTuple):
    """A row of the table of tuning constants: `name`, `value` and its `unit`. `why`: a clause that explains the value.
    `measured`: the kind of machine on which the value, or a schedule that uses it, was measured, or "no".
    """

    name: str
    value: object
    unit: str
    why: str
    measured: str


TABLE: Final[dict[str, Constant]] = {}
AVX512: Final = "AVX-512"  # AMD EPYC with AVX-512, two threads; the machines of docs/results
NO: Final = "no"


def row(name: str, value: T, unit: str, why: str, measured: str = NO) -> T:
    """Add a constant to TABLE by its `name` and return its value.

    `unit`: the unit of the value. `why`: a clause that explains the value. `measured`: the kind of machine on which it
    was measured.
    """
    TABLE[name] = Constant(name, value, unit, why, measured)
    return value


# fmt: off
# ---- accesses and operations ----
MAX_GATHER_STRIDE = row("MAX_GATHER_STRIDE", 4, "elements", "with smaller strides a target reads whole vectors and shuffles elements out of them", AVX512)
SLOW_OP_CYCLES = row("SLOW_OP_CYCLES", {"LOAD": 2, "STORE": 2, "DIV": 5, "RECIP": 5, "SQRT": 6}, "cycles", "of a vector operation that overlaps with others; LOAD and STORE access the L2 cache", AVX512)

# ---- vectors, rows and accumulators ----
MIN_VECTOR_LENGTH = row("MIN_VECTOR_LENGTH", 3, "elements", "shorter axes are not vectorized", AVX512)
VECTOR_COUNTS = row("VECTOR_COUNTS", (4, 2), "vectors", "in flight along a vector axis; the first count that divides is taken", AVX512)
STREAMED_VECTOR_COUNTS = row("STREAMED_VECTOR_COUNTS", (4, 3, 2), "vectors", "of each row that streams, where hardware prefetches", AVX512)
INVARIANT_VECTOR_COUNTS = row("INVARIANT_VECTOR_COUNTS", (4, 5, 3, 2), "vectors", "where each step of a sum reads the same for all lanes", AVX512)
ROW_COUNTS = row("ROW_COUNTS", (4, 3, 2), "rows", "that are reduced at once, as each step of a reduction waits for the previous one", AVX512)
SCAN_ROW_COUNTS = row("SCAN_ROW_COUNTS", (4, 5, 3, 7, 2), "rows", "of a scan that are interleaved; the first count that divides the rows is taken", AVX512)
ACCUMULATOR_COUNTS = row("ACCUMULATOR_COUNTS", (8, 7, 13, 12, 11, 10, 9, 6, 5, 4, 3, 2), "vectors", "accumulators of a small reduction, best first; they take at most half of the registers", AVX512)
MAX_OPS_FOR_MANY_ACCUMULATORS = row("MAX_OPS_FOR_MANY_ACCUMULATORS", 6, "ops", "kernels with more need the other half of the registers for other values", AVX512)
MAX_OPS_TO_INTERLEAVE = row("MAX_OPS_TO_INTERLEAVE", 40, "ops", "in larger kernels several vectors at once would only spill registers", AVX512)
ROWS_PER_SHARED_VECTOR = row("ROWS_PER_SHARED_VECTOR", 4, "rows", "multiplied by one loaded vector; four accumulators hide the latency of a multiply-add", AVX512)
MIN_REDUCTION_LENGTH = row("MIN_REDUCTION_LENGTH", 4, "iterations", "shorter reductions are not vectorized", AVX512)
MIN_LANE_USE_GAIN = row("MIN_LANE_USE_GAIN", 1.5, "ratio", "of used lanes above which a vector along the reduction pays for its final lane sum", AVX512)
MIN_OPS_PER_GATHER = row("MIN_OPS_PER_GATHER", 32, "ops", "per gathered operand above which vectorizing with gathers pays", AVX512)
MAX_PADDING_SHARE = row("MAX_PADDING_SHARE", 16, "share", "padding is accepted only if at most 1/16 of the iterations are padding")
MAX_UNROLLED_TAPS = row("MAX_UNROLLED_TAPS", 16, "iterations", "nested short reductions are unrolled whole while their product stays within it", AVX512)
MAX_UNROLLED_LENGTH = row("MAX_UNROLLED_LENGTH", 8, "iterations", "an inner reduction loop up to this long is unrolled completely", AVX512)
UNROLL_STEPS = row("UNROLL_STEPS", 4, "iterations", "of a reduction in one step of its loop, for fewer loop steps", AVX512)

# ---- peeling ----
MIN_ITERATIONS_TO_PEEL = row("MIN_ITERATIONS_TO_PEEL", 4, "iterations", "shorter loops are not peeled")
MAX_OPS_TO_PEEL = row("MAX_OPS_TO_PEEL", 400, "ops", "larger kernels are not peeled, as peeling duplicates the body 2 to 3 times")
MAX_OPS_TO_PEEL_TWICE = row("MAX_OPS_TO_PEEL_TWICE", 100, "ops", "larger kernels have one loop peeled, smaller ones two (up to 9 copies of the body)")

# ---- threads ----
MIN_THREAD_MULTIPLY_ADDS = row("MIN_THREAD_MULTIPLY_ADDS", 1 << 16, "multiply-adds", "smaller contractions run on one thread, as waking threads costs more", AVX512)
MIN_THREAD_CYCLES = row("MIN_THREAD_CYCLES", 1 << 13, "cycles", "about 2 us; smaller kernels run on one thread, as handing over half takes 0.4 to 0.8 us", AVX512)
OPS_PER_WORK_UNIT = row("OPS_PER_WORK_UNIT", 8, "ops", "of a contraction's body that count as one more multiply-add when threads are chosen")
MIN_PRIVATE_PIECE_BYTES = row("MIN_PRIVATE_PIECE_BYTES", 256, "bytes", "two threads are taken to share a cache line where their row pieces are shorter")
SHARED_LINE_CYCLES = row("SHARED_LINE_CYCLES", 70, "cycles", "at least, for a cache line that two threads write; up to 1500, by their cores", AVX512)
REPACK_CYCLES = row("REPACK_CYCLES", 6, "cycles", "extra for a panel vector that every thread packs: nothing hides its cache misses", AVX512)

# ---- streams from memory ----
FAR_ROW_BYTES = row("FAR_ROW_BYTES", 1024, "bytes", "rows at least this far apart are not adjacent in cache", AVX512)
STREAM_PREFETCH_BYTES = row("STREAM_PREFETCH_BYTES", 4096, "bytes", "distance at which contiguous streams are prefetched", AVX512)
ROW_PREFETCH_BYTES = row("ROW_PREFETCH_BYTES", 1024, "bytes", "distance at which each streamed row is prefetched", AVX512)
DOT_PREFETCH_BYTES = row("DOT_PREFETCH_BYTES", 2048, "bytes", "distance at which rows of dot products are prefetched from memory", AVX512)
MIN_STREAM_ROW_BYTES = row("MIN_STREAM_ROW_BYTES", 64 << 10, "bytes", "16 pages; longer rows from memory are summed two at a time", AVX512)
L3_FRACTION = row("L3_FRACTION", 4, "share", "inputs below L3 / 4 are treated as cache-resident, not as bound by memory bandwidth", AVX512)
NEXT_ROWS_L2_FRACTION = row("NEXT_ROWS_L2_FRACTION", 8, "share", "the next rows are prefetched only if the few streamed rows take at most L2 / 8", AVX512)
MAX_STREAMED_ROWS = row("MAX_STREAMED_ROWS", 16, "rows", "of a panel that are streamed in parallel from memory", AVX512)
FEW_STREAMED_ROWS = row("FEW_STREAMED_ROWS", 4, "rows", "of a panel that are streamed on cores with two multiply-adds a cycle, whose hardware prefetchers follow streams: one row of sums needs no prefetch (1x4096x4096: 2.0 to 1.75 ms), several prefetch the next rows (8 rows: 1.85 to 1.4 ms)", AVX512)
MIN_STREAM_BLOCKS = row("MIN_STREAM_BLOCKS", 8, "blocks", "of streamed rows, or vectors of columns; shorter panels do not stream", AVX512)
MAX_STREAMED_TILE_ROWS = row("MAX_STREAMED_TILE_ROWS", 16, "rows", "accumulators of a streaming tile; each broadcast is an operand of an instruction", AVX512)
MAX_STREAMED_ROWS_TO_UNROLL = row("MAX_STREAMED_ROWS_TO_UNROLL", 4, "rows", "of a streaming tile; broadcasts of more rows leave no registers to unroll with", AVX512)
STREAMED_TILE_VECTORS = row("STREAMED_TILE_VECTORS", 1, "vectors", "of each streamed row; short pieces of many rows keep more loads in flight", AVX512)
SUM_MOVE_CYCLES = row("SUM_MOVE_CYCLES", 1.5, "cycles", "to load and store a vector of sums between two blocks of streamed rows", AVX512)

# ---- register tiles ----
MAX_TILE_ROWS = row("MAX_TILE_ROWS", 14, "rows", "of a register tile, or rows of matrix-unit tiles, that are tried", AVX512)
MAX_TILE_VECTORS = row("MAX_TILE_VECTORS", 8, "vectors", "of a register tile that are tried", AVX512)
FULL_REGISTER_TILE = row("FULL_REGISTER_TILE", (4, 6), "vectors, rows", "the AVX-512 tile that uses all 32 registers; alone of these tiles it needs no room for the next step's loads", AVX512)
FULL_REGISTER_TILE_FACTOR = row("FULL_REGISTER_TILE_FACTOR", 0.985, "ratio", "of that tile's estimated cost, as it reads half the broadcast cache lines of the 2x8 tile. Measured against 2x8: 1024x1024 1.03, with a shared L1 cache 1.2, 128 rows 1.0 (the last tile repeats some), with scratch values 0.96", AVX512)
VECTOR_STEP_CYCLES = row("VECTOR_STEP_CYCLES", 0.15, "cycles", "extra for each vector of a tile in each step of the sum", AVX512)
ROW_STEP_CYCLES = row("ROW_STEP_CYCLES", 0.03, "cycles", "extra for each row of a tile in each step of the sum", AVX512)
ROW_START_CYCLES = row("ROW_START_CYCLES", 8, "cycles", "for each row of a tile, to begin and end its sums", AVX512)
STREAMED_VECTOR_CYCLES = row("STREAMED_VECTOR_CYCLES", 0.15, "cycles", "extra for a panel vector that streams from L2, with one multiply-add a cycle; with two it is hidden", AVX512)
BROADCAST_LINE_CYCLES = row("BROADCAST_LINE_CYCLES", 3, "cycles", "for a cache line of the broadcast operand that each tile reads again", AVX512)
CONFLICT_LINE_CYCLES = row("CONFLICT_LINE_CYCLES", 4, "cycles", "for a cache line that conflicting sets of the L1 cache load again", AVX512)
GATED_SCALAR_LOADS = row("GATED_SCALAR_LOADS", 4, "loads", "that a gated broadcast scalar costs on top of its own", AVX512)
TRANSPOSED_STORE_CYCLES = row("TRANSPOSED_STORE_CYCLES", 4, "cycles", "at least, to transpose a vector of a tile in registers before storing it", AVX512)
SCALAR_STORE_CYCLES = row("SCALAR_STORE_CYCLES", 2, "cycles", "to store an element of a vector alone", AVX512)
GATED_STORE_CYCLES = row("GATED_STORE_CYCLES", 1, "cycles", "extra for each stored vector where the last tile has rows beyond the end", AVX512)
GATED_SUM_CYCLES = row("GATED_SUM_CYCLES", 4, "cycles", "the same for each vector of partial sums, which is loaded and stored", AVX512)

# ---- cache blocks and packing ----
MIN_REUSE_TO_PACK = row("MIN_REUSE_TO_PACK", 4, "tiles", "of rows that read a panel; a panel with fewer readers is not packed", AVX512)
MIN_BLOCK_DEPTH = row("MIN_BLOCK_DEPTH", 256, "iterations", "of a reduction in a cache block, also where the tile is wide", AVX512)
MIN_BLOCK_COLUMNS = row("MIN_BLOCK_COLUMNS", 128, "columns", "assumed for a cache block when its depth is chosen; fewer columns mean deeper blocks", AVX512)
MIN_REPACKED_BLOCK_COLUMNS = row("MIN_REPACKED_BLOCK_COLUMNS", 1024, "columns", "the same where broadcast operands are packed again for each block of columns", AVX512)
TRANSPOSED_COPY_CYCLES = row("TRANSPOSED_COPY_CYCLES", 7, "cycles", "to copy one vector of a whole square that is transposed", AVX512)
GATHERED_COPY_CYCLES = row("GATHERED_COPY_CYCLES", 40, "cycles", "to copy one vector element by element", AVX512)
SHUFFLED_COPY_CYCLES = row("SHUFFLED_COPY_CYCLES", 2, "cycles", "to shuffle one vector out of a few, for each of them", AVX512)
ROW_COPY_CYCLES = row("ROW_COPY_CYCLES", 2, "cycles", "to pack one vector of a broadcast operand", AVX512)
SCRATCH_FRACTION = row("SCRATCH_FRACTION", 4, "share", "scratch buffers of a block of rows may take at most local memory / 4", AVX512)

# ---- matrix units of processors ----
MIN_ROWS_FOR_UNIT = row("MIN_ROWS_FOR_UNIT", 16, "rows", "with fewer, laying out a panel for a matrix unit does not pay", AVX512)
SIGN_FLIP_REGISTERS = row("SIGN_FLIP_REGISTERS", 1, "registers", "for the constant that flips the sign bit of a matrix unit's operand")
TILE_LOAD_CYCLES = row("TILE_LOAD_CYCLES", 0.1, "cycles", "for each row that a unit with tile registers loads", "AVX-512 with AMX")
PARTIAL_WORD_CYCLES = row("PARTIAL_WORD_CYCLES", 20, "cycles", "to copy one word for a matrix unit when the tile's rows fill no whole word", AVX512)

# ---- dot products ----
MIN_DOT_LENGTH = row("MIN_DOT_LENGTH", 3, "elements", "shorter reductions are not vectorized as dot products", AVX512)
MAX_SQUARE_SIDE = row("MAX_SQUARE_SIDE", 7, "rows", "or columns of a square of dot products that are tried", AVX512)
SQUARE_SIDES = row("SQUARE_SIDES", (4, 5, 3, 2), "rows", "or columns of a square whose sum has several loops, best first", AVX512)
MIN_REUSE_TO_TRANSPOSE = row("MIN_REUSE_TO_TRANSPOSE", 4, "tiles", "of rows that read a panel; with fewer, transposing the panel does not pay", AVX512)
DOT_LOAD_CYCLES = row("DOT_LOAD_CYCLES", 0.1, "cycles", "extra for each vector that a step of a square loads", AVX512)
LANE_SUM_CYCLES = row("LANE_SUM_CYCLES", 3, "cycles", "to add up the lanes of one accumulator; the sums of several accumulators overlap", AVX512)
SQUARE_START_CYCLES = row("SQUARE_START_CYCLES", 12, "cycles", "from the last step of a square to the first step of the next", AVX512)
MASKED_STEP_CYCLES = row("MASKED_STEP_CYCLES", 2, "cycles", "extra for each step where the last vector of the reduction is masked", AVX512)

# ---- workgroups ----
MAX_LANES = row("MAX_LANES", 256, "lanes", "of a workgroup; two such workgroups on a multiprocessor hide each other's latency")
GRID_ROW_GROUPS = row("GRID_ROW_GROUPS", 256, "workgroups", "along the first grid dimension, where one dimension is too short")
MIN_COLUMN_LANES = row("MIN_COLUMN_LANES", 8, "lanes", "along contiguous columns; fewer lanes would not use whole memory transactions")
SQUARE_SIDE = row("SQUARE_SIDE", 32, "elements", "side of a block that is transposed in local memory")
SQUARE_LANE_ROWS = row("SQUARE_LANE_ROWS", 8, "rows", "of lanes that copy a square")
MIN_TERMS_PER_LANE = row("MIN_TERMS_PER_LANE", 4, "terms", "of a reduction for each lane; with fewer, lanes do not share the reduction")
SYMBOLIC_EXTENT = row("SYMBOLIC_EXTENT", 64, "iterations", "of a loop of symbolic size, for estimates of workgroups")
MIN_TILE_SIDE = row("MIN_TILE_SIDE", 4, "elements", "tiles on shorter axes share too little")
STEP_LENGTHS = row("STEP_LENGTHS", (16, 32, 8, 4, 2), "iterations", "of the reduction that are copied at once, best first")
LANES_PER_SIDE = row("LANES_PER_SIDE", ((32, 16, 8, 4), (16, 8, 4, 2, 1)), "lanes", "along columns and along rows of a workgroup's tile that are tried")
ELEMENTS_PER_LANE = row("ELEMENTS_PER_LANE", ((1, 4, 8), (8, 4, 2, 1)), "elements", "of a lane along columns and along rows that are tried")
STORED_WEIGHT = row("STORED_WEIGHT", 4, "ratio", "of the time to store an element of the output to that of reading one")
BOX_BUFFER_COUNTS = row("BOX_BUFFER_COUNTS", (4, 3), "buffers", "for boxes that TMA copies while others are multiplied, best first")
PIPELINE_REGISTER_SHARE = row("PIPELINE_REGISTER_SHARE", 8, "share", "copies that are pipelined through registers may hold at most 1/8 of a lane's registers")

# ---- matrix units of warps ----
WARP_GRIDS = row("WARP_GRIDS", ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4)), "warps", "of a workgroup along (rows, columns) that are tried")
TILES_PER_SIDE = row("TILES_PER_SIDE", (8, 4, 2, 1), "tiles", "of the unit along one side of a warp's tile that are tried")
STEPS_PER_COPY = row("STEPS_PER_COPY", (2, 4, 1), "steps", "of a unit whose operands are copied at once, best first")
ASYNC_STEPS_PER_COPY = row("ASYNC_STEPS_PER_COPY", (4, 2, 1), "steps", "the same for a unit that multiplies while the next operands are copied")
UNIT_REGISTER_SHARE = row("UNIT_REGISTER_SHARE", 0.75, "share", "of a lane's registers that sums and operands of a unit may take")
CORE_GAP_SHARE = row("CORE_GAP_SHARE", 16, "share", "of local memory, 1/16, that gaps between core matrices may take")
# ---- memory, blocks and partial sums ----
LINE_BYTES = row("LINE_BYTES", 64, "bytes", "of a cache line")
PAGE_BYTES = row("PAGE_BYTES", 4096, "bytes", "hardware prefetchers follow a stream within a page")
MAX_PREFETCH_BYTES = row("MAX_PREFETCH_BYTES", 1 << 20, "bytes", "the largest prefetch distance")
MIN_WORDS_TO_TRANSPOSE = row("MIN_WORDS_TO_TRANSPOSE", 6, "words", "of a row that a matrix unit reads; with fewer, no squares of words are transposed")
MIN_ROW_TO_TRANSPOSE = row("MIN_ROW_TO_TRANSPOSE", 5, "elements", "shorter rows are not transposed in squares", AVX512)
MIN_COPIES_TO_PEEL = row("MIN_COPIES_TO_PEEL", 4, "iterations", "the last iteration of a shorter copy loop is not peeled", AVX512)
MAX_WINDOW_OVERREAD = row("MAX_WINDOW_OVERREAD", 2, "ratio", "of elements in a window to elements read, below which short runs are copied with their gaps", AVX512)
SHORT_RUN = row("SHORT_RUN", 8, "elements", "contiguous runs shorter than this count as short", AVX512)
RUNS_PREFETCHED = row("RUNS_PREFETCHED", 8, "runs", "short runs ahead that are prefetched while they are copied", AVX512)
MIN_BLOCKS_TO_GROUP = row("MIN_BLOCKS_TO_GROUP", 64, "blocks", "with fewer, their roundings do not justify a second buffer for sums")
MIN_GROUPING_GAIN = row("MIN_GROUPING_GAIN", 4, "ratio", "by which groups must reduce the number of roundings")
SHORT_BLOCK_STEPS = row("SHORT_BLOCK_STEPS", 32, "steps", "up to this block length, tiles of several rows accumulate in local memory", AVX512)

# ---- predicted times ----
SCALARS_PER_CYCLE = row("SCALARS_PER_CYCLE", 2, "operations", "on scalars that start in a cycle", AVX512)
BOUNDED_SHARE = row("BOUNDED_SHARE", 0.5, "share", "of the iterations of a bounded loop that run: a causal mask hides half of the keys")

# fmt: on

__all__ = ["TABLE", "Constant"]
