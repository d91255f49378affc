"""Matrix units of GPUs: instructions by which all lanes of a warp multiply tiles together, as rows of a table.

What it is for: names, shapes, types, and which lane holds which element. An operand's map is two words, one for each of
its axes: the bits of the place along that axis, the lowest first, each of which is a bit of the lane's number (l0 is
the lowest) or of the element's number in that lane (e0). Lanes whose numbers differ in a bit that no word has hold the
same. The axes are (rows, steps) of the left operand, (columns, steps) of the right one, (rows, columns) of the sum. A
`|` keeps bits apart that would make one run.

What it is not: how a language spells the instruction (`backend.*.units`), or which architecture has it.
Invariant: each bit of a lane and of an element stands once in the map of the sum.

A unit of four warps (wgmma) reads its operands from local memory, as `Cores` says they lie; a lane holds where.

Source: NVIDIA, "PTX ISA", fragments of mma.m16n8k8 to m16n8k32, wgmma and its matrix descriptor; AMD, "RDNA3" and
"RDNA4 Instruction Set Architecture", WMMA; AMD, "MI300 Instruction Set Architecture", MFMA; Apple, "Metal Shading
Language", SIMD-group matrices, whose order of lanes is that of Apple's open matrix kernels.

Example: `NVIDIA[0].name == "mma_m16n8k16_f16"`, the sum's lane 5 has rows 1 and 9 of columns 2 and 3.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from monolect.base.dtype import DType, dtypes
from monolect.base.target import MatrixUnit

F16, BF16, F32 = dtypes.float16, dtypes.bfloat16, dtypes.float32
I8, U8, I32 = dtypes.int8, dtypes.uint8, dtypes.int32
E4M3, E5M2 = dtypes.fp8e4m3, dtypes.fp8e5m2
_SHORT = {F16: "f16", BF16: "bf16", F32: "f32", I8: "s8", U8: "u8", E4M3: "e4m3", E5M2: "e5m2"}


BORDER = "|"


class Run(NamedTuple):
    """Neighbouring bits of a place along `axis` (0 or 1), from bit `at` on, that are neighbouring bits of a lane's or
    an element's number, from bit `first` on.
    """

    axis: int
    at: int
    is_lane: bool
    first: int
    n_bits: int


@cache
def runs(words: tuple[str, str]) -> tuple[Run, ...]:
    """The bits of a map, joined where they are neighbours on both sides.

    Example: `runs(("l2 l3 l4 e1", "e0 l0 l1"))[0] == Run(axis=0, at=0, is_lane=True, first=2, n_bits=3)`
    """
    out: list[Run] = []
    for axis, word in enumerate(words):
        at, last = 0, None
        for bit in word.split():
            if bit == BORDER:
                last = None
                continue
            is_lane, number = bit[0] == "l", int(bit[1:])
            if last and last.is_lane == is_lane and last.first + last.n_bits == number:
                out[-1] = last._replace(n_bits=last.n_bits + 1)
            else:
                out.append(Run(axis, at, is_lane, number, 1))
            at, last = at + 1, out[-1]
    return tuple(out)


def n_elements(words: tuple[str, str]) -> int:
    """Elements of an operand in one lane."""
    return 1 << sum(r.n_bits for r in runs(words) if not r.is_lane)


def place(words: tuple[str, str], lane: Any, element: Any) -> tuple[Any, Any]:
    """Where along both axes an element of a lane lies; numbers, or arrays of them.

    Example: `place(("l2 l3 l4 e1", "e0 l0 l1"), 5, 3) == (9, 3)`
    """
    out = [0 * (lane + element)] * 2
    for r in runs(words):
        out[r.axis] = out[r.axis] + (((lane if r.is_lane else element) >> r.first) % (1 << r.n_bits) << r.at)
    return out[0], out[1]


class Cores(NamedTuple):
    """How an operand lies in local memory: in core matrices of 8 lines of 16 bytes, each without a gap. A line is part
    of a row, or with `turned` (types of 16 bits) of a step. `lead` and `stride`: elements from one core matrix to the
    next, along the steps and along the rows.

    Or in `panels`, as boxes are copied: lines of 128 bytes one after another, of neighbours along the steps, or along
    the rows with `turned`; `lead` elements from one panel of lines to the next, and `stride` is 0. In each 1024 bytes
    the hardware lays out 16 bytes otherwise, on both sides: only boxes and units may touch those.
    """

    lead: int
    stride: int
    turned: bool
    panels: bool = False

    def place(self, row: Any, step: Any, itemsize: int) -> Any:
        """Elements from the first one to that of a row and a step; numbers, or arrays of them.

        Example: `Cores(64, 128, False).place(9, 8, 2) == 128 + 8 + 64`
        """
        if self.panels:
            side, (inner, line) = PANEL_BYTES // itemsize, (row, step) if self.turned else (step, row)
            return line * side + inner % side + inner // side * self.lead
        side = CORE_BYTES // itemsize
        line, inner = (step % side, row % CORE_LINES) if self.turned else (row % CORE_LINES, step % side)
        return line * side + inner + step // side * self.lead + row // CORE_LINES * self.stride


CORE_LINES, CORE_BYTES = 8, 16  # of a core matrix, and of a line
PANEL_BYTES = 128  # of a line in a panel


def _unit(
    name: str, sizes: tuple[int, int, int], types: tuple[DType, DType, DType], threads: int, *maps: tuple[str, str]
) -> MatrixUnit:
    m, n, k = sizes
    return MatrixUnit(name, m, n, k, 1, *types, threads=threads, maps=maps)


def _pair(a: DType, b: DType) -> str:
    return _SHORT[a] if a is b else f"{_SHORT[a]}_{_SHORT[b]}"


# ---- NVIDIA ----------------------------------------------------------------------------------------------------------
def _mma(m: int, k: int, a: DType, b: DType, acc: DType) -> MatrixUnit:
    """mma.sync: a lane holds registers of 32 bits, each of neighbours along the steps."""
    side = (4 // a.itemsize).bit_length() - 1  # bits of the place in a register
    inner = [*(f"e{i}" for i in range(side)), "l0", "l1"]
    halves = k > 4 << side  # registers beyond the first ones hold the second half of the steps
    rows = ["l2", "l3", "l4"] + [f"e{side}"] * (m == 16)
    left = (" ".join(rows), " ".join(inner + [f"e{side + (m == 16)}"] * halves))
    right = ("l2 l3 l4", " ".join(inner + [f"e{side}"] * halves))
    total = ("l2 l3 l4 e1" if m == 16 else "l2 l3 l4", "e0 l0 l1")
    name = "tf32" if a is F32 else _pair(a, b)
    return _unit(f"mma_m{m}n8k{k}_{name}", (m, 8, k), (a, b, acc), 32, left, right, total)


_BYTES = ((I8, I8), (U8, U8), (I8, U8), (U8, I8))
_SMALL = ((E4M3, E4M3), (E5M2, E5M2), (E4M3, E5M2), (E5M2, E4M3))
NVIDIA: tuple[MatrixUnit, ...] = (
    _mma(16, 16, F16, F16, F32),
    _mma(16, 16, BF16, BF16, F32),
    *(_mma(16, 32, a, b, I32) for a, b in _BYTES),
    *(_mma(16, 32, a, b, F32) for a, b in _SMALL),
    _mma(16, 8, F16, F16, F32),
    _mma(16, 8, BF16, BF16, F32),
    *(_mma(16, 16, a, b, I32) for a, b in _BYTES),
    *(_mma(8, 16, a, b, I32) for a, b in _BYTES),
    _mma(16, 8, F32, F32, F32),
    _mma(16, 4, F32, F32, F32),
)


def _wgmma(n: int, a: DType, b: DType, acc: DType) -> MatrixUnit:
    """wgmma: four warps, 16 rows each."""
    bits = ["e0", "l0", "l1", *(f"e{i + 2}" for i in range((n // 8).bit_length() - 1))]
    panel = (PANEL_BYTES // a.itemsize).bit_length() - 1
    columns = " ".join([*bits[:panel], BORDER, *bits[panel:]] if len(bits) > panel and a.itemsize == 2 else bits)
    k, nothing = 32 // a.itemsize, ("", "")
    maps = (nothing, nothing, ("l2 l3 l4 e1 l5 l6", columns))
    unit = _unit(f"wgmma_m64n{n}k{k}_{_pair(a, b)}", (64, n, k), (a, b, acc), 128, *maps)
    return unit._replace(from_memory=True)


# float32 stays with mma.sync: these would cut it off, where it is to be rounded on its way to local memory
HOPPER: tuple[MatrixUnit, ...] = tuple(
    _wgmma(n, a, b, acc)
    for pairs, acc in ((((F16, F16), (BF16, BF16), *_SMALL), F32), (_BYTES, I32))
    for a, b in pairs
    for n in (256, 128, 64, 32, 16, 8)
)


# ---- AMD -------------------------------------------------------------------------------------------------------------
def _wmma(generation: int, a: DType, b: DType, acc: DType) -> MatrixUnit:
    """WMMA of RDNA3, where both halves of a warp hold the same, and of RDNA4, where each holds half of the steps."""
    side = ("l0 l1 l2 l3", "e0 e1 e2 e3" if generation == 3 else "e0 e1 e2 l4")
    total = ("l4 e0 e1 e2" if generation == 3 else "e0 e1 e2 l4", "l0 l1 l2 l3")
    return _unit(f"wmma{generation}_16x16x16_{_pair(a, b)}", (16, 16, 16), (a, b, acc), 32, side, side, total)


def _mfma(m: int, k: int, a: DType, acc: DType) -> MatrixUnit:
    """MFMA: groups of m lanes, each with neighbouring steps."""
    lanes = "l0 l1 l2 l3" if m == 16 else "l0 l1 l2 l3 l4"
    rest = "l4 l5" if m == 16 else "l5"
    n = k * m // 64
    side = (lanes, " ".join([*(f"e{i}" for i in range(n.bit_length() - 1)), rest]))
    total = (f"e0 e1 {rest}" + (" e2 e3" if m == 32 else ""), lanes)
    return _unit(f"mfma_{m}x{m}x{k}_{_SHORT[a]}", (m, m, k), (a, a, acc), 64, side, side, total)


RDNA3: tuple[MatrixUnit, ...] = (
    *(_wmma(3, d, d, F32) for d in (F16, BF16)),
    *(_wmma(3, a, b, I32) for a, b in _BYTES),
)
RDNA4: tuple[MatrixUnit, ...] = (
    *(_wmma(4, d, d, F32) for d in (F16, BF16)),
    *(_wmma(4, a, b, I32) for a, b in _BYTES),
    *(_wmma(4, a, b, F32) for a, b in _SMALL),
)
# CDNA3's floats of 8 bits are of another kind than those of the dialect, without a negative zero
CDNA2: tuple[MatrixUnit, ...] = tuple(_mfma(m, k, d, F32) for m, k in ((32, 8), (16, 16)) for d in (F16, BF16))
CDNA3: tuple[MatrixUnit, ...] = (*CDNA2, *(_mfma(m, k, I8, I32) for m, k in ((32, 16), (16, 32))))


# ---- Apple -----------------------------------------------------------------------------------------------------------
_SIDE = ("l1 l2 l4", "e0 l0 l3")  # rows, columns: of the left operand, the sum, and the right one, which is turned
APPLE: tuple[MatrixUnit, ...] = tuple(
    _unit(f"simdgroup_8x8x8_{_SHORT[d]}", (8, 8, 8), (d, d, F32), 32, _SIDE, _SIDE[::-1], _SIDE)
    for d in (F16, BF16, F32)
)

BY_NAME: dict[str, MatrixUnit] = {u.name: u for u in (*NVIDIA, *HOPPER, *RDNA3, *RDNA4, *CDNA3, *APPLE)}
