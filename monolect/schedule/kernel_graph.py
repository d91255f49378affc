"""Hold the kernels under construction: their output ranges, their stores, their order, and which may be merged.

`partition` walks over the values and decides; `scratch` and `padded_storage` read the state of that walk, which is
declared here.

Invariant: kernels form a DAG: `later[k]` holds, as bits, the kernels that must run after k.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from monolect.ir.uop import UOp
from monolect.schedule.materialize import Cost
from monolect.schedule.ranges import Index, ranges_of

RangeSet = frozenset[UOp]

MAX_KERNEL_VALUES = 600  # values in a kernel; a larger kernel is cut, so that code generation time stays linear
MAX_STORES = 12  # stores in a kernel


class Demand(NamedTuple):
    """A request of kernel `kernel` for element `index` of a value, under `gate`, in output ranges `out` and reductions
    `red`.
    """

    kernel: int
    index: Index  # type: ignore[assignment]  # hides the method of tuple
    gate: UOp
    out: RangeSet
    red: tuple[UOp, ...]
    linear: bool = False  # whether the value is a factor of each term of the sum over the last of `red`


class Store(NamedTuple):
    """A kernel writes the value `node` at `index`, or runs the effect `effect` of the AFTER `node` there."""

    node: UOp
    index: Index  # type: ignore[assignment]  # hides the method of tuple
    effect: UOp | None = None


class Kernel:
    """A kernel under construction: its blocks of output ranges, its stores, and properties of its values."""

    __slots__ = ("blocks", "device", "later", "n_values", "reuse", "scan", "staged", "stores")

    def __init__(self, blocks: list[RangeSet], stores: list[Store], dev: Any):
        self.blocks, self.stores, self.device = [b for b in blocks if b], stores, dev
        self.later = 0
        self.n_values = 0
        self.reuse = False  # contains a contraction, which is tiled on its own
        self.scan: UOp | None = None  # the RANGE of the loop that carries scans; it is innermost
        self.staged = False  # has scratch values in local memory

    def all_ranges(self) -> RangeSet:
        """Return the output ranges of all blocks."""
        return frozenset().union(*self.blocks) if self.blocks else frozenset()

    def refined(self, want: RangeSet, out: RangeSet | None = None) -> list[RangeSet] | None:
        """Return the kernel's blocks with `want` made a prefix, or None: see the function `refined`."""
        return refined(self.blocks, want, out)


def refined(blocks: list[RangeSet], want: RangeSet, out: RangeSet | None = None) -> list[RangeSet] | None:
    """Return `blocks` with one split where necessary, so that the union of the first few is `want`; None if impossible.

    With `out`, only the ranges of `out` in each block count.
    """
    left = want
    done: list[RangeSet] = []
    for i, b in enumerate(blocks):
        if not left:
            break
        here = b if out is None else b & out
        if here <= left:
            left, done = left - here, [*done, b]
        elif left <= b:
            return [*done, left, b - left, *blocks[i + 1 :]]
        else:
            return None
    return blocks if not left else None


def is_innermost(scan: UOp | None, blocks: list[RangeSet]) -> bool:
    """Whether the loop that carries scans is in the last of `blocks`, or there is none.

    A scan restarts in each iteration of every other loop, so no other loop may be nested in its loop.
    """
    kept = [b for b in blocks if b]
    return not any(scan in b for b in kept[:-1])


def is_nest(blocks: list[RangeSet], stores: list[Store]) -> bool:
    """Whether each of `blocks` has the same outer blocks in every store that uses it, so that stores can share loops.

    Stores over (i, j) and (i, k) share i. A third store over (i, j, k) would nest k inside j, but the second has no j.
    """
    around: dict[RangeSet, RangeSet] = {}
    for s in stores:
        own, outer = ranges_of(s.index), frozenset[UOp]()
        for b in filter(own.intersection, blocks):
            if around.setdefault(b, outer) != outer:
                return False
            outer |= b
    return True


class KernelGraph:
    """Kernels by number, where merged kernels are None, and the facts about values that their construction reads."""

    cost: dict[UOp, Cost]
    forced: set[UOp]  # values that get a buffer
    n_scratch_ranges: int
    local_bytes: int  # local memory of each thread; 0 if the target has none

    def __init__(self) -> None:
        self.kernels: list[Kernel | None] = []
        self.alias: list[int] = []  # union-find over kernel numbers

    def find(self, k: int) -> int:
        """Return the number of the kernel that kernel k was merged into."""
        while self.alias[k] != k:
            self.alias[k] = self.alias[self.alias[k]]
            k = self.alias[k]
        return k

    def kernel(self, k: int) -> Kernel:
        """Return the kernel with number k, which must not be merged into another."""
        out = self.kernels[k]
        assert out is not None
        return out

    def new_kernel(self, blocks: list[RangeSet], stores: list[Store], dev: Any, consumers: set[int]) -> int:
        """Add a kernel whose results `consumers` read, and return its number. No other kernel runs before it yet."""
        k = len(self.kernels)
        self.kernels.append(Kernel(blocks, stores, dev))
        self.alias.append(k)
        self.kernel(k).later = self._after(consumers)
        return k

    def _after(self, kernels: set[int]) -> int:
        """Return, as bits, `kernels` and all kernels that must run after them."""
        bits = 0
        for k in kernels:
            bits |= 1 << k | self.kernel(k).later
        return bits

    def run_after(self, k: int, consumers: set[int]) -> None:
        """Record that `consumers` run after kernel k, whose results they read."""
        mine, bits = self.kernel(k), self._after(consumers - {k})
        if bits & ~mine.later:
            mine.later |= bits
            for other in self.kernels:
                if other is not None and other.later >> k & 1:
                    other.later |= bits

    def merge(self, a: int, b: int, blocks: list[RangeSet]) -> int:
        """Merge kernel b into kernel a, with the chain `blocks`; return a."""
        ka, kb = self.kernel(a), self.kernel(b)
        ka.blocks, ka.stores = blocks, ka.stores + kb.stores
        ka.n_values += kb.n_values
        ka.reuse |= kb.reuse
        ka.scan = ka.scan or kb.scan
        self.kernels[b] = None
        self.alias[b] = a
        both = 1 << a | 1 << b
        ka.later = (ka.later | kb.later) & ~both
        for other in self.kernels:
            if other is not None and other is not ka and other.later & both:
                other.later = (other.later & ~(1 << b)) | 1 << a | ka.later
        return a

    def mergeable(self, a: int, b: int, along: bool) -> list[RangeSet] | None:
        """Return the chain of blocks of kernels a and b merged, or None if they must stay separate.

        `along`: whether the value that both read depends on their loops. If it does not, merging saves no loads, and
        kernels with different loops would lose vectorization; then only kernels with equal ranges are merged.
        """
        ka, kb = self.kernel(a), self.kernel(b)
        if ka.device != kb.device or ka.reuse or kb.reuse or ka.later >> b & 1 or kb.later >> a & 1:
            return None
        if ka.scan is not kb.scan and ka.scan is not None and kb.scan is not None:
            return None
        if len(ka.stores) + len(kb.stores) > MAX_STORES or ka.n_values + kb.n_values > MAX_KERNEL_VALUES:
            return None
        if any(s.effect is not None for s in ka.stores + kb.stores):
            return None
        ra, rb = ka.all_ranges(), kb.all_ranges()
        common = ra & rb
        if (not common and (ra or rb)) or (not along and ra != rb):
            return None
        ba = ka.refined(common)
        bb = kb.refined(common)
        if ba is None or bb is None:
            return None
        prefix: RangeSet = frozenset()
        for block in bb:  # split a's blocks where b's common part is split
            prefix |= block
            if prefix <= common and (ba := refined(ba, prefix)) is None:
                return None
        assert ba is not None
        blocks = [*ba, *(b for b in bb if not b <= common)]
        fits = is_innermost(ka.scan or kb.scan, blocks) and is_nest(blocks, ka.stores + kb.stores)
        return blocks if fits else None


__all__ = [
    "Demand",
    "Kernel",
    "KernelGraph",
    "MAX_KERNEL_VALUES",
    "MAX_STORES",
    "RangeSet",
    "Store",
    "is_innermost",
    "is_nest",
    "refined",
]
