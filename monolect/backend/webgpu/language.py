"""Define the language table of WGSL. Integers of fewer than 32 bits are 32-bit variables, truncated after arithmetic.

What it does not do: it does not rely on behaviour that WGSL leaves undefined. Comparisons with nan use `==` only,
infinities and nan are made at run time, and transcendental functions are those of `rules/transcendental.py`. The layout
of memory is in `render`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from monolect.backend.common.clike.language import Language
from monolect.backend.common.clike.program import ADD_ALONE, C_NATIVE
from monolect.backend.webgpu import longs
from monolect.backend.webgpu.longs import PAIR
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.ir.ops import INVALID

NATIVE = C_NATIVE
U32 = dtypes.uint32
WORD_BYTES = 4  # of a word of memory
_TYPES = {
    "bool": "bool", "int8": "i32", "int16": "i32", "int32": "i32", "uint8": "u32", "uint16": "u32", "uint32": "u32",
    "float32": "f32",
}  # fmt: skip
_SUFFIXES = {"f32": "f", "f64": "lf", "f16": "h", "i32": "i", "u32": "u", "i64": "li", "u64": "lu"}
_IDS = {f"{k}idx{i}": f"{v}.{c}" for k, v in (("g", "group"), ("l", "lane")) for i, c in enumerate("xyz")}
# makes a float from its bits at run time; constants of WGSL must be finite
_OF_BITS = "fn {t}_of_bits(x: {u}) -> {t} {{ return bitcast<{t}>(x); }}\n"
# sign-extends without the plain conversion: Mesa 22 evaluates comparisons of its result with constants as false
_LONG = "fn long(x: i32) -> i64 { return i64(u64(bitcast<u32>(x) ^ 2147483648u)) - 2147483648li; }\n"
_WIDER = {"i32": "long({x})", "u32": "u64({x})"}
_ADD_FLOAT = (
    "for (var old = atomicLoad({p}); ; ) {{ let seen = atomicCompareExchangeWeak({p}, old, "
    "bitcast<u32>(bitcast<f32>(old) + {x})); if (seen.exchanged) {{ break; }} old = seen.old_value; }}"
)


@dataclass(frozen=True)
class WGSL(Language):
    """The language table, with WGSL's differences from C: explicit conversions, `select`, no integers under 32 bits."""

    most_buffers: int = 1 << 16  # buffers that a kernel can bind; more are joined

    def is_narrow(self, d: DType) -> bool:
        """Whether a variable of dtype `d` has more bits than `d`."""
        return d.is_int and d.bits < 32

    def is_packed(self, d: DType) -> bool:
        """Whether several elements of dtype `d` share a word of memory."""
        return d.itemsize < WORD_BYTES and self.stored(d) != "f16"

    def literal(self, value: Any, d: DType) -> str:
        if d is dtypes.bool:
            return "true" if value and value is not INVALID else "false"
        if d.is_int and self.type(d) == PAIR:
            return longs.literal(0 if value is INVALID else int(value))
        if d.name == "float16" and "float16" in self.types and value is not INVALID and not math.isfinite(value):
            return self.cast(self.literal(value, dtypes.float32), dtypes.float32, d, 1)
        return super().literal(value, d)

    def cut(self, x: str, d: DType) -> str:
        """Return the lowest bits of the variable `x` as a value of dtype `d`, sign-extended if `d` is signed."""
        return f"({x} & {(1 << d.bits) - 1}u)" if self.type(d) == "u32" else f"extractBits({x}, 0u, {d.bits}u)"

    def cast(self, x: str, s: DType, d: DType, n: int) -> str:
        t = self.type(d)
        if s is dtypes.bool and d.is_float and d.name not in self.types:
            raise InternalError(f"{self.name} converts no bool to {d.name}")
        if d.kind == "x" and self.type(s) == PAIR:
            return f"long_to_index({x})"
        if t == PAIR and self.type(s) != PAIR:
            return f"long_of_{self.type(s)}({x})"
        if self.type(s) == PAIR and t != PAIR:
            out, a = longs.cast(x, t, s.is_unsigned), t
            return self.cut(out, d) if self.is_narrow(d) else out
        if self.type(s) in _WIDER and t in ("i64", "u64"):  # the source's signedness decides the extension
            x, a = _WIDER[self.type(s)].format(x=x), "i64" if self.type(s) == "i32" else "u64"
        else:
            a = self.type(s)
        out = x if a == t else f"{t}({x})"
        return self.cut(out, d) if self.is_narrow(d) and s is not dtypes.bool and not s.is_float else out

    def bitcast(self, x: str, s: DType, d: DType, n: int) -> str:
        a, b = self.type(s), self.type(d)
        if a == b:
            return x
        if b == "f16":
            return f"f16(unpack2x16float({self.bitcast(x, s, U32, 1)}).x)"
        if a == "f16":
            x, a = f"pack2x16float(vec2<f32>(f32({x}), 0.0f))", "u32"
        if d.is_float and x[0].isdigit():
            return f"{b}_of_bits({x})"
        out = x if a == b else f"bitcast<{b}>({x})"
        return self.cut(out, d) if d.bits < 32 else out

    def compare(self, sign: str, d: DType, n: int, a: str, b: str) -> str:
        if d.is_int and self.type(d) == PAIR:
            return longs.compare(sign, d, a, b)
        if d.is_float and sign == "!=":  # drivers disagree on `nan != nan`, but not on `nan == nan`
            return f"!({a} == {b})"
        if d is dtypes.bool and sign not in ("==", "!="):
            none, also = (f"!{a}", b) if sign[0] == "<" else (a, f"!{b}")
            return f"({none} {'|' if sign[1:] else '&'} {also})"
        return f"({a} {sign} {b})"

    def select(self, d: DType, n: int, c: str, a: str, b: str) -> str:
        return f"select({b}, {a}, {c})"

    def shift(self, sign: str, x: str, k: str) -> str:
        return f"({x} {sign} {k.rstrip('iul') + 'u' if k[0].isdigit() else f'u32({k})'})"


def language(
    has_half: bool = False, has_long: bool = True, has_double: bool = True, most_buffers: int = 1 << 16
) -> WGSL:
    """Return the language table for an adapter with or without float16, 64-bit integers and float64.

    float64 is used only together with 64-bit integers.
    """
    types = dict(_TYPES)
    types |= {"float16": "f16"} if has_half else {}
    types |= {"int64": "i64", "uint64": "u64"} if has_long else {"int64": PAIR, "uint64": PAIR}
    types |= {"float64": "f64"} if has_double and has_long else {}
    bits = {t: u for t, u in (("f32", "u32"), ("f64", "u64")) if t in types.values()}
    return WGSL(
        name="webgpu",
        types=types,
        suffixes={d: _SUFFIXES[t] for d, t in types.items() if t in _SUFFIXES},
        wraps=True,
        convert="{t}({x})",
        functions={"SQRT": "sqrt({0})", "TRUNC": "trunc({0})", "FMA": "fma({0}, {1}, {2})"},
        declare="let {v}: {t} = {x};",
        variable="var {v}: {t};",
        loop="for (var {i}: {t} = 0; {i} < {n}; {i}++) {{",
        kernel="@compute @workgroup_size({block})\nfn {name}({params}) {{",
        arguments=("@builtin(workgroup_id) group: vec3<u32>", "@builtin(local_invocation_id) lane: vec3<u32>"),
        barrier="workgroupBarrier(); storageBarrier();",
        ids=_IDS,
        atomic_add={
            "int32": "atomicAdd({p}, bitcast<u32>({x}))",
            "uint32": "atomicAdd({p}, {x})",
            "float32": _ADD_FLOAT,
            "": ADD_ALONE,
        },
        header=("enable f16;\n" if has_half else "")
        + "".join(_OF_BITS.format(t=t, u=u) for t, u in bits.items())
        + (_LONG if has_long else ""),
        index="i64" if has_long else "",
        small_index="i32",
        most_buffers=most_buffers,
    )


__all__ = ["NATIVE", "U32", "WGSL", "WORD_BYTES", "language"]
