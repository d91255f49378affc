"""Render LINEAR programs as OpenCL C 1.2, with vectors of 2 to 16 elements, local memory, barriers and atomics.

What it does not do: it requires no optional feature (float64, float16, 64-bit atomics) unless a kernel has such values.
"""

from __future__ import annotations

from collections.abc import Sequence

from monolect.backend.common.clike import program as c_style
from monolect.backend.common.clike.language import Language
from monolect.backend.common.clike.program import C_NATIVE, Position, Renderer
from monolect.backend.opencl.lanes import REQUIRED, SHUFFLE
from monolect.base.dtype import DType, dtypes
from monolect.ir.uop import UOp

NATIVE = C_NATIVE
MAX_LANES = 16  # elements of the widest vector type
_TYPES = {
    "bool": "bool", "int8": "char", "int16": "short", "int32": "int", "int64": "long", "uint8": "uchar",
    "uint16": "ushort", "uint32": "uint", "uint64": "ulong", "float32": "float",
}  # fmt: skip
_IDS = {f"{kind}idx{k}": f"get_{name}_id({k})" for kind, name in (("g", "group"), ("l", "local")) for k in range(3)}
_NO_CONTRACTION = "#pragma OPENCL FP_CONTRACT OFF\n"
_HALF = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
_DOUBLE = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
# conversions of float16 by vload_half and vstore_half, which devices without the type `half` have, too
_HALF_CONVERSIONS = """static float{m} half_to_float{n}(ushort{m} x) {{ return vload_half{m}(0, (const half*)&x); }}
static ushort{m} float_to_half{n}(float{m} x) {{ ushort{m} y; vstore_half{m}_rte(x, 0, (half*)&y); return y; }}
"""
_LONG_ATOMICS = "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"

_HALVES = "".join(_HALF_CONVERSIONS.format(n=n, m=n if n > 1 else "") for n in (1, 2, 4, 8, 16))

# atomic addition by compare-and-exchange of a word; {s} is the address space
_ADD_WORD = """void add_{s}_{t}(volatile __{s} {t}* p, {t} x) {{
  {u} old = as_{u}(*p), seen;
  while ((seen = {cas}((volatile __{s} {u}*)p, old, as_{u}(as_{t}(old) + x))) != old) old = seen;
}}
"""
# atomic addition to 8 or 16 bits, by compare-and-exchange of the 32-bit word around them
_ADD_PART = """void add_{s}_{t}(volatile __{s} {t}* p, {t} x) {{
  volatile __{s} uint* word = (volatile __{s} uint*)((size_t)p & ~(size_t)3);
  uint shift = 8 * (uint)((size_t)p & 3), mask = {mask}u << shift, old = *word, seen;
  while ((seen = atomic_cmpxchg(word, old, (old & ~mask) | ((uint)({u})({sum}) << shift))) != old) old = seen;
}}
"""


# masked accesses are functions of their own; most calls find all lanes open and use the fast path
_GATED = {
    "load": "{t} load_{s}_{t}(const __{s} {e}* p, {m} c, {t} x) {{\n"
    "  if (all(c)) return vload{n}(0, p);\n  {loads}\n  return x;\n}}\n",
    "store": "void store_{s}_{t}(__{s} {e}* p, {m} c, {t} x) {{\n"
    "  if (all(c)) {{ vstore{n}(x, 0, p); return; }}\n  {stores}\n}}\n",
}


class OpenCLC(Language):
    """The language table, with OpenCL's syntax for vector lanes: `v.s0`, `v.s01`."""

    def lane(self, r: str, n: int, i: int) -> str:
        return r if n == 1 else f"{r}.s{i:x}"

    def cast(self, x: str, s: DType, d: DType, n: int) -> str:
        half = dtypes.float16
        if half.name not in self.types and {s, d} == {half, dtypes.float32}:
            return f"half_to_float{n}({x})" if s is half else f"float_to_half{n}({x})"
        return super().cast(x, s, d, n)

    def pick(self, r: str, d: DType, n: int, lanes: Sequence[int]) -> str:
        return f"{r}.s" + "".join(f"{i:x}" for i in lanes)


def language(has_half: bool = False, has_double: bool = True, has_shuffle: bool = False) -> OpenCLC:
    """Return the language table for a device with or without float16, float64 and shuffles in sub-groups."""
    types = _TYPES | ({"float16": "half"} if has_half else {}) | ({"float64": "double"} if has_double else {})
    return OpenCLC(
        name="opencl",
        types=types,
        suffixes={"float32": "f", "int64": "L", "uint64": "UL", "uint32": "U"},
        index="long",
        lanes=MAX_LANES,
        masks=True,
        convert="(({t}){x})",
        splat="({v})({x})",
        functions={"SQRT": "sqrt({0})", "TRUNC": "trunc({0})", "FMA": "fma({0}, {1}, {2})"},
        declare="const {t} {v} = {x};",
        kernel="__kernel __attribute__((reqd_work_group_size({block}))) "
        + (REQUIRED if has_shuffle else "")
        + "void {name}({params}) {{",
        pointer="__global {t}* {v}",
        local="__local {t} {v}[{n}];",
        barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
        ids=_IDS | {"thread0": "get_group_id(0)"},
        atomic_add={"int32": "atomic_add({p}, {x})", "uint32": "atomic_add({p}, {x})"},
        shuffle=SHUFFLE if has_shuffle else "",
        load_gated="load_{s}_{t}({p}, {c}, {x})",
        store_gated="store_{s}_{t}({p}, {c}, {x})",
        on_demand=_GATED,
        header=_NO_CONTRACTION + (_HALF if has_half else "") + (_DOUBLE if has_double else ""),
    )


class OpenCLRenderer(Renderer):
    """Renders one `__kernel`; a program without SPECIALs is one work-item."""

    def atomic(self, d: DType, p: Position, x: str) -> str:
        if d.name in self.lang.atomic_add:
            return super().atomic(d, p, x)
        space = self.space(p)
        t = self.lang.stored(d)
        row = {"s": space, "t": t}
        if d.bits >= 32:
            u = self.lang.type(dtypes.uint64 if d.bits == 64 else dtypes.uint32)
            text = (_LONG_ATOMICS if d.bits == 64 else "") + _ADD_WORD
            text = text.format(u=u, cas="atom_cmpxchg" if d.bits == 64 else "atomic_cmpxchg", **row)
        else:
            u = self.lang.type(dtypes.uint8 if d.bits <= 8 else dtypes.uint16)
            old = f"as_{t}(({u})(old >> shift))"
            sum_ = f"{old} | x" if d is dtypes.bool else f"as_{u}(({t})({old} + x))"
            text = _ADD_PART.format(u=u, mask="0xFF" if d.bits <= 8 else "0xFFFF", sum=sum_, **row)
        self.functions_used[text] = None
        x = self.lang.cast(x, d, dtypes.uint8, 1) if d is dtypes.bool else x
        return f"add_{space}_{t}(&{p.buffer}[{p.start}], {x});"


def render_module(kernels: list[tuple[str, UOp]], lang: Language) -> str:
    """Return one OpenCL C source with a kernel for each (name, LINEAR)."""
    text = c_style.render_module(kernels, lang, OpenCLRenderer)
    return _HALVES + text if "half_to_float" in text or "float_to_half" in text else text


__all__ = ["NATIVE", "OpenCLC", "OpenCLRenderer", "language", "render_module"]
