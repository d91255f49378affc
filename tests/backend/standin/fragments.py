"""Which lane holds which element of a matrix unit's operands, in the words of the vendors' manuals; and those units as
C++ functions that run on this processor, for the stand-ins.

A second statement of the tables in `monolect/base/matrix_units.py`, written another way: where they differ, one is
wrong, and what a stand-in computes for a kernel then is too.
"""

from functools import cache

import numpy as np

from monolect.base.dtype import dtypes
from monolect.base.matrix_units import n_elements
from monolect.base.target import MatrixUnit

E4M3, E5M2 = dtypes.fp8e4m3, dtypes.fp8e5m2


# ---- NVIDIA: "PTX ISA", matrix fragments for mma ---------------------------------------------------------------------
def nvidia(u: MatrixUnit, operand: str, lane: int, i: int) -> tuple[int, int]:
    """(row, column) of element i of a lane, of A (rows, k), B (k, columns) or C."""
    group, thread = lane >> 2, lane % 4
    if operand == "c":
        return (group if i < 2 else group + 8), thread * 2 + (i & 1)
    if u.a is dtypes.float32:
        a = (group if i % 2 == 0 else group + 8), (thread if i < 2 else thread + 4)
        return a if operand == "a" else ((thread if i == 0 else thread + 4), group)
    if u.a.itemsize == 2 and operand == "a":
        row = group if i < 2 or 4 <= i < 6 else group + 8
        return row, thread * 2 + (i & 1) + (0 if i < 4 else 8)
    if u.a.itemsize == 2:
        return thread * 2 + (i & 1) + (0 if i < 2 else 8), group
    if operand == "b":
        return thread * 4 + (i & 3) + (0 if i < 4 else 16), group
    row = group if i < 4 or 8 <= i < 12 else group + 8
    return row, thread * 4 + (i & 3) + (0 if i < 8 else 16)


# ---- AMD: "Matrix Instruction Calculator", and the manuals' figures ------------------------------------------------
def rdna(u: MatrixUnit, operand: str, lane: int, i: int) -> tuple[int, int]:
    """WMMA: registers i of lanes 0 to 15 and 16 to 31."""
    half, number = divmod(lane, 16)
    if operand == "c":
        return (2 * i + half if u.name.startswith("wmma3") else i + 8 * half), number
    k = i if u.name.startswith("wmma3") else i + 8 * half
    return (number, k) if operand == "a" else (k, number)


def cdna(u: MatrixUnit, operand: str, lane: int, i: int) -> tuple[int, int]:
    """MFMA of one block."""
    group, number = divmod(lane, u.m)
    if operand == "c":
        return (4 * group + i if u.m == 16 else 8 * (i // 4) + 4 * group + i % 4), number
    k = n_elements(u.maps[0]) * group + i
    return (number, k) if operand == "a" else (k, number)


# ---- Apple: thread_elements() of an 8 x 8 matrix, as in Apple's open kernels ---------------------------------------
def apple(u: MatrixUnit, operand: str, lane: int, i: int) -> tuple[int, int]:
    quad = lane // 4
    return (quad & 4) + (lane // 2) % 4, (quad & 2) * 2 + (lane % 2) * 2 + i


def wgmma(u: MatrixUnit, operand: str, lane: int, i: int) -> tuple[int, int]:
    """The sum of wgmma: warp w has rows 16 w to 16 w + 15."""
    return lane // 32 * 16 + lane % 32 // 4 + i // 2 % 2 * 8, i // 4 * 8 + lane % 4 * 2 + i % 2


VENDORS = {"mma": nvidia, "wgmma": wgmma, "wmma3": rdna, "wmma4": rdna, "mfma": cdna, "simdgroup": apple}


def of_vendor(u: MatrixUnit, operand: str, lane: int, i: int) -> tuple[int, int]:
    """(row, column) as the manual of the unit's vendor says."""
    return VENDORS[u.name.split("_")[0]](u, operand, lane, i)


# ---- as C++ ----------------------------------------------------------------------------------------------------------
_WIDENED = {
    "float16": "standin::half_of(x)", "bfloat16": "__builtin_bit_cast(float, (unsigned)x << 16)",
    "float32": "x", "int8": "x", "uint8": "x", "fp8e4m3": "standin::e4m3[x]", "fp8e5m2": "standin::e5m2[x]",
}  # fmt: skip


@cache
def rows(u: MatrixUnit, operand: str, n: int) -> str:
    """Where each lane's n elements are; of B in the order of A."""
    at = [of_vendor(u, operand, lane, i) for lane in range(u.threads) for i in range(n)]
    return ", ".join(f"{{{x}, {y}}}" for x, y in (at if operand != "b" else [p[::-1] for p in at]))


def emulated(u: MatrixUnit, types: dict) -> str:
    """The function of a unit, for a language that keeps elements in these types."""
    held = [n_elements(m) for m in u.maps]
    wide = "double" if u.acc.is_float else "int"
    x = "standin::tf32(x)" if u.name.endswith("tf32") else _WIDENED[u.a.name]
    y = x if u.name.endswith("tf32") else _WIDENED[u.b.name]
    if u.from_memory:
        return "\n".join([
            "template <int turned_a, int turned_b>",
            f"void {u.name}(vec<{types[u.acc]}, {held[2]}>& c, standin::Cores a, standin::Cores b) {{",
            f"  standin::in_group<{u.m}, {u.n}, {u.k}, {wide}, {types[u.a]}, {types[u.b]}>(",
            "      c, a, b, turned_a, turned_b,",
            f"      [](auto x) {{ return ({wide}){x}; }}, [](auto x) {{ return ({wide}){y}; }});",
            "}",
        ])  # fmt: skip
    lines = []
    for operand, n in zip("abc", held, strict=True):
        lines.append(f"  static const int at_{operand}[][2] = {{{rows(u, operand, n)}}};")
    a, b, c = (f"vec<{types[d]}, {n}>" for d, n in zip((u.a, u.b, u.acc), held, strict=True))
    return "\n".join([
        f"inline {c} {u.name}({a} a, {b} b, {c} c) {{",
        *lines,
        f"  return standin::in_warp<{u.m}, {u.n}, {u.k}, {u.threads}, {wide}, {', '.join(map(str, held))}>(a, b, c,",
        f"      at_a, at_b, at_c, [](auto x) {{ return ({wide}){x}; }}, [](auto x) {{ return ({wide}){y}; }});",
        "}",
    ])  # fmt: skip


@cache
def tables() -> str:
    """The values of all 8-bit floats."""
    out = []
    for name, d in (("e4m3", E4M3), ("e5m2", E5M2)):
        values = np.arange(256, dtype=np.uint8).view(d.numpy).astype(np.float32)
        texts = [f"{x!r}f" if np.isfinite(x) else "(0.0f / 0.0f)" if np.isnan(x) else f"({'-' * (x < 0)}1.0f / 0.0f)"
                 for x in values.tolist()]  # fmt: skip
        out.append(f"static const float {name}[] = {{{', '.join(texts)}}};")
    return "namespace standin {\n" + "\n".join(out) + "\n}"
