"""Transposing a block held in vector registers, as a network of two-source shuffles.

A block of R registers of L lanes becomes L registers of R lanes. Number an element by the bits of its register and of
its lane: a transpose exchanges the two groups of bits. One stage of the network takes one bit of the register number
into the lanes and puts one lane bit out, with one shuffle a register; log2(min(R, L)) stages exchange them all. First
come stages that interleave elements inside 128 bits, then stages that exchange blocks of 128 bits: each is a single
cheap instruction on x86 and on ARM. Rows of 128 bits that are more than their lanes are joined first: the same stages
then take a fourth of the shuffles. What is left of a block that is not square is joined or taken apart. Sizes that are
no powers of two are filled up with poison, which costs nothing.

What it does not do: bools, which have no lanes to shuffle; `llvm_values` widens them first.
Invariant: no element goes through memory.
"""

from __future__ import annotations

from collections.abc import Callable

from monolect.backend.common.llvm.types import lane_list

Emit = Callable[[str], str]
NARROW_BYTES, WIDEST_BYTES = 16, 64  # inside of which elements interleave in one instruction; of a vector register
Bit = tuple[str, int]  # ("r", k) or ("l", k): bit k of the number of a given register, or of a given lane


def transpose(emit: Emit, regs: list[str], t: str, lanes: int, itemsize: int) -> list[str]:
    """Registers j = 0..lanes-1 whose lane i is lane j of `regs[i]`; `t` is the type of an element."""
    if lanes == 1:
        return [_joined(emit, regs, t)]
    if len(regs) == 1:
        return [emit(f"extractelement <{lanes} x {t}> {regs[0]}, i64 {j}") for j in range(lanes)]
    block = _Block(emit, regs, t, lanes)
    if block.width * itemsize == NARROW_BYTES and block.width < len(block.regs) <= WIDEST_BYTES // itemsize:
        block.join()
    block.exchange(max(1, NARROW_BYTES // itemsize))
    return [block.gathered(j) for j in range(lanes)]


def _joined(emit: Emit, scalars: list[str], t: str) -> str:
    if len(scalars) == 1:
        return scalars[0]
    acc = "poison"
    for j, x in enumerate(scalars):
        acc = emit(f"insertelement <{len(scalars)} x {t}> {acc}, {t} {x}, i64 {j}")
    return acc


class _Block:
    """The registers between two stages, and which bit of the given block each bit of their numbers is now."""

    def __init__(self, emit: Emit, regs: list[str], t: str, lanes: int):
        self.emit, self.t, self.rows = emit, t, len(regs)
        n, self.width = 1 << (len(regs) - 1).bit_length(), 1 << (lanes - 1).bit_length()
        if lanes != self.width:
            whole = [*range(lanes), *[-1] * (self.width - lanes)]
            regs = [self.shuffled(r, "poison", lanes, whole) for r in regs]
        self.regs = regs + ["poison"] * (n - len(regs))
        self.row_bits: list[Bit] = [("r", k) for k in range(n.bit_length() - 1)]
        self.lane_bits: list[Bit] = [("l", k) for k in range(self.width.bit_length() - 1)]

    def shuffled(self, a: str, b: str, lanes: int, pick: list[int]) -> str:
        """The lanes `pick` of the two vectors `a` and `b` of `lanes` each, -1 for any."""
        if a == b == "poison":
            return a
        v = f"<{lanes} x {self.t}>"
        return self.emit(f"shufflevector {v} {a}, {v} {b}, {lane_list(pick)}")

    def join(self) -> None:
        """Several rows of 128 bits in one register: the stages then work on all of them, and leave them in order."""
        n = self.width
        for r in range(n):
            self.regs[r] = self.joined(self.regs[r::n], n)
        self.width = len(self.regs)
        self.regs = self.regs[:n]
        bits = n.bit_length() - 1
        self.lane_bits, self.row_bits = self.lane_bits + self.row_bits[bits:], self.row_bits[:bits]

    def joined(self, vectors: list[str], width: int) -> str:
        """The lanes of all `vectors` one after the other."""
        while len(vectors) > 1:
            vectors = [*vectors, *["poison"] * (len(vectors) % 2)]
            both = list(range(2 * width))
            vectors = [self.shuffled(a, b, width, both) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
            width *= 2
        return vectors[0]

    def exchange(self, narrow: int) -> None:
        """All stages; `narrow` elements are 128 bits."""
        bits = sum(kind == "l" for kind, _ in self.lane_bits)
        inside = min(bits, narrow.bit_length() - 1)
        for k in range(min(bits, len(self.row_bits))):
            if k < inside:
                self.stage(k, into=k, out=inside - 1)
            else:
                self.stage(k, into=bits - 1, out=inside)

    def stage(self, k: int, into: int, out: int) -> None:
        """Bit `k` of the register number becomes lane bit `into`, lane bit `out` takes its place."""
        low = [_source(i, into, out, self.width) for i in range(self.width)]
        high = [i + (1 << out) for i in low]
        for i in range(len(self.regs)):
            if not i >> k & 1:
                j = i | 1 << k
                a, b = self.regs[i], self.regs[j]
                self.regs[i] = self.shuffled(a, b, self.width, low)
                self.regs[j] = self.shuffled(a, b, self.width, high)
        left = self.lane_bits.pop(out)
        self.lane_bits.insert(into, self.row_bits[k])
        self.row_bits[k] = left

    def gathered(self, j: int) -> str:
        """The register with the elements of the given lane `j`."""
        at = [(_number(self.row_bits, i, j), _number(self.lane_bits, i, j)) for i in range(self.rows)]
        rows = list(dict.fromkeys(r for r, _ in at))
        pick = [rows.index(r) * self.width + k for r, k in at]
        whole = self.joined([self.regs[r] for r in rows], self.width)
        width = self.width << (len(rows) - 1).bit_length()
        return whole if pick == list(range(width)) else self.shuffled(whole, "poison", width, pick)


def _source(lane: int, into: int, out: int, width: int) -> int:
    """The lane of the two sources, the second counted from `width`, that a stage puts into `lane`."""
    second = lane >> into & 1
    rest = (lane >> (into + 1) << into) | (lane & (1 << into) - 1)
    return (second * width) | (rest >> out << (out + 1)) | (rest & (1 << out) - 1)


def _number(bits: list[Bit], i: int, j: int) -> int:
    """The number with these bits, for element `j` of the given register `i`."""
    return sum(((i if kind == "r" else j) >> k & 1) << p for p, (kind, k) in enumerate(bits))
