"""Emulate the matrix units of x86 processors: each instruction of `units` is an LLVM function that any processor runs.

What it is for: tests of plans, packing and code for a matrix unit, on machines without it. The setting EMULATE_UNITS
names the units of the target; only their instructions are replaced. A tile is a vector of 1024 bytes.

What it is not: fast, or a model of partial tiles. It has only the x86 units.

Invariant: results equal the instruction's bit for bit, except the bits of a NaN. Products of bfloat16 and float16 are
added to float32 in the order of the manual, each sum rounded once, to nearest even; subnormal inputs of bfloat16 and
results are zeros. A product is exact in float64. The sum is rounded there to odd, so that rounding it to float32 is
exact.

Source: Intel, "Software Developer's Manual", volume 2: VDPBF16PS, VPDPBUSD, TDPBF16PS, TDPFP16PS, TDPBSSD, TILELOADD.
"""

from __future__ import annotations

from monolect.backend.common.llvm import program as llvm_ir
from monolect.backend.common.llvm.memory import MAX_VECTOR_BYTES
from monolect.backend.cpu.render import CpuRenderer
from monolect.backend.cpu.units import BY_INTRINSIC, I8
from monolect.base.dtype import DType, dtypes
from monolect.base.target import MatrixUnit
from monolect.ir.uop import UOp

TILE = "<256 x i32>"
# 2**-126 - 2**-151 as float64: smaller magnitudes, rounded to 24 bits, are subnormal
_FLUSH_BELOW = "0x380FFFFFF0000000"


class EmulatingRenderer(CpuRenderer):
    """Renders one kernel with calls of emulated instructions."""

    tile_type = TILE

    def declare(self, kind: str, intrinsic: str, takes: str) -> str:
        """Return the name of the function that emulates an intrinsic, and add its definition to the module."""
        name, definitions = function(intrinsic)
        self.declares.update(definitions)
        return name


def function(intrinsic: str) -> tuple[str, list[str]]:
    """Return (name, definitions) of the LLVM function that emulates an intrinsic, and those that it calls.

    Example: `function("x86.tdpbssd.internal")[0] == "@emulated.tdpbssd"`
    """
    if intrinsic in TILE_MOVES:
        name, text = TILE_MOVES[intrinsic]
        return name, [text]
    unit = BY_INTRINSIC[intrinsic].unit
    called = [_UPCAST, _MULTIPLY_ADD] if unit.a.is_float else [_dot_of_bytes(unit.n, unit.a, unit.b)]
    if unit.n_tiles:
        text = _tile_of_floats(unit) if unit.a.is_float else _tile_of_bytes(unit)
    else:
        text = _pairs_of_floats(unit) if unit.a.is_float else _vector_of_bytes(unit)
    return f"@emulated.{unit.name}", [*called, text]


# ---- floats of 16 bits -----------------------------------------------------------------------------------------------
# convert float32 to float64; subnormal numbers become zero
_UPCAST = """\
define internal <16 x double> @emulated.wide(<16 x i32> %x) #0 {
  %exponent = and <16 x i32> %x, splat (i32 2139095040)
  %sign = and <16 x i32> %x, splat (i32 -2147483648)
  %is_small = icmp eq <16 x i32> %exponent, zeroinitializer
  %bits = select <16 x i1> %is_small, <16 x i32> %sign, <16 x i32> %x
  %f = bitcast <16 x i32> %bits to <16 x float>
  %r = fpext <16 x float> %f to <16 x double>
  ret <16 x double> %r
}
"""
# c + x * y, rounded once; the product must be exact in float64
_MULTIPLY_ADD = f"""\
define internal <16 x float> @emulated.multiply_add(<16 x float> %c, <16 x i32> %x, <16 x i32> %y) #0 {{
  %c1 = bitcast <16 x float> %c to <16 x i32>
  %a = call <16 x double> @emulated.wide(<16 x i32> %c1)
  %x1 = call <16 x double> @emulated.wide(<16 x i32> %x)
  %y1 = call <16 x double> @emulated.wide(<16 x i32> %y)
  %p = fmul <16 x double> %x1, %y1
  %s = fadd <16 x double> %p, %a
; the error of the sum
  %a1 = fsub <16 x double> %s, %p
  %p1 = fsub <16 x double> %s, %a1
  %ea = fsub <16 x double> %a, %a1
  %ep = fsub <16 x double> %p, %p1
  %e = fadd <16 x double> %ea, %ep
; round to odd: where the sum is not exact and its last bit is 0, take the neighbour towards the error
  %bits = bitcast <16 x double> %s to <16 x i64>
  %last = trunc <16 x i64> %bits to <16 x i1>
  %inexact = fcmp one <16 x double> %e, zeroinitializer
  %even = xor <16 x i1> %last, splat (i1 true)
  %moves = and <16 x i1> %inexact, %even
  %e1 = bitcast <16 x double> %e to <16 x i64>
  %differ = xor <16 x i64> %e1, %bits
  %down = icmp slt <16 x i64> %differ, zeroinitializer
  %by = select <16 x i1> %down, <16 x i64> splat (i64 -1), <16 x i64> splat (i64 1)
  %to = add <16 x i64> %bits, %by
  %odd = select <16 x i1> %moves, <16 x i64> %to, <16 x i64> %bits
  %d = bitcast <16 x i64> %odd to <16 x double>
  %f = fptrunc <16 x double> %d to <16 x float>
; a subnormal result is zero
  %magnitude = and <16 x i64> %odd, splat (i64 9223372036854775807)
  %m = bitcast <16 x i64> %magnitude to <16 x double>
  %tiny = fcmp olt <16 x double> %m, splat (double {_FLUSH_BELOW})
  %f1 = bitcast <16 x float> %f to <16 x i32>
  %sign = and <16 x i32> %f1, splat (i32 -2147483648)
  %r = select <16 x i1> %tiny, <16 x i32> %sign, <16 x i32> %f1
  %out = bitcast <16 x i32> %r to <16 x float>
  ret <16 x float> %out
}}
"""
# split each word into its upper (x1, y1) and lower (x0, y0) bfloat16, as float32 bits
_SPLIT_BFLOATS = """\
  %x1 = and <16 x i32> %x, splat (i32 -65536)
  %y1 = and <16 x i32> %y, splat (i32 -65536)
  %x0 = shl <16 x i32> %x, splat (i32 16)
  %y0 = shl <16 x i32> %y, splat (i32 16)
"""
_LANES = [", ".join(f"i32 {i}" for i in range(k, 32, 2)) for k in (0, 1)]  # of the lower and the upper halves
# the same, of float16: a subnormal one is a normal float32
_SPLIT_HALVES = "".join(f"  %{v}h = bitcast <16 x i32> %{v} to <32 x half>\n" for v in "xy") + "".join(
    f"""\
  %{v}h{k} = shufflevector <32 x half> %{v}h, <32 x half> poison, <16 x i32> <{_LANES[k]}>
  %{v}f{k} = fpext <16 x half> %{v}h{k} to <16 x float>
  %{v}{k} = bitcast <16 x float> %{v}f{k} to <16 x i32>
"""
    for v in "xy"
    for k in (0, 1)
)


def _pairs_of_floats(unit: MatrixUnit) -> str:
    """Return the LLVM function that emulates VDPBF16PS, which adds the product of the upper halves first."""
    return f"""\
define internal <16 x float> @emulated.{unit.name}(<16 x float> %c, <32 x bfloat> %a, <32 x bfloat> %b) #0 {{
  %x = bitcast <32 x bfloat> %a to <16 x i32>
  %y = bitcast <32 x bfloat> %b to <16 x i32>
{_SPLIT_BFLOATS}\
  %s = call <16 x float> @emulated.multiply_add(<16 x float> %c, <16 x i32> %x1, <16 x i32> %y1)
  %r = call <16 x float> @emulated.multiply_add(<16 x float> %s, <16 x i32> %x0, <16 x i32> %y0)
  ret <16 x float> %r
}}
"""


def _tile_of_floats(unit: MatrixUnit) -> str:
    """Return the LLVM function that emulates TDPBF16PS or TDPFP16PS, with separate sums for lower and upper halves
    until the end.
    """
    split = _SPLIT_BFLOATS if unit.a is dtypes.bfloat16 else _SPLIT_HALVES
    one = "<16 x i32> splat (i32 1065353216)"  # 1.0
    step = f"""\
  %s0 = phi <16 x float> [ zeroinitializer, %rows ], [ %n0, %steps ]
  %s1 = phi <16 x float> [ zeroinitializer, %rows ], [ %n1, %steps ]
{_LOAD_WORDS}{split}\
  %n0 = call <16 x float> @emulated.multiply_add(<16 x float> %s0, <16 x i32> %x0, <16 x i32> %y0)
  %n1 = call <16 x float> @emulated.multiply_add(<16 x float> %s1, <16 x i32> %x1, <16 x i32> %y1)
"""
    end = f"""\
  %m = bitcast <16 x float> %n1 to <16 x i32>
  %sum = call <16 x float> @emulated.multiply_add(<16 x float> %n0, <16 x i32> %m, {one})
  %sum1 = bitcast <16 x float> %sum to <16 x i32>
  %oldf = bitcast <16 x i32> %old to <16 x float>
  %new = call <16 x float> @emulated.multiply_add(<16 x float> %oldf, <16 x i32> %sum1, {one})
  store <16 x float> %new, ptr %row, align 64
"""
    return _tile_loops(unit, step, end)


# ---- bytes -----------------------------------------------------------------------------------------------------------
def _dot_of_bytes(lanes: int, a: DType, b: DType) -> str:
    """Return the function that adds the products of the four bytes in each word of x and y to c, modulo 2**32."""
    t, lines, total = f"<{lanes} x i32>", [], "%c"
    for k in range(4):
        for v, d in (("x", a), ("y", b)):
            lines.append(f"%{v}{k} = shl {t} %{v}, splat (i32 {24 - 8 * k})")
            lines.append(f"%{v}b{k} = {'ashr' if d is I8 else 'lshr'} {t} %{v}{k}, splat (i32 24)")
        lines += [f"%p{k} = mul {t} %xb{k}, %yb{k}", f"%s{k} = add {t} {total}, %p{k}"]
        total = f"%s{k}"
    body = "".join(f"  {line}\n" for line in lines)
    return f"define internal {t} @{_dot_name(lanes, a, b)}({t} %c, {t} %x, {t} %y) #0 {{\n{body}  ret {t} {total}\n}}\n"


def _dot_name(lanes: int, a: DType, b: DType) -> str:
    return f"emulated.dot{lanes}.{a.name}.{b.name}"


def _vector_of_bytes(unit: MatrixUnit) -> str:
    """Return the LLVM function that emulates VPDPBUSD, a sum of products of bytes, on a unit's vectors."""
    t, wide = f"<{unit.n} x i32>", f"<{unit.n * unit.k} x i8>"
    return f"""\
define internal {t} @emulated.{unit.name}({t} %c, {wide} %a, {wide} %b) #0 {{
  %x = bitcast {wide} %a to {t}
  %y = bitcast {wide} %b to {t}
  %r = call {t} @{_dot_name(unit.n, unit.a, unit.b)}({t} %c, {t} %x, {t} %y)
  ret {t} %r
}}
"""


def _tile_of_bytes(unit: MatrixUnit) -> str:
    """Return the LLVM function that emulates TDPBSSD, TDPBSUD, TDPBUSD or TDPBUUD, a product of tiles of bytes."""
    step = f"""\
  %s = phi <16 x i32> [ %old, %rows ], [ %n, %steps ]
{_LOAD_WORDS}\
  %n = call <16 x i32> @{_dot_name(unit.n, unit.a, unit.b)}(<16 x i32> %s, <16 x i32> %x, <16 x i32> %y)
"""
    return _tile_loops(unit, step, "  store <16 x i32> %n, ptr %row, align 64\n")


# ---- tiles: 16 rows of 64 bytes --------------------------------------------------------------------------------------
# broadcast word k of a row of A to all lanes (x), and load row k of B (y)
_LOAD_WORDS = """\
  %ax = getelementptr i32, ptr %arow, i64 %k
  %word = load i32, ptr %ax, align 4
  %first = insertelement <16 x i32> poison, i32 %word, i64 0
  %x = shufflevector <16 x i32> %first, <16 x i32> poison, <16 x i32> zeroinitializer
  %by = getelementptr <16 x i32>, ptr %pb, i64 %k
  %y = load <16 x i32>, ptr %by, align 64
"""


def _tile_loops(unit: MatrixUnit, step: str, end: str) -> str:
    """Return the function of a tile product: the code `step` runs for each word of each row, `end` after each row."""
    return f"""\
define internal {TILE} @emulated.{unit.name}(i16 %rm, i16 %rn, i16 %rk, {TILE} %c, {TILE} %a, {TILE} %b) #0 {{
entry:
  %pc = alloca {TILE}, align 64
  %pa = alloca {TILE}, align 64
  %pb = alloca {TILE}, align 64
  store {TILE} %c, ptr %pc, align 64
  store {TILE} %a, ptr %pa, align 64
  store {TILE} %b, ptr %pb, align 64
  br label %rows
rows:
  %i = phi i64 [ 0, %entry ], [ %i1, %done ]
  %row = getelementptr <16 x i32>, ptr %pc, i64 %i
  %arow = getelementptr <16 x i32>, ptr %pa, i64 %i
  %old = load <16 x i32>, ptr %row, align 64
  br label %steps
steps:
  %k = phi i64 [ 0, %rows ], [ %k1, %steps ]
{step}\
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, 16
  br i1 %more, label %steps, label %done
done:
{end}\
  %i1 = add i64 %i, 1
  %again = icmp ult i64 %i1, 16
  br i1 %again, label %rows, label %out
out:
  %r = load {TILE}, ptr %pc, align 64
  ret {TILE} %r
}}
"""


def _row_copy_function(head: str, source: str, stride: str, target: str, to: str) -> str:
    """Return the beginning of a function that copies 16 rows of 64 bytes; the caller adds the code after the loop."""
    return f"""\
{head}
  br label %rows
rows:
  %i = phi i64 [ 0, %entry ], [ %i1, %rows ]
  %from = mul i64 %i, {stride}
  %at = mul i64 %i, {to}
  %p = getelementptr i8, ptr {source}, i64 %from
  %q = getelementptr i8, ptr {target}, i64 %at
  %v = load <16 x i32>, ptr %p, align 1
  store <16 x i32> %v, ptr %q, align 1
  %i1 = add i64 %i, 1
  %again = icmp ult i64 %i1, 16
  br i1 %again, label %rows, label %out
out:
"""


_LOAD = f"""\
define internal {TILE} @emulated.tileload(i16 %m, i16 %n, ptr %memory, i64 %stride) #0 {{
entry:
  %tile = alloca {TILE}, align 64"""
_STORE = f"""\
define internal void @emulated.tilestore(i16 %m, i16 %n, ptr %memory, i64 %stride, {TILE} %t) #0 {{
entry:
  %tile = alloca {TILE}, align 64
  store {TILE} %t, ptr %tile, align 64"""
_ZERO = f"define internal {TILE} @emulated.tilezero(i16 %m, i16 %n) #0 {{\n  ret {TILE} zeroinitializer\n}}\n"
# intrinsic -> (name of the function, its definition)
TILE_MOVES: dict[str, tuple[str, str]] = {
    "x86.tilezero.internal": ("@emulated.tilezero", _ZERO),
    "x86.tileloadd64.internal": (
        "@emulated.tileload",
        _row_copy_function(_LOAD, "%memory", "%stride", "%tile", "64")
        + f"  %r = load {TILE}, ptr %tile, align 64\n  ret {TILE} %r\n}}\n",
    ),
    "x86.tilestored64.internal": (
        "@emulated.tilestore",
        _row_copy_function(_STORE, "%tile", "64", "%memory", "%stride") + "  ret void\n}\n",
    ),
}


def render_module(kernels: list[tuple[str, UOp]], vector_bytes: int = MAX_VECTOR_BYTES) -> str:
    """Return one LLVM module with a function for each (name, LINEAR), and the functions that emulate instructions.

    `vector_bytes`: the width of the vectors of the processor that runs it, not of the emulated one.
    """
    return llvm_ir.render_module(kernels, EmulatingRenderer, vector_bytes)


__all__ = ["EmulatingRenderer", "render_module"]
