"""List the matrix units of GPUs: instructions by which all lanes of a warp together multiply tiles.

What it is for: names, shapes, types, and the map from lanes to elements. The map of an operand is two words, one for
each axis of its tile. A word lists the bits of the coordinate along that axis, lowest first. Each is a bit of the lane
number (l0 is the lowest) or of the number of the element in the lane (e0). Lanes that differ only in a bit that is in
no word hold the same elements. The axes are (rows, steps) of the left operand, (columns, steps) of the right operand
and (rows, columns) of the sum, where steps are the axis that is summed. A `|` ends a run of bits (`runs`).

What it is not: the spelling of the instruction in a language (`backend.*.units`), or the architectures that have it.
Invariant: each bit of the lane and of the element occurs once in the map of the sum.

A unit of four warps (wgmma) reads its operands from local memory, in the layout `Cores`; a lane holds their addresses.

Source: NVIDIA, "PTX ISA", fragments of mma.m16n8k8 to m16n8k32, wgmma and its matrix descriptor; AMD, "RDNA3" and
"RDNA4 Instruction Set Architecture", WMMA; AMD, "MI300 Instruction Set Architecture", MFMA; Apple, "Metal Shading
Language", SIMD-group matrices, whose order of lanes is that of Apple's open matrix kernels.

Example: `NVIDIA[0].name == "mma_m16n8k16_f16"`; its lane 5 holds rows 1 and 9 of columns 2 and 3 of the sum.
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


BORDER = "|"  # ends a run of bits in a word


class BitRun(NamedTuple):
    """A run of `n_bits` bits: bits from `at` of the coordinate along `axis` are bits from `first` of a number.

    The number is that of the lane if `is_lane`, else that of the element in the lane.
    """

    axis: int
    at: int
    is_lane: bool
    first: int
    n_bits: int


@cache
def runs(words: tuple[str, str]) -> tuple[BitRun, ...]:
    """Return the bits of a map as runs: bits that are adjacent both in the coordinate and in the number are joined.

    Example: `runs(("l2 l3 l4 e1", "e0 l0 l1"))[0] == BitRun(axis=0, at=0, is_lane=True, first=2, n_bits=3)`
    """
    out: list[BitRun] = []
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
                out.append(BitRun(axis, at, is_lane, number, 1))
            at, last = at + 1, out[-1]
    return tuple(out)


def n_elements(words: tuple[str, str]) -> int:
    """Return the number of elements of an operand's tile in one lane."""
    return 1 << sum(r.n_bits for r in runs(words) if not r.is_lane)


def position(words: tuple[str, str], lane: Any, element: Any) -> tuple[Any, Any]:
    """Return the coordinates, along both axes of a tile, of an element of a lane; ints, or arrays of them.

    Example: `position(("l2 l3 l4 e1", "e0 l0 l1"), 5, 3) == (9, 3)`
    """
    out = [0 * (lane + element)] * 2
    for r in runs(words):
        out[r.axis] = out[r.axis] + (((lane if r.is_lane else element) >> r.first) % (1 << r.n_bits) << r.at)
    return out[0], out[1]


class Cores(NamedTuple):
    """The layout of an operand in local memory: contiguous core matrices of 8 lines of 16 bytes.

    A line holds adjacent steps of one row, or, if `transposed` (16-bit types only), adjacent rows of one step. `lead`
    and `stride`: offsets in elements between core matrices that are adjacent along the steps and along the rows.

    With `panels` the layout is that of TMA boxes: panels of contiguous 128-byte lines, along the steps, or along the
    rows if `transposed`. `lead` is the offset in elements between panels, and `stride` is 0. In each 1024 bytes the
    hardware swizzles 16-byte chunks when it copies and when it multiplies, so no other instruction may access them.
    """

    lead: int
    stride: int
    transposed: bool
    panels: bool = False

    def offset(self, row: Any, step: Any, itemsize: int) -> Any:
        """Return the offset, in elements, of the element at a row and a step; ints, or arrays of them.

        Example: `Cores(64, 128, False).offset(9, 8, 2) == 128 + 8 + 64`
        """
        if self.panels:
            side, (inner, line) = PANEL_BYTES // itemsize, (row, step) if self.transposed else (step, row)
            return line * side + inner % side + inner // side * self.lead
        side = CORE_BYTES // itemsize
        line, inner = (step % side, row % CORE_LINES) if self.transposed else (row % CORE_LINES, step % side)
        return line * side + inner + step // side * self.lead + row // CORE_LINES * self.stride


CORE_LINES, CORE_BYTES = 8, 16  # lines of a core matrix; bytes of a line
PANEL_BYTES = 128  # bytes of a line in a panel


def _unit(
    name: str, sizes: tuple[int, int, int], types: tuple[DType, DType, DType], threads: int, *maps: tuple[str, str]
) -> MatrixUnit:
    m, n, k = sizes
    return MatrixUnit(name, m, n, k, 1, *types, threads=threads, maps=maps)


def _pair(a: DType, b: DType) -> str:
    return _SHORT[a] if a is b else f"{_SHORT[a]}_{_SHORT[b]}"


# ---- NVIDIA ----------------------------------------------------------------------------------------------------------
def _mma(m: int, k: int, a: DType, b: DType, acc: DType) -> MatrixUnit:
    """Return the MatrixUnit of mma.sync for tiles m x 8 x k: a lane holds 32-bit registers, each with elements adjacent
    along the steps.
    """
    side = (4 // a.itemsize).bit_length() - 1  # bits of the number of an element in a register
    inner = [*(f"e{i}" for i in range(side)), "l0", "l1"]
    halves = k > 4 << side  # whether further registers hold the second half of the steps
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
    """Return the MatrixUnit of wgmma for tiles 64 x n: four warps, each with 16 rows of the sum."""
    bits = ["e0", "l0", "l1", *(f"e{i + 2}" for i in range((n // 8).bit_length() - 1))]
    panel = (PANEL_BYTES // a.itemsize).bit_length() - 1
    columns = " ".join([*bits[:panel], BORDER, *bits[panel:]] if len(bits) > panel and a.itemsize == 2 else bits)
    k, nothing = 32 // a.itemsize, ("", "")
    maps = (nothing, nothing, ("l2 l3 l4 e1 l5 l6", columns))
    unit = _unit(f"wgmma_m64n{n}k{k}_{_pair(a, b)}", (64, n, k), (a, b, acc), 128, *maps)
    return unit._replace(from_memory=True)


# float32 uses mma.sync only: wgmma truncates it to TF32, and it would have to be rounded on its way to local memory
HOPPER: tuple[MatrixUnit, ...] = tuple(
    _wgmma(n, a, b, acc)
    for pairs, acc in ((((F16, F16), (BF16, BF16), *_SMALL), F32), (_BYTES, I32))
    for a, b in pairs
    for n in (256, 128, 64, 32, 16, 8)
)


# ---- AMD -------------------------------------------------------------------------------------------------------------
def _wmma(generation: int, a: DType, b: DType, acc: DType) -> MatrixUnit:
    """Return the MatrixUnit of WMMA. On RDNA3 both halves of a warp hold the same elements; on RDNA4 each half
    holds half of the steps.
    """
    side = ("l0 l1 l2 l3", "e0 e1 e2 e3" if generation == 3 else "e0 e1 e2 l4")
    total = ("l4 e0 e1 e2" if generation == 3 else "e0 e1 e2 l4", "l0 l1 l2 l3")
    return _unit(f"wmma{generation}_16x16x16_{_pair(a, b)}", (16, 16, 16), (a, b, acc), 32, side, side, total)


def _mfma(m: int, k: int, a: DType, acc: DType) -> MatrixUnit:
    """Return the MatrixUnit of MFMA for tiles m x m x k: lanes in groups of m; each lane holds adjacent steps."""
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
# CDNA3's 8-bit floats are not listed: their formats have no negative zero, unlike those of the dialect
CDNA2: tuple[MatrixUnit, ...] = tuple(_mfma(m, k, d, F32) for m, k in ((32, 8), (16, 16)) for d in (F16, BF16))
CDNA3: tuple[MatrixUnit, ...] = (*CDNA2, *(_mfma(m, k, I8, I32) for m, k in ((32, 16), (16, 32))))


# ---- Apple -----------------------------------------------------------------------------------------------------------
_SIDE = ("l1 l2 l4", "e0 l0 l3")  # rows, columns of the left operand and the sum; the right operand is transposed
APPLE: tuple[MatrixUnit, ...] = tuple(
    _unit(f"simdgroup_8x8x8_{_SHORT[d]}", (8, 8, 8), (d, d, F32), 32, _SIDE, _SIDE[::-1], _SIDE)
    for d in (F16, BF16, F32)
)

BY_NAME: dict[str, MatrixUnit] = {u.name: u for u in (*NVIDIA, *HOPPER, *RDNA3, *RDNA4, *CDNA3, *APPLE)}


__all__ = [
    "APPLE",
    "BY_NAME",
    "BitRun",
    "CDNA2",
    "CDNA3",
    "CORE_BYTES",
    "CORE_LINES",
    "Cores",
    "HOPPER",
    "NVIDIA",
    "PANEL_BYTES",
    "RDNA3",
    "RDNA4",
    "n_elements",
    "position",
    "runs",
]
