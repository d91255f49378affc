"""Transpose a block in vector registers by a network of two-source shuffles.

A block of R registers of L lanes becomes L registers of R lanes. Number an element by the bits of its register number
and of its lane number: a transpose exchanges the two groups of bits. One stage of the network moves one bit of the
register number to the lanes and one lane bit to the register number, with one shuffle a register. So log2(min(R, L))
stages exchange all bits. The first stages interleave elements inside 128 bits; the later ones exchange blocks of 128
bits. Each shuffle is a single cheap instruction on x86 and on ARM.

If registers have 128 bits and there are more of them than lanes, they are concatenated first, so that the stages need a
fourth of the shuffles. Blocks that are not square are concatenated or split at the end. Sizes are padded to powers of
two with poison, which costs nothing.

What it does not do: transpose bools, which have no lanes to shuffle; `values` widens them to bytes first.
Invariant: no element goes through memory.
"""

from __future__ import annotations

from collections.abc import Callable

from monolect.backend.common.llvm.types import lane_list

Emit = Callable[[str], str]
NARROW_BYTES = 16  # part of a register inside of which one instruction interleaves elements
WIDEST_BYTES = 64  # of a vector register
Bit = tuple[str, int]  # ("r", k) or ("l", k): bit k of the register number, or lane number, of an element at the start


def transpose(emit: Emit, regs: list[str], t: str, lanes: int, itemsize: int) -> list[str]:
    """Return `lanes` registers; lane i of register j is lane j of `regs[i]`. `t` is the LLVM type of an element.

    `emit` appends an instruction and returns its register.
    """
    if lanes == 1:
        return [_from_scalars(emit, regs, t)]
    if len(regs) == 1:
        return [emit(f"extractelement <{lanes} x {t}> {regs[0]}, i64 {j}") for j in range(lanes)]
    block = _Block(emit, regs, t, lanes)
    if block.width * itemsize == NARROW_BYTES and block.width < len(block.regs) <= WIDEST_BYTES // itemsize:
        block.join()
    block.exchange(max(1, NARROW_BYTES // itemsize))
    return [block.result(j) for j in range(lanes)]


def _from_scalars(emit: Emit, scalars: list[str], t: str) -> str:
    if len(scalars) == 1:
        return scalars[0]
    acc = "poison"
    for j, x in enumerate(scalars):
        acc = emit(f"insertelement <{len(scalars)} x {t}> {acc}, {t} {x}, i64 {j}")
    return acc


class _Block:
    """The registers between two stages; `row_bits` and `lane_bits` name the Bit that each bit of a number holds now."""

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
        """Emit a vector of the lanes `pick` of the two vectors `a` and `b` of `lanes` each; -1 is any lane."""
        if a == b == "poison":
            return a
        v = f"<{lanes} x {self.t}>"
        return self.emit(f"shufflevector {v} {a}, {v} {b}, {lane_list(pick)}")

    def join(self) -> None:
        """Concatenate several rows of 128 bits to one register, so that one shuffle of a stage handles all of them."""
        n = self.width
        for r in range(n):
            self.regs[r] = self.concatenated(self.regs[r::n], n)
        self.width = len(self.regs)
        self.regs = self.regs[:n]
        bits = n.bit_length() - 1
        self.lane_bits, self.row_bits = self.lane_bits + self.row_bits[bits:], self.row_bits[:bits]

    def concatenated(self, vectors: list[str], width: int) -> str:
        """Emit one vector with the lanes of all `vectors`, each of `width` lanes, one after the other."""
        while len(vectors) > 1:
            vectors = [*vectors, *["poison"] * (len(vectors) % 2)]
            both = list(range(2 * width))
            vectors = [self.shuffled(a, b, width, both) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
            width *= 2
        return vectors[0]

    def exchange(self, narrow: int) -> None:
        """Emit all stages; `narrow` is the number of elements in 128 bits."""
        bits = sum(kind == "l" for kind, _ in self.lane_bits)
        inside = min(bits, narrow.bit_length() - 1)
        for k in range(min(bits, len(self.row_bits))):
            if k < inside:
                self.stage(k, into=k, out=inside - 1)
            else:
                self.stage(k, into=bits - 1, out=inside)

    def stage(self, k: int, into: int, out: int) -> None:
        """Emit a stage that moves bit `k` of the register number to lane bit `into`, and lane bit `out` to bit `k`."""
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

    def result(self, j: int) -> str:
        """Return the register of the transposed block with the elements that were in lane `j`."""
        at = [(_number(self.row_bits, i, j), _number(self.lane_bits, i, j)) for i in range(self.rows)]
        rows = list(dict.fromkeys(r for r, _ in at))
        pick = [rows.index(r) * self.width + k for r, k in at]
        whole = self.concatenated([self.regs[r] for r in rows], self.width)
        width = self.width << (len(rows) - 1).bit_length()
        return whole if pick == list(range(width)) else self.shuffled(whole, "poison", width, pick)


def _source(lane: int, into: int, out: int, width: int) -> int:
    """Return the source lane that a stage moves to `lane`; lanes of the second source count from `width` on."""
    second = lane >> into & 1
    rest = (lane >> (into + 1) << into) | (lane & (1 << into) - 1)
    return (second * width) | (rest >> out << (out + 1)) | (rest & (1 << out) - 1)


def _number(bits: list[Bit], i: int, j: int) -> int:
    """Return the number that has these bits, for the element in lane `j` of register `i` at the start."""
    return sum(((i if kind == "r" else j) >> k & 1) << p for p, (kind, k) in enumerate(bits))


__all__ = ["transpose"]
